/* Labels 1, 2, 10: every format says that they make 11 classes, of which 8 have no sample. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "data/make/write.h"
#include "data/reader.h"
#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"

enum { COUNT = 3 };

static const int64_t gaps[COUNT] = {1, 2, 10}, full[COUNT] = {0, 2, 1};

static const char *put(ru_scratch *f, const char *name, const void *data, int64_t n)
{
    const char *path = ru_path_join(&f->arena, f->root, name);
    assert_ok(ru_file_replace(path, data, n, &f->err), f->err);
    return path;
}

static const char *text_of(ru_scratch *f, const char *name, const char *head, const char *before,
                           const char *after, const int64_t *labels)
{
    char text[128];
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_put(&t, head);
    for (int k = 0; k < COUNT; k++) {
        ru_text_putf(&t, "%s%d%s", before, (int)labels[k], after);
    }
    return put(f, name, text, t.n);
}

static const char *npy_of(ru_scratch *f, const int64_t *labels)
{
    int64_t n = COUNT, dims[] = {COUNT, 2};
    const float x[2 * COUNT] = {0};
    assert_ok(rui_npy_save(f->root, "x.npy", RU_F32, 2, dims, x, &f->err), f->err);
    assert_ok(rui_npy_save(f->root, "y.npy", RU_I64, 1, &n, labels, &f->err), f->err);
    return ru_path_join(&f->arena, f->root, "y.npy");
}

static const char *idx_of(ru_scratch *f, const int64_t *labels)
{
    uint8_t x[16 + COUNT] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, 1, 0, 0, 0, 1};
    uint8_t y[8 + COUNT] = {0, 0, 8, 1, 0, 0, 0, COUNT};
    for (int k = 0; k < COUNT; k++) {
        y[8 + k] = (uint8_t)labels[k];
    }
    (void)put(f, "x.idx", x, sizeof x);
    return put(f, "y.idx", y, sizeof y);
}

static int64_t member(uint8_t *at, const char *name, const void *data, size_t n)
{
    unsigned sum = 0;
    memset(at, 0, 1024);
    (void)snprintf((char *)at, 100, "%s", name);
    (void)snprintf((char *)at + 100, 8, "0000644");
    (void)snprintf((char *)at + 124, 12, "%011o", (unsigned)n);
    at[156] = '0';
    memcpy(at + 257, "ustar\00000", 8);
    memset(at + 148, ' ', 8);
    for (int k = 0; k < 512; k++) {
        sum += at[k];
    }
    (void)snprintf((char *)at + 148, 8, "%06o", sum);
    memcpy(at + 512, data, n);
    return 1024;
}

static const char *tar_of(ru_scratch *f, const int64_t *labels)
{
    static uint8_t bytes[(2 * COUNT + 1) * 1024];
    char *x, name[16], text[16];
    int64_t n, at = 0, one = 1;
    const float v = 0.5F;
    assert_ok(rui_npy_save(f->root, "one.npy", RU_F32, 1, &one, &v, &f->err), f->err);
    assert_ok(
        ru_file_read(ru_path_join(&f->arena, f->root, "one.npy"), 0, &f->arena, &x, &n, &f->err),
        f->err);
    assert_true(n <= 512);
    for (int k = 0; k < COUNT; k++) {
        (void)snprintf(name, sizeof name, "%d.npy", k);
        at += member(bytes + at, name, x, (size_t)n);
        int length = snprintf(text, sizeof text, "%d", (int)labels[k]);
        (void)snprintf(name, sizeof name, "%d.cls", k);
        at += member(bytes + at, name, text, (size_t)length);
    }
    memset(bytes + at, 0, 1024);
    return put(f, "a.tar", bytes, at + 1024);
}

static int64_t masked(uint8_t *at, const uint8_t *data, int64_t n)
{
    uint32_t c = ru_crc32c_mask(ru_crc32c(0, data, n));
    memcpy(at, &c, 4);
    return 4;
}

static const char *tfrecord_of(ru_scratch *f, const int64_t *labels)
{
    static uint8_t bytes[COUNT * 128];
    int64_t at = 0;
    for (int k = 0; k < COUNT; k++) {
        const uint8_t example[] = {10,  31,  10, 14, 10,  5,  'l', 'a', 'b',
                                   'e', 'l', 18, 5,  26,  3,  10,  1,   (uint8_t)labels[k],
                                   10,  13,  10, 1,  'x', 18, 8,   18,  6,
                                   10,  4,   0,  0,  0,   0};
        int64_t n = sizeof example;
        memcpy(bytes + at, &n, 8);
        at += 8 + masked(bytes + at + 8, bytes + at, 8);
        memcpy(bytes + at, example, sizeof example);
        at += n + masked(bytes + at + n, example, n);
    }
    return put(f, "a.tfrecord", bytes, at);
}

/* What opening the set writes to the log. */
static const char *said(ru_scratch *f, ru_data_options opt, int64_t classes)
{
    ru_log_options was = ru_log_get();
    char name[] = "/tmp/rubato-log-XXXXXX", *text;
    int64_t n;
    int fd = mkstemp(name);
    assert_true(fd > 0);
    ru_log_set(&(ru_log_options){.level = RU_LOG_OFF, .level_file = RU_LOG_WARN, .fd_file = fd});
    ru_dataset *d = NULL;
    ru_status st = ru_dataset_open(&opt, &d, &f->err);
    ru_log_set(&was);
    (void)close(fd);
    assert_ok(st, f->err);
    assert_int_equal(ru_dataset_classes(d), classes);
    ru_dataset_close(d);
    assert_ok(ru_file_read(name, 0, &f->arena, &text, &n, &f->err), f->err);
    (void)unlink(name);
    return text;
}

static void expect(ru_scratch *f, const char *format, const char *x, const char *y,
                   const int64_t *labels)
{
    const char *paths[] = {x, y};
    ru_data_options opt = {.format = format, .paths = paths, .n_paths = y != NULL ? 2 : 1};
    const char *text = said(f, opt, labels == gaps ? 11 : 3);
    if ((labels == gaps) != (strstr(text, "makes 11 classes, but 8 of them (such as 0)") != NULL)) {
        fail_msg("%s: the log says '%s'", format, text);
    }
    opt.held_out = true;
    assert_null(strstr(said(f, opt, labels == gaps ? 11 : 3), "classes"));
}

static void test_classes_without_samples(void **state)
{
    ru_scratch *f = *state;
    const int64_t *const sets[] = {gaps, full};
    for (int k = 0; k < 2; k++) {
        const int64_t *y = sets[k];
        expect(f, "csv", text_of(f, "a.csv", "a,y\n", "0.5,", "\n", y), NULL, y);
        expect(f, "libsvm", text_of(f, "a.svm", "", "", " 1:1\n", y), NULL, y);
        const char *labels = npy_of(f, y);
        expect(f, "npy", ru_path_join(&f->arena, f->root, "x.npy"), labels, y);
        labels = idx_of(f, y);
        expect(f, "idx", ru_path_join(&f->arena, f->root, "x.idx"), labels, y);
        expect(f, "tar", tar_of(f, y), NULL, y);
        expect(f, "tfrecord", tfrecord_of(f, y), NULL, y);
    }
}

RU_TESTS(data_classes, cmocka_unit_test_setup_teardown(test_classes_without_samples,
                                                       ru_scratch_open, ru_scratch_close))
