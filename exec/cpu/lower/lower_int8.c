/* Products of 8-bit integers on oneDNN: sums of 32 bits, scaled, activated and cut to 8 bits again
 * in the kernel, so that between layers only bytes move.
 *
 * Scales are applied by the library before the activation, which works on real numbers; the step
 * to the output's scale is the activation's factor, or part of the scales when there is none. */
#include <string.h>

#include "exec/cpu/low/conv.h"
#include "exec/cpu/lower/lower_kern.h"

typedef struct int8_call {
    dnnl_data_type_t x, y;
    int64_t channels;
    bool bias;
    rui_post post;
} int8_call;

/* RU_E_UNSUPPORTED: not for oneDNN. `mask` is that of the axis of channels. */
static ru_status call_of(rui_low *lo, const ru_node *n, int64_t channels, int mask, int8_call *c)
{
    const ru_graph *g = rui_graph(lo);
    const ru_value *scale = &g->values[n->in[2].v];
    ru_dtype out = rui_type(lo, n->out[0])->dtype;
    int64_t n_scales = ru_type_count(&scale->type);
    if (scale->kind != RU_VALUE_CONST || scale->data == NULL ||
        rui_post_of_whole(n, &c->post) != RU_OK) {
        return RU_E_UNSUPPORTED;
    }
    float *s = rui_keep(lo, n_scales * (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    double y_scale = out == RU_F32 ? 1 : ru_node_float(n, RU_ATTR_y_scale, 1);
    for (int64_t k = 0; k < n_scales; k++) {
        double x = (double)((const float *)scale->data)[k];
        s[k] = (float)(c->post.has_act ? x : x / y_scale);
    }
    c->x = rui_dnnl_type(rui_type(lo, n->in[0])->dtype);
    c->y = rui_dnnl_type(out);
    c->channels = channels;
    c->bias = ru_node_has_in(n, 3);
    c->post.scales = s;
    c->post.n_scales = n_scales;
    c->post.scales_mask = n_scales > 1 ? mask : 0;
    c->post.act_scale = (float)(1 / y_scale);
    c->post.x_zero = (int32_t)ru_node_int(n, RU_ATTR_x_zero, 0);
    c->post.y_zero = out == RU_F32 ? 0 : (int32_t)ru_node_int(n, RU_ATTR_y_zero, 0);
    return RU_OK;
}

/* `seen`: how oneDNN sees the weights where they stand; NULL: as they are. */
static ru_status emit(rui_low *lo, const ru_node *n, const int8_call *c, dnnl_primitive_desc_t pd,
                      const dnnl_memory_desc_t *seen, const char *what)
{
    if (pd == NULL) {
        return RU_E_UNSUPPORTED;
    }
    dnnl_memory_desc_t w = rui_pd_md(lo, pd, DNNL_ARG_WEIGHTS);
    rui_prim p;
    rui_prim_begin(&p, lo, pd);
    rui_prim_in(&p, DNNL_ARG_SRC, n->in[0], NULL);
    rui_prim_buf(&p, DNNL_ARG_WEIGHTS,
                 seen != NULL ? rui_in_as(lo, n->in[1], seen, &w)
                              : rui_in(lo, n->in[1], rui_layout_md(lo, &w)),
                 NULL);
    if (c->bias) {
        rui_prim_in(&p, DNNL_ARG_BIAS, n->in[3], NULL);
    }
    rui_prim_out(&p, DNNL_ARG_DST, n->out[0], NULL);
    return rui_prim_emit_as(&p, what, n->out[0]);
}

ru_status rui_lower_dnnl_conv_int8(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    int8_call c = {0};
    rui_window w;
    const ru_type *ty = rui_type(lo, n->out[0]);
    RU_TRY(rui_window_of(n, rui_type(lo, n->in[0]), rui_type(lo, n->in[1]), ty, false, false, &w));
    RU_TRY(call_of(lo, n, w.co, 1 << 1, &c));
    dnnl_memory_desc_t x = rui_md_any(lo, w.nsp + 2, w.x_dims, c.x);
    dnnl_memory_desc_t wt = rui_md_any(lo, w.w_ndims, w.w_dims, dnnl_s8);
    dnnl_memory_desc_t y = rui_md_any(lo, w.nsp + 2, w.y_dims, c.y);
    dnnl_memory_desc_t b = rui_md_vec(lo, w.co, dnnl_s32);
    dnnl_convolution_desc_t cd;
    dnnl_status_t st = rui_nn(lo)->dilated_convolution_forward_desc_init(
        &cd, dnnl_forward_inference, dnnl_convolution_direct, &x, &wt, c.bias ? &b : NULL, &y,
        w.stride, w.dilate, w.pad_l, w.pad_r);
    dnnl_primitive_desc_t pd = rui_pd_fast(lo, rui_pd_make(lo, st, &cd, &c.post));
    return emit(lo, n, &c, pd, NULL, "conv int8");
}

/* [.., K] times [K, N]: two-dimensional whatever the leading dims are. */
ru_status rui_lower_dnnl_matmul_int8(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    int8_call c = {0};
    const ru_type *ta = rui_type(lo, n->in[0]), *ty = rui_type(lo, n->out[0]);
    int64_t k = ta->dims[ta->rank - 1], cols = ty->dims[ty->rank - 1];
    if (ru_type_count(ta) <= 0 || ru_type_count(ty) <= 0) {
        return RU_E_UNSUPPORTED;
    }
    const int64_t a_dims[2] = {ru_type_count(ta) / k, k}, w_dims[2] = {k, cols};
    const int64_t y_dims[2] = {a_dims[0], cols}, b_dims[2] = {1, cols}, turned[2] = {1, k};
    bool is_turned = ru_node_int(n, RU_ATTR_transB, 0) != 0;
    RU_TRY(call_of(lo, n, cols, 1 << 1, &c));
    dnnl_memory_desc_t a = rui_md_plain(lo, 2, a_dims, c.x), y = rui_md_plain(lo, 2, y_dims, c.y);
    dnnl_memory_desc_t w = rui_md_any(lo, 2, w_dims, dnnl_s8);
    dnnl_memory_desc_t b = rui_md_plain(lo, 2, b_dims, dnnl_s32);
    dnnl_matmul_desc_t md;
    dnnl_status_t st = rui_nn(lo)->matmul_desc_init(&md, &a, &w, c.bias ? &b : NULL, &y);
    dnnl_primitive_desc_t pd = rui_pd_fast(lo, rui_pd_make(lo, st, &md, &c.post));
    dnnl_memory_desc_t seen = is_turned ? rui_md_strided(lo, 2, w_dims, turned, dnnl_s8)
                                        : rui_md_plain(lo, 2, w_dims, dnnl_s8);
    return emit(lo, n, &c, pd, &seen, "matmul int8");
}
