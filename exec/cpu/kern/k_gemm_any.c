/* Matrix product of doubles, as k_gemm.c does floats: B in panels of GEMM_NR columns, A in groups
 * of GEMM_MR rows, a tile of C in registers. B is read in place where one group has all rows, since
 * packing would cost as much as the product.
 *
 * A sum over k runs in order within blocks of G64_KC and does not depend on the split. */
#define GEMM_T     double
#define GEMM_ANY_A 1
#include "exec/cpu/kern/gemm_tile.h"

/* A block of B takes 512 KiB, half of a small L2; one of A 224 KiB at most. */
enum { G64_KC = 256, G64_NC = 256, G64_MC = 8 * GEMM_MR };
/* Sums of so few products: rows of C are written whole. */
enum { G64_FEW = 16 };

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

/* One block of k and of columns for rows i0 .. i1, their groups in `a` or, NULL, read in place; B
 * packed in `b` or, NULL, read in place; there `edge` takes the last columns. */
static void block(const ru_kern_gemm64 *g, int64_t k0, int64_t kc, int64_t i0, int64_t i1,
                  int64_t j0, int64_t j1, const double *a, const double *b, double *edge)
{
    for (int64_t j = j0; j < j1; j += GEMM_NR) {
        gemm_tile t = {.k = kc,
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
            int64_t rows = kv_min_i64(GEMM_MR, i1 - i);
            t.a = a != NULL ? a + (i - i0) * kc : g->a + i * g->a_row + k0 * g->a_col;
            t.a_row = a != NULL ? 1 : g->a_row;
            t.a_col = a != NULL ? rows : g->a_col;
            t.c = g->c + i * g->c_row + j;
            run_tile(rows, &t);
        }
    }
}

/* The only column of C: each row of A, which stands side by side, times one of B. */
static void column(const ru_kern_gemm64 *g, int64_t m0, int64_t m1, double *line)
{
    enum { LINE = G64_KC * G64_NC, SUMS = 4, STEP = SUMS * GEMM_W };
    for (int64_t k0 = 0; k0 < g->k; k0 += LINE) {
        int64_t k = kv_min_i64(LINE, g->k - k0);
        const double *b = g->b + k0 * g->b_row;
        for (int64_t p = 0; g->b_row != 1 && p < k; p++) {
            line[p] = b[p * g->b_row];
        }
        b = g->b_row != 1 ? line : b;
        for (int64_t i = m0; i < m1; i++) {
            const double *a = g->a + i * g->a_row + k0;
            gemm_v v[SUMS] = {{0}};
            int64_t p = 0;
            for (; p + STEP <= k; p += STEP) {
#pragma GCC unroll 4
                for (int64_t q = 0; q < SUMS; q++) {
                    v[q] += vload(a + p + q * GEMM_W) * vload(b + p + q * GEMM_W);
                }
            }
            double lanes[GEMM_W], sum = 0.0;
            vstore(lanes, (v[0] + v[1]) + (v[2] + v[3]));
            for (; p < k; p++) {
                sum += a[p] * b[p];
            }
            for (int64_t q = 0; q < GEMM_W; q++) {
                sum += lanes[q];
            }
            double *c = g->c + i * g->c_row;
            *c = g->alpha * sum + (k0 > 0 ? *c : 0.0);
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
    bool a_stays = n1 - n0 <= GEMM_NR && (g->a_row == 1 || g->a_col == 1);
    for (int64_t i = m0; i < m1 && g->k == 0; i++) {
        memset(g->c + i * g->c_row + n0, 0, sizeof(double) * (size_t)(n1 - n0));
    }
    if (g->n == 1 && n0 < n1 && g->a_col == 1) {
        column(g, m0, m1, work);
        return;
    }
    for (int64_t k0 = 0; k0 < g->k; k0 += G64_KC) {
        int64_t kc = kv_min_i64(G64_KC, g->k - k0);
        bool few = kc <= G64_FEW;
        int64_t nc = few ? G64_KC / G64_FEW * G64_NC : G64_NC, mc = few ? GEMM_MR : G64_MC;
        for (int64_t j0 = n0; j0 < n1; j0 += nc) {
            int64_t j1 = kv_min_i64(j0 + nc, n1);
            if (!in_place) {
                pack_b(g, k0, kc, j0, j1, b);
            }
            for (int64_t i0 = m0; i0 < m1; i0 += mc) {
                int64_t i1 = kv_min_i64(i0 + mc, m1);
                if (!a_stays) {
                    pack_a(g, k0, kc, i0, i1, a);
                }
                block(g, k0, kc, i0, i1, j0, j1, a_stays ? NULL : a, in_place ? NULL : b, b);
            }
        }
    }
}
