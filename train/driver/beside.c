#include "train/driver/beside.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "env/process/beside.h"
#include "env/process/process.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "plan/serve/gate.h"

#define GOAL     1.10 /* without a promise: of the tail that the server has alone */
#define GOAL_MIN 1.01
/* Requests that the training may make late beside those that are late anyway: none whose latency in
 * the shadow is below this quantile, as long as the lag stays within what the promise leaves above
 * it. */
#define QUANTILE  0.995
#define TAIL_MIN  64   /* batches before a tail is known; until then ops wait for each of them */
#define OP_S      1e-4 /* of an op that was not measured yet */
#define WAIT_NS   INT64_C(100000000)
#define ALIVE_NS  INT64_C(500000000)
#define SHARE_MIN 0.02
#define TELL_OPS  64

struct rui_beside {
    ru_beside *ring;
    ru_beside_facts facts;
    ru_arena arena; /* of the executable's tables */
    ru_gate gate;
    /* [n] of a step, or [2 n]: behind them the same on one thread, for those beside a batch */
    ru_gate_op service, *ops;
    uint32_t n, op;   /* op: under way, while `runs` */
    uint32_t threads; /* of the team */
    ru_exe *exe;
    bool narrows, fixed;
    bool turn; /* ops beside the batch are this training's, of all that are beside the server */
    bool runs, alone, judged, plain;
    int64_t begun_ns, busy_ns, seen_ns; /* op; the server's batch; a sign of life */
    ru_corun_overlap beside[RU_CORUN_OVERLAPS];
    uint32_t n_beside;
    ru_beside_figures told;
};

static double seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

/* -- what the server does ----------------------------------------------------------------------
 */

/* The op that runs lies beside the batch from `from_ns` on. */
static void overlap(rui_beside *b, int64_t from_ns, int64_t to_ns)
{
    int64_t first = b->busy_ns > from_ns ? b->busy_ns : from_ns;
    if (b->gate.busy && to_ns > first) {
        bool room = b->n_beside < RU_CORUN_OVERLAPS;
        uint32_t k = room ? b->n_beside++ : RU_CORUN_OVERLAPS - 1;
        b->beside[k].kind = b->gate.training_kind[b->op];
        b->beside[k].s = seconds(to_ns - first) + (room ? 0 : b->beside[k].s);
    }
}

static void work_ended(rui_beside *b, int64_t at_ns)
{
    ru_gate *g = &b->gate;
    if (b->runs) {
        overlap(b, b->begun_ns, at_ns);
    }
    double took = seconds(at_ns - b->busy_ns), alone = b->service.s, lost = 0;
    if (b->n_beside > 0) {
        for (uint32_t k = 0; k < b->n_beside; k++) {
            lost += b->beside[k].s *
                    ru_corun_loss(&g->corun, g->service_kind[0], b->beside[k].kind, false);
        }
        b->told.pairs++;
        double n = (double)(b->told.pairs < 256 ? b->told.pairs : 256);
        b->told.predicted += ((alone + lost) / alone - b->told.predicted) / n;
        b->told.measured += (took / alone - b->told.measured) / n;
    }
    ru_gate_service_op(g, seconds(at_ns), 0, b->beside, b->n_beside);
    ru_gate_ended(g, seconds(at_ns));
    if (b->n_beside == 0 && b->turn) { /* what a batch takes alone drifts with its size */
        b->service.s += (took - b->service.s) / 32;
        g->left_s[0] = b->service.s;
    }
    b->n_beside = 0;
}

static void new_goal(rui_beside *b)
{
    double goal = b->facts.promise_s > 0 ? b->facts.promise_s / b->gate.tail_s : GOAL;
    b->gate.in.goal = goal > GOAL_MIN ? goal : GOAL_MIN;
}

static void hear(rui_beside *b, const ru_beside_event *e)
{
    ru_gate *g = &b->gate;
    double now = seconds(e->at_ns);
    switch (e->kind) {
    case RU_BESIDE_ARRIVED:
        ru_gate_arrived(g, now);
        new_goal(b);
        break;
    case RU_BESIDE_BEGUN:
        if (g->waiting > 0 && !g->busy) {
            b->busy_ns = e->at_ns;
            b->n_beside = 0;
            b->turn = e->value != 0;
            ru_gate_begun(g, now, now, b->op);
        }
        break;
    case RU_BESIDE_ENDED:
        if (g->busy) {
            work_ended(b, e->at_ns);
        }
        break;
    default: /* LOST: begin again from who is inside */
        if (g->busy) {
            g->op = g->in.n_service;
            ru_gate_ended(g, now);
        }
        g->waiting = 0;
        b->turn = false; /* until the next batch says so */
        if (e->value > 0) {
            ru_gate_arrived(g, now);
            b->busy_ns = e->at_ns;
            ru_gate_begun(g, now, now, b->op);
        }
        break;
    }
}

static void drain(rui_beside *b)
{
    ru_beside_event e;
    while (ru_beside_next(b->ring, &e)) {
        b->seen_ns = e.at_ns;
        hear(b, &e);
    }
}

/* A server that says nothing for a while may have ended. */
static void look(rui_beside *b, int64_t now_ns)
{
    if (now_ns - b->seen_ns > ALIVE_NS) {
        b->seen_ns = now_ns;
        if (!ru_beside_other_lives(b->ring)) {
            b->alone = true;
            if (!b->plain) {
                ru_process_idle(false);
            }
            ru_log(RU_LOG_WARN, "train", "beside",
                   "the server has ended; the training goes on alone");
        }
    }
}

/* -- ops of the training -----------------------------------------------------------------------
 */

static void op_ended(rui_beside *b, int64_t now_ns, bool whole)
{
    ru_gate_op *o = &b->ops[b->op];
    int64_t ran = now_ns - b->begun_ns;
    if (whole) { /* else other work of the step lies behind it */
        overlap(b, b->begun_ns, now_ns);
        o->s = b->told.steps == 0 ? fmax(seconds(ran), 1e-7)
                                  : o->s + (fmax(seconds(ran), 1e-7) - o->s) / 8;
        if (b->told.steps == 0 && b->narrows) {
            o[b->n].s = b->threads * o->s;
        }
        b->told.run_ns += ran;
    }
    ru_gate_training_op(&b->gate, b->op);
    b->runs = false;
}

/* May the op run now? Beside a batch on one thread, where sums may be of another order: the others
 * would stand still on the server's cores, and the op with them. */
static bool may_run(rui_beside *b, uint32_t op, int64_t now_ns)
{
    const ru_gate *g = &b->gate;
    bool beside = g->busy && g->in.method == RU_GATE_LAG;
    b->op = beside && b->narrows ? b->n + op : op;
    return (b->turn || !g->busy) && ru_gate_may(&b->gate, seconds(now_ns), b->op, NAN);
}

static ru_status poll(void *self, uint32_t op)
{
    rui_beside *b = self;
    int64_t now = ru_clock_now().ns, begun = now;
    if (b->alone || op >= b->n) {
        return RU_OK;
    }
    drain(b);
    if (b->runs) {
        op_ended(b, now, op > b->op % b->n);
    }
    bool may = may_run(b, op, now);
    int64_t decided = ru_clock_now().ns;
    b->told.decide_ns += decided - begun;
    b->told.held += may ? 0 : 1;
    look(b, now);
    while (!may && !b->alone && ru_self_stop_asked() == 0) {
        ru_beside_wait(b->ring, WAIT_NS);
        drain(b);
        now = ru_clock_now().ns;
        look(b, now);
        may = may_run(b, op, now);
    }
    b->op = b->alone ? op : b->op;
    if (b->narrows) {
        ru_exe_narrow(b->exe, b->op >= b->n);
    }
    b->told.held_ns += now - begun;
    if (++b->told.ops % TELL_OPS == 0) {
        b->told.lag_s = ru_gate_lag_s(&b->gate, seconds(now));
        b->told.budget_s = b->gate.budget_s;
        ru_beside_tell(b->ring, &b->told);
    }
    ru_gate_issued(&b->gate, b->op);
    b->runs = true;
    b->begun_ns = ru_clock_now().ns;
    return RU_OK;
}

/* May the training be beside the server at all? With the ops as the first step measured them. */
static ru_status judge(rui_beside *b, ru_err *err)
{
    const ru_beside_facts *f = &b->facts;
    ru_arena scratch;
    ru_gate_plan plan;
    ru_arena_init(&scratch, 0);
    double *count = RU_NEW(&scratch, double, b->n);
    if (count == NULL) {
        ru_arena_fini(&scratch);
        return RU_FAIL(err, RU_E_MEM, "no memory to judge a training");
    }
    for (uint32_t k = 0; k < b->n; k++) {
        count[k] = 1;
    }
    const ru_gate_service service = {.solo_s = b->service.s,
                                     .tail_s = fmax(b->gate.tail_s, b->service.s),
                                     .rate = fmax(f->rate, 1e-3),
                                     .ops = 1,
                                     .cls = RU_OP_UNKNOWN,
                                     .units = f->units};
    const ru_gate_admit_in in = {.method = b->plain ? RU_GATE_PRIORITY : RU_GATE_LAG,
                                 .service = &service,
                                 .op = b->ops,
                                 .count = count,
                                 .n_services = 1,
                                 .n_ops = b->n,
                                 .device = b->gate.in.device,
                                 .goal = b->gate.in.goal,
                                 .miss = 0.1,
                                 .guess = 0.5,
                                 .share_min = SHARE_MIN};
    ru_status st = ru_plan_gate(&in, &scratch, &scratch, &plan, err);
    st = st == RU_OK ? ru_plan_gate_check(&in, &plan, err) : st;
    if (st == RU_OK && (!plan.admit || (f->promise_s > 0 && f->promise_s < b->gate.tail_s))) {
        st = RU_FAIL(err, RU_E_INFEASIBLE,
                     "the training is not taken beside the server: batches need %.3g %% of the "
                     "time, their tail alone is %.3g ms, with the training %.3g times that "
                     "(allowed %.3g), and the training would get %.3g of a core; lower the load, "
                     "or promise more time",
                     100 * plan.busy, b->gate.tail_s * 1e3, plan.tail_ratio[0], in.goal,
                     plan.share * in.device);
    } else if (st == RU_OK) {
        ru_log(RU_LOG_INFO, "train", "beside",
               "beside a server that is busy for %.3g %% of the time; expect %.3g of %g cores",
               100 * plan.busy, plan.share * in.device, in.device);
    }
    ru_arena_fini(&scratch);
    return st;
}

ru_status rui_beside_ran(rui_beside *b, ru_status st, ru_err *err)
{
    if (st != RU_OK || b->alone) {
        return st;
    }
    int64_t now = ru_clock_now().ns;
    if (b->runs) {
        drain(b);
        op_ended(b, now, true);
    }
    b->told.steps++;
    ru_beside_tell(b->ring, &b->told);
    if (!b->judged) {
        b->judged = true;
        RU_TRY(judge(b, err));
    }
    if (b->gate.n_latencies >= TAIL_MIN && !b->plain) {
        b->gate.in.method = RU_GATE_LAG;
    }
    return RU_OK;
}

/* -- open, close -------------------------------------------------------------------------------
 */

ru_status rui_beside_listen(rui_beside *b, ru_exe *exe, uint32_t threads, ru_err *err)
{
    ru_op_fact *facts;
    ru_arena_fini(&b->arena);
    ru_arena_init(&b->arena, 0);
    RU_TRY(ru_exe_ops(exe, 0, &b->arena, &facts, &b->n, err));
    b->narrows = !b->fixed && threads > 1;
    uint32_t all = b->narrows ? 2 * b->n : b->n;
    b->ops = RU_NEW(&b->arena, ru_gate_op, all);
    if (b->ops == NULL || b->n == 0) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the ops of a training");
    }
    double device = fmax(ru_self_cores(), b->facts.units);
    for (uint32_t k = 0; k < all; k++) {
        b->ops[k] = (ru_gate_op){.cls = RU_OP_UNKNOWN, .units = k < b->n ? threads : 1, .s = OP_S};
    }
    b->threads = threads;
    b->exe = exe;
    const ru_gate_in in = {.method = RU_GATE_PRIORITY,
                           .service = &b->service,
                           .training = b->ops,
                           .n_service = 1,
                           .n_training = all,
                           .device = device,
                           .goal = GOAL,
                           .quantile = fmax(b->facts.quantile, QUANTILE)};
    RU_TRY(ru_gate_init(&b->gate, &in, &b->arena, err));
    b->runs = b->judged = false;
    b->told.steps = 0;
    ru_exe_poll_set(exe, poll, b);
    return RU_OK;
}

ru_status rui_beside_open(const char *handle, bool plain, bool fixed, rui_beside **out, ru_err *err)
{
    rui_beside *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a training beside a server");
    }
    ru_status st = ru_beside_map(handle, &b->ring, err);
    if (st != RU_OK) {
        free(b);
        return st;
    }
    b->plain = plain;
    b->fixed = fixed;
    b->turn = true;
    if (!plain) { /* The op under way stands still when a batch begins, and what opens the training
                   * makes no request late (figures: docs/measured/promise.md). */
        ru_process_idle(true);
    }
    b->facts = *ru_beside_facts_get(b->ring);
    b->service = (ru_gate_op){.cls = RU_OP_UNKNOWN,
                              .units = fmax(b->facts.units, 1),
                              .s = fmax(b->facts.service_s, 1e-6)};
    b->seen_ns = ru_clock_now().ns;
    ru_arena_init(&b->arena, 0);
    *out = b;
    return RU_OK;
}

void rui_beside_leave(rui_beside *b)
{
    if (b != NULL) {
        ru_beside_close(b->ring);
        ru_arena_fini(&b->arena);
        free(b);
    }
}
