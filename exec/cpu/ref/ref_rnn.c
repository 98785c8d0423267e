/* LSTM, GRU and RNN forward, one sequence at a time. */
#include "exec/cpu/ref/ref_rnn_impl.h"

#include <math.h>
#include <string.h>
#include <strings.h>

/* -- activations ------------------------------------------------------------------------ */

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* X(name, takes alpha, its default, takes beta, its default, value) */
#define ACT_LIST(X)                                                             \
    X(Relu, 0, 0, 0, 0, x < 0.0 ? 0.0 : x)                                      \
    X(Tanh, 0, 0, 0, 0, tanh(x))                                                \
    X(Sigmoid, 0, 0, 0, 0, sigmoid(x))                                          \
    X(Affine, 1, 1, 1, 0, a->alpha *x + a->beta)                                \
    X(LeakyRelu, 1, 0.01, 0, 0, x >= 0.0 ? x : a->alpha * x)                    \
    X(ThresholdedRelu, 1, 1, 0, 0, x >= a->alpha ? x : 0.0)                     \
    X(ScaledTanh, 1, 1, 1, 1, a->alpha *tanh(a->beta *x))                       \
    X(HardSigmoid, 1, 0.2, 1, 0.5, fmin(fmax(a->alpha *x + a->beta, 0.0), 1.0)) \
    X(Elu, 1, 1, 0, 0, x >= 0.0 ? x : a->alpha * expm1(x))                      \
    X(Softsign, 0, 0, 0, 0, x / (1.0 + fabs(x)))                                \
    X(Softplus, 0, 0, 0, 0, log1p(exp(-fabs(x))) + fmax(x, 0.0))

double rui_act_apply(const rui_act *a, double x)
{
#define RU_X(word, with_a, dflt_a, with_b, dflt_b, value) \
    if (strcmp(a->name, #word) == 0) {                    \
        return value;                                     \
    }
    ACT_LIST(RU_X)
#undef RU_X
    ru_panic(__FILE__, __LINE__, "activation '%s'", a->name);
}

typedef struct act_row {
    const char *name;
    bool with_alpha, with_beta;
    double alpha, beta;
} act_row;

static const act_row act_rows[] = {
#define RU_X(word, with_a, dflt_a, with_b, dflt_b, value) {#word, with_a, with_b, dflt_a, dflt_b},
    ACT_LIST(RU_X)
#undef RU_X
};

/* Alphas and betas are given to the functions that take one, in the order of the functions. */
static ru_status find_acts(const ru_ref_call *c, rui_rnn *n, ru_err *err)
{
    const char *lstm[] = {"Sigmoid", "Tanh", "Tanh"}, *gru[] = {"Sigmoid", "Tanh"},
               *rnn[] = {"Tanh"};
    uint32_t per = n->gates == 4 ? 3 : (n->gates == 3 ? 2 : 1), used_alpha = 0, used_beta = 0;
    const char *const *usual = n->gates == 4 ? lstm : (n->gates == 3 ? gru : rnn);
    const ru_attr *names = ru_node_attr(c->node, RU_ATTR_activations);
    const ru_attr *alphas = ru_node_attr(c->node, RU_ATTR_activation_alpha);
    const ru_attr *betas = ru_node_attr(c->node, RU_ATTR_activation_beta);
    for (uint32_t k = 0; k < (uint32_t)n->dirs * per; k++) {
        bool named = names != NULL && names->kind == RU_ATTR_STRS && k < names->n;
        const char *word = named ? names->u.ss[k] : usual[k % per];
        const act_row *row = NULL;
        for (uint32_t i = 0; i < RU_ARRAY_LEN(act_rows) && row == NULL; i++) {
            row = strcasecmp(word, act_rows[i].name) == 0 ? &act_rows[i] : NULL;
        }
        if (row == NULL) {
            return RU_FAIL(err, RU_E_UNSUPPORTED, "%s: activation '%s' is not known",
                           ru_op_get(c->node->op)->name, word);
        }
        rui_act *a = &n->act[k / per][k % per];
        *a = (rui_act){row->name, row->alpha, row->beta};
        if (row->with_alpha && alphas != NULL && used_alpha < alphas->n) {
            a->alpha = alphas->u.fs[used_alpha++];
        }
        if (row->with_beta && betas != NULL && used_beta < betas->n) {
            a->beta = betas->u.fs[used_beta++];
        }
    }
    return RU_OK;
}

/* -- set-up ----------------------------------------------------------------------------- */

ru_status rui_rnn_make(const ru_ref_call *c, const ru_type *x, const ru_type *r, int64_t gates,
                       rui_rnn *n, ru_err *err)
{
    const char *op = ru_op_get(c->node->op)->name;
    const char *direction = ru_node_str(c->node, RU_ATTR_direction, "forward");
    *n = (rui_rnn){.gates = gates};
    if (x->rank != 3 || r->rank != 3) {
        return RU_FAIL(err, RU_E_DATA, "%s: X of rank %u and R of rank %u, both must be 3", op,
                       x->rank, r->rank);
    }
    n->batch_first = ru_node_int(c->node, RU_ATTR_layout, 0) != 0;
    n->seq = x->dims[n->batch_first ? 1 : 0];
    n->batch = x->dims[n->batch_first ? 0 : 1];
    n->in = x->dims[2];
    n->hid = r->dims[2];
    n->dirs = r->dims[0];
    n->reverse_first = strcmp(direction, "reverse") == 0;
    int64_t want = strcmp(direction, "bidirectional") == 0 ? 2 : 1;
    if (n->dirs != want || r->dims[1] != gates * n->hid) {
        return RU_FAIL(err, RU_E_DATA, "%s: R is [%lld, %lld, %lld], expected [%lld, %lld, hidden]",
                       op, (long long)n->dirs, (long long)r->dims[1], (long long)n->hid,
                       (long long)want, (long long)(gates * n->hid));
    }
    n->clip = ru_node_float(c->node, RU_ATTR_clip, 0.0);
    n->linear_before_reset = ru_node_int(c->node, RU_ATTR_linear_before_reset, 0) != 0;
    n->input_forget = ru_node_int(c->node, RU_ATTR_input_forget, 0) != 0;
    return find_acts(c, n, err);
}

/* X, W, R, B, sequence_lens, initial_h, and for LSTM initial_c and P. */
static ru_status load(const ru_ref_call *c, int64_t gates, rui_rnn *n, ru_err *err)
{
    RU_TRY(rui_rnn_make(c, &c->in[0].type, &c->in[2].type, gates, n, err));
    RU_TRY(rui_ref_in(c, 0, &n->x, err));
    RU_TRY(rui_ref_in(c, 1, &n->w, err));
    RU_TRY(rui_ref_in(c, 2, &n->r, err));
    RU_TRY(rui_ref_in(c, 3, &n->b, err));
    RU_TRY(rui_ref_in_ints(c, 4, &n->lens, err));
    RU_TRY(rui_ref_in(c, 5, &n->h0, err));
    RU_TRY(rui_ref_in(c, 6, &n->c0, err));
    RU_TRY(rui_ref_in(c, 7, &n->p, err));
    for (int64_t b = 0; n->lens != NULL && b < n->batch; b++) {
        if (n->lens[b] < 0 || n->lens[b] > n->seq) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s: sequence length %lld of sample %lld is outside 0 .. %lld",
                           ru_op_get(c->node->op)->name, (long long)n->lens[b], (long long)b,
                           (long long)n->seq);
        }
    }
    return RU_OK;
}

/* Rows [from, from + rows) of W x + R h + biases; h may be NULL to leave R and its biases out. */
static void affine(const rui_rnn *n, int64_t dir, int64_t from, int64_t rows, const double *x,
                   const double *h, double *out)
{
    int64_t all = n->gates * n->hid;
    for (int64_t j = 0; j < rows; j++) {
        int64_t row = dir * all + from + j;
        double sum = 0.0;
        for (int64_t k = 0; k < n->in; k++) {
            sum += n->w[row * n->in + k] * x[k];
        }
        for (int64_t k = 0; h != NULL && n->r != NULL && k < n->hid; k++) {
            sum += n->r[row * n->hid + k] * h[k];
        }
        if (n->b != NULL) {
            const double *bias = n->b + dir * 2 * all + from + j;
            sum += bias[0] + (h != NULL ? bias[all] : 0.0);
        }
        out[j] = sum;
    }
}

static double clipped(const rui_rnn *n, double x)
{
    return n->clip > 0.0 ? fmin(fmax(x, -n->clip), n->clip) : x;
}

static double act(const rui_rnn *n, int64_t dir, uint32_t k, double x)
{
    return rui_act_apply(&n->act[dir][k], clipped(n, x));
}

/* -- cells: advance h (and c) by one step; `work` [slots*hid] is scratch and workspace -- */

enum { LSTM_SLOTS = 5, GRU_SLOTS = 4, RNN_SLOTS = 1 };

static void lstm_cell(const rui_rnn *n, int64_t dir, const double *x, double *h, double *cell,
                      double *work)
{
    int64_t H = n->hid;
    const double *p = n->p != NULL ? n->p + dir * 3 * H : NULL;
    affine(n, dir, 0, 4 * H, x, h, work);
    for (int64_t j = 0; j < H; j++) {
        double *gi = &work[j], *go = &work[H + j], *gf = &work[2 * H + j], *gc = &work[3 * H + j];
        *gi = act(n, dir, 0, *gi + (p != NULL ? p[j] * cell[j] : 0.0));
        *gf = act(n, dir, 0, *gf + (p != NULL ? p[2 * H + j] * cell[j] : 0.0));
        *gf = n->input_forget ? 1.0 - *gi : *gf;
        *gc = act(n, dir, 1, *gc);
        cell[j] = *gf * cell[j] + *gi * *gc;
        *go = act(n, dir, 0, *go + (p != NULL ? p[H + j] * cell[j] : 0.0));
        work[4 * H + j] = cell[j];
    }
    for (int64_t j = 0; j < H; j++) {
        h[j] = work[H + j] * rui_act_apply(&n->act[dir][2], cell[j]);
    }
}

/* work: z, r, h~, linear term R_h (...) + its bias; `cell` is scratch of hid. */
static void gru_cell(const rui_rnn *n, int64_t dir, const double *x, double *h, double *cell,
                     double *work)
{
    int64_t H = n->hid, all = 3 * H;
    double *z = work, *r = work + H, *cand = work + 2 * H, *linear = work + 3 * H;
    affine(n, dir, 0, 2 * H, x, h, work);
    affine(n, dir, 2 * H, H, x, NULL, cand);
    for (int64_t j = 0; j < H; j++) {
        z[j] = act(n, dir, 0, z[j]);
        r[j] = act(n, dir, 0, r[j]);
        cell[j] = n->linear_before_reset ? h[j] : r[j] * h[j];
    }
    for (int64_t j = 0; j < H; j++) {
        double sum = n->b != NULL ? n->b[dir * 2 * all + all + 2 * H + j] : 0.0;
        for (int64_t k = 0; n->r != NULL && k < H; k++) {
            sum += n->r[(dir * all + 2 * H + j) * H + k] * cell[k];
        }
        linear[j] = sum;
        cand[j] = act(n, dir, 1, cand[j] + (n->linear_before_reset ? r[j] * sum : sum));
    }
    for (int64_t j = 0; j < H; j++) {
        h[j] = (1.0 - z[j]) * cand[j] + z[j] * h[j];
    }
}

static void rnn_cell(const rui_rnn *n, int64_t dir, const double *x, double *h, double *cell,
                     double *work)
{
    (void)cell;
    affine(n, dir, 0, n->hid, x, h, work);
    for (int64_t j = 0; j < n->hid; j++) {
        h[j] = act(n, dir, 0, work[j]);
    }
}

typedef void (*cell_fn)(const rui_rnn *n, int64_t dir, const double *x, double *h, double *cell,
                        double *work);

/* All sequences; outputs Y, Y_h, Y_c (k_cell), workspace (k_work), each where asked for. */
static ru_status run(const ru_ref_call *c, const rui_rnn *n, cell_fn cell_step, int64_t slots,
                     uint32_t k_cell, uint32_t k_work, ru_err *err)
{
    double *y, *h, *cell, *work;
    int64_t states = n->dirs * n->batch * n->hid;
    rui_rnn first = *n; /* where no state is given, nothing is multiplied by R */
    first.r = n->h0 == NULL ? NULL : n->r;
    RU_TRY(rui_ref_zeros(c, n->seq * states, &y, err));
    RU_TRY(rui_ref_zeros(c, states, &h, err));
    RU_TRY(rui_ref_zeros(c, states, &cell, err));
    RU_TRY(rui_ref_zeros(c, n->seq * states * slots, &work, err));
    if (n->h0 != NULL) {
        memcpy(h, n->h0, (size_t)states * sizeof h[0]);
    }
    if (n->c0 != NULL) {
        memcpy(cell, n->c0, (size_t)states * sizeof cell[0]);
    }
    for (int64_t dir = 0; dir < n->dirs; dir++) {
        for (int64_t b = 0; b < n->batch; b++) {
            int64_t len = rui_rnn_len(n, b), at = rui_rnn_h_at(n, dir, b);
            for (int64_t s = 0; s < len; s++) {
                int64_t t = rui_rnn_time(n, dir, len, s);
                cell_step(s == 0 ? &first : n, dir, n->x + rui_rnn_x_at(n, t, b), h + at, cell + at,
                          work + rui_rnn_work_at(n, t, dir, b, slots));
                memcpy(y + rui_rnn_y_at(n, t, dir, b), h + at, (size_t)n->hid * sizeof y[0]);
            }
        }
    }
    if (rui_ref_has_out(c, 0)) {
        rui_ref_store(&c->out[0], y);
    }
    if (rui_ref_has_out(c, 1)) {
        rui_ref_store(&c->out[1], h);
    }
    if (rui_ref_has_out(c, k_cell)) {
        rui_ref_store(&c->out[k_cell], cell);
    }
    if (rui_ref_has_out(c, k_work)) {
        rui_ref_store(&c->out[k_work], work);
    }
    return RU_OK;
}

enum { NO_OUTPUT = UINT16_MAX };

ru_status rui_ref_LSTM(const ru_ref_call *c, ru_err *err)
{
    rui_rnn n;
    RU_TRY(load(c, 4, &n, err));
    return run(c, &n, lstm_cell, LSTM_SLOTS, 2, NO_OUTPUT, err);
}

ru_status rui_ref_LSTMTrain(const ru_ref_call *c, ru_err *err)
{
    rui_rnn n;
    RU_TRY(load(c, 4, &n, err));
    return run(c, &n, lstm_cell, LSTM_SLOTS, 2, 3, err);
}

ru_status rui_ref_GRU(const ru_ref_call *c, ru_err *err)
{
    rui_rnn n;
    RU_TRY(load(c, 3, &n, err));
    return run(c, &n, gru_cell, GRU_SLOTS, NO_OUTPUT, NO_OUTPUT, err);
}

ru_status rui_ref_GRUTrain(const ru_ref_call *c, ru_err *err)
{
    rui_rnn n;
    RU_TRY(load(c, 3, &n, err));
    return run(c, &n, gru_cell, GRU_SLOTS, NO_OUTPUT, 2, err);
}

ru_status rui_ref_RNN(const ru_ref_call *c, ru_err *err)
{
    rui_rnn n;
    RU_TRY(load(c, 1, &n, err));
    return run(c, &n, rnn_cell, RNN_SLOTS, NO_OUTPUT, NO_OUTPUT, err);
}
