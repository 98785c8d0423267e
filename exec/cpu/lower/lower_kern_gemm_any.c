/* Gemm and MatMul on our own kernel: of doubles and of floats with one row or one column, with all
 * that may be fused into them; of whole numbers, alone. oneDNN multiplies no doubles and no whole
 * numbers; 274 x 1,053 by one column of floats took 45 us with it and 10 us here (one Zen 5 core).
 * Threads share out the rows of all matrices, or the columns of one. */
#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/lower/lower_kern.h"
#include "exec/cpu/ref/finish.h"

typedef struct any_state {
    void (*product)(const ru_kern_gemm64 *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                    double *work);
    ru_dtype t;
    ru_kern_gemm64 g;                                                    /* of one matrix */
    uint32_t rank;                                                       /* of the batch */
    int64_t dims[RU_RANK_MAX], a_step[RU_RANK_MAX], b_step[RU_RANK_MAX]; /* steps: elements */
    int64_t batches;
    bool by_columns, finished; /* finished: something comes after the product */
    double beta;               /* y += beta * bias[i * bias_row + j * bias_col] */
    int64_t bias_row, bias_col;
    rui_finish finish;
} any_state;

enum { LINE = 512 }; /* numbers of short rows that are finished together */
enum { G_A, G_B, G_BIAS, G_RESIDUAL, G_Y, G_WORK, G_BUFS };

#define ADD_BIAS(T, name)                                                  \
    static void name(T *y, T beta, const T *bias, int64_t step, int64_t n) \
    {                                                                      \
        if (step == 0) {                                                   \
            const T z = beta * bias[0];                                    \
            for (int64_t j = 0; j < n; j++) {                              \
                y[j] += z;                                                 \
            }                                                              \
            return;                                                        \
        }                                                                  \
        for (int64_t j = 0; j < n; j++) {                                  \
            y[j] += beta * bias[j];                                        \
        }                                                                  \
    }
ADD_BIAS(float, add_bias_f32)
ADD_BIAS(double, add_bias_f64)

static double real_at(const any_state *s, const void *p, int64_t i)
{
    return s->t == RU_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

/* Of one matrix y, whose bias and residual may be NULL: columns n0 .. n1 of row i. */
static void finish_row(const any_state *s, const void *bias, const void *residual, void *y,
                       int64_t i, int64_t n0, int64_t n1)
{
    rui_finish f = s->finish;
    const int64_t at = i * s->g.c_row, first = i * s->bias_row + n0 * s->bias_col;
    if (bias != NULL && residual == NULL && f.act == 0 && s->t == RU_F64) {
        add_bias_f64((double *)y + at + n0, s->beta, (const double *)bias + first, s->bias_col,
                     n1 - n0);
        return;
    }
    if (bias != NULL && residual == NULL && f.act == 0) {
        add_bias_f32((float *)y + at + n0, (float)s->beta, (const float *)bias + first, s->bias_col,
                     n1 - n0);
        return;
    }
    for (int64_t j = n0; j < n1; j++) {
        double z = real_at(s, y, at + j);
        z += bias != NULL ? s->beta * real_at(s, bias, first + (j - n0) * s->bias_col) : 0.0;
        z += residual != NULL ? real_at(s, residual, at + j) : 0.0;
        z = rui_finish_apply(&f, 0, z);
        if (s->t == RU_F64) {
            ((double *)y)[at + j] = z;
        } else {
            ((float *)y)[at + j] = (float)z;
        }
    }
}

/* The same bias to each row of doubles, many short rows at a time. */
static void add_rows(const any_state *s, const double *bias, double *y, int64_t rows)
{
    double line[LINE];
    const int64_t n = s->g.n, most = LINE / n, some = most < rows ? most : rows;
    for (int64_t i = 0; i < some; i++) {
        for (int64_t j = 0; j < n; j++) {
            line[i * n + j] = s->beta * bias[j * s->bias_col];
        }
    }
    for (int64_t i = 0; i < rows; i += some) {
        const int64_t its = (some < rows - i ? some : rows - i) * n;
        ru_kern_numbers_best()->map2(RU_KERN_MAP2_Add, y + i * n, 1, line, 1, y + i * n, its);
    }
}

/* A column is finished as one row: its numbers stand side by side. */
static void finish(const any_state *s, const void *bias, const void *residual, void *y, int64_t m0,
                   int64_t m1, int64_t n0, int64_t n1)
{
    if (s->g.n == 1) {
        any_state row = *s;
        row.bias_col = s->bias_row;
        row.g.c_row = 0;
        finish_row(&row, bias, residual, y, 0, m0, m1);
        return;
    }
    if (s->t == RU_F64 && bias != NULL && residual == NULL && s->finish.act == 0 &&
        s->bias_row == 0 && n0 == 0 && n1 == s->g.n && n1 <= LINE) {
        add_rows(s, bias, (double *)y + m0 * n1, m1 - m0);
        return;
    }
    for (int64_t i = m0; i < m1; i++) {
        finish_row(s, bias, residual, y, i, n0, n1);
    }
}

static void any_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *work)
{
    const any_state *s = state;
    const int64_t m = s->g.m, rows = s->by_columns ? m : end, bytes = ru_dtype_bytes(s->t);
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
        g.a = (const void *)((const char *)bufs[G_A] + a * bytes);
        g.b = (const void *)((const char *)bufs[G_B] + b * bytes);
        g.c = (void *)((char *)bufs[G_Y] + y * bytes);
        s->product(&g, m0, m1, n0, n1, work);
        if (s->finished) {
            const char *residual = bufs[G_RESIDUAL];
            finish(s, bufs[G_BIAS], residual != NULL ? residual + y * bytes : NULL, g.c, m0, m1, n0,
                   n1);
        }
        at += m1 - m0;
    }
}

static ru_status any_run(void *state, void *const *bufs, const rui_run *run)
{
    const any_state *s = state;
    int64_t n = s->by_columns ? s->g.n : s->batches * s->g.m;
    int64_t cost = (s->by_columns ? s->g.m : s->g.n) * (s->g.k + 1), unit = s->by_columns ? 16 : 14;
    /* 104,588 products, 44 x 2,377 by one column of f32, took 3 us on one thread, 75 us shared by
     * two on busy cores: so a part has at least 131,072 of them */
    int64_t grain = (rui_kern_grain((cost + 31) / 32) + unit - 1) / unit * unit;
    rui_kern_for_own(run, any_part, s, bufs, n, grain, bufs[G_WORK],
                     ru_kern_best()->gemm64_work() * ru_dtype_bytes(s->t));
    return RU_OK;
}

/* Steps from one matrix of an operand to the next, along the dims of the batch. */
static void batch_steps(const ru_type *t, uint32_t own, const any_state *s, int64_t *steps)
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
static void shape_of(rui_low *lo, const ru_node *n, any_state *s)
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

static void after_of(rui_low *lo, const ru_node *n, any_state *s)
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

/* The kernel of a type; NULL: none. */
static bool product_of(ru_dtype t, any_state *s)
{
    const ru_kern_numbers *k = ru_kern_numbers_best();
    s->t = t;
    s->product = t == RU_F64                  ? ru_kern_best()->gemm64
                 : t == RU_F32                ? k->gemm_f32
                 : t == RU_I32 || t == RU_U32 ? k->gemm_u32
                 : t == RU_I64 || t == RU_U64 ? k->gemm_u64
                                              : NULL;
    return s->product != NULL;
}

/* One row and a large constant matrix, whose columns stand side by side: oneDNN packs it beforehand
 * (1,024 x 512: 11.6 us, here 17; transposed 22 and 10.6). */
static bool packed_pays(rui_low *lo, const any_state *s, const ru_node *n)
{
    const ru_value *b = &rui_graph(lo)->values[n->in[1].v];
    return s->g.m == 1 && s->batches == 1 && s->g.b_col == 1 && b->type.rank == 2 &&
           s->g.n * s->g.k > 1 << 18 &&
           (b->kind == RU_VALUE_CONST || (b->kind == RU_VALUE_STATE && rui_inference(lo)));
}

/* Floats: where oneDNN is slower, and sums of nothing. Whole numbers: alone, as no one fuses
 * anything into them. */
static bool pays(rui_low *lo, const any_state *s, const ru_node *n)
{
    if (s->t == RU_F32) {
        return (s->g.n == 1 || s->g.m == 1 || s->g.k == 0) && !rui_bf16(lo) &&
               !packed_pays(lo, s, n);
    }
    return s->t == RU_F64 || (!s->finished && s->g.alpha == 1.0);
}

ru_status rui_lower_kern_gemm_any(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    any_state st = {0}, *s;
    const ru_type *y = rui_type(lo, n->out[0]);
    bool residual = ru_node_has_in(n, 3);
    if (!product_of(y->dtype, &st) || ru_type_count(y) <= 0 || !rui_finish_of(n, &st.finish) ||
        rui_type(lo, n->in[0])->dtype != y->dtype || rui_type(lo, n->in[1])->dtype != y->dtype ||
        (residual && !ru_type_equal(rui_type(lo, n->in[3]), y)) ||
        (ru_node_has_in(n, 2) && rui_type(lo, n->in[2])->rank > 2)) {
        return RU_E_UNSUPPORTED;
    }
    shape_of(lo, n, &st);
    after_of(lo, n, &st);
    if (!pays(lo, &st, n)) {
        return RU_E_UNSUPPORTED;
    }
    if ((s = rui_keep(lo, (int64_t)sizeof *s)) == NULL) {
        return rui_done(lo);
    }
    *s = st;
    rui_buf bufs[G_BUFS] = {[G_A] = rui_in_plain(lo, n->in[0]), [G_B] = rui_in_plain(lo, n->in[1])};
    bufs[G_BIAS] = ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0};
    bufs[G_RESIDUAL] = residual ? rui_in_plain(lo, n->in[3]) : (rui_buf){0};
    bufs[G_Y] = rui_out_plain(lo, n->out[0]);
    bufs[G_WORK] =
        rui_scratch(lo, ru_kern_best()->gemm64_work() * rui_threads(lo) * ru_dtype_bytes(s->t));
    rui_emit(
        lo,
        &(rui_step){
            .kernel = "kern gemm any", .fn = any_run, .state = s, .bufs = bufs, .n_bufs = G_BUFS});
    return rui_done(lo);
}
