/* Random cases: products, convolutions, pools, normalisations, recurrence, attention, losses,
 * updates. */
#include "test/ops/ops.h"

#include <math.h>
#include <string.h>

static ru_type f32(uint32_t rank, const int64_t *dims)
{
    return ops_type(RU_F32, rank, dims);
}

#define F32(...) f32(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static bool one_in(ops_case *c, uint32_t n)
{
    return ru_rng_below(&c->rng, n) == 0;
}

/* Fused forms run forward only: differentiation comes before fusion. */
static void maybe_fuse(ops_case *c, ru_type y, ru_type bias, bool has_bias)
{
    static const char *const words[] = {"relu", "sigmoid", "tanh", "gelu", "leaky_relu", "clip"};
    bool residual = one_in(c, 3) && !c->plain, activation = ops_coin(c) && !c->plain;
    has_bias = has_bias && !(c->plain && c->op == RU_OP_MatMul);
    if (has_bias) {
        ops_in_grid(c, bias, -2.0, 2.0);
        c->grad_in |= 4;
    } else if (residual) {
        ops_in_absent(c);
    }
    if (residual) {
        ops_in_grid(c, y, -2.0, 2.0);
    }
    if (activation) {
        uint32_t k = ru_rng_below(&c->rng, RU_ARRAY_LEN(words));
        ops_attr_str(c, RU_ATTR_activation, words[k]);
        if (k >= 4) {
            ops_attr_float(c, RU_ATTR_activation_alpha, k == 4 ? 0.25 : -1.0);
            ops_attr_float(c, RU_ATTR_activation_beta, 2.0);
        }
    }
    bool fused = residual || activation || (has_bias && c->op == RU_OP_MatMul);
    c->grad_in = fused ? 0 : c->grad_in;
}

/* -- products --------------------------------------------------------------------------- */

void sample_matmul(ops_case *c)
{
    int64_t m = ops_dim(c), k = ops_dim(c), n = ops_dim(c), b = ops_pick(c, 1, 3),
            h = ops_pick(c, 1, 3);
    c->grad_in = 3;
    switch (ru_rng_below(&c->rng, 5)) {
    case 0: /* vectors */
        ops_in_grid(c, F32(k), -2.0, 2.0);
        ops_in_grid(c, ops_coin(c) ? F32(k) : F32(k, n), -2.0, 2.0);
        return;
    case 1: /* broadcast batches */
        ops_in_grid(c, F32(b, 1, m, k), -2.0, 2.0);
        ops_in_grid(c, ops_coin(c) ? F32(h, k, n) : F32(b, h, k, n), -2.0, 2.0);
        return;
    case 2: /* a dense layer over a sequence */
        ops_in_grid(c, F32(b, m, k), -2.0, 2.0);
        ops_in_grid(c, F32(n, k), -2.0, 2.0);
        ops_attr_int(c, RU_ATTR_transB, 1);
        maybe_fuse(c, F32(b, m, n), F32(n), ops_coin(c));
        return;
    case 3:
        ops_in_grid(c, F32(b, k, m), -2.0, 2.0);
        ops_in_grid(c, F32(b, k, n), -2.0, 2.0);
        ops_attr_int(c, RU_ATTR_transA, 1);
        return;
    default:
        ops_in_grid(c, F32(m, k), -2.0, 2.0);
        ops_in_grid(c, F32(k, n), -2.0, 2.0);
        maybe_fuse(c, F32(m, n), F32(n), ops_coin(c));
        return;
    }
}

void sample_gemm(ops_case *c)
{
    int64_t m = ops_dim(c), k = ops_dim(c), n = ops_dim(c);
    bool ta = ops_coin(c), tb = ops_coin(c);
    ops_in_grid(c, ta ? F32(k, m) : F32(m, k), -2.0, 2.0);
    ops_in_grid(c, tb ? F32(n, k) : F32(k, n), -2.0, 2.0);
    ops_attr_int(c, RU_ATTR_transA, ta);
    ops_attr_int(c, RU_ATTR_transB, tb);
    if (ops_coin(c)) {
        ops_attr_float(c, RU_ATTR_alpha, 0.5);
        ops_attr_float(c, RU_ATTR_beta, 2.0);
    }
    c->grad_in = 3;
    ru_type shapes[] = {F32(n), F32(m, n), F32(m, 1), F32(1, n), F32(1)};
    ru_type bias = shapes[ru_rng_below(&c->rng, RU_ARRAY_LEN(shapes))];
    maybe_fuse(c, F32(m, n), bias, ops_coin(c));
}

void sample_einsum(ops_case *c)
{
    static const char *const words[] = {"bij,bjk->bik", "bhqd,bhkd->bhqk", "ij,kj->ik", "ij->ji",
                                        "bij->b",       "i,j->ij",         "bi,bi->b"};
    int64_t dim[26];
    const char *word = words[ru_rng_below(&c->rng, RU_ARRAY_LEN(words))];
    for (uint32_t l = 0; l < 26; l++) {
        dim[l] = ops_pick(c, 1, 5);
    }
    ru_type t = {.dtype = RU_F32};
    for (const char *s = word; *s != '\0'; s++) {
        if (*s == ',' || *s == '-') {
            ops_in_grid(c, t, -2.0, 2.0);
            t.rank = 0;
        } else if (*s != '>') {
            t.dims[t.rank++] = dim[*s - 'a'];
        }
        if (*s == '-') {
            break;
        }
    }
    ops_attr_str(c, RU_ATTR_equation, word);
    c->grad_in = c->n_in == 2 ? 3 : 1;
}

/* -- convolution and pooling ------------------------------------------------------------ */

typedef struct window {
    int64_t kernel[3], stride[3], dilation[3], pads[6], size[3];
} window;

static window draw_window(ops_case *c, uint32_t rank)
{
    window w;
    for (uint32_t d = 0; d < rank; d++) {
        w.kernel[d] = ops_pick(c, 1, 3);
        w.stride[d] = ops_pick(c, 1, 2);
        w.dilation[d] = one_in(c, 3) ? 2 : 1;
        int64_t reach = (w.kernel[d] - 1) * w.dilation[d] + 1;
        w.pads[d] = ops_pick(c, 0, w.kernel[d] - 1);
        w.pads[rank + d] = ops_pick(c, 0, w.kernel[d] - 1);
        w.size[d] = reach + ops_pick(c, 0, rank == 3 ? 2 : 5);
    }
    return w;
}

static void window_attrs(ops_case *c, const window *w, uint32_t rank)
{
    ops_attr_ints(c, RU_ATTR_kernel_shape, w->kernel, rank);
    ops_attr_ints(c, RU_ATTR_strides, w->stride, rank);
    ops_attr_ints(c, RU_ATTR_dilations, w->dilation, rank);
    ops_attr_ints(c, RU_ATTR_pads, w->pads, 2 * rank);
}

static ru_type image(int64_t n, int64_t channels, const int64_t *size, uint32_t rank)
{
    ru_type t = ops_type(RU_F32, rank + 2, (int64_t[]){n, channels, 1, 1, 1});
    memcpy(t.dims + 2, size, rank * sizeof size[0]);
    return t;
}

void sample_conv(ops_case *c)
{
    static const int64_t widths[] = {1, 2, 3, 5, 8, 16};
    uint32_t rank = one_in(c, 4) && !c->big ? (ops_coin(c) ? 1 : 3) : 2;
    int64_t groups = one_in(c, 3) ? ops_pick(c, 2, 4) : 1;
    int64_t in = groups * (groups > 1 ? ops_pick(c, 1, 2) : widths[ru_rng_below(&c->rng, 6)]);
    int64_t out = groups * (groups > 1 ? ops_pick(c, 1, 2) : widths[ru_rng_below(&c->rng, 6)]);
    window w = draw_window(c, rank);
    if (c->big) { /* dense or depthwise, as networks have them */
        in = ops_dim(c);
        groups = one_in(c, 3) ? in : 1;
        out = groups > 1 ? in : ops_dim(c);
        w.size[0] += 4;
        w.size[1] += 4;
    }
    ops_in_grid(c, image(ops_pick(c, 1, 3), in, w.size, rank), -2.0, 2.0);
    ops_in_grid(c, image(out, in / groups, w.kernel, rank), -2.0, 2.0);
    window_attrs(c, &w, rank);
    ops_attr_int(c, RU_ATTR_group, groups);
    int64_t small[3];
    for (uint32_t d = 0; d < rank; d++) {
        int64_t reach = (w.kernel[d] - 1) * w.dilation[d] + 1;
        small[d] = (w.size[d] + w.pads[d] + w.pads[rank + d] - reach) / w.stride[d] + 1;
    }
    ru_type y = image(c->in[0].type.dims[0], out, small, rank);
    c->grad_in = 3;
    maybe_fuse(c, y, F32(out), ops_coin(c));
}

void sample_convtranspose(ops_case *c)
{
    uint32_t rank = one_in(c, 4) ? 1 : 2;
    int64_t groups = one_in(c, 3) ? 2 : 1, in = groups * ops_pick(c, 1, 4),
            out = groups * ops_pick(c, 1, 3);
    window w = draw_window(c, rank);
    for (uint32_t d = 0; d < rank; d++) {
        w.size[d] = ops_pick(c, 2, d + 1 == rank && ops_coin(c) ? 40 : 5);
        w.stride[d] = ops_pick(c, 1, 3);
        w.pads[d] = w.kernel[d] > 1 ? ops_pick(c, 0, 1) : 0;
        w.pads[rank + d] = w.kernel[d] > 1 ? ops_pick(c, 0, 1) : 0;
    }
    ops_in_grid(c, image(ops_pick(c, 1, 2), in, w.size, rank), -2.0, 2.0);
    ops_in_grid(c, image(in, out / groups, w.kernel, rank), -2.0, 2.0);
    window_attrs(c, &w, rank);
    ops_attr_int(c, RU_ATTR_group, groups);
    c->grad_in = 3;
    if (ops_coin(c)) {
        ops_in_grid(c, F32(out), -2.0, 2.0);
        c->grad_in = 7;
    }
}

void sample_pool(ops_case *c)
{
    uint32_t rank = one_in(c, 4) ? (ops_coin(c) ? 1 : 3) : 2;
    window w = draw_window(c, rank);
    for (uint32_t d = 0; d < rank; d++) { /* a window of padding only has no maximum */
        w.pads[d] = w.dilation[d] == 1 ? w.pads[d] : 0;
        w.pads[rank + d] = w.dilation[d] == 1 && w.stride[d] == 1 ? w.pads[rank + d] : 0;
    }
    int64_t images = ops_pick(c, 1, 2), width = ops_pick(c, 1, rank == 3 ? 2 : 5);
    ru_type t = image(images, width, w.size, rank);
    if (c->op == RU_OP_MaxPool) {
        ops_in_distinct(c, t);
        c->n_out = ops_coin(c) ? 2 : 1;
        c->f32_only = true;
    } else {
        ops_in_grid(c, t, -4.0, 4.0);
    }
    window_attrs(c, &w, rank);
    bool ceil = ops_coin(c);
    ops_attr_int(c, RU_ATTR_ceil_mode, ceil);
    c->grad_in = c->op == RU_OP_LpPool && ceil ? 0 : c->grad_in;
    if (c->op == RU_OP_AveragePool) {
        ops_attr_int(c, RU_ATTR_count_include_pad, ops_coin(c));
    }
    if (c->op == RU_OP_LpPool) {
        ops_attr_int(c, RU_ATTR_p, ops_pick(c, 1, 3));
    }
}

void sample_globalpool(ops_case *c)
{
    int64_t n = ops_pick(c, 1, 2), width = ops_pick(c, 1, 8), h = ops_pick(c, 1, 5),
            w = ops_pick(c, 1, 5);
    ops_in_distinct(c, F32(n, width, h, w));
    c->f32_only = c->op == RU_OP_GlobalMaxPool;
}

void sample_lrn(ops_case *c)
{
    ops_in_grid(c, F32(2, ops_dim(c), 2, 2), -4.0, 4.0);
    ops_attr_int(c, RU_ATTR_size, ops_pick(c, 1, 5));
    ops_attr_float(c, RU_ATTR_alpha, 0.125);
}

void sample_resize(ops_case *c)
{
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    int64_t h = ops_pick(c, 2, 5), w = ops_pick(c, 2, 5);
    ops_in_grid(c, F32(1, 2, h, w), -4.0, 4.0);
    ops_in_absent(c);
    c->fixed[2] = true;
    ru_tensor *scales = ops_in(c, F32(4));
    for (int64_t i = 0; i < 4; i++) {
        ops_set(scales, i, i < 2 ? 1.0 : 1.0 + 0.5 * (double)ops_pick(c, 0, 3));
    }
    ops_attr_str(c, RU_ATTR_mode, modes[ru_rng_below(&c->rng, 3)]);
}

/* -- normalisation ---------------------------------------------------------------------- */

/* [N, C, ...] with enough in it that a variance is not zero. */
static ru_type channels(ops_case *c, int64_t width)
{
    uint32_t axes = ru_rng_below(&c->rng, 3);
    int64_t n = axes == 0 ? ops_pick(c, 4, 9) : ops_pick(c, 2, 3);
    int64_t h = axes == 0 ? 1 : axes == 1 ? ops_pick(c, 3, 7) : ops_pick(c, 2, 4);
    int64_t w = axes < 2 ? 1 : ops_pick(c, 2, 5);
    return axes == 0 ? F32(n, width) : axes == 1 ? F32(n, width, h) : F32(n, width, h, w);
}

void sample_batchnorm(ops_case *c)
{
    int64_t width = ops_dim(c);
    ops_in_grid(c, channels(c, width), -4.0, 4.0);
    ops_in_grid(c, F32(width), 0.5, 2.0);
    ops_in_grid(c, F32(width), -2.0, 2.0);
    ops_in_grid(c, F32(width), -1.0, 1.0);
    ops_in_grid(c, F32(width), 0.5, 4.0);
    c->grad_in = 0; /* none: the trained form is BatchNormTrain */
    if (ops_coin(c)) {
        ops_attr_float(c, RU_ATTR_epsilon, 0.125);
    }
}

void sample_batchnormtrain(ops_case *c)
{
    sample_batchnorm(c);
    c->n_out = 5;
    c->grad_in = 7;
    ops_attr_float(c, RU_ATTR_momentum, 0.75);
    ops_attr_int(c, RU_ATTR_bias, ops_coin(c));
    if (one_in(c, 2) && !c->plain) {
        ops_in_grid(c, c->in[0].type, -2.0, 2.0);
        ops_attr_str(c, RU_ATTR_activation, "relu");
        c->grad_in = 0;
    }
}

void sample_groupnorm(ops_case *c)
{
    int64_t groups = ops_pick(c, 1, 3), width = groups * ops_pick(c, 1, 3);
    int64_t n = ops_pick(c, 1, 3), h = ops_pick(c, 2, 4), w = ops_pick(c, 2, 3);
    ops_in_grid(c, F32(n, width, h, w), -4.0, 4.0);
    ops_in_grid(c, F32(width), 0.5, 2.0);
    ops_in_grid(c, F32(width), -2.0, 2.0);
    ops_attr_int(c, RU_ATTR_num_groups, groups);
    c->grad_in = 7;
}

void sample_instancenorm(ops_case *c)
{
    int64_t width = ops_dim(c), n = ops_pick(c, 1, 3), places = ops_pick(c, 4, 9);
    ops_in_grid(c, F32(n, width, places), -4.0, 4.0);
    ops_in_grid(c, F32(width), 0.5, 2.0);
    ops_in_grid(c, F32(width), -2.0, 2.0);
    c->grad_in = 7;
}

void sample_layernorm(ops_case *c)
{
    int64_t width = ops_pick(c, 3, c->big ? 300 : 17), rows = ops_dim(c);
    bool two_axes = one_in(c, 3);
    ops_in_grid(c, F32(2, rows, width), -4.0, 4.0);
    ru_type s = two_axes ? F32(rows, width) : F32(width);
    ops_in_grid(c, s, 0.5, 2.0);
    c->grad_in = 3;
    if (ops_coin(c)) {
        ops_in_grid(c, s, -2.0, 2.0);
        c->grad_in = 7;
    }
    ops_attr_int(c, RU_ATTR_axis, two_axes ? 1 : -1);
    c->n_out = ops_coin(c) ? 3 : 1;
}

void sample_softmax(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 1, 4);
    ops_in_grid(c, t, -4.0, 4.0);
    ops_attr_int(c, RU_ATTR_axis, ops_pick(c, -(int64_t)t.rank, (int64_t)t.rank - 1));
}

void sample_mvn(ops_case *c)
{
    int64_t n = ops_pick(c, 2, 3), width = ops_dim(c);
    ops_in_grid(c, F32(n, width, 3, 2), -4.0, 4.0);
}

/* -- recurrence ------------------------------------------------------------------------- */

/* X W R B? lens? h0? (c0? P?), the trained forms without lens and P. */
static void recurrent(ops_case *c, int64_t gates, bool train)
{
    static const char *const words[] = {"forward", "reverse", "bidirectional"};
    int64_t seq = ops_pick(c, 1, 5), batch = ops_pick(c, 1, 4), in = ops_dim(c),
            hid = c->big ? ops_dim(c) : ops_pick(c, 1, 8);
    uint32_t way = ru_rng_below(&c->rng, 3);
    int64_t dirs = way == 2 ? 2 : 1;
    bool first = one_in(c, 4), lens = !train && one_in(c, 3);
    ru_type state = first ? F32(batch, dirs, hid) : F32(dirs, batch, hid);
    ops_in_grid(c, first ? F32(batch, seq, in) : F32(seq, batch, in), -2.0, 2.0);
    ops_in_grid(c, F32(dirs, gates * hid, in), -1.0, 1.0);
    ops_in_grid(c, F32(dirs, gates * hid, hid), -1.0, 1.0);
    ops_in_grid(c, F32(dirs, 2 * gates * hid), -1.0, 1.0);
    c->grad_in = 15;
    if (lens) {
        ops_in_ints(c, ops_type(RU_I32, 1, &batch), 1, seq);
    } else {
        ops_in_absent(c);
    }
    if (ops_coin(c)) {
        ops_in_grid(c, state, -1.0, 1.0);
        c->grad_in |= 32;
        if (gates == 4) {
            ops_in_grid(c, state, -1.0, 1.0);
            c->grad_in |= 64;
            if (!train && ops_coin(c)) {
                ops_in_grid(c, F32(dirs, 3 * hid), -1.0, 1.0);
            }
        }
    }
    ops_attr_int(c, RU_ATTR_hidden_size, hid);
    ops_attr_str(c, RU_ATTR_direction, words[way]);
    if (first) {
        ops_attr_int(c, RU_ATTR_layout, 1);
    }
    if (gates == 3) {
        ops_attr_int(c, RU_ATTR_linear_before_reset, ops_coin(c));
    }
}

void sample_lstm(ops_case *c)
{
    bool train = c->op == RU_OP_LSTMTrain;
    recurrent(c, 4, train);
    c->n_out = train ? 4 : 3;
    c->grad_out = 7;
}

void sample_gru(ops_case *c)
{
    bool train = c->op == RU_OP_GRUTrain;
    recurrent(c, 3, train);
    c->n_out = train ? 3 : 2;
    c->grad_out = 3;
}

/* Each unit is on in every step, or off: its weights and biases have one sign, and what they
 * multiply is not negative. A finite difference then never steps over ReLU's corner. */
static void on_or_off(ops_case *c)
{
    int64_t units = c->in[1].type.dims[0] * c->in[1].type.dims[1], hid = c->in[1].type.dims[1];
    bool *on = RU_NEW(c->arena, bool, units);
    for (int64_t u = 0; u < units; u++) {
        on[u] = ops_coin(c);
    }
    for (uint32_t k = 0; k < c->n_in; k++) {
        int64_t n = c->in[k].type.dtype == RU_F32 ? ops_count(&c->in[k]) : 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t unit = k == 3 ? i / (2 * hid) * hid + i % hid : i / (n / units);
            double x = fabs(ops_get(&c->in[k], i));
            ops_set(&c->in[k], i, k >= 1 && k <= 3 && !on[unit] ? -x : x);
        }
    }
}

void sample_rnn(ops_case *c)
{
    static const char *const relu[] = {"Relu", "Relu"};
    recurrent(c, 1, false);
    if (ops_coin(c)) {
        ops_attr_strs(c, RU_ATTR_activations, relu, (uint32_t)c->in[1].type.dims[0]);
        on_or_off(c);
    }
    c->n_out = 2;
    c->grad_out = 3;
    c->grad_in = c->in[4].type.dtype == RU_NONE ? c->grad_in : 0; /* lengths have no gradient */
}

/* -- attention -------------------------------------------------------------------------- */

static void mask_and_scale(ops_case *c, int64_t b, int64_t h, int64_t t, int64_t s)
{
    if (one_in(c, 3)) {
        ru_type shapes[] = {F32(t, s), F32(b, 1, 1, s), F32(b, h, t, s)};
        ops_in_grid(c, shapes[ru_rng_below(&c->rng, 3)], -2.0, 2.0);
    }
    ops_attr_int(c, RU_ATTR_heads, h);
    ops_attr_int(c, RU_ATTR_causal, ops_coin(c));
    if (ops_coin(c)) {
        ops_attr_float(c, RU_ATTR_scale, 0.25);
    }
}

void sample_attention(ops_case *c)
{
    int64_t b = ops_pick(c, 1, 2), h = ops_pick(c, 1, 3), t = ops_dim(c),
            d = ops_pick(c, 1, c->big ? 40 : 8);
    int64_t s = ops_coin(c) ? t : ops_dim(c);
    bool bhtd = ops_coin(c);
    for (uint32_t k = 0; k < 3; k++) {
        int64_t len = k == 0 ? t : s;
        ops_in_grid(c, bhtd ? F32(b, h, len, d) : F32(b, len, h * d), -2.0, 2.0);
    }
    ops_attr_str(c, RU_ATTR_layout, bhtd ? "bhtd" : "bthd");
    mask_and_scale(c, b, h, t, s);
    c->grad_in = 7;
    c->n_out = 2;
}

void sample_attentionqkv(ops_case *c)
{
    int64_t b = ops_pick(c, 1, 2), h = ops_pick(c, 1, 3), t = ops_dim(c),
            d = ops_pick(c, 1, c->big ? 40 : 8);
    ops_in_grid(c, F32(b, t, 3 * h * d), -2.0, 2.0);
    mask_and_scale(c, b, h, t, t);
    c->n_out = 2;
}

void sample_attentioncached(ops_case *c)
{
    int64_t rows = ops_pick(c, 1, c->big ? 40 : 9), h = ops_pick(c, 1, 3),
            d = ops_pick(c, 1, c->big ? 40 : 8), slots = ops_pick(c, 1, 4),
            room = rows + ops_pick(c, 0, 20);
    ru_type cache = F32(slots, h, room, d);
    cache.dtype = one_in(c, 3) ? RU_BF16 : RU_F32;
    ops_in_grid(c, F32(rows, 3 * h * d), -2.0, 2.0);
    ops_in_grid(c, cache, -2.0, 2.0);
    ops_in_grid(c, cache, -2.0, 2.0);
    int64_t *slot = ops_in_ints(c, ops_type(RU_I64, 1, &rows), 0, slots - 1)->data;
    int64_t *at = ops_in_ints(c, ops_type(RU_I64, 1, &rows), -1, 0)->data;
    int64_t next[4], run = 0;
    for (uint32_t k = 0; k < 4; k++) {
        next[k] = ops_pick(c, 0, room - rows);
    }
    for (int64_t k = 0; k < rows; k++) { /* pieces of prompts beside single rows and none */
        slot[k] = k > 0 && run > 0 ? slot[k - 1] : slot[k];
        run = run > 0 ? run - 1 : one_in(c, 3) ? ops_pick(c, 0, 7) : 0;
        at[k] = run > 0 || at[k] == 0 ? next[slot[k]]++ : one_in(c, 3) ? INT64_MIN : -1;
    }
    if (ops_coin(c)) {
        ops_attr_float(c, RU_ATTR_scale, 0.25);
    }
    c->grad_in = 0;
    c->n_out = 3;
}

/* -- losses ----------------------------------------------------------------------------- */

void sample_sce(ops_case *c)
{
    int64_t rows = ops_pick(c, 1, 9), classes = ops_pick(c, 2, c->big ? 700 : 17);
    int64_t mid = ops_pick(c, 1, 3);
    bool deep = one_in(c, 3);
    ops_in_distinct(c, deep ? F32(mid, rows, classes) : F32(rows, classes));
    ru_tensor *labels = ops_in_ints(
        c, deep ? ops_type(RU_I64, 2, (int64_t[]){mid, rows}) : ops_type(RU_I64, 1, &rows), 0,
        classes - 1);
    if (ops_coin(c)) {
        ops_attr_int(c, RU_ATTR_ignore_index, -100);
        ops_set(labels, 0, rows * (deep ? mid : 1) > 1 ? -100.0 : 0.0);
    }
    if (ops_coin(c)) {
        ops_attr_float(c, RU_ATTR_label_smoothing, 0.125);
    }
    if (one_in(c, 3)) {
        ops_in_grid(c, F32(classes), 0.5, 2.0);
        ops_attr_str(c, RU_ATTR_reduction, ops_coin(c) ? "rows" : "mean");
    }
    c->n_out = 4;
}

void sample_nll(ops_case *c)
{
    static const char *const words[] = {"none", "mean", "sum"};
    int64_t n = ops_pick(c, 2, 5), classes = ops_pick(c, 2, 7), d = ops_pick(c, 1, 4);
    ops_in_grid(c, F32(n, classes, d), -4.0, 4.0);
    ops_in_ints(c, ops_type(RU_I64, 2, (int64_t[]){n, d}), 0, classes - 1);
    if (ops_coin(c)) {
        ops_in_grid(c, F32(classes), 0.5, 2.0);
    }
    ops_attr_str(c, RU_ATTR_reduction, words[ru_rng_below(&c->rng, 3)]);
    c->grad_in = 0;
}

void sample_bce(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 1, 3);
    ops_in_grid(c, t, -4.0, 4.0);
    ops_in_ints(c, t, 0, 1);
}

void sample_mse(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 1, 3);
    ops_in_grid(c, t, -4.0, 4.0);
    ops_in_grid(c, t, -4.0, 4.0);
    c->grad_in = 3;
}

/* -- dropout and updates ---------------------------------------------------------------- */

void sample_dropout(ops_case *c)
{
    ops_in_grid(c, ops_shape(c, RU_F32, 1, 3), -4.0, 4.0);
    c->grad_in = 0;
}

void sample_dropouttrain(ops_case *c)
{
    ops_in_grid(c, ops_shape(c, RU_F32, 1, 3), -4.0, 4.0);
    ops_attr_float(c, RU_ATTR_ratio, 0.25);
    ops_attr_int(c, RU_ATTR_stream, ops_pick(c, 0, 100));
    const ru_type *t = &c->in[0].type;
    uint32_t axis = (uint32_t)ops_pick(c, 0, t->rank); /* of the samples; rank: not said */
    if (axis < t->rank) {
        int64_t inner = 1;
        for (uint32_t k = axis + 1; k < t->rank; k++) {
            inner *= t->dims[k];
        }
        ops_attr_int(c, RU_ATTR_samples, t->dims[axis]);
        ops_attr_int(c, RU_ATTR_inner, ops_pick(c, 0, 5) == 0 ? 0 : inner);
        ops_attr_int(c, RU_ATTR_start, ops_pick(c, 0, 9));
    }
    c->n_out = 2;
}

void sample_globalnorm(ops_case *c)
{
    for (int64_t k = ops_pick(c, 1, 4); k > 0; k--) {
        ops_in_grid(c, ops_shape(c, RU_F32, 0, 3), -4.0, 4.0);
    }
    c->grad_in = 0;
    c->f32_only = true;
}

void sample_clipscale(ops_case *c)
{
    ops_in_grid(c, f32(0, NULL), 0.5, 4.0);
    ops_attr_float(c, RU_ATTR_clip, 1.5);
    c->grad_in = 0;
    c->f32_only = true;
}

/* lr and the scale of the gradient, which may be absent. */
static void update_head(ops_case *c)
{
    ops_set(ops_in(c, f32(0, NULL)), 0, 0.125);
    if (ops_coin(c)) {
        ops_set(ops_in(c, f32(0, NULL)), 0, 0.5);
    } else {
        ops_in_absent(c);
    }
    ops_attr_float(c, RU_ATTR_weight_decay, ops_coin(c) ? 0.0625 : 0.0);
    c->grad_in = 0;
    c->f32_only = true;
}

void sample_sgdupdate(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 0, 3);
    bool momentum = ops_coin(c);
    update_head(c);
    ops_in_grid(c, t, -2.0, 2.0);
    ops_in_grid(c, t, -2.0, 2.0);
    if (momentum) {
        ops_in_grid(c, t, -2.0, 2.0);
        ops_attr_float(c, RU_ATTR_momentum, 0.75);
        ops_attr_int(c, RU_ATTR_nesterov, ops_coin(c));
    } else {
        ops_in_absent(c);
    }
    c->n_out = momentum ? 2 : 1;
}

void sample_adamupdate(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 0, 3);
    update_head(c);
    ops_set(ops_in(c, ops_type(RU_I64, 0, NULL)), 0, (double)ops_pick(c, 1, 10));
    ops_in_grid(c, t, -2.0, 2.0);
    ops_in_grid(c, t, -2.0, 2.0);
    ops_in_grid(c, t, -2.0, 2.0);
    ops_in_grid(c, t, 0.25, 2.0);
    ops_attr_float(c, RU_ATTR_beta1, 0.875);
    ops_attr_float(c, RU_ATTR_beta2, 0.9375);
    ops_attr_float(c, RU_ATTR_epsilon, 1e-8);
    ops_attr_int(c, RU_ATTR_decoupled, ops_coin(c));
    c->n_out = 3;
}

void sample_rmspropupdate(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 0, 3);
    bool momentum = ops_coin(c);
    update_head(c);
    ops_in_grid(c, t, -2.0, 2.0);
    ops_in_grid(c, t, -2.0, 2.0);
    ops_in_grid(c, t, 0.25, 2.0);
    if (momentum) {
        ops_in_grid(c, t, -2.0, 2.0);
        ops_attr_float(c, RU_ATTR_momentum, 0.75);
    } else {
        ops_in_absent(c);
    }
    ops_attr_float(c, RU_ATTR_alpha, 0.9375);
    ops_attr_float(c, RU_ATTR_epsilon, 1e-8);
    c->n_out = momentum ? 3 : 2;
}

/* The grid of the operands is coarse: a direction is 0, or far enough from it. */
void sample_lionupdate(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 0, 3);
    update_head(c);
    ops_in_grid(c, t, -2.0, 2.0);
    ops_in_grid(c, t, -2.0, 2.0);
    ops_in_grid(c, t, -2.0, 2.0);
    ops_attr_float(c, RU_ATTR_beta1, 0.875);
    ops_attr_float(c, RU_ATTR_beta2, 0.9375);
    c->n_out = 2;
}

void sample_lambupdate(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 0, 3);
    update_head(c);
    ops_set(ops_in(c, ops_type(RU_I64, 0, NULL)), 0, (double)ops_pick(c, 1, 10));
    ops_in_grid(c, t, -2.0, 2.0);
    ops_in_grid(c, t, -2.0, 2.0);
    ops_in_grid(c, t, -2.0, 2.0);
    ops_in_grid(c, t, 0.25, 2.0);
    ops_attr_float(c, RU_ATTR_beta1, 0.875);
    ops_attr_float(c, RU_ATTR_beta2, 0.9375);
    ops_attr_float(c, RU_ATTR_epsilon, 1e-6);
    c->n_out = 3;
}

void sample_adagradupdate(ops_case *c)
{
    ru_type t = ops_shape(c, RU_F32, 0, 3);
    update_head(c);
    ops_in_grid(c, t, -2.0, 2.0);
    ops_in_grid(c, t, -2.0, 2.0);
    ops_in_grid(c, t, 0.25, 2.0);
    ops_attr_float(c, RU_ATTR_epsilon, 1e-10);
    c->n_out = 2;
}
