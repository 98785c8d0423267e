/* From the form of a model that trains to the form that predicts: batch normalisation reads its
 * running statistics, dropout copies, recurrent layers keep no workspace, nothing is updated.
 *
 * The names of state stay, so that what training wrote is found again. Dropout and the momentum of
 * a normalisation stay in the graph, where they do nothing: an exported model can be trained on. */
#include "world/graph/copy_impl.h"
#include "world/pass/pass.h"

#include <stddef.h>

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the graph is full");
}

static ru_status copy_of(ru_graph *g, ru_value_id from, ru_value_id to, ru_err *err)
{
    ru_node n = {.op = RU_OP_Identity, .in = &from, .out = &to, .n_in = 1, .n_out = 1};
    return ru_graph_add_node_into(g, &n, NULL, err);
}

/* The statistics that come out are those that go in. */
static ru_status norm_node(ru_graph *g, const ru_node *n, ru_err *err)
{
    ru_attr *attrs = RU_NEW(g->arena, ru_attr, n->n_attrs + 1);
    uint32_t n_attrs = 0;
    if (attrs == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < n->n_attrs; k++) {
        if (n->attrs[k].key != RU_ATTR_bias) {
            attrs[n_attrs++] = n->attrs[k];
        }
    }
    ru_node m = *n;
    m.op = RU_OP_BatchNormalization;
    m.attrs = attrs;
    m.n_attrs = n_attrs;
    m.n_out = 1;
    RU_TRY(ru_graph_add_node_into(g, &m, NULL, err));
    for (uint32_t k = 1; k < 3; k++) {
        if (ru_node_has_out(n, k)) {
            RU_TRY(copy_of(g, n->in[k + 2], n->out[k], err));
        }
    }
    return RU_OK;
}

/* Without its third input the standard's Dropout copies. */
static ru_status dropout_node(ru_graph *g, const ru_node *n, ru_err *err)
{
    ru_value_id in[2] = {n->in[0], n->n_in > 1 ? n->in[1] : (ru_value_id){0}};
    ru_node m = *n;
    if (n->op == RU_OP_DropoutTrain) {
        float ratio = (float)ru_node_float(n, RU_ATTR_ratio, 0.5);
        void *data = ru_arena_copy(g->arena, &ratio, sizeof ratio, 64);
        ru_value v = {.type = {.dtype = RU_F32}, .kind = RU_VALUE_CONST, .data = data};
        if (data == NULL) {
            return full(err);
        }
        RU_TRY(ru_graph_add_value(g, &v, &in[1], err));
        m.n_attrs = 0;
        m.n_out = 1; /* the mask is of another type and of no use */
    }
    m.op = RU_OP_Dropout;
    m.in = in;
    m.n_in = in[1].v != 0 ? 2 : 1;
    return ru_graph_add_node_into(g, &m, NULL, err);
}

static ru_status rnn_node(ru_graph *g, const ru_node *n, ru_op op, ru_err *err)
{
    ru_node m = *n;
    m.op = op;
    m.n_out = n->n_out - 1;
    return ru_graph_add_node_into(g, &m, NULL, err);
}

ru_status ru_pass_infer(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err)
{
    ru_graph n;
    RU_TRY(rui_copy_values(g, arena, &n, err));
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *x = &g->nodes[i];
        switch ((uint32_t)x->op) {
        case RU_OP_BatchNormTrain:
            RU_TRY(norm_node(&n, x, err));
            break;
        case RU_OP_Dropout:
        case RU_OP_DropoutTrain:
            RU_TRY(dropout_node(&n, x, err));
            break;
        case RU_OP_LSTMTrain:
            RU_TRY(rnn_node(&n, x, RU_OP_LSTM, err));
            break;
        case RU_OP_GRUTrain:
            RU_TRY(rnn_node(&n, x, RU_OP_GRU, err));
            break;
        default:
            RU_TRY(ru_graph_add_node_into(&n, x, NULL, err));
            break;
        }
    }
    RU_TRY(rui_copy_ends(g, &n, err));
    n.n_updates = 0;
    return ru_pass_dead(&n, arena, out, err);
}
