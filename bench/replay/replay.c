/* Replays: rows kept and shown. */
#include "bench/replay/replay.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bench/replay/replay_state.h"
#include "env/file/file.h"
#include "env/process/self.h"

static const struct {
    const char *name;
    ru_status (*run)(ru_replay *r, ru_err *err);
    const char *help;
} replays[] = {
#define RU_REPLAY(name, symbol, help) {name, rui_replay_##symbol, help},
#include "bench/replay/replay.def"
#undef RU_REPLAY
};

ru_replay_row ru_replay_row_of(const char *name, const char *measure, bool lower)
{
    return (ru_replay_row){.name = name,
                           .measure = measure,
                           .lower = lower,
                           .published = RU_NAN,
                           .best_known = RU_NAN,
                           .bound = RU_NAN,
                           .goal = RU_NAN};
}

void ru_replay_baseline(ru_replay *r, ru_replay_row *row, const char *name, double value)
{
    RU_CHECK(row->n_baselines < RU_REPLAY_BASELINES_MAX);
    row->baseline_name[row->n_baselines] = ru_arena_str(r->arena, name);
    row->baseline[row->n_baselines++] = value;
}

ru_status ru_replay_add(ru_replay *r, const ru_replay_row *row, ru_err *err)
{
    if (strstr(row->name, r->only) == NULL) {
        return RU_OK;
    }
    if (r->state != NULL) {
        rui_replay_state_tell(r->state, r, row->name);
    }
    ru_replay_row *at = rui_replay_rows_push(&r->rows, r->arena);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for rows is full");
    }
    *at = *row;
    at->name = ru_arena_str(r->arena, row->name);
    at->measure = ru_arena_str(r->arena, row->measure);
    at->note = row->note != NULL ? ru_arena_str(r->arena, row->note) : NULL;
    return RU_OK;
}

const char *ru_replay_data(ru_replay *r, const char *name)
{
    if (r->data == NULL) {
        return NULL;
    }
    const char *path = ru_path_join(r->arena, r->data, name);
    return ru_path_exists(path) ? path : NULL;
}

void ru_replay_list(ru_text *out)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(replays); i++) {
        ru_text_putf(out, "%-10s %s\n", replays[i].name, replays[i].help);
    }
}

static bool met(const ru_replay_row *row)
{
    return row->lower ? row->ours <= row->goal : row->ours >= row->goal;
}

/* No method reaches a goal that lies beyond the bound. A bound may be rounded in its last digits.
 */
static bool out_of_reach(const ru_replay_row *row)
{
    double slack = 1e-9 * fabs(row->bound);
    return !met(row) &&
           (row->lower ? row->goal < row->bound - slack : row->goal > row->bound + slack);
}

/* NULL: nothing was asked. */
static const char *verdict(const ru_replay_row *row)
{
    return isnan(row->goal)    ? NULL
           : met(row)          ? "met"
           : out_of_reach(row) ? "beyond the bound"
                               : "MISSED";
}

static void cell(ru_table *t, double v)
{
    if (isnan(v)) {
        ru_table_none(t);
    } else {
        double a = fabs(v);
        ru_table_f64(t, v, a >= 1000 ? 0 : a >= 10 ? 2 : a >= 0.1 ? 4 : a == 0 ? 0 : 7);
    }
}

/* Rows that compare the same thing with the same baselines share a table. */
static bool same_columns(const ru_replay_row *a, const ru_replay_row *b)
{
    bool same = strcmp(a->measure, b->measure) == 0 && a->n_baselines == b->n_baselines;
    for (uint32_t i = 0; same && i < a->n_baselines; i++) {
        same = strcmp(a->baseline_name[i], b->baseline_name[i]) == 0;
    }
    return same;
}

/* All rows like `first`, from there on. */
static ru_status print_table(const ru_replay *r, uint32_t first, bool *shown, ru_text *out,
                             ru_err *err)
{
    const ru_replay_row *head = &r->rows.at[first];
    ru_table t = ru_table_in(r->arena);
    ru_table_col(&t, "case", RU_TABLE_LEFT);
    ru_table_col(&t, "ours", RU_TABLE_RIGHT);
    for (uint32_t b = 0; b < head->n_baselines; b++) {
        ru_table_col(&t, head->baseline_name[b], RU_TABLE_RIGHT);
    }
    static const char *const more[] = {"published", "best_known", "bound", "goal"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(more); k++) {
        ru_table_col(&t, more[k], RU_TABLE_RIGHT);
    }
    ru_table_col(&t, "", RU_TABLE_LEFT);
    for (uint32_t i = first; i < r->rows.n; i++) {
        const ru_replay_row *row = &r->rows.at[i];
        if (shown[i] || !same_columns(head, row)) {
            continue;
        }
        shown[i] = true;
        ru_table_str(&t, row->name);
        cell(&t, row->ours);
        for (uint32_t b = 0; b < row->n_baselines; b++) {
            cell(&t, row->baseline[b]);
        }
        cell(&t, row->published);
        cell(&t, row->best_known);
        cell(&t, row->bound);
        cell(&t, row->goal);
        const char *said = verdict(row) != NULL ? verdict(row) : "";
        ru_table_textf(&t, "%s%s%s", said, row->note != NULL ? " " : "",
                       row->note != NULL ? row->note : "");
    }
    ru_text_putf(out, "%s (%s is better%s)\n", head->measure, head->lower ? "lower" : "higher",
                 head->timed ? ", wall clock" : "");
    return ru_table_print(&t, 2, out, err);
}

static ru_status print_rows(const ru_replay *r, const char *name, ru_text *out, ru_err *err)
{
    uint32_t judged = 0, good = 0, beyond = 0;
    bool *shown = RU_NEW(r->arena, bool, r->rows.n);
    if (shown == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u rows", r->rows.n);
    }
    ru_text_putf(out, "%s\n", name);
    for (uint32_t i = 0; i < r->rows.n; i++) {
        const ru_replay_row *row = &r->rows.at[i];
        judged += isnan(row->goal) ? 0 : 1;
        good += !isnan(row->goal) && met(row) ? 1 : 0;
        beyond += !isnan(row->goal) && out_of_reach(row) ? 1 : 0;
        if (!shown[i]) {
            RU_TRY(print_table(r, i, shown, out, err));
        }
    }
    if (judged > 0) {
        ru_text_putf(out, "%u of %u goals met", good, judged);
        if (beyond > 0) {
            ru_text_putf(out, "; %u lie beyond a bound, %u missed", beyond, judged - good - beyond);
        }
        ru_text_put(out, "\n");
    }
    return RU_OK;
}

static void json_value(ru_json *j, const char *key, double v)
{
    if (isnan(v)) {
        ru_json_null(j, key);
    } else {
        ru_json_f64(j, key, v);
    }
}

static void json_rows(const ru_replay *r, const char *name, ru_text *out)
{
    ru_json j = ru_json_into(out);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "schema", "rubato.replay/1");
    ru_json_str(&j, "name", name);
    ru_json_open(&j, "rows", '[');
    for (uint32_t i = 0; i < r->rows.n; i++) {
        const ru_replay_row *row = &r->rows.at[i];
        ru_json_open(&j, NULL, '{');
        ru_json_str(&j, "case", row->name);
        ru_json_str(&j, "measure", row->measure);
        ru_json_str(&j, "better", row->lower ? "lower" : "higher");
        ru_json_bool(&j, "timed", row->timed);
        json_value(&j, "ours", row->ours);
        ru_json_open(&j, "baselines", '{');
        for (uint32_t b = 0; b < row->n_baselines; b++) {
            json_value(&j, row->baseline_name[b], row->baseline[b]);
        }
        ru_json_close(&j);
        json_value(&j, "published", row->published);
        json_value(&j, "best_known", row->best_known);
        json_value(&j, "bound", row->bound);
        json_value(&j, "goal", row->goal);
        ru_json_str(&j, "verdict", verdict(row));
        ru_json_str(&j, "note", row->note);
        ru_json_close(&j);
    }
    ru_json_close(&j);
    ru_json_close(&j);
    ru_text_put(out, "\n");
}

bool ru_replay_have(ru_replay *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    r->unit = ru_arena_vprintf(r->arena, fmt, ap);
    va_end(ap);
    r->unit_rows = r->rows.n;
    if (r->state == NULL || r->unit == NULL) {
        return false;
    }
    rui_replay_state_tell(r->state, r, r->unit);
    return rui_replay_state_take(r->state, r, r->unit);
}

ru_status ru_replay_keep(ru_replay *r, ru_err *err)
{
    return r->state == NULL || r->unit == NULL
               ? RU_OK
               : rui_replay_state_put(r->state, r, r->unit, r->unit_rows, err);
}

ru_status ru_replay_rows_of(const char *name, ru_replay *r, ru_err *err)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(replays); i++) {
        if (strcmp(name, replays[i].name) != 0) {
            continue;
        }
        r->name = name;
        if (ru_replay_have(r, "all")) {
            return RU_OK;
        }
        uint32_t first = r->rows.n;
        ru_status st = replays[i].run(r, err);
        if (st != RU_OK) {
            return ru_err_wrap(err, st, "replay %s", name);
        }
        r->unit = "all";
        r->unit_rows = first;
        return ru_replay_keep(r, err);
    }
    return RU_FAIL(err, RU_E_USAGE,
                   "there is no replay '%s'; `rubato bench replay --list` shows all", name);
}

static ru_status run_one(const char *name, const ru_replay *in, bool json, ru_err *err)
{
    ru_replay r = *in;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    r.arena = &arena;
    ru_text out = ru_text_arena(&arena);
    ru_status st = ru_replay_rows_of(name, &r, err);
    if (st == RU_OK && json) {
        json_rows(&r, name, &out);
    } else if (st == RU_OK) {
        st = print_rows(&r, name, &out, err);
    }
    rui_replay_state_clear(in->state);
    fputs(out.p != NULL ? out.p : "", stdout);
    fflush(stdout);
    ru_arena_fini(&arena);
    return st;
}

/* What rows depend on: the program, the data and the options. */
static const char *depends_on(const ru_replay *r, ru_arena *arena)
{
    char build[RU_SELF_BUILD_BYTES];
    ru_self_build(build);
    return ru_arena_printf(arena, "program %s, data %s, %s, only '%s'", build,
                           r->data != NULL ? r->data : "none", r->quick ? "quick" : "whole",
                           r->only);
}

ru_status ru_replay_run(const char *const *names, uint32_t n, const ru_replay *in, bool json,
                        ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_replay r = *in;
    rui_replay_state state = {.bar = in->bar, .quiet = in->quiet};
    r.state = &state;
    ru_status st =
        rui_replay_state_open(&state, in->dir, depends_on(in, &arena), in->resume, &arena, err);
    uint32_t all = n > 0 ? n : RU_ARRAY_LEN(replays);
    for (uint32_t i = 0; i < all && st == RU_OK; i++) {
        st = run_one(n > 0 ? names[i] : replays[i].name, &r, json, err);
    }
    if (st == RU_OK) {
        rui_replay_state_end(&state);
    } else {
        rui_replay_state_close(&state);
    }
    ru_arena_fini(&arena);
    return st;
}
