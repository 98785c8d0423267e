/* Learning how the columns of a table become inputs (data.columns of a job).
 *
 * A first look at all rows finds the columns of texts; then each row leaves its values here: a
 * number, or where its text stands. When all rows are known, those of the training set give means,
 * standard deviations (of the whole population) and categories. Samples that are held out teach
 * nothing. Equal numbers have deviation 0 exactly: their mean may be rounded. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/format/csv_text.h"

enum {
    INPUTS_MAX = 1 << 20,
    CATEGORIES_MANY = 50, /* from here on they may be names of rows */
};

ru_status rui_learn_open(rui_learn *l, const ru_columns_options *opt, ru_columns *c,
                         ru_arena *arena, const char *path, ru_err *err)
{
    l->texts = RU_NEW(arena, bool, c->n);
    if (l->texts == NULL) {
        return rui_no_memory(err, path, c->n);
    }
    c->missing = opt->missing;
    c->normalize = opt->normalize != 2;
    bool some = opt->categorical.n > 0;
    l->find = !some;
    for (uint32_t i = 0; i < opt->categorical.n; i++) {
        const char *name = opt->categorical.at[i];
        bool known =
            strcmp(name, "auto") == 0 || (opt->categorical.n == 1 && !strcmp(name, "none"));
        l->find = l->find || strcmp(name, "auto") == 0;
        for (uint32_t k = 0; k < c->n; k++) {
            int64_t number;
            bool is = strcmp(c->at[k].name, name) == 0 ||
                      (ru_str_i64(ru_str_c(name), &number) && number == c->at[k].place + 1);
            l->texts[k] = l->texts[k] || is;
            known = known || is;
        }
        if (!known) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "%s: data.columns.categorical names '%.60s', which is no input column; "
                           "expected %s, auto or none",
                           path, name,
                           c->named ? "names of the first line" : "numbers of columns from 1");
        }
    }
    return RU_OK;
}

void rui_learn_look(rui_learn *l, const ru_columns *c, const rui_column_map *map,
                    const rui_csv *row)
{
    const ru_str *cells;
    int64_t n = rui_csv_cells(row, &cells);
    for (uint32_t k = 0; l->find && k < c->n && n >= map->width; k++) {
        double v;
        ru_str cell = cells[map->from[k]];
        bool number = rui_number(cell.p, cell.n, &v) || ru_str_f64(cell, &v);
        l->texts[k] = l->texts[k] || !(number || rui_cell_missing(cell));
    }
}

ru_status rui_learn_row(rui_learn *l, const ru_columns *c, const rui_column_map *map,
                        const rui_csv *row, ru_err *err)
{
    const ru_str *cells;
    RU_TRY(rui_columns_width(map, row, err));
    (void)rui_csv_cells(row, &cells);
    double *v = rui_buf_push(&l->values, c->n * (int64_t)sizeof *v);
    if (v == NULL) {
        return rui_no_memory(err, row->path, l->values.n);
    }
    for (uint32_t k = 0; k < c->n; k++) {
        ru_str cell = cells[map->from[k]];
        bool missing = rui_cell_missing(cell);
        if (!l->texts[k] || (missing && c->missing != RU_MISSING_MEAN)) {
            RU_TRY(rui_columns_number(c, map, row, k, &v[k], err));
            continue;
        }
        v[k] = (double)NAN;
        if (!missing) {
            ru_str *text = rui_buf_push(&l->cells, sizeof *text);
            if (text == NULL) {
                return rui_no_memory(err, row->path, l->cells.n);
            }
            *text = cell;
            v[k] = (double)(l->cells.n / (int64_t)sizeof *text - 1);
        }
    }
    return RU_OK;
}

/* -- what the training set teaches --------------------------------------------------------------
 */

typedef struct set {
    const rui_learn *l;
    const rui_part *part;
    uint32_t n; /* columns */
    const char *path;
} set;

static double value(const set *s, int64_t sample, uint32_t k)
{
    const double *v = s->l->values.p;
    return v[rui_part_row(s->part, sample) * s->n + k];
}

static ru_status none(const set *s, const ru_column *column, ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA,
                   "%s: column '%.60s' has no value in the training data; leave it out with "
                   "data.columns.ignore",
                   s->path, column->name);
}

static ru_status take_numbers(const set *s, uint32_t k, ru_column *column, ru_err *err)
{
    double mean = 0, squares = 0, least = 0, most = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < s->part->count; i++) {
        double v = value(s, i, k);
        if (!isnan(v)) {
            double from = v - mean;
            mean += from / (double)++n;
            squares += from * (v - mean);
            least = n == 1 || v < least ? v : least;
            most = n == 1 || v > most ? v : most;
        }
    }
    if (n == 0) {
        return none(s, column, err);
    }
    bool equal = least == most;
    column->mean = equal ? least : mean;
    column->std = equal ? 0 : sqrt(squares / (double)n);
    if (!isfinite(column->mean) || !isfinite(column->std)) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: the numbers of column '%.60s' are too large for a standard deviation; "
                       "scale them down or leave it out with data.columns.ignore",
                       s->path, column->name);
    }
    return RU_OK;
}

static int by_text(const void *a, const void *b)
{
    const ru_str *x = a, *y = b;
    int64_t n = x->n < y->n ? x->n : y->n;
    int c = memcmp(x->p, y->p, (size_t)n);
    return c != 0 ? c : (x->n > y->n) - (x->n < y->n);
}

/* The distinct texts of a column in the training set, sorted, into `list`; how many of how many. */
static int64_t distinct(const set *s, uint32_t k, ru_str *list, int64_t *rows)
{
    const ru_str *cells = s->l->cells.p;
    int64_t n = 0, kept = 0;
    for (int64_t i = 0; i < s->part->count; i++) {
        double v = value(s, i, k);
        if (!isnan(v)) {
            list[n++] = cells[(int64_t)v];
        }
    }
    *rows = n;
    qsort(list, (size_t)n, sizeof *list, by_text);
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || by_text(&list[i], &list[kept - 1]) != 0) {
            list[kept++] = list[i];
        }
    }
    return kept;
}

static ru_status take_categories(const set *s, uint32_t k, ru_arena *arena, ru_str *list,
                                 ru_column *column, ru_err *err)
{
    int64_t rows, n = distinct(s, k, list, &rows);
    if (n == 0) {
        return none(s, column, err);
    }
    if (n > INPUTS_MAX) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: column '%.60s' has %lld different texts, at most %d can be categories; "
                       "leave it out with data.columns.ignore",
                       s->path, column->name, (long long)n, INPUTS_MAX);
    }
    if (n >= CATEGORIES_MANY && n > rows / 2) {
        ru_log(RU_LOG_WARN, "data", "categories",
               "%s: column '%.60s' has %lld different texts in %lld rows, and each becomes an "
               "input; if they name the rows, leave it out with data.columns.ignore",
               s->path, column->name, (long long)n, (long long)rows);
    }
    const char **at = RU_NEW(arena, const char *, n);
    for (int64_t i = 0; at != NULL && i < n; i++) {
        at[i] = ru_arena_strn(arena, list[i].p, list[i].n);
        if (at[i] == NULL) {
            return rui_no_memory(err, s->path, list[i].n);
        }
    }
    column->categories = (ru_conf_texts){.at = at, .n = (uint32_t)n};
    return at != NULL ? RU_OK : rui_no_memory(err, s->path, n);
}

ru_status rui_learn_end(const rui_learn *l, const rui_part *part, const char *path, ru_arena *arena,
                        ru_columns *c, ru_err *err)
{
    const set s = {.l = l, .part = part, .n = c->n, .path = path};
    ru_column *at = RU_NEW(arena, ru_column, c->n);
    ru_str *list = malloc((size_t)(part->count + 1) * sizeof *list);
    ru_status st = at != NULL && list != NULL ? RU_OK : rui_no_memory(err, path, part->count);
    for (uint32_t k = 0; st == RU_OK && k < c->n; k++) {
        at[k] = c->at[k];
        st = l->texts[k] ? take_categories(&s, k, arena, list, &at[k], err)
                         : take_numbers(&s, k, &at[k], err);
    }
    free(list);
    RU_TRY(st);
    c->at = at;
    int64_t inputs = ru_columns_inputs(c);
    return inputs <= INPUTS_MAX
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA,
                         "%s: the columns become %lld inputs, at most %d are allowed", path,
                         (long long)inputs, INPUTS_MAX);
}

ru_status rui_learn_put(const rui_learn *l, const ru_columns *c, int64_t row, float *x, ru_err *err)
{
    const double *v = (const double *)l->values.p + row * c->n;
    const ru_str *cells = l->cells.p;
    for (uint32_t k = 0; k < c->n; k++) {
        const ru_column *column = &c->at[k];
        uint32_t n = column->categories.n;
        if (n == 0) {
            *x = rui_column_input(c, column, v[k]);
            if (!isfinite(*x++)) {
                return ru_err_wrap(err, rui_column_far(column, v[k], err), "row %lld",
                                   (long long)row + 1);
            }
            continue;
        }
        int64_t at = isnan(v[k]) ? -1 : rui_category_find(column, cells[(int64_t)v[k]]);
        for (uint32_t i = 0; i < n; i++) {
            *x++ = (int64_t)i == at ? 1.0f : 0.0f;
        }
    }
    return RU_OK;
}

void rui_learn_close(rui_learn *l)
{
    rui_buf_free(&l->values);
    rui_buf_free(&l->cells);
}
