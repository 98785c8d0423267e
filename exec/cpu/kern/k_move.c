/* Moving data: gather and its deterministic gradient, transposition, dropout. */
#include "exec/cpu/kern/isa.h"

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

enum { TILE = 16 };

/* Rows of a few neighbours come apart: strides that the compiler knows make shuffles. */
#define APART(type)                                                                           \
    RU_KERN_INLINE void apart_##type(const type *x, const int64_t cols, type *y, int64_t ldy, \
                                     int64_t rows)                                            \
    {                                                                                         \
        for (int64_t j = 0; j < cols; j++) {                                                  \
            _Pragma("omp simd") for (int64_t i = 0; i < rows; i++)                            \
            {                                                                                 \
                y[j * ldy + i] = x[i * cols + j];                                             \
            }                                                                                 \
        }                                                                                     \
    }

APART(uint8_t)
APART(uint16_t)
APART(uint32_t)
APART(uint64_t)

#define TRANSPOSE_LOOP(type)                                                   \
    do {                                                                       \
        const type *xs = x;                                                    \
        type *ys = y;                                                          \
        if (cols == 2 && ldx == 2) {                                           \
            apart_##type(xs, 2, ys, ldy, rows);                                \
            return;                                                            \
        }                                                                      \
        if (cols == 4 && ldx == 4) {                                           \
            apart_##type(xs, 4, ys, ldy, rows);                                \
            return;                                                            \
        }                                                                      \
        for (int64_t r = 0; r < rows; r += TILE) {                             \
            int64_t rw = kv_min_i64(TILE, rows - r);                           \
            for (int64_t c = 0; c < cols; c += TILE) {                         \
                int64_t cw = kv_min_i64(TILE, cols - c);                       \
                for (int64_t j = 0; j < cw; j++) {                             \
                    for (int64_t i = 0; i < rw; i++) {                         \
                        ys[(c + j) * ldy + r + i] = xs[(r + i) * ldx + c + j]; \
                    }                                                          \
                }                                                              \
            }                                                                  \
        }                                                                      \
    } while (0)

void RUI_K(rui_kern_transpose)(int64_t bytes, const void *x, int64_t ldx, void *y, int64_t ldy,
                               int64_t rows, int64_t cols)
{
    switch (bytes) {
    case 1:
        TRANSPOSE_LOOP(uint8_t);
        break;
    case 2:
        TRANSPOSE_LOOP(uint16_t);
        break;
    case 4:
        TRANSPOSE_LOOP(uint32_t);
        break;
    default:
        TRANSPOSE_LOOP(uint64_t);
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
