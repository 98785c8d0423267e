/* Columns by name, and the inputs of a row. */
#include "data/format/columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/format/csv_text.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the columns is full");
}

static ru_status copy_texts(const ru_conf_texts *from, ru_arena *arena, ru_conf_texts *out,
                            ru_err *err)
{
    const char **at = RU_NEW(arena, const char *, from->n);
    for (uint32_t k = 0; at != NULL && k < from->n; k++) {
        at[k] = ru_arena_str(arena, from->at[k]);
        if (at[k] == NULL) {
            return full(err);
        }
    }
    *out = (ru_conf_texts){.at = at, .n = from->n};
    return at != NULL ? RU_OK : full(err);
}

int64_t ru_columns_inputs(const ru_columns *c)
{
    int64_t n = 0;
    for (uint32_t k = 0; k < c->n; k++) {
        n += c->at[k].categories.n > 0 ? c->at[k].categories.n : 1;
    }
    return n;
}

ru_status ru_columns_copy(const ru_columns *c, ru_arena *arena, ru_columns *out, ru_err *err)
{
    ru_columns n = *c;
    ru_column *at = RU_NEW(arena, ru_column, c->n);
    n.label = c->label != NULL ? ru_arena_str(arena, c->label) : NULL;
    if (at == NULL || (n.label == NULL) != (c->label == NULL)) {
        return full(err);
    }
    RU_TRY(copy_texts(&c->ignored, arena, &n.ignored, err));
    for (uint32_t k = 0; k < c->n; k++) {
        at[k] = c->at[k];
        at[k].name = ru_arena_str(arena, c->at[k].name);
        if (at[k].name == NULL) {
            return full(err);
        }
        RU_TRY(copy_texts(&c->at[k].categories, arena, &at[k].categories, err));
    }
    n.at = at;
    *out = n;
    return RU_OK;
}

/* -- names of a file ----------------------------------------------------------------------------
 */

bool rui_cell_missing(ru_str s)
{
    static const char *const words[] = {"", "na", "n/a", "nan", "null", "none", "?", "-"};
    char low[8];
    if (s.n >= (int64_t)sizeof low) {
        return false;
    }
    for (int64_t i = 0; i < s.n; i++) {
        low[i] = (char)(s.p[i] >= 'A' && s.p[i] <= 'Z' ? s.p[i] + 32 : s.p[i]);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(words); k++) {
        if (ru_str_eq_c(ru_str_n(low, s.n), words[k])) {
            return true;
        }
    }
    return false;
}

/* How often the row has a cell of this text; `at`: the first. */
static uint32_t named(const rui_csv *row, const char *name, int64_t *at)
{
    const ru_str *cells;
    int64_t n = rui_csv_cells(row, &cells);
    uint32_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        if (ru_str_eq_c(cells[i], name)) {
            *at = found++ == 0 ? i : *at;
        }
    }
    return found;
}

bool rui_columns_header(const ru_columns *c, const rui_csv *row)
{
    const ru_str *cells;
    int64_t n = rui_csv_cells(row, &cells), at = 0;
    bool words = true; /* no cell is a number */
    for (int64_t i = 0; i < n; i++) {
        double v;
        words = words && !rui_number(cells[i].p, cells[i].n, &v) && !rui_cell_missing(cells[i]);
    }
    bool all = c->named && c->n > 0, some = false, texts = c->n > 0;
    for (uint32_t k = 0; k < c->n; k++) {
        bool is = named(row, c->at[k].name, &at) > 0;
        all = all && is;
        some = some || is;
        texts = texts && c->at[k].categories.n > 0;
    }
    return all || (words && (some || !texts)); /* a row of texts alone looks like names */
}

/* The file has the names of the training data in their order. */
static bool same_order(const ru_columns *c, const rui_csv *row)
{
    const ru_str *cells;
    bool same = rui_csv_cells(row, &cells) == c->width;
    for (uint32_t k = 0; same && k < c->n; k++) {
        same = ru_str_eq_c(cells[c->at[k].place], c->at[k].name);
    }
    return same && (c->label_place < 0 || ru_str_eq_c(cells[c->label_place], c->label));
}

/* The cell of the column called `name`. */
static ru_status find_one(const rui_csv *row, const char *name, const char *what, int64_t *at,
                          ru_err *err)
{
    uint32_t n = named(row, name, at);
    if (n == 1) {
        return RU_OK;
    }
    ru_str line = ru_str_n(row->p, 0);
    const ru_str *cells;
    int64_t columns = rui_csv_cells(row, &cells);
    if (columns > 0) { /* the text of the line, as it stands there */
        const char *end = cells[columns - 1].p + cells[columns - 1].n;
        line = ru_str_n(cells[0].p, end - cells[0].p);
    }
    int shown = line.n > 100 ? 100 : (int)line.n;
    return n == 0 ? RU_FAIL(err, RU_E_DATA,
                            "%s:%lld: there is no column '%.60s', which is %s of the training "
                            "data; the columns here are %.*s%s",
                            row->path, (long long)row->row_line, name, what, shown, line.p,
                            shown < line.n ? "..." : "")
                  : RU_FAIL(err, RU_E_DATA,
                            "%s:%lld: %u columns are called '%.60s', and the columns stand in "
                            "another order than in the training data; give each a name of its own",
                            row->path, (long long)row->row_line, n, name);
}

/* Names that the training data does not have are no inputs. */
static void say_extra(const ru_columns *c, const rui_csv *row, const rui_column_map *map)
{
    const ru_str *cells;
    int64_t n = rui_csv_cells(row, &cells), first = -1;
    uint32_t extra = 0;
    for (int64_t i = 0; i < n; i++) {
        bool used = i == map->label || (c->label != NULL && ru_str_eq_c(cells[i], c->label));
        for (uint32_t k = 0; !used && k < c->ignored.n; k++) {
            used = ru_str_eq_c(cells[i], c->ignored.at[k]);
        }
        for (uint32_t k = 0; !used && k < c->n; k++) {
            used = map->from[k] == (uint32_t)i;
        }
        first = !used && first < 0 ? i : first;
        extra += !used;
    }
    if (extra == 0) {
        return;
    }
    char more[40] = "";
    ru_text t = ru_text_into(more, sizeof more);
    if (extra > 1) {
        ru_text_putf(&t, " and %u more", extra - 1);
    }
    ru_log(RU_LOG_WARN, "data", "columns",
           "%s: the training data has no column '%.*s'%s; Rubato leaves %s out", row->path,
           cells[first].n > 60 ? 60 : (int)cells[first].n, cells[first].p, more,
           extra > 1 ? "them" : "it");
}

static ru_status map_names(const ru_columns *c, const rui_csv *row, bool labels,
                           rui_column_map *map, ru_err *err)
{
    int64_t at = 0;
    for (uint32_t k = 0; k < c->n; k++) {
        RU_TRY(find_one(row, c->at[k].name, "an input", &at, err));
        map->from[k] = (uint32_t)at;
    }
    if (c->label_place >= 0 && labels) {
        RU_TRY(find_one(row, c->label, "the label", &at, err));
        map->label = at;
    }
    say_extra(c, row, map);
    return RU_OK;
}

ru_status rui_columns_map(const ru_columns *c, const rui_csv *row, bool header, bool labels,
                          ru_arena *arena, rui_column_map *map, ru_err *err)
{
    const ru_str *cells;
    int64_t width = rui_csv_cells(row, &cells);
    rui_column_map m = {.from = RU_NEW(arena, uint32_t, c->n), .label = -1, .width = width};
    if (m.from == NULL) {
        return full(err);
    }
    if (header && c->named && !same_order(c, row)) {
        RU_TRY(map_names(c, row, labels, &m, err));
        *map = m;
        return RU_OK;
    }
    if (header && !c->named) {
        ru_log(RU_LOG_WARN, "data", "columns",
               "%s names its columns, but the training data does not; Rubato takes them in the "
               "order in which they stand",
               row->path);
    }
    /* A line without its label, or of inputs alone, is fine where no labels are needed. */
    bool bare = !labels && c->label_place >= 0 && width == c->width - 1;
    bool inputs = !labels && !bare && width != c->width && width == (int64_t)c->n;
    for (uint32_t k = 0; k < c->n; k++) {
        int64_t at = inputs ? (int64_t)k : c->at[k].place;
        m.from[k] = (uint32_t)(at - (bare && at > c->label_place));
    }
    m.width = bare || inputs ? width : c->width;
    m.label = labels ? c->label_place : -1;
    *map = m;
    return RU_OK;
}

/* -- cells --------------------------------------------------------------------------------------
 */

ru_status rui_cell_fail(const rui_csv *c, int64_t column, const char *name, bool input, ru_str cell,
                        ru_err *err)
{
    char called[72] = "";
    ru_text t = ru_text_into(called, sizeof called);
    if (name != NULL) {
        ru_text_putf(&t, " (%.60s)", name);
    }
    if (rui_cell_missing(cell)) {
        return RU_FAIL(err, RU_E_DATA, "%s:%lld: column %lld%s has no value ('%.*s'); %s", c->path,
                       (long long)c->row_line, (long long)column + 1, called, (int)cell.n, cell.p,
                       input ? "fill it in, remove the line, or train with data.columns.missing"
                             : "fill it in or remove the line");
    }
    return RU_FAIL(err, RU_E_DATA, "%s:%lld: column %lld%s is '%.*s', but a number was expected%s",
                   c->path, (long long)c->row_line, (long long)column + 1, called,
                   cell.n > 60 ? 60 : (int)cell.n, cell.p,
                   input ? "; data.columns.categorical makes texts inputs when a model is trained"
                         : "");
}

ru_status rui_columns_width(const rui_column_map *map, const rui_csv *row, ru_err *err)
{
    const ru_str *cells;
    int64_t n = rui_csv_cells(row, &cells);
    n -= n == map->width + 1 && cells[n - 1].n == 0; /* the line ends in a separator */
    return n == map->width
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA,
                         "%s:%lld: the line has %lld columns, but %lld were expected", row->path,
                         (long long)row->row_line, (long long)n, (long long)map->width);
}

bool rui_columns_missing(const ru_columns *c, const rui_column_map *map, const rui_csv *row)
{
    const ru_str *cells;
    (void)rui_csv_cells(row, &cells);
    bool missing = false;
    for (uint32_t k = 0; k < c->n; k++) {
        missing = missing || rui_cell_missing(cells[map->from[k]]);
    }
    return missing;
}

static ru_status too_large(const rui_column_map *map, const rui_csv *row, uint32_t k, ru_err *err)
{
    const ru_str *cells;
    (void)rui_csv_cells(row, &cells);
    ru_str cell = cells[map->from[k]];
    return RU_FAIL(err, RU_E_DATA,
                   "%s:%lld: column %u is '%.*s', which is too large for a 32-bit number",
                   row->path, (long long)row->row_line, map->from[k] + 1, (int)cell.n, cell.p);
}

ru_status rui_columns_number(const ru_columns *c, const rui_column_map *map, const rui_csv *row,
                             uint32_t k, double *v, ru_err *err)
{
    const ru_str *cells;
    (void)rui_csv_cells(row, &cells);
    ru_str cell = cells[map->from[k]];
    if (c->missing == RU_MISSING_MEAN && rui_cell_missing(cell)) {
        *v = (double)NAN;
        return RU_OK;
    }
    if (!rui_number(cell.p, cell.n, v)) {
        return rui_cell_fail(row, map->from[k], c->named ? c->at[k].name : NULL, true, cell, err);
    }
    return isfinite((float)*v) ? RU_OK : too_large(map, row, k, err);
}

ru_status rui_column_far(const ru_column *column, double v, ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA,
                   "column '%.60s' is %g, too far from the mean %g of the training data (standard "
                   "deviation %g): its normalised value exceeds a 32-bit number; correct it, or "
                   "set data.columns.normalize: false",
                   column->name, v, column->mean, column->std);
}

float rui_column_input(const ru_columns *c, const ru_column *column, double v)
{
    v = isnan(v) ? column->mean : v;
    if (!c->normalize) {
        return (float)v;
    }
    return column->std > 0 ? (float)((v - column->mean) / column->std) : 0.0f;
}

void ru_columns_normalize(const ru_columns *c, float *x)
{
    for (uint32_t k = 0; k < c->n; k++) {
        const ru_column *column = &c->at[k];
        bool stays = isnan(*x) && c->missing != RU_MISSING_MEAN;
        if (column->categories.n == 0 && !stays) {
            *x = rui_column_input(c, column, (double)*x);
        }
        x += column->categories.n > 0 ? column->categories.n : 1;
    }
}

int64_t rui_category_find(const ru_column *column, ru_str text)
{
    int64_t low = 0, high = column->categories.n;
    while (low < high) {
        int64_t mid = (low + high) / 2;
        ru_str at = ru_str_c(column->categories.at[mid]);
        int64_t n = at.n < text.n ? at.n : text.n;
        int order = memcmp(at.p, text.p, (size_t)n);
        if (order == 0 && at.n == text.n) {
            return mid;
        }
        if (order < 0 || (order == 0 && at.n < text.n)) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return -1;
}

static ru_status put_category(const ru_columns *c, const rui_column_map *map, const rui_csv *row,
                              uint32_t k, float *x, rui_columns_told *told, ru_err *err)
{
    const ru_str *cells;
    (void)rui_csv_cells(row, &cells);
    const ru_column *column = &c->at[k];
    ru_str cell = cells[map->from[k]];
    for (uint32_t i = 0; i < column->categories.n; i++) {
        x[i] = 0.0f;
    }
    if (rui_cell_missing(cell)) {
        return c->missing == RU_MISSING_MEAN
                   ? RU_OK
                   : rui_cell_fail(row, map->from[k], c->named ? column->name : NULL, true, cell,
                                   err);
    }
    int64_t at = rui_category_find(column, cell);
    if (at >= 0) {
        x[at] = 1.0f;
    } else if (!told->unknown) {
        told->unknown = true;
        ru_log(RU_LOG_WARN, "data", "category",
               "%s:%lld: column '%.60s' is '%.*s', which it never is in the training data; the "
               "inputs of such a cell are all 0",
               row->path, (long long)row->row_line, column->name, cell.n > 60 ? 60 : (int)cell.n,
               cell.p);
    }
    return RU_OK;
}

void rui_columns_blank(const ru_columns *c, float *x)
{
    for (int64_t k = 0; k < ru_columns_inputs(c); k++) {
        x[k] = RU_NAN;
    }
}

ru_status rui_columns_put(const ru_columns *c, const rui_column_map *map, const rui_csv *row,
                          float *x, rui_columns_told *told, ru_err *err)
{
    RU_TRY(rui_columns_width(map, row, err));
    if (c->missing == RU_MISSING_DROP && rui_columns_missing(c, map, row)) {
        rui_columns_blank(c, x);
        return RU_OK;
    }
    for (uint32_t k = 0; k < c->n; k++) {
        double v;
        if (c->at[k].categories.n > 0) {
            RU_TRY(put_category(c, map, row, k, x, told, err));
            x += c->at[k].categories.n;
            continue;
        }
        RU_TRY(rui_columns_number(c, map, row, k, &v, err));
        *x = rui_column_input(c, &c->at[k], v);
        if (!isfinite(*x++)) {
            return ru_err_wrap(err, rui_column_far(&c->at[k], v, err), "%s:%lld", row->path,
                               (long long)row->row_line);
        }
    }
    return RU_OK;
}

/* -- lines that come bit by bit ------------------------------------------------------------------
 */

struct ru_rows {
    const ru_columns *columns;
    const char *path;
    ru_arena *arena;
    rui_csv csv;
    rui_column_map map; /* width 0: the first line has not come */
    rui_columns_told told;
    int64_t line;
};

ru_status ru_rows_open(const ru_columns *c, const char *path, ru_arena *arena, ru_rows **out,
                       ru_err *err)
{
    ru_rows *r = RU_NEW(arena, ru_rows, 1);
    if (r == NULL) {
        return full(err);
    }
    *r = (ru_rows){.columns = c, .path = path, .arena = arena};
    *out = r;
    return RU_OK;
}

ru_status ru_rows_line(ru_rows *r, ru_str line, float *x, bool *row, ru_err *err)
{
    bool first = r->map.width == 0;
    char sep = first ? 0 : r->csv.sep;
    *row = false;
    rui_csv_begin(&r->csv, r->path, line.p, line.n, sep);
    r->csv.line = ++r->line;
    RU_TRY(rui_csv_next(&r->csv, row, err));
    if (!*row) {
        return RU_OK;
    }
    if (first) {
        bool header = rui_columns_header(r->columns, &r->csv);
        RU_TRY(rui_columns_map(r->columns, &r->csv, header, false, r->arena, &r->map, err));
        if (header) {
            *row = false;
            return RU_OK;
        }
    }
    return rui_columns_put(r->columns, &r->map, &r->csv, x, &r->told, err);
}

void ru_rows_close(ru_rows *r)
{
    if (r != NULL) {
        rui_buf_free(&r->csv.cells);
    }
}
