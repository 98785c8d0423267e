/* Gradients of element-wise ops. */
#include "world/grad/grad_impl.h"

#include <string.h>

static vid dy0(const rui_grad *c)
{
    return rui_dy(c, 0);
}

/* dx = op(dy, x) and dx = op(dy, y), with the forward node's attributes. */
static void by_x(rui_grad *c, ru_op op)
{
    rui_give(c, 0, rui_op_same(c, op, (vid[]){dy0(c), rui_x(c, 0)}, 2));
}

static void by_y(rui_grad *c, ru_op op)
{
    rui_give(c, 0, rui_op_same(c, op, (vid[]){dy0(c), rui_y(c, 0)}, 2));
}

/* dx = dy * f. */
static void times(rui_grad *c, vid f)
{
    rui_give(c, 0, rui_mul(c, dy0(c), f));
}

/* dx = dy / f. */
static void over(rui_grad *c, vid f)
{
    rui_give(c, 0, rui_op2(c, RU_OP_Div, dy0(c), f));
}

/* a + b*x*x */
static vid square_plus(rui_grad *c, vid x, double a, double b)
{
    vid s = rui_scale(c, rui_mul(c, x, x), b);
    return rui_op2(c, RU_OP_Add, s, rui_scalar(c, rui_type(c, x).dtype, a));
}

void rui_grad_abs(rui_grad *c)
{
    times(c, rui_op1(c, RU_OP_Sign, rui_x(c, 0)));
}

void rui_grad_acos(rui_grad *c)
{
    vid r = rui_op1(c, RU_OP_Sqrt, square_plus(c, rui_x(c, 0), 1.0, -1.0));
    over(c, rui_scale(c, r, -1.0));
}

void rui_grad_acosh(rui_grad *c)
{
    over(c, rui_op1(c, RU_OP_Sqrt, square_plus(c, rui_x(c, 0), -1.0, 1.0)));
}

void rui_grad_asin(rui_grad *c)
{
    over(c, rui_op1(c, RU_OP_Sqrt, square_plus(c, rui_x(c, 0), 1.0, -1.0)));
}

void rui_grad_asinh(rui_grad *c)
{
    over(c, rui_op1(c, RU_OP_Sqrt, square_plus(c, rui_x(c, 0), 1.0, 1.0)));
}

void rui_grad_atan(rui_grad *c)
{
    over(c, square_plus(c, rui_x(c, 0), 1.0, 1.0));
}

void rui_grad_atanh(rui_grad *c)
{
    over(c, square_plus(c, rui_x(c, 0), 1.0, -1.0));
}

void rui_grad_cos(rui_grad *c)
{
    times(c, rui_scale(c, rui_op1(c, RU_OP_Sin, rui_x(c, 0)), -1.0));
}

void rui_grad_cosh(rui_grad *c)
{
    times(c, rui_op1(c, RU_OP_Sinh, rui_x(c, 0)));
}

void rui_grad_sin(rui_grad *c)
{
    times(c, rui_op1(c, RU_OP_Cos, rui_x(c, 0)));
}

void rui_grad_sinh(rui_grad *c)
{
    times(c, rui_op1(c, RU_OP_Cosh, rui_x(c, 0)));
}

void rui_grad_tan(rui_grad *c)
{
    times(c, square_plus(c, rui_y(c, 0), 1.0, 1.0));
}

void rui_grad_exp(rui_grad *c)
{
    times(c, rui_y(c, 0));
}

void rui_grad_log(rui_grad *c)
{
    over(c, rui_x(c, 0));
}

void rui_grad_neg(rui_grad *c)
{
    rui_give(c, 0, rui_scale(c, dy0(c), -1.0));
}

void rui_grad_reciprocal(rui_grad *c)
{
    times(c, rui_scale(c, rui_mul(c, rui_y(c, 0), rui_y(c, 0)), -1.0));
}

void rui_grad_sqrt(rui_grad *c)
{
    over(c, rui_scale(c, rui_y(c, 0), 2.0));
}

void rui_grad_identity(rui_grad *c)
{
    rui_give(c, 0, dy0(c));
}

void rui_grad_relu(rui_grad *c)
{
    by_y(c, RU_OP_ReluGrad);
}

void rui_grad_tanh(rui_grad *c)
{
    by_y(c, RU_OP_TanhGrad);
}

void rui_grad_sigmoid(rui_grad *c)
{
    by_y(c, RU_OP_SigmoidGrad);
}

void rui_grad_gelu(rui_grad *c)
{
    by_x(c, RU_OP_GeluGrad);
}

void rui_grad_celu(rui_grad *c)
{
    by_x(c, RU_OP_CeluGrad);
}

void rui_grad_elu(rui_grad *c)
{
    by_x(c, RU_OP_EluGrad);
}

void rui_grad_selu(rui_grad *c)
{
    by_x(c, RU_OP_SeluGrad);
}

void rui_grad_erf(rui_grad *c)
{
    by_x(c, RU_OP_ErfGrad);
}

void rui_grad_hardsigmoid(rui_grad *c)
{
    by_x(c, RU_OP_HardSigmoidGrad);
}

void rui_grad_hardswish(rui_grad *c)
{
    by_x(c, RU_OP_HardSwishGrad);
}

void rui_grad_leakyrelu(rui_grad *c)
{
    by_x(c, RU_OP_LeakyReluGrad);
}

void rui_grad_mish(rui_grad *c)
{
    by_x(c, RU_OP_MishGrad);
}

void rui_grad_softplus(rui_grad *c)
{
    by_x(c, RU_OP_SoftplusGrad);
}

void rui_grad_softsign(rui_grad *c)
{
    by_x(c, RU_OP_SoftsignGrad);
}

void rui_grad_clip(rui_grad *c)
{
    vid in[4] = {dy0(c), rui_x(c, 0), rui_x(c, 1), rui_x(c, 2)};
    rui_give(c, 0, rui_op_same(c, RU_OP_ClipGrad, in, c->n.n_in + 1));
}

void rui_grad_cast(rui_grad *c)
{
    ru_type t = rui_type(c, rui_x(c, 0));
    ru_type d = rui_type(c, dy0(c));
    if (ru_dtype_is_float(t.dtype) && ru_dtype_is_float(d.dtype)) {
        rui_give(c, 0,
                 ru_build_op1(&c->b, RU_OP_Cast, dy0(c),
                              (ru_attr[]){RU_AI(to, ru_dtype_onnx(t.dtype)), RU_A_END}));
    }
}

/* -- several inputs ---------------------------------------------------------------------------- */

void rui_grad_add(rui_grad *c)
{
    rui_give_reduced(c, 0, dy0(c));
    rui_give_reduced(c, 1, dy0(c));
}

void rui_grad_sub(rui_grad *c)
{
    rui_give_reduced(c, 0, dy0(c));
    if (rui_want(c, 1)) {
        rui_give(c, 1, rui_scale(c, rui_reduce_to(c, dy0(c), rui_x(c, 1)), -1.0));
    }
}

void rui_grad_mul(rui_grad *c)
{
    for (uint32_t k = 0; k < 2; k++) {
        if (rui_want(c, k)) {
            rui_give_reduced(c, k, rui_mul(c, dy0(c), rui_x(c, 1 - k)));
        }
    }
}

void rui_grad_div(rui_grad *c)
{
    vid q = rui_op2(c, RU_OP_Div, dy0(c), rui_x(c, 1));
    rui_give_reduced(c, 0, q);
    if (rui_want(c, 1)) {
        vid d = rui_reduce_to(c, rui_mul(c, q, rui_y(c, 0)), rui_x(c, 1));
        rui_give(c, 1, rui_scale(c, d, -1.0));
    }
}

void rui_grad_sum(rui_grad *c)
{
    for (uint32_t k = 0; k < c->n.n_in; k++) {
        rui_give_reduced(c, k, dy0(c));
    }
}

void rui_grad_mean(rui_grad *c)
{
    vid d = rui_scale(c, dy0(c), 1.0 / (double)c->n.n_in);
    for (uint32_t k = 0; k < c->n.n_in; k++) {
        rui_give_reduced(c, k, d);
    }
}

/* Max and Min: an input gets dy where it equals the result; equal inputs share. */
void rui_grad_max(rui_grad *c)
{
    if (c->n.n_in == 1) {
        rui_give(c, 0, dy0(c));
        return;
    }
    vid hits[64];
    ru_dtype dtype = rui_type(c, rui_y(c, 0)).dtype;
    RU_CHECK(c->n.n_in <= RU_ARRAY_LEN(hits));
    for (uint32_t k = 0; k < c->n.n_in; k++) {
        vid eq = rui_op2(c, RU_OP_Equal, rui_x(c, k), rui_y(c, 0));
        hits[k] = ru_build_op1(&c->b, RU_OP_Cast, eq,
                               (ru_attr[]){RU_AI(to, ru_dtype_onnx(dtype)), RU_A_END});
    }
    vid ties;
    ru_build_node(&c->b, RU_OP_Sum, hits, c->n.n_in, NULL, &ties, 1);
    vid share = rui_op2(c, RU_OP_Div, dy0(c), ties);
    for (uint32_t k = 0; k < c->n.n_in; k++) {
        if (rui_want(c, k)) {
            rui_give_reduced(c, k, rui_mul(c, share, hits[k]));
        }
    }
}

void rui_grad_where(rui_grad *c)
{
    vid zero = rui_scalar(c, rui_type(c, rui_y(c, 0)).dtype, 0.0);
    if (rui_want(c, 1)) {
        rui_give_reduced(c, 1, rui_op3(c, RU_OP_Where, rui_x(c, 0), dy0(c), zero));
    }
    if (rui_want(c, 2)) {
        rui_give_reduced(c, 2, rui_op3(c, RU_OP_Where, rui_x(c, 0), zero, dy0(c)));
    }
}

void rui_grad_prelu(rui_grad *c)
{
    vid x = rui_x(c, 0);
    vid zero = rui_scalar(c, rui_type(c, x).dtype, 0.0);
    vid low = rui_op2(c, RU_OP_Less, x, zero);
    if (rui_want(c, 0)) {
        vid scaled = rui_mul(c, dy0(c), rui_x(c, 1));
        rui_give(c, 0, rui_op3(c, RU_OP_Where, low, scaled, dy0(c)));
    }
    if (rui_want(c, 1)) {
        vid d = rui_op3(c, RU_OP_Where, low, rui_mul(c, dy0(c), x), zero);
        rui_give_reduced(c, 1, d);
    }
}

/* The value of a constant float scalar. */
static bool const_scalar(const rui_grad *c, vid v, double *x)
{
    const ru_value *p = &c->b.g->values[v.v];
    if (p->kind != RU_VALUE_CONST || p->data == NULL || ru_type_count(&p->type) != 1) {
        return false;
    }
    float f;
    switch ((uint32_t)p->type.dtype) {
    case RU_F32:
        memcpy(&f, p->data, sizeof f);
        *x = (double)f;
        return true;
    case RU_F64:
        memcpy(x, p->data, sizeof *x);
        return true;
    default:
        return false;
    }
}

/* y = x^e: dx = dy * e * x^(e-1), de = dy * y * log(x). */
void rui_grad_pow(rui_grad *c)
{
    vid x = rui_x(c, 0);
    vid e = rui_x(c, 1);
    ru_dtype dtype = rui_type(c, x).dtype;
    if (rui_type(c, e).dtype != dtype) {
        e = ru_build_op1(&c->b, RU_OP_Cast, e,
                         (ru_attr[]){RU_AI(to, ru_dtype_onnx(dtype)), RU_A_END});
    }
    double k;
    if (rui_want(c, 0)) {
        vid d;
        if (const_scalar(c, rui_x(c, 1), &k)) {
            vid p = k == 2.0   ? x
                    : k == 3.0 ? rui_mul(c, x, x)
                               : rui_op2(c, RU_OP_Pow, x, rui_scalar(c, dtype, k - 1.0));
            d = rui_mul(c, dy0(c), rui_scale(c, p, k));
        } else {
            vid less = rui_op2(c, RU_OP_Sub, e, rui_scalar(c, dtype, 1.0));
            d = rui_mul(c, rui_mul(c, dy0(c), e), rui_op2(c, RU_OP_Pow, x, less));
        }
        rui_give_reduced(c, 0, d);
    }
    if (rui_want(c, 1)) {
        vid d = rui_mul(c, rui_mul(c, dy0(c), rui_y(c, 0)), rui_op1(c, RU_OP_Log, x));
        rui_give_reduced(c, 1, d);
    }
}
