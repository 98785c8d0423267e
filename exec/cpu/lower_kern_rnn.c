/* LSTM: large products through oneDNN for all time steps at once, the recurrence on our kernel.
 *
 *   forward, per direction:   pre = X W^T (oneDNN);  recurrence gives ws, Y (kernel)
 *   backward, per direction:  recurrence gives dG and H' (kernel);
 *                             dX += dG W, dW = dG^T X, dR = dG^T H' (oneDNN), dB = column sums of
 * dG
 *
 * When X is an embedding with fewer rows than there are time steps times samples, rows of equal
 * tokens are equal: E W^T is one small product and its rows are looked up, and backward dG is
 * summed by token first, so that dE = S W and dW = S^T E are small too.
 *
 * H' is h of the step before. Sequence lengths, peepholes, clipping and other activations than the
 * standard's defaults run on the reference kernel. */
#include <string.h>

#include "exec/cpu/low.h"
#include "exec/cpu/lower_kern.h"
#include "exec/cpu/prim.h"

typedef struct lstm_dims {
    int64_t steps, batch, in, hidden, dirs;
    bool reverse_first;
} lstm_dims;

typedef struct lstm_state {
    const ru_kern *k;
    ru_kern_lstm proto;
    int64_t work;   /* floats of one thread */
    int64_t packed; /* floats of packed R */
    uint32_t threads;
    ru_dtype t;
    bool pairs; /* R packed as bf16 */
} lstm_state;

/* False when the node asks for what the kernel does not do. `x` is the place of X among the inputs.
 */
static bool read_dims(rui_low *lo, const ru_node *n, uint32_t x, lstm_dims *d)
{
    const ru_type *xt = rui_type(lo, n->in[x]), *r = rui_type(lo, n->in[x + 2]);
    const char *direction = ru_node_str(n, RU_ATTR_direction, "forward");
    *d = (lstm_dims){.steps = xt->dims[0],
                     .batch = xt->dims[1],
                     .in = xt->dims[2],
                     .hidden = r->dims[2],
                     .dirs = r->dims[0],
                     .reverse_first = strcmp(direction, "reverse") == 0};
    return xt->dtype == RU_F32 && r->dtype == RU_F32 && ru_type_count(xt) > 0 &&
           ru_node_int(n, RU_ATTR_layout, 0) == 0 && ru_node_attr(n, RU_ATTR_activations) == NULL &&
           ru_node_attr(n, RU_ATTR_clip) == NULL && ru_node_int(n, RU_ATTR_input_forget, 0) == 0;
}

/* The same for the forward pass, LSTM or LSTMTrain. */
static bool forward_fits(rui_low *lo, const ru_node *n, lstm_dims *d)
{
    return read_dims(lo, n, 0, d) && !ru_node_has_in(n, 4) && !ru_node_has_in(n, 7);
}

static rui_buf in_f32(rui_low *lo, const ru_node *n, uint32_t k)
{
    return ru_node_has_in(n, k)
               ? rui_in(lo, n->in[k], rui_plain_as(lo, rui_type(lo, n->in[k]), RU_F32))
               : (rui_buf){0};
}

static rui_buf out_f32(rui_low *lo, const ru_node *n, uint32_t k)
{
    return ru_node_has_out(n, k)
               ? rui_out(lo, n->out[k], rui_plain_as(lo, rui_type(lo, n->out[k]), RU_F32))
               : (rui_buf){0};
}

/* Piece `i` of `parts` equal pieces; the whole when there is one. */
static rui_buf piece(rui_low *lo, rui_buf b, int64_t i, int64_t parts, int64_t all_bytes)
{
    return b.v == 0 || parts == 1 ? b
                                  : rui_buf_part(lo, b, all_bytes / parts * i, all_bytes / parts);
}

static rui_buf floats(rui_low *lo, int64_t n)
{
    return rui_scratch(lo, n * (int64_t)sizeof(float));
}

/* -- products ------------------------------------------------------------------------------------
 */

typedef struct product {
    dnnl_memory_desc_t a, b, c;
    rui_buf ab, bb, cb;
    bool add;  /* c += */
    bool prep; /* of what never changes: made once */
} product;

static ru_status emit_product(rui_low *lo, const product *m)
{
    rui_post post = {.sum = m->add};
    dnnl_matmul_desc_t d;
    dnnl_primitive_desc_t pd = NULL;
    if (rui_nn(lo)->matmul_desc_init(&d, &m->a, &m->b, NULL, &m->c) == dnnl_success) {
        pd = rui_pd_make(lo, &d, &post, NULL);
    }
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

static dnnl_memory_desc_t md2(rui_low *lo, int64_t rows, int64_t cols, int64_t row_step,
                              int64_t col_step, ru_dtype t)
{
    return rui_md_strided(lo, 2, (int64_t[]){rows, cols}, (int64_t[]){row_step, col_step},
                          rui_dnnl_type(t));
}

/* pre = X W^T. Frozen weights of one direction are packed as the product likes them. */
static ru_status input_product(rui_low *lo, const lstm_dims *d, ru_dtype t, rui_buf x,
                               ru_value_id w, int64_t dir, rui_buf pre)
{
    int64_t g = 4 * d->hidden, all = d->steps * d->batch;
    product m = {.a = md2(lo, all, d->in, d->in, 1, t),
                 .b = md2(lo, d->in, g, 1, d->in, t),
                 .c = md2(lo, all, g, g, 1, RU_F32),
                 .ab = x,
                 .cb = pre};
    const ru_type *wt = rui_type(lo, w);
    if (d->dirs == 1 && lo->vals[w.v].frozen) {
        dnnl_memory_desc_t seen = md2(lo, d->in, g, 1, d->in, wt->dtype);
        dnnl_memory_desc_t any = rui_md_any(lo, 2, (int64_t[]){d->in, g}, rui_dnnl_type(t));
        dnnl_matmul_desc_t desc;
        dnnl_primitive_desc_t pd = NULL;
        if (rui_nn(lo)->matmul_desc_init(&desc, &m.a, &any, NULL, &m.c) == dnnl_success) {
            pd = rui_pd_make(lo, &desc, NULL, NULL);
        }
        if (pd != NULL) {
            m.b = rui_pd_md(lo, pd, dnnl_query_weights_md);
            rui_pd_free(lo, pd);
            m.bb = rui_in_as(lo, w, &seen, &m.b);
            return emit_product(lo, &m);
        }
    }
    m.bb = piece(lo, rui_in(lo, w, rui_plain_as(lo, wt, t)), dir, d->dirs,
                 d->dirs * g * d->in * ru_dtype_bytes(t));
    return emit_product(lo, &m);
}

static const ru_node *producer_of(const rui_low *lo, ru_value_id v)
{
    const ru_graph *g = rui_graph(lo);
    uint32_t producer = g->values[v.v].producer.v;
    return producer == 0 ? NULL : &g->nodes[producer];
}

/* The Transpose of [batch, steps, ..] to [steps, batch, ..] that X is, or NULL. */
static const ru_node *swap_of(const rui_low *lo, ru_value_id x)
{
    const ru_node *n = producer_of(lo, x);
    const ru_attr *perm =
        n != NULL && n->op == RU_OP_Transpose ? ru_node_attr(n, RU_ATTR_perm) : NULL;
    bool swaps = perm != NULL && perm->n == 3 && perm->u.is[0] == 1 && perm->u.is[1] == 0;
    return swaps ? n : NULL;
}

/* X as rows of an embedding. */
typedef struct lookup {
    const ru_node *gather; /* NULL: X is no embedding, or working by token is not less work */
    const ru_node *swap;   /* the Transpose between, or NULL */
} lookup;

static lookup lookup_of(const rui_low *lo, const lstm_dims *d, ru_value_id x)
{
    const ru_node *swap = swap_of(lo, x),
                  *n = swap != NULL ? producer_of(lo, swap->in[0]) : producer_of(lo, x);
    if (n == NULL || n->op != RU_OP_Gather || d->dirs != 1 ||
        ru_node_int(n, RU_ATTR_axis, 0) != 0) {
        return (lookup){0};
    }
    const ru_type *table = rui_type(lo, n->in[0]), *ids = rui_type(lo, n->in[1]);
    bool fits = table->rank == 2 && table->dtype == RU_F32 && ids->rank == 2 &&
                (ids->dtype == RU_I64 || ids->dtype == RU_I32) &&
                (lo->vals[n->in[0].v].frozen || table->dims[0] < d->steps * d->batch);
    return fits ? (lookup){n, swap} : (lookup){0};
}

/* The Gather whose rows X is in the order of its ids: what the gradient works on. */
static const ru_node *embedding_of(const rui_low *lo, const lstm_dims *d, ru_value_id x)
{
    lookup l = lookup_of(lo, d, x);
    return l.swap == NULL ? l.gather : NULL;
}

/* Is `n` an LSTM that reads X by token? */
static bool reads_by_token(rui_low *lo, const ru_node *n, ru_value_id x)
{
    lstm_dims d;
    return n->op == RU_OP_LSTM && n->in[0].v == x.v && forward_fits(lo, n, &d) &&
           lookup_of(lo, &d, x).gather != NULL;
}

bool rui_rnn_reads_past(rui_low *lo, const ru_node *n)
{
    const ru_node *r = rui_options(lo)->keep_temps || rui_uses(lo, n->out[0]) != 1
                           ? NULL
                           : rui_only_reader(lo, n->out[0]);
    if (r != NULL && r->op == RU_OP_Transpose && n->op == RU_OP_Gather) {
        return rui_rnn_reads_past(lo, r);
    }
    return r != NULL && reads_by_token(lo, r, n->out[0]);
}

/* E W^T [vocabulary, 4 hidden] */
static rui_buf table_product(rui_low *lo, const lstm_dims *d, const ru_node *emb, ru_value_id w)
{
    int64_t v = rui_type(lo, emb->in[0])->dims[0], g = 4 * d->hidden;
    product m = {.a = md2(lo, v, d->in, d->in, 1, RU_F32),
                 .b = md2(lo, d->in, g, 1, d->in, RU_F32),
                 .c = md2(lo, v, g, g, 1, RU_F32)};
    m.prep = lo->vals[emb->in[0].v].frozen && lo->vals[w.v].frozen;
    m.ab = rui_in(lo, emb->in[0], rui_plain(lo, rui_type(lo, emb->in[0])));
    m.bb = rui_in(lo, w, rui_plain(lo, rui_type(lo, w)));
    m.cb = m.prep ? rui_buf_new(lo, RUI_BUF_PACKED, v * g * 4) : rui_workspace(lo, v * g * 4);
    return emit_product(lo, &m) == RU_OK ? m.cb : (rui_buf){0};
}

/* -- steps ---------------------------------------------------------------------------------------
 */

typedef struct lstm_job {
    const lstm_state *s;
    ru_kern_lstm a;
    float *work;
} lstm_job;

static void lstm_thread(void *arg, uint32_t thread, uint32_t threads)
{
    const lstm_job *j = arg;
    int64_t begin, end;
    ru_pool_split(j->a.batch, 1, thread, threads, &begin, &end);
    if (begin < end) {
        j->s->k->lstm(&j->a, begin, end, j->work + (int64_t)thread * j->s->work);
    }
}

static void lstm_grad_thread(void *arg, uint32_t thread, uint32_t threads)
{
    const lstm_job *j = arg;
    int64_t begin, end;
    ru_pool_split(j->a.batch, 1, thread, threads, &begin, &end);
    if (begin < end) {
        j->s->k->lstm_grad(&j->a, begin, end, j->work + (int64_t)thread * j->s->work);
    }
}

/* R in the form the recurrence reads, and the sum of the two biases behind it.
 * bufs: 0 R 1 B 2 packed 3 work */
static ru_status pack_run(void *state, void *const *bufs, const rui_run *run)
{
    (void)run;
    const lstm_state *s = state;
    int64_t h = s->proto.hidden;
    float *packed = bufs[2], *bias = packed + s->packed;
    const float *b = bufs[1];
    s->k->rnn_pack(4, h, bufs[0], s->pairs, bufs[3], packed);
    for (int64_t i = 0; i < 4 * h; i++) {
        bias[i] = b == NULL ? 0.0f : b[i] + b[4 * h + i];
    }
    return RU_OK;
}

/* Weights that never change are packed before the first run only. */
static rui_buf pack_weights(rui_low *lo, const ru_node *n, lstm_state *s, rui_buf r, rui_buf b)
{
    bool frozen =
        lo->vals[n->in[2].v].frozen && (!ru_node_has_in(n, 3) || lo->vals[n->in[3].v].frozen);
    int64_t bytes = (s->packed + 4 * s->proto.hidden) * (int64_t)sizeof(float);
    rui_buf packed = frozen ? rui_buf_new(lo, RUI_BUF_PACKED, bytes) : rui_workspace(lo, bytes);
    rui_buf bufs[4] = {r, b, packed, floats(lo, 96 * s->proto.hidden)};
    rui_step step = {
        .kernel = "kern lstm pack", .fn = pack_run, .state = s, .bufs = bufs, .n_bufs = 4};
    rui_emit_to(lo, frozen ? &lo->prep : &lo->run, &step, frozen ? 0 : lo->node);
    return packed;
}

/* bufs: 0, 1 none 2 h0 3 c0 4 ws 5 y 6 y_h 7 y_c 8 packed+bias 9 work 10 pre, or the table
 * 11 ids */
static ru_status lstm_run(void *state, void *const *bufs, const rui_run *run)
{
    const lstm_state *s = state;
    lstm_job j = {.s = s, .a = s->proto, .work = bufs[9]};
    const float *packed = bufs[8], *bias = packed + s->packed;
    j.a.packed_r = s->pairs ? NULL : packed;
    j.a.packed_bf16 = s->pairs ? bufs[8] : NULL;
    j.a.bias = bias;
    j.a.h0 = bufs[2];
    j.a.c0 = bufs[3];
    j.a.pre = s->proto.vocabulary > 0 ? NULL : bufs[10];
    j.a.table = bufs[10];
    j.a.ids = bufs[11];
    j.a.ws = bufs[4];
    j.a.y = bufs[5];
    j.a.y_h = bufs[6];
    j.a.y_c = bufs[7];
    ru_pool_run(run->pool, lstm_thread, &j);
    return RU_OK;
}

typedef struct columns {
    const lstm_state *s;
    const void *dg;
    float *db;
} columns;

static void bias_thread(void *arg, uint32_t thread, uint32_t threads)
{
    const columns *c = arg;
    int64_t g = 4 * c->s->proto.hidden, begin, end;
    ru_pool_split(g, 64, thread, threads, &begin, &end);
    if (begin < end) {
        c->s->k->sum_rows(c->s->t, c->dg, c->s->proto.steps * c->s->proto.batch, g, begin, end,
                          c->db);
        memcpy(c->db + g + begin, c->db + begin, sizeof(float) * (size_t)(end - begin));
    }
}

/* bufs: 0 R 1 dB 2 h0 3 c0 4 ws 5 y 6 dY_h 7 dY_c 8 packed 9 work 10 dY 11 dG 12 H' 13 dh0 14 dc0
 */
static ru_status lstm_grad_run(void *state, void *const *bufs, const rui_run *run)
{
    const lstm_state *s = state;
    lstm_job j = {.s = s, .a = s->proto, .work = bufs[9]};
    int64_t h = s->proto.hidden;
    if (s->pairs) {
        s->k->gemm_bf16_pack(bufs[0], h, 1, 4 * h, h, bufs[8]);
        j.a.packed_bf16 = bufs[8];
    } else {
        s->k->gemm_pack(bufs[0], h, 1, 4 * h, h, bufs[8]);
        j.a.packed_r = bufs[8];
    }
    j.a.h0 = bufs[2];
    j.a.c0 = bufs[3];
    j.a.ws = bufs[4];
    j.a.y = bufs[5];
    j.a.dy_h = bufs[6];
    j.a.dy_c = bufs[7];
    j.a.dy = bufs[10];
    j.a.dg = bufs[11];
    j.a.h_prev = bufs[12];
    j.a.dh0 = bufs[13];
    j.a.dc0 = bufs[14];
    ru_pool_run(run->pool, lstm_grad_thread, &j);
    if (bufs[1] != NULL) {
        columns c = {s, bufs[11], bufs[1]};
        ru_pool_run(run->pool, bias_thread, &c);
    }
    return RU_OK;
}

static lstm_state *state_new(rui_low *lo, const lstm_dims *d, ru_dtype t, int64_t dir, bool grad)
{
    lstm_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    int64_t h = d->hidden, threads = (int64_t)rui_threads(lo);
    s->k = ru_kern_best();
    s->t = t;
    s->threads = (uint32_t)threads;
    s->pairs = t == RU_BF16 && s->k->gemm_bf16_packs(h);
    s->proto = (ru_kern_lstm){.t = t,
                              .reverse = d->reverse_first || dir == 1,
                              .steps = d->steps,
                              .batch = d->batch,
                              .hidden = h,
                              .ws_step = d->dirs * d->batch * 5 * h,
                              .y_step = d->dirs * d->batch * h};
    s->work = s->k->lstm_work(&s->proto, (d->batch + threads - 1) / threads, grad);
    s->work = (s->work + 31) / 32 * 32;
    s->packed = grad ? s->k->gemm_pack_floats(4 * h, h) : s->k->rnn_pack_floats(4, h);
    return s;
}

static void look_up_by(const rui_low *lo, lstm_state *s, const lstm_dims *d, const lookup *l)
{
    s->proto.it = rui_type(lo, l->gather->in[1])->dtype;
    s->proto.vocabulary = rui_type(lo, l->gather->in[0])->dims[0];
    s->proto.ids_step = l->swap == NULL ? d->batch : 1;
    s->proto.ids_row = l->swap == NULL ? 1 : d->steps;
}

ru_status rui_lower_kern_lstm(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    lstm_dims d;
    if (!forward_fits(lo, n, &d)) {
        return RU_E_UNSUPPORTED;
    }
    bool y_made = ru_node_has_out(n, 0);
    ru_type yt = ru_type_make(RU_F32, 4, (int64_t[]){d.steps, d.dirs, d.batch, d.hidden});
    ru_dtype t = rui_bf16(lo) ? RU_BF16 : RU_F32;
    bool keeps = ru_node_has_out(n, 3); /* what the gradient reads */
    int64_t h = d.hidden, ws_bytes = keeps ? d.steps * d.dirs * d.batch * 5 * h * 4 : 0;
    int64_t y_bytes = ru_type_count(&yt) * ru_dtype_bytes(t), hc_bytes = d.dirs * d.batch * h * 4;
    lookup l = lookup_of(lo, &d, n->in[0]);
    const ru_node *emb = l.gather;
    rui_buf x = {0};
    if (emb == NULL) {
        x = rui_in(lo, n->in[0], rui_plain_as(lo, rui_type(lo, n->in[0]), t));
    }
    rui_buf r = in_f32(lo, n, 2), b = in_f32(lo, n, 3), h0 = in_f32(lo, n, 5),
            c0 = in_f32(lo, n, 6);
    rui_buf y =
        y_made ? rui_out(lo, n->out[0], rui_plain_as(lo, &yt, t)) : rui_workspace(lo, y_bytes);
    rui_buf yh = out_f32(lo, n, 1), yc = out_f32(lo, n, 2);
    rui_buf ws = keeps ? out_f32(lo, n, 3) : (rui_buf){0};
    for (int64_t k = 0; k < d.dirs && rui_done(lo) == RU_OK; k++) {
        rui_buf ws_k = !keeps        ? floats(lo, d.batch * h)
                       : d.dirs == 1 ? ws
                                     : rui_buf_part(lo, ws, k * d.batch * 5 * h * 4,
                                                    ws_bytes - k * d.batch * 5 * h * 4);
        rui_buf y_k = d.dirs == 1 ? y
                                  : rui_buf_part(lo, y, k * d.batch * h * ru_dtype_bytes(t),
                                                 y_bytes - k * d.batch * h * ru_dtype_bytes(t));
        rui_buf pre = {0};
        if (emb != NULL) {
            pre = table_product(lo, &d, emb, n->in[1]);
        } else {
            pre = rui_workspace(lo, d.steps * d.batch * 4 * h * 4);
            RU_TRY(input_product(lo, &d, t, x, n->in[1], k, pre));
        }
        lstm_state *s = state_new(lo, &d, t, k, false);
        if (s == NULL) {
            break;
        }
        if (emb != NULL) {
            look_up_by(lo, s, &d, &l);
        }
        if (!keeps) {
            s->proto.cells_only = true;
            s->proto.ws_step = 0;
        }
        rui_buf packed = pack_weights(lo, n, s, piece(lo, r, k, d.dirs, d.dirs * 4 * h * h * 4),
                                      piece(lo, b, k, d.dirs, d.dirs * 8 * h * 4));
        rui_buf bufs[12] = {{0},
                            {0},
                            piece(lo, h0, k, d.dirs, hc_bytes),
                            piece(lo, c0, k, d.dirs, hc_bytes),
                            ws_k,
                            y_k,
                            piece(lo, yh, k, d.dirs, hc_bytes),
                            piece(lo, yc, k, d.dirs, hc_bytes),
                            packed,
                            floats(lo, s->work * s->threads),
                            pre,
                            emb == NULL ? (rui_buf){0} : rui_in_plain(lo, emb->in[1])};
        rui_emit(
            lo, &(rui_step){
                    .kernel = "kern lstm", .fn = lstm_run, .state = s, .bufs = bufs, .n_bufs = 12});
    }
    return rui_done(lo);
}

/* dX, dW, dR of one direction from dG. */
static ru_status grad_products(rui_low *lo, const lstm_dims *d, ru_dtype t, ru_dtype dx_t,
                               const product *io, int64_t dir)
{
    /* io[0]: ab = X, bb = W, cb = dX; io[1]: ab = dG, bb = H', cb = dW; io[2].cb = dR */
    int64_t all = d->steps * d->batch, g = 4 * d->hidden, h = d->hidden;
    if (io[0].cb.v != 0) {
        product m = {.a = md2(lo, all, g, g, 1, t),
                     .b = md2(lo, g, d->in, d->in, 1, t),
                     .c = md2(lo, all, d->in, d->in, 1, dx_t),
                     .ab = io[1].ab,
                     .bb = io[0].bb,
                     .cb = io[0].cb,
                     .add = dir > 0};
        RU_TRY(emit_product(lo, &m));
    }
    if (io[1].cb.v != 0) {
        product m = {.a = md2(lo, g, all, 1, g, t),
                     .b = md2(lo, all, d->in, d->in, 1, t),
                     .c = md2(lo, g, d->in, d->in, 1, RU_F32),
                     .ab = io[1].ab,
                     .bb = io[0].ab,
                     .cb = io[1].cb};
        RU_TRY(emit_product(lo, &m));
    }
    if (io[2].cb.v != 0) {
        product m = {.a = md2(lo, g, all, 1, g, t),
                     .b = md2(lo, all, h, h, 1, t),
                     .c = md2(lo, g, h, h, 1, RU_F32),
                     .ab = io[1].ab,
                     .bb = io[1].bb,
                     .cb = io[2].cb};
        RU_TRY(emit_product(lo, &m));
    }
    return rui_done(lo);
}

typedef struct token_sums {
    const ru_kern *k;
    ru_dtype t, it;
    int64_t n, vocabulary, cols;
} token_sums;

/* bufs: dG ids S */
static void token_sums_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const token_sums *s = state;
    (void)s->k->gather_grad(s->t, bufs[0], s->it, bufs[1], s->n, s->vocabulary, s->cols, begin, end,
                            bufs[2]);
}

static ru_status token_sums_run(void *state, void *const *bufs, const rui_run *run)
{
    const token_sums *s = state;
    rui_kern_for(run, token_sums_part, s, bufs, s->cols, 64);
    return RU_OK;
}

/* The GatherGrad that alone takes dX back to the table of `emb`. */
static const ru_node *embedding_grad(const rui_low *lo, const ru_node *n, const ru_node *emb)
{
    const ru_node *r = ru_node_has_out(n, 0) ? rui_only_reader(lo, n->out[0]) : NULL;
    bool fits = emb != NULL && r != NULL && r->op == RU_OP_GatherGrad && !rui_claimed(lo, r) &&
                r->in[1].v == emb->in[1].v && r->in[2].v == emb->in[0].v &&
                ru_node_int(r, RU_ATTR_axis, 0) == 0 && !rui_options(lo)->keep_temps;
    return fits ? r : NULL;
}

/* S = dG summed by token; dE = S W; dW = S^T E; dR as ever. */
static ru_status grad_by_token(rui_low *lo, const lstm_dims *d, ru_dtype t, const ru_node *n,
                               const ru_node *emb, const ru_node *grad, const product *io)
{
    const ru_type *table = rui_type(lo, emb->in[0]);
    int64_t v = table->dims[0], g = 4 * d->hidden, in = d->in;
    token_sums *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s =
        (token_sums){ru_kern_best(), t, rui_type(lo, emb->in[1])->dtype, d->steps * d->batch, v, g};
    rui_buf sums = rui_workspace(lo, v * g * 4);
    rui_buf bufs[3] = {io[1].ab, rui_in_plain(lo, emb->in[1]), sums};
    rui_emit(lo, &(rui_step){.kernel = "kern lstm token sums",
                             .fn = token_sums_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 3});
    product de = {.a = md2(lo, v, g, g, 1, RU_F32),
                  .b = md2(lo, g, in, in, 1, RU_F32),
                  .c = md2(lo, v, in, in, 1, RU_F32),
                  .ab = sums};
    de.bb = rui_in(lo, n->in[4], rui_plain(lo, rui_type(lo, n->in[4])));
    de.cb = rui_out(lo, grad->out[0], rui_plain(lo, rui_type(lo, grad->out[0])));
    rui_claim(lo, grad);
    RU_TRY(emit_product(lo, &de));
    if (io[1].cb.v != 0) {
        product dw = {.a = md2(lo, g, v, 1, g, RU_F32),
                      .b = md2(lo, v, in, in, 1, RU_F32),
                      .c = md2(lo, g, in, in, 1, RU_F32),
                      .ab = sums,
                      .cb = io[1].cb};
        dw.bb = rui_in(lo, emb->in[0], rui_plain(lo, table));
        RU_TRY(emit_product(lo, &dw));
    }
    product rest[3] = {io[0], io[1], io[2]};
    rest[0].cb = rest[1].cb = (rui_buf){0};
    return grad_products(lo, d, t, t, rest, 0);
}

/* LSTMGrad(dY?, dY_h?, dY_c?, X, W, R, B?, h0?, c0?, Y, workspace) -> dX, dW, dR, dB, dh0, dc0 */
ru_status rui_lower_kern_lstm_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    lstm_dims d;
    if (!read_dims(lo, n, 3, &d)) {
        return RU_E_UNSUPPORTED;
    }
    ru_dtype t = rui_bf16(lo) ? RU_BF16 : RU_F32;
    int64_t h = d.hidden, bytes = ru_dtype_bytes(t), all = d.steps * d.batch;
    int64_t hc = d.dirs * d.batch * h * 4, y_bytes = all * d.dirs * h * bytes;
    rui_buf dy = ru_node_has_in(n, 0)
                     ? rui_in(lo, n->in[0], rui_plain_as(lo, rui_type(lo, n->in[0]), t))
                     : (rui_buf){0};
    const ru_node *emb = embedding_of(lo, &d, n->in[3]), *emb_grad = embedding_grad(lo, n, emb);
    rui_buf x = {0}, w = {0};
    if (emb_grad == NULL) {
        x = rui_in(lo, n->in[3], rui_plain_as(lo, rui_type(lo, n->in[3]), t));
        w = rui_in(lo, n->in[4], rui_plain_as(lo, rui_type(lo, n->in[4]), t));
    }
    rui_buf r = in_f32(lo, n, 5), h0 = in_f32(lo, n, 7), c0 = in_f32(lo, n, 8);
    rui_buf y = rui_in(lo, n->in[9], rui_plain_as(lo, rui_type(lo, n->in[9]), t));
    rui_buf ws = in_f32(lo, n, 10), dyh = in_f32(lo, n, 1), dyc = in_f32(lo, n, 2);
    ru_dtype dx_t = ru_node_has_out(n, 0) ? rui_store_dtype(lo, n->out[0]) : t;
    rui_buf dx = ru_node_has_out(n, 0) && emb_grad == NULL
                     ? rui_out(lo, n->out[0], rui_plain_as(lo, rui_type(lo, n->out[0]), dx_t))
                     : (rui_buf){0};
    rui_buf dw = out_f32(lo, n, 1), dr = out_f32(lo, n, 2), db = out_f32(lo, n, 3);
    rui_buf dh0 = out_f32(lo, n, 4), dc0 = out_f32(lo, n, 5);
    for (int64_t k = 0; k < d.dirs && rui_done(lo) == RU_OK; k++) {
        lstm_state *s = state_new(lo, &d, t, k, true);
        if (s == NULL) {
            break;
        }
        int64_t ws_at = k * d.batch * 5 * h * 4, y_at = k * d.batch * h * bytes;
        bool one = d.dirs == 1;
        rui_buf dg = rui_workspace(lo, all * 4 * h * bytes),
                hp = rui_workspace(lo, all * h * bytes);
        rui_buf bufs[15] = {piece(lo, r, k, d.dirs, d.dirs * 4 * h * h * 4),
                            piece(lo, db, k, d.dirs, d.dirs * 8 * h * 4),
                            piece(lo, h0, k, d.dirs, hc),
                            piece(lo, c0, k, d.dirs, hc),
                            one ? ws
                                : rui_buf_part(lo, ws, ws_at, all * d.dirs * 5 * h * 4 - ws_at),
                            one ? y : rui_buf_part(lo, y, y_at, y_bytes - y_at),
                            piece(lo, dyh, k, d.dirs, hc),
                            piece(lo, dyc, k, d.dirs, hc),
                            floats(lo, s->packed),
                            floats(lo, s->work * s->threads),
                            one || dy.v == 0 ? dy : rui_buf_part(lo, dy, y_at, y_bytes - y_at),
                            dg,
                            hp,
                            piece(lo, dh0, k, d.dirs, hc),
                            piece(lo, dc0, k, d.dirs, hc)};
        rui_emit(lo, &(rui_step){.kernel = "kern lstm grad",
                                 .fn = lstm_grad_run,
                                 .state = s,
                                 .bufs = bufs,
                                 .n_bufs = 15});
        product io[3] = {
            {.ab = x, .bb = piece(lo, w, k, d.dirs, d.dirs * 4 * h * d.in * bytes), .cb = dx},
            {.ab = dg, .bb = hp, .cb = piece(lo, dw, k, d.dirs, d.dirs * 4 * h * d.in * 4)},
            {.cb = piece(lo, dr, k, d.dirs, d.dirs * 4 * h * h * 4)}};
        RU_TRY(emb_grad != NULL ? grad_by_token(lo, &d, t, n, emb, emb_grad, io)
                                : grad_products(lo, &d, t, dx_t, io, k));
    }
    return rui_done(lo);
}
