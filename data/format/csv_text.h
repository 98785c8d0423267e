/* Inside of data/: text of comma-separated files, cell by cell.
 *
 * Cells may stand in double quotes, with "" for a quote; lines end in LF or CRLF; empty lines are
 * skipped. Source: rfc-4180.
 *
 * Thread: one thread at a time. */
#ifndef RU_DATA_CSV_TEXT_H
#define RU_DATA_CSV_TEXT_H

#include "data/format/columns.h"
#include "data/format/table.h"

typedef struct rui_csv {
    const char *p, *end;
    const char *path;
    int64_t line;     /* of the next byte, from 1 */
    int64_t row_line; /* first line of the current row */
    char sep;
    bool trailing; /* lines end in a separator: the empty cell behind it is none */
    rui_buf cells; /* ru_str: of the current row; freed by the owner */
} rui_csv;

/* Well-formed from end to end? */
bool rui_is_utf8(const uint8_t *p, int64_t n);

/* n bytes as UTF-8 into out [2 n], of UTF-16 without its mark or of Latin-1; how many there are. */
int64_t rui_from_utf16(const uint8_t *p, int64_t n, bool big, char *out);
int64_t rui_from_latin(const uint8_t *p, int64_t n, char *out);
/* Has the text, whose first byte is number `first`, no zero byte? Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_text_check(const uint8_t *p, int64_t n, int64_t first, const char *path,
                                     ru_err *err);

/* The text of a file as UTF-8 with LF: UTF-16 with a byte order mark and Latin-1 are converted, and
 * CR alone ends a line when there is no LF. In the arena, or the file's own bytes, which change.
 * Errors: RU_E_DATA when it is no text. */
RU_MUST_USE ru_status rui_csv_utf8(const rui_source *file, const char *path, ru_arena *arena,
                                   char **text, int64_t *n, ru_err *err);
/* At the start of `text`: skips a UTF-8 mark; `sep` 0: finds the separator. Keeps c->cells. */
void rui_csv_begin(rui_csv *c, const char *path, const char *text, int64_t n, char sep);
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

/* What reading rows tells once. */
typedef struct rui_columns_told {
    bool unknown; /* a text that is no category of the training data */
} rui_columns_told;

bool rui_cell_missing(ru_str cell);
/* Is the current row, the first one of a file, the names of the columns? */
bool rui_columns_header(const ru_columns *c, const rui_csv *row);
/* The map of a file whose current row is its first: its names when `header`. `labels`: they are
 * needed. Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_columns_map(const ru_columns *c, const rui_csv *row, bool header,
                                      bool labels, ru_arena *arena, rui_column_map *map,
                                      ru_err *err);
/* Has the current row as many cells as it must? Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_columns_width(const rui_column_map *map, const rui_csv *row, ru_err *err);
/* Has an input of the current row no value? */
bool rui_columns_missing(const ru_columns *c, const rui_column_map *map, const rui_csv *row);
/* The number of column `k` in the current row. Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_columns_number(const ru_columns *c, const rui_column_map *map,
                                         const rui_csv *row, uint32_t k, double *v, ru_err *err);
/* A number of a column as an input; NaN: it has no value. */
float rui_column_input(const ru_columns *c, const ru_column *column, double v);
/* The sentence about a number whose input would be infinite: RU_E_DATA. */
ru_status rui_column_far(const ru_column *column, double v, ru_err *err);
/* Number of the category that is `text`; -1: none. */
int64_t rui_category_find(const ru_column *column, ru_str text);
/* The inputs of a row without values: NaN, so that whoever gives an answer a row can tell it. */
void rui_columns_blank(const ru_columns *c, float *x);
/* The inputs of the current row. Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_columns_put(const ru_columns *c, const rui_column_map *map,
                                      const rui_csv *row, float *x, rui_columns_told *told,
                                      ru_err *err);
/* -- how the inputs are prepared (columns_learn.c) -----------------------------------------------
 */

typedef struct rui_learn {
    bool *texts;    /* [columns.n] the column holds categories */
    bool find;      /* which columns do is not known before all rows were looked at */
    rui_buf values; /* double [rows, columns.n]: a number; an index in `cells`; NaN: no value */
    rui_buf cells;  /* ru_str: views of the files' texts */
} rui_learn;

/* Takes from the options what needs no rows. Errors: RU_E_CONFIG. */
RU_MUST_USE ru_status rui_learn_open(rui_learn *l, const ru_columns_options *opt, ru_columns *c,
                                     ru_arena *arena, const char *path, ru_err *err);
/* A first look at a row: a text makes its column one of categories. */
void rui_learn_look(rui_learn *l, const ru_columns *c, const rui_column_map *map,
                    const rui_csv *row);
/* The values of the current row. On failure the caller takes them back. Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_learn_row(rui_learn *l, const ru_columns *c, const rui_column_map *map,
                                    const rui_csv *row, ru_err *err);
/* Means, deviations and categories into `c`, from the rows of `part`. Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_learn_end(const rui_learn *l, const rui_part *part, const char *path,
                                    ru_arena *arena, ru_columns *c, ru_err *err);
/* The inputs of row `row`. Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_learn_put(const rui_learn *l, const ru_columns *c, int64_t row, float *x,
                                    ru_err *err);
void rui_learn_close(rui_learn *l); /* accepts zeroed memory */

/* A cell that has no value, or is no number. `input`: it is no label. */
ru_status rui_cell_fail(const rui_csv *c, int64_t column, const char *name, bool input, ru_str cell,
                        ru_err *err);

#endif
