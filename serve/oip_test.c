#include "serve/oip.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

static ru_status read_text(const char *json, ru_arena *arena, ru_oip_request *r, ru_err *err)
{
    return ru_oip_read(json, (int64_t)strlen(json), -1, arena, r, err);
}

/* Shapes flat and nested, members in any order, escapes. */
static void reads_json(void **state)
{
    (void)state;
    ru_arena a;
    ru_oip_request r;
    ru_err err = {0};
    ru_arena_init(&a, 0);
    assert_ok(
        read_text(" {\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":true}},"
                  "{\"name\":\"z\"}],\"id\":\"a\\\"\\u00e9\\ud83d\\ude00\",\"inputs\":["
                  "{\"data\":[[1,-2.5,3e2],[0.1,1e-7,16777217]],\"name\":\"x\","
                  "\"shape\":[2,3],\"datatype\":\"FP32\"},"
                  "{\"name\":\"k\",\"shape\":[2,1],\"datatype\":\"INT8\",\"data\":[-128,127]},"
                  "{\"name\":\"e\",\"shape\":[0,4611686018427387904,4611686018427387904],"
                  "\"datatype\":\"BOOL\",\"data\":[]},"
                  "{\"name\":\"s\",\"shape\":[],\"datatype\":\"BOOL\",\"data\":[true]},"
                  "{\"name\":\"u\",\"shape\":[1],\"datatype\":\"UINT64\","
                  "\"data\":[18446744073709551615]}],"
                  "\"parameters\":{\"priority\":2,\"timeout\":\"500\",\"sequence_id\":0}} ",
                  &a, &r, &err),
        err);
    static const float x[] = {1, -2.5f, 300, 0.1f, 1e-7f, 16777216};
    static const int8_t k[] = {-128, 127};
    assert_memory_equal(r.inputs[0].data, x, sizeof x);
    assert_memory_equal(r.inputs[1].data, k, sizeof k);
    assert_int_equal(ru_type_count(&r.inputs[2].type), 0);
    assert_int_equal(*(const uint8_t *)r.inputs[3].data, 1);
    assert_true(*(const uint64_t *)r.inputs[4].data == UINT64_MAX);
    assert_true(ru_str_eq_c(r.id, "a\"\xc3\xa9\xf0\x9f\x98\x80"));
    assert_true(r.n_outputs == 2 && r.outputs[0].binary && !r.outputs[1].binary);
    assert_true(r.priority == 2 && r.timeout_us == 500);
    ru_arena_fini(&a);
}

static void reads_binary(void **state)
{
    (void)state;
    static const char json[] =
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP16\",\"parameters\":"
        "{\"binary_data_size\":4}},{\"name\":\"y\",\"shape\":[1],\"datatype\":\"INT32\","
        "\"data\":[7]},{\"name\":\"z\",\"shape\":[3],\"datatype\":\"UINT8\",\"parameters\":"
        "{\"binary_data_size\":3}}],\"parameters\":{\"binary_data_output\":true}}";
    char body[sizeof json + 7];
    ru_arena a;
    ru_oip_request r;
    ru_err err = {0};
    ru_arena_init(&a, 0);
    int64_t n = (int64_t)sizeof json - 1;
    memcpy(body, json, (size_t)n);
    memcpy(body + n,
           "\x00\x3c\x00\xc0"
           "abc",
           7);
    assert_ok(ru_oip_read(body, n + 7, n, &a, &r, &err), err);
    assert_true(r.inputs[0].data == body + n && r.inputs[2].data == body + n + 4 && r.binary);
    assert_int_equal(*(const int32_t *)r.inputs[1].data, 7);
    assert_int_equal(ru_oip_read(body, n + 6, n, &a, &r, &err), RU_E_DATA); /* one byte short */
    assert_int_equal(ru_oip_read(body, n + 7, n + 8, &a, &r, &err), RU_E_DATA);
    char more[sizeof body + 1];
    memcpy(more, body, (size_t)n + 7);
    assert_int_equal(ru_oip_read(more, n + 8, n, &a, &r, &err), RU_E_DATA); /* one too many */
    assert_non_null(strstr(err.text, "belong to no input"));
    ru_arena_fini(&a);
}

/* Texts in both forms, and out again as tritonclient packs them. */
static void reads_texts(void **state)
{
    (void)state;
    static const char json[] =
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[2,1],\"datatype\":\"BYTES\",\"data\":"
        "[[\"a\\u00e9\"],[\"\"]]},{\"name\":\"y\",\"shape\":[2],\"datatype\":\"BYTES\","
        "\"parameters\":{\"binary_data_size\":11}}]}";
    static const char packed[11] = "\3\0\0\0a\xc3\xa9\0\0\0\0";
    char body[sizeof json + 11], text[256];
    ru_arena a;
    static ru_oip_request r;
    ru_err err = {0};
    const int64_t n = (int64_t)sizeof json - 1;
    ru_arena_init(&a, 0);
    memcpy(body, json, (size_t)n);
    memcpy(body + n, packed, sizeof packed);
    assert_ok(ru_oip_read(body, n + 11, n, &a, &r, &err), err);
    assert_true(r.inputs[0].texts && r.inputs[1].texts);
    assert_memory_equal(r.inputs[0].data, r.inputs[1].data, 16); /* the same texts */
    const char *both[2];
    for (int k = 0; k < 2; k++) {
        both[k] = ru_texts_find(&r.words, ((const int64_t *)r.inputs[0].data)[k]);
    }
    assert_true(strcmp(both[0], "a\xc3\xa9") == 0 && both[1][0] == '\0');
    r.inputs[0].text = both;
    uint8_t again[sizeof packed];
    assert_int_equal(ru_oip_bytes(&r.inputs[0]), sizeof packed);
    ru_oip_pack(&r.inputs[0], again);
    assert_memory_equal(again, packed, sizeof packed);
    ru_text t = ru_text_into(text, sizeof text);
    ru_oip_answer("m", "1", (ru_str){0}, r.inputs, 1, &t);
    assert_non_null(
        strstr(text, "\"datatype\":\"BYTES\",\"shape\":[2,1],\"data\":[\"a\xc3\xa9\",\"\"]"));
    body[n] = 4; /* one text too long, then too short */
    assert_int_equal(ru_oip_read(body, n + 11, n, &a, &r, &err), RU_E_DATA);
    body[n] = 2;
    assert_int_equal(ru_oip_read(body, n + 11, n, &a, &r, &err), RU_E_DATA);
    body[n + 3] = (char)0xff;
    assert_int_equal(ru_oip_read(body, n + 11, n, &a, &r, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "texts of input 'y'"));
    ru_arena_fini(&a);
}

#define ONE(shape, type, data)                                                                  \
    "{\"inputs\":[{\"name\":\"x\",\"shape\":" shape ",\"datatype\":\"" type "\",\"data\":" data \
    "}]}"

static void refuses_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *json, *says;
    } bad[] = {
        {"", "expected an object"},
        {"{}", "no member 'inputs'"},
        {"{\"inputs\":[]} x", "expected the end"},
        {"{\"inputs\":[{\"name\":\"x\"}]}", "no shape"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[1]}]}", "no datatype"},
        {ONE("[1]", "FP33", "[1]"), "'FP33'"},
        {ONE("[1]", "BYTES", "[1]"), "a text in quotes"},
        {ONE("[1]", "BYTES", "[\"a\\u0000\"]"), "without zero bytes"},
        {ONE("[2]", "BYTES", "[\"a\"]"), "does not have the shape"},
        {ONE("[2]", "FP32", "[1]"), "input 'x'"},
        {ONE("[1]", "FP32", "[1,2]"), "does not have the shape"},
        {ONE("[2,2]", "FP32", "[[1,2,3],[4]]"), "does not have the shape"},
        {ONE("[2,2]", "FP32", "[[1,2],3,4]"), "does not have the shape"},
        {ONE("[1,2]", "FP32", "[[[1,2]]]"), "does not have the shape"},
        {ONE("[2]", "FP32", "[1,]"), "an element"},
        {ONE("[1]", "FP32", "[1e39]"), "an element"},
        {ONE("[1]", "FP32", "[0x10]"), "an element"},
        {ONE("[1]", "FP32", "[+1]"), "an element"},
        {ONE("[1]", "FP32", "[\"1\"]"), "an element"},
        {ONE("[1]", "INT8", "[128]"), "an element"},
        {ONE("[1]", "UINT8", "[-1]"), "an element"},
        {ONE("[1]", "INT32", "[1.5]"), "an element"},
        {ONE("[1]", "BOOL", "[2]"), "an element"},
        {ONE("[-1]", "FP32", "[1]"), "from 0 on"},
        {ONE("[1,1,1,1,1,1,1,1,1]", "FP32", "[1]"), "at most 8"},
        {ONE("[1099511627776,1099511627776]", "FP32", "[1]"), "too large"},
        {ONE("[1099511627776]", "FP32", "[1]"), "less data"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"parameters\":"
         "{\"shared_memory_region\":\"r\"}}]}",
         "'shared_memory_region' is not supported"},
        {"{\"parameters\":{\"sequence_start\":true},\"inputs\":[]}", "'sequence_start'"},
        {"{\"outputs\":[{\"name\":\"y\",\"parameters\":{\"classification\":3}}]}",
         "'classification'"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\"}]}", "has no data"},
        {"{\"model\":1,\"inputs\":[]}", "'model'"},
        {"{\"id\":\"a\\x\",\"inputs\":[]}", "an escape"},
        {"{\"id\":\"a", "'\"' at the end"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        ru_arena a;
        ru_oip_request r;
        ru_err err = {0};
        ru_arena_init(&a, 0);
        ru_status st = read_text(bad[k].json, &a, &r, &err);
        if (st != RU_E_DATA || strstr(err.text, bad[k].says) == NULL) {
            fail_msg("%s: %s, not %s", bad[k].json, err.text, bad[k].says);
        }
        ru_arena_fini(&a);
    }
}

/* What was written is read again: the same bits for every float that JSON can say. */
static void floats_survive(void **state)
{
    (void)state;
    enum { N = 4096 };
    static float x[N];
    ru_rng rng = ru_rng_from(ru_test_seed(), 2);
    for (uint32_t k = 0; k < N; k++) {
        uint32_t bits = (uint32_t)ru_rng_below_u64(&rng, UINT64_C(1) << 32);
        float v = (float)ru_rng_normal(&rng);
        memcpy(&x[k], k % 2 == 0 ? (const void *)&bits : (const void *)&v, 4);
        x[k] = isfinite(x[k]) ? x[k] : 0.1f;
    }
    x[0] = 0.1f;
    x[1] = 100;
    x[2] = -1234.5f;
    ru_arena a;
    ru_oip_request r;
    ru_err err = {0};
    ru_arena_init(&a, 0);
    const int64_t dims[] = {N};
    const ru_oip_tensor t = {
        .name = ru_str_c("x"), .type = ru_type_make(RU_F32, 1, dims), .data = x};
    ru_text out = ru_text_arena(&a);
    ru_oip_answer("m", "1", ru_str_c("i\"d"), &t, 1, &out);
    static const char head[] = "{\"model_name\":\"m\",\"model_version\":\"1\",\"id\":\"i\\\"d\","
                               "\"outputs\":";
    assert_memory_equal(out.p, head, sizeof head - 1);
    assert_non_null(strstr(out.p, "\"data\":[0.1,100,-1234.5,"));
    ru_text in = ru_text_arena(&a); /* an answer's list of outputs is a request's of inputs */
    ru_text_putf(&in, "{\"inputs\":%s", out.p + sizeof head - 1);
    assert_ok(ru_oip_read(in.p, in.n, -1, &a, &r, &err), err);
    for (uint32_t k = 0; k < N; k++) {
        assert_true(((const float *)r.inputs[0].data)[k] == x[k]);
    }
    ru_arena_fini(&a);
}

/* Values that JSON has no numbers for, and other types. */
static void writes_every_type(void **state)
{
    (void)state;
    static const float f[] = {NAN, INFINITY, -INFINITY};
    static const double d[] = {0.1, NAN, 1e300};
    static const int64_t i[] = {INT64_MIN, 0, INT64_MAX};
    static const uint8_t b[] = {1, 0, 1};
    const int64_t dims[] = {3};
    const ru_oip_tensor t[] = {
        {.name = ru_str_c("f"), .type = ru_type_make(RU_F32, 1, dims), .data = f},
        {.name = ru_str_c("d"), .type = ru_type_make(RU_F64, 1, dims), .data = d},
        {.name = ru_str_c("i"), .type = ru_type_make(RU_I64, 1, dims), .data = i},
        {.name = ru_str_c("b"), .type = ru_type_make(RU_BOOL, 1, dims), .data = b},
        {.name = ru_str_c("h"), .type = ru_type_make(RU_F16, 1, dims), .data = f, .binary = true}};
    char buf[1024];
    ru_text out = ru_text_into(buf, sizeof buf);
    ru_oip_answer("m", "2", (ru_str){0}, t, 5, &out);
    assert_string_equal(
        buf, "{\"model_name\":\"m\",\"model_version\":\"2\",\"outputs\":["
             "{\"name\":\"f\",\"datatype\":\"FP32\",\"shape\":[3],\"data\":[null,1e999,-1e999]},"
             "{\"name\":\"d\",\"datatype\":\"FP64\",\"shape\":[3],\"data\":[0.1,null,1e+300]},"
             "{\"name\":\"i\",\"datatype\":\"INT64\",\"shape\":[3],\"data\":"
             "[-9223372036854775808,0,9223372036854775807]},"
             "{\"name\":\"b\",\"datatype\":\"BOOL\",\"shape\":[3],\"data\":[true,false,true]},"
             "{\"name\":\"h\",\"datatype\":\"FP16\",\"shape\":[3],\"parameters\":"
             "{\"binary_data_size\":6}}]}");
}

/* Bytes of a good request, changed: never a crash, and a sentence with every refusal. */
static void survives_damage(void **state)
{
    (void)state;
    static const char good[] =
        "{\"id\":\"\\u0041\",\"inputs\":[{\"name\":\"x\",\"shape\":[2,2],\"datatype\":\"INT16\","
        "\"data\":[[1,2],[3,4]]},{\"name\":\"b\",\"shape\":[2],\"datatype\":\"FP32\","
        "\"parameters\":{\"binary_data_size\":8}}],\"outputs\":[{\"name\":\"y\"}]}12345678";
    ru_rng rng = ru_rng_from(ru_test_seed(), 3);
    ru_arena a;
    ru_arena_init(&a, 0);
    for (uint32_t k = 0; k < 20000; k++) {
        char text[sizeof good];
        ru_oip_request r;
        ru_err err = {0};
        memcpy(text, good, sizeof good);
        for (uint32_t i = 1 + ru_rng_below(&rng, 4); i > 0; i--) {
            static const char with[] = "{}[],:\"\\-0e.1u9\x80";
            text[ru_rng_below(&rng, sizeof good - 1)] = with[ru_rng_below(&rng, sizeof with)];
        }
        int64_t n = (int64_t)sizeof good - 1 - ru_rng_below(&rng, 12);
        ru_status st = ru_oip_read(text, n, n - 8, &a, &r, &err);
        assert_true(st == RU_OK || (st == RU_E_DATA && err.text[0] != '\0'));
        ru_arena_rewind(&a, (ru_arena_mark){0});
    }
    ru_arena_fini(&a);
}

/* What is refused without being read must not have said that it is urgent. */
static void sees_a_priority(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        int64_t json_bytes;
        bool may;
    } rows[] = {
        {"", -1, false},
        {"", 0, false},
        {"priority", -1, true},
        {"priorit", -1, false},
        {"pppriority", -1, true},
        {"{\"inputs\":[{\"name\":\"p\",\"shape\":[1]}]}", -1, false},
        {"{\"parameters\":{\"priority\":1}}", -1, true},
        {"{\"parameters\":{\"\\u0070riority\":1}}", -1, true},
        {"{\"inputs\":[]}priority", 13, false}, /* of a tensor */
        {"{\"inputs\":[]}\\", 13, false},
        {"{}priority", 10, true},
        {"{}priority", 99, true}, /* longer than the body */
        {"{}priority", 9, false},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        assert_int_equal(ru_oip_may_have_priority(rows[k].body, (int64_t)strlen(rows[k].body),
                                                  rows[k].json_bytes),
                         rows[k].may);
    }
}

RU_TESTS(serve_oip, cmocka_unit_test(sees_a_priority), cmocka_unit_test(reads_json),
         cmocka_unit_test(reads_binary), cmocka_unit_test(reads_texts),
         cmocka_unit_test(refuses_by_name), cmocka_unit_test(floats_survive),
         cmocka_unit_test(writes_every_type), cmocka_unit_test(survives_damage))
