/* From the inference form of a model to the form that trains: layers that behave differently while
 * training get their training op, and running statistics become state with updates. */
#include "world/graph/copy_impl.h"
#include "world/pass/pass.h"

#include <string.h>

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the graph is full");
}

static ru_status temp(ru_graph *g, const ru_type *t, ru_value_id *out, ru_err *err)
{
    return ru_graph_add_value(g, &(ru_value){.kind = RU_VALUE_TEMP, .type = *t}, out, err);
}

/* Running statistics of several nodes may share one constant: each gets its own state. */
static ru_status to_buffer(ru_graph *g, ru_value_id *v, uint32_t node, const char *what,
                           ru_err *err)
{
    ru_value x = g->values[v->v];
    if (x.kind == RU_VALUE_STATE) {
        return RU_OK;
    }
    if (x.kind != RU_VALUE_CONST) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "node %u (BatchNormalization): the running %s is computed, so it cannot be "
                       "trained; it must be an initializer",
                       node, what);
    }
    x.name =
        ru_arena_printf(g->arena, "%s.running_%s.%u", x.name != NULL ? x.name : "norm", what, node);
    x.kind = RU_VALUE_STATE;
    x.role = RU_ROLE_BUFFER;
    return x.name != NULL ? ru_graph_add_value(g, &x, v, err) : full(err);
}

/* Is the constant given, and a false one? *on says whether it can be true. */
static bool is_false(const ru_graph *g, ru_value_id v, bool *on)
{
    const ru_value *x = &g->values[v.v];
    bool known = v.v != 0 && x->kind == RU_VALUE_CONST && x->type.dtype == RU_BOOL &&
                 x->data != NULL && ru_type_count(&x->type) == 1;
    bool no = known && *(const uint8_t *)x->data == 0;
    *on = v.v != 0 && !no;
    return no;
}

bool ru_graph_trains(const ru_graph *g)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *n = &g->nodes[i];
        bool on = n->op == RU_OP_BatchNormTrain || n->op == RU_OP_DropoutTrain;
        if (n->op == RU_OP_Dropout && ru_node_has_in(n, 2)) {
            (void)is_false(g, n->in[2], &on);
        }
        if (on) {
            return true;
        }
    }
    return false;
}

static bool is_frozen(const ru_graph *g, const ru_node *n)
{
    bool on;
    return n->op == RU_OP_Dropout ? ru_node_has_in(n, 2) && is_false(g, n->in[2], &on)
                                  : n->op == RU_OP_BatchNormalization &&
                                        ru_node_attr(n, RU_ATTR_training_mode) != NULL;
}

/* PyTorch keeps the unbiased variance (attribute bias): imported models come from there. */
static ru_status norm_node(ru_graph *g, const ru_node *n, ru_err *err)
{
    uint32_t at = g->n_nodes;
    ru_value_id in[5] = {n->in[0], n->in[1], n->in[2], n->in[3], n->in[4]};
    ru_value_id out[5] = {n->out[0]};
    RU_TRY(to_buffer(g, &in[3], at, "mean", err));
    RU_TRY(to_buffer(g, &in[4], at, "var", err));
    for (uint32_t k = 1; k < 5; k++) {
        bool named = ru_node_has_out(n, k);
        ru_type t = g->values[in[k < 3 ? k + 2 : 3].v].type;
        t.dtype = k < 3 ? t.dtype : RU_F32;
        if (named) {
            out[k] = n->out[k];
        } else {
            RU_TRY(temp(g, &t, &out[k], err));
        }
    }
    ru_attr attrs[3] = {
        {.key = RU_ATTR_epsilon, .kind = RU_ATTR_FLOAT, .n = 1},
        {.key = RU_ATTR_momentum, .kind = RU_ATTR_FLOAT, .n = 1},
        {.key = RU_ATTR_bias, .kind = RU_ATTR_INT, .n = 1, .u.i = 1},
    };
    attrs[0].u.f = ru_node_float(n, RU_ATTR_epsilon, 1e-5);
    attrs[1].u.f = ru_node_float(n, RU_ATTR_momentum, 0.9);
    ru_node m = {.op = RU_OP_BatchNormTrain,
                 .name = n->name,
                 .in = in,
                 .out = out,
                 .attrs = attrs,
                 .n_in = 5,
                 .n_out = 5,
                 .n_attrs = 3};
    RU_TRY(ru_graph_add_node_into(g, &m, NULL, err));
    RU_TRY(ru_graph_add_update(g, in[3], out[1], err));
    return ru_graph_add_update(g, in[4], out[2], err);
}

/* The ratio is input 1 (a constant), 0.5 when absent. */
static ru_status dropout_node(ru_graph *g, const ru_node *n, int64_t stream, ru_err *err)
{
    float ratio = 0.5F;
    if (ru_node_has_in(n, 1)) {
        const ru_value *r = &g->values[n->in[1].v];
        if (r->kind != RU_VALUE_CONST || r->type.dtype != RU_F32 || r->data == NULL) {
            return RU_FAIL(err, RU_E_UNSUPPORTED,
                           "node %u (Dropout): the ratio must be a constant f32", g->n_nodes);
        }
        memcpy(&ratio, r->data, sizeof ratio);
    }
    ru_value_id out[2] = {n->out[0]};
    ru_type t = g->values[n->in[0].v].type;
    t.dtype = RU_U8;
    if (ru_node_has_out(n, 1)) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "node %u (Dropout): its mask is used elsewhere",
                       g->n_nodes);
    }
    RU_TRY(temp(g, &t, &out[1], err));
    ru_attr attrs[2] = {
        {.key = RU_ATTR_ratio, .kind = RU_ATTR_FLOAT, .n = 1, .u.f = (double)ratio},
        {.key = RU_ATTR_stream, .kind = RU_ATTR_INT, .n = 1, .u.i = stream},
    };
    ru_node m = {.op = RU_OP_DropoutTrain,
                 .name = n->name,
                 .in = n->in,
                 .out = out,
                 .attrs = attrs,
                 .n_in = 1,
                 .n_out = 2,
                 .n_attrs = 2};
    return ru_graph_add_node_into(g, &m, NULL, err);
}

/* LSTM -> Y, Y_h, Y_c, workspace; GRU -> Y, Y_h, workspace: all outputs are there. */
static ru_status rnn_node(ru_graph *g, const ru_node *n, ru_op op, ru_err *err)
{
    uint32_t n_out = op == RU_OP_LSTMTrain ? 4 : 3;
    ru_value_id out[4];
    for (uint32_t k = 0; k < n_out; k++) {
        out[k] = k + 1 < n_out && ru_node_has_out(n, k) ? n->out[k] : (ru_value_id){0};
        if (out[k].v == 0) {
            RU_TRY(temp(g, &(ru_type){.dtype = RU_NONE}, &out[k], err));
        }
    }
    ru_node m = *n;
    ru_graph_node_id id;
    m.op = op;
    m.out = out;
    m.n_out = n_out;
    RU_TRY(ru_graph_add_node_into(g, &m, &id, err));
    return ru_graph_infer_node(g, id, err);
}

ru_status ru_pass_train(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err)
{
    ru_graph n;
    int64_t stream = 1;
    bool trains = ru_graph_trains(g);
    RU_TRY(rui_copy_values(g, arena, &n, err));
    RU_TRY(rui_copy_ends(g, &n, err));
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *x = &g->nodes[i];
        switch ((uint32_t)(trains && is_frozen(g, x) ? RU_OP_NONE : x->op)) {
        case RU_OP_BatchNormalization:
        case RU_OP_BatchNormTrain:
            RU_TRY(norm_node(&n, x, err));
            break;
        case RU_OP_Dropout:
            RU_TRY(dropout_node(&n, x, stream++, err));
            break;
        case RU_OP_LSTM:
            RU_TRY(rnn_node(&n, x, RU_OP_LSTMTrain, err));
            break;
        case RU_OP_GRU:
            RU_TRY(rnn_node(&n, x, RU_OP_GRUTrain, err));
            break;
        default:
            RU_TRY(ru_graph_add_node_into(&n, x, NULL, err));
            break;
        }
    }
    *out = n;
    return RU_OK;
}

/* -- untying ----------------------------------------------------------------------------------- */

static bool is_vector(const ru_graph *g, ru_value_id v)
{
    const ru_value *x = &g->values[v.v];
    return v.v != 0 && x->kind == RU_VALUE_STATE && x->type.rank == 1 &&
           (x->role == RU_ROLE_PARAM || x->role == RU_ROLE_BUFFER);
}

/* A scale or bias that an exporter has given the rank of what it scales, as [C, 1, 1]. */
static bool is_wide_vector(const ru_graph *g, ru_op op, ru_value_id v)
{
    bool elementwise = op == RU_OP_Mul || op == RU_OP_Add || op == RU_OP_Sub || op == RU_OP_Div ||
                       op == RU_OP_PRelu;
    const ru_value *x = &g->values[v.v];
    uint32_t wide = 0;
    for (uint32_t k = 0; k < x->type.rank; k++) {
        wide += x->type.dims[k] != 1;
    }
    return elementwise && v.v != 0 && x->kind == RU_VALUE_STATE && x->role == RU_ROLE_PARAM &&
           wide <= 1;
}

static ru_status twin(ru_graph *g, ru_value_id of, const char *name, ru_value_id *out, ru_err *err)
{
    ru_value v = g->values[of.v];
    v.name = name;
    return name == NULL ? full(err) : ru_graph_add_value(g, &v, out, err);
}

/* Identity(vector) is an alias: whoever reads it reads a vector of that name. */
static ru_status untie_alias(ru_graph *g, uint32_t i, ru_err *err)
{
    ru_value_id alias = g->nodes[i].out[0];
    ru_value_id own;
    const char *name = g->values[alias.v].name;
    if (name == NULL) {
        name = ru_arena_printf(g->arena, "alias.%u", i);
    }
    g->values[alias.v].name = NULL;
    RU_TRY(twin(g, g->nodes[i].in[0], name, &own, err));
    for (uint32_t j = i + 1; j < g->n_nodes; j++) {
        ru_node *n = &g->nodes[j];
        for (uint32_t k = 0; k < n->n_in; k++) {
            if (n->in[k].v == alias.v) {
                ru_value_id *in =
                    ru_arena_copy(g->arena, n->in, (int64_t)n->n_in * (int64_t)sizeof *in, 4);
                if (in == NULL) {
                    return full(err);
                }
                in[k] = own;
                n->in = in;
            }
        }
    }
    return RU_OK;
}

static ru_status untie_node(ru_graph *g, uint32_t i, bool *seen, ru_err *err)
{
    ru_value_id *in = NULL;
    for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
        ru_value_id v = g->nodes[i].in[k];
        const ru_node *n = &g->nodes[i];
        if (!is_vector(g, v) && !is_wide_vector(g, n->op, v)) {
            continue;
        }
        if (seen[v.v]) { /* only old values are met: each node is visited once */
            if (in == NULL) {
                in = ru_arena_copy(g->arena, n->in, (int64_t)n->n_in * (int64_t)sizeof *in, 4);
                if (in == NULL) {
                    return full(err);
                }
                g->nodes[i].in = in;
            }
            const char *name = g->values[v.v].name;
            name = ru_arena_printf(g->arena, "%s.%u.%u", name != NULL ? name : "vector", i, k);
            RU_TRY(twin(g, v, name, &in[k], err));
            v = in[k];
        } else {
            seen[v.v] = true;
        }
        bool statistic =
            (n->op == RU_OP_BatchNormalization || n->op == RU_OP_BatchNormTrain) && k >= 3;
        g->values[v.v].role = statistic ? RU_ROLE_BUFFER : RU_ROLE_PARAM;
    }
    return RU_OK;
}

ru_status ru_pass_untie(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err)
{
    ru_graph n;
    RU_TRY(rui_copy_graph(g, arena, &n, err));
    for (uint32_t i = 1; i < n.n_nodes; i++) {
        if (n.nodes[i].op == RU_OP_Identity && is_vector(&n, n.nodes[i].in[0])) {
            RU_TRY(untie_alias(&n, i, err));
        }
    }
    bool *seen = RU_NEW(arena, bool, n.n_values);
    if (seen == NULL) {
        return full(err);
    }
    for (uint32_t i = 1; i < n.n_nodes; i++) {
        if (n.nodes[i].op != RU_OP_Identity) {
            RU_TRY(untie_node(&n, i, seen, err));
        }
    }
    *out = n;
    return RU_OK;
}
