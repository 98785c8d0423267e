/* Formats with an entry a line, in any order: ratings (user, item, value) and the bag of words of
 * UCI (document, word, count). Two passes of a counting sort put them into rows.
 *
 * Source: uci-bow (three numbers D, W, N, then N lines). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/format/sparse_impl.h"

typedef struct triple {
    uint32_t row, col;
    float value;
} triple;

typedef struct triples {
    rui_buf at;    /* triple each */
    int64_t least; /* of all numbers */
    int64_t row_max, col_max;
    uint32_t columns; /* ratings: of the first line; 0: no line yet */
    char separator;   /* ratings: ' ' stands for blanks and tabs */
    int64_t head[3];  /* bag of words: documents, words, entries */
    uint32_t heads;   /* how many were read */
} triples;

static ru_status add_triple(triples *t, rui_place at, const ru_str words[3],
                            const char *const what[2], bool counts, ru_err *err)
{
    int64_t row, col;
    double v;
    if (!ru_str_i64(words[0], &row) || row < 0 || row > RUI_SPARSE_NUMBER_MAX) {
        return rui_place_fail(at, words[0], what[0], err);
    }
    if (!ru_str_i64(words[1], &col) || col < 0 || col > RUI_SPARSE_NUMBER_MAX) {
        return rui_place_fail(at, words[1], what[1], err);
    }
    if (!rui_number(words[2].p, words[2].n, &v) || !isfinite((float)v) ||
        (counts && (v < 0 || v != floor(v) || v > 16777216))) {
        return rui_place_fail(at, words[2], counts ? "a count (a whole number)" : "a finite value",
                              err);
    }
    triple *e = rui_buf_push(&t->at, sizeof *e);
    if (e == NULL) {
        return rui_no_memory(err, at.path, t->at.n);
    }
    *e = (triple){(uint32_t)row, (uint32_t)col, (float)v};
    int64_t low = row < col ? row : col;
    t->least = low < t->least ? low : t->least;
    t->row_max = row > t->row_max ? row : t->row_max;
    t->col_max = col > t->col_max ? col : t->col_max;
    return RU_OK;
}

static int by_col(const void *a, const void *b)
{
    const triple *x = a, *y = b;
    int c = (x->col > y->col) - (x->col < y->col);
    return c != 0 ? c : (x->value > y->value) - (x->value < y->value);
}

/* Into rows; equal columns of a row, which an unsorted file may have, by value. */
static ru_status into_rows(triples *t, ru_sparse_file *f, uint32_t base, ru_err *err)
{
    int64_t n = t->at.n / (int64_t)sizeof(triple), rows = f->rows;
    triple *from = t->at.p, *to = malloc((size_t)(n > 0 ? n : 1) * sizeof *to);
    f->begin.n = 0;
    int64_t *begin = rui_buf_push(&f->begin, (rows + 1) * (int64_t)sizeof *begin);
    if (to == NULL || begin == NULL) {
        free(to);
        return rui_no_memory(err, "rows", n * (int64_t)sizeof *to + rows * 8);
    }
    memset(begin, 0, (size_t)(rows + 1) * sizeof *begin);
    for (int64_t i = 0; i < n; i++) {
        begin[from[i].row - base + 1]++;
    }
    for (int64_t r = 0; r < rows; r++) {
        begin[r + 1] += begin[r];
    }
    for (int64_t i = 0; i < n; i++) { /* begin[r] is the next free place of row r ... */
        to[begin[from[i].row - base]++] = from[i];
    }
    memmove(begin + 1, begin, (size_t)rows * sizeof *begin); /* ... and afterwards its end */
    begin[0] = 0;
    ru_status st = RU_OK;
    for (int64_t r = 0; r < rows; r++) {
        bool sorted = true;
        for (int64_t i = begin[r] + 1; i < begin[r + 1]; i++) {
            sorted = sorted && to[i - 1].col <= to[i].col;
        }
        if (!sorted) {
            qsort(to + begin[r], (size_t)(begin[r + 1] - begin[r]), sizeof *to, by_col);
        }
    }
    for (int64_t i = 0; i < n && st == RU_OK; i++) {
        st = rui_sparse_entry(f, to[i].col - base, to[i].value, err);
    }
    free(to);
    return st;
}

/* Where the lines are now: the first entry of the user with that item. */
static ru_status keep_lines(const triples *t, ru_sparse_file *f, uint32_t base, ru_err *err)
{
    const triple *from = t->at.p;
    const int64_t *begin = f->begin.p;
    const uint32_t *col = f->col.p;
    int64_t n = t->at.n / (int64_t)sizeof *from;
    rui_sparse_at *at = rui_buf_push(&f->lines, n * (int64_t)sizeof *at);
    if (at == NULL) {
        return rui_no_memory(err, "lines", n * (int64_t)sizeof *at);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t row = from[i].row - base, lo = begin[row], hi = begin[row + 1] - 1;
        uint32_t want = from[i].col - base;
        while (lo < hi) { /* the first that is not less */
            int64_t mid = lo + (hi - lo) / 2;
            lo = col[mid] < want ? mid + 1 : lo;
            hi = col[mid] < want ? hi : mid;
        }
        at[i] = (rui_sparse_at){row, lo};
    }
    return RU_OK;
}

/* -- ratings ----------------------------------------------------------------------------------- */

static char separator_of(ru_str line)
{
    return ru_str_find(line, ",") >= 0    ? ','
           : ru_str_find(line, "::") >= 0 ? ':'
           : ru_str_find(line, ";") >= 0  ? ';'
                                          : ' ';
}

/* Cut at the separator of the set; returns how many, up to 8. */
static uint32_t cut(const triples *t, ru_str line, ru_str words[8])
{
    uint32_t n = 0;
    if (t->separator == ' ') {
        while (n < 8 && rui_word_next(&line, &words[n])) {
            n++;
        }
        return n;
    }
    line = ru_str_trim(line);
    for (ru_str word; n < 8 && ru_str_next(&line, t->separator, &word);) {
        if (t->separator != ':' || word.n > 0) { /* user::item::value */
            words[n++] = ru_str_trim(word);
        }
    }
    return n;
}

static ru_status rating_line(void *self, rui_place at, ru_str line, ru_err *err)
{
    static const char *const what[2] = {"a user (a whole number from 0 to 2^28)",
                                        "an item (a whole number from 0 to 2^28)"};
    triples *t = self;
    ru_str words[8];
    if (ru_str_trim(line).n == 0) {
        return RU_OK;
    }
    t->separator = t->columns == 0 ? separator_of(line) : t->separator;
    uint32_t n = cut(t, line, words);
    int64_t user;
    double v;
    if (at.line == 1 && t->columns == 0 && n >= 3 && !ru_str_i64(words[0], &user) &&
        !rui_number(words[2].p, words[2].n, &v)) {
        t->columns = n; /* names */
        return RU_OK;
    }
    t->columns = t->columns == 0 ? n : t->columns;
    if (n < 3 || n != t->columns) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s:%lld: the line has %u columns, expected user, item and value%s", at.path,
                       (long long)at.line, n,
                       t->columns > 3 ? " and as many more as the lines before it" : "");
    }
    return add_triple(t, at, words, what, false, err);
}

ru_status rui_sparse_ratings(ru_sparse_file *f, const ru_sparse_options *opt, ru_err *err)
{
    triples t = {.least = INT64_MAX, .row_max = -1, .col_max = -1};
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < opt->n_paths && st == RU_OK; k++) {
        t.columns = 0;
        st = rui_lines(opt->paths[k], rating_line, &t, err);
    }
    int64_t n = t.at.n / (int64_t)sizeof(triple);
    if (st == RU_OK && n == 0) {
        st = RU_FAIL(err, RU_E_DATA, "%s: the file has no ratings", opt->paths[0]);
    }
    if (f->numbers == RU_NUMBERS_FOUND) {
        f->numbers = t.least == 0 ? RU_NUMBERS_FROM_0 : RU_NUMBERS_FROM_1;
    }
    if (st == RU_OK && f->numbers == RU_NUMBERS_FROM_1 && t.least == 0) {
        st = RU_FAIL(err, RU_E_DATA, "%s: number 0 is out of range; expected numbers from 1",
                     opt->paths[0]);
    }
    if (st == RU_OK) {
        st = rui_sparse_extent(opt->paths[0], "user", f->numbers, t.row_max, opt->rows, n, &f->rows,
                               err);
    }
    if (st == RU_OK) {
        st = rui_sparse_extent(opt->paths[0], "item", f->numbers, t.col_max, opt->cols, n, &f->cols,
                               err);
    }
    if (st == RU_OK) {
        st = into_rows(&t, f, f->numbers == RU_NUMBERS_FROM_1, err);
    }
    if (st == RU_OK && opt->lines) {
        st = keep_lines(&t, f, f->numbers == RU_NUMBERS_FROM_1, err);
    }
    rui_buf_free(&t.at);
    return st;
}

/* -- bag of words ------------------------------------------------------------------------------ */

static ru_status bow_line(void *self, rui_place at, ru_str line, ru_err *err)
{
    static const char *const what[2] = {"a document (a whole number from 1 on)",
                                        "a word (a whole number from 1 on)"};
    triples *t = self;
    ru_str words[4], rest = line;
    uint32_t n = 0;
    while (n < 4 && rui_word_next(&rest, &words[n])) {
        n++;
    }
    if (n == 0) {
        return RU_OK;
    }
    if (t->heads < 3) {
        if (n != 1 || !ru_str_i64(words[0], &t->head[t->heads]) || t->head[t->heads] < 1 ||
            t->head[t->heads] > RUI_SPARSE_NUMBER_MAX * (t->heads == 2 ? 64ll : 1ll)) {
            return rui_place_fail(
                at, ru_str_trim(line),
                "the number of documents, then of words, then of entries, each on "
                "a line of its own",
                err);
        }
        t->heads++;
        return RU_OK;
    }
    if (n != 3) {
        return rui_place_fail(at, ru_str_trim(line), "document, word and count", err);
    }
    RU_TRY(add_triple(t, at, words, what, true, err));
    const triple *e = (const triple *)(const void *)((const uint8_t *)t->at.p + t->at.n) - 1;
    if (e->row < 1 || e->row > t->head[0]) {
        return rui_place_fail(at, words[0], "a document within the number of documents", err);
    }
    if (e->col < 1 || e->col > t->head[1]) {
        return rui_place_fail(at, words[1], "a word within the number of words", err);
    }
    return RU_OK;
}

static ru_status vocabulary_line(void *self, rui_place at, ru_str line, ru_err *err)
{
    ru_sparse_file *f = self;
    ru_str word = ru_str_trim(line);
    int64_t number;
    if (word.n == 0) {
        return RU_OK;
    }
    RU_TRY(rui_sparse_word(f, word, true, &number, err));
    if (number != at.line - 1) {
        return rui_place_fail(at, word, "a word that is not in the vocabulary yet", err);
    }
    return RU_OK;
}

static ru_status bow_file(ru_sparse_file *f, const ru_sparse_options *opt, triples *t, ru_err *err)
{
    RU_TRY(rui_lines(opt->paths[0], bow_line, t, err));
    int64_t n = t->at.n / (int64_t)sizeof(triple);
    if (t->heads < 3 || n != t->head[2]) {
        return RU_FAIL(err, RU_E_DATA, "%s: the file ends after %lld of %lld entries",
                       opt->paths[0], (long long)n, (long long)t->head[2]);
    }
    if (opt->n_paths > 1 && opt->words == NULL) {
        RU_TRY(rui_lines(opt->paths[1], vocabulary_line, f, err));
        if (f->words.n != t->head[1]) {
            return RU_FAIL(err, RU_E_DATA, "%s has %u words, but %s says %lld", opt->paths[1],
                           f->words.n, opt->paths[0], (long long)t->head[1]);
        }
    }
    f->numbers = RU_NUMBERS_FROM_1;
    RU_TRY(
        rui_sparse_extent(opt->paths[0], "document", f->numbers, t->head[0], 0, n, &f->rows, err));
    RU_TRY(rui_sparse_extent(opt->paths[0], "word", f->numbers, t->head[1], opt->cols, n, &f->cols,
                             err));
    return into_rows(t, f, 1, err);
}

ru_status rui_sparse_bow(ru_sparse_file *f, const ru_sparse_options *opt, ru_err *err)
{
    triples t = {.least = INT64_MAX, .row_max = -1, .col_max = -1};
    ru_status st = bow_file(f, opt, &t, err);
    rui_buf_free(&t.at);
    return st;
}
