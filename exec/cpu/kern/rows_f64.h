/* Reductions of rows of doubles: eight at a time, each in the lanes of a vector. Lanes are as many
 * on every instruction set, so that results do not depend on it.
 *
 * Thread: any. */
#ifndef RU_EXEC_CPU_KERN_ROWS_F64_H
#define RU_EXEC_CPU_KERN_ROWS_F64_H

#ifdef __AVX__
#include <immintrin.h>
#endif

#include "exec/cpu/kern/kern.h"
#include "exec/cpu/kern/vec.h"

/* Partial results: squares and sizes are sums by now. */
RU_KERN_INLINE ru_kern_red of_parts(const ru_kern_red op)
{
    return op == RU_KERN_RED_SUM_SQUARE || op == RU_KERN_RED_SUM_ABS ? RU_KERN_RED_SUM : op;
}

RU_KERN_INLINE double join_f64(const ru_kern_red op, double s, double v)
{
    return op == RU_KERN_RED_SUM_SQUARE ? s + v * v
           : op == RU_KERN_RED_SUM_ABS  ? s + fabs(v)
           : op == RU_KERN_RED_PROD     ? s * v
           : op == RU_KERN_RED_MAX      ? (((v > s) | (v != v)) ? v : s)
           : op == RU_KERN_RED_MIN      ? (((v < s) | (v != v)) ? v : s)
                                        : s + v;
}

/* Everything here is inlined: no call hands such a vector over. */
#pragma GCC diagnostic ignored "-Wpsabi"

enum { DEEP = 8 };

typedef double deep_v __attribute__((vector_size(64), aligned(8), may_alias));
typedef int64_t deep_mask __attribute__((vector_size(64), may_alias));
#ifdef __AVX512F__
typedef __mmask8 deep_nan;
#else
typedef deep_mask deep_nan;
#endif

RU_KERN_INLINE deep_v deep_load(const double *x)
{
    return *(const deep_v *)x;
}

RU_KERN_INLINE deep_v deep_pick(deep_mask first, deep_v a, deep_v b)
{
    return (deep_v)(((deep_mask)a & first) | ((deep_mask)b & ~first));
}

RU_KERN_INLINE deep_v deep_join(const ru_kern_red op, deep_v v, deep_v s)
{
    switch (op) {
    case RU_KERN_RED_SUM_SQUARE:
        return s + v * v;
    case RU_KERN_RED_SUM_ABS:
        return s + (deep_v)((deep_mask)v & INT64_MAX);
    case RU_KERN_RED_MAX:
        return deep_pick((v > s) | (v != v), v, s);
    case RU_KERN_RED_MIN:
        return deep_pick((v < s) | (v != v), v, s);
    case RU_KERN_RED_PROD:
        return s * v;
    case RU_KERN_RED_SUM:
        break;
    }
    return s + v;
}

/* r[i][j] becomes r[j][i]. Sets without such vectors would do each shuffle by elements. */
RU_KERN_INLINE void deep_turn(deep_v r[DEEP])
{
#ifdef __AVX512F__
    deep_v u[DEEP];
#pragma GCC unroll 3
    for (int level = 0; level < 3; level++) {
#pragma GCC unroll 4
        for (int i = 0; i < DEEP / 2; i++) {
            u[2 * i] = __builtin_shufflevector(r[i], r[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            u[2 * i + 1] = __builtin_shufflevector(r[i], r[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
        }
#pragma GCC unroll 8
        for (int i = 0; i < DEEP; i++) {
            r[i] = u[i];
        }
    }
#else
    double from[DEEP * DEEP], to[DEEP * DEEP];
    memcpy(from, r, sizeof from);
    for (int i = 0; i < DEEP; i++) {
        for (int j = 0; j < DEEP; j++) {
            to[j * DEEP + i] = from[i * DEEP + j];
        }
    }
    memcpy(r, to, sizeof to);
#endif
}

/* v > s ? v : s, or <: of numbers */
RU_KERN_INLINE deep_v deep_top(const ru_kern_red op, deep_v v, deep_v s)
{
#ifdef __AVX512F__
    return (deep_v)(op == RU_KERN_RED_MAX ? _mm512_max_pd((__m512d)v, (__m512d)s)
                                          : _mm512_min_pd((__m512d)v, (__m512d)s));
#else
    return deep_pick(op == RU_KERN_RED_MAX ? v > s : v < s, v, s);
#endif
}

/* Bits are set where one of both is no number. */
RU_KERN_INLINE deep_nan deep_nan_of(deep_v a, deep_v b)
{
#ifdef __AVX512F__
    return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_UNORD_Q);
#else
    return (a != a) | (b != b);
#endif
}

RU_KERN_INLINE bool deep_any(deep_nan nan)
{
#ifdef __AVX512F__
    return nan != 0;
#else
    int64_t any = 0;
    for (int i = 0; i < DEEP; i++) {
        any |= nan[i];
    }
    return any != 0;
#endif
}

/* Maxima or minima of w rows of at least DEEP elements into lanes of *all; the last vector of a row
 * overlaps the one before. False: a NaN is among them, and *all is not what it should be. */
RU_KERN_INLINE bool deep_tops(const ru_kern_red op, const double *x, int64_t w, int64_t n,
                              double start, deep_v *all)
{
    const double *from[DEEP];
    deep_v acc[DEEP];
    deep_nan nan = {0};
#pragma GCC unroll 8
    for (int64_t i = 0; i < DEEP; i++) {
        from[i] = x + (i < w ? i : 0) * n;
        acc[i] = (deep_v){0} + start;
    }
    for (int64_t k = 0; k < n; k += DEEP) {
        int64_t at = k + DEEP <= n ? k : n - DEEP;
#pragma GCC unroll 4
        for (int64_t i = 0; i < DEEP; i += 2) {
            deep_v a = deep_load(from[i] + at), b = deep_load(from[i + 1] + at);
            acc[i] = deep_top(op, a, acc[i]);
            acc[i + 1] = deep_top(op, b, acc[i + 1]);
            nan |= deep_nan_of(a, b);
        }
    }
    deep_turn(acc);
    deep_v a = deep_top(op, deep_top(op, acc[4], acc[0]), deep_top(op, acc[6], acc[2]));
    deep_v b = deep_top(op, deep_top(op, acc[5], acc[1]), deep_top(op, acc[7], acc[3]));
    *all = deep_top(op, b, a);
    return !deep_any(nan);
}

/* DEEP rows of n < DEEP elements into lanes; what follows the last row is read, too. */
RU_KERN_INLINE deep_v deep_short(const ru_kern_red op, const double *x, int64_t n, double start)
{
#ifdef __AVX512F__
    deep_v r[DEEP], all = (deep_v){0} + start;
#pragma GCC unroll 8
    for (int64_t i = 0; i < DEEP; i++) {
        r[i] = deep_load(x + i * n);
    }
    deep_turn(r);
#pragma GCC unroll 8
    for (int64_t i = 0; i < DEEP - 1; i++) {
        if (i < n) {
            all = deep_join(op, r[i], all);
        }
    }
    return all;
#else
    double lane[DEEP];
    for (int64_t j = 0; j < DEEP; j++) {
        lane[j] = start;
    }
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int64_t j = 0; j < DEEP; j++) {
            lane[j] = join_f64(op, lane[j], x[j * n + i]);
        }
    }
    return deep_load(lane);
#endif
}

/* w rows of at least DEEP elements, at most DEEP of them, into lanes. */
RU_KERN_INLINE deep_v deep_rows(const ru_kern_red op, const double *x, int64_t w, int64_t n,
                                double start)
{
    const ru_kern_red parts = of_parts(op);
    const int64_t left = n % DEEP;
    const double *from[DEEP];
    deep_v acc[DEEP];
#pragma GCC unroll 8
    for (int64_t i = 0; i < DEEP; i++) {
        from[i] = x + (i < w ? i : 0) * n;
        acc[i] = (deep_v){0} + start;
    }
    for (int64_t k = 0; k < n - left; k += DEEP) {
#pragma GCC unroll 8
        for (int64_t i = 0; i < DEEP; i++) {
            acc[i] = deep_join(op, deep_load(from[i] + k), acc[i]);
        }
    }
    deep_turn(acc);
    deep_v a = deep_join(parts, deep_join(parts, acc[4], acc[0]), deep_join(parts, acc[6], acc[2]));
    deep_v b = deep_join(parts, deep_join(parts, acc[5], acc[1]), deep_join(parts, acc[7], acc[3]));
    deep_v all = deep_join(parts, b, a);
    if (left > 0) {
#pragma GCC unroll 8
        for (int64_t i = 0; i < DEEP; i++) {
            acc[i] = deep_load(from[i] + n - DEEP);
        }
        deep_turn(acc);
#pragma GCC unroll 8
        for (int64_t i = 1; i < DEEP; i++) {
            all = i >= DEEP - left ? deep_join(op, acc[i], all) : all;
        }
    }
    return all;
}

/* y[j] joined with row j of w; returns the rows done: few ones, or short ones at the end of the
 * memory, are the caller's. */
RU_KERN_INLINE int64_t deep_fold(const ru_kern_red op, const double *x, int64_t n, int64_t w,
                                 double start, double *y)
{
    int64_t j = 0;
    for (int64_t m; n > 2 && w - j > 2; j += m) {
        m = kv_min_i64(DEEP, w - j);
        if (n < DEEP && (m < DEEP || (j + DEEP - 1) * n + DEEP > w * n)) {
            break;
        }
        bool picks = op == RU_KERN_RED_MAX || op == RU_KERN_RED_MIN;
        deep_v all;
        if (n < DEEP) {
            all = deep_short(op, x + j * n, n, start);
        } else if (!picks || !deep_tops(op, x + j * n, m, n, start, &all)) {
            all = deep_rows(op, x + j * n, m, n, start);
        }
        if (m == DEEP) {
            *(deep_v *)(y + j) = deep_join(of_parts(op), all, deep_load(y + j));
            continue;
        }
        double some[DEEP];
        memcpy(some, &all, sizeof some);
        for (int64_t i = 0; i < m; i++) {
            y[j + i] = join_f64(of_parts(op), y[j + i], some[i]);
        }
    }
    return j;
}

#endif
