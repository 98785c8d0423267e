/* Whole numbers, truth values and tests of floats: every type, every way to broadcast, any bits,
 * against the reference kernels. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/exe.h"
#include "test/test.h"
#include "world/graph/build.h"

typedef struct net {
    ru_arena arena;
    ru_graph g;
    ru_build b;
    ru_err err;
} net;

static void net_init(net *t)
{
    memset(t, 0, sizeof *t);
    ru_arena_init(&t->arena, 0);
    assert_ok(ru_graph_init(&t->g, &t->arena, "whole", &t->err), t->err);
    ru_build_init(&t->b, &t->g);
}

static uint64_t bits_of(uint64_t seed, int64_t i)
{
    uint64_t x = ((uint64_t)i + seed * 0x9E3779B97F4A7C15U) * 0xBF58476D1CE4E5B9U;
    x ^= x >> 29;
    x *= 0x94D049BB133111EBU;
    return x ^ x >> 32;
}

/* What the numbers of an input are. */
typedef enum kind { ANY_BITS, SMALL, NOT_ZERO, INFINITIES, TO_2_70, TIES, LARGE } kind;

static uint64_t infinity_of(ru_dtype t)
{
    return t == RU_F32 ? 0x7f800000u : t == RU_F16 ? 0x7c00u : 0x7ff0000000000000u;
}

/* Halfway between two neighbours of f16 or bf16, or the least away from it, of every size. */
static uint64_t near_tie(ru_dtype t, uint64_t v)
{
    uint64_t high = v & (v >> 40 & 1 ? 0xfff : 0x1ff), off = (v >> 32) % 3 - 1;
    if (t == RU_F64) {
        uint64_t size = v >> 41 & 1 ? 1023 - 30 + (v >> 16) % 50 : 1023 - 160 + (v >> 16) % 300;
        return (v >> 63 << 63 | size << 52 | high << (v >> 40 & 1 ? 40 : 43)) + off;
    }
    return (high << (v >> 16) % (8 * (uint64_t)ru_dtype_bytes(t))) + off;
}

static void fill(void *p, const ru_type *t, kind what, uint64_t seed)
{
    int64_t n = ru_type_count(t), bytes = ru_dtype_bytes(t->dtype);
    for (int64_t i = 0; i < n; i++) {
        uint64_t v = bits_of(seed, i);
        if (v >> 60 == 0) { /* the ends of every range, often */
            v = (v & 1) != 0 ? ~0ull : 1ull << (8 * bytes - 1);
        }
        v = t->dtype == RU_BOOL ? v % 2 : what == SMALL ? v % 70 : v;
        v = what == NOT_ZERO && (v << (64 - 8 * bytes)) == 0 ? 3 : v;
        if (what == INFINITIES && v % 3 == 0) { /* or the NaN beside them */
            v = (v >> 2 & 1) << (8 * bytes - 1) | (infinity_of(t->dtype) + (v >> 3 & 1));
        }
        if (what == TO_2_70) { /* 1 to 2^70 in size */
            v = t->dtype == RU_F64 ? v >> 63 << 63 | (1023 + v % 70) << 52 | (v << 8) >> 12
                                   : (v >> 31 & 1) << 31 | (127 + v % 70) << 23 | (v & 0x7fffffu);
        }
        v = what == TIES ? near_tie(t->dtype, v) : v;
        v = what == LARGE && bytes == 8 ? v << 25 : v; /* sums of 2^14 are exact in double */
        float f = (float)(int64_t)(v % 2000) / 7.0f - 140.0f;
        double wide = (double)f;
        memcpy((char *)p + i * bytes,
               what == SMALL && t->dtype == RU_F32   ? (const void *)&f
               : what == SMALL && t->dtype == RU_F64 ? (const void *)&wide
                                                     : (const void *)&v,
               (size_t)bytes);
    }
}

/* Run on both devices, one thread and three, and compare: floats within tol, all else by bits. */
static void same_as_reference(net *t, kind first, kind others, double tol, const char *name)
{
    assert_ok(ru_build_finish(&t->b, &t->err), t->err);
    ru_value_id y = t->g.outputs[0];
    const ru_type *type = &t->g.values[y.v].type;
    ru_exe *e[3] = {NULL};
    for (uint32_t k = 0; k < 3; k++) {
        ru_exe_options opt = {.device = k == 0 ? RU_DEVICE_REF : RU_DEVICE_CPU,
                              .threads = k == 2 ? 3 : 1};
        assert_ok(ru_exe_open(&t->g, &opt, &e[k], &t->err), t->err);
        for (uint32_t i = 0; i < t->g.n_inputs; i++) {
            fill(ru_exe_input(e[k], t->g.inputs[i]), &t->g.values[t->g.inputs[i].v].type,
                 i == 0 ? first : others, i + 1);
        }
        assert_ok(ru_exe_run(e[k], NULL, &t->err), t->err);
        ru_exe_stats s;
        ru_exe_stats_get(e[k], &s);
        if (k > 0 && s.n_slow != 0) {
            fail_msg("%s runs on reference kernels: %s", name, s.slow);
        }
        const float *a = ru_exe_output(e[k], y), *b = ru_exe_output(e[0], y);
        const double *c = ru_exe_output(e[k], y), *d = ru_exe_output(e[0], y);
        bool wide = type->dtype == RU_F64 && tol > 0;
        bool same = type->dtype == RU_F32 || wide || memcmp(a, b, (size_t)ru_type_bytes(type)) == 0;
        for (int64_t i = 0; wide && i < ru_type_count(type); i++) {
            same = same && fabs(c[i] - d[i]) <= tol * (1.0 + fabs(d[i]));
        }
        for (int64_t i = 0; type->dtype == RU_F32 && i < ru_type_count(type); i++) {
            same = same && fabs((double)a[i] - (double)b[i]) <= tol * (1.0 + fabs((double)b[i]));
        }
        if (!same) {
            fail_msg("%s: differs from the reference (%u)", name, k);
        }
    }
    for (uint32_t k = 0; k < 3; k++) {
        ru_exe_close(e[k]);
    }
    ru_arena_fini(&t->arena);
}

typedef struct shape {
    uint32_t rank;
    int64_t dims[4];
} shape;

/* How two operands meet: rows of one element, of a vector and more, of more than a block. */
static const shape pairs[][2] = {
    {{2, {3, 700}}, {2, {3, 700}}},     {{3, {5, 7, 33}}, {1, {33}}},
    {{3, {5, 7, 33}}, {3, {5, 7, 1}}},  {{2, {3, 1025}}, {0, {0}}},
    {{1, {1}}, {2, {2, 2049}}},         {{3, {4, 1, 65}}, {3, {1, 9, 1}}},
    {{3, {6, 1, 1}}, {3, {6, 5, 1}}},   {{0, {0}}, {0, {0}}},
    {{4, {2, 3, 1, 17}}, {2, {5, 17}}}, {{2, {0, 4}}, {1, {4}}},
};

static const ru_dtype wholes[] = {RU_I8, RU_U8, RU_I16, RU_U16, RU_I32, RU_U32, RU_I64, RU_U64};

typedef struct two_case {
    ru_op op;
    bool whole, truth; /* takes whole numbers; takes truth values */
    kind others;
    ru_attr attr[2];
} two_case;

static const two_case twos[] = {
    {RU_OP_Add, true, false, ANY_BITS, {RU_A_END}},
    {RU_OP_Sub, true, false, ANY_BITS, {RU_A_END}},
    {RU_OP_Mul, true, false, ANY_BITS, {RU_A_END}},
    {RU_OP_Div, true, false, NOT_ZERO, {RU_A_END}},
    {RU_OP_Mod, true, false, NOT_ZERO, {RU_A_END}},
    {RU_OP_Mod, true, false, NOT_ZERO, {RU_AI(fmod, 1), RU_A_END}},
    {RU_OP_Pow, true, false, SMALL, {RU_A_END}},
    {RU_OP_Max, true, false, ANY_BITS, {RU_A_END}},
    {RU_OP_Min, true, false, ANY_BITS, {RU_A_END}},
    {RU_OP_BitwiseAnd, true, false, ANY_BITS, {RU_A_END}},
    {RU_OP_BitwiseOr, true, false, ANY_BITS, {RU_A_END}},
    {RU_OP_BitwiseXor, true, false, ANY_BITS, {RU_A_END}},
    {RU_OP_BitShift, true, false, SMALL, {RU_AS(direction, "LEFT"), RU_A_END}},
    {RU_OP_BitShift, true, false, SMALL, {RU_AS(direction, "RIGHT"), RU_A_END}},
    {RU_OP_And, false, true, ANY_BITS, {RU_A_END}},
    {RU_OP_Or, false, true, ANY_BITS, {RU_A_END}},
    {RU_OP_Xor, false, true, ANY_BITS, {RU_A_END}},
    {RU_OP_Equal, true, true, SMALL, {RU_A_END}},
    {RU_OP_Less, true, false, ANY_BITS, {RU_A_END}},
    {RU_OP_LessOrEqual, true, false, SMALL, {RU_A_END}},
    {RU_OP_Greater, true, false, ANY_BITS, {RU_A_END}},
    {RU_OP_GreaterOrEqual, true, false, SMALL, {RU_A_END}},
};

static void two_operands(const two_case *c, ru_dtype type, const shape *x, const shape *y)
{
    char name[64];
    net t;
    net_init(&t);
    ru_value_id a = ru_build_input(&t.b, "x", ru_type_make(type, x->rank, x->dims));
    ru_value_id b = ru_build_input(&t.b, "y", ru_type_make(type, y->rank, y->dims));
    ru_build_output(&t.b, ru_build_op2(&t.b, c->op, a, b, c->attr), "z");
    snprintf(name, sizeof name, "%s of %s, rank %u and %u", ru_op_get(c->op)->name,
             ru_dtype_name(type), x->rank, y->rank);
    kind first =
        c->others == SMALL && c->op != RU_OP_Pow && c->op != RU_OP_BitShift ? SMALL : ANY_BITS;
    same_as_reference(&t, first, c->others, 0, name);
}

static void whole_numbers_of_every_type(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(twos) * RU_ARRAY_LEN(pairs); k++) {
        const two_case *c = &twos[k % RU_ARRAY_LEN(twos)];
        const shape *p = pairs[k / RU_ARRAY_LEN(twos)];
        /* every type with every op; and every type with every shape, in turn */
        for (uint32_t i = 0; c->whole && i < RU_ARRAY_LEN(wholes); i++) {
            bool is_signed = i % 2 == 0;
            if ((c->op != RU_OP_BitShift || !is_signed) &&
                (k / RU_ARRAY_LEN(twos) == 0 || (k + i) % 4 == 0)) {
                two_operands(c, wholes[i], &p[0], &p[1]);
            }
        }
        if (c->truth) {
            two_operands(c, RU_BOOL, &p[0], &p[1]);
        }
    }
}

static void one_operand_of_every_type(void **state)
{
    (void)state;
    static const ru_op ops[] = {RU_OP_Abs, RU_OP_Neg, RU_OP_Sign, RU_OP_BitwiseNot, RU_OP_Clip};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ops) * RU_ARRAY_LEN(wholes); k++) {
        ru_op op = ops[k / RU_ARRAY_LEN(wholes)];
        ru_dtype type = wholes[k % RU_ARRAY_LEN(wholes)];
        for (int64_t n = 5; n < 3000; n += 2900) {
            char name[64];
            net t;
            net_init(&t);
            ru_value_id in[3] = {ru_build_input(&t.b, "x", ru_type_make(type, 1, &n))};
            for (uint32_t i = 1; op == RU_OP_Clip && i < 3; i++) {
                in[i] = ru_build_input(&t.b, i == 1 ? "low" : "high", ru_type_make(type, 0, NULL));
            }
            ru_value_id y;
            ru_build_node(&t.b, op, in, op == RU_OP_Clip ? 3 : 1, NULL, &y, 1);
            ru_build_output(&t.b, y, "y");
            snprintf(name, sizeof name, "%s of %s", ru_op_get(op)->name, ru_dtype_name(type));
            same_as_reference(&t, ANY_BITS, SMALL, 0, name);
        }
    }
}

static void tests_of_one_operand(void **state)
{
    (void)state;
    static const ru_dtype types[] = {RU_F32, RU_F64, RU_F16};
    static const ru_op ops[] = {RU_OP_IsInf, RU_OP_IsInf, RU_OP_IsInf,
                                RU_OP_IsInf, RU_OP_IsNaN, RU_OP_Not};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(types) * RU_ARRAY_LEN(ops); k++) {
        const ru_attr ends[] = {RU_AI(detect_positive, k / 3 % 2), RU_AI(detect_negative, k / 6),
                                RU_A_END};
        ru_op op = ops[k / 3];
        ru_dtype type = op == RU_OP_Not ? RU_BOOL : types[k % 3];
        for (int64_t n = 3; n < 3000; n += 2996) {
            char name[64];
            net t;
            net_init(&t);
            ru_value_id x = ru_build_input(&t.b, "x", ru_type_make(type, 1, &n));
            ru_build_output(&t.b, ru_build_op1(&t.b, op, x, op == RU_OP_IsInf ? ends : NULL), "y");
            snprintf(name, sizeof name, "%s of %s", ru_op_get(op)->name, ru_dtype_name(type));
            same_as_reference(&t, op == RU_OP_Not ? ANY_BITS : INFINITIES, ANY_BITS, 0, name);
        }
    }
}

/* From floats of every size, NaN and infinities among them. */
static void floats_become_whole_numbers(void **state)
{
    (void)state;
    static const ru_dtype types[] = {RU_F32, RU_F64, RU_F16};
    static const kind kinds[] = {ANY_BITS, INFINITIES, TO_2_70};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(types) * RU_ARRAY_LEN(kinds); k++) {
        ru_dtype from = types[k % 3];
        for (uint32_t i = 0; i <= RU_ARRAY_LEN(wholes); i++) {
            ru_dtype type = i < RU_ARRAY_LEN(wholes) ? wholes[i] : RU_BOOL;
            const ru_attr to[] = {RU_AI(to, ru_dtype_onnx(type)), RU_A_END};
            char name[64];
            net t;
            net_init(&t);
            ru_value_id x = ru_build_input(&t.b, "x", ru_type_make(from, 1, (int64_t[]){2900}));
            ru_build_output(&t.b, ru_build_op1(&t.b, RU_OP_Cast, x, to), "y");
            snprintf(name, sizeof name, "%s to %s", ru_dtype_name(from), ru_dtype_name(type));
            same_as_reference(&t, from == RU_F16 && k / 3 == 2 ? ANY_BITS : kinds[k / 3], ANY_BITS,
                              0, name);
        }
    }
}

/* Every pair of types, f32 apart, rounded once. */
static void casts_of_every_pair(void **state)
{
    (void)state;
    static const ru_dtype types[] = {RU_F64, RU_F16, RU_BF16, RU_BOOL, RU_I8,  RU_U8,
                                     RU_I16, RU_U16, RU_I32,  RU_U32,  RU_I64, RU_U64};
    const uint32_t count = RU_ARRAY_LEN(types);
    for (uint32_t k = 0; k < count * count * 2; k++) {
        ru_dtype from = types[k % count], type = types[k / count % count];
        bool ties = k >= count * count;
        if (from == type || (ties && ru_dtype_bytes(from) < 4)) {
            continue;
        }
        const ru_attr to[] = {RU_AI(to, ru_dtype_onnx(type)), RU_A_END};
        char name[64];
        net t;
        net_init(&t);
        ru_value_id x = ru_build_input(&t.b, "x", ru_type_make(from, 1, (int64_t[]){29011}));
        ru_build_output(&t.b, ru_build_op1(&t.b, RU_OP_Cast, x, to), "y");
        snprintf(name, sizeof name, "%s to %s", ru_dtype_name(from), ru_dtype_name(type));
        same_as_reference(&t, ties ? TIES : ANY_BITS, ANY_BITS, 0, name);
    }
}

/* Elements of every width; each operand whole, of one element, or a column. */
static void choices_of_every_width(void **state)
{
    (void)state;
    static const ru_dtype types[] = {RU_I8, RU_I16, RU_I32, RU_I64};
    static const shape forms[] = {{2, {7, 333}}, {0, {0}}, {2, {7, 1}}};
    for (uint32_t k = 0; k < 4 * 27; k++) {
        const shape *at[3] = {&forms[k / 4 % 3], &forms[k / 12 % 3], &forms[k / 36]};
        char name[64];
        net t;
        net_init(&t);
        ru_value_id in[3], y;
        for (uint32_t i = 0; i < 3; i++) {
            in[i] = ru_build_input(
                &t.b,
                i == 0   ? "c"
                : i == 1 ? "x"
                         : "y",
                ru_type_make(i == 0 ? RU_BOOL : types[k % 4], at[i]->rank, at[i]->dims));
        }
        ru_build_node(&t.b, RU_OP_Where, in, 3, NULL, &y, 1);
        ru_build_output(&t.b, y, "z");
        snprintf(name, sizeof name, "Where %u", k);
        same_as_reference(&t, ANY_BITS, ANY_BITS, 0, name);
    }
}

/* Tile, and Expand where each axis has one position or goes once; rows of 1 to 1,040 bytes. */
static void repetition_of_every_width(void **state)
{
    (void)state;
    static const ru_dtype types[] = {RU_I8, RU_I16, RU_I32, RU_I64};
    static const int64_t sizes[] = {1, 2, 3, 5, 17, 31, 130}, counts[] = {1, 2, 3, 1, 45};
    for (uint64_t k = 0; k < 600; k++) {
        shape s = {.rank = 1 + (uint32_t)(k / 4 % 4)}, to = {.rank = s.rank};
        bool expand = k / 16 % 2 == 0;
        int64_t times[4] = {0}, all = 1;
        for (uint32_t d = 0; d < s.rank; d++) {
            uint64_t u = bits_of(k, d) >> 20;
            s.dims[d] = sizes[u % 7];
            times[d] = expand && s.dims[d] > 1 ? 1 : counts[u / 7 % 5];
            to.dims[d] = s.dims[d] * times[d];
            all *= to.dims[d];
        }
        if (all > 200000) {
            continue;
        }
        char name[64];
        net t;
        net_init(&t);
        ru_value_id x = ru_build_input(&t.b, "x", ru_type_make(types[k % 4], s.rank, s.dims));
        ru_value_id by = ru_build_const_i64s(&t.b, expand ? to.dims : times, s.rank);
        ru_build_output(&t.b, ru_build_op2(&t.b, expand ? RU_OP_Expand : RU_OP_Tile, x, by, NULL),
                        "y");
        snprintf(name, sizeof name, "%s %llu", expand ? "Expand" : "Tile", (unsigned long long)k);
        same_as_reference(&t, ANY_BITS, ANY_BITS, 0, name);
    }
}

/* Along each axis and over all, of any bits. */
static void lines_of_whole_numbers(void **state)
{
    (void)state;
    static const ru_op ops[] = {RU_OP_ReduceMax,  RU_OP_ReduceMin, RU_OP_ReduceSum,
                                RU_OP_ReduceProd, RU_OP_ReduceL1,  RU_OP_ReduceSumSquare,
                                RU_OP_ArgMax,     RU_OP_ArgMin,    RU_OP_CumSum};
    static const shape forms[] = {
        {2, {301, 7}}, {3, {3, 5, 97}}, {3, {9, 1, 8}}, {2, {2, 1300}}, {2, {0, 4}}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ops) * RU_ARRAY_LEN(forms) * 4 * 2; k++) {
        ru_op op = ops[k % RU_ARRAY_LEN(ops)];
        const shape *s = &forms[k / RU_ARRAY_LEN(ops) % RU_ARRAY_LEN(forms)];
        uint32_t rest = k / RU_ARRAY_LEN(ops) / RU_ARRAY_LEN(forms);
        int64_t axis = rest % 4;
        bool one = op == RU_OP_ArgMax || op == RU_OP_ArgMin || op == RU_OP_CumSum;
        bool arg = one && op != RU_OP_CumSum;
        if ((axis < 3 ? axis >= (int64_t)s->rank : one) || (arg && s->dims[axis] == 0)) {
            continue; /* no such axis; the largest of none has no place */
        }
        char name[64];
        net t;
        net_init(&t);
        ru_dtype type = rest / 4 == 0 ? RU_I64 : RU_I32;
        ru_value_id x = ru_build_input(&t.b, "x", ru_type_make(type, s->rank, s->dims)), y;
        const ru_attr on[] = {RU_AI(axis, axis), RU_A_END};
        if (arg) {
            y = ru_build_op1(&t.b, op, x, on);
        } else if (op == RU_OP_CumSum) {
            y = ru_build_op2(&t.b, op, x,
                             ru_build_const(&t.b, ru_type_make(RU_I64, 0, NULL), &axis), NULL);
        } else {
            ru_value_id axes = axis < 3 ? ru_build_const_i64s(&t.b, &axis, 1) : (ru_value_id){0};
            y = ru_build_op2(&t.b, op, x, axes, NULL);
        }
        ru_build_output(&t.b, y, "y");
        snprintf(name, sizeof name, "%s of %s, axis %lld of form %u", ru_op_get(op)->name,
                 ru_dtype_name(type), (long long)axis, k / 9 % 5);
        same_as_reference(&t, ANY_BITS, ANY_BITS, 0, name);
    }
}

typedef struct reduction {
    shape x;
    int64_t axes[4];
    uint32_t n_axes;
} reduction;

static int64_t reduced(const reduction *r)
{
    int64_t n = 1;
    for (uint32_t a = 0; a < r->n_axes; a++) {
        n *= r->x.dims[r->axes[a]];
    }
    return n;
}

/* Several axes apart, few and many columns, rows of two and of more than a vector: of every type.
 */
static void lines_of_every_type(void **state)
{
    (void)state;
    static const ru_op ops[] = {RU_OP_ReduceMax,  RU_OP_ReduceMin,       RU_OP_ReduceSum,
                                RU_OP_ReduceL1,   RU_OP_ReduceSumSquare, RU_OP_ReduceProd,
                                RU_OP_ReduceMean, RU_OP_ReduceL2};
    static const ru_dtype types[] = {RU_I8, RU_U8, RU_BOOL, RU_I32, RU_I64, RU_F32, RU_F64};
    static const reduction forms[] = {
        {{4, {6, 7, 8, 33}}, {0, 2}, 2},   {{4, {6, 7, 8, 33}}, {1, 3}, 2},
        {{3, {5, 300, 3}}, {1}, 1},        {{2, {300, 2}}, {1}, 1},
        {{3, {2, 70, 300}}, {1}, 1},       {{2, {3, 301}}, {1}, 1},
        {{4, {3, 4, 5, 7}}, {0, 2, 3}, 3}, {{3, {3, 0, 5}}, {1}, 1},
        {{4, {2, 300, 5, 1}}, {0, 2}, 2},  {{1, {70}}, {0}, 1},
        {{3, {5, 19, 70}}, {2}, 1},        {{3, {5, 19, 70}}, {0, 2}, 2},
        {{3, {5, 19, 70}}, {1}, 1},        {{2, {1100, 5}}, {0}, 1},
        {{3, {2, 1300, 3}}, {1}, 1},       {{2, {7, 513}}, {1}, 1}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ops) * RU_ARRAY_LEN(types) * RU_ARRAY_LEN(forms); k++) {
        ru_op op = ops[k % RU_ARRAY_LEN(ops)];
        ru_dtype type = types[k / RU_ARRAY_LEN(ops) % RU_ARRAY_LEN(types)];
        const reduction *r = &forms[k / RU_ARRAY_LEN(ops) / RU_ARRAY_LEN(types)];
        bool real = type == RU_F32 || type == RU_F64, picks = k % RU_ARRAY_LEN(ops) < 2;
        kind numbers = real ? SMALL : op == RU_OP_ReduceMean ? LARGE : ANY_BITS;
        if ((ru_dtype_bytes(type) == 1 && !picks) || (!real && op == RU_OP_ReduceL2) ||
            (real && op == RU_OP_ReduceProd && (type == RU_F32 || reduced(r) > 120)) ||
            (real && picks && r->x.dims[1] == 0)) {
            continue; /* bytes have no sums, whole numbers no roots; products beyond the range */
        }
        char name[64];
        net t;
        net_init(&t);
        ru_value_id x = ru_build_input(&t.b, "x", ru_type_make(type, r->x.rank, r->x.dims));
        ru_value_id axes = ru_build_const_i64s(&t.b, r->axes, r->n_axes);
        ru_build_output(&t.b, ru_build_op2(&t.b, op, x, axes, NULL), "y");
        snprintf(name, sizeof name, "%s of %s, form %u", ru_op_get(op)->name, ru_dtype_name(type),
                 (uint32_t)(r - forms));
        same_as_reference(&t, numbers, SMALL, type == RU_F32 ? 1e-4 : 1e-12, name);
    }
}

/* Numbers that never change, from -size to size. */
static ru_value_id some(net *t, uint32_t rank, const int64_t *dims, float size)
{
    ru_type type = ru_type_make(RU_F32, rank, dims);
    float *x = ru_arena_zalloc(&t->arena, ru_type_bytes(&type), 64);
    for (int64_t i = 0; i < ru_type_count(&type); i++) {
        x[i] = size * ((float)(bits_of(7, i) % 2000) / 1000.0f - 1.0f);
    }
    return ru_build_const(&t->b, type, x);
}

/* Channels of few places, which lie together in rows, and of more. */
static void few_places_are_normalised(void **state)
{
    (void)state;
    static const ru_op ops[] = {RU_OP_BatchNormalization, RU_OP_InstanceNormalization,
                                RU_OP_GroupNormalization};
    static const shape forms[] = {{4, {3, 12, 7, 7}},   {3, {2, 48, 2}}, {4, {2, 516, 4, 4}},
                                  {4, {1, 1100, 1, 3}}, {2, {5, 72}},    {3, {2, 4, 600}},
                                  {4, {3, 1200, 1, 1}}};
    float kept[4][1200];
    for (uint32_t i = 0; i < 4 * 1200; i++) { /* of variances: positive */
        kept[i / 1200][i % 1200] = (float)(bits_of(i / 1200, i % 1200) % 100 + 1) / 25.0f;
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ops) * RU_ARRAY_LEN(forms); k++) {
        ru_op op = ops[k % RU_ARRAY_LEN(ops)];
        const shape *s = &forms[k / RU_ARRAY_LEN(ops)];
        char name[64];
        net t;
        net_init(&t);
        ru_value_id in[5] = {ru_build_input(&t.b, "x", ru_type_make(RU_F32, s->rank, s->dims))}, y;
        in[0] = ru_build_op2(&t.b, RU_OP_Mul, in[0], some(&t, s->rank, s->dims, 0.005f), NULL);
        uint32_t n = op == RU_OP_BatchNormalization ? 5 : 3;
        for (uint32_t i = 1; i < n; i++) {
            in[i] = ru_build_const(&t.b, ru_type_make(RU_F32, 1, &s->dims[1]), kept[i - 1]);
        }
        const ru_attr groups[] = {RU_AI(num_groups, 4), RU_A_END};
        ru_build_node(&t.b, op, in, n, op == RU_OP_GroupNormalization ? groups : NULL, &y, 1);
        ru_build_output(&t.b, y, "y");
        snprintf(name, sizeof name, "%s, form %u", ru_op_get(op)->name, k / 3);
        same_as_reference(&t, SMALL, SMALL, 1e-4, name);
    }
}

/* Rows and columns of doubles. */
static void softmax_of_doubles(void **state)
{
    (void)state;
    static const shape forms[] = {{3, {5, 300, 3}}, {3, {2, 9, 70}}, {2, {7, 600}}, {1, {1}}};
    for (uint32_t k = 0; k < 2 * RU_ARRAY_LEN(forms) * 3; k++) {
        const shape *s = &forms[k / 2 % RU_ARRAY_LEN(forms)];
        int64_t axis = k / 2 / RU_ARRAY_LEN(forms);
        if (axis >= (int64_t)s->rank) {
            continue;
        }
        net t;
        net_init(&t);
        ru_value_id x = ru_build_input(&t.b, "x", ru_type_make(RU_F64, s->rank, s->dims));
        const ru_attr on[] = {RU_AI(axis, axis), RU_A_END};
        ru_op op = k % 2 == 0 ? RU_OP_Softmax : RU_OP_LogSoftmax;
        ru_build_output(&t.b, ru_build_op1(&t.b, op, x, on), "y");
        same_as_reference(&t, SMALL, SMALL, 1e-12, ru_op_get(op)->name);
    }
}

/* Samples of other lengths than the steps, in both directions; one result at a time. */
static void sequences_end_at_their_lengths(void **state)
{
    (void)state;
    static const struct {
        ru_op op;
        int64_t gates;
        uint32_t results;
    } cells[] = {{RU_OP_LSTM, 4, 3}, {RU_OP_GRU, 3, 2}, {RU_OP_RNN, 1, 2}};
    static const char *const ways[] = {"forward", "reverse", "bidirectional"};
    static const int32_t lens[] = {5, 0, 7, 1};
    for (uint32_t k = 0; k < 3 * 3 * 3 * 2; k++) {
        uint32_t cell = k % 3, way = k / 3 % 3, which = k / 9 % 3;
        int64_t h = 21, g = cells[cell].gates * h, dirs = way == 2 ? 2 : 1, batch = 4;
        if (which >= cells[cell].results) {
            continue;
        }
        char name[64];
        net t;
        net_init(&t);
        const int64_t x[] = {7, batch, 6}, w[] = {dirs, g, 6}, r[] = {dirs, g, h};
        const int64_t b[] = {dirs, 2 * g}, first[] = {dirs, batch, h};
        ru_value_id y[3], in[7] = {ru_build_input(&t.b, "x", ru_type_make(RU_F32, 3, x))};
        in[0] = ru_build_op2(&t.b, RU_OP_Mul, in[0], some(&t, 3, x, 0.01f), NULL);
        in[1] = some(&t, 3, w, 0.5f);
        in[2] = some(&t, 3, r, 0.3f);
        in[3] = some(&t, 2, b, 0.2f);
        in[4] = ru_build_const(&t.b, ru_type_make(RU_I32, 1, &batch), lens);
        in[5] = k / 27 == 0 ? some(&t, 3, first, 0.5f) : (ru_value_id){0};
        in[6] = k / 27 == 0 && cell == 0 ? some(&t, 3, first, 0.9f) : (ru_value_id){0};
        const ru_attr attrs[] = {RU_AI(hidden_size, h), RU_AS(direction, ways[way]), RU_A_END};
        ru_build_node(&t.b, cells[cell].op, in, cell == 0 ? 7 : 6, attrs, y, cells[cell].results);
        ru_build_output(&t.b, y[which], "y");
        snprintf(name, sizeof name, "%s, %s, result %u", ru_op_get(cells[cell].op)->name, ways[way],
                 which);
        same_as_reference(&t, SMALL, SMALL, 1e-5, name);
    }
}

/* Up to 40 operands, of which most broadcast. */
static void many_operands_broadcast(void **state)
{
    (void)state;
    static const ru_op ops[] = {RU_OP_Sum, RU_OP_Mean, RU_OP_Max, RU_OP_Min};
    static const uint32_t counts[] = {2, 3, 16, 17, 40};
    static const shape forms[] = {{3, {5, 7, 33}}, {1, {33}},       {3, {5, 1, 1}}, {0, {0}},
                                  {3, {5, 7, 33}}, {3, {1, 7, 33}}, {2, {7, 1}}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ops) * RU_ARRAY_LEN(counts) * 2; k++) {
        ru_op op = ops[k % 4];
        uint32_t n = counts[k / 4 % RU_ARRAY_LEN(counts)];
        bool whole = k >= RU_ARRAY_LEN(ops) * RU_ARRAY_LEN(counts);
        if (whole && k % 4 < 2) {
            continue; /* sums are of floats */
        }
        char name[64];
        net t;
        net_init(&t);
        ru_value_id in[40];
        for (uint32_t i = 0; i < n; i++) {
            const shape *s = &forms[(i + k) % RU_ARRAY_LEN(forms)];
            snprintf(name, sizeof name, "x%u", i);
            in[i] = ru_build_input(&t.b, ru_arena_str(&t.arena, name),
                                   ru_type_make(whole ? RU_I16 : RU_F32, s->rank, s->dims));
        }
        ru_value_id y;
        ru_build_node(&t.b, op, in, n, NULL, &y, 1);
        ru_build_output(&t.b, y, "y");
        snprintf(name, sizeof name, "%s of %u", ru_op_get(op)->name, n);
        same_as_reference(&t, whole ? ANY_BITS : SMALL, whole ? ANY_BITS : SMALL, 1e-5, name);
    }
}

RU_TESTS(exec_whole, cmocka_unit_test(whole_numbers_of_every_type),
         cmocka_unit_test(one_operand_of_every_type), cmocka_unit_test(tests_of_one_operand),
         cmocka_unit_test(floats_become_whole_numbers), cmocka_unit_test(lines_of_whole_numbers),
         cmocka_unit_test(lines_of_every_type), cmocka_unit_test(few_places_are_normalised),
         cmocka_unit_test(sequences_end_at_their_lengths), cmocka_unit_test(softmax_of_doubles),
         cmocka_unit_test(casts_of_every_pair), cmocka_unit_test(choices_of_every_width),
         cmocka_unit_test(repetition_of_every_width), cmocka_unit_test(many_operands_broadcast))
