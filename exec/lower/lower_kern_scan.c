/* CumSum, ArgMax, ArgMin, TopK: lines along one axis; and Sum, Mean, Max, Min of many inputs. */
#include "exec/lower/lower_kern.h"

typedef struct scan_state {
    const ru_kern *k;
    ru_kern_scan s;
    int64_t outer, work; /* work: bytes of one thread */
} scan_state;

static bool scan_of(rui_low *lo, const ru_node *n, int64_t axis, scan_state *s)
{
    const ru_type *x = rui_type(lo, n->in[0]);
    uint32_t a = rui_axis(axis, x->rank);
    if (x->dtype != RU_F32 || ru_type_count(x) <= 0 || a >= x->rank || x->dims[a] > INT32_MAX) {
        return false;
    }
    *s = (scan_state){
        .k = ru_kern_best(),
        .s = {.dim = x->dims[a],
              .inner = rui_dims(x, a + 1, x->rank),
              .exclusive = ru_node_int(n, RU_ATTR_exclusive, 0) != 0,
              .reverse = ru_node_int(n, RU_ATTR_reverse, 0) != 0,
              .last = ru_node_int(n, RU_ATTR_select_last_index, 0) != 0,
              .smallest = n->op == RU_OP_ArgMin ||
                          (n->op == RU_OP_TopK && ru_node_int(n, RU_ATTR_largest, 1) == 0)},
        .outer = rui_dims(x, 0, a)};
    return true;
}

static scan_state *keep_scan(rui_low *lo, const scan_state *s)
{
    scan_state *kept = rui_keep(lo, (int64_t)sizeof *kept);
    if (kept != NULL) {
        *kept = *s;
    }
    return kept;
}

static rui_buf in_f32(rui_low *lo, ru_value_id v)
{
    return rui_in(lo, v, rui_plain_as(lo, rui_type(lo, v), RU_F32));
}

static void cumsum_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const scan_state *s = state;
    s->k->cumsum(&s->s, bufs[0], bufs[1], begin, end);
}

static ru_status cumsum_run(void *state, void *const *bufs, const rui_run *run)
{
    const scan_state *s = state;
    rui_kern_for(run, cumsum_part, s, bufs, s->outer, rui_kern_grain(s->s.dim * s->s.inner));
    return RU_OK;
}

ru_status rui_lower_kern_cumsum(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_value *axis = &rui_graph(lo)->values[n->in[1].v];
    scan_state scan, *s;
    if (axis->kind != RU_VALUE_CONST || axis->data == NULL ||
        (axis->type.dtype != RU_I64 && axis->type.dtype != RU_I32)) {
        return RU_E_UNSUPPORTED;
    }
    int64_t a =
        axis->type.dtype == RU_I64 ? *(const int64_t *)axis->data : *(const int32_t *)axis->data;
    if (!scan_of(lo, n, a, &scan)) {
        return RU_E_UNSUPPORTED;
    }
    s = keep_scan(lo, &scan);
    rui_buf x = in_f32(lo, n->in[0]);
    rui_buf bufs[2] = {
        x, rui_out_over(lo, n->out[0], rui_plain_as(lo, rui_type(lo, n->out[0]), RU_F32), x)};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern cumsum", .fn = cumsum_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}

static void arg_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const scan_state *s = state;
    s->k->arg(&s->s, bufs[0], bufs[1], begin, end);
}

static ru_status arg_run(void *state, void *const *bufs, const rui_run *run)
{
    const scan_state *s = state;
    rui_kern_for(run, arg_part, s, bufs, s->outer, rui_kern_grain(s->s.dim * s->s.inner));
    return RU_OK;
}

ru_status rui_lower_kern_arg(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    scan_state scan, *s;
    if (!scan_of(lo, n, ru_node_int(n, RU_ATTR_axis, 0), &scan)) {
        return RU_E_UNSUPPORTED;
    }
    s = keep_scan(lo, &scan);
    rui_buf bufs[2] = {in_f32(lo, n->in[0]), rui_out_plain(lo, n->out[0])};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern arg max", .fn = arg_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}

/* bufs: x values index work */
static void topk_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *work)
{
    const scan_state *s = state;
    s->k->topk(&s->s, bufs[0], bufs[1], bufs[2], work, begin, end);
}

static ru_status topk_run(void *state, void *const *bufs, const rui_run *run)
{
    const scan_state *s = state;
    rui_kern_for_own(run, topk_part, s, bufs, s->outer, 1, bufs[3], s->work);
    return RU_OK;
}

ru_status rui_lower_kern_topk(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    scan_state scan, *s;
    int64_t axis = ru_node_int(n, RU_ATTR_axis, -1);
    uint32_t which = ru_node_has_out(n, 0) ? 0 : 1;
    if (!scan_of(lo, n, axis, &scan)) {
        return RU_E_UNSUPPORTED;
    }
    const ru_type *y = rui_type(lo, n->out[which]);
    scan.s.keep = y->dims[rui_axis(axis, y->rank)];
    if (scan.s.keep <= 0 || scan.s.keep > scan.s.dim) {
        return RU_E_UNSUPPORTED;
    }
    scan.work = (scan.s.keep * 8 + 63) / 64 * 64; /* a value and its place, each of four bytes */
    s = keep_scan(lo, &scan);
    rui_buf bufs[4] = {
        in_f32(lo, n->in[0]),
        ru_node_has_out(n, 0)
            ? rui_out(lo, n->out[0], rui_plain_as(lo, rui_type(lo, n->out[0]), RU_F32))
            : (rui_buf){0},
        ru_node_has_out(n, 1) ? rui_out_plain(lo, n->out[1]) : (rui_buf){0},
        rui_scratch(lo, scan.work * (int64_t)rui_threads(lo))};
    rui_emit(
        lo,
        &(rui_step){.kernel = "kern top k", .fn = topk_run, .state = s, .bufs = bufs, .n_bufs = 4});
    return rui_done(lo);
}

/* -- many inputs ---------------------------------------------------------------------------------
 */

enum { MANY_BLOCK = 2048 };

typedef struct many_state {
    const ru_kern *k;
    ru_kern_map2 op;
    uint32_t n;
    int64_t count;
    bool mean;
    const int64_t *step; /* [n] 1, or 0: one element for all */
} many_state;

/* bufs: y x0 x1 ...; a block of y stays in L1 while the inputs pass. */
static void many_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const many_state *s = state;
    float share = 1.0f / (float)s->n;
    for (int64_t i = begin; i < end; i += MANY_BLOCK) {
        int64_t w = end - i < MANY_BLOCK ? end - i : MANY_BLOCK;
        float *y = (float *)bufs[0] + i;
        const float *from = (const float *)bufs[1] + i * s->step[0];
        for (uint32_t k = 1; k < s->n; k++) {
            s->k->map2(s->op, 0, 0, RU_F32, from, k == 1 ? s->step[0] : 1,
                       (const float *)bufs[1 + k] + i * s->step[k], s->step[k], y, w);
            from = y;
        }
        if (s->mean) {
            s->k->map2(RU_KERN_MAP2_Mul, 0, 0, RU_F32, from, 1, &share, 0, y, w);
        }
    }
}

static ru_status many_run(void *state, void *const *bufs, const rui_run *run)
{
    const many_state *s = state;
    rui_kern_for(run, many_part, s, bufs, s->count, MANY_BLOCK);
    return RU_OK;
}

static bool same_shape(const ru_type *x, const ru_type *y)
{
    bool same = x->rank == y->rank;
    for (uint32_t d = 0; same && d < y->rank; d++) {
        same = x->dims[d] == y->dims[d];
    }
    return same;
}

/* Sum, Mean, Max, Min of inputs that have the output's shape or one element. */
ru_status rui_lower_kern_many(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *y = rui_type(lo, n->out[0]);
    bool fits = y->dtype == RU_F32 && n->n_in >= 2 && ru_type_count(y) > 0;
    for (uint32_t k = 0; fits && k < n->n_in; k++) {
        const ru_type *x = rui_type(lo, n->in[k]);
        fits = x->dtype == RU_F32 && (same_shape(x, y) || ru_type_count(x) == 1);
    }
    if (!fits) {
        return RU_E_UNSUPPORTED;
    }
    many_state *s = rui_keep(lo, (int64_t)sizeof *s);
    rui_buf *bufs = rui_keep(lo, (int64_t)(n->n_in + 1) * (int64_t)sizeof *bufs);
    int64_t *step = rui_keep(lo, (int64_t)n->n_in * (int64_t)sizeof *step);
    if (s == NULL || bufs == NULL || step == NULL) {
        return rui_done(lo);
    }
    *s = (many_state){.k = ru_kern_best(),
                      .op = n->op == RU_OP_Max   ? RU_KERN_MAP2_Max
                            : n->op == RU_OP_Min ? RU_KERN_MAP2_Min
                                                 : RU_KERN_MAP2_Add,
                      .n = n->n_in,
                      .count = ru_type_count(y),
                      .mean = n->op == RU_OP_Mean,
                      .step = step};
    for (uint32_t k = 0; k < n->n_in; k++) {
        bufs[1 + k] = in_f32(lo, n->in[k]);
        step[k] = ru_type_count(rui_type(lo, n->in[k])) > 1;
    }
    bufs[0] = rui_out(lo, n->out[0], rui_plain_as(lo, y, RU_F32));
    rui_emit(lo, &(rui_step){.kernel = "kern many",
                             .fn = many_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = n->n_in + 1});
    rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    return rui_done(lo);
}
