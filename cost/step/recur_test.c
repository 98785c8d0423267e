/* Times that come again: drawn with a known law, by hand. */
#include "cost/step/recur.h"
#include "test/test.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

/* Median error over the last half of n times. */
static double follow(int64_t (*model)(uint32_t k), int64_t (*took)(uint32_t k, ru_rng *r),
                     uint32_t n)
{
    enum { MAX = 400 };
    ru_recur c = {0};
    ru_rng r = ru_rng_from(ru_test_seed(), 6);
    double off[MAX], least = INFINITY;
    uint32_t m = 0;
    for (uint32_t k = 0; k < n; k++) {
        int64_t said = ru_recur_ns(&c, model(k)), is = took(k, &r);
        if (k >= n / 2) {
            off[m++] = fabs((double)(said - is)) / (double)is;
        }
        ru_recur_add(&c, model(k), is);
    }
    for (uint32_t i = 0; i < m; i++) { /* the one with half of them below */
        uint32_t below = 0;
        for (uint32_t k = 0; k < m; k++) {
            below += off[k] <= off[i];
        }
        least = 2 * below >= m && off[i] < least ? off[i] : least;
    }
    return least;
}

static int64_t by_turns(uint32_t k)
{
    return k % 2 == 0 ? 100000 : 900000;
}

static int64_t nobody(uint32_t k)
{
    (void)k;
    return 0;
}

static int64_t half_more(uint32_t k, ru_rng *r)
{
    return (int64_t)(1.5 * (double)by_turns(k) * (0.95 + 0.1 * ru_rng_f64(r)));
}

static int64_t steady(uint32_t k, ru_rng *r)
{
    bool late = ru_rng_below(r, 20) == 0; /* a wake-up */
    return (int64_t)(300000 * (0.95 + 0.1 * ru_rng_f64(r))) + (late ? 5000000 : 0) + (int64_t)k % 2;
}

/* A model that is wrong by a factor is scaled, one that says nothing is left aside. */
static void test_scales_or_remembers(void **state)
{
    (void)state;
    assert_true(follow(by_turns, half_more, 200) < 0.04);
    assert_true(follow(by_turns, steady, 400) < 0.06);
    assert_true(follow(nobody, steady, 400) < 0.06);
    assert_true(follow(nobody, half_more, 200) > 0.3); /* nobody can */
}

/* A model that was compared once does not pass for one that is always right. */
static void test_one_ratio_is_not_enough(void **state)
{
    (void)state;
    ru_recur c = {0};
    ru_recur_add(&c, 1000, 500000);
    assert_in_range(ru_recur_ns(&c, 2000), 999000, 1001000); /* nor are times alone */
    for (uint32_t k = 0; k < 6; k++) {
        ru_recur_add(&c, 0, 100000 + k % 2);
    }
    assert_in_range(ru_recur_ns(&c, 2000), 99900, 100100);
}

static void test_edges(void **state)
{
    (void)state;
    ru_recur c = {0};
    assert_int_equal(ru_recur_ns(&c, 0), 0);
    assert_int_equal(ru_recur_ns(&c, 77), 77);
    ru_recur_add(&c, 0, INT64_MAX);
    assert_true(ru_recur_ns(&c, 0) == INT64_C(1) << 62);
    c = (ru_recur){0};
    ru_recur_add(&c, INT64_MAX, 1);
    assert_true(ru_recur_ns(&c, 5) >= 1);
    c = (ru_recur){0};
    ru_recur_add(&c, 1, INT64_MAX);
    ru_recur_add(&c, 1, INT64_MAX);
    assert_true(ru_recur_ns(&c, INT64_MAX) > 0);
}

RU_TESTS(cost_recur, cmocka_unit_test(test_scales_or_remembers),
         cmocka_unit_test(test_one_ratio_is_not_enough), cmocka_unit_test(test_edges))
