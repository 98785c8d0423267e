/* Formats with a row a line: libsvm, plain text, and dense rows of csv and idx. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/format/sparse_impl.h"

/* -- libsvm ------------------------------------------------------------------------------------ */

typedef struct libsvm {
    ru_sparse_file *f;
    int64_t least, most; /* numbers of features found */
} libsvm;

static ru_status add_item(libsvm *s, rui_place at, ru_str item, int64_t *last, ru_err *err)
{
    int64_t colon = ru_str_find(item, ":"), feature;
    double v;
    if (colon < 1 || !ru_str_i64(ru_str_n(item.p, colon), &feature)) {
        return rui_place_fail(at, item, "feature:value", err);
    }
    if (!rui_number(item.p + colon + 1, item.n - colon - 1, &v) || !isfinite((float)v)) {
        return rui_place_fail(at, item, "a finite number after the colon", err);
    }
    if (feature < 0 || feature > RUI_SPARSE_NUMBER_MAX) {
        return rui_place_fail(at, item, "a feature number from 0 to 2^28", err);
    }
    if (feature <= *last) {
        return rui_place_fail(at, item, "a larger feature number than the one before it", err);
    }
    *last = feature;
    s->least = feature < s->least ? feature : s->least;
    s->most = feature > s->most ? feature : s->most;
    return rui_sparse_entry(s->f, (uint32_t)feature, (float)v, err);
}

static ru_status libsvm_line(void *self, rui_place at, ru_str line, ru_err *err)
{
    libsvm *s = self;
    const char *hash = line.n > 0 ? memchr(line.p, '#', (size_t)line.n) : NULL;
    line.n = hash != NULL ? hash - line.p : line.n;
    ru_str word;
    if (!rui_word_next(&line, &word)) {
        return RU_OK;
    }
    double v;
    if (!rui_number(word.p, word.n, &v) || !isfinite((float)v)) {
        return rui_place_fail(at, word, "a label (a finite number)", err);
    }
    float *label = rui_buf_push(&s->f->label, sizeof *label);
    if (label == NULL) {
        return rui_no_memory(err, at.path, s->f->label.n);
    }
    *label = (float)v;
    for (int64_t last = -1; rui_word_next(&line, &word);) {
        RU_TRY(add_item(s, at, word, &last, err));
    }
    return rui_sparse_row(s->f, err);
}

ru_status rui_sparse_libsvm(ru_sparse_file *f, const ru_sparse_options *opt, ru_err *err)
{
    libsvm s = {.f = f, .least = INT64_MAX, .most = -1};
    for (uint32_t k = 0; k < opt->n_paths; k++) {
        RU_TRY(rui_lines(opt->paths[k], libsvm_line, &s, err));
    }
    if (f->numbers == RU_NUMBERS_FOUND) {
        f->numbers = s.least == 0 ? RU_NUMBERS_FROM_0 : RU_NUMBERS_FROM_1;
    }
    if (f->numbers == RU_NUMBERS_FROM_1 && s.least == 0) {
        return RU_FAIL(err, RU_E_DATA, "%s: feature 0 is out of range; expected numbers from 1",
                       opt->paths[0]);
    }
    int64_t n = f->value.n / (int64_t)sizeof(float);
    if (n == 0 && opt->cols == 0) {
        return RU_FAIL(err, RU_E_DATA, "%s: no line has a feature", opt->paths[0]);
    }
    uint32_t *col = f->col.p;
    for (int64_t i = 0; i < n && f->numbers == RU_NUMBERS_FROM_1; i++) {
        col[i]--;
    }
    return rui_sparse_extent(opt->paths[0], "feature", f->numbers, s.most, opt->cols, n, &f->cols,
                             err);
}

/* -- plain text -------------------------------------------------------------------------------- */

typedef struct text {
    ru_sparse_file *f;
    bool add;      /* words make the vocabulary */
    rui_buf words; /* uint32_t each: of the line at hand */
} text;

/* Letters, digits and all bytes of other alphabets. */
static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (unsigned char)c >= 0x80;
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static ru_status put_word(text *s, const char *p, int64_t n, ru_err *err)
{
    char lower[RUI_SPARSE_WORD_MAX];
    n = n > RUI_SPARSE_WORD_MAX ? RUI_SPARSE_WORD_MAX : n;
    for (int64_t i = 0; i < n; i++) {
        lower[i] = (char)(p[i] >= 'A' && p[i] <= 'Z' ? p[i] + ('a' - 'A') : p[i]);
    }
    int64_t number;
    RU_TRY(rui_sparse_word(s->f, ru_str_n(lower, n), s->add, &number, err));
    if (number < 0) {
        return RU_OK;
    }
    uint32_t *at = rui_buf_push(&s->words, sizeof *at);
    if (at == NULL) {
        return rui_no_memory(err, "words", s->words.n);
    }
    *at = (uint32_t)number;
    return RU_OK;
}

/* A document: every line, blank ones too, so that row numbers are line numbers. */
static ru_status text_line(void *self, rui_place at, ru_str line, ru_err *err)
{
    (void)at;
    text *s = self;
    s->words.n = 0;
    for (int64_t i = 0; i < line.n;) {
        int64_t from = i;
        while (i < line.n && is_word(line.p[i])) {
            i++;
        }
        if (i - from >= 2) { /* single letters say nothing */
            RU_TRY(put_word(s, line.p + from, i - from, err));
        }
        i += i == from;
    }
    uint32_t *words = s->words.p;
    int64_t n = s->words.n / (int64_t)sizeof *words;
    if (n > 0) {
        qsort(words, (size_t)n, sizeof *words, by_number);
    }
    for (int64_t i = 0; i < n;) {
        int64_t same = i;
        while (same < n && words[same] == words[i]) {
            same++;
        }
        RU_TRY(rui_sparse_entry(s->f, words[i], (float)(same - i), err));
        i = same;
    }
    return rui_sparse_row(s->f, err);
}

ru_status rui_sparse_text(ru_sparse_file *f, const ru_sparse_options *opt, ru_err *err)
{
    text s = {.f = f, .add = opt->words == NULL};
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < opt->n_paths && st == RU_OK; k++) {
        st = rui_lines(opt->paths[k], text_line, &s, err);
    }
    rui_buf_free(&s.words);
    f->numbers = RU_NUMBERS_FROM_0;
    f->cols = f->words.n;
    return st != RU_OK    ? st
           : f->cols == 0 ? RU_FAIL(err, RU_E_DATA, "%s: the text has no word", opt->paths[0])
                          : RU_OK;
}

/* -- dense ------------------------------------------------------------------------------------- */

static float label_of(const ru_field *y, const void *p)
{
    int64_t number;
    float v;
    if (y->type.dtype == RU_I64) {
        memcpy(&number, p, sizeof number);
        return (float)number;
    }
    memcpy(&v, p, sizeof v);
    return v;
}

static ru_status put_dense(ru_sparse_file *f, const ru_dataset *d, int64_t index, ru_err *err)
{
    const ru_field *fields;
    uint32_t n = ru_dataset_fields(d, &fields);
    union {
        int64_t number;
        float v;
    } y = {0};
    void *x = rui_buf_push(&f->value, f->cols * (int64_t)sizeof(float));
    void *into[RU_FIELDS_MAX] = {x, &y};
    if (x == NULL) {
        return rui_no_memory(err, "rows", f->value.n);
    }
    RU_TRY(ru_dataset_read(d, index, into, err));
    float *label = n > 1 ? rui_buf_push(&f->label, sizeof *label) : NULL;
    if (n > 1 && label == NULL) {
        return rui_no_memory(err, "labels", f->label.n);
    }
    if (n > 1) {
        *label = label_of(&fields[1], &y);
    }
    return rui_sparse_row(f, err);
}

static ru_status take_dense(ru_sparse_file *f, const ru_sparse_options *opt, const ru_dataset *d,
                            ru_err *err)
{
    const ru_field *fields;
    uint32_t n = ru_dataset_fields(d, &fields);
    bool scalar = n < 2 || ru_type_bytes(&fields[1].type) <= (int64_t)sizeof(int64_t);
    if (n > 2 || fields[0].type.dtype != RU_F32 || !scalar) {
        return RU_FAIL(err, RU_E_DATA, "%s: expected rows of numbers with at most one label each",
                       opt->paths[0]);
    }
    f->dense = true;
    f->numbers = RU_NUMBERS_FROM_0;
    f->cols = ru_type_bytes(&fields[0].type) / (int64_t)sizeof(float);
    if (opt->cols > 0 && f->cols != opt->cols) {
        return RU_FAIL(err, RU_E_DATA, "%s: rows have %lld numbers, expected %lld", opt->paths[0],
                       (long long)f->cols, (long long)opt->cols);
    }
    for (int64_t i = 0; i < ru_dataset_count(d); i++) {
        RU_TRY(put_dense(f, d, i, err));
    }
    return RU_OK;
}

ru_status rui_sparse_dense(ru_sparse_file *f, const ru_sparse_options *opt, ru_err *err)
{
    bool csv = strcmp(f->format, "csv") == 0;
    ru_data_options data = {
        .format = f->format,
        .paths = opt->paths,
        .n_paths = opt->n_paths,
        .label = opt->label != NULL || !csv || opt->labels ? opt->label : "none",
        .regression = csv,
    };
    ru_dataset *d = NULL;
    RU_TRY(ru_dataset_open(&data, &d, err));
    ru_status st = take_dense(f, opt, d, err);
    ru_dataset_close(d);
    return st;
}
