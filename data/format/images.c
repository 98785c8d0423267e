/* A folder of class folders with pictures (image.h), at any depth:
 *
 *     ROOT/cat/1.jpg  ROOT/cat/old/2.png  ROOT/dog/1.jpg        classes: cat 0, dog 1 (sorted)
 *
 * Other files are left out, and a warning counts them by their endings. Without labels any files
 * and folders do.
 *
 * Files are opened when read, those of a batch at a time (fetch.h); the order of samples is by
 * class, then by name. */
#include "base/vec.h"
#include "data/fetch.h"
#include "data/format/csv_text.h"
#include "data/format/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"

typedef struct image_entry {
    rui_source source; /* not open: the name, and the size when the folder was listed */
    int64_t label;
} image_entry;

RU_VEC(rui_image_entries, image_entry)

enum { DEPTH_MAX = 32, ENDINGS_MAX = 8 };

/* Files that are no images that can be read: how many of which ending. */
typedef struct left_out {
    char ending[ENDINGS_MAX][12];
    int64_t count[ENDINGS_MAX];
    uint32_t n;
    int64_t all;
} left_out;

typedef struct images_set {
    rui_image_entries files;
    int64_t width, height;
    bool resize;
} images_set;

static bool is_image_name(const char *name)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp"};
    const char *dot = strrchr(name, '.');
    for (uint32_t k = 0; dot != NULL && k < RU_ARRAY_LEN(endings); k++) {
        if (strcasecmp(dot, endings[k]) == 0) {
            return true;
        }
    }
    return false;
}

static void leave_out(left_out *l, const char *name)
{
    const char *dot = strrchr(name, '.');
    char ending[12];
    (void)snprintf(ending, sizeof ending, "%.11s", dot != NULL ? dot : "no ending");
    uint32_t k = 0;
    while (k < l->n && strcasecmp(l->ending[k], ending) != 0) {
        k++;
    }
    l->all++;
    if (k == l->n && k < ENDINGS_MAX) {
        memcpy(l->ending[l->n++], ending, sizeof ending);
    }
    if (k < ENDINGS_MAX) {
        l->count[k]++;
    }
}

/* One warning about all that was found in `dir` and is no image. */
static void say_left_out(const left_out *l, const char *dir)
{
    char list[200] = "";
    ru_text t = ru_text_into(list, sizeof list);
    for (uint32_t k = 0; k < l->n; k++) {
        ru_text_putf(&t, "%s%lld %s", k > 0 ? ", " : "", (long long)l->count[k], l->ending[k]);
    }
    if (l->all > 0) {
        ru_log(RU_LOG_WARN, "data", "images",
               "%s: %lld file%s left out, because Rubato reads .jpg, .jpeg, .png, .bmp, .gif and "
               ".webp: %s",
               dir, (long long)l->all, l->all == 1 ? " is" : "s are", list);
    }
}

static ru_status add_file(ru_dataset *d, const char *path, int64_t label, ru_err *err)
{
    images_set *s = d->self;
    image_entry *e = rui_image_entries_push(&s->files, &d->arena);
    if (e == NULL) {
        return rui_no_memory(err, path, s->files.n);
    }
    int64_t bytes = ru_path_bytes(path);
    *e = (image_entry){{.path = path, .file = {.fd = -1}, .size_bytes = bytes, .disk_bytes = bytes},
                       label};
    return RU_OK;
}

/* All images in a folder and the folders in it, by name; hidden ones are not looked at. */
static ru_status add_folder(ru_dataset *d, const char *dir, int64_t label, uint32_t depth,
                            left_out *l, ru_err *err)
{
    char **names = NULL;
    uint32_t n = 0;
    if (depth > DEPTH_MAX) {
        return RU_FAIL(err, RU_E_DATA, "%s: more than %d folders are in one another", dir,
                       DEPTH_MAX);
    }
    RU_TRY(ru_dir_list(dir, &d->arena, &names, &n, err));
    for (uint32_t i = 0; i < n; i++) {
        const char *path = ru_path_join(&d->arena, dir, names[i]);
        if (path == NULL) {
            return rui_no_memory(err, dir, n);
        }
        if (names[i][0] == '.') {
            continue;
        }
        if (ru_path_is_dir(path)) {
            RU_TRY(add_folder(d, path, label, depth + 1, l, err));
        } else if (is_image_name(names[i])) {
            RU_TRY(add_file(d, path, label, err));
        } else {
            leave_out(l, names[i]);
        }
    }
    return RU_OK;
}

/* Pictures without labels: files and whole folders, in the order in which they are named. */
static ru_status list_unlabelled(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    images_set *s = d->self;
    left_out l = {0};
    for (uint32_t r = 0; r < opt->n_paths; r++) {
        if (ru_path_is_dir(opt->paths[r])) {
            RU_TRY(add_folder(d, opt->paths[r], 0, 0, &l, err));
            continue;
        }
        const char *path = ru_arena_str(&d->arena, opt->paths[r]);
        if (path == NULL) {
            return rui_no_memory(err, opt->paths[r], 0);
        }
        if (!ru_path_exists(path)) {
            return RU_FAIL(err, RU_E_MISSING, "%s does not exist", path);
        }
        RU_TRY(add_file(d, path, 0, err));
    }
    say_left_out(&l, opt->paths[0]);
    return s->files.n > 0 ? RU_OK
                          : RU_FAIL(err, RU_E_DATA,
                                    "%s: there is no .jpg, .jpeg, .png, .bmp, .gif or .webp file "
                                    "in the folder or in "
                                    "the folders in it",
                                    opt->paths[0]);
}

static bool is_utf8(const char *name)
{
    return rui_is_utf8((const uint8_t *)name, (int64_t)strlen(name));
}

/* The class of a folder: its name. Bytes that are no UTF-8 are Latin-1 letters, as in a csv file,
 * so that a run can store the name. */
static const char *class_of(ru_arena *arena, const char *folder)
{
    if (is_utf8(folder)) {
        return folder;
    }
    char *name = ru_arena_alloc(arena, 2 * (int64_t)strlen(folder) + 1, 1), *to = name;
    for (const uint8_t *p = (const uint8_t *)folder; name != NULL && *p != 0; p++) {
        if (*p >= 0x80) {
            *to++ = (char)(0xc0 | *p >> 6);
        }
        *to++ = (char)(*p < 0x80 ? *p : 0x80 | (*p & 0x3f));
    }
    if (name != NULL) {
        *to = 0;
        ru_log(RU_LOG_WARN, "data", "encoding",
               "the name of the class folder '%s' is not UTF-8; Rubato takes its bytes as Latin-1 "
               "letters",
               name);
    }
    return name;
}

/* The other name that a folder of this class may have, in Latin-1; "": none. */
static const char *latin_folder_of(ru_arena *arena, const char *name)
{
    char *folder = ru_arena_str(arena, name), *to = folder;
    for (const uint8_t *p = (const uint8_t *)name; folder != NULL && *p != 0; p++) {
        if (*p >= 0x80 && *p != 0xc2 && *p != 0xc3) {
            return "";
        }
        *to++ = (char)(*p < 0x80 ? *p : (*p & 3) << 6 | (p[1] & 0x3f));
        p += *p >= 0x80;
    }
    if (folder != NULL) {
        *to = 0;
    }
    return folder != NULL && is_utf8(folder) ? "" : folder;
}

/* Names of the class folders of all roots, sorted and once each, unless they were given. */
static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static ru_status find_classes(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    RU_TRY(rui_class_names_take(d, opt, err));
    if (d->class_names != NULL) {
        return RU_OK;
    }
    const char **all = NULL;
    uint32_t n_all = 0;
    for (uint32_t r = 0; r < opt->n_paths; r++) {
        char **names = NULL;
        uint32_t n = 0, keep = 0;
        RU_TRY(ru_dir_list(opt->paths[r], &d->arena, &names, &n, err));
        const char **more = RU_NEW(&d->arena, const char *, n_all + n + 1);
        if (more == NULL) {
            return rui_no_memory(err, opt->paths[r], n);
        }
        for (; keep < n_all; keep++) {
            more[keep] = all[keep];
        }
        for (uint32_t i = 0; i < n; i++) {
            const char *path = ru_path_join(&d->arena, opt->paths[r], names[i]);
            if (path != NULL && names[i][0] != '.' && ru_path_is_dir(path)) {
                more[keep] = class_of(&d->arena, names[i]);
                if (more[keep++] == NULL) {
                    return rui_no_memory(err, opt->paths[r], n);
                }
            }
        }
        all = more;
        n_all = keep;
    }
    if (n_all == 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: there are no class folders; expected one folder of images per class",
                       opt->paths[0]);
    }
    qsort(all, n_all, sizeof *all, by_text);
    uint32_t k = 1;
    for (uint32_t i = 1; i < n_all; i++) {
        if (strcmp(all[i], all[k - 1]) != 0) {
            all[k++] = all[i];
        }
    }
    d->class_names = all;
    d->classes = k;
    return RU_OK;
}

static ru_status list_files(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    images_set *s = d->self;
    for (int64_t c = 0; c < d->classes; c++) {
        uint32_t before = s->files.n;
        left_out l = {0};
        const char *names[] = {d->class_names[c], latin_folder_of(&d->arena, d->class_names[c])};
        for (uint32_t r = 0; r < 2 * opt->n_paths; r++) {
            const char *root = opt->paths[r / 2], *name = names[r % 2];
            const char *dir = name != NULL ? ru_path_join(&d->arena, root, name) : NULL;
            if (dir == NULL) {
                return rui_no_memory(err, root, 0);
            }
            if (name[0] != 0 && ru_path_is_dir(dir)) {
                RU_TRY(add_folder(d, dir, c, 0, &l, err));
                if (!opt->held_out) { /* said of the training set, which has the same files */
                    say_left_out(&l, dir);
                }
                l = (left_out){0};
            }
        }
        if (s->files.n == before && opt->n_class_names == 0) {
            ru_log(RU_LOG_WARN, "data", "images",
                   "%s: class '%s' has no image, so a model cannot learn it; remove its folder, or "
                   "put images there",
                   opt->paths[0], d->class_names[c]);
        }
    }
    return RU_OK;
}

/* The whole file; *bytes is the caller's to free, NULL on failure. */
static ru_status load(const char *path, uint8_t **bytes, int64_t *n, ru_err *err)
{
    ru_in_file f = {.fd = -1};
    RU_TRY(ru_in_open(path, &f, err));
    ru_status st = RU_OK;
    *n = f.size_bytes;
    *bytes = NULL;
    if (f.size_bytes < 1 || f.size_bytes > RUI_SAMPLE_BYTES_MAX) {
        st = RU_FAIL(err, RU_E_DATA,
                     "%s: the file has %lld bytes; expected an image of 1 to %d bytes", path,
                     (long long)f.size_bytes, RUI_SAMPLE_BYTES_MAX);
    }
    if (st == RU_OK) {
        *bytes = malloc((size_t)*n);
        st = *bytes != NULL ? ru_in_read(&f, path, 0, *bytes, *n, err)
                            : rui_no_memory(err, path, *n);
    }
    ru_in_close(&f);
    if (st != RU_OK) {
        free(*bytes);
        *bytes = NULL;
    }
    return st;
}

static ru_status find_size(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    images_set *s = d->self;
    s->resize = opt->image_size > 0;
    s->width = s->height = opt->image_size;
    if (s->resize) {
        return RU_OK;
    }
    uint8_t *bytes = NULL;
    int64_t n = 0;
    rui_place at = {.path = s->files.at[0].source.path};
    ru_status st = load(at.path, &bytes, &n, err);
    if (st == RU_OK) {
        st = rui_image_measure(d, bytes, n, &s->width, &s->height, err);
        st = st == RU_OK ? st : rui_place_wrap(err, st, &at);
    }
    free(bytes);
    return st;
}

static ru_status finish(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    images_set *s = d->self;
    RU_TRY(find_size(d, opt, err));
    for (uint32_t i = 0; i < s->files.n; i++) {
        d->bytes += s->files.at[i].source.size_bytes;
    }
    d->count = s->files.n;
    const int64_t dims[3] = {3, s->height, s->width};
    rui_field_add(d, "x", rui_pixel_dtype(d), 3, dims);
    return RU_OK;
}

static ru_status images_open(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    if (opt->n_paths < 1) {
        return RU_FAIL(err, RU_E_CONFIG, "images: no folder is named");
    }
    images_set *s = d->self = RU_NEW(&d->arena, images_set, 1);
    if (s == NULL) {
        return rui_no_memory(err, "images", sizeof *s);
    }
    if (opt->unlabelled) {
        RU_TRY(list_unlabelled(d, opt, err));
        return finish(d, opt, err);
    }
    RU_TRY(find_classes(d, opt, err));
    RU_TRY(list_files(d, opt, err));
    if (opt->classes > 0 && opt->classes != d->classes) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: there are %lld class folders, but classes is set to %lld",
                       opt->paths[0], (long long)d->classes, (long long)opt->classes);
    }
    if (s->files.n == 0) {
        return RU_FAIL(
            err, RU_E_DATA,
            "%s: the class folders contain no .jpg, .jpeg, .png, .bmp, .gif or .webp files",
            opt->paths[0]);
    }
    RU_TRY(finish(d, opt, err));
    rui_field_add_class(d);
    return RU_OK;
}

static ru_status images_read(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err)
{
    const images_set *s = d->self;
    const image_entry *e = &s->files.at[index];
    uint8_t *own = NULL;
    int64_t n = e->source.size_bytes;
    const uint8_t *bytes = rui_bytes_find(d, &e->source, 0, n);
    if (bytes == NULL) {
        RU_TRY(load(e->source.path, &own, &n, err));
        bytes = own;
    }
    ru_status st = rui_image_decode(d, bytes, n, s->width, s->height, s->resize, fields[0], err);
    free(own);
    if (st != RU_OK) {
        rui_place at = {.path = e->source.path};
        return rui_place_wrap(err, st, &at);
    }
    if (d->y_field >= 0) {
        rui_class_put(d, e->label, fields[1]);
    }
    return RU_OK;
}

static const char *images_path(const ru_dataset *d, int64_t index)
{
    const images_set *s = d->self;
    return s->files.at[index].source.path;
}

static void images_where(const ru_dataset *d, int64_t first, int64_t n, rui_where_fn fn, void *self)
{
    const images_set *s = d->self;
    for (int64_t i = first; i < first + n; i++) {
        const rui_source *f = &s->files.at[i].source;
        if (f->size_bytes <= RUI_SAMPLE_BYTES_MAX) {
            fn(self, f, 0, f->size_bytes);
        }
    }
}

const rui_format rui_format_images = {
    .name = "images",
    .help = "folders of class folders with JPEG, PNG, WebP, GIF or BMP files: [folder, ...]",
    .open = images_open,
    .read = images_read,
    .where = images_where,
    .path = images_path,
    .close = rui_image_close,
};
