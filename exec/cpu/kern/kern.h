/* Our own vector kernels: what no library has, or has slowly.
 *
 * Every function here is pure: pointers and a range in, memory out, no state, no allocation. A
 * caller splits work among threads by giving each thread a range; results do not depend on the
 * split unless the comment says so, because every sum has one written order (KV_LANES partial sums
 * within a row, rows in order within a block of fixed size).
 *
 * The sources are compiled once per instruction set; ru_kern_best() gives the table of the best one
 * this CPU has, to be kept by the device. A tensor is f32 or bf16 in memory (`t`); arithmetic is
 * f32, rounded once on the way out. Parameters, statistics and gradients of parameters are f32.
 *
 * Thread: any, no shared state. */
#ifndef RU_EXEC_CPU_KERN_KERN_H
#define RU_EXEC_CPU_KERN_KERN_H

#include "world/dtype.h"

/* X(name, expression in x, a, b): y = f(x) */
#define RU_KERN_MAP1_LIST(X)                                            \
    X(Abs, fabsf(x))                                                    \
    X(Acos, kv_acos(x))                                                 \
    X(Acosh, acoshf(x))                                                 \
    X(Asin, kv_asin(x))                                                 \
    X(Asinh, asinhf(x))                                                 \
    X(Atan, kv_atan(x))                                                 \
    X(Atanh, atanhf(x))                                                 \
    X(Ceil, ceilf(x))                                                   \
    X(Celu, x > 0.0f ? x : a * (kv_expm1(x / a)))                       \
    X(Cos, kv_turn(x, 1))                                               \
    X(Cosh, coshf(x))                                                   \
    X(Elu, x > 0.0f ? x : a * kv_expm1(x))                              \
    X(Erf, kv_erf(x))                                                   \
    X(Exp, kv_exp(x))                                                   \
    X(Floor, floorf(x))                                                 \
    X(Gelu, kv_gelu(x))                                                 \
    X(GeluTanh, kv_gelu_tanh(x))                                        \
    X(HardSigmoid, kv_clip(a *x + b, 0.0f, 1.0f))                       \
    X(HardSwish, x *kv_clip(x *(1.0f / 6.0f) + 0.5f, 0.0f, 1.0f))       \
    X(Identity, x)                                                      \
    X(LeakyRelu, x < 0.0f ? a * x : x)                                  \
    X(Log, kv_log(x))                                                   \
    X(Mish, kv_mish(x))                                                 \
    X(Neg, -x)                                                          \
    X(Reciprocal, 1.0f / x)                                             \
    X(Relu, x < 0.0f ? 0.0f : x)                                        \
    X(Round, rintf(x))                                                  \
    X(Selu, x > 0.0f ? b * x : b * (a * kv_expm1(x)))                   \
    X(Sigmoid, kv_sigmoid(x))                                           \
    X(Sign, x != x ? x : (x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : 0.0f))) \
    X(Silu, x *kv_sigmoid(x))                                           \
    X(Sin, kv_turn(x, 0))                                               \
    X(Sinh, sinhf(x))                                                   \
    X(Softplus, kv_softplus(x))                                         \
    X(Softsign, x / (1.0f + fabsf(x)))                                  \
    X(Sqrt, sqrtf(x))                                                   \
    X(Tan, tanf(x))                                                     \
    X(Tanh, kv_tanh(x))                                                 \
    X(ThresholdedRelu, x > a ? x : 0.0f)                                \
    X(Shrink, x < -a ? x + b : (x > a ? x - b : 0.0f))                  \
    X(Clip, kv_clip(x, a, b))                                           \
    X(Cube, x *x *x)                                                    \
    X(Square, x *x)                                                     \
    X(Scale, x *a + b)

/* X(name, expression in x, y, a, b): z = f(x, y); in the gradients x is dy and y the saved tensor
 */
#define RU_KERN_MAP2_LIST(X)                                                               \
    X(Add, x + y)                                                                          \
    X(Sub, x - y)                                                                          \
    X(Mul, x *y)                                                                           \
    X(Div, x / y)                                                                          \
    X(Max, kv_max(x, y))                                                                   \
    X(Min, kv_min(x, y))                                                                   \
    X(Pow, powf(x, y))                                                                     \
    X(Mod, fmodf(x, y))                                                                    \
    X(FloorMod, kv_floor_mod(x, y))                                                        \
    X(PRelu, x < 0.0f ? x * y : x)                                                         \
    X(Axpy, x + a * y)                                                                     \
    X(ReluGrad, y > 0.0f ? x : 0.0f)                                                       \
    X(TanhGrad, x *(1.0f - y * y))                                                         \
    X(SigmoidGrad, x *(y * (1.0f - y)))                                                    \
    X(GeluGrad, x *kv_gelu_slope(y))                                                       \
    X(GeluTanhGrad, x *kv_gelu_tanh_slope(y))                                              \
    X(EluGrad, y > 0.0f ? x : x * (a * kv_exp(y)))                                         \
    X(SeluGrad, y > 0.0f ? b * x : x * (b * (a * kv_exp(y))))                              \
    X(CeluGrad, y > 0.0f ? x : x * kv_exp(y / a))                                          \
    X(LeakyReluGrad, y < 0.0f ? a * x : x)                                                 \
    X(SoftplusGrad, x *kv_sigmoid(y))                                                      \
    X(SoftsignGrad, x / ((1.0f + fabsf(y)) * (1.0f + fabsf(y))))                           \
    X(HardSigmoidGrad, ((a * y + b > 0.0f) & (a * y + b < 1.0f)) ? a *x : 0.0f)            \
    X(HardSwishGrad, y <= -3.0f ? 0.0f : (y >= 3.0f ? x : x * (y * (1.0f / 3.0f) + 0.5f))) \
    X(MishGrad, x *kv_mish_slope(y))                                                       \
    X(ErfGrad, x *(1.12837917f * kv_exp(-y * y)))                                          \
    X(ClipGrad, ((y >= a) & (y <= b)) ? x : 0.0f)

/* X(name, expression in x, y) -> 0 or 1 */
#define RU_KERN_CMP_LIST(X)   \
    X(Equal, x == y)          \
    X(Greater, x > y)         \
    X(GreaterOrEqual, x >= y) \
    X(Less, x < y)            \
    X(LessOrEqual, x <= y)

typedef enum ru_kern_map1 {
#define RU_X(name, f) RU_KERN_MAP1_##name,
    RU_KERN_MAP1_LIST(RU_X)
#undef RU_X
        RU_KERN_MAP1_COUNT
} ru_kern_map1;

typedef enum ru_kern_map2 {
#define RU_X(name, f) RU_KERN_MAP2_##name,
    RU_KERN_MAP2_LIST(RU_X)
#undef RU_X
        RU_KERN_MAP2_COUNT
} ru_kern_map2;

typedef enum ru_kern_cmp {
#define RU_X(name, f) RU_KERN_CMP_##name,
    RU_KERN_CMP_LIST(RU_X)
#undef RU_X
        RU_KERN_CMP_COUNT
} ru_kern_cmp;

/* Of whole numbers, which wrap. From MAX on the sign matters. Divisors are not 0. */
typedef enum ru_kern_whole {
    RU_KERN_WHOLE_ADD,
    RU_KERN_WHOLE_SUB,
    RU_KERN_WHOLE_MUL,
    RU_KERN_WHOLE_AND,
    RU_KERN_WHOLE_OR,
    RU_KERN_WHOLE_XOR,
    RU_KERN_WHOLE_LEFT, /* of unsigned numbers; by the width and more nothing is left */
    RU_KERN_WHOLE_RIGHT,
    RU_KERN_WHOLE_EQUAL,
    RU_KERN_WHOLE_MAX,
    RU_KERN_WHOLE_MIN,
    RU_KERN_WHOLE_DIV,
    RU_KERN_WHOLE_MOD, /* with the divisor's sign */
    RU_KERN_WHOLE_FMOD,
    RU_KERN_WHOLE_POW,
    RU_KERN_WHOLE_LESS,
    RU_KERN_WHOLE_LESS_EQUAL,
} ru_kern_whole;

typedef enum ru_kern_red {
    RU_KERN_RED_SUM,
    RU_KERN_RED_SUM_SQUARE,
    RU_KERN_RED_SUM_ABS,
    RU_KERN_RED_MAX,
    RU_KERN_RED_MIN,
    RU_KERN_RED_PROD,
} ru_kern_red;

/* One segment of a multi-tensor optimizer update. Pointers a rule does not use are NULL. */
typedef struct ru_kern_segment {
    const float *p, *g, *m, *v;   /* parameter, gradient, slots */
    float *p_out, *m_out, *v_out; /* may equal the inputs */
    int64_t n;
} ru_kern_segment;

/* One step of Adam for all elements: the scalars that depend on the step are computed once, in
 * double, by ru_kern_adam_step. */
typedef struct ru_kern_adam {
    float beta1, beta2, epsilon;
    float gscale;     /* multiplies the gradient first */
    float decay;      /* added to the gradient as decay * p (not decoupled) */
    float shrink;     /* p is multiplied by this first: 1 - lr * weight_decay when decoupled */
    float step_size;  /* lr / (1 - beta1^t) */
    float root_scale; /* 1 / sqrt(1 - beta2^t) */
} ru_kern_adam;

typedef struct ru_kern_sgd {
    float lr, gscale, decay, momentum;
    bool nesterov, has_momentum;
} ru_kern_sgd;

/* Segments: m is the mean square, v the momentum. */
typedef struct ru_kern_rmsprop {
    float lr, gscale, decay, alpha, epsilon, momentum;
    bool has_momentum;
} ru_kern_rmsprop;

typedef struct ru_kern_lion {
    float lr, gscale, beta1, beta2;
    float shrink; /* p is multiplied by this first: 1 - lr * weight_decay */
} ru_kern_lion;

/* One step of LAMB: r = mean_scale * m' / (sqrt(v') * root_scale + epsilon) + decay * p. */
typedef struct ru_kern_lamb {
    float beta1, beta2, epsilon, gscale, decay, mean_scale, root_scale;
} ru_kern_lamb;

/* A matrix product C[m,n] = A[m,k] B[k,n] (+ C) in f32; element (i,j) of A is a[i*a_row + j*a_col].
 * `packed_b` comes from gemm_pack; then b and its strides are not read. `alpha` scales the product.
 * One of each operand's two strides must be 1. */
typedef struct ru_kern_gemm {
    int64_t m, n, k;
    const float *a, *b;
    float *c;
    int64_t a_row, a_col, b_row, b_col, c_row;
    const float *packed_b;
    int64_t packed_k, packed_n; /* what was packed when more than k, n is; the rest is not read */
    float alpha;
    bool add;    /* add to C instead of overwriting it */
    bool thin;   /* m is 1, B packed: several sums along k hide the latency of one row */
    float *work; /* gemm_work(m, n, k) floats, 64-byte aligned; may be NULL when it says 0 */
} ru_kern_gemm;

/* C[m,n] = alpha A[m,k] B[k,n] in f64; any strides. */
typedef struct ru_kern_gemm64 {
    int64_t m, n, k;
    const double *a, *b;
    double *c;
    int64_t a_row, a_col, b_row, b_col, c_row;
    double alpha;
} ru_kern_gemm64;

/* A large product C[m,n] = act(alpha A[m,k] B[k,n] + bias[n] (+ C)) in f32; strides as above, one
 * of each operand's two must be 1. k > 0. */
typedef struct ru_kern_product {
    int64_t m, n, k;
    const float *a, *b;
    const float *bias; /* may be NULL */
    float *c;
    int64_t a_row, a_col, b_row, b_col, c_row;
    float alpha;
    bool add, relu;
} ru_kern_product;

/* A convolution of `n` images in blocks of `lanes` channels: 8 (nChw8c, weights OIhw8i8o) or 1
 * (row-major, weights Ohwi8o); y is nChw8c. */
typedef struct ru_kern_conv {
    int64_t n, ci, co; /* ci a multiple of lanes, co of 16 */
    int64_t h, w, oh, ow, kh, kw;
    int64_t pad_t, pad_l, stride_y, stride_x;
    int64_t lanes;
} ru_kern_conv;

/* Winograd's F(4x4,3x3): a 3x3 convolution of stride 1, images as nChw8c, weights as OIhw8i8o of
 * the forward direction. Tiles are counted over all images, panels are 16 channels made. V is
 * [36][tile][ci], U [panel][36][ci][16], D [panel][36][tile][16], with these strides in floats. */
typedef struct ru_kern_wino {
    int64_t ci, co;       /* channels read and made; multiples of 16 */
    int64_t h, w, oh, ow; /* image read, image made */
    int64_t pad_t, pad_l;
    int64_t tiles_y, tiles_x; /* of one image */
    int64_t v_row, v_pos, u_pos, d_pos;
    bool turned; /* the data gradient: ci are the weights' outputs */
    bool relu;   /* of y */
} ru_kern_wino;

/* Attention of one (batch, head): rows of head_size elements, `ld_*` apart. `mask` is added to the
 * scaled scores, element (i, j) at mask[i * mask_row + j * mask_col]. stats[i] is the log of the
 * sum of exponentials of row i. The gradient needs y, dy, stats of the forward call. */
typedef struct ru_kern_attn {
    ru_dtype t, t_kv; /* of all tensors; of k and v, which may differ forward */
    int64_t rows, keys, head_size;
    int64_t ld_q, ld_k, ld_v, ld_y, ld_dq, ld_dk, ld_dv;
    const void *q, *k, *v;
    void *y;
    const void *dy; /* ld_y */
    void *dq, *dk, *dv;
    float *stats; /* [rows]; may be NULL forward */
    const float *mask;
    int64_t mask_row, mask_col;
    float scale;
    bool causal;  /* key j is seen by rows i >= j - past */
    int64_t past; /* forward only */
    float *work;  /* attn_work() floats, 64-byte aligned */
} ru_kern_attn;

/* One run of a batch normalisation: `s` positions of `lanes` channels side by side (16, 8 or 1).
 * Arrays of coefficients have `lanes` elements. With `relu` and y == NULL the gradient's mask is
 * computed from x * mul + add > 0 (no residual then), else it is y > 0. */
typedef struct ru_kern_bn {
    ru_dtype t;
    int64_t s, lanes;
    bool relu;
    const void *x, *residual, *dy, *y; /* residual, y: NULL when absent */
    void *out, *dres;                  /* y or dx; dres: masked dy, NULL when not wanted */
    const float *mean, *mul, *add;     /* bn_sums: mean is any pivot near the values */
    const float *k_dy, *k_x, *k_1;     /* dx = k_dy * dy + k_x * x + k_1 */
} ru_kern_bn;

/* Gates of a recurrent layer's cell, in their order: LSTM i, o, f, c; GRU z, r, u; the plain layer
 * has one. */
typedef enum ru_kern_cell {
    RU_CELL_PLAIN = 1,
    RU_CELL_GRU = 3,
    RU_CELL_LSTM = 4,
} ru_kern_cell;

/* The recurrent part of one direction. `pre` holds x W^T of every step; `ws` gets the gates and one
 * part more (LSTM: the cell state; GRU: lin), (gates + 1) * hidden in a row; the plain layer has
 * none. dtype `t`: y, dy, dg, h_prev; bf16 with LSTM only. */
typedef struct ru_kern_rnn {
    ru_kern_cell cell;
    ru_dtype t;
    bool reverse;
    bool late; /* GRU: linear before reset */
    bool relu; /* the plain layer's function; else tanh */
    int64_t steps, batch, hidden;
    const float *pre;   /* [steps, batch, gates * hidden]; NULL: row ids[..] of table instead */
    const float *table; /* [vocabulary, gates * hidden]: embedding times W^T */
    const void *ids;    /* of dtype it, all in range */
    ru_dtype it;
    int64_t ids_step, ids_row; /* ids from one time step, one row of the batch, to the next */
    int64_t vocabulary;
    float *ws;       /* GRU: NULL where it is not kept */
    int64_t ws_step; /* floats from one time step to the next; rows of the batch are packed */
    bool cells_only; /* LSTM: ws is [batch, hidden], cell states alone, and ws_step 0: inference */
    /* Forward: rnn_pack of R; backward: gemm_pack of R [gates * hidden, hidden]. A GRU that is not
     * late: of z and r, and of u apart */
    const float *packed_r, *packed_u;
    const uint16_t *packed_bf16; /* the same in pairs of bf16 instead, when t is bf16 */
    const float
        *bias; /* [gates * hidden], W's and R's together; GRU: u's of W, and u's of R last */
    const float *h0, *c0; /* [batch, hidden] or NULL; without h0 the first step reads no R */
    void *y; /* element (t, n, j) at t * y_step + n * hidden + j; forward in f32: may be NULL */
    int64_t y_step;
    float *y_h, *y_c; /* last states, may be NULL */
    /* backward only */
    const void *dy; /* like y, may be NULL */
    const float *dy_h, *dy_c;
    void *dg;         /* [steps, batch, gates * hidden] before activation, as W sees them */
    float *dl;        /* late: the same as R sees them; else NULL */
    void *h_prev;     /* [steps, batch, hidden] h of the step before, for dR */
    float *arg;       /* GRU that is not late: r * h of the step before; else NULL */
    float *dh0, *dc0; /* may be NULL */
} ru_kern_rnn;

/* What one thread computes of a recurrence: rows n0 .. n1 of the batch, and of these its share of
 * the hidden units when several threads have the same rows. They keep one state, `state`, and meet
 * in `wait` after each step; a thread that is alone (threads 1) never waits.
 *
 * Owner: the caller; `state` and `work` are rnn_work floats each, `state` is the work
 * of thread 0. */
typedef struct ru_kern_share {
    int64_t n0, n1;
    uint32_t thread, threads;
    float *state, *work;
    void (*wait)(void);
} ru_kern_share;

/* Rows of results of a pool: result o reads element o * stride + c * dilation for c < taps. */
typedef struct ru_kern_pool {
    ru_dtype t;    /* f32; maxima without places also u8, i8 */
    bool max;      /* else sums, or means with `count` */
    int64_t power; /* 1 to 4: the root of the sum of powers of |x|, all in double; 0: not */
    int64_t stride, taps, dilation;
    /* pool_rows: rows of the image are joined into a line, `before` and `after` elements of padding
     * around `width` of theirs. Lines are `line`, rows of results `y_step` elements apart. Results
     * of lines n * stride apart do not reach beyond their own. */
    int64_t plane_step, row_step, before, width, after, line, y_step;
    const void *end;    /* of the image: nothing is read from here on; NULL: not known */
    const float *count; /* [n] taps of a result along its row that a mean counts; NULL: sums */
} ru_kern_pool;

/* What one row of results joins: `planes` times `rows` rows of the image from x on; a mean counts
 * `area` of them. */
typedef struct ru_kern_pool_from {
    const void *x;
    int64_t planes, rows;
    float area;
} ru_kern_pool_from;

/* A weight and where it reads, from where a result's taps begin. */
typedef struct ru_kern_tap {
    int32_t at, w; /* in the padded image; from the first weight of the result's channel */
} ru_kern_tap;

/* A convolution of one image of one group over three axes, or a transposed one. Result o of an axis
 * is of phase o % every, and its taps begin at place o / every * step of the padded image. */
typedef struct ru_kern_window {
    int64_t ci, in[3], before[3]; /* the image, zeros before it */
    int64_t room[3];              /* of the padded image: all that the taps reach */
    int64_t out[3], every[3];
    int64_t step[3];         /* 1 along the last axis */
    int64_t w_step;          /* from the weights of one result's channel to those of the next */
    const ru_kern_tap *taps; /* phase after phase, row-major */
    const int64_t *first;    /* [phases + 1] */
} ru_kern_window;

typedef enum ru_kern_trees_mode {
    RU_KERN_TREES_SUM,
    RU_KERN_TREES_MIN,
    RU_KERN_TREES_MAX,
} ru_kern_trees_mode;

enum { RU_KERN_TREES_LANES = 8 }; /* walks that overlap */

/* An ensemble (op Trees); numbers are f64 when `wide`, else f32. */
typedef struct ru_kern_trees {
    const void *nodes;       /* [nodes] packed by trees_pack */
    const uint8_t *nan_left; /* [nodes] */
    const int32_t *root;     /* [n_trees] */
    const uint32_t *levels;  /* [n_trees] steps to the farthest leaf */
    const int32_t *first;    /* [nodes + 1] of weight and target */
    const int32_t *target;
    const void *weight, *base; /* base: [outputs] */
    const void *only;          /* [nodes] what a leaf adds to the only output; NULL: see `first` */
    const int32_t *used;       /* [n_used] the features that are asked for */
    int64_t n_trees, n_used, features, outputs;
    int64_t tile; /* rows that go through one tree after the other; a multiple of the lanes */
    ru_kern_trees_mode mode;
    bool wide, dense, average; /* dense: leaves have a weight for each output; average: of sums */
} ru_kern_trees;

/* Lines along the middle of [outer, dim, inner]. */
typedef struct ru_kern_scan {
    int64_t dim, inner;
    bool exclusive, reverse; /* cumsum */
    bool smallest, last;     /* arg, topk: the smallest; arg: of equals the last */
    int64_t keep;            /* topk: 1 .. dim */
} ru_kern_scan;

enum { RU_KERN_TOP_COLS = 16 }; /* columns that topk takes at once */

/* A stretch of the last axis of places: n elements from `to` on read `from`, `from` + step, ...;
 * from < 0: the fill. */
typedef struct ru_kern_place_run {
    int64_t to, n, from, step;
} ru_kern_place_run;

/* Output [dims] whose element i is x[sum of from[d][i_d]], or the fill where one of them is < 0. */
typedef struct ru_kern_places {
    int64_t bytes; /* of an element: 1, 2, 4 or 8 */
    int64_t rank;  /* >= 1 */
    const int64_t *dims;
    const int64_t *const *from; /* [rank][dims[d]] in elements of x */
    const ru_kern_place_run *runs;
    int64_t n_runs; /* of the last axis; 0: its table is read element by element */
} ru_kern_places;

/* x [outer, in, inner] to y [outer, out, inner]: y[o] = sum over t of weight[t] * x[index[t]] for
 * start[o] <= t < start[o + 1]. */
typedef struct ru_kern_taps {
    int64_t outer, in, out, inner;
    const int64_t *start; /* [out + 1] */
    const int32_t *index;
    const float *weight;
    bool pairs; /* two for each, start[o] = 2 o */
} ru_kern_taps;

/* How an element that a scatter meets is combined with what is there. */
typedef enum ru_kern_put {
    RU_KERN_PUT,
    RU_KERN_PUT_ADD,
    RU_KERN_PUT_MUL,
    RU_KERN_PUT_MAX, /* a larger NaN is none */
    RU_KERN_PUT_MIN,
} ru_kern_put;

/* y = cut(round(a * x + b * z + c) + zero) of 8-bit tensors x, z; types: 1 a is signed, 2 b, 4 y.
 */
typedef struct ru_kern_add8 {
    float a, b, c, zero, low, high;
    uint32_t types;
} ru_kern_add8;

/* The functions: X(return type, name, arguments). Counts are elements. `x` may equal the output
 * where both have the same type and shape. */
#define RU_KERN_LIST(X)                                                                            \
    /* y[i] = f(x[i]) */                                                                           \
    X(void, map1,                                                                                  \
      (ru_kern_map1 op, float a, float b, ru_dtype t, const void *x, void *y, int64_t n))          \
    /* z[i] = f(x[i*sx], y[i*sy]); steps are 0 or 1 */                                             \
    X(void, map2,                                                                                  \
      (ru_kern_map2 op, float a, float b, ru_dtype t, const void *x, int64_t sx, const void *y,    \
       int64_t sy, void *z, int64_t n))                                                            \
    /* y[i] = cut(round(x[i] / scale) + zero) to u8 or i8, and back from u8, i8 or i32 */          \
    X(void, quantize, (const float *x, float scale, float zero, ru_dtype t, void *y, int64_t n))   \
    X(void, dequantize, (ru_dtype t, const void *x, float scale, float zero, float *y, int64_t n)) \
    X(void, add_int8, (const ru_kern_add8 *s, const void *a, const void *b, void *y, int64_t n))   \
    /* z[i] = 0 or 1 */                                                                            \
    X(void, cmp,                                                                                   \
      (ru_kern_cmp op, ru_dtype t, const void *x, int64_t sx, const void *y, int64_t sy,           \
       uint8_t *z, int64_t n))                                                                     \
    /* z[i] = x[i*sx] (op) y[i*sy] of whole numbers; comparisons give 0 or 1 as bytes. Steps as    \
     * above; z may be x or y where that one's step is 1 */                                        \
    X(void, whole2,                                                                                \
      (ru_kern_whole op, ru_dtype t, const void *x, int64_t sx, const void *y, int64_t sy,         \
       void *z, int64_t n))                                                                        \
    /* y[i] = low <= (x[i] & mask) <= high, for x of 1, 2, 4 or 8 bytes */                         \
    X(void, bits_within,                                                                           \
      (int64_t bytes, uint64_t mask, uint64_t low, uint64_t high, const void *x, uint8_t *y,       \
       int64_t n))                                                                                 \
    /* z[i] = c[i*sc] ? x[i*sx] : y[i*sy] for elements of 1, 2, 4 or 8 bytes */                    \
    X(void, where,                                                                                 \
      (int64_t bytes, const uint8_t *c, int64_t sc, const void *x, int64_t sx, const void *y,      \
       int64_t sy, void *z, int64_t n))                                                            \
    /* Convert; false when the pair of types has no kernel here. */                                \
    X(bool, cast, (ru_dtype from, const void *x, ru_dtype to, void *y, int64_t n))                 \
    /* y[r,c] = act(x[r,c] + bias[c]); op Identity for none */                                     \
    X(void, bias_act,                                                                              \
      (ru_kern_map1 op, float a, float b, ru_dtype t, const void *x, const float *bias, void *y,   \
       int64_t rows, int64_t cols))                                                                \
    /* gradients of the above for column range: db[c] = sum over rows of dy[r,c] */                \
    X(void, sum_rows,                                                                              \
      (ru_dtype t, const void *x, int64_t rows, int64_t ld, int64_t c0, int64_t c1, float *y))     \
    /* Over `runs` runs of n elements, `step` elements apart */                                    \
    X(float, reduce,                                                                               \
      (ru_kern_red op, ru_dtype t, const void *x, int64_t n, int64_t runs, int64_t step))          \
    /* y[r] = reduction of row r of x[rows, n] */                                                  \
    X(void, reduce_rows,                                                                           \
      (ru_kern_red op, ru_dtype t, const void *x, int64_t rows, int64_t n, float *y))              \
    /* y[i] = reduction over the rows of x[rows, ld], columns c0 .. c1 */                          \
    X(void, reduce_cols,                                                                           \
      (ru_kern_red op, ru_dtype t, const void *x, int64_t rows, int64_t ld, int64_t c0,            \
       int64_t c1, float *y))                                                                      \
    /* f32, f64, i64, i32, or largest and least of bytes; joined to y[w] unless `first`. across:   \
     * columns of x[n, ld]; else w rows of n. Sums and products of whole numbers wrap. */          \
    X(void, fold,                                                                                  \
      (ru_kern_red op, ru_dtype t, bool across, const void *x, int64_t n, int64_t ld, int64_t w,   \
       bool first, void *y))                                                                       \
    X(void, layernorm,                                                                             \
      (ru_dtype t, const void *x, const float *scale, const float *bias, float epsilon, void *y,   \
       float *mean, float *invstd, int64_t rows, int64_t cols))                                    \
    /* dx for the rows; adds to dscale[cols] and dbias[cols] (may be NULL) */                      \
    X(void, layernorm_grad,                                                                        \
      (ru_dtype t, const void *dy, const void *x, const float *scale, const float *mean,           \
       const float *invstd, void *dx, float *dscale, float *dbias, int64_t rows, int64_t cols))    \
    /* mean and 1/sqrt(variance + epsilon) of n elements */                                        \
    X(void, moments,                                                                               \
      (ru_dtype t, const void *x, int64_t n, float epsilon, float *mean, float *invstd))           \
    /* One group of one sample, [channels, inner]; scale and bias of its channels */               \
    X(void, groupnorm,                                                                             \
      (ru_dtype t, const void *x, const float *scale, const float *bias, float epsilon, void *y,   \
       int64_t channels, int64_t inner))                                                           \
    /* The same backward; dscale and dbias are this group's shares */                              \
    X(void, groupnorm_grad,                                                                        \
      (ru_dtype t, const void *dy, const void *x, const float *scale, float epsilon, void *dx,     \
       float *dscale, float *dbias, int64_t channels, int64_t inner))                              \
    X(void, softmax, (ru_dtype t, bool log, const void *x, void *y, int64_t rows, int64_t cols))   \
    X(void, softmax_grad,                                                                          \
      (ru_dtype t, bool log, const void *dy, const void *y, void *dx, int64_t rows, int64_t cols)) \
    /* Softmax over the middle of [n, inner] for columns c0 .. c1 */                               \
    X(void, softmax_inner,                                                                         \
      (ru_dtype t, bool log, const void *x, void *y, int64_t n, int64_t inner, int64_t c0,         \
       int64_t c1))                                                                                \
    X(void, softmax_inner_grad,                                                                    \
      (ru_dtype t, bool log, const void *dy, const void *y, void *dx, int64_t n, int64_t inner,    \
       int64_t c0, int64_t c1))                                                                    \
    /* Per row: probs, loss of the row (0 when ignored), bit 0: counted, bit 1: argmax is the      \
     * label. Returns the first bad row or -1. labels: i64 or i32. */                              \
    X(int64_t, cross_entropy,                                                                      \
      (ru_dtype t, const void *x, ru_dtype lt, const void *labels, const float *weight,            \
       int64_t ignore_index, float smoothing, void *probs, float *loss, float *row_weight,         \
       uint8_t *flags, int64_t rows, int64_t cols))                                                \
    /* dx = (probs - target) * scale for rows that count (weighted by weight[label]) */            \
    X(void, cross_entropy_grad,                                                                    \
      (ru_dtype t, const void *probs, ru_dtype lt, const void *labels, const float *weight,        \
       int64_t ignore_index, float smoothing, float scale, void *dx, int64_t rows, int64_t cols))  \
    /* Sum over n of the binary cross entropy of logits x and targets y */                         \
    X(float, bce, (ru_dtype t, const void *x, const void *y, int64_t n))                           \
    X(void, bce_grad,                                                                              \
      (ru_dtype t, float scale, const void *x, const void *y, void *dx, int64_t n))                \
    X(float, mse, (ru_dtype t, const void *x, const void *y, int64_t n))                           \
    X(void, mse_grad,                                                                              \
      (ru_dtype t, float scale, const void *x, const void *y, void *dx, int64_t n))                \
    /* y[i, c0..c1] = x[index[i], c0..c1] for rows of `cols`; bytes per element. Returns the first \
     * index outside -limit .. limit-1, or -1. */                                                  \
    X(int64_t, gather,                                                                             \
      (int64_t bytes, const void *x, int64_t limit, ru_dtype it, const void *index, int64_t n,     \
       int64_t cols, void *y))                                                                     \
    /* dx[index[i], c0..c1] += dy[i, c0..c1] in order of i; dx is f32 and zeroed here first */     \
    X(int64_t, gather_grad,                                                                        \
      (ru_dtype t, const void *dy, ru_dtype it, const void *index, int64_t n, int64_t limit,       \
       int64_t cols, int64_t c0, int64_t c1, float *dx))                                           \
    /* y[c, r] = x[r, c] for r0..r1; elements of 2, 4 or 8 bytes */                                \
    X(void, transpose,                                                                             \
      (int64_t bytes, const void *x, int64_t ldx, void *y, int64_t ldy, int64_t rows,              \
       int64_t cols))                                                                              \
    X(void, sgd, (const ru_kern_sgd *o, const ru_kern_segment *s, int64_t begin, int64_t end))     \
    X(void, adam, (const ru_kern_adam *o, const ru_kern_segment *s, int64_t begin, int64_t end))   \
    X(void, adagrad,                                                                               \
      (float lr, float gscale, float decay, float epsilon, const ru_kern_segment *s,               \
       int64_t begin, int64_t end))                                                                \
    X(void, rmsprop,                                                                               \
      (const ru_kern_rmsprop *o, const ru_kern_segment *s, int64_t begin, int64_t end))            \
    X(void, lion, (const ru_kern_lion *o, const ru_kern_segment *s, int64_t begin, int64_t end))   \
    /* sum of squares of x, or x + y, over sqrt(v) * root + epsilon where there is v */            \
    X(double, squares,                                                                             \
      (const float *x, const float *y, const float *v, float root, float epsilon, int64_t n))      \
    /* m' and v', and the sums of squares of p and r into sums[2]; then p' = p - step * r */       \
    X(void, lamb_slots,                                                                            \
      (const ru_kern_lamb *o, const ru_kern_segment *s, int64_t begin, int64_t end, float *sums))  \
    X(void, lamb,                                                                                  \
      (const ru_kern_lamb *o, float step, const ru_kern_segment *s, int64_t begin, int64_t end))   \
    /* Elements first .. first + n of the stream of draws: word e mod 4 of Philox4x32-10 with      \
     * counter {e / 4, hi}; kept when it is at least rint(ratio * 2^32) */                         \
    X(void, dropout,                                                                               \
      (ru_dtype t, const uint32_t key[2], const uint32_t hi[2], int64_t first, double ratio,       \
       const void *x, void *y, uint8_t *mask, int64_t n))                                          \
    X(void, dropout_grad,                                                                          \
      (ru_dtype t, double ratio, const void *dy, const uint8_t *mask, void *dx, int64_t n))        \
    /* sums over the positions of x - mean and of its square: [lanes] each */                      \
    X(void, bn_sums, (const ru_kern_bn *b, float *sum, float *sq))                                 \
    /* out = act(x * mul + add + residual) */                                                      \
    X(void, bn_apply, (const ru_kern_bn *b))                                                       \
    /* sums of masked dy and of masked dy * (x - mean) */                                          \
    X(void, bn_grad_sums, (const ru_kern_bn *b, float *sum, float *dot))                           \
    X(void, bn_grad_apply, (const ru_kern_bn *b))                                                  \
    /* y[n] of n_from rows of results; lines is memory for as many lines, of double with a power   \
     */                                                                                            \
    X(void, pool_rows,                                                                             \
      (const ru_kern_pool *p, const ru_kern_pool_from *from, int64_t n_from, void *lines, void *y, \
       int64_t n))                                                                                 \
    /* y[n] joined by the taps of one row of x: the larger and its place (`place` is that of x[0], \
     * at < 0: none yet) */                                                                        \
    X(void, pool_place,                                                                            \
      (const ru_kern_pool *p, const float *x, int32_t place, float *y, int32_t *at, int64_t n))    \
    /* Node k looks at place[k] of `used`; value [n] of t's type. Sets t->nodes */                 \
    X(int64_t, trees_node_bytes, (const ru_kern_trees *t))                                         \
    X(void, trees_pack,                                                                            \
      (ru_kern_trees * t, const void *value, const int32_t *place, const int32_t *left, int64_t n, \
       void *nodes))                                                                               \
    X(int64_t, trees_work, (const ru_kern_trees *t))                                               \
    /* Rows r0 .. r1; work: trees_work(t) bytes */                                                 \
    X(void, trees,                                                                                 \
      (const ru_kern_trees *t, const void *x, void *y, int64_t r0, int64_t r1, void *work))        \
    /* For o0 .. o1 of the outer dim */                                                            \
    X(void, cumsum, (const ru_kern_scan *s, const float *x, float *y, int64_t o0, int64_t o1))     \
    X(void, arg, (const ru_kern_scan *s, const float *x, int64_t *y, int64_t o0, int64_t o1))      \
    /* y, index: [outer, keep, inner], either may be NULL; work: topk_work(s) bytes. Blocks b0 ..  \
     * b1 of at most RU_KERN_TOP_COLS columns of one of the outer dim */                           \
    X(int64_t, topk_work, (const ru_kern_scan *s))                                                 \
    X(void, topk,                                                                                  \
      (const ru_kern_scan *s, const float *x, float *y, int64_t *index, void *work, int64_t b0,    \
       int64_t b1))                                                                                \
    /* Rows r0 .. r1 (of the product of the outer dims) */                                         \
    X(void, places,                                                                                \
      (const ru_kern_places *p, const void *x, const void *fill, void *y, int64_t r0, int64_t r1)) \
    /* y[to[r] + c] = y[to[r] + c] (how) x[from[r] + c] for c0 <= c < c1, row after row, as far as \
     * to[r] is in lo .. hi; from NULL: rows of `cols` one after the other */                      \
    X(void, put_rows,                                                                              \
      (ru_kern_put how, const int64_t *to, const int64_t *from, int64_t rows, const float *x,      \
       int64_t cols, int64_t c0, int64_t c1, int64_t lo, int64_t hi, float *y))                    \
    X(void, taps, (const ru_kern_taps *p, const float *x, float *y))                               \
    X(int64_t, gemm_pack_floats, (int64_t k, int64_t n))                                           \
    X(void, gemm_pack,                                                                             \
      (const float *b, int64_t b_row, int64_t b_col, int64_t k, int64_t n, float *packed))         \
    X(int64_t, gemm_work, (int64_t m, int64_t n, int64_t k))                                       \
    X(void, gemm, (const ru_kern_gemm *g))                                                         \
    /* Rows m0 .. m1, columns n0 .. n1; work: gemm64_work() doubles */                             \
    X(int64_t, gemm64_work, (void))                                                                \
    X(void, gemm64,                                                                                \
      (const ru_kern_gemm64 *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, double *work))     \
    /* Rows m0 .. m1, columns n0 .. n1; work: product_work(m1 - m0, n1 - n0, k) floats */          \
    /* dw (and db, may be NULL) of panels p0 .. p1 of 16 outputs; work: conv_work(g) floats */     \
    X(bool, conv_dw_takes, (int64_t kw, int64_t lanes))                                            \
    X(int64_t, conv_work, (const ru_kern_conv *g))                                                 \
    X(void, conv_dw,                                                                               \
      (const ru_kern_conv *g, const float *x, const float *dy, int64_t p0, int64_t p1, float *dw,  \
       float *db, float *work))                                                                    \
    /* y [outs, out] = bias [outs] (NULL: 0) + the taps of x; work: window_work(g) floats */       \
    X(int64_t, window_work, (const ru_kern_window *g))                                             \
    X(void, window,                                                                                \
      (const ru_kern_window *g, const float *x, const float *w, const float *bias, int64_t outs,   \
       float *y, float *work))                                                                     \
    /* y[j] = x[p * step + j * along] for place p = index[j] of `limit`, counted from the back     \
     * below 0; elements of 1 to 8 bytes. False: a place is outside, and y holds anything */       \
    X(bool, take,                                                                                  \
      (int64_t bytes, ru_dtype it, const void *index, int64_t n, int64_t limit, int64_t step,      \
       int64_t along, const void *x, void *y))                                                     \
    /* Tiles t0 .. t1 of x to V, of dy to D; `first` is the tile of row 0 */                       \
    X(void, wino_in,                                                                               \
      (const ru_kern_wino *g, const float *x, int64_t t0, int64_t t1, int64_t first, float *v))    \
    X(void, wino_dy,                                                                               \
      (const ru_kern_wino *g, const float *dy, int64_t t0, int64_t t1, int64_t first, float *d))   \
    /* U of panels p0 .. p1, the first at u */                                                     \
    X(void, wino_weights,                                                                          \
      (const ru_kern_wino *g, const float *w, int64_t p0, int64_t p1, float *u))                   \
    /* y of those panels and tiles; v, u begin with t0, p0; m: 36 * 16 * (tiles * panels + 1) */   \
    X(void, wino_out,                                                                              \
      (const ru_kern_wino *g, const float *v, const float *u, int64_t p0, int64_t p1, int64_t t0,  \
       int64_t t1, const float *bias, float *y, float *m))                                         \
    /* Sums over `tb` tiles for channels c0 .. c1 and panels p0 .. p1:                             \
     * 36 * 16 * ((c1 - c0) * panels + 1) floats; then dw from them; db[co] */                     \
    X(void, wino_dw,                                                                               \
      (const ru_kern_wino *g, const float *v, const float *d, int64_t tb, int64_t c0, int64_t c1,  \
       int64_t p0, int64_t p1, bool add, float *sums))                                             \
    X(void, wino_dw_out,                                                                           \
      (const ru_kern_wino *g, const float *sums, int64_t c0, int64_t c1, int64_t p0, int64_t p1,   \
       float *dw))                                                                                 \
    X(void, wino_db,                                                                               \
      (const ru_kern_wino *g, const float *d, int64_t tb, int64_t p0, int64_t p1, bool add,        \
       float *db))                                                                                 \
    X(int64_t, product_work, (int64_t m, int64_t n, int64_t k))                                    \
    X(void, product,                                                                               \
      (const ru_kern_product *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *work))     \
    /* bf16 operands, f32 sums; a rows are contiguous in k. Packed size: gemm_pack_floats(k, n) *  \
     * 2 bytes. Callable when gemm_bf16_packs(k) says so. */                                       \
    X(bool, gemm_bf16_packs, (int64_t k))                                                          \
    X(void, gemm_bf16_pack,                                                                        \
      (const float *b, int64_t b_row, int64_t b_col, int64_t k, int64_t n, uint16_t *packed))      \
    X(void, gemm_bf16,                                                                             \
      (int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t a_row, const uint16_t *packed,  \
       float *c, int64_t c_row, bool add))                                                         \
    X(int64_t, attn_work, (const ru_kern_attn *a, bool grad))                                      \
    X(void, attn, (const ru_kern_attn *a))                                                         \
    /* The same on a cache, without mask and stats: one row that sees all keys; rows that read     \
     * each key once for up to two vectors of rows. work: attn_rows_work() floats */               \
    X(void, attn_row, (const ru_kern_attn *a))                                                     \
    X(void, attn_rows, (const ru_kern_attn *a))                                                    \
    X(int64_t, attn_rows_work, (const ru_kern_attn *a))                                            \
    X(void, attn_grad, (const ru_kern_attn *a))                                                    \
    /* Recurrent weights r [gates * hidden, hidden] as the recurrences read them, `pairs`: as      \
     * bf16. Of as many floats (or bf16); work: 96 * hidden floats */                              \
    X(int64_t, rnn_pack_floats, (int64_t gates, int64_t hidden))                                   \
    X(void, rnn_pack,                                                                              \
      (int64_t gates, int64_t hidden, const float *r, bool pairs, float *work, void *packed))      \
    /* Backward: rows n0 .. n1 of the batch; work: rnn_work(a, n1 - n0, true) floats */            \
    X(int64_t, rnn_work, (const ru_kern_rnn *a, int64_t rows, bool grad))                          \
    X(void, rnn, (const ru_kern_rnn *a, const ru_kern_share *p))                                   \
    X(void, rnn_grad, (const ru_kern_rnn *a, int64_t n0, int64_t n1, float *work))

typedef struct ru_kern {
    const char *name; /* "base", "avx2", "avx512", "avx512_bf16" */
#define RU_X(ret, fn, args) ret(*fn) args;
    RU_KERN_LIST(RU_X)
#undef RU_X
} ru_kern;

typedef enum ru_kern_level {
    RU_KERN_BASE, /* the compiler's baseline; every CPU */
    RU_KERN_AVX2,
    RU_KERN_AVX512,
    RU_KERN_AVX512_BF16,
    RU_KERN_LEVELS,
} ru_kern_level;

/* The table of that instruction set, or NULL when it was not built or this CPU lacks it. */
const ru_kern *ru_kern_at(ru_kern_level level);
/* The best that this CPU has; never NULL. */
const ru_kern *ru_kern_best(void);

/* Fill the scalars of one Adam step; `t` counts from 1. */
ru_kern_adam ru_kern_adam_step(double lr, double gscale, double beta1, double beta2, double epsilon,
                               double weight_decay, bool decoupled, int64_t t);

#endif
