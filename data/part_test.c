/* Samples that are held out, and inputs that are normalised. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "data/reader.h"
#include "env/file/file.h"
#include "test/test.h"

enum { ROWS = 50 };

typedef struct table {
    char path[64];
    const char *paths[1];
    ru_data_options opt;
} table;

/* Rows i: features i and 10 i + 1, class i % 2. */
static int setup(void **state)
{
    table *t = calloc(1, sizeof *t);
    char text[4096];
    ru_err err = {0};
    ru_text x = ru_text_into(text, sizeof text);
    for (int i = 0; i < ROWS; i++) {
        ru_text_putf(&x, "%d,%d,%d\n", i, 10 * i + 1, i % 2);
    }
    (void)snprintf(t->path, sizeof t->path, "/tmp/rubato-part-%ld.csv", (long)getpid());
    assert_ok(ru_file_replace(t->path, x.p, x.n, &err), err);
    t->paths[0] = t->path;
    t->opt = (ru_data_options){.format = "csv", .paths = t->paths, .n_paths = 1, .held = 0.3};
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    table *t = *state;
    (void)unlink(t->path);
    free(t);
    return 0;
}

static ru_dataset *open(const ru_data_options *opt)
{
    ru_err err = {0};
    ru_dataset *d = NULL;
    assert_ok(ru_dataset_open(opt, &d, &err), err);
    return d;
}

static void every_sample_is_in_one_part(void **state)
{
    table *t = *state;
    ru_err err = {0};
    int seen[ROWS] = {0}, jumps = 0;
    for (int part = 0; part < 2; part++) {
        t->opt.held_out = part == 1;
        ru_dataset *d = open(&t->opt);
        int64_t n = ru_dataset_count(d), before = 0;
        assert_int_equal(n, part == 1 ? 15 : 35);
        for (int64_t i = 0; i < n; i++) {
            float x[2];
            int64_t y;
            char where[128], want[32];
            assert_ok(ru_dataset_read(d, i, (void *[]){x, &y}, &err), err);
            int row = (int)x[0];
            seen[row]++;
            jumps += row != before + 1;
            before = row;
            assert_true(x[1] == 10.0f * x[0] + 1.0f && y == row % 2);
            (void)snprintf(want, sizeof want, "sample %d ", row);
            assert_non_null(strstr(ru_dataset_where(d, i, where, sizeof where), want));
        }
        ru_dataset_close(d);
    }
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(seen[i], 1);
    }
    assert_true(jumps > ROWS / 2); /* not the last ones of a sorted file */
    t->opt.held = 0.001;
    ru_dataset *d;
    assert_int_equal(ru_dataset_open(&t->opt, &d, &err), RU_E_CONFIG);
}

/* The stream gives what single reads give, also where a format reads neighbours at once. */
static void streams_and_reads_agree(void **state)
{
    table *t = *state;
    ru_err err = {0};
    for (int held = 0; held < 2; held++) {
        t->opt.held = held == 0 ? 0 : 0.3;
        t->opt.mean = (double[]){3, 5};
        t->opt.std = (double[]){2, 4};
        t->opt.n_mean = t->opt.n_std = 2;
        ru_dataset *d = open(&t->opt);
        ru_stream *s;
        ru_batch b;
        assert_ok(ru_stream_open(d, &(ru_stream_options){.batch = 30}, &s, &err), err);
        assert_ok(ru_stream_next(s, &b, &err), err);
        for (int64_t i = 0; i < b.n; i++) {
            float x[2];
            int64_t y;
            assert_ok(ru_dataset_read(d, i, (void *[]){x, &y}, &err), err);
            assert_memory_equal(x, (float *)b.fields[0] + 2 * i, sizeof x);
            double row = (double)x[0] * 2 + 3;
            assert_true(x[1] == (float)((10 * row + 1 - 5) / 4));
        }
        ru_stream_close(s);
        ru_dataset_close(d);
    }
}

static void numbers_must_fit_the_inputs(void **state)
{
    table *t = *state;
    ru_err err = {0};
    ru_dataset *d;
    t->opt.held = 0;
    t->opt.mean = (double[]){3, 5, 6};
    t->opt.n_mean = 3;
    assert_int_equal(ru_dataset_open(&t->opt, &d, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "expected one number or 2 of them"));
    t->opt.n_mean = 0;
    t->opt.std = (double[]){0};
    t->opt.n_std = 1;
    assert_int_equal(ru_dataset_open(&t->opt, &d, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "above 0"));
}

RU_TESTS(data_part, cmocka_unit_test_setup_teardown(every_sample_is_in_one_part, setup, teardown),
         cmocka_unit_test_setup_teardown(streams_and_reads_agree, setup, teardown),
         cmocka_unit_test_setup_teardown(numbers_must_fit_the_inputs, setup, teardown))
