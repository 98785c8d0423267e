/* Along one axis of [outer, dim, inner]: running sums, the place of the largest, the k largest. */
#include "exec/cpu/kern/isa.h"

enum { SUM_ROWS = 4, SUM_COLS = 512, SCAN_COLS = 64, ARG_LANES = 16, ARG_LINES = 16, LINES = 8 };

/* Sums are kept in double: a float would lose a digit every ten thousand elements. */
/* Rows k .. k + rows in the order of the sum. */
RU_KERN_INLINE void cumsum_rows(const ru_kern_scan *s, const float *x, float *y, double *acc,
                                int64_t k, const int64_t rows, const bool exclusive, int64_t cols)
{
    int64_t step = s->reverse ? -s->inner : s->inner;
    int64_t at = (s->reverse ? s->dim - 1 - k : k) * s->inner;
    const float *from = x + at;
    float *to = y + at;
#pragma omp simd
    for (int64_t j = 0; j < cols; j++) {
        double sum = acc[j];
#pragma GCC unroll 8
        for (int64_t r = 0; r < rows; r++) {
            double v = (double)from[r * step + j];
            to[r * step + j] = (float)(exclusive ? sum : sum + v);
            sum += v;
        }
        acc[j] = sum;
    }
}

/* Several rows in one pass, so that sums stay in registers between them. */
RU_KERN_INLINE void cumsum_block(const ru_kern_scan *s, const float *x, float *y,
                                 const bool exclusive, int64_t cols)
{
    double acc[SUM_COLS];
    int64_t k = 0;
    memset(acc, 0, (size_t)cols * sizeof *acc);
    for (; k + SUM_ROWS <= s->dim; k += SUM_ROWS) {
        cumsum_rows(s, x, y, acc, k, SUM_ROWS, exclusive, cols);
    }
    for (; k < s->dim; k++) {
        cumsum_rows(s, x, y, acc, k, 1, exclusive, cols);
    }
}

/* Contiguous lines: several at once, because a sum waits for the one before it. */
RU_KERN_INLINE void cumsum_lines(const ru_kern_scan *s, const float *x, float *y,
                                 const int64_t lines)
{
    double acc[LINES] = {0.0};
    int64_t dim = s->dim;
    for (int64_t i = 0; i < dim; i++) {
        int64_t k = s->reverse ? dim - 1 - i : i;
#pragma GCC unroll 8
        for (int64_t l = 0; l < lines; l++) {
            int64_t at = l * dim + k;
            double old = acc[l];
            acc[l] += (double)x[at];
            y[at] = (float)(s->exclusive ? old : acc[l]);
        }
    }
}

void RUI_K(rui_kern_cumsum)(const ru_kern_scan *s, const float *x, float *y, int64_t o0, int64_t o1)
{
    int64_t o = o0;
    for (; s->inner == 1 && o + LINES <= o1; o += LINES) {
        cumsum_lines(s, x + o * s->dim, y + o * s->dim, LINES);
    }
    for (; s->inner == 1 && o < o1; o++) {
        cumsum_lines(s, x + o * s->dim, y + o * s->dim, 1);
    }
    for (o = o0; s->inner > 1 && o < o1; o++) {
        int64_t at = o * s->dim * s->inner;
        for (int64_t c = 0; c < s->inner; c += SUM_COLS) {
            int64_t cols = kv_min_i64(SUM_COLS, s->inner - c);
            if (s->exclusive) {
                cumsum_block(s, x + at + c, y + at + c, true, cols);
            } else {
                cumsum_block(s, x + at + c, y + at + c, false, cols);
            }
        }
    }
}

/* Is v above b? NaN is above every number. */
RU_KERN_INLINE bool beats(float v, float b)
{
    return !(v <= b) & (b == b);
}

/* Places of the largest of `sign` * x; of equals the first, or the last. */
static void arg_block(const ru_kern_scan *s, const float *x, int64_t *y, int64_t cols)
{
    float best[SCAN_COLS];
    int32_t at[SCAN_COLS];
    float sign = s->smallest ? -1.0f : 1.0f;
    for (int64_t j = 0; j < cols; j++) {
        best[j] = sign * x[j];
        at[j] = 0;
    }
    for (int64_t k = 1; k < s->dim; k++) {
        const float *from = x + k * s->inner;
        int32_t place = (int32_t)k;
        if (s->last) {
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) {
                float v = sign * from[j];
                bool better = (v != v) | !((best[j] > v) | (best[j] != best[j]));
                best[j] = better ? v : best[j];
                at[j] = better ? place : at[j];
            }
        } else {
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) {
                float v = sign * from[j];
                bool better = beats(v, best[j]);
                best[j] = better ? v : best[j];
                at[j] = better ? place : at[j];
            }
        }
    }
    for (int64_t j = 0; j < cols; j++) {
        y[j] = at[j];
    }
}

/* A contiguous line: lanes that each keep their first best. Not for `last`. */
static int64_t arg_line(const ru_kern_scan *s, const float *x)
{
    float best[ARG_LANES], sign = s->smallest ? -1.0f : 1.0f;
    int32_t at[ARG_LANES] = {0};
    int64_t k = 0;
    for (int64_t j = 0; j < ARG_LANES; j++) {
        best[j] = sign * x[0];
    }
    for (; k + ARG_LANES <= s->dim; k += ARG_LANES) {
        int32_t base = (int32_t)k;
#pragma omp simd
        for (int32_t j = 0; j < ARG_LANES; j++) {
            float v = sign * x[base + j];
            bool better = beats(v, best[j]);
            best[j] = better ? v : best[j];
            at[j] = better ? base + j : at[j];
        }
    }
    for (int64_t j = 0; k < s->dim; k++, j++) {
        float v = sign * x[k];
        bool better = beats(v, best[j]);
        at[j] = better ? (int32_t)k : at[j];
        best[j] = better ? v : best[j];
    }
    int64_t win = 0;
    for (int64_t j = 1; j < ARG_LANES; j++) {
        bool better = beats(best[j], best[win]) || (!beats(best[win], best[j]) && at[j] < at[win]);
        win = better ? j : win;
    }
    return at[win];
}

/* Contiguous short lines, `lines` side by side. */
RU_KERN_INLINE void arg_lines(const ru_kern_scan *s, const float *x, const int64_t lines,
                              int64_t *y)
{
    float best[ARG_LINES], sign = s->smallest ? -1.0f : 1.0f;
    int32_t at[ARG_LINES] = {0};
    int64_t dim = s->dim;
    for (int64_t j = 0; j < lines; j++) {
        best[j] = sign * x[j * dim];
    }
    for (int32_t k = 1; k < (int32_t)dim; k++) {
        if (s->last) {
#pragma omp simd
            for (int64_t j = 0; j < lines; j++) {
                float v = sign * x[j * dim + k];
                bool better = (v != v) | !((best[j] > v) | (best[j] != best[j]));
                best[j] = better ? v : best[j];
                at[j] = better ? k : at[j];
            }
        } else {
#pragma omp simd
            for (int64_t j = 0; j < lines; j++) {
                float v = sign * x[j * dim + k];
                bool better = beats(v, best[j]);
                best[j] = better ? v : best[j];
                at[j] = better ? k : at[j];
            }
        }
    }
    for (int64_t j = 0; j < lines; j++) {
        y[j] = at[j];
    }
}

static void arg_short(const ru_kern_scan *s, const float *x, int64_t *y, int64_t lines)
{
    int64_t o = 0;
    for (; o + ARG_LINES <= lines; o += ARG_LINES) {
        arg_lines(s, x + o * s->dim, ARG_LINES, y + o);
    }
    if (o < lines) {
        arg_lines(s, x + o * s->dim, lines - o, y + o);
    }
}

void RUI_K(rui_kern_arg)(const ru_kern_scan *s, const float *x, int64_t *y, int64_t o0, int64_t o1)
{
    if (s->inner == 1 && (s->last || s->dim <= SCAN_COLS)) {
        arg_short(s, x + o0 * s->dim, y + o0, o1 - o0);
        return;
    }
    for (int64_t o = o0; o < o1; o++) {
        const float *from = x + o * s->dim * s->inner;
        if (s->inner == 1) {
            y[o] = arg_line(s, from);
            continue;
        }
        for (int64_t c = 0; c < s->inner; c += SCAN_COLS) {
            arg_block(s, from + c, y + o * s->inner + c, kv_min_i64(SCAN_COLS, s->inner - c));
        }
    }
}

/* -- the k largest: a heap whose root is the worst that is kept ----------------------------------
 */

typedef struct kept {
    int32_t key, at;
} kept;

/* Integers in the order of the floats, both zeros equal, every NaN on top. */
RU_KERN_INLINE int32_t key_of(float x, bool smallest)
{
    uint32_t u = x != x ? 0x7fc00000u : kv_bits(x + 0.0f);
    int32_t key = (int32_t)(u >> 31 != 0 ? u ^ 0x7fffffffu : u);
    return smallest ? ~key : key;
}

/* Does a come after b in the answer? */
static bool worse(kept a, kept b)
{
    return a.key < b.key || (a.key == b.key && a.at > b.at);
}

static void sink(kept *heap, int64_t n, int64_t i, kept x)
{
    for (;;) {
        int64_t c = 2 * i + 1;
        if (c >= n) {
            break;
        }
        c += c + 1 < n && worse(heap[c + 1], heap[c]);
        if (!worse(heap[c], x)) {
            break;
        }
        heap[i] = heap[c];
        i = c;
    }
    heap[i] = x;
}

static void top_line(const ru_kern_scan *s, const float *x, float *y, int64_t *index, kept *heap)
{
    int64_t k = s->keep;
    for (int64_t i = 0; i < k; i++) {
        heap[i] = (kept){key_of(x[i * s->inner], s->smallest), (int32_t)i};
    }
    for (int64_t i = k / 2; i-- > 0;) {
        sink(heap, k, i, heap[i]);
    }
    for (int64_t i = k; i < s->dim; i++) {
        int32_t key = key_of(x[i * s->inner], s->smallest);
        if (key > heap[0].key) {
            sink(heap, k, 0, (kept){key, (int32_t)i});
        }
    }
    for (int64_t i = k; i-- > 0;) { /* the worst goes last */
        kept w = heap[0];
        sink(heap, i, 0, heap[i]);
        if (y != NULL) {
            y[i * s->inner] = x[w.at * s->inner];
        }
        if (index != NULL) {
            index[i * s->inner] = w.at;
        }
    }
}

void RUI_K(rui_kern_topk)(const ru_kern_scan *s, const float *x, float *y, int64_t *index,
                          void *work, int64_t o0, int64_t o1)
{
    for (int64_t l = o0 * s->inner; l < o1 * s->inner && s->keep > 0; l++) {
        int64_t o = l / s->inner, i = l % s->inner, to = o * s->keep * s->inner + i;
        top_line(s, x + o * s->dim * s->inner + i, y == NULL ? NULL : y + to,
                 index == NULL ? NULL : index + to, work);
    }
}
