/* Which elements of a value belong to which sample.
 *
 * The batch symbol stands in at most one axis of a value. An axis of N places is the sample index
 * itself; one of c x N holds it together with others, in an order that the ops before have made:
 *
 *   [T, N, H]                       inner = H
 *   Reshape to [T x N, H]           row-major order stays, so does inner
 *   Transpose of [N x A, T, H]      inner within its axis (A) moves along
 *
 * Every other op keeps the order within an axis that it leaves as long as it is. */
#include "world/graph/graph.h"

#include <stddef.h>

/* Elements behind axis `axis`, 0 when that is no number. */
static int64_t behind(const ru_type *t, uint32_t axis)
{
    int64_t n = 1;
    for (uint32_t k = axis + 1; k < t->rank; k++) {
        n = ru_dim_mul(n, t->dims[k]);
    }
    return n > 0 ? n : 0;
}

/* How many axes count samples; `axis` is the last of them. */
static uint32_t sample_axes(const ru_type *t, uint32_t sym, uint32_t *axis)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < t->rank; k++) {
        if (ru_dim_is_symbolic(t->dims[k]) && ru_dim_sym(t->dims[k]) == sym) {
            *axis = k;
            n++;
        }
    }
    return n;
}

static bool keeps_order(ru_op op)
{
    return op == RU_OP_Reshape || op == RU_OP_Flatten || op == RU_OP_Squeeze ||
           op == RU_OP_Unsqueeze;
}

/* Elements of axis `axis` of `x` that belong to one sample and lie together; 0: they do not. */
static int64_t within_axis(const ru_type *x, uint32_t axis, int64_t inner)
{
    int64_t rest = behind(x, axis);
    int64_t n = rest > 0 && inner % rest == 0 ? inner / rest : 0;
    return n > 0 && ru_dim_coef(x->dims[axis]) % n == 0 ? n : 0;
}

/* `t` is an output of `n` whose axis `axis` holds c x N places, c > 1. */
static int64_t from_inputs(const ru_graph *g, const ru_node *n, const ru_type *t, uint32_t axis,
                           uint32_t sym, const int64_t *inner)
{
    int64_t found = RU_SAMPLES_UNKNOWN;
    for (uint32_t k = 0; k < n->n_in; k++) {
        const ru_type *x = &g->values[n->in[k].v].type;
        uint32_t at = 0;
        int64_t in = inner[n->in[k].v];
        if (in == RU_SAMPLES_UNKNOWN) {
            return RU_SAMPLES_UNKNOWN;
        }
        if (n->in[k].v == 0 || in == RU_SAMPLES_NONE) {
            continue;
        }
        (void)sample_axes(x, sym, &at);
        int64_t within = x->dims[at] == t->dims[axis] ? within_axis(x, at, in) : 0;
        int64_t here = within * behind(t, axis);
        if (here == 0 || (found > 0 && found != here)) {
            return RU_SAMPLES_UNKNOWN;
        }
        found = here;
    }
    return found;
}

static int64_t of_output(const ru_graph *g, const ru_node *n, ru_value_id y, uint32_t sym,
                         const int64_t *inner)
{
    const ru_type *t = &g->values[y.v].type;
    uint32_t axis = 0, axes = sample_axes(t, sym, &axis);
    if (axes == 0) {
        return RU_SAMPLES_NONE;
    }
    if (axes > 1 || behind(t, axis) == 0) {
        return RU_SAMPLES_UNKNOWN;
    }
    if (keeps_order(n->op)) {
        return inner[n->in[0].v];
    }
    return ru_dim_coef(t->dims[axis]) == 1 ? behind(t, axis)
                                           : from_inputs(g, n, t, axis, sym, inner);
}

const int64_t *ru_graph_samples(const ru_graph *g, uint32_t sym, ru_arena *arena)
{
    int64_t *inner = RU_NEW(arena, int64_t, g->n_values);
    if (inner == NULL) {
        return NULL;
    }
    for (uint32_t v = 1; v < g->n_values; v++) {
        const ru_value *x = &g->values[v];
        if (x->kind != RU_VALUE_TEMP) {
            inner[v] = of_output(g, &(ru_node){0}, (ru_value_id){v}, sym, inner);
        }
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->n_out; k++) {
            inner[n->out[k].v] = n->out[k].v != 0 ? of_output(g, n, n->out[k], sym, inner) : 0;
        }
    }
    return inner;
}
