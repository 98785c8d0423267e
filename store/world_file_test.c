/* World files: written and read again byte by byte, unknown keys by name, inputs of plans as they
 * were. */
#include "store/world_file.h"

#include <string.h>

#include "test/test.h"

static const char text[] =
    "{\"schema\": \"rubato.world/1\",\n"
    " \"cluster\": {\"hosts\": [{\"name\": \"a\", \"cores\": 4}]},\n"
    " \"jobs\": [{\"name\": \"j\", \"gradient_bytes\": [4, 8]}],\n"
    " \"facts\": {\"ops\": [{\"step\": 0, \"took\": {\"mean_ns\": 0.1}}]},\n"
    " \"plans\": [\n"
    "  {\"policy\": \"share\", \"version\": 1, \"id\": \"00112233445566778899aabbccddeeff\",\n"
    "   \"at_ns\": 5, \"input\": {\"b\": [1.0e-3, \"1\", true, null], \"a\": {\"x\": "
    "\"\\u00e9\"}},\n"
    "   \"predicted\": {\"step_s\": 0.1}, \"measured\": {\"step_s\": 0.30000000000000004}},\n"
    "  {\"policy\": \"share\", \"version\": 1, \"input\": {}},\n"
    "  {\"policy\": \"coll\", \"version\": 1, \"input\": {}}]}\n";

static void test_what_is_written_reads_back_to_the_same_bytes(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w, again;
    ru_err err;
    if (ru_world_file_parse("w.json", ru_str_c(text), &a, &w, &err) != RU_OK) {
        fail_msg("%s", err.text);
    }
    const ru_world_plan *p = &w.plans.at[0];
    assert_string_equal(p->input, "{\"b\":[1.0e-3,\"1\",true,null],\"a\":{\"x\":\"\xc3\xa9\"}}");
    assert_true(p->measured.n == 1 && p->measured.at[0].value == 0.30000000000000004);
    assert_ptr_equal(ru_world_plan_newest(&w, "share"), &w.plans.at[1]);
    assert_null(ru_world_plan_newest(&w, "mem"));
    ru_text one = ru_text_arena(&a), two = ru_text_arena(&a);
    assert_int_equal(ru_world_file_put(&w, &one, &err), RU_OK);
    if (ru_world_file_parse("again", ru_str_n(one.p, one.n), &a, &again, &err) != RU_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(ru_world_file_put(&again, &two, &err), RU_OK);
    assert_string_equal(one.p, two.p);
    ru_arena_fini(&a);
}

static void test_errors_name_place_and_key(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"{\"schema\":\"rubato.world/2\"}", "rubato.world/1"},
        {"{\"cluster\":{}}", "schema"},
        {"{\"schema\":\"rubato.world/1\",\"fact\":{}}", "did you mean 'facts'"},
        {"{\"schema\":\"rubato.world/"
         "1\",\"facts\":{\"ops\":[{\"flop\":1,\"took\":{\"mean_ns\":1}}]}}",
         "w.json:1:45: unknown key 'facts.ops[0].flop'"},
        {"{\"schema\":\"rubato.world/1\",\"plans\":[{\"policy\":\"x\",\"input\":5}]}", "object"},
        {"{\"schema\":\"rubato.world/1\",\"plans\":[{\"policy\":\"x\",\"id\":\"5\",\"input\":{}}]}",
         "32 hex"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_world w;
        ru_err err;
        assert_int_equal(ru_world_file_parse("w.json", ru_str_c(bad[k][0]), &a, &w, &err),
                         RU_E_CONFIG);
        if (strstr(err.text, bad[k][1]) == NULL) {
            fail_msg("'%s' should say %s", err.text, bad[k][1]);
        }
        ru_arena_fini(&a);
    }
}

static void test_what_is_a_world_file(void **state)
{
    (void)state;
    assert_true(ru_world_file_is(ru_str_c(text)));
    assert_true(ru_world_file_is(ru_str_c(" {\"x\":1,\"schema\" : \"rubato.world/9\"")));
    assert_false(ru_world_file_is(ru_str_c("{\"schema\":\"rubato.plan/1\"}")));
    assert_false(ru_world_file_is(ru_str_c("{\"a\":{\"schema\":\"rubato.world/1\"}}")));
    assert_false(ru_world_file_is(ru_str_c("schema: rubato.world/1")));
    assert_false(ru_world_file_is(ru_str_c("{\"schema\"")));
}

/* Every allocation fails once: an error each time, never half a world. */
static void test_no_memory_is_an_error(void **state)
{
    (void)state;
    for (int64_t room = 1 << 10;; room += 1 << 10) {
        ru_arena a;
        ru_arena_init(&a, room);
        ru_world w;
        ru_err err;
        ru_status st = ru_world_file_parse("w.json", ru_str_c(text), &a, &w, &err);
        ru_arena_fini(&a);
        if (st == RU_OK) {
            assert_true(room > 1 << 10);
            return;
        }
        assert_true(st == RU_E_LIMIT || st == RU_E_CONFIG);
    }
}

RU_TESTS(store_world_file, cmocka_unit_test(test_what_is_written_reads_back_to_the_same_bytes),
         cmocka_unit_test(test_errors_name_place_and_key),
         cmocka_unit_test(test_what_is_a_world_file), cmocka_unit_test(test_no_memory_is_an_error))
