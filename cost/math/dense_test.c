/* Dense algebra against products of random matrices, closed forms and scipy 1.17 (expm). */
#include "cost/math/dense.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

#include "test/test.h"

enum { N_MAX = 12 };

static void random_matrix(ru_rng *r, double *a, uint32_t cells)
{
    for (uint32_t i = 0; i < cells; i++) {
        a[i] = ru_rng_normal(r);
    }
}

static void lu_solves_from_both_sides(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 1);
    for (uint32_t n = 1; n <= N_MAX; n++) {
        double a[N_MAX * N_MAX], lu[N_MAX * N_MAX], x[N_MAX], b[N_MAX];
        uint32_t perm[N_MAX];
        ru_err err;
        random_matrix(&r, a, n * n);
        a[0] = 0; /* needs the exchange */
        random_matrix(&r, x, n);
        if (n == 1) {
            a[0] = 3;
        }
        memcpy(lu, a, sizeof lu);
        assert_ok(ru_dense_lu(lu, n, perm, &err), err);
        ru_dense_mul_col(a, x, n, n, b);
        ru_dense_lu_solve(lu, perm, n, b);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(fabs(b[i] - x[i]) < 1e-9);
        }
        ru_dense_row_mul(x, a, n, n, b);
        ru_dense_lu_solve_left(lu, perm, n, b);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(fabs(b[i] - x[i]) < 1e-9);
        }
    }
    double singular[4] = {1, 2, 2, 4}, bad[4] = {1, RU_NAN, 0, 1};
    uint32_t perm[2];
    assert_int_equal(ru_dense_lu(singular, 2, perm, NULL), RU_E_INFEASIBLE);
    assert_int_equal(ru_dense_lu(bad, 2, perm, NULL), RU_E_INFEASIBLE);
}

static void cholesky_factors_solves_and_grows(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 2);
    enum { N = 9, LD = N_MAX };
    double g[N * N], s[N * LD] = {0}, l[N * LD], x[N], b[N], inverse[N * N], one[N * N];
    random_matrix(&r, g, N * N);
    for (uint32_t i = 0; i < N; i++) {
        for (uint32_t j = 0; j < N; j++) {
            s[i * LD + j] = ru_dense_dot(g + i * N, g + j * N, N) + (i == j ? 0.1 : 0);
        }
    }
    memcpy(l, s, sizeof l);
    ru_err err;
    assert_ok(ru_chol(l, N, LD, &err), err);
    double det = 0, row[N];
    for (uint32_t i = 0; i < N; i++) { /* a factor that grew row by row is the same */
        memcpy(row, s + i * LD, (i + 1) * sizeof row[0]);
        assert_ok(ru_chol_append(l, i, LD, row, &err), err);
        assert_memory_equal(row, l + i * LD, (i + 1) * sizeof row[0]);
        det += 2 * log(row[i]);
        x[i] = ru_rng_normal(&r);
    }
    assert_near(ru_chol_log_det(l, N, LD), det, 1e-13);
    for (uint32_t i = 0; i < N; i++) {
        b[i] = ru_dense_dot(s + i * LD, x, N);
    }
    ru_chol_solve(l, N, LD, b);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(fabs(b[i] - x[i]) < 1e-9);
    }
    ru_chol_inverse(l, N, LD, inverse);
    for (uint32_t i = 0; i < N; i++) {
        memcpy(g + i * N, s + i * LD, N * sizeof g[0]);
    }
    ru_dense_mul(g, inverse, N, N, N, one);
    for (uint32_t i = 0; i < N * N; i++) {
        assert_true(fabs(one[i] - (i % (N + 1) == 0 ? 1 : 0)) < 1e-9);
    }
    double flat[4] = {1, 1, 1, 1};
    assert_int_equal(ru_chol(flat, 2, 2, NULL), RU_E_INFEASIBLE);
}

RU_TESTS(cost_dense, cmocka_unit_test(lu_solves_from_both_sides),
         cmocka_unit_test(cholesky_factors_solves_and_grows))
