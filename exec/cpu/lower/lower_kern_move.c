/* Gather and its gradient, transposition, dropout. */
#include <string.h>

#include "exec/cpu/kern/rows.h"
#include "exec/cpu/lower/lower_kern_index.h"

/* CHUNK: rows of a transposition that a thread takes at least, whole lines. FEW_ROWS: fewer are not
 * worth a call. */
enum { CHUNK = 64, FEW_ROWS = 8, FEW_INDICES = 32 };

typedef struct move_state {
    const ru_kern *k;
    ru_dtype t, to, it; /* data, result, indices */
    int64_t outer, limit, n, cols;
} move_state;

static ru_status index_error(const move_state *s, const void *index, int64_t at, const rui_run *run)
{
    int64_t v = s->it == RU_I64 ? ((const int64_t *)index)[at] : ((const int32_t *)index)[at];
    return RU_FAIL(run->err, RU_E_DATA, "index %lld at position %lld is outside 0..%lld",
                   (long long)v, (long long)at, (long long)(s->limit - 1));
}

/* Place of the first index out of range, or -1. */
static int64_t bad_index(const move_state *s, const void *index)
{
    for (int64_t i = 0; i < s->n; i++) {
        int64_t v = s->it == RU_I64 ? ((const int64_t *)index)[i] : ((const int32_t *)index)[i];
        if (v < -s->limit || v >= s->limit) {
            return i;
        }
    }
    return -1;
}

/* bufs: table index y. Range: outer x n rows. */
static void gather_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const move_state *s = state;
    int64_t in_bytes = ru_dtype_bytes(s->t), out_bytes = ru_dtype_bytes(s->to);
    for (int64_t r = begin; r < end;) {
        int64_t o = r / s->n, i = r % s->n;
        int64_t run = s->n - i < end - r ? s->n - i : end - r;
        const char *x = (const char *)bufs[0] + o * s->limit * s->cols * in_bytes;
        const char *index = (const char *)bufs[1] + i * ru_dtype_bytes(s->it);
        char *y = (char *)bufs[2] + r * s->cols * out_bytes;
        if (s->t == s->to) {
            (void)s->k->gather(in_bytes, x, s->limit, s->it, index, run, s->cols, y);
        } else {
            for (int64_t j = 0; j < run; j++) {
                int64_t v = s->it == RU_I64 ? ((const int64_t *)(const void *)index)[j]
                                            : ((const int32_t *)(const void *)index)[j];
                v += v < 0 ? s->limit : 0;
                (void)s->k->cast(s->t, x + v * s->cols * in_bytes, s->to,
                                 y + j * s->cols * out_bytes, s->cols);
            }
        }
        r += run;
    }
}

/* Few indices of each of the outer dim: index by index, a step apart. */
static void gather_few(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    enum { NEAR = 256 };
    const move_state *s = state;
    const int64_t bytes = s->cols * ru_dtype_bytes(s->t);
    for (int64_t o = begin, n; o < end; o += n) {
        n = end - o < NEAR ? end - o : NEAR;
        for (int64_t i = 0; i < s->n; i++) {
            int64_t v =
                s->it == RU_I64 ? ((const int64_t *)bufs[1])[i] : ((const int32_t *)bufs[1])[i];
            v += v < 0 ? s->limit : 0;
            rui_rows_copy((char *)bufs[2] + (o * s->n + i) * bytes, s->n * bytes,
                          (const char *)bufs[0] + (o * s->limit + v) * bytes, s->limit * bytes,
                          bytes, n);
        }
    }
}

static ru_status gather_run(void *state, void *const *bufs, const rui_run *run)
{
    const move_state *s = state;
    int64_t bad = bad_index(s, bufs[1]);
    if (bad >= 0) {
        return index_error(s, bufs[1], bad, run);
    }
    if (s->t == s->to && s->n <= FEW_INDICES && s->outer > s->n && s->cols <= FEW_INDICES) {
        rui_kern_for(run, gather_few, s, bufs, s->outer, rui_kern_grain(s->n * s->cols));
    } else {
        rui_kern_for(run, gather_part, s, bufs, s->outer * s->n, rui_kern_grain(s->cols));
    }
    return RU_OK;
}

/* Only that the indices are in range: the rows are read elsewhere. bufs: index */
static ru_status check_run(void *state, void *const *bufs, const rui_run *run)
{
    int64_t bad = bad_index(state, bufs[0]);
    return bad >= 0 ? index_error(state, bufs[0], bad, run) : RU_OK;
}

ru_status rui_lower_kern_gather(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *index = rui_type(lo, n->in[1]);
    if ((index->dtype != RU_I64 && index->dtype != RU_I32) || x->rank == 0) {
        return RU_E_UNSUPPORTED;
    }
    uint32_t axis = rui_axis(ru_node_int(n, RU_ATTR_axis, 0), x->rank);
    if (rui_scatter_reads_past(lo, n)) {
        return RU_OK;
    }
    move_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    ru_dtype t = rui_kern_float(x->dtype) ? rui_kern_dtype(lo, n->in[0]) : x->dtype;
    ru_dtype to = x->dtype == RU_F32 ? rui_store_dtype(lo, n->out[0]) : x->dtype;
    *s = (move_state){.k = ru_kern_best(),
                      .t = t,
                      .to = to,
                      .it = index->dtype,
                      .outer = rui_dims(x, 0, axis),
                      .limit = x->dims[axis],
                      .n = ru_type_count(index),
                      .cols = rui_dims(x, axis + 1, x->rank)};
    if (rui_rnn_reads_past(lo, n)) {
        rui_buf index_only[1] = {rui_in_plain(lo, n->in[1])};
        rui_emit(lo, &(rui_step){.kernel = "kern gather check",
                                 .fn = check_run,
                                 .state = s,
                                 .bufs = index_only,
                                 .n_bufs = 1});
        return rui_done(lo);
    }
    rui_buf bufs[3] = {rui_in(lo, n->in[0], rui_plain_as(lo, x, t)), rui_in_plain(lo, n->in[1]),
                       rui_out(lo, n->out[0], rui_plain_as(lo, rui_type(lo, n->out[0]), to))};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern gather", .fn = gather_run, .state = s, .bufs = bufs, .n_bufs = 3});
    return rui_done(lo);
}

/* bufs: dy index dx. Each thread owns columns, so every sum runs in index order. */
static void gather_grad_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const move_state *s = state;
    (void)s->k->gather_grad(s->t, bufs[0], s->it, bufs[1], s->n, s->limit, s->cols, begin, end,
                            bufs[2]);
}

static ru_status gather_grad_run(void *state, void *const *bufs, const rui_run *run)
{
    const move_state *s = state;
    int64_t bad = bad_index(s, bufs[1]);
    if (bad >= 0) {
        return index_error(s, bufs[1], bad, run);
    }
    rui_kern_for(run, gather_grad_part, s, bufs, s->cols, 16);
    return RU_OK;
}

ru_status rui_lower_kern_gather_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *dx = rui_type(lo, n->out[0]), *index = rui_type(lo, n->in[1]);
    if ((index->dtype != RU_I64 && index->dtype != RU_I32) || dx->rank == 0 ||
        dx->dtype != RU_F32 || rui_axis(ru_node_int(n, RU_ATTR_axis, 0), dx->rank) != 0) {
        return RU_E_UNSUPPORTED;
    }
    ru_dtype t = rui_kern_dtype(lo, n->in[0]);
    move_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (move_state){.k = ru_kern_best(),
                      .t = t,
                      .it = index->dtype,
                      .limit = dx->dims[0],
                      .n = ru_type_count(index),
                      .cols = rui_dims(dx, 1, dx->rank)};
    rui_buf bufs[3] = {rui_in(lo, n->in[0], rui_plain_as(lo, rui_type(lo, n->in[0]), t)),
                       rui_in_plain(lo, n->in[1]), rui_out_plain(lo, n->out[0])};
    rui_emit(lo, &(rui_step){.kernel = "kern gather grad",
                             .fn = gather_grad_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 3});
    return rui_done(lo);
}

/* -- transposition -------------------------------------------------------------------------------
 */

/* Output dims and strides of the input along them, merged. Two of them run inside: the last and
 * `side`, along which the input is contiguous, or, where that is the last itself, the longest. */
typedef struct perm_state {
    const ru_kern *k;
    uint32_t rank, side;
    bool copies; /* the input is contiguous along the last: rows are copied */
    int64_t dims[RU_RANK_MAX], in_step[RU_RANK_MAX], out_step[RU_RANK_MAX];
    int64_t bytes, rows;   /* rows: product of the dims outside */
    int64_t chunk, chunks; /* pieces of what is inside, for threads */
} perm_state;

/* Chunk c of what is inside. */
static void perm_piece(const perm_state *s, const char *x, char *y, int64_t c)
{
    uint32_t last = s->rank - 1, side = s->side, cut = s->copies ? side : last;
    int64_t first = c * s->chunk, in = s->in_step[cut] * s->bytes,
            out = s->out_step[cut] * s->bytes;
    int64_t n = s->dims[cut] - first < s->chunk ? s->dims[cut] - first : s->chunk;
    if (s->copies) {
        rui_rows_copy(y + first * out, out, x + first * in, in, s->dims[last] * s->bytes, n);
    } else {
        s->k->transpose(s->bytes, x + first * in, s->in_step[last], y + first * out,
                        s->out_step[side], n, s->dims[side]);
    }
}

static void perm_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const perm_state *s = state;
    uint32_t last = s->rank - 1;
    int64_t at[RU_RANK_MAX] = {0}, row = begin / s->chunks, in = 0, out = 0;
    for (uint32_t d = s->rank; d-- > 0;) {
        if (d != last && d != s->side) {
            at[d] = row % s->dims[d];
            row /= s->dims[d];
            in += at[d] * s->in_step[d];
            out += at[d] * s->out_step[d];
        }
    }
    for (int64_t r = begin, c = begin % s->chunks; r < end; r++) {
        perm_piece(s, (const char *)bufs[0] + in * s->bytes, (char *)bufs[1] + out * s->bytes, c);
        c = c + 1 < s->chunks ? c + 1 : 0;
        for (uint32_t d = s->rank; c == 0 && d-- > 0;) { /* the next row */
            if (d == last || d == s->side) {
                continue;
            }
            bool over = ++at[d] == s->dims[d];
            in += over ? (1 - at[d]) * s->in_step[d] : s->in_step[d];
            out += over ? (1 - at[d]) * s->out_step[d] : s->out_step[d];
            if (!over) {
                break;
            }
            at[d] = 0;
        }
    }
}

static ru_status perm_run(void *state, void *const *bufs, const rui_run *run)
{
    const perm_state *s = state;
    int64_t each = s->dims[s->rank - 1] * s->dims[s->side] / s->chunks;
    rui_kern_for(run, perm_part, s, bufs, s->rows * s->chunks, rui_kern_grain(each));
    return RU_OK;
}

/* The last dim, of few bytes that stay together, becomes part of the element. */
static void perm_widen(perm_state *s)
{
    int64_t n = s->dims[s->rank - 1], bytes = n * s->bytes;
    if (s->rank < 3 || s->in_step[s->rank - 1] != 1 || bytes > 8 || (bytes & (bytes - 1)) != 0) {
        return;
    }
    s->bytes = bytes;
    s->rank--;
    for (uint32_t d = 0; d < s->rank; d++) {
        s->in_step[d] /= n;
    }
}

/* Which dims run inside, and their pieces. */
static void perm_inside(perm_state *s, uint32_t threads)
{
    uint32_t last = s->rank - 1;
    s->copies = s->in_step[last] == 1;
    int64_t at = 1, most = 0;
    for (uint32_t d = s->rank; d-- > 0;) {
        s->out_step[d] = at;
        at *= s->dims[d];
        bool longer = most == 0 || (most < FEW_ROWS && s->dims[d] > most);
        if (d < last && (s->copies ? longer : s->in_step[d] == 1)) {
            most = s->dims[d];
            s->side = d;
        }
    }
    int64_t all = s->dims[s->copies ? s->side : last];
    s->chunk = s->chunks = 1;
    if (at == 0 || s->rank == 1) {
        return; /* nothing moves */
    }
    s->rows = at / s->dims[last] / s->dims[s->side];
    int64_t wanted = threads < 2 ? 1 : (4 * (int64_t)threads + s->rows - 1) / s->rows;
    s->chunk = ((all + wanted - 1) / wanted + CHUNK - 1) / CHUNK * CHUNK;
    s->chunks = (all + s->chunk - 1) / s->chunk;
}

/* Merge output neighbours that are neighbours in the input too. */
static void perm_collapse(perm_state *s, const ru_type *x, const ru_type *y, const int64_t *perm)
{
    int64_t step[RU_RANK_MAX], at = 1;
    for (uint32_t d = x->rank; d-- > 0;) {
        step[d] = at;
        at *= x->dims[d];
    }
    for (uint32_t d = 0; d < y->rank; d++) {
        int64_t in = step[perm[d]];
        if (y->dims[d] == 1) {
            continue;
        }
        if (s->rank > 0 && s->in_step[s->rank - 1] == in * y->dims[d]) {
            s->dims[s->rank - 1] *= y->dims[d];
            s->in_step[s->rank - 1] = in;
        } else {
            s->dims[s->rank] = y->dims[d];
            s->in_step[s->rank++] = in;
        }
    }
    if (s->rank == 0) {
        s->dims[0] = s->in_step[0] = 1;
        s->rank = 1;
    }
}

/* x, read with the dims of `from`, transposed into y, which has as many elements as `to`. */
static ru_status emit_perm(rui_low *lo, ru_value_id x, const ru_type *from, const int64_t *perm,
                           ru_value_id y, const ru_type *to)
{
    const ru_type *tx = rui_type(lo, x), *ty = rui_type(lo, y);
    ru_dtype t = rui_kern_float(tx->dtype) ? rui_kern_dtype(lo, x) : tx->dtype;
    perm_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (perm_state){.k = ru_kern_best(), .bytes = ru_dtype_bytes(t)};
    perm_collapse(s, from, to, perm);
    perm_widen(s);
    perm_inside(s, rui_threads(lo));
    rui_buf in = rui_in(lo, x, rui_plain_as(lo, tx, t));
    if (s->rank == 1) { /* nothing moves */
        rui_out_view(lo, y, rui_plain_as(lo, ty, t), in, 0);
        return rui_done(lo);
    }
    rui_buf bufs[2] = {in, rui_out(lo, y, rui_plain_as(lo, ty, t))};
    rui_emit(
        lo, &(rui_step){
                .kernel = "kern transpose", .fn = perm_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}

ru_status rui_lower_kern_transpose(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    uint32_t count = 0;
    const int64_t *perm = ru_node_ints(n, RU_ATTR_perm, &count);
    if (rui_rnn_reads_past(lo, n)) {
        return rui_done(lo);
    }
    int64_t reversed[RU_RANK_MAX];
    for (uint32_t d = 0; d < x->rank; d++) {
        reversed[d] = (int64_t)(x->rank - 1 - d);
    }
    return emit_perm(lo, n->in[0], x, perm != NULL ? perm : reversed, n->out[0], y);
}

/* DepthToSpace and SpaceToDepth: a transposition of six dims, b blocks of two axes among them. */
ru_status rui_lower_kern_blocks(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    int64_t b = ru_node_int(n, RU_ATTR_blocksize, 0);
    int64_t bytes = ru_dtype_bytes(x->dtype);
    if (x->rank != 4 || b < 1 || bytes > 8 || (bytes & (bytes - 1)) != 0) {
        return RU_E_UNSUPPORTED;
    }
    bool apart = n->op == RU_OP_SpaceToDepth;
    bool crd = strcmp(ru_node_str(n, RU_ATTR_mode, "DCR"), "CRD") == 0;
    static const int64_t perms[3][6] = {{0, 3, 4, 1, 5, 2}, {0, 1, 4, 2, 5, 3}, {0, 3, 5, 1, 2, 4}};
    const int64_t *d = apart ? y->dims : x->dims; /* the deep side */
    int64_t c = d[1] / (b * b), h = d[2], w = d[3], nb = d[0];
    const int64_t from[3][6] = {{nb, b, b, c, h, w}, {nb, c, b, b, h, w}, {nb, c, h, b, w, b}};
    uint32_t form = apart ? 2 : (crd ? 1 : 0);
    int64_t to[6];
    for (uint32_t k = 0; k < 6; k++) {
        to[k] = from[form][perms[form][k]];
    }
    ru_type seen = ru_type_make(x->dtype, 6, from[form]), made = ru_type_make(x->dtype, 6, to);
    return emit_perm(lo, n->in[0], &seen, perms[form], n->out[0], &made);
}

/* -- dropout -------------------------------------------------------------------------------------
 */

typedef struct drop_state {
    const ru_kern *k;
    ru_dtype t;
    double ratio;
    int64_t n, samples, inner, start; /* where samples stand in x (ops.def: DropoutTrain) */
    uint32_t stream;
    uint32_t key[2], hi[2]; /* of this run */
    int64_t first;          /* sample of the global batch */
} drop_state;

/* Number in the global batch of place p; `together`: how many places from p on go on with it. */
static int64_t drop_number(const drop_state *s, int64_t p, int64_t *together)
{
    *together = s->n - p;
    if (s->inner == 0) {
        return p;
    }
    int64_t per_sample = s->n / s->samples;
    if (per_sample == s->inner) { /* sample by sample */
        return s->first * per_sample + p;
    }
    int64_t q = p / s->inner, e = p % s->inner;
    *together = s->inner - e;
    return (s->first + q % s->samples) * per_sample + q / s->samples * s->inner + e;
}

/* bufs: x y mask */
static void drop_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const drop_state *s = state;
    while (begin < end) {
        int64_t at = begin * ru_dtype_bytes(s->t), n;
        int64_t number = drop_number(s, begin, &n);
        n = n < end - begin ? n : end - begin;
        s->k->dropout(s->t, s->key, s->hi, number, s->ratio, (const char *)bufs[0] + at,
                      (char *)bufs[1] + at, (uint8_t *)bufs[2] + begin, n);
        begin += n;
    }
}

static ru_status drop_run(void *state, void *const *bufs, const rui_run *run)
{
    drop_state *s = state;
    s->key[0] = (uint32_t)run->args->seed;
    s->key[1] = (uint32_t)(run->args->seed >> 32);
    s->hi[0] = s->stream;
    s->hi[1] = (uint32_t)run->args->step;
    s->first = run->args->sample_offset + s->start;
    rui_kern_for(run, drop_part, s, bufs, s->n, 4096);
    return RU_OK;
}

static drop_state *drop_new(rui_low *lo, const ru_node *n, ru_value_id x, ru_dtype t)
{
    const ru_type *type = rui_type(lo, x);
    int64_t rows = type->rank > 0 ? type->dims[0] : 1;
    drop_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s != NULL) {
        *s = (drop_state){
            .k = ru_kern_best(),
            .t = t,
            .ratio = ru_node_float(n, RU_ATTR_ratio, 0.5),
            .n = ru_type_count(type),
            .samples = ru_node_int(n, RU_ATTR_samples, rows),
            .inner = ru_node_int(n, RU_ATTR_inner, rows > 0 ? ru_type_count(type) / rows : 0),
            .start = ru_node_int(n, RU_ATTR_start, 0),
            .stream = (uint32_t)ru_node_int(n, RU_ATTR_stream, 0)};
    }
    return s;
}

ru_status rui_lower_kern_dropout(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    ru_dtype t = rui_kern_dtype(lo, n->in[0]);
    if (!rui_kern_float(t) || !ru_node_has_out(n, 0)) {
        return RU_E_UNSUPPORTED;
    }
    drop_state *s = drop_new(lo, n, n->in[0], t);
    const rui_layout *l = rui_plain_as(lo, x, t);
    rui_buf in = rui_in(lo, n->in[0], l);
    rui_buf mask =
        ru_node_has_out(n, 1) ? rui_out_plain(lo, n->out[1]) : rui_scratch(lo, ru_type_count(x));
    rui_buf bufs[3] = {in, rui_out_over(lo, n->out[0], l, in), mask};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern dropout", .fn = drop_run, .state = s, .bufs = bufs, .n_bufs = 3});
    return rui_done(lo);
}

/* bufs: dy mask dx */
static void drop_grad_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const drop_state *s = state;
    int64_t at = begin * ru_dtype_bytes(s->t);
    s->k->dropout_grad(s->t, s->ratio, (const char *)bufs[0] + at, (const uint8_t *)bufs[1] + begin,
                       (char *)bufs[2] + at, end - begin);
}

static ru_status drop_grad_run(void *state, void *const *bufs, const rui_run *run)
{
    const drop_state *s = state;
    rui_kern_for(run, drop_grad_part, s, bufs, s->n, 4096);
    return RU_OK;
}

ru_status rui_lower_kern_dropout_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *dy = rui_type(lo, n->in[0]);
    ru_dtype t = rui_kern_dtype(lo, n->in[0]);
    if (!rui_kern_float(t) || ru_dtype_bytes(rui_type(lo, n->in[1])->dtype) != 1) {
        return RU_E_UNSUPPORTED;
    }
    drop_state *s = drop_new(lo, n, n->in[0], t);
    const rui_layout *l = rui_plain_as(lo, dy, t);
    rui_buf in = rui_in(lo, n->in[0], l);
    rui_buf bufs[3] = {in, rui_in_plain(lo, n->in[1]), rui_out_over(lo, n->out[0], l, in)};
    rui_emit(lo, &(rui_step){.kernel = "kern dropout grad",
                             .fn = drop_grad_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 3});
    return rui_done(lo);
}
