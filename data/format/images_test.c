/* Folders of images: what is walked, what is left out, pictures without labels; how a camera was
 * held. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/reader.h"
#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"
#include "test/where.h"

#define AT(name) RU_SOURCE_ROOT "/test/data/reader/photos/" name

/* A copy of `from` as `to` below the root; `orientation` not 0: with an Exif segment that says it.
 */
static const char *copy(ru_scratch *f, const char *from, const char *to, int orientation)
{
    char *data;
    int64_t n;
    const char *path = ru_path_join(&f->arena, f->root, to);
    char *dir = ru_arena_str(&f->arena, path);
    *strrchr(dir, '/') = 0;
    assert_ok(ru_dir_make(dir, &f->err), f->err);
    assert_ok(ru_file_read(from, 0, &f->arena, &data, &n, &f->err), f->err);
    if (orientation != 0) {
        static const uint8_t exif[36] = {
            0xff, 0xe1, 0,    34,   'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8,
            0,    1,    0x01, 0x12, 0,   3,   0,   0,   0, 1, 0,   0,   0, 0,  0, 0, 0, 0};
        char *more = ru_arena_alloc(&f->arena, n + 36, 1);
        memcpy(more, data, 2);
        memcpy(more + 2, exif, 36);
        more[2 + 29] = (char)orientation;
        memcpy(more + 38, data + 2, (size_t)n - 2);
        data = more;
        n += 36;
    }
    assert_ok(ru_file_replace(path, data, n, &f->err), f->err);
    return path;
}

static ru_dataset *open_images(ru_scratch *f, const char *const *paths, uint32_t n, bool unlabelled)
{
    ru_dataset *d = NULL;
    const ru_data_options opt = {.format = "images",
                                 .paths = paths,
                                 .n_paths = n,
                                 .unlabelled = unlabelled,
                                 .image_size = unlabelled ? 8 : 0,
                                 .raw = true};
    assert_ok(ru_dataset_open(&opt, &d, &f->err), f->err);
    return d;
}

static void test_folders(void **state)
{
    ru_scratch *f = *state;
    (void)copy(f, AT("cat/a.jpg"), "im/cat/a.JpG", 0);
    (void)copy(f, AT("cat/b.png"), "im/cat/deep/er/b.png", 0);
    (void)copy(f, AT("cat/b.png"), "im/dog/b.png", 0);
    (void)copy(f, AT("cat/b.png"), "im/dog/b.tif", 0);
    (void)copy(f, AT("cat/b.png"), "im/dog/.hidden.png", 0);
    (void)copy(f, AT("cat/b.png"), "im/owl/b.tiff", 0);
    const char *root[] = {ru_path_join(&f->arena, f->root, "im")};
    char where[4200];
    ru_dataset *d = open_images(f, root, 1, true); /* all pictures, at any depth */
    const ru_field *fields;
    assert_int_equal(ru_dataset_count(d), 3);
    assert_int_equal(ru_dataset_fields(d, &fields), 1);
    assert_non_null(strstr(ru_dataset_where(d, 1, where, sizeof where), "im/cat/deep/er/b.png"));
    ru_dataset_close(d);
    const char *files[] = {ru_path_join(&f->arena, f->root, "im/dog/b.png"),
                           ru_path_join(&f->arena, f->root, "im/cat")};
    d = open_images(f, files, 2, true); /* in the order in which they are named */
    assert_int_equal(ru_dataset_count(d), 3);
    assert_string_equal(ru_dataset_where(d, 0, where, sizeof where), files[0]);
    uint8_t x[3 * 8 * 8];
    void *into[] = {x};
    assert_ok(ru_dataset_read(d, 0, into, &f->err), f->err);
    ru_dataset_close(d);
    const ru_data_options opt = {
        .format = "images", .paths = root, .n_paths = 1, .image_size = 8, .raw = true};
    assert_ok(ru_dataset_open(&opt, &d, &f->err), f->err);
    assert_int_equal(ru_dataset_count(d), 3); /* as classes: owl has none, which is said */
    assert_int_equal(ru_dataset_classes(d), 3);
    ru_dataset_close(d);
}

/* Names of folders in Latin-1 become UTF-8; what a run stores of them finds folders of either form
 * again, wherever they are, and no other folder. */
static void test_latin_folders(void **state)
{
    ru_scratch *f = *state;
    static const char utf8[] = "caf\xc3\xa9";
    (void)copy(f, AT("cat/b.png"), "a/caf\xe9/1.png", 0);
    (void)copy(f, AT("cat/b.png"), "a/caf\xe8/1.png", 0);
    (void)copy(f, AT("cat/b.png"), "a/caf\xe8/2.png", 0);
    (void)copy(f, AT("cat/b.png"), "b/caf\xe9/1.png", 0);
    (void)copy(f, AT("cat/b.png"), "b/caf\xc3\xa9/2.png", 0);
    (void)copy(f, AT("cat/b.png"), "b/caf\xc3\x83\xc2\xa9/3.png",
               0); /* in Latin-1: the name above */
    const char *train[] = {ru_path_join(&f->arena, f->root, "a")},
               *test[] = {ru_path_join(&f->arena, f->root, "b")};
    ru_dataset *d = open_images(f, train, 1, false), *other;
    assert_int_equal(ru_dataset_classes(d), 2);
    assert_string_equal(ru_dataset_class_name(d, 0), "caf\xc3\xa8");
    assert_string_equal(ru_dataset_class_name(d, 1), utf8);
    const char *names[] = {ru_dataset_class_name(d, 0), ru_dataset_class_name(d, 1)};
    ru_data_options opt = {.format = "images",
                           .paths = test,
                           .n_paths = 1,
                           .class_names = names,
                           .n_class_names = 2,
                           .raw = true};
    assert_ok(ru_dataset_open(&opt, &other, &f->err), f->err);
    assert_int_equal(ru_dataset_count(other), 2);
    ru_dataset_close(other);
    opt.n_class_names = 0; /* the same without names: both forms are one class */
    assert_ok(ru_dataset_open(&opt, &other, &f->err), f->err);
    assert_int_equal(ru_dataset_count(other), 3);
    assert_int_equal(ru_dataset_classes(other), 2);
    assert_string_equal(ru_dataset_class_name(other, 1), utf8);
    ru_dataset_close(other);
    ru_dataset_close(d);
}

/* Where the first stored row and column are shown, by the table of the Exif standard. */
static void test_orientation(void **state)
{
    ru_scratch *f = *state;
    static const char *const shown[] = {"top left", "top right", "bottom right", "bottom left",
                                        "left top", "right top", "right bottom", "left bottom"};
    const char *plain[] = {ru_path_join(&f->arena, f->root, "0")};
    (void)copy(f, AT("cat/a.jpg"), "0/k/a.jpg", 0);
    ru_dataset *d = open_images(f, plain, 1, false);
    const ru_field *t;
    (void)ru_dataset_fields(d, &t);
    int64_t h = t->type.dims[1], w = t->type.dims[2], size = 3 * h * w, y;
    uint8_t *a = test_malloc((size_t)size), *b = test_malloc((size_t)size);
    void *into[] = {a, &y};
    assert_true(h != w);
    assert_ok(ru_dataset_read(d, 0, into, &f->err), f->err);
    ru_dataset_close(d);
    into[0] = b;
    for (int o = 1; o <= 8; o++) {
        const char *root[] = {ru_arena_printf(&f->arena, "%s/%d", f->root, o)};
        (void)copy(f, AT("cat/a.jpg"), ru_arena_printf(&f->arena, "%d/k/a.jpg", o), o);
        d = open_images(f, root, 1, false);
        (void)ru_dataset_fields(d, &t);
        bool aside = shown[o - 1][0] == 'l' || shown[o - 1][0] == 'r'; /* row 0 is a side */
        bool top = strstr(shown[o - 1], "top") != NULL, left = strstr(shown[o - 1], "left") != NULL;
        int64_t out_h = aside ? w : h, out_w = aside ? h : w;
        assert_int_equal(t->type.dims[1], out_h);
        assert_int_equal(t->type.dims[2], out_w);
        assert_ok(ru_dataset_read(d, 0, into, &f->err), f->err);
        ru_dataset_close(d);
        for (int64_t k = 0; k < size; k++) { /* stored pixel (row, column) of plane k */
            int64_t plane = k / (h * w), row = k / w % h, column = k % w;
            int64_t down = aside ? column : row, right = aside ? row : column;
            down = top ? down : out_h - 1 - down;
            right = left ? right : out_w - 1 - right;
            assert_int_equal(b[plane * h * w + down * out_w + right], a[k]);
        }
    }
    test_free(a);
    test_free(b);
}

static ru_status read_picture(const char *path, uint8_t *pixels, ru_err *err)
{
    uint8_t whole[4096]; /* the second field */
    const ru_data_options opt = {
        .format = "images", .paths = &path, .n_paths = 1, .unlabelled = true, .raw = true};
    ru_dataset *d = NULL;
    ru_status st = ru_dataset_open(&opt, &d, err);
    st = st == RU_OK ? ru_dataset_read(d, 0, (void *[]){pixels, whole}, err) : st;
    ru_dataset_close(d);
    return st;
}

static void write_bytes(const char *path, const char *data, int64_t n)
{
    (void)remove(
        path); /* a file system may flush a file that is cut to nothing and written again */
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(data, 1, (size_t)n, to), (size_t)n);
    assert_int_equal(fclose(to), 0);
}

/* The bytes of a file behind its pixels: the checksum of the last chunk and the chunk IEND; the
 * ends of the line and of the runs; the byte that ends a GIF, and its other pictures. */
static int64_t bytes_behind(const char *path, int64_t size)
{
    static const struct {
        const char *end;
        int64_t behind;
    } rows[] = {{".png", 16}, {"/rle4.bmp", 4}, {"/rle8.bmp", 4}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        if (ru_str_ends(ru_str_c(path), rows[k].end)) {
            return rows[k].behind;
        }
    }
    bool some = ru_str_ends(ru_str_c(path), "/anim.gif");
    return some ? size - 476 : ru_str_ends(ru_str_c(path), ".gif") ? 1 : 0;
}

/* A picture cut anywhere before the end of its pixels is damaged; one cut later is as the whole. */
static void check_cuts(ru_scratch *f, const char *path, const uint8_t *want, int64_t want_n)
{
    int64_t size;
    char *data;
    uint8_t *got = ru_arena_alloc(&f->arena, want_n, 1);
    assert_ok(ru_file_read(path, 0, &f->arena, &data, &size, &f->err), f->err);
    const char *cut = ru_path_join(&f->arena, f->root, "cut");
    int64_t whole = size - bytes_behind(path, size);
    for (int64_t end = 0; end < size; end += end < 64 || llabs(end - whole) < 20 ? 1 : 13) {
        write_bytes(cut, data, end);
        ru_status st = read_picture(cut, got, &f->err);
        ru_status due = end < whole ? RU_E_DATA : RU_OK;
        if (st != due || (st == RU_OK && memcmp(got, want, (size_t)want_n) != 0)) {
            fail_msg("%s cut to %lld of %lld bytes: %s, or other pixels", path, (long long)end,
                     (long long)size, ru_status_name(st));
        }
    }
}

/* A GIF whose picture is larger than its canvas: rows below the canvas are not read, and a picture
 * of more than 2^28 pixels is refused before a line of it is. */
static void test_gif_canvas(void **state)
{
    ru_scratch *f = *state;
    enum { WIDE = 19, HIGH = 13, PLACE = 205 }; /* where the picture's place stands in the file */
    uint8_t want[3 * WIDE * HIGH], got[3 * WIDE * HIGH];
    const char *from = RU_SOURCE_ROOT "/test/data/reader/pictures/p.gif";
    const char *path = ru_path_join(&f->arena, f->root, "x.gif");
    char *data;
    int64_t size;
    ru_status st = read_picture(from, want, &f->err);
    if (st == RU_E_UNSUPPORTED) {
        return;
    }
    assert_ok(st, f->err);
    assert_ok(ru_file_read(from, 0, &f->arena, &data, &size, &f->err), f->err);
    assert_int_equal(data[PLACE], 0x2c);
    data[8] = 3; /* the canvas has 3 rows; the first of two blocks holds them */
    write_bytes(path, data, PLACE + 12 + 255);
    assert_ok(read_picture(path, got, &f->err), f->err);
    for (int plane = 0; plane < 3; plane++) {
        assert_memory_equal(got + plane * WIDE * 3, want + plane * WIDE * HIGH, WIDE * 3);
    }
    memset(data + PLACE + 5, 0xff, 4);
    write_bytes(path, data, size);
    assert_int_equal(read_picture(path, got, &f->err), RU_E_DATA);
    assert_non_null(strstr(f->err.text, "65535 x 65535 pixels"));
}

/* BMP, GIF, WebP and what Exif says in PNG and WebP, as Pillow reads them
 * (test/oracle/pictures.py). */
static void test_other_forms(void **state)
{
    ru_scratch *f = *state;
    enum { BYTES = 3 * 13 * 19 };
    char **names, *want;
    uint32_t n;
    int64_t bytes;
    const char *dir = RU_SOURCE_ROOT "/test/data/reader/pictures";
    assert_ok(ru_dir_list(dir, &f->arena, &names, &n, &f->err), f->err);
    assert_ok(ru_file_read(RU_SOURCE_ROOT "/test/data/reader/pictures.rgb", 0, &f->arena, &want,
                           &bytes, &f->err),
              f->err);
    assert_int_equal(bytes, (int64_t)n * BYTES);
    for (uint32_t k = 0; k < n; k++) {
        uint8_t got[BYTES];
        const char *path = ru_path_join(&f->arena, dir, names[k]);
        ru_status st = read_picture(path, got, &f->err);
        if (st == RU_E_UNSUPPORTED) { /* built without the library */
            assert_non_null(strstr(f->err.text, "install lib"));
            continue;
        }
        assert_ok(st, f->err);
        for (int e = 0; e < BYTES; e++) {
            int off = got[e] - (uint8_t)want[k * BYTES + (uint32_t)e];
            if (off < -1 || off > 1) {
                fail_msg("%s: byte %d is %d, off by %d", names[k], e, got[e], off);
            }
        }
        check_cuts(f, path, got, BYTES);
    }
}

#define RUN(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(data_images, RUN(test_folders), RUN(test_latin_folders), RUN(test_orientation),
         RUN(test_gif_canvas), RUN(test_other_forms))
