#include "exec/dev.h"

const rui_dev_ops *rui_dev_of(ru_device_kind kind)
{
    static const rui_dev_ops *const rows[] = {
        [RU_DEVICE_CPU] = &rui_dev_cpu,
        [RU_DEVICE_REF] = &rui_dev_ref,
    };
    RU_CHECK((uint32_t)kind < RU_ARRAY_LEN(rows));
    return rows[kind];
}

/* Is `v` only a part of a gradient, or copied because others read it? */
static bool is_part(const ru_graph *g, ru_value_id v)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *n = &g->nodes[i];
        if (n->op != RU_OP_AddInto && n->op != RU_OP_Identity) {
            continue;
        }
        for (uint32_t k = 0; k < n->n_in; k++) {
            if (n->in[k].v == v.v && n->n_out > 0 && g->values[n->out[0].v].role == RU_ROLE_GRAD) {
                return true;
            }
        }
    }
    return false;
}

bool rui_grad_leaves(const ru_graph *g, ru_value_id v)
{
    return g->values[v.v].role == RU_ROLE_GRAD && !is_part(g, v);
}
