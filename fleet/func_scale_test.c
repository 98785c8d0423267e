/* Whole jobs whose step times follow a law with noise: limits are kept, measurements are steps of
 * the job, what ran out of memory is not chosen again, a budget that does not suffice is said. */
#include "fleet/func_scale.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

static const ru_func_scale_options grid = {.workers_min = 1,
                                           .workers_max = 8,
                                           .memory_min_mb = 512,
                                           .memory_max_mb = 3584,
                                           .memory_step_mb = 512,
                                           .life_ns = INT64_C(900000000000),
                                           .usd_per_gb_s = 1.66667e-5,
                                           .usd_per_call = 2e-7};

typedef struct job {
    int64_t steps, done, probed;
    double s, usd, least_mb;
    uint32_t failed;
    ru_rng rng;
} job;

/* 2 s of one core, shared; an exchange that grows with the workers. */
static double step_s(double workers, double memory_mb)
{
    return 2 / (workers * fmin(memory_mb / 1769, 1)) + 0.01 * workers;
}

static ru_status run(job *j, const ru_func_scale_options *o, ru_err *err)
{
    ru_func_scale s;
    ru_arena a;
    ru_func_choice c;
    ru_status st = ru_func_scale_init(&s, o, (ru_time){0}, err);
    ru_arena_init(&a, 0);
    while (st == RU_OK && j->done < j->steps) {
        ru_time now = {(int64_t)(j->s * 1e9)};
        st = ru_func_scale_next(&s, j->done, j->steps - j->done, j->usd, now, &a, &c, err);
        if (st != RU_OK) {
            break;
        }
        assert_true(c.workers >= 1 && c.workers <= 8 && c.end > j->done && c.end <= j->steps);
        if (c.memory_mb < j->least_mb) {
            j->s += 1;
            j->failed++;
            ru_func_scale_failed(&s);
            continue;
        }
        double mean = step_s(c.workers, c.memory_mb) * (1 + 0.05 * ru_rng_normal(&j->rng));
        double took = 1 + mean * (double)(c.end - j->done);
        j->probed += s.plan.probe ? c.end - j->done : 0;
        j->s += took;
        j->usd += c.workers * (c.memory_mb / 1024.0 * took * o->usd_per_gb_s + o->usd_per_call);
        j->done = c.end;
        ru_func_scale_measured(&s, mean, 1);
    }
    ru_arena_fini(&a);
    return st;
}

static void test_limits(void **state)
{
    ru_func_scale_options o = grid;
    ru_err err;
    (void)state;
    for (uint32_t k = 0; k < 10; k++) {
        job j = {.steps = 2000, .least_mb = 600, .rng = ru_rng_from(ru_test_seed(), k)};
        o.deadline_ns = INT64_C(1500000000000); /* 1 worker takes 4,000 s, 8 take 660 */
        o.budget_usd = 0;
        assert_ok(run(&j, &o, &err), err);
        assert_true(j.s <= 1500);
        assert_true(j.probed > 0 && j.probed <= 200);
        assert_true(j.failed <= 8); /* each number of workers fails at most once */
        double usd = j.usd;
        o.deadline_ns = 0;
        o.budget_usd = 2 * usd;
        job fast = {.steps = 2000, .rng = ru_rng_from(ru_test_seed(), 100 + k)};
        assert_ok(run(&fast, &o, &err), err);
        assert_true(fast.usd <= o.budget_usd && fast.s < 1100);
    }
}

static void test_too_little(void **state)
{
    ru_func_scale_options o = grid;
    ru_err err;
    job j = {.steps = 2000, .rng = ru_rng_from(1, 0)};
    (void)state;
    o.budget_usd = 1e-3;
    assert_int_equal(run(&j, &o, &err), RU_E_INFEASIBLE);
    o.budget_usd = 0;
    o.deadline_ns = INT64_C(10000000000);
    j.usd = 0;
    assert_ok(run(&j, &o, &err), err); /* late, but whole */
    assert_int_equal(j.done, 2000);
}

RU_TESTS(fleet_func_scale, cmocka_unit_test(test_limits), cmocka_unit_test(test_too_little))
