/* The best evaluation: counting, and what a run that goes on finds in its metrics file. */
#include "run/best.h"
#include "run/rundir.h"

#include "test/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "env/file/file.h"
#include "test/run_lab.h"
#include "train/job/metric.h"

static void evaluations_are_counted_once(void **state)
{
    (void)state;
    ru_best b = {.metric = "accuracy", .more = ru_metric_more("accuracy"), .least = 0.01};
    assert_true(ru_best_put(&b, 10, 0.5));
    assert_false(ru_best_put(&b, 10, 0.9)); /* told twice */
    assert_false(ru_best_put(&b, 20, 0.509));
    assert_false(ru_best_put(&b, 30, RU_NAN));
    assert_int_equal(b.since, 2);
    assert_true(ru_best_put(&b, 40, 0.52));
    assert_int_equal(b.step, 40);
    assert_int_equal(b.since, 0);
    ru_best loss = {.metric = "loss", .more = ru_metric_more("loss")};
    assert_true(ru_best_put(&loss, 1, 2.0));
    assert_true(ru_best_put(&loss, 2, 1.5));
    assert_false(ru_best_put(&loss, 3, 1.5));
    /* Without any number the first checkpoint is kept, and patience ends the run. */
    ru_best none = {.metric = "auc", .more = true, .least = 0.01};
    assert_true(ru_best_put(&none, 5, RU_NAN));
    assert_false(ru_best_put(&none, 10, RU_NAN));
    assert_int_equal(none.since, 1);
    assert_true(ru_best_put(&none, 15, 0.1));
    assert_int_equal(none.step, 15);
    assert_false(ru_best_put(&none, 20, RU_NAN));
}

static void the_metrics_file_tells_the_same(void **state)
{
    (void)state;
    static const char text[] =
        "{\"schema\":\"rubato.train.step/1\",\"step\":1,\"loss\":0.1}\n"
        "{\"schema\":\"rubato.train.eval/1\",\"step\":1,\"metric\":{\"accuracy\":0.5,\"loss\":2}}\n"
        "{\"schema\":\"rubato.train.eval/1\",\"step\":2,\"metric\":{\"accuracy\":0.7,\"loss\":1}}\n"
        "{\"schema\":\"rubato.train.eval/1\",\"step\":3,\"metric\":{\"accuracy\":null}}\n"
        "{\"schema\":\"rubato.train.eval/1\",\"step\":4,\"metric\":{\"accuracy\":0.6,\"loss\":4}}\n"
        "{\"schema\":\"rubato.train.eval/1\",\"step\":5,\"metric\":{\"accuracy\":0.9,\"loss\":3}}";
    char path[] = "/tmp/rubato-best-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    (void)close(fd);
    ru_err err = {0};
    ru_best b = {.metric = "accuracy", .more = true};
    assert_ok(ru_best_read(&b, path, 4, &err), err);
    assert_int_equal(b.step, 2);
    assert_int_equal(b.since, 2);
    assert_true(b.value == 0.7);
    ru_best loss = {.metric = "loss"};
    assert_ok(ru_best_read(&loss, path, 5, &err), err);
    assert_int_equal(loss.step, 2);
    assert_int_equal(loss.since, 3);
    (void)unlink(path);
    assert_ok(ru_best_read(&b, path, 4, &err), err); /* no file: nothing told */
    assert_int_equal(b.since, 2);
}

static int setup(void **state)
{
    return run_lab_open(state,
                        "name: t\nmodel: {zoo: mlp, hidden: [8]}\n"
                        "data: {format: synthetic, generator: gaussian, count: 200, "
                        "test_count: 50, features: 6, classes: 3}\n"
                        "train: {batch: 16, epochs: 9, threads: 1, device: ref, eval_every: 2, "
                        "patience: 3, optimizer: {sgd: {lr: 0.5}}, metric: loss}\n"
                        "checkpoint: {every: 0s, keep: 1, keep_best: true}\n");
}

static void train(lab *l, const char *name, bool resume, int64_t steps, ru_train_result *r)
{
    ru_err err = {0};
    assert_ok(run_lab_train(l, name, resume, steps, r, &err), err);
}

/* Where checkpoints/best of a run leads. */
static int64_t best_of(lab *l, const char *name)
{
    char to[64];
    const char *path = ru_arena_printf(&l->arena, "%s/%s/checkpoints/best", l->dir, name);
    ssize_t n = readlink(path, to, sizeof to - 1);
    assert_true(n > 0);
    to[n] = 0;
    assert_true(ru_path_exists(ru_arena_printf(&l->arena, "%s/manifest.json", path)));
    int64_t step = 0;
    assert_true(ru_str_i64(ru_str_c(to), &step));
    return step;
}

/* A run in one piece and one that was stopped twice keep the same and end at the same step. */
static void a_run_without_improvement_ends_early(void **state)
{
    lab *l = *state;
    ru_train_result whole, parts;
    train(l, "whole", false, 0, &whole);
    assert_string_equal(whole.summary.ended, "patience");
    int64_t best = best_of(l, "whole");
    assert_int_equal(whole.summary.steps, best + 2 * 3);
    ru_err err = {0};
    ru_rundir used; /* eval, predict and export take the best one, or the one that is named */
    const char *dir = ru_arena_printf(&l->arena, "%s/whole", l->dir);
    assert_ok(ru_rundir_open(dir, &l->arena, &used, &err), err);
    assert_int_equal(used.ckpt.at.step, best);
    dir = ru_arena_printf(&l->arena, "%s/checkpoints/%09lld", dir, (long long)whole.summary.steps);
    assert_ok(ru_rundir_open(dir, &l->arena, &used, &err), err);
    assert_int_equal(used.ckpt.at.step, whole.summary.steps);
    train(l, "parts", false, best > 2 ? best - 2 : 2, &parts);
    train(l, "parts", true, best + 2, &parts);
    train(l, "parts", true, 0, &parts);
    assert_string_equal(parts.summary.ended, "patience");
    assert_int_equal(parts.summary.steps, whole.summary.steps);
    assert_int_equal(best_of(l, "parts"), best);
}

RU_TESTS(run_best, cmocka_unit_test(evaluations_are_counted_once),
         cmocka_unit_test(the_metrics_file_tells_the_same),
         cmocka_unit_test_setup_teardown(a_run_without_improvement_ends_early, setup,
                                         run_lab_close))
