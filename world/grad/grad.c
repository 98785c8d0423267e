/* Reverse-mode differentiation: the driver and the helpers of the rules.
 *
 * Nodes are visited from last to first; by then every consumer of a node's outputs has added its
 * share. Only values on a path from a wrt to the loss are visited. */
#include "world/grad/grad_impl.h"
#include "world/graph/copy_impl.h"
#include "world/pass/pass.h"

#include <string.h>

/* -- helpers of the rules ---------------------------------------------------------------------- */

vid rui_dy(const rui_grad *c, uint32_t k)
{
    uint32_t v = k < c->n.n_out ? c->n.out[k].v : 0;
    return v != 0 && v < c->n_old ? c->grads[v] : (vid){0};
}

bool rui_want(const rui_grad *c, uint32_t k)
{
    uint32_t v = k < c->n.n_in ? c->n.in[k].v : 0;
    return v != 0 && v < c->n_old && c->needed[v];
}

vid rui_x(const rui_grad *c, uint32_t k)
{
    return k < c->n.n_in ? c->n.in[k] : (vid){0};
}

vid rui_y(const rui_grad *c, uint32_t k)
{
    return k < c->n.n_out ? c->n.out[k] : (vid){0};
}

ru_type rui_type(const rui_grad *c, vid v)
{
    return c->b.g->values[v.v].type;
}

void rui_no_gradient(rui_grad *c, const char *why)
{
    if (c->b.status == RU_OK) {
        const char *name = c->n.name;
        c->b.status = RU_FAIL(&c->b.err, RU_E_UNSUPPORTED, "node %u%s%s%s (%s): %s", c->id.v,
                              name != NULL ? " '" : "", name != NULL ? name : "",
                              name != NULL ? "'" : "", ru_op_get(c->n.op)->name, why);
    }
}

void rui_give(rui_grad *c, uint32_t k, vid v)
{
    if (c->b.status != RU_OK || v.v == 0 || !rui_want(c, k)) {
        return;
    }
    vid *sum = &c->grads[c->n.in[k].v];
    *sum = sum->v == 0 ? v : rui_op2(c, RU_OP_AddInto, *sum, v);
}

void rui_give_reduced(rui_grad *c, uint32_t k, vid v)
{
    if (rui_want(c, k)) {
        rui_give(c, k, rui_reduce_to(c, v, rui_x(c, k)));
    }
}

vid rui_force_output(rui_grad *c, uint32_t k)
{
    ru_graph *g = c->b.g;
    ru_node *n = &g->nodes[c->id.v];
    if (c->b.status != RU_OK || ru_node_has_out(n, k)) {
        return c->b.status == RU_OK ? n->out[k] : (vid){0};
    }
    uint32_t n_out = n->n_out > k + 1 ? n->n_out : k + 1;
    vid *out = RU_NEW(g->arena, vid, n_out);
    if (out == NULL) {
        c->b.status = RU_FAIL(&c->b.err, RU_E_LIMIT, "the arena of the graph is full");
        return (vid){0};
    }
    memcpy(out, n->out, sizeof *out * n->n_out);
    c->b.status = ru_graph_add_value(g, &(ru_value){.kind = RU_VALUE_TEMP}, &out[k], &c->b.err);
    if (c->b.status != RU_OK) {
        return (vid){0};
    }
    g->values[out[k].v].producer = c->id;
    g->values[out[k].v].producer_out = k;
    n->out = out;
    n->n_out = n_out;
    c->n = *n;
    c->b.status = ru_graph_infer_node(g, c->id, &c->b.err);
    return out[k];
}

vid rui_op1(rui_grad *c, ru_op op, vid x)
{
    return ru_build_op1(&c->b, op, x, NULL);
}

vid rui_op2(rui_grad *c, ru_op op, vid x, vid y)
{
    return ru_build_op2(&c->b, op, x, y, NULL);
}

vid rui_op3(rui_grad *c, ru_op op, vid x, vid y, vid z)
{
    return ru_build_op3(&c->b, op, x, y, z, NULL);
}

void rui_node_same(rui_grad *c, ru_op op, const vid *in, uint32_t n_in, const ru_attr *extra,
                   vid *out, uint32_t n_out)
{
    ru_attr attrs[32];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n.n_attrs && n < RU_ARRAY_LEN(attrs) - 4; i++) {
        attrs[n++] = c->n.attrs[i];
    }
    for (uint32_t i = 0; extra != NULL && extra[i].key != RU_ATTR_NONE && n < 31; i++) {
        attrs[n++] = extra[i];
    }
    attrs[n] = (ru_attr)RU_A_END;
    ru_build_node(&c->b, op, in, n_in, attrs, out, n_out);
}

vid rui_op_same(rui_grad *c, ru_op op, const vid *in, uint32_t n_in)
{
    vid out;
    rui_node_same(c, op, in, n_in, NULL, &out, 1);
    return out;
}

vid rui_scalar(rui_grad *c, ru_dtype dtype, double x)
{
    float f = (float)x;
    uint16_t h = dtype == RU_BF16 ? ru_f32_to_bf16(f) : ru_f32_to_f16(f);
    const void *p = dtype == RU_F64 ? (const void *)&x : dtype == RU_F32 ? (const void *)&f : &h;
    if (!ru_dtype_is_float(dtype)) {
        rui_no_gradient(c, "the gradient of a tensor that is not float was requested");
        return (vid){0};
    }
    return ru_build_const(&c->b, ru_type_scalar(dtype), p);
}

vid rui_mul(rui_grad *c, vid x, vid y)
{
    return rui_op2(c, RU_OP_Mul, x, y);
}

vid rui_scale(rui_grad *c, vid x, double k)
{
    return k == 1.0    ? x
           : k == -1.0 ? rui_op1(c, RU_OP_Neg, x)
                       : rui_mul(c, x, rui_scalar(c, rui_type(c, x).dtype, k));
}

vid rui_shape_of(rui_grad *c, vid x)
{
    ru_type t = rui_type(c, x);
    return ru_type_is_concrete(&t) ? ru_build_const_i64s(&c->b, t.dims, t.rank)
                                   : rui_op1(c, RU_OP_Shape, x);
}

vid rui_reshape_like(rui_grad *c, vid x, vid like)
{
    ru_type t = rui_type(c, like);
    uint32_t symbolic = 0;
    bool zero = false;
    for (uint32_t i = 0; i < t.rank; i++) {
        zero = zero || t.dims[i] == 0;
        if (ru_dim_is_symbolic(t.dims[i])) {
            t.dims[i] = -1;
            symbolic++;
        }
    }
    if (symbolic <= 1 && !zero) {
        return rui_op2(c, RU_OP_Reshape, x, ru_build_const_i64s(&c->b, t.dims, t.rank));
    }
    return ru_build_op2(&c->b, RU_OP_Reshape, x, rui_shape_of(c, like),
                        (ru_attr[]){RU_AI(allowzero, 1), RU_A_END});
}

vid rui_expand_like(rui_grad *c, vid x, vid like)
{
    ru_type a = rui_type(c, x);
    ru_type b = rui_type(c, like);
    return ru_type_equal(&a, &b) ? x : rui_op2(c, RU_OP_Expand, x, rui_shape_of(c, like));
}

vid rui_reduce_to(rui_grad *c, vid x, vid like)
{
    ru_type a = rui_type(c, x);
    ru_type b = rui_type(c, like);
    b.dtype = a.dtype;
    if (c->b.status != RU_OK || ru_type_equal(&a, &b)) {
        return x;
    }
    uint32_t lead = a.rank >= b.rank ? a.rank - b.rank : 0;
    bool tail = a.rank > b.rank;
    for (uint32_t i = 0; i < b.rank && tail; i++) {
        tail = a.dims[i + lead] == b.dims[i];
    }
    if (tail) { /* only leading axes were added: the bias gradient */
        int64_t axes[RU_RANK_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};
        return ru_build_op1(&c->b, RU_OP_ReduceSum, x,
                            (ru_attr[]){RU_AIS(axes, axes, lead), RU_AI(keepdims, 0), RU_A_END});
    }
    return rui_op2(c, RU_OP_ReduceTo, x, like);
}

vid rui_zeros_like(rui_grad *c, vid x)
{
    ru_type t = rui_type(c, x);
    return rui_expand_like(c, rui_scalar(c, t.dtype, 0.0), x);
}

void rui_grad_none(rui_grad *c)
{
    rui_no_gradient(c, "this op has no gradient; keep trained parameters after it, or replace it");
}

void rui_grad_stop(rui_grad *c)
{
    (void)c;
}

/* -- driver ------------------------------------------------------------------------------------ */

static bool stops(ru_op op)
{
    switch (op) {
#define RU_OP(name, onnx, in_min, in_max, out_min, out_max, shape, grad, ...) \
    case RU_OP_##name:                                                        \
        return rui_grad_##grad == rui_grad_stop;
#include "world/graph/ops.def"
#undef RU_OP
    case RU_OP_NONE:
    case RU_OP_COUNT:
    default:
        return true;
    }
}

static void dispatch(rui_grad *c)
{
    switch (c->n.op) {
#define RU_OP(name, onnx, in_min, in_max, out_min, out_max, shape, grad, ...) \
    case RU_OP_##name:                                                        \
        rui_grad_##grad(c);                                                   \
        return;
#include "world/graph/ops.def"
#undef RU_OP
    case RU_OP_NONE:
    case RU_OP_COUNT:
    default:
        rui_no_gradient(c, "there is no such op");
    }
}

/* needed[v]: v is a wrt, or a float made from one by ops that let gradients through. */
static void mark_needed(const ru_graph *g, const ru_value_id *wrt, uint32_t n_wrt, bool *needed)
{
    for (uint32_t i = 0; i < n_wrt; i++) {
        needed[wrt[i].v] = wrt[i].v != 0;
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *n = &g->nodes[i];
        bool any = false;
        for (uint32_t k = 0; k < n->n_in; k++) {
            any = any || needed[n->in[k].v];
        }
        for (uint32_t k = 0; any && !stops(n->op) && k < n->n_out; k++) {
            uint32_t v = n->out[k].v;
            needed[v] = v != 0 && ru_dtype_is_float(g->values[v].type.dtype);
        }
    }
    needed[0] = false;
}

static void node_backward(rui_grad *c, uint32_t i)
{
    c->id = (ru_graph_node_id){i};
    c->n = c->b.g->nodes[i];
    bool have = false;
    bool want = false;
    for (uint32_t k = 0; k < c->n.n_out; k++) {
        have = have || (rui_dy(c, k).v != 0 && c->needed[c->n.out[k].v]);
    }
    for (uint32_t k = 0; k < c->n.n_in; k++) {
        want = want || rui_want(c, k);
    }
    if (!have || !want) {
        return;
    }
    const char *act = ru_node_str(&c->n, RU_ATTR_activation, "");
    if (act[0] != '\0') {
        rui_no_gradient(c, "it is fused with an activation; differentiate before fusing");
    }
    dispatch(c);
}

static ru_status finish(rui_grad *c, const ru_value_id *wrt, uint32_t n_wrt, ru_value_id *grads,
                        ru_err *err)
{
    for (uint32_t i = 0; i < n_wrt && c->b.status == RU_OK; i++) {
        vid d = c->grads[wrt[i].v];
        if (d.v == 0) {
            continue;
        }
        ru_value *v = &c->b.g->values[d.v];
        ru_value *w = &c->b.g->values[wrt[i].v];
        if (v->type.rank != w->type.rank || v->type.dtype != w->type.dtype) {
            char a[128];
            char b[128];
            return RU_FAIL(err, RU_E_BUG, "the gradient of '%s' %s came out as %s",
                           w->name != NULL ? w->name : "",
                           ru_type_print(c->b.g, &w->type, a, sizeof a),
                           ru_type_print(c->b.g, &v->type, b, sizeof b));
        }
        v->role = v->kind == RU_VALUE_TEMP ? RU_ROLE_GRAD : v->role;
    }
    if (c->b.status != RU_OK) {
        return RU_FAIL(err, c->b.status, "%s", c->b.err.text);
    }
    for (uint32_t i = 0; i < n_wrt; i++) {
        grads[i] = c->grads[wrt[i].v];
    }
    return RU_OK;
}

/* The gradient of value i of the list enters. */
static ru_status seed(rui_grad *c, ru_value_id y, ru_value_id given, ru_err *err)
{
    const ru_type t = c->b.g->values[y.v].type;
    vid one = given;
    if (given.v == 0 && (ru_type_count(&t) != 1 || !ru_dtype_is_float(t.dtype))) {
        return RU_FAIL(err, RU_E_ARG, "the loss must be one float, not a tensor");
    }
    if (given.v == 0) {
        one = rui_scalar(c, t.dtype, 1.0);
        one = t.rank > 0 ? rui_expand_like(c, one, y) : one;
    }
    vid *sum = &c->grads[y.v];
    *sum = sum->v == 0 ? one : rui_op2(c, RU_OP_Add, *sum, one);
    return RU_OK;
}

ru_status ru_graph_grad_from(const ru_graph *g, const ru_value_id *ys, const ru_value_id *seeds,
                             uint32_t n, const ru_value_id *wrt, uint32_t n_wrt, ru_arena *arena,
                             ru_graph *out, ru_value_id *grads, ru_err *err)
{
    ru_graph copy;
    RU_TRY(rui_copy_graph(g, arena, &copy, err));
    rui_grad c = {.n_old = g->n_values};
    ru_build_init(&c.b, &copy);
    bool *needed = RU_NEW(arena, bool, g->n_values);
    c.grads = RU_NEW(arena, vid, g->n_values);
    if (needed == NULL || c.grads == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the graph is full");
    }
    mark_needed(g, wrt, n_wrt, needed);
    c.needed = needed;
    for (uint32_t i = 0; i < n; i++) {
        RU_CHECK(ys[i].v != 0 && ys[i].v < g->n_values);
        RU_TRY(seed(&c, ys[i], seeds[i], err));
    }
    for (uint32_t i = g->n_nodes; i-- > 1 && c.b.status == RU_OK;) {
        node_backward(&c, i);
    }
    RU_TRY(finish(&c, wrt, n_wrt, grads, err));
    *out = copy;
    return RU_OK;
}

ru_status ru_graph_grad(const ru_graph *g, ru_value_id loss, const ru_value_id *wrt, uint32_t n_wrt,
                        ru_arena *arena, ru_graph *out, ru_value_id *grads, ru_err *err)
{
    const ru_value_id one = {0};
    return ru_graph_grad_from(g, &loss, &one, 1, wrt, n_wrt, arena, out, grads, err);
}
