/* Inside of data/format/sparse: an open set, and the lines of its files.
 *
 * Thread: one while a set opens; then any. */
#ifndef RU_DATA_SPARSE_IMPL_H
#define RU_DATA_SPARSE_IMPL_H

#include "base/map.h"
#include "data/format/sparse.h"
#include "data/format/table.h"

enum {
    RUI_SPARSE_NUMBER_MAX = 1 << 28, /* largest number of a row or column */
    RUI_SPARSE_WORD_MAX = 64,        /* bytes of a word; longer ones are cut */
};

struct ru_sparse_file {
    const char *format;
    bool dense;
    int64_t rows, cols, classes;
    uint32_t numbers; /* ru_sparse_numbers */
    rui_buf begin;    /* int64_t [rows + 1] */
    rui_buf col;      /* uint32_t [entries] */
    rui_buf value;    /* float [entries] */
    rui_buf label;    /* float [rows] or empty */
    rui_buf lines;    /* rui_sparse_at of each line of ratings, or empty */
    ru_map words;     /* word -> column */
    rui_buf names;    /* const char * [words.n]: the keys of `words` */
};

typedef struct rui_sparse_at {
    int64_t row, entry;
} rui_sparse_at;

typedef struct rui_place {
    const char *path;
    int64_t line;
} rui_place;

/* "path:line: found 'item', expected ...". Returns RU_E_DATA. */
ru_status rui_place_fail(rui_place at, ru_str item, const char *expected, ru_err *err);

/* The next word of `rest`, cut at blanks, tabs and carriage returns; false at the end. */
bool rui_word_next(ru_str *rest, ru_str *word);

/* Call `line` for each line of a file (without its end); gzip is unpacked. */
typedef ru_status (*rui_line_fn)(void *self, rui_place at, ru_str line, ru_err *err);
RU_MUST_USE ru_status rui_lines(const char *path, rui_line_fn line, void *self, ru_err *err);

RU_MUST_USE ru_status rui_sparse_entry(ru_sparse_file *f, uint32_t col, float value, ru_err *err);
/* The row that the entries since the last call make. */
RU_MUST_USE ru_status rui_sparse_row(ru_sparse_file *f, ru_err *err);
/* Number of a word; -1: not in a vocabulary that was given. Errors: RU_E_MEM. */
RU_MUST_USE ru_status rui_sparse_word(ru_sparse_file *f, ru_str word, bool add, int64_t *number,
                                      ru_err *err);
/* What the numbers of rows or columns begin with, and how many there are: `least` and `most` were
 * found (least > most: none), `asked` is the option. */
RU_MUST_USE ru_status rui_sparse_extent(const char *path, const char *what, uint32_t numbers,
                                        int64_t most, int64_t asked, int64_t entries, int64_t *n,
                                        ru_err *err);

/* Formats: fill f, with rows in `begin`. */
RU_MUST_USE ru_status rui_sparse_libsvm(ru_sparse_file *f, const ru_sparse_options *opt,
                                        ru_err *err);
RU_MUST_USE ru_status rui_sparse_text(ru_sparse_file *f, const ru_sparse_options *opt, ru_err *err);
RU_MUST_USE ru_status rui_sparse_ratings(ru_sparse_file *f, const ru_sparse_options *opt,
                                         ru_err *err);
RU_MUST_USE ru_status rui_sparse_bow(ru_sparse_file *f, const ru_sparse_options *opt, ru_err *err);
RU_MUST_USE ru_status rui_sparse_dense(ru_sparse_file *f, const ru_sparse_options *opt,
                                       ru_err *err);

#endif
