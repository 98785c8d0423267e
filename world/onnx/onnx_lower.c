#include "world/onnx/onnx_lower.h"

#include <math.h>
#include <string.h>

#include "world/graph/copy_impl.h"
#include "world/pass/pass.h"

/* A node being written out: `g` is the graph that grows, `n` the node as it was. */
typedef struct low {
    ru_graph *g;
    const ru_graph *from;
    const ru_node *n;
    int64_t opset;
    ru_err *err;
} low;

typedef ru_status (*lower_fn)(low *l);

static ru_status refuse(const low *l, const char *why)
{
    return RU_FAIL(l->err, RU_E_UNSUPPORTED, "onnx export: node '%s' (%s) %s",
                   l->n->name != NULL ? l->n->name : "", ru_op_get(l->n->op)->name, why);
}

static const ru_type *type_in(const low *l, uint32_t k)
{
    return &ru_graph_value(l->from, l->n->in[k])->type;
}

/* -- building ---------------------------------------------------------------------------------- */

static ru_attr attr_int(ru_attr_key key, int64_t v)
{
    return (ru_attr){.key = key, .kind = RU_ATTR_INT, .n = 1, .u.i = v};
}

static ru_attr attr_ints(ru_attr_key key, const int64_t *v, uint32_t n)
{
    return (ru_attr){.key = key, .kind = RU_ATTR_INTS, .n = n, .u.is = v};
}

/* One-output node into `out`, which is made when it is absent. */
static ru_status put(low *l, ru_op op, const ru_value_id *in, uint32_t n_in, const ru_attr *attrs,
                     uint32_t n_attrs, ru_value_id *out)
{
    ru_value_id v = *out;
    if (v.v == 0) {
        RU_TRY(ru_graph_add_value(l->g, &(ru_value){.kind = RU_VALUE_TEMP}, &v, l->err));
    }
    ru_node n = {.op = op, /* no name: several nodes must not share the one there was */
                 .in = in,
                 .out = &v,
                 .attrs = attrs,
                 .n_in = n_in,
                 .n_out = 1,
                 .n_attrs = n_attrs};
    RU_TRY(ru_graph_add_node_into(l->g, &n, NULL, l->err));
    *out = v;
    return RU_OK;
}

static ru_status put1(low *l, ru_op op, ru_value_id x, ru_value_id *out)
{
    return put(l, op, &x, 1, NULL, 0, out);
}

static ru_status put2(low *l, ru_op op, ru_value_id x, ru_value_id y, ru_value_id *out)
{
    ru_value_id in[2] = {x, y};
    return put(l, op, in, 2, NULL, 0, out);
}

static ru_status add_const(low *l, const ru_type *t, const void *data, ru_value_id *out)
{
    void *copy = ru_arena_copy(l->g->arena, data, ru_type_bytes(t), 64);
    if (copy == NULL) {
        return RU_FAIL(l->err, RU_E_LIMIT, "onnx export: the arena is full");
    }
    ru_value v = {.type = *t, .kind = RU_VALUE_CONST, .data = copy};
    return ru_graph_add_value(l->g, &v, out, l->err);
}

static ru_status const_i64s(low *l, const int64_t *v, uint32_t n, ru_value_id *out)
{
    ru_type t = {.dtype = RU_I64, .rank = 1, .dims = {n}};
    return add_const(l, &t, v, out);
}

/* A scalar of the float dtype `dtype`. */
static ru_status const_float(low *l, ru_dtype dtype, double x, ru_value_id *out)
{
    ru_type t = {.dtype = dtype};
    float f = (float)x;
    uint16_t half = dtype == RU_F16 ? ru_f32_to_f16(f) : ru_f32_to_bf16(f);
    const void *data = dtype == RU_F64   ? (const void *)&x
                       : dtype == RU_F32 ? (const void *)&f
                                         : (const void *)&half;
    return add_const(l, &t, data, out);
}

/* The node with another op, fewer outputs or other attributes. */
static ru_status put_node(low *l, ru_op op, uint32_t n_in, uint32_t n_out, const ru_attr *attrs,
                          uint32_t n_attrs)
{
    ru_node n = *l->n;
    n.op = op;
    n.n_in = n_in < n.n_in ? n_in : n.n_in;
    n.n_out = n_out < n.n_out ? n_out : n.n_out;
    n.attrs = attrs;
    n.n_attrs = n_attrs;
    return ru_graph_add_node_into(l->g, &n, NULL, l->err);
}

static ru_status keep(low *l)
{
    return ru_graph_add_node_into(l->g, l->n, NULL, l->err);
}

/* Attributes of the node without those of the keys given (end with NONE); *n counts what is left.
 */
static ru_attr *attrs_without(low *l, const ru_attr_key *keys, uint32_t *n)
{
    ru_attr *out = RU_NEW(l->g->arena, ru_attr, l->n->n_attrs + 1);
    *n = 0;
    for (uint32_t k = 0; out != NULL && k < l->n->n_attrs; k++) {
        bool drop = false;
        for (const ru_attr_key *key = keys; *key != RU_ATTR_NONE; key++) {
            drop = drop || l->n->attrs[k].key == *key;
        }
        if (!drop) {
            out[(*n)++] = l->n->attrs[k];
        }
    }
    return out;
}

static ru_status full(const low *l)
{
    return RU_FAIL(l->err, RU_E_LIMIT, "onnx export: the arena is full");
}

static ru_status add_into(low *l)
{
    ru_value_id out = l->n->out[0];
    return put2(l, RU_OP_Add, l->n->in[0], l->n->in[1], &out);
}

/* -- attention --------------------------------------------------------------------------------- */

/* [T,T] with 0 where key j may be seen by query i and a large negative number where j > i. */
static ru_status causal_mask(low *l, ru_dtype dtype, int64_t t, ru_value_id *out)
{
    ru_type type = {.dtype = RU_F32, .rank = 2, .dims = {t, t}};
    float *m = t <= 1 << 15 ? RU_NEW(l->g->arena, float, t *t) : NULL;
    if (m == NULL) {
        return full(l);
    }
    for (int64_t i = 0; i < t; i++) {
        for (int64_t j = i + 1; j < t; j++) {
            m[i * t + j] = dtype == RU_F16 ? -65504.0F : -3.4028235e38F;
        }
    }
    ru_value v = {.type = type, .kind = RU_VALUE_CONST, .data = m};
    RU_TRY(ru_graph_add_value(l->g, &v, out, l->err));
    if (dtype != RU_F32) {
        ru_attr to = attr_int(RU_ATTR_to, ru_dtype_onnx(dtype));
        ru_value_id cast = {0};
        RU_TRY(put(l, RU_OP_Cast, out, 1, &to, 1, &cast));
        *out = cast;
    }
    return RU_OK;
}

/* [B,T,H*D] to [B,H,T,D], or [B,H,D,T] for keys. */
static ru_status heads_split(low *l, ru_value_id x, int64_t heads, int64_t depth, bool key,
                             ru_value_id *out)
{
    const int64_t shape[4] = {0, 0, heads, depth};
    const int64_t perm[2][4] = {{0, 2, 1, 3}, {0, 2, 3, 1}};
    ru_value_id s, r = {0};
    RU_TRY(const_i64s(l, shape, 4, &s));
    RU_TRY(put2(l, RU_OP_Reshape, x, s, &r));
    ru_attr a = attr_ints(RU_ATTR_perm, perm[key ? 1 : 0], 4);
    *out = (ru_value_id){0};
    return put(l, RU_OP_Transpose, &r, 1, &a, 1, out);
}

/* softmax(q k^T * scale + causal + mask) v for q [B,H,T,D], kt [B,H,D,S], v [B,H,S,D]. */
static ru_status attend(low *l, ru_value_id q, ru_value_id kt, ru_value_id v, ru_value_id mask,
                        ru_dtype dtype, int64_t t, int64_t s, int64_t depth, ru_value_id *out)
{
    ru_value_id scores = {0}, scaled = {0}, factor, p = {0};
    RU_TRY(put2(l, RU_OP_MatMul, q, kt, &scores));
    double scale = ru_node_float(l->n, RU_ATTR_scale, 1.0 / sqrt((double)depth));
    RU_TRY(const_float(l, dtype, scale, &factor));
    RU_TRY(put2(l, RU_OP_Mul, scores, factor, &scaled));
    if (ru_node_int(l->n, RU_ATTR_causal, 0) != 0) {
        if (t < 0 || t != s) {
            return refuse(l, "is causal over a sequence whose length is not fixed");
        }
        ru_value_id m, sum = {0};
        RU_TRY(causal_mask(l, dtype, t, &m));
        RU_TRY(put2(l, RU_OP_Add, scaled, m, &sum));
        scaled = sum;
    }
    if (mask.v != 0) {
        ru_value_id sum = {0};
        RU_TRY(put2(l, RU_OP_Add, scaled, mask, &sum));
        scaled = sum;
    }
    ru_attr last = attr_int(RU_ATTR_axis, -1);
    RU_TRY(put(l, RU_OP_Softmax, &scaled, 1, &last, 1, &p));
    return put2(l, RU_OP_MatMul, p, v, out);
}

/* [B,H,T,D] back to [B,T,H*D]. */
static ru_status heads_join(low *l, ru_value_id x, int64_t width, ru_value_id out)
{
    const int64_t perm[4] = {0, 2, 1, 3}, shape[3] = {0, 0, width};
    ru_attr a = attr_ints(RU_ATTR_perm, perm, 4);
    ru_value_id y = {0}, s;
    RU_TRY(put(l, RU_OP_Transpose, &x, 1, &a, 1, &y));
    RU_TRY(const_i64s(l, shape, 3, &s));
    return put2(l, RU_OP_Reshape, y, s, &out);
}

static ru_status attention_bthd(low *l, const ru_value_id qkv[3], ru_value_id mask,
                                const ru_type *tq, int64_t s, int64_t width)
{
    int64_t heads = ru_node_int(l->n, RU_ATTR_heads, 1);
    if (heads < 1 || width < 0 || width % heads != 0) {
        return refuse(l, "has a width that is not a multiple of its heads");
    }
    int64_t depth = width / heads;
    ru_value_id q, kt, v, y = {0};
    RU_TRY(heads_split(l, qkv[0], heads, depth, false, &q));
    RU_TRY(heads_split(l, qkv[1], heads, depth, true, &kt));
    RU_TRY(heads_split(l, qkv[2], heads, depth, false, &v));
    RU_TRY(attend(l, q, kt, v, mask, tq->dtype, tq->dims[1], s, depth, &y));
    return heads_join(l, y, width, l->n->out[0]);
}

static ru_status attention_qkv(low *l)
{
    const ru_type *t = type_in(l, 0);
    int64_t width = t->dims[2] / 3;
    const int64_t parts[3] = {width, width, width};
    ru_value_id split, qkv[3];
    RU_TRY(const_i64s(l, parts, 3, &split));
    for (uint32_t k = 0; k < 3; k++) {
        RU_TRY(ru_graph_add_value(l->g, &(ru_value){.kind = RU_VALUE_TEMP}, &qkv[k], l->err));
    }
    ru_attr axis = attr_int(RU_ATTR_axis, 2);
    ru_value_id in[2] = {l->n->in[0], split};
    ru_node n = {.op = RU_OP_Split,
                 .in = in,
                 .out = qkv,
                 .attrs = &axis,
                 .n_in = 2,
                 .n_out = 3,
                 .n_attrs = 1};
    RU_TRY(ru_graph_add_node_into(l->g, &n, NULL, l->err));
    ru_value_id mask = ru_node_has_in(l->n, 1) ? l->n->in[1] : (ru_value_id){0};
    return attention_bthd(l, qkv, mask, t, t->dims[1], width);
}

static ru_status attention(low *l)
{
    const ru_type *tq = type_in(l, 0), *tk = type_in(l, 1);
    ru_value_id mask = ru_node_has_in(l->n, 3) ? l->n->in[3] : (ru_value_id){0};
    if (strcmp(ru_node_str(l->n, RU_ATTR_layout, "bthd"), "bhtd") != 0) {
        return attention_bthd(l, l->n->in, mask, tq, tk->dims[1], tq->dims[2]);
    }
    const int64_t perm[4] = {0, 1, 3, 2};
    ru_attr a = attr_ints(RU_ATTR_perm, perm, 4);
    ru_value_id kt = {0}, out = l->n->out[0];
    RU_TRY(put(l, RU_OP_Transpose, &l->n->in[1], 1, &a, 1, &kt));
    return attend(l, l->n->in[0], kt, l->n->in[2], mask, tq->dtype, tq->dims[2], tk->dims[2],
                  tq->dims[3], &out);
}

/* -- standard ops that changed ----------------------------------------------------------------- */

/* Graphs built here may give axes as an attribute; opset 21 wants the input, before 18 most
 * reductions want the attribute. */
static ru_status axes_place(low *l)
{
    ru_op op = l->n->op;
    bool always_input = op == RU_OP_Squeeze || op == RU_OP_Unsqueeze || op == RU_OP_ReduceSum;
    bool want_input = always_input || l->opset >= 18;
    uint32_t n_axes = 0, n = 0;
    const int64_t *axes = ru_node_ints(l->n, RU_ATTR_axes, &n_axes);
    const ru_attr_key drop[] = {
        RU_ATTR_axes, want_input ? RU_ATTR_NONE : RU_ATTR_noop_with_empty_axes, RU_ATTR_NONE};
    ru_attr *attrs = attrs_without(l, drop, &n);
    if (attrs == NULL) {
        return full(l);
    }
    if (want_input) {
        if (axes == NULL) {
            return keep(l);
        }
        ru_value_id in[2] = {l->n->in[0]}, out = l->n->out[0];
        RU_TRY(const_i64s(l, axes, n_axes, &in[1]));
        return put(l, op, in, 2, attrs, n, &out);
    }
    if (ru_node_has_in(l->n, 1)) {
        const ru_value *v = ru_graph_value(l->from, l->n->in[1]);
        if (v->kind != RU_VALUE_CONST || v->type.dtype != RU_I64 ||
            ru_node_int(l->n, RU_ATTR_noop_with_empty_axes, 0) != 0) {
            return refuse(l, "has axes that are not constant: write opset 18 or later");
        }
        axes = v->data;
        n_axes = (uint32_t)ru_type_count(&v->type);
    }
    if (n_axes > 0) {
        attrs[n++] = attr_ints(RU_ATTR_axes, axes, n_axes);
    }
    return put_node(l, op, 1, 1, attrs, n);
}

static ru_status split(low *l)
{
    uint32_t n;
    const ru_attr_key drop[] = {RU_ATTR_num_outputs, RU_ATTR_NONE};
    ru_attr *attrs = attrs_without(l, drop, &n);
    if (attrs == NULL) {
        return full(l);
    }
    if (l->opset >= 18 && !ru_node_has_in(l->n, 1)) {
        attrs[n++] = attr_int(RU_ATTR_num_outputs, l->n->n_out);
    }
    return put_node(l, RU_OP_Split, 2, l->n->n_out, attrs, n);
}

/* 0.5 x (1 + erf(x / sqrt 2)), or with tanh(sqrt(2/pi) (x + 0.044715 x^3)). */
static ru_status gelu(low *l)
{
    if (l->opset >= 20) {
        return keep(l);
    }
    ru_dtype t = type_in(l, 0)->dtype;
    ru_value_id x = l->n->in[0], c, a = {0}, b = {0}, d = {0}, e = {0}, out = l->n->out[0];
    if (strcmp(ru_node_str(l->n, RU_ATTR_approximate, "none"), "tanh") == 0) {
        ru_value_id square = {0}, cube = {0};
        RU_TRY(put2(l, RU_OP_Mul, x, x, &square));
        RU_TRY(put2(l, RU_OP_Mul, square, x, &cube));
        RU_TRY(const_float(l, t, 0.044715, &c));
        RU_TRY(put2(l, RU_OP_Mul, cube, c, &d));
        RU_TRY(put2(l, RU_OP_Add, x, d, &e));
        RU_TRY(const_float(l, t, 0.7978845608028654, &c));
        RU_TRY(put2(l, RU_OP_Mul, e, c, &a));
        RU_TRY(put1(l, RU_OP_Tanh, a, &b));
    } else {
        RU_TRY(const_float(l, t, 0.7071067811865476, &c));
        RU_TRY(put2(l, RU_OP_Mul, x, c, &a));
        RU_TRY(put1(l, RU_OP_Erf, a, &b));
    }
    ru_value_id one, half, sum = {0}, y = {0};
    RU_TRY(const_float(l, t, 1, &one));
    RU_TRY(const_float(l, t, 0.5, &half));
    RU_TRY(put2(l, RU_OP_Add, b, one, &sum));
    RU_TRY(put2(l, RU_OP_Mul, x, sum, &y));
    return put2(l, RU_OP_Mul, y, half, &out);
}

static ru_status mish(low *l)
{
    if (l->opset >= 18) {
        return keep(l);
    }
    ru_value_id a = {0}, b = {0}, out = l->n->out[0];
    RU_TRY(put1(l, RU_OP_Softplus, l->n->in[0], &a));
    RU_TRY(put1(l, RU_OP_Tanh, a, &b));
    return put2(l, RU_OP_Mul, l->n->in[0], b, &out);
}

static ru_status since_18(low *l)
{
    return l->opset >= 18 ? keep(l) : refuse(l, "exists since opset 18; write opset 18 or later");
}

static ru_status since_21(low *l)
{
    return l->opset >= 21 ? keep(l) : refuse(l, "has this meaning since opset 21; write opset 21");
}

static ru_status since_20(low *l)
{
    return l->opset >= 20 ? keep(l)
                          : refuse(l, "has this form since opset 20; write opset 20 or "
                                      "later");
}

static ru_status pad(low *l)
{
    return l->opset >= 18 || !ru_node_has_in(l->n, 3)
               ? keep(l)
               : refuse(l, "has axes, which exist since opset 18; write opset 18 or later");
}

static ru_status cast(low *l)
{
    uint32_t n;
    const ru_attr_key drop[] = {RU_ATTR_saturate, RU_ATTR_NONE};
    ru_attr *attrs = attrs_without(l, drop, &n);
    return attrs == NULL ? full(l) : put_node(l, RU_OP_Cast, 1, 1, attrs, n);
}

/* What opset 18 added may stand there with the value that means the same as before. */
static ru_status resize(low *l)
{
    if (l->opset >= 18) {
        return keep(l);
    }
    uint32_t n;
    const ru_attr_key drop[] = {RU_ATTR_antialias, RU_ATTR_keep_aspect_ratio_policy, RU_ATTR_NONE};
    ru_attr *attrs = attrs_without(l, drop, &n);
    const char *policy = ru_node_str(l->n, RU_ATTR_keep_aspect_ratio_policy, "stretch");
    if (ru_node_int(l->n, RU_ATTR_antialias, 0) != 0 || strcmp(policy, "stretch") != 0 ||
        ru_node_attr(l->n, RU_ATTR_axes) != NULL) {
        return refuse(l, "has antialias, axes or an aspect ratio policy, which exist since opset "
                         "18; write opset 18 or later");
    }
    return attrs == NULL ? full(l) : put_node(l, RU_OP_Resize, 4, 1, attrs, n);
}

static ru_status roi(low *l)
{
    return ru_node_attr(l->n, RU_ATTR_pooled_shape) == NULL
               ? keep(l)
               : refuse(l, "was MaxRoiPool, which is read but not written; use the model's own "
                           "file");
}

static const struct {
    ru_op op;
    lower_fn fn;
} rows[] = {
    {RU_OP_AddInto, add_into},
    {RU_OP_AttentionQkv, attention_qkv},
    {RU_OP_Attention, attention},
    {RU_OP_Squeeze, axes_place},
    {RU_OP_Unsqueeze, axes_place},
    {RU_OP_ReduceSum, axes_place},
    {RU_OP_ReduceL1, axes_place},
    {RU_OP_ReduceL2, axes_place},
    {RU_OP_ReduceLogSum, axes_place},
    {RU_OP_ReduceLogSumExp, axes_place},
    {RU_OP_ReduceMax, axes_place},
    {RU_OP_ReduceMean, axes_place},
    {RU_OP_ReduceMin, axes_place},
    {RU_OP_ReduceProd, axes_place},
    {RU_OP_ReduceSumSquare, axes_place},
    {RU_OP_Split, split},
    {RU_OP_Gelu, gelu},
    {RU_OP_Mish, mish},
    {RU_OP_BitwiseAnd, since_18},
    {RU_OP_BitwiseNot, since_18},
    {RU_OP_BitwiseOr, since_18},
    {RU_OP_BitwiseXor, since_18},
    {RU_OP_Col2Im, since_18},
    {RU_OP_DFT, since_20},
    {RU_OP_GridSample, since_20},
    {RU_OP_GroupNormalization, since_21},
    {RU_OP_Pad, pad},
    {RU_OP_Resize, resize},
    {RU_OP_RoiAlign, roi},
    {RU_OP_Cast, cast},
};

static ru_status node_lower(low *l)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        if (rows[k].op == l->n->op) {
            return rows[k].fn(l);
        }
    }
    return ru_op_get(l->n->op)->onnx
               ? keep(l)
               : refuse(l, "has no form in standard ONNX; export the inference graph");
}

ru_status rui_onnx_lower(const ru_graph *g, int64_t opset, ru_arena *arena, ru_graph *out,
                         ru_err *err)
{
    ru_graph live, n;
    RU_TRY(ru_pass_infer(g, arena, &live, err));
    RU_TRY(rui_copy_values(&live, arena, &n, err));
    for (uint32_t k = 1; k < live.n_nodes; k++) {
        low l = {.g = &n, .from = &live, .n = &live.nodes[k], .opset = opset, .err = err};
        RU_TRY(node_lower(&l));
    }
    RU_TRY(rui_copy_ends(&live, &n, err));
    *out = n;
    return RU_OK;
}
