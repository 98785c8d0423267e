/* `rubato data info`: counts, shapes, ranges, classes, and samples drawn with letters. */
#include "data/describe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/unit.h"
#include "data/data_impl.h"

enum {
    SHOW_DEFAULT = 3,
    SCAN_DEFAULT = 10000,
    ROWS_MAX = 14,
    COLUMNS_MAX = 28,
    BAR = 30,
    CLASSES_SHOWN = 20,
    NUMBERS_SHOWN = 8
};

typedef struct range {
    double least, most, sum;
    int64_t n;
} range;

typedef struct look {
    const ru_dataset *d;
    ru_text *out;
    void *fields[RU_FIELDS_MAX]; /* one sample */
    range ranges[RU_FIELDS_MAX];
    int64_t *seen; /* [classes] samples of each class */
    int64_t scanned;
} look;

static double number_at(ru_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case RU_F32:
        return (double)((const float *)p)[i];
    case RU_I64:
        return (double)((const int64_t *)p)[i];
    case RU_U8:
    case RU_BOOL:
        return (double)((const uint8_t *)p)[i];
    case RU_U16:
        return (double)((const uint16_t *)p)[i];
    case RU_U32:
        return (double)((const uint32_t *)p)[i];
    case RU_I32:
        return (double)((const int32_t *)p)[i];
    case RU_F64:
        return ((const double *)p)[i];
    case RU_I8:
        return (double)((const int8_t *)p)[i];
    case RU_I16:
        return (double)((const int16_t *)p)[i];
    case RU_U64:
        return (double)((const uint64_t *)p)[i];
    case RU_F16:
        return (double)ru_f16_to_f32(((const uint16_t *)p)[i]);
    case RU_BF16:
        return (double)ru_bf16_to_f32(((const uint16_t *)p)[i]);
    case RU_NONE:
    case RU_DTYPE_COUNT:
        break;
    }
    return 0.0;
}

static int64_t numbers_of(const ru_dataset *d, uint32_t k)
{
    return d->field_bytes[k] / ru_dtype_bytes(d->fields[k].type.dtype);
}

static int64_t label_of(const look *l)
{
    const ru_dataset *d = l->d;
    if (!d->one_hot) {
        return ((const int64_t *)l->fields[d->y_field])[0];
    }
    const float *row = l->fields[d->y_field];
    int64_t k = 0;
    while (k + 1 < d->classes && row[k] == 0.0f) {
        k++;
    }
    return k;
}

static ru_status scan(look *l, int64_t n, ru_err *err)
{
    const ru_dataset *d = l->d;
    for (uint32_t k = 0; k < d->n_fields; k++) {
        l->ranges[k] = (range){(double)INFINITY, -(double)INFINITY, 0.0, 0};
    }
    for (int64_t i = 0; i < n; i++) {
        /* evenly over the set: the order on disk is often by class */
        int64_t at = n == d->count ? i : (int64_t)((double)i * (double)d->count / (double)n);
        RU_TRY(ru_dataset_read(d, at, l->fields, err));
        for (uint32_t k = 0; k < d->n_fields; k++) {
            range *r = &l->ranges[k];
            int64_t m = numbers_of(d, k);
            for (int64_t j = 0; j < m; j++) {
                double v = number_at(d->fields[k].type.dtype, l->fields[k], j);
                r->least = v < r->least ? v : r->least;
                r->most = v > r->most ? v : r->most;
                r->sum += v;
            }
            r->n += m;
        }
        if (l->seen != NULL) {
            l->seen[label_of(l)]++;
        }
    }
    l->scanned = n;
    return RU_OK;
}

/* -- text -------------------------------------------------------------------------------------- */

static void put_shape(ru_text *t, const ru_type *type)
{
    ru_text_char(t, '[', 1);
    for (uint32_t i = 0; i < type->rank; i++) {
        ru_text_putf(t, "%s%lld", i > 0 ? ", " : "", (long long)type->dims[i]);
    }
    ru_text_char(t, ']', 1);
}

static void put_fields(const look *l)
{
    ru_text *t = l->out;
    for (uint32_t k = 0; k < l->d->n_fields; k++) {
        const ru_field *f = &l->d->fields[k];
        const range *r = &l->ranges[k];
        int64_t from = t->n;
        ru_text_putf(t, "  %-8s %-4s ", f->name, ru_dtype_name(f->type.dtype));
        put_shape(t, &f->type);
        int64_t pad = 36 - (t->n - from);
        ru_text_char(t, ' ', pad > 1 ? pad : 1);
        ru_text_putf(t, "%g to %g, mean %.4g\n", r->least, r->most, r->sum / (double)r->n);
    }
}

static void put_classes(const look *l)
{
    const ru_dataset *d = l->d;
    ru_text *t = l->out;
    int64_t most = 1, shown = d->classes < CLASSES_SHOWN ? d->classes : CLASSES_SHOWN;
    for (int64_t c = 0; c < d->classes; c++) {
        most = l->seen[c] > most ? l->seen[c] : most;
    }
    ru_text_putf(t, "\nclasses %lld%s\n", (long long)d->classes,
                 l->scanned < d->count ? " (fractions of the scanned samples)" : "");
    for (int64_t c = 0; c < shown; c++) {
        const char *name = ru_dataset_class_name(d, c);
        ru_text_putf(t, "  %4lld %-16.16s %8lld ", (long long)c, name != NULL ? name : "",
                     (long long)l->seen[c]);
        ru_text_char(t, '#', l->seen[c] * BAR / most);
        ru_text_char(t, '\n', 1);
    }
    if (shown < d->classes) {
        ru_text_putf(t, "  ... and %lld more\n", (long long)(d->classes - shown));
    }
}

/* Gray of a cell of the picture: the mean over channels and the pixels it covers. */
static double cell_gray(const look *l, const ru_type *type, int64_t row, int64_t rows, int64_t col,
                        int64_t cols)
{
    int64_t c = type->dims[0], h = type->dims[1], w = type->dims[2], n = 0;
    double sum = 0.0;
    for (int64_t k = 0; k < c; k++) {
        for (int64_t y = row * h / rows; y < (row + 1) * h / rows || y == row * h / rows; y++) {
            for (int64_t x = col * w / cols; x < (col + 1) * w / cols || x == col * w / cols; x++) {
                sum += number_at(type->dtype, l->fields[0], (k * h + y) * w + x);
                n++;
            }
        }
    }
    return sum / (double)n;
}

static bool is_picture(const ru_type *t)
{
    return t->rank == 3 && (t->dims[0] == 1 || t->dims[0] == 3) && t->dims[1] >= 4 &&
           t->dims[2] >= 4;
}

static void put_picture(const look *l)
{
    static const char ink[] = " .:-=+*#%@";
    const ru_type *type = &l->d->fields[0].type;
    const range *r = &l->ranges[0];
    int64_t cols = type->dims[2] < COLUMNS_MAX ? type->dims[2] : COLUMNS_MAX;
    int64_t rows = type->dims[1] * cols / type->dims[2] / 2;
    rows = rows < 1 ? 1 : rows > 2 * ROWS_MAX ? 2 * ROWS_MAX : rows;
    double span = r->most > r->least ? r->most - r->least : 1.0;
    for (int64_t y = 0; y < rows; y++) {
        ru_text_put(l->out, "    ");
        for (int64_t x = 0; x < cols; x++) {
            int k = (int)((cell_gray(l, type, y, rows, x, cols) - r->least) / span * 9.999);
            ru_text_char(l->out, ink[k < 0 ? 0 : k > 9 ? 9 : k], 1);
        }
        ru_text_char(l->out, '\n', 1);
    }
}

static void put_bytes_as_text(const look *l, uint32_t k)
{
    int64_t n = numbers_of(l->d, k);
    ru_text_put(l->out, "    \"");
    for (int64_t i = 0; i < n && i < 200; i++) {
        int c = (int)number_at(l->d->fields[k].type.dtype, l->fields[k], i);
        if (c == '\n') {
            ru_text_put(l->out, "\\n");
        } else {
            ru_text_char(l->out, c >= 32 && c < 127 ? (char)c : '?', 1);
        }
    }
    ru_text_put(l->out, n > 200 ? "...\"\n" : "\"\n");
}

static void put_sample(const look *l, int64_t index)
{
    const ru_dataset *d = l->d;
    ru_text *t = l->out;
    ru_text_putf(t, "\nsample %lld", (long long)index);
    if (d->y_field >= 0) {
        int64_t label = label_of(l);
        const char *name = ru_dataset_class_name(d, label);
        ru_text_putf(t, "  class %lld%s%s", (long long)label, name != NULL ? " " : "",
                     name != NULL ? name : "");
    }
    ru_text_char(t, '\n', 1);
    bool text = strcmp(d->fields[0].name, "ids") == 0 && d->classes == 256;
    if (is_picture(&d->fields[0].type)) {
        put_picture(l);
    } else if (text) {
        put_bytes_as_text(l, 0);
    }
    for (uint32_t k = 0; k < d->n_fields; k++) {
        if ((int32_t)k == d->y_field || text || (k == 0 && is_picture(&d->fields[0].type))) {
            continue;
        }
        int64_t n = numbers_of(d, k);
        ru_text_putf(t, "    %s:", d->fields[k].name);
        for (int64_t i = 0; i < n && i < NUMBERS_SHOWN; i++) {
            ru_text_putf(t, " %.6g", number_at(d->fields[k].type.dtype, l->fields[k], i));
        }
        ru_text_put(t, n > NUMBERS_SHOWN ? " ...\n" : "\n");
    }
}

static ru_status put_text(look *l, int64_t samples, ru_err *err)
{
    const ru_dataset *d = l->d;
    ru_text_putf(l->out, "format   %s\nsamples  %lld\non disk  ", d->format->name,
                 (long long)d->count);
    ru_text_size_short(l->out, d->bytes);
    ru_text_putf(l->out, "\nfields   (ranges over %lld samples)\n", (long long)l->scanned);
    put_fields(l);
    if (l->seen != NULL) {
        put_classes(l);
    }
    for (int64_t i = 0; i < samples; i++) {
        RU_TRY(ru_dataset_read(d, i, l->fields, err));
        put_sample(l, i);
    }
    return RU_OK;
}

/* -- JSON -------------------------------------------------------------------------------------- */

static void put_json(const look *l)
{
    const ru_dataset *d = l->d;
    ru_text *t = l->out;
    ru_text_putf(t,
                 "{\"schema\":\"rubato.data/1\",\"format\":\"%s\",\"count\":%lld,\"bytes\":%lld,"
                 "\"scanned\":%lld,\"damaged\":%lld,\"fields\":[",
                 d->format->name, (long long)d->count, (long long)d->bytes, (long long)l->scanned,
                 (long long)ru_dataset_skipped(d));
    for (uint32_t k = 0; k < d->n_fields; k++) {
        const ru_field *f = &d->fields[k];
        ru_text_putf(t, "%s{\"name\":", k > 0 ? "," : "");
        ru_text_json(t, ru_str_c(f->name));
        ru_text_putf(t, ",\"type\":\"%s\",\"shape\":", ru_dtype_name(f->type.dtype));
        put_shape(t, &f->type);
        ru_text_put(t, ",\"min\":");
        ru_text_f64(t, l->ranges[k].least);
        ru_text_put(t, ",\"max\":");
        ru_text_f64(t, l->ranges[k].most);
        ru_text_put(t, ",\"mean\":");
        ru_text_f64(t, l->ranges[k].sum / (double)l->ranges[k].n);
        ru_text_char(t, '}', 1);
    }
    ru_text_putf(t, "],\"classes\":%lld,\"histogram\":[", (long long)d->classes);
    for (int64_t c = 0; l->seen != NULL && c < d->classes; c++) {
        ru_text_putf(t, "%s%lld", c > 0 ? "," : "", (long long)l->seen[c]);
    }
    ru_text_put(t, "],\"class_names\":[");
    for (int64_t c = 0; d->class_names != NULL && c < d->classes; c++) {
        ru_text_put(t, c > 0 ? "," : "");
        ru_text_json(t, ru_str_c(d->class_names[c]));
    }
    ru_text_put(t, "]}\n");
}

ru_status ru_data_describe(const ru_dataset *d, const ru_describe_options *opt, ru_text *out,
                           ru_err *err)
{
    look l = {.d = d, .out = out};
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < d->n_fields; k++) {
        l.fields[k] = malloc((size_t)d->field_bytes[k]);
        st = l.fields[k] != NULL ? st : rui_no_memory(err, "sample", d->field_bytes[k]);
    }
    if (d->y_field >= 0) {
        l.seen = calloc((size_t)d->classes, sizeof *l.seen);
        st = l.seen != NULL ? st : rui_no_memory(err, "classes", d->classes);
    }
    int64_t n = opt->scan > 0 ? opt->scan : SCAN_DEFAULT, show = opt->samples;
    show = show < 0 ? 0 : show == 0 ? SHOW_DEFAULT : show;
    if (st == RU_OK) {
        st = scan(&l, n < d->count ? n : d->count, err);
    }
    if (st == RU_OK && opt->json) {
        put_json(&l);
    } else if (st == RU_OK) {
        st = put_text(&l, show < d->count ? show : d->count, err);
    }
    for (uint32_t k = 0; k < d->n_fields; k++) {
        free(l.fields[k]);
    }
    free(l.seen);
    return st;
}

/* Range of the first field of the sample that stands in l->fields. */
static void range_here(look *l)
{
    int64_t n = numbers_of(l->d, 0);
    range *r = &l->ranges[0];
    for (int64_t i = 0; i < n; i++) {
        double x = number_at(l->d->fields[0].type.dtype, l->fields[0], i);
        r->least = i == 0 || x < r->least ? x : r->least;
        r->most = i == 0 || x > r->most ? x : r->most;
    }
}

ru_status ru_data_show(const ru_dataset *d, int64_t index, ru_text *out, ru_err *err)
{
    look l = {.d = d, .out = out};
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < d->n_fields; k++) {
        l.fields[k] = malloc((size_t)d->field_bytes[k]);
        st = l.fields[k] != NULL ? st : rui_no_memory(err, "sample", d->field_bytes[k]);
    }
    if (st == RU_OK) {
        st = ru_dataset_read(d, index, l.fields, err);
    }
    if (st == RU_OK) {
        range_here(&l);
        put_sample(&l, index);
    }
    for (uint32_t k = 0; k < d->n_fields; k++) {
        free(l.fields[k]);
    }
    return st;
}
