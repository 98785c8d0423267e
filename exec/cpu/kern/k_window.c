/* Convolutions, and transposed ones, of row-major images with steps of one along the last axis of
 * the image. The image is first copied into one with its padding; then a tile of results stays in
 * registers while all taps pass: ROWS rows of LANES places of OUTS channels. A transposed
 * convolution with steps of s is s convolutions along that axis, whose results alternate. */
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "exec/cpu/kern/isa.h"
#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/kern/tile.h"

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

RU_KERN_INLINE void window_tile(const ru_kern_window *g, const taps_tile *t, const int64_t outs,
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

#define TAPS_OUTS(outs)                 \
    if (rows == ROWS) {                 \
        window_tile(g, t, outs, ROWS);  \
    } else {                            \
        for (; rows > 0; rows--) {      \
            window_tile(g, t, outs, 1); \
            t->from += step;            \
            t->y += row;                \
        }                               \
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

/* -- channels apart, side by side -----------------------------------------------------------------
 * Each channel has a window of its own: one channel in each lane of a vector, so that neither
 * steps, nor dilation, nor short rows leave lanes empty. A band of rows is turned into lanes with
 * its padding, and the results are turned back. */

#ifdef __AVX512F__
enum { SIDE = 16 };
#else
enum { SIDE = TILE_W };
#endif
enum { SIDE_PLACES = 8 /* results under way */ };

typedef float side_v __attribute__((vector_size(4 * SIDE), aligned(4), may_alias));

int64_t RUI_K(rui_kern_apart_lanes)(void)
{
    return SIDE;
}

/* Weights, the band, its results. */
int64_t RUI_K(rui_kern_apart_work)(const ru_kern_apart *g)
{
    return SIDE * (g->n_taps + g->room[0] * g->room[1] * g->room[2] + g->band * g->out[2]);
}

/* r[i][j] becomes r[j][i]. */
RU_KERN_INLINE void side_turn(side_v r[SIDE])
{
#ifdef __AVX512F__
#define ZIP(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define LOW_HALVES     0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define HIGH_HALVES    4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
    side_v t[SIDE], u[SIDE];
#pragma GCC unroll 8
    for (int i = 0; i < SIDE; i += 2) {
        t[i] = ZIP(r[i], r[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
        t[i + 1] = ZIP(r[i], r[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    }
#pragma GCC unroll 8
    for (int i = 0; i < SIDE; i += 2) {
        int a = i % 4 == 0 ? i : i - 1; /* rows a and a + 2 of four */
        u[i] = ZIP(t[a], t[a + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
        u[i + 1] = ZIP(t[a], t[a + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        side_v a = ZIP(u[k], u[4 + k], LOW_HALVES), b = ZIP(u[8 + k], u[12 + k], LOW_HALVES);
        side_v c = ZIP(u[k], u[4 + k], HIGH_HALVES), d = ZIP(u[8 + k], u[12 + k], HIGH_HALVES);
        r[k] = ZIP(a, b, LOW_HALVES);
        r[4 + k] = ZIP(c, d, LOW_HALVES);
        r[8 + k] = ZIP(a, b, HIGH_HALVES);
        r[12 + k] = ZIP(c, d, HIGH_HALVES);
    }
#else
    tile_transpose((tile_v *)r);
#endif
}

/* SIDE numbers of each channel, whose rows are `step` apart, in lanes; lanes without a channel take
 * the first one. */
RU_KERN_INLINE void side_read(const float *x, int64_t step, int64_t channels, side_v r[SIDE])
{
#pragma GCC unroll 16
    for (int64_t c = 0; c < SIDE; c++) {
        r[c] = *(const side_v *)(x + (c < channels ? c : 0) * step);
    }
    side_turn(r);
}

/* `n` places of `channels` rows, `step` apart, to lanes. */
static void to_lanes(const float *x, int64_t step, int64_t channels, int64_t n, float *to)
{
    side_v r[SIDE];
    for (int64_t p = 0; n >= SIDE && p < n; p += SIDE) {
        int64_t at = kv_min_i64(p, n - SIDE);
        side_read(x + at, step, channels, r);
        memcpy(to + at * SIDE, r, sizeof r);
    }
    for (int64_t p = 0; n < SIDE && p < n; p++) {
        for (int64_t c = 0; c < SIDE; c++) {
            to[p * SIDE + c] = x[(c < channels ? c : 0) * step + p];
        }
    }
}

static void from_lanes(const float *x, int64_t n, int64_t channels, float *to, int64_t step)
{
    for (int64_t p = 0; n >= SIDE && p < n; p += SIDE) {
        side_v r[SIDE];
        int64_t at = kv_min_i64(p, n - SIDE);
        memcpy(r, x + at * SIDE, sizeof r);
        side_turn(r);
#pragma GCC unroll 16
        for (int64_t c = 0; c < SIDE; c++) {
            if (c < channels) {
                *(side_v *)(to + c * step + at) = r[c];
            }
        }
    }
    for (int64_t c = 0; n < SIDE && c < channels; c++) {
        for (int64_t p = 0; p < n; p++) {
            to[c * step + p] = x[p * SIDE + c];
        }
    }
}

/* Rows from .. to of plane `a` of the image, row `from` at row `at` of the band. */
static void band_rows(const ru_kern_apart *g, const float *x, int64_t channels, int64_t a,
                      int64_t from, int64_t to, int64_t at, float *band)
{
    const int64_t w = g->in[2], step = g->in[0] * g->in[1] * w, n = (to - from) * w;
    float *row = band + (((a + g->before[0]) * g->room[1] + at) * g->room[2] + g->before[2]) * SIDE;
    side_v r[SIDE];
    x += (a * g->in[1] + from) * w;
    if (w >= 2 * SIDE || n < SIDE) {
        for (int64_t i = from; i < to; i++, x += w, row += g->room[2] * SIDE) {
            to_lanes(x, step, channels, w, row);
        }
        return;
    }
    for (int64_t p = 0; p < n; p += SIDE) {
        int64_t first = kv_min_i64(p, n - SIDE), i = first / w, o = first % w;
        side_read(x + first, step, channels, r);
        for (int64_t j = 0; j < SIDE; j++) {
            *(side_v *)(row + (i * g->room[2] + o) * SIDE) = r[j];
            o++;
            i += o == w ? 1 : 0;
            o = o == w ? 0 : o;
        }
    }
}

static void band_fill(const ru_kern_apart *g, const float *x, int64_t channels, int64_t b0,
                      float *band)
{
    const int64_t *room = g->room, top = b0 * g->step[1] - g->before[1];
    int64_t from = top < 0 ? 0 : top, to = kv_min_i64(top + room[1], g->in[1]);
    bool whole = top >= 0 && to == top + room[1] && room[0] == g->in[0] && room[2] == g->in[2];
    if (!whole) {
        memset(band, 0, sizeof *band * (size_t)(SIDE * room[0] * room[1] * room[2]));
    }
    for (int64_t a = 0; from < to && a < kv_min_i64(g->in[0], room[0] - g->before[0]); a++) {
        band_rows(g, x, channels, a, from, to, from - top, band);
    }
}

/* y[n] from x on, `step` lanes apart. */
RU_KERN_INLINE void side_sums(const ru_kern_apart *g, const int64_t n, const int64_t step,
                              const float *x, const float *w, side_v bias, float *y)
{
    side_v sum[SIDE_PLACES];
#pragma GCC unroll 8
    for (int64_t j = 0; j < n; j++) {
        sum[j] = bias;
    }
    for (int64_t k = 0; k < g->n_taps; k++) {
        const float *s = x + (int64_t)g->taps[k] * SIDE;
        side_v weight = *(const side_v *)(w + k * SIDE);
#pragma GCC unroll 8
        for (int64_t j = 0; j < n; j++) {
            sum[j] += weight * *(const side_v *)(s + j * step);
        }
    }
#pragma GCC unroll 8
    for (int64_t j = 0; j < n; j++) {
        *(side_v *)(y + j * SIDE) = sum[j];
    }
}

#define SIDE_CASE(n)                                           \
    case n:                                                    \
        if (g->step[2] == 1) {                                 \
            side_sums(g, n, SIDE, x, w, bias, y);              \
        } else {                                               \
            side_sums(g, n, g->step[2] * SIDE, x, w, bias, y); \
        }                                                      \
        break;

static void side_tile(const ru_kern_apart *g, int64_t n, const float *x, const float *w,
                      side_v bias, float *y)
{
    switch (n) {
        SIDE_CASE(1)
        SIDE_CASE(2)
        SIDE_CASE(3)
        SIDE_CASE(4)
        SIDE_CASE(5)
        SIDE_CASE(6)
        SIDE_CASE(7)
        SIDE_CASE(8)
    default:
        break;
    }
}

void RUI_K(rui_kern_apart)(const ru_kern_apart *g, const float *x, int64_t channels, const float *w,
                           const float *bias, int64_t b0, int64_t b1, float *y, float *work)
{
    const int64_t width = g->out[2], sets = (width + SIDE_PLACES - 1) / SIDE_PLACES;
    const int64_t plane = g->out[0] * g->out[1] * width;
    float *weights = work, *band = weights + SIDE * g->n_taps;
    float *rows = band + SIDE * g->room[0] * g->room[1] * g->room[2], lanes[SIDE] = {0};
    to_lanes(w, g->n_taps, channels, g->n_taps, weights);
    band_fill(g, x, channels, b0, band);
    for (int64_t c = 0; bias != NULL && c < channels; c++) {
        lanes[c] = bias[c];
    }
    const side_v start = *(const side_v *)lanes;
    for (int64_t a = 0; a < g->out[0]; a++) {
        float *to = rows;
        for (int64_t b = 0; b < b1 - b0; b++) {
            const float *from =
                band + (a * g->step[0] * g->room[1] + b * g->step[1]) * g->room[2] * SIDE;
            for (int64_t s = 0; s < sets; s++) {
                int64_t o = width * s / sets, n = width * (s + 1) / sets - o;
                side_tile(g, n, from + o * g->step[2] * SIDE, weights, start, to);
                to += n * SIDE;
            }
        }
        from_lanes(rows, (b1 - b0) * width, channels, y + (a * g->out[1] + b0) * width, plane);
    }
}

/* -- channels apart, in rows ----------------------------------------------------------------------
 * Windows of few taps with steps of one: the weights of a channel stay in registers, and what is
 * loaded of a row of the image goes to all rows of results that read it. Padding is lanes that are
 * not loaded, and rows of zeros. */

#ifdef __AVX512F__
enum { NEAR_TAPS = 5 /* of an axis */ };

/* Lanes from .. to - 1. */
RU_KERN_INLINE __mmask16 lanes_in(int64_t from, int64_t to)
{
    const uint32_t below = to >= LANES ? 0xffff : to > 0 ? (1u << to) - 1 : 0;
    return (__mmask16)(from <= 0 ? below : from < LANES ? below & (0xffffu << from) : 0);
}

/* Rows b .. b + rows of results; kh, kw and rows are constants. */
RU_KERN_INLINE void near_rows(const ru_kern_apart *g, const int64_t kh, const int64_t kw,
                              const int64_t rows, const float *x, const __m512 *w, __m512 start,
                              int64_t b, float *y)
{
    static const float none[LANES + NEAR_TAPS] = {0};
    const float *from[ROWS + NEAR_TAPS];
    int64_t step[ROWS + NEAR_TAPS];
    const int64_t wide = g->in[2], out = g->out[2];
    for (int64_t i = 0; i < kh + rows - 1; i++) {
        const int64_t row = b + i - g->before[1];
        const bool is = row >= 0 && row < g->in[1];
        from[i] = is ? x + row * wide - g->before[2] : none;
        step[i] = is ? LANES : 0;
    }
    for (int64_t q = 0; q < out; q += LANES) {
        __mmask16 inside[NEAR_TAPS];
        __m512 sum[ROWS];
#pragma GCC unroll 5
        for (int64_t d = 0; d < kw; d++) {
            const int64_t at = q + d - g->before[2];
            inside[d] = lanes_in(-at, wide - at);
        }
#pragma GCC unroll 4
        for (int64_t r = 0; r < rows; r++) {
            sum[r] = start;
        }
#pragma GCC unroll 8
        for (int64_t i = 0; i < kh + rows - 1; i++) {
#pragma GCC unroll 5
            for (int64_t d = 0; d < kw; d++) {
                const __m512 v = _mm512_maskz_loadu_ps(inside[d], from[i] + d);
#pragma GCC unroll 4
                for (int64_t r = 0; r < rows; r++) {
                    if (i >= r && i - r < kh) {
                        sum[r] = _mm512_fmadd_ps(w[(i - r) * kw + d], v, sum[r]);
                    }
                }
            }
            from[i] += step[i];
        }
        const __mmask16 some = lanes_in(0, out - q);
#pragma GCC unroll 4
        for (int64_t r = 0; r < rows; r++) {
            _mm512_mask_storeu_ps(y + (b + r) * out + q, some, sum[r]);
        }
    }
}

/* The last rows may be made twice. */
RU_KERN_INLINE void near(const ru_kern_apart *g, const int64_t kh, const int64_t kw,
                         const int64_t rows, const float *x, const float *weights, float bias,
                         int64_t b0, int64_t b1, float *y)
{
    __m512 w[NEAR_TAPS * NEAR_TAPS];
#pragma GCC unroll 25
    for (int64_t k = 0; k < kh * kw; k++) {
        w[k] = _mm512_set1_ps(weights[k]);
    }
    const __m512 start = _mm512_set1_ps(bias);
    for (int64_t b = b0; b < b1; b += rows) {
        near_rows(g, kh, kw, rows, x, w, start, b + rows <= b1 ? b : b1 - rows, y);
    }
}

/* X(kh, kw, rows that go together) */
#define NEAR_LIST(X) X(1, 3, 1) X(1, 4, 1) X(1, 5, 1) X(3, 3, ROWS) X(5, 5, ROWS)
#else
#define NEAR_LIST(X)
#endif

int64_t RUI_K(rui_kern_near_rows)(const ru_kern_apart *g)
{
    (void)g;
#define NEAR_CASE(kh, kw, rows)                     \
    if (g->kernel[1] == kh && g->kernel[2] == kw) { \
        return rows;                                \
    }
    NEAR_LIST(NEAR_CASE)
#undef NEAR_CASE
    return 0;
}

void RUI_K(rui_kern_near)(const ru_kern_apart *g, const float *x, const float *w, float bias,
                          int64_t b0, int64_t b1, float *y)
{
    (void)g, (void)x, (void)w, (void)bias, (void)b0, (void)b1, (void)y;
#define NEAR_CASE(kh, kw, rows)                       \
    if (g->kernel[1] == kh && g->kernel[2] == kw) {   \
        near(g, kh, kw, rows, x, w, bias, b0, b1, y); \
        return;                                       \
    }
    NEAR_LIST(NEAR_CASE)
#undef NEAR_CASE
}

/* -- patches --------------------------------------------------------------------------------------
 * Channels of the result in lanes, some places of a row in registers: no column is copied. The
 * weights of two vectors of channels stay near while a band of rows passes. */

#ifdef __AVX512F__
enum { PATCH_PLACES = 14 };
#else
enum { PATCH_PLACES = 6 };
#endif
enum { PATCH_CO = 2 * SIDE, PATCH_BAND = 256 /* places */ };

static int64_t patch_rows(const ru_kern_patch *g)
{
    return g->out[2] >= PATCH_BAND ? 1 : PATCH_BAND / g->out[2];
}

int64_t RUI_K(rui_kern_patch_work)(const ru_kern_patch *g)
{
    return patch_rows(g) * g->out[2] * PATCH_CO;
}

int64_t RUI_K(rui_kern_patch_floats)(const ru_kern_patch *g)
{
    return (g->co + PATCH_CO - 1) / PATCH_CO * PATCH_CO * g->depth;
}

void RUI_K(rui_kern_patch_pack)(const ru_kern_patch *g, const float *w, float *packed)
{
    for (int64_t o = 0; o < g->co; o += PATCH_CO, packed += g->depth * PATCH_CO) {
        for (int64_t k = 0; k < g->depth; k++) {
            for (int64_t j = 0; j < PATCH_CO; j++) {
                packed[k * PATCH_CO + j] = o + j < g->co ? w[(o + j) * g->depth + k] : 0.0F;
            }
        }
    }
}

/* y[2][half] = n places of two vectors of channels; n, and mostly step, are constants. */
RU_KERN_INLINE void patch_sums(const ru_kern_patch *g, const int64_t n, const int64_t step,
                               const float *x, const float *w, const side_v start[2], float *y,
                               int64_t half)
{
    side_v sum[PATCH_PLACES][2];
#pragma GCC unroll 16
    for (int64_t j = 0; j < n; j++) {
        sum[j][0] = start[0];
        sum[j][1] = start[1];
    }
    for (int64_t k = 0; k < g->depth; k++, w += PATCH_CO) {
        const float *s = x + g->at[k];
        const side_v a = *(const side_v *)w, b = *(const side_v *)(w + SIDE);
#pragma GCC unroll 16
        for (int64_t j = 0; j < n; j++) {
            const float v = s[j * step];
            sum[j][0] += v * a;
            sum[j][1] += v * b;
        }
    }
#pragma GCC unroll 16
    for (int64_t j = 0; j < n; j++) {
        *(side_v *)(y + j * SIDE) = sum[j][0];
        *(side_v *)(y + half + j * SIDE) = sum[j][1];
    }
}

#define PATCH_CASE(n)                                           \
    case n:                                                     \
        if (g->step[2] == 2) {                                  \
            patch_sums(g, n, 2, x, w, start, y, half);          \
        } else if (g->step[2] == 4) {                           \
            patch_sums(g, n, 4, x, w, start, y, half);          \
        } else if (g->step[2] == 8) {                           \
            patch_sums(g, n, 8, x, w, start, y, half);          \
        } else if (g->step[2] == 16) {                          \
            patch_sums(g, n, 16, x, w, start, y, half);         \
        } else {                                                \
            patch_sums(g, n, g->step[2], x, w, start, y, half); \
        }                                                       \
        break;

static void patch_tile(const ru_kern_patch *g, int64_t n, const float *x, const float *w,
                       const side_v start[2], float *y, int64_t half)
{
    switch (n) {
        PATCH_CASE(1)
        PATCH_CASE(2)
        PATCH_CASE(3)
        PATCH_CASE(4)
        PATCH_CASE(5)
        PATCH_CASE(6)
#ifdef __AVX512F__
        PATCH_CASE(7)
        PATCH_CASE(8)
        PATCH_CASE(9)
        PATCH_CASE(10)
        PATCH_CASE(11)
        PATCH_CASE(12)
        PATCH_CASE(13)
        PATCH_CASE(14)
#endif
    default:
        break;
    }
}

/* Rows r0 .. r1, at most a band, of PATCH_CO channels from o on. */
static void patch_band(const ru_kern_patch *g, const float *x, const float *w, const float *bias,
                       int64_t o, int64_t r0, int64_t r1, float *y, float *work)
{
    const int64_t width = g->out[2], sets = (width + PATCH_PLACES - 1) / PATCH_PLACES;
    const int64_t places = (r1 - r0) * width, plane = g->out[0] * g->out[1] * width;
    float lanes[PATCH_CO] = {0}, *to = work;
    for (int64_t j = 0; bias != NULL && j < kv_min_i64(PATCH_CO, g->co - o); j++) {
        lanes[j] = bias[o + j];
    }
    const side_v start[2] = {*(const side_v *)lanes, *(const side_v *)(lanes + SIDE)};
    for (int64_t r = r0; r < r1; r++) {
        const float *row = x + r / g->out[1] * g->step[0] + r % g->out[1] * g->step[1];
        for (int64_t s = 0; s < sets; s++) {
            int64_t p = width * s / sets, n = width * (s + 1) / sets - p;
            patch_tile(g, n, row + p * g->step[2], w, start, to, places * SIDE);
            to += n * SIDE;
        }
    }
    for (int64_t h = 0; h < PATCH_CO && o + h < g->co; h += SIDE) {
        from_lanes(work + places * h, places, kv_min_i64(SIDE, g->co - o - h),
                   y + (o + h) * plane + r0 * width, plane);
    }
}

void RUI_K(rui_kern_patch)(const ru_kern_patch *g, const float *x, const float *packed,
                           const float *bias, int64_t r0, int64_t r1, float *y, float *work)
{
    const int64_t band = patch_rows(g);
    for (int64_t r = r0; r < r1; r += band) {
        for (int64_t o = 0; o < g->co; o += PATCH_CO) {
            patch_band(g, x, packed + o * g->depth, bias, o, r, kv_min_i64(r + band, r1), y, work);
        }
    }
}
