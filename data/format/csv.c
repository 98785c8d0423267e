/* CSV: numbers in columns, one of them the label; read into one table of f32.
 *
 * Cells are separated by commas, semicolons or tabs (whichever is most frequent in the first line).
 * The first line is the header when the option says so, or when a cell of it is no number where
 * numbers are expected. Columns are found by their names, wherever a file has them
 * (data/format/columns.h). A missing value is an error unless the job says what becomes of it. */
#include "data/format/csv_text.h"

#include <string.h>

#include "base/log.h"

typedef struct csv_file {
    rui_source source;
    char *text; /* [n] as UTF-8 */
    int64_t n;
    rui_column_map map;
    bool header, mapped; /* its first line was looked at */
} csv_file;

typedef enum csv_pass {
    PASS_LOOK, /* which columns hold texts? */
    PASS_ROWS,
} csv_pass;

typedef struct csv_set {
    rui_buf x; /* f32 [count, inputs] */
    const void *y;
    rui_labels labels;
    rui_csv text;       /* the file being parsed */
    csv_file *file;     /* that one */
    ru_columns columns; /* those given, or of the first file; n 0: not known yet */
    rui_columns_told told;
    rui_learn learn;
    bool learns;     /* how the inputs are prepared */
    bool labelled;   /* the label is read */
    bool unlabelled; /* it need not be there: each row counts */
    int64_t inputs;  /* of a sample; 0: not known yet */
    int64_t rows;    /* so far */
    int64_t dropped; /* rows with a cell that has no value */
} csv_set;

/* The column that an option calls `name`: a name of the header, or a number from 1; -1: none. */
static int64_t find_column(const rui_csv *c, bool header, const char *name)
{
    const ru_str *cells;
    int64_t columns = rui_csv_cells(c, &cells), number;
    for (int64_t i = 0; header && i < columns; i++) {
        if (ru_str_eq_c(cells[i], name)) {
            return i;
        }
    }
    bool is = ru_str_i64(ru_str_c(name), &number) && number >= 1 && number <= columns;
    return is ? number - 1 : -1;
}

/* Column of the label from the option: a name of the header, a number from 1, "none", or the last.
 */
static ru_status find_label(const rui_csv *c, const ru_data_options *opt, bool header,
                            int64_t *label, ru_err *err)
{
    const ru_str *cells;
    int64_t columns = rui_csv_cells(c, &cells);
    *label = opt->label != NULL ? find_column(c, header, opt->label) : columns - 1;
    return *label >= 0 || strcmp(opt->label, "none") == 0
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG, "%s: label is '%s'; expected %s1 to %lld, or 'none'",
                         c->path, opt->label,
                         header ? "a name in the first line, a column number from "
                                : "a column number from ",
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

/* Marks the columns that the options leave out. */
static ru_status find_ignored(ru_dataset *d, const ru_data_options *opt, bool header,
                              ru_columns *columns, bool *ignored, ru_err *err)
{
    const rui_csv *c = &((csv_set *)d->self)->text;
    const ru_conf_texts *names = &opt->prepare->ignore;
    const char **at = RU_NEW(&d->arena, const char *, names->n);
    if (at == NULL) {
        return rui_no_memory(err, c->path, names->n);
    }
    for (uint32_t k = 0; k < names->n; k++) {
        int64_t i = find_column(c, header, names->at[k]);
        if (i < 0 || i == columns->label_place) {
            return RU_FAIL(err, RU_E_CONFIG, "%s: data.columns.ignore names '%.60s', which is %s",
                           c->path, names->at[k],
                           i >= 0   ? "the label"
                           : header ? "neither a name in the first line nor the number of a column"
                                    : "not the number of a column");
        }
        ignored[i] = true;
        at[k] = column_name(d, c, i, header);
        if (at[k] == NULL) {
            return rui_no_memory(err, c->path, names->n);
        }
    }
    columns->ignored = (ru_conf_texts){.at = at, .n = names->n};
    return RU_OK;
}

/* The first line of all says which columns there are. */
static ru_status take_columns(ru_dataset *d, const ru_data_options *opt, bool header, ru_err *err)
{
    csv_set *s = d->self;
    const rui_csv *c = &s->text;
    const ru_str *cells;
    int64_t width = rui_csv_cells(c, &cells), label;
    RU_TRY(find_label(c, opt, header, &label, err));
    ru_column *at = RU_NEW(&d->arena, ru_column, width);
    bool *ignored = RU_NEW(&d->arena, bool, width);
    ru_columns columns = {.at = at, .named = header, .width = width, .label_place = label};
    bool fits = at != NULL && ignored != NULL;
    if (fits && s->learns) {
        RU_TRY(find_ignored(d, opt, header, &columns, ignored, err));
    }
    if (label >= 0) {
        columns.label = column_name(d, c, label, header);
        fits = fits && columns.label != NULL;
    }
    for (int64_t i = 0; fits && i < width; i++) {
        if (i != label && !ignored[i]) {
            at[columns.n] = (ru_column){.name = column_name(d, c, i, header), .place = i};
            fits = at[columns.n++].name != NULL;
        }
    }
    if (!fits) {
        return rui_no_memory(err, c->path, width * (int64_t)sizeof *at);
    }
    if (columns.n == 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s:%lld: the line has only a label and no other column; set label to "
                       "'none' if the column is data%s",
                       c->path, (long long)c->row_line,
                       columns.ignored.n > 0 ? ", or leave fewer out in data.columns.ignore" : "");
    }
    s->columns = columns;
    return s->learns ? rui_learn_open(&s->learn, opt->prepare, &s->columns, &d->arena, c->path, err)
                     : RU_OK;
}

/* Looks at the first line of a file: is it a header, and where are the columns? */
static ru_status first_row(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    csv_set *s = d->self;
    const ru_str *cells;
    int64_t width = rui_csv_cells(&s->text, &cells);
    bool header = opt->header || (rui_columns_header(&s->columns, &s->text) &&
                                  (width > 1 || opt->label != NULL || s->columns.n > 0));
    if (s->columns.n == 0) {
        RU_TRY(take_columns(d, opt, header, err));
    }
    s->labelled = s->columns.label_place >= 0 && !opt->unlabelled;
    s->inputs = ru_columns_inputs(&s->columns);
    s->file->header = header;
    s->file->mapped = true;
    return rui_columns_map(&s->columns, &s->text, header, s->labelled, &d->arena, &s->file->map,
                           err);
}

static ru_status add_row(csv_set *s, uint32_t file, ru_err *err)
{
    const rui_csv *c = &s->text;
    const rui_column_map *map = &s->file->map;
    const ru_str *cells;
    (void)rui_csv_cells(c, &cells);
    RU_TRY(rui_columns_width(map, c, err));
    if (s->columns.missing == RU_MISSING_DROP && !s->unlabelled &&
        rui_columns_missing(&s->columns, map, c)) {
        s->dropped++;
        return RU_OK;
    }
    if (s->learns) {
        RU_TRY(rui_learn_row(&s->learn, &s->columns, map, c, err));
    } else {
        float *x = rui_buf_push(&s->x, s->inputs * (int64_t)sizeof *x);
        if (x == NULL) {
            return rui_no_memory(err, c->path, s->x.n);
        }
        RU_TRY(rui_columns_put(&s->columns, map, c, x, &s->told, err));
    }
    if (s->labelled) {
        ru_str label = cells[map->label];
        if (rui_cell_missing(label)) {
            return rui_cell_fail(c, map->label, NULL, false, label, err);
        }
        RU_TRY(rui_labels_add(&s->labels, label, file, c->row_line, err));
    }
    s->rows++;
    return RU_OK;
}

/* A damaged row that gets an answer all the same. */
static ru_status add_blank(csv_set *s, ru_err *err)
{
    float *x = rui_buf_push(&s->x, s->inputs * (int64_t)sizeof *x);
    if (x == NULL) {
        return rui_no_memory(err, s->text.path, s->x.n);
    }
    rui_columns_blank(&s->columns, x);
    s->rows++;
    return RU_OK;
}

/* A damaged row leaves nothing behind, or a blank one. */
static ru_status try_row(ru_dataset *d, uint32_t file, ru_err *err)
{
    csv_set *s = d->self;
    int64_t x_n = s->x.n, labels_n = s->labels.rows.n, values_n = s->learn.values.n;
    ru_status st = add_row(s, file, err);
    if (st != RU_E_DATA || !d->skip_damaged || (d->blank_damaged && s->labelled)) {
        return st;
    }
    s->x.n = x_n;
    s->labels.rows.n = labels_n;
    s->learn.values.n = values_n;
    rui_skip_note(d, -1, err);
    return d->blank_damaged ? add_blank(s, err) : RU_OK;
}

static ru_status parse_file(ru_dataset *d, const ru_data_options *opt, uint32_t index,
                            csv_pass pass, ru_err *err)
{
    csv_set *s = d->self;
    rui_csv_begin(&s->text, opt->paths[index], s->file->text, s->file->n, 0);
    bool first = true, found = false;
    while (true) {
        RU_TRY(rui_csv_next(&s->text, &found, err));
        if (!found) {
            return RU_OK;
        }
        bool header = false;
        if (first) {
            RU_TRY(rui_csv_trailing(&s->text, err));
            if (!s->file->mapped) {
                RU_TRY(first_row(d, opt, err));
            }
            header = s->file->header;
            first = false;
        }
        if (header) {
            continue;
        }
        if (pass == PASS_LOOK) {
            rui_learn_look(&s->learn, &s->columns, &s->file->map, &s->text);
        } else {
            RU_TRY(try_row(d, index, err));
        }
    }
}

static ru_status parse_all(ru_dataset *d, const ru_data_options *opt, csv_file *files,
                           csv_pass pass, ru_err *err)
{
    csv_set *s = d->self;
    for (uint32_t i = 0; i < opt->n_paths; i++) {
        s->file = &files[i];
        RU_TRY(parse_file(d, opt, i, pass, err));
    }
    return RU_OK;
}

static ru_status open_files(ru_dataset *d, const ru_data_options *opt, csv_file *files, ru_err *err)
{
    for (uint32_t i = 0; i < opt->n_paths; i++) {
        csv_file *f = &files[i];
        RU_TRY(rui_source_open(&d->arena, &d->objects, opt->paths[i], INT64_MAX, false, &f->source,
                               err));
        d->bytes += f->source.disk_bytes;
        RU_TRY(rui_csv_utf8(&f->source, opt->paths[i], &d->arena, &f->text, &f->n, err));
    }
    return RU_OK;
}

/* All rows are known: what the training set teaches, then their inputs. */
static ru_status learn(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    csv_set *s = d->self;
    rui_part part;
    RU_TRY(rui_part_init(&part, opt, s->rows, opt->paths[0], err));
    RU_TRY(rui_learn_end(&s->learn, &part, opt->paths[0], &d->arena, &s->columns, err));
    s->inputs = ru_columns_inputs(&s->columns);
    float *x = rui_buf_push(&s->x, s->rows * s->inputs * (int64_t)sizeof *x);
    if (x == NULL) {
        return rui_no_memory(err, opt->paths[0], s->rows * s->inputs * (int64_t)sizeof *x);
    }
    for (int64_t i = 0; i < s->rows; i++) {
        ru_status st = rui_learn_put(&s->learn, &s->columns, i, x + i * s->inputs, err);
        if (st != RU_OK) {
            return ru_err_wrap(err, st, "%s", opt->paths[0]);
        }
    }
    ru_log(RU_LOG_INFO, "data", "columns", "%s: %u columns become %lld inputs%s", opt->paths[0],
           s->columns.n, (long long)s->inputs, s->columns.normalize ? ", normalised" : "");
    return RU_OK;
}

static ru_status read_all(ru_dataset *d, const ru_data_options *opt, csv_file *files, ru_err *err)
{
    csv_set *s = d->self;
    RU_TRY(open_files(d, opt, files, err));
    if (s->learns) { /* the first file's first line says whether all rows must be looked at */
        RU_TRY(parse_all(d, opt, files, PASS_LOOK, err));
    }
    RU_TRY(parse_all(d, opt, files, PASS_ROWS, err));
    if (s->dropped > 0) {
        ru_log(RU_LOG_INFO, "data", "columns",
               "%s: %lld of %lld rows have a cell without a value and are left out "
               "(data.columns.missing: drop)",
               opt->paths[0], (long long)s->dropped, (long long)(s->rows + s->dropped));
    }
    if (s->rows == 0) {
        return s->dropped == 0 ? RU_OK
                               : RU_FAIL(err, RU_E_DATA,
                                         "%s: every row has a cell without a value, and "
                                         "data.columns.missing is drop; set it to mean",
                                         opt->paths[0]);
    }
    if (s->learns) {
        RU_TRY(learn(d, opt, err));
    }
    d->count = s->rows;
    rui_field_add(d, "x", RU_F32, 1, &s->inputs);
    d->columns = &s->columns;
    return s->labelled ? rui_labels_resolve(d, opt, &s->labels, &s->y, err) : RU_OK;
}

static ru_status csv_open(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    if (opt->n_paths < 1) {
        return RU_FAIL(err, RU_E_CONFIG, "csv: no files are named");
    }
    csv_set *s = d->self = RU_NEW(&d->arena, csv_set, 1);
    csv_file *files = RU_NEW(&d->arena, csv_file, opt->n_paths);
    if (s == NULL || files == NULL) {
        return rui_no_memory(err, "csv", sizeof *s);
    }
    s->labels.paths = opt->paths;
    s->unlabelled = opt->unlabelled;
    bool known = opt->columns != NULL && opt->columns->n > 0;
    s->learns = !known && opt->prepare != NULL;
    if (known) {
        RU_TRY(ru_columns_copy(opt->columns, &d->arena, &s->columns, err));
    }
    ru_status st = read_all(d, opt, files, err);
    for (uint32_t i = 0; i < opt->n_paths; i++) {
        rui_source_close(&files[i].source);
    }
    rui_learn_close(&s->learn);
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
