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
    assert_ok(ru_called_put(&facts, b.parts, 2, 0, &a, &t, &err), err);
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
    return ru_called_take(&facts, b->parts, 2, 0, text, (int64_t)strlen(text), a, err);
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

/* Rows of sizes 1 and 2 in a call of size 3: zeros go in, and what comes out for them is dropped.
 */
static void test_smaller_requests_are_padded(void **state)
{
    (void)state;
    static const ru_served_value x[1] = {{.name = "x",
                                          .type = {.dtype = RU_F32, .rank = 2, .dims = {4, 2}},
                                          .row_bytes = 32,
                                          .sized = true}},
                                 y[1] = {{.name = "y",
                                          .type = {.dtype = RU_F32, .rank = 1, .dims = {4}},
                                          .row_bytes = 16,
                                          .sized = true}};
    static const ru_served_facts f = {.batched = true,
                                      .rows_max = 8,
                                      .size_max = 4,
                                      .inputs = x,
                                      .outputs = y,
                                      .n_inputs = 1,
                                      .n_outputs = 1};
    static const float one[4] = {1, 2, 3, 4}, two[4] = {5, 6, 7, 8},
                       want[18] = {1, 2, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8, 0, 0};
    float got[2][2] = {{0}};
    ru_served_part part[2] = {{.rows = 2, .size = 1, .in = {one}, .out = {got[0]}},
                              {.rows = 1, .size = 2, .in = {two}, .out = {got[1]}}},
                   *parts[2] = {&part[0], &part[1]};
    static const char answer[] = "{\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":"
                                 "[3,3],\"data\":[1,2,3,4,5,6,7,8,9]}]}";
    ru_arena a;
    ru_err err = {0};
    ru_oip_request r = {0};
    ru_arena_init(&a, 0);
    ru_text t = ru_text_arena(&a);
    assert_ok(ru_called_put(&f, parts, 2, 3, &a, &t, &err), err);
    assert_ok(ru_oip_read(t.p, t.n, -1, &a, &r, &err), err);
    const ru_type *type = &r.inputs[0].type;
    assert_true(type->rank == 3 && type->dims[0] == 3 && type->dims[1] == 3 && type->dims[2] == 2);
    assert_memory_equal(r.inputs[0].data, want, sizeof want);
    assert_ok(ru_called_take(&f, parts, 2, 3, answer, sizeof answer - 1, &a, &err), err);
    assert_true(got[0][0] == 1 && got[0][1] == 4 && got[1][0] == 7 && got[1][1] == 8);
    ru_arena_fini(&a);
}

/* Every size has a class, and the bound of that is the least that it fits into. */
static void test_classes_of_sizes(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 16; n++) {
        for (int64_t most = n; most < 70; most++) {
            assert_int_equal(ru_called_bound(most, n, n - 1), most);
            for (int64_t size = 1; size <= most; size++) {
                uint32_t k = ru_called_class(most, n, size);
                assert_true(ru_called_bound(most, n, k) >= size);
                assert_true(k == 0 || ru_called_bound(most, n, k - 1) < size);
            }
        }
    }
}

RU_TESTS(serve_called, cmocka_unit_test(test_smaller_requests_are_padded),
         cmocka_unit_test(test_classes_of_sizes), cmocka_unit_test(test_a_call_holds_all_rows),
         cmocka_unit_test(test_an_answer_goes_to_its_parts))
