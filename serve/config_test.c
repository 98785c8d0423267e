#include "serve/config.h"

#include <string.h>

#include "base/rng.h"
#include "test/test.h"

static const char usual[] =
    "# a model as in the manuals\n"
    "name: \"densenet\"  platform: 'onnxruntime_onnx'\n"
    "max_batch_size : 16\n"
    "input [ { name: \"data_0\" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 224, 224 ] },\n"
    "        { name: \"k\", data_type: TYPE_INT64; dims: [ -1 ] } ]\n"
    "output { name: \"fc6_1\" data_type: TYPE_FP32 dims: 1000 }\n"
    "instance_group [ { count: 2 kind: KIND_CPU } ]\n"
    "version_policy: { specific: { versions: [1, 3] } }\n"
    "dynamic_batching { max_queue_delay_microseconds: 100 }\n"
    "default_model_filename: \"m.onnx\"\n";

static void reads_what_manuals_show(void **state)
{
    (void)state;
    rui_config c;
    ru_err err = {0};
    assert_ok(rui_config_read(ru_str_c(usual), &c, &err), err);
    assert_true(ru_str_eq_c(c.name, "densenet") && c.rows_max == 16 && c.instances == 2);
    assert_true(c.n_inputs == 2 && ru_str_eq_c(c.inputs[0].name, "data_0") &&
                ru_str_eq_c(c.inputs[1].type, "INT64"));
    assert_true(c.n_outputs == 1 && ru_str_eq_c(c.outputs[0].name, "fc6_1"));
    assert_true(c.n_specific == 2 && c.specific[1] == 3 && c.delay_us == 100);
    assert_true(ru_str_eq_c(c.file, "m.onnx") && !c.all);
    assert_ok(rui_config_read(ru_str_c("version_policy { all { } }"), &c, &err), err);
    assert_true(c.all && c.rows_max == -1 && c.latest == 1);
    assert_ok(
        rui_config_read(ru_str_c("input { name: 'x' data_type: TYPE_STRING dims: [ -1, 3 ] }\n"
                                 "dynamic_batching { default_priority_level: 2 priority_levels: 3\n"
                                 "default_queue_policy { default_timeout_microseconds: 70\n"
                                 "allow_timeout_override: true timeout_action: REJECT } }"),
                        &c, &err),
        err);
    assert_true(ru_str_eq_c(c.inputs[0].type, "BYTES") && c.inputs[0].rank == 2);
    assert_true(c.inputs[0].dims[0] == -1 && c.inputs[0].dims[1] == 3);
    assert_true(c.priority == 2 && c.timeout_us == 70 && c.shorter);
}

static void refuses_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"sequence_batching { }", "sequence_batching is not supported"},
        {"platform: \"tensorrt_plan\"", "platform: tensorrt_plan is not supported"},
        {"instance_group { kind: KIND_GPU }", "KIND_GPU"},
        {"\n\nmax_batch_size: -1", "line 3: max_batch_size is '-1'"},
        {"instance_group { count: 4294967296 }", "is '4294967296', not a number from 1 to 64"},
        {"dynamic_batching { max_queue_delay_microseconds: 9223372036854775807 }",
         "not a number from 0 to 3600000000"},
        {"name: \"a\n\"", "line 1: expected a text in quotes"},
        {"input { name: \"x\"", "a field or '}'"},
        {"input [ { name: \"x\" }", "',' or ']'"},
        {"input: 3", "input: 3 is not supported"},
        {"dynamic_batching { preferred_batch_size: [4] }", "preferred_batch_size: 4"},
        {"}", "a field"},
        {"name: 'm'\nmax_batch_size 8", "line 2: expected ':' before a value"},
        {"input { dims [ 1 ] }", "expected ':' before a value"},
        {"input { dims: [1,2,3,4,5,6,7,8,9] }", "at most 8 dimensions"},
        {"input { dims: -2 }", "not a number from -1"},
        {"dynamic_batching { default_queue_policy { timeout_action: DELAY } }", "DELAY"},
        {"dynamic_batching { default_queue_policy { max_queue_size: 4 } }", "max_queue_size: 4"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        rui_config c;
        ru_err err = {0};
        assert_true(rui_config_read(ru_str_c(bad[k].text), &c, &err) != RU_OK);
        if (strstr(err.text, bad[k].says) == NULL) {
            fail_msg("%s: %s, not %s", bad[k].text, err.text, bad[k].says);
        }
    }
}

static void survives_damage(void **state)
{
    (void)state;
    ru_rng rng = ru_rng_from(ru_test_seed(), 4);
    for (uint32_t k = 0; k < 20000; k++) {
        char text[sizeof usual];
        rui_config c;
        ru_err err = {0};
        memcpy(text, usual, sizeof usual);
        for (uint32_t i = 1 + ru_rng_below(&rng, 4); i > 0; i--) {
            static const char with[] = "{}[],:\"'#;\n 0-x";
            text[ru_rng_below(&rng, sizeof usual - 1)] = with[ru_rng_below(&rng, sizeof with)];
        }
        int64_t n = (int64_t)sizeof usual - 1 - ru_rng_below(&rng, 300);
        ru_status st = rui_config_read(ru_str_n(text, n), &c, &err);
        assert_true(st == RU_OK || err.text[0] != '\0');
    }
}

RU_TESTS(serve_config, cmocka_unit_test(reads_what_manuals_show), cmocka_unit_test(refuses_by_name),
         cmocka_unit_test(survives_damage))
