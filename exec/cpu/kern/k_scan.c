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

/* -- the k largest ------------------------------------------------------------------------------
 * Few of many: a heap whose root is the worst that is kept; stretches without anything better than
 * that, which is most of them, are passed over in vectors. Else all are sorted by their digits. */

/* TOP_BLOCK: elements that are gone through backwards, so that of lines in rising order few enter
 * the heap, and of falling ones no more than the first block. */
enum { TOP_COLS = RU_KERN_TOP_COLS, TOP_SPAN = 64, TOP_PIECE = 16, TOP_BLOCK = 256, DIGIT = 256 };
enum { TOP_FEW = 16, TOP_LONG = 512 }; /* kept of a line, and its elements, for a bound to pay */

/* A key and, below it, the complement of its place: of equals the first is larger. */
typedef uint64_t mark;

/* In the order of the floats, both zeros equal, every NaN on top. */
RU_KERN_INLINE mark mark_of(float x, bool smallest, int64_t at)
{
    uint32_t u = x != x ? 0x7fc00000u : kv_bits(x + 0.0f);
    uint32_t key = u >> 31 != 0 ? ~u : u | 0x80000000u;
    key = smallest ? ~key : key;
    return (mark)key << 32 | (uint32_t)~at;
}

RU_KERN_INLINE int64_t place_of(mark m)
{
    return (int64_t)(uint32_t)~m;
}

static void sink(mark *heap, int64_t n, int64_t i, mark x)
{
    for (;;) {
        int64_t c = 2 * i + 1;
        if (c >= n) {
            break;
        }
        c += c + 1 < n && heap[c + 1] < heap[c];
        if (heap[c] >= x) {
            break;
        }
        heap[i] = heap[c];
        i = c;
    }
    heap[i] = x;
}

/* The first elements. */
static void top_start(const ru_kern_scan *s, const float *x, mark *heap)
{
    int64_t k = s->keep;
    for (int64_t i = 0; i < k; i++) {
        heap[i] = mark_of(x[i * s->inner], s->smallest, i);
    }
    for (int64_t i = k / 2; i-- > 0;) {
        sink(heap, k, i, heap[i]);
    }
}

/* Is any element above its floor, or no number? Floors are `step` apart: 0 or 1. */
RU_KERN_INLINE bool top_any(const float *x, const int64_t n, float sign, const float *floors,
                            const int64_t step)
{
    uint32_t any = 0;
#pragma omp simd reduction(| : any)
    for (int64_t j = 0; j < n; j++) {
        any |= !(sign * x[j] <= floors[j * step]) ? 1u : 0u;
    }
    return any != 0;
}

/* What elements before `at` are compared with: an equal one that stands before the worst that is
 * kept is better. Below -inf is no number to be above: NaN lets all through. */
static float top_floor(const ru_kern_scan *s, const float *x, mark worst, int64_t at)
{
    float v = x[place_of(worst) * s->inner], floor = s->smallest ? -v : v;
    if (place_of(worst) < at) {
        return floor;
    }
    return floor == -INFINITY ? NAN : nextafterf(floor, -INFINITY);
}

/* No element below it is among the k best: the k-th of TOP_SPAN elements, each the best one of
 * every TOP_SPAN-th of the line. A NaN counts as the last here. */
static float top_bound(const ru_kern_scan *s, const float *x)
{
    const float sign = s->smallest ? -1.0f : 1.0f;
    float most[TOP_SPAN], best[TOP_FEW + 1];
    int64_t n = 0;
    for (int64_t j = 0; j < TOP_SPAN; j++) {
        most[j] = -INFINITY;
    }
    for (int64_t i = 0; i + TOP_SPAN <= s->dim; i += TOP_SPAN) {
#pragma omp simd
        for (int64_t j = 0; j < TOP_SPAN; j++) {
            float v = sign * x[i + j];
            most[j] = v > most[j] ? v : most[j];
        }
    }
    for (int64_t j = 0; j < TOP_SPAN; j++) {
        int64_t at = n;
        if (n == s->keep && most[j] <= best[n - 1]) {
            continue;
        }
        for (; at > 0 && best[at - 1] < most[j]; at--) {
            best[at] = best[at - 1];
        }
        best[at] = most[j];
        n += n < s->keep;
    }
    return best[s->keep - 1] == -INFINITY ? NAN : nextafterf(best[s->keep - 1], -INFINITY);
}

/* The heap's own marks once it is full; of equals the first has come before. */
static void top_piece(const ru_kern_scan *s, const float *x, int64_t i, int64_t end, mark *heap,
                      float *floor)
{
    for (int64_t k = i; k < end; k++) {
        float v = s->smallest ? -x[k] : x[k];
        if (v <= *floor) {
            continue;
        }
        mark m = mark_of(x[k], s->smallest, k);
        if (m > heap[0]) {
            sink(heap, s->keep, 0, m);
            *floor = heap[0] == 0 ? *floor : top_floor(s, x, heap[0], k + 1);
        }
    }
}

/* A few of one contiguous long line: nearly all others are below the bound, so that few enter the
 * heap. */
static void top_long_line(const ru_kern_scan *s, const float *x, mark *heap)
{
    const float sign = s->smallest ? -1.0f : 1.0f;
    float floor = top_bound(s, x);
    for (int64_t i = 0; i < s->keep; i++) {
        heap[i] = 0; /* below every mark */
    }
    for (int64_t i = 0, n; i < s->dim; i += n) {
        n = kv_min_i64(TOP_SPAN, s->dim - i);
        if (n == TOP_SPAN && !top_any(x + i, TOP_SPAN, sign, &floor, 0)) {
            continue;
        }
        for (int64_t j = i, m; j < i + n; j += m) {
            m = kv_min_i64(TOP_PIECE, i + n - j);
            if (m < TOP_PIECE || top_any(x + j, TOP_PIECE, sign, &floor, 0)) {
                top_piece(s, x, j, j + m, heap, &floor);
            }
        }
    }
}

/* One contiguous line. */
static void top_line(const ru_kern_scan *s, const float *x, mark *heap)
{
    const float sign = s->smallest ? -1.0f : 1.0f;
    if (s->keep <= TOP_FEW && s->dim >= TOP_LONG) {
        top_long_line(s, x, heap);
        return;
    }
    top_start(s, x, heap);
    for (int64_t i = s->keep, end; i < s->dim; i = end) {
        float floor = top_floor(s, x, heap[0], i);
        end = kv_min_i64(i + TOP_BLOCK, s->dim);
        for (int64_t j = end, n; j > i; j -= n) {
            n = kv_min_i64(TOP_SPAN, j - i);
            if (n == TOP_SPAN && !top_any(x + j - n, TOP_SPAN, sign, &floor, 0)) {
                continue;
            }
            n = kv_min_i64(TOP_PIECE, n);
            if (n == TOP_PIECE && !top_any(x + j - n, TOP_PIECE, sign, &floor, 0)) {
                continue;
            }
            for (int64_t k = j; k-- > j - n;) {
                mark m = mark_of(x[k], s->smallest, k);
                if (m > heap[0]) {
                    sink(heap, s->keep, 0, m);
                }
            }
            floor = top_floor(s, x, heap[0], j - n);
        }
    }
}

/* Columns side by side, at most TOP_COLS, each with a heap. */
static void top_columns(const ru_kern_scan *s, const float *x, int64_t cols, mark *heaps)
{
    const float sign = s->smallest ? -1.0f : 1.0f;
    float floors[TOP_COLS];
    for (int64_t j = 0; j < cols; j++) {
        top_start(s, x + j, heaps + j * s->keep);
    }
    for (int64_t i = s->keep, end; i < s->dim; i = end) {
        end = kv_min_i64(i + TOP_BLOCK, s->dim);
        for (int64_t j = 0; j < cols; j++) {
            floors[j] = top_floor(s, x + j, heaps[j * s->keep], i);
        }
        for (int64_t k = end; k-- > i;) {
            const float *row = x + k * s->inner;
            if (cols == TOP_COLS ? !top_any(row, TOP_COLS, sign, floors, 1)
                                 : !top_any(row, cols, sign, floors, 1)) {
                continue;
            }
            for (int64_t j = 0; j < cols; j++) {
                mark *heap = heaps + j * s->keep, m = mark_of(row[j], s->smallest, k);
                if (m > heap[0]) {
                    sink(heap, s->keep, 0, m);
                    floors[j] = top_floor(s, x + j, heap[0], k);
                }
            }
        }
    }
}

/* The worst goes last. */
static void heap_order(mark *heap, int64_t n)
{
    for (int64_t i = n; i-- > 0;) {
        mark worst = heap[0];
        sink(heap, i, 0, heap[i]);
        heap[i] = worst;
    }
}

/* All of a line in order, the largest first; work: two lines. Digit after digit of the key from the
 * last on; places are in order from the start. Digits that all have alike are left out. */
static mark *sort_line(const ru_kern_scan *s, const float *x, mark *work)
{
    uint32_t count[4][DIGIT] = {{0}};
    int64_t n = s->dim;
    mark *from = work, *to = work + n;
    for (int64_t i = 0; i < n; i++) {
        from[i] = mark_of(x[i * s->inner], s->smallest, i);
        for (int d = 0; d < 4; d++) {
            count[d][from[i] >> (32 + 8 * d) & (DIGIT - 1)]++;
        }
    }
    for (int d = 0; d < 4; d++) {
        uint32_t *c = count[d], at = 0;
        if (c[from[0] >> (32 + 8 * d) & (DIGIT - 1)] == (uint32_t)n) {
            continue;
        }
        for (int v = DIGIT; v-- > 0;) {
            uint32_t here = c[v];
            c[v] = at;
            at += here;
        }
        for (int64_t i = 0; i < n; i++) {
            to[c[from[i] >> (32 + 8 * d) & (DIGIT - 1)]++] = from[i];
        }
        mark *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* A heap pays while its steps are few beside the elements and the counters that a sort goes
 * through. */
static bool sorts(const ru_kern_scan *s)
{
    int64_t levels = 1;
    while (s->keep >> levels > 0) {
        levels++;
    }
    return s->keep * levels > s->dim + 256;
}

int64_t RUI_K(rui_kern_topk_work)(const ru_kern_scan *s)
{
    int64_t lines = s->inner > 1 ? kv_min_i64(s->inner, TOP_COLS) : 1;
    return (sorts(s) ? 2 * s->dim : lines * s->keep) * (int64_t)sizeof(mark);
}

static void top_out(const ru_kern_scan *s, const float *x, const mark *best, float *y,
                    int64_t *index)
{
    for (int64_t i = 0; i < s->keep; i++) {
        int64_t at = place_of(best[i]);
        if (y != NULL) {
            y[i * s->inner] = x[at * s->inner];
        }
        if (index != NULL) {
            index[i * s->inner] = at;
        }
    }
}

/* The best one of columns side by side or, of contiguous lines, of `n` lines: a place of the
 * largest, unless that of the smallest is a NaN, which comes last here. */
static void top_one(const ru_kern_scan *s, const float *x, int64_t n, mark *best)
{
    const ru_kern_scan one = {.dim = s->dim, .inner = s->inner, .smallest = s->smallest};
    const int64_t next = s->inner == 1 ? s->dim : 1;
    int64_t at[TOP_COLS];
    if (s->inner == 1) {
        RUI_K(rui_kern_arg)(&one, x, at, 0, n);
    } else {
        arg_block(&one, x, at, n);
    }
    for (int64_t j = 0; j < n; j++) {
        float v = x[j * next + at[j] * s->inner];
        best[j] = (uint32_t)~at[j];
        if (v != v && s->smallest) {
            top_columns(s, x + j * next, 1, best + j);
        }
    }
}

/* Contiguous lines of which one is kept. */
static void top_lines_of_one(const ru_kern_scan *s, const float *x, float *y, int64_t *index,
                             int64_t b0, int64_t b1)
{
    mark best[TOP_COLS];
    for (int64_t b = b0, n; b < b1; b += n) {
        n = kv_min_i64(TOP_COLS, b1 - b);
        top_one(s, x + b * s->dim, n, best);
        for (int64_t j = 0; j < n; j++) {
            top_out(s, x + (b + j) * s->dim, best + j, y == NULL ? NULL : y + b + j,
                    index == NULL ? NULL : index + b + j);
        }
    }
}

/* The best of columns side by side, each in a heap at the end. */
static void top_few(const ru_kern_scan *s, const float *x, int64_t cols, mark *best)
{
    if (s->keep == 1) {
        top_one(s, x, cols, best);
    } else if (s->inner == 1) {
        top_line(s, x, best);
    } else {
        top_columns(s, x, cols, best);
    }
}

void RUI_K(rui_kern_topk)(const ru_kern_scan *s, const float *x, float *y, int64_t *index,
                          void *work, int64_t b0, int64_t b1)
{
    const int64_t blocks = (s->inner + TOP_COLS - 1) / TOP_COLS, keep = s->keep;
    const bool sort = sorts(s);
    mark *best = work;
    if (keep == 1 && s->inner == 1) {
        top_lines_of_one(s, x, y, index, b0, b1);
        return;
    }
    for (int64_t b = b0; b < b1; b++) {
        int64_t o = b / blocks, c = b % blocks * TOP_COLS,
                cols = kv_min_i64(TOP_COLS, s->inner - c);
        const float *from = x + o * s->dim * s->inner + c;
        if (!sort) {
            top_few(s, from, cols, best);
        }
        for (int64_t j = 0; j < cols; j++) {
            int64_t to = o * keep * s->inner + c + j;
            mark *line = sort ? sort_line(s, from + j, best) : best + j * keep;
            if (!sort) {
                heap_order(line, keep);
            }
            top_out(s, from + j, line, y == NULL ? NULL : y + to,
                    index == NULL ? NULL : index + to);
        }
    }
}
