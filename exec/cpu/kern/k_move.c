/* Moving data: gather and its deterministic gradient, transposition, dropout. */
#include "exec/cpu/kern/isa.h"
#include "exec/cpu/kern/rows.h"
#include "exec/cpu/kern/tile.h"

static int64_t index_at(ru_dtype it, const void *index, int64_t i)
{
    return it == RU_I64 ? ((const int64_t *)index)[i] : ((const int32_t *)index)[i];
}

int64_t RUI_K(rui_kern_gather)(int64_t bytes, const void *x, int64_t limit, ru_dtype it,
                               const void *index, int64_t n, int64_t cols, void *y)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t k = index_at(it, index, i);
        k += k < 0 ? limit : 0;
        if (k < 0 || k >= limit) {
            return i;
        }
        memcpy((char *)y + i * cols * bytes, (const char *)x + k * cols * bytes,
               (size_t)(cols * bytes));
    }
    return -1;
}

int64_t RUI_K(rui_kern_gather_grad)(ru_dtype t, const void *dy, ru_dtype it, const void *index,
                                    int64_t n, int64_t limit, int64_t cols, int64_t c0, int64_t c1,
                                    float *dx)
{
    float buf[KV_BLOCK];
    for (int64_t r = 0; r < limit; r++) {
        memset(dx + r * cols + c0, 0, sizeof(float) * (size_t)(c1 - c0));
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t k = index_at(it, index, i);
        k += k < 0 ? limit : 0;
        if (k < 0 || k >= limit) {
            return i;
        }
        for (int64_t c = c0; c < c1; c += KV_BLOCK) {
            int64_t w = kv_min_i64(KV_BLOCK, c1 - c);
            const float *s = kv_load(t, dy, i * cols + c, w, buf);
            float *o = dx + k * cols + c;
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                o[j] += s[j];
            }
        }
    }
    return -1;
}

/* Of a few rows or columns that stand without gaps: steps that the compiler knows make shuffles. */
#define FEW(type)                                                                                \
    RU_KERN_INLINE void apart_##type(const type *x, const int64_t cols, type *y, int64_t ldy,    \
                                     int64_t rows)                                               \
    {                                                                                            \
        for (int64_t j = 0; j < cols; j++) {                                                     \
            _Pragma("omp simd") for (int64_t i = 0; i < rows; i++)                               \
            {                                                                                    \
                y[j * ldy + i] = x[i * cols + j];                                                \
            }                                                                                    \
        }                                                                                        \
    }                                                                                            \
    RU_KERN_INLINE void together_##type(const type *x, int64_t ldx, type *y, const int64_t rows, \
                                        int64_t cols)                                            \
    {                                                                                            \
        _Pragma("omp simd") for (int64_t j = 0; j < cols; j++)                                   \
        {                                                                                        \
            _Pragma("GCC unroll 4") for (int64_t i = 0; i < rows; i++)                           \
            {                                                                                    \
                y[j * rows + i] = x[i * ldx + j];                                                \
            }                                                                                    \
        }                                                                                        \
    }                                                                                            \
    static bool few_##type(const type *x, int64_t ldx, type *y, int64_t ldy, int64_t rows,       \
                           int64_t cols)                                                         \
    {                                                                                            \
        bool apart = ldx == cols, together = ldy == rows;                                        \
        if (apart && cols == 2) {                                                                \
            apart_##type(x, 2, y, ldy, rows);                                                    \
        } else if (apart && cols == 3) {                                                         \
            apart_##type(x, 3, y, ldy, rows);                                                    \
        } else if (apart && cols == 4) {                                                         \
            apart_##type(x, 4, y, ldy, rows);                                                    \
        } else if (together && rows == 2) {                                                      \
            together_##type(x, ldx, y, 2, cols);                                                 \
        } else if (together && rows == 3) {                                                      \
            together_##type(x, ldx, y, 3, cols);                                                 \
        } else if (together && rows == 4) {                                                      \
            together_##type(x, ldx, y, 4, cols);                                                 \
        } else {                                                                                 \
            return false;                                                                        \
        }                                                                                        \
        return true;                                                                             \
    }

FEW(uint8_t)
FEW(uint16_t)
FEW(uint32_t)
FEW(uint64_t)

/* N rows of N elements, of which `loads` rows are read and `stores` written: rows i and i + N / 2
 * are zipped, as often as N halves. */
#define ZIPS(type, N, name, low, high)                                                           \
    typedef type name##_v __attribute__((vector_size(N * sizeof(type)), aligned(1), may_alias)); \
    RU_KERN_INLINE void name##_tile(const type *x, int64_t ldx, type *y, int64_t ldy,            \
                                    const int64_t loads, const int64_t stores)                   \
    {                                                                                            \
        name##_v r[N], u[N];                                                                     \
        _Pragma("GCC unroll 16") for (int64_t i = 0; i < N; i++)                                 \
        {                                                                                        \
            r[i] = i < loads ? *(const name##_v *)(const void *)(x + i * ldx) : (name##_v){0};   \
        }                                                                                        \
        _Pragma("GCC unroll 4") for (int64_t left = N; left > 1; left /= 2)                      \
        {                                                                                        \
            _Pragma("GCC unroll 8") for (int64_t i = 0; i < N / 2; i++)                          \
            {                                                                                    \
                u[2 * i] = low(r[i], r[i + N / 2]);                                              \
                u[2 * i + 1] = high(r[i], r[i + N / 2]);                                         \
            }                                                                                    \
            _Pragma("GCC unroll 16") for (int64_t i = 0; i < N; i++)                             \
            {                                                                                    \
                r[i] = u[i];                                                                     \
            }                                                                                    \
        }                                                                                        \
        _Pragma("GCC unroll 16") for (int64_t i = 0; i < N; i++)                                 \
        {                                                                                        \
            if (i < stores) {                                                                    \
                *(name##_v *)(void *)(y + i * ldy) = r[i];                                       \
            }                                                                                    \
        }                                                                                        \
    }

#define LOW_4(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_4(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW_8(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_8(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_16(a, b) \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH_16(a, b) \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

ZIPS(uint8_t, 16, bytes, LOW_16, HIGH_16)
ZIPS(uint16_t, 8, halves, LOW_8, HIGH_8)
ZIPS(uint64_t, 4, pairs, LOW_4, HIGH_4)

RU_KERN_INLINE void words_tile(const uint32_t *x, int64_t ldx, uint32_t *y, int64_t ldy,
                               const int64_t loads, const int64_t stores)
{
    tile_v r[TILE_W];
#pragma GCC unroll 8
    for (int64_t i = 0; i < TILE_W; i++) {
        r[i] = i < loads ? tile_load((const float *)(const void *)(x + i * ldx)) : (tile_v){0};
    }
    tile_transpose(r);
#pragma GCC unroll 8
    for (int64_t i = 0; i < TILE_W; i++) {
        if (i < stores) {
            tile_store((float *)(void *)(y + i * ldy), r[i]);
        }
    }
}

enum { FEWEST = 48 }; /* elements that are not worth a tile */

/* TURN: along x some tiles side by side, so that its lines are read at once, and down all rows, so
 * that lines of y are whole soon. The last tile of a row or column overlaps the one before. Lines
 * of y that lie a multiple of 512 bytes apart share few places of the cache: tiles below each other
 * are put together first, so that they are written whole.
 *
 * Where a side is shorter than a tile, tiles read elements of the next row and drop them, or write
 * over the beginning of the next row, which is written after. The last ones are copied out and
 * back. */
#define TURN(type, name, N, SIDE, whole)                                                         \
    static void name##_edge(const type *x, int64_t ldx, type *y, int64_t ldy, int64_t rows,      \
                            int64_t cols)                                                        \
    {                                                                                            \
        enum { SIZE = sizeof(type) };                                                            \
        type a[N * N] = {0}, b[N * N];                                                           \
        rui_rows_copy((char *)a, N *SIZE, (const char *)x, ldx *SIZE, cols *SIZE, rows);         \
        name##_tile(a, N, b, N, N, N);                                                           \
        rui_rows_copy((char *)y, ldy *SIZE, (const char *)b, N *SIZE, rows *SIZE, cols);         \
    }                                                                                            \
    static void name##_narrow(const type *x, int64_t ldx, type *y, int64_t ldy, int64_t rows,    \
                              int64_t cols)                                                      \
    {                                                                                            \
        int64_t readable = (rows - 1) * ldx + cols, writable = (cols - 1) * ldy + rows;          \
        int64_t i = 0, j = 0;                                                                    \
        for (; rows * cols <= FEWEST && i < rows; i++) {                                         \
            for (int64_t c = 0; c < cols; c++) {                                                 \
                y[c * ldy + i] = x[i * ldx + c];                                                 \
            }                                                                                    \
        }                                                                                        \
        if (i == rows) {                                                                         \
            return;                                                                              \
        }                                                                                        \
        for (; cols < N && i + N <= rows && (i + N - 1) * ldx + N <= readable; i += N) {         \
            name##_tile(x + i * ldx, ldx, y + i, ldy, N, cols);                                  \
        }                                                                                        \
        for (; rows < N && ldy == rows && j + N <= cols && (j + N - 1) * ldy + N <= writable;    \
             j += N) {                                                                           \
            name##_tile(x + j, ldx, y + j * ldy, ldy, rows, N);                                  \
        }                                                                                        \
        for (int64_t at = i; at < rows; at += N) {                                               \
            for (int64_t b = j; b < cols; b += N) {                                              \
                name##_edge(x + at * ldx + b, ldx, y + b * ldy + at, ldy,                        \
                            kv_min_i64(N, rows - at), kv_min_i64(N, cols - b));                  \
            }                                                                                    \
        }                                                                                        \
    }                                                                                            \
    /* Columns c .. last in whole lines of y, of as many rows as make one; returns the rows done \
     */                                                                                          \
    static int64_t name##_lines(const type *x, int64_t ldx, type *y, int64_t ldy, int64_t rows,  \
                                int64_t cols, int64_t c, int64_t last)                           \
    {                                                                                            \
        enum { LINE = 64 / sizeof(type) };                                                       \
        int64_t i = 0;                                                                           \
        for (; i + LINE <= rows; i += LINE) {                                                    \
            for (int64_t j = c; j < last; j += N) {                                              \
                type some[N * LINE];                                                             \
                int64_t b = kv_min_i64(j, cols - N);                                             \
                for (int64_t k = 0; k < LINE; k += N) {                                          \
                    name##_tile(x + (i + k) * ldx + b, ldx, some + k, LINE, N, N);               \
                }                                                                                \
                for (int64_t k = 0; k < N; k++) {                                                \
                    memcpy(y + (b + k) * ldy + i, some + k * LINE, 64);                          \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
        return i;                                                                                \
    }                                                                                            \
    static void name##_turn(const type *x, int64_t ldx, type *y, int64_t ldy, int64_t rows,      \
                            int64_t cols)                                                        \
    {                                                                                            \
        if (few_##type(x, ldx, y, ldy, rows, cols)) {                                            \
            return;                                                                              \
        }                                                                                        \
        if (rows < N || cols < N) {                                                              \
            name##_narrow(x, ldx, y, ldy, rows, cols);                                           \
            return;                                                                              \
        }                                                                                        \
        for (int64_t c = 0; c < cols; c += SIDE) {                                               \
            int64_t last = kv_min_i64(c + SIDE, cols), i = 0;                                    \
            if (whole && ldy * (int64_t)sizeof(type) % 512 == 0) {                               \
                i = name##_lines(x, ldx, y, ldy, rows, cols, c, last);                           \
            }                                                                                    \
            for (; i < rows; i += N) {                                                           \
                int64_t a = kv_min_i64(i, rows - N);                                             \
                for (int64_t j = c; j < last; j += N) {                                          \
                    int64_t b = kv_min_i64(j, cols - N);                                         \
                    name##_tile(x + a * ldx + b, ldx, y + b * ldy + a, ldy, N, N);               \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
    }

TURN(uint8_t, bytes, 16, 64, true)
TURN(uint16_t, halves, 8, 32, false)
TURN(uint32_t, words, 8, 32, true)
TURN(uint64_t, pairs, 4, 32, false)

void RUI_K(rui_kern_transpose)(int64_t bytes, const void *x, int64_t ldx, void *y, int64_t ldy,
                               int64_t rows, int64_t cols)
{
    switch (bytes) {
    case 1:
        bytes_turn(x, ldx, y, ldy, rows, cols);
        break;
    case 2:
        halves_turn(x, ldx, y, ldy, rows, cols);
        break;
    case 4:
        words_turn(x, ldx, y, ldy, rows, cols);
        break;
    default:
        pairs_turn(x, ldx, y, ldy, rows, cols);
        break;
    }
}

/* Four words of Philox4x32-10 for 16 counters at a time: out[4 * i + w]. */
static void philox_16(const uint32_t key[2], const uint32_t hi[2], uint64_t first, uint32_t *out)
{
    uint32_t w0[16], w1[16], w2[16], w3[16];
    for (int64_t i = 0; i < 16; i++) {
        uint64_t c = first + (uint64_t)i;
        w0[i] = (uint32_t)c;
        w1[i] = (uint32_t)(c >> 32);
        w2[i] = hi[0];
        w3[i] = hi[1];
    }
    uint32_t k0 = key[0], k1 = key[1];
    for (int64_t round = 0; round < 10; round++) {
#pragma omp simd
        for (int64_t i = 0; i < 16; i++) {
            uint64_t p0 = (uint64_t)w0[i] * 0xd2511f53u, p1 = (uint64_t)w2[i] * 0xcd9e8d57u;
            w0[i] = (uint32_t)(p1 >> 32) ^ w1[i] ^ k0;
            w1[i] = (uint32_t)p1;
            w2[i] = (uint32_t)(p0 >> 32) ^ w3[i] ^ k1;
            w3[i] = (uint32_t)p0;
        }
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    for (int64_t i = 0; i < 16; i++) {
        out[4 * i] = w0[i];
        out[4 * i + 1] = w1[i];
        out[4 * i + 2] = w2[i];
        out[4 * i + 3] = w3[i];
    }
}

/* 1 / (1 - ratio), 0 when everything is dropped. */
static float keep_scale(double ratio)
{
    return ratio < 1.0 ? (float)(1.0 / (1.0 - ratio)) : 0.0f;
}

void RUI_K(rui_kern_dropout)(ru_dtype t, const uint32_t key[2], const uint32_t hi[2], int64_t first,
                             double ratio, const void *x, void *y, uint8_t *mask, int64_t n)
{
    uint32_t draw[64];
    float bx[64], by[64], scale = keep_scale(ratio);
    double edge = rint(ratio * 0x1p32);
    bool none = edge >= 0x1p32;
    uint32_t least = none ? UINT32_MAX : (uint32_t)edge;
    for (int64_t at = 0; at < n;) {
        int64_t e = first + at, skip = e & 63;
        int64_t w = kv_min_i64(64 - skip, n - at);
        philox_16(key, hi, (uint64_t)(e - skip) / 4, draw);
        const float *s = kv_load(t, x, at, w, bx);
        float *o = kv_dest(t, y, at, by);
        uint8_t *m = mask + at;
        for (int64_t j = 0; j < w; j++) {
            bool keep = !none && draw[skip + j] >= least;
            m[j] = keep;
            o[j] = keep ? s[j] * scale : 0.0f;
        }
        kv_store(t, y, at, w, by);
        at += w;
    }
}

void RUI_K(rui_kern_dropout_grad)(ru_dtype t, double ratio, const void *dy, const uint8_t *mask,
                                  void *dx, int64_t n)
{
    float b1[KV_BLOCK], b2[KV_BLOCK], scale = keep_scale(ratio);
    for (int64_t i = 0; i < n; i += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - i);
        const float *d = kv_load(t, dy, i, w, b1);
        float *o = kv_dest(t, dx, i, b2);
        const uint8_t *m = mask + i;
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            o[j] = m[j] != 0 ? d[j] * scale : 0.0f;
        }
        kv_store(t, dx, i, w, b2);
    }
}
