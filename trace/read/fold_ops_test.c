/* Op instances folded from records: against sums by hand over random runs, from the end of a long
 * file, and without what another executable recorded. */
#include "trace/read/fold.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "env/file/file.h"
#include "test/test.h"
#include "trace/record/format.h"

enum { STEPS = 7, RUNS = 400, EXE = 0x1234 };

typedef struct fixture {
    char root[64];
    ru_arena arena;
    int64_t ns[RUNS][STEPS], end_ns;
    const char *path;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    snprintf(f->root, sizeof f->root, "/tmp/rubato-test-XXXXXX");
    ru_arena_init(&f->arena, 0);
    *state = f;
    return mkdtemp(f->root) == NULL;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ru_status st = ru_path_remove(f->root, NULL);
    ru_arena_fini(&f->arena);
    free(f);
    return st != RU_OK;
}

/* Runs of a list of steps; between them an executable of another id, and a sum. */
static void record(fixture *f)
{
    ru_err err;
    ru_recorder *r;
    ru_recorder_options opt = {.dir = f->root, .rank = 2};
    assert_ok(ru_recorder_open(&opt, &r, &err), err);
    uint16_t op = ru_recorder_name(r, "Gemm", "op"), sum = ru_recorder_name(r, "s", "sum");
    ru_rng g = ru_rng_from(ru_test_seed(), 5);
    int64_t at = 1000;
    for (uint32_t run = 0; run < RUNS; run++) {
        for (uint32_t k = 0; k < STEPS; k++) {
            int64_t ns = 100 + (int64_t)ru_rng_below(&g, 10000) + (run == 0 ? 1000000 : 0);
            ns += run == 7 && k == 3 ? INT64_C(9000000000) : 0; /* several records */
            f->ns[run][k] = ns;
            ru_rec_act(r, op, at, at + ns, k, EXE, 0);
            at += ns;
        }
        f->end_ns = at;
        ru_rec_act(r, op, at, at + 5, 1, EXE + 1, 0);
        ru_rec_async(r, sum, at, at + 9, 2, EXE, 0);
        at += 50;
    }
    ru_recorder_close(r);
    f->path = ru_path_join(&f->arena, f->root, "rank2.trace");
}

static int by_size(const void *a, const void *b)
{
    return (*(const int64_t *)a > *(const int64_t *)b) -
           (*(const int64_t *)a < *(const int64_t *)b);
}

static void test_facts_are_those_of_the_runs(void **state)
{
    fixture *f = *state;
    ru_err err;
    ru_trace t;
    ru_op_fold got;
    ru_op_fact ops[STEPS + 1] = {0};
    record(f);
    assert_ok(ru_trace_load(f->path, &f->arena, &t, &err), err);
    assert_ok(ru_trace_fold_ops(&t, EXE, ops, STEPS + 1, &f->arena, &got, &err), err);
    assert_int_equal(got.n_measured, STEPS);
    assert_int_equal(got.last_ns, f->end_ns);
    assert_int_equal(ops[STEPS].took.count, 0);
    for (uint32_t k = 0; k < STEPS; k++) {
        int64_t sorted[RUNS - 1];
        double sum = 0;
        for (uint32_t run = 1; run < RUNS; run++) {
            sorted[run - 1] = f->ns[run][k];
            sum += (double)f->ns[run][k];
        }
        qsort(sorted, RUNS - 1, sizeof *sorted, by_size);
        const ru_fact *x = &ops[k].took;
        assert_int_equal(x->count, RUNS - 1); /* the first run is left out */
        assert_true(x->mean_ns > sum / (RUNS - 1) - 1e-3 && x->mean_ns < sum / (RUNS - 1) + 1e-3);
        assert_int_equal(x->min_ns, sorted[0]);
        assert_int_equal(x->median_ns, sorted[(RUNS - 1) / 2]);
        assert_int_equal(x->max_ns, sorted[RUNS - 2]);
        int64_t after = 0;
        for (uint32_t o = k + 1; o < STEPS; o++) {
            after += f->ns[RUNS - 1][o];
        }
        assert_int_equal(x->age_ns, after + 9); /* the sum ends last */
    }
}

/* A file of twenty times the same blocks, each of whole records. */
static const char *long_file(fixture *f, int64_t *body_bytes)
{
    ru_err err;
    char *text;
    int64_t size;
    record(f);
    assert_ok(ru_file_read(f->path, 0, &f->arena, &text, &size, &err), err);
    *body_bytes = size - RUI_TRACE_HEADER_BYTES;
    char *all = ru_arena_alloc(&f->arena, RUI_TRACE_HEADER_BYTES + 20 * *body_bytes, 1);
    assert_non_null(all);
    memcpy(all, text, RUI_TRACE_HEADER_BYTES);
    for (int64_t k = 0; k < 20; k++) {
        memcpy(all + RUI_TRACE_HEADER_BYTES + k * *body_bytes, text + RUI_TRACE_HEADER_BYTES,
               (size_t)*body_bytes);
    }
    const char *path = ru_path_join(&f->arena, f->root, "long.trace");
    assert_ok(ru_file_replace(path, all, RUI_TRACE_HEADER_BYTES + 20 * *body_bytes, &err), err);
    return path;
}

static int64_t records_of(fixture *f, const char *path, int64_t bytes_max)
{
    ru_err err;
    ru_trace t;
    ru_op_fold got;
    ru_op_fact ops[STEPS] = {0};
    assert_ok(ru_trace_load_end(path, bytes_max, &f->arena, &t, &err), err);
    assert_int_equal(t.rank, 2);
    assert_int_equal(t.damaged_at, -1);
    assert_ok(ru_trace_fold_ops(&t, EXE, ops, STEPS, &f->arena, &got, &err), err);
    assert_int_equal(got.last_ns, f->end_ns);
    return got.records;
}

static void test_the_end_of_a_file_is_enough(void **state)
{
    fixture *f = *state;
    int64_t body_bytes;
    const char *path = long_file(f, &body_bytes);
    int64_t all = records_of(f, path, 100 * body_bytes), one = all / 20;
    assert_true(one >= STEPS * RUNS);
    int64_t part = records_of(f, path, 5 * body_bytes + body_bytes / 2);
    assert_true(part >= 5 * one && part < 6 * one);
    assert_int_equal(records_of(f, path, 3 * body_bytes), 3 * one);
}

RU_TESTS(trace_fold_ops,
         cmocka_unit_test_setup_teardown(test_facts_are_those_of_the_runs, set_up, tear_down),
         cmocka_unit_test_setup_teardown(test_the_end_of_a_file_is_enough, set_up, tear_down))
