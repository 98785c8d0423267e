/* Control flow: a node with subgraphs is replaced by the nodes that it runs.
 *
 *   If     the branch that its condition selects
 *   Loop   the body once for each iteration, the results of one iteration in place of the names of
 *          the next; Scan likewise
 *
 * What decides (conditions, numbers of iterations) is known from constants, shapes and fixed
 * inputs, or computed ahead from the arrays of the run (ru_onnx_options.ahead). With it all that
 * one iteration hands to the next is computed, so that nothing is computed twice.
 *
 * A signature has no types and decides nothing: it reads each subgraph once, to see which inputs
 * decide shapes. */
#include "world/onnx/onnx_read_impl.h"

#include <string.h>

#include "world/graph/infer_impl.h"

enum { JOIN_MAX = 4096 }; /* inputs of one Concat */

bool rui_onnx_flows(const rui_onnx_node *n)
{
    return n->domain[0] == 0 &&
           (strcmp(n->op, "If") == 0 || strcmp(n->op, "Loop") == 0 || strcmp(n->op, "Scan") == 0);
}

/* -- what decides ------------------------------------------------------------------------------ */

/* Compute ids[0 .. n-1] ahead; each becomes a constant when inference can follow it, else an input
 * with that array. Constants, inputs and lists stay as they are. */
static ru_status ahead(rui_onnx_reader *r, ru_value_id *ids, uint32_t n)
{
    const ru_onnx_ahead *a = r->opt->ahead;
    ru_array *made = RU_NEW(r->arena, ru_array, n);
    ru_value_id *open = RU_NEW(r->arena, ru_value_id, n);
    uint32_t *at = RU_NEW(r->arena, uint32_t, n), count = 0;
    if (made == NULL || open == NULL || at == NULL) {
        return rui_onnx_full(r->err);
    }
    for (uint32_t k = 0; k < n; k++) {
        const ru_value *v = ru_graph_value(r->g, ids[k]);
        if (ids[k].v == 0 || v->kind != RU_VALUE_TEMP || v->producer.v == 0) {
            at[k] = UINT32_MAX;
            continue;
        }
        for (at[k] = 0; at[k] < count && open[at[k]].v != ids[k].v; at[k]++) {
        }
        open[at[k]] = ids[k];
        count += at[k] == count ? 1 : 0;
    }
    if (count == 0) {
        return RU_OK;
    }
    RU_TRY(a->compute(a->self, r->g, open, count, made, r->err));
    for (uint32_t k = 0; k < count; k++) {
        ru_value v = {.type = made[k].type, .kind = RU_VALUE_CONST, .data = made[k].data};
        bool small = !ru_dtype_is_float(v.type.dtype) && ru_type_count(&v.type) <= RUI_KNOWN_MAX;
        if (!small) {
            v.kind = RU_VALUE_INPUT;
            v.name = made[k].name = ru_arena_printf(r->arena, "%%%u", r->g->n_values);
            v.data = NULL;
            if (v.name == NULL) {
                return rui_onnx_full(r->err);
            }
            RU_TRY(a->keep(a->self, &made[k], r->err));
        }
        RU_TRY(ru_graph_add_value(r->g, &v, &open[k], r->err));
    }
    for (uint32_t k = 0; k < n; k++) {
        ids[k] = at[k] != UINT32_MAX ? open[at[k]] : ids[k];
    }
    return RU_OK;
}

/* Is v one number or truth? */
static ru_status scalar_check(const rui_onnx_reader *r, ru_value_id v, const char *what)
{
    const ru_type *t = &ru_graph_value(r->g, v)->type;
    int64_t n = ru_type_count(t);
    bool fits = v.v != 0 && rui_onnx_list_of(r, v) == NULL &&
                (ru_dtype_is_int(t->dtype) || t->dtype == RU_BOOL) && (n == 1 || n < 0);
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
    if (r->opt->ahead == NULL) {
        return undecided(r, what);
    }
    if (ru_graph_value(r->g, v)->kind == RU_VALUE_INPUT) {
        RU_TRY(rui_onnx_put(r, RU_OP_Identity, &v, 1, NULL, 0, &v));
    }
    RU_TRY(ahead(r, &v, 1));
    RU_TRY(scalar_check(r, v, what));
    return rui_known_number(r->g, v, out) ? RU_OK : undecided(r, what);
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
        return RU_FAIL(r->err, RU_E_DATA,
                       "its iterations come to more than %d nodes; does its condition ever become "
                       "false?",
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

/* -- iterations -------------------------------------------------------------------------------- */

/* The results of all iterations that become one tensor: a list that grows. */
typedef struct pile {
    ru_value_id *v; /* [n] */
    uint32_t n, cap;
    ru_type type; /* of one, for a pile of none */
} pile;

static ru_status pile_add(rui_onnx_reader *r, pile *p, ru_value_id v)
{
    ru_value_id *more = rui_onnx_grow(r->arena, p->v, p->n, &p->cap, sizeof *p->v, RU_NODES_MAX);
    if (more == NULL) {
        return rui_onnx_full(r->err);
    }
    p->v = more;
    p->v[p->n++] = v;
    return RU_OK;
}

static ru_status pile_none(rui_onnx_reader *r, const pile *p, int64_t axis, ru_value_id *out)
{
    ru_value v = {.kind = RU_VALUE_CONST, .data = "", .type = {.dtype = p->type.dtype}};
    if (p->type.dtype == RU_NONE || p->type.rank == RU_RANK_MAX) {
        return RU_FAIL(r->err, RU_E_UNSUPPORTED, "it runs no iteration and its result has no type");
    }
    for (uint32_t k = 0; k <= p->type.rank; k++) {
        int64_t dim = k == axis ? 0 : p->type.dims[k - (k > axis ? 1 : 0)];
        v.type.dims[v.type.rank++] = ru_dim_is_symbolic(dim) ? 0 : dim;
    }
    return ru_graph_add_value(r->g, &v, out, r->err);
}

/* Stack them along a new axis. */
static ru_status pile_join(rui_onnx_reader *r, const pile *p, int64_t axis, bool reverse,
                           ru_value_id *out)
{
    ru_attr along = {.key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1, .u.i = axis};
    ru_value_id at, part = {0}, *all = RU_NEW(r->arena, ru_value_id, p->n + 1);
    if (all == NULL) {
        return rui_onnx_full(r->err);
    }
    if (p->n == 0) {
        return pile_none(r, p, axis, out);
    }
    RU_TRY(rui_onnx_put_i64s(r, &axis, 1, false, &at));
    for (uint32_t k = 0; k < p->n; k++) {
        ru_value_id pair[2] = {p->v[reverse ? p->n - 1 - k : k], at};
        RU_TRY(rui_onnx_put(r, RU_OP_Unsqueeze, pair, 2, NULL, 0, &all[k]));
    }
    for (uint32_t k = 0; k < p->n;
         k += JOIN_MAX) { /* parts of at most JOIN_MAX - 1 and the first */
        uint32_t n = p->n - k < JOIN_MAX ? p->n - k : JOIN_MAX;
        RU_TRY(rui_onnx_put(r, RU_OP_Concat, all + k, n, &along, 1, &part));
        if (k > 0) {
            ru_value_id pair[2] = {*out, part};
            RU_TRY(rui_onnx_put(r, RU_OP_Concat, pair, 2, &along, 1, &part));
        }
        *out = part;
    }
    return RU_OK;
}

/* Loop and Scan, read one iteration at a time. */
typedef struct iterations {
    rui_onnx_model m;
    rui_onnx_frame weights;
    uint32_t n_lead; /* inputs and outputs before the states: Loop 2 and 1, Scan 0 and 0 */
    uint32_t n_states, n_piles;
    ru_value_id *in, *out; /* [m.n_inputs], [m.n_outputs] of the body */
    pile *piles;           /* [n_piles] */
} iterations;

static ru_status iterations_open(rui_onnx_reader *r, rui_onnx_frame *f, const rui_onnx_node *n,
                                 const ru_value_id *states, uint32_t n_states, uint32_t n_more,
                                 uint32_t n_lead, iterations *it)
{
    RU_TRY(subgraph(r, f, n, "body", &it->m, &it->weights));
    uint32_t ahead_out = n_lead > 0 ? 1 : 0;
    it->n_lead = n_lead;
    it->n_states = n_states;
    if (it->m.n_inputs != n_lead + n_states + n_more || it->m.n_outputs < ahead_out + n_states ||
        n->out.n > it->m.n_outputs - ahead_out) {
        return RU_FAIL(r->err, RU_E_DATA,
                       "its body has %u inputs and %u outputs, which do not fit the node",
                       it->m.n_inputs, it->m.n_outputs);
    }
    it->n_piles = it->m.n_outputs - ahead_out - n_states;
    it->in = RU_NEW(r->arena, ru_value_id, it->m.n_inputs + 1);
    it->out = RU_NEW(r->arena, ru_value_id, it->m.n_outputs + 1);
    it->piles = RU_NEW(r->arena, pile, it->n_piles + 1);
    if (it->in == NULL || it->out == NULL || it->piles == NULL) {
        return rui_onnx_full(r->err);
    }
    memcpy(it->in + n_lead, states, n_states * sizeof *states);
    return RU_OK;
}

/* Read the body once; its states become those of the next iteration. `keep`: its results count. */
static ru_status iteration(rui_onnx_reader *r, iterations *it, bool keep)
{
    uint32_t lead = it->n_lead > 0 ? 1 : 0;
    RU_TRY(body_read(r, &it->weights, &it->m, it->in, it->out));
    int64_t go_on;
    if (lead > 0 && r->opt->ahead != NULL && !r->opt->signature &&
        !rui_known_number(r->g, it->out[0], &go_on) && keep) {
        RU_TRY(ahead(r, it->out, it->m.n_outputs));
    }
    for (uint32_t k = 0; k < it->n_piles; k++) {
        ru_value_id v = it->out[lead + it->n_states + k];
        it->piles[k].type = ru_graph_value(r->g, v)->type;
        if (keep) {
            RU_TRY(pile_add(r, &it->piles[k], v));
        }
    }
    if (keep) {
        memcpy(it->in + it->n_lead, it->out + lead, it->n_states * sizeof *it->in);
    }
    return RU_OK;
}

static ru_status bool_put(rui_onnx_reader *r, ru_value_id *out)
{
    static const uint8_t yes = 1;
    ru_value v = {.kind = RU_VALUE_CONST, .type = {.dtype = RU_BOOL}, .data = &yes};
    return ru_graph_add_value(r->g, &v, out, r->err);
}

/* Of a signature: each result depends on one reading of the body, and on what it starts with. */
static ru_status iterations_sign(rui_onnx_reader *r, const rui_onnx_node *n, const ru_value_id *in,
                                 iterations *it, ru_value_id *out)
{
    uint32_t lead = it->n_lead > 0 ? 1 : 0;
    RU_TRY(body_read(r, &it->weights, &it->m, it->in, it->out));
    for (uint32_t k = 0; k < n->out.n; k++) {
        ru_value_id both[2] = {it->out[lead + k], it->out[lead + k]};
        both[1] = k < it->n_states && in[k].v != 0 ? in[k] : both[0];
        RU_TRY(rui_onnx_put(r, RU_OP_Sum, both, 2, NULL, 0, &out[k]));
    }
    return RU_OK;
}

static ru_status loop_read(rui_onnx_reader *r, rui_onnx_frame *f, const rui_onnx_node *n,
                           const ru_value_id *in, ru_value_id *out)
{
    iterations it = {0};
    int64_t trips = INT64_MAX, go_on = 1;
    if (n->in.n < 2) {
        return RU_FAIL(r->err, RU_E_DATA, "it needs a number of iterations and a condition");
    }
    RU_TRY(iterations_open(r, f, n, in + 2, n->in.n - 2, 0, 2, &it));
    RU_TRY(bool_put(r, &it.in[1]));
    if (r->opt->signature) {
        RU_TRY(input_decides(r, in[0]));
        RU_TRY(input_decides(r, in[1]));
        RU_TRY(rui_onnx_put_i64s(r, &(int64_t){0}, 1, true, &it.in[0]));
        return iterations_sign(r, n, in + 2, &it, out);
    }
    if (in[0].v != 0) {
        RU_TRY(rui_onnx_scalar(r, in[0], "its number of iterations", &trips));
    }
    if (in[1].v != 0) {
        RU_TRY(rui_onnx_scalar(r, in[1], "its condition", &go_on));
    }
    bool none = trips <= 0 || go_on == 0;
    for (int64_t k = 0; none ? k == 0 && it.n_piles > 0 : k < trips && go_on != 0; k++) {
        RU_TRY(rui_onnx_put_i64s(r, &k, 1, true, &it.in[0]));
        RU_TRY(iteration(r, &it, !none));
        if (!none) {
            RU_TRY(rui_onnx_scalar(r, it.out[0], "the condition that its body computes", &go_on));
        }
    }
    for (uint32_t k = 0; k < n->out.n; k++) {
        if (k < it.n_states) {
            out[k] = it.in[2 + k];
        } else {
            RU_TRY(pile_join(r, &it.piles[k - it.n_states], 0, false, &out[k]));
        }
    }
    return RU_OK;
}

/* Entry k of an ints attribute; 0 when it is not set. */
static int64_t ints_at(const rui_onnx_node *n, const char *name, uint32_t k)
{
    const rui_onnx_attr *a = attr_of(n, name);
    return a != NULL && a->type == RUI_ONNX_INTS && k < a->n ? a->is[k] : 0;
}

/* Element `at` of what Scan runs over, its k-th such input. */
static ru_status scan_element(rui_onnx_reader *r, const rui_onnx_node *n, ru_value_id x, uint32_t k,
                              int64_t at, int64_t trips, ru_value_id *out)
{
    ru_attr axis = {.key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1};
    ru_value_id pair[2] = {x};
    axis.u.i = ints_at(n, "scan_input_axes", k);
    at = ints_at(n, "scan_input_directions", k) != 0 ? trips - 1 - at : at;
    RU_TRY(rui_onnx_put_i64s(r, &at, 1, true, &pair[1]));
    return rui_onnx_put(r, RU_OP_Gather, pair, 2, &axis, 1, out);
}

/* The number of elements along the axis of the first input that Scan runs over. */
static ru_status scan_trips(const rui_onnx_reader *r, const rui_onnx_node *n, ru_value_id x,
                            int64_t *out)
{
    const ru_type *t = &ru_graph_value(r->g, x)->type;
    int64_t axis = ints_at(n, "scan_input_axes", 0);
    axis += axis < 0 ? (int64_t)t->rank : 0;
    if (axis < 0 || axis >= (int64_t)t->rank) {
        return RU_FAIL(r->err, RU_E_DATA, "axis %lld of a tensor of rank %u", (long long)axis,
                       t->rank);
    }
    *out = t->dims[axis];
    return ru_dim_is_symbolic(*out) ? undecided(r, "its number of iterations") : RU_OK;
}

static ru_status scan_read(rui_onnx_reader *r, rui_onnx_frame *f, const rui_onnx_node *n,
                           const ru_value_id *in, ru_value_id *out)
{
    iterations it = {0};
    for (uint32_t k = 0; k < f->opsets->n; k++) {
        if (f->opsets->v[k].domain[0] == 0 && f->opsets->v[k].version < 9) {
            return RU_FAIL(r->err, RU_E_UNSUPPORTED,
                           "the subgraph has the form of opset 8, which is not supported; export "
                           "the model with opset 9 or later");
        }
    }
    const rui_onnx_attr *a = attr_of(n, "num_scan_inputs");
    int64_t n_scan = a != NULL && a->type == RUI_ONNX_INT ? a->i : 0, trips = 0;
    if (n_scan < 1 || n_scan > n->in.n) {
        return RU_FAIL(r->err, RU_E_DATA, "it runs over %lld of its %u inputs", (long long)n_scan,
                       n->in.n);
    }
    uint32_t n_states = n->in.n - (uint32_t)n_scan;
    RU_TRY(iterations_open(r, f, n, in, n_states, (uint32_t)n_scan, 0, &it));
    if (r->opt->signature) {
        memcpy(it.in, in, n->in.n * sizeof *in);
        return iterations_sign(r, n, in, &it, out);
    }
    RU_TRY(scan_trips(r, n, in[n_states], &trips));
    for (int64_t at = 0; at < (trips > 0 ? trips : 0); at++) {
        for (uint32_t k = 0; k < (uint32_t)n_scan; k++) {
            RU_TRY(scan_element(r, n, in[n_states + k], k, at, trips, &it.in[n_states + k]));
        }
        RU_TRY(iteration(r, &it, true));
    }
    for (uint32_t k = 0; k < n->out.n; k++) {
        uint32_t p = k - n_states;
        out[k] = it.in[k < n_states ? k : 0];
        if (k >= n_states) {
            int64_t axis = ints_at(n, "scan_output_axes", p);
            axis += axis < 0 ? (int64_t)it.piles[p].type.rank + 1 : 0;
            RU_TRY(pile_join(r, &it.piles[p], axis, ints_at(n, "scan_output_directions", p) != 0,
                             &out[k]));
        }
    }
    return RU_OK;
}

ru_status rui_onnx_flow(rui_onnx_reader *r, rui_onnx_frame *f, const rui_onnx_node *n,
                        const ru_value_id *in, ru_value_id *out)
{
    if (strcmp(n->op, "If") == 0) {
        return if_read(r, f, n, in, out);
    }
    return strcmp(n->op, "Loop") == 0 ? loop_read(r, f, n, in, out) : scan_read(r, f, n, in, out);
}
