/* Constants that stand in packed copies alone. */
#include "env/process/memory.h"
#include "exec/exe_impl.h"
#include "exec/reads.h"

bool ru_exe_drops_nan(const ru_exe *e)
{
    return e->dev->drops_nan;
}

static bool overlap(const ru_value *v, const void *data, int64_t bytes)
{
    uintptr_t a = (uintptr_t)v->data, b = (uintptr_t)data;
    return v->kind == RU_VALUE_CONST && v->data != NULL && a < b + (uintptr_t)bytes &&
           b < a + (uintptr_t)ru_type_bytes(&v->type);
}

/* Does a node of the graph that runs have these bytes as an operand? A kernel may keep where a
 * small one stands, without a step that mentions it. */
static bool is_operand(const ru_graph *g, const void *data, int64_t bytes)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            if (overlap(&g->values[g->nodes[i].in[k].v], data, bytes)) {
                return true;
            }
        }
    }
    return false;
}

static bool needs(const ru_exe *e, const void *data, int64_t bytes)
{
    rui_dev_use use = e->ops->uses != NULL ? e->ops->uses(e->dev, data, bytes) : RUI_USE_RUN;
    return use == RUI_USE_RUN || (use == RUI_USE_NONE && is_operand(&e->g, data, bytes));
}

static bool has_states(const ru_graph *g)
{
    bool any = false;
    for (uint32_t i = 1; i < g->n_values; i++) {
        any = any || g->values[i].kind == RU_VALUE_STATE;
    }
    return any;
}

static void drop_of(const ru_graph *g, ru_exe *const *list, uint32_t n)
{
    for (uint32_t i = 1; i < g->n_values; i++) {
        const ru_value *v = &g->values[i];
        int64_t bytes = v->kind == RU_VALUE_CONST && v->data != NULL ? ru_type_bytes(&v->type) : 0;
        bool needed = bytes <= 0;
        for (uint32_t k = 0; k < n && !needed; k++) {
            needed = list[k] != NULL && needs(list[k], v->data, bytes);
        }
        if (!needed) {
            ru_memory_drop(v->data, bytes);
        }
    }
}

void ru_exe_drop_packed(ru_exe *const *list, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        if (list[k] != NULL && has_states(list[k]->outer)) {
            return;
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        bool seen = list[k] == NULL;
        for (uint32_t i = 0; i < k && !seen; i++) { /* twins */
            seen = list[i] != NULL && list[i]->outer == list[k]->outer &&
                   list[i]->g.values == list[k]->g.values;
        }
        if (!seen) {
            drop_of(list[k]->outer, list, n);
            drop_of(&list[k]->g, list, n);
        }
    }
}
