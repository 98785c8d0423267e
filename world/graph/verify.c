/* Is a graph legal? Shares no code with what builds graphs. */
#include "world/graph/graph.h"

#include <string.h>

static ru_status value_check(const ru_graph *g, uint32_t i, ru_err *err)
{
    const ru_value *v = &g->values[i];
    const char *name = v->name != NULL ? v->name : "";
    if ((uint32_t)v->kind > RU_VALUE_STATE || (uint32_t)v->type.dtype >= RU_DTYPE_COUNT ||
        v->type.rank > RU_RANK_MAX) {
        return RU_FAIL(err, RU_E_DATA, "value %u '%s' has an illegal kind, type or rank", i, name);
    }
    for (uint32_t k = 0; k < v->type.rank; k++) {
        int64_t d = v->type.dims[k];
        bool symbolic = ru_dim_is_symbolic(d);
        if ((d < 0 && !symbolic) || (symbolic && ru_dim_sym(d) >= g->n_symbols)) {
            return RU_FAIL(err, RU_E_DATA, "value %u '%s' has illegal dimension %lld at axis %u", i,
                           name, (long long)d, k);
        }
    }
    if (v->kind != RU_VALUE_TEMP && v->type.dtype == RU_NONE) {
        return RU_FAIL(err, RU_E_DATA, "value %u '%s' has no element type", i, name);
    }
    if (v->kind == RU_VALUE_CONST && v->data == NULL && ru_type_count(&v->type) != 0) {
        return RU_FAIL(err, RU_E_DATA, "constant %u '%s' has no data", i, name);
    }
    if ((v->kind == RU_VALUE_CONST || v->kind == RU_VALUE_STATE) &&
        !ru_type_is_concrete(&v->type)) {
        return RU_FAIL(err, RU_E_DATA, "constant or state %u '%s' has a symbolic shape", i, name);
    }
    if (v->kind != RU_VALUE_TEMP && v->producer.v != 0) {
        return RU_FAIL(err, RU_E_DATA, "value %u '%s' is computed by a node but is not a temporary",
                       i, name);
    }
    if (v->kind == RU_VALUE_TEMP && v->producer.v != 0) {
        uint32_t p = v->producer.v;
        if (p >= g->n_nodes || v->producer_out >= g->nodes[p].n_out ||
            g->nodes[p].out[v->producer_out].v != i) {
            return RU_FAIL(err, RU_E_DATA,
                           "value %u '%s' names a producer that does not compute it", i, name);
        }
    }
    return RU_OK;
}

static ru_status node_fail(const ru_graph *g, uint32_t i, ru_err *err, const char *what, uint32_t k)
{
    const ru_node *n = &g->nodes[i];
    return RU_FAIL(err, RU_E_DATA, "node %u '%s' (%s): %s %u", i, n->name != NULL ? n->name : "",
                   ru_op_get(n->op)->name, what, k);
}

static ru_status node_check(const ru_graph *g, uint32_t i, ru_err *err)
{
    const ru_node *n = &g->nodes[i];
    if ((uint32_t)n->op >= RU_OP_COUNT || n->op == RU_OP_NONE) {
        return RU_FAIL(err, RU_E_DATA, "node %u has op number %d, which does not exist", i,
                       (int)n->op);
    }
    const ru_op_info *op = ru_op_get(n->op);
    if (n->n_in < op->in_min || n->n_in > op->in_max) {
        return node_fail(g, i, err, "this op does not take this number of inputs:", n->n_in);
    }
    if (n->n_out < op->out_min || n->n_out > op->out_max) {
        return node_fail(g, i, err, "this op does not have this number of outputs:", n->n_out);
    }
    for (uint32_t k = 0; k < n->n_in; k++) {
        uint32_t v = n->in[k].v;
        if (v >= g->n_values) {
            return node_fail(g, i, err, "this input is not a value of the graph:", k);
        }
        const ru_value *x = &g->values[v];
        if (v != 0 && x->kind == RU_VALUE_TEMP && (x->producer.v == 0 || x->producer.v >= i)) {
            return node_fail(g, i, err, "this input is not computed by an earlier node:", k);
        }
    }
    for (uint32_t k = 0; k < n->n_out; k++) {
        uint32_t v = n->out[k].v;
        if (v >= g->n_values) {
            return node_fail(g, i, err, "this output is not a value of the graph:", k);
        }
        const ru_value *x = &g->values[v];
        if (v != 0 && (x->kind != RU_VALUE_TEMP || x->producer.v != i || x->producer_out != k)) {
            return node_fail(g, i, err, "this output has another producer:", k);
        }
        if (v != 0 && x->type.dtype == RU_NONE) {
            return node_fail(g, i, err, "this output has no type:", k);
        }
    }
    for (uint32_t k = 0; k < n->n_attrs; k++) {
        const ru_attr *a = &n->attrs[k];
        if ((uint32_t)a->key >= RU_ATTR_COUNT || a->key == RU_ATTR_NONE ||
            (uint32_t)a->kind > RU_ATTR_TENSOR) {
            return node_fail(g, i, err, "this attribute has an illegal key or kind:", k);
        }
        if (ru_node_attr(n, a->key) != a) {
            return node_fail(g, i, err, "this attribute is given twice:", k);
        }
    }
    return RU_OK;
}

ru_status ru_graph_verify(const ru_graph *g, ru_err *err)
{
    for (uint32_t i = 1; i < g->n_values; i++) {
        RU_TRY(value_check(g, i, err));
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        RU_TRY(node_check(g, i, err));
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        uint32_t v = g->inputs[i].v;
        if (v == 0 || v >= g->n_values || g->values[v].kind != RU_VALUE_INPUT) {
            return RU_FAIL(err, RU_E_DATA, "graph input %u is not an input value", i);
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        uint32_t v = g->outputs[i].v;
        if (v == 0 || v >= g->n_values ||
            (g->values[v].kind == RU_VALUE_TEMP && g->values[v].producer.v == 0)) {
            return RU_FAIL(err, RU_E_DATA, "no node computes graph output %u", i);
        }
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        ru_update u = g->updates[i];
        if (u.state.v == 0 || u.state.v >= g->n_values || u.value.v == 0 ||
            u.value.v >= g->n_values || g->values[u.state.v].kind != RU_VALUE_STATE) {
            return RU_FAIL(err, RU_E_DATA, "update %u does not name a state and a value", i);
        }
        if (!ru_type_equal(&g->values[u.state.v].type, &g->values[u.value.v].type)) {
            char a[128];
            char b[128];
            return RU_FAIL(err, RU_E_DATA, "update %u writes %s into state '%s' of %s", i,
                           ru_type_print(g, &g->values[u.value.v].type, a, sizeof a),
                           g->values[u.state.v].name != NULL ? g->values[u.state.v].name : "",
                           ru_type_print(g, &g->values[u.state.v].type, b, sizeof b));
        }
    }
    return RU_OK;
}
