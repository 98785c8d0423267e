/* Peaks of memory: ends and begins of lifetimes in the order of steps. */
#include "cost/step/memory.h"

#include <stddef.h>

#include "cost/math/quantile.h"

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Indexes by rising key; keys are steps, which a double holds exactly. */
static ru_status order_by(const ru_memory_use *uses, uint32_t n, bool last, ru_arena *scratch,
                          uint32_t **order, ru_err *err)
{
    double *key = RU_NEW(scratch, double, n);
    *order = RU_NEW(scratch, uint32_t, n);
    if (key == NULL || *order == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the lifetimes of %u buffers", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        key[i] = last ? uses[i].last : uses[i].first;
    }
    ru_sort_order_f64(key, *order, n);
    return RU_OK;
}

ru_status ru_cost_memory(const ru_memory_use *uses, uint32_t n, int64_t align, ru_arena *scratch,
                         ru_memory_peak *peak, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    uint32_t *begins, *ends;
    int64_t total = 0;
    if (align < 1) {
        return RU_FAIL(err, RU_E_ARG, "an alignment of %lld bytes", (long long)align);
    }
    for (uint32_t i = 0; i < n; i++) {
        int64_t size = uses[i].size_bytes;
        if (size < 0 || uses[i].first > uses[i].last || size > (INT64_C(1) << 62) - total) {
            return RU_FAIL(err, size < 0 || uses[i].first > uses[i].last ? RU_E_ARG : RU_E_LIMIT,
                           "buffer %u: %lld bytes from step %u to %u", i, (long long)size,
                           uses[i].first, uses[i].last);
        }
        total += round_up(size, align);
    }
    RU_TRY(order_by(uses, n, false, scratch, &begins, err));
    RU_TRY(order_by(uses, n, true, scratch, &ends, err));
    ru_memory_peak most = {0};
    int64_t live = 0;
    for (uint32_t i = 0, ended = 0; i < n; i++) {
        const ru_memory_use *u = &uses[begins[i]];
        for (; ended < n && uses[ends[ended]].last < u->first; ended++) {
            live -= round_up(uses[ends[ended]].size_bytes, align);
        }
        live += round_up(u->size_bytes, align);
        if (live > most.bytes) {
            most = (ru_memory_peak){live, u->first};
        }
    }
    ru_arena_rewind(scratch, mark);
    *peak = most;
    return RU_OK;
}

/* The node that makes each value and the last that reads it. */
static void lifetimes(const ru_graph *g, ru_memory_use *uses)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->n_out; k++) {
            uses[n->out[k].v].first = uses[n->out[k].v].last = i;
        }
        for (uint32_t k = 0; k < n->n_in; k++) {
            uses[n->in[k].v].last = i;
        }
    }
    for (uint32_t k = 0; k < g->n_updates; k++) {
        uses[g->updates[k].value.v].last = g->n_nodes;
    }
    for (uint32_t k = 0; k < g->n_outputs; k++) {
        uses[g->outputs[k].v].last = g->n_nodes;
    }
}

ru_status ru_cost_memory_graph(const ru_graph *g, ru_arena *scratch, ru_memory_graph *out,
                               ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    ru_memory_use *uses = RU_NEW(scratch, ru_memory_use, g->n_values);
    ru_memory_graph m = {0};
    if (uses == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the lifetimes of %u values", g->n_values);
    }
    lifetimes(g, uses);
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->n_values; i++) {
        const ru_value *v = &g->values[i];
        int64_t bytes = ru_type_bytes(&v->type);
        if (bytes < 0) {
            return RU_FAIL(err, RU_E_ARG, "value %u has no size", i);
        }
        m.state_bytes += v->kind == RU_VALUE_STATE ? bytes : 0;
        m.const_bytes += v->kind == RU_VALUE_CONST ? bytes : 0;
        m.io_bytes += v->kind == RU_VALUE_INPUT ? bytes : 0;
        if (v->kind == RU_VALUE_TEMP && uses[i].first > 0) {
            uses[n] = uses[i];
            uses[n++].size_bytes = bytes;
        }
    }
    RU_TRY(ru_cost_memory(uses, n, 64, scratch, &m.temps, err));
    ru_arena_rewind(scratch, mark);
    *out = m;
    return RU_OK;
}
