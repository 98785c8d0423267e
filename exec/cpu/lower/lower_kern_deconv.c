/* Transposed convolutions whose windows overlap: one product, then every output pixel gathers its
 * terms.
 *
 *     columns [H W, kh kw co] = x [H W, ci] * w [ci, kh kw co]        image after image
 *     y [oy, ox, :] = bias + sum of the columns whose window covers (oy, ox)
 *
 * Everything stands with channels last, so that a term is a row of co neighbours. oneDNN's kernels
 * for them are those of a convolution's data gradient, slow on small images: one Zen 5 core, 4x4
 * windows of stride 2, 8x8x256 to 16x16x128 at batch 4: 48 GFLOP/s against 170. Without overlap
 * (windows as wide as their stride) they are the faster ones. */
#include <string.h>

#include "exec/cpu/low/conv.h"
#include "exec/cpu/lower/lower_kern.h"

enum { COLUMNS_MAX = 16 << 20 }; /* floats of one image's columns: 64 MiB */

typedef struct deconv_state {
    const ru_kern *k;
    const rui_dnnl *nn;
    int64_t n, ci, co, h, w, oh, ow, kh, kw, sh, sw, pt, pl;
    int64_t image; /* under way */
} deconv_state;

enum { D_X, D_W, D_BIAS, D_Y, D_COLUMNS, D_BUFS };

static void add_row(const deconv_state *s, float *y, const float *x)
{
    if (s->co >= 32) {
        s->k->map2(RU_KERN_MAP2_Add, 0, 0, RU_F32, y, 1, x, 1, y, s->co);
        return;
    }
    for (int64_t c = 0; c < s->co; c++) {
        y[c] += x[c];
    }
}

/* Where output o reads along one axis: tap t reads input (o + pad - t) / stride when that is whole
 * and inside. -1: not at all. */
static int64_t source(int64_t o, int64_t pad, int64_t tap, int64_t stride, int64_t size)
{
    int64_t at = o + pad - tap;
    return at < 0 || at % stride != 0 || at / stride >= size ? -1 : at / stride;
}

/* Rows [begin, end) of one image. */
static void rows_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const deconv_state *s = state;
    const float *columns = bufs[D_COLUMNS];
    for (int64_t oy = begin; oy < end; oy++) {
        float *line = (float *)bufs[D_Y] + (s->image * s->oh + oy) * s->ow * s->co;
        for (int64_t ox = 0; ox < s->ow; ox++) {
            float *y = line + ox * s->co;
            if (bufs[D_BIAS] != NULL) {
                memcpy(y, bufs[D_BIAS], (size_t)s->co * sizeof *y);
            } else {
                memset(y, 0, (size_t)s->co * sizeof *y);
            }
            for (int64_t ky = 0; ky < s->kh; ky++) {
                int64_t iy = source(oy, s->pt, ky, s->sh, s->h);
                for (int64_t kx = 0; kx < s->kw && iy >= 0; kx++) {
                    int64_t ix = source(ox, s->pl, kx, s->sw, s->w);
                    if (ix >= 0) {
                        int64_t at = (iy * s->w + ix) * s->kh * s->kw + ky * s->kw + kx;
                        add_row(s, y, columns + at * s->co);
                    }
                }
            }
        }
    }
}

static ru_status deconv_run(void *state, void *const *bufs, const rui_run *run)
{
    deconv_state *s = state;
    int64_t m = s->h * s->w, n = s->kh * s->kw * s->co;
    for (s->image = 0; s->image < s->n; s->image++) {
        const float *x = (const float *)bufs[D_X] + s->image * m * s->ci;
        if (s->nn->sgemm('N', 'N', m, n, s->ci, 1.0f, x, s->ci, bufs[D_W], n, 0.0f, bufs[D_COLUMNS],
                         n) != dnnl_success) {
            return RU_FAIL(run->err, RU_E_BUG, "oneDNN refused a product");
        }
        rui_kern_for(run, rows_part, s, bufs, s->oh, rui_kern_grain(s->ow * s->co));
    }
    return RU_OK;
}

static bool pays(const rui_window *w)
{
    bool overlap = w->kernel[0] > w->stride[0] || w->kernel[1] > w->stride[1];
    bool small = w->in[0] * w->in[1] <= 1024; /* of larger images the columns leave the cache */
    int64_t columns = w->in[0] * w->in[1] * w->kernel[0] * w->kernel[1] * w->co;
    return w->nsp == 2 && w->groups == 1 && w->dilate[0] == 0 && w->dilate[1] == 0 && overlap &&
           small && w->ci >= 16 && columns <= COLUMNS_MAX;
}

static deconv_state *state_of(rui_low *lo, const rui_window *w)
{
    deconv_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s != NULL) {
        *s = (deconv_state){.k = ru_kern_best(),
                            .nn = rui_nn(lo),
                            .n = w->n,
                            .ci = w->ci,
                            .co = w->co,
                            .h = w->in[0],
                            .w = w->in[1],
                            .oh = w->out[0],
                            .ow = w->out[1],
                            .kh = w->kernel[0],
                            .kw = w->kernel[1],
                            .sh = w->stride[0],
                            .sw = w->stride[1],
                            .pt = w->pad_l[0],
                            .pl = w->pad_l[1]};
    }
    return s;
}

ru_status rui_lower_kern_deconv(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *wt = rui_type(lo, n->in[1]);
    const ru_type *y = rui_type(lo, n->out[0]);
    rui_window w;
    if (!rui_conv_plain(lo, n, true, &w) || !pays(&w)) {
        return RU_E_UNSUPPORTED;
    }
    const rui_layout *lx = rui_layout_tag(lo, x, dnnl_nhwc), *ly = rui_layout_tag(lo, y, dnnl_nhwc);
    const rui_layout *lw = rui_layout_tag(lo, wt, dnnl_nhwc); /* [ci, kh, kw, co] */
    if (lx == NULL || ly == NULL || lw == NULL) {
        return RU_E_UNSUPPORTED;
    }
    deconv_state *s = state_of(lo, &w);
    int64_t columns = w.in[0] * w.in[1] * w.kernel[0] * w.kernel[1] * w.co;
    rui_buf bufs[D_BUFS] = {{0}};
    bufs[D_X] = rui_in(lo, n->in[0], lx);
    bufs[D_W] = rui_in(lo, n->in[1], lw);
    bufs[D_BIAS] = ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0};
    bufs[D_Y] = rui_out(lo, n->out[0], ly);
    bufs[D_COLUMNS] = rui_scratch(lo, columns * (int64_t)sizeof(float));
    rui_emit(
        lo,
        &(rui_step){
            .kernel = "kern deconv", .fn = deconv_run, .state = s, .bufs = bufs, .n_bufs = D_BUFS});
    rui_act_emit(lo, n);
    return rui_done(lo);
}
