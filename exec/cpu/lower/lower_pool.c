/* Pooling, forward and backward. Training keeps the workspace of a maximum pool (where each maximum
 * stood) under the output's name for its gradient. */
#include "exec/cpu/low/conv.h"

typedef struct pool_call {
    rui_window w;
    dnnl_data_type_t dt;
    dnnl_alg_kind_t alg;
} pool_call;

static bool is_global(ru_op op)
{
    return op == RU_OP_GlobalAveragePool || op == RU_OP_GlobalMaxPool ||
           op == RU_OP_GlobalAveragePoolGrad || op == RU_OP_GlobalMaxPoolGrad;
}

static bool is_max(ru_op op)
{
    return op == RU_OP_MaxPool || op == RU_OP_GlobalMaxPool || op == RU_OP_MaxPoolGrad ||
           op == RU_OP_GlobalMaxPoolGrad;
}

/* ONNX counts no cell that only ceil_mode added; oneDNN's including average would. */
static ru_status pool_call_of(rui_low *lo, const ru_node *n, ru_value_id x, ru_value_id y,
                              pool_call *c)
{
    const ru_graph *g = rui_graph(lo);
    const ru_type *tx = &g->values[x.v].type;
    bool whole = tx->dtype == RU_U8 || tx->dtype == RU_I8;
    if (tx->dtype != RU_F32 && tx->dtype != RU_BF16 && !(whole && n->op == RU_OP_MaxPool)) {
        return RU_E_UNSUPPORTED;
    }
    RU_TRY(rui_window_of(n, tx, NULL, &g->values[y.v].type, false, is_global(n->op), &c->w));
    bool include = ru_node_int(n, RU_ATTR_count_include_pad, 0) != 0;
    c->alg = is_max(n->op) ? dnnl_pooling_max
             : include     ? dnnl_pooling_avg_include_padding
                           : dnnl_pooling_avg_exclude_padding;
    if (!is_max(n->op) && include && ru_node_int(n, RU_ATTR_ceil_mode, 0) != 0) {
        return RU_E_UNSUPPORTED;
    }
    if (is_max(n->op) && !whole) {
        if (rui_options(lo)->keep_nan) {
            return RU_E_UNSUPPORTED;
        }
        rui_drops_nan(lo);
    }
    return RU_OK;
}

/* In the layout the input stands in, as long as it is one of activations (any rank-equal order). */
static dnnl_memory_desc_t standing_md(rui_low *lo, ru_value_id v, const pool_call *c)
{
    const rui_layout *l = rui_standing(lo, v);
    dnnl_memory_desc_t md = l->md;
    if (l->opaque || md.ndims != c->w.nsp + 2 || md.data_type != c->dt) {
        md = rui_md_plain(lo, c->w.nsp + 2, c->w.x_dims, c->dt);
    }
    return md;
}

static dnnl_primitive_desc_t fwd_pd(rui_low *lo, const pool_call *c, const dnnl_memory_desc_t *x,
                                    bool train)
{
    const rui_window *w = &c->w;
    dnnl_memory_desc_t y = rui_md_any(lo, w->nsp + 2, w->y_dims, x->data_type);
    dnnl_pooling_v2_desc_t d;
    dnnl_status_t st = rui_nn(lo)->pooling_v2_forward_desc_init(
        &d, train ? dnnl_forward_training : dnnl_forward_inference, c->alg, x, &y, w->stride,
        w->kernel, w->dilate, w->pad_l, w->pad_r);
    return rui_pd_make(lo, st, &d, NULL);
}

static dnnl_primitive_desc_t of_images(rui_low *lo, pool_call *c, dnnl_memory_desc_t *x, int64_t n,
                                       bool train)
{
    rui_window_images(&c->w, n);
    x->dims[0] = x->padded_dims[0] = n;
    return fwd_pd(lo, c, x, train);
}

ru_status rui_lower_dnnl_pool(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    pool_call c = {0};
    RU_TRY(pool_call_of(lo, n, n->in[0], n->out[0], &c));
    if (ru_node_has_out(n, 1)) {
        return RU_E_UNSUPPORTED; /* indices in ONNX's numbering */
    }
    c.dt = rui_dnnl_type(rui_store_dtype(lo, n->in[0]));
    dnnl_memory_desc_t x = standing_md(lo, n->in[0], &c);
    bool train = is_max(n->op) && !rui_inference(lo);
    int64_t images = c.w.n, part = rui_part_images(lo, images);
    dnnl_primitive_desc_t pd = rui_pd_fast(lo, of_images(lo, &c, &x, part, train));
    if (pd != NULL && part < images && !rui_pd_repeats(lo, pd, images / part)) {
        rui_pd_free(lo, pd);
        part = images;
        pd = rui_pd_fast(lo, of_images(lo, &c, &x, part, train));
    }
    if (pd == NULL) {
        return RU_E_UNSUPPORTED;
    }
    dnnl_memory_desc_t y = rui_pd_md(lo, pd, DNNL_ARG_DST);
    dnnl_memory_desc_t ws = rui_pd_md(lo, pd, DNNL_ARG_WORKSPACE);
    rui_prim p;
    rui_prim_begin(&p, lo, pd);
    p.times = (uint32_t)(images / part);
    rui_prim_in(&p, DNNL_ARG_SRC, n->in[0], &x);
    rui_prim_out(&p, DNNL_ARG_DST, n->out[0], &y);
    if (train && ws.ndims != 0) {
        rui_buf b = rui_workspace(lo, (int64_t)rui_nn(lo)->memory_desc_get_size(&ws));
        rui_prim_buf(&p, DNNL_ARG_WORKSPACE, b, &ws);
        dnnl_memory_desc_t *mds = rui_keep(lo, 2 * (int64_t)sizeof *mds);
        if (mds != NULL) {
            mds[0] = x;
            mds[1] = y;
            rui_note(lo, n->out[0], b, mds);
        }
    }
    return rui_prim_emit(&p, "pool");
}

static ru_status grad_emit(rui_low *lo, const ru_node *n, const pool_call *c,
                           const dnnl_memory_desc_t *x, dnnl_memory_desc_t dy, rui_buf workspace)
{
    const rui_window *w = &c->w;
    bool max = is_max(n->op);
    dnnl_primitive_desc_t hint = fwd_pd(lo, c, x, max);
    if (hint == NULL) {
        return RU_E_UNSUPPORTED;
    }
    dnnl_memory_desc_t ws = rui_pd_md(lo, hint, DNNL_ARG_WORKSPACE);
    dy = dy.ndims == 0 ? rui_pd_md(lo, hint, DNNL_ARG_DST) : dy;
    dnnl_pooling_v2_desc_t d;
    dnnl_status_t st = rui_nn(lo)->pooling_v2_backward_desc_init(
        &d, c->alg, x, &dy, w->stride, w->kernel, w->dilate, w->pad_l, w->pad_r);
    dnnl_primitive_desc_t pd = rui_pd_backward(lo, st, &d, hint);
    if (pd == NULL) {
        return RU_E_UNSUPPORTED;
    }
    rui_prim p;
    rui_prim_begin(&p, lo, pd);
    rui_prim_in(&p, DNNL_ARG_DIFF_DST, n->in[0], &dy);
    if (max) {
        rui_prim_buf(&p, DNNL_ARG_WORKSPACE, workspace, &ws);
    }
    rui_prim_out(&p, DNNL_ARG_DIFF_SRC, n->out[0], x);
    return rui_prim_emit(&p, "pool_bwd");
}

/* MaxPoolGrad(dy, x, y, indices?), GlobalMaxPoolGrad(dy, x, y) */
ru_status rui_lower_dnnl_max_pool_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    pool_call c = {0};
    rui_buf ws = {0};
    const void *note = NULL;
    RU_TRY(pool_call_of(lo, n, n->in[1], n->in[2], &c));
    if (!rui_noted(lo, n->in[2], &ws, &note)) {
        return RU_E_UNSUPPORTED;
    }
    const dnnl_memory_desc_t *mds = note;
    return grad_emit(lo, n, &c, &mds[0], mds[1], ws);
}

/* AveragePoolGrad(dy, x_like), GlobalAveragePoolGrad(dy, x_like): in the order x stands in. */
ru_status rui_lower_dnnl_avg_pool_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    pool_call c = {0};
    RU_TRY(pool_call_of(lo, n, n->in[1], n->in[0], &c));
    c.dt = rui_dnnl_type(rui_store_dtype(lo, n->out[0]));
    dnnl_memory_desc_t x = standing_md(lo, n->in[1], &c);
    return grad_emit(lo, n, &c, &x, (dnnl_memory_desc_t){0}, (rui_buf){0});
}
