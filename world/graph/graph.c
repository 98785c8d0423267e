/* Graph construction, attributes, dimensions, and the op table.
 *
 * Dimensions: number n is n; coef x symbol s is INT64_MIN + (coef << 8 | s), coef >= 1; INT64_MIN
 * itself is "unknown". */
#include "world/graph/graph.h"

#include <string.h>

/* -- dimensions -------------------------------------------------------------------------------- */

#define DIM_SYM_BITS 8
#define DIM_COEF_MAX (INT64_C(1) << 40)
#define DIM_SYM_END  (INT64_MIN + ((DIM_COEF_MAX + 1) << DIM_SYM_BITS))

_Static_assert(RU_SYMBOLS_MAX == 1 << DIM_SYM_BITS, "a symbol index fills its bits");

int64_t ru_dim_symbol(uint32_t sym, int64_t coef)
{
    RU_CHECK(sym < RU_SYMBOLS_MAX);
    RU_CHECK(coef >= 1 && coef <= DIM_COEF_MAX);
    return INT64_MIN + (coef * RU_SYMBOLS_MAX + (int64_t)sym);
}

bool ru_dim_is_symbolic(int64_t dim)
{
    return dim != RU_DIM_UNKNOWN && dim < DIM_SYM_END;
}

int64_t ru_dim_coef(int64_t dim)
{
    RU_CHECK(ru_dim_is_symbolic(dim));
    return (dim - INT64_MIN) >> DIM_SYM_BITS;
}

uint32_t ru_dim_sym(int64_t dim)
{
    RU_CHECK(ru_dim_is_symbolic(dim));
    return (uint32_t)((dim - INT64_MIN) & (RU_SYMBOLS_MAX - 1));
}

int64_t ru_dim_mul(int64_t a, int64_t b)
{
    if (a == RU_DIM_UNKNOWN || b == RU_DIM_UNKNOWN) {
        return RU_DIM_UNKNOWN;
    }
    if (a == 0 || b == 0) {
        return 0;
    }
    bool sa = ru_dim_is_symbolic(a);
    bool sb = ru_dim_is_symbolic(b);
    if (sa && sb) {
        return RU_DIM_UNKNOWN;
    }
    int64_t r;
    if (!sa && !sb) {
        bool over = __builtin_mul_overflow(a, b, &r);
        return over || r < DIM_SYM_END ? RU_DIM_UNKNOWN : r;
    }
    int64_t d = sa ? a : b;
    int64_t n = sa ? b : a;
    if (n < 0 || __builtin_mul_overflow(ru_dim_coef(d), n, &r) || r > DIM_COEF_MAX) {
        return RU_DIM_UNKNOWN;
    }
    return ru_dim_symbol(ru_dim_sym(d), r);
}

int64_t ru_dim_div(int64_t a, int64_t b)
{
    if (a == RU_DIM_UNKNOWN || b == RU_DIM_UNKNOWN || b == 0) {
        return RU_DIM_UNKNOWN;
    }
    bool sa = ru_dim_is_symbolic(a);
    bool sb = ru_dim_is_symbolic(b);
    if (sa && sb) {
        bool same = ru_dim_sym(a) == ru_dim_sym(b);
        return same && ru_dim_coef(a) % ru_dim_coef(b) == 0 ? ru_dim_coef(a) / ru_dim_coef(b)
                                                            : RU_DIM_UNKNOWN;
    }
    if (sb) {
        return a == 0 ? 0 : RU_DIM_UNKNOWN;
    }
    if (sa) {
        return b > 0 && ru_dim_coef(a) % b == 0 ? ru_dim_symbol(ru_dim_sym(a), ru_dim_coef(a) / b)
                                                : RU_DIM_UNKNOWN;
    }
    return a % b == 0 ? a / b : RU_DIM_UNKNOWN;
}

int64_t ru_dim_add(int64_t a, int64_t b)
{
    if (a == RU_DIM_UNKNOWN || b == RU_DIM_UNKNOWN) {
        return RU_DIM_UNKNOWN;
    }
    if (a == 0 || b == 0) {
        return a == 0 ? b : a;
    }
    bool sa = ru_dim_is_symbolic(a);
    bool sb = ru_dim_is_symbolic(b);
    if (sa != sb) {
        return RU_DIM_UNKNOWN;
    }
    if (sa) {
        int64_t c = ru_dim_coef(a) + ru_dim_coef(b);
        return ru_dim_sym(a) == ru_dim_sym(b) && c <= DIM_COEF_MAX ? ru_dim_symbol(ru_dim_sym(a), c)
                                                                   : RU_DIM_UNKNOWN;
    }
    int64_t r;
    return __builtin_add_overflow(a, b, &r) || r < DIM_SYM_END ? RU_DIM_UNKNOWN : r;
}

/* -- types ------------------------------------------------------------------------------------- */

int64_t ru_type_count(const ru_type *t)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < t->rank; i++) {
        n = ru_dim_mul(n, t->dims[i]);
    }
    return n;
}

bool ru_type_is_concrete(const ru_type *t)
{
    if (t->dtype == RU_NONE || t->rank > RU_RANK_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < t->rank; i++) {
        if (t->dims[i] < 0) {
            return false;
        }
    }
    return true;
}

int64_t ru_type_bytes(const ru_type *t)
{
    RU_CHECK(ru_type_is_concrete(t));
    return ru_dim_mul(ru_type_count(t), ru_dtype_bytes(t->dtype));
}

bool ru_type_equal(const ru_type *a, const ru_type *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank) {
        return false;
    }
    for (uint32_t i = 0; i < a->rank; i++) {
        if (a->dims[i] != b->dims[i]) {
            return false;
        }
    }
    return true;
}

ru_type ru_type_make(ru_dtype dtype, uint32_t rank, const int64_t *dims)
{
    RU_CHECK(rank <= RU_RANK_MAX);
    ru_type t = {.dtype = dtype, .rank = rank};
    for (uint32_t i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
    }
    return t;
}

ru_type ru_type_scalar(ru_dtype dtype)
{
    return (ru_type){.dtype = dtype};
}

/* -- op and attribute tables ------------------------------------------------------------------- */

static const ru_op_info ops[RU_OP_COUNT] = {
    {.name = "None"},
#define RU_OP(name, onnx, in_min, in_max, out_min, out_max, shape, grad, flops, tol, tolb, sample) \
    {#name, onnx, in_min, in_max, out_min, out_max, tol, tolb},
#include "world/graph/ops.def"
#undef RU_OP
};

static const char attr_names[RU_ATTR_COUNT][32] = {"none",
#define RU_X(name) #name,
                                                   RU_ATTR_LIST(RU_X)
#undef RU_X
};

const ru_op_info *ru_op_get(ru_op op)
{
    RU_CHECK((uint32_t)op < RU_OP_COUNT);
    return &ops[op];
}

ru_op ru_op_find(const char *name, bool onnx)
{
    for (uint32_t i = 1; i < RU_OP_COUNT; i++) {
        if (ops[i].onnx == onnx && strcmp(ops[i].name, name) == 0) {
            return (ru_op)i;
        }
    }
    return RU_OP_NONE;
}

const char *ru_attr_name(ru_attr_key key)
{
    return (uint32_t)key < RU_ATTR_COUNT ? attr_names[key] : "?";
}

ru_attr_key ru_attr_find(const char *name)
{
    for (uint32_t i = 1; i < RU_ATTR_COUNT; i++) {
        if (strcmp(attr_names[i], name) == 0) {
            return (ru_attr_key)i;
        }
    }
    return RU_ATTR_NONE;
}

/* -- construction ------------------------------------------------------------------------------ */

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the graph is full");
}

/* Make room for one more element of `size` bytes in the array at *items. */
static ru_status grow(ru_graph *g, void **items, uint32_t n, uint32_t *cap, int64_t size,
                      ru_err *err)
{
    if (n < *cap) {
        return RU_OK;
    }
    if (n >= (uint32_t)1 << 28) {
        return RU_FAIL(err, RU_E_LIMIT, "a graph holds at most 2^28 values");
    }
    uint32_t more = *cap == 0 ? 16 : *cap * 2;
    void *p = ru_arena_zalloc(g->arena, (int64_t)more * size, 16);
    if (p == NULL) {
        return full(err);
    }
    if (n > 0) {
        memcpy(p, *items, (size_t)((int64_t)n * size));
    }
    *items = p;
    *cap = more;
    return RU_OK;
}

/* void ** and T ** do not mix: grow through a void * of the right type. */
#define GROW(g, field, err)                                                                   \
    do {                                                                                      \
        void *p_ = (g)->field;                                                                \
        RU_TRY(grow((g), &p_, (g)->n_##field, &(g)->cap_##field, (int64_t)sizeof *(g)->field, \
                    (err)));                                                                  \
        (g)->field = p_;                                                                      \
    } while (0)

ru_status ru_graph_init(ru_graph *g, ru_arena *arena, const char *name, ru_err *err)
{
    *g = (ru_graph){.arena = arena};
    g->name = ru_arena_str(arena, name != NULL ? name : "graph");
    if (g->name == NULL) {
        return full(err);
    }
    GROW(g, values, err);
    GROW(g, nodes, err);
    g->n_values = 1;
    g->n_nodes = 1;
    return RU_OK;
}

ru_status ru_graph_add_value(ru_graph *g, const ru_value *proto, ru_value_id *out, ru_err *err)
{
    ru_value v = *proto;
    RU_CHECK(v.type.rank <= RU_RANK_MAX);
    v.producer = (ru_graph_node_id){0};
    v.producer_out = 0;
    v.known = NULL;
    if (v.name != NULL) {
        v.name = ru_arena_str(g->arena, v.name);
        if (v.name == NULL) {
            return full(err);
        }
    }
    GROW(g, values, err);
    ru_value_id id = {g->n_values};
    if (v.kind == RU_VALUE_INPUT) {
        GROW(g, inputs, err);
        g->inputs[g->n_inputs++] = id;
    }
    g->values[g->n_values++] = v;
    *out = id;
    return RU_OK;
}

/* ru_arena_copy for arrays that may be NULL when empty. */
static void *copy(ru_graph *g, const void *src, int64_t size_bytes, int64_t align)
{
    return ru_arena_copy(g->arena, size_bytes == 0 ? "" : src, size_bytes, align);
}

/* Copy what an attribute points to, tensor data excepted. */
static ru_status attr_copy(ru_graph *g, ru_attr *a, ru_err *err)
{
    ru_arena *m = g->arena;
    bool ok = true;
    int64_t n = a->n;
    switch (a->kind) {
    case RU_ATTR_INT:
    case RU_ATTR_FLOAT:
        break;
    case RU_ATTR_STR:
        a->u.s = ru_arena_str(m, a->u.s);
        ok = a->u.s != NULL;
        break;
    case RU_ATTR_INTS:
        a->u.is = copy(g, a->u.is, n * (int64_t)sizeof(int64_t), 8);
        ok = a->u.is != NULL;
        break;
    case RU_ATTR_FLOATS:
        a->u.fs = copy(g, a->u.fs, n * (int64_t)sizeof(double), 8);
        ok = a->u.fs != NULL;
        break;
    case RU_ATTR_STRS: {
        const char **ss = RU_NEW(m, const char *, n);
        ok = ss != NULL;
        for (uint32_t i = 0; ok && i < a->n; i++) {
            ss[i] = ru_arena_str(m, a->u.ss[i]);
            ok = ss[i] != NULL;
        }
        a->u.ss = ss;
        break;
    }
    case RU_ATTR_TENSOR:
        a->u.t.type = ru_arena_copy(m, a->u.t.type, (int64_t)sizeof(ru_type), 8);
        ok = a->u.t.type != NULL;
        break;
    default:
        return RU_FAIL(err, RU_E_ARG, "attribute '%s' has kind %d, which does not exist",
                       ru_attr_name(a->key), (int)a->kind);
    }
    return ok ? RU_OK : full(err);
}

ru_status ru_graph_add_node_into(ru_graph *g, const ru_node *node, ru_graph_node_id *out,
                                 ru_err *err)
{
    if (g->n_nodes >= RU_NODES_MAX || node->n_in > RU_NODE_ARGS_MAX ||
        node->n_out > RU_NODE_ARGS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "a graph holds at most %d nodes of at most %d values",
                       RU_NODES_MAX, RU_NODE_ARGS_MAX);
    }
    GROW(g, nodes, err);
    ru_node n = *node;
    n.in = copy(g, n.in, (int64_t)n.n_in * (int64_t)sizeof *n.in, 4);
    n.out = copy(g, n.out, (int64_t)n.n_out * (int64_t)sizeof *n.out, 4);
    ru_attr *attrs = copy(g, n.attrs, (int64_t)n.n_attrs * (int64_t)sizeof *attrs, 8);
    n.name = n.name != NULL ? ru_arena_str(g->arena, n.name) : NULL;
    if (n.in == NULL || n.out == NULL || attrs == NULL || (node->name != NULL && n.name == NULL)) {
        return full(err);
    }
    for (uint32_t i = 0; i < n.n_attrs; i++) {
        RU_TRY(attr_copy(g, &attrs[i], err));
    }
    n.attrs = attrs;
    ru_graph_node_id id = {g->n_nodes};
    for (uint32_t i = 0; i < n.n_out; i++) {
        RU_CHECK(n.out[i].v < g->n_values);
        if (n.out[i].v != 0) {
            ru_value *v = &g->values[n.out[i].v];
            v->kind = RU_VALUE_TEMP;
            v->producer = id;
            v->producer_out = i;
        }
    }
    g->nodes[g->n_nodes++] = n;
    if (out != NULL) {
        *out = id;
    }
    return RU_OK;
}

ru_status ru_graph_add_node(ru_graph *g, ru_op op, const char *name, const ru_value_id *in,
                            uint32_t n_in, const ru_attr *attrs, uint32_t n_attrs, ru_value_id *out,
                            uint32_t n_out, ru_err *err)
{
    for (uint32_t i = 0; i < n_out; i++) {
        RU_TRY(ru_graph_add_value(g, &(ru_value){.kind = RU_VALUE_TEMP}, &out[i], err));
    }
    ru_node n = {.op = op,
                 .name = name,
                 .in = in,
                 .out = out,
                 .attrs = attrs,
                 .n_in = n_in,
                 .n_out = n_out,
                 .n_attrs = n_attrs};
    return ru_graph_add_node_into(g, &n, NULL, err);
}

ru_status ru_graph_add_output(ru_graph *g, ru_value_id v, ru_err *err)
{
    GROW(g, outputs, err);
    g->outputs[g->n_outputs++] = v;
    return RU_OK;
}

ru_status ru_graph_add_update(ru_graph *g, ru_value_id state, ru_value_id value, ru_err *err)
{
    GROW(g, updates, err);
    g->updates[g->n_updates++] = (ru_update){state, value};
    return RU_OK;
}

ru_status ru_graph_symbol(ru_graph *g, const char *name, uint32_t *sym, ru_err *err)
{
    for (uint32_t i = 0; i < g->n_symbols; i++) {
        if (strcmp(g->symbols[i], name) == 0) {
            *sym = i;
            return RU_OK;
        }
    }
    if (g->n_symbols == RU_SYMBOLS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "a graph holds at most %d symbolic dimensions; give some "
                       "of the input dimensions a number",
                       RU_SYMBOLS_MAX);
    }
    const char *mine = ru_arena_str(g->arena, name);
    if (mine == NULL) {
        return full(err);
    }
    *sym = g->n_symbols;
    g->symbols[g->n_symbols++] = mine;
    return RU_OK;
}

ru_value_id ru_graph_find(const ru_graph *g, const char *name)
{
    for (uint32_t i = 1; i < g->n_values; i++) {
        if (g->values[i].name != NULL && strcmp(g->values[i].name, name) == 0) {
            return (ru_value_id){i};
        }
    }
    return (ru_value_id){0};
}

/* -- attribute access -------------------------------------------------------------------------- */

const ru_attr *ru_node_attr(const ru_node *n, ru_attr_key key)
{
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        if (n->attrs[i].key == key) {
            return &n->attrs[i];
        }
    }
    return NULL;
}

int64_t ru_node_int(const ru_node *n, ru_attr_key key, int64_t dflt)
{
    const ru_attr *a = ru_node_attr(n, key);
    return a != NULL && a->kind == RU_ATTR_INT ? a->u.i : dflt;
}

double ru_node_float(const ru_node *n, ru_attr_key key, double dflt)
{
    const ru_attr *a = ru_node_attr(n, key);
    return a != NULL && a->kind == RU_ATTR_FLOAT ? a->u.f : dflt;
}

const char *ru_node_str(const ru_node *n, ru_attr_key key, const char *dflt)
{
    const ru_attr *a = ru_node_attr(n, key);
    return a != NULL && a->kind == RU_ATTR_STR ? a->u.s : dflt;
}

const int64_t *ru_node_ints(const ru_node *n, ru_attr_key key, uint32_t *count)
{
    const ru_attr *a = ru_node_attr(n, key);
    bool is = a != NULL && a->kind == RU_ATTR_INTS;
    *count = is ? a->n : 0;
    return is ? a->u.is : NULL;
}

bool ru_node_has_in(const ru_node *n, uint32_t k)
{
    return k < n->n_in && n->in[k].v != 0;
}

bool ru_node_has_out(const ru_node *n, uint32_t k)
{
    return k < n->n_out && n->out[k].v != 0;
}
