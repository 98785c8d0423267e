/* What the lowerings of recurrent layers share. */
#include "exec/cpu/lower/lower_rnn.h"

#include <string.h>
#include <strings.h>

#include "exec/cpu/low/conv.h"
#include "exec/cpu/low/low.h"

bool rui_rnn_dims_of(rui_low *lo, const ru_node *n, uint32_t x, int64_t gates, rui_rnn_dims *d)
{
    const ru_type *xt = rui_type(lo, n->in[x]), *r = rui_type(lo, n->in[x + 2]);
    const char *direction = ru_node_str(n, RU_ATTR_direction, "forward");
    *d = (rui_rnn_dims){.steps = xt->dims[0],
                        .batch = xt->dims[1],
                        .in = xt->dims[2],
                        .hidden = r->dims[2],
                        .dirs = r->dims[0],
                        .gates = gates,
                        .reverse_first = strcmp(direction, "reverse") == 0};
    return xt->dtype == RU_F32 && r->dtype == RU_F32 && ru_type_count(xt) > 0 &&
           ru_node_int(n, RU_ATTR_layout, 0) == 0 && ru_node_attr(n, RU_ATTR_clip) == NULL &&
           ru_node_int(n, RU_ATTR_input_forget, 0) == 0;
}

bool rui_rnn_activations(const ru_node *n, const char *const *names, uint32_t count,
                         bool by_default)
{
    const ru_attr *a = ru_node_attr(n, RU_ATTR_activations);
    bool same = a == NULL ? by_default : a->kind == RU_ATTR_STRS && a->n % count == 0;
    for (uint32_t k = 0; same && a != NULL && k < a->n; k++) {
        same = strcasecmp(a->u.ss[k], names[k % count]) == 0;
    }
    return same;
}

rui_buf rui_rnn_in(rui_low *lo, const ru_node *n, uint32_t k)
{
    return ru_node_has_in(n, k)
               ? rui_in(lo, n->in[k], rui_plain_as(lo, rui_type(lo, n->in[k]), RU_F32))
               : (rui_buf){0};
}

rui_buf rui_rnn_out(rui_low *lo, const ru_node *n, uint32_t k)
{
    return ru_node_has_out(n, k)
               ? rui_out(lo, n->out[k], rui_plain_as(lo, rui_type(lo, n->out[k]), RU_F32))
               : (rui_buf){0};
}

/* Piece `i` of `parts` equal pieces; the whole when there is one. */
rui_buf rui_rnn_piece(rui_low *lo, rui_buf b, int64_t i, int64_t parts, int64_t all_bytes)
{
    return b.v == 0 || parts == 1 ? b
                                  : rui_buf_part(lo, b, all_bytes / parts * i, all_bytes / parts);
}

rui_buf rui_rnn_floats(rui_low *lo, int64_t n)
{
    return rui_scratch(lo, n * (int64_t)sizeof(float));
}

rui_buf rui_rnn_pack(rui_low *lo, const ru_node *n, rui_rnn_pack_fn pack, void *state,
                     int64_t floats, int64_t hidden, rui_buf r, rui_buf b)
{
    bool frozen =
        lo->vals[n->in[2].v].frozen && (!ru_node_has_in(n, 3) || lo->vals[n->in[3].v].frozen);
    int64_t bytes = floats * (int64_t)sizeof(float);
    rui_buf packed = frozen ? rui_buf_new(lo, RUI_BUF_PACKED, bytes) : rui_workspace(lo, bytes);
    rui_buf bufs[4] = {r, b, packed, rui_rnn_floats(lo, 96 * hidden)};
    rui_step step = {
        .kernel = "kern rnn pack", .fn = pack, .state = state, .bufs = bufs, .n_bufs = 4};
    rui_emit_to(lo, frozen ? &lo->prep : &lo->run, &step, frozen ? 0 : lo->node);
    return packed;
}

/* -- products ------------------------------------------------------------------------------------
 */

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

/* -- threads of a recurrence ---------------------------------------------------------------------
 */

bool rui_rnn_splits_units(const rui_low *lo, const rui_rnn_dims *d)
{
    /* Multiplications of a step that take about 4 us on one core. */
    enum { WORTH = 1 << 16 };
    return d->batch < (int64_t)rui_threads(lo) && d->gates * d->hidden * d->hidden >= WORTH;
}

int64_t rui_rnn_rows(const rui_low *lo, const rui_rnn_dims *d)
{
    int64_t threads = (int64_t)rui_threads(lo);
    return rui_rnn_splits_units(lo, d) ? d->batch : (d->batch + threads - 1) / threads;
}

typedef struct recurrence {
    rui_rnn_forward fn;
    const void *job;
    int64_t batch;
    bool by_units;
    float *work;
    int64_t floats;
} recurrence;

static void run_share(void *arg, uint32_t thread, uint32_t threads)
{
    const recurrence *r = arg;
    float *work = r->work + (int64_t)thread * r->floats;
    ru_kern_share mine = {.n1 = r->batch, .threads = 1, .state = work, .work = work};
    if (r->by_units) {
        RU_CHECK(thread < threads);
        mine.thread = thread;
        mine.threads = threads;
        mine.state = r->work;
        mine.wait = ru_pool_wait;
    } else {
        ru_pool_split(r->batch, 1, thread, threads, &mine.n0, &mine.n1);
    }
    if (mine.n0 < mine.n1) {
        r->fn(r->job, &mine);
    }
}

void rui_rnn_run(const rui_run *run, rui_rnn_forward fn, const void *job, int64_t batch,
                 bool by_units, float *work, int64_t floats)
{
    RU_CHECK(batch > 0 && floats > 0 && work != NULL);
    recurrence r = {fn, job, batch, by_units, work, floats};
    if (ru_pool_threads(run->pool) == 1 || (batch == 1 && !by_units)) {
        run_share(&r, 0, 1);
    } else {
        ru_pool_run(run->pool, run_share, &r);
    }
}
