/* Resuming: what is refused before anything changes, what is told, and which steps are on record.
 */
#include "test/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "env/file/file.h"
#include "run/ckpt.h"
#include "run/report.h"
#include "test/run_lab.h"
#include "train/driver/trainer.h"

static int setup(void **state)
{
    int rc = run_lab_open(state, "name: t\nmodel: {zoo: mlp, hidden: [8]}\n"
                                 "data: {format: synthetic, generator: gaussian, count: 200, "
                                 "features: 6, classes: 3}\n"
                                 "train: {batch: 16, epochs: 2, threads: 1, device: ref, "
                                 "optimizer: {adam: {lr: 0.01}}}\n"
                                 "checkpoint: {every: 0s, keep: 2}\n");
    ru_log_set(&(ru_log_options){.level = RU_LOG_ERROR}); /* damaged checkpoints are named there */
    return rc;
}

static ru_status train(lab *l, const char *name, bool resume, int64_t steps, ru_err *err)
{
    ru_train_result r;
    l->traces = true;
    return run_lab_train(l, name, resume, steps, &r, err);
}

static char *text_of(lab *l, const char *name)
{
    ru_err err = {0};
    char *text;
    int64_t n;
    assert_ok(ru_file_read(ru_path_join(&l->arena, l->dir, name), 0, &l->arena, &text, &n, &err),
              err);
    return text;
}

/* Write over some bytes in the middle, as a failing disk would. */
static void damage(lab *l, const char *name)
{
    FILE *f = fopen(ru_path_join(&l->arena, l->dir, name), "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, 300, SEEK_SET), 0);
    assert_true(fputc('!', f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static bool exists(lab *l, const char *name)
{
    return ru_path_exists(ru_path_join(&l->arena, l->dir, name));
}

/* A mistyped name makes no folder and begins no run. */
static void nothing_to_resume_is_an_error(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    assert_int_equal(train(l, "mistyped", true, 4, &err), RU_E_MISSING);
    assert_non_null(strstr(err.text, "nothing to resume"));
    assert_false(exists(l, "mistyped"));
    assert_ok(ru_dir_make(ru_path_join(&l->arena, l->dir, "photos"), &err), err);
    assert_int_equal(train(l, "photos", true, 4, &err), RU_E_MISSING);
    assert_non_null(strstr(err.text, "not a run directory"));
    char **names;
    uint32_t n;
    assert_ok(ru_dir_list(ru_path_join(&l->arena, l->dir, "photos"), &l->arena, &names, &n, &err),
              err);
    assert_int_equal(n, 0);
}

/* Not one byte of the run changes when it cannot go on. */
static void damaged_checkpoints_end_a_resume(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    static const char *const kept[] = {"run/metrics.jsonl", "run/trace/rank0.trace", "run/job.yaml",
                                       "run/log", "run/world.json"};
    char *before[RU_ARRAY_LEN(kept)];
    assert_ok(train(l, "run", false, 3, &err), err);
    assert_ok(train(l, "run", true, 6, &err), err);
    damage(l, "run/checkpoints/000000003/model.safetensors");
    damage(l, "run/checkpoints/000000006/optimizer.safetensors");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(kept); k++) {
        before[k] = text_of(l, kept[k]);
    }
    assert_int_equal(train(l, "run", true, 9, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "all checkpoints are damaged"));
    assert_non_null(strstr(err.text, "000000006"));
    for (uint32_t k = 0; k < RU_ARRAY_LEN(kept); k++) {
        assert_string_equal(before[k], text_of(l, kept[k]));
    }
    assert_false(exists(l, "run/trace/rank0-3.trace"));
    assert_true(exists(l, "run/checkpoints/000000003"));
}

/* A damaged checkpoint does not count as one of the newest, which stay. */
static void good_checkpoints_outlive_damaged_ones(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_ckpt_info info;
    assert_ok(train(l, "run", false, 3, &err), err);
    assert_ok(train(l, "run", true, 20, &err), err);
    damage(l, "run/checkpoints/000000020/model.safetensors");
    assert_ok(train(l, "run", true, 5, &err), err); /* from step 3 */
    assert_true(exists(l, "run/checkpoints/000000005"));
    assert_true(exists(l, "run/checkpoints/000000003"));
    assert_true(exists(l, "run/checkpoints/000000020.damaged"));
    assert_ok(ru_ckpt_find(ru_path_join(&l->arena, l->dir, "run"), &l->arena, &info, &err), err);
    assert_int_equal(info.at.step, 5);
    assert_ok(train(l, "run", true, 20, &err), err);
    damage(l, "run/checkpoints/000000020/model.safetensors");
    assert_ok(train(l, "run", true, 6, &err), err); /* the name is taken already */
    assert_true(exists(l, "run/checkpoints/000000006"));
}

/* A longer run stretches its schedule, and the rate with it: that is told with both rates. */
static void a_jump_of_the_rate_is_told(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    l->job.train.schedule.which = 3; /* cosine */
    assert_ok(train(l, "run", false, 6, &err), err);
    assert_ok(train(l, "run", true, 6, &err), err);
    assert_null(strstr(text_of(l, "run/log"), "the learning rate goes"));
    assert_ok(train(l, "run", true, 12, &err), err);
    /* 0.01 (1 + cos(pi k / n)) / 2 with k = 5 of n = 6, and k = 6 of n = 12. */
    assert_non_null(strstr(text_of(l, "run/log"),
                           "the learning rate goes from 0.00067 at step 6 to 0.005; the cosine "
                           "schedule now ends at step 12 (was 6)"));
}

/* The settings that differ are named; the trace before stays beside the new one. */
static void changed_settings_are_told(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    assert_ok(train(l, "run", false, 4, &err), err);
    char *trace = text_of(l, "run/trace/rank0.trace");
    assert_ok(train(l, "run", true, 4, &err), err);
    assert_null(strstr(text_of(l, "run/log"), "changed settings"));
    l->job.train.batch = 8;
    l->job.train.optimizer.adam.lr = 0.5;
    l->job.train.threads = 2; /* does not change the training */
    assert_ok(train(l, "run", true, 6, &err), err);
    assert_non_null(strstr(text_of(l, "run/log"), "with changed settings: "
                                                  "train.optimizer.adam.lr 0.5 (was 0.01), "
                                                  "train.batch 8 (was 16), train.steps 6 (was 4)"));
    assert_non_null(strstr(text_of(l, "run/metrics.jsonl"), ",\"changed\":\"train.optimizer."));
    assert_string_equal(trace, text_of(l, "run/trace/rank0.trace"));
    assert_true(exists(l, "run/trace/rank0-2.trace"));
    assert_true(exists(l, "run/trace/rank0-3.trace"));
    l->job.train.optimizer.which = 1;
    assert_ok(train(l, "run", true, 8, &err), err); /* it has no slots that could be missing */
    assert_non_null(strstr(text_of(l, "run/log"), "train.optimizer sgd (was adam), train.steps"));
}

/* A run that is done says so. */
static void a_finished_run_says_so(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    assert_ok(train(l, "run", false, 4, &err), err);
    assert_ok(train(l, "run", true, 4, &err), err);
    assert_non_null(strstr(text_of(l, "run/log"), "has already completed its 4 steps"));
}

/* The rate is that of the samples since the resume, also when the steps before had another batch.
 */
static void the_rate_counts_samples_since_the_resume(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    assert_ok(train(l, "run", false, 10, &err), err);
    l->job.train.batch = 8;
    assert_ok(run_lab_train(l, "run", true, 14, &r, &err), err);
    assert_int_equal(r.summary.samples, 10 * 16 + 4 * 8);
    double samples = r.summary.samples_per_s * (double)r.summary.wall_ns * 1e-9;
    assert_true(samples > 31.99 && samples < 32.01);
}

/* An evaluation that was due after the last step of a larger batch, and was not told, is made when
 * the run is resumed: only with that batch the step is the last of an epoch. */
static void an_evaluation_of_a_schedule_is_made_up_for(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    static const char eval[] = "{\"schema\":\"rubato.train.eval/1\",\"step\":11,";
    assert_ok(train(l, "run", false, 11, &err), err);
    char *text = text_of(l, "run/metrics.jsonl"), *line = strstr(text, eval);
    assert_non_null(line);
    const char *path = ru_path_join(&l->arena, l->dir, "run/metrics.jsonl");
    assert_ok(ru_file_replace(path, text, line - text, &err), err);
    assert_ok(train(l, "run", true, 12, &err), err);
    text = text_of(l, "run/metrics.jsonl");
    assert_non_null(strstr(text, eval));
    assert_true(strstr(text, eval) < strstr(text, "step/1\",\"step\":12"));
}

static int setup_schedule(void **state)
{
    return run_lab_open(state, "name: t\nmodel: {zoo: mlp, hidden: [4]}\n"
                               "data: {format: synthetic, generator: gaussian, count: 64, "
                               "test_count: 24, features: 4, classes: 3}\n"
                               "train: {batch: 8, batch_schedule: {2: 24}, epochs: 9, threads: 1, "
                               "device: ref, optimizer: sgd}\n"
                               "checkpoint: {every: 0s}\n");
}

/* Every step from 1 to `last` stands in the metrics file, each once, in order. */
static void steps_once(lab *l, const char *name, int64_t last)
{
    static const char head[] = "\"rubato.train.step/1\",\"step\":";
    int64_t n = 0;
    const char *text = text_of(l, name);
    for (const char *p = strstr(text, head); p != NULL; p = strstr(p + 1, head)) {
        assert_int_equal(strtoll(p + sizeof head - 1, NULL, 10), ++n);
    }
    assert_int_equal(n, last);
}

/* Steps that are done again were told before: the file tells them once. */
static void steps_done_again_are_told_once(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    assert_ok(train(l, "run", false, 3, &err), err);
    assert_ok(train(l, "run", true, 7, &err), err);
    damage(l, "run/checkpoints/000000007/model.safetensors");
    assert_ok(train(l, "run", true, 5, &err), err); /* 4 and 5 again */
    steps_once(l, "run/metrics.jsonl", 5);
    FILE *f = fopen(ru_path_join(&l->arena, l->dir, "run/metrics.jsonl"), "a");
    assert_non_null(f);
    assert_true(fputs("{\"schema\":\"rubato.train.step/1\",\"step\":5", f) >= 0); /* half a line */
    assert_int_equal(fclose(f), 0);
    assert_ok(train(l, "run", true, 9, &err), err);
    steps_once(l, "run/metrics.jsonl", 9);
}

static void put(ru_run_report *r, int64_t from, int64_t to)
{
    ru_err err = {0};
    for (int64_t k = from; k <= to; k++) {
        assert_ok(ru_run_report_step_put(r, &(ru_run_report_step){.step = k, .batch = 1}, &err),
                  err);
    }
}

/* Two leaders of which the first does not know that it leads no more, until it leads again. */
static void a_successor_goes_on_in_the_same_file(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_run_report *first, *second;
    ru_run_report_options ro = {.run = "r", .dir = l->dir, .quiet = true};
    assert_ok(ru_run_report_open(&ro, &l->arena, &first, &err), err);
    put(first, 1, 4);
    ro.append = true;
    ro.after_step = 5;
    assert_ok(ru_run_report_open(&ro, &l->arena, &second, &err), err);
    assert_int_equal(ru_run_report_told(second), 4);
    assert_true(ru_run_report_goes_on(second) && !ru_run_report_goes_on(first));
    put(first, 5, 6);
    put(second, 3, 7); /* 3 and 4 were told already */
    put(first, 7, 8);
    steps_once(l, "metrics.jsonl", 7);
    ru_run_report_mute(first);
    put(first, 9, 9);
    put(second, 8, 9);
    assert_ok(ru_run_report_unmute(first, 10, &err), err);
    assert_int_equal(ru_run_report_told(first), 9);
    put(first, 8, 11);
    put(second, 10, 10);
    steps_once(l, "metrics.jsonl", 11);
    ru_run_report_close(first);
    ru_run_report_close(second);
}

#define RUN_TEST(f) cmocka_unit_test_setup_teardown(f, setup, run_lab_close)

RU_TESTS(train_resume, RUN_TEST(nothing_to_resume_is_an_error),
         RUN_TEST(damaged_checkpoints_end_a_resume),
         RUN_TEST(good_checkpoints_outlive_damaged_ones), RUN_TEST(changed_settings_are_told),
         RUN_TEST(a_jump_of_the_rate_is_told), RUN_TEST(a_finished_run_says_so),
         RUN_TEST(the_rate_counts_samples_since_the_resume),
         cmocka_unit_test_setup_teardown(an_evaluation_of_a_schedule_is_made_up_for, setup_schedule,
                                         run_lab_close),
         RUN_TEST(steps_done_again_are_told_once), RUN_TEST(a_successor_goes_on_in_the_same_file))
