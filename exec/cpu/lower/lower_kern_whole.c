/* Whole numbers of any width, in blocks of 64-bit integers: casts from f64, Abs, Neg, Sign, Clip
 * and BitwiseNot, running sums. */
#include "exec/cpu/lower/lower_kern_whole.h"

#include "exec/cpu/kern/numbers.h"

#include <string.h>

enum { BLOCK = 512, PIECE = 2048 };

#define LOAD(T)                             \
    for (int64_t i = 0; i < n; i++) {       \
        to[i] = (int64_t)((const T *)x)[i]; \
    }                                       \
    break

void rui_wholes_load(ru_dtype t, const void *x, int64_t n, int64_t *to)
{
    switch ((uint32_t)t) {
    case RU_I8:
        LOAD(int8_t);
    case RU_U8:
    case RU_BOOL:
        LOAD(uint8_t);
    case RU_I16:
        LOAD(int16_t);
    case RU_U16:
        LOAD(uint16_t);
    case RU_I32:
        LOAD(int32_t);
    case RU_U32:
        LOAD(uint32_t);
    case RU_I64:
    case RU_U64:
        memcpy(to, x, (size_t)n * sizeof *to);
        break;
    default:
        RU_CHECK(false);
    }
}

/* -- casts ---------------------------------------------------------------------------------------
 */

/* To u64, toward zero, as bits; beyond 64 bits the nearest, NaN the least of i64. */
static uint64_t cut_u64(double x)
{
    const double half = 9223372036854775808.0; /* 2^63 */
    if (x >= half) {
        return x >= 2.0 * half ? UINT64_MAX : (uint64_t)x;
    }
    return x > -half ? (uint64_t)(int64_t)x : (uint64_t)INT64_MIN;
}

typedef struct turn_state {
    ru_dtype to;
    int64_t n;
} turn_state;

static void turn_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const turn_state *s = state;
    const double *x = bufs[0];
    if (s->to != RU_U64) {
        int64_t bytes = ru_dtype_bytes(s->to);
        ru_kern_numbers_best()->cut(x + begin, bytes, (char *)bufs[1] + begin * bytes, end - begin);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        ((uint64_t *)bufs[1])[i] = cut_u64(x[i]);
    }
}

static ru_status turn_run(void *state, void *const *bufs, const rui_run *run)
{
    const turn_state *s = state;
    rui_kern_for(run, turn_part, s, bufs, s->n, 4096);
    return RU_OK;
}

/* From f64 to whole numbers; all other pairs are rui_lower_kern_cast's. */
ru_status rui_lower_kern_turn(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    ru_dtype to = rui_type(lo, n->out[0])->dtype;
    if (rui_type(lo, n->in[0])->dtype != RU_F64 || !rui_is_whole(to) || to == RU_BOOL) {
        return RU_E_UNSUPPORTED;
    }
    turn_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (turn_state){to, ru_type_count(rui_type(lo, n->out[0]))};
    rui_buf bufs[2] = {rui_in_plain(lo, n->in[0]), rui_out_plain(lo, n->out[0])};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern cast f64", .fn = turn_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}

/* -- one operand ---------------------------------------------------------------------------------
 */

typedef struct whole_state {
    const ru_kern *k;
    ru_op op;
    ru_dtype t;
    int64_t n;
} whole_state;

/* y[i] = f(x[i], by). */
static void whole_with(const whole_state *s, ru_kern_whole f, const void *x, const void *by,
                       void *y, int64_t n)
{
    s->k->whole2(f, s->t, x, 1, by, 0, y, n);
}

static void clip(const whole_state *s, const void *x, const void *low, const void *high, void *y,
                 int64_t n)
{
    const void *from = x;
    if (low != NULL) {
        whole_with(s, RU_KERN_WHOLE_MAX, from, low, y, n);
        from = y;
    }
    if (high != NULL) {
        whole_with(s, RU_KERN_WHOLE_MIN, from, high, y, n);
        from = y;
    }
    if (from == x) {
        memcpy(y, x, (size_t)(n * ru_dtype_bytes(s->t)));
    }
}

/* bufs: x y low high, both of which may be absent */
static void whole_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const whole_state *s = state;
    const int64_t bytes = ru_dtype_bytes(s->t), one = 1, all = -1, zero = 0;
    const bool negative = s->t == RU_I8 || s->t == RU_I16 || s->t == RU_I32 || s->t == RU_I64;
    for (int64_t b = begin, n; b < end; b += n) {
        n = end - b < PIECE ? end - b : PIECE;
        const void *x = (const char *)bufs[0] + b * bytes;
        void *y = (char *)bufs[1] + b * bytes;
        switch ((uint32_t)s->op) {
        case RU_OP_BitwiseNot:
            whole_with(s, RU_KERN_WHOLE_XOR, x, &all, y, n);
            break;
        case RU_OP_Neg:
            s->k->whole2(RU_KERN_WHOLE_SUB, s->t, &zero, 0, x, 1, y, n);
            break;
        case RU_OP_Abs: /* the larger of x and -x (or 0) */
            s->k->whole2(RU_KERN_WHOLE_SUB, s->t, negative ? &zero : x, negative ? 0 : 1, x, 1, y,
                         n);
            s->k->whole2(RU_KERN_WHOLE_MAX, s->t, x, 1, y, 1, y, n);
            break;
        case RU_OP_Sign:
            whole_with(s, RU_KERN_WHOLE_MIN, x, &one, y, n);
            whole_with(s, RU_KERN_WHOLE_MAX, y, negative ? &all : &zero, y, n);
            break;
        default:
            clip(s, x, bufs[2], bufs[3], y, n);
            break;
        }
    }
}

static ru_status whole_run(void *state, void *const *bufs, const rui_run *run)
{
    const whole_state *s = state;
    rui_kern_for(run, whole_part, s, bufs, s->n, 4096);
    return RU_OK;
}

ru_status rui_lower_kern_whole(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    bool fits = rui_is_whole(x->dtype) && x->dtype != RU_BOOL;
    whole_state *s = fits ? rui_keep(lo, (int64_t)sizeof *s) : NULL;
    if (s == NULL) {
        return fits ? rui_done(lo) : RU_E_UNSUPPORTED;
    }
    *s = (whole_state){ru_kern_best(), n->op, x->dtype, ru_type_count(x)};
    rui_buf bufs[4] = {rui_in_plain(lo, n->in[0]), rui_out_plain(lo, n->out[0])};
    for (uint32_t k = 1; k <= 2; k++) {
        bufs[1 + k] = ru_node_has_in(n, k) ? rui_in_plain(lo, n->in[k]) : (rui_buf){0};
    }
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern whole", .fn = whole_run, .state = s, .bufs = bufs, .n_bufs = 4});
    return rui_done(lo);
}

/* -- along an axis -------------------------------------------------------------------------------
 */

typedef struct along_state {
    ru_dtype t;
    int64_t outer, dim, inner;
    bool exclusive, reverse;
} along_state;

static int64_t whole_at(const along_state *s, const void *x, int64_t i)
{
    return s->t == RU_I64 ? ((const int64_t *)x)[i] : ((const int32_t *)x)[i];
}

static void sum_line(const along_state *s, const void *x, void *y, int64_t at)
{
    uint64_t sum = 0;
    for (int64_t k = 0; k < s->dim; k++) {
        int64_t i = at + (s->reverse ? s->dim - 1 - k : k) * s->inner;
        uint64_t v = (uint64_t)whole_at(s, x, i), now = s->exclusive ? sum : sum + v;
        sum += v;
        if (s->t == RU_I64) {
            ((uint64_t *)y)[i] = now;
        } else {
            ((uint32_t *)y)[i] = (uint32_t)now;
        }
    }
}

static void along_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const along_state *s = state;
    for (int64_t l = begin; l < end; l++) {
        int64_t at = l / s->inner * s->dim * s->inner + l % s->inner;
        sum_line(s, bufs[0], bufs[1], at);
    }
}

static ru_status along_run(void *state, void *const *bufs, const rui_run *run)
{
    const along_state *s = state;
    rui_kern_for(run, along_part, s, bufs, s->outer * s->inner, rui_kern_grain(s->dim));
    return RU_OK;
}

/* CumSum of whole numbers. */
ru_status rui_lower_kern_along(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    const ru_value *given = &rui_graph(lo)->values[n->in[1].v];
    int64_t axis = 0;
    if (given->kind != RU_VALUE_CONST || given->data == NULL || ru_type_count(&given->type) != 1 ||
        !rui_is_whole(given->type.dtype)) {
        return RU_E_UNSUPPORTED;
    }
    rui_wholes_load(given->type.dtype, given->data, 1, &axis);
    if ((x->dtype != RU_I64 && x->dtype != RU_I32) || ru_type_count(x) <= 0 ||
        rui_axis(axis, x->rank) >= x->rank) {
        return RU_E_UNSUPPORTED;
    }
    along_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    uint32_t a = rui_axis(axis, x->rank);
    *s = (along_state){.t = x->dtype,
                       .outer = rui_dims(x, 0, a),
                       .dim = x->dims[a],
                       .inner = rui_dims(x, a + 1, x->rank),
                       .exclusive = ru_node_int(n, RU_ATTR_exclusive, 0) != 0,
                       .reverse = ru_node_int(n, RU_ATTR_reverse, 0) != 0};
    rui_buf bufs[2] = {rui_in_plain(lo, n->in[0]), rui_out_plain(lo, n->out[0])};
    rui_emit(
        lo,
        &(rui_step){
            .kernel = "kern along axis", .fn = along_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}
