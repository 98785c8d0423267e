#include "fleet/server/pace.h"

#include <math.h>

enum {
    FIRST = 2,
    MOST = 256,     /* streams that there are */
    HARDLY = 16000, /* bytes/s: the smallest model that is paced would take a minute */
};

void rui_fed_pace_round(rui_fed_pace *p)
{
    p->old = p->open;
}

void rui_fed_pace_begin(rui_fed_pace *p, int64_t sent_bytes, ru_time now)
{
    p->most = FIRST;
    p->rate = 0;
    p->sent_bytes = sent_bytes;
    p->looked = now;
}

void rui_fed_pace_put(rui_fed_pace *p, uint32_t client)
{
    RU_CHECK(p->n < p->max);
    p->queue[(p->first + p->n++) % p->max] = client;
}

bool rui_fed_pace_take(rui_fed_pace *p, uint32_t *client)
{
    if (p->n == 0 || p->open - p->old >= p->most) {
        return false;
    }
    *client = p->queue[p->first];
    p->first = (p->first + 1) % p->max;
    p->n--;
    return true;
}

void rui_fed_pace_sends(rui_fed_pace *p)
{
    p->open++;
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
    double rate =
        (double)(sent_bytes - p->sent_bytes) * 1e9 / (double)(ru_time_since(now, p->looked) + 1);
    bool more = rate > 1.5 * p->rate;
    bool stalls = rate < 0.1 * p->best || rate < HARDLY;
    if ((more || stalls) && p->most < MOST) {
        p->rate = rate;
        p->most *= 2;
    }
    p->best = fmax(p->best, rate);
    p->sent_bytes = sent_bytes;
    p->looked = now;
}
