/* Shape rules of matrix products, Einsum, reductions, attention and recurrence. */
#include "world/graph/infer_impl.h"

#include <string.h>

/* Two dims that are summed over must be equal; a symbol may still turn out right. */
static bool dims_meet(int64_t a, int64_t b)
{
    return a == b || ru_dim_is_symbolic(a) || ru_dim_is_symbolic(b);
}

static ru_status same_dtypes(const rui_infer *c, uint32_t n)
{
    const ru_type *a = rui_in(c, 0);
    for (uint32_t k = 1; k < n; k++) {
        const ru_type *b = rui_in(c, k);
        if (b != NULL && b->dtype != a->dtype) {
            return rui_infer_fail(c, "inputs have types %s and %s, expected equal types",
                                  ru_dtype_name(a->dtype), ru_dtype_name(b->dtype));
        }
    }
    return RU_OK;
}

ru_status rui_shape_gemm(const rui_infer *c)
{
    const ru_type *a = rui_in(c, 0);
    const ru_type *b = rui_in(c, 1);
    const ru_type *bias = rui_in(c, 2);
    RU_TRY(same_dtypes(c, 3));
    if (a->rank != 2 || b->rank != 2) {
        return rui_infer_fail(c, "expected two matrices");
    }
    uint32_t ta = ru_node_int(&c->n, RU_ATTR_transA, 0) != 0 ? 1 : 0;
    uint32_t tb = ru_node_int(&c->n, RU_ATTR_transB, 0) != 0 ? 1 : 0;
    if (!dims_meet(a->dims[1 - ta], b->dims[tb])) {
        return rui_infer_fail(c, "inner dimensions %lld and %lld differ",
                              (long long)a->dims[1 - ta], (long long)b->dims[tb]);
    }
    ru_type t = {.dtype = a->dtype, .rank = 2, .dims = {a->dims[ta], b->dims[1 - tb]}};
    if (bias != NULL) {
        ru_type u;
        RU_TRY(rui_broadcast(c, &t, bias, &u));
        bool symbolic = !ru_type_is_concrete(&t) || !ru_type_is_concrete(&u);
        if (!symbolic && !ru_type_equal(&t, &u)) {
            return rui_infer_fail(c, "input C does not broadcast to the product");
        }
    }
    RU_TRY(rui_fused_check(c, 0, 0, 3, &t));
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* Output 0 of a product of inputs 0 and 1. */
static ru_status product_type(const rui_infer *c, ru_type *out)
{
    ru_type a = *rui_in(c, 0);
    ru_type b = *rui_in(c, 1);
    if (a.rank == 0 || b.rank == 0) {
        return rui_infer_fail(c, "an input is a scalar, expected a matrix");
    }
    bool row = a.rank == 1;
    bool col = b.rank == 1;
    if (row) {
        a = (ru_type){.dtype = a.dtype, .rank = 2, .dims = {1, a.dims[0]}};
    }
    if (col) {
        b = (ru_type){.dtype = b.dtype, .rank = 2, .dims = {b.dims[0], 1}};
    }
    uint32_t ta = ru_node_int(&c->n, RU_ATTR_transA, 0) != 0 ? 1 : 0;
    uint32_t tb = ru_node_int(&c->n, RU_ATTR_transB, 0) != 0 ? 1 : 0;
    int64_t m = a.dims[a.rank - 2 + ta];
    int64_t ka = a.dims[a.rank - 1 - ta];
    int64_t kb = b.dims[b.rank - 2 + tb];
    int64_t n = b.dims[b.rank - 1 - tb];
    if (!dims_meet(ka, kb)) {
        return rui_infer_fail(c, "inner dimensions %lld and %lld differ", (long long)ka,
                              (long long)kb);
    }
    a.rank -= 2;
    b.rank -= 2;
    ru_type t;
    RU_TRY(rui_broadcast(c, &a, &b, &t));
    if (t.rank + 2 > RU_RANK_MAX) {
        return rui_infer_fail(c, "the result would have more than %d axes", RU_RANK_MAX);
    }
    if (!row) {
        t.dims[t.rank++] = m;
    }
    if (!col) {
        t.dims[t.rank++] = n;
    }
    *out = t;
    return RU_OK;
}

ru_status rui_shape_matmul(const rui_infer *c)
{
    const ru_type *b = rui_in(c, 1);
    ru_type t;
    RU_TRY(same_dtypes(c, 2));
    RU_TRY(product_type(c, &t));
    bool turned = ru_node_int(&c->n, RU_ATTR_transB, 0) != 0;
    int64_t n = b->rank < 2 ? 1 : b->dims[b->rank - (turned ? 2 : 1)];
    RU_TRY(rui_fused_check(c, 2, n, 3, &t));
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* Zero point k of side `of`: one number, one for each row or column, or of a form that broadcasts
 * to it. */
static ru_status zero_check(const rui_infer *c, uint32_t k, uint32_t of)
{
    const ru_type *z = rui_in(c, k), *t = rui_in(c, of);
    ru_type side = *t, zero, both;
    if (z == NULL) {
        return RU_OK;
    }
    zero = *z;
    if (of == 0 && z->rank == 1 && z->dims[0] != 1) {
        zero = (ru_type){.dtype = z->dtype, .rank = 2, .dims = {z->dims[0], 1}};
    }
    RU_TRY(rui_broadcast(c, &side, &zero, &both));
    return z->dtype == t->dtype && both.rank == t->rank &&
                   (!ru_type_is_concrete(t) || ru_type_equal(&both, t))
               ? RU_OK
               : rui_infer_fail(c, "zero point (input %u) does not fit its data", k);
}

ru_status rui_shape_matmulinteger(const rui_infer *c)
{
    ru_dtype a = rui_in(c, 0)->dtype, b = rui_in(c, 1)->dtype;
    ru_type t;
    if ((a != RU_U8 && a != RU_I8) || (b != RU_U8 && b != RU_I8)) {
        return rui_infer_fail(c, "expected integers of 8 bits");
    }
    RU_TRY(product_type(c, &t));
    RU_TRY(zero_check(c, 2, 0));
    RU_TRY(zero_check(c, 3, 1));
    t.dtype = RU_I32;
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* -- Einsum ------------------------------------------------------------------------------------ */

enum { EIN_ELLIPSIS_BASE = 128, EIN_LABELS = 128 + RU_RANK_MAX };

typedef struct einsum {
    int64_t dims[EIN_LABELS]; /* by label; 0 with !seen */
    bool seen[EIN_LABELS];
    uint32_t uses[EIN_LABELS];
    uint32_t ellipsis; /* axes of the widest ellipsis */
} einsum;

/* Next term of the equation: labels into `labels` (ellipsis as one 0), length or -1 when malformed.
 */
static int32_t ein_term(const char **at, uint8_t *labels)
{
    int32_t n = 0;
    for (; **at != '\0' && **at != ',' && **at != '-'; (*at)++) {
        char ch = **at;
        if (ch == ' ') {
            continue;
        }
        if (n == RU_RANK_MAX + 1) {
            return -1;
        }
        if (ch == '.') {
            if (strncmp(*at, "...", 3) != 0) {
                return -1;
            }
            *at += 2;
            labels[n++] = 0;
        } else if ((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')) {
            labels[n++] = (uint8_t)ch;
        } else {
            return -1;
        }
    }
    return n;
}

static ru_status ein_see(const rui_infer *c, einsum *e, uint32_t label, int64_t dim)
{
    e->uses[label]++;
    if (!e->seen[label]) {
        e->seen[label] = true;
        e->dims[label] = dim;
        return RU_OK;
    }
    if (!rui_broadcast_dim(e->dims[label], dim, &e->dims[label])) {
        return rui_infer_fail(c, "one label of the equation stands for sizes %lld and %lld",
                              (long long)e->dims[label], (long long)dim);
    }
    return RU_OK;
}

static ru_status ein_input(const rui_infer *c, einsum *e, const ru_type *t, const uint8_t *labels,
                           uint32_t n)
{
    uint32_t dots = 0;
    for (uint32_t i = 0; i < n; i++) {
        dots += labels[i] == 0 ? 1 : 0;
    }
    if (dots > 1 || n - dots > t->rank || (dots == 0 && n != t->rank)) {
        return rui_infer_fail(c, "a term of the equation does not fit its input of rank %u",
                              t->rank);
    }
    uint32_t wide = t->rank - (n - dots);
    e->ellipsis = wide > e->ellipsis ? wide : e->ellipsis;
    uint32_t axis = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (labels[i] != 0) {
            RU_TRY(ein_see(c, e, labels[i], t->dims[axis++]));
            continue;
        }
        for (uint32_t j = 0; j < wide; j++) { /* aligned at the right, counted from the last */
            RU_TRY(ein_see(c, e, EIN_ELLIPSIS_BASE + wide - 1 - j, t->dims[axis++]));
        }
    }
    return RU_OK;
}

static ru_status ein_output(const rui_infer *c, const einsum *e, const uint8_t *labels, uint32_t n,
                            ru_type *t)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t add = labels[i] == 0 ? e->ellipsis : 1;
        if (t->rank + add > RU_RANK_MAX) {
            return rui_infer_fail(c, "the result would have more than %d axes", RU_RANK_MAX);
        }
        for (uint32_t j = 0; j < add; j++) {
            uint32_t l = labels[i] == 0 ? EIN_ELLIPSIS_BASE + e->ellipsis - 1 - j : labels[i];
            if (!e->seen[l]) {
                return rui_infer_fail(c, "output label '%c' occurs in no input", (char)l);
            }
            t->dims[t->rank++] = e->dims[l];
        }
    }
    return RU_OK;
}

ru_status rui_shape_einsum(const rui_infer *c)
{
    const char *at = ru_node_str(&c->n, RU_ATTR_equation, "");
    RU_TRY(same_dtypes(c, c->n.n_in));
    einsum e = {.ellipsis = 0};
    uint8_t labels[RU_RANK_MAX + 1];
    for (uint32_t k = 0; k < c->n.n_in; k++) {
        int32_t n = ein_term(&at, labels);
        const ru_type *t = rui_in(c, k);
        if (n < 0 || t == NULL || (*at != ',' && k + 1 < c->n.n_in)) {
            return rui_infer_fail(c, "the equation '%s' does not fit %u inputs",
                                  ru_node_str(&c->n, RU_ATTR_equation, ""), c->n.n_in);
        }
        RU_TRY(ein_input(c, &e, t, labels, (uint32_t)n));
        at += *at == ',' && k + 1 < c->n.n_in ? 1 : 0;
    }
    ru_type t = {.dtype = rui_in(c, 0)->dtype};
    int32_t n = 0;
    if (strncmp(at, "->", 2) == 0) {
        at += 2;
        n = ein_term(&at, labels);
    } else { /* implicit: ellipsis, then labels used once, in order of their codes */
        labels[n++] = 0;
        for (uint32_t l = 1; l < EIN_ELLIPSIS_BASE; l++) {
            if (e.uses[l] == 1 && n <= RU_RANK_MAX) {
                labels[n++] = (uint8_t)l;
            }
        }
    }
    if (n < 0 || *at != '\0') {
        return rui_infer_fail(c, "the equation '%s' is malformed",
                              ru_node_str(&c->n, RU_ATTR_equation, ""));
    }
    RU_TRY(ein_output(c, &e, labels, (uint32_t)n, &t));
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* -- reductions -------------------------------------------------------------------------------- */

ru_status rui_shape_reduce(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    bool keep = ru_node_int(&c->n, RU_ATTR_keepdims, 1) != 0;
    uint32_t n = 0;
    const int64_t *axes = NULL;
    if (ru_node_has_in(&c->n, 1)) {
        axes = rui_known_numbers(c, 1, &n);
        if (axes == NULL) {
            return rui_infer_fail(c, "the axes must be constant");
        }
    } else {
        axes = ru_node_ints(&c->n, RU_ATTR_axes, &n); /* builders may use the older attribute */
    }
    bool all = n == 0;
    if (all && ru_node_int(&c->n, RU_ATTR_noop_with_empty_axes, 0) != 0) {
        rui_set_out(c, 0, &t);
        return RU_OK;
    }
    bool gone[RU_RANK_MAX] = {false};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t a;
        RU_TRY(rui_axis(c, axes[i], t.rank, &a));
        gone[a] = true;
    }
    ru_type out = {.dtype = t.dtype};
    for (uint32_t i = 0; i < t.rank; i++) {
        if (!all && !gone[i]) {
            out.dims[out.rank++] = t.dims[i];
        } else if (keep) {
            out.dims[out.rank++] = 1;
        }
    }
    rui_set_out(c, 0, &out);
    return RU_OK;
}

ru_status rui_shape_cumsum(const rui_infer *c)
{
    uint32_t n, axis;
    const int64_t *known = rui_known_numbers(c, 1, &n);
    if (known != NULL) {
        RU_TRY(rui_axis(c, known[0], rui_in(c, 0)->rank, &axis));
    }
    rui_set_out(c, 0, rui_in(c, 0));
    return RU_OK;
}

ru_status rui_shape_argmax(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    uint32_t axis;
    RU_TRY(rui_axis(c, ru_node_int(&c->n, RU_ATTR_axis, 0), x->rank, &axis));
    bool keep = ru_node_int(&c->n, RU_ATTR_keepdims, 1) != 0;
    ru_type t = {.dtype = RU_I64};
    for (uint32_t i = 0; i < x->rank; i++) {
        if (i != axis || keep) {
            t.dims[t.rank++] = i == axis ? 1 : x->dims[i];
        }
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_topk(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    uint32_t axis;
    RU_TRY(rui_axis(c, ru_node_int(&c->n, RU_ATTR_axis, -1), t.rank, &axis));
    uint32_t n;
    const int64_t *k = rui_known(c, 1, &n);
    if (k != NULL && n == 1 && k[0] != RU_DIM_UNKNOWN) {
        int64_t d = t.dims[axis];
        if (k[0] < 0 && !ru_dim_is_symbolic(k[0])) {
            return rui_infer_fail(c, "k = %lld is negative", (long long)k[0]);
        }
        if (k[0] >= 0 && d >= 0 && k[0] > d) {
            return rui_infer_fail(c, "k = %lld is larger than the axis of %lld", (long long)k[0],
                                  (long long)d);
        }
        t.dims[axis] = k[0];
    } else {
        RU_TRY(rui_dim_fresh(c, 0, axis, &t.dims[axis]));
    }
    rui_set_out(c, 0, &t);
    t.dtype = RU_I64;
    rui_set_out(c, 1, &t);
    return RU_OK;
}

/* -- attention --------------------------------------------------------------------------------- */

ru_status rui_shape_attention(const rui_infer *c)
{
    const ru_type *q = rui_in(c, 0);
    const ru_type *k = rui_in(c, 1);
    const ru_type *v = rui_in(c, 2);
    if (q == NULL || k == NULL || v == NULL || q->rank != k->rank || q->rank != v->rank) {
        return rui_infer_fail(c, "expected q, k and v of one rank");
    }
    bool bhtd = strcmp(ru_node_str(&c->n, RU_ATTR_layout, "bthd"), "bhtd") == 0;
    uint32_t rank = bhtd ? 4 : 3;
    uint32_t time = bhtd ? 2 : 1;
    int64_t heads = bhtd ? q->dims[1] : ru_node_int(&c->n, RU_ATTR_heads, 0);
    if (q->rank != rank || (!bhtd && heads < 1)) {
        return rui_infer_fail(c, "expected rank %u and attribute heads >= 1", rank);
    }
    for (uint32_t d = 0; d < rank; d++) {
        if ((d != time && !dims_meet(q->dims[d], k->dims[d])) ||
            !dims_meet(k->dims[d], v->dims[d])) {
            return rui_infer_fail(c, "q, k and v do not agree in axis %u", d);
        }
    }
    if (!bhtd && ru_dim_div(q->dims[2], heads) == RU_DIM_UNKNOWN) {
        return rui_infer_fail(c, "the width is not a multiple of %lld heads", (long long)heads);
    }
    ru_type t = *q;
    t.dims[rank - 1] = v->dims[rank - 1];
    rui_set_out(c, 0, &t);
    ru_type s = {.dtype = RU_F32, .rank = 3, .dims = {q->dims[0], heads, q->dims[time]}};
    rui_set_out(c, 1, &s);
    return RU_OK;
}

ru_status rui_shape_attentionqkv(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    int64_t heads = ru_node_int(&c->n, RU_ATTR_heads, 0);
    if (x == NULL || x->rank != 3 || heads < 1 ||
        ru_dim_div(x->dims[2], 3 * heads) == RU_DIM_UNKNOWN) {
        return rui_infer_fail(c, "expected [batch, time, 3 * heads * size] and heads >= 1");
    }
    ru_type t = *x;
    t.dims[2] = ru_dim_div(x->dims[2], 3);
    rui_set_out(c, 0, &t);
    ru_type s = {.dtype = RU_F32, .rank = 3, .dims = {x->dims[0], heads, x->dims[1]}};
    rui_set_out(c, 1, &s);
    return RU_OK;
}

ru_status rui_shape_attentioncached(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0), *keys = rui_in(c, 1), *values = rui_in(c, 2);
    if (x == NULL || keys == NULL || values == NULL || x->rank != 2 || keys->rank != 4 ||
        x->dims[1] != 3 * keys->dims[1] * keys->dims[3]) {
        return rui_infer_fail(c, "expected [rows, 3 * heads * size] and caches [slots, heads, "
                                 "positions, size]");
    }
    if (keys->dtype != x->dtype && keys->dtype != RU_BF16) {
        return rui_infer_fail(c, "caches must have the type of qkv, or be of bf16");
    }
    ru_type t = *x;
    t.dims[1] = ru_dim_div(x->dims[1], 3);
    rui_set_out(c, 0, &t);
    rui_set_out(c, 1, keys);
    rui_set_out(c, 2, values);
    return RU_OK;
}

/* -- recurrence -------------------------------------------------------------------------------- */

typedef struct rnn_dims {
    int64_t seq, batch, dirs, hidden;
    bool batch_first;
} rnn_dims;

/* Check X, W, R; `gates` is 4 for LSTM, 3 for GRU, 1 for RNN. */
static ru_status rnn_read(const rui_infer *c, const ru_type *x, const ru_type *w, const ru_type *r,
                          int64_t gates, rnn_dims *d)
{
    if (x == NULL || w == NULL || r == NULL || x->rank != 3 || w->rank != 3 || r->rank != 3) {
        return rui_infer_fail(c, "expected X, W and R of rank 3");
    }
    d->batch_first = ru_node_int(&c->n, RU_ATTR_layout, 0) != 0;
    d->seq = x->dims[d->batch_first ? 1 : 0];
    d->batch = x->dims[d->batch_first ? 0 : 1];
    d->dirs =
        strcmp(ru_node_str(&c->n, RU_ATTR_direction, "forward"), "bidirectional") == 0 ? 2 : 1;
    d->hidden = r->dims[2];
    int64_t want = ru_node_int(&c->n, RU_ATTR_hidden_size, d->hidden);
    if (d->hidden < 1 || want != d->hidden || w->dims[0] != d->dirs || r->dims[0] != d->dirs ||
        w->dims[1] != ru_dim_mul(gates, d->hidden) || r->dims[1] != w->dims[1] ||
        !dims_meet(w->dims[2], x->dims[2])) {
        return rui_infer_fail(c,
                              "W or R does not fit %lld gates of %lld hidden units in %lld "
                              "directions",
                              (long long)gates, (long long)want, (long long)d->dirs);
    }
    return RU_OK;
}

/* One function for each gate that has one and each direction; their numbers, where they take any.
 */
static ru_status activations_check(const rui_infer *c, int64_t want)
{
    const ru_attr *a = ru_node_attr(&c->n, RU_ATTR_activations);
    return a == NULL || (int64_t)a->n == want
               ? RU_OK
               : rui_infer_fail(c, "attribute activations has %u entries, expected %lld", a->n,
                                (long long)want);
}

static void rnn_outputs(const rui_infer *c, const rnn_dims *d, ru_dtype dtype, uint32_t n_last)
{
    ru_type y = {.dtype = dtype, .rank = 4, .dims = {d->seq, d->dirs, d->batch, d->hidden}};
    ru_type h = {.dtype = dtype, .rank = 3, .dims = {d->dirs, d->batch, d->hidden}};
    if (d->batch_first) {
        y = (ru_type){.dtype = dtype, .rank = 4, .dims = {d->batch, d->seq, d->dirs, d->hidden}};
        h = (ru_type){.dtype = dtype, .rank = 3, .dims = {d->batch, d->dirs, d->hidden}};
    }
    rui_set_out(c, 0, &y);
    for (uint32_t i = 0; i < n_last; i++) {
        rui_set_out(c, 1 + i, &h);
    }
}

static ru_status rnn_rule(const rui_infer *c, int64_t gates, uint32_t n_last, int64_t workspace)
{
    rnn_dims d;
    RU_TRY(rnn_read(c, rui_in(c, 0), rui_in(c, 1), rui_in(c, 2), gates, &d));
    RU_TRY(activations_check(c, d.dirs * (n_last == 2 ? 3 : gates == 3 ? 2 : 1)));
    rnn_outputs(c, &d, rui_in(c, 0)->dtype, n_last);
    if (workspace > 0) {
        int64_t wide = ru_dim_mul(workspace, d.hidden);
        ru_type t = {.dtype = RU_F32, .rank = 4, .dims = {d.seq, d.dirs, d.batch, wide}};
        rui_set_out(c, 1 + n_last, &t);
    }
    return RU_OK;
}

ru_status rui_shape_lstm(const rui_infer *c)
{
    return rnn_rule(c, 4, 2, 0);
}

ru_status rui_shape_gru(const rui_infer *c)
{
    return rnn_rule(c, 3, 1, 0);
}

ru_status rui_shape_rnn(const rui_infer *c)
{
    return rnn_rule(c, 1, 1, 0);
}

ru_status rui_shape_lstmtrain(const rui_infer *c)
{
    return rnn_rule(c, 4, 2, 5);
}

ru_status rui_shape_grutrain(const rui_infer *c)
{
    return rnn_rule(c, 3, 1, 4);
}

/* LSTMGrad(dY, dY_h, dY_c, X, W, R, B, h0, c0, Y, ws); GRUGrad has neither dY_c nor c0,
 * RNNGrad no ws either. */
ru_status rui_shape_rnngrad(const rui_infer *c)
{
    bool lstm = c->n.op == RU_OP_LSTMGrad;
    uint32_t x = lstm ? 3 : 2;
    int64_t gates = lstm ? 4 : (c->n.op == RU_OP_GRUGrad ? 3 : 1);
    rnn_dims d;
    RU_TRY(rnn_read(c, rui_in(c, x), rui_in(c, x + 1), rui_in(c, x + 2), gates, &d));
    for (uint32_t k = 0; k < 3; k++) {
        rui_set_out(c, k, rui_in(c, x + k));
    }
    ru_dtype dtype = rui_in(c, x)->dtype;
    ru_type b = {.dtype = rui_in(c, x + 1)->dtype,
                 .rank = 2,
                 .dims = {d.dirs, ru_dim_mul(2 * gates, d.hidden)}};
    rui_set_out(c, 3, &b);
    ru_type h = {.dtype = dtype, .rank = 3, .dims = {d.dirs, d.batch, d.hidden}};
    if (d.batch_first) {
        h = (ru_type){.dtype = dtype, .rank = 3, .dims = {d.batch, d.dirs, d.hidden}};
    }
    rui_set_out(c, 4, &h);
    rui_set_out(c, 5, &h);
    return RU_OK;
}

/* -- determinants ------------------------------------------------------------------------------ */

ru_status rui_shape_det(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    t.rank -= 2; /* the rule has found a square */
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* -- losses of the standard -------------------------------------------------------------------- */

static ru_status loss_shape(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    const ru_type *target = rui_in(c, 1);
    if (x->rank < 2 || target->rank + 1 != x->rank) {
        return rui_infer_fail(c, "expected input [batch, classes, ...] and target [batch, ...]");
    }
    const char *how = ru_node_str(&c->n, RU_ATTR_reduction, "mean");
    ru_type t = ru_type_scalar(x->dtype);
    if (strcmp(how, "none") == 0) {
        t = *target;
        t.dtype = x->dtype;
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_nll(const rui_infer *c)
{
    return loss_shape(c);
}

ru_status rui_shape_sceloss(const rui_infer *c)
{
    RU_TRY(loss_shape(c));
    rui_set_out(c, 1, rui_in(c, 0));
    return RU_OK;
}
