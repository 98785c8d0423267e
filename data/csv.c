/* CSV: numbers in columns, one of them the label; read into one table of f32.
 *
 * Cells are separated by commas, semicolons or tabs (whichever is most frequent in the first line);
 * cells may stand in double quotes, with "" for a quote; lines end in LF or CRLF; a UTF-8 mark at
 * the start is skipped, and so are empty lines. The first line is the header when the option says
 * so, or when a cell of it is no number where numbers are expected. A missing value is an error,
 * never a guess. Source: rfc-4180. */
#include "data/table.h"

#include <math.h>
#include <string.h>

enum { COLUMNS_MAX = 1 << 20 };

typedef struct csv_set {
    rui_source file; /* the one being parsed */
    rui_buf x;       /* f32 [count, features] */
    const void *y;
    rui_labels labels;
    rui_buf cells;   /* ru_str: cells of the current line */
    int64_t columns; /* 0: not known yet */
    int64_t label;   /* column of the label, -1: none */
    bool resolved;
} csv_set;

typedef struct cursor {
    const char *p, *end;
    const char *path;
    int64_t line;     /* of the next byte, from 1 */
    int64_t row_line; /* first line of the current row */
    char sep;
} cursor;

static char find_separator(const cursor *c)
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
static ru_status quoted_cell(cursor *c, int64_t column, ru_str *cell, ru_err *err)
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

static ru_str plain_cell(cursor *c)
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

/* The cells of the next line that is not empty into s->cells; false in *found at the end. */
static ru_status next_row(csv_set *s, cursor *c, bool *found, ru_err *err)
{
    while (c->p < c->end && (*c->p == '\n' || *c->p == '\r')) {
        c->line += *c->p == '\n';
        c->p++;
    }
    *found = c->p < c->end;
    s->cells.n = 0;
    c->row_line = c->line;
    while (c->p < c->end) {
        while (c->p < c->end && *c->p == ' ') {
            c->p++;
        }
        ru_str *cell = rui_buf_push(&s->cells, sizeof *cell);
        int64_t column = s->cells.n / (int64_t)sizeof *cell;
        if (cell == NULL) {
            return rui_no_memory(err, c->path, s->cells.n);
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
            cell = rui_buf_push(&s->cells, sizeof *cell);
            if (cell == NULL) {
                return rui_no_memory(err, c->path, s->cells.n);
            }
            *cell = (ru_str){c->p, 0};
        }
    }
    return RU_OK;
}

static bool is_missing(ru_str s)
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

static ru_status cell_fail(const cursor *c, int64_t column, ru_str cell, ru_err *err)
{
    if (is_missing(cell)) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s:%lld: column %lld has no value ('%.*s'); fill it in or remove the line",
                       c->path, (long long)c->row_line, (long long)column + 1, (int)cell.n, cell.p);
    }
    return RU_FAIL(err, RU_E_DATA, "%s:%lld: column %lld is '%.*s', but a number was expected",
                   c->path, (long long)c->row_line, (long long)column + 1,
                   cell.n > 60 ? 60 : (int)cell.n, cell.p);
}

/* Column of the label from the option: a name of the header, a number from 1, "none", or the last.
 */
static ru_status find_label(csv_set *s, const cursor *c, const ru_data_options *opt, bool header,
                            ru_err *err)
{
    const ru_str *cells = s->cells.p;
    int64_t number;
    s->label = s->columns - 1;
    if (opt->label == NULL) {
        return RU_OK;
    }
    for (int64_t i = 0; header && i < s->columns; i++) {
        if (ru_str_eq_c(cells[i], opt->label)) {
            s->label = i;
            return RU_OK;
        }
    }
    if (strcmp(opt->label, "none") == 0) {
        s->label = -1;
        return RU_OK;
    }
    if (ru_str_i64(ru_str_c(opt->label), &number) && number >= 1 && number <= s->columns) {
        s->label = number - 1;
        return RU_OK;
    }
    return RU_FAIL(
        err, RU_E_CONFIG, "%s: label is '%s'; expected %s1 to %lld, or 'none'", c->path, opt->label,
        header ? "a name in the first line, a column number from " : "a column number from ",
        (long long)s->columns);
}

/* Looks at the first line: width, label column, and whether it is a header. */
static ru_status first_row(csv_set *s, const cursor *c, const ru_data_options *opt, bool *header,
                           ru_err *err)
{
    const ru_str *cells = s->cells.p;
    int64_t columns = s->cells.n / (int64_t)sizeof *cells;
    bool first_file = s->columns == 0;
    s->columns = first_file ? columns : s->columns;
    *header = opt->header;
    bool words = true; /* no cell is a number: names of the columns */
    for (int64_t i = 0; i < columns; i++) {
        double v;
        words = words && !rui_number(cells[i].p, cells[i].n, &v) && !is_missing(cells[i]);
    }
    *header = *header || (words && (columns > 1 || opt->label != NULL));
    if (first_file) {
        RU_TRY(find_label(s, c, opt, *header, err));
        if (s->columns - (s->label >= 0) < 1) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s:%lld: the line has only a label and no other column; set label to "
                           "'none' if the column is data",
                           c->path, (long long)c->row_line);
        }
    }
    return RU_OK;
}

static ru_status add_row(csv_set *s, const cursor *c, uint32_t file, ru_err *err)
{
    const ru_str *cells = s->cells.p;
    int64_t columns = s->cells.n / (int64_t)sizeof *cells, features = s->columns - (s->label >= 0);
    if (columns != s->columns) {
        return RU_FAIL(err, RU_E_DATA, "%s:%lld: the line has %lld columns, but %lld were expected",
                       c->path, (long long)c->row_line, (long long)columns, (long long)s->columns);
    }
    float *x = rui_buf_push(&s->x, features * (int64_t)sizeof *x);
    if (x == NULL) {
        return rui_no_memory(err, c->path, s->x.n);
    }
    for (int64_t i = 0; i < columns; i++) {
        if (i == s->label) {
            if (is_missing(cells[i])) {
                return cell_fail(c, i, cells[i], err);
            }
            RU_TRY(rui_labels_add(&s->labels, cells[i], file, c->row_line, err));
            continue;
        }
        double v;
        if (!rui_number(cells[i].p, cells[i].n, &v)) {
            return cell_fail(c, i, cells[i], err);
        }
        *x = (float)v;
        if (!isfinite(*x++)) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s:%lld: column %lld is '%.*s', which is too large for a 32-bit number",
                           c->path, (long long)c->row_line, (long long)i + 1, (int)cells[i].n,
                           cells[i].p);
        }
    }
    return RU_OK;
}

static ru_status parse_file(ru_dataset *d, const ru_data_options *opt, const rui_source *file,
                            uint32_t index, ru_err *err)
{
    csv_set *s = d->self;
    const char *text = (const char *)file->bytes;
    cursor c = {text, text + file->size_bytes, opt->paths[index], 1, 1, ','};
    if (file->size_bytes >= 3 && memcmp(c.p, "\xef\xbb\xbf", 3) == 0) {
        c.p += 3;
    }
    c.sep = find_separator(&c);
    bool first = true, found = false;
    while (true) {
        RU_TRY(next_row(s, &c, &found, err));
        if (!found) {
            return RU_OK;
        }
        bool header = false;
        if (first) {
            RU_TRY(first_row(s, &c, opt, &header, err));
            first = false;
        }
        if (!header) {
            int64_t x_n = s->x.n, labels_n = s->labels.rows.n;
            ru_status st = add_row(s, &c, index, err);
            if (st == RU_E_DATA && d->skip_damaged) {
                s->x.n = x_n;
                s->labels.rows.n = labels_n;
                rui_skip_note(d);
            } else if (st != RU_OK) {
                return st;
            }
        }
    }
}

static ru_status csv_open(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    if (opt->n_paths < 1) {
        return RU_FAIL(err, RU_E_CONFIG, "csv: no files are named");
    }
    csv_set *s = d->self = RU_NEW(&d->arena, csv_set, 1);
    rui_source *files = RU_NEW(&d->arena, rui_source, opt->n_paths);
    if (s == NULL || files == NULL) {
        return rui_no_memory(err, "csv", sizeof *s);
    }
    s->labels.paths = opt->paths;
    ru_status st = RU_OK;
    for (uint32_t i = 0; st == RU_OK && i < opt->n_paths; i++) {
        st = rui_source_open(&d->arena, &d->objects, opt->paths[i], INT64_MAX, false, &files[i],
                             err);
        d->bytes += files[i].disk_bytes;
        if (st == RU_OK) {
            st = parse_file(d, opt, &files[i], i, err);
        }
    }
    int64_t features = s->columns - (s->label >= 0);
    if (st == RU_OK && s->x.n > 0) {
        d->count = s->x.n / (features * (int64_t)sizeof(float));
        rui_field_add(d, "x", RU_F32, 1, &features);
        if (s->label >= 0) {
            st = rui_labels_resolve(d, opt, &s->labels, &s->y, err);
        }
    }
    for (uint32_t i = 0; i < opt->n_paths; i++) {
        rui_source_close(&files[i]);
    }
    rui_buf_free(&s->labels.rows);
    rui_buf_free(&s->cells);
    rui_buf_fit(&s->x);
    return st;
}

static ru_status csv_read(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err)
{
    (void)err;
    const csv_set *s = d->self;
    int64_t bytes = d->field_bytes[0];
    memcpy(fields[0], (const uint8_t *)s->x.p + index * bytes, (size_t)bytes);
    if (s->label >= 0) {
        rui_label_put(d, s->y, index, fields[1]);
    }
    return RU_OK;
}

static void csv_close(ru_dataset *d)
{
    csv_set *s = d->self;
    if (s != NULL) {
        rui_buf_free(&s->x);
    }
}

const rui_format rui_format_csv = {
    .name = "csv",
    .help = "numbers in columns, one of them the label: [file, ...], also tsv",
    .open = csv_open,
    .read = csv_read,
    .close = csv_close,
};
