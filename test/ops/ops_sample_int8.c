/* Random cases: quantisation and products of 8-bit integers. Scales are powers of two, so that
 * every device rounds the same numbers; weights stay below 64, because CPUs without dot products
 * of bytes add pairs of products in 16 bits. */
#include "test/ops/ops.h"

#include <stddef.h>

static ru_dtype a_byte(ops_case *c)
{
    return ops_coin(c) ? RU_U8 : RU_I8;
}

static void bytes_in(ops_case *c, ru_dtype t, uint32_t rank, const int64_t *dims)
{
    (void)ops_in_ints(c, ops_type(t, rank, dims), t == RU_U8 ? 0 : -128, t == RU_U8 ? 255 : 127);
}

/* Input k: one power of two, or one of `n` places; whole ones for products, whose results are
 * divided by an odd number: no tie is possible. */
static void scales_in(ops_case *c, uint32_t k, int64_t n, bool scalar)
{
    static const int64_t one = 1;
    ru_tensor *t = ops_in(c, ops_type(RU_F32, scalar ? 0 : 1, n > 1 ? &n : &one));
    c->fixed[k] = true;
    for (int64_t i = 0; i < ops_count(t); i++) {
        double x = (double)(1 << ops_pick(c, 0, 3));
        ops_set(t, i, k == 1 ? x / 64 : x);
    }
}

static void zero_in(ops_case *c, ru_dtype t)
{
    if (ops_coin(c)) {
        bytes_in(c, t, 0, NULL);
    }
}

/* Sometimes a scale for each block along an axis, and its zero point; false: not this time. */
static bool blocks_in(ops_case *c, ru_dtype t, const int64_t *dims)
{
    int64_t axis = ops_pick(c, 0, 2), block = ops_pick(c, 1, 4);
    int64_t shape[3] = {dims[0], dims[1], dims[2]};
    if (ops_pick(c, 0, 2) != 0) {
        return false;
    }
    shape[axis] = (dims[axis] - 1) / block + 1;
    ru_tensor *s = ops_in(c, ops_type(RU_F32, 3, shape));
    c->fixed[1] = true;
    for (int64_t i = 0; i < ops_count(s); i++) {
        ops_set(s, i, (double)(1 << ops_pick(c, 0, 3)) / 64);
    }
    if (ops_coin(c)) {
        bytes_in(c, t, 3, shape);
    }
    ops_attr_int(c, RU_ATTR_axis, ops_coin(c) ? axis : axis - 3);
    ops_attr_int(c, RU_ATTR_block_size, block);
    return true;
}

static void result(ops_case *c)
{
    static const int64_t to[] = {1, 2, 3}; /* f32, u8, i8 */
    int64_t k = ops_pick(c, 0, 2);
    ops_attr_int(c, RU_ATTR_to, to[k]);
    if (k > 0) {
        ops_attr_float(c, RU_ATTR_y_scale, 4097.0);
        ops_attr_int(c, RU_ATTR_y_zero, k == 1 ? ops_pick(c, 0, 255) : ops_pick(c, -128, 127));
    }
    if (ops_coin(c)) {
        ops_attr_str(c, RU_ATTR_activation, "relu");
    }
    c->f32_only = true;
    c->grad_in = 0;
}

static void bias_in(ops_case *c, int64_t n)
{
    if (ops_coin(c)) {
        (void)ops_in_ints(c, ops_type(RU_I32, 1, &n), -1000, 1000);
    }
}

static int64_t zero_of(ops_case *c, ru_dtype t)
{
    return ops_coin(c) ? 0 : t == RU_U8 ? ops_pick(c, 0, 255) : ops_pick(c, -128, 127);
}

void sample_quantizelinear(ops_case *c)
{
    ru_dtype t = a_byte(c);
    int64_t n = ops_dim(c), width = ops_dim(c), dims[3] = {n, width, ops_dim(c)};
    bool one = ops_coin(c);
    (void)ops_in_grid(c, ops_type(RU_F32, 3, dims), -8.0, 8.0);
    if (!blocks_in(c, t, dims)) {
        scales_in(c, 1, one ? 1 : dims[1], one);
        if (one) {
            zero_in(c, t);
        } else {
            bytes_in(c, t, 1, &dims[1]);
        }
    }
    c->f32_only = true;
    c->grad_in = 0;
}

void sample_dequantizelinear(ops_case *c)
{
    ru_dtype t = a_byte(c);
    int64_t n = ops_dim(c), width = ops_dim(c), dims[3] = {n, width, ops_dim(c)};
    bool one = ops_coin(c);
    bytes_in(c, t, 3, dims);
    if (!blocks_in(c, t, dims)) {
        scales_in(c, 1, one ? 1 : dims[1], one);
        if (one) {
            zero_in(c, t);
        }
    }
    c->f32_only = true;
    c->grad_in = 0;
}

void sample_convint8(ops_case *c)
{
    int64_t groups = ops_coin(c) ? 1 : ops_pick(c, 2, 4), stride = ops_pick(c, 1, 2);
    int64_t in = groups * ops_pick(c, 1, 4), out = groups * ops_pick(c, 1, 5);
    int64_t size = ops_pick(c, 3, 9), kernel = ops_coin(c) ? 3 : 1, pad = kernel / 2;
    ru_dtype t = a_byte(c);
    bytes_in(c, t, 4, (int64_t[]){ops_pick(c, 1, 3), in, size, size + 1});
    (void)ops_in_ints(c, ops_type(RU_I8, 4, (int64_t[]){out, in / groups, kernel, kernel}), -63,
                      63);
    c->fixed[1] = ops_coin(c);
    scales_in(c, 2, ops_coin(c) ? 1 : out, false);
    bias_in(c, out);
    ops_attr_int(c, RU_ATTR_x_zero, zero_of(c, t));
    ops_attr_int(c, RU_ATTR_group, groups);
    ops_attr_ints(c, RU_ATTR_strides, (int64_t[]){stride, stride}, 2);
    ops_attr_ints(c, RU_ATTR_pads, (int64_t[]){pad, pad, pad, pad}, 4);
    result(c);
}

void sample_matmulint8(ops_case *c)
{
    int64_t m = ops_dim(c), k = ops_dim(c), n = ops_dim(c);
    bool turned = ops_coin(c);
    ru_dtype t = a_byte(c);
    bytes_in(c, t, 3, (int64_t[]){ops_pick(c, 1, 3), m, k});
    (void)ops_in_ints(c, ops_type(RU_I8, 2, turned ? (int64_t[]){n, k} : (int64_t[]){k, n}), -63,
                      63);
    c->fixed[1] = ops_coin(c);
    scales_in(c, 2, ops_coin(c) ? 1 : n, false);
    bias_in(c, n);
    ops_attr_int(c, RU_ATTR_x_zero, zero_of(c, t));
    ops_attr_int(c, RU_ATTR_transB, turned);
    result(c);
}

/* Scales whose numbers come to no tie, but where the result is exact. */
static void bytes_out(ops_case *c, double y_scale)
{
    bool sign = ops_coin(c);
    ops_attr_int(c, RU_ATTR_to, sign ? 3 : 2);
    ops_attr_float(c, RU_ATTR_y_scale, y_scale);
    ops_attr_int(c, RU_ATTR_y_zero, sign ? ops_pick(c, -128, 127) : ops_pick(c, 0, 255));
    c->f32_only = true;
    c->grad_in = 0;
}

static void two_bytes(ops_case *c, double y_scale)
{
    ru_dtype ta = a_byte(c), tb = a_byte(c);
    int64_t dims[3] = {ops_pick(c, 1, 3), ops_dim(c), ops_dim(c)}, other[3];
    for (uint32_t d = 0; d < 3; d++) {
        other[d] = ops_pick(c, 0, 3) == 0 ? 1 : dims[d];
    }
    uint32_t less = ops_coin(c) ? 0 : (uint32_t)ops_pick(c, 0, 3);
    bytes_in(c, ta, 3, dims);
    bytes_in(c, tb, 3 - less, other + less);
    ops_attr_float(c, RU_ATTR_x_scale, 0.5);
    ops_attr_float(c, RU_ATTR_b_scale, 0.25);
    ops_attr_int(c, RU_ATTR_x_zero, zero_of(c, ta));
    ops_attr_int(c, RU_ATTR_b_zero, zero_of(c, tb));
    bytes_out(c, y_scale);
    if (ops_coin(c)) {
        ops_attr_str(c, RU_ATTR_activation, "relu");
    }
}

void sample_addint8(ops_case *c)
{
    two_bytes(c, 2.0);
}

void sample_mulint8(ops_case *c)
{
    two_bytes(c, 32.0);
}

void sample_mapint8(ops_case *c)
{
    static const char *const acts[] = {"", "relu", "leaky_relu", "sigmoid", "hardswish"};
    ru_dtype t = a_byte(c);
    bytes_in(c, t, 2, (int64_t[]){ops_dim(c), ops_dim(c)});
    ops_attr_float(c, RU_ATTR_x_scale, 0.0625);
    ops_attr_int(c, RU_ATTR_x_zero, zero_of(c, t));
    ops_attr_str(c, RU_ATTR_activation, acts[ops_pick(c, 0, 4)]);
    bytes_out(c, 0.0123);
}

void sample_meanint8(ops_case *c)
{
    ru_dtype t = a_byte(c);
    bytes_in(c, t, 4, (int64_t[]){ops_dim(c), ops_dim(c), ops_pick(c, 1, 20), ops_pick(c, 1, 9)});
    ops_attr_float(c, RU_ATTR_x_scale, 0.5);
    ops_attr_int(c, RU_ATTR_x_zero, zero_of(c, t));
    bytes_out(c, 0.1234);
}
