/* Matrix product of doubles and of whole numbers, which wrap, and of floats with one row or one
 * column. As k_gemm.c: B in panels of GEMM_NR columns, A in groups of GEMM_MR rows, a tile of C in
 * registers. B is read in place where one group has all rows, since packing would cost as much as
 * the product. Compiled once for each type (meson.build): GEMM_OF is f32, f64, u32 or u64.
 *
 * A sum over k runs in an order that does not depend on the split. */
#define GEMM_JOIN2(x, y) x##y
#define GEMM_JOIN(x, y)  GEMM_JOIN2(x, y)
#define GEMM_IS_f32      float
#define GEMM_IS_f64      double
#define GEMM_IS_u32      uint32_t
#define GEMM_IS_u64      uint64_t
#define GEMM_T           GEMM_JOIN(GEMM_IS_, GEMM_OF)
#define GEMM_AT_f32      uint32_t
#define GEMM_AT_f64      uint64_t
#define GEMM_AT_u32      uint32_t
#define GEMM_AT_u64      uint64_t
#define GEMM_AT          GEMM_JOIN(GEMM_AT_, GEMM_OF) /* of the size of a number */
#define GEMM_FN_f32      rui_kern_gemm_f32
#define GEMM_FN_f64      rui_kern_gemm64
#define GEMM_FN_u32      rui_kern_gemm_u32
#define GEMM_FN_u64      rui_kern_gemm_u64
#define GEMM_64_f32      0
#define GEMM_64_f64      1
#define GEMM_64_u32      0
#define GEMM_64_u64      0
#define GEMM_ANY_A       1
#include "exec/cpu/kern/gemm_tile.h"
#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/kern/tile.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* A block of B takes 512 KiB of doubles, half of a small L2; one of A 224 KiB at most. */
enum { ANY_KC = 256, ANY_NC = 256, ANY_MC = 8 * GEMM_MR };
/* Sums of so few products: rows of C are written whole. */
enum { ANY_FEW = 16 };
enum { ANY_WORK = ANY_KC * (ANY_NC + ANY_MC) };

/* Squares of SQUARE lines are turned in registers of 32 bytes. */
enum { SQUARE = 32 / sizeof(GEMM_T) };
typedef GEMM_T square_v __attribute__((vector_size(32), aligned(sizeof(GEMM_T)), may_alias));
typedef double four_v __attribute__((vector_size(32), aligned(8), may_alias));

/* to[p * width + i] = x[i * step + p] for i, p < SQUARE. */
RU_KERN_INLINE void turn_square(const GEMM_T *x, int64_t step, int64_t width, GEMM_T *to)
{
    square_v r[SQUARE];
#pragma GCC unroll 8
    for (int i = 0; i < SQUARE; i++) {
        r[i] = *(const square_v *)(x + i * step);
    }
    if (sizeof(GEMM_T) == 4) {
        tile_transpose((tile_v *)r);
    } else {
        four_v *d = (four_v *)r, a = __builtin_shufflevector(d[0], d[1], 0, 4, 2, 6);
        four_v b = __builtin_shufflevector(d[0], d[1], 1, 5, 3, 7);
        four_v c = __builtin_shufflevector(d[2], d[3], 0, 4, 2, 6);
        four_v e = __builtin_shufflevector(d[2], d[3], 1, 5, 3, 7);
        d[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
        d[1] = __builtin_shufflevector(b, e, 0, 1, 4, 5);
        d[2] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
        d[3] = __builtin_shufflevector(b, e, 2, 3, 6, 7);
    }
#pragma GCC unroll 8
    for (int i = 0; i < SQUARE; i++) {
        *(square_v *)(to + i * width) = r[i];
    }
}

/* to[p * width + i] = x[i * step + p * k_step] for i < n, 0 up to width. */
RU_KERN_INLINE void pack_group(const GEMM_T *x, int64_t step, int64_t k_step, int64_t n,
                               const int64_t width, int64_t k, GEMM_T *to)
{
    if (step == 1 && n == width) {
        for (int64_t p = 0; p < k; p++) {
            memcpy(to + p * width, x + p * k_step, sizeof(GEMM_T) * (size_t)width);
        }
        return;
    }
    int64_t squares = k_step == 1 ? n / SQUARE * SQUARE : 0;
    int64_t lengths = squares > 0 ? k / SQUARE * SQUARE : 0;
    for (int64_t p = 0; p < lengths; p += SQUARE) {
        for (int64_t i = 0; i < squares; i += SQUARE) {
            turn_square(x + i * step + p, step, width, to + p * width + i);
        }
        for (int64_t q = p; squares < width && q < p + SQUARE; q++) {
            for (int64_t i = squares; i < width; i++) {
                to[q * width + i] = i < n ? x[i * step + q] : 0;
            }
        }
    }
    for (int64_t p = lengths; p < k; p++) {
        for (int64_t i = 0; i < width; i++) {
            to[p * width + i] = i < n ? x[i * step + p * k_step] : 0;
        }
    }
}

static void pack_a(const ru_kern_gemm64 *g, int64_t k0, int64_t kc, int64_t i0, int64_t i1,
                   GEMM_T *to)
{
    for (int64_t i = i0; i < i1; i += GEMM_MR) {
        const GEMM_T *a = ((const GEMM_T *)(const void *)g->a) + i * g->a_row + k0 * g->a_col;
        int64_t m = kv_min_i64(GEMM_MR, i1 - i);
        if (m == GEMM_MR) {
            pack_group(a, g->a_row, g->a_col, m, GEMM_MR, kc, to);
        } else {
            pack_group(a, g->a_row, g->a_col, m, m, kc, to);
        }
        to += m * kc;
    }
}

static void pack_b(const ru_kern_gemm64 *g, int64_t k0, int64_t kc, int64_t j0, int64_t j1,
                   GEMM_T *to)
{
    for (int64_t j = j0; j < j1; j += GEMM_NR, to += kc * GEMM_NR) {
        pack_group(((const GEMM_T *)(const void *)g->b) + k0 * g->b_row + j * g->b_col, g->b_col,
                   g->b_row, kv_min_i64(GEMM_NR, j1 - j), GEMM_NR, kc, to);
    }
}

/* One block of k and of columns for rows i0 .. i1, their groups in `a` or, NULL, read in place; B
 * packed in `b` or, NULL, read in place; there `edge` takes the last columns. */
static void block(const ru_kern_gemm64 *g, int64_t k0, int64_t kc, int64_t i0, int64_t i1,
                  int64_t j0, int64_t j1, const GEMM_T *a, const GEMM_T *b, GEMM_T *edge)
{
    for (int64_t j = j0; j < j1; j += GEMM_NR) {
        gemm_tile t = {.k = kc,
                       .n = kv_min_i64(GEMM_NR, j1 - j),
                       .b = b == NULL ? edge : b + (j - j0) * kc,
                       .b_row = GEMM_NR,
                       .c_row = g->c_row,
                       .alpha = (GEMM_T)g->alpha,
                       .add = k0 > 0};
        if (b == NULL && t.n == GEMM_NR) {
            t.b = ((const GEMM_T *)(const void *)g->b) + k0 * g->b_row + j;
            t.b_row = g->b_row;
        } else if (b == NULL) {
            pack_b(g, k0, kc, j, j1, edge);
        }
        for (int64_t i = i0; i < i1; i += GEMM_MR) {
            int64_t rows = kv_min_i64(GEMM_MR, i1 - i);
            t.a = a != NULL ? a + (i - i0) * kc
                            : ((const GEMM_T *)(const void *)g->a) + i * g->a_row + k0 * g->a_col;
            t.a_row = a != NULL ? 1 : g->a_row;
            t.a_col = a != NULL ? rows : g->a_col;
            t.c = ((GEMM_T *)(void *)g->c) + i * g->c_row + j;
            run_tile(rows, &t);
        }
    }
}

/* -- few rows or columns -------------------------------------------------------------------------
 *
 * y(i, c) = alpha * (sum over p of M(i, p) x(p, c)) of few c; memory decides: each number of M is
 * used a few times only. */

enum { LINES = GEMM_BYTES == 64 ? 4 : 2, TERMS = 8, FEW_PAIRS = 3, FEW_AT_ONCE = 6, FEW_MOST = 8 };

/* Of few results: numbers of x of one c stand side by side, k_most apart for the next c. */
typedef struct thin_call {
    const GEMM_T *x;
    int64_t k, k_most;
    int64_t sums; /* vectors that each result is summed in, 1 or 2 */
    GEMM_T *y;
    int64_t y_step, y_next; /* from one i, from one c to the next */
    GEMM_T alpha;
    bool add;
} thin_call;

/* n <= GEMM_W numbers in the first lanes, 0 in the others. Memory behind them is not read. */
RU_KERN_INLINE gemm_v load_some(const GEMM_T *p, int64_t n)
{
#if defined(__AVX512F__)
    return sizeof(GEMM_T) == 4 ? (gemm_v)_mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), p)
                               : (gemm_v)_mm512_maskz_loadu_epi64((__mmask8)((1u << n) - 1), p);
#elif defined(__AVX2__)
    const __m256i fours = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i eights = _mm256_setr_epi64x(0, 1, 2, 3), all = _mm256_set1_epi32((int)n);
    const __m256i wide = _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), eights);
    return sizeof(GEMM_T) == 4
               ? (gemm_v)_mm256_maskload_epi32((const void *)p, _mm256_cmpgt_epi32(all, fours))
               : (gemm_v)_mm256_maskload_epi64((const void *)p, wide);
#else
    GEMM_T some[GEMM_W] = {0};
    for (int64_t q = 0; q < n; q++) {
        some[q] = p[q];
    }
    return vload(some);
#endif
}

/* Lanes of a vector, or its two halves added. */
RU_KERN_INLINE square_v folded(gemm_v v)
{
#if defined(__AVX512F__)
    return (square_v)_mm512_castsi512_si256((__m512i)v) +
           (square_v)_mm512_extracti64x4_epi64((__m512i)v, 1);
#else
    square_v all = {0};
    memcpy(&all, &v, sizeof v);
    return all;
#endif
}

/* Lane r of the result is the sum of the lanes of row r, added in pairs. */
RU_KERN_INLINE square_v rows_sum(const square_v row[SQUARE])
{
    if (sizeof(GEMM_T) == 4) {
        square_v s[4], u[2];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const tile_v x = (tile_v)row[2 * i], y = (tile_v)row[2 * i + 1];
            s[i] = (square_v)__builtin_shufflevector(x, y, 0, 8, 2, 10, 4, 12, 6, 14) +
                   (square_v)__builtin_shufflevector(x, y, 1, 9, 3, 11, 5, 13, 7, 15);
        }
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const tile_v x = (tile_v)s[2 * i], y = (tile_v)s[2 * i + 1];
            u[i] = (square_v)__builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13) +
                   (square_v)__builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
        }
        const tile_v x = (tile_v)u[0], y = (tile_v)u[1];
        return (square_v)__builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11) +
               (square_v)__builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15);
    }
    square_v s[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const four_v x = (four_v)row[2 * i], y = (four_v)row[2 * i + 1];
        s[i] = (square_v)__builtin_shufflevector(x, y, 0, 4, 2, 6) +
               (square_v)__builtin_shufflevector(x, y, 1, 5, 3, 7);
    }
    const four_v x = (four_v)s[0], y = (four_v)s[1];
    return (square_v)__builtin_shufflevector(x, y, 0, 1, 4, 5) +
           (square_v)__builtin_shufflevector(x, y, 2, 3, 6, 7);
}

/* M(i, p) = m[i * step + p]: vectors of sums of some lines, their number and that of c constant.
 * Each result has `sums` of them, one or two, whatever lines stand beside it. */
RU_KERN_INLINE void lines_some(const int64_t lines, const int64_t n, const int64_t sums,
                               const thin_call *f, const GEMM_T *m, int64_t step,
                               square_v (*row)[SQUARE])
{
    gemm_v v[LINES][FEW_AT_ONCE][2] = {{{{0}}}};
    int64_t p = 0, k = f->k;
    for (; p + sums * GEMM_W <= k; p += sums * GEMM_W) {
#pragma GCC unroll 8
        for (int64_t c = 0; c < sums * n; c++) {
            const int64_t at = p + c % sums * GEMM_W;
            const gemm_v by = vload(f->x + c / sums * f->k_most + at);
#pragma GCC unroll 4
            for (int64_t r = 0; r < lines; r++) {
                v[r][c / sums][c % sums] += vload(m + r * step + at) * by;
            }
        }
    }
    for (; p < k; p += GEMM_W) {
        const bool all = p + GEMM_W <= k;
#pragma GCC unroll 8
        for (int64_t c = 0; c < n; c++) {
            const GEMM_T *x = f->x + c * f->k_most + p;
            const gemm_v by = all ? vload(x) : load_some(x, k - p);
#pragma GCC unroll 4
            for (int64_t r = 0; r < lines; r++) {
                const GEMM_T *a = m + r * step + p;
                v[r][c][0] += (all ? vload(a) : load_some(a, k - p)) * by;
            }
        }
    }
#pragma GCC unroll 8
    for (int64_t c = 0; c < n; c++) {
#pragma GCC unroll 4
        for (int64_t r = 0; r < lines; r++) {
            row[c][r] = folded(v[r][c][0] + v[r][c][1]);
        }
    }
}

/* The same of SQUARE lines of at most one vector. */
RU_KERN_INLINE void lines_short(const int64_t n, const thin_call *f, const GEMM_T *m, int64_t step,
                                square_v (*row)[SQUARE])
{
#pragma GCC unroll 4
    for (int64_t c = 0; c < n; c++) {
        const gemm_v by = load_some(f->x + c * f->k_most, f->k);
#pragma GCC unroll 8
        for (int64_t r = 0; r < SQUARE; r++) {
            row[c][r] = folded((gemm_v){0} + load_some(m + r * step, f->k) * by);
        }
    }
}

RU_KERN_INLINE void lines_few(const int64_t n, const int64_t sums, const thin_call *f,
                              const GEMM_T *m, int64_t step, int64_t outs)
{
    for (int64_t i = 0; i < outs; i += SQUARE) {
        square_v row[FEW_AT_ONCE][SQUARE];
        const int64_t rows = kv_min_i64(SQUARE, outs - i);
        int64_t r = 0;
        if (rows == SQUARE && f->k <= GEMM_W) {
            lines_short(n, f, m + i * step, step, row);
            r = SQUARE;
        }
        for (; r + LINES <= rows; r += LINES) {
            lines_some(LINES, n, sums, f, m + (i + r) * step, step,
                       (square_v(*)[SQUARE])(row[0] + r));
        }
        for (; r < rows; r++) {
            lines_some(1, n, sums, f, m + (i + r) * step, step, (square_v(*)[SQUARE])(row[0] + r));
        }
        for (; r < SQUARE; r++) {
            for (int64_t c = 0; c < n; c++) {
                row[c][r] = (square_v){0};
            }
        }
        for (int64_t c = 0; c < n; c++) {
            GEMM_T *to = f->y + i * f->y_step + c * f->y_next;
            const square_v sum = rows_sum(row[c]) * f->alpha;
            if (rows == SQUARE && f->y_step == 1 && !f->add) {
                *(square_v *)to = sum;
                continue;
            }
            for (r = 0; r < rows; r++, to += f->y_step) {
                *to = sum[r] + (f->add ? *to : 0);
            }
        }
    }
}

static void lines_sum(int64_t n, const thin_call *f, const GEMM_T *m, int64_t step, int64_t outs)
{
#define LINES_CASE(n, sums)                   \
    case 2 * (n) + (sums):                    \
        lines_few(n, sums, f, m, step, outs); \
        break;
    switch (2 * n + f->sums) {
        LINES_CASE(1, 2)
        LINES_CASE(2, 2)
        LINES_CASE(3, 2)
        LINES_CASE(1, 1)
        LINES_CASE(2, 1)
        LINES_CASE(3, 1)
        LINES_CASE(4, 1)
        LINES_CASE(5, 1)
    default:
        lines_few(FEW_AT_ONCE, 1, f, m, step, outs);
        break;
    }
}

/* y[j] += sum of `terms` lines times their numbers; `terms` is a constant. */
RU_KERN_INLINE void add_lines(const int64_t terms, const GEMM_T *m, int64_t step, const GEMM_T *x,
                              GEMM_T *y, int64_t n)
{
    GEMM_T by[TERMS];
    for (int64_t q = 0; q < terms; q++) {
        by[q] = x[q];
    }
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        GEMM_T even = y[j], odd = 0;
#pragma GCC unroll 4
        for (int64_t q = 0; q + 1 < terms; q += 2) {
            even += by[q] * m[q * step + j];
            odd += by[q + 1] * m[(q + 1) * step + j];
        }
        even += terms % 2 != 0 ? by[terms - 1] * m[(terms - 1) * step + j] : 0;
        y[j] = even + odd;
    }
}

/* M(i, p) = m[p * step + i]: TERMS lines at a time are added to so many results as stay in L1. */
static void columns_sum(const GEMM_T *m, int64_t step, int64_t outs, const GEMM_T *x, int64_t k,
                        GEMM_T *y)
{
    enum { COLS = 16384 / sizeof(GEMM_T) };
    for (int64_t j = 0; j < outs; j += COLS) {
        int64_t n = kv_min_i64(COLS, outs - j), p = 0;
        for (; p + TERMS <= k; p += TERMS) {
            add_lines(TERMS, m + p * step + j, step, x + p, y + j, n);
        }
        for (; p + 2 <= k; p += 2) {
            add_lines(2, m + p * step + j, step, x + p, y + j, n);
        }
        if (p < k) {
            add_lines(1, m + p * step + j, step, x + p, y + j, n);
        }
    }
}

/* The same of few results: vectors of them stay in registers for all lines, with four sums each. */
static void columns_narrow(const GEMM_T *m, int64_t step, int64_t outs, const GEMM_T *x, int64_t k,
                           GEMM_T *y)
{
    enum { SUMS = 4 };
    for (int64_t j = 0; j < outs; j += GEMM_W) {
        const int64_t n = kv_min_i64(GEMM_W, outs - j);
        gemm_v v[SUMS] = {{0}};
        GEMM_T lanes[GEMM_W];
        int64_t p = 0;
        for (; p + SUMS <= k; p += SUMS) {
#pragma GCC unroll 4
            for (int64_t q = 0; q < SUMS; q++) {
                v[q] += load_some(m + (p + q) * step + j, n) * x[p + q];
            }
        }
        for (; p < k; p++) {
            v[0] += load_some(m + p * step + j, n) * x[p];
        }
        vstore(lanes, (v[0] + v[1]) + (v[2] + v[3]));
        for (int64_t q = 0; q < n; q++) {
            y[j + q] += lanes[q];
        }
    }
}

/* The same where lines of M stand side by side: some results at a time, which wait in `wait`. */
static void columns_few(bool narrow, int64_t n, const thin_call *f, const GEMM_T *m, int64_t step,
                        int64_t outs, GEMM_T *wait)
{
    enum { ROWS = 512 };
    const bool waits = f->y_step != 1 || f->alpha != 1;
    for (int64_t i = 0; i < outs; i += waits ? ROWS : outs) {
        int64_t rows = waits ? kv_min_i64(ROWS, outs - i) : outs;
        for (int64_t c = 0; c < n; c++) {
            GEMM_T *y = f->y + i * f->y_step + c * f->y_next, *to = waits ? wait : y;
            for (int64_t r = 0; r < rows && (waits || !f->add); r++) {
                to[r] = 0;
            }
            (narrow ? columns_narrow : columns_sum)(m + i, step, rows, f->x + c * f->k_most, f->k,
                                                    to);
            for (int64_t r = 0; r < rows && waits; r++) {
                y[r * f->y_step] = f->alpha * to[r] + (f->add ? y[r * f->y_step] : 0);
            }
        }
    }
}

/* -- short sums ----------------------------------------------------------------------------------
 *
 * With AVX-512: many lines of a few numbers, where one line would not fill a vector. */

enum { SHORT_MOST = 4 * GEMM_W };

#if defined(__AVX512F__)
/* Lanes `at` of low and high, one behind the other; of low alone; those not in `mask` are 0. */
RU_KERN_INLINE gemm_v taken(gemm_v low, gemm_v high, __m512i at)
{
    const __m512i a = (__m512i)low, b = (__m512i)high;
    return sizeof(GEMM_T) == 4 ? (gemm_v)_mm512_permutex2var_epi32(a, at, b)
                               : (gemm_v)_mm512_permutex2var_epi64(a, at, b);
}

RU_KERN_INLINE gemm_v taken_some(gemm_v v, __m512i at, uint32_t mask)
{
    const __m512i a = (__m512i)v;
    return sizeof(GEMM_T) == 4 ? (gemm_v)_mm512_maskz_permutexvar_epi32((__mmask16)mask, at, a)
                               : (gemm_v)_mm512_maskz_permutexvar_epi64((__mmask8)mask, at, a);
}

/* Numbers of x and y by turns, `bytes` each within 16 bytes, added. */
RU_KERN_INLINE gemm_v added_near(const int64_t bytes, gemm_v x, gemm_v y)
{
    const __m512i a = (__m512i)x, b = (__m512i)y;
    return bytes == 4 ? (gemm_v)_mm512_unpacklo_epi32(a, b) + (gemm_v)_mm512_unpackhi_epi32(a, b)
                      : (gemm_v)_mm512_unpacklo_epi64(a, b) + (gemm_v)_mm512_unpackhi_epi64(a, b);
}

/* The 16 bytes of x and then those of y, neighbours added. */
RU_KERN_INLINE gemm_v added_far(gemm_v x, gemm_v y)
{
    const __m512i a = (__m512i)x, b = (__m512i)y;
    return (gemm_v)_mm512_shuffle_i64x2(a, b, 0x88) + (gemm_v)_mm512_shuffle_i64x2(a, b, 0xdd);
}

/* Sums of GEMM_W lines, `room` lanes of a vector each, so that v has `room` vectors. */
RU_KERN_INLINE gemm_v lanes_added(const int64_t room, gemm_v v[GEMM_W])
{
    enum { FOUR = sizeof(GEMM_T) == 4 };
    const int64_t pairs = FOUR ? room / 2 : room, near = pairs / 2;
    gemm_v two[GEMM_W / 2], q[4], far[2];
#pragma GCC unroll 8
    for (int64_t i = 0; FOUR && i < pairs; i++) {
        two[i] = added_near(4, v[2 * i], v[2 * i + 1]);
    }
    const gemm_v *from = FOUR ? two : v;
#pragma GCC unroll 4
    for (int64_t i = 0; i < near; i++) {
        q[i] = added_near(8, from[2 * i], from[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int64_t i = 0; i < near / 2; i++) {
        far[i] = added_far(q[2 * i], q[2 * i + 1]);
    }
    return near == 1 ? q[0] : near == 2 ? far[0] : added_far(far[0], far[1]);
}

/* Where lanes_added leaves the sum of each line. */
RU_KERN_INLINE __m512i lanes_order(const int64_t room)
{
    enum { NEAR = 16 / sizeof(GEMM_T) };
    GEMM_AT at[GEMM_W];
    for (int64_t i = 0; i < GEMM_W; i++) {
        const int64_t a = i / (2 * NEAR), b = i / 2 % NEAR, c = i % 2;
        at[i] = (GEMM_AT)(room == GEMM_W       ? i
                          : 2 * room == GEMM_W ? a * 2 * NEAR + c * NEAR + b
                                               : i % 4 * NEAR + i / 4);
    }
    return _mm512_loadu_si512(at);
}

/* One column: y(i) of lines of k <= SHORT_MOST numbers, which stand side by side; `room` lanes a
 * line, several vectors if it is all of a vector. */
RU_KERN_INLINE void short_lines(const int64_t room, const thin_call *f, const GEMM_T *m,
                                int64_t outs)
{
    const int64_t k = f->k, lines = GEMM_W / room;
    const bool full = k == room;
    GEMM_T some[GEMM_W * SHORT_MOST + GEMM_W], x[GEMM_W] = {0};
    GEMM_AT at[GEMM_W] = {0};
    uint32_t mask = 0;
    for (int64_t i = 0; room < GEMM_W && i < GEMM_W; i++) {
        const bool has = i % room < k;
        at[i] = has ? (GEMM_AT)(i / room * k + i % room) : 0;
        x[i] = has ? f->x[i % room] : 0;
        mask |= (uint32_t)has << i;
    }
    const __m512i spread = _mm512_loadu_si512(at), order = lanes_order(room);
    const gemm_v by = vload(x);
    for (int64_t i = 0; i < outs; i += GEMM_W) {
        const int64_t rows = kv_min_i64(GEMM_W, outs - i);
        const GEMM_T *from = m + i * k;
        gemm_v v[GEMM_W] = {{0}};
        if (rows < GEMM_W || (outs - i - GEMM_W + lines) * k < GEMM_W) {
            memcpy(some, from, sizeof(GEMM_T) * (size_t)(rows * k));
            memset(some + rows * k, 0, sizeof(GEMM_T) * (size_t)((GEMM_W - rows) * k + GEMM_W));
            from = some;
        }
        for (int64_t p = 0; p < k; p += room < GEMM_W ? k : GEMM_W) {
            const int64_t n = kv_min_i64(GEMM_W, k - p);
            const gemm_v its = room < GEMM_W ? by : load_some(f->x + p, n);
#pragma GCC unroll 16
            for (int64_t r = 0; r < room; r++) {
                const GEMM_T *a = from + r * lines * k + p;
                v[r] += its * (room == GEMM_W ? load_some(a, n)
                               : full         ? vload(a)
                                              : taken_some(vload(a), spread, mask));
            }
        }
        gemm_v sum = lanes_added(room, v) * f->alpha;
        sum = room < GEMM_W ? taken_some(sum, order, 0xffff) : sum;
        put_some(f->y + i, sum, rows, false);
    }
}

/* Few columns: C is one line of numbers, a vector of them comes from few rows. Their numbers of A
 * stand within two vectors, those of a transposed A within one, of each p; B repeats with every
 * n-th vector. Sums run as those of tiles. Gives the first row that it left. */
enum { FLAT_COLUMNS = 12, FLAT_SUMS = 8 };

RU_KERN_INLINE int64_t flat_rows(const int64_t sums, const ru_kern_gemm64 *g, int64_t m0,
                                 int64_t m1, GEMM_T *work)
{
    const int64_t n = g->n, k = sums > 0 ? sums : g->k, step = sums > 0 ? k : 1;
    const GEMM_T *b = (const void *)g->b, *a = (const GEMM_T *)(const void *)g->a + m0 * step;
    GEMM_AT *at = (GEMM_AT *)(void *)(work + n * k * GEMM_W);
    int64_t first[FLAT_COLUMNS], i = m0;
    for (int64_t v = 0; v < n; v++) {
        first[v] = v * GEMM_W / n;
        for (int64_t lane = 0; lane < GEMM_W; lane++) {
            const int64_t row = (v * GEMM_W + lane) / n, col = v * GEMM_W + lane - row * n;
            for (int64_t p = 0; p < k; p++) {
                const int64_t to = (v * k + p) * GEMM_W + lane;
                work[to] = b[p * g->b_row + col * g->b_col];
                at[to] = (GEMM_AT)((row - first[v]) * step + (sums > 0 ? p : 0));
            }
        }
    }
    GEMM_T *c = (GEMM_T *)(void *)g->c + m0 * n;
    for (; i + GEMM_W <= m1 && (g->m - i - GEMM_W) * step >= 2 * GEMM_W; i += GEMM_W) {
        for (int64_t v = 0; v < n; v++, c += GEMM_W) {
            const GEMM_T *from = a + first[v] * step, *by = work + v * k * GEMM_W;
            const GEMM_AT *its = at + v * k * GEMM_W;
            gemm_v sum = {0}, low = sum, high = sum;
            if (sums > 0) {
                low = vload(from);
                high = vload(from + GEMM_W);
            }
#pragma GCC unroll 8
            for (int64_t p = 0; p < k; p++) {
                const gemm_v x = sums > 0 ? low : vload(from + p * g->a_col);
                const __m512i lanes = _mm512_loadu_si512(its + p * GEMM_W);
                sum += (sums > 0 ? taken(x, high, lanes) : taken_some(x, lanes, 0xffff)) *
                       vload(by + p * GEMM_W);
            }
            vstore(c, sum * (GEMM_T)g->alpha);
        }
        a += GEMM_W * step;
    }
    return i;
}
#endif

/* Did short_lines take these lines of the only column? */
static bool short_column(const thin_call *f, const GEMM_T *m, int64_t step, int64_t outs)
{
#if defined(__AVX512F__)
    enum { HALF = GEMM_W / 2, QUARTER = GEMM_W / 4 };
    if (f->k <= SHORT_MOST && step == f->k && f->y_step == 1 && !f->add) {
        if (f->k <= QUARTER) {
            short_lines(QUARTER, f, m, outs);
        } else if (f->k <= HALF) {
            short_lines(HALF, f, m, outs);
        } else {
            short_lines(GEMM_W, f, m, outs);
        }
        return true;
    }
#endif
    (void)f, (void)m, (void)step, (void)outs;
    return false;
}

/* Does flat_rows pay? Of the whole product: rows that it leaves must not go to `thin`. */
static bool is_flat(const ru_kern_gemm64 *g)
{
#if defined(__AVX512F__)
    int64_t rows = 0; /* that one vector of C touches at most */
    if (g->n < 2 || g->n > FLAT_COLUMNS || g->m < 8 * GEMM_W || g->c_row != g->n) {
        return false;
    }
    for (int64_t at = 0; at < g->n * GEMM_W; at += GEMM_W) {
        const int64_t its = (at + GEMM_W - 1) / g->n - at / g->n + 1;
        rows = rows > its ? rows : its;
    }
    return g->a_row == 1 ? g->k <= FLAT_SUMS || (g->n <= 3 && g->k <= SHORT_MOST)
                         : g->a_col == 1 && g->a_row == g->k && g->k <= FLAT_SUMS &&
                               rows * g->k <= 2 * GEMM_W;
#else
    (void)g;
    return false;
#endif
}

/* The first row behind those that flat_rows took. */
static int64_t flat(const ru_kern_gemm64 *g, int64_t m0, int64_t m1, GEMM_T *work)
{
#if defined(__AVX512F__)
#define FLAT_CASE(k) \
    case k:          \
        return flat_rows(k, g, m0, m1, work);
    switch (g->a_row == 1 ? 0 : g->k) {
        FLAT_CASE(1)
        FLAT_CASE(2)
        FLAT_CASE(3)
        FLAT_CASE(4)
        FLAT_CASE(5)
        FLAT_CASE(6)
        FLAT_CASE(7)
        FLAT_CASE(8)
    default:
        return flat_rows(0, g, m0, m1, work);
    }
#else
    (void)g, (void)m1, (void)work;
    return m0;
#endif
}

/* Results i0 .. i1, c_first .. c_end of few columns (M is A), or of few rows (M is B). */
static void thin(const ru_kern_gemm64 *g, bool column, int64_t i0, int64_t i1, int64_t c_first,
                 int64_t c_end, GEMM_T *work)
{
    enum { WAIT = 512, K_MOST = (ANY_WORK - WAIT) / FEW_MOST / GEMM_W * GEMM_W, NEAR = 1 << 17 };
    const GEMM_T *m = (const void *)(column ? g->a : g->b);
    const GEMM_T *x = (const void *)(column ? g->b : g->a);
    const int64_t line = column ? g->a_row : g->b_col, along = column ? g->a_col : g->b_row;
    const int64_t x_step = column ? g->b_row : g->a_col, x_next = column ? g->b_col : g->a_row;
    const bool lines = along == 1 && (g->k > 1 || line != 1);
    const int64_t few = column ? g->n : g->m; /* of all, as the next, not of this part */
    const bool narrow = (column ? g->m : g->n) <= 4 * GEMM_W;
    for (int64_t k0 = 0; k0 < g->k; k0 += K_MOST) {
        thin_call f = {.x = x + k0 * x_step + c_first * x_next,
                       .k = kv_min_i64(K_MOST, g->k - k0),
                       .k_most = x_next,
                       .sums = few <= FEW_PAIRS ? 2 : 1,
                       .y_step = column ? g->c_row : 1,
                       .y_next = column ? 1 : g->c_row,
                       .alpha = (GEMM_T)g->alpha,
                       .add = k0 > 0};
        const int64_t apart = (f.k + GEMM_W - 1) / GEMM_W * GEMM_W; /* so that lines are aligned */
        for (int64_t c = 0; x_step != 1 && c < c_end - c_first; c++) {
            for (int64_t p = 0; p < f.k; p++) {
                work[WAIT + c * apart + p] = f.x[c * x_next + p * x_step];
            }
        }
        if (x_step != 1) {
            f.x = work + WAIT;
            f.k_most = apart;
        }
        const GEMM_T *near_x = f.x;
        int64_t step = i1 - i0; /* lines stay in a near cache from one group of c to the next */
        if (lines && c_end - c_first > FEW_AT_ONCE) {
            step = NEAR / (f.k * (int64_t)sizeof(GEMM_T)) / SQUARE * SQUARE + SQUARE;
        }
        for (int64_t i = i0; i < i1; i += step) {
            const GEMM_T *from = m + i * line + k0 * along;
            const int64_t outs = kv_min_i64(step, i1 - i);
            for (int64_t c = c_first, n; c < c_end; c += n) {
                n = c_end - c <= FEW_AT_ONCE ? c_end - c : (c_end - c) / 2; /* 8: 4 and 4 */
                f.x = near_x + (c - c_first) * f.k_most;
                f.y = ((GEMM_T *)(void *)g->c) + i * f.y_step + c * f.y_next;
                if (lines && few == 1 && short_column(&f, from, line, outs)) {
                    continue;
                }
                if (lines) {
                    lines_sum(n, &f, from, line, outs);
                } else {
                    columns_few(narrow, n, &f, from, along, outs, work);
                }
            }
        }
    }
}

/* Does `thin` pay? Tiles would waste most of their lanes; they are better at short sums, and where
 * the rows of few columns do not stand side by side. */
static bool is_thin(const ru_kern_gemm64 *g, bool column)
{
    const int64_t most = g->k < GEMM_W ? 1 : kv_min_i64(FEW_MOST, GEMM_W);
    const int64_t few = column ? g->n : g->m;
    const int64_t line = column ? g->a_row : g->b_col, along = column ? g->a_col : g->b_row;
    return (few <= most && along == 1) || (few == 1 && line == 1);
}

#if GEMM_JOIN(GEMM_64_, GEMM_OF)
int64_t RUI_K(rui_kern_gemm64_work)(void)
{
    return ANY_WORK;
}
#endif

void RUI_K(GEMM_JOIN(GEMM_FN_, GEMM_OF))(const ru_kern_gemm64 *g, int64_t m0, int64_t m1,
                                         int64_t n0, int64_t n1, double *work)
{
    GEMM_T *b = (void *)work, *a = b + ANY_KC * ANY_NC;
    bool in_place = m1 - m0 <= GEMM_MR && g->b_col == 1;
    bool a_stays = n1 - n0 <= GEMM_NR && (g->a_row == 1 || g->a_col == 1);
    for (int64_t i = m0; i < m1 && g->k == 0; i++) {
        memset(((GEMM_T *)(void *)g->c) + i * g->c_row + n0, 0, sizeof(GEMM_T) * (size_t)(n1 - n0));
    }
    if (g->k > 0 && is_flat(g)) {
        m0 = n0 == 0 && n1 == g->n ? flat(g, m0, m1, b) : m0;
        in_place = m1 - m0 <= GEMM_MR && g->b_col == 1;
    } else if (g->k > 0 && m0 < m1 && n0 < n1 && (is_thin(g, true) || is_thin(g, false))) {
        if (is_thin(g, true) && !(g->m == 1 && g->n > 1 && is_thin(g, false))) {
            thin(g, true, m0, m1, n0, n1, b);
        } else {
            thin(g, false, n0, n1, m0, m1, b);
        }
        return;
    }
    for (int64_t k0 = 0; k0 < g->k; k0 += ANY_KC) {
        int64_t kc = kv_min_i64(ANY_KC, g->k - k0);
        bool short_k = kc <= ANY_FEW;
        int64_t nc = short_k ? ANY_KC / ANY_FEW * ANY_NC : ANY_NC, mc = short_k ? GEMM_MR : ANY_MC;
        for (int64_t j0 = n0; j0 < n1; j0 += nc) {
            int64_t j1 = kv_min_i64(j0 + nc, n1);
            if (!in_place) {
                pack_b(g, k0, kc, j0, j1, b);
            }
            for (int64_t i0 = m0; i0 < m1; i0 += mc) {
                int64_t i1 = kv_min_i64(i0 + mc, m1);
                if (!a_stays) {
                    pack_a(g, k0, kc, i0, i1, a);
                }
                block(g, k0, kc, i0, i1, j0, j1, a_stays ? NULL : a, in_place ? NULL : b, b);
            }
        }
    }
}
