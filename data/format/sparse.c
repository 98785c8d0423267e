/* Sparse sets: what all formats share. The formats stand in sparse_rows.c (libsvm, text, dense) and
 * sparse_triples.c (ratings, bag of words). */
#include "data/format/sparse.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/format/sparse_impl.h"

enum { PIPE_BYTES = 1 << 16 };

ru_status rui_place_fail(rui_place at, ru_str item, const char *expected, ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA, "%s:%lld: found '%.*s', expected %s", at.path,
                   (long long)at.line, item.n > 60 ? 60 : (int)item.n, item.p, expected);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

bool rui_word_next(ru_str *rest, ru_str *word)
{
    int64_t from = 0, n = 0;
    while (from < rest->n && is_blank(rest->p[from])) {
        from++;
    }
    while (from + n < rest->n && !is_blank(rest->p[from + n])) {
        n++;
    }
    *word = ru_str_n(rest->p + from, n);
    *rest = ru_str_from(*rest, from + n);
    return n > 0;
}

/* All bytes of a pipe. */
static ru_status read_pipe(const char *path, rui_buf *into, ru_err *err)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "cannot open %s: %s", path, strerror(errno));
    }
    size_t got = 0;
    ru_status st = RU_OK;
    do {
        int64_t n = into->n;
        char *at = rui_buf_push(into, PIPE_BYTES);
        if (at == NULL) {
            st = rui_no_memory(err, path, n);
            break;
        }
        got = fread(at, 1, PIPE_BYTES, f);
        into->n = n + (int64_t)got;
    } while (got == PIPE_BYTES);
    if (st == RU_OK && ferror(f) != 0) {
        st = RU_FAIL(err, RU_E_IO, "cannot read %s: %s", path, strerror(errno));
    }
    (void)fclose(f);
    return st;
}

ru_status rui_lines(const char *path, rui_line_fn line, void *self, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    rui_source file = {.file = {.fd = -1}};
    ru_objects *objects = NULL;
    rui_buf pipe = {0};
    bool regular = !ru_path_exists(path) || ru_path_is_file(path);
    ru_status st = regular ? rui_source_open(&arena, &objects, path, INT64_MAX, false, &file, err)
                           : read_pipe(path, &pipe, err);
    const char *p = regular ? (const char *)file.bytes : pipe.p;
    const char *end = st != RU_OK || p == NULL ? p : p + (regular ? file.size_bytes : pipe.n);
    for (rui_place at = {path, 1}; st == RU_OK && p < end; at.line++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop != NULL ? stop : end;
        st = line(self, at, ru_str_n(p, stop - p), err);
        p = stop + (stop < end);
    }
    rui_source_close(&file);
    ru_objects_close(objects);
    rui_buf_free(&pipe);
    ru_arena_fini(&arena);
    return st;
}

ru_status rui_sparse_entry(ru_sparse_file *f, uint32_t col, float value, ru_err *err)
{
    uint32_t *c = rui_buf_push(&f->col, sizeof *c);
    float *v = c != NULL ? rui_buf_push(&f->value, sizeof *v) : NULL;
    if (v == NULL) {
        return rui_no_memory(err, "entries", f->col.n + f->value.n);
    }
    *c = col;
    *v = value;
    return RU_OK;
}

ru_status rui_sparse_row(ru_sparse_file *f, ru_err *err)
{
    int64_t *begin = rui_buf_push(&f->begin, sizeof *begin);
    if (begin == NULL) {
        return rui_no_memory(err, "rows", f->begin.n);
    }
    *begin = f->value.n / (int64_t)sizeof(float);
    return RU_OK;
}

ru_status rui_sparse_word(ru_sparse_file *f, ru_str word, bool add, int64_t *number, ru_err *err)
{
    word.n = word.n > RUI_SPARSE_WORD_MAX ? RUI_SPARSE_WORD_MAX : word.n;
    bool fresh = false;
    uint64_t *at = add ? ru_map_put(&f->words, word, &fresh) : ru_map_get(&f->words, word);
    if (at == NULL && add) {
        return rui_no_memory(err, "words", (int64_t)f->words.n * RUI_SPARSE_WORD_MAX);
    }
    if (fresh) {
        *at = f->words.n - 1;
    }
    *number = at != NULL ? (int64_t)*at : -1;
    return RU_OK;
}

ru_status rui_sparse_extent(const char *path, const char *what, uint32_t numbers, int64_t most,
                            int64_t asked, int64_t entries, int64_t *n, ru_err *err)
{
    int64_t found = most + 1 - (numbers == RU_NUMBERS_FROM_1);
    if (asked > 0 && found > asked) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: %s %lld is out of range; expected %d to %lld (data.%s of the training "
                       "job sets the limit; without it the training data do)",
                       path, what, (long long)most, numbers == RU_NUMBERS_FROM_1,
                       (long long)(asked - (numbers == RU_NUMBERS_FROM_0)),
                       strcmp(what, "user") == 0 ? "rows" : "cols");
    }
    if (asked == 0 && found > (1 << 20) && found / 1000 > entries) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: %s numbers reach %lld, but there are only %lld entries; number them "
                       "without such gaps",
                       path, what, (long long)most, (long long)entries);
    }
    *n = asked > 0 ? asked : found;
    return RU_OK;
}

/* Are the labels class numbers: whole numbers from 0 on, or -1 and 1? They stay as they are. */
static void find_classes(ru_sparse_file *f)
{
    const float *label = f->label.p;
    int64_t n = f->label.n / (int64_t)sizeof(float);
    float least = 0.0f, most = -1.0f;
    bool whole = n > 0, zero = false;
    for (int64_t i = 0; i < n && whole; i++) {
        whole = label[i] >= -1.0f && label[i] < 1048576.0f && label[i] == truncf(label[i]);
        least = fminf(least, label[i]);
        most = fmaxf(most, label[i]);
        zero = zero || label[i] == 0.0f;
    }
    bool signs = least < 0.0f && most <= 1.0f && !zero;
    if (!whole || (least < 0.0f && !signs)) {
        return;
    }
    f->classes = signs ? 2 : (int64_t)most + 1;
}

static ru_status list_words(ru_sparse_file *f, ru_err *err)
{
    for (const ru_map_entry *e = NULL; (e = ru_map_next(&f->words, e)) != NULL;) {
        const char **name = rui_buf_push(&f->names, sizeof *name);
        if (name == NULL) {
            return rui_no_memory(err, "words", f->names.n);
        }
        *name = e->key;
    }
    return RU_OK;
}

static ru_status take_words(ru_sparse_file *f, const char *words, ru_err *err)
{
    ru_str rest = ru_str_c(words), word;
    int64_t number;
    while (ru_str_next(&rest, '\n', &word)) {
        if (word.n > 0) {
            RU_TRY(rui_sparse_word(f, word, true, &number, err));
        }
    }
    return RU_OK;
}

static const struct {
    const char *name;
    ru_status (*read)(ru_sparse_file *f, const ru_sparse_options *opt, ru_err *err);
} formats[] = {
    {"libsvm", rui_sparse_libsvm}, {"ratings", rui_sparse_ratings}, {"bow", rui_sparse_bow},
    {"text", rui_sparse_text},     {"csv", rui_sparse_dense},       {"idx", rui_sparse_dense},
};

static ru_status read_all(ru_sparse_file *f, const ru_sparse_options *opt, ru_err *err)
{
    if (opt->n_paths < 1) {
        return RU_FAIL(err, RU_E_CONFIG, "no data files are named");
    }
    uint32_t k = 0;
    while (k < RU_ARRAY_LEN(formats) && strcmp(formats[k].name, opt->format) != 0) {
        k++;
    }
    if (k == RU_ARRAY_LEN(formats)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "unknown format '%s'; expected libsvm, ratings, bow, text, csv or idx",
                       opt->format);
    }
    f->format = formats[k].name;
    f->numbers = opt->numbers;
    if (opt->words != NULL) {
        RU_TRY(take_words(f, opt->words, err));
    }
    RU_TRY(rui_sparse_row(f, err)); /* begin[0] */
    RU_TRY(formats[k].read(f, opt, err));
    f->rows = f->begin.n / (int64_t)sizeof(int64_t) - 1;
    if (f->rows == 0) {
        return RU_FAIL(err, RU_E_DATA, "%s: the file has no rows", opt->paths[0]);
    }
    if (opt->labels && f->label.n == 0) {
        return RU_FAIL(err, RU_E_DATA, "%s: the data has no labels (format %s)", opt->paths[0],
                       f->format);
    }
    rui_buf_fit(&f->col);
    rui_buf_fit(&f->value);
    find_classes(f);
    return list_words(f, err);
}

ru_status ru_sparse_open(const ru_sparse_options *opt, ru_sparse_file **out, ru_err *err)
{
    ru_sparse_file *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return rui_no_memory(err, "data", (int64_t)sizeof *f);
    }
    ru_status st = read_all(f, opt, err);
    if (st != RU_OK) {
        ru_sparse_close(f);
        return st;
    }
    *out = f;
    return RU_OK;
}

void ru_sparse_close(ru_sparse_file *f)
{
    if (f == NULL) {
        return;
    }
    rui_buf_free(&f->begin);
    rui_buf_free(&f->col);
    rui_buf_free(&f->value);
    rui_buf_free(&f->label);
    rui_buf_free(&f->lines);
    rui_buf_free(&f->names);
    ru_map_fini(&f->words);
    free(f);
}

const char *ru_sparse_format(const ru_sparse_file *f)
{
    return f->format;
}

ru_sparse_numbers ru_sparse_numbered(const ru_sparse_file *f)
{
    return f->numbers == RU_NUMBERS_FROM_1 ? RU_NUMBERS_FROM_1 : RU_NUMBERS_FROM_0;
}

int64_t ru_sparse_rows(const ru_sparse_file *f)
{
    return f->rows;
}

int64_t ru_sparse_cols(const ru_sparse_file *f)
{
    return f->cols;
}

int64_t ru_sparse_entries(const ru_sparse_file *f)
{
    return f->value.n / (int64_t)sizeof(float);
}

int64_t ru_sparse_classes(const ru_sparse_file *f)
{
    return f->classes;
}

const char *ru_sparse_col_name(const ru_sparse_file *f, int64_t col)
{
    const char *const *names = f->names.p;
    return col >= 0 && col < f->names.n / (int64_t)sizeof *names ? names[col] : NULL;
}

void ru_sparse_cut(const ru_sparse_file *f, uint32_t parts, int64_t *first)
{
    const int64_t *begin = f->begin.p;
    int64_t total = begin[f->rows] + f->rows; /* an empty row costs something too */
    RU_CHECK(parts >= 1 && (int64_t)parts <= f->rows);
    int64_t row = 0;
    for (uint32_t p = 0; p < parts; p++) {
        double until = (double)total * p / parts;
        int64_t left = f->rows - (parts - p); /* every part gets at least one row */
        while (row < left && (double)(begin[row] + row) < until) {
            row++;
        }
        row = p > 0 && row <= first[p - 1] ? first[p - 1] + 1 : row;
        first[p] = row;
    }
    first[parts] = f->rows;
}

void ru_sparse_part(const ru_sparse_file *f, int64_t first, int64_t rows, ru_sparse *out)
{
    RU_CHECK(first >= 0 && rows >= 0 && first + rows <= f->rows);
    const float *label = f->label.n > 0 ? f->label.p : NULL;
    *out = (ru_sparse){
        .rows = rows,
        .first = first,
        .cols = f->cols,
        .begin = (const int64_t *)f->begin.p + first,
        .col = f->dense ? NULL : f->col.p,
        .value = f->value.p,
        .label = label != NULL ? label + first : NULL,
    };
}

int64_t ru_sparse_lines(const ru_sparse_file *f)
{
    return f->lines.n / (int64_t)sizeof(rui_sparse_at);
}

void ru_sparse_line(const ru_sparse_file *f, int64_t line, int64_t begin[2], ru_sparse *out)
{
    RU_CHECK(line >= 0 && line < ru_sparse_lines(f));
    const rui_sparse_at *at = (const rui_sparse_at *)f->lines.p + line;
    ru_sparse_part(f, at->row, 1, out);
    begin[0] = at->entry;
    begin[1] = at->entry + 1;
    out->begin = begin;
}
