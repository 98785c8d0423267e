/* Sparse rows: examples with few features, ratings of users, words of documents. One form for all
 * of them, and no row is ever made dense.
 *
 *   libsvm         example x feature, with labels
 *   ratings        user x item: text or CSV lines of user, item, value
 *   bag of words   document x word, with counts: the three-number format of UCI, or plain text with
 *                  a vocabulary of its own
 *   csv, idx       dense rows (col is NULL)
 *
 * Opening scans the file once and keeps where every block of rows begins; a part is then read
 * without reading the rest. Rows keep the order of the file.
 *
 * Thread: an open file may be read by many threads. */
#ifndef RU_DATA_SPARSE_H
#define RU_DATA_SPARSE_H

#include "base/arena.h"

RU_API_BEGIN

/* Rows first .. first + rows - 1 of a data set. Owner: whoever owns the arena it was read into. */
typedef struct ru_sparse {
    int64_t rows, first;
    int64_t cols;         /* of the whole set: col < cols */
    const int64_t *begin; /* [rows + 1] entries of row r: begin[r] .. begin[r + 1] - 1 */
    const uint32_t *col;  /* [begin[rows]] ascending within a row; NULL: dense, cols values a row */
    const float *value;   /* [begin[rows]], all finite */
    const float *label;   /* [rows]; NULL: none */
} ru_sparse;

typedef struct ru_sparse_options {
    const char *format; /* libsvm ratings bow text csv idx; NULL: found by the content */
    const char *const *paths;
    uint32_t n_paths;
    int64_t rows, cols; /* at least so many (a test set has its training set's); 0: those found */
    const char *label;  /* csv: column name or number; NULL: last, if the app wants labels */
    bool labels;        /* the app wants labels: a format or file without them is refused */
} ru_sparse_options;

typedef struct ru_sparse_file ru_sparse_file;

/* Errors: RU_E_MISSING; RU_E_DATA with file, line, what was expected (ragged rows, ids that are
 * negative, whole numbers expected, values that are not finite, an empty file). */
RU_MUST_USE ru_status ru_sparse_open(const ru_sparse_options *opt, ru_sparse_file **out,
                                     ru_err *err);
void ru_sparse_close(ru_sparse_file *f); /* NULL is fine */

int64_t ru_sparse_rows(const ru_sparse_file *f);
int64_t ru_sparse_cols(const ru_sparse_file *f);
int64_t ru_sparse_entries(const ru_sparse_file *f);
int64_t ru_sparse_classes(const ru_sparse_file *f); /* labels 0 .. classes - 1; 0: numbers, none */
const char *ru_sparse_col_name(const ru_sparse_file *f, int64_t col); /* a word; NULL: none */
/* Rows 0 .. parts - 1 cut so that entries are balanced: part p is first[p] .. first[p + 1] - 1.
 * Pure: every process finds the same cut. Shape: first [parts + 1]. */
void ru_sparse_cut(const ru_sparse_file *f, uint32_t parts, int64_t *first);

/* Read rows first .. first + rows - 1. */
RU_MUST_USE ru_status ru_sparse_read(const ru_sparse_file *f, int64_t first, int64_t rows,
                                     ru_arena *arena, ru_sparse *out, ru_err *err);

RU_API_END

#endif
