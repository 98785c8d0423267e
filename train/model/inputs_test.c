/* A graph that normalises its input: the closed form. */
#include "train/model/inputs.h"

#include <math.h>
#include <string.h>

#include "exec/exe.h"
#include "test/test.h"
#include "world/graph/build.h"

enum { BATCH = 2, INPUTS = 4 };

static const char *const colours[] = {"blue", "red"};
static const ru_column at[] = {
    {.name = "a", .mean = 3, .std = 2},
    {.name = "colour", .categories = {colours, 2}},
    {.name = "c", .mean = 5, .std = 0},
};
static const ru_columns columns = {.at = at, .n = 3, .normalize = true};

/* y = -x of [batch, inputs] */
static ru_graph minus(ru_arena *arena, int64_t inputs)
{
    ru_err err = {0};
    ru_graph g;
    ru_build b;
    const int64_t dims[] = {BATCH, inputs};
    assert_ok(ru_graph_init(&g, arena, "minus", &err), err);
    ru_build_init(&b, &g);
    ru_value_id x = ru_build_input(&b, "x", ru_type_make(RU_F32, 2, dims));
    ru_build_output(&b, ru_build_op1(&b, RU_OP_Neg, x, NULL), "y");
    assert_ok(ru_build_finish(&b, &err), err);
    return g;
}

static void test_closed_form(void **state)
{
    (void)state;
    static const float x[BATCH * INPUTS] = {3, 1, 0, 5, 8, 0, 1, 6},
                                 want[BATCH * INPUTS] = {0, -1, 0, 0, -2.5f, 0, -1, 0};
    ru_err err = {0};
    ru_arena arena;
    ru_exe *exe;
    ru_graph out;
    ru_arena_init(&arena, 0);
    ru_graph g = minus(&arena, INPUTS);
    assert_ok(ru_model_normalizing(&g, &columns, &arena, &out, &err), err);
    assert_string_equal(ru_graph_value(&out, out.inputs[0])->name, "x");
    const ru_exe_options eo = {.device = RU_DEVICE_REF};
    assert_ok(ru_exe_open(&out, &eo, &exe, &err), err);
    memcpy(ru_exe_input(exe, out.inputs[0]), x, sizeof x);
    assert_ok(ru_exe_run(exe, &(ru_run_args){0}, &err), err);
    const float *y = ru_exe_output(exe, out.outputs[0]);
    for (int k = 0; k < BATCH * INPUTS; k++) {
        assert_true(fabsf(y[k] - want[k]) < 1e-6f);
    }
    ru_exe_close(exe);
    g = minus(&arena, INPUTS - 1);
    assert_int_equal(ru_model_normalizing(&g, &columns, &arena, &out, &err), RU_E_UNSUPPORTED);
    ru_arena_fini(&arena);
}

/* NaN is a missing number, with and without normalising. */
static void test_gaps(void **state)
{
    (void)state;
    const float x[BATCH * INPUTS] = {NAN, NAN, 1, NAN, 8, 0, NAN, 6},
                          want[][BATCH * INPUTS] = {{-3, 0, -1, -5, -8, 0, 0, -6},
                                                    {0, 0, -1, 0, -2.5f, 0, 0, 0}};
    for (int normalize = 0; normalize < 2; normalize++) {
        ru_columns c = columns;
        c.normalize = normalize == 1;
        c.missing = RU_MISSING_MEAN;
        ru_err err = {0};
        ru_arena arena;
        ru_exe *exe;
        ru_graph out;
        ru_arena_init(&arena, 0);
        ru_graph g = minus(&arena, INPUTS);
        assert_ok(ru_model_normalizing(&g, &c, &arena, &out, &err), err);
        const ru_exe_options eo = {.device = RU_DEVICE_REF};
        assert_ok(ru_exe_open(&out, &eo, &exe, &err), err);
        memcpy(ru_exe_input(exe, out.inputs[0]), x, sizeof x);
        assert_ok(ru_exe_run(exe, &(ru_run_args){0}, &err), err);
        const float *y = ru_exe_output(exe, out.outputs[0]);
        for (int k = 0; k < BATCH * INPUTS; k++) {
            assert_true(fabsf(y[k] - want[normalize][k]) < 1e-6f);
        }
        ru_exe_close(exe);
        ru_arena_fini(&arena);
    }
}

static void test_text(void **state)
{
    (void)state;
    char all[200], some[200];
    ru_text a = ru_text_into(all, sizeof all), s = ru_text_into(some, sizeof some);
    ru_model_inputs_text(&columns, 9, &a);
    ru_model_inputs_text(&columns, 2, &s);
    assert_string_equal(all, "a, colour=blue (1 or 0), colour=red (1 or 0), c");
    assert_string_equal(some, "a, colour=blue (1 or 0) and 2 more");
}

RU_TESTS(train_inputs, cmocka_unit_test(test_closed_form), cmocka_unit_test(test_gaps),
         cmocka_unit_test(test_text))
