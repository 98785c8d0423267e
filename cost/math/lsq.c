/* Linear least squares. See lsq.h.
 *
 * The rows are weighted, the ridge appended, the columns scaled to length 1, and all of it reduced
 * once to a triangle of n + 1 rows: every set of columns that the bounds ask for is then solved on
 * that triangle alone. */
#include "cost/math/lsq.h"

#include "cost/math/dense.h"

#include <math.h>
#include <string.h>

/* Below this length (of 1) what is left of a column counts as a sum of the others. */
static const double dependent = 1e-11;

typedef struct system {
    uint32_t n, k, q;
    double *r;     /* [k, n + 1] triangle; last column: of b */
    double *c, *d; /* [q, n], [q] rows of length 1 */
    double *scale; /* [n] x_j = z_j / scale_j */
    bool *bound;   /* [n] x_j >= 0 */
    bool *in;      /* [n] columns of the set that may differ from 0 */
    double *z;     /* [n] its solution */
    /* Of the solution, for covariance: p columns, `basis` of them eliminated by the equalities. */
    uint32_t p, basis, rank;
    uint32_t *cols;         /* [p] the eliminated ones first */
    uint32_t *perm;         /* [p - basis] order of the others in s */
    uint32_t *moved;        /* [n] scratch */
    double *t, *td;         /* [q, p], [q] */
    double *s, *rhs;        /* [k, p - basis], [k] */
    double *work, *work_eq; /* [n + 1], [n, q + 1] */
} system;

/* Make column k of a [m, n] zero below the diagonal; `length`: of that column from row k on. */
static void reflect(double *a, uint32_t m, uint32_t n, uint32_t k, double length, double *b,
                    double *work)
{
    double head = a[(size_t)k * n + k], alpha = head > 0 ? -length : length;
    double norm2 = length * length - head * alpha; /* v'v / 2, v = column - alpha e */
    if (!(norm2 > 0)) {
        return;
    }
    a[(size_t)k * n + k] = head - alpha;
    memset(work, 0, n * sizeof *work);
    double dot_b = 0;
    for (uint32_t i = k; i < m; i++) {
        double v = a[(size_t)i * n + k];
        for (uint32_t j = k + 1; j < n; j++) {
            work[j] += v * a[(size_t)i * n + j];
        }
        dot_b += b != NULL ? v * b[i] : 0;
    }
    for (uint32_t i = k; i < m; i++) {
        double v = a[(size_t)i * n + k] / norm2;
        for (uint32_t j = k + 1; j < n; j++) {
            a[(size_t)i * n + j] -= v * work[j];
        }
        if (b != NULL) {
            b[i] -= v * dot_b;
        }
        a[(size_t)i * n + k] = 0;
    }
    a[(size_t)k * n + k] = alpha;
}

/* Householder QR of a [m, n] in place, rotating b [m] along (NULL: none). `perm` [n] NULL: without
 * column exchange. Returns the rank. `work` [n]. */
static uint32_t qr(double *a, uint32_t m, uint32_t n, double *b, uint32_t *perm, double *work)
{
    for (uint32_t j = 0; perm != NULL && j < n; j++) {
        perm[j] = j;
    }
    uint32_t k = 0;
    for (; k < n && k < m; k++) {
        memset(work, 0, n * sizeof *work);
        for (uint32_t i = k; i < m; i++) {
            for (uint32_t j = k; j < n; j++) {
                work[j] += a[(size_t)i * n + j] * a[(size_t)i * n + j];
            }
        }
        uint32_t best = k;
        for (uint32_t j = k; perm != NULL && j < n; j++) {
            best = work[j] > work[best] ? j : best;
        }
        double length = sqrt(work[best]);
        if (perm != NULL && length <= dependent) {
            break;
        }
        if (best != k) {
            uint32_t place = perm[k];
            perm[k] = perm[best];
            perm[best] = place;
            for (uint32_t i = 0; i < m; i++) {
                double v = a[(size_t)i * n + k];
                a[(size_t)i * n + k] = a[(size_t)i * n + best];
                a[(size_t)i * n + best] = v;
            }
        }
        reflect(a, m, n, k, length, b, work);
    }
    return k;
}

/* Solve the leading rank x rank triangle of a [., n] in place of b. */
static void back_substitute(const double *a, uint32_t n, uint32_t rank, double *b, uint32_t stride)
{
    for (uint32_t i = rank; i-- > 0;) {
        double sum = b[(size_t)i * stride];
        for (uint32_t j = i + 1; j < rank; j++) {
            sum -= a[(size_t)i * n + j] * b[(size_t)j * stride];
        }
        b[(size_t)i * stride] = sum / a[(size_t)i * n + i];
    }
}

/* Eliminate as many columns of the set as the equalities determine; false when they contradict. */
static bool eliminate(system *l)
{
    double size = 0;
    for (uint32_t i = 0; i < l->q; i++) {
        for (uint32_t j = 0; j < l->p; j++) {
            l->t[(size_t)i * l->p + j] = l->c[(size_t)i * l->n + l->cols[j]];
        }
        l->td[i] = l->d[i];
        size += fabs(l->d[i]);
    }
    l->basis = qr(l->t, l->q, l->p, l->td, l->perm, l->work);
    for (uint32_t i = l->basis; i < l->q; i++) {
        if (fabs(l->td[i]) > 1e-9 * size) {
            return false;
        }
    }
    for (uint32_t j = 0; j < l->p; j++) {
        l->moved[j] = l->cols[l->perm[j]];
    }
    memcpy(l->cols, l->moved, l->p * sizeof *l->cols);
    for (uint32_t j = l->basis; j < l->p; j++) {
        back_substitute(l->t, l->p, l->basis, l->t + j, l->p);
    }
    back_substitute(l->t, l->p, l->basis, l->td, 1);
    return true;
}

/* Least squares over the columns that are `in`, under the equalities; false: none. */
static bool solve_set(system *l)
{
    l->p = l->basis = 0;
    for (uint32_t j = 0; j < l->n; j++) {
        l->z[j] = 0;
        if (l->in[j]) {
            l->cols[l->p++] = j;
        }
    }
    if (l->q > 0 && !eliminate(l)) {
        return false;
    }
    uint32_t free_n = l->p - l->basis, ld = l->n + 1;
    for (uint32_t i = 0; i < l->k; i++) {
        const double *row = l->r + (size_t)i * ld;
        l->rhs[i] = row[l->n];
        for (uint32_t b = 0; b < l->basis; b++) {
            l->rhs[i] -= row[l->cols[b]] * l->td[b];
        }
        for (uint32_t j = 0; j < free_n; j++) {
            double v = row[l->cols[l->basis + j]];
            for (uint32_t b = 0; b < l->basis; b++) {
                v -= row[l->cols[b]] * l->t[(size_t)b * l->p + l->basis + j];
            }
            l->s[(size_t)i * free_n + j] = v;
        }
    }
    l->rank = qr(l->s, l->k, free_n, l->rhs, l->perm, l->work);
    back_substitute(l->s, free_n, l->rank, l->rhs, 1);
    for (uint32_t b = 0; b < l->basis; b++) {
        double v = l->td[b];
        for (uint32_t i = 0; i < l->rank; i++) {
            v -= l->t[(size_t)b * l->p + l->basis + l->perm[i]] * l->rhs[i];
        }
        l->z[l->cols[b]] = v;
    }
    for (uint32_t i = 0; i < l->rank; i++) {
        l->z[l->cols[l->basis + l->perm[i]]] = l->rhs[i];
    }
    return true;
}

/* Into w [n]: how fast the squares (halved) fall as z_j rises, the equalities kept by their
 * multipliers. */
static void slopes(system *l, const double *z, double *w)
{
    uint32_t ld = l->n + 1, q = l->q;
    memset(w, 0, l->n * sizeof *w);
    for (uint32_t i = 0; i < l->k; i++) {
        const double *row = l->r + (size_t)i * ld;
        double left = row[l->n] - ru_dense_dot(row, z, l->n);
        for (uint32_t j = 0; j < l->n; j++) {
            w[j] += row[j] * left;
        }
    }
    if (q == 0 || l->p == 0) {
        return;
    }
    /* Multipliers: c_p' u = w_p over the set, as least squares (the two agree at its solution). */
    double *a = l->work_eq, *b = a + (size_t)l->p * q, *u = l->td;
    for (uint32_t i = 0; i < l->p; i++) {
        for (uint32_t j = 0; j < q; j++) {
            a[(size_t)i * q + j] = l->c[(size_t)j * l->n + l->cols[i]];
        }
        b[i] = w[l->cols[i]];
    }
    uint32_t rank = qr(a, l->p, q, b, l->perm, l->work);
    back_substitute(a, q, rank, b, 1);
    memset(u, 0, q * sizeof *u);
    for (uint32_t i = 0; i < rank; i++) {
        u[l->perm[i]] = b[i];
    }
    for (uint32_t i = 0; i < q; i++) {
        for (uint32_t j = 0; j < l->n; j++) {
            w[j] -= u[i] * l->c[(size_t)i * l->n + j];
        }
    }
}

/* Go from x towards the set's solution until a bound stops it; drop what stands there. True when
 * nothing did. */
static bool advance(system *l, double *x)
{
    double step = 1, size = 0;
    for (uint32_t j = 0; j < l->n; j++) {
        size = fabs(l->z[j]) > size ? fabs(l->z[j]) : size;
    }
    double tiny = 1e-14 * size;
    for (uint32_t j = 0; j < l->n; j++) {
        if (l->in[j] && l->bound[j] && l->z[j] < -tiny) {
            double reach = x[j] / (x[j] - l->z[j]);
            step = reach < step ? reach : step;
        }
    }
    for (uint32_t j = 0; j < l->n; j++) {
        x[j] += step * (l->z[j] - x[j]);
        if (l->in[j] && l->bound[j] && step < 1 && l->z[j] < -tiny && x[j] <= tiny) {
            l->in[j] = false;
        }
        x[j] = !l->in[j] || (l->bound[j] && x[j] < 0) ? 0 : x[j];
    }
    return step >= 1;
}

/* Lawson and Hanson's method from the feasible x, whose support is in the set. */
static ru_status active_set(system *l, double *x, double *w, ru_err *err)
{
    double size = 0;
    for (uint32_t i = 0; i < l->k; i++) {
        double v = l->r[(size_t)i * (l->n + 1) + l->n];
        size += v * v;
    }
    bool *tried = (bool *)(w + l->n);
    uint32_t entered = UINT32_MAX, rank_before = 0;
    memset(tried, 0, l->n * sizeof *tried);
    for (uint32_t turns = 20 * (l->n + 10); turns > 0; turns--) {
        if (!solve_set(l)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "the equalities contradict each other");
        }
        /* A column that gains nothing by its own slope is left alone until others have moved,
         * unless it adds to what the equalities determine. */
        if (entered != UINT32_MAX && l->z[entered] <= 0 && l->basis <= rank_before) {
            l->in[entered] = false;
            tried[entered] = true;
        } else {
            if (entered != UINT32_MAX) {
                memset(tried, 0, l->n * sizeof *tried);
            }
            if (!advance(l, x)) {
                entered = UINT32_MAX;
                continue;
            }
        }
        if (!solve_set(l)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "the equalities contradict each other");
        }
        slopes(l, x, w);
        entered = UINT32_MAX;
        double best = 1e-11 * sqrt(size);
        for (uint32_t j = 0; j < l->n; j++) {
            if (!l->in[j] && !tried[j] && w[j] > best) {
                best = w[j];
                entered = j;
            }
        }
        if (entered == UINT32_MAX) {
            memcpy(l->z, x, l->n * sizeof *x);
            return RU_OK;
        }
        rank_before = l->basis;
        l->in[entered] = true;
    }
    return RU_FAIL(err, RU_E_LIMIT, "least squares with bounds did not settle over %u columns",
                   l->n);
}

static ru_status check(const ru_lsq_in *in, ru_err *err)
{
    if (in->n == 0 || in->n > 4096 || in->n_eq > in->n) {
        return RU_FAIL(err, RU_E_ARG, "least squares over %u columns with %u equalities", in->n,
                       in->n_eq);
    }
    if (!(in->ridge >= 0) || isinf(in->ridge)) {
        return RU_FAIL(err, RU_E_ARG, "a ridge of %g, not 0 or more", in->ridge);
    }
    for (uint32_t j = 0; in->ridges != NULL && j < in->n; j++) {
        if (!(in->ridges[j] >= 0) || isinf(in->ridges[j])) {
            return RU_FAIL(err, RU_E_ARG, "column %u has a ridge of %g", j, in->ridges[j]);
        }
    }
    for (uint32_t i = 0; i < in->m; i++) {
        double w = in->weight != NULL ? in->weight[i] : 1;
        if (!(w >= 0) || isinf(w) || !isfinite(in->b[i])) {
            return RU_FAIL(err, RU_E_ARG, "row %u has the value %g and the weight %g", i, in->b[i],
                           w);
        }
    }
    for (uint64_t i = 0; i < (uint64_t)in->m * in->n; i++) {
        if (!isfinite(in->a[i])) {
            return RU_FAIL(err, RU_E_ARG, "row %u, column %u is %g", (uint32_t)(i / in->n),
                           (uint32_t)(i % in->n), in->a[i]);
        }
    }
    for (uint64_t i = 0; i < (uint64_t)in->n_eq * in->n; i++) {
        if (!isfinite(in->c[i]) || !isfinite(in->d[i / in->n])) {
            return RU_FAIL(err, RU_E_ARG, "equality %u is not finite", (uint32_t)(i / in->n));
        }
    }
    return RU_OK;
}

static bool allocate(const ru_lsq_in *in, ru_arena *a, system *l)
{
    uint32_t n = in->n, q = in->n_eq;
    *l = (system){.n = n, .k = n + 1, .q = q};
    l->r = RU_NEW(a, double, (int64_t)(n + 1) * (n + 1));
    l->c = RU_NEW(a, double, (int64_t)q *n);
    l->d = RU_NEW(a, double, q);
    l->scale = RU_NEW(a, double, n);
    l->bound = RU_NEW(a, bool, n);
    l->in = RU_NEW(a, bool, n);
    l->z = RU_NEW(a, double, n);
    l->cols = RU_NEW(a, uint32_t, n);
    l->perm = RU_NEW(a, uint32_t, n);
    l->moved = RU_NEW(a, uint32_t, n);
    l->t = RU_NEW(a, double, (int64_t)q *n);
    l->td = RU_NEW(a, double, q);
    l->s = RU_NEW(a, double, (int64_t)(n + 1) * n);
    l->rhs = RU_NEW(a, double, n + 1);
    l->work = RU_NEW(a, double, n + 1);
    l->work_eq = RU_NEW(a, double, (int64_t)n *(q + 1));
    return l->work_eq != NULL && l->work != NULL && l->s != NULL && l->t != NULL && l->r != NULL &&
           l->c != NULL && l->d != NULL && l->scale != NULL && l->bound != NULL && l->in != NULL &&
           l->z != NULL && l->cols != NULL && l->perm != NULL && l->moved != NULL &&
           l->td != NULL && l->rhs != NULL;
}

/* Weighted rows and the ridge, scaled and reduced to the triangle l->r. `rows` [m + n, n + 1]. */
static void reduce(const ru_lsq_in *in, system *l, double *rows)
{
    uint32_t n = in->n, ld = n + 1, m = in->m + n;
    for (uint32_t i = 0; i < in->m; i++) {
        double w = in->weight != NULL ? sqrt(in->weight[i]) : 1;
        for (uint32_t j = 0; j < n; j++) {
            rows[(size_t)i * ld + j] = w * in->a[(size_t)i * n + j];
        }
        rows[(size_t)i * ld + n] = w * in->b[i];
    }
    for (uint32_t j = 0; j < n; j++) {
        double ridge = in->ridges != NULL ? in->ridges[j] : in->ridge;
        rows[(size_t)(in->m + j) * ld + j] = sqrt(ridge);
        double sum = 0;
        for (uint32_t i = 0; i < m; i++) {
            sum += rows[(size_t)i * ld + j] * rows[(size_t)i * ld + j];
        }
        l->scale[j] = sum > 0 ? sqrt(sum) : 1;
        for (uint32_t i = 0; i < m; i++) {
            rows[(size_t)i * ld + j] /= l->scale[j];
        }
    }
    qr(rows, m, ld, NULL, NULL, l->work);
    memcpy(l->r, rows, (size_t)(m < ld ? m : ld) * ld * sizeof *rows);
    for (uint32_t i = 0; i < in->n_eq; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < n; j++) {
            double v = in->c[(size_t)i * n + j] / l->scale[j];
            l->c[(size_t)i * n + j] = v;
            sum += v * v;
        }
        double length = sum > 0 ? sqrt(sum) : 1;
        for (uint32_t j = 0; j < n; j++) {
            l->c[(size_t)i * n + j] /= length;
        }
        l->d[i] = in->d[i] / length;
    }
}

/* A feasible point of c z = d, z >= 0 by least squares over the equalities themselves. */
static ru_status feasible(const system *l, ru_arena *scratch, double *x, ru_err *err)
{
    bool *any = RU_NEW(scratch, bool, l->n);
    if (any == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no scratch memory for the bounds of %u columns", l->n);
    }
    for (uint32_t j = 0; j < l->n; j++) {
        any[j] = !l->bound[j];
    }
    ru_lsq_in in = {.a = l->c, .b = l->d, .m = l->q, .n = l->n, .nonneg = true, .any_sign = any};
    ru_lsq_fit fit;
    RU_TRY(ru_lsq_solve(&in, scratch, scratch, &fit, err));
    double size = 0;
    for (uint32_t i = 0; i < l->q; i++) {
        size += fabs(l->d[i]);
    }
    for (uint32_t i = 0; i < l->q; i++) {
        if (fabs(fit.residual[i]) > 1e-9 * size) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "no x >= 0 keeps the %u equalities", l->q);
        }
    }
    memcpy(x, fit.x, l->n * sizeof *x);
    return RU_OK;
}

static ru_status solve(const ru_lsq_in *in, system *l, ru_arena *scratch, ru_err *err)
{
    bool bounds = false;
    for (uint32_t j = 0; j < l->n; j++) {
        l->bound[j] = in->nonneg && (in->any_sign == NULL || !in->any_sign[j]);
        l->in[j] = !l->bound[j];
        bounds = bounds || l->bound[j];
    }
    if (!bounds) {
        return solve_set(l) ? RU_OK
                            : RU_FAIL(err, RU_E_INFEASIBLE, "the equalities contradict each other");
    }
    double *x = RU_NEW(scratch, double, l->n), *w = RU_NEW(scratch, double, 2 * (int64_t)l->n);
    if (x == NULL || w == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no scratch memory for the bounds of %u columns", l->n);
    }
    if (l->q > 0) {
        RU_TRY(feasible(l, scratch, x, err));
    }
    for (uint32_t j = 0; j < l->n; j++) {
        l->in[j] = l->in[j] || x[j] > 0;
    }
    return active_set(l, x, w, err);
}

/* variance (m u) (m u)' with u the inverse triangle and m the map to all columns of the set. */
static ru_status covariance(system *l, ru_arena *scratch, ru_lsq_fit *fit, ru_err *err)
{
    uint32_t free_n = l->p - l->basis, rank = l->rank;
    double *u = RU_NEW(scratch, double, (int64_t)rank *rank);
    double *all = RU_NEW(scratch, double, (int64_t)l->n *rank);
    if (u == NULL || all == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no scratch memory for a covariance of %u columns", l->n);
    }
    for (uint32_t i = 0; i < rank; i++) {
        u[(size_t)i * rank + i] = 1;
    }
    for (uint32_t j = 0; j < rank; j++) {
        back_substitute(l->s, free_n, rank, u + j, rank);
    }
    for (uint32_t i = 0; i < rank; i++) {
        double *row = all + (size_t)l->cols[l->basis + l->perm[i]] * rank;
        memcpy(row, u + (size_t)i * rank, rank * sizeof *row);
        for (uint32_t b = 0; b < l->basis; b++) {
            double *other = all + (size_t)l->cols[b] * rank;
            double v = l->t[(size_t)b * l->p + l->basis + l->perm[i]];
            for (uint32_t j = 0; j < rank; j++) {
                other[j] -= v * row[j];
            }
        }
    }
    for (uint32_t i = 0; i < l->n; i++) {
        for (uint32_t j = 0; j < l->n; j++) {
            double v = ru_dense_dot(all + (size_t)i * rank, all + (size_t)j * rank, rank);
            fit->covariance[(size_t)i * l->n + j] = fit->variance * v / (l->scale[i] * l->scale[j]);
        }
    }
    return RU_OK;
}

static void fill(const ru_lsq_in *in, const system *l, ru_lsq_fit *fit)
{
    uint32_t counted = 0;
    for (uint32_t j = 0; j < in->n; j++) {
        fit->x[j] = l->z[j] / l->scale[j];
    }
    for (uint32_t i = 0; i < in->m; i++) {
        double w = in->weight != NULL ? in->weight[i] : 1;
        fit->residual[i] = in->b[i] - ru_dense_dot(in->a + (size_t)i * in->n, fit->x, in->n);
        fit->squares += w * fit->residual[i] * fit->residual[i];
        counted += w > 0;
    }
    fit->rank = l->rank;
    fit->variance = counted > l->rank ? fit->squares / (counted - l->rank) : 0;
}

ru_status ru_lsq_solve(const ru_lsq_in *in, ru_arena *out, ru_arena *scratch, ru_lsq_fit *fit,
                       ru_err *err)
{
    RU_TRY(check(in, err));
    ru_lsq_fit f = {.n = in->n, .m = in->m};
    f.x = RU_NEW(out, double, in->n);
    f.residual = RU_NEW(out, double, in->m);
    f.covariance = RU_NEW(out, double, (int64_t)in->n * in->n);
    if (f.x == NULL || f.residual == NULL || f.covariance == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a fit of %u columns", in->n);
    }
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    system l;
    double *rows = RU_NEW(scratch, double, ((int64_t)in->m + in->n) * (in->n + 1));
    ru_status st = RU_OK;
    if (rows == NULL || !allocate(in, scratch, &l)) {
        st = RU_FAIL(err, RU_E_LIMIT, "no scratch memory for %u rows of %u columns", in->m, in->n);
    }
    if (st == RU_OK) {
        reduce(in, &l, rows);
        st = solve(in, &l, scratch, err);
    }
    if (st == RU_OK) {
        fill(in, &l, &f);
        st = covariance(&l, scratch, &f, err);
    }
    ru_arena_rewind(scratch, mark);
    if (st == RU_OK) {
        *fit = f;
    }
    return st;
}
