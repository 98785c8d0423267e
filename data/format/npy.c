/* numpy files: [x.npy, y.npy], one .npz, or any list of arrays with the same first dimension.
 *
 * Field names: the arrays of an .npz keep theirs; files are called x, y, then by their own name. u8
 * arrays of rank >= 2 other than y are pixels (scaled unless raw); floats become f32; integers
 * become i64; y as one integer a sample ([n] or [n,1]) holds class numbers when none is
 * negative, else numbers (f32). Elements are read in place when the file holds them plainly, else
 * unpacked once at open.
 */
#include "store/npy.h"

#include <math.h>
#include <string.h>

#include "data/data_impl.h"
#include "data/format/classes.h"

enum { HEAD_BYTES = 16 << 10 };

typedef struct npy_array {
    rui_source *source; /* NULL: resident in `bytes` */
    const uint8_t *bytes;
    const char *path;
    int64_t at; /* place of the elements in the source */
    ru_dtype dtype;
    int64_t item_count, item_bytes; /* stored, of one sample */
    bool label;
} npy_array;

typedef struct npy_set {
    rui_source files[RU_FIELDS_MAX];
    uint32_t n_files;
    npy_array arrays[RU_FIELDS_MAX];
    const char *path0;
} npy_set;

static bool is_integer(ru_dtype t)
{
    return ru_dtype_is_int(t) || t == RU_BOOL;
}

/* Integer element i as i64; u64 beyond the range is caught at open for labels, else wraps as a
 * cast. */
static int64_t integer_at(const uint8_t *p, ru_dtype t, int64_t i)
{
    uint64_t v = 0;
    int64_t width = ru_dtype_bytes(t);
    memcpy(&v, p + i * width, (size_t)width); /* little-endian */
    uint32_t shift = (uint32_t)(64 - 8 * width);
    bool is_signed = t == RU_I8 || t == RU_I16 || t == RU_I32 || t == RU_I64;
    return is_signed ? (int64_t)(v << shift) >> shift : (int64_t)v;
}

static float float_at(const uint8_t *p, ru_dtype t, int64_t i)
{
    uint16_t half;
    double wide;
    if (t == RU_F64) {
        memcpy(&wide, p + i * 8, sizeof wide);
        return (float)wide;
    }
    memcpy(&half, p + i * 2, sizeof half);
    return t == RU_F16 ? ru_f16_to_f32(half) : ru_bf16_to_f32(half);
}

/* -- open -------------------------------------------------------------------------------------- */

static ru_status check_array(const npy_set *s, const char *path, const ru_array *a, int64_t count,
                             ru_err *err)
{
    if (a->type.rank < 1 || a->type.rank > RU_RANK_MAX) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: array '%s' has rank %u; expected samples along a first "
                       "dimension",
                       path, a->name != NULL ? a->name : "", a->type.rank);
    }
    if (count >= 0 && a->type.dims[0] != count) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: array '%s' has %lld samples, but the first array (of %s) "
                       "has %lld",
                       path, a->name != NULL ? a->name : "", (long long)a->type.dims[0], s->path0,
                       (long long)count);
    }
    for (uint32_t i = 1; i < a->type.rank; i++) {
        if (a->type.dims[i] < 1) {
            return RU_FAIL(err, RU_E_DATA, "%s: array '%s' has a dimension of size 0", path,
                           a->name != NULL ? a->name : "");
        }
    }
    return RU_OK;
}

/* A file's content while it is looked at. `data` NULL: only the header was read, the elements of
 * the one array are at `at`. */
typedef struct npy_view {
    const uint8_t *data;
    int64_t size_bytes, at;
} npy_view;

/* The elements: within the file, so to be read from it, or unpacked in the arena. */
static void place_array(npy_array *out, const ru_array *a, const npy_view *v, rui_source *file)
{
    const uint8_t *p = a->data;
    out->path = file->path;
    out->dtype = a->type.dtype;
    out->item_count = 1;
    for (uint32_t i = 1; i < a->type.rank; i++) {
        out->item_count *= a->type.dims[i];
    }
    out->item_bytes = out->item_count * ru_dtype_bytes(out->dtype);
    bool inside = v->data == NULL || (p >= v->data && p < v->data + v->size_bytes);
    out->source = inside ? file : NULL;
    out->at = v->data == NULL ? v->at : inside ? p - v->data : 0;
    out->bytes = inside ? NULL : p;
}

static ru_status view_items(const ru_dataset *d, const npy_array *a, int64_t first, int64_t n,
                            void *scratch, const uint8_t **p, ru_err *err)
{
    if (a->source == NULL) {
        *p = a->bytes + first * a->item_bytes;
        return RU_OK;
    }
    return rui_bytes_view(d, a->source, a->at + first * a->item_bytes, n * a->item_bytes, scratch,
                          p, err);
}

typedef struct extreme {
    int64_t value, at; /* sample */
} extreme;

/* Least and largest of an integer array with one number a sample; `said` (may be NULL) gets all. */
static ru_status scan(const ru_dataset *d, const npy_array *a, extreme *least, extreme *most,
                      rui_classes_said *said, ru_err *err)
{
    int64_t count = d->count;
    uint8_t buf[16384];
    int64_t per = (int64_t)sizeof buf / a->item_bytes;
    *least = (extreme){.value = INT64_MAX};
    *most = (extreme){.value = INT64_MIN};
    for (int64_t at = 0; at < count; at += per) {
        int64_t n = count - at < per ? count - at : per;
        const uint8_t *p = NULL;
        RU_TRY(view_items(d, a, at, n, buf, &p, err));
        for (int64_t i = 0; i < n; i++) {
            int64_t v = integer_at(p, a->dtype, i);
            *least = v < least->value ? (extreme){v, at + i} : *least;
            *most = v > most->value ? (extreme){v, at + i} : *most;
            if (said != NULL) {
                rui_classes_put(said, v);
            }
        }
    }
    return RU_OK;
}

/* The first label of a float array that is no class number, for who expected classes. */
static ru_status not_classes(ru_dataset *d, const npy_array *a, const char *path, ru_err *err)
{
    uint8_t buf[16384];
    int64_t per = (int64_t)sizeof buf / a->item_bytes;
    for (int64_t at = 0; at < d->count; at += per) {
        int64_t n = d->count - at < per ? d->count - at : per;
        const uint8_t *p = NULL;
        RU_TRY(view_items(d, a, at, n, buf, &p, err));
        for (int64_t i = 0; i < n; i++) {
            float v;
            memcpy(&v, p + i * 4, sizeof v);
            v = a->dtype == RU_F32 ? v : float_at(p, a->dtype, i);
            if (!(v >= 0 && v < (float)RUI_CLASSES_MAX && v == floorf(v))) {
                d->not_classes = ru_arena_printf(&d->arena, "%s: label %g of sample %lld", path,
                                                 (double)v, (long long)(at + i));
                return RU_OK;
            }
        }
    }
    d->not_classes = ru_arena_printf(&d->arena, "%s: labels are whole numbers, but stored as %s",
                                     path, ru_dtype_name(a->dtype));
    return RU_OK;
}

/* Classes that no label says. */
static ru_status say_unused(const ru_dataset *d, const ru_data_options *opt, const npy_array *a,
                            const char *path, ru_err *err)
{
    rui_classes_said said;
    extreme least, most;
    RU_TRY(rui_classes_open(&said, err));
    ru_status st = scan(d, a, &least, &most, &said, err);
    if (st == RU_OK) {
        rui_classes_say(&said, opt, path, d->classes);
    }
    rui_classes_close(&said);
    return st;
}

static ru_status add_labels(ru_dataset *d, const ru_data_options *opt, npy_array *a,
                            const char *path, ru_err *err)
{
    extreme least, most;
    RU_TRY(scan(d, a, &least, &most, NULL, err));
    if (opt->classes == 0 && (least.value < 0 || opt->regression)) {
        if (!opt->regression) {
            d->not_classes = ru_arena_printf(&d->arena, "%s: label %lld of sample %lld", path,
                                             (long long)least.value, (long long)least.at);
        }
        rui_field_add(d, "y", d->raw ? a->dtype : RU_F32, 0, NULL);
        return RU_OK;
    }
    int64_t limit = opt->classes > 0 ? opt->classes : RUI_CLASSES_MAX;
    if (least.value < 0 || most.value >= limit) {
        const extreme *wrong = least.value < 0 ? &least : &most;
        return RU_FAIL(err, RU_E_DATA, "%s: label %lld of sample %lld is outside 0..%lld", path,
                       (long long)wrong->value, (long long)wrong->at, (long long)limit - 1);
    }
    d->classes = opt->classes > 0 ? opt->classes : most.value + 1;
    a->label = true;
    rui_field_add_class(d);
    return opt->classes > 0 ? RU_OK : say_unused(d, opt, a, path, err);
}

static ru_status add_array(ru_dataset *d, const ru_data_options *opt, const char *path,
                           const char *name, const ru_array *a, const npy_view *view,
                           rui_source *file, ru_err *err)
{
    npy_set *s = d->self;
    if (d->n_fields == RU_FIELDS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: more than %d arrays", path, RU_FIELDS_MAX);
    }
    RU_TRY(check_array(s, path, a, d->n_fields > 0 ? d->count : -1, err));
    npy_array *out = &s->arrays[d->n_fields];
    d->count = a->type.dims[0];
    place_array(out, a, view, file);
    ru_dtype t = a->type.dtype;
    bool single = a->type.rank == 1 || (a->type.rank == 2 && a->type.dims[1] == 1);
    if (strcmp(name, "y") == 0 && single && is_integer(t)) {
        return add_labels(d, opt, out, path, err);
    }
    if (strcmp(name, "y") == 0 && a->type.rank == 1) {
        RU_TRY(not_classes(d, out, path, err));
    }
    if (strcmp(name, "y") == 0 && opt->classes > 0) {
        return RU_FAIL(
            err, RU_E_DATA,
            "%s: classes is set, but y is %s of rank %u; expected one integer per sample%s%s%s",
            path, ru_dtype_name(t), a->type.rank, d->not_classes != NULL ? " (" : "",
            d->not_classes != NULL ? d->not_classes : "", d->not_classes != NULL ? ")" : "");
    }
    bool pixels = t == RU_U8 && a->type.rank >= 2 && strcmp(name, "y") != 0;
    ru_dtype dtype = pixels ? rui_pixel_dtype(d) : d->raw ? t : is_integer(t) ? RU_I64 : RU_F32;
    rui_field_add(d, name, dtype, a->type.rank - 1, a->type.dims + 1);
    return RU_OK;
}

static const char *file_stem(ru_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    return ru_arena_strn(arena, base, dot != NULL ? dot - base : (int64_t)strlen(base));
}

static ru_status add_arrays(ru_dataset *d, const ru_data_options *opt, uint32_t k,
                            const ru_arrays *arrays, const npy_view *view, ru_err *err)
{
    npy_set *s = d->self;
    rui_source *file = &s->files[k];
    if (arrays->n == 0) {
        return RU_FAIL(err, RU_E_DATA, "%s: the file contains no arrays", file->path);
    }
    for (uint32_t i = 0; i < arrays->n; i++) {
        const ru_array *a = &arrays->at[i];
        const char *name = a->name;
        if (name == NULL || name[0] == '\0') {
            name = k == 0 ? "x" : k == 1 ? "y" : file_stem(&d->arena, file->path);
        }
        if (name == NULL) {
            return rui_no_memory(err, file->path, 0);
        }
        RU_TRY(add_array(d, opt, file->path, name, a, view, file, err));
    }
    return RU_OK;
}

/* The header of an object says enough when its elements stand plainly; else all of it is read. */
static ru_status add_object(ru_dataset *d, const ru_data_options *opt, uint32_t k, bool *whole,
                            ru_err *err)
{
    npy_set *s = d->self;
    uint8_t head[HEAD_BYTES];
    int64_t size = s->files[k].size_bytes, n = size < HEAD_BYTES ? size : HEAD_BYTES, at = 0;
    ru_array a = {.name = ""};
    bool plain = false;
    RU_TRY(rui_source_read(&s->files[k], 0, head, n, err));
    if (n == 0 || head[0] != 0x93) { /* an archive */
        *whole = true;
        return RU_OK;
    }
    ru_status st = ru_npy_look(head, n, size, &a.type, &at, &plain, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "%s", s->files[k].path);
    }
    *whole = !plain;
    return plain ? add_arrays(d, opt, k, &(ru_arrays){.at = &a, .n = 1}, &(npy_view){.at = at}, err)
                 : RU_OK;
}

/* All arrays of one file; a map lives only while they are looked at. */
static ru_status add_file(ru_dataset *d, const ru_data_options *opt, uint32_t k, ru_err *err)
{
    npy_set *s = d->self;
    const char *path = opt->paths[k];
    int64_t resident =
        opt->resident_max_bytes != 0 ? opt->resident_max_bytes : RUI_RESIDENT_MAX_BYTES;
    rui_source *file = &s->files[s->n_files++];
    RU_TRY(rui_source_open(&d->arena, &d->objects, path, resident, opt->direct, file, err));
    d->bytes += file->disk_bytes;
    bool whole = false;
    if (file->object != NULL) {
        RU_TRY(add_object(d, opt, k, &whole, err));
        if (!whole) {
            return RU_OK;
        }
        rui_source_close(file);
        RU_TRY(rui_source_open(&d->arena, &d->objects, path, INT64_MAX, false, file, err));
    }
    ru_map_file map = {0};
    if (file->bytes == NULL) {
        RU_TRY(ru_file_map(path, &map, err));
    }
    npy_view view = {.data = file->bytes != NULL ? file->bytes : map.data,
                     .size_bytes = file->bytes != NULL ? file->size_bytes : map.size_bytes};
    ru_arrays arrays = {0};
    ru_status st = ru_npz_read(view.data, view.size_bytes, &d->arena, &arrays, err);
    st = st == RU_OK ? add_arrays(d, opt, k, &arrays, &view, err)
                     : ru_err_wrap(err, st, "%s", file->path);
    ru_file_unmap(&map);
    return st;
}

static ru_status npy_open(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    if (opt->n_paths < 1 || opt->n_paths > RU_FIELDS_MAX) {
        return RU_FAIL(err, RU_E_CONFIG, "npy: %u files are named; expected 1 to %d", opt->n_paths,
                       RU_FIELDS_MAX);
    }
    npy_set *s = d->self = RU_NEW(&d->arena, npy_set, 1);
    if (s == NULL) {
        return rui_no_memory(err, "npy", sizeof *s);
    }
    s->path0 = opt->paths[0];
    for (uint32_t k = 0; k < opt->n_paths; k++) {
        RU_TRY(add_file(d, opt, k, err));
    }
    return RU_OK;
}

/* -- read -------------------------------------------------------------------------------------- */

static ru_status put_items(const ru_dataset *d, uint32_t k, const uint8_t *p, int64_t first,
                           int64_t n, uint8_t *into, ru_err *err)
{
    const npy_set *s = d->self;
    const npy_array *a = &s->arrays[k];
    ru_dtype to = d->fields[k].type.dtype;
    if (a->label) {
        for (int64_t i = 0; i < n; i++) {
            int64_t label = integer_at(p, a->dtype, i);
            if (label < 0 || label >= d->classes) {
                return RU_FAIL(err, RU_E_DATA, "%s: label %lld of sample %lld is outside 0..%lld",
                               s->path0, (long long)label, (long long)(first + i),
                               (long long)d->classes - 1);
            }
            rui_class_put(d, label, into + i * d->field_bytes[k]);
        }
    } else if (to == a->dtype) {
        memcpy(into, p, (size_t)(n * a->item_bytes));
    } else if (to == RU_F32 && a->dtype == RU_U8 && d->fields[k].type.rank >= 1) {
        rui_pixels_put(d, p, n * a->item_count, into);
    } else if (to == RU_F32) {
        float *out = (float *)(void *)into;
        bool whole = is_integer(a->dtype);
        for (int64_t i = 0; i < n * a->item_count; i++) {
            out[i] = whole ? (float)integer_at(p, a->dtype, i) : float_at(p, a->dtype, i);
        }
    } else {
        int64_t *out = (int64_t *)(void *)into;
        for (int64_t i = 0; i < n * a->item_count; i++) {
            out[i] = integer_at(p, a->dtype, i);
        }
    }
    return RU_OK;
}

/* Elements that stand as floats in the file. */
static ru_status check_items(const ru_dataset *d, uint32_t k, int64_t first, int64_t n,
                             const uint8_t *items, ru_err *err)
{
    const npy_set *s = d->self;
    const npy_array *a = &s->arrays[k];
    if (d->fields[k].type.dtype != RU_F32 || is_integer(a->dtype)) {
        return RU_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        ru_status st = rui_numbers_check(d, k, items + i * d->field_bytes[k], a->item_count, err);
        if (st != RU_OK) {
            return ru_err_wrap(err, st, "%s: sample %lld (counted from 0)", a->path,
                               (long long)(first + i));
        }
    }
    return RU_OK;
}

static ru_status npy_read_run(const ru_dataset *d, int64_t first, int64_t n, void *const *fields,
                              ru_err *err)
{
    const npy_set *s = d->self;
    for (uint32_t k = 0; k < d->n_fields; k++) {
        const npy_array *a = &s->arrays[k];
        uint8_t small[65536];
        int64_t per = (int64_t)sizeof small / a->item_bytes;
        per = per < 1 ? 1 : per;
        rui_scratch tmp;
        RU_TRY(rui_scratch_get(&tmp, small, sizeof small, per * a->item_bytes, err));
        ru_status st = RU_OK;
        for (int64_t i = 0; st == RU_OK && i < n; i += per) {
            int64_t m = n - i < per ? n - i : per;
            const uint8_t *p = NULL;
            st = view_items(d, a, first + i, m, tmp.p, &p, err);
            if (st == RU_OK) {
                st = put_items(d, k, p, first + i, m, (uint8_t *)fields[k] + i * d->field_bytes[k],
                               err);
            }
        }
        rui_scratch_put(&tmp);
        RU_TRY(st);
        RU_TRY(check_items(d, k, first, n, fields[k], err));
    }
    return RU_OK;
}

static ru_status npy_read(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err)
{
    return npy_read_run(d, index, 1, fields, err);
}

static void npy_where(const ru_dataset *d, int64_t first, int64_t n, rui_where_fn fn, void *self)
{
    const npy_set *s = d->self;
    for (uint32_t k = 0; k < d->n_fields; k++) {
        const npy_array *a = &s->arrays[k];
        if (a->source != NULL) {
            fn(self, a->source, a->at + first * a->item_bytes, n * a->item_bytes);
        }
    }
}

static void npy_close(ru_dataset *d)
{
    npy_set *s = d->self;
    for (uint32_t i = 0; s != NULL && i < s->n_files; i++) {
        rui_source_close(&s->files[i]);
    }
}

const rui_format rui_format_npy = {
    .name = "npy",
    .help = "numpy arrays: [x.npy, y.npy] or [all.npz]",
    .open = npy_open,
    .read = npy_read,
    .read_run = npy_read_run,
    .where = npy_where,
    .close = npy_close,
};
