#include "cost/progress.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

enum { N = 8, CLOCKS = 6 };

static void test_lasting_differences_are_told_from_accidents(void **state)
{
    (void)state;
    double took[CLOCKS * N], next[N];
    ru_rng r = ru_rng_from(1, 1);
    for (uint32_t i = 0; i < CLOCKS * N; i++) {
        took[i] = i % N == 3 ? 2 : 1; /* exact */
    }
    assert_true(fabs(ru_progress_next(took, CLOCKS, N, next) - 1) < 1e-9);
    assert_true(fabs(next[3] - 2) < 1e-9 && fabs(next[0] - 1) < 1e-9);
    /* Of one clock nothing can be said but the level. */
    assert_true(ru_progress_next(took, 1, N, next) == 0);
    assert_true(fabs(next[3] - next[0]) < 1e-12);
    /* One that was never slower than 3 s is not predicted to be, whatever the level of all. */
    for (uint32_t i = 0; i < CLOCKS * N; i++) {
        took[i] = i < (CLOCKS - 1) * N ? 3 : i % N == 0 ? 3 : 1e-9;
    }
    (void)ru_progress_next(took, CLOCKS, N, next);
    for (uint32_t w = 0; w < N; w++) {
        assert_true(next[w] >= 1e-9 && next[w] <= 3);
    }
    double lasts = 0;
    for (uint32_t k = 0; k < 50; k++) {
        for (uint32_t i = 0; i < CLOCKS * N; i++) {
            took[i] = ru_math_exp(0.3 * ru_rng_normal(&r));
        }
        lasts += ru_progress_next(took, CLOCKS, N, next) / 50;
        for (uint32_t w = 0; w < N; w++) {
            assert_true(next[w] > 0.3 && next[w] < 3);
        }
    }
    assert_true(lasts < 0.35);
    for (uint32_t i = 0; i < CLOCKS * N; i++) {
        took[i] = 1; /* equal workers: no division by nothing */
    }
    assert_true(ru_progress_next(took, CLOCKS, N, next) == 0 && fabs(next[5] - 1) < 1e-12);
}

/* By hand: two workers that are slow in turn. */
static void test_barriers_staleness_and_ideal(void **state)
{
    (void)state;
    const double took[] = {1, 3, 3, 1, 1, 3, 3, 1};
    double s;
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    assert_ok(ru_progress_bounded(took, 4, 2, 0, 0, &a, &s, &err), err);
    assert_true(s == 12);
    /* Slack 1: worker 0 ends its clocks at 1, 4, 5, 8; clock 2 begins after the other's first, 3.
     */
    assert_ok(ru_progress_bounded(took, 4, 2, 1, 0, &a, &s, &err), err);
    assert_true(s == 8);
    /* One of two is left out: a clock takes 1 s, half of the work counts. */
    assert_ok(ru_progress_bounded(took, 4, 2, 0, 1, &a, &s, &err), err);
    assert_true(s == 8);
    assert_true(fabs(ru_progress_ideal(took, 4, 2) - 4 * 2 / (1 + 1.0 / 3)) < 1e-12);
    ru_arena_fini(&a);
}

RU_TESTS(cost_progress, cmocka_unit_test(test_lasting_differences_are_told_from_accidents),
         cmocka_unit_test(test_barriers_staleness_and_ideal))
