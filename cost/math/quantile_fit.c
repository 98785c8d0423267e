/* Linear quantile regression by a primal-dual interior point. See quantile.h.
 *
 *   min_x sum_i w_i max(q u_i, (q - 1) u_i), u = b - a x, x_j >= 0 for chosen j, is the dual of
 *   min_v -b v   subject to  a' v + s = (1 - q) a' w,  0 <= v <= w,  s_j >= 0 (0 where x_j is free)
 *
 * whose multipliers are -x. Each step solves n equations (Mehrotra's predictor and corrector). */
#include "cost/math/quantile.h"

#include "cost/math/dense.h"

#include <math.h>
#include <string.h>

typedef struct lp {
    uint32_t m, n, k;       /* k = m + slacks */
    const double *a;        /* [m, n] scaled */
    const double *b;        /* [m] scaled */
    const uint32_t *slack;  /* [k - m] column of each slack */
    double *z, *t, *up, *r; /* [k] v and slacks; multipliers of 0 <= z and z <= up (INFINITY) */
    double *y;              /* [n] */
    double *dz, *dt, *dr, *dy, *d, *xi, *rc1, *rc2;
    double *rd, *rp, *h; /* residuals; right side [n] */
    double *normal;      /* [n, n] */
} lp;

/* G' y at place i: a_i y, or y of a slack's column. */
static double across(const lp *l, const double *y, uint32_t i)
{
    return i < l->m ? ru_dense_dot(l->a + (size_t)i * l->n, y, l->n) : y[l->slack[i - l->m]];
}

/* into [n] += factor_i z_i over the rows of G. */
static void down(const lp *l, const double *z, const double *factor, double *into)
{
    for (uint32_t i = 0; i < l->k; i++) {
        double v = factor != NULL ? factor[i] * z[i] : z[i];
        if (i >= l->m) {
            into[l->slack[i - l->m]] += v;
            continue;
        }
        for (uint32_t j = 0; j < l->n; j++) {
            into[j] += v * l->a[(size_t)i * l->n + j];
        }
    }
}

/* Residuals of both sides; returns the mean product of the complementary pairs. */
static double residuals(lp *l)
{
    double sum = 0, pairs = 0;
    memset(l->rp, 0, l->n * sizeof *l->rp);
    down(l, l->z, NULL, l->rp);
    for (uint32_t j = 0; j < l->n; j++) {
        l->rp[j] = l->h[j] - l->rp[j];
    }
    for (uint32_t i = 0; i < l->k; i++) {
        bool bounded = !isinf(l->up[i]);
        l->rd[i] = (i < l->m ? -l->b[i] : 0) - across(l, l->y, i) - l->t[i] + l->r[i];
        sum += l->z[i] * l->t[i] + (bounded ? (l->up[i] - l->z[i]) * l->r[i] : 0);
        pairs += bounded ? 2 : 1;
        l->d[i] = 1 / (l->t[i] / l->z[i] + (bounded ? l->r[i] / (l->up[i] - l->z[i]) : 0));
    }
    return sum / pairs;
}

static ru_status factor(lp *l, ru_err *err)
{
    memset(l->normal, 0, (size_t)l->n * l->n * sizeof *l->normal);
    for (uint32_t i = 0; i < l->m; i++) {
        const double *row = l->a + (size_t)i * l->n;
        for (uint32_t j = 0; j < l->n; j++) {
            for (uint32_t c = 0; c <= j; c++) {
                l->normal[(size_t)j * l->n + c] += l->d[i] * row[j] * row[c];
            }
        }
    }
    for (uint32_t i = l->m; i < l->k; i++) {
        l->normal[(size_t)l->slack[i - l->m] * (l->n + 1)] += l->d[i];
    }
    return ru_chol(l->normal, l->n, l->n, err);
}

/* One Newton direction for the products rc1, rc2 that are asked for. */
static void direction(lp *l)
{
    memcpy(l->dy, l->rp, l->n * sizeof *l->dy);
    for (uint32_t i = 0; i < l->k; i++) {
        bool bounded = !isinf(l->up[i]);
        l->xi[i] =
            l->rc1[i] / l->z[i] - (bounded ? l->rc2[i] / (l->up[i] - l->z[i]) : 0) - l->rd[i];
        l->xi[i] = -l->xi[i];
    }
    down(l, l->xi, l->d, l->dy);
    ru_chol_solve(l->normal, l->n, l->n, l->dy);
    for (uint32_t i = 0; i < l->k; i++) {
        bool bounded = !isinf(l->up[i]);
        l->dz[i] = l->d[i] * (across(l, l->dy, i) - l->xi[i]);
        l->dt[i] = (l->rc1[i] - l->t[i] * l->dz[i]) / l->z[i];
        l->dr[i] = bounded ? (l->rc2[i] + l->r[i] * l->dz[i]) / (l->up[i] - l->z[i]) : 0;
    }
}

static double shorter(double step, double v, double dv)
{
    return dv < 0 && -v / dv < step ? -v / dv : step;
}

/* Longest steps that keep both sides positive. */
static void reach(const lp *l, double *primal, double *dual)
{
    *primal = *dual = 1 / 0.99995;
    for (uint32_t i = 0; i < l->k; i++) {
        *primal = shorter(*primal, l->z[i], l->dz[i]);
        *dual = shorter(*dual, l->t[i], l->dt[i]);
        if (!isinf(l->up[i])) {
            *primal = shorter(*primal, l->up[i] - l->z[i], -l->dz[i]);
            *dual = shorter(*dual, l->r[i], l->dr[i]);
        }
    }
}

static void step(lp *l, double mu)
{
    for (uint32_t i = 0; i < l->k; i++) {
        l->rc1[i] = -l->z[i] * l->t[i];
        l->rc2[i] = isinf(l->up[i]) ? 0 : -(l->up[i] - l->z[i]) * l->r[i];
    }
    direction(l);
    double primal, dual, sum = 0, pairs = 0;
    reach(l, &primal, &dual);
    for (uint32_t i = 0; i < l->k; i++) {
        double z = l->z[i] + primal * l->dz[i], t = l->t[i] + dual * l->dt[i];
        sum += z * t;
        pairs += 1;
        if (!isinf(l->up[i])) {
            sum += (l->up[i] - z) * (l->r[i] + dual * l->dr[i]);
            pairs += 1;
        }
    }
    double share = sum / pairs / mu, target = mu * share * share * share;
    for (uint32_t i = 0; i < l->k; i++) {
        l->rc1[i] += target - l->dz[i] * l->dt[i];
        l->rc2[i] += isinf(l->up[i]) ? 0 : target + l->dz[i] * l->dr[i];
    }
    direction(l);
    reach(l, &primal, &dual);
    for (uint32_t i = 0; i < l->k; i++) {
        l->z[i] += 0.99995 * primal * l->dz[i];
        l->t[i] += 0.99995 * dual * l->dt[i];
        l->r[i] += 0.99995 * dual * l->dr[i];
    }
    for (uint32_t j = 0; j < l->n; j++) {
        l->y[j] += 0.99995 * dual * l->dy[j];
    }
}

static double loss_at(const ru_quantile_regress_in *in, const double *x)
{
    double sum = 0;
    for (uint32_t i = 0; i < in->m; i++) {
        double u = in->b[i] - ru_dense_dot(in->a + (size_t)i * in->n, x, in->n);
        sum += (in->weight != NULL ? in->weight[i] : 1) * u * (in->q - (u < 0 ? 1 : 0));
    }
    return sum;
}

static ru_status check(const ru_quantile_regress_in *in, ru_err *err)
{
    if (in->n == 0 || in->n > 32 || in->m < in->n || !(in->q > 0 && in->q < 1)) {
        return RU_FAIL(
            err, RU_E_ARG,
            "quantile %g over %u rows of %u columns: 1 to 32 columns, at most as many as "
            "rows, a quantile between 0 and 1",
            in->q, in->m, in->n);
    }
    for (uint32_t i = 0; i < in->m; i++) {
        double w = in->weight != NULL ? in->weight[i] : 1;
        bool finite = isfinite(in->b[i]) && w >= 0 && !isinf(w);
        for (uint32_t j = 0; j < in->n; j++) {
            finite = finite && isfinite(in->a[(size_t)i * in->n + j]);
        }
        if (!finite) {
            return RU_FAIL(err, RU_E_ARG, "row %u has the value %g and the weight %g", i, in->b[i],
                           w);
        }
    }
    return RU_OK;
}

/* Rows with weight, columns and values scaled to a mean size of 1; the starting point. */
static ru_status set_up(const ru_quantile_regress_in *in, ru_arena *scratch, lp *l, double *scale,
                        double *scale_b, ru_err *err)
{
    uint32_t n = in->n, slacks = 0;
    double *a = RU_NEW(scratch, double, (int64_t)in->m *n), *b = RU_NEW(scratch, double, in->m);
    uint32_t *slack = RU_NEW(scratch, uint32_t, n);
    double *all = RU_NEW(scratch, double, 11 * ((int64_t)in->m + n) + 4 * (int64_t)n + n * n);
    if (a == NULL || b == NULL || slack == NULL || all == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no scratch memory for %u rows", in->m);
    }
    *scale_b = 0;
    for (uint32_t i = 0; i < in->m; i++) {
        *scale_b += fabs(in->b[i]) / in->m;
        for (uint32_t j = 0; j < n; j++) {
            scale[j] += fabs(in->a[(size_t)i * n + j]) / in->m;
        }
    }
    *scale_b = *scale_b > 0 ? *scale_b : 1;
    for (uint32_t j = 0; j < n; j++) {
        scale[j] = scale[j] > 0 ? scale[j] : 1;
        if (in->nonneg != NULL && in->nonneg[j]) {
            slack[slacks++] = j;
        }
    }
    *l = (lp){.n = n, .a = a, .b = b, .slack = slack};
    double **vectors[11] = {&l->z,  &l->t, &l->up, &l->r,   &l->dz, &l->dt,
                            &l->dr, &l->d, &l->xi, &l->rc1, &l->rc2};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(vectors); k++, all += in->m + n) {
        *vectors[k] = all;
    }
    l->y = all;
    l->dy = l->y + n;
    l->rp = l->dy + n;
    l->h = l->rp + n;
    l->normal = l->h + n;
    l->rd = RU_NEW(scratch, double, (int64_t)in->m + n);
    if (l->rd == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no scratch memory for %u rows", in->m);
    }
    for (uint32_t i = 0; i < in->m; i++) {
        double w = in->weight != NULL ? in->weight[i] : 1;
        if (w > 0) {
            for (uint32_t j = 0; j < n; j++) {
                double v = in->a[(size_t)i * n + j] / scale[j];
                a[(size_t)l->m * n + j] = v;
                l->h[j] += (1 - in->q) * w * v;
            }
            l->up[l->m] = w;
            l->z[l->m] = (1 - in->q) * w;
            b[l->m++] = in->b[i] / *scale_b;
        }
    }
    l->k = l->m + slacks;
    for (uint32_t i = 0; i < l->k; i++) {
        l->up[i] = i < l->m ? l->up[i] : (double)INFINITY;
        l->z[i] = i < l->m ? l->z[i] : 1;
        l->t[i] = 1 + (i < l->m && b[i] < 0 ? -b[i] : 0);
        l->r[i] = i < l->m ? 1 + (b[i] > 0 ? b[i] : 0) : 0;
    }
    return RU_OK;
}

/* Sum of w, for the size of what is left over. */
static double size_of(const lp *l)
{
    double sum = 0;
    for (uint32_t i = 0; i < l->m; i++) {
        sum += l->up[i];
    }
    return sum;
}

/* b d of the scaled problem, d = v - (1 - q) w: a lower bound of the loss. */
static double dual_value(const lp *l, double q)
{
    double sum = 0;
    for (uint32_t i = 0; i < l->m; i++) {
        sum += l->b[i] * (l->z[i] - (1 - q) * l->up[i]);
    }
    return sum;
}

ru_status ru_quantile_regress(const ru_quantile_regress_in *in, ru_arena *out, ru_arena *scratch,
                              ru_quantile_fit *fit, ru_err *err)
{
    RU_TRY(check(in, err));
    double scale[32] = {0}, scale_b = 1;
    ru_quantile_fit f = {.x = RU_NEW(out, double, in->n)};
    if (f.x == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a fit of %u columns", in->n);
    }
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    lp l;
    ru_status st = set_up(in, scratch, &l, scale, &scale_b, err);
    double size = st == RU_OK ? size_of(&l) : 0;
    for (bool done = false; st == RU_OK && !done; f.iterations++) {
        double mu = residuals(&l);
        double left = mu * (2.0 * l.m + l.n);
        done = left <= 1e-11 * size || f.iterations == 100;
        if (!done && factor(&l, NULL) != RU_OK) {
            /* Near the end the equations of a vertex are as good as singular: that is the end. */
            done = left <= 1e-7 * size;
            st = done ? RU_OK
                      : RU_FAIL(err, RU_E_INFEASIBLE,
                                "the %u columns of a quantile regression depend on each other",
                                in->n);
        }
        if (!done && st == RU_OK) {
            step(&l, mu);
        }
    }
    if (st == RU_OK) {
        for (uint32_t j = 0; j < in->n; j++) {
            f.x[j] = -l.y[j] * scale_b / scale[j];
            f.x[j] = in->nonneg != NULL && in->nonneg[j] && f.x[j] < 0 ? 0 : f.x[j];
        }
        f.loss = loss_at(in, f.x);
        f.gap = f.loss - scale_b * dual_value(&l, in->q);
        *fit = f;
    }
    ru_arena_rewind(scratch, mark);
    return st;
}
