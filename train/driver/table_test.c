/* Runs on tables: what a run keeps of the columns of its training data. */
#include "test/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env/file/file.h"
#include "run/predict.h"
#include "run/rundir.h"
#include "train/driver/trainer.h"

typedef struct lab {
    ru_arena arena;
    char dir[64];
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

static const char *put_file(lab *l, const char *name, const char *text)
{
    ru_err err = {0};
    const char *path = ru_path_join(&l->arena, l->dir, name);
    assert_ok(ru_file_replace(path, text, (int64_t)strlen(text), &err), err);
    return path;
}

/* Train on `table` with these settings of data:. */
static ru_status try_train(lab *l, const char *table, const char *data, bool resume, ru_err *err)
{
    ru_job job;
    ru_train_result r;
    (void)put_file(l, "t.csv", table);
    const char *yaml = ru_arena_printf(
        &l->arena,
        "name: t\nmodel: {zoo: mlp, hidden: [4]}\ndata: {format: csv, train: t.csv%s}\n"
        "train: {batch: 2, epochs: %d, threads: 1, device: ref}\n",
        data, resume ? 2 : 1);
    const char *path = put_file(l, "job.yaml", yaml);
    assert_ok(ru_job_load(path, NULL, 0, &l->arena, &job, NULL, err), *err);
    ru_train_options to = {.job = &job, .quiet = true, .no_trace = true, .resume = resume};
    to.out = ru_path_join(&l->arena, l->dir, "run");
    return ru_train(&to, &l->arena, &r, err);
}

/* The run, opened again. */
static ru_rundir train(lab *l, const char *table, const char *data, bool resume)
{
    ru_err err = {0};
    ru_rundir run;
    assert_ok(try_train(l, table, data, resume, &err), err);
    assert_ok(ru_rundir_open(ru_path_join(&l->arena, l->dir, "run"), &l->arena, &run, &err), err);
    return run;
}

/* Inputs of the first sample of a file, as the run reads it. */
static void expect_x(lab *l, const ru_rundir *run, const char *text, bool labels, const float *want,
                     int64_t n)
{
    ru_err err = {0};
    ru_dataset *d;
    float x[8] = {0};
    int64_t y = -1;
    void *fields[] = {x, &y};
    const char *paths[] = {put_file(l, "other.csv", text)};
    assert_ok(ru_rundir_data(run, paths, 1, labels, &d, &err), err);
    assert_ok(ru_dataset_read(d, 0, fields, &err), err);
    ru_dataset_close(d);
    for (int64_t k = 0; k < n; k++) {
        if (fabsf(x[k] - want[k]) > 1e-6f) {
            fail_msg("input %d is %g, expected %g", (int)k, (double)x[k], (double)want[k]);
        }
    }
    assert_true(!labels || y == 1);
}

static void a_run_finds_columns_by_name(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_dataset *d;
    ru_rundir run =
        train(l, "a,b,y\n1,2,no\n3,4,yes\n5,6,no\n7,8,yes\n", ", validation: 0.25", false);
    const float want[] = {5, 6};
    expect_x(l, &run, "a,b,y\n5,6,yes\n", true, want, 2);
    expect_x(l, &run, "y,b,a\nyes,6,5\n", true, want, 2);
    expect_x(l, &run, "b,a\n6,5\n", false, want, 2);
    expect_x(l, &run, "y,b,a\nperhaps,6,5\n", false, want, 2);
    const char *paths[] = {put_file(l, "other.csv", "b,c,y\n6,5,yes\n")};
    assert_int_equal(ru_rundir_data(&run, paths, 1, true, &d, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "there is no column 'a'"));
}

/* What data.strict: false leaves out is in the summary. */
static void damaged_rows_are_counted(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    char *text;
    int64_t n;
    (void)train(l, "1,2,0\n3,nan,1\n5,6,1\n7,8\n9,1,0\n", ", strict: false", false);
    const char *path = ru_path_join(&l->arena, l->dir, "run/metrics.jsonl");
    assert_ok(ru_file_read(path, 1 << 20, &l->arena, &text, &n, &err), err);
    assert_non_null(strstr(text, "\"samples_damaged\":2"));
}

/* Mean 4 and deviation 2 of a; the run keeps them when it is resumed on a file that has changed. */
static void a_run_keeps_how_columns_become_inputs(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    static const char data[] = ", columns: {ignore: [id], missing: mean}";
    const float want[] = {2, 0, 1, 0}, unknown[] = {0, 0, 0, 0};
    ru_rundir run =
        train(l, "id,a,b,c,y\n1,2,5,u,no\n2,6,5,v,yes\n3,2,5,u,no\n4,6,5,v,yes\n", data, false);
    for (int k = 0; k < 2; k++) {
        expect_x(l, &run, "y,c,b,a\nyes,u,9,8\n", true, want, 4);
        expect_x(l, &run, "c,b,a\nw,,NA\n", false, unknown, 4);
        run =
            train(l, "id,a,b,c,y\n1,9,5,u,no\n2,8,5,w,yes\n3,7,4,u,no\n4,6,5,v,yes\n", data, true);
    }
    assert_int_equal(try_train(l, "id,a,b,c,y\n1,2,5,u,no\n2,6,5,v,yes\n",
                               ", columns: {ignore: [id]}", true, &err),
                     RU_E_CONFIG);
    assert_non_null(strstr(err.text, "data.columns has changed: missing error (was mean)"));
}

/* Both ways into a predictor: the row whose cell is empty has no answer, the others have those that
 * they have without it. */
static void a_row_that_is_left_out_has_no_answer(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_dataset *d;
    ru_predictor *p;
    ru_rows *rows;
    bool found;
    const float *out;
    const float alone[2][2] = {{-1, 1}, {1, -1}};
    ru_rundir run = train(l, "a,b,y\n1,8,no\n3,6,yes\n,9,no\n1,8,no\n3,6,yes\n",
                          ", columns: {missing: drop}", false);
    const ru_exe_options ref = {.device = RU_DEVICE_REF};
    assert_ok(ru_predictor_open(&run, 3, &ref, &l->arena, &p, &err), err);
    assert_int_equal(ru_predictor_inputs(p), 2);
    float *x = ru_predictor_input(p, 0), want[2][2];
    memcpy(x, alone, sizeof alone);
    assert_ok(ru_predictor_run(p, &out, &err), err);
    memcpy(want, out, sizeof want);
    const char *paths[] = {put_file(l, "other.csv", "b,a\n8,1\n6,NA\n6,3\n")};
    const char *const lines[] = {"1,8", "-,6", "3,6"};
    assert_ok(ru_rundir_data(&run, paths, 1, false, &d, &err), err);
    assert_ok(ru_rows_open(&ru_predictor_model(p)->facts.columns, "stdin", &l->arena, &rows, &err),
              err);
    for (int way = 0; way < 2; way++) {
        for (int64_t i = 0; i < 3; i++) {
            void *fields[] = {x + 2 * i};
            assert_ok(way == 0 ? ru_dataset_read(d, i, fields, &err)
                               : ru_rows_line(rows, ru_str_c(lines[i]), x + 2 * i, &found, &err),
                      err);
        }
        assert_ok(ru_predictor_run(p, &out, &err), err);
        for (int64_t i = 0; i < 3; i++) {
            assert_int_equal(ru_predictor_left_out(p, i), i == 1);
        }
        assert_true(memcmp(out, want[0], sizeof want[0]) == 0);
        assert_true(memcmp(out + 4, want[1], sizeof want[1]) == 0);
        memcpy(x, alone, sizeof alone);
        x[4] = x[5] = 0;
        assert_ok(ru_predictor_run(p, &out, &err), err);
        assert_true(!ru_predictor_left_out(p, 1));
    }
    ru_rows_close(rows);
    ru_dataset_close(d);
    ru_predictor_close(p);
}

#define RUN_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

RU_TESTS(train_table, RUN_TEST(a_run_finds_columns_by_name), RUN_TEST(damaged_rows_are_counted),
         RUN_TEST(a_run_keeps_how_columns_become_inputs),
         RUN_TEST(a_row_that_is_left_out_has_no_answer))
