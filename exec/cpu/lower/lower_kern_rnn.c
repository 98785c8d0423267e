/* LSTM, GRU and the plain recurrent layer: large products through oneDNN for all time steps at
 * once, the recurrence on our kernel.
 *
 *   forward, per direction:   pre = X W^T (oneDNN);  recurrence gives ws, Y (kernel)
 *   backward, per direction:  recurrence gives dG and H' (kernel);  dX += dG W, dW = dG^T X,
 *                             dR = dG^T H' (oneDNN), dB = column sums of dG
 *
 * H' is h of the step before. GRU has two forms: late (linear before reset), where R sees other
 * gradients than W (dL), and early, where the third gate multiplies r h instead of h. Only LSTM has
 * a form in bf16.
 *
 * When LSTM's X is an embedding with fewer rows than there are time steps times samples, rows of
 * equal tokens are equal: E W^T is one small product and its rows are looked up, and backward dG
 * is summed by token first, so that dE = S W and dW = S^T E are small too.
 *
 * Clipping and other activations than the standard's defaults (and ReLU in the plain layer),
 * peepholes and sequence lengths where a gradient follows, and lengths where X is bf16, run on the
 * reference. */
#include <string.h>
#include <strings.h>

#include "exec/cpu/low/low.h"
#include "exec/cpu/lower/lower_rnn.h"

/* What sets the cells' ops apart. */
typedef struct cell_row {
    ru_kern_cell cell;
    ru_op ops[3];  /* forward, forward that keeps a workspace, backward */
    uint32_t acts; /* activation functions of a direction */
    uint32_t ws;   /* place of the workspace among the results */
    uint32_t x, y; /* places of X and Y among the inputs of the backward op */
    const char *kernel, *back;
} cell_row;

static const cell_row cell_rows[] = {
    {RU_CELL_LSTM,
     {RU_OP_LSTM, RU_OP_LSTMTrain, RU_OP_LSTMGrad},
     3,
     3,
     3,
     9,
     "kern lstm",
     "kern lstm grad"},
    {RU_CELL_GRU,
     {RU_OP_GRU, RU_OP_GRUTrain, RU_OP_GRUGrad},
     2,
     2,
     2,
     7,
     "kern gru",
     "kern gru grad"},
    {RU_CELL_PLAIN, {RU_OP_RNN, RU_OP_RNN, RU_OP_RNNGrad}, 1, 2, 2, 7, "kern rnn", "kern rnn grad"},
};

typedef struct rnn_state {
    const ru_kern *k;
    ru_kern_rnn proto;
    int64_t work;               /* floats of one share */
    uint32_t shares;            /* of the rows */
    int64_t packed_r, packed_u; /* floats of packed R */
    bool pairs;                 /* R packed as bf16 */
    bool by_units;              /* threads split the units instead of the batch */
} rnn_state;

static const cell_row *row_of(const ru_node *n)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(cell_rows); i++) {
        const ru_op *ops = cell_rows[i].ops;
        if (n->op == ops[0] || n->op == ops[1] || n->op == ops[2]) {
            return &cell_rows[i];
        }
    }
    return NULL;
}

/* Are the activations of each direction these, given or by default? */
static bool activations(const ru_node *n, const char *const *names, uint32_t count, bool by_default)
{
    const ru_attr *a = ru_node_attr(n, RU_ATTR_activations);
    bool same = a == NULL ? by_default : a->kind == RU_ATTR_STRS && a->n % count == 0;
    for (uint32_t k = 0; same && a != NULL && k < a->n; k++) {
        same = strcasecmp(a->u.ss[k], names[k % count]) == 0;
    }
    return same;
}

/* False when the node asks for what the kernels do not do (layout 1, clip, input_forget). `x` is
 * the place of X among the inputs. */
static bool read_dims(rui_low *lo, const ru_node *n, const cell_row *row, uint32_t x,
                      rui_rnn_dims *d)
{
    static const char *const usual[] = {"Sigmoid", "Tanh", "Tanh"}, *const relu[] = {"Relu"};
    const ru_type *xt = rui_type(lo, n->in[x]), *r = rui_type(lo, n->in[x + 2]);
    bool plain = row->cell == RU_CELL_PLAIN;
    *d = (rui_rnn_dims){.steps = xt->dims[0],
                        .batch = xt->dims[1],
                        .in = xt->dims[2],
                        .hidden = r->dims[2],
                        .dirs = r->dims[0],
                        .gates = row->cell};
    return xt->dtype == RU_F32 && r->dtype == RU_F32 && ru_type_count(xt) > 0 &&
           ru_node_int(n, RU_ATTR_layout, 0) == 0 && ru_node_attr(n, RU_ATTR_clip) == NULL &&
           ru_node_int(n, RU_ATTR_input_forget, 0) == 0 &&
           (activations(n, plain ? usual + 1 : usual, row->acts, true) ||
            (plain && activations(n, relu, 1, false)));
}

/* The same for the forward pass; peepholes where no gradient follows. */
static bool forward_fits(rui_low *lo, const ru_node *n, rui_rnn_dims *d)
{
    const cell_row *row = row_of(n);
    bool lens = ru_node_has_in(n, 4), lstm = row->cell == RU_CELL_LSTM;
    bool keeps = ru_node_has_out(n, row->ws);
    bool fits = !lens || (rui_type(lo, n->in[4])->dtype == RU_I32 && !keeps &&
                          (!lstm || rui_rnn_dtype(lo) == RU_F32));
    return fits && read_dims(lo, n, row, 0, d) && (!ru_node_has_in(n, 7) || !keeps);
}

/* Input or output k, row-major, of dtype t; absent gives absent. */
static rui_buf in_as(rui_low *lo, const ru_node *n, uint32_t k, ru_dtype t)
{
    return ru_node_has_in(n, k) ? rui_in(lo, n->in[k], rui_plain_as(lo, rui_type(lo, n->in[k]), t))
                                : (rui_buf){0};
}

static rui_buf out_as(rui_low *lo, const ru_node *n, uint32_t k, ru_dtype t)
{
    return ru_node_has_out(n, k)
               ? rui_out(lo, n->out[k], rui_plain_as(lo, rui_type(lo, n->out[k]), t))
               : (rui_buf){0};
}

/* What direction `dir` has of a buffer [steps, dirs, batch, ..] with rows of `row_bytes`. */
static rui_buf from_dir(rui_low *lo, rui_buf b, const rui_rnn_dims *d, int64_t dir,
                        int64_t row_bytes)
{
    int64_t at = dir * d->batch * row_bytes, all = d->steps * d->dirs * d->batch * row_bytes;
    return b.v == 0 || d->dirs == 1 ? b : rui_buf_part(lo, b, at, all - at);
}

static rui_buf floats(rui_low *lo, int64_t n)
{
    return rui_scratch(lo, n * (int64_t)sizeof(float));
}

/* -- embeddings ----------------------------------------------------------------------------------
 */

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
    return n->op == RU_OP_LSTM && n->in[0].v == x.v && !ru_node_has_in(n, 4) &&
           forward_fits(lo, n, &d) && lookup_of(lo, &d, x).gather != NULL;
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

/* -- threads of a recurrence ---------------------------------------------------------------------
 */

/* Threads split the rows of the batch. When there are fewer rows than threads they split the hidden
 * units instead, if R is large enough that half of its product takes longer than meeting after each
 * step. */
static bool splits_units(const rui_low *lo, const rui_rnn_dims *d)
{
    /* Multiplications of a step that take about 4 us on one core. */
    enum { WORTH = 1 << 16 };
    return d->batch < (int64_t)rui_threads(lo) && d->gates * d->hidden * d->hidden >= WORTH;
}

typedef struct rnn_job {
    const rnn_state *s;
    ru_kern_rnn a;
    float *work;
} rnn_job;

/* Buffers of a step: those of both directions, then each one's own. */
enum { PACKED, WORK, H0, C0, WS, Y, COMMON_BUFS };

static rnn_job job_of(const rnn_state *s, void *const *bufs)
{
    const float *packed = bufs[PACKED];
    rnn_job j = {.s = s, .a = s->proto, .work = bufs[WORK]};
    j.a.packed_r = s->pairs ? NULL : packed;
    j.a.packed_bf16 = s->pairs ? bufs[PACKED] : NULL;
    j.a.packed_u = packed + s->packed_r;
    j.a.h0 = bufs[H0];
    j.a.c0 = bufs[C0];
    j.a.ws = bufs[WS];
    j.a.y = bufs[Y];
    return j;
}

static void run_share(void *arg, uint32_t thread, uint32_t threads)
{
    const rnn_job *j = arg;
    /* a team may be smaller than the number of shares, which have room for their rows alone */
    for (uint32_t k = thread; k < (j->s->by_units ? thread + 1 : j->s->shares); k += threads) {
        float *work = j->work + (int64_t)k * j->s->work;
        ru_kern_share mine = {.n1 = j->a.batch, .threads = 1, .state = work, .work = work};
        if (j->s->by_units) {
            RU_CHECK(thread < threads);
            mine.thread = thread;
            mine.threads = threads;
            mine.state = j->work;
            mine.wait = ru_pool_wait;
        } else {
            ru_pool_split(j->a.batch, 1, k, j->s->shares, &mine.n0, &mine.n1);
        }
        if (mine.n0 < mine.n1) {
            j->s->k->rnn(&j->a, &mine);
        }
    }
}

static rnn_state *state_new(rui_low *lo, const rui_rnn_dims *d, const ru_node *n, ru_dtype t,
                            int64_t dir, bool grad)
{
    static const char *const relu[] = {"Relu"};
    rnn_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    const cell_row *row = row_of(n);
    const char *direction = ru_node_str(n, RU_ATTR_direction, "forward");
    int64_t h = d->hidden, threads = (int64_t)rui_threads(lo), g = d->gates;
    s->k = ru_kern_best();
    s->pairs = t == RU_BF16 && s->k->gemm_bf16_packs(h);
    s->by_units = !grad && splits_units(lo, d);
    s->shares = (uint32_t)threads;
    s->proto = (ru_kern_rnn){.cell = row->cell,
                             .t = t,
                             .reverse = strcmp(direction, "reverse") == 0 || dir == 1,
                             .late = ru_node_int(n, RU_ATTR_linear_before_reset, 0) != 0,
                             .relu = row->cell == RU_CELL_PLAIN && activations(n, relu, 1, false),
                             .steps = d->steps,
                             .batch = d->batch,
                             .hidden = h,
                             .ws_step = d->dirs * d->batch * (g + 1) * h,
                             .y_step = d->dirs * d->batch * h};
    int64_t rows = s->by_units ? d->batch : (d->batch + threads - 1) / threads;
    s->work = (s->k->rnn_work(&s->proto, rows, grad) + 31) / 32 * 32;
    bool early = row->cell == RU_CELL_GRU && !s->proto.late;
    g = early ? 2 : g;
    s->packed_r = grad ? s->k->gemm_pack_floats(g * h, h) : s->k->rnn_pack_floats(g, h);
    if (early) {
        s->packed_u = grad ? s->k->gemm_pack_floats(h, h) : s->k->rnn_pack_floats(1, h);
    }
    return s;
}

/* -- forward -------------------------------------------------------------------------------------
 */

/* R in the form the recurrence reads, and the sums of the two biases behind it; GRU's third gate
 * keeps them apart. bufs: 0 R 1 B 2 packed R, packed Ru, bias 3 work */
static ru_status pack_run(void *state, void *const *bufs, const rui_run *run)
{
    (void)run;
    const rnn_state *s = state;
    int64_t h = s->proto.hidden, gates = s->proto.cell, all = gates * h;
    const float *r = bufs[0], *b = bufs[1];
    float *u = (float *)bufs[2] + s->packed_r, *bias = u + s->packed_u;
    s->k->rnn_pack(s->packed_u > 0 ? 2 : gates, h, r, s->pairs, bufs[3], bufs[2]);
    if (s->packed_u > 0) {
        s->k->rnn_pack(1, h, r + 2 * h * h, false, bufs[3], u);
    }
    for (int64_t i = 0; i < all; i++) {
        bool apart = s->proto.cell == RU_CELL_GRU && i >= 2 * h;
        bias[i] = b == NULL ? 0.0f : b[i] + (apart ? 0.0f : b[all + i]);
        if (apart) {
            bias[h + i] = b == NULL ? 0.0f : b[all + i];
        }
    }
    return RU_OK;
}

/* Packed R and biases: before the first run only, when they never change. */
static rui_buf pack(rui_low *lo, const ru_node *n, rnn_state *s, rui_buf r, rui_buf b)
{
    bool frozen =
        lo->vals[n->in[2].v].frozen && (!ru_node_has_in(n, 3) || lo->vals[n->in[3].v].frozen);
    int64_t h = s->proto.hidden;
    int64_t bytes = (s->packed_r + s->packed_u + 4 * h) * (int64_t)sizeof(float);
    rui_buf packed = frozen ? rui_buf_new(lo, RUI_BUF_PACKED, bytes) : rui_workspace(lo, bytes);
    rui_buf bufs[4] = {r, b, packed, floats(lo, 96 * h)};
    rui_step step = {
        .kernel = "kern rnn pack", .fn = pack_run, .state = s, .bufs = bufs, .n_bufs = 4};
    rui_emit_to(lo, frozen ? &lo->prep : &lo->run, &step, frozen ? 0 : lo->node);
    return packed;
}

enum { PRE = COMMON_BUFS, IDS, PEEP, Y_H, Y_C, FORWARD_BUFS };

static ru_status forward_run(void *state, void *const *bufs, const rui_run *run)
{
    const rnn_state *s = state;
    rnn_job j = job_of(s, bufs);
    j.a.bias = j.a.packed_u + s->packed_u;
    if (s->proto.cell == RU_CELL_LSTM) {
        j.a.packed_u = bufs[PEEP];
    }
    j.a.pre = s->proto.vocabulary > 0 ? NULL : bufs[PRE];
    j.a.table = bufs[PRE];
    j.a.ids = bufs[IDS];
    j.a.y_h = bufs[Y_H];
    j.a.y_c = bufs[Y_C];
    if (ru_pool_threads(run->pool) == 1 || (j.a.batch == 1 && !s->by_units)) {
        run_share(&j, 0, 1);
    } else {
        ru_pool_run(run->pool, run_share, &j);
    }
    return RU_OK;
}

typedef struct forward_bufs {
    lookup l;
    ru_dtype t;
    bool keeps; /* LSTM: what the gradient reads */
    rui_buf x, r, b, lens, h0, c0, peep, y, yh, yc, ws;
} forward_bufs;

/* One direction. */
static void forward_direction(rui_low *lo, const ru_node *n, const rui_rnn_dims *d,
                              const forward_bufs *f, int64_t k)
{
    int64_t h = d->hidden, g = d->gates, dirs = d->dirs, hc = dirs * d->batch * h * 4;
    const ru_node *emb = f->l.gather;
    rui_buf pre = emb != NULL ? table_product(lo, d, emb, n->in[1])
                              : rui_workspace(lo, d->steps * d->batch * g * h * 4);
    if (emb == NULL && rui_rnn_input(lo, d, f->t, f->x, n->in[1], k, pre) != RU_OK) {
        return;
    }
    rnn_state *s = state_new(lo, d, n, f->t, k, false);
    if (s == NULL) {
        return;
    }
    if (emb != NULL) {
        s->proto.it = rui_type(lo, emb->in[1])->dtype;
        s->proto.vocabulary = rui_type(lo, emb->in[0])->dims[0];
        s->proto.ids_step = f->l.swap == NULL ? d->batch : 1;
        s->proto.ids_row = f->l.swap == NULL ? 1 : d->steps;
    }
    rui_buf ws = from_dir(lo, f->ws, d, k, (g + 1) * h * 4);
    bool shorter = f->lens.v != 0, turns = shorter && s->proto.reverse;
    if (shorter) {
        rui_rnn_lens_before(lo, d, turns, f->lens, pre);
        s->proto.reverse = false;
    }
    if (shorter && f->yc.v != 0) {
        s->proto.ws_step = d->batch * (g + 1) * h;
        ws = rui_workspace(lo, d->steps * s->proto.ws_step * 4);
    } else if (s->proto.cell == RU_CELL_LSTM && !f->keeps) {
        s->proto.cells_only = true;
        s->proto.ws_step = 0;
        ws = floats(lo, d->batch * h);
    }
    rui_buf bufs[FORWARD_BUFS] = {
        [PACKED] = pack(lo, n, s, rui_rnn_piece(lo, f->r, k, dirs, dirs * g * h * h * 4),
                        rui_rnn_piece(lo, f->b, k, dirs, dirs * 2 * g * h * 4)),
        [PRE] = pre,
        [IDS] = emb == NULL ? (rui_buf){0} : rui_in_plain(lo, emb->in[1]),
        [PEEP] = rui_rnn_piece(lo, f->peep, k, dirs, dirs * 3 * h * 4),
        [H0] = rui_rnn_piece(lo, f->h0, k, dirs, hc),
        [C0] = rui_rnn_piece(lo, f->c0, k, dirs, hc),
        [WS] = ws,
        [Y] = from_dir(lo, f->y, d, k, h * ru_dtype_bytes(f->t)),
        [Y_H] = rui_rnn_piece(lo, f->yh, k, dirs, hc),
        [Y_C] = rui_rnn_piece(lo, f->yc, k, dirs, hc),
        [WORK] = floats(lo, s->work * (int64_t)rui_threads(lo))};
    rui_emit(lo, &(rui_step){.kernel = row_of(n)->kernel,
                             .fn = forward_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = FORWARD_BUFS});
    if (shorter) {
        rui_rnn_lens_after(lo, d, turns,
                           &(rui_rnn_lens){.lens = f->lens,
                                           .h0 = bufs[H0],
                                           .c0 = bufs[C0],
                                           .ws = f->yc.v != 0 ? ws : (rui_buf){0},
                                           .y = bufs[Y],
                                           .y_h = bufs[Y_H],
                                           .y_c = bufs[Y_C]});
    }
}

/* X, W, R, B?, lens?, h0?, and LSTM's c0? and peepholes? -> Y?, Y_h?, LSTM's Y_c?, workspace? */
ru_status rui_lower_kern_rnn(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const cell_row *row = row_of(n);
    rui_rnn_dims d;
    if (!forward_fits(lo, n, &d)) {
        return RU_E_UNSUPPORTED;
    }
    bool lstm = row->cell == RU_CELL_LSTM, keeps = ru_node_has_out(n, row->ws);
    forward_bufs f = {.t = lstm ? rui_rnn_dtype(lo) : RU_F32, .keeps = keeps};
    bool lens = ru_node_has_in(n, 4);
    f.l = lstm && !lens ? lookup_of(lo, &d, n->in[0]) : (lookup){0};
    f.x = f.l.gather == NULL ? in_as(lo, n, 0, f.t) : (rui_buf){0};
    f.r = in_as(lo, n, 2, RU_F32);
    f.b = in_as(lo, n, 3, RU_F32);
    f.lens = lens ? rui_in_plain(lo, n->in[4]) : (rui_buf){0};
    f.h0 = in_as(lo, n, 5, RU_F32);
    f.c0 = in_as(lo, n, 6, RU_F32);
    f.peep = in_as(lo, n, 7, RU_F32);
    f.y = out_as(lo, n, 0, f.t);
    if ((f.t == RU_BF16 || lens) && !ru_node_has_out(n, 0)) { /* the recurrence reads it */
        f.y = rui_workspace(lo, d.steps * d.dirs * d.batch * d.hidden * ru_dtype_bytes(f.t));
    }
    f.yh = out_as(lo, n, 1, RU_F32);
    f.yc = lstm ? out_as(lo, n, 2, RU_F32) : (rui_buf){0};
    f.ws = out_as(lo, n, row->ws, RU_F32);
    for (int64_t k = 0; k < d.dirs && rui_done(lo) == RU_OK; k++) {
        forward_direction(lo, n, &d, &f, k);
    }
    return rui_done(lo);
}

/* -- backward ------------------------------------------------------------------------------------
 */

enum { R = COMMON_BUFS, DB, DY, DY_H, DY_C, DG, DL, H_PREV, ARG, DH0, DC0, BACK_BUFS };

static void back_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *work)
{
    (void)bufs;
    const rnn_job *j = state;
    j->s->k->rnn_grad(&j->a, begin, end, work);
}

/* Columns of dB: W's, and R's, which are the same unless R sees other gradients. */
static void bias_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const rnn_state *s = state;
    int64_t g = s->proto.cell * s->proto.hidden, rows = s->proto.steps * s->proto.batch;
    float *db = bufs[DB];
    s->k->sum_rows(s->proto.t, bufs[DG], rows, g, begin, end, db);
    if (bufs[DL] != NULL) {
        s->k->sum_rows(RU_F32, bufs[DL], rows, g, begin, end, db + g);
    } else {
        memcpy(db + g + begin, db + begin, sizeof(float) * (size_t)(end - begin));
    }
}

static ru_status back_run(void *state, void *const *bufs, const rui_run *run)
{
    const rnn_state *s = state;
    rnn_job j = job_of(s, bufs);
    int64_t h = s->proto.hidden, g = s->proto.cell * h;
    const float *r = bufs[R];
    float *packed = bufs[PACKED];
    if (s->pairs) {
        s->k->gemm_bf16_pack(r, h, 1, g, h, bufs[PACKED]);
    } else {
        s->k->gemm_pack(r, h, 1, s->packed_u > 0 ? 2 * h : g, h, packed);
    }
    if (s->packed_u > 0) {
        s->k->gemm_pack(r + 2 * h * h, h, 1, h, h, packed + s->packed_r);
    }
    j.a.dy = bufs[DY];
    j.a.dy_h = bufs[DY_H];
    j.a.dy_c = bufs[DY_C];
    j.a.dg = bufs[DG];
    j.a.dl = bufs[DL];
    j.a.h_prev = bufs[H_PREV];
    j.a.arg = bufs[ARG];
    j.a.dh0 = bufs[DH0];
    j.a.dc0 = bufs[DC0];
    /* in a run on one thread it takes all rows, in the memory of the others behind its own */
    rui_kern_for_own(run, back_part, &j, bufs, j.a.batch, 1, bufs[WORK],
                     s->work * (int64_t)sizeof(float));
    if (bufs[DB] != NULL) {
        rui_kern_for(run, bias_part, s, bufs, g, 64);
    }
    return RU_OK;
}

/* dR of an early reset: z and r multiplied h, u multiplied r h. */
static ru_status early_dr(rui_low *lo, const rui_rnn_dims *d, rui_buf dg, rui_buf hp, rui_buf arg,
                          rui_buf dr)
{
    int64_t all = d->steps * d->batch, h = d->hidden, g = 3 * h;
    rui_rnn_product zr = {.a = rui_rnn_md(lo, 2 * h, all, 1, g, RU_F32),
                          .b = rui_rnn_md(lo, all, h, h, 1, RU_F32),
                          .c = rui_rnn_md(lo, 2 * h, h, h, 1, RU_F32),
                          .ab = dg,
                          .bb = hp,
                          .cb = rui_buf_part(lo, dr, 0, 2 * h * h * 4)};
    rui_rnn_product u = {.a = rui_rnn_md(lo, h, all, 1, g, RU_F32),
                         .b = zr.b,
                         .c = rui_rnn_md(lo, h, h, h, 1, RU_F32),
                         .ab = rui_buf_part(lo, dg, 2 * h * 4, (all * g - 2 * h) * 4),
                         .bb = arg,
                         .cb = rui_buf_part(lo, dr, 2 * h * h * 4, h * h * 4)};
    RU_TRY(rui_rnn_emit(lo, &zr));
    return rui_rnn_emit(lo, &u);
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
    de.bb = in_as(lo, n, 4, RU_F32);
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

typedef struct back_bufs {
    ru_dtype t, dx_t;
    const ru_node *emb, *emb_grad;                /* NULL: dX goes where it is asked for */
    rui_buf dy, dyh, dyc, x, w, r, h0, c0, y, ws; /* given */
    rui_buf dx, dw, dr, db, dh0, dc0;
} back_bufs;

/* One direction. */
static ru_status back_direction(rui_low *lo, const ru_node *n, const rui_rnn_dims *d,
                                const back_bufs *b, int64_t k)
{
    int64_t h = d->hidden, all = d->steps * d->batch, dirs = d->dirs, hc = dirs * d->batch * h * 4;
    int64_t g = d->gates * h, bytes = ru_dtype_bytes(b->t);
    rnn_state *s = state_new(lo, d, n, b->t, k, true);
    if (s == NULL) {
        return rui_done(lo);
    }
    bool early = s->packed_u > 0, apart = s->proto.cell == RU_CELL_GRU && !early;
    rui_buf none = {0}, dg = rui_workspace(lo, all * g * bytes);
    rui_buf hp = rui_workspace(lo, all * h * bytes);
    rui_buf dl = apart ? rui_workspace(lo, all * g * 4) : none;
    rui_buf arg = early ? rui_workspace(lo, all * h * 4) : none;
    rui_buf r = rui_rnn_piece(lo, b->r, k, dirs, dirs * g * h * 4);
    rui_buf bufs[BACK_BUFS] = {[R] = r,
                               [DB] = rui_rnn_piece(lo, b->db, k, dirs, dirs * 2 * g * 4),
                               [H0] = rui_rnn_piece(lo, b->h0, k, dirs, hc),
                               [C0] = rui_rnn_piece(lo, b->c0, k, dirs, hc),
                               [WS] = from_dir(lo, b->ws, d, k, (g + h) * 4),
                               [Y] = from_dir(lo, b->y, d, k, h * bytes),
                               [DY_H] = rui_rnn_piece(lo, b->dyh, k, dirs, hc),
                               [DY_C] = rui_rnn_piece(lo, b->dyc, k, dirs, hc),
                               [PACKED] = floats(lo, s->packed_r + s->packed_u),
                               [WORK] = floats(lo, s->work * (int64_t)rui_threads(lo)),
                               [DY] = from_dir(lo, b->dy, d, k, h * bytes),
                               [DG] = dg,
                               [DL] = dl,
                               [H_PREV] = hp,
                               [ARG] = arg,
                               [DH0] = rui_rnn_piece(lo, b->dh0, k, dirs, hc),
                               [DC0] = rui_rnn_piece(lo, b->dc0, k, dirs, hc)};
    rui_emit(lo, &(rui_step){.kernel = row_of(n)->back,
                             .fn = back_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = BACK_BUFS});
    rui_buf dr = rui_rnn_piece(lo, b->dr, k, dirs, dirs * g * h * 4);
    rui_rnn_product io[3] = {
        {.ab = b->x, .bb = rui_rnn_piece(lo, b->w, k, dirs, dirs * g * d->in * bytes), .cb = b->dx},
        {.ab = dg, .bb = hp, .cb = rui_rnn_piece(lo, b->dw, k, dirs, dirs * g * d->in * 4)},
        {.ab = dl, .cb = early ? none : dr}};
    if (b->emb_grad != NULL) {
        return grad_by_token(lo, d, b->t, n, b->emb, b->emb_grad, io);
    }
    RU_TRY(rui_rnn_grads(lo, d, b->t, b->dx_t, io, k));
    return early && dr.v != 0 ? early_dr(lo, d, dg, hp, arg, dr) : rui_done(lo);
}

/* dY?, dY_h?, LSTM's dY_c?, X, W, R, B?, h0?, LSTM's c0?, Y, workspace (not RNNGrad) -> dX, dW, dR,
 * dB, dh0, LSTM's dc0 */
ru_status rui_lower_kern_rnn_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const cell_row *row = row_of(n);
    bool lstm = row->cell == RU_CELL_LSTM, ws = row->cell != RU_CELL_PLAIN;
    uint32_t x = row->x;
    rui_rnn_dims d;
    if (!read_dims(lo, n, row, x, &d)) {
        return RU_E_UNSUPPORTED;
    }
    ru_dtype t = lstm ? rui_rnn_dtype(lo) : RU_F32;
    back_bufs b = {.t = t, .dx_t = t};
    b.dy = in_as(lo, n, 0, t);
    if (lstm) {
        b.emb = embedding_of(lo, &d, n->in[x]);
        b.emb_grad = embedding_grad(lo, n, b.emb);
    }
    if (b.emb_grad == NULL) {
        b.x = in_as(lo, n, x, t);
        b.w = in_as(lo, n, x + 1, t);
    }
    b.r = in_as(lo, n, x + 2, RU_F32);
    b.h0 = in_as(lo, n, x + 4, RU_F32);
    b.c0 = lstm ? in_as(lo, n, x + 5, RU_F32) : (rui_buf){0};
    b.y = in_as(lo, n, row->y, t);
    b.ws = ws ? in_as(lo, n, row->y + 1, RU_F32) : (rui_buf){0};
    b.dyh = in_as(lo, n, 1, RU_F32);
    b.dyc = lstm ? in_as(lo, n, 2, RU_F32) : (rui_buf){0};
    if (ru_node_has_out(n, 0) && b.emb_grad == NULL) {
        b.dx_t = t == RU_BF16 ? rui_store_dtype(lo, n->out[0]) : t;
        b.dx = out_as(lo, n, 0, b.dx_t);
    }
    b.dw = out_as(lo, n, 1, RU_F32);
    b.dr = out_as(lo, n, 2, RU_F32);
    b.db = out_as(lo, n, 3, RU_F32);
    b.dh0 = out_as(lo, n, 4, RU_F32);
    b.dc0 = lstm ? out_as(lo, n, 5, RU_F32) : (rui_buf){0};
    for (int64_t k = 0; k < d.dirs && rui_done(lo) == RU_OK; k++) {
        RU_TRY(back_direction(lo, n, &d, &b, k));
    }
    if (b.dx.v != 0) {
        rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    }
    return rui_done(lo);
}
