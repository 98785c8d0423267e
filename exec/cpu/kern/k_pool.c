/* One row of results of a pool. The rows of the image are joined into one line first, element by
 * element, with padding that changes nothing on both sides; then the taps along that line, tap by
 * tap over neighbours, so that results share vectors. */
#include "exec/cpu/kern/isa.h"

/* to = the join of `rows` rows of x, and of what is there with `more`. */
#define POOL_JOIN(name, type, f)                                                            \
    RU_KERN_INLINE void name##_join(const type *x, int64_t step, const int64_t rows,        \
                                    const bool more, type *to, int64_t n)                   \
    {                                                                                       \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                 \
        {                                                                                   \
            type b = more ? to[i] : x[i];                                                   \
            _Pragma("GCC unroll 4") for (int64_t r = more ? 0 : 1; r < rows; r++)           \
            {                                                                               \
                type v = x[r * step + i];                                                   \
                b = f;                                                                      \
            }                                                                               \
            to[i] = b;                                                                      \
        }                                                                                   \
    }                                                                                       \
    static void name##_rows(const type *x, int64_t step, int64_t rows, bool more, type *to, \
                            int64_t n)                                                      \
    {                                                                                       \
        for (int64_t r = 0; r < rows; r += 3, more = true) {                                \
            const type *from = x + r * step;                                                \
            if (more) {                                                                     \
                POOL_COUNT(rows - r, name##_join(from, step, COUNT, true, to, n));          \
            } else {                                                                        \
                POOL_COUNT(rows - r, name##_join(from, step, COUNT, false, to, n));         \
            }                                                                               \
        }                                                                                   \
    }

/* y = the join of `taps` taps along a line, and of what is there with `more`. */
#define POOL_TAPS(name, type, f)                                                             \
    RU_KERN_INLINE void name##_taps(const type *line, const int64_t stride, int64_t apart,   \
                                    const int64_t taps, const bool more, type *y, int64_t n) \
    {                                                                                        \
        _Pragma("omp simd") for (int64_t o = 0; o < n; o++)                                  \
        {                                                                                    \
            type b = more ? y[o] : line[o * stride];                                         \
            _Pragma("GCC unroll 4") for (int64_t c = more ? 0 : 1; c < taps; c++)            \
            {                                                                                \
                type v = line[o * stride + c * apart];                                       \
                b = f;                                                                       \
            }                                                                                \
            y[o] = b;                                                                        \
        }                                                                                    \
    }                                                                                        \
    RU_KERN_INLINE void name##_along(const ru_kern_pool *p, const type *line,                \
                                     const int64_t stride, type *y, int64_t n)               \
    {                                                                                        \
        int64_t apart = p->dilation;                                                         \
        POOL_COUNT(p->taps, name##_taps(line, stride, apart, COUNT, false, y, n));           \
        for (int64_t c = 3; c < p->taps; c += 3) {                                           \
            const type *from = line + c * apart;                                             \
            POOL_COUNT(p->taps - c, name##_taps(from, stride, apart, COUNT, true, y, n));    \
        }                                                                                    \
    }

/* The call with COUNT 1, 2 or, of more, 3. */
#define POOL_COUNT(n, call)     \
    do {                        \
        if ((n) == 1) {         \
            enum { COUNT = 1 }; \
            call;               \
        } else if ((n) == 2) {  \
            enum { COUNT = 2 }; \
            call;               \
        } else {                \
            enum { COUNT = 3 }; \
            call;               \
        }                       \
    } while (0)

/* Strides that the compiler knows make plain shuffles of strided reads. */
#define POOL_KIND(name, type, outside, f)                                                        \
    POOL_JOIN(name, type, f)                                                                     \
    POOL_TAPS(name, type, f)                                                                     \
    static void name##_row(const ru_kern_pool *p, const type *x, type *line, type *y, int64_t n) \
    {                                                                                            \
        int64_t width = p->planes * p->rows > 0 ? p->width : 0;                                  \
        int64_t after = p->width - width + p->after;                                             \
        for (int64_t i = 0; i < p->before; i++) {                                                \
            line[i] = outside;                                                                   \
        }                                                                                        \
        for (int64_t i = 0; i < after; i++) {                                                    \
            line[p->before + width + i] = outside;                                               \
        }                                                                                        \
        for (int64_t k = 0; k < p->planes && width > 0; k++) {                                   \
            name##_rows(x + k * p->plane_step, p->row_step, p->rows, k > 0, line + p->before,    \
                        width);                                                                  \
        }                                                                                        \
        if (p->stride == 1) {                                                                    \
            name##_along(p, line, 1, y, n);                                                      \
        } else if (p->stride == 2) {                                                             \
            name##_along(p, line, 2, y, n);                                                      \
        } else {                                                                                 \
            name##_along(p, line, p->stride, y, n);                                              \
        }                                                                                        \
    }

/* The larger; f32: NaN wins. */
POOL_KIND(max_f32, float, -INFINITY, kv_max(v, b))
POOL_KIND(max_u8, uint8_t, 0, v > b ? v : b)
POOL_KIND(max_i8, int8_t, INT8_MIN, v > b ? v : b)
POOL_KIND(sum_f32, float, 0.0f, b + v)

void RUI_K(rui_kern_pool_row)(const ru_kern_pool *p, const void *x, void *line, void *y, int64_t n)
{
    if (!p->max) {
        sum_f32_row(p, x, line, y, n);
    } else if (p->t == RU_F32) {
        max_f32_row(p, x, line, y, n);
    } else if (p->t == RU_U8) {
        max_u8_row(p, x, line, y, n);
    } else {
        max_i8_row(p, x, line, y, n);
    }
}

void RUI_K(rui_kern_pool_place)(const ru_kern_pool *p, const float *x, int32_t place, float *y,
                                int32_t *at, int64_t n)
{
    int64_t step = p->stride;
    for (int64_t c = 0; c < p->taps; c++) {
        const float *from = x + c * p->dilation;
        int32_t first = place + (int32_t)(c * p->dilation);
#pragma omp simd
        for (int64_t o = 0; o < n; o++) {
            float v = from[o * step], b = y[o];
            bool more = (v > b) | ((v != v) & (b == b)) | (at[o] < 0);
            y[o] = more ? v : b;
            at[o] = more ? first + (int32_t)(o * step) : at[o];
        }
    }
}
