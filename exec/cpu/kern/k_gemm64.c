/* Matrix product of doubles, as k_gemm.c does floats: B in panels of G64_NR columns, A in groups of
 * G64_MR rows, a tile of C in registers. B is read in place where one group has all rows, since
 * packing would cost as much as the product.
 *
 * A sum over k runs in order within blocks of G64_KC and does not depend on the split. */
#include "exec/cpu/kern/isa.h"

#if defined(__AVX512F__)
enum { G64_W = 8, G64_MR = 14 };
#elif defined(__AVX__)
enum { G64_W = 4, G64_MR = 6 };
#else
enum { G64_W = 2, G64_MR = 6 };
#endif
/* A block of B takes 512 KiB, half of a small L2; one of A 224 KiB at most. */
enum { G64_NR = 2 * G64_W, G64_KC = 256, G64_NC = 256, G64_MC = 8 * G64_MR };

typedef double g64_v __attribute__((vector_size(G64_W * 8), aligned(8), may_alias));

RU_KERN_INLINE g64_v load(const double *p)
{
    return *(const g64_v *)p;
}

RU_KERN_INLINE void store(double *p, g64_v v)
{
    *(g64_v *)p = v;
}

typedef struct g64_tile {
    int64_t k, n; /* n: columns of C that exist, <= G64_NR */
    const double *a, *b;
    int64_t b_row;
    double *c;
    int64_t c_row;
    double alpha;
    bool add;
} g64_tile;

RU_KERN_INLINE void put_row(const g64_tile *t, double *c, g64_v v0, g64_v v1)
{
    v0 *= t->alpha;
    v1 *= t->alpha;
    if (RU_LIKELY(t->n == G64_NR)) {
        if (t->add) {
            v0 += load(c);
            v1 += load(c + G64_W);
        }
        store(c, v0);
        store(c + G64_W, v1);
        return;
    }
    double row[G64_NR];
    store(row, v0);
    store(row + G64_W, v1);
    for (int64_t j = 0; j < t->n; j++) {
        c[j] = t->add ? c[j] + row[j] : row[j];
    }
}

/* A stands as a[p * mr + i]. */
RU_KERN_INLINE void tile(const int64_t mr, const g64_tile *t)
{
    g64_v acc[G64_MR][2];
    const double *a = t->a, *b = t->b;
#pragma GCC unroll 16
    for (int64_t i = 0; i < mr; i++) {
        acc[i][0] = acc[i][1] = (g64_v){0};
    }
    for (int64_t p = 0; p < t->k; p++, a += mr, b += t->b_row) {
        g64_v b0 = load(b), b1 = load(b + G64_W);
#pragma GCC unroll 16
        for (int64_t i = 0; i < mr; i++) {
            acc[i][0] += a[i] * b0;
            acc[i][1] += a[i] * b1;
        }
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < mr; i++) {
        put_row(t, t->c + i * t->c_row, acc[i][0], acc[i][1]);
    }
}

#define TILE_CASE(mr) \
    case mr:          \
        tile(mr, t);  \
        break;

static void run_tile(int64_t mr, const g64_tile *t)
{
    switch (mr) {
        TILE_CASE(1)
        TILE_CASE(2)
        TILE_CASE(3)
        TILE_CASE(4)
        TILE_CASE(5)
        TILE_CASE(6)
#if defined(__AVX512F__)
        TILE_CASE(7)
        TILE_CASE(8)
        TILE_CASE(9)
        TILE_CASE(10)
        TILE_CASE(11)
        TILE_CASE(12)
        TILE_CASE(13)
        TILE_CASE(14)
#endif
    default:
        break;
    }
}

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
    for (int64_t i = i0; i < i1; i += G64_MR) {
        const double *a = g->a + i * g->a_row + k0 * g->a_col;
        int64_t m = kv_min_i64(G64_MR, i1 - i);
        if (m == G64_MR) {
            pack_group(a, g->a_row, g->a_col, m, G64_MR, kc, to);
        } else {
            pack_group(a, g->a_row, g->a_col, m, m, kc, to);
        }
        to += m * kc;
    }
}

static void pack_b(const ru_kern_gemm64 *g, int64_t k0, int64_t kc, int64_t j0, int64_t j1,
                   double *to)
{
    for (int64_t j = j0; j < j1; j += G64_NR, to += kc * G64_NR) {
        pack_group(g->b + k0 * g->b_row + j * g->b_col, g->b_col, g->b_row,
                   kv_min_i64(G64_NR, j1 - j), G64_NR, kc, to);
    }
}

/* One block of k and of columns for rows i0 .. i1, their groups in `a`; B packed in `b` or, NULL,
 * read in place; there `edge` takes the last columns. */
static void block(const ru_kern_gemm64 *g, int64_t k0, int64_t kc, int64_t i0, int64_t i1,
                  int64_t j0, int64_t j1, const double *a, const double *b, double *edge)
{
    for (int64_t j = j0; j < j1; j += G64_NR) {
        g64_tile t = {.k = kc,
                      .n = kv_min_i64(G64_NR, j1 - j),
                      .b = b == NULL ? edge : b + (j - j0) * kc,
                      .b_row = G64_NR,
                      .c_row = g->c_row,
                      .alpha = g->alpha,
                      .add = k0 > 0};
        if (b == NULL && t.n == G64_NR) {
            t.b = g->b + k0 * g->b_row + j;
            t.b_row = g->b_row;
        } else if (b == NULL) {
            pack_b(g, k0, kc, j, j1, edge);
        }
        for (int64_t i = i0; i < i1; i += G64_MR) {
            t.a = a + (i - i0) * kc;
            t.c = g->c + i * g->c_row + j;
            run_tile(kv_min_i64(G64_MR, i1 - i), &t);
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
    bool in_place = m1 - m0 <= G64_MR && g->b_col == 1;
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
