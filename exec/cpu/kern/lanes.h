/* The KV_LANES partial results of a row: joined in registers, and the end of a row as lanes.
 *
 * Thread: any. */
#ifndef RU_EXEC_CPU_KERN_LANES_H
#define RU_EXEC_CPU_KERN_LANES_H

#include "exec/cpu/kern/vec.h"

typedef float kv_16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef float kv_8 __attribute__((vector_size(32)));
typedef float kv_4 __attribute__((vector_size(16)));
typedef int32_t kv_16_mask __attribute__((vector_size(64)));
typedef int32_t kv_8_mask __attribute__((vector_size(32)));
typedef int32_t kv_4_mask __attribute__((vector_size(16)));

/* Lanes joined in halves, in one written order: in registers, since halves in memory took 50 ns, as
 * long as a row of 500. JOIN(T, a, b) of two vectors T, or of two floats. */
#define KV_JOIN_16(v, JOIN, into)                                              \
    do {                                                                       \
        kv_8 l8 = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);       \
        kv_8 h8 = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15); \
        kv_8 a8 = JOIN(kv_8, l8, h8);                                          \
        kv_4 l4 = __builtin_shufflevector(a8, a8, 0, 1, 2, 3);                 \
        kv_4 h4 = __builtin_shufflevector(a8, a8, 4, 5, 6, 7);                 \
        kv_4 a4 = JOIN(kv_4, l4, h4);                                          \
        kv_4 b4 = __builtin_shufflevector(a4, a4, 2, 3, 2, 3);                 \
        kv_4 a2 = JOIN(kv_4, a4, b4);                                          \
        kv_4 b2 = __builtin_shufflevector(a2, a2, 1, 1, 1, 1);                 \
        kv_4 a1 = JOIN(kv_4, a2, b2);                                          \
        (into) = a1[0];                                                        \
    } while (0)
#define KV_JOIN(acc, JOIN, into)                    \
    do {                                            \
        const kv_16 *lane = (const kv_16 *)(acc);   \
        kv_16 even = JOIN(kv_16, lane[0], lane[2]); \
        kv_16 odd = JOIN(kv_16, lane[1], lane[3]);  \
        kv_16 all = JOIN(kv_16, even, odd);         \
        KV_JOIN_16(all, JOIN, into);                \
    } while (0)

#define KV_ADD(T, a, b) ((a) + (b))

/* Sum of the lanes. */
RU_KERN_INLINE float kv_sum_of_lanes(const float *acc)
{
    float sum;
    KV_JOIN(acc, KV_ADD, sum);
    return sum;
}

/* The same where only the first 16 hold anything but 0. */
RU_KERN_INLINE float kv_sum_of_16(const float *acc)
{
    kv_16 v = *(const kv_16 *)acc;
    float sum;
    KV_JOIN_16(v, KV_ADD, sum);
    return sum;
}

/* As kv_max */
#define KV_FIRST(T, a, b) ((T##_mask)((a) > (b)) | (T##_mask)((a) != (a)))
#define KV_MOST(T, a, b) \
    ((T)(((T##_mask)(a)&KV_FIRST(T, a, b)) | ((T##_mask)(b) & ~KV_FIRST(T, a, b))))

/* The most of the lanes, NaN if one is. */
RU_KERN_INLINE float kv_max_of_lanes(const float *acc)
{
    float most;
    KV_JOIN(acc, KV_MOST, most);
    return most;
}

/* The last n < KV_LANES elements of a row, then `rest`: loops over a number of lanes that the
 * compiler knows need no scalar end, where an exponential takes 10 ns. Returns the lanes, in whole
 * vectors. */
RU_KERN_INLINE int64_t kv_tail(const float *x, int64_t n, float rest, float *lanes)
{
    int64_t w = (n + 15) / 16 * 16;
    const kv_16 fill = (kv_16){0} + rest;
    for (int64_t j = 0; j < w; j += 16) {
        *(kv_16 *)(lanes + j) = fill;
    }
    for (int64_t j = 0; j < n; j++) {
        lanes[j] = x[j];
    }
    return w;
}

/* f(j) of lanes 0 .. w, in vectors of 16. */
#define KV_LANES_LOOP(w, body)                                  \
    for (int64_t b_ = 0; b_ < (w); b_ += 16) {                  \
        _Pragma("omp simd") for (int64_t i_ = 0; i_ < 16; i_++) \
        {                                                       \
            const int64_t j = b_ + i_;                          \
            body;                                               \
        }                                                       \
    }

#endif
