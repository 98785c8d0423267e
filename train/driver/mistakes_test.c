/* What users get wrong: the sentence names the file, the sample or key at fault and the amount. */
#include "test/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env/file/file.h"
#include "train/driver/trainer.h"

enum { SAMPLES = 12 };

typedef struct lab {
    ru_arena arena;
    char dir[64];
    uint32_t n_runs;
} lab;

static int setup(void **state)
{
    lab *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return -1;
    }
    ru_arena_init(&l->arena, 0);
    (void)snprintf(l->dir, sizeof l->dir, "/tmp/rubato-test-XXXXXX");
    *state = l;
    return mkdtemp(l->dir) == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    lab *l = *state;
    ru_err err;
    (void)!ru_path_remove(l->dir, &err);
    ru_arena_fini(&l->arena);
    free(l);
    return 0;
}

static void put_file(lab *l, const char *name, const void *data, int64_t n)
{
    ru_err err = {0};
    assert_ok(ru_file_replace(ru_path_join(&l->arena, l->dir, name), data, n, &err), err);
}

/* An array of numpy's format 1.0. */
static void put_npy(lab *l, const char *name, const char *descr, const char *shape,
                    const void *data, int64_t n)
{
    char head[128];
    memset(head, ' ', sizeof head);
    int used = snprintf(head + 10, sizeof head - 10,
                        "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    head[10 + used] = ' ';
    head[sizeof head - 1] = '\n';
    char *all = ru_arena_alloc(&l->arena, (int64_t)sizeof head + n, 8);
    assert_non_null(all);
    memcpy(all, head, sizeof head);
    memcpy(all + sizeof head, data, (size_t)n);
    put_file(l, name, all, (int64_t)sizeof head + n);
}

/* Train the job with settings on top; the status and words of the sentence. */
static void expect(lab *l, ru_status want, const char *words, const char *data,
                   const char *const *sets, uint32_t n_sets)
{
    ru_err err = {0};
    ru_job job;
    ru_train_result r;
    const char *yaml = ru_arena_printf(&l->arena,
                                       "name: t\nmodel: {zoo: mlp, hidden: [4]}\ndata: {%s}\n"
                                       "train: {batch: 4, epochs: 1, threads: 1, device: ref}\n",
                                       data);
    put_file(l, "job.yaml", yaml, (int64_t)strlen(yaml));
    ru_status st = ru_job_load(ru_path_join(&l->arena, l->dir, "job.yaml"), sets, n_sets, &l->arena,
                               &job, NULL, &err);
    assert_ok(st, err);
    ru_train_options to = {.job = &job, .quiet = true, .no_trace = true};
    to.out = ru_arena_printf(&l->arena, "%s/run-%u", l->dir, l->n_runs++);
    st = ru_train(&to, &l->arena, &r, &err);
    if (st != want || (want != RU_OK && strstr(err.text, words) == NULL)) {
        print_error("expected %s with '%s', got %s: %s\n", ru_status_name(want), words,
                    ru_status_name(st), err.text);
        fail();
    }
}

static void labels_that_are_no_classes(void **state)
{
    lab *l = *state;
    float x[SAMPLES * 2] = {0}, f[SAMPLES] = {0};
    int64_t y[SAMPLES] = {0};
    static const char shape[] = "(12,)";
    f[7] = 1.5f;
    y[5] = -3;
    put_npy(l, "x.npy", "<f4", "(12, 2)", x, sizeof x);
    put_npy(l, "half.npy", "<f4", shape, f, sizeof f);
    put_npy(l, "less.npy", "<i8", shape, y, sizeof y);
    f[7] = 1;
    y[5] = 9;
    put_npy(l, "whole.npy", "<f4", shape, f, sizeof f);
    put_npy(l, "nine.npy", "<i8", shape, y, sizeof y);
    static const char csv[] = "a,b,y\n1,2,0\n1,2,1\n3,4,0.5\n5,6,1\n";
    put_file(l, "half.csv", csv, (int64_t)strlen(csv));
    static const char *const mse[] = {"train.loss=mse"};
    expect(l, RU_E_CONFIG, "half.npy: label 1.5 of sample 7; set train.loss to mse",
           "format: npy, train: [x.npy, half.npy]", NULL, 0);
    expect(l, RU_OK, "", "format: npy, train: [x.npy, half.npy]", mse, 1);
    static const char *const binary[] = {"train.loss=binary_cross_entropy"};
    expect(l, RU_E_DATA, "needs labels from 0 to 1, but the label of sample 7 (counted from 0) of",
           "format: npy, train: [x.npy, half.npy]", binary, 1);
    expect(l, RU_E_CONFIG, "less.npy: label -3 of sample 5",
           "format: npy, train: [x.npy, less.npy]", NULL, 0);
    expect(l, RU_E_CONFIG, "whole numbers, but stored as f32",
           "format: npy, train: [x.npy, whole.npy]", NULL, 0);
    expect(l, RU_E_DATA, "label 1.5 of sample 7",
           "format: npy, train: [x.npy, half.npy], classes: 2", NULL, 0);
    expect(l, RU_E_DATA, "nine.npy: label 9 of sample 5 is outside 0..2",
           "format: npy, train: [x.npy, nine.npy], classes: 3", NULL, 0);
    expect(l, RU_E_CONFIG, "half.csv:4: label 0.5", "format: csv, train: [half.csv], label: y",
           NULL, 0);
    expect(l, RU_E_DATA, "half.csv:4: the label '0.5' is not a class number",
           "format: csv, train: [half.csv], label: y, classes: 2", NULL, 0);
}

static void losses_and_batches_that_do_not_fit(void **state)
{
    lab *l = *state;
    static const char three[] = "format: synthetic, generator: gaussian, count: 20, features: 4, "
                                "classes: 3";
    static const char *const binary[] = {"train.loss=binary_cross_entropy"};
    static const char *const next[] = {"train.loss=next_token"};
    static const char *const batch[] = {"train.batch=21"};
    expect(l, RU_E_CONFIG, "needs labels 0 and 1, but the data has 3 classes", three, binary, 1);
    expect(l, RU_E_CONFIG, "next_token needs tokens", three, next, 1);
    expect(l, RU_E_CONFIG, "train.batch is 21, but the training data contains 20 samples", three,
           batch, 1);
    static const char *const most[] = {"train.batch=20"};
    expect(l, RU_OK, "", three, most, 1);
}

/* A loss that stays far above the first ends the run before it becomes infinite, and one that the
 * run would end with does so at the end. */
static void a_loss_that_explodes_ends_the_run(void **state)
{
    lab *l = *state;
    static const char data[] = "format: synthetic, generator: teacher, count: 20, features: 2";
    static const char *const at_the_end[] = {"train.loss=mse", "train.optimizer={sgd: {lr: 9}}",
                                             "train.steps=4", "train.epochs=9"};
    static const char classes[] = "format: synthetic, generator: gaussian, count: 200, "
                                  "features: 4, classes: 3";
    static const char *const on_the_way[] = {"train.optimizer={sgd: {lr: 10}}", "train.epochs=2"};
    expect(l, RU_E_USER, "training diverged: the loss is", data, at_the_end, 4);
    expect(l, RU_E_USER, "training diverged: the loss is", classes, on_the_way, 2);
}

static void files_that_are_no_jobs(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_job job;
    static const char binary[] = "name: t\n\x7f"
                                 "ELF\x02\x01";
    put_file(l, "binary", binary, (int64_t)sizeof binary);
    assert_int_equal(ru_job_load(ru_path_join(&l->arena, l->dir, "binary"), NULL, 0, &l->arena,
                                 &job, NULL, &err),
                     RU_E_CONFIG);
    assert_non_null(strstr(err.text, "expected YAML or JSON text, but byte 12 is 0x02"));
    int64_t n = (4 << 20) + 1;
    char *large = ru_arena_zalloc(&l->arena, n, 1);
    memset(large, ' ', (size_t)n);
    put_file(l, "large", large, n);
    assert_int_equal(
        ru_job_load(ru_path_join(&l->arena, l->dir, "large"), NULL, 0, &l->arena, &job, NULL, &err),
        RU_E_CONFIG);
    assert_non_null(strstr(err.text, "not a job file"));
    assert_int_equal(mkfifo(ru_path_join(&l->arena, l->dir, "fifo.npy"), 0600), 0);
    expect(l, RU_E_DATA, "fifo.npy: it is a FIFO", "format: npy, train: [fifo.npy, fifo.npy]", NULL,
           0);
}

#define RUN_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

RU_TESTS(train_mistakes, RUN_TEST(labels_that_are_no_classes),
         RUN_TEST(losses_and_batches_that_do_not_fit), RUN_TEST(a_loss_that_explodes_ends_the_run),
         RUN_TEST(files_that_are_no_jobs))
