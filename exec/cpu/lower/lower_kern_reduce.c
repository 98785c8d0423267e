/* Reductions on the vector kernels. Dimensions are merged into runs that are kept (K) or reduced
 * (R); four patterns cover what occurs: K R, R K, R K R and K R K. */
#include "exec/cpu/lower/lower_kern_reduce.h"

#include <math.h>
#include <string.h>

enum { BLOCK_ROWS = 128 }; /* rows of channels that make one partial sum: fixed */
enum { LANES_MAX = 64 };
enum { NEAR_ROWS = 1024 }; /* results that are finished while they are in L1 */
enum { LONG_ROW = 512 };   /* elements of a run that is read by itself */
enum { ALL_BLOCK = 8192 }; /* elements of one partial sum when everything is reduced: fixed */

typedef enum reduce_after { AFTER_NONE, AFTER_MEAN, AFTER_SQRT, AFTER_LOG } reduce_after;

typedef struct reduce_state {
    const ru_kern *k;
    ru_kern_red op;
    reduce_after after;
    ru_dtype t;
    rui_runs r;
    bool lanes; /* x stands as [keep, outer, inner channels side by side] */
} reduce_state;

static float join(ru_kern_red op, float a, float b)
{
    switch (op) {
    case RU_KERN_RED_MAX:
        return (a > b || isnan(a)) ? a : b;
    case RU_KERN_RED_MIN:
        return (a < b || isnan(a)) ? a : b;
    case RU_KERN_RED_PROD:
        return a * b;
    case RU_KERN_RED_SUM:
    case RU_KERN_RED_SUM_SQUARE:
    case RU_KERN_RED_SUM_ABS:
        break;
    }
    return a + b;
}

static float finish(const reduce_state *s, float v)
{
    switch (s->after) {
    case AFTER_MEAN:
        return (float)((double)v / fmax(s->r.count, 1)); /* of none: 0 */
    case AFTER_SQRT:
        return sqrtf(v);
    case AFTER_LOG:
        return logf(v);
    case AFTER_NONE:
        break;
    }
    return v;
}

static void finish_all(const reduce_state *s, float *y, int64_t begin, int64_t end)
{
    float count = (float)fmax(s->r.count, 1);
    if (s->after == AFTER_MEAN && (double)count == fmax(s->r.count, 1)) { /* rounds as `finish` */
        s->k->map2(RU_KERN_MAP2_Div, 0, 0, RU_F32, y + begin, 1, &count, 0, y + begin, end - begin);
    } else if (s->after == AFTER_SQRT) {
        s->k->map1(RU_KERN_MAP1_Sqrt, 0, 0, RU_F32, y + begin, y + begin, end - begin);
    } else {
        for (int64_t i = begin; s->after != AFTER_NONE && i < end; i++) {
            y[i] = finish(s, y[i]);
        }
    }
}

/* One kept element at a time: inner runs are contiguous. */
static void rows_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const reduce_state *s = state;
    float *y = bufs[1];
    int64_t bytes = ru_dtype_bytes(s->t);
    for (int64_t k = begin, n; s->r.outer == 1 && k < end; k += n) {
        n = end - k < NEAR_ROWS ? end - k : NEAR_ROWS;
        s->k->reduce_rows(s->op, s->t, (const char *)bufs[0] + k * s->r.inner * bytes, n,
                          s->r.inner, y + k);
        finish_all(s, y, k, k + n);
    }
    if (s->r.outer == 1) {
        return;
    }
    if (s->t == RU_F32 && s->r.inner < LONG_ROW &&
        s->op != RU_KERN_RED_PROD) { /* run by run, as the elements stand */
        for (int64_t o = 0; o < s->r.outer; o++) {
            const float *x = (const float *)bufs[0] + (o * s->r.keep + begin) * s->r.inner;
            s->k->fold(s->op, s->t, false, x, s->r.inner, 0, end - begin, o == 0, y + begin);
        }
        finish_all(s, y, begin, end);
        return;
    }
    for (int64_t k = begin; k < end; k++) {
        const char *x = (const char *)bufs[0] + k * s->r.inner * bytes;
        y[k] =
            finish(s, s->k->reduce(s->op, s->t, x, s->r.inner, s->r.outer, s->r.keep * s->r.inner));
    }
}

/* Columns of [outer, keep]. A part has 64 of them, of any length: so it counts as one with memory
 * of its own (rui_kern_for_own), which the caller does not do alone beside other work. */
static void cols_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    (void)own;
    const reduce_state *s = state;
    if (s->op == RU_KERN_RED_SUM) {
        s->k->sum_rows(s->t, bufs[0], s->r.outer, s->r.keep, begin, end, bufs[1]);
    } else {
        s->k->reduce_cols(s->op, s->t, bufs[0], s->r.outer, s->r.keep, begin, end, bufs[1]);
    }
    finish_all(s, bufs[1], begin, end);
}

static void middle_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const reduce_state *s = state;
    for (int64_t k = begin; k < end; k++) {
        const char *x = (const char *)bufs[0] + k * s->r.outer * s->r.inner * ru_dtype_bytes(s->t);
        float *y = (float *)bufs[1] + k * s->r.inner;
        s->k->reduce_cols(s->op, s->t, x, s->r.outer, s->r.inner, 0, s->r.inner, y);
        finish_all(s, y, 0, s->r.inner);
    }
}

/* Blocks [begin, end), each [outer, inner channels], in columns of at most LANES_MAX. */
static void lanes_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const reduce_state *s = state;
    int64_t bytes = ru_dtype_bytes(s->t), ld = s->r.inner;
    int64_t cuts = (ld + LANES_MAX - 1) / LANES_MAX;
    for (int64_t i = begin * cuts; i < end * cuts; i++) {
        int64_t c0 = i % cuts * LANES_MAX, w = ld - c0 < LANES_MAX ? ld - c0 : LANES_MAX;
        const char *x = (const char *)bufs[0] + (i / cuts * s->r.outer * ld + c0) * bytes;
        float *y = (float *)bufs[1] + i / cuts * ld + c0, part[LANES_MAX];
        for (int64_t r = 0; r < s->r.outer; r += BLOCK_ROWS) {
            int64_t n = s->r.outer - r < BLOCK_ROWS ? s->r.outer - r : BLOCK_ROWS;
            s->k->reduce_cols(s->op, s->t, x + r * ld * bytes, n, ld, 0, w, r == 0 ? y : part);
            for (int64_t l = 0; r > 0 && l < w; l++) {
                y[l] = join(s->op, y[l], part[l]);
            }
        }
        finish_all(s, y, 0, w);
    }
}

static void all_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const reduce_state *s = state;
    for (int64_t b = begin; b < end; b++) {
        int64_t at = b * ALL_BLOCK, left = s->r.inner - at;
        ((float *)bufs[2])[b] =
            s->k->reduce(s->op, s->t, (const char *)bufs[0] + at * ru_dtype_bytes(s->t),
                         left < ALL_BLOCK ? left : ALL_BLOCK, 1, 0);
    }
}

static ru_status reduce_run(void *state, void *const *bufs, const rui_run *run)
{
    const reduce_state *s = state;
    if (s->lanes) {
        rui_kern_for(run, lanes_part, s, bufs, s->r.keep, rui_kern_grain(s->r.outer * s->r.inner));
    } else if (s->r.middle) {
        rui_kern_for(run, middle_part, s, bufs, s->r.keep, rui_kern_grain(s->r.outer * s->r.inner));
    } else if (s->r.inner == 1) {
        int64_t grain = rui_kern_grain(s->r.outer);
        rui_kern_for_own(run, cols_part, s, bufs, s->r.keep, (grain + 63) / 64 * 64, NULL, 0);
    } else if (s->r.keep == 1 && s->r.outer == 1) {
        int64_t blocks = (s->r.inner + ALL_BLOCK - 1) / ALL_BLOCK;
        rui_kern_for(run, all_part, s, bufs, blocks, 1);
        const float *part = bufs[2];
        float v = part[0];
        for (int64_t b = 1; b < blocks; b++) {
            v = join(s->op, v, part[b]);
        }
        *(float *)bufs[1] = finish(s, v);
    } else {
        rui_kern_for(run, rows_part, s, bufs, s->r.keep, rui_kern_grain(s->r.outer * s->r.inner));
    }
    return RU_OK;
}

bool rui_runs_of(const ru_type *x, const bool *reduced, rui_runs *s)
{
    int64_t run[RU_RANK_MAX + 1];
    bool red[RU_RANK_MAX + 1];
    uint32_t n = 0;
    *s = (rui_runs){.outer = 1, .keep = 1, .inner = 1, .count = 1.0};
    for (uint32_t d = 0; d < x->rank; d++) {
        s->count *= reduced[d] ? (double)x->dims[d] : 1.0;
        if (x->dims[d] == 0) {
            return false;
        }
        if (x->dims[d] == 1) {
            continue;
        }
        if (n > 0 && red[n - 1] == reduced[d]) {
            run[n - 1] *= x->dims[d];
        } else {
            run[n] = x->dims[d];
            red[n++] = reduced[d];
        }
    }
    if (n == 0) {
        return true;
    }
    if (n == 1) {
        *(red[0] ? &s->inner : &s->keep) = run[0];
    } else if (n == 2) {
        s->keep = run[red[0] ? 1 : 0];
        *(red[0] ? &s->outer : &s->inner) = run[red[0] ? 0 : 1];
    } else if (n == 3) {
        s->middle = !red[0];
        s->keep = run[red[0] ? 1 : 0];
        s->outer = run[red[0] ? 0 : 1];
        s->inner = run[2];
    }
    return n <= 3;
}

static ru_status emit_reduce(rui_low *lo, const ru_node *n, const reduce_state *proto)
{
    reduce_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = *proto;
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    bool all = s->r.keep == 1 && s->r.outer == 1;
    rui_buf bufs[3] = {s->lanes ? rui_in_standing(lo, n->in[0])
                                : rui_in(lo, n->in[0], rui_plain_as(lo, x, s->t)),
                       rui_out(lo, n->out[0], rui_plain_as(lo, y, RU_F32)),
                       rui_scratch(lo, all ? (s->r.inner / ALL_BLOCK + 1) * 4 : 0)};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern reduce", .fn = reduce_run, .state = s, .bufs = bufs, .n_bufs = 3});
    return rui_done(lo);
}

ru_status rui_lower_kern_reduce_to(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *to = rui_type(lo, n->out[0]);
    reduce_state s = {
        .k = ru_kern_best(), .op = RU_KERN_RED_SUM, .t = rui_kern_dtype(lo, n->in[0])};
    bool reduced[RU_RANK_MAX];
    for (uint32_t d = 0; d < x->rank; d++) {
        uint32_t back = x->rank - d;
        int64_t dim = back <= to->rank ? to->dims[to->rank - back] : 1;
        reduced[d] = dim == 1 && x->dims[d] != 1;
    }
    if (x->dtype != RU_F32 || !rui_kern_float(s.t) || to->rank > x->rank ||
        !rui_runs_of(x, reduced, &s.r)) {
        return RU_E_UNSUPPORTED;
    }
    return emit_reduce(lo, n, &s);
}

typedef struct reduce_row {
    ru_op op;
    ru_kern_red red;
    reduce_after after;
} reduce_row;

static const reduce_row reduce_rows[] = {
    {RU_OP_ReduceSum, RU_KERN_RED_SUM, AFTER_NONE},
    {RU_OP_ReduceMean, RU_KERN_RED_SUM, AFTER_MEAN},
    {RU_OP_ReduceMax, RU_KERN_RED_MAX, AFTER_NONE},
    {RU_OP_ReduceMin, RU_KERN_RED_MIN, AFTER_NONE},
    {RU_OP_ReduceProd, RU_KERN_RED_PROD, AFTER_NONE},
    {RU_OP_ReduceSumSquare, RU_KERN_RED_SUM_SQUARE, AFTER_NONE},
    {RU_OP_ReduceL1, RU_KERN_RED_SUM_ABS, AFTER_NONE},
    {RU_OP_ReduceL2, RU_KERN_RED_SUM_SQUARE, AFTER_SQRT},
    {RU_OP_ReduceLogSum, RU_KERN_RED_SUM, AFTER_LOG},
};

bool rui_reduced_axes(const rui_low *lo, const ru_node *n, uint32_t k, const ru_type *x,
                      bool *reduced)
{
    uint32_t count = 0;
    const int64_t *axes = ru_node_ints(n, RU_ATTR_axes, &count);
    if (ru_node_has_in(n, k)) {
        axes = rui_const_i64(lo, n->in[k], &count);
        if (axes == NULL) {
            return false;
        }
    }
    bool none = count == 0;
    if (none && ru_node_int(n, RU_ATTR_noop_with_empty_axes, 0) != 0) {
        return false;
    }
    for (uint32_t d = 0; d < x->rank; d++) {
        reduced[d] = none;
    }
    for (uint32_t i = 0; i < count; i++) {
        reduced[rui_axis(axes[i], x->rank)] = true;
    }
    return true;
}

/* All places of an image whose channels stand side by side: no reorder to rows is needed. */
static void in_lanes(rui_low *lo, const ru_node *n, const bool *reduced, reduce_state *s)
{
    const rui_layout *l = rui_standing(lo, n->in[0]);
    const ru_type *x = rui_type(lo, n->in[0]);
    bool spatial =
        x->rank >= 3 && l->md.ndims == (int)x->rank && !reduced[0] && !reduced[1] && !l->padded;
    for (uint32_t d = 2; d < x->rank && spatial; d++) {
        spatial = reduced[d];
    }
    int64_t lanes = spatial ? rui_side_by_side(l, x) : 0;
    if (lanes > 0) {
        s->lanes = true;
        s->r.keep = x->dims[0] * x->dims[1] / lanes;
        s->r.outer = rui_dims(x, 2, x->rank);
        s->r.inner = lanes;
    }
}

ru_status rui_lower_kern_reduce(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    reduce_state s = {.k = ru_kern_best(), .t = rui_kern_dtype(lo, n->in[0])};
    bool reduced[RU_RANK_MAX] = {false}, known = false;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(reduce_rows); i++) {
        if (reduce_rows[i].op == n->op) {
            s.op = reduce_rows[i].red;
            s.after = reduce_rows[i].after;
            known = true;
        }
    }
    if (!known || x->dtype != RU_F32 || !rui_kern_float(s.t) ||
        !rui_reduced_axes(lo, n, 1, x, reduced) || !rui_runs_of(x, reduced, &s.r)) {
        return RU_E_UNSUPPORTED;
    }
    in_lanes(lo, n, reduced, &s);
    return emit_reduce(lo, n, &s);
}

/* Global pools of row-major images: oneDNN's are for blocks of channels. */
ru_status rui_lower_kern_image(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    bool max = n->op == RU_OP_GlobalMaxPool;
    reduce_state s = {.k = ru_kern_best(),
                      .t = rui_kern_dtype(lo, n->in[0]),
                      .op = max ? RU_KERN_RED_MAX : RU_KERN_RED_SUM,
                      .after = max ? AFTER_NONE : AFTER_MEAN};
    bool reduced[RU_RANK_MAX] = {false};
    for (uint32_t d = 2; d < x->rank; d++) {
        reduced[d] = true;
    }
    if (x->dtype != RU_F32 || !rui_inference(lo) || !rui_standing(lo, n->in[0])->plain ||
        !rui_kern_float(s.t) || !rui_runs_of(x, reduced, &s.r)) {
        return RU_E_UNSUPPORTED;
    }
    return emit_reduce(lo, n, &s);
}

/* -- gradient of ReduceMax and ReduceMin ---------------------------------------------------------
 */

/* x is [outer, dim, inner], dim reduced. */
typedef struct peak_state {
    int64_t outer, dim, inner;
} peak_state;

/* Columns c .. c + w of one [dim, inner]: dy goes to every element that equals y, in equal parts.
 */
static void peak_columns(const peak_state *s, const float *dy, const float *x, const float *y,
                         float *dx, int64_t w)
{
    float count[LANES_MAX] = {0}, part[LANES_MAX];
    for (int64_t r = 0; r < s->dim; r++) {
        for (int64_t c = 0; c < w; c++) {
            count[c] += x[r * s->inner + c] == y[c] ? 1.0f : 0.0f;
        }
    }
    for (int64_t c = 0; c < w; c++) {
        part[c] = dy[c] / count[c];
    }
    for (int64_t r = 0; r < s->dim; r++) {
        for (int64_t c = 0; c < w; c++) {
            dx[r * s->inner + c] = x[r * s->inner + c] == y[c] ? part[c] : 0.0f;
        }
    }
}

static void peak_row(const peak_state *s, float dy, const float *x, float y, float *dx)
{
    int64_t count = 0;
    for (int64_t i = 0; i < s->dim; i++) {
        count += x[i] == y;
    }
    float part = dy / (float)count;
    for (int64_t i = 0; i < s->dim; i++) {
        dx[i] = x[i] == y ? part : 0.0f;
    }
}

/* bufs: dy x y dx */
static void peak_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const peak_state *s = state;
    for (int64_t o = begin; o < end; o++) {
        const float *x = (const float *)bufs[1] + o * s->dim * s->inner;
        const float *dy = (const float *)bufs[0] + o * s->inner;
        const float *y = (const float *)bufs[2] + o * s->inner;
        float *dx = (float *)bufs[3] + o * s->dim * s->inner;
        if (s->inner == 1) {
            peak_row(s, dy[0], x, y[0], dx);
            continue;
        }
        for (int64_t c = 0; c < s->inner; c += LANES_MAX) {
            int64_t w = s->inner - c < LANES_MAX ? s->inner - c : LANES_MAX;
            peak_columns(s, dy + c, x + c, y + c, dx + c, w);
        }
    }
}

static ru_status peak_run(void *state, void *const *bufs, const rui_run *run)
{
    const peak_state *s = state;
    rui_kern_for(run, peak_part, s, bufs, s->outer, rui_kern_grain(s->dim * s->inner));
    return RU_OK;
}

/* ReduceMaxGrad(dy, x, y, axes?) -> dx */
ru_status rui_lower_kern_reduce_max_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[1]);
    rui_runs p;
    bool reduced[RU_RANK_MAX] = {false};
    if (x->dtype != RU_F32 || !rui_reduced_axes(lo, n, 3, x, reduced) ||
        !rui_runs_of(x, reduced, &p) || (!p.middle && p.outer > 1 && p.inner > 1)) {
        return RU_E_UNSUPPORTED;
    }
    peak_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = p.middle      ? (peak_state){p.keep, p.outer, p.inner}
         : p.outer > 1 ? (peak_state){1, p.outer, p.keep}
                       : (peak_state){p.keep, p.inner, 1};
    RU_CHECK(s->outer * s->dim * s->inner == ru_type_count(x));
    rui_buf bufs[4];
    for (uint32_t k = 0; k < 3; k++) {
        bufs[k] = rui_in(lo, n->in[k], rui_plain_as(lo, rui_type(lo, n->in[k]), RU_F32));
    }
    bufs[3] = rui_out(lo, n->out[0], rui_plain_as(lo, rui_type(lo, n->out[0]), RU_F32));
    rui_emit(lo, &(rui_step){.kernel = "kern reduce max grad",
                             .fn = peak_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 4});
    return rui_done(lo);
}
