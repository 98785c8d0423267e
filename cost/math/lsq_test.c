/* Least squares against numpy 2.4 and scipy 1.17 (lstsq, nnls, SLSQP), brute force over sets of
 * columns, and the conditions of the optimum. */
#include "cost/math/lsq.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

#include "test/test.h"

static const double a84[32] = {0.0,   0.3,   -0.27, -0.89, -0.45, -0.99, 0.06,  1.34,
                               -0.49, -0.62, 0.49,  0.36,  0.11,  -0.93, -0.03, 0.7,
                               -1.34, -0.46, -1.9,  -1.29, -1.84, -0.24, -1.27, 0.27,
                               0.16,  -0.19, -2.52, -0.54, -0.05, 0.11,  -1.53, -0.48};
static const double b8[8] = {-0.98, -0.81, 1.06, -0.81, -0.03, 0.88, -0.58, -0.11};

static void weighted_fit_and_its_covariance(void **state)
{
    (void)state;
    static const double w[8] = {1, 2, 0.5, 1, 1, 3, 1, 0.25};
    static const double x[4] = {-0.6691907020821756, 0.9831048070247106, 0.13849054870603716,
                                0.18951957866259111};
    static const double cov[4] = {0.09442802146862588, -0.002895816891309443, -0.06365713804314767,
                                  0.04315824293168512};
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_lsq_fit f;
    ru_lsq_in in = {.a = a84, .b = b8, .weight = w, .m = 8, .n = 4};
    assert_ok(ru_lsq_solve(&in, &a, &a, &f, &err), err);
    for (uint32_t j = 0; j < 4; j++) {
        assert_near(f.x[j], x[j], 1e-12);
        assert_near(f.covariance[j], cov[j], 1e-11);
        assert_near(f.covariance[4 * j], cov[j], 1e-11);
    }
    assert_near(f.squares, 2.22108205, 1e-8);
    assert_near(f.variance, f.squares / 4, 1e-15);
    assert_int_equal(f.rank, 4);
    ru_arena_fini(&a);
}

static void bounds_and_equalities(void **state)
{
    (void)state;
    static const double nnls[4] = {0.0, 0.23055473932285883, 0.048904595470691,
                                   0.08240783718988298};
    static const double c[4] = {1, 1, 1, 1}, d[1] = {1};
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_lsq_fit f;
    ru_lsq_in in = {.a = a84, .b = b8, .m = 8, .n = 4, .nonneg = true};
    assert_ok(ru_lsq_solve(&in, &a, &a, &f, &err), err);
    for (uint32_t j = 0; j < 4; j++) {
        assert_near(f.x[j], nnls[j], 1e-11);
    }
    assert_true(f.x[0] == 0 && f.covariance[0] == 0);
    assert_near(f.squares, 4.31856202576003, 1e-13);
    in.c = c;
    in.d = d;
    in.n_eq = 1;
    assert_ok(ru_lsq_solve(&in, &a, &a, &f, &err), err);
    assert_near(f.x[1], 0.6410338413889979, 1e-7); /* what SLSQP is good for */
    assert_near(f.x[3], 0.3589661586110063, 1e-7);
    assert_near(f.x[1] + f.x[3], 1, 1e-14);
    assert_near(f.squares, 4.616337540292382, 1e-13);
    /* x1 + x3 = 1 is one unknown: var(x1) = var(x3) = -cov. */
    assert_near(f.covariance[5], f.covariance[15], 1e-9);
    assert_near(f.covariance[7], -f.covariance[15], 1e-9);
    assert_int_equal(f.rank, 1);
    static const double minus[1] = {-1};
    in.d = minus;
    assert_int_equal(ru_lsq_solve(&in, &a, &a, &f, NULL), RU_E_INFEASIBLE);
    in.nonneg = false;
    assert_ok(ru_lsq_solve(&in, &a, &a, &f, &err), err);
    assert_near(f.x[0] + f.x[1] + f.x[2] + f.x[3], -1, 1e-13);
    static const double c2[8] = {1, 1, 1, 1, 2, 2, 2, 2}, d2[2] = {1, 3};
    in.c = c2;
    in.d = d2;
    in.n_eq = 2;
    assert_int_equal(ru_lsq_solve(&in, &a, &a, &f, NULL), RU_E_INFEASIBLE);
    ru_arena_fini(&a);
}

/* The best of all sets of columns whose fit keeps the bounds is the answer. */
static void bounded_fits_are_the_best_of_all_sets(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(ru_test_seed(), 9);
    ru_err err;
    enum { N = 5, M = 7 };
    for (uint32_t round = 0; round < 150; round++) {
        ru_arena_mark mark = ru_arena_mark_get(&a);
        double m[M * N], b[M], c[N], d[1];
        for (uint32_t i = 0; i < M * N; i++) {
            m[i] = ru_rng_normal(&r) * (i % N == 2 ? 1e6 : 1);
        }
        for (uint32_t i = 0; i < M; i++) {
            b[i] = ru_rng_normal(&r);
        }
        for (uint32_t j = 0; j < N; j++) {
            c[j] = ru_rng_uniform(&r, round % 3 == 2 ? -1 : 0.2, 1);
        }
        d[0] = ru_rng_f64(&r);
        bool any[N] = {round % 4 == 0};
        ru_lsq_in in = {.a = m,
                        .b = b,
                        .m = M,
                        .n = N,
                        .nonneg = true,
                        .any_sign = any,
                        .c = c,
                        .d = d,
                        .n_eq = round % 2};
        ru_lsq_fit f, g;
        assert_ok(ru_lsq_solve(&in, &a, &a, &f, &err), err);
        double best = (double)INFINITY;
        for (uint32_t set = 0; set < 1u << N; set++) {
            /* Columns outside the set: by equalities x_j = 0. */
            double e[(N + 1) * N] = {0}, zero[N + 1] = {0};
            uint32_t n_eq = 0;
            for (uint32_t j = 0; j < N; j++) {
                if ((set >> j & 1) == 0) {
                    e[n_eq++ * N + j] = 1;
                }
            }
            if (in.n_eq > 0 && n_eq < N) {
                memcpy(e + n_eq * N, c, sizeof c);
                zero[n_eq++] = d[0];
            } else if (in.n_eq > 0) {
                continue;
            }
            ru_lsq_in one = {.a = m, .b = b, .m = M, .n = N, .c = e, .d = zero, .n_eq = n_eq};
            if (ru_lsq_solve(&one, &a, &a, &g, NULL) != RU_OK) {
                continue;
            }
            bool keeps = true;
            for (uint32_t j = 0; j < N; j++) {
                keeps = keeps && (any[j] || g.x[j] >= -1e-12);
            }
            best = keeps && g.squares < best ? g.squares : best;
        }
        assert_near(f.squares, best, 1e-9);
        for (uint32_t j = 0; j < N; j++) {
            assert_true(any[j] || f.x[j] >= 0);
        }
        ru_arena_rewind(&a, mark);
    }
    ru_arena_fini(&a);
}

static void ridge_and_dependent_columns(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_lsq_fit f;
    /* One column, ridge l: x = sum ab / (sum aa + l). */
    static const double m[3] = {1, 2, 3}, b[3] = {2, 3, 7};
    ru_lsq_in in = {.a = m, .b = b, .m = 3, .n = 1, .ridge = 2};
    assert_ok(ru_lsq_solve(&in, &a, &a, &f, &err), err);
    assert_near(f.x[0], 29.0 / 16, 1e-15);
    /* The same column twice, and one of zeros: one of the three is free. */
    static const double twice[9] = {1, 1, 0, 2, 2, 0, 3, 3, 0};
    ru_lsq_in two = {.a = twice, .b = b, .m = 3, .n = 3};
    assert_ok(ru_lsq_solve(&two, &a, &a, &f, &err), err);
    assert_int_equal(f.rank, 1);
    assert_near(f.x[0] + f.x[1], 29.0 / 14, 1e-14);
    assert_true(f.x[2] == 0);
    /* With a ridge they share evenly. */
    static const double ridges[3] = {1e-6, 1e-6, 0};
    two.ridges = ridges;
    assert_ok(ru_lsq_solve(&two, &a, &a, &f, &err), err);
    assert_near(f.x[0], f.x[1], 1e-7);
    /* More columns than rows: an exact fit, variance 0. */
    ru_lsq_in wide = {.a = a84, .b = b8, .m = 2, .n = 4};
    assert_ok(ru_lsq_solve(&wide, &a, &a, &f, &err), err);
    assert_true(f.rank == 2 && f.squares < 1e-28 && f.variance == 0);
    ru_arena_fini(&a);
}

static void bad_input_is_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_lsq_fit f;
    double bad[4] = {1, RU_NAN, 1, 1}, fine[4] = {1, 2, 1, 1}, minus[2] = {1, -1};
    ru_lsq_in in = {.a = bad, .b = fine, .m = 2, .n = 2};
    assert_int_equal(ru_lsq_solve(&in, &a, &a, &f, NULL), RU_E_ARG);
    in = (ru_lsq_in){.a = fine, .b = bad, .m = 2, .n = 2};
    assert_int_equal(ru_lsq_solve(&in, &a, &a, &f, NULL), RU_E_ARG);
    in = (ru_lsq_in){.a = fine, .b = fine, .weight = minus, .m = 2, .n = 2};
    assert_int_equal(ru_lsq_solve(&in, &a, &a, &f, NULL), RU_E_ARG);
    in = (ru_lsq_in){.a = fine, .b = fine, .m = 2, .n = 2, .ridge = -1};
    assert_int_equal(ru_lsq_solve(&in, &a, &a, &f, NULL), RU_E_ARG);
    in = (ru_lsq_in){.a = fine, .b = fine, .m = 2, .n = 0};
    assert_int_equal(ru_lsq_solve(&in, &a, &a, &f, NULL), RU_E_ARG);
    /* Every size of scratch that is too small says so. */
    in = (ru_lsq_in){.a = a84, .b = b8, .m = 8, .n = 4, .nonneg = true};
    static uint8_t buf[8192];
    ru_status st = RU_E_LIMIT;
    for (int64_t size = 0; st != RU_OK; size += 8) {
        assert_true(size <= (int64_t)sizeof buf);
        ru_arena small;
        ru_arena_init_fixed(&small, buf, size);
        st = ru_lsq_solve(&in, &a, &small, &f, NULL);
        assert_true(st == RU_OK || st == RU_E_LIMIT);
        assert_int_equal(small.used_bytes, 0);
    }
    ru_arena_fini(&a);
}

RU_TESTS(cost_lsq, cmocka_unit_test(weighted_fit_and_its_covariance),
         cmocka_unit_test(bounds_and_equalities),
         cmocka_unit_test(bounded_fits_are_the_best_of_all_sets),
         cmocka_unit_test(ridge_and_dependent_columns), cmocka_unit_test(bad_input_is_refused))
