/* A file does not say which of its float initialisers are parameters. Those are none that decide
 * shapes (the scales of Resize), bound, fill or quantise (Clip, Pad, QuantizeLinear), hold
 * infinities (masks of attention), or are the scale 1 and bias 0 of an InstanceNormalization that
 * stands between two reshapes: so exporters write GroupNorm, whose own scale and bias follow.
 *
 * Source: onnxscript (group_norm) and torch.onnx of PyTorch 2.14 */
#include "world/onnx/onnx_trained.h"

#include <math.h>
#include <stddef.h>

#include "world/onnx/onnx_read_impl.h"

/* Inputs of the op that are settings, as a bit set. */
static uint32_t settings(ru_op op)
{
    switch ((uint32_t)op) {
    case RU_OP_Resize:
        return 2;
    case RU_OP_Pad:
    case RU_OP_OneHot:
        return 4;
    case RU_OP_Clip:
    case RU_OP_QuantizeLinear:
    case RU_OP_DequantizeLinear:
        return 6;
    case RU_OP_Dropout:
        return 2;
    default:
        return 0;
    }
}

static bool all_equal(const ru_value *v, float x)
{
    int64_t n = ru_type_count(&v->type);
    const float *data = v->data;
    bool same = v->kind == RU_VALUE_STATE && v->type.dtype == RU_F32 && data != NULL;
    for (int64_t e = 0; same && e < n; e++) {
        same = data[e] == x;
    }
    return same;
}

static bool is_inside_group_norm(const ru_graph *g, const ru_node *n)
{
    const ru_value *x = &g->values[n->in[0].v];
    return n->op == RU_OP_InstanceNormalization && x->producer.v != 0 &&
           g->nodes[x->producer.v].op == RU_OP_Reshape && all_equal(&g->values[n->in[1].v], 1.0F) &&
           all_equal(&g->values[n->in[2].v], 0.0F);
}

static bool has_infinity(const ru_value *v)
{
    const float *data = v->data;
    int64_t n = v->type.dtype == RU_F32 && data != NULL ? ru_type_count(&v->type) : 0;
    bool some = false;
    for (int64_t e = 0; e < n && !some; e++) {
        some = isinf(data[e]);
    }
    return some;
}

static void mark_inputs(const ru_graph *g, const ru_node *n, bool *constant)
{
    bool all = false, group = is_inside_group_norm(g, n);
    for (uint32_t i = 0; i < n->n_out; i++) {
        all = all || (n->out[i].v != 0 && constant[n->out[i].v]);
    }
    all = all && n->op != RU_OP_Shape && n->op != RU_OP_Size;
    uint32_t some = rui_onnx_shape_inputs(n->op) | settings(n->op) | (group ? 6U : 0U);
    for (uint32_t i = 0; i < n->n_in; i++) {
        bool type = n->op == RU_OP_CastLike && i == 1; /* not its data */
        constant[n->in[i].v] |= (all && !type) || (i < 32 && (some >> i & 1) != 0);
    }
}

static void mark_statistics(ru_graph *g, const ru_node *n)
{
    bool norm = n->op == RU_OP_BatchNormalization || n->op == RU_OP_BatchNormTrain;
    for (uint32_t i = 3; norm && i < 5 && i < n->n_in; i++) {
        ru_value *v = ru_graph_value(g, n->in[i]);
        v->role = v->kind == RU_VALUE_STATE ? RU_ROLE_BUFFER : v->role;
    }
}

ru_status rui_onnx_trained(ru_graph *g, ru_arena *arena, ru_err *err)
{
    bool *constant = RU_NEW(arena, bool, g->n_values), some = false;
    if (constant == NULL) {
        return rui_onnx_full(err);
    }
    for (uint32_t k = g->n_nodes; k-- > 1;) {
        mark_inputs(g, &g->nodes[k], constant);
        mark_statistics(g, &g->nodes[k]);
    }
    for (uint32_t k = 1; k < g->n_values; k++) {
        ru_value *v = &g->values[k];
        if (v->kind == RU_VALUE_STATE && v->data != NULL && (constant[k] || has_infinity(v))) {
            v->kind = RU_VALUE_CONST;
            v->role = RU_ROLE_PLAIN;
            some = true;
        }
    }
    for (uint32_t k = 1; some && k < g->n_values; k++) {
        if (g->values[k].kind == RU_VALUE_TEMP) {
            g->values[k].type = (ru_type){.dtype = RU_NONE};
            g->values[k].known = NULL;
        }
    }
    return some ? ru_graph_infer(g, err) : RU_OK;
}
