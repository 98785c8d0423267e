/* Element-wise ops of one input, and the gradients that need one more. */
#include "exec/cpu/ref/ref_impl.h"

#include <math.h>
#include <string.h>

static const double SELU_ALPHA = 1.67326319217681884765625;
static const double SELU_GAMMA = 1.05070102214813232421875;

static double sigmoid(double x)
{
    return x >= 0.0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

static double softplus(double x)
{
    return log1p(exp(-fabs(x))) + (x > 0.0 ? x : 0.0);
}

static double normal_cdf(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

/* tanh form of Gelu: 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3). */
static double gelu_tanh(double x)
{
    return x * sigmoid(2.0 * 0.79788456080286535588 * (x + 0.044715 * x * x * x));
}

static double gelu_tanh_grad(double x)
{
    double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    double du = 0.79788456080286535588 * (1.0 + 3.0 * 0.044715 * x * x);
    double t = tanh(u);
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * du;
}

static double clamp01(double x)
{
    return x < 0.0 ? 0.0 : (x > 1.0 ? 1.0 : x);
}

static double mish_grad(double x)
{
    double t = tanh(softplus(x));
    return t + x * (1.0 - t * t) * sigmoid(x);
}

/* X(op, attribute a, its default, attribute b, its default, value of f(x; a, b)) */
#define UNARY_LIST(X)                                                              \
    X(Acos, NONE, 0, NONE, 0, acos(x))                                             \
    X(Acosh, NONE, 0, NONE, 0, acosh(x))                                           \
    X(Asin, NONE, 0, NONE, 0, asin(x))                                             \
    X(Asinh, NONE, 0, NONE, 0, asinh(x))                                           \
    X(Atan, NONE, 0, NONE, 0, atan(x))                                             \
    X(Atanh, NONE, 0, NONE, 0, atanh(x))                                           \
    X(Ceil, NONE, 0, NONE, 0, ceil(x))                                             \
    X(Celu, alpha, 1, NONE, 0, x > 0.0 ? x : a * expm1(x / a))                     \
    X(Cos, NONE, 0, NONE, 0, cos(x))                                               \
    X(Cosh, NONE, 0, NONE, 0, cosh(x))                                             \
    X(Elu, alpha, 1, NONE, 0, x > 0.0 ? x : a * expm1(x))                          \
    X(Erf, NONE, 0, NONE, 0, erf(x))                                               \
    X(Exp, NONE, 0, NONE, 0, exp(x))                                               \
    X(Floor, NONE, 0, NONE, 0, floor(x))                                           \
    X(HardSigmoid, alpha, 0.2, beta, 0.5, clamp01(a *x + b))                       \
    X(HardSwish, NONE, 0, NONE, 0, x *clamp01(x / 6.0 + 0.5))                      \
    X(LeakyRelu, alpha, 0.01, NONE, 0, x < 0.0 ? a * x : x)                        \
    X(Log, NONE, 0, NONE, 0, log(x))                                               \
    X(Mish, NONE, 0, NONE, 0, x *tanh(softplus(x)))                                \
    X(Reciprocal, NONE, 0, NONE, 0, 1.0 / x)                                       \
    X(Round, NONE, 0, NONE, 0, rint(x))                                            \
    X(Selu, alpha, SELU_ALPHA, gamma, SELU_GAMMA, b *(x > 0.0 ? x : a * expm1(x))) \
    X(Shrink, bias, 0, lambd, 0.5, x < -b ? x + a : (x > b ? x - a : 0.0))         \
    X(Sigmoid, NONE, 0, NONE, 0, sigmoid(x))                                       \
    X(Sin, NONE, 0, NONE, 0, sin(x))                                               \
    X(Sinh, NONE, 0, NONE, 0, sinh(x))                                             \
    X(Softplus, NONE, 0, NONE, 0, softplus(x))                                     \
    X(Softsign, NONE, 0, NONE, 0, x / (1.0 + fabs(x)))                             \
    X(Sqrt, NONE, 0, NONE, 0, sqrt(x))                                             \
    X(Tan, NONE, 0, NONE, 0, tan(x))                                               \
    X(Tanh, NONE, 0, NONE, 0, tanh(x))                                             \
    X(ThresholdedRelu, alpha, 1, NONE, 0, x > a ? x : 0.0)

typedef double (*unary_fn)(double x, double a, double b);

static ru_status unary(const ru_ref_call *c, unary_fn f, double a, double b, ru_err *err)
{
    double *x;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    int64_t n = rui_ref_count(&c->in[0].type);
    for (int64_t i = 0; i < n; i++) {
        x[i] = f(x[i], a, b);
    }
    rui_ref_store(&c->out[0], x);
    return RU_OK;
}

#define RU_X(name, key_a, dflt_a, key_b, dflt_b, value)                            \
    static double f_##name(double x, RU_UNUSED double a, RU_UNUSED double b)       \
    {                                                                              \
        return value;                                                              \
    }                                                                              \
    ru_status rui_ref_##name(const ru_ref_call *c, ru_err *err)                    \
    {                                                                              \
        return unary(c, f_##name, ru_node_float(c->node, RU_ATTR_##key_a, dflt_a), \
                     ru_node_float(c->node, RU_ATTR_##key_b, dflt_b), err);        \
    }
UNARY_LIST(RU_X)
#undef RU_X

static bool wants_tanh(const ru_node *n)
{
    return strcmp(ru_node_str(n, RU_ATTR_approximate, "none"), "tanh") == 0;
}

static double gelu(double x, double tanh_form, double unused)
{
    (void)unused;
    return tanh_form > 0.0 ? gelu_tanh(x) : x * normal_cdf(x);
}

ru_status rui_ref_Gelu(const ru_ref_call *c, ru_err *err)
{
    return unary(c, gelu, wants_tanh(c->node) ? 1.0 : 0.0, 0.0, err);
}

/* -- ops of integers too: their integer form must keep all 64 bits ---------------------- */

typedef int64_t (*unary_int_fn)(int64_t x, bool is_unsigned);

static ru_status unary_num(const ru_ref_call *c, unary_fn f, unary_int_fn g, ru_err *err)
{
    ru_dtype t = c->in[0].type.dtype;
    if (rui_ref_is_float(t)) {
        return unary(c, f, 0.0, 0.0, err);
    }
    int64_t *x;
    RU_TRY(rui_ref_in_ints(c, 0, &x, err));
    int64_t n = rui_ref_count(&c->in[0].type);
    for (int64_t i = 0; i < n; i++) {
        x[i] = g(x[i], rui_ref_is_unsigned(t));
    }
    rui_ref_store_ints(&c->out[0], x);
    return RU_OK;
}

/* X(op, float form, integer form (u = unsigned)) */
#define UNARY_NUM_LIST(X)                                           \
    X(Abs, fabs(x), (x < 0 && !u) ? (int64_t)(0 - (uint64_t)x) : x) \
    X(Neg, -x, (int64_t)(0 - (uint64_t)x))                          \
    X(Relu, x < 0.0 ? 0.0 : x, (x < 0 && !u) ? 0 : x)               \
    X(Sign, (x > 0.0) - (x < 0.0) + (isnan(x) ? x : 0.0),           \
      (x > 0 || (x != 0 && u)) - (x < 0 && !u))                     \
    X(Identity, x, x)                                               \
    X(Not, x == 0.0, x == 0)                                        \
    X(BitwiseNot, x, ~x)

#define RU_X(name, float_form, int_form)                                     \
    static double f_##name(double x, RU_UNUSED double a, RU_UNUSED double b) \
    {                                                                        \
        return float_form;                                                   \
    }                                                                        \
    static int64_t i_##name(int64_t x, RU_UNUSED bool u)                     \
    {                                                                        \
        return int_form;                                                     \
    }                                                                        \
    ru_status rui_ref_##name(const ru_ref_call *c, ru_err *err)              \
    {                                                                        \
        return unary_num(c, f_##name, i_##name, err);                        \
    }
UNARY_NUM_LIST(RU_X)
#undef RU_X

ru_status rui_ref_IsNaN(const ru_ref_call *c, ru_err *err)
{
    double *x;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    int64_t n = rui_ref_count(&c->in[0].type);
    for (int64_t i = 0; i < n; i++) {
        x[i] = isnan(x[i]) ? 1.0 : 0.0;
    }
    rui_ref_store(&c->out[0], x);
    return RU_OK;
}

ru_status rui_ref_IsInf(const ru_ref_call *c, ru_err *err)
{
    bool pos = ru_node_int(c->node, RU_ATTR_detect_positive, 1) != 0;
    bool neg = ru_node_int(c->node, RU_ATTR_detect_negative, 1) != 0;
    double *x;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    int64_t n = rui_ref_count(&c->in[0].type);
    for (int64_t i = 0; i < n; i++) {
        x[i] = isinf(x[i]) && (x[i] > 0.0 ? pos : neg) ? 1.0 : 0.0;
    }
    rui_ref_store(&c->out[0], x);
    return RU_OK;
}

/* -- gradients: (dy, v) -> dx where v is the op's input x or its output y --------------- */

typedef double (*grad_fn)(double v, double a, double b);

static ru_status grad2(const ru_ref_call *c, grad_fn f, double a, double b, ru_err *err)
{
    double *dy, *v;
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_in(c, 1, &v, err));
    int64_t n = rui_ref_count(&c->out[0].type);
    for (int64_t i = 0; i < n; i++) {
        double slope = f(v[i], a, b);
        dy[i] = slope == 0.0 ? 0.0 : dy[i] * slope;
    }
    rui_ref_store(&c->out[0], dy);
    return RU_OK;
}

/* X(op, attribute a, its default, attribute b, its default, slope at v) */
#define GRAD_LIST(X)                                                                          \
    X(ReluGrad, NONE, 0, NONE, 0, v > 0.0 ? 1.0 : 0.0)                                        \
    X(TanhGrad, NONE, 0, NONE, 0, 1.0 - v * v)                                                \
    X(SigmoidGrad, NONE, 0, NONE, 0, v *(1.0 - v))                                            \
    X(EluGrad, alpha, 1, NONE, 0, v > 0.0 ? 1.0 : a * exp(v))                                 \
    X(SeluGrad, alpha, SELU_ALPHA, gamma, SELU_GAMMA, b *(v > 0.0 ? 1.0 : a * exp(v)))        \
    X(CeluGrad, alpha, 1, NONE, 0, v > 0.0 ? 1.0 : exp(v / a))                                \
    X(LeakyReluGrad, alpha, 0.01, NONE, 0, v < 0.0 ? a : 1.0)                                 \
    X(SoftplusGrad, NONE, 0, NONE, 0, sigmoid(v))                                             \
    X(SoftsignGrad, NONE, 0, NONE, 0, 1.0 / ((1.0 + fabs(v)) * (1.0 + fabs(v))))              \
    X(HardSigmoidGrad, alpha, 0.2, beta, 0.5, (a * v + b > 0.0 && a * v + b < 1.0) ? a : 0.0) \
    X(HardSwishGrad, NONE, 0, NONE, 0, v <= -3.0 ? 0.0 : (v >= 3.0 ? 1.0 : v / 3.0 + 0.5))    \
    X(MishGrad, NONE, 0, NONE, 0, mish_grad(v))                                               \
    X(ErfGrad, NONE, 0, NONE, 0, 1.12837916709551257390 * exp(-v * v))

#define RU_X(name, key_a, dflt_a, key_b, dflt_b, slope)                            \
    static double g_##name(double v, RU_UNUSED double a, RU_UNUSED double b)       \
    {                                                                              \
        return slope;                                                              \
    }                                                                              \
    ru_status rui_ref_##name(const ru_ref_call *c, ru_err *err)                    \
    {                                                                              \
        return grad2(c, g_##name, ru_node_float(c->node, RU_ATTR_##key_a, dflt_a), \
                     ru_node_float(c->node, RU_ATTR_##key_b, dflt_b), err);        \
    }
GRAD_LIST(RU_X)
#undef RU_X

static double gelu_grad(double x, double tanh_form, double unused)
{
    (void)unused;
    if (tanh_form > 0.0) {
        return gelu_tanh_grad(x);
    }
    return normal_cdf(x) + x * 0.39894228040143267794 * exp(-0.5 * x * x);
}

ru_status rui_ref_GeluGrad(const ru_ref_call *c, ru_err *err)
{
    return grad2(c, gelu_grad, wants_tanh(c->node) ? 1.0 : 0.0, 0.0, err);
}

ru_status rui_ref_ClipGrad(const ru_ref_call *c, ru_err *err)
{
    double *lo, *hi;
    RU_TRY(rui_ref_in(c, 2, &lo, err));
    RU_TRY(rui_ref_in(c, 3, &hi, err));
    double *dy, *x;
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_in(c, 1, &x, err));
    int64_t n = rui_ref_count(&c->out[0].type);
    for (int64_t i = 0; i < n; i++) {
        bool inside = (lo == NULL || x[i] >= lo[0]) && (hi == NULL || x[i] <= hi[0]);
        dy[i] = inside ? dy[i] : 0.0;
    }
    rui_ref_store(&c->out[0], dy);
    return RU_OK;
}
