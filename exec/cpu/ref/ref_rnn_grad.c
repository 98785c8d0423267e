/* LSTM, GRU and the plain layer backward through time.
 *
 * Each sequence is walked from its last step to its first; `dh` and `dc` carry the gradient of the
 * state, and every step turns them into gradients of the gates' sums, which feed dX, dW, dR and dB.
 */
#include "exec/cpu/ref/ref_rnn_impl.h"

#include <math.h>
#include <string.h>

typedef struct rnn_grad {
    rui_rnn n;
    double *dy, *dyh, *dyc, *y, *work; /* given, some NULL */
    double *dx, *dw, *dr, *db, *dh0, *dc0;
} rnn_grad;

/* Only what the workspace can differentiate: the usual activations, no clip, no coupling. */
static ru_status usual_only(const ru_ref_call *c, const rui_rnn *n, ru_err *err)
{
    static const char *const lstm[] = {"Sigmoid", "Tanh", "Tanh"};
    bool usual = n->clip <= 0.0 && !n->input_forget;
    for (int64_t d = 0; d < n->dirs && n->gates > 1; d++) {
        for (uint32_t k = 0; k < (n->gates == 4 ? 3u : 2u); k++) {
            usual = usual && strcmp(n->act[d][k].name, lstm[k]) == 0;
        }
    }
    for (int64_t d = 0; d < n->dirs && n->gates == 1; d++) {
        usual = usual &&
                (strcmp(n->act[d][0].name, "Tanh") == 0 || strcmp(n->act[d][0].name, "Relu") == 0);
    }
    if (!usual) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "%s: gradients need the usual activations, no clip and no input_forget",
                       ru_op_get(c->node->op)->name);
    }
    return RU_OK;
}

static ru_status grad_load(const ru_ref_call *c, int64_t gates, rnn_grad *g, ru_err *err)
{
    bool lstm = gates == 4;
    uint32_t x = lstm ? 3 : 2, b = x + 3, h0 = x + 4, c0 = x + 5, y = lstm ? 9 : 7;
    rui_rnn *n = &g->n;
    *g = (rnn_grad){0};
    RU_TRY(rui_rnn_make(c, &c->in[x].type, &c->in[x + 2].type, gates, n, err));
    RU_TRY(usual_only(c, n, err));
    RU_TRY(rui_ref_in(c, 0, &g->dy, err));
    RU_TRY(rui_ref_in(c, 1, &g->dyh, err));
    RU_TRY(rui_ref_in(c, x, &n->x, err));
    RU_TRY(rui_ref_in(c, x + 1, &n->w, err));
    RU_TRY(rui_ref_in(c, x + 2, &n->r, err));
    RU_TRY(rui_ref_in(c, b, &n->b, err));
    RU_TRY(rui_ref_in(c, h0, &n->h0, err));
    if (lstm) {
        RU_TRY(rui_ref_in(c, 2, &g->dyc, err));
        RU_TRY(rui_ref_in(c, c0, &n->c0, err));
    }
    RU_TRY(rui_ref_in(c, y, &g->y, err));
    RU_TRY(rui_ref_in(c, y + 1, &g->work, err));
    int64_t rows = n->dirs * gates * n->hid, states = n->dirs * n->batch * n->hid;
    RU_TRY(rui_ref_zeros(c, n->seq * n->batch * n->in, &g->dx, err));
    RU_TRY(rui_ref_zeros(c, rows * n->in, &g->dw, err));
    RU_TRY(rui_ref_zeros(c, rows * n->hid, &g->dr, err));
    RU_TRY(rui_ref_zeros(c, 2 * rows, &g->db, err));
    RU_TRY(rui_ref_zeros(c, states, &g->dh0, err));
    RU_TRY(rui_ref_zeros(c, states, &g->dc0, err));
    return RU_OK;
}

static void grad_store(const ru_ref_call *c, const rnn_grad *g)
{
    const double *all[] = {g->dx, g->dw, g->dr, g->db, g->dh0, g->dc0};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(all); k++) {
        if (rui_ref_has_out(c, k)) {
            rui_ref_store(&c->out[k], all[k]);
        }
    }
}

/* The state before step s: the previous step's output, h0, or zero. */
static double state_before(const rnn_grad *g, int64_t dir, int64_t b, int64_t s, int64_t j)
{
    const rui_rnn *n = &g->n;
    if (s > 0) {
        int64_t t = rui_rnn_time(n, dir, n->seq, s - 1);
        return g->y[rui_rnn_y_at(n, t, dir, b) + j];
    }
    return n->h0 != NULL ? n->h0[rui_rnn_h_at(n, dir, b) + j] : 0.0;
}

/* Gradient `ds` of the sum of gate row `row`: into W, x and W's bias. */
static void back_input(rnn_grad *g, int64_t dir, int64_t row, double ds, int64_t x_at)
{
    rui_rnn *n = &g->n;
    int64_t all = n->gates * n->hid, at = dir * all + row;
    for (int64_t k = 0; k < n->in; k++) {
        g->dw[at * n->in + k] += ds * n->x[x_at + k];
        g->dx[x_at + k] += ds * n->w[at * n->in + k];
    }
    g->db[dir * 2 * all + row] += ds;
}

/* The same into R, the state it multiplied (value `h`, gradient `dh`) and R's bias. */
static void back_state(rnn_grad *g, int64_t dir, int64_t row, double ds, const double *h,
                       double *dh)
{
    rui_rnn *n = &g->n;
    int64_t all = n->gates * n->hid, at = dir * all + row;
    for (int64_t k = 0; k < n->hid; k++) {
        g->dr[at * n->hid + k] += ds * h[k];
        dh[k] += ds * n->r[at * n->hid + k];
    }
    g->db[dir * 2 * all + all + row] += ds;
}

/* One LSTM step backward; dh and dc become the gradients of the state before it. `tmp` [2*hid]. */
static void lstm_back(rnn_grad *g, int64_t dir, int64_t b, int64_t s, double *dh, double *dc,
                      double *tmp)
{
    rui_rnn *n = &g->n;
    int64_t H = n->hid, t = rui_rnn_time(n, dir, n->seq, s), x_at = rui_rnn_x_at(n, t, b);
    const double *work = g->work + rui_rnn_work_at(n, t, dir, b, 5);
    int64_t t_before = s > 0 ? rui_rnn_time(n, dir, n->seq, s - 1) : 0;
    const double *c_before = s > 0 ? g->work + rui_rnn_work_at(n, t_before, dir, b, 5) + 4 * H
                                   : (n->c0 != NULL ? n->c0 + rui_rnn_h_at(n, dir, b) : NULL);
    double *h = tmp, *dh_before = tmp + H;
    for (int64_t j = 0; j < H; j++) {
        h[j] = state_before(g, dir, b, s, j);
        dh_before[j] = 0.0;
        dh[j] += g->dy != NULL ? g->dy[rui_rnn_y_at(n, t, dir, b) + j] : 0.0;
    }
    for (int64_t j = 0; j < H; j++) {
        double i = work[j], o = work[H + j], f = work[2 * H + j], u = work[3 * H + j];
        double tc = tanh(work[4 * H + j]), old = c_before != NULL ? c_before[j] : 0.0;
        double d = dc[j] + dh[j] * o * (1.0 - tc * tc);
        double ds[4] = {d * u * i * (1.0 - i), dh[j] * tc * o * (1.0 - o), d * old * f * (1.0 - f),
                        d * i * (1.0 - u * u)};
        dc[j] = d * f;
        for (int64_t k = 0; k < 4; k++) {
            back_input(g, dir, k * H + j, ds[k], x_at);
            back_state(g, dir, k * H + j, ds[k], h, dh_before);
        }
    }
    memcpy(dh, dh_before, (size_t)H * sizeof dh[0]);
}

/* One GRU step backward. `tmp` [4*hid]: state before, its gradient, R_h's argument, its gradient.
 */
static void gru_back(rnn_grad *g, int64_t dir, int64_t b, int64_t s, double *dh, double *dc,
                     double *tmp)
{
    (void)dc;
    rui_rnn *n = &g->n;
    int64_t H = n->hid, t = rui_rnn_time(n, dir, n->seq, s), x_at = rui_rnn_x_at(n, t, b);
    const double *work = g->work + rui_rnn_work_at(n, t, dir, b, 4);
    bool late = n->linear_before_reset;
    double *h = tmp, *dh_before = tmp + H, *arg = tmp + 2 * H, *darg = tmp + 3 * H;
    for (int64_t j = 0; j < H; j++) {
        h[j] = state_before(g, dir, b, s, j);
        dh[j] += g->dy != NULL ? g->dy[rui_rnn_y_at(n, t, dir, b) + j] : 0.0;
        dh_before[j] = dh[j] * work[j];
        arg[j] = late ? h[j] : work[H + j] * h[j];
        darg[j] = 0.0;
    }
    for (int64_t j = 0; j < H; j++) {
        double z = work[j], r = work[H + j], u = work[2 * H + j], linear = work[3 * H + j];
        double du = dh[j] * (1.0 - z) * (1.0 - u * u), dz = dh[j] * (h[j] - u) * z * (1.0 - z);
        back_input(g, dir, 2 * H + j, du, x_at);
        back_state(g, dir, 2 * H + j, late ? du * r : du, arg, darg);
        back_input(g, dir, j, dz, x_at);
        back_state(g, dir, j, dz, h, dh_before);
        if (late) {
            double dr = du * linear * r * (1.0 - r);
            back_input(g, dir, H + j, dr, x_at);
            back_state(g, dir, H + j, dr, h, dh_before);
        }
    }
    for (int64_t j = 0; j < H; j++) {
        double r = work[H + j];
        dh_before[j] += late ? darg[j] : darg[j] * r;
    }
    for (int64_t j = 0; !late && j < H; j++) {
        double r = work[H + j], dr = darg[j] * h[j] * r * (1.0 - r);
        back_input(g, dir, H + j, dr, x_at);
        back_state(g, dir, H + j, dr, h, dh_before);
    }
    memcpy(dh, dh_before, (size_t)H * sizeof dh[0]);
}

/* One step of the plain layer. `tmp` [2*hid]: state before, its gradient. */
static void rnn_back(rnn_grad *g, int64_t dir, int64_t b, int64_t s, double *dh, double *dc,
                     double *tmp)
{
    (void)dc;
    rui_rnn *n = &g->n;
    int64_t H = n->hid, t = rui_rnn_time(n, dir, n->seq, s), x_at = rui_rnn_x_at(n, t, b);
    const double *y = g->y + rui_rnn_y_at(n, t, dir, b);
    bool relu = strcmp(n->act[dir][0].name, "Relu") == 0;
    double *h = tmp, *dh_before = tmp + H;
    for (int64_t j = 0; j < H; j++) {
        h[j] = state_before(g, dir, b, s, j);
        dh[j] += g->dy != NULL ? g->dy[rui_rnn_y_at(n, t, dir, b) + j] : 0.0;
        dh_before[j] = 0.0;
    }
    for (int64_t j = 0; j < H; j++) {
        double ds = relu ? (y[j] > 0.0 ? dh[j] : 0.0) : dh[j] * (1.0 - y[j] * y[j]);
        back_input(g, dir, j, ds, x_at);
        back_state(g, dir, j, ds, h, dh_before);
    }
    memcpy(dh, dh_before, (size_t)H * sizeof dh[0]);
}

typedef void (*back_fn)(rnn_grad *g, int64_t dir, int64_t b, int64_t s, double *dh, double *dc,
                        double *tmp);

static ru_status back(const ru_ref_call *c, int64_t gates, back_fn step, ru_err *err)
{
    rnn_grad g;
    double *tmp;
    RU_TRY(grad_load(c, gates, &g, err));
    RU_TRY(rui_ref_zeros(c, 4 * g.n.hid, &tmp, err));
    for (int64_t dir = 0; dir < g.n.dirs; dir++) {
        for (int64_t b = 0; b < g.n.batch; b++) {
            int64_t at = rui_rnn_h_at(&g.n, dir, b);
            for (int64_t j = 0; j < g.n.hid; j++) {
                g.dh0[at + j] = g.dyh != NULL ? g.dyh[at + j] : 0.0;
                g.dc0[at + j] = g.dyc != NULL ? g.dyc[at + j] : 0.0;
            }
            for (int64_t s = g.n.seq; s > 0; s--) {
                step(&g, dir, b, s - 1, g.dh0 + at, g.dc0 + at, tmp);
            }
        }
    }
    grad_store(c, &g);
    return RU_OK;
}

ru_status rui_ref_LSTMGrad(const ru_ref_call *c, ru_err *err)
{
    return back(c, 4, lstm_back, err);
}

ru_status rui_ref_GRUGrad(const ru_ref_call *c, ru_err *err)
{
    return back(c, 3, gru_back, err);
}

ru_status rui_ref_RNNGrad(const ru_ref_call *c, ru_err *err)
{
    return back(c, 1, rnn_back, err);
}
