/* Matrix product for what the library does not reach: small sizes inside attention and recurrence,
 * with packed right-hand sides and any strides on the left.
 *
 *   B is packed into panels of GEMM_NR columns, k rows each; A is read in place (or packed when
 * many panels reuse it); a block of up to GEMM_MR rows x GEMM_NR columns of C stays in registers.
 *
 * The sum over k runs in order within blocks of GEMM_KC, so a result does not depend on how rows
 * and columns were split among threads. */
#define GEMM_T     float
#define GEMM_ANY_A 1
#include "exec/cpu/kern/gemm_tile.h"

enum { GEMM_KC = 256, GEMM_PACK_A_PANELS = 5 };

int64_t RUI_K(rui_kern_gemm_pack_floats)(int64_t k, int64_t n)
{
    return k * ((n + GEMM_NR - 1) / GEMM_NR * GEMM_NR);
}

static void pack_panel(const float *b, int64_t b_row, int64_t b_col, int64_t k, int64_t n,
                       float *to)
{
    if (b_col == 1 && n == GEMM_NR) {
        for (int64_t p = 0; p < k; p++, to += GEMM_NR) {
            memcpy(to, b + p * b_row, sizeof(float) * GEMM_NR);
        }
        return;
    }
    if (b_col != 1 && n == GEMM_NR) {
        int64_t p = 0;
        for (; p + 8 <= k; p += 8) {
            for (int64_t j = 0; j < GEMM_NR; j++) {
                const float *s = b + j * b_col + p * b_row;
                for (int64_t q = 0; q < 8; q++) {
                    to[(p + q) * GEMM_NR + j] = s[q * b_row];
                }
            }
        }
        for (; p < k; p++) {
            for (int64_t j = 0; j < GEMM_NR; j++) {
                to[p * GEMM_NR + j] = b[j * b_col + p * b_row];
            }
        }
        return;
    }
    for (int64_t p = 0; p < k; p++, to += GEMM_NR) {
        for (int64_t j = 0; j < GEMM_NR; j++) {
            to[j] = j < n ? b[p * b_row + j * b_col] : 0.0f;
        }
    }
}

/* Panels of block k0 start at packed + k0 * (columns rounded up). */
void RUI_K(rui_kern_gemm_pack)(const float *b, int64_t b_row, int64_t b_col, int64_t k, int64_t n,
                               float *packed)
{
    for (int64_t k0 = 0; k0 < k; k0 += GEMM_KC) {
        int64_t kc = kv_min_i64(GEMM_KC, k - k0);
        for (int64_t j = 0; j < n; j += GEMM_NR) {
            pack_panel(b + k0 * b_row + j * b_col, b_row, b_col, kc, kv_min_i64(GEMM_NR, n - j),
                       packed);
            packed += kc * GEMM_NR;
        }
    }
}

/* A pays its packing when it is read for many panels and there are many rows. */
static bool packs_a(int64_t m, int64_t n)
{
    return n > GEMM_PACK_A_PANELS * GEMM_NR && m > 4 * GEMM_MR;
}

int64_t RUI_K(rui_kern_gemm_work)(int64_t m, int64_t n, int64_t k)
{
    (void)m;
    return RUI_K(rui_kern_gemm_pack_floats)(k < GEMM_KC ? k : GEMM_KC, n) + GEMM_KC * 16;
}

/* a[i, p] -> to[p * mr + i] */
static void pack_a(const float *a, int64_t a_row, int64_t a_col, int64_t mr, int64_t k, float *to)
{
#ifdef __AVX512F__
    const __mmask16 rows = (__mmask16)((1u << mr) - 1);
    for (int64_t p = 0; a_row == 1 && p < k; p++) {
        _mm512_mask_storeu_ps(to + p * mr, rows, _mm512_maskz_loadu_ps(rows, a + p * a_col));
    }
    if (a_row == 1) {
        return;
    }
#endif
    for (int64_t p = 0; p < k; p++) {
        for (int64_t i = 0; i < mr; i++) {
            to[p * mr + i] = a[i * a_row + p * a_col];
        }
    }
}

/* One block of k: all rows and columns. When A is packed the rows run outside, else the panels,
 * which then stay in L1 for all rows. */
static void block(const ru_kern_gemm *g, int64_t k0, int64_t kc, int64_t panel_k,
                  const float *panels, float *a_work)
{
    int64_t blocks = (g->m + GEMM_MR - 1) / GEMM_MR, columns = (g->n + GEMM_NR - 1) / GEMM_NR;
    bool pack = packs_a(g->m, g->n);
    gemm_tile t = {
        .k = kc, .b_row = GEMM_NR, .c_row = g->c_row, .alpha = g->alpha, .add = g->add || k0 > 0};
    for (int64_t x = 0; x < blocks * columns; x++) {
        int64_t ib = pack ? x / columns : x % blocks, jb = pack ? x % columns : x / blocks;
        int64_t i0 = g->m * ib / blocks, i1 = g->m * (ib + 1) / blocks, j = jb * GEMM_NR;
        t.a = g->a + i0 * g->a_row + k0 * g->a_col;
        t.a_row = g->a_row;
        t.a_col = g->a_col;
        if (pack) {
            if (jb == 0) {
                pack_a(t.a, t.a_row, t.a_col, i1 - i0, kc, a_work);
            }
            t.a = a_work;
            t.a_row = 1;
            t.a_col = i1 - i0;
        } else if (t.a_row != 1 && t.a_col != 1) {
            t.a_row = 1; /* k is 1 or m is 1: either stride will do */
        }
        t.b = panels + j * panel_k;
        t.c = g->c + i0 * g->c_row + j;
        t.n = kv_min_i64(GEMM_NR, g->n - j);
        run_tile(i1 - i0, &t);
    }
}

/* One row: four sums along k, added pairwise. */
static void thin_row(const ru_kern_gemm *g, int64_t k0, int64_t kc, const float *panels)
{
    const float *a = g->a + k0 * g->a_col;
    for (int64_t j = 0; j < g->n; j += GEMM_NR) {
        const float *b = panels + j * kc;
        gemm_v acc[4][2] = {{{0}}};
        int64_t p = 0;
        for (; p + 4 <= kc; p += 4, b += 4 * GEMM_NR) {
#pragma GCC unroll 4
            for (int64_t q = 0; q < 4; q++) {
                float v = a[(p + q) * g->a_col];
                acc[q][0] += v * vload(b + q * GEMM_NR);
                acc[q][1] += v * vload(b + q * GEMM_NR + GEMM_W);
            }
        }
        for (; p < kc; p++, b += GEMM_NR) {
            acc[0][0] += a[p * g->a_col] * vload(b);
            acc[0][1] += a[p * g->a_col] * vload(b + GEMM_W);
        }
        gemm_tile t = {
            .n = kv_min_i64(GEMM_NR, g->n - j), .alpha = g->alpha, .add = g->add || k0 > 0};
        put_row(&t, g->c + j, (acc[0][0] + acc[1][0]) + (acc[2][0] + acc[3][0]),
                (acc[0][1] + acc[1][1]) + (acc[2][1] + acc[3][1]));
    }
}

void RUI_K(rui_kern_gemm)(const ru_kern_gemm *g)
{
    int64_t n_all = g->packed_n > g->n ? g->packed_n : g->n;
    int64_t wide = (n_all + GEMM_NR - 1) / GEMM_NR * GEMM_NR;
    if (g->k == 0 && !g->add) {
        for (int64_t i = 0; i < g->m; i++) {
            memset(g->c + i * g->c_row, 0, sizeof(float) * (size_t)g->n);
        }
    }
    float *a_work = g->work;
    if (g->packed_b == NULL && g->work != NULL) {
        a_work += RUI_K(rui_kern_gemm_pack_floats)(g->k < GEMM_KC ? g->k : GEMM_KC, g->n);
    }
    for (int64_t k0 = 0; k0 < g->k; k0 += GEMM_KC) {
        int64_t kc = kv_min_i64(GEMM_KC, g->k - k0), panel_k = kc;
        const float *panels = g->packed_b != NULL ? g->packed_b + k0 * wide : NULL;
        if (g->packed_b != NULL && g->packed_k > g->k) {
            panel_k = kv_min_i64(GEMM_KC, g->packed_k - k0);
        }
        if (g->packed_b == NULL) {
            RUI_K(rui_kern_gemm_pack)
            (g->b + k0 * g->b_row, g->b_row, g->b_col, kc, g->n, g->work);
            panels = g->work;
        }
        if (g->thin && g->m == 1 && panel_k == kc) {
            thin_row(g, k0, kc, panels);
        } else {
            block(g, k0, kc, panel_k, panels, a_work);
        }
    }
}
