/* Reductions of f64, whole numbers and truth values, over axes that do not lie together, and
 * ReduceLogSumExp: what lower_kern_reduce.c declines. Dims are merged into runs; the innermost run
 * is kept (results are columns) or reduced (results are rows). One block is up to BLOCK results
 * side by side, always the same ones, so that results do not depend on the threads. */
#include <math.h>
#include <string.h>

#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/lower/lower_kern_reduce.h"

enum { BLOCK = 256, CHUNK = 1024 };

typedef enum any_end { E_NONE, E_MEAN, E_ROOT, E_LOG, E_LOG_SUM_EXP } any_end;

typedef struct any_state {
    const ru_kern *k;
    ru_kern_red op;
    any_end end;
    ru_dtype t;
    uint32_t n_keep, n_gone;
    int64_t keep[RU_RANK_MAX], keep_step[RU_RANK_MAX]; /* outer first */
    int64_t gone[RU_RANK_MAX], gone_step[RU_RANK_MAX]; /* without the innermost one */
    bool across;                                       /* the last run is kept */
    int64_t near;                                      /* results of the innermost kept run */
    int64_t deep;                                      /* elements of the innermost reduced run */
    int64_t results, count, turns; /* turns: innermost reduced runs that fall on one result */
} any_state;

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

/* sum[j * step] += exp(x[i] - top[j]), j = i where step is 1, else 0. */
static void add_exponentials(const any_state *s, const float *x, int64_t n, const float *top,
                             int64_t step, double *sum)
{
    float e[CHUNK];
    for (int64_t c = 0; c < n; c += CHUNK) {
        int64_t m = n - c < CHUNK ? n - c : CHUNK;
        for (int64_t i = 0; i < m; i++) {
            e[i] = (float)((double)x[c + i] - (double)top[(c + i) * step]);
        }
        s->k->map1(RU_KERN_MAP1_Exp, 0, 0, RU_F32, e, e, m);
        for (int64_t i = 0; i < m; i++) {
            sum[(c + i) * step] += (double)e[i];
        }
    }
}

/* The same of doubles for n lines of `len` elements that follow each other, n * len <= CHUNK;
 * across: each line adds to all sums, else each to its own. */
static void add_wide(const any_state *s, const double *x, int64_t n, int64_t len, const double *top,
                     double *sum)
{
    double e[CHUNK];
    for (int64_t l = 0; l < n; l++) {
        for (int64_t i = 0; i < len; i++) {
            e[l * len + i] = x[l * len + i] - top[s->across ? i : l];
        }
    }
    ru_kern_numbers_best()->map1(RU_KERN_MAP1_Exp, e, e, n * len);
    s->k->fold(RU_KERN_RED_SUM, RU_F64, s->across, e, s->across ? n : len, s->across ? len : 0,
               s->across ? len : n, false, sum);
}

/* One turn of w results side by side. */
static void add_turn(const any_state *s, const char *x, const void *top, int64_t w, double *sum)
{
    int64_t lines = s->across ? s->deep : w, len = s->across ? w : s->deep;
    int64_t step = s->across ? s->near : s->deep;
    if (s->t == RU_F32) {
        for (int64_t l = 0; l < lines; l++) {
            add_exponentials(s, (const float *)(const void *)x + l * step, len,
                             (const float *)top + (s->across ? 0 : l), s->across ? 1 : 0,
                             s->across ? sum : sum + l);
        }
        return;
    }
    const double *from = (const void *)x, *most = top;
    int64_t at_once = len == step && len <= CHUNK ? CHUNK / len : 1;
    for (int64_t l = 0, n; l < lines; l += n) {
        n = lines - l < at_once ? lines - l : at_once;
        for (int64_t c = 0, m; c < len; c += m) { /* more than one only of a long row */
            m = len - c < CHUNK ? len - c : CHUNK;
            add_wide(s, from + l * step + c, n, m, s->across ? most : most + l,
                     s->across ? sum : sum + l);
        }
    }
}

/* y holds the largest ones of w neighbours. */
static void log_sum_exp(const any_state *s, const char *x, void *y, int64_t w)
{
    double sum[BLOCK] = {0};
    float *some = y;
    double *wide = y;
    for (int64_t j = 0; j < w; j++) {
        if (s->t == RU_F32) {
            some[j] = isinf(some[j]) ? 0.0f : some[j];
        } else {
            wide[j] = isinf(wide[j]) ? 0.0 : wide[j];
        }
    }
    for (int64_t k = 0; k < s->turns; k++) {
        add_turn(s, x + turn_at(s, k) * ru_dtype_bytes(s->t), y, w, sum);
    }
    for (int64_t j = 0; j < w; j++) {
        if (s->t == RU_F32) {
            some[j] = (float)((double)some[j] + log(sum[j]));
        } else {
            wide[j] += log(sum[j]);
        }
    }
}

static double finish(any_end end, double v, double count)
{
    return end == E_MEAN ? v / count : end == E_ROOT ? sqrt(v) : end == E_LOG ? log(v) : v;
}

static void finish_all(const any_state *s, const char *x, void *y, int64_t w)
{
    const double count = fmax((double)s->count, 1); /* of none: 0 */
    if (s->end == E_LOG_SUM_EXP) {
        log_sum_exp(s, x, y, w);
    }
    if (s->end == E_NONE || s->end == E_LOG_SUM_EXP) {
        return;
    }
    for (int64_t j = 0; s->t == RU_F32 && j < w; j++) {
        ((float *)y)[j] = (float)finish(s->end, (double)((float *)y)[j], count);
    }
    for (int64_t j = 0; s->t == RU_F64 && j < w; j++) {
        ((double *)y)[j] = finish(s->end, ((double *)y)[j], count);
    }
}

/* -- means of whole numbers: summed in double, because a sum may lie beyond their type ------------
 */

static bool means_whole(const any_state *s)
{
    return s->end == E_MEAN && s->t != RU_F32 && s->t != RU_F64;
}

/* n lines of `len` elements, one after the other, n * len <= CHUNK, into the sums of w results. */
static void sum_chunk(const any_state *s, const char *x, int64_t n, int64_t len, bool first,
                      double *sum)
{
    double v[CHUNK];
    RU_CHECK(s->k->cast(s->t, x, RU_F64, v, n * len));
    if (s->across) {
        s->k->fold(RU_KERN_RED_SUM, RU_F64, true, v, n, len, len, first, sum);
    } else {
        s->k->fold(RU_KERN_RED_SUM, RU_F64, false, v, len, 0, n, first, sum);
    }
}

/* One turn of w results side by side. */
static void sum_whole(const any_state *s, const char *x, int64_t w, bool first, double *sum)
{
    int64_t bytes = ru_dtype_bytes(s->t), lines = s->across ? s->deep : w;
    int64_t len = s->across ? w : s->deep, step = s->across ? s->near : s->deep;
    int64_t at_once = len == step && len <= CHUNK ? CHUNK / len : 1;
    for (int64_t l = 0, n; l < lines; l += n) {
        n = lines - l < at_once ? lines - l : at_once;
        double *to = s->across ? sum : sum + l;
        for (int64_t c = 0, m; c < len; c += m) { /* more than one only of a long row */
            m = len - c < CHUNK ? len - c : CHUNK;
            bool begins = first && c == 0 && (l == 0 || !s->across);
            sum_chunk(s, x + (l * step + c) * bytes, n, m, begins, to);
        }
    }
}

static void mean_of_whole(const any_state *s, const char *x, void *y, int64_t w)
{
    double sum[BLOCK] = {0}; /* of none: 0 */
    for (int64_t k = 0; k < s->turns; k++) {
        sum_whole(s, x + turn_at(s, k) * ru_dtype_bytes(s->t), w, k == 0, sum);
    }
    for (int64_t j = 0; j < w; j++) {
        sum[j] = finish(E_MEAN, sum[j], fmax((double)s->count, 1));
    }
    ru_kern_numbers_best()->cut(sum, ru_dtype_bytes(s->t), y, w);
}

static int64_t blocks_of(const any_state *s)
{
    return (s->near + BLOCK - 1) / BLOCK;
}

static void any_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const any_state *s = state;
    int64_t bytes = ru_dtype_bytes(s->t), blocks = blocks_of(s);
    for (int64_t b = begin; b < end; b++) {
        int64_t c = b % blocks * BLOCK, w = s->near - c < BLOCK ? s->near - c : BLOCK;
        int64_t i = b / blocks * s->near + c;
        const char *x = (const char *)bufs[0] + begin_of(s, i) * bytes;
        char *y = (char *)bufs[1] + i * bytes;
        if (means_whole(s)) {
            mean_of_whole(s, x, y, w);
            continue;
        }
        for (int64_t k = 0; k < s->turns; k++) {
            s->k->fold(s->op, s->t, s->across, x + turn_at(s, k) * bytes, s->deep, s->near, w,
                       k == 0, y);
        }
        if (s->turns == 0) { /* of none */
            s->k->fold(s->op, s->t, true, x, 0, s->near, w, true, y);
        }
        finish_all(s, x, y, w);
    }
}

static ru_status any_run(void *state, void *const *bufs, const rui_run *run)
{
    const any_state *s = state;
    int64_t w = s->near < BLOCK ? s->near : BLOCK;
    rui_kern_for(run, any_part, s, bufs, s->results / s->near * blocks_of(s),
                 rui_kern_grain(s->count * w));
    return RU_OK;
}

/* -- lowering ------------------------------------------------------------------------------------
 */

static const struct {
    ru_op op;
    ru_kern_red is;
    any_end end;
} any_rows[] = {
    {RU_OP_ReduceSum, RU_KERN_RED_SUM, E_NONE},
    {RU_OP_ReduceMean, RU_KERN_RED_SUM, E_MEAN},
    {RU_OP_ReduceMax, RU_KERN_RED_MAX, E_NONE},
    {RU_OP_ReduceMin, RU_KERN_RED_MIN, E_NONE},
    {RU_OP_ReduceProd, RU_KERN_RED_PROD, E_NONE},
    {RU_OP_ReduceSumSquare, RU_KERN_RED_SUM_SQUARE, E_NONE},
    {RU_OP_ReduceL1, RU_KERN_RED_SUM_ABS, E_NONE},
    {RU_OP_ReduceL2, RU_KERN_RED_SUM_SQUARE, E_ROOT},
    {RU_OP_ReduceLogSum, RU_KERN_RED_SUM, E_LOG},
    {RU_OP_ReduceTo, RU_KERN_RED_SUM, E_NONE},
    {RU_OP_ReduceLogSumExp, RU_KERN_RED_MAX, E_LOG_SUM_EXP},
};

/* Of whole numbers: what stays whole. Their means are cut, as C converts. */
static bool takes(const any_state *s)
{
    bool small = s->t == RU_I8 || s->t == RU_U8 || s->t == RU_BOOL;
    bool picks = s->op == RU_KERN_RED_MAX || s->op == RU_KERN_RED_MIN;
    bool whole = s->t == RU_I64 || s->t == RU_I32 || (small && picks);
    return s->t == RU_F32 || s->t == RU_F64 ||
           (whole && (s->end == E_NONE || (s->end == E_MEAN && !small)));
}

/* From the last dim on: merge neighbours of one kind. */
static void merge(any_state *s, const ru_type *x, const bool *reduced)
{
    int64_t at = 1;
    bool last_gone = false, first = true;
    s->count = s->results = 1;
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
}

static void turn_round(int64_t *a, uint32_t n)
{
    for (uint32_t i = 0; i + 1 < n - i; i++) {
        int64_t t = a[i];
        a[i] = a[n - 1 - i];
        a[n - 1 - i] = t;
    }
}

/* The innermost reduced run is a loop of its own. */
static void order_runs(any_state *s)
{
    s->across = s->n_gone == 0 || s->gone_step[0] != 1;
    s->near = s->n_keep > 0 && s->keep[0] > 0 ? s->keep[0] : 1;
    s->deep = s->turns = 1;
    if (s->n_gone > 0) {
        s->deep = s->gone[0];
        s->n_gone--;
        memmove(s->gone, s->gone + 1, s->n_gone * sizeof s->gone[0]);
        memmove(s->gone_step, s->gone_step + 1, s->n_gone * sizeof s->gone_step[0]);
    }
    for (uint32_t d = 0; d < s->n_gone; d++) {
        s->turns *= s->gone[d];
    }
    s->turns = s->count == 0 ? 0 : s->turns;
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
