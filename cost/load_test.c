#include "cost/load.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

static void test_load_adds_work_and_bytes(void **state)
{
    (void)state;
    assert_true(ru_load_ns(6000000000, 4, 25000000, 1e8) == 1750000000);
    assert_true(ru_load_ns(0, 1, INT64_MAX, 1e-3) == (int64_t)1e18);
}

/* Costs and speeds that the times were made of come out again, when executors have moved. */
static void test_costs_and_speeds_are_told_apart(void **state)
{
    (void)state;
    enum { E = 12, W = 4, N = 480 };
    ru_load_sample s[N];
    double cost[E], speed[W], true_speed[W] = {1, 0.5, 2, 1};
    ru_rng r = ru_rng_from(3, 3);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t e = i % E, w = i / E % W;
        s[i] =
            (ru_load_sample){e, w, (1 + e) / true_speed[w] * ru_math_exp(0.02 * ru_rng_normal(&r))};
    }
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    assert_ok(ru_load_fit(s, N, E, W, &a, cost, speed, &err), err);
    double scale = speed[0]; /* cost and speed share one factor that no sample shows */
    for (uint32_t w = 0; w < W; w++) {
        assert_true(fabs(speed[w] / scale / true_speed[w] - 1) < 0.03);
    }
    for (uint32_t e = 0; e < E; e++) {
        assert_true(fabs(cost[e] / scale / (1 + e) - 1) < 0.03);
    }
    /* Each executor on one worker only: nothing tells a slow worker from dear executors. */
    assert_ok(ru_load_fit(s, W, E, W, &a, cost, speed, &err), err);
    assert_true(fabs(speed[3] - 1) < 1e-9 && fabs(cost[2] - s[2].took_s) < 1e-9);
    double mean = (s[0].took_s + s[1].took_s + s[2].took_s + s[3].took_s) / 4;
    assert_true(fabs(cost[E - 1] - mean) < 1e-9);
    s[1].took_s = RU_NAN;
    assert_int_equal(ru_load_fit(s, N, E, W, &a, cost, speed, &err), RU_E_ARG);
    s[1] = (ru_load_sample){E, 0, 1};
    assert_int_equal(ru_load_fit(s, N, E, W, &a, cost, speed, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

RU_TESTS(cost_load, cmocka_unit_test(test_load_adds_work_and_bytes),
         cmocka_unit_test(test_costs_and_speeds_are_told_apart))
