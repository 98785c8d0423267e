/* Parts of a graph: the nodes that one process computes, and what crosses to the others.
 *
 *     part 0:  x --> a --> b --+--> c          b crosses to part 1 and to part 2, c to part 1
 *     part 1:          b, c --> d --> e        an input there, an output here
 *     part 2:          b, e --> f --> loss
 *
 * Constants and states belong to every part that reads them; who sums gradients of such a state
 * asks for an edge from its first reader to each other one. */
#include "world/graph/copy_impl.h"
#include "world/pass/pass.h"

#include <string.h>

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the graph is full");
}

/* Part that makes `v`; UINT32_MAX: no node does. */
static uint32_t maker(const ru_graph *g, const uint32_t *part_of, ru_value_id v)
{
    const ru_value *x = &g->values[v.v];
    return x->kind == RU_VALUE_TEMP && x->producer.v != 0 ? part_of[x->producer.v] : UINT32_MAX;
}

static int order_edges(const ru_part_edge *a, const ru_part_edge *b)
{
    return a->from != b->from         ? (a->from < b->from ? -1 : 1)
           : a->to != b->to           ? (a->to < b->to ? -1 : 1)
           : a->value.v == b->value.v ? 0
           : a->value.v < b->value.v  ? -1
                                      : 1;
}

/* Into the sorted list, once. */
static void put_edge(ru_part_edge *at, uint32_t *n, ru_part_edge x)
{
    uint32_t k = *n;
    while (k > 0 && order_edges(&at[k - 1], &x) > 0) {
        k--;
    }
    if (k > 0 && order_edges(&at[k - 1], &x) == 0) {
        return;
    }
    memmove(at + k + 1, at + k, (*n - k) * sizeof *at);
    at[k] = x;
    ++*n;
}

/* Part from which each value comes [g->n_values]; UINT32_MAX: from none. NULL: no memory. */
static uint32_t *sources(const ru_graph *g, const uint32_t *part_of, const bool *held,
                         ru_arena *arena)
{
    uint32_t *from = RU_NEW(arena, uint32_t, g->n_values);
    for (uint32_t v = 0; v < g->n_values && from != NULL; v++) {
        from[v] = maker(g, part_of, (ru_value_id){v});
    }
    for (uint32_t i = 1; i < g->n_nodes && from != NULL && held != NULL; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            uint32_t v = g->nodes[i].in[k].v;
            from[v] = held[v] && part_of[i] < from[v] ? part_of[i] : from[v];
        }
    }
    return from;
}

ru_status ru_pass_part_edges(const ru_graph *g, const uint32_t *part_of, const bool *held,
                             ru_arena *arena, ru_part_edge **edges, uint32_t *n, ru_err *err)
{
    uint32_t most = 0, count = 0;
    const uint32_t *from_of = sources(g, part_of, held, arena);
    if (from_of == NULL) {
        return full(err);
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            uint32_t from = from_of[g->nodes[i].in[k].v];
            if (from != UINT32_MAX && from > part_of[i]) {
                return RU_FAIL(err, RU_E_ARG,
                               "node %u of part %u needs a value of the later part %u", i,
                               part_of[i], from);
            }
            most += from != UINT32_MAX && from != part_of[i];
        }
    }
    ru_part_edge *at = RU_NEW(arena, ru_part_edge, most + 1);
    if (at == NULL) {
        return full(err);
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            ru_value_id v = g->nodes[i].in[k];
            uint32_t from = from_of[v.v];
            if (from != UINT32_MAX && from != part_of[i]) {
                put_edge(at, &count, (ru_part_edge){.from = from, .to = part_of[i], .value = v});
            }
        }
    }
    *edges = at;
    *n = count;
    return RU_OK;
}

/* States that no node reads: the first part has them, so that all parts have all states. */
static void mark_unread(const ru_graph *g, bool *used)
{
    for (uint32_t v = 1; v < g->n_values; v++) {
        used[v] = g->values[v].kind == RU_VALUE_STATE;
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        for (uint32_t j = 0; j < g->nodes[i].n_in; j++) {
            used[g->nodes[i].in[j].v] = false;
        }
    }
    for (uint32_t u = 0; u < g->n_updates; u++) {
        used[g->updates[u].state.v] = false;
    }
}

/* What part k reads or makes. */
static void mark_used(const ru_graph *g, const uint32_t *part_of, uint32_t k, bool *used)
{
    if (k == 0) {
        mark_unread(g, used);
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *n = &g->nodes[i];
        for (uint32_t j = 0; j < n->n_in && part_of[i] == k; j++) {
            used[n->in[j].v] = n->in[j].v != 0;
        }
        for (uint32_t j = 0; j < n->n_out && part_of[i] == k; j++) {
            used[n->out[j].v] = n->out[j].v != 0;
        }
    }
    for (uint32_t u = 0; u < g->n_updates; u++) {
        if (maker(g, part_of, g->updates[u].value) == k) {
            used[g->updates[u].state.v] = true;
        }
    }
}

/* Values of other parts: inputs where they are needed, else dead. The graph's own inputs come
 * first. */
static ru_status settle_values(const ru_graph *g, const uint32_t *part_of, uint32_t k,
                               const bool *used, ru_graph *out, ru_err *err)
{
    uint32_t n = 0;
    out->inputs = RU_NEW(out->arena, ru_value_id, g->n_values);
    if (out->inputs == NULL) {
        return full(err);
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        if (used[g->inputs[i].v]) {
            out->inputs[n++] = g->inputs[i];
        }
    }
    for (uint32_t v = 1; v < g->n_values; v++) {
        uint32_t from = maker(g, part_of, (ru_value_id){v});
        if (used[v] && from != UINT32_MAX && from != k) {
            out->values[v].kind = RU_VALUE_INPUT;
            out->inputs[n++] = (ru_value_id){v};
        } else if (!used[v]) {
            out->values[v].kind = RU_VALUE_TEMP;
            out->values[v].name = NULL;
            out->values[v].data = NULL;
        }
    }
    out->n_inputs = n;
    out->cap_inputs = g->n_values;
    return RU_OK;
}

ru_status ru_pass_part(const ru_graph *g, const uint32_t *part_of, uint32_t k, ru_arena *arena,
                       ru_graph *out, ru_err *err)
{
    ru_graph p;
    ru_part_edge *edges;
    uint32_t n;
    bool *used = RU_NEW(arena, bool, g->n_values);
    if (used == NULL) {
        return full(err);
    }
    RU_TRY(ru_pass_part_edges(g, part_of, NULL, arena, &edges, &n, err));
    mark_used(g, part_of, k, used);
    RU_TRY(rui_copy_values(g, arena, &p, err));
    RU_TRY(settle_values(g, part_of, k, used, &p, err));
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        RU_TRY(part_of[i] == k ? ru_graph_add_node_into(&p, &g->nodes[i], NULL, err) : RU_OK);
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        RU_TRY(maker(g, part_of, g->outputs[i]) == k ? ru_graph_add_output(&p, g->outputs[i], err)
                                                     : RU_OK);
    }
    for (uint32_t e = 0; e < n; e++) {
        bool listed = edges[e].from != k;
        for (uint32_t i = 0; i < p.n_outputs; i++) {
            listed = listed || p.outputs[i].v == edges[e].value.v;
        }
        RU_TRY(listed ? RU_OK : ru_graph_add_output(&p, edges[e].value, err));
    }
    for (uint32_t u = 0; u < g->n_updates; u++) {
        const ru_update *up = &g->updates[u];
        RU_TRY(maker(g, part_of, up->value) == k
                   ? ru_graph_add_update(&p, up->state, up->value, err)
                   : RU_OK);
    }
    *out = p;
    return RU_OK;
}
