/* Detection of formats: magic numbers, then the look of the text, then the name. */
#include "data/detect.h"

#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/str.h"
#include "data/data_impl.h"
#include "data/format/table.h"

enum { LOOK_BYTES = 4096 };

static bool name_ends(const char *path, const char *end)
{
    return ru_str_ends(ru_str_c(path), end);
}

static bool is_text(const uint8_t *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (p[i] == 0 || (p[i] < 32 && p[i] != '\n' && p[i] != '\r' && p[i] != '\t' &&
                          p[i] != '\f' && p[i] != 27)) {
            return false;
        }
    }
    return n > 0;
}

/* The first line decides: "label feature:value", or cells of which one is a number. */
static const char *text_format(const uint8_t *p, int64_t n)
{
    ru_str text = ru_str_n((const char *)p, n), line, word;
    for (int k = 0; k < 2 && ru_str_next(&text, '\n', &line); k++) { /* the first may be a header */
        ru_str rest = ru_str_trim(line);
        double v;
        bool first = ru_str_next(&rest, ' ', &word) && rui_number(word.p, word.n, &v);
        if (first && ru_str_next(&rest, ' ', &word)) {
            int64_t colon = ru_str_find(word, ":"), feature;
            if (colon > 0 && ru_str_i64(ru_str_n(word.p, colon), &feature) &&
                rui_number(word.p + colon + 1, word.n - colon - 1, &v)) {
                return "libsvm";
            }
        }
        const char seps[] = {',', ';', '\t'};
        for (uint32_t i = 0; i < sizeof seps; i++) {
            rest = ru_str_trim(line);
            int64_t cells = 0, numbers = 0;
            while (ru_str_next(&rest, seps[i], &word)) {
                word = ru_str_trim(word);
                cells++;
                numbers += rui_number(word.p, word.n, &v);
            }
            if (cells > 1 && numbers * 2 >= cells) {
                return "csv";
            }
        }
    }
    return NULL;
}

static bool is_tfrecord(const uint8_t *p, int64_t n, int64_t size)
{
    uint64_t length;
    uint32_t crc;
    if (n < 12) {
        return false;
    }
    memcpy(&length, p, sizeof length);
    memcpy(&crc, p + 8, sizeof crc);
    return length < (uint64_t)size && ru_crc32c_mask(ru_crc32c(0, p, 8)) == crc;
}

static const char *file_format(const char *path, const uint8_t *p, int64_t n, int64_t size)
{
    if (n >= 6 && (memcmp(p, "\x93NUMPY", 6) == 0 || memcmp(p, "PK\3\4", 4) == 0)) {
        return "npy";
    }
    if (n >= 8 && memcmp(p, "RUPACK1\n", 8) == 0) {
        return "packed";
    }
    if (n >= 262 && memcmp(p + 257, "ustar", 5) == 0) {
        return "tar";
    }
    if (n >= 4 && p[0] == 0 && p[1] == 0 && p[2] >= 8 && p[2] <= 14 && p[3] >= 1 && p[3] <= 7) {
        return "idx";
    }
    if (n >= 2 && p[0] == 0x1f && p[1] == 0x8b) {
        return "idx";
    }
    if (is_tfrecord(p, n, size)) {
        return "tfrecord";
    }
    if (name_ends(path, ".u8") || name_ends(path, ".u16") || name_ends(path, ".u32")) {
        return "tokens";
    }
    if (is_text(p, n)) {
        const char *text = name_ends(path, ".txt") ? NULL : text_format(p, n);
        return text != NULL ? text : "tokens";
    }
    if ((size % 3073 == 0 && n > 0 && p[0] < 10) || (size % 3074 == 0 && n > 1 && p[1] < 100)) {
        return "cifar";
    }
    return name_ends(path, ".bin") ? "tokens" : NULL;
}

/* The first bytes, as they stand in the file: a packed one is not unpacked. */
static ru_status look(const char *path, ru_objects **objects, uint8_t buf[LOOK_BYTES], int64_t *n,
                      int64_t *size, ru_err *err)
{
    ru_object *object = NULL;
    ru_in_file f = {.fd = -1};
    if (ru_object_address(path)) {
        RU_TRY(rui_object_open(objects, path, &object, err));
        *size = ru_object_bytes(object);
    } else {
        RU_TRY(ru_in_open(path, &f, err));
        *size = f.size_bytes;
    }
    *n = *size < LOOK_BYTES ? *size : LOOK_BYTES;
    ru_status st = *n == 0          ? RU_OK
                   : object != NULL ? ru_object_read(object, 0, buf, *n, err)
                                    : ru_in_read(&f, path, 0, buf, *n, err);
    if (object == NULL) {
        ru_in_close(&f);
    }
    return st;
}

static ru_status detect_file(const char *path, const char **format, ru_err *err)
{
    if (strchr(path, '{') != NULL) {
        *format = "tar";
        return RU_OK;
    }
    ru_objects *objects = NULL;
    uint8_t buf[LOOK_BYTES];
    int64_t size = 0, n = 0;
    ru_status st = look(path, &objects, buf, &n, &size, err);
    ru_objects_close(objects);
    RU_TRY(st);
    *format = file_format(path, buf, n, size);
    if (*format == NULL) {
        return RU_FAIL(err, RU_E_DATA, "%s: the format is unknown; name it with --format", path);
    }
    return RU_OK;
}

/* -- folders ----------------------------------------------------------------------------------- */

typedef struct listing {
    const char *dir;
    char **names;
    uint32_t n;
    ru_arena *arena;
} listing;

/* The first name that begins with `head` (a %s in it is the part) and ends with `tail`. */
static const char *pick(const listing *l, const char *head, const char *tail)
{
    for (uint32_t i = 0; i < l->n; i++) {
        if (ru_str_starts(ru_str_c(l->names[i]), head) && name_ends(l->names[i], tail) &&
            !ru_path_is_dir(ru_path_join(l->arena, l->dir, l->names[i]))) {
            return ru_path_join(l->arena, l->dir, l->names[i]);
        }
    }
    return NULL;
}

static ru_status give(ru_data_options *out, ru_arena *arena, const char *format, const char *a,
                      const char *b, ru_err *err)
{
    const char **paths = RU_NEW(arena, const char *, 2);
    if (paths == NULL) {
        return rui_no_memory(err, format, 0);
    }
    paths[0] = a;
    paths[1] = b;
    out->format = format;
    out->paths = paths;
    out->n_paths = b != NULL ? 2 : 1;
    return RU_OK;
}

/* All files with this ending (and head), as one list. */
static ru_status give_all(ru_data_options *out, const listing *l, const char *format,
                          const char *head, const char *tail, ru_err *err)
{
    const char **paths = RU_NEW(l->arena, const char *, l->n + 1);
    if (paths == NULL) {
        return rui_no_memory(err, format, 0);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        if (ru_str_starts(ru_str_c(l->names[i]), head) && name_ends(l->names[i], tail)) {
            paths[n++] = ru_path_join(l->arena, l->dir, l->names[i]);
        }
    }
    out->format = format;
    out->paths = paths;
    out->n_paths = n;
    return RU_OK;
}

static bool has_class_folders(const listing *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->names[i][0] != '.' && ru_path_is_dir(ru_path_join(l->arena, l->dir, l->names[i]))) {
            return true;
        }
    }
    return false;
}

static ru_status detect_folder(const listing *l, const char *part, ru_data_options *out,
                               ru_err *err)
{
    static const char *const single[][2] = {
        {".csv", "csv"}, {".tsv", "csv"},   {".svm", "libsvm"}, {".pack", "packed"},
        {".npz", "npy"}, {".u8", "tokens"}, {".u16", "tokens"}, {".txt", "tokens"}};
    char head[128];
    snprintf(head, sizeof head, "%.60s-images", part);
    const char *a = pick(l, head, ""), *b;
    snprintf(head, sizeof head, "%.60s-labels", part);
    b = pick(l, head, "");
    if (a != NULL && b != NULL) {
        return give(out, l->arena, "idx", a, b, err);
    }
    snprintf(head, sizeof head, "%.60s-x", part);
    a = pick(l, head, ".npy");
    snprintf(head, sizeof head, "%.60s-y", part);
    b = pick(l, head, ".npy");
    if (a != NULL) {
        return give(out, l->arena, "npy", a, b, err);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(single); k++) {
        a = pick(l, part, single[k][0]);
        if (a != NULL) {
            return give(out, l->arena, single[k][1], a, NULL, err);
        }
    }
    if (pick(l, "", ".tar") != NULL) {
        return give_all(out, l, "tar", pick(l, part, ".tar") != NULL ? part : "", ".tar", err);
    }
    const char *batch = strcmp(part, "test") == 0 ? "test_batch" : "data_batch";
    if (pick(l, batch, ".bin") != NULL) {
        return give_all(out, l, "cifar", batch, ".bin", err);
    }
    if (has_class_folders(l)) {
        const char *inner = ru_path_join(l->arena, l->dir, part);
        return give(out, l->arena, "images", ru_path_is_dir(inner) ? inner : l->dir, NULL, err);
    }
    return RU_FAIL(err, RU_E_DATA,
                   "%s: the folder contains no known data; expected class folders of images, or "
                   "files named %s-images and %s-labels, %s.csv, %s.svm, %s.u8, ...",
                   l->dir, part, part, part, part, part);
}

ru_status ru_data_detect(const char *const *paths, uint32_t n_paths, const char *part,
                         ru_arena *arena, ru_data_options *out, ru_err *err)
{
    RU_CHECK(n_paths >= 1);
    if (n_paths == 1 && ru_path_is_dir(paths[0])) {
        listing l = {.dir = paths[0], .arena = arena};
        RU_TRY(ru_dir_list(paths[0], arena, &l.names, &l.n, err));
        return detect_folder(&l, part, out, err);
    }
    const char *format = "images";
    if (!ru_path_is_dir(paths[0])) {
        RU_TRY(detect_file(paths[0], &format, err));
    }
    out->format = format;
    out->paths = paths;
    out->n_paths = n_paths;
    return RU_OK;
}
