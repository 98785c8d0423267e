/* Columns of windows added into an image; samples of an image at the places of a grid and in
 * regions; determinants. */
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "exec/cpu/kern/isa.h"
#include "exec/cpu/kern/numbers.h"

#include <math.h>

/* -- columns to images ---------------------------------------------------------------------------
 *
 * Row after row of the image. Elements `stride` apart are neighbours in the work area, so that each
 * tap adds neighbours to neighbours:
 *
 *     line[phase][k] is element k * stride + phase of the row, counted from before[2] elements
 *     before it
 */

/* Of all phases; what windows reach or what the image needs, whichever is more. */
static int64_t phase_of(const ru_kern_fold *f)
{
    int64_t reach = (f->windows[2] - 1) * f->stride[2] + (f->taps[2] - 1) * f->dilation[2] + 1;
    int64_t image = f->before[2] + f->image[2];
    return ((reach > image ? reach : image) - 1) / f->stride[2] + 1;
}

int64_t RUI_K(rui_kern_col2im_work)(const ru_kern_fold *f)
{
    return phase_of(f) * f->stride[2];
}

/* Which window adds to element `at` of an axis by tap t; -1: none. */
static int64_t window_at(const ru_kern_fold *f, int axis, int64_t at, int64_t t)
{
    int64_t from = at + f->before[axis] - t * f->dilation[axis];
    return from < 0 || from % f->stride[axis] != 0 || from / f->stride[axis] >= f->windows[axis]
               ? -1
               : from / f->stride[axis];
}

enum { JOINED = 4 };

/* y[j] += the sum of x[..][j], `width` of them, known to the compiler. */
RU_KERN_INLINE void add_width(const int64_t width, const int64_t count, const float *const *x,
                              int64_t at, const float *y, float *to)
{
    float sum[16];
    for (int64_t j = 0; j < width; j++) {
        sum[j] = y[j];
    }
#pragma GCC unroll 4
    for (int64_t r = 0; r < count; r++) {
        const float *from = x[r] + at;
        for (int64_t j = 0; j < width; j++) {
            sum[j] += from[j];
        }
    }
    for (int64_t j = 0; j < width; j++) {
        to[j] = sum[j];
    }
}

/* Whole vectors, the last of which reaches back: its elements are added to what was there before.
 */
RU_KERN_INLINE void add_wide(const int64_t width, const int64_t count, const float *const *x,
                             float *y, int64_t n)
{
    float last[16];
    memcpy(last, y + n - width, sizeof *last * (size_t)width);
    for (int64_t j = 0; j + width < n; j += width) {
        add_width(width, count, x, j, y + j, y + j);
    }
    add_width(width, count, x, n - width, last, y + n - width);
}

/* y[j] += the sum of x[..][j] */
RU_KERN_INLINE void add_joined(const int64_t count, const float *const *x, float *y, int64_t n)
{
    if (n >= 16) {
        add_wide(16, count, x, y, n);
    } else if (n >= 4) {
        add_wide(4, count, x, y, n);
    } else {
        for (int64_t j = 0; j < n; j++) {
            for (int64_t r = 0; r < count; r++) {
                y[j] += x[r][j];
            }
        }
    }
}

/* All taps of the last axis; x[count]: rows of windows by its tap 0, which are moved on. */
static void fold_taps(const ru_kern_fold *f, const float **x, int64_t count, int64_t phase,
                      float *line)
{
    const int64_t n = f->windows[2], step = f->windows[0] * f->windows[1] * n;
    for (int64_t t = 0; t < f->taps[2]; t++) {
        int64_t at = t * f->dilation[2];
        float *to = line + at % f->stride[2] * phase + at / f->stride[2];
        switch (count) {
        case 1:
            add_joined(1, x, to, n);
            break;
        case 2:
            add_joined(2, x, to, n);
            break;
        case 3:
            add_joined(3, x, to, n);
            break;
        default:
            add_joined(JOINED, x, to, n);
            break;
        }
        for (int64_t r = 0; r < count; r++) {
            x[r] += step;
        }
    }
}

static void fold_row(const ru_kern_fold *f, const float *x, int64_t a, int64_t b, int64_t phase,
                     float *line)
{
    const int64_t *n = f->windows, places = n[0] * n[1] * n[2];
    const float *rows[JOINED];
    int64_t count = 0;
    memset(line, 0, sizeof *line * (size_t)(phase * f->stride[2]));
    for (int64_t p = 0; p < f->taps[0]; p++) {
        int64_t i = window_at(f, 0, a, p);
        for (int64_t q = 0; i >= 0 && q < f->taps[1]; q++) {
            int64_t j = window_at(f, 1, b, q);
            if (j >= 0) {
                int64_t tap = (p * f->taps[1] + q) * f->taps[2];
                rows[count++] = x + tap * places + (i * n[1] + j) * n[2];
            }
            if (count == JOINED) {
                fold_taps(f, rows, count, phase, line);
                count = 0;
            }
        }
    }
    if (count > 0) {
        fold_taps(f, rows, count, phase, line);
    }
}

void RUI_K(rui_kern_col2im)(const ru_kern_fold *f, const float *x, float *work, float *y)
{
    const int64_t phase = phase_of(f), cols = f->image[2], stride = f->stride[2];
    for (int64_t r = 0; r < f->image[0] * f->image[1]; r++, y += cols) {
        fold_row(f, x, r / f->image[1], r % f->image[1], phase, work);
        if (stride == 1) {
            memcpy(y, work + f->before[2], sizeof *y * (size_t)cols);
            continue;
        }
        for (int64_t j = 0; j < stride; j++) { /* the first element of each phase in the image */
            int64_t at = f->before[2] + j;
            const float *from = work + at % stride * phase + at / stride;
            for (int64_t k = 0; k * stride + j < cols; k++) {
                y[k * stride + j] = from[k];
            }
        }
    }
}

/* -- samples -------------------------------------------------------------------------------------
 *
 * What the places read is worked out once for all channels: taps of each axis first, then all
 * combinations of them. Outside of the image, where it is 0, a tap's place is -1.
 */

enum { N = RU_KERN_SAMPLES, TAPS_MAX = 4 };

typedef struct axis_taps {
    int32_t at[TAPS_MAX][N];
    float weight[TAPS_MAX][N];
} axis_taps;

/* sample_work: at [taps][N], then weight [taps][N]. */
static int64_t taps_of(const ru_kern_sampler *s)
{
    int64_t each = s->mode == RU_KERN_SAMPLE_NEAREST ? 1 : s->mode == RU_KERN_SAMPLE_LINEAR ? 2 : 4;
    int64_t n = 1;
    for (int64_t d = 0; d < s->axes; d++) {
        n *= each;
    }
    return n;
}

int64_t RUI_K(rui_kern_sample_work)(const ru_kern_sampler *s)
{
    return taps_of(s) * N * (int64_t)(sizeof(int32_t) + sizeof(float)) +
           s->axes * (int64_t)sizeof(axis_taps);
}

/* Elements k, which may lie outside, as ones inside; -1: there is none. What is no number becomes
 * the first. */
RU_KERN_INLINE void inside(const ru_kern_sampler *s, const ru_kern_sample_pad pad, int64_t size,
                           const double *k, int32_t *at, int64_t n)
{
    const double last = (double)(size - 1);
    const double low = s->align ? 0 : -0.5, span = s->align ? last : (double)size;
    const double turn = 2 * span, turns = span > 0 ? 1 / turn : 0;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        double to = k[j];
        if (pad == RU_KERN_SAMPLE_REFLECT) {
            double r = fabs(to - low);
            r -= turn * floor(r * turns);
            r = r < 0 ? r + turn : r; /* the product was rounded */
            r = r >= turn ? r - turn : r;
            r = (r > span ? turn - r : r) + low;
            to = ((to < 0) | (to > last)) ? rint(r) : to;
        }
        bool out = (to < 0) | (to > last);
        to = to > last ? last : to;
        to = to > 0 ? to : 0;
        at[j] = pad == RU_KERN_SAMPLE_ZEROS && out ? -1 : (int32_t)to;
    }
}

static void tap_inside(const ru_kern_sampler *s, int64_t size, const double *k, int32_t *at,
                       int64_t n)
{
    switch (s->pad) {
    case RU_KERN_SAMPLE_ZEROS:
        inside(s, RU_KERN_SAMPLE_ZEROS, size, k, at, n);
        break;
    case RU_KERN_SAMPLE_BORDER:
        inside(s, RU_KERN_SAMPLE_BORDER, size, k, at, n);
        break;
    case RU_KERN_SAMPLE_REFLECT:
        inside(s, RU_KERN_SAMPLE_REFLECT, size, k, at, n);
        break;
    }
}

/* Of the cubic with a = -0.75: of the taps at distance t + 1, t, 1 - t and 2 - t. */
RU_KERN_INLINE float cubic(const int64_t tap, double t)
{
    const double a = -0.75;
    double d = fabs(t + 1 - (double)tap);
    return (float)(tap == 1 || tap == 2 ? ((a + 2) * d - (a + 3)) * d * d + 1
                                        : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a);
}

#define CUBIC(tap)                                      \
    _Pragma("omp simd") for (int64_t j = 0; j < n; j++) \
    {                                                   \
        t->weight[tap][j] = cubic(tap, rest[j]);        \
    }

static void axis_of(const ru_kern_sampler *s, int64_t size, const float *place, int64_t n,
                    axis_taps *t)
{
    const bool nearest = s->mode == RU_KERN_SAMPLE_NEAREST;
    const int64_t each = nearest ? 1 : s->mode == RU_KERN_SAMPLE_LINEAR ? 2 : 4;
    double first[N], rest[N];
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        double x = (double)place[j];
        first[j] = nearest ? rint(x) : floor(x);
        rest[j] = x - first[j]; /* NaN when x is no number */
    }
    if (s->mode == RU_KERN_SAMPLE_CUBIC) {
        CUBIC(0)
        CUBIC(1)
        CUBIC(2)
        CUBIC(3)
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float right = (float)rest[j], left = (float)(1 - rest[j]);
            t->weight[0][j] = nearest ? (rest[j] == rest[j] ? 1.0f : right) : left;
            t->weight[1][j] = right;
        }
    }
    for (int64_t k = 0; k < each; k++) {
        double at[N], add = (double)(k - (each == 4 ? 1 : 0));
        for (int64_t j = 0; j < n; j++) {
            at[j] = first[j] + add;
        }
        tap_inside(s, size, at, t->at[k], n);
    }
}

void RUI_K(rui_kern_sample_taps)(const ru_kern_sampler *s, const float *const *place, int64_t n,
                                 void *taps)
{
    const int64_t each = s->mode == RU_KERN_SAMPLE_NEAREST  ? 1
                         : s->mode == RU_KERN_SAMPLE_LINEAR ? 2
                                                            : 4;
    int32_t *at = taps;
    float *weight = (float *)(at + taps_of(s) * N);
    axis_taps *axes = (axis_taps *)(void *)(weight + taps_of(s) * N);
    for (int64_t d = 0; d < s->axes; d++) {
        axis_of(s, s->size[d], place[d], n, &axes[d]);
    }
    for (int64_t t = 0; t < taps_of(s); t++) {
        int64_t k = t;
        int32_t *to = at + t * N;
        float *w = weight + t * N;
        for (int64_t d = s->axes, step = 1; d-- > 0; step *= s->size[d], k /= each) {
            const int32_t *from = axes[d].at[k % each];
            const float *by = axes[d].weight[k % each];
            const int32_t by_step = (int32_t)step;
            const bool last = d + 1 == s->axes;
#pragma omp simd
            for (int64_t j = 0; j < n; j++) {
                to[j] = last ? from[j] : (from[j] | to[j]) < 0 ? -1 : to[j] + from[j] * by_step;
                w[j] = last ? by[j] : w[j] * by[j];
            }
        }
    }
}

/* y = (more: y +) the sum of `count` taps. */
RU_KERN_INLINE void add_taps(const int64_t count, const bool more, const int32_t *at,
                             const float *weight, const float *x, float *y, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float sum = more ? y[j] : 0.0f;
#pragma GCC unroll 4
        for (int64_t t = 0; t < count; t++) {
            int32_t a = at[t * N + j];
            float v = a < 0 ? 0.0f : x[a];
            sum += weight[t * N + j] * v;
        }
        y[j] = sum;
    }
}

void RUI_K(rui_kern_sample)(const ru_kern_sampler *s, const void *taps, const float *x, float *y,
                            int64_t n)
{
    const int64_t all = taps_of(s);
    const int32_t *at = taps;
    const float *weight = (const float *)(at + all * N);
    switch (all) {
    case 1:
        add_taps(1, false, at, weight, x, y, n);
        break;
    case 2:
        add_taps(2, false, at, weight, x, y, n);
        break;
    default:
        add_taps(4, false, at, weight, x, y, n);
        for (int64_t t = 4; t < all; t += 4) {
            add_taps(4, true, at + t * N, weight + t * N, x, y, n);
        }
        break;
    }
}

/* -- regions -------------------------------------------------------------------------------------
 *
 * The samples of a bin are a grid, so the mean of what they read is one of rows of means of
 * columns: rows are joined first, for all bins side by side. The same holds for maxima, since no
 * weight is negative.
 */

/* line = (more: line and) `count` rows, weighed. */
RU_KERN_INLINE void join_rows(const int64_t count, const bool more, const bool most,
                              const float *const *x, const float *weight, float *line, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float v = more ? line[j] : weight[0] * x[0][j];
#pragma GCC unroll 4
        for (int64_t r = more ? 0 : 1; r < count; r++) {
            float w = weight[r] * x[r][j];
            v = most ? kv_max(w, v) : v + w;
        }
        line[j] = v;
    }
}

RU_KERN_INLINE void roi_line(const ru_kern_roi *r, const bool most, const float *x, int64_t bin,
                             float *line)
{
    const bool zero = r->n_rows[bin] > 0 && r->row[bin * r->room + r->n_rows[bin] - 1] < 0;
    const int64_t n = r->n_rows[bin] - (zero ? 1 : 0);
    for (int64_t k = 0; k < n; k += 4) {
        const int32_t *row = r->row + bin * r->room + k;
        const float *weight = r->row_weight + bin * r->room + k;
        const float *from[4];
        const int64_t count = n - k < 4 ? n - k : 4;
        for (int64_t j = 0; j < count; j++) {
            from[j] = x + row[j] * r->width + r->first;
        }
        if (count == 4 && k == 0) {
            join_rows(4, false, most, from, weight, line, r->cols);
        } else if (count == 4) {
            join_rows(4, true, most, from, weight, line, r->cols);
        } else if (count == 2 && k == 0) {
            join_rows(2, false, most, from, weight, line, r->cols);
        } else {
            for (int64_t j = 0; j < count; j++) {
                if (k + j == 0) {
                    join_rows(1, false, most, from + j, weight + j, line, r->cols);
                } else {
                    join_rows(1, true, most, from + j, weight + j, line, r->cols);
                }
            }
        }
    }
    if (n == 0) {
        memset(line, 0, sizeof *line * (size_t)r->cols);
    }
    for (int64_t j = 0; zero && j < r->cols; j++) {
        line[j] = line[j] < 0 ? 0 : line[j];
    }
    line[r->cols] = 0;
}

/* A row of bins: each joins what its taps read of the line. */
#ifdef __AVX512F__
RU_KERN_INLINE void roi_bins(const ru_kern_roi *r, const bool most, const float *line, float *y)
{
    const bool near = r->cols < RU_KERN_ROI_LINE; /* all of a line in two registers */
    const __m512 low = _mm512_loadu_ps(line), high = _mm512_loadu_ps(line + 16);
    for (int64_t b = 0; b < r->pooled[1]; b += 16) {
        const int32_t *col = r->col + b;
        const float *weight = r->col_weight + b;
        __m512 sum = _mm512_setzero_ps();
        for (int64_t t = 0; t < r->taps; t++, col += r->bins, weight += r->bins) {
            const __m512i at = _mm512_loadu_si512(col);
            __m512 v = near ? _mm512_permutex2var_ps(low, at, high)
                            : _mm512_i32gather_ps(at, line, sizeof *line);
            v = _mm512_mul_ps(v, _mm512_loadu_ps(weight));
            const __mmask16 number = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
            sum = t == 0 ? v : most ? _mm512_mask_max_ps(v, number, v, sum) : _mm512_add_ps(sum, v);
        }
        const int64_t left = r->pooled[1] - b;
        _mm512_mask_storeu_ps(y + b, (__mmask16)(left >= 16 ? 0xffff : (1u << left) - 1), sum);
    }
}
#else
RU_KERN_INLINE void roi_bins(const ru_kern_roi *r, const bool most, const float *line, float *y)
{
    enum { BINS = RU_KERN_ROI_BINS };
    for (int64_t b = 0; b < r->pooled[1]; b += BINS) {
        float sum[BINS] = {0};
        for (int64_t t = 0; t < r->taps; t++) {
            const int32_t *col = r->col + t * r->bins + b;
            const float *weight = r->col_weight + t * r->bins + b;
#pragma omp simd
            for (int64_t j = 0; j < BINS; j++) {
                float v = weight[j] * line[col[j]], s = sum[j];
                sum[j] = t == 0 ? v : most ? kv_max(v, s) : s + v;
            }
        }
        for (int64_t j = 0; j < kv_min_i64(BINS, r->pooled[1] - b); j++) {
            y[b + j] = sum[j];
        }
    }
}
#endif

RU_KERN_INLINE void roi(const ru_kern_roi *r, const bool most, const float *x, float *line,
                        float *y)
{
    for (int64_t bin = 0; bin < r->pooled[0]; bin++, y += r->pooled[1]) {
        roi_line(r, most, x, bin, line);
        roi_bins(r, most, line, y);
    }
}

void RUI_K(rui_kern_roi)(const ru_kern_roi *r, const float *x, float *line, float *y)
{
    if (r->most) {
        roi(r, true, x, line, y);
    } else {
        roi(r, false, x, line, y);
    }
}

/* -- determinants --------------------------------------------------------------------------------
 */

enum { PANEL = 8 }; /* columns that are eliminated before the rest of the matrix is touched */

/* Column k of the panel [k0, k1): the pivot, with its sign. Factors stand below it. */
static double eliminate(double *a, int64_t n, int64_t k0, int64_t k, int64_t k1)
{
    int64_t top = k;
    for (int64_t i = k + 1; i < n; i++) {
        top = fabs(a[i * n + k]) > fabs(a[top * n + k]) ? i : top;
    }
    double *from = a + k * n, pivot = a[top * n + k];
    const bool some = pivot < 0 || pivot > 0;
    for (int64_t j = k0; top != k && j < n; j++) {
        double had = from[j];
        from[j] = a[top * n + j];
        a[top * n + j] = had;
    }
    for (int64_t i = k + 1; i < n; i++) {
        double *to = a + i * n, by = some ? to[k] / pivot : 0;
        to[k] = by;
        for (int64_t j = k + 1; j < k1; j++) {
            to[j] -= by * from[j];
        }
    }
    return top != k ? -pivot : pivot;
}

/* Columns from k1 on of row i, less `count` rows of the panel that begins at k0. */
RU_KERN_INLINE void subtract(const int64_t count, double *a, int64_t n, int64_t k0, int64_t k1,
                             int64_t i)
{
    double *restrict to = a + i * n;
    const double *restrict from = a + k0 * n;
    double by[PANEL];
    memcpy(by, to + k0, sizeof *by * (size_t)count);
#pragma omp simd
    for (int64_t j = k1; j < n; j++) {
        double v = to[j];
#pragma GCC unroll 8
        for (int64_t p = 0; p < count; p++) {
            v -= by[p] * from[p * n + j];
        }
        to[j] = v;
    }
}

static double det_of(double *a, int64_t n)
{
    double det = 1;
    for (int64_t k0 = 0; k0 < n; k0 += PANEL) {
        const int64_t k1 = kv_min_i64(k0 + PANEL, n);
        for (int64_t k = k0; k < k1; k++) {
            det *= eliminate(a, n, k0, k, k1);
        }
        for (int64_t i = k0 + 1; i < k1; i++) {
            for (int64_t p = 0; p < i - k0; p++) {
                const double by = a[i * n + k0 + p];
                for (int64_t j = k1; j < n; j++) {
                    a[i * n + j] -= by * a[(k0 + p) * n + j];
                }
            }
        }
        for (int64_t i = k1; i < n; i++) {
            subtract(PANEL, a, n, k0, k1, i);
        }
    }
    return det;
}

void RUI_K(rui_kern_det)(const float *x, int64_t n, int64_t count, double *work, float *y)
{
    for (int64_t i = 0; i < count; i++, x += n * n) {
        const double a = n > 0 ? (double)x[0] : 1;
        if (n < 2) {
            y[i] = (float)a;
        } else if (n == 2) {
            y[i] = (float)(a * (double)x[3] - (double)x[1] * (double)x[2]);
        } else if (n == 3) {
            double b = (double)x[1], c = (double)x[2], d = (double)x[3], e = (double)x[4];
            double f = (double)x[5], g = (double)x[6], h = (double)x[7], k = (double)x[8];
            y[i] = (float)(a * (e * k - f * h) - b * (d * k - f * g) + c * (d * h - e * g));
        } else {
            for (int64_t j = 0; j < n * n; j++) {
                work[j] = (double)x[j];
            }
            y[i] = (float)det_of(work, n);
        }
    }
}
