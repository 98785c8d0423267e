/* Gemm and MatMul of doubles on our own kernel, with all that may be fused into them: no library
 * here multiplies doubles. Threads share out the rows of all matrices, or the columns of one. */
#include "exec/cpu/lower/lower_kern.h"
#include "exec/cpu/ref/finish.h"

typedef struct gemm64_state {
    const ru_kern *k;
    ru_kern_gemm64 g;                                                    /* of one matrix */
    uint32_t rank;                                                       /* of the batch */
    int64_t dims[RU_RANK_MAX], a_step[RU_RANK_MAX], b_step[RU_RANK_MAX]; /* steps: elements */
    int64_t batches;
    bool by_columns, finished; /* finished: something comes after the product */
    double beta;               /* y += beta * bias[i * bias_row + j * bias_col] */
    int64_t bias_row, bias_col;
    rui_finish finish;
} gemm64_state;

enum { G_A, G_B, G_BIAS, G_RESIDUAL, G_Y, G_WORK, G_BUFS };

static void add_bias(double *y, double beta, const double *bias, int64_t step, int64_t n)
{
    if (step == 0) {
        double z = beta * bias[0];
        for (int64_t j = 0; j < n; j++) {
            y[j] += z;
        }
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        y[j] += beta * bias[j];
    }
}

static void finish_rows(const gemm64_state *s, const ru_kern_gemm64 *g, const double *bias,
                        const double *residual, int64_t m0, int64_t m1, int64_t n0, int64_t n1)
{
    rui_finish f = s->finish;
    for (int64_t i = m0; i < m1; i++) {
        double *y = g->c + i * g->c_row;
        if (bias != NULL && residual == NULL && f.act == 0) {
            add_bias(y + n0, s->beta, bias + i * s->bias_row + n0 * s->bias_col, s->bias_col,
                     n1 - n0);
            continue;
        }
        for (int64_t j = n0; j < n1; j++) {
            double z = y[j];
            z += bias != NULL ? s->beta * bias[i * s->bias_row + j * s->bias_col] : 0.0;
            z += residual != NULL ? residual[i * g->c_row + j] : 0.0;
            y[j] = rui_finish_apply(&f, 0, z);
        }
    }
}

static void gemm64_part(const void *state, void *const *bufs, int64_t begin, int64_t end,
                        void *work)
{
    const gemm64_state *s = state;
    int64_t m = s->g.m, rows = s->by_columns ? m : end;
    for (int64_t at = s->by_columns ? 0 : begin; at < rows;) {
        int64_t batch = at / m, m0 = at - batch * m,
                m1 = rows - batch * m < m ? rows - batch * m : m;
        int64_t n0 = s->by_columns ? begin : 0, n1 = s->by_columns ? end : s->g.n;
        int64_t left = batch, a = 0, b = 0, y = batch * m * s->g.n;
        for (uint32_t d = s->rank; d-- > 0; left /= s->dims[d]) {
            a += left % s->dims[d] * s->a_step[d];
            b += left % s->dims[d] * s->b_step[d];
        }
        ru_kern_gemm64 g = s->g;
        g.a = (const double *)bufs[G_A] + a;
        g.b = (const double *)bufs[G_B] + b;
        g.c = (double *)bufs[G_Y] + y;
        s->k->gemm64(&g, m0, m1, n0, n1, work);
        if (s->finished) {
            const double *residual = bufs[G_RESIDUAL];
            finish_rows(s, &g, bufs[G_BIAS], residual != NULL ? residual + y : NULL, m0, m1, n0,
                        n1);
        }
        at += m1 - m0;
    }
}

static ru_status gemm64_run(void *state, void *const *bufs, const rui_run *run)
{
    const gemm64_state *s = state;
    int64_t n = s->by_columns ? s->g.n : s->batches * s->g.m;
    int64_t cost = (s->by_columns ? s->g.m : s->g.n) * (s->g.k + 1);
    int64_t grain = (rui_kern_grain(cost) + 13) / 14 * 14;
    rui_kern_for_own(run, gemm64_part, s, bufs, n, s->by_columns ? 16 : grain, bufs[G_WORK],
                     s->k->gemm64_work() * (int64_t)sizeof(double));
    return RU_OK;
}

/* Steps from one matrix of an operand to the next, along the dims of the batch. */
static void batch_steps(const ru_type *t, uint32_t own, const gemm64_state *s, int64_t *steps)
{
    int64_t step = own == 2 ? t->dims[t->rank - 1] * t->dims[t->rank - 2] : t->dims[t->rank - 1];
    uint32_t rank = t->rank - own;
    for (uint32_t d = s->rank; d-- > 0;) {
        bool has = s->rank - d <= rank;
        int64_t dim = has ? t->dims[rank - (s->rank - d)] : 1;
        steps[d] = dim > 1 ? step : 0;
        step *= dim;
    }
}

/* Numpy's rule: a vector is a row on the left and a column on the right. */
static void shape_of(rui_low *lo, const ru_node *n, gemm64_state *s)
{
    const ru_type *a = rui_type(lo, n->in[0]), *b = rui_type(lo, n->in[1]);
    const ru_type *y = rui_type(lo, n->out[0]);
    uint32_t a_own = a->rank > 1 ? 2 : 1, b_own = b->rank > 1 ? 2 : 1;
    bool ta = a_own == 2 && ru_node_int(n, RU_ATTR_transA, 0) != 0;
    bool tb = b_own == 2 && ru_node_int(n, RU_ATTR_transB, 0) != 0;
    int64_t a_rows = a_own == 2 ? a->dims[a->rank - 2] : 1, a_cols = a->dims[a->rank - 1];
    int64_t b_rows = b->dims[b->rank - b_own], b_cols = b_own == 2 ? b->dims[b->rank - 1] : 1;
    s->g = (ru_kern_gemm64){.m = ta ? a_cols : a_rows,
                            .n = tb ? b_rows : b_cols,
                            .k = ta ? a_rows : a_cols,
                            .a_row = ta ? 1 : a_cols,
                            .a_col = ta ? a_cols : 1,
                            .b_row = tb ? 1 : b_cols,
                            .b_col = tb ? b_cols : 1,
                            .c_row = tb ? b_rows : b_cols,
                            .alpha = ru_node_float(n, RU_ATTR_alpha, 1.0)};
    s->rank = y->rank - (a_own - 1) - (b_own - 1);
    s->batches = rui_dims(y, 0, s->rank);
    for (uint32_t d = 0; d < s->rank; d++) {
        s->dims[d] = y->dims[d];
    }
    batch_steps(a, a_own, s, s->a_step);
    batch_steps(b, b_own, s, s->b_step);
    if (b->rank <= 2 && !ta && ru_type_count(a) == s->batches * s->g.m * s->g.k) {
        s->g.m *= s->batches; /* many rows with one matrix */
        s->batches = 1;
        s->rank = 0;
    }
    s->by_columns = s->batches == 1 && s->g.m < s->g.n;
}

static void after_of(rui_low *lo, const ru_node *n, gemm64_state *s)
{
    bool bias = ru_node_has_in(n, 2);
    s->beta = n->op == RU_OP_Gemm ? ru_node_float(n, RU_ATTR_beta, 1.0) : 1.0;
    if (bias) {
        const ru_type *t = rui_type(lo, n->in[2]);
        int64_t high = t->rank > 1 ? t->dims[t->rank - 2] : 1;
        int64_t wide = t->rank > 0 ? t->dims[t->rank - 1] : 1;
        s->bias_row = high == 1 ? 0 : wide;
        s->bias_col = wide == 1 ? 0 : 1;
    }
    s->finished = bias || ru_node_has_in(n, 3) || s->finish.act != 0;
}

ru_status rui_lower_kern_gemm64(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    gemm64_state st = {.k = ru_kern_best()}, *s;
    const ru_type *y = rui_type(lo, n->out[0]);
    bool residual = ru_node_has_in(n, 3);
    if (y->dtype != RU_F64 || ru_type_count(y) <= 0 || !rui_finish_of(n, &st.finish) ||
        (residual && !ru_type_equal(rui_type(lo, n->in[3]), y)) ||
        (ru_node_has_in(n, 2) && rui_type(lo, n->in[2])->rank > 2)) {
        return RU_E_UNSUPPORTED;
    }
    shape_of(lo, n, &st);
    after_of(lo, n, &st);
    if ((s = rui_keep(lo, (int64_t)sizeof *s)) == NULL) {
        return rui_done(lo);
    }
    *s = st;
    rui_buf bufs[G_BUFS] = {[G_A] = rui_in_plain(lo, n->in[0]), [G_B] = rui_in_plain(lo, n->in[1])};
    bufs[G_BIAS] = ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0};
    bufs[G_RESIDUAL] = residual ? rui_in_plain(lo, n->in[3]) : (rui_buf){0};
    bufs[G_Y] = rui_out_plain(lo, n->out[0]);
    bufs[G_WORK] = rui_scratch(lo, s->k->gemm64_work() * rui_threads(lo) * (int64_t)sizeof(double));
    rui_emit(
        lo,
        &(rui_step){
            .kernel = "kern gemm64", .fn = gemm64_run, .state = s, .bufs = bufs, .n_bufs = G_BUFS});
    return rui_done(lo);
}
