/* Columns of a table: what a run must know of those of its training data to read other files.
 *
 * Files name their columns in their first line, so columns are found by name wherever they stand. A
 * file without names has the columns in the order of the training data.
 *
 * Thread: any, no shared state. */
#ifndef RU_DATA_COLUMNS_H
#define RU_DATA_COLUMNS_H

#include "base/arena.h"
#include "base/str.h"

RU_API_BEGIN

typedef struct ru_column {
    const char *name; /* of the first line; else its number there, from 1 */
    int64_t place;    /* in a line of the training data, from 0 */
} ru_column;

typedef struct ru_columns {
    const ru_column *at; /* [n] those that are inputs, in the order of the inputs */
    uint32_t n;          /* 0: not known */
    bool named;          /* by the training data */
    int64_t width;       /* cells in a line of the training data */
    const char *label;   /* name of the column of labels */
    int64_t label_place; /* -1: there is none */
} ru_columns;

/* A copy in `arena`. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_columns_copy(const ru_columns *c, ru_arena *arena, ru_columns *out,
                                      ru_err *err);

/* Lines of a text that comes bit by bit, such as stdin: cells separated by commas, semicolons or
 * tabs. Labels are not needed. */
typedef struct ru_rows ru_rows;
RU_MUST_USE ru_status ru_rows_open(const ru_columns *c, const char *path, ru_arena *arena,
                                   ru_rows **out, ru_err *err);
/* The inputs of the next line into x; *row false: it is empty, or names the columns. Errors:
 * RU_E_DATA with path and line. */
RU_MUST_USE ru_status ru_rows_line(ru_rows *r, ru_str line, float *x, bool *row, ru_err *err);
void ru_rows_close(ru_rows *r); /* NULL is fine */

RU_API_END

#endif
