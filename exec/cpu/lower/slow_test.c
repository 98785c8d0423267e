/* No operator of the covered list runs on the scalar reference kernels, and what runs instead
 * agrees with them. */
#include "test/ops/slow_net.h"

/* -- activations after products ------------------------------------------------------------------
 */

typedef struct act {
    ru_op op;
    ru_attr attrs[3];
} act;

static const act acts[] = {
    {RU_OP_Relu, {RU_A_END}},
    {RU_OP_LeakyRelu, {RU_AF(alpha, 0.1), RU_A_END}},
    {RU_OP_Elu, {RU_A_END}},
    {RU_OP_Sigmoid, {RU_A_END}},
    {RU_OP_Tanh, {RU_A_END}},
    {RU_OP_HardSwish, {RU_A_END}},
    {RU_OP_HardSigmoid, {RU_AF(alpha, 0.17), RU_AF(beta, 0.4), RU_A_END}},
    {RU_OP_Gelu, {RU_A_END}},
    {RU_OP_Gelu, {RU_AS(approximate, "tanh"), RU_A_END}},
    {RU_OP_Softplus, {RU_A_END}},
    {RU_OP_Mish, {RU_A_END}},
    {RU_OP_Selu, {RU_A_END}},
};

/* conv: 0 3x3 (Winograd), 1 five channels (padded blocks), 2 1-D, 3 depthwise, 4 transposed,
 * 5 MatMul, 6 Gemm; `sum`: a residual before the activation */
enum { FORMS = 7 };

static ru_value_id product(net *t, uint32_t form, ru_value_id *like)
{
    const ru_attr same[] = {RU_AIS(pads, ((int64_t[]){1, 1, 1, 1}), 4), RU_A_END};
    const ru_attr deep[] = {RU_AIS(pads, ((int64_t[]){1, 1, 1, 1}), 4), RU_AI(group, 32), RU_A_END};
    const ru_attr line[] = {RU_AIS(pads, ((int64_t[]){1, 1}), 2), RU_A_END};
    ru_value_id x, w, c = param(t, T(F32, form == 1 ? 5 : 32), 0.2f);
    *like = (ru_value_id){0};
    switch (form) {
    case 0:
    case 1:
        x = *like = input(t, "x", T(F32, 2, form == 1 ? 5 : 32, 16, 16));
        w = param(t, T(F32, form == 1 ? 5 : 32, form == 1 ? 5 : 32, 3, 3), 0.1f);
        return ru_build_op3(&t->b, RU_OP_Conv, x, w, c, same);
    case 2:
        x = *like = input(t, "x", T(F32, 2, 32, 40));
        w = param(t, T(F32, 32, 32, 3), 0.1f);
        return ru_build_op3(&t->b, RU_OP_Conv, x, w, c, line);
    case 3:
        x = *like = input(t, "x", T(F32, 2, 32, 16, 16));
        w = param(t, T(F32, 32, 1, 3, 3), 0.3f);
        return ru_build_op3(&t->b, RU_OP_Conv, x, w, c, deep);
    case 4:
        x = *like = input(t, "x", T(F32, 2, 32, 9, 9));
        w = param(t, T(F32, 32, 32, 3, 3), 0.1f);
        return ru_build_op3(&t->b, RU_OP_ConvTranspose, x, w, c, same);
    default:
        x = *like = input(t, "x", T(F32, 6, 32));
        w = param(t, T(F32, 32, 32), 0.2f);
        return form == 5 ? ru_build_op2(&t->b, RU_OP_MatMul, x, w, NULL)
                         : ru_build_op3(&t->b, RU_OP_Gemm, x, w, c, NULL);
    }
}

static void activations_after_products(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(acts) * FORMS * 2; k++) {
        const act *a = &acts[k / (FORMS * 2)];
        uint32_t form = k / 2 % FORMS;
        net t;
        ru_value_id like;
        net_init(&t);
        ru_value_id y = product(&t, form, &like);
        if (k % 2 == 1) {
            y = ru_build_op2(&t.b, RU_OP_Add, y, like, NULL);
        }
        y = ru_build_op1(&t.b, a->op, y, a->attrs);
        ru_build_output(&t.b, y, "y");
        char name[64];
        snprintf(name, sizeof name, "%s after form %u%s", ru_op_get(a->op)->name, form,
                 k % 2 == 1 ? " and a sum" : "");
        fast_and_right(&t, 5e-5, name);
    }
}

/* Over all places of images as convolutions leave them: in blocks of channels, channels last, rows.
 */
static void reductions_after_convolutions(void **state)
{
    (void)state;
    static const ru_op ops[] = {RU_OP_ReduceMean, RU_OP_ReduceMax, RU_OP_ReduceL2, RU_OP_ReduceSum};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ops) * 4; k++) {
        uint32_t form = k % 4; /* of product(): 3x3, five channels, 1-D, depthwise */
        net t;
        ru_value_id like;
        net_init(&t);
        ru_value_id y = product(&t, form, &like);
        ru_value_id axes = form == 2 ? ru_build_const_i64s(&t.b, (int64_t[]){-1}, 1)
                                     : ru_build_const_i64s(&t.b, (int64_t[]){2, 3}, 2);
        y = ru_build_op2(&t.b, ops[k / 4], y, axes,
                         (ru_attr[]){RU_AI(keepdims, (int64_t)(k / 4 % 2)), RU_A_END});
        ru_build_output(&t.b, y, "y");
        fast_and_right(&t, 5e-5, ru_op_get(ops[k / 4])->name);
    }
}

/* Squeeze-and-excitation: the image keeps the layout of its convolution, whichever that is. */
static void gates_of_channels(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 8; k++) {
        uint32_t form = k / 2; /* of product(): 3x3, five channels, 1-D, depthwise */
        net t;
        ru_value_id like;
        net_init(&t);
        ru_value_id y = product(&t, form, &like);
        int64_t c = form == 1 ? 5 : 32;
        ru_type w = form == 2 ? T(F32, c, c, 1) : T(F32, c, c, 1, 1);
        ru_value_id gate = ru_build_op1(&t.b, RU_OP_GlobalAveragePool, y, NULL);
        gate = ru_build_op2(&t.b, RU_OP_Conv, gate, param(&t, w, 0.5f), NULL);
        gate = ru_build_op1(&t.b, RU_OP_Sigmoid, gate, NULL);
        y = ru_build_op2(&t.b, RU_OP_Mul, k % 2 == 0 ? y : gate, k % 2 == 0 ? gate : y, NULL);
        ru_build_output(&t.b, ru_build_op2(&t.b, RU_OP_Conv, y, param(&t, w, 0.3f), NULL), "y");
        fast_and_right(&t, 5e-5, "gate");
    }
}

/* -- scatters on threads -------------------------------------------------------------------------
 */

typedef struct scatter_case {
    ru_op op;
    const char *reduction;
    bool ints; /* i64 instead of f32 */
    uint32_t rank;
    int64_t x[3], index[3], updates[3], axis;
} scatter_case;

/* Indices are 0 to 4, so that most places are met many times. By form: rows split by columns, rows
 * too narrow for that, single elements; along the last axis one line and several. */
static const scatter_case scatter_cases[] = {
    {RU_OP_ScatterND, "add", false, 2, {5, 64}, {900, 1}, {900, 64}, 0},
    {RU_OP_ScatterND, "max", false, 2, {9, 40}, {700, 1}, {700, 40}, 0},
    {RU_OP_ScatterND, "min", false, 2, {9, 7}, {3000, 1}, {3000, 7}, 0},
    {RU_OP_ScatterND, "mul", false, 2, {9, 7}, {40, 1}, {40, 7}, 0},
    {RU_OP_ScatterND, "none", false, 2, {6, 3}, {3000, 1}, {3000, 3}, 0},
    {RU_OP_ScatterND, "add", true, 2, {6, 50}, {500, 1}, {500, 50}, 0},
    {RU_OP_ScatterND, "add", false, 2, {7, 11}, {9000, 2}, {9000}, 0},
    {RU_OP_ScatterElements, "add", false, 2, {5, 70}, {300, 64}, {300, 64}, 0},
    {RU_OP_ScatterElements, "max", false, 2, {8, 1}, {9000, 1}, {9000, 1}, 0},
    {RU_OP_ScatterElements, "add", false, 3, {3, 5, 33}, {2, 400, 33}, {2, 400, 33}, 1},
    {RU_OP_ScatterElements, "add", false, 2, {40, 9}, {30, 500}, {30, 500}, 1},
    {RU_OP_ScatterElements, "add", false, 1, {9}, {9000}, {9000}, 0},
    {RU_OP_ScatterElements, "add", true, 1, {9}, {9000}, {9000}, 0},
    {RU_OP_ScatterElements, "none", false, 2, {40, 9}, {30, 500}, {30, 500}, 1},
    {RU_OP_ScatterElements, "none", false, 2, {40, 9}, {40, 500}, {40, 500}, 1},
    {RU_OP_ScatterElements, "none", true, 3, {3, 20, 7}, {3, 20, 90}, {3, 20, 90}, 2},
    {RU_OP_ScatterElements, "none", false, 1, {9}, {9000}, {9000}, 0},
};

static ru_value_id scatter_of(net *t, const scatter_case *c)
{
    ru_dtype d = c->ints ? RU_I64 : RU_F32;
    uint32_t rank = c->rank, tuples = c->op == RU_OP_ScatterND ? 2 : rank;
    uint32_t updates = c->updates[1] == 0 ? 1 : rank;
    ru_value_id x = input(t, "x", ru_type_make(d, rank, c->x));
    ru_value_id index = input(t, "index", ru_type_make(RU_I64, tuples, c->index));
    ru_value_id u = input(t, "updates", ru_type_make(d, updates, c->updates));
    const ru_attr nd[] = {RU_AS(reduction, c->reduction), RU_A_END};
    const ru_attr along[] = {RU_AS(reduction, c->reduction), RU_AI(axis, c->axis), RU_A_END};
    return ru_build_op3(&t->b, c->op, x, index, u, c->op == RU_OP_ScatterND ? nd : along);
}

/* Does a step of the executable run `kernel`? */
static bool runs_kernel(net *t, const ru_exe *e, const char *kernel)
{
    return strstr(ru_exe_print(e, &t->arena), kernel) != NULL;
}

static ru_exe *same_on_threads(net *t, ru_value_id y, const char *name)
{
    size_t bytes = (size_t)ru_type_bytes(&t->g.values[y.v].type);
    ru_exe *ref = open_on(t, (ru_exe_options){.device = RU_DEVICE_REF}), *one = NULL;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        ru_exe *e = open_on(t, (ru_exe_options){.threads = threads});
        one = threads == 1 ? e : one;
        ru_exe_stats s;
        ru_exe_stats_get(e, &s);
        assert_int_equal(s.n_slow, 0);
        same_output(t, e, ref, y, 1e-5, name);
        if (memcmp(ru_exe_output(e, y), ru_exe_output(one, y), bytes) != 0) {
            fail_msg("%s: %u threads differ from one", name, threads);
        }
        if (e != one) {
            ru_exe_close(e);
        }
    }
    ru_exe_close(ref);
    return one;
}

/* Each element's terms are added in the order of the indices, whatever the threads. */
static void scatters_do_not_depend_on_threads(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(scatter_cases); k++) {
        const scatter_case *c = &scatter_cases[k];
        char name[32];
        snprintf(name, sizeof name, "scatter case %u", k);
        net t;
        net_init(&t);
        ru_value_id y = scatter_of(&t, c);
        ru_build_output(&t.b, y, "y");
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe_close(same_on_threads(&t, y, name));
        ru_arena_fini(&t.arena);
    }
}

/* Sums over edges: the slices that a gather takes are combined where they go, unless somebody else
 * reads them; indices repeated over rows stay [n, 1]. */
static void scatters_read_past_gathers(void **state)
{
    (void)state;
    static const char *const reductions[] = {"add", "mul", "max", "min", "none"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(reductions) * 4; k++) {
        bool nd = k % 2 == 0, read_twice = k % 4 >= 2;
        const char *reduction = reductions[k / 4];
        int64_t n = reduction[0] == 'm' && reduction[1] == 'u' ? 20 : 700;
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", T(F32, 9, 48)), table = input(&t, "table", T(F32, 6, 48));
        ru_value_id from = input(&t, "from", T(I64, n, 1)), to = input(&t, "to", T(I64, n, 1));
        ru_value_id flat = ru_build_const_i64s(&t.b, (int64_t[]){n}, 1);
        ru_value_id pick = nd ? from : ru_build_op2(&t.b, RU_OP_Reshape, from, flat, NULL);
        ru_value_id u = ru_build_op2(&t.b, nd ? RU_OP_GatherND : RU_OP_Gather, table, pick, NULL);
        ru_value_id rows = ru_build_const_i64s(&t.b, (int64_t[]){n, 48}, 2);
        ru_value_id index = nd ? to : ru_build_op2(&t.b, RU_OP_Expand, to, rows, NULL);
        ru_value_id y = ru_build_op3(&t.b, nd ? RU_OP_ScatterND : RU_OP_ScatterElements, x, index,
                                     u, (ru_attr[]){RU_AS(reduction, reduction), RU_A_END});
        ru_build_output(&t.b, y, "y");
        if (read_twice) {
            ru_build_output(&t.b, ru_build_op1(&t.b, RU_OP_Relu, u, NULL), "z");
        }
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe *e = same_on_threads(&t, y, reduction);
        assert_int_equal(runs_kernel(&t, e, "kern gather scatter"), !read_twice && k / 4 != 4);
        assert_false(runs_kernel(&t, e, "kern scatter elements"));
        int64_t *places = ru_exe_input(e, from);
        places[n - 3] = -7;
        assert_int_equal(ru_exe_run(e, NULL, &t.err), RU_E_DATA);
        assert_non_null(strstr(t.err.text, "index -7 "));
        ru_exe_close(e);
        ru_arena_fini(&t.arena);
    }
}

/* Few indices, from either end, of many rows of few elements, and one more of each. */
static void few_of_many_are_gathered(void **state)
{
    (void)state;
    static const ru_dtype types[] = {RU_F32, RU_F16, RU_F64, RU_U8};
    static const int64_t counts[] = {1, 3, 32, 33}, widths[] = {1, 3, 11, 32, 33};
    for (uint32_t k = 0; k < 2 * 4 * 4 * 5; k++) {
        const int64_t n = counts[k / 2 % 4], cols = widths[k / 8 % 5];
        net t;
        net_init(&t);
        int64_t *wide = RU_NEW(&t.arena, int64_t, n);
        int32_t *narrow = RU_NEW(&t.arena, int32_t, n);
        for (int64_t i = 0; i < n; i++) {
            wide[i] = i % 2 == 0 ? (i * 5 + 3) % 7 : -1 - i * 3 % 7;
            narrow[i] = (int32_t)wide[i];
        }
        ru_value_id at = ru_build_const(&t.b, ru_type_make(k % 2 == 0 ? RU_I64 : RU_I32, 1, &n),
                                        k % 2 == 0 ? (const void *)wide : narrow);
        ru_value_id x = input(&t, "x", ru_type_make(types[k / 40], 3, (int64_t[]){301, 7, cols}));
        const ru_attr attrs[] = {RU_AI(axis, 1), RU_A_END};
        ru_build_output(&t.b, ru_build_op2(&t.b, RU_OP_Gather, x, at, attrs), "y");
        fast_and_right(&t, 0, "few of many");
    }
}

/* A tensor is scattered into itself: it must not be overwritten while it is still read, as updates
 * (taken by a gather or whole) or as indices. */
static void scatters_into_themselves(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 3; k++) {
        bool ints = k == 2;
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", ints ? T(I64, 6, 6) : T(F32, 9, 48)), y;
        ru_value_id h = ru_build_op1(&t.b, ints ? RU_OP_Abs : RU_OP_Relu, x, NULL);
        const ru_attr add[] = {RU_AS(reduction, "add"), RU_A_END};
        if (k == 0) {
            ru_value_id from = input(&t, "from", T(I64, 700, 1)),
                        to = input(&t, "to", T(I64, 700, 1));
            ru_value_id u = ru_build_op2(&t.b, RU_OP_GatherND, h, from, NULL);
            y = ru_build_op3(&t.b, RU_OP_ScatterND, h, to, u, add);
        } else {
            ru_value_id index = ints ? h : input(&t, "index", T(I64, 9, 48));
            ru_value_id u = ints ? input(&t, "updates", T(I64, 6, 6)) : h;
            y = ru_build_op3(&t.b, RU_OP_ScatterElements, h, index, u, add);
        }
        ru_build_output(&t.b, y, "y");
        char name[40];
        snprintf(name, sizeof name, "scatter into itself %u", k);
        fast_and_right(&t, 1e-5, name);
    }
}

/* The error names the first index out of range, whichever thread meets it. */
static void indices_out_of_range_are_named(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        for (uint32_t k = 0; k < RU_ARRAY_LEN(scatter_cases); k++) {
            net t;
            net_init(&t);
            ru_build_output(&t.b, scatter_of(&t, &scatter_cases[k]), "y");
            assert_ok(ru_build_finish(&t.b, &t.err), t.err);
            ru_exe *e = open_on(&t, (ru_exe_options){.threads = threads});
            ru_value_id id = ru_graph_find(&t.g, "index");
            int64_t *index = ru_exe_input(e, id), n = ru_type_count(&t.g.values[id.v].type);
            index[n - 1] = 1000000;
            index[n / 2] = -1000000;
            char at[32];
            snprintf(at, sizeof at, "position %lld ", (long long)(n / 2));
            assert_int_equal(ru_exe_run(e, NULL, &t.err), RU_E_DATA);
            assert_non_null(strstr(t.err.text, at));
            ru_exe_close(e);
            ru_arena_fini(&t.arena);
        }
    }
}

/* -- whole numbers, odd axes, vectors ------------------------------------------------------------
 */

typedef struct odd_form {
    ru_op op;
    ru_dtype from, to; /* to: of a Cast */
    int64_t dims[4];
    int64_t second[3]; /* axes, axis or diagonal; all 0: none */
    uint32_t n_second;
    bool upper;
} odd_form;

static const odd_form odd_forms[] = {
    {RU_OP_Abs, RU_I64, 0, {3, 700}, {0}, 0, false},
    {RU_OP_Neg, RU_I32, 0, {3, 700}, {0}, 0, false},
    {RU_OP_Sign, RU_I8, 0, {3, 700}, {0}, 0, false},
    {RU_OP_BitwiseNot, RU_U8, 0, {3, 700}, {0}, 0, false},
    {RU_OP_CumSum, RU_I64, 0, {40, 300}, {1}, 1, false},
    {RU_OP_CumSum, RU_I32, 0, {300, 40}, {0}, 1, false},
    {RU_OP_ArgMax, RU_I64, 0, {40, 300}, {0}, 0, false},
    {RU_OP_ArgMin, RU_I32, 0, {40, 300}, {0}, 0, false},
    {RU_OP_Cast, RU_BOOL, RU_I64, {3, 700}, {0}, 0, false},
    {RU_OP_Cast, RU_I64, RU_BOOL, {3, 700}, {0}, 0, false},
    {RU_OP_Cast, RU_F32, RU_I8, {3, 700}, {0}, 0, false},
    {RU_OP_Cast, RU_F32, RU_F16, {3, 700}, {0}, 0, false},
    {RU_OP_Cast, RU_I64, RU_I16, {3, 700}, {0}, 0, false},
    {RU_OP_Cast, RU_I64, RU_F64, {3, 700}, {0}, 0, false},
    {RU_OP_Cast, RU_U8, RU_I32, {3, 700}, {0}, 0, false},
    {RU_OP_Trilu, RU_F32, 0, {3, 90, 70}, {-2}, 1, false},
    {RU_OP_Trilu, RU_BOOL, 0, {3, 70, 90}, {1}, 1, true},
    {RU_OP_ReduceSum, RU_F32, 0, {6, 7, 8, 33}, {0, 2}, 2, false},
    {RU_OP_ReduceMean, RU_F32, 0, {6, 7, 8, 33}, {1, 3}, 2, false},
    {RU_OP_ReduceMin, RU_F32, 0, {6, 7, 8, 33}, {0, 2}, 2, false},
    {RU_OP_ReduceLogSumExp, RU_F32, 0, {50, 600}, {1}, 1, false},
    {RU_OP_ReduceLogSumExp, RU_F32, 0, {50, 600}, {0}, 1, false},
    {RU_OP_ReduceLogSumExp, RU_F32, 0, {6, 7, 8, 33}, {0, 2}, 2, false},
    {RU_OP_ReduceLogSumExp, RU_F64, 0, {50, 600}, {1}, 1, false},
    {RU_OP_ReduceLogSumExp, RU_F64, 0, {2, 1500}, {1}, 1, false},
    {RU_OP_ReduceLogSumExp, RU_F64, 0, {50, 600}, {0}, 1, false},
    {RU_OP_ReduceLogSumExp, RU_F64, 0, {6, 7, 8, 33}, {0, 2}, 2, false},
    {RU_OP_ReduceMin, RU_F64, 0, {50, 600}, {1}, 1, false},
    {RU_OP_ReduceSum, RU_I64, 0, {50, 600}, {1}, 1, false},
    {RU_OP_ReduceProd, RU_I32, 0, {50, 6}, {0}, 1, false},
    {RU_OP_ReduceMax, RU_BOOL, 0, {50, 600}, {1}, 1, false},
};

static void odd_forms_have_kernels(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(odd_forms); k++) {
        const odd_form *f = &odd_forms[k];
        const ru_attr to[] = {RU_AI(to, ru_dtype_onnx(f->to)), RU_A_END},
                      up[] = {RU_AI(upper, f->upper), RU_A_END};
        const ru_attr *attrs = f->op == RU_OP_Cast ? to : f->op == RU_OP_Trilu ? up : NULL;
        uint32_t rank = 0;
        while (rank < 4 && f->dims[rank] != 0) {
            rank++;
        }
        net t;
        net_init(&t);
        ru_value_id in[2] = {input(&t, "x", ru_type_make(f->from, rank, f->dims))}, y;
        bool scalar = f->op == RU_OP_CumSum || f->op == RU_OP_Trilu;
        if (f->n_second > 0) {
            in[1] = scalar ? ru_build_const(&t.b, ru_type_scalar(RU_I64), f->second)
                           : ru_build_const_i64s(&t.b, f->second, f->n_second);
        }
        ru_build_node(&t.b, f->op, in, f->n_second > 0 ? 2 : 1, attrs, &y, 1);
        ru_build_output(&t.b, y, "y");
        char name[48];
        snprintf(name, sizeof name, "form %u, %s", k, ru_op_get(f->op)->name);
        fast_and_right(&t, 1e-5, name);
    }
}

/* Over axes that do not lie together; finite numbers follow the NaN. */
static void nan_is_the_extreme(void **state)
{
    (void)state;
    static const ru_op ops[] = {RU_OP_ReduceMax, RU_OP_ReduceMin, RU_OP_ReduceLogSumExp};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ops) * 2; k++) {
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", T(F32, 6, 7, 8, 33));
        ru_value_id axes =
            ru_build_const_i64s(&t.b, k % 2 == 0 ? (int64_t[]){0, 2} : (int64_t[]){1, 3}, 2);
        ru_value_id y = ru_build_op2(&t.b, ops[k / 2], x, axes, NULL);
        ru_build_output(&t.b, y, "y");
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe *e = open_on(&t, (ru_exe_options){.threads = 1});
        assert_true(runs_kernel(&t, e, "kern reduce any"));
        ((float *)ru_exe_input(e, x))[33 + 4] = NAN;
        assert_ok(ru_exe_run(e, NULL, &t.err), t.err);
        const float *to = ru_exe_output(e, y);
        uint32_t nans = 0;
        for (int64_t i = 0; i < ru_type_count(&t.g.values[y.v].type); i++) {
            nans += isnan(to[i]) ? 1 : 0;
        }
        assert_int_equal(nans, 1);
        ru_exe_close(e);
        ru_arena_fini(&t.arena);
    }
}

/* Of every form that broadcasts, scaled or not, before a residual and an activation. */
static void biases_of_gemm(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {1, 70}, {40, 1}, {40, 70}, {0, 1}, {0, 70}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(shapes) * 8; k++) {
        const int64_t *dims = shapes[k / 8];
        net t;
        net_init(&t);
        ru_value_id a = input(&t, "a", T(F32, 40, 30)), r = input(&t, "r", T(F32, 40, 70));
        ru_type of = ru_type_make(RU_F32, dims[0] == 0 ? 1 : 2, dims[0] == 0 ? dims + 1 : dims);
        ru_value_id b = param(&t, T(F32, 30, 70), 0.5f), c = param(&t, of, 1.0f);
        const ru_attr scaled[] = {RU_AF(alpha, 0.5), RU_AF(beta, k % 4 == 1 ? 2.0 : 0.0), RU_A_END};
        ru_value_id y = ru_build_op3(&t.b, RU_OP_Gemm, a, b, c, k % 2 == 1 ? scaled : scaled + 2);
        y = k % 4 >= 2 ? ru_build_op2(&t.b, RU_OP_Add, y, r, NULL) : y;
        y = k % 8 >= 4 ? ru_build_op1(&t.b, RU_OP_HardSigmoid, y, NULL) : y;
        ru_build_output(&t.b, y, "y");
        char name[32];
        snprintf(name, sizeof name, "bias %u", k);
        fast_and_right(&t, 1e-5, name);
    }
}

static void vectors_in_products(void **state)
{
    (void)state;
    static const int64_t shapes[][2][3] = {
        {{40, 64}, {64}}, {{64}, {64, 40}}, {{64}, {64}}, {{3, 40, 64}, {64}}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(shapes) * 2; k++) {
        ru_value_id in[2];
        net t;
        net_init(&t);
        for (uint32_t i = 0; i < 2; i++) {
            const int64_t *dims = shapes[k / 2][i];
            ru_type type = ru_type_make(RU_F32, dims[1] == 0 ? 1 : dims[2] == 0 ? 2 : 3, dims);
            in[i] =
                i == 1 && k % 2 == 1 ? param(&t, type, 1.0f) : input(&t, i == 0 ? "a" : "b", type);
        }
        ru_value_id y = ru_build_op2(&t.b, RU_OP_MatMul, in[0], in[1], NULL);
        ru_type of = t.g.values[y.v].type;
        ru_value_id bias = param(&t, T(F32, of.rank > 0 ? of.dims[of.rank - 1] : 1), 1.0f);
        ru_build_output(&t.b, ru_build_op2(&t.b, RU_OP_Add, y, bias, NULL), "y");
        char name[32];
        snprintf(name, sizeof name, "product %u", k);
        fast_and_right(&t, 1e-5, name);
    }
}

/* What the compute library runs by plain loops is told with the steps. */
static void plain_loops_are_told(void **state)
{
    (void)state;
    static const ru_attr five[] = {RU_AI(size, 5), RU_A_END};
    for (uint32_t k = 0; k < 2; k++) {
        net t;
        net_init(&t);
        ru_value_id x =
            input(&t, "x", T(F32, 2, 7, 13, 11)); /* 7 channels: no vectors of channels */
        ru_value_id y =
            ru_build_op1(&t.b, k == 0 ? RU_OP_LRN : RU_OP_Relu, x, k == 0 ? five : NULL);
        ru_build_output(&t.b, y, "y");
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe *cpu = open_on(&t, (ru_exe_options){.threads = 1});
        const char *steps = ru_exe_print(cpu, &t.arena);
        assert_non_null(strstr(steps, k == 0 ? "plain loops of the compute library: LRN (dnnl lrn"
                                             : "plain loops of the compute library: none"));
        ru_exe_close(cpu);
        ru_arena_fini(&t.arena);
    }
}

RU_TESTS(exec_slow, cmocka_unit_test(plain_loops_are_told),
         cmocka_unit_test(odd_forms_have_kernels), cmocka_unit_test(vectors_in_products),
         cmocka_unit_test(scatters_do_not_depend_on_threads),
         cmocka_unit_test(few_of_many_are_gathered), cmocka_unit_test(scatters_read_past_gathers),
         cmocka_unit_test(scatters_into_themselves), cmocka_unit_test(nan_is_the_extreme),
         cmocka_unit_test(biases_of_gemm), cmocka_unit_test(indices_out_of_range_are_named),
         cmocka_unit_test(gates_of_channels), cmocka_unit_test(activations_after_products),
         cmocka_unit_test(reductions_after_convolutions))
