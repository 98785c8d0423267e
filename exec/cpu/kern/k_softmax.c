/* Softmax and its logarithm over rows, and over a middle axis whose inner elements stand side by
 * side. */
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "exec/cpu/kern/isa.h"
#include "exec/cpu/kern/lanes.h"

enum { SHORT_ROWS = 16, SHORT_MAX = 24 };

/* Everything here is inlined: no call hands such a vector over. */
#pragma GCC diagnostic ignored "-Wpsabi"

enum { WIDE = 16 }; /* elements of a vector */

RU_KERN_INLINE kv_16 load_16(const float *x)
{
    return *(const kv_16 *)x;
}

/* `on` where the mask is set, else `off`. */
RU_KERN_INLINE kv_16 pick_16(kv_16_mask m, kv_16 on, kv_16 off)
{
    return (kv_16)(((kv_16_mask)on & m) | ((kv_16_mask)off & ~m));
}

/* a > b ? a : b. A NaN need not be kept in a softmax: it makes the row's sum NaN. */
RU_KERN_INLINE kv_16 top_16(kv_16 a, kv_16 b)
{
#ifdef __AVX512F__
    return (kv_16)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return pick_16(a > b, a, b);
#endif
}

/* y * 2^t; 0 where x < -87, x where it is NaN. */
RU_KERN_INLINE kv_16 scale_16(kv_16 x, kv_16 y, kv_16 t)
{
#ifdef __AVX512F__
    const __mmask16 low = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ);
    return (kv_16)_mm512_maskz_scalef_ps(low, (__m512)y, (__m512)t);
#else
    y = (kv_16)((kv_16_mask)y + ((kv_16_mask)(t + 12582912.0f) << 23));
    return pick_16(x < -87.0f, (kv_16){0}, pick_16(x != x, x, y));
#endif
}

/* kv_exp_neg of 16. */
RU_KERN_INLINE kv_16 exp_16(kv_16 x)
{
    kv_16 c = top_16((kv_16){0} - 87.0f, x);
    kv_16 t = (c * 1.44269504f + 12582912.0f) - 12582912.0f;
    kv_16 r = c - t * 0x1.62ep-1f;
    r -= t * 3.19461833e-05f;
    kv_16 p = r * 1.395171725e-03f + 8.369598410e-03f;
    p = p * r + 4.166618728e-02f;
    p = p * r + 1.666651289e-01f;
    p = p * r + 5.000000101e-01f;
    return scale_16(x, (p * r) * r + r + 1.0f, t);
}

/* Lanes from the end of a row that whole vectors have not seen. */
RU_KERN_INLINE kv_16_mask unseen(int64_t left)
{
    const kv_16_mask lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return lane >= WIDE - (int32_t)left;
}

/* n >= WIDE; the last vector overlaps the one before. */
RU_KERN_INLINE float row_max(const float *x, int64_t n)
{
    const kv_16 end = load_16(x + n - WIDE);
    kv_16 acc[4] = {end, end, end, end}, v;
    int64_t i = 0;
    for (; i + 4 * WIDE <= n; i += 4 * WIDE) {
#pragma GCC unroll 4
        for (int64_t k = 0; k < 4; k++) {
            v = load_16(x + i + k * WIDE);
            acc[k] = top_16(v, acc[k]);
        }
    }
    for (; i + WIDE <= n; i += WIDE) {
        v = load_16(x + i);
        acc[0] = top_16(v, acc[0]);
    }
    float most;
    acc[0] = top_16(acc[1], acc[0]);
    acc[2] = top_16(acc[3], acc[2]);
    acc[0] = top_16(acc[2], acc[0]);
    KV_JOIN_16(acc[0], KV_MOST, most);
    return most;
}

/* y = e^(x - max) with `keep`, returns the sum; y may equal x. n >= WIDE. */
RU_KERN_INLINE float row_exp(const float *x, float max, const bool keep, float *y, int64_t n)
{
    kv_16 sum[4] = {{0}}, e;
    const kv_16 last = exp_16(load_16(x + n - WIDE) - max);
    int64_t i = 0;
    for (; i + 4 * WIDE <= n; i += 4 * WIDE) {
#pragma GCC unroll 4
        for (int64_t k = 0; k < 4; k++) {
            e = exp_16(load_16(x + i + k * WIDE) - max);
            if (keep) {
                *(kv_16 *)(y + i + k * WIDE) = e;
            }
            sum[k] += e;
        }
    }
    for (; i + WIDE <= n; i += WIDE) {
        e = exp_16(load_16(x + i) - max);
        if (keep) {
            *(kv_16 *)(y + i) = e;
        }
        sum[0] += e;
    }
    if (i < n) {
        if (keep) {
            *(kv_16 *)(y + n - WIDE) = last;
        }
        sum[1] += pick_16(unseen(n - i), last, (kv_16){0});
    }
    sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    float all;
    KV_JOIN_16(sum[0], KV_ADD, all);
    return all;
}

/* Rows of fewer than WIDE elements, alone. */
static float few_max(const float *x, int64_t n)
{
    float most = -INFINITY;
    for (int64_t j = 0; j < n; j++) {
        most = kv_max(x[j], most);
    }
    return most;
}

static float few_exp(const float *x, float max, float *y, int64_t n)
{
    float sum = 0.0f;
    for (int64_t j = 0; j < n; j++) {
        y[j] = kv_exp_neg(x[j] - max);
        sum += y[j];
    }
    return sum;
}

static float any_max(const float *x, int64_t n)
{
    return n < WIDE ? few_max(x, n) : row_max(x, n);
}

static float any_exp(const float *x, float max, float *y, int64_t n)
{
    return n < WIDE ? few_exp(x, max, y, n) : row_exp(x, max, true, y, n);
}

enum { ROWS = 8, NEAR = 512 /* elements of rows that go through each step together */ };

/* `rows` rows of at least WIDE elements: their steps do not wait for each other. A row of minus
 * infinities (all masked) gives NaN as the definition does. */
static void softmax_rows(bool log, const float *x, float *y, int64_t rows, int64_t n)
{
    float max[ROWS], end[ROWS];
    for (int64_t r = 0; r < rows; r++) {
        max[r] = row_max(x + r * n, n);
    }
    for (int64_t r = 0; r < rows && !log; r++) {
        end[r] = 1.0f / row_exp(x + r * n, max[r], true, y + r * n, n);
    }
    for (int64_t r = 0; r < rows && log; r++) { /* by itself: beside a large maximum it would lose
                                                   its digits */
        end[r] = kv_log(row_exp(x + r * n, max[r], false, NULL, n));
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *from = x + r * n;
        float *to = y + r * n;
        kv_16 last =
            log ? (load_16(from + n - WIDE) - max[r]) - end[r] : load_16(to + n - WIDE) * end[r];
        for (int64_t i = 0; i + WIDE <= n; i += WIDE) {
            *(kv_16 *)(to + i) =
                log ? (load_16(from + i) - max[r]) - end[r] : load_16(to + i) * end[r];
        }
        *(kv_16 *)(to + n - WIDE) = last;
    }
}

/* bf16 rows of any length: three passes over the row, a block at a time. */
static void softmax_row_bf16(bool log, const uint16_t *x, uint16_t *y, int64_t n)
{
    float buf[KV_BLOCK], max = -INFINITY, sum = 0.0f;
    for (int64_t c = 0; c < n; c += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - c);
        kv_widen(x + c, buf, w);
        max = kv_max(any_max(buf, w), max);
    }
    for (int64_t c = 0; c < n; c += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - c);
        kv_widen(x + c, buf, w);
        sum += any_exp(buf, max, buf, w);
    }
    float ln = kv_log(sum), inv = 1.0f / sum;
    for (int64_t c = 0; c < n; c += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - c);
        kv_widen(x + c, buf, w);
        if (log) {
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                buf[j] = (buf[j] - max) - ln;
            }
        } else {
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                buf[j] = kv_exp_neg(buf[j] - max) * inv;
            }
        }
        kv_narrow(buf, y + c, w);
    }
}

/* Rows of at most SHORT_MAX elements, `rows` of them side by side. */
RU_KERN_INLINE void softmax_short(bool log, const float *x, float *y, const int64_t rows, int64_t n)
{
    float max[SHORT_ROWS], sum[SHORT_ROWS], e[SHORT_MAX * SHORT_ROWS];
    for (int64_t j = 0; j < rows; j++) {
        max[j] = -INFINITY;
        sum[j] = 0.0f;
    }
    for (int64_t k = 0; k < n; k++) {
#pragma omp simd
        for (int64_t j = 0; j < rows; j++) {
            float v = x[j * n + k];
            e[k * SHORT_ROWS + j] = v;
            max[j] = kv_max(v, max[j]);
        }
    }
    for (int64_t k = 0; k < n; k++) {
        float *v = e + k * SHORT_ROWS;
#pragma omp simd
        for (int64_t j = 0; j < rows; j++) {
            float down = v[j] - max[j], exp = kv_exp_neg(down);
            sum[j] += exp;
            v[j] = log ? down : exp;
        }
    }
#pragma omp simd
    for (int64_t j = 0; j < rows; j++) {
        sum[j] = log ? kv_log(sum[j]) : 1.0f / sum[j];
    }
    for (int64_t j = 0; j < rows; j++) {
        for (int64_t k = 0; k < n; k++) {
            float v = e[k * SHORT_ROWS + j];
            y[j * n + k] = log ? v - sum[j] : v * sum[j];
        }
    }
}

static void softmax_rows_short(bool log, const float *x, float *y, int64_t rows, int64_t n)
{
    int64_t r = 0;
    for (; r + SHORT_ROWS <= rows; r += SHORT_ROWS) {
        softmax_short(log, x + r * n, y + r * n, SHORT_ROWS, n);
    }
    if (r < rows) {
        softmax_short(log, x + r * n, y + r * n, rows - r, n);
    }
}

void RUI_K(rui_kern_softmax)(ru_dtype t, bool log, const void *x, void *y, int64_t rows,
                             int64_t cols)
{
    if (t == RU_F32 && cols <= SHORT_MAX) {
        softmax_rows_short(log, x, y, rows, cols);
        return;
    }
    const int64_t together = cols <= NEAR ? ROWS : 1;
    for (int64_t r = 0; r < rows && t == RU_F32; r += together) {
        softmax_rows(log, (const float *)x + r * cols, (float *)y + r * cols,
                     kv_min_i64(together, rows - r), cols);
    }
    for (int64_t r = 0; r < rows && t != RU_F32; r++) {
        softmax_row_bf16(log, (const uint16_t *)x + r * cols, (uint16_t *)y + r * cols, cols);
    }
}

/* Sum of dy*y (softmax) or of dy (log). */
static float grad_dot(bool log, const float *dy, const float *y, int64_t n)
{
    float acc[KV_LANES] = {0};
    for (int64_t i = 0; i < n; i += KV_LANES) {
        int64_t w = kv_min_i64(KV_LANES, n - i);
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            acc[j] += dy[i + j] * (log ? 1.0f : y[i + j]);
        }
    }
    return kv_sum_of_lanes(acc);
}

void RUI_K(rui_kern_softmax_grad)(ru_dtype t, bool log, const void *dy, const void *y, void *dx,
                                  int64_t rows, int64_t cols)
{
    float b1[KV_BLOCK], b2[KV_BLOCK], b3[KV_BLOCK];
    for (int64_t r = 0; r < rows; r++) {
        float dot = 0.0f;
        for (int64_t c = 0; c < cols; c += KV_BLOCK) {
            int64_t w = kv_min_i64(KV_BLOCK, cols - c), at = r * cols + c;
            dot += grad_dot(log, kv_load(t, dy, at, w, b1), kv_load(t, y, at, w, b2), w);
        }
        for (int64_t c = 0; c < cols; c += KV_BLOCK) {
            int64_t w = kv_min_i64(KV_BLOCK, cols - c), at = r * cols + c;
            const float *d = kv_load(t, dy, at, w, b1), *p = kv_load(t, y, at, w, b2);
            float *o = kv_dest(t, dx, at, b3);
            if (log) {
#pragma omp simd
                for (int64_t j = 0; j < w; j++) {
                    o[j] = d[j] - kv_exp(p[j]) * dot;
                }
            } else {
#pragma omp simd
                for (int64_t j = 0; j < w; j++) {
                    o[j] = p[j] * (d[j] - dot);
                }
            }
            kv_store(t, dx, at, w, b3);
        }
    }
}

enum { INNER = 64 }; /* columns at a time */
enum { FEW = 16 };

/* v[0 .. w) again and again up to n. */
static void repeat(float *v, int64_t w, int64_t n)
{
    for (int64_t have = w, m; have < n; have += m) {
        m = kv_min_i64(have, n - have);
        memcpy(v + have, v, (size_t)m * sizeof *v);
    }
}

/* At most FEW columns: whole rows at a time, `top` and `end` repeat. x may equal y. */
static void softmax_few(bool log, const float *x, float *y, int64_t n, int64_t w)
{
    float top[KV_BLOCK], end[KV_BLOCK], e[KV_BLOCK], sum[FEW];
    int64_t rows = KV_BLOCK / w, all = n * w, piece = rows * w;
    RUI_K(rui_kern_fold)(RU_KERN_RED_MAX, RU_F32, true, x, n, w, w, true, sum);
    memcpy(top, sum, (size_t)w * sizeof *top);
    repeat(top, w, piece);
    for (int64_t c = 0; c < all; c += piece) {
        int64_t m = kv_min_i64(piece, all - c);
        float *to = log ? e : y + c;
#pragma omp simd
        for (int64_t i = 0; i < m; i++) {
            to[i] = kv_exp_neg(x[c + i] - top[i]);
        }
        if (log) {
            RUI_K(rui_kern_fold)(RU_KERN_RED_SUM, RU_F32, true, e, m / w, w, w, c == 0, sum);
        }
    }
    if (!log) {
        RUI_K(rui_kern_fold)(RU_KERN_RED_SUM, RU_F32, true, y, n, w, w, true, sum);
    }
    for (int64_t i = 0; i < w; i++) {
        end[i] = log ? kv_log(sum[i]) : 1.0f / sum[i];
    }
    repeat(end, w, piece);
    for (int64_t c = 0; c < all; c += piece) {
        int64_t m = kv_min_i64(piece, all - c);
#pragma omp simd
        for (int64_t i = 0; i < m; i++) {
            y[c + i] = log ? (x[c + i] - top[i]) - end[i] : y[c + i] * end[i];
        }
    }
}

void RUI_K(rui_kern_softmax_inner)(ru_dtype t, bool log, const void *x, void *y, int64_t n,
                                   int64_t inner, int64_t c0, int64_t c1)
{
    float max[INNER], sum[INNER], buf[INNER], out[INNER];
    if (t == RU_F32 && inner <= FEW && c0 == 0 && c1 == inner) {
        softmax_few(log, x, y, n, inner);
        return;
    }
    for (int64_t c = c0; c < c1; c += INNER) {
        int64_t w = kv_min_i64(INNER, c1 - c);
        for (int64_t j = 0; j < INNER; j++) {
            max[j] = -INFINITY;
            sum[j] = 0.0f;
        }
        for (int64_t i = 0; i < n; i++) {
            const float *s = kv_load(t, x, i * inner + c, w, buf);
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                max[j] = kv_max(s[j], max[j]);
            }
        }
        for (int64_t i = 0; i < n; i++) {
            const float *s = kv_load(t, x, i * inner + c, w, buf);
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                sum[j] += kv_exp_neg(s[j] - max[j]);
            }
        }
        for (int64_t j = 0; j < INNER; j++) {
            sum[j] = log ? kv_log(sum[j]) : 1.0f / sum[j];
        }
        for (int64_t i = 0; i < n; i++) {
            const float *s = kv_load(t, x, i * inner + c, w, buf);
            float *o = kv_dest(t, y, i * inner + c, out);
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                o[j] = log ? (s[j] - max[j]) - sum[j] : kv_exp_neg(s[j] - max[j]) * sum[j];
            }
            kv_store(t, y, i * inner + c, w, out);
        }
    }
}

void RUI_K(rui_kern_softmax_inner_grad)(ru_dtype t, bool log, const void *dy, const void *y,
                                        void *dx, int64_t n, int64_t inner, int64_t c0, int64_t c1)
{
    float dot[INNER], b1[INNER], b2[INNER], b3[INNER];
    for (int64_t c = c0; c < c1; c += INNER) {
        int64_t w = kv_min_i64(INNER, c1 - c);
        memset(dot, 0, sizeof dot);
        for (int64_t i = 0; i < n; i++) {
            const float *d = kv_load(t, dy, i * inner + c, w, b1);
            const float *p = kv_load(t, y, i * inner + c, w, b2);
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                dot[j] += d[j] * (log ? 1.0f : p[j]);
            }
        }
        for (int64_t i = 0; i < n; i++) {
            const float *d = kv_load(t, dy, i * inner + c, w, b1);
            const float *p = kv_load(t, y, i * inner + c, w, b2);
            float *o = kv_dest(t, dx, i * inner + c, b3);
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                o[j] = log ? d[j] - kv_exp(p[j]) * dot[j] : p[j] * (d[j] - dot[j]);
            }
            kv_store(t, dx, i * inner + c, w, b3);
        }
    }
}
