/* Tables for people and programs: cells are put row by row, then printed with aligned columns or
 * written as JSON rows.
 *
 *     ru_table t = ru_table_in(arena);
 *     ru_table_col(&t, "policy", RU_TABLE_LEFT);
 *     ru_table_col(&t, "step_s", RU_TABLE_RIGHT);
 *     ru_table_str(&t, "tic");  ru_table_f64(&t, 0.0213, 4);
 *     ru_table_str(&t, "best"); ru_table_none(&t);
 *     ru_table_print(&t, &text);          policy  step_s
 *                                         tic     0.0213
 *                                         best         -
 *     ru_table_json(&t, &json, "rows");   "rows":[{"policy":"tic","step_s":0.0213},...
 *
 * Numbers keep their full value in JSON. A row ends by itself when its last cell is put; printing
 * in the middle of a row is a bug. Width counts UTF-8 characters. Thread: one at a time. */
#ifndef RU_BASE_TABLE_H
#define RU_BASE_TABLE_H

#include "base/json.h"
#include "base/vec.h"

typedef enum ru_table_side { RU_TABLE_LEFT, RU_TABLE_RIGHT } ru_table_side;

typedef struct rui_table_col {
    const char *name; /* view: JSON key, and head with '_' as blank */
    ru_table_side side;
} rui_table_col;

typedef struct rui_table_cell {
    const char *text; /* for people */
    uint8_t kind;     /* what JSON gets: text, i64, f64, bool, null, JSON that is made */
    const char *unit; /* of the number in JSON: "s", "bytes", "share"; NULL: none */
    int64_t i64;
    double f64;
    const char *json;
} rui_table_cell;

RU_VEC(rui_table_cols, rui_table_col)
RU_VEC(rui_table_cells, rui_table_cell)

typedef struct ru_table {
    ru_arena *arena;
    rui_table_cols cols;
    rui_table_cells cells;
    bool full; /* the arena was: printing says so */
} ru_table;

ru_table ru_table_in(ru_arena *arena);
/* All columns before the first cell. `name` is a view: "step_s" prints as "step s". */
void ru_table_col(ru_table *t, const char *name, ru_table_side side);

/* The next cell. Text is copied; NULL is ru_table_none. */
void ru_table_str(ru_table *t, const char *text);
void ru_table_textf(ru_table *t, const char *fmt, ...) RU_PRINTF(2, 3);
void ru_table_i64(ru_table *t, int64_t v);
void ru_table_f64(ru_table *t, double v, uint32_t decimals);
void ru_table_percent(ru_table *t, double share, uint32_t decimals); /* 0.5: "50 %", JSON 0.5 */
void ru_table_ns(ru_table *t, int64_t ns);                           /* "1.3 ms"; JSON seconds */
void ru_table_bytes(ru_table *t, int64_t bytes);                     /* "64 KiB"; JSON bytes */
void ru_table_bool(ru_table *t, bool v);                             /* "yes", "no" */
void ru_table_none(ru_table *t);                                     /* "-", JSON null */
void ru_table_absent(ru_table *t, const char *unit); /* the same, of a column of "s", "share" ... */
/* Text for people, and a JSON value of any kind; both are copied. */
void ru_table_raw(ru_table *t, const char *text, const char *json);

/* With a head line; columns two blanks apart; each line begins with `indent` blanks. Errors:
 * RU_E_LIMIT when the arena was full. */
RU_MUST_USE ru_status ru_table_print(const ru_table *t, uint32_t indent, ru_text *out, ru_err *err);
/* A list of objects. */
RU_MUST_USE ru_status ru_table_json(const ru_table *t, ru_json *j, const char *key, ru_err *err);
/* The same with keys of small letters, digits and '_' that end with the unit of the column's cells:
 * "is needed" of times is "is_needed_s". */
RU_MUST_USE ru_status ru_table_json_units(const ru_table *t, ru_json *j, const char *key,
                                          ru_err *err);

#endif
