#include "fleet/server/pace.h"

#include <math.h>

enum {
    FIRST = 1,
    MOST = 256,             /* streams that there are */
    HARDLY = 16000,         /* bytes/s: the smallest model that is paced would take a minute */
    MEASURE_NS = 900000000, /* rates are those of so long at least */
};
/* One healthy client carries 11 to 12.5 of the 12.5 MB/s of a line while others send
 * (docs/measured/collectives.md): less than `full` is not full. */
static const double full = 0.75, more = 1.5, stalled = 0.1;
/* Offer, grant and the slow start of a connection take some round trips; looks come each 0.1 s. */
static const double end_s = 0.15;

void rui_fed_pace_round(rui_fed_pace *p)
{
    p->old = p->open;
}

void rui_fed_pace_begin(rui_fed_pace *p, int64_t sent_bytes, ru_time now)
{
    p->most = FIRST;
    p->rate = 0;
    p->known = p->best;
    p->sent_bytes = sent_bytes;
    p->due_bytes = p->open == p->old ? sent_bytes : p->due_bytes;
    p->looked = now;
}

void rui_fed_pace_put(rui_fed_pace *p, uint32_t client)
{
    RU_CHECK(p->n < p->max);
    p->queue[(p->first + p->n++) % p->max] = client;
}

/* Little is left of what is under way, if all of it leaves. */
static bool ends(const rui_fed_pace *p, int64_t sent_bytes)
{
    return (double)(p->due_bytes - sent_bytes) <= end_s * p->best;
}

bool rui_fed_pace_take(rui_fed_pace *p, int64_t sent_bytes, uint32_t *client)
{
    if (p->n == 0 || p->open - p->old >= p->most + (ends(p, sent_bytes) ? 1 : 0)) {
        return false;
    }
    *client = p->queue[p->first];
    p->first = (p->first + 1) % p->max;
    p->n--;
    return true;
}

void rui_fed_pace_sends(rui_fed_pace *p, int64_t sent_bytes, int64_t model_bytes)
{
    p->open++;
    p->due_bytes = (p->due_bytes > sent_bytes ? p->due_bytes : sent_bytes) + model_bytes;
}

/* Which one ended is not known: as long as it may be one of this round, those of earlier ones stay.
 */
void rui_fed_pace_sent(rui_fed_pace *p)
{
    RU_CHECK(p->open > 0);
    p->open--;
    p->old = p->old < p->open ? p->old : p->open;
}

void rui_fed_pace_look(rui_fed_pace *p, int64_t sent_bytes, ru_time now)
{
    int64_t ns = ru_time_since(now, p->looked);
    if (ns < MEASURE_NS) {
        return;
    }
    double rate = (double)(sent_bytes - p->sent_bytes) * 1e9 / (double)ns;
    bool gains = rate > more * p->rate && !(p->known > 0 && rate >= full * p->known);
    bool stalls = rate < stalled * p->best || rate < HARDLY;
    if ((gains || stalls) && p->most < MOST) {
        p->rate = rate;
        p->most *= 2;
    }
    p->best = fmax(p->best, rate);
    p->sent_bytes = sent_bytes;
    p->looked = now;
}
