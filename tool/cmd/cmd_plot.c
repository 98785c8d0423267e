/* rubato plot: loss, metrics and throughput of runs as a picture. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "env/file/file.h"
#include "env/process/process.h"
#include "tool/cmd.h"
#include "tool/cmd/plot.h"

enum { SERIES_MAX = 16, RUNS_MAX = 6 };

/* One figure over the steps of one run. */
typedef struct series {
    const char *name; /* loss, samples_per_s, ...; of evaluations "test loss" */
    const char *panel;
    double *x, *y;
    int64_t n;
} series;

typedef struct run_data {
    const char *name;
    series at[SERIES_MAX];
    uint32_t n;
    int64_t lines; /* of its metrics file: as many points at most */
} run_data;

static ru_status put(run_data *r, const char *name, const char *panel, double x, double y,
                     ru_arena *arena, ru_err *err)
{
    series *s = NULL;
    for (uint32_t k = 0; k < r->n && s == NULL; k++) {
        s = strcmp(r->at[k].name, name) == 0 ? &r->at[k] : NULL;
    }
    if (s == NULL && r->n < SERIES_MAX) {
        s = &r->at[r->n++];
        s->name = ru_arena_str(arena, name);
        s->panel = ru_arena_str(arena, panel);
        s->x = RU_NEW(arena, double, r->lines);
        s->y = RU_NEW(arena, double, r->lines);
    }
    if (s != NULL && (s->name == NULL || s->panel == NULL || s->x == NULL || s->y == NULL)) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %lld points", (long long)r->lines);
    }
    if (s != NULL && s->n < r->lines) {
        s->x[s->n] = x;
        s->y[s->n++] = y;
    }
    return RU_OK;
}

static double number(const json_t *o)
{
    return json_is_number(o) ? json_number_value(o) : RU_NAN;
}

static ru_status read_line(run_data *r, const json_t *o, ru_arena *arena, ru_err *err)
{
    const char *schema = json_string_value(json_object_get(o, "schema"));
    double step = number(json_object_get(o, "step"));
    if (schema == NULL || !isfinite(step)) {
        return RU_OK;
    }
    if (strcmp(schema, "rubato.train.step/1") == 0) {
        double rate = number(json_object_get(o, "samples_per_s"));
        RU_TRY(put(r, "loss", "loss", step, number(json_object_get(o, "loss")), arena, err));
        static const char *const rows[][3] = {{"accuracy", "accuracy", "accuracy"},
                                              {"norm", "gradient norm", "gradient norm"},
                                              {"lr", "lr", "learning rate"}};
        for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
            double v = number(json_object_get(o, rows[k][0]));
            RU_TRY(isfinite(v) ? put(r, rows[k][1], rows[k][2], step, v, arena, err) : RU_OK);
        }
        return put(r, "samples/s", "samples/s", step, rate, arena, err);
    }
    if (strcmp(schema, "rubato.train.eval/1") == 0) {
        const char *key;
        json_t *v, *metric = json_object_get(o, "metric");
        json_object_foreach(metric, key, v)
        {
            char name[80];
            (void)snprintf(name, sizeof name, "test %.60s", key);
            RU_TRY(put(r, name, key, step, number(v), arena, err));
        }
    }
    return RU_OK;
}

/* -- curves of learning rates ------------------------------------------------------------------ */

/* The file that --find-lr writes: `path` itself, or in the folder `path`; NULL: there is none. */
static const char *curve_of(const char *path, ru_arena *arena)
{
    const char *inside = ru_path_join(arena, path, "find-lr.csv");
    bool file = ru_path_is_file(path) && ru_str_ends(ru_str_c(path), ".csv");
    return file ? path : inside != NULL && ru_path_is_file(inside) ? inside : NULL;
}

/* Lines "lr,loss,mean" as two lines over log10(lr): the losses, pale, and their moving mean. What
 * lies far above the first loss is left out, or the fall before it would be flat. */
static ru_status read_curve(const char *path, ru_arena *arena, uint32_t style, ru_plot_line *out,
                            ru_err *err)
{
    char *text;
    int64_t size, n = 0;
    RU_TRY(ru_file_read(path, 0, arena, &text, &size, err));
    ru_str rest = ru_str_n(text, size), row;
    double *at[3] = {RU_NEW(arena, double, size), RU_NEW(arena, double, size),
                     RU_NEW(arena, double, size)};
    if (at[0] == NULL || at[1] == NULL || at[2] == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the curve in %s", path);
    }
    (void)ru_str_next(&rest, '\n', &row);
    bool head = ru_str_eq_c(row, "lr,loss,mean");
    for (int64_t line = 2; head && ru_str_next(&rest, '\n', &row); line++) {
        ru_str cell;
        double v[3] = {0};
        for (uint32_t k = 0; k < 3; k++) {
            if (row.n > 0 && (!ru_str_next(&row, ',', &cell) || !ru_str_f64(cell, &v[k]) ||
                              (k == 0 && !(v[0] > 0)))) {
                return RU_FAIL(err, RU_E_DATA,
                               "%s:%lld: expected a learning rate above 0, a loss "
                               "and its mean",
                               path, (long long)line);
            }
        }
        if (v[0] > 0) {
            at[0][n] = log10(v[0]);
            for (uint32_t k = 1; k < 3; k++) {
                at[k][n] = n > 0 && fabs(v[k]) > 2 * fabs(at[2][0]) ? RU_NAN : v[k];
            }
            n++;
        }
    }
    if (n == 0) {
        return RU_FAIL(err, RU_E_DATA, "%s: %s; expected a curve of `rubato train --find-lr`", path,
                       head ? "there is no learning rate" : "the first line is not lr,loss,mean");
    }
    out[0] =
        (ru_plot_line){.name = path, .x = at[0], .y = at[1], .n = n, .style = style, .faint = true};
    out[1] = (ru_plot_line){.name = path, .x = at[0], .y = at[2], .n = n, .style = style};
    return RU_OK;
}

static ru_status draw_curves(ru_cmd_in *in, ru_text *svg, ru_err *err)
{
    ru_plot_line lines[2 * RUNS_MAX];
    for (uint32_t r = 0; r < in->n_args; r++) {
        const char *path = curve_of(in->args[r], in->arena);
        if (path == NULL) {
            return RU_FAIL(
                err, RU_E_USAGE,
                "%s has no find-lr.csv; curves of learning rates and runs do not go into "
                "one picture",
                in->args[r]);
        }
        RU_TRY(read_curve(path, in->arena, r, &lines[2 * (size_t)r], err));
        lines[2 * (size_t)r + 1].name = in->n_args == 1 ? "loss" : in->args[r];
    }
    const ru_plot_panel panel = {"loss", lines, 2 * in->n_args};
    ru_plot_svg(&panel, 1, "learning rate", true, svg);
    return RU_OK;
}

/* -- runs -------------------------------------------------------------------------------------- */

static ru_status read_run(const char *dir, ru_arena *arena, run_data *r, ru_err *err)
{
    const char *path = ru_path_join(arena, dir, "metrics.jsonl"), *slash;
    char *text;
    int64_t size;
    if (!ru_path_is_file(path)) {
        return RU_FAIL(err, RU_E_MISSING,
                       "%s has no metrics.jsonl; name the folder of a run of `rubato train`", dir);
    }
    RU_TRY(ru_file_read(path, 0, arena, &text, &size, err));
    char *name = ru_arena_str(arena, dir);
    while (name[0] != 0 && name[1] != 0 && name[strlen(name) - 1] == '/') {
        name[strlen(name) - 1] = 0;
    }
    slash = strrchr(name, '/');
    *r = (run_data){.name = slash != NULL && slash[1] != 0 ? slash + 1 : name};
    ru_str rest = ru_str_n(text, size), one;
    while (ru_str_next(&rest, '\n', &one)) {
        r->lines++;
    }
    rest = ru_str_n(text, size);
    ru_status st = RU_OK;
    while (st == RU_OK && ru_str_next(&rest, '\n', &one)) {
        json_t *o = json_loadb(one.p, (size_t)one.n, 0, NULL); /* NULL: the torn line of a kill */
        st = o != NULL ? read_line(r, o, arena, err) : RU_OK;
        json_decref(o);
    }
    if (st == RU_OK && r->n == 0) {
        return RU_FAIL(err, RU_E_DATA, "%s contains no step yet", path);
    }
    return st;
}

/* The figures of steps vary from step to step: means of neighbours, at most WINDOWS of them. Rates
 * are averaged over time. */
static void smooth(const series *s, ru_arena *arena, ru_plot_line *to)
{
    enum { WINDOWS = 80 };
    int64_t per = (s->n + WINDOWS - 1) / WINDOWS, n = 0;
    double *x = RU_NEW(arena, double, WINDOWS), *y = RU_NEW(arena, double, WINDOWS);
    bool rate = strcmp(s->name, "samples/s") == 0;
    if (x == NULL || y == NULL) {
        return; /* as it is */
    }
    for (int64_t i = 0; i < s->n; i += per, n++) {
        double sum = 0, at = 0, count = 0;
        for (int64_t k = i; k < i + per && k < s->n; k++) {
            bool there = isfinite(s->y[k]) && (!rate || s->y[k] > 0);
            sum += !there ? 0 : rate ? 1 / s->y[k] : s->y[k];
            count += there ? 1 : 0;
            at += s->x[k];
        }
        int64_t m = s->n - i < per ? s->n - i : per;
        x[n] = at / (double)m;
        y[n] = count > 0 ? (rate ? count / sum : sum / count) : RU_NAN;
    }
    to->x = x;
    to->y = y;
    to->n = n;
}

/* The lines of all runs that belong to `panel`; of one run also the figures before smoothing. */
static uint32_t lines_of(const run_data *runs, uint32_t n, const char *panel, ru_arena *arena,
                         ru_plot_line *out)
{
    uint32_t found = 0;
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t k = 0; k < runs[r].n; k++) {
            const series *s = &runs[r].at[k];
            if (strcmp(s->panel, panel) != 0) {
                continue;
            }
            bool test = ru_str_starts(ru_str_c(s->name), "test ");
            const char *label =
                n == 1 ? s->name
                       : ru_arena_printf(arena, "%s%s", runs[r].name, test ? " (test)" : "");
            const ru_plot_line line = {.name = label != NULL ? label : s->name,
                                       .x = s->x,
                                       .y = s->y,
                                       .n = s->n,
                                       .style = n == 1 ? test : r,
                                       .marks = test};
            if (n == 1 && !test && s->n > 1 && strcmp(panel, "samples/s") != 0) {
                out[found] = line;
                out[found++].faint = true;
            }
            out[found++] = line;
            if (!test) {
                smooth(s, arena, &out[found - 1]);
            }
        }
    }
    return found;
}

/* Is the panel wanted? `only`: names given with --only; none: all but learning rate and gradient
 * norm. */
static bool wanted(const char *panel, const char *const *only, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        if (strcmp(only[k], panel) == 0) {
            return true;
        }
    }
    return n == 0 && strcmp(panel, "learning rate") != 0 && strcmp(panel, "gradient norm") != 0;
}

static ru_status draw_runs(ru_cmd_in *in, ru_text *svg, ru_err *err)
{
    run_data runs[RUNS_MAX];
    ru_plot_panel panels[SERIES_MAX];
    uint32_t n = 0, n_only;
    const char *const *only = ru_cmd_texts(in, "only", &n_only);
    ru_text have = ru_text_arena(in->arena);
    for (uint32_t r = 0; r < in->n_args; r++) {
        RU_TRY(read_run(in->args[r], in->arena, &runs[r], err));
    }
    for (uint32_t r = 0; r < in->n_args; r++) {
        for (uint32_t k = 0; k < runs[r].n; k++) {
            const char *panel = runs[r].at[k].panel;
            bool known = false;
            for (uint32_t p = 0; p < n; p++) {
                known = known || strcmp(panels[p].title, panel) == 0;
            }
            if (r == 0 && ru_str_find(ru_str_n(have.p, have.n), panel) < 0) {
                ru_text_putf(&have, "%s%s", have.n > 0 ? ", " : "", panel);
            }
            if (known || n == SERIES_MAX || !wanted(panel, only, n_only)) {
                continue;
            }
            ru_plot_line *lines = RU_NEW(in->arena, ru_plot_line, 2 * SERIES_MAX * RUNS_MAX);
            if (lines == NULL) {
                return RU_FAIL(err, RU_E_MEM, "no memory for the picture");
            }
            panels[n++] =
                (ru_plot_panel){panel, lines, lines_of(runs, in->n_args, panel, in->arena, lines)};
        }
    }
    if (n == 0) {
        return RU_FAIL(err, RU_E_USAGE, "--only names no figure of this run; it has %s", have.p);
    }
    ru_plot_svg(panels, n, "step", false, svg);
    return RU_OK;
}

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n > m && strcasecmp(path + n - m, end) == 0;
}

/* PNG is drawn by librsvg's program where it is installed: text needs fonts, which it has. */
static ru_status write_png(const char *out, const ru_text *svg, ru_err *err)
{
    const char *const argv[] = {"rsvg-convert", "--format=png", "--output", out, NULL};
    const ru_process_options opt = {.argv = argv, .pipe_in = true};
    ru_process *p = NULL;
    ru_status st = ru_process_start(&opt, &p, err);
    st = st == RU_OK ? ru_process_write(p, svg->p, svg->n, err) : st;
    int code = st == RU_OK ? ru_process_wait(p) : 1;
    ru_process_close(p);
    if (code != 0) {
        return RU_FAIL(
            err, RU_E_PEER,
            "%s: PNG is drawn by rsvg-convert (Debian package librsvg2-bin), which is not "
            "installed or failed; name a file that ends in .svg, which every browser shows",
            out);
    }
    return RU_OK;
}

static ru_status write_picture(const char *out, const ru_text *svg, ru_err *err)
{
    static const char *const others[] = {".jpg", ".jpeg", ".pdf", ".gif", ".webp", ".eps", ".ps"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(others); k++) {
        if (ends_with(out, others[k])) {
            return RU_FAIL(
                err, RU_E_USAGE,
                "--out %s: the picture is SVG or PNG; name a file that ends in .svg or .png", out);
        }
    }
    return ends_with(out, ".png") ? write_png(out, svg, err)
                                  : ru_file_replace(out, svg->p, svg->n, err);
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    ru_text svg = ru_text_arena(in->arena);
    const char *curve = curve_of(in->args[0], in->arena), *out = ru_cmd_text(in, "out");
    RU_TRY(curve != NULL ? draw_curves(in, &svg, err) : draw_runs(in, &svg, err));
    if (out == NULL) { /* find-lr.csv -> find-lr.svg */
        out = curve != NULL ? ru_arena_printf(in->arena, "%.*s.svg", (int)strlen(curve) - 4, curve)
                            : ru_path_join(in->arena, in->args[0], "plot.svg");
    }
    if (svg.cut || out == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the picture");
    }
    RU_TRY(write_picture(out, &svg, err));
    printf("%s\n", out);
    return RU_OK;
}

static const ru_opt opts[] = {
    RU_OPT(TEXT, "out", "FILE",
           "SVG file to write, or PNG (FILE.png, drawn by rsvg-convert; default: plot.svg in the "
           "folder of the first run, find-lr.svg "
           "beside find-lr.csv)",
           .letter = 'o'),
    RU_OPT(TEXTS, "only", "FIGURE",
           "figure to draw: loss, accuracy, samples/s, learning rate, gradient norm, ...; may be "
           "given several times (default: all but learning rate and gradient norm)"),
};

static const ru_example examples[] = {
    {"rubato plot runs/digits-1", "draw loss, metrics and throughput of a run"},
    {"rubato plot runs/digits-1 runs/digits-2 -o compare.svg", "compare runs"},
    {"rubato plot runs/digits-1 --only loss --only 'learning rate'", "draw two figures"},
};

const ru_cmd rui_cmd_plot = {
    .name = "plot",
    .summary = "draw loss, metrics and throughput of runs",
    .about =
        "Reads the metrics.jsonl of each run and writes one SVG picture, which every browser "
        "shows. The x axis is the step; lines of steps are means of neighbours. A run may still "
        "be training.",
    RU_CMD_ARGS("RUN...", 1, RUNS_MAX),
    RU_CMD_LISTS(opts, examples),
    .exits = "65 a run has no step yet|66 a folder is not a run|69 rsvg-convert is not there",
    .run = run,
};
