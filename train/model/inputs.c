#include "train/model/inputs.h"

#include "world/graph/build.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the model is full");
}

/* [1, inputs] each */
static ru_status factors(const ru_columns *c, ru_arena *arena, float **mean, float **factor,
                         ru_err *err)
{
    int64_t n = ru_columns_inputs(c);
    float *m = RU_NEW(arena, float, n), *f = RU_NEW(arena, float, n);
    if (m == NULL || f == NULL) {
        return full(err);
    }
    for (uint32_t k = 0, i = 0; k < c->n; k++) {
        const ru_column *column = &c->at[k];
        bool number = column->categories.n == 0;
        uint32_t places = number ? 1 : column->categories.n;
        for (uint32_t j = 0; j < places; j++, i++) {
            m[i] = number ? (float)column->mean : 0.0f;
            f[i] = !number ? 1.0f : column->std > 0 ? (float)(1.0 / column->std) : 0.0f;
        }
    }
    *mean = m;
    *factor = f;
    return RU_OK;
}

/* Symbols and values keep their ids; the input becomes a value that a node has to make. */
static ru_status copy_values(const ru_graph *g, ru_value_id x, ru_graph *out, ru_err *err)
{
    for (uint32_t k = 0; k < g->n_symbols; k++) {
        uint32_t sym;
        RU_TRY(ru_graph_symbol(out, g->symbols[k], &sym, err));
        RU_CHECK(sym == k);
    }
    for (uint32_t k = 1; k < g->n_values; k++) {
        ru_value v = g->values[k];
        ru_value_id id;
        if (k == x.v) {
            v.kind = RU_VALUE_TEMP;
            v.name = NULL;
        }
        v.producer = (ru_graph_node_id){0};
        RU_TRY(ru_graph_add_value(out, &v, &id, err));
        RU_CHECK(id.v == k);
    }
    return RU_OK;
}

static ru_status copy_nodes(const ru_graph *g, ru_graph *out, ru_err *err)
{
    for (uint32_t k = 1; k < g->n_nodes; k++) {
        RU_TRY(ru_graph_add_node_into(out, &g->nodes[k], NULL, err));
    }
    for (uint32_t k = 0; k < g->n_outputs; k++) {
        RU_TRY(ru_graph_add_output(out, g->outputs[k], err));
    }
    for (uint32_t k = 0; k < g->n_updates; k++) {
        RU_TRY(ru_graph_add_update(out, g->updates[k].state, g->updates[k].value, err));
    }
    return RU_OK;
}

ru_status ru_model_normalizing(const ru_graph *g, const ru_columns *c, ru_arena *arena,
                               ru_graph *out, ru_err *err)
{
    float *mean = NULL, *factor = NULL;
    int64_t n = ru_columns_inputs(c);
    ru_value_id x = g->n_inputs == 1 ? g->inputs[0] : (ru_value_id){0};
    const ru_type *t = x.v != 0 ? &ru_graph_value(g, x)->type : NULL;
    if (t == NULL || t->dtype != RU_F32 || t->rank < 1 || t->dims[t->rank - 1] != n) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "the model's input is not one row of %lld floats a sample", (long long)n);
    }
    RU_CHECK(c->normalize || c->missing == RU_MISSING_MEAN);
    RU_TRY(factors(c, arena, &mean, &factor, err));
    RU_TRY(ru_graph_init(out, arena, g->name, err));
    RU_TRY(copy_values(g, x, out, err));
    ru_build b;
    ru_build_init(&b, out);
    ru_type row = ru_type_make(RU_F32, 1, &n);
    ru_value_id raw = ru_build_input(&b, ru_graph_value(g, x)->name, *t);
    ru_value_id means = ru_build_const(&b, row, mean);
    ru_value_id gap = {0}, in[3] = {{0}};
    if (c->missing == RU_MISSING_MEAN) {
        gap = ru_build_op1(&b, RU_OP_IsNaN, raw, NULL);
    }
    if (c->normalize) {
        raw = gap.v != 0 ? ru_build_op3(&b, RU_OP_Where, gap, means, raw, NULL) : raw;
        in[0] = ru_build_op2(&b, RU_OP_Sub, raw, means, NULL);
        in[1] = ru_build_const(&b, row, factor);
    } else {
        in[0] = gap;
        in[1] = means;
        in[2] = raw;
    }
    if (b.status != RU_OK) {
        return RU_FAIL(err, b.status, "%s", b.err.text);
    }
    const ru_node last = {.op = c->normalize ? RU_OP_Mul : RU_OP_Where,
                          .in = in,
                          .n_in = c->normalize ? 2 : 3,
                          .out = &x,
                          .n_out = 1};
    RU_TRY(ru_graph_add_node_into(out, &last, NULL, err));
    RU_TRY(copy_nodes(g, out, err));
    return ru_graph_verify(out, err);
}

void ru_model_inputs_text(const ru_columns *c, uint32_t most, ru_text *out)
{
    int64_t left = ru_columns_inputs(c);
    uint32_t shown = 0;
    for (uint32_t k = 0; k < c->n && shown < most; k++) {
        const ru_column *column = &c->at[k];
        uint32_t n = column->categories.n;
        for (uint32_t j = 0; j < (n > 0 ? n : 1) && shown < most; j++, shown++, left--) {
            ru_text_putf(out, "%s%.60s", shown > 0 ? ", " : "", column->name);
            if (n > 0) {
                ru_text_putf(out, "=%.60s (1 or 0)", column->categories.at[j]);
            }
        }
    }
    if (left > 0) {
        ru_text_putf(out, " and %lld more", (long long)left);
    }
}
