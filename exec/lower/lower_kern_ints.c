/* Arithmetic, comparison and logic of whole numbers and truth values, with broadcasting; Not,
 * IsNaN, IsInf. Whole numbers wrap; a division by 0 is an error of the data. */
#include <math.h>
#include <string.h>

#include "exec/lower/lower_kern.h"

typedef enum int_op {
    I_ADD,
    I_SUB,
    I_MUL,
    I_DIV,
    I_MOD,
    I_FMOD,
    I_MAX,
    I_MIN,
    I_AND,
    I_OR,
    I_XOR,
    I_EQUAL,
    I_GREATER,
    I_GREATER_EQUAL,
    I_LESS,
    I_LESS_EQUAL,
    I_POW,
    I_LEFT,
    I_RIGHT,
} int_op;

static const struct {
    ru_op op;
    int_op is;
    bool compares, truth; /* gives truth values; takes them too */
} rows[] = {
    {RU_OP_Add, I_ADD, false, false},        {RU_OP_Sub, I_SUB, false, false},
    {RU_OP_Mul, I_MUL, false, false},        {RU_OP_Div, I_DIV, false, false},
    {RU_OP_Mod, I_MOD, false, false},        {RU_OP_Max, I_MAX, false, false},
    {RU_OP_Min, I_MIN, false, false},        {RU_OP_And, I_AND, false, true},
    {RU_OP_Or, I_OR, false, true},           {RU_OP_Xor, I_XOR, false, true},
    {RU_OP_BitwiseAnd, I_AND, false, false}, {RU_OP_BitwiseOr, I_OR, false, false},
    {RU_OP_BitwiseXor, I_XOR, false, false}, {RU_OP_Equal, I_EQUAL, true, true},
    {RU_OP_Greater, I_GREATER, true, false}, {RU_OP_GreaterOrEqual, I_GREATER_EQUAL, true, false},
    {RU_OP_Less, I_LESS, true, false},       {RU_OP_LessOrEqual, I_LESS_EQUAL, true, false},
    {RU_OP_Pow, I_POW, false, false},        {RU_OP_BitShift, I_LEFT, false, false},
};

typedef struct int_state {
    int_op op;
    ru_dtype t;
    bool compares;
    uint32_t rank;
    int64_t dims[RU_RANK_MAX], sx[RU_RANK_MAX], sy[RU_RANK_MAX]; /* of the outer dims */
    int64_t rows, cols, step_x, step_y;                          /* steps of the last dim */
    int64_t n_y;
} int_state;

static int64_t floor_mod(int64_t a, int64_t b)
{
    int64_t r = b == -1 ? 0 : a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* By squaring; negative exponents give 0 except for bases 1 and -1. */
static int64_t power(int64_t x, int64_t y)
{
    if (y < 0) {
        return x == 1 ? 1 : (x == -1 ? (y % 2 == 0 ? 1 : -1) : 0);
    }
    uint64_t base = (uint64_t)x, r = 1;
    for (; y > 0; y >>= 1) {
        r = (y & 1) != 0 ? r * base : r;
        base *= base;
    }
    return (int64_t)r;
}

#define LOOP(T, to, f)                  \
    for (int64_t i = 0; i < n; i++) {   \
        T a = x[i * sx], b = y[i * sy]; \
        (to)[i] = f;                    \
    }                                   \
    break

/* One row: z[i] = x[i * sx] (op) y[i * sy]. U: the unsigned type, whose sums wrap. */
#define ROW(T, U, name)                                                                  \
    static void name(int_op op, const T *x, int64_t sx, const T *y, int64_t sy, void *z, \
                     int64_t n)                                                          \
    {                                                                                    \
        T *to = z;                                                                       \
        uint8_t *is = z;                                                                 \
        switch (op) {                                                                    \
        case I_ADD:                                                                      \
            LOOP(T, to, (T)((U)a + (U)b));                                               \
        case I_SUB:                                                                      \
            LOOP(T, to, (T)((U)a - (U)b));                                               \
        case I_MUL:                                                                      \
            LOOP(T, to, (T)((U)a * (U)b));                                               \
        case I_DIV:                                                                      \
            LOOP(T, to, b == (T)-1 ? (T)(0 - (U)a) : (T)(a / b));                        \
        case I_MOD:                                                                      \
            LOOP(T, to, (T)floor_mod((int64_t)a, (int64_t)b));                           \
        case I_FMOD:                                                                     \
            LOOP(T, to, b == (T)-1 ? 0 : (T)(a % b));                                    \
        case I_MAX:                                                                      \
            LOOP(T, to, a > b ? a : b);                                                  \
        case I_MIN:                                                                      \
            LOOP(T, to, a < b ? a : b);                                                  \
        case I_AND:                                                                      \
            LOOP(T, to, (T)(a & b));                                                     \
        case I_OR:                                                                       \
            LOOP(T, to, (T)(a | b));                                                     \
        case I_XOR:                                                                      \
            LOOP(T, to, (T)(a ^ b));                                                     \
        case I_EQUAL:                                                                    \
            LOOP(T, is, a == b);                                                         \
        case I_GREATER:                                                                  \
            LOOP(T, is, a > b);                                                          \
        case I_GREATER_EQUAL:                                                            \
            LOOP(T, is, a >= b);                                                         \
        case I_LESS:                                                                     \
            LOOP(T, is, a < b);                                                          \
        case I_LESS_EQUAL:                                                               \
            LOOP(T, is, a <= b);                                                         \
        case I_POW:                                                                      \
            LOOP(T, to, (T)(U)power((int64_t)a, (int64_t)b));                            \
        case I_LEFT:                                                                     \
        case I_RIGHT:                                                                    \
            break;                                                                       \
        }                                                                                \
    }

ROW(int64_t, uint64_t, row_i64)
ROW(int32_t, uint32_t, row_i32)

/* Bits of unsigned numbers; shifts by the width and more leave nothing. */
#define BITS(T, name)                                                                             \
    static void name(int_op op, const T *x, int64_t sx, const T *y, int64_t sy, T *to, int64_t n) \
    {                                                                                             \
        switch ((uint32_t)op) {                                                                   \
        case I_AND:                                                                               \
            LOOP(T, to, (T)(a & b));                                                              \
        case I_OR:                                                                                \
            LOOP(T, to, (T)(a | b));                                                              \
        case I_XOR:                                                                               \
            LOOP(T, to, (T)(a ^ b));                                                              \
        case I_LEFT:                                                                              \
            LOOP(T, to, (T)(b >= 64 ? 0 : (uint64_t)a << b));                                     \
        default:                                                                                  \
            LOOP(T, to, (T)(b >= 64 ? 0 : (uint64_t)a >> b));                                     \
        }                                                                                         \
    }

BITS(uint8_t, bits_u8)
BITS(uint16_t, bits_u16)
BITS(uint32_t, bits_u32)
BITS(uint64_t, bits_u64)

static bool bit_op(ru_op op)
{
    return op == RU_OP_BitwiseAnd || op == RU_OP_BitwiseOr || op == RU_OP_BitwiseXor ||
           op == RU_OP_BitShift;
}

/* Truth values only: no arithmetic. */
static void row_bool(int_op op, const uint8_t *x, int64_t sx, const uint8_t *y, int64_t sy,
                     uint8_t *z, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint8_t a = x[i * sx], b = y[i * sy];
        z[i] = op == I_AND  ? a & b
               : op == I_OR ? a | b
                            : (uint8_t)((a ^ b) ^ (op == I_EQUAL ? 1 : 0));
    }
}

static void int_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const int_state *s = state;
    int64_t bytes = ru_dtype_bytes(s->t), out = s->compares ? 1 : bytes;
    for (int64_t r = begin; r < end; r++) {
        int64_t x = 0, y = 0, row = r;
        for (uint32_t d = s->rank; d-- > 0;) {
            x += row % s->dims[d] * s->sx[d];
            y += row % s->dims[d] * s->sy[d];
            row /= s->dims[d];
        }
        const char *px = (const char *)bufs[0] + x * bytes, *py = (const char *)bufs[1] + y * bytes;
        void *pz = (char *)bufs[2] + r * s->cols * out;
        if (s->t == RU_I64) {
            row_i64(s->op, (const void *)px, s->step_x, (const void *)py, s->step_y, pz, s->cols);
        } else if (s->t == RU_I32) {
            row_i32(s->op, (const void *)px, s->step_x, (const void *)py, s->step_y, pz, s->cols);
        } else if (s->t == RU_U64) {
            bits_u64(s->op, (const void *)px, s->step_x, (const void *)py, s->step_y, pz, s->cols);
        } else if (s->t == RU_U32) {
            bits_u32(s->op, (const void *)px, s->step_x, (const void *)py, s->step_y, pz, s->cols);
        } else if (s->t == RU_U16) {
            bits_u16(s->op, (const void *)px, s->step_x, (const void *)py, s->step_y, pz, s->cols);
        } else if (s->t == RU_U8) {
            bits_u8(s->op, (const void *)px, s->step_x, (const void *)py, s->step_y, pz, s->cols);
        } else {
            row_bool(s->op, (const void *)px, s->step_x, (const void *)py, s->step_y, pz, s->cols);
        }
    }
}

static ru_status int_run(void *state, void *const *bufs, const rui_run *run)
{
    const int_state *s = state;
    bool divides = s->op == I_DIV || s->op == I_MOD || s->op == I_FMOD;
    for (int64_t i = 0; divides && i < s->n_y; i++) {
        int64_t y = s->t == RU_I64 ? ((const int64_t *)bufs[1])[i] : ((const int32_t *)bufs[1])[i];
        if (y == 0) {
            return RU_FAIL(run->err, RU_E_DATA, "an integer is divided by 0 (element %lld)",
                           (long long)i);
        }
    }
    rui_kern_for(run, int_part, s, bufs, s->rows, rui_kern_grain(s->cols));
    return RU_OK;
}

/* Steps of `t` along the dims of `to`, 0 where it repeats. */
static void steps_along(const ru_type *t, const ru_type *to, int64_t *step)
{
    int64_t at = 1;
    for (uint32_t d = to->rank; d-- > 0;) {
        uint32_t back = to->rank - d;
        int64_t dim = back <= t->rank ? t->dims[t->rank - back] : 1;
        step[d] = dim == 1 ? 0 : at;
        at *= dim;
    }
}

static void plan_rows(int_state *s, const ru_type *x, const ru_type *y, const ru_type *z)
{
    steps_along(x, z, s->sx);
    steps_along(y, z, s->sy);
    s->n_y = ru_type_count(y);
    s->rank = z->rank > 0 ? z->rank - 1 : 0;
    s->cols = z->rank > 0 ? z->dims[z->rank - 1] : 1;
    s->rows = rui_dims(z, 0, s->rank);
    s->step_x = z->rank > 0 ? s->sx[z->rank - 1] : 0;
    s->step_y = z->rank > 0 ? s->sy[z->rank - 1] : 0;
    for (uint32_t d = 0; d < s->rank; d++) {
        s->dims[d] = z->dims[d];
    }
}

static bool is_unsigned(ru_dtype t)
{
    return t == RU_U8 || t == RU_U16 || t == RU_U32 || t == RU_U64;
}

ru_status rui_lower_kern_ints(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    uint32_t k = 0;
    const ru_type *x = rui_type(lo, n->in[0]), *z = rui_type(lo, n->out[0]);
    while (k < RU_ARRAY_LEN(rows) && rows[k].op != n->op) {
        k++;
    }
    bool takes =
        k < RU_ARRAY_LEN(rows) && n->n_in == 2 &&
        (((x->dtype == RU_I64 || x->dtype == RU_I32) && n->op != RU_OP_BitShift) ||
         (x->dtype == RU_BOOL && rows[k].truth) || (is_unsigned(x->dtype) && bit_op(n->op))) &&
        rui_type(lo, n->in[1])->dtype == x->dtype;
    int_state *s = takes ? rui_keep(lo, (int64_t)sizeof *s) : NULL;
    if (s == NULL) {
        return takes ? rui_done(lo) : RU_E_UNSUPPORTED;
    }
    s->op = rows[k].is == I_MOD && ru_node_int(n, RU_ATTR_fmod, 0) != 0 ? I_FMOD : rows[k].is;
    if (n->op == RU_OP_BitShift && strcmp(ru_node_str(n, RU_ATTR_direction, ""), "LEFT") != 0) {
        s->op = I_RIGHT;
    }
    s->t = x->dtype;
    s->compares = rows[k].compares;
    plan_rows(s, x, rui_type(lo, n->in[1]), z);
    rui_buf bufs[3] = {rui_in_plain(lo, n->in[0]), rui_in_plain(lo, n->in[1]),
                       rui_out_plain(lo, n->out[0])};
    rui_emit(lo, &(rui_step){
                     .kernel = "kern ints", .fn = int_run, .state = s, .bufs = bufs, .n_bufs = 3});
    return rui_done(lo);
}

/* -- one input -----------------------------------------------------------------------------------
 */

typedef struct test_state {
    ru_op op;
    bool above, below; /* IsInf: which of both counts */
    int64_t n;
} test_state;

static void test_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const test_state *s = state;
    const uint8_t *b = bufs[0];
    const float *x = bufs[0];
    uint8_t *y = bufs[1];
    for (int64_t i = begin; s->op == RU_OP_Not && i < end; i++) {
        y[i] = b[i] == 0;
    }
    for (int64_t i = begin; s->op == RU_OP_IsNaN && i < end; i++) {
        y[i] = x[i] != x[i];
    }
    for (int64_t i = begin; s->op == RU_OP_IsInf && i < end; i++) {
        y[i] = (s->above && x[i] == INFINITY) || (s->below && x[i] == -INFINITY);
    }
}

static ru_status test_run(void *state, void *const *bufs, const rui_run *run)
{
    const test_state *s = state;
    rui_kern_for(run, test_part, s, bufs, s->n, 8192);
    return RU_OK;
}

ru_status rui_lower_kern_test(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    if (x->dtype != (n->op == RU_OP_Not ? RU_BOOL : RU_F32)) {
        return RU_E_UNSUPPORTED;
    }
    test_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s != NULL) {
        *s = (test_state){.op = n->op,
                          .above = ru_node_int(n, RU_ATTR_detect_positive, 1) != 0,
                          .below = ru_node_int(n, RU_ATTR_detect_negative, 1) != 0,
                          .n = ru_type_count(x)};
    }
    rui_buf bufs[2] = {rui_in_plain(lo, n->in[0]), rui_out_plain(lo, n->out[0])};
    rui_emit(lo, &(rui_step){
                     .kernel = "kern test", .fn = test_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}

/* -- floats to whole numbers ---------------------------------------------------------------------
 */

typedef struct cut_state {
    ru_dtype to;
    int64_t n;
} cut_state;

/* Toward zero; out of 64 bits: the nearest, then wrapped to the width asked for. */
static int64_t cut(float x)
{
    if (!(x > -9223372036854775808.0f)) {
        return INT64_MIN;
    }
    return x >= 9223372036854775808.0f ? INT64_MAX : (int64_t)x;
}

static void cut_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const cut_state *s = state;
    const float *x = bufs[0];
    for (int64_t i = begin; s->to == RU_I64 && i < end; i++) {
        ((int64_t *)bufs[1])[i] = cut(x[i]);
    }
    for (int64_t i = begin; s->to == RU_I32 && i < end; i++) {
        ((int32_t *)bufs[1])[i] = (int32_t)(uint32_t)(uint64_t)cut(x[i]);
    }
}

static ru_status cut_run(void *state, void *const *bufs, const rui_run *run)
{
    const cut_state *s = state;
    rui_kern_for(run, cut_part, s, bufs, s->n, 4096);
    return RU_OK;
}

ru_status rui_lower_kern_cut(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    if (x->dtype != RU_F32 || (y->dtype != RU_I64 && y->dtype != RU_I32)) {
        return RU_E_UNSUPPORTED;
    }
    cut_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s != NULL) {
        *s = (cut_state){y->dtype, ru_type_count(y)};
    }
    rui_buf bufs[2] = {rui_in_plain(lo, n->in[0]), rui_out_plain(lo, n->out[0])};
    rui_emit(lo, &(rui_step){
                     .kernel = "kern cut", .fn = cut_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}
