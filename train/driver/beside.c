#include "train/driver/beside.h"

#include <math.h>
#include <stdlib.h>

#include "base/hist.h"
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
#define MEASURED  4   /* steps: the shortest time of an op counts, since it may stand still */
#define SHORTER   0.8 /* more parts are kept where the longest op takes that part or less */

/* A server on the same cores, and what its gate knows. */
typedef struct side {
    ru_beside *ring;
    ru_beside_facts facts;
    ru_gate gate;
    ru_gate_op service;
    bool ended;
    bool turn; /* ops beside the batch are this training's, of all that are beside the server */
    int64_t busy_ns, idle_ns; /* its batch began; the last one ended */
    int64_t seen_ns;          /* a sign of life */
    ru_corun_overlap beside[RU_CORUN_OVERLAPS];
    uint32_t n_beside;
    double predicted, measured; /* slowdown of a batch */
    int64_t pairs;
} side;

struct rui_beside {
    side *sides; /* [n_sides] */
    uint32_t n_sides;
    ru_arena arena; /* of the executable's tables */
    /* [n] of a step, or [2 n]: behind them the same on one thread, for those beside a batch */
    ru_gate_op *ops;
    uint32_t n, op;   /* op: under way, while `runs` */
    uint32_t threads; /* of the team */
    double device;
    ru_exe *exe;
    bool narrows, fixed;
    bool runs, alone, judged, plain;
    bool apart;                           /* from the sessions of all servers, */
    bool back;                            /* and stands back now */
    int64_t begun_ns;                     /* of the op */
    ru_beside_figures told;               /* of the training, to all servers */
    ru_hist decisions;                    /* what each took */
    double *least_s;                      /* [n] of each op, of the steps so far */
    double op_max_s;                      /* 0: an op may take whatever it takes */
    int64_t quiet_ns;                     /* no op begins so soon behind a batch */
    double longest_s;                     /* op in `parts_before`; 0: not measured */
    uint32_t parts, parts_before, wanted; /* of a batch */
};

static double seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

/* The next side whose server lives; NULL: there is none. */
static side *next_side(const rui_beside *b, side *last)
{
    side *s = last == NULL ? b->sides : last + 1;
    while (s < b->sides + b->n_sides && s->ended) {
        s++;
    }
    return s < b->sides + b->n_sides ? s : NULL;
}

/* The op under way stands still when a batch begins, and what opens the training makes no request
 * late (figures: docs/measured/promise.md). */
static void stand_back(rui_beside *b, bool back)
{
    if (b->plain || b->back == back) {
        return;
    }
    b->back = back;
    ru_process_idle(back);
    if (b->apart) {
        ru_beside_session_nice(back ? 19 : 0);
    }
}

/* -- what the servers do -----------------------------------------------------------------------
 */

/* The op that runs lies beside the batch from `from_ns` on. */
static void overlap(const rui_beside *b, side *s, int64_t from_ns, int64_t to_ns)
{
    int64_t first = s->busy_ns > from_ns ? s->busy_ns : from_ns;
    if (s->gate.busy && to_ns > first) {
        bool room = s->n_beside < RU_CORUN_OVERLAPS;
        uint32_t k = room ? s->n_beside++ : RU_CORUN_OVERLAPS - 1;
        s->beside[k].kind = s->gate.training_kind[b->op];
        s->beside[k].s = seconds(to_ns - first) + (room ? 0 : s->beside[k].s);
    }
}

static void work_ended(const rui_beside *b, side *s, int64_t at_ns)
{
    ru_gate *g = &s->gate;
    if (b->runs) {
        overlap(b, s, b->begun_ns, at_ns);
    }
    double took = seconds(at_ns - s->busy_ns), alone = s->service.s, lost = 0;
    if (s->n_beside > 0) {
        for (uint32_t k = 0; k < s->n_beside; k++) {
            lost += s->beside[k].s *
                    ru_corun_loss(&g->corun, g->service_kind[0], s->beside[k].kind, false);
        }
        s->pairs++;
        double n = (double)(s->pairs < 256 ? s->pairs : 256);
        s->predicted += ((alone + lost) / alone - s->predicted) / n;
        s->measured += (took / alone - s->measured) / n;
    }
    ru_gate_service_op(g, seconds(at_ns), 0, s->beside, s->n_beside);
    ru_gate_ended(g, seconds(at_ns));
    if (s->n_beside == 0 && s->turn) { /* what a batch takes alone drifts with its size */
        s->service.s += (took - s->service.s) / 32;
        g->left_s[0] = s->service.s;
    }
    s->n_beside = 0;
}

static void new_goal(side *s)
{
    double goal = s->facts.promise_s > 0 ? s->facts.promise_s / s->gate.tail_s : GOAL;
    s->gate.in.goal = goal > GOAL_MIN ? goal : GOAL_MIN;
}

static void hear(const rui_beside *b, side *s, const ru_beside_event *e)
{
    ru_gate *g = &s->gate;
    double now = seconds(e->at_ns);
    switch (e->kind) {
    case RU_BESIDE_ARRIVED:
        ru_gate_arrived(g, now);
        new_goal(s);
        break;
    case RU_BESIDE_BEGUN:
        if (g->waiting > 0 && !g->busy) {
            s->busy_ns = e->at_ns;
            s->n_beside = 0;
            s->turn = e->value != 0;
            ru_gate_begun(g, now, now, b->op);
        }
        break;
    case RU_BESIDE_ENDED:
        s->idle_ns = e->at_ns;
        if (g->busy) {
            work_ended(b, s, e->at_ns);
        }
        break;
    default: /* LOST: begin again from who is inside */
        if (g->busy) {
            g->op = g->in.n_service;
            ru_gate_ended(g, now);
        }
        g->waiting = 0;
        s->idle_ns = e->at_ns;
        s->turn = false; /* until the next batch says so */
        if (e->value > 0) {
            ru_gate_arrived(g, now);
            s->busy_ns = e->at_ns;
            ru_gate_begun(g, now, now, b->op);
        }
        break;
    }
}

static void drain(rui_beside *b)
{
    ru_beside_event e;
    for (side *s = next_side(b, NULL); s != NULL; s = next_side(b, s)) {
        while (ru_beside_next(s->ring, &e)) {
            s->seen_ns = e.at_ns;
            hear(b, s, &e);
        }
    }
}

/* A server that says nothing for a while may have ended. */
static void look(rui_beside *b, int64_t now_ns)
{
    for (side *s = next_side(b, NULL); s != NULL; s = next_side(b, s)) {
        if (now_ns - s->seen_ns > ALIVE_NS) {
            s->seen_ns = now_ns;
            s->ended = !ru_beside_other_lives(s->ring);
            b->alone = next_side(b, NULL) == NULL;
            if (b->alone) {
                stand_back(b, false);
            }
            if (s->ended) {
                ru_log(RU_LOG_WARN, "train", "beside", "%s",
                       b->alone ? "the server has ended; the training goes on alone"
                                : "a server has ended; the training stays beside the others");
            }
        }
    }
}

static void tell(const rui_beside *b, int64_t now_ns)
{
    for (side *s = next_side(b, NULL); s != NULL; s = next_side(b, s)) {
        ru_beside_figures f = b->told;
        f.lag_s = ru_gate_lag_s(&s->gate, seconds(now_ns));
        f.budget_s = s->gate.budget_s;
        f.predicted = s->predicted;
        f.measured = s->measured;
        f.pairs = s->pairs;
        ru_beside_tell(s->ring, &f);
    }
}

/* -- ops of the training -----------------------------------------------------------------------
 */

static void op_ended(rui_beside *b, int64_t now_ns, bool whole)
{
    ru_gate_op *o = &b->ops[b->op];
    int64_t ran = now_ns - b->begun_ns;
    if (whole) { /* else other work of the step lies behind it */
        for (side *s = next_side(b, NULL); s != NULL; s = next_side(b, s)) {
            overlap(b, s, b->begun_ns, now_ns);
        }
        o->s = b->told.steps == 0 ? fmax(seconds(ran), 1e-7)
                                  : o->s + (fmax(seconds(ran), 1e-7) - o->s) / 8;
        if (b->told.steps == 0 && b->narrows) {
            o[b->n].s = b->threads * o->s;
        }
        b->told.run_ns += ran;
        double *least = &b->least_s[b->op % b->n];
        *least = fmin(*least, seconds(ran));
    }
    for (side *s = next_side(b, NULL); s != NULL; s = next_side(b, s)) {
        ru_gate_training_op(&s->gate, b->op);
    }
    b->runs = false;
}

/* How long ops still wait behind its last batch; 0: not, or a batch is there. */
static int64_t quiet_left_ns(const rui_beside *b, const side *s, int64_t now_ns)
{
    int64_t over = now_ns - s->idle_ns;
    return s->gate.busy || over >= b->quiet_ns ? 0 : b->quiet_ns - over;
}

/* Who does not let the op run now; NULL: it may. Beside a batch on one thread, where sums may be of
 * another order: the others would stand still on the server's cores, and the op with them. */
static side *held_by(rui_beside *b, uint32_t op, int64_t now_ns)
{
    bool beside = false;
    for (side *s = next_side(b, NULL); s != NULL; s = next_side(b, s)) {
        beside = beside || (s->gate.busy && s->gate.in.method == RU_GATE_LAG);
    }
    b->op = beside && b->narrows ? b->n + op : op;
    for (side *s = next_side(b, NULL); s != NULL; s = next_side(b, s)) {
        if ((s->gate.busy && !s->turn) || quiet_left_ns(b, s, now_ns) > 0 ||
            !ru_gate_may(&s->gate, seconds(now_ns), b->op, NAN)) {
            return s;
        }
    }
    return NULL;
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
    const side *by = held_by(b, op, now);
    int64_t decided = ru_clock_now().ns;
    b->told.decide_ns += decided - begun;
    ru_hist_add(&b->decisions, decided - begun);
    b->told.held += by == NULL ? 0 : 1;
    look(b, now);
    while (by != NULL && !b->alone && ru_self_stop_asked() == 0) {
        int64_t quiet = quiet_left_ns(b, by, now);
        /* the others' word alone would not let it run */
        ru_beside_wait(by->ring, quiet > 0 && quiet < WAIT_NS ? quiet : WAIT_NS);
        drain(b);
        now = ru_clock_now().ns;
        look(b, now);
        by = held_by(b, op, now);
    }
    b->op = b->alone ? op : b->op;
    if (b->narrows) {
        ru_exe_narrow(b->exe, b->op >= b->n);
    }
    b->told.held_ns += now - begun;
    if (++b->told.ops % TELL_OPS == 0) {
        tell(b, now);
    }
    for (side *s = next_side(b, NULL); s != NULL; s = next_side(b, s)) {
        ru_gate_issued(&s->gate, b->op);
    }
    b->runs = true;
    b->begun_ns = ru_clock_now().ns;
    return RU_OK;
}

/* What the servers need, for the policy; the goal is the narrowest. Of several it adds up, and each
 * needs its part of the cores. */
static uint32_t services_of(const rui_beside *b, ru_gate_service *out, double *goal)
{
    uint32_t n = 0;
    for (side *s = next_side(b, NULL); s != NULL; s = next_side(b, s)) {
        const ru_beside_facts *f = &s->facts;
        double part = b->n_sides > 1 ? fmin(fmax(f->units, 1) / b->device, 1) : 1;
        out[n++] = (ru_gate_service){.solo_s = s->service.s,
                                     .tail_s = fmax(s->gate.tail_s, s->service.s),
                                     .rate = part * fmax(f->rate, 1e-3),
                                     .ops = 1,
                                     .cls = RU_OP_UNKNOWN,
                                     .units = f->units};
        *goal = fmin(*goal, s->gate.in.goal);
    }
    return n;
}

/* A server that breaks its promise alone is the one to name, else the one whose tail grows most. */
static ru_status verdict(const rui_beside *b, const ru_gate_admit_in *in, const ru_gate_plan *plan,
                         ru_err *err)
{
    uint32_t worst = 0, k = 0;
    bool broken = false;
    for (side *s = next_side(b, NULL); s != NULL; s = next_side(b, s), k++) {
        bool breaks = s->facts.promise_s > 0 && s->facts.promise_s < s->gate.tail_s;
        worst = !broken && (breaks || plan->tail_ratio[k] > plan->tail_ratio[worst]) ? k : worst;
        broken = broken || breaks;
    }
    if (!plan->admit || broken) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "the training is not taken beside the server: batches need %.3g %% of the "
                       "time, their tail alone is %.3g ms, with the training %.3g times that "
                       "(allowed %.3g), and the training would get %.3g of a core; lower the load, "
                       "or promise more time",
                       100 * plan->busy, in->service[worst].tail_s * 1e3, plan->tail_ratio[worst],
                       in->goal, plan->share * in->device);
    }
    ru_log(RU_LOG_INFO, "train", "beside",
           "beside a server that is busy for %.3g %% of the time; expect %.3g of %g cores",
           100 * plan->busy, plan->share * in->device, in->device);
    return RU_OK;
}

/* May the training be beside the servers at all? With the ops as the first step measured them. A
 * plain gate with a quiet time is the rule of who has set it: the policy does not know it. */
static ru_status judge(rui_beside *b, ru_err *err)
{
    ru_arena scratch;
    ru_gate_plan plan;
    if (b->plain && b->quiet_ns > 0) {
        return RU_OK;
    }
    ru_arena_init(&scratch, 0);
    double *count = RU_NEW(&scratch, double, b->n), goal = (double)INFINITY;
    ru_gate_service *service = RU_NEW(&scratch, ru_gate_service, b->n_sides);
    if (count == NULL || service == NULL) {
        ru_arena_fini(&scratch);
        return RU_FAIL(err, RU_E_MEM, "no memory to judge a training");
    }
    for (uint32_t k = 0; k < b->n; k++) {
        count[k] = 1;
    }
    uint32_t n = services_of(b, service, &goal);
    RU_CHECK(n > 0); /* else the training is alone */
    const ru_gate_admit_in in = {.method = b->plain ? RU_GATE_PRIORITY : RU_GATE_LAG,
                                 .service = service,
                                 .op = b->ops,
                                 .count = count,
                                 .n_services = n,
                                 .n_ops = b->n,
                                 .device = b->device,
                                 .goal = goal,
                                 .miss = 0.1,
                                 .guess = 0.5,
                                 .share_min = SHARE_MIN};
    ru_status st = ru_plan_gate(&in, &scratch, &scratch, &plan, err);
    st = st == RU_OK ? ru_plan_gate_check(&in, &plan, err) : st;
    st = st == RU_OK ? verdict(b, &in, &plan, err) : st;
    ru_arena_fini(&scratch);
    return st;
}

/* -- parts of a batch --------------------------------------------------------------------------
 */

/* The ops are measured: how many parts are to come? What an op does for the weights alone, more
 * parts do not shorten. */
static void bound_ops(rui_beside *b)
{
    double longest = 0;
    for (uint32_t k = 0; k < b->n; k++) {
        longest = isfinite(b->least_s[k]) ? fmax(longest, b->least_s[k]) : longest;
    }
    bool helped = b->longest_s == 0 || longest <= SHORTER * b->longest_s;
    if (!helped) {
        b->wanted = b->parts_before;
        b->op_max_s = 0; /* looked at no more */
    } else if (longest > b->op_max_s) {
        b->parts_before = b->parts;
        b->longest_s = longest;
        b->wanted = (uint32_t)fmin(ceil(b->parts * longest / b->op_max_s), 1e6);
    }
    ru_log(RU_LOG_INFO, "train", "beside",
           "the longest op takes %.3g ms, with batches in %u part%s%s", longest * 1e3, b->parts,
           b->parts == 1 ? "" : "s", helped ? "" : ": they do not shorten it, and are given up");
}

uint32_t rui_beside_parts(const rui_beside *b)
{
    return b->wanted;
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
    b->told.decide_p99_ns = ru_hist_quantile(&b->decisions, 0.99);
    tell(b, now);
    if (!b->judged) {
        b->judged = true;
        RU_TRY(judge(b, err));
    }
    if (b->told.steps == MEASURED && b->op_max_s > 0) {
        bound_ops(b);
    }
    for (side *s = next_side(b, NULL); s != NULL; s = next_side(b, s)) {
        if (s->gate.n_latencies >= TAIL_MIN && !b->plain) {
            s->gate.in.method = RU_GATE_LAG;
        }
    }
    return RU_OK;
}

/* -- open, close -------------------------------------------------------------------------------
 */

ru_status rui_beside_listen(rui_beside *b, ru_exe *exe, uint32_t threads, uint32_t parts,
                            ru_err *err)
{
    ru_op_fact *facts;
    ru_arena_fini(&b->arena);
    ru_arena_init(&b->arena, 0);
    RU_TRY(ru_exe_ops(exe, 0, &b->arena, &facts, &b->n, err));
    b->narrows = !b->fixed && threads > 1;
    uint32_t all = b->narrows ? 2 * b->n : b->n;
    b->ops = RU_NEW(&b->arena, ru_gate_op, all);
    b->least_s = RU_NEW(&b->arena, double, b->n);
    if (b->ops == NULL || b->least_s == NULL || b->n == 0) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the ops of a training");
    }
    for (uint32_t k = 0; k < all; k++) {
        b->ops[k] = (ru_gate_op){.cls = RU_OP_UNKNOWN, .units = k < b->n ? threads : 1, .s = OP_S};
    }
    for (uint32_t k = 0; k < b->n; k++) {
        b->least_s[k] = (double)INFINITY;
    }
    b->longest_s = parts == b->parts ? 0 : b->longest_s; /* the batch is another one */
    b->parts = b->wanted = parts;
    b->told.parts = parts;
    b->threads = threads;
    b->exe = exe;
    b->device = ru_self_cores();
    for (side *s = next_side(b, NULL); s != NULL; s = next_side(b, s)) {
        b->device = fmax(b->device, s->facts.units);
    }
    for (side *s = next_side(b, NULL); s != NULL; s = next_side(b, s)) {
        const ru_gate_in in = {.method = RU_GATE_PRIORITY,
                               .service = &s->service,
                               .training = b->ops,
                               .n_service = 1,
                               .n_training = all,
                               .device = b->device,
                               .goal = GOAL,
                               .quantile = fmax(s->facts.quantile, QUANTILE)};
        RU_TRY(ru_gate_init(&s->gate, &in, &b->arena, err));
    }
    b->runs = b->judged = false;
    b->told.steps = 0;
    ru_exe_poll_set(exe, poll, b);
    return RU_OK;
}

ru_status rui_beside_open(const ru_train_options *opt, rui_beside **out, ru_err *err)
{
    uint32_t n = opt->n_besides;
    rui_beside *b = calloc(1, sizeof *b);
    side *sides = calloc(n, sizeof *sides);
    if (b == NULL || sides == NULL) {
        free(b);
        free(sides);
        return RU_FAIL(err, RU_E_MEM, "no memory for a training beside a server");
    }
    b->sides = sides;
    b->n_sides = n;
    b->plain = opt->beside_plain;
    b->fixed = opt->beside_fixed;
    b->op_max_s = seconds(opt->beside_op_max_ns);
    b->quiet_ns = opt->beside_quiet_ns;
    b->apart = true;
    ru_arena_init(&b->arena, 0);
    for (uint32_t k = 0; k < n; k++) {
        side *s = &sides[k];
        ru_status st = ru_beside_map(opt->beside[k], &s->ring, err);
        if (st != RU_OK) {
            rui_beside_leave(b);
            return st;
        }
        s->facts = *ru_beside_facts_get(s->ring);
        b->apart = b->apart && ru_beside_apart(s->ring);
        s->turn = true;
        s->service = (ru_gate_op){.cls = RU_OP_UNKNOWN,
                                  .units = fmax(s->facts.units, 1),
                                  .s = fmax(s->facts.service_s, 1e-6)};
        s->seen_ns = ru_clock_now().ns;
    }
    stand_back(b, true);
    *out = b;
    return RU_OK;
}

void rui_beside_leave(rui_beside *b)
{
    if (b != NULL) {
        if (b->back && b->apart) { /* what is left to do stays behind the server */
            ru_beside_session_nice(0);
        }
        for (uint32_t k = 0; k < b->n_sides; k++) {
            ru_beside_close(b->sides[k].ring);
        }
        ru_arena_fini(&b->arena);
        free(b->sides);
        free(b);
    }
}
