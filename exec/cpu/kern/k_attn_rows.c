/* Attention of some rows of one sequence on its cache: each key and each value is read once for all
 * rows of a group, as many as two vectors have lanes.
 *
 *   keys are taken KEYS at a time; lanes are rows, so that nothing is summed or compared across a
 * vector and neither keys nor values are packed:
 *
 *   s[key][row] = K Q^T;  top' = max(top, s);  P = e^(s - top');  c = e^(top - top')
 *   sum = c sum + P;  Y = c Y + P^T V;  top = top'
 *
 * What a row becomes does not depend on which others are in its group.
 *
 * Source: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018. */
#define GEMM_T     float
#define GEMM_ANY_A 1
#include "exec/cpu/kern/gemm_tile.h"

enum {
    KEYS = 64,                  /* of a block: with its values it stays in L1 */
    TILE = GEMM_MR > 8 ? 8 : 4, /* keys whose scores stay in registers */
    UNIT = 32,                  /* floats; pieces of the work area are multiples: aligned */
};

typedef struct group {
    const ru_kern_attn *a;
    int64_t rows, past;       /* of the group; as in `a` */
    int64_t ld_y;             /* head_size, rounded up to whole tiles */
    float *q, *s, *y, *k, *v; /* [head_size, GEMM_NR] scaled; [KEYS, GEMM_NR]; [GEMM_NR, ld_y];
                                 [KEYS, head_size]; [KEYS, ld_y] */
    float top[GEMM_NR], sum[GEMM_NR];
} group;

static int64_t round_to(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static float *take(float **at, int64_t n)
{
    float *p = *at;
    *at += round_to(n, UNIT);
    return p;
}

int64_t RUI_K(rui_kern_attn_rows_work)(const ru_kern_attn *a)
{
    int64_t d = a->head_size, wide = round_to(d, GEMM_NR);
    int64_t many = (d + KEYS) * GEMM_NR + GEMM_NR * wide + KEYS * (d + wide) + 5 * UNIT;
    int64_t row = a->keys + 3 * d + 4 * UNIT; /* of attn_row */
    return many > row ? many : row;
}

/* Scores of `n` keys: `n` and `vectors` are constants where this is inlined. */
RU_KERN_INLINE void score(const int64_t n, const int64_t vectors, const float *k, int64_t ld,
                          const float *q, int64_t d, float *s)
{
    gemm_v acc[TILE][2];
#pragma GCC unroll 8
    for (int64_t i = 0; i < n; i++) {
        acc[i][0] = acc[i][1] = (gemm_v){0};
    }
    for (int64_t p = 0; p < d; p++, k++, q += GEMM_NR) {
        gemm_v q0 = vload(q), q1 = vload(q + GEMM_W);
#pragma GCC unroll 8
        for (int64_t i = 0; i < n; i++) {
            acc[i][0] += k[i * ld] * q0;
            if (vectors > 1) {
                acc[i][1] += k[i * ld] * q1;
            }
        }
    }
#pragma GCC unroll 8
    for (int64_t i = 0; i < n; i++) {
        vstore(s + i * GEMM_NR, acc[i][0]);
        if (vectors > 1) {
            vstore(s + i * GEMM_NR + GEMM_W, acc[i][1]);
        }
    }
}

/* A block of n rows of the cache as floats, `wide` columns of which may be read: in place where it
 * is so, else a copy. */
static const float *block_of(const ru_kern_attn *a, const void *x, int64_t at, int64_t ld,
                             int64_t n, int64_t wide, float *copy, int64_t *ld_out)
{
    int64_t d = a->head_size;
    if (a->t_kv == RU_F32 && wide == d) {
        *ld_out = ld;
        return (const float *)x + at * ld;
    }
    for (int64_t j = 0; j < n; j++) {
        float *to = copy + j * wide;
        const float *from = kv_load(a->t_kv, x, (at + j) * ld, d, to);
        if (from != to) {
            memcpy(to, from, sizeof *to * (size_t)d);
        }
        memset(to + d, 0, sizeof *to * (size_t)(wide - d));
    }
    *ld_out = wide;
    return copy;
}

/* Scores become parts of the sums; Y shrinks by as much as the largest score rose. */
RU_KERN_INLINE void soften(group *g, int64_t n, const int64_t lanes)
{
    float top[GEMM_NR], sum[GEMM_NR] = {0}, shrunk[GEMM_NR];
    memcpy(top, g->top, sizeof top);
    for (int64_t j = 0; j < n; j++) {
#pragma omp simd
        for (int64_t l = 0; l < lanes; l++) {
            top[l] = kv_max(g->s[j * GEMM_NR + l], top[l]);
        }
    }
    for (int64_t l = 0; l < lanes; l++) { /* of a row that has seen nothing but -inf: 0 - 0 */
        float floor = top[l] == -INFINITY ? 0.0f : top[l];
        shrunk[l] = kv_exp_neg(g->top[l] - floor);
        g->top[l] = top[l];
        top[l] = floor;
    }
    for (int64_t j = 0; j < n; j++) {
#pragma omp simd
        for (int64_t l = 0; l < lanes; l++) {
            float p = kv_exp_neg(g->s[j * GEMM_NR + l] - top[l]);
            g->s[j * GEMM_NR + l] = p;
            sum[l] += p;
        }
    }
    for (int64_t l = 0; l < lanes; l++) {
        g->sum[l] = g->sum[l] * shrunk[l] + sum[l];
    }
    for (int64_t i = 0; i < g->rows; i++) {
        float *y = g->y + i * g->ld_y, by = shrunk[i];
#pragma omp simd
        for (int64_t c = 0; c < g->ld_y; c++) {
            y[c] *= by;
        }
    }
}

/* How many of a block's n keys a row sees that may see `many` from its first on. */
static int64_t seen(int64_t many, int64_t n)
{
    return many < 0 ? 0 : kv_min_i64(many, n);
}

/* Is one of n values infinite or none? */
static bool unbounded(const float *v, int64_t ld, int64_t n, int64_t d)
{
    uint32_t found = 0;
    for (int64_t j = 0; j < n; j++, v += ld) {
#pragma omp simd reduction(| : found)
        for (int64_t c = 0; c < d; c++) {
            found |= (kv_bits(v[c]) & 0x7f800000u) == 0x7f800000u;
        }
    }
    return found != 0;
}

RU_KERN_INLINE void block(group *g, int64_t j0, int64_t n, const int64_t vectors)
{
    const ru_kern_attn *a = g->a;
    int64_t d = a->head_size, ldk, ldv;
    const float *k = block_of(a, a->k, j0, a->ld_k, n, d, g->k, &ldk);
    const float *v = block_of(a, a->v, j0, a->ld_v, n, g->ld_y, g->v, &ldv);
    int64_t j = 0;
    for (; j + TILE <= n; j += TILE) {
        score(TILE, vectors, k + j * ldk, ldk, g->q, d, g->s + j * GEMM_NR);
    }
    for (; j < n; j++) {
        score(1, vectors, k + j * ldk, ldk, g->q, d, g->s + j * GEMM_NR);
    }
    for (j = 0; j < n; j++) { /* rows before a key do not see it */
        for (int64_t i = 0; a->causal && i < kv_min_i64(g->rows, j0 + j - g->past); i++) {
            g->s[j * GEMM_NR + i] = -INFINITY;
        }
    }
    soften(g, n, vectors * GEMM_W);
    /* 0 times a value that a row does not see is 0 of numbers only: else each row by itself. */
    int64_t by_all = a->causal ? seen(g->past + 1 - j0, n) : n;
    bool apart = by_all < n && unbounded(v + by_all * ldv, ldv, n - by_all, d);
    int64_t tiles = apart ? g->rows : (g->rows + GEMM_MR - 1) / GEMM_MR;
    gemm_tile t = {.n = GEMM_NR,
                   .a_row = 1,
                   .a_col = GEMM_NR,
                   .b_row = ldv,
                   .c_row = g->ld_y,
                   .alpha = 1.0f,
                   .add = true};
    for (int64_t x = 0; x < tiles; x++) {
        int64_t i0 = g->rows * x / tiles, i1 = g->rows * (x + 1) / tiles;
        t.k = apart ? seen(g->past + i0 + 1 - j0, n) : n;
        for (int64_t c = 0; c < g->ld_y; c += GEMM_NR) {
            t.a = g->s + i0;
            t.b = v + c;
            t.c = g->y + i0 * g->ld_y + c;
            run_tile(i1 - i0, &t);
        }
    }
}

/* Q^T, scaled; lanes without a row are 0. */
static void begin(group *g, int64_t i0)
{
    const ru_kern_attn *a = g->a;
    int64_t d = a->head_size;
    memset(g->q, 0, sizeof *g->q * (size_t)(d * GEMM_NR));
    memset(g->y, 0, sizeof *g->y * (size_t)(GEMM_NR * g->ld_y));
    for (int64_t i = 0; i < g->rows; i++) {
        const float *q = kv_load(a->t, a->q, (i0 + i) * a->ld_q, d, g->v);
        for (int64_t c = 0; c < d; c++) {
            g->q[c * GEMM_NR + i] = q[c] * a->scale;
        }
    }
    for (int64_t l = 0; l < GEMM_NR; l++) {
        g->top[l] = -INFINITY;
        g->sum[l] = 0;
    }
}

static void end(group *g, int64_t i0)
{
    const ru_kern_attn *a = g->a;
    for (int64_t i = 0; i < g->rows; i++) {
        float *from = g->y + i * g->ld_y, by = 1.0f / g->sum[i];
        float *to = kv_dest(a->t, a->y, (i0 + i) * a->ld_y, from);
#pragma omp simd
        for (int64_t c = 0; c < a->head_size; c++) {
            to[c] = from[c] * by;
        }
        kv_store(a->t, a->y, (i0 + i) * a->ld_y, a->head_size, to);
    }
}

void RUI_K(rui_kern_attn_rows)(const ru_kern_attn *a)
{
    float *at = a->work;
    group g = {.a = a, .ld_y = round_to(a->head_size, GEMM_NR)};
    g.q = take(&at, a->head_size * GEMM_NR);
    g.s = take(&at, KEYS * GEMM_NR);
    g.y = take(&at, GEMM_NR * g.ld_y);
    g.k = take(&at, KEYS * a->head_size);
    g.v = take(&at, KEYS * g.ld_y);
    for (int64_t i0 = 0; i0 < a->rows; i0 += GEMM_NR) {
        g.rows = kv_min_i64(GEMM_NR, a->rows - i0);
        g.past = a->past + i0;
        int64_t see = a->causal ? kv_min_i64(a->keys, g.past + g.rows) : a->keys;
        begin(&g, i0);
        for (int64_t j = 0; j < see; j += KEYS) {
            if (g.rows > GEMM_W) {
                block(&g, j, kv_min_i64(KEYS, see - j), 2);
            } else {
                block(&g, j, kv_min_i64(KEYS, see - j), 1);
            }
        }
        end(&g, i0);
    }
}
