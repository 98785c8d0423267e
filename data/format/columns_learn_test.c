/* Columns that become inputs: numbers by hand, which StandardScaler, SimpleImputer and
 * OneHotEncoder of scikit-learn give too. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "data/reader.h"
#include "test/test.h"

static char name[64];

static ru_status open_text(const char *text, ru_data_options opt, ru_dataset **d, ru_err *err)
{
    const char *path = name;
    (void)snprintf(name, sizeof name, "/tmp/rubato-test-%ld-l.csv", (long)getpid());
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
    opt.format = "csv";
    opt.paths = &path;
    opt.n_paths = 1;
    ru_status st = ru_dataset_open(&opt, d, err);
    (void)unlink(name);
    return st;
}

static void expect_row(const ru_dataset *d, int64_t i, const double *want, int n)
{
    ru_err err = {0};
    float x[8] = {0};
    int64_t y;
    void *fields[] = {x, &y};
    assert_ok(ru_dataset_read(d, i, fields, &err), err);
    for (int k = 0; k < n; k++) {
        if (fabs((double)x[k] - want[k]) > 1e-6) {
            fail_msg("input %d of sample %d is %g, expected %g", k, (int)i, (double)x[k], want[k]);
        }
    }
}

#define NAMES(...)                                                  \
    (ru_conf_texts)                                                 \
    {                                                               \
        .at = (const char *const[]){__VA_ARGS__},                   \
        .n = sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *) \
    }

static const char table[] = "id,a,c,colour,y\n"
                            "7,1,0.1,red,no\n"
                            "8,2,0.1,blue,yes\n"
                            "9,,0.1,red,yes\n"
                            "x,6,0.1,Green,no\n";

/* mean of a: 3; std: sqrt((4 + 1 + 9) / 3). The sum of c is rounded, its deviation is 0. */
static void test_closed_form(void **state)
{
    (void)state;
    const double s = sqrt(14.0 / 3);
    const double scaled[4][5] = {
        {-2 / s, 0, 0, 0, 1}, {-1 / s, 0, 0, 1, 0}, {0, 0, 0, 0, 1}, {3 / s, 0, 1, 0, 0}};
    const double plain[4][5] = {
        {1, 0.1, 0, 0, 1}, {2, 0.1, 0, 1, 0}, {3, 0.1, 0, 0, 1}, {6, 0.1, 1, 0, 0}};
    for (int k = 0; k < 2; k++) {
        ru_err err = {0};
        ru_dataset *d;
        const ru_columns_options p = {
            .ignore = NAMES("id"), .missing = RU_MISSING_MEAN, .normalize = k == 0 ? 0 : 2};
        assert_ok(open_text(table, (ru_data_options){.prepare = &p}, &d, &err), err);
        assert_int_equal(ru_columns_inputs(ru_dataset_columns(d)), 5);
        for (int i = 0; i < 4; i++) {
            expect_row(d, i, k == 0 ? scaled[i] : plain[i], 5);
        }
        ru_dataset_close(d);
    }
}

/* Other files and lines take the values of the training data, wherever their columns stand. */
static void test_other_files(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_dataset *d, *other;
    ru_arena arena;
    ru_rows *rows;
    bool row;
    float x[5];
    const double s = sqrt(14.0 / 3);
    const double want[5] = {7 / s, 0, 0, 0, 0}; /* pink is unknown; c is constant, whatever comes */
    const ru_columns_options p = {.ignore = NAMES("1"), .missing = RU_MISSING_MEAN};
    assert_ok(open_text(table, (ru_data_options){.prepare = &p}, &d, &err), err);
    const ru_columns *c = ru_dataset_columns(d);
    ru_data_options opt = {.columns = c, .prepare = &p};
    assert_ok(open_text("y,colour,c,a\nno,pink,5,10\nyes,?,5,10\n", opt, &other, &err), err);
    expect_row(other, 0, want, 5);
    expect_row(other, 1, want, 5);
    ru_dataset_close(other);
    static const char *const lines[] = {"1,10,5,pink,no", "1,10,5,pink", "10,5,pink"};
    ru_arena_init(&arena, 0);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(lines); k++) {
        assert_ok(ru_rows_open(c, "stdin", &arena, &rows, &err), err);
        assert_ok(ru_rows_line(rows, ru_str_c(lines[k]), x, &row, &err), err);
        assert_true(row && fabs((double)x[0] - want[0]) < 1e-6);
        assert_true(x[1] == 0 && x[2] == 0 && x[3] == 0 && x[4] == 0);
        ru_rows_close(rows);
    }
    ru_arena_fini(&arena);
    ru_dataset_close(d);
}

static void test_missing(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_dataset *d;
    ru_columns_options p = {.ignore = NAMES("id")};
    const ru_data_options opt = {.prepare = &p};
    assert_int_equal(open_text(table, opt, &d, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, ".csv:4: column 2 (a) has no value"));
    p.missing = RU_MISSING_DROP;
    assert_ok(open_text(table, opt, &d, &err), err);
    assert_int_equal(ru_dataset_count(d), 3);
    const double s = sqrt(14.0 / 3), want[] = {3 / s, 0, 1, 0, 0};
    expect_row(d, 2, want, 5);
    ru_dataset
        *other; /* one prediction for each row: none is left out, NaN says which has no value */
    const ru_data_options rows = {.columns = ru_dataset_columns(d), .unlabelled = true};
    assert_ok(open_text("a,c,colour\n,1,red\n6,1,?\n6,1,green\n", rows, &other, &err), err);
    assert_int_equal(ru_dataset_count(other), 3);
    for (int64_t i = 0; i < 3; i++) {
        float x[5];
        void *fields[] = {x};
        assert_ok(ru_dataset_read(other, i, fields, &err), err);
        for (int k = 0; k < 5; k++) {
            assert_true((i < 2) == isnan(x[k]));
        }
    }
    ru_dataset_close(other);
    ru_dataset_close(d);
    assert_int_equal(open_text("a,y\n,1\n?,0\n", opt, &d, &err), RU_E_CONFIG); /* no 'id' */
    p.ignore.n = 0;
    assert_int_equal(open_text("a,y\n,1\n?,0\n", opt, &d, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "every row has a cell without a value"));
    p.missing = RU_MISSING_MEAN;
    assert_int_equal(open_text("a,y\n,1\n?,0\n", opt, &d, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "column 'a' has no value in the training data"));
}

static void test_categories(void **state)
{
    (void)state;
    const struct {
        ru_conf_texts names;
        const char *word; /* NULL: the inputs are `want` */
        int inputs;
    } rows[] = {
        {{0}, NULL, 3},
        {{(const char *const[]){"auto"}, 1}, NULL, 3},
        {{(const char *const[]){"b"}, 1}, NULL, 3},
        {{(const char *const[]){"2"}, 1}, NULL, 3},
        {{(const char *const[]){"a", "auto"}, 2}, NULL, 4},
        {{(const char *const[]){"a"}, 1}, "column 2 (b) is 'u', but a number was expected", 0},
        {{(const char *const[]){"none"}, 1}, "column 2 (b) is 'u', but a number was expected", 0},
        {{(const char *const[]){"z"}, 1}, "categorical names 'z', which is no input column", 0},
        {{(const char *const[]){"y"}, 1}, "categorical names 'y', which is no input column", 0},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_err err = {0};
        ru_dataset *d;
        const ru_columns_options p = {.categorical = rows[k].names};
        ru_status st =
            open_text("a,b,y\n1,u,0\n3,1,1\n", (ru_data_options){.prepare = &p}, &d, &err);
        if (rows[k].word != NULL) {
            assert_int_not_equal(st, RU_OK);
            assert_non_null(strstr(err.text, rows[k].word));
            continue;
        }
        assert_ok(st, err); /* "1" stands before "u" */
        const double numbers[] = {-1, 0, 1}, texts[] = {1, 0, 0, 1};
        assert_int_equal(ru_columns_inputs(ru_dataset_columns(d)), rows[k].inputs);
        expect_row(d, 0, rows[k].inputs == 3 ? numbers : texts, rows[k].inputs);
        ru_dataset_close(d);
    }
}

/* Held-out samples teach nothing: the others have mean 0 and deviation 1, and a text that only they
 * have is no category. */
static void test_held_out(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_dataset *d, *held;
    char text[400] = "a,b,y\n";
    const ru_columns_options p = {.normalize = 1};
    for (int k = 0; k < 20; k++) {
        size_t n = strlen(text);
        (void)snprintf(text + n, sizeof text - n, "%d,t%02d,%d\n", k * k, k, k % 2);
    }
    ru_data_options opt = {.prepare = &p, .held = 0.25};
    assert_ok(open_text(text, opt, &d, &err), err);
    const ru_columns *c = ru_dataset_columns(d);
    assert_int_equal(ru_columns_inputs(c), 16);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < 15; i++) {
        float x[16];
        int64_t y;
        void *fields[] = {x, &y};
        assert_ok(ru_dataset_read(d, i, fields, &err), err);
        sum += (double)x[0];
        squares += (double)x[0] * (double)x[0];
    }
    assert_true(fabs(sum) < 1e-4 && fabs(squares / 15 - 1) < 1e-5);
    opt.columns = c;
    opt.held_out = true;
    assert_ok(open_text(text, opt, &held, &err), err);
    assert_int_equal(ru_dataset_count(held), 5);
    for (int64_t i = 0; i < 5; i++) {
        float x[16], ones = 0;
        int64_t y;
        void *fields[] = {x, &y};
        assert_ok(ru_dataset_read(held, i, fields, &err), err);
        for (int k = 1; k < 16; k++) {
            ones += x[k];
        }
        assert_true(ones == 0);
    }
    ru_dataset_close(held);
    ru_dataset_close(d);
}

/* A finite number whose normalised value is none: of a row held out, of another file, of a line. */
static void test_far(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_dataset *d;
    ru_arena arena;
    ru_rows *r;
    bool row;
    float x[1];
    char text[400] = "a,y\n";
    const ru_columns_options p = {.normalize = 1};
    for (int k = 0; k < 20; k++) {
        size_t n = strlen(text);
        (void)snprintf(text + n, sizeof text - n, "%d,%d\n", k % 2, k % 2);
    }
    assert_ok(open_text(text, (ru_data_options){.prepare = &p}, &d, &err), err);
    ru_data_options opt = {.columns = ru_dataset_columns(d)};
    ru_dataset *other;
    assert_int_equal(open_text("a,y\n0,0\n3e38,1\n", opt, &other, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, ".csv:3: column 'a' is 3e+38, too far from the mean 0.5 of"));
    ru_arena_init(&arena, 0);
    assert_ok(ru_rows_open(opt.columns, "stdin", &arena, &r, &err), err);
    assert_int_equal(ru_rows_line(r, ru_str_c("3e38"), x, &row, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "stdin:1: column 'a' is 3e+38, too far from the mean"));
    ru_rows_close(r);
    ru_arena_fini(&arena);
    ru_dataset_close(d);
    /* The rows that are held out are the same in every run: each place is tried. */
    uint32_t refused = 0;
    for (int at = 0; at < 20; at++) {
        (void)strcpy(text, "a,y\n");
        for (int k = 0; k < 20; k++) {
            size_t n = strlen(text);
            (void)snprintf(text + n, sizeof text - n, "%s,%d\n",
                           k == at      ? "3e38"
                           : k % 2 == 0 ? "1e-20"
                                        : "3e-20",
                           k % 2);
        }
        ru_status st = open_text(text, (ru_data_options){.prepare = &p, .held = 0.25}, &d, &err);
        if (st == RU_OK) {
            ru_dataset_close(d);
            continue;
        }
        assert_non_null(strstr(err.text, "column 'a' is 3e+38, too far from the mean"));
        refused++;
    }
    assert_int_equal(refused, 5);
}

static void test_ignored(void **state)
{
    (void)state;
    static const struct {
        const char *name, *word;
    } rows[] = {
        {"y", "which is the label"},
        {"z", "neither a name in the first line nor the number of a column"},
        {"9", "neither a name in the first line nor the number of a column"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_err err = {0};
        ru_dataset *d;
        const ru_columns_options p = {.ignore = NAMES(rows[k].name)};
        assert_int_equal(open_text("a,b,y\n1,2,0\n", (ru_data_options){.prepare = &p}, &d, &err),
                         RU_E_CONFIG);
        assert_non_null(strstr(err.text, rows[k].word));
    }
}

RU_TESTS(data_columns_learn, cmocka_unit_test(test_closed_form), cmocka_unit_test(test_other_files),
         cmocka_unit_test(test_missing), cmocka_unit_test(test_categories),
         cmocka_unit_test(test_held_out), cmocka_unit_test(test_far),
         cmocka_unit_test(test_ignored))
