/* Text of comma-separated files: rows of cells. */
#include "data/csv_text.h"

#include <string.h>

enum { COLUMNS_MAX = 1 << 20 };

static char find_separator(const rui_csv *c)
{
    int64_t commas = 0, semicolons = 0, tabs = 0;
    bool quoted = false;
    for (const char *p = c->p; p < c->end && (quoted || *p != '\n'); p++) {
        quoted = *p == '"' ? !quoted : quoted;
        commas += !quoted && *p == ',';
        semicolons += !quoted && *p == ';';
        tabs += !quoted && *p == '\t';
    }
    return tabs > commas && tabs >= semicolons ? '\t' : semicolons > commas ? ';' : ',';
}

/* A quoted cell; c->p is behind the opening quote. The slice keeps doubled quotes as they are. */
static ru_status quoted_cell(rui_csv *c, int64_t column, ru_str *cell, ru_err *err)
{
    const char *from = c->p;
    while (c->p < c->end) {
        if (*c->p == '"' && c->p + 1 < c->end && c->p[1] == '"') {
            c->p += 2;
        } else if (*c->p == '"') {
            *cell = ru_str_n(from, c->p - from);
            c->p++;
            while (c->p < c->end && (*c->p == ' ' || *c->p == '\r')) {
                c->p++;
            }
            if (c->p < c->end && *c->p != c->sep && *c->p != '\n') {
                return RU_FAIL(err, RU_E_DATA,
                               "%s:%lld: column %lld continues after its closing quote", c->path,
                               (long long)c->line, (long long)column);
            }
            return RU_OK;
        } else {
            c->line += *c->p == '\n';
            c->p++;
        }
    }
    return RU_FAIL(err, RU_E_DATA,
                   "%s:%lld: column %lld has an opening quote without a closing quote", c->path,
                   (long long)c->row_line, (long long)column);
}

static ru_str plain_cell(rui_csv *c)
{
    const char *from = c->p;
    while (c->p < c->end && *c->p != c->sep && *c->p != '\n') {
        c->p++;
    }
    const char *to = c->p;
    while (to > from && (to[-1] == ' ' || to[-1] == '\r')) {
        to--;
    }
    return ru_str_n(from, to - from);
}

ru_status rui_csv_next(rui_csv *c, bool *found, ru_err *err)
{
    while (c->p < c->end && (*c->p == '\n' || *c->p == '\r')) {
        c->line += *c->p == '\n';
        c->p++;
    }
    *found = c->p < c->end;
    c->cells.n = 0;
    c->row_line = c->line;
    while (c->p < c->end) {
        while (c->p < c->end && *c->p == ' ') {
            c->p++;
        }
        ru_str *cell = rui_buf_push(&c->cells, sizeof *cell);
        int64_t column = c->cells.n / (int64_t)sizeof *cell;
        if (cell == NULL) {
            return rui_no_memory(err, c->path, c->cells.n);
        }
        if (column > COLUMNS_MAX) {
            return RU_FAIL(err, RU_E_DATA, "%s:%lld: more than %d columns", c->path,
                           (long long)c->row_line, COLUMNS_MAX);
        }
        if (c->p < c->end && *c->p == '"') {
            c->p++;
            RU_TRY(quoted_cell(c, column, cell, err));
        } else {
            *cell = plain_cell(c);
        }
        if (c->p >= c->end) {
            break;
        }
        bool line_end = *c->p == '\n';
        c->line += line_end;
        c->p++;
        if (line_end) {
            break;
        }
        if (c->p == c->end) { /* the file ends behind a separator: one more, empty cell */
            cell = rui_buf_push(&c->cells, sizeof *cell);
            if (cell == NULL) {
                return rui_no_memory(err, c->path, c->cells.n);
            }
            *cell = (ru_str){c->p, 0};
        }
    }
    return RU_OK;
}

void rui_csv_begin(rui_csv *c, const char *path, const char *text, int64_t n)
{
    rui_buf cells = c->cells;
    *c = (rui_csv){.p = text, .end = text + n, .path = path, .line = 1, .row_line = 1};
    c->cells = cells;
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        c->p += 3;
    }
    c->sep = find_separator(c);
}

int64_t rui_csv_cells(const rui_csv *c, const ru_str **cells)
{
    *cells = c->cells.p;
    return c->cells.n / (int64_t)sizeof(ru_str);
}
