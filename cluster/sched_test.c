/* The scheduler's machine: a job's life by hand, random lives that keep the books. */
#include "cluster/sched.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

enum { JOBS = 12, NODES = 5 };

enum { FIRST = 0x780 };

typedef struct told {
    ru_sched_word word;
    uint32_t job;
} told;

/* The machine, its timer, and what it told in the last step. */
typedef struct box {
    ru_arena a, memory;
    ru_effects fx;
    ru_sched s;
    ru_time timer;
    told at[2 * JOBS];
    uint32_t n;
    bool refused;
    int64_t refused_value;
} box;

static void box_open(box *b, int64_t restart_ns, int64_t quantum_ns)
{
    ru_err err;
    *b = (box){0};
    ru_arena_init(&b->a, 0);
    const ru_sched_spec spec = {JOBS, NODES, restart_ns, quantum_ns, FIRST, false};
    assert_ok(ru_sched_init(&b->s, &spec, (ru_time){0}, &b->a, &err), err);
    b->timer.ns = INT64_MAX;
    ru_arena_init(&b->memory, 0);
    ru_effects_init(&b->fx, &b->memory);
}

static void see(box *b, const ru_effect *e)
{
    if (e->kind != RU_FX_LOCAL) {
        assert_int_equal(e->what, FIRST + RU_SCHED_TIMER);
        b->timer.ns = e->kind == RU_FX_TIMER ? e->at.ns : INT64_MAX;
    } else if (e->what == FIRST + RU_SCHED_REFUSED) {
        b->refused = true;
        b->refused_value = e->value;
    } else {
        assert_true(b->n < 2 * JOBS);
        b->at[b->n++] = (told){(ru_sched_word)(e->what - FIRST), (uint32_t)e->value};
    }
}

static void step(box *b, double at_s, ru_event ev)
{
    ev.now.ns = (int64_t)(at_s * 1e9);
    ev.what += FIRST;
    b->n = 0;
    b->refused = false;
    b->timer.ns = ev.kind == RU_EV_TIMER ? INT64_MAX : b->timer.ns;
    ru_sched_step(&b->s, &ev, &b->fx);
    for (uint32_t i = 0; i < b->fx.n; i++) {
        see(b, &b->fx.at[i]);
    }
    ru_effects_clear(&b->fx);
}

static void tick(box *b, double at_s)
{
    step(b, at_s, (ru_event){.kind = RU_EV_TIMER, .what = RU_SCHED_TIMER});
}

static void send(box *b, double at_s, ru_sched_word word, int64_t job)
{
    step(b, at_s, (ru_event){.kind = RU_EV_LOCAL, .what = word, .value = job});
}

static void node(box *b, double at_s, ru_sched_change c)
{
    step(
        b, at_s,
        (ru_event){.kind = RU_EV_LOCAL, .what = RU_SCHED_NODE, .data = &c, .size_bytes = sizeof c});
}

static void report(box *b, double at_s, ru_sched_report r)
{
    step(b, at_s,
         (ru_event){
             .kind = RU_EV_LOCAL, .what = RU_SCHED_REPORT, .data = &r, .size_bytes = sizeof r});
}

static void plan_one(box *b, double at_s, uint32_t job, const ru_alloc_part *parts, uint32_t n)
{
    ru_alloc_share share = {.n_parts = n};
    ru_alloc_plan plan = {.jobs = &share, .parts = parts, .n_jobs = 1, .n_parts = n};
    const ru_sched_grants g = {&plan, &job};
    step(
        b, at_s,
        (ru_event){.kind = RU_EV_LOCAL, .what = RU_SCHED_PLAN, .data = &g, .size_bytes = sizeof g});
}

static void test_a_life_by_hand(void **state)
{
    (void)state;
    static const ru_alloc_part two[] = {{0, 2}}, both[] = {{0, 2}, {1, 1}};
    box b;
    box_open(&b, (int64_t)30e9, (int64_t)1e9);
    node(&b, 0, (ru_sched_change){.node = 0, .devices = 4, .market = RU_SCHED_OWNED});
    node(&b, 0, (ru_sched_change){.node = 1, .devices = 1, .market = 3, .lease = 7});
    send(&b, 10, RU_SCHED_SUBMIT, 4);
    assert_false(b.refused);
    send(&b, 10, RU_SCHED_SUBMIT, 4);
    assert_true(b.refused && b.refused_value == 4);
    send(&b, 10, RU_SCHED_SUBMIT, (INT64_C(1) << 32) + 5); /* its low 32 bits name a free job */
    assert_true(b.refused && b.refused_value == (INT64_C(1) << 32) + 5);
    plan_one(&b, 60, 4, two, 1);
    assert_int_equal(b.n, 1);
    assert_int_equal(b.at[0].word, RU_SCHED_START);
    assert_int_equal(b.timer.ns, (int64_t)90e9);
    tick(&b, 89);
    assert_int_equal(b.n, 0);
    tick(&b, 90);
    assert_int_equal(b.at[0].word, RU_SCHED_READY);
    /* 10.4 s are rounded to 10, told just after; 9.6 to 10, told then */
    report(&b, 90, (ru_sched_report){.job = 4, .rate = 1, .goal = 10.4});
    assert_int_equal(b.timer.ns, (int64_t)100e9 + 1);
    tick(&b, 101);
    assert_int_equal(b.at[0].word, RU_SCHED_GOAL);
    assert_near(b.s.jobs[4].progress, 10.4, 1e-12);
    report(&b, 101, (ru_sched_report){.job = 4, .rate = 2, .goal = 29.6});
    assert_int_equal(b.timer.ns, (int64_t)110e9);
    /* devices change: half way, 2 devices for 45 s so far */
    plan_one(&b, 105, 4, both, 2);
    assert_int_equal(b.n, 2);
    assert_near(b.s.jobs[4].progress, 20.4, 1e-9);
    ru_alloc_job facts = {0};
    ru_sched_facts(&b.s, 4, b.s.now, &facts);
    assert_near(facts.service_s, 90, 1e-9);
    assert_near(facts.age_s, 95, 1e-9);
    assert_int_equal(facts.restarts, 1);
    assert_int_equal(facts.n_now, 2);
    plan_one(&b, 106, 4, both, 2);
    assert_int_equal(b.n, 0); /* the same devices: nothing happens */
    /* the leased node goes: the job stops, everything is free again */
    node(&b, 110, (ru_sched_change){.node = 1, .market = 3, .lease = 7});
    assert_int_equal(b.at[0].word, RU_SCHED_STOP);
    assert_int_equal(b.s.nodes[0].used, 0);
    assert_int_equal(b.s.jobs[4].phase, RU_SCHED_WAITS);
    assert_int_equal(b.timer.ns, INT64_MAX);
    send(&b, 120, RU_SCHED_END, 4);
    assert_int_equal(b.s.jobs[4].service_ns, (int64_t)105e9);
    ru_arena_fini(&b.memory);
    ru_arena_fini(&b.a);
}

/* Growing, shrinking, moving and losing a node of several is no restart: progress goes on at the
 * rate that was reported; only the last device that goes stops the job. */
static void test_a_job_grows_and_shrinks_while_it_runs(void **state)
{
    (void)state;
    static const ru_alloc_part one[] = {{0, 1}}, both[] = {{0, 2}, {1, 1}}, other[] = {{1, 1}};
    box b;
    box_open(&b, (int64_t)30e9, 0);
    b.s.spec.resizes = true;
    node(&b, 0, (ru_sched_change){.node = 0, .devices = 2, .market = RU_SCHED_OWNED});
    node(&b, 0, (ru_sched_change){.node = 1, .devices = 1, .market = RU_SCHED_OWNED});
    send(&b, 0, RU_SCHED_SUBMIT, 1);
    plan_one(&b, 0, 1, one, 1);
    assert_int_equal(b.at[0].word, RU_SCHED_START);
    tick(&b, 30);
    report(&b, 30, (ru_sched_report){.job = 1, .rate = 2, .goal = 1000});
    plan_one(&b, 40, 1, both, 2);
    assert_int_equal(b.n, 1);
    assert_int_equal(b.at[0].word, RU_SCHED_RESIZE);
    assert_near(b.s.jobs[1].progress, 20, 1e-9);
    assert_int_equal(b.s.jobs[1].replicas, 3);
    assert_int_equal(b.s.jobs[1].phase, RU_SCHED_RUNS);
    plan_one(&b, 50, 1, other, 1); /* it moves */
    assert_int_equal(b.n, 1);
    assert_int_equal(b.at[0].word, RU_SCHED_RESIZE);
    assert_int_equal(b.s.nodes[0].used, 0);
    plan_one(&b, 60, 1, both, 2);
    node(&b, 70, (ru_sched_change){.node = 0, .market = RU_SCHED_OWNED});
    assert_int_equal(b.n, 1);
    assert_int_equal(b.at[0].word, RU_SCHED_RESIZE);
    assert_int_equal(b.s.jobs[1].n_parts, 1);
    assert_int_equal(b.s.jobs[1].restarts, 0);
    assert_near(b.s.jobs[1].progress, 80, 1e-9);
    assert_int_equal(b.s.jobs[1].service_ns, (int64_t)((1 * 40 + 3 * 10 + 1 * 10 + 3 * 10) * 1e9));
    node(&b, 80, (ru_sched_change){.node = 1, .market = RU_SCHED_OWNED});
    assert_int_equal(b.at[0].word, RU_SCHED_STOP);
    assert_near(b.s.jobs[1].progress, 100, 1e-9);
    ru_arena_fini(&b.memory);
    ru_arena_fini(&b.a);
}

static void check_books(const box *b, const double *service, const double *progress)
{
    uint32_t used[NODES] = {0};
    for (uint32_t j = 0; j < JOBS; j++) {
        const ru_sched_job *s = &b->s.jobs[j];
        for (uint32_t i = 0; i < s->n_parts; i++) {
            used[s->parts[i].node] += s->parts[i].devices;
        }
        ru_alloc_job facts = {0};
        if (s->phase != RU_SCHED_NONE) {
            ru_sched_facts(&b->s, j, b->s.now, &facts);
            assert_true(fabs(facts.service_s - service[j]) < 1e-3 + 1e-6 * service[j]);
        }
        if (s->phase == RU_SCHED_RUNS && s->since.ns == b->s.now.ns) {
            assert_true(fabs(s->progress - progress[j]) < 1e-3 + 1e-6 * progress[j]);
        }
    }
    for (uint32_t i = 0; i < NODES; i++) {
        assert_int_equal(used[i], b->s.nodes[i].used);
        assert_true(used[i] <= b->s.nodes[i].devices);
    }
}

/* Random plans, reports and nodes: devices are never given twice, service is the integral of
 * devices, and progress that of rates. */
static void test_random_lives_keep_the_books(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 21);
    box b;
    box_open(&b, (int64_t)3e9, 0);
    double service[JOBS] = {0}, progress[JOBS] = {0}, last = 0;
    uint32_t starts = 0, goals = 0;
    for (uint32_t k = 0; k < 4000; k++) {
        double at = last + ru_rng_uniform(&r, 0, 2);
        double due = (double)b.timer.ns * 1e-9;
        bool now = due <= at;
        at = now && due > last ? due : now ? last : at;
        for (uint32_t j = 0; j < JOBS; j++) {
            service[j] += b.s.jobs[j].replicas * (at - last);
            progress[j] += b.s.jobs[j].phase == RU_SCHED_RUNS ? b.s.jobs[j].rate * (at - last) : 0;
        }
        last = at;
        uint32_t what = ru_rng_below(&r, 5), job = ru_rng_below(&r, JOBS);
        ru_sched_phase phase = b.s.jobs[job].phase;
        if (now) {
            tick(&b, at + 1e-9);
        } else if (what == 0 && phase == RU_SCHED_NONE) {
            service[job] = progress[job] = 0;
            send(&b, at, RU_SCHED_SUBMIT, job);
        } else if (what == 1) {
            node(
                &b, at,
                (ru_sched_change){.node = ru_rng_below(&r, NODES), .devices = ru_rng_below(&r, 5)});
        } else if (what == 2 && phase == RU_SCHED_RUNS) {
            double rate = ru_rng_uniform(&r, 0.1, 2), since = (double)b.s.jobs[job].since.ns * 1e-9;
            progress[job] += b.s.jobs[job].rate > 0 ? 0 : rate * (at - since);
            report(&b, at,
                   (ru_sched_report){.job = job, .rate = rate, .goal = b.s.jobs[job].progress + 3});
        } else if (what == 3 && phase != RU_SCHED_NONE) {
            ru_alloc_part parts[NODES];
            uint32_t n = 0;
            for (uint32_t i = 0; i < b.s.n_nodes; i++) {
                uint32_t room = b.s.nodes[i].devices - b.s.nodes[i].used;
                uint32_t take = ru_rng_below(&r, room + 1);
                if (take > 0) {
                    parts[n++] = (ru_alloc_part){i, take};
                }
            }
            plan_one(&b, at, job, parts, n);
        } else if (what == 4 && phase != RU_SCHED_NONE && ru_rng_below(&r, 4) == 0) {
            send(&b, at, RU_SCHED_END, job);
        } else {
            tick(&b, at);
        }
        for (uint32_t i = 0; i < b.n; i++) {
            uint32_t j = b.at[i].job;
            starts += b.at[i].word == RU_SCHED_START;
            if (b.at[i].word == RU_SCHED_GOAL) { /* a late tick: time after the goal is idle */
                goals++;
                assert_true(progress[j] > b.s.jobs[j].goal - 1e-6);
                progress[j] = b.s.jobs[j].goal;
            }
        }
        check_books(&b, service, progress);
    }
    assert_true(starts > 50 && goals > 20);
    ru_arena_fini(&b.memory);
    ru_arena_fini(&b.a);
}

RU_TESTS(cluster_sched, cmocka_unit_test(test_a_job_grows_and_shrinks_while_it_runs),
         cmocka_unit_test(test_a_life_by_hand), cmocka_unit_test(test_random_lives_keep_the_books))
