/* Sparse formats: what stands in a file is in the rows, and every mistake is named with its line.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "data/format/sparse.h"
#include "test/test.h"

static char names[4][64];
static int next_name;

static const char *file_of(const char *text)
{
    char *name = names[next_name++ % 4];
    snprintf(name, 64, "/tmp/rubato-sparse-%ld-%d", (long)getpid(), next_name);
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
    return name;
}

static ru_sparse_file *open_text(const char *format, const char *text, ru_sparse_options opt)
{
    const char *path = file_of(text);
    opt.format = format;
    opt.paths = &path;
    opt.n_paths = 1;
    ru_err err = {0};
    ru_sparse_file *f = NULL;
    assert_ok(ru_sparse_open(&opt, &f, &err), err);
    (void)unlink(path);
    return f;
}

static void refused(const char *format, const char *text, const char *word)
{
    const char *path = file_of(text);
    ru_sparse_options opt = {.format = format, .paths = &path, .n_paths = 1};
    ru_err err = {0};
    ru_sparse_file *f = NULL;
    assert_int_equal(ru_sparse_open(&opt, &f, &err), RU_E_DATA);
    if (strstr(err.text, word) == NULL) {
        fail_msg("'%s' lacks '%s'", err.text, word);
    }
    (void)unlink(path);
}

/* "0:1 3:2.5 | 1:4": rows as text. */
static void rows_are(const ru_sparse_file *f, const char *want)
{
    ru_sparse part;
    ru_sparse_part(f, 0, ru_sparse_rows(f), &part);
    char text[1024];
    ru_text t = ru_text_into(text, sizeof text);
    for (int64_t r = 0; r < part.rows; r++) {
        ru_text_put(&t, r > 0 ? "| " : "");
        for (int64_t i = part.begin[r]; i < part.begin[r + 1]; i++) {
            ru_text_putf(&t, "%lld:%g ",
                         (long long)(part.col != NULL ? part.col[i] : i - part.begin[r]),
                         (double)part.value[i]);
        }
    }
    assert_string_equal(text, want);
}

static void test_libsvm(void **state)
{
    (void)state;
    ru_sparse_file *f = open_text("libsvm", "-1 1:0.5 4:2\n+1 2:-3 # words\n\n1\n",
                                  (ru_sparse_options){.labels = true});
    rows_are(f, "0:0.5 3:2 | 1:-3 | ");
    assert_int_equal(ru_sparse_cols(f), 4);
    assert_int_equal(ru_sparse_classes(f), 2);
    ru_sparse part;
    ru_sparse_part(f, 1, 2, &part);
    assert_true(part.label[0] == 1.0f && part.begin[0] == 2 && part.first == 1);
    ru_sparse_close(f);
    f = open_text("libsvm", "0.5 0:1\n2 1:1\n", (ru_sparse_options){0});
    rows_are(f, "0:1 | 1:1 ");
    assert_int_equal(ru_sparse_classes(f), 0);
    ru_sparse_close(f);
    refused("libsvm", "1 1:1\n1 3:1 2:1\n", ":2: found '2:1', expected a larger feature number");
    refused("libsvm", "1 1:nan\n", ":1: found '1:nan', expected a finite number");
    refused("libsvm", "1 1:1\nx 1:1\n", ":2: found 'x', expected a label");
    refused("libsvm", "1 -4:1\n", "expected a feature number");
    refused("libsvm", "1 200000000:1\n", "number them without such gaps");
    refused("libsvm", "", "no line has a feature");
}

static void test_ratings(void **state)
{
    (void)state;
    static const char *const same[] = {
        "3\t2\t4\t881250949\n1\t1\t5\t0\n3\t1\t1.5\t7\n",
        "user,item,rating\n3,2,4\n1,1,5\n3,1,1.5\n",
        "3::2::4\n1::1::5\n3::1::1.5\n",
        "3 2 4\r\n1 1 5\r\n3 1 1.5\r\n",
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(same); k++) {
        ru_sparse_file *f = open_text("ratings", same[k], (ru_sparse_options){0});
        rows_are(f, "0:5 | | 0:1.5 1:4 ");
        assert_int_equal(ru_sparse_numbered(f), RU_NUMBERS_FROM_1);
        ru_sparse_close(f);
    }
    ru_sparse_file *f = open_text("ratings", "0 2 4\n", (ru_sparse_options){.rows = 2, .cols = 5});
    rows_are(f, "2:4 | ");
    assert_int_equal(ru_sparse_cols(f), 5);
    ru_sparse_close(f);
    refused("ratings", "1 1 5\n1 2\n", ":2: the line has 2 columns");
    refused("ratings", "1 1 5\n1 2 3 4\n", ":2: the line has 4 columns");
    refused("ratings", "1 1 5\n-1 2 3\n", ":2: found '-1', expected a user");
    refused("ratings", "1 1 5\n1 2.5 3\n", ":2: found '2.5', expected an item");
    refused("ratings", "1 1 inf\n", ":1: found 'inf', expected a finite value");
    refused("ratings", "user,item,value\n", "no ratings");
}

static void test_bag_of_words(void **state)
{
    (void)state;
    ru_sparse_file *f =
        open_text("bow", "3\n4\n4\n1 2 1\n1 4 3\n3 1 2\n3 3 1\n", (ru_sparse_options){0});
    rows_are(f, "1:1 3:3 | | 0:2 2:1 ");
    ru_sparse_close(f);
    refused("bow", "3\n4\n2\n1 5 1\n1 1 1\n", ":4: found '5', expected a word within");
    refused("bow", "3\n4\n2\n1 1 1\n", "ends after 1 of 2 entries");
    refused("bow", "3\n4\n2\n1 1 0.5\n1 2 1\n", ":4: found '0.5', expected a count");
    refused("bow", "3 4\n", "the number of documents");
    refused("bow", "3\n4\n2\n1 1 1\n9 2 1\n", ":5: found '9', expected a document within");
}

static void test_text(void **state)
{
    (void)state;
    ru_sparse_file *f =
        open_text("text", "The cat, the hat\n\nA caf\xc3\xa9 cat!\n", (ru_sparse_options){0});
    rows_are(f, "0:2 1:1 2:1 | | 1:1 3:1 ");
    assert_string_equal(ru_sparse_col_name(f, 0), "the");
    assert_string_equal(ru_sparse_col_name(f, 3), "caf\xc3\xa9");
    assert_null(ru_sparse_col_name(f, 4));
    ru_sparse_close(f);
    f = open_text("text", "hat the unknown", (ru_sparse_options){.words = "the\ncat\nhat\n"});
    rows_are(f, "0:1 2:1 ");
    ru_sparse_close(f);
    refused("text", " . \n", "no word");
}

static void test_dense_and_cut(void **state)
{
    (void)state;
    ru_sparse_file *f =
        open_text("csv", "a,b,y\n1,2,0\n3,4,1\n5,6,1\n", (ru_sparse_options){.labels = true});
    rows_are(f, "0:1 1:2 | 0:3 1:4 | 0:5 1:6 ");
    int64_t first[4];
    ru_sparse_cut(f, 3, first);
    assert_true(first[0] == 0 && first[1] == 1 && first[2] == 2 && first[3] == 3);
    ru_sparse_close(f);
    f = open_text("csv", "1,2\n3,4\n", (ru_sparse_options){0});
    rows_are(f, "0:1 1:2 | 0:3 1:4 ");
    ru_sparse_close(f);
    refused("csv", "1,2\n3\n", ":2");
    f = open_text("libsvm", "1 1:1\n1 1:1\n1 1:1 2:1 3:1 4:1\n1 1:1\n", (ru_sparse_options){0});
    ru_sparse_cut(f, 2, first); /* costs 2, 2, 5, 2: half of them is reached in the third row */
    assert_true(first[0] == 0 && first[1] == 3 && first[2] == 4);
    ru_sparse_close(f);
}

/* Each line of ratings is found again, in the order of the file, whatever that is. */
static void test_lines_of_ratings(void **state)
{
    (void)state;
    static const int64_t want[][3] = {{25, 54, 1}, {17, 66, 4}, {3, 2, 5},
                                      {17, 66, 2}, {3, 1, 1},   {3, 2, 5}};
    char path[64];
    (void)snprintf(path, sizeof path, "/tmp/rubato-test-%ld-lines", (long)getpid());
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(want); k++) {
        (void)fprintf(f, "%d\t%d\t%d\n", (int)want[k][0], (int)want[k][1], (int)want[k][2]);
    }
    assert_int_equal(fclose(f), 0);
    const char *paths[] = {path};
    const ru_sparse_options opt = {
        .format = "ratings", .paths = paths, .n_paths = 1, .lines = true};
    ru_sparse_file *file;
    ru_err err = {0};
    assert_ok(ru_sparse_open(&opt, &file, &err), err);
    assert_int_equal(ru_sparse_lines(file), RU_ARRAY_LEN(want));
    for (uint32_t k = 0; k < RU_ARRAY_LEN(want); k++) {
        int64_t begin[2];
        ru_sparse one;
        ru_sparse_line(file, k, begin, &one);
        assert_true(one.rows == 1 && one.begin[1] == one.begin[0] + 1);
        assert_int_equal(one.first + 1, want[k][0]);
        assert_int_equal(one.col[one.begin[0]] + 1, want[k][1]);
    }
    ru_sparse_close(file);
    (void)unlink(path);
}

RU_TESTS(data_sparse, cmocka_unit_test(test_lines_of_ratings), cmocka_unit_test(test_libsvm),
         cmocka_unit_test(test_ratings), cmocka_unit_test(test_bag_of_words),
         cmocka_unit_test(test_text), cmocka_unit_test(test_dense_and_cut))
