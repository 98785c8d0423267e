/* Resize: a separable filter per axis.
 *
 * Every output position of an axis is a weighted sum of a few input positions ("taps"); nearest has
 * one tap, linear two, cubic four, more with antialias. The tables are made per axis, then every
 * output element sums over the product of its axes' taps. */
#include "exec/ref/ref_impl.h"

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

/* Taps of one axis: position x has n[x] of them, at most `room`. */
typedef struct axis_taps {
    int64_t room;
    int64_t *n, *index; /* [out], [out][room] */
    double *weight;     /* [out][room] */
    bool *outside;      /* [out] takes the extrapolation value */
} axis_taps;

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

static void add_tap(const axis_plan *a, axis_taps *t, int64_t x, int64_t index, double weight)
{
    bool in = index >= 0 && index < a->in;
    if (weight == 0.0 || (!in && a->exclude_outside) || t->n[x] >= t->room) {
        return;
    }
    int64_t at = x * t->room + t->n[x]++;
    t->index[at] = index < 0 ? 0 : (index >= a->in ? a->in - 1 : index);
    t->weight[at] = weight;
}

static ru_status make_taps(const ru_ref_call *c, const axis_plan *a, axis_taps *t, ru_err *err)
{
    double stretch = a->antialias && a->scale < 1.0 ? a->scale : 1.0;
    double reach = (a->mode == CUBIC ? 2.0 : 1.0) / stretch;
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
static ru_status fill_scales(const ru_ref_call *c, const uint32_t *axes, uint32_t n, axis_plan *a,
                             ru_err *err)
{
    double *scales = NULL, *sizes = NULL;
    if (rui_ref_has(c, 2) && rui_ref_count(&c->in[2].type) > 0) {
        RU_TRY(rui_ref_in(c, 2, &scales, err));
    } else {
        RU_TRY(rui_ref_in(c, 3, &sizes, err));
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

static ru_status make_plans(const ru_ref_call *c, axis_plan *a, ru_err *err)
{
    const ru_type *x = &c->in[0].type, *y = &c->out[0].type;
    resize_mode mode = NEAREST;
    uint32_t axes[RU_RANK_MAX], n_axes;
    double *roi;
    RU_TRY(mode_of(c->node, &mode, err));
    RU_TRY(rui_ref_in(c, 1, &roi, err));
    roi = roi != NULL && rui_ref_count(&c->in[1].type) > 0 ? roi : NULL;
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
    for (uint32_t k = 0; given != NULL && k < n_axes; k++) {
        RU_TRY(rui_ref_axis(c, given[k], x->rank, &axes[k], err));
    }
    for (uint32_t k = 0; roi != NULL && k < n_axes; k++) {
        a[axes[k]].roi_begin = roi[k];
        a[axes[k]].roi_end = roi[n_axes + k];
    }
    return fill_scales(c, axes, n_axes, a, err);
}

/* One output element: the sum over the product of the taps of its axes. */
static double element(const double *x, const axis_plan *a, const axis_taps *t, const int64_t *at,
                      uint32_t rank)
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
            off = off * a[d].in + t[d].index[k];
        }
        sum += weight * x[off];
    } while (rui_walk_next(&w));
    return sum;
}

ru_status rui_ref_Resize(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->out[0].type;
    axis_plan a[RU_RANK_MAX];
    axis_taps taps[RU_RANK_MAX];
    double *x, *y, extra = ru_node_float(c->node, RU_ATTR_extrapolation_value, 0.0);
    RU_TRY(make_plans(c, a, err));
    for (uint32_t d = 0; d < t->rank; d++) {
        RU_TRY(make_taps(c, &a[d], &taps[d], err));
    }
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(t), &y, err));
    rui_walk w;
    rui_walk_init(&w, t->dims, t->rank);
    for (int64_t i = 0; i < rui_ref_count(t); i++) {
        bool outside = false;
        for (uint32_t d = 0; d < t->rank; d++) {
            outside = outside || taps[d].outside[w.at[d]];
        }
        y[i] = outside ? extra : element(x, a, taps, w.at, t->rank);
        rui_walk_next(&w);
    }
    rui_ref_store(&c->out[0], y);
    return RU_OK;
}
