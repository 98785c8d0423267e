/* Random cases: sampling, signals, ops whose size depends on data, products of integers. */
#include "test/ops/ops.h"

#include <stddef.h>

static void integers_only(ops_case *c)
{
    c->f32_only = true;
    c->grad_in = 0;
}

static void number_in(ops_case *c, int64_t x)
{
    c->fixed[c->n_in] = true;
    ops_set(ops_in(c, ops_type(RU_I64, 0, NULL)), 0, (double)x);
}

void sample_gridsample(ops_case *c)
{
    static const char *const modes[] = {"linear", "nearest", "cubic"};
    static const char *const pads[] = {"zeros", "border", "reflection"};
    uint32_t rank = (uint32_t)ops_pick(c, 1, 3) + 2;
    ru_type x = ops_type(RU_F32, rank, (int64_t[]){ops_pick(c, 1, 2), ops_pick(c, 1, 3), 4, 5, 3});
    ru_type g = ops_type(RU_F32, rank, (int64_t[]){x.dims[0], 3, 4, 2, 2});
    g.dims[rank - 1] = (int64_t)rank - 2;
    (void)ops_in_grid(c, x, -4.0, 4.0);
    (void)ops_in_grid(c, g, -2.0, 2.0);
    ops_attr_str(c, RU_ATTR_mode, modes[ops_pick(c, 0, 2)]);
    ops_attr_str(c, RU_ATTR_padding_mode, pads[ops_pick(c, 0, 2)]);
    ops_attr_int(c, RU_ATTR_align_corners, ops_coin(c));
    integers_only(c);
}

void sample_col2im(ops_case *c)
{
    int64_t high = ops_pick(c, 3, 6), wide = ops_pick(c, 3, 6), stride = ops_pick(c, 1, 2);
    int64_t pad = ops_pick(c, 0, 1), places = 1;
    const int64_t size[2] = {high, wide}, block[2] = {2, 3};
    for (int64_t k = 0; k < 2; k++) {
        places *= (size[k] + 2 * pad - block[k]) / stride + 1;
    }
    (void)ops_in_grid(c, ops_type(RU_F32, 3, (int64_t[]){2, 3 * 6, places}), -4.0, 4.0);
    (void)ops_in_consts(c, size, 2);
    (void)ops_in_consts(c, block, 2);
    ops_attr_ints(c, RU_ATTR_strides, (int64_t[]){stride, stride}, 2);
    ops_attr_ints(c, RU_ATTR_pads, (int64_t[]){pad, pad, pad, pad}, 4);
    c->grad_in = 0;
}

/* Regions inside the image, partly and wholly outside, turned around. */
void sample_roialign(ops_case *c)
{
    int64_t images = ops_pick(c, 1, 3), high = ops_pick(c, 1, 9), wide = ops_pick(c, 1, 9);
    int64_t rois = ops_dim(c), channels = ops_dim(c);
    (void)ops_in_grid(c, ops_type(RU_F32, 4, (int64_t[]){images, channels, high, wide}), -4.0, 4.0);
    (void)ops_in_grid(c, ops_type(RU_F32, 2, (int64_t[]){rois, 4}), -4.0, 16.0);
    (void)ops_in_ints(c, ops_type(RU_I64, 1, &rois), 0, images - 1);
    ops_attr_str(c, RU_ATTR_mode, ops_coin(c) ? "avg" : "max");
    ops_attr_str(c, RU_ATTR_coordinate_transformation_mode,
                 ops_coin(c) ? "half_pixel" : "output_half_pixel");
    ops_attr_int(c, RU_ATTR_output_height, ops_pick(c, 1, 5));
    ops_attr_int(c, RU_ATTR_output_width, ops_pick(c, 1, 9));
    ops_attr_int(c, RU_ATTR_sampling_ratio, ops_pick(c, 0, 3));
    ops_attr_float(c, RU_ATTR_spatial_scale, ops_coin(c) ? 0.75 : 1.0);
    integers_only(c);
}

/* Every place at most once, in a plane of its own or not. */
void sample_maxunpool(ops_case *c)
{
    uint32_t rank = (uint32_t)ops_pick(c, 1, 3) + 2;
    ru_type x = ops_type(RU_F32, rank, (int64_t[]){ops_pick(c, 1, 2), ops_pick(c, 1, 3), 4, 3, 2});
    int64_t big[5] = {x.dims[0], x.dims[1]}, all = big[0] * big[1], n = all;
    bool given = ops_coin(c), stays = ops_coin(c);
    for (uint32_t d = 2; d < rank; d++) {
        big[d] = x.dims[d] * 2 + (given ? ops_pick(c, 0, 2) : 0);
        all *= big[d];
        n *= x.dims[d];
    }
    (void)ops_in_grid(c, x, -4.0, 4.0);
    x.dtype = RU_I64;
    ru_tensor *at = ops_in(c, x);
    int64_t first = ops_pick(c, 0, all - 1);
    for (int64_t i = 0; i < n; i++) {
        ops_set(at, i, (double)(stays ? i * (all / n) : (first + i) % all));
    }
    if (given) {
        (void)ops_in_consts(c, big, rank);
    }
    ops_attr_ints(c, RU_ATTR_kernel_shape, (int64_t[]){2, 2, 2}, rank - 2);
    ops_attr_ints(c, RU_ATTR_strides, (int64_t[]){2, 2, 2}, rank - 2);
}

void sample_det(ops_case *c)
{
    int64_t n = ops_pick(c, 0, 6), count = ops_dim(c);
    (void)ops_in_grid(c, ops_type(RU_F32, 3, (int64_t[]){count, n, n}), -2.0, 2.0);
    integers_only(c);
}

void sample_dft(ops_case *c)
{
    bool onesided = ops_coin(c), inverse = ops_coin(c);
    int64_t parts = onesided ? (inverse ? 2 : 1) : ops_pick(c, 1, 2), n = ops_pick(c, 2, 30);
    (void)ops_in_grid(c, ops_type(RU_F32, 4, (int64_t[]){2, n, 3, parts}), -4.0, 4.0);
    if (ops_coin(c)) {
        number_in(c, ops_pick(c, 1, 36));
    } else {
        (void)ops_in_absent(c);
    }
    number_in(c, ops_coin(c) ? 1 : -3);
    ops_attr_int(c, RU_ATTR_onesided, onesided);
    ops_attr_int(c, RU_ATTR_inverse, inverse);
    integers_only(c);
}

void sample_stft(ops_case *c)
{
    int64_t frame = ops_pick(c, 2, 12), length = frame + ops_pick(c, 0, 20);
    bool window = ops_coin(c);
    (void)ops_in_grid(c, ops_type(RU_F32, 3, (int64_t[]){2, length, 1}), -4.0, 4.0);
    number_in(c, ops_pick(c, 1, 4));
    if (window) {
        (void)ops_in_grid(c, ops_type(RU_F32, 1, &frame), 0.0, 1.0);
    } else {
        (void)ops_in_absent(c);
    }
    if (!window || ops_coin(c)) {
        number_in(c, frame);
    }
    ops_attr_int(c, RU_ATTR_onesided, ops_coin(c));
    integers_only(c);
}

void sample_signalwindow(ops_case *c)
{
    number_in(c, ops_pick(c, 1, 20));
    ops_attr_int(c, RU_ATTR_periodic, ops_coin(c));
    integers_only(c);
}

void sample_melweightmatrix(ops_case *c)
{
    number_in(c, ops_pick(c, 1, 12));
    number_in(c, ops_pick(c, 8, 64));
    number_in(c, 8192);
    c->fixed[3] = c->fixed[4] = true;
    ops_set(ops_in(c, ops_type(RU_F32, 0, NULL)), 0, 0.0);
    ops_set(ops_in(c, ops_type(RU_F32, 0, NULL)), 0, (double)ops_pick(c, 1000, 4096));
    integers_only(c);
}

void sample_nonzero(ops_case *c)
{
    c->fixed[0] = true; /* its shape is that of the data */
    (void)ops_in_ints(c, ops_shape(c, ops_coin(c) ? RU_F32 : RU_I64, 0, 3), -1, 1);
    integers_only(c);
}

void sample_unique(ops_case *c)
{
    c->fixed[0] = true;
    ru_type t = ops_shape(c, ops_coin(c) ? RU_F32 : RU_I32, 1, 3);
    (void)ops_in_ints(c, t, -2, 2);
    if (ops_coin(c)) {
        ops_attr_int(c, RU_ATTR_axis, ops_pick(c, -1, (int64_t)t.rank - 1));
    }
    ops_attr_int(c, RU_ATTR_sorted, ops_coin(c));
    c->n_out = 4;
    integers_only(c);
}

void sample_dynamicquantizelinear(ops_case *c)
{
    (void)ops_in_grid(c, ops_shape(c, RU_F32, 0, 3), -4.0, 4.0);
    c->n_out = 3;
    integers_only(c);
}

static ru_dtype bytes_in(ops_case *c, uint32_t rank, const int64_t *dims)
{
    ru_dtype t = ops_coin(c) ? RU_U8 : RU_I8;
    (void)ops_in_ints(c, ops_type(t, rank, dims), t == RU_U8 ? 0 : -128, t == RU_U8 ? 255 : 127);
    return t;
}

static void zeros_in(ops_case *c, ru_dtype t, int64_t n)
{
    (void)ops_in_ints(c, ops_type(t, n > 1 ? 1 : 0, &n), t == RU_U8 ? 0 : -128, 127);
}

void sample_convinteger(ops_case *c)
{
    int64_t out = ops_pick(c, 1, 5), in = ops_pick(c, 1, 3);
    ru_dtype x = bytes_in(c, 4, (int64_t[]){2, in, 5, 6});
    c->fixed[1] = ops_coin(c);
    ru_dtype w = bytes_in(c, 4, (int64_t[]){out, in, 3, 2});
    if (ops_coin(c)) {
        zeros_in(c, x, 1);
        if (ops_coin(c)) {
            zeros_in(c, w, ops_coin(c) ? out : 1);
        }
    }
    if (ops_coin(c)) {
        ops_attr_ints(c, RU_ATTR_pads, (int64_t[]){1, 0, 1, 2}, 4);
    }
    integers_only(c);
}

void sample_matmulinteger(ops_case *c)
{
    int64_t m = ops_dim(c), k = ops_dim(c), n = ops_dim(c);
    ru_dtype a = bytes_in(c, 3, (int64_t[]){2, m, k});
    c->fixed[1] = ops_coin(c);
    ru_dtype b = bytes_in(c, 2, (int64_t[]){k, n});
    if (ops_coin(c)) {
        zeros_in(c, a, 1);
    } else if (ops_coin(c)) {
        zeros_in(c, a, ops_coin(c) ? m : 1);
        if (ops_coin(c)) {
            zeros_in(c, b, ops_coin(c) ? n : 1);
        }
    }
    integers_only(c);
}
