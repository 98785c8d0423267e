/* Periods of at least 50 ms. With the cores to itself the process loses the processor a few times a
 * second; a spinning thread on a shared core loses it every few milliseconds. */
#include "exec/waits.h"

enum { RUNS_MIN = 2, LOST_MIN = 3, LOST_PER_S = 40 };
static const int64_t period_ns = 50000000, second_ns = 1000000000;
static const int64_t hold_max_ns = 8000000000, lock_max_ns = 64000000000;

static int64_t doubled(int64_t ns, int64_t max_ns)
{
    int64_t next = ns == 0 ? second_ns : 2 * ns;
    return next < max_ns ? next : max_ns;
}

bool rui_waits_ran(rui_waits *w, int64_t took_ns)
{
    w->runs++;
    w->busy_ns += took_ns;
    return w->runs >= RUNS_MIN && w->busy_ns >= period_ns;
}

static void after_long_waits(rui_waits *w, int64_t mean_ns, int64_t now_ns, bool shared)
{
    w->spun_ns = mean_ns;
    w->hold_ns = shared ? w->hold_ns : 0;
    /* Twice in a row: a program that has just ended its own work may still spin for a while. */
    w->brief = w->trial = shared && w->shared && now_ns >= w->until_ns;
    w->shared = shared;
}

static void after_trial(rui_waits *w, int64_t mean_ns, int64_t now_ns)
{
    w->trial = false;
    if (mean_ns < w->spun_ns - w->spun_ns / 4) {
        w->hold_ns = doubled(w->hold_ns, hold_max_ns);
        w->until_ns = now_ns + w->hold_ns;
        w->lock_ns = 0;
    } else {
        w->brief = false;
        w->lock_ns = doubled(w->lock_ns, lock_max_ns);
        w->until_ns = now_ns + w->lock_ns;
    }
}

void rui_waits_judge(rui_waits *w, int64_t now_ns, int64_t lost)
{
    RU_CHECK(w->runs > 0);
    int64_t mean_ns = w->busy_ns / w->runs;
    double times = (double)(lost - w->lost);
    bool shared = times >= LOST_MIN && times * (double)second_ns >= LOST_PER_S * (double)w->busy_ns;
    if (!w->brief) {
        after_long_waits(w, mean_ns, now_ns, shared);
    } else if (w->trial) {
        after_trial(w, mean_ns, now_ns);
    } else if (now_ns >= w->until_ns) {
        w->brief = false; /* a period of long waits, to see whether the others have gone */
        w->until_ns = 0;
    }
    w->runs = 0;
    w->busy_ns = 0;
    w->lost = lost;
}
