#include "bench/replay/serve/replay_gate_gpu.h"

#include <math.h>
#include <stddef.h>

#include "cost/math/quantile.h"

#define DEVICE_UNITS(g) ((g)->c->in.device)
#define DONE_S          1.5e-9
#define OWN_NOISE       0.03 /* deviation of an op's own time */
#define SLICE_S         2e-3
#define QUOTA           0.5

enum { ISSUED_MAX = 4096 };

typedef struct gpu {
    const rui_gate_case *c;
    ru_sim *sim;
    ru_gate gate;
    ru_rng arrivals, own;
    double *arrived, *latency; /* [requests] */
    uint32_t n_arrived, n_ended;
    bool busy;
    uint32_t op;    /* of the request in the device */
    double left_s;  /* of it, alone */
    uint32_t *fifo; /* [ISSUED_MAX] ops of the training */
    uint32_t head, n_fifo, next;
    double training_left_s, training_done_s;
    double at_s; /* progress is known until here */
    uint64_t event;
    ru_corun_overlap beside[RU_CORUN_OVERLAPS];
    uint32_t n_beside;
    uint64_t decisions;
    double predicted_s, missed_s;
} gpu;

static double demand(ru_op_class c, bool memory)
{
    return c == RU_OP_UNKNOWN ? 0.4 : (c == RU_OP_MEMORY) == memory ? 0.8 : 0.2;
}

/* How much of `strength` an op suffers beside another one: 0 to about 1. */
static double law(const gpu *g, const ru_gate_op *a, const ru_gate_op *b)
{
    double sa = fmin(a->units / DEVICE_UNITS(g), 1), sb = fmin(b->units / DEVICE_UNITS(g), 1);
    switch (g->c->law) {
    case RUI_LAW_CLASSES:
        return sb * (a->cls == RU_OP_UNKNOWN || b->cls == RU_OP_UNKNOWN ? 0.3
                     : a->cls == b->cls                                 ? 1
                                                                        : 0.15);
    case RUI_LAW_EXCESS:
        return fmax(0, demand(a->cls, false) * sa + demand(b->cls, false) * sb - 1) +
               fmax(0, demand(a->cls, true) * sa + demand(b->cls, true) * sb - 1) +
               0.4 * fmax(0, sa + sb - 1);
    case RUI_LAW_PRESSURE:
        break;
    }
    double pressure = b->cls == RU_OP_MEMORY ? 1 : b->cls == RU_OP_COMPUTE ? 0.35 : 0.45;
    double sensitive = a->cls == RU_OP_MEMORY ? 0.9 : a->cls == RU_OP_COMPUTE ? 0.5 : 0.55;
    return sb * pressure * sensitive;
}

/* Rates of the op of the request and of the training, together. */
static void rates(const gpu *g, double *service, double *training)
{
    const ru_gate_op *s = &g->c->in.service[g->op];
    uint32_t t_at = g->fifo[g->head];
    const ru_gate_op *t = &g->c->in.training[t_at];
    uint32_t bits[4];
    ru_philox_at(g->c->seed, g->op, t_at, bits);
    double mine = 0.5 + bits[0] * 0x1p-32, its = 0.5 + bits[1] * 0x1p-32;
    double share = g->c->in.method == RU_GATE_QUOTA ? QUOTA : 1;
    *service = 1 / (1 + share * g->c->strength * mine * law(g, s, t));
    *training = 1 / (1 + g->c->strength * its * law(g, t, s));
}

static void rates_now(const gpu *g, double *service, double *training)
{
    bool s, t;
    *service = g->busy ? 1 : 0;
    *training = g->n_fifo > 0 ? 1 : 0;
    ru_gate_runs(&g->gate, g->at_s, &s, &t);
    if (g->busy && g->n_fifo > 0) {
        if (s && t) {
            rates(g, service, training);
        }
        *service = s ? *service : 0;
        *training = t ? *training : 0;
    }
    bool wide =
        g->n_fifo > 0 && g->c->in.training[g->fifo[g->head]].units > QUOTA * DEVICE_UNITS(g);
    *training *= g->c->in.method == RU_GATE_QUOTA && wide ? QUOTA : 1;
}

static double now_s(const gpu *g)
{
    return 1e-9 * (double)ru_sim_now(g->sim).ns;
}

static void beside(gpu *g, double s)
{
    uint32_t kind = g->gate.training_kind[g->fifo[g->head]];
    uint32_t k = 0;
    while (k < g->n_beside && g->beside[k].kind != kind) {
        k++;
    }
    if (k < RU_CORUN_OVERLAPS) {
        g->n_beside = k == g->n_beside ? k + 1 : g->n_beside;
        g->beside[k].s = g->beside[k].kind == kind ? g->beside[k].s + s : s;
        g->beside[k].kind = kind;
    }
}

static void progress(gpu *g)
{
    double service, training, dt = now_s(g) - g->at_s;
    if (dt > 0) {
        rates_now(g, &service, &training);
        if (g->busy && g->n_fifo > 0 && training > 0) {
            beside(g, dt);
        }
        g->left_s -= g->busy ? dt * service : 0;
        double work = g->n_fifo > 0 ? dt * training : 0;
        g->training_left_s -= work;
        g->training_done_s += work;
    }
    g->at_s = now_s(g);
}

static double own(gpu *g)
{
    return fmax(0.5, 1 + OWN_NOISE * ru_rng_normal(&g->own));
}

static void next_op(gpu *g)
{
    g->left_s = g->c->in.service[g->op].s * own(g);
    g->n_beside = 0;
    for (uint32_t k = 0; k < RU_CORUN_OVERLAPS; k++) {
        g->beside[k] = (ru_corun_overlap){RU_CORUN_KINDS, 0};
    }
}

static void begin_request(gpu *g)
{
    if (!g->busy && g->n_ended < g->n_arrived) {
        ru_gate_begun(&g->gate, g->at_s, g->arrived[g->n_ended], g->next);
        g->busy = true;
        g->op = 0;
        next_op(g);
    }
}

static void end_op(gpu *g)
{
    for (uint32_t k = 0; k < g->n_beside; k++) {
        uint32_t kind = g->gate.service_kind[g->op];
        g->predicted_s +=
            g->beside[k].s * ru_corun_loss(&g->gate.corun, kind, g->beside[k].kind, false);
    }
    if (g->n_beside > 0) {
        g->missed_s += g->at_s - g->gate.op_begun_s - g->c->in.service[g->op].s;
    }
    ru_gate_service_op(&g->gate, g->at_s, g->op, g->beside, g->n_beside);
    g->op++;
    if (g->op < g->c->in.n_service) {
        next_op(g);
        return;
    }
    ru_gate_ended(&g->gate, g->at_s);
    g->busy = false;
    g->latency[g->n_ended] = g->at_s - g->arrived[g->n_ended];
    g->n_ended++;
    if (g->n_ended == g->c->requests) {
        ru_sim_stop(g->sim);
    }
    begin_request(g);
}

static void issue(gpu *g)
{
    while (g->n_fifo < ISSUED_MAX) {
        double loss = RU_NAN;
        if (g->c->in.method == RU_GATE_ORACLE && g->busy) {
            double mine, its;
            g->fifo[g->head] = g->n_fifo == 0 ? g->next : g->fifo[g->head];
            rates(g, &mine, &its);
            loss = 1 - mine;
        }
        g->decisions++;
        if (!ru_gate_may(&g->gate, g->at_s, g->next, loss)) {
            return;
        }
        ru_gate_issued(&g->gate, g->next);
        g->fifo[(g->head + g->n_fifo) % ISSUED_MAX] = g->next;
        if (g->n_fifo++ == 0) {
            g->training_left_s = g->c->in.training[g->next].s * own(g);
        }
        g->next = (g->next + 1) % g->c->in.n_training;
    }
}

static void boundary(void *self, uint64_t unused);

static void schedule(gpu *g)
{
    double service, training, dt = 1e9;
    rates_now(g, &service, &training);
    dt = service > 0 ? fmin(dt, g->left_s / service) : dt;
    dt = training > 0 ? fmin(dt, g->training_left_s / training) : dt;
    if (g->c->in.method == RU_GATE_SLICES) {
        dt = fmin(dt, SLICE_S - fmod(g->at_s, SLICE_S));
    }
    if (g->event != 0) {
        ru_sim_cancel(g->sim, g->event);
        g->event = 0;
    }
    if (service > 0 || training > 0) {
        int64_t ns = (int64_t)ceil(fmax(dt, 1e-9) * 1e9);
        g->event = ru_sim_at(g->sim, (ru_time){ru_sim_now(g->sim).ns + ns}, boundary, g, 0);
    }
}

static void turn(gpu *g)
{
    if (g->busy && g->left_s <= DONE_S) {
        end_op(g);
    }
    if (g->n_fifo > 0 && g->training_left_s <= DONE_S) {
        ru_gate_training_op(&g->gate, g->fifo[g->head]);
        g->head = (g->head + 1) % ISSUED_MAX;
        if (--g->n_fifo > 0) {
            g->training_left_s = g->c->in.training[g->fifo[g->head]].s * own(g);
        }
    }
    issue(g);
    schedule(g);
}

static void boundary(void *self, uint64_t unused)
{
    (void)unused;
    gpu *g = self;
    g->event = 0;
    progress(g);
    turn(g);
}

static void arrived(void *self, uint64_t unused)
{
    (void)unused;
    gpu *g = self;
    progress(g);
    ru_gate_arrived(&g->gate, g->at_s);
    g->arrived[g->n_arrived++] = g->at_s;
    begin_request(g);
    if (g->n_arrived < g->c->requests) {
        double gap = ru_rng_exponential(&g->arrivals) * g->gate.left_s[0] / g->c->load;
        ru_time at = {ru_sim_now(g->sim).ns + 1 + (int64_t)(gap * 1e9)};
        (void)ru_sim_at(g->sim, at, arrived, g, 0);
    }
    turn(g);
}

ru_status rui_gate_play(const rui_gate_case *c, ru_arena *arena, rui_gate_result *out, ru_err *err)
{
    gpu g = {.c = c,
             .arrivals = ru_rng_from(c->seed, UINT64_C(1) << 40),
             .own = ru_rng_from(c->seed, (UINT64_C(1) << 40) + 1)};
    g.arrived = RU_NEW(arena, double, c->requests);
    g.latency = RU_NEW(arena, double, c->requests);
    g.fifo = RU_NEW(arena, uint32_t, ISSUED_MAX);
    if (g.arrived == NULL || g.latency == NULL || g.fifo == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u requests", c->requests);
    }
    RU_TRY(ru_gate_init(&g.gate, &c->in, arena, err));
    const ru_sim_options opt = {.seed = c->seed};
    RU_TRY(ru_sim_open(&opt, &g.sim, err));
    g.at_s = now_s(&g);
    (void)ru_sim_at(g.sim, ru_sim_now(g.sim), arrived, &g, 0);
    ru_status st = ru_sim_run(g.sim, (ru_time){INT64_MAX / 2}, err);
    ru_sim_close(g.sim);
    RU_TRY(st);
    ru_sort_f64(g.latency, c->requests);
    *out = (rui_gate_result){
        .p50_s = ru_quantile_sorted(g.latency, c->requests, 0.5, RU_QUANTILE_LINEAR),
        .p99_s = ru_quantile_sorted(g.latency, c->requests, 0.99, RU_QUANTILE_LINEAR),
        .training = g.training_done_s / g.at_s,
        .s = g.at_s,
        .margin = g.gate.corun.margin,
        .error = g.missed_s > 0 ? fabs(g.predicted_s / g.missed_s - 1) : 0,
        .decisions = g.decisions,
    };
    return RU_OK;
}
