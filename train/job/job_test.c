#include "test/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/file/file.h"
#include "test/scratch.h"
#include "test/where.h"
#include "train/job/job.h"
#include "train/job/metric.h"

typedef struct loaded {
    ru_arena arena;
    ru_job job;
    ru_status status;
    ru_err err;
} loaded;

static void load(loaded *l, const char *yaml)
{
    memset(l, 0, sizeof *l);
    ru_arena_init(&l->arena, 0);
    l->status = ru_job_parse("job.yaml", yaml, &l->arena, &l->job, &l->err);
}

#define DATA "data: {format: idx, train: [a, b], test: [c, d]}\n"

static void a_short_job_takes_the_defaults(void **state)
{
    (void)state;
    loaded l;
    load(&l, "model: {zoo: lenet}\n" DATA);
    assert_ok(l.status, l.err);
    assert_string_equal(ru_job_zoo_name(&l.job), "lenet");
    assert_int_equal(l.job.train.batch, 32);
    assert_int_equal(l.job.checkpoint.every_ns, 60000000000);
    assert_int_equal(ru_job_optimizer_get(&l.job).kind, RU_OPTIMIZER_SGD);
    assert_int_equal(ru_job_schedule_get(&l.job, 100).kind, RU_SCHEDULE_CONSTANT);
    assert_int_equal(ru_job_loss(&l.job, false), RU_LOSS_CROSS_ENTROPY);
    assert_int_equal(ru_job_loss(&l.job, true), RU_LOSS_NEXT_TOKEN);
    ru_arena_fini(&l.arena);
}

static void the_interface_page_reads(void **state)
{
    (void)state;
    loaded l;
    load(&l, "name: digits\nmodel:\n  zoo: gpt\n  layers: 3\n" DATA
             "train:\n  loss: next_token\n  optimizer: {adamw: {lr: 0.05, weight_decay: 0.2}}\n"
             "  schedule: {cosine: {warmup: 100}}\n  batch: 128\n  epochs: 3\n  seed: 7\n"
             "  precision: bf16\n  until: {accuracy: 0.98}\n"
             "checkpoint: {every: 2min, keep: 5}\n");
    assert_ok(l.status, l.err);
    ru_optimizer o = ru_job_optimizer_get(&l.job);
    assert_int_equal(o.kind, RU_OPTIMIZER_ADAMW);
    assert_true(o.lr > 0.0499 && o.lr < 0.0501 && o.weight_decay > 0.19);
    assert_int_equal(ru_job_schedule_get(&l.job, 10).kind, RU_SCHEDULE_COSINE);
    assert_int_equal(l.job.train.precision, RU_PRECISION_BF16);
    assert_int_equal(l.job.checkpoint.every_ns, 120000000000);
    assert_int_equal(ru_job_zoo_options(&l.job).layers, 3);
    assert_true(ru_job_has_test(&l.job));
    ru_arena_fini(&l.arena);
}

static void figures_are_those_that_the_job_names(void **state)
{
    (void)state;
    loaded l;
    load(&l, "model: {zoo: lenet}\n" DATA
             "train: {metrics: [f1, top5], metric: auc, until: {recall: 0.9, f1: 1, loss: 0.1}}\n");
    assert_ok(l.status, l.err);
    const char *const *names;
    uint32_t n;
    assert_ok(ru_job_figures(&l.job, &l.arena, &names, &n, &l.err), l.err);
    static const char *const want[] = {"top5", "recall", "f1", "auc"};
    assert_int_equal(n, 4);
    for (uint32_t k = 0; k < n; k++) {
        assert_string_equal(names[k], want[k]);
    }
    assert_string_equal(ru_job_metric(&l.job, RU_LOSS_CROSS_ENTROPY), "auc");
    ru_arena_fini(&l.arena);
}

static void each_metric_is_the_one_named(void **state)
{
    (void)state;
    ru_str rest = ru_str_c(RU_METRIC_ALL), word;
    while (ru_str_next(&rest, '|', &word)) {
        loaded l;
        char text[200];
        (void)snprintf(text, sizeof text, "model: {zoo: lenet}\n" DATA "train: {metric: %.*s}\n",
                       RU_STR_ARG(word));
        load(&l, text);
        assert_ok(l.status, l.err);
        assert_true(ru_str_eq_c(word, ru_job_metric(&l.job, RU_LOSS_MSE)));
        ru_arena_fini(&l.arena);
    }
}

/* Any key that is not its default asks for prepared inputs; so does the job of a stored run. */
static void columns_are_prepared_when_a_key_asks(void **state)
{
    (void)state;
    static const struct {
        const char *columns;
        bool prepares;
    } rows[] = {
        {"{}", false},
        {"{normalize: auto, missing: error}", false},
        {"{normalize: true}", true},
        {"{normalize: false}", true},
        {"{categorical: auto}", true},
        {"{categorical: [a, b]}", true},
        {"{ignore: [1]}", true},
        {"{missing: mean}", true},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        loaded a, b;
        char text[200];
        (void)snprintf(text, sizeof text,
                       "model: {zoo: mlp}\ndata: {format: csv, train: a, columns: %s}\n",
                       rows[k].columns);
        load(&a, text);
        assert_ok(a.status, a.err);
        ru_text t = ru_text_arena(&a.arena);
        ru_job_dump(&a.job, NULL, &t);
        load(&b, t.p);
        assert_ok(b.status, b.err);
        assert_true(ru_job_prepares(&a.job) == rows[k].prepares);
        assert_true((ru_job_data_options(&b.job, false).prepare != NULL) == rows[k].prepares);
        ru_arena_fini(&a.arena);
        ru_arena_fini(&b.arena);
    }
}

/* What is written for a run reads back to the same job. */
static void a_dump_reads_back(void **state)
{
    (void)state;
    loaded a, b;
    load(&a, "model: {zoo: mlp, hidden: [3, 4]}\n" DATA
             "train: {optimizer: {adam: {lr: 0.3}}, schedule: linear, epochs: 2}\n");
    assert_ok(a.status, a.err);
    ru_text t = ru_text_arena(&a.arena), u = ru_text_arena(&a.arena);
    ru_job_dump(&a.job, NULL, &t);
    load(&b, t.p);
    assert_ok(b.status, b.err);
    ru_job_dump(&b.job, NULL, &u);
    assert_string_equal(t.p, u.p);
    ru_arena_fini(&a.arena);
    ru_arena_fini(&b.arena);
}

static void wrong_jobs_are_named_with_their_place(void **state)
{
    (void)state;
    char name[300] = "name: ";
    memset(name + 6, 'n', 201);
    strcpy(name + 6 + 201, "\nmodel: {zoo: lenet}\n" DATA);
    const char *const cases[][2] = {
        {name, "has 201 bytes, expected at most 200"},
        {"model: {zoo: lenet}\n" DATA "checkpoint: {copy_to: /disk}\n", "s3://BUCKET/FOLDER"},
        {"model: {zoo: lenot}\n" DATA, "did you mean 'lenet'"},
        {"model: {zoo: lenet}\n" DATA "train: {bach: 3}\n", "job.yaml:3:9"},
        {"model: {zoo: lenet}\n" DATA "train: {batch: 0}\n", "job.yaml:3"},
        {"model: {zoo: lenet, heads: 2}\n" DATA, "no option 'heads'"},
        {"model: {zoo: lenet, onnx: a}\n" DATA, "model"},
        {DATA, "model"},
        {"model: {zoo: lenet}\n", "data"},
        {"model: {zoo: lenet}\ndata: {format: idx}\n", "needs the key 'train'"},
        {"model: {zoo: lenet}\ndata: {format: synthetic}\n", "needs the keys 'generator'"},
        {"model: {zoo: lenet}\n" DATA "train: {until: {acuracy: 1}}\n", "unknown metric"},
        {"model: {zoo: lenet}\n" DATA "train: {metrics: [f2]}\n",
         "metric 'f2'; expected one of top5"},
        {"model: {zoo: lenet}\n" DATA "train: {batch: 10, accumulate: 3}\n", "not a multiple"},
        {"model: {zoo: lenet}\n" DATA "train: {optimizer: {sgd: {nesterov: true}}}\n", "momentum"},
        {"model: {zoo: lenet}\n" DATA "train: {optimizer: {sgd: {}, adam: {}}}\n", "optimizer"},
        {"model: {zoo: lenet, weights_partial: true}\n" DATA, "needs model.weights"},
        {"model: {zoo: lenet, weights: a, weights_map: [{from: a, to: 'b*'}]}\n" DATA,
         "each * of 'to' needs one of 'from'"},
        {"model: {zoo: lenet}\n" DATA "train: {optimizer: {rms_prop: {}}}\n", "'rmsprop' here"},
        {"model: {zoo: lenet}\n" DATA "train: {optimizer: AdamW}\n", "did you mean 'adamw'"},
        {"model: {zoo: lenet}\n" DATA "train: {optimizer: {lamb: {betas: [0.9]}}}\n", "beta1 and"},
        {"model: {zoo: mlp}\ndata: {format: idx, train: [a, b], columns: {ignore: [id]}}\n",
         "'columns' works with format csv only, not with idx"},
        {"model: {zoo: mlp}\ndata: {format: csv, train: a, mean: [1], columns: {missing: drop}}\n",
         "'columns' normalises the inputs, and so do 'mean' and 'std'"},
        {"model: {zoo: mlp}\ndata: {format: csv, train: a, columns: {missing: median}}\n",
         "error, mean, drop"},
        {"model: {zoo: lenet}\n" DATA "train: {class_weights: [1, x]}\n", "'x' is no number"},
        {"model: {zoo: lenet}\n" DATA "train: {groups: [{lr: 2}]}\n", "train.groups[0].match"},
        {"model: {zoo: lenet}\n" DATA "train: {groups: [{match: a, frozen: true}]}\n",
         "it is called 'freeze' here"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        loaded l;
        load(&l, cases[k][0]);
        if (l.status != RU_E_CONFIG || strstr(l.err.text, cases[k][1]) == NULL) {
            fail_msg("case %u: '%s' does not say '%s'", k, l.err.text, cases[k][1]);
        }
        ru_arena_fini(&l.arena);
    }
}

/* docs/job.md is the table printed: `rubato train --help-job`. */
static void the_page_of_the_job_file_is_current(void **state)
{
    (void)state;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_text help = ru_text_arena(&arena);
    ru_conf_help(&ru_job_table, 0, &help);
    FILE *f = fopen(RU_SOURCE_ROOT "/docs/job.md", "r");
    if (f == NULL) {
        fail_msg("docs/job.md is not there");
    }
    char *page = ru_arena_zalloc(&arena, 1 << 18, 1);
    size_t n = fread(page, 1, (1 << 18) - 1, f);
    (void)fclose(f);
    assert_true(n > 0);
    if (strstr(page, help.p) == NULL) {
        fail_msg("docs/job.md is old: run scripts/job-page > docs/job.md");
    }
    ru_arena_fini(&arena);
}

/* Keys of other trainers are named as they are called here. */
static void keys_of_other_trainers_are_explained(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"train: {batch_size: 4}", "unknown key 'train.batch_size'; it is called 'batch' here"},
        {"train: {learning_rate: 4}", "it is called 'optimizer: {sgd: {lr: 0.1}}' here"},
        {"data: {val_split: 0.1, format: csv, train: x}", "it is called 'validation' here"},
        {"data: {transforms: {flip: both}, format: csv, train: x}", "it is called 'augment' here"},
        {"data: {augment: {hflip: true}, format: csv, train: x}", "it is called 'flip' here"},
        {"checkpoint: {save_best_only: true}", "it is called 'keep_best' here"},
        {"epochs: 3", "it is called 'train: {epochs: ...}' here"}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_err err = {0};
        ru_job job;
        assert_int_equal(ru_job_parse("t",
                                      ru_arena_printf(&a, "%s\nmodel: {zoo: mlp}\n%s", rows[k].text,
                                                      strncmp(rows[k].text, "data", 4) == 0
                                                          ? ""
                                                          : "data: {format: csv, train: x}"),
                                      &a, &job, &err),
                         RU_E_CONFIG);
        if (strstr(err.text, rows[k].want) == NULL) {
            fail_msg("%s", err.text);
        }
        ru_arena_fini(&a);
    }
}

/* Folders of this machine serve jobs that name none; their paths are seen from their own file. */
static void folders_of_the_machine_are_taken(void **state)
{
    ru_scratch *f = *state;
    ru_err err = {0};
    ru_job job;
    const char *job_yaml = "model: {zoo: lenet}\ndata: {format: images, train: a, image_size: 8, "
                           "cache: bytes}\n",
               *own = "model: {zoo: lenet}\nstorage: [{path: /own, quota: 2MB}]\n"
                      "data: {format: images, train: a, image_size: 8, cache: bytes}\n",
               *folders = "storage: [{path: near, quota: 1GB}, {path: /far, quota: 5MiB}]\n";
    const char *a = ru_path_join(&f->arena, f->root, "a.yaml");
    const char *b = ru_path_join(&f->arena, f->root, "b.yaml");
    const char *storage = ru_path_join(&f->arena, f->root, "storage.yaml");
    assert_ok(ru_file_own(a, job_yaml, (int64_t)strlen(job_yaml), &err), err);
    assert_ok(ru_file_own(b, own, (int64_t)strlen(own), &err), err);
    assert_ok(ru_file_own(storage, folders, (int64_t)strlen(folders), &err), err);
    assert_int_equal(ru_job_load(a, NULL, 0, &f->arena, &job, NULL, &err), RU_E_CONFIG);
    assert_int_equal(setenv("RUBATO_STORAGE", storage, 1), 0);
    assert_ok(ru_job_load(a, NULL, 0, &f->arena, &job, NULL, &err), err);
    assert_int_equal(job.storage.n, 2);
    assert_true(job.storage.at[0].path[0] == '/');
    assert_non_null(strstr(job.storage.at[0].path, "/near"));
    assert_string_equal(job.storage.at[1].path, "/far");
    assert_true(job.storage.at[0].quota_bytes == 1000000000);
    assert_true(job.storage.at[1].quota_bytes == 5 << 20);
    assert_ok(ru_job_load(b, NULL, 0, &f->arena, &job, NULL, &err), err);
    assert_int_equal(job.storage.n, 1);
    assert_string_equal(job.storage.at[0].path, "/own");
    const char *twice = "storage: [{path: x, quota: 2MB}, {path: y, quota: 2MB}, "
                        "{path: x, quota: 2MB}]\n";
    assert_ok(ru_file_own(storage, twice, (int64_t)strlen(twice), &err), err);
    assert_int_equal(ru_job_load(a, NULL, 0, &f->arena, &job, NULL, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "storage[0] and storage[2] are the same folder, x"));
    assert_int_equal(setenv("RUBATO_STORAGE", a, 1), 0);
    assert_int_equal(ru_job_load(b, NULL, 0, &f->arena, &job, NULL, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "unknown key 'model'"));
    assert_int_equal(unsetenv("RUBATO_STORAGE"), 0);
}

RU_TESTS(train_job,
         cmocka_unit_test_setup_teardown(folders_of_the_machine_are_taken, ru_scratch_open,
                                         ru_scratch_close),
         cmocka_unit_test(keys_of_other_trainers_are_explained),
         cmocka_unit_test(a_short_job_takes_the_defaults),
         cmocka_unit_test(the_interface_page_reads),
         cmocka_unit_test(figures_are_those_that_the_job_names),
         cmocka_unit_test(each_metric_is_the_one_named), cmocka_unit_test(a_dump_reads_back),
         cmocka_unit_test(columns_are_prepared_when_a_key_asks),
         cmocka_unit_test(wrong_jobs_are_named_with_their_place),
         cmocka_unit_test(the_page_of_the_job_file_is_current))
