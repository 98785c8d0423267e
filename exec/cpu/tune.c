/* Which algorithm a convolution takes.
 *
 * Without measurement: Winograd F(4x3,3x3) for f32 3x3 stride-1 convolutions with enough work, else
 * direct. Measured on Zen5, forward and both gradients, batch 32: 352 to 457 GFLOP/s against 241 to
 * 251 of the direct kernels for 64x56x56 to 512x7x7. At batch 4 Winograd lost only at 512x7x7 (104
 * against 170): its transforms need tiles (n * out / 16) to be many against the channels. */
#include "exec/cpu/conv.h"

static bool winograd_fits(const rui_window *w)
{
    if (w->nsp != 2 || w->groups != 1 || w->ci < 16 || w->co < 16) {
        return false;
    }
    for (int d = 0; d < 2; d++) {
        if (w->kernel[d] != 3 || w->stride[d] != 1 || w->dilate[d] != 0 || w->pad_l[d] > 1 ||
            w->pad_r[d] > 1) {
            return false;
        }
    }
    return true;
}

dnnl_alg_kind_t rui_conv_alg(rui_low *lo, rui_conv_dir dir, const rui_window *w,
                             dnnl_data_type_t act)
{
    (void)lo;
    (void)dir;
    if (act != dnnl_f32 || !winograd_fits(w)) {
        return dnnl_convolution_direct;
    }
    return dnnl_convolution_auto;
}
