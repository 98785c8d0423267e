/* Gradients of matrix products, Einsum and reductions. Transposes are folded into the products. */
#include "world/grad/grad_impl.h"

#include <string.h>

/* op(a) @ op(b) for matrices by Gemm, for batches by MatMul. */
static vid product(rui_grad *c, vid a, bool ta, vid b, bool tb)
{
    bool flat = rui_type(c, a).rank == 2 && rui_type(c, b).rank == 2;
    ru_attr attrs[3];
    uint32_t n = 0;
    if (ta) {
        attrs[n++] = (ru_attr)RU_AI(transA, 1);
    }
    if (tb) {
        attrs[n++] = (ru_attr)RU_AI(transB, 1);
    }
    attrs[n] = (ru_attr)RU_A_END;
    return ru_build_op2(&c->b, flat ? RU_OP_Gemm : RU_OP_MatMul, a, b, attrs);
}

/* For Y = op(a) @ op(b): gradients of a and b from dy. */
static vid product_da(rui_grad *c, vid dy, vid b, bool ta, bool tb)
{
    return ta ? product(c, b, tb, dy, true) : product(c, dy, false, b, !tb);
}

static vid product_db(rui_grad *c, vid dy, vid a, bool ta, bool tb)
{
    return tb ? product(c, dy, true, a, ta) : product(c, a, !ta, dy, false);
}

void rui_grad_gemm(rui_grad *c)
{
    bool ta = ru_node_int(&c->n, RU_ATTR_transA, 0) != 0;
    bool tb = ru_node_int(&c->n, RU_ATTR_transB, 0) != 0;
    double alpha = ru_node_float(&c->n, RU_ATTR_alpha, 1.0);
    double beta = ru_node_float(&c->n, RU_ATTR_beta, 1.0);
    vid dy = rui_dy(c, 0);
    if (ru_node_has_in(&c->n, 3)) {
        rui_no_gradient(c, "it is fused with a residual; differentiate before fusing");
        return;
    }
    if (rui_want(c, 0)) {
        rui_give(c, 0, rui_scale(c, product_da(c, dy, rui_x(c, 1), ta, tb), alpha));
    }
    if (rui_want(c, 1)) {
        rui_give(c, 1, rui_scale(c, product_db(c, dy, rui_x(c, 0), ta, tb), alpha));
    }
    if (rui_want(c, 2)) {
        rui_give(c, 2, rui_scale(c, rui_reduce_to(c, dy, rui_x(c, 2)), beta));
    }
}

/* View [.., k] as [rows, k]. */
static vid flatten_rows(rui_grad *c, vid x)
{
    ru_type t = rui_type(c, x);
    if (c->b.status != RU_OK || t.rank == 2) {
        return x;
    }
    int64_t k = t.dims[t.rank - 1];
    if (ru_dim_is_symbolic(k) || k == 0) {
        return ru_build_op1(&c->b, RU_OP_Flatten, x,
                            (ru_attr[]){RU_AI(axis, (int64_t)t.rank - 1), RU_A_END});
    }
    return rui_op2(c, RU_OP_Reshape, x, ru_build_const_i64s(&c->b, (int64_t[]){-1, k}, 2));
}

static vid unsqueeze(rui_grad *c, vid x, int64_t axis)
{
    return rui_op2(c, RU_OP_Unsqueeze, x, ru_build_const_i64s(&c->b, &axis, 1));
}

void rui_grad_matmul(rui_grad *c)
{
    bool ta = ru_node_int(&c->n, RU_ATTR_transA, 0) != 0;
    bool tb = ru_node_int(&c->n, RU_ATTR_transB, 0) != 0;
    vid a = rui_x(c, 0);
    vid b = rui_x(c, 1);
    vid dy = rui_dy(c, 0);
    if (ru_node_has_in(&c->n, 2) || ru_node_has_in(&c->n, 3)) {
        rui_no_gradient(c, "it is fused with a bias or residual; differentiate before fusing");
        return;
    }
    bool row = rui_type(c, a).rank == 1;
    bool col = rui_type(c, b).rank == 1;
    if (col) { /* before the row, so that [] becomes [1,1] */
        b = unsqueeze(c, b, 1);
        dy = unsqueeze(c, dy, -1);
    }
    if (row) {
        a = unsqueeze(c, a, 0);
        dy = unsqueeze(c, dy, -2);
    }
    bool weights = rui_type(c, b).rank == 2 && rui_type(c, a).rank > 2 && !ta;
    if (rui_want(c, 0)) {
        vid d = rui_reduce_to(c, product_da(c, dy, b, ta, tb), a);
        rui_give(c, 0, row ? rui_reshape_like(c, d, rui_x(c, 0)) : d);
    }
    if (rui_want(c, 1)) {
        vid d;
        if (weights) { /* one product over all rows instead of a batch and a sum */
            d = product_db(c, flatten_rows(c, dy), flatten_rows(c, a), false, tb);
        } else {
            d = rui_reduce_to(c, product_db(c, dy, a, ta, tb), b);
        }
        rui_give(c, 1, col ? rui_reshape_like(c, d, rui_x(c, 1)) : d);
    }
}

/* -- Einsum ------------------------------------------------------------------------------------ */

enum { TERM_MAX = 64 };

/* Split "ab,bc->ac" into terms without spaces; the last is the output, spelled out when implicit.
 * Returns the number of inputs, 0 when it does not fit. */
static uint32_t split_equation(const char *eq, char terms[][TERM_MAX], uint32_t n_in)
{
    uint32_t term = 0;
    uint32_t len = 0;
    bool arrow = false;
    memset(terms, 0, (size_t)TERM_MAX * (n_in + 1));
    for (; *eq != '\0'; eq++) {
        if (*eq == ' ') {
            continue;
        }
        if (*eq == ',' || (eq[0] == '-' && eq[1] == '>')) {
            arrow = *eq == '-';
            eq += arrow ? 1 : 0;
            term++;
            len = 0;
            if (term > n_in || (term == n_in && !arrow)) {
                return 0;
            }
            continue;
        }
        if (len + 1 >= TERM_MAX) {
            return 0;
        }
        terms[term][len++] = *eq;
    }
    if (arrow) {
        return term == n_in ? n_in : 0;
    }
    len = 0;
    for (char l = 'A'; term + 1 == n_in && l <= 'z'; l++) { /* labels used once, by code */
        uint32_t uses = 0;
        for (uint32_t k = 0; k < n_in; k++) {
            for (const char *p = terms[k]; *p != '\0'; p++) {
                uses += *p == l ? 1 : 0;
            }
        }
        if (uses == 1 && (l <= 'Z' || l >= 'a')) {
            terms[n_in][len++] = l;
        }
    }
    return term + 1 == n_in ? n_in : 0;
}

/* Labels of terms[k] that stand in no other term cannot come out of a product: they were summed
 * alone, so their gradient is constant along them. Writes the others into `kept`. */
static bool kept_labels(char terms[][TERM_MAX], uint32_t n_in, uint32_t k, char *kept)
{
    uint32_t n = 0;
    for (const char *p = terms[k]; *p != '\0'; p++) {
        if (*p == '.' || strchr(p + 1, *p) != NULL) {
            return false; /* ellipsis or diagonal */
        }
        bool seen = false;
        for (uint32_t j = 0; j <= n_in; j++) {
            seen = seen || (j != k && strchr(terms[j], *p) != NULL);
        }
        if (seen) {
            kept[n++] = *p;
        }
    }
    kept[n] = '\0';
    return true;
}

static void einsum_input(rui_grad *c, char terms[][TERM_MAX], uint32_t k)
{
    uint32_t n_in = c->n.n_in;
    char kept[TERM_MAX];
    if (!kept_labels(terms, n_in, k, kept) || strchr(terms[n_in], '.') != NULL) {
        rui_no_gradient(c, "an ellipsis or a repeated label in the equation has no gradient");
        return;
    }
    vid in[9] = {rui_dy(c, 0)};
    const char *eq = terms[n_in];
    uint32_t n = 1;
    for (uint32_t j = 0; j < n_in && eq != NULL; j++) {
        if (j != k) {
            eq = ru_arena_printf(c->b.g->arena, "%s,%s", eq, terms[j]);
            in[n++] = rui_x(c, j);
        }
    }
    eq = eq == NULL ? NULL : ru_arena_printf(c->b.g->arena, "%s->%s", eq, kept);
    if (eq == NULL) {
        c->b.status = RU_FAIL(&c->b.err, RU_E_LIMIT, "the arena of the graph is full");
        return;
    }
    vid d;
    ru_build_node(&c->b, RU_OP_Einsum, in, n, (ru_attr[]){RU_AS(equation, eq), RU_A_END}, &d, 1);
    for (uint32_t i = 0; terms[k][i] != '\0'; i++) {
        if (strchr(kept, terms[k][i]) == NULL) {
            d = unsqueeze(c, d, (int64_t)i);
        }
    }
    rui_give(c, k, rui_expand_like(c, d, rui_x(c, k)));
}

void rui_grad_einsum(rui_grad *c)
{
    char terms[9][TERM_MAX];
    const char *eq = ru_node_str(&c->n, RU_ATTR_equation, "");
    RU_CHECK(c->n.n_in < RU_ARRAY_LEN(terms));
    if (split_equation(eq, terms, c->n.n_in) == 0) {
        rui_no_gradient(c, "the equation is malformed");
        return;
    }
    for (uint32_t k = 0; k < c->n.n_in; k++) {
        if (rui_want(c, k)) {
            einsum_input(c, terms, k);
        }
    }
}

/* -- reductions -------------------------------------------------------------------------------- */

/* v (dy or y of a reduction) with the reduced axes back as 1, so that it broadcasts against x. */
static vid keep_axes(rui_grad *c, vid v)
{
    ru_type x = rui_type(c, rui_x(c, 0));
    ru_type t = rui_type(c, v);
    if (c->b.status != RU_OK || t.rank == x.rank || t.rank == 0) {
        return v;
    }
    if (ru_node_has_in(&c->n, 1)) {
        return rui_op2(c, RU_OP_Unsqueeze, v, rui_x(c, 1));
    }
    uint32_t n;
    const int64_t *axes = ru_node_ints(&c->n, RU_ATTR_axes, &n);
    return rui_op2(c, RU_OP_Unsqueeze, v, ru_build_const_i64s(&c->b, axes, n));
}

void rui_grad_reducesum(rui_grad *c)
{
    rui_give(c, 0, rui_expand_like(c, keep_axes(c, rui_dy(c, 0)), rui_x(c, 0)));
}

void rui_grad_reducemean(rui_grad *c)
{
    ru_type x = rui_type(c, rui_x(c, 0));
    ru_type y = rui_type(c, rui_y(c, 0));
    int64_t n = ru_dim_div(ru_type_count(&x), ru_type_count(&y));
    vid d = keep_axes(c, rui_dy(c, 0));
    if (n > 0) {
        d = rui_scale(c, d, 1.0 / (double)n);
    } else {
        vid q = rui_op2(c, RU_OP_Div, rui_op1(c, RU_OP_Size, rui_x(c, 0)),
                        rui_op1(c, RU_OP_Size, rui_y(c, 0)));
        q = ru_build_op1(&c->b, RU_OP_Cast, q,
                         (ru_attr[]){RU_AI(to, ru_dtype_onnx(x.dtype)), RU_A_END});
        d = rui_op2(c, RU_OP_Div, d, q);
    }
    rui_give(c, 0, rui_expand_like(c, d, rui_x(c, 0)));
}

void rui_grad_reducel1(rui_grad *c)
{
    vid s = rui_op1(c, RU_OP_Sign, rui_x(c, 0));
    rui_give(c, 0, rui_mul(c, keep_axes(c, rui_dy(c, 0)), s));
}

/* x / |x|, and 0 where the norm is 0. */
void rui_grad_reducel2(rui_grad *c)
{
    vid y = keep_axes(c, rui_y(c, 0));
    vid tiny = rui_scalar(c, rui_type(c, y).dtype, 1e-30);
    vid r = rui_op2(c, RU_OP_Div, keep_axes(c, rui_dy(c, 0)), rui_op2(c, RU_OP_Max, y, tiny));
    rui_give(c, 0, rui_mul(c, r, rui_x(c, 0)));
}

void rui_grad_reducesumsquare(rui_grad *c)
{
    vid d = rui_scale(c, keep_axes(c, rui_dy(c, 0)), 2.0);
    rui_give(c, 0, rui_mul(c, d, rui_x(c, 0)));
}

void rui_grad_reducelogsumexp(rui_grad *c)
{
    vid e = rui_op2(c, RU_OP_Sub, rui_x(c, 0), keep_axes(c, rui_y(c, 0)));
    rui_give(c, 0, rui_mul(c, keep_axes(c, rui_dy(c, 0)), rui_op1(c, RU_OP_Exp, e)));
}

/* y = log(sum): dx = dy / sum. */
void rui_grad_reducelogsum(rui_grad *c)
{
    vid d = rui_mul(c, rui_dy(c, 0), rui_op1(c, RU_OP_Exp, rui_op1(c, RU_OP_Neg, rui_y(c, 0))));
    rui_give(c, 0, rui_expand_like(c, keep_axes(c, d), rui_x(c, 0)));
}

/* 1 where x is zero, else 0, as a float. */
static vid is_zero(rui_grad *c, vid x)
{
    ru_dtype t = rui_type(c, x).dtype;
    return ru_build_op1(&c->b, RU_OP_Cast, rui_op2(c, RU_OP_Equal, x, rui_scalar(c, t, 0.0)),
                        (ru_attr[]){RU_AI(to, ru_dtype_onnx(t)), RU_A_END});
}

/* The product of the others: with z marking zeros, p the product of what is not zero and n the
 * count of zeros, it is p / (x + z) where no other element is zero (n - z = 0), else 0. */
void rui_grad_reduceprod(rui_grad *c)
{
    vid z = is_zero(c, rui_x(c, 0)), axes = rui_x(c, 1);
    vid safe = rui_op2(c, RU_OP_Add, rui_x(c, 0), z);
    uint32_t n_in = axes.v != 0 ? 2 : 1;
    vid p = rui_op_same(c, RU_OP_ReduceProd, (vid[]){safe, axes}, n_in);
    vid n = rui_op_same(c, RU_OP_ReduceSum, (vid[]){z, axes}, n_in);
    vid alone = is_zero(c, rui_op2(c, RU_OP_Sub, keep_axes(c, n), z));
    vid d = keep_axes(c, rui_mul(c, rui_dy(c, 0), p));
    rui_give(c, 0, rui_mul(c, rui_op2(c, RU_OP_Div, d, safe), alone));
}

void rui_grad_reducemax(rui_grad *c)
{
    vid in[4] = {rui_dy(c, 0), rui_x(c, 0), rui_y(c, 0), rui_x(c, 1)};
    rui_give(c, 0, rui_op_same(c, RU_OP_ReduceMaxGrad, in, in[3].v != 0 ? 4 : 3));
}

/* ReduceTo(x, like) sums what Expand would repeat. */
void rui_grad_reduceto(rui_grad *c)
{
    rui_give(c, 0, rui_expand_like(c, rui_dy(c, 0), rui_x(c, 0)));
}

void rui_grad_cumsum(rui_grad *c)
{
    int64_t back = ru_node_int(&c->n, RU_ATTR_reverse, 0) != 0 ? 0 : 1;
    int64_t excl = ru_node_int(&c->n, RU_ATTR_exclusive, 0);
    rui_give(c, 0,
             ru_build_op2(&c->b, RU_OP_CumSum, rui_dy(c, 0), rui_x(c, 1),
                          (ru_attr[]){RU_AI(reverse, back), RU_AI(exclusive, excl), RU_A_END}));
}
