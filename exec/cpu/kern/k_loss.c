/* Losses: softmax with cross-entropy in one pass over the logits, binary cross-entropy of logits,
 * mean square. Sums over elements follow the order of k_reduce.c within a call. */
#include "exec/cpu/kern/isa.h"

static int64_t label_at(ru_dtype lt, const void *labels, int64_t r)
{
    return lt == RU_I64 ? ((const int64_t *)labels)[r] : ((const int32_t *)labels)[r];
}

/* Place of the first maximum. */
static int64_t first_max(const float *x, int64_t n, float max)
{
    for (int64_t i = 0; i < n; i++) {
        if (x[i] == max) {
            return i;
        }
    }
    return 0;
}

/* Sum of a row (label smoothing needs the mean logit). */
static float row_sum(ru_dtype t, const void *x, int64_t at, int64_t n)
{
    const char *p = (const char *)x + at * (t == RU_F32 ? 4 : 2);
    return RUI_K(rui_kern_reduce)(RU_KERN_RED_SUM, t, p, n, 1, 0);
}

static void put(ru_dtype t, void *y, int64_t at, float v)
{
    if (t == RU_F32) {
        ((float *)y)[at] = v;
    } else {
        ((uint16_t *)y)[at] = kv_to_bf16(v);
    }
}

static float get(ru_dtype t, const void *x, int64_t at)
{
    return t == RU_F32 ? ((const float *)x)[at] : kv_from_bf16(((const uint16_t *)x)[at]);
}

typedef struct row_stats {
    float max, lse;
    int64_t argmax;
} row_stats;

/* probs and log-sum-exp of one row; reads the row twice, writes it once (probs may equal x). */
static row_stats softmax_row(ru_dtype t, const void *x, void *probs, int64_t at, int64_t n)
{
    float buf[KV_BLOCK], out[KV_BLOCK], acc[KV_LANES] = {0};
    row_stats s = {.max = -INFINITY};
    for (int64_t c = 0; c < n; c += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - c);
        const float *v = kv_load(t, x, at + c, w, buf);
        float m = RUI_K(rui_kern_reduce)(RU_KERN_RED_MAX, RU_F32, v, w, 1, 0);
        if (m > s.max || m != m) {
            s.max = m;
            s.argmax = c + first_max(v, w, m);
        }
    }
    for (int64_t c = 0; c < n; c += KV_LANES) {
        int64_t w = kv_min_i64(KV_LANES, n - c);
        const float *v = kv_load(t, x, at + c, w, buf);
        float m = s.max;
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            acc[j] += kv_exp_neg(v[j] - m);
        }
    }
    float sum = kv_lanes_sum(acc), inv = 1.0f / sum, m = s.max;
    for (int64_t c = 0; c < n; c += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - c);
        const float *v = kv_load(t, x, at + c, w, buf);
        float *o = kv_dest(t, probs, at + c, out);
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            o[j] = kv_exp_neg(v[j] - m) * inv;
        }
        kv_store(t, probs, at + c, w, out);
    }
    s.lse = s.max + kv_log(sum);
    return s;
}

/* Sum of w[c] x[c] over a row; x NULL: of w alone. */
static float weighted_sum(ru_dtype t, const float *w, const void *x, int64_t at, int64_t n)
{
    float buf[KV_BLOCK], acc[KV_LANES] = {0};
    for (int64_t c = 0; c < n; c += KV_LANES) {
        int64_t m = kv_min_i64(KV_LANES, n - c);
        const float *v = x != NULL ? kv_load(t, x, at + c, m, buf) : NULL;
#pragma omp simd
        for (int64_t j = 0; j < m; j++) {
            acc[j] += v != NULL ? w[c + j] * v[j] : w[c + j];
        }
    }
    return kv_lanes_sum(acc);
}

int64_t RUI_K(rui_kern_cross_entropy)(ru_dtype t, const void *x, ru_dtype lt, const void *labels,
                                      const float *weight, int64_t ignore_index, float smoothing,
                                      void *probs, float *loss, float *row_weight, uint8_t *flags,
                                      int64_t rows, int64_t cols)
{
    bool both = smoothing > 0.0f && weight != NULL; /* each class aims with its own weight */
    float even = smoothing / (float)cols;
    float weights = both ? weighted_sum(t, weight, NULL, 0, cols) : 0.0f;
    for (int64_t r = 0; r < rows; r++) {
        int64_t label = label_at(lt, labels, r), at = r * cols;
        if (label == ignore_index) {
            (void)softmax_row(t, x, probs, at, cols);
            loss[r] = row_weight[r] = 0.0f;
            flags[r] = 0;
            continue;
        }
        if (label < 0 || label >= cols) {
            return r;
        }
        float logit = get(t, x, at + label);
        float mean = both               ? weighted_sum(t, weight, x, at, cols)
                     : smoothing > 0.0f ? row_sum(t, x, at, cols) / (float)cols
                                        : 0.0f;
        row_stats s = softmax_row(t, x, probs, at, cols);
        float w = weight == NULL ? 1.0f : weight[label];
        float nll = s.lse - logit;
        if (smoothing > 0.0f && !both) {
            nll = (1.0f - smoothing) * nll + smoothing * (s.lse - mean);
        }
        loss[r] = both ? (1.0f - smoothing) * w * nll + even * (weights * s.lse - mean) : w * nll;
        row_weight[r] = w;
        flags[r] = (uint8_t)(s.argmax == label ? 3 : 1);
    }
    return -1;
}

/* One row with smoothing and weights: p sum(aims) - aims, aims = (1 - e) w_y [c = y] + e/C w_c. */
static void weighted_grad_row(ru_dtype t, const void *probs, const float *weight, float smoothing,
                              float aims, int64_t label, float scale, void *dx, int64_t at,
                              int64_t cols)
{
    float buf[KV_BLOCK], out[KV_BLOCK], even = smoothing / (float)cols;
    float hit = (1.0f - smoothing) * weight[label];
    float of_label =
        (get(t, probs, at + label) * (hit + aims) - even * weight[label] - hit) * scale;
    for (int64_t c = 0; c < cols; c += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, cols - c);
        const float *p = kv_load(t, probs, at + c, w, buf);
        float *o = kv_dest(t, dx, at + c, out);
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            o[j] = (p[j] * (hit + aims) - even * weight[c + j]) * scale;
        }
        kv_store(t, dx, at + c, w, out);
    }
    put(t, dx, at + label, of_label);
}

void RUI_K(rui_kern_cross_entropy_grad)(ru_dtype t, const void *probs, ru_dtype lt,
                                        const void *labels, const float *weight,
                                        int64_t ignore_index, float smoothing, float scale,
                                        void *dx, int64_t rows, int64_t cols)
{
    float buf[KV_BLOCK], out[KV_BLOCK];
    bool both = smoothing > 0.0f && weight != NULL;
    float aims = both ? smoothing / (float)cols * weighted_sum(t, weight, NULL, 0, cols) : 0.0f;
    for (int64_t r = 0; r < rows; r++) {
        int64_t label = label_at(lt, labels, r), at = r * cols;
        bool counts = label != ignore_index && label >= 0 && label < cols;
        if (both && counts) {
            weighted_grad_row(t, probs, weight, smoothing, aims, label, scale, dx, at, cols);
            continue;
        }
        float s = counts ? (weight == NULL ? scale : scale * weight[label]) : 0.0f;
        float base = smoothing / (float)cols;
        float hit = counts ? (get(t, probs, at + label) - base - (1.0f - smoothing)) * s : 0.0f;
        for (int64_t c = 0; c < cols; c += KV_BLOCK) {
            int64_t w = kv_min_i64(KV_BLOCK, cols - c);
            const float *p = kv_load(t, probs, at + c, w, buf);
            float *o = kv_dest(t, dx, at + c, out);
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                o[j] = (p[j] - base) * s;
            }
            kv_store(t, dx, at + c, w, out);
        }
        if (counts) {
            put(t, dx, at + label, hit);
        } else {
            memset((char *)dx + at * (t == RU_F32 ? 4 : 2), 0,
                   (size_t)cols * (t == RU_F32 ? 4 : 2));
        }
    }
}

float RUI_K(rui_kern_bce)(ru_dtype t, const void *x, const void *y, int64_t n)
{
    float b1[KV_BLOCK], b2[KV_BLOCK], acc[KV_LANES] = {0};
    for (int64_t i = 0; i < n; i += KV_LANES) {
        int64_t w = kv_min_i64(KV_LANES, n - i);
        const float *xs = kv_load(t, x, i, w, b1), *ys = kv_load(t, y, i, w, b2);
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            float v = xs[j];
            acc[j] += kv_softplus(v) - v * ys[j];
        }
    }
    return kv_lanes_sum(acc);
}

void RUI_K(rui_kern_bce_grad)(ru_dtype t, float scale, const void *x, const void *y, void *dx,
                              int64_t n)
{
    float b1[KV_BLOCK], b2[KV_BLOCK], b3[KV_BLOCK];
    for (int64_t i = 0; i < n; i += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - i);
        const float *xs = kv_load(t, x, i, w, b1), *ys = kv_load(t, y, i, w, b2);
        float *o = kv_dest(t, dx, i, b3);
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            o[j] = (kv_sigmoid(xs[j]) - ys[j]) * scale;
        }
        kv_store(t, dx, i, w, b3);
    }
}

float RUI_K(rui_kern_mse)(ru_dtype t, const void *x, const void *y, int64_t n)
{
    float b1[KV_BLOCK], b2[KV_BLOCK], acc[KV_LANES] = {0};
    for (int64_t i = 0; i < n; i += KV_LANES) {
        int64_t w = kv_min_i64(KV_LANES, n - i);
        const float *xs = kv_load(t, x, i, w, b1), *ys = kv_load(t, y, i, w, b2);
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            float d = xs[j] - ys[j];
            acc[j] += d * d;
        }
    }
    return kv_lanes_sum(acc);
}

void RUI_K(rui_kern_mse_grad)(ru_dtype t, float scale, const void *x, const void *y, void *dx,
                              int64_t n)
{
    float b1[KV_BLOCK], b2[KV_BLOCK], b3[KV_BLOCK];
    for (int64_t i = 0; i < n; i += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - i);
        const float *xs = kv_load(t, x, i, w, b1), *ys = kv_load(t, y, i, w, b2);
        float *o = kv_dest(t, dx, i, b3);
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            o[j] = (xs[j] - ys[j]) * (2.0f * scale);
        }
        kv_store(t, dx, i, w, b3);
    }
}
