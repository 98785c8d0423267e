/* CIFAR binary files: records of label byte(s) and 3 x 32 x 32 pixels.
 *
 *     CIFAR-10:          label | 1024 red | 1024 green | 1024 blue       3073 bytes
 *     CIFAR-100: coarse, fine  | 1024 red | 1024 green | 1024 blue       3074 bytes
 *
 * Which of the two is told by the file size, or by classes = 10 or 100 when both fit. y is the fine
 * label. Source: krizhevsky-2009 (the data set's page describes the binary version). */
#include "data/data_impl.h"

#include <string.h>

enum { CIFAR_PIXELS = 3 * 32 * 32 };

typedef struct cifar_set {
    rui_source *files; /* [n] */
    int64_t *starts;   /* [n + 1] index of each file's first sample */
    uint32_t n;
    int64_t labels; /* label bytes of a record: 1 or 2 */
} cifar_set;

/* Label bytes of a file, 0 when it is not CIFAR. */
static int64_t label_bytes(int64_t size_bytes, int64_t classes)
{
    bool ten = size_bytes % (CIFAR_PIXELS + 1) == 0, hundred = size_bytes % (CIFAR_PIXELS + 2) == 0;
    if (size_bytes == 0 || (!ten && !hundred)) {
        return 0;
    }
    if (ten && hundred) {
        return classes == 100 ? 2 : 1;
    }
    return ten ? 1 : 2;
}

static ru_status open_file(ru_dataset *d, const ru_data_options *opt, cifar_set *s, uint32_t i,
                           ru_err *err)
{
    int64_t resident =
        opt->resident_max_bytes != 0 ? opt->resident_max_bytes : RUI_RESIDENT_MAX_BYTES;
    const char *path = opt->paths[i];
    RU_TRY(rui_source_open(&d->arena, &d->objects, path, resident, opt->direct, &s->files[i], err));
    int64_t size = s->files[i].size_bytes, labels = label_bytes(size, opt->classes);
    if (labels == 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: %lld bytes are not a multiple of a CIFAR record (3073 bytes for 10 "
                       "classes, 3074 for 100); the file is cut short or in another format",
                       path, (long long)size);
    }
    if (i > 0 && labels != s->labels) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s is a CIFAR-%d file, but %s is a CIFAR-%d file; name files of one kind",
                       path, labels == 1 ? 10 : 100, opt->paths[0], s->labels == 1 ? 10 : 100);
    }
    s->labels = labels;
    s->starts[i + 1] = s->starts[i] + size / (CIFAR_PIXELS + labels);
    d->bytes += s->files[i].disk_bytes;
    return RU_OK;
}

static ru_status cifar_open(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    if (opt->n_paths < 1) {
        return RU_FAIL(err, RU_E_CONFIG, "cifar: no files are named");
    }
    cifar_set *s = d->self = RU_NEW(&d->arena, cifar_set, 1);
    rui_source *files = RU_NEW(&d->arena, rui_source, opt->n_paths);
    int64_t *starts = RU_NEW(&d->arena, int64_t, opt->n_paths + 1);
    if (s == NULL || files == NULL || starts == NULL) {
        return rui_no_memory(err, "cifar", sizeof *s);
    }
    *s = (cifar_set){.files = files, .starts = starts, .n = opt->n_paths};
    for (uint32_t i = 0; i < s->n; i++) {
        RU_TRY(open_file(d, opt, s, i, err));
    }
    d->count = s->starts[s->n];
    d->classes = s->labels == 1 ? 10 : 100;
    if (opt->classes > 0 && opt->classes != d->classes) {
        return RU_FAIL(err, RU_E_CONFIG, "%s is a CIFAR-%lld file, but classes is set to %lld",
                       opt->paths[0], (long long)d->classes, (long long)opt->classes);
    }
    const int64_t dims[3] = {3, 32, 32};
    rui_field_add(d, "x", rui_pixel_dtype(d), 3, dims);
    rui_field_add_class(d);
    return RU_OK;
}

static ru_status cifar_read(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err)
{
    const cifar_set *s = d->self;
    uint32_t f = 0;
    while (index >= s->starts[f + 1]) {
        f++;
    }
    uint8_t tmp[CIFAR_PIXELS + 2];
    const uint8_t *p = NULL;
    int64_t bytes = CIFAR_PIXELS + s->labels, at = (index - s->starts[f]) * bytes;
    RU_TRY(rui_bytes_view(d, &s->files[f], at, bytes, tmp, &p, err));
    int64_t label = p[s->labels - 1];
    if (label >= d->classes) {
        return RU_FAIL(err, RU_E_DATA, "%s: byte %lld holds label %lld; expected 0..%lld",
                       s->files[f].path, (long long)(at + s->labels - 1), (long long)label,
                       (long long)d->classes - 1);
    }
    rui_pixels_put(d, p + s->labels, CIFAR_PIXELS, fields[0]);
    rui_class_put(d, label, fields[1]);
    return RU_OK;
}

static void cifar_where(const ru_dataset *d, int64_t first, int64_t n, rui_where_fn fn, void *self)
{
    const cifar_set *s = d->self;
    int64_t bytes = CIFAR_PIXELS + s->labels;
    for (uint32_t f = 0; f < s->n && n > 0; f++) {
        int64_t m = s->starts[f + 1] - first < n ? s->starts[f + 1] - first : n;
        if (m > 0) {
            fn(self, &s->files[f], (first - s->starts[f]) * bytes, m * bytes);
            first += m;
            n -= m;
        }
    }
}

static void cifar_close(ru_dataset *d)
{
    cifar_set *s = d->self;
    for (uint32_t i = 0; s != NULL && i < s->n; i++) {
        rui_source_close(&s->files[i]);
    }
}

const rui_format rui_format_cifar = {
    .name = "cifar",
    .help = "CIFAR-10 and CIFAR-100 binary files: [batch, ...]",
    .open = cifar_open,
    .read = cifar_read,
    .where = cifar_where,
    .close = cifar_close,
};
