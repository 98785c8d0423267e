/* Copies of graphs, and binding a symbol to a number. */
#include "world/graph/copy_impl.h"

#include <string.h>

/* Room for as much as `g` has. */
static bool reserve(const ru_graph *g, ru_graph *out)
{
    uint32_t values = g->n_values > out->cap_values ? g->n_values : out->cap_values,
             nodes = g->n_nodes > out->cap_nodes ? g->n_nodes : out->cap_nodes;
    out->values = RU_NEW(out->arena, ru_value, values);
    out->nodes = RU_NEW(out->arena, ru_node, nodes);
    out->cap_values = values;
    out->cap_nodes = nodes;
    return out->values != NULL && out->nodes != NULL;
}

ru_status rui_copy_values(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err)
{
    RU_TRY(ru_graph_init(out, arena, g->name, err));
    if (!reserve(g, out)) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the graph is full");
    }
    for (uint32_t i = 0; i < g->n_symbols; i++) {
        uint32_t s;
        RU_TRY(ru_graph_symbol(out, g->symbols[i], &s, err));
    }
    for (uint32_t i = 1; i < g->n_values; i++) {
        ru_value_id id;
        ru_value v = g->values[i];
        bool input = v.kind == RU_VALUE_INPUT;
        v.kind = input ? RU_VALUE_STATE : v.kind; /* inputs are listed in the old order below */
        RU_TRY(ru_graph_add_value(out, &v, &id, err));
        out->values[id.v].kind = g->values[i].kind;
        if (g->values[i].known != NULL) {
            int64_t n = ru_type_count(&v.type);
            out->values[id.v].known = ru_arena_copy(arena, g->values[i].known, n * 8, 8);
            if (out->values[id.v].known == NULL) {
                return RU_FAIL(err, RU_E_LIMIT, "the arena of the graph is full");
            }
        }
    }
    out->inputs = ru_arena_copy(arena, g->n_inputs > 0 ? (const void *)g->inputs : "",
                                (int64_t)g->n_inputs * (int64_t)sizeof *g->inputs, 8);
    if (out->inputs == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the graph is full");
    }
    out->n_inputs = g->n_inputs;
    out->cap_inputs = g->n_inputs;
    return RU_OK;
}

ru_status rui_copy_ends(const ru_graph *g, ru_graph *out, ru_err *err)
{
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        RU_TRY(ru_graph_add_output(out, g->outputs[i], err));
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        RU_TRY(ru_graph_add_update(out, g->updates[i].state, g->updates[i].value, err));
    }
    return RU_OK;
}

ru_status rui_copy_graph(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err)
{
    RU_TRY(rui_copy_values(g, arena, out, err));
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        RU_TRY(ru_graph_add_node_into(out, &g->nodes[i], NULL, err));
    }
    return rui_copy_ends(g, out, err);
}

ru_status ru_graph_bind(const ru_graph *g, uint32_t sym, int64_t number, ru_arena *arena,
                        ru_graph *out, ru_err *err)
{
    if (sym >= g->n_symbols || number < 0) {
        return RU_FAIL(err, RU_E_ARG, "cannot bind symbol %u of %u to %lld", sym, g->n_symbols,
                       (long long)number);
    }
    ru_graph n;
    RU_TRY(rui_copy_graph(g, arena, &n, err));
    for (uint32_t i = 1; i < n.n_values; i++) {
        ru_value *v = &n.values[i];
        if (v->kind == RU_VALUE_TEMP) {
            v->type = (ru_type){.dtype = RU_NONE};
            v->known = NULL;
            continue;
        }
        for (uint32_t k = 0; k < v->type.rank; k++) {
            int64_t d = v->type.dims[k];
            if (ru_dim_is_symbolic(d) && ru_dim_sym(d) == sym) {
                v->type.dims[k] = ru_dim_mul(ru_dim_coef(d), number);
                if (v->type.dims[k] == RU_DIM_UNKNOWN) {
                    return RU_FAIL(err, RU_E_LIMIT, "dimension %s = %lld makes '%s' too large",
                                   g->symbols[sym], (long long)number,
                                   v->name != NULL ? v->name : "");
                }
            }
        }
    }
    RU_TRY(ru_graph_infer(&n, err));
    *out = n;
    return RU_OK;
}
