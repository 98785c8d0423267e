/* Slices under loss, delay, repetition and overtaking, with helpers that die: every item of every
 * clock of a worker that lives is applied once. The network, the servers and the membership are
 * this file's; time is a number. */
#include "train/tasks/tasks.h"

#include <string.h>

#include "base/heap.h"
#include "base/rng.h"
#include "test/many.h"
#include "test/test.h"
#include "train/tasks/tasks_impl.h"

enum { N = 6, ITEMS = 60, CLOCKS = 5, EVENTS_MAX = 1 << 15, SLICES_MAX = 1 << 12 };

/* One word to a machine, and what a step asks for. */
typedef struct heard {
    ru_tasks_word kind;
    ru_time now;
    uint32_t reached;
    uint32_t worker, clock;
    ru_tasks_range range;
    ru_tasks_msg msg;
    const uint32_t *grant, *expect;
} heard;

enum { DID_MAX = 64 };

typedef struct did {
    ru_tasks_word kind;
    uint32_t to;
    ru_tasks_msg msg;
    ru_tasks_range range;
    ru_tasks_range accepted[ITEMS];
    uint32_t n_accepted;
} did;

typedef struct outs {
    did at[DID_MAX];
    uint32_t n;
    int64_t wake_ns; /* 0: no other time than before */
    uint32_t end;
} outs;

static void keep(outs *out, const ru_effect *e)
{
    const ru_tasks_act *a = e->data;
    if (e->kind != RU_FX_LOCAL) {
        assert_int_equal(e->what, RU_TASKS_TIMER);
        out->wake_ns = e->kind == RU_FX_TIMER ? e->at.ns : 0;
        return;
    }
    assert_true(out->n < DID_MAX && a->n_accepted <= ITEMS);
    assert_int_equal(e->size_bytes, sizeof *a + a->n_accepted * sizeof *a->accepted);
    did *d = &out->at[out->n++];
    *d = (did){.kind = (ru_tasks_word)e->what,
               .to = a->to,
               .msg = a->msg,
               .range = a->range,
               .n_accepted = a->n_accepted};
    memcpy(d->accepted, a->accepted, a->n_accepted * sizeof *a->accepted);
}

static void tell(ru_tasks *t, const heard *h, outs *out)
{
    const ru_tasks_said said = {h->worker, h->clock, h->range, h->msg, h->grant, h->expect};
    const ru_event ev = {.kind = h->kind == RU_TASKS_TIMER ? RU_EV_TIMER : RU_EV_LOCAL,
                         .now = h->now,
                         .what = h->kind,
                         .data = &said,
                         .size_bytes = sizeof said};
    ru_arena memory;
    ru_effects fx;
    ru_arena_init(&memory, 0);
    ru_effects_init(&fx, &memory);
    out->n = 0;
    out->wake_ns = 0;
    ru_tasks_reached(t, h->reached);
    ru_tasks_step(t, &ev, &fx);
    out->end = ru_tasks_end(t);
    for (uint32_t i = 0; i < fx.n; i++) {
        keep(out, &fx.at[i]);
    }
    ru_arena_fini(&memory);
}

typedef struct post {
    heard ev;
    uint32_t to;
} post;

/* What a worker works on, at an even speed. */
typedef struct work {
    bool on;
    ru_tasks_range range; /* hi: where it ends now */
    int64_t begun_ns, item_ns;
} work;

/* Updates of a slice that the servers hold until its owner accepts them. */
typedef struct held {
    ru_tasks_range range;
} held;

typedef struct world {
    ru_rng rng;
    bool hostile, kill;
    ru_arena arena;
    ru_tasks *worker[N];
    bool dead[N], fenced[N];
    uint32_t closed[N], closed_by_all;
    uint8_t applied[N][CLOCKS][ITEMS];
    uint8_t own[N][ITEMS]; /* worked by the owner, of its clock at work */
    held held[SLICES_MAX];
    uint32_t n_held;
    post posts[EVENTS_MAX];
    ru_heap_item items[EVENTS_MAX];
    uint32_t free[EVENTS_MAX], n_free;
    ru_heap heap;
    int64_t now, races, reclaimed, cuts;
    double speed[N];
    work work[N];
    int64_t wake_ns[N]; /* asked for last */
} world;

static void send_at(world *w, int64_t at, uint32_t to, const heard *ev)
{
    assert_true(w->n_free > 0);
    uint32_t k = w->free[--w->n_free];
    w->posts[k] = (post){*ev, to};
    assert_int_equal(ru_heap_push(&w->heap, at, k), RU_OK);
}

/* One in eight is lost, one in eight comes twice, all at any time within a clock. */
static void send_message(world *w, uint32_t to, const heard *ev)
{
    uint32_t copies = 1;
    if (w->hostile) {
        uint32_t fate = ru_rng_below(&w->rng, 8);
        copies = fate == 0 ? 0 : fate == 1 ? 2 : 1;
    }
    for (uint32_t i = 0; i < copies; i++) {
        int64_t far = w->hostile && ru_rng_below(&w->rng, 10) == 0 ? 1000000000 : 20000000;
        send_at(w, w->now + 1 + (int64_t)ru_rng_below_u64(&w->rng, (uint64_t)far), to, ev);
    }
}

static void apply(world *w, uint32_t owner, uint32_t clock, uint32_t item)
{
    assert_true(clock < CLOCKS && item < ITEMS);
    w->applied[owner][clock][item]++;
}

static void tell_clocks(world *w)
{
    uint32_t all = CLOCKS;
    for (uint32_t i = 0; i < N; i++) {
        all = !w->dead[i] && w->closed[i] < all ? w->closed[i] : all;
    }
    const heard ev = {.kind = RU_TASKS_CLOCKS, .clock = all};
    for (uint32_t i = 0; i < N && all > w->closed_by_all; i++) {
        send_at(w, w->now + 1000000, i, &ev);
    }
    w->closed_by_all = all;
}

/* Servers: own updates, and those of the accepted slices, which must all be there. */
static void close_clock(world *w, uint32_t owner, const did *e)
{
    assert_int_equal(e->range.clock, w->closed[owner]);
    for (uint32_t i = 0; i < ITEMS; i++) {
        for (uint32_t k = 0; k < w->own[owner][i]; k++) {
            apply(w, owner, e->range.clock, i);
        }
        w->own[owner][i] = 0;
    }
    for (uint32_t k = 0; k < e->n_accepted; k++) {
        const ru_tasks_range *a = &e->accepted[k];
        bool there = false;
        for (uint32_t i = 0; i < w->n_held && !there; i++) {
            const ru_tasks_range *h = &w->held[i].range;
            there = memcmp(h, a, sizeof *h) == 0;
        }
        assert_true(there);
        for (uint32_t i = a->lo; i < a->hi; i++) {
            apply(w, owner, a->clock, i);
        }
    }
    w->closed[owner]++;
    tell_clocks(w);
}

static void send_worked(world *w, uint32_t me)
{
    const work *x = &w->work[me];
    const heard ev = {.kind = RU_TASKS_WORKED, .range = x->range};
    int64_t at = x->begun_ns + 1 + (x->range.hi - x->range.lo) * x->item_ns;
    send_at(w, at > w->now ? at : w->now + 1, me, &ev);
}

/* The first item that has not begun. */
static uint32_t reached(const world *w, uint32_t me)
{
    const work *x = &w->work[me];
    int64_t n = w->now > x->begun_ns ? (w->now - x->begun_ns) / x->item_ns + 1 : 0;
    int64_t all = x->range.hi - x->range.lo;
    return x->range.lo + (uint32_t)(n < all ? n : all);
}

static void perform(world *w, uint32_t me, const did *e)
{
    heard ev = {.worker = me, .msg = e->msg, .range = e->range};
    switch ((uint32_t)e->kind) {
    case RU_TASKS_SEND:
        ev.kind = RU_TASKS_HEARD;
        w->races += e->msg.kind == RU_TASKS_CANCEL ? 1 : 0;
        send_message(w, e->to, &ev);
        break;
    case RU_TASKS_WORK: {
        double slow = ru_rng_below(&w->rng, 20) == 0 ? 8 : 1;
        assert_false(w->work[me].on);
        w->work[me] = (work){true, e->range, w->now, 1 + (int64_t)(1e6 / w->speed[me] * slow)};
        send_worked(w, me);
        break;
    }
    case RU_TASKS_FLUSH: /* the servers hold it unless the helper is fenced */
        assert_true(w->n_held < SLICES_MAX);
        if (!w->fenced[me]) {
            w->held[w->n_held++].range = e->range;
        }
        ev.kind = RU_TASKS_FLUSHED;
        send_at(w, w->now + 1 + (int64_t)ru_rng_below(&w->rng, 10000000), me, &ev);
        break;
    default:
        assert_int_equal(e->kind, RU_TASKS_CLOSE);
        close_clock(w, me, e);
        break;
    }
}

/* A worker dies; the servers take nothing of it any more, then its peers are told. */
static void kill(world *w, uint32_t who)
{
    w->dead[who] = w->fenced[who] = true;
    tell_clocks(w);
    for (uint32_t i = 0; i < N; i++) {
        const heard ev = {.kind = RU_TASKS_LOST, .worker = who};
        send_at(w, w->now + 1 + (int64_t)ru_rng_below(&w->rng, 50000000), i, &ev);
    }
}

static void open_world(world *w, uint64_t seed, const ru_reassign_rules *rules, bool hostile)
{
    memset(w, 0, sizeof *w);
    w->rng = ru_rng_from(seed, 8);
    w->hostile = hostile;
    w->kill = hostile && seed % 2 == 0;
    ru_arena_init(&w->arena, 0);
    ru_heap_init(&w->heap, w->items, EVENTS_MAX);
    for (uint32_t i = 0; i < EVENTS_MAX; i++) {
        w->free[w->n_free++] = i;
    }
    for (uint32_t me = 0; me < N; me++) {
        uint32_t ids[N], n = 0;
        for (uint32_t i = 1; i < N; i++) {
            ids[n++] = (me + i) % N;
        }
        uint32_t *kept = ru_arena_copy(&w->arena, ids, sizeof ids, 8);
        const ru_tasks_options opt = {.me = me,
                                      .items = ITEMS,
                                      .clocks = CLOCKS,
                                      .rules = rules,
                                      .helpers = kept,
                                      .helpees = kept,
                                      .n_helpers = n,
                                      .n_helpees = n};
        ru_err err;
        assert_ok(ru_tasks_open(&opt, &w->arena, &w->worker[me], &err), err);
        w->speed[me] = ru_rng_uniform(&w->rng, 0.2, 1);
        const heard ev = {.kind = RU_TASKS_BEGIN};
        send_at(w, 0, me, &ev);
    }
}

static void step(world *w, uint32_t to, heard ev, outs *out)
{
    work *x = &w->work[to];
    ev.now = (ru_time){w->now};
    ev.reached = x->on ? reached(w, to) : 0;
    if (ev.kind == RU_TASKS_WORKED) {
        x->on = false;
        for (uint32_t i = x->range.lo; x->range.owner == to && i < x->range.hi; i++) {
            w->own[to][i]++;
        }
    }
    tell(w->worker[to], &ev, out);
    if (x->on && out->end != x->range.hi) {
        assert_true(out->end >= ev.reached && out->end < x->range.hi);
        x->range.hi = out->end;
        w->cuts++;
        send_worked(w, to);
    }
    for (uint32_t i = 0; i < out->n; i++) {
        perform(w, to, &out->at[i]);
    }
    if (out->wake_ns > 0) {
        const heard wake = {.kind = RU_TASKS_TIMER};
        w->wake_ns[to] = out->wake_ns > w->now ? out->wake_ns : w->now + 1;
        send_at(w, w->wake_ns[to], to, &wake);
    }
}

/* Of work that has got another end since, or of a time that is not asked for any more. */
static bool is_stale(const world *w, const post *p)
{
    const work *x = &w->work[p->to];
    bool worked = p->ev.kind == RU_TASKS_WORKED;
    return (worked && (!x->on || memcmp(&p->ev.range, &x->range, sizeof x->range) != 0)) ||
           (p->ev.kind == RU_TASKS_TIMER && w->wake_ns[p->to] != w->now);
}

/* Until all that live have closed all clocks. */
static void run_world(world *w, uint64_t seed)
{
    static outs out; /* large */
    ru_heap_item item = {0};
    uint32_t shares[N];
    for (uint64_t k = 0; w->closed_by_all < CLOCKS; k++) {
        if (k > 400000 || !ru_heap_pop(&w->heap, &item)) {
            fail_msg("seed %llu: all stopped at clock %u", (unsigned long long)seed,
                     w->closed_by_all);
        }
        post p = w->posts[item.value];
        w->free[w->n_free++] = (uint32_t)item.value;
        w->now = item.key;
        if (w->dead[p.to] || is_stale(w, &p)) {
            continue;
        }
        step(w, p.to, p.ev, &out);
        if (w->kill && k >= 300 + seed % 1000) {
            w->kill = false;
            kill(w, ru_rng_below(&w->rng, N));
        }
        if (w->hostile && k % 500 == 499) { /* other boundaries, agreed or not */
            for (uint32_t i = 0; i < N; i++) {
                shares[i] = ru_rng_below(&w->rng, ITEMS / N);
            }
            const heard ev = {.kind = RU_TASKS_SHARES, .grant = shares, .expect = shares};
            uint32_t to = ru_rng_below(&w->rng, N);
            if (!w->dead[to]) {
                step(w, to, ev, &out);
            }
        }
    }
}

static void judge(world *w, uint64_t seed)
{
    for (uint32_t i = 0; i < N; i++) {
        for (uint32_t c = 0; !w->dead[i] && c < CLOCKS; c++) {
            for (uint32_t k = 0; k < ITEMS; k++) {
                if (w->applied[i][c][k] != 1) {
                    fail_msg("seed %llu: item %u of clock %u of worker %u was applied %u times",
                             (unsigned long long)seed, k, c, i, w->applied[i][c][k]);
                }
            }
        }
        w->reclaimed += ru_tasks_stats_of(w->worker[i])->reclaimed;
    }
}

static const ru_reassign_rules push_rules = {.push = true,
                                             .slack = 1,
                                             .group = N - 1,
                                             .trigger_ppm = 50000,
                                             .idle_ppm = 10000,
                                             .first_ppm = 50000,
                                             .next_ppm = 100000,
                                             .least_ppm = 5000,
                                             .report_ppm = 50000,
                                             .grain_ppm = 20000,
                                             .rtt_ns = 20000000};

static void test_every_item_once_in_a_hostile_net(void **state)
{
    (void)state;
    static world w;
    int64_t cancels = 0, back = 0, helped = 0, killed = 0, cuts = 0;
    const int64_t seeds = (int64_t)ru_test_many(1000, 4);
    for (uint64_t seed = 0; seed < (uint64_t)seeds; seed++) {
        ru_reassign_rules rules = push_rules;
        rules.slack = (uint32_t)(seed % 4);
        rules.behind_ppm = seed % 2 == 0 ? 0 : rules.trigger_ppm / 2;
        open_world(&w, ru_test_seed() + seed, &rules, true);
        run_world(&w, seed);
        judge(&w, seed);
        cancels += w.races;
        back += w.reclaimed;
        cuts += w.cuts;
        for (uint32_t i = 0; i < N; i++) {
            helped += ru_tasks_stats_of(w.worker[i])->helped;
            killed += w.dead[i] ? 1 : 0;
        }
        ru_arena_fini(&w.arena);
    }
    /* The test means something only when these happen often. */
    assert_true(cancels > seeds && back > seeds && helped > 10 * seeds && killed > 3 * seeds / 10 &&
                cuts > 10 * seeds);
}

static void test_pull_style_in_a_quiet_net(void **state)
{
    (void)state;
    static world w;
    for (uint64_t seed = 0; seed < 100; seed++) {
        ru_reassign_rules rules = push_rules;
        rules.push = false;
        rules.pull = true;
        rules.slack = seed % 2;
        open_world(&w, seed, &rules, false);
        run_world(&w, seed);
        judge(&w, seed);
        ru_arena_fini(&w.arena);
    }
}

/* Worker 0, which helps worker 1 and is helped by it. */
static ru_tasks *open_beside_one(ru_arena *a, uint32_t items)
{
    static const uint32_t other = 1;
    ru_err err;
    ru_tasks *t;
    const ru_tasks_options opt = {.me = 0,
                                  .items = items,
                                  .clocks = 1,
                                  .rules = &push_rules,
                                  .helpers = &other,
                                  .helpees = &other,
                                  .n_helpers = 1,
                                  .n_helpees = 1};
    assert_ok(ru_tasks_open(&opt, a, &t, &err), err);
    return t;
}

/* Two workers, message by message. */
static void test_a_cancel_that_crosses_a_start_loses(void **state)
{
    (void)state;
    static outs out;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_tasks *t = open_beside_one(&a, 100);
    heard ev = {.kind = RU_TASKS_BEGIN};
    tell(t, &ev, &out);
    assert_int_equal(out.at[out.n - 1].kind, RU_TASKS_WORK);
    ev = (heard){.kind = RU_TASKS_HEARD, .worker = 1, .now = {1}};
    ev.msg = (ru_tasks_msg){.kind = RU_TASKS_THIS_FAR, .progress_ppm = 900000};
    tell(t, &ev, &out);
    assert_int_equal(out.at[0].msg.kind, RU_TASKS_DO_THIS);
    ru_tasks_range r = out.at[0].msg.range;
    assert_true(r.hi == 100 && r.lo < 100 && r.owner == 0 && r.helper == 1);
    /* It is claimed; later the same number is said to be cancelled, which is not true any more. */
    ev.msg = (ru_tasks_msg){.kind = RU_TASKS_STARTED_WORKING, .range = r};
    tell(t, &ev, &out);
    ev.msg.kind = RU_TASKS_CANCEL_OK;
    tell(t, &ev, &out);
    assert_int_equal(ru_tasks_stats_of(t)->reclaimed, 0);
    ev = (heard){.kind = RU_TASKS_LOST, .worker = 1, .now = {2}};
    tell(t, &ev, &out);
    assert_true(ru_tasks_stats_of(t)->reclaimed >= r.hi - r.lo);
    ru_arena_fini(&a);
}

/* What no worker can mean is not heard; the largest numbers are used as they are. */
static void test_numbers_that_are_none(void **state)
{
    (void)state;
    static outs out;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_tasks *t = open_beside_one(&a, RU_REASSIGN_ITEMS_MAX);
    heard ev = {.kind = RU_TASKS_BEGIN};
    tell(t, &ev, &out);
    const ru_tasks_msg odd[] = {
        {.kind = RU_TASKS_THIS_FAR, .progress_ppm = INT64_MAX},
        {.kind = RU_TASKS_THIS_FAR, .progress_ppm = INT64_MIN, .idle = true},
        {.kind = RU_TASKS_THIS_FAR, .progress_ppm = 900000, .item_ns = -1},
        {.kind = RU_TASKS_THIS_FAR, .progress_ppm = 900000, .share = UINT32_MAX},
        {.kind = RU_TASKS_KINDS, .progress_ppm = 900000}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(odd); k++) {
        ev = (heard){.kind = RU_TASKS_HEARD, .worker = 1, .now = {1 + k}, .msg = odd[k]};
        tell(t, &ev, &out);
        assert_int_equal(out.n, 0);
    }
    ev.msg = (ru_tasks_msg){.kind = RU_TASKS_THIS_FAR,
                            .progress_ppm = RUI_TASKS_PPM_MAX,
                            .item_ns = RUI_TASKS_ITEM_NS_MAX - 1,
                            .share = RU_REASSIGN_ITEMS_MAX};
    tell(t, &ev, &out);
    assert_int_equal(out.n, 0); /* so slow that it helps with nothing */
    ev.msg.item_ns = 0;
    tell(t, &ev, &out);
    assert_int_equal(out.at[0].msg.kind, RU_TASKS_DO_THIS);
    ru_arena_fini(&a);
}

/* One helper that is far ahead is no reason to hand out work, if most are not: the mean counts. */
static void test_work_stays_with_who_keeps_up(void **state)
{
    (void)state;
    static const uint32_t others[] = {1, 2, 3};
    static outs out;
    ru_reassign_rules rules = push_rules;
    rules.trigger_ppm = 100000;
    rules.behind_ppm = 50000;
    for (uint32_t most = 0; most < 2; most++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_err err;
        ru_tasks *t;
        const ru_tasks_options opt = {
            .items = 1000, .clocks = 1, .rules = &rules, .helpers = others, .n_helpers = 3};
        assert_ok(ru_tasks_open(&opt, &a, &t, &err), err);
        heard ev = {.kind = RU_TASKS_BEGIN, .now = {1}};
        tell(t, &ev, &out);
        /* The last one is 14 % ahead: the mean 4 %, or 6 %. */
        const int64_t at_ppm[] = {0, most == 0 ? -20000 : 40000, 140000};
        for (uint32_t k = 0; k < 3; k++) {
            ev = (heard){.kind = RU_TASKS_HEARD, .worker = others[k], .now = {2 + k}};
            ev.msg = (ru_tasks_msg){.kind = RU_TASKS_THIS_FAR, .progress_ppm = at_ppm[k]};
            tell(t, &ev, &out);
            assert_int_equal(out.n, k == 2 && most == 1 ? 1 : 0);
        }
        for (uint32_t i = 0; i < out.n; i++) {
            assert_int_equal(out.at[i].msg.kind, RU_TASKS_DO_THIS);
            assert_int_equal(out.at[i].to, 3);
        }
        /* Who has nothing to do may help as soon as it is ahead of this one. */
        ev.msg.idle = true;
        ev.worker = 1;
        ev.msg.progress_ppm = 900000;
        tell(t, &ev, &out);
        assert_true(out.n > 0 && out.at[0].to == 1);
        ru_arena_fini(&a);
    }
}

/* However small slices are: what a helper gets in every clock goes out in two. */
static void test_grants_go_out_in_two_slices(void **state)
{
    (void)state;
    static const uint32_t helper = 1, grant = 301;
    static outs out;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_tasks *t;
    const ru_tasks_options opt = {
        .items = 1000, .clocks = 1, .rules = &push_rules, .helpers = &helper, .n_helpers = 1};
    assert_ok(ru_tasks_open(&opt, &a, &t, &err), err);
    heard ev = {.kind = RU_TASKS_SHARES, .grant = &grant, .now = {1}};
    tell(t, &ev, &out);
    ev = (heard){.kind = RU_TASKS_BEGIN, .now = {1}};
    tell(t, &ev, &out);
    uint32_t n = 0, items = 0;
    for (uint32_t i = 0; i < out.n; i++) {
        const ru_tasks_msg *m = &out.at[i].msg;
        if (out.at[i].kind == RU_TASKS_SEND && m->kind == RU_TASKS_DO_THIS) {
            items += m->range.hi - m->range.lo;
            n++;
        }
    }
    assert_int_equal(n, 2);
    assert_int_equal(items, grant);
    ru_arena_fini(&a);
}

/* -- a CANCEL and a STARTED_WORKING that cross ---------------------------------------------------
 */

typedef struct pair {
    ru_rng rng;
    ru_tasks *t[2];
    ru_tasks_range work[2];
    uint32_t reached[2];
    bool working[2], closed[2];
    struct {
        uint32_t to;
        heard ev;
    } mail[64];
    uint32_t n;
    uint8_t times[2][ITEMS];
    int64_t now;
} pair;

static void pair_step(pair *p, uint32_t who, heard ev)
{
    static outs out;
    ev.now = (ru_time){p->now += 1000};
    ev.reached = p->reached[who];
    tell(p->t[who], &ev, &out);
    if (p->working[who]) {
        assert_true(out.end >= p->reached[who] && out.end <= p->work[who].hi);
        p->work[who].hi = out.end;
    }
    for (uint32_t i = 0; i < out.n; i++) {
        const did *e = &out.at[i];
        if (e->kind == RU_TASKS_WORK) {
            p->working[who] = true;
            p->work[who] = e->range;
            p->reached[who] = e->range.lo;
        } else if (e->kind == RU_TASKS_CLOSE) {
            p->closed[who] = true;
        } else {
            assert_true(p->n < RU_ARRAY_LEN(p->mail));
            bool sent = e->kind == RU_TASKS_SEND;
            p->mail[p->n].to = sent ? e->to : who;
            p->mail[p->n++].ev = (heard){.kind = sent ? RU_TASKS_HEARD : RU_TASKS_FLUSHED,
                                         .worker = who,
                                         .msg = e->msg,
                                         .range = e->range};
        }
    }
}

static void pair_deliver(pair *p, uint32_t at)
{
    uint32_t to = p->mail[at].to;
    heard ev = p->mail[at].ev;
    p->mail[at] = p->mail[--p->n];
    pair_step(p, to, ev);
}

/* Is such a message on its way? Its place, or UINT32_MAX. */
static uint32_t pair_find(const pair *p, ru_tasks_kind kind)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->mail[i].ev.kind == RU_TASKS_HEARD && p->mail[i].ev.msg.kind == kind) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* It goes on by an item or two, and the machine looks at the time; or all is done. */
static void pair_works(pair *p, uint32_t who)
{
    const ru_tasks_range *r = &p->work[who];
    uint32_t rest = r->hi - p->reached[who], n = 1 + ru_rng_below(&p->rng, 2);
    for (n = n < rest ? n : rest; n > 0; n--) {
        p->times[r->owner][p->reached[who]++]++;
    }
    p->working[who] = rest > 0;
    pair_step(p, who, (heard){.kind = rest > 0 ? RU_TASKS_TIMER : RU_TASKS_WORKED});
}

/* Worker 1 is ahead and busy; worker 0 offers it a slice, and comes to that slice itself. At this
 * moment worker 1 begins it. */
static void force_race(pair *p)
{
    uint32_t at;
    pair_step(p, 0, (heard){.kind = RU_TASKS_BEGIN});
    pair_step(p, 1, (heard){.kind = RU_TASKS_BEGIN});
    uint32_t ahead = ITEMS / 2 + ru_rng_below(&p->rng, ITEMS / 3);
    while (p->reached[1] < ahead) {
        pair_works(p, 1);
    }
    while (pair_find(p, RU_TASKS_DO_THIS) == UINT32_MAX) {
        at = pair_find(p, RU_TASKS_THIS_FAR);
        at = at != UINT32_MAX ? at : pair_find(p, RU_TASKS_STARTED);
        if (at != UINT32_MAX) {
            pair_deliver(p, at);
        } else { /* worker 0 expects what worker 1 does not tell, and looks as it goes on */
            assert_true(p->working[0]);
            pair_works(p, 0);
        }
    }
    while ((at = pair_find(p, RU_TASKS_DO_THIS)) != UINT32_MAX) {
        pair_deliver(p, at);
    }
    while (pair_find(p, RU_TASKS_CANCEL) == UINT32_MAX) {
        assert_true(p->working[0]);
        pair_works(p, 0);
    }
    while (pair_find(p, RU_TASKS_STARTED_WORKING) == UINT32_MAX && p->working[1]) {
        pair_works(p, 1); /* what it does is cut short */
    }
    assert_true(pair_find(p, RU_TASKS_STARTED_WORKING) != UINT32_MAX);
}

static void test_a_thousand_forced_races(void **state)
{
    (void)state;
    static pair p;
    static ru_reassign_rules rules;
    for (uint64_t seed = 0, n = ru_test_many(1000, 4); seed < n; seed++) {
        ru_arena a;
        ru_err err;
        ru_arena_init(&a, 0);
        p = (pair){.rng = ru_rng_from(seed, 91)};
        rules = push_rules;
        rules.grain_ppm = 10000 * (1 + (int64_t)ru_rng_below(&p.rng, 10));
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t other = 1 - k;
            const ru_tasks_options opt = {.me = k,
                                          .items = ITEMS,
                                          .clocks = 1,
                                          .rules = &rules,
                                          .helpers = &other,
                                          .helpees = &other,
                                          .n_helpers = 1,
                                          .n_helpees = 1};
            assert_ok(ru_tasks_open(&opt, &a, &p.t[k], &err), err);
        }
        force_race(&p);
        for (uint32_t turn = 0; !p.closed[0] || !p.closed[1]; turn++) {
            assert_true(turn < 10000);
            uint32_t pick = ru_rng_below(&p.rng, p.n + 2);
            if (pick < p.n) {
                pair_deliver(&p, pick);
            } else if (p.working[pick - p.n]) {
                pair_works(&p, pick - p.n);
            } else {
                p.now += 100000000; /* it may ask again */
                pair_step(&p, pick - p.n, (heard){.kind = RU_TASKS_TIMER});
            }
        }
        for (uint32_t i = 0; i < 2 * ITEMS; i++) {
            assert_int_equal(p.times[i / ITEMS][i % ITEMS], 1);
        }
        ru_arena_fini(&a);
    }
}

RU_TESTS(train_tasks, cmocka_unit_test(test_numbers_that_are_none),
         cmocka_unit_test(test_work_stays_with_who_keeps_up),
         cmocka_unit_test(test_grants_go_out_in_two_slices),
         cmocka_unit_test(test_a_thousand_forced_races),
         cmocka_unit_test(test_every_item_once_in_a_hostile_net),
         cmocka_unit_test(test_pull_style_in_a_quiet_net),
         cmocka_unit_test(test_a_cancel_that_crosses_a_start_loses))
