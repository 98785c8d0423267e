#include "bench/replay/replay_loop.h"

#include <math.h>
#include <stddef.h>

#include "sim/sim.h"

enum { WAITING_MAX = 1 << 16 }; /* requests of an open loop that are under way */

typedef struct line {
    uint32_t *who; /* [WAITING_MAX] ring */
    uint32_t head, n;
} line;

typedef struct loop {
    const rui_loop_in *in;
    ru_sim *sim;
    ru_rng rng;
    line lines[RU_STATIONS_MAX];
    int64_t *begun; /* [WAITING_MAX] of a request */
    uint32_t next;  /* open loop: number of the next request */
    double *latency;
    uint32_t n, max;
    bool full;
} loop;

static double draw(loop *l)
{
    switch (l->in->law) {
    case RUI_LOOP_EXPONENTIAL:
        return ru_rng_exponential(&l->rng);
    case RUI_LOOP_EVEN:
        return ru_rng_gamma(&l->rng, 4) / 4;
    case RUI_LOOP_BURSTY:
        return ru_rng_exponential(&l->rng) * (ru_rng_f64(&l->rng) < 0.9 ? 0.55 : 5.05);
    }
    return 1;
}

static void later(loop *l, double s, ru_sim_fn fn, uint64_t arg)
{
    ru_time at = {ru_sim_now(l->sim).ns + (int64_t)(s * 1e9)};
    (void)ru_sim_at(l->sim, at, fn, l, arg);
}

static void served(void *self, uint64_t station);

static void enter(loop *l, uint32_t station, uint32_t who)
{
    line *q = &l->lines[station];
    if (q->n == WAITING_MAX) {
        l->full = true;
        ru_sim_stop(l->sim);
        return;
    }
    q->who[(q->head + q->n++) % WAITING_MAX] = who;
    if (q->n == 1) {
        later(l, draw(l) * l->in->station[station].service_s, served, station);
    }
}

static void think_over(void *self, uint64_t who)
{
    loop *l = self;
    l->begun[who] = ru_sim_now(l->sim).ns;
    enter(l, 0, (uint32_t)who);
}

static void arrived(void *self, uint64_t unused)
{
    loop *l = self;
    (void)unused;
    think_over(l, l->next++ % WAITING_MAX);
    later(l, ru_rng_exponential(&l->rng) / l->in->rate, arrived, 0);
}

static void answered(loop *l, uint32_t who)
{
    int64_t now = ru_sim_now(l->sim).ns;
    if ((double)now * 1e-9 >= l->in->warm_s) {
        if (l->n == l->max) {
            l->full = true;
            ru_sim_stop(l->sim);
            return;
        }
        l->latency[l->n++] = (double)(now - l->begun[who]) * 1e-9;
    }
    if (l->in->rate <= 0) {
        later(l, ru_rng_exponential(&l->rng) * l->in->think_s, think_over, who);
    }
}

static void served(void *self, uint64_t station)
{
    loop *l = self;
    line *q = &l->lines[station];
    uint32_t who = q->who[q->head];
    q->head = (q->head + 1) % WAITING_MAX;
    if (--q->n > 0) {
        later(l, draw(l) * l->in->station[station].service_s, served, station);
    }
    if (station + 1 < l->in->n) {
        enter(l, (uint32_t)station + 1, who);
    } else {
        answered(l, who);
    }
}

ru_status rui_loop_run(const rui_loop_in *in, ru_arena *arena, double **latency, uint32_t *n,
                       ru_err *err)
{
    double slowest = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        slowest = fmax(slowest, in->station[i].service_s);
    }
    loop l = {.in = in, .rng = ru_rng_from(in->seed, in->clients)};
    l.max = 1000 + (uint32_t)(2 * in->measure_s / slowest);
    l.latency = RU_NEW(arena, double, l.max);
    l.begun = RU_NEW(arena, int64_t, WAITING_MAX);
    bool room = l.latency != NULL && l.begun != NULL;
    for (uint32_t i = 0; i < in->n; i++) {
        l.lines[i].who = RU_NEW(arena, uint32_t, WAITING_MAX);
        room = room && l.lines[i].who != NULL;
    }
    if (!room) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a simulated loop");
    }
    const ru_sim_options opt = {.seed = in->seed};
    RU_TRY(ru_sim_open(&opt, &l.sim, err));
    if (in->rate > 0) {
        arrived(&l, 0);
    } else {
        for (uint32_t i = 0; i < in->clients; i++) {
            later(&l, ru_rng_exponential(&l.rng) * in->think_s, think_over, i);
        }
    }
    ru_time until = {(int64_t)((in->warm_s + in->measure_s) * 1e9)};
    ru_status st = ru_sim_run(l.sim, until, err);
    ru_sim_close(l.sim);
    RU_TRY(st);
    if (l.full) {
        return RU_FAIL(err, RU_E_LIMIT, "a simulated loop has more requests than it can hold");
    }
    *latency = l.latency;
    *n = l.n;
    return RU_OK;
}
