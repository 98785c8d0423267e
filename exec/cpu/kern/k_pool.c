/* Rows of results of a pool. The rows of the image are joined into one line first, element by
 * element, with padding that changes nothing on both sides; then the taps along that line, tap by
 * tap over neighbours, so that results share vectors. Several rows of results at once: a line that
 * was just stored is not yet read. */
#include <float.h>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "exec/cpu/kern/isa.h"
#include "exec/cpu/kern/lanes.h"
#include "exec/cpu/kern/side.h"

/* Everything here is inlined: no call hands such a vector over. */
#pragma GCC diagnostic ignored "-Wpsabi"

/* Rows go as if they were a multiple of NARROW results or elements long: what is beside them is
 * made, too, and then overwritten. SLACK: elements that such a row reads behind its line. */
enum { JOIN_ROWS = 4, NARROW = 16, SLACK = 64 };

/* Rows and steps of two of floats in vectors of 16. Compilers do the last vector of a step of two
 * element by element, because its load reaches beyond what is asked for, and look for NaN twice. */
#ifdef __AVX512F__
RU_KERN_INLINE kv_16 get_16(const float *x)
{
    return *(const kv_16 *)x;
}

RU_KERN_INLINE kv_16 join_16(const bool max, kv_16 v, kv_16 b)
{
    const __m512 n = (__m512)v; /* where it is larger than b or NaN, else b */
    const __m512 most = _mm512_mask_max_ps(n, _mm512_cmp_ps_mask(n, n, _CMP_ORD_Q), n, (__m512)b);
    return max ? (kv_16)most : (kv_16)(b + v);
}

RU_KERN_INLINE kv_16 even_16(const float *x)
{
    return __builtin_shufflevector(get_16(x), get_16(x + 16), 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20,
                                   22, 24, 26, 28, 30);
}

/* to = the join of `count` rows, and of what is there with `more`. */
RU_KERN_INLINE void rows_16(const bool max, const float *const *x, const int64_t count,
                            const bool more, float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        kv_16 b = more ? get_16(to + i) : get_16(x[0] + i);
#pragma GCC unroll 4
        for (int64_t r = more ? 0 : 1; r < count; r++) {
            b = join_16(max, get_16(x[r] + i), b);
        }
        *(kv_16 *)(to + i) = b;
    }
}

RU_KERN_INLINE kv_16 odd_16(const float *x)
{
    return __builtin_shufflevector(get_16(x), get_16(x + 16), 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21,
                                   23, 25, 27, 29, 31);
}

/* y = the join of taps along a line in steps of two, in their order; two neighbours by one load. */
RU_KERN_INLINE void taps_16(const bool max, const float *line, const int64_t taps,
                            const int64_t apart, float *y, int64_t n)
{
    for (int64_t o = 0; o < n; o += 16) {
        const float *from = line + 2 * o;
        kv_16 b = even_16(from);
        for (int64_t c = 1; c < taps; c++) {
            const bool odd = apart == 1 && c % 2 == 1;
            kv_16 v = odd ? odd_16(from + c - 1) : even_16(from + c * apart);
            b = join_16(max, v, b);
        }
        *(kv_16 *)(y + o) = b;
    }
}

/* False: not done. */
RU_KERN_INLINE bool two_by_vectors(const bool max, const float *line, int64_t taps, int64_t apart,
                                   float *y, int64_t n)
{
    if (n % 16 != 0) {
        return false;
    }
#define TAPS(count)                         \
    if (taps == (count) && apart == 1) {    \
        taps_16(max, line, count, 1, y, n); \
        return true;                        \
    }
    TAPS(2)
    TAPS(3)
    TAPS(5)
#undef TAPS
    taps_16(max, line, taps, apart, y, n);
    return true;
}

enum { VECTORS = 1 };
#else
RU_KERN_INLINE void rows_16(const bool max, const float *const *x, const int64_t count,
                            const bool more, float *to, int64_t n)
{
    (void)max, (void)x, (void)count, (void)more, (void)to, (void)n;
}

RU_KERN_INLINE bool two_by_vectors(const bool max, const float *line, int64_t taps, int64_t apart,
                                   float *y, int64_t n)
{
    (void)max, (void)line, (void)taps, (void)apart, (void)y, (void)n;
    return false;
}

enum { VECTORS = 0 };
#endif

/* to = the join of `count` rows, and of what is there with `more`; all rows of `from`. */
#define POOL_JOIN(name, type, f)                                                                   \
    RU_KERN_INLINE void name##_join(const type *const *x, const int64_t count, const bool more,    \
                                    type *to, int64_t n)                                           \
    {                                                                                              \
        const type *x0 = x[0], *x1 = x[count > 1 ? 1 : 0], *x2 = x[count > 2 ? 2 : 0],             \
                   *x3 = x[count > 3 ? 3 : 0];                                                     \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            type b = more ? to[i] : x0[i];                                                         \
            _Pragma("GCC unroll 4") for (int64_t r = more ? 0 : 1; r < count; r++)                 \
            {                                                                                      \
                type v = r == 0 ? x0[i] : r == 1 ? x1[i] : r == 2 ? x2[i] : x3[i];                 \
                b = f;                                                                             \
            }                                                                                      \
            to[i] = b;                                                                             \
        }                                                                                          \
    }                                                                                              \
    static void name##_rows(const ru_kern_pool *p, const ru_kern_pool_from *from, type *to,        \
                            int64_t n)                                                             \
    {                                                                                              \
        const type *x[JOIN_ROWS], *plane = from->x;                                                \
        int64_t rows = from->planes * from->rows, row = 0;                                         \
        for (int64_t k = 0, c; k < rows; k += c) {                                                 \
            for (c = 0; c < JOIN_ROWS && k + c < rows; c++) {                                      \
                x[c] = plane + row * p->row_step;                                                  \
                bool over = ++row == from->rows;                                                   \
                row = over ? 0 : row;                                                              \
                plane += over ? p->plane_step : 0;                                                 \
            }                                                                                      \
            int64_t wide = (n + NARROW - 1) / NARROW * NARROW;                                     \
            bool fits = p->end != NULL && (const type *)p->end - x[c - 1] >= wide;                 \
            const bool more = k > 0;                                                               \
            if (fits && name##_vectors) {                                                          \
                POOL_COUNT_4(c,                                                                    \
                             rows_16(name##_max, (const void *)x, COUNT, more, (void *)to, wide)); \
            } else if (fits && n <= NARROW && more) {                                              \
                POOL_COUNT_4(c, name##_join(x, COUNT, true, to, NARROW));                          \
            } else if (fits && n <= NARROW) {                                                      \
                POOL_COUNT_4(c, name##_join(x, COUNT, false, to, NARROW));                         \
            } else if (more) {                                                                     \
                POOL_COUNT_4(c, name##_join(x, COUNT, true, to, fits ? wide : n));                 \
            } else {                                                                               \
                POOL_COUNT_4(c, name##_join(x, COUNT, false, to, fits ? wide : n));                \
            }                                                                                      \
        }                                                                                          \
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
    RU_KERN_INLINE void name##_along(int64_t taps, int64_t apart, const type *line,           \
                                     const int64_t stride, type *y, int64_t n)                \
    {                                                                                         \
        POOL_COUNT(taps, name##_taps(line, stride, apart, COUNT, false, y, n));               \
        for (int64_t c = 3; c < taps; c += 3) {                                               \
            const type *from = line + c * apart;                                              \
            POOL_COUNT(taps - c, name##_taps(from, stride, apart, COUNT, true, y, n));        \
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
        for (int64_t i = p->before + width; i < p->line; i += NARROW) {                            \
            for (int64_t j = 0; j < NARROW; j++) { /* what hangs over the line is made after it */ \
                line[i + j] = outside;                                                             \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    /* `room`: results that may be written from y on */                                            \
    static void name##_narrow(const ru_kern_pool *p, const type *line, type *y, int64_t n,         \
                              int64_t room)                                                        \
    {                                                                                              \
        type some[NARROW], *to = room < NARROW ? some : y;                                         \
        if (p->stride == 1) {                                                                      \
            name##_along(p->taps, p->dilation, line, 1, to, NARROW);                               \
        } else if (!name##_two(line, p->taps, p->dilation, to, NARROW)) {                          \
            name##_along(p->taps, p->dilation, line, 2, to, NARROW);                               \
        }                                                                                          \
        if (to != y) {                                                                             \
            memcpy(y, some, sizeof *y *(size_t)n);                                                 \
        }                                                                                          \
    }                                                                                              \
    static void name##_row(const ru_kern_pool *p, const type *line, type *y, int64_t n)            \
    {                                                                                              \
        if (p->stride == 1) {                                                                      \
            name##_along(p->taps, p->dilation, line, 1, y, n);                                     \
        } else if (p->stride == 2 && !name##_two(line, p->taps, p->dilation, y, n)) {              \
            name##_along(p->taps, p->dilation, line, 2, y, n);                                     \
        } else if (p->stride != 2) {                                                               \
            name##_along(p->taps, p->dilation, line, p->stride, y, n);                             \
        }                                                                                          \
    }                                                                                              \
    static void name##_lines(const ru_kern_pool *p, const ru_kern_pool_from *from, int64_t n_from, \
                             type *lines, type *y, int64_t n)                                      \
    {                                                                                              \
        for (int64_t r = 0; r < n_from; r++) {                                                     \
            name##_line(p, &from[r], lines + r * p->line);                                         \
        }                                                                                          \
        bool one = p->line == n * p->stride && p->y_step == n; /* lines in one */                  \
        bool over = !one && p->y_step == n && p->stride <= 2 && p->taps * p->dilation <= NARROW && \
                    (n <= NARROW || p->stride == 1 || name##_vectors);                             \
        for (int64_t i = 0; over && i < SLACK; i++) {                                              \
            lines[n_from * p->line + i] = outside;                                                 \
        }                                                                                          \
        n *= one ? n_from : 1;                                                                     \
        for (int64_t r = 0; r < (one ? 1 : n_from); r++) {                                         \
            const type *line = lines + r * p->line;                                                \
            type *to = y + r * p->y_step;                                                          \
            const int64_t room = (n_from - r - 1) * p->y_step + n;                                 \
            const int64_t wide = (n + NARROW - 1) / NARROW * NARROW, main = wide - NARROW;         \
            if (!over || (n > NARROW && wide <= room)) {                                           \
                name##_row(p, line, to, over ? wide : n);                                          \
                continue;                                                                          \
            }                                                                                      \
            if (main > 0) {                                                                        \
                name##_row(p, line, to, main);                                                     \
            }                                                                                      \
            name##_narrow(p, line + main * p->stride, to + main, n - main, room - main);           \
        }                                                                                          \
    }

/* -- planes side by side -------------------------------------------------------------------------
 *
 * Rows of few elements fill no vector. A vector takes the same element of so many planes instead:
 * the planes are transposed, then joined axis by axis, each result with its own taps, so that
 * padding, strides and dilation cost nothing per element; the results are transposed back. */

/* The memory: the planes, what was joined along axis 0, along axis 1, and the results. */
typedef struct side_work {
    int64_t i0, i1; /* elements of axis 0 that are read */
    char *x, *plane, *line, *y;
    int64_t bytes;
} side_work;

static side_work side_work_of(const ru_kern_side *p, int64_t a0, int64_t a1, char *work)
{
    int64_t i0 = p->in[0], i1 = 0;
    for (int64_t a = a0; a < a1; a++) {
        const ru_kern_side_taps *t = &p->taps[0][a];
        i0 = t->n > 0 && t->from < i0 ? t->from : i0;
        int64_t end = t->from + (t->n - 1) * p->dilation[0] + 1;
        i1 = t->n > 0 && end > i1 ? end : i1;
    }
    side_work w = {.i0 = i0 < i1 ? i0 : 0, .i1 = i0 < i1 ? i1 : 0, .x = work};
    int64_t inner = p->in[1] * p->in[2];
    int64_t x = (w.i1 - w.i0) * inner, plane = x + inner, line = plane + p->in[2];
    w.bytes =
        RU_KERN_SIDE_BYTES * (line + 2 * (a1 - a0) * p->out[1] * p->out[2]); /* 2: and places */
    w.plane = work + RU_KERN_SIDE_BYTES * x;
    w.line = work + RU_KERN_SIDE_BYTES * plane;
    w.y = work + RU_KERN_SIDE_BYTES * line;
    return w;
}

static int64_t side_bytes(const ru_kern_side *p, int64_t a0, int64_t a1)
{
    char none;
    return side_work_of(p, a0, a1, &none).bytes;
}

#define POOL_SIDE(name, type, outside)                                                             \
    /* What `t` joins of stretches of n elements, `apart` from each other: there, or in `to` */    \
    static const type *name##_stretches(const ru_kern_side_taps *t, const type *x, int64_t apart,  \
                                        type *to, int64_t n)                                       \
    {                                                                                              \
        for (int64_t k = 0, c; t->n > 1 && k < t->n; k += c) {                                     \
            const type *f[JOIN_ROWS];                                                              \
            for (c = 0; c < JOIN_ROWS && k + c < t->n; c++) {                                      \
                f[c] = x + (k + c) * apart;                                                        \
            }                                                                                      \
            if (k > 0) {                                                                           \
                POOL_COUNT_4(c, name##_join(f, COUNT, true, to, n));                               \
            } else {                                                                               \
                POOL_COUNT_4(c, name##_join(f, COUNT, false, to, n));                              \
            }                                                                                      \
        }                                                                                          \
        return t->n > 1 ? to : x;                                                                  \
    }                                                                                              \
    static void name##_side_row(const ru_kern_side *p, const type *line, bool none, type *y)       \
    {                                                                                              \
        enum { LANES = RU_KERN_SIDE_BYTES / sizeof(type) };                                        \
        const ru_kern_side_taps *t = p->taps[2];                                                   \
        int64_t apart = p->dilation[2] * LANES;                                                    \
        for (int64_t o = 0, run; o < p->out[2]; o += run) {                                        \
            const type *from = line + t[o].from * LANES;                                           \
            type *to = y + o * LANES;                                                              \
            run = 1;                                                                               \
            if (none || t[o].n == 0) {                                                             \
                for (int64_t i = 0; i < LANES; i++) {                                              \
                    to[i] = outside;                                                               \
                }                                                                                  \
                continue;                                                                          \
            }                                                                                      \
            while (o + run < p->out[2] && t[o + run].n == t[o].n &&                                \
                   t[o + run].from == t[o].from + run) {                                           \
                run++;                                                                             \
            }                                                                                      \
            if (run == 1) {                                                                        \
                name##_along(t[o].n, apart, from, 1, to, LANES);                                   \
            } else {                                                                               \
                name##_along(t[o].n, apart, from, 1, to, run *LANES);                              \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void name##_side(const ru_kern_side *p, const side_work *w, int64_t a0, int64_t a1)     \
    {                                                                                              \
        enum { LANES = RU_KERN_SIDE_BYTES / sizeof(type) };                                        \
        int64_t row = p->in[2] * LANES, slice = p->in[1] * row;                                    \
        type *y = (type *)(void *)w->y;                                                            \
        for (int64_t a = a0; a < a1; a++) {                                                        \
            const ru_kern_side_taps *ta = &p->taps[0][a];                                          \
            const type *x = (const type *)(const void *)w->x, *plane = x;                          \
            if (ta->n > 0) {                                                                       \
                plane = name##_stretches(ta, x + (ta->from - w->i0) * slice,                       \
                                         p->dilation[0] * slice, (type *)(void *)w->plane, slice); \
            }                                                                                      \
            for (int64_t b = 0; b < p->out[1]; b++, y += p->out[2] * LANES) {                      \
                const ru_kern_side_taps *tb = &p->taps[1][b];                                      \
                bool none = ta->n * tb->n == 0;                                                    \
                const type *line = x;                                                              \
                if (!none) {                                                                       \
                    line = name##_stretches(tb, plane + tb->from * row, p->dilation[1] * row,      \
                                            (type *)(void *)w->line, row);                         \
                }                                                                                  \
                name##_side_row(p, line, none, y);                                                 \
            }                                                                                      \
        }                                                                                          \
    }

#define POOL_VECTORS(name, type, max, has)                                                 \
    enum { name##_max = max, name##_vectors = (has)*VECTORS };                             \
    RU_KERN_INLINE bool name##_two(const type *line, int64_t taps, int64_t apart, type *y, \
                                   int64_t n)                                              \
    {                                                                                      \
        return name##_vectors &&                                                           \
               two_by_vectors(max, (const void *)line, taps, apart, (void *)y, n);         \
    }
POOL_VECTORS(max_f32, float, true, true)
POOL_VECTORS(sum_f32, float, false, true)
POOL_VECTORS(max_u8, uint8_t, true, false)
POOL_VECTORS(max_i8, int8_t, true, false)

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
POOL_SIDE(max_f32, float, -INFINITY)
POOL_SIDE(max_u8, uint8_t, 0)
POOL_SIDE(max_i8, int8_t, INT8_MIN)
POOL_SIDE(sum_f32, float, 0.0f)

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
            sum_f64_along(p->taps, p->dilation, line + o * 2, 2, sum, m);
        } else {
            sum_f64_along(p->taps, p->dilation, line + o * p->stride, p->stride, sum, m);
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

/* -- planes side by side: means, places, and all kinds -------------------------------------------
 */

enum { SIDE_FLOATS = RU_KERN_SIDE_BYTES / sizeof(float) };

static void side_means(const ru_kern_side *p, int64_t a0, int64_t a1, float *y)
{
    int64_t rows = (a1 - a0) * p->out[1];
    for (int64_t r = 0; r < rows; r++) {
        int64_t area = p->taps[0][a0 + r / p->out[1]].all * p->taps[1][r % p->out[1]].all;
        for (int64_t o = 0; o < p->out[2]; o++, y += SIDE_FLOATS) {
            int64_t count = area * p->taps[2][o].all;
            float c = count > 0 ? (float)count : 1.0f; /* of no taps 0 */
#pragma omp simd
            for (int64_t i = 0; i < SIDE_FLOATS; i++) {
                y[i] /= c;
            }
        }
    }
}

/* The largest of one result's taps in each plane and where it is: the first of equal ones. */
static void side_place(const ru_kern_side *p, const float *x, const ru_kern_side_taps *const *t,
                       int64_t i0, float *y, int32_t *at)
{
    for (int64_t i = 0; i < SIDE_FLOATS; i++) {
        y[i] = -INFINITY;
        at[i] = -1;
    }
    int64_t cells = t[0]->n * t[1]->n * t[2]->n;
    for (int64_t k = 0; k < cells; k++) {
        int64_t a = t[0]->from + k / (t[1]->n * t[2]->n) * p->dilation[0];
        int64_t b = t[1]->from + k / t[2]->n % t[1]->n * p->dilation[1];
        int64_t c = t[2]->from + k % t[2]->n * p->dilation[2];
        int64_t by_row = (a * p->in[1] + b) * p->in[2] + c;
        int64_t by_column = (c * p->in[1] + b) * p->in[0] + a;
        int32_t place = (int32_t)(p->by_columns ? by_column : by_row);
        const float *from = x + (by_row - i0 * p->in[1] * p->in[2]) * SIDE_FLOATS;
#pragma omp simd
        for (int64_t i = 0; i < SIDE_FLOATS; i++) {
            float v = from[i], best = y[i];
            bool more = (v > best) | ((v != v) & (best == best)) | (at[i] < 0);
            y[i] = more ? v : best;
            at[i] = more ? place : at[i];
        }
    }
}

static void side_places(const ru_kern_side *p, const side_work *w, int64_t a0, int64_t a1,
                        int32_t *at)
{
    float *y = (float *)(void *)w->y;
    for (int64_t a = a0; a < a1; a++) {
        for (int64_t b = 0; b < p->out[1]; b++) {
            for (int64_t o = 0; o < p->out[2]; o++, y += SIDE_FLOATS, at += SIDE_FLOATS) {
                const ru_kern_side_taps *t[3] = {&p->taps[0][a], &p->taps[1][b], &p->taps[2][o]};
                side_place(p, (const float *)(const void *)w->x, t, w->i0, y, at);
            }
        }
    }
}

static void side_pool(const ru_kern_side *p, const void *x, int64_t planes, int64_t a0, int64_t a1,
                      void *work, void *y, int64_t *place, int64_t first)
{
    side_work w = side_work_of(p, a0, a1, work);
    int64_t bytes = ru_dtype_bytes(p->t), lanes = RU_KERN_SIDE_BYTES / bytes,
            inner = p->in[1] * p->in[2];
    int64_t big = p->in[0] * inner, made = p->out[1] * p->out[2], out = p->out[0] * made;
    int64_t n = (a1 - a0) * made;
    int32_t *at = (int32_t *)(void *)(w.y + n * RU_KERN_SIDE_BYTES);
    if (planes < lanes) { /* lanes of no plane hold numbers, too */
        memset(w.x, 0, (size_t)((w.i1 - w.i0) * inner * RU_KERN_SIDE_BYTES));
    }
    RUI_K(rui_kern_transpose)
    (bytes, (const char *)x + w.i0 * inner * bytes, big, w.x, lanes, planes, (w.i1 - w.i0) * inner);
    if (place != NULL) {
        side_places(p, &w, a0, a1, at);
    } else if (!p->max) {
        sum_f32_side(p, &w, a0, a1);
        side_means(p, a0, a1, (float *)(void *)w.y);
    } else if (p->t == RU_F32) {
        max_f32_side(p, &w, a0, a1);
    } else if (p->t == RU_U8) {
        max_u8_side(p, &w, a0, a1);
    } else {
        max_i8_side(p, &w, a0, a1);
    }
    RUI_K(rui_kern_transpose)(bytes, w.y, lanes, (char *)y + a0 * made * bytes, out, n, planes);
    for (int64_t c = 0; place != NULL && c < planes; c++) {
        for (int64_t o = 0; o < n; o++) {
            place[c * out + a0 * made + o] = first + c * big + at[o * lanes + c];
        }
    }
}

const ru_kern_sides RUI_K(rui_kern_sides) = {.work = side_bytes, .pool = side_pool};
