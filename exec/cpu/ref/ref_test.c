/* Reference kernels where f32 vectors do not look: 64-bit integers, single rounding, bad data. */
#include "exec/ref.h"
#include "test/test.h"

#include <math.h>
#include <string.h>

#include "world/graph/graph.h"

/* One call on row-major data; `n` elements of input k, `m` of the output. */
typedef struct one {
    ru_node node;
    ru_tensor in[3], out;
    ru_err err;
} one;

static ru_status run(one *o, ru_op op, uint32_t n_in, const ru_attr *attrs, uint32_t n_attrs)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    o->node = (ru_node){.op = op, .n_in = n_in, .n_out = 1, .attrs = attrs, .n_attrs = n_attrs};
    const ru_ref_call call = {.node = &o->node, .in = o->in, .out = &o->out, .scratch = &scratch};
    ru_status st = ru_ref_kernel(op)(&call, &o->err);
    ru_arena_fini(&scratch);
    return st;
}

static ru_tensor tensor(ru_dtype dtype, void *data, int64_t n)
{
    return (ru_tensor){.data = data, .type = ru_type_make(dtype, 1, &n)};
}

static void test_integers_keep_64_bits(void **state)
{
    (void)state;
    int64_t x[] = {INT64_C(9007199254740993), 1}, y[] = {1, 1}, sum[2];
    one o = {.in = {tensor(RU_I64, x, 2), tensor(RU_I64, y, 2)}, .out = tensor(RU_I64, sum, 2)};
    assert_ok(run(&o, RU_OP_Add, 2, NULL, 0), o.err);
    assert_true(sum[0] == INT64_C(9007199254740994));
    o.out = tensor(RU_I64, sum, 1);
    assert_ok(run(&o, RU_OP_ReduceSum, 1, NULL, 0), o.err);
    assert_true(sum[0] == INT64_C(9007199254740994));
    uint64_t big[] = {UINT64_C(1) << 63, 3};
    o.in[0] = tensor(RU_U64, big, 2);
    o.out = tensor(RU_U64, sum, 1);
    assert_ok(run(&o, RU_OP_ReduceMax, 1, NULL, 0), o.err);
    assert_true((uint64_t)sum[0] == UINT64_C(1) << 63);
    int8_t a[] = {127, -128}, b[] = {1, 1}, c[2];
    o = (one){.in = {tensor(RU_I8, a, 2), tensor(RU_I8, b, 2)}, .out = tensor(RU_I8, c, 2)};
    assert_ok(run(&o, RU_OP_Add, 2, NULL, 0), o.err);
    assert_int_equal(c[0], -128);
    assert_ok(run(&o, RU_OP_Sub, 2, NULL, 0), o.err);
    assert_int_equal(c[1], 127);
}

/* 1 + 2^-11 + 2^-40 lies above the middle of two f16 neighbours; by way of f32 it would fall on the
 * middle and go down. The same for bf16 with 2^-8. */
static void test_halves_round_once(void **state)
{
    (void)state;
    double x[] = {1.0 + 0x1p-11 + 0x1p-40, 1.0 + 0x1p-11, 1.0 + 0x1p-8 + 0x1p-40};
    uint16_t y[3];
    one o = {.in = {tensor(RU_F64, x, 3)}, .out = tensor(RU_F16, y, 3)};
    assert_ok(run(&o, RU_OP_Cast, 1, NULL, 0), o.err);
    assert_int_equal(y[0], 0x3c01);
    assert_int_equal(y[1], 0x3c00);
    o.out = tensor(RU_BF16, y, 3);
    assert_ok(run(&o, RU_OP_Cast, 1, NULL, 0), o.err);
    assert_int_equal(y[2], 0x3f81);
    assert_int_equal(y[1], 0x3f80);
}

static void test_bad_data_is_an_error(void **state)
{
    (void)state;
    int64_t x[] = {7, 8}, zero[] = {1, 0}, y[2];
    one o = {.in = {tensor(RU_I64, x, 2), tensor(RU_I64, zero, 2)}, .out = tensor(RU_I64, y, 2)};
    assert_int_equal(run(&o, RU_OP_Div, 2, NULL, 0), RU_E_DATA);
    assert_int_equal(run(&o, RU_OP_Mod, 2, NULL, 0), RU_E_DATA);
    int64_t far[] = {0, 2};
    o.in[1] = tensor(RU_I64, far, 2);
    assert_int_equal(run(&o, RU_OP_Gather, 2, NULL, 0), RU_E_DATA);
    far[1] = -2;
    assert_ok(run(&o, RU_OP_Gather, 2, NULL, 0), o.err);
    assert_true(y[0] == 7 && y[1] == 7);
    float logits[] = {0.0F, 1.0F}, loss;
    int64_t label = 2, dims[] = {1, 2};
    o = (one){.in = {{logits, ru_type_make(RU_F32, 2, dims)}, tensor(RU_I64, &label, 1)},
              .out = {&loss, ru_type_scalar(RU_F32)}};
    assert_int_equal(run(&o, RU_OP_SoftmaxCrossEntropy, 2, NULL, 0), RU_E_DATA);
    const ru_attr ignore = {.key = RU_ATTR_ignore_index, .kind = RU_ATTR_INT, .n = 1, .u.i = 2};
    assert_ok(run(&o, RU_OP_SoftmaxCrossEntropy, 2, &ignore, 1), o.err);
    assert_true(loss == 0.0F);
}

static void test_every_op_has_a_kernel(void **state)
{
    (void)state;
    for (uint32_t op = 1; op < RU_OP_COUNT; op++) {
        assert_true(ru_ref_kernel((ru_op)op) != NULL);
    }
    assert_true(ru_ref_kernel(RU_OP_NONE) == NULL);
}

/* Against the sum of the definition: powers of two and four, small factors, primes of both kinds.
 */
static void test_transforms_of_any_length(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 3, 4, 5, 8, 12, 16, 31, 37, 60, 64, 74, 97, 128, 210};
    enum { MOST = 210 };
    for (uint32_t c = 0; c < 2 * RU_ARRAY_LEN(lengths); c++) {
        const int64_t n = lengths[c / 2], dims[] = {1, n, 2};
        const double way = c % 2 == 0 ? -1.0 : 1.0, by = c % 2 == 0 ? 1.0 : 1.0 / (double)n;
        double x[2 * MOST], y[2 * MOST];
        for (int64_t i = 0; i < 2 * n; i++) {
            x[i] = (double)((i + 3) * (i + 7) % 101) / 50.0 - 1.0;
        }
        one o = {.in = {tensor(RU_F64, x, 2 * n)}, .out = tensor(RU_F64, y, 2 * n)};
        o.in[0].type = o.out.type = ru_type_make(RU_F64, 3, dims);
        const ru_attr inverse = {.key = RU_ATTR_inverse, .kind = RU_ATTR_INT, .n = 1, .u.i = c % 2};
        assert_ok(run(&o, RU_OP_DFT, 1, &inverse, 1), o.err);
        for (int64_t k = 0; k < n; k++) {
            double re = 0.0, im = 0.0;
            for (int64_t j = 0; j < n; j++) {
                double a = way * 8.0 * atan(1.0) * (double)(j * k % n) / (double)n;
                re += x[2 * j] * cos(a) - x[2 * j + 1] * sin(a);
                im += x[2 * j] * sin(a) + x[2 * j + 1] * cos(a);
            }
            assert_true(fabs(y[2 * k] - by * re) < 1e-11);
            assert_true(fabs(y[2 * k + 1] - by * im) < 1e-11);
        }
    }
}

RU_TESTS(exec_ref, cmocka_unit_test(test_transforms_of_any_length),
         cmocka_unit_test(test_integers_keep_64_bits), cmocka_unit_test(test_halves_round_once),
         cmocka_unit_test(test_bad_data_is_an_error), cmocka_unit_test(test_every_op_has_a_kernel))
