/* Convolutions: forward, gradient of the data, gradient of the weights.
 *
 * Activations stay in the layout oneDNN chooses (nChw16c with AVX-512), so a chain of layers has no
 * reorder. Weights stand in the layout of the forward kernel; their gradient is made in it, so that
 * the optimizer is one flat loop; the data gradient wants them transposed inside the block, which
 * is one small reorder per step. */
#include <string.h>

#include "exec/cpu/low/conv.h"
#include "exec/cpu/lower/lower_kern.h"

static ru_status conv_call_of(rui_low *lo, const ru_node *n, ru_value_id x, ru_value_id wt,
                              ru_value_id y, rui_conv *c)
{
    const ru_graph *g = rui_graph(lo);
    const ru_type *tx = &g->values[x.v].type;
    if (tx->dtype != RU_F32 && tx->dtype != RU_BF16) {
        return RU_E_UNSUPPORTED;
    }
    RU_TRY(rui_window_of(n, tx, &g->values[wt.v].type, &g->values[y.v].type, false, false, &c->w));
    c->act = tx->dtype == RU_BF16 || rui_bf16(lo) ? dnnl_bf16 : dnnl_f32;
    return RU_OK;
}

static dnnl_status_t fwd_desc(rui_low *lo, const rui_conv *c, dnnl_alg_kind_t alg, bool bias,
                              dnnl_convolution_desc_t *cd)
{
    const rui_window *w = &c->w;
    dnnl_memory_desc_t x = rui_md_any(lo, w->nsp + 2, w->x_dims, c->act);
    dnnl_memory_desc_t wt = rui_md_any(lo, w->w_ndims, w->w_dims, c->act);
    dnnl_memory_desc_t y = rui_md_any(lo, w->nsp + 2, w->y_dims, c->act);
    dnnl_memory_desc_t b = rui_md_any(lo, 1, &w->co, dnnl_f32);
    return rui_nn(lo)->dilated_convolution_forward_desc_init(
        cd, rui_inference(lo) ? dnnl_forward_inference : dnnl_forward_training, alg, &x, &wt,
        bias ? &b : NULL, &y, w->stride, w->dilate, w->pad_l, w->pad_r);
}

static dnnl_primitive_desc_t fwd_pd(rui_low *lo, const rui_conv *c, dnnl_alg_kind_t alg,
                                    const rui_post *post)
{
    dnnl_convolution_desc_t cd;
    dnnl_status_t st = fwd_desc(lo, c, alg, c->bias, &cd);
    return rui_pd_make(lo, st, &cd, post);
}

dnnl_primitive_desc_t rui_conv_fwd(rui_low *lo, const rui_conv *c, dnnl_alg_kind_t alg, bool *fused)
{
    dnnl_primitive_desc_t pd = *fused ? rui_pd_fast(lo, fwd_pd(lo, c, alg, &c->post)) : NULL;
    if (pd == NULL && (c->post.has_act || !*fused)) {
        rui_post bare = c->post;
        bare.has_act = false;
        pd = rui_pd_fast(lo, fwd_pd(lo, c, alg, &bare));
        *fused = *fused && pd == NULL;
    }
    return pd;
}

static dnnl_primitive_desc_t fwd_of(rui_low *lo, rui_conv *c, bool *fused)
{
    dnnl_primitive_desc_t pd = rui_conv_fwd(lo, c, rui_conv_alg(lo, RUI_CONV_FWD, c), fused);
    /* what "auto" or a kept choice names may not exist with these post-ops */
    return pd != NULL ? pd : rui_conv_fwd(lo, c, dnnl_convolution_direct, fused);
}

/* For some of the images, `times` times; NULL: for all. */
static dnnl_primitive_desc_t fwd_of_parts(rui_low *lo, rui_conv *c, int64_t weights_bytes,
                                          bool *fused, uint32_t *times)
{
    enum { NEAR = 256 << 10 }; /* weights that stay in a near cache from one part to the next */
    int64_t n = c->w.n, part = rui_part_images(lo, n);
    bool was = *fused;
    *times = 1;
    if (part == n || c->post.sum || weights_bytes > NEAR) {
        return NULL;
    }
    rui_window_images(&c->w, part);
    dnnl_primitive_desc_t pd = fwd_of(lo, c, fused);
    if (pd != NULL && rui_pd_repeats(lo, pd, n / part)) {
        *times = (uint32_t)(n / part);
        return pd;
    }
    rui_pd_free(lo, pd);
    rui_window_images(&c->w, n);
    *fused = was;
    return NULL;
}

ru_status rui_lower_dnnl_conv(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_conv c = {0};
    RU_TRY(conv_call_of(lo, n, n->in[0], n->in[1], n->out[0], &c));
    c.bias = ru_node_has_in(n, 2);
    bool fused = rui_post_of_node(lo, n, &c.post) == RU_OK;
    if (!fused && !rui_act_on(n, NULL, 0)) {
        return RU_E_UNSUPPORTED;
    }
    c.post.sum = ru_node_has_in(n, 3);
    uint32_t times;
    int64_t weights_bytes = ru_type_bytes(rui_type(lo, n->in[1]));
    dnnl_primitive_desc_t pd = fwd_of_parts(lo, &c, weights_bytes, &fused, &times);
    pd = pd != NULL ? pd : fwd_of(lo, &c, &fused);
    if (pd == NULL) {
        return RU_E_UNSUPPORTED;
    }
    rui_prim p;
    rui_prim_begin(&p, lo, pd);
    p.times = times;
    rui_prim_in(&p, DNNL_ARG_SRC, n->in[0], NULL);
    rui_prim_in(&p, DNNL_ARG_WEIGHTS, n->in[1], NULL);
    if (c.bias) {
        rui_prim_in(&p, DNNL_ARG_BIAS, n->in[2], NULL);
    }
    if (c.post.sum) {
        dnnl_memory_desc_t y = rui_pd_md(lo, pd, DNNL_ARG_DST);
        rui_prim_buf(&p, DNNL_ARG_DST, rui_out_sum(lo, n->out[0], rui_layout_md(lo, &y), n->in[3]),
                     &y);
    } else {
        rui_prim_out(&p, DNNL_ARG_DST, n->out[0], NULL);
    }
    RU_TRY(rui_prim_emit(&p, "conv"));
    if (!fused) {
        rui_act_emit(lo, n);
    }
    rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    return rui_done(lo);
}

static dnnl_primitive_desc_t bwd_x_pd(rui_low *lo, const rui_conv *c, dnnl_alg_kind_t alg)
{
    const rui_window *w = &c->w;
    dnnl_memory_desc_t dx = rui_md_any(lo, w->nsp + 2, w->x_dims, c->act);
    dnnl_memory_desc_t wt = rui_md_any(lo, w->w_ndims, w->w_dims, c->act);
    dnnl_memory_desc_t dy = rui_md_any(lo, w->nsp + 2, w->y_dims, c->act);
    dnnl_convolution_desc_t cd;
    dnnl_status_t st = rui_nn(lo)->dilated_convolution_backward_data_desc_init(
        &cd, alg, &dx, &wt, &dy, w->stride, w->dilate, w->pad_l, w->pad_r);
    return rui_pd_backward(lo, st, &cd, fwd_pd(lo, c, dnnl_convolution_direct, NULL));
}

/* What `pd` makes of the first input and the weights. */
static ru_status emit_weighted(rui_low *lo, const ru_node *n, dnnl_primitive_desc_t pd_take, int in,
                               int out, const char *what)
{
    if (pd_take == NULL) {
        return RU_E_UNSUPPORTED;
    }
    rui_prim p;
    rui_prim_begin(&p, lo, pd_take);
    rui_prim_in(&p, in, n->in[0], NULL);
    rui_prim_in(&p, DNNL_ARG_WEIGHTS, n->in[1], NULL);
    rui_prim_out(&p, out, n->out[0], NULL);
    return rui_prim_emit_as(&p, what, n->out[0]);
}

/* ConvGradX(dy, w, x_like) -> dx */
ru_status rui_lower_dnnl_conv_grad_x(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_conv c = {0};
    RU_TRY(conv_call_of(lo, n, n->out[0], n->in[1], n->in[0], &c));
    dnnl_primitive_desc_t pd = bwd_x_pd(lo, &c, rui_conv_alg(lo, RUI_CONV_BWD_X, &c));
    return emit_weighted(lo, n, pd, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, "conv_bwd_d");
}

static dnnl_primitive_desc_t bwd_w_pd(rui_low *lo, const rui_conv *c, dnnl_alg_kind_t alg,
                                      const dnnl_memory_desc_t *dw)
{
    const rui_window *w = &c->w;
    dnnl_memory_desc_t x = rui_md_any(lo, w->nsp + 2, w->x_dims, c->act);
    dnnl_memory_desc_t dy = rui_md_any(lo, w->nsp + 2, w->y_dims, c->act);
    dnnl_memory_desc_t b = rui_md_vec(lo, w->co, dnnl_f32);
    dnnl_convolution_desc_t cd;
    dnnl_status_t st = rui_nn(lo)->dilated_convolution_backward_weights_desc_init(
        &cd, alg, &x, dw, c->bias ? &b : NULL, &dy, w->stride, w->dilate, w->pad_l, w->pad_r);
    return rui_pd_backward(lo, st, &cd, fwd_pd(lo, c, dnnl_convolution_direct, NULL));
}

/* dw, db? of node n from dy and x, in the layout the weights stand in when a fast kernel gives it,
 * always f32. */
static ru_status lower_grad_w(rui_low *lo, const ru_node *n, ru_value_id dy_v, ru_value_id x_v,
                              bool bias)
{
    rui_conv c = {0};
    RU_TRY(conv_call_of(lo, n, x_v, n->out[0], dy_v, &c));
    c.bias = bias;
    if (rui_graph(lo)->values[n->out[0].v].type.dtype != RU_F32) {
        return RU_E_UNSUPPORTED;
    }
    dnnl_alg_kind_t alg = rui_conv_alg(lo, RUI_CONV_BWD_W, &c);
    const rui_layout *stands = rui_standing(lo, n->in[2]);
    dnnl_primitive_desc_t pd = NULL;
    if (!stands->plain && !stands->opaque && stands->md.ndims == c.w.w_ndims) {
        dnnl_memory_desc_t as = stands->md;
        as.data_type = dnnl_f32;
        pd = bwd_w_pd(lo, &c, alg, &as);
    }
    if (pd == NULL) {
        dnnl_memory_desc_t any = rui_md_any(lo, c.w.w_ndims, c.w.w_dims, dnnl_f32);
        pd = bwd_w_pd(lo, &c, alg, &any);
    }
    if (pd == NULL) {
        return RU_E_UNSUPPORTED;
    }
    rui_prim p;
    rui_prim_begin(&p, lo, pd);
    rui_prim_in(&p, DNNL_ARG_DIFF_DST, dy_v, NULL);
    rui_prim_in(&p, DNNL_ARG_SRC, x_v, NULL);
    rui_prim_out(&p, DNNL_ARG_DIFF_WEIGHTS, n->out[0], NULL);
    if (c.bias) {
        rui_prim_out(&p, DNNL_ARG_DIFF_BIAS, n->out[1], NULL);
    }
    return rui_prim_emit(&p, "conv_bwd_w");
}

/* ConvGradW(dy, x, w_like; bias_term) -> dw, db? */
ru_status rui_lower_dnnl_conv_grad_w(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    return lower_grad_w(lo, n, n->in[0], n->in[1], ru_node_has_out(n, 1));
}

/* -- gradients of ConvTranspose: it is a convolution's gradient of the data, so its own gradients
 * are a convolution and a gradient of weights with the roles of x and dy exchanged; ONNX keeps its
 * weights as that convolution wants them. */

/* ConvTransposeGradX(dy, w, x_like) -> dx */
ru_status rui_lower_dnnl_deconv_grad_x(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_conv c = {0};
    RU_TRY(conv_call_of(lo, n, n->in[0], n->in[1], n->out[0], &c));
    dnnl_primitive_desc_t pd = fwd_pd(lo, &c, rui_conv_alg(lo, RUI_CONV_FWD, &c), NULL);
    return emit_weighted(lo, n, rui_pd_fast(lo, pd), DNNL_ARG_SRC, DNNL_ARG_DST, "deconv_bwd_d");
}

typedef struct channel_state {
    const ru_kern *k;
    int64_t samples, channels, inner;
} channel_state;

/* bufs: dy db */
static void channel_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const channel_state *s = state;
    for (int64_t c = begin; c < end; c++) {
        float sum = 0.0f;
        for (int64_t i = 0; i < s->samples; i++) {
            const float *x = (const float *)bufs[0] + (i * s->channels + c) * s->inner;
            sum += s->k->reduce(RU_KERN_RED_SUM, RU_F32, x, s->inner, 1, 0);
        }
        ((float *)bufs[1])[c] = sum;
    }
}

static ru_status channel_run(void *state, void *const *bufs, const rui_run *run)
{
    const channel_state *s = state;
    rui_kern_for(run, channel_part, s, bufs, s->channels, rui_kern_grain(s->samples * s->inner));
    return RU_OK;
}

/* ConvTransposeGradW(dy, x, w_like; bias_term) -> dw, db? */
ru_status rui_lower_dnnl_deconv_grad_w(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *t = rui_type(lo, n->in[0]);
    RU_TRY(lower_grad_w(lo, n, n->in[1], n->in[0], false));
    channel_state *s = ru_node_has_out(n, 1) ? rui_keep(lo, (int64_t)sizeof *s) : NULL;
    if (s != NULL) {
        *s = (channel_state){ru_kern_best(), t->dims[0], t->dims[1], rui_dims(t, 2, t->rank)};
        rui_buf bufs[2] = {rui_in(lo, n->in[0], rui_plain_as(lo, t, RU_F32)),
                           rui_out_plain(lo, n->out[1])};
        rui_emit(lo, &(rui_step){.kernel = "kern channel sums",
                                 .fn = channel_run,
                                 .state = s,
                                 .bufs = bufs,
                                 .n_bufs = 2});
    }
    return rui_done(lo);
}

dnnl_primitive_desc_t rui_conv_bwd(rui_low *lo, rui_conv_dir dir, const rui_conv *c,
                                   dnnl_alg_kind_t alg)
{
    if (dir == RUI_CONV_BWD_X) {
        return bwd_x_pd(lo, c, alg);
    }
    dnnl_memory_desc_t any = rui_md_any(lo, c->w.w_ndims, c->w.w_dims, dnnl_f32);
    return bwd_w_pd(lo, c, alg, &any);
}
