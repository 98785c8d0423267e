/* Attention of one head, forward and backward.
 *
 *   rows are taken ATTN_ROWS at a time; scores of the block stand in the work area and are used up
 * at once (probabilities are recomputed backward from the log-sum-exp), so memory grows with the
 * number of keys, not with its square. A causal block stops at its last visible key.
 *
 *   forward:  S = scale Q K^T + mask;  P = exp(S - max);  Y = P V / sum
 *   backward: P = exp(S - stats); dV += P^T dY; dP = dY V^T;
 *             dS = P (dP - rowsum(dY Y)) scale; dQ = dS K; dK += dS^T Q
 *
 * Source: Dao et al., FlashAttention, NeurIPS 2022 (recomputation from the log-sum-exp). We keep
 * whole rows of scores instead of an online softmax: at our lengths a block of rows fits in L2. */
#include "exec/cpu/kern/isa.h"

enum { ATTN_ROWS = 32 };

/* Rows of scores and pieces of the work area are multiples of this many floats. */
enum { ATTN_LANES = 32 };

static int64_t round_up(int64_t n)
{
    return (n + ATTN_LANES - 1) / ATTN_LANES * ATTN_LANES;
}

static int64_t pack_floats(int64_t k, int64_t n)
{
    return RUI_K(rui_kern_gemm_pack_floats)(k, n);
}

/* Hand out pieces of the work area. */
static float *take(float **at, int64_t n)
{
    float *p = *at;
    *at += round_up(n);
    return p;
}

int64_t RUI_K(rui_kern_attn_work)(const ru_kern_attn *a, bool grad)
{
    int64_t n = a->keys, d = a->head_size, r = a->rows, lds = round_up(n);
    int64_t need = round_up(pack_floats(d, n)) + round_up(pack_floats(n, d)) + ATTN_ROWS * lds +
                   round_up(ATTN_ROWS * d);
    need += a->t != RU_F32 ? 2 * round_up(r * d) : 0;
    need += a->t_kv != RU_F32 ? 2 * round_up(n * d) : 0;
    if (grad) {
        need += round_up(pack_floats(d, n)) + 2 * round_up(pack_floats(ATTN_ROWS, d)) +
                ATTN_ROWS * lds + 2 * round_up(n * d) + round_up(ATTN_ROWS * d);
        if (a->t != RU_F32) {
            need += 2 * round_up(r * d);
        }
    }
    return need + 64;
}

/* A matrix of n rows as f32: in place, or widened into the work area. */
static const float *rows_f32(ru_dtype t, const void *x, int64_t ld, int64_t n, int64_t d,
                             int64_t *ld_out, float **at)
{
    if (t == RU_F32) {
        *ld_out = ld;
        return x;
    }
    float *to = take(at, n * d);
    for (int64_t i = 0; i < n; i++) {
        kv_widen((const uint16_t *)x + i * ld, to + i * d, d);
    }
    *ld_out = d;
    return to;
}

static void put_row(ru_dtype t, void *y, int64_t at, const float *x, float scale, int64_t d)
{
    if (t == RU_F32) {
        float *o = (float *)y + at;
#pragma omp simd
        for (int64_t j = 0; j < d; j++) {
            o[j] = x[j] * scale;
        }
    } else {
        uint16_t *o = (uint16_t *)y + at;
#pragma omp simd
        for (int64_t j = 0; j < d; j++) {
            o[j] = kv_to_bf16(x[j] * scale);
        }
    }
}

static void add_mask(const ru_kern_attn *a, int64_t row, float *s, int64_t n)
{
    const float *m = a->mask + row * a->mask_row;
    for (int64_t j = 0; j < n; j++) {
        s[j] += m[j * a->mask_col];
    }
}

/* Keys that some row of [i0, i1) sees. */
static int64_t visible(const ru_kern_attn *a, int64_t row_end)
{
    return a->causal && row_end + a->past < a->keys ? row_end + a->past : a->keys;
}

/* x[n .. wide) = v; wide is a multiple of ATTN_LANES. */
static void fill_tail(float *x, int64_t n, int64_t wide, float v)
{
    for (int64_t i = n; i < wide; i++) {
        x[i] = v;
    }
}

static float max_of(const float *x, int64_t wide)
{
    float acc[ATTN_LANES];
    memcpy(acc, x, sizeof acc);
    for (int64_t i = ATTN_LANES; i < wide; i += ATTN_LANES) {
#pragma omp simd
        for (int64_t j = 0; j < ATTN_LANES; j++) {
            acc[j] = kv_max(x[i + j], acc[j]);
        }
    }
    for (int64_t w = ATTN_LANES / 2; w > 0; w /= 2) {
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            acc[j] = kv_max(acc[j], acc[j + w]);
        }
    }
    return acc[0];
}

/* x = e^(x - shift); gives the sum. */
static float exp_row(float *x, float shift, int64_t wide)
{
    float acc[ATTN_LANES] = {0};
    for (int64_t i = 0; i < wide; i += ATTN_LANES) {
#pragma omp simd
        for (int64_t j = 0; j < ATTN_LANES; j++) {
            float e = kv_exp_neg(x[i + j] - shift);
            x[i + j] = e;
            acc[j] += e;
        }
    }
    for (int64_t w = ATTN_LANES / 2; w > 0; w /= 2) {
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            acc[j] += acc[j + w];
        }
    }
    return acc[0];
}

static ru_kern_gemm product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row,
                            int64_t a_col, const float *packed, int64_t packed_k, int64_t packed_n,
                            float *c, int64_t c_row, float alpha, bool add)
{
    return (ru_kern_gemm){.m = m,
                          .n = n,
                          .k = k,
                          .a = a,
                          .a_row = a_row,
                          .a_col = a_col,
                          .packed_b = packed,
                          .packed_k = packed_k,
                          .packed_n = packed_n,
                          .c = c,
                          .c_row = c_row,
                          .alpha = alpha,
                          .add = add};
}

/* C = alpha A B with B packed; large products pack A on the stack. */
static void multiply(ru_kern_gemm g)
{
    float a_work[16 * 256];
    g.work = a_work;
    RUI_K(rui_kern_gemm)(&g);
}

void RUI_K(rui_kern_attn)(const ru_kern_attn *a)
{
    int64_t n = a->keys, d = a->head_size, lds = round_up(n), ldq, ldk, ldv;
    float *at = a->work;
    const float *q = rows_f32(a->t, a->q, a->ld_q, a->rows, d, &ldq, &at);
    const float *k = rows_f32(a->t_kv, a->k, a->ld_k, n, d, &ldk, &at);
    const float *v = rows_f32(a->t_kv, a->v, a->ld_v, n, d, &ldv, &at);
    float *kt = take(&at, pack_floats(d, n)), *vp = take(&at, pack_floats(n, d));
    float *s = take(&at, ATTN_ROWS * lds), *o = take(&at, ATTN_ROWS * d);
    RUI_K(rui_kern_gemm_pack)(k, 1, ldk, d, n, kt);
    RUI_K(rui_kern_gemm_pack)(v, ldv, 1, n, d, vp);
    for (int64_t i0 = 0; i0 < a->rows; i0 += ATTN_ROWS) {
        int64_t m = kv_min_i64(ATTN_ROWS, a->rows - i0), wide = visible(a, i0 + m);
        float inv[ATTN_ROWS];
        multiply(product(m, wide, d, q + i0 * ldq, ldq, 1, kt, d, n, s, lds, a->scale, false));
        for (int64_t i = 0; i < m; i++) {
            float *row = s + i * lds;
            int64_t see = visible(a, i0 + i + 1);
            if (a->mask != NULL) {
                add_mask(a, i0 + i, row, see);
            }
            fill_tail(row, see, round_up(wide), -INFINITY);
            float max = max_of(row, round_up(wide));
            float sum = exp_row(row, max, round_up(wide));
            inv[i] = 1.0f / sum;
            if (a->stats != NULL) {
                a->stats[i0 + i] = max + kv_log(sum);
            }
        }
        multiply(product(m, d, wide, s, lds, 1, vp, n, d, o, d, 1.0f, false));
        for (int64_t i = 0; i < m; i++) {
            put_row(a->t, a->y, (i0 + i) * a->ld_y, o + i * d, inv[i], d);
        }
    }
}

enum { ROW_KEYS = 4 }; /* keys at a time: the sums stay in registers */

/* The loops of f32 and bf16 stand apart: gcc 12 does not make vectors of one that chooses inside.
 */
RU_KERN_INLINE float dot_f32(const float *q, const float *k, int64_t d)
{
    float s = 0.0f;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < d; i++) {
        s += q[i] * k[i];
    }
    return s;
}

RU_KERN_INLINE float dot_bf16(const float *q, const uint16_t *k, int64_t d)
{
    float s = 0.0f;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < d; i++) {
        s += q[i] * kv_from_bf16(k[i]);
    }
    return s;
}

/* y += p[0] v[0] + ... of `n` = ROW_KEYS or 1 keys */
RU_KERN_INLINE void add_f32(const float *p, const float *v, int64_t ld, int64_t n, int64_t d,
                            float *restrict y)
{
    float p0 = p[0];
    if (n == 1) {
#pragma omp simd
        for (int64_t i = 0; i < d; i++) {
            y[i] += p0 * v[i];
        }
        return;
    }
    const float *v1 = v + ld, *v2 = v1 + ld, *v3 = v2 + ld;
    float p1 = p[1], p2 = p[2], p3 = p[3];
#pragma omp simd
    for (int64_t i = 0; i < d; i++) {
        y[i] += p0 * v[i] + p1 * v1[i] + (p2 * v2[i] + p3 * v3[i]);
    }
}

RU_KERN_INLINE void add_bf16(const float *p, const uint16_t *v, int64_t ld, int64_t n, int64_t d,
                             float *restrict y)
{
    float p0 = p[0];
    if (n == 1) {
#pragma omp simd
        for (int64_t i = 0; i < d; i++) {
            y[i] += p0 * kv_from_bf16(v[i]);
        }
        return;
    }
    const uint16_t *v1 = v + ld, *v2 = v1 + ld, *v3 = v2 + ld;
    float p1 = p[1], p2 = p[2], p3 = p[3];
#pragma omp simd
    for (int64_t i = 0; i < d; i++) {
        y[i] += p0 * kv_from_bf16(v[i]) + p1 * kv_from_bf16(v1[i]) +
                (p2 * kv_from_bf16(v2[i]) + p3 * kv_from_bf16(v3[i]));
    }
}

/* y = sum of e^(score) v; gives the sum of e^(score). p: [keys]; `half` is a constant where this is
 * called */
RU_KERN_INLINE float one_row(const ru_kern_attn *a, const float *q, float *y, float *p, bool half)
{
    int64_t n = a->keys, d = a->head_size, ld = a->ld_v;
    const float *k = a->k, *v = a->v;
    const uint16_t *hk = a->k, *hv = a->v;
    float max = -INFINITY, sum = 0.0f, scale = a->scale;
    for (int64_t j = 0; j < n; j++) {
        int64_t kj = j * a->ld_k;
        p[j] = scale * (half ? dot_bf16(q, hk + kj, d) : dot_f32(q, k + kj, d));
        max = kv_max(max, p[j]);
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        p[j] = kv_exp_neg(p[j] - max);
        sum += p[j];
    }
    memset(y, 0, sizeof *y * (size_t)d);
    for (int64_t j = 0, step; j < n; j += step) {
        step = j + ROW_KEYS <= n ? ROW_KEYS : 1;
        if (half) {
            add_bf16(p + j, hv + j * ld, ld, step, d, y);
        } else {
            add_f32(p + j, v + j * ld, ld, step, d, y);
        }
    }
    return sum;
}

void RUI_K(rui_kern_attn_row)(const ru_kern_attn *a)
{
    int64_t d = a->head_size, ldq;
    float *at = a->work, *y = take(&at, d), *p = take(&at, a->keys);
    const float *q = rows_f32(a->t, a->q, a->ld_q, 1, d, &ldq, &at);
    float sum = a->t_kv == RU_F32 ? one_row(a, q, y, p, false) : one_row(a, q, y, p, true);
    put_row(a->t, a->y, 0, y, 1.0f / sum, d);
}

/* s: scores -> probabilities; dp: dP -> dS. */
static void grad_row(float *s, float *dp, float stats, float delta, float scale, int64_t see,
                     int64_t wide)
{
    fill_tail(s, see, wide, -INFINITY);
    fill_tail(dp, see, wide, 0.0f);
    for (int64_t i = 0; i < wide; i += ATTN_LANES) {
#pragma omp simd
        for (int64_t j = 0; j < ATTN_LANES; j++) {
            float p = kv_exp_neg(s[i + j] - stats);
            s[i + j] = p;
            dp[i + j] = p * (dp[i + j] - delta) * scale;
        }
    }
}

static float dot(const float *x, const float *y, int64_t n)
{
    float acc[KV_LANES] = {0};
    for (int64_t i = 0; i < n; i += KV_LANES) {
        int64_t w = kv_min_i64(KV_LANES, n - i);
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            acc[j] += x[i + j] * y[i + j];
        }
    }
    return kv_lanes_sum(acc);
}

typedef struct grad_work {
    int64_t ldq, ldk, ldv, ldy, lddy, lds;
    const float *q, *k, *v, *y, *dy;
    float *kt, *kp, *vt, *qp, *dyp, *s, *dp, *dk, *dv, *dq;
} grad_work;

static void grad_prepare(const ru_kern_attn *a, grad_work *w)
{
    int64_t n = a->keys, d = a->head_size;
    float *at = a->work;
    w->lds = round_up(n);
    w->q = rows_f32(a->t, a->q, a->ld_q, a->rows, d, &w->ldq, &at);
    w->k = rows_f32(a->t, a->k, a->ld_k, n, d, &w->ldk, &at);
    w->v = rows_f32(a->t, a->v, a->ld_v, n, d, &w->ldv, &at);
    w->y = rows_f32(a->t, a->y, a->ld_y, a->rows, d, &w->ldy, &at);
    w->dy = rows_f32(a->t, a->dy, a->ld_y, a->rows, d, &w->lddy, &at);
    w->kt = take(&at, pack_floats(d, n));
    w->kp = take(&at, pack_floats(n, d));
    w->vt = take(&at, pack_floats(d, n));
    w->qp = take(&at, pack_floats(ATTN_ROWS, d));
    w->dyp = take(&at, pack_floats(ATTN_ROWS, d));
    w->s = take(&at, ATTN_ROWS * w->lds);
    w->dp = take(&at, ATTN_ROWS * w->lds);
    w->dk = take(&at, n * d);
    w->dv = take(&at, n * d);
    w->dq = take(&at, ATTN_ROWS * d);
    RUI_K(rui_kern_gemm_pack)(w->k, 1, w->ldk, d, n, w->kt);
    RUI_K(rui_kern_gemm_pack)(w->k, w->ldk, 1, n, d, w->kp);
    RUI_K(rui_kern_gemm_pack)(w->v, 1, w->ldv, d, n, w->vt);
    memset(w->dk, 0, sizeof(float) * (size_t)(n * d));
    memset(w->dv, 0, sizeof(float) * (size_t)(n * d));
}

static void grad_block(const ru_kern_attn *a, const grad_work *w, int64_t i0, int64_t m)
{
    int64_t n = a->keys, d = a->head_size, lds = w->lds, wide = visible(a, i0 + m);
    const float *q = w->q + i0 * w->ldq, *dy = w->dy + i0 * w->lddy, *y = w->y + i0 * w->ldy;
    multiply(product(m, wide, d, q, w->ldq, 1, w->kt, d, n, w->s, lds, a->scale, false));
    multiply(product(m, wide, d, dy, w->lddy, 1, w->vt, d, n, w->dp, lds, 1.0f, false));
    for (int64_t i = 0; i < m; i++) {
        int64_t see = visible(a, i0 + i + 1);
        if (a->mask != NULL) {
            add_mask(a, i0 + i, w->s + i * lds, see);
        }
        float delta = dot(dy + i * w->lddy, y + i * w->ldy, d);
        grad_row(w->s + i * lds, w->dp + i * lds, a->stats[i0 + i], delta, a->scale, see,
                 round_up(wide));
    }
    multiply(product(m, d, wide, w->dp, lds, 1, w->kp, n, d, w->dq, d, 1.0f, false));
    for (int64_t i = 0; i < m; i++) {
        put_row(a->t, a->dq, (i0 + i) * a->ld_dq, w->dq + i * d, 1.0f, d);
    }
    RUI_K(rui_kern_gemm_pack)(q, w->ldq, 1, m, d, w->qp);
    RUI_K(rui_kern_gemm_pack)(dy, w->lddy, 1, m, d, w->dyp);
    multiply(product(wide, d, m, w->dp, 1, lds, w->qp, m, d, w->dk, d, 1.0f, true));
    multiply(product(wide, d, m, w->s, 1, lds, w->dyp, m, d, w->dv, d, 1.0f, true));
}

void RUI_K(rui_kern_attn_grad)(const ru_kern_attn *a)
{
    grad_work w;
    grad_prepare(a, &w);
    for (int64_t i0 = 0; i0 < a->rows; i0 += ATTN_ROWS) {
        grad_block(a, &w, i0, kv_min_i64(ATTN_ROWS, a->rows - i0));
    }
    for (int64_t j = 0; j < a->keys; j++) {
        put_row(a->t, a->dk, j * a->ld_dk, w.dk + j * a->head_size, 1.0f, a->head_size);
        put_row(a->t, a->dv, j * a->ld_dv, w.dv + j * a->head_size, 1.0f, a->head_size);
    }
}
