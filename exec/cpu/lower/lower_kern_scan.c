/* CumSum, ArgMax, ArgMin, TopK: lines along one axis; and Sum, Mean, Max, Min of many inputs. */
#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/lower/lower_kern_whole.h"
#include "exec/cpu/lower/lower_spread.h"

typedef struct scan_state {
    const ru_kern *k;
    ru_kern_scan s;
    ru_dtype t;          /* f32, or what arg of numbers.h takes */
    int64_t outer, work; /* work: bytes of one thread */
} scan_state;

static bool scan_of(rui_low *lo, const ru_node *n, int64_t axis, scan_state *s)
{
    const ru_type *x = rui_type(lo, n->in[0]);
    uint32_t a = rui_axis(axis, x->rank);
    bool other = (n->op == RU_OP_ArgMax || n->op == RU_OP_ArgMin) &&
                 (x->dtype == RU_F64 || rui_is_whole(x->dtype));
    if ((x->dtype != RU_F32 && !other) || ru_type_count(x) <= 0 || a >= x->rank ||
        x->dims[a] > INT32_MAX) {
        return false;
    }
    *s = (scan_state){
        .k = ru_kern_best(),
        .t = x->dtype,
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
    if (s->t == RU_F32) {
        s->k->arg(&s->s, bufs[0], bufs[1], begin, end);
    } else {
        ru_kern_numbers_best()->arg(&s->s, s->t, bufs[0], bufs[1], begin, end);
    }
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
    rui_buf x = scan.t == RU_F32 ? in_f32(lo, n->in[0]) : rui_in_plain(lo, n->in[0]);
    rui_buf bufs[2] = {x, rui_out_plain(lo, n->out[0])};
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
    int64_t blocks = (s->s.inner + RU_KERN_TOP_COLS - 1) / RU_KERN_TOP_COLS;
    int64_t cols = s->s.inner < RU_KERN_TOP_COLS ? s->s.inner : RU_KERN_TOP_COLS;
    rui_kern_for_own(run, topk_part, s, bufs, s->outer * blocks, rui_kern_grain(s->s.dim * cols),
                     bufs[3], s->work);
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
    scan.work = (scan.k->topk_work(&scan.s) + 63) / 64 * 64;
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
    ru_kern_map2 map;
    ru_kern_whole whole;
    ru_dtype t;
    float share; /* of the result */
    rui_spread at;
} many_state;

/* z[i] = x[i * sx] (op) y[i * sy] */
static void many_join(const many_state *s, const void *x, int64_t sx, const void *y, int64_t sy,
                      void *z, int64_t n)
{
    if (s->t == RU_F32) {
        s->k->map2(s->map, 0, 0, s->t, x, sx, y, sy, z, n);
    } else {
        s->k->whole2(s->whole, s->t, x, sx, y, sy, z, n);
    }
}

/* In blocks that stay in L1 while the inputs pass. */
static void many_piece(const void *state, void *const *at, const int64_t *step, int64_t n)
{
    const many_state *s = state;
    int64_t bytes = ru_dtype_bytes(s->t);
    for (int64_t c = 0, w; c < n; c += w) {
        w = n - c < MANY_BLOCK ? n - c : MANY_BLOCK;
        char *y = (char *)at[s->at.n] + c * bytes;
        const char *from = (const char *)at[0] + c * step[0] * bytes;
        for (uint32_t k = 1; k < s->at.n; k++) {
            const char *x = (const char *)at[k] + c * step[k] * bytes;
            many_join(s, from, k == 1 ? step[0] : 1, x, step[k], y, w);
            from = y;
        }
        if (s->share != 1.0f) {
            s->k->map2(RU_KERN_MAP2_Mul, 0, 0, RU_F32, y, 1, &s->share, 0, y, w);
        }
    }
}

/* bufs: the operands, y */
static ru_status many_run(void *state, void *const *bufs, const rui_run *run)
{
    const many_state *s = state;
    rui_spread_run(run, &s->at, many_piece, s, bufs);
    return RU_OK;
}

/* The inputs from `from` on, as many as a step takes, joined to what `y` holds of those before.
 * Returns the first that is left. */
static uint32_t emit_many(rui_low *lo, const ru_node *n, const many_state *proto, rui_buf y,
                          uint32_t from)
{
    const ru_type *types[RUI_SPREAD_MAX];
    rui_buf bufs[RUI_SPREAD_MAX + 1] = {y};
    uint32_t operands = from > 0 ? 1 : 0;
    many_state *s = rui_keep(lo, (int64_t)sizeof *s);
    types[0] = rui_type(lo, n->out[0]);
    for (; from < n->n_in && operands < RUI_SPREAD_MAX; from++, operands++) {
        types[operands] = rui_type(lo, n->in[from]);
        bufs[operands] = rui_in(lo, n->in[from], rui_plain_as(lo, types[operands], proto->t));
    }
    bufs[operands] = y;
    if (s == NULL) {
        return n->n_in;
    }
    *s = *proto;
    s->share = n->op == RU_OP_Mean && from == n->n_in ? 1.0f / (float)n->n_in : 1.0f;
    rui_spread_plan(&s->at, rui_type(lo, n->out[0]), types, operands);
    rui_emit(lo, &(rui_step){.kernel = "kern many",
                             .fn = many_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = operands + 1});
    return from;
}

/* Sum, Mean, Max, Min of two inputs or more that broadcast. */
ru_status rui_lower_kern_many(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *y = rui_type(lo, n->out[0]);
    bool ends = n->op == RU_OP_Max || n->op == RU_OP_Min;
    bool fits = n->n_in >= 2 && ru_type_count(y) > 0 &&
                (y->dtype == RU_F32 || (ru_dtype_is_int(y->dtype) && ends));
    for (uint32_t k = 0; fits && k < n->n_in; k++) {
        fits = rui_type(lo, n->in[k])->dtype == y->dtype;
    }
    if (!fits) {
        return RU_E_UNSUPPORTED;
    }
    many_state s = {.k = ru_kern_best(),
                    .map = n->op == RU_OP_Max   ? RU_KERN_MAP2_Max
                           : n->op == RU_OP_Min ? RU_KERN_MAP2_Min
                                                : RU_KERN_MAP2_Add,
                    .whole = n->op == RU_OP_Max ? RU_KERN_WHOLE_MAX : RU_KERN_WHOLE_MIN,
                    .t = y->dtype};
    rui_buf to = rui_out(lo, n->out[0], rui_plain_as(lo, y, s.t));
    for (uint32_t from = 0; from < n->n_in;) {
        from = emit_many(lo, n, &s, to, from);
    }
    if (s.t == RU_F32) {
        rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    }
    return rui_done(lo);
}
