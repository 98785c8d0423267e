/* CSV: numbers in columns, one of them the label; read into one table of f32.
 *
 * Cells are separated by commas, semicolons or tabs (whichever is most frequent in the first line).
 * The first line is the header when the option says so, or when a cell of it is no number where
 * numbers are expected. Columns are found by their names, wherever a file has them
 * (data/columns.h). A missing value is an error, never a guess. */
#include "data/csv_text.h"

#include <string.h>

typedef struct csv_set {
    rui_buf x; /* f32 [count, columns.n] */
    const void *y;
    rui_labels labels;
    rui_csv text;       /* the file being parsed */
    rui_column_map map; /* of it */
    ru_columns columns; /* those given, or of the first file; n 0: not known yet */
    rui_columns_told told;
    bool labelled;      /* the label is read */
} csv_set;

/* Column of the label from the option: a name of the header, a number from 1, "none", or the last.
 */
static ru_status find_label(const rui_csv *c, const ru_data_options *opt, bool header,
                            int64_t *label, ru_err *err)
{
    const ru_str *cells;
    int64_t columns = rui_csv_cells(c, &cells), number;
    *label = columns - 1;
    if (opt->label == NULL) {
        return RU_OK;
    }
    for (int64_t i = 0; header && i < columns; i++) {
        if (ru_str_eq_c(cells[i], opt->label)) {
            *label = i;
            return RU_OK;
        }
    }
    if (strcmp(opt->label, "none") == 0) {
        *label = -1;
        return RU_OK;
    }
    if (ru_str_i64(ru_str_c(opt->label), &number) && number >= 1 && number <= columns) {
        *label = number - 1;
        return RU_OK;
    }
    return RU_FAIL(
        err, RU_E_CONFIG, "%s: label is '%s'; expected %s1 to %lld, or 'none'", c->path, opt->label,
        header ? "a name in the first line, a column number from " : "a column number from ",
        (long long)columns);
}

/* The name of column `i`: that of the first line, or its number. */
static const char *column_name(ru_dataset *d, const rui_csv *c, int64_t i, bool header)
{
    const ru_str *cells;
    (void)rui_csv_cells(c, &cells);
    return header ? ru_arena_strn(&d->arena, cells[i].p, cells[i].n)
                  : ru_arena_printf(&d->arena, "%lld", (long long)i + 1);
}

/* The first line of all says which columns there are. */
static ru_status take_columns(ru_dataset *d, const ru_data_options *opt, bool header, ru_err *err)
{
    csv_set *s = d->self;
    const rui_csv *c = &s->text;
    const ru_str *cells;
    int64_t width = rui_csv_cells(c, &cells), label;
    RU_TRY(find_label(c, opt, header, &label, err));
    if (width - (label >= 0) < 1) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s:%lld: the line has only a label and no other column; set label to "
                       "'none' if the column is data",
                       c->path, (long long)c->row_line);
    }
    ru_column *at = RU_NEW(&d->arena, ru_column, width);
    ru_columns columns = {.at = at, .named = header, .width = width, .label_place = label};
    bool fits = at != NULL;
    if (label >= 0) {
        columns.label = column_name(d, c, label, header);
        fits = fits && columns.label != NULL;
    }
    for (int64_t i = 0; fits && i < width; i++) {
        if (i != label) {
            at[columns.n] = (ru_column){.name = column_name(d, c, i, header), .place = i};
            fits = at[columns.n++].name != NULL;
        }
    }
    if (!fits) {
        return rui_no_memory(err, c->path, width * (int64_t)sizeof *at);
    }
    s->columns = columns;
    return RU_OK;
}

/* Looks at the first line of a file: is it a header, and where are the columns? */
static ru_status first_row(ru_dataset *d, const ru_data_options *opt, bool *header, ru_err *err)
{
    csv_set *s = d->self;
    const ru_str *cells;
    int64_t width = rui_csv_cells(&s->text, &cells);
    *header = opt->header || (rui_columns_header(&s->columns, &s->text) &&
                              (width > 1 || opt->label != NULL || s->columns.n > 0));
    if (s->columns.n == 0) {
        RU_TRY(take_columns(d, opt, *header, err));
    }
    s->labelled = s->columns.label_place >= 0 && !opt->unlabelled;
    return rui_columns_map(&s->columns, &s->text, *header, s->labelled, &d->arena, &s->map, err);
}

static ru_status add_row(csv_set *s, uint32_t file, ru_err *err)
{
    const rui_csv *c = &s->text;
    const ru_str *cells;
    (void)rui_csv_cells(c, &cells);
    float *x = rui_buf_push(&s->x, s->columns.n * (int64_t)sizeof *x);
    if (x == NULL) {
        return rui_no_memory(err, c->path, s->x.n);
    }
    RU_TRY(rui_columns_put(&s->columns, &s->map, c, x, &s->told, err));
    if (!s->labelled) {
        return RU_OK;
    }
    ru_str label = cells[s->map.label];
    if (rui_cell_missing(label)) {
        return rui_cell_fail(c, s->map.label, NULL, label, err);
    }
    return rui_labels_add(&s->labels, label, file, c->row_line, err);
}

static ru_status parse_file(ru_dataset *d, const ru_data_options *opt, const rui_source *file,
                            uint32_t index, ru_err *err)
{
    csv_set *s = d->self;
    char *text = NULL;
    int64_t n = 0;
    RU_TRY(rui_csv_utf8(file, opt->paths[index], &d->arena, &text, &n, err));
    rui_csv_begin(&s->text, opt->paths[index], text, n);
    bool first = true, found = false;
    while (true) {
        RU_TRY(rui_csv_next(&s->text, &found, err));
        if (!found) {
            return RU_OK;
        }
        bool header = false;
        if (first) {
            RU_TRY(rui_csv_trailing(&s->text, err));
            RU_TRY(first_row(d, opt, &header, err));
            first = false;
        }
        if (!header) {
            int64_t x_n = s->x.n, labels_n = s->labels.rows.n;
            ru_status st = add_row(s, index, err);
            if (st == RU_E_DATA && d->skip_damaged) {
                s->x.n = x_n;
                s->labels.rows.n = labels_n;
                rui_skip_note(d, -1, err);
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
    if (opt->columns != NULL && opt->columns->n > 0) {
        RU_TRY(ru_columns_copy(opt->columns, &d->arena, &s->columns, err));
    }
    ru_status st = RU_OK;
    for (uint32_t i = 0; st == RU_OK && i < opt->n_paths; i++) {
        st = rui_source_open(&d->arena, &d->objects, opt->paths[i], INT64_MAX, false, &files[i],
                             err);
        d->bytes += files[i].disk_bytes;
        if (st == RU_OK) {
            st = parse_file(d, opt, &files[i], i, err);
        }
    }
    int64_t features = s->columns.n;
    if (st == RU_OK && s->x.n > 0) {
        d->count = s->x.n / (features * (int64_t)sizeof(float));
        rui_field_add(d, "x", RU_F32, 1, &features);
        d->columns = &s->columns;
        if (s->labelled) {
            st = rui_labels_resolve(d, opt, &s->labels, &s->y, err);
        }
    }
    for (uint32_t i = 0; i < opt->n_paths; i++) {
        rui_source_close(&files[i]);
    }
    rui_buf_free(&s->labels.rows);
    rui_buf_free(&s->text.cells);
    rui_buf_fit(&s->x);
    return st;
}

static ru_status csv_read(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err)
{
    (void)err;
    const csv_set *s = d->self;
    int64_t bytes = d->field_bytes[0];
    memcpy(fields[0], (const uint8_t *)s->x.p + index * bytes, (size_t)bytes);
    if (s->labelled) {
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
