/* What normalises lines, or takes the logarithm of their sum of exponentials: Hardmax,
 * LpNormalization, MeanVarianceNormalization, ReduceLogSumExp. Lines are rows (a run of elements,
 * or several), or stand side by side in columns; a block of either stays in L1 between the passes.
 */
#include <math.h>
#include <string.h>

#include "exec/cpu/lower/lower_kern_reduce.h"

enum { COLS = 256, ROWS = 64, WIDE = 16, PIECE = ROWS * WIDE };

typedef struct line_state {
    const ru_kern *k;
    ru_op op;
    bool l1; /* LpNormalization: sizes, else squares */
    rui_runs r;
    double count; /* elements of a line */
} line_state;

/* y[i] = x[i] (op) by[i * step] */
static void join(const line_state *s, ru_kern_map2 op, const float *x, const float *by,
                 int64_t step, float *y, int64_t n)
{
    s->k->map2(op, 0, 0, RU_F32, x, 1, by, step, y, n);
}

/* y[i] = x[i] * a + b */
static void scale(const line_state *s, const float *x, float a, float b, float *y, int64_t n)
{
    s->k->map1(RU_KERN_MAP1_Scale, a, b, RU_F32, x, y, n);
}

/* -- LpNormalization -----------------------------------------------------------------------------
 */

/* Outside of this squares lose digits or overflow; 0 has a rule of its own. */
static bool is_plain(float norm)
{
    return norm > 1e-15f && norm < 1e18f;
}

/* One line in double. A line of zeros stays one. */
static void lp_exact(const line_state *s, const float *x, float *y, int64_t step, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double v = (double)x[i * step];
        sum += s->l1 ? fabs(v) : v * v;
    }
    double norm = s->l1 ? sum : sqrt(sum);
    for (int64_t i = 0; i < n; i++) {
        y[i * step] = norm == 0.0 ? 0.0f : (float)((double)x[i * step] / norm);
    }
}

static ru_kern_red lp_red(const line_state *s)
{
    return s->l1 ? RU_KERN_RED_SUM_ABS : RU_KERN_RED_SUM_SQUARE;
}

static void lp_roots(const line_state *s, float *norm, int64_t n)
{
    if (!s->l1) {
        s->k->map1(RU_KERN_MAP1_Sqrt, 0, 0, RU_F32, norm, norm, n);
    }
}

/* w rows of at most WIDE elements together. */
static void lp_short(const line_state *s, const float *x, const float *norm, float *y, int64_t w)
{
    float by[ROWS * WIDE];
    int64_t n = s->r.inner;
    bool plain = true;
    for (int64_t i = 0; i < w; i++) {
        for (int64_t j = 0; j < WIDE; j++) { /* what passes the row's end is overwritten */
            by[i * n + j] = norm[i];
        }
        plain = plain && is_plain(norm[i]);
    }
    if (plain) {
        join(s, RU_KERN_MAP2_Div, x, by, 1, y, w * n);
        return;
    }
    for (int64_t i = 0; i < w; i++) {
        lp_exact(s, x + i * n, y + i * n, 1, n);
    }
}

static void lp_rows(const line_state *s, const float *x, float *y, int64_t rows)
{
    float norm[ROWS];
    int64_t n = s->r.inner;
    for (int64_t r = 0; r < rows; r += ROWS) {
        int64_t w = rows - r < ROWS ? rows - r : ROWS;
        s->k->reduce_rows(lp_red(s), RU_F32, x + r * n, w, n, norm);
        lp_roots(s, norm, w);
        if (n <= WIDE) {
            lp_short(s, x + r * n, norm, y + r * n, w);
            continue;
        }
        for (int64_t i = 0; i < w; i++) {
            const float *from = x + (r + i) * n;
            float *to = y + (r + i) * n;
            if (is_plain(norm[i])) {
                join(s, RU_KERN_MAP2_Div, from, &norm[i], 0, to, n);
            } else {
                lp_exact(s, from, to, 1, n);
            }
        }
    }
}

/* v[0 .. w) again and again up to n. */
static void repeat(float *v, int64_t w, int64_t n)
{
    for (int64_t have = w, m; have < n; have += m) {
        m = have < n - have ? have : n - have;
        memcpy(v + have, v, (size_t)m * sizeof *v);
    }
}

static void lp_columns(const line_state *s, const float *x, float *y, int64_t n, int64_t ld,
                       int64_t w)
{
    float norm[PIECE];
    bool exact[COLS];
    const bool few = w == ld && w <= WIDE;
    const int64_t rows = few ? PIECE / w : 1;
    s->k->reduce_cols(lp_red(s), RU_F32, x, n, ld, 0, w, norm);
    lp_roots(s, norm, w);
    for (int64_t j = 0; j < w; j++) {
        exact[j] = !is_plain(norm[j]);
        norm[j] = exact[j] ? 1.0f : norm[j];
    }
    repeat(norm, w, rows * w);
    for (int64_t r = 0; r < n; r += rows) {
        int64_t m = n - r < rows ? n - r : rows;
        join(s, RU_KERN_MAP2_Div, x + r * ld, norm, 1, y + r * ld, m * w);
    }
    for (int64_t j = 0; j < w; j++) {
        if (exact[j]) {
            lp_exact(s, x + j, y + j, ld, n);
        }
    }
}

/* -- MeanVarianceNormalization -------------------------------------------------------------------
 */

/* Where piece `i` of run `o` of row `k` begins, and how long it is. */
static int64_t piece_at(const line_state *s, int64_t k, int64_t o, int64_t i, int64_t *n)
{
    int64_t left = s->r.inner - i;
    *n = left < PIECE ? left : PIECE;
    return (o * s->r.keep + k) * s->r.inner + i;
}

/* Mean and 1 / (deviation + 1e-9) of a row. The first mean is rounded: the sum of what is left
 * corrects it. */
static void row_moments(const line_state *s, const float *x, int64_t k, float *first, double *rest,
                        double *inverse)
{
    float d[PIECE];
    double sum = 0.0, square = 0.0;
    int64_t n;
    for (int64_t o = 0; o < s->r.outer; o++) {
        for (int64_t i = 0; i < s->r.inner; i += PIECE) {
            int64_t at = piece_at(s, k, o, i, &n);
            sum += (double)s->k->reduce(RU_KERN_RED_SUM, RU_F32, x + at, n, 1, 0);
        }
    }
    *first = (float)(sum / s->count);
    sum = 0.0;
    for (int64_t o = 0; o < s->r.outer; o++) {
        for (int64_t i = 0; i < s->r.inner; i += PIECE) {
            int64_t at = piece_at(s, k, o, i, &n);
            scale(s, x + at, 1.0f, -*first, d, n);
            sum += (double)s->k->reduce(RU_KERN_RED_SUM, RU_F32, d, n, 1, 0);
            square += (double)s->k->reduce(RU_KERN_RED_SUM_SQUARE, RU_F32, d, n, 1, 0);
        }
    }
    *rest = sum / s->count;
    double var = square / s->count - *rest * *rest;
    *inverse = 1.0 / (sqrt(var < 0.0 ? 0.0 : var) + 1e-9);
}

static void mvn_row(const line_state *s, const float *x, float *y, int64_t k)
{
    float first, d[PIECE];
    double rest, inverse;
    row_moments(s, x, k, &first, &rest, &inverse);
    for (int64_t o = 0; o < s->r.outer; o++) {
        for (int64_t i = 0, n; i < s->r.inner; i += PIECE) {
            int64_t at = piece_at(s, k, o, i, &n);
            scale(s, x + at, 1.0f, -first, d, n);
            scale(s, d, (float)inverse, (float)(-rest * inverse), y + at, n);
        }
    }
}

/* d[i] = d[i] (op) v of its row. */
static void join_rows(const line_state *s, ru_kern_map2 op, const float *v, int64_t rows, int64_t n,
                      float *d)
{
    float by[PIECE + RUI_SPREAD_PAST];
    rui_kern_spread(v, rows, n, by);
    join(s, op, d, by, 1, d, rows * n);
}

/* Rows k .. k + w, at most ROWS, of at most PIECE elements together: their runs are brought
 * together first. */
static void mvn_short(const line_state *s, const float *x, float *y, int64_t k, int64_t w)
{
    const int64_t inner = s->r.inner, n = s->r.outer * inner;
    const size_t bytes = (size_t)inner * sizeof *x;
    float d[PIECE], sum[ROWS], square[ROWS];
    for (int64_t i = 0; i < w * s->r.outer; i++) {
        int64_t o = i % s->r.outer, r = i / s->r.outer;
        memcpy(d + r * n + o * inner, x + (o * s->r.keep + k + r) * inner, bytes);
    }
    s->k->reduce_rows(RU_KERN_RED_SUM, RU_F32, d, w, n, sum);
    scale(s, sum, (float)(1.0 / s->count), 0.0f, sum, w);
    join_rows(s, RU_KERN_MAP2_Sub, sum, w, n, d);
    s->k->reduce_rows(RU_KERN_RED_SUM, RU_F32, d, w, n, sum);
    s->k->reduce_rows(RU_KERN_RED_SUM_SQUARE, RU_F32, d, w, n, square);
    for (int64_t i = 0; i < w; i++) {
        double rest = (double)sum[i] / s->count;
        double var = (double)square[i] / s->count - rest * rest;
        double inverse = 1.0 / (sqrt(var < 0.0 ? 0.0 : var) + 1e-9);
        square[i] = (float)inverse;
        sum[i] = (float)(-rest * inverse);
    }
    join_rows(s, RU_KERN_MAP2_Mul, square, w, n, d);
    join_rows(s, RU_KERN_MAP2_Add, sum, w, n, d);
    for (int64_t i = 0; i < w * s->r.outer; i++) {
        int64_t o = i % s->r.outer, r = i / s->r.outer;
        memcpy(y + (o * s->r.keep + k + r) * inner, d + r * n + o * inner, bytes);
    }
}

static void mvn_rows(const line_state *s, const float *x, float *y, int64_t begin, int64_t end)
{
    const int64_t n = s->r.outer * s->r.inner;
    for (int64_t k = begin, w; k < end; k += w) {
        w = n > PIECE ? 1 : PIECE / n < ROWS ? PIECE / n : ROWS;
        w = w < end - k ? w : end - k;
        if (n > PIECE) {
            mvn_row(s, x, y, k);
        } else {
            mvn_short(s, x, y, k, w);
        }
    }
}

static void mvn_columns(const line_state *s, const float *x, float *y, int64_t n, int64_t ld,
                        int64_t w)
{
    float first[COLS], sum[COLS] = {0}, square[COLS] = {0}, d[COLS], q[COLS];
    s->k->reduce_cols(RU_KERN_RED_SUM, RU_F32, x, n, ld, 0, w, first);
    scale(s, first, (float)(1.0 / s->count), 0.0f, first, w);
    for (int64_t r = 0; r < n; r++) {
        join(s, RU_KERN_MAP2_Sub, x + r * ld, first, 1, d, w);
        join(s, RU_KERN_MAP2_Mul, d, d, 1, q, w);
        join(s, RU_KERN_MAP2_Add, sum, d, 1, sum, w);
        join(s, RU_KERN_MAP2_Add, square, q, 1, square, w);
    }
    for (int64_t j = 0; j < w; j++) {
        double rest = (double)sum[j] / s->count;
        double var = (double)square[j] / s->count - rest * rest;
        sum[j] = (float)rest;
        square[j] = (float)(1.0 / (sqrt(var < 0.0 ? 0.0 : var) + 1e-9));
    }
    for (int64_t r = 0; r < n; r++) {
        join(s, RU_KERN_MAP2_Sub, x + r * ld, first, 1, d, w);
        join(s, RU_KERN_MAP2_Sub, d, sum, 1, d, w);
        join(s, RU_KERN_MAP2_Mul, d, square, 1, y + r * ld, w);
    }
}

/* -- ReduceLogSumExp -----------------------------------------------------------------------------
 */

static void exponentials(const line_state *s, float *d, int64_t n)
{
    s->k->map1(RU_KERN_MAP1_Exp, 0, 0, RU_F32, d, d, n);
}

static float lse_row(const line_state *s, const float *x, int64_t k)
{
    float d[PIECE];
    const float *from = x + k * s->r.inner;
    int64_t runs_step = s->r.keep * s->r.inner, n;
    float top = s->k->reduce(RU_KERN_RED_MAX, RU_F32, from, s->r.inner, s->r.outer, runs_step);
    double sum = 0.0;
    top = isinf(top) ? 0.0f : top;
    for (int64_t o = 0; o < s->r.outer; o++) {
        for (int64_t i = 0; i < s->r.inner; i += PIECE) {
            int64_t at = piece_at(s, k, o, i, &n);
            scale(s, x + at, 1.0f, -top, d, n);
            exponentials(s, d, n);
            sum += (double)s->k->reduce(RU_KERN_RED_SUM, RU_F32, d, n, 1, 0);
        }
    }
    return (float)((double)top + log(sum));
}

/* Rows of at most WIDE elements: their exponentials together. */
static void lse_short(const line_state *s, const float *x, float *y, int64_t rows)
{
    float d[PIECE], top[ROWS], sum[ROWS];
    int64_t n = s->r.inner;
    for (int64_t r = 0; r < rows; r += ROWS) {
        int64_t w = rows - r < ROWS ? rows - r : ROWS;
        s->k->reduce_rows(RU_KERN_RED_MAX, RU_F32, x + r * n, w, n, top);
        for (int64_t i = 0; i < w; i++) {
            top[i] = isinf(top[i]) ? 0.0f : top[i];
            for (int64_t j = 0; j < n; j++) {
                d[i * n + j] = x[(r + i) * n + j] - top[i];
            }
        }
        exponentials(s, d, w * n);
        s->k->reduce_rows(RU_KERN_RED_SUM, RU_F32, d, w, n, sum);
        s->k->map1(RU_KERN_MAP1_Log, 0, 0, RU_F32, sum, sum, w);
        join(s, RU_KERN_MAP2_Add, top, sum, 1, y + r, w);
    }
}

/* At most WIDE columns and no others: many rows at a time. top[w] repeats in `by`. */
static void lse_few(const line_state *s, const float *x, float *y, int64_t n, int64_t w)
{
    float d[PIECE], by[PIECE], top[WIDE], sum[WIDE];
    int64_t rows = PIECE / w;
    s->k->fold(RU_KERN_RED_MAX, RU_F32, true, x, n, w, w, true, top);
    for (int64_t i = 0; i < w; i++) {
        by[i] = isinf(top[i]) ? 0.0f : top[i];
    }
    repeat(by, w, rows * w);
    for (int64_t r = 0; r < n; r += rows) {
        int64_t m = n - r < rows ? n - r : rows;
        join(s, RU_KERN_MAP2_Sub, x + r * w, by, 1, d, m * w);
        exponentials(s, d, m * w);
        s->k->fold(RU_KERN_RED_SUM, RU_F32, true, d, m, w, w, r == 0, sum);
    }
    s->k->map1(RU_KERN_MAP1_Log, 0, 0, RU_F32, sum, sum, w);
    join(s, RU_KERN_MAP2_Add, by, sum, 1, y, w);
}

static void lse_columns(const line_state *s, const float *x, float *y, int64_t n, int64_t ld,
                        int64_t w)
{
    if (w == ld && w <= WIDE) {
        lse_few(s, x, y, n, w);
        return;
    }
    float top[COLS], sum[COLS] = {0}, d[COLS];
    s->k->reduce_cols(RU_KERN_RED_MAX, RU_F32, x, n, ld, 0, w, top);
    for (int64_t j = 0; j < w; j++) {
        top[j] = isinf(top[j]) ? 0.0f : top[j];
    }
    for (int64_t r = 0; r < n; r++) {
        join(s, RU_KERN_MAP2_Sub, x + r * ld, top, 1, d, w);
        exponentials(s, d, w);
        join(s, RU_KERN_MAP2_Add, sum, d, 1, sum, w);
    }
    s->k->map1(RU_KERN_MAP1_Log, 0, 0, RU_F32, sum, sum, w);
    join(s, RU_KERN_MAP2_Add, top, sum, 1, y, w);
}

/* -- rows and columns ----------------------------------------------------------------------------
 */

static bool in_columns(const rui_runs *r)
{
    return r->middle || (r->inner == 1 && r->outer > 1);
}

/* Rows begin .. end. */
static void row_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const line_state *s = state;
    const float *x = bufs[0];
    float *y = bufs[1];
    int64_t n = s->r.inner;
    if (s->op == RU_OP_LpNormalization) {
        RU_CHECK(s->r.outer == 1); /* one axis */
        lp_rows(s, x + begin * n, y + begin * n, end - begin);
    } else if (s->op == RU_OP_ReduceLogSumExp && s->r.outer == 1 && n <= WIDE) {
        lse_short(s, x + begin * n, y + begin, end - begin);
    } else if (s->op == RU_OP_ReduceLogSumExp) {
        for (int64_t k = begin; k < end; k++) {
            y[k] = lse_row(s, x, k);
        }
    } else {
        mvn_rows(s, x, y, begin, end);
    }
}

/* Blocks of columns. */
static void column_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const line_state *s = state;
    int64_t n = s->r.outer, ld = s->r.middle ? s->r.inner : s->r.keep;
    int64_t blocks = (ld + COLS - 1) / COLS;
    for (int64_t b = begin; b < end; b++) {
        int64_t c = b % blocks * COLS, w = ld - c < COLS ? ld - c : COLS;
        const float *x = (const float *)bufs[0] + b / blocks * n * ld + c;
        if (s->op == RU_OP_ReduceLogSumExp) {
            lse_columns(s, x, (float *)bufs[1] + b / blocks * ld + c, n, ld, w);
        } else if (s->op == RU_OP_LpNormalization) {
            lp_columns(s, x, (float *)bufs[1] + b / blocks * n * ld + c, n, ld, w);
        } else {
            mvn_columns(s, x, (float *)bufs[1] + b / blocks * n * ld + c, n, ld, w);
        }
    }
}

static ru_status line_run(void *state, void *const *bufs, const rui_run *run)
{
    const line_state *s = state;
    if (in_columns(&s->r)) {
        int64_t ld = s->r.middle ? s->r.inner : s->r.keep, batch = s->r.middle ? s->r.keep : 1;
        int64_t w = ld < COLS ? ld : COLS;
        rui_kern_for(run, column_part, s, bufs, batch * ((ld + COLS - 1) / COLS),
                     rui_kern_grain(s->r.outer * w));
    } else {
        rui_kern_for(run, row_part, s, bufs, s->r.keep, rui_kern_grain(s->r.outer * s->r.inner));
    }
    return RU_OK;
}

/* Which dims are one line. */
static bool line_dims(const rui_low *lo, const ru_node *n, const ru_type *x, bool *gone)
{
    static const int64_t usual[] = {0, 2, 3};
    int64_t axis = ru_node_int(n, RU_ATTR_axis, -1);
    uint32_t count = 1;
    const int64_t *axes = &axis;
    if (n->op == RU_OP_ReduceLogSumExp) {
        return rui_reduced_axes(lo, n, 1, x, gone);
    }
    if (n->op == RU_OP_MeanVarianceNormalization) {
        axes = ru_node_ints(n, RU_ATTR_axes, &count);
        count = axes == NULL ? RU_ARRAY_LEN(usual) : count;
        axes = axes == NULL ? usual : axes;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t d = rui_axis(axes[i], x->rank);
        if (d >= x->rank) {
            return false;
        }
        gone[d] = true;
    }
    return true;
}

ru_status rui_lower_kern_lines(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    bool gone[RU_RANK_MAX] = {false};
    line_state s = {.k = ru_kern_best(), .op = n->op, .l1 = ru_node_int(n, RU_ATTR_p, 2) == 1};
    if (x->dtype != RU_F32 || ru_type_count(x) <= 0 || !line_dims(lo, n, x, gone) ||
        !rui_runs_of(x, gone, &s.r)) {
        return RU_E_UNSUPPORTED;
    }
    line_state *kept = rui_keep(lo, (int64_t)sizeof *kept);
    if (kept == NULL) {
        return rui_done(lo);
    }
    s.count = s.r.count;
    *kept = s;
    rui_buf bufs[2] = {rui_in(lo, n->in[0], rui_plain_as(lo, x, RU_F32)),
                       rui_out(lo, n->out[0], rui_plain_as(lo, y, RU_F32))};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern lines", .fn = line_run, .state = kept, .bufs = bufs, .n_bufs = 2});
    rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    return rui_done(lo);
}

/* -- Hardmax -------------------------------------------------------------------------------------
 */

typedef struct hard_state {
    const ru_kern *k;
    ru_kern_scan s;
    int64_t outer;
} hard_state;

/* bufs: x y places */
static void hard_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const hard_state *s = state;
    const int64_t dim = s->s.dim, inner = s->s.inner, *at = bufs[2];
    float *y = bufs[1];
    int64_t lines = inner > 1 ? 1 : ROWS; /* while they are in the caches */
    for (int64_t o = begin; o < end; o += lines) {
        int64_t w = end - o < lines ? end - o : lines;
        s->k->arg(&s->s, bufs[0], bufs[2], o, o + w);
        memset(y + o * dim * inner, 0, (size_t)(w * dim * inner) * sizeof *y);
        for (int64_t i = 0; i < w * inner; i++) {
            int64_t line = o * inner + i;
            y[(line / inner * dim + at[line]) * inner + line % inner] = 1.0f;
        }
    }
}

static ru_status hard_run(void *state, void *const *bufs, const rui_run *run)
{
    const hard_state *s = state;
    rui_kern_for(run, hard_part, s, bufs, s->outer, rui_kern_grain(s->s.dim * s->s.inner));
    return RU_OK;
}

ru_status rui_lower_kern_hardmax(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    uint32_t a = rui_axis(ru_node_int(n, RU_ATTR_axis, -1), x->rank);
    bool fits =
        x->dtype == RU_F32 && ru_type_count(x) > 0 && a < x->rank && x->dims[a] <= INT32_MAX;
    hard_state *s = fits ? rui_keep(lo, (int64_t)sizeof *s) : NULL;
    if (s == NULL) {
        return fits ? rui_done(lo) : RU_E_UNSUPPORTED;
    }
    *s = (hard_state){.k = ru_kern_best(),
                      .s = {.dim = x->dims[a], .inner = rui_dims(x, a + 1, x->rank)},
                      .outer = rui_dims(x, 0, a)};
    rui_buf bufs[3] = {rui_in(lo, n->in[0], rui_plain_as(lo, x, RU_F32)),
                       rui_out(lo, n->out[0], rui_plain_as(lo, x, RU_F32)),
                       rui_scratch(lo, s->outer * s->s.inner * (int64_t)sizeof(int64_t))};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern hardmax", .fn = hard_run, .state = s, .bufs = bufs, .n_bufs = 3});
    rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    return rui_done(lo);
}
