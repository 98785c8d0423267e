/* The rest of a job whose batch changes, against all combinations of choices: no cheaper than what
 * is possible, no dearer than the best one for nine tenths of the time; and what nothing keeps. */
#include "plan/fleet/scale_rest.h"

#include <math.h>

#include "test/test.h"

enum { WORKERS = 6, PARTS = 3, SEEN = WORKERS * PARTS };

static const double memory = 442.25;
static const ru_scale_law truth = {.work = 77e-6, .fixed = 0.016, .exchange = 0.017};
static const ru_scale_part parts[PARTS] = {{800, 60}, {400, 120}, {200, 240}};
static const double again_s = 0.07, other_s = 0.1;

typedef struct world {
    ru_scale_in in;
    ru_scale_probe probe[SEEN];
    double batch[SEEN];
    uint32_t there;
    ru_scale_rest_in rest;
} world;

/* All choices were measured with all batches, or one worker with the first batch alone. */
static void world_init(world *w, double limit_s, bool all)
{
    *w = (world){.there = WORKERS};
    w->in = (ru_scale_in){.workers_min = 1,
                          .workers_max = WORKERS,
                          .workers_step = 1,
                          .memory_mb = &memory,
                          .n_memory = 1,
                          .limit_s = limit_s,
                          .core_mb = 1769,
                          .probe = w->probe,
                          .n_probes = all ? SEEN : 1,
                          .rules = {.init_s = 1, .usd_per_gb_s = 1.66667e-5, .usd_per_call = 2e-7}};
    for (uint32_t k = 0; k < SEEN; k++) {
        w->batch[k] = parts[k / WORKERS].batch;
        w->probe[k] = (ru_scale_probe){.workers = 1 + k % WORKERS, .memory_mb = memory};
        w->probe[k].step_s =
            ru_scale_law_step(&truth, &w->in, w->probe[k].workers, memory, w->batch[k]);
    }
    w->rest = (ru_scale_rest_in){.in = &w->in,
                                 .batch = w->batch,
                                 .parts = parts,
                                 .n = PARTS,
                                 .there = &w->there,
                                 .again_s = again_s,
                                 .other_s = other_s,
                                 .stretch_steps = 1000, /* each part is one */
                                 .stretch_s = 1};
}

/* The least money of all combinations that take no longer; *fastest: of all of them. */
static double least_usd(const world *w, double limit_s, double *fastest)
{
    double least = (double)INFINITY;
    *fastest = (double)INFINITY;
    for (uint32_t k = 0; k < WORKERS * WORKERS * WORKERS; k++) {
        const uint32_t of[PARTS] = {1 + k % WORKERS, 1 + k / WORKERS % WORKERS,
                                    1 + k / (WORKERS * WORKERS)};
        double s = 0, usd = 0;
        for (uint32_t p = 0; p < PARTS; p++) {
            double took = other_s + parts[p].steps * ru_scale_law_step(&truth, &w->in, of[p],
                                                                       memory, parts[p].batch);
            s += took;
            usd += of[p] *
                   (memory / 1024 * w->in.rules.usd_per_gb_s * took + w->in.rules.usd_per_call);
        }
        *fastest = fmin(*fastest, s);
        least = s <= limit_s ? fmin(least, usd) : least;
    }
    return least;
}

static void test_least_money(void **state)
{
    world w;
    ru_arena a;
    ru_err err;
    ru_scale_rest_plan p;
    double fastest, none;
    (void)state;
    world_init(&w, 1, true);
    (void)least_usd(&w, 1, &fastest);
    for (uint32_t k = 0; k <= 20; k++) {
        double limit_s = fastest * (1.04 + 0.015 * k); /* one worker alone: 1.27 */
        ru_arena_init(&a, 0);
        world_init(&w, limit_s, true);
        assert_ok(ru_scale_rest(&w.rest, &a, &p, &err), err);
        assert_false(p.late);
        assert_true(p.seconds <= limit_s && p.steps == parts[0].steps);
        assert_true(p.usd >= least_usd(&w, limit_s, &none) * (1 - 1e-6));
        assert_true(p.usd <= least_usd(&w, 0.9 * limit_s, &none) * (1 + 1e-6));
        double step_s = ru_scale_law_step(&truth, &w.in, p.workers, memory, parts[0].batch);
        assert_true(fabs(p.step_s / step_s - 1) < 1e-3);
        ru_arena_fini(&a);
    }
}

/* Where time is short the stretch leaves a way out; where nothing is fast enough it says so. */
static void test_short_of_time(void **state)
{
    world w;
    ru_arena a;
    ru_err err;
    ru_scale_rest_plan p;
    double fastest;
    (void)state;
    world_init(&w, 1, true);
    (void)least_usd(&w, 1, &fastest);
    ru_arena_init(&a, 0);
    world_init(&w, 0.9 * fastest, true);
    assert_ok(ru_scale_rest(&w.rest, &a, &p, &err), err);
    assert_true(p.late && p.seconds <= fastest * (1 + 1e-6));
    world_init(&w, 1.02 * fastest, true);
    assert_ok(ru_scale_rest(&w.rest, &a, &p, &err), err);
    assert_true(!p.late && p.seconds <= 1.02 * fastest);
    /* The last steps: what may take 1.1 times as long must still fit. */
    world_init(&w, 200 * 0.058, true);
    w.rest.parts = &parts[2];
    w.rest.n = 1;
    w.rest.stretch_steps = 200;
    w.rest.stretch_s = 100;
    assert_ok(ru_scale_rest(&w.rest, &a, &p, &err), err);
    double step_s = ru_scale_law_step(&truth, &w.in, p.workers, memory, 240);
    assert_true(p.steps == 200 && 1.09 * 200 * step_s <= w.in.limit_s);
    ru_arena_fini(&a);
}

/* What ran out of memory is not chosen. */
static void test_what_cannot_run(void **state)
{
    world w;
    ru_arena a;
    ru_err err;
    ru_scale_rest_plan p;
    (void)state;
    ru_arena_init(&a, 0);
    world_init(&w, 1000, true);
    w.probe[1].failed = true; /* two workers, so one, too */
    assert_ok(ru_scale_rest(&w.rest, &a, &p, &err), err);
    assert_true(p.workers >= 3);
    w.probe[5].failed = true; /* six: all */
    assert_int_equal(ru_scale_rest(&w.rest, &a, &p, &err), RU_E_INFEASIBLE);
    ru_arena_fini(&a);
}

RU_TESTS(plan_scale_rest, cmocka_unit_test(test_least_money), cmocka_unit_test(test_short_of_time),
         cmocka_unit_test(test_what_cannot_run))
