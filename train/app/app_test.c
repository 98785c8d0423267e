/* Apps in one process: the result is a function of the job alone; a resumed run equals one that was
 * not stopped; mistakes are named. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env/file/file.h"
#include "test/test.h"
#include "trace/read/steps.h"
#include "train/app/app_run.h"
#include "train/app/call.h"
#include "train/driver/step_facts.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/rubato-app-%ld", (long)getpid());
    ru_err err = {0};
    assert_ok(ru_dir_make(folder, &err), err);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    ru_err err;
    return ru_path_remove(folder, &err) == RU_OK ? 0 : -1;
}

static const char *put(const char *name, const char *text)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
    return path;
}

/* Ratings of rank one; counts of words of two kinds; rows of three classes. */
static void make_data(ru_arena *a)
{
    ru_rng r = ru_rng_from(7, 0);
    ru_text ratings = ru_text_arena(a), words = ru_text_arena(a), rows = ru_text_arena(a);
    ru_text numbers = ru_text_arena(a);
    for (int i = 0; i < 2000; i++) {
        uint32_t user = ru_rng_below(&r, 60), item = ru_rng_below(&r, 40);
        ru_text_putf(&ratings, "%u %u %.3f\n", user, item,
                     3.0 + sin((double)user) * cos((double)item));
    }
    for (uint32_t d = 0; d < 100; d++) {
        ru_text_putf(&words, "0 %u:3 %u:2 %u:1\n", d % 2 * 10, d % 2 * 10 + 1 + d % 3,
                     d % 2 * 10 + 5 + d % 4);
    }
    for (int i = 0; i < 300; i++) {
        uint32_t y = ru_rng_below(&r, 3);
        ru_text_putf(&rows, "%u %u:1 %u:%.3f\n", y, 1 + y, 5 + ru_rng_below(&r, 9),
                     ru_rng_normal(&r));
        double x = ru_rng_normal(&r), z = ru_rng_normal(&r);
        ru_text_putf(&numbers, "%.4f,%.4f,%.4f\n", x, z + 5.0 * y, 2.0 * x - 0.5 * z);
    }
    (void)put("ratings", ratings.p);
    (void)put("words", words.p);
    (void)put("rows", rows.p);
    (void)put("numbers", numbers.p);
}

static const char *const jobs[] = {
    "app: mf\ndata: {format: ratings, train: ratings}\nmf: {rank: 5, lr: 0.05}\n",
    "app: mf\ndata: {format: ratings, train: ratings}\nmf: {rank: 5, update: adarevision}\n",
    "app: lda\ndata: {format: libsvm, train: words}\nlda: {topics: 4, alpha: 0.1}\n",
    "app: mlr\ndata: {format: libsvm, train: rows}\nmlr: {batch: 50}\n",
    "app: lasso\ndata: {format: csv, train: numbers}\nlasso: {lambda: 0.01, block: 1}\n",
    "app: kmeans\ndata: {format: csv, train: numbers, label: none}\nkmeans: {clusters: 3}\n",
};

static const char *const more = "clocks: {executors: 5}\ncheckpoint: {every: 0s}\n";

static ru_status train(const char *job, uint32_t threads, int epochs, const char *out, bool resume,
                       ru_app_train_result *result, ru_err *err)
{
    static char text[1024], dir[160], set1[64], set2[64];
    static ru_arena arena;
    ru_arena_fini(&arena);
    ru_arena_init(&arena, 0);
    snprintf(text, sizeof text, "%s%s", job, strstr(job, "clocks:") == NULL ? more : "");
    snprintf(dir, sizeof dir, "%s/%s", folder, out);
    snprintf(set1, sizeof set1, "train.threads=%u", threads);
    snprintf(set2, sizeof set2, "train.epochs=%d", epochs);
    const char *sets[] = {set1, set2};
    ru_app_job_file file;
    RU_TRY(ru_app_job_load(put("job.yaml", text), sets, 2, &arena, &file, err));
    const ru_app_train_options to = {.file = &file, .out = dir, .resume = resume, .quiet = true};
    return ru_app_train(&to, &arena, result, err);
}

/* Bytes of the tables of a run's checkpoint at a clock. */
static void tables_of(const char *out, int64_t clock, ru_arena *arena, char **bytes, int64_t *n)
{
    char path[200];
    ru_err err = {0};
    snprintf(path, sizeof path, "%s/%s/checkpoints/%09lld/tables.safetensors", folder, out,
             (long long)clock);
    assert_ok(ru_file_read(path, 0, arena, bytes, n, &err), err);
}

/* The trace of a run: a step for each clock, whose parts add up, and a record of each task. */
static void check_trace(const char *out, int64_t clocks, ru_arena *arena)
{
    char path[160];
    ru_err err = {0};
    ru_trace *traces;
    ru_rank_steps steps;
    uint32_t n;
    snprintf(path, sizeof path, "%s/%s", folder, out);
    assert_ok(ru_trace_run_load(path, arena, &traces, &n, &err), err);
    assert_int_equal(n, 1);
    assert_ok(ru_trace_steps(traces, 1, NULL, arena, &steps, &err), err);
    assert_int_equal(steps.n, clocks);
    for (int64_t i = 0; i < steps.n; i++) {
        int64_t sum = 0;
        for (uint32_t p = 0; p < RU_STEP_PARTS; p++) {
            sum += steps.at[i].part_ns[p];
        }
        assert_int_equal(steps.at[i].step, i + 1);
        assert_int_equal(sum, steps.at[i].end_ns - steps.at[i].start_ns);
        assert_true(steps.at[i].part_ns[RU_STEP_COMPUTE] > 0);
    }
    int64_t tasks = 0;
    for (uint32_t h = 0; h < traces[0].n_threads; h++) {
        const ru_trace_thread *t = &traces[0].threads[h];
        for (int64_t i = 0; i < t->n; i++) {
            const ru_record_more *m = ru_trace_more(t, &t->records[i]);
            tasks += m != NULL;
            assert_true(m == NULL || (m->step < clocks && m->rank < 5));
        }
    }
    assert_true(tasks == 5 * clocks || tasks == 25 * clocks); /* five rounds with rotation */
    ru_world_job job = {.name = "job"};
    ru_world w = {.jobs = {&job, 1}};
    assert_ok(ru_step_facts(path, 1 << 20, arena, &w, &err), err);
    assert_int_equal(w.facts.steps.n, 1);
    assert_int_equal(w.facts.steps.at[0].took.count, clocks);
}

static void test_same_result(void **state)
{
    (void)state;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    make_data(&arena);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(jobs); k++) {
        static const char *const outs[] = {"one", "three", "resumed"};
        ru_app_train_result r[3];
        ru_err err = {0};
        assert_ok(train(jobs[k], 1, 4, outs[0], false, &r[0], &err), err);
        assert_ok(train(jobs[k], 3, 4, outs[1], false, &r[1], &err), err);
        assert_ok(train(jobs[k], 2, 2, outs[2], false, &r[2], &err), err);
        assert_ok(train(jobs[k], 2, 4, outs[2], true, &r[2], &err), err);
        char *want, *got;
        int64_t n, m;
        check_trace(outs[1], r[1].clocks, &arena);
        tables_of(outs[0], r[0].clocks, &arena, &want, &n);
        for (uint32_t i = 1; i < 3; i++) {
            assert_true(r[i].objective == r[0].objective && isfinite(r[0].objective));
            tables_of(outs[i], r[i].clocks, &arena, &got, &m);
            assert_int_equal(n, m);
            assert_memory_equal(want, got, (size_t)n);
        }
        for (uint32_t i = 0; i < 3; i++) {
            char path[160];
            snprintf(path, sizeof path, "%s/%s", folder, outs[i]);
            assert_ok(ru_path_remove(path, &err), err);
        }
    }
    ru_arena_fini(&arena);
}

static void refused(const char *job, ru_status want, const char *word)
{
    ru_app_train_result r;
    ru_err err = {0};
    assert_int_equal(train(job, 1, 2, "refused", false, &r, &err), want);
    if (strstr(err.text, word) == NULL) {
        fail_msg("'%s' lacks '%s'", err.text, word);
    }
}

/* auto: which recovery goes with how the others deal with stragglers. */
static void test_recovery_of_each_job(void **state)
{
    (void)state;
    static const struct {
        const char *clocks;
        uint32_t want;
    } cases[] = {{"", RU_APP_RECOVER_NEWEST},
                 {"clocks: {stragglers: reassign}\n", RU_APP_RECOVER_NEWEST},
                 {"clocks: {stragglers: reassign, order: ssp}\n", RU_APP_RECOVER_ROLLBACK},
                 {"clocks: {stragglers: backup}\n", RU_APP_RECOVER_ROLLBACK}};
    ru_arena arena;
    ru_arena_init(&arena, 0);
    make_data(&arena);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        char text[256];
        ru_app_job_file file;
        ru_err err = {0};
        snprintf(text, sizeof text, "app: mlr\ndata: {format: libsvm, train: rows}\n%s",
                 cases[k].clocks);
        assert_ok(ru_app_job_load(put("job.yaml", text), NULL, 0, &arena, &file, &err), err);
        assert_int_equal(file.job->recovery.method, cases[k].want);
    }
    ru_arena_fini(&arena);
}

/* Copies need a moment at which all executors are between the same two clocks, or near it. */
static void test_jobs_for_transient_workers(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        const char *word; /* NULL: they may be transient */
    } cases[] = {{"", NULL},
                 {"clocks: {order: ssp, staleness: 8}\n", NULL},
                 {"clocks: {order: ssp, staleness: 9}\n", "so large a clocks.staleness"},
                 {"clocks: {order: async}\n", "with clocks.order async"},
                 {"clocks: {order: async}\nstages: {method: off}\n", NULL}};
    ru_arena arena;
    ru_arena_init(&arena, 0);
    make_data(&arena);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        char text[256];
        ru_app_job_file file;
        ru_err err = {0};
        snprintf(text, sizeof text, "app: mlr\ndata: {format: libsvm, train: rows}\n%s",
                 cases[k].more);
        assert_ok(ru_app_job_load(put("job.yaml", text), NULL, 0, &arena, &file, &err), err);
        ru_status st = ru_app_job_transient(file.job, &err);
        assert_int_equal(st, cases[k].word == NULL ? RU_OK : RU_E_CONFIG);
        assert_true(cases[k].word == NULL || strstr(err.text, cases[k].word) != NULL);
    }
    ru_arena_fini(&arena);
}

static void test_other_job_than_the_checkpoint(void **state)
{
    (void)state;
    ru_arena arena;
    ru_app_train_result r;
    ru_err err = {0};
    char other[256], path[160];
    ru_arena_init(&arena, 0);
    make_data(&arena);
    assert_ok(train(jobs[0], 1, 1, "other", false, &r, &err), err);
    snprintf(other, sizeof other, "%strain: {seed: 7}\n", jobs[0]);
    assert_int_equal(train(other, 1, 2, "other", true, &r, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "seed 1, but the job has 5, 60, "));
    assert_non_null(strstr(err.text, " and 7; these must stay the same"));
    snprintf(path, sizeof path, "%s/other", folder);
    assert_ok(ru_path_remove(path, &err), err);
    ru_arena_fini(&arena);
}

static void test_mistakes(void **state)
{
    (void)state;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    make_data(&arena);
    refused("app: mff\ndata: {format: ratings, train: ratings}\n", RU_E_CONFIG,
            "unknown app 'mff'; expected one of mf");
    refused("app: mf\ndata: {format: ratings, train: ratings}\nmf: {ranc: 5}\n", RU_E_CONFIG,
            "did you mean 'rank'");
    refused("app: mf\ndata: {format: ratings, train: ratings}\nlda: {topics: 5}\n", RU_E_CONFIG,
            "unknown key 'lda'");
    refused("app: mf\ndata: {format: ratings}\n", RU_E_CONFIG, "names no training data");
    refused("app: mf\ndata: {format: ratings, train: gone}\n", RU_E_MISSING, "gone");
    refused("app: ./gone.so\ndata: {format: ratings, train: ratings}\n", RU_E_MISSING, "gone.so");
    refused("app: mf\ndata: {format: csv, train: numbers}\n", RU_E_DATA, "mf needs ratings");
    refused("app: lda\ndata: {format: csv, train: numbers}\n", RU_E_DATA, "lda needs counts");
    refused("app: mlr\ndata: {format: ratings, train: ratings}\n", RU_E_DATA, "no labels");
    refused("app: mf\ndata: {format: ratings, train: ratings}\nclocks: {executors: 100}\n",
            RU_E_CONFIG, "100 executors, but the data has 60 rows");
    refused("app: kmeans\ndata: {format: csv, train: numbers}\nkmeans: {clusters: 301}\n",
            RU_E_CONFIG, "kmeans.clusters is 301, but the data has 300 rows");
    refused("app: mlr\ndata: {format: libsvm, train: rows}\nclocks: {executors: 5, order: ssp, "
            "stragglers: backup}\n",
            RU_E_CONFIG, "set clocks.order to bsp");
    refused("app: mlr\ndata: {format: libsvm, train: rows}\nclocks: {executors: 5, "
            "stragglers: backup}\nrecovery: {method: newest}\n",
            RU_E_CONFIG, "set recovery.method to rollback");
    refused("app: mlr\ndata: {format: libsvm, train: rows}\nclocks: {executors: 5, order: ssp, "
            "stragglers: steal}\nrecovery: {method: partial}\n",
            RU_E_CONFIG, "cannot be rebuilt");
    refused("app: mlr\ndata: {format: libsvm, train: rows}\nclocks: {executors: 5, order: async}\n"
            "stages: {method: stage2}\n",
            RU_E_CONFIG, "reliable workers cannot keep copies");
    refused("app: mf\ndata: {format: ratings, train: ratings}\nmf: {lr: 90}\n", RU_E_DATA,
            "lower mf.lr");
    ru_arena_fini(&arena);
}

/* -- an app that does not keep to the interface --------------------------------------------------
 */

static ru_status quiet_open(const ru_app_setup *setup, void **self, ru_err *err)
{
    (void)setup;
    (void)self;
    (void)err;
    return RU_E_DATA;
}

static ru_status odd_load(void *state, const void *bytes, int64_t n, ru_err *err)
{
    (void)state;
    (void)bytes;
    (void)n;
    (void)err;
    return (ru_status)4242;
}

static ru_status no_driver(const void *self, void **driver, ru_err *err)
{
    (void)self;
    (void)driver;
    (void)err;
    return RU_OK;
}

static void negative_save(const void *state, ru_app_bytes *to)
{
    ru_app_put(to, state, -8);
}

static void foreign_save(const void *state, ru_app_bytes *to)
{
    (void)state;
    to->n = 1 << 30;
}

static uint32_t odd_rate(const void *self, ru_app_table *tables)
{
    (void)self;
    tables[0] =
        (ru_app_table){.name = "w", .rows = 2, .width = 1, .rule = RU_APP_STEP, .lr = (double)NAN};
    return 1;
}

/* The sentence alone. */
static ru_status open_says(const ru_app_setup *setup, void **self, ru_err *err)
{
    (void)setup;
    (void)self;
    (void)snprintf(err->text, sizeof err->text, "no file");
    return RU_E_DATA;
}

/* Functions that fail without a reason, or answer what the interface does not know. */
static void test_an_app_that_lies(void **state)
{
    (void)state;
    const ru_app_ops ops = {.name = "liar",
                            .open = quiet_open,
                            .tables = odd_rate,
                            .exec_save = negative_save,
                            .exec_load = odd_load,
                            .drive_open = no_driver,
                            .drive_save = foreign_save,
                            .drive_load = odd_load};
    const ru_app_setup setup = {0};
    void *self = NULL;
    ru_err err = {0};
    assert_int_equal(ru_app_call_open(&ops, &setup, &self, &err), RU_E_DATA);
    assert_string_equal(err.text, "function open failed and gave no reason");
    assert_int_equal(ru_app_call_exec_load(&ops, NULL, 3, NULL, 0, &err), RU_E_USER);
    assert_string_equal(
        err.text,
        "app liar, state of executor 3: function exec_load returned 4242, which is no status");
    assert_int_equal(ru_app_call_drive_load(&ops, NULL, NULL, 0, &err), RU_E_USER);
    assert_int_equal(ru_app_call_drive_open(&ops, NULL, &self, &err), RU_E_USER);
    assert_non_null(strstr(err.text, "succeeded without a driver"));
    const ru_app_ops says = {.name = "says", .open = open_says};
    assert_int_equal(ru_app_call_open(&says, &setup, &self, &err), RU_E_DATA);
    assert_true(err.status == RU_E_DATA && strcmp(err.text, "no file") == 0);
    ru_app_bytes bytes = {0};
    ru_app_call_exec_save(&ops, "", 0, &bytes);
    assert_true(bytes.full && bytes.n == 0);
    bytes.full = false;
    ru_app_call_drive_save(&ops, "", &bytes);
    assert_true(bytes.full && bytes.n == 0);
    ru_arena arena;
    ru_app_shape shape;
    ru_arena_init(&arena, 0);
    assert_int_equal(ru_app_shape_get(&ops, NULL, 1, 1, &arena, &shape, &err), RU_E_USER);
    assert_non_null(strstr(err.text, "the learning rate of table w is not finite"));
    ru_arena_fini(&arena);
}

/* A library that is none, or not whole, is named before the loader touches it. */
static void test_libraries(void **state)
{
    (void)state;
    const ru_app_ops *ops;
    ru_err err = {0};
    assert_int_equal(ru_app_find("/tmp/no/such/lib.so", &ops, &err), RU_E_MISSING);
    assert_int_equal(ru_app_find(put("text.so", "hello"), &ops, &err), RU_E_USER);
    assert_non_null(strstr(err.text, "is not a shared library"));
    ru_map_file self;
    assert_ok(ru_file_map("/proc/self/exe", &self, &err), err);
    char path[160];
    uint8_t head[4096];
    assert_true(self.size_bytes > (int64_t)sizeof head);
    memcpy(head, self.data, sizeof head);
    ru_file_unmap(&self);
    for (uint32_t k = 0; k < 2; k++) {
        snprintf(path, sizeof path, "%s/cut%u.so", folder, k);
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(head, 1, sizeof head, f), sizeof head);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(ru_app_find(path, &ops, &err), RU_E_USER);
        assert_non_null(strstr(err.text, k == 0 ? "is cut short" : "for this processor"));
        head[18] = 183; /* another machine */
    }
}

RU_TESTS(train_app, cmocka_unit_test(test_an_app_that_lies),
         cmocka_unit_test_setup_teardown(test_libraries, make_folder, remove_folder),
         cmocka_unit_test_setup_teardown(test_same_result, make_folder, remove_folder),
         cmocka_unit_test_setup_teardown(test_recovery_of_each_job, make_folder, remove_folder),
         cmocka_unit_test_setup_teardown(test_jobs_for_transient_workers, make_folder,
                                         remove_folder),
         cmocka_unit_test_setup_teardown(test_other_job_than_the_checkpoint, make_folder,
                                         remove_folder),
         cmocka_unit_test_setup_teardown(test_mistakes, make_folder, remove_folder))
