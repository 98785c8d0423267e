/* Small dense algebra. See dense.h. */
#include "cost/math/dense.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

void ru_dense_mul(const double *a, const double *b, uint32_t m, uint32_t k, uint32_t n,
                  double *into)
{
    for (uint32_t i = 0; i < m; i++) {
        double *row = into + (size_t)i * n;
        memset(row, 0, (size_t)n * sizeof *row);
        for (uint32_t l = 0; l < k; l++) {
            double v = a[(size_t)i * k + l];
            const double *other = b + (size_t)l * n;
            for (uint32_t j = 0; j < n; j++) {
                row[j] += v * other[j];
            }
        }
    }
}

void ru_dense_row_mul(const double *x, const double *a, uint32_t m, uint32_t n, double *y)
{
    ru_dense_mul(x, a, 1, m, n, y);
}

void ru_dense_mul_col(const double *a, const double *x, uint32_t m, uint32_t n, double *y)
{
    for (uint32_t i = 0; i < m; i++) {
        y[i] = ru_dense_dot(a + (size_t)i * n, x, n);
    }
}

double ru_dense_dot(const double *a, const double *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void swap_rows(double *a, uint32_t n, uint32_t i, uint32_t k)
{
    for (uint32_t j = 0; i != k && j < n; j++) {
        double v = a[(size_t)i * n + j];
        a[(size_t)i * n + j] = a[(size_t)k * n + j];
        a[(size_t)k * n + j] = v;
    }
}

ru_status ru_dense_lu(double *a, uint32_t n, uint32_t *perm, ru_err *err)
{
    double largest = 0;
    for (uint32_t i = 0; i < n * n; i++) {
        largest = fabs(a[i]) > largest ? fabs(a[i]) : largest;
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t best = k;
        for (uint32_t i = k + 1; i < n; i++) {
            best = fabs(a[(size_t)i * n + k]) > fabs(a[(size_t)best * n + k]) ? i : best;
        }
        double pivot = a[(size_t)best * n + k];
        /* Written so that NaN fails as well. */
        if (!(fabs(pivot) > largest * 1e-15) || !isfinite(largest)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "a matrix of %u rows is singular at row %u", n, k);
        }
        perm[k] = best;
        swap_rows(a, n, k, best);
        for (uint32_t i = k + 1; i < n; i++) {
            double f = a[(size_t)i * n + k] / pivot;
            a[(size_t)i * n + k] = f;
            for (uint32_t j = k + 1; j < n; j++) {
                a[(size_t)i * n + j] -= f * a[(size_t)k * n + j];
            }
        }
    }
    return RU_OK;
}

static void swap(double *b, uint32_t i, uint32_t k)
{
    double v = b[i];
    b[i] = b[k];
    b[k] = v;
}

void ru_dense_lu_solve(const double *lu, const uint32_t *perm, uint32_t n, double *b)
{
    for (uint32_t i = 0; i < n; i++) {
        swap(b, i, perm[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        b[i] -= ru_dense_dot(lu + (size_t)i * n, b, i);
    }
    for (uint32_t i = n; i-- > 0;) {
        double sum = b[i];
        for (uint32_t j = i + 1; j < n; j++) {
            sum -= lu[(size_t)i * n + j] * b[j];
        }
        b[i] = sum / lu[(size_t)i * n + i];
    }
}

void ru_dense_lu_solve_left(const double *lu, const uint32_t *perm, uint32_t n, double *b)
{
    for (uint32_t j = 0; j < n; j++) {
        for (uint32_t i = 0; i < j; i++) {
            b[j] -= b[i] * lu[(size_t)i * n + j];
        }
        b[j] /= lu[(size_t)j * n + j];
    }
    for (uint32_t j = n; j-- > 0;) {
        for (uint32_t i = j + 1; i < n; i++) {
            b[j] -= b[i] * lu[(size_t)i * n + j];
        }
    }
    for (uint32_t i = n; i-- > 0;) {
        swap(b, i, perm[i]);
    }
}

ru_status ru_chol(double *a, uint32_t n, uint32_t ld, ru_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        ru_status st = ru_chol_append(a, i, ld, a + (size_t)i * ld, err);
        if (st != RU_OK) {
            return st;
        }
    }
    return RU_OK;
}

ru_status ru_chol_append(const double *l, uint32_t n, uint32_t ld, double *row, ru_err *err)
{
    double diagonal = row[n], left = diagonal;
    for (uint32_t j = 0; j < n; j++) {
        const double *other = l + (size_t)j * ld;
        row[j] = (row[j] - ru_dense_dot(row, other, j)) / other[j];
        left -= row[j] * row[j];
    }
    /* What rounding leaves of a diagonal that depends on the rows above is about n times 1e-16. */
    if (!(left > diagonal * 1e-15) || !isfinite(left)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "a symmetric matrix is not positive definite at row %u", n);
    }
    row[n] = sqrt(left);
    return RU_OK;
}

void ru_chol_forward(const double *l, uint32_t n, uint32_t ld, double *b)
{
    for (uint32_t i = 0; i < n; i++) {
        const double *row = l + (size_t)i * ld;
        b[i] = (b[i] - ru_dense_dot(row, b, i)) / row[i];
    }
}

void ru_chol_backward(const double *l, uint32_t n, uint32_t ld, double *b)
{
    for (uint32_t i = n; i-- > 0;) {
        const double *row = l + (size_t)i * ld;
        b[i] /= row[i];
        for (uint32_t j = 0; j < i; j++) {
            b[j] -= row[j] * b[i];
        }
    }
}

void ru_chol_solve(const double *l, uint32_t n, uint32_t ld, double *b)
{
    ru_chol_forward(l, n, ld, b);
    ru_chol_backward(l, n, ld, b);
}

double ru_chol_log_det(const double *l, uint32_t n, uint32_t ld)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += ru_math_log(l[(size_t)i * ld + i]);
    }
    return 2 * sum;
}

void ru_chol_inverse(const double *l, uint32_t n, uint32_t ld, double *into)
{
    for (uint32_t j = 0; j < n; j++) {
        double *column = into + (size_t)j * n; /* symmetric: the row is the column */
        memset(column, 0, (size_t)n * sizeof *column);
        column[j] = 1;
        ru_chol_solve(l, n, ld, column);
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < i; j++) {
            double v = 0.5 * (into[(size_t)i * n + j] + into[(size_t)j * n + i]);
            into[(size_t)i * n + j] = into[(size_t)j * n + i] = v;
        }
    }
}
