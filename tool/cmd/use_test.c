/* The commands that use a trained run: eval, predict, export. Expected answers follow from a model
 * that says the place of the largest input. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "env/file/file.h"
#include "store/npy.h"
#include "store/onnx_file.h"
#include "test/scratch.h"
#include "test/test.h"
#include "tool/cmd/eval_classes.h"
#include "tool/cmd/eval_mistakes.h"
#include "tool/run.h"
#include "train/driver/trainer.h"
#include "world/graph/build.h"

static const char *put_file(ru_scratch *f, const char *name, const char *text)
{
    const char *path = ru_path_join(&f->arena, f->root, name);
    assert_ok(ru_file_replace(path, text, (int64_t)strlen(text), &f->err), f->err);
    return path;
}

/* A model [batch, 3] -> [batch, 3] whose weights are the identity times 4. */
static void put_model(ru_scratch *f, int64_t batch)
{
    const int64_t dims[] = {batch, 3}, square[] = {3, 3};
    const float weights[] = {4, 0, 0, 0, 4, 0, 0, 0, 4};
    ru_graph g;
    ru_build b;
    assert_ok(ru_graph_init(&g, &f->arena, "same", &f->err), f->err);
    ru_build_init(&b, &g);
    ru_value_id x = ru_build_input(&b, "x", ru_type_make(RU_F32, 2, dims));
    ru_value_id w = ru_build_param(&b, "w", ru_type_make(RU_F32, 2, square), weights);
    ru_build_output(&b, ru_build_op2(&b, RU_OP_MatMul, x, w, NULL), "y");
    assert_ok(ru_build_finish(&b, &f->err), f->err);
    const char *path = ru_path_join(&f->arena, f->root, "same.onnx");
    assert_ok(ru_onnx_file_save(path, &g, &(ru_onnx_write_options){0}, NULL, &f->err), f->err);
}

/* A run of the model after one step that changes nothing one could see. */
static const char *train_on(ru_scratch *f, int64_t batch, const char *data)
{
    ru_job job;
    ru_train_result r;
    put_model(f, batch);
    const char *yaml = ru_arena_printf(
        &f->arena,
        "name: t\nmodel: {onnx: same.onnx}\ndata: {%s}\n"
        "train: {batch: %lld, steps: 1, threads: 1, device: ref, optimizer: {sgd: {lr: 1e-9}}}\n",
        data, (long long)batch);
    assert_ok(ru_job_load(put_file(f, "job.yaml", yaml), NULL, 0, &f->arena, &job, NULL, &f->err),
              f->err);
    ru_train_options to = {.job = &job, .quiet = true, .no_trace = true};
    to.out = ru_path_join(&f->arena, f->root, "run");
    assert_ok(ru_train(&to, &f->arena, &r, &f->err), f->err);
    return to.out;
}

static const char *train(ru_scratch *f, int64_t batch, const char *data)
{
    (void)put_file(f, "t.csv", "1,0,0,0\n0,1,0,1\n0,0,1,2\n1,0,0,0\n");
    data = ru_arena_printf(&f->arena, "format: csv, train: t.csv%s", data);
    return train_on(f, batch, data);
}

static int redirect(int fd, const char *path, const char *mode)
{
    int was = dup(fd);
    FILE *to = fopen(path, mode);
    assert_non_null(to);
    assert_int_equal(dup2(fileno(to), fd), fd);
    assert_int_equal(fclose(to), 0);
    return was;
}

static void put_back(int fd, int was)
{
    assert_int_equal(dup2(was, fd), fd);
    assert_int_equal(close(was), 0);
}

/* What the command prints, on stdout or in `said` on stderr, when it reads `in` from stdin. */
static const char *use(ru_scratch *f, const char *line, const char *in, int code, const char **said)
{
    const char *words[16];
    uint32_t n = 0;
    ru_str rest = ru_str_c(line), word;
    while (n < 16 && ru_str_next(&rest, ' ', &word)) {
        words[n++] = ru_arena_strn(&f->arena, word.p, word.n);
    }
    const char *paths[] = {put_file(f, "in", in), put_file(f, "out", ""), put_file(f, "said", "")};
    ru_log_options log = ru_log_get();
    (void)fflush(stdout);
    clearerr(stdin);
    int was[3];
    for (int fd = 0; fd < 3; fd++) {
        was[fd] = redirect(fd, paths[fd], fd == 0 ? "rb" : "wb");
    }
    int got = rui_tool_run(words, n);
    (void)fflush(stdout);
    for (int fd = 0; fd < 3; fd++) {
        put_back(fd, was[fd]);
    }
    ru_log_set(&log);
    char *text[3] = {NULL};
    for (int fd = 1; fd < 3; fd++) {
        int64_t size;
        assert_ok(ru_file_read(paths[fd], 1 << 20, &f->arena, &text[fd], &size, &f->err), f->err);
    }
    if (got != code) {
        fail_msg("%s ends with %d: %s", line, got, text[2]);
    }
    *said = text[2];
    return text[1];
}

/* With data.strict: false line k stays the answer of sample k. */
static void a_damaged_sample_has_an_empty_answer(void **state)
{
    ru_scratch *f = *state;
    const char *said, *run = train(f, 2, ", strict: false");
    const char *data = put_file(f, "o.csv", "1,0,0,0\n0,?,0,1\n0,0,1,0\nx,1,0,1\n0,1,0,1\n");
    const char *line = ru_arena_printf(&f->arena, "predict %s --data %s", run, data);
    assert_string_equal(use(f, line, "", 0, &said), "0\n\n2\n\n1\n");
    assert_non_null(strstr(said, "2 damaged samples of the data have no answer"));
    assert_non_null(strstr(said, "o.csv:2: column 2 has no value"));
    assert_null(strstr(said, "rows have an input without a value"));
    line = ru_arena_printf(&f->arena, "%s --proba", line);
    assert_non_null(strstr(use(f, line, "", 0, &said), "\n,,\n"));
}

static const char *put_array(ru_scratch *f, const char *name, ru_type type, const void *data)
{
    const char *path = ru_path_join(&f->arena, f->root, name);
    const ru_array a = {.name = name, .type = type, .data = data};
    assert_ok(ru_npy_save(path, &a, &f->err), f->err);
    return path;
}

/* No sample counts twice in place of a damaged one. */
static void eval_leaves_out_damaged_samples(void **state)
{
    ru_scratch *f = *state;
    const char *said;
    const float x[] = {1, 0, 0, NAN, 1, 0, 0, NAN, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0};
    const int64_t y[] = {0, 1, 1, 0, 1, 1}, dims[] = {6, 3};
    const char *run = NULL, *at = put_array(f, "x.npy", ru_type_make(RU_F32, 2, dims), x);
    const char *labels = put_array(f, "y.npy", ru_type_make(RU_I64, 1, dims), y);
    run = train_on(f, 2, "format: npy, train: [x.npy, y.npy], strict: false, classes: 3");
    const char *line = ru_arena_printf(&f->arena, "eval %s --data %s --data %s", run, at, labels);
    const char *text = use(f, line, "", 0, &said);
    assert_non_null(strstr(text, "accuracy   0.5\n")); /* a third with the fourth one thrice */
    assert_non_null(strstr(said, "2 damaged samples of the data are left out"));
    assert_non_null(strstr(said, "sample 1 (counted from 0)"));
    line = ru_arena_printf(&f->arena, "%s --json --classes", line);
    text = use(f, line, "", 0, &said);
    assert_non_null(strstr(text, "\"samples\":4,\"samples_damaged\":2,"));
    assert_non_null(strstr(text, "\"confusion\":[[1,0,1],[1,1,0],[0,0,0]]"));
}

static uint32_t names_in(ru_scratch *f, const char *dir)
{
    char **names;
    uint32_t n;
    assert_ok(ru_dir_list(ru_path_join(&f->arena, f->root, dir), &f->arena, &names, &n, &f->err),
              f->err);
    return n;
}

/* The storage of a job is for its training. */
static void data_that_are_read_once_are_not_kept(void **state)
{
    ru_scratch *f = *state;
    const char *said;
    const float x[] = {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0};
    const int64_t y[] = {0, 1, 2, 0};
    int64_t dims[] = {3, 3};
    (void)put_array(f, "x.npy", ru_type_make(RU_F32, 2, dims), x);
    (void)put_array(f, "y.npy", ru_type_make(RU_I64, 1, dims), y);
    dims[0] = 2;
    (void)put_array(f, "test-x.npy", ru_type_make(RU_F32, 2, dims), x);
    (void)put_array(f, "test-y.npy", ru_type_make(RU_I64, 1, dims), y);
    const char *run =
        train_on(f, 2,
                 "format: npy, train: [x.npy, y.npy], test: [test-x.npy, test-y.npy], "
                 "classes: 3, cache: decoded}\n"
                 "storage: [{path: kept, quota: 1MiB}]\n# ");
    uint32_t n = names_in(f, "kept/samples");
    assert_int_equal(n, 3); /* the folders of the training and test data, and the lock */
    dims[0] = 4;
    const char *at = put_array(f, "x.npy", ru_type_make(RU_F32, 2, dims), x);
    const char *labels = put_array(f, "y.npy", ru_type_make(RU_I64, 1, dims), y);
    const char *line = ru_arena_printf(&f->arena, "eval %s --data %s --data %s", run, at, labels);
    assert_non_null(strstr(use(f, line, "", 0, &said), "accuracy   1\n"));
    assert_int_equal(names_in(f, "kept/samples"), n);
    assert_ok(ru_path_remove(ru_path_join(&f->arena, f->root, "kept"), &f->err), f->err);
    (void)put_file(f, "kept", "no folder can be made here");
    line = ru_arena_printf(&f->arena, "eval %s", run);
    assert_non_null(strstr(use(f, line, "", 0, &said), "accuracy   1\n"));
}

/* More samples than the batch that the file of the model fixes, and no multiple of it. */
static void a_fixed_batch_is_enough(void **state)
{
    ru_scratch *f = *state;
    ru_rundir run;
    ru_dataset *d;
    ru_text t = ru_text_arena(&f->arena);
    const ru_exe_options ref = {.device = RU_DEVICE_REF};
    assert_ok(ru_rundir_open(train(f, 2, ""), &f->arena, &run, &f->err), f->err);
    const char *paths[] = {put_file(f, "o.csv", "1,0,0,0\n0,1,0,1\n0,0,1,0\n0,1,0,1\n0,0,1,1\n")};
    assert_ok(ru_rundir_data(&run, paths, 1, true, &d, &f->err), f->err);
    assert_ok(rui_eval_mistakes(&run, d, 9, &ref, &f->arena, &t, &f->err), f->err);
    const char *first = strstr(t.p, "read as 2 with "), *second = first + 1;
    assert_non_null(first);
    assert_non_null(strstr(first, "as 0 with "));
    second = strstr(second, "read as 2 with ");
    assert_non_null(second);
    assert_non_null(strstr(second, "as 1 with "));
    assert_null(strstr(second + 1, "read as"));
    t = ru_text_arena(&f->arena);
    assert_ok(rui_eval_classes(&run, d, true, &ref, &f->arena, &t, &f->err), f->err);
    assert_non_null(strstr(t.p, "\"confusion\":[[1,0,1],[0,2,1],[0,0,0]]"));
    ru_dataset_close(d);
}

/* The largest input after data.mean and data.std, wherever the numbers come from. */
static void mean_and_std_reach_every_input(void **state)
{
    ru_scratch *f = *state;
    const char *said, *run = train(f, 2, ", mean: [0, 2, 8], std: [1, 0.5, 4]");
    const float x[] = {1, 2.4f, 11, 0, 3.2f, 12, 2, 2.6f, 16, 0, 1, 9}; /* 1 .8 .75, 0 2.4 1 ... */
    const int64_t dims[] = {4, 3};
    const char *path = put_array(f, "x.npy", ru_type_make(RU_F32, 2, dims), x);
    const char *line = ru_arena_printf(&f->arena, "predict %s --in %s", run, path);
    assert_string_equal(use(f, line, "", 0, &said), "0\n1\n0\n2\n");
    line = ru_arena_printf(&f->arena, "predict %s", run);
    const char *rows = "1,2.4,11\n0,3.2,12\n2,2.6,16\n0,1,9\n";
    assert_string_equal(use(f, line, rows, 0, &said), "0\n1\n0\n2\n");
    line = ru_arena_printf(&f->arena, "export %s --onnx %s/e.onnx", run, f->root);
    assert_non_null(strstr(use(f, line, "", 0, &said),
                           "data.mean and data.std of the job, (x - mean) / std: mean 0, 2, 8, std "
                           "1, 0.5, 4\n"));
}

/* A line of stdin is read as a file is. */
static void lines_come_in_every_encoding(void **state)
{
    ru_scratch *f = *state;
    (void)put_file(f, "t.csv", "gr\xfcn;b;c;y\n1;0;0;0\n0;1;0;1\n0;0;1;2\n");
    const char *said, *run = train_on(f, 2, "format: csv, train: t.csv");
    const char *line = ru_arena_printf(&f->arena, "predict %s", run);
    assert_string_equal(use(f, line, "b;gr\xfcn;c\n1;0;0\n0;1;0\n", 0, &said), "1\n0\n");
    assert_non_null(strstr(said, "stdin is not UTF-8; Rubato takes its bytes as Latin-1"));
    assert_string_equal(use(f, line, "b;gr\xc3\xbcn;c\r1;0;0\r0;1;0\r", 0, &said), "1\n0\n");
}

static void a_number_that_std_makes_infinite_is_refused(void **state)
{
    ru_scratch *f = *state;
    const char *said, *run = train(f, 2, ", std: [0.01]");
    const float far[] = {0, 0, 3e38f};
    const int64_t dims[] = {1, 3};
    const char *path = put_array(f, "x.npy", ru_type_make(RU_F32, 2, dims), far);
    const char *line = ru_arena_printf(&f->arena, "predict %s --in %s", run, path);
    (void)use(f, line, "", 65, &said);
    assert_non_null(strstr(said, "element 2 of sample 0 is infinite"));
    const char *data = put_file(f, "far.csv", "0,0,3e38,0\n");
    line = ru_arena_printf(&f->arena, "predict %s --data %s", run, data);
    (void)use(f, line, "", 65, &said);
    assert_non_null(strstr(said, "element 2 of 'x' is too large"));
    line = ru_arena_printf(&f->arena, "predict %s", run);
    assert_string_equal(use(f, line, "0,0,1\n0,0,3e38\n", 65, &said), "");
    assert_non_null(strstr(said, "stdin:2: number 3 of the row is inf for the model"));
}

/* What is not done is not passed over. */
static void to_serve_is_not_to_write(void **state)
{
    ru_scratch *f = *state;
    const char *said, *run = train(f, 2, "");
    const char *line =
        ru_arena_printf(&f->arena, "export %s --listen 127.0.0.1:0 --onnx e.onnx", run);
    (void)use(f, line, "", 2, &said);
    assert_non_null(strstr(said, "give it without --onnx and --safetensors"));
}

#define ON_FILES(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(tool_use, ON_FILES(a_fixed_batch_is_enough),
         ON_FILES(a_damaged_sample_has_an_empty_answer), ON_FILES(eval_leaves_out_damaged_samples),
         ON_FILES(data_that_are_read_once_are_not_kept), ON_FILES(mean_and_std_reach_every_input),
         ON_FILES(a_number_that_std_makes_infinite_is_refused),
         ON_FILES(lines_come_in_every_encoding), ON_FILES(to_serve_is_not_to_write))
