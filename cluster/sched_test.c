/* The scheduler's machine: a job's life by hand, random lives that keep the books. */
#include "cluster/sched.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

enum { JOBS = 12, NODES = 5 };

typedef struct box {
    ru_arena a;
    ru_sched s;
    ru_sched_effect effects[2 * JOBS];
    ru_sched_effects out;
} box;

static void box_open(box *b, int64_t restart_ns, int64_t quantum_ns)
{
    ru_err err;
    *b = (box){0};
    ru_arena_init(&b->a, 0);
    const ru_sched_spec spec = {JOBS, NODES, restart_ns, quantum_ns};
    assert_ok(ru_sched_init(&b->s, &spec, (ru_time){0}, &b->a, &err), err);
    b->out = (ru_sched_effects){.at = b->effects, .max = 2 * JOBS};
}

static void send(box *b, double at_s, ru_sched_event ev)
{
    ev.now.ns = (int64_t)(at_s * 1e9);
    ru_sched_step(&b->s, &ev, &b->out);
}

static void plan_one(box *b, double at_s, uint32_t job, const ru_alloc_part *parts, uint32_t n)
{
    ru_alloc_share share = {.n_parts = n};
    ru_alloc_plan plan = {.jobs = &share, .parts = parts, .n_jobs = 1, .n_parts = n};
    send(b, at_s, (ru_sched_event){.kind = RU_SCHED_PLAN, .plan = &plan, .of = &job});
}

static void test_a_life_by_hand(void **state)
{
    (void)state;
    static const ru_alloc_part two[] = {{0, 2}}, both[] = {{0, 2}, {1, 1}};
    box b;
    box_open(&b, (int64_t)30e9, (int64_t)1e9);
    send(
        &b, 0,
        (ru_sched_event){.kind = RU_SCHED_NODE, .node = 0, .devices = 4, .market = RU_SCHED_OWNED});
    send(&b, 0,
         (ru_sched_event){.kind = RU_SCHED_NODE, .node = 1, .devices = 1, .market = 3, .lease = 7});
    send(&b, 10, (ru_sched_event){.kind = RU_SCHED_SUBMIT, .job = 4});
    assert_false(b.out.refused);
    send(&b, 10, (ru_sched_event){.kind = RU_SCHED_SUBMIT, .job = 4});
    assert_true(b.out.refused);
    plan_one(&b, 60, 4, two, 1);
    assert_int_equal(b.out.n, 1);
    assert_int_equal(b.out.at[0].act, RU_SCHED_START);
    assert_int_equal(ru_sched_next(&b.s).ns, (int64_t)90e9);
    send(&b, 89, (ru_sched_event){.kind = RU_SCHED_TICK});
    assert_int_equal(b.out.n, 0);
    send(&b, 90, (ru_sched_event){.kind = RU_SCHED_TICK});
    assert_int_equal(b.out.at[0].act, RU_SCHED_READY);
    /* 10.4 s are rounded to 10, told just after; 9.6 to 10, told then */
    send(&b, 90, (ru_sched_event){.kind = RU_SCHED_REPORT, .job = 4, .rate = 1, .goal = 10.4});
    assert_int_equal(ru_sched_next(&b.s).ns, (int64_t)100e9 + 1);
    send(&b, 101, (ru_sched_event){.kind = RU_SCHED_TICK});
    assert_int_equal(b.out.at[0].act, RU_SCHED_GOAL);
    assert_near(b.s.jobs[4].progress, 10.4, 1e-12);
    send(&b, 101, (ru_sched_event){.kind = RU_SCHED_REPORT, .job = 4, .rate = 2, .goal = 29.6});
    assert_int_equal(ru_sched_next(&b.s).ns, (int64_t)110e9);
    /* devices change: half way, 2 devices for 45 s so far */
    plan_one(&b, 105, 4, both, 2);
    assert_int_equal(b.out.n, 2);
    assert_near(b.s.jobs[4].progress, 20.4, 1e-9);
    ru_alloc_job facts = {0};
    ru_sched_facts(&b.s, 4, &facts);
    assert_near(facts.service_s, 90, 1e-9);
    assert_near(facts.age_s, 95, 1e-9);
    assert_int_equal(facts.restarts, 1);
    assert_int_equal(facts.n_now, 2);
    plan_one(&b, 106, 4, both, 2);
    assert_int_equal(b.out.n, 0); /* the same devices: nothing happens */
    /* the leased node goes: the job stops, everything is free again */
    send(&b, 110, (ru_sched_event){.kind = RU_SCHED_NODE, .node = 1, .market = 3, .lease = 7});
    assert_int_equal(b.out.at[0].act, RU_SCHED_STOP);
    assert_int_equal(b.s.nodes[0].used, 0);
    assert_int_equal(b.s.jobs[4].phase, RU_SCHED_WAITS);
    assert_int_equal(ru_sched_next(&b.s).ns, INT64_MAX);
    send(&b, 120, (ru_sched_event){.kind = RU_SCHED_END, .job = 4});
    assert_int_equal(b.s.jobs[4].service_ns, (int64_t)105e9);
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
            ru_sched_facts(&b->s, j, &facts);
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
        double due = (double)ru_sched_next(&b.s).ns * 1e-9;
        bool tick = due <= at;
        at = tick && due > last ? due : tick ? last : at;
        for (uint32_t j = 0; j < JOBS; j++) {
            service[j] += b.s.jobs[j].replicas * (at - last);
            progress[j] += b.s.jobs[j].phase == RU_SCHED_RUNS ? b.s.jobs[j].rate * (at - last) : 0;
        }
        last = at;
        uint32_t what = ru_rng_below(&r, 5), job = ru_rng_below(&r, JOBS);
        ru_sched_phase phase = b.s.jobs[job].phase;
        if (tick) {
            send(&b, at + 1e-9, (ru_sched_event){.kind = RU_SCHED_TICK});
        } else if (what == 0 && phase == RU_SCHED_NONE) {
            service[job] = progress[job] = 0;
            send(&b, at, (ru_sched_event){.kind = RU_SCHED_SUBMIT, .job = job});
        } else if (what == 1) {
            send(&b, at,
                 (ru_sched_event){.kind = RU_SCHED_NODE,
                                  .node = ru_rng_below(&r, NODES),
                                  .devices = ru_rng_below(&r, 5)});
        } else if (what == 2 && phase == RU_SCHED_RUNS) {
            double rate = ru_rng_uniform(&r, 0.1, 2), since = (double)b.s.jobs[job].since.ns * 1e-9;
            progress[job] += b.s.jobs[job].rate > 0 ? 0 : rate * (at - since);
            send(&b, at,
                 (ru_sched_event){.kind = RU_SCHED_REPORT,
                                  .job = job,
                                  .rate = rate,
                                  .goal = b.s.jobs[job].progress + 3});
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
            send(&b, at, (ru_sched_event){.kind = RU_SCHED_END, .job = job});
        } else {
            send(&b, at, (ru_sched_event){.kind = RU_SCHED_TICK});
        }
        for (uint32_t i = 0; i < b.out.n; i++) {
            uint32_t j = b.out.at[i].job;
            starts += b.out.at[i].act == RU_SCHED_START;
            if (b.out.at[i].act == RU_SCHED_GOAL) { /* a late tick: time after the goal is idle */
                goals++;
                assert_true(progress[j] > b.s.jobs[j].goal - 1e-6);
                progress[j] = b.s.jobs[j].goal;
            }
        }
        check_books(&b, service, progress);
    }
    assert_true(starts > 50 && goals > 20);
    ru_arena_fini(&b.a);
}

RU_TESTS(cluster_sched, cmocka_unit_test(test_a_life_by_hand),
         cmocka_unit_test(test_random_lives_keep_the_books))
