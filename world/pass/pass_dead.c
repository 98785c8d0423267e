/* Dead code, and folding of known values.
 *
 * Both copy the values (ids stay) and add only the nodes that are still wanted. */
#include "world/graph/copy_impl.h"
#include "world/pass/pass.h"

#include <string.h>

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the graph is full");
}

/* May output k of this op be absent although others are there? */
static bool may_drop(ru_op op, uint32_t k)
{
    if (op == RU_OP_Split || op == RU_OP_BatchNormTrain || op == RU_OP_SoftmaxCrossEntropy) {
        return false;
    }
    return k >= ru_op_get(op)->out_min;
}

/* live[v]: the value is wanted by an output, an update or a live node. */
static void mark_live(const ru_graph *g, bool *live)
{
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        live[g->outputs[i].v] = true;
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        live[g->updates[i].value.v] = true;
    }
    for (uint32_t i = g->n_nodes; i-- > 1;) {
        const ru_node *n = &g->nodes[i];
        bool any = false;
        for (uint32_t k = 0; k < n->n_out; k++) {
            any = any || (n->out[k].v != 0 && live[n->out[k].v]);
        }
        for (uint32_t k = 0; any && k < n->n_in; k++) {
            live[n->in[k].v] = true;
        }
    }
}

static ru_status add_live_node(const ru_node *n, const bool *live, ru_graph *out, ru_err *err)
{
    bool any = false;
    for (uint32_t k = 0; k < n->n_out; k++) {
        any = any || (n->out[k].v != 0 && live[n->out[k].v]);
    }
    if (!any) {
        return RU_OK;
    }
    ru_value_id *outs = RU_NEW(out->arena, ru_value_id, n->n_out);
    if (outs == NULL) {
        return full(err);
    }
    ru_node m = *n;
    for (uint32_t k = 0; k < n->n_out; k++) {
        bool keep = live[n->out[k].v] || !may_drop(n->op, k);
        outs[k] = keep ? n->out[k] : (ru_value_id){0};
    }
    uint32_t min = ru_op_get(n->op)->out_min;
    while (m.n_out > min && m.n_out > 1 && outs[m.n_out - 1].v == 0) {
        m.n_out--;
    }
    m.out = outs;
    return ru_graph_add_node_into(out, &m, NULL, err);
}

ru_status ru_pass_dead(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err)
{
    ru_graph n;
    bool *live = RU_NEW(arena, bool, g->n_values);
    if (live == NULL) {
        return full(err);
    }
    mark_live(g, live);
    RU_TRY(rui_copy_values(g, arena, &n, err));
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        RU_TRY(add_live_node(&g->nodes[i], live, &n, err));
    }
    RU_TRY(rui_copy_ends(g, &n, err));
    *out = n;
    return RU_OK;
}

static bool keep(const ru_graph *g, const ru_arena *scratch, const ru_type *t, const void **data)
{
    if (*data != NULL && ru_arena_has(scratch, *data)) {
        *data = ru_arena_copy(g->arena, *data, ru_type_bytes(t), 64);
        return *data != NULL;
    }
    return true;
}

ru_status ru_pass_keep(ru_graph *g, const ru_arena *scratch, ru_err *err)
{
    bool all = true;
    for (uint32_t i = 1; i < g->n_values && all; i++) {
        all = keep(g, scratch, &g->values[i].type, &g->values[i].data);
    }
    for (uint32_t i = 1; i < g->n_nodes && all; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_attrs && all; k++) {
            ru_attr *a = (ru_attr *)(uintptr_t)&g->nodes[i].attrs[k]; /* the graph's own copy */
            all = a->kind != RU_ATTR_TENSOR || keep(g, scratch, a->u.t.type, &a->u.t.data);
        }
    }
    return all ? RU_OK : full(err);
}

/* -- folding ----------------------------------------------------------------------------------- */

/* All elements known as numbers: their bytes, else NULL. Sets *is_full when the arena is. */
static const void *known_bytes(ru_graph *g, const ru_value *v, bool *is_full)
{
    int64_t n = ru_type_count(&v->type);
    int64_t size = ru_dtype_bytes(v->type.dtype);
    if (v->known == NULL || n < 1 || !ru_type_is_concrete(&v->type)) {
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) {
        if (v->known[i] == RU_DIM_UNKNOWN || ru_dim_is_symbolic(v->known[i])) {
            return NULL;
        }
    }
    uint8_t *p = ru_arena_alloc(g->arena, n * size, 64);
    *is_full = p == NULL;
    for (int64_t i = 0; p != NULL && i < n; i++) { /* little-endian: the low bytes come first */
        memcpy(p + i * size, &v->known[i], (size_t)size);
    }
    return p;
}

/* Outputs that depend on the run (random) or are huge must not be folded. */
static bool foldable(const ru_graph *g, const ru_node *n, int64_t size_max_bytes)
{
    if (n->op == RU_OP_DropoutTrain || n->n_out == 0) {
        return false;
    }
    if (n->op == RU_OP_DequantizeLinear) {
        return false; /* ru_pass_fuse wants the integers, and computes what it does not use */
    }
    for (uint32_t k = 0; k < n->n_in; k++) {
        const ru_value *v = &g->values[n->in[k].v];
        if (n->in[k].v != 0 && (v->kind != RU_VALUE_CONST || v->data == NULL)) {
            return false;
        }
    }
    int64_t sum = 0;
    for (uint32_t k = 0; k < n->n_out; k++) {
        const ru_type *t = &g->values[n->out[k].v].type;
        if (n->out[k].v == 0) {
            continue;
        }
        if (!ru_type_is_concrete(t) || ru_type_count(t) < 1) {
            return false;
        }
        sum = ru_dim_add(sum, ru_type_bytes(t));
    }
    return sum >= 0 && sum <= size_max_bytes;
}

static void make_const(ru_graph *g, ru_value_id id, const void *data)
{
    ru_value *v = &g->values[id.v];
    v->kind = RU_VALUE_CONST;
    v->data = data;
    v->producer = (ru_graph_node_id){0};
    v->producer_out = 0;
}

/* Passes keep ids, so that equal values of two forms of a model have the same one. */
static const void *alike(const ru_graph *like, const ru_graph *g, ru_value_id id, const void *data)
{
    const ru_value *v = like != NULL && id.v < like->n_values ? &like->values[id.v] : NULL;
    const ru_type *t = &g->values[id.v].type;
    bool same = v != NULL && v->kind == RU_VALUE_CONST && v->data != NULL &&
                ru_type_equal(&v->type, t) && memcmp(v->data, data, (size_t)ru_type_bytes(t)) == 0;
    return same ? v->data : NULL;
}

static ru_status eval_node(ru_graph *g, const ru_node *n, const ru_fold_ops *ops, ru_err *err)
{
    const void **in = RU_NEW(g->arena, const void *, n->n_in);
    void **out = RU_NEW(g->arena, void *, n->n_out);
    if (in == NULL || out == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < n->n_in; k++) {
        in[k] = n->in[k].v != 0 ? g->values[n->in[k].v].data : NULL;
    }
    ru_arena_mark mark = ru_arena_mark_get(g->arena);
    uint32_t own = 0;
    for (uint32_t k = 0; k < n->n_out; k++) {
        if (n->out[k].v != 0) {
            out[k] = ru_arena_zalloc(g->arena, ru_type_bytes(&g->values[n->out[k].v].type), 64);
            if (out[k] == NULL) {
                return full(err);
            }
        }
    }
    RU_TRY(ops->eval(ops->self, g, n, in, out, err));
    for (uint32_t k = 0; k < n->n_out; k++) {
        if (n->out[k].v != 0) {
            const void *other = alike(ops->like, g, n->out[k], out[k]);
            make_const(g, n->out[k], other != NULL ? other : out[k]);
            own += other == NULL ? 1 : 0;
        }
    }
    if (own == 0) {
        ru_arena_rewind(g->arena, mark);
    }
    return RU_OK;
}

/* The data of a Constant node is that of its attribute: no evaluation needed. */
static const void *constant_data(const ru_node *n)
{
    const ru_attr *a = n->op == RU_OP_Constant ? ru_node_attr(n, RU_ATTR_value) : NULL;
    return a != NULL && a->kind == RU_ATTR_TENSOR ? a->u.t.data : NULL;
}

static ru_status fold_node(ru_graph *g, const ru_node *n, const ru_fold_ops *ops,
                           int64_t size_max_bytes, ru_err *err)
{
    if (constant_data(n) != NULL) {
        make_const(g, n->out[0], constant_data(n));
        return RU_OK;
    }
    bool all = n->n_out > 0;
    for (uint32_t k = 0; k < n->n_out && all; k++) {
        bool is_full = false;
        const void *p = n->out[k].v != 0 ? known_bytes(g, &g->values[n->out[k].v], &is_full) : NULL;
        if (is_full) {
            return full(err);
        }
        all = p != NULL;
        if (p != NULL && n->n_out == 1) {
            make_const(g, n->out[k], p);
        }
        all = all && n->n_out == 1;
    }
    if (all) {
        return RU_OK;
    }
    if (ops != NULL && ops->eval != NULL && foldable(g, n, size_max_bytes)) {
        return eval_node(g, n, ops, err);
    }
    return ru_graph_add_node_into(g, n, NULL, err);
}

ru_status ru_pass_fold(const ru_graph *g, const ru_fold_ops *ops, int64_t size_max_bytes,
                       ru_arena *arena, ru_graph *out, ru_err *err)
{
    ru_graph n;
    RU_TRY(rui_copy_values(g, arena, &n, err));
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        RU_TRY(fold_node(&n, &g->nodes[i], ops, size_max_bytes, err));
    }
    RU_TRY(rui_copy_ends(g, &n, err));
    *out = n;
    return RU_OK;
}
