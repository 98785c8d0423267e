/* Pieces of products that live in 16 registers of 8 floats: the tile of sums, transposes.
 *
 * A tile is up to TILE_MR rows by TILE_NR columns of C. Per step of k: 2 loads of B, a broadcast
 * and 2 multiply-adds a row; 12 sums in flight hide the latency of both multiply-add units of AVX2.
 *
 * Thread: any. */
#ifndef RU_EXEC_CPU_KERN_TILE_H
#define RU_EXEC_CPU_KERN_TILE_H

#include "exec/cpu/kern/vec.h"

/* Everything here is inlined: no call hands such a vector over. */
#pragma GCC diagnostic ignored "-Wpsabi"

enum { TILE_W = 8, TILE_MR = 6, TILE_NR = 2 * TILE_W };

typedef float tile_v __attribute__((vector_size(TILE_W * 4), aligned(4), may_alias));

RU_KERN_INLINE tile_v tile_load(const float *p)
{
    return *(const tile_v *)p;
}

RU_KERN_INLINE void tile_store(float *p, tile_v v)
{
    *(tile_v *)p = v;
}

/* acc[i][..] += sum over p of a[i * a_row + p * a_col] * b[p * TILE_NR + ..], p in order. `mr`,
 * and one of a_row, a_col, are constants where this is inlined. */
RU_KERN_INLINE void tile_sum(const int64_t mr, int64_t k, const float *a, int64_t a_row,
                             int64_t a_col, const float *b, tile_v acc[TILE_MR][2])
{
    for (int64_t p = 0; p < k; p++, a += a_col, b += TILE_NR) {
        tile_v b0 = tile_load(b), b1 = tile_load(b + TILE_W);
#pragma GCC unroll 8
        for (int64_t i = 0; i < mr; i++) {
            float v = a[i * a_row];
            acc[i][0] += v * b0;
            acc[i][1] += v * b1;
        }
    }
}

/* r[i][j] becomes r[j][i]. */
RU_KERN_INLINE void tile_transpose(tile_v r[TILE_W])
{
    tile_v t[TILE_W], u[TILE_W];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[2 * i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[2 * i + 1] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        u[i] = __builtin_shufflevector(t[i], t[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        u[i + 1] = __builtin_shufflevector(t[i], t[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        u[i + 2] = __builtin_shufflevector(t[i + 1], t[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        u[i + 3] = __builtin_shufflevector(t[i + 1], t[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = __builtin_shufflevector(u[i], u[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[i + 4] = __builtin_shufflevector(u[i], u[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

#endif
