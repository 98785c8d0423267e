/* Small dense algebra. See dense.h. */
#include "cost/dense.h"

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

/* into = c[0] I + c[1] a + ... + c[order] a^order by Horner's rule; `work` [n, n]. */
static void polynomial(const double *a, uint32_t n, const double *c, uint32_t order, double *work,
                       double *into)
{
    size_t cells = (size_t)n * n;
    memset(into, 0, cells * sizeof *into);
    for (uint32_t k = order + 1; k-- > 0;) {
        if (k < order) {
            ru_dense_mul(into, a, n, n, n, work);
            memcpy(into, work, cells * sizeof *into);
        }
        for (uint32_t i = 0; i < n; i++) {
            into[(size_t)i * n + i] += c[k];
        }
    }
}

static double largest_row_sum(const double *a, uint32_t n)
{
    double largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < n; j++) {
            sum += fabs(a[(size_t)i * n + j]);
        }
        largest = sum > largest || isnan(sum) ? sum : largest;
    }
    return largest;
}

/* `b` and `work` [n, n] each; a is scaled in place. */
static ru_status exp_scaled(double *a, uint32_t n, double *b, double *work, uint32_t *perm,
                            double *into, ru_err *err)
{
    /* The diagonal approximant of order 8: error below 1e-17 of the norm for norms up to 1/2. */
    enum { ORDER = 8 };
    double c[ORDER + 1] = {1}, d[ORDER + 1] = {1};
    for (uint32_t k = 1; k <= ORDER; k++) {
        c[k] = c[k - 1] * (double)(ORDER - k + 1) / (double)(k * (2 * ORDER - k + 1));
        d[k] = k % 2 == 0 ? c[k] : -c[k];
    }
    polynomial(a, n, d, ORDER, work, b);
    polynomial(a, n, c, ORDER, work, into);
    ru_status st = ru_dense_lu(b, n, perm, err);
    if (st != RU_OK) {
        return st;
    }
    double *column = work;
    for (uint32_t j = 0; j < n; j++) {
        for (uint32_t i = 0; i < n; i++) {
            column[i] = into[(size_t)i * n + j];
        }
        ru_dense_lu_solve(b, perm, n, column);
        for (uint32_t i = 0; i < n; i++) {
            into[(size_t)i * n + j] = column[i];
        }
    }
    return RU_OK;
}

ru_status ru_dense_exp(const double *a, uint32_t n, double t, ru_arena *scratch, double *into,
                       ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    int64_t cells = (int64_t)n * n;
    double *scaled = RU_NEW(scratch, double, cells), *b = RU_NEW(scratch, double, cells);
    double *work = RU_NEW(scratch, double, cells);
    uint32_t *perm = RU_NEW(scratch, uint32_t, n);
    ru_status st = RU_OK;
    double norm = largest_row_sum(a, n) * fabs(t);
    if (scaled == NULL || b == NULL || work == NULL || perm == NULL) {
        st = RU_FAIL(err, RU_E_LIMIT, "the exponential of a matrix of %u rows does not fit", n);
    } else if (!(norm <= 1e9)) {
        st = RU_FAIL(err, RU_E_ARG, "a matrix of norm %g has no exponential here, at most 1e9",
                     norm);
    }
    uint32_t squarings = 0;
    for (double left = norm; st == RU_OK && left > 0.5; left *= 0.5) {
        squarings++;
    }
    for (int64_t i = 0; st == RU_OK && i < cells; i++) {
        scaled[i] = a[i] * ldexp(t, -(int)squarings);
    }
    if (st == RU_OK) {
        st = exp_scaled(scaled, n, b, work, perm, into, err);
    }
    for (uint32_t k = 0; st == RU_OK && k < squarings; k++) {
        ru_dense_mul(into, into, n, n, n, work);
        memcpy(into, work, (size_t)cells * sizeof *into);
    }
    ru_arena_rewind(scratch, mark);
    return st;
}
