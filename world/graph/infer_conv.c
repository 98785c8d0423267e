/* Shape rules of convolutions, pooling, resizing and normalisations over channels. */
#include "world/graph/infer_impl.h"

#include <math.h>
#include <string.h>

/* Attributes of a window sliding over the spatial axes, checked. */
typedef struct window {
    uint32_t n; /* spatial axes */
    int64_t k[RU_RANK_MAX], s[RU_RANK_MAX], d[RU_RANK_MAX], lo[RU_RANK_MAX], hi[RU_RANK_MAX];
    const char *auto_pad;
    bool ceil;
} window;

/* Read an ints attribute of `n` entries >= low into `into`, `dflt` when it is not set. */
static ru_status read_ints(const rui_infer *c, ru_attr_key key, uint32_t n, int64_t low,
                           int64_t dflt, int64_t *into)
{
    uint32_t got;
    const int64_t *v = ru_node_ints(&c->n, key, &got);
    if (v != NULL && got != n) {
        return rui_infer_fail(c, "attribute %s has %u entries, expected %u", ru_attr_name(key), got,
                              n);
    }
    for (uint32_t i = 0; i < n; i++) {
        into[i] = v != NULL ? v[i] : dflt;
        if (into[i] < low || into[i] > INT32_MAX) {
            return rui_infer_fail(c, "attribute %s has entry %lld, expected %lld..2^31-1",
                                  ru_attr_name(key), (long long)into[i], (long long)low);
        }
    }
    return RU_OK;
}

/* `kernel`: default kernel size (weights' spatial dims), or NULL when the attribute must be set. */
static ru_status window_read(const rui_infer *c, uint32_t rank, const int64_t *kernel, window *w)
{
    if (rank < 3) {
        return rui_infer_fail(c, "expected [batch, channels, spatial...]");
    }
    *w = (window){.n = rank - 2};
    uint32_t got;
    const int64_t *k = ru_node_ints(&c->n, RU_ATTR_kernel_shape, &got);
    if (k == NULL && kernel == NULL) {
        return rui_infer_fail(c, "attribute kernel_shape is missing");
    }
    RU_TRY(read_ints(c, RU_ATTR_kernel_shape, w->n, 1, 1, w->k));
    for (uint32_t i = 0; kernel != NULL && i < w->n; i++) {
        if (k != NULL && k[i] != kernel[i]) {
            return rui_infer_fail(c, "attribute kernel_shape differs from the weights");
        }
        w->k[i] = kernel[i];
        if (w->k[i] < 1) {
            return rui_infer_fail(c, "the kernel's axis %u is not a positive number", i);
        }
    }
    RU_TRY(read_ints(c, RU_ATTR_strides, w->n, 1, 1, w->s));
    RU_TRY(read_ints(c, RU_ATTR_dilations, w->n, 1, 1, w->d));
    int64_t pads[2 * RU_RANK_MAX];
    RU_TRY(read_ints(c, RU_ATTR_pads, 2 * w->n, 0, 0, pads));
    memcpy(w->lo, pads, sizeof(int64_t) * w->n);
    memcpy(w->hi, pads + w->n, sizeof(int64_t) * w->n);
    w->auto_pad = ru_node_str(&c->n, RU_ATTR_auto_pad, "NOTSET");
    w->ceil = ru_node_int(&c->n, RU_ATTR_ceil_mode, 0) != 0;
    return RU_OK;
}

/* Output size of spatial axis i for input size `in`. */
static ru_status window_out(const rui_infer *c, const window *w, uint32_t i, int64_t in,
                            int64_t *out)
{
    int64_t eff = (w->k[i] - 1) * w->d[i] + 1;
    if (strncmp(w->auto_pad, "SAME", 4) == 0) {
        return rui_dim_floordiv(c, in, w->s[i], true, out);
    }
    bool pad = strcmp(w->auto_pad, "VALID") != 0;
    int64_t room;
    RU_TRY(rui_dim_sum(c, in, (pad ? w->lo[i] + w->hi[i] : 0) - eff, &room));
    if (!ru_dim_is_symbolic(room) && room < 0) {
        return rui_infer_fail(c, "the window of %lld is larger than axis %u of %lld with its pads",
                              (long long)eff, i + 2, (long long)in);
    }
    int64_t q;
    RU_TRY(rui_dim_floordiv(c, room, w->s[i], w->ceil, &q));
    RU_TRY(rui_dim_sum(c, q, 1, out));
    bool known = !ru_dim_is_symbolic(*out) && !ru_dim_is_symbolic(in);
    if (w->ceil && pad && known && (*out - 1) * w->s[i] >= in + w->lo[i]) {
        *out -= 1; /* a window that would start in the padding does not count */
    }
    return RU_OK;
}

/* A dimension that is not known must turn out right: binding infers again and checks. */
static bool may_equal(int64_t a, int64_t b)
{
    return a == b || ru_dim_is_symbolic(a) || ru_dim_is_symbolic(b);
}

/* Output 0 of a convolution of inputs 0 and 1. */
static ru_status conv_result(const rui_infer *c, ru_dtype dtype)
{
    const ru_type *x = rui_in(c, 0);
    const ru_type *k = rui_in(c, 1);
    if (x->rank != k->rank || x->rank < 3) {
        return rui_infer_fail(c, "input and weights must have one rank of at least 3");
    }
    window w;
    RU_TRY(window_read(c, x->rank, k->dims + 2, &w));
    int64_t group = ru_node_int(&c->n, RU_ATTR_group, 1);
    if (group < 1 || !may_equal(ru_dim_mul(k->dims[1], group), x->dims[1]) ||
        k->dims[0] % group != 0) {
        return rui_infer_fail(c, "channels do not match the weights in %lld groups",
                              (long long)group);
    }
    ru_type t = {.dtype = dtype, .rank = x->rank, .dims = {x->dims[0], k->dims[0]}};
    for (uint32_t i = 0; i < w.n; i++) {
        RU_TRY(window_out(c, &w, i, x->dims[i + 2], &t.dims[i + 2]));
    }
    if (dtype == x->dtype) {
        RU_TRY(rui_fused_check(c, 2, k->dims[0], 3, &t));
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_conv(const rui_infer *c)
{
    return conv_result(c, rui_in(c, 0)->dtype);
}

/* The dtype that attribute `to` names; bias and scale of an 8-bit product fit `channels`. */
static ru_status int8_result(const rui_infer *c, int64_t channels, ru_type *t)
{
    const ru_type *x = rui_in(c, 0), *w = rui_in(c, 1), *s = rui_in(c, 2), *bias = rui_in(c, 3);
    t->dtype = ru_dtype_from_onnx((int32_t)ru_node_int(&c->n, RU_ATTR_to, 1));
    bool fits = (x->dtype == RU_U8 || x->dtype == RU_I8) && w->dtype == RU_I8 &&
                s->dtype == RU_F32 && s->rank <= 1 &&
                (ru_type_count(s) == 1 || ru_type_count(s) == channels);
    fits = fits && (bias == NULL || (bias->dtype == RU_I32 && ru_type_count(bias) == channels));
    fits = fits && (t->dtype == RU_F32 || t->dtype == RU_U8 || t->dtype == RU_I8);
    return fits ? RU_OK : rui_infer_fail(c, "types of an 8-bit product do not fit");
}

ru_status rui_shape_convint8(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0), *k = rui_in(c, 1);
    window w;
    if (x->rank != k->rank || x->rank < 3) {
        return rui_infer_fail(c, "input and weights must have one rank of at least 3");
    }
    RU_TRY(window_read(c, x->rank, k->dims + 2, &w));
    ru_type t = {.rank = x->rank, .dims = {x->dims[0], k->dims[0]}};
    int64_t group = ru_node_int(&c->n, RU_ATTR_group, 1);
    if (!may_equal(ru_dim_mul(k->dims[1], group), x->dims[1]) || k->dims[0] % group != 0) {
        return rui_infer_fail(c, "channels do not match the weights in %lld groups",
                              (long long)group);
    }
    RU_TRY(int8_result(c, k->dims[0], &t));
    for (uint32_t i = 0; i < w.n; i++) {
        RU_TRY(window_out(c, &w, i, x->dims[i + 2], &t.dims[i + 2]));
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

static bool is_byte(const ru_type *t)
{
    return t->dtype == RU_U8 || t->dtype == RU_I8;
}

/* Zero point k of data `of`: the same type; one number, or one of `n` where it may. */
static ru_status zero_point(const rui_infer *c, uint32_t k, const ru_type *of, int64_t n)
{
    const ru_type *z = rui_in(c, k);
    int64_t count = z != NULL ? ru_type_count(z) : 1;
    return z == NULL || (z->dtype == of->dtype && z->rank <= 1 &&
                         (count == 1 || n < 0 || count < 0 || count == n))
               ? RU_OK
               : rui_infer_fail(c, "zero point (input %u) does not fit its data", k);
}

ru_status rui_shape_convinteger(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0), *k = rui_in(c, 1);
    if (!is_byte(x) || !is_byte(k)) {
        return rui_infer_fail(c, "expected integers of 8 bits");
    }
    RU_TRY(zero_point(c, 2, x, 1));
    RU_TRY(zero_point(c, 3, k, k->rank > 0 ? k->dims[0] : 1));
    return conv_result(c, RU_I32);
}

ru_status rui_shape_matmulint8(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    const ru_type *b = rui_in(c, 1);
    uint32_t last = ru_node_int(&c->n, RU_ATTR_transB, 0) != 0 ? 0 : 1;
    if (t.rank < 2 || b->rank != 2 || !may_equal(t.dims[t.rank - 1], b->dims[1 - last])) {
        return rui_infer_fail(c, "expected [.., K] and a matrix of K rows");
    }
    t.dims[t.rank - 1] = b->dims[last];
    RU_TRY(int8_result(c, b->dims[last], &t));
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* Bytes that become bytes. */
static ru_status bytes_result(const rui_infer *c, ru_type *t)
{
    ru_dtype to = ru_dtype_from_onnx((int32_t)ru_node_int(&c->n, RU_ATTR_to, 2));
    const ru_type *b = rui_in(c, 1);
    if (!is_byte(t) || (b != NULL && !is_byte(b)) || (to != RU_U8 && to != RU_I8)) {
        return rui_infer_fail(c, "expected integers of 8 bits");
    }
    t->dtype = to;
    rui_set_out(c, 0, t);
    return RU_OK;
}

ru_status rui_shape_addint8(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0), b = *rui_in(c, 1);
    RU_TRY(rui_broadcast(c, &t, &b, &t));
    return bytes_result(c, &t);
}

ru_status rui_shape_mapint8(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    return bytes_result(c, &t);
}

ru_status rui_shape_meanint8(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    for (uint32_t d = 2; d < t.rank; d++) {
        t.dims[d] = 1;
    }
    return bytes_result(c, &t);
}

ru_status rui_shape_convtranspose(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    const ru_type *k = rui_in(c, 1);
    if (x->rank != k->rank || x->rank < 3) {
        return rui_infer_fail(c, "input and weights must have one rank of at least 3");
    }
    window w;
    RU_TRY(window_read(c, x->rank, k->dims + 2, &w));
    int64_t group = ru_node_int(&c->n, RU_ATTR_group, 1);
    if (group < 1 || !may_equal(k->dims[0], x->dims[1]) || k->dims[0] % group != 0) {
        return rui_infer_fail(c, "channels do not match the weights in %lld groups",
                              (long long)group);
    }
    int64_t extra[RU_RANK_MAX];
    RU_TRY(read_ints(c, RU_ATTR_output_padding, w.n, 0, 0, extra));
    uint32_t n_shape;
    const int64_t *shape = ru_node_ints(&c->n, RU_ATTR_output_shape, &n_shape);
    if (shape != NULL && n_shape != w.n) {
        return rui_infer_fail(c, "attribute output_shape has %u entries, expected %u", n_shape,
                              w.n);
    }
    int64_t channels = ru_dim_mul(k->dims[1], group);
    ru_type t = {.dtype = x->dtype, .rank = x->rank, .dims = {x->dims[0], channels}};
    for (uint32_t i = 0; i < w.n; i++) {
        int64_t in = x->dims[i + 2];
        int64_t grown = ru_dim_mul(in, w.s[i]);
        if (grown == RU_DIM_UNKNOWN) {
            return rui_infer_fail(c, "axis %u of the output would be too large", i + 2);
        }
        int64_t add = extra[i] + (w.k[i] - 1) * w.d[i] + 1 - w.s[i] - w.lo[i] - w.hi[i];
        bool same = strncmp(w.auto_pad, "SAME", 4) == 0;
        if (shape != NULL) {
            t.dims[i + 2] = shape[i];
        } else {
            RU_TRY(rui_dim_sum(c, grown, same ? 0 : add, &t.dims[i + 2]));
        }
        if (!ru_dim_is_symbolic(t.dims[i + 2]) && t.dims[i + 2] < 0) {
            return rui_infer_fail(c, "axis %u of the output would be negative", i + 2);
        }
    }
    RU_TRY(rui_fused_check(c, 2, channels, 3, &t));
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_convgradw(const rui_infer *c)
{
    const ru_type *dy = rui_in(c, 0);
    const ru_type *like = rui_in(c, 2);
    if (dy == NULL || like == NULL || dy->rank < 3) {
        return rui_infer_fail(c, "expected dy, x and w_like");
    }
    rui_set_out(c, 0, like);
    ru_type b = {.dtype = like->dtype, .rank = 1, .dims = {dy->dims[1]}};
    rui_set_out(c, 1, &b);
    return RU_OK;
}

/* Pads are smaller than the kernel, and every window holds an element: what holds none has neither
 * a maximum nor a mean. `n` windows over axis i of size `in`. */
static ru_status pool_check(const rui_infer *c, const window *w, uint32_t i, int64_t in, int64_t n)
{
    if (strcmp(w->auto_pad, "NOTSET") != 0) {
        return RU_OK;
    }
    if (w->lo[i] >= w->k[i] || w->hi[i] >= w->k[i]) {
        return rui_infer_fail(c,
                              "pads %lld and %lld of axis %u must be smaller than its kernel %lld",
                              (long long)w->lo[i], (long long)w->hi[i], i + 2, (long long)w->k[i]);
    }
    int64_t reach = (w->k[i] - 1) * w->d[i];
    bool known = !ru_dim_is_symbolic(in) && !ru_dim_is_symbolic(n);
    for (int64_t o = 0; known && o < n; o++) {
        int64_t first = o * w->s[i] - w->lo[i], held = 0;
        if (first >= 0 && first < in) { /* so do all up to the right end */
            int64_t last = (in - 1 + w->lo[i]) / w->s[i];
            o = last > o ? last : o;
            continue;
        }
        for (int64_t at = first; at <= first + reach && at < in && held == 0; at += w->d[i]) {
            held = at >= 0 ? 1 : 0;
        }
        if (held == 0) {
            return rui_infer_fail(c, "window %lld of axis %u would hold nothing but padding",
                                  (long long)o, i + 2);
        }
    }
    return RU_OK;
}

ru_status rui_shape_pool(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    window w;
    RU_TRY(window_read(c, x->rank, NULL, &w));
    ru_type t = *x;
    for (uint32_t i = 0; i < w.n; i++) {
        RU_TRY(window_out(c, &w, i, x->dims[i + 2], &t.dims[i + 2]));
        RU_TRY(pool_check(c, &w, i, x->dims[i + 2], t.dims[i + 2]));
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_maxpool(const rui_infer *c)
{
    RU_TRY(rui_shape_pool(c));
    if (ru_node_has_out(&c->n, 1)) {
        ru_type t = c->g->values[c->n.out[0].v].type;
        t.dtype = RU_I64;
        rui_set_out(c, 1, &t);
    }
    return RU_OK;
}

ru_status rui_shape_globalpool(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    if (t.rank < 2) {
        return rui_infer_fail(c, "expected [batch, channels, spatial...]");
    }
    for (uint32_t i = 2; i < t.rank; i++) {
        t.dims[i] = 1;
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* -- Resize ------------------------------------------------------------------------------------ */

/* Axis numbered `i` in the list the node gives (attribute axes), or i itself. */
static ru_status listed_axis(const rui_infer *c, const int64_t *axes, uint32_t i, uint32_t rank,
                             uint32_t *axis)
{
    *axis = i;
    return axes != NULL ? rui_axis(c, axes[i], rank, axis) : RU_OK;
}

static ru_status resize_sizes(const rui_infer *c, const int64_t *axes, uint32_t n_axes, ru_type *t)
{
    uint32_t n;
    const int64_t *sizes = rui_known(c, 3, &n);
    if (sizes != NULL && n != n_axes) {
        return rui_infer_fail(c, "sizes has %u entries, expected %u", n, n_axes);
    }
    const char *policy = ru_node_str(&c->n, RU_ATTR_keep_aspect_ratio_policy, "stretch");
    bool stretch = strcmp(policy, "stretch") == 0;
    double scale = 0.0;
    for (uint32_t i = 0; i < n_axes; i++) {
        uint32_t a;
        RU_TRY(listed_axis(c, axes, i, t->rank, &a));
        int64_t s = sizes != NULL ? sizes[i] : RU_DIM_UNKNOWN;
        if (s == RU_DIM_UNKNOWN) {
            RU_TRY(rui_dim_fresh(c, 0, a, &t->dims[a]));
            continue;
        }
        if (!stretch) {
            double r = (double)s / (double)t->dims[a];
            bool take = i == 0 || (strcmp(policy, "not_larger") == 0 ? r < scale : r > scale);
            scale = take ? r : scale;
            continue;
        }
        t->dims[a] = s;
    }
    for (uint32_t i = 0; !stretch && sizes != NULL && i < n_axes; i++) {
        uint32_t a;
        RU_TRY(listed_axis(c, axes, i, t->rank, &a));
        double made = floor(scale * (double)t->dims[a] + 0.5);
        if (!(made >= 0.0 && made < 1e15)) {
            return rui_infer_fail(c, "axis %u of the output would be too large or negative", a);
        }
        t->dims[a] = (int64_t)made;
    }
    return RU_OK;
}

static ru_status resize_scales(const rui_infer *c, const int64_t *axes, uint32_t n_axes, ru_type *t)
{
    uint32_t n = 0;
    const double *scales = rui_const_floats(c, 2, &n);
    if (scales != NULL && n != n_axes) {
        return rui_infer_fail(c, "scales has %u entries, expected %u", n, n_axes);
    }
    for (uint32_t i = 0; i < n_axes; i++) {
        uint32_t a;
        RU_TRY(listed_axis(c, axes, i, t->rank, &a));
        int64_t d = t->dims[a];
        if (scales != NULL && !(scales[i] > 0.0 && scales[i] < 1e6)) {
            return rui_infer_fail(c, "scale %g is not positive", scales[i]);
        }
        double r = scales != NULL ? rint(scales[i]) : 0.0;
        if (scales != NULL && ru_dim_is_symbolic(d) && fabs(scales[i] - r) < 1e-9) {
            t->dims[a] = ru_dim_mul(d, (int64_t)r);
        } else if (scales != NULL && !ru_dim_is_symbolic(d)) {
            double made = floor((double)d * scales[i]);
            if (!(made < 1e15)) {
                return rui_infer_fail(c, "axis %u of the output would be too large", a);
            }
            t->dims[a] = (int64_t)made;
        } else {
            RU_TRY(rui_dim_fresh(c, 0, a, &t->dims[a]));
        }
    }
    return RU_OK;
}

/* The lists that are used have one entry for each axis (roi: first and last). */
static ru_status resize_lists(const rui_infer *c, uint32_t n_axes)
{
    const ru_type *roi = rui_in(c, 1), *scales = rui_in(c, 2), *sizes = rui_in(c, 3);
    const char *mode = ru_node_str(&c->n, RU_ATTR_coordinate_transformation_mode, "half_pixel");
    bool cut = strcmp(mode, "tf_crop_and_resize") == 0;
    if (cut && (roi == NULL || !may_equal(roi->dims[0], 2 * (int64_t)n_axes))) {
        return rui_infer_fail(c, "tf_crop_and_resize needs a roi of %u entries", 2 * n_axes);
    }
    if (scales != NULL && sizes != NULL) {
        return rui_infer_fail(c, "scales and sizes are both given; only one may be");
    }
    const ru_type *used = sizes != NULL ? sizes : scales;
    return used == NULL || may_equal(used->dims[0], n_axes)
               ? RU_OK
               : rui_infer_fail(c, "%s has %lld entries, expected %u",
                                sizes != NULL ? "sizes" : "scales", (long long)used->dims[0],
                                n_axes);
}

ru_status rui_shape_resize(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    uint32_t n_axes;
    const int64_t *axes = ru_node_ints(&c->n, RU_ATTR_axes, &n_axes);
    if (axes == NULL) {
        n_axes = t.rank;
    }
    RU_TRY(resize_lists(c, n_axes));
    if (ru_node_has_in(&c->n, 3)) {
        RU_TRY(resize_sizes(c, axes, n_axes, &t));
    } else if (ru_node_has_in(&c->n, 2)) {
        RU_TRY(resize_scales(c, axes, n_axes, &t));
    } else {
        return rui_infer_fail(c, "scales and sizes are both missing; one is needed");
    }
    for (uint32_t i = 0; i < t.rank; i++) {
        if (t.dims[i] < 0 && !ru_dim_is_symbolic(t.dims[i])) {
            return rui_infer_fail(c, "axis %u of the output would be negative", i);
        }
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* -- back from the places of maxima -------------------------------------------------------------
 */

static ru_status unpool_given(const rui_infer *c, ru_type *t)
{
    uint32_t n;
    const int64_t *size = rui_known(c, 2, &n);
    if (rui_in(c, 2)->dims[0] != (int64_t)t->rank) {
        return rui_infer_fail(c, "output_shape must have %u entries", t->rank);
    }
    for (uint32_t d = 0; d < t->rank; d++) {
        int64_t s = size != NULL ? size[d] : RU_DIM_UNKNOWN;
        if (d < 2 && s != RU_DIM_UNKNOWN && !may_equal(s, t->dims[d])) {
            return rui_infer_fail(c, "entry %u of output_shape is %lld, expected the input's %lld",
                                  d, (long long)s, (long long)t->dims[d]);
        }
        if (d >= 2 && s == RU_DIM_UNKNOWN) {
            RU_TRY(rui_dim_fresh(c, 0, d, &t->dims[d]));
        } else if (d >= 2) {
            t->dims[d] = s;
        }
    }
    return RU_OK;
}

ru_status rui_shape_maxunpool(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    const ru_type *at = rui_in(c, 1);
    window w;
    RU_TRY(window_read(c, t.rank, NULL, &w));
    for (uint32_t i = 0; i < t.rank; i++) {
        if (at->rank != t.rank || !may_equal(at->dims[i], t.dims[i])) {
            return rui_infer_fail(c, "expected an index for each element");
        }
    }
    for (uint32_t i = 0; i < w.n; i++) {
        int64_t steps, more = w.k[i] - w.s[i] - w.lo[i] - w.hi[i];
        RU_TRY(rui_dims_product(c, (int64_t[]){t.dims[i + 2], w.s[i]}, 2, &steps));
        RU_TRY(rui_dim_sum(c, steps, more, &t.dims[i + 2]));
    }
    if (ru_node_has_in(&c->n, 2)) {
        RU_TRY(unpool_given(c, &t));
    }
    for (uint32_t i = 2; i < t.rank; i++) {
        if (!ru_dim_is_symbolic(t.dims[i]) && t.dims[i] < 1) {
            return rui_infer_fail(c, "axis %u of the output would have %lld elements", i,
                                  (long long)t.dims[i]);
        }
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* -- normalisation ----------------------------------------------------------------------------- */

static ru_status channels_check(const rui_infer *c, uint32_t first, uint32_t last)
{
    const ru_type *x = rui_in(c, 0);
    if (x == NULL || x->rank < 2) {
        return rui_infer_fail(c, "expected [batch, channels, ...]");
    }
    for (uint32_t k = first; k <= last; k++) {
        const ru_type *s = rui_in(c, k);
        int64_t d;
        if (s == NULL || s->rank != 1 || !rui_broadcast_dim(s->dims[0], x->dims[1], &d) ||
            (s->dims[0] == 1 && x->dims[1] != 1)) {
            return rui_infer_fail(c, "input %u must have one element per channel", k);
        }
    }
    return RU_OK;
}

ru_status rui_shape_batchnorm(const rui_infer *c)
{
    RU_TRY(channels_check(c, 1, 4));
    RU_TRY(rui_fused_check(c, 0, 0, 5, rui_in(c, 0)));
    rui_set_out(c, 0, rui_in(c, 0));
    rui_set_out(c, 1, rui_in(c, 3));
    rui_set_out(c, 2, rui_in(c, 4));
    return RU_OK;
}

ru_status rui_shape_batchnormtrain(const rui_infer *c)
{
    RU_TRY(channels_check(c, 1, 4));
    RU_TRY(rui_fused_check(c, 0, 0, 5, rui_in(c, 0)));
    rui_set_out(c, 0, rui_in(c, 0));
    rui_set_out(c, 1, rui_in(c, 3));
    rui_set_out(c, 2, rui_in(c, 4));
    ru_type s = *rui_in(c, 3);
    s.dtype = RU_F32;
    rui_set_out(c, 3, &s);
    rui_set_out(c, 4, &s);
    return RU_OK;
}

ru_status rui_shape_groupnorm(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    int64_t groups = ru_node_int(&c->n, RU_ATTR_num_groups, 0);
    if (groups < 1 || (!ru_dim_is_symbolic(x->dims[1]) && x->dims[1] % groups != 0)) {
        return rui_infer_fail(c, "%lld channels do not form %lld groups (attribute num_groups)",
                              (long long)x->dims[1], (long long)groups);
    }
    rui_set_out(c, 0, x);
    return RU_OK;
}

ru_status rui_shape_layernorm(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    uint32_t axis;
    RU_TRY(rui_axis(c, ru_node_int(&c->n, RU_ATTR_axis, -1), t.rank, &axis));
    rui_set_out(c, 0, &t);
    for (uint32_t k = 1; k <= 2; k++) { /* they broadcast to the axes that are normalised */
        const ru_type *s = rui_in(c, k);
        uint32_t more = s != NULL && s->rank > t.rank - axis ? s->rank - (t.rank - axis) : 0;
        for (uint32_t i = 0; i < more; i++) {
            if (s->dims[i] != 1) {
                return rui_infer_fail(c, "input %u must have the shape of axes %u.. of the input",
                                      k, axis);
            }
        }
    }
    for (uint32_t i = axis; i < t.rank; i++) {
        t.dims[i] = 1;
    }
    int64_t stash = ru_node_int(&c->n, RU_ATTR_stash_type, 1);
    t.dtype = ru_dtype_from_onnx((int32_t)stash);
    if (!ru_dtype_is_float(t.dtype)) {
        return rui_infer_fail(c, "attribute stash_type = %lld is not a float type",
                              (long long)stash);
    }
    rui_set_out(c, 1, &t);
    rui_set_out(c, 2, &t);
    return RU_OK;
}
