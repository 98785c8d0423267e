/* Layer normalisation forward and backward, and the moments that the other normalisations need.
 * Variance is the mean square of deviations from the mean (two passes over a row that is in L1). */
#include "exec/cpu/kern/isa.h"
#include "exec/cpu/kern/lanes.h"

enum { SHORT_ROWS = 16, SHORT_MAX = 32 };

static float row_sum(const float *x, int64_t n)
{
    if (n <= 16) {
        float few[16];
        (void)kv_tail(x, n, 0.0f, few);
        return kv_sum_of_16(few);
    }
    float acc[KV_LANES] = {0};
    int64_t i = 0;
    for (; i + KV_LANES <= n; i += KV_LANES) {
#pragma omp simd
        for (int64_t j = 0; j < KV_LANES; j++) {
            acc[j] += x[i + j];
        }
    }
    if (i < n) {
        float end[KV_LANES];
        int64_t w = kv_tail(x + i, n - i, 0.0f, end);
        KV_LANES_LOOP(w, acc[j] += end[j])
    }
    return kv_sum_of_lanes(acc);
}

static float row_sum_dev2(const float *x, float mean, int64_t n)
{
    if (n <= 16) {
        float few[16];
        (void)kv_tail(x, n, mean, few);
        KV_LANES_LOOP(16, float d = few[j] - mean; few[j] = d * d)
        return kv_sum_of_16(few);
    }
    float acc[KV_LANES] = {0};
    int64_t i = 0;
    for (; i + KV_LANES <= n; i += KV_LANES) {
#pragma omp simd
        for (int64_t j = 0; j < KV_LANES; j++) {
            float d = x[i + j] - mean;
            acc[j] += d * d;
        }
    }
    if (i < n) {
        float end[KV_LANES];
        int64_t w = kv_tail(x + i, n - i, mean, end);
        KV_LANES_LOOP(w, float d = end[j] - mean; acc[j] += d * d)
    }
    return kv_sum_of_lanes(acc);
}

void RUI_K(rui_kern_moments)(ru_dtype t, const void *x, int64_t n, float epsilon, float *mean,
                             float *invstd)
{
    float buf[KV_BLOCK], sum = 0.0f, dev = 0.0f;
    int64_t block = t == RU_F32 ? n : KV_BLOCK;
    for (int64_t i = 0; i < n; i += block) {
        int64_t w = kv_min_i64(block, n - i);
        sum += row_sum(kv_load(t, x, i, w, buf), w);
    }
    float mu = sum / (float)n;
    for (int64_t i = 0; i < n; i += block) {
        int64_t w = kv_min_i64(block, n - i);
        dev += row_sum_dev2(kv_load(t, x, i, w, buf), mu, w);
    }
    *mean = mu;
    *invstd = 1.0f / sqrtf(dev / (float)n + epsilon);
}

/* Rows of at most SHORT_MAX elements, `rows` of them side by side, each summed in the order of its
 * elements. */
RU_KERN_INLINE void layernorm_short(const float *x, const float *scale, const float *bias,
                                    float epsilon, float *y, float *mean, float *invstd,
                                    const int64_t rows, int64_t n)
{
    float e[SHORT_MAX * SHORT_ROWS], mu[SHORT_ROWS] = {0}, is[SHORT_ROWS] = {0};
    const float count = (float)n;
    for (int64_t k = 0; k < n; k++) {
#pragma omp simd
        for (int64_t j = 0; j < rows; j++) {
            e[k * SHORT_ROWS + j] = x[j * n + k];
            mu[j] += e[k * SHORT_ROWS + j];
        }
    }
#pragma omp simd
    for (int64_t j = 0; j < rows; j++) {
        mu[j] /= count;
    }
    for (int64_t k = 0; k < n; k++) {
#pragma omp simd
        for (int64_t j = 0; j < rows; j++) {
            float d = e[k * SHORT_ROWS + j] - mu[j];
            is[j] += d * d;
        }
    }
#pragma omp simd
    for (int64_t j = 0; j < rows; j++) {
        is[j] = 1.0f / sqrtf(is[j] / count + epsilon);
    }
    for (int64_t j = 0; j < rows; j++) {
        for (int64_t k = 0; k < n; k++) {
            float v = (e[k * SHORT_ROWS + j] - mu[j]) * is[j] * scale[k];
            y[j * n + k] = bias != NULL ? v + bias[k] : v;
        }
        if (mean != NULL) {
            mean[j] = mu[j];
        }
        if (invstd != NULL) {
            invstd[j] = is[j];
        }
    }
}

static void layernorm_rows_short(const float *x, const float *scale, const float *bias,
                                 float epsilon, float *y, float *mean, float *invstd, int64_t rows,
                                 int64_t n)
{
    for (int64_t r = 0; r < rows; r += SHORT_ROWS) {
        float *m = mean != NULL ? mean + r : NULL, *s = invstd != NULL ? invstd + r : NULL;
        const float *from = x + r * n;
        if (rows - r >= SHORT_ROWS) {
            layernorm_short(from, scale, bias, epsilon, y + r * n, m, s, SHORT_ROWS, n);
        } else {
            layernorm_short(from, scale, bias, epsilon, y + r * n, m, s, rows - r, n);
        }
    }
}

void RUI_K(rui_kern_layernorm)(ru_dtype t, const void *x, const float *scale, const float *bias,
                               float epsilon, void *y, float *mean, float *invstd, int64_t rows,
                               int64_t cols)
{
    float bx[KV_BLOCK], by[KV_BLOCK];
    if (t == RU_F32 && cols <= SHORT_MAX) {
        layernorm_rows_short(x, scale, bias, epsilon, y, mean, invstd, rows, cols);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        float mu, is;
        const char *row = (const char *)x + r * cols * (t == RU_F32 ? 4 : 2);
        RUI_K(rui_kern_moments)(t, row, cols, epsilon, &mu, &is);
        if (mean != NULL) {
            mean[r] = mu;
        }
        if (invstd != NULL) {
            invstd[r] = is;
        }
        for (int64_t c = 0; c < cols; c += KV_BLOCK) {
            int64_t w = kv_min_i64(KV_BLOCK, cols - c);
            const float *s = kv_load(t, x, r * cols + c, w, bx);
            float *o = kv_dest(t, y, r * cols + c, by);
            const float *g = scale + c;
            if (bias != NULL) {
                const float *b = bias + c;
#pragma omp simd
                for (int64_t j = 0; j < w; j++) {
                    o[j] = (s[j] - mu) * is * g[j] + b[j];
                }
            } else {
#pragma omp simd
                for (int64_t j = 0; j < w; j++) {
                    o[j] = (s[j] - mu) * is * g[j];
                }
            }
            kv_store(t, y, r * cols + c, w, by);
        }
    }
}

/* Sums of dy*scale and dy*scale*xhat over a stretch of a row; adds dy and dy*xhat to the columns.
 */
static void grad_sums(const float *dy, const float *x, const float *g, float mu, float is,
                      int64_t n, float *dscale, float *dbias, float *sum1, float *sum2)
{
    float a1[KV_LANES] = {0}, a2[KV_LANES] = {0};
    for (int64_t i = 0; i < n; i += KV_LANES) {
        int64_t w = kv_min_i64(KV_LANES, n - i);
        const float *d = dy + i, *s = x + i, *gs = g + i;
        float *ds = dscale + i, *db = dbias + i;
        if (w == KV_LANES) {
#pragma omp simd
            for (int64_t j = 0; j < KV_LANES; j++) {
                float h = (s[j] - mu) * is, v = d[j] * gs[j];
                a1[j] += v;
                a2[j] += v * h;
                ds[j] += d[j] * h;
                db[j] += d[j];
            }
        } else {
            for (int64_t j = 0; j < w; j++) {
                float h = (s[j] - mu) * is, v = d[j] * gs[j];
                a1[j] += v;
                a2[j] += v * h;
                ds[j] += d[j] * h;
                db[j] += d[j];
            }
        }
    }
    *sum1 += kv_sum_of_lanes(a1);
    *sum2 += kv_sum_of_lanes(a2);
}

/* dx = invstd * (dy*scale - mean(dy*scale) - xhat * mean(dy*scale*xhat)) */
static void grad_row(ru_dtype t, const void *dy, const void *x, const float *scale, float mu,
                     float is, void *dx, float *dscale, float *dbias, int64_t at, int64_t cols)
{
    float b1[KV_BLOCK], b2[KV_BLOCK], b3[KV_BLOCK];
    float sum1 = 0.0f, sum2 = 0.0f;
    for (int64_t c = 0; c < cols; c += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, cols - c);
        grad_sums(kv_load(t, dy, at + c, w, b1), kv_load(t, x, at + c, w, b2), scale + c, mu, is, w,
                  dscale + c, dbias + c, &sum1, &sum2);
    }
    float m1 = sum1 / (float)cols, m2 = sum2 / (float)cols;
    for (int64_t c = 0; c < cols; c += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, cols - c);
        const float *d = kv_load(t, dy, at + c, w, b1), *s = kv_load(t, x, at + c, w, b2);
        const float *g = scale + c;
        float *o = kv_dest(t, dx, at + c, b3);
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            float h = (s[j] - mu) * is;
            o[j] = is * (d[j] * g[j] - m1 - h * m2);
        }
        kv_store(t, dx, at + c, w, b3);
    }
}

void RUI_K(rui_kern_layernorm_grad)(ru_dtype t, const void *dy, const void *x, const float *scale,
                                    const float *mean, const float *invstd, void *dx, float *dscale,
                                    float *dbias, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        grad_row(t, dy, x, scale, mean[r], invstd[r], dx, dscale, dbias, r * cols, cols);
    }
}
