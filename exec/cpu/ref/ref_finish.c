/* The end of fused ops: residual and activation. */
#include "exec/cpu/ref/ref_impl.h"

#include <math.h>
#include <string.h>

static double sigmoid(double z)
{
    return 1.0 / (1.0 + exp(-z));
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : (x > high ? high : x);
}

static double gelu_tanh(double z)
{
    return z * sigmoid(2.0 * 0.79788456080286535588 * (z + 0.044715 * z * z * z));
}

/* X(word, default of activation_alpha, default of activation_beta, value at z) */
#define FINISH_LIST(X)                                         \
    X(relu, 0, 0, z < 0.0 ? 0.0 : z)                           \
    X(sigmoid, 0, 0, sigmoid(z))                               \
    X(tanh, 0, 0, tanh(z))                                     \
    X(leaky_relu, 0.01, 0, z < 0.0 ? f->a * z : z)             \
    X(elu, 1, 0, z < 0.0 ? f->a * expm1(z) : z)                \
    X(gelu, 0, 0, 0.5 * z * erfc(-z * 0.70710678118654752440)) \
    X(gelu_tanh, 0, 0, gelu_tanh(z))                           \
    X(silu, 0, 0, z *sigmoid(z))                               \
    X(hardswish, 0, 0, z *clamp(z / 6.0 + 0.5, 0.0, 1.0))      \
    X(hardsigmoid, 0.2, 0.5, clamp(f->a *z + f->b, 0.0, 1.0))  \
    X(clip, (double)-INFINITY, (double)INFINITY, clamp(z, f->a, f->b))

enum {
    ACT_NONE,
#define RU_X(name, dflt_a, dflt_b, value) ACT_##name,
    FINISH_LIST(RU_X)
#undef RU_X
};

bool rui_finish_of(const ru_node *n, rui_finish *f)
{
    const char *word = ru_node_str(n, RU_ATTR_activation, "");
    double alpha = 0.0, beta = 0.0;
    uint32_t act = ACT_NONE;
#define RU_X(name, dflt_a, dflt_b, value) \
    if (strcmp(word, #name) == 0) {       \
        alpha = dflt_a;                   \
        beta = dflt_b;                    \
        act = ACT_##name;                 \
    }
    FINISH_LIST(RU_X)
#undef RU_X
    *f = (rui_finish){.act = act,
                      .a = ru_node_float(n, RU_ATTR_activation_alpha, alpha),
                      .b = ru_node_float(n, RU_ATTR_activation_beta, beta)};
    return act != ACT_NONE || word[0] == '\0';
}

ru_status rui_finish_make(const ru_ref_call *c, uint32_t k_residual, rui_finish *f, ru_err *err)
{
    if (!rui_finish_of(c->node, f)) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "%s: fused activation '%s' is not known",
                       ru_op_get(c->node->op)->name, ru_node_str(c->node, RU_ATTR_activation, ""));
    }
    if (rui_ref_has(c, k_residual)) {
        RU_TRY(rui_ref_load_as(c, &c->in[k_residual], &c->out[0].type, &f->residual, err));
    }
    return RU_OK;
}

double rui_finish_apply(const rui_finish *f, int64_t i, double z)
{
    z += f->residual != NULL ? f->residual[i] : 0.0;
    switch (f->act) {
#define RU_X(name, dflt_a, dflt_b, value) \
    case ACT_##name:                      \
        return value;
        FINISH_LIST(RU_X)
#undef RU_X
    default:
        return z;
    }
}
