/* Inside of data/: text of comma-separated files, cell by cell.
 *
 * Cells may stand in double quotes, with "" for a quote; lines end in LF or CRLF; empty lines are
 * skipped. Source: rfc-4180.
 *
 * Thread: one thread at a time. */
#ifndef RU_DATA_CSV_TEXT_H
#define RU_DATA_CSV_TEXT_H

#include "data/columns.h"
#include "data/table.h"

typedef struct rui_csv {
    const char *p, *end;
    const char *path;
    int64_t line;     /* of the next byte, from 1 */
    int64_t row_line; /* first line of the current row */
    char sep;
    bool trailing; /* lines end in a separator: the empty cell behind it is none */
    rui_buf cells; /* ru_str: of the current row; freed by the owner */
} rui_csv;

/* The text of a file as UTF-8 with LF: UTF-16 with a byte order mark and Latin-1 are converted, and
 * CR alone ends a line when there is no LF. In the arena, or the file's own bytes, which change.
 * Errors: RU_E_DATA when it is no text. */
RU_MUST_USE ru_status rui_csv_utf8(const rui_source *file, const char *path, ru_arena *arena,
                                   char **text, int64_t *n, ru_err *err);
/* At the start of `text`: skips a UTF-8 mark and finds the separator. Keeps c->cells. */
void rui_csv_begin(rui_csv *c, const char *path, const char *text, int64_t n);
/* The cells of the next line that is not empty; *found false: there is none. */
RU_MUST_USE ru_status rui_csv_next(rui_csv *c, bool *found, ru_err *err);
/* Does the header, the current row, and the line below it end in a separator? Then drop the cell.
 */
RU_MUST_USE ru_status rui_csv_trailing(rui_csv *c, ru_err *err);
int64_t rui_csv_cells(const rui_csv *c, const ru_str **cells);

/* -- columns (columns.c) ----------------------------------------------------------------------- */

/* Where a file has the columns. */
typedef struct rui_column_map {
    uint32_t *from; /* [columns.n] the cell of each, from 0 */
    int64_t label;  /* that of the label; -1: none */
    int64_t width;  /* cells in a line; 0: not known yet */
} rui_column_map;

bool rui_cell_missing(ru_str cell);
/* Is the current row, the first one of a file, the names of the columns? */
bool rui_columns_header(const ru_columns *c, const rui_csv *row);
/* The map of a file whose current row is its first: its names when `header`. `labels`: they are
 * needed. Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_columns_map(const ru_columns *c, const rui_csv *row, bool header,
                                      bool labels, ru_arena *arena, rui_column_map *map,
                                      ru_err *err);
/* The inputs of the current row. Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_columns_put(const ru_columns *c, const rui_column_map *map,
                                      const rui_csv *row, float *x, ru_err *err);
/* A cell that has no value, or is no number. */
ru_status rui_cell_fail(const rui_csv *c, int64_t column, const char *name, ru_str cell,
                        ru_err *err);

#endif
