/* Einsum written as transposes, reshapes and one product for each pair of operands.
 *
 * Labels of a pair fall into four groups: batch (in both, still needed), inner (in both, summed
 * here), rows (in the first alone) and columns (in the second alone); what only one operand has and
 * nobody needs is summed before.
 *
 *     first [batch, rows, inner] x second [batch, inner, columns] -> [batch, rows, columns]
 *
 * An order that a product can read transposed costs no transpose. Two axes of one label are first
 * brought side by side and read as one, of which each (size + 1)-th element is kept: the diagonal.
 * Not taken, and so left to the reference kernel: a label twice in the result, and a dimension of 1
 * that stands for a longer one. */
#include "world/pass/rewrite_impl.h"

#include <string.h>

enum { LABELS = 128, TERMS_MAX = 8 };

typedef struct term {
    ru_value_id v;
    uint8_t label[RU_RANK_MAX];
    uint32_t n;
} term;

typedef struct ein {
    rui_rw *rw;
    uint32_t at; /* slot of the node */
    int64_t size[LABELS];
    uint32_t ellipsis; /* dims that "..." stands for */
} ein;

/* -- reading the equation ------------------------------------------------------------------------
 */

static bool add_label(term *t, uint8_t l)
{
    if (t->n == RU_RANK_MAX || memchr(t->label, l, t->n) != NULL) {
        return false;
    }
    t->label[t->n++] = l;
    return true;
}

/* Labels up to ',', '-' or the end; "..." becomes labels 1, 2, ... of `dots` dims. Of an operand a
 * label may stand twice. */
static const char *read_term(const char *p, uint32_t dots, bool operand, term *t)
{
    for (; *p != '\0' && *p != ',' && *p != '-'; p++) {
        if (*p == ' ') {
            continue;
        }
        if (*p == '.') {
            if (strncmp(p, "...", 3) != 0) {
                return NULL;
            }
            for (uint32_t d = 0; d < dots; d++) {
                if (!add_label(t, (uint8_t)(d + 1))) {
                    return NULL;
                }
            }
            p += 2;
        } else if (operand && t->n < RU_RANK_MAX) {
            t->label[t->n++] = (uint8_t)*p;
        } else if (!add_label(t, (uint8_t)*p)) {
            return NULL;
        }
    }
    return p;
}

static uint32_t letters(const char *p)
{
    uint32_t n = 0;
    for (; *p != '\0' && *p != ',' && *p != '-'; p++) {
        n += *p != ' ' && *p != '.' ? 1 : 0;
    }
    return n;
}

static bool sizes_agree(ein *e, const term *t)
{
    const ru_type *type = rui_rw_type(e->rw, t->v);
    bool fits = type->rank == t->n && ru_dtype_is_float(type->dtype);
    for (uint32_t k = 0; k < t->n && fits; k++) {
        int64_t *size = &e->size[t->label[k]], dim = type->dims[k];
        fits = dim > 0 && (*size == 0 || *size == dim);
        *size = dim;
    }
    return fits;
}

/* All terms and the output. False: not a case for this pass. */
static bool read_equation(ein *e, const ru_node *n, term *terms, term *out)
{
    const char *p = ru_node_str(n, RU_ATTR_equation, "");
    uint32_t count[LABELS] = {0}, all = 0;
    const char *q = p;
    for (uint32_t k = 0; k < n->n_in; k++) { /* every "..." must stand for as many dims */
        uint32_t rank = rui_rw_type(e->rw, n->in[k])->rank, have = letters(q);
        const char *dots = strchr(q, '.');
        const char *end = q + strcspn(q, ",-");
        if (dots != NULL && dots < end) {
            if (have > rank || (e->ellipsis != 0 && e->ellipsis != rank - have)) {
                return false;
            }
            e->ellipsis = rank - have;
        }
        q = *end == ',' ? end + 1 : end;
    }
    for (uint32_t k = 0; k < n->n_in; k++) {
        terms[k].v = n->in[k];
        p = read_term(p, e->ellipsis, true, &terms[k]);
        if (p == NULL || !sizes_agree(e, &terms[k]) || (k + 1 < n->n_in && *p != ',')) {
            return false;
        }
        p += *p == ',' ? 1 : 0;
        for (uint32_t d = 0; d < terms[k].n; d++) {
            all += count[terms[k].label[d]]++ == 0 ? 1 : 0;
        }
    }
    if (all > RU_RANK_MAX) {
        return false;
    }
    if (*p == '-') {
        return p[1] == '>' && read_term(p + 2, e->ellipsis, false, out) != NULL;
    }
    for (uint32_t l = 1; l < LABELS; l++) { /* no arrow: what stands once, in order */
        if (count[l] == 1 || (l <= e->ellipsis && count[l] > 0)) {
            (void)add_label(out, (uint8_t)l);
        }
    }
    return *p == '\0';
}

/* -- writing -------------------------------------------------------------------------------------
 */

static bool has(const term *t, uint8_t l)
{
    return memchr(t->label, l, t->n) != NULL;
}

static bool same_labels(const term *a, const term *b)
{
    return a->n == b->n && memcmp(a->label, b->label, a->n) == 0;
}

static ru_value_id const_ints(ein *e, const int64_t *xs, uint32_t n)
{
    int64_t dim = (int64_t)n;
    const void *data = ru_arena_copy(e->rw->g.arena, xs, dim * (int64_t)sizeof *xs, 8);
    return rui_rw_const(e->rw, ru_type_make(RU_I64, 1, &dim), data);
}

static ru_value_id reshape(ein *e, ru_value_id v, const int64_t *dims, uint32_t n)
{
    ru_value_id in[2] = {v, const_ints(e, dims, n)};
    return rui_rw_insert(e->rw, e->at, RU_OP_Reshape, in, 2, NULL, 0);
}

static ru_value_id reshape_labels(ein *e, ru_value_id v, const term *t)
{
    int64_t dims[RU_RANK_MAX];
    for (uint32_t k = 0; k < t->n; k++) {
        dims[k] = e->size[t->label[k]];
    }
    return reshape(e, v, dims, t->n);
}

static ru_value_id transpose(ein *e, ru_value_id v, const int64_t *perm, uint32_t n)
{
    ru_attr attr = {.key = RU_ATTR_perm, .kind = RU_ATTR_INTS, .n = n};
    attr.u.is = ru_arena_copy(e->rw->g.arena, perm, (int64_t)n * (int64_t)sizeof *perm, 8);
    return attr.u.is == NULL ? (ru_value_id){0}
                             : rui_rw_insert(e->rw, e->at, RU_OP_Transpose, &v, 1, &attr, 1);
}

/* `t` in the order of labels `to`, the same set. */
static void reorder(ein *e, term *t, const term *to)
{
    if (same_labels(t, to)) {
        return;
    }
    int64_t perm[RU_RANK_MAX];
    for (uint32_t k = 0; k < to->n; k++) {
        const uint8_t *at = memchr(t->label, to->label[k], t->n);
        RU_CHECK(at != NULL);
        perm[k] = at - t->label;
    }
    ru_value_id v = transpose(e, t->v, perm, to->n);
    *t = *to;
    t->v = v;
}

/* Axes i < j of one label become the first of them. */
static void take_diagonal(ein *e, term *t, uint32_t i, uint32_t j)
{
    int64_t perm[RU_RANK_MAX], dims[RU_RANK_MAX], n = e->size[t->label[i]];
    uint32_t rank = 0;
    term left = {0};
    for (uint32_t k = 0; k < t->n; k++) {
        if (k == j) {
            continue;
        }
        perm[rank++] = k;
        if (k == i) {
            perm[rank++] = j;
        }
        dims[left.n] = k == i ? n * n : e->size[t->label[k]];
        left.label[left.n++] = t->label[k];
    }
    ru_value_id v = j == i + 1 ? t->v : transpose(e, t->v, perm, rank);
    ru_value_id in[5] = {reshape(e, v, dims, left.n), const_ints(e, (int64_t[]){0}, 1),
                         const_ints(e, (int64_t[]){n * n}, 1), const_ints(e, (int64_t[]){i}, 1),
                         const_ints(e, (int64_t[]){n + 1}, 1)};
    left.v = rui_rw_insert(e->rw, e->at, RU_OP_Slice, in, 5, NULL, 0);
    *t = left;
}

static void take_diagonals(ein *e, term *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        for (uint32_t j = t->n; j-- > i + 1;) {
            if (t->label[j] == t->label[i]) {
                take_diagonal(e, t, i, j);
            }
        }
    }
}

/* Sum over labels that `keep` lacks. */
static void sum_out(ein *e, term *t, const bool *keep)
{
    int64_t axes[RU_RANK_MAX];
    uint32_t n = 0;
    term left = {0};
    for (uint32_t k = 0; k < t->n; k++) {
        if (keep[t->label[k]]) {
            (void)add_label(&left, t->label[k]);
        } else {
            axes[n++] = k;
        }
    }
    if (n == 0) {
        return;
    }
    ru_value_id in[2] = {t->v, const_ints(e, axes, n)};
    ru_attr attr = {.key = RU_ATTR_keepdims, .kind = RU_ATTR_INT, .n = 1, .u.i = 0};
    left.v = rui_rw_insert(e->rw, e->at, RU_OP_ReduceSum, in, 2, &attr, 1);
    *t = left;
}

static int64_t product_of(const ein *e, const term *t)
{
    int64_t n = 1;
    for (uint32_t k = 0; k < t->n; k++) {
        n *= e->size[t->label[k]];
    }
    return n;
}

static term joined(const term *a, const term *b, const term *c)
{
    const term *parts[3] = {a, b, c};
    term all = {0};
    for (uint32_t p = 0; p < 3; p++) {
        for (uint32_t k = 0; k < parts[p]->n; k++) {
            (void)add_label(&all, parts[p]->label[k]);
        }
    }
    return all;
}

/* `t` as [batch, x, y] or, when its labels stand so already, [batch, y, x] (true: transposed). */
static bool as_matrix(ein *e, term *t, const term *batch, const term *x, const term *y,
                      ru_value_id *v)
{
    term straight = joined(batch, x, y), turned = joined(batch, y, x);
    bool swap = same_labels(t, &turned) && !same_labels(t, &straight);
    if (!swap) {
        reorder(e, t, &straight);
    }
    int64_t nx = product_of(e, x), ny = product_of(e, y);
    int64_t dims[3] = {product_of(e, batch), swap ? ny : nx, swap ? nx : ny};
    *v = batch->n > 0 ? reshape(e, t->v, dims, 3) : reshape(e, t->v, dims + 1, 2);
    return swap;
}

static void multiply(ein *e, term *a, term *b, const bool *keep, term *out)
{
    term batch = {0}, inner = {0}, rows = {0}, cols = {0};
    for (uint32_t k = 0; k < a->n; k++) {
        uint8_t l = a->label[k];
        (void)add_label(!has(b, l) ? &rows : (keep[l] ? &batch : &inner), l);
    }
    for (uint32_t k = 0; k < b->n; k++) {
        if (!has(a, b->label[k])) {
            (void)add_label(&cols, b->label[k]);
        }
    }
    ru_value_id in[2] = {{0}, {0}};
    ru_attr attrs[2] = {{.key = RU_ATTR_transA, .kind = RU_ATTR_INT, .n = 1},
                        {.key = RU_ATTR_transB, .kind = RU_ATTR_INT, .n = 1}};
    *out = joined(&batch, &rows, &cols);
    if (inner.n == 0) { /* nothing is summed: [batch, rows, 1] * [batch, 1, columns] */
        const term none = {0};
        term first = joined(&batch, &rows, &none), second = joined(&batch, &cols, &none);
        reorder(e, a, &first);
        reorder(e, b, &second);
        int64_t nb = product_of(e, &batch), nr = product_of(e, &rows), nc = product_of(e, &cols);
        in[0] = reshape(e, a->v, (int64_t[]){nb, nr, 1}, 3);
        in[1] = reshape(e, b->v, (int64_t[]){nb, 1, nc}, 3);
        out->v = rui_rw_insert(e->rw, e->at, RU_OP_Mul, in, 2, NULL, 0);
    } else {
        attrs[0].u.i = as_matrix(e, a, &batch, &rows, &inner, &in[0]) ? 1 : 0;
        attrs[1].u.i = as_matrix(e, b, &batch, &inner, &cols, &in[1]) ? 1 : 0;
        out->v = rui_rw_insert(e->rw, e->at, RU_OP_MatMul, in, 2, attrs, 2);
    }
    out->v = reshape_labels(e, out->v, out);
}

/* Labels that terms from `first` on or the output still need. */
static void needed(const term *terms, uint32_t first, uint32_t n, const term *out, bool *keep)
{
    memset(keep, 0, LABELS * sizeof *keep);
    for (uint32_t k = first; k < n; k++) {
        for (uint32_t d = 0; d < terms[k].n; d++) {
            keep[terms[k].label[d]] = true;
        }
    }
    for (uint32_t d = 0; d < out->n; d++) {
        keep[out->label[d]] = true;
    }
}

/* Would the product of a and b come out in the order of `out` with the operands exchanged? */
static bool better_turned(const term *a, const term *b, const term *out)
{
    uint32_t k = 0;
    while (k < out->n && has(a, out->label[k]) && has(b, out->label[k])) {
        k++;
    }
    return k < out->n && !has(a, out->label[k]);
}

static bool expand_einsum(rui_rw *rw, uint32_t i)
{
    const ru_node *n = &rw->g.nodes[i];
    ein e = {.rw = rw, .at = i};
    term terms[TERMS_MAX] = {{{0}, {0}, 0}}, out = {0}, now;
    bool keep[LABELS], mine[LABELS];
    if (n->n_in > TERMS_MAX || !read_equation(&e, n, terms, &out)) {
        return false;
    }
    uint32_t n_in = n->n_in;
    for (uint32_t k = 0; k < n_in; k++) {
        take_diagonals(&e, &terms[k]);
    }
    now = terms[0];
    needed(terms, 1, n_in, &out, keep);
    sum_out(&e, &now, keep);
    for (uint32_t k = 1; k < n_in; k++) {
        term a = now, b = terms[k];
        needed(terms, k + 1, n_in, &out, keep);
        memcpy(mine, keep, sizeof mine);
        for (uint32_t d = 0; d < a.n; d++) {
            mine[a.label[d]] = true;
        }
        sum_out(&e, &b, mine);
        bool turn = k + 1 == n_in && better_turned(&a, &b, &out);
        multiply(&e, turn ? &b : &a, turn ? &a : &b, keep, &now);
    }
    reorder(&e, &now, &out);
    if (rw->status == RU_OK) {
        ru_value_id y = rw->g.nodes[i].out[0];
        rui_rw_set(rw, i, RU_OP_Identity, &now.v, 1, NULL, 0, &y, 1);
    }
    return true;
}

void rui_expand_round(rui_rw *rw)
{
    for (uint32_t i = 1; i < rw->g.n_nodes && rw->status == RU_OK; i++) {
        if (rw->g.nodes[i].op == RU_OP_Einsum) {
            (void)expand_einsum(rw, i);
        }
    }
}
