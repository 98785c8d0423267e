/* A batch as a call and back: what the function reads, what the parts get. */
#include "serve/far/called.h"

#include <string.h>

#include "test/test.h"

static const ru_served_value in[2] = {
    {.name = "x", .type = {.dtype = RU_F32, .rank = 1, .dims = {3}}, .row_bytes = 12},
    {.name = "k", .type = {.dtype = RU_I64, .rank = 0}, .row_bytes = 8}};
static const ru_served_value out[1] = {
    {.name = "y", .type = {.dtype = RU_F32, .rank = 1, .dims = {2}}, .row_bytes = 8}};
static const ru_served_facts facts = {
    .batched = true, .rows_max = 8, .inputs = in, .outputs = out, .n_inputs = 2, .n_outputs = 1};

/* Parts of two rows and of one. */
typedef struct batch {
    float x[2][6], y[2][4];
    int64_t k[2][2];
    ru_served_part part[2], *parts[2];
} batch;

static void fill(batch *b)
{
    *b = (batch){.x = {{0.1f, -2, 3e-7f, 4, 5, 6}, {7, 8, 1.0f / 3}}, .k = {{1, INT64_MAX}, {-5}}};
    for (int i = 0; i < 2; i++) {
        b->part[i] = (ru_served_part){.rows = 2 - i, .in = {b->x[i], b->k[i]}, .out = {b->y[i]}};
        b->parts[i] = &b->part[i];
    }
}

static void test_a_call_holds_all_rows(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err = {0};
    batch b;
    ru_oip_request r = {0};
    ru_arena_init(&a, 0);
    fill(&b);
    ru_text t = ru_text_arena(&a);
    assert_ok(ru_called_put(&facts, b.parts, 2, &a, &t, &err), err);
    assert_ok(ru_oip_read(t.p, t.n, -1, &a, &r, &err), err);
    assert_int_equal(r.n_inputs, 2);
    assert_true(ru_str_eq_c(r.inputs[0].name, "x") && ru_str_eq_c(r.inputs[1].name, "k"));
    assert_true(r.inputs[0].type.rank == 2 && r.inputs[0].type.dims[0] == 3 &&
                r.inputs[0].type.dims[1] == 3 && r.inputs[1].type.rank == 1);
    assert_memory_equal(r.inputs[0].data, b.x[0], sizeof b.x[0]);
    assert_memory_equal((const float *)r.inputs[0].data + 6, b.x[1], 12);
    assert_true(((const int64_t *)r.inputs[1].data)[1] == INT64_MAX &&
                ((const int64_t *)r.inputs[1].data)[2] == -5);
    ru_arena_fini(&a);
}

static ru_status take(batch *b, const char *text, ru_arena *a, ru_err *err)
{
    return ru_called_take(&facts, b->parts, 2, text, (int64_t)strlen(text), a, err);
}

static void test_an_answer_goes_to_its_parts(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err = {0};
    batch b;
    ru_arena_init(&a, 0);
    fill(&b);
    assert_ok(take(&b,
                   "{\"model_name\":\"m\",\"extra\":[{}],\"outputs\":[{\"name\":\"y\",\"datatype\":"
                   "\"FP32\",\"shape\":[3,2],\"data\":[1,2,3,4,5,6.5]}]}",
                   &a, &err),
              err);
    assert_true(b.y[0][0] == 1 && b.y[0][3] == 4 && b.y[1][0] == 5 && b.y[1][1] == 6.5f);
    static const char *const bad[] = {
        "",
        "{}",
        "[1]",
        "{\"outputs\":[]}",
        "{\"outputs\":[{\"name\":\"z\",\"datatype\":\"FP32\",\"shape\":[3,2],\"data\":[1,2,3,4,5,6]"
        "}]}",
        "{\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[1,2,3,4]}]}",
        "{\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP64\",\"shape\":[3,2],\"data\":[1,2,3,4,5,6]"
        "}]}",
        "{\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[3,2],\"data\":[1,2,3]}]}"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        err.text[0] = '\0';
        assert_int_equal(take(&b, bad[k], &a, &err), RU_E_DATA);
        assert_non_null(strstr(err.text, "function"));
    }
    ru_arena_fini(&a);
}

RU_TESTS(serve_called, cmocka_unit_test(test_a_call_holds_all_rows),
         cmocka_unit_test(test_an_answer_goes_to_its_parts))
