/* Layer normalisation forward and backward, and the moments that the other normalisations need.
 * Variance is the mean square of deviations from the mean (two passes over a row that is in L1). */
#include "exec/cpu/kern/isa.h"

static float row_sum(const float *x, int64_t n)
{
    float acc[KV_LANES] = {0};
    int64_t i = 0;
    for (; i + KV_LANES <= n; i += KV_LANES) {
#pragma omp simd
        for (int64_t j = 0; j < KV_LANES; j++) {
            acc[j] += x[i + j];
        }
    }
    int64_t left = n - i;
#pragma omp simd
    for (int64_t j = 0; j < left; j++) {
        acc[j] += x[i + j];
    }
    return kv_lanes_sum(acc);
}

static float row_sum_dev2(const float *x, float mean, int64_t n)
{
    float acc[KV_LANES] = {0};
    int64_t i = 0;
    for (; i + KV_LANES <= n; i += KV_LANES) {
#pragma omp simd
        for (int64_t j = 0; j < KV_LANES; j++) {
            float d = x[i + j] - mean;
            acc[j] += d * d;
        }
    }
    int64_t left = n - i;
#pragma omp simd
    for (int64_t j = 0; j < left; j++) {
        float d = x[i + j] - mean;
        acc[j] += d * d;
    }
    return kv_lanes_sum(acc);
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

void RUI_K(rui_kern_layernorm)(ru_dtype t, const void *x, const float *scale, const float *bias,
                               float epsilon, void *y, float *mean, float *invstd, int64_t rows,
                               int64_t cols)
{
    float bx[KV_BLOCK], by[KV_BLOCK];
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
    *sum1 += kv_lanes_sum(a1);
    *sum2 += kv_lanes_sum(a2);
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
