/* Runs whose parameters learn in ways of their own: moving means, groups, start values of a file.
 * A resumed run has the same bytes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"
#include "env/file/file.h"
#include "run/rundir.h"
#include "store/safetensors.h"
#include "test/run_lab.h"
#include "test/test.h"
#include "train/driver/find_lr.h"

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

static double first_loss(lab *l, const char *run, const char *const *weights, uint32_t n)
{
    ru_err err = {0};
    ru_train_result r;
    l->job.train.class_weights = (ru_conf_texts){weights, n};
    assert_ok(run_lab_train(l, run, false, 1, &r, &err), err);
    return r.summary.loss;
}

/* 12 samples of class a, 4 of class b, all in one batch: balanced weights are 16 / (2 * 12) and
 * 16 / (2 * 4). */
static void classes_have_weights(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    const char *csv = ru_path_join(&l->arena, l->dir, "d.csv");
    ru_text text = ru_text_arena(&l->arena);
    for (uint32_t k = 0; k < 16; k++) {
        ru_text_putf(&text, "%u,%u,%s\n", k * 7 % 5, k * 3 % 4, k % 4 == 3 ? "b" : "a");
    }
    assert_ok(ru_file_replace(csv, text.p, text.n, &err), err);
    assert_ok(ru_job_parse("t",
                           "model: {zoo: mlp, hidden: [4]}\n"
                           "data: {format: csv, train: [d.csv], shuffle: none}\n"
                           "train: {batch: 16, threads: 1, device: ref, ema: 0.5}\n"
                           "checkpoint: {every: 0s}\n",
                           &l->arena, &l->job, &err),
              err);
    l->job.data.train.at = &csv;
    static const char *const twos[] = {"2", "2"}, *const a[] = {"1", "0"}, *const b[] = {"0", "1"};
    static const char *const balanced[] = {"balanced"}, *const three[] = {"1", "1", "1"};
    double none = first_loss(l, "none", NULL, 0), of_a = first_loss(l, "a", a, 2);
    double of_b = first_loss(l, "b", b, 2);
    assert_true(fabs(of_a + of_b - none) < 1e-5);
    assert_true(fabs(first_loss(l, "twos", twos, 2) - 2 * none) < 1e-5);
    double even = first_loss(l, "balanced", balanced, 1);
    assert_true(fabs(even - (of_a * 16 / 24 + of_b * 16 / 8)) < 1e-5);
    l->job.train.class_weights = (ru_conf_texts){three, 3};
    assert_int_equal(run_lab_train(l, "three", false, 1, &r, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "has 3 numbers, but the data have 2 classes"));
}

/* A loss with its valley at 0.1, and the noise of batches: the suggestion lies where it falls
 * fastest, a third of a decade or less away, and below the valley. */
static void the_rate_where_the_loss_falls_fastest_is_found(void **state)
{
    (void)state;
    ru_sweep_point points[100];
    for (uint32_t seed = 0; seed < 20; seed++) {
        ru_lr_sweep s = {.from = 1e-7, .to = 10, .steps = 100, .at = points};
        ru_rng rng = ru_rng_from(seed, 0);
        bool grown = false;
        while (!grown && s.n < s.steps) {
            double lr = 1e-7 * pow(1e8, (double)s.n / 99), x = log10(lr / 0.01);
            double loss = 2.3 - 1.5 / (1 + exp(-6 * x)) + 4 * fmax(0, log10(lr / 0.3));
            grown = rui_sweep_put(&s, lr, loss + 0.02 * (ru_rng_f64(&rng) - 0.5));
        }
        ru_lr_found f;
        ru_err err = {0};
        assert_ok(ru_sweep_judge(&s, &f, &err), err);
        if (!(f.lr > 0.005 && f.lr < 0.02 && f.lowest > f.lr && f.lowest < 0.5)) {
            fail_msg("seed %u: %g, lowest at %g", seed, f.lr, f.lowest);
        }
        assert_true(grown && s.n < 100);
    }
    ru_lr_sweep flat = {.from = 1e-7, .to = 10, .steps = 100, .at = points};
    for (uint32_t k = 0; k < 50; k++) {
        (void)rui_sweep_put(&flat, 1e-7 * (k + 1), 1 + k);
    }
    ru_lr_found f;
    ru_err err = {0};
    assert_int_equal(ru_sweep_judge(&flat, &f, &err), RU_E_USER);
}

/* A sweep of a job, which ends as it diverges, leaves its curve and no checkpoint. */
static void a_sweep_of_a_job_leaves_its_curve(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_lr_found f;
    l->job.train.optimizer.which = 1;
    const ru_train_options to = {.job = &l->job,
                                 .out = ru_path_join(&l->arena, l->dir, "sweep"),
                                 .quiet = true,
                                 .no_trace = true};
    assert_ok(ru_find_lr(&to, &l->arena, &f, &err), err);
    assert_true(f.lr > 1e-4 && f.lr < 5 && f.n >= RU_SWEEP_LEAST);
    char *csv;
    int64_t n;
    assert_ok(
        ru_file_read(ru_path_join(&l->arena, to.out, "find-lr.csv"), 0, &l->arena, &csv, &n, &err),
        err);
    assert_true(strncmp(csv, "lr,loss,mean\n1e-07,", 19) == 0 ||
                strncmp(csv, "lr,loss,mean\n1e-7,", 18) == 0);
    ru_ckpt_info info;
    assert_int_equal(ru_ckpt_find(to.out, &l->arena, &info, &err), RU_E_MISSING);
}

/* The number behind "key": after `from`. */
static double number_after(const char *from, const char *key)
{
    const char *at = from != NULL ? strstr(from, key) : NULL;
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

/* Files of the steps that are due, with every tensor and all of its numbers; a resumed run writes
 * the same ones. */
static void histograms_have_every_number(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    char *a, *b;
    int64_t n, m;
    for (uint32_t device = 0; device < 2; device++) {
        const char *run = device == 0 ? "ref" : "cpu";
        l->job.train.device = device == 0 ? RU_DEVICE_REF : RU_DEVICE_CPU;
        l->job.train.histograms = 3;
        assert_ok(run_lab_train(l, run, false, 4, &r, &err), err);
        const char *dir =
            ru_path_join(&l->arena, ru_path_join(&l->arena, l->dir, run), "histograms");
        assert_ok(ru_file_read(ru_path_join(&l->arena, dir, "000000003.json"), 0, &l->arena, &a, &n,
                               &err),
                  err);
        assert_false(ru_path_exists(ru_path_join(&l->arena, dir, "000000004.json")));
        assert_ok(ru_path_remove(dir, &err), err);
        l->job.train.histograms = 2;
        assert_ok(run_lab_train(l, run, true, 6, &r, &err), err);
        assert_false(ru_path_exists(ru_path_join(&l->arena, dir, "000000004.json")));
        assert_ok(ru_file_read(ru_path_join(&l->arena, dir, "000000006.json"), 0, &l->arena, &a, &n,
                               &err),
                  err);
        const char *whole = device == 0 ? "whole-ref" : "whole-cpu";
        assert_ok(run_lab_train(l, whole, false, 6, &r, &err), err);
        dir = ru_path_join(&l->arena, ru_path_join(&l->arena, l->dir, whole), "histograms");
        assert_ok(ru_file_read(ru_path_join(&l->arena, dir, "000000006.json"), 0, &l->arena, &b, &m,
                               &err),
                  err);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, (size_t)n);
        /* fc1.weight has 48 numbers, fc2.bias is frozen */
        static const char *const heads[] = {"{\"of\":\"gradient\",\"name\":\"fc1.weight\"",
                                            "{\"of\":\"parameter\",\"name\":\"fc1.weight\""};
        assert_null(strstr(a, "fc2.bias"));
        for (uint32_t k = 0; k < 2; k++) {
            const char *at = strstr(a, heads[k]);
            assert_true(number_after(at, "\"n\":") == 48);
            double low = number_after(at, "\"min\":"), high = number_after(at, "\"max\":");
            double sum = 0, before = -INFINITY;
            for (const char *bin = strstr(at, "\"bins\":[[") + 8; bin[-1] != ']';) {
                char *end;
                double limit = strtod(bin + 1, &end);
                assert_true(limit > before && limit >= low && (before < high || limit <= high));
                before = limit;
                sum += strtod(end + 1, &end);
                bin = end + 2;
            }
            assert_true(sum == 48 && low < 0 && high > 0 && before >= high);
        }
        const float *fc1;
        tensors t;
        fc1 = values(l, whole, "optimizer.safetensors", "fc1.weight.raw", &t);
        double least = (double)fc1[0];
        for (uint32_t k = 1; k < 48; k++) {
            least = fmin(least, (double)fc1[k]);
        }
        ru_file_unmap(&t.map);
        assert_true(fabs(number_after(strstr(a, heads[1]), "\"min\":") - least) < 1e-8);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, run_lab_close)
RU_TESTS(train_tune, TEST(a_moving_mean_is_what_is_saved_as_the_model),
         TEST(frozen_parameters_stay_and_resumed_runs_are_exact), TEST(classes_have_weights),
         TEST(a_sweep_of_a_job_leaves_its_curve), TEST(histograms_have_every_number),
         cmocka_unit_test(the_rate_where_the_loss_falls_fastest_is_found))
