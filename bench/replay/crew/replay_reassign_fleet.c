#include "bench/replay/crew/replay_reassign_fleet.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "sim/sim.h"
#include "train/tasks/tasks.h"

enum { LETTERS_MAX = 1 << 16, RUNS_LONGER = 16 };

/* -- speeds -------------------------------------------------------------------------------------
 */

static void draw_slow(ru_rng *r, double *speed, uint32_t slots)
{
    const uint32_t second = 1000000000 / RUI_FLEET_SLOT_NS, tenth = second / 10;
    for (uint32_t k = 0; k < slots + second; k += tenth) {
        if (ru_rng_f64(r) < 0.01) {
            double slow = 1 / ru_rng_uniform(r, 1, 5);
            /* The trace begins a second later, so that some are slow from the start. */
            for (uint32_t i = k; i < k + second && i < slots + second; i++) {
                speed[i < second ? 0 : i - second] =
                    i < second ? speed[0] : fmin(speed[i - second], slow);
            }
        }
    }
}

static void draw_disrupt(ru_rng *r, double *speed, uint32_t slots)
{
    const int64_t window = 20 * (1000000000 / RUI_FLEET_SLOT_NS);
    int64_t phase = (int64_t)ru_rng_below(r, (uint32_t)window);
    for (int64_t begin = -window - phase; begin < (int64_t)slots; begin += window) {
        bool hit = ru_rng_f64(r) < 0.2;
        int64_t end = begin + (int64_t)(ru_rng_f64(r) * (double)window);
        for (int64_t i = begin < 0 ? 0 : begin; hit && i < end && i < (int64_t)slots; i++) {
            speed[i] = 0.5;
        }
    }
}

static void draw_power(ru_rng *r, double *speed, uint32_t slots)
{
    const uint32_t second = 1000000000 / RUI_FLEET_SLOT_NS;
    uint32_t phase = ru_rng_below(r, second);
    double v = 1;
    for (uint32_t i = 0; i < slots; i++) {
        if (i == 0 || (i + phase) % second == 0) {
            v = ru_math_pow(1 - ru_rng_f64(r), 0.25); /* 1 / Pareto of shape 4 */
        }
        speed[i] = v;
    }
}

ru_status rui_fleet_trace_make(rui_fleet_pattern pattern, uint32_t workers, uint32_t clocks,
                               uint64_t seed, ru_arena *a, rui_fleet_trace *out, ru_err *err)
{
    rui_fleet_trace t = {.workers = workers,
                         .slots = RUNS_LONGER * clocks * (1000000000 / RUI_FLEET_SLOT_NS)};
    t.speed = RU_NEW(a, double, (int64_t)workers *t.slots);
    t.done = RU_NEW(a, double, (int64_t)workers *(t.slots + 1));
    if (t.speed == NULL || t.done == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the speeds of %u workers", workers);
    }
    for (uint32_t w = 0; w < workers; w++) {
        ru_rng r = ru_rng_from(seed, (uint64_t)pattern << 32 | w);
        double *speed = t.speed + (int64_t)w * t.slots, *done = t.done + (int64_t)w * (t.slots + 1);
        for (uint32_t i = 0; i < t.slots; i++) {
            speed[i] = pattern == RUI_FLEET_HALF && w % 2 == 1 ? 0.5 : 1;
        }
        if (pattern == RUI_FLEET_SLOW) {
            draw_slow(&r, speed, t.slots);
        } else if (pattern == RUI_FLEET_DISRUPT) {
            draw_disrupt(&r, speed, t.slots);
        } else if (pattern == RUI_FLEET_POWER) {
            draw_power(&r, speed, t.slots);
        }
        for (uint32_t i = 0; i < t.slots; i++) {
            done[i + 1] = done[i] + speed[i] * RUI_FLEET_SLOT_NS;
        }
    }
    *out = t;
    return RU_OK;
}

/* When worker w, beginning at from_ns, has done work_ns at speed 1; -1: not within the trace. */
static int64_t ends_ns(const rui_fleet_trace *t, uint32_t w, int64_t from_ns, double work_ns)
{
    const double *speed = t->speed + (int64_t)w * t->slots;
    double at = (double)from_ns;
    for (int64_t i = from_ns / RUI_FLEET_SLOT_NS; i < (int64_t)t->slots; i++) {
        double room = ((double)(i + 1) * RUI_FLEET_SLOT_NS - at) * speed[i];
        if (work_ns <= room) {
            return (int64_t)(at + work_ns / speed[i] + 0.5);
        }
        work_ns -= room;
        at = (double)(i + 1) * RUI_FLEET_SLOT_NS;
    }
    return -1;
}

double rui_fleet_ideal_s(const rui_fleet_trace *t, double work_ns)
{
    for (uint32_t i = 0; i < t->slots; i++) {
        double before = 0, after = 0;
        for (uint32_t w = 0; w < t->workers; w++) {
            before += t->done[(int64_t)w * (t->slots + 1) + i];
            after += t->done[(int64_t)w * (t->slots + 1) + i + 1];
        }
        if (after >= work_ns) {
            double part = (work_ns - before) / (after - before);
            return (i + part) * RUI_FLEET_SLOT_NS * 1e-9;
        }
    }
    return INFINITY;
}

/* -- the job ------------------------------------------------------------------------------------
 */

typedef struct letter {
    ru_tasks_word word;
    ru_tasks_said said;
    uint32_t to, next; /* next: of free ones */
} letter;

/* What a worker works on, a grain at a time. */
typedef struct task {
    bool on;
    ru_tasks_range range; /* hi: where it ends now */
    uint32_t reached;
    int64_t begun_ns, wake_ns; /* wake: asked for last */
} task;

enum { HISTORY_MAX = 8, GRANTS_MAX = RU_REASSIGN_GROUP_MAX };

typedef struct fleet {
    const rui_fleet_in *in;
    ru_reassign_plan plan; /* the first: groups and rules stay */
    double *took;          /* [HISTORY_MAX, workers] of the last clocks, the oldest first */
    uint32_t n_took;
    ru_tasks_stats *seen;     /* [workers] when the last clock ended */
    uint32_t *grant, *expect; /* [workers, GRANTS_MAX] in force; messages refer to them */
    ru_sim *sim;
    ru_arena *arena;
    ru_tasks **worker; /* [workers] */
    task *task;        /* [workers] */
    letter *letters;   /* [LETTERS_MAX] */
    uint32_t free;
    uint32_t *closed; /* [workers] clocks closed, at the servers */
    uint32_t *own;    /* [workers] items of the clock at work that the owner has worked itself */
    uint32_t closed_by_all;
    int64_t accepted; /* items */
    ru_arena memory;  /* of effects */
    ru_effects fx;
    int64_t end_ns, messages, reassigned;
    ru_status failed;
    ru_err *err;
} fleet;

static void arrive(void *self, uint64_t at);

static void post(fleet *f, uint32_t to, int64_t after_ns, ru_tasks_word word, ru_tasks_said said)
{
    uint32_t at = f->free;
    if (at == LETTERS_MAX) {
        f->failed = RU_FAIL(f->err, RU_E_LIMIT, "more than %d messages are under way", LETTERS_MAX);
        ru_sim_stop(f->sim);
        return;
    }
    f->free = f->letters[at].next;
    f->letters[at].word = word;
    f->letters[at].said = said;
    f->letters[at].to = to;
    (void)ru_sim_at(f->sim, (ru_time){ru_sim_now(f->sim).ns + after_ns}, arrive, f, at);
}

/* What each worker needed for its own items in the clock that has ended, as a row of the history.
 */
static void measure(fleet *f)
{
    uint32_t n = f->in->trace->workers;
    if (f->n_took == HISTORY_MAX) {
        memmove(f->took, f->took + n, (size_t)n * (HISTORY_MAX - 1) * sizeof *f->took);
        f->n_took--;
    }
    double *row = f->took + (uint64_t)f->n_took++ * n;
    for (uint32_t w = 0; w < n; w++) {
        const ru_tasks_stats *now = ru_tasks_stats_of(f->worker[w]), *old = &f->seen[w];
        double items = (double)(now->worked + now->helped - old->worked - old->helped);
        double busy_s = (double)(now->busy_ns - old->busy_ns) * 1e-9;
        double before = f->n_took > 1 ? row[(int64_t)w - n] : 1;
        row[w] = items > 0 && busy_s > 0 ? busy_s / items * f->in->items : before;
        f->seen[w] = *now;
    }
}

/* Those whom worker h may help, in the order of their indexes. */
static uint32_t helpees_of(const ru_reassign_plan *p, uint32_t h, uint32_t *who)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < p->n * p->rules.group; e++) {
        if (p->helper[e] == h) {
            who[n++] = e / p->rules.group;
        }
    }
    return n;
}

/* The policy's grants for the next clock, to owners and helpers. */
static void plan_again(fleet *f)
{
    uint32_t n = f->in->trace->workers, group = f->plan.rules.group;
    uint32_t who[RU_REASSIGN_GROUP_MAX];
    ru_arena_mark mark = ru_arena_mark_get(f->arena);
    ru_reassign_in q = f->in->policy;
    ru_reassign_plan p;
    q.took = f->took;
    q.clocks = f->n_took;
    ru_status st = ru_plan_reassign(&q, f->arena, f->arena, &p, f->err);
    st = st == RU_OK ? ru_plan_reassign_check(&q, &p, f->arena, f->err) : st;
    if (st != RU_OK) {
        f->failed = st;
        ru_sim_stop(f->sim);
        return;
    }
    for (uint32_t w = 0; w < n; w++) {
        uint32_t *grant = f->grant + (uint64_t)w * GRANTS_MAX;
        uint32_t *expect = f->expect + (uint64_t)w * GRANTS_MAX;
        memcpy(grant, p.grant + (uint64_t)w * group, group * sizeof *grant);
        uint32_t helpees = helpees_of(&p, w, who);
        for (uint32_t i = 0; i < helpees; i++) {
            for (uint32_t k = 0; k < group; k++) {
                uint64_t e = (uint64_t)who[i] * group + k;
                expect[i] = p.helper[e] == w ? p.grant[e] : expect[i];
            }
        }
        const ru_tasks_said said = {.grant = grant, .expect = expect};
        post(f, w, f->in->latency_ns, RU_TASKS_SHARES, said);
    }
    ru_arena_rewind(f->arena, mark);
}

/* Servers: a clock of a worker is closed. All know what all have closed (but for `backup` workers).
 */
static void close_at_servers(fleet *f, uint32_t w, uint32_t clock)
{
    uint32_t n = f->in->trace->workers, late = 0;
    f->closed[w] = clock + 1;
    f->accepted += f->in->items;
    if (f->accepted >= (int64_t)n * f->in->items * f->in->clocks) {
        f->end_ns = ru_sim_now(f->sim).ns;
        ru_sim_stop(f->sim);
    }
    for (uint32_t i = 0; i < n; i++) {
        late += f->closed[i] <= f->closed_by_all ? 1 : 0;
    }
    if (late > f->plan.rules.backup) {
        return;
    }
    f->closed_by_all++;
    ru_reassign_method method = f->in->policy.method;
    measure(f);
    if (method == RU_REASSIGN_STICKY || method == RU_REASSIGN_STATIC) {
        plan_again(f);
    }
    for (uint32_t i = 0; i < n; i++) {
        post(f, i, f->in->latency_ns, RU_TASKS_CLOCKS, (ru_tasks_said){.clock = f->closed_by_all});
    }
}

/* When worker w has done its items up to `hi`. */
static int64_t task_ends_ns(fleet *f, uint32_t w, uint32_t hi)
{
    const task *t = &f->task[w];
    double items = hi - t->range.lo, work_ns = items * (1e9 / f->in->items);
    int64_t end = ends_ns(f->in->trace, w, t->begun_ns, work_ns);
    if (end < 0) {
        f->failed = RU_FAIL(f->err, RU_E_LIMIT, "the job is longer than its speeds");
        ru_sim_stop(f->sim);
    }
    return end;
}

static void post_worked(fleet *f, uint32_t w)
{
    const ru_tasks_said said = {.range = f->task[w].range};
    int64_t now = ru_sim_now(f->sim).ns, end = task_ends_ns(f, w, said.range.hi);
    post(f, w, end > now ? end - now : 0, RU_TASKS_WORKED, said);
}

/* Grains get smaller near the end, so that what is left can still be handed over. */
static void follow(fleet *f, uint32_t w)
{
    task *t = &f->task[w];
    int64_t now = ru_sim_now(f->sim).ns;
    while (t->on && t->reached < t->range.hi && now > t->begun_ns &&
           (t->reached == t->range.lo || task_ends_ns(f, w, t->reached) <= now)) {
        uint32_t most = (uint32_t)(f->plan.rules.grain_ppm * f->in->items / 1000000);
        uint32_t n = (t->range.hi - t->reached) / 8, least = most / 4;
        n = n < least ? least : n < most ? n : most;
        n = n < 1 ? 1 : n;
        t->reached = t->range.hi - t->reached > n ? t->reached + n : t->range.hi;
    }
}

static void close_clock(fleet *f, uint32_t w, const ru_tasks_act *a)
{
    uint32_t given = 0;
    for (uint32_t i = 0; i < a->n_accepted; i++) {
        given += a->accepted[i].hi - a->accepted[i].lo;
    }
    f->reassigned += given;
    if (f->plan.rules.backup == 0) { /* every item once, or the machine is broken */
        RU_CHECK(f->own[w] + given == f->in->items);
    }
    f->own[w] = 0;
    close_at_servers(f, w, a->range.clock);
}

static void wake_at(fleet *f, uint32_t w, int64_t at_ns)
{
    int64_t now = ru_sim_now(f->sim).ns;
    task *t = &f->task[w];
    t->wake_ns = at_ns > now ? at_ns : now;
    post(f, w, t->wake_ns - now, RU_TASKS_TIMER, (ru_tasks_said){0});
}

static void perform(fleet *f, uint32_t w, const ru_effect *e)
{
    const ru_tasks_act *a = e->data;
    if (e->kind == RU_FX_TIMER) {
        wake_at(f, w, e->at.ns);
    } else if (e->kind == RU_FX_TIMER_OFF) {
        f->task[w].wake_ns = 0;
    } else if (e->what == RU_TASKS_SEND) {
        f->messages++;
        post(f, a->to, f->in->latency_ns, RU_TASKS_HEARD,
             (ru_tasks_said){.worker = w, .msg = a->msg});
    } else if (e->what == RU_TASKS_WORK) {
        int64_t wake_ns = f->task[w].wake_ns;
        f->task[w] = (task){true, a->range, a->range.lo, ru_sim_now(f->sim).ns, wake_ns};
        post_worked(f, w);
    } else if (e->what == RU_TASKS_FLUSH) {
        post(f, w, 2 * f->in->latency_ns, RU_TASKS_FLUSHED, (ru_tasks_said){.range = a->range});
    } else if (e->what == RU_TASKS_CLOSE) {
        close_clock(f, w, a);
    }
}

static void step(fleet *f, uint32_t w, ru_tasks_word word, const ru_tasks_said *said)
{
    task *t = &f->task[w];
    ru_time now = ru_sim_now(f->sim);
    bool worked = word == RU_TASKS_WORKED, timer = word == RU_TASKS_TIMER;
    if ((worked && (!t->on || memcmp(&said->range, &t->range, sizeof t->range) != 0)) ||
        (timer && t->wake_ns != now.ns)) {
        return; /* it has got another end since, or asked for another time */
    }
    follow(f, w);
    ru_tasks_reached(f->worker[w], t->reached);
    if (worked) {
        t->on = false;
        f->own[w] += t->range.owner == w ? t->range.hi - t->range.lo : 0;
    }
    const ru_event ev = {.kind = timer ? RU_EV_TIMER : RU_EV_LOCAL,
                         .now = now,
                         .what = word,
                         .data = said,
                         .size_bytes = sizeof *said};
    ru_tasks_step(f->worker[w], &ev, &f->fx);
    uint32_t end = ru_tasks_end(f->worker[w]);
    if (t->on && end != t->range.hi) {
        t->range.hi = end;
        post_worked(f, w);
    }
    for (uint32_t i = 0; i < f->fx.n; i++) {
        perform(f, w, &f->fx.at[i]);
    }
    ru_effects_clear(&f->fx);
}

static void arrive(void *self, uint64_t at)
{
    fleet *f = self;
    letter l = f->letters[at];
    f->letters[at].next = f->free;
    f->free = (uint32_t)at;
    step(f, l.to, l.word, &l.said);
}

static ru_status fleet_memory(fleet *f, uint32_t n, ru_err *err)
{
    f->worker = RU_NEW(f->arena, ru_tasks *, n);
    f->task = RU_NEW(f->arena, task, n);
    f->letters = RU_NEW(f->arena, letter, LETTERS_MAX);
    f->closed = RU_NEW(f->arena, uint32_t, n);
    f->own = RU_NEW(f->arena, uint32_t, n);
    f->took = RU_NEW(f->arena, double, (int64_t)n *HISTORY_MAX);
    f->seen = RU_NEW(f->arena, ru_tasks_stats, n);
    f->grant = RU_NEW(f->arena, uint32_t, (int64_t)n * GRANTS_MAX);
    f->expect = RU_NEW(f->arena, uint32_t, (int64_t)n * GRANTS_MAX);
    if (f->worker == NULL || f->letters == NULL || f->closed == NULL || f->own == NULL ||
        f->took == NULL || f->seen == NULL || f->grant == NULL || f->expect == NULL ||
        f->task == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", n);
    }
    for (uint32_t i = 0; i < LETTERS_MAX; i++) {
        f->letters[i].next = i + 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        f->took[i] = 1; /* nothing is known before the first clock */
    }
    return RU_OK;
}

static ru_status open_workers(fleet *f, ru_err *err)
{
    uint32_t n = f->in->trace->workers, group, who[RU_REASSIGN_GROUP_MAX];
    RU_TRY(fleet_memory(f, n, err));
    ru_reassign_in q = f->in->policy;
    q.took = f->took;
    q.clocks = 1;
    RU_TRY(ru_plan_reassign(&q, f->arena, f->arena, &f->plan, err));
    RU_TRY(ru_plan_reassign_check(&q, &f->plan, f->arena, err));
    if (q.method == RU_REASSIGN_STICKY) {
        f->plan.rules.slack = q.slack_max; /* of equal speeds none is needed */
    }
    f->plan.rules.backup = q.backup;
    group = f->plan.rules.group;
    for (uint32_t w = 0; w < n; w++) {
        uint32_t helpees = helpees_of(&f->plan, w, who), helpers = 0;
        while (helpers < group && f->plan.helper[w * group + helpers] != RU_REASSIGN_NONE) {
            helpers++;
        }
        uint32_t *ids = ru_arena_copy(f->arena, who, (int64_t)sizeof who, RU_ALIGNOF(uint32_t));
        if (ids == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", n);
        }
        uint32_t clocks = f->in->clocks * (f->plan.rules.backup > 0 ? RUNS_LONGER : 1);
        const ru_tasks_options opt = {.me = w,
                                      .items = f->in->items,
                                      .clocks = clocks,
                                      .rules = &f->plan.rules,
                                      .helpers = f->plan.helper + (uint64_t)w * group,
                                      .helpees = ids,
                                      .n_helpers = helpers,
                                      .n_helpees = helpees};
        RU_TRY(ru_tasks_open(&opt, f->arena, &f->worker[w], err));
    }
    return RU_OK;
}

ru_status rui_fleet_run(const rui_fleet_in *in, ru_arena *a, rui_fleet_out *out, ru_err *err)
{
    fleet f = {.in = in, .arena = a, .err = err};
    const ru_sim_options opt = {.seed = 1};
    ru_arena_init(&f.memory, 0);
    ru_effects_init(&f.fx, &f.memory);
    RU_TRY(open_workers(&f, err));
    RU_TRY(ru_sim_open(&opt, &f.sim, err));
    for (uint32_t w = 0; w < in->trace->workers; w++) {
        post(&f, w, 0, RU_TASKS_BEGIN, (ru_tasks_said){0});
    }
    ru_time until = {(int64_t)in->trace->slots * RUI_FLEET_SLOT_NS};
    ru_status st = ru_sim_run(f.sim, until, err);
    *out = (rui_fleet_out){(double)f.end_ns * 1e-9, f.messages, f.reassigned, ru_sim_events(f.sim)};
    ru_sim_close(f.sim);
    ru_arena_fini(&f.memory);
    RU_TRY(f.failed);
    RU_TRY(st);
    if (f.end_ns == 0) {
        return RU_FAIL(err, RU_E_BUG, "the workers stopped after %lld items",
                       (long long)f.accepted);
    }
    return RU_OK;
}
