/* Reports: filling and showing them. */
#include "plan/row/report.h"

#include <math.h>
#include <string.h>

#include "base/fields.h"
#include "base/unit.h"

typedef union cell {
    bool b;
    uint32_t u;
    uint8_t u8;
    int64_t i;
    double d;
    const char *text;
} cell;

static uint32_t bytes_of(ru_report_type type)
{
    return type == RU_REPORT_BOOL || type == RU_REPORT_CHOICE8 ? sizeof(uint8_t)
           : type == RU_REPORT_U32 || type == RU_REPORT_CHOICE ? sizeof(uint32_t)
                                                               : sizeof(int64_t);
}

static double number_at(const ru_report_row *w, const uint8_t *at)
{
    cell c;
    memcpy(&c, at, bytes_of(w->type));
    switch (w->type) {
    case RU_REPORT_BOOL:
        return c.b;
    case RU_REPORT_U32:
    case RU_REPORT_CHOICE:
        return c.u;
    case RU_REPORT_CHOICE8:
        return c.u8;
    case RU_REPORT_I64:
        return (double)c.i;
    case RU_REPORT_NS:
        return (double)c.i * 1e-9;
    case RU_REPORT_F64:
    case RU_REPORT_TEXT:
        break;
    }
    return c.d;
}

void ru_report_init(ru_report *r, ru_arena *arena, const void *plan, const ru_report_row *rows,
                    uint32_t n_rows)
{
    *r = (ru_report){.arena = arena, .plan = plan, .rows = rows, .n_rows = n_rows};
    for (uint32_t i = 0; i < n_rows; i++) {
        double v = rows[i].figure ? number_at(&rows[i], (const uint8_t *)plan + rows[i].at) : 0;
        if (rows[i].figure && isfinite(v)) {
            ru_report_figure(r, rows[i].name, v);
        }
    }
}

static const char *kept(ru_report *r, const char *text)
{
    const char *copy = ru_arena_str(r->arena, text);
    r->full = r->full || copy == NULL;
    return copy != NULL ? copy : "";
}

static RU_PRINTF(3, 0) void push_text(ru_report *r, ru_report_texts *list, const char *fmt,
                                      va_list ap)
{
    const char *text = ru_arena_vprintf(r->arena, fmt, ap);
    const char **at = text != NULL ? ru_report_texts_push(list, r->arena) : NULL;
    if (at == NULL) {
        r->full = true;
        return;
    }
    *at = text;
}

void ru_report_answer(ru_report *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    push_text(r, &r->answers, fmt, ap);
    va_end(ap);
}

void ru_report_assume(ru_report *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    push_text(r, &r->assumptions, fmt, ap);
    va_end(ap);
}

void ru_report_figure(ru_report *r, const char *name, double value)
{
    ru_figure *f = ru_report_figures_push(&r->figures, r->arena);
    if (f == NULL) {
        r->full = true;
        return;
    }
    *f = (ru_figure){kept(r, name), value};
}

static RU_PRINTF(3, 0) void push_candidate(ru_report *r, ru_candidate c, const char *fmt,
                                           va_list ap)
{
    c.name = kept(r, c.name);
    c.why = ru_arena_vprintf(r->arena, fmt, ap);
    ru_candidate *at = c.why != NULL ? ru_report_candidates_push(&r->candidates, r->arena) : NULL;
    if (at == NULL) {
        r->full = true;
        return;
    }
    *at = c;
}

void ru_report_candidate(ru_report *r, const char *name, double cost, bool legal, const char *fmt,
                         ...)
{
    va_list ap;
    va_start(ap, fmt);
    push_candidate(r, (ru_candidate){name, cost, legal, legal, NULL}, fmt, ap);
    va_end(ap);
}

void ru_report_beside(ru_report *r, const char *name, double cost, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    push_candidate(r, (ru_candidate){name, cost, true, false, NULL}, fmt, ap);
    va_end(ap);
}

ru_table *ru_report_table(ru_report *r, const char *title)
{
    ru_report_grid *g = RU_NEW(r->arena, ru_report_grid, 1);
    ru_report_grid **at = ru_report_grids_push(&r->grids, r->arena);
    RU_CHECK(g != NULL && at != NULL); /* a report's arena grows */
    *g = (ru_report_grid){kept(r, title), ru_table_in(r->arena)};
    *at = g;
    return &g->table;
}

ru_table *ru_report_grid_of(ru_report *r, const char *title, const char *columns)
{
    ru_table *t = ru_report_table(r, title);
    ru_str rest = ru_str_c(columns), col;
    while (ru_str_next(&rest, ' ', &col)) {
        const char *name = ru_arena_strn(r->arena, col.p + 1, col.n - 1);
        RU_CHECK(name != NULL && (col.p[0] == '<' || col.p[0] == '>'));
        ru_table_col(t, name, col.p[0] == '<' ? RU_TABLE_LEFT : RU_TABLE_RIGHT);
    }
    return t;
}

void ru_report_valid(ru_report *r, int64_t valid_ns)
{
    r->valid_ns = valid_ns;
}

void ru_report_trigger(ru_report *r, const char *figure, double error_max)
{
    ru_plan_trigger *t = ru_report_triggers_push(&r->triggers, r->arena);
    if (t == NULL) {
        r->full = true;
        return;
    }
    *t = (ru_plan_trigger){kept(r, figure), error_max};
}

ru_status ru_report_status(const ru_report *r, ru_err *err)
{
    if (r->full) {
        return RU_FAIL(err, RU_E_LIMIT, "the report's arena is full");
    }
    return RU_OK;
}

/* The unit that a figure's name ends with, and the length of the name without it. */
static const char *unit_of(const char *name, int64_t *stem)
{
    static const char *const units[] = {"_s", "_bytes", "_usd", "_percent"};
    ru_str s = ru_str_c(name);
    *stem = s.n;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(units); i++) {
        if (ru_str_ends(s, units[i]) && !ru_str_ends(s, "_per_s")) {
            *stem = s.n - (int64_t)strlen(units[i]);
            return units[i] + 1;
        }
    }
    return "";
}

/* Four significant digits; times and sizes in the unit that suits them. */
static void put_value(ru_text *out, const char *unit, double v)
{
    bool whole_unit = isfinite(v) && fabs(v) < 9e9;
    if (strcmp(unit, "s") == 0 && whole_unit && v >= 0) {
        ru_text_time_short(out, (int64_t)floor(v * 1e9 + 0.5));
    } else if (strcmp(unit, "bytes") == 0 && isfinite(v) && v >= 0 && v < 9e18) {
        ru_text_size_short(out, (int64_t)v);
    } else if (v == floor(v) && fabs(v) < 1e9) {
        ru_text_putf(out, "%.0f", v);
    } else {
        ru_text_putf(out, "%.4g", v);
    }
    if (strcmp(unit, "usd") == 0) {
        ru_text_put(out, " USD");
    } else if (strcmp(unit, "percent") == 0) {
        ru_text_put(out, " %");
    }
}

static void put_name(ru_text *out, const char *name, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        ru_text_char(out, name[i] == '_' ? ' ' : name[i], 1);
    }
}

void ru_figure_put(const char *name, double value, ru_text *out)
{
    int64_t stem;
    put_value(out, unit_of(name, &stem), value);
}

void ru_figure_put_name(const char *name, ru_text *out)
{
    int64_t stem;
    (void)unit_of(name, &stem);
    put_name(out, name, stem);
}

static void print_candidates(const ru_report *r, ru_text *out)
{
    int64_t stem;
    const char *unit = r->figures.n > 0 ? unit_of(r->figures.at[0].name, &stem) : "";
    uint32_t width = 0;
    for (uint32_t i = 0; i < r->candidates.n; i++) {
        uint32_t n = (uint32_t)strlen(r->candidates.at[i].name);
        width = n > width ? n : width;
    }
    ru_text_put(out, "candidates\n");
    for (uint32_t i = 0; i < r->candidates.n; i++) {
        const ru_candidate *c = &r->candidates.at[i];
        ru_text_putf(out, "  %-*s  ", (int)width, c->name);
        int64_t before = out->n;
        if (c->legal) {
            put_value(out, unit, c->cost);
        } else {
            ru_text_put(out, "not legal");
        }
        ru_text_char(out, ' ', 12 - (out->n - before));
        ru_text_putf(out, "  %s", c->why);
        ru_text_put(out, "\n");
    }
}

static void print_life(const ru_report *r, ru_text *out)
{
    if (r->valid_ns > 0) {
        ru_text_put(out, "valid for ");
        ru_text_time_short(out, r->valid_ns);
        ru_text_put(out, "\n");
    }
    for (uint32_t i = 0; i < r->triggers.n; i++) {
        const ru_plan_trigger *t = &r->triggers.at[i];
        ru_text_put(out, "plan again when ");
        put_name(out, t->figure, (int64_t)strlen(t->figure));
        if (t->error_max > 0) {
            ru_text_putf(out, " differs by more than %.4g %%\n", 100 * t->error_max);
        } else {
            ru_text_put(out, " changes\n");
        }
    }
}

ru_status ru_report_print(const ru_report *r, const ru_plan_head *head, ru_text *out, ru_err *err)
{
    char id[33];
    ru_hash128_text(head->id, id);
    ru_text_putf(out, "%s plan %s (version %u)\n", head->policy, id, head->version);
    for (uint32_t i = 0; i < r->answers.n; i++) {
        ru_text_putf(out, "  %s\n", r->answers.at[i]);
    }
    if (r->figures.n > 0) {
        ru_text_put(out, "predicted\n");
    }
    for (uint32_t i = 0; i < r->figures.n; i++) {
        int64_t stem;
        const char *unit = unit_of(r->figures.at[i].name, &stem);
        ru_text_put(out, "  ");
        put_name(out, r->figures.at[i].name, stem);
        ru_text_put(out, ": ");
        put_value(out, unit, r->figures.at[i].value);
        ru_text_put(out, "\n");
    }
    for (uint32_t i = 0; i < r->grids.n; i++) {
        ru_text_putf(out, "%s\n", r->grids.at[i]->title);
        RU_TRY(ru_table_print(&r->grids.at[i]->table, 2, out, err));
    }
    if (r->candidates.n > 0) {
        print_candidates(r, out);
    }
    for (uint32_t i = 0; i < r->assumptions.n; i++) {
        ru_text_putf(out, "%s  %s\n", i == 0 ? "assumptions\n" : "", r->assumptions.at[i]);
    }
    print_life(r, out);
    return ru_report_status(r, err);
}

static void json_texts(ru_json *j, const char *key, const ru_report_texts *list)
{
    ru_json_open(j, key, '[');
    for (uint32_t i = 0; i < list->n; i++) {
        ru_json_str(j, NULL, list->at[i]);
    }
    ru_json_close(j);
}

static void json_value(ru_json *j, const char *key, const ru_report_row *w, const uint8_t *at)
{
    cell c;
    memcpy(&c, at, bytes_of(w->type));
    if (w->type == RU_REPORT_BOOL) {
        ru_json_bool(j, key, c.b);
    } else if (w->type == RU_REPORT_U32) {
        ru_json_i64(j, key, c.u == UINT32_MAX ? -1 : (int64_t)c.u);
    } else if (w->type == RU_REPORT_I64) {
        ru_json_i64(j, key, c.i);
    } else if (w->type == RU_REPORT_TEXT) {
        ru_json_str(j, key, c.text);
    } else if (w->type == RU_REPORT_CHOICE || w->type == RU_REPORT_CHOICE8) {
        char word[64];
        ru_fields_choice(w->choices, (uint32_t)number_at(w, at), word, sizeof word);
        ru_json_str(j, key, word);
    } else {
        ru_json_f64(j, key, number_at(w, at));
    }
}

static uint32_t count_at(const void *plan, uint32_t at)
{
    uint32_t n = 1;
    if (at > 0) {
        memcpy(&n, (const uint8_t *)plan + at - 1, sizeof n);
    }
    return n;
}

static void json_decision(ru_json *j, const ru_report_row *w, const void *plan)
{
    const uint8_t *at = (const uint8_t *)plan + w->at;
    if (w->n_at == 0) {
        json_value(j, w->name, w, at);
        return;
    }
    uint32_t n = count_at(plan, w->n_at), width = count_at(plan, w->width_at);
    uint32_t each = w->each_bytes > 0 ? w->each_bytes : bytes_of(w->type);
    if (!w->inside) {
        const void *list; /* what stands there is a pointer to the elements */
        memcpy(&list, at, sizeof list);
        at = list;
    }
    ru_json_open(j, w->name, '[');
    for (uint32_t i = 0; i < n && at != NULL; i++) {
        if (w->width_at > 0) {
            ru_json_open(j, NULL, '[');
        }
        for (uint32_t k = 0; k < width; k++, at += each) {
            json_value(j, NULL, w, at + w->each_at);
        }
        if (w->width_at > 0) {
            ru_json_close(j);
        }
    }
    ru_json_close(j);
}

static void json_decisions(ru_json *j, const ru_report *r)
{
    bool any = false;
    for (uint32_t i = 0; i < r->n_rows; i++) {
        if (!r->rows[i].figure) {
            if (!any) {
                ru_json_open(j, "decision", '{');
            }
            any = true;
            json_decision(j, &r->rows[i], r->plan);
        }
    }
    if (any) {
        ru_json_close(j);
    }
}

ru_status ru_report_json(const ru_report *r, ru_json *j, ru_err *err)
{
    json_texts(j, "answer", &r->answers);
    json_decisions(j, r);
    ru_json_open(j, "predicted", '{');
    for (uint32_t i = 0; i < r->figures.n; i++) {
        ru_json_f64(j, r->figures.at[i].name, r->figures.at[i].value);
    }
    ru_json_close(j);
    ru_json_open(j, "candidates", '[');
    for (uint32_t i = 0; i < r->candidates.n; i++) {
        const ru_candidate *c = &r->candidates.at[i];
        ru_json_open(j, NULL, '{');
        ru_json_str(j, "name", c->name);
        ru_json_f64(j, "cost", c->cost);
        ru_json_bool(j, "legal", c->legal);
        ru_json_bool(j, "rival", c->rival);
        ru_json_str(j, "why", c->why);
        ru_json_close(j);
    }
    ru_json_close(j);
    ru_json_open(j, "tables", '{');
    for (uint32_t i = 0; i < r->grids.n; i++) {
        const ru_report_grid *g = r->grids.at[i];
        RU_TRY(r->unit_keys ? ru_table_json_units(&g->table, j, g->title, err)
                            : ru_table_json(&g->table, j, g->title, err));
    }
    ru_json_close(j);
    json_texts(j, "assumptions", &r->assumptions);
    ru_json_f64(j, "valid_s", (double)r->valid_ns * 1e-9);
    ru_json_open(j, "triggers", '[');
    for (uint32_t i = 0; i < r->triggers.n; i++) {
        ru_json_open(j, NULL, '{');
        ru_json_str(j, "figure", r->triggers.at[i].figure);
        ru_json_f64(j, "error_max", r->triggers.at[i].error_max);
        ru_json_close(j);
    }
    ru_json_close(j);
    return ru_report_status(r, err);
}
