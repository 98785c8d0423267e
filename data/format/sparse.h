/* Sparse rows: examples with few features, ratings of users, words of documents. One form for all
 * of them, and no row is ever made dense.
 *
 *   libsvm         example x feature, with labels
 *   ratings        user x item: text or CSV lines of user, item, value
 *   bag of words   document x word, with counts: the three-number format of UCI, or plain text with
 *                  a vocabulary of its own
 *   csv, idx       dense rows (col is NULL)
 *
 * Opening reads the files once and keeps their entries, 8 bytes each: files name users and
 * documents in any order. Rows of libsvm, csv, idx and text keep the order of the file; ratings and
 * the three-number format have rows by their number. Numbers of ratings begin at 0 or 1 (both the
 * users' and the items': at 1 when no 0 occurs), those of libsvm likewise.
 *
 * Thread: an open file may be read by many threads. */
#ifndef RU_DATA_SPARSE_H
#define RU_DATA_SPARSE_H

#include "base/status.h"

RU_API_BEGIN

/* Rows first .. first + rows - 1 of a data set. Owner: the open file; view until its close. */
typedef struct ru_sparse {
    int64_t rows, first;
    int64_t cols;         /* of the whole set: col < cols */
    const int64_t *begin; /* [rows + 1] entries of row r: begin[r] .. begin[r + 1] - 1; begin[0] may
                             be more than 0 */
    const uint32_t *col;  /* [begin[rows]] ascending within a row; NULL: dense, cols values a row,
                             begin[r] = begin[0] + r * cols */
    const float *value;   /* [begin[rows]], all finite */
    const float *label;   /* [rows]; NULL: none */
} ru_sparse;

typedef enum ru_sparse_numbers {
    RU_NUMBERS_FOUND, /* from 1 when no 0 occurs */
    RU_NUMBERS_FROM_0,
    RU_NUMBERS_FROM_1,
} ru_sparse_numbers;

typedef struct ru_sparse_options {
    const char *format; /* libsvm ratings bow text csv idx; NULL: found by the content */
    const char *const *paths;
    uint32_t n_paths;
    int64_t rows, cols; /* so many (a test set has its training set's); 0: those found */
    uint32_t numbers;   /* ru_sparse_numbers; a test set has its training set's */
    const char *words;  /* text: vocabulary, a word a line, in place of one of its own; view */
    const char *label;  /* csv: column name or number; NULL: last, if the app wants labels */
    bool lines;         /* ratings: remember the order of the lines */
    bool labels;        /* the app wants labels: a format or file without them is refused */
} ru_sparse_options;

typedef struct ru_sparse_file ru_sparse_file;

/* Errors: RU_E_MISSING; RU_E_DATA with file, line, what was expected (ragged rows, ids that are
 * negative, whole numbers expected, values that are not finite, an empty file). */
RU_MUST_USE ru_status ru_sparse_open(const ru_sparse_options *opt, ru_sparse_file **out,
                                     ru_err *err);
void ru_sparse_close(ru_sparse_file *f); /* NULL is fine */

const char *ru_sparse_format(const ru_sparse_file *f);
ru_sparse_numbers ru_sparse_numbered(const ru_sparse_file *f); /* never FOUND */
int64_t ru_sparse_rows(const ru_sparse_file *f);
int64_t ru_sparse_cols(const ru_sparse_file *f);
int64_t ru_sparse_entries(const ru_sparse_file *f);

/* Rows first .. first + rows - 1, which must be there. Cost: O(1). */
void ru_sparse_part(const ru_sparse_file *f, int64_t first, int64_t rows, ru_sparse *out);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
int64_t ru_sparse_classes(
    const ru_sparse_file *f); /* labels 0 .. classes - 1, or -1 and 1: 2; 0: numbers, or none */
const char *ru_sparse_col_name(const ru_sparse_file *f, int64_t col); /* a word; NULL: none */
/* Rows 0 .. parts - 1 cut so that entries are balanced: part p is first[p] .. first[p + 1] - 1.
 * Pure: every process finds the same cut. Shape: first [parts + 1]. */
void ru_sparse_cut(const ru_sparse_file *f, uint32_t parts, int64_t *first);
/* Lines of a file of ratings whose order was remembered; 0: none were. */
int64_t ru_sparse_lines(const ru_sparse_file *f);
/* User and item of line `line`, from 0, as a row of one entry (the first with both). View until
 * close, begin until the caller's `begin` goes. */
void ru_sparse_line(const ru_sparse_file *f, int64_t line, int64_t begin[2], ru_sparse *out);

#endif
