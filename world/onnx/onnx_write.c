/* Graph to ModelProto. */
#include "world/onnx/onnx.h"
#include "world/onnx/onnx_lower.h"

#include <string.h>

#include "base/str.h"

enum { OPSET_WRITE_MIN = 17 };

typedef struct writer {
    const ru_graph *g;
    const ru_onnx_write_options *opt;
    ru_pb_out *out;
    ru_arena *scratch;
    const char **names; /* [g->n_values] */
    ru_err *err;
} writer;

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "onnx export: the arena is full");
}

/* Every value gets a name; those without take "_<id>", which no model should use. */
static ru_status names_make(writer *w)
{
    w->names = RU_NEW(w->scratch, const char *, w->g->n_values);
    if (w->names == NULL) {
        return full(w->err);
    }
    w->names[0] = "";
    for (uint32_t k = 1; k < w->g->n_values; k++) {
        const char *name = w->g->values[k].name;
        w->names[k] = name != NULL ? name : ru_arena_printf(w->scratch, "_%u", k);
        if (w->names[k] == NULL) {
            return full(w->err);
        }
    }
    return RU_OK;
}

/* Everything of a TensorProto but its elements; ru_pb_end is left to the caller. */
static void tensor_begin(ru_pb_out *o, uint32_t field, const char *name, const ru_type *t)
{
    ru_pb_begin(o, field);
    ru_pb_put_packed_i64(o, 1, t->dims, t->rank);
    ru_pb_put_i64(o, 2, ru_dtype_onnx(t->dtype));
    if (name != NULL) {
        ru_pb_put_str(o, 8, name);
    }
}

static void tensor_put(ru_pb_out *o, uint32_t field, const char *name, const ru_type *t,
                       const void *data)
{
    tensor_begin(o, field, name, t);
    ru_pb_put_bytes(o, 9, data, ru_type_bytes(t));
    ru_pb_end(o);
}

static void entry_put(ru_pb_out *o, const char *key, const char *value)
{
    ru_pb_begin(o, 13);
    ru_pb_put_str(o, 1, key);
    ru_pb_put_str(o, 2, value);
    ru_pb_end(o);
}

/* A TensorProto whose elements stand in the sink's file. */
static ru_status tensor_put_outside(writer *w, const char *name, const ru_type *t, const void *data)
{
    int64_t offset, bytes = ru_type_bytes(t);
    char number[24];
    RU_TRY(w->opt->outside->put(w->opt->outside->self, data, bytes, &offset, w->err));
    tensor_begin(w->out, 5, name, t);
    entry_put(w->out, "location", w->opt->outside->location);
    ru_text text = ru_text_into(number, sizeof number);
    ru_text_putf(&text, "%lld", (long long)offset);
    entry_put(w->out, "offset", number);
    text = ru_text_into(number, sizeof number);
    ru_text_putf(&text, "%lld", (long long)bytes);
    entry_put(w->out, "length", number);
    ru_pb_put_u64(w->out, 14, 1); /* data_location: EXTERNAL */
    ru_pb_end(w->out);
    return RU_OK;
}

static void attr_put(ru_pb_out *o, const ru_attr *a)
{
    static const uint32_t types[] = {
        [RU_ATTR_INT] = 2,    [RU_ATTR_FLOAT] = 1, [RU_ATTR_STR] = 3,    [RU_ATTR_INTS] = 7,
        [RU_ATTR_FLOATS] = 6, [RU_ATTR_STRS] = 8,  [RU_ATTR_TENSOR] = 4,
    };
    ru_pb_begin(o, 5);
    ru_pb_put_str(o, 1, ru_attr_name(a->key));
    switch (a->kind) {
    case RU_ATTR_INT:
        ru_pb_put_i64(o, 3, a->u.i);
        break;
    case RU_ATTR_FLOAT:
        ru_pb_put_f32(o, 2, (float)a->u.f);
        break;
    case RU_ATTR_STR:
        ru_pb_put_str(o, 4, a->u.s);
        break;
    case RU_ATTR_INTS:
        for (uint32_t k = 0; k < a->n; k++) {
            ru_pb_put_i64(o, 8, a->u.is[k]);
        }
        break;
    case RU_ATTR_FLOATS:
        for (uint32_t k = 0; k < a->n; k++) {
            ru_pb_put_f32(o, 7, (float)a->u.fs[k]);
        }
        break;
    case RU_ATTR_STRS:
        for (uint32_t k = 0; k < a->n; k++) {
            ru_pb_put_str(o, 9, a->u.ss[k]);
        }
        break;
    case RU_ATTR_TENSOR:
        tensor_put(o, 5, NULL, a->u.t.type, a->u.t.data);
        break;
    }
    ru_pb_put_u64(o, 20, types[a->kind]);
    ru_pb_end(o);
}

static void node_put(writer *w, const ru_node *n, uint32_t k)
{
    ru_pb_begin(w->out, 1);
    for (uint32_t i = 0; i < n->n_in; i++) {
        ru_pb_put_str(w->out, 1, w->names[n->in[i].v]);
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        ru_pb_put_str(w->out, 2, w->names[n->out[i].v]);
    }
    const char *name = n->name != NULL
                           ? n->name
                           : ru_arena_printf(w->scratch, "_%s_%u", ru_op_get(n->op)->name, k);
    ru_pb_put_str(w->out, 3, name != NULL ? name : "");
    ru_pb_put_str(w->out, 4, ru_op_get(n->op)->name);
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        attr_put(w->out, &n->attrs[i]);
    }
    ru_pb_end(w->out);
}

/* ValueInfoProto with a tensor type. */
static ru_status info_put(writer *w, uint32_t field, ru_value_id id, const ru_type *t)
{
    ru_pb_out *o = w->out;
    ru_pb_begin(o, field);
    ru_pb_put_str(o, 1, w->names[id.v]);
    ru_pb_begin(o, 2);
    ru_pb_begin(o, 1);
    ru_pb_put_i64(o, 1, ru_dtype_onnx(t->dtype));
    ru_pb_begin(o, 2);
    for (uint32_t k = 0; k < t->rank; k++) {
        ru_pb_begin(o, 1);
        if (!ru_dim_is_symbolic(t->dims[k])) {
            ru_pb_put_i64(o, 1, t->dims[k]);
        } else {
            const char *symbol = w->g->symbols[ru_dim_sym(t->dims[k])];
            int64_t coef = ru_dim_coef(t->dims[k]);
            const char *text =
                coef == 1 ? symbol
                          : ru_arena_printf(w->scratch, "%lld*%s", (long long)coef, symbol);
            if (text == NULL) {
                return full(w->err);
            }
            ru_pb_put_str(o, 2, text);
        }
        ru_pb_end(o);
    }
    ru_pb_end(o);
    ru_pb_end(o);
    ru_pb_end(o);
    ru_pb_end(o);
    return RU_OK;
}

static const void *zeros(ru_arena *arena, const ru_type *t)
{
    return ru_arena_zalloc(arena, ru_type_bytes(t), 64);
}

/* Constants and state that live nodes read. */
static ru_status weights_put(writer *w)
{
    bool *used = RU_NEW(w->scratch, bool, w->g->n_values);
    if (used == NULL) {
        return full(w->err);
    }
    for (uint32_t k = 1; k < w->g->n_nodes; k++) {
        for (uint32_t i = 0; i < w->g->nodes[k].n_in; i++) {
            used[w->g->nodes[k].in[i].v] = true;
        }
    }
    const ru_onnx_sink *outside = w->opt->outside;
    int64_t inside = 0;
    for (uint32_t k = 1; k < w->g->n_values; k++) {
        const ru_value *v = &w->g->values[k];
        if (!used[k] || (v->kind != RU_VALUE_CONST && v->kind != RU_VALUE_STATE)) {
            continue;
        }
        const void *data = v->data;
        if (v->kind == RU_VALUE_STATE && w->opt->state != NULL) {
            data = w->opt->state(w->opt->self, (ru_value_id){k});
        }
        data = data != NULL ? data : zeros(w->scratch, &v->type);
        if (data == NULL) {
            return full(w->err);
        }
        if (outside != NULL && ru_type_bytes(&v->type) >= outside->bytes_min) {
            RU_TRY(tensor_put_outside(w, w->names[k], &v->type, data));
            continue;
        }
        inside += ru_type_bytes(&v->type);
        if (inside > RU_ONNX_INSIDE_BYTES_MAX) {
            return RU_FAIL(w->err, RU_E_LIMIT,
                           "onnx export: the weights are larger than 2 GiB, the limit of an ONNX "
                           "file; write them to an external file");
        }
        tensor_put(w->out, 5, w->names[k], &v->type, data);
    }
    return RU_OK;
}

/* Results must have names of their own: an input or weight passes through Identity. */
static ru_status outputs_put(writer *w, const ru_graph *typed)
{
    for (uint32_t k = 0; k < w->g->n_outputs; k++) {
        ru_value_id id = w->g->outputs[k];
        if (w->g->values[id.v].kind != RU_VALUE_TEMP) {
            return RU_FAIL(w->err, RU_E_UNSUPPORTED,
                           "onnx export: output %u is not the result of a node", k);
        }
        RU_TRY(info_put(w, 12, id, &typed->values[id.v].type));
    }
    return RU_OK;
}

static ru_status graph_put(writer *w, const ru_graph *typed)
{
    ru_pb_begin(w->out, 7);
    for (uint32_t k = 1; k < w->g->n_nodes; k++) {
        node_put(w, &w->g->nodes[k], k);
    }
    ru_pb_put_str(w->out, 2, w->g->name != NULL && w->g->name[0] != 0 ? w->g->name : "graph");
    RU_TRY(weights_put(w));
    for (uint32_t k = 0; k < w->g->n_inputs; k++) {
        RU_TRY(info_put(w, 11, w->g->inputs[k], &w->g->values[w->g->inputs[k].v].type));
    }
    RU_TRY(outputs_put(w, typed));
    ru_pb_end(w->out);
    return RU_OK;
}

ru_status ru_onnx_write(const ru_graph *g, const ru_onnx_write_options *opt, ru_arena *scratch,
                        ru_pb_out *out, ru_err *err)
{
    static const ru_onnx_write_options none = {0};
    opt = opt != NULL ? opt : &none;
    int64_t opset = opt->opset != 0 ? opt->opset : RU_ONNX_OPSET_WRITE;
    if (opset < OPSET_WRITE_MIN || opset > RU_ONNX_OPSET_WRITE) {
        return RU_FAIL(err, RU_E_ARG, "onnx export: the opset is %lld, expected %d to %d",
                       (long long)opset, OPSET_WRITE_MIN, RU_ONNX_OPSET_WRITE);
    }
    ru_graph lowered;
    RU_TRY(rui_onnx_lower(g, opset, scratch, &lowered, err));
    writer w = {.g = &lowered, .opt = opt, .out = out, .scratch = scratch, .err = err};
    RU_TRY(names_make(&w));
    ru_pb_put_u64(out, 1, opset >= 21 ? 10 : opset >= 19 ? 9 : 8); /* ir_version of that opset */
    ru_pb_put_str(out, 2, "rubato");
    if (opt->producer_version != NULL) {
        ru_pb_put_str(out, 3, opt->producer_version);
    }
    RU_TRY(graph_put(&w, g));
    ru_pb_begin(out, 8);
    ru_pb_put_str(out, 1, "");
    ru_pb_put_i64(out, 2, opset);
    ru_pb_end(out);
    return ru_pb_out_end(out, err);
}
