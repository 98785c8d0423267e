/* Start values from safetensors files: names, patterns, other types, and what does not fit. */
#include "train/model/weights.h"

#include <stdlib.h>
#include <string.h>

#include "env/file/file.h"
#include "store/safetensors.h"
#include "test/scratch.h"
#include "test/test.h"
#include "world/graph/build.h"

/* A graph with states: two parameters, a running mean, a slot. */
typedef struct rig {
    ru_graph g;
    ru_exe *exe;
    const char *path;
} rig;

enum { W, B, MEAN, SLOT, STATES };

static const char *const names[STATES] = {"fc.weight", "fc.bias", "bn.running_mean",
                                          "fc.weight.momentum"};

static void open_rig(ru_scratch *s, rig *r)
{
    ru_build b;
    static const ru_value_role roles[STATES] = {RU_ROLE_PARAM, RU_ROLE_PARAM, RU_ROLE_BUFFER,
                                                RU_ROLE_SLOT};
    assert_ok(ru_graph_init(&r->g, &s->arena, "test", &s->err), s->err);
    ru_build_init(&b, &r->g);
    ru_value_id x = ru_build_input(&b, "x", ru_type_make(RU_F32, 2, (int64_t[]){2, 3}));
    for (uint32_t k = 0; k < STATES; k++) {
        const ru_type t = k == W || k == SLOT ? ru_type_make(RU_F32, 2, (int64_t[]){2, 3})
                                              : ru_type_make(RU_F32, 1, (int64_t[]){3});
        ru_value_id v = ru_build_state(&b, names[k], t, roles[k], NULL);
        x = ru_build_op2(&b, RU_OP_Add, x, v, NULL);
    }
    ru_build_output(&b, x, "y");
    assert_ok(ru_build_finish(&b, &s->err), s->err);
    assert_ok(ru_exe_open(&r->g, &(ru_exe_options){.device = RU_DEVICE_REF}, &r->exe, &s->err),
              s->err);
    const float zeros[6] = {0};
    for (uint32_t k = 0; k < STATES; k++) {
        assert_ok(ru_exe_state_write(r->exe, ru_graph_find(&r->g, names[k]), zeros, &s->err),
                  s->err);
    }
    r->path = ru_path_join(&s->arena, s->root, "w.safetensors");
}

static float value_of(ru_scratch *s, rig *r, uint32_t k, uint32_t e)
{
    float x[6] = {0};
    assert_ok(ru_exe_state_read(r->exe, ru_graph_find(&r->g, names[k]), x, &s->err), s->err);
    return x[e];
}

static const float w[6] = {1, 2, 3, 4, 5, 6}, b[3] = {7, 8, 9};
static const double mean[3] = {0.5, 1.5, 2.5};
static const int64_t count[1] = {12};

#define T(name_, dtype_, data_, ...)                                                              \
    {                                                                                             \
        .name = (name_),                                                                          \
        .type =                                                                                   \
            ru_type_make(dtype_, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__}), \
        .data = (data_)                                                                           \
    }

static ru_status load(ru_scratch *s, rig *r, const ru_array *tensors, uint32_t n,
                      const ru_weight_rule *rules, uint32_t n_rules, bool partial,
                      const char **said)
{
    assert_ok(ru_safetensors_save(r->path, tensors, n, NULL, 0, &s->err), s->err);
    const ru_weights_options wo = {
        .path = r->path, .rules = rules, .n_rules = n_rules, .partial = partial};
    s->err.text[0] = 0;
    return ru_weights_load(&wo, &r->g, r->exe, &s->arena, said, &s->err);
}

/* As PyTorch writes them: counts of batches beside the statistics, and here other float types. */
static void tensors_are_found_by_name(void **state)
{
    ru_scratch *s = *state;
    rig r;
    const char *said = NULL;
    open_rig(s, &r);
    uint16_t half[3];
    for (uint32_t k = 0; k < 3; k++) {
        half[k] = ru_f32_to_f16(b[k]);
    }
    const ru_array tensors[] = {T("bn.running_mean", RU_F64, mean, 3),
                                T("bn.num_batches_tracked", RU_I64, count, 1),
                                T("fc.weight", RU_F32, w, 2, 3), T("fc.bias", RU_F16, half, 3)};
    assert_ok(load(s, &r, tensors, 4, NULL, 0, false, &said), s->err);
    assert_true(value_of(s, &r, W, 5) == 6 && value_of(s, &r, B, 1) == 8);
    assert_true(value_of(s, &r, MEAN, 2) == 2.5F && value_of(s, &r, SLOT, 0) == 0);
    assert_non_null(strstr(said, "3 tensors from "));
    assert_null(strstr(said, ";"));
    ru_exe_close(r.exe);
}

static void names_are_mapped(void **state)
{
    ru_scratch *s = *state;
    rig r;
    const char *said = NULL;
    open_rig(s, &r);
    static const ru_weight_rule rules[] = {
        {"module.head.*", ""}, {"module.*.norm.*", "bn.running_*"}, {"module.*", "*"}};
    const ru_array tensors[] = {
        T("module.a.norm.mean", RU_F64, mean, 3), T("module.head.weight", RU_F32, w, 3, 2),
        T("module.fc.weight", RU_F32, w, 2, 3), T("module.fc.bias", RU_F32, b, 3)};
    static const ru_weight_rule two_stars = {"module.*.norm.*", "*_*"};
    assert_ok(ru_weight_rule_check(&two_stars, &s->err), s->err);
    /* the first * is "a": there is no bn.running_a */
    assert_int_equal(load(s, &r, tensors, 4, rules, 3, false, &said), RU_E_DATA);
    static const ru_weight_rule fine[] = {
        {"module.head.*", ""}, {"module.a.norm.*", "bn.running_*"}, {"module.*", "*"}};
    assert_ok(load(s, &r, tensors, 4, fine, 3, false, &said), s->err);
    assert_true(value_of(s, &r, W, 0) == 1 && value_of(s, &r, B, 2) == 9 &&
                value_of(s, &r, MEAN, 0) == 0.5F);
    static const ru_weight_rule clash[] = {{"module.*.bias", "fc.bias"}, {"module.*", "fc.bias"}};
    assert_int_equal(load(s, &r, tensors, 4, clash, 2, true, &said), RU_E_CONFIG);
    assert_non_null(strstr(s->err.text, "become 'fc.bias'"));
    static const ru_weight_rule wrong = {"a", "b*"};
    assert_int_equal(ru_weight_rule_check(&wrong, &s->err), RU_E_CONFIG);
    ru_exe_close(r.exe);
}

static void what_does_not_fit_is_said(void **state)
{
    ru_scratch *s = *state;
    rig r;
    const char *said = NULL;
    open_rig(s, &r);
    const ru_array tensors[] = {T("fc.weight", RU_F32, w, 3, 2), T("fc.bias", RU_F32, b, 3),
                                T("old.weight", RU_F32, w, 6), T("mean", RU_I64, count, 1)};
    assert_int_equal(load(s, &r, tensors, 4, NULL, 0, false, &said), RU_E_DATA);
    static const char *const say[] = {
        "the file lacks 1 tensor of the model: bn.running_mean",
        "the model lacks 2 tensors of the file: ", "old.weight",
        "1 tensor has another shape or type: fc.weight is f32[3,2] in the file and f32[2,3] in",
        "model.weights_partial"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(say); k++) {
        if (strstr(s->err.text, say[k]) == NULL) {
            fail_msg("'%s' does not say '%s'", s->err.text, say[k]);
        }
    }
    assert_true(value_of(s, &r, B, 0) == 0); /* nothing was written */
    assert_ok(load(s, &r, tensors, 4, NULL, 0, true, &said), s->err);
    assert_true(value_of(s, &r, B, 0) == 7 && value_of(s, &r, W, 0) == 0);
    assert_non_null(strstr(said, "1 tensor from"));
    assert_non_null(strstr(said, "bn.running_mean"));
    assert_int_equal(load(s, &r, tensors + 2, 2, NULL, 0, true, &said), RU_E_DATA);
    assert_non_null(strstr(s->err.text, "no tensor that fits"));
    ru_exe_close(r.exe);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(train_weights, TEST(tensors_are_found_by_name), TEST(names_are_mapped),
         TEST(what_does_not_fit_is_said))
