/* Reductions. A row is summed in KV_LANES partial sums (element i goes to lane i mod KV_LANES) that
 * are added pairwise: the same order on every instruction set and for every number of threads.
 * Short rows are summed element by element, columns row by row. */
#include "exec/cpu/kern/isa.h"
#include "exec/cpu/kern/lanes.h"
#include "exec/cpu/kern/rows_f64.h"
#include "exec/cpu/kern/tile.h"

/* acc[j] = f(acc[j], v) over all elements; v is the element, s the accumulator. */
#define REDUCE_LOOP(f)                                                          \
    do {                                                                        \
        int64_t i = 0;                                                          \
        for (; i + KV_LANES <= n; i += KV_LANES) {                              \
            _Pragma("omp simd") for (int64_t j = 0; j < KV_LANES; j++)          \
            {                                                                   \
                float v = x[i + j], s = acc[j];                                 \
                acc[j] = f;                                                     \
            }                                                                   \
        }                                                                       \
        int64_t left = n - i;                                                   \
        if (left > 0) {                                                         \
            float end[KV_LANES];                                                \
            left = kv_tail(x + i, left, rest, end);                             \
            KV_LANES_LOOP(left, float v = end[j]; float s = acc[j]; acc[j] = f) \
        }                                                                       \
    } while (0)

static void lanes(ru_kern_red op, const float *x, int64_t n, float *acc)
{
    const float rest = op == RU_KERN_RED_MAX ? -INFINITY : op == RU_KERN_RED_MIN ? INFINITY : 0.0f;
    switch (op) {
    case RU_KERN_RED_SUM:
        REDUCE_LOOP(s + v);
        break;
    case RU_KERN_RED_SUM_SQUARE:
        REDUCE_LOOP(s + v * v);
        break;
    case RU_KERN_RED_SUM_ABS:
        REDUCE_LOOP(s + fabsf(v));
        break;
    case RU_KERN_RED_MAX:
        REDUCE_LOOP(kv_max(v, s));
        break;
    case RU_KERN_RED_MIN:
        REDUCE_LOOP(kv_min(v, s));
        break;
    case RU_KERN_RED_PROD: /* product_of */
        RU_CHECK(false);
    }
}

static float start_of(ru_kern_red op)
{
    switch (op) {
    case RU_KERN_RED_MAX:
        return -INFINITY;
    case RU_KERN_RED_MIN:
        return INFINITY;
    case RU_KERN_RED_PROD:
        return 1.0f;
    case RU_KERN_RED_SUM:
    case RU_KERN_RED_SUM_SQUARE:
    case RU_KERN_RED_SUM_ABS:
        break;
    }
    return 0.0f;
}

static float join(ru_kern_red op, float *acc)
{
    switch (op) {
    case RU_KERN_RED_MAX:
        return kv_max_of_lanes(acc);
    case RU_KERN_RED_MIN:
        for (int64_t j = 0; j < KV_LANES; j++) {
            acc[j] = -acc[j];
        }
        return -kv_max_of_lanes(acc);
    case RU_KERN_RED_PROD:
        RU_CHECK(false);
    case RU_KERN_RED_SUM:
    case RU_KERN_RED_SUM_SQUARE:
    case RU_KERN_RED_SUM_ABS:
        break;
    }
    return kv_sum_of_lanes(acc);
}

/* In doubles: what is beyond a float on the way may come back, and floats next to 0 are slow. */
static float product_of(ru_dtype t, const void *x, int64_t n, int64_t runs, int64_t step)
{
    double acc[KV_LANES];
    float buf[KV_BLOCK];
    for (int64_t j = 0; j < KV_LANES; j++) {
        acc[j] = 1.0;
    }
    for (int64_t r = 0; r < runs; r++) {
        for (int64_t i = 0, w; i < n; i += w) {
            w = kv_min_i64(KV_LANES, n - i);
            const float *v = kv_load(t, x, r * step + i, w, buf);
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                acc[j] *= (double)v[j];
            }
        }
    }
    for (int64_t w = KV_LANES / 2; w > 0; w /= 2) {
        for (int64_t j = 0; j < w; j++) {
            acc[j] *= acc[j + w];
        }
    }
    return (float)acc[0];
}

float RUI_K(rui_kern_reduce)(ru_kern_red op, ru_dtype t, const void *x, int64_t n, int64_t runs,
                             int64_t step)
{
    float acc[KV_LANES], buf[KV_BLOCK];
    if (op == RU_KERN_RED_PROD) {
        return product_of(t, x, n, runs, step);
    }
    for (int64_t j = 0; j < KV_LANES; j++) {
        acc[j] = start_of(op);
    }
    int64_t block = t == RU_F32 ? n : KV_BLOCK;
    for (int64_t r = 0; r < runs; r++) {
        for (int64_t i = 0; i < n; i += block) {
            int64_t w = kv_min_i64(block, n - i);
            lanes(op, kv_load(t, x, r * step + i, w, buf), w, acc);
        }
    }
    return join(op, acc);
}

/* -- many rows ------------------------------------------------------------------------------------
 */

enum { SHORT_ROWS = 16, TILE_MAX = 512 /* elements of rows that go side by side */ };

typedef int32_t tile_mask __attribute__((vector_size(TILE_W * 4), may_alias));

RU_KERN_INLINE tile_v tile_pick(tile_mask first, tile_v a, tile_v b)
{
    return (tile_v)(((tile_mask)a & first) | ((tile_mask)b & ~first));
}

/* v > s ? v : s, or <: of numbers */
RU_KERN_INLINE tile_v tile_top(const ru_kern_red op, tile_v v, tile_v s)
{
#ifdef __AVX__
    return (tile_v)(op == RU_KERN_RED_MAX ? _mm256_max_ps((__m256)v, (__m256)s)
                                          : _mm256_min_ps((__m256)v, (__m256)s));
#else
    return tile_pick((tile_mask)(op == RU_KERN_RED_MAX ? v > s : v < s), v, s);
#endif
}

/* Where one of both is no number. */
RU_KERN_INLINE tile_mask tile_nan(tile_v a, tile_v b)
{
#ifdef __AVX__
    return (tile_mask)_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q);
#else
    return (tile_mask)(a != a) | (tile_mask)(b != b);
#endif
}

RU_KERN_INLINE tile_v tile_join(const ru_kern_red op, tile_v v, tile_v s)
{
    switch (op) {
    case RU_KERN_RED_SUM_SQUARE:
        return s + v * v;
    case RU_KERN_RED_SUM_ABS:
        return s + (tile_v)((tile_mask)v & 0x7fffffff);
    case RU_KERN_RED_MAX:
        return tile_pick((tile_mask)(v > s) | (tile_mask)(v != v), v, s);
    case RU_KERN_RED_MIN:
        return tile_pick((tile_mask)(v < s) | (tile_mask)(v != v), v, s);
    case RU_KERN_RED_PROD:
        return s * v;
    case RU_KERN_RED_SUM:
        break;
    }
    return s + v;
}

/* TILE_W rows of fewer than TILE_W elements, turned in registers; what hangs over the end of a row
 * reads what follows. */
RU_KERN_INLINE void tile_short(const ru_kern_red op, const float *x, int64_t n, float *y)
{
    tile_v r[TILE_W], acc = (tile_v){0} + start_of(op);
#pragma GCC unroll 8
    for (int64_t i = 0; i < TILE_W; i++) {
        r[i] = tile_load(x + i * n);
    }
    tile_transpose(r);
#pragma GCC unroll 8
    for (int64_t i = 0; i < TILE_W; i++) {
        if (i < n) {
            acc = tile_join(op, r[i], acc);
        }
    }
    tile_store(y, acc);
}

/* Maxima or minima of w of TILE_W rows of at least that many elements; the last vector of a row
 * overlaps the one before. False: a NaN is among them, and y is not what it should be. */
RU_KERN_INLINE bool tile_tops(const ru_kern_red op, const float *x, int64_t w, int64_t n, float *y)
{
    const float *from[TILE_W];
    tile_v acc[TILE_W];
    tile_mask nan = {0};
#pragma GCC unroll 8
    for (int64_t i = 0; i < TILE_W; i++) {
        from[i] = x + (i < w ? i : 0) * n;
        acc[i] = (tile_v){0} + start_of(op);
    }
    for (int64_t k = 0; k < n; k += TILE_W) {
        int64_t at = k + TILE_W <= n ? k : n - TILE_W;
#pragma GCC unroll 4
        for (int64_t i = 0; i < TILE_W; i += 2) {
            tile_v a = tile_load(from[i] + at), b = tile_load(from[i + 1] + at);
            acc[i] = tile_top(op, a, acc[i]);
            acc[i + 1] = tile_top(op, b, acc[i + 1]);
            nan |= tile_nan(a, b);
        }
    }
    tile_transpose(acc);
    tile_v a = tile_top(op, tile_top(op, acc[4], acc[0]), tile_top(op, acc[6], acc[2]));
    tile_v b = tile_top(op, tile_top(op, acc[5], acc[1]), tile_top(op, acc[7], acc[3]));
    a = tile_top(op, b, a);
    memcpy(y, &a, (size_t)w * sizeof *y);
    int32_t any = 0;
#pragma GCC unroll 8
    for (int64_t i = 0; i < TILE_W; i++) {
        any |= nan[i];
    }
    return any == 0;
}

/* w of TILE_W rows of at least that many elements: each in TILE_W lanes, the lanes in halves, then
 * what is left of each row in its order. */
RU_KERN_INLINE void tile_rows(const ru_kern_red op, const float *x, int64_t w, int64_t n, float *y)
{
    const ru_kern_red parts = of_parts(op);
    const int64_t left = n % TILE_W;
    const float *from[TILE_W];
    tile_v acc[TILE_W], end[TILE_W];
#pragma GCC unroll 8
    for (int64_t i = 0; i < TILE_W; i++) {
        from[i] = x + (i < w ? i : 0) * n;
        acc[i] = (tile_v){0} + start_of(op);
    }
    for (int64_t k = 0; k < n - left; k += TILE_W) {
#pragma GCC unroll 8
        for (int64_t i = 0; i < TILE_W; i++) {
            acc[i] = tile_join(op, tile_load(from[i] + k), acc[i]);
        }
    }
    tile_transpose(acc);
    tile_v a = tile_join(parts, tile_join(parts, acc[4], acc[0]), tile_join(parts, acc[6], acc[2]));
    tile_v b = tile_join(parts, tile_join(parts, acc[5], acc[1]), tile_join(parts, acc[7], acc[3]));
    a = tile_join(parts, b, a);
    if (left > 0) {
#pragma GCC unroll 8
        for (int64_t i = 0; i < TILE_W; i++) {
            end[i] = tile_load(from[i] + n - TILE_W);
        }
        tile_transpose(end);
#pragma GCC unroll 8
        for (int64_t i = 1; i < TILE_W; i++) {
            a = i >= TILE_W - left ? tile_join(op, end[i], a) : a;
        }
    }
    if (w == TILE_W) {
        tile_store(y, a);
    } else {
        memcpy(y, &a, (size_t)w * sizeof *y);
    }
}

RU_KERN_INLINE void tiles(const ru_kern_red op, const float *x, int64_t rows, int64_t n, float *y)
{
    for (int64_t r = 0; r < rows; r += TILE_W) {
        if (n < TILE_W) {
            tile_short(op, x + r * n, n, y + r);
        } else {
            int64_t w = kv_min_i64(TILE_W, rows - r);
            bool picks = op == RU_KERN_RED_MAX || op == RU_KERN_RED_MIN;
            if (!picks || !tile_tops(op, x + r * n, w, n, y + r)) {
                tile_rows(op, x + r * n, w, n, y + r);
            }
        }
    }
}

/* Whole tiles of shorter rows, any number of others. */
static void rows_in_tiles(ru_kern_red op, const float *x, int64_t rows, int64_t n, float *y)
{
#define TILES(op)                 \
    case op:                      \
        tiles(op, x, rows, n, y); \
        break;
    switch (op) {
        TILES(RU_KERN_RED_SUM)
        TILES(RU_KERN_RED_SUM_SQUARE)
        TILES(RU_KERN_RED_SUM_ABS)
        TILES(RU_KERN_RED_MAX)
        TILES(RU_KERN_RED_MIN)
        TILES(RU_KERN_RED_PROD)
    }
#undef TILES
}

#define SHORT_LOOP(f)                                          \
    for (int64_t k = 0; k < n; k++) {                          \
        _Pragma("omp simd") for (int64_t j = 0; j < rows; j++) \
        {                                                      \
            float v = x[j * n + k], s = acc[j];                \
            acc[j] = f;                                        \
        }                                                      \
    }                                                          \
    break

RU_KERN_INLINE void short_rows(ru_kern_red op, const float *x, const int64_t rows, const int64_t n,
                               float *y)
{
    float acc[SHORT_ROWS];
    for (int64_t j = 0; j < rows; j++) {
        acc[j] = start_of(op);
    }
    switch (op) {
    case RU_KERN_RED_SUM:
        SHORT_LOOP(s + v);
    case RU_KERN_RED_SUM_SQUARE:
        SHORT_LOOP(s + v * v);
    case RU_KERN_RED_SUM_ABS:
        SHORT_LOOP(s + fabsf(v));
    case RU_KERN_RED_MAX:
        SHORT_LOOP(kv_max(v, s));
    case RU_KERN_RED_MIN:
        SHORT_LOOP(kv_min(v, s));
    case RU_KERN_RED_PROD:
        SHORT_LOOP(s * v);
    }
    memcpy(y, acc, (size_t)rows * sizeof *y);
}
#undef SHORT_LOOP

/* w rows of fewer than TILE_W elements; `room`: floats that may be read from x on. */
static void short_group(ru_kern_red op, const float *x, int64_t w, int64_t n, int64_t room,
                        float *y)
{
    int64_t r = 0, reach = (TILE_W - 1) * n + TILE_W;
    if (w == SHORT_ROWS && n == 2) { /* steps that the compiler knows make shuffles */
        short_rows(op, x, SHORT_ROWS, 2, y);
        return;
    }
    if (w == SHORT_ROWS && n == 4) {
        short_rows(op, x, SHORT_ROWS, 4, y);
        return;
    }
    for (; n > 2 && r + TILE_W <= w && r * n + reach <= room; r += TILE_W) {
        rows_in_tiles(op, x + r * n, TILE_W, n, y + r);
    }
    if (r < w) {
        short_rows(op, x + r * n, w - r, n, y + r);
    }
}

void RUI_K(rui_kern_reduce_rows)(ru_kern_red op, ru_dtype t, const void *x, int64_t rows, int64_t n,
                                 float *y)
{
    float buf[KV_BLOCK];
    const char *from = x;
    const int64_t bytes = ru_dtype_bytes(t);
    if (t == RU_F32 && n >= TILE_W && n <= (op == RU_KERN_RED_PROD ? KV_LANES : TILE_MAX)) {
        rows_in_tiles(op, x, rows, n, y);
        return;
    }
    for (int64_t r = 0; n > KV_LANES && r < rows; r++) {
        y[r] = RUI_K(rui_kern_reduce)(op, t, from + r * n * bytes, n, 1, 0);
    }
    for (int64_t r = 0; n <= KV_LANES && r < rows; r += SHORT_ROWS) {
        int64_t w = kv_min_i64(SHORT_ROWS, rows - r);
        const float *some = kv_load(t, x, r * n, w * n, buf);
        if (n >= TILE_W) {
            rows_in_tiles(op, some, w, n, y + r);
        } else {
            short_group(op, some, w, n, t == RU_F32 ? (rows - r) * n : w * n, y + r);
        }
    }
}

/* -- joined to what y holds, in the type of the elements. Whole numbers wrap. ---------------------
 */

enum {
    FOLD_BYTES = 64, /* one vector of the widest set: results do not depend on the set */
    NEAR_BYTES = 16384,
    FOLD_ROWS = 8, /* fewer than a set of L1 has lines: rows may lie a power of two apart */
};

RU_KERN_INLINE float join_f32(const ru_kern_red op, float s, float v)
{
    return op == RU_KERN_RED_SUM_SQUARE ? s + v * v
           : op == RU_KERN_RED_SUM_ABS  ? s + fabsf(v)
           : op == RU_KERN_RED_PROD     ? s * v
           : op == RU_KERN_RED_MAX      ? kv_max(v, s)
           : op == RU_KERN_RED_MIN      ? kv_min(v, s)
                                        : s + v;
}

RU_KERN_INLINE int64_t join_i64(const ru_kern_red op, int64_t s, int64_t v)
{
    uint64_t a = (uint64_t)s, b = (uint64_t)v;
    return op == RU_KERN_RED_SUM_SQUARE ? (int64_t)(a + b * b)
           : op == RU_KERN_RED_SUM_ABS  ? (int64_t)(a + (v < 0 ? 0 - b : b))
           : op == RU_KERN_RED_PROD     ? (int64_t)(a * b)
           : op == RU_KERN_RED_MAX      ? (v > s ? v : s)
           : op == RU_KERN_RED_MIN      ? (v < s ? v : s)
                                        : (int64_t)(a + b);
}

RU_KERN_INLINE int32_t join_i32(const ru_kern_red op, int32_t s, int32_t v)
{
    uint32_t a = (uint32_t)s, b = (uint32_t)v;
    return op == RU_KERN_RED_SUM_SQUARE ? (int32_t)(a + b * b)
           : op == RU_KERN_RED_SUM_ABS  ? (int32_t)(a + (v < 0 ? 0 - b : b))
           : op == RU_KERN_RED_PROD     ? (int32_t)(a * b)
           : op == RU_KERN_RED_MAX      ? (v > s ? v : s)
           : op == RU_KERN_RED_MIN      ? (v < s ? v : s)
                                        : (int32_t)(a + b);
}

/* Bytes have no sums. */
RU_KERN_INLINE int8_t join_i8(const ru_kern_red op, int8_t s, int8_t v)
{
    return (op == RU_KERN_RED_MAX ? v > s : v < s) ? v : s;
}

RU_KERN_INLINE uint8_t join_u8(const ru_kern_red op, uint8_t s, uint8_t v)
{
    return (op == RU_KERN_RED_MAX ? v > s : v < s) ? v : s;
}

/* cols: `w` columns, a constant where it matters. few: fewer than a vector that follow each other
 * are read as four vectors of columns for each one, a piece of x in L1 at a time; what is left of
 * the rows is the caller's. wide: any number; the last vector overlaps the one before. row: two
 * vectors of partial results, then pairwise. */
#define FOLD_TYPE(T, t)                                                                          \
    RU_KERN_INLINE void cols_##t(const ru_kern_red op, const T *x, int64_t rows, int64_t ld,     \
                                 const int64_t w, T *y)                                          \
    {                                                                                            \
        T acc[4 * FOLD_BYTES / (int64_t)sizeof(T)];                                              \
        for (int64_t j = 0; j < w; j++) {                                                        \
            acc[j] = y[j];                                                                       \
        }                                                                                        \
        for (int64_t r = 0; r < rows; r++) {                                                     \
            const T *v = x + r * ld;                                                             \
            _Pragma("omp simd") for (int64_t j = 0; j < w; j++)                                  \
            {                                                                                    \
                acc[j] = join_##t(op, acc[j], v[j]);                                             \
            }                                                                                    \
        }                                                                                        \
        for (int64_t j = 0; j < w; j++) {                                                        \
            y[j] = acc[j];                                                                       \
        }                                                                                        \
    }                                                                                            \
    RU_KERN_INLINE void few_##t(const ru_kern_red op, const T *x, int64_t rows, int64_t w,       \
                                T start, T *y)                                                   \
    {                                                                                            \
        enum { V = FOLD_BYTES / (int64_t)sizeof(T) };                                            \
        T part[4 * V * V];                                                                       \
        const int64_t at_once = 4 * V, all = at_once * w;                                        \
        for (int64_t j = 0; j < all; j++) {                                                      \
            part[j] = start;                                                                     \
        }                                                                                        \
        for (int64_t r = 0, n; r + at_once <= rows; r += n * at_once) {                          \
            n = kv_min_i64((rows - r) / at_once, NEAR_BYTES / (int64_t)sizeof(T) / all + 1);     \
            for (int64_t j = 0; j < all; j += 4 * V) {                                           \
                cols_##t(op, x + r * w + j, n, all, 4 * V, part + j);                            \
            }                                                                                    \
        }                                                                                        \
        for (int64_t h = at_once / 2; h > 0; h /= 2) {                                           \
            _Pragma("omp simd") for (int64_t j = 0; j < h * w; j++)                              \
            {                                                                                    \
                part[j] = join_##t(of_parts(op), part[j], part[j + h * w]);                      \
            }                                                                                    \
        }                                                                                        \
        for (int64_t j = 0; j < w; j++) {                                                        \
            y[j] = join_##t(of_parts(op), y[j], part[j]);                                        \
        }                                                                                        \
    }                                                                                            \
    RU_KERN_INLINE void wide_##t(const ru_kern_red op, const T *x, int64_t rows, int64_t ld,     \
                                 int64_t w, T start, T *y)                                       \
    {                                                                                            \
        enum { V = FOLD_BYTES / (int64_t)sizeof(T) };                                            \
        T end[V];                                                                                \
        int64_t c = 0, left = w % V;                                                             \
        if (w < V && ld == w && rows >= 8 * V) {                                                 \
            few_##t(op, x, rows, w, start, y);                                                   \
            x += rows / (4 * V) * (4 * V) * w;                                                   \
            rows %= 4 * V;                                                                       \
        }                                                                                        \
        if (w > V && left > 0) {                                                                 \
            memcpy(end, y + w - V, sizeof end);                                                  \
            cols_##t(op, x + w - V, rows, ld, V, end);                                           \
        }                                                                                        \
        for (; c + 4 * V <= w; c += 4 * V) {                                                     \
            cols_##t(op, x + c, rows, ld, 4 * V, y + c);                                         \
        }                                                                                        \
        for (; c + V <= w; c += V) {                                                             \
            cols_##t(op, x + c, rows, ld, V, y + c);                                             \
        }                                                                                        \
        if (w > V && left > 0) {                                                                 \
            memcpy(y + c, end + V - left, (size_t)left * sizeof *y);                             \
        } else if (left > 0) {                                                                   \
            cols_##t(op, x, rows, ld, left, y);                                                  \
        }                                                                                        \
    }                                                                                            \
    RU_KERN_INLINE T row_##t(const ru_kern_red op, const T *x, int64_t n, T start, T a)          \
    {                                                                                            \
        enum { V = 2 * FOLD_BYTES / (int64_t)sizeof(T) };                                        \
        int64_t i = n / V * V;                                                                   \
        if (i > 0) {                                                                             \
            T acc[V];                                                                            \
            for (int64_t j = 0; j < V; j++) {                                                    \
                acc[j] = start;                                                                  \
            }                                                                                    \
            cols_##t(op, x, i / V, V, V, acc);                                                   \
            const T *last = x + n - V;                                                           \
            _Pragma("omp simd") for (int64_t j = 0; j < V; j++)                                  \
            {                                                                                    \
                acc[j] = join_##t(op, acc[j], j < V - (n - i) ? start : last[j]);                \
            }                                                                                    \
            for (int64_t w = V / 2; w > 0; w /= 2) {                                             \
                for (int64_t j = 0; j < w; j++) {                                                \
                    acc[j] = join_##t(of_parts(op), acc[j], acc[j + w]);                         \
                }                                                                                \
            }                                                                                    \
            return join_##t(of_parts(op), a, acc[0]);                                            \
        }                                                                                        \
        for (; i < n; i++) {                                                                     \
            a = join_##t(op, a, x[i]);                                                           \
        }                                                                                        \
        return a;                                                                                \
    }                                                                                            \
    RU_KERN_INLINE void fold_##t(const ru_kern_red op, const bool across, const T *x, int64_t n, \
                                 int64_t ld, int64_t w, bool first, T start, T *y)               \
    {                                                                                            \
        for (int64_t j = 0; first && j < w; j++) {                                               \
            y[j] = start;                                                                        \
        }                                                                                        \
        if (across) {                                                                            \
            wide_##t(op, x, n, ld, w, start, y);                                                 \
            return;                                                                              \
        }                                                                                        \
        for (int64_t j = 0; n == 2 && j < w; j++) {                                              \
            y[j] = join_##t(op, join_##t(op, y[j], x[j * 2]), x[j * 2 + 1]);                     \
        }                                                                                        \
        for (int64_t j = 0; n != 2 && j < w; j++) {                                              \
            y[j] = row_##t(op, x + j * n, n, start, y[j]);                                       \
        }                                                                                        \
    }

FOLD_TYPE(float, f32)
FOLD_TYPE(double, f64)
FOLD_TYPE(int64_t, i64)
FOLD_TYPE(int32_t, i32)
FOLD_TYPE(int8_t, i8)
FOLD_TYPE(uint8_t, u8)

/* The result of no elements. */
static double start_real(ru_kern_red op)
{
    return op == RU_KERN_RED_PROD ? 1.0 : (double)start_of(op);
}

static int64_t start_whole(ru_kern_red op, ru_dtype t)
{
    bool is_signed = t != RU_U8 && t != RU_BOOL;
    int64_t spare = 64 - 8 * ru_dtype_bytes(t);
    int64_t least = is_signed ? INT64_MIN >> spare : 0;
    int64_t most = t == RU_BOOL ? 1 : is_signed ? INT64_MAX >> spare : UINT8_MAX;
    return op == RU_KERN_RED_MAX   ? least
           : op == RU_KERN_RED_MIN ? most
                                   : (op == RU_KERN_RED_PROD ? 1 : 0);
}

/* Rows of floats go by reduce_rows, which turns short ones in registers. */
static void fold_rows_f32(ru_kern_red op, const float *x, int64_t n, int64_t w, bool first,
                          float *y)
{
    float part[KV_BLOCK];
    for (int64_t j = 0; j < w; j += KV_BLOCK) {
        int64_t m = kv_min_i64(KV_BLOCK, w - j);
        RUI_K(rui_kern_reduce_rows)(op, RU_F32, x + j * n, m, n, first ? y + j : part);
        if (!first) {
            wide_f32(of_parts(op), part, 1, m, m, 0.0f, y + j);
        }
    }
}

/* Begins y where that is to be done; returns the rows that are done. */
static int64_t fold_rows_f64(ru_kern_red op, const double *x, int64_t n, int64_t w, bool first,
                             double *y)
{
    const double start = start_real(op);
    for (int64_t j = 0; first && j < w; j++) {
        y[j] = start;
    }
#define ROWS(op) \
    case op:     \
        return deep_fold(op, x, n, w, start, y);
    switch (op) {
        ROWS(RU_KERN_RED_SUM)
        ROWS(RU_KERN_RED_SUM_SQUARE)
        ROWS(RU_KERN_RED_SUM_ABS)
        ROWS(RU_KERN_RED_MAX)
        ROWS(RU_KERN_RED_MIN)
        ROWS(RU_KERN_RED_PROD)
    }
#undef ROWS
    return 0;
}

#define FOLD_CASE(op, T, t, start)                                \
    case op:                                                      \
        if (across) {                                             \
            fold_##t(op, true, x, n, ld, w, first, (T)start, y);  \
        } else {                                                  \
            fold_##t(op, false, x, n, ld, w, first, (T)start, y); \
        }                                                         \
        break;

#define FOLD_BYTE(T, t)                                                                    \
    if (op == RU_KERN_RED_MAX && across) {                                                 \
        fold_##t(RU_KERN_RED_MAX, true, x, n, ld, w, first, (T)start_whole(op, type), y);  \
    } else if (op == RU_KERN_RED_MAX) {                                                    \
        fold_##t(RU_KERN_RED_MAX, false, x, n, ld, w, first, (T)start_whole(op, type), y); \
    } else if (across) {                                                                   \
        fold_##t(RU_KERN_RED_MIN, true, x, n, ld, w, first, (T)start_whole(op, type), y);  \
    } else {                                                                               \
        fold_##t(RU_KERN_RED_MIN, false, x, n, ld, w, first, (T)start_whole(op, type), y); \
    }

#define FOLD_WIDE(T, t, start)                         \
    switch (op) {                                      \
        FOLD_CASE(RU_KERN_RED_SUM, T, t, start)        \
        FOLD_CASE(RU_KERN_RED_SUM_SQUARE, T, t, start) \
        FOLD_CASE(RU_KERN_RED_SUM_ABS, T, t, start)    \
        FOLD_CASE(RU_KERN_RED_MAX, T, t, start)        \
        FOLD_CASE(RU_KERN_RED_MIN, T, t, start)        \
        FOLD_CASE(RU_KERN_RED_PROD, T, t, start)       \
    }

static void fold_piece(ru_kern_red op, ru_dtype type, bool across, const void *x, int64_t n,
                       int64_t ld, int64_t w, bool first, void *y)
{
    int64_t done = type == RU_F64 && !across ? fold_rows_f64(op, x, n, w, first, y) : 0;
    x = (const char *)x + done * n * (int64_t)sizeof(double);
    y = (char *)y + done * (int64_t)sizeof(double);
    w -= done;
    if (type == RU_F32 && !across) {
        fold_rows_f32(op, x, n, w, first, y);
    } else if (type == RU_F32) {
        FOLD_WIDE(float, f32, start_real(op))
    } else if (type == RU_F64) {
        FOLD_WIDE(double, f64, start_real(op))
    } else if (type == RU_I64) {
        FOLD_WIDE(int64_t, i64, start_whole(op, type))
    } else if (type == RU_I32) {
        FOLD_WIDE(int32_t, i32, start_whole(op, type))
    } else if (type == RU_I8) {
        FOLD_BYTE(int8_t, i8)
    } else {
        RU_CHECK(type == RU_U8 || type == RU_BOOL);
        FOLD_BYTE(uint8_t, u8)
    }
}

/* Many columns in pieces of a few rows, whose results stay in L1: so x is read nearly in its order.
 */
void RUI_K(rui_kern_fold)(ru_kern_red op, ru_dtype type, bool across, const void *x, int64_t n,
                          int64_t ld, int64_t w, bool first, void *y)
{
    const int64_t bytes = ru_dtype_bytes(type), near = NEAR_BYTES / bytes;
    if (!across || w * bytes <= 4 * FOLD_BYTES || n <= FOLD_ROWS) {
        fold_piece(op, type, across, x, n, ld, w, first, y);
        return;
    }
    for (int64_t c = 0, m; c < w; c += m) {
        m = w - c < 2 * near ? w - c : near;
        for (int64_t r = 0; r < n; r += FOLD_ROWS) {
            fold_piece(op, type, true, (const char *)x + (r * ld + c) * bytes,
                       kv_min_i64(FOLD_ROWS, n - r), ld, m, first && r == 0, (char *)y + c * bytes);
        }
    }
}

/* bf16: a block of columns, widened a few rows at a time. */
void RUI_K(rui_kern_reduce_cols)(ru_kern_red op, ru_dtype t, const void *x, int64_t rows,
                                 int64_t ld, int64_t c0, int64_t c1, float *y)
{
    float buf[KV_BLOCK];
    if (t == RU_F32) {
        RUI_K(rui_kern_fold)(op, t, true, (const float *)x + c0, rows, ld, c1 - c0, true, y + c0);
        return;
    }
    for (int64_t c = c0; c < c1; c += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, c1 - c);
        RUI_K(rui_kern_fold)(op, RU_F32, true, buf, 0, w, w, true, y + c);
        for (int64_t r = 0; r < rows; r++) {
            kv_load(t, x, r * ld + c, w, buf);
            RUI_K(rui_kern_fold)(op, RU_F32, true, buf, 1, w, w, false, y + c);
        }
    }
}

void RUI_K(rui_kern_sum_rows)(ru_dtype t, const void *x, int64_t rows, int64_t ld, int64_t c0,
                              int64_t c1, float *y)
{
    RUI_K(rui_kern_reduce_cols)(RU_KERN_RED_SUM, t, x, rows, ld, c0, c1, y);
}
