/* Packed sets, our own form: one record per sample, all fields together, checked by a checksum.
 *
 *     header, a multiple of 4096 bytes     fixed part, class names (NUL after each), zeros, CRC-32C
 *     record 0                             field | field | ... | zeros | CRC-32C     record_bytes
 *     record 1                             (every field starts at a multiple of 8)
 *     ...
 *
 * A sample costs one read at a place known by multiplication; pixels stay u8 and are scaled when
 * read. Numbers are little-endian. */
#include "data/data_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "data/make/write.h"

enum { HEADER_UNIT = 4096, RECORD_UNIT = 64, FIELD_UNIT = 8, HEADER_MAX = 1 << 26 };

typedef struct packed_field {
    char name[24];  /* NUL-ended */
    uint32_t dtype; /* ru_dtype */
    uint32_t rank;
    int64_t dims[RU_RANK_MAX];
    uint32_t pixels; /* 1: u8 that becomes f32 by scale and shift */
    uint32_t zero;
} packed_field;

typedef struct packed_header {
    char magic[8];
    uint32_t header_bytes, n_fields;
    int64_t count, classes, record_bytes;
    int64_t names_bytes; /* of class names behind this struct; 0: none */
    int32_t y_field;
    uint32_t zero;
    packed_field fields[RU_FIELDS_MAX];
} packed_header;

_Static_assert(sizeof(packed_field) == 104 && sizeof(packed_header) == 56 + 8 * 104,
               "no padding in the file's header");

static const char packed_magic[8] = {'R', 'U', 'P', 'A', 'C', 'K', '1', '\n'};

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* -- writing ----------------------------------------------------------------------------------- */

typedef struct packed_out {
    rui_file file;
    const ru_dataset *d;
    int64_t record_bytes;
    uint8_t *record;
} packed_out;

static ru_status put_records(void *self, const ru_batch *b, ru_err *err)
{
    packed_out *o = self;
    for (int64_t row = 0; row < b->n; row++) {
        int64_t at = 0;
        for (uint32_t k = 0; k < o->d->n_fields; k++) {
            int64_t n = o->d->field_bytes[k];
            memcpy(o->record + at, (const uint8_t *)b->fields[k] + row * n, (size_t)n);
            at = round_up(at + n, FIELD_UNIT);
        }
        uint32_t crc = ru_crc32c(0, o->record, o->record_bytes - 4);
        memcpy(o->record + o->record_bytes - 4, &crc, sizeof crc);
        RU_TRY(rui_file_put(&o->file, o->record, o->record_bytes, err));
    }
    return RU_OK;
}

static ru_status put_header(packed_out *o, const rui_write_job *job, ru_err *err)
{
    const ru_dataset *d = job->d;
    packed_header h = {
        .n_fields = d->n_fields, .count = job->n, .classes = d->classes, .y_field = d->y_field};
    memcpy(h.magic, packed_magic, sizeof h.magic);
    for (uint32_t k = 0; k < d->n_fields; k++) {
        const ru_field *f = &d->fields[k];
        packed_field *p = &h.fields[k];
        if (strlen(f->name) >= sizeof p->name) {
            return RU_FAIL(err, RU_E_UNSUPPORTED,
                           "packed: the field name '%s' is longer than 23 bytes", f->name);
        }
        memcpy(p->name, f->name, strlen(f->name));
        p->dtype = f->type.dtype;
        p->rank = f->type.rank;
        p->pixels = d->raw && f->type.dtype == RU_U8 && f->type.rank >= 2;
        memcpy(p->dims, f->type.dims, sizeof p->dims);
        o->record_bytes = round_up(o->record_bytes + d->field_bytes[k], FIELD_UNIT);
    }
    o->record_bytes = round_up(o->record_bytes + 4, RECORD_UNIT);
    h.record_bytes = o->record_bytes;
    for (int64_t c = 0; d->class_names != NULL && c < d->classes; c++) {
        h.names_bytes += (int64_t)strlen(d->class_names[c]) + 1;
    }
    int64_t total = round_up((int64_t)sizeof h + h.names_bytes + 4, HEADER_UNIT);
    if (total > HEADER_MAX) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "packed: the class names are too long");
    }
    h.header_bytes = (uint32_t)total;
    uint8_t *head = calloc(1, (size_t)total);
    if (head == NULL) {
        return rui_no_memory(err, "packed header", total);
    }
    memcpy(head, &h, sizeof h);
    int64_t at = sizeof h;
    for (int64_t c = 0; d->class_names != NULL && c < d->classes; c++) {
        size_t n = strlen(d->class_names[c]) + 1;
        memcpy(head + at, d->class_names[c], n);
        at += (int64_t)n;
    }
    uint32_t crc = ru_crc32c(0, head, total - 4);
    memcpy(head + total - 4, &crc, sizeof crc);
    ru_status st = rui_file_put(&o->file, head, total, err);
    free(head);
    return st;
}

ru_status rui_write_packed(const rui_write_job *job, ru_err *err)
{
    packed_out o = {.d = job->d};
    char name[256];
    snprintf(name, sizeof name, "%s.pack", job->prefix);
    ru_status st = rui_file_open(&o.file, job->dir, name, err);
    if (st == RU_OK) {
        st = put_header(&o, job, err);
    }
    if (st == RU_OK) {
        o.record = calloc(1, (size_t)o.record_bytes);
        st = o.record != NULL ? RU_OK : rui_no_memory(err, "packed record", o.record_bytes);
    }
    if (st == RU_OK) {
        st = rui_write_batches(job, put_records, &o, err);
    }
    if (st == RU_OK) {
        st = rui_file_finish(&o.file, err);
    }
    rui_file_close(&o.file);
    free(o.record);
    return st;
}

/* -- reading ----------------------------------------------------------------------------------- */

typedef struct packed_set {
    rui_source file;
    packed_header h;
    int64_t at[RU_FIELDS_MAX];    /* of each field within a record */
    int64_t bytes[RU_FIELDS_MAX]; /* stored */
} packed_set;

static ru_status bad(const packed_set *s, const char *what, ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA, "%s: the header is damaged: %s", s->file.path, what);
}

static ru_status check_fields(packed_set *s, ru_err *err)
{
    const packed_header *h = &s->h;
    int64_t at = 0;
    for (uint32_t k = 0; k < h->n_fields; k++) {
        const packed_field *f = &h->fields[k];
        if (f->dtype == RU_NONE || f->dtype >= RU_DTYPE_COUNT || f->rank > RU_RANK_MAX ||
            memchr(f->name, '\0', sizeof f->name) == NULL ||
            (f->pixels != 0 && f->dtype != RU_U8)) {
            return bad(s, "a field has an unknown type or name", err);
        }
        int64_t n = ru_dtype_bytes((ru_dtype)f->dtype);
        for (uint32_t i = 0; i < f->rank; i++) {
            if (f->dims[i] < 1 || f->dims[i] > RUI_SAMPLE_BYTES_MAX / n) {
                return bad(s, "a field has a size that is not possible", err);
            }
            n *= f->dims[i];
        }
        s->at[k] = at;
        s->bytes[k] = n;
        at = round_up(at + n, FIELD_UNIT);
    }
    if (h->record_bytes != round_up(at + 4, RECORD_UNIT)) {
        return bad(s, "the record size does not match the fields", err);
    }
    if (h->y_field < -1 || h->y_field >= (int32_t)h->n_fields ||
        (h->y_field >= 0 && (h->fields[h->y_field].dtype != RU_I64 ||
                             h->fields[h->y_field].rank != 0 || h->classes < 1))) {
        return bad(s, "the label field is not valid", err);
    }
    return RU_OK;
}

static ru_status read_names(ru_dataset *d, packed_set *s, ru_err *err)
{
    int64_t n = s->h.names_bytes;
    if (n == 0) {
        return RU_OK;
    }
    char *text = ru_arena_alloc(&d->arena, n + 1, 1);
    const char **names = RU_NEW(&d->arena, const char *, s->h.classes);
    if (text == NULL || names == NULL) {
        return rui_no_memory(err, s->file.path, n);
    }
    RU_TRY(rui_source_read(&s->file, sizeof s->h, text, n, err));
    text[n] = '\0';
    int64_t at = 0;
    for (int64_t c = 0; c < s->h.classes; c++) {
        if (at >= n) {
            return bad(s, "there are fewer class names than classes", err);
        }
        names[c] = text + at;
        at += (int64_t)strlen(text + at) + 1;
    }
    d->class_names = names;
    return RU_OK;
}

static ru_status read_header(ru_dataset *d, packed_set *s, ru_err *err)
{
    packed_header *h = &s->h;
    if (s->file.size_bytes < (int64_t)sizeof *h) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: the file has %lld bytes, which is too short for a packed file",
                       s->file.path, (long long)s->file.size_bytes);
    }
    RU_TRY(rui_source_read(&s->file, 0, h, sizeof *h, err));
    if (memcmp(h->magic, packed_magic, sizeof h->magic) != 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: the file does not begin with the header of a packed file",
                       s->file.path);
    }
    if (h->header_bytes < sizeof *h + 4 || h->header_bytes > HEADER_MAX ||
        h->header_bytes % HEADER_UNIT != 0 || h->header_bytes > s->file.size_bytes ||
        h->n_fields < 1 || h->n_fields > RU_FIELDS_MAX || h->names_bytes < 0 ||
        h->names_bytes > (int64_t)h->header_bytes - (int64_t)sizeof *h - 4 || h->classes < 0 ||
        h->classes > RUI_CLASSES_MAX) {
        return bad(s, "its sizes are not possible", err);
    }
    uint8_t *head = malloc(h->header_bytes);
    if (head == NULL) {
        return rui_no_memory(err, s->file.path, h->header_bytes);
    }
    ru_status st = rui_source_read(&s->file, 0, head, h->header_bytes, err);
    uint32_t want;
    memcpy(&want, head + h->header_bytes - 4, sizeof want);
    uint32_t have = ru_crc32c(0, head, (int64_t)h->header_bytes - 4);
    free(head);
    RU_TRY(st);
    if (want != have) {
        return bad(s, "its checksum is wrong", err);
    }
    RU_TRY(check_fields(s, err));
    int64_t records = s->file.size_bytes - h->header_bytes;
    if (h->count < 1 || h->count > records / h->record_bytes ||
        h->count * h->record_bytes != records) {
        return RU_FAIL(
            err, RU_E_DATA,
            "%s: the header promises %lld records of %lld bytes, but %lld bytes follow it",
            s->file.path, (long long)h->count, (long long)h->record_bytes, (long long)records);
    }
    return read_names(d, s, err);
}

static ru_status packed_open(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    if (opt->n_paths != 1) {
        return RU_FAIL(err, RU_E_CONFIG, "packed: %u files are named; expected one", opt->n_paths);
    }
    packed_set *s = d->self = RU_NEW(&d->arena, packed_set, 1);
    if (s == NULL) {
        return rui_no_memory(err, "packed", sizeof *s);
    }
    int64_t resident =
        opt->resident_max_bytes != 0 ? opt->resident_max_bytes : RUI_RESIDENT_MAX_BYTES;
    RU_TRY(rui_source_open(&d->arena, &d->objects, opt->paths[0], resident, opt->direct, &s->file,
                           err));
    RU_TRY(read_header(d, s, err));
    d->bytes = s->file.disk_bytes;
    d->count = s->h.count;
    d->classes = s->h.classes;
    for (uint32_t k = 0; k < s->h.n_fields; k++) {
        const packed_field *f = &s->h.fields[k];
        if ((int32_t)k == s->h.y_field) {
            rui_field_add_class(d);
        } else {
            rui_field_add(d, f->name, f->pixels != 0 ? rui_pixel_dtype(d) : (ru_dtype)f->dtype,
                          f->rank, f->dims);
        }
    }
    return RU_OK;
}

static ru_status unpack(const ru_dataset *d, const packed_set *s, int64_t index, const uint8_t *p,
                        void *const *fields, int64_t row, ru_err *err)
{
    uint32_t want;
    memcpy(&want, p + s->h.record_bytes - 4, sizeof want);
    if (ru_crc32c(0, p, s->h.record_bytes - 4) != want) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: record %lld (byte %lld) has a wrong checksum; the file is damaged",
                       s->file.path, (long long)index,
                       (long long)(s->h.header_bytes + index * s->h.record_bytes));
    }
    for (uint32_t k = 0; k < s->h.n_fields; k++) {
        uint8_t *into = (uint8_t *)fields[k] + row * d->field_bytes[k];
        if ((int32_t)k == d->y_field) {
            int64_t label;
            memcpy(&label, p + s->at[k], sizeof label);
            if (label < 0 || label >= d->classes) {
                return RU_FAIL(err, RU_E_DATA, "%s: record %lld has label %lld, outside 0..%lld",
                               s->file.path, (long long)index, (long long)label,
                               (long long)d->classes - 1);
            }
            rui_class_put(d, label, into);
        } else if (s->h.fields[k].pixels != 0) {
            rui_pixels_put(d, p + s->at[k], s->bytes[k], into);
        } else {
            memcpy(into, p + s->at[k], (size_t)s->bytes[k]);
            ru_status st = d->fields[k].type.dtype == RU_F32
                               ? rui_numbers_check(d, k, into, s->bytes[k] / 4, err)
                               : RU_OK;
            if (st != RU_OK) {
                return ru_err_wrap(err, st, "%s: record %lld", s->file.path, (long long)index);
            }
        }
    }
    return RU_OK;
}

static ru_status packed_read_run(const ru_dataset *d, int64_t first, int64_t n, void *const *fields,
                                 ru_err *err)
{
    const packed_set *s = d->self;
    uint8_t small[65536];
    int64_t size = s->h.record_bytes, per = (int64_t)sizeof small / size;
    per = per < 1 ? 1 : per;
    rui_scratch tmp;
    RU_TRY(rui_scratch_get(&tmp, small, sizeof small, per * size, err));
    ru_status st = RU_OK;
    for (int64_t i = 0; st == RU_OK && i < n; i += per) {
        int64_t m = n - i < per ? n - i : per;
        const uint8_t *p = NULL;
        st = rui_bytes_view(d, &s->file, s->h.header_bytes + (first + i) * size, m * size, tmp.p,
                            &p, err);
        for (int64_t j = 0; st == RU_OK && j < m; j++) {
            st = unpack(d, s, first + i + j, p + j * size, fields, i + j, err);
        }
    }
    rui_scratch_put(&tmp);
    return st;
}

static ru_status packed_read(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err)
{
    return packed_read_run(d, index, 1, fields, err);
}

static void packed_where(const ru_dataset *d, int64_t first, int64_t n, rui_where_fn fn, void *self)
{
    const packed_set *s = d->self;
    int64_t size = s->h.record_bytes;
    fn(self, &s->file, s->h.header_bytes + first * size, n * size);
}

static void packed_close(ru_dataset *d)
{
    packed_set *s = d->self;
    if (s != NULL) {
        rui_source_close(&s->file);
    }
}

const rui_format rui_format_packed = {
    .name = "packed",
    .help = "Rubato's own format from 'rubato data import': one record per sample, with a checksum",
    .open = packed_open,
    .read = packed_read,
    .read_run = packed_read_run,
    .where = packed_where,
    .close = packed_close,
};
