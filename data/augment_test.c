/* Augmented samples: equal to those of test/oracle/augment.py bit by bit, for every number of
 * workers and threads and after a resume. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/str.h"
#include "data/reader.h"
#include "env/file/file.h"
#include "test/test.h"

enum { N = 6, C = 3, H = 5, W = 7, CLASSES = 3, PIXELS = C * H * W, SEED = 5 };

typedef struct images {
    char x[64], y[64];
    const char *paths[2];
    ru_data_options opt;
} images;

static void write_npy(const char *path, const char *head, const void *bytes, size_t n)
{
    ru_err err = {0};
    uint8_t file[4096] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};
    int len = snprintf((char *)file + 10, 119, "%-117s\n", head);
    assert_int_equal(len, 118);
    memcpy(file + 128, bytes, n);
    assert_ok(ru_file_replace(path, file, 128 + (int64_t)n, &err), err);
}

static int setup(void **state)
{
    static const double mean[] = {0.4, 0.5, 0.6}, std[] = {0.2, 0.25, 0.3};
    images *m = calloc(1, sizeof *m);
    uint8_t x[N * PIXELS], y[N];
    for (int n = 0, at = 0; n < N; n++) {
        y[n] = (uint8_t)(n % CLASSES);
        for (int c = 0; c < C; c++) {
            for (int i = 0; i < H; i++) {
                for (int j = 0; j < W; j++) {
                    x[at++] = (uint8_t)(n * 53 + c * 101 + i * 17 + j * 29 + i * j * 7);
                }
            }
        }
    }
    (void)snprintf(m->x, sizeof m->x, "/tmp/rubato-augment-%ld-x.npy", (long)getpid());
    (void)snprintf(m->y, sizeof m->y, "/tmp/rubato-augment-%ld-y.npy", (long)getpid());
    write_npy(m->x, "{'descr': '|u1', 'fortran_order': False, 'shape': (6, 3, 5, 7), }", x,
              sizeof x);
    write_npy(m->y, "{'descr': '|u1', 'fortran_order': False, 'shape': (6,), }", y, sizeof y);
    m->paths[0] = m->x;
    m->paths[1] = m->y;
    m->opt = (ru_data_options){.format = "npy",
                               .paths = m->paths,
                               .n_paths = 2,
                               .mean = mean,
                               .n_mean = 3,
                               .std = std,
                               .n_std = 3,
                               .one_hot = true};
    *state = m;
    return 0;
}

static int teardown(void **state)
{
    images *m = *state;
    (void)unlink(m->x);
    (void)unlink(m->y);
    free(m);
    return 0;
}

static ru_dataset *open(const ru_data_options *opt)
{
    ru_err err = {0};
    ru_dataset *d = NULL;
    assert_ok(ru_dataset_open(opt, &d, &err), err);
    return d;
}

typedef struct seen {
    float x[2 * N][PIXELS], y[2 * N][CLASSES];
} seen;

/* The samples that a stream with these options gives, as far as they lie in two epochs. */
static void collect(ru_dataset *d, const ru_stream_options *opt, seen *to)
{
    ru_err err = {0};
    ru_stream *s = NULL;
    ru_batch b;
    assert_ok(ru_stream_open(d, opt, &s, &err), err);
    for (int64_t at = opt->start; at < 2 * N; at = b.next) {
        assert_ok(ru_stream_next(s, &b, &err), err);
        assert_int_equal(b.position, at);
        for (int64_t i = 0; i < b.n && at + i < 2 * N; i++) {
            memcpy(to->x[at + i], (float *)b.fields[0] + i * PIXELS, sizeof to->x[0]);
            memcpy(to->y[at + i], (float *)b.fields[1] + i * CLASSES, sizeof to->y[0]);
        }
    }
    ru_stream_close(s);
}

#define ALL                                                                                  \
    {                                                                                        \
        .flip = RU_FLIP_BOTH, .crop = 2, .rotation = 15, .brightness = 0.3, .contrast = 0.3, \
        .saturation = 0.3, .cutout = 2, .mixup = 0.4                                         \
    }

/* clang-format off */
static const struct {
    ru_augment how;
    bool shifted; /* pixels from -1 to 1 instead of 0 to 1 */
    uint32_t x, y; /* CRC-32C */
} rows[] = { /* test/oracle/augment.py */
    {{.flip = RU_FLIP_HORIZONTAL}, false, 0x967ae761, 0x52365904},
    {{.flip = RU_FLIP_HORIZONTAL}, true, 0x1e18bf52, 0x52365904},
    {{.flip = RU_FLIP_VERTICAL}, false, 0xa83a4845, 0x52365904},
    {{.flip = RU_FLIP_VERTICAL}, true, 0xf8eb8371, 0x52365904},
    {{.flip = RU_FLIP_BOTH, .crop = 2}, false, 0xa4ffd0f9, 0x52365904},
    {{.flip = RU_FLIP_BOTH, .crop = 2}, true, 0x7dc7b01d, 0x52365904},
    {{.crop = 5}, false, 0xf677b217, 0x52365904},
    {{.crop = 5}, true, 0x04983843, 0x52365904},
    {{.rotation = 30}, false, 0x90a5ffb2, 0x52365904},
    {{.rotation = 30}, true, 0x1a5d7e63, 0x52365904},
    {{.rotation = 180, .flip = RU_FLIP_HORIZONTAL, .crop = 1}, false, 0xeb63e644, 0x52365904},
    {{.rotation = 180, .flip = RU_FLIP_HORIZONTAL, .crop = 1}, true, 0x74c4205e, 0x52365904},
    {{.brightness = 0.5}, false, 0xc2dc7cbd, 0x52365904},
    {{.brightness = 0.5}, true, 0xa1e2eea4, 0x52365904},
    {{.contrast = 0.7}, false, 0xa7d8d33b, 0x52365904},
    {{.contrast = 0.7}, true, 0x75032eae, 0x52365904},
    {{.saturation = 1}, false, 0x4bbbea7d, 0x52365904},
    {{.saturation = 1}, true, 0x8cdb95d1, 0x52365904},
    {{.brightness = 0.2, .contrast = 0.2, .saturation = 0.2}, false, 0xb7acdaab, 0x52365904},
    {{.brightness = 0.2, .contrast = 0.2, .saturation = 0.2}, true, 0x7b86325c, 0x52365904},
    {{.cutout = 3}, false, 0x6e386cd0, 0x52365904},
    {{.cutout = 3}, true, 0x3ef0cf6f, 0x52365904},
    {{.cutout = 4}, false, 0xf1903059, 0x52365904},
    {{.cutout = 4}, true, 0x534ffad8, 0x52365904},
    {{.mixup = 0.2}, false, 0x7e3c72d9, 0x2b48e702},
    {{.mixup = 0.2}, true, 0x1830fab1, 0x2b48e702},
    {{.mixup = 1.5}, false, 0x18479efb, 0xda3b7174},
    {{.mixup = 1.5}, true, 0xeb4f884b, 0xda3b7174},
    {ALL, false, 0x4d9923d3, 0xe0b91ab7},
    {ALL, true, 0x0e0be525, 0xe0b91ab7},
};
/* clang-format on */

static void bytes_are_those_of_another_implementation(void **state)
{
    images *m = *state;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        m->opt.scale = rows[k].shifted ? 2.0 / 255 : 0;
        m->opt.shift = rows[k].shifted ? -1 : 0;
        ru_dataset *d = open(&m->opt);
        seen got;
        collect(d, &(ru_stream_options){.seed = SEED, .augment = rows[k].how, .batch = 4}, &got);
        if (ru_crc32c(0, got.x, sizeof got.x) != rows[k].x ||
            ru_crc32c(0, got.y, sizeof got.y) != rows[k].y) {
            fail_msg("row %u: 0x%08x, 0x%08x", k, ru_crc32c(0, got.x, sizeof got.x),
                     ru_crc32c(0, got.y, sizeof got.y));
        }
        ru_dataset_close(d);
    }
}

/* Shares of 1, 2, 3 and 4 workers, reading threads, batches and a start in the middle. */
static void workers_threads_and_resumes_see_the_same(void **state)
{
    images *m = *state;
    ru_dataset *d = open(&m->opt);
    const ru_augment how = rows[RU_ARRAY_LEN(rows) - 1].how;
    for (int shuffle = 0; shuffle < 3; shuffle++) {
        const ru_stream_options one = {
            .seed = SEED, .augment = how, .shuffle = (ru_shuffle)shuffle, .block = 2, .batch = 1};
        seen want, got;
        collect(d, &one, &want);
        for (uint32_t workers = 1; workers <= 4; workers++) {
            memset(&got, 0, sizeof got);
            for (uint32_t w = 0; w < workers; w++) { /* global batch 5, parts of 1 or 2 */
                ru_stream_options part = one;
                int64_t from = 5 * w / workers, to = 5 * (w + 1) / workers;
                part.batch = to - from;
                part.stride = 5;
                part.start = from;
                part.threads = workers;
                collect(d, &part, &got);
            }
            assert_memory_equal(&want, &got, sizeof got);
        }
        for (int64_t start = 0; start < 2 * N; start++) {
            ru_stream_options later = one;
            later.batch = 4;
            later.start = start;
            memset(got.x[start], 0, (size_t)(2 * N - start) * sizeof got.x[0]);
            collect(d, &later, &got);
            assert_memory_equal(&want, &got, sizeof got);
        }
    }
    ru_dataset_close(d);
}

/* A share that changes from step to step sees the same, whether its stream is kept or not: mixup
 * needs the sample before each, flips its epoch. */
static void moving_shares_see_the_same(void **state)
{
    images *m = *state;
    ru_dataset *d = open(&m->opt);
    const ru_augment how = rows[RU_ARRAY_LEN(rows) - 1].how;
    ru_stream_options opt = {.seed = SEED, .augment = how, .batch = 4, .room = 5, .stride = 5};
    static const int64_t shares[][2] = {{0, 4}, {0, 5}, {1, 4}, {0, 4}, {1, 4}, {0, 5}};
    const ru_stream_options all = {.seed = SEED, .augment = how, .batch = 5};
    ru_stream *s = NULL, *whole = NULL;
    ru_err err = {0};
    assert_ok(ru_stream_open(d, &opt, &s, &err), err);
    assert_ok(ru_stream_open(d, &all, &whole, &err), err);
    for (int64_t step = 0; step < 40; step++) {
        const int64_t *share = shares[step % (int64_t)RU_ARRAY_LEN(shares)];
        ru_batch b, want;
        assert_true(ru_stream_share_set(s, 5 * step + share[0], share[1]));
        assert_ok(ru_stream_next(s, &b, &err), err);
        assert_ok(ru_stream_next(whole, &want, &err), err);
        assert_int_equal(b.n, share[1]);
        for (uint32_t k = 0; k < 2; k++) {
            size_t bytes = (k == 0 ? PIXELS : CLASSES) * sizeof(float);
            assert_memory_equal(b.fields[k], (uint8_t *)want.fields[k] + (size_t)share[0] * bytes,
                                (size_t)b.n * bytes);
        }
    }
    ru_stream_close(s);
    ru_stream_close(whole);
    ru_dataset_close(d);
}

static void epochs_and_seeds_differ(void **state)
{
    images *m = *state;
    ru_dataset *d = open(&m->opt);
    seen a, b;
    ru_stream_options opt = {.seed = SEED, .augment = {.rotation = 10}, .batch = 6};
    collect(d, &opt, &a);
    assert_memory_not_equal(a.x[0], a.x[N], N * sizeof a.x[0]);
    opt.seed = SEED + 1;
    collect(d, &opt, &b);
    for (int k = 0; k < 2 * N; k++) {
        assert_memory_not_equal(a.x[k], b.x[k], sizeof a.x[0]);
    }
    ru_dataset_close(d);
}

static void what_cannot_be_augmented_is_said(void **state)
{
    images *m = *state;
    static const struct {
        ru_augment how;
        bool numbers; /* class numbers as labels */
        const char *words;
    } wrong[] = {
        {{.crop = 6}, false, "crop is 6 pixels, but the images have 5 x 7"},
        {{.cutout = 11}, false, "cutout is 11 pixels"},
        {{.mixup = 1}, true, "mixup needs labels"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(wrong); k++) {
        ru_err err = {0};
        ru_stream *s;
        m->opt.one_hot = !wrong[k].numbers;
        ru_dataset *d = open(&m->opt);
        assert_int_equal(
            ru_stream_open(d, &(ru_stream_options){.augment = wrong[k].how, .batch = 2}, &s, &err),
            RU_E_CONFIG);
        assert_non_null(strstr(err.text, wrong[k].words));
        ru_dataset_close(d);
    }
    m->paths[0] = m->paths[1]; /* labels as inputs: no images */
    m->opt.n_mean = m->opt.n_std = 0;
    m->opt.n_paths = 1;
    ru_dataset *d = open(&m->opt);
    ru_err err = {0};
    ru_stream *s;
    assert_int_equal(
        ru_stream_open(d, &(ru_stream_options){.augment = {.crop = 1}, .batch = 2}, &s, &err),
        RU_E_CONFIG);
    assert_non_null(strstr(err.text, "data.augment: the inputs are "));
    ru_dataset_close(d);
}

RU_TESTS(data_augment,
         cmocka_unit_test_setup_teardown(bytes_are_those_of_another_implementation, setup,
                                         teardown),
         cmocka_unit_test_setup_teardown(workers_threads_and_resumes_see_the_same, setup, teardown),
         cmocka_unit_test_setup_teardown(moving_shares_see_the_same, setup, teardown),
         cmocka_unit_test_setup_teardown(epochs_and_seeds_differ, setup, teardown),
         cmocka_unit_test_setup_teardown(what_cannot_be_augmented_is_said, setup, teardown))
