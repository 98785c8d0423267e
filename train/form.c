/* Inference form to training form: what an exporter froze becomes trainable again.
 *
 *   BatchNormalization -> BatchNormTrain, running statistics updated after the step
 *   Dropout            -> DropoutTrain with the ratio of its constant input (0.5 when not given)
 *   LSTM, GRU          -> LSTMTrain, GRUTrain (their workspace serves the gradient)
 *
 * Everything else is copied. */
#include <string.h>

#include "train/model.h"

typedef struct form {
    const ru_graph *src;
    ru_graph *dst;
    ru_value_id *map; /* [src->n_values] */
    int64_t stream;   /* next dropout stream */
} form;

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the model is full");
}

static ru_status copy_values(form *f, ru_err *err)
{
    for (uint32_t s = 0; s < f->src->n_symbols; s++) {
        uint32_t sym;
        RU_TRY(ru_graph_symbol(f->dst, f->src->symbols[s], &sym, err));
    }
    for (uint32_t v = 1; v < f->src->n_values; v++) {
        ru_value proto = f->src->values[v];
        if (proto.kind != RU_VALUE_TEMP) {
            RU_TRY(ru_graph_add_value(f->dst, &proto, &f->map[v], err));
        }
    }
    return RU_OK;
}

/* The float constant behind an optional input; `dflt` when it is absent or not known. */
static double constant_in(const form *f, const ru_node *n, uint32_t k, double dflt)
{
    if (!ru_node_has_in(n, k)) {
        return dflt;
    }
    const ru_value *v = ru_graph_value(f->src, n->in[k]);
    if (v->data == NULL || v->type.dtype != RU_F32) {
        return dflt;
    }
    float x;
    memcpy(&x, v->data, sizeof x);
    return (double)x;
}

/* Add `op` in the place of `n`; its first `same` outputs are those of `n`. */
static ru_status put(form *f, const ru_node *n, ru_op op, uint32_t n_in, const ru_attr *attrs,
                     uint32_t n_attrs, uint32_t n_out, uint32_t same, ru_value_id *out, ru_err *err)
{
    ru_value_id *in = RU_NEW(f->dst->arena, ru_value_id, n_in > 0 ? n_in : 1);
    if (in == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < n_in; k++) {
        in[k] = k < n->n_in ? f->map[n->in[k].v] : (ru_value_id){0};
    }
    RU_TRY(ru_graph_add_node(f->dst, op, n->name, in, n_in, attrs, n_attrs, out, n_out, err));
    for (uint32_t k = 0; k < same && k < n->n_out; k++) {
        if (n->out[k].v != 0) {
            f->map[n->out[k].v] = out[k];
            ru_value *to = ru_graph_value(f->dst, out[k]);
            to->name = ru_graph_value(f->src, n->out[k])->name;
        }
    }
    return RU_OK;
}

static ru_status batch_norm(form *f, const ru_node *n, ru_err *err)
{
    ru_value_id out[5];
    const ru_attr attrs[] = {RU_AF(epsilon, ru_node_float(n, RU_ATTR_epsilon, 1e-5)),
                             RU_AF(momentum, ru_node_float(n, RU_ATTR_momentum, 0.9)),
                             RU_AI(bias, 1)};
    for (uint32_t k = 3; k < 5; k++) {
        ru_value *s = ru_graph_value(f->dst, f->map[n->in[k].v]);
        if (s->kind == RU_VALUE_STATE) {
            s->role = RU_ROLE_BUFFER;
        }
    }
    RU_TRY(put(f, n, RU_OP_BatchNormTrain, 5, attrs, RU_ARRAY_LEN(attrs), 5, 1, out, err));
    for (uint32_t k = 3; k < 5; k++) {
        ru_value_id s = f->map[n->in[k].v];
        if (ru_graph_value(f->dst, s)->kind == RU_VALUE_STATE) {
            RU_TRY(ru_graph_add_update(f->dst, s, out[k - 2], err));
        }
    }
    return RU_OK;
}

static ru_status dropout(form *f, const ru_node *n, ru_err *err)
{
    ru_value_id out[2];
    const ru_attr attrs[] = {RU_AF(ratio, constant_in(f, n, 1, 0.5)), RU_AI(stream, f->stream++)};
    return put(f, n, RU_OP_DropoutTrain, 1, attrs, RU_ARRAY_LEN(attrs), 2, 1, out, err);
}

static ru_status recurrent(form *f, const ru_node *n, bool lstm, ru_err *err)
{
    ru_value_id out[4];
    uint32_t n_out = lstm ? 4 : 3;
    return put(f, n, lstm ? RU_OP_LSTMTrain : RU_OP_GRUTrain, n->n_in, n->attrs, n->n_attrs, n_out,
               n_out - 1, out, err);
}

static ru_status copy_node(form *f, const ru_node *n, ru_err *err)
{
    ru_value_id *out = RU_NEW(f->dst->arena, ru_value_id, n->n_out);
    if (out == NULL) {
        return full(err);
    }
    RU_TRY(put(f, n, n->op, n->n_in, n->attrs, n->n_attrs, n->n_out, n->n_out, out, err));
    return RU_OK;
}

ru_status ru_model_train_form(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err)
{
    ru_graph dst;
    RU_TRY(ru_graph_init(&dst, arena, g->name, err));
    form f = {.src = g, .dst = &dst, .map = RU_NEW(arena, ru_value_id, g->n_values)};
    if (f.map == NULL) {
        return full(err);
    }
    RU_TRY(copy_values(&f, err));
    for (uint32_t k = 1; k < g->n_nodes; k++) {
        const ru_node *n = &g->nodes[k];
        if (n->op == RU_OP_BatchNormalization) {
            RU_TRY(batch_norm(&f, n, err));
        } else if (n->op == RU_OP_Dropout) {
            RU_TRY(dropout(&f, n, err));
        } else if (n->op == RU_OP_LSTM || n->op == RU_OP_GRU) {
            RU_TRY(recurrent(&f, n, n->op == RU_OP_LSTM, err));
        } else {
            RU_TRY(copy_node(&f, n, err));
        }
    }
    for (uint32_t k = 0; k < g->n_outputs; k++) {
        RU_TRY(ru_graph_add_output(&dst, f.map[g->outputs[k].v], err));
    }
    RU_TRY(ru_graph_infer(&dst, err));
    RU_TRY(ru_graph_verify(&dst, err));
    *out = dst;
    return RU_OK;
}
