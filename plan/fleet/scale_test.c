/* Scale: where everything was measured the best choice runs; limits of job and measuring hold on
 * the way; drift; plans that were changed are refused. */
#include "plan/fleet/scale.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

enum { WORKERS = 4, MEMORIES = 3 };
static const double memories[MEMORIES] = {1024, 1769, 3538};

/* Seconds of a step, more or less as functions behave. */
static double truth(uint64_t seed, double workers, double memory_mb)
{
    ru_rng rng = ru_rng_from(seed, 7);
    double work = 10 * (0.2 + ru_rng_f64(&rng)), wait = 0.05 * ru_rng_f64(&rng);
    return work / workers * (0.2 + 0.8 * 1769 / memory_mb) + wait * workers + 0.02;
}

static ru_scale_in input(const ru_scale_probe *probe, uint32_t n)
{
    return (ru_scale_in){.workers_min = 4,
                         .workers_max = 16,
                         .workers_step = 4,
                         .memory_mb = memories,
                         .n_memory = MEMORIES,
                         .steps = 5000,
                         .fastest = 0,
                         .probe = probe,
                         .n_probes = n,
                         .rules = {900, 5, 1, 1.66667e-5, 2e-7, 0.001, 0},
                         .core_mb = 1769,
                         .noise = 0.001,
                         .probe_steps = 10,
                         .probes_max = 7,
                         .probing_max = 0.1,
                         .gain_min = 0.002,
                         .confidence = 0.95,
                         .seed = 3};
}

/* The best of all choices that keep the limits; INFINITY: none does. */
static double brute(const ru_scale_in *in, uint64_t seed, bool *tight)
{
    double best = INFINITY;
    *tight = false;
    for (uint32_t k = 0; k < WORKERS * MEMORIES; k++) {
        uint32_t w = 4 + 4 * (k / MEMORIES);
        double m = memories[k % MEMORIES];
        ru_function_run run;
        assert_true(ru_function_run_of(&in->rules, w, m, in->steps, truth(seed, w, m), &run));
        double over = run.seconds / in->limit_s;
        *tight = *tight || (over > 0.98 && over < 1.02); /* what 0.1 % of noise may decide */
        if (over <= 1) {
            best = fmin(best, !in->fastest ? run.usd : run.seconds);
        }
    }
    return best;
}

static void test_the_best_of_what_was_measured_runs(void **state)
{
    (void)state;
    uint32_t none = 0, some = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_scale_probe probe[WORKERS * MEMORIES];
        for (uint32_t k = 0; k < WORKERS * MEMORIES; k++) {
            uint32_t w = 4 + 4 * (k / MEMORIES);
            double m = memories[k % MEMORIES];
            probe[k] = (ru_scale_probe){w, m, truth(seed, w, m), false, false};
        }
        ru_scale_in in = input(probe, WORKERS * MEMORIES);
        in.fastest = seed % 3 == 0;
        in.limit_s = 2000 + 400 * (double)(seed % 20);
        bool tight;
        double best = brute(&in, seed, &tight);
        ru_scale_plan p;
        ru_err err;
        ru_status st = ru_plan_scale(&in, &a, &p, &err);
        if (tight) {
            ru_arena_fini(&a);
            continue;
        }
        if (isinf(best)) {
            assert_int_equal(st, RU_E_INFEASIBLE);
            none++;
        } else {
            assert_ok(st, err);
            assert_ok(ru_plan_scale_check(&in, &p, &err), err);
            assert_false(p.probe);
            assert_true(p.met >= 0.95);
            ru_function_run run;
            assert_true(ru_function_run_of(&in.rules, p.workers, p.memory_mb, in.steps,
                                           truth(seed, p.workers, p.memory_mb), &run));
            assert_true((!in.fastest ? run.usd : run.seconds) <= best * 1.005);
            some++;
        }
        ru_arena_fini(&a);
    }
    assert_true(none > 3 && some > 20);
}

/* Jobs from the first measurement on: the money for measuring and the number are kept, what failed
 * is not tried again, every plan passes the checker. */
static void test_limits_hold_on_the_way(void **state)
{
    (void)state;
    for (uint32_t method = 0; method <= RU_SCALE_FIXED; method++) {
        for (uint64_t seed = 0; seed < 12; seed++) {
            ru_arena a;
            ru_arena_init(&a, 0);
            ru_scale_probe probe[8];
            ru_scale_in in = input(probe, 0);
            in.method = (ru_scale_method)method;
            in.seed = seed;
            in.limit_usd = 20;
            ru_scale_plan p = {.probe = true};
            while (p.probe) {
                ru_err err;
                assert_ok(ru_plan_scale(&in, &a, &p, &err), err);
                assert_ok(ru_plan_scale_check(&in, &p, &err), err);
                if (p.probe) {
                    assert_true(in.n_probes < 7);
                    bool failed = p.memory_mb < 1700 && p.workers <= 8;
                    for (uint32_t i = 0; i < in.n_probes; i++) {
                        assert_false(probe[i].failed && p.workers <= probe[i].workers &&
                                     p.memory_mb <= probe[i].memory_mb);
                    }
                    probe[in.n_probes++] = (ru_scale_probe){
                        p.workers, p.memory_mb, truth(seed, p.workers, p.memory_mb), failed, false};
                }
            }
            assert_true(p.probed_usd <= 2);
            ru_arena_fini(&a);
        }
    }
}

static void test_drift_is_seen_and_noise_is_not(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    double t = truth(1, 12, 1769);
    ru_scale_probe probe[] = {
        {4, 1769, truth(1, 4, 1769), false, false}, {12, 1769, t, false, false},
        {8, 3538, truth(1, 8, 3538), false, false}, {16, 1024, truth(1, 16, 1024), false, false},
        {12, 1769, 1.06 * t, false, true},          {12, 1769, 0.95 * t, false, true},
        {12, 1769, 1.06 * t, false, true},          {12, 1769, 0.95 * t, false, true}};
    ru_scale_in in = input(probe, 8);
    in.noise = 0.05;
    in.now_workers = 12;
    in.now_memory_mb = 1769;
    ru_scale_plan p;
    ru_err err;
    assert_ok(ru_plan_scale(&in, &a, &p, &err), err);
    assert_false(p.drifted);
    probe[5].step_s = probe[6].step_s = t * 1.5;
    assert_ok(ru_plan_scale(&in, &a, &p, &err), err);
    assert_false(p.drifted); /* the last one is as before */
    probe[7].step_s = t * 1.5;
    assert_ok(ru_plan_scale(&in, &a, &p, &err), err);
    assert_ok(ru_plan_scale_check(&in, &p, &err), err);
    assert_true(p.drifted);
    in.n_probes = 3;
    assert_int_equal(ru_plan_scale_check(&in, &p, &err), RU_E_INFEASIBLE);
    ru_arena_fini(&a);
}

static void refuse(const ru_scale_in *in, const ru_scale_plan *p)
{
    ru_err err;
    assert_int_equal(ru_plan_scale_check(in, p, &err), RU_E_INFEASIBLE);
}

static void test_changed_plans_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_scale_probe probe[] = {{8, 1769, truth(1, 8, 1769), false, false},
                              {12, 1769, truth(1, 12, 1769), false, false},
                              {16, 1024, 1, true, false}};
    ru_scale_in in = input(probe, 3);
    ru_scale_plan p;
    ru_err err;
    in.limit_s = 20000;
    in.limit_usd = 50;
    for (uint32_t k = 0; k < 2; k++) {
        in.probes_max = k == 0 ? 7 : 3;
        assert_ok(ru_plan_scale(&in, &a, &p, &err), err);
        assert_ok(ru_plan_scale_check(&in, &p, &err), err);
        assert_true(p.probe == (k == 0));
        for (uint32_t f = 0; f < 12; f++) {
            ru_scale_plan q = p;
            q.workers += f == 0 ? 1 : f == 1 ? 400 : 0;
            q.memory_mb *= f == 2 ? 1.01 : 1;
            q.step_s *= f == 3 ? 1.01 : 1;
            q.seconds *= f == 4 ? 1.01 : 1;
            q.usd *= f == 5 ? 1.01 : 1;
            q.met -= f == 6 ? 0.01 : 0;
            q.gain = f == 7 ? -1 : q.gain;
            q.probed_usd += f == 8 ? 0.01 : 0;
            q.drifted = f == 9;
            q.blind = f == 10;
            q.spread = f == 11 ? -1 : q.spread;
            refuse(&in, &q);
        }
        ru_scale_plan q = p;
        q.probe = !p.probe;
        if (k == 1) {
            refuse(&in, &q);
        }
        q = p;
        q.workers = 4;
        q.memory_mb = 1024; /* failed with sixteen workers */
        refuse(&in, &q);
    }
    ru_arena_fini(&a);
}

static void test_bad_facts_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_scale_probe probe[] = {{16, 3538, 1, true, false}};
    ru_scale_in in = input(probe, 1);
    ru_scale_plan p;
    ru_err err;
    assert_int_equal(ru_plan_scale(&in, &a, &p, &err), RU_E_INFEASIBLE); /* nothing is left */
    in = input(probe, 0);
    in.probes_max = 0;
    assert_int_equal(ru_plan_scale(&in, &a, &p, &err), RU_E_INFEASIBLE);
    in.workers_max = 2;
    assert_int_equal(ru_plan_scale(&in, &a, &p, &err), RU_E_ARG);
    in = input(probe, 0);
    in.n_memory = 0;
    assert_int_equal(ru_plan_scale(&in, &a, &p, &err), RU_E_ARG);
    in = input(probe, 0);
    in.workers_max = UINT32_MAX;
    in.workers_step = 1;
    assert_int_equal(ru_plan_scale(&in, &a, &p, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

/* Starts of small memory take longer, which counts for each worker: the start in force pays. */
static void test_starts_of_each_memory_count(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    const double start_s[] = {400, 4, 4};
    ru_scale_probe probe[] = {{4, 1024, 10.01, false, false}, {4, 1769, 6.5, false, true}};
    ru_scale_in in = input(probe, 2);
    ru_scale_plan p;
    ru_err err;
    in.workers_max = 4;
    in.steps = 100;
    in.limit_s = 1100;
    in.probes_max = 0;
    assert_ok(ru_plan_scale(&in, &a, &p, &err), err);
    assert_true(p.memory_mb == 1024 && fabs(p.seconds - 1012) < 5);
    in.start_s = start_s;
    in.n_start = MEMORIES;
    assert_ok(ru_plan_scale(&in, &a, &p, &err), err);
    assert_ok(ru_plan_scale_check(&in, &p, &err), err);
    assert_true(p.memory_mb == 1769 && fabs(p.seconds - 654) < 5);
    in.n_start = 2;
    assert_int_equal(ru_plan_scale(&in, &a, &p, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

/* First choices stay in the grid where its step does not divide the range. */
static void test_first_choices_are_of_any_grid(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_scale_probe none[1];
    for (uint32_t range = 0; range < 40; range++) {
        for (uint32_t step = 1; step < 45; step += 4) {
            ru_scale_in in = input(none, 0);
            in.workers_min = 1 + range % 3;
            in.workers_max = in.workers_min + range;
            in.workers_step = step;
            for (in.seed = 0; in.seed < 10; in.seed++) {
                ru_scale_plan p;
                ru_err err;
                in.fastest = in.seed % 2;
                assert_ok(ru_plan_scale(&in, &a, &p, &err), err);
                assert_ok(ru_plan_scale_check(&in, &p, &err), err);
            }
        }
    }
    ru_arena_fini(&a);
}

/* Where money counts few workers come first, but not so few that they take half of the job's time;
 * then nothing is measured that is dearer than what is known, or that hardly keeps the limit. */
static void test_measuring_is_cheap(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_scale_probe probe[2] = {{4, 1769, 0, false, false}, {12, 1769, 0, false, false}};
    ru_scale_in in = input(probe, 0);
    ru_scale_plan p;
    ru_err err;
    in.noise = 0.1;
    in.limit_s = 1e6;
    assert_ok(ru_plan_scale(&in, &a, &p, &err), err);
    assert_true(p.probe && p.blind && p.workers == 4 && p.memory_mb == 1769);
    in.steps = 25; /* ten of them with four workers are as long as 40 with all */
    assert_ok(ru_plan_scale(&in, &a, &p, &err), err);
    assert_true(p.workers == 16);
    in = input(probe, 2);
    in.memory_mb = &memories[1];
    in.n_memory = 1;
    in.noise = 0.1;
    in.limit_s = 1e6;
    in.gain_min = 0;
    in.rules.life_s = 0;               /* no rounding of lives */
    for (uint32_t k = 0; k < 2; k++) { /* as if scaling were perfect: all cost the same */
        probe[k].step_s = 10.0 / probe[k].workers;
    }
    in.now_workers = 4;
    in.now_memory_mb = 1769;
    assert_ok(ru_plan_scale(&in, &a, &p, &err), err);
    assert_true(!p.probe && p.workers == 4);
    in.limit_s = in.steps * 10 / 16 / 4; /* a quarter of what all workers should take */
    assert_int_equal(ru_plan_scale(&in, &a, &p, &err), RU_E_INFEASIBLE);
    ru_arena_fini(&a);
}

RU_TESTS(plan_scale, cmocka_unit_test(test_measuring_is_cheap),
         cmocka_unit_test(test_starts_of_each_memory_count),
         cmocka_unit_test(test_first_choices_are_of_any_grid),
         cmocka_unit_test(test_the_best_of_what_was_measured_runs),
         cmocka_unit_test(test_limits_hold_on_the_way),
         cmocka_unit_test(test_drift_is_seen_and_noise_is_not),
         cmocka_unit_test(test_changed_plans_are_refused),
         cmocka_unit_test(test_bad_facts_are_refused))
