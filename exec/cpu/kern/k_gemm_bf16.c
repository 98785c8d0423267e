/* Matrix product of bf16 operands with f32 sums, for the recurrence on the bf16 path: pairs along k
 * are multiplied and added by one instruction (AVX512_BF16). Where the CPU has none gemm_bf16_packs
 * says no, and callers widen instead; the level avx512_bf16 asks rui_kern_gemm_bf16_pairs in its
 * place and is avx512 in all else (k_group.c).
 *
 *   packed: blocks of BF_KC along k; in each, panels of 32 columns; for each pair of k:
 *           32 x (b[k], b[k+1]). A panel of one block (32 KB) stays in L1 for all rows. */
#include "exec/cpu/kern/isa.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

enum { BF_MR = 14, BF_NR = 32, BF_KC = 512 };

bool RUI_K(rui_kern_gemm_bf16_packs)(int64_t k)
{
    (void)k;
    return false;
}

bool RUI_K(rui_kern_gemm_bf16_pairs)(int64_t k)
{
    return k % 2 == 0;
}

/* One panel; rows of b that are contiguous along k are read in that direction. */
static void pack_panel(const float *b, int64_t b_row, int64_t b_col, int64_t k, int64_t w,
                       uint16_t *to)
{
    if (w < BF_NR) {
        memset(to, 0, sizeof(uint16_t) * (size_t)(k * BF_NR));
    }
    if (b_row == 1) {
        for (int64_t j = 0; j < w; j++) {
            const float *s = b + j * b_col;
            for (int64_t p = 0; p < k; p += 2) {
                to[p * BF_NR + 2 * j] = kv_to_bf16(s[p]);
                to[p * BF_NR + 2 * j + 1] = kv_to_bf16(s[p + 1]);
            }
        }
        return;
    }
    for (int64_t p = 0; p < k; p += 2) {
        const float *s = b + p * b_row;
        uint16_t *o = to + p * BF_NR;
        for (int64_t j = 0; j < w; j++) {
            o[2 * j] = kv_to_bf16(s[j * b_col]);
            o[2 * j + 1] = kv_to_bf16(s[b_row + j * b_col]);
        }
    }
}

void RUI_K(rui_kern_gemm_bf16_pack)(const float *b, int64_t b_row, int64_t b_col, int64_t k,
                                    int64_t n, uint16_t *packed)
{
    for (int64_t k0 = 0; k0 < k; k0 += BF_KC) {
        int64_t kc = kv_min_i64(BF_KC, k - k0);
        for (int64_t j0 = 0; j0 < n; j0 += BF_NR) {
            pack_panel(b + k0 * b_row + j0 * b_col, b_row, b_col, kc, kv_min_i64(BF_NR, n - j0),
                       packed);
            packed += kc * BF_NR;
        }
    }
}

typedef struct bf_tile {
    int64_t k, n;
    const uint16_t *a, *b;
    int64_t a_row;
    float *c;
    int64_t c_row;
    bool add;
} bf_tile;

RU_KERN_INLINE void tile(const int64_t mr, const bf_tile *t)
{
    __m512 acc[BF_MR][2];
#pragma GCC unroll 16
    for (int64_t i = 0; i < mr; i++) {
        acc[i][0] = _mm512_setzero_ps();
        acc[i][1] = _mm512_setzero_ps();
    }
    const uint16_t *a = t->a, *b = t->b;
    for (int64_t p = 0; p < t->k; p += 2) {
        __m512bh b0 = (__m512bh)_mm512_loadu_si512(b);
        __m512bh b1 = (__m512bh)_mm512_loadu_si512(b + BF_NR);
#pragma GCC unroll 16
        for (int64_t i = 0; i < mr; i++) {
            int32_t pair;
            memcpy(&pair, a + i * t->a_row + p, sizeof pair);
            __m512bh v = (__m512bh)_mm512_set1_epi32(pair);
            acc[i][0] = _mm512_dpbf16_ps(acc[i][0], v, b0);
            acc[i][1] = _mm512_dpbf16_ps(acc[i][1], v, b1);
        }
        b += 2 * BF_NR;
    }
    __mmask16 m0 = (__mmask16)(t->n >= 16 ? 0xffff : (1 << t->n) - 1);
    __mmask16 m1 = (__mmask16)(t->n >= 32 ? 0xffff : (t->n > 16 ? (1 << (t->n - 16)) - 1 : 0));
#pragma GCC unroll 16
    for (int64_t i = 0; i < mr; i++) {
        float *c = t->c + i * t->c_row;
        if (t->add) {
            acc[i][0] = _mm512_add_ps(acc[i][0], _mm512_maskz_loadu_ps(m0, c));
            acc[i][1] = _mm512_add_ps(acc[i][1], _mm512_maskz_loadu_ps(m1, c + 16));
        }
        _mm512_mask_storeu_ps(c, m0, acc[i][0]);
        _mm512_mask_storeu_ps(c + 16, m1, acc[i][1]);
    }
}

#define BF_CASE(mr)  \
    case mr:         \
        tile(mr, t); \
        break;

static void run_tile(int64_t mr, const bf_tile *t)
{
    switch (mr) {
        BF_CASE(1)
        BF_CASE(2)
        BF_CASE(3)
        BF_CASE(4)
        BF_CASE(5)
        BF_CASE(6)
        BF_CASE(7)
        BF_CASE(8)
        BF_CASE(9)
        BF_CASE(10)
        BF_CASE(11)
        BF_CASE(12)
        BF_CASE(13)
        BF_CASE(14)
    default:
        break;
    }
}

void RUI_K(rui_kern_gemm_bf16)(int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t a_row,
                               const uint16_t *packed, float *c, int64_t c_row, bool add)
{
    int64_t blocks = (m + BF_MR - 1) / BF_MR;
    for (int64_t k0 = 0; k0 < k; k0 += BF_KC) {
        int64_t kc = kv_min_i64(BF_KC, k - k0);
        for (int64_t j = 0; j < n; j += BF_NR) {
            for (int64_t ib = 0; ib < blocks; ib++) {
                int64_t i0 = m * ib / blocks, i1 = m * (ib + 1) / blocks;
                bf_tile t = {.k = kc,
                             .n = kv_min_i64(BF_NR, n - j),
                             .a = a + i0 * a_row + k0,
                             .a_row = a_row,
                             .b = packed,
                             .c = c + i0 * c_row + j,
                             .c_row = c_row,
                             .add = add || k0 > 0};
                run_tile(i1 - i0, &t);
            }
            packed += kc * BF_NR;
        }
    }
}

#else

bool RUI_K(rui_kern_gemm_bf16_packs)(int64_t k)
{
    (void)k;
    return false;
}

void RUI_K(rui_kern_gemm_bf16_pack)(const float *b, int64_t b_row, int64_t b_col, int64_t k,
                                    int64_t n, uint16_t *packed)
{
    (void)b, (void)b_row, (void)b_col, (void)k, (void)n, (void)packed;
    RU_CHECK(RUI_K(rui_kern_gemm_bf16_packs)(k));
}

void RUI_K(rui_kern_gemm_bf16)(int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t a_row,
                               const uint16_t *packed, float *c, int64_t c_row, bool add)
{
    (void)m, (void)n, (void)a, (void)a_row, (void)packed, (void)c, (void)c_row, (void)add;
    RU_CHECK(RUI_K(rui_kern_gemm_bf16_packs)(k));
}
#endif
