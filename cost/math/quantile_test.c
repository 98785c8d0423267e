/* Order statistics against brute force; quantile kinds against numpy 2.4. */
#include "cost/math/quantile.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

#include "test/test.h"

static void sorting_orders_and_is_stable(void **state)
{
    (void)state;
    enum { N = 257 };
    double v[N], sorted[N];
    uint32_t order[N], seen[N];
    ru_rng r = ru_rng_from(ru_test_seed(), 3);
    for (uint32_t n = 0; n <= N; n += n < 9 ? 1 : 31) {
        memset(seen, 0, sizeof seen);
        for (uint32_t i = 0; i < n; i++) {
            v[i] = sorted[i] = ru_rng_below(&r, 20);
        }
        ru_sort_f64(sorted, n);
        ru_sort_order_f64(v, order, n);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(v[order[i]] == sorted[i]);
            seen[order[i]]++;
            if (i > 0) {
                assert_true(sorted[i - 1] < sorted[i] ||
                            (sorted[i - 1] == sorted[i] && order[i - 1] < order[i]));
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(seen[i], 1);
        }
    }
}

static void a_place_needs_no_sort(void **state)
{
    (void)state;
    enum { N = 300 };
    double v[N], sorted[N];
    ru_rng r = ru_rng_from(ru_test_seed(), 4);
    for (uint32_t turn = 0; turn < 2000; turn++) {
        uint32_t n = 1 + ru_rng_below(&r, turn % 2 == 0 ? 8 : N),
                 values = 1 + ru_rng_below(&r, 500);
        double q = turn % 5 == 0 ? 0.25 * ru_rng_below(&r, 5) : 1e-3 * ru_rng_below(&r, 1001);
        for (uint32_t i = 0; i < n; i++) {
            v[i] = sorted[i] = ru_rng_below(&r, values);
        }
        ru_sort_f64(sorted, n);
        for (ru_quantile_kind k = RU_QUANTILE_LINEAR; k <= RU_QUANTILE_RANK; k++) {
            assert_true(ru_quantile_select(v, n, q, k) == ru_quantile_sorted(sorted, n, q, k));
        }
    }
}

static void quantiles_of_samples(void **state)
{
    (void)state;
    static const double v[7] = {3.5, -1, 8, 2, 2, 11, 0.5};
    /* numpy.quantile(v, q, method=linear, lower, higher, inverted_cdf) */
    static const double rows[][5] = {
        {0, -1, -1, -1, -1},
        {0.1, -0.09999999999999998, -1, 0.5, -1},
        {0.5, 2, 2, 2, 2},
        {0.95, 10.099999999999998, 8, 11, 11},
        {0.7, 4.399999999999999, 3.5, 8, 3.5},
        {1, 11, 11, 11, 11},
    };
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        for (ru_quantile_kind k = RU_QUANTILE_LINEAR; k <= RU_QUANTILE_RANK; k++) {
            double got;
            assert_ok(ru_quantile(v, 7, rows[i][0], k, &a, &got, &err), err);
            assert_near(got, rows[i][k + 1], 1e-14);
        }
    }
    double out = 7;
    const double bad[2] = {1, RU_NAN};
    assert_int_equal(ru_quantile(v, 0, 0.5, RU_QUANTILE_LINEAR, &a, &out, NULL), RU_E_ARG);
    assert_int_equal(ru_quantile(v, 7, 1.5, RU_QUANTILE_LINEAR, &a, &out, NULL), RU_E_ARG);
    assert_int_equal(ru_quantile(bad, 2, 0.5, RU_QUANTILE_LINEAR, &a, &out, NULL), RU_E_ARG);
    assert_true(out == 7);
    ru_arena_fini(&a);
}

static void conformal_bounds_cover(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    static const double scores[9] = {5, 1, 9, 2, 8, 3, 7, 4, 6};
    double got;
    assert_ok(ru_conformal(scores, 9, 0.1, &a, &got, &err), err);
    assert_true(got == 9); /* ceil(10 * 0.9) */
    assert_ok(ru_conformal(scores, 9, 0.35, &a, &got, &err), err);
    assert_true(got == 7);
    assert_ok(ru_conformal(scores, 9, 0.05, &a, &got, &err), err);
    assert_true(isinf(got));
    /* Exactly (rank)/(n+1) of exchangeable scores are covered; 4,000 draws are within 4 deviations.
     */
    ru_rng r = ru_rng_from(ru_test_seed(), 6);
    uint32_t covered = 0;
    enum { ROUNDS = 4000, N = 39 };
    for (uint32_t k = 0; k < ROUNDS; k++) {
        double s[N];
        for (uint32_t i = 0; i < N; i++) {
            s[i] = ru_rng_exponential(&r);
        }
        assert_ok(ru_conformal(s, N, 0.1, &a, &got, &err), err);
        covered += ru_rng_exponential(&r) <= got;
    }
    assert_true(fabs((double)covered / ROUNDS - 0.9) < 4 * sqrt(0.09 / ROUNDS));
    /* Online: the share of misses comes to the goal whatever the scores do. */
    double level = 0.1;
    uint32_t missed = 0;
    for (uint32_t k = 0; k < ROUNDS; k++) {
        bool miss = ru_rng_f64(&r) < (k % 1000 < 500 ? 0.3 : 1.2) * level;
        missed += miss;
        level = ru_conformal_next(level, 0.1, miss, 0.02);
        assert_true(level > 0 && level < 1);
    }
    assert_true(fabs((double)missed / ROUNDS - 0.1) < 0.03);
    ru_arena_fini(&a);
}

RU_TESTS(cost_quantile, cmocka_unit_test(sorting_orders_and_is_stable),
         cmocka_unit_test(a_place_needs_no_sort), cmocka_unit_test(quantiles_of_samples),
         cmocka_unit_test(conformal_bounds_cover))
