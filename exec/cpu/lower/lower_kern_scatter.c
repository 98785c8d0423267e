/* ScatterElements, ScatterND and the gradients of GatherElements and GatherND: a tensor with
 * elements or slices put, or combined with what is there, at places that a tensor of indices names.
 * Row-major, any dtype that only moves; sums in f32 and integers.
 *
 * A scatter may meet one place twice. Who meets it first is the order of the indices, whatever the
 * threads: each thread owns columns of the result, or places that no other one writes, and goes
 * through all indices in order. A first pass, split by rows, checks the indices and notes where
 * each row of updates goes.
 *
 * Updates that a gather has just taken (sums over the edges of a graph) are read where the gather
 * would take them, so that they are never written. */
#include <string.h>

#include "exec/cpu/lower/lower_kern_index.h"

enum { LINE_BYTES = 64 };

typedef struct scatter_state {
    rui_index at, pick; /* pick: which slices of B_UPDATES are the updates, when `picks` */
    const ru_kern *k;
    ru_kern_put how;
    bool zero;     /* a gradient: the result begins as zeros */
    bool elements; /* else tuples */
    bool picks;
    bool last;      /* elements along the last axis: a row of updates goes to no row */
    bool all_lines; /* ... and each line of the result has a row of them */
    int64_t
        unit; /* elements of the result that one row of updates may reach, at a multiple of it */
} scatter_state;

enum { B_X, B_INDEX, B_UPDATES, B_Y, B_NOTES, B_TO, B_PICK, B_FROM, N_BUFS };
enum { NOTES = 2 }; /* of a thread: of the indices, of those that pick */

/* -- where rows go -------------------------------------------------------------------------------
 */

/* Are indices i .. i + n all the same? Then a row goes to a row. */
static bool alike(const rui_index *s, const void *index, int64_t i, int64_t n)
{
    if (s->it == RU_I64) {
        const int64_t *at = (const int64_t *)index + i;
        return memcmp(at, at + 1, (size_t)(n - 1) * sizeof *at) == 0;
    }
    const int32_t *at = (const int32_t *)index + i;
    return memcmp(at, at + 1, (size_t)(n - 1) * sizeof *at) == 0;
}

/* Where row r of the updates goes as a whole, or -1. */
static int64_t row_goes_to(const scatter_state *s, const void *index, int64_t r,
                           rui_index_note *note)
{
    const rui_index *at = &s->at;
    int64_t first = r * at->cols, limit = at->limit[at->axis];
    if (!s->last && alike(at, index, first, at->cols)) {
        int64_t v = rui_index_place(rui_index_at(at, index, first), limit, first, note);
        return v < 0 ? -1 : rui_index_row(at, r) + v * at->step[at->axis];
    }
    for (int64_t i = first; i < first + at->cols; i++) {
        (void)rui_index_place(rui_index_at(at, index, i), limit, i, note);
    }
    note->uneven++;
    return -1;
}

static void find_rows(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const scatter_state *s = state;
    int64_t *to = bufs[B_TO];
    for (int64_t r = begin; r < end; r++) {
        to[r] = s->elements ? row_goes_to(s, bufs[B_INDEX], r, own)
                            : rui_index_tuple(&s->at, bufs[B_INDEX], r, own);
    }
    int64_t *from = bufs[B_FROM];
    for (int64_t r = begin; s->picks && r < end; r++) {
        from[r] = rui_index_tuple(&s->pick, bufs[B_PICK], r, (rui_index_note *)own + 1);
    }
}

/* -- combining -----------------------------------------------------------------------------------
 */

/* y[to] = y[to] (how) x[from]; a larger or smaller NaN is none, as in the reference. */
#define PUT_NUMBER(type, add)                                  \
    do {                                                       \
        type *a = (type *)y + to, b = ((const type *)x)[from]; \
        if (how == RU_KERN_PUT_ADD) {                          \
            *a = (type)((add)*a + (add)b);                     \
        } else if (how == RU_KERN_PUT_MUL) {                   \
            *a = (type)((add)*a * (add)b);                     \
        } else if (how == RU_KERN_PUT_MAX) {                   \
            *a = b > *a ? b : *a;                              \
        } else {                                               \
            *a = b < *a ? b : *a;                              \
        }                                                      \
    } while (0)

static inline void put_one(ru_kern_put how, ru_dtype t, int64_t bytes, void *y, int64_t to,
                           const void *x, int64_t from)
{
    if (how == RU_KERN_PUT) {
        rui_index_move(bytes, y, to, x, from);
    } else if (t == RU_F32) {
        PUT_NUMBER(float, float);
    } else if (t == RU_I64) {
        PUT_NUMBER(int64_t, uint64_t);
    } else {
        PUT_NUMBER(int32_t, uint32_t);
    }
}

/* What a thread puts: columns [j0, j1) of the rows, as far as they go to [lo, hi). */
typedef struct put_part {
    int64_t j0, j1, lo, hi;
} put_part;

static void put_row(const scatter_state *s, void *const *bufs, int64_t r, int64_t to,
                    const put_part *p)
{
    int64_t from = r * s->at.cols, bytes = s->at.bytes;
    if (to < p->lo || to >= p->hi) {
        return;
    }
    if (s->how == RU_KERN_PUT && p->j1 - p->j0 > 1) {
        memcpy((char *)bufs[B_Y] + (to + p->j0) * bytes,
               (const char *)bufs[B_UPDATES] + (from + p->j0) * bytes,
               (size_t)((p->j1 - p->j0) * bytes));
        return;
    }
    for (int64_t j = p->j0; j < p->j1; j++) {
        put_one(s->how, s->at.t, bytes, bufs[B_Y], to + j, bufs[B_UPDATES], from + j);
    }
}

/* A row whose elements go to places of their own. `how` and `t` are known to the compiler where it
 * matters: sums. */
static inline void put_apart_as(ru_kern_put how, ru_dtype t, const scatter_state *s,
                                void *const *bufs, int64_t r, const put_part *p)
{
    const rui_index *at = &s->at;
    int64_t base = rui_index_row(at, r), limit = at->limit[at->axis], along = s->last ? 0 : 1;
    for (int64_t j = p->j0; j < p->j1; j++) {
        int64_t i = r * at->cols + j, v = rui_index_at(at, bufs[B_INDEX], i);
        int64_t to = base + (v < 0 ? v + limit : v) * at->step[at->axis] + j * along;
        if (to >= p->lo && to < p->hi) {
            put_one(how, t, at->bytes, bufs[B_Y], to, bufs[B_UPDATES], i);
        }
    }
}

static void put_apart(const scatter_state *s, void *const *bufs, int64_t r, const put_part *p)
{
    if (s->how == RU_KERN_PUT_ADD && s->at.t == RU_F32) {
        put_apart_as(RU_KERN_PUT_ADD, RU_F32, s, bufs, r, p);
    } else if (s->how == RU_KERN_PUT_ADD && s->at.t == RU_I64) {
        put_apart_as(RU_KERN_PUT_ADD, RU_I64, s, bufs, r, p);
    } else {
        put_apart_as(s->how, s->at.t, s, bufs, r, p);
    }
}

typedef struct put_job {
    const scatter_state *s;
    bool apart; /* some row goes to no row */
} put_job;

static void put_rows(const put_job *job, void *const *bufs, const put_part *p)
{
    const scatter_state *s = job->s;
    const int64_t *to = bufs[B_TO];
    if (!job->apart && s->at.t == RU_F32 && s->how != RU_KERN_PUT) {
        s->k->put_rows(s->how, to, bufs[B_FROM], s->at.rows, bufs[B_UPDATES], s->at.cols, p->j0,
                       p->j1, p->lo, p->hi, bufs[B_Y]);
        return;
    }
    RU_CHECK(!s->picks);
    for (int64_t r = 0; r < s->at.rows; r++) {
        if (to[r] >= 0) {
            put_row(s, bufs, r, to[r], p);
        } else {
            put_apart(s, bufs, r, p);
        }
    }
}

/* Elements [begin, end) of the result before anything is put. */
static void begin_part(const scatter_state *s, void *const *bufs, int64_t begin, int64_t end)
{
    char *y = (char *)bufs[B_Y] + begin * s->at.bytes;
    size_t bytes = (size_t)((end - begin) * s->at.bytes);
    if (s->zero) {
        memset(y, 0, bytes);
    } else if (bufs[B_X] != bufs[B_Y]) {
        memcpy(y, (const char *)bufs[B_X] + begin * s->at.bytes, bytes);
    }
}

static void put_columns(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const put_job *job = state;
    const scatter_state *s = job->s;
    int64_t to = end == s->at.cols ? s->unit : end; /* rows of the result may be longer */
    for (int64_t i = 0; (s->zero || bufs[B_X] != bufs[B_Y]) && i < s->at.total; i += s->unit) {
        begin_part(s, bufs, i + begin, i + to);
    }
    put_rows(job, bufs, &(put_part){.j0 = begin, .j1 = end, .hi = s->at.total});
}

static void put_places(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const put_job *job = state;
    int64_t unit = job->s->unit;
    begin_part(job->s, bufs, begin * unit, end * unit);
    put_rows(job, bufs, &(put_part){.j1 = job->s->at.cols, .lo = begin * unit, .hi = end * unit});
}

/* Along the last axis rows of the indices meet different rows of the result. */
static void put_lines(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const put_job *job = state;
    for (int64_t r = begin; r < end; r++) {
        put_apart(job->s, bufs, r, &(put_part){.j1 = job->s->at.cols, .hi = job->s->at.total});
    }
}

/* The elements of one line by their places in it: y[place] = x[j], or the sum with it. */
#define PUT_LINE_OF(type, index_type, put)                                   \
    do {                                                                     \
        const index_type *at = (const index_type *)bufs[B_INDEX] + from;     \
        const type *x = (const type *)bufs[B_UPDATES] + from;                \
        type *y = (type *)bufs[B_Y] + base;                                  \
        for (int64_t j = 0; j < cols; j++) {                                 \
            int64_t v = at[j] < 0 ? (int64_t)at[j] + limit : (int64_t)at[j]; \
            if ((uint64_t)v < (uint64_t)limit) {                             \
                y[v] put x[j];                                               \
            } else {                                                         \
                note->bad = note->bad < 0 ? from + j : note->bad;            \
            }                                                                \
        }                                                                    \
    } while (0)
#define PUT_LINE(type, index_type) PUT_LINE_OF(type, index_type, =)
#define ADD_LINE(type)                      \
    do {                                    \
        if (wide) {                         \
            PUT_LINE_OF(type, int64_t, +=); \
        } else {                            \
            PUT_LINE_OF(type, int32_t, +=); \
        }                                   \
    } while (0)

static void put_line(const scatter_state *s, void *const *bufs, int64_t r, rui_index_note *note)
{
    const rui_index *k = &s->at;
    int64_t cols = k->cols, from = r * cols, limit = k->limit[k->axis], base = rui_index_row(k, r);
    bool wide = k->it == RU_I64;
    if (s->how == RU_KERN_PUT_ADD && k->t == RU_F32) {
        ADD_LINE(float);
    } else if (s->how == RU_KERN_PUT_ADD && k->bytes == 8) {
        ADD_LINE(uint64_t);
    } else if (s->how == RU_KERN_PUT_ADD) {
        ADD_LINE(uint32_t);
    } else if (k->bytes == 4 && wide) {
        PUT_LINE(uint32_t, int64_t);
    } else if (k->bytes == 4) {
        PUT_LINE(uint32_t, int32_t);
    } else if (k->bytes == 8 && wide) {
        PUT_LINE(uint64_t, int64_t);
    } else if (k->bytes == 8) {
        PUT_LINE(uint64_t, int32_t);
    } else if (k->bytes == 2 && wide) {
        PUT_LINE(uint16_t, int64_t);
    } else if (k->bytes == 2) {
        PUT_LINE(uint16_t, int32_t);
    } else if (wide) {
        PUT_LINE(uint8_t, int64_t);
    } else {
        PUT_LINE(uint8_t, int32_t);
    }
}

/* Each line is begun, checked and put at one go; `own`: the notes of a thread. */
static void put_whole_lines(const void *state, void *const *bufs, int64_t begin, int64_t end,
                            void *own)
{
    const scatter_state *s = state;
    int64_t limit = s->at.limit[s->at.axis];
    for (int64_t r = begin; r < end; r++) {
        if (s->all_lines) {
            begin_part(s, bufs, r * limit, (r + 1) * limit);
        }
        put_line(s, bufs, r, own);
    }
}

/* -- runs ----------------------------------------------------------------------------------------
 */

static void begin_all(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    begin_part(state, bufs, begin, end);
}

static void put_all(const put_job *job, void *const *bufs, const rui_run *run)
{
    const rui_index *at = &job->s->at;
    int64_t line = LINE_BYTES / at->bytes, grain = rui_kern_grain(at->rows);
    int64_t places = at->total / job->s->unit;
    if (job->s->last && at->rows > 1) {
        rui_kern_for(run, begin_all, job->s, bufs, at->total, rui_kern_grain(1));
        rui_kern_for(run, put_lines, job, bufs, at->rows, rui_kern_grain(at->cols));
    } else if (!job->s->last && at->cols >= 2 * line) {
        rui_kern_for(run, put_columns, job, bufs, at->cols, (grain + line - 1) / line * line);
    } else {
        int64_t few = at->rows * at->cols < rui_kern_grain(1) ? places : 1;
        rui_kern_for(run, put_places, job, bufs, places, few);
    }
}

static ru_status scatter_run(void *state, void *const *bufs, const rui_run *run)
{
    const scatter_state *s = state;
    if (s->at.rows * s->at.cols == 0) {
        rui_kern_for(run, begin_all, s, bufs, s->at.total, rui_kern_grain(1));
        return RU_OK;
    }
    int64_t uneven = 0;
    rui_index_note *notes = rui_index_notes(bufs[B_NOTES], NOTES, run);
    bool one_go = s->how == RU_KERN_PUT || s->how == RU_KERN_PUT_ADD;
    if (s->last && one_go && (s->at.rows > 1 || ru_pool_threads(run->pool) == 1)) {
        if (!s->all_lines) {
            rui_kern_for(run, begin_all, s, bufs, s->at.total, rui_kern_grain(1));
        }
        rui_kern_for_own(run, put_whole_lines, s, bufs, s->at.rows, rui_kern_grain(s->at.cols),
                         notes, NOTES * (int64_t)sizeof *notes);
        return rui_index_judge(&s->at, true, bufs[B_INDEX], notes, NOTES, run, &uneven);
    }
    rui_kern_for_own(run, find_rows, s, bufs, s->at.rows,
                     rui_kern_grain(s->elements ? s->at.cols : s->at.depth), notes,
                     NOTES * (int64_t)sizeof *notes);
    if (s->picks) {
        RU_TRY(rui_index_judge(&s->pick, false, bufs[B_PICK], notes + 1, NOTES, run, &uneven));
    }
    RU_TRY(rui_index_judge(&s->at, s->elements, bufs[B_INDEX], notes, NOTES, run, &uneven));
    put_all(&(put_job){.s = s, .apart = uneven > 0}, bufs, run);
    return RU_OK;
}

/* -- lowering ------------------------------------------------------------------------------------
 */

static bool how_of(const ru_node *n, ru_kern_put *how)
{
    static const char *const words[] = {"none", "add", "mul", "max", "min"};
    const char *word = ru_node_str(n, RU_ATTR_reduction, "none");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(words); k++) {
        if (strcmp(word, words[k]) == 0) {
            *how = (ru_kern_put)k;
            return true;
        }
    }
    return false;
}

static bool plan(rui_low *lo, const ru_node *n, scatter_state *s)
{
    const ru_type *y = rui_type(lo, n->out[0]);
    bool number = y->dtype == RU_F32 || (!s->zero && (y->dtype == RU_I64 || y->dtype == RU_I32));
    s->how = RU_KERN_PUT_ADD;
    if ((!s->zero && !how_of(n, &s->how)) || (s->how != RU_KERN_PUT && !number) ||
        !rui_index_plan(lo, n, y, s->elements, &s->at)) {
        return false;
    }
    s->k = ru_kern_best();
    s->last = s->elements && s->at.axis + 1 == s->at.rank;
    s->all_lines = s->last && s->at.rows * s->at.limit[s->at.axis] == s->at.total;
    s->unit = s->last ? 1 : s->elements ? s->at.limit[s->at.rank - 1] : s->at.cols;
    s->unit = s->unit < 1 ? 1 : s->unit;
    return true;
}

/* The slices that gather `n` takes. */
static bool plan_pick(rui_low *lo, const ru_node *n, rui_index *s)
{
    const ru_type *x = rui_type(lo, n->in[0]), *index = rui_type(lo, n->in[1]);
    if (n->op == RU_OP_Gather) {
        rui_index_plan_rows(x, index, s);
        return rui_axis(ru_node_int(n, RU_ATTR_axis, 0), x->rank) == 0 &&
               (s->it == RU_I64 || s->it == RU_I32);
    }
    return n->op == RU_OP_GatherND && rui_index_plan(lo, n, x, false, s);
}

bool rui_scatter_reads_past(rui_low *lo, const ru_node *n)
{
    const ru_node *r = rui_options(lo)->keep_temps || rui_bf16(lo) || rui_uses(lo, n->out[0]) != 1
                           ? NULL
                           : rui_only_reader(lo, n->out[0]);
    scatter_state s = {0};
    rui_index pick;
    return r != NULL && r->op == RU_OP_ScatterND && r->in[2].v == n->out[0].v && plan(lo, r, &s) &&
           s.at.t == RU_F32 && s.how != RU_KERN_PUT && plan_pick(lo, n, &pick) &&
           pick.rows == s.at.rows && pick.cols == s.at.cols && pick.rows * pick.cols > 0;
}

/* The gather that takes the updates, when this scatter reads past it. */
static const ru_node *pick_of(rui_low *lo, const ru_node *n)
{
    if (n->op != RU_OP_ScatterND) {
        return NULL;
    }
    const ru_graph *g = rui_graph(lo);
    const ru_value *v = &g->values[n->in[2].v];
    const ru_node *p = v->producer.v == 0 ? NULL : &g->nodes[v->producer.v];
    bool gathers = p != NULL && (p->op == RU_OP_Gather || p->op == RU_OP_GatherND);
    return gathers && rui_scatter_reads_past(lo, p) ? p : NULL;
}

/* Scatter(x, index, updates) -> y, and GatherGrad(dy, index, x_like) -> dx */
ru_status rui_lower_kern_scatter(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    bool grad = n->op == RU_OP_GatherElementsGrad || n->op == RU_OP_GatherNDGrad;
    scatter_state wanted = {.zero = grad,
                            .elements = n->op == RU_OP_ScatterElements ||
                                        n->op == RU_OP_GatherElementsGrad};
    if (!plan(lo, n, &wanted)) {
        return RU_E_UNSUPPORTED;
    }
    scatter_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = wanted;
    const ru_node *pick = pick_of(lo, n);
    s->picks = pick != NULL && plan_pick(lo, pick, &s->pick);
    ru_value_id updates = s->picks ? pick->in[0] : n->in[grad ? 0 : 2];
    const rui_layout *l = rui_plain(lo, rui_type(lo, n->out[0]));
    rui_buf bufs[N_BUFS] = {
        [B_X] = grad ? (rui_buf){0} : rui_in_plain(lo, n->in[0]),
        [B_INDEX] = rui_in_plain(lo, n->in[1]),
        [B_UPDATES] = rui_in_plain(lo, updates),
        [B_NOTES] = rui_scratch(lo, NOTES * rui_threads(lo) * (int64_t)sizeof(rui_index_note)),
        [B_TO] = rui_scratch(lo, s->at.rows * (int64_t)sizeof(int64_t)),
        [B_PICK] = s->picks ? rui_in_plain(lo, pick->in[1]) : (rui_buf){0},
        [B_FROM] = s->picks ? rui_scratch(lo, s->at.rows * (int64_t)sizeof(int64_t)) : (rui_buf){0},
    };
    bool over =
        !grad && !rui_same_memory(lo, bufs[B_X], bufs[B_INDEX]) &&
        !rui_same_memory(lo, bufs[B_X], bufs[B_UPDATES]) &&
        !rui_same_memory(lo, bufs[B_X], bufs[B_PICK]); /* they are read after it is written */
    bufs[B_Y] = over ? rui_out_over(lo, n->out[0], l, bufs[B_X]) : rui_out(lo, n->out[0], l);
    rui_emit(lo, &(rui_step){.kernel = s->picks      ? "kern gather scatter"
                                       : s->elements ? "kern scatter elements"
                                                     : "kern scatter nd",
                             .fn = scatter_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = N_BUFS});
    return rui_done(lo);
}
