/* One row of results of a pool, whose windows lie inside the image along this row: tap by tap over
 * neighbours, so that results share vectors. */
#include "exec/kern/isa.h"

/* y = the larger of y and each tap; f32: NaN wins. */
#define MAX_TAPS(type, f)                                       \
    do {                                                        \
        const type *xs = x;                                     \
        type *ys = y;                                           \
        for (int64_t c = 0; c < p->taps; c++) {                 \
            const type *from = xs + c * p->dilation;            \
            _Pragma("omp simd") for (int64_t o = 0; o < n; o++) \
            {                                                   \
                type v = from[o * step], b = ys[o];             \
                ys[o] = f;                                      \
            }                                                   \
        }                                                       \
    } while (0)

RU_KERN_INLINE void max_row(const ru_kern_pool *p, const void *x, void *y, const int64_t step,
                            int64_t n)
{
    if (p->t == RU_F32) {
        MAX_TAPS(float, kv_max(v, b));
    } else if (p->t == RU_U8) {
        MAX_TAPS(uint8_t, v > b ? v : b);
    } else {
        MAX_TAPS(int8_t, v > b ? v : b);
    }
}

/* Steps that the compiler knows make plain shuffles of strided reads. */
void RUI_K(rui_kern_pool_max)(const ru_kern_pool *p, const void *x, void *y, int64_t n)
{
    if (p->stride == 1) {
        max_row(p, x, y, 1, n);
    } else if (p->stride == 2) {
        max_row(p, x, y, 2, n);
    } else {
        max_row(p, x, y, p->stride, n);
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

RU_KERN_INLINE void add_row(const ru_kern_pool *p, const float *x, float *y, const int64_t step,
                            int64_t n)
{
    for (int64_t c = 0; c < p->taps; c++) {
        const float *from = x + c * p->dilation;
#pragma omp simd
        for (int64_t o = 0; o < n; o++) {
            y[o] += from[o * step];
        }
    }
}

void RUI_K(rui_kern_pool_add)(const ru_kern_pool *p, const float *x, float *y, int64_t n)
{
    if (p->stride == 1) {
        add_row(p, x, y, 1, n);
    } else if (p->stride == 2) {
        add_row(p, x, y, 2, n);
    } else {
        add_row(p, x, y, p->stride, n);
    }
}
