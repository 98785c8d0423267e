/* Convolution and transposed convolution of any spatial rank, forward and backward.
 *
 * All six kernels visit the same set of triples (big image, kernel, small image); `visit` lists
 * them once, and each kernel says which of the three it sums into. */
#include "exec/cpu/ref/ref_conv_impl.h"
#include "exec/cpu/ref/ref_int8_impl.h"

#include <string.h>

ru_status rui_window_make(const ru_ref_call *c, const ru_type *big, const ru_type *small,
                          const int64_t *kernel, uint32_t rank, rui_window *w, ru_err *err)
{
    const char *op = ru_op_get(c->node->op)->name;
    uint32_t n_strides, n_dilations, n_pads;
    const int64_t *strides = ru_node_ints(c->node, RU_ATTR_strides, &n_strides);
    const int64_t *dilations = ru_node_ints(c->node, RU_ATTR_dilations, &n_dilations);
    const int64_t *pads = ru_node_ints(c->node, RU_ATTR_pads, &n_pads);
    const char *auto_pad = ru_node_str(c->node, RU_ATTR_auto_pad, "NOTSET");
    if (rank == 0 || rank > RUI_SPATIAL_MAX) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "%s: %u spatial dimensions, 1 .. %d are supported",
                       op, rank, RUI_SPATIAL_MAX);
    }
    if ((strides != NULL && n_strides != rank) || (dilations != NULL && n_dilations != rank) ||
        (pads != NULL && n_pads != 2 * rank)) {
        return RU_FAIL(err, RU_E_DATA, "%s: strides, dilations or pads do not fit %u dimensions",
                       op, rank);
    }
    *w = (rui_window){.rank = rank};
    for (uint32_t d = 0; d < rank; d++) {
        w->big[d] = big->dims[2 + d];
        w->small[d] = small->dims[2 + d];
        w->kernel[d] = kernel[d];
        w->stride[d] = strides != NULL ? strides[d] : 1;
        w->dilation[d] = dilations != NULL ? dilations[d] : 1;
        w->before[d] = pads != NULL ? pads[d] : 0;
        w->after[d] = pads != NULL ? pads[rank + d] : 0;
        int64_t reach = (w->kernel[d] - 1) * w->dilation[d] + 1;
        int64_t total = (w->small[d] - 1) * w->stride[d] + reach - w->big[d];
        if (strncmp(auto_pad, "SAME", 4) == 0) {
            total = total < 0 ? 0 : total;
            w->before[d] = strcmp(auto_pad, "SAME_LOWER") == 0 ? (total + 1) / 2 : total / 2;
            w->after[d] = total - w->before[d];
        } else if (strcmp(auto_pad, "VALID") == 0) {
            w->before[d] = w->after[d] = 0;
        }
    }
    return RU_OK;
}

/* -- the triples ------------------------------------------------------------------------ */

typedef struct conv_plan {
    rui_window win;
    int64_t batch, groups;
    int64_t big_channels, small_channels;      /* per group */
    int64_t big_size, small_size, kernel_size; /* elements of the spatial parts */
    int64_t *big_at; /* [small_size][kernel_size] place in the big image, -1: padding */
} conv_plan;

/* What is summed: target += factor_a * factor_b. */
typedef enum conv_target { INTO_BIG, INTO_SMALL, INTO_KERNEL } conv_target;

static void visit_plane(const conv_plan *p, conv_target target, double *big, double *small,
                        double *kernel)
{
    for (int64_t s = 0; s < p->small_size; s++) {
        const int64_t *at = p->big_at + s * p->kernel_size;
        for (int64_t k = 0; k < p->kernel_size; k++) {
            if (at[k] < 0) {
                continue;
            }
            switch (target) {
            case INTO_SMALL:
                small[s] += big[at[k]] * kernel[k];
                break;
            case INTO_BIG:
                big[at[k]] += small[s] * kernel[k];
                break;
            case INTO_KERNEL:
                kernel[k] += big[at[k]] * small[s];
                break;
            }
        }
    }
}

static ru_status list_places(const ru_ref_call *c, conv_plan *p, ru_err *err)
{
    RU_TRY(rui_ref_zero_ints(c, p->small_size * p->kernel_size, &p->big_at, err));
    rui_walk at, tap;
    rui_walk_init(&at, p->win.small, p->win.rank);
    for (int64_t s = 0; s < p->small_size; s++) {
        rui_walk_init(&tap, p->win.kernel, p->win.rank);
        for (int64_t k = 0; k < p->kernel_size; k++) {
            p->big_at[s * p->kernel_size + k] = rui_window_big(&p->win, at.at, tap.at);
            rui_walk_next(&tap);
        }
        rui_walk_next(&at);
    }
    return RU_OK;
}

/* `big` is the larger image (Conv's input, ConvTranspose's output), `small` the other one. The
 * kernel is laid out [small channels of all groups][big channels of a group][taps] in both ops. */
static void visit(const conv_plan *p, conv_target target, double *big, double *small,
                  double *kernel)
{
    for (int64_t n = 0; n < p->batch; n++) {
        for (int64_t g = 0; g < p->groups; g++) {
            for (int64_t s = 0; s < p->small_channels; s++) {
                for (int64_t b = 0; b < p->big_channels; b++) {
                    int64_t sc = g * p->small_channels + s, bc = g * p->big_channels + b;
                    int64_t small_at = (n * p->groups * p->small_channels + sc) * p->small_size;
                    int64_t big_at = (n * p->groups * p->big_channels + bc) * p->big_size;
                    int64_t kernel_at = (sc * p->big_channels + b) * p->kernel_size;
                    visit_plane(p, target, big + big_at, small + small_at, kernel + kernel_at);
                }
            }
        }
    }
}

static ru_status conv_plan_make(const ru_ref_call *c, const ru_type *big, const ru_type *small,
                                const ru_type *kernel, conv_plan *p, ru_err *err)
{
    if (big->rank < 3 || small->rank != big->rank || kernel->rank != big->rank) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: ranks %u, %u and %u of image, kernel and result do not fit",
                       ru_op_get(c->node->op)->name, big->rank, kernel->rank, small->rank);
    }
    uint32_t rank = big->rank - 2;
    RU_TRY(rui_window_make(c, big, small, kernel->dims + 2, rank, &p->win, err));
    p->batch = big->dims[0];
    p->groups = ru_node_int(c->node, RU_ATTR_group, 1);
    p->big_channels = p->groups > 0 ? big->dims[1] / p->groups : 0;
    p->small_channels = p->groups > 0 ? small->dims[1] / p->groups : 0;
    p->big_size = rui_ref_span(big, 2, big->rank);
    p->small_size = rui_ref_span(small, 2, small->rank);
    p->kernel_size = rui_ref_span(kernel, 2, kernel->rank);
    bool fits = p->groups > 0 && p->groups * p->big_channels == big->dims[1] &&
                p->groups * p->small_channels == small->dims[1] &&
                kernel->dims[0] == small->dims[1] && kernel->dims[1] == p->big_channels;
    if (!fits) {
        return RU_FAIL(
            err, RU_E_DATA,
            "%s: %lld and %lld channels in %lld groups do not fit a kernel of %lld x %lld",
            ru_op_get(c->node->op)->name, (long long)big->dims[1], (long long)small->dims[1],
            (long long)p->groups, (long long)kernel->dims[0], (long long)kernel->dims[1]);
    }
    return list_places(c, p, err);
}

/* Input k less its zero point (input k_zero): one number, or one for each of the first axis. */
static ru_status less_zero(const ru_ref_call *c, uint32_t k, uint32_t k_zero, double **out,
                           ru_err *err)
{
    const ru_type *t = &c->in[k].type;
    double *zero;
    RU_TRY(rui_ref_in(c, k, out, err));
    RU_TRY(rui_ref_in(c, k_zero, &zero, err));
    int64_t n = zero != NULL ? rui_ref_count(&c->in[k_zero].type) : 0;
    int64_t inner = rui_ref_span(t, 1, t->rank);
    for (int64_t i = 0; n > 0 && i < rui_ref_count(t); i++) {
        (*out)[i] -= zero[n > 1 ? i / inner : 0];
    }
    return RU_OK;
}

ru_status rui_ref_ConvInteger(const ru_ref_call *c, ru_err *err)
{
    conv_plan p;
    double *x, *w, *y;
    RU_TRY(conv_plan_make(c, &c->in[0].type, &c->out[0].type, &c->in[1].type, &p, err));
    RU_TRY(less_zero(c, 0, 2, &x, err));
    RU_TRY(less_zero(c, 1, 3, &w, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(&c->out[0].type), &y, err));
    visit(&p, INTO_SMALL, x, y, w);
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

/* y[n, ch, ...] += bias[ch], then residual and activation. */
static ru_status finish(const ru_ref_call *c, double *y, ru_err *err)
{
    const ru_type *t = &c->out[0].type;
    double *bias;
    rui_finish f;
    RU_TRY(rui_ref_in(c, 2, &bias, err));
    RU_TRY(rui_finish_make(c, 3, &f, err));
    int64_t inner = rui_ref_span(t, 2, t->rank), n = rui_ref_count(t);
    for (int64_t i = 0; i < n; i++) {
        double b = bias != NULL ? bias[i / inner % t->dims[1]] : 0.0;
        y[i] = rui_finish_apply(&f, i, y[i] + b);
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

/* Sum over batch and space of each channel of `dy` into output 1, when asked for. */
static ru_status bias_grad(const ru_ref_call *c, const double *dy, ru_err *err)
{
    if (!rui_ref_has_out(c, 1)) {
        return RU_OK;
    }
    const ru_type *t = &c->in[0].type;
    double *db;
    RU_TRY(rui_ref_zeros(c, t->dims[1], &db, err));
    int64_t inner = rui_ref_span(t, 2, t->rank), n = rui_ref_count(t);
    for (int64_t i = 0; i < n; i++) {
        db[i / inner % t->dims[1]] += dy[i];
    }
    rui_ref_store(&c->out[1], db);
    return RU_OK;
}

/* -- the six kernels -------------------------------------------------------------------- */

ru_status rui_ref_Conv(const ru_ref_call *c, ru_err *err)
{
    conv_plan p;
    double *x, *w, *y;
    RU_TRY(conv_plan_make(c, &c->in[0].type, &c->out[0].type, &c->in[1].type, &p, err));
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_in(c, 1, &w, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(&c->out[0].type), &y, err));
    visit(&p, INTO_SMALL, x, y, w);
    return finish(c, y, err);
}

ru_status rui_ref_ConvInt8(const ru_ref_call *c, ru_err *err)
{
    conv_plan p;
    double *x, *w, *y;
    RU_TRY(conv_plan_make(c, &c->in[0].type, &c->out[0].type, &c->in[1].type, &p, err));
    RU_TRY(rui_ref_int8_in(c, &x, err));
    RU_TRY(rui_ref_in(c, 1, &w, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(&c->out[0].type), &y, err));
    visit(&p, INTO_SMALL, x, y, w);
    return rui_ref_int8_out(c, y, 1, err);
}

/* (dy, w, x_like) -> dx */
ru_status rui_ref_ConvGradX(const ru_ref_call *c, ru_err *err)
{
    conv_plan p;
    double *dy, *w, *dx;
    RU_TRY(conv_plan_make(c, &c->out[0].type, &c->in[0].type, &c->in[1].type, &p, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_in(c, 1, &w, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(&c->out[0].type), &dx, err));
    visit(&p, INTO_BIG, dx, dy, w);
    rui_ref_store(&c->out[0], dx);
    return RU_OK;
}

/* (dy, x, w_like) -> dw, db? */
ru_status rui_ref_ConvGradW(const ru_ref_call *c, ru_err *err)
{
    conv_plan p;
    double *dy, *x, *dw;
    RU_TRY(conv_plan_make(c, &c->in[1].type, &c->in[0].type, &c->out[0].type, &p, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_in(c, 1, &x, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(&c->out[0].type), &dw, err));
    visit(&p, INTO_KERNEL, x, dy, dw);
    rui_ref_store(&c->out[0], dw);
    return bias_grad(c, dy, err);
}

/* ConvTranspose's pads cut its output; `output_shape` gives them by the size that is asked for. */
static ru_status transpose_plan(const ru_ref_call *c, const ru_type *big, const ru_type *small,
                                const ru_type *kernel, conv_plan *p, ru_err *err)
{
    RU_TRY(conv_plan_make(c, big, small, kernel, p, err));
    const char *auto_pad = ru_node_str(c->node, RU_ATTR_auto_pad, "NOTSET");
    bool same = strncmp(auto_pad, "SAME", 4) == 0;
    if (!same && ru_node_attr(c->node, RU_ATTR_output_shape) == NULL) {
        return RU_OK;
    }
    uint32_t n_extra;
    const int64_t *extra = ru_node_ints(c->node, RU_ATTR_output_padding, &n_extra);
    for (uint32_t d = 0; d < p->win.rank; d++) {
        int64_t reach = (p->win.kernel[d] - 1) * p->win.dilation[d] + 1;
        int64_t total = (p->win.small[d] - 1) * p->win.stride[d] + reach - p->win.big[d] +
                        (extra != NULL && d < n_extra ? extra[d] : 0);
        total = total < 0 ? 0 : total;
        p->win.before[d] = strcmp(auto_pad, "SAME_UPPER") == 0 ? total / 2 : total - total / 2;
        p->win.after[d] = total - p->win.before[d];
    }
    return list_places(c, p, err);
}

ru_status rui_ref_ConvTranspose(const ru_ref_call *c, ru_err *err)
{
    conv_plan p;
    double *x, *w, *y;
    RU_TRY(transpose_plan(c, &c->out[0].type, &c->in[0].type, &c->in[1].type, &p, err));
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_in(c, 1, &w, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(&c->out[0].type), &y, err));
    visit(&p, INTO_BIG, y, x, w);
    return finish(c, y, err);
}

/* (dy, w, x_like) -> dx */
ru_status rui_ref_ConvTransposeGradX(const ru_ref_call *c, ru_err *err)
{
    conv_plan p;
    double *dy, *w, *dx;
    RU_TRY(transpose_plan(c, &c->in[0].type, &c->out[0].type, &c->in[1].type, &p, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_in(c, 1, &w, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(&c->out[0].type), &dx, err));
    visit(&p, INTO_SMALL, dy, dx, w);
    rui_ref_store(&c->out[0], dx);
    return RU_OK;
}

/* (dy, x, w_like) -> dw, db? */
ru_status rui_ref_ConvTransposeGradW(const ru_ref_call *c, ru_err *err)
{
    conv_plan p;
    double *dy, *x, *dw;
    RU_TRY(transpose_plan(c, &c->in[0].type, &c->in[1].type, &c->out[0].type, &p, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_in(c, 1, &x, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(&c->out[0].type), &dw, err));
    visit(&p, INTO_KERNEL, dy, x, dw);
    rui_ref_store(&c->out[0], dw);
    return bias_grad(c, dy, err);
}
