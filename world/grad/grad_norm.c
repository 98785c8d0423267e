/* Gradients of the normalisations that are written out in other ops: LpNormalization,
 * MeanVarianceNormalization, LRN; and of LpPool. */
#include "world/grad/grad_impl.h"

/* sum or mean of v over the axes, kept as 1 */
static vid over(rui_grad *c, ru_op op, vid v, const int64_t *axes, uint32_t n)
{
    return ru_build_op1(&c->b, op, v,
                        (ru_attr[]){RU_AIS(axes, axes, n), RU_AI(keepdims, 1), RU_A_END});
}

/* x where it is at least `least`, else that. */
static vid at_least(rui_grad *c, vid x, double least)
{
    return rui_op2(c, RU_OP_Max, x, rui_scalar(c, rui_type(c, x).dtype, least));
}

static vid power(rui_grad *c, vid x, double e)
{
    return rui_op2(c, RU_OP_Pow, x, rui_scalar(c, rui_type(c, x).dtype, e));
}

/* y = x / |x|: dx = (dy - d|x|/dx * sum(dy y)) / |x|, 0 where |x| is 0. */
void rui_grad_lpnormalization(rui_grad *c)
{
    vid x = rui_x(c, 0), y = rui_y(c, 0);
    bool l1 = ru_node_int(&c->n, RU_ATTR_p, 2) == 1;
    int64_t axis = ru_node_int(&c->n, RU_ATTR_axis, -1);
    vid norm = over(c, l1 ? RU_OP_ReduceL1 : RU_OP_ReduceL2, x, &axis, 1);
    vid slope = l1 ? rui_op1(c, RU_OP_Sign, x) : y;
    vid dot = over(c, RU_OP_ReduceSum, rui_mul(c, rui_dy(c, 0), y), &axis, 1);
    vid d = rui_op2(c, RU_OP_Sub, rui_dy(c, 0), rui_mul(c, slope, dot));
    vid scale = rui_op2(c, RU_OP_Div, rui_op1(c, RU_OP_Sign, norm), at_least(c, norm, 1e-30));
    rui_give(c, 0, rui_mul(c, d, scale));
}

/* y = (x - mean) / (std + 1e-9): dx = (dy - mean(dy)) / (std + 1e-9) - y * mean(dy y) / std. */
void rui_grad_mvn(rui_grad *c)
{
    static const int64_t usual[] = {0, 2, 3};
    uint32_t n = 0;
    const int64_t *axes = ru_node_ints(&c->n, RU_ATTR_axes, &n);
    n = axes != NULL ? n : RU_ARRAY_LEN(usual);
    axes = axes != NULL ? axes : usual;
    vid x = rui_x(c, 0), dy = rui_dy(c, 0);
    vid dev = rui_op2(c, RU_OP_Sub, x, over(c, RU_OP_ReduceMean, x, axes, n));
    vid std = rui_op1(c, RU_OP_Sqrt, over(c, RU_OP_ReduceMean, rui_mul(c, dev, dev), axes, n));
    vid wide = rui_op2(c, RU_OP_Add, std, rui_scalar(c, rui_type(c, std).dtype, 1e-9));
    vid flat = rui_op2(c, RU_OP_Sub, dy, over(c, RU_OP_ReduceMean, dy, axes, n));
    vid dot = over(c, RU_OP_ReduceMean, rui_mul(c, dy, rui_y(c, 0)), axes, n);
    vid bend = rui_op2(c, RU_OP_Div, rui_mul(c, rui_y(c, 0), dot), at_least(c, std, 1e-20));
    rui_give(c, 0, rui_op2(c, RU_OP_Sub, rui_op2(c, RU_OP_Div, flat, wide), bend));
}

/* Mean of v over a window of channels: a pool along the channels of [N, 1, C, rest]. */
static vid channel_mean(rui_grad *c, vid v, int64_t size, int64_t before, int64_t after)
{
    ru_type t = rui_type(c, v);
    vid seen = rui_op2(c, RU_OP_Reshape, v,
                       ru_build_const_i64s(&c->b, (int64_t[]){0, 1, t.dims[1], -1}, 4));
    vid mean = ru_build_op1(&c->b, RU_OP_AveragePool, seen,
                            (ru_attr[]){RU_AIS(kernel_shape, ((int64_t[]){size, 1}), 2),
                                        RU_AIS(pads, ((int64_t[]){before, 0, after, 0}), 4),
                                        RU_AI(count_include_pad, 1), RU_A_END});
    return rui_reshape_like(c, mean, v);
}

/* y = x s^-b with s = k + a mean(x^2 of near channels):
 * dx = dy s^-b - 2 a b x mean(dy x s^(-b-1) of the channels this one is near). */
void rui_grad_lrn(rui_grad *c)
{
    vid x = rui_x(c, 0), dy = rui_dy(c, 0);
    int64_t size = ru_node_int(&c->n, RU_ATTR_size, 1);
    double alpha = ru_node_float(&c->n, RU_ATTR_alpha, 1e-4);
    double beta = ru_node_float(&c->n, RU_ATTR_beta, 0.75);
    double bias = ru_node_float(&c->n, RU_ATTR_bias, 1.0);
    ru_type t = rui_type(c, x);
    if (t.rank < 3 || t.dims[1] <= 0) {
        rui_no_gradient(c, "its channels must be a known number");
        return;
    }
    int64_t low = (size - 1) / 2, high = size / 2;
    vid mean = channel_mean(c, rui_mul(c, x, x), size, low, high);
    vid s = rui_op2(c, RU_OP_Add, rui_scale(c, mean, alpha), rui_scalar(c, t.dtype, bias));
    vid direct = rui_mul(c, dy, power(c, s, -beta));
    vid share = rui_mul(c, rui_mul(c, dy, x), power(c, s, -beta - 1.0));
    vid back = rui_mul(c, x, channel_mean(c, share, size, high, low));
    rui_give(c, 0, rui_op2(c, RU_OP_Sub, direct, rui_scale(c, back, 2.0 * alpha * beta)));
}

/* y = (sum of |x|^p)^(1/p): every window gives dy y^(1-p) to |x|^(p-1) sign(x). */
void rui_grad_lppool(rui_grad *c)
{
    int64_t p = ru_node_int(&c->n, RU_ATTR_p, 2), volume = 1;
    uint32_t n = 0;
    const int64_t *kernel = ru_node_ints(&c->n, RU_ATTR_kernel_shape, &n);
    if (ru_node_int(&c->n, RU_ATTR_ceil_mode, 0) != 0 || kernel == NULL) {
        rui_no_gradient(c, "ceil_mode has no gradient");
        return;
    }
    for (uint32_t d = 0; d < n; d++) {
        volume *= kernel[d];
    }
    vid x = rui_x(c, 0), y = rui_y(c, 0);
    vid t = rui_mul(c, rui_dy(c, 0), power(c, at_least(c, y, 1e-9), 1.0 - (double)p));
    vid given;
    rui_node_same(c, RU_OP_AveragePoolGrad, (vid[]){t, x}, 2,
                  (ru_attr[]){RU_AI(count_include_pad, 1), RU_A_END}, &given, 1);
    vid slope =
        rui_mul(c, power(c, rui_op1(c, RU_OP_Abs, x), (double)p - 1.0), rui_op1(c, RU_OP_Sign, x));
    rui_give(c, 0, rui_scale(c, rui_mul(c, given, slope), (double)volume));
}
