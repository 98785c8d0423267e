/* GRU and the plain recurrent layer: as LSTM (lower_kern_rnn.c), large products of all time steps
 * through oneDNN, the recurrence on our kernels. Always in f32.
 *
 *   backward: the recurrence gives dG as W sees it, as R sees it, and what multiplied R; then
 *             dX += dG W, dW = dG^T X, dR = dG^T H', dB = column sums. */
#include <string.h>

#include "exec/cpu/low/low.h"
#include "exec/cpu/lower/lower_rnn.h"

typedef enum cell { CELL_GRU, CELL_PLAIN } cell;

typedef struct gru_state {
    const ru_kern *k;
    ru_kern_rnn proto;
    cell cell;
    int64_t gates;
    int64_t work;               /* floats of one thread */
    int64_t packed_r, packed_u; /* floats of packed R */
    bool by_units;              /* threads split the units instead of the batch */
} gru_state;

typedef struct gru_job {
    const gru_state *s;
    ru_kern_rnn a;
} gru_job;

static void gru_part(const void *job, const ru_kern_share *mine)
{
    const gru_job *j = job;
    j->s->k->rnn(&j->a, mine);
}

static void gru_grad_part(const void *state, void *const *bufs, int64_t begin, int64_t end,
                          void *work)
{
    (void)bufs;
    const gru_job *j = state;
    j->s->k->rnn_grad(&j->a, begin, end, work);
}

/* bufs: 0 R 1 B 2 packed R, packed Ru, bias 3 work */
static ru_status pack_run(void *state, void *const *bufs, const rui_run *run)
{
    (void)run;
    const gru_state *s = state;
    int64_t h = s->proto.hidden, all = s->gates * h;
    const float *r = bufs[0], *b = bufs[1];
    float *packed = bufs[2], *u = packed + s->packed_r, *bias = u + s->packed_u;
    if (s->cell == CELL_PLAIN) {
        s->k->rnn_pack(1, h, r, false, bufs[3], packed);
    } else if (s->proto.late) {
        s->k->rnn_pack(3, h, r, false, bufs[3], packed);
    } else {
        s->k->rnn_pack(2, h, r, false, bufs[3], packed);
        s->k->rnn_pack(1, h, r + 2 * h * h, false, bufs[3], u);
    }
    for (int64_t i = 0; i < all; i++) {
        bool apart = s->cell == CELL_GRU && i >= 2 * h;
        bias[i] = b == NULL ? 0.0f : b[i] + (apart ? 0.0f : b[all + i]);
        if (apart) {
            bias[h + i] = b == NULL ? 0.0f : b[all + i];
        }
    }
    return RU_OK;
}

/* bufs: 0 packed 1 pre 2 h0 3 ws 4 y 5 y_h 6 work */
static ru_status gru_run(void *state, void *const *bufs, const rui_run *run)
{
    const gru_state *s = state;
    gru_job j = {.s = s, .a = s->proto};
    j.a.packed_r = bufs[0];
    j.a.packed_u = j.a.packed_r + s->packed_r;
    j.a.bias = j.a.packed_u + s->packed_u;
    j.a.pre = bufs[1];
    j.a.h0 = bufs[2];
    j.a.ws = bufs[3];
    j.a.y = bufs[4];
    j.a.y_h = bufs[5];
    rui_rnn_run(run, gru_part, &j, j.a.batch, s->by_units, bufs[6], s->work);
    return RU_OK;
}

static gru_state *state_new(rui_low *lo, const rui_rnn_dims *d, const ru_node *n, int64_t dir,
                            bool grad)
{
    static const char *const relu[] = {"Relu"};
    gru_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    int64_t h = d->hidden, threads = (int64_t)rui_threads(lo);
    *s = (gru_state){
        .k = ru_kern_best(), .cell = d->gates == 3 ? CELL_GRU : CELL_PLAIN, .gates = d->gates};
    s->proto = (ru_kern_rnn){.cell = d->gates == 3 ? RU_CELL_GRU : RU_CELL_PLAIN,
                             .t = RU_F32,
                             .reverse = d->reverse_first || dir == 1,
                             .late = ru_node_int(n, RU_ATTR_linear_before_reset, 0) != 0,
                             .relu = rui_rnn_activations(n, relu, 1, false),
                             .steps = d->steps,
                             .batch = d->batch,
                             .hidden = h,
                             .ws_step = d->dirs * d->batch * 4 * h,
                             .y_step = d->dirs * d->batch * h};
    s->by_units = !grad && rui_rnn_splits_units(lo, d);
    s->work = s->k->rnn_work(&s->proto,
                             grad ? (d->batch + threads - 1) / threads : rui_rnn_rows(lo, d), grad);
    s->work = (s->work + 31) / 32 * 32;
    bool whole = s->cell == CELL_PLAIN || s->proto.late;
    if (grad) {
        s->packed_r = s->k->gemm_pack_floats(whole ? d->gates * h : 2 * h, h);
        s->packed_u = whole ? 0 : s->k->gemm_pack_floats(h, h);
    } else {
        s->packed_r = s->k->rnn_pack_floats(whole ? d->gates : 2, h);
        s->packed_u = whole ? 0 : s->k->rnn_pack_floats(1, h);
    }
    return s;
}

static bool fits(rui_low *lo, const ru_node *n, uint32_t x, rui_rnn_dims *d)
{
    static const char *const gru[] = {"Sigmoid", "Tanh"}, *const relu[] = {"Relu"};
    bool plain = n->op == RU_OP_RNN || n->op == RU_OP_RNNGrad;
    return rui_rnn_dims_of(lo, n, x, plain ? 1 : 3, d) &&
           (plain
                ? rui_rnn_activations(n, gru + 1, 1, true) || rui_rnn_activations(n, relu, 1, false)
                : rui_rnn_activations(n, gru, 2, true));
}

/* GRU, GRUTrain, RNN (X, W, R, B?, lens?, h0?) -> Y?, Y_h?, workspace? */
ru_status rui_lower_kern_gru(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_rnn_dims d;
    if (!fits(lo, n, 0, &d) || ru_node_has_in(n, 4)) {
        return RU_E_UNSUPPORTED;
    }
    int64_t h = d.hidden, all = d.steps * d.batch, hc = d.dirs * d.batch * h * 4;
    int64_t y_bytes = all * d.dirs * h * 4, ws_bytes = 4 * y_bytes;
    rui_buf x = rui_rnn_in(lo, n, 0), r = rui_rnn_in(lo, n, 2), b = rui_rnn_in(lo, n, 3),
            h0 = rui_rnn_in(lo, n, 5);
    rui_buf y = rui_rnn_out(lo, n, 0), yh = rui_rnn_out(lo, n, 1),
            ws = n->op == RU_OP_GRUTrain ? rui_rnn_out(lo, n, 2) : (rui_buf){0};
    for (int64_t k = 0; k < d.dirs && rui_done(lo) == RU_OK; k++) {
        gru_state *s = state_new(lo, &d, n, k, false);
        if (s == NULL) {
            break;
        }
        int64_t y_at = k * d.batch * h * 4;
        bool one = d.dirs == 1;
        rui_buf pre = rui_workspace(lo, all * d.gates * h * 4);
        RU_TRY(rui_rnn_input(lo, &d, RU_F32, x, n->in[1], k, pre));
        rui_buf bufs[7] = {
            rui_rnn_pack(lo, n, pack_run, s, s->packed_r + s->packed_u + 4 * h, h,
                         rui_rnn_piece(lo, r, k, d.dirs, d.dirs * d.gates * h * h * 4),
                         rui_rnn_piece(lo, b, k, d.dirs, d.dirs * 2 * d.gates * h * 4)),
            pre,
            rui_rnn_piece(lo, h0, k, d.dirs, hc),
            one || ws.v == 0 ? ws : rui_buf_part(lo, ws, 4 * y_at, ws_bytes - 4 * y_at),
            one || y.v == 0 ? y : rui_buf_part(lo, y, y_at, y_bytes - y_at),
            rui_rnn_piece(lo, yh, k, d.dirs, hc),
            rui_rnn_floats(lo, s->work * (int64_t)rui_threads(lo))};
        rui_emit(lo, &(rui_step){.kernel = s->cell == CELL_GRU ? "kern gru" : "kern rnn",
                                 .fn = gru_run,
                                 .state = s,
                                 .bufs = bufs,
                                 .n_bufs = 7});
    }
    return rui_done(lo);
}

/* -- backward ------------------------------------------------------------------------------------
 */

/* Sums of the columns of dG, for the biases of W and of R.
 * bufs: 0 dG 1 dL or none 2 dB */
static ru_status bias_run(void *state, void *const *bufs, const rui_run *run)
{
    (void)run;
    const gru_state *s = state;
    int64_t g = s->gates * s->proto.hidden, rows = s->proto.steps * s->proto.batch;
    float *db = bufs[2];
    s->k->sum_rows(RU_F32, bufs[0], rows, g, 0, g, db);
    if (bufs[1] != NULL) {
        s->k->sum_rows(RU_F32, bufs[1], rows, g, 0, g, db + g);
    } else {
        memcpy(db + g, db, sizeof(float) * (size_t)g);
    }
    return RU_OK;
}

/* bufs: 0 R 1 h0 2 ws 3 y 4 dY 5 dY_h 6 packed 7 work 8 dG 9 dL 10 H' 11 r H' 12 dh0 */
static ru_status gru_grad_run(void *state, void *const *bufs, const rui_run *run)
{
    const gru_state *s = state;
    gru_job j = {.s = s, .a = s->proto};
    int64_t h = s->proto.hidden;
    float *packed = bufs[6];
    const float *r = bufs[0];
    if (s->packed_u == 0) {
        s->k->gemm_pack(r, h, 1, s->gates * h, h, packed);
    } else {
        s->k->gemm_pack(r, h, 1, 2 * h, h, packed);
        s->k->gemm_pack(r + 2 * h * h, h, 1, h, h, packed + s->packed_r);
    }
    j.a.packed_r = packed;
    j.a.packed_u = packed + s->packed_r;
    j.a.h0 = bufs[1];
    j.a.ws = bufs[2];
    j.a.y = bufs[3];
    j.a.dy = bufs[4];
    j.a.dy_h = bufs[5];
    j.a.dg = bufs[8];
    j.a.dl = bufs[9];
    j.a.h_prev = bufs[10];
    j.a.arg = bufs[11];
    j.a.dh0 = bufs[12];
    rui_kern_for_own(run, gru_grad_part, &j, bufs, j.a.batch, 1, bufs[7],
                     s->work * (int64_t)sizeof(float));
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

typedef struct gru_grads {
    rui_buf dy, dyh, x, w, r, h0, y, ws; /* given */
    rui_buf dx, dw, dr, db, dh0;
} gru_grads;

/* One direction. */
static ru_status grad_direction(rui_low *lo, const ru_node *n, const rui_rnn_dims *d,
                                const gru_grads *b, int64_t k)
{
    int64_t h = d->hidden, all = d->steps * d->batch, hc = d->dirs * d->batch * h * 4;
    int64_t y_at = k * d->batch * h * 4, y_bytes = all * d->dirs * h * 4, g = d->gates * h;
    int64_t r_bytes = d->dirs * g * h * 4, w_bytes = d->dirs * g * d->in * 4;
    bool one = d->dirs == 1;
    gru_state *s = state_new(lo, d, n, k, true);
    if (s == NULL) {
        return rui_done(lo);
    }
    bool apart = s->cell == CELL_GRU && s->proto.late, early = s->packed_u != 0;
    rui_buf dg = rui_workspace(lo, all * g * 4), hp = rui_workspace(lo, all * h * 4);
    rui_buf dl = apart ? rui_workspace(lo, all * g * 4) : (rui_buf){0};
    rui_buf arg = early ? rui_workspace(lo, all * h * 4) : (rui_buf){0};
    rui_buf bufs[13] = {
        rui_rnn_piece(lo, b->r, k, d->dirs, r_bytes),
        rui_rnn_piece(lo, b->h0, k, d->dirs, hc),
        one || b->ws.v == 0 ? b->ws : rui_buf_part(lo, b->ws, 4 * y_at, 4 * (y_bytes - y_at)),
        one ? b->y : rui_buf_part(lo, b->y, y_at, y_bytes - y_at),
        one || b->dy.v == 0 ? b->dy : rui_buf_part(lo, b->dy, y_at, y_bytes - y_at),
        rui_rnn_piece(lo, b->dyh, k, d->dirs, hc),
        rui_rnn_floats(lo, s->packed_r + s->packed_u),
        rui_rnn_floats(lo, s->work * (int64_t)rui_threads(lo)),
        dg,
        dl,
        hp,
        arg,
        rui_rnn_piece(lo, b->dh0, k, d->dirs, hc)};
    rui_emit(lo, &(rui_step){.kernel = s->cell == CELL_GRU ? "kern gru grad" : "kern rnn grad",
                             .fn = gru_grad_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 13});
    if (b->db.v != 0) {
        rui_buf sums[3] = {dg, dl, rui_rnn_piece(lo, b->db, k, d->dirs, d->dirs * 2 * g * 4)};
        rui_emit(lo, &(rui_step){.kernel = "kern rnn bias grad",
                                 .fn = bias_run,
                                 .state = s,
                                 .bufs = sums,
                                 .n_bufs = 3});
    }
    rui_buf dr = rui_rnn_piece(lo, b->dr, k, d->dirs, r_bytes);
    rui_rnn_product io[3] = {
        {.ab = b->x, .bb = rui_rnn_piece(lo, b->w, k, d->dirs, w_bytes), .cb = b->dx},
        {.ab = dg, .bb = hp, .cb = rui_rnn_piece(lo, b->dw, k, d->dirs, w_bytes)},
        {.ab = dl, .cb = early ? (rui_buf){0} : dr}};
    RU_TRY(rui_rnn_grads(lo, d, RU_F32, RU_F32, io, k));
    return early && dr.v != 0 ? early_dr(lo, d, dg, hp, arg, dr) : rui_done(lo);
}

/* GRUGrad, RNNGrad(dY?, dY_h?, X, W, R, B?, h0?, Y, workspace) -> dX, dW, dR, dB, dh0; RNNGrad has
 * no workspace. */
ru_status rui_lower_kern_gru_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_rnn_dims d;
    if (!fits(lo, n, 2, &d)) {
        return RU_E_UNSUPPORTED;
    }
    gru_grads b = {.dy = rui_rnn_in(lo, n, 0),
                   .dyh = rui_rnn_in(lo, n, 1),
                   .x = rui_rnn_in(lo, n, 2),
                   .w = rui_rnn_in(lo, n, 3),
                   .r = rui_rnn_in(lo, n, 4),
                   .h0 = rui_rnn_in(lo, n, 6),
                   .y = rui_rnn_in(lo, n, 7),
                   .ws = n->op == RU_OP_GRUGrad ? rui_rnn_in(lo, n, 8) : (rui_buf){0}};
    b.dx = rui_rnn_out(lo, n, 0);
    b.dw = rui_rnn_out(lo, n, 1);
    b.dr = rui_rnn_out(lo, n, 2);
    b.db = rui_rnn_out(lo, n, 3);
    b.dh0 = rui_rnn_out(lo, n, 4);
    for (int64_t k = 0; k < d.dirs && rui_done(lo) == RU_OK; k++) {
        RU_TRY(grad_direction(lo, n, &d, &b, k));
    }
    if (ru_node_has_out(n, 0)) {
        rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    }
    return rui_done(lo);
}
