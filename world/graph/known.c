/* Following the elements of small integer tensors through the graph, so that computed shapes
 * (Shape -> Gather -> Concat -> Reshape) are known, also when some elements are symbolic.
 *
 * An element is a number, a symbolic dimension, or RU_DIM_UNKNOWN. Booleans are 0 and 1. */
#include "world/graph/infer_impl.h"

#include <string.h>

static bool followed(ru_dtype t)
{
    return ru_dtype_is_int(t) || t == RU_BOOL;
}

/* Element i of integer data; u64 beyond INT64_MAX gives unknown. */
static int64_t load(ru_dtype t, const void *data, uint32_t i)
{
    int64_t v = 0;
    const uint8_t *p = (const uint8_t *)data + (int64_t)i * ru_dtype_bytes(t);
    switch (t) {
    case RU_I8:
        return (int8_t)p[0];
    case RU_U8:
    case RU_BOOL:
        return p[0];
    case RU_I16: {
        int16_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case RU_U16: {
        uint16_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case RU_I32: {
        int32_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case RU_U32: {
        uint32_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case RU_I64:
    case RU_U64:
        memcpy(&v, p, sizeof v);
        return (t == RU_U64 && v < 0) || ru_dim_is_symbolic(v) ? RU_DIM_UNKNOWN : v;
    case RU_NONE:
    case RU_F32:
    case RU_F64:
    case RU_F16:
    case RU_BF16:
    case RU_DTYPE_COUNT:
    default:
        return RU_DIM_UNKNOWN;
    }
}

static const int64_t *read_data(ru_arena *arena, const ru_type *t, const void *data, uint32_t *n)
{
    int64_t count = ru_type_count(t);
    if (data == NULL || !followed(t->dtype) || count < 0 || count > RUI_KNOWN_MAX) {
        return NULL;
    }
    int64_t *v = RU_NEW(arena, int64_t, count);
    for (uint32_t i = 0; v != NULL && i < (uint32_t)count; i++) {
        v[i] = load(t->dtype, data, i);
    }
    *n = (uint32_t)count;
    return v;
}

const int64_t *rui_known(const rui_infer *c, uint32_t k, uint32_t *n)
{
    *n = 0;
    if (!ru_node_has_in(&c->n, k)) {
        return NULL;
    }
    ru_value *v = &c->g->values[c->n.in[k].v];
    if (v->known == NULL && v->kind == RU_VALUE_CONST) {
        v->known = read_data(c->g->arena, &v->type, v->data, n);
    }
    int64_t count = ru_type_count(&v->type);
    *n = v->known != NULL && count >= 0 ? (uint32_t)count : 0;
    return count >= 0 ? v->known : NULL;
}

bool rui_known_number(ru_graph *g, ru_value_id v, int64_t *out)
{
    const ru_value *x = &g->values[v.v];
    if (v.v == 0 || ru_type_count(&x->type) != 1) {
        return false;
    }
    uint32_t n;
    const int64_t *k = x->known;
    if (k == NULL && x->kind == RU_VALUE_CONST) {
        k = read_data(g->arena, &x->type, x->data, &n);
    }
    if (k == NULL || k[0] == RU_DIM_UNKNOWN || ru_dim_is_symbolic(k[0])) {
        return false;
    }
    *out = k[0];
    return true;
}

const int64_t *rui_known_numbers(const rui_infer *c, uint32_t k, uint32_t *n)
{
    const int64_t *v = rui_known(c, k, n);
    for (uint32_t i = 0; v != NULL && i < *n; i++) {
        if (v[i] == RU_DIM_UNKNOWN || ru_dim_is_symbolic(v[i])) {
            *n = 0;
            return NULL;
        }
    }
    return v;
}

const void *rui_const_data(const rui_infer *c, uint32_t k)
{
    const ru_value *v = &c->g->values[ru_node_has_in(&c->n, k) ? c->n.in[k].v : 0];
    return v->kind == RU_VALUE_CONST && ru_type_is_concrete(&v->type) ? v->data : NULL;
}

const double *rui_const_floats(const rui_infer *c, uint32_t k, uint32_t *n)
{
    *n = 0;
    if (!ru_node_has_in(&c->n, k)) {
        return NULL;
    }
    const ru_value *v = &c->g->values[c->n.in[k].v];
    ru_type t = v->type;
    const void *data = v->kind == RU_VALUE_CONST ? v->data : NULL;
    if (data == NULL && v->kind == RU_VALUE_TEMP && v->producer.v != 0) {
        const ru_node *p = ru_graph_node(c->g, v->producer);
        const ru_attr *a = p->op == RU_OP_Constant ? ru_node_attr(p, RU_ATTR_value) : NULL;
        data = a != NULL && a->kind == RU_ATTR_TENSOR ? a->u.t.data : NULL;
    }
    int64_t count = ru_type_count(&t);
    if (data == NULL || count < 0 || count > RUI_KNOWN_MAX ||
        (t.dtype != RU_F32 && t.dtype != RU_F64)) {
        return NULL;
    }
    double *out = RU_NEW(c->g->arena, double, count);
    for (int64_t i = 0; out != NULL && i < count; i++) {
        out[i] = t.dtype == RU_F32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
    }
    *n = (uint32_t)count;
    return out;
}

/* -- arithmetic on elements -------------------------------------------------------------------- */

static bool number(int64_t a)
{
    return a != RU_DIM_UNKNOWN && !ru_dim_is_symbolic(a);
}

/* Division of the integer ops truncates; the dims algebra handles exact symbolic quotients. */
static int64_t divide(int64_t a, int64_t b)
{
    if (number(a) && number(b)) {
        return b == 0 || (a == INT64_MIN && b == -1) ? RU_DIM_UNKNOWN : a / b;
    }
    return ru_dim_div(a, b);
}

static int64_t modulo(int64_t a, int64_t b, bool fmod)
{
    if (!number(a) || !number(b) || b == 0 || b == -1) {
        return number(b) && b != 0 && ru_dim_div(a, b) != RU_DIM_UNKNOWN ? 0 : RU_DIM_UNKNOWN;
    }
    int64_t r = a % b;
    return !fmod && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* Comparison for equality; symbols differ from small numbers in no sure way. */
static int64_t equal(int64_t a, int64_t b)
{
    if (a == RU_DIM_UNKNOWN || b == RU_DIM_UNKNOWN) {
        return RU_DIM_UNKNOWN;
    }
    if (number(a) != number(b)) {
        int64_t n = number(a) ? a : b;
        return n < 0 ? 0 : RU_DIM_UNKNOWN; /* a size is never negative */
    }
    return a == b ? 1 : number(a) ? 0 : RU_DIM_UNKNOWN;
}

static int64_t binary(const rui_infer *c, int64_t a, int64_t b)
{
    bool nums = number(a) && number(b);
    switch ((uint32_t)c->n.op) {
    case RU_OP_Add:
        return ru_dim_add(a, b);
    case RU_OP_Sub:
        return nums                            ? ru_dim_add(a, -b)
               : a == b && a != RU_DIM_UNKNOWN ? 0
               : b == 0                        ? a
                                               : RU_DIM_UNKNOWN;
    case RU_OP_Mul:
        return ru_dim_mul(a, b);
    case RU_OP_Div:
        return divide(a, b);
    case RU_OP_Mod:
        return modulo(a, b, ru_node_int(&c->n, RU_ATTR_fmod, 0) != 0);
    case RU_OP_Max:
        return nums ? (a > b ? a : b) : a == b ? a : b == 0 || b == 1 ? a : RU_DIM_UNKNOWN;
    case RU_OP_Min:
        return nums ? (a < b ? a : b) : a == b ? a : RU_DIM_UNKNOWN;
    case RU_OP_Equal:
        return equal(a, b);
    case RU_OP_Less:
        return nums ? a < b : RU_DIM_UNKNOWN;
    case RU_OP_LessOrEqual:
        return nums ? a <= b : RU_DIM_UNKNOWN;
    case RU_OP_Greater:
        return nums ? a > b : RU_DIM_UNKNOWN;
    case RU_OP_GreaterOrEqual:
        return nums ? a >= b : RU_DIM_UNKNOWN;
    case RU_OP_And:
        return nums ? (a != 0 && b != 0) : RU_DIM_UNKNOWN;
    case RU_OP_Or:
        return nums ? (a != 0 || b != 0) : RU_DIM_UNKNOWN;
    default:
        return RU_DIM_UNKNOWN;
    }
}

static int64_t unary(ru_op op, int64_t a)
{
    switch ((uint32_t)op) {
    case RU_OP_Neg:
        return number(a) ? -a : RU_DIM_UNKNOWN;
    case RU_OP_Abs:
        return number(a) ? (a < 0 ? -a : a) : a;
    case RU_OP_Not:
        return number(a) ? a == 0 : RU_DIM_UNKNOWN;
    case RU_OP_Sign:
        return number(a) ? (a > 0) - (a < 0) : RU_DIM_UNKNOWN;
    default:
        return a;
    }
}

/* -- ops --------------------------------------------------------------------------------------- */

/* Index into an input of type `in` broadcast to `out`, for flat index i of `out`. */
static uint32_t broadcast_index(const ru_type *out, const ru_type *in, uint32_t i)
{
    uint32_t idx = 0;
    uint32_t stride = 1;
    for (uint32_t a = 0; a < in->rank; a++) {
        uint32_t ax = in->rank - 1 - a;
        int64_t od = out->dims[out->rank - 1 - a];
        uint32_t at = i % (uint32_t)od;
        i /= (uint32_t)od;
        idx += in->dims[ax] == 1 ? 0 : at * stride;
        stride *= (uint32_t)in->dims[ax];
    }
    return idx;
}

static bool eval_elementwise(const rui_infer *c, const ru_type *t, int64_t *out, uint32_t n)
{
    const int64_t *in[3] = {NULL, NULL, NULL};
    uint32_t len;
    uint32_t n_in = c->n.n_in < 3 ? c->n.n_in : 3;
    for (uint32_t k = 0; k < n_in; k++) {
        in[k] = rui_known(c, k, &len);
        if (in[k] == NULL || len == 0) {
            return false;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        int64_t a = in[0][broadcast_index(t, rui_in(c, 0), i)];
        int64_t b = n_in > 1 ? in[1][broadcast_index(t, rui_in(c, 1), i)] : 0;
        if (c->n.op == RU_OP_Where) {
            int64_t x = in[2][broadcast_index(t, rui_in(c, 2), i)];
            out[i] = a == RU_DIM_UNKNOWN ? (b == x ? b : RU_DIM_UNKNOWN) : a != 0 ? b : x;
        } else {
            out[i] = n_in == 1 ? unary(c->n.op, a) : n_in == 2 ? binary(c, a, b) : RU_DIM_UNKNOWN;
        }
    }
    return true;
}

/* Chunks of every input in turn, as often as there are places before the axis. */
static bool eval_concat(const rui_infer *c, const ru_type *t, int64_t *out, uint32_t n)
{
    int64_t axis = ru_node_int(&c->n, RU_ATTR_axis, 0), outer = 1;
    uint32_t at = 0;
    bool any = false;
    for (int64_t a = 0; a < (axis < 0 ? axis + (int64_t)t->rank : axis); a++) {
        outer *= t->dims[a];
    }
    for (int64_t o = 0; o < outer; o++) {
        for (uint32_t k = 0; k < c->n.n_in; k++) {
            uint32_t len;
            const int64_t *v = rui_known(c, k, &len);
            int64_t chunk = ru_type_count(rui_in(c, k)) / outer;
            for (int64_t i = 0; i < chunk && at < n; i++) {
                out[at++] = v != NULL ? v[o * chunk + i] : RU_DIM_UNKNOWN;
            }
            any = any || v != NULL;
        }
    }
    return any && at == n;
}

/* Rows of x along its first axis. */
static bool eval_gather(const rui_infer *c, int64_t *out, uint32_t n)
{
    uint32_t n_x;
    uint32_t n_i;
    const int64_t *x = rui_known(c, 0, &n_x);
    const int64_t *idx = rui_known_numbers(c, 1, &n_i);
    int64_t axis = ru_node_int(&c->n, RU_ATTR_axis, 0), rank = (int64_t)rui_in(c, 0)->rank;
    if (x == NULL || idx == NULL || rank < 1 || (axis != 0 && axis != -rank)) {
        return false;
    }
    /* An axis of size 0 has no row to take. */
    int64_t rows = rui_in(c, 0)->dims[0], row = rows < 1 ? 0 : (int64_t)n_x / rows;
    if (row < 1) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        int64_t at = idx[i / row];
        int64_t j = at < 0 ? at + rows : at;
        if (j < 0 || j >= rows) {
            return false;
        }
        out[i] = x[j * row + (int64_t)i % row];
    }
    return (int64_t)n == (int64_t)n_i * row;
}

/* out[i, j, ..] = x[first + i * by, ..]: element `from` and distance `step` per axis of `out`. */
static bool pick(const rui_infer *c, const ru_type *t, int64_t from, const int64_t *step,
                 int64_t *out, uint32_t n)
{
    uint32_t len;
    const int64_t *x = rui_known(c, 0, &len);
    for (uint32_t i = 0; x != NULL && i < n; i++) {
        int64_t at = from, rest = (int64_t)i;
        for (uint32_t a = t->rank; a-- > 0;) {
            at += rest % t->dims[a] * step[a];
            rest /= t->dims[a];
        }
        if (at < 0 || at >= (int64_t)len) {
            return false;
        }
        out[i] = x[at];
    }
    return x != NULL;
}

/* Distances of neighbours along each axis. */
static void strides_of(const ru_type *t, int64_t *stride)
{
    int64_t s = 1;
    for (uint32_t a = t->rank; a-- > 0;) {
        stride[a] = s;
        s *= t->dims[a];
    }
}

static bool eval_slice(const rui_infer *c, const ru_type *t, int64_t *out, uint32_t n)
{
    uint32_t n_s;
    uint32_t n_a;
    uint32_t n_by;
    const ru_type *x = rui_in(c, 0);
    const int64_t *start = rui_known_numbers(c, 1, &n_s);
    const int64_t *axes = rui_known_numbers(c, 3, &n_a);
    const int64_t *steps = rui_known_numbers(c, 4, &n_by);
    int64_t step[RU_RANK_MAX], from = 0;
    if (start == NULL || n_s > x->rank || ru_type_count(x) < 0) {
        return false;
    }
    strides_of(x, step);
    for (uint32_t i = 0; i < n_s; i++) {
        int64_t a = axes != NULL && i < n_a ? axes[i] : (int64_t)i;
        a = a < 0 ? a + (int64_t)x->rank : a;
        if (a < 0 || a >= (int64_t)x->rank) {
            return false;
        }
        int64_t by = steps != NULL && i < n_by ? steps[i] : 1, dim = x->dims[a];
        int64_t top = by > 0 ? dim : dim - 1;
        int64_t s = start[i] < -dim ? 0 : start[i] < 0 ? start[i] + dim : start[i];
        from += (s > top ? top : s) * step[a];
        step[a] *= by;
    }
    return pick(c, t, from, step, out, n);
}

static bool eval_transpose(const rui_infer *c, const ru_type *t, int64_t *out, uint32_t n)
{
    uint32_t n_perm = 0;
    const int64_t *perm = ru_node_ints(&c->n, RU_ATTR_perm, &n_perm);
    const ru_type *x = rui_in(c, 0);
    int64_t stride[RU_RANK_MAX], step[RU_RANK_MAX];
    if (ru_type_count(x) < 0) {
        return false;
    }
    strides_of(x, stride);
    for (uint32_t a = 0; a < t->rank; a++) {
        step[a] = stride[perm != NULL && a < n_perm ? perm[a] : (int64_t)(t->rank - 1 - a)];
    }
    return pick(c, t, 0, step, out, n);
}

static bool eval_split(const rui_infer *c, uint32_t k, int64_t *out, uint32_t n)
{
    uint32_t len;
    const int64_t *x = rui_known(c, 0, &len);
    if (x == NULL || rui_in(c, 0)->rank != 1) {
        return false;
    }
    int64_t at = 0;
    for (uint32_t j = 0; j < k; j++) {
        at += ru_node_has_out(&c->n, j) ? c->g->values[c->n.out[j].v].type.dims[0] : 0;
    }
    for (uint32_t i = 0; i < n && at + i < len; i++) {
        out[i] = x[at + i];
    }
    return at + n <= len;
}

static bool eval_range(const rui_infer *c, int64_t *out, uint32_t n)
{
    uint32_t len;
    const int64_t *s = rui_known_numbers(c, 0, &len);
    const int64_t *d = rui_known_numbers(c, 2, &len);
    for (uint32_t i = 0; s != NULL && d != NULL && i < n; i++) {
        out[i] = ru_dim_add(s[0], ru_dim_mul((int64_t)i, d[0]));
    }
    return s != NULL && d != NULL;
}

static bool eval_shape(const rui_infer *c, int64_t *out, uint32_t n)
{
    const ru_type *x = rui_in(c, 0);
    int64_t rank = (int64_t)x->rank;
    int64_t s = ru_node_int(&c->n, RU_ATTR_start, 0);
    s = s < -rank ? 0 : s < 0 ? s + rank : s;
    for (uint32_t i = 0; i < n; i++) {
        out[i] = x->dims[s + i];
    }
    return true;
}

static bool eval_constant(const rui_infer *c, int64_t *out, uint32_t n)
{
    const ru_attr *a = &c->n.attrs[0];
    for (uint32_t i = 0; i < n; i++) {
        if (a->kind == RU_ATTR_INT || a->kind == RU_ATTR_INTS) {
            out[i] = a->kind == RU_ATTR_INT ? a->u.i : a->u.is[i];
        } else if (a->kind == RU_ATTR_TENSOR) {
            out[i] = load(a->u.t.type->dtype, a->u.t.data, i);
        } else {
            return false;
        }
    }
    return true;
}

static bool eval_fill(const rui_infer *c, int64_t *out, uint32_t n)
{
    const ru_attr *a = ru_node_attr(&c->n, RU_ATTR_value);
    if (a == NULL || a->kind != RU_ATTR_TENSOR) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        out[i] = load(a->u.t.type->dtype, a->u.t.data, 0);
    }
    return true;
}

/* Copy (reshapes), or repeat one element (Expand of a scalar). */
static bool eval_copy(const rui_infer *c, int64_t *out, uint32_t n)
{
    uint32_t len;
    const int64_t *x = rui_known(c, 0, &len);
    if (x == NULL || (len != n && len != 1)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        out[i] = x[len == 1 ? 0 : i];
    }
    return true;
}

/* A number to a boolean. */
static bool eval_truth(const rui_infer *c, int64_t *out, uint32_t n)
{
    if (!eval_copy(c, out, n)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        out[i] = number(out[i]) ? out[i] != 0 : RU_DIM_UNKNOWN;
    }
    return true;
}

static bool eval_reduce(const rui_infer *c, int64_t *out, uint32_t n)
{
    uint32_t len;
    const int64_t *x = rui_known(c, 0, &len);
    if (x == NULL || n != 1) {
        return false;
    }
    int64_t r = c->n.op == RU_OP_ReduceProd ? 1 : c->n.op == RU_OP_ReduceSum ? 0 : x[0];
    for (uint32_t i = 0; i < len; i++) {
        bool num = number(r) && number(x[i]);
        switch ((uint32_t)c->n.op) {
        case RU_OP_ReduceProd:
            r = ru_dim_mul(r, x[i]);
            break;
        case RU_OP_ReduceSum:
            r = ru_dim_add(r, x[i]);
            break;
        case RU_OP_ReduceMax:
            r = num ? (x[i] > r ? x[i] : r) : RU_DIM_UNKNOWN;
            break;
        default:
            r = num ? (x[i] < r ? x[i] : r) : RU_DIM_UNKNOWN;
            break;
        }
    }
    out[0] = r;
    return true;
}

static bool eval(const rui_infer *c, uint32_t k, const ru_type *t, int64_t *out, uint32_t n)
{
    switch ((uint32_t)c->n.op) {
    case RU_OP_Constant:
        return eval_constant(c, out, n);
    case RU_OP_ConstantOfShape:
        return eval_fill(c, out, n);
    case RU_OP_Shape:
        return eval_shape(c, out, n);
    case RU_OP_Size:
        out[0] = ru_type_count(rui_in(c, 0));
        return true;
    case RU_OP_Identity:
    case RU_OP_Reshape:
    case RU_OP_Squeeze:
    case RU_OP_Unsqueeze:
    case RU_OP_Flatten:
    case RU_OP_Expand:
        return eval_copy(c, out, n);
    case RU_OP_Transpose:
        return eval_transpose(c, t, out, n);
    case RU_OP_Cast:
        if (t->dtype == RU_BOOL) {
            return eval_truth(c, out, n);
        }
        return ru_dtype_bytes(t->dtype) >= 4 && eval_copy(c, out, n);
    case RU_OP_Concat:
        return eval_concat(c, t, out, n);
    case RU_OP_Gather:
        return eval_gather(c, out, n);
    case RU_OP_Slice:
        return eval_slice(c, t, out, n);
    case RU_OP_Split:
        return eval_split(c, k, out, n);
    case RU_OP_Range:
        return eval_range(c, out, n);
    case RU_OP_ReduceProd:
    case RU_OP_ReduceSum:
    case RU_OP_ReduceMax:
    case RU_OP_ReduceMin:
        return eval_reduce(c, out, n);
    case RU_OP_Add:
    case RU_OP_Sub:
    case RU_OP_Mul:
    case RU_OP_Div:
    case RU_OP_Mod:
    case RU_OP_Max:
    case RU_OP_Min:
    case RU_OP_Equal:
    case RU_OP_Less:
    case RU_OP_LessOrEqual:
    case RU_OP_Greater:
    case RU_OP_GreaterOrEqual:
    case RU_OP_And:
    case RU_OP_Or:
        return c->n.n_in <= 2 && eval_elementwise(c, t, out, n);
    case RU_OP_Neg:
    case RU_OP_Abs:
    case RU_OP_Not:
    case RU_OP_Sign:
    case RU_OP_Where:
        return eval_elementwise(c, t, out, n);
    default:
        return false;
    }
}

/* Symbolic sums and quotients that the element algebra gave up become derived symbols, so that
 * "Shape -> Add 1 -> Reshape" stays exact. Only for elements that came from symbols. */
static ru_status derive(const rui_infer *c, int64_t a, int64_t b, int64_t *out)
{
    bool sa = ru_dim_is_symbolic(a);
    bool sb = ru_dim_is_symbolic(b);
    if (a == RU_DIM_UNKNOWN || b == RU_DIM_UNKNOWN || (!sa && !sb)) {
        return RU_OK;
    }
    switch ((uint32_t)c->n.op) {
    case RU_OP_Add:
        return rui_dim_sum(c, a, b, out);
    case RU_OP_Sub:
        return number(b) ? rui_dim_sum(c, a, -b, out) : RU_OK;
    case RU_OP_Mul:
        return (sa || a >= 1) && (sb || b >= 1) ? rui_dims_product(c, (int64_t[]){a, b}, 2, out)
                                                : RU_OK;
    case RU_OP_Div:
        return number(b) && b >= 1 ? rui_dim_floordiv(c, a, b, false, out) : RU_OK;
    default:
        return RU_OK;
    }
}

ru_status rui_known_node(const rui_infer *c)
{
    for (uint32_t k = 0; k < c->n.n_out; k++) {
        if (!ru_node_has_out(&c->n, k)) {
            continue;
        }
        ru_value *v = &c->g->values[c->n.out[k].v];
        v->known = NULL;
        int64_t n = ru_type_count(&v->type);
        if (!followed(v->type.dtype) || n < 1 || n > RUI_KNOWN_MAX) {
            continue;
        }
        int64_t *out = RU_NEW(c->g->arena, int64_t, n);
        if (out == NULL) {
            return rui_arena_full(c->err);
        }
        if (!eval(c, k, &v->type, out, (uint32_t)n)) {
            continue;
        }
        if (n == 1 && c->n.n_in == 2 && out[0] == RU_DIM_UNKNOWN && c->n.op != RU_OP_Gather) {
            uint32_t la;
            uint32_t lb;
            const int64_t *a = rui_known(c, 0, &la);
            const int64_t *b = rui_known(c, 1, &lb);
            if (la == 1 && lb == 1) {
                RU_TRY(derive(c, a[0], b[0], &out[0]));
            }
        }
        v->known = out;
    }
    return RU_OK;
}
