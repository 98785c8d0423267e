/* TFRecord files of tf.Example messages.
 *
 *     u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data
 *
 *     Example {1: Features {1: map entry {1: name, 2: Feature {1: bytes, 2: floats, 3: ints}}}}
 *
 * The first record decides the fields. With an image (image/encoded, image, jpg, png: JPEG or PNG
 * bytes): x and the label. Without: each list of floats, and each list of more than one int,
 * becomes a field of its name, in the order of names. The label (image/class/label, label, y, cls)
 * is one int, or one float for regression.
 *
 * Source: the format's description in TensorFlow's documentation (tfrecord, tf.Example). */
#include "base/crc32c.h"
#include "base/pb.h"
#include "base/vec.h"
#include "data/format/classes.h"
#include "data/format/image.h"

#include <stdlib.h>
#include <string.h>

enum { FRAME_HEAD = 12, FRAME_TAIL = 4, FEATURES_MAX = 256 };

typedef enum kind {
    KIND_NONE,
    KIND_BYTES = 1,
    KIND_FLOATS = 2,
    KIND_INTS = 3,
} kind;

typedef struct feature {
    ru_str name;
    kind kind;
    ru_pb_in list; /* of values: the inside of BytesList, FloatList, Int64List */
    int64_t n;
} feature;

typedef struct record {
    uint32_t file;
    int64_t at, size_bytes; /* of the data */
} record;

RU_VEC(rui_records, record)

typedef struct tf_field {
    const char *name; /* of the feature */
    kind kind;
    int64_t n;
} tf_field;

typedef struct tfrecord_set {
    rui_source *files; /* [n_files] */
    uint32_t n_files;
    rui_records records;
    tf_field fields[RU_FIELDS_MAX]; /* beside d->fields */
    bool image;
    int64_t width, height;
    bool resize;
} tfrecord_set;

/* -- frames ------------------------------------------------------------------------------------ */

static ru_status frame_fail(const rui_source *f, int64_t at, const char *what, ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA, "%s: the record at byte %lld %s", f->path, (long long)at, what);
}

/* The record at `at`: its length, or what is wrong with its frame. */
static ru_status read_frame(const rui_source *f, int64_t at, int64_t *length, ru_err *err)
{
    uint8_t head[FRAME_HEAD];
    uint64_t n;
    uint32_t crc;
    if (f->size_bytes - at < FRAME_HEAD) {
        return frame_fail(f, at, "is cut short in its header", err);
    }
    RU_TRY(rui_source_read(f, at, head, sizeof head, err));
    memcpy(&n, head, sizeof n);
    memcpy(&crc, head + 8, sizeof crc);
    if (ru_crc32c_mask(ru_crc32c(0, head, 8)) != crc) {
        return frame_fail(f, at,
                          "has a damaged length (wrong checksum); the file is not a TFRecord "
                          "file, or is compressed",
                          err);
    }
    int64_t left = f->size_bytes - at - FRAME_HEAD - FRAME_TAIL;
    if (left < 0 || n > (uint64_t)left || n > RUI_SAMPLE_BYTES_MAX) {
        return frame_fail(f, at, "is longer than the rest of the file; it is cut short", err);
    }
    *length = (int64_t)n;
    return RU_OK;
}

static ru_status index_file(ru_dataset *d, uint32_t k, ru_err *err)
{
    tfrecord_set *s = d->self;
    const rui_source *f = &s->files[k];
    int64_t length = 0;
    for (int64_t at = 0; at < f->size_bytes; at += FRAME_HEAD + length + FRAME_TAIL) {
        ru_status st = read_frame(f, at, &length, err);
        if (st == RU_E_DATA && d->skip_damaged && at > 0) { /* where the next begins is not known */
            rui_rest_note(d, f, at, err);
            return RU_OK;
        }
        RU_TRY(st);
        record *r = rui_records_push(&s->records, &d->arena);
        if (r == NULL) {
            return rui_no_memory(err, f->path, 0);
        }
        *r = (record){k, at + FRAME_HEAD, length};
    }
    return RU_OK;
}

/* Data of a record, checked; a view, or *heap for the caller to free. */
static ru_status load(const ru_dataset *d, const record *r, const uint8_t **bytes, uint8_t **heap,
                      ru_err *err)
{
    const tfrecord_set *s = d->self;
    const rui_source *f = &s->files[r->file];
    *heap = NULL;
    if (f->bytes == NULL) {
        *heap = malloc((size_t)r->size_bytes + FRAME_TAIL);
        if (*heap == NULL) {
            return rui_no_memory(err, f->path, r->size_bytes);
        }
    }
    RU_TRY(rui_bytes_view(d, f, r->at, r->size_bytes + FRAME_TAIL, *heap, bytes, err));
    uint32_t crc;
    memcpy(&crc, *bytes + r->size_bytes, sizeof crc);
    if (ru_crc32c_mask(ru_crc32c(0, *bytes, r->size_bytes)) != crc) {
        return frame_fail(f, r->at - FRAME_HEAD, "is damaged (wrong checksum)", err);
    }
    return RU_OK;
}

/* -- messages ---------------------------------------------------------------------------------- */

static int64_t count_values(ru_pb_in list, kind k)
{
    int64_t n = 0;
    ru_pb_wire wire = k == KIND_FLOATS ? RU_PB_FIXED32 : RU_PB_VARINT;
    for (ru_pb_field f; ru_pb_next(&list, &f);) {
        int64_t m = f.number != 1 ? 0 : k == KIND_BYTES ? 1 : ru_pb_count(&f, wire);
        if (m < 0) {
            return -1;
        }
        n += m;
    }
    return list.why == NULL ? n : -1;
}

static ru_status parse_feature(const ru_pb_field *entry, feature *out, ru_err *err)
{
    *out = (feature){0};
    ru_pb_in in = ru_pb_sub(entry);
    for (ru_pb_field f; ru_pb_next(&in, &f);) {
        if (f.number == 1 && f.wire == RU_PB_LEN) {
            out->name = ru_str_n((const char *)f.data, f.size_bytes);
        } else if (f.number == 2 && f.wire == RU_PB_LEN) {
            ru_pb_in value = ru_pb_sub(&f);
            for (ru_pb_field v; ru_pb_next(&value, &v);) {
                if (v.number >= 1 && v.number <= 3) {
                    out->kind = (kind)v.number;
                    out->list = ru_pb_sub(&v);
                    out->n = count_values(out->list, out->kind);
                }
            }
            RU_TRY(ru_pb_in_end(&value, "Feature", err));
        }
    }
    RU_TRY(ru_pb_in_end(&in, "Features entry", err));
    return out->n >= 0 ? RU_OK
                       : RU_FAIL(err, RU_E_DATA, "the list of feature '%.*s' is malformed",
                                 RU_STR_ARG(out->name));
}

static ru_status parse_example(const uint8_t *bytes, int64_t size, feature *out, uint32_t *n,
                               ru_err *err)
{
    ru_pb_in example = ru_pb_in_open(bytes, size);
    *n = 0;
    for (ru_pb_field f; ru_pb_next(&example, &f);) {
        if (f.number != 1 || f.wire != RU_PB_LEN) {
            continue;
        }
        ru_pb_in features = ru_pb_sub(&f);
        for (ru_pb_field e; ru_pb_next(&features, &e);) {
            if (e.number != 1) {
                continue;
            }
            if (*n == FEATURES_MAX) {
                return RU_FAIL(err, RU_E_DATA, "more than %d features", FEATURES_MAX);
            }
            RU_TRY(parse_feature(&e, &out[*n], err));
            *n += out[*n].kind != KIND_NONE;
        }
        RU_TRY(ru_pb_in_end(&features, "Features", err));
    }
    return ru_pb_in_end(&example, "Example", err);
}

static const feature *find_feature(const feature *list, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (ru_str_eq_c(list[i].name, name)) {
            return &list[i];
        }
    }
    return NULL;
}

static const feature *find_any(const feature *list, uint32_t n, const char *const *names,
                               uint32_t n_names, kind a, kind b)
{
    for (uint32_t k = 0; k < n_names; k++) {
        const feature *f = find_feature(list, n, names[k]);
        if (f != NULL && (f->kind == a || f->kind == b)) {
            return f;
        }
    }
    return NULL;
}

/* The first bytes value. */
static bool first_bytes(const feature *f, const uint8_t **p, int64_t *n)
{
    ru_pb_in list = f->list;
    for (ru_pb_field v; ru_pb_next(&list, &v);) {
        if (v.number == 1 && v.wire == RU_PB_LEN) {
            *p = v.data;
            *n = v.size_bytes;
            return true;
        }
    }
    return false;
}

/* All f->n values: floats as f32, ints as i64. */
static void put_values(const feature *f, void *into)
{
    ru_pb_in list = f->list;
    int64_t at = 0;
    ru_pb_wire wire = f->kind == KIND_FLOATS ? RU_PB_FIXED32 : RU_PB_VARINT;
    for (ru_pb_field v; ru_pb_next(&list, &v);) {
        while (v.number == 1 && at < f->n) {
            uint64_t bits[256];
            int64_t have = ru_pb_count(&v, wire), n = have < 256 ? have : 256;
            if (have > 256 || v.wire == RU_PB_LEN) { /* packed: in pieces, by value */
                n = ru_pb_values(&v, wire, bits, n);
            } else {
                n = ru_pb_values(&v, wire, bits, 1);
            }
            for (int64_t i = 0; i < n && at < f->n; i++, at++) {
                if (f->kind == KIND_FLOATS) {
                    ((float *)into)[at] = ru_pb_bits_f32(bits[i]);
                } else {
                    ((int64_t *)into)[at] = (int64_t)bits[i];
                }
            }
            if (have <= 256) {
                break;
            }
            int64_t step = 0; /* bytes of the n values just taken */
            for (int64_t i = 0; i < n; i++) {
                if (wire == RU_PB_FIXED32) {
                    step += 4;
                } else {
                    while (v.data[step++] & 0x80) {
                    }
                }
            }
            v.data += step;
            v.size_bytes -= step;
        }
    }
}

/* -- fields ------------------------------------------------------------------------------------ */

static const char *const image_names[] = {"image/encoded", "image", "jpg", "png", "jpeg"};
static const char *const label_names[] = {"image/class/label", "label", "y", "cls"};

static int by_name(const void *a, const void *b)
{
    const feature *x = a, *y = b;
    int64_t n = x->name.n < y->name.n ? x->name.n : y->name.n;
    int c = memcmp(x->name.p, y->name.p, (size_t)n);
    return c != 0 ? c : (x->name.n > y->name.n) - (x->name.n < y->name.n);
}

static ru_status remember(ru_dataset *d, const feature *f, ru_err *err)
{
    tfrecord_set *s = d->self;
    const char *name = ru_arena_strn(&d->arena, f->name.p, f->name.n);
    if (name == NULL) {
        return rui_no_memory(err, "tfrecord", f->name.n);
    }
    s->fields[d->n_fields] = (tf_field){name, f->kind, f->n};
    return RU_OK;
}

static ru_status add_image(ru_dataset *d, const ru_data_options *opt, const feature *f, ru_err *err)
{
    tfrecord_set *s = d->self;
    const uint8_t *p = NULL;
    int64_t n = 0;
    s->resize = opt->image_size > 0;
    s->width = s->height = opt->image_size;
    if (!first_bytes(f, &p, &n)) {
        return RU_FAIL(err, RU_E_DATA, "the image feature is empty");
    }
    if (!s->resize) {
        RU_TRY(rui_image_measure(d, p, n, &s->width, &s->height, err));
    }
    s->image = true;
    RU_TRY(remember(d, f, err));
    const int64_t dims[3] = {3, s->height, s->width};
    rui_field_add(d, "x", rui_pixel_dtype(d), 3, dims);
    return RU_OK;
}

static ru_status add_lists(ru_dataset *d, feature *list, uint32_t n, const feature *label,
                           ru_err *err)
{
    ru_str label_name = label != NULL ? label->name : (ru_str){0};
    qsort(list, n, sizeof *list, by_name);
    for (uint32_t i = 0; i < n; i++) {
        bool wanted = list[i].kind == KIND_FLOATS || (list[i].kind == KIND_INTS && list[i].n > 1);
        if (!wanted || list[i].n < 1 || ru_str_eq(list[i].name, label_name)) {
            continue;
        }
        if (d->n_fields + 1 >= RU_FIELDS_MAX) {
            return RU_FAIL(err, RU_E_LIMIT, "more than %d features", RU_FIELDS_MAX - 1);
        }
        RU_TRY(remember(d, &list[i], err));
        tfrecord_set *s = d->self;
        rui_field_add(d, s->fields[d->n_fields].name, list[i].kind == KIND_FLOATS ? RU_F32 : RU_I64,
                      list[i].n > 1 ? 1 : 0, &list[i].n);
    }
    return RU_OK;
}

/* Largest label over all records: reads everything, so `classes` saves time on large sets. */
static ru_status scan_labels(ru_dataset *d, const char *name, rui_classes_said *said, ru_err *err)
{
    tfrecord_set *s = d->self;
    feature *list = malloc(FEATURES_MAX * sizeof *list);
    ru_status st = list != NULL ? RU_OK : rui_no_memory(err, "tfrecord", FEATURES_MAX);
    int64_t most = 0;
    for (uint32_t i = 0; st == RU_OK && i < s->records.n; i++) {
        const uint8_t *bytes = NULL;
        uint8_t *heap = NULL;
        uint32_t n = 0;
        st = load(d, &s->records.at[i], &bytes, &heap, err);
        if (st == RU_OK) {
            st = parse_example(bytes, s->records.at[i].size_bytes, list, &n, err);
        }
        const feature *f = st == RU_OK ? find_feature(list, n, name) : NULL;
        int64_t label = -1;
        if (f != NULL && f->kind == KIND_INTS && f->n == 1) {
            put_values(f, &label);
        }
        if (st == RU_OK && (label < 0 || label >= RUI_CLASSES_MAX) && !d->skip_damaged) {
            st = RU_FAIL(err, RU_E_DATA,
                         "%s: record %u has label %lld; expected a class number of at least 0",
                         s->files[s->records.at[i].file].path, i, (long long)label);
        }
        st = st == RU_E_DATA && d->skip_damaged ? RU_OK : st;
        most = label > most ? label : most;
        rui_classes_put(said, label);
        free(heap);
    }
    free(list);
    d->classes = most + 1;
    return st;
}

static ru_status add_label(ru_dataset *d, const ru_data_options *opt, const feature *f, ru_err *err)
{
    tfrecord_set *s = d->self;
    RU_TRY(remember(d, f, err));
    if (f->n != 1) {
        return RU_FAIL(err, RU_E_DATA, "the label has %lld values; expected one", (long long)f->n);
    }
    if (f->kind == KIND_FLOATS) {
        rui_field_add(d, "y", RU_F32, 0, NULL);
        return RU_OK;
    }
    d->classes = opt->classes;
    if (d->classes == 0) {
        rui_classes_said said;
        RU_TRY(rui_classes_open(&said, err));
        ru_status st = scan_labels(d, s->fields[d->n_fields].name, &said, err);
        if (st == RU_OK) {
            rui_classes_say(&said, opt, opt->paths[0], d->classes);
        }
        rui_classes_close(&said);
        RU_TRY(st);
    }
    rui_field_add_class(d);
    return RU_OK;
}

static ru_status find_fields(ru_dataset *d, const ru_data_options *opt, feature *list, uint32_t n,
                             ru_err *err)
{
    const feature *image =
        find_any(list, n, image_names, RU_ARRAY_LEN(image_names), KIND_BYTES, KIND_BYTES);
    const feature *found =
        find_any(list, n, label_names, RU_ARRAY_LEN(label_names), KIND_INTS, KIND_FLOATS);
    feature label = found != NULL ? *found : (feature){0};
    if (image != NULL) {
        RU_TRY(add_image(d, opt, image, err));
    } else {
        RU_TRY(add_lists(d, list, n, found != NULL ? &label : NULL, err));
    }
    if (d->n_fields == 0) {
        return RU_FAIL(
            err, RU_E_DATA,
            "the first record has neither an image (image/encoded) nor lists of numbers");
    }
    return found != NULL ? add_label(d, opt, &label, err) : RU_OK;
}

static ru_status first_record(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    tfrecord_set *s = d->self;
    const uint8_t *bytes = NULL;
    uint8_t *heap = NULL;
    uint32_t n = 0;
    feature *list = malloc(FEATURES_MAX * sizeof *list);
    ru_status st = list != NULL ? RU_OK : rui_no_memory(err, "tfrecord", FEATURES_MAX);
    if (st == RU_OK) {
        st = load(d, &s->records.at[0], &bytes, &heap, err);
    }
    if (st == RU_OK) {
        st = parse_example(bytes, s->records.at[0].size_bytes, list, &n, err);
        st = st == RU_OK ? find_fields(d, opt, list, n, err) : st;
        st = st == RU_OK ? st : ru_err_wrap(err, st, "%s", s->files[0].path);
    }
    free(list);
    free(heap);
    return st;
}

static ru_status tfrecord_open(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    if (opt->n_paths < 1) {
        return RU_FAIL(err, RU_E_CONFIG, "tfrecord: no files are named");
    }
    tfrecord_set *s = d->self = RU_NEW(&d->arena, tfrecord_set, 1);
    rui_source *files = RU_NEW(&d->arena, rui_source, opt->n_paths);
    if (s == NULL || files == NULL) {
        return rui_no_memory(err, "tfrecord", sizeof *s);
    }
    s->files = files;
    s->n_files = opt->n_paths;
    int64_t resident =
        opt->resident_max_bytes != 0 ? opt->resident_max_bytes : RUI_RESIDENT_MAX_BYTES;
    for (uint32_t k = 0; k < s->n_files; k++) {
        RU_TRY(rui_source_open(&d->arena, &d->objects, opt->paths[k], resident, opt->direct,
                               &files[k], err));
        d->bytes += files[k].disk_bytes;
        RU_TRY(index_file(d, k, err));
    }
    d->count = s->records.n;
    return d->count > 0 ? first_record(d, opt, err) : RU_OK;
}

/* -- read -------------------------------------------------------------------------------------- */

static ru_status put_field(const ru_dataset *d, uint32_t k, const feature *f, void *into,
                           ru_err *err)
{
    const tfrecord_set *s = d->self;
    const tf_field *want = &s->fields[k];
    if (f == NULL || f->kind != want->kind || f->n != want->n) {
        return RU_FAIL(err, RU_E_DATA,
                       "feature '%s' has %lld values; expected %lld as in the first "
                       "record",
                       want->name, f != NULL ? (long long)f->n : 0LL, (long long)want->n);
    }
    if (want->kind == KIND_BYTES) {
        const uint8_t *p = NULL;
        int64_t n = 0;
        if (!first_bytes(f, &p, &n)) {
            return RU_FAIL(err, RU_E_DATA, "feature '%s' is empty", want->name);
        }
        return rui_image_decode(d, p, n, s->width, s->height, s->resize, into, err);
    }
    if ((int32_t)k != d->y_field) {
        put_values(f, into);
        if (want->kind == KIND_FLOATS) {
            RU_TRY(rui_numbers_check(d, k, into, f->n, err));
        }
        return RU_OK;
    }
    int64_t label = -1;
    put_values(f, &label);
    if (label < 0 || label >= d->classes) {
        return RU_FAIL(err, RU_E_DATA, "label %lld is outside 0..%lld", (long long)label,
                       (long long)d->classes - 1);
    }
    rui_class_put(d, label, into);
    return RU_OK;
}

static ru_status tfrecord_read(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err)
{
    const tfrecord_set *s = d->self;
    const record *r = &s->records.at[index];
    const uint8_t *bytes = NULL;
    uint8_t *heap = NULL;
    uint32_t n = 0;
    feature list[FEATURES_MAX];
    ru_status st = load(d, r, &bytes, &heap, err);
    if (st == RU_OK) {
        st = parse_example(bytes, r->size_bytes, list, &n, err);
        for (uint32_t k = 0; st == RU_OK && k < d->n_fields; k++) {
            st = put_field(d, k, find_feature(list, n, s->fields[k].name), fields[k], err);
        }
        st = st == RU_OK
                 ? st
                 : ru_err_wrap(err, st, "%s: record %lld at byte %lld", s->files[r->file].path,
                               (long long)index, (long long)r->at - FRAME_HEAD);
    }
    free(heap);
    return st;
}

static void tfrecord_where(const ru_dataset *d, int64_t first, int64_t n, rui_where_fn fn,
                           void *self)
{
    const tfrecord_set *s = d->self;
    for (int64_t i = first; i < first + n; i++) {
        const record *r = &s->records.at[i];
        fn(self, &s->files[r->file], r->at, r->size_bytes + FRAME_TAIL);
    }
}

static void tfrecord_close(ru_dataset *d)
{
    tfrecord_set *s = d->self;
    for (uint32_t i = 0; s != NULL && i < s->n_files; i++) {
        rui_source_close(&s->files[i]);
    }
    rui_image_close(d);
}

const rui_format rui_format_tfrecord = {
    .name = "tfrecord",
    .help = "TFRecord files of tf.Example: images with labels, or lists of numbers: [file, ...]",
    .open = tfrecord_open,
    .read = tfrecord_read,
    .where = tfrecord_where,
    .close = tfrecord_close,
};
