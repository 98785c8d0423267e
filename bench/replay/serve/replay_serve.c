#include "bench/replay/serve/replay_serve.h"

#include <math.h>
#include <stddef.h>

#include "sim/sim.h"

enum { IN_SERVER_MAX = 1 << 16 };

typedef struct play {
    const rui_serve_in *in;
    ru_sim *sim;
    ru_serve *server;
    ru_rng arrivals, classes;
    uint32_t phase, asked;
    int64_t *at_ns;          /* [requests] of each arrival */
    uint32_t *class_of;      /* [requests] */
    uint8_t *phase_of;       /* [requests] */
    ru_serve_start *started; /* [IN_SERVER_MAX] by number of the batch */
    uint64_t timer;          /* 0: off */
    ru_arena memory;
    ru_effects fx;
    ru_functions *pool;  /* NULL: none */
    uint64_t pool_timer; /* 0: off */
    uint32_t *try;       /* [instances_max] of their last INVOKE */
    ru_arena pool_memory;
    ru_effects pool_fx;
    rui_serve_out out;
    double usd, batches;
    ru_status st;
    ru_err *err;
} play;

static void answered(void *self, uint64_t batch);

static void timer(void *self, uint64_t unused);

/* -- functions ---------------------------------------------------------------------------------
 */

static void pool_happen(play *p, ru_event ev);

static void pool_timer(void *self, uint64_t unused)
{
    play *p = self;
    (void)unused;
    p->pool_timer = 0;
    pool_happen(p, (ru_event){.kind = RU_EV_TIMER, .what = RU_FUNCTION_TIMER});
}

static void up(void *self, uint64_t instance)
{
    pool_happen(
        self, (ru_event){.kind = RU_EV_LOCAL, .what = RU_FUNCTION_UP, .value = (int64_t)instance});
}

static void replied(void *self, uint64_t instance)
{
    play *p = self;
    const ru_function_reply r = {(uint32_t)instance, p->try[instance], RU_FUNCTION_OK};
    pool_happen(
        p, (ru_event){
               .kind = RU_EV_LOCAL, .what = RU_FUNCTION_REPLY, .data = &r, .size_bytes = sizeof r});
}

/* Nothing is called at once: the machines do not meet inside a step. */
static void pool_perform(play *p, const ru_effect *f, ru_time now)
{
    const ru_function_order *o = f->data;
    if (f->kind == RU_FX_TIMER || f->kind == RU_FX_TIMER_OFF) {
        ru_sim_cancel(p->sim, p->pool_timer);
        p->pool_timer = f->kind == RU_FX_TIMER ? ru_sim_at(p->sim, f->at, pool_timer, p, 0) : 0;
    } else if (f->what == RU_FUNCTION_SPAWN) {
        (void)ru_sim_at(p->sim, now, up, p, o->instance);
    } else if (f->what == RU_FUNCTION_INVOKE) {
        const ru_serve_start *s = &p->started[o->id];
        double seconds = p->in->service_s(p->in->self, s->n, s->largest, s->memory_mb);
        ru_time done = {now.ns + llround(seconds * 1e9)};
        p->try[o->instance] = o->try;
        (void)ru_sim_at(p->sim, done, replied, p, o->instance);
    } else { /* no instance ends: all have one memory and stay */
        const ru_function_answer *a = f->data;
        RU_CHECK(f->what == RU_FUNCTION_ANSWER && a->result == RU_FUNCTION_OK);
        (void)ru_sim_at(p->sim, now, answered, p, a->id);
    }
}

static void pool_happen(play *p, ru_event ev)
{
    ev.now = ru_sim_now(p->sim);
    ru_functions_step(p->pool, &ev, &p->pool_fx);
    for (uint32_t i = 0; i < p->pool_fx.n; i++) {
        pool_perform(p, &p->pool_fx.at[i], ev.now);
    }
    ru_effects_clear(&p->pool_fx);
}

/* -- the server --------------------------------------------------------------------------------
 */

static void start(play *p, const ru_serve_start *s)
{
    const rui_serve_in *in = p->in;
    p->started[s->batch] = *s;
    p->usd += in->usd(in->self, s->n, s->largest, s->memory_mb);
    p->batches++;
    if (p->pool != NULL) {
        const ru_function_call c = {s->batch, (uint32_t)s->memory_mb};
        pool_happen(p, (ru_event){.kind = RU_EV_LOCAL,
                                  .what = RU_FUNCTION_CALL,
                                  .data = &c,
                                  .size_bytes = sizeof c});
        return;
    }
    double seconds = in->service_s(in->self, s->n, s->largest, s->memory_mb);
    ru_time done = {ru_sim_now(p->sim).ns + llround(seconds * 1e9)};
    (void)ru_sim_at(p->sim, done, answered, p, s->batch);
}

static void perform(play *p, const ru_effect *f)
{
    if (f->kind == RU_FX_LOCAL && f->what == RU_SERVE_START) {
        start(p, f->data);
    } else if (f->kind == RU_FX_LOCAL && f->what == RU_SERVE_REFUSED) {
        p->st = RU_FAIL(p->err, RU_E_LIMIT, "the server holds %d requests already", IN_SERVER_MAX);
        ru_sim_stop(p->sim);
    } else if (f->kind == RU_FX_TIMER || f->kind == RU_FX_TIMER_OFF) {
        ru_sim_cancel(p->sim, p->timer);
        p->timer = f->kind == RU_FX_TIMER ? ru_sim_at(p->sim, f->at, timer, p, 0) : 0;
    }
}

static void happen(play *p, ru_event ev)
{
    ev.now = ru_sim_now(p->sim);
    ru_serve_step(p->server, &ev, &p->fx);
    for (uint32_t i = 0; i < p->fx.n; i++) {
        perform(p, &p->fx.at[i]);
    }
    ru_effects_clear(&p->fx);
}

static void timer(void *self, uint64_t unused)
{
    play *p = self;
    (void)unused;
    p->timer = 0;
    happen(p, (ru_event){.kind = RU_EV_TIMER, .what = RU_SERVE_TIMER});
}

static void answered(void *self, uint64_t batch)
{
    play *p = self;
    int64_t now = ru_sim_now(p->sim).ns;
    const ru_serve_start *s = &p->started[batch];
    for (uint32_t k = s->first; k != RU_SERVE_NONE; k = ru_serve_next(p->server, k)) {
        uint64_t id = ru_serve_id(p->server, k);
        double size = p->in->class_size != NULL ? p->in->class_size[p->class_of[id]] : 1;
        p->out.phase[p->out.n] = p->phase_of[id];
        p->out.batch[p->out.n] = (uint16_t)s->n;
        p->out.latency[p->out.n++] = (double)(now - p->at_ns[id]) * 1e-9 / size;
    }
    happen(p, (ru_event){.kind = RU_EV_LOCAL, .what = RU_SERVE_DONE, .value = (int64_t)batch});
}

static void arrive(void *self, uint64_t id)
{
    play *p = self;
    p->at_ns[id] = ru_sim_now(p->sim).ns;
    p->phase_of[id] = (uint8_t)p->phase;
    p->class_of[id] = p->in->table.n_classes > 1
                          ? ru_rng_pick(&p->classes, p->in->class_share, p->in->table.n_classes)
                          : 0;
    if (++p->asked < p->in->requests) {
        const int64_t *given = p->in->given_ns;
        int64_t gap_ns =
            given != NULL
                ? given[p->asked] - given[p->asked - 1]
                : llround(ru_markov_draw(&p->in->arrivals, &p->arrivals, &p->phase) * 1e9);
        ru_time at = {p->at_ns[id] + gap_ns};
        (void)ru_sim_at(p->sim, at, arrive, p, p->asked);
    }
    const ru_serve_request r = {.id = id, .class_of = p->class_of[id]};
    happen(p,
           (ru_event){
               .kind = RU_EV_LOCAL, .what = RU_SERVE_REQUEST, .data = &r, .size_bytes = sizeof r});
}

static ru_status open_pool(play *p, ru_arena *arena)
{
    const ru_functions_options o = {.instances_max = p->in->instances_max,
                                    .waiting_max = IN_SERVER_MAX};
    p->try = RU_NEW(arena, uint32_t, p->in->instances_max);
    return p->try != NULL ? ru_functions_init(&o, arena, &p->pool, p->err)
                          : RU_FAIL(p->err, RU_E_LIMIT, "no memory for functions");
}

ru_status rui_serve_run(const rui_serve_in *in, ru_arena *arena, rui_serve_out *out, ru_err *err)
{
    play p = {.in = in, .err = err};
    p.arrivals = ru_rng_from(in->seed, ru_rng_label("arrivals"));
    p.classes = ru_rng_from(in->seed, ru_rng_label("classes"));
    p.at_ns = RU_NEW(arena, int64_t, in->requests);
    p.class_of = RU_NEW(arena, uint32_t, in->requests);
    p.phase_of = RU_NEW(arena, uint8_t, in->requests);
    p.out.latency = RU_NEW(arena, double, in->requests);
    p.out.phase = RU_NEW(arena, uint8_t, in->requests);
    p.out.batch = RU_NEW(arena, uint16_t, in->requests);
    p.started = RU_NEW(arena, ru_serve_start, IN_SERVER_MAX);
    if (p.at_ns == NULL || p.class_of == NULL || p.phase_of == NULL || p.out.latency == NULL ||
        p.out.phase == NULL || p.out.batch == NULL || p.started == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u requests", in->requests);
    }
    ru_markov_law law;
    RU_TRY(ru_markov_solve(&in->arrivals, &law, err));
    RU_TRY(in->functions ? open_pool(&p, arena) : RU_OK);
    p.phase = ru_rng_pick(&p.arrivals, law.at_arrival, in->arrivals.n);
    const ru_sim_options sim = {.seed = in->seed};
    RU_TRY(ru_sim_open(&sim, &p.sim, err));
    ru_time begun = ru_sim_now(p.sim);
    const ru_serve_options opt = {IN_SERVER_MAX, in->instances_max, 0, in->seed, 0};
    ru_arena_init(&p.memory, 0);
    ru_effects_init(&p.fx, &p.memory);
    ru_arena_init(&p.pool_memory, 0);
    ru_effects_init(&p.pool_fx, &p.pool_memory);
    ru_status st = ru_serve_init(&opt, &in->table, begun, arena, &p.server, err);
    if (st == RU_OK) {
        (void)ru_sim_at(p.sim, begun, arrive, &p, 0);
        st = ru_sim_run(p.sim, (ru_time){INT64_C(4000000000000000000)}, err);
    }
    ru_sim_close(p.sim);
    ru_arena_fini(&p.memory);
    ru_arena_fini(&p.pool_memory);
    RU_TRY(st);
    RU_TRY(p.st);
    if (p.out.n != in->requests) {
        return RU_FAIL(err, RU_E_BUG, "%u of %u requests were answered", p.out.n, in->requests);
    }
    p.out.usd_per_request = p.usd / p.out.n;
    p.out.mean_batch = p.out.n / p.batches;
    p.out.gb_s = p.pool != NULL ? ru_functions_meter(p.pool).gb_s : 0;
    *out = p.out;
    return RU_OK;
}
