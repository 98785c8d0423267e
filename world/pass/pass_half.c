/* Arithmetic on f16 as arithmetic on f32 between two casts: kernels compute in f32, and each result
 * is rounded once, as the node's own would be. Constants are widened here. */
#include "world/pass/rewrite_impl.h"

/* Do kernels move the elements of this op as they are, or is their type part of its meaning? */
static bool moves(ru_op op)
{
    static const ru_op ops[] = {RU_OP_Cast,
                                RU_OP_CastLike,
                                RU_OP_Compress,
                                RU_OP_Concat,
                                RU_OP_Constant,
                                RU_OP_DepthToSpace,
                                RU_OP_ConstantOfShape,
                                RU_OP_Dropout,
                                RU_OP_Expand,
                                RU_OP_EyeLike,
                                RU_OP_Flatten,
                                RU_OP_Gather,
                                RU_OP_GatherElements,
                                RU_OP_GatherND,
                                RU_OP_Identity,
                                RU_OP_OneHot,
                                RU_OP_Pad,
                                RU_OP_Range,
                                RU_OP_Reshape,
                                RU_OP_ReverseSequence,
                                RU_OP_Shape,
                                RU_OP_Size,
                                RU_OP_Slice,
                                RU_OP_SpaceToDepth,
                                RU_OP_Split,
                                RU_OP_Squeeze,
                                RU_OP_Tile,
                                RU_OP_Transpose,
                                RU_OP_Trilu,
                                RU_OP_Unsqueeze,
                                RU_OP_Where,
                                RU_OP_ScatterElements,
                                RU_OP_ScatterND,
                                RU_OP_QuantizeLinear,
                                RU_OP_DequantizeLinear};
    for (uint32_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (ops[i] == op) {
            return true;
        }
    }
    return false;
}

static ru_value_id constant_of(rui_rw *rw, const ru_value *v)
{
    int64_t n = ru_type_count(&v->type);
    ru_type t = v->type;
    float *to = ru_arena_alloc(rw->g.arena, n * (int64_t)sizeof *to, 64);
    t.dtype = RU_F32;
    for (int64_t i = 0; to != NULL && i < n; i++) {
        to[i] = ru_f16_to_f32(((const uint16_t *)v->data)[i]);
    }
    return rui_rw_const(rw, t, to);
}

static ru_value_id wide(rui_rw *rw, uint32_t i, ru_value_id id)
{
    const ru_value *v = &rw->g.values[id.v];
    if (id.v == 0 || v->type.dtype != RU_F16) {
        return id;
    }
    if (v->kind == RU_VALUE_CONST && v->data != NULL && ru_type_count(&v->type) > 0) {
        return constant_of(rw, v);
    }
    const ru_attr to = {
        .key = RU_ATTR_to, .kind = RU_ATTR_INT, .n = 1, .u.i = ru_dtype_onnx(RU_F32)};
    return rui_rw_insert(rw, i, RU_OP_Cast, &id, 1, &to, 1);
}

static void half(rui_rw *rw, uint32_t i)
{
    const ru_node n = rw->g.nodes[i];
    bool made = rui_rw_type(rw, n.out[0])->dtype == RU_F16;
    uint32_t count;
    ru_value_id in[8];
    ru_attr *attrs = rui_rw_attrs(rw, &n, NULL, 0, &count);
    for (uint32_t k = 0; k < n.n_in; k++) {
        in[k] = wide(rw, i, n.in[k]);
    }
    if (rw->status != RU_OK) {
        return;
    }
    if (!made) {
        rui_rw_set(rw, i, n.op, in, n.n_in, attrs, count, n.out, n.n_out);
        return;
    }
    const ru_attr back = {
        .key = RU_ATTR_to, .kind = RU_ATTR_INT, .n = 1, .u.i = ru_dtype_onnx(RU_F16)};
    ru_value_id y = rui_rw_insert(rw, i, n.op, in, n.n_in, attrs, count);
    if (rw->status == RU_OK) {
        rui_rw_set(rw, i, RU_OP_Cast, &y, 1, &back, 1, n.out, 1);
    }
}

static bool fits(const rui_rw *rw, const ru_node *n)
{
    bool some = false;
    for (uint32_t k = 0; k < n->n_in && k < 8; k++) {
        some = some || (n->in[k].v != 0 && rui_rw_type(rw, n->in[k])->dtype == RU_F16);
    }
    for (uint32_t k = 1; k < n->n_out; k++) {
        some = some && n->out[k].v == 0;
    }
    return some && n->n_in <= 8 && n->n_out > 0 && n->out[0].v != 0 && !moves(n->op);
}

void rui_half_round(rui_rw *rw)
{
    for (uint32_t i = 1; i < rw->g.n_nodes && rw->status == RU_OK; i++) {
        if (fits(rw, &rw->g.nodes[i])) {
            half(rw, i);
        }
    }
}
