/* LSTM: large products through oneDNN for all time steps at once, the recurrence on our kernel.
 *
 *   forward, per direction:   pre = X W^T (oneDNN);  recurrence gives ws, Y (kernel)
 *   backward, per direction:  recurrence gives dG and H' (kernel);
 *                             dX += dG W, dW = dG^T X, dR = dG^T H' (oneDNN), dB = column sums of
 * dG
 *
 * When X is an embedding with fewer rows than there are time steps times samples, rows of equal
 * tokens are equal: E W^T is one small rui_rnn_product and its rows are looked up, and backward dG
 * is summed by token first, so that dE = S W and dW = S^T E are small too.
 *
 * H' is h of the step before. Sequence lengths, peepholes, clipping and other activations than the
 * standard's defaults run on the reference kernel. */
#include <string.h>

#include "exec/cpu/low/low.h"
#include "exec/cpu/lower/lower_rnn.h"

typedef struct lstm_state {
    const ru_kern *k;
    ru_kern_rnn proto;
    int64_t work;   /* rui_rnn_floats of one thread */
    int64_t packed; /* rui_rnn_floats of packed R */
    uint32_t threads;
    ru_dtype t;
    bool pairs;    /* R packed as bf16 */
    bool by_units; /* threads split the units instead of the batch */
} lstm_state;

/* False when the node asks for what the kernel does not do. `x` is the place of X among the inputs.
 */
static bool read_dims(rui_low *lo, const ru_node *n, uint32_t x, rui_rnn_dims *d)
{
    static const char *const usual[] = {"Sigmoid", "Tanh", "Tanh"};
    return rui_rnn_dims_of(lo, n, x, 4, d) && rui_rnn_activations(n, usual, 3, true);
}

/* The same for the forward pass, LSTM or LSTMTrain. */
static bool forward_fits(rui_low *lo, const ru_node *n, rui_rnn_dims *d)
{
    return read_dims(lo, n, 0, d) && !ru_node_has_in(n, 4) && !ru_node_has_in(n, 7);
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

static lookup lookup_of(const rui_low *lo, const rui_rnn_dims *d, ru_value_id x)
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
static const ru_node *embedding_of(const rui_low *lo, const rui_rnn_dims *d, ru_value_id x)
{
    lookup l = lookup_of(lo, d, x);
    return l.swap == NULL ? l.gather : NULL;
}

/* Is `n` an LSTM that reads X by token? */
static bool reads_by_token(rui_low *lo, const ru_node *n, ru_value_id x)
{
    rui_rnn_dims d;
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
static rui_buf table_product(rui_low *lo, const rui_rnn_dims *d, const ru_node *emb, ru_value_id w)
{
    int64_t v = rui_type(lo, emb->in[0])->dims[0], g = 4 * d->hidden;
    rui_rnn_product m = {.a = rui_rnn_md(lo, v, d->in, d->in, 1, RU_F32),
                         .b = rui_rnn_md(lo, d->in, g, 1, d->in, RU_F32),
                         .c = rui_rnn_md(lo, v, g, g, 1, RU_F32)};
    m.prep = lo->vals[emb->in[0].v].frozen && lo->vals[w.v].frozen;
    m.ab = rui_in(lo, emb->in[0], rui_plain(lo, rui_type(lo, emb->in[0])));
    m.bb = rui_in(lo, w, rui_plain(lo, rui_type(lo, w)));
    m.cb = m.prep ? rui_buf_new(lo, RUI_BUF_PACKED, v * g * 4) : rui_workspace(lo, v * g * 4);
    return rui_rnn_emit(lo, &m) == RU_OK ? m.cb : (rui_buf){0};
}

/* -- steps ---------------------------------------------------------------------------------------
 */

typedef struct lstm_job {
    const lstm_state *s;
    ru_kern_rnn a;
} lstm_job;

static void lstm_part(const void *job, const ru_kern_share *mine)
{
    const lstm_job *j = job;
    j->s->k->rnn(&j->a, mine);
}

static void lstm_grad_part(const void *state, void *const *bufs, int64_t begin, int64_t end,
                           void *work)
{
    (void)bufs;
    const lstm_job *j = state;
    j->s->k->rnn_grad(&j->a, begin, end, work);
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

/* bufs: 0, 1 none 2 h0 3 c0 4 ws 5 y 6 y_h 7 y_c 8 packed+bias 9 work 10 pre, or the table
 * 11 ids */
static ru_status lstm_run(void *state, void *const *bufs, const rui_run *run)
{
    const lstm_state *s = state;
    lstm_job j = {.s = s, .a = s->proto};
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
    rui_rnn_run(run, lstm_part, &j, j.a.batch, s->by_units, bufs[9], s->work);
    return RU_OK;
}

/* Columns of dB, which both biases get. */
static void bias_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const lstm_state *s = state;
    int64_t g = 4 * s->proto.hidden;
    float *db = bufs[1];
    s->k->sum_rows(s->t, bufs[11], s->proto.steps * s->proto.batch, g, begin, end, db);
    memcpy(db + g + begin, db + begin, sizeof(float) * (size_t)(end - begin));
}

/* bufs: 0 R 1 dB 2 h0 3 c0 4 ws 5 y 6 dY_h 7 dY_c 8 packed 9 work 10 dY 11 dG 12 H' 13 dh0 14 dc0
 */
static ru_status lstm_grad_run(void *state, void *const *bufs, const rui_run *run)
{
    const lstm_state *s = state;
    lstm_job j = {.s = s, .a = s->proto};
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
    rui_kern_for_own(run, lstm_grad_part, &j, bufs, j.a.batch, 1, bufs[9],
                     s->work * (int64_t)sizeof(float));
    if (bufs[1] != NULL) {
        rui_kern_for(run, bias_part, s, bufs, 4 * h, 64);
    }
    return RU_OK;
}

static lstm_state *state_new(rui_low *lo, const rui_rnn_dims *d, ru_dtype t, int64_t dir, bool grad)
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
    s->proto = (ru_kern_rnn){.cell = RU_CELL_LSTM,
                             .t = t,
                             .reverse = d->reverse_first || dir == 1,
                             .steps = d->steps,
                             .batch = d->batch,
                             .hidden = h,
                             .ws_step = d->dirs * d->batch * 5 * h,
                             .y_step = d->dirs * d->batch * h};
    s->by_units = !grad && rui_rnn_splits_units(lo, d);
    s->work = s->k->rnn_work(&s->proto,
                             grad ? (d->batch + threads - 1) / threads : rui_rnn_rows(lo, d), grad);
    s->work = (s->work + 31) / 32 * 32;
    s->packed = grad ? s->k->gemm_pack_floats(4 * h, h) : s->k->rnn_pack_floats(4, h);
    return s;
}

static void look_up_by(const rui_low *lo, lstm_state *s, const rui_rnn_dims *d, const lookup *l)
{
    s->proto.it = rui_type(lo, l->gather->in[1])->dtype;
    s->proto.vocabulary = rui_type(lo, l->gather->in[0])->dims[0];
    s->proto.ids_step = l->swap == NULL ? d->batch : 1;
    s->proto.ids_row = l->swap == NULL ? 1 : d->steps;
}

ru_status rui_lower_kern_lstm(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_rnn_dims d;
    if (!forward_fits(lo, n, &d)) {
        return RU_E_UNSUPPORTED;
    }
    bool y_made = ru_node_has_out(n, 0);
    ru_type yt = ru_type_make(RU_F32, 4, (int64_t[]){d.steps, d.dirs, d.batch, d.hidden});
    ru_dtype t = rui_rnn_dtype(lo);
    bool keeps = ru_node_has_out(n, 3); /* what the gradient reads */
    int64_t h = d.hidden, ws_bytes = keeps ? d.steps * d.dirs * d.batch * 5 * h * 4 : 0;
    int64_t y_bytes = ru_type_count(&yt) * ru_dtype_bytes(t), hc_bytes = d.dirs * d.batch * h * 4;
    lookup l = lookup_of(lo, &d, n->in[0]);
    const ru_node *emb = l.gather;
    rui_buf x = {0};
    if (emb == NULL) {
        x = rui_in(lo, n->in[0], rui_plain_as(lo, rui_type(lo, n->in[0]), t));
    }
    rui_buf r = rui_rnn_in(lo, n, 2), b = rui_rnn_in(lo, n, 3), h0 = rui_rnn_in(lo, n, 5),
            c0 = rui_rnn_in(lo, n, 6);
    rui_buf y =
        y_made ? rui_out(lo, n->out[0], rui_plain_as(lo, &yt, t)) : rui_workspace(lo, y_bytes);
    rui_buf yh = rui_rnn_out(lo, n, 1), yc = rui_rnn_out(lo, n, 2);
    rui_buf ws = keeps ? rui_rnn_out(lo, n, 3) : (rui_buf){0};
    for (int64_t k = 0; k < d.dirs && rui_done(lo) == RU_OK; k++) {
        rui_buf ws_k = !keeps        ? rui_rnn_floats(lo, d.batch * h)
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
            RU_TRY(rui_rnn_input(lo, &d, t, x, n->in[1], k, pre));
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
        rui_buf packed = rui_rnn_pack(lo, n, pack_run, s, s->packed + 4 * h, h,
                                      rui_rnn_piece(lo, r, k, d.dirs, d.dirs * 4 * h * h * 4),
                                      rui_rnn_piece(lo, b, k, d.dirs, d.dirs * 8 * h * 4));
        rui_buf bufs[12] = {{0},
                            {0},
                            rui_rnn_piece(lo, h0, k, d.dirs, hc_bytes),
                            rui_rnn_piece(lo, c0, k, d.dirs, hc_bytes),
                            ws_k,
                            y_k,
                            rui_rnn_piece(lo, yh, k, d.dirs, hc_bytes),
                            rui_rnn_piece(lo, yc, k, d.dirs, hc_bytes),
                            packed,
                            rui_rnn_floats(lo, s->work * s->threads),
                            pre,
                            emb == NULL ? (rui_buf){0} : rui_in_plain(lo, emb->in[1])};
        rui_emit(
            lo, &(rui_step){
                    .kernel = "kern lstm", .fn = lstm_run, .state = s, .bufs = bufs, .n_bufs = 12});
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
static ru_status grad_by_token(rui_low *lo, const rui_rnn_dims *d, ru_dtype t, const ru_node *n,
                               const ru_node *emb, const ru_node *grad, const rui_rnn_product *io)
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
    rui_rnn_product de = {.a = rui_rnn_md(lo, v, g, g, 1, RU_F32),
                          .b = rui_rnn_md(lo, g, in, in, 1, RU_F32),
                          .c = rui_rnn_md(lo, v, in, in, 1, RU_F32),
                          .ab = sums};
    de.bb = rui_in(lo, n->in[4], rui_plain(lo, rui_type(lo, n->in[4])));
    de.cb = rui_out(lo, grad->out[0], rui_plain(lo, rui_type(lo, grad->out[0])));
    rui_claim(lo, grad);
    RU_TRY(rui_rnn_emit(lo, &de));
    if (io[1].cb.v != 0) {
        rui_rnn_product dw = {.a = rui_rnn_md(lo, g, v, 1, g, RU_F32),
                              .b = rui_rnn_md(lo, v, in, in, 1, RU_F32),
                              .c = rui_rnn_md(lo, g, in, in, 1, RU_F32),
                              .ab = sums,
                              .cb = io[1].cb};
        dw.bb = rui_in(lo, emb->in[0], rui_plain(lo, table));
        RU_TRY(rui_rnn_emit(lo, &dw));
    }
    rui_rnn_product rest[3] = {io[0], io[1], io[2]};
    rest[0].cb = rest[1].cb = (rui_buf){0};
    return rui_rnn_grads(lo, d, t, t, rest, 0);
}

/* LSTMGrad(dY?, dY_h?, dY_c?, X, W, R, B?, h0?, c0?, Y, workspace) -> dX, dW, dR, dB, dh0, dc0 */
ru_status rui_lower_kern_lstm_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_rnn_dims d;
    if (!read_dims(lo, n, 3, &d)) {
        return RU_E_UNSUPPORTED;
    }
    ru_dtype t = rui_rnn_dtype(lo);
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
    rui_buf r = rui_rnn_in(lo, n, 5), h0 = rui_rnn_in(lo, n, 7), c0 = rui_rnn_in(lo, n, 8);
    rui_buf y = rui_in(lo, n->in[9], rui_plain_as(lo, rui_type(lo, n->in[9]), t));
    rui_buf ws = rui_rnn_in(lo, n, 10), dyh = rui_rnn_in(lo, n, 1), dyc = rui_rnn_in(lo, n, 2);
    ru_dtype dx_t = t == RU_BF16 && ru_node_has_out(n, 0) ? rui_store_dtype(lo, n->out[0]) : t;
    rui_buf dx = ru_node_has_out(n, 0) && emb_grad == NULL
                     ? rui_out(lo, n->out[0], rui_plain_as(lo, rui_type(lo, n->out[0]), dx_t))
                     : (rui_buf){0};
    rui_buf dw = rui_rnn_out(lo, n, 1), dr = rui_rnn_out(lo, n, 2), db = rui_rnn_out(lo, n, 3);
    rui_buf dh0 = rui_rnn_out(lo, n, 4), dc0 = rui_rnn_out(lo, n, 5);
    for (int64_t k = 0; k < d.dirs && rui_done(lo) == RU_OK; k++) {
        lstm_state *s = state_new(lo, &d, t, k, true);
        if (s == NULL) {
            break;
        }
        int64_t ws_at = k * d.batch * 5 * h * 4, y_at = k * d.batch * h * bytes;
        bool one = d.dirs == 1;
        rui_buf dg = rui_workspace(lo, all * 4 * h * bytes),
                hp = rui_workspace(lo, all * h * bytes);
        rui_buf bufs[15] = {rui_rnn_piece(lo, r, k, d.dirs, d.dirs * 4 * h * h * 4),
                            rui_rnn_piece(lo, db, k, d.dirs, d.dirs * 8 * h * 4),
                            rui_rnn_piece(lo, h0, k, d.dirs, hc),
                            rui_rnn_piece(lo, c0, k, d.dirs, hc),
                            one ? ws
                                : rui_buf_part(lo, ws, ws_at, all * d.dirs * 5 * h * 4 - ws_at),
                            one ? y : rui_buf_part(lo, y, y_at, y_bytes - y_at),
                            rui_rnn_piece(lo, dyh, k, d.dirs, hc),
                            rui_rnn_piece(lo, dyc, k, d.dirs, hc),
                            rui_rnn_floats(lo, s->packed),
                            rui_rnn_floats(lo, s->work * s->threads),
                            one || dy.v == 0 ? dy : rui_buf_part(lo, dy, y_at, y_bytes - y_at),
                            dg,
                            hp,
                            rui_rnn_piece(lo, dh0, k, d.dirs, hc),
                            rui_rnn_piece(lo, dc0, k, d.dirs, hc)};
        rui_emit(lo, &(rui_step){.kernel = "kern lstm grad",
                                 .fn = lstm_grad_run,
                                 .state = s,
                                 .bufs = bufs,
                                 .n_bufs = 15});
        rui_rnn_product io[3] = {
            {.ab = x,
             .bb = rui_rnn_piece(lo, w, k, d.dirs, d.dirs * 4 * h * d.in * bytes),
             .cb = dx},
            {.ab = dg, .bb = hp, .cb = rui_rnn_piece(lo, dw, k, d.dirs, d.dirs * 4 * h * d.in * 4)},
            {.cb = rui_rnn_piece(lo, dr, k, d.dirs, d.dirs * 4 * h * h * 4)}};
        RU_TRY(emb_grad != NULL ? grad_by_token(lo, &d, t, n, emb, emb_grad, io)
                                : rui_rnn_grads(lo, &d, t, dx_t, io, k));
    }
    return rui_done(lo);
}
