/* Gaussian process. See gp.h. */
#include "cost/math/gp.h"

#include "base/rng.h"
#include "cost/math/dense.h"
#include "cost/math/minimize.h"
#include "cost/math/norm.h"

#include <math.h>
#include <string.h>

enum { PARAMS_MAX = RU_GP_DIMS_MAX + 2 };

static const double length_default = 0.5, noise_default = 1e-6;

/* 5 |(x - z) / length|^2 */
static double distance2(const double *x, const double *z, const double *length, uint32_t dims)
{
    double sum = 0;
    for (uint32_t d = 0; d < dims; d++) {
        double v = (x[d] - z[d]) / length[d];
        sum += v * v;
    }
    return 5 * sum;
}

static double kernel(const ru_gp *gp, const double *x, const double *z)
{
    double a2 = distance2(x, z, gp->length, gp->dims), a = sqrt(a2);
    return gp->signal * (1 + a + a2 / 3) * ru_num_exp(-a);
}

ru_status ru_gp_init(ru_gp *gp, uint32_t dims, uint32_t n_max, ru_arena *arena, ru_err *err)
{
    if (dims == 0 || dims > RU_GP_DIMS_MAX || n_max == 0 || n_max > RU_GP_POINTS_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "a Gaussian process of %u dimensions (1 to %d) and %u points (1 to %d)",
                       dims, RU_GP_DIMS_MAX, n_max, RU_GP_POINTS_MAX);
    }
    ru_gp g = {.n_max = n_max, .dims = dims, .scale = 1, .signal = 1, .noise = noise_default};
    g.x = RU_NEW(arena, double, (int64_t)n_max *dims);
    g.y = RU_NEW(arena, double, n_max);
    g.coef = RU_NEW(arena, double, n_max);
    g.chol = RU_NEW(arena, double, (int64_t)n_max *n_max);
    if (g.x == NULL || g.y == NULL || g.coef == NULL || g.chol == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a Gaussian process of %u points", n_max);
    }
    for (uint32_t d = 0; d < dims; d++) {
        g.length[d] = length_default;
    }
    *gp = g;
    return RU_OK;
}

/* Coefficients and likelihood from the factor that stands. */
static void solve(ru_gp *gp)
{
    double fit = 0;
    for (uint32_t i = 0; i < gp->n; i++) {
        gp->coef[i] = (gp->y[i] - gp->mean) / gp->scale;
    }
    ru_chol_forward(gp->chol, gp->n, gp->n_max, gp->coef);
    fit = ru_dense_dot(gp->coef, gp->coef, gp->n);
    ru_chol_backward(gp->chol, gp->n, gp->n_max, gp->coef);
    gp->likelihood = -0.5 * (fit + ru_chol_log_det(gp->chol, gp->n, gp->n_max) +
                             gp->n * 1.83787706640934548356); /* log 2 pi */
}

/* Row `i` of the factor, of points before it. */
static ru_status factor_row(ru_gp *gp, uint32_t i, ru_err *err)
{
    double *row = gp->chol + (size_t)i * gp->n_max;
    const double *x = gp->x + (size_t)i * gp->dims;
    for (uint32_t j = 0; j < i; j++) {
        row[j] = kernel(gp, x, gp->x + (size_t)j * gp->dims);
    }
    row[i] = gp->signal + gp->noise;
    return ru_chol_append(gp->chol, i, gp->n_max, row, err);
}

static ru_status factor(ru_gp *gp, ru_err *err)
{
    for (uint32_t i = 0; i < gp->n; i++) {
        RU_TRY(factor_row(gp, i, err));
    }
    solve(gp);
    return RU_OK;
}

ru_status ru_gp_add(ru_gp *gp, const double *x, double y, ru_err *err)
{
    bool finite = isfinite(y);
    for (uint32_t d = 0; d < gp->dims; d++) {
        finite = finite && isfinite(x[d]);
    }
    if (!finite) {
        return RU_FAIL(err, RU_E_ARG, "a measurement of %g at a point from %g on", y, x[0]);
    }
    if (gp->n == gp->n_max) {
        return RU_FAIL(err, RU_E_LIMIT, "a Gaussian process holds %u points already", gp->n);
    }
    memcpy(gp->x + (size_t)gp->n * gp->dims, x, gp->dims * sizeof *x);
    gp->y[gp->n] = y;
    RU_TRY(factor_row(gp, gp->n, err));
    gp->n++;
    solve(gp);
    return RU_OK;
}

ru_status ru_gp_set(ru_gp *gp, const double *lengths, double signal, double noise, ru_err *err)
{
    bool fits = signal > 0 && noise > 0 && isfinite(signal) && isfinite(noise);
    for (uint32_t d = 0; d < gp->dims; d++) {
        fits = fits && lengths[d] > 0 && isfinite(lengths[d]);
    }
    if (!fits) {
        return RU_FAIL(err, RU_E_ARG,
                       "a Gaussian process with signal %g, noise %g and lengths from %g on: all "
                       "must be above 0",
                       signal, noise, lengths[0]);
    }
    memcpy(gp->length, lengths, gp->dims * sizeof *lengths);
    gp->signal = signal;
    gp->noise = noise;
    return factor(gp, err);
}

typedef struct likelihood {
    ru_gp *gp;       /* its hyperparameters, factor and coefficients are overwritten */
    double *inverse; /* [n, n] */
    bool fit_noise, flat;
} likelihood;

/* Parameters: logarithms of the lengths, of the signal, of the noise where it is fitted. */
static void take(likelihood *l, const double *p)
{
    for (uint32_t d = 0; d < l->gp->dims; d++) {
        l->gp->length[d] = ru_num_exp(p[d]);
    }
    l->gp->signal = ru_num_exp(p[l->gp->dims]);
    if (l->fit_noise) {
        l->gp->noise = ru_num_exp(p[l->gp->dims + 1]);
    }
}

/* Weak normal priors on the logarithms: few points say little of the lengths. */
static double prior(const likelihood *l, const double *p, double *grad)
{
    double sum = 0;
    for (uint32_t k = 0; !l->flat && k < l->gp->dims + 2; k++) {
        bool is_length = k < l->gp->dims, is_noise = k == l->gp->dims + 1;
        if (is_noise && !l->fit_noise) {
            break;
        }
        /* Median and deviation: lengths 0.5 and e, signal 1 and e, noise 1e-4 and e^3. */
        double middle = is_length ? -0.69314718 : is_noise ? -9.21034037 : 0;
        double width = is_noise ? 3 : 1, z = (p[k] - middle) / width;
        sum += 0.5 * z * z;
        grad[k] += z / width;
    }
    return sum;
}

/* Adds -1/2 tr((coef coef' - K^-1) dK) to the gradient for one pair of points. */
static void add_pair(const likelihood *l, uint32_t i, uint32_t j, double *grad)
{
    const ru_gp *gp = l->gp;
    const double *x = gp->x + (size_t)i * gp->dims, *z = gp->x + (size_t)j * gp->dims;
    double w = gp->coef[i] * gp->coef[j] - l->inverse[(size_t)i * gp->n + j];
    w *= i == j ? -0.5 : -1;
    double a2 = distance2(x, z, gp->length, gp->dims), a = sqrt(a2), e = ru_num_exp(-a);
    for (uint32_t d = 0; d < gp->dims; d++) {
        double v = (x[d] - z[d]) / gp->length[d];
        grad[d] += w * gp->signal * (1 + a) * e * 5 * v * v / 3;
    }
    grad[gp->dims] += w * gp->signal * (1 + a + a2 / 3) * e;
    if (i == j && l->fit_noise) {
        grad[gp->dims + 1] += w * gp->noise;
    }
}

static double minus_likelihood(void *self, const double *p, double *grad)
{
    likelihood *l = self;
    double unused[PARAMS_MAX];
    double *g = grad != NULL ? grad : unused;
    memset(g, 0, (l->gp->dims + (l->fit_noise ? 2 : 1)) * sizeof *g);
    take(l, p);
    if (factor(l->gp, NULL) != RU_OK) {
        return (double)INFINITY;
    }
    double value = prior(l, p, g) - l->gp->likelihood;
    if (grad != NULL) {
        ru_chol_inverse(l->gp->chol, l->gp->n, l->gp->n_max, l->inverse);
        for (uint32_t i = 0; i < l->gp->n; i++) {
            for (uint32_t j = 0; j <= i; j++) {
                add_pair(l, i, j, grad);
            }
        }
    }
    return value;
}

static void standardise(ru_gp *gp)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < gp->n; i++) {
        sum += gp->y[i];
    }
    gp->mean = sum / gp->n;
    for (uint32_t i = 0; i < gp->n; i++) {
        squares += (gp->y[i] - gp->mean) * (gp->y[i] - gp->mean);
    }
    gp->scale = squares > 0 ? sqrt(squares / gp->n) : 1;
}

/* Start `k`: the defaults first, then random ones. */
static void begin(const ru_gp *gp, ru_rng *r, uint32_t k, double noise_min, double *p)
{
    for (uint32_t d = 0; d < gp->dims; d++) {
        p[d] = k == 0 ? ru_num_log(length_default) : ru_rng_uniform(r, -2.5, 1);
    }
    p[gp->dims] = k == 0 ? 0 : ru_rng_uniform(r, -1, 1);
    double least = ru_num_log(noise_min);
    p[gp->dims + 1] = k == 0 ? least + 3 : ru_rng_uniform(r, least, -1);
}

ru_status ru_gp_fit(ru_gp *gp, const ru_gp_fit_options *opt, ru_arena *scratch, ru_err *err)
{
    double noise_min = opt->noise_min > 0 ? opt->noise_min : noise_default;
    if (gp->n == 0 || !(opt->noise >= 0) || !(noise_min < 0.1)) {
        return RU_FAIL(err, RU_E_ARG, "a fit to %u points with noise %g, at least %g", gp->n,
                       opt->noise, noise_min);
    }
    double low[PARAMS_MAX], high[PARAMS_MAX], p[PARAMS_MAX], best[PARAMS_MAX];
    double lengths[RU_GP_DIMS_MAX], best_value = (double)INFINITY;
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    likelihood l = {gp, RU_NEW(scratch, double, (int64_t)gp->n * gp->n), !(opt->noise > 0),
                    opt->flat_prior};
    if (l.inverse == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no scratch memory for a fit to %u points", gp->n);
    }
    uint32_t n = gp->dims + (l.fit_noise ? 2 : 1);
    for (uint32_t k = 0; k < gp->dims + 2; k++) {
        bool is_length = k < gp->dims, is_noise = k == gp->dims + 1;
        low[k] = ru_num_log(is_length ? 0.01 : is_noise ? noise_min : 1e-3);
        high[k] = ru_num_log(is_length ? 100 : is_noise ? 1 : 1e3);
    }
    standardise(gp);
    gp->noise = opt->noise > 0 ? opt->noise : noise_min;
    ru_rng r = ru_rng_from(opt->seed, ru_rng_label("gp fit"));
    bool flat = true;
    for (uint32_t i = 1; i < gp->n; i++) {
        flat = flat && gp->y[i] == gp->y[0];
    }
    ru_status st = RU_OK;
    uint32_t starts = gp->n < 3 || flat ? 0 : opt->starts > 0 ? opt->starts : 4;
    for (uint32_t k = 0; k < starts && st == RU_OK; k++) {
        begin(gp, &r, k, noise_min, p);
        ru_minimize_in in = {.fn = minus_likelihood,
                             .self = &l,
                             .has_grad = true,
                             .n = n,
                             .start = p,
                             .low = low,
                             .high = high,
                             .calls_max = opt->calls_max > 0 ? opt->calls_max : 60,
                             .grad_tol = 1e-6,
                             .step_tol = 1e-9};
        ru_minimum m;
        st = ru_minimize(&in, scratch, &m, err);
        if (st == RU_OK && m.value < best_value) {
            best_value = m.value;
            memcpy(best, m.x, n * sizeof *best);
        }
    }
    ru_arena_rewind(scratch, mark);
    RU_TRY(st);
    if (starts > 0) {
        take(&l, best);
        return factor(gp, err);
    }
    for (uint32_t d = 0; d < gp->dims; d++) {
        lengths[d] = length_default;
    }
    return ru_gp_set(gp, lengths, 1, gp->noise, err);
}

void ru_gp_predict(const ru_gp *gp, const double *x, double *mean, double *variance)
{
    double v[RU_GP_POINTS_MAX], sum = 0;
    for (uint32_t i = 0; i < gp->n; i++) {
        v[i] = kernel(gp, x, gp->x + (size_t)i * gp->dims);
        sum += v[i] * gp->coef[i];
    }
    ru_chol_forward(gp->chol, gp->n, gp->n_max, v);
    double left = gp->signal - ru_dense_dot(v, v, gp->n);
    *mean = gp->mean + gp->scale * sum;
    *variance = left > 0 ? left * gp->scale * gp->scale : 0;
}

double ru_expected_improvement(double mean, double variance, double best)
{
    double sd = sqrt(variance);
    if (!(sd > 0)) {
        return best > mean ? best - mean : 0;
    }
    double z = (best - mean) / sd;
    if (z < -20) { /* the difference below cancels; six terms of its asymptotic series */
        double r = 1 / (z * z);
        double tail = 1 - r * (3 - r * (15 - r * (105 - r * (945 - r * 10395))));
        return sd * ru_norm_pdf(z) * r * tail;
    }
    double v = sd * (z * ru_norm_cdf(z) + ru_norm_pdf(z));
    return v > 0 ? v : 0;
}

double ru_probability_below(double mean, double variance, double limit)
{
    return variance > 0 ? ru_norm_cdf((limit - mean) / sqrt(variance)) : mean <= limit ? 1 : 0;
}

double ru_expected_improvement_constrained(const ru_gp *goal, double best,
                                           const ru_gp *const *constraints, const double *limits,
                                           uint32_t n_constraints, const double *x)
{
    double mean, variance, value = 1;
    if (!isinf(best)) {
        ru_gp_predict(goal, x, &mean, &variance);
        value = ru_expected_improvement(mean, variance, best);
    }
    for (uint32_t k = 0; k < n_constraints; k++) {
        ru_gp_predict(constraints[k], x, &mean, &variance);
        value *= ru_probability_below(mean, variance, limits[k]);
    }
    return value;
}
