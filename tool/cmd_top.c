/* rubato top: what a run does now, from the files that it writes as it goes. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "env/clock.h"
#include "env/file.h"
#include "tool/cmd.h"
#include "tool/top.h"
#include "trace/cause.h"

enum {
    TRACE_BYTES = 1 << 20, /* of each rank's newest records */
    METRICS_BYTES = 1 << 18,
    ROWS = 24,
    COLUMNS = 80,
};
#define WINDOW_NS INT64_C(10000000000)

/* The end of metrics.jsonl, and its first lines with the start of the job. */
static ru_status read_end(const char *path, ru_arena *arena, char **text, ru_err *err)
{
    ru_in_file f;
    RU_TRY(ru_in_open(path, &f, err));
    int64_t n = f.size_bytes < METRICS_BYTES ? f.size_bytes : METRICS_BYTES;
    *text = ru_arena_alloc(arena, n + 1, 1);
    ru_status st = *text == NULL ? RU_FAIL(err, RU_E_LIMIT, "there is no memory for %s", path)
                                 : ru_in_read(&f, path, f.size_bytes - n, *text, n, err);
    ru_in_close(&f);
    if (st == RU_OK) {
        (*text)[n] = '\0';
        char *line = f.size_bytes > n ? strchr(*text, '\n') : NULL;
        *text = line != NULL ? line + 1 : *text; /* the first line is cut */
    }
    return st;
}

static void add_event(ru_top *t, const char *text)
{
    if (t->n_events == RU_TOP_EVENTS_MAX) {
        memmove(t->events, t->events + 1, (RU_TOP_EVENTS_MAX - 1) * sizeof *t->events);
        t->n_events--;
    }
    t->events[t->n_events++] = text;
}

static void take_line(ru_top *t, const json_t *o, ru_arena *arena)
{
    const char *schema = json_string_value(json_object_get(o, "schema"));
    int64_t step = json_integer_value(json_object_get(o, "step"));
    if (schema == NULL) {
        return;
    }
    if (strcmp(schema, "rubato.train.step/1") == 0) {
        t->step = step;
        t->loss = json_number_value(json_object_get(o, "loss"));
        t->samples_per_s = json_number_value(json_object_get(o, "samples_per_s"));
        t->ended = NULL;
    } else if (strcmp(schema, "rubato.train.start/1") == 0) {
        t->steps = json_integer_value(json_object_get(o, "steps"));
        t->ended = NULL;
    } else if (strcmp(schema, "rubato.train.summary/1") == 0) {
        const char *how = json_string_value(json_object_get(o, "ended"));
        t->ended = ru_arena_strn(arena, how != NULL ? how : "ended",
                                 (int64_t)strlen(how != NULL ? how : "ended"));
    } else if (strcmp(schema, "rubato.train.event/1") == 0) {
        const char *what = json_string_value(json_object_get(o, "what"));
        int64_t worker = json_integer_value(json_object_get(o, "worker"));
        if (what != NULL && strcmp(what, "replan") != 0) {
            add_event(t, worker > 0
                             ? ru_arena_printf(arena, "step %lld: %s, worker %lld", (long long)step,
                                               what, (long long)worker)
                             : ru_arena_printf(arena, "step %lld: %s", (long long)step, what));
        }
    }
}

/* Total steps stand at the start of a long run's file, which the end does not hold. */
static void take_start(ru_top *t, const char *path, ru_arena *arena)
{
    char *text;
    int64_t size;
    if (t->steps == 0 && ru_file_read(path, 0, arena, &text, &size, NULL) == RU_OK) {
        char *at = strstr(text, "\"schema\":\"rubato.train.start/1\"");
        char *steps = at != NULL ? strstr(at, "\"steps\":") : NULL;
        t->steps = steps != NULL ? strtoll(steps + 8, NULL, 10) : 0;
    }
}

static ru_status take_metrics(ru_top *t, const char *run, int64_t *steps, ru_arena *arena,
                              ru_err *err)
{
    char *text;
    const char *path = ru_path_join(arena, run, "metrics.jsonl");
    if (path == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "there is no memory for the view");
    }
    if (!ru_path_exists(path)) {
        return RU_OK; /* no step is done yet */
    }
    RU_TRY(read_end(path, arena, &text, err));
    t->steps = *steps;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        json_t *o = json_loadb(line, (size_t)(end - line), 0, NULL);
        take_line(t, o, arena);
        json_decref(o);
    }
    take_start(t, path, arena);
    *steps = t->steps;
    return RU_OK;
}

/* Rates and parts of one rank in the window that ends now. */
static ru_top_rank rank_of(const ru_trace *t, const ru_rank_steps *s, int64_t global_now,
                           int64_t quiet_ns)
{
    ru_top_rank r = {.rank = ru_trace_number(t), .quiet_s = (double)quiet_ns * 1e-9};
    int64_t wall = 0, count = 0, first = 0, part[RU_STEP_PARTS] = {0};
    for (int64_t i = 0; i < s->n; i++) {
        r.step = s->at[i].step > r.step ? s->at[i].step : r.step;
        if (s->at[i].end_ns < global_now - WINDOW_NS) {
            continue;
        }
        first = count == 0 ? s->at[i].start_ns : first;
        count++;
        wall += s->at[i].end_ns - s->at[i].start_ns;
        for (uint32_t p = 0; p < RU_STEP_PARTS; p++) {
            part[p] += s->at[i].part_ns[p];
        }
    }
    for (uint32_t p = 0; wall > 0 && p < RU_STEP_PARTS; p++) {
        r.part[p] = (double)part[p] / (double)wall;
    }
    double span = count > 0 ? (double)(s->at[s->n - 1].end_ns - first) * 1e-9 : 0;
    r.steps_per_s = span > 0 ? (double)count / span : 0;
    for (uint32_t h = 0; h < t->n_threads; h++) {
        for (int64_t i = 0; i < t->threads[h].n; i++) {
            const ru_record *rec = &t->threads[h].records[i];
            const ru_record_more *m =
                rec->kind == RU_REC_SEND ? ru_trace_more(&t->threads[h], rec) : NULL;
            if (m != NULL && m->chan_class < RU_TOP_CLASSES &&
                rec->start_ns > t->last_ns - WINDOW_NS && span > 0) {
                r.sent_per_s[m->chan_class] += (double)rec->value / span;
            }
        }
    }
    return r;
}

static ru_status take_traces(ru_top *t, const char *run, ru_arena *arena, ru_err *err)
{
    ru_trace *traces;
    ru_trace_clocks clocks;
    uint32_t n_causes;
    const char *dir = ru_path_join(arena, run, "trace");
    if (dir == NULL || !ru_path_is_dir(dir)) {
        return dir == NULL ? RU_FAIL(err, RU_E_LIMIT, "there is no memory for the view") : RU_OK;
    }
    RU_TRY(ru_trace_run_load_end(run, TRACE_BYTES, arena, &traces, &t->n, err));
    ru_rank_steps *steps = RU_NEW(arena, ru_rank_steps, t->n);
    ru_top_rank *ranks = RU_NEW(arena, ru_top_rank, t->n);
    ru_cause *causes = RU_NEW(arena, ru_cause, RU_CAUSES_MAX);
    if (steps == NULL || ranks == NULL || causes == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "there is no memory for the view");
    }
    RU_TRY(ru_trace_align(traces, t->n, arena, &clocks, err));
    RU_TRY(ru_trace_steps(traces, t->n, &clocks, arena, steps, err));
    RU_TRY(ru_trace_causes(traces, steps, t->n, &clocks, arena, causes, &n_causes, err));
    int64_t last = INT64_MIN, wall_now = ru_clock_wall_ns();
    for (uint32_t k = 0; k < t->n; k++) {
        int64_t end = ru_trace_global(&clocks, k, traces[k].last_ns);
        last = end > last ? end : last;
    }
    for (uint32_t k = 0; k < t->n; k++) {
        int64_t quiet =
            wall_now - (clocks.wall_ns + ru_trace_global(&clocks, k, traces[k].last_ns));
        ranks[k] = rank_of(&traces[k], &steps[k], last, t->ended != NULL ? 0 : quiet);
    }
    t->ranks = ranks;
    for (uint32_t i = 0; i < n_causes && t->n_causes < RU_TOP_CAUSES_MAX; i++) {
        ru_text text = ru_text_arena(arena);
        if (causes[i].kind != RU_CAUSE_START) { /* that is over */
            ru_cause_print(&causes[i], traces, &text);
            t->causes[t->n_causes++] = text.p;
        }
    }
    return RU_OK;
}

static void put_json(const ru_top *t)
{
    json_t *ranks = json_array(), *causes = json_array();
    for (uint32_t k = 0; k < t->n; k++) {
        const ru_top_rank *r = &t->ranks[k];
        json_t *split = json_object();
        for (uint32_t p = 0; p < RU_STEP_PARTS; p++) {
            json_object_set_new(split, ru_step_part_name((ru_step_part)p), json_real(r->part[p]));
        }
        json_array_append_new(ranks,
                              json_pack("{s:i, s:I, s:f, s:f, s:o, s:f, s:f}", "rank", (int)r->rank,
                                        "step", (json_int_t)r->step, "steps_per_s", r->steps_per_s,
                                        "silent_s", r->quiet_s, "split", split, "sums_bytes_per_s",
                                        r->sent_per_s[1] + r->sent_per_s[2], "copies_bytes_per_s",
                                        r->sent_per_s[3]));
    }
    for (uint32_t i = 0; i < t->n_causes; i++) {
        json_array_append_new(causes, json_string(t->causes[i]));
    }
    json_t *o = json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:s?, s:o, s:o}", "schema",
                          "rubato.top/1", "run", t->name, "step", (json_int_t)t->step, "steps",
                          (json_int_t)t->steps, "loss", t->loss, "samples_per_s", t->samples_per_s,
                          "left_s", t->left_s, "ended", t->ended, "ranks", ranks, "causes", causes);
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    if (text != NULL) {
        puts(text);
        fflush(stdout);
    }
    free(text);
    json_decref(o);
}

static void put_screen(const ru_top *t, bool terminal, ru_arena *arena)
{
    struct winsize size = {.ws_row = ROWS, .ws_col = COLUMNS};
    if (!terminal || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        size = (struct winsize){.ws_row = ROWS, .ws_col = COLUMNS};
    }
    ru_text text = ru_text_arena(arena);
    uint32_t rows = size.ws_row > 9 ? size.ws_row - 1u : 8;
    ru_top_draw(t, rows, size.ws_col > 40 ? size.ws_col : 40, &text);
    printf("%s%s", terminal ? "\033[H\033[2J" : "", text.p);
    fflush(stdout);
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    const char *run = in->args[0];
    bool json = ru_cmd_flag(in, "json"), terminal = isatty(STDOUT_FILENO) != 0 && !json;
    bool once = ru_cmd_flag(in, "once") || (!terminal && !json);
    int64_t steps = 0;
    const char *job = ru_path_join(in->arena, run, "job.yaml");
    if (!ru_path_is_dir(run) || job == NULL || !ru_path_exists(job)) {
        return RU_FAIL(err, RU_E_MISSING,
                       "there is no run %s; name a folder that `rubato train` writes", run);
    }
    for (;;) {
        ru_arena arena;
        ru_arena_init(&arena, 0);
        ru_top t = {.name = run, .left_s = -1};
        ru_status st = take_metrics(&t, run, &steps, &arena, err);
        st = st == RU_OK ? take_traces(&t, run, &arena, err) : st;
        double rate = 0;
        for (uint32_t k = 0; st == RU_OK && k < t.n; k++) {
            rate = t.ranks[k].steps_per_s > rate ? t.ranks[k].steps_per_s : rate;
            t.step = t.ranks[k].step > t.step ? t.ranks[k].step : t.step;
        }
        t.left_s = t.steps > 0 && rate > 0 ? ((double)t.steps - (double)t.step) / rate : -1;
        if (st == RU_OK && json) {
            put_json(&t);
        } else if (st == RU_OK) {
            put_screen(&t, terminal, &arena);
        }
        bool ended = t.ended != NULL;
        ru_arena_fini(&arena);
        if (st != RU_OK || once || ended) {
            return st;
        }
        ru_clock_pause(ru_cmd_i64(in, "every"));
    }
}

static const ru_opt opts[] = {
    {.name = "every",
     .type = RU_OPT_TIME,
     .word = "TIME",
     .def = "1s",
     .min = 100000000,
     .max = 3600000000000,
     .help = "time between two views"},
    {.name = "once", .type = RU_OPT_FLAG, .help = "print one view and exit"},
    {.name = "json",
     .type = RU_OPT_FLAG,
     .help = "print the views as JSON Lines (rubato.top/1) on stdout"},
};

static const ru_example examples[] = {
    {"rubato top runs/lenet", "watch a run until it ends; Ctrl-C leaves it alone"},
    {"rubato top runs/lenet --once", "print one view"},
};

const ru_cmd rui_cmd_top = {
    .name = "top",
    .summary = "show what a run does now, rank by rank",
    .about =
        "RUN is the folder of a run on this machine or on a disk that its machines share. Every "
        "second the view shows the last ten seconds: steps a second of each rank; how its time "
        "divides into compute, network, waiting for a peer, input and other; how many steps it is "
        "behind; bytes a second that it sends for sums of gradients and for copies of the state; "
        "ranks that are silent; causes of lost time; the last events. The view reads files only "
        "and cannot slow the job.",
    .args = "RUN",
    .arg_min = 1,
    .arg_max = 1,
    .opts = opts,
    .n_opts = RU_ARRAY_LEN(opts),
    .examples = examples,
    .n_examples = RU_ARRAY_LEN(examples),
    .exits = "66 there is no such run",
    .run = run,
};
