/* Transposed convolution (forward) and local response normalisation on oneDNN.
 *
 * ONNX stores the weights of ConvTranspose as [in, out/groups, k...]; oneDNN speaks of
 * [groups, out/groups, in/groups, k...]. The same bytes are read through strides. */
#include <string.h>

#include "exec/cpu/low/conv.h"

/* The weights' dims in oneDNN's order and the strides that find them in ONNX's memory. */
static dnnl_memory_desc_t weights_seen(rui_low *lo, const rui_window *w, dnnl_data_type_t dt)
{
    int64_t dims[DNNL_MAX_NDIMS];
    int64_t strides[DNNL_MAX_NDIMS];
    int64_t k = 1;
    int at = w->w_ndims;
    for (int d = w->nsp - 1; d >= 0; d--) {
        dims[--at] = w->kernel[d];
        strides[at] = k;
        k *= w->kernel[d];
    }
    int64_t out = w->co / w->groups;
    int64_t in = w->ci / w->groups;
    dims[--at] = in;
    strides[at] = out * k;
    dims[--at] = out;
    strides[at] = k;
    if (at > 0) {
        dims[0] = w->groups;
        strides[0] = in * out * k;
    }
    return rui_md_strided(lo, w->w_ndims, dims, strides, dt);
}

static dnnl_primitive_desc_t deconv_pd(rui_low *lo, const rui_window *w, dnnl_data_type_t dt,
                                       bool bias, const rui_post *post)
{
    dnnl_memory_desc_t x = rui_md_any(lo, w->nsp + 2, w->x_dims, dt);
    dnnl_memory_desc_t wt = rui_md_any(lo, w->w_ndims, w->w_dims, dt);
    dnnl_memory_desc_t y = rui_md_any(lo, w->nsp + 2, w->y_dims, dt);
    dnnl_memory_desc_t b = rui_md_vec(lo, w->co, dnnl_f32);
    dnnl_deconvolution_desc_t d;
    dnnl_status_t st = rui_nn(lo)->dilated_deconvolution_forward_desc_init(
        &d, dnnl_forward_training, dnnl_deconvolution_direct, &x, &wt, bias ? &b : NULL, &y,
        w->stride, w->dilate, w->pad_l, w->pad_r);
    return rui_pd_fast(lo, rui_pd_make(lo, st, &d, post));
}

/* ConvTranspose(x, w, bias?, residual?; activation) */
ru_status rui_lower_dnnl_deconv(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_graph *g = rui_graph(lo);
    const ru_type *tx = &g->values[n->in[0].v].type;
    rui_window w;
    rui_post post = {0};
    if (tx->dtype != RU_F32 || ru_node_has_in(n, 3)) {
        return RU_E_UNSUPPORTED;
    }
    RU_TRY(rui_window_of(n, tx, &g->values[n->in[1].v].type, &g->values[n->out[0].v].type, true,
                         false, &w));
    RU_TRY(rui_post_of_node(lo, n, &post));
    dnnl_data_type_t dt = rui_bf16(lo) ? dnnl_bf16 : dnnl_f32;
    bool bias = ru_node_has_in(n, 2);
    dnnl_primitive_desc_t pd = deconv_pd(lo, &w, dt, bias, &post);
    if (pd == NULL) {
        return RU_E_UNSUPPORTED;
    }
    dnnl_memory_desc_t wt = rui_pd_md(lo, pd, DNNL_ARG_WEIGHTS);
    dnnl_memory_desc_t seen = weights_seen(lo, &w, dnnl_f32);
    rui_prim p;
    rui_prim_begin(&p, lo, pd);
    rui_prim_in(&p, DNNL_ARG_SRC, n->in[0], NULL);
    rui_prim_buf(&p, DNNL_ARG_WEIGHTS, rui_in_as(lo, n->in[1], &seen, &wt), NULL);
    if (bias) {
        rui_prim_in(&p, DNNL_ARG_BIAS, n->in[2], NULL);
    }
    rui_prim_out(&p, DNNL_ARG_DST, n->out[0], NULL);
    return rui_prim_emit(&p, "deconv");
}

/* LRN(x; size, alpha, beta, bias) across channels. */
ru_status rui_lower_dnnl_lrn(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *t = &rui_graph(lo)->values[n->in[0].v].type;
    int64_t size = ru_node_int(n, RU_ATTR_size, 1);
    if (t->dtype != RU_F32 || t->rank != 4 || size % 2 == 0 || ru_type_count(t) <= 0) {
        return RU_E_UNSUPPORTED;
    }
    const rui_layout *l = rui_standing(lo, n->in[0]);
    dnnl_memory_desc_t x = l->md.ndims == 4 && l->type.dtype == RU_F32 && !l->opaque
                               ? l->md
                               : rui_md_plain(lo, 4, t->dims, dnnl_f32);
    dnnl_lrn_desc_t d;
    dnnl_status_t st = rui_nn(lo)->lrn_forward_desc_init(
        &d, dnnl_forward_inference, dnnl_lrn_across_channels, &x, size,
        (float)ru_node_float(n, RU_ATTR_alpha, 1e-4), (float)ru_node_float(n, RU_ATTR_beta, 0.75),
        (float)ru_node_float(n, RU_ATTR_bias, 1.0));
    dnnl_primitive_desc_t pd = rui_pd_make(lo, st, &d, NULL);
    if (pd == NULL) {
        return RU_E_UNSUPPORTED;
    }
    rui_prim p;
    rui_prim_begin(&p, lo, pd);
    rui_prim_in(&p, DNNL_ARG_SRC, n->in[0], &x);
    rui_prim_out(&p, DNNL_ARG_DST, n->out[0], NULL);
    return rui_prim_emit(&p, "lrn");
}
