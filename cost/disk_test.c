/* The model of storage against a queue in closed form and against what it was made from. */
#include "cost/disk.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

static void test_limits_by_hand(void **state)
{
    (void)state;
    /* 5 ms, 100 MB/s of one request, 50 MB/s in all, 200 requests/s. */
    const ru_disk d = {
        .latency_s = 0.005, .byte_s = 1e-8, .shared_byte_s = 2e-8, .shared_request_s = 0.005};
    assert_true(fabs(ru_disk_request_s(&d, 1000000, 1) - 0.02) < 1e-12);
    assert_true(fabs(ru_disk_rate(&d, 1000000, 4) - 5e7) < 1e-3);
    assert_true(fabs(ru_disk_rate(&d, 1000, 64) - 2e5) < 1e-6); /* 200 requests/s */
    assert_true(fabs(ru_disk_knee(&d, 100000) - 0.006 / 0.005) < 1e-12);
    const ru_disk endless = {.latency_s = 0.005};
    assert_true(ru_disk_knee(&endless, 1) == 1e9);
    assert_true(fabs(ru_disk_rate(&endless, 1000, 10) - 2e6) < 1e-6);
}

/* Samples of a known model, 2 % of noise: the fit predicts unseen points within 5 %. */
static void test_a_fit_predicts_unseen_points(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(11, 1);
    for (uint32_t round = 0; round < 200; round++) {
        ru_disk truth = {.latency_s = ru_rng_uniform(&r, 1e-4, 2e-2),
                         .byte_s = ru_rng_uniform(&r, 1e-10, 1e-9),
                         .shared_byte_s = ru_rng_uniform(&r, 2e-9, 2e-8)};
        if (round % 2 == 1) {
            truth.shared_request_s = ru_rng_uniform(&r, 1e-3, 5e-3);
        }
        ru_disk_sample s[12];
        for (uint32_t i = 0; i < RU_ARRAY_LEN(s); i++) {
            static const uint32_t depths[] = {1, 2, 64, 16};
            int64_t size = INT64_C(65536) << (2 * (i / 4));
            double noise = 1 + 0.02 * ru_rng_uniform(&r, -1, 1);
            s[i] = (ru_disk_sample){size, depths[i % 4],
                                    noise * ru_disk_rate(&truth, size, depths[i % 4])};
        }
        ru_disk fit;
        ru_err err;
        assert_ok(ru_disk_fit(s, RU_ARRAY_LEN(s), &a, &fit, &err), err);
        assert_true(fit.error < 0.05);
        for (uint32_t depth = 1; depth <= 256; depth *= 4) {
            double want = ru_disk_rate(&truth, 262144, depth);
            assert_true(fabs(ru_disk_rate(&fit, 262144, depth) / want - 1) < 0.15);
        }
    }
    ru_arena_fini(&a);
}

static void test_bad_samples_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_disk d;
    ru_err err;
    assert_int_equal(ru_disk_fit(NULL, 0, &a, &d, &err), RU_E_ARG);
    ru_disk_sample s = {0, 1, 1};
    assert_int_equal(ru_disk_fit(&s, 1, &a, &d, &err), RU_E_ARG);
    s = (ru_disk_sample){1, 0, 1};
    assert_int_equal(ru_disk_fit(&s, 1, &a, &d, &err), RU_E_ARG);
    s = (ru_disk_sample){1, 1, -1};
    assert_int_equal(ru_disk_fit(&s, 1, &a, &d, &err), RU_E_ARG);
    s = (ru_disk_sample){1, 1, RU_NAN};
    assert_int_equal(ru_disk_fit(&s, 1, &a, &d, &err), RU_E_ARG);
    s = (ru_disk_sample){1048576, 1, 1e6};
    assert_ok(ru_disk_fit(&s, 1, &a, &d, &err), err);
    assert_true(fabs(ru_disk_rate(&d, 1048576, 1) - 1e6) < 1);
    ru_arena_fini(&a);
}

RU_TESTS(cost_disk, cmocka_unit_test(test_limits_by_hand),
         cmocka_unit_test(test_a_fit_predicts_unseen_points),
         cmocka_unit_test(test_bad_samples_are_refused))
