/* Gradients of convolution weights on our own kernel, with AVX2: oneDNN's reaches 26 to 50 GFLOP/s
 * of 101 there, and 3 with one input channel, which it pads to 8. Only when autotuned, as the order
 * of its sums is another. */
#include <string.h>

#include "exec/cpu/low/conv.h"
#include "exec/cpu/lower/lower_kern.h"

const rui_layout *rui_layout_tag(rui_low *lo, const ru_type *t, dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t dims = {0};
    memcpy(dims, t->dims, (size_t)t->rank * sizeof dims[0]);
    return rui_nn(lo)->memory_desc_init_by_tag(&md, (int)t->rank, dims, dnnl_f32, tag) ==
                   dnnl_success
               ? rui_layout_md(lo, &md)
               : NULL;
}

typedef struct conv_state {
    const ru_kern *k;
    ru_kern_conv g;
    int64_t work; /* floats of one thread */
} conv_state;

enum { K_DY, K_X, K_DW, K_DB, K_WORK, K_BUFS };

static void conv_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *work)
{
    const conv_state *s = state;
    s->k->conv_dw(&s->g, bufs[K_X], bufs[K_DY], begin, end, bufs[K_DW], bufs[K_DB], work);
}

static ru_status conv_run(void *state, void *const *bufs, const rui_run *run)
{
    const conv_state *s = state;
    rui_kern_for_own(run, conv_part, s, bufs, s->g.co / 16, 1, bufs[K_WORK],
                     s->work * (int64_t)sizeof(float));
    return RU_OK;
}

/* Fills `g`; false: not for this kernel. */
static bool conv_fits(rui_low *lo, const ru_node *n, ru_kern_conv *g)
{
    const ru_type *tx = rui_type(lo, n->in[1]), *tw = rui_type(lo, n->out[0]);
    const ru_type *ty = rui_type(lo, n->in[0]);
    const ru_kern *k = ru_kern_best();
    rui_window w;
    if (tx->dtype != RU_F32 || tw->dtype != RU_F32 || ty->dtype != RU_F32 || rui_bf16(lo) ||
        !rui_options(lo)->autotune || k != ru_kern_at(RU_KERN_AVX2) ||
        rui_window_of(n, tx, tw, ty, false, false, &w) != RU_OK || w.nsp != 2 || w.groups != 1 ||
        w.dilate[0] != 0 || w.dilate[1] != 0 || w.co % 16 != 0 || w.n < 1 || w.out[0] < 1 ||
        w.out[1] < 1 || w.pad_l[0] < 0 || w.pad_l[1] < 0) {
        return false;
    }
    *g = (ru_kern_conv){.n = w.n,
                        .ci = w.ci,
                        .co = w.co,
                        .h = w.in[0],
                        .w = w.in[1],
                        .oh = w.out[0],
                        .ow = w.out[1],
                        .kh = w.kernel[0],
                        .kw = w.kernel[1],
                        .pad_t = w.pad_l[0],
                        .pad_l = w.pad_l[1],
                        .stride_y = w.stride[0],
                        .stride_x = w.stride[1],
                        .lanes = w.ci % 8 == 0 ? 8 : 1};
    return (w.ci % 8 == 0 || w.ci == 1) && k->conv_dw_takes(g->kw, g->lanes);
}

/* ConvGradW(dy, x, w_like; bias_term) -> dw, db? */
ru_status rui_lower_kern_conv_grad_w(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    ru_kern_conv g;
    if (!conv_fits(lo, n, &g)) {
        return RU_E_UNSUPPORTED;
    }
    const ru_type *tx = rui_type(lo, n->in[1]), *tw = rui_type(lo, n->out[0]);
    const rui_layout *lx =
        g.lanes == 8 ? rui_layout_tag(lo, tx, dnnl_nChw8c) : rui_plain_as(lo, tx, RU_F32);
    const rui_layout *ly = rui_layout_tag(lo, rui_type(lo, n->in[0]), dnnl_nChw8c);
    const rui_layout *lw = rui_layout_tag(lo, tw, g.lanes == 8 ? dnnl_OIhw8i8o : dnnl_Ohwi8o);
    conv_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (lx == NULL || ly == NULL || lw == NULL || s == NULL) {
        return RU_E_UNSUPPORTED;
    }
    *s = (conv_state){.k = ru_kern_best(), .g = g};
    s->work = (s->k->conv_work(&g) + 15) / 16 * 16;
    rui_buf bufs[K_BUFS] = {{0}};
    bufs[K_DY] = rui_in(lo, n->in[0], ly);
    bufs[K_X] = rui_in(lo, n->in[1], lx);
    bufs[K_DW] = rui_out(lo, n->out[0], lw);
    bufs[K_DB] = ru_node_has_out(n, 1) ? rui_out_plain(lo, n->out[1]) : (rui_buf){0};
    bufs[K_WORK] = rui_scratch(lo, s->work * rui_threads(lo) * (int64_t)sizeof(float));
    rui_emit(lo, &(rui_step){.kernel = "kern conv weights",
                             .fn = conv_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = K_BUFS});
    return rui_done(lo);
}
