/* A new last layer for an imported model (fine-tuning).
 *
 * From the output back through what only reshapes, pools or activates, to the linear layer that
 * makes the classes: Gemm, MatMul or Conv, with its bias inside or added behind it. Its weight and
 * bias get another number of outputs and new start values, as those of PyTorch's Linear. */
#include <string.h>

#include "train/model/model_impl.h"

typedef struct head {
    ru_graph *g;
    ru_arena *arena;
    int64_t was, now; /* outputs */
    ru_value_id weight, bias;
    uint32_t axis; /* of the outputs in the weight */
    ru_err *err;
} head;

static const ru_node *maker(const head *h, ru_value_id v)
{
    const ru_value *x = &h->g->values[v.v];
    return v.v != 0 && x->producer.v != 0 ? ru_graph_node(h->g, x->producer) : NULL;
}

static ru_status no_head(const head *h, const ru_node *n, const char *why)
{
    return RU_FAIL(h->err, RU_E_UNSUPPORTED,
                   "the model can get no new last layer: %s%s%s%s; leave out model.head and "
                   "model.classes, or change the layer in the program that made the file and "
                   "export it again",
                   n != NULL ? ru_op_get(n->op)->name : "", n != NULL && n->name != NULL ? " " : "",
                   n != NULL && n->name != NULL ? n->name : "", why);
}

static bool passes_on(ru_op op)
{
    static const ru_op ops[] = {RU_OP_Identity,          RU_OP_Flatten,       RU_OP_Reshape,
                                RU_OP_Squeeze,           RU_OP_Unsqueeze,     RU_OP_Softmax,
                                RU_OP_LogSoftmax,        RU_OP_Sigmoid,       RU_OP_Relu,
                                RU_OP_GlobalAveragePool, RU_OP_GlobalMaxPool, RU_OP_AveragePool,
                                RU_OP_MaxPool,           RU_OP_ReduceMean,    RU_OP_ReduceMax,
                                RU_OP_Dropout,           RU_OP_Cast,          RU_OP_CastLike};
    for (size_t k = 0; k < RU_ARRAY_LEN(ops); k++) {
        if (ops[k] == op) {
            return true;
        }
    }
    return false;
}

/* The parameter behind copies and transposes of it; *axis follows. Absent: none is. */
static ru_value_id parameter_of(const head *h, ru_value_id v, uint32_t *axis)
{
    for (const ru_node *n = maker(h, v); n != NULL; n = maker(h, v)) {
        uint32_t rank = h->g->values[v.v].type.rank, n_perm;
        const int64_t *perm = ru_node_ints(n, RU_ATTR_perm, &n_perm);
        bool turns = n->op == RU_OP_Transpose;
        if (!turns && n->op != RU_OP_Identity && n->op != RU_OP_CastLike) {
            return (ru_value_id){0};
        }
        if (turns && *axis < rank) {
            *axis = perm != NULL ? (uint32_t)perm[*axis] : rank - 1 - *axis;
        }
        v = n->in[0];
    }
    const ru_value *x = &h->g->values[v.v];
    bool trained = x->kind == RU_VALUE_STATE && x->role == RU_ROLE_PARAM;
    return trained ? v : (ru_value_id){0};
}

static ru_status linear(head *h, const ru_node *n)
{
    uint32_t none = 0;
    bool conv = n->op == RU_OP_Conv, gemm = n->op == RU_OP_Gemm;
    uint32_t rank = h->g->values[n->in[1].v].type.rank;
    if (conv && ru_node_int(n, RU_ATTR_group, 1) != 1) {
        return no_head(h, n, " has groups");
    }
    h->axis = conv || (gemm && ru_node_int(n, RU_ATTR_transB, 0) != 0) || rank == 0 ? 0 : rank - 1;
    h->weight = parameter_of(h, n->in[1], &h->axis);
    if (h->weight.v == 0) {
        return no_head(h, n, " has no weight that is trained");
    }
    if (ru_node_has_in(n, 2)) {
        h->bias = parameter_of(h, n->in[2], &none);
        return h->bias.v != 0 ? RU_OK : no_head(h, n, " has no bias that is trained");
    }
    return RU_OK;
}

/* Add: one operand is the bias of the layer, the other its product. */
static bool added(head *h, const ru_node *n, ru_value_id *v)
{
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t none = 0;
        ru_value_id p = parameter_of(h, n->in[k], &none);
        if (p.v != 0 && h->bias.v == 0) {
            h->bias = p;
            *v = n->in[1 - k];
            return true;
        }
    }
    return false;
}

/* A target that names the number of outputs names the new one. */
static ru_status retarget(head *h, ru_node *n)
{
    const ru_value *t = n->op == RU_OP_Reshape ? &h->g->values[n->in[1].v] : NULL;
    if (t == NULL || t->kind != RU_VALUE_CONST || t->type.dtype != RU_I64 || t->data == NULL) {
        return RU_OK;
    }
    ru_value fresh = *t;
    int64_t count = ru_type_count(&t->type);
    int64_t *dims = ru_arena_copy(h->arena, t->data, count * 8, 64);
    ru_value_id *in = ru_arena_copy(h->arena, n->in, (int64_t)n->n_in * (int64_t)sizeof *in, 4);
    if (dims == NULL || in == NULL) {
        return RU_FAIL(h->err, RU_E_LIMIT, "the arena of the model is full");
    }
    for (int64_t k = 0; k < count; k++) {
        dims[k] = dims[k] == h->was ? h->now : dims[k];
    }
    fresh.name = NULL;
    fresh.known = NULL;
    fresh.data = dims;
    n->in = in;
    return ru_graph_add_value(h->g, &fresh, &in[1], h->err);
}

static ru_status trace(head *h)
{
    ru_value_id v = h->g->outputs[0];
    for (;;) {
        ru_graph_node_id at = h->g->values[v.v].producer;
        if (at.v == 0) {
            return no_head(h, NULL, "no layer makes its output");
        }
        ru_node *n = &h->g->nodes[at.v];
        if (n->op == RU_OP_Gemm || n->op == RU_OP_MatMul || n->op == RU_OP_Conv) {
            return linear(h, n);
        }
        if (n->op == RU_OP_Add && added(h, n, &v)) {
            continue;
        }
        if (!passes_on(n->op)) {
            return no_head(h, n, " stands behind its last linear layer");
        }
        RU_TRY(retarget(h, n));
        v = n->in[0];
    }
}

static uint32_t reads_of(const head *h, ru_value_id v)
{
    uint32_t n = 0;
    for (uint32_t k = 1; k < h->g->n_nodes; k++) {
        for (uint32_t i = 0; i < h->g->nodes[k].n_in; i++) {
            n += h->g->nodes[k].in[i].v == v.v;
        }
    }
    return n;
}

/* The parameter with `now` in place of `was` outputs on the axis. */
static ru_status resize(head *h, ru_value_id p, uint32_t axis)
{
    ru_value *x = ru_graph_value(h->g, p);
    if (reads_of(h, p) != 1) {
        return no_head(h, NULL, "its last weight is shared with another layer");
    }
    if (axis >= x->type.rank || x->type.dims[axis] != h->was) {
        return no_head(h, NULL, "its last linear layer does not make its outputs");
    }
    x->type.dims[axis] = h->now;
    x->data = NULL;
    return RU_OK;
}

static ru_status replace(head *h, ru_model *m)
{
    ru_init *inits = RU_NEW(h->arena, ru_init, 2);
    RU_TRY(trace(h));
    RU_TRY(resize(h, h->weight, h->axis));
    const ru_type *w = &ru_graph_value(h->g, h->weight)->type;
    int64_t fan_in = ru_type_count(w) / h->now;
    if (inits == NULL) {
        return RU_FAIL(h->err, RU_E_LIMIT, "the arena of the model is full");
    }
    inits[0] = (ru_init){.param = h->weight, .kind = RU_INIT_KAIMING_UNIFORM, .fan_in = fan_in};
    if (h->bias.v != 0) {
        const ru_type *t = &ru_graph_value(h->g, h->bias)->type;
        uint32_t axis = 0;
        while (axis < t->rank && t->dims[axis] != h->was) {
            axis++;
        }
        RU_TRY(resize(h, h->bias, axis));
        inits[1] = (ru_init){.param = h->bias, .kind = RU_INIT_KAIMING_UNIFORM, .fan_in = fan_in};
    }
    for (uint32_t k = 1; k < h->g->n_values; k++) {
        if (h->g->values[k].kind == RU_VALUE_TEMP) {
            h->g->values[k].type = (ru_type){.dtype = RU_NONE};
            h->g->values[k].known = NULL;
        }
    }
    ru_status st = ru_graph_infer(h->g, h->err);
    if (st != RU_OK) {
        return ru_err_wrap(h->err, st, "with a new last layer of %lld outputs", (long long)h->now);
    }
    m->inits = inits;
    m->n_inits = h->bias.v != 0 ? 2 : 1;
    return RU_OK;
}

ru_status rui_model_head(const ru_job *job, ru_arena *arena, ru_model *m, ru_err *err)
{
    bool fresh = job->model.head == RU_HEAD_NEW;
    int64_t now = job->model.classes;
    if (m->infer.n_outputs < 1 || (!fresh && now == 0)) {
        return RU_OK;
    }
    const ru_type *t = &ru_graph_value(&m->infer, m->infer.outputs[0])->type;
    int64_t was = t->rank >= 2 ? t->dims[1] : 0;
    now = now != 0 ? now : rui_model_outputs_wanted(job, &m->facts);
    if (was == now && !fresh) {
        return RU_OK;
    }
    if (now < 1) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "model.head is new, but the data do not say how many outputs are needed; "
                       "give model.classes");
    }
    head h = {.g = &m->infer, .arena = arena, .was = was, .now = now, .err = err};
    return t->rank == 2 && was > 0
               ? replace(&h, m)
               : no_head(&h, NULL, "its output is not one row of numbers a sample");
}
