/* Ops on quantised tensors, written as the float op between DequantizeLinear and QuantizeLinear:
 * ru_pass_fuse makes products of 8-bit integers of that form.
 *
 * Source: Operators.md of the ONNX project (QLinearConv, QLinearMatMul) and ContribOperators.md of
 * ONNX Runtime (domain com.microsoft), whose quantiser writes the others. */
#include "world/onnx/onnx_lift.h"

#include <string.h>

static ru_status count_check(const rui_lift *l, uint32_t low, uint32_t high, ru_err *err)
{
    return l->n_in >= low && l->n_in <= high && l->n_out_model == 1
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA,
                         "it has %u inputs and %u outputs, but %s takes %u to %u inputs and has 1 "
                         "output",
                         l->n_in, l->n_out_model, l->op_name, low, high);
}

/* A scale or zero point of one element may be [1]; of more it is a list along an axis. */
static ru_status dequantize(rui_lift *l, ru_value_id x, ru_value_id scale, ru_value_id zero,
                            int64_t axis, ru_value_id *out, ru_err *err)
{
    ru_attr a = {.key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1, .u.i = axis};
    ru_value_id in[3] = {x, scale, zero};
    if (x.v == 0 || scale.v == 0) {
        return RU_FAIL(err, RU_E_DATA, "a quantised input or its scale is absent");
    }
    return rui_lift_node(l, RU_OP_DequantizeLinear, in, zero.v != 0 ? 3 : 2, &a, 1, out, err);
}

/* Inputs k, k + 1 and k + 2: data, scale, zero point. */
static ru_status dequantize_at(rui_lift *l, uint32_t k, int64_t axis, ru_value_id *out, ru_err *err)
{
    return dequantize(l, l->in[k], l->in[k + 1], k + 2 < l->n_in ? l->in[k + 2] : (ru_value_id){0},
                      axis, out, err);
}

/* The node as float op `op` with the attributes that are left, then QuantizeLinear with the scale
 * and zero point given; without a scale its result stays float. */
static ru_status finish(rui_lift *l, ru_op op, const ru_value_id *in, uint32_t n_in,
                        ru_value_id scale, ru_value_id zero, ru_err *err)
{
    memmove(l->in, in, n_in * sizeof *in);
    l->n_in = n_in;
    l->op = op;
    RU_TRY(rui_lift_emit(l, err));
    l->done = true;
    if (scale.v == 0) {
        return RU_OK;
    }
    ru_value_id q[3] = {l->out[0], scale, zero};
    return rui_lift_node(l, RU_OP_QuantizeLinear, q, zero.v != 0 ? 3 : 2, NULL, 0, l->out, err);
}

/* Bias of 32 bits in units of the product's sum. */
static ru_status bias_real(rui_lift *l, ru_value_id bias, ru_value_id a_scale, ru_value_id b_scale,
                           ru_value_id *out, ru_err *err)
{
    ru_value_id scale;
    RU_TRY(rui_lift_node(l, RU_OP_Mul, (ru_value_id[]){a_scale, b_scale}, 2, NULL, 0, &scale, err));
    return dequantize(l, bias, scale, (ru_value_id){0}, 0, out, err);
}

static ru_status qlinear_conv(rui_lift *l, ru_err *err)
{
    RU_TRY(count_check(l, 8, 9, err));
    ru_value_id in[3], bias = l->n_in > 8 ? l->in[8] : (ru_value_id){0};
    ru_value_id scale = l->in[6], zero = l->in[7];
    RU_TRY(dequantize_at(l, 0, 1, &in[0], err));
    RU_TRY(dequantize_at(l, 3, 0, &in[1], err));
    if (bias.v != 0) {
        RU_TRY(bias_real(l, bias, l->in[1], l->in[4], &in[2], err));
    }
    return finish(l, RU_OP_Conv, in, bias.v != 0 ? 3 : 2, scale, zero, err);
}

/* Scales of the left side run along its rows, those of the right along its columns. */
static ru_status qlinear_matmul(rui_lift *l, ru_err *err)
{
    RU_TRY(count_check(l, 8, 8, err));
    const ru_type *s = rui_lift_type(l, 4);
    if (s != NULL && s->dtype == RU_F16) { /* results of f16 round less than its range allows */
        for (uint32_t k = 1; k <= 7; k += 3) {
            ru_attr to = {.key = RU_ATTR_to, .kind = RU_ATTR_INT, .n = 1, .u.i = 1};
            RU_TRY(rui_lift_node(l, RU_OP_Cast, &l->in[k < 7 ? k : 6], 1, &to, 1,
                                 &l->in[k < 7 ? k : 6], err));
        }
    }
    ru_value_id in[2], scale = l->in[6], zero = l->in[7];
    RU_TRY(dequantize_at(l, 0, -2, &in[0], err));
    RU_TRY(dequantize_at(l, 3, -1, &in[1], err));
    return finish(l, RU_OP_MatMul, in, 2, scale, zero, err);
}

static ru_status qlinear_two(rui_lift *l, ru_op op, ru_err *err)
{
    RU_TRY(count_check(l, 7, 8, err));
    ru_value_id in[2], scale = l->in[6], zero = l->n_in > 7 ? l->in[7] : (ru_value_id){0};
    RU_TRY(dequantize_at(l, 0, 1, &in[0], err));
    RU_TRY(dequantize_at(l, 3, 1, &in[1], err));
    return finish(l, op, in, 2, scale, zero, err);
}

static ru_status qlinear_add(rui_lift *l, ru_err *err)
{
    return qlinear_two(l, RU_OP_Add, err);
}

static ru_status qlinear_mul(rui_lift *l, ru_err *err)
{
    return qlinear_two(l, RU_OP_Mul, err);
}

static ru_status qlinear_one(rui_lift *l, ru_op op, ru_err *err)
{
    RU_TRY(count_check(l, 4, 5, err));
    ru_value_id x, scale = l->in[3], zero = l->n_in > 4 ? l->in[4] : (ru_value_id){0};
    if (rui_lift_take_int(l, "channels_last", 0) != 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "channels_last = 1 is not supported; quantise the model before other tools "
                       "change its layout");
    }
    RU_TRY(dequantize(l, l->in[0], l->in[1], l->in[2], 1, &x, err));
    return finish(l, op, &x, 1, scale, zero, err);
}

static ru_status qlinear_sigmoid(rui_lift *l, ru_err *err)
{
    return qlinear_one(l, RU_OP_Sigmoid, err);
}

static ru_status qlinear_leaky_relu(rui_lift *l, ru_err *err)
{
    return qlinear_one(l, RU_OP_LeakyRelu, err);
}

static ru_status qlinear_average(rui_lift *l, ru_err *err)
{
    return qlinear_one(l, RU_OP_AveragePool, err);
}

static ru_status qlinear_global_average(rui_lift *l, ru_err *err)
{
    return qlinear_one(l, RU_OP_GlobalAveragePool, err);
}

/* Its attribute opset says which meaning of Softmax it has. */
static ru_status qlinear_softmax(rui_lift *l, ru_err *err)
{
    RU_TRY(count_check(l, 4, 5, err));
    int64_t opset = rui_lift_take_int(l, "opset", 13), axis = rui_lift_take_int(l, "axis", -1);
    const ru_type *t = rui_lift_type(l, 0);
    if (opset < 13 && t != NULL && axis != -1 && axis != (int64_t)t->rank - 1) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "Softmax of opset %lld over several axes is not supported; convert the "
                       "model to opset 13 before it is quantised",
                       (long long)opset);
    }
    rui_lift_dflt_int(l, RU_ATTR_axis, axis);
    return qlinear_one(l, RU_OP_Softmax, err);
}

static ru_status qlinear_concat(rui_lift *l, ru_err *err)
{
    uint32_t n = l->n_in > 2 ? (l->n_in - 2) / 3 : 0;
    RU_TRY(count_check(l, 5, 2 + 3 * n, err));
    ru_value_id *in = RU_NEW(l->arena, ru_value_id, n), scale = l->in[0], zero = l->in[1];
    if (in == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena is full");
    }
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(dequantize_at(l, 2 + 3 * k, 1, &in[k], err));
    }
    return finish(l, RU_OP_Concat, in, n, scale, zero, err);
}

static ru_status qlinear_where(rui_lift *l, ru_err *err)
{
    RU_TRY(count_check(l, 9, 9, err));
    ru_value_id in[3] = {l->in[0]}, scale = l->in[7], zero = l->in[8];
    RU_TRY(dequantize_at(l, 1, 1, &in[1], err));
    RU_TRY(dequantize_at(l, 4, 1, &in[2], err));
    return finish(l, RU_OP_Where, in, 3, scale, zero, err);
}

/* a, a_scale, a_zero, b, b_scale, b_zero, c?, y_scale?, y_zero?; c counts units of alpha * a_scale
 * * b_scale. */
static ru_status qgemm(rui_lift *l, ru_err *err)
{
    RU_TRY(count_check(l, 6, 9, err));
    const rui_onnx_attr *alpha = rui_lift_take(l, "alpha");
    bool turned = rui_lift_take_int(l, "transB", 0) != 0;
    ru_value_id in[3], bias = l->n_in > 6 ? l->in[6] : (ru_value_id){0};
    ru_value_id scale = l->n_in > 7 ? l->in[7] : (ru_value_id){0};
    ru_value_id zero = l->n_in > 8 ? l->in[8] : (ru_value_id){0};
    if (alpha != NULL && !(alpha->f == 1.0)) {
        float f = (float)alpha->f;
        ru_value_id v;
        RU_TRY(rui_lift_const_f32s(l, &f, 1, true, &v, err));
        RU_TRY(
            rui_lift_node(l, RU_OP_Mul, (ru_value_id[]){l->in[1], v}, 2, NULL, 0, &l->in[1], err));
    }
    RU_TRY(dequantize_at(l, 0, 0, &in[0], err));
    RU_TRY(dequantize_at(l, 3, turned ? 0 : 1, &in[1], err));
    if (bias.v != 0) {
        RU_TRY(bias_real(l, bias, l->in[1], l->in[4], &in[2], err));
    }
    rui_lift_dflt_int(l, RU_ATTR_transB, turned);
    return finish(l, RU_OP_Gemm, in, bias.v != 0 ? 3 : 2, scale, zero, err);
}

/* -- products of integers -----------------------------------------------------------------------
 */

static const ru_value *constant_in(const rui_lift *l, uint32_t k)
{
    const ru_value *v = k < l->n_in && l->in[k].v != 0 ? ru_graph_value(l->g, l->in[k]) : NULL;
    return v != NULL && v->kind == RU_VALUE_CONST ? v : NULL;
}

static int32_t byte_at(const ru_value *v, int64_t k)
{
    return v->type.dtype == RU_I8 ? ((const int8_t *)v->data)[k] : ((const uint8_t *)v->data)[k];
}

enum { PARTS_MOST = 3 }; /* the third is for 255 less 0 */

/* Weights less their zero point as i8 whose sum they are; gives how many, 0: the arena is full. */
static uint32_t parts_of(rui_lift *l, const ru_value *w, int32_t zero, int8_t **part)
{
    int64_t n = ru_type_count(&w->type);
    uint32_t parts = 1;
    for (int64_t k = 0; k < n; k++) {
        int32_t x = byte_at(w, k) - zero;
        uint32_t its = x > 2 * INT8_MAX ? 3 : x < INT8_MIN || x > INT8_MAX ? 2 : 1;
        parts = its > parts ? its : parts;
    }
    for (uint32_t p = 0; p < parts; p++) {
        part[p] = ru_arena_alloc(l->arena, n, 64);
        if (part[p] == NULL) {
            return 0;
        }
    }
    for (int64_t k = 0; k < n; k++) {
        int32_t x = byte_at(w, k) - zero, third = parts == 3 && x > 2 * INT8_MAX ? 1 : 0;
        int32_t first = parts == 1 ? x : (x - third - (x < 0)) / 2;
        part[0][k] = (int8_t)first;
        for (uint32_t p = 1; p < parts; p++) {
            part[p][k] = (int8_t)(p == 1 ? x - third - first : third);
        }
    }
    return parts;
}

/* The product of u8 is that of i8 with weights and their zero points less 128. */
static ru_status lower_bytes(rui_lift *l, const ru_value *w, const ru_value *z, ru_err *err)
{
    static const uint8_t none = 0;
    const ru_value *from[2] = {w, z};
    if (l->n_in < 4) {
        l->in[2] = l->n_in > 2 ? l->in[2] : (ru_value_id){0};
        l->n_in = 4;
    }
    for (uint32_t k = 0; k < 2; k++) {
        ru_type t = from[k] != NULL ? from[k]->type : (ru_type){.dtype = RU_U8};
        const uint8_t *x = from[k] != NULL ? from[k]->data : &none;
        uint8_t *y = ru_arena_alloc(l->arena, ru_type_count(&t), 64);
        if (y == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "the arena is full");
        }
        for (int64_t i = 0; i < ru_type_count(&t); i++) {
            y[i] = x[i] ^ 0x80;
        }
        t.dtype = RU_I8;
        RU_TRY(rui_lift_const(l, &t, y, &l->in[k == 0 ? 1 : 3], err));
    }
    return RU_OK;
}

/* Kernels take weights of i8, convolutions around 0: constant ones with another zero point, or
 * unsigned, become that, or the sum of two convolutions. */
ru_status rui_lift_integer_weights(rui_lift *l, ru_err *err)
{
    const ru_value *w = constant_in(l, 1), *z = constant_in(l, 3);
    bool zero_less = l->n_in < 4 || l->in[3].v == 0, product = l->op == RU_OP_MatMulInteger;
    bool bytes = w != NULL && w->data != NULL && (w->type.dtype == RU_U8 || w->type.dtype == RU_I8);
    if (!l->infer || l->n_out_model != 1 || !bytes || (zero_less && w->type.dtype == RU_I8) ||
        (!zero_less && (z == NULL || z->data == NULL || z->type.dtype != w->type.dtype))) {
        return RU_OK;
    }
    int8_t *part[PARTS_MOST];
    bool one_zero = zero_less || ru_type_count(&z->type) == 1;
    uint32_t parts = one_zero ? parts_of(l, w, zero_less ? 0 : byte_at(z, 0), part) : 0;
    if (product && parts != 1) {
        return w->type.dtype == RU_U8 ? lower_bytes(l, w, z, err) : RU_OK;
    }
    if (parts == 0) {
        return RU_OK;
    }
    ru_type t = w->type;
    t.dtype = RU_I8;
    ru_value_id data = l->in[0], zero = l->n_in > 2 ? l->in[2] : (ru_value_id){0}, sum = {0};
    for (uint32_t p = 0; p < parts; p++) {
        l->in[0] = data;
        l->in[2] = zero;
        l->n_in = zero.v != 0 ? 3 : 2;
        RU_TRY(rui_lift_const(l, &t, part[p], &l->in[1], err));
        if (parts == 1) {
            return RU_OK;
        }
        RU_TRY(rui_lift_emit(l, err));
        if (p > 0) {
            RU_TRY(rui_lift_node(l, RU_OP_Add, (ru_value_id[]){sum, l->out[0]}, 2, NULL, 0, l->out,
                                 err));
        }
        sum = l->out[0];
    }
    l->done = true;
    return RU_OK;
}

/* -- products with weights of a few bits ---------------------------------------------------------
 */

/* n numbers of `bits` bits each, the low ones of a byte first. */
static uint8_t bits_at(const uint8_t *x, int64_t k, int64_t bits)
{
    int64_t per = 8 / bits;
    return (uint8_t)((x[k / per] >> (k % per * bits)) & ((1 << bits) - 1));
}

/* A constant of u8 [rows, cols] from rows of packed numbers, each from a byte of its own on; NULL
 * in: all are half of the range. */
static ru_status unpack_bits(rui_lift *l, const uint8_t *x, int64_t rows, int64_t cols,
                             int64_t row_bytes, int64_t bits, ru_value_id *out, ru_err *err)
{
    ru_type t = {.dtype = RU_U8, .rank = 2, .dims = {rows, cols}};
    uint8_t *y = ru_arena_alloc(l->arena, rows * cols, 64);
    if (y == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena is full");
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            y[r * cols + c] =
                x == NULL ? (uint8_t)(1 << (bits - 1)) : bits_at(x + r * row_bytes, c, bits);
        }
    }
    return rui_lift_const(l, &t, y, out, err);
}

/* MatMulNBits(A, B, scales, zero_points?, g_idx?, bias?): A times the transposed B [N, K], of which
 * each row is in blocks that have a scale and a zero point each. */
static ru_status matmul_bits(rui_lift *l, ru_err *err)
{
    RU_TRY(count_check(l, 3, 6, err));
    const int64_t k = rui_lift_take_int(l, "K", 0), n = rui_lift_take_int(l, "N", 0);
    const int64_t bits = rui_lift_take_int(l, "bits", 4);
    const int64_t block = rui_lift_take_int(l, "block_size", 0);
    (void)rui_lift_take(l, "accuracy_level"); /* how it may be computed */
    const ru_value *b = constant_in(l, 1), *z = constant_in(l, 3);
    const ru_type *s = rui_lift_type(l, 2);
    const bool zero = l->n_in > 3 && l->in[3].v != 0, more = l->n_in > 4 && l->in[4].v != 0;
    const ru_value_id bias = l->n_in > 5 ? l->in[5] : (ru_value_id){0};
    const int64_t most = 1 << 28;
    if (k < 1 || n < 1 || k > most || n > most || block < 1 || block > most ||
        (bits != 2 && bits != 4 && bits != 8) || block * bits % 8 != 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "K %lld, N %lld, bits %lld, block_size %lld: sizes of 1 to 2^28, 2, 4 or 8 "
                       "bits and blocks of whole bytes are supported",
                       (long long)k, (long long)n, (long long)bits, (long long)block);
    }
    if (!l->infer) { /* only inputs and outputs are asked for: weights are not here */
        return finish(l, RU_OP_MatMul, (ru_value_id[]){l->in[0], l->in[1]}, 2, (ru_value_id){0},
                      (ru_value_id){0}, err);
    }
    const int64_t blocks = (k + block - 1) / block, row = blocks * (block * bits / 8);
    const int64_t zero_row = (blocks * bits + 7) / 8;
    if (b == NULL || b->data == NULL || more ||
        (zero && (z == NULL || z->data == NULL || z->type.dtype != RU_U8))) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "B and zero_points should be constants, zero_points uint8 and g_idx absent; "
                       "quantise the model so, or to 8 bits");
    }
    if (b->type.dtype != RU_U8 || ru_type_count(&b->type) != n * row ||
        (s != NULL && ru_type_count(s) != n * blocks) ||
        (zero && ru_type_count(&z->type) != n * zero_row)) {
        return RU_FAIL(err, RU_E_DATA,
                       "B, scales and zero_points should have %lld, %lld and %lld elements by "
                       "attributes K, N, bits and block_size",
                       (long long)(n * row), (long long)(n * blocks), (long long)(n * zero_row));
    }
    ru_attr at[2] = {{.key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1, .u.i = 1},
                     {.key = RU_ATTR_block_size, .kind = RU_ATTR_INT, .n = 1, .u.i = block}};
    const int64_t turn[] = {1, 0}, shape[] = {n, blocks};
    ru_attr perm = {.key = RU_ATTR_perm, .kind = RU_ATTR_INTS, .n = 2, .u.is = turn};
    ru_value_id q[3], in[2] = {l->in[0]}, w, dims;
    RU_TRY(unpack_bits(l, b->data, n, k, row, bits, &q[0], err));
    RU_TRY(rui_lift_const_i64s(l, shape, 2, &dims, err));
    RU_TRY(
        rui_lift_node(l, RU_OP_Reshape, (ru_value_id[]){l->in[2], dims}, 2, NULL, 0, &q[1], err));
    RU_TRY(unpack_bits(l, zero ? z->data : NULL, n, blocks, zero_row, bits, &q[2], err));
    RU_TRY(rui_lift_node(l, RU_OP_DequantizeLinear, q, 3, at, 2, &w, err));
    RU_TRY(rui_lift_node(l, RU_OP_Transpose, &w, 1, &perm, 1, &in[1], err));
    RU_TRY(finish(l, RU_OP_MatMul, in, 2, (ru_value_id){0}, (ru_value_id){0}, err));
    return bias.v == 0 ? RU_OK
                       : rui_lift_node(l, RU_OP_Add, (ru_value_id[]){l->out[0], bias}, 2, NULL, 0,
                                       l->out, err);
}

static const struct {
    const char *domain, *op;
    ru_op as; /* the op of the standard that means the same; NONE: fn writes it */
    ru_status (*fn)(rui_lift *l, ru_err *err);
} rows[] = {
    {"", "QLinearConv", RU_OP_NONE, qlinear_conv},
    {"", "QLinearMatMul", RU_OP_NONE, qlinear_matmul},
    {"com.microsoft", "QLinearAdd", RU_OP_NONE, qlinear_add},
    {"com.microsoft", "QLinearMul", RU_OP_NONE, qlinear_mul},
    {"com.microsoft", "QLinearSigmoid", RU_OP_NONE, qlinear_sigmoid},
    {"com.microsoft", "QLinearLeakyRelu", RU_OP_NONE, qlinear_leaky_relu},
    {"com.microsoft", "QLinearAveragePool", RU_OP_NONE, qlinear_average},
    {"com.microsoft", "QLinearGlobalAveragePool", RU_OP_NONE, qlinear_global_average},
    {"com.microsoft", "QLinearSoftmax", RU_OP_NONE, qlinear_softmax},
    {"com.microsoft", "QLinearConcat", RU_OP_NONE, qlinear_concat},
    {"com.microsoft", "QLinearWhere", RU_OP_NONE, qlinear_where},
    {"com.microsoft", "QGemm", RU_OP_NONE, qgemm},
    {"com.microsoft", "MatMulNBits", RU_OP_NONE, matmul_bits},
    {"com.microsoft", "QuantizeLinear", RU_OP_QuantizeLinear, NULL},
    {"com.microsoft", "DequantizeLinear", RU_OP_DequantizeLinear, NULL},
};

bool rui_lift_quant(const char *domain, const char *op, rui_lift *l, ru_status *status, ru_err *err)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        if (strcmp(rows[k].op, op) == 0 && strcmp(rows[k].domain, domain) == 0) {
            if (l != NULL) {
                l->op = rows[k].as;
                *status = rows[k].fn != NULL ? rows[k].fn(l, err) : rui_lift_emit(l, err);
            }
            return true;
        }
    }
    return false;
}
