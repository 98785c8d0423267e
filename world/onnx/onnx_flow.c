/* Control flow: If is replaced by the branch that its condition selects.
 *
 * A signature has no types and decides nothing: it reads both, to see which inputs decide shapes. */
#include "world/onnx/onnx_read_impl.h"

#include <string.h>

#include "world/infer_impl.h"

bool rui_onnx_flows(const rui_onnx_node *n)
{
    return n->domain[0] == 0 &&
           (strcmp(n->op, "If") == 0 || strcmp(n->op, "Loop") == 0 || strcmp(n->op, "Scan") == 0);
}

/* -- what decides ------------------------------------------------------------------------------ */

/* Is v one number or truth? */
static ru_status scalar_check(const rui_onnx_reader *r, ru_value_id v, const char *what)
{
    const ru_type *t = &ru_graph_value(r->g, v)->type;
    int64_t n = ru_type_count(t);
    bool fits = v.v != 0 && (ru_dtype_is_int(t->dtype) || t->dtype == RU_BOOL) && (n == 1 || n < 0);
    return fits ? RU_OK : RU_FAIL(r->err, RU_E_DATA, "%s is not one integer or truth value", what);
}

static ru_status undecided(const rui_onnx_reader *r, const char *what)
{
    return RU_FAIL(r->err, RU_E_UNSUPPORTED,
                   "%s depends on data of the run or on a dimension without a value; rubato run "
                   "computes it from the given arrays, but here there are none: give dimensions "
                   "values, or export the model with fixed sizes, traced instead of scripted, or "
                   "with torch.where instead of the branch",
                   what);
}

ru_status rui_onnx_scalar(rui_onnx_reader *r, ru_value_id v, const char *what, int64_t *out)
{
    RU_TRY(scalar_check(r, v, what));
    if (rui_known_number(r->g, v, out)) {
        return RU_OK;
    }
    return undecided(r, what);
}

/* Of a signature: an input that alone decides must be fixed, like one that is a shape. */
static ru_status input_decides(rui_onnx_reader *r, ru_value_id v)
{
    ru_value_id unused;
    bool input = v.v != 0 && ru_graph_value(r->g, v)->kind == RU_VALUE_INPUT;
    return input ? rui_onnx_put(r, RU_OP_ConstantOfShape, &v, 1, NULL, 0, &unused) : RU_OK;
}

/* -- subgraphs --------------------------------------------------------------------------------- */

static const rui_onnx_attr *attr_of(const rui_onnx_node *n, const char *name)
{
    for (uint32_t k = 0; k < n->n_attrs; k++) {
        if (strcmp(n->attrs[k].name, name) == 0) {
            return &n->attrs[k];
        }
    }
    return NULL;
}

/* The subgraph in attribute `name`, and the frame of its weights. */
static ru_status subgraph(rui_onnx_reader *r, rui_onnx_frame *f, const rui_onnx_node *n,
                          const char *name, rui_onnx_model *m, rui_onnx_frame *weights)
{
    const rui_onnx_attr *a = attr_of(n, name);
    if (a == NULL || a->type != RUI_ONNX_GRAPH) {
        return RU_FAIL(r->err, RU_E_DATA, "it has no graph '%s'", name);
    }
    if (f->depth + 1 >= RUI_ONNX_DEPTH_MAX) {
        return RU_FAIL(r->err, RU_E_DATA, "subgraphs are nested too deeply ('%s')", name);
    }
    RU_TRY(rui_onnx_graph_parse(a->g, r->arena, m, r->err));
    *weights = *f;
    weights->names = (rui_onnx_names){0};
    weights->outer = f;
    weights->depth++;
    return rui_onnx_weights(r, weights, m);
}

/* Read a subgraph once with these values as its inputs; out [m->n_outputs]. */
static ru_status body_read(rui_onnx_reader *r, rui_onnx_frame *weights, const rui_onnx_model *m,
                           const ru_value_id *in, ru_value_id *out)
{
    rui_onnx_frame body = *weights;
    body.names = (rui_onnx_names){0};
    body.outer = weights;
    if (++r->steps > RU_NODES_MAX) {
        return RU_FAIL(r->err, RU_E_LIMIT, "its iterations come to more than %d nodes",
                       RU_NODES_MAX);
    }
    for (uint32_t k = 0; k < m->n_inputs; k++) {
        RU_TRY(rui_onnx_name(r, &body, m->inputs[k].name, in[k]));
    }
    RU_TRY(rui_onnx_nodes_read(r, &body, &m->nodes));
    for (uint32_t k = 0; k < m->n_outputs; k++) {
        RU_TRY(rui_onnx_find(r, &body, m->outputs[k].name, &out[k]));
    }
    return RU_OK;
}

static ru_status branch_read(rui_onnx_reader *r, rui_onnx_frame *f, const rui_onnx_node *n,
                             const char *which, ru_value_id *out)
{
    rui_onnx_model m;
    rui_onnx_frame weights;
    RU_TRY(subgraph(r, f, n, which, &m, &weights));
    if (m.n_outputs != n->out.n || m.n_inputs != 0) {
        return RU_FAIL(r->err, RU_E_DATA, "'%s' has %u inputs and %u outputs, but its node has %u",
                       which, m.n_inputs, m.n_outputs, n->out.n);
    }
    return body_read(r, &weights, &m, NULL, out);
}

static ru_status if_read(rui_onnx_reader *r, rui_onnx_frame *f, const rui_onnx_node *n,
                         const ru_value_id *in, ru_value_id *out)
{
    int64_t yes;
    if (n->in.n != 1 || in[0].v == 0) {
        return RU_FAIL(r->err, RU_E_DATA, "it needs one condition");
    }
    if (!r->opt->signature) {
        RU_TRY(rui_onnx_scalar(r, in[0], "its condition", &yes));
        return branch_read(r, f, n, yes != 0 ? "then_branch" : "else_branch", out);
    }
    ru_value_id *other = RU_NEW(r->arena, ru_value_id, n->out.n);
    if (other == NULL) {
        return rui_onnx_full(r->err);
    }
    RU_TRY(input_decides(r, in[0]));
    RU_TRY(branch_read(r, f, n, "then_branch", out));
    RU_TRY(branch_read(r, f, n, "else_branch", other));
    for (uint32_t k = 0; k < n->out.n; k++) {
        ru_value_id three[3] = {in[0], out[k], other[k]};
        RU_TRY(rui_onnx_put(r, RU_OP_Where, three, 3, NULL, 0, &out[k]));
    }
    return RU_OK;
}

ru_status rui_onnx_flow(rui_onnx_reader *r, rui_onnx_frame *f, const rui_onnx_node *n,
                        const ru_value_id *in, ru_value_id *out)
{
    return if_read(r, f, n, in, out);
}
