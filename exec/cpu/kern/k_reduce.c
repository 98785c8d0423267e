/* Reductions. A row is summed in KV_LANES partial sums (element i goes to lane i mod KV_LANES) that
 * are added pairwise: the same order on every instruction set and for every number of threads.
 * Short rows are summed element by element, columns row by row. */
#include "exec/cpu/kern/isa.h"
#include "exec/cpu/kern/lanes.h"
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

/* -- rows shorter than KV_LANES: SHORT_ROWS of them side by side, each in the order of its elements
 */

enum { SHORT_ROWS = 16 };

typedef int32_t tile_mask __attribute__((vector_size(TILE_W * 4), may_alias));

RU_KERN_INLINE tile_v tile_pick(tile_mask first, tile_v a, tile_v b)
{
    return (tile_v)(((tile_mask)a & first) | ((tile_mask)b & ~first));
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

/* TILE_W rows, turned in registers; a tile that hangs over the end of the rows reads what follows.
 */
RU_KERN_INLINE void tile_rows(const ru_kern_red op, const float *x, int64_t n, float *y)
{
    tile_v acc = (tile_v){0} + start_of(op);
    for (int64_t k = 0; k < n; k += TILE_W) {
        tile_v r[TILE_W];
        int64_t w = n - k;
#pragma GCC unroll 8
        for (int64_t i = 0; i < TILE_W; i++) {
            r[i] = tile_load(x + i * n + k);
        }
        tile_transpose(r);
#pragma GCC unroll 8
        for (int64_t i = 0; i < TILE_W; i++) {
            if (i < w) {
                acc = tile_join(op, r[i], acc);
            }
        }
    }
    tile_store(y, acc);
}

static void short_tile(ru_kern_red op, const float *x, int64_t n, float *y)
{
    switch (op) {
    case RU_KERN_RED_SUM:
        tile_rows(RU_KERN_RED_SUM, x, n, y);
        break;
    case RU_KERN_RED_SUM_SQUARE:
        tile_rows(RU_KERN_RED_SUM_SQUARE, x, n, y);
        break;
    case RU_KERN_RED_SUM_ABS:
        tile_rows(RU_KERN_RED_SUM_ABS, x, n, y);
        break;
    case RU_KERN_RED_MAX:
        tile_rows(RU_KERN_RED_MAX, x, n, y);
        break;
    case RU_KERN_RED_MIN:
        tile_rows(RU_KERN_RED_MIN, x, n, y);
        break;
    case RU_KERN_RED_PROD:
        tile_rows(RU_KERN_RED_PROD, x, n, y);
        break;
    }
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

/* w rows; `room`: floats that may be read from x on. */
static void short_group(ru_kern_red op, const float *x, int64_t w, int64_t n, int64_t room,
                        float *y)
{
    int64_t r = 0, reach = (TILE_W - 1) * n + (n + TILE_W - 1) / TILE_W * TILE_W;
    if (w == SHORT_ROWS && n == 2) { /* steps that the compiler knows make shuffles */
        short_rows(op, x, SHORT_ROWS, 2, y);
        return;
    }
    if (w == SHORT_ROWS && n == 4) {
        short_rows(op, x, SHORT_ROWS, 4, y);
        return;
    }
    for (; n > 2 && r + TILE_W <= w && r * n + reach <= room; r += TILE_W) {
        short_tile(op, x + r * n, n, y + r);
    }
    if (r < w) {
        short_rows(op, x + r * n, w - r, n, y + r);
    }
}

void RUI_K(rui_kern_reduce_rows)(ru_kern_red op, ru_dtype t, const void *x, int64_t rows, int64_t n,
                                 float *y)
{
    float buf[KV_BLOCK];
    if (n > KV_LANES) {
        for (int64_t r = 0; r < rows; r++) {
            y[r] = RUI_K(rui_kern_reduce)(op, t, (const char *)x + r * n * (t == RU_F32 ? 4 : 2), n,
                                          1, 0);
        }
        return;
    }
    for (int64_t r = 0; r < rows; r += SHORT_ROWS) {
        int64_t w = kv_min_i64(SHORT_ROWS, rows - r);
        const float *from = kv_load(t, x, r * n, w * n, buf);
        short_group(op, from, w, n, t == RU_F32 ? (rows - r) * n : w * n, y + r);
    }
}

/* One row into the accumulators of its columns. */
static void row_into(ru_kern_red op, const float *x, float *y, int64_t n)
{
#define COL_LOOP(f)                                     \
    _Pragma("omp simd") for (int64_t j = 0; j < n; j++) \
    {                                                   \
        float v = x[j], s = y[j];                       \
        y[j] = f;                                       \
    }
    switch (op) {
    case RU_KERN_RED_SUM:
        COL_LOOP(s + v)
        break;
    case RU_KERN_RED_SUM_SQUARE:
        COL_LOOP(s + v * v)
        break;
    case RU_KERN_RED_SUM_ABS:
        COL_LOOP(s + fabsf(v))
        break;
    case RU_KERN_RED_MAX:
        COL_LOOP(kv_max(v, s))
        break;
    case RU_KERN_RED_MIN:
        COL_LOOP(kv_min(v, s))
        break;
    case RU_KERN_RED_PROD:
        COL_LOOP(s * v)
        break;
    }
#undef COL_LOOP
}

void RUI_K(rui_kern_reduce_cols)(ru_kern_red op, ru_dtype t, const void *x, int64_t rows,
                                 int64_t ld, int64_t c0, int64_t c1, float *y)
{
    float buf[KV_BLOCK];
    for (int64_t c = c0; c < c1; c += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, c1 - c);
        float *to = y + c;
        for (int64_t j = 0; j < w; j++) {
            to[j] = start_of(op);
        }
        for (int64_t r = 0; r < rows; r++) {
            row_into(op, kv_load(t, x, r * ld + c, w, buf), to, w);
        }
    }
}

/* Four rows at a time while the sums of 64 columns stay in registers. */
static void sum_64(const float *x, int64_t rows, int64_t ld, float *y)
{
    float acc[64] = {0};
    for (int64_t r = 0; r < rows; r++) {
        const float *s = x + r * ld;
#pragma omp simd
        for (int64_t j = 0; j < 64; j++) {
            acc[j] += s[j];
        }
    }
    memcpy(y, acc, sizeof acc);
}

void RUI_K(rui_kern_sum_rows)(ru_dtype t, const void *x, int64_t rows, int64_t ld, int64_t c0,
                              int64_t c1, float *y)
{
    int64_t c = c0;
    if (t == RU_F32) {
        for (; c + 64 <= c1; c += 64) {
            sum_64((const float *)x + c, rows, ld, y + c);
        }
    }
    if (c < c1) {
        RUI_K(rui_kern_reduce_cols)(RU_KERN_RED_SUM, t, x, rows, ld, c, c1, y);
    }
}
