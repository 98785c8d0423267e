/* Every format against files written by other programs (test/data/make_reader.py), and the
 * sentences for damaged ones. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "data/reader.h"
#include "env/file/file.h"
#include "test/test.h"
#include "test/where.h"

#define AT(name) RU_SOURCE_ROOT "/test/data/reader/" name

static ru_dataset *open_with(ru_data_options opt)
{
    ru_err err = {0};
    ru_dataset *d = NULL;
    assert_ok(ru_dataset_open(&opt, &d, &err), err);
    return d;
}

/* Temporary file with this text; the name stays valid until the next call but seven. */
static char temp_names[8][64];
static int temp_next;

static const char *text_file(const char *ending, const void *data, size_t n)
{
    int next = temp_next++;
    char *name = temp_names[next % 8];
    if (name[0] != '\0') {
        (void)unlink(name);
    }
    snprintf(name, 64, "/tmp/rubato-test-%ld-%d%s", (long)getpid(), next, ending);
    FILE *f = fopen(name, "wb"); /* not ru_file_replace: thousands of syncs take a minute */
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return name;
}

/* Opening (and reading all of it) fails, and the sentence holds `word`. */
static void expect_failure(ru_data_options opt, ru_status want, const char *word)
{
    ru_err err = {0};
    ru_dataset *d = NULL;
    ru_status st = ru_dataset_open(&opt, &d, &err);
    if (st == RU_OK) {
        const ru_field *f;
        uint32_t n = ru_dataset_fields(d, &f);
        void *fields[RU_FIELDS_MAX];
        for (uint32_t k = 0; k < n; k++) {
            fields[k] = malloc((size_t)ru_type_bytes(&f[k].type));
        }
        for (int64_t i = 0; st == RU_OK && i < ru_dataset_count(d); i++) {
            st = ru_dataset_read(d, i, fields, &err);
        }
        for (uint32_t k = 0; k < n; k++) {
            free(fields[k]);
        }
        ru_dataset_close(d);
    }
    if (st != want || strstr(err.text, word) == NULL) {
        fail_msg("wanted %s with '%s', got %s: %s", ru_status_name(want), word, ru_status_name(st),
                 err.text);
    }
}

static void read_one(const ru_dataset *d, int64_t i, void *a, void *b)
{
    ru_err err = {0};
    void *fields[RU_FIELDS_MAX] = {a, b};
    assert_ok(ru_dataset_read(d, i, fields, &err), err);
}

static void test_idx(void **state)
{
    (void)state;
    const char *const plain[] = {AT("images.idx"), AT("labels.idx")};
    const char *const packed[] = {AT("images.idx.gz"), AT("labels.idx")};
    const int64_t labels[] = {3, 0, 1, 3, 2};
    for (int k = 0; k < 3; k++) { /* resident, by positioned reads, unpacked */
        ru_dataset *d = open_with((ru_data_options){.format = "idx",
                                                    .paths = k < 2 ? plain : packed,
                                                    .n_paths = 2,
                                                    .resident_max_bytes = k == 1 ? -1 : 0});
        assert_int_equal(ru_dataset_count(d), 5);
        assert_int_equal(ru_dataset_classes(d), 4);
        const ru_field *f;
        assert_int_equal(ru_dataset_fields(d, &f), 2);
        assert_int_equal(f[0].type.rank, 3);
        assert_int_equal(f[0].type.dims[1], 4);
        assert_int_equal(f[0].type.dims[2], 3);
        for (int64_t i = 0; i < 5; i++) {
            float x[12];
            int64_t y;
            read_one(d, i, x, &y);
            assert_int_equal(y, labels[i]);
            for (int64_t j = 0; j < 12; j++) {
                assert_true(fabsf(x[j] - (float)((i * 12 + j) * 4) / 255.0f) < 1e-7f);
            }
        }
        ru_dataset_close(d);
    }
    const char *const floats[] = {AT("floats.idx")};
    ru_dataset *d = open_with((ru_data_options){.format = "idx", .paths = floats, .n_paths = 1});
    float x[2];
    read_one(d, 3, x, NULL);
    assert_true(x[0] == 0.5f && x[1] == 0.75f);
    ru_dataset_close(d);
}

static void test_idx_damaged(void **state)
{
    (void)state;
    const char *swapped[] = {AT("labels.idx"), AT("images.idx")};
    ru_data_options opt = {.format = "idx", .paths = swapped, .n_paths = 2};
    expect_failure(opt, RU_E_DATA, "swapped");
    const uint8_t cut[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7};
    const char *paths[] = {text_file("", cut, sizeof cut), AT("labels.idx")};
    opt = (ru_data_options){.format = "idx", .paths = paths, .n_paths = 1};
    expect_failure(opt, RU_E_DATA, "cut short");
    paths[0] = text_file("", cut, 9);
    expect_failure(opt, RU_E_DATA, "inside its header");
    const uint8_t huge[] = {0,    0,    8,    3,    0xff, 0xff, 0xff, 0xff,
                            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    paths[0] = text_file("", huge, sizeof huge);
    expect_failure(opt, RU_E_DATA, "header");
    paths[0] = text_file("", "hello there", 11);
    expect_failure(opt, RU_E_DATA, "expected an IDX header");
    paths[0] = AT("images.idx");
    opt.n_paths = 2;
    opt.classes = 3;
    expect_failure(opt, RU_E_DATA, "label 3 of sample 0");
    paths[0] = "/nowhere/images";
    expect_failure(opt, RU_E_MISSING, "/nowhere/images");
}

static void test_cifar(void **state)
{
    (void)state;
    const char *const paths[] = {AT("cifar10.bin.gz"), AT("cifar10.bin.gz")};
    ru_dataset *d =
        open_with((ru_data_options){.format = "cifar", .paths = paths, .n_paths = 2, .raw = true});
    const int64_t labels[] = {9, 0, 4, 9, 0, 4};
    assert_int_equal(ru_dataset_count(d), 6);
    for (int64_t i = 0; i < 6; i++) {
        uint8_t x[3072];
        int64_t y;
        read_one(d, i, x, &y);
        assert_int_equal(y, labels[i]);
        for (int64_t j = 0; j < 3072; j++) {
            assert_int_equal(x[j], (j * 7 + i % 3) % 256);
        }
    }
    ru_dataset_close(d);
    uint8_t hundred[3074] = {7, 99};
    const char *one[] = {text_file(".bin", hundred, sizeof hundred)};
    d = open_with((ru_data_options){.format = "cifar", .paths = one, .n_paths = 1});
    float x[3072];
    int64_t y;
    read_one(d, 0, x, &y);
    assert_int_equal(y, 99);
    ru_dataset_close(d);
    one[0] = text_file(".bin", hundred, 3073);
    hundred[0] = 10;
    one[0] = text_file(".bin", hundred, 3073);
    ru_data_options opt = {.format = "cifar", .paths = one, .n_paths = 1};
    expect_failure(opt, RU_E_DATA, "label 10");
    one[0] = text_file(".bin", hundred, 3000);
    expect_failure(opt, RU_E_DATA, "multiple of a CIFAR record");
}

static void test_npy(void **state)
{
    (void)state;
    const char *const files[] = {AT("x.npy"), AT("y.npy")}, *const both[] = {AT("both.npz")};
    const int64_t labels[] = {0, 2, 1, 1, 0, 2};
    for (int k = 0; k < 3; k++) {
        ru_dataset *d = open_with((ru_data_options){.format = "npy",
                                                    .paths = k < 2 ? files : both,
                                                    .n_paths = k < 2 ? 2 : 1,
                                                    .resident_max_bytes = k == 1 ? -1 : 0});
        assert_int_equal(ru_dataset_count(d), 6);
        assert_int_equal(ru_dataset_classes(d), 3);
        for (int64_t i = 0; i < 6; i++) {
            float x[2];
            int64_t y;
            read_one(d, i, x, &y);
            assert_int_equal(y, labels[i]);
            assert_true(x[0] == (float)(2 * i) / 8.0f && x[1] == (float)(2 * i + 1) / 8.0f);
        }
        ru_dataset_close(d);
    }
    const char *short_y[] = {AT("x.npy"), AT("tokens.u16")};
    ru_data_options opt = {.format = "npy", .paths = short_y, .n_paths = 2};
    expect_failure(opt, RU_E_DATA, "tokens.u16");
}

/* Labels of shape [n, 1], as a column of a table is cut out in numpy, are labels of shape [n]. */
static void test_a_column_of_labels(void **state)
{
    (void)state;
    char text[128 + 6] = "\x93NUMPY\x01\0\x76";
    const char head[] = "{'descr': '|i1', 'fortran_order': False, 'shape': (6, 1), }";
    memset(text + 10, ' ', 118);
    memcpy(text + 10, head, sizeof head - 1);
    memcpy(text + 127, "\n\0\2\1\1\0\2", 7);
    const char *paths[] = {AT("x.npy"), text_file(".npy", text, sizeof text)};
    ru_dataset *d = open_with((ru_data_options){.format = "npy", .paths = paths, .n_paths = 2});
    assert_int_equal(ru_dataset_classes(d), 3);
    int64_t y;
    float x[2];
    read_one(d, 1, x, &y);
    assert_int_equal(y, 2);
    ru_dataset_close(d);
}

/* A .npy file of f32 [n, 2] whose element `at` is `odd`, the others their number. */
static const char *npy_with(int64_t n, int64_t at, float odd)
{
    char text[128 + 64 * sizeof(float)] = "\x93NUMPY\x01";
    const size_t head = 128, begin = 10;
    assert_true(2 * n <= 64);
    int used = snprintf(text + begin, head - begin,
                        "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 2), }", (int)n);
    assert_true(used > 0);
    memset(text + begin + used, ' ', head - begin - (size_t)used);
    text[head - 1] = '\n';
    text[8] = (char)(head - begin);
    for (int64_t i = 0; i < 2 * n; i++) {
        float x = i == at ? odd : (float)i;
        memcpy(text + head + (size_t)i * sizeof x, &x, sizeof x);
    }
    return text_file(".npy", text, head + (size_t)(2 * n) * sizeof(float));
}

/* What no training can use is named where it is read: file, sample, element. */
static void test_numbers_are_finite(void **state)
{
    (void)state;
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(odd); k++) {
        const char *paths[] = {npy_with(32, 35, odd[k])};
        ru_data_options opt = {.format = "npy", .paths = paths, .n_paths = 1};
        expect_failure(opt, RU_E_DATA, paths[0]);
        expect_failure(opt, RU_E_DATA, "sample 17 (counted from 0): element 1 of 'x' is");
        expect_failure(opt, RU_E_DATA, k == 0 ? "not a number" : "infinite");
        opt.skip_damaged = true;
        ru_dataset *d = open_with(opt);
        float x[2];
        read_one(d, 17, x, NULL);
        assert_true(x[0] == 36.0f && x[1] == 37.0f); /* the next sample stands in */
        assert_int_equal(ru_dataset_skipped(d), 1);
        ru_dataset_close(d);
        opt.blank_damaged = true;
        d = open_with(opt);
        read_one(d, 17, x, NULL);
        assert_true(isnan(x[0]) && isnan(x[1])); /* nothing stands in */
        assert_int_equal(ru_dataset_skipped(d), 1);
        read_one(d, 18, x, NULL);
        assert_true(x[0] == 36.0f && x[1] == 37.0f);
        ru_dataset_close(d);
        opt.blank_damaged = false;
        opt.only_good = true;
        d = open_with(opt);
        assert_int_equal(ru_dataset_count(d), 31);
        read_one(d, 16, x, NULL);
        assert_true(x[0] == 32.0f && x[1] == 33.0f);
        read_one(d, 17, x, NULL); /* number 18 of the file, and counted once */
        assert_true(x[0] == 36.0f && x[1] == 37.0f);
        assert_int_equal(ru_dataset_skipped(d), 1);
        ru_dataset_close(d);
        opt.skip_damaged = opt.only_good = false;
        opt.raw = true; /* as stored: for copies and descriptions */
        d = open_with(opt);
        read_one(d, 17, x, NULL);
        assert_true(!isfinite(x[1]));
        ru_dataset_close(d);
    }
    const char *all[] = {npy_with(1, 1, NAN)};
    const ru_data_options none = {
        .format = "npy", .paths = all, .n_paths = 1, .skip_damaged = true, .only_good = true};
    expect_failure(none, RU_E_DATA, "every sample is damaged; the first: ");
    const char *csv[] = {text_file(".csv", "1,2,0\n3,1e39,1\n", 15)};
    expect_failure((ru_data_options){.format = "csv", .paths = csv, .n_paths = 1}, RU_E_DATA,
                   ":2: column 2 is '1e39', which is too large for a 32-bit number");
    const char *target[] = {text_file(".csv", "1,2,0.5\n3,1,-1e39\n", 18)};
    expect_failure((ru_data_options){.format = "csv", .paths = target, .n_paths = 1}, RU_E_DATA,
                   ":2: the label '-1e39' is not a number of 32 bits");
    const char *svm[] = {text_file(".svm", "1 1:2\n0 2:1e39\n", 15)};
    expect_failure((ru_data_options){.format = "libsvm", .paths = svm, .n_paths = 1}, RU_E_DATA,
                   ":2: found '2:1e39', expected a finite number");
}

static void test_tokens(void **state)
{
    (void)state;
    const char *const paths[] = {AT("tokens.u16")};
    ru_dataset *d = open_with((ru_data_options){
        .format = "tokens", .paths = paths, .n_paths = 1, .context = 4, .stride = 3});
    assert_int_equal(ru_dataset_count(d), 7); /* starts 0, 3, ... 18: 18 + 4 < 23 */
    assert_int_equal(ru_dataset_classes(d), 1023);
    for (int64_t i = 0; i < 7; i++) {
        int64_t ids[4], y[4];
        read_one(d, i, ids, y);
        for (int64_t j = 0; j < 4; j++) {
            assert_int_equal(ids[j], 1000 + 3 * i + j);
            assert_int_equal(y[j], 1001 + 3 * i + j);
        }
    }
    ru_dataset_close(d);
    const char *text[] = {text_file(".txt", "hello", 5), text_file(".txt", "abc", 3),
                          text_file(".txt", "worlds", 6)};
    d = open_with((ru_data_options){
        .format = "tokens", .paths = text, .n_paths = 3, .context = 3, .stride = 1, .raw = true});
    assert_int_equal(ru_dataset_count(d), 2 + 0 + 3);
    uint8_t ids[3], y[3];
    read_one(d, 2, ids, y);
    assert_memory_equal(ids, "wor", 3);
    assert_memory_equal(y, "orl", 3);
    ru_dataset_close(d);
    ru_data_options opt = {
        .format = "tokens", .paths = paths, .n_paths = 1, .context = 4, .classes = 1010};
    expect_failure(opt, RU_E_DATA, "token 1010 at byte 20");
    opt.context = 23;
    expect_failure(opt, RU_E_DATA, "too few");
    opt = (ru_data_options){
        .format = "tokens", .paths = text, .n_paths = 1, .context = 2, .token_bytes = 2};
    expect_failure(opt, RU_E_DATA, "multiple of 2-byte tokens");
}

/* -- csv and libsvm ---------------------------------------------------------------------------- */

static void test_csv(void **state)
{
    (void)state;
    const char text[] = "\xef\xbb\xbf"
                        "a,\"b \"\"q\"\"\",kind\r\n1,2.5,cat\r\n\r\n-3e2,\"4\",\"dog\"\r\n"
                        "0.1, 7 ,cat";
    const char *paths[] = {text_file(".csv", text, sizeof text - 1)};
    ru_dataset *d = open_with((ru_data_options){.format = "csv", .paths = paths, .n_paths = 1});
    assert_int_equal(ru_dataset_count(d), 3);
    assert_int_equal(ru_dataset_classes(d), 2);
    assert_string_equal(ru_dataset_class_name(d, 1), "dog");
    const float want[3][2] = {{1.0f, 2.5f}, {-300.0f, 4.0f}, {0.1f, 7.0f}};
    const int64_t labels[] = {0, 1, 0};
    for (int64_t i = 0; i < 3; i++) {
        float x[2];
        int64_t y;
        read_one(d, i, x, &y);
        assert_memory_equal(x, want[i], sizeof x);
        assert_int_equal(y, labels[i]);
    }
    ru_dataset_close(d);
    const char *const names[] = {"dog", "cat", "cow"};
    d = open_with((ru_data_options){.format = "csv",
                                    .paths = paths,
                                    .n_paths = 1,
                                    .class_names = names,
                                    .n_class_names = 3,
                                    .one_hot = true});
    float x[2], hot[3];
    read_one(d, 0, x, hot);
    assert_true(hot[0] == 0.0f && hot[1] == 1.0f && hot[2] == 0.0f);
    ru_dataset_close(d);
    paths[0] = text_file(".csv", "1;2.5;3\n4;5.25;6\n", 17);
    d = open_with((ru_data_options){.format = "csv", .paths = paths, .n_paths = 1, .label = "2"});
    float y;
    read_one(d, 1, x, &y);
    assert_true(x[0] == 4.0f && x[1] == 6.0f && y == 5.25f);
    assert_int_equal(ru_dataset_classes(d), 0);
    ru_dataset_close(d);
}

/* The values of many spellings of numbers are strtof's of the same text. */
static void test_csv_numbers(void **state)
{
    (void)state;
    static const char *const words[] = {"0",
                                        "-0.0",
                                        "1e-3",
                                        "3.14159265358979323846",
                                        "1e22",
                                        "+5",
                                        "123456789012345678",
                                        "1e-40",
                                        "9007199254740993",
                                        ".5",
                                        "5.",
                                        "1.7976931348623157e30",
                                        "2.2250738585072011e-30",
                                        "1E+5",
                                        "0.1",
                                        "1e23",
                                        "8.98846567431158e30",
                                        "4.9e-32"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(words); k++) {
        char line[128];
        int n = snprintf(line, sizeof line, "%s,1\n", words[k]);
        const char *paths[] = {text_file(".csv", line, (size_t)n)};
        ru_dataset *d = open_with((ru_data_options){.format = "csv", .paths = paths, .n_paths = 1});
        float x, want = (float)strtod(words[k], NULL);
        int64_t y;
        read_one(d, 0, &x, &y);
        assert_memory_equal(&x, &want, sizeof x);
        ru_dataset_close(d);
    }
}

static void test_csv_damaged(void **state)
{
    (void)state;
    static const struct {
        const char *text, *word;
    } rows[] = {
        {"a,b\n1,2\n,3\n", ":3: column 1 (a) has no value"},
        {"1,2,0\n3,NA,1\n", ":2: column 2 has no value"},
        {"1,2,0\n3,x7,1\n", ":2: column 2 is 'x7'"},
        {"1,2,0\n3,4\n", ":2: the line has 2 columns, but 3"},
        {"1,2,0\n3,4,5,6\n", ":2: the line has 4 columns, but 3"},
        {"1,\"2,0\n3,4,1\n", "without a closing quote"},
        {"1,\"2\"z,0\n", "after its closing quote"},
        {"1,2,0\n1,inf,1\n", ":2: column 2 is 'inf'"},
        {"1,2,0\n1,2,\n", ":2: column 3 has no value"},
        {"1,2,-1\n1,2,3\n2,3,1.5\n", ""},
        {"a,b\n", "no samples"},
        {"", "no samples"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        const char *paths[] = {text_file(".csv", rows[k].text, strlen(rows[k].text))};
        ru_data_options opt = {.format = "csv", .paths = paths, .n_paths = 1};
        if (rows[k].word[0] != '\0') {
            expect_failure(opt, RU_E_DATA, rows[k].word);
        } else {
            ru_dataset_close(open_with(opt)); /* regression: any number is a label */
        }
    }
    const char *paths[] = {text_file(".csv", "1,2,0\n3,x,1\n5,6,1\n", 18)};
    ru_dataset *d = open_with(
        (ru_data_options){.format = "csv", .paths = paths, .n_paths = 1, .skip_damaged = true});
    assert_int_equal(ru_dataset_count(d), 2);
    assert_int_equal(ru_dataset_skipped(d), 1);
    ru_dataset_close(d);
    ru_data_options opt = {.format = "csv", .paths = paths, .n_paths = 1, .label = "weight"};
    expect_failure(opt, RU_E_CONFIG, "'weight'");
}

static void test_libsvm(void **state)
{
    (void)state;
    const char text[] = "+1 2:0.5 4:-1 # a comment\n\n-1 1:3\r\n+1\n";
    const char *paths[] = {text_file(".svm", text, sizeof text - 1)};
    ru_dataset *d = open_with(
        (ru_data_options){.format = "libsvm", .paths = paths, .n_paths = 1, .features = 5});
    assert_int_equal(ru_dataset_count(d), 3);
    assert_int_equal(ru_dataset_classes(d), 2);
    const float want[3][5] = {{0, 0.5f, 0, -1.0f, 0}, {3.0f}, {0}};
    const int64_t labels[] = {1, 0, 1};
    for (int64_t i = 0; i < 3; i++) {
        float x[5];
        int64_t y;
        read_one(d, i, x, &y);
        assert_memory_equal(x, want[i], sizeof x);
        assert_int_equal(y, labels[i]);
    }
    ru_dataset_close(d);
    static const struct {
        const char *text, *word;
    } rows[] = {
        {"1 1:2\n0 3:1 2:1\n", ":2: found '2:1', expected a larger"},
        {"1 1:x\n", "a finite number"},
        {"1 a:1\n", "feature:value"},
        {"cat 1:1\n", "a label"},
        {"1 qid:3 1:1\n", "ranking"},
        {"1 -4:1\n", "a feature number"},
        {"0\n1\n", "no line has a feature"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        paths[0] = text_file(".svm", rows[k].text, strlen(rows[k].text));
        ru_data_options opt = {.format = "libsvm", .paths = paths, .n_paths = 1};
        expect_failure(opt, RU_E_DATA, rows[k].word);
    }
}

/* -- images, tar, tfrecord --------------------------------------------------------------------- */

static uint8_t *load(const char *path, int64_t *n)
{
    static ru_arena arena; /* freed by the caller's end of test: small */
    ru_err err = {0};
    char *data = NULL;
    ru_arena_init(&arena, 0);
    assert_ok(ru_file_read(path, 0, &arena, &data, n, &err), err);
    uint8_t *copy = malloc((size_t)*n);
    memcpy(copy, data, (size_t)*n);
    ru_arena_fini(&arena);
    return copy;
}

/* All samples' pixels against Pillow's: mean and largest difference in steps of 1/255. */
static void compare_pixels(ru_data_options opt, const char *expected, double mean_max, int most_max)
{
    int64_t n_want, bytes;
    uint8_t *want = load(expected, &n_want), *x;
    opt.raw = true;
    ru_dataset *d = open_with(opt);
    const ru_field *f;
    (void)ru_dataset_fields(d, &f);
    bytes = ru_type_bytes(&f[0].type);
    assert_int_equal(bytes * ru_dataset_count(d), n_want);
    x = malloc((size_t)bytes);
    int64_t extra[64];
    for (int64_t i = 0; i < ru_dataset_count(d); i++) {
        ru_err err = {0};
        void *fields[RU_FIELDS_MAX] = {x, extra, extra};
        assert_ok(ru_dataset_read(d, i, fields, &err), err);
        int64_t sum = 0;
        int most = 0;
        for (int64_t j = 0; j < bytes; j++) {
            int diff = abs((int)x[j] - (int)want[i * bytes + j]);
            sum += diff;
            most = diff > most ? diff : most;
        }
        if ((double)sum / (double)bytes > mean_max || most > most_max) {
            fail_msg("%s: sample %lld differs by %.2f on average, %d at most", expected,
                     (long long)i, (double)sum / (double)bytes, most);
        }
    }
    free(x);
    free(want);
    ru_dataset_close(d);
}

static void test_images(void **state)
{
    (void)state;
    const char *const photos[] = {AT("photos")}, *const same[] = {AT("same")};
    ru_data_options opt = {.format = "images", .paths = photos, .n_paths = 1, .image_size = 20};
    compare_pixels(opt, AT("photos20.rgb"), 0.6, 5);
    opt.image_size = 16;
    compare_pixels(opt, AT("photos16.rgb"), 1.5, 16); /* the 70 x 64 one comes at half size */
    opt.paths = same;
    opt.image_size = 0;
    compare_pixels(opt, AT("same.rgb"), 0.4, 3);
    opt.paths = photos;
    expect_failure(opt, RU_E_DATA, "set image_size");
    ru_dataset *d = open_with(
        (ru_data_options){.format = "images", .paths = photos, .n_paths = 1, .image_size = 8});
    assert_int_equal(ru_dataset_classes(d), 2);
    assert_string_equal(ru_dataset_class_name(d, 1), "dog");
    float x[3 * 64];
    int64_t y;
    read_one(d, 4, x, &y);
    assert_int_equal(y, 1);
    ru_dataset_close(d);
}

static void test_tar(void **state)
{
    (void)state;
    const char *const shards[] = {AT("shard-{000..001}.tar")}, *const arrays[] = {AT("arrays.tar")};
    ru_data_options opt = {.format = "tar", .paths = shards, .n_paths = 1};
    compare_pixels(opt, AT("shards.rgb"), 0.0, 0);
    opt.resident_max_bytes = 1 << 20;
    compare_pixels(opt, AT("shards.rgb"), 0.0, 0);
    opt.context = 8;
    ru_dataset *d = open_with(opt);
    assert_int_equal(ru_dataset_classes(d), 3);
    float x[3 * 120];
    int64_t ids[8], y;
    void *fields[] = {x, ids, &y};
    ru_err err = {0};
    assert_ok(ru_dataset_read(d, 3, fields, &err), err);
    assert_int_equal(y, 0);
    assert_int_equal(ids[5], '3');
    assert_int_equal(ids[6], 0);
    ru_dataset_close(d);
    d = open_with((ru_data_options){.format = "tar", .paths = arrays, .n_paths = 1});
    assert_int_equal(ru_dataset_count(d), 3);
    read_one(d, 2, x, &y);
    assert_int_equal(y, 2);
    assert_true(x[0] == 2.0f && x[5] == 7.0f);
    ru_dataset_close(d);
    const char *const missing[] = {AT("shard-{000..002}.tar")};
    opt.paths = missing;
    expect_failure(opt, RU_E_MISSING, "shard-002.tar");
}

static void test_tfrecord(void **state)
{
    (void)state;
    const char *const images[] = {AT("images.tfrecord")}, *const lists[] = {AT("lists.tfrecord")};
    ru_data_options opt = {.format = "tfrecord", .paths = images, .n_paths = 1};
    ru_dataset *d = open_with(opt);
    assert_int_equal(ru_dataset_count(d), 3);
    assert_int_equal(ru_dataset_classes(d), 3);
    static uint8_t shards[1440];
    int64_t n;
    uint8_t *want = load(AT("shards.rgb"), &n);
    memcpy(shards, want, sizeof shards);
    free(want);
    for (int64_t i = 0; i < 3; i++) {
        float x[360];
        int64_t y;
        read_one(d, i, x, &y);
        assert_int_equal(y, 2 - i);
        for (int64_t j = 0; j < 360; j++) {
            assert_true(fabsf(x[j] * 255.0f - (float)shards[i * 360 + j]) < 1e-3f);
        }
    }
    ru_dataset_close(d);
    opt.paths = lists;
    d = open_with(opt);
    const ru_field *f;
    assert_int_equal(ru_dataset_fields(d, &f), 3);
    assert_string_equal(f[0].name, "dense");
    assert_string_equal(f[1].name, "ids");
    float x[3], y;
    int64_t ids[360];
    void *fields[] = {x, ids, &y};
    ru_err err = {0};
    assert_ok(ru_dataset_read(d, 3, fields, &err), err);
    assert_true(x[0] == 3.5f && x[1] == -3.0f && x[2] == 3.0f && y == 0.75f);
    for (int64_t i = 0; i < 360; i++) {
        assert_int_equal(ids[i], i % 3 == 0 ? 3 : i % 3 == 1 ? -1 : (int64_t)1 << 40);
    }
    ru_dataset_close(d);
}

/* Archives one behind the other are read on; what is no archive after the end is not read. */
static void test_tar_behind_tar(void **state)
{
    (void)state;
    int64_t n;
    uint8_t *one = load(AT("arrays.tar"), &n), *all = malloc((size_t)n * 2);
    assert_non_null(all);
    memcpy(all, one, (size_t)n);
    memcpy(all + n, one, (size_t)n);
    const char *paths[] = {text_file(".tar", all, (size_t)n * 2)};
    ru_data_options opt = {.format = "tar", .paths = paths, .n_paths = 1};
    ru_dataset *d = open_with(opt);
    assert_int_equal(ru_dataset_count(d), 6);
    float x[6];
    int64_t y;
    read_one(d, 5, x, &y);
    assert_true(y == 2 && x[5] == 7.0f);
    ru_dataset_close(d);
    memset(all + n, 'z', (size_t)n);
    paths[0] = text_file(".tar", all, (size_t)n * 2);
    d = open_with(opt);
    assert_int_equal(ru_dataset_count(d), 3);
    ru_dataset_close(d);
    free(one);
    free(all);
}

/* Whole samples before a cut stay, when damaged ones may be left out; the rest counts as one. */
static void test_cut_files(void **state)
{
    (void)state;
    static const struct {
        const char *format, *path;
        int64_t zeros; /* 0: cut instead */
        int64_t count;
    } rows[] = {{"tfrecord", AT("images.tfrecord"), 0, 2},
                {"tfrecord", AT("images.tfrecord"), 4096, 3},
                {"tar", AT("arrays.tar"), 0, 2}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        int64_t n, cut;
        uint8_t *one = load(rows[k].path, &n), *all = calloc(1, (size_t)(n + rows[k].zeros));
        assert_non_null(all);
        memcpy(all, one, (size_t)n);
        /* a tar file ends in blocks of zeros, behind the padded last member */
        for (cut = n; k == 2 && cut > 0 && one[cut - 1] == 0; cut--) {
        }
        int64_t size = rows[k].zeros > 0 ? n + rows[k].zeros : cut - 9;
        const char *paths[] = {text_file(".cut", all, (size_t)size)};
        ru_data_options opt = {.format = rows[k].format, .paths = paths, .n_paths = 1};
        expect_failure(opt, RU_E_DATA, paths[0]);
        opt.skip_damaged = true;
        ru_dataset *d = open_with(opt);
        assert_int_equal(ru_dataset_count(d), rows[k].count);
        assert_int_equal(ru_dataset_skipped(d), 1);
        assert_non_null(strstr(ru_dataset_skipped_first(d), paths[0]));
        ru_dataset_close(d);
        free(one);
        free(all);
    }
}

/* Any one byte changed, and any cut, gives an error or good data, never a crash; in the formats
 * with checksums a changed byte is always found. */
static void test_every_damage_is_survived(void **state)
{
    (void)state;
    static const struct {
        const char *format, *path;
        bool checked;
    } rows[] = {{"tfrecord", AT("images.tfrecord"), true}, {"npy", AT("both.npz"), false},
                {"tar", AT("shard-000.tar"), false},       {"idx", AT("images.idx"), false},
                {"idx", AT("images.idx.gz"), false},       {"npy", AT("x.npy"), false}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        int64_t n;
        uint8_t *data = load(rows[k].path, &n);
        int64_t step = n > 4096 ? 7 : 1;
        const char *name = strstr(rows[k].path, ".gz") != NULL ? ".gz" : "";
        for (int64_t i = 0; i < 2 * n; i += step) {
            bool cut = i >= n;
            data[i % n] = (uint8_t)(data[i % n] ^ (cut ? 0u : 1u << (i % 8)));
            const char *paths[] = {text_file(name, data, (size_t)(cut ? i - n : n))};
            data[i % n] = (uint8_t)(data[i % n] ^ (cut ? 0u : 1u << (i % 8)));
            ru_data_options opt = {.format = rows[k].format, .paths = paths, .n_paths = 1};
            ru_err err = {0};
            ru_dataset *d = NULL;
            ru_status st = ru_dataset_open(&opt, &d, &err);
            if (st == RU_OK) {
                const ru_field *f;
                uint32_t fields_n = ru_dataset_fields(d, &f);
                void *fields[RU_FIELDS_MAX];
                for (uint32_t j = 0; j < fields_n; j++) {
                    fields[j] = malloc((size_t)ru_type_bytes(&f[j].type));
                }
                for (int64_t s = 0; st == RU_OK && s < ru_dataset_count(d) && s < 8; s++) {
                    st = ru_dataset_read(d, s, fields, &err);
                }
                for (uint32_t j = 0; j < fields_n; j++) {
                    free(fields[j]);
                }
                ru_dataset_close(d);
            }
            assert_true(st == RU_OK || err.text[0] != '\0');
            if (rows[k].checked && !cut) {
                assert_int_not_equal(st, RU_OK);
            }
            (void)unlink(paths[0]);
        }
        free(data);
    }
}

/* Last: nothing of ours stays in /tmp. */
static void test_clean_up(void **state)
{
    (void)state;
    for (int k = 0; k < 8; k++) {
        if (temp_names[k][0] != '\0') {
            (void)unlink(temp_names[k]);
        }
    }
}

RU_TESTS(data_formats, cmocka_unit_test(test_idx), cmocka_unit_test(test_idx_damaged),
         cmocka_unit_test(test_cifar), cmocka_unit_test(test_npy),
         cmocka_unit_test(test_a_column_of_labels), cmocka_unit_test(test_numbers_are_finite),
         cmocka_unit_test(test_tokens), cmocka_unit_test(test_csv),
         cmocka_unit_test(test_csv_numbers), cmocka_unit_test(test_csv_damaged),
         cmocka_unit_test(test_libsvm), cmocka_unit_test(test_images), cmocka_unit_test(test_tar),
         cmocka_unit_test(test_tfrecord), cmocka_unit_test(test_tar_behind_tar),
         cmocka_unit_test(test_cut_files), cmocka_unit_test(test_every_damage_is_survived),
         cmocka_unit_test(test_clean_up))
