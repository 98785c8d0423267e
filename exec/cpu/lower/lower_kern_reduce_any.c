/* Reductions of whole numbers and truth values, over axes that do not lie together, and
 * ReduceLogSumExp: what lower_kern_reduce.c declines. One result at a time, or up to LANES
 * neighbours where the last axis is kept; floats are added in double, in row-major order, so that
 * results do not depend on the threads. */
#include <math.h>
#include <string.h>

#include "exec/cpu/lower/lower_kern_whole.h"

enum { LANES = 32, CHUNK = 256 };

typedef enum any_op { A_SUM, A_SQUARES, A_SIZES, A_PRODUCT, A_MAX, A_MIN, A_LOG_SUM_EXP } any_op;
typedef enum any_end { E_NONE, E_MEAN, E_ROOT, E_LOG } any_end;

/* Dims merged into runs that are kept or reduced; reduced ones by stride. */
typedef struct any_state {
    const ru_kern *k;
    any_op op;
    any_end end;
    ru_dtype t;
    uint32_t n_keep, n_gone;
    int64_t keep[RU_RANK_MAX], keep_step[RU_RANK_MAX]; /* outer first */
    int64_t gone[RU_RANK_MAX], gone_step[RU_RANK_MAX];
    int64_t lanes;                 /* neighbours of the last run, which is kept; else 1 */
    int64_t run;                   /* elements of the last run, which is reduced; else 1 */
    int64_t results, count, turns; /* turns: rows of lanes or runs that fall on one result */
} any_state;

/* a[i * step] (op) x[i]; step 0: a run that falls on one result. */
#define JOIN(f)                       \
    for (int64_t i = 0; i < n; i++) { \
        a[i * step] = f;              \
    }                                 \
    break

static void join_reals(any_op op, double *a, int64_t step, const float *from, int64_t n)
{
    switch (op) {
    case A_SUM:
        JOIN(a[i * step] + (double)from[i]);
    case A_SQUARES:
        JOIN(a[i * step] + (double)from[i] * (double)from[i]);
    case A_SIZES:
        JOIN(a[i * step] + fabs((double)from[i]));
    case A_PRODUCT:
        JOIN(a[i * step] * (double)from[i]);
    case A_MAX:
    case A_LOG_SUM_EXP:
        JOIN(a[i * step] >= (double)from[i] || isnan(a[i * step]) ? a[i * step] : (double)from[i]);
    case A_MIN:
        JOIN(a[i * step] <= (double)from[i] || isnan(a[i * step]) ? a[i * step] : (double)from[i]);
    }
}

/* Sums and products wrap. */
static void join_wholes(any_op op, int64_t *a, int64_t step, const int64_t *x, int64_t n)
{
    switch (op) {
    case A_SQUARES:
        JOIN((int64_t)((uint64_t)a[i * step] + (uint64_t)x[i] * (uint64_t)x[i]));
    case A_SIZES:
        JOIN((int64_t)((uint64_t)a[i * step] + (x[i] < 0 ? 0 - (uint64_t)x[i] : (uint64_t)x[i])));
    case A_PRODUCT:
        JOIN((int64_t)((uint64_t)a[i * step] * (uint64_t)x[i]));
    case A_MAX:
        JOIN(x[i] > a[i * step] ? x[i] : a[i * step]);
    case A_MIN:
        JOIN(x[i] < a[i * step] ? x[i] : a[i * step]);
    case A_SUM:
    case A_LOG_SUM_EXP:
        JOIN((int64_t)((uint64_t)a[i * step] + (uint64_t)x[i]));
    }
}

static double real_start(any_op op)
{
    return op == A_PRODUCT                      ? 1.0
           : op == A_MAX || op == A_LOG_SUM_EXP ? (double)-INFINITY
           : op == A_MIN                        ? (double)INFINITY
                                                : 0.0;
}

/* The largest of none is the least of the type, and the other way round. */
static int64_t whole_start(any_op op, ru_dtype t)
{
    bool is_signed = t != RU_U8 && t != RU_BOOL;
    int64_t spare = 64 - 8 * ru_dtype_bytes(t);
    int64_t least = is_signed ? INT64_MIN >> spare : 0;
    int64_t most = t == RU_BOOL ? 1 : is_signed ? INT64_MAX >> spare : UINT8_MAX;
    return op == A_PRODUCT ? 1 : op == A_MAX ? least : op == A_MIN ? most : 0;
}

/* Where result `i` begins in x. */
static int64_t begin_of(const any_state *s, int64_t i)
{
    int64_t at = 0;
    for (uint32_t d = s->n_keep; d-- > 0; i /= s->keep[d]) {
        at += i % s->keep[d] * s->keep_step[d];
    }
    return at;
}

/* Where turn `i` of a result begins after that. */
static int64_t turn_at(const any_state *s, int64_t i)
{
    int64_t at = 0;
    for (uint32_t d = s->n_gone; d-- > 0; i /= s->gone[d]) {
        at += i % s->gone[d] * s->gone_step[d];
    }
    return at;
}

/* Results of w neighbours from `at` on. */
static void reals(const any_state *s, const float *x, int64_t at, double *a, int64_t w)
{
    for (int64_t j = 0; j < w; j++) {
        a[j] = real_start(s->op);
    }
    for (int64_t k = 0; k < s->turns; k++) {
        join_reals(s->op, a, s->run > 1 ? 0 : 1, x + at + turn_at(s, k), s->run > 1 ? s->run : w);
    }
}

static void wholes(const any_state *s, const char *x, int64_t at, int64_t *a, int64_t w)
{
    int64_t v[CHUNK], n = s->run > 1 ? s->run : w, bytes = ru_dtype_bytes(s->t);
    for (int64_t j = 0; j < w; j++) {
        a[j] = whole_start(s->op, s->t);
    }
    for (int64_t k = 0; k < s->turns; k++) {
        int64_t from = at + turn_at(s, k);
        for (int64_t c = 0; c < n; c += CHUNK) {
            int64_t m = n - c < CHUNK ? n - c : CHUNK;
            rui_wholes_load(s->t, x + (from + c) * bytes, m, v);
            join_wholes(s->op, a + (s->run > 1 ? 0 : c), s->run > 1 ? 0 : 1, v, m);
        }
    }
}

/* The sum of exponentials of x - top, chunk by chunk. */
static void exponentials(const any_state *s, const float *x, int64_t at, const double *top,
                         double *sum, int64_t w)
{
    float e[CHUNK];
    for (int64_t j = 0; j < w; j++) {
        sum[j] = 0.0;
    }
    for (int64_t k = 0; k < s->turns; k++) {
        const float *from = x + at + turn_at(s, k);
        int64_t n = s->run > 1 ? s->run : w;
        for (int64_t c = 0; c < n; c += CHUNK) {
            int64_t m = n - c < CHUNK ? n - c : CHUNK;
            for (int64_t i = 0; i < m; i++) {
                e[i] = (float)((double)from[c + i] - top[s->run > 1 ? 0 : c + i]);
            }
            s->k->map1(RU_KERN_MAP1_Exp, 0, 0, RU_F32, e, e, m);
            for (int64_t i = 0; i < m; i++) {
                sum[s->run > 1 ? 0 : c + i] += (double)e[i];
            }
        }
    }
}

static double finish(const any_state *s, double v)
{
    switch (s->end) {
    case E_MEAN:
        return v / fmax((double)s->count, 1); /* of none: 0 */
    case E_ROOT:
        return sqrt(v);
    case E_LOG:
        return log(v);
    case E_NONE:
        break;
    }
    return v;
}

/* Neighbours that begin with result `i`, as far as `end`. */
static int64_t width_at(const any_state *s, int64_t i, int64_t end)
{
    int64_t left = s->lanes - i % s->lanes, w = left < end - i ? left : end - i;
    return w < LANES ? w : LANES;
}

static void real_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const any_state *s = state;
    double a[LANES], sum[LANES];
    float *y = bufs[1];
    for (int64_t i = begin, w; i < end; i += w) {
        int64_t at = begin_of(s, i);
        w = width_at(s, i, end);
        reals(s, bufs[0], at, a, w);
        for (int64_t j = 0; s->op == A_LOG_SUM_EXP && j < w; j++) {
            a[j] = isinf(a[j]) ? 0.0 : a[j];
        }
        if (s->op == A_LOG_SUM_EXP) {
            exponentials(s, bufs[0], at, a, sum, w);
        }
        for (int64_t j = 0; j < w; j++) {
            y[i + j] = (float)(s->op == A_LOG_SUM_EXP ? a[j] + log(sum[j]) : finish(s, a[j]));
        }
    }
}

static inline int64_t join_two(const any_op op, int64_t a, int64_t b)
{
    return op == A_SUM       ? (int64_t)((uint64_t)a + (uint64_t)b)
           : op == A_PRODUCT ? (int64_t)((uint64_t)a * (uint64_t)b)
           : op == A_MAX     ? (a > b ? a : b)
                             : (a < b ? a : b);
}

/* One row, four at a time: one waits for the one before it. */
static inline int64_t fold(const any_op op, const bool wide, const void *x, int64_t n)
{
    int64_t start = whole_start(op, wide ? RU_I64 : RU_I32), a[4] = {start, start, start, start},
            i = 0;
    for (; i + 4 <= n; i += 4) {
#pragma GCC unroll 4
        for (int64_t r = 0; r < 4; r++) {
            int64_t v = wide ? ((const int64_t *)x)[i + r] : ((const int32_t *)x)[i + r];
            a[r] = join_two(op, a[r], v);
        }
    }
    for (; i < n; i++) {
        a[0] = join_two(op, a[0], wide ? ((const int64_t *)x)[i] : ((const int32_t *)x)[i]);
    }
    return join_two(op, join_two(op, a[0], a[1]), join_two(op, a[2], a[3]));
}

static inline void fold_rows(const any_state *s, const any_op op, const bool wide, const void *x,
                             void *y, int64_t begin, int64_t end)
{
    int64_t bytes = wide ? 8 : 4;
    for (int64_t i = begin; i < end; i++) {
        int64_t v = fold(op, wide, (const char *)x + i * s->run * bytes, s->run);
        if (wide) {
            ((int64_t *)y)[i] = v;
        } else {
            ((int32_t *)y)[i] = (int32_t)v;
        }
    }
}

#define FOLD_CASE(op)                                  \
    case op:                                           \
        if (s->t == RU_I64) {                          \
            fold_rows(s, op, true, x, y, begin, end);  \
        } else {                                       \
            fold_rows(s, op, false, x, y, begin, end); \
        }                                              \
        return true;

/* Rows of i64 or i32 that follow each other; false: another case. */
static bool whole_rows(const any_state *s, const void *x, void *y, int64_t begin, int64_t end)
{
    if ((s->t != RU_I64 && s->t != RU_I32) || s->turns != 1 || s->run == 1 || s->run != s->count ||
        s->n_keep > 1) {
        return false;
    }
    switch (s->op) {
        FOLD_CASE(A_SUM)
        FOLD_CASE(A_PRODUCT)
        FOLD_CASE(A_MAX)
        FOLD_CASE(A_MIN)
    case A_SQUARES:
    case A_SIZES:
    case A_LOG_SUM_EXP:
        break;
    }
    return false;
}

static void whole_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const any_state *s = state;
    int64_t a[LANES], bytes = ru_dtype_bytes(s->t);
    if (whole_rows(s, bufs[0], bufs[1], begin, end)) {
        return;
    }
    for (int64_t i = begin, w; i < end; i += w) {
        w = width_at(s, i, end);
        wholes(s, bufs[0], begin_of(s, i), a, w);
        rui_wholes_store(s->t, a, w, (char *)bufs[1] + i * bytes);
    }
}

static ru_status any_run(void *state, void *const *bufs, const rui_run *run)
{
    const any_state *s = state;
    rui_kern_for(run, s->t == RU_F32 ? real_part : whole_part, s, bufs, s->results,
                 rui_kern_grain(s->count));
    return RU_OK;
}

/* -- lowering ------------------------------------------------------------------------------------
 */

static const struct {
    ru_op op;
    any_op is;
    any_end end;
} any_rows[] = {
    {RU_OP_ReduceSum, A_SUM, E_NONE},
    {RU_OP_ReduceMean, A_SUM, E_MEAN},
    {RU_OP_ReduceMax, A_MAX, E_NONE},
    {RU_OP_ReduceMin, A_MIN, E_NONE},
    {RU_OP_ReduceProd, A_PRODUCT, E_NONE},
    {RU_OP_ReduceSumSquare, A_SQUARES, E_NONE},
    {RU_OP_ReduceL1, A_SIZES, E_NONE},
    {RU_OP_ReduceL2, A_SQUARES, E_ROOT},
    {RU_OP_ReduceLogSum, A_SUM, E_LOG},
    {RU_OP_ReduceTo, A_SUM, E_NONE},
    {RU_OP_ReduceLogSumExp, A_LOG_SUM_EXP, E_NONE},
};

/* Of whole numbers: what stays whole. */
static bool takes(const any_state *s)
{
    bool small = s->t == RU_I8 || s->t == RU_U8 || s->t == RU_BOOL;
    bool whole = s->t == RU_I64 || s->t == RU_I32 || (small && (s->op == A_MAX || s->op == A_MIN));
    return s->t == RU_F32 || (whole && s->op != A_LOG_SUM_EXP && s->end == E_NONE);
}

/* From the last dim on: merge neighbours of one kind. */
static void merge(any_state *s, const ru_type *x, const bool *reduced)
{
    int64_t at = 1;
    bool last_gone = false, first = true;
    s->lanes = s->run = s->count = s->results = s->turns = 1;
    for (uint32_t d = x->rank; d-- > 0; at *= x->dims[d]) {
        int64_t n = x->dims[d];
        *(reduced[d] ? &s->count : &s->results) *= n;
        if (n == 1) {
            continue;
        }
        uint32_t *k = reduced[d] ? &s->n_gone : &s->n_keep;
        int64_t *dims = reduced[d] ? s->gone : s->keep;
        int64_t *step = reduced[d] ? s->gone_step : s->keep_step;
        if (!first && last_gone == reduced[d]) {
            dims[*k - 1] *= n;
        } else {
            dims[*k] = n;
            step[(*k)++] = at;
        }
        last_gone = reduced[d];
        first = false;
    }
    if (s->results > 0 && s->count > 0) {
        s->lanes = s->n_keep > 0 && s->keep_step[0] == 1 ? s->keep[0] : 1;
        s->run = s->n_gone > 0 && s->gone_step[0] == 1 ? s->gone[0] : 1;
    }
}

static void turn_round(int64_t *a, uint32_t n)
{
    for (uint32_t i = 0; i + 1 < n - i; i++) {
        int64_t t = a[i];
        a[i] = a[n - 1 - i];
        a[n - 1 - i] = t;
    }
}

static void order_runs(any_state *s)
{
    if (s->run > 1) { /* the innermost reduced run is a loop of its own */
        s->n_gone--;
        memmove(s->gone, s->gone + 1, s->n_gone * sizeof s->gone[0]);
        memmove(s->gone_step, s->gone_step + 1, s->n_gone * sizeof s->gone_step[0]);
    }
    for (uint32_t d = 0; d < s->n_gone; d++) {
        s->turns *= s->gone[d];
    }
    turn_round(s->keep, s->n_keep);
    turn_round(s->keep_step, s->n_keep);
    turn_round(s->gone, s->n_gone);
    turn_round(s->gone_step, s->n_gone);
}

/* Which dims go. */
static bool dims_gone(const rui_low *lo, const ru_node *n, const ru_type *x, bool *reduced)
{
    const ru_type *to = rui_type(lo, n->out[0]);
    if (n->op != RU_OP_ReduceTo) {
        /* Without axes nothing may be reduced, but squares and logarithms are still taken. */
        return rui_reduced_axes(lo, n, 1, x, reduced) ||
               (!ru_node_has_in(n, 1) && ru_node_int(n, RU_ATTR_noop_with_empty_axes, 0) != 0);
    }
    for (uint32_t d = 0; d < x->rank; d++) {
        uint32_t back = x->rank - d;
        reduced[d] = (back <= to->rank ? to->dims[to->rank - back] : 1) == 1;
    }
    return to->rank <= x->rank;
}

ru_status rui_lower_kern_reduce_any(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    any_state s = {.k = ru_kern_best(), .t = x->dtype};
    bool reduced[RU_RANK_MAX] = {false}, known = false;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(any_rows); i++) {
        if (any_rows[i].op == n->op) {
            s.op = any_rows[i].is;
            s.end = any_rows[i].end;
            known = true;
        }
    }
    if (!known || !takes(&s) || !dims_gone(lo, n, x, reduced)) {
        return RU_E_UNSUPPORTED;
    }
    any_state *kept = rui_keep(lo, (int64_t)sizeof *kept);
    if (kept == NULL) {
        return rui_done(lo);
    }
    merge(&s, x, reduced);
    order_runs(&s);
    *kept = s;
    rui_buf bufs[2] = {rui_in_plain(lo, n->in[0]), rui_out_plain(lo, n->out[0])};
    rui_emit(
        lo,
        &(rui_step){
            .kernel = "kern reduce any", .fn = any_run, .state = kept, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}
