/* Fourier transforms of a power of two, in the type of the numbers; real and imaginary parts stand
 * apart. Levels of four in Stockham's order: what a level reads and writes are whole rows, and so
 * vectors are full in the first one, too:
 *
 *   lines side by side   rows of [n][lines]
 *   a line alone         as [n / cols][cols]: transforms along the columns, each result turned by
 *                        root^(row * column), the matrix transposed, and again along the columns
 *
 * The inverse is the transform with both parts exchanged, before and after. */
#include "exec/cpu/kern/isa.h"
#include "exec/cpu/kern/numbers.h"

int64_t RUI_K(rui_kern_fourier_work)(const ru_kern_fourier *f)
{
    return 4 * f->n * (f->cols > 0 ? 1 : RU_KERN_FOURIER_LINES) * ru_dtype_bytes(f->t);
}

#define FOURIER(T, N)                                                                           \
    typedef struct numbers_##N {                                                                \
        T *re, *im;                                                                             \
    } numbers_##N;                                                                              \
    /* m rows of s from each quarter of x; r is root^step, one for each row */                  \
    RU_KERN_INLINE void fours_##N(const ru_kern_fourier *f, int64_t m, int64_t s, int64_t step, \
                                  numbers_##N x, numbers_##N y)                                 \
    {                                                                                           \
        const T *root = f->root, *root_im = root + f->n;                                        \
        const int64_t next = m * s;                                                             \
        for (int64_t p = 0; p < m; p++) {                                                       \
            const T r1 = root[p * step], i1 = root_im[p * step], r2 = root[2 * p * step];       \
            const T i2 = root_im[2 * p * step], r3 = root[3 * p * step];                        \
            const T i3 = root_im[3 * p * step];                                                 \
            const T *restrict a = x.re + p * s, *restrict b = x.im + p * s;                     \
            T *restrict u = y.re + 4 * p * s, *restrict v = y.im + 4 * p * s;                   \
            _Pragma("omp simd") for (int64_t q = 0; q < s; q++)                                 \
            {                                                                                   \
                T er = a[q] + a[q + 2 * next], ei = b[q] + b[q + 2 * next];                     \
                T dr = a[q] - a[q + 2 * next], di = b[q] - b[q + 2 * next];                     \
                T fr = a[q + next] + a[q + 3 * next], fi = b[q + next] + b[q + 3 * next];       \
                T gr = a[q + next] - a[q + 3 * next], gi = b[q + next] - b[q + 3 * next];       \
                T pr = dr + gi, pi = di - gr, qr = dr - gi, qi = di + gr;                       \
                T hr = er - fr, hi = ei - fi;                                                   \
                u[q] = er + fr;                                                                 \
                v[q] = ei + fi;                                                                 \
                u[q + s] = pr * r1 - pi * i1;                                                   \
                v[q + s] = pr * i1 + pi * r1;                                                   \
                u[q + 2 * s] = hr * r2 - hi * i2;                                               \
                v[q + 2 * s] = hr * i2 + hi * r2;                                               \
                u[q + 3 * s] = qr * r3 - qi * i3;                                               \
                v[q + 3 * s] = qr * i3 + qi * r3;                                               \
            }                                                                                   \
        }                                                                                       \
    }                                                                                           \
    RU_KERN_INLINE void twos_##N(int64_t s, numbers_##N x, numbers_##N y)                       \
    {                                                                                           \
        _Pragma("omp simd") for (int64_t q = 0; q < s; q++)                                     \
        {                                                                                       \
            y.re[q] = x.re[q] + x.re[q + s];                                                    \
            y.im[q] = x.im[q] + x.im[q + s];                                                    \
            y.re[q + s] = x.re[q] - x.re[q + s];                                                \
            y.im[q + s] = x.im[q] - x.im[q + s];                                                \
        }                                                                                       \
    }                                                                                           \
    /* Along the columns of x [n, w]; the result is in *x, what was there may be in *y */       \
    static void columns_##N(const ru_kern_fourier *f, int64_t n, int64_t w, numbers_##N *x,     \
                            numbers_##N *y)                                                     \
    {                                                                                           \
        for (int64_t left = n, s = w; left > 1;) {                                              \
            int64_t by = left == 2 ? 2 : 4;                                                     \
            if (by == 2) {                                                                      \
                twos_##N(s, *x, *y);                                                            \
            } else {                                                                            \
                fours_##N(f, left / 4, s, f->n / left, *x, *y);                                 \
            }                                                                                   \
            numbers_##N t = *x;                                                                 \
            *x = *y;                                                                            \
            *y = t;                                                                             \
            left /= by;                                                                         \
            s *= by;                                                                            \
        }                                                                                       \
    }                                                                                           \
    /* to[c][r] = from[r][c] times turn[r][c] */                                                \
    static void turn_##N(const ru_kern_fourier *f, int64_t rows, numbers_##N x, numbers_##N y)  \
    {                                                                                           \
        enum { EDGE = 16 };                                                                     \
        const int64_t cols = f->cols;                                                           \
        const T *root = (const T *)f->turn, *root_im = root + f->n;                             \
        T re[EDGE * EDGE], im[EDGE * EDGE];                                                     \
        for (int64_t r = 0; r < rows; r += EDGE) {                                              \
            for (int64_t c = 0; c < cols; c += EDGE) {                                          \
                int64_t w = kv_min_i64(EDGE, cols - c), h = kv_min_i64(EDGE, rows - r);         \
                for (int64_t i = 0; i < h; i++) {                                               \
                    const int64_t at = (r + i) * cols + c;                                      \
                    _Pragma("omp simd") for (int64_t j = 0; j < w; j++)                         \
                    {                                                                           \
                        T a = x.re[at + j], b = x.im[at + j];                                   \
                        re[i * EDGE + j] = a * root[at + j] - b * root_im[at + j];              \
                        im[i * EDGE + j] = a * root_im[at + j] + b * root[at + j];              \
                    }                                                                           \
                }                                                                               \
                for (int64_t j = 0; j < w; j++) {                                               \
                    for (int64_t i = 0; i < h; i++) {                                           \
                        y.re[(c + j) * rows + r + i] = re[i * EDGE + j];                        \
                        y.im[(c + j) * rows + r + i] = im[i * EDGE + j];                        \
                    }                                                                           \
                }                                                                               \
            }                                                                                   \
        }                                                                                       \
    }                                                                                           \
    /* Number k of the line that begins at x, parts exchanged for the inverse. */               \
    RU_KERN_INLINE void read_##N(const ru_kern_fourier *f, const T *x, int64_t k, T *re, T *im) \
    {                                                                                           \
        const bool turned = f->mirror && k > f->n / 2;                                          \
        const int64_t at = turned ? f->n - k : k;                                               \
        T a = 0, b = 0;                                                                         \
        if (at < f->have) {                                                                     \
            a = x[at * f->inner * f->parts];                                                    \
            b = f->parts == 2 ? x[at * f->inner * f->parts + 1] : 0;                            \
            b = turned ? -b : b;                                                                \
        }                                                                                       \
        *re = f->inverse ? b : a;                                                               \
        *im = f->inverse ? a : b;                                                               \
    }                                                                                           \
    static void lines_##N(const ru_kern_fourier *f, const T *x, T *y, int64_t l0, int64_t l1,   \
                          T *work)                                                              \
    {                                                                                           \
        const int64_t n = f->n, w = l1 - l0, inner = f->inner,                                  \
                      rows = f->cols > 0 ? n / f->cols : n;                                     \
        const T scale = f->inverse ? (T)1 / (T)n : 1;                                           \
        numbers_##N a = {work, work + n * w}, b = {work + 2 * n * w, work + 3 * n * w};         \
        for (int64_t l = 0; l < w; l++) {                                                       \
            int64_t o = (l0 + l) / inner, i = (l0 + l) % inner;                                 \
            const T *from = x + (o * f->in * inner + i) * f->parts;                             \
            for (int64_t k = 0; k < n; k++) {                                                   \
                read_##N(f, from, k, a.re + k * w + l, a.im + k * w + l);                       \
            }                                                                                   \
        }                                                                                       \
        columns_##N(f, rows, f->cols > 0 ? f->cols : w, &a, &b);                                \
        if (f->cols > 0) {                                                                      \
            turn_##N(f, rows, a, b);                                                            \
            columns_##N(f, f->cols, rows, &b, &a);                                              \
            a = b;                                                                              \
        }                                                                                       \
        const T *first = f->inverse ? a.im : a.re, *second = f->inverse ? a.re : a.im;          \
        for (int64_t l = 0; l < w; l++) {                                                       \
            int64_t o = (l0 + l) / inner, i = (l0 + l) % inner;                                 \
            T *to = y + (o * f->out * inner + i) * f->out_parts;                                \
            for (int64_t k = 0; k < f->out; k++, to += inner * f->out_parts) {                  \
                to[0] = first[k * w + l] * scale;                                               \
                if (f->out_parts == 2) {                                                        \
                    to[1] = second[k * w + l] * scale;                                          \
                }                                                                               \
            }                                                                                   \
        }                                                                                       \
    }

FOURIER(float, f32)
FOURIER(double, f64)

void RUI_K(rui_kern_fourier)(const ru_kern_fourier *f, const void *x, void *y, int64_t l0,
                             int64_t l1, void *work)
{
    const int64_t each = f->cols > 0 ? 1 : RU_KERN_FOURIER_LINES;
    for (int64_t l = l0; l < l1; l += each) {
        int64_t end = kv_min_i64(l + each, l1);
        if (f->t == RU_F32) {
            lines_f32(f, x, y, l, end, work);
        } else {
            lines_f64(f, x, y, l, end, work);
        }
    }
}
