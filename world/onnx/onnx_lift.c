/* The machinery of lifting: attributes, constants, emission. The rules are in onnx_lift_rules.c. */
#include "world/onnx/onnx_lift.h"

#include <string.h>

#include "world/graph/infer_impl.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena is full");
}

const rui_onnx_attr *rui_lift_take(rui_lift *l, const char *name)
{
    for (uint32_t k = 0; k < l->n_raw; k++) {
        if (!l->taken[k] && strcmp(l->raw[k].name, name) == 0) {
            l->taken[k] = true;
            return &l->raw[k];
        }
    }
    return NULL;
}

int64_t rui_lift_take_int(rui_lift *l, const char *name, int64_t dflt)
{
    const rui_onnx_attr *a = rui_lift_take(l, name);
    return a != NULL && a->type == RUI_ONNX_INT ? a->i : dflt;
}

ru_status rui_lift_set_in(rui_lift *l, uint32_t k, ru_value_id v, ru_err *err)
{
    if (k < l->n_in && l->in[k].v != 0) {
        return RU_FAIL(err, RU_E_DATA, "input %u and the attribute of older opsets are both set",
                       k);
    }
    while (l->n_in <= k) {
        l->in[l->n_in++] = (ru_value_id){0};
    }
    l->in[k] = v;
    return RU_OK;
}

ru_status rui_lift_const(rui_lift *l, const ru_type *type, const void *data, ru_value_id *out,
                         ru_err *err)
{
    void *copy = ru_arena_copy(l->arena, data, ru_type_bytes(type), 64);
    if (copy == NULL) {
        return full(err);
    }
    ru_value v = {.type = *type, .kind = RU_VALUE_CONST, .data = copy};
    return ru_graph_add_value(l->g, &v, out, err);
}

ru_status rui_lift_const_i64s(rui_lift *l, const int64_t *v, uint32_t n, ru_value_id *out,
                              ru_err *err)
{
    ru_type t = {.dtype = RU_I64, .rank = 1, .dims = {n}};
    return rui_lift_const(l, &t, v, out, err);
}

ru_status rui_lift_const_f32s(rui_lift *l, const float *v, uint32_t n, bool scalar,
                              ru_value_id *out, ru_err *err)
{
    ru_type t = {.dtype = RU_F32, .rank = scalar ? 0 : 1, .dims = {scalar ? 0 : n}};
    return rui_lift_const(l, &t, v, out, err);
}

static ru_status append(rui_lift *l, const ru_node *node, ru_err *err)
{
    ru_graph_node_id id;
    RU_TRY(ru_graph_add_node_into(l->g, node, &id, err));
    return l->infer ? ru_graph_infer_node(l->g, id, err) : RU_OK;
}

ru_status rui_lift_node(rui_lift *l, ru_op op, const ru_value_id *in, uint32_t n_in,
                        const ru_attr *attrs, uint32_t n_attrs, ru_value_id *out, ru_err *err)
{
    ru_value_id v; /* `out` may be one of `in` */
    RU_TRY(ru_graph_add_value(l->g, &(ru_value){.kind = RU_VALUE_TEMP}, &v, err));
    ru_node n = {.op = op,
                 .name = l->name,
                 .in = in,
                 .out = &v,
                 .attrs = attrs,
                 .n_in = n_in,
                 .n_out = 1,
                 .n_attrs = n_attrs};
    RU_TRY(append(l, &n, err));
    *out = v;
    return RU_OK;
}

const ru_type *rui_lift_type(const rui_lift *l, uint32_t k)
{
    if (!l->infer || k >= l->n_in || l->in[k].v == 0) {
        return NULL;
    }
    return &ru_graph_value(l->g, l->in[k])->type;
}

static bool raw_has(const rui_lift *l, ru_attr_key key)
{
    for (uint32_t k = 0; k < l->n_raw; k++) {
        if (!l->taken[k] && strcmp(l->raw[k].name, ru_attr_name(key)) == 0) {
            return true;
        }
    }
    return false;
}

static void dflt(rui_lift *l, const ru_attr *a)
{
    if (!raw_has(l, a->key)) {
        RU_CHECK(l->n_more < RUI_LIFT_ARGS_MORE);
        l->more[l->n_more++] = *a;
    }
}

void rui_lift_dflt_int(rui_lift *l, ru_attr_key key, int64_t v)
{
    dflt(l, &(ru_attr){.key = key, .kind = RU_ATTR_INT, .n = 1, .u.i = v});
}

void rui_lift_dflt_float(rui_lift *l, ru_attr_key key, double v)
{
    dflt(l, &(ru_attr){.key = key, .kind = RU_ATTR_FLOAT, .n = 1, .u.f = v});
}

void rui_lift_dflt_str(rui_lift *l, ru_attr_key key, const char *v)
{
    dflt(l, &(ru_attr){.key = key, .kind = RU_ATTR_STR, .n = 1, .u.s = v});
}

/* -- emission ---------------------------------------------------------------------------------- */

static ru_status tensor_convert(const rui_onnx_attr *a, ru_arena *arena, ru_attr *out, ru_err *err)
{
    rui_onnx_tensor t;
    RU_TRY(rui_onnx_tensor_parse(a->t, arena, &t, err));
    if (t.external) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "attribute '%s' is stored in another file", a->name);
    }
    ru_type *type = RU_NEW(arena, ru_type, 1);
    if (type == NULL) {
        return full(err);
    }
    *type = t.type;
    RU_TRY(rui_onnx_tensor_data(&t, arena, &out->u.t.data, err));
    out->u.t.type = type;
    return RU_OK;
}

static ru_status attr_convert(const rui_onnx_attr *a, ru_op op, ru_arena *arena, ru_attr *out,
                              ru_err *err)
{
    ru_attr r = {.key = ru_attr_find(a->name), .n = 1};
    bool known = rui_op_model_attr(op, a->name) || a->type == RUI_ONNX_GRAPH;
    if (r.key == RU_ATTR_NONE || !known) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "attribute '%s' is not known", a->name);
    }
    switch (a->type) {
    case RUI_ONNX_FLOAT:
        r.kind = RU_ATTR_FLOAT;
        r.u.f = a->f;
        break;
    case RUI_ONNX_INT:
        r.kind = RU_ATTR_INT;
        r.u.i = a->i;
        break;
    case RUI_ONNX_STRING:
        if (a->s == NULL) {
            return RU_FAIL(err, RU_E_DATA, "attribute '%s' is not a text", a->name);
        }
        r.kind = RU_ATTR_STR;
        r.u.s = a->s;
        break;
    case RUI_ONNX_FLOATS:
        r.kind = RU_ATTR_FLOATS;
        r.n = a->n;
        r.u.fs = a->fs;
        break;
    case RUI_ONNX_INTS:
        r.kind = RU_ATTR_INTS;
        r.n = a->n;
        r.u.is = a->is;
        break;
    case RUI_ONNX_STRINGS:
        r.kind = RU_ATTR_STRS;
        r.n = a->ss.n;
        r.u.ss = a->ss.s;
        break;
    case RUI_ONNX_TENSOR:
        r.kind = RU_ATTR_TENSOR;
        RU_TRY(tensor_convert(a, arena, &r, err));
        break;
    case RUI_ONNX_GRAPH:
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "attribute '%s' is a subgraph: control flow is not supported", a->name);
    case RUI_ONNX_UNDEFINED:
    case RUI_ONNX_OTHER:
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "attribute '%s' is of a kind that is not supported (sparse tensor, type or "
                       "list of graphs)",
                       a->name);
    }
    *out = r;
    return RU_OK;
}

/* Attributes without meaning for inference that old exporters still write. */
static bool attr_is_relic(const char *name)
{
    return strcmp(name, "consumed_inputs") == 0 || strncmp(name, "_", 1) == 0;
}

static void trim_absent(rui_lift *l)
{
    while (l->n_in > 0 && l->in[l->n_in - 1].v == 0) {
        l->n_in--;
    }
}

ru_status rui_lift_emit(rui_lift *l, ru_err *err)
{
    ru_attr *attrs = RU_NEW(l->arena, ru_attr, l->n_raw + l->n_more);
    if (attrs == NULL) {
        return full(err);
    }
    uint32_t n = 0;
    for (uint32_t k = 0; k < l->n_raw; k++) {
        if (!l->taken[k] && !attr_is_relic(l->raw[k].name)) {
            RU_TRY(attr_convert(&l->raw[k], l->op, l->arena, &attrs[n++], err));
        }
    }
    for (uint32_t k = 0; k < l->n_more; k++) {
        attrs[n++] = l->more[k];
    }
    trim_absent(l);
    const ru_op_info *info = ru_op_get(l->op);
    uint32_t most = rui_op_model_inputs(l->op);
    most = most < info->in_max ? most : info->in_max;
    if (l->n_in < info->in_min || l->n_in > most || l->n_out < info->out_min ||
        l->n_out > info->out_max) {
        return RU_FAIL(err, RU_E_DATA,
                       "it has %u inputs and %u outputs, but %s takes %u to %u inputs and has %u "
                       "to %u outputs",
                       l->n_in, l->n_out, info->name, info->in_min, most, info->out_min,
                       info->out_max);
    }
    ru_value_id *out = RU_NEW(l->arena, ru_value_id, l->n_out);
    if (out == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < l->n_out; k++) {
        if (k >= l->n_out_model || l->wanted[k] || k < info->out_min) {
            RU_TRY(ru_graph_add_value(l->g, &(ru_value){.kind = RU_VALUE_TEMP}, &out[k], err));
        }
    }
    ru_node node = {.op = l->op,
                    .name = l->name,
                    .in = l->in,
                    .out = out,
                    .attrs = attrs,
                    .n_in = l->n_in,
                    .n_out = l->n_out,
                    .n_attrs = n};
    RU_TRY(append(l, &node, err));
    for (uint32_t k = 0; k < l->n_out_model && k < l->n_out; k++) {
        l->out[k] = out[k];
    }
    return RU_OK;
}
