/* Convolution of one channel over three axes, with steps of one along the last. The image is first
 * copied into one with its padding; then ROWS rows of LANES results at a time stay in registers
 * while all taps pass. */
#include "exec/cpu/kern/isa.h"

/* Everything here is inlined: no call hands such a vector over. */
#pragma GCC diagnostic ignored "-Wpsabi"

enum { ROWS = 4, LANES = 16 };

typedef float depth_v __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static void pad(const ru_kern_depth *d, const float *x, float *to)
{
    const int64_t *in = d->in, *room = d->room;
    memset(to, 0, sizeof *to * (size_t)RUI_K(rui_kern_depth_work)(d));
    for (int64_t a = 0; a < in[0]; a++) {
        for (int64_t b = 0; b < in[1]; b++) {
            int64_t at = ((a + d->before[0]) * room[1] + b + d->before[1]) * room[2] + d->before[2];
            memcpy(to + at, x + (a * in[1] + b) * in[2], sizeof *to * (size_t)in[2]);
        }
    }
}

/* `rows` rows of results, `step` elements of the image apart. */
RU_KERN_INLINE void taps(const ru_kern_depth *d, const float *from, const float *w, float bias,
                         int64_t step, const int64_t rows, float *y, int64_t n)
{
    depth_v sum[ROWS];
#pragma GCC unroll 4
    for (int64_t r = 0; r < rows; r++) {
        sum[r] = (depth_v){0} + bias;
    }
    for (int64_t a = 0; a < d->kernel[0]; a++) {
        for (int64_t b = 0; b < d->kernel[1]; b++) {
            const float *s =
                from + (a * d->dilation[0] * d->room[1] + b * d->dilation[1]) * d->room[2];
            for (int64_t c = 0; c < d->kernel[2]; c++, w++, s += d->dilation[2]) {
#pragma GCC unroll 4
                for (int64_t r = 0; r < rows; r++) {
                    sum[r] += *w * *(const depth_v *)(s + r * step);
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int64_t r = 0; r < rows; r++) {
        if (n == LANES) {
            *(depth_v *)(y + r * d->out[2]) = sum[r];
        } else {
            memcpy(y + r * d->out[2], &sum[r], sizeof *y * (size_t)n);
        }
    }
}

int64_t RUI_K(rui_kern_depth_work)(const ru_kern_depth *d)
{
    return d->room[0] * d->room[1] * d->room[2] + LANES;
}

static void one(const ru_kern_depth *d, const float *image, const float *w, float bias, float *y)
{
    int64_t step = d->stride[1] * d->room[2];
    for (int64_t a = 0; a < d->out[0]; a++) {
        const float *plane = image + a * d->stride[0] * d->room[1] * d->room[2];
        for (int64_t b = 0; b < d->out[1]; b += ROWS) {
            int64_t rows = kv_min_i64(ROWS, d->out[1] - b);
            for (int64_t c = 0; c < d->out[2]; c += LANES) {
                const float *from = plane + b * step + c;
                float *to = y + (a * d->out[1] + b) * d->out[2] + c;
                int64_t n = kv_min_i64(LANES, d->out[2] - c);
                if (rows == ROWS) {
                    taps(d, from, w, bias, step, ROWS, to, n);
                } else {
                    for (int64_t r = 0; r < rows; r++) {
                        taps(d, from + r * step, w, bias, step, 1, to + r * d->out[2], n);
                    }
                }
            }
        }
    }
}

void RUI_K(rui_kern_depth)(const ru_kern_depth *d, const float *x, const float *w,
                           const float *bias, int64_t outs, float *y, float *work)
{
    int64_t out = d->out[0] * d->out[1] * d->out[2];
    int64_t of_one = d->kernel[0] * d->kernel[1] * d->kernel[2];
    pad(d, x, work);
    for (int64_t o = 0; o < outs; o++) {
        one(d, work, w + o * of_one, bias != NULL ? bias[o] : 0.0f, y + o * out);
    }
}
