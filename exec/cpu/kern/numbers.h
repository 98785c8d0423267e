/* Kernels of other numbers than those of kern.h: maps of f64, quantised numbers of which each has a
 * scale, sums of bytes, places of the largest; columns to images, samples of images; products. Pure
 * functions as there, compiled once per instruction set.
 *
 * Thread: any, no shared state. */
#ifndef RU_EXEC_CPU_KERN_NUMBERS_H
#define RU_EXEC_CPU_KERN_NUMBERS_H

#include "exec/cpu/kern/kern.h"

/* X(name, expression in x) of RU_KERN_MAP1_LIST that have an f64 form */
#define RU_KERN_WIDE1_LIST(X)                                      \
    X(Abs, fabs(x))                                                \
    X(Acos, acos(x))                                               \
    X(Acosh, acosh(x))                                             \
    X(Asin, asin(x))                                               \
    X(Asinh, asinh(x))                                             \
    X(Atan, atan(x))                                               \
    X(Atanh, atanh(x))                                             \
    X(Ceil, ceil(x))                                               \
    X(Cos, cos(x))                                                 \
    X(Cosh, cosh(x))                                               \
    X(Erf, erf(x))                                                 \
    X(Exp, wide_exp(x))                                            \
    X(Floor, floor(x))                                             \
    X(Log, wide_log(x))                                            \
    X(Neg, -x)                                                     \
    X(Reciprocal, 1.0 / x)                                         \
    X(Relu, x < 0.0 ? 0.0 : x)                                     \
    X(Round, rint(x))                                              \
    X(Sigmoid, wide_sigmoid(x))                                    \
    X(Sign, x != x ? x : (x > 0.0 ? 1.0 : (x < 0.0 ? -1.0 : 0.0))) \
    X(Sin, sin(x))                                                 \
    X(Sinh, sinh(x))                                               \
    X(Softplus, wide_softplus(x))                                  \
    X(Softsign, x / (1.0 + fabs(x)))                               \
    X(Sqrt, sqrt(x))                                               \
    X(Tan, tan(x))                                                 \
    X(Tanh, wide_tanh(x))

/* The same of RU_KERN_MAP2_LIST */
#define RU_KERN_WIDE2_LIST(X)            \
    X(Add, x + y)                        \
    X(Sub, x - y)                        \
    X(Mul, x *y)                         \
    X(Div, x / y)                        \
    X(Max, ((x > y) | (x != x)) ? x : y) \
    X(Min, ((x < y) | (x != x)) ? x : y) \
    X(Pow, pow(x, y))                    \
    X(Mod, fmod(x, y))                   \
    X(FloorMod, wide_floor_mod(x, y))    \
    X(PRelu, x < 0.0 ? x * y : x)

/* Columns of windows that become an image: tap t of window i adds to element i * stride +
 * t * dilation of an axis, counted from `before` elements before the image. */
typedef struct ru_kern_fold {
    int64_t image[3], windows[3], taps[3], stride[3], dilation[3], before[3];
} ru_kern_fold;

enum { RU_KERN_SAMPLES = 128 }; /* places of a grid that go together */

typedef enum ru_kern_sample_mode {
    RU_KERN_SAMPLE_NEAREST,
    RU_KERN_SAMPLE_LINEAR,
    RU_KERN_SAMPLE_CUBIC,
} ru_kern_sample_mode;

typedef enum ru_kern_sample_pad {
    RU_KERN_SAMPLE_ZEROS,
    RU_KERN_SAMPLE_BORDER,
    RU_KERN_SAMPLE_REFLECT,
} ru_kern_sample_pad;

/* How an image of `axes` (1 to 3) axes of size[] is sampled. */
typedef struct ru_kern_sampler {
    ru_kern_sample_mode mode;
    ru_kern_sample_pad pad;
    bool align; /* images end in the middle of their last elements */
    int64_t axes, size[3];
} ru_kern_sampler;

enum {
    RU_KERN_ROI_BINS = 16,
    RU_KERN_ROI_LINE = 32 /* floats that a line has room for at least */
};

/* One region of an image [.., width]: a line is the elements `first` .. first + cols of the rows
 * that a row of bins reads, weighed and joined (summed, or the largest of them); bins join what
 * they read of the line. */
typedef struct ru_kern_roi {
    bool most;
    int64_t width, first, cols, pooled[2], taps;
    int64_t bins;            /* pooled[1] in whole vectors of RU_KERN_ROI_BINS */
    const int32_t *n_rows;   /* [pooled[0]] */
    const int32_t *row;      /* [pooled[0]][room]; the last of a bin may be -1: a zero */
    const float *row_weight; /* [pooled[0]][room] */
    int64_t room;
    const int32_t *col;      /* [taps][bins]: in the line; its element `cols` is 0 */
    const float *col_weight; /* [taps][bins] */
} ru_kern_roi;

/* A convolution of channels that each have a window of their own, as ru_kern_window. Results go by
 * bands of `band` rows along axis 1 (each for all of axis 0); room is that of a padded band. */
typedef struct ru_kern_apart {
    int64_t in[3], before[3], room[3], out[3], step[3];
    int64_t kernel[3], band, n_taps;
    const int32_t *taps; /* [n_taps] where they read in a padded band */
} ru_kern_apart;

/* A convolution without padding, whose windows overlap little: tap k of the window of place 0 reads
 * at[k], and a place along axis d begins step[d] floats after the one before. */
typedef struct ru_kern_patch {
    int64_t depth, co, out[3], step[3];
    const int32_t *at; /* [depth] */
} ru_kern_patch;

enum { RU_KERN_FOURIER_LINES = 16 }; /* that go side by side */

/* Transforms of lines of n numbers, a power of two, along the middle of [outer, in, inner] of real
 * (parts 1) or complex ones (2); what x lacks is 0. */
typedef struct ru_kern_fourier {
    ru_dtype t; /* f32, f64 */
    int64_t n, in, out, inner, parts, out_parts;
    int64_t have;         /* numbers of x that are read, at most `in` */
    bool inverse, mirror; /* mirror: x is the first half of a spectrum of real numbers */
    int64_t cols;         /* of the matrix that a line alone is, at most n / 2; 0: side by side */
    const void *root, *turn; /* [2][n] e^(-2 pi i k / n): k = 0 ..; k = row * column (cols > 0) */
} ru_kern_fourier;

/* Counts are elements; steps are 0 or 1. `x` may equal the output where both have one type. */
typedef struct ru_kern_numbers {
    /* y[i] = f(x[i]), z[i] = f(x[i*sx], y[i*sy]) by the functions of the lists above, and 0 or 1 */
    void (*map1)(ru_kern_map1 op, const double *x, double *y, int64_t n);
    void (*map2)(ru_kern_map2 op, const double *x, int64_t sx, const double *y, int64_t sy,
                 double *z, int64_t n);
    void (*cmp)(ru_kern_cmp op, const double *x, int64_t sx, const double *y, int64_t sy,
                uint8_t *z, int64_t n);
    /* y[i] = cut(round(x[i] / scale[i]) + zero[i]) to 8 or 16 bits, and back from these or i32 */
    void (*quantize)(const float *x, const float *scale, const float *zero, ru_dtype t, void *y,
                     int64_t n);
    void (*dequantize)(ru_dtype t, const void *x, const float *scale, const float *zero, float *y,
                       int64_t n);
    /* y[i] = x[i] cut to a whole number, of which `bytes` (1, 2, 4 or 8) are kept. Beyond 64 bits
     * it is the nearest, of NaN the least */
    void (*cut)(const double *x, int64_t bytes, void *y, int64_t n);
    /* Sums of the rows (of u8, or i8: `sign`), or the columns (of i8), of x[rows, n] */
    void (*sum_rows)(bool sign, const void *x, int64_t rows, int64_t n, int32_t *y);
    void (*sum_columns)(const int8_t *x, int64_t rows, int64_t n, int32_t *y);
    /* As arg of kern.h, of f64, whole numbers and truth values */
    void (*arg)(const ru_kern_scan *s, ru_dtype t, const void *x, int64_t *y, int64_t o0,
                int64_t o1);
    /* As add_int8 of kern.h, of the product (x - a) * (z - b) * c */
    void (*mul_int8)(const ru_kern_add8 *s, const void *x, const void *z, void *y, int64_t n);
    /* As add_int8 of kern.h with one z for all */
    void (*add_one_int8)(const ru_kern_add8 *s, const void *x, const void *z, void *y, int64_t n);
    /* y[i] = table[x[i]] */
    void (*look_up)(const uint8_t *table, const uint8_t *x, uint8_t *y, int64_t n);
    /* limit[0] and limit[1] become the least and the most of themselves and x; NaN is passed over
     */
    void (*limits)(const float *x, int64_t n, float *limit);
    /* y[i, j] -= rows[i] * by[j] + cols[j] of n_rows rows of n; NULL: rows 0, by 1, cols 0 */
    void (*less_terms)(const uint32_t *rows, const uint32_t *by, const uint32_t *cols, uint32_t *y,
                       int64_t n_rows, int64_t n);
    /* One image from x [taps, windows]; work: col2im_work floats */
    int64_t (*col2im_work)(const ru_kern_fold *f);
    void (*col2im)(const ru_kern_fold *f, const float *x, float *work, float *y);
    /* What n <= RU_KERN_SAMPLES places read, place[axis][..] in elements, into `taps` of
     * sample_work bytes; then y[n] of an image by them. Where a place is no number, y is NaN */
    int64_t (*sample_work)(const ru_kern_sampler *s);
    void (*sample_taps)(const ru_kern_sampler *s, const float *const *place, int64_t n, void *taps);
    void (*sample)(const ru_kern_sampler *s, const void *taps, const float *x, float *y, int64_t n);
    /* Regions of an image's channel: y [pooled]; line: cols + 1 floats */
    void (*roi)(const ru_kern_roi *r, const float *x, float *line, float *y);
    /* Determinants of x [count, n, n]; work: n * n */
    void (*det)(const float *x, int64_t n, int64_t count, double *work, float *y);
    /* gemm64 of kern.h for elements of other types, to which the pointers point; work:
     * gemm64_work() of them. Whole numbers wrap, and their alpha is 1 */
    void (*gemm_f32)(const ru_kern_gemm64 *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                     double *work);
    void (*gemm_u32)(const ru_kern_gemm64 *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                     double *work);
    void (*gemm_u64)(const ru_kern_gemm64 *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                     double *work);
    /* Rows b0 .. b1 (one band) of y of at most apart_lanes channels, whose weights are w [channels,
     * n_taps]; bias may be NULL; work: apart_work floats */
    int64_t (*apart_lanes)(void);
    int64_t (*apart_work)(const ru_kern_apart *g);
    void (*apart)(const ru_kern_apart *g, const float *x, int64_t channels, const float *w,
                  const float *bias, int64_t b0, int64_t b1, float *y, float *work);
    /* The same of one channel over two axes, steps of one, dense: near_rows says how many rows it
     * takes at least, 0: not such a window */
    int64_t (*near_rows)(const ru_kern_apart *g);
    void (*near)(const ru_kern_apart *g, const float *x, const float *w, float bias, int64_t b0,
                 int64_t b1, float *y);
    /* w [co, depth] to patch_floats; then rows r0 .. r1 (out[0] * out[1]) of y of all channels.
     * bias may be NULL; work: patch_work floats */
    int64_t (*patch_floats)(const ru_kern_patch *g);
    void (*patch_pack)(const ru_kern_patch *g, const float *w, float *packed);
    int64_t (*patch_work)(const ru_kern_patch *g);
    void (*patch)(const ru_kern_patch *g, const float *x, const float *packed, const float *bias,
                  int64_t r0, int64_t r1, float *y, float *work);
    /* Lines l0 .. l1 (outer * inner); work: fourier_work bytes */
    int64_t (*fourier_work)(const ru_kern_fourier *f);
    void (*fourier)(const ru_kern_fourier *f, const void *x, void *y, int64_t l0, int64_t l1,
                    void *work);
} ru_kern_numbers;

#ifdef RU_KERN_ISA /* of k_fourier, k_gemm_any, k_sample, k_window */
int64_t RUI_K(rui_kern_apart_lanes)(void);
int64_t RUI_K(rui_kern_apart_work)(const ru_kern_apart *g);
void RUI_K(rui_kern_apart)(const ru_kern_apart *g, const float *x, int64_t channels, const float *w,
                           const float *bias, int64_t b0, int64_t b1, float *y, float *work);
int64_t RUI_K(rui_kern_near_rows)(const ru_kern_apart *g);
void RUI_K(rui_kern_near)(const ru_kern_apart *g, const float *x, const float *w, float bias,
                          int64_t b0, int64_t b1, float *y);
int64_t RUI_K(rui_kern_patch_floats)(const ru_kern_patch *g);
void RUI_K(rui_kern_patch_pack)(const ru_kern_patch *g, const float *w, float *packed);
int64_t RUI_K(rui_kern_patch_work)(const ru_kern_patch *g);
void RUI_K(rui_kern_patch)(const ru_kern_patch *g, const float *x, const float *packed,
                           const float *bias, int64_t r0, int64_t r1, float *y, float *work);
int64_t RUI_K(rui_kern_fourier_work)(const ru_kern_fourier *f);
void RUI_K(rui_kern_fourier)(const ru_kern_fourier *f, const void *x, void *y, int64_t l0,
                             int64_t l1, void *work);
int64_t RUI_K(rui_kern_col2im_work)(const ru_kern_fold *f);
void RUI_K(rui_kern_col2im)(const ru_kern_fold *f, const float *x, float *work, float *y);
int64_t RUI_K(rui_kern_sample_work)(const ru_kern_sampler *s);
void RUI_K(rui_kern_sample_taps)(const ru_kern_sampler *s, const float *const *place, int64_t n,
                                 void *taps);
void RUI_K(rui_kern_sample)(const ru_kern_sampler *s, const void *taps, const float *x, float *y,
                            int64_t n);
void RUI_K(rui_kern_roi)(const ru_kern_roi *r, const float *x, float *line, float *y);
void RUI_K(rui_kern_det)(const float *x, int64_t n, int64_t count, double *work, float *y);
void RUI_K(rui_kern_gemm_f32)(const ru_kern_gemm64 *g, int64_t m0, int64_t m1, int64_t n0,
                              int64_t n1, double *work);
void RUI_K(rui_kern_gemm_u32)(const ru_kern_gemm64 *g, int64_t m0, int64_t m1, int64_t n0,
                              int64_t n1, double *work);
void RUI_K(rui_kern_gemm_u64)(const ru_kern_gemm64 *g, int64_t m0, int64_t m1, int64_t n0,
                              int64_t n1, double *work);
#endif

/* Of an instruction set (NULL: this CPU does not have it), and of the best one. */
const ru_kern_numbers *ru_kern_numbers_at(ru_kern_level level);
const ru_kern_numbers *ru_kern_numbers_best(void);

#endif
