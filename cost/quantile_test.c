/* Order statistics against brute force; quantile kinds against numpy 2.4. */
#include "cost/quantile.h"

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

/* Whole weights are copies. */
static void weighted_quantiles_count_copies(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(ru_test_seed(), 4);
    ru_err err;
    for (uint32_t round = 0; round < 200; round++) {
        double v[8], w[8], copies[64], got;
        uint32_t n = 1 + ru_rng_below(&r, 8), m = 0;
        for (uint32_t i = 0; i < n; i++) {
            v[i] = ru_rng_below(&r, 6);
            w[i] = ru_rng_below(&r, 5) + (i == 0 ? 1 : 0);
            for (uint32_t k = 0; k < (uint32_t)w[i]; k++) {
                copies[m++] = v[i];
            }
        }
        ru_sort_f64(copies, m);
        for (uint32_t k = 0; k <= 20; k++) {
            double q = k / 20.0;
            assert_ok(ru_quantile_weighted(v, w, n, q, &a, &got, &err), err);
            assert_true(got == ru_quantile_sorted(copies, m, q, RU_QUANTILE_RANK));
        }
    }
    const double v[2] = {1, 2}, zero[2] = {0, 0}, minus[2] = {1, -1};
    double out;
    assert_int_equal(ru_quantile_weighted(v, zero, 2, 0.5, &a, &out, NULL), RU_E_ARG);
    assert_int_equal(ru_quantile_weighted(v, minus, 2, 0.5, &a, &out, NULL), RU_E_ARG);
    ru_arena_fini(&a);
}

/* fit_i = max over j <= i of min over k >= i of the mean of y_j .. y_k: the other definition. */
static double max_min(const double *y, const double *w, uint32_t n, uint32_t i)
{
    double best = -(double)INFINITY;
    for (uint32_t j = 0; j <= i; j++) {
        double least = (double)INFINITY, sum = 0, weight = 0;
        for (uint32_t k = j; k < n; k++) {
            sum += w[k] * y[k];
            weight += w[k];
            least = k >= i && sum / weight < least ? sum / weight : least;
        }
        best = least > best ? least : best;
    }
    return best;
}

static void isotonic_is_the_max_min_of_means(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(ru_test_seed(), 5);
    ru_err err;
    for (uint32_t round = 0; round < 300; round++) {
        double y[10], minus[10], w[10], up[10], down[10];
        uint32_t n = ru_rng_below(&r, 11);
        for (uint32_t i = 0; i < n; i++) {
            y[i] = round % 2 == 0 ? ru_rng_normal(&r) : ru_rng_below(&r, 4);
            minus[i] = -y[i];
            w[i] = round % 3 == 0 ? 1 : ru_rng_uniform(&r, 0.1, 3);
        }
        assert_ok(ru_isotonic(y, round % 3 == 0 ? NULL : w, n, false, &a, up, &err), err);
        assert_ok(ru_isotonic(minus, w, n, true, &a, down, &err), err);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(fabs(up[i] - max_min(y, w, n, i)) < 1e-12);
            assert_true(fabs(down[i] + up[i]) < 1e-12);
        }
    }
    const double y[2] = {1, (double)INFINITY}, w[2] = {1, 0};
    double fit[2];
    assert_int_equal(ru_isotonic(y, NULL, 2, false, &a, fit, NULL), RU_E_ARG);
    assert_int_equal(ru_isotonic(w, w, 2, false, &a, fit, NULL), RU_E_ARG);
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
         cmocka_unit_test(quantiles_of_samples), cmocka_unit_test(weighted_quantiles_count_copies),
         cmocka_unit_test(isotonic_is_the_max_min_of_means),
         cmocka_unit_test(conformal_bounds_cover))
