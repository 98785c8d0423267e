/* Arithmetic, comparison and logic of whole numbers and truth values, with broadcasting; Not,
 * IsNaN, IsInf. Whole numbers wrap; a division by 0 is an error of the data. */
#include <string.h>

#include "exec/cpu/lower/lower_kern_whole.h"
#include "exec/cpu/lower/lower_spread.h"

static const struct {
    ru_op op;
    ru_kern_whole is;
    bool turned, truth; /* operands change places; takes truth values too */
} rows[] = {
    {RU_OP_Add, RU_KERN_WHOLE_ADD, false, false},
    {RU_OP_Sub, RU_KERN_WHOLE_SUB, false, false},
    {RU_OP_Mul, RU_KERN_WHOLE_MUL, false, false},
    {RU_OP_Div, RU_KERN_WHOLE_DIV, false, false},
    {RU_OP_Mod, RU_KERN_WHOLE_MOD, false, false},
    {RU_OP_Max, RU_KERN_WHOLE_MAX, false, false},
    {RU_OP_Min, RU_KERN_WHOLE_MIN, false, false},
    {RU_OP_Pow, RU_KERN_WHOLE_POW, false, false},
    {RU_OP_And, RU_KERN_WHOLE_AND, false, true},
    {RU_OP_Or, RU_KERN_WHOLE_OR, false, true},
    {RU_OP_Xor, RU_KERN_WHOLE_XOR, false, true},
    {RU_OP_BitwiseAnd, RU_KERN_WHOLE_AND, false, false},
    {RU_OP_BitwiseOr, RU_KERN_WHOLE_OR, false, false},
    {RU_OP_BitwiseXor, RU_KERN_WHOLE_XOR, false, false},
    {RU_OP_BitShift, RU_KERN_WHOLE_LEFT, false, false},
    {RU_OP_Equal, RU_KERN_WHOLE_EQUAL, false, true},
    {RU_OP_Less, RU_KERN_WHOLE_LESS, false, false},
    {RU_OP_LessOrEqual, RU_KERN_WHOLE_LESS_EQUAL, false, false},
    {RU_OP_Greater, RU_KERN_WHOLE_LESS, true, false},
    {RU_OP_GreaterOrEqual, RU_KERN_WHOLE_LESS_EQUAL, true, false},
};

typedef struct int_state {
    const ru_kern *k;
    ru_kern_whole op;
    ru_dtype t;
    int64_t bytes;
    rui_spread at;
    int64_t n_y;
} int_state;

static void int_piece(const void *state, void *const *at, const int64_t *step, int64_t n)
{
    const int_state *s = state;
    s->k->whole2(s->op, s->t, at[0], step[0], at[1], step[1], at[2], n);
}

/* Is one of n whole numbers 0? Where? */
static int64_t zero_at(const int_state *s, const void *y)
{
    uint8_t is[512];
    const uint64_t zero = 0;
    for (int64_t i = 0; i < s->n_y; i += (int64_t)sizeof is) {
        int64_t n = s->n_y - i < (int64_t)sizeof is ? s->n_y - i : (int64_t)sizeof is;
        s->k->whole2(RU_KERN_WHOLE_EQUAL, s->t, (const char *)y + i * s->bytes, 1, &zero, 0, is, n);
        const uint8_t *found = memchr(is, 1, (size_t)n);
        if (found != NULL) {
            return i + (found - is);
        }
    }
    return -1;
}

static ru_status int_run(void *state, void *const *bufs, const rui_run *run)
{
    const int_state *s = state;
    bool divides =
        s->op == RU_KERN_WHOLE_DIV || s->op == RU_KERN_WHOLE_MOD || s->op == RU_KERN_WHOLE_FMOD;
    int64_t zero = divides ? zero_at(s, bufs[1]) : -1;
    if (zero >= 0) {
        return RU_FAIL(run->err, RU_E_DATA, "an integer is divided by 0 (element %lld)",
                       (long long)zero);
    }
    rui_spread_run(run, &s->at, int_piece, s, bufs);
    return RU_OK;
}

static bool is_unsigned(ru_dtype t)
{
    return t == RU_U8 || t == RU_U16 || t == RU_U32 || t == RU_U64;
}

ru_status rui_lower_kern_ints(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    uint32_t k = 0;
    ru_dtype t = rui_type(lo, n->in[0])->dtype;
    while (k < RU_ARRAY_LEN(rows) && rows[k].op != n->op) {
        k++;
    }
    bool takes = k < RU_ARRAY_LEN(rows) && n->n_in == 2 && rui_is_whole(t) &&
                 rui_type(lo, n->in[1])->dtype == t &&
                 (t == RU_BOOL ? rows[k].truth : n->op != RU_OP_BitShift || is_unsigned(t));
    int_state *s = takes ? rui_keep(lo, (int64_t)sizeof *s) : NULL;
    if (s == NULL) {
        return takes ? rui_done(lo) : RU_E_UNSUPPORTED;
    }
    *s = (int_state){.k = ru_kern_best(), .op = rows[k].is, .t = t, .bytes = ru_dtype_bytes(t)};
    if (n->op == RU_OP_Mod && ru_node_int(n, RU_ATTR_fmod, 0) != 0) {
        s->op = RU_KERN_WHOLE_FMOD;
    }
    if (n->op == RU_OP_BitShift && strcmp(ru_node_str(n, RU_ATTR_direction, ""), "LEFT") != 0) {
        s->op = RU_KERN_WHOLE_RIGHT;
    }
    ru_value_id x = n->in[rows[k].turned ? 1 : 0], y = n->in[rows[k].turned ? 0 : 1];
    const ru_type *types[] = {rui_type(lo, x), rui_type(lo, y)};
    rui_spread_plan(&s->at, rui_type(lo, n->out[0]), types, 2);
    s->n_y = ru_type_count(types[1]);
    rui_buf bufs[3] = {rui_in_plain(lo, x), rui_in_plain(lo, y), rui_out_plain(lo, n->out[0])};
    rui_emit(lo, &(rui_step){
                     .kernel = "kern ints", .fn = int_run, .state = s, .bufs = bufs, .n_bufs = 3});
    return rui_done(lo);
}

/* -- one input -----------------------------------------------------------------------------------
 */

/* Is low <= (x & mask) <= high, of the bits of x? */
typedef struct test_state {
    const ru_kern *k;
    int64_t bytes, n;
    uint64_t mask, low, high;
} test_state;

static void test_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const test_state *s = state;
    s->k->bits_within(s->bytes, s->mask, s->low, s->high, (const char *)bufs[0] + begin * s->bytes,
                      (uint8_t *)bufs[1] + begin, end - begin);
}

static ru_status test_run(void *state, void *const *bufs, const rui_run *run)
{
    const test_state *s = state;
    rui_kern_for(run, test_part, s, bufs, s->n, 8192);
    return RU_OK;
}

/* The bits of infinity; 0: no float. */
static uint64_t infinity_of(ru_dtype t)
{
    return t == RU_F32    ? 0x7f800000u
           : t == RU_F64  ? 0x7ff0000000000000u
           : t == RU_F16  ? 0x7c00u
           : t == RU_BF16 ? 0x7f80u
                          : 0;
}

/* Which bits IsNaN and IsInf look for: the sign matters where only one infinity counts. */
static void float_test(const ru_node *n, uint64_t infinity, test_state *s)
{
    uint64_t sign = 1ull << (8 * s->bytes - 1), size = sign - 1;
    bool above = ru_node_int(n, RU_ATTR_detect_positive, 1) != 0;
    bool below = ru_node_int(n, RU_ATTR_detect_negative, 1) != 0;
    if (n->op == RU_OP_IsNaN) {
        s->mask = s->high = size;
        s->low = infinity + 1;
    } else if (above || below) {
        s->mask = above && below ? size : sign | size;
        s->low = s->high = above ? infinity : sign | infinity;
    } else {
        s->mask = 0; /* of no bits: never */
        s->low = s->high = 1;
    }
}

ru_status rui_lower_kern_test(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    uint64_t infinity = infinity_of(x->dtype);
    if (n->op == RU_OP_Not ? x->dtype != RU_BOOL : infinity == 0) {
        return RU_E_UNSUPPORTED;
    }
    test_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (test_state){.k = ru_kern_best(), .bytes = ru_dtype_bytes(x->dtype), .mask = 0xff};
    s->n = ru_type_count(x);
    if (n->op != RU_OP_Not) {
        float_test(n, infinity, s);
    }
    rui_buf bufs[2] = {rui_in_plain(lo, n->in[0]), rui_out_plain(lo, n->out[0])};
    rui_emit(lo, &(rui_step){
                     .kernel = "kern test", .fn = test_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}
