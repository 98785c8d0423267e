/* A network for any batch and size of image, trained on one size, and with a new last layer: the
 * witness is PyTorch's own run of three steps (test/oracle/train_any.py). */
#include "test/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "env/file/file.h"
#include "exec/exe.h"
#include "train/model/model.h"
#include "train/model/step.h"
#include "world/graph/build.h"

#include "test/oracle/data/train_any.inc"

enum { STEPS = 3, BATCH = 4, SIDE = 8, PIXELS = SIDE * SIDE, IN = 4 };

typedef struct lab {
    ru_arena arena;
    char dir[64];
    ru_job job;
    ru_model_facts facts;
    ru_model model;
    ru_step_graph step;
    ru_exe *exe;
    ru_err err;
} lab;

static void setup(lab *l, int64_t side, int64_t classes)
{
    *l = (lab){0};
    ru_arena_init(&l->arena, 0);
    (void)snprintf(l->dir, sizeof l->dir, "/tmp/rubato-test-XXXXXX");
    assert_non_null(mkdtemp(l->dir));
    const char *path = ru_path_join(&l->arena, l->dir, "model.onnx");
    assert_ok(ru_file_replace(path, any_model, sizeof any_model, &l->err), l->err);
    const int64_t dims[] = {1, side, side};
    l->job = (ru_job){.model = {.source = RU_MODEL_ONNX, .onnx = path}};
    l->facts = (ru_model_facts){
        .x = ru_type_make(RU_F32, 3, dims), .y = ru_type_scalar(RU_I64), .classes = classes};
}

static ru_status open_model(lab *l)
{
    return ru_model_open(&l->job, &l->facts, NULL, &l->arena, &l->model, &l->err);
}

static void teardown(lab *l)
{
    ru_exe_close(l->exe);
    ru_model_close(&l->model);
    (void)!ru_path_remove(l->dir, &l->err);
    ru_arena_fini(&l->arena);
}

static void open_step(lab *l, uint32_t accumulate)
{
    ru_step_options so = {.loss = RU_LOSS_CROSS_ENTROPY,
                          .optimizer = {.kind = RU_OPTIMIZER_SGD, .lr = 0.1},
                          .accumulate = accumulate,
                          .batch = BATCH,
                          .x = l->model.facts.x,
                          .y = l->model.facts.y};
    ru_exe_options eo = {.device = RU_DEVICE_CPU, .threads = 1};
    assert_ok(ru_step_build(&l->model.train, &so, &l->arena, &l->step, &l->err), l->err);
    assert_ok(ru_exe_open(&l->step.graph, &eo, &l->exe, &l->err), l->err);
    assert_ok(ru_model_init(&l->model, 1, &l->step.graph, l->exe, 1, &l->err), l->err);
}

static void losses_are(lab *l, const float *want)
{
    int64_t n = BATCH / l->step.micro;
    for (int64_t k = 0; k < STEPS; k++) {
        for (int64_t j = 0; j < l->step.micro; j++) {
            int64_t at = k * BATCH + j * n;
            memcpy(ru_exe_input(l->exe, l->step.x[j]), any_x + at * PIXELS,
                   sizeof(float) * (size_t)(n * PIXELS));
            memcpy(ru_exe_input(l->exe, l->step.y[j]), any_y + at, sizeof(int64_t) * (size_t)n);
        }
        *(float *)ru_exe_input(l->exe, l->step.lr) = 0.1F;
        assert_ok(ru_exe_run(l->exe, &(ru_run_args){.seed = 1, .step = k}, &l->err), l->err);
        float got = *(const float *)ru_exe_output(l->exe, l->step.loss);
        if (!(fabs((double)got - (double)want[k]) <= 1e-5)) {
            fail_msg("loss %d is %.8g, PyTorch has %.8g", (int)k, (double)got, (double)want[k]);
        }
    }
}

/* Symbols of batch, height and width, scales of Resize among the weights, merged scales and the
 * constants of GroupNorm: PyTorch's parameters are trained, and only they. */
static void any_size_trains_as_in_pytorch(void **state)
{
    (void)state;
    for (uint32_t parts = 1; parts <= 2; parts++) {
        lab l;
        setup(&l, SIDE, 5);
        assert_ok(open_model(&l), l.err);
        open_step(&l, parts);
        assert_int_equal(l.step.parameters, 4 * 9 + 4 + 8 + 16 * 9 + 4 + 8 + 32 * 9 + 4 + 8 + 25);
        losses_are(&l, any_losses);
        teardown(&l);
    }
}

static void other_sizes_open(void **state)
{
    (void)state;
    lab l;
    setup(&l, 20, 5);
    assert_ok(open_model(&l), l.err);
    open_step(&l, 1);
    assert_int_equal(l.step.parameters, 529);
    teardown(&l);
}

static void write_state(lab *l, const char *name, const float *data)
{
    ru_value_id id = ru_graph_find(&l->step.graph, name);
    assert_int_not_equal(id.v, 0);
    assert_ok(ru_exe_state_write(l->exe, id, data, &l->err), l->err);
}

static void a_new_last_layer_trains_as_in_pytorch(void **state)
{
    (void)state;
    for (int by_key = 0; by_key < 2; by_key++) {
        lab l;
        float weight[3 * IN];
        setup(&l, SIDE, by_key ? 2 : 3);
        l.job.model.head = by_key ? RU_HEAD_KEEP : RU_HEAD_NEW;
        l.job.model.classes = by_key ? 3 : 0;
        assert_ok(open_model(&l), l.err);
        assert_int_equal(ru_model_outputs(&l.model), 3);
        open_step(&l, 1);
        assert_int_equal(l.step.parameters, 529 - 10);
        ru_value_id id = ru_graph_find(&l.step.graph, "head.weight");
        assert_ok(ru_exe_state_read(l.exe, id, weight, &l.err), l.err);
        for (int k = 0; k < 3 * IN; k++) { /* PyTorch's range for 4 inputs */
            assert_true(weight[k] != 0.0F && fabsf(weight[k]) <= 0.5F);
        }
        write_state(&l, "head.weight", any_head_weight);
        write_state(&l, "head.bias", any_head_bias);
        losses_are(&l, any_head_losses);
        teardown(&l);
    }
}

static void too_few_outputs_are_refused(void **state)
{
    (void)state;
    lab l;
    setup(&l, SIDE, 6);
    assert_int_equal(open_model(&l), RU_E_CONFIG);
    assert_string_equal(l.err.text, "the model has 5 outputs, but the data have 6 classes; "
                                    "model.head: new gives it a new last layer for them");
    l.model = (ru_model){0};
    l.job.model.classes = 4;
    assert_int_equal(open_model(&l), RU_E_CONFIG);
    l.model = (ru_model){0};
    l.job.model.classes = 0;
    l.facts.classes = 5;
    assert_ok(open_model(&l), l.err);
    assert_int_equal(ru_model_outputs(&l.model), 5);
    assert_int_equal(l.model.n_inits, 0);
    teardown(&l);
}

static void samples_of_unknown_sizes_are_refused(void **state)
{
    (void)state;
    lab l;
    setup(&l, SIDE, 5);
    const int64_t last[] = {SIDE, SIDE, 2}, flat[] = {PIXELS};
    l.facts.x = ru_type_make(RU_F32, 3, last);
    assert_ok(open_model(&l), l.err);
    ru_step_options so = {.loss = RU_LOSS_CROSS_ENTROPY, .batch = 2, .x = l.facts.x};
    assert_int_equal(ru_step_build_eval(&l.model.infer, &so, &l.arena, &l.step, &l.err),
                     RU_E_CONFIG);
    ru_model_close(&l.model);
    l.facts.x = ru_type_make(RU_F32, 1, flat);
    assert_int_equal(open_model(&l), RU_E_CONFIG);
    assert_non_null(strstr(l.err.text, "its sizes cannot be told"));
    l.model = (ru_model){0};
    teardown(&l);
}

static void axes_in_another_order_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_graph g;
    ru_build b;
    uint32_t sym;
    ru_err err = {0};
    ru_step_graph step;
    ru_arena_init(&a, 0);
    assert_ok(ru_graph_init(&g, &a, "g", &err), err);
    assert_ok(ru_graph_symbol(&g, "N", &sym, &err), err);
    ru_build_init(&b, &g);
    const int64_t dims[] = {ru_dim_symbol(sym, 1), 3, 4, 5}, wide[] = {60, 2}, last[] = {4, 5, 3};
    ru_value_id x = ru_build_input(&b, "x", ru_type_make(RU_F32, 4, dims));
    ru_value_id w = ru_build_param(&b, "w", ru_type_make(RU_F32, 2, wide), NULL);
    x = ru_build_op1(&b, RU_OP_Flatten, x, NULL);
    ru_build_output(&b, ru_build_op2(&b, RU_OP_MatMul, x, w, NULL), "y");
    assert_ok(ru_build_finish(&b, &err), err);
    ru_step_options so = {.batch = 2, .x = ru_type_make(RU_F32, 3, dims + 1)};
    assert_ok(ru_step_build_eval(&g, &so, &a, &step, &err), err);
    so.x = ru_type_make(RU_F32, 3, last);
    assert_int_equal(ru_step_build_eval(&g, &so, &a, &step, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "transpose the data"));
    so.x = ru_type_make(RU_F32, 1, wide);
    assert_ok(ru_step_build_eval(&g, &so, &a, &step, &err), err);
    ru_arena_fini(&a);
}

RU_TESTS(train_any, cmocka_unit_test(any_size_trains_as_in_pytorch),
         cmocka_unit_test(other_sizes_open),
         cmocka_unit_test(a_new_last_layer_trains_as_in_pytorch),
         cmocka_unit_test(too_few_outputs_are_refused),
         cmocka_unit_test(samples_of_unknown_sizes_are_refused),
         cmocka_unit_test(axes_in_another_order_are_refused))
