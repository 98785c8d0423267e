/* Reshape, Flatten, Squeeze, Unsqueeze, Identity, Dropout that only copies: no step, the same
 * memory under another shape. */
#include "exec/cpu/lower/lower.h"

ru_status rui_lower_view(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_graph *g = rui_graph(lo);
    const ru_type *to = &g->values[n->out[0].v].type;
    const rui_layout *from = rui_standing(lo, n->in[0]);
    if (n->op == RU_OP_Dropout && (ru_node_has_in(n, 2) || ru_node_has_out(n, 1))) {
        return RU_E_UNSUPPORTED; /* it may train, or tells its mask */
    }
    if (n->op == RU_OP_Identity || n->op == RU_OP_Dropout) {
        rui_out_view(lo, n->out[0], from, rui_in_standing(lo, n->in[0]), 0);
        return rui_done(lo);
    }
    /* The order of elements is row-major on both sides; the dtype in memory stays what it is. */
    const rui_layout *plain = rui_plain_as(lo, &g->values[n->in[0].v].type, from->type.dtype);
    rui_buf b = rui_in(lo, n->in[0], plain);
    rui_out_view(lo, n->out[0], rui_plain_as(lo, to, from->type.dtype), b, 0);
    return rui_done(lo);
}
