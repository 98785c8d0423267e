/* Writers of ordinary files: IDX, npy, CSV, libsvm. */
#include "data/make/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "data/data_impl.h"

enum { BUF_BYTES = 1 << 20, PATH_BYTES = 4096, BATCH = 64 };

/* -- files ------------------------------------------------------------------------------------- */

ru_status rui_file_open(rui_file *f, const char *dir, const char *name, ru_err *err)
{
    *f = (rui_file){0};
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n < 0 || n >= (int)sizeof path) {
        return RU_FAIL(err, RU_E_CONFIG, "%s/%s: the path is too long", dir, name);
    }
    f->buf = malloc(BUF_BYTES);
    if (f->buf == NULL) {
        return rui_no_memory(err, path, BUF_BYTES);
    }
    return ru_out_open(path, &f->out, err);
}

static ru_status flush(rui_file *f, ru_err *err)
{
    int64_t n = f->n;
    f->n = 0;
    return n > 0 ? ru_out_write(f->out, f->buf, n, err) : RU_OK;
}

ru_status rui_file_put(rui_file *f, const void *data, int64_t size_bytes, ru_err *err)
{
    f->written += size_bytes;
    if (f->n + size_bytes > BUF_BYTES) {
        RU_TRY(flush(f, err));
    }
    if (size_bytes >= BUF_BYTES) {
        return ru_out_write(f->out, data, size_bytes, err);
    }
    memcpy(f->buf + f->n, data, (size_t)size_bytes);
    f->n += size_bytes;
    return RU_OK;
}

ru_status rui_file_finish(rui_file *f, ru_err *err)
{
    RU_TRY(flush(f, err));
    return ru_out_commit(f->out, err);
}

void rui_file_close(rui_file *f)
{
    ru_out_close(f->out);
    free(f->buf);
    *f = (rui_file){0};
}

ru_status rui_write_batches(const rui_write_job *job,
                            ru_status (*each)(void *self, const ru_batch *b, ru_err *err),
                            void *self, ru_err *err)
{
    ru_stream *s = NULL;
    ru_stream_options opt = {.batch = BATCH,
                             .start = job->first,
                             .epochs = 1,
                             .partial_last = true,
                             .threads = job->threads > 0 ? job->threads : 2,
                             .ahead = 8};
    RU_TRY(ru_stream_open(job->d, &opt, &s, err));
    ru_status st = RU_OK;
    int64_t left = job->n;
    while (st == RU_OK && left > 0) {
        ru_batch b;
        st = ru_stream_next(s, &b, err);
        if (st == RU_OK) {
            RU_CHECK(b.n > 0);
            b.n = b.n < left ? b.n : left;
            left -= b.n;
            st = each(self, &b, err);
        }
    }
    ru_stream_close(s);
    return st;
}

/* -- the list of writers ----------------------------------------------------------------------- */

static const rui_writer writers[] = {
#define RUI_X(name, help) {#name, help, rui_write_##name},
    RUI_WRITER_LIST(RUI_X)
#undef RUI_X
};

const rui_writer *rui_writer_find(const char *name)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(writers); k++) {
        if (strcmp(writers[k].name, name) == 0) {
            return &writers[k];
        }
    }
    return NULL;
}

const rui_writer *rui_writer_at(uint32_t k)
{
    return k < RU_ARRAY_LEN(writers) ? &writers[k] : NULL;
}

/* -- npy --------------------------------------------------------------------------------------- */

static const char *numpy_name(ru_dtype t)
{
    static const char *const names[RU_DTYPE_COUNT] = {
#define RU_X(name, word, bytes, onnx, st, np) [RU_##name] = np,
        RU_DTYPE_LIST(RU_X)
#undef RU_X
    };
    return names[t];
}

/* Header of an npy file of `count` items of `type`; returns its bytes (at most 512). */
static int64_t npy_header(const ru_type *type, int64_t count, char *into)
{
    char dict[256 + 24 * RU_RANK_MAX];
    ru_text t = ru_text_into(dict, sizeof dict);
    ru_text_putf(&t, "{'descr': '%s', 'fortran_order': False, 'shape': (%lld,",
                 numpy_name(type->dtype), (long long)count);
    for (uint32_t i = 0; i < type->rank; i++) {
        ru_text_putf(&t, " %lld%s", (long long)type->dims[i], i + 1 < type->rank ? "," : "");
    }
    ru_text_put(&t, "), }");
    int64_t total = (10 + t.n + 1 + 63) / 64 * 64;
    ru_text_char(&t, ' ', total - 10 - t.n - 1);
    ru_text_char(&t, '\n', 1);
    memcpy(into, "\x93NUMPY\x01\x00", 8);
    into[8] = (char)((total - 10) & 0xff);
    into[9] = (char)((total - 10) >> 8);
    memcpy(into + 10, dict, (size_t)t.n);
    return total;
}

ru_status rui_npy_save(const char *dir, const char *name, ru_dtype dtype, uint32_t rank,
                       const int64_t *dims, const void *data, ru_err *err)
{
    RU_CHECK(rank >= 1);
    ru_type item = ru_type_make(dtype, rank - 1, dims + 1);
    char head[512];
    rui_file f;
    ru_status st = rui_file_open(&f, dir, name, err);
    if (st == RU_OK) {
        st = rui_file_put(&f, head, npy_header(&item, dims[0], head), err);
    }
    if (st == RU_OK) {
        st = rui_file_put(&f, data, dims[0] * ru_type_bytes(&item), err);
    }
    if (st == RU_OK) {
        st = rui_file_finish(&f, err);
    }
    rui_file_close(&f);
    return st;
}

/* One file per field, raw rows behind a header: shared by npy and idx. */
typedef struct rows_out {
    const rui_write_job *job;
    rui_file files[RU_FIELDS_MAX];
    bool swap;      /* big-endian numbers */
    bool labels_u8; /* idx: field y narrowed to u8 */
} rows_out;

static ru_status put_big_endian(rui_file *f, const uint8_t *p, int64_t n, int64_t width,
                                ru_err *err)
{
    for (int64_t i = 0; i < n; i++) {
        uint8_t b[8];
        for (int64_t k = 0; k < width; k++) {
            b[k] = p[i * width + width - 1 - k];
        }
        RU_TRY(rui_file_put(f, b, width, err));
    }
    return RU_OK;
}

static ru_status put_rows(void *self, const ru_batch *b, ru_err *err)
{
    rows_out *o = self;
    const ru_dataset *d = o->job->d;
    for (uint32_t k = 0; k < d->n_fields; k++) {
        const ru_type *t = &d->fields[k].type;
        int64_t width = ru_dtype_bytes(t->dtype), n = b->n * d->field_bytes[k] / width;
        if (o->labels_u8 && (int32_t)k == d->y_field) {
            for (int64_t i = 0; i < n; i++) {
                uint8_t label = (uint8_t)((const int64_t *)b->fields[k])[i];
                RU_TRY(rui_file_put(&o->files[k], &label, 1, err));
            }
        } else if (o->swap && width > 1) {
            RU_TRY(put_big_endian(&o->files[k], b->fields[k], n, width, err));
        } else {
            RU_TRY(rui_file_put(&o->files[k], b->fields[k], n * width, err));
        }
    }
    return RU_OK;
}

static ru_status finish_rows(rows_out *o, ru_status st, ru_err *err)
{
    if (st == RU_OK) {
        st = rui_write_batches(o->job, put_rows, o, err);
    }
    for (uint32_t k = 0; k < o->job->d->n_fields; k++) {
        if (st == RU_OK) {
            st = rui_file_finish(&o->files[k], err);
        }
    }
    for (uint32_t k = 0; k < o->job->d->n_fields; k++) {
        rui_file_close(&o->files[k]);
    }
    return st;
}

ru_status rui_write_npy(const rui_write_job *job, ru_err *err)
{
    rows_out o = {.job = job};
    ru_status st = RU_OK;
    for (uint32_t k = 0; st == RU_OK && k < job->d->n_fields; k++) {
        const ru_field *f = &job->d->fields[k];
        char name[256], head[512];
        snprintf(name, sizeof name, "%s-%s.npy", job->prefix, f->name);
        st = rui_file_open(&o.files[k], job->dir, name, err);
        if (st == RU_OK) {
            st = rui_file_put(&o.files[k], head, npy_header(&f->type, job->n, head), err);
        }
    }
    return finish_rows(&o, st, err);
}

/* -- idx --------------------------------------------------------------------------------------- */

static uint8_t idx_code(ru_dtype t)
{
    return t == RU_U8    ? 0x08
           : t == RU_I8  ? 0x09
           : t == RU_I16 ? 0x0b
           : t == RU_I32 ? 0x0c
           : t == RU_F32 ? 0x0d
           : t == RU_F64 ? 0x0e
                         : 0;
}

static ru_status idx_header(rui_file *f, uint8_t code, int64_t count, const ru_type *t, ru_err *err)
{
    uint32_t skip = t->rank == 3 && t->dims[0] == 1; /* [1, h, w] is stored as [h, w] */
    uint8_t head[4 + 4 * (RU_RANK_MAX + 1)] = {0, 0, code, (uint8_t)(t->rank - skip + 1)};
    int64_t n = 4;
    for (uint32_t i = 0; i <= t->rank - skip; i++) {
        int64_t dim = i == 0 ? count : t->dims[i - 1 + skip];
        for (int shift = 24; shift >= 0; shift -= 8) {
            head[n++] = (uint8_t)(dim >> shift);
        }
    }
    return rui_file_put(f, head, n, err);
}

ru_status rui_write_idx(const rui_write_job *job, ru_err *err)
{
    const ru_dataset *d = job->d;
    if (d->n_fields > 2 || (d->n_fields == 2 && (d->y_field != 1 || d->one_hot)) ||
        idx_code(d->fields[0].type.dtype) == 0 || job->n > UINT32_MAX) {
        return RU_FAIL(
            err, RU_E_UNSUPPORTED,
            "idx files hold one array and class numbers; write npy or packed files instead");
    }
    rows_out o = {.job = job, .swap = true, .labels_u8 = d->classes <= 256};
    char name[256];
    snprintf(name, sizeof name, "%s-images", job->prefix);
    ru_status st = rui_file_open(&o.files[0], job->dir, name, err);
    if (st == RU_OK) {
        st = idx_header(&o.files[0], idx_code(d->fields[0].type.dtype), job->n, &d->fields[0].type,
                        err);
    }
    if (st == RU_OK && d->n_fields == 2 && !o.labels_u8) {
        st = RU_FAIL(err, RU_E_UNSUPPORTED, "idx files hold at most 256 classes; use npy");
    }
    if (st == RU_OK && d->n_fields == 2) {
        snprintf(name, sizeof name, "%s-labels", job->prefix);
        st = rui_file_open(&o.files[1], job->dir, name, err);
        if (st == RU_OK) {
            st = idx_header(&o.files[1], 0x08, job->n, &d->fields[1].type, err);
        }
    }
    return finish_rows(&o, st, err);
}

/* -- text: csv and libsvm ---------------------------------------------------------------------- */

typedef struct text_out {
    const rui_write_job *job;
    rui_file file;
    ru_text line;
    bool sparse;
} text_out;

static void put_number(ru_text *t, ru_dtype dtype, const void *p, int64_t i)
{
    char digits[48];
    int n;
    if (dtype == RU_F32) {
        n = snprintf(digits, sizeof digits, "%.9g", (double)((const float *)p)[i]);
    } else if (dtype == RU_U8) {
        n = snprintf(digits, sizeof digits, "%u", ((const uint8_t *)p)[i]);
    } else if (dtype == RU_U16) {
        n = snprintf(digits, sizeof digits, "%u", ((const uint16_t *)p)[i]);
    } else if (dtype == RU_U32) {
        n = snprintf(digits, sizeof digits, "%u", ((const uint32_t *)p)[i]);
    } else {
        n = snprintf(digits, sizeof digits, "%lld", (long long)((const int64_t *)p)[i]);
    }
    ru_text_put_n(t, digits, n);
}

static void put_class(const text_out *o, const void *p, int64_t i)
{
    const char *name = ru_dataset_class_name(o->job->d, ((const int64_t *)p)[i]);
    ru_text *t = (ru_text *)(uintptr_t)&o->line;
    if (name == NULL || o->sparse) {
        put_number(t, RU_I64, p, i);
        return;
    }
    ru_text_csv(t, name);
}

static void put_csv_line(text_out *o, const ru_batch *b, int64_t row)
{
    const ru_dataset *d = o->job->d;
    for (uint32_t k = 0; k < d->n_fields; k++) {
        const ru_type *t = &d->fields[k].type;
        int64_t n = d->field_bytes[k] / ru_dtype_bytes(t->dtype);
        for (int64_t i = 0; i < n; i++) {
            ru_text_put(&o->line, k + i > 0 ? "," : "");
            if ((int32_t)k == d->y_field && t->dtype == RU_I64) {
                put_class(o, b->fields[k], row);
            } else {
                put_number(&o->line, t->dtype, b->fields[k], row * n + i);
            }
        }
    }
}

static void put_svm_line(text_out *o, const ru_batch *b, int64_t row)
{
    const ru_dataset *d = o->job->d;
    const ru_type *t = &d->fields[0].type;
    int64_t n = d->field_bytes[0] / ru_dtype_bytes(t->dtype);
    put_number(&o->line, d->fields[1].type.dtype, b->fields[1], row);
    for (int64_t i = 0; i < n; i++) {
        float v = ((const float *)b->fields[0])[row * n + i];
        if (v != 0.0f) {
            ru_text_putf(&o->line, " %lld:", (long long)i + 1);
            put_number(&o->line, RU_F32, &v, 0);
        }
    }
}

static ru_status put_lines(void *self, const ru_batch *b, ru_err *err)
{
    text_out *o = self;
    for (int64_t row = 0; row < b->n; row++) {
        o->line.n = 0;
        if (o->sparse) {
            put_svm_line(o, b, row);
        } else {
            put_csv_line(o, b, row);
        }
        ru_text_char(&o->line, '\n', 1);
        if (o->line.cut) {
            return rui_no_memory(err, "line of text", o->line.cap);
        }
        RU_TRY(rui_file_put(&o->file, o->line.p, o->line.n, err));
    }
    return RU_OK;
}

/* The name of column `i` of a field (-1: its only one), in quotes where a reader would take a part
 * of it for the end of the cell: also a semicolon or a tab, with which other files divide cells.
 * Source: rfc-4180. */
static void put_column(ru_text *t, const char *name, int64_t i)
{
    char column[1024];
    snprintf(column, sizeof column, i >= 0 ? "%s%lld" : "%s", name, (long long)i);
    if (strpbrk(column, "\",;\t\r\n") != NULL) {
        ru_text_csv(t, column);
    } else {
        ru_text_put(t, column);
    }
}

static ru_status put_csv_header(text_out *o, ru_err *err)
{
    const ru_dataset *d = o->job->d;
    for (uint32_t k = 0; k < d->n_fields; k++) {
        const ru_type *t = &d->fields[k].type;
        int64_t n = d->field_bytes[k] / ru_dtype_bytes(t->dtype);
        for (int64_t i = 0; i < n; i++) {
            ru_text_put(&o->line, k + i > 0 ? "," : "");
            put_column(&o->line, (int32_t)k == d->y_field ? "label" : d->fields[k].name,
                       t->rank > 0 ? i : -1);
        }
    }
    ru_text_char(&o->line, '\n', 1);
    return rui_file_put(&o->file, o->line.p, o->line.n, err);
}

static ru_status write_text(const rui_write_job *job, bool sparse, const char *ending, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    text_out o = {.job = job, .line = ru_text_arena(&arena), .sparse = sparse};
    char name[256];
    snprintf(name, sizeof name, "%s%s", job->prefix, ending);
    ru_status st = rui_file_open(&o.file, job->dir, name, err);
    if (st == RU_OK && !sparse) {
        st = put_csv_header(&o, err);
    }
    if (st == RU_OK) {
        st = rui_write_batches(job, put_lines, &o, err);
    }
    if (st == RU_OK) {
        st = rui_file_finish(&o.file, err);
    }
    rui_file_close(&o.file);
    ru_arena_fini(&arena);
    return st;
}

ru_status rui_write_csv(const rui_write_job *job, ru_err *err)
{
    return write_text(job, false, ".csv", err);
}

ru_status rui_write_libsvm(const rui_write_job *job, ru_err *err)
{
    const ru_dataset *d = job->d;
    if (d->n_fields != 2 || d->fields[0].type.dtype != RU_F32 || d->fields[1].type.rank != 0) {
        return RU_FAIL(
            err, RU_E_UNSUPPORTED,
            "libsvm files hold one row of f32 and one label per sample; use another format");
    }
    return write_text(job, true, ".svm", err);
}
