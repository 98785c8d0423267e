/* Quantised models in QDQ form: a product between DequantizeLinear and QuantizeLinear becomes one
 * of 8-bit integers, and what moves or compares elements works on the bytes.
 *
 *     DequantizeLinear -> Conv (+ activation) -> QuantizeLinear        ConvInt8
 *     DequantizeLinear -> Gemm, MatMul        -> QuantizeLinear        MatMulInt8
 *     two of them      -> MatMul                                       MatMulInteger, scaled
 *     two of them      -> Add, Mul (+ Relu)   -> QuantizeLinear        AddInt8, MulInt8
 *     DequantizeLinear -> Sigmoid, Clip ..    -> QuantizeLinear        MapInt8
 *     DequantizeLinear -> GlobalAveragePool   -> QuantizeLinear        MeanInt8
 *     DequantizeLinear -> MaxPool, Reshape .. -> QuantizeLinear        the op on bytes
 *
 * A product whose result is used as floats gives floats. What keeps weights as floats after all is
 * computed here, once. */
#include "world/pass/rewrite_impl.h"

#include <math.h>
#include <string.h>

/* One side of a quantised value. */
typedef struct quant {
    ru_value_id x;       /* the integers, or what is quantised */
    const float *scales; /* [n] */
    int64_t n, zero, axis;
    ru_dtype dtype;
} quant;

static const ru_value *constant(const rui_rw *rw, ru_value_id v)
{
    const ru_value *x = &rw->g.values[v.v];
    return v.v != 0 && x->kind == RU_VALUE_CONST && x->data != NULL ? x : NULL;
}

static int64_t zero_at(const ru_value *z, int64_t k)
{
    return z->type.dtype == RU_I8   ? ((const int8_t *)z->data)[k]
           : z->type.dtype == RU_U8 ? ((const uint8_t *)z->data)[k]
                                    : ((const int32_t *)z->data)[k];
}

/* Scales and zero point of node n; false when they are not constants of one zero. */
static bool quant_read(const rui_rw *rw, const ru_node *n, quant *q)
{
    const ru_value *s = constant(rw, n->in[1]);
    const ru_value *z = ru_node_has_in(n, 2) ? constant(rw, n->in[2]) : NULL;
    ru_dtype t = n->op == RU_OP_QuantizeLinear ? rui_rw_type(rw, n->out[0])->dtype
                                               : rui_rw_type(rw, n->in[0])->dtype;
    if (s == NULL || s->type.dtype != RU_F32 || (z == NULL && ru_node_has_in(n, 2)) ||
        (t != RU_U8 && t != RU_I8 && t != RU_I32) || ru_node_int(n, RU_ATTR_block_size, 0) != 0) {
        return false;
    }
    *q = (quant){.x = n->in[0], .scales = s->data, .n = ru_type_count(&s->type), .dtype = t};
    q->zero = z != NULL && ru_type_count(&z->type) > 0 ? zero_at(z, 0) : 0;
    q->axis = ru_node_int(n, RU_ATTR_axis, 1);
    q->axis += q->axis < 0 ? (int64_t)rui_rw_type(rw, n->in[0])->rank : 0;
    for (int64_t k = 0; z != NULL && k < ru_type_count(&z->type); k++) {
        if (zero_at(z, k) != q->zero) {
            return false;
        }
    }
    return true;
}

static bool made_by_dequantize(const rui_rw *rw, ru_value_id v, quant *q)
{
    const ru_node *n = rui_rw_made_by(rw, v, RU_OP_DequantizeLinear);
    return n != NULL && quant_read(rw, n, q);
}

/* An activation: 8 bits, one scale. */
static bool activation_in(const rui_rw *rw, ru_value_id v, quant *q)
{
    return made_by_dequantize(rw, v, q) && q->n == 1 && q->dtype != RU_I32;
}

/* Slot of the QuantizeLinear that alone reads v, with one scale and 8 bits; 0: none. */
static uint32_t quantizer_of(const rui_rw *rw, ru_value_id v, quant *q)
{
    uint32_t j = rui_rw_only_user(rw, v, RU_OP_QuantizeLinear);
    bool fits = j != 0 && rw->g.nodes[j].in[0].v == v.v && quant_read(rw, &rw->g.nodes[j], q) &&
                q->n == 1 && q->dtype != RU_I32;
    return fits ? j : 0;
}

static ru_attr int_attr(ru_attr_key key, int64_t v)
{
    return (ru_attr){.key = key, .kind = RU_ATTR_INT, .n = 1, .u.i = v};
}

static ru_attr float_attr(ru_attr_key key, double v)
{
    return (ru_attr){.key = key, .kind = RU_ATTR_FLOAT, .n = 1, .u.f = v};
}

/* -- products ---------------------------------------------------------------------------------- */

typedef struct product {
    quant x, w;
    int64_t channels, left; /* left: zero point that the weights of i8 still have */
    bool any;               /* weights of u8, or around another zero point than 0, too */
    ru_value_id bias, scale;
} product;

/* Weights of i8 around 0 where all fit; else u8 less 128. */
static bool weights_make(rui_rw *rw, product *p)
{
    const ru_value *w = constant(rw, p->w.x);
    if (w == NULL || p->w.dtype == RU_I32 || (p->w.dtype == RU_I8 && p->w.zero == 0)) {
        return w != NULL && p->w.dtype != RU_I32;
    }
    if (!p->any) {
        return false;
    }
    int64_t n = ru_type_count(&w->type), low = 0, high = 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t x = zero_at(w, k) - p->w.zero;
        low = x < low ? x : low;
        high = x > high ? x : high;
    }
    bool fits = low >= INT8_MIN && high <= INT8_MAX;
    int8_t *y = fits || p->w.dtype == RU_U8 ? ru_arena_alloc(rw->g.arena, n, 64) : NULL;
    if (y == NULL) {
        return false;
    }
    int64_t less = fits ? p->w.zero : 128;
    for (int64_t k = 0; k < n; k++) {
        y[k] = (int8_t)(zero_at(w, k) - less);
    }
    ru_type t = w->type;
    t.dtype = RU_I8;
    p->left = p->w.zero - less;
    p->w.x = rui_rw_const(rw, t, y);
    return true;
}

/* Bias in units of the sum: whole numbers as they stand, or floats divided by the scale. */
static bool bias_make(rui_rw *rw, ru_value_id v, const float *scale, product *p)
{
    const ru_node *dq = rui_rw_made_by(rw, v, RU_OP_DequantizeLinear);
    const ru_value *b = constant(rw, dq != NULL ? dq->in[0] : v);
    quant q = {0};
    if (v.v == 0) {
        return true;
    }
    if (b == NULL || ru_type_count(&b->type) != p->channels ||
        (dq != NULL && !quant_read(rw, dq, &q)) ||
        b->type.dtype != (dq != NULL ? RU_I32 : RU_F32) || q.zero != 0) {
        return false;
    }
    int32_t *out = ru_arena_alloc(rw->g.arena, p->channels * 4, 64);
    for (int64_t c = 0; out != NULL && c < p->channels; c++) {
        double real =
            dq != NULL ? (double)((const int32_t *)b->data)[c] * (double)q.scales[q.n > 1 ? c : 0]
                       : (double)((const float *)b->data)[c];
        double units = rint(real / (double)scale[p->w.n > 1 ? c : 0]);
        if (!(fabs(units) < 1e9)) {
            return false;
        }
        out[c] = (int32_t)units;
    }
    ru_type t = {.dtype = RU_I32, .rank = 1, .dims = {p->channels}};
    p->bias = out != NULL ? rui_rw_const(rw, t, out) : (ru_value_id){0};
    return out != NULL;
}

/* Operands of node n, whose weights have `channels` along `axis`. */
static bool product_read(rui_rw *rw, const ru_node *n, int64_t axis, int64_t channels, product *p)
{
    p->channels = channels;
    bool fits = activation_in(rw, n->in[0], &p->x) && made_by_dequantize(rw, n->in[1], &p->w) &&
                (p->w.n == 1 || (p->w.n == channels && p->w.axis == axis));
    float *scale = fits ? ru_arena_alloc(rw->g.arena, p->w.n * 4, 64) : NULL;
    for (int64_t k = 0; scale != NULL && k < p->w.n; k++) {
        scale[k] = p->x.scales[0] * p->w.scales[k];
    }
    ru_value_id bias = n->n_in > 2 ? n->in[2] : (ru_value_id){0};
    if (scale == NULL || !bias_make(rw, bias, scale, p) || !weights_make(rw, p)) {
        return false;
    }
    p->scale = rui_rw_const(rw, (ru_type){.dtype = RU_F32, .rank = 1, .dims = {p->w.n}}, scale);
    return true;
}

/* Node i becomes `op`; its result is quantised in it when only a QuantizeLinear reads it. */
static bool product_set(rui_rw *rw, uint32_t i, ru_op op, const product *p)
{
    const ru_node n = rw->g.nodes[i];
    ru_value_id in[4] = {p->x.x, p->w.x, p->scale, p->bias}, out = n.out[0];
    quant y = {.dtype = RU_F32};
    uint32_t j = quantizer_of(rw, out, &y), count, n_in = p->bias.v != 0 ? 4 : 3;
    ru_attr more[4] = {int_attr(RU_ATTR_x_zero, p->x.zero),
                       int_attr(RU_ATTR_to, ru_dtype_onnx(y.dtype)),
                       int_attr(RU_ATTR_y_zero, y.zero),
                       float_attr(RU_ATTR_y_scale, j != 0 ? (double)y.scales[0] : 1)};
    ru_attr *attrs = rui_rw_attrs(rw, &n, more, 4, &count);
    if (rw->status != RU_OK || attrs == NULL) {
        return false;
    }
    if (j != 0) {
        out = rw->g.nodes[j].out[0];
        rui_rw_kill(rw, i);
        rui_rw_set(rw, j, op, in, n_in, attrs, count, &out, 1);
        rw->g.nodes[j].name = n.name;
    } else {
        rui_rw_set(rw, i, op, in, n_in, attrs, count, &out, 1);
    }
    return true;
}

static bool fuse_conv(rui_rw *rw, uint32_t i, bool any)
{
    const ru_node *n = &rw->g.nodes[i];
    product p = {.any = any};
    return n->n_in <= 3 && product_read(rw, n, 0, rui_rw_type(rw, n->in[1])->dims[0], &p) &&
           p.left == 0 && product_set(rw, i, RU_OP_ConvInt8, &p);
}

/* x (w - z) = x w - (sum of x's row) z: the product in floats, and what the zero point adds. */
static bool product_less(rui_rw *rw, uint32_t i, const product *p)
{
    static const int64_t last = -1;
    const ru_node n = rw->g.nodes[i];
    float *scale = ru_arena_alloc(rw->g.arena, p->w.n * 4, 64);
    ru_attr more[2] = {int_attr(RU_ATTR_x_zero, p->x.zero),
                       int_attr(RU_ATTR_to, ru_dtype_onnx(RU_F32))};
    ru_attr keep = int_attr(RU_ATTR_keepdims, 1);
    uint32_t count;
    ru_attr *attrs = rui_rw_attrs(rw, &n, more, 2, &count);
    if (scale == NULL || attrs == NULL || rw->status != RU_OK) {
        return false;
    }
    for (int64_t k = 0; k < p->w.n; k++) {
        scale[k] = (float)p->left * p->w.scales[k];
    }
    ru_value_id in[4] = {p->x.x, p->w.x, p->scale, p->bias}, parts[2], sum[2] = {n.in[0]};
    sum[1] = rui_rw_const(rw, (ru_type){.dtype = RU_I64, .rank = 1, .dims = {1}}, &last);
    parts[0] = rui_rw_insert(rw, i, RU_OP_MatMulInt8, in, p->bias.v != 0 ? 4 : 3, attrs, count);
    sum[0] = rui_rw_insert(rw, i, RU_OP_ReduceSum, sum, 2, &keep, 1);
    sum[1] = rui_rw_const(rw, (ru_type){.dtype = RU_F32, .rank = 1, .dims = {p->w.n}}, scale);
    parts[1] = rui_rw_insert(rw, i, RU_OP_Mul, sum, 2, NULL, 0);
    rui_rw_set(rw, i, RU_OP_Sub, parts, 2, NULL, 0, n.out, 1);
    return rw->status == RU_OK;
}

static ru_value_id zero_const(rui_rw *rw, const quant *q)
{
    uint8_t *z = ru_arena_alloc(rw->g.arena, 1, 64);
    if (z == NULL) {
        return (ru_value_id){0};
    }
    *z = (uint8_t)q->zero;
    return rui_rw_const(rw, (ru_type){.dtype = q->dtype}, z);
}

/* Both sides of 8 bits are made by each run: sums of integers, scaled. As floats, 2,170 x 256 by
 * 256 x 5 took 109 us, so 40 (one Zen 5 core); with short sums the result is what costs, long ones
 * may not fit 32 bits. */
static bool fuse_given(rui_rw *rw, uint32_t i)
{
    enum { SHORT = 32, LONG = INT32_MAX / (UINT8_MAX * UINT8_MAX) };
    const ru_node n = rw->g.nodes[i];
    const ru_type *a = rui_rw_type(rw, n.in[0]), *b = rui_rw_type(rw, n.in[1]);
    quant x, w;
    ru_attr to = int_attr(RU_ATTR_to, ru_dtype_onnx(RU_F32));
    if (n.op != RU_OP_MatMul || n.n_in != 2 || n.n_attrs != 0 || a->rank < 2 || b->rank < 2 ||
        a->dims[a->rank - 1] < SHORT || a->dims[a->rank - 1] > LONG ||
        !activation_in(rw, n.in[0], &x) || !activation_in(rw, n.in[1], &w) ||
        constant(rw, w.x) != NULL) {
        return false;
    }
    float *scale = ru_arena_alloc(rw->g.arena, sizeof *scale, 64);
    ru_value_id in[4] = {x.x, w.x, zero_const(rw, &x), zero_const(rw, &w)}, parts[2];
    if (scale == NULL || in[2].v == 0 || in[3].v == 0) {
        return false;
    }
    *scale = x.scales[0] * w.scales[0];
    parts[0] = rui_rw_insert(rw, i, RU_OP_MatMulInteger, in, 4, NULL, 0);
    parts[0] = rui_rw_insert(rw, i, RU_OP_Cast, parts, 1, &to, 1);
    parts[1] = rui_rw_const(rw, (ru_type){.dtype = RU_F32}, scale);
    rui_rw_set(rw, i, RU_OP_Mul, parts, 2, NULL, 0, n.out, 1);
    return rw->status == RU_OK;
}

static bool fuse_product(rui_rw *rw, uint32_t i, bool any)
{
    const ru_node *n = &rw->g.nodes[i];
    const ru_type *a = rui_rw_type(rw, n->in[0]), *b = rui_rw_type(rw, n->in[1]);
    bool turned = ru_node_int(n, RU_ATTR_transB, 0) != 0;
    product p = {.any = any};
    bool plain =
        n->n_in <= 3 && b->rank == 2 && a->rank >= 2 && ru_node_int(n, RU_ATTR_transA, 0) == 0 &&
        ru_node_float(n, RU_ATTR_alpha, 1) == 1.0 && ru_node_float(n, RU_ATTR_beta, 1) == 1.0;
    return plain && product_read(rw, n, turned ? 0 : 1, b->dims[turned ? 0 : 1], &p) &&
           (p.left != 0 ? product_less(rw, i, &p) : product_set(rw, i, RU_OP_MatMulInt8, &p));
}

/* -- sums and moves, met at their QuantizeLinear ----------------------------------------------- */

/* Slot j becomes `op` of quantised tensors; what made its operand, and before an activation `mid`
 * that one's, is gone. */
static bool bytes_set(rui_rw *rw, uint32_t j, ru_op op, const quant *a, const quant *b,
                      const quant *y, ru_value_id mid, const ru_attr *act, uint32_t n_act)
{
    const ru_node q = rw->g.nodes[j];
    ru_attr attrs[10] = {
        float_attr(RU_ATTR_x_scale, (double)a->scales[0]), int_attr(RU_ATTR_x_zero, a->zero),
        float_attr(RU_ATTR_y_scale, (double)y->scales[0]), int_attr(RU_ATTR_y_zero, y->zero),
        int_attr(RU_ATTR_to, ru_dtype_onnx(y->dtype))};
    uint32_t n = 5;
    if (b != NULL) {
        attrs[n++] = float_attr(RU_ATTR_b_scale, (double)b->scales[0]);
        attrs[n++] = int_attr(RU_ATTR_b_zero, b->zero);
    }
    for (uint32_t k = 0; k < n_act; k++) {
        attrs[n++] = act[k];
    }
    ru_value_id in[2] = {a->x, b != NULL ? b->x : (ru_value_id){0}};
    if (mid.v != 0) {
        rui_rw_kill(rw, rui_rw_index(rw, mid));
    }
    rui_rw_kill(rw, rui_rw_index(rw, q.in[0]));
    rui_rw_set(rw, j, op, in, b != NULL ? 2 : 1, attrs, n, q.out, 1);
    return true;
}

/* Sums and products, with or without Relu. */
static bool fuse_two(rui_rw *rw, uint32_t j)
{
    const ru_node *q = &rw->g.nodes[j];
    ru_value_id v = q->in[0];
    const ru_node *relu = rui_rw_made_by(rw, v, RU_OP_Relu);
    const ru_node *two = rui_rw_made_by(rw, relu != NULL ? relu->in[0] : v, RU_OP_NONE);
    quant y, a, b;
    bool fits = two != NULL && (two->op == RU_OP_Add || two->op == RU_OP_Mul) &&
                rui_rw_uses(rw, v) == 1 && rui_rw_uses(rw, two->out[0]) == 1 &&
                quant_read(rw, q, &y) && y.n == 1 && y.dtype != RU_I32 &&
                activation_in(rw, two->in[0], &a) && activation_in(rw, two->in[1], &b);
    ru_attr act[3];
    uint32_t n_act = relu != NULL ? rui_rw_activation(rw, relu, act) : 0;
    return fits && bytes_set(rw, j, two->op == RU_OP_Add ? RU_OP_AddInt8 : RU_OP_MulInt8, &a, &b,
                             &y, relu != NULL ? two->out[0] : (ru_value_id){0}, act, n_act);
}

/* A function of one tensor has 256 results. */
static bool fuse_map(rui_rw *rw, uint32_t j)
{
    const ru_node *q = &rw->g.nodes[j], *f = rui_rw_made_by(rw, q->in[0], RU_OP_NONE);
    quant x, y;
    if (f == NULL || f->n_in == 0 || rui_rw_uses(rw, q->in[0]) != 1 || !quant_read(rw, q, &y) ||
        y.n != 1 || y.dtype == RU_I32 || !activation_in(rw, f->in[0], &x)) {
        return false;
    }
    bool mean = f->op == RU_OP_GlobalAveragePool;
    ru_attr act[3];
    uint32_t n_act = mean ? 0 : rui_rw_activation(rw, f, act);
    return (mean || n_act > 0) && bytes_set(rw, j, mean ? RU_OP_MeanInt8 : RU_OP_MapInt8, &x, NULL,
                                            &y, (ru_value_id){0}, act, n_act);
}

static bool moves_only(const ru_node *n)
{
    return (n->op == RU_OP_MaxPool && !ru_node_has_out(n, 1)) || n->op == RU_OP_Reshape ||
           n->op == RU_OP_Flatten || n->op == RU_OP_Transpose || n->op == RU_OP_Squeeze ||
           n->op == RU_OP_Unsqueeze;
}

static bool fuse_move(rui_rw *rw, uint32_t j)
{
    const ru_node q = rw->g.nodes[j];
    const ru_node *m = rui_rw_made_by(rw, q.in[0], RU_OP_NONE);
    quant x, y;
    if (m == NULL || !moves_only(m) || rui_rw_uses(rw, q.in[0]) != 1 ||
        !activation_in(rw, m->in[0], &x) || !quant_read(rw, &q, &y) || y.n != 1 ||
        x.zero != y.zero || x.dtype != y.dtype || !(x.scales[0] == y.scales[0])) {
        return false;
    }
    const ru_node n = *m;
    ru_value_id in[4] = {x.x};
    uint32_t n_in = n.n_in < 4 ? n.n_in : 4;
    memcpy(in + 1, n.in + 1, (n_in - 1) * sizeof *in);
    rui_rw_kill(rw, rui_rw_index(rw, q.in[0]));
    rui_rw_set(rw, j, n.op, in, n_in, n.attrs, n.n_attrs, q.out, 1);
    return true;
}

/* -- what stays in floats ---------------------------------------------------------------------- */

/* Weights that are read as floats are computed once. */
static bool unpack(rui_rw *rw, uint32_t i)
{
    const ru_node n = rw->g.nodes[i];
    const ru_value *x = constant(rw, n.in[0]);
    const ru_type *t = rui_rw_type(rw, n.out[0]);
    quant q;
    if (x == NULL || !quant_read(rw, &n, &q) || t->dtype != RU_F32) {
        return false;
    }
    int64_t count = ru_type_count(t), inner = 1;
    float *out = ru_arena_alloc(rw->g.arena, count * 4, 64);
    for (uint32_t d = (uint32_t)q.axis + 1; d < t->rank; d++) {
        inner *= t->dims[d];
    }
    for (int64_t k = 0; out != NULL && k < count; k++) {
        int64_t whole = zero_at(x, k) - q.zero;
        out[k] = (float)whole * q.scales[q.n > 1 ? k / inner % q.n : 0];
    }
    ru_value_id v = out != NULL ? rui_rw_const(rw, *t, out) : (ru_value_id){0};
    return out != NULL && rui_rw_replace(rw, n.out[0], v);
}

static void round_of(rui_rw *rw, bool any)
{
    for (uint32_t i = 1; i < rw->g.n_nodes && rw->status == RU_OK; i++) {
        switch ((uint32_t)rw->g.nodes[i].op) {
        case RU_OP_Conv:
            (void)fuse_conv(rw, i, any);
            break;
        case RU_OP_Gemm:
        case RU_OP_MatMul:
            (void)(fuse_product(rw, i, any) || (any && fuse_given(rw, i)));
            break;
        case RU_OP_QuantizeLinear:
            (void)(fuse_two(rw, i) || fuse_map(rw, i) || fuse_move(rw, i));
            break;
        default:
            break;
        }
    }
}

void rui_int8_round(rui_rw *rw)
{
    round_of(rw, true);
}

void rui_int8_signed_round(rui_rw *rw)
{
    round_of(rw, false);
}

void rui_unpack_round(rui_rw *rw)
{
    for (uint32_t i = 1; i < rw->g.n_nodes && rw->status == RU_OK; i++) {
        if (rw->g.nodes[i].op == RU_OP_DequantizeLinear) {
            (void)unpack(rw, i);
        }
    }
}
