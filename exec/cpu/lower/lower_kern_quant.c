/* QuantizeLinear, DequantizeLinear and functions of quantised tensors on exec/cpu/kern/k_numbers.c:
 * one scale, flat over whatever order the tensor stands in; one scale per place of an axis,
 * row-major. Where few elements share a scale, each element has its own. */
#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/low/conv.h"
#include "exec/cpu/lower/lower_kern_whole.h"
#include "exec/cpu/lower/lower_spread.h"

#include <string.h>

typedef struct quant_state {
    const ru_kern *k;
    ru_dtype q;                 /* the quantised side */
    int64_t n, channels, inner; /* elements; scales, and elements that share one in a row */
    bool back;                  /* to f32 */
} quant_state;

/* bufs: x, scale, zero?, y; a row of `inner` elements each */
static void quant_rows(const quant_state *s, void *const *bufs, int64_t row, int64_t at, int64_t n)
{
    int64_t c = row % s->channels, qb = ru_dtype_bytes(s->q);
    float scale = ((const float *)bufs[1])[c], zero = 0;
    if (bufs[2] != NULL) {
        int64_t whole;
        rui_wholes_load(s->q, (const char *)bufs[2] + c * qb, 1, &whole);
        zero = (float)whole;
    }
    if (s->back) {
        s->k->dequantize(s->q, (const char *)bufs[0] + at * qb, scale, zero, (float *)bufs[3] + at,
                         n);
    } else {
        s->k->quantize((const float *)bufs[0] + at, scale, zero, s->q, (char *)bufs[3] + at * qb,
                       n);
    }
}

static void quant_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const quant_state *s = state;
    while (begin < end) {
        int64_t row = begin / s->inner, stop = (row + 1) * s->inner;
        stop = stop < end ? stop : end;
        quant_rows(s, bufs, row, begin, stop - begin);
        begin = stop;
    }
}

static ru_status quant_run(void *state, void *const *bufs, const rui_run *run)
{
    const quant_state *s = state;
    rui_kern_for(run, quant_part, s, bufs, s->n, 4096);
    return RU_OK;
}

/* Rows to here: 56 elements a call took 30 ns of which 5 were their conversion. FEW: elements of
 * one call that have scales of their own in blocks. */
enum { EACH_MAX = 64, FEW = 512 };

/* bufs: x, scale, zero?, y, scales and zeros of [channels * inner] */
static void each_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const quant_state *s = state;
    const ru_kern_numbers *k = ru_kern_numbers_best();
    const float *scales = bufs[4], *zeros = bufs[5];
    int64_t period = s->channels * s->inner, qb = ru_dtype_bytes(s->q);
    for (int64_t n; begin < end; begin += n) {
        int64_t at = begin % period;
        n = period - at < end - begin ? period - at : end - begin;
        if (s->back) {
            k->dequantize(s->q, (const char *)bufs[0] + begin * qb, scales + at, zeros + at,
                          (float *)bufs[3] + begin, n);
        } else {
            k->quantize((const float *)bufs[0] + begin, scales + at, zeros + at, s->q,
                        (char *)bufs[3] + begin * qb, n);
        }
    }
}

static ru_status each_run(void *state, void *const *bufs, const rui_run *run)
{
    const quant_state *s = state;
    float *scales = bufs[4], *zeros = bufs[5];
    for (int64_t c = 0; c < s->channels; c++) {
        int64_t whole = 0;
        if (bufs[2] != NULL) {
            rui_wholes_load(s->q, (const char *)bufs[2] + c * ru_dtype_bytes(s->q), 1, &whole);
        }
        for (int64_t i = c * s->inner; i < (c + 1) * s->inner; i++) {
            scales[i] = ((const float *)bufs[1])[c];
            zeros[i] = (float)whole;
        }
    }
    rui_kern_for(run, each_part, s, bufs, s->n, 4096);
    return RU_OK;
}

/* Blocks along an axis, each with a scale for each of `inner` columns. bufs as above */
typedef struct block_state {
    quant_state q; /* n: blocks; channels: of a line of them */
    int64_t dim, block;
} block_state;

static void block_one(const block_state *s, void *const *bufs, int64_t at, int64_t rows)
{
    enum { COLUMNS = 256 };
    const int64_t inner = s->q.inner, qb = ru_dtype_bytes(s->q.q);
    const int64_t from = (at / s->q.channels * s->dim + at % s->q.channels * s->block) * inner;
    int64_t whole[COLUMNS];
    float zeros[COLUMNS] = {0};
    for (int64_t c = 0, n; c < inner; c += n) {
        n = inner - c < COLUMNS ? inner - c : COLUMNS;
        const float *scales = (const float *)bufs[1] + at * inner + c;
        if (bufs[2] != NULL) {
            rui_wholes_load(s->q.q, (const char *)bufs[2] + (at * inner + c) * qb, n, whole);
        }
        for (int64_t j = 0; bufs[2] != NULL && j < n; j++) {
            zeros[j] = (float)whole[j];
        }
        for (int64_t i = 0; i < rows; i++) {
            int64_t x = from + i * inner + c;
            if (s->q.back) {
                ru_kern_numbers_best()->dequantize(s->q.q, (const char *)bufs[0] + x * qb, scales,
                                                   zeros, (float *)bufs[3] + x, n);
            } else {
                ru_kern_numbers_best()->quantize((const float *)bufs[0] + x, scales, zeros, s->q.q,
                                                 (char *)bufs[3] + x * qb, n);
            }
        }
    }
}

/* So many blocks of few elements of a line that each element gets a scale of its own. */
static void block_few(const block_state *s, void *const *bufs, int64_t at, int64_t blocks)
{
    const int64_t i = at % s->q.channels * s->block, qb = ru_dtype_bytes(s->q.q);
    const int64_t x = at / s->q.channels * s->dim + i;
    const int64_t n = s->dim - i < blocks * s->block ? s->dim - i : blocks * s->block;
    float scales[FEW + RUI_SPREAD_PAST], zeros[FEW + RUI_SPREAD_PAST] = {0}, zero[FEW];
    int64_t whole[FEW];
    rui_kern_spread((const float *)bufs[1] + at, blocks, s->block, scales);
    if (bufs[2] != NULL) {
        rui_wholes_load(s->q.q, (const char *)bufs[2] + at * qb, blocks, whole);
        for (int64_t j = 0; j < blocks; j++) {
            zero[j] = (float)whole[j];
        }
        rui_kern_spread(zero, blocks, s->block, zeros);
    }
    if (s->q.back) {
        ru_kern_numbers_best()->dequantize(s->q.q, (const char *)bufs[0] + x * qb, scales, zeros,
                                           (float *)bufs[3] + x, n);
    } else {
        ru_kern_numbers_best()->quantize((const float *)bufs[0] + x, scales, zeros, s->q.q,
                                         (char *)bufs[3] + x * qb, n);
    }
}

static void block_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const block_state *s = state;
    const int64_t few = s->q.inner == 1 && s->block < EACH_MAX ? FEW / s->block : 1;
    for (int64_t at = begin, n; at < end; at += n) {
        int64_t line = at / s->q.channels, left = s->q.channels - at % s->q.channels;
        int64_t i = at % s->q.channels * s->block;
        int64_t rows = s->dim - i < s->block ? s->dim - i : s->block;
        n = few < left ? few : left;
        n = n < end - at ? n : end - at;
        if (few > 1) {
            block_few(s, bufs, at, n);
        } else if (s->q.inner > 1) {
            block_one(s, bufs, at, rows);
        } else {
            quant_state one = s->q;
            one.channels = s->q.n;
            quant_rows(&one, bufs, at, line * s->dim + i, rows);
        }
    }
}

static ru_status block_run(void *state, void *const *bufs, const rui_run *run)
{
    const block_state *s = state;
    rui_kern_for(run, block_part, s, bufs, s->q.n, rui_kern_grain(s->block * s->q.inner));
    return RU_OK;
}

static ru_status lower_blocks(rui_low *lo, const ru_node *n, const quant_state *q)
{
    const ru_type *x = rui_type(lo, n->in[0]);
    uint32_t axis = rui_axis(ru_node_int(n, RU_ATTR_axis, 1), x->rank);
    block_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL || ru_type_count(x) <= 0) {
        return s == NULL ? rui_done(lo) : RU_E_UNSUPPORTED;
    }
    *s = (block_state){
        .q = *q, .dim = x->dims[axis], .block = ru_node_int(n, RU_ATTR_block_size, 0)};
    s->block = s->block < s->dim ? s->block : s->dim;
    s->q.channels = (s->dim - 1) / s->block + 1;
    s->q.inner = rui_dims(x, axis + 1, x->rank);
    s->q.n = rui_dims(x, 0, axis) * s->q.channels;
    if (s->q.inner == 1 && s->dim % s->block == 0) { /* lines without a rest are one line */
        s->dim = ru_type_count(x);
        s->q.channels = s->q.n;
    }
    rui_buf bufs[4] = {rui_in_plain(lo, n->in[0]), rui_in_plain(lo, n->in[1]),
                       ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0},
                       rui_out_plain(lo, n->out[0])};
    rui_emit(lo, &(rui_step){.kernel = q->back ? "kern dequantize" : "kern quantize",
                             .fn = block_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 4});
    rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    return rui_done(lo);
}

/* Where x stands, when its order is one of oneDNN without padding (zero is not stored as 0). */
static const rui_layout *order_of(rui_low *lo, ru_value_id x, bool one, ru_dtype t)
{
    const rui_layout *l = rui_standing(lo, x);
    if (l->opaque || l->padded || !one) {
        return rui_plain_as(lo, rui_type(lo, x), t);
    }
    return rui_layout_as(lo, l, t);
}

ru_status rui_lower_kern_quant(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *s = rui_type(lo, n->in[1]);
    bool back = n->op == RU_OP_DequantizeLinear, one = ru_type_count(s) == 1;
    ru_dtype q = back ? x->dtype : rui_type(lo, n->out[0])->dtype;
    if (!(q == RU_U8 || q == RU_I8 || q == RU_U16 || q == RU_I16 || (back && q == RU_I32)) ||
        s->dtype != RU_F32 || (!back && x->dtype != RU_F32)) {
        return RU_E_UNSUPPORTED;
    }
    if (ru_node_int(n, RU_ATTR_block_size, 0) != 0 && !one) {
        return lower_blocks(lo, n, &(quant_state){.k = ru_kern_best(), .q = q, .back = back});
    }
    const rui_layout *from = order_of(lo, n->in[0], one, back ? q : RU_F32);
    const rui_layout *to = rui_layout_as(lo, from, back ? RU_F32 : q);
    uint32_t axis = one ? 0 : rui_axis(ru_node_int(n, RU_ATTR_axis, 1), x->rank);
    quant_state *state = rui_keep(lo, (int64_t)sizeof *state);
    if (state == NULL || from == NULL || to == NULL) {
        return rui_done(lo);
    }
    *state = (quant_state){.k = ru_kern_best(),
                           .q = q,
                           .n = ru_type_count(x),
                           .channels = one ? 1 : x->dims[axis],
                           .inner = one ? ru_type_count(x) : rui_dims(x, axis + 1, x->rank),
                           .back = back};
    rui_buf bufs[6] = {rui_in(lo, n->in[0], from), rui_in_plain(lo, n->in[1]),
                       ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0},
                       rui_out(lo, n->out[0], to)};
    bool each = !one && state->inner < EACH_MAX;
    for (uint32_t k = 4; each && k < 6; k++) {
        bufs[k] = rui_scratch(lo, state->channels * state->inner * (int64_t)sizeof(float));
    }
    rui_emit(lo, &(rui_step){.kernel = back ? "kern dequantize" : "kern quantize",
                             .fn = each ? each_run : quant_run,
                             .state = state,
                             .bufs = bufs,
                             .n_bufs = each ? 6 : 4});
    rui_restand(lo, n->out[0], rui_store_dtype(lo, n->out[0]));
    return rui_done(lo);
}

/* -- from bytes to bytes ----------------------------------------------------------------------- */

/* How a result of 8 bits is cut. */
static ru_kern_add8 cut_to(const ru_node *n, ru_dtype a, ru_dtype b, ru_dtype y, bool relu)
{
    double zero = (double)ru_node_int(n, RU_ATTR_y_zero, 0), low = y == RU_I8 ? -128 : 0;
    return (ru_kern_add8){.zero = (float)zero,
                          .low = (float)(relu && zero > low ? zero : low),
                          .high = y == RU_I8 ? 127 : 255,
                          .types = (a == RU_I8) + 2U * (b == RU_I8) + 4U * (y == RU_I8)};
}

typedef struct two_state {
    const ru_kern *k;
    ru_kern_add8 s;
    rui_spread spread;
    bool product;
    int64_t n; /* > 0: both of one shape, flat in whatever order they stand */
} two_state;

static void two_bytes(const two_state *s, const void *a, const void *b, void *y, int64_t n)
{
    if (s->product) {
        ru_kern_numbers_best()->mul_int8(&s->s, a, b, y, n);
    } else {
        s->k->add_int8(&s->s, a, b, y, n);
    }
}

static void two_flat(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    two_bytes(state, (const char *)bufs[0] + begin, (const char *)bufs[1] + begin,
              (char *)bufs[2] + begin, end - begin);
}

/* Operands of a sum exchanged. */
static ru_kern_add8 exchanged(ru_kern_add8 s)
{
    float a = s.a;
    s.a = s.b;
    s.b = a;
    s.types = (s.types & 4U) | (s.types & 1U) << 1 | (s.types & 2U) >> 1;
    return s;
}

enum { SAME = 1024 };

/* A byte `one` that repeats in operand k beside n others. */
static void two_beside(const two_state *s, uint32_t k, const uint8_t *one, const uint8_t *others,
                       uint8_t *y, int64_t n)
{
    if (s->product) {
        uint8_t same[SAME];
        RU_CHECK(n <= SAME);
        memset(same, *one, (size_t)n);
        two_bytes(s, k == 0 ? same : others, k == 0 ? others : same, y, n);
    } else {
        ru_kern_add8 by = k == 1 ? s->s : exchanged(s->s);
        ru_kern_numbers_best()->add_one_int8(&by, others, one, y, n);
    }
}

/* The same beside many: each of them has one of 256 results. */
static void two_by_table(const two_state *s, uint32_t k, const uint8_t *one, const uint8_t *others,
                         uint8_t *y, int64_t n)
{
    uint8_t all[256], table[256];
    for (int i = 0; i < 256; i++) {
        all[i] = (uint8_t)i;
    }
    two_beside(s, k, one, all, table, 256);
    ru_kern_numbers_best()->look_up(table, others, y, n);
}

static void two_piece(const void *state, void *const *at, const int64_t *step, int64_t n)
{
    const two_state *s = state;
    if (step[0] != step[1]) {
        const uint32_t k = step[0] == 0 ? 0 : 1;
        (n < SAME ? two_beside : two_by_table)(s, k, at[k], at[1 - k], at[2], n);
    } else if (step[0] == 1) {
        two_bytes(s, at[0], at[1], at[2], n);
    } else {
        two_bytes(s, at[0], at[1], at[2], 1);
        memset(at[2], *(const uint8_t *)at[2], (size_t)n);
    }
}

static ru_status two_run(void *state, void *const *bufs, const rui_run *run)
{
    const two_state *s = state;
    if (s->n > 0) {
        rui_kern_for(run, two_flat, s, bufs, s->n, 16384);
    } else {
        rui_spread_run(run, &s->spread, two_piece, s, bufs);
    }
    return RU_OK;
}

static void two_scales(const ru_node *n, two_state *s)
{
    double y = ru_node_float(n, RU_ATTR_y_scale, 1);
    double a = ru_node_float(n, RU_ATTR_x_scale, 1), b = ru_node_float(n, RU_ATTR_b_scale, 1);
    double az = (double)ru_node_int(n, RU_ATTR_x_zero, 0);
    double bz = (double)ru_node_int(n, RU_ATTR_b_zero, 0);
    s->s.a = (float)(s->product ? az : a / y);
    s->s.b = (float)(s->product ? bz : b / y);
    s->s.c = (float)(s->product ? a * b / y : -az * (a / y) - bz * (b / y));
}

ru_status rui_lower_kern_two_int8(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *a = rui_type(lo, n->in[0]), *b = rui_type(lo, n->in[1]);
    const ru_type *y = rui_type(lo, n->out[0]);
    const char *act = ru_node_str(n, RU_ATTR_activation, "");
    bool relu = strcmp(act, "relu") == 0;
    if ((!relu && act[0] != 0) || ru_type_count(y) <= 0) {
        return RU_E_UNSUPPORTED;
    }
    bool flat = ru_type_count(a) == ru_type_count(y) && ru_type_count(b) == ru_type_count(y) &&
                a->rank == b->rank;
    const rui_layout *la = order_of(lo, n->in[0], flat, a->dtype);
    const rui_layout *lb = flat ? rui_layout_as(lo, la, b->dtype) : rui_plain(lo, b);
    const rui_layout *ly = flat ? rui_layout_as(lo, la, y->dtype) : rui_plain(lo, y);
    two_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL || la == NULL || lb == NULL || ly == NULL) {
        return rui_done(lo);
    }
    *s = (two_state){.k = ru_kern_best(),
                     .s = cut_to(n, a->dtype, b->dtype, y->dtype, relu),
                     .product = n->op == RU_OP_MulInt8,
                     .n = flat ? ru_type_count(y) : 0};
    two_scales(n, s);
    if (!flat) {
        rui_spread_plan(&s->spread, y, (const ru_type *const[]){a, b}, 2);
    }
    rui_buf in = rui_in(lo, n->in[0], la), other = rui_in(lo, n->in[1], lb);
    rui_buf bufs[3] = {in, other,
                       flat ? rui_out_over(lo, n->out[0], ly, in) : rui_out(lo, n->out[0], ly)};
    rui_emit(lo, &(rui_step){.kernel = s->product ? "kern mul int8" : "kern add int8",
                             .fn = two_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 3});
    return rui_done(lo);
}

typedef struct map_state {
    uint8_t table[256];
    int64_t n;
} map_state;

static void map_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const map_state *s = state;
    ru_kern_numbers_best()->look_up(s->table, (const uint8_t *)bufs[0] + begin,
                                    (uint8_t *)bufs[1] + begin, end - begin);
}

static ru_status map_run(void *state, void *const *bufs, const rui_run *run)
{
    const map_state *s = state;
    rui_kern_for(run, map_part, s, bufs, s->n, 16384);
    return RU_OK;
}

/* The 256 results, by the kernels that would make them one by one. */
ru_status rui_lower_kern_map_int8(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    ru_dtype tx = rui_type(lo, n->in[0])->dtype, ty = rui_type(lo, n->out[0])->dtype;
    const rui_layout *from = order_of(lo, n->in[0], true, tx);
    const rui_layout *to = rui_layout_as(lo, from, ty);
    map_state *s = rui_keep(lo, (int64_t)sizeof *s);
    const ru_kern *k = ru_kern_best();
    float real[256];
    uint8_t bytes[256];
    if (s == NULL || from == NULL || to == NULL) {
        return rui_done(lo);
    }
    for (int i = 0; i < 256; i++) {
        bytes[i] = (uint8_t)i;
    }
    k->dequantize(tx, bytes, (float)ru_node_float(n, RU_ATTR_x_scale, 1),
                  (float)ru_node_int(n, RU_ATTR_x_zero, 0), real, 256);
    if (ru_node_str(n, RU_ATTR_activation, "")[0] != 0 && !rui_act_on(n, real, 256)) {
        return RU_E_UNSUPPORTED;
    }
    k->quantize(real, (float)ru_node_float(n, RU_ATTR_y_scale, 1),
                (float)ru_node_int(n, RU_ATTR_y_zero, 0), ty, s->table, 256);
    s->n = ru_type_count(rui_type(lo, n->in[0]));
    rui_buf in = rui_in(lo, n->in[0], from);
    rui_buf bufs[2] = {in, rui_out_over(lo, n->out[0], to, in)};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern map int8", .fn = map_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}

/* -- means of channels ------------------------------------------------------------------------- */

typedef struct mean_state {
    ru_dtype t;
    int64_t rows, cols;
    bool sign;
    float scale, zero, y_zero; /* of the sum of a row: to units of the result; its zero point */
} mean_state;

static void mean_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    enum { ROWS = 64 };
    const mean_state *s = state;
    int32_t sums[ROWS];
    float real[ROWS];
    for (int64_t n; begin < end; begin += n) {
        n = end - begin < ROWS ? end - begin : ROWS;
        ru_kern_numbers_best()->sum_rows(s->sign, (const char *)bufs[0] + begin * s->cols, n,
                                         s->cols, sums);
        ru_kern_best()->dequantize(RU_I32, sums, s->scale, s->zero, real, n);
        ru_kern_best()->quantize(real, 1, s->y_zero, s->t, (char *)bufs[1] + begin, n);
    }
}

static ru_status mean_run(void *state, void *const *bufs, const rui_run *run)
{
    const mean_state *s = state;
    rui_kern_for(run, mean_part, s, bufs, s->rows, rui_kern_grain(s->cols));
    return RU_OK;
}

ru_status rui_lower_kern_mean_int8(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    mean_state *s = rui_keep(lo, (int64_t)sizeof *s);
    int64_t cols = rui_dims(x, 2, x->rank);
    if (cols <= 0 || cols > 65536) { /* a sum is below 2^24: f32 holds it */
        return RU_E_UNSUPPORTED;
    }
    if (s == NULL) {
        return rui_done(lo);
    }
    double to = ru_node_float(n, RU_ATTR_x_scale, 1) / ru_node_float(n, RU_ATTR_y_scale, 1);
    *s = (mean_state){.t = rui_type(lo, n->out[0])->dtype,
                      .rows = rui_dims(x, 0, 2),
                      .cols = cols,
                      .sign = x->dtype == RU_I8,
                      .scale = (float)(to / (double)cols),
                      .zero = (float)(cols * ru_node_int(n, RU_ATTR_x_zero, 0)),
                      .y_zero = (float)ru_node_int(n, RU_ATTR_y_zero, 0)};
    rui_buf bufs[2] = {rui_in_plain(lo, n->in[0]), rui_out_plain(lo, n->out[0])};
    rui_emit(
        lo, &(rui_step){
                .kernel = "kern mean int8", .fn = mean_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}
