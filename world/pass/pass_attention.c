/* Attention written out by exporters: softmax(q k^T * scale + mask) v.
 *
 *     q -[* s]--.
 *     k^T -[* s]-- MatMul -[* s | / s]-[+ mask | Where]- Softmax -- MatMul -- y
 *     v -----------------------------------------------------------'
 *
 * q, k and v of [B,H,T,D] that come from [B,T,H*D] by Reshape and Transpose, with y going back the
 * same way, give layout bthd; three equal parts of one Split give AttentionQkv. */
#include "world/pass/rewrite_impl.h"

#include <string.h>

typedef struct match {
    ru_value_id q, k, v; /* [B,H,T,D] */
    ru_value_id k_src;   /* source of k's Transpose, when it must be made: [B,T,H,D], or */
    ru_value_id k3_src;  /* of rank 3, to be transposed by k3_perm and viewed as k3_dims */
    int64_t k3_perm[3], k3_dims[4];
    ru_value_id mask;
    double scale;
    bool causal;
    int64_t square; /* rows and columns of the causal constant */
} match;

static bool perm_is(const rui_rw *rw, ru_value_id v, const int64_t *want, uint32_t rank,
                    ru_value_id *src)
{
    const ru_node *t = rui_rw_made_by(rw, v, RU_OP_Transpose);
    uint32_t n = 0;
    const int64_t *perm = t != NULL ? ru_node_ints(t, RU_ATTR_perm, &n) : NULL;
    if (perm == NULL || n != rank || memcmp(perm, want, sizeof *perm * rank) != 0) {
        return false;
    }
    *src = t->in[0];
    return true;
}

/* v * c or v / c with a constant c: strips it into *scale. */
static ru_value_id strip_scale(const rui_rw *rw, ru_value_id v, double *scale)
{
    const ru_node *n = rui_rw_made_by(rw, v, RU_OP_NONE);
    double c;
    if (n == NULL || (n->op != RU_OP_Mul && n->op != RU_OP_Div)) {
        return v;
    }
    if (rui_rw_scalar(rw, n->in[1], &c) && c != 0.0) {
        *scale *= n->op == RU_OP_Mul ? c : 1.0 / c;
        return n->in[0];
    }
    if (n->op == RU_OP_Mul && rui_rw_scalar(rw, n->in[0], &c)) {
        *scale *= c;
        return n->in[1];
    }
    return v;
}

/* Constant of [.., T, T] with ones before. */
static const ru_value *square_const(const rui_rw *rw, ru_value_id v, ru_dtype dtype, int64_t *t)
{
    const ru_value *p = &rw->g.values[v.v];
    uint32_t r = p->type.rank;
    if (v.v == 0 || p->kind != RU_VALUE_CONST || p->data == NULL || p->type.dtype != dtype ||
        r < 2 || p->type.dims[r - 1] != p->type.dims[r - 2] ||
        ru_type_count(&p->type) != p->type.dims[r - 1] * p->type.dims[r - 1]) {
        return NULL;
    }
    *t = p->type.dims[r - 1];
    return p;
}

/* 0 up to the diagonal, very negative above it. */
static bool is_causal_add(const rui_rw *rw, ru_value_id v, int64_t *size)
{
    int64_t t;
    const ru_value *p = square_const(rw, v, RU_F32, &t);
    const float *m = p != NULL ? p->data : NULL;
    for (int64_t i = 0; m != NULL && i < t * t; i++) {
        bool above = i % t > i / t;
        if (above ? !(m[i] <= -1e30F) : m[i] != 0.0F) {
            return false;
        }
    }
    *size = m != NULL ? t : *size;
    return m != NULL;
}

/* True exactly above the diagonal. */
static bool is_causal_cond(const rui_rw *rw, ru_value_id v, int64_t *size)
{
    int64_t t;
    const ru_value *p = square_const(rw, v, RU_BOOL, &t);
    const uint8_t *m = p != NULL ? p->data : NULL;
    for (int64_t i = 0; m != NULL && i < t * t; i++) {
        if ((m[i] != 0) != (i % t > i / t)) {
            return false;
        }
    }
    *size = m != NULL ? t : *size;
    return m != NULL;
}

/* One layer between the product and the softmax; absent when it is none we know. */
static ru_value_id strip_mask(const rui_rw *rw, ru_value_id s, match *m)
{
    const ru_node *n = rui_rw_made_by(rw, s, RU_OP_NONE);
    double low;
    if (n == NULL || rui_rw_uses(rw, s) != 1) {
        return (ru_value_id){0};
    }
    if (n->op == RU_OP_Where && is_causal_cond(rw, n->in[0], &m->square) &&
        rui_rw_scalar(rw, n->in[1], &low) && low <= -1e30) {
        m->causal = true;
        return n->in[2];
    }
    for (uint32_t k = 0; n->op == RU_OP_Add && k < 2; k++) {
        const ru_node *rest = rui_rw_made_by(rw, n->in[1 - k], RU_OP_NONE);
        bool score = rest != NULL && (rest->op == RU_OP_MatMul || rest->op == RU_OP_Mul ||
                                      rest->op == RU_OP_Div || rest->op == RU_OP_Where);
        if (is_causal_add(rw, n->in[k], &m->square)) {
            m->causal = true;
            return n->in[1 - k];
        }
        const ru_type *t = rui_rw_type(rw, n->in[k]);
        const ru_node *made = rui_rw_made_by(rw, n->in[k], RU_OP_MatMul);
        if (score && made == NULL && m->mask.v == 0 && t->dtype == rui_rw_type(rw, s)->dtype) {
            m->mask = n->in[k];
            return n->in[1 - k];
        }
    }
    return (ru_value_id){0};
}

/* Any rank-3 transpose giving [B*H,D,T], viewed as [B,H,D,T]: k is the same with the last two axes
 * of the transpose swapped. The plain form (permutation 0,2,1) is left to find_k. */
static bool find_k_views(const rui_rw *rw, ru_value_id kt, match *m)
{
    const ru_node *view = rui_rw_made_by(rw, kt, RU_OP_Reshape);
    const ru_node *t = view != NULL ? rui_rw_made_by(rw, view->in[0], RU_OP_Transpose) : NULL;
    uint32_t n = 0;
    const int64_t *perm = t != NULL ? ru_node_ints(t, RU_ATTR_perm, &n) : NULL;
    const ru_type *b = rui_rw_type(rw, kt);
    if (perm == NULL || n != 3 || b->rank != 4 || perm[0] == 0) {
        return false;
    }
    const ru_type *a = rui_rw_type(rw, view->in[0]);
    if (a->dims[1] != b->dims[2] || a->dims[2] != b->dims[3] || b->dims[1] < 1 || b->dims[2] < 1 ||
        b->dims[3] < 1) {
        return false;
    }
    m->k3_src = t->in[0];
    memcpy(m->k3_perm, (const int64_t[]){perm[0], perm[2], perm[1]}, sizeof m->k3_perm);
    memcpy(m->k3_dims, (const int64_t[]){-1, b->dims[1], b->dims[3], b->dims[2]},
           sizeof m->k3_dims);
    return true;
}

/* k of [B,H,T,D] from its transposed form. */
static bool find_k(const rui_rw *rw, ru_value_id kt, match *m)
{
    ru_value_id src;
    if (perm_is(rw, kt, (const int64_t[]){0, 1, 3, 2}, 4, &src)) {
        m->k = src;
        return true;
    }
    if (perm_is(rw, kt, (const int64_t[]){0, 2, 3, 1}, 4, &src)) {
        m->k_src = src;
        return true;
    }
    if (find_k_views(rw, kt, m)) {
        return true;
    }
    /* [B,H,T,D] -> [B*H,T,D] -> [B*H,D,T] -> [B,H,D,T] */
    const ru_node *out = rui_rw_made_by(rw, kt, RU_OP_Reshape);
    const ru_node *in = NULL;
    if (out != NULL && perm_is(rw, out->in[0], (const int64_t[]){0, 2, 1}, 3, &src)) {
        in = rui_rw_made_by(rw, src, RU_OP_Reshape);
    }
    if (in == NULL) {
        return false;
    }
    const ru_type *a = rui_rw_type(rw, in->in[0]);
    const ru_type *b = rui_rw_type(rw, kt);
    const ru_type *mid = rui_rw_type(rw, src);
    if (a->rank != 4 || b->rank != 4 || a->dims[1] != b->dims[1] || a->dims[2] != b->dims[3] ||
        a->dims[3] != b->dims[2] || mid->dims[1] != a->dims[2] || mid->dims[2] != a->dims[3]) {
        return false;
    }
    m->k = in->in[0];
    return true;
}

/* The op has one batch, one number of heads and one size of heads: products that broadcast, and
 * values of another size than keys, stay written out. */
static bool sizes_agree(const rui_rw *rw, const match *m, ru_value_id kt, bool turned)
{
    const ru_type *q = rui_rw_type(rw, m->q), *k = rui_rw_type(rw, kt), *v = rui_rw_type(rw, m->v);
    uint32_t size = turned ? 2 : 3, length = turned ? 3 : 2;
    return q->rank == 4 && k->rank == 4 && v->rank == 4 && k->dims[0] == q->dims[0] &&
           k->dims[1] == q->dims[1] && k->dims[size] == q->dims[3] && v->dims[0] == q->dims[0] &&
           v->dims[1] == q->dims[1] && v->dims[2] == k->dims[length] && v->dims[3] == q->dims[3];
}

/* The op's masks have the scores' sizes or 1. A mask that makes more of the scores than they are
 * stays written out, as does one whose sizes may still turn out other. */
static bool masks_fit(const rui_rw *rw, const match *m, const ru_type *scores)
{
    if (m->causal && (scores->dims[2] != m->square || scores->dims[3] != m->square)) {
        return false;
    }
    const ru_type *t = rui_rw_type(rw, m->mask);
    bool fits = m->mask.v == 0 || t->rank <= 4;
    for (uint32_t d = 0; fits && m->mask.v != 0 && d < t->rank; d++) {
        fits = t->dims[d] == 1 || t->dims[d] == scores->dims[4 - t->rank + d];
    }
    return fits;
}

static bool find(const rui_rw *rw, uint32_t i, match *m)
{
    const ru_node *pv = &rw->g.nodes[i];
    const ru_node *soft = rui_rw_made_by(rw, pv->in[0], RU_OP_Softmax);
    if (soft == NULL || rui_rw_uses(rw, pv->in[0]) != 1 || pv->n_in != 2 || pv->n_attrs != 0 ||
        rui_rw_type(rw, pv->in[0])->rank != 4) {
        return false;
    }
    int64_t axis = ru_node_int(soft, RU_ATTR_axis, -1);
    if (axis != -1 && axis != 3) {
        return false;
    }
    *m = (match){.scale = 1.0, .v = pv->in[1]};
    ru_value_id s = soft->in[0];
    const ru_node *qk = NULL;
    for (int layers = 0; layers < 4 && s.v != 0 && rui_rw_uses(rw, s) == 1; layers++) {
        qk = rui_rw_made_by(rw, s, RU_OP_MatMul);
        if (qk != NULL) {
            break;
        }
        ru_value_id next = strip_scale(rw, s, &m->scale);
        bool scaled = next.v != s.v;
        s = scaled ? next : strip_mask(rw, s, m);
        if (!scaled && m->mask.v != 0 && m->scale != 1.0) {
            return false; /* a scale outside would scale the mask, too */
        }
        if (!scaled && m->causal && !(m->scale > 1e-20)) {
            return false; /* it would make the hidden scores large, or ordinary */
        }
    }
    if (qk == NULL || qk->n_in != 2 || ru_node_int(qk, RU_ATTR_transA, 0) != 0) {
        return false;
    }
    m->q = strip_scale(rw, qk->in[0], &m->scale);
    ru_value_id kt = strip_scale(rw, qk->in[1], &m->scale);
    bool turned = ru_node_int(qk, RU_ATTR_transB, 0) == 0;
    if (!turned) {
        m->k = kt;
    } else if (!find_k(rw, kt, m)) {
        return false;
    }
    return sizes_agree(rw, m, kt, turned) && masks_fit(rw, m, rui_rw_type(rw, s));
}

/* [B,T,H*D] behind a [B,T,H,D] view of it. */
static ru_value_id unsplit(const rui_rw *rw, ru_value_id bthd)
{
    const ru_node *r = rui_rw_made_by(rw, bthd, RU_OP_Reshape);
    const ru_type *b = rui_rw_type(rw, bthd);
    const ru_type *a = r != NULL ? rui_rw_type(rw, r->in[0]) : NULL;
    if (a == NULL || a->rank != 3 || b->rank != 4 || a->dims[0] != b->dims[0] ||
        a->dims[1] != b->dims[1] || a->dims[2] != ru_dim_mul(b->dims[2], b->dims[3])) {
        return (ru_value_id){0};
    }
    return r->in[0];
}

static ru_value_id unheads(const rui_rw *rw, ru_value_id bhtd)
{
    ru_value_id src;
    return perm_is(rw, bhtd, (const int64_t[]){0, 2, 1, 3}, 4, &src) ? unsplit(rw, src)
                                                                     : (ru_value_id){0};
}

/* Slot of the Reshape that brings y of slot i back to [B,T,H*D]; 0: none. */
static uint32_t merged_output(const rui_rw *rw, uint32_t i)
{
    uint32_t t = rui_rw_only_user(rw, rw->g.nodes[i].out[0], RU_OP_Transpose);
    ru_value_id src;
    if (t == 0 || !perm_is(rw, rw->g.nodes[t].out[0], (const int64_t[]){0, 2, 1, 3}, 4, &src)) {
        return 0;
    }
    ru_value_id mid = rw->g.nodes[t].out[0];
    uint32_t r = rui_rw_only_user(rw, mid, RU_OP_Reshape);
    const ru_type *a = rui_rw_type(rw, mid);
    const ru_type *b = r != 0 ? rui_rw_type(rw, rw->g.nodes[r].out[0]) : NULL;
    bool fits = b != NULL && b->rank == 3 && b->dims[0] == a->dims[0] && b->dims[1] == a->dims[1] &&
                b->dims[2] == ru_dim_mul(a->dims[2], a->dims[3]);
    return fits ? r : 0;
}

/* The packed value when q, k, v are the three equal parts of one Split along the last axis. */
static ru_value_id packed(const rui_rw *rw, const ru_value_id part[3])
{
    uint32_t s = rui_rw_index(rw, part[0]);
    const ru_node *n = &rw->g.nodes[s];
    int64_t axis = s != 0 ? ru_node_int(n, RU_ATTR_axis, 0) : 0;
    if (s == 0 || n->op != RU_OP_Split || n->n_out != 3 || (axis != 2 && axis != -1)) {
        return (ru_value_id){0};
    }
    for (uint32_t k = 0; k < 3; k++) {
        if (n->out[k].v != part[k].v ||
            !ru_type_equal(rui_rw_type(rw, part[k]), rui_rw_type(rw, part[0]))) {
            return (ru_value_id){0};
        }
    }
    return n->in[0];
}

static uint32_t make_attrs(const match *m, int64_t heads, const char *layout, ru_attr attrs[4])
{
    uint32_t n = 0;
    attrs[n++] = (ru_attr){.key = RU_ATTR_heads, .kind = RU_ATTR_INT, .n = 1, .u.i = heads};
    attrs[n++] =
        (ru_attr){.key = RU_ATTR_causal, .kind = RU_ATTR_INT, .n = 1, .u.i = m->causal ? 1 : 0};
    attrs[n++] = (ru_attr){.key = RU_ATTR_scale, .kind = RU_ATTR_FLOAT, .n = 1, .u.f = m->scale};
    if (layout != NULL) {
        attrs[n++] = (ru_attr){.key = RU_ATTR_layout, .kind = RU_ATTR_STR, .n = 1, .u.s = layout};
    }
    return n;
}

static ru_value_id make_transpose(rui_rw *rw, uint32_t i, ru_value_id src, const int64_t *perm,
                                  uint32_t rank)
{
    ru_attr a = {.key = RU_ATTR_perm, .kind = RU_ATTR_INTS, .n = rank};
    a.u.is = ru_arena_copy(rw->g.arena, perm, (int64_t)rank * 8, 8);
    return a.u.is == NULL ? src : rui_rw_insert(rw, i, RU_OP_Transpose, &src, 1, &a, 1);
}

/* The nodes that give k as [B,H,T,D] before slot i, where find_k saw only their source. */
static ru_value_id make_k(rui_rw *rw, uint32_t i, const match *m)
{
    if (m->k_src.v != 0) {
        return make_transpose(rw, i, m->k_src, (const int64_t[]){0, 2, 1, 3}, 4);
    }
    if (m->k3_src.v == 0) {
        return m->k;
    }
    bool same = m->k3_perm[0] == 0 && m->k3_perm[1] == 1;
    ru_value_id t = same ? m->k3_src : make_transpose(rw, i, m->k3_src, m->k3_perm, 3);
    const void *dims = ru_arena_copy(rw->g.arena, m->k3_dims, (int64_t)sizeof m->k3_dims, 8);
    ru_type st = {.dtype = RU_I64, .rank = 1, .dims = {4}};
    ru_value_id shape = rui_rw_const(rw, st, dims);
    return rui_rw_insert(rw, i, RU_OP_Reshape, (ru_value_id[]){t, shape}, 2, NULL, 0);
}

bool rui_lift_attention(rui_rw *rw, uint32_t i)
{
    match m;
    ru_attr attrs[4];
    if (!find(rw, i, &m)) {
        return false;
    }
    int64_t heads = rui_rw_type(rw, m.q)->dims[1];
    if (heads < 1) {
        return false;
    }
    uint32_t root = merged_output(rw, i);
    ru_value_id in[4] = {unheads(rw, m.q), m.k_src.v != 0 ? unsplit(rw, m.k_src) : unheads(rw, m.k),
                         unheads(rw, m.v), m.mask};
    if (root != 0 && in[0].v != 0 && in[1].v != 0 && in[2].v != 0) {
        ru_value_id out = rw->g.nodes[root].out[0];
        ru_value_id qkv = packed(rw, in);
        if (qkv.v != 0) {
            uint32_t n = make_attrs(&m, heads, NULL, attrs);
            rui_rw_set(rw, root, RU_OP_AttentionQkv, (ru_value_id[]){qkv, m.mask}, 2, attrs, n,
                       &out, 1);
        } else {
            uint32_t n = make_attrs(&m, heads, "bthd", attrs);
            rui_rw_set(rw, root, RU_OP_Attention, in, 4, attrs, n, &out, 1);
        }
        return true;
    }
    m.k = make_k(rw, i, &m);
    ru_value_id out = rw->g.nodes[i].out[0];
    uint32_t n = make_attrs(&m, heads, "bhtd", attrs);
    rui_rw_set(rw, i, RU_OP_Attention, (ru_value_id[]){m.q, m.k, m.v, m.mask}, 4, attrs, n, &out,
               1);
    return true;
}
