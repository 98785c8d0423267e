/* Kernels at odd sizes and in all their forms against the reference: products of doubles and
 * halves, pools, few channels, losses of classes, reductions of whole numbers, running sums. */
#include "exec/cpu/kern/kern.h"
#include "test/ops/slow_net.h"

static void products_of_doubles(void **state)
{
    (void)state;
    static const int64_t shapes[][2][4] = {
        {{40, 33}, {33, 50}}, {{3, 500}, {500, 70}},  {{2, 1, 5, 9}, {3, 9, 11}},
        {{6, 5, 9}, {9, 11}}, {{1, 4, 7}, {3, 7, 2}}, {{64}, {64}},
        {{5, 64}, {64}},      {{64}, {2, 64, 3}}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(shapes) * 2; k++) {
        net t;
        net_init(&t);
        ru_value_id in[2];
        for (uint32_t i = 0; i < 2; i++) {
            const int64_t *dims = shapes[k / 2][i];
            uint32_t rank = dims[1] == 0 ? 1 : dims[2] == 0 ? 2 : dims[3] == 0 ? 3 : 4;
            in[i] = input(&t, i == 0 ? "a" : "b", ru_type_make(RU_F64, rank, dims));
        }
        ru_value_id y = ru_build_op2(&t.b, RU_OP_MatMul, in[0], in[1], NULL);
        y = k % 2 == 1 ? ru_build_op1(&t.b, RU_OP_Relu, y, NULL) : y;
        ru_build_output(&t.b, y, "y");
        char name[32];
        snprintf(name, sizeof name, "f64 product %u", k);
        fast_and_right(&t, 1e-14, name);
    }
}

static void gemms_of_doubles(void **state)
{
    (void)state;
    static const int64_t biases[][2] = {{1, 1}, {1, 70}, {40, 1}, {40, 70}, {0, 1}, {0, 70}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(biases) * 8; k++) {
        const int64_t *dims = biases[k / 8];
        bool ta = k % 2 == 1, tb = k / 2 % 2 == 1;
        net t;
        net_init(&t);
        ru_value_id a = input(&t, "a", ta ? T(F64, 30, 40) : T(F64, 40, 30));
        ru_value_id b = input(&t, "b", tb ? T(F64, 70, 30) : T(F64, 30, 70));
        ru_type of = ru_type_make(RU_F64, dims[0] == 0 ? 1 : 2, dims[0] == 0 ? dims + 1 : dims);
        ru_value_id c = input(&t, "c", of), r = input(&t, "r", T(F64, 40, 70));
        const ru_attr attrs[] = {RU_AI(transA, ta), RU_AI(transB, tb), RU_AF(alpha, 0.5),
                                 RU_AF(beta, k % 4 == 1 ? 2.0 : 1.0), RU_A_END};
        ru_value_id y = ru_build_op3(&t.b, RU_OP_Gemm, a, b, c, attrs);
        y = k % 8 >= 4 ? ru_build_op2(&t.b, RU_OP_Add, y, r, NULL) : y;
        y = k % 8 >= 6 ? ru_build_op1(&t.b, RU_OP_Tanh, y, NULL) : y;
        ru_build_output(&t.b, y, "y");
        char name[32];
        snprintf(name, sizeof name, "f64 gemm %u", k);
        fast_and_right(&t, 1e-14, name);
    }
}

/* Element-wise ops of doubles, and broadcasts whose rows are short, long, repeated and spread. */
static void maps_of_doubles(void **state)
{
    (void)state;
    static const ru_op ops[] = {
        RU_OP_Abs,  RU_OP_Asinh, RU_OP_Atan,     RU_OP_Ceil,       RU_OP_Cos,  RU_OP_Erf,
        RU_OP_Exp,  RU_OP_Floor, RU_OP_Log,      RU_OP_Neg,        RU_OP_Relu, RU_OP_Round,
        RU_OP_Sign, RU_OP_Sin,   RU_OP_Softplus, RU_OP_Softsign,   RU_OP_Sqrt, RU_OP_Sigmoid,
        RU_OP_Tan,  RU_OP_Tanh,  RU_OP_Cosh,     RU_OP_Reciprocal, RU_OP_Sinh, RU_OP_Acos};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ops); k++) {
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", T(F64, 7, 333));
        bool positive = ops[k] == RU_OP_Log || ops[k] == RU_OP_Sqrt;
        x = positive ? ru_build_op1(&t.b, RU_OP_Abs, x, NULL) : x;
        ru_build_output(&t.b, ru_build_op1(&t.b, ops[k], x, NULL), "y");
        fast_and_right(&t, 1e-14, ru_op_get(ops[k])->name);
    }
}

/* Shapes of the operands; those of the result follow. */
static const int64_t spread_shapes[][2][4] = {
    {{700, 3}, {700, 1}},       {{700, 3}, {1, 3}},           {{1, 9, 1, 32}, {4, 1, 6, 1}},
    {{31, 5, 67}, {31, 1, 67}}, {{2, 9, 7, 7}, {1, 9, 1, 1}}, {{6, 1, 50, 40}, {6, 30, 50, 1}},
    {{33, 1031}, {33, 1}},      {{3, 1, 300}, {3, 4, 1}},     {{1, 1}, {40, 300}},
    {{40, 300}, {40, 300}},     {{5, 1, 2, 1}, {1, 3, 1, 2}}, {{16, 4, 8, 16}, {16, 1, 1, 16}}};

static void broadcasts(void **state)
{
    (void)state;
    static const ru_op ops[] = {RU_OP_Add, RU_OP_Div, RU_OP_Max, RU_OP_Less, RU_OP_Sub, RU_OP_Mean};
    static const ru_dtype types[] = {RU_F32, RU_F64, RU_I64, RU_U8};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(spread_shapes) * 24 * 2; k++) {
        const int64_t(*dims)[4] = spread_shapes[k / 48];
        ru_dtype type = types[k / 12 % 4];
        ru_op op = ops[k / 2 % 6];
        bool whole = !ru_dtype_is_float(type);
        if ((op == RU_OP_Mean && type != RU_F32) || (op == RU_OP_Div && whole)) {
            continue;
        }
        net t;
        net_init(&t);
        ru_value_id in[2];
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t rank = dims[i][2] == 0 ? 2 : dims[i][3] == 0 ? 3 : 4;
            in[i] = input(&t, i == 0 ? "a" : "b", ru_type_make(type, rank, dims[i]));
        }
        ru_value_id x = in[k % 2], y = in[1 - k % 2], z = ru_build_op2(&t.b, op, x, y, NULL);
        if (op == RU_OP_Less) {
            z = ru_build_op3(&t.b, RU_OP_Where, z, x, y, NULL);
        }
        ru_build_output(&t.b, z, "y");
        char name[64];
        snprintf(name, sizeof name, "broadcast %u of %s", k, ru_op_get(op)->name);
        fast_and_right(&t, 1e-6, name);
    }
}

/* A scale for each place of an axis, of which few elements or many share one. */
static void scales_of_places(void **state)
{
    (void)state;
    static const ru_dtype types[] = {RU_U8, RU_I8, RU_I16, RU_U16};
    for (uint32_t k = 0; k < 4 * 3 * 2; k++) {
        const int64_t dims[] = {5, 70, k % 2 == 0 ? 3 : 130};
        uint32_t axis = k / 2 % 3;
        ru_type of_q = ru_type_make(types[k / 6], 3, dims);
        net t;
        net_init(&t);
        ru_value_id s = input(&t, "s", ru_type_make(RU_F32, 1, &dims[axis]));
        ru_value_id z = input(&t, "z", ru_type_make(types[k / 6], 1, &dims[axis]));
        ru_value_id q = input(&t, "q", of_q), y;
        s = ru_build_op1(&t.b, RU_OP_Softplus, s, NULL);
        ru_value_id in[] = {q, s, z};
        ru_build_node(&t.b, RU_OP_DequantizeLinear, in, 3, (ru_attr[]){RU_AI(axis, axis), RU_A_END},
                      &y, 1);
        ru_build_output(&t.b, y, "y");
        in[0] = y; /* back again: whole numbers, which no rounding moves */
        ru_build_node(&t.b, RU_OP_QuantizeLinear, in, 3, (ru_attr[]){RU_AI(axis, axis), RU_A_END},
                      &y, 1);
        ru_build_output(&t.b, y, "again");
        char name[32];
        snprintf(name, sizeof name, "scales %u", k);
        fast_and_right(&t, 1e-6, name);
    }
}

/* Beside large inputs the logarithm of the sum keeps its digits: along rows of all kinds. */
static void softmax_of_large_inputs(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{3, 5, 700}, {40, 3, 6}, {3, 90, 20}, {2, 700, 3}};
    static const float offsets[] = {0x1p20f, 0x1p100f}; /* beside the latter all are equal */
    for (uint32_t k = 0; k < RU_ARRAY_LEN(shapes) * 8; k++) {
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", ru_type_make(RU_F32, 3, shapes[k / 8]));
        ru_value_id four = ru_build_const_f32(&t.b, 4), far;
        far = ru_build_const_f32(&t.b, offsets[k / 2 % 2]);
        x = ru_build_op2(&t.b, RU_OP_Mul, x, four, NULL);
        x = ru_build_op1(&t.b, RU_OP_Round, x, NULL);
        x = ru_build_op2(&t.b, RU_OP_Add, x, far, NULL);
        x = ru_build_op1(&t.b, k / 4 % 2 == 0 ? RU_OP_Softmax : RU_OP_LogSoftmax, x,
                         (ru_attr[]){RU_AI(axis, 2 - k % 2), RU_A_END});
        ru_build_output(&t.b, x, "y");
        fast_and_right(&t, 1e-5, "softmax of large inputs");
    }
}

/* Rows that end within vectors of any width: normalised, reduced. */
static void rows_of_any_length(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1,  2,  8,  15, 16, 17, 31,  32,
                                      33, 49, 63, 64, 65, 70, 100, 130};
    static const ru_op ops[] = {
        RU_OP_Softmax,   RU_OP_LogSoftmax,      RU_OP_ReduceMax,          RU_OP_ReduceMin,
        RU_OP_ReduceSum, RU_OP_ReduceSumSquare, RU_OP_LayerNormalization, RU_OP_LayerNormalization};
    const uint32_t n_ops = RU_ARRAY_LEN(ops);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(lengths) * n_ops; k++) {
        const int64_t n = lengths[k / n_ops];
        const ru_op op = ops[k % n_ops];
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", T(F32, 37, n)), in[3] = {x}, y;
        uint32_t n_in = 1;
        if (op == RU_OP_LayerNormalization) {
            in[1] = input(&t, "scale", T(F32, n));
            in[2] = input(&t, "bias", T(F32, n));
            n_in = k % n_ops == n_ops - 1 ? 3 : 2;
        } else if (k % n_ops >= 2) {
            in[1] = ru_build_const_i64s(&t.b, (int64_t[]){1}, 1);
            n_in = 2;
        }
        ru_build_node(&t.b, op, in, n_in, NULL, &y, 1);
        ru_build_output(&t.b, y, "y");
        char name[64];
        snprintf(name, sizeof name, "%s of rows of %d", ru_op_get(op)->name, (int)n);
        fast_and_right(&t, n == 1 ? 1e-3 : 3e-6, name);
    }
}

/* Zero points and shapes of ONNX's products of bytes, on CPUs with dot products of bytes. */
static void products_of_bytes(void **state)
{
    (void)state;
    static const int64_t shapes[][2][4] = {
        {{40, 33}, {33, 50}},           {{1, 512}, {512, 70}},      {{3, 5, 9}, {9, 11}},
        {{2, 3, 5, 64}, {2, 3, 64, 7}}, {{2, 1, 5, 9}, {3, 9, 11}}, {{1, 4, 7}, {3, 7, 2}},
        {{101, 63}, {63, 200}},         {{131, 3}, {3, 129}}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(shapes) * 16; k++) {
        const int64_t(*dims)[4] = shapes[k / 16];
        ru_dtype ta = k % 2 == 0 ? RU_U8 : RU_I8, tb = k / 2 % 2 == 0 ? RU_U8 : RU_I8;
        net t;
        net_init(&t);
        ru_value_id in[4] = {{0}};
        uint32_t rank[2];
        for (uint32_t i = 0; i < 2; i++) {
            rank[i] = dims[i][2] == 0 ? 2 : dims[i][3] == 0 ? 3 : 4;
            in[i] = input(&t, i == 0 ? "a" : "b", ru_type_make(i == 0 ? ta : tb, rank[i], dims[i]));
        }
        if (k / 4 % 4 != 0) {
            in[2] = input(&t, "az", ru_type_scalar(ta));
        }
        if (k / 4 % 4 >= 2) {
            int64_t n = k / 4 % 4 == 2 ? 1 : dims[1][rank[1] - 1];
            in[3] = input(&t, "bz", ru_type_make(tb, 1, &n));
        }
        ru_value_id y;
        ru_build_node(&t.b, RU_OP_MatMulInteger, in,
                      in[3].v != 0   ? 4
                      : in[2].v != 0 ? 3
                                     : 2,
                      NULL, &y, 1);
        ru_build_output(&t.b, y, "y");
        char name[32];
        snprintf(name, sizeof name, "product of bytes %u", k);
        agrees(&t, 0, name, false);
    }
}

/* Computed in f32 and rounded once. */
static void products_of_halves(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", k < 2 ? T(F16, 13, 37) : T(F16, 2, 3, 9, 11));
        ru_value_id w = input(&t, "w", k < 2 ? T(F16, 37, 21) : T(F16, 5, 3, 3, 3)), y;
        y = ru_build_op2(&t.b, k < 2 ? RU_OP_MatMul : RU_OP_Conv, x, w, NULL);
        y = k % 2 == 1 ? ru_build_op1(&t.b, RU_OP_Relu, y, NULL) : y;
        ru_build_output(&t.b, y, "y");
        char name[32];
        snprintf(name, sizeof name, "f16 product %u", k);
        fast_and_right(&t, 1e-3, name);
    }
}

typedef struct pool_case {
    ru_dtype t;
    int64_t dims[5]; /* of the image, ends with 0 */
    int64_t kernel[3], strides[3], dilations[3], pads[6];
    bool ceil, count;
} pool_case;

static const pool_case pool_cases[] = {
    {RU_F32, {64}, {2}, {2}, {1}, {0}, false, false},
    {RU_F32, {9001}, {7}, {3}, {2}, {3, 2}, true, true},
    {RU_F32, {5000}, {4000}, {50}, {1}, {0}, true, false},
    {RU_F32, {37, 29}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, false, false},
    {RU_F32, {37, 29}, {3, 3}, {2, 2}, {1, 1}, {1, 0, 0, 1}, true, true},
    {RU_F32, {11, 75}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, false, false},
    {RU_F32, {9, 101}, {5, 6}, {2, 2}, {1, 2}, {2, 5, 2, 4}, false, true},
    {RU_F32, {16, 17}, {5, 4}, {1, 1}, {1, 1}, {2, 3, 2, 3}, false, true},
    {RU_F32, {16, 17}, {2, 5}, {3, 4}, {2, 3}, {1, 2, 1, 2}, true, false},
    {RU_F32, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {2, 2, 2, 2}, false, false},
    {RU_F32, {14, 14}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, false, true},
    {RU_F32, {9, 4}, {4, 2}, {1, 2}, {1, 1}, {0}, false, false},
    {RU_F32, {7, 11, 9}, {2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {0}, true, false},
    {RU_F32, {7, 11, 9}, {3, 2, 3}, {1, 2, 1}, {2, 1, 1}, {1, 1, 0, 1, 0, 1}, false, true},
    {RU_F32, {4, 4}, {2, 2}, {2, 2}, {1, 1}, {0}, false, false},
    {RU_F32, {8, 7}, {7, 7}, {1, 2}, {1, 1}, {3, 3, 3, 3}, false, true},
    {RU_F32, {60, 4, 40}, {5, 3, 3}, {2, 1, 2}, {1, 1, 2}, {2, 1, 1, 2, 1, 1}, false, true},
    {RU_U8, {37, 29}, {3, 3}, {2, 2}, {1, 1}, {0}, true, false},
    {RU_I8, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, false, false},
    {RU_I8, {37, 29}, {2, 7}, {1, 2}, {1, 1}, {0, 3, 0, 3}, true, false},
};

/* The node of case c: MaxPool, MaxPool with places, AveragePool, LpPool. False: not of this type.
 */
enum { POOL_MAX, POOL_PLACES, POOL_MEAN, POOL_LP, POOL_FORMS };

static bool pool_build(net *t, const pool_case *c, uint32_t form, bool many)
{
    int64_t dims[5] = {many ? 5 : 2, many ? 7 : 3}; /* many: more planes than lanes of a vector */
    uint32_t nsp = 0;
    for (; c->dims[nsp] != 0; nsp++) {
        dims[2 + nsp] = c->dims[nsp];
    }
    if (form != POOL_MAX && c->t != RU_F32) {
        return false;
    }
    net_init(t);
    ru_value_id x = input(t, "x", ru_type_make(c->t, 2 + nsp, dims)), y[2];
    ru_attr attrs[] = {RU_AIS(kernel_shape, c->kernel, nsp),
                       RU_AIS(strides, c->strides, nsp),
                       RU_AIS(dilations, c->dilations, nsp),
                       RU_AIS(pads, c->pads, 2 * nsp),
                       RU_AI(ceil_mode, c->ceil),
                       RU_AI(count_include_pad, c->count),
                       RU_A_END};
    static const ru_op ops[] = {RU_OP_MaxPool, RU_OP_MaxPool, RU_OP_AveragePool, RU_OP_LpPool};
    if (form == POOL_LP) {
        attrs[5] = (ru_attr)RU_AI(p, 1 + (c - pool_cases) % 4);
    } else if (form != POOL_MEAN) {
        attrs[5] = attrs[6];
    }
    ru_build_node(&t->b, ops[form], &x, 1, attrs, y, form == POOL_PLACES ? 2 : 1);
    ru_build_output(&t->b, y[0], "y");
    if (form == POOL_PLACES) {
        ru_build_output(&t->b, y[1], "places");
    }
    return true;
}

/* Forms of pools at odd sizes: windows that hang over the end, in the padding, beyond a line. */
static void pools_at_odd_sizes(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 2 * POOL_FORMS * RU_ARRAY_LEN(pool_cases); k++) {
        net t;
        char name[32];
        snprintf(name, sizeof name, "pool %u", k);
        if (pool_build(&t, &pool_cases[k / 2 / POOL_FORMS], k / 2 % POOL_FORMS, k % 2 == 1)) {
            fast_and_right(&t, 1e-5, name);
        }
    }
}

/* Powers that no float holds, of numbers that are no larger than 1e9; and low powers of numbers
 * near both ends of the floats. */
static void powers_of_pools_are_finite(void **state)
{
    (void)state;
    for (int64_t k = 0; k < 13; k++) {
        int64_t p = k < 5 ? 5 + 7 * k : 1 + (k - 5) / 2;
        float scale = k < 5 ? 1e9f : k % 2 == 0 ? 1e37f : 1e-30f;
        net t;
        net_init(&t);
        const int64_t two[] = {2};
        const ru_attr attrs[] = {RU_AIS(kernel_shape, two, 1), RU_AI(p, p), RU_A_END};
        ru_value_id x = input(&t, "x", T(F32, 1, 1, 64));
        ru_build_output(&t.b, ru_build_op1(&t.b, RU_OP_LpPool, x, attrs), "y");
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe *e = open_on(&t, (ru_exe_options){.threads = 1});
        float *in = ru_exe_input(e, t.g.inputs[0]);
        for (int64_t i = 0; i < 64; i++) {
            in[i] = scale * noise(1, i);
        }
        assert_ok(ru_exe_run(e, NULL, &t.err), t.err);
        const float *y = ru_exe_output(e, t.g.outputs[0]);
        for (int64_t i = 0; i < 63; i++) {
            double a = fabs((double)in[i]), b = fabs((double)in[i + 1]), top = fmax(a, b);
            double want =
                top * pow(pow(a / top, (double)p) + pow(b / top, (double)p), 1.0 / (double)p);
            assert_true(fabs((double)y[i] - want) <= 1e-6 * want);
        }
        ru_exe_close(e);
        ru_arena_fini(&t.arena);
    }
}

/* Every thirteenth element is not a number: the same results are not, on both devices; in bf16
 * too, where the others are near. */
static void pools_keep_nan(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 2 * POOL_FORMS * RU_ARRAY_LEN(pool_cases); k++) {
        const pool_case *c = &pool_cases[k / 2 / POOL_FORMS];
        uint32_t form = k / 2 % POOL_FORMS;
        bool narrow = k % 2 == 1;
        net t;
        if (c->t != RU_F32 || (narrow && form == POOL_PLACES) ||
            !pool_build(&t, c, form, !narrow)) {
            continue;
        }
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe *e[2];
        for (uint32_t i = 0; i < 2; i++) {
            e[i] = open_on(&t, (ru_exe_options){.device = i == 0 ? RU_DEVICE_REF : RU_DEVICE_CPU,
                                                .threads = 1,
                                                .precision = i == 1 && narrow ? RU_PRECISION_BF16
                                                                              : RU_PRECISION_F32});
            float *x = ru_exe_input(e[i], t.g.inputs[0]);
            for (int64_t j = 5; j < ru_type_count(&t.g.values[t.g.inputs[0].v].type); j += 13) {
                x[j] = NAN;
            }
            assert_ok(ru_exe_run(e[i], NULL, &t.err), t.err);
        }
        ru_value_id y = t.g.outputs[0];
        const float *want = ru_exe_output(e[0], y), *got = ru_exe_output(e[1], y);
        for (int64_t j = 0; j < ru_type_count(&t.g.values[y.v].type); j++) {
            bool same = isnan(want[j]) ? isnan(got[j])
                                       : fabsf(got[j] - want[j]) <= (narrow ? 0.01f : 1e-5f);
            if (!same) {
                fail_msg("pool %u: element %lld is %g, expected %g", k, (long long)j,
                         (double)got[j], (double)want[j]);
            }
        }
        if (form == POOL_PLACES) {
            same_output(&t, e[1], e[0], t.g.outputs[1], 0, "places beside NaN");
        }
        ru_exe_close(e[0]);
        ru_exe_close(e[1]);
        ru_arena_fini(&t.arena);
    }
}

static void losses_of_classes(void **state)
{
    (void)state;
    static const char *const reductions[] = {"none", "sum", "mean"};
    for (uint32_t k = 0; k < 72; k++) {
        bool inner = k / 3 % 2 == 1, weighted = k / 6 % 2 == 1, narrow = k / 24 % 3 == 1;
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", inner ? T(F32, 3, 7, 5, 2) : T(F32, 70, k < 24 ? 7 : 5000));
        ru_type of = inner ? T(I64, 3, 5, 2) : T(I64, 70);
        of.dtype = narrow ? RU_I32 : RU_I64;
        ru_value_id labels = input(&t, "labels", of);
        ru_value_id w =
            weighted ? param(&t, T(F32, inner || k < 24 ? 7 : 5000), 1.0f) : (ru_value_id){0};
        const ru_attr attrs[] = {RU_AS(reduction, reductions[k % 3]), RU_AI(ignore_index, 2),
                                 RU_A_END};
        ru_op op =
            k / 12 % 2 == 1 ? RU_OP_NegativeLogLikelihoodLoss : RU_OP_SoftmaxCrossEntropyLoss;
        ru_build_output(&t.b, ru_build_op3(&t.b, op, x, labels, w, attrs), "y");
        char name[32];
        snprintf(name, sizeof name, "class loss %u", k);
        fast_and_right(&t, 1e-5, name);
    }
}

/* A label out of range is an error that names it. */
static void labels_out_of_range_are_named(void **state)
{
    (void)state;
    net t;
    net_init(&t);
    ru_value_id x = input(&t, "x", T(F32, 4, 6)), labels = input(&t, "labels", T(I64, 4));
    ru_build_output(&t.b, ru_build_op2(&t.b, RU_OP_SoftmaxCrossEntropyLoss, x, labels, NULL), "y");
    assert_ok(ru_build_finish(&t.b, &t.err), t.err);
    ru_exe *e = open_on(&t, (ru_exe_options){.threads = 1});
    ((int64_t *)ru_exe_input(e, labels))[2] = 6;
    assert_int_equal(ru_exe_run(e, NULL, &t.err), RU_E_DATA);
    assert_non_null(strstr(t.err.text, "label 6 of row 2 is outside 0 .. 5"));
    ru_exe_close(e);
    ru_arena_fini(&t.arena);
}

static void whole_numbers_and_running_sums(void **state)
{
    (void)state;
    static const ru_op ops[] = {RU_OP_ReduceMax, RU_OP_ReduceMin, RU_OP_ReduceSum, RU_OP_ReduceProd,
                                RU_OP_ReduceL1};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ops) * 6; k++) {
        net t;
        net_init(&t);
        ru_type of = k % 3 == 0 ? T(I64, 301, 7) : k % 3 == 1 ? T(I64, 3, 5, 97) : T(I64, 9, 1, 8);
        of.dtype = k % 2 == 0 ? RU_I64 : RU_I32;
        ru_value_id x = input(&t, "x", of), axes = ru_build_const_i64s(&t.b, (int64_t[]){-1}, 1);
        ru_build_output(&t.b, ru_build_op2(&t.b, ops[k / 6], x, axes, NULL), "y");
        fast_and_right(&t, 0, ru_op_get(ops[k / 6])->name);
    }
    for (uint32_t k = 0; k < 24; k++) {
        const ru_attr attrs[] = {RU_AI(exclusive, k & 1), RU_AI(reverse, k >> 1 & 1), RU_A_END};
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", k < 12 ? T(F32, 7, 11, 13) : T(F32, 6, 1, 1301));
        int64_t axis = k / 4 % 3;
        ru_value_id a = ru_build_const(&t.b, ru_type_make(RU_I64, 0, NULL),
                                       ru_arena_copy(&t.arena, &axis, 8, 8));
        ru_build_output(&t.b, ru_build_op2(&t.b, RU_OP_CumSum, x, a, attrs), "y");
        fast_and_right(&t, 1e-6, "CumSum");
    }
}

/* A channel each over three axes: rows that are not whole vectors, windows that hang over. */
static void deep_convolutions_of_one_channel(void **state)
{
    (void)state;
    static const struct {
        int64_t x[3], kernel[3], strides[3], dilations[3], pads[6], each;
    } cases[] = {
        {{4, 5, 6}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}, 1},
        {{5, 9, 37}, {3, 2, 5}, {2, 3, 1}, {1, 1, 1}, {0, 1, 3, 2, 0, 4}, 2},
        {{7, 6, 16}, {2, 3, 3}, {1, 2, 1}, {3, 2, 4}, {2, 0, 1, 1, 2, 5}, 1},
        {{1, 1, 50}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0}, 3},
        {{6, 8, 11}, {3, 3, 3}, {3, 4, 1}, {1, 1, 1}, {0}, 1},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases) * 4; k++) {
        const int64_t *d = cases[k / 4].x, *f = cases[k / 4].kernel;
        int64_t groups = 5, co = groups * cases[k / 4].each;
        const ru_attr attrs[] = {RU_AIS(kernel_shape, f, 3),
                                 RU_AIS(strides, cases[k / 4].strides, 3),
                                 RU_AIS(dilations, cases[k / 4].dilations, 3),
                                 RU_AIS(pads, cases[k / 4].pads, 6),
                                 RU_AI(group, groups),
                                 RU_A_END};
        net t;
        net_init(&t);
        ru_value_id in[3] = {input(&t, "x", T(F32, 2, groups, d[0], d[1], d[2])),
                             param(&t, T(F32, co, 1, f[0], f[1], f[2]), 0.3f),
                             param(&t, T(F32, co), 0.2f)};
        ru_value_id y;
        ru_build_node(&t.b, RU_OP_Conv, in, k % 2 == 1 ? 3 : 2, attrs, &y, 1);
        y = k % 4 >= 2 ? ru_build_op1(&t.b, RU_OP_Sigmoid, y, NULL) : y;
        ru_build_output(&t.b, y, "y");
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe *e = open_on(&t, (ru_exe_options){.threads = 2});
        ru_exe *ref = open_on(&t, (ru_exe_options){.device = RU_DEVICE_REF});
        assert_non_null(strstr(ru_exe_print(e, &t.arena), "kern conv windows"));
        same_output(&t, e, ref, t.g.outputs[0], 1e-5, "one channel");
        ru_exe_close(e);
        ru_exe_close(ref);
        ru_arena_fini(&t.arena);
    }
}

/* A window for each channel, channels side by side: images of a few rows and of several bands,
 * windows that reach past both sides, two and three axes. */
static void convolutions_of_channels_apart(void **state)
{
    (void)state;
    static const struct {
        uint32_t axes;
        int64_t x[3], kernel[3], strides[3], dilations[3], pads[6], channels;
    } cases[] = {
        {2, {9, 21}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 16},
        {2, {14, 14}, {5, 5}, {2, 2}, {1, 1}, {2, 2, 2, 2}, 37},
        {2, {7, 7}, {7, 7}, {1, 1}, {1, 1}, {3, 3, 3, 3}, 24},
        {2, {1, 1}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 16},
        {2, {3, 3}, {2, 3}, {3, 1}, {2, 2}, {4, 3, 5, 2}, 31},
        {2, {60, 70}, {3, 4}, {1, 3}, {2, 4}, {2, 0, 3, 9}, 16},
        {2, {130, 40}, {5, 3}, {3, 1}, {1, 1}, {0, 1, 2, 1}, 48},
        {2, {1, 100}, {1, 9}, {1, 1}, {1, 3}, {0, 12, 0, 0}, 32},
        {1, {100}, {3}, {1}, {1}, {0, 2}, 3},
        {2, {4, 9}, {5, 5}, {1, 1}, {1, 1}, {3, 0, 1, 4}, 1},
        {3, {5, 9, 11}, {3, 2, 3}, {1, 2, 2}, {1, 1, 2}, {1, 0, 2, 1, 1, 0}, 16},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases) * 2; k++) {
        const uint32_t axes = cases[k / 2].axes;
        const int64_t c = cases[k / 2].channels;
        const ru_attr attrs[] = {RU_AIS(kernel_shape, cases[k / 2].kernel, axes),
                                 RU_AIS(strides, cases[k / 2].strides, axes),
                                 RU_AIS(dilations, cases[k / 2].dilations, axes),
                                 RU_AIS(pads, cases[k / 2].pads, 2 * axes),
                                 RU_AI(group, c),
                                 RU_A_END};
        ru_type x = T(F32, 2, c), w = T(F32, c, 1);
        for (uint32_t d = 0; d < axes; d++) {
            x.dims[x.rank++] = cases[k / 2].x[d];
            w.dims[w.rank++] = cases[k / 2].kernel[d];
        }
        net t;
        net_init(&t);
        ru_value_id in[3] = {input(&t, "x", x), param(&t, w, 0.3f), param(&t, T(F32, c), 0.2f)};
        ru_value_id y;
        ru_build_node(&t.b, RU_OP_Conv, in, k % 2 == 1 ? 3 : 2, attrs, &y, 1);
        ru_build_output(&t.b, y, "y");
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe *e = open_on(&t, (ru_exe_options){.threads = 1 + k % 2});
        ru_exe *ref = open_on(&t, (ru_exe_options){.device = RU_DEVICE_REF});
        bool fills = c >= 16 || ru_kern_at(RU_KERN_AVX512) != NULL; /* fewer go in rows */
        assert_true(!fills || strstr(ru_exe_print(e, &t.arena), "kern conv apart") != NULL);
        same_output(&t, e, ref, t.g.outputs[0], 1e-5, "channels apart");
        ru_exe_close(e);
        ru_exe_close(ref);
        ru_arena_fini(&t.arena);
    }
}

/* The same over two axes of an image that stands in rows; what oneDNN does better it keeps. */
static void flat_convolutions_of_few_channels(void **state)
{
    (void)state;
    enum { NO, YES, WIDE /* with AVX-512, as only the caller reads the result */ };
    static const struct {
        int64_t x[2], kernel[2], strides[2], dilations[2], pads[4];
        int64_t of, each; /* of: channels of a group */
        int ours;
    } cases[] = {
        {{9, 21}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1, 1, YES},
        {{11, 37}, {5, 4}, {2, 1}, {1, 1}, {0, 3, 2, 4}, 1, 2, YES},
        {{17, 30}, {3, 3}, {3, 1}, {2, 4}, {1, 2, 0, 5}, 1, 1, YES},
        {{9, 21}, {3, 3}, {1, 2}, {1, 1}, {1, 1, 1, 1}, 1, 1, NO},
        {{9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1, 1, NO},
        {{9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1, 1, YES},
        {{9, 21}, {7, 7}, {1, 1}, {1, 1}, {3, 3, 3, 3}, 1, 1, WIDE},
        {{37, 29}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 3, 3, YES},
        {{11, 37}, {5, 4}, {2, 1}, {1, 3}, {0, 3, 2, 4}, 4, 8, YES},
        {{17, 19}, {3, 2}, {3, 1}, {2, 4}, {1, 2, 0, 5}, 5, 1, YES},
        {{9, 21}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 8, 8, WIDE},
        {{9, 21}, {3, 3}, {1, 2}, {1, 1}, {1, 1, 1, 1}, 2, 3, NO},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases) * 4; k++) {
        const int64_t *d = cases[k / 4].x, *f = cases[k / 4].kernel;
        int64_t of = cases[k / 4].of, groups = 3;
        int64_t co = groups * cases[k / 4].each;
        const ru_attr attrs[] = {RU_AIS(kernel_shape, f, 2),
                                 RU_AIS(strides, cases[k / 4].strides, 2),
                                 RU_AIS(dilations, cases[k / 4].dilations, 2),
                                 RU_AIS(pads, cases[k / 4].pads, 4),
                                 RU_AI(group, groups),
                                 RU_A_END};
        net t;
        net_init(&t);
        ru_value_id in[3] = {input(&t, "x", T(F32, 2, groups * of, d[0], d[1])),
                             param(&t, T(F32, co, of, f[0], f[1]), 0.3f),
                             param(&t, T(F32, co), 0.2f)};
        ru_value_id y;
        ru_build_node(&t.b, RU_OP_Conv, in, k % 2 == 1 ? 3 : 2, attrs, &y, 1);
        y = k % 4 >= 2 ? ru_build_op1(&t.b, RU_OP_Sigmoid, y, NULL) : y;
        ru_build_output(&t.b, y, "y");
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe *e = open_on(&t, (ru_exe_options){.threads = 2});
        ru_exe *ref = open_on(&t, (ru_exe_options){.device = RU_DEVICE_REF});
        const char *text = ru_exe_print(e, &t.arena);
        assert_int_equal(strstr(text, "conv windows") != NULL || strstr(text, "conv apart") != NULL,
                         cases[k / 4].ours == YES ||
                             (cases[k / 4].ours == WIDE && ru_kern_at(RU_KERN_AVX512) != NULL));
        same_output(&t, e, ref, t.g.outputs[0], 1e-5, "few channels of an image");
        ru_exe_close(e);
        ru_exe_close(ref);
        ru_arena_fini(&t.arena);
    }
}

/* Padding for which no machine has the room; a padded image of so many channels is one of 2^64. */
static void padding_beyond_memory_is_not_copied(void **state)
{
    (void)state;
    enum { FAR = INT32_MAX };
    for (int64_t c = 2; c <= 16; c += 14) {
        const bool deep = c > 2;
        const int64_t kernel[] = {2, deep ? 1 : 2, deep ? 2 : 1},
                      strides[] = {FAR, deep ? 1 : FAR, deep ? FAR : 1},
                      pads[] = {FAR, deep ? 0 : FAR, deep ? FAR : 0,
                                FAR, deep ? 0 : FAR, deep ? FAR : 0};
        const ru_attr attrs[] = {RU_AIS(kernel_shape, kernel, 3), RU_AIS(strides, strides, 3),
                                 RU_AIS(pads, pads, 6), RU_AI(group, c), RU_A_END};
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", T(F32, 1, c, 2, deep ? 1 : 2, deep ? 2 : 1));
        ru_value_id w = param(&t, T(F32, c, 1, 2, deep ? 1 : 2, deep ? 2 : 1), 0.3f);
        ru_build_output(&t.b, ru_build_op2(&t.b, RU_OP_Conv, x, w, attrs), "y");
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe *e = open_on(&t, (ru_exe_options){.threads = 1});
        ru_exe *ref = open_on(&t, (ru_exe_options){.device = RU_DEVICE_REF});
        assert_null(strstr(ru_exe_print(e, &t.arena), "kern conv"));
        same_output(&t, e, ref, t.g.outputs[0], 1e-5, "far padding");
        ru_exe_close(e);
        ru_exe_close(ref);
        ru_arena_fini(&t.arena);
    }
}

/* Ones on a diagonal, images cut into blocks, places of every width. */
static void moves_at_odd_sizes(void **state)
{
    (void)state;
    static const ru_dtype types[] = {RU_F32, RU_F64, RU_F16, RU_I64, RU_U8};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(types) * 6; k++) {
        ru_dtype dt = types[k / 6];
        int64_t b = 2 + k % 3;
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", ru_type_make(dt, 2, (int64_t[]){9, 13}));
        ru_value_id image = input(
            &t, "image", ru_type_make(dt, 4, (int64_t[]){2, 3, 3 * b, b * (k % 6 < 3 ? 35 : 1)}));
        ru_build_output(&t.b,
                        ru_build_op1(&t.b, RU_OP_EyeLike, x,
                                     (ru_attr[]){RU_AI(k, 4 * (int64_t)(k % 6) - 10), RU_A_END}),
                        "eye");
        ru_build_output(&t.b,
                        ru_build_op1(&t.b, RU_OP_SpaceToDepth, image,
                                     (ru_attr[]){RU_AI(blocksize, b), RU_A_END}),
                        "blocks");
        fast_and_right(&t, 0, "moves");
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(types) * 6; k++) {
        int64_t axis = k % 3, dims[3] = {5, 6, 37};
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", ru_type_make(types[k / 6], 3, dims));
        dims[axis] = 11;
        ru_type of = ru_type_make(k % 6 < 3 ? RU_I64 : RU_I32, 3, dims);
        ru_value_id at = input(&t, "at", of);
        ru_build_output(&t.b,
                        ru_build_op2(&t.b, RU_OP_GatherElements, x, at,
                                     (ru_attr[]){RU_AI(axis, axis), RU_A_END}),
                        "y");
        fast_and_right(&t, 0, "places");
    }
}

/* Transpositions of elements that stay together, of sides shorter than a vector; parts of few
 * bytes that are joined and cut. */
static void few_bytes_move(void **state)
{
    (void)state;
    static const ru_dtype types[] = {RU_U8, RU_F16, RU_F32, RU_I64};
    static const int64_t shapes[][4] = {{65, 2, 16, 2}, {33, 5, 3, 1},   {7, 130, 2, 4},
                                        {3, 90, 9, 3},  {2, 3, 131, 16}, {1, 1, 70, 9}};
    static const int64_t perms[][4] = {{2, 0, 1, 3}, {0, 2, 1, 3}, {3, 2, 1, 0}, {2, 3, 0, 1}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(types) * RU_ARRAY_LEN(shapes) * RU_ARRAY_LEN(perms);
         k++) {
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", ru_type_make(types[k % 4], 4, shapes[k / 4 % 6]));
        const ru_attr attrs[] = {RU_AIS(perm, perms[k / 24], 4), RU_A_END};
        ru_build_output(&t.b, ru_build_op1(&t.b, RU_OP_Transpose, x, attrs), "y");
        fast_and_right(&t, 0, "transposed few bytes");
    }
    for (int64_t k = 0; k < 4 * 70; k++) {
        int64_t n = 1 + k / 4;
        net t;
        net_init(&t);
        ru_value_id x[3], y[2], all;
        x[0] = input(&t, "a", ru_type_make(types[k % 4], 2, (int64_t[]){301, n}));
        x[1] = input(&t, "b", ru_type_make(types[k % 4], 2, (int64_t[]){301, 1}));
        x[2] = input(&t, "c", ru_type_make(types[k % 4], 2, (int64_t[]){301, n}));
        const ru_attr last[] = {RU_AI(axis, 1), RU_A_END};
        ru_build_node(&t.b, RU_OP_Concat, x, 3, last, &all, 1);
        ru_build_output(&t.b, all, "joined");
        const ru_attr two[] = {RU_AI(axis, 1), RU_AI(num_outputs, 2), RU_A_END};
        ru_build_node(&t.b, RU_OP_Split, &all, 1, two, y, 2);
        ru_build_output(&t.b, y[0], "left");
        ru_build_output(&t.b, y[1], "right");
        fast_and_right(&t, 0, "joined few bytes");
    }
}

/* Rows that an operand repeats, shorter and longer than its copies, also of a result that is of
 * truth values; the last rows are fewer than the copies. */
static void short_rows_that_repeat(void **state)
{
    (void)state;
    static const int64_t cols[] = {2, 7, 32, 255, 256, 257};
    static const ru_op ops[] = {RU_OP_Sub, RU_OP_Max, RU_OP_Less};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cols) * RU_ARRAY_LEN(ops) * 2; k++) {
        int64_t c = cols[k % 6];
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", T(F32, 3, 701, c));
        ru_value_id row = input(&t, "row", T(F32, c));
        ru_op op = ops[k / 6 % 3];
        ru_value_id y = ru_build_op2(&t.b, op, k < 18 ? x : row, k < 18 ? row : x, NULL);
        ru_build_output(&t.b, y, "y");
        fast_and_right(&t, 0, "short rows");
    }
}

/* Without a step Dropout is its input; whoever asks for the mask gets it, all true. */
static void dropout_tells_its_mask(void **state)
{
    (void)state;
    net t;
    net_init(&t);
    ru_value_id x = input(&t, "x", T(F32, 3, 701)), y[2];
    x = ru_build_op1(&t.b, RU_OP_Relu, x, NULL);
    ru_build_node(&t.b, RU_OP_Dropout, &x, 1, NULL, y, 2);
    ru_build_output(&t.b, ru_build_op1(&t.b, RU_OP_Neg, y[0], NULL), "y");
    ru_build_output(&t.b, y[1], "mask");
    assert_ok(ru_build_finish(&t.b, &t.err), t.err);
    ru_exe *e = open_on(&t, (ru_exe_options){.threads = 2});
    const uint8_t *mask = ru_exe_output(e, y[1]);
    for (int64_t i = 0; i < ru_type_count(&t.g.values[y[1].v].type); i++) {
        assert_int_equal(mask[i], 1);
    }
    ru_exe *ref = open_on(&t, (ru_exe_options){.device = RU_DEVICE_REF});
    same_output(&t, e, ref, t.g.outputs[0], 0, "dropout");
    ru_exe_close(e);
    ru_exe_close(ref);
    ru_arena_fini(&t.arena);
}

RU_TESTS(exec_odd, cmocka_unit_test(dropout_tells_its_mask), cmocka_unit_test(maps_of_doubles),
         cmocka_unit_test(broadcasts), cmocka_unit_test(scales_of_places),
         cmocka_unit_test(products_of_bytes), cmocka_unit_test(softmax_of_large_inputs),
         cmocka_unit_test(rows_of_any_length), cmocka_unit_test(short_rows_that_repeat),
         cmocka_unit_test(deep_convolutions_of_one_channel),
         cmocka_unit_test(flat_convolutions_of_few_channels),
         cmocka_unit_test(convolutions_of_channels_apart),
         cmocka_unit_test(padding_beyond_memory_is_not_copied),
         cmocka_unit_test(moves_at_odd_sizes), cmocka_unit_test(few_bytes_move),
         cmocka_unit_test(products_of_doubles), cmocka_unit_test(gemms_of_doubles),
         cmocka_unit_test(products_of_halves), cmocka_unit_test(pools_at_odd_sizes),
         cmocka_unit_test(pools_keep_nan), cmocka_unit_test(powers_of_pools_are_finite),
         cmocka_unit_test(losses_of_classes), cmocka_unit_test(labels_out_of_range_are_named),
         cmocka_unit_test(whole_numbers_and_running_sums))
