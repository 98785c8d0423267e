/* Normalisation over a group of whole channels of one sample: [channels, inner], contiguous. */
#include "exec/cpu/kern/isa.h"

void RUI_K(rui_kern_groupnorm)(ru_dtype t, const void *x, const float *scale, const float *bias,
                               float epsilon, void *y, int64_t channels, int64_t inner)
{
    float bx[KV_BLOCK], by[KV_BLOCK], mean, invstd;
    RUI_K(rui_kern_moments)(t, x, channels * inner, epsilon, &mean, &invstd);
    for (int64_t c = 0; c < channels; c++) {
        float mul = invstd * (scale != NULL ? scale[c] : 1.0f);
        float add = bias != NULL ? bias[c] : 0.0f;
        for (int64_t i = 0; i < inner; i += KV_BLOCK) {
            int64_t w = kv_min_i64(KV_BLOCK, inner - i), at = c * inner + i;
            const float *s = kv_load(t, x, at, w, bx);
            float *o = kv_dest(t, y, at, by);
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                o[j] = (s[j] - mean) * mul + add;
            }
            kv_store(t, y, at, w, by);
        }
    }
}

/* Sums of dy and of dy * (x - mean). */
static void channel_sums(ru_dtype t, const void *dy, const void *x, float mean, int64_t at,
                         int64_t n, float *sum, float *dot)
{
    float bd[KV_BLOCK], bx[KV_BLOCK], a1[KV_LANES] = {0}, a2[KV_LANES] = {0};
    for (int64_t i = 0; i < n; i += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - i);
        const float *d = kv_load(t, dy, at + i, w, bd), *s = kv_load(t, x, at + i, w, bx);
        for (int64_t j = 0; j < w; j += KV_LANES) {
            int64_t m = kv_min_i64(KV_LANES, w - j);
            const float *dj = d + j, *sj = s + j;
#pragma omp simd
            for (int64_t l = 0; l < m; l++) {
                a1[l] += dj[l];
                a2[l] += dj[l] * (sj[l] - mean);
            }
        }
    }
    *sum = kv_lanes_sum(a1);
    *dot = kv_lanes_sum(a2);
}

/* dx = invstd * (dy*scale - mean(dy*scale) - xhat * mean(dy*scale*xhat)) */
void RUI_K(rui_kern_groupnorm_grad)(ru_dtype t, const void *dy, const void *x, const float *scale,
                                    float epsilon, void *dx, float *dscale, float *dbias,
                                    int64_t channels, int64_t inner)
{
    float bd[KV_BLOCK], bx[KV_BLOCK], bo[KV_BLOCK], mean, invstd, sum = 0.0f, dot = 0.0f;
    float count = (float)(channels * inner);
    RUI_K(rui_kern_moments)(t, x, channels * inner, epsilon, &mean, &invstd);
    for (int64_t c = 0; c < channels; c++) {
        channel_sums(t, dy, x, mean, c * inner, inner, &dbias[c], &dscale[c]);
        dscale[c] *= invstd;
        sum += scale[c] * dbias[c];
        dot += scale[c] * dscale[c];
    }
    float m1 = sum / count, m2 = dot / count * invstd;
    for (int64_t c = 0; c < channels; c++) {
        float g = scale[c];
        for (int64_t i = 0; i < inner; i += KV_BLOCK) {
            int64_t w = kv_min_i64(KV_BLOCK, inner - i), at = c * inner + i;
            const float *d = kv_load(t, dy, at, w, bd), *s = kv_load(t, x, at, w, bx);
            float *o = kv_dest(t, dx, at, bo);
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                o[j] = invstd * (d[j] * g - m1 - (s[j] - mean) * m2);
            }
            kv_store(t, dx, at, w, bo);
        }
    }
}

/* -- the table of one instruction set -------------------------------------------------------------
 */

#define RUI_TEXT2(x) #x
#define RUI_TEXT1(x) RUI_TEXT2(x)

#define RU_X(ret, fn, args) .fn = RUI_K(rui_kern_##fn),
const ru_kern RUI_K(rui_kern_table) = {.name = RUI_TEXT1(RU_KERN_ISA), RU_KERN_LIST(RU_X)};
#ifdef __AVX512F__
/* The same but for gemm_bf16_packs, which the macro renames before RUI_K pastes the name. */
#define rui_kern_gemm_bf16_packs rui_kern_gemm_bf16_pairs
extern const ru_kern rui_kern_table_avx512_bf16;
const ru_kern rui_kern_table_avx512_bf16 = {.name = "avx512_bf16", RU_KERN_LIST(RU_X)};
#undef rui_kern_gemm_bf16_packs
#endif
#undef RU_X
