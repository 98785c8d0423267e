/* Columns of a table: what a run must know of those of its training data to read other files.
 *
 * Files name their columns in their first line, so columns are found by name wherever they stand. A
 * file without names has the columns in the order of the training data.
 *
 * A job may ask for prepared inputs (ru_columns_options): columns left out, texts as one input for
 * each category, means for missing values, numbers with mean 0 and standard deviation 1. What that
 * needs is learned from the training data and kept here, so every other file and line is prepared
 * with the same values.
 *
 * Thread: any, no shared state. */
#ifndef RU_DATA_COLUMNS_H
#define RU_DATA_COLUMNS_H

#include "base/arena.h"
#include "base/conf.h"
#include "base/str.h"

/* What becomes of a cell without a value. */
typedef enum ru_missing {
    RU_MISSING_ERROR,
    RU_MISSING_MEAN, /* the mean of its column; of a column of texts all inputs are 0 */
    RU_MISSING_DROP, /* its row is left out, where labels are read; else all its inputs are NaN */
} ru_missing;

/* How inputs are prepared. Names are those of the first line, or numbers from 1. */
typedef struct ru_columns_options {
    ru_conf_texts ignore;      /* these are no inputs */
    ru_conf_texts categorical; /* these hold categories; "auto": all with a text; "none"; empty:
                                  auto */
    uint32_t missing;          /* ru_missing */
    uint32_t normalize;        /* 0 auto: yes, 1 yes, 2 no */
} ru_columns_options;

typedef struct ru_column {
    const char *name;         /* of the first line; else its number there, from 1 */
    int64_t place;            /* in a line of the training data, from 0 */
    ru_conf_texts categories; /* sorted; an input each: 1 where the cell is it, else 0. n 0: the
                                 column holds numbers */
    double mean, std;         /* of its numbers in the training data; std 0: all are equal */
} ru_column;

typedef struct ru_columns {
    const ru_column *at;   /* [n] those that are inputs, in the order of the inputs */
    uint32_t n;            /* 0: not known */
    bool named;            /* by the training data */
    int64_t width;         /* cells in a line of the training data */
    const char *label;     /* name of the column of labels */
    int64_t label_place;   /* -1: there is none */
    ru_conf_texts ignored; /* names of columns that are no inputs */
    bool normalize;        /* numbers become (number - mean) / std, and 0 where std is 0 */
    uint32_t missing;      /* ru_missing */
} ru_columns;

/* Inputs of a row: one for each column of numbers, and for each category. */
int64_t ru_columns_inputs(const ru_columns *c);

/* A copy in `arena`. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_columns_copy(const ru_columns *c, ru_arena *arena, ru_columns *out,
                                      ru_err *err);

/* Numbers of a row whose categories are inputs already: they are normalised in place, as those of
 * files are. x: [ru_columns_inputs]; NaN: no value. */
void ru_columns_normalize(const ru_columns *c, float *x);

/* Lines of a text that comes bit by bit, such as stdin: cells separated by commas, semicolons or
 * tabs. Labels are not needed. */
typedef struct ru_rows ru_rows;
RU_MUST_USE ru_status ru_rows_open(const ru_columns *c, const char *path, ru_arena *arena,
                                   ru_rows **out, ru_err *err);
/* The inputs of the next line into x; *row false: it is empty, or names the columns. Errors:
 * RU_E_DATA with path and line. */
RU_MUST_USE ru_status ru_rows_line(ru_rows *r, ru_str line, float *x, bool *row, ru_err *err);
void ru_rows_close(ru_rows *r); /* NULL is fine */

#endif
