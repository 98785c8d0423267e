/* Arithmetic on f16 becomes arithmetic on f32 between casts, what only moves elements stays. */
#include <string.h>

#include "test/test.h"
#include "world/graph/build.h"
#include "world/pass/pass.h"

typedef struct half_fix {
    ru_arena a;
    ru_graph g, after;
    ru_build b;
    ru_err err;
} half_fix;

static void init(half_fix *f)
{
    memset(f, 0, sizeof *f);
    ru_arena_init(&f->a, 0);
    assert_ok(ru_graph_init(&f->g, &f->a, "half", &f->err), f->err);
    ru_build_init(&f->b, &f->g);
}

static void fuse(half_fix *f)
{
    assert_ok(ru_build_finish(&f->b, &f->err), f->err);
    assert_ok(ru_pass_fuse(&f->g, NULL, true, &f->a, &f->after, &f->err), f->err);
}

/* Nodes of `op`; all their inputs and results must have this type. */
static uint32_t count(const half_fix *f, ru_op op, ru_dtype in, ru_dtype out)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < f->after.n_nodes; i++) {
        const ru_node *node = &f->after.nodes[i];
        bool fits = node->op == op && f->after.values[node->out[0].v].type.dtype == out;
        for (uint32_t k = 0; k < node->n_in; k++) {
            ru_value_id v = node->in[k];
            fits = fits && (v.v == 0 || f->after.values[v.v].type.dtype == in);
        }
        n += fits;
    }
    return n;
}

static ru_value_id halves(half_fix *f, const char *name, int64_t rows, int64_t cols)
{
    const int64_t dims[] = {rows, cols};
    return ru_build_input(&f->b, name, ru_type_make(RU_F16, 2, dims));
}

static void arithmetic_is_widened(void **state)
{
    (void)state;
    half_fix f;
    init(&f);
    static const int64_t dims[] = {4, 2};
    uint16_t data[8];
    for (int i = 0; i < 8; i++) {
        data[i] = ru_f32_to_f16((float)i - 2.5f);
    }
    ru_value_id x = halves(&f, "x", 3, 4), y;
    ru_value_id w = ru_build_const(&f.b, ru_type_make(RU_F16, 2, dims), data);
    y = ru_build_op2(&f.b, RU_OP_MatMul, x, w, NULL);
    ru_build_output(&f.b, y, "y");
    fuse(&f);
    assert_int_equal(f.after.n_nodes - 1, 3); /* node 0 is none */
    assert_int_equal(count(&f, RU_OP_Cast, RU_F16, RU_F32), 1);
    assert_int_equal(count(&f, RU_OP_MatMul, RU_F32, RU_F32), 1);
    assert_int_equal(count(&f, RU_OP_Cast, RU_F32, RU_F16), 1);
    for (uint32_t i = 1; i < f.after.n_nodes; i++) { /* the constant was widened here */
        if (f.after.nodes[i].op == RU_OP_MatMul) {
            const ru_value *v = &f.after.values[f.after.nodes[i].in[1].v];
            assert_int_equal(v->kind, RU_VALUE_CONST);
            for (int k = 0; k < 8; k++) {
                assert_true(((const float *)v->data)[k] == (float)k - 2.5f);
            }
        }
    }
    assert_int_equal(f.after.values[f.after.outputs[0].v].type.dtype, RU_F16);
    ru_arena_fini(&f.a);
}

/* Comparisons give truth values: their operands are widened, their result is no number. */
static void results_of_other_types_stay(void **state)
{
    (void)state;
    half_fix f;
    init(&f);
    ru_value_id x = halves(&f, "x", 3, 4), z = halves(&f, "z", 3, 4);
    ru_build_output(&f.b, ru_build_op2(&f.b, RU_OP_Less, x, z, NULL), "y");
    fuse(&f);
    assert_int_equal(f.after.n_nodes - 1, 3);
    assert_int_equal(count(&f, RU_OP_Less, RU_F32, RU_BOOL), 1);
    ru_arena_fini(&f.a);
}

static void moves_stay_narrow(void **state)
{
    (void)state;
    half_fix f;
    init(&f);
    ru_value_id x = halves(&f, "x", 3, 4), z = halves(&f, "z", 5, 4);
    const ru_attr axis[] = {RU_AI(axis, 0), RU_A_END};
    ru_value_id y = ru_build_op2(&f.b, RU_OP_Concat, x, z, axis);
    ru_build_output(&f.b, ru_build_op1(&f.b, RU_OP_Transpose, y, NULL), "y");
    fuse(&f);
    assert_int_equal(f.after.n_nodes - 1, 2);
    assert_int_equal(count(&f, RU_OP_Concat, RU_F16, RU_F16), 1);
    assert_int_equal(count(&f, RU_OP_Transpose, RU_F16, RU_F16), 1);
    ru_arena_fini(&f.a);
}

/* Nodes with several results are left to the reference, whole. */
static void several_results_are_left(void **state)
{
    (void)state;
    half_fix f;
    init(&f);
    ru_value_id in[2] = {halves(&f, "x", 3, 9), ru_build_const_i64s(&f.b, (int64_t[]){2}, 1)};
    ru_value_id out[2] = {{0}};
    ru_build_node(&f.b, RU_OP_TopK, in, 2, NULL, out, 2);
    ru_build_output(&f.b, out[0], "values");
    ru_build_output(&f.b, out[1], "places");
    fuse(&f);
    assert_int_equal(f.after.n_nodes - 1, 1);
    assert_int_equal(f.after.values[f.after.nodes[1].in[0].v].type.dtype, RU_F16);
    ru_arena_fini(&f.a);
}

RU_TESTS(world_pass_half, cmocka_unit_test(arithmetic_is_widened),
         cmocka_unit_test(results_of_other_types_stay), cmocka_unit_test(moves_stay_narrow),
         cmocka_unit_test(several_results_are_left))
