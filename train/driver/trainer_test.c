/* Whole runs in one process: run directory, checkpoints, resume, reports. Processes that are killed
 * are the business of test/lab/train.sh. */
#include "test/test.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env/file/file.h"
#include "run/predict.h"
#include "run/rundir.h"
#include "store/onnx_file.h"
#include "store/world_file.h"
#include "test/run_lab.h"
#include "trace/read/read.h"
#include "train/driver/eval.h"
#include "train/driver/op_facts.h"
#include "train/driver/trainer.h"
#include "world/graph/build.h"

static int setup(void **state)
{
    return run_lab_open(state, "name: t\nmodel: {zoo: mlp, hidden: [8], dropout: 0.2}\n"
                               "data: {format: synthetic, generator: gaussian, count: 200, "
                               "test_count: 50, features: 6, classes: 3}\n"
                               "train: {batch: 16, epochs: 2, threads: 1, device: ref, "
                               "optimizer: {adam: {lr: 0.01}}}\n"
                               "checkpoint: {every: 0s, keep: 2}\n");
}

static void model_bytes(lab *l, const char *run, const char *file, char **data, int64_t *n)
{
    ru_err err = {0};
    ru_ckpt_info info;
    assert_ok(ru_ckpt_find(ru_path_join(&l->arena, l->dir, run), &l->arena, &info, &err), err);
    assert_ok(ru_file_read(ru_path_join(&l->arena, info.dir, file), 0, &l->arena, data, n, &err),
              err);
}

static void a_resumed_run_has_the_same_bytes(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    assert_ok(run_lab_train(l, "whole", false, 0, &r, &err), err);
    assert_int_equal(r.summary.steps, 25);
    assert_true(ru_metrics_get(&r.summary.metrics, "accuracy") > 0.3);
    assert_ok(run_lab_train(l, "parts", false, 4, &r, &err), err);
    assert_ok(run_lab_train(l, "parts", true, 15, &r, &err), err);
    assert_ok(run_lab_train(l, "parts", true, 0, &r, &err), err);
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    for (int k = 0; k < 2; k++) {
        char *a, *b;
        int64_t n, m;
        model_bytes(l, "whole", files[k], &a, &n);
        model_bytes(l, "parts", files[k], &b, &m);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, (size_t)n);
    }
    assert_int_equal(run_lab_train(l, "whole", false, 0, &r, &err), RU_E_USAGE);
    l->job.train.seed++; /* another seed is another order: not a resumed run */
    assert_int_equal(run_lab_train(l, "whole", true, 26, &r, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "seed"));
    l->job.train.seed--;
    l->job.data.shuffle = RU_SHUFFLE_BLOCK;
    assert_int_equal(run_lab_train(l, "whole", true, 26, &r, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "data.shuffle full, but the job has block"));
    l->job.data.shuffle = RU_SHUFFLE_FULL;
}

/* Labels as shares of the classes give the loss of class numbers; mixed ones come back after a
 * resume, and the evaluation is of pure samples. */
static void labels_may_be_shares(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result numbers, shares, r;
    ru_job plain = l->job;
    for (int smooth = 0; smooth < 2; smooth++) {
        const char *runs[] = {smooth == 0 ? "numbers" : "numbers-s",
                              smooth == 0 ? "shares" : "shares-s"};
        static const char *const balanced[] = {"balanced"};
        l->job.train.label_smoothing = smooth == 0 ? 0 : 0.1;
        l->job.train.class_weights = (ru_conf_texts){balanced, smooth == 0 ? 0 : 1};
        l->job.data.one_hot = false;
        assert_ok(run_lab_train(l, runs[0], false, 0, &numbers, &err), err);
        l->job.data.one_hot = true;
        assert_ok(run_lab_train(l, runs[1], false, 0, &shares, &err), err);
        assert_true(fabs(numbers.summary.loss - shares.summary.loss) < 1e-5);
        for (uint32_t k = 0; k < 2; k++) {
            const char *name = k == 0 ? "accuracy" : "loss";
            double a = ru_metrics_get(&numbers.summary.metrics, name);
            assert_true(fabs(a - ru_metrics_get(&shares.summary.metrics, name)) < 1e-5);
        }
    }
    l->job = plain;
    l->job.data.augment.mixup = 0.4;
    assert_ok(run_lab_train(l, "mixed", false, 0, &r, &err), err);
    assert_true(r.summary.loss > numbers.summary.loss + 0.01);
    assert_ok(run_lab_train(l, "mixed2", false, 7, &r, &err), err);
    assert_ok(run_lab_train(l, "mixed2", true, 0, &r, &err), err);
    char *a, *b;
    int64_t n, m;
    model_bytes(l, "mixed", "model.safetensors", &a, &n);
    model_bytes(l, "mixed2", "model.safetensors", &b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, (size_t)n);
    l->job = plain;
}

/* world.json of a run: every op instance with the times of its trace, which the executable itself
 * does not keep (median, age). */
static void a_run_leaves_facts_of_its_op_instances(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    ru_world w;
    l->traces = true;
    assert_ok(run_lab_train(l, "facts", false, 0, &r, &err), err);
    const char *run = ru_path_join(&l->arena, l->dir, "facts");
    assert_ok(ru_world_file_load(ru_path_join(&l->arena, run, "world.json"), &l->arena, &w, &err),
              err);
    assert_true(w.facts.ops.n > 5 && w.facts.transfers.n == 4);
    bool aged = false;
    for (uint32_t i = 0; i < w.facts.ops.n; i++) {
        const ru_op_fact *f = &w.facts.ops.at[i];
        assert_int_equal(f->step, i);
        if (f->took.count < 20 || f->took.count > 24) { /* 25 steps, without the first */
            fail_msg("step %u: %lld runs", i, (long long)f->took.count);
        }
        assert_true(f->took.min_ns <= f->took.median_ns && f->took.median_ns <= f->took.max_ns);
        assert_true(f->took.mean_ns > 0 && f->op[0] != 0);
        aged = aged || f->took.age_ns > 0;
    }
    assert_true(aged);
    assert_int_equal(w.facts.processors.n, 1);
    assert_int_equal(w.facts.processors.at[0].took.count, 20); /* without the first five */
    assert_true(w.facts.processors.at[0].compute_ns > 0);
    int64_t records = 0;
    assert_ok(ru_op_facts(run, RU_OP_FACTS_BYTES, &l->arena, &w, &records, &err), err);
    assert_true(records > 0);
}

/* 200 samples an epoch: 16 a step, from epoch 2 on 40; a resumed run has the same bytes. */
static void the_batch_follows_its_schedule(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    const ru_conf_pair pairs[] = {{"2", 40}};
    l->job.train.batch_schedule = (ru_conf_pairs){pairs, 1};
    assert_ok(run_lab_train(l, "grow", false, 0, &r, &err), err);
    assert_int_equal(r.summary.steps, 13 + 5); /* 13 of 16 end at 208, 5 of 40 at 408 */
    assert_int_equal(r.summary.samples, 13 * 16 + 5 * 40);
    assert_ok(run_lab_train(l, "grown", false, 15, &r, &err), err);
    assert_ok(run_lab_train(l, "grown", true, 0, &r, &err), err);
    assert_int_equal(r.summary.samples, 13 * 16 + 5 * 40);
    char *a, *b;
    int64_t n, m;
    model_bytes(l, "grow", "model.safetensors", &a, &n);
    model_bytes(l, "grown", "model.safetensors", &b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, (size_t)n);
}

static void damaged_checkpoints_are_passed_over(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    ru_ckpt_info info;
    assert_ok(run_lab_train(l, "run", false, 3, &r, &err), err);
    assert_ok(run_lab_train(l, "run", true, 6, &r, &err), err);
    const char *run = ru_path_join(&l->arena, l->dir, "run");
    assert_ok(ru_ckpt_find(run, &l->arena, &info, &err), err);
    assert_int_equal(info.at.step, 6);
    /* one byte in the middle of the newest */
    const char *path = ru_path_join(&l->arena, info.dir, "model.safetensors");
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, 300, SEEK_SET), 0);
    (void)fputc('!', f);
    (void)fclose(f);
    assert_int_equal(ru_ckpt_read(info.dir, &l->arena, &info, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "damaged"));
    int old = dup(2), null = open("/dev/null", O_WRONLY); /* the log names the damaged one */
    (void)dup2(null, 2);
    ru_status st = ru_ckpt_find(run, &l->arena, &info, &err);
    (void)dup2(old, 2);
    (void)close(old);
    (void)close(null);
    assert_ok(st, err);
    assert_int_equal(info.at.step, 3);
    /* state.json that is no JSON, a manifest that names another folder */
    const char *state_path = ru_path_join(&l->arena, info.dir, "manifest.json");
    static const char evil[] = "{\"schema\":\"rubato.manifest/1\",\"files\":[{\"name\":\"../x\","
                               "\"bytes\":1,\"hash\":\"0\"}]}";
    assert_ok(ru_file_replace(state_path, evil, (int64_t)strlen(evil), &err), err);
    assert_int_equal(ru_ckpt_read(info.dir, &l->arena, &info, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "outside the folder"));
    assert_ok(ru_file_replace(state_path, "{", 1, &err), err);
    assert_int_equal(ru_ckpt_read(info.dir, &l->arena, &info, &err), RU_E_DATA);
}

static void a_run_predicts_from_its_folder_alone(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    ru_rundir run;
    ru_predictor *p;
    l->job.train.epochs = 1; /* 200 samples in batches of 16: the last step uses the last of them */
    assert_ok(run_lab_train(l, "run", false, 0, &r, &err), err);
    assert_int_equal(r.summary.steps, 13);
    assert_ok(ru_rundir_open(ru_path_join(&l->arena, l->dir, "run"), &l->arena, &run, &err), err);
    assert_ok(
        ru_predictor_open(&run, 4, &(ru_exe_options){.device = RU_DEVICE_REF}, &l->arena, &p, &err),
        err);
    assert_int_equal(ru_predictor_inputs(p), 6);
    assert_int_equal(ru_predictor_outputs(p), 3);
    const float *out;
    assert_ok(ru_predictor_run(p, &out, &err), err);
    assert_memory_equal(out, out + 3, 3 * sizeof *out); /* equal rows, equal outputs */
    ru_predictor_close(p);
    assert_int_equal(ru_rundir_open("/nowhere", &l->arena, &run, &err), RU_E_MISSING);
    assert_int_equal(ru_rundir_open(l->dir, &l->arena, &run, &err), RU_E_MISSING);
}

static int64_t lines_with(const char *text, const char *word)
{
    int64_t n = 0;
    for (const char *p = strstr(text, word); p != NULL; p = strstr(p + 1, word)) {
        n++;
    }
    return n;
}

static void the_metrics_file_has_every_step(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    char *text;
    int64_t n;
    assert_ok(run_lab_train(l, "run", false, 0, &r, &err), err);
    assert_ok(ru_file_read(ru_path_join(&l->arena, r.out, "metrics.jsonl"), 0, &l->arena, &text, &n,
                           &err),
              err);
    assert_int_equal(lines_with(text, "rubato.train.start/1"), 1);
    assert_int_equal(lines_with(text, "rubato.train.step/1"), 25);
    assert_int_equal(lines_with(text, "rubato.train.eval/1"), 2);
    assert_int_equal(lines_with(text, "rubato.train.summary/1"), 1);
    assert_int_equal(lines_with(text, "nan"), 0);
}

static void divergence_ends_with_one_sentence(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    ru_job good = l->job;
    l->job.train.loss = 1 + RU_LOSS_MSE;
    l->job.data.one_hot = true;
    l->job.model.activation = 2; /* tanh */
    l->job.train.optimizer = (ru_job_optimizer){.which = 1, .sgd = {.lr = 1000}};
    l->job.train.epochs = 20;
    assert_int_equal(run_lab_train(l, "run", false, 0, &r, &err), RU_E_USER);
    assert_non_null(strstr(err.text, "training diverged")); /* before any checkpoint */
    l->job = good;
}

/* One sample of 64 is so large that its products overflow: it is named whatever the cut and the
 * device, although the kernels' ReLU could hide what comes of it. */
static void what_is_not_finite_is_named(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    char text[64 * 16], path[128];
    int n = 0;
    for (int k = 0; k < 64; k++) {
        n += snprintf(text + n, sizeof text - (size_t)n,
                      k == 17 ? "3.4e38,3.4e38,%d\n" : "1,2,%d\n", k % 3);
    }
    (void)snprintf(path, sizeof path, "%s/large.csv", l->dir);
    assert_ok(ru_file_replace(path, text, n, &err), err);
    for (int way = 0; way < 4; way++) {
        char job[512], run[16];
        ru_train_result r;
        ru_job old = l->job;
        (void)snprintf(job, sizeof job,
                       "name: t\nmodel: {zoo: mlp, hidden: [64, 64], dropout: 0.1}\n"
                       "data: {format: csv, train: %s}\n"
                       "train: {batch: 16, epochs: 1, threads: %d, device: %s, accumulate: %d, "
                       "optimizer: {sgd: {lr: 0.01}}}\n",
                       path, way % 2 + 1, way < 2 ? "cpu" : "ref", way % 2 == 0 ? 1 : 4);
        (void)snprintf(run, sizeof run, "odd%d", way);
        assert_ok(ru_job_parse("t", job, &l->arena, &l->job, &err), err);
        assert_int_equal(run_lab_train(l, run, false, 0, &r, &err), RU_E_USER);
        l->job = old;
        if (strstr(err.text, "the result of Gemm of fc1.weight") == NULL ||
            strstr(err.text, "for sample 17 (counted from 0) of ") == NULL ||
            strstr(err.text, "large.csv") == NULL) {
            fail_msg("way %d: %s", way, err.text);
        }
    }
}

/* The trained model of a run as an ONNX file, its weights inside or beside it. */
static const char *export_run(lab *l, const char *run, const char *folder, bool external)
{
    ru_err err = {0};
    ru_rundir dir;
    ru_model m;
    const char *into = ru_path_join(&l->arena, l->dir, folder);
    const char *path = ru_path_join(&l->arena, into, "net.onnx");
    assert_ok(ru_dir_make(into, &err), err);
    assert_ok(ru_rundir_open(ru_path_join(&l->arena, l->dir, run), &l->arena, &dir, &err), err);
    assert_ok(ru_rundir_model(&dir, &l->arena, &m, &err), err);
    assert_ok(ru_onnx_file_save(path, &m.infer, &(ru_onnx_write_options){.external = external},
                                NULL, &err),
              err);
    ru_model_close(&m);
    return path;
}

/* Weights in a file beside the model train like weights inside, and the run keeps its own copy. */
static void an_imported_model_with_outside_weights_trains(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    ru_rundir run;
    ru_predictor *p;
    l->job.model.hidden.n = 1;
    l->job.model.hidden.at = (int64_t[]){64}; /* large enough to stand outside */
    assert_ok(run_lab_train(l, "first", false, 3, &r, &err), err);
    const char *whole = export_run(l, "first", "whole", false);
    const char *parts = export_run(l, "first", "parts", true);
    l->job.model = (ru_job_model){.source = RU_MODEL_ONNX, .onnx = whole, .weights = ""};
    assert_ok(run_lab_train(l, "a", false, 6, &r, &err), err);
    l->job.model.onnx = parts;
    assert_ok(run_lab_train(l, "b", false, 3, &r, &err), err);
    assert_ok(ru_path_remove(ru_path_join(&l->arena, l->dir, "parts"), &err), err);
    assert_ok(run_lab_train(l, "b", true, 6, &r, &err), err); /* from the run's own copy */
    char *a, *b;
    int64_t n, m;
    model_bytes(l, "a", "model.safetensors", &a, &n);
    model_bytes(l, "b", "model.safetensors", &b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, (size_t)n);
    assert_ok(ru_rundir_open(ru_path_join(&l->arena, l->dir, "b"), &l->arena, &run, &err), err);
    assert_ok(
        ru_predictor_open(&run, 4, &(ru_exe_options){.device = RU_DEVICE_REF}, &l->arena, &p, &err),
        err);
    ru_predictor_close(p);
}

/* Where data decide sizes, nothing is trained, and what stands in place of a run is said. */
static void a_model_whose_sizes_data_decide_is_refused(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_graph g;
    ru_build b;
    ru_train_result r;
    ru_rundir run;
    uint32_t sym;
    bool external;
    const char *path = ru_path_join(&l->arena, l->dir, "select.onnx");
    assert_ok(ru_graph_init(&g, &l->arena, "g", &err), err);
    assert_ok(ru_graph_symbol(&g, "N", &sym, &err), err);
    ru_build_init(&b, &g);
    ru_type t = {.dtype = RU_F32, .rank = 2, .dims = {ru_dim_symbol(sym, 1), 6}};
    ru_value_id at = ru_build_op1(&b, RU_OP_NonZero, ru_build_input(&b, "x", t), NULL);
    ru_build_output(&b, ru_build_op1(&b, RU_OP_Transpose, at, NULL), "y");
    assert_ok(ru_build_finish(&b, &err), err);
    assert_ok(ru_onnx_file_save(path, &g, NULL, &external, &err), err);
    for (uint32_t head = 0; head < 2; head++) { /* a new last layer is no way out */
        l->job.model = (ru_job_model){.source = RU_MODEL_ONNX, .onnx = path, .weights = ""};
        l->job.model.head = head;
        assert_int_equal(run_lab_train(l, "none", false, 3, &r, &err), RU_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "its shape depends on data of the run; rubato run"));
    }
    assert_int_equal(ru_rundir_open(path, &l->arena, &run, &err), RU_E_MISSING);
    assert_non_null(strstr(err.text, "select.onnx --in ARRAYS.npz"));
}

/* Predictions are those of the trained values: witness is the exported graph run by itself. */
static void predictions_are_of_the_trained_values(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    ru_rundir run;
    ru_predictor *p;
    ru_model m;
    ru_graph g;
    ru_exe *exe;
    const ru_exe_options ref = {.device = RU_DEVICE_REF};
    static const float x[6] = {1, -2, 3, -4, 5, -6};
    assert_ok(run_lab_train(l, "run", false, 0, &r, &err), err);
    assert_ok(ru_rundir_open(ru_path_join(&l->arena, l->dir, "run"), &l->arena, &run, &err), err);
    assert_ok(ru_predictor_open(&run, 1, &ref, &l->arena, &p, &err), err);
    memcpy(ru_predictor_input(p, 0), x, sizeof x);
    const float *got;
    assert_ok(ru_predictor_run(p, &got, &err), err);
    assert_ok(ru_rundir_model(&run, &l->arena, &m, &err), err);
    assert_ok(ru_graph_bind(&m.infer, 0, 1, &l->arena, &g, &err), err);
    assert_ok(ru_exe_open(&g, &ref, &exe, &err), err);
    memcpy(ru_exe_input(exe, g.inputs[0]), x, sizeof x);
    assert_ok(ru_exe_run(exe, &(ru_run_args){0}, &err), err);
    assert_memory_equal(got, ru_exe_output(exe, g.outputs[0]), 3 * sizeof *got);
    assert_true(got[0] != got[1]);
    ru_exe_close(exe);
    ru_model_close(&m);
    ru_predictor_close(p);
}

static ru_metrics metrics_with(lab *l, const ru_rundir *run, int64_t batch)
{
    ru_err err = {0};
    ru_dataset *set;
    ru_model m;
    ru_eval *e;
    ru_metrics out;
    const ru_graph *g;
    static const char *const figures[] = {"precision", "recall", "f1", "auc"};
    const ru_eval_options o = {.batch = batch,
                               .exe = {.device = RU_DEVICE_REF},
                               .readers = 1,
                               .figures = figures,
                               .n_figures = 4};
    assert_ok(ru_rundir_data(run, NULL, 0, true, &set, &err), err);
    assert_ok(ru_model_open(&run->job, &run->ckpt.facts, NULL, &l->arena, &m, &err), err);
    assert_ok(ru_eval_open(&m, set, &o, &l->arena, &e, &err), err);
    ru_exe *exe = ru_eval_exe(e, &g);
    assert_ok(ru_ckpt_load(&run->ckpt, g, exe, false, &err), err);
    assert_ok(ru_eval_run(e, &out, &err), err);
    ru_eval_close(e);
    ru_model_close(&m);
    ru_dataset_close(set);
    return out;
}

/* 53 samples: no batch comes out even but 1 and 53; the mean is over samples, not over batches. */
static void metrics_do_not_depend_on_the_batch(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    ru_rundir run;
    l->job.data.test_count = 53;
    assert_ok(run_lab_train(l, "run", false, 0, &r, &err), err);
    assert_ok(ru_rundir_open(ru_path_join(&l->arena, l->dir, "run"), &l->arena, &run, &err), err);
    ru_metrics one = metrics_with(l, &run, 1);
    static const int64_t batches[] = {2, 16, 50, 52, 53, 1000};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(batches); k++) {
        ru_metrics m = metrics_with(l, &run, batches[k]);
        double loss = ru_metrics_get(&one, "loss");
        assert_true(ru_metrics_get(&m, "accuracy") == ru_metrics_get(&one, "accuracy"));
        assert_true(fabs(ru_metrics_get(&m, "loss") - loss) < 1e-6 * loss);
        assert_int_equal(m.n, 2 + 4);
        for (uint32_t i = 2; i < m.n; i++) {
            assert_true(fabs(m.at[i].value - one.at[i].value) < 1e-6 && m.at[i].value > 0.3);
        }
    }
}

/* The loop is sealed after its first step (train_step_sealed): a real run on the fast device, with
 * reading threads, recorder, evaluation and checkpoints. The trace has the reading of each batch.
 */
static void the_loop_allocates_nothing_and_records_reading(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    ru_trace trace;
    int64_t reads = 0;
    l->job.train.device = RU_DEVICE_CPU;
    l->job.train.threads = 2;
    l->job.data.threads = 2;
    l->job.train.eval_every = 5;
    l->job.checkpoint.every_ns = 1;
    ru_train_options to = {
        .job = &l->job, .out = ru_path_join(&l->arena, l->dir, "run"), .quiet = true};
    assert_ok(ru_train(&to, &l->arena, &r, &err), err);
    assert_int_equal(r.summary.steps, 25);
    assert_ok(ru_trace_load(ru_path_join(&l->arena, to.out, "trace/rank0.trace"), &l->arena, &trace,
                            &err),
              err);
    for (uint32_t t = 0; t < trace.n_threads; t++) {
        for (int64_t k = 0; k < trace.threads[t].n; k++) {
            const ru_record *rec = &trace.threads[t].records[k];
            bool read = strcmp(trace.names[rec->name].name, "read") == 0 &&
                        strcmp(trace.names[rec->name].category, "data") == 0;
            assert_true(!read || rec->value == 16 * (6 * 4 + 8)); /* a batch's bytes */
            reads += read;
        }
    }
    assert_true(reads >= 25);
}

#define RUN_TEST(f) cmocka_unit_test_setup_teardown(f, setup, run_lab_close)

RU_TESTS(train_trainer, RUN_TEST(a_resumed_run_has_the_same_bytes), RUN_TEST(labels_may_be_shares),
         RUN_TEST(a_run_leaves_facts_of_its_op_instances), RUN_TEST(the_batch_follows_its_schedule),
         RUN_TEST(damaged_checkpoints_are_passed_over),
         RUN_TEST(a_run_predicts_from_its_folder_alone), RUN_TEST(the_metrics_file_has_every_step),
         RUN_TEST(divergence_ends_with_one_sentence), RUN_TEST(what_is_not_finite_is_named),
         RUN_TEST(an_imported_model_with_outside_weights_trains),
         RUN_TEST(a_model_whose_sizes_data_decide_is_refused),
         RUN_TEST(predictions_are_of_the_trained_values),
         RUN_TEST(the_loop_allocates_nothing_and_records_reading),
         RUN_TEST(metrics_do_not_depend_on_the_batch))
