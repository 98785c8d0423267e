/* GatherElements, GatherND, ScatterElements, ScatterND and the gradients of the gathers: elements
 * or slices at places that a tensor of indices names. Row-major, any dtype that only moves; sums in
 * f32 and integers.
 *
 * A scatter may meet one place twice. Who meets it first is the order of the indices, whatever the
 * threads: each thread owns columns of the result, or rows that no other one writes. */
#include <string.h>

#include "exec/lower/lower_kern.h"

typedef enum put { PUT, PUT_ADD, PUT_MUL, PUT_MAX, PUT_MIN } put;

typedef struct index_state {
    const ru_kern *k;
    ru_dtype t, it;
    int64_t bytes;
    put how;
    bool zero; /* a gradient: the result begins as zeros */
    /* elements: index [rows, cols] of `x` along `axis`; ND: rows of `depth` numbers, slices of cols
     */
    uint32_t rank, axis;
    int64_t dims[RU_RANK_MAX]; /* of the indices (elements) */
    int64_t step[RU_RANK_MAX]; /* of the data, in elements */
    int64_t limit[RU_RANK_MAX];
    int64_t rows, cols, depth, batch_rows, batch_step, total;
} index_state;

static int64_t index_at(const index_state *s, const void *index, int64_t i)
{
    return s->it == RU_I64 ? ((const int64_t *)index)[i] : ((const int32_t *)index)[i];
}

static ru_status refuse(const index_state *s, int64_t v, int64_t at, int64_t limit,
                        const rui_run *run)
{
    (void)s;
    return RU_FAIL(run->err, RU_E_DATA, "index %lld at position %lld is outside %lld..%lld",
                   (long long)v, (long long)at, (long long)-limit, (long long)(limit - 1));
}

static ru_status check_elements(const index_state *s, const void *index, const rui_run *run)
{
    int64_t limit = s->limit[s->axis];
    for (int64_t i = 0; i < s->rows * s->cols; i++) {
        int64_t v = index_at(s, index, i);
        if (v < -limit || v >= limit) {
            return refuse(s, v, i, limit, run);
        }
    }
    return RU_OK;
}

static ru_status check_tuples(const index_state *s, const void *index, const rui_run *run)
{
    for (int64_t i = 0; i < s->rows * s->depth; i++) {
        int64_t v = index_at(s, index, i), limit = s->limit[i % s->depth];
        if (v < -limit || v >= limit) {
            return refuse(s, v, i, limit, run);
        }
    }
    return RU_OK;
}

/* Where row r of the indices begins in the data, its place on the axis left out. */
static int64_t row_base(const index_state *s, int64_t r)
{
    int64_t at = 0;
    for (uint32_t d = s->rank - 1; d-- > 0;) {
        at += d == s->axis ? 0 : r % s->dims[d] * s->step[d];
        r /= s->dims[d];
    }
    return at;
}

static int64_t tuple_base(const index_state *s, const void *index, int64_t r)
{
    int64_t at = s->batch_rows > 0 ? r / s->batch_rows * s->batch_step : 0;
    for (int64_t k = 0; k < s->depth; k++) {
        int64_t v = index_at(s, index, r * s->depth + k);
        at += (v < 0 ? v + s->limit[k] : v) * s->step[k];
    }
    return at;
}

/* -- gathers -------------------------------------------------------------------------------------
 */

static void move_one(int64_t bytes, void *y, int64_t to, const void *x, int64_t from)
{
    switch (bytes) {
    case 1:
        ((uint8_t *)y)[to] = ((const uint8_t *)x)[from];
        break;
    case 2:
        ((uint16_t *)y)[to] = ((const uint16_t *)x)[from];
        break;
    case 4:
        ((uint32_t *)y)[to] = ((const uint32_t *)x)[from];
        break;
    default:
        ((uint64_t *)y)[to] = ((const uint64_t *)x)[from];
        break;
    }
}

/* bufs: x index y */
static void take_elements(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const index_state *s = state;
    int64_t limit = s->limit[s->axis], step = s->step[s->axis];
    int64_t along = s->axis + 1 == s->rank ? 0 : 1;
    for (int64_t r = begin; r < end; r++) {
        int64_t base = row_base(s, r);
        for (int64_t j = 0; j < s->cols; j++) {
            int64_t i = r * s->cols + j, v = index_at(s, bufs[1], i);
            v += v < 0 ? limit : 0;
            move_one(s->bytes, bufs[2], i, bufs[0], base + v * step + j * along);
        }
    }
}

static void take_slices(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const index_state *s = state;
    for (int64_t r = begin; r < end; r++) {
        int64_t from = tuple_base(s, bufs[1], r);
        if (s->cols == 1) {
            move_one(s->bytes, bufs[2], r, bufs[0], from);
        } else {
            memcpy((char *)bufs[2] + r * s->cols * s->bytes,
                   (const char *)bufs[0] + from * s->bytes, (size_t)(s->cols * s->bytes));
        }
    }
}

static ru_status gather_elements_run(void *state, void *const *bufs, const rui_run *run)
{
    const index_state *s = state;
    RU_TRY(check_elements(s, bufs[1], run));
    rui_kern_for(run, take_elements, s, bufs, s->rows, rui_kern_grain(s->cols));
    return RU_OK;
}

static ru_status gather_nd_run(void *state, void *const *bufs, const rui_run *run)
{
    const index_state *s = state;
    RU_TRY(check_tuples(s, bufs[1], run));
    rui_kern_for(run, take_slices, s, bufs, s->rows, rui_kern_grain(s->cols));
    return RU_OK;
}

/* -- scatters ------------------------------------------------------------------------------------
 */

/* y[to] = y[to] (how) x[from]; a larger or smaller NaN is none, as in the reference. */
#define PUT_NUMBER(type, add)                                  \
    do {                                                       \
        type *a = (type *)y + to, b = ((const type *)x)[from]; \
        if (how == PUT_ADD) {                                  \
            *a = (type)((add)*a + (add)b);                     \
        } else if (how == PUT_MUL) {                           \
            *a = (type)((add)*a * (add)b);                     \
        } else if (how == PUT_MAX) {                           \
            *a = b > *a ? b : *a;                              \
        } else {                                               \
            *a = b < *a ? b : *a;                              \
        }                                                      \
    } while (0)

static void put_one(const index_state *s, put how, void *y, int64_t to, const void *x, int64_t from)
{
    if (how == PUT) {
        move_one(s->bytes, y, to, x, from);
    } else if (s->t == RU_F32) {
        PUT_NUMBER(float, float);
    } else if (s->t == RU_I64) {
        PUT_NUMBER(int64_t, uint64_t);
    } else {
        PUT_NUMBER(int32_t, uint32_t);
    }
}

static void put_extreme(bool most, float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t j = 0; most && j < n; j++) {
        y[j] = x[j] > y[j] ? x[j] : y[j];
    }
    for (int64_t j = 0; !most && j < n; j++) {
        y[j] = x[j] < y[j] ? x[j] : y[j];
    }
}

/* n neighbours, each into one of n neighbours. */
static void put_run(const index_state *s, void *y, int64_t to, const void *x, int64_t from,
                    int64_t n)
{
    if (s->how == PUT) {
        memcpy((char *)y + to * s->bytes, (const char *)x + from * s->bytes,
               (size_t)(n * s->bytes));
    } else if (s->how == PUT_ADD && s->t == RU_F32) {
        s->k->map2(RU_KERN_MAP2_Add, 0, 0, RU_F32, (float *)y + to, 1, (const float *)x + from, 1,
                   (float *)y + to, n);
    } else if (s->t == RU_F32 && s->how != PUT_MUL) {
        put_extreme(s->how == PUT_MAX, (float *)y + to, (const float *)x + from, n);
    } else {
        for (int64_t j = 0; j < n; j++) {
            put_one(s, s->how, y, to + j, x, from + j);
        }
    }
}

/* Are indices i .. i + n all the same? Then a row goes to a row. */
static bool alike(const index_state *s, const void *index, int64_t i, int64_t n)
{
    if (s->it == RU_I64) {
        const int64_t *at = (const int64_t *)index + i;
        return memcmp(at, at + 1, (size_t)(n - 1) * sizeof *at) == 0;
    }
    const int32_t *at = (const int32_t *)index + i;
    return memcmp(at, at + 1, (size_t)(n - 1) * sizeof *at) == 0;
}

/* bufs: x index updates y. Columns [begin, end) of all rows, or all columns of those rows. */
static void put_elements(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const index_state *s = state;
    bool last = s->axis + 1 == s->rank;
    int64_t limit = s->limit[s->axis], step = s->step[s->axis];
    int64_t r0 = last ? begin : 0, r1 = last ? end : s->rows;
    int64_t j0 = last ? 0 : begin, j1 = last ? s->cols : end;
    for (int64_t r = r0; r < r1; r++) {
        int64_t base = row_base(s, r), first = r * s->cols + j0;
        if (!last && alike(s, bufs[1], first, j1 - j0)) {
            int64_t v = index_at(s, bufs[1], first);
            v += v < 0 ? limit : 0;
            put_run(s, bufs[3], base + v * step + j0, bufs[2], first, j1 - j0);
            continue;
        }
        for (int64_t j = j0; j < j1; j++) {
            int64_t i = r * s->cols + j, v = index_at(s, bufs[1], i);
            v += v < 0 ? limit : 0;
            put_one(s, s->how, bufs[3], base + v * step + (last ? 0 : j), bufs[2], i);
        }
    }
}

static void put_slices(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const index_state *s = state;
    for (int64_t r = 0; r < s->rows; r++) {
        int64_t to = tuple_base(s, bufs[1], r);
        put_run(s, bufs[3], to + begin, bufs[2], r * s->cols + begin, end - begin);
    }
}

static void begin_result(const index_state *s, void *const *bufs)
{
    if (s->zero) {
        memset(bufs[3], 0, (size_t)(s->total * s->bytes));
    } else if (bufs[0] != bufs[3]) {
        memcpy(bufs[3], bufs[0], (size_t)(s->total * s->bytes));
    }
}

static ru_status scatter_elements_run(void *state, void *const *bufs, const rui_run *run)
{
    const index_state *s = state;
    RU_TRY(check_elements(s, bufs[1], run));
    begin_result(s, bufs);
    bool last = s->axis + 1 == s->rank;
    rui_kern_for(run, put_elements, s, bufs, last ? s->rows : s->cols,
                 rui_kern_grain(last ? s->cols : s->rows));
    return RU_OK;
}

static ru_status scatter_nd_run(void *state, void *const *bufs, const rui_run *run)
{
    const index_state *s = state;
    RU_TRY(check_tuples(s, bufs[1], run));
    begin_result(s, bufs);
    rui_kern_for(run, put_slices, s, bufs, s->cols, rui_kern_grain(s->rows));
    return RU_OK;
}

/* -- lowering ------------------------------------------------------------------------------------
 */

static bool how_of(const ru_node *n, put *how)
{
    static const char *const words[] = {"none", "add", "mul", "max", "min"};
    const char *word = ru_node_str(n, RU_ATTR_reduction, "none");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(words); k++) {
        if (strcmp(word, words[k]) == 0) {
            *how = (put)k;
            return true;
        }
    }
    return false;
}

static bool takes(const index_state *s)
{
    bool number = s->t == RU_F32 || s->t == RU_I64 || s->t == RU_I32;
    bool bytes = s->bytes == 1 || s->bytes == 2 || s->bytes == 4 || s->bytes == 8;
    return bytes && (s->it == RU_I64 || s->it == RU_I32) && (s->how == PUT || number);
}

static void steps_of(index_state *s, const ru_type *x)
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
static bool plan_elements(const ru_node *n, const ru_type *x, const ru_type *index, index_state *s)
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

static bool plan_tuples(const ru_node *n, const ru_type *x, const ru_type *index, index_state *s)
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

static index_state *state_of(rui_low *lo, const ru_node *n, const ru_type *x, bool elements,
                             put how)
{
    const ru_type *index = rui_type(lo, n->in[1]);
    index_state s = {.k = ru_kern_best(),
                     .t = x->dtype,
                     .it = index->dtype,
                     .bytes = ru_dtype_bytes(x->dtype),
                     .how = how};
    bool fits =
        takes(&s) && (elements ? plan_elements(n, x, index, &s) : plan_tuples(n, x, index, &s));
    index_state *kept = fits ? rui_keep(lo, (int64_t)sizeof *kept) : NULL;
    if (kept != NULL) {
        *kept = s;
    }
    return kept;
}

static ru_status gave_up(rui_low *lo)
{
    return rui_done(lo) == RU_OK ? RU_E_UNSUPPORTED : rui_done(lo);
}

ru_status rui_lower_kern_gather_at(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    bool elements = n->op == RU_OP_GatherElements;
    index_state *s = state_of(lo, n, rui_type(lo, n->in[0]), elements, PUT);
    if (s == NULL) {
        return gave_up(lo);
    }
    rui_buf bufs[3] = {rui_in_plain(lo, n->in[0]), rui_in_plain(lo, n->in[1]),
                       rui_out_plain(lo, n->out[0])};
    rui_emit(lo, &(rui_step){.kernel = elements ? "kern gather elements" : "kern gather nd",
                             .fn = elements ? gather_elements_run : gather_nd_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 3});
    return rui_done(lo);
}

/* Scatter(x, index, updates) -> y, and GatherGrad(dy, index, x_like) -> dx */
ru_status rui_lower_kern_scatter(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    bool elements = n->op == RU_OP_ScatterElements || n->op == RU_OP_GatherElementsGrad;
    bool grad = n->op == RU_OP_GatherElementsGrad || n->op == RU_OP_GatherNDGrad;
    put how = PUT_ADD;
    const ru_type *y = rui_type(lo, n->out[0]);
    if ((!grad && !how_of(n, &how)) || (grad && y->dtype != RU_F32)) {
        return RU_E_UNSUPPORTED;
    }
    index_state *s = state_of(lo, n, y, elements, how);
    if (s == NULL) {
        return gave_up(lo);
    }
    s->zero = grad;
    const rui_layout *l = rui_plain(lo, y);
    rui_buf x = grad ? (rui_buf){0} : rui_in_plain(lo, n->in[0]);
    rui_buf index = rui_in_plain(lo, n->in[1]);
    rui_buf updates = rui_in_plain(lo, n->in[grad ? 0 : 2]);
    rui_buf bufs[4] = {x, index, updates,
                       grad ? rui_out(lo, n->out[0], l) : rui_out_over(lo, n->out[0], l, x)};
    rui_emit(lo, &(rui_step){.kernel = elements ? "kern scatter elements" : "kern scatter nd",
                             .fn = elements ? scatter_elements_run : scatter_nd_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 4});
    return rui_done(lo);
}
