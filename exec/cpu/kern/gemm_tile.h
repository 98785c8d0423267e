/* The tile of C that a product keeps in registers, for floats and for doubles: up to GEMM_MR rows
 * by two vectors of columns. Per step of k: 2 loads of B, and a broadcast and 2 multiply-adds a
 * row. With AVX-512 a tile takes 28 registers: 28 multiply-adds stand against 16 loads.
 *
 * Who includes this defines GEMM_T, the type of an element, and GEMM_ANY_A: 0 where the rows of A
 * always stand side by side, 1 where a row may.
 *
 * Thread: any. */
#ifndef RU_EXEC_CPU_KERN_GEMM_TILE_H
#define RU_EXEC_CPU_KERN_GEMM_TILE_H

#include "exec/cpu/kern/isa.h"

#if defined(__AVX512F__)
#include <immintrin.h>
enum { GEMM_BYTES = 64, GEMM_MR = 14 };
#elif defined(__AVX__)
enum { GEMM_BYTES = 32, GEMM_MR = 6 };
#else
enum { GEMM_BYTES = 16, GEMM_MR = 6 };
#endif
enum { GEMM_W = GEMM_BYTES / sizeof(GEMM_T), GEMM_NR = 2 * GEMM_W };

typedef GEMM_T gemm_v __attribute__((vector_size(GEMM_BYTES), aligned(sizeof(GEMM_T)), may_alias));

/* The type itself says that it is not aligned: a memcpy of 32 bytes went by halves through the
 * stack (gcc 12, AVX2), which cost the inner loop five sixths of its speed. */
RU_KERN_INLINE gemm_v vload(const GEMM_T *p)
{
    return *(const gemm_v *)p;
}

RU_KERN_INLINE void vstore(GEMM_T *p, gemm_v v)
{
    *(gemm_v *)p = v;
}

typedef struct gemm_tile {
    int64_t k, n; /* n: columns of C that exist, <= GEMM_NR */
    const GEMM_T *a, *b;
    int64_t a_row, a_col; /* one of them is 1 */
    int64_t b_row;
    GEMM_T *c;
    int64_t c_row;
    GEMM_T alpha;
    bool add;
} gemm_tile;

#if defined(__AVX512F__)
/* The first n lanes of v, or all, to c (which is added first): memory beyond stays untouched. */
RU_KERN_INLINE void put_some(GEMM_T *c, gemm_v v, int64_t n, bool add)
{
    const uint32_t some = n >= GEMM_W ? 0xffffu : (1u << n) - 1;
    if (sizeof(GEMM_T) == 4) {
        const __mmask16 m = (__mmask16)some;
        v += add ? (gemm_v)_mm512_maskz_loadu_epi32(m, c) : (gemm_v){0};
        _mm512_mask_storeu_epi32(c, m, (__m512i)v);
    } else {
        const __mmask8 m = (__mmask8)some;
        v += add ? (gemm_v)_mm512_maskz_loadu_epi64(m, c) : (gemm_v){0};
        _mm512_mask_storeu_epi64(c, m, (__m512i)v);
    }
}
#endif

/* Store one row of the tile. */
RU_KERN_INLINE void put_row(const gemm_tile *t, GEMM_T *c, gemm_v v0, gemm_v v1)
{
    v0 *= t->alpha;
    v1 *= t->alpha;
    if (RU_LIKELY(t->n == GEMM_NR)) {
        if (t->add) {
            v0 += vload(c);
            v1 += vload(c + GEMM_W);
        }
        vstore(c, v0);
        vstore(c + GEMM_W, v1);
        return;
    }
#if defined(__AVX512F__)
    put_some(c, v0, t->n, t->add);
    if (t->n > GEMM_W) {
        put_some(c + GEMM_W, v1, t->n - GEMM_W, t->add);
    }
#else
    GEMM_T row[GEMM_NR];
    vstore(row, v0);
    vstore(row + GEMM_W, v1);
    for (int64_t j = 0; j < t->n; j++) {
        c[j] = t->add ? c[j] + row[j] : row[j];
    }
#endif
}

/* `mr`, and one of ai and ak, are constants where this is inlined. */
RU_KERN_INLINE void tile(const int64_t mr, const gemm_tile *t, const int64_t ai, const int64_t ak)
{
    gemm_v acc[GEMM_MR][2];
#pragma GCC unroll 16
    for (int64_t i = 0; i < mr; i++) {
        acc[i][0] = (gemm_v){0};
        acc[i][1] = (gemm_v){0};
    }
    const GEMM_T *a = t->a, *b = t->b;
    const int64_t b_row = t->b_row;
    for (int64_t p = 0; p < t->k; p++) {
        gemm_v b0 = vload(b), b1 = vload(b + GEMM_W);
#pragma GCC unroll 16
        for (int64_t i = 0; i < mr; i++) {
            GEMM_T v = a[i * ai];
            acc[i][0] += v * b0;
            acc[i][1] += v * b1;
        }
        a += ak;
        b += b_row;
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < mr; i++) {
        put_row(t, t->c + i * t->c_row, acc[i][0], acc[i][1]);
    }
}

#define TILE_CASE(mr)                       \
    case mr:                                \
        if (!GEMM_ANY_A || t->a_row == 1) { \
            tile(mr, t, 1, t->a_col);       \
        } else {                            \
            tile(mr, t, t->a_row, 1);       \
        }                                   \
        break;

static void run_tile(int64_t mr, const gemm_tile *t)
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

#endif
