/* Generators: the truth they tell is the truth, files read back as what was drawn, nothing depends
 * on who draws. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "data/detect.h"
#include "data/make/make.h"
#include "env/file/file.h"
#include "test/test.h"

static ru_dataset *open_gen(const char *name, ru_data_options opt)
{
    ru_err err = {0};
    ru_dataset *d = NULL;
    opt.format = "synthetic";
    opt.generator = name;
    assert_ok(ru_dataset_open(&opt, &d, &err), err);
    return d;
}

static void read_at(const ru_dataset *d, int64_t i, void *a, void *b, void *c)
{
    ru_err err = {0};
    void *fields[RU_FIELDS_MAX] = {a, b, c};
    assert_ok(ru_dataset_read(d, i, fields, &err), err);
}

/* Means estimated from one half classify the other half as well as the integral promises
 * (0.956374 for 4 classes, distance 3, deviation 1). */
static void test_gaussian_reaches_its_bayes_accuracy(void **state)
{
    (void)state;
    enum { N = 20000, D = 16, K = 4 };
    ru_dataset *d = open_gen("gaussian", (ru_data_options){.seed = 4, .count = 2 * N});
    double mean[K][D] = {{0}}, seen[K] = {0};
    int64_t right = 0;
    for (int64_t i = 0; i < 2 * N; i++) {
        float x[D];
        int64_t y, best = 0;
        read_at(d, i, x, &y, NULL);
        double least = (double)INFINITY;
        for (int64_t k = 0; k < K; k++) {
            double sum = 0.0;
            for (int64_t j = 0; j < D; j++) {
                double far = (double)x[j] - mean[k][j] / (seen[k] + 1e-9);
                sum += far * far;
            }
            best = sum < least ? k : best;
            least = sum < least ? sum : least;
        }
        right += i >= N && best == y;
        for (int64_t j = 0; i < N && j < D; j++) {
            mean[y][j] += (double)x[j];
        }
        seen[y] += i < N;
    }
    double accuracy = (double)right / N;
    assert_true(fabs(accuracy - 0.956374) < 0.006); /* four deviations of the count */
    ru_dataset_close(d);
}

/* What noise adds has the variance that the truth calls the floor. */
static void check_noise(const char *name, uint32_t y_field, double noise)
{
    ru_gen_options with = {.noise = noise, .noise_given = true}, none = {.noise_given = true};
    ru_dataset *a = open_gen(name, (ru_data_options){.seed = 8, .count = 5000, .gen = with});
    ru_dataset *b = open_gen(name, (ru_data_options){.seed = 8, .count = 5000, .gen = none});
    double sum = 0.0;
    for (int64_t i = 0; i < 5000; i++) {
        char x[256];
        int64_t item;
        float y[2];
        read_at(a, i, x, y_field == 1 ? (void *)&y[0] : &item, &y[0]);
        read_at(b, i, x, y_field == 1 ? (void *)&y[1] : &item, &y[1]);
        sum += (double)(y[0] - y[1]) * (double)(y[0] - y[1]);
    }
    assert_true(fabs(sqrt(sum / 5000.0) / noise - 1.0) < 0.05);
    ru_dataset_close(a);
    ru_dataset_close(b);
}

static void test_noise_is_the_floor(void **state)
{
    (void)state;
    check_noise("teacher", 1, 0.1);
    check_noise("ratings", 2, 0.3);
}

/* Power laws: the most rated item has far more ratings than the median one. */
static void test_ratings_are_skewed(void **state)
{
    (void)state;
    ru_dataset *d = open_gen("ratings", (ru_data_options){.seed = 2, .count = 20000});
    static int64_t seen[1000];
    memset(seen, 0, sizeof seen);
    int64_t most = 0, empty = 0;
    for (int64_t i = 0; i < 20000; i++) {
        int64_t user, item;
        float y;
        read_at(d, i, &user, &item, &y);
        assert_in_range(user, 0, 1999);
        assert_in_range(item, 0, 999);
        seen[item]++;
    }
    for (int64_t k = 0; k < 1000; k++) {
        most = seen[k] > most ? seen[k] : most;
        empty += seen[k] < 10;
    }
    assert_true(most > 1000);
    assert_true(empty > 250);
    ru_dataset_close(d);
}

/* 36.23 bytes a sentence, as truth.json says (gen_grammar.c measures length the same
 * way as it tells the entropy). */
static void test_grammar_has_its_length(void **state)
{
    (void)state;
    ru_dataset *d = open_gen(
        "grammar", (ru_data_options){.seed = 5, .count = 400, .context = 1000, .raw = true});
    int64_t lines = 0;
    for (int64_t i = 0; i < 400; i++) {
        uint8_t ids[1000], y[1000];
        read_at(d, i, ids, y, NULL);
        assert_memory_equal(ids + 1, y, 999);
        for (int64_t j = 0; j < 1000; j++) {
            lines += ids[j] == '\n';
        }
    }
    assert_true(fabs(400000.0 / (double)lines - 36.2327) < 0.4);
    ru_dataset_close(d);
}

/* A sample is a function of its number and the seed. */
static void test_samples_do_not_depend_on_order(void **state)
{
    (void)state;
    static const char *const names[] = {"digits", "gaussian", "teacher", "ratings",
                                        "topics", "clicks",   "grammar", "noise"};
    static float a[2][3 * 4096], b[2][4096], c[2][16];
    for (uint32_t k = 0; k < RU_ARRAY_LEN(names); k++) {
        ru_dataset *d = open_gen(names[k], (ru_data_options){.seed = 6, .count = 64});
        const ru_field *f;
        (void)ru_dataset_fields(d, &f);
        int64_t n = ru_type_bytes(&f[0].type);
        assert_true(n <= (int64_t)sizeof a[0]);
        for (int64_t i = 0; i < 16; i++) {
            read_at(d, i, a[0], b[0], c[0]);
            read_at(d, 63 - i, a[1], b[1], c[1]);
            assert_memory_not_equal(a[0], a[1], (size_t)n);
            read_at(d, i, a[1], b[1], c[1]);
            assert_memory_equal(a[0], a[1], (size_t)n);
        }
        ru_dataset_close(d);
        ru_dataset *other = open_gen(names[k], (ru_data_options){.seed = 7, .count = 64});
        read_at(other, 15, a[1], b[1], c[1]);
        assert_memory_not_equal(a[0], a[1], (size_t)n);
        ru_dataset_close(other);
    }
}

/* Ratings are a CSV file, which an app reads in a format of its own. */
static void test_hint_is_for_who_reads_it(void **state)
{
    (void)state;
    char dir[64];
    ru_err err = {0};
    ru_make_report r;
    snprintf(dir, sizeof dir, "/tmp/rubato-hint-%ld", (long)getpid());
    const ru_make_options make = {.name = "ratings", .dir = dir, .count = 40, .test_count = -1};
    assert_ok(ru_data_make(&make, &r, &err), err);
    assert_non_null(strstr(r.hint, "format: ratings\n"));
    assert_non_null(strstr(r.hint, "  rows: 2000\n  cols: 1000\n"));
    assert_ok(ru_path_remove(dir, &err), err);
}

static uint64_t digest(const ru_dataset *d, int64_t first, int64_t n, int64_t *x_bytes)
{
    static float x[6000];
    static int64_t y[64];
    const ru_field *f;
    uint32_t fields = ru_dataset_fields(d, &f);
    uint64_t h = 3;
    *x_bytes = ru_type_bytes(&f[0].type);
    for (int64_t i = first; i < first + n; i++) {
        read_at(d, i, x, y, NULL);
        h = ru_hash_bytes(x, *x_bytes, h);
        h = fields > 1 ? ru_hash_bytes(y, ru_type_bytes(&f[1].type), h) : h;
    }
    return h;
}

/* make -> files -> detect -> read gives the samples that were drawn, through every form of import.
 */
static void test_files_hold_what_was_drawn(void **state)
{
    (void)state;
    char dir[64], copy[80];
    snprintf(dir, sizeof dir, "/tmp/rubato-make-%ld", (long)getpid());
    snprintf(copy, sizeof copy, "%s/copy", dir);
    static const char *const names[] = {"digits", "gaussian", "teacher", "topics"};
    static const char *const forms[] = {"idx", "csv", "npy", "libsvm"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(names); k++) {
        char head[64];
        ru_err err = {0};
        ru_make_report r;
        ru_make_options make = {
            .name = names[k], .dir = dir, .count = 40, .test_count = 10, .seed = 3};
        assert_ok(ru_data_make(&make, &r, &err), err);
        snprintf(head, sizeof head, "data:\n  format: %s\n", forms[k]);
        assert_memory_equal(r.hint, head, strlen(head));
        ru_dataset *drawn = open_gen(names[k], (ru_data_options){.seed = 3, .count = 50});
        ru_arena arena;
        ru_arena_init(&arena, 0);
        const char *paths[] = {dir};
        ru_data_options opt = {.features = k == 3 ? 1000 : 0, .classes = k == 3 ? 10 : 0};
        assert_ok(ru_data_detect(paths, 1, "test", &arena, &opt, &err), err);
        ru_dataset *d = NULL;
        assert_ok(ru_dataset_open(&opt, &d, &err), err);
        int64_t n[2];
        assert_int_equal(ru_dataset_count(d), 10);
        uint64_t want = digest(drawn, 40, 10, &n[0]);
        assert_true(digest(d, 0, 10, &n[1]) == want);
        assert_int_equal(n[0], n[1]);
        for (uint32_t form = 0; ru_import_form(form) != NULL; form++) {
            const char *name = ru_import_form(form);
            bool fits = k == 0   ? strcmp(name, "csv") != 0 && strcmp(name, "libsvm") != 0
                        : k == 2 ? strcmp(name, "idx") != 0
                                 : true;
            if (!fits || strcmp(name, "images") == 0) {
                continue; /* csv of pictures has another shape, idx no labels that are numbers */
            }
            assert_ok(ru_data_import(d, name, copy, "test", &err), err);
            const char *copies[] = {copy};
            ru_data_options in = {.features = k == 3 ? 1000 : 0, .classes = k == 3 ? 10 : 0};
            if (strcmp(name, "libsvm") == 0) {
                in.features = n[0] / 4;
            }
            assert_ok(ru_data_detect(copies, 1, "test", &arena, &in, &err), err);
            ru_dataset *again = NULL;
            assert_ok(ru_dataset_open(&in, &again, &err), err);
            assert_true(digest(again, 0, 10, &n[1]) == want);
            ru_dataset_close(again);
            assert_ok(ru_path_remove(copy, &err), err);
        }
        ru_dataset_close(d);
        ru_dataset_close(drawn);
        ru_arena_fini(&arena);
        assert_ok(ru_path_remove(dir, &err), err);
    }
}

/* Names of fields come from names of files, which may hold what divides the cells of a CSV file. */
static void test_csv_names_with_commas_and_quotes(void **state)
{
    (void)state;
    char dir[64], to[80];
    snprintf(dir, sizeof dir, "/tmp/rubato-names-%ld", (long)getpid());
    snprintf(to, sizeof to, "%s/out", dir);
    /* three arrays of two f32 each, one of them [2, 2] */
    static const char *const files[] = {"x.npy", "y.npy", "a,\"b\";c.npy"};
    static const char *const shapes[] = {"(2, 2)", "(2,)", "(2,)"};
    static const float values[] = {1, 2.5f, 3, 4};
    ru_err err = {0};
    ru_arena arena;
    ru_arena_init(&arena, 0);
    const char *paths[3];
    assert_ok(ru_dir_make(dir, &err), err);
    for (uint32_t k = 0; k < 3; k++) {
        char npy[128 + sizeof values];
        size_t bytes = k == 0 ? sizeof values : sizeof values / 2;
        memset(npy, ' ', 128);
        memcpy(npy, "\x93NUMPY\x01\x00\x76\x00", 10);
        int n = snprintf(npy + 10, 110, "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }",
                         shapes[k]);
        npy[10 + n] = ' ';
        npy[127] = '\n';
        memcpy(npy + 128, values, bytes);
        paths[k] = ru_path_join(&arena, dir, files[k]);
        assert_ok(ru_file_replace(paths[k], npy, 128 + (int64_t)bytes, &err), err);
    }
    ru_dataset *d = NULL;
    ru_data_options opt = {.format = "npy", .paths = paths, .n_paths = 3};
    assert_ok(ru_dataset_open(&opt, &d, &err), err);
    assert_ok(ru_data_import(d, "csv", to, "a", &err), err);
    char *text;
    int64_t n;
    assert_ok(ru_file_read(ru_path_join(&arena, to, "a.csv"), 0, &arena, &text, &n, &err), err);
    assert_string_equal(text, "x0,x1,y,\"a,\"\"b\"\";c\"\n1,2.5,1,1\n3,4,2.5,2.5\n");
    ru_dataset_close(d);
    ru_arena_fini(&arena);
    assert_ok(ru_path_remove(dir, &err), err);
}

/* Every PNG file has the pixels and, as its folder, the class of the sample it is numbered by. */
static void test_images_hold_what_was_drawn(void **state)
{
    (void)state;
    enum { COUNT = 30, SIDE = 28 };
    char dir[64];
    snprintf(dir, sizeof dir, "/tmp/rubato-png-%ld", (long)getpid());
    ru_err err = {0};
    ru_dataset *drawn =
        open_gen("digits", (ru_data_options){.seed = 3, .count = COUNT, .raw = true});
    assert_ok(ru_data_import(drawn, "images", dir, "train", &err), err);
    char part[80];
    snprintf(part, sizeof part, "%s/train", dir);
    const char *paths[] = {part};
    ru_data_options opt = {.format = "images", .paths = paths, .n_paths = 1, .raw = true};
    ru_dataset *d = NULL;
    assert_ok(ru_dataset_open(&opt, &d, &err), err);
    assert_int_equal(ru_dataset_count(d), COUNT);
    uint8_t seen[COUNT + 1] = {0}, x[3 * SIDE * SIDE], want[SIDE * SIDE];
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t y, want_y, number;
        char where[256];
        assert_ok(ru_dataset_read(d, i, (void *[]){x, &y}, &err), err);
        const char *file = strrchr(ru_dataset_where(d, i, where, sizeof where), '/');
        assert_non_null(file);
        number = strtol(file + 1, NULL, 10);
        assert_true(number >= 1 && number <= COUNT && !seen[number]);
        seen[number] = 1;
        assert_ok(ru_dataset_read(drawn, number - 1, (void *[]){want, &want_y}, &err), err);
        assert_int_equal(strtol(ru_dataset_class_name(d, y), NULL, 10), want_y);
        for (int c = 0; c < 3; c++) { /* gray becomes RGB */
            assert_memory_equal(x + c * SIDE * SIDE, want, sizeof want);
        }
    }
    ru_dataset_close(d);
    ru_dataset_close(drawn);
    assert_ok(ru_path_remove(dir, &err), err);
}

static void test_bad_requests(void **state)
{
    (void)state;
    static const struct {
        ru_make_options opt;
        const char *word;
    } rows[] = {
        {{.name = "digitz", .dir = "/tmp"}, "did you mean 'digits'"},
        {{.name = "gaussian", .dir = "/tmp", .classes = 9, .features = 3}, "features"},
        {{.name = "text", .dir = "/tmp"}, "no files are named"},
        {{.name = "digits", .dir = "/tmp", .count = -5}, "count is -5"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_err err = {0};
        ru_make_report r;
        assert_int_equal(ru_data_make(&rows[k].opt, &r, &err), RU_E_CONFIG);
        if (strstr(err.text, rows[k].word) == NULL) {
            fail_msg("'%s' not in: %s", rows[k].word, err.text);
        }
    }
}

/* A bit of a packed record changed: the record is named instead of read. */
static void test_packed_records_are_checked(void **state)
{
    (void)state;
    char dir[] = "/tmp/rubato-packed-XXXXXX", path[64], **names;
    float x[16];
    int64_t y, n;
    uint32_t n_names;
    ru_arena arena;
    char *bytes;
    ru_err err = {0};
    ru_arena_init(&arena, 0);
    assert_non_null(mkdtemp(dir));
    ru_dataset *d = open_gen("gaussian", (ru_data_options){.seed = 4, .count = 5});
    assert_ok(ru_data_import(d, "packed", dir, "a", &err), err);
    ru_dataset_close(d);
    assert_ok(ru_dir_list(dir, &arena, &names, &n_names, &err), err);
    assert_int_equal(n_names, 1);
    snprintf(path, sizeof path, "%s/%s", dir, names[0]);
    assert_ok(ru_file_read(path, 0, &arena, &bytes, &n, &err), err);
    bytes[n - 30] ^= 1; /* within the last record */
    assert_ok(ru_file_replace(path, bytes, n, &err), err);
    const char *paths[] = {path};
    ru_data_options opt = {.format = "packed", .paths = paths, .n_paths = 1};
    assert_ok(ru_dataset_open(&opt, &d, &err), err);
    void *fields[RU_FIELDS_MAX] = {x, &y};
    assert_ok(ru_dataset_read(d, 3, fields, &err), err);
    assert_int_equal(ru_dataset_read(d, 4, fields, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "record 4"));
    ru_dataset_close(d);
    assert_ok(ru_path_remove(dir, &err), err);
    ru_arena_fini(&arena);
}

RU_TESTS(data_make, cmocka_unit_test(test_packed_records_are_checked),
         cmocka_unit_test(test_gaussian_reaches_its_bayes_accuracy),
         cmocka_unit_test(test_noise_is_the_floor), cmocka_unit_test(test_hint_is_for_who_reads_it),
         cmocka_unit_test(test_ratings_are_skewed), cmocka_unit_test(test_grammar_has_its_length),
         cmocka_unit_test(test_samples_do_not_depend_on_order),
         cmocka_unit_test(test_files_hold_what_was_drawn),
         cmocka_unit_test(test_images_hold_what_was_drawn),
         cmocka_unit_test(test_csv_names_with_commas_and_quotes),
         cmocka_unit_test(test_bad_requests))
