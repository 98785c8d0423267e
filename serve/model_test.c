#include "serve/model.h"

#include "test/test.h"
#include "world/graph/build.h"

/* y = softmax(x) over a row, which feels zeros behind it, or relu(x), which does not. */
static ru_status row_graph(void *self, int64_t rows, int64_t length, ru_arena *arena, ru_graph *out,
                           ru_err *err)
{
    const bool *feels = self;
    const int64_t dims[] = {rows, length > 0 ? length : 8};
    ru_build b;
    RU_TRY(ru_graph_init(out, arena, "row", err));
    ru_build_init(&b, out);
    ru_value_id x = ru_build_input(&b, "x", ru_type_make(RU_F32, 2, dims));
    ru_build_output(&b,
                    *feels
                        ? ru_build_op1(&b, RU_OP_Softmax, x, (ru_attr[]){RU_AI(axis, 1), RU_A_END})
                        : ru_build_op1(&b, RU_OP_Relu, x, NULL),
                    "y");
    return ru_build_finish(&b, err);
}

static void row_close(void *self)
{
    (void)self;
}

static void test_a_model_that_feels_padding_has_one_size(void **state)
{
    (void)state;
    static const ru_source_ops ops = {.name = "row", .graph = row_graph, .close = row_close};
    for (uint32_t k = 0; k < 2; k++) {
        bool feels = k == 1;
        ru_served *m = NULL;
        ru_err err = {0};
        const ru_served_options o = {
            .exe = {.threads = 1}, .instances = 1, .rows_max = 1, .sizes = true};
        assert_ok(ru_served_open(&(ru_source){.ops = &ops, .self = &feels}, &o, &m, &err), err);
        assert_ok(ru_served_first(m, &err), err);
        assert_int_equal(ru_served_facts_get(m)->size_max, feels ? 0 : 8);
        ru_served_close(m);
    }
}

/* What an instance gave back while it rested comes again, also of a size that it did not use. */
static void an_instance_that_rested_computes_the_same(void **state)
{
    (void)state;
    static const ru_source_ops ops = {.name = "row", .graph = row_graph, .close = row_close};
    enum { ROWS = 3, N = 8 * ROWS };
    bool feels = false;
    float x[N], y[N];
    ru_served *m = NULL;
    ru_err err = {0};
    ru_served_part part = {.rows = ROWS, .in = {x}, .out = {y}}, *parts[] = {&part};
    const ru_served_options o = {.exe = {.threads = 1}, .instances = 1, .rows_max = 4};
    assert_ok(ru_served_open(&(ru_source){.ops = &ops, .self = &feels}, &o, &m, &err), err);
    assert_ok(ru_served_grow(m, &err), err);
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < N; k++) {
            x[k] = (float)((k * 7 + round) % 5 - 2);
        }
        ru_served_run(m, 0, parts, 1, &err);
        assert_ok(part.st, err);
        for (int k = 0; k < N; k++) {
            assert_float_equal(y[k], x[k] > 0 ? x[k] : 0, 0);
        }
        ru_served_rest(m, 0);
    }
    ru_served_close(m);
}

RU_TESTS(serve_model, cmocka_unit_test(an_instance_that_rested_computes_the_same),
         cmocka_unit_test(test_a_model_that_feels_padding_has_one_size))
