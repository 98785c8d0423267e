/* Models that PyTorch exported in training mode, trained here and there: the witness is PyTorch's
 * own run of four steps (test/oracle/train_form.py). */
#include "test/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "env/file/file.h"
#include "exec/exe.h"
#include "store/onnx_file.h"
#include "train/model/model.h"
#include "train/model/step.h"

typedef struct form_case {
    const char *name;
    const uint8_t *model;
    int64_t size_bytes;
    const float *stats; /* [16] running mean and variance of 3 channels, then of 5 */
    const float *out;   /* [BATCH, CLASSES] predictions for the first batch after training */
} form_case;

#include "test/oracle/data/train_form.inc"

enum { STEPS = 4, BATCH = 8, CLASSES = 3, PIXELS = 16 };

typedef struct lab {
    ru_arena arena;
    char dir[64];
    const char *path;
    ru_model model;
    ru_step_graph step, eval;
    ru_exe *trainer, *predictor;
    ru_err err;
} lab;

static void setup(lab *l, const form_case *c)
{
    *l = (lab){0};
    ru_arena_init(&l->arena, 0);
    (void)snprintf(l->dir, sizeof l->dir, "/tmp/rubato-test-XXXXXX");
    assert_non_null(mkdtemp(l->dir));
    l->path = ru_path_join(&l->arena, l->dir, "model.onnx");
    assert_ok(ru_file_replace(l->path, c->model, c->size_bytes, &l->err), l->err);
    const int64_t dims[] = {1, 4, 4};
    ru_job job = {.model = {.source = RU_MODEL_ONNX, .onnx = l->path}};
    ru_model_facts facts = {
        .x = ru_type_make(RU_F32, 3, dims), .y = ru_type_scalar(RU_I64), .classes = CLASSES};
    assert_ok(ru_model_open(&job, &facts, NULL, &l->arena, &l->model, &l->err), l->err);
}

static void teardown(lab *l)
{
    ru_exe_close(l->trainer);
    ru_exe_close(l->predictor);
    ru_model_close(&l->model);
    (void)!ru_path_remove(l->dir, &l->err);
    ru_arena_fini(&l->arena);
}

static void train(lab *l, const ru_exe_options *eo)
{
    ru_step_options so = {.loss = RU_LOSS_CROSS_ENTROPY,
                          .optimizer = {.kind = RU_OPTIMIZER_SGD, .lr = 0.1},
                          .batch = BATCH,
                          .x = l->model.facts.x,
                          .y = l->model.facts.y};
    assert_ok(ru_step_build(&l->model.train, &so, &l->arena, &l->step, &l->err), l->err);
    assert_ok(ru_exe_open(&l->step.graph, eo, &l->trainer, &l->err), l->err);
    for (int64_t k = 0; k < STEPS; k++) {
        memcpy(ru_exe_input(l->trainer, l->step.x[0]), form_x + k * BATCH * PIXELS,
               sizeof(float) * BATCH * PIXELS);
        memcpy(ru_exe_input(l->trainer, l->step.y[0]), form_y + k * BATCH, sizeof(int64_t) * BATCH);
        *(float *)ru_exe_input(l->trainer, l->step.lr) = 0.1F;
        assert_ok(ru_exe_run(l->trainer, &(ru_run_args){.seed = 1, .step = k}, &l->err), l->err);
    }
    so.y.dtype = RU_NONE; /* predictions, no loss */
    assert_ok(ru_step_build_eval(&l->model.infer, &so, &l->arena, &l->eval, &l->err), l->err);
    assert_ok(ru_exe_open(&l->eval.graph, eo, &l->predictor, &l->err), l->err);
    assert_ok(ru_model_state_copy(&l->step.graph, l->trainer, &l->eval.graph, l->predictor,
                                  &l->arena, &l->err),
              l->err);
}

static void near(const char *name, const char *what, const float *got, const float *want, int n)
{
    for (int k = 0; k < n; k++) {
        if (!(fabs((double)got[k] - (double)want[k]) <= 2e-5)) {
            fail_msg("%s: %s %d is %.8g, PyTorch has %.8g", name, what, k, (double)got[k],
                     (double)want[k]);
        }
    }
}

static void stats_are_near(lab *l, const form_case *c)
{
    static const char *const names[] = {"norm.running_mean", "norm.running_var",
                                        "norm1.running_mean", "norm1.running_var"};
    const float *want = c->stats;
    for (int k = 0; k < 4; k++) {
        float got[5];
        ru_value_id id = ru_graph_find(&l->step.graph, names[k]);
        int n = k < 2 ? 3 : 5;
        assert_int_not_equal(id.v, 0);
        assert_int_equal(ru_graph_value(&l->step.graph, id)->role, RU_ROLE_BUFFER);
        assert_ok(ru_exe_state_read(l->trainer, id, got, &l->err), l->err);
        near(c->name, names[k], got, want, n);
        want += n;
    }
}

static const float *predict(lab *l, int64_t seed)
{
    memcpy(ru_exe_input(l->predictor, l->eval.x[0]), form_x, sizeof(float) * BATCH * PIXELS);
    assert_ok(ru_exe_run(l->predictor, &(ru_run_args){.step = seed}, &l->err), l->err);
    return ru_exe_output(l->predictor, l->eval.output);
}

static void trained_as_pytorch_does(const ru_exe_options *eo)
{
    for (size_t k = 0; k < RU_ARRAY_LEN(form_cases); k++) {
        lab l;
        setup(&l, &form_cases[k]);
        train(&l, eo);
        stats_are_near(&l, &form_cases[k]);
        near(form_cases[k].name, "prediction", predict(&l, 0), form_cases[k].out, BATCH * CLASSES);
        teardown(&l);
    }
}

static void on_the_reference(void **state)
{
    (void)state;
    trained_as_pytorch_does(&(ru_exe_options){.device = RU_DEVICE_REF});
}

static void on_the_cpu(void **state)
{
    (void)state;
    trained_as_pytorch_does(&(ru_exe_options){.device = RU_DEVICE_CPU, .threads = 1});
}

static const char *notice_of(ru_arena *a, const uint8_t *model, size_t size_bytes)
{
    ru_err err = {0};
    ru_graph g;
    ru_onnx_info info;
    const ru_onnx_options opt = {.train = true};
    assert_ok(ru_onnx_read(model, (int64_t)size_bytes, &opt, a, &g, &info, &err), err);
    return info.notice != NULL ? info.notice : "";
}

/* What an export for inference hides is said in one line, what it shows is not. */
static void what_an_export_hides_is_said(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    for (size_t k = 0; k < RU_ARRAY_LEN(form_cases); k++) {
        const char *said = notice_of(&a, form_cases[k].model, (size_t)form_cases[k].size_bytes);
        bool dynamo = strcmp(form_cases[k].name, "dynamo") == 0; /* it leaves out a ratio of 0 */
        assert_true(dynamo ? strncmp(said, "it has no Dropout", 17) == 0 : said[0] == 0);
        assert_null(strstr(said, "folded"));
    }
    const char *folded[] = {notice_of(&a, form_folded_script, sizeof form_folded_script),
                            notice_of(&a, form_folded_dynamo, sizeof form_folded_dynamo)};
    for (int k = 0; k < 2; k++) {
        assert_non_null(strstr(folded[k], k == 0 ? "1 normalisation is folded"
                                                 : "2 normalisations are folded"));
        assert_non_null(strstr(folded[k], "no Dropout"));
        assert_non_null(strstr(folded[k], "torch.onnx.export(model.train()"));
        assert_null(strstr(folded[k], "shared"));
        assert_null(strstr(folded[k], "same numbers"));
    }
    const char *tied[] = {notice_of(&a, form_tied_script, sizeof form_tied_script),
                          notice_of(&a, form_tied_dynamo, sizeof form_tied_dynamo)};
    for (int k = 0; k < 2; k++) {
        assert_non_null(strstr(tied[k], "shared by several layers"));
        assert_non_null(strstr(tied[k], "contain the same numbers and are trained separately"));
        assert_null(strstr(tied[k], "folded"));
    }
    ru_arena_fini(&a);
}

RU_TESTS(train_import, cmocka_unit_test(on_the_reference), cmocka_unit_test(on_the_cpu),
         cmocka_unit_test(what_an_export_hides_is_said))
