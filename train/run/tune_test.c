/* Runs whose parameters learn in ways of their own: moving means, groups, start values of a file.
 * A resumed run has the same bytes. */
#include <math.h>
#include <string.h>

#include "env/file.h"
#include "store/safetensors.h"
#include "test/run_lab.h"
#include "test/test.h"
#include "train/run/rundir.h"

static int setup(void **state)
{
    return run_lab_open(state, "name: t\nmodel: {zoo: mlp, hidden: [8]}\n"
                               "data: {format: synthetic, generator: gaussian, count: 200, "
                               "test_count: 50, features: 6, classes: 3}\n"
                               "train: {batch: 16, epochs: 2, threads: 1, device: ref, "
                               "ema: 0.875, optimizer: {lion: {lr: 0.01, weight_decay: 0.1}}, "
                               "groups: [{match: fc2.bias, freeze: true}, {match: fc2.*, lr: 2}]}\n"
                               "checkpoint: {every: 0s, keep: 9}\n");
}

static const char *file_of(lab *l, const char *run, const char *file)
{
    ru_err err = {0};
    ru_ckpt_info info;
    assert_ok(ru_ckpt_find(ru_path_join(&l->arena, l->dir, run), &l->arena, &info, &err), err);
    return ru_path_join(&l->arena, info.dir, file);
}

static void same_bytes(lab *l, const char *a, const char *b)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(files); k++) {
        ru_err err = {0};
        char *x, *y;
        int64_t n, m;
        assert_ok(ru_file_read(file_of(l, a, files[k]), 0, &l->arena, &x, &n, &err), err);
        assert_ok(ru_file_read(file_of(l, b, files[k]), 0, &l->arena, &y, &m, &err), err);
        assert_int_equal(n, m);
        assert_memory_equal(x, y, (size_t)n);
    }
}

typedef struct tensors {
    ru_map_file map;
    ru_safetensors file;
} tensors;

static const float *values(lab *l, const char *run, const char *file, const char *name, tensors *t)
{
    ru_err err = {0};
    assert_ok(ru_safetensors_open(file_of(l, run, file), &l->arena, &t->map, &t->file, &err), err);
    const ru_array *a = ru_arrays_find(&t->file.tensors, name);
    if (a == NULL) {
        fail_msg("%s of %s has no %s", file, run, name);
    }
    return a->data;
}

static float first_value(lab *l, const char *run, const char *file, const char *name)
{
    tensors t;
    float x = values(l, run, file, name, &t)[0];
    ru_file_unmap(&t.map);
    return x;
}

/* The mean is that of the parameters of each step, and what the model's file has; the run goes on
 * with the parameters. */
static void a_moving_mean_is_what_is_saved_as_the_model(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    double mean = 0;
    for (int64_t step = 1; step <= 4; step++) {
        assert_ok(run_lab_train(l, "steps", step > 1, step, &r, &err), err);
        double raw = (double)first_value(l, "steps", "optimizer.safetensors", "fc1.weight.raw");
        double saved = (double)first_value(l, "steps", "model.safetensors", "fc1.weight");
        /* e1 = 0.875 p0 + 0.125 p1: the first mean tells the start value */
        mean = step == 1 ? saved : 0.875 * mean + 0.125 * raw;
        assert_true(fabs(saved - mean) < 1e-6 && fabs(saved - raw) > 1e-6);
    }
    assert_ok(run_lab_train(l, "whole", false, 4, &r, &err), err);
    same_bytes(l, "steps", "whole");
    /* Evaluated is the mean: a run of the same file as start values gives the same metrics. */
    double accuracy = ru_metrics_get(&r.summary.metrics, "loss");
    l->job.model.weights = file_of(l, "whole", "model.safetensors");
    l->job.train.optimizer.lion.lr = 1e-30;
    l->job.train.optimizer.lion.weight_decay = 0;
    assert_ok(run_lab_train(l, "again", false, 1, &r, &err), err);
    assert_true(ru_metrics_get(&r.summary.metrics, "loss") == accuracy);
}

static void frozen_parameters_stay_and_resumed_runs_are_exact(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    assert_ok(run_lab_train(l, "before", false, 3, &r, &err), err);
    l->job.model.weights = file_of(l, "before", "model.safetensors");
    assert_ok(run_lab_train(l, "whole", false, 20, &r, &err), err);
    assert_ok(run_lab_train(l, "parts", false, 7, &r, &err), err);
    l->job.model.weights = "/nowhere"; /* a resumed run reads its checkpoint */
    assert_ok(run_lab_train(l, "parts", true, 20, &r, &err), err);
    same_bytes(l, "whole", "parts");
    assert_true(first_value(l, "whole", "model.safetensors", "fc2.bias") ==
                first_value(l, "before", "model.safetensors", "fc2.bias"));
    assert_true(first_value(l, "whole", "model.safetensors", "fc2.weight") !=
                first_value(l, "before", "model.safetensors", "fc2.weight"));
    assert_int_equal(run_lab_train(l, "new", false, 1, &r, &err), RU_E_MISSING);
    assert_non_null(strstr(err.text, "/nowhere"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, run_lab_close)
RU_TESTS(train_tune, TEST(a_moving_mean_is_what_is_saved_as_the_model),
         TEST(frozen_parameters_stay_and_resumed_runs_are_exact))
