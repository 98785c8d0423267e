/* Normalisation and softmax, forward and backward. */
#include "exec/cpu/ref/ref_impl.h"

#include <math.h>
#include <string.h>

/* -- softmax family along one axis ------------------------------------------------------ */

typedef void (*line_fn)(double *x, const double *dy, int64_t n, int64_t step);

static void softmax_line(double *x, const double *dy, int64_t n, int64_t step)
{
    (void)dy;
    double top = (double)-INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        top = fmax(top, x[i * step]);
    }
    for (int64_t i = 0; i < n; i++) {
        x[i * step] = exp(x[i * step] - top);
        sum += x[i * step];
    }
    for (int64_t i = 0; i < n; i++) {
        x[i * step] /= sum;
    }
}

static void log_softmax_line(double *x, const double *dy, int64_t n, int64_t step)
{
    (void)dy;
    double top = (double)-INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        top = fmax(top, x[i * step]);
    }
    for (int64_t i = 0; i < n; i++) {
        sum += exp(x[i * step] - top);
    }
    for (int64_t i = 0; i < n; i++) {
        x[i * step] = (x[i * step] - top) - log(sum); /* the sum of both would lose digits */
    }
}

static void hardmax_line(double *x, const double *dy, int64_t n, int64_t step)
{
    (void)dy;
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        best = x[i * step] > x[best * step] ? i : best;
    }
    for (int64_t i = 0; i < n; i++) {
        x[i * step] = i == best ? 1.0 : 0.0;
    }
}

/* x holds the softmax y; dx = y (dy - sum(dy y)). */
static void softmax_grad_line(double *x, const double *dy, int64_t n, int64_t step)
{
    double dot = 0.0;
    for (int64_t i = 0; i < n; i++) {
        dot += dy[i * step] * x[i * step];
    }
    for (int64_t i = 0; i < n; i++) {
        x[i * step] *= dy[i * step] - dot;
    }
}

/* x holds the log-softmax y; dx = dy - exp(y) sum(dy). */
static void log_softmax_grad_line(double *x, const double *dy, int64_t n, int64_t step)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += dy[i * step];
    }
    for (int64_t i = 0; i < n; i++) {
        x[i * step] = dy[i * step] - exp(x[i * step]) * sum;
    }
}

/* Input `k_x` line by line; for gradients dy is input 0. */
static ru_status lines(const ru_ref_call *c, line_fn f, uint32_t k_x, ru_err *err)
{
    const ru_type *t = &c->in[k_x].type;
    uint32_t axis;
    double *x, *dy;
    RU_TRY(rui_ref_axis(c, ru_node_int(c->node, RU_ATTR_axis, -1), t->rank, &axis, err));
    RU_TRY(rui_ref_in(c, k_x, &x, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    rui_axis3 a = rui_ref_axis3(t, axis);
    for (int64_t o = 0; o < a.outer && a.dim > 0; o++) {
        for (int64_t i = 0; i < a.inner; i++) {
            int64_t at = o * a.dim * a.inner + i;
            f(x + at, dy + at, a.dim, a.inner);
        }
    }
    rui_ref_store(&c->out[0], x);
    return RU_OK;
}

ru_status rui_ref_Softmax(const ru_ref_call *c, ru_err *err)
{
    return lines(c, softmax_line, 0, err);
}

ru_status rui_ref_LogSoftmax(const ru_ref_call *c, ru_err *err)
{
    return lines(c, log_softmax_line, 0, err);
}

ru_status rui_ref_Hardmax(const ru_ref_call *c, ru_err *err)
{
    return lines(c, hardmax_line, 0, err);
}

ru_status rui_ref_SoftmaxGrad(const ru_ref_call *c, ru_err *err)
{
    return lines(c, softmax_grad_line, 1, err);
}

ru_status rui_ref_LogSoftmaxGrad(const ru_ref_call *c, ru_err *err)
{
    return lines(c, log_softmax_grad_line, 1, err);
}

/* x / ||x||_p along the axis; a zero line stays zero. */
ru_status rui_ref_LpNormalization(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    uint32_t axis;
    double *x;
    bool l1 = ru_node_int(c->node, RU_ATTR_p, 2) == 1;
    RU_TRY(rui_ref_axis(c, ru_node_int(c->node, RU_ATTR_axis, -1), t->rank, &axis, err));
    RU_TRY(rui_ref_in(c, 0, &x, err));
    rui_axis3 a = rui_ref_axis3(t, axis);
    for (int64_t o = 0; o < a.outer; o++) {
        for (int64_t i = 0; i < a.inner; i++) {
            double *line = x + o * a.dim * a.inner + i, sum = 0.0;
            for (int64_t k = 0; k < a.dim; k++) {
                double v = line[k * a.inner];
                sum += l1 ? fabs(v) : v * v;
            }
            double norm = l1 ? sum : sqrt(sum);
            for (int64_t k = 0; k < a.dim; k++) {
                line[k * a.inner] = norm == 0.0 ? 0.0 : line[k * a.inner] / norm; /* NaN stays */
            }
        }
    }
    rui_ref_store(&c->out[0], x);
    return RU_OK;
}

/* (x - mean) / (sqrt(E[x^2] - mean^2) + 1e-9) over `axes`, as the function in the ONNX standard. */
ru_status rui_ref_MeanVarianceNormalization(const ru_ref_call *c, ru_err *err)
{
    static const int64_t usual[] = {0, 2, 3};
    const ru_type *t = &c->in[0].type;
    uint32_t n_axes;
    const int64_t *axes = ru_node_ints(c->node, RU_ATTR_axes, &n_axes);
    n_axes = axes != NULL ? n_axes : RU_ARRAY_LEN(usual);
    axes = axes != NULL ? axes : usual;
    int64_t strides[RU_RANK_MAX], groups = 1, n = rui_ref_count(t);
    bool reduced[RU_RANK_MAX] = {false};
    for (uint32_t k = 0; k < n_axes; k++) {
        uint32_t d;
        RU_TRY(rui_ref_axis(c, axes[k], t->rank, &d, err));
        reduced[d] = true;
    }
    for (uint32_t d = t->rank; d > 0; d--) {
        strides[d - 1] = reduced[d - 1] ? 0 : groups;
        groups *= reduced[d - 1] ? 1 : t->dims[d - 1];
    }
    double *x, *sum, *square;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_zeros(c, groups, &sum, err));
    RU_TRY(rui_ref_zeros(c, groups, &square, err));
    rui_walk w;
    for (int pass = 0; pass < 2; pass++) {
        rui_walk_init(&w, t->dims, t->rank);
        double per = groups > 0 ? (double)(n / groups) : 1.0;
        for (int64_t i = 0; i < n; i++) {
            int64_t g = rui_walk_dot(&w, strides);
            if (pass == 0) {
                sum[g] += x[i];
                square[g] += x[i] * x[i];
            } else {
                double mean = sum[g] / per, var = square[g] / per - mean * mean;
                x[i] = (x[i] - mean) / (sqrt(var < 0.0 ? 0.0 : var) + 1e-9);
            }
            rui_walk_next(&w);
        }
    }
    rui_ref_store(&c->out[0], x);
    return RU_OK;
}

/* -- batch normalisation ---------------------------------------------------------------- */

/* Mean and biased variance of each channel of x [N, C, ...]. */
static void channel_stats(const double *x, const rui_axis3 *a, double *mean, double *var)
{
    double n = (double)(a->outer * a->inner);
    for (int64_t ch = 0; ch < a->dim; ch++) {
        double sum = 0.0, dev = 0.0;
        for (int64_t o = 0; o < a->outer; o++) {
            for (int64_t i = 0; i < a->inner; i++) {
                sum += x[(o * a->dim + ch) * a->inner + i];
            }
        }
        mean[ch] = sum / n;
        for (int64_t o = 0; o < a->outer; o++) {
            for (int64_t i = 0; i < a->inner; i++) {
                double d = x[(o * a->dim + ch) * a->inner + i] - mean[ch];
                dev += d * d;
            }
        }
        var[ch] = dev / n;
    }
}

typedef struct batch_norm {
    rui_axis3 a;
    double *x, *scale, *bias, *mean, *var; /* mean and var as given */
    double *batch_mean, *batch_var;
} batch_norm;

static ru_status batch_norm_load(const ru_ref_call *c, bool train, batch_norm *b, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    if (t->rank < 2) {
        return RU_FAIL(err, RU_E_DATA, "%s: rank %u, at least 2 is needed",
                       ru_op_get(c->node->op)->name, t->rank);
    }
    b->a = rui_ref_axis3(t, 1);
    RU_TRY(rui_ref_in(c, 0, &b->x, err));
    RU_TRY(rui_ref_in(c, 1, &b->scale, err));
    RU_TRY(rui_ref_in(c, 2, &b->bias, err));
    RU_TRY(rui_ref_in(c, 3, &b->mean, err));
    RU_TRY(rui_ref_in(c, 4, &b->var, err));
    b->batch_mean = b->mean;
    b->batch_var = b->var;
    if (train) {
        RU_TRY(rui_ref_zeros(c, b->a.dim, &b->batch_mean, err));
        RU_TRY(rui_ref_zeros(c, b->a.dim, &b->batch_var, err));
        channel_stats(b->x, &b->a, b->batch_mean, b->batch_var);
    }
    return RU_OK;
}

/* y, and the running statistics into outputs 1 and 2 where asked for. */
static ru_status batch_norm_apply(const ru_ref_call *c, batch_norm *b, bool train, ru_err *err)
{
    rui_finish f;
    RU_TRY(rui_finish_make(c, 5, &f, err));
    double eps = ru_node_float(c->node, RU_ATTR_epsilon, 1e-5);
    double keep = ru_node_float(c->node, RU_ATTR_momentum, 0.9);
    int64_t n = rui_ref_count(&c->in[0].type), per = b->a.outer * b->a.inner;
    for (int64_t i = 0; i < n; i++) {
        int64_t ch = i / b->a.inner % b->a.dim;
        double y = (b->x[i] - b->batch_mean[ch]) / sqrt(b->batch_var[ch] + eps);
        b->x[i] = rui_finish_apply(&f, i, y * b->scale[ch] + b->bias[ch]);
    }
    rui_ref_store(&c->out[0], b->x);
    bool unbiased = ru_node_int(c->node, RU_ATTR_bias, 0) != 0 && per > 1;
    double stretch = unbiased ? (double)per / (double)(per - 1) : 1.0;
    for (int64_t ch = 0; train && ch < b->a.dim; ch++) {
        b->mean[ch] = keep * b->mean[ch] + (1.0 - keep) * b->batch_mean[ch];
        b->var[ch] = keep * b->var[ch] + (1.0 - keep) * b->batch_var[ch] * stretch;
    }
    if (rui_ref_has_out(c, 1)) {
        rui_ref_store(&c->out[1], b->mean);
    }
    if (rui_ref_has_out(c, 2)) {
        rui_ref_store(&c->out[2], b->var);
    }
    return RU_OK;
}

ru_status rui_ref_BatchNormalization(const ru_ref_call *c, ru_err *err)
{
    batch_norm b;
    bool train = ru_node_int(c->node, RU_ATTR_training_mode, 0) != 0;
    RU_TRY(batch_norm_load(c, train, &b, err));
    return batch_norm_apply(c, &b, train, err);
}

ru_status rui_ref_BatchNormTrain(const ru_ref_call *c, ru_err *err)
{
    batch_norm b;
    RU_TRY(batch_norm_load(c, true, &b, err));
    RU_TRY(batch_norm_apply(c, &b, true, err));
    double eps = ru_node_float(c->node, RU_ATTR_epsilon, 1e-5);
    for (int64_t ch = 0; ch < b.a.dim; ch++) {
        b.batch_var[ch] = 1.0 / sqrt(b.batch_var[ch] + eps);
    }
    if (rui_ref_has_out(c, 3)) {
        rui_ref_store(&c->out[3], b.batch_mean);
    }
    if (rui_ref_has_out(c, 4)) {
        rui_ref_store(&c->out[4], b.batch_var);
    }
    return RU_OK;
}

/* -- the gradient all normalisations share
 * ------------------------------------------------------------
 *
 * With xhat = (x - mean) invstd over a group of n elements and g = dy * scale:
 *     dx = invstd (g - mean(g) - xhat mean(g xhat)). */

typedef struct norm_sums {
    double g, gx; /* sum of g and of g * xhat */
} norm_sums;

static double norm_dx(double g, double xhat, double invstd, const norm_sums *s, double n)
{
    return invstd * (g - s->g / n - xhat * s->gx / n);
}

static void store_pair(const ru_ref_call *c, const double *dx, const double *dscale,
                       const double *dbias)
{
    if (rui_ref_has_out(c, 0)) {
        rui_ref_store(&c->out[0], dx);
    }
    if (rui_ref_has_out(c, 1)) {
        rui_ref_store(&c->out[1], dscale);
    }
    if (rui_ref_has_out(c, 2)) {
        rui_ref_store(&c->out[2], dbias);
    }
}

/* (dy, x, scale, save_mean, save_invstd, y?) -> dx, dscale, dbias, dresidual? */
ru_status rui_ref_BatchNormGrad(const ru_ref_call *c, ru_err *err)
{
    rui_axis3 a = rui_ref_axis3(&c->in[1].type, 1);
    double *dy, *x, *scale, *mean, *invstd, *dscale, *dbias;
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_in(c, 1, &x, err));
    RU_TRY(rui_ref_in(c, 2, &scale, err));
    RU_TRY(rui_ref_in(c, 3, &mean, err));
    RU_TRY(rui_ref_in(c, 4, &invstd, err));
    RU_TRY(rui_ref_zeros(c, a.dim, &dscale, err));
    RU_TRY(rui_ref_zeros(c, a.dim, &dbias, err));
    int64_t n = a.outer * a.dim * a.inner;
    if (strcmp(ru_node_str(c->node, RU_ATTR_activation, ""), "relu") == 0) {
        double *y;
        RU_TRY(rui_ref_in(c, 5, &y, err));
        for (int64_t i = 0; y != NULL && i < n; i++) {
            dy[i] = y[i] > 0.0 ? dy[i] : 0.0;
        }
    }
    if (rui_ref_has_out(c, 3)) {
        rui_ref_store(&c->out[3], dy);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t ch = i / a.inner % a.dim;
        dscale[ch] += dy[i] * (x[i] - mean[ch]) * invstd[ch];
        dbias[ch] += dy[i];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t ch = i / a.inner % a.dim;
        norm_sums s = {dbias[ch] * scale[ch], dscale[ch] * scale[ch]};
        double xhat = (x[i] - mean[ch]) * invstd[ch];
        x[i] = norm_dx(dy[i] * scale[ch], xhat, invstd[ch], &s, (double)(a.outer * a.inner));
    }
    store_pair(c, x, dscale, dbias);
    return RU_OK;
}

/* -- layer normalisation ---------------------------------------------------------------- */

/* Statistics of a group of `n` neighbours. */
static void row_stats(const double *x, int64_t n, double eps, double *mean, double *invstd)
{
    double sum = 0.0, dev = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
    }
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        dev += (x[i] - *mean) * (x[i] - *mean);
    }
    *invstd = 1.0 / sqrt(dev / (double)n + eps);
}

ru_status rui_ref_LayerNormalization(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    uint32_t axis;
    RU_TRY(rui_ref_axis(c, ru_node_int(c->node, RU_ATTR_axis, -1), t->rank, &axis, err));
    int64_t rows = rui_ref_span(t, 0, axis), n = rui_ref_span(t, axis, t->rank);
    double eps = ru_node_float(c->node, RU_ATTR_epsilon, 1e-5);
    ru_type row = {.dtype = t->dtype, .rank = t->rank - axis};
    memcpy(row.dims, t->dims + axis, row.rank * sizeof row.dims[0]);
    double *x, *scale, *bias = NULL, *mean, *invstd;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_load_as(c, &c->in[1], &row, &scale, err));
    if (rui_ref_has(c, 2)) {
        RU_TRY(rui_ref_load_as(c, &c->in[2], &row, &bias, err));
    }
    RU_TRY(rui_ref_zeros(c, rows, &mean, err));
    RU_TRY(rui_ref_zeros(c, rows, &invstd, err));
    for (int64_t r = 0; r < rows; r++) {
        row_stats(x + r * n, n, eps, &mean[r], &invstd[r]);
        for (int64_t i = 0; i < n; i++) {
            double y = (x[r * n + i] - mean[r]) * invstd[r] * scale[i];
            x[r * n + i] = y + (bias != NULL ? bias[i] : 0.0);
        }
    }
    store_pair(c, x, mean, invstd);
    return RU_OK;
}

/* (dy, x, scale, mean, invstd) -> dx, dscale, dbias? */
ru_status rui_ref_LayerNormGrad(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[1].type;
    uint32_t axis;
    RU_TRY(rui_ref_axis(c, ru_node_int(c->node, RU_ATTR_axis, -1), t->rank, &axis, err));
    int64_t rows = rui_ref_span(t, 0, axis), n = rui_ref_span(t, axis, t->rank);
    double *dy, *x, *scale, *mean, *invstd, *dscale, *dbias;
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_in(c, 1, &x, err));
    RU_TRY(rui_ref_in(c, 2, &scale, err));
    RU_TRY(rui_ref_in(c, 3, &mean, err));
    RU_TRY(rui_ref_in(c, 4, &invstd, err));
    if (rui_ref_count(&c->in[2].type) != n) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "LayerNormGrad: scale has %lld elements, the rows %lld",
                       (long long)rui_ref_count(&c->in[2].type), (long long)n);
    }
    RU_TRY(rui_ref_zeros(c, n, &dscale, err));
    RU_TRY(rui_ref_zeros(c, n, &dbias, err));
    for (int64_t r = 0; r < rows; r++) {
        norm_sums s = {0.0, 0.0};
        for (int64_t i = 0; i < n; i++) {
            double xhat = (x[r * n + i] - mean[r]) * invstd[r], g = dy[r * n + i];
            dscale[i] += g * xhat;
            dbias[i] += g;
            s.g += g * scale[i];
            s.gx += g * scale[i] * xhat;
        }
        for (int64_t i = 0; i < n; i++) {
            double xhat = (x[r * n + i] - mean[r]) * invstd[r];
            x[r * n + i] = norm_dx(dy[r * n + i] * scale[i], xhat, invstd[r], &s, (double)n);
        }
    }
    store_pair(c, x, dscale, dbias);
    return RU_OK;
}

/* -- group and instance normalisation --------------------------------------------------- */

static ru_status group_size(const ru_ref_call *c, const ru_type *t, int64_t groups, int64_t *out,
                            ru_err *err)
{
    if (t->rank < 2 || groups < 1 || t->dims[1] % groups != 0) {
        return RU_FAIL(err, RU_E_DATA, "%s: %lld channels do not split into %lld groups",
                       ru_op_get(c->node->op)->name, (long long)(t->rank < 2 ? 0 : t->dims[1]),
                       (long long)groups);
    }
    *out = rui_ref_span(t, 1, t->rank) / groups;
    return RU_OK;
}

static ru_status group_norm(const ru_ref_call *c, int64_t groups, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    int64_t n;
    RU_TRY(group_size(c, t, groups, &n, err));
    int64_t rows = t->dims[0] * groups, inner = rui_ref_span(t, 2, t->rank);
    double eps = ru_node_float(c->node, RU_ATTR_epsilon, 1e-5);
    double *x, *scale, *bias;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_in(c, 1, &scale, err));
    RU_TRY(rui_ref_in(c, 2, &bias, err));
    for (int64_t r = 0; r < rows; r++) {
        double mean, invstd;
        row_stats(x + r * n, n, eps, &mean, &invstd);
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
            int64_t ch = i / inner % t->dims[1];
            x[i] = (x[i] - mean) * invstd * scale[ch] + bias[ch];
        }
    }
    rui_ref_store(&c->out[0], x);
    return RU_OK;
}

ru_status rui_ref_GroupNormalization(const ru_ref_call *c, ru_err *err)
{
    return group_norm(c, ru_node_int(c->node, RU_ATTR_num_groups, 1), err);
}

ru_status rui_ref_InstanceNormalization(const ru_ref_call *c, ru_err *err)
{
    return group_norm(c, c->in[0].type.rank > 1 ? c->in[0].type.dims[1] : 1, err);
}

/* (dy, x, scale) -> dx, dscale, dbias; statistics are computed again. */
static ru_status group_norm_grad(const ru_ref_call *c, int64_t groups, ru_err *err)
{
    const ru_type *t = &c->in[1].type;
    int64_t n;
    RU_TRY(group_size(c, t, groups, &n, err));
    int64_t rows = t->dims[0] * groups, inner = rui_ref_span(t, 2, t->rank);
    double eps = ru_node_float(c->node, RU_ATTR_epsilon, 1e-5);
    double *dy, *x, *scale, *dscale, *dbias;
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_in(c, 1, &x, err));
    RU_TRY(rui_ref_in(c, 2, &scale, err));
    RU_TRY(rui_ref_zeros(c, t->dims[1], &dscale, err));
    RU_TRY(rui_ref_zeros(c, t->dims[1], &dbias, err));
    for (int64_t r = 0; r < rows; r++) {
        double mean, invstd;
        norm_sums s = {0.0, 0.0};
        row_stats(x + r * n, n, eps, &mean, &invstd);
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
            int64_t ch = i / inner % t->dims[1];
            double xhat = (x[i] - mean) * invstd;
            dscale[ch] += dy[i] * xhat;
            dbias[ch] += dy[i];
            s.g += dy[i] * scale[ch];
            s.gx += dy[i] * scale[ch] * xhat;
        }
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
            double xhat = (x[i] - mean) * invstd;
            x[i] = norm_dx(dy[i] * scale[i / inner % t->dims[1]], xhat, invstd, &s, (double)n);
        }
    }
    store_pair(c, x, dscale, dbias);
    return RU_OK;
}

ru_status rui_ref_GroupNormGrad(const ru_ref_call *c, ru_err *err)
{
    return group_norm_grad(c, ru_node_int(c->node, RU_ATTR_num_groups, 1), err);
}

ru_status rui_ref_InstanceNormGrad(const ru_ref_call *c, ru_err *err)
{
    return group_norm_grad(c, c->in[1].type.rank > 1 ? c->in[1].type.dims[1] : 1, err);
}
