/* Softmax and its logarithm over rows, and over a middle axis whose inner elements stand side by
 * side. */
#include "exec/cpu/kern/isa.h"
#include "exec/cpu/kern/lanes.h"

enum { SHORT_ROWS = 16, SHORT_MAX = 32 };

static float row_max(const float *x, int64_t n)
{
    float acc[KV_LANES];
    for (int64_t j = 0; j < KV_LANES; j++) {
        acc[j] = -INFINITY;
    }
    int64_t i = 0;
    for (; i + KV_LANES <= n; i += KV_LANES) {
#pragma omp simd
        for (int64_t j = 0; j < KV_LANES; j++) {
            acc[j] = kv_max(x[i + j], acc[j]);
        }
    }
    if (i < n) {
        float end[KV_LANES];
        int64_t w = kv_tail(x + i, n - i, -INFINITY, end);
        KV_LANES_LOOP(w, acc[j] = kv_max(end[j], acc[j]))
    }
    return kv_max_of_lanes(acc);
}

/* y = e^(x - max), returns the sum; y may equal x. */
static float row_exp(const float *x, float max, float *y, int64_t n)
{
    float acc[KV_LANES] = {0};
    int64_t i = 0;
    for (; i + KV_LANES <= n; i += KV_LANES) {
#pragma omp simd
        for (int64_t j = 0; j < KV_LANES; j++) {
            float e = kv_exp_neg(x[i + j] - max);
            y[i + j] = e;
            acc[j] += e;
        }
    }
    if (i < n) { /* the rest gives 0 */
        float end[KV_LANES];
        int64_t w = kv_tail(x + i, n - i, -INFINITY, end);
        KV_LANES_LOOP(w, float e = kv_exp_neg(end[j] - max); end[j] = e; acc[j] += e)
        memcpy(y + i, end, (size_t)(n - i) * sizeof *y);
    }
    return kv_sum_of_lanes(acc);
}

static void softmax_row(bool log, const float *x, float *y, int64_t n)
{
    float max = row_max(x, n);
    /* a row of minus infinities (all masked) gives NaN as the definition does */
    if (!log) {
        float inv = 1.0f / row_exp(x, max, y, n);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            y[j] *= inv;
        }
        return;
    }
    float buf[KV_BLOCK], sum = 0.0f;
    for (int64_t c = 0; c < n; c += KV_BLOCK) {
        sum += row_exp(x + c, max, buf, kv_min_i64(KV_BLOCK, n - c));
    }
    float ln = kv_log(sum); /* by itself: beside a large maximum it would lose its digits */
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        y[j] = (x[j] - max) - ln;
    }
}

/* bf16 rows of any length: three passes over the row, a block at a time. */
static void softmax_row_bf16(bool log, const uint16_t *x, uint16_t *y, int64_t n)
{
    float buf[KV_BLOCK], max = -INFINITY, sum = 0.0f;
    for (int64_t c = 0; c < n; c += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - c);
        kv_widen(x + c, buf, w);
        max = kv_max(row_max(buf, w), max);
    }
    for (int64_t c = 0; c < n; c += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - c);
        kv_widen(x + c, buf, w);
        sum += row_exp(buf, max, buf, w);
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
    for (int64_t r = 0; r < rows; r++) {
        if (t == RU_F32) {
            softmax_row(log, (const float *)x + r * cols, (float *)y + r * cols, cols);
        } else {
            softmax_row_bf16(log, (const uint16_t *)x + r * cols, (uint16_t *)y + r * cols, cols);
        }
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
