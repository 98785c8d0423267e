/* Columns by name: other orders, extra and missing names, lines without names. */
#include "data/format/columns.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "data/reader.h"
#include "test/test.h"

static char names[8][64];
static int next_name;

static const char *file_of(const char *text, size_t n)
{
    char *name = names[next_name++ % 8];
    if (name[0] != '\0') {
        (void)unlink(name);
    }
    (void)snprintf(name, 64, "/tmp/rubato-test-%ld-c%d.csv", (long)getpid(), next_name);
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return name;
}

static const char *file(const char *text)
{
    return file_of(text, strlen(text));
}

static ru_status open_files(const char *a, const char *b, ru_data_options opt, ru_dataset **d,
                            ru_err *err)
{
    const char *paths[] = {file(a), b != NULL ? file(b) : NULL};
    opt.format = "csv";
    opt.paths = paths;
    opt.n_paths = b != NULL ? 2 : 1;
    return ru_dataset_open(&opt, d, err);
}

static void expect_x(const ru_dataset *d, int64_t i, float a, float b)
{
    ru_err err = {0};
    float x[2] = {0};
    int64_t y;
    void *fields[] = {x, &y};
    assert_ok(ru_dataset_read(d, i, fields, &err), err);
    if (x[0] != a || x[1] != b) {
        fail_msg("sample %d is %g, %g", (int)i, (double)x[0], (double)x[1]);
    }
}

static const char train_text[] = "a,b,y\n1,2,no\n3,4,yes\n";

static void test_orders(void **state)
{
    (void)state;
    static const struct {
        const char *text, *word; /* word NULL: the second file gives 5, 6 */
    } rows[] = {
        {"a,b,y\n5,6,yes\n", NULL},
        {"b,a,y\n6,5,yes\n", NULL},
        {"y;b;a\nyes;6;5\n", NULL},
        {"\"b\", y ,a\r\n6,yes,5\r\n", NULL},
        {"b,z,y,a\n6,7,yes,5\n", NULL}, /* one more is left out */
        {"5,6,yes\n", NULL},            /* no names: the order of the first file */
        {"a,y\n5,yes\n", "there is no column 'b', which is an input"},
        {"b,a\n6,5\n", "there is no column 'y', which is the label"},
        {"b,b,a,y\n6,6,5,yes\n", "2 columns are called 'b'"},
        {"A,b,y\n5,6,yes\n", "there is no column 'a'"},
        {"b,a,y\n6,5\n", "the line has 2 columns, but 3"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_err err = {0};
        ru_dataset *d = NULL;
        ru_status st = open_files(train_text, rows[k].text, (ru_data_options){0}, &d, &err);
        if (rows[k].word != NULL) {
            assert_int_equal(st, RU_E_DATA);
            assert_non_null(strstr(err.text, rows[k].word));
            continue;
        }
        assert_ok(st, err);
        expect_x(d, 0, 1, 2);
        expect_x(d, 2, 5, 6);
        ru_dataset_close(d);
    }
}

/* The label by name, by number, in the middle; a test set by the columns of its training set. */
static void test_label_and_test_set(void **state)
{
    (void)state;
    static const struct {
        const char *label, *train, *test;
    } rows[] = {
        {NULL, "a,b,y\n1,2,0\n3,4,1\n", "y,b,a\n1,6,5\n"},
        {"y", "a,y,b\n1,0,2\n3,1,4\n", "b,a,y\n6,5,1\n"},
        {"2", "a,y,b\n1,0,2\n3,1,4\n", "b,a,y\n6,5,1\n"},
        {"2", "1,0,2\n3,1,4\n", "5,1,6\n"},
        {"y", "a,y,b\n1,0,2\n3,1,4\n", "5,1,6\n"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_err err = {0};
        ru_dataset *train = NULL, *test = NULL;
        assert_ok(open_files(rows[k].train, NULL, (ru_data_options){.label = rows[k].label}, &train,
                             &err),
                  err);
        expect_x(train, 1, 3, 4);
        ru_data_options opt = {.label = rows[k].label, .columns = ru_dataset_columns(train)};
        assert_ok(open_files(rows[k].test, NULL, opt, &test, &err), err);
        expect_x(test, 0, 5, 6);
        assert_int_equal(ru_dataset_classes(test), 2);
        ru_dataset_close(test);
        opt.unlabelled = true; /* the same without labels, and with unknown ones */
        assert_ok(open_files(rows[k].test, NULL, opt, &test, &err), err);
        const ru_field *f;
        assert_int_equal(ru_dataset_fields(test, &f), 1);
        expect_x(test, 0, 5, 6);
        ru_dataset_close(test);
        assert_ok(open_files("5,6\n", NULL, opt, &test, &err), err);
        expect_x(test, 0, 5, 6);
        ru_dataset_close(test);
        ru_dataset_close(train);
    }
}

/* The same name twice: fine as long as the order is the same. */
static void test_repeated(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_dataset *d = NULL;
    const char *text = "a,a,y\n1,2,0\n";
    assert_ok(open_files(text, "a,a,y\n3,4,1\n", (ru_data_options){0}, &d, &err), err);
    expect_x(d, 1, 3, 4);
    ru_dataset_close(d);
    assert_int_equal(open_files(text, "y,a,a\n1,3,4\n", (ru_data_options){0}, &d, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "2 columns are called 'a'"));
}

/* Encodings, line ends and separators at the end: the same two samples. */
static void test_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        const char *word; /* NULL: it can be read */
    } rows[] = {
#define TEXT(t) t, sizeof t - 1
        {TEXT("a,b,y\n1,2,no\n3,4,yes\n"), NULL},
        {TEXT("a,b,y\r1,2,no\r3,4,yes\r"), NULL},
        {TEXT("a,b,y,\n1,2,no,\n3,4,yes,\n"), NULL},
        {TEXT("a,b,y\n1,2,no,\n3,4,yes,\n"), NULL},
        {TEXT("\xff\xfe"
              "a\0,\0b\0,\0y\0\n\0001\0,\0002\0,\0n\0o\0\n\0003\0,\0004\0,\0y\0e\0s\0\n\0"),
         NULL},
        {TEXT("\xfe\xff\0a\0,\0b\0,\0y\0\n\0001\0,\0002\0,\0n\0o\0\n\0003\0,\0004\0,\0y\0e\0s"),
         NULL},
        {TEXT("a\0,\0b\0,\0y\0\n\0"), "byte 1 is 0, so the file is no text in UTF-8"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_err err = {0};
        ru_dataset *d = NULL;
        const char *path = file_of(rows[k].text, rows[k].n);
        const ru_data_options opt = {.format = "csv", .paths = &path, .n_paths = 1};
        ru_status st = ru_dataset_open(&opt, &d, &err);
        if (rows[k].word != NULL) {
            assert_int_equal(st, RU_E_DATA);
            assert_non_null(strstr(err.text, rows[k].word));
            continue;
        }
        assert_ok(st, err);
        assert_int_equal(ru_dataset_count(d), 2);
        expect_x(d, 1, 3, 4);
        assert_string_equal(ru_dataset_class_name(d, 1), "yes");
        ru_dataset_close(d);
    }
}

/* Latin-1 becomes UTF-8, so that a run can store the names. */
static void test_latin(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_dataset *d = NULL;
    assert_ok(open_files("1,2,gr\xfcn\n3,4,rot\n", NULL, (ru_data_options){0}, &d, &err), err);
    assert_string_equal(ru_dataset_class_name(d, 0), "gr\xc3\xbcn");
    ru_dataset_close(d);
}

/* Whole numbers written with a point are classes where the loss wants some. */
static void test_whole_labels(void **state)
{
    (void)state;
    ru_err err = {0};
    for (int k = 0; k < 4; k++) {
        ru_dataset *d = NULL;
        const ru_data_options opt = {.whole_classes = k % 2 == 1};
        assert_ok(open_files(k < 2 ? "1,0.0\n2,1.0\n" : "1,0.5\n2,1.0\n", NULL, opt, &d, &err),
                  err);
        assert_int_equal(ru_dataset_classes(d), k == 1 ? 2 : 0);
        ru_dataset_close(d);
    }
}

static void test_lines(void **state)
{
    (void)state;
    static const ru_column at[] = {{.name = "a", .place = 0}, {.name = "b", .place = 2}};
    const ru_columns c = {
        .at = at, .n = 2, .named = true, .width = 3, .label = "y", .label_place = 1};
    static const struct {
        const char *first, *second;
    } rows[] = {
        {"b,a\n", "6,5\n"}, {"b;y;a\r\n", "6;?;5\r\n"}, {"", "5,6"},
        {"", "5,1,6"},      {"a,b", "\"5\", 6 \n"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_err err = {0};
        ru_arena arena;
        ru_rows *r;
        bool row;
        float x[2];
        ru_arena_init(&arena, 0);
        assert_ok(ru_rows_open(&c, "stdin", &arena, &r, &err), err);
        assert_ok(ru_rows_line(r, ru_str_c(rows[k].first), x, &row, &err), err);
        assert_false(row);
        for (int i = 0; i < 2; i++) {
            assert_ok(ru_rows_line(r, ru_str_c(rows[k].second), x, &row, &err), err);
            assert_true(row && x[0] == 5 && x[1] == 6);
        }
        assert_int_equal(ru_rows_line(r, ru_str_c("1"), x, &row, &err), RU_E_DATA);
        assert_non_null(strstr(err.text, "stdin:4: the line has 1 columns"));
        ru_rows_close(r);
        ru_arena_fini(&arena);
    }
}

RU_TESTS(data_columns, cmocka_unit_test(test_orders), cmocka_unit_test(test_label_and_test_set),
         cmocka_unit_test(test_repeated), cmocka_unit_test(test_texts),
         cmocka_unit_test(test_latin), cmocka_unit_test(test_whole_labels),
         cmocka_unit_test(test_lines))
