/* The graph builder: first error wins, types are inferred node by node. */
#include "world/graph/build.h"

#include <string.h>

void ru_build_init(ru_build *b, ru_graph *g)
{
    *b = (ru_build){.g = g, .status = RU_OK};
}

ru_status ru_build_finish(ru_build *b, ru_err *err)
{
    if (b->status != RU_OK) {
        return RU_FAIL(err, b->status, "%s", b->err.text);
    }
    return ru_graph_verify(b->g, err);
}

static ru_value_id add(ru_build *b, ru_value proto)
{
    ru_value_id id = {0};
    if (b->status == RU_OK) {
        b->status = ru_graph_add_value(b->g, &proto, &id, &b->err);
    }
    return b->status == RU_OK ? id : (ru_value_id){0};
}

ru_value_id ru_build_input(ru_build *b, const char *name, ru_type type)
{
    return add(b, (ru_value){.name = name, .type = type, .kind = RU_VALUE_INPUT});
}

ru_value_id ru_build_param(ru_build *b, const char *name, ru_type type, const void *data)
{
    return ru_build_state(b, name, type, RU_ROLE_PARAM, data);
}

ru_value_id ru_build_state(ru_build *b, const char *name, ru_type type, ru_value_role role,
                           const void *data)
{
    return add(
        b,
        (ru_value){.name = name, .type = type, .kind = RU_VALUE_STATE, .role = role, .data = data});
}

ru_value_id ru_build_const(ru_build *b, ru_type type, const void *data)
{
    if (b->status != RU_OK) {
        return (ru_value_id){0};
    }
    const void *mine = ru_arena_copy(b->g->arena, data, ru_type_bytes(&type), 64);
    if (mine == NULL) {
        b->status = RU_FAIL(&b->err, RU_E_LIMIT, "the arena of the graph is full");
    }
    return add(b, (ru_value){.type = type, .kind = RU_VALUE_CONST, .data = mine});
}

ru_value_id ru_build_const_f32(ru_build *b, float x)
{
    return ru_build_const(b, ru_type_scalar(RU_F32), &x);
}

ru_value_id ru_build_const_i64s(ru_build *b, const int64_t *xs, uint32_t n)
{
    int64_t dims[1] = {(int64_t)n};
    return ru_build_const(b, ru_type_make(RU_I64, 1, dims), n == 0 ? (const int64_t[]){0} : xs);
}

void ru_build_node(ru_build *b, ru_op op, const ru_value_id *in, uint32_t n_in,
                   const ru_attr *attrs, ru_value_id *out, uint32_t n_out)
{
    for (uint32_t i = 0; i < n_out; i++) {
        out[i] = (ru_value_id){0};
    }
    uint32_t n_attrs = 0;
    while (attrs != NULL && attrs[n_attrs].key != RU_ATTR_NONE) {
        n_attrs++;
    }
    if (b->status == RU_OK) {
        b->status =
            ru_graph_add_node(b->g, op, NULL, in, n_in, attrs, n_attrs, out, n_out, &b->err);
    }
    if (b->status == RU_OK) {
        b->status = ru_graph_infer_node(b->g, (ru_graph_node_id){b->g->n_nodes - 1}, &b->err);
    }
}

ru_value_id ru_build_op1(ru_build *b, ru_op op, ru_value_id x, const ru_attr *attrs)
{
    ru_value_id out;
    ru_build_node(b, op, &x, 1, attrs, &out, 1);
    return out;
}

ru_value_id ru_build_op2(ru_build *b, ru_op op, ru_value_id x, ru_value_id y, const ru_attr *attrs)
{
    ru_value_id out;
    ru_build_node(b, op, (const ru_value_id[]){x, y}, 2, attrs, &out, 1);
    return out;
}

ru_value_id ru_build_op3(ru_build *b, ru_op op, ru_value_id x, ru_value_id y, ru_value_id z,
                         const ru_attr *attrs)
{
    ru_value_id out;
    ru_build_node(b, op, (const ru_value_id[]){x, y, z}, 3, attrs, &out, 1);
    return out;
}

void ru_build_output(ru_build *b, ru_value_id v, const char *name)
{
    if (b->status != RU_OK) {
        return;
    }
    if (v.v == 0) {
        b->status =
            RU_FAIL(&b->err, RU_E_ARG, "output '%s' is the absent value", name != NULL ? name : "");
        return;
    }
    if (name != NULL) {
        const char *mine = ru_arena_str(b->g->arena, name);
        if (mine == NULL) {
            b->status = RU_FAIL(&b->err, RU_E_LIMIT, "the arena of the graph is full");
            return;
        }
        b->g->values[v.v].name = mine;
    }
    b->status = ru_graph_add_output(b->g, v, &b->err);
}

void ru_build_update(ru_build *b, ru_value_id state, ru_value_id value)
{
    if (b->status == RU_OK) {
        b->status = ru_graph_add_update(b->g, state, value, &b->err);
    }
}
