/* Type inference: the driver, symbolic dimension arithmetic, and the sentence of a failure. */
#include "world/graph/infer_impl.h"

#include <string.h>

ru_status rui_arena_full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the graph is full");
}

const ru_type *rui_in(const rui_infer *c, uint32_t k)
{
    return ru_node_has_in(&c->n, k) ? &c->g->values[c->n.in[k].v].type : NULL;
}

void rui_set_out(const rui_infer *c, uint32_t k, const ru_type *t)
{
    if (ru_node_has_out(&c->n, k)) {
        c->g->values[c->n.out[k].v].type = *t;
    }
}

/* "Conv of f32[N,3,8,8], f32[4,2,3,3]" into `into`. */
static void describe(const rui_infer *c, char *into, size_t size)
{
    size_t at = 0;
    for (uint32_t k = 0; k < c->n.n_in && at + 140 < size; k++) {
        const ru_type *t = rui_in(c, k);
        const char *sep = k == 0 ? " of " : ", ";
        memcpy(into + at, sep, strlen(sep));
        at += strlen(sep);
        if (t == NULL) {
            into[at++] = '-';
        } else {
            (void)ru_type_print(c->g, t, into + at, 128);
            at += strlen(into + at);
        }
    }
    into[at] = '\0';
}

ru_status rui_infer_fail(const rui_infer *c, const char *fmt, ...)
{
    if (c->err == NULL) {
        return RU_E_DATA;
    }
    char shapes[512];
    describe(c, shapes, sizeof shapes);
    ru_arena_mark mark = ru_arena_mark_get(c->g->arena);
    va_list ap;
    va_start(ap, fmt);
    const char *why = ru_arena_vprintf(c->g->arena, fmt, ap);
    va_end(ap);
    const char *name = c->n.name;
    (void)ru_err_set(c->err, RU_E_DATA, "node %u%s%s%s (%s%s): %s", c->id.v,
                     name != NULL ? " '" : "", name != NULL ? name : "", name != NULL ? "'" : "",
                     ru_op_get(c->n.op)->name, shapes, why != NULL ? why : "bad input");
    ru_arena_rewind(c->g->arena, mark);
    return RU_E_DATA;
}

ru_status rui_axis(const rui_infer *c, int64_t axis, uint32_t rank, uint32_t *out)
{
    int64_t a = axis < 0 ? axis + (int64_t)rank : axis;
    if (a < 0 || a >= (int64_t)rank) {
        return rui_infer_fail(c, "axis %lld is outside -%u..%u", (long long)axis, rank,
                              rank == 0 ? 0 : rank - 1);
    }
    *out = (uint32_t)a;
    return RU_OK;
}

ru_status rui_fused_check(const rui_infer *c, uint32_t k_bias, int64_t n, uint32_t k_res,
                          const ru_type *t)
{
    const ru_type *b = k_bias != 0 ? rui_in(c, k_bias) : NULL;
    if (b != NULL && (b->rank != 1 || b->dims[0] != n)) {
        return rui_infer_fail(c, "the bias must be a list of %lld elements", (long long)n);
    }
    const ru_type *res = rui_in(c, k_res);
    return res == NULL || ru_type_equal(res, t)
               ? RU_OK
               : rui_infer_fail(c, "the residual input must have the shape of the output");
}

/* -- symbolic arithmetic ----------------------------------------------------------------------- */

ru_status rui_dim_named(const rui_infer *c, const char *name, int64_t *out)
{
    if (name == NULL) {
        return rui_arena_full(c->err);
    }
    uint32_t sym;
    RU_TRY(ru_graph_symbol(c->g, name, &sym, c->err));
    *out = ru_dim_symbol(sym, 1);
    return RU_OK;
}

const char *rui_dim_text(const ru_graph *g, ru_arena *arena, int64_t dim)
{
    if (dim == RU_DIM_UNKNOWN) {
        return "?";
    }
    if (!ru_dim_is_symbolic(dim)) {
        return ru_arena_printf(arena, "%lld", (long long)dim);
    }
    uint32_t s = ru_dim_sym(dim);
    const char *name = s < g->n_symbols ? g->symbols[s] : "?";
    int64_t coef = ru_dim_coef(dim);
    return coef == 1 ? name : ru_arena_printf(arena, "%lld*%s", (long long)coef, name);
}

enum { FACTORS_MAX = 24 };

typedef struct factors {
    int64_t coef;
    uint32_t n;
    uint32_t syms[FACTORS_MAX]; /* base symbols, sorted */
} factors;

/* Take the product "N*T" apart into its symbols. False: it is none, or not of known symbols (models
 * may name a dimension "4*batch" themselves). */
static bool factor_product(const ru_graph *g, const char *at, factors *f)
{
    if (strchr(at, '*') == NULL || strpbrk(at, "()+-/") != NULL) {
        return false;
    }
    while (*at != '\0') {
        size_t len = strcspn(at, "*");
        uint32_t s = 0;
        while (s < g->n_symbols &&
               (strncmp(g->symbols[s], at, len) != 0 || g->symbols[s][len] != '\0')) {
            s++;
        }
        if (s == g->n_symbols || f->n == FACTORS_MAX) {
            return false;
        }
        f->syms[f->n++] = s;
        at += len + (at[len] == '*' ? 1 : 0);
    }
    return true;
}

/* Multiply `f` by symbol `sym`. False: too many factors. */
static bool factor_symbol(const ru_graph *g, uint32_t sym, factors *f)
{
    uint32_t n = f->n;
    if (factor_product(g, g->symbols[sym], f)) {
        return true;
    }
    f->n = n;
    if (n == FACTORS_MAX) {
        return false;
    }
    f->syms[f->n++] = sym;
    return true;
}

static bool factor_dims(const ru_graph *g, const int64_t *dims, uint32_t n, factors *f)
{
    *f = (factors){.coef = 1};
    for (uint32_t i = 0; i < n; i++) {
        int64_t d = dims[i];
        bool sym = ru_dim_is_symbolic(d);
        if (d == RU_DIM_UNKNOWN || (d < 0 && !sym) ||
            __builtin_mul_overflow(f->coef, sym ? ru_dim_coef(d) : d, &f->coef) ||
            (sym && !factor_symbol(g, ru_dim_sym(d), f))) {
            return false;
        }
    }
    for (uint32_t i = 1; i < f->n; i++) { /* insertion sort: equal products get equal names */
        uint32_t s = f->syms[i];
        uint32_t j = i;
        for (; j > 0 && f->syms[j - 1] > s; j--) {
            f->syms[j] = f->syms[j - 1];
        }
        f->syms[j] = s;
    }
    return true;
}

ru_status rui_dims_quotient(const rui_infer *c, const int64_t *num, uint32_t n_num,
                            const int64_t *den, uint32_t n_den, int64_t *out)
{
    factors a;
    factors b;
    if (!factor_dims(c->g, num, n_num, &a) || !factor_dims(c->g, den, n_den, &b) || b.coef == 0) {
        return rui_infer_fail(c, "the element count is too large or not known");
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < a.n; i++) { /* cancel equal symbols */
        uint32_t j = 0;
        while (j < b.n && b.syms[j] != a.syms[i]) {
            j++;
        }
        if (j < b.n) {
            b.syms[j] = b.syms[--b.n];
        } else {
            a.syms[kept++] = a.syms[i];
        }
    }
    a.n = kept;
    bool exact = a.coef % b.coef == 0;
    if (!exact && a.n == 0 && b.n == 0) {
        return rui_infer_fail(c, "%lld elements cannot be divided by %lld", (long long)a.coef,
                              (long long)b.coef);
    }
    int64_t coef = exact ? a.coef / b.coef : a.coef;
    if (a.coef == 0 || (a.n == 0 && b.n == 0)) {
        *out = coef;
        return RU_OK;
    }
    const char *name = a.n > 0 ? c->g->symbols[a.syms[0]] : "1";
    for (uint32_t i = 1; i < a.n && name != NULL; i++) {
        name = ru_arena_printf(c->g->arena, "%s*%s", name, c->g->symbols[a.syms[i]]);
    }
    for (uint32_t i = 0; i < b.n && name != NULL; i++) {
        name = ru_arena_printf(c->g->arena, "(%s/%s)", name, c->g->symbols[b.syms[i]]);
    }
    if (!exact && name != NULL) {
        name = ru_arena_printf(c->g->arena, "(%lld*%s/%lld)", (long long)coef, name,
                               (long long)b.coef);
        coef = 1;
    }
    int64_t d;
    RU_TRY(rui_dim_named(c, name, &d));
    *out = ru_dim_mul(d, coef);
    return *out != RU_DIM_UNKNOWN ? RU_OK : rui_infer_fail(c, "the element count is too large");
}

ru_status rui_dims_product(const rui_infer *c, const int64_t *dims, uint32_t n, int64_t *out)
{
    return rui_dims_quotient(c, dims, n, NULL, 0, out);
}

ru_status rui_dim_sum(const rui_infer *c, int64_t a, int64_t b, int64_t *out)
{
    *out = ru_dim_add(a, b);
    if (*out != RU_DIM_UNKNOWN || a == RU_DIM_UNKNOWN || b == RU_DIM_UNKNOWN) {
        return RU_OK;
    }
    if (!ru_dim_is_symbolic(a) || (ru_dim_is_symbolic(b) && ru_dim_sym(b) < ru_dim_sym(a))) {
        int64_t t = a;
        a = b;
        b = t;
    }
    if (!ru_dim_is_symbolic(a)) {
        return rui_infer_fail(c, "a dimension is too large");
    }
    const char *ta = rui_dim_text(c->g, c->g->arena, a);
    const char *tb = rui_dim_text(c->g, c->g->arena, b);
    bool minus = !ru_dim_is_symbolic(b) && b < 0;
    const char *name = ta == NULL || tb == NULL
                           ? NULL
                           : ru_arena_printf(c->g->arena, "(%s%s%s)", ta, minus ? "" : "+", tb);
    return rui_dim_named(c, name, out);
}

ru_status rui_dim_floordiv(const rui_infer *c, int64_t a, int64_t b, bool ceil, int64_t *out)
{
    RU_CHECK(b >= 1);
    if (a == RU_DIM_UNKNOWN || b == 1) {
        *out = a;
        return RU_OK;
    }
    if (!ru_dim_is_symbolic(a)) {
        int64_t q = a / b;
        int64_t r = a % b;
        *out = q + (ceil && r > 0 ? 1 : 0) - (!ceil && r < 0 ? 1 : 0);
        return RU_OK;
    }
    *out = ru_dim_div(a, b);
    if (*out != RU_DIM_UNKNOWN) {
        return RU_OK;
    }
    const char *ta = rui_dim_text(c->g, c->g->arena, a);
    const char *name = ta == NULL ? NULL
                                  : ru_arena_printf(c->g->arena, ceil ? "(%s/^%lld)" : "(%s/%lld)",
                                                    ta, (long long)b);
    return rui_dim_named(c, name, out);
}

ru_status rui_dim_fresh(const rui_infer *c, uint32_t k, uint32_t axis, int64_t *out)
{
    uint32_t v = k < c->n.n_out ? c->n.out[k].v : 0;
    return rui_dim_named(c, ru_arena_printf(c->g->arena, "%%%u.%u", v, axis), out);
}

bool rui_broadcast_dim(int64_t a, int64_t b, int64_t *out)
{
    if (a == b || b == 1) {
        *out = a;
        return true;
    }
    if (a == 1) {
        *out = b;
        return true;
    }
    /* A symbol beside a number must turn out to be that number (or 1); two symbols must turn out
     * equal. Binding infers again and checks. */
    bool sa = ru_dim_is_symbolic(a);
    bool sb = ru_dim_is_symbolic(b);
    *out = sa && !sb ? b : a;
    return sa || sb;
}

ru_status rui_broadcast(const rui_infer *c, const ru_type *a, const ru_type *b, ru_type *out)
{
    ru_type t = {.dtype = a->dtype, .rank = a->rank > b->rank ? a->rank : b->rank};
    for (uint32_t i = 0; i < t.rank; i++) {
        uint32_t ia = i + a->rank - t.rank; /* wraps when a has no such axis */
        uint32_t ib = i + b->rank - t.rank;
        int64_t da = i + a->rank >= t.rank ? a->dims[ia] : 1;
        int64_t db = i + b->rank >= t.rank ? b->dims[ib] : 1;
        if (!rui_broadcast_dim(da, db, &t.dims[i])) {
            return rui_infer_fail(c,
                                  "shapes do not broadcast: axis %u of the result is %lld and "
                                  "%lld",
                                  i, (long long)da, (long long)db);
        }
    }
    *out = t;
    return RU_OK;
}

/* -- driver ------------------------------------------------------------------------------------ */

static ru_status dispatch(const rui_infer *c)
{
    switch (c->n.op) {
#define RU_OP(name, onnx, in_min, in_max, out_min, out_max, shape, ...) \
    case RU_OP_##name:                                                  \
        return rui_shape_##shape(c);
#include "world/graph/ops.def"
#undef RU_OP
    case RU_OP_NONE:
    case RU_OP_COUNT:
    default:
        return rui_infer_fail(c, "there is no such op");
    }
}

ru_status ru_graph_infer_node(ru_graph *g, ru_graph_node_id id, ru_err *err)
{
    rui_infer c = {.g = g, .id = id, .n = *ru_graph_node(g, id), .err = err};
    RU_TRY(rui_rule_before(&c));
    RU_TRY(dispatch(&c));
    RU_TRY(rui_rule_after(&c));
    return rui_known_node(&c);
}

ru_status ru_graph_infer(ru_graph *g, ru_err *err)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        RU_TRY(ru_graph_infer_node(g, (ru_graph_node_id){i}, err));
    }
    return RU_OK;
}
