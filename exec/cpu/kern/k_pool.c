/* Rows of results of a pool. The rows of the image are joined into one line first, element by
 * element, with padding that changes nothing on both sides; then the taps along that line, tap by
 * tap over neighbours, so that results share vectors. Several rows of results at once: a line that
 * was just stored is not yet read. */
#include <float.h>

#include "exec/cpu/kern/isa.h"

/* Rows of at most NARROW results or elements go as if they were so long: what is beside them is
 * made, too, and then overwritten. SLACK: elements that such a row reads behind its line. */
enum { JOIN_ROWS = 4, NARROW = 16, SLACK = 64 };

/* to = the join of `count` rows, and of what is there with `more`; all rows of `from`. */
#define POOL_JOIN(name, type, f)                                                                \
    RU_KERN_INLINE void name##_join(const type *const *x, const int64_t count, const bool more, \
                                    type *to, int64_t n)                                        \
    {                                                                                           \
        const type *x0 = x[0], *x1 = x[count > 1 ? 1 : 0], *x2 = x[count > 2 ? 2 : 0],          \
                   *x3 = x[count > 3 ? 3 : 0];                                                  \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                     \
        {                                                                                       \
            type b = more ? to[i] : x0[i];                                                      \
            _Pragma("GCC unroll 4") for (int64_t r = more ? 0 : 1; r < count; r++)              \
            {                                                                                   \
                type v = r == 0 ? x0[i] : r == 1 ? x1[i] : r == 2 ? x2[i] : x3[i];              \
                b = f;                                                                          \
            }                                                                                   \
            to[i] = b;                                                                          \
        }                                                                                       \
    }                                                                                           \
    static void name##_rows(const ru_kern_pool *p, const ru_kern_pool_from *from, type *to,     \
                            int64_t n)                                                          \
    {                                                                                           \
        const type *x[JOIN_ROWS], *plane = from->x;                                             \
        int64_t rows = from->planes * from->rows, row = 0;                                      \
        for (int64_t k = 0, c; k < rows; k += c) {                                              \
            for (c = 0; c < JOIN_ROWS && k + c < rows; c++) {                                   \
                x[c] = plane + row * p->row_step;                                               \
                bool over = ++row == from->rows;                                                \
                row = over ? 0 : row;                                                           \
                plane += over ? p->plane_step : 0;                                              \
            }                                                                                   \
            bool narrow =                                                                       \
                n <= NARROW && p->end != NULL && (const type *)p->end - x[c - 1] >= NARROW;     \
            if (narrow && k > 0) {                                                              \
                POOL_COUNT_4(c, name##_join(x, COUNT, true, to, NARROW));                       \
            } else if (narrow) {                                                                \
                POOL_COUNT_4(c, name##_join(x, COUNT, false, to, NARROW));                      \
            } else if (k > 0) {                                                                 \
                POOL_COUNT_4(c, name##_join(x, COUNT, true, to, n));                            \
            } else {                                                                            \
                POOL_COUNT_4(c, name##_join(x, COUNT, false, to, n));                           \
            }                                                                                   \
        }                                                                                       \
    }

/* y = the join of `count` taps along a line, and of what is there with `more`. */
#define POOL_TAPS(name, type, f)                                                              \
    RU_KERN_INLINE void name##_taps(const type *line, const int64_t stride, int64_t apart,    \
                                    const int64_t count, const bool more, type *y, int64_t n) \
    {                                                                                         \
        _Pragma("omp simd") for (int64_t o = 0; o < n; o++)                                   \
        {                                                                                     \
            type b = more ? y[o] : line[o * stride];                                          \
            _Pragma("GCC unroll 4") for (int64_t c = more ? 0 : 1; c < count; c++)            \
            {                                                                                 \
                type v = line[o * stride + c * apart];                                        \
                b = f;                                                                        \
            }                                                                                 \
            y[o] = b;                                                                         \
        }                                                                                     \
    }                                                                                         \
    RU_KERN_INLINE void name##_along(const ru_kern_pool *p, const type *line,                 \
                                     const int64_t stride, type *y, int64_t n)                \
    {                                                                                         \
        int64_t apart = p->dilation;                                                          \
        POOL_COUNT(p->taps, name##_taps(line, stride, apart, COUNT, false, y, n));            \
        for (int64_t c = 3; c < p->taps; c += 3) {                                            \
            const type *from = line + c * apart;                                              \
            POOL_COUNT(p->taps - c, name##_taps(from, stride, apart, COUNT, true, y, n));     \
        }                                                                                     \
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

/* The same to 4. */
#define POOL_COUNT_4(n, call)      \
    do {                           \
        if ((n) == 4) {            \
            enum { COUNT = 4 };    \
            call;                  \
        } else {                   \
            POOL_COUNT((n), call); \
        }                          \
    } while (0)

/* Strides that the compiler knows make plain shuffles of strided reads. */
#define POOL_KIND(name, type, outside, f)                                                          \
    POOL_JOIN(name, type, f)                                                                       \
    POOL_TAPS(name, type, f)                                                                       \
    static void name##_line(const ru_kern_pool *p, const ru_kern_pool_from *from, type *line)      \
    {                                                                                              \
        int64_t width = from->planes * from->rows > 0 ? p->width : 0;                              \
        for (int64_t i = 0; i < p->before; i++) {                                                  \
            line[i] = outside;                                                                     \
        }                                                                                          \
        if (width > 0) {                                                                           \
            name##_rows(p, from, line + p->before, width);                                         \
        }                                                                                          \
        for (int64_t i = p->before + width; i < p->line; i++) {                                    \
            line[i] = outside;                                                                     \
        }                                                                                          \
    }                                                                                              \
    /* `room`: results that may be written from y on */                                            \
    static void name##_narrow(const ru_kern_pool *p, const type *line, type *y, int64_t n,         \
                              int64_t room)                                                        \
    {                                                                                              \
        type some[NARROW], *to = room < NARROW ? some : y;                                         \
        if (p->stride == 1) {                                                                      \
            name##_along(p, line, 1, to, NARROW);                                                  \
        } else {                                                                                   \
            name##_along(p, line, 2, to, NARROW);                                                  \
        }                                                                                          \
        if (to != y) {                                                                             \
            memcpy(y, some, sizeof *y *(size_t)n);                                                 \
        }                                                                                          \
    }                                                                                              \
    static void name##_lines(const ru_kern_pool *p, const ru_kern_pool_from *from, int64_t n_from, \
                             type *lines, type *y, int64_t n)                                      \
    {                                                                                              \
        for (int64_t r = 0; r < n_from; r++) {                                                     \
            name##_line(p, &from[r], lines + r * p->line);                                         \
        }                                                                                          \
        bool one = p->line == n * p->stride && p->y_step == n; /* lines in one */                  \
        bool narrow = !one && n <= NARROW && p->y_step == n && p->stride <= 2 &&                   \
                      p->taps * p->dilation <= NARROW;                                             \
        for (int64_t i = 0; narrow && i < SLACK; i++) {                                            \
            lines[n_from * p->line + i] = outside;                                                 \
        }                                                                                          \
        n *= one ? n_from : 1;                                                                     \
        for (int64_t r = 0; r < (one ? 1 : n_from); r++) {                                         \
            const type *line = lines + r * p->line;                                                \
            type *to = y + r * p->y_step;                                                          \
            if (narrow) {                                                                          \
                name##_narrow(p, line, to, n, (n_from - r - 1) * p->y_step + n);                   \
            } else if (p->stride == 1) {                                                           \
                name##_along(p, line, 1, to, n);                                                   \
            } else if (p->stride == 2) {                                                           \
                name##_along(p, line, 2, to, n);                                                   \
            } else {                                                                               \
                name##_along(p, line, p->stride, to, n);                                           \
            }                                                                                      \
        }                                                                                          \
    }

/* kv_max by bits: of two taps GCC 12 chooses an address, by a branch. */
RU_KERN_INLINE float larger(float a, float b)
{
    uint32_t first = ((a > b) | (a != a)) ? UINT32_MAX : 0;
    return kv_float((kv_bits(a) & first) | (kv_bits(b) & ~first));
}

/* The larger; f32: NaN wins. */
POOL_KIND(max_f32, float, -INFINITY, count == 2 ? larger(v, b) : kv_max(v, b))
POOL_KIND(max_u8, uint8_t, 0, v > b ? v : b)
POOL_KIND(max_i8, int8_t, INT8_MIN, v > b ? v : b)
POOL_KIND(sum_f32, float, 0.0f, b + v)

/* -- LpPool: powers of large and small numbers are beyond f32, not beyond double ----------------
 */

enum { ROOTS = 256 };

POOL_TAPS(sum_f64, double, b + v)

RU_KERN_INLINE void powers(const float *x, const int64_t power, double *to, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        double v = fabs((double)x[i]), v2 = v * v;
        to[i] += power == 1 ? v : power == 2 ? v2 : power == 3 ? v2 * v : v2 * v2;
    }
}

static void power_row(int64_t power, const float *x, double *to, int64_t n)
{
    if (power == 1) {
        powers(x, 1, to, n);
    } else if (power == 2) {
        powers(x, 2, to, n);
    } else if (power == 3) {
        powers(x, 3, to, n);
    } else {
        powers(x, 4, to, n);
    }
}

/* The cube root to the last digit of a float: a third of the exponent, then Halley's steps. */
RU_KERN_INLINE double root3(double x)
{
    union {
        double f;
        uint64_t u;
    } y = {.f = x};
    y.u = y.u / 3 + 0x2a9f7893782da1ceull;
    for (int k = 0; k < 3; k++) {
        double c = y.f * y.f * y.f;
        y.f *= (c + 2.0 * x) / (2.0 * c + x);
    }
    return x > 0.0 && x <= DBL_MAX ? y.f : x;
}

static void roots(int64_t power, const double *x, float *y, int64_t n)
{
    if (power == 3) {
        for (int64_t i = 0; i < n; i++) {
            y[i] = (float)root3(x[i]);
        }
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        double r = power == 1 ? x[i] : sqrt(x[i]);
        y[i] = (float)(power == 4 ? sqrt(r) : r);
    }
}

/* A row of results. */
static void power_line(const ru_kern_pool *p, const ru_kern_pool_from *from, double *line, float *y,
                       int64_t n)
{
    int64_t rows = p->width > 0 ? from->planes * from->rows : 0;
    memset(line, 0, (size_t)(p->before + p->width + p->after) * sizeof *line);
    for (int64_t k = 0; k < rows; k++) {
        int64_t at = k / from->rows * p->plane_step + k % from->rows * p->row_step;
        power_row(p->power, (const float *)from->x + at, line + p->before, p->width);
    }
    for (int64_t o = 0; o < n; o += ROOTS) {
        double sum[ROOTS];
        int64_t m = kv_min_i64(ROOTS, n - o);
        if (p->stride == 2) {
            sum_f64_along(p, line + o * 2, 2, sum, m);
        } else {
            sum_f64_along(p, line + o * p->stride, p->stride, sum, m);
        }
        roots(p->power, sum, y + o, m);
    }
}

/* Sums become means; of no taps 0. */
static void means(const float *count, float area, float *y, int64_t n)
{
#pragma omp simd
    for (int64_t o = 0; o < n; o++) {
        float c = area * count[o];
        y[o] = c > 0.0f ? y[o] / c : 0.0f;
    }
}

void RUI_K(rui_kern_pool_rows)(const ru_kern_pool *p, const ru_kern_pool_from *from, int64_t n_from,
                               void *lines, void *y, int64_t n)
{
    if (p->power > 0) {
        for (int64_t r = 0; r < n_from; r++) {
            power_line(p, &from[r], (double *)lines + r * p->line, (float *)y + r * p->y_step, n);
        }
    } else if (!p->max) {
        sum_f32_lines(p, from, n_from, lines, y, n);
    } else if (p->t == RU_F32) {
        max_f32_lines(p, from, n_from, lines, y, n);
    } else if (p->t == RU_U8) {
        max_u8_lines(p, from, n_from, lines, y, n);
    } else {
        max_i8_lines(p, from, n_from, lines, y, n);
    }
    for (int64_t r = 0; p->count != NULL && r < n_from; r++) {
        means(p->count, from[r].area, (float *)y + r * p->y_step, n);
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
