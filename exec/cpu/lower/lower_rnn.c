/* Products of all time steps of a recurrent layer at once. */
#include "exec/cpu/lower/lower_rnn.h"

#include "exec/cpu/low/conv.h"
#include "exec/cpu/low/low.h"

/* Piece `i` of `parts` equal pieces; the whole when there is one. */
rui_buf rui_rnn_piece(rui_low *lo, rui_buf b, int64_t i, int64_t parts, int64_t all_bytes)
{
    return b.v == 0 || parts == 1 ? b
                                  : rui_buf_part(lo, b, all_bytes / parts * i, all_bytes / parts);
}

static dnnl_primitive_desc_t product_pd(rui_low *lo, const dnnl_memory_desc_t *a,
                                        const dnnl_memory_desc_t *b, const dnnl_memory_desc_t *c,
                                        const rui_post *post)
{
    dnnl_matmul_desc_t d;
    dnnl_status_t st = rui_nn(lo)->matmul_desc_init(&d, a, b, NULL, c);
    return rui_pd_make(lo, st, &d, post);
}

ru_dtype rui_rnn_dtype(rui_low *lo)
{
    if (!rui_bf16(lo)) {
        return RU_F32;
    }
    enum { N = 16 };
    dnnl_memory_desc_t a = rui_rnn_md(lo, N, N, N, 1, RU_BF16),
                       c = rui_rnn_md(lo, N, N, N, 1, RU_F32);
    dnnl_primitive_desc_t pd = product_pd(lo, &a, &a, &c, NULL);
    rui_pd_free(lo, pd);
    return pd != NULL ? RU_BF16 : RU_F32;
}

static bool strided_f32(const dnnl_memory_desc_t *md)
{
    return md->data_type == dnnl_f32 && md->format_kind == dnnl_blocked &&
           md->format_desc.blocking.inner_nblks == 0;
}

ru_status rui_rnn_emit(rui_low *lo, const rui_rnn_product *m)
{
    const dnnl_dim_t *as = m->a.format_desc.blocking.strides,
                     *bs = m->b.format_desc.blocking.strides;
    if (!m->prep && strided_f32(&m->a) && strided_f32(&m->b) && strided_f32(&m->c) &&
        rui_product_pays(m->c.dims[0], m->c.dims[1], m->a.dims[1], as[0])) {
        ru_kern_product g = {.m = m->c.dims[0],
                             .n = m->c.dims[1],
                             .k = m->a.dims[1],
                             .a_row = as[0],
                             .a_col = as[1],
                             .b_row = bs[0],
                             .b_col = bs[1],
                             .c_row = m->c.format_desc.blocking.strides[0],
                             .alpha = 1.0f,
                             .add = m->add};
        return rui_product_emit(lo, &g, m->ab, m->bb, (rui_buf){0}, m->cb);
    }
    rui_post post = {.sum = m->add};
    dnnl_primitive_desc_t pd = product_pd(lo, &m->a, &m->b, &m->c, &post);
    if (pd == NULL) {
        return rui_fail(lo, RU_E_UNSUPPORTED, "oneDNN has no product for this recurrent layer");
    }
    rui_prim p;
    rui_prim_begin(&p, lo, pd);
    p.prep = m->prep;
    rui_prim_buf(&p, DNNL_ARG_SRC, m->ab, &m->a);
    rui_prim_buf(&p, DNNL_ARG_WEIGHTS, m->bb, &m->b);
    rui_prim_buf(&p, DNNL_ARG_DST, m->cb, &m->c);
    return rui_prim_emit(&p, "matmul");
}

dnnl_memory_desc_t rui_rnn_md(rui_low *lo, int64_t rows, int64_t cols, int64_t row_step,
                              int64_t col_step, ru_dtype t)
{
    return rui_md_strided(lo, 2, (int64_t[]){rows, cols}, (int64_t[]){row_step, col_step},
                          rui_dnnl_type(t));
}

/* pre = X W^T. Frozen weights of one direction are packed as the product likes them. */
ru_status rui_rnn_input(rui_low *lo, const rui_rnn_dims *d, ru_dtype t, rui_buf x, ru_value_id w,
                        int64_t dir, rui_buf pre)
{
    int64_t g = d->gates * d->hidden, all = d->steps * d->batch;
    rui_rnn_product m = {.a = rui_rnn_md(lo, all, d->in, d->in, 1, t),
                         .b = rui_rnn_md(lo, d->in, g, 1, d->in, t),
                         .c = rui_rnn_md(lo, all, g, g, 1, RU_F32),
                         .ab = x,
                         .cb = pre};
    const ru_type *wt = rui_type(lo, w);
    if (d->dirs == 1 && lo->vals[w.v].frozen) {
        dnnl_memory_desc_t seen = rui_rnn_md(lo, d->in, g, 1, d->in, wt->dtype);
        dnnl_memory_desc_t any = rui_md_any(lo, 2, (int64_t[]){d->in, g}, rui_dnnl_type(t));
        dnnl_primitive_desc_t pd = product_pd(lo, &m.a, &any, &m.c, NULL);
        if (pd != NULL) {
            m.b = rui_pd_md(lo, pd, DNNL_ARG_WEIGHTS);
            rui_pd_free(lo, pd);
            m.bb = rui_in_as(lo, w, &seen, &m.b);
            return rui_rnn_emit(lo, &m);
        }
    }
    m.bb = rui_rnn_piece(lo, rui_in(lo, w, rui_plain_as(lo, wt, t)), dir, d->dirs,
                         d->dirs * g * d->in * ru_dtype_bytes(t));
    return rui_rnn_emit(lo, &m);
}

/* dX, dW, dR of one direction from dG. */
ru_status rui_rnn_grads(rui_low *lo, const rui_rnn_dims *d, ru_dtype t, ru_dtype dx_t,
                        const rui_rnn_product *io, int64_t dir)
{

    int64_t all = d->steps * d->batch, g = d->gates * d->hidden, h = d->hidden;
    if (io[0].cb.v != 0) {
        rui_rnn_product m = {.a = rui_rnn_md(lo, all, g, g, 1, t),
                             .b = rui_rnn_md(lo, g, d->in, d->in, 1, t),
                             .c = rui_rnn_md(lo, all, d->in, d->in, 1, dx_t),
                             .ab = io[1].ab,
                             .bb = io[0].bb,
                             .cb = io[0].cb,
                             .add = dir > 0};
        RU_TRY(rui_rnn_emit(lo, &m));
    }
    if (io[1].cb.v != 0) {
        rui_rnn_product m = {.a = rui_rnn_md(lo, g, all, 1, g, t),
                             .b = rui_rnn_md(lo, all, d->in, d->in, 1, t),
                             .c = rui_rnn_md(lo, g, d->in, d->in, 1, RU_F32),
                             .ab = io[1].ab,
                             .bb = io[0].ab,
                             .cb = io[1].cb};
        RU_TRY(rui_rnn_emit(lo, &m));
    }
    if (io[2].cb.v != 0) {
        rui_rnn_product m = {.a = rui_rnn_md(lo, g, all, 1, g, t),
                             .b = rui_rnn_md(lo, all, h, h, 1, t),
                             .c = rui_rnn_md(lo, g, h, h, 1, RU_F32),
                             .ab = io[2].ab.v != 0 ? io[2].ab : io[1].ab,
                             .bb = io[1].bb,
                             .cb = io[2].cb};
        RU_TRY(rui_rnn_emit(lo, &m));
    }
    return rui_done(lo);
}
