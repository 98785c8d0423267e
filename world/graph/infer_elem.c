/* Shape rules of element-wise ops, updates and the "shaped like input k" gradients. */
#include "world/graph/infer_impl.h"

ru_status rui_shape_same(const rui_infer *c)
{
    const ru_type *t = rui_in(c, 0);
    if (t == NULL) {
        return rui_infer_fail(c, "input 0 is absent");
    }
    rui_set_out(c, 0, t);
    return RU_OK;
}

ru_status rui_shape_same_bool(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    t.dtype = RU_BOOL;
    rui_set_out(c, 0, &t);
    return RU_OK;
}

static ru_status broadcast_all(const rui_infer *c, ru_type *out, bool one_dtype)
{
    ru_type t = *rui_in(c, 0);
    for (uint32_t k = 1; k < c->n.n_in; k++) {
        const ru_type *u = rui_in(c, k);
        if (u == NULL) {
            return rui_infer_fail(c, "input %u is absent", k);
        }
        if (one_dtype && u->dtype != t.dtype) {
            return rui_infer_fail(c, "inputs have types %s and %s, expected equal types",
                                  ru_dtype_name(t.dtype), ru_dtype_name(u->dtype));
        }
        RU_TRY(rui_broadcast(c, &t, u, &t));
    }
    *out = t;
    return RU_OK;
}

ru_status rui_shape_broadcast(const rui_infer *c)
{
    ru_type t;
    RU_TRY(broadcast_all(c, &t, true));
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_broadcast_bool(const rui_infer *c)
{
    ru_type t;
    RU_TRY(broadcast_all(c, &t, true));
    t.dtype = RU_BOOL;
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* Pow: the exponent may have another type. */
ru_status rui_shape_broadcast_first(const rui_infer *c)
{
    ru_type t;
    RU_TRY(broadcast_all(c, &t, false));
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_where(const rui_infer *c)
{
    const ru_type *cond = rui_in(c, 0);
    const ru_type *a = rui_in(c, 1);
    const ru_type *b = rui_in(c, 2);
    if (cond->dtype != RU_BOOL) {
        return rui_infer_fail(c, "the condition is %s, expected bool", ru_dtype_name(cond->dtype));
    }
    if (a->dtype != b->dtype) {
        return rui_infer_fail(c, "inputs have types %s and %s, expected equal types",
                              ru_dtype_name(a->dtype), ru_dtype_name(b->dtype));
    }
    ru_type t;
    RU_TRY(rui_broadcast(c, a, b, &t));
    RU_TRY(rui_broadcast(c, &t, cond, &t));
    rui_set_out(c, 0, &t);
    return RU_OK;
}

static ru_status like(const rui_infer *c, uint32_t k)
{
    const ru_type *t = rui_in(c, k);
    if (t == NULL) {
        return rui_infer_fail(c, "input %u is absent", k);
    }
    rui_set_out(c, 0, t);
    return RU_OK;
}

ru_status rui_shape_like1(const rui_infer *c)
{
    return like(c, 1);
}

ru_status rui_shape_like2(const rui_infer *c)
{
    return like(c, 2);
}

ru_status rui_shape_scalar_f32(const rui_infer *c)
{
    ru_type t = ru_type_scalar(RU_F32);
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* Losses over two tensors of one shape. */
ru_status rui_shape_scalar_loss(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    const ru_type *y = rui_in(c, 1);
    if (x == NULL || y == NULL) {
        return rui_infer_fail(c, "prediction and target are both needed");
    }
    bool same = x->rank == y->rank;
    for (uint32_t i = 0; same && i < x->rank; i++) {
        int64_t d;
        same = x->dims[i] == y->dims[i] || (rui_broadcast_dim(x->dims[i], y->dims[i], &d) &&
                                            x->dims[i] != 1 && y->dims[i] != 1);
    }
    return same ? rui_shape_scalar_f32(c)
                : rui_infer_fail(c, "prediction and target must have one shape");
}

/* SoftmaxCrossEntropy: loss, probs, correct, count. */
ru_status rui_shape_sce(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    const ru_type *labels = rui_in(c, 1);
    if (x == NULL || labels == NULL || x->rank == 0 || labels->rank + 1 != x->rank) {
        return rui_infer_fail(c, "expected logits [.., classes] and labels [..]");
    }
    if (!ru_dtype_is_int(labels->dtype)) {
        return rui_infer_fail(c, "labels are %s, expected integers", ru_dtype_name(labels->dtype));
    }
    for (uint32_t i = 0; i < labels->rank; i++) {
        int64_t d;
        if (!rui_broadcast_dim(x->dims[i], labels->dims[i], &d)) {
            return rui_infer_fail(c, "logits and labels differ at axis %u", i);
        }
    }
    ru_type s = ru_type_scalar(RU_F32);
    rui_set_out(c, 0, &s);
    rui_set_out(c, 1, x);
    rui_set_out(c, 2, &s);
    rui_set_out(c, 3, &s);
    return RU_OK;
}

static ru_status copy_types(const rui_infer *c, const uint32_t *from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const ru_type *t = rui_in(c, from[i]);
        if (t != NULL) {
            rui_set_out(c, i, t);
        } else if (ru_node_has_out(&c->n, i)) {
            return rui_infer_fail(c, "output %u needs input %u, which is absent", i, from[i]);
        }
    }
    return RU_OK;
}

ru_status rui_shape_update2(const rui_infer *c)
{
    return copy_types(c, (const uint32_t[]){2, 4}, 2);
}

ru_status rui_shape_update2or3(const rui_infer *c)
{
    return copy_types(c, (const uint32_t[]){2, 4, 5}, 3);
}

ru_status rui_shape_update3(const rui_infer *c)
{
    return copy_types(c, (const uint32_t[]){3, 5, 6}, 3);
}

ru_status rui_shape_batchnormgrad(const rui_infer *c)
{
    return copy_types(c, (const uint32_t[]){1, 2, 2, 1}, 4);
}

ru_status rui_shape_layernormgrad(const rui_infer *c)
{
    return copy_types(c, (const uint32_t[]){1, 2, 2}, 3);
}

ru_status rui_shape_groupnormgrad(const rui_infer *c)
{
    return copy_types(c, (const uint32_t[]){1, 2, 2}, 3);
}

ru_status rui_shape_attentiongrad(const rui_infer *c)
{
    return copy_types(c, (const uint32_t[]){1, 2, 3}, 3);
}

ru_status rui_shape_cast(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    t.dtype = ru_dtype_from_onnx((int32_t)ru_node_int(&c->n, RU_ATTR_to, 0));
    if (t.dtype == RU_NONE) {
        return rui_infer_fail(c, "attribute to = %lld is not a supported element type",
                              (long long)ru_node_int(&c->n, RU_ATTR_to, 0));
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_castlike(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    t.dtype = rui_in(c, 1)->dtype;
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_dropout(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    rui_set_out(c, 0, &t);
    t.dtype = RU_BOOL;
    rui_set_out(c, 1, &t);
    return RU_OK;
}

ru_status rui_shape_dropouttrain(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    rui_set_out(c, 0, &t);
    t.dtype = RU_U8;
    rui_set_out(c, 1, &t);
    return RU_OK;
}

/* One scale for `block` neighbours along the axis, all else as x. */
static ru_status blocks_check(const rui_infer *c, int64_t block)
{
    const ru_type *x = rui_in(c, 0), *s = rui_in(c, 1), *zero = rui_in(c, 2);
    uint32_t axis;
    RU_TRY(rui_axis(c, ru_node_int(&c->n, RU_ATTR_axis, 1), x->rank, &axis));
    bool fits = block > 0 && s->rank == x->rank && (zero == NULL || zero->rank == s->rank);
    for (uint32_t d = 0; fits && d < x->rank; d++) {
        int64_t n = d == axis && x->dims[d] > 0 ? (x->dims[d] - 1) / block + 1 : x->dims[d];
        fits = n < 0 || s->dims[d] < 0 || s->dims[d] == n;
        fits = fits &&
               (zero == NULL || zero->dims[d] < 0 || s->dims[d] < 0 || zero->dims[d] == s->dims[d]);
    }
    return fits
               ? RU_OK
               : rui_infer_fail(c,
                                "with block_size %lld, scale and zero point must have the shape of "
                                "the data, of which axis %u is divided by it",
                                (long long)block, axis);
}

static ru_status quantised(const rui_infer *c, bool into)
{
    const ru_type *x = rui_in(c, 0), *s = rui_in(c, 1), *zero = rui_in(c, 2);
    ru_dtype q = into ? RU_U8 : x->dtype;
    int64_t named = ru_node_int(&c->n, RU_ATTR_output_dtype, 0);
    if (into && zero != NULL) {
        q = zero->dtype;
    } else if (into && named != 0) {
        q = ru_dtype_from_onnx((int32_t)named);
    }
    int64_t block = ru_node_int(&c->n, RU_ATTR_block_size, 0);
    bool small = q == RU_U8 || q == RU_I8 || q == RU_U16 || q == RU_I16;
    if (!(small || (!into && q == RU_I32)) || !ru_dtype_is_float(s->dtype) ||
        (s->rank > 1 && block == 0) || (zero != NULL && zero->dtype != q)) {
        return rui_infer_fail(
            c, "only integers of 8 and 16 bits with one scale, one per element of an "
               "axis or one per block are supported; quantise with those");
    }
    if (block != 0) {
        RU_TRY(blocks_check(c, block));
    }
    int64_t n = ru_type_count(s), n_zero = zero != NULL ? ru_type_count(zero) : n;
    uint32_t axis = 0;
    if (n != 1 && block == 0) {
        RU_TRY(rui_axis(c, ru_node_int(&c->n, RU_ATTR_axis, 1), x->rank, &axis));
    }
    bool fits = n == 1 || n < 0 || block != 0 || x->dims[axis] < 0 || x->dims[axis] == n;
    if (!fits || (n >= 0 && n_zero >= 0 && n != n_zero)) {
        return rui_infer_fail(c, "%lld scales and %lld zero points do not fit the data",
                              (long long)n, (long long)n_zero);
    }
    ru_type t = *x;
    t.dtype = into ? q : s->dtype;
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_quantizelinear(const rui_infer *c)
{
    return quantised(c, true);
}

ru_status rui_shape_dequantizelinear(const rui_infer *c)
{
    return quantised(c, false);
}

ru_status rui_shape_dynamicquantizelinear(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0), one = {.dtype = t.dtype};
    if (t.dtype != RU_F32) {
        return rui_infer_fail(c, "expected f32");
    }
    t.dtype = RU_U8;
    rui_set_out(c, 0, &t);
    rui_set_out(c, 1, &one);
    one.dtype = RU_U8;
    rui_set_out(c, 2, &one);
    return RU_OK;
}

ru_status rui_shape_eyelike(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    if (t.rank != 2) {
        return rui_infer_fail(c, "expected a matrix");
    }
    int64_t to = ru_node_int(&c->n, RU_ATTR_dtype, 0);
    if (to != 0) {
        t.dtype = ru_dtype_from_onnx((int32_t)to);
    }
    rui_set_out(c, 0, &t);
    return t.dtype != RU_NONE ? RU_OK
                              : rui_infer_fail(c, "dtype %lld is not supported", (long long)to);
}
