/* Matrix product of doubles, as k_gemm.c does floats: B in panels of GEMM_NR columns, A in groups
 * of GEMM_MR rows, a tile of C in registers. B is read in place where one group has all rows, since
 * packing would cost as much as the product.
 *
 * A sum over k runs in order within blocks of G64_KC and does not depend on the split. */
#define GEMM_T     double
#define GEMM_ANY_A 0
#include "exec/cpu/kern/gemm_tile.h"

/* A block of B takes 512 KiB, half of a small L2; one of A 224 KiB at most. */
enum { G64_KC = 256, G64_NC = 256, G64_MC = 8 * GEMM_MR };

/* to[p * width + i] = x[i * step + p * k_step] for i < n, 0 up to width. */
RU_KERN_INLINE void pack_group(const double *x, int64_t step, int64_t k_step, int64_t n,
                               const int64_t width, int64_t k, double *to)
{
    if (step == 1 && n == width) {
        for (int64_t p = 0; p < k; p++) {
            memcpy(to + p * width, x + p * k_step, sizeof(double) * (size_t)width);
        }
        return;
    }
    int64_t p = 0;
    for (; step != 1 && n == width && p + 8 <= k; p += 8) { /* a cache line of each row at a time */
        for (int64_t i = 0; i < width; i++) {
            for (int64_t q = 0; q < 8; q++) {
                to[(p + q) * width + i] = x[i * step + (p + q) * k_step];
            }
        }
    }
    for (; p < k; p++) {
        for (int64_t i = 0; i < width; i++) {
            to[p * width + i] = i < n ? x[i * step + p * k_step] : 0.0;
        }
    }
}

static void pack_a(const ru_kern_gemm64 *g, int64_t k0, int64_t kc, int64_t i0, int64_t i1,
                   double *to)
{
    for (int64_t i = i0; i < i1; i += GEMM_MR) {
        const double *a = g->a + i * g->a_row + k0 * g->a_col;
        int64_t m = kv_min_i64(GEMM_MR, i1 - i);
        if (m == GEMM_MR) {
            pack_group(a, g->a_row, g->a_col, m, GEMM_MR, kc, to);
        } else {
            pack_group(a, g->a_row, g->a_col, m, m, kc, to);
        }
        to += m * kc;
    }
}

static void pack_b(const ru_kern_gemm64 *g, int64_t k0, int64_t kc, int64_t j0, int64_t j1,
                   double *to)
{
    for (int64_t j = j0; j < j1; j += GEMM_NR, to += kc * GEMM_NR) {
        pack_group(g->b + k0 * g->b_row + j * g->b_col, g->b_col, g->b_row,
                   kv_min_i64(GEMM_NR, j1 - j), GEMM_NR, kc, to);
    }
}

/* One block of k and of columns for rows i0 .. i1, their groups in `a`; B packed in `b` or, NULL,
 * read in place; there `edge` takes the last columns. */
static void block(const ru_kern_gemm64 *g, int64_t k0, int64_t kc, int64_t i0, int64_t i1,
                  int64_t j0, int64_t j1, const double *a, const double *b, double *edge)
{
    for (int64_t j = j0; j < j1; j += GEMM_NR) {
        gemm_tile t = {.k = kc,
                       .a_row = 1,
                       .n = kv_min_i64(GEMM_NR, j1 - j),
                       .b = b == NULL ? edge : b + (j - j0) * kc,
                       .b_row = GEMM_NR,
                       .c_row = g->c_row,
                       .alpha = g->alpha,
                       .add = k0 > 0};
        if (b == NULL && t.n == GEMM_NR) {
            t.b = g->b + k0 * g->b_row + j;
            t.b_row = g->b_row;
        } else if (b == NULL) {
            pack_b(g, k0, kc, j, j1, edge);
        }
        for (int64_t i = i0; i < i1; i += GEMM_MR) {
            t.a = a + (i - i0) * kc;
            t.c = g->c + i * g->c_row + j;
            t.a_col = kv_min_i64(GEMM_MR, i1 - i);
            run_tile(t.a_col, &t);
        }
    }
}

int64_t RUI_K(rui_kern_gemm64_work)(void)
{
    return G64_KC * (G64_NC + G64_MC);
}

void RUI_K(rui_kern_gemm64)(const ru_kern_gemm64 *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                            double *work)
{
    double *b = work, *a = work + G64_KC * G64_NC;
    bool in_place = m1 - m0 <= GEMM_MR && g->b_col == 1;
    for (int64_t i = m0; i < m1 && g->k == 0; i++) {
        memset(g->c + i * g->c_row + n0, 0, sizeof(double) * (size_t)(n1 - n0));
    }
    for (int64_t k0 = 0; k0 < g->k; k0 += G64_KC) {
        int64_t kc = kv_min_i64(G64_KC, g->k - k0);
        for (int64_t j0 = n0; j0 < n1; j0 += G64_NC) {
            int64_t j1 = kv_min_i64(j0 + G64_NC, n1);
            if (!in_place) {
                pack_b(g, k0, kc, j0, j1, b);
            }
            for (int64_t i0 = m0; i0 < m1; i0 += G64_MC) {
                int64_t i1 = kv_min_i64(i0 + G64_MC, m1);
                pack_a(g, k0, kc, i0, i1, a);
                block(g, k0, kc, i0, i1, j0, j1, a, in_place ? NULL : b, b);
            }
        }
    }
}
