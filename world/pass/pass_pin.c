/* Values that were computed elsewhere, put in place of the nodes that compute them. */
#include "world/graph/copy_impl.h"
#include "world/graph/infer_impl.h"
#include "world/pass/pass.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the graph is full");
}

uint32_t ru_op_sized_by(ru_op op)
{
    switch ((uint32_t)op) {
    case RU_OP_NonZero:
    case RU_OP_Unique:
    case RU_OP_ConstantOfShape:
    case RU_OP_HannWindow:
    case RU_OP_HammingWindow:
    case RU_OP_BlackmanWindow:
        return 1;
    case RU_OP_Reshape:
    case RU_OP_Expand:
    case RU_OP_Tile:
    case RU_OP_TopK:
    case RU_OP_Unsqueeze:
    case RU_OP_Squeeze:
    case RU_OP_Split:
    case RU_OP_OneHot:
    case RU_OP_Compress:
        return 2;
    case RU_OP_MaxUnpool:
        return 4;
    case RU_OP_MelWeightMatrix:
        return 3;
    case RU_OP_DFT:
    case RU_OP_Col2Im:
        return 6;
    case RU_OP_Range:
        return 7;
    case RU_OP_Pad:
    case RU_OP_STFT:
        return 10;
    case RU_OP_Resize:
        return 14;
    case RU_OP_Slice:
        return 30;
    case RU_OP_NonMaxSuppression:
        return 31;
    case RU_OP_ReduceL1:
    case RU_OP_ReduceL2:
    case RU_OP_ReduceLogSum:
    case RU_OP_ReduceLogSumExp:
    case RU_OP_ReduceMax:
    case RU_OP_ReduceMean:
    case RU_OP_ReduceMin:
    case RU_OP_ReduceProd:
    case RU_OP_ReduceSum:
    case RU_OP_ReduceSumSquare:
        return 2;
    default:
        return 0;
    }
}

typedef struct pinning {
    ru_graph *p;
    const void **data;  /* [n_values] elements of a value that was computed; NULL: it was not */
    ru_value_id *fixed; /* [n_values] the constant with them, made when a shape needs it */
    uint32_t n;         /* values of the graph as it was */
    ru_err *err;
} pinning;

/* The constant with the elements of v, for a reader whose shape they decide. */
static ru_status fixed_of(pinning *s, ru_value_id *v)
{
    if (v->v == 0 || v->v >= s->n || s->data[v->v] == NULL ||
        s->p->values[v->v].kind == RU_VALUE_CONST) {
        return RU_OK;
    }
    ru_value_id *c = &s->fixed[v->v];
    if (c->v == 0) {
        ru_value k = {
            .type = s->p->values[v->v].type, .kind = RU_VALUE_CONST, .data = s->data[v->v]};
        RU_TRY(ru_graph_add_value(s->p, &k, c, s->err));
    }
    *v = *c;
    return RU_OK;
}

/* Node n without those of its results that were computed; dropped when none is left. */
static ru_status node_pinned(pinning *s, const ru_node *n)
{
    ru_value_id *out = RU_NEW(s->p->arena, ru_value_id, n->n_out);
    ru_value_id *in = RU_NEW(s->p->arena, ru_value_id, n->n_in + 1);
    uint32_t left = 0;
    bool open = false;
    if (out == NULL || in == NULL) {
        return full(s->err);
    }
    for (uint32_t k = 0; k < n->n_out; k++) {
        const ru_value *v = &s->p->values[n->out[k].v];
        out[k] = n->out[k];
        open = open || (out[k].v != 0 && !ru_type_is_concrete(&v->type));
        if (out[k].v != 0 && v->kind != RU_VALUE_TEMP) {
            ru_value spare = {.kind = RU_VALUE_TEMP, .type = v->type};
            RU_TRY(ru_graph_add_value(s->p, &spare, &out[k], s->err));
        } else if (out[k].v != 0) {
            left++;
        }
    }
    for (uint32_t k = 0; k < n->n_in; k++) {
        in[k] = n->in[k];
        if (open && k < 32 && (ru_op_sized_by(n->op) >> k & 1) != 0) {
            RU_TRY(fixed_of(s, &in[k]));
        }
    }
    ru_node m = *n;
    m.in = in;
    m.out = out;
    return left > 0 ? ru_graph_add_node_into(s->p, &m, NULL, s->err) : RU_OK;
}

/* A computed value becomes a constant when it leaves the graph or inference can follow it, else an
 * input. */
static ru_status value_pinned(pinning *s, const ru_graph *g, const ru_pin *pin)
{
    ru_value *v = &s->p->values[pin->value.v];
    bool constant = !ru_dtype_is_float(v->type.dtype) && ru_type_count(&v->type) <= RUI_KNOWN_MAX;
    for (uint32_t k = 0; k < g->n_outputs; k++) {
        constant = constant || g->outputs[k].v == pin->value.v;
    }
    s->data[pin->value.v] = pin->data;
    if (v->kind != RU_VALUE_TEMP) {
        return RU_OK;
    }
    v->producer = (ru_graph_node_id){0};
    v->producer_out = 0;
    v->kind = constant ? RU_VALUE_CONST : RU_VALUE_INPUT;
    v->data = constant ? pin->data : NULL;
    if (!constant) {
        v->name = v->name != NULL ? v->name : ru_arena_printf(s->p->arena, "%%%u", pin->value.v);
        s->p->inputs[s->p->n_inputs++] = pin->value;
    }
    return v->name != NULL || constant ? RU_OK : full(s->err);
}

ru_status ru_pass_pin(const ru_graph *g, const ru_pin *pins, uint32_t n, ru_arena *arena,
                      ru_graph *out, ru_err *err)
{
    ru_graph p;
    RU_TRY(rui_copy_values(g, arena, &p, err));
    pinning s = {.p = &p,
                 .data = RU_NEW(arena, const void *, g->n_values),
                 .fixed = RU_NEW(arena, ru_value_id, g->n_values),
                 .n = g->n_values,
                 .err = err};
    ru_value_id *inputs = RU_NEW(arena, ru_value_id, g->n_inputs + n);
    if (s.data == NULL || s.fixed == NULL || inputs == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < p.n_inputs; k++) {
        inputs[k] = p.inputs[k];
    }
    p.inputs = inputs;
    p.cap_inputs = g->n_inputs + n;
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(value_pinned(&s, g, &pins[k]));
    }
    for (uint32_t k = 1; k < g->n_nodes; k++) {
        RU_TRY(node_pinned(&s, &g->nodes[k]));
    }
    RU_TRY(rui_copy_ends(g, &p, err));
    return ru_pass_dead(&p, arena, out, err);
}
