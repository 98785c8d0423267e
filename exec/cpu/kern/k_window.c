/* Convolutions, and transposed ones, of row-major images with steps of one along the last axis of
 * the image. The image is first copied into one with its padding; then a tile of results stays in
 * registers while all taps pass: ROWS rows of LANES places of OUTS channels. A transposed
 * convolution with steps of s is s convolutions along that axis, whose results alternate. */
#include "exec/cpu/kern/isa.h"

/* Everything here is inlined: no call hands such a vector over. */
#pragma GCC diagnostic ignored "-Wpsabi"

enum {
    ROWS = 4,
    LANES = 16,
#ifdef __AVX512F__
    OUTS = 4,
#else
    OUTS = 1, /* its registers hold no more */
#endif
};

typedef float taps_v __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* Does the image stand as it is read? No tile of it then reads beyond a row. */
static bool stands(const ru_kern_window *g)
{
    bool same = g->out[2] % (g->every[2] * LANES) == 0;
    for (int d = 0; d < 3; d++) {
        same = same && g->before[d] == 0 && g->room[d] == g->in[d];
    }
    return same;
}

int64_t RUI_K(rui_kern_window_work)(const ru_kern_window *g)
{
    return stands(g) ? LANES : g->ci * g->room[0] * g->room[1] * g->room[2] + LANES;
}

/* Zeros between the rows of a large image are written one by one, as all of it leaves the cache. */
static void pad(const ru_kern_window *g, const float *x, float *to)
{
    enum { NEAR = 1 << 14 };
    const int64_t *in = g->in, *room = g->room;
    float *end = to + RUI_K(rui_kern_window_work)(g), *zeros = to;
    bool near = end - to <= NEAR;
    if (near) {
        memset(to, 0, sizeof *to * (size_t)(end - to));
    }
    for (int64_t c = 0; c < g->ci; c++, to += room[0] * room[1] * room[2]) {
        for (int64_t a = 0; a < in[0]; a++) {
            for (int64_t b = 0; b < in[1]; b++, x += in[2]) {
                float *row =
                    to + ((a + g->before[0]) * room[1] + b + g->before[1]) * room[2] + g->before[2];
                if (!near) {
                    memset(zeros, 0, sizeof *to * (size_t)(row - zeros));
                }
                memcpy(row, x, sizeof *to * (size_t)in[2]);
                zeros = row + in[2];
            }
        }
    }
    memset(zeros, 0, sizeof *to * (size_t)(end - zeros));
}

/* A tile of results under way: where they read, the weights of their first channel, where they go.
 */
typedef struct taps_tile {
    const float *from, *w, *bias;
    float *y;
    int64_t phase; /* of the first places */
    int64_t q;     /* places of each phase before these */
} taps_tile;

/* sum[o][r] = bias[o] + the taps of one phase. */
RU_KERN_INLINE void sums(const ru_kern_window *g, const taps_tile *t, int64_t phase,
                         const int64_t outs, const int64_t rows, taps_v sum[OUTS][ROWS])
{
    int64_t step = g->step[1] * g->room[2];
#pragma GCC unroll 4
    for (int64_t o = 0; o < outs; o++) {
#pragma GCC unroll 4
        for (int64_t r = 0; r < rows; r++) {
            sum[o][r] = (taps_v){0} + (t->bias != NULL ? t->bias[o] : 0.0f);
        }
    }
    for (const ru_kern_tap *k = g->taps + g->first[phase]; k < g->taps + g->first[phase + 1]; k++) {
        const float *s = t->from + k->at, *w = t->w + k->w;
        taps_v x[ROWS];
#pragma GCC unroll 4
        for (int64_t r = 0; r < rows; r++) {
            x[r] = *(const taps_v *)(s + r * step);
        }
#pragma GCC unroll 4
        for (int64_t o = 0; o < outs; o++) {
#pragma GCC unroll 4
            for (int64_t r = 0; r < rows; r++) {
                sum[o][r] += w[o * g->w_step] * x[r];
            }
        }
    }
}

RU_KERN_INLINE void put(float *y, taps_v v, int64_t n)
{
    if (n >= LANES) {
        *(taps_v *)y = v;
    } else if (n > 0) {
        memcpy(y, &v, sizeof *y * (size_t)n);
    }
}

/* Of two phases, whose results alternate. */
RU_KERN_INLINE void tile_of_two(const ru_kern_window *g, const taps_tile *t, const int64_t outs,
                                const int64_t rows, int64_t area, int64_t row, int64_t left)
{
    taps_v a[OUTS][ROWS], b[OUTS][ROWS];
    sums(g, t, t->phase, outs, rows, a);
    sums(g, t, t->phase + 1, outs, rows, b);
#pragma GCC unroll 4
    for (int64_t o = 0; o < outs; o++) {
#pragma GCC unroll 4
        for (int64_t r = 0; r < rows; r++) {
            float *y = t->y + o * area + r * row;
            taps_v first = __builtin_shufflevector(a[o][r], b[o][r], 0, 16, 1, 17, 2, 18, 3, 19, 4,
                                                   20, 5, 21, 6, 22, 7, 23);
            taps_v second = __builtin_shufflevector(a[o][r], b[o][r], 8, 24, 9, 25, 10, 26, 11, 27,
                                                    12, 28, 13, 29, 14, 30, 15, 31);
            put(y, first, left);
            put(y + LANES, second, left - LANES);
        }
    }
}

RU_KERN_INLINE void tile(const ru_kern_window *g, const taps_tile *t, const int64_t outs,
                         const int64_t rows)
{
    int64_t area = g->out[0] * g->out[1] * g->out[2], row = g->every[1] * g->out[2];
    int64_t every = g->every[2], left = g->out[2] - t->q * every;
    if (every == 2) {
        tile_of_two(g, t, outs, rows, area, row, left);
        return;
    }
    for (int64_t p = 0; p < every; p++) {
        taps_v a[OUTS][ROWS];
        sums(g, t, t->phase + p, outs, rows, a);
#pragma GCC unroll 4
        for (int64_t o = 0; o < outs; o++) {
#pragma GCC unroll 4
            for (int64_t r = 0; r < rows; r++) {
                float *y = t->y + o * area + r * row, v[LANES];
                if (every == 1) {
                    put(y, a[o][r], left);
                    continue;
                }
                memcpy(v, &a[o][r], sizeof v);
                for (int64_t j = 0; j < LANES && j * every + p < left; j++) {
                    y[j * every + p] = v[j];
                }
            }
        }
    }
}

#define TAPS_OUTS(outs)            \
    if (rows == ROWS) {            \
        tile(g, t, outs, ROWS);    \
    } else {                       \
        for (; rows > 0; rows--) { \
            tile(g, t, outs, 1);   \
            t->from += step;       \
            t->y += row;           \
        }                          \
    }

static void some(const ru_kern_window *g, taps_tile t[1], int64_t outs, int64_t rows)
{
    int64_t step = g->step[1] * g->room[2], row = g->every[1] * g->out[2];
#if defined __AVX512F__
    if (outs == 4) {
        TAPS_OUTS(4)
        return;
    }
    if (outs == 3) {
        TAPS_OUTS(3)
        return;
    }
    if (outs == 2) {
        TAPS_OUTS(2)
        return;
    }
#endif
    (void)outs;
    TAPS_OUTS(1)
}

/* Results of plane `a` whose rows are of phase p, all channels. */
static void plane(const ru_kern_window *g, const float *image, const float *w, const float *bias,
                  int64_t outs, int64_t a, int64_t p, float *y)
{
    int64_t area = g->out[0] * g->out[1] * g->out[2];
    int64_t rows = (g->out[1] - p + g->every[1] - 1) / g->every[1];
    int64_t phase = ((a % g->every[0]) * g->every[1] + p) * g->every[2];
    int64_t from = a / g->every[0] * g->step[0] * g->room[1];
    for (int64_t b = 0; b < rows; b += ROWS) {
        for (int64_t q = 0; q * g->every[2] < g->out[2]; q += LANES) {
            for (int64_t o = 0, n; o < outs; o += n) {
                int64_t sets = (outs - o + OUTS - 1) / OUTS;
                n = (outs - o + sets - 1) / sets;
                taps_tile t = {
                    .from = image + (from + b * g->step[1]) * g->room[2] + q,
                    .w = w + o * g->w_step,
                    .bias = bias != NULL ? bias + o : NULL,
                    .y = y + o * area + (a * g->out[1] + b * g->every[1] + p) * g->out[2] +
                         q * g->every[2],
                    .phase = phase,
                    .q = q,
                };
                some(g, &t, n, kv_min_i64(ROWS, rows - b));
            }
        }
    }
}

void RUI_K(rui_kern_window)(const ru_kern_window *g, const float *x, const float *w,
                            const float *bias, int64_t outs, float *y, float *work)
{
    const float *image = x;
    if (!stands(g)) {
        pad(g, x, work);
        image = work;
    }
    for (int64_t a = 0; a < g->out[0]; a++) {
        for (int64_t p = 0; p < g->every[1]; p++) {
            plane(g, image, w, bias, outs, a, p, y);
        }
    }
}
