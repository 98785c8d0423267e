/* Resize: a separable filter per axis.
 *
 * Every output position of an axis is a weighted sum of a few input positions ("taps"); nearest has
 * one tap, linear two, cubic four, more with antialias. The tables are made per axis, then every
 * output element sums over the product of its axes' taps. */
#include "exec/cpu/ref/resize.h"

#include "exec/cpu/ref/ref_impl.h"

#include <math.h>
#include <string.h>

typedef enum resize_mode { NEAREST, LINEAR, CUBIC } resize_mode;

/* How one axis is resized. */
typedef struct axis_plan {
    resize_mode mode;
    const char *coordinates, *nearest;
    int64_t in, out;
    double scale, roi_begin, roi_end, cubic_a;
    bool antialias, exclude_outside;
} axis_plan;

/* Source coordinate of output position x; *outside by tf_crop_and_resize. */
static double source_of(const axis_plan *a, int64_t x, bool *outside)
{
    double in = (double)a->in, out = a->scale * in, pos = (double)x;
    *outside = false;
    if (strcmp(a->coordinates, "align_corners") == 0) {
        return a->out == 1 ? 0.0 : pos * (in - 1.0) / (out - 1.0);
    }
    if (strcmp(a->coordinates, "asymmetric") == 0) {
        return pos / a->scale;
    }
    if (strcmp(a->coordinates, "tf_half_pixel_for_nn") == 0) { /* opset 11 and 12 only */
        return (pos + 0.5) / a->scale;
    }
    if (strcmp(a->coordinates, "tf_crop_and_resize") == 0) {
        double width = (a->roi_end - a->roi_begin) * (in - 1.0);
        double s = a->out == 1 ? width / 2.0 : pos * width / (out - 1.0);
        s += a->roi_begin * (in - 1.0);
        *outside = s < 0.0 || s > in - 1.0;
        return s;
    }
    if (strcmp(a->coordinates, "pytorch_half_pixel") == 0 && a->out == 1) {
        return -0.5;
    }
    double s = (pos + 0.5) / a->scale - 0.5;
    if (strcmp(a->coordinates, "half_pixel_symmetric") == 0) {
        s += in / 2.0 * (1.0 - (double)a->out / out);
    }
    return s;
}

static int64_t nearest_index(const axis_plan *a, double s)
{
    double low = floor(s), ratio = s - low;
    bool up = ratio > 0.5;
    if (strcmp(a->nearest, "round_prefer_ceil") == 0) {
        up = ratio >= 0.5;
    } else if (strcmp(a->nearest, "floor") == 0) {
        up = false;
    } else if (strcmp(a->nearest, "ceil") == 0) {
        up = ratio > 0.0;
    }
    return (int64_t)low + up;
}

static double filter(const axis_plan *a, double d)
{
    d = fabs(d);
    if (a->mode == LINEAR) {
        return d < 1.0 ? 1.0 - d : 0.0;
    }
    double A = a->cubic_a;
    if (d <= 1.0) {
        return ((A + 2.0) * d - (A + 3.0)) * d * d + 1.0;
    }
    return d < 2.0 ? ((A * d - 5.0 * A) * d + 8.0 * A) * d - 4.0 * A : 0.0;
}

static void add_tap(const axis_plan *a, rui_resize_axis *t, int64_t x, int64_t index, double weight)
{
    bool in = index >= 0 && index < a->in;
    if (weight == 0.0 || (!in && a->exclude_outside) || t->n[x] >= t->room) {
        return;
    }
    int64_t at = x * t->room + t->n[x]++;
    t->index[at] = index < 0 ? 0 : (index >= a->in ? a->in - 1 : index);
    t->weight[at] = weight;
}

static ru_status make_taps(const ru_ref_call *c, const axis_plan *a, rui_resize_axis *t,
                           ru_err *err)
{
    double stretch = a->antialias && a->scale < 1.0 ? a->scale : 1.0;
    double reach = (a->mode == CUBIC ? 2.0 : 1.0) / stretch;
    t->in = a->in;
    t->out = a->out;
    t->room = a->mode == NEAREST ? 1 : 2 * (int64_t)ceil(reach) + 2;
    RU_TRY(rui_ref_zero_ints(c, a->out, &t->n, err));
    RU_TRY(rui_ref_zero_ints(c, a->out * t->room, &t->index, err));
    RU_TRY(rui_ref_zeros(c, a->out * t->room, &t->weight, err));
    t->outside = RU_NEW(c->scratch, bool, a->out);
    if (t->outside == NULL) {
        return RU_FAIL(err, RU_E_MEM, "Resize: no scratch for %lld positions", (long long)a->out);
    }
    for (int64_t x = 0; x < a->out; x++) {
        double s = source_of(a, x, &t->outside[x]), sum = 0.0;
        if (a->mode == NEAREST) {
            int64_t i = nearest_index(a, s);
            add_tap(a, t, x, i < 0 ? 0 : (i >= a->in ? a->in - 1 : i), 1.0);
            continue;
        }
        for (int64_t i = (int64_t)ceil(s - reach); i <= (int64_t)floor(s + reach); i++) {
            add_tap(a, t, x, i, filter(a, ((double)i - s) * stretch));
        }
        for (int64_t k = 0; k < t->n[x]; k++) {
            sum += t->weight[x * t->room + k];
        }
        for (int64_t k = 0; k < t->n[x]; k++) {
            t->weight[x * t->room + k] /= sum;
        }
    }
    return RU_OK;
}

/* -- what the node asks for ------------------------------------------------------------- */

static ru_status mode_of(const ru_node *n, resize_mode *mode, ru_err *err)
{
    const char *word = ru_node_str(n, RU_ATTR_mode, "nearest");
    if (strcmp(word, "nearest") == 0) {
        *mode = NEAREST;
    } else if (strcmp(word, "linear") == 0) {
        *mode = LINEAR;
    } else if (strcmp(word, "cubic") == 0) {
        *mode = CUBIC;
    } else {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "Resize: mode '%s' is none of nearest, linear, cubic",
                       word);
    }
    return RU_OK;
}

/* Scales of the axes named: given, or out/in, or one for all when the aspect ratio is kept. */
static ru_status fill_scales(const ru_ref_call *c, uint32_t k_scales, const uint32_t *axes,
                             uint32_t n, axis_plan *a, ru_err *err)
{
    double *scales = NULL, *sizes = NULL;
    if (rui_ref_has(c, k_scales) && rui_ref_count(&c->in[k_scales].type) > 0) {
        RU_TRY(rui_ref_in(c, k_scales, &scales, err));
    } else {
        RU_TRY(rui_ref_in(c, k_scales + 1, &sizes, err));
    }
    const char *policy = ru_node_str(c->node, RU_ATTR_keep_aspect_ratio_policy, "stretch");
    bool stretch = strcmp(policy, "stretch") == 0 || sizes == NULL;
    bool larger = strcmp(policy, "not_smaller") == 0;
    double one = larger ? 0.0 : (double)INFINITY;
    for (uint32_t k = 0; k < n; k++) {
        axis_plan *p = &a[axes[k]];
        double ratio = sizes != NULL ? sizes[k] / (double)p->in : (double)p->out / (double)p->in;
        p->scale = scales != NULL ? scales[k] : ratio;
        one = larger ? fmax(one, ratio) : fmin(one, ratio);
    }
    for (uint32_t k = 0; k < n && !stretch; k++) {
        a[axes[k]].scale = one;
    }
    return RU_OK;
}

static ru_status make_plans(const ru_ref_call *c, const ru_type *x, const ru_type *y, uint32_t k,
                            axis_plan *a, ru_err *err)
{
    resize_mode mode = NEAREST;
    uint32_t axes[RU_RANK_MAX], n_axes;
    double *roi;
    RU_TRY(mode_of(c->node, &mode, err));
    RU_TRY(rui_ref_in(c, k, &roi, err));
    roi = roi != NULL && rui_ref_count(&c->in[k].type) > 0 ? roi : NULL;
    for (uint32_t d = 0; d < x->rank; d++) {
        a[d] = (axis_plan){
            .mode = mode, .in = x->dims[d], .out = y->dims[d], .scale = 1.0, .roi_end = 1.0};
        a[d].coordinates =
            ru_node_str(c->node, RU_ATTR_coordinate_transformation_mode, "half_pixel");
        a[d].nearest = ru_node_str(c->node, RU_ATTR_nearest_mode, "round_prefer_floor");
        a[d].cubic_a = ru_node_float(c->node, RU_ATTR_cubic_coeff_a, -0.75);
        a[d].antialias = ru_node_int(c->node, RU_ATTR_antialias, 0) != 0;
        a[d].exclude_outside = ru_node_int(c->node, RU_ATTR_exclude_outside, 0) != 0;
        axes[d] = d;
    }
    const int64_t *given = ru_node_ints(c->node, RU_ATTR_axes, &n_axes);
    n_axes = given != NULL ? n_axes : x->rank;
    for (uint32_t i = 0; given != NULL && i < n_axes; i++) {
        RU_TRY(rui_ref_axis(c, given[i], x->rank, &axes[i], err));
    }
    for (uint32_t i = 0; roi != NULL && i < n_axes; i++) {
        a[axes[i]].roi_begin = roi[i];
        a[axes[i]].roi_end = roi[n_axes + i];
    }
    return fill_scales(c, k + 1, axes, n_axes, a, err);
}

ru_status rui_resize_make(const ru_ref_call *c, const ru_type *x, const ru_type *y, uint32_t k,
                          rui_resize_axis *axes, ru_err *err)
{
    axis_plan a[RU_RANK_MAX];
    RU_TRY(make_plans(c, x, y, k, a, err));
    for (uint32_t d = 0; d < x->rank; d++) {
        RU_TRY(make_taps(c, &a[d], &axes[d], err));
    }
    return RU_OK;
}

/* The taps of output element `at` in x: y = sum of weight * x[place], `give` NULL; or the other way
 * round, give[place] += weight * dy. */
static double element(const double *x, double *give, double dy, const rui_resize_axis *t,
                      const int64_t *at, uint32_t rank)
{
    int64_t taps[RU_RANK_MAX];
    for (uint32_t d = 0; d < rank; d++) {
        taps[d] = t[d].n[at[d]];
        if (taps[d] == 0) {
            return 0.0;
        }
    }
    rui_walk w;
    double sum = 0.0;
    rui_walk_init(&w, taps, rank);
    do {
        double weight = 1.0;
        int64_t off = 0;
        for (uint32_t d = 0; d < rank; d++) {
            int64_t k = at[d] * t[d].room + w.at[d];
            weight *= t[d].weight[k];
            off = off * t[d].in + t[d].index[k];
        }
        if (give != NULL) {
            give[off] += weight * dy;
        } else {
            sum += weight * x[off];
        }
    } while (rui_walk_next(&w));
    return sum;
}

static bool is_outside(const rui_resize_axis *t, const rui_walk *w)
{
    bool outside = false;
    for (uint32_t d = 0; d < w->rank; d++) {
        outside = outside || t[d].outside[w->at[d]];
    }
    return outside;
}

ru_status rui_ref_Resize(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->out[0].type;
    rui_resize_axis taps[RU_RANK_MAX];
    double *x, *y, extra = ru_node_float(c->node, RU_ATTR_extrapolation_value, 0.0);
    RU_TRY(rui_resize_make(c, &c->in[0].type, t, 1, taps, err));
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(t), &y, err));
    rui_walk w;
    rui_walk_init(&w, t->dims, t->rank);
    for (int64_t i = 0; i < rui_ref_count(t); i++) {
        y[i] = is_outside(taps, &w) ? extra : element(x, NULL, 0.0, taps, w.at, t->rank);
        rui_walk_next(&w);
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}

/* (dy, x_like, roi?, scales?, sizes?): every output element gives its taps their shares. */
ru_status rui_ref_ResizeGrad(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    rui_resize_axis taps[RU_RANK_MAX];
    double *dy, *dx;
    RU_TRY(rui_resize_make(c, &c->out[0].type, t, 2, taps, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(&c->out[0].type), &dx, err));
    rui_walk w;
    rui_walk_init(&w, t->dims, t->rank);
    for (int64_t i = 0; i < rui_ref_count(t); i++) {
        if (!is_outside(taps, &w)) {
            (void)element(NULL, dx, dy[i], taps, w.at, t->rank);
        }
        rui_walk_next(&w);
    }
    rui_ref_store(&c->out[0], dx);
    return RU_OK;
}
