/* IDX files (the MNIST layout): images and labels, plain or .gz.
 *
 *     0  0  type  rank | rank x u32 big-endian sizes | numbers, big-endian, row-major
 *
 * The first file gives x, the second, when there, y. u8 arrays of rank 3 are images [count, h, w]
 * and become [1, h, w]; rank 4 is taken as [count, c, h, w]. u8 of rank >= 2 counts as pixels and
 * is scaled; other types become f32 as they are. Labels must be rank 1 of an integer type.
 *
 * Source: lecun-1998-mnist (description of the file format on the data set's page). */
#include "data/data_impl.h"
#include "data/format/classes.h"

#include <string.h>

enum { IDX_RANK_MAX = 7 };

typedef struct idx_array {
    rui_source source;
    ru_dtype dtype;
    uint32_t rank;
    int64_t dims[IDX_RANK_MAX];
    int64_t data_at;    /* file offset of the numbers */
    int64_t item_count; /* numbers of one sample */
    int64_t item_bytes;
} idx_array;

typedef struct idx_set {
    idx_array x, y;
    bool has_y;
} idx_set;

static ru_dtype type_of(uint8_t code)
{
    switch (code) {
    case 0x08:
        return RU_U8;
    case 0x09:
        return RU_I8;
    case 0x0b:
        return RU_I16;
    case 0x0c:
        return RU_I32;
    case 0x0d:
        return RU_F32;
    case 0x0e:
        return RU_F64;
    default:
        return RU_NONE;
    }
}

static ru_status open_array(ru_dataset *d, const ru_data_options *opt, const char *path,
                            idx_array *a, ru_err *err)
{
    int64_t resident =
        opt->resident_max_bytes != 0 ? opt->resident_max_bytes : RUI_RESIDENT_MAX_BYTES;
    RU_TRY(rui_source_open(&d->arena, &d->objects, path, resident, opt->direct, &a->source, err));
    uint8_t head[4 + 4 * IDX_RANK_MAX];
    if (a->source.size_bytes < 4) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: the file has %lld bytes, which is too short for an IDX file", path,
                       (long long)a->source.size_bytes);
    }
    RU_TRY(rui_source_read(&a->source, 0, head, 4, err));
    a->dtype = type_of(head[2]);
    a->rank = head[3];
    if (head[0] != 0 || head[1] != 0 || a->dtype == RU_NONE) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: the file begins with %02x %02x %02x %02x, expected an IDX header (00 "
                       "00, type 08 09 0b 0c 0d or 0e, rank)",
                       path, head[0], head[1], head[2], head[3]);
    }
    if (a->rank < 1 || a->rank > IDX_RANK_MAX) {
        return RU_FAIL(err, RU_E_DATA, "%s: the rank in byte 3 is %u; expected 1 to %d", path,
                       a->rank, IDX_RANK_MAX);
    }
    a->data_at = 4 + 4 * (int64_t)a->rank;
    if (a->source.size_bytes < a->data_at) {
        return RU_FAIL(err, RU_E_DATA, "%s: the file ends inside its header, at byte %lld of %lld",
                       path, (long long)a->source.size_bytes, (long long)a->data_at);
    }
    RU_TRY(rui_source_read(&a->source, 0, head, a->data_at, err));
    a->item_count = 1;
    for (uint32_t i = 0; i < a->rank; i++) {
        const uint8_t *p = head + 4 + 4 * i;
        a->dims[i] = (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
        if (i > 0 && (a->dims[i] == 0 || a->dims[i] > RUI_SAMPLE_BYTES_MAX / a->item_count)) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s: size %u in the header is %lld, so samples would have 0 or more "
                           "than %d numbers",
                           path, i, (long long)a->dims[i], RUI_SAMPLE_BYTES_MAX);
        }
        a->item_count *= i > 0 ? a->dims[i] : 1;
    }
    a->item_bytes = a->item_count * ru_dtype_bytes(a->dtype);
    int64_t have = a->source.size_bytes - a->data_at;
    if (have != a->dims[0] * a->item_bytes) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: the header promises %lld samples of %lld bytes, but %lld "
                       "bytes follow it; the file is %s",
                       path, (long long)a->dims[0], (long long)a->item_bytes, (long long)have,
                       have < a->dims[0] * a->item_bytes ? "cut short" : "too long");
    }
    return RU_OK;
}

static uint64_t big_endian(const uint8_t *p, int64_t bytes)
{
    uint64_t v = 0;
    for (int64_t i = 0; i < bytes; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

static double number_at(const uint8_t *p, ru_dtype t)
{
    uint64_t v = big_endian(p, ru_dtype_bytes(t));
    float f;
    double g;
    if (t == RU_F32) {
        uint32_t w = (uint32_t)v;
        memcpy(&f, &w, sizeof f);
        return (double)f;
    }
    if (t == RU_F64) {
        memcpy(&g, &v, sizeof g);
        return g;
    }
    return t == RU_U8    ? (double)v
           : t == RU_I8  ? (double)(int8_t)v
           : t == RU_I16 ? (double)(int16_t)v
                         : (double)(int32_t)v;
}

static void numbers_put(const ru_dataset *d, const idx_array *a, const uint8_t *from, int64_t n,
                        void *into)
{
    if (a->dtype == RU_U8 && a->rank >= 2) {
        rui_pixels_put(d, from, n, into);
        return;
    }
    float *out = into;
    int64_t width = ru_dtype_bytes(a->dtype);
    for (int64_t i = 0; i < n; i++) {
        out[i] = (float)number_at(from + i * width, a->dtype);
    }
}

static ru_status read_labels(const ru_dataset *d, const idx_array *a, int64_t first, int64_t n,
                             uint8_t *into, ru_err *err)
{
    uint8_t small[4096];
    rui_scratch tmp;
    int64_t width = a->item_bytes;
    RU_TRY(rui_scratch_get(&tmp, small, sizeof small, n * width, err));
    const uint8_t *p = NULL;
    ru_status st =
        rui_bytes_view(d, &a->source, a->data_at + first * width, n * width, tmp.p, &p, err);
    for (int64_t i = 0; st == RU_OK && i < n; i++) {
        int64_t label = (int64_t)number_at(p + i * width, a->dtype);
        if (label < 0 || label >= d->classes) {
            st = RU_FAIL(err, RU_E_DATA,
                         "%s: label %lld of sample %lld (byte %lld) is outside "
                         "0..%lld",
                         a->source.path, (long long)label, (long long)(first + i),
                         (long long)(a->data_at + (first + i) * width), (long long)d->classes - 1);
            break;
        }
        rui_class_put(d, label, into + i * d->field_bytes[d->y_field]);
    }
    rui_scratch_put(&tmp);
    return st;
}

/* Largest label + 1, in pieces. */
static ru_status scan_labels(const idx_array *a, rui_classes_said *said, int64_t *classes,
                             ru_err *err)
{
    uint8_t buf[16384];
    int64_t per = (int64_t)sizeof buf / a->item_bytes, most = 0;
    for (int64_t at = 0; at < a->dims[0]; at += per) {
        int64_t n = a->dims[0] - at < per ? a->dims[0] - at : per;
        const uint8_t *p = NULL;
        RU_TRY(rui_source_view(&a->source, a->data_at + at * a->item_bytes, n * a->item_bytes, buf,
                               &p, err));
        for (int64_t i = 0; i < n; i++) {
            int64_t label = (int64_t)number_at(p + i * a->item_bytes, a->dtype);
            if (label < 0 || label >= RUI_CLASSES_MAX) {
                return RU_FAIL(err, RU_E_DATA, "%s: label %lld of sample %lld is outside 0..%d",
                               a->source.path, (long long)label, (long long)(at + i),
                               RUI_CLASSES_MAX - 1);
            }
            most = label > most ? label : most;
            rui_classes_put(said, label);
        }
    }
    *classes = most + 1;
    return RU_OK;
}

static ru_status open_labels(ru_dataset *d, const ru_data_options *opt, idx_set *s, ru_err *err)
{
    RU_TRY(open_array(d, opt, opt->paths[1], &s->y, err));
    if (s->y.rank != 1 || s->y.dtype == RU_F32 || s->y.dtype == RU_F64) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: the array has rank %u and type %s, but labels are integers of rank 1 "
                       "(are the two files swapped?)",
                       opt->paths[1], s->y.rank, ru_dtype_name(s->y.dtype));
    }
    if (s->y.dims[0] != s->x.dims[0]) {
        return RU_FAIL(err, RU_E_DATA, "%s has %lld samples, but %s has %lld labels", opt->paths[0],
                       (long long)s->x.dims[0], opt->paths[1], (long long)s->y.dims[0]);
    }
    d->classes = opt->classes;
    if (d->classes == 0) {
        rui_classes_said said;
        RU_TRY(rui_classes_open(&said, err));
        ru_status st = scan_labels(&s->y, &said, &d->classes, err);
        if (st == RU_OK) {
            rui_classes_say(&said, opt, opt->paths[1], d->classes);
        }
        rui_classes_close(&said);
        RU_TRY(st);
    }
    rui_field_add_class(d);
    s->has_y = true;
    d->bytes += s->y.source.disk_bytes;
    return RU_OK;
}

static ru_status idx_open(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    if (opt->n_paths < 1 || opt->n_paths > 2) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "idx: %u files are named; expected [images, labels] or "
                       "[numbers]",
                       opt->n_paths);
    }
    idx_set *s = d->self = RU_NEW(&d->arena, idx_set, 1);
    if (s == NULL) {
        return rui_no_memory(err, "idx", sizeof *s);
    }
    RU_TRY(open_array(d, opt, opt->paths[0], &s->x, err));
    bool pixels = s->x.dtype == RU_U8 && s->x.rank >= 2;
    int64_t dims[RU_RANK_MAX];
    uint32_t rank = 0;
    if (s->x.rank == 3 && s->x.dtype == RU_U8) {
        dims[rank++] = 1;
    }
    for (uint32_t i = 1; i < s->x.rank; i++) {
        dims[rank++] = s->x.dims[i];
    }
    rui_field_add(d, "x", pixels ? rui_pixel_dtype(d) : RU_F32, rank, dims);
    d->count = s->x.dims[0];
    d->bytes = s->x.source.disk_bytes;
    return opt->n_paths == 2 ? open_labels(d, opt, s, err) : RU_OK;
}

static ru_status idx_read_run(const ru_dataset *d, int64_t first, int64_t n, void *const *fields,
                              ru_err *err)
{
    const idx_set *s = d->self;
    const idx_array *a = &s->x;
    int64_t at = a->data_at + first * a->item_bytes;
    if (d->fields[0].type.dtype == RU_U8) {
        RU_TRY(rui_bytes_read(d, &a->source, at, fields[0], n * a->item_bytes, err));
    } else {
        uint8_t small[65536];
        int64_t per = (int64_t)sizeof small / a->item_bytes;
        rui_scratch tmp;
        per = per < 1 ? 1 : per;
        RU_TRY(rui_scratch_get(&tmp, small, sizeof small, per * a->item_bytes, err));
        ru_status st = RU_OK;
        for (int64_t i = 0; st == RU_OK && i < n; i += per) {
            int64_t m = n - i < per ? n - i : per;
            const uint8_t *p = NULL;
            st = rui_bytes_view(d, &a->source, at + i * a->item_bytes, m * a->item_bytes, tmp.p, &p,
                                err);
            if (st == RU_OK) {
                numbers_put(d, a, p, m * a->item_count,
                            (uint8_t *)fields[0] + i * d->field_bytes[0]);
            }
        }
        rui_scratch_put(&tmp);
        RU_TRY(st);
    }
    return s->has_y ? read_labels(d, &s->y, first, n, fields[1], err) : RU_OK;
}

static ru_status idx_read(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err)
{
    return idx_read_run(d, index, 1, fields, err);
}

static void idx_where(const ru_dataset *d, int64_t first, int64_t n, rui_where_fn fn, void *self)
{
    const idx_set *s = d->self;
    const idx_array *a = &s->x;
    fn(self, &a->source, a->data_at + first * a->item_bytes, n * a->item_bytes);
    if (s->has_y) {
        a = &s->y;
        fn(self, &a->source, a->data_at + first * a->item_bytes, n * a->item_bytes);
    }
}

static void idx_close(ru_dataset *d)
{
    idx_set *s = d->self;
    if (s != NULL) {
        rui_source_close(&s->x.source);
        rui_source_close(&s->y.source);
    }
}

const rui_format rui_format_idx = {
    .name = "idx",
    .help = "IDX arrays (MNIST layout): [images, labels], plain or .gz",
    .open = idx_open,
    .read = idx_read,
    .read_run = idx_read_run,
    .where = idx_where,
    .close = idx_close,
};
