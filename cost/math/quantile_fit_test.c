/* Quantile regression against all lines through as many points as it has columns: one of them is
 * optimal. */
#include "cost/math/quantile.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

enum { M = 14 };

static double loss(double a[M][2], const double *b, const double *w, double q, double x0, double x1)
{
    double sum = 0;
    for (uint32_t i = 0; i < M; i++) {
        double u = b[i] - a[i][0] * x0 - a[i][1] * x1;
        sum += w[i] * u * (q - (u < 0 ? 1 : 0));
    }
    return sum;
}

/* Least loss over vertices: two rows exact, or one row and x_j = 0, or both 0. */
static double brute(double a[M][2], const double *b, const double *w, double q, bool nonneg)
{
    double best = nonneg ? loss(a, b, w, q, 0, 0) : (double)INFINITY;
    for (uint32_t i = 0; i < M; i++) {
        for (uint32_t j = 0; j < i + (nonneg ? 3 : 1); j++) {
            double p0 = a[i][0], p1 = a[i][1], r0 = 0, r1 = 0, rb = 0;
            if (j < i) {
                r0 = a[j][0];
                r1 = a[j][1];
                rb = b[j];
            } else if (j > i) {
                *(j == i + 1 ? &r0 : &r1) = 1;
            }
            double det = p0 * r1 - p1 * r0;
            if (fabs(det) < 1e-12) {
                continue;
            }
            double x0 = (b[i] * r1 - p1 * rb) / det, x1 = (p0 * rb - b[i] * r0) / det;
            if (!nonneg || (x0 >= -1e-12 && x1 >= -1e-12)) {
                double v = loss(a, b, w, q, x0, x1);
                best = v < best ? v : best;
            }
        }
    }
    return best;
}

static void fits_are_the_best_of_all_vertices(void **state)
{
    (void)state;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_rng r = ru_rng_from(ru_test_seed(), 15);
    ru_err err;
    for (uint32_t round = 0; round < 150; round++) {
        double a[M][2], b[M], w[M], q = ru_rng_uniform(&r, 0.05, 0.98);
        bool nonneg[2] = {round % 3 == 2, round % 3 == 2};
        for (uint32_t i = 0; i < M; i++) {
            a[i][0] = 1;
            a[i][1] = ru_rng_normal(&r) * (round % 5 == 0 ? 1e4 : 1);
            b[i] = ru_rng_normal(&r) + 0.7 * a[i][1];
            w[i] = round % 2 == 0 ? 1 : ru_rng_below(&r, 4) * 0.5;
        }
        ru_quantile_regress_in in = {
            .a = &a[0][0], .b = b, .weight = w, .m = M, .n = 2, .q = q, .nonneg = nonneg};
        ru_quantile_fit f;
        assert_ok(ru_quantile_regress(&in, &arena, &arena, &f, &err), err);
        double best = brute(a, b, w, q, nonneg[0]);
        assert_true(f.loss >= best * (1 - 1e-12) && f.loss <= best * (1 + 1e-7) + 1e-9);
        assert_true(fabs(f.gap) <= 1e-6 * (1 + best) && f.iterations < 60);
        assert_true(!nonneg[0] || (f.x[0] >= 0 && f.x[1] >= 0));
        assert_near(loss(a, b, w, q, f.x[0], f.x[1]), f.loss, 1e-12);
    }
    ru_arena_fini(&arena);
}

/* One column of ones: the sample quantile. */
static void a_constant_is_the_sample_quantile(void **state)
{
    (void)state;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_rng r = ru_rng_from(ru_test_seed(), 16);
    ru_err err;
    enum { N = 1001 };
    static double ones[N], b[N];
    for (uint32_t i = 0; i < N; i++) {
        ones[i] = 1;
        b[i] = ru_rng_exponential(&r);
    }
    ru_quantile_regress_in in = {.a = ones, .b = b, .m = N, .n = 1, .q = 0.95};
    ru_quantile_fit f;
    assert_ok(ru_quantile_regress(&in, &arena, &arena, &f, &err), err);
    double want;
    assert_ok(ru_quantile(b, N, 0.95, RU_QUANTILE_RANK, &arena, &want, &err), err);
    assert_near(f.x[0], want, 1e-6);
    in.q = 1;
    assert_int_equal(ru_quantile_regress(&in, &arena, &arena, &f, NULL), RU_E_ARG);
    in = (ru_quantile_regress_in){.a = ones, .b = b, .m = 10, .n = 2, .q = 0.5}; /* dependent */
    assert_int_equal(ru_quantile_regress(&in, &arena, &arena, &f, NULL), RU_E_INFEASIBLE);
    b[3] = RU_NAN;
    in = (ru_quantile_regress_in){.a = ones, .b = b, .m = 10, .n = 1, .q = 0.5};
    assert_int_equal(ru_quantile_regress(&in, &arena, &arena, &f, NULL), RU_E_ARG);
    ru_arena_fini(&arena);
}

RU_TESTS(cost_quantile_fit, cmocka_unit_test(fits_are_the_best_of_all_vertices),
         cmocka_unit_test(a_constant_is_the_sample_quantile))
