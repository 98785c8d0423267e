/* GatherElements and GatherND: elements or slices from places that a tensor of indices names.
 * Row-major, any dtype that only moves. */
#include "exec/cpu/lower/lower_kern_index.h"

#include <string.h>

rui_index_note *rui_index_notes(void *buf, uint32_t each, const rui_run *run)
{
    rui_index_note *notes = buf;
    for (uint32_t k = 0; k < each * ru_pool_threads(run->pool); k++) {
        notes[k] = (rui_index_note){.bad = -1};
    }
    return notes;
}

ru_status rui_index_judge(const rui_index *s, bool elements, const void *index,
                          const rui_index_note *notes, uint32_t each, const rui_run *run,
                          int64_t *uneven)
{
    *uneven = 0;
    for (uint32_t k = 0; k < ru_pool_threads(run->pool); k++, notes += each) {
        int64_t at = notes->bad;
        if (at >= 0) {
            int64_t limit = s->limit[elements ? (int64_t)s->axis : at % s->depth];
            return RU_FAIL(run->err, RU_E_DATA, "index %lld at position %lld is outside %lld..%lld",
                           (long long)rui_index_at(s, index, at), (long long)at, (long long)-limit,
                           (long long)(limit - 1));
        }
        *uneven += notes->uneven;
    }
    return RU_OK;
}

/* bufs: x index y notes */
static void take_elements(const void *state, void *const *bufs, int64_t begin, int64_t end,
                          void *own)
{
    const rui_index *s = state;
    int64_t limit = s->limit[s->axis], step = s->step[s->axis];
    int64_t along = s->axis + 1 == s->rank ? 0 : 1;
    for (int64_t r = begin; r < end; r++) {
        int64_t base = rui_index_row(s, r), bytes = ru_dtype_bytes(s->it);
        if (limit > 0 &&
            s->k->take(s->bytes, s->it, (const char *)bufs[1] + r * s->cols * bytes, s->cols, limit,
                       step, along, (const char *)bufs[0] + base * s->bytes,
                       (char *)bufs[2] + r * s->cols * s->bytes)) {
            continue;
        }
        for (int64_t j = 0; j < s->cols; j++) {
            int64_t i = r * s->cols + j;
            int64_t v = rui_index_place(rui_index_at(s, bufs[1], i), limit, i, own);
            if (v >= 0) {
                rui_index_move(s->bytes, bufs[2], i, bufs[0], base + v * step + j * along);
            }
        }
    }
}

static void take_slices(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const rui_index *s = state;
    for (int64_t r = begin; r < end; r++) {
        int64_t from = rui_index_tuple(s, bufs[1], r, own);
        if (from < 0) {
            continue;
        }
        if (s->cols == 1) {
            rui_index_move(s->bytes, bufs[2], r, bufs[0], from);
        } else {
            memcpy((char *)bufs[2] + r * s->cols * s->bytes,
                   (const char *)bufs[0] + from * s->bytes, (size_t)(s->cols * s->bytes));
        }
    }
}

static ru_status take(const rui_index *s, bool elements, void *const *bufs, const rui_run *run)
{
    int64_t uneven;
    rui_index_note *notes = rui_index_notes(bufs[3], 1, run);
    rui_kern_for_own(run, elements ? take_elements : take_slices, s, bufs, s->rows,
                     rui_kern_grain(s->cols), notes, (int64_t)sizeof *notes);
    return rui_index_judge(s, elements, bufs[1], notes, 1, run, &uneven);
}

static ru_status gather_elements_run(void *state, void *const *bufs, const rui_run *run)
{
    return take(state, true, bufs, run);
}

static ru_status gather_nd_run(void *state, void *const *bufs, const rui_run *run)
{
    return take(state, false, bufs, run);
}

/* -- lowering ------------------------------------------------------------------------------------
 */

static void steps_of(rui_index *s, const ru_type *x)
{
    int64_t at = 1;
    for (uint32_t d = x->rank; d-- > 0;) {
        s->step[d] = at;
        s->limit[d] = x->dims[d];
        at *= x->dims[d];
    }
    s->total = at;
}

/* Elements of `x` that index [..] names along the attribute's axis. */
static bool plan_elements(const ru_node *n, const ru_type *x, const ru_type *index, rui_index *s)
{
    s->rank = index->rank;
    s->axis = rui_axis(ru_node_int(n, RU_ATTR_axis, 0), x->rank);
    steps_of(s, x);
    if (index->rank == 0 || index->rank != x->rank || s->axis >= x->rank) {
        return false;
    }
    for (uint32_t d = 0; d < index->rank; d++) {
        s->dims[d] = index->dims[d];
    }
    s->cols = index->dims[index->rank - 1];
    s->rows = rui_dims(index, 0, index->rank - 1);
    return true;
}

static bool plan_tuples(const ru_node *n, const ru_type *x, const ru_type *index, rui_index *s)
{
    int64_t batch = ru_node_int(n, RU_ATTR_batch_dims, 0);
    if (index->rank == 0 || batch < 0 || batch >= (int64_t)index->rank ||
        batch + index->dims[index->rank - 1] > (int64_t)x->rank) {
        return false;
    }
    uint32_t b = (uint32_t)batch;
    steps_of(s, x);
    s->depth = index->dims[index->rank - 1];
    s->rows = rui_dims(index, 0, index->rank - 1);
    s->cols = rui_dims(x, b + (uint32_t)s->depth, x->rank);
    s->batch_rows = b > 0 ? rui_dims(index, b, index->rank - 1) : 0;
    s->batch_step = rui_dims(x, b, x->rank);
    for (int64_t k = 0; k < s->depth; k++) {
        s->step[k] = s->step[k + batch];
        s->limit[k] = s->limit[k + batch];
    }
    return s->depth > 0;
}

void rui_index_plan_rows(const ru_type *x, const ru_type *index, rui_index *s)
{
    *s = (rui_index){.t = x->dtype, .it = index->dtype, .bytes = ru_dtype_bytes(x->dtype)};
    steps_of(s, x);
    s->depth = 1;
    s->rows = ru_type_count(index);
    s->cols = rui_dims(x, 1, x->rank);
}

bool rui_index_plan(rui_low *lo, const ru_node *n, const ru_type *x, bool elements, rui_index *s)
{
    const ru_type *index = rui_type(lo, n->in[1]);
    *s = (rui_index){
        .k = ru_kern_best(), .t = x->dtype, .it = index->dtype, .bytes = ru_dtype_bytes(x->dtype)};
    bool moves = s->bytes == 1 || s->bytes == 2 || s->bytes == 4 || s->bytes == 8;
    return moves && (s->it == RU_I64 || s->it == RU_I32) &&
           (elements ? plan_elements(n, x, index, s) : plan_tuples(n, x, index, s));
}

ru_status rui_lower_kern_gather_at(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    bool elements = n->op == RU_OP_GatherElements;
    rui_index plan;
    if (!elements && rui_scatter_reads_past(lo, n)) {
        return RU_OK;
    }
    if (!rui_index_plan(lo, n, rui_type(lo, n->in[0]), elements, &plan)) {
        return RU_E_UNSUPPORTED;
    }
    rui_index *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = plan;
    rui_buf bufs[4] = {rui_in_plain(lo, n->in[0]), rui_in_plain(lo, n->in[1]),
                       rui_out_plain(lo, n->out[0]),
                       rui_scratch(lo, rui_threads(lo) * (int64_t)sizeof(rui_index_note))};
    rui_emit(lo, &(rui_step){.kernel = elements ? "kern gather elements" : "kern gather nd",
                             .fn = elements ? gather_elements_run : gather_nd_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 4});
    return rui_done(lo);
}
