/* The state of replays: written line by line, read back whole. */
#include "bench/replay/replay_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/unit.h"
#include "env/clock.h"
#include "env/file/file.h"

#define SCHEMA "rubato.replay_state/1"

enum { FIELDS = 11 }; /* of a row before its baselines */

static const char *first_line(const rui_replay_state *s)
{
    return ru_arena_printf(s->arena, SCHEMA "\t%s\n", s->of);
}

static ru_status read_kept(rui_replay_state *s, ru_err *err)
{
    char *text = NULL;
    int64_t n = 0;
    if (!ru_path_exists(s->path)) {
        return RU_FAIL(err, RU_E_MISSING,
                       "%s does not exist, so there is no stopped replay to resume; run it without "
                       "--resume",
                       s->path);
    }
    RU_TRY(ru_file_read(s->path, 0, s->arena, &text, &n, err));
    const char *first = first_line(s);
    size_t head = strlen(first);
    if ((size_t)n < head || memcmp(text, first, head) != 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "%s is of a replay with another program, other data or other options; run "
                       "it without --resume",
                       s->path);
    }
    s->kept = ru_str_n(text + head, n - (int64_t)head);
    return RU_OK;
}

ru_status rui_replay_state_open(rui_replay_state *s, const char *dir, const char *of, bool resume,
                                ru_arena *arena, ru_err *err)
{
    s->arena = arena;
    s->of = of;
    s->begun_ns = s->told_ns = ru_clock_now().ns;
    RU_TRY(ru_dir_make(dir, err));
    s->path = ru_path_join(arena, dir, "replay.state");
    if (resume) {
        RU_TRY(read_kept(s, err));
    } else {
        const char *first = first_line(s);
        RU_TRY(ru_file_replace(s->path, first, (int64_t)strlen(first), err));
    }
    s->file = fopen(s->path, "a");
    return s->file != NULL ? RU_OK
                           : RU_FAIL(err, RU_E_IO, "%s cannot be opened for writing", s->path);
}

void rui_replay_state_clear(rui_replay_state *s)
{
    if (s != NULL && s->bar && !s->quiet) {
        fputs("\r\033[K", stderr);
    }
}

void rui_replay_state_close(rui_replay_state *s)
{
    rui_replay_state_clear(s);
    if (s->file != NULL) {
        (void)fclose(s->file);
        s->file = NULL;
    }
}

void rui_replay_state_end(rui_replay_state *s)
{
    rui_replay_state_close(s);
    (void)remove(s->path);
}

static double *numbers(ru_replay_row *row, uint32_t k)
{
    double *const at[] = {&row->ours, &row->published, &row->best_known, &row->bound, &row->goal};
    return at[k];
}

enum { NUMBERS = 5 };

/* One field of a line that ends with a tab; an empty one at its end. */
static ru_str field(ru_str *line)
{
    int64_t n = 0;
    while (n < line->n && line->p[n] != '\t') {
        n++;
    }
    ru_str f = ru_str_n(line->p, n);
    int64_t skip = n < line->n ? n + 1 : n;
    *line = ru_str_n(line->p + skip, line->n - skip);
    return f;
}

static double number(ru_replay *r, ru_str *line)
{
    ru_str f = field(line);
    return strtod(ru_arena_printf(r->arena, "%.*s", (int)f.n, f.p), NULL);
}

static const char *text(ru_replay *r, ru_str *line)
{
    ru_str f = field(line);
    return ru_arena_printf(r->arena, "%.*s", (int)f.n, f.p);
}

/* "row", replay and unit are read already. */
static bool read_row(ru_replay *r, ru_str line)
{
    ru_replay_row row = {.name = text(r, &line), .measure = text(r, &line)};
    row.lower = number(r, &line) != 0;
    row.timed = number(r, &line) != 0;
    for (uint32_t k = 0; k < NUMBERS; k++) {
        *numbers(&row, k) = number(r, &line);
    }
    row.note = text(r, &line);
    row.note = row.note[0] != '\0' ? row.note : NULL;
    double n = number(r, &line);
    row.n_baselines = n >= 0 && n <= RU_REPLAY_BASELINES_MAX ? (uint32_t)n : 0;
    for (uint32_t k = 0; k < row.n_baselines; k++) {
        row.baseline_name[k] = text(r, &line);
        row.baseline[k] = number(r, &line);
    }
    ru_replay_row *at = rui_replay_rows_push(&r->rows, r->arena);
    if (at != NULL) {
        *at = row;
    }
    return at != NULL;
}

static bool is(ru_str f, const char *word)
{
    return f.n == (int64_t)strlen(word) && memcmp(f.p, word, (size_t)f.n) == 0;
}

/* The next whole line that is of this replay and unit; its kind, and what follows. */
static bool next_line(ru_str *rest, const ru_replay *r, const char *unit, ru_str *kind,
                      ru_str *line)
{
    while (rest->n > 0) {
        int64_t n = 0;
        while (n < rest->n && rest->p[n] != '\n') {
            n++;
        }
        if (n == rest->n) {
            return false; /* torn */
        }
        *line = ru_str_n(rest->p, n);
        *rest = ru_str_n(rest->p + n + 1, rest->n - n - 1);
        *kind = field(line);
        ru_str replay = field(line), of = field(line);
        if (is(replay, r->name) && is(of, unit)) {
            return true;
        }
    }
    return false;
}

bool rui_replay_state_take(rui_replay_state *s, ru_replay *r, const char *unit)
{
    ru_str rest = s->kept, kind, line, end = {0};
    while (next_line(&rest, r, unit, &kind, &line)) {
        end = is(kind, "done") ? rest : end;
    }
    if (end.p == NULL) {
        return false;
    }
    uint32_t n = r->rows.n;
    rest = ru_str_n(s->kept.p, end.p - s->kept.p);
    while (next_line(&rest, r, unit, &kind, &line)) {
        if (is(kind, "begin")) { /* what stands before was not ended */
            r->rows.n = n;
        } else if (is(kind, "row") && !read_row(r, line)) {
            r->rows.n = n;
            return false;
        }
    }
    s->taken++;
    return true;
}

/* Tabs and ends of lines part fields. */
static void put_text(FILE *f, const char *t)
{
    for (; t != NULL && *t != '\0'; t++) {
        fputc(*t == '\t' || *t == '\n' ? ' ' : *t, f);
    }
    fputc('\t', f);
}

static void put_row(rui_replay_state *s, const ru_replay *r, const char *unit,
                    const ru_replay_row *row)
{
    ru_replay_row copy = *row;
    fprintf(s->file, "row\t%s\t%s\t", r->name, unit);
    put_text(s->file, row->name);
    put_text(s->file, row->measure);
    fprintf(s->file, "%d\t%d\t", row->lower, row->timed);
    for (uint32_t k = 0; k < NUMBERS; k++) {
        fprintf(s->file, "%a\t", *numbers(&copy, k));
    }
    put_text(s->file, row->note);
    fprintf(s->file, "%u\t", row->n_baselines);
    for (uint32_t k = 0; k < row->n_baselines; k++) {
        put_text(s->file, row->baseline_name[k]);
        fprintf(s->file, "%a\t", row->baseline[k]);
    }
    fputc('\n', s->file);
}

ru_status rui_replay_state_put(rui_replay_state *s, const ru_replay *r, const char *unit,
                               uint32_t first, ru_err *err)
{
    fprintf(s->file, "\nbegin\t%s\t%s\n", r->name, unit); /* a torn line ends before it */
    for (uint32_t i = first; i < r->rows.n; i++) {
        put_row(s, r, unit, &r->rows.at[i]);
    }
    fprintf(s->file, "done\t%s\t%s\n", r->name, unit);
    s->units++;
    return fflush(s->file) == 0 && ferror(s->file) == 0
               ? RU_OK
               : RU_FAIL(err, RU_E_IO, "%s cannot be written", s->path);
}

void rui_replay_state_tell(rui_replay_state *s, const ru_replay *r, const char *at)
{
    int64_t now = ru_clock_now().ns, gap = s->bar ? INT64_C(100000000) : INT64_C(30000000000);
    if (s->quiet || now - s->told_ns < gap) {
        return;
    }
    s->told_ns = now;
    char took[32];
    ru_text t = ru_text_into(took, sizeof took);
    ru_text_time_short(&t, (now - s->begun_ns) / 1000000000 * 1000000000);
    fprintf(stderr, "%sreplay %s: %u rows after %s, at %.60s%s", s->bar ? "\r" : "", r->name,
            r->rows.n, took, at, s->bar ? "\033[K" : "\n");
    fflush(stderr);
}
