/* Pooling, forward and backward, and local response normalisation. */
#include "exec/cpu/ref/ref_conv_impl.h"

#include <math.h>
#include <string.h>

typedef struct pool_plan {
    rui_window win;
    int64_t planes; /* batch x channels */
    int64_t big_size, small_size, taps;
} pool_plan;

static ru_status pool_plan_make(const ru_ref_call *c, const ru_type *big, const ru_type *small,
                                pool_plan *p, ru_err *err)
{
    uint32_t n_kernel;
    const int64_t *kernel = ru_node_ints(c->node, RU_ATTR_kernel_shape, &n_kernel);
    if (kernel == NULL || big->rank != n_kernel + 2 || small->rank != big->rank) {
        return RU_FAIL(err, RU_E_DATA, "%s: kernel_shape of %u sizes does not fit a rank of %u",
                       ru_op_get(c->node->op)->name, n_kernel, big->rank);
    }
    RU_TRY(rui_window_make(c, big, small, kernel, n_kernel, &p->win, err));
    p->planes = big->dims[0] * big->dims[1];
    p->big_size = rui_ref_span(big, 2, big->rank);
    p->small_size = rui_ref_span(small, 2, small->rank);
    p->taps = 1;
    for (uint32_t d = 0; d < n_kernel; d++) {
        p->taps *= kernel[d];
    }
    return RU_OK;
}

/* -- maximum ---------------------------------------------------------------------------- */

/* First maximum in row-major window order; a NaN wins. -1 when the window lies in the padding. */
static int64_t max_place(const pool_plan *p, const double *x, const int64_t *at)
{
    int64_t best = -1;
    rui_walk tap;
    rui_walk_init(&tap, p->win.kernel, p->win.rank);
    for (int64_t k = 0; k < p->taps; k++) {
        int64_t b = rui_window_big(&p->win, at, tap.at);
        if (b >= 0 && (best < 0 || x[b] > x[best] || (isnan(x[b]) && !isnan(x[best])))) {
            best = b;
        }
        rui_walk_next(&tap);
    }
    return best;
}

/* The same place counted column-major (last axis slowest), for storage_order 1. */
static int64_t column_major(const rui_window *w, int64_t place)
{
    int64_t at[RUI_SPATIAL_MAX], off = 0;
    for (uint32_t d = w->rank; d > 0; d--) {
        at[d - 1] = place % w->big[d - 1];
        place /= w->big[d - 1];
    }
    for (uint32_t d = w->rank; d > 0; d--) {
        off = off * w->big[d - 1] + at[d - 1];
    }
    return off;
}

ru_status rui_ref_MaxPool(const ru_ref_call *c, ru_err *err)
{
    pool_plan p;
    double *x, *y;
    int64_t *places;
    RU_TRY(pool_plan_make(c, &c->in[0].type, &c->out[0].type, &p, err));
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_zeros(c, p.planes * p.small_size, &y, err));
    RU_TRY(rui_ref_zero_ints(c, p.planes * p.small_size, &places, err));
    bool columns = ru_node_int(c->node, RU_ATTR_storage_order, 0) != 0;
    rui_walk at;
    for (int64_t plane = 0; plane < p.planes; plane++) {
        const double *from = x + plane * p.big_size;
        rui_walk_init(&at, p.win.small, p.win.rank);
        for (int64_t s = 0; s < p.small_size; s++) {
            int64_t best = max_place(&p, from, at.at), i = plane * p.small_size + s;
            y[i] = best < 0 ? (double)-INFINITY : from[best];
            places[i] =
                plane * p.big_size + (columns && best > 0 ? column_major(&p.win, best) : best);
            rui_walk_next(&at);
        }
    }
    rui_ref_store(&c->out[0], y);
    if (rui_ref_has_out(c, 1)) {
        rui_ref_store_ints(&c->out[1], places);
    }
    return RU_OK;
}

/* (dy, x, y, indices?) -> dx. The places are found again in x. */
ru_status rui_ref_MaxPoolGrad(const ru_ref_call *c, ru_err *err)
{
    pool_plan p;
    double *dy, *x, *dx;
    RU_TRY(pool_plan_make(c, &c->in[1].type, &c->in[0].type, &p, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_in(c, 1, &x, err));
    RU_TRY(rui_ref_zeros(c, p.planes * p.big_size, &dx, err));
    rui_walk at;
    for (int64_t plane = 0; plane < p.planes; plane++) {
        rui_walk_init(&at, p.win.small, p.win.rank);
        for (int64_t s = 0; s < p.small_size; s++) {
            int64_t best = max_place(&p, x + plane * p.big_size, at.at);
            if (best >= 0) {
                dx[plane * p.big_size + best] += dy[plane * p.small_size + s];
            }
            rui_walk_next(&at);
        }
    }
    rui_ref_store(&c->out[0], dx);
    return RU_OK;
}

/* -- back from the places of maxima ----------------------------------------------------- */

ru_status rui_ref_MaxUnpool(const ru_ref_call *c, ru_err *err)
{
    const ru_tensor *x = &c->in[0], *y = &c->out[0];
    int64_t bytes = ru_dtype_bytes(x->type.dtype), room = rui_ref_count(&y->type);
    const int64_t *at = c->in[1].data;
    memset(y->data, 0, (size_t)(room * bytes));
    for (int64_t i = 0; i < rui_ref_count(&x->type); i++) {
        if (at[i] < 0 || at[i] >= room) {
            return RU_FAIL(err, RU_E_DATA, "index %lld at position %lld is outside 0..%lld",
                           (long long)at[i], (long long)i, (long long)(room - 1));
        }
        memcpy((char *)y->data + at[i] * bytes, (const char *)x->data + i * bytes, (size_t)bytes);
    }
    return RU_OK;
}

/* -- average ------------------------------------------------------------------- */

/* Elements the average at `at` divides by: those inside the image, or with count_include_pad those
 * inside the padded image (ceil_mode may let a window hang over its end). */
static int64_t divisor(const pool_plan *p, const int64_t *at, bool with_pads)
{
    int64_t n = 0;
    rui_walk tap;
    rui_walk_init(&tap, p->win.kernel, p->win.rank);
    for (int64_t k = 0; k < p->taps; k++) {
        bool inside = true;
        for (uint32_t d = 0; d < p->win.rank; d++) {
            int64_t b =
                at[d] * p->win.stride[d] + tap.at[d] * p->win.dilation[d] - p->win.before[d];
            int64_t low = with_pads ? -p->win.before[d] : 0;
            int64_t high = p->win.big[d] + (with_pads ? p->win.after[d] : 0);
            inside = inside && b >= low && b < high;
        }
        n += inside;
        rui_walk_next(&tap);
    }
    return n;
}

typedef enum pool_sum { SUM_MEAN, SUM_LP, SUM_MEAN_BACK } pool_sum;

/* One plane: y from x, or for SUM_MEAN_BACK dx (as x) from dy (as y). */
static void pool_plane(const pool_plan *p, pool_sum kind, bool with_pads, double power, double *x,
                       double *y)
{
    rui_walk at, tap;
    rui_walk_init(&at, p->win.small, p->win.rank);
    for (int64_t s = 0; s < p->small_size; s++) {
        int64_t count = kind == SUM_LP ? 1 : divisor(p, at.at, with_pads);
        double sum = 0.0, share = count > 0 ? y[s] / (double)count : 0.0;
        rui_walk_init(&tap, p->win.kernel, p->win.rank);
        for (int64_t k = 0; k < p->taps; k++) {
            int64_t b = rui_window_big(&p->win, at.at, tap.at);
            if (b >= 0 && kind == SUM_MEAN_BACK) {
                x[b] += share;
            } else if (b >= 0) {
                sum += kind == SUM_LP ? pow(fabs(x[b]), power) : x[b];
            }
            rui_walk_next(&tap);
        }
        if (kind == SUM_MEAN) {
            y[s] = count > 0 ? sum / (double)count : 0.0;
        } else if (kind == SUM_LP) {
            y[s] = pow(sum, 1.0 / power);
        }
        rui_walk_next(&at);
    }
}

static ru_status pool_forward(const ru_ref_call *c, pool_sum kind, ru_err *err)
{
    pool_plan p;
    double *x, *y;
    RU_TRY(pool_plan_make(c, &c->in[0].type, &c->out[0].type, &p, err));
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_zeros(c, p.planes * p.small_size, &y, err));
    bool with_pads = ru_node_int(c->node, RU_ATTR_count_include_pad, 0) != 0;
    double power = (double)ru_node_int(c->node, RU_ATTR_p, 2);
    for (int64_t plane = 0; plane < p.planes; plane++) {
        pool_plane(&p, kind, with_pads, power, x + plane * p.big_size, y + plane * p.small_size);
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

ru_status rui_ref_AveragePool(const ru_ref_call *c, ru_err *err)
{
    return pool_forward(c, SUM_MEAN, err);
}

ru_status rui_ref_LpPool(const ru_ref_call *c, ru_err *err)
{
    return pool_forward(c, SUM_LP, err);
}

/* (dy, x_like) -> dx */
ru_status rui_ref_AveragePoolGrad(const ru_ref_call *c, ru_err *err)
{
    pool_plan p;
    double *dy, *dx;
    RU_TRY(pool_plan_make(c, &c->out[0].type, &c->in[0].type, &p, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_zeros(c, p.planes * p.big_size, &dx, err));
    bool with_pads = ru_node_int(c->node, RU_ATTR_count_include_pad, 0) != 0;
    for (int64_t plane = 0; plane < p.planes; plane++) {
        pool_plane(&p, SUM_MEAN_BACK, with_pads, 1.0, dx + plane * p.big_size,
                   dy + plane * p.small_size);
    }
    rui_ref_store(&c->out[0], dx);
    return RU_OK;
}

/* -- global pools ----------------------------------------------------------------------- */

static ru_status global_pool(const ru_ref_call *c, bool max, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    int64_t planes = rui_ref_span(t, 0, 2), size = rui_ref_span(t, 2, t->rank);
    double *x, *y;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_zeros(c, planes, &y, err));
    for (int64_t i = 0; i < planes; i++) {
        double sum = 0.0, top = (double)-INFINITY;
        for (int64_t k = 0; k < size; k++) {
            double v = x[i * size + k];
            sum += v;
            top = v > top || isnan(v) ? v : top;
        }
        y[i] = max ? top : sum / (double)size;
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

ru_status rui_ref_GlobalAveragePool(const ru_ref_call *c, ru_err *err)
{
    return global_pool(c, false, err);
}

ru_status rui_ref_GlobalMaxPool(const ru_ref_call *c, ru_err *err)
{
    return global_pool(c, true, err);
}

/* (dy, x_like) -> dx */
ru_status rui_ref_GlobalAveragePoolGrad(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->out[0].type;
    int64_t n = rui_ref_count(t), size = rui_ref_span(t, 2, t->rank);
    double *dy, *dx;
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_zeros(c, n, &dx, err));
    for (int64_t i = 0; i < n; i++) {
        dx[i] = dy[i / size] / (double)size;
    }
    rui_ref_store(&c->out[0], dx);
    return RU_OK;
}

/* (dy, x, y) -> dx at the first maximum of each plane. */
ru_status rui_ref_GlobalMaxPoolGrad(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->out[0].type;
    int64_t planes = rui_ref_span(t, 0, 2), size = rui_ref_span(t, 2, t->rank);
    double *dy, *x, *dx;
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_in(c, 1, &x, err));
    RU_TRY(rui_ref_zeros(c, planes * size, &dx, err));
    for (int64_t i = 0; i < planes && size > 0; i++) {
        int64_t best = 0;
        for (int64_t k = 1; k < size; k++) {
            best = x[i * size + k] > x[i * size + best] ? k : best;
        }
        dx[i * size + best] = dy[i];
    }
    rui_ref_store(&c->out[0], dx);
    return RU_OK;
}

/* y = x / (bias + alpha/size * sum of squares over `size` neighbouring channels)^beta */
ru_status rui_ref_LRN(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    rui_axis3 a = rui_ref_axis3(t, 1);
    int64_t size = ru_node_int(c->node, RU_ATTR_size, 1);
    double alpha = ru_node_float(c->node, RU_ATTR_alpha, 1e-4);
    double beta = ru_node_float(c->node, RU_ATTR_beta, 0.75);
    double bias = ru_node_float(c->node, RU_ATTR_bias, 1.0);
    double *x, *y;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(t), &y, err));
    for (int64_t i = 0; i < rui_ref_count(t); i++) {
        int64_t ch = i / a.inner % a.dim, base = i - ch * a.inner;
        int64_t low = ch - (size - 1) / 2, high = ch + size / 2;
        double sum = 0.0;
        for (int64_t k = low < 0 ? 0 : low; k <= high && k < a.dim; k++) {
            sum += x[base + k * a.inner] * x[base + k * a.inner];
        }
        y[i] = x[i] / pow(bias + alpha / (double)size * sum, beta);
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}
