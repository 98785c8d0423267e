/* Scaled dot-product attention and its gradient, on separate q, k, v or the packed form.
 *
 *   s_ij = scale q_i . k_j + mask_ij      p = softmax_j(s)      y_i = sum_j p_ij v_j
 *   dv_j = sum_i p_ij dy_i    ds_ij = p_ij (dy_i . v_j - sum_l p_il dy_i . v_l)
 *   dq_i = scale sum_j ds_ij k_j          dk_j = scale sum_i ds_ij q_i
 *
 * The gradient computes p again from q and k; the saved statistics are not needed. */
#include "exec/cpu/ref/ref_impl.h"

#include <math.h>
#include <string.h>

/* Where element (b, h, t, d) of a tensor stands: at[0] + b*batch + h*head + t*time + d. */
typedef struct heads {
    double *at;
    int64_t batch, head, time;
} heads;

typedef struct att {
    int64_t batches, n_heads, rows, cols, depth, depth_v; /* rows: T of q, cols: T of k */
    double scale;
    bool causal;
    double *mask; /* [batches, n_heads, rows, cols] or NULL */
} att;

static heads view(double *x, const ru_type *t, bool bhtd, int64_t n_heads)
{
    if (bhtd) {
        int64_t d = t->dims[3], time = t->dims[2];
        return (heads){x, t->dims[1] * time * d, time * d, d};
    }
    return (heads){x, t->dims[1] * t->dims[2], t->dims[2] / n_heads, t->dims[2]};
}

/* Part `which` (0 q, 1 k, 2 v) of [B, T, 3*H*D]. */
static heads view_packed(double *x, const ru_type *t, int64_t n_heads, int64_t which)
{
    int64_t width = t->dims[2] / 3;
    return (heads){x + which * width, t->dims[1] * t->dims[2], width / n_heads, t->dims[2]};
}

/* Additive mask, broadcast to all scores; a boolean one hides where it is false. */
static ru_status load_mask(const ru_ref_call *c, uint32_t k, att *a, ru_err *err)
{
    a->mask = NULL;
    if (!rui_ref_has(c, k)) {
        return RU_OK;
    }
    ru_type all = {RU_F64, 4, {a->batches, a->n_heads, a->rows, a->cols}};
    RU_TRY(rui_ref_load_as(c, &c->in[k], &all, &a->mask, err));
    int64_t n = rui_ref_count(&all);
    for (int64_t i = 0; c->in[k].type.dtype == RU_BOOL && i < n; i++) {
        a->mask[i] = a->mask[i] != 0.0 ? 0.0 : (double)-INFINITY;
    }
    return RU_OK;
}

static void from_attributes(const ru_ref_call *c, att *a)
{
    double usual = a->depth > 0 ? 1.0 / sqrt((double)a->depth) : 1.0;
    a->scale = ru_node_float(c->node, RU_ATTR_scale, usual);
    a->causal = ru_node_int(c->node, RU_ATTR_causal, 0) != 0;
}

/* Sizes from q, k, v at inputs k0, k0+1, k0+2. */
static ru_status att_make(const ru_ref_call *c, uint32_t k0, uint32_t k_mask, att *a, bool *bhtd,
                          ru_err *err)
{
    const ru_type *q = &c->in[k0].type, *k = &c->in[k0 + 1].type, *v = &c->in[k0 + 2].type;
    *bhtd = strcmp(ru_node_str(c->node, RU_ATTR_layout, "bthd"), "bhtd") == 0;
    uint32_t rank = *bhtd ? 4 : 3;
    if (q->rank != rank || k->rank != rank || v->rank != rank) {
        return RU_FAIL(err, RU_E_DATA, "%s: q, k, v of ranks %u, %u, %u, expected %u",
                       ru_op_get(c->node->op)->name, q->rank, k->rank, v->rank, rank);
    }
    int64_t h = *bhtd ? q->dims[1] : ru_node_int(c->node, RU_ATTR_heads, 1);
    *a = (att){
        .batches = q->dims[0], .n_heads = h, .rows = q->dims[rank - 2], .cols = k->dims[rank - 2]};
    a->depth = *bhtd ? q->dims[3] : q->dims[2] / h;
    a->depth_v = *bhtd ? v->dims[3] : v->dims[2] / h;
    from_attributes(c, a);
    return load_mask(c, k_mask, a, err);
}

static ru_status att_make_packed(const ru_ref_call *c, uint32_t k0, uint32_t k_mask, att *a,
                                 ru_err *err)
{
    const ru_type *t = &c->in[k0].type;
    int64_t h = ru_node_int(c->node, RU_ATTR_heads, 1);
    if (t->rank != 3 || h < 1 || t->dims[2] % (3 * h) != 0) {
        return RU_FAIL(err, RU_E_DATA, "%s: the packed input is not [B, T, 3*%lld*D]",
                       ru_op_get(c->node->op)->name, (long long)h);
    }
    *a = (att){.batches = t->dims[0], .n_heads = h, .rows = t->dims[1], .cols = t->dims[1]};
    a->depth = a->depth_v = t->dims[2] / 3 / h;
    from_attributes(c, a);
    return load_mask(c, k_mask, a, err);
}

static double *row_of(const heads *x, int64_t b, int64_t h, int64_t t)
{
    return x->at + b * x->batch + h * x->head + t * x->time;
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

/* Probabilities of row i into p [cols]; gives the log-sum-exp. A row that sees nothing is all zero.
 */
static double probabilities(const att *a, const heads *q, const heads *k, int64_t b, int64_t h,
                            int64_t i, double *p)
{
    double top = (double)-INFINITY, sum = 0.0;
    const double *mask =
        a->mask != NULL ? a->mask + ((b * a->n_heads + h) * a->rows + i) * a->cols : NULL;
    for (int64_t j = 0; j < a->cols; j++) {
        p[j] = a->scale * dot(row_of(q, b, h, i), row_of(k, b, h, j), a->depth);
        p[j] += mask != NULL ? mask[j] : 0.0;
        p[j] = a->causal && j > i ? (double)-INFINITY : p[j];
        top = p[j] > top || isnan(p[j]) ? p[j] : top;
    }
    for (int64_t j = 0; j < a->cols; j++) {
        p[j] = isinf(top) && top < 0.0 ? 0.0 : exp(p[j] - top);
        sum += p[j];
    }
    for (int64_t j = 0; j < a->cols; j++) {
        p[j] = sum == 0.0 ? 0.0 : p[j] / sum;
    }
    return sum == 0.0 ? (double)-INFINITY : top + log(sum);
}

static ru_status forward(const ru_ref_call *c, const att *a, const heads *q, const heads *k,
                         const heads *v, heads *y, int64_t y_count, ru_err *err)
{
    double *p, *stats;
    RU_TRY(rui_ref_zeros(c, a->cols, &p, err));
    RU_TRY(rui_ref_zeros(c, a->batches * a->n_heads * a->rows, &stats, err));
    RU_TRY(rui_ref_zeros(c, y_count, &y->at, err));
    for (int64_t n = 0; n < a->batches * a->n_heads * a->rows; n++) {
        int64_t i = n % a->rows, h = n / a->rows % a->n_heads, b = n / a->rows / a->n_heads;
        stats[n] = probabilities(a, q, k, b, h, i, p);
        double *to = row_of(y, b, h, i);
        for (int64_t j = 0; j < a->cols; j++) {
            for (int64_t d = 0; d < a->depth_v; d++) {
                to[d] += p[j] * row_of(v, b, h, j)[d];
            }
        }
    }
    if (rui_ref_has_out(c, 0)) {
        rui_ref_store(&c->out[0], y->at);
    }
    if (rui_ref_has_out(c, 1)) {
        rui_ref_store(&c->out[1], stats);
    }
    return RU_OK;
}

static ru_status backward(const ru_ref_call *c, const att *a, const heads *x, const heads *dy,
                          const heads *dx, ru_err *err)
{
    const heads *q = &x[0], *k = &x[1], *v = &x[2];
    double *p, *dp;
    RU_TRY(rui_ref_zeros(c, a->cols, &p, err));
    RU_TRY(rui_ref_zeros(c, a->cols, &dp, err));
    for (int64_t n = 0; n < a->batches * a->n_heads * a->rows; n++) {
        int64_t i = n % a->rows, h = n / a->rows % a->n_heads, b = n / a->rows / a->n_heads;
        double mean = 0.0;
        probabilities(a, q, k, b, h, i, p);
        for (int64_t j = 0; j < a->cols; j++) {
            dp[j] = dot(row_of(dy, b, h, i), row_of(v, b, h, j), a->depth_v);
            mean += p[j] * dp[j];
        }
        for (int64_t j = 0; j < a->cols; j++) {
            double ds = a->scale * p[j] * (dp[j] - mean);
            for (int64_t d = 0; d < a->depth; d++) {
                row_of(&dx[0], b, h, i)[d] += ds * row_of(k, b, h, j)[d];
                row_of(&dx[1], b, h, j)[d] += ds * row_of(q, b, h, i)[d];
            }
            for (int64_t d = 0; d < a->depth_v; d++) {
                row_of(&dx[2], b, h, j)[d] += p[j] * row_of(dy, b, h, i)[d];
            }
        }
    }
    return RU_OK;
}

ru_status rui_ref_Attention(const ru_ref_call *c, ru_err *err)
{
    att a;
    bool bhtd;
    double *x[3];
    heads v[3];
    RU_TRY(att_make(c, 0, 3, &a, &bhtd, err));
    for (uint32_t k = 0; k < 3; k++) {
        RU_TRY(rui_ref_in(c, k, &x[k], err));
        v[k] = view(x[k], &c->in[k].type, bhtd, a.n_heads);
    }
    heads y = view(NULL, &c->out[0].type, bhtd, a.n_heads);
    return forward(c, &a, &v[0], &v[1], &v[2], &y, rui_ref_count(&c->out[0].type), err);
}

/* (dy, q, k, v, y, stats, mask?) -> dq, dk, dv */
ru_status rui_ref_AttentionGrad(const ru_ref_call *c, ru_err *err)
{
    att a;
    bool bhtd;
    double *dy, *x;
    heads v[3], dv[3];
    RU_TRY(att_make(c, 1, 6, &a, &bhtd, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    heads vdy = view(dy, &c->in[0].type, bhtd, a.n_heads);
    for (uint32_t k = 0; k < 3; k++) {
        const ru_type *t = &c->in[k + 1].type;
        RU_TRY(rui_ref_in(c, k + 1, &x, err));
        v[k] = view(x, t, bhtd, a.n_heads);
        RU_TRY(rui_ref_zeros(c, rui_ref_count(t), &x, err));
        dv[k] = view(x, t, bhtd, a.n_heads);
    }
    RU_TRY(backward(c, &a, v, &vdy, dv, err));
    for (uint32_t k = 0; k < 3; k++) {
        if (rui_ref_has_out(c, k)) {
            rui_ref_store(&c->out[k], dv[k].at);
        }
    }
    return RU_OK;
}

ru_status rui_ref_AttentionQkv(const ru_ref_call *c, ru_err *err)
{
    att a;
    double *x;
    heads v[3];
    RU_TRY(att_make_packed(c, 0, 1, &a, err));
    RU_TRY(rui_ref_in(c, 0, &x, err));
    for (uint32_t k = 0; k < 3; k++) {
        v[k] = view_packed(x, &c->in[0].type, a.n_heads, k);
    }
    heads y = view(NULL, &c->out[0].type, false, a.n_heads);
    return forward(c, &a, &v[0], &v[1], &v[2], &y, rui_ref_count(&c->out[0].type), err);
}

/* -- a cache -----------------------------------------------------------------------------------
 */

static ru_status cached_places(const ru_ref_call *c, int64_t **slot, int64_t **at, ru_err *err)
{
    const ru_type *keys = &c->in[1].type;
    RU_TRY(rui_ref_in_ints(c, 3, slot, err));
    RU_TRY(rui_ref_in_ints(c, 4, at, err));
    for (int64_t i = 0; i < c->in[0].type.dims[0]; i++) {
        if ((*at)[i] >= keys->dims[2] || (*slot)[i] < 0 || (*slot)[i] >= keys->dims[0]) {
            return RU_FAIL(err, RU_E_DATA,
                           "AttentionCached: row %lld has slot %lld and position %lld, but there "
                           "are %lld slots of %lld positions",
                           (long long)i, (long long)(*slot)[i], (long long)(*at)[i],
                           (long long)keys->dims[0], (long long)keys->dims[2]);
        }
    }
    return RU_OK;
}

/* A number as a cache gives it back. */
static double as_kept(ru_dtype t, double x)
{
    return t == RU_BF16 ? (double)ru_bf16_to_f32(ru_f32_to_bf16((float)x)) : x;
}

/* (qkv, keys, values, slot, at) -> y, keys, values */
ru_status rui_ref_AttentionCached(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[1].type;
    int64_t rows = c->in[0].type.dims[0], h_n = t->dims[1], room = t->dims[2], d = t->dims[3];
    int64_t width = h_n * d, *slot, *at;
    double *x, *cache[2], *y, *p;
    att a = {.n_heads = h_n, .depth = d, .depth_v = d};
    from_attributes(c, &a);
    RU_TRY(cached_places(c, &slot, &at, err));
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_in(c, 1, &cache[0], err));
    RU_TRY(rui_ref_in(c, 2, &cache[1], err));
    RU_TRY(rui_ref_zeros(c, rows * width, &y, err));
    RU_TRY(rui_ref_zeros(c, room, &p, err));
    for (int64_t i = 0; i < rows * h_n * 2; i++) {
        int64_t row = i / 2 / h_n, h = i / 2 % h_n;
        if (at[row] < 0) {
            continue;
        }
        const double *from = x + row * 3 * width + (1 + i % 2) * width + h * d;
        double *to = cache[i % 2] + ((slot[row] * h_n + h) * room + at[row]) * d;
        for (int64_t k = 0; k < d; k++) {
            to[k] = as_kept(t->dtype, from[k]);
        }
    }
    for (int64_t i = 0; i < rows * h_n; i++) {
        int64_t row = i / h_n, h = i % h_n, base = (slot[row] * h_n + h) * room * d;
        heads q = {x + row * 3 * width + h * d, 0, 0, 0}, k = {cache[0] + base, 0, 0, d};
        a.cols = at[row] < 0 ? 0 : at[row] + 1;
        (void)probabilities(&a, &q, &k, 0, 0, 0, p);
        for (int64_t j = 0; j < a.cols * d; j++) {
            y[row * width + h * d + j % d] += p[j / d] * cache[1][base + j];
        }
    }
    double *out[3] = {y, cache[0], cache[1]};
    for (uint32_t k = 0; k < 3; k++) {
        if (rui_ref_has_out(c, k)) {
            rui_ref_store(&c->out[k], out[k]);
        }
    }
    return RU_OK;
}

/* (dy, qkv, y, stats, mask?) -> dqkv */
ru_status rui_ref_AttentionQkvGrad(const ru_ref_call *c, ru_err *err)
{
    att a;
    double *x, *dx, *dy;
    heads v[3], dv[3];
    RU_TRY(att_make_packed(c, 1, 4, &a, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_in(c, 1, &x, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(&c->in[1].type), &dx, err));
    for (uint32_t k = 0; k < 3; k++) {
        v[k] = view_packed(x, &c->in[1].type, a.n_heads, k);
        dv[k] = view_packed(dx, &c->in[1].type, a.n_heads, k);
    }
    heads vdy = view(dy, &c->in[0].type, false, a.n_heads);
    RU_TRY(backward(c, &a, v, &vdy, dv, err));
    rui_ref_store(&c->out[0], dx);
    return RU_OK;
}
