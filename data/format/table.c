/* Buffers, numbers and labels of the text formats. */
#include "data/format/table.h"
#include "data/format/classes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void *rui_buf_push(rui_buf *b, int64_t bytes)
{
    if (b->room - b->n < bytes) {
        int64_t next = b->room < 4096 ? 4096 : b->room;
        while (next - b->n < bytes) {
            if (next > INT64_MAX / 2) {
                return NULL;
            }
            next *= 2;
        }
        void *p = realloc(b->p, (size_t)next);
        if (p == NULL) {
            return NULL;
        }
        b->p = p;
        b->room = next;
    }
    b->n += bytes;
    return (uint8_t *)b->p + b->n - bytes;
}

void rui_buf_fit(rui_buf *b)
{
    if (b->n > 0 && b->room > b->n) {
        void *p = realloc(b->p, (size_t)b->n);
        if (p != NULL) {
            b->p = p;
            b->room = b->n;
        }
    }
}

void rui_buf_free(rui_buf *b)
{
    free(b->p);
    *b = (rui_buf){0};
}

bool rui_number(const char *p, int64_t n, double *out)
{
    double v;
    if (!ru_str_f64(ru_str_n(p, n), &v) || !isfinite(v)) {
        return false;
    }
    *out = v;
    return true;
}

/* -- labels ------------------------------------------------------------------------------------ */

typedef enum label_kind {
    LABEL_CLASS,
    LABEL_NUMBER,
    LABEL_NAME,
} label_kind;

ru_status rui_labels_add(rui_labels *l, ru_str text, uint32_t file, int64_t line, ru_err *err)
{
    if (text.n > INT32_MAX) {
        return RU_FAIL(err, RU_E_DATA, "%s:%lld: the label has %lld bytes, which is too long",
                       l->paths[file], (long long)line, (long long)text.n);
    }
    rui_label *row = rui_buf_push(&l->rows, sizeof *row);
    if (row == NULL) {
        return rui_no_memory(err, l->paths[file], l->rows.n);
    }
    *row = (rui_label){text.p, (int32_t)text.n, file, line};
    return RU_OK;
}

/* `odd`: the first label that is no class number where all are numbers. */
static label_kind kind_of_all(const ru_data_options *opt, const rui_label *rows, int64_t n,
                              const rui_label **odd)
{
    *odd = NULL;
    if (opt->n_class_names > 0) {
        return LABEL_NAME;
    }
    label_kind kind = LABEL_CLASS;
    for (int64_t i = 0; i < n; i++) {
        double v;
        int64_t whole;
        if (!rui_number(rows[i].p, rows[i].n, &v)) {
            return LABEL_NAME;
        }
        bool digits = ru_str_i64(
            ru_str_n(rows[i].p + (rows[i].p[0] == '+'), rows[i].n - (rows[i].p[0] == '+')), &whole);
        bool integer = opt->classes > 0 || opt->whole_classes ? v == floor(v) : digits;
        if (!integer || v < -1.0 || v >= RUI_CLASSES_MAX) {
            kind = LABEL_NUMBER;
            *odd = *odd == NULL ? &rows[i] : *odd;
        }
    }
    return opt->regression ? LABEL_NUMBER : kind;
}

static ru_status label_fail(const rui_labels *l, const rui_label *row, const char *expected,
                            ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA, "%s:%lld: the label '%.*s' is not %s", l->paths[row->file],
                   (long long)row->line, row->n > 60 ? 60 : row->n, row->p, expected);
}

/* Classes that no label says: the model gets outputs for them all the same. */
static ru_status say_unused(const ru_dataset *d, const ru_data_options *opt, const rui_labels *l,
                            int64_t n, const int32_t *labels, ru_err *err)
{
    rui_classes_said said;
    RU_TRY(rui_classes_open(&said, err));
    for (int64_t i = 0; i < n; i++) {
        rui_classes_put(&said, labels[i]);
    }
    rui_classes_say(&said, opt, l->paths[0], d->classes);
    rui_classes_close(&said);
    return RU_OK;
}

static ru_status resolve_classes(ru_dataset *d, const ru_data_options *opt, const rui_labels *l,
                                 int64_t n, int32_t *out, ru_err *err)
{
    const rui_label *rows = l->rows.p;
    bool minus = false, other = false;
    int64_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = 0.0;
        bool number = rui_number(rows[i].p, rows[i].n, &v);
        RU_CHECK(number);
        minus = minus || v < 0.0;
        other = other || (v >= 0.0 && v != 1.0);
        if (minus && other) {
            return label_fail(l, &rows[i],
                              "a class number starting at 0, and not all labels are -1 or 1; set "
                              "regression to use them as numbers",
                              err);
        }
        out[i] = v < 0.0 ? 0 : (int32_t)v;
        most = out[i] > most ? out[i] : most;
        if (opt->classes > 0 && out[i] >= opt->classes) {
            char range[64];
            ru_text t = ru_text_into(range, sizeof range);
            ru_text_putf(&t, "in 0..%lld", (long long)opt->classes - 1);
            return label_fail(l, &rows[i], range, err);
        }
    }
    d->classes = opt->classes > 0 ? opt->classes : minus && most == 0 ? 2 : most + 1;
    return opt->classes > 0 ? RU_OK : say_unused(d, opt, l, n, out, err);
}

static int by_text(const void *a, const void *b)
{
    const rui_label *x = a, *y = b;
    int32_t n = x->n < y->n ? x->n : y->n;
    int c = memcmp(x->p, y->p, (size_t)n);
    return c != 0 ? c : (x->n > y->n) - (x->n < y->n);
}

/* The sorted distinct names, as texts in d's arena. */
static ru_status collect_names(ru_dataset *d, const rui_labels *l, int64_t n, ru_err *err)
{
    rui_label *sorted = malloc((size_t)n * sizeof *sorted);
    if (sorted == NULL) {
        return rui_no_memory(err, l->paths[0], n * (int64_t)sizeof *sorted);
    }
    memcpy(sorted, l->rows.p, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_text);
    int64_t k = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || by_text(&sorted[i], &sorted[k - 1]) != 0) {
            sorted[k++] = sorted[i];
        }
    }
    const char **names = RU_NEW(&d->arena, const char *, k);
    ru_status st = names != NULL ? RU_OK : rui_no_memory(err, l->paths[0], k);
    if (k > RUI_CLASSES_MAX) {
        st = RU_FAIL(err, RU_E_DATA, "%s: there are more than %d different label texts",
                     l->paths[0], RUI_CLASSES_MAX);
    }
    for (int64_t i = 0; st == RU_OK && i < k; i++) {
        names[i] = ru_arena_strn(&d->arena, sorted[i].p, sorted[i].n);
        st = names[i] != NULL ? RU_OK : rui_no_memory(err, l->paths[0], sorted[i].n);
    }
    free(sorted);
    d->class_names = names;
    d->classes = k;
    return st;
}

static ru_status resolve_names(ru_dataset *d, const ru_data_options *opt, const rui_labels *l,
                               int64_t n, int32_t *out, ru_err *err)
{
    RU_TRY(rui_class_names_take(d, opt, err));
    if (d->class_names == NULL) {
        RU_TRY(collect_names(d, l, n, err));
    }
    const rui_label *rows = l->rows.p;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = rui_class_find(d, ru_str_n(rows[i].p, rows[i].n));
        if (k < 0) {
            return label_fail(l, &rows[i], "one of the given class names", err);
        }
        out[i] = (int32_t)k;
    }
    if (opt->classes > 0 && d->classes != opt->classes) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: there are %lld different label texts, but classes is set to %lld",
                       l->paths[0], (long long)d->classes, (long long)opt->classes);
    }
    return RU_OK;
}

ru_status rui_labels_resolve(ru_dataset *d, const ru_data_options *opt, const rui_labels *l,
                             const void **values, ru_err *err)
{
    int64_t n = l->rows.n / (int64_t)sizeof(rui_label);
    const rui_label *rows = l->rows.p;
    int32_t *out = ru_arena_alloc(&d->arena, n * 4, 64);
    if (out == NULL) {
        return rui_no_memory(err, l->paths[0], n * 4);
    }
    const rui_label *odd;
    *values = out;
    switch (kind_of_all(opt, rows, n, &odd)) {
    case LABEL_CLASS:
        RU_TRY(resolve_classes(d, opt, l, n, out, err));
        rui_field_add_class(d);
        return RU_OK;
    case LABEL_NAME:
        if (opt->regression) {
            for (int64_t i = 0; i < n; i++) {
                double v;
                if (!rui_number(rows[i].p, rows[i].n, &v)) {
                    return label_fail(l, &rows[i], "a number", err);
                }
            }
        }
        RU_TRY(resolve_names(d, opt, l, n, out, err));
        rui_field_add_class(d);
        return RU_OK;
    case LABEL_NUMBER:
        break;
    }
    if (opt->classes > 0 && odd != NULL) {
        return label_fail(l, odd, "a class number, but classes is set", err);
    }
    if (opt->classes > 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: classes is set to %lld, but regression is set too; set one of them",
                       l->paths[0], (long long)opt->classes);
    }
    if (odd != NULL && !opt->regression) {
        d->not_classes = ru_arena_printf(&d->arena, "%s:%lld: label %.*s", l->paths[odd->file],
                                         (long long)odd->line, odd->n > 60 ? 60 : odd->n, odd->p);
    }
    for (int64_t i = 0; i < n; i++) {
        double v = 0.0;
        bool number = rui_number(rows[i].p, rows[i].n, &v);
        RU_CHECK(number);
        float f = (float)v;
        if (!isfinite(f)) {
            return label_fail(l, &rows[i], "a number of 32 bits", err);
        }
        memcpy(&out[i], &f, sizeof f);
    }
    rui_field_add(d, "y", RU_F32, 0, NULL);
    return RU_OK;
}

void rui_label_put(const ru_dataset *d, const void *values, int64_t index, void *into)
{
    if (d->y_field >= 0) {
        rui_class_put(d, ((const int32_t *)values)[index], into);
    } else {
        memcpy(into, (const float *)values + index, sizeof(float));
    }
}
