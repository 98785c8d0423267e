/* What exporters write out in small ops becomes one op again: Gelu (both forms),
 * LayerNormalization, HardSwish, global pooling. Attention is in pass_attention.c.
 *
 * Each pattern starts at an op that is rare elsewhere (Erf, Tanh, Sqrt under a Div) and walks to
 * the root, the last node, whose slot the new node takes. */
#include "world/pass/rewrite_impl.h"

#include <string.h>

/* The other operand of a two-input node. */
static ru_value_id other(const ru_node *n, ru_value_id v)
{
    return n->in[0].v == v.v ? n->in[1] : n->in[0];
}

/* -- Gelu -------------------------------------------------------------------------------------- */

/* From e = erf(..) or tanh(..) up: 0.5 * x * (1 + e) in any association. Gives the root's slot. */
static uint32_t gelu_tail(const rui_rw *rw, ru_value_id e, ru_value_id x)
{
    uint32_t i = rui_rw_only_user(rw, e, RU_OP_Add);
    if (i == 0 || !rui_rw_is(rw, other(&rw->g.nodes[i], e), 1.0)) {
        return 0;
    }
    ru_value_id a = rw->g.nodes[i].out[0];
    uint32_t j = rui_rw_only_user(rw, a, RU_OP_Mul);
    if (j == 0) {
        return 0;
    }
    ru_value_id o = other(&rw->g.nodes[j], a);
    if (rui_rw_with_const(rw, o, RU_OP_Mul, 0.5).v == x.v) {
        return j; /* (0.5 x) (1 + e) */
    }
    ru_value_id m = rw->g.nodes[j].out[0];
    uint32_t root = rui_rw_only_user(rw, m, RU_OP_Mul);
    if (root == 0) {
        return 0;
    }
    ru_value_id p = other(&rw->g.nodes[root], m);
    bool x_then_half = o.v == x.v && rui_rw_is(rw, p, 0.5);
    bool half_then_x = rui_rw_is(rw, o, 0.5) && p.v == x.v;
    return x_then_half || half_then_x ? root : 0;
}

static void make_gelu(rui_rw *rw, uint32_t root, ru_value_id x, const char *how)
{
    ru_attr a = {.key = RU_ATTR_approximate, .kind = RU_ATTR_STR, .n = 1, .u.s = how};
    ru_value_id out = rw->g.nodes[root].out[0];
    rui_rw_set(rw, root, RU_OP_Gelu, &x, 1, &a, 1, &out, 1);
}

static bool lift_gelu_erf(rui_rw *rw, uint32_t i)
{
    const ru_node *erf = &rw->g.nodes[i];
    ru_value_id u = erf->in[0];
    ru_value_id x = rui_rw_with_const(rw, u, RU_OP_Mul, 0.70710678);
    const ru_node *div = rui_rw_made_by(rw, u, RU_OP_Div);
    if (x.v == 0 && div != NULL && rui_rw_is(rw, div->in[1], 1.41421356)) {
        x = div->in[0];
    }
    uint32_t root = x.v != 0 ? gelu_tail(rw, erf->out[0], x) : 0;
    if (root != 0) {
        make_gelu(rw, root, x, "none");
    }
    return root != 0;
}

/* Is v = x * x * x (products or Pow)? */
static bool is_cube(const rui_rw *rw, ru_value_id v, ru_value_id x)
{
    const ru_node *pow = rui_rw_made_by(rw, v, RU_OP_Pow);
    if (pow != NULL) {
        return pow->in[0].v == x.v && rui_rw_is(rw, pow->in[1], 3.0);
    }
    const ru_node *m = rui_rw_made_by(rw, v, RU_OP_Mul);
    if (m == NULL || (m->in[0].v != x.v && m->in[1].v != x.v)) {
        return false;
    }
    const ru_node *s = rui_rw_made_by(rw, other(m, x), RU_OP_Mul);
    return s != NULL && s->in[0].v == x.v && s->in[1].v == x.v;
}

static bool lift_gelu_tanh(rui_rw *rw, uint32_t i)
{
    const ru_node *tanh = &rw->g.nodes[i];
    ru_value_id sum = rui_rw_with_const(rw, tanh->in[0], RU_OP_Mul, 0.79788456);
    const ru_node *add = sum.v != 0 ? rui_rw_made_by(rw, sum, RU_OP_Add) : NULL;
    for (uint32_t k = 0; add != NULL && k < 2; k++) {
        ru_value_id x = add->in[k];
        ru_value_id cube = rui_rw_with_const(rw, add->in[1 - k], RU_OP_Mul, 0.044715);
        if (cube.v == 0 || !is_cube(rw, cube, x)) {
            continue;
        }
        uint32_t root = gelu_tail(rw, tanh->out[0], x);
        if (root != 0) {
            make_gelu(rw, root, x, "tanh");
            return true;
        }
    }
    return false;
}

/* -- LayerNormalization ------------------------------------------------------------------------ */

/* Does `n` reduce exactly the last axes of x, keeping them? Gives the first of them. */
static bool last_axes(const rui_rw *rw, const ru_node *n, uint32_t rank, uint32_t *axis)
{
    uint32_t count = 0;
    const int64_t *axes = ru_node_has_in(n, 1) ? rui_rw_ints(rw, n->in[1], &count)
                                               : ru_node_ints(n, RU_ATTR_axes, &count);
    if (axes == NULL || count == 0 || count > rank || ru_node_int(n, RU_ATTR_keepdims, 1) == 0) {
        return false;
    }
    *axis = rank - count;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t a = axes[i] < 0 ? axes[i] + (int64_t)rank : axes[i];
        if (a < (int64_t)*axis || a >= (int64_t)rank) {
            return false;
        }
        seen |= 1U << (uint32_t)a;
    }
    return seen == ((1U << rank) - 1U) - ((1U << *axis) - 1U);
}

/* v = x - mean(x) over the last axes. */
static bool is_centred(const rui_rw *rw, ru_value_id v, ru_value_id *x, uint32_t *axis)
{
    const ru_node *sub = rui_rw_made_by(rw, v, RU_OP_Sub);
    const ru_node *mean = sub != NULL ? rui_rw_made_by(rw, sub->in[1], RU_OP_ReduceMean) : NULL;
    if (mean == NULL || mean->in[0].v != sub->in[0].v) {
        return false;
    }
    *x = sub->in[0];
    return last_axes(rw, mean, rui_rw_type(rw, *x)->rank, axis);
}

static bool is_square(const rui_rw *rw, ru_value_id v, ru_value_id *base)
{
    const ru_node *pow = rui_rw_made_by(rw, v, RU_OP_Pow);
    const ru_node *mul = rui_rw_made_by(rw, v, RU_OP_Mul);
    if (pow != NULL && rui_rw_is(rw, pow->in[1], 2.0)) {
        *base = pow->in[0];
        return true;
    }
    if (mul != NULL && mul->in[0].v == mul->in[1].v) {
        *base = mul->in[0];
        return true;
    }
    return false;
}

/* Trained scale or bias over exactly the axes from `axis` on. */
static bool is_affine(const rui_rw *rw, ru_value_id v, const ru_type *x, uint32_t axis)
{
    const ru_value *p = &rw->g.values[v.v];
    bool fits = (p->kind == RU_VALUE_CONST || p->kind == RU_VALUE_STATE) &&
                p->type.rank == x->rank - axis && p->type.dtype == x->dtype;
    for (uint32_t i = axis; fits && i < x->rank; i++) {
        fits = p->type.dims[i - axis] == x->dims[i];
    }
    return fits;
}

/* d / sqrt(mean(d^2) + eps) * scale + bias, with d = x - mean(x), from the Div at slot i. */
static bool lift_layernorm(rui_rw *rw, uint32_t i)
{
    const ru_node *div = &rw->g.nodes[i];
    ru_value_id x;
    ru_value_id x2;
    ru_value_id base;
    uint32_t axis;
    uint32_t axis2;
    double eps;
    const ru_node *root = rui_rw_made_by(rw, div->in[1], RU_OP_Sqrt);
    const ru_node *add = root != NULL ? rui_rw_made_by(rw, root->in[0], RU_OP_Add) : NULL;
    if (add == NULL || !is_centred(rw, div->in[0], &x, &axis)) {
        return false;
    }
    bool second = rui_rw_scalar(rw, add->in[1], &eps);
    if (!second && !rui_rw_scalar(rw, add->in[0], &eps)) {
        return false;
    }
    const ru_node *var = rui_rw_made_by(rw, add->in[second ? 0 : 1], RU_OP_ReduceMean);
    if (var == NULL || !is_square(rw, var->in[0], &base) || !is_centred(rw, base, &x2, &axis2) ||
        x2.v != x.v || axis2 != axis || !last_axes(rw, var, rui_rw_type(rw, x)->rank, &axis2) ||
        axis2 != axis) {
        return false;
    }
    uint32_t m = rui_rw_only_user(rw, div->out[0], RU_OP_Mul);
    ru_value_id scale = m != 0 ? other(&rw->g.nodes[m], div->out[0]) : (ru_value_id){0};
    if (m == 0 || !is_affine(rw, scale, rui_rw_type(rw, x), axis)) {
        return false;
    }
    ru_value_id in[3] = {x, scale, {0}};
    uint32_t at = m;
    uint32_t b = rui_rw_only_user(rw, rw->g.nodes[m].out[0], RU_OP_Add);
    ru_value_id bias = b != 0 ? other(&rw->g.nodes[b], rw->g.nodes[m].out[0]) : (ru_value_id){0};
    if (b != 0 && is_affine(rw, bias, rui_rw_type(rw, x), axis)) {
        in[2] = bias;
        at = b;
    }
    ru_attr attrs[2] = {
        {.key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1, .u.i = (int64_t)axis},
        {.key = RU_ATTR_epsilon, .kind = RU_ATTR_FLOAT, .n = 1, .u.f = eps},
    };
    ru_value_id out = rw->g.nodes[at].out[0];
    rui_rw_set(rw, at, RU_OP_LayerNormalization, in, in[2].v != 0 ? 3 : 2, attrs, 2, &out, 1);
    return true;
}

/* -- small ones -------------------------------------------------------------------------------- */

/* x * HardSigmoid(x; 1/6, 1/2) */
static bool lift_hardswish(rui_rw *rw, uint32_t i)
{
    const ru_node *mul = &rw->g.nodes[i];
    for (uint32_t k = 0; k < 2; k++) {
        const ru_node *h = rui_rw_made_by(rw, mul->in[k], RU_OP_HardSigmoid);
        ru_value_id x = mul->in[1 - k];
        if (h == NULL || h->in[0].v != x.v) {
            continue;
        }
        double a = ru_node_float(h, RU_ATTR_alpha, 0.2) - 1.0 / 6.0;
        double b = ru_node_float(h, RU_ATTR_beta, 0.5) - 0.5;
        if (a * a + b * b < 1e-10) {
            ru_value_id out = mul->out[0];
            rui_rw_set(rw, i, RU_OP_HardSwish, &x, 1, NULL, 0, &out, 1);
            return true;
        }
    }
    return false;
}

/* ReduceMean over all spatial axes, kept: the newer exporter's GlobalAveragePool. */
static bool lift_globalpool(rui_rw *rw, uint32_t i)
{
    const ru_node *n = &rw->g.nodes[i];
    uint32_t rank = rui_rw_type(rw, n->in[0])->rank;
    uint32_t axis;
    uint32_t user = rui_rw_only_user(rw, n->out[0], RU_OP_Sub);
    if (rank < 4 || rank > 5 || user != 0 || !last_axes(rw, n, rank, &axis) || axis != 2) {
        return false; /* a mean that is subtracted belongs to a normalisation */
    }
    ru_value_id x = n->in[0];
    ru_value_id out = n->out[0];
    rui_rw_set(rw, i, RU_OP_GlobalAveragePool, &x, 1, NULL, 0, &out, 1);
    return true;
}

static void lift_node(rui_rw *rw, uint32_t i)
{
    switch ((uint32_t)rw->g.nodes[i].op) {
    case RU_OP_Erf:
        (void)lift_gelu_erf(rw, i);
        return;
    case RU_OP_Tanh:
        (void)lift_gelu_tanh(rw, i);
        return;
    case RU_OP_Div:
        (void)lift_layernorm(rw, i);
        return;
    case RU_OP_Mul:
        (void)lift_hardswish(rw, i);
        return;
    case RU_OP_ReduceMean:
        (void)lift_globalpool(rw, i);
        return;
    case RU_OP_MatMul:
        (void)rui_lift_attention(rw, i);
        return;
    default:
        return;
    }
}

void rui_lift_round(rui_rw *rw)
{
    for (uint32_t i = 1; i < rw->g.n_nodes && rw->status == RU_OK; i++) {
        lift_node(rw, i);
    }
}
