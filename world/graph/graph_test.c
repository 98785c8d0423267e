/* Dimensions, construction, attributes, the builder and the printed form. */
#include "world/graph/build.h"

#include "test/test.h"

#include <string.h>

/* Small numbers and multiples of two symbols, with their values under N=6, M=10. */
static int64_t dim_of(int i)
{
    if (i < 13) {
        return i;
    }
    return ru_dim_symbol(i < 25 ? 0 : 1, i < 25 ? i - 12 : i - 24);
}

static int64_t value_of(int64_t d)
{
    return ru_dim_is_symbolic(d) ? ru_dim_coef(d) * (ru_dim_sym(d) == 0 ? 6 : 10) : d;
}

/* Whatever the algebra answers must hold under a substitution; it may only give up where no dim of
 * the form number or coefficient x symbol exists. */
static void test_dims_exhaustive(void **state)
{
    (void)state;
    for (int i = 0; i < 37; i++) {
        for (int j = 0; j < 37; j++) {
            int64_t a = dim_of(i);
            int64_t b = dim_of(j);
            bool sa = ru_dim_is_symbolic(a);
            bool sb = ru_dim_is_symbolic(b);
            int64_t m = ru_dim_mul(a, b);
            assert_int_equal(m == RU_DIM_UNKNOWN, sa && sb);
            if (m != RU_DIM_UNKNOWN) {
                assert_int_equal(value_of(m), value_of(a) * value_of(b));
            }
            int64_t s = ru_dim_add(a, b);
            bool same = sa && sb && ru_dim_sym(a) == ru_dim_sym(b);
            bool can = (!sa && !sb) || same || a == 0 || b == 0;
            assert_int_equal(s != RU_DIM_UNKNOWN, can);
            if (can) {
                assert_int_equal(value_of(s), value_of(a) + value_of(b));
            }
            int64_t q = ru_dim_div(a, b);
            if (q != RU_DIM_UNKNOWN) {
                assert_int_equal(value_of(q) * value_of(b), value_of(a));
                assert_true(b != 0);
            } else if (!sa && !sb && b != 0) {
                assert_true(a % b != 0);
            }
        }
    }
}

static void test_dims_edges(void **state)
{
    (void)state;
    assert_false(ru_dim_is_symbolic(-1));
    assert_false(ru_dim_is_symbolic(INT64_MIN));
    assert_false(ru_dim_is_symbolic(INT32_MIN));
    assert_true(ru_dim_mul(INT64_MAX, 2) == RU_DIM_UNKNOWN);
    assert_true(ru_dim_add(INT64_MAX, 1) == RU_DIM_UNKNOWN);
    int64_t big = ru_dim_symbol(3, INT64_C(1) << 40);
    assert_true(ru_dim_is_symbolic(big));
    assert_int_equal(ru_dim_coef(big), INT64_C(1) << 40);
    assert_int_equal(ru_dim_sym(big), 3);
    assert_true(ru_dim_mul(big, 2) == RU_DIM_UNKNOWN);
    assert_true(ru_dim_mul(RU_DIM_UNKNOWN, 2) == RU_DIM_UNKNOWN);
    for (uint32_t s = 0; s < RU_SYMBOLS_MAX; s++) {
        assert_int_equal(ru_dim_sym(ru_dim_symbol(s, 7)), s);
    }
}

static void test_tables(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < RU_OP_COUNT; i++) {
        const ru_op_info *op = ru_op_get((ru_op)i);
        assert_int_equal(ru_op_find(op->name, op->onnx), i);
        assert_true(op->in_min <= op->in_max && op->out_min <= op->out_max);
    }
    assert_int_equal(ru_op_find("Conv", false), RU_OP_NONE);
    for (uint32_t i = 1; i < RU_ATTR_COUNT; i++) {
        assert_int_equal(ru_attr_find(ru_attr_name((ru_attr_key)i)), i);
    }
    for (uint32_t i = 1; i < RU_DTYPE_COUNT; i++) {
        assert_int_equal(ru_dtype_from_onnx(ru_dtype_onnx((ru_dtype)i)), i);
    }
}

/* Every f16 value survives the round trip; known halfway cases round to even. */
static void test_half_floats(void **state)
{
    (void)state;
    for (uint32_t u = 0; u < 65536; u++) {
        bool nan = (u & 0x7fff) > 0x7c00;
        uint16_t back = ru_f32_to_f16(ru_f16_to_f32((uint16_t)u));
        assert_true(nan ? (back & 0x7fff) > 0x7c00 : back == u);
        nan = (u & 0x7fff) > 0x7f80;
        back = ru_f32_to_bf16(ru_bf16_to_f32((uint16_t)u));
        assert_true(nan ? (back & 0x7fff) > 0x7f80 : back == u);
    }
    /* numpy.float32(x).astype(numpy.float16).view(numpy.uint16) */
    assert_int_equal(ru_f32_to_f16(65519.0F), 0x7bff);
    assert_int_equal(ru_f32_to_f16(65520.0F), 0x7c00);
    assert_int_equal(ru_f32_to_f16(1.0F + 0x1p-11F), 0x3c00);
    assert_int_equal(ru_f32_to_f16(1.0F + 3 * 0x1p-11F), 0x3c02);
    assert_int_equal(ru_f32_to_f16(0x1p-25F), 0x0000);
    assert_int_equal(ru_f32_to_f16(0x1.8p-24F), 0x0002);
    assert_int_equal(ru_f32_to_f16(-0x1p-24F), 0x8001);
    assert_int_equal(ru_f32_to_bf16(1.0F + 0x1p-8F), 0x3f80);
    assert_int_equal(ru_f32_to_bf16(1.0F + 3 * 0x1p-8F), 0x3f82);
}

static void build_mlp(ru_graph *g)
{
    ru_err err;
    ru_build b;
    ru_build_init(&b, g);
    uint32_t n;
    assert_ok(ru_graph_symbol(g, "N", &n, &err), err);
    ru_value_id x =
        ru_build_input(&b, "x", ru_type_make(RU_F32, 2, (int64_t[]){ru_dim_symbol(n, 1), 784}));
    ru_value_id w =
        ru_build_param(&b, "fc.weight", ru_type_make(RU_F32, 2, (int64_t[]){10, 784}), NULL);
    ru_value_id c = ru_build_param(&b, "fc.bias", ru_type_make(RU_F32, 1, (int64_t[]){10}), NULL);
    ru_value_id y = ru_build_op3(&b, RU_OP_Gemm, x, w, c, (ru_attr[]){RU_AI(transB, 1), RU_A_END});
    y = ru_build_op1(&b, RU_OP_Relu, y, NULL);
    ru_build_output(&b, y, "y");
    assert_ok(ru_build_finish(&b, &err), err);
}

static void test_builder_and_print(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_graph g;
    ru_err err;
    assert_ok(ru_graph_init(&g, &a, "mlp", &err), err);
    build_mlp(&g);
    assert_string_equal(ru_graph_print(&g, &a), "graph \"mlp\"\n"
                                                "  input  x f32[N,784]\n"
                                                "  param  fc.weight f32[10,784]\n"
                                                "  param  fc.bias f32[10]\n"
                                                "  %4 f32[N,10] = Gemm(x, fc.weight, fc.bias; "
                                                "transB=1)\n"
                                                "  y f32[N,10] = Relu(%4)\n"
                                                "  output y\n");
    assert_int_equal(ru_graph_find(&g, "fc.bias").v, 3);
    assert_int_equal(ru_graph_find(&g, "nothing").v, 0);
    ru_arena_fini(&a);
}

static void test_builder_keeps_first_error(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_graph g;
    ru_err err;
    assert_ok(ru_graph_init(&g, &a, "bad", &err), err);
    ru_build b;
    ru_build_init(&b, &g);
    ru_value_id x = ru_build_input(&b, "x", ru_type_make(RU_F32, 2, (int64_t[]){2, 3}));
    ru_value_id y = ru_build_op2(&b, RU_OP_MatMul, x, x, NULL);
    y = ru_build_op1(&b, RU_OP_Relu, y, NULL);
    ru_build_output(&b, y, "y");
    assert_int_equal(ru_build_finish(&b, &err), RU_E_DATA);
    assert_string_equal(err.text, "node 1 (MatMul of f32[2,3], f32[2,3]): inner dimensions 3 and 2 "
                                  "differ");
    ru_arena_fini(&a);
}

static void test_full_arena_is_an_error(void **state)
{
    (void)state;
    for (int64_t size = 0;; size += 64) {
        static char buf[1 << 16];
        assert_true(size < (int64_t)sizeof buf);
        ru_arena a;
        ru_arena_init_fixed(&a, buf, size);
        ru_graph g;
        ru_err err = {.status = RU_OK};
        ru_status st = ru_graph_init(&g, &a, "small", &err);
        ru_build b;
        if (st == RU_OK) {
            ru_build_init(&b, &g);
            ru_value_id x = ru_build_input(&b, "x", ru_type_make(RU_F32, 2, (int64_t[]){2, 3}));
            for (int i = 0; i < 40; i++) {
                x = ru_build_op1(&b, RU_OP_Transpose, x,
                                 (ru_attr[]){RU_AIS(perm, ((int64_t[]){1, 0}), 2), RU_A_END});
            }
            ru_build_output(&b, x, "y");
            st = ru_build_finish(&b, &err);
        }
        if (st == RU_OK) {
            break;
        }
        assert_int_equal(st, RU_E_LIMIT);
    }
}

RU_TESTS(world_graph, cmocka_unit_test(test_dims_exhaustive), cmocka_unit_test(test_dims_edges),
         cmocka_unit_test(test_tables), cmocka_unit_test(test_half_floats),
         cmocka_unit_test(test_builder_and_print), cmocka_unit_test(test_builder_keeps_first_error),
         cmocka_unit_test(test_full_arena_is_an_error))
