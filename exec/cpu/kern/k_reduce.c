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

/* -- joined to what y holds, in the type of the elements. Whole numbers wrap. ---------------------
 */

enum { FOLD_BYTES = 64 }; /* one vector of the widest set: results do not depend on the set */

RU_KERN_INLINE float join_f32(const ru_kern_red op, float s, float v)
{
    return op == RU_KERN_RED_SUM_SQUARE ? s + v * v
           : op == RU_KERN_RED_SUM_ABS  ? s + fabsf(v)
           : op == RU_KERN_RED_PROD     ? s * v
           : op == RU_KERN_RED_MAX      ? kv_max(v, s)
           : op == RU_KERN_RED_MIN      ? kv_min(v, s)
                                        : s + v;
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

/* Partial results: squares and sizes are sums by now. */
RU_KERN_INLINE ru_kern_red of_parts(const ru_kern_red op)
{
    return op == RU_KERN_RED_SUM_SQUARE || op == RU_KERN_RED_SUM_ABS ? RU_KERN_RED_SUM : op;
}

/* cols: `w` columns, a constant where it matters. wide: any number; few that follow each other are
 * read as FOLD_BYTES columns for each one. row: two vectors of partial results, then pairwise. */
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
    RU_KERN_INLINE void wide_##t(const ru_kern_red op, const T *x, int64_t rows, int64_t ld,     \
                                 int64_t w, T start, T *y)                                       \
    {                                                                                            \
        enum { V = FOLD_BYTES / (int64_t)sizeof(T) };                                            \
        int64_t c = 0, turns = w < V && ld == w ? rows / V : 0;                                  \
        if (turns > 1) {                                                                         \
            T part[V * V];                                                                       \
            for (int64_t j = 0; j < w * V; j++) {                                                \
                part[j] = start;                                                                 \
            }                                                                                    \
            for (int64_t j = 0; j < w * V; j += V) {                                             \
                cols_##t(op, x + j, turns, w * V, V, part + j);                                  \
            }                                                                                    \
            for (int64_t j = 0; j < w * V; j++) {                                                \
                y[j % w] = join_##t(of_parts(op), y[j % w], part[j]);                            \
            }                                                                                    \
            x += turns * V * w;                                                                  \
            rows -= turns * V;                                                                   \
        }                                                                                        \
        for (; c + 4 * V <= w; c += 4 * V) {                                                     \
            cols_##t(op, x + c, rows, ld, 4 * V, y + c);                                         \
        }                                                                                        \
        for (; c + V <= w; c += V) {                                                             \
            cols_##t(op, x + c, rows, ld, V, y + c);                                             \
        }                                                                                        \
        if (c < w) {                                                                             \
            cols_##t(op, x + c, rows, ld, w - c, y + c);                                         \
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
            for (int64_t w = V / 2; w > 0; w /= 2) {                                             \
                for (int64_t j = 0; j < w; j++) {                                                \
                    acc[j] = join_##t(of_parts(op), acc[j], acc[j + w]);                         \
                }                                                                                \
            }                                                                                    \
            a = join_##t(of_parts(op), a, acc[0]);                                               \
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

void RUI_K(rui_kern_fold)(ru_kern_red op, ru_dtype type, bool across, const void *x, int64_t n,
                          int64_t ld, int64_t w, bool first, void *y)
{
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
