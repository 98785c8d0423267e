#include "watch/run.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "trace/read/cause.h"

enum {
    TRACE_BYTES = 1 << 20, /* of each rank's newest records */
    TAIL_BYTES = 1 << 18,  /* of lines before the watch was opened */
    START_BYTES = 8 << 10, /* of the first line */
    LOOK_BYTES = 8 << 20,  /* of lines in one look; the next look continues */
    GONE_MAX = 4096,       /* ranks below it are known as lost or gone */
};
#define WINDOW_NS INT64_C(10000000000)

enum { HERE, LOST, LEFT };

/* A file of lines that grows. */
typedef struct lines {
    const char *path;
    uint64_t file; /* its id; 0: not read yet */
    int64_t at;    /* bytes read of it */
} lines;

struct ru_watch {
    const char *run;
    lines metrics, measured, rounds, follow, functions;
    ru_watch_totals t;
    int64_t steps_all, step_seen;
    int64_t counted; /* steps whose events were counted in a file before this one */
    bool counts;     /* past the lines that stood there when the watch was opened */
    char events[RU_TOP_EVENTS_MAX][96];
    uint32_t n_events;
    uint8_t gone[GONE_MAX]; /* by rank: HERE, LOST or LEFT */
};

ru_status ru_watch_open(const char *run, ru_arena *arena, ru_watch **out, ru_err *err)
{
    ru_watch *w = RU_NEW(arena, ru_watch, 1);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "there is no memory for the view");
    }
    *w = (ru_watch){.run = run,
                    .metrics.path = ru_path_join(arena, run, "metrics.jsonl"),
                    .measured.path = ru_path_join(arena, run, "plans/measured.jsonl"),
                    .rounds.path = ru_path_join(arena, run, "federation.jsonl"),
                    .follow.path = ru_path_join(arena, run, "follow.jsonl"),
                    .functions.path = ru_path_join(arena, run, "functions.jsonl")};
    w->t.loss = w->t.lr = w->t.accuracy = w->t.norm = w->t.noise = RU_NAN;
    if (w->metrics.path == NULL || w->measured.path == NULL || w->rounds.path == NULL ||
        w->follow.path == NULL || w->functions.path == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "there is no memory for the view");
    }
    *out = w;
    return RU_OK;
}

const ru_watch_totals *ru_watch_totals_get(const ru_watch *w)
{
    return &w->t;
}

/* -- lines of metrics.jsonl ----------------------------------------------------------------------
 */

static int64_t whole(const json_t *o, const char *key, int64_t otherwise)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? (int64_t)json_integer_value(v) : otherwise;
}

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : RU_NAN;
}

/* What the job minimises: "loss", or the name that an app gives it. */
static double objective(const json_t *o)
{
    static const char *const others[] = {"step",      "epoch",         "samples", "lr",
                                         "step_s",    "samples_per_s", "workers", "accuracy",
                                         "grad_norm", "gradient_noise"};
    const char *key;
    json_t *value;
    if (json_object_get(o, "loss") != NULL) {
        return number(o, "loss");
    }
    json_object_foreach((json_t *)(uintptr_t)o, key, value)
    {
        bool known = !json_is_number(value);
        for (uint32_t k = 0; k < RU_ARRAY_LEN(others); k++) {
            known = known || strcmp(key, others[k]) == 0;
        }
        if (!known) {
            return json_number_value(value);
        }
    }
    return RU_NAN;
}

static void take_step(ru_watch *w, const json_t *o)
{
    ru_watch_totals *t = &w->t;
    int64_t step = whole(o, "step", 0);
    t->ended[0] = '\0';
    t->steps = step;
    t->samples = whole(o, "samples", t->samples);
    t->epoch = whole(o, "epoch", t->epoch);
    t->workers = whole(o, "workers", t->workers);
    t->loss = objective(o);
    t->lr = number(o, "lr");
    t->accuracy = number(o, "accuracy");
    t->norm = number(o, "grad_norm");
    t->noise = number(o, "gradient_noise");
    t->samples_per_s = number(o, "samples_per_s");
    double step_s = number(o, "step_s");
    if (w->counts && step > w->step_seen && step_s >= 0 && step_s < 1e9) {
        ru_hist_add(&t->step_ns, (int64_t)(step_s * 1e9));
    }
    w->step_seen = step > w->step_seen ? step : w->step_seen;
}

static void take_event(ru_watch *w, const json_t *o)
{
    const char *what = json_string_value(json_object_get(o, "what"));
    if (what == NULL) {
        return;
    }
    uint32_t k = 0;
    while (k < w->t.n_events && strcmp(w->t.event[k].name, what) != 0) {
        k++;
    }
    if (w->counts && whole(o, "step", 0) > w->counted && k < RU_WATCH_EVENTS &&
        strlen(what) < RU_WATCH_EVENT_BYTES) {
        w->t.n_events += k == w->t.n_events;
        memcpy(w->t.event[k].name, what, strlen(what) + 1);
        w->t.event[k].count++;
    }
    int64_t worker = whole(o, "worker", 0);
    if (worker > 0 && worker < GONE_MAX) {
        bool lost = strcmp(what, "lost") == 0, left = strcmp(what, "leave") == 0,
             joins = strcmp(what, "join") == 0;
        w->gone[worker] = lost ? LOST : left ? LEFT : joins ? HERE : w->gone[worker];
    }
    if (strcmp(what, "replan") == 0) { /* too many to read */
        return;
    }
    if (w->n_events == RU_TOP_EVENTS_MAX) {
        memmove(w->events, w->events + 1, (RU_TOP_EVENTS_MAX - 1) * sizeof w->events[0]);
        w->n_events--;
    }
    ru_text line = ru_text_into(w->events[w->n_events++], sizeof w->events[0]);
    ru_text_putf(&line, "step %lld: %s", (long long)whole(o, "step", 0), what);
    if (whole(o, "worker", 0) > 0) {
        ru_text_putf(&line, ", worker %lld", (long long)whole(o, "worker", 0));
    }
}

static void take_evaluation(ru_watch_totals *t, const json_t *o)
{
    const char *key;
    json_t *value;
    t->n_metrics = 0;
    json_object_foreach(json_object_get(o, "metric"), key, value)
    {
        if (t->n_metrics < RU_METRICS_MAX && strlen(key) < RU_WATCH_EVENT_BYTES &&
            json_is_number(value)) {
            memcpy(t->metric[t->n_metrics].name, key, strlen(key) + 1);
            t->metric[t->n_metrics++].value = json_number_value(value);
        }
    }
}

static bool keep_text(char *into, const char *text)
{
    if (text == NULL || strlen(text) >= RU_WATCH_EVENT_BYTES) {
        return false;
    }
    memcpy(into, text, strlen(text) + 1);
    return true;
}

static void take_figure(ru_watch_totals *t, const json_t *o)
{
    ru_watch_figure f = {.predicted = number(o, "predicted"), .measured = number(o, "measured")};
    if (!keep_text(f.policy, json_string_value(json_object_get(o, "policy"))) ||
        !keep_text(f.name, json_string_value(json_object_get(o, "figure")))) {
        return;
    }
    uint32_t k = 0;
    while (k < t->n_figures &&
           (strcmp(t->figure[k].policy, f.policy) != 0 || strcmp(t->figure[k].name, f.name) != 0)) {
        k++;
    }
    if (k < RU_WATCH_FIGURES) {
        t->figure[k] = f;
        t->n_figures += k == t->n_figures;
    }
}

static void take_round(ru_watch_totals *t, const json_t *o)
{
    t->round = (ru_top_round){.asked = whole(o, "sent", 0),
                              .answers = whole(o, "answers", 0),
                              .here = whole(o, "there", 0),
                              .late = whole(o, "late", 0),
                              .lost = whole(o, "lost", 0),
                              .resting = whole(o, "resting", 0),
                              .epsilon = fmax(number(o, "epsilon"), 0)};
}

/* While no round goes on. */
static void take_clients(ru_watch_totals *t, const json_t *o)
{
    t->round.here = whole(o, "there", 0);
    t->round.resting = whole(o, "resting", 0);
}

static void take_follow(ru_watch_totals *t, const json_t *o)
{
    t->follow = (ru_top_follow){.told = true,
                                .arrived = whole(o, "arrived", 0),
                                .queue = whole(o, "queue", 0),
                                .workers = whole(o, "workers", 0)};
}

static void take_functions(ru_watch_totals *t, const json_t *o)
{
    t->functions = (ru_top_functions){.workers = whole(o, "workers", 0),
                                      .memory_mb = whole(o, "memory_mb", 0),
                                      .calls = whole(o, "calls", 0),
                                      .given_up = whole(o, "given_up", 0),
                                      .measures = json_is_true(json_object_get(o, "measures")),
                                      .usd = fmax(number(o, "usd"), 0)};
}

static void take_line(ru_watch *w, const json_t *o)
{
    const char *schema = json_string_value(json_object_get(o, "schema"));
    if (schema == NULL) {
        return;
    }
    if (strcmp(schema, "rubato.train.step/1") == 0) {
        take_step(w, o);
    } else if (strcmp(schema, "rubato.train.start/1") == 0) {
        w->steps_all = whole(o, "steps", 0);
        w->t.batch_samples = whole(o, "batch", 0);
        w->t.parameters = whole(o, "parameters", 0);
        w->t.workers = whole(o, "workers", 1);
        w->t.ended[0] = '\0';
    } else if (strcmp(schema, "rubato.train.summary/1") == 0) {
        const char *how = json_string_value(json_object_get(o, "ended"));
        ru_text ended = ru_text_into(w->t.ended, sizeof w->t.ended);
        ru_text_put(&ended, how != NULL ? how : "ended");
        w->t.lost = whole(o, "samples_lost", 0);
        w->t.repeated = whole(o, "samples_repeated", 0);
    } else if (strcmp(schema, "rubato.train.eval/1") == 0) {
        take_evaluation(&w->t, o);
    } else if (strcmp(schema, "rubato.train.event/1") == 0) {
        take_event(w, o);
    } else if (strcmp(schema, "rubato.fed.round/1") == 0) {
        take_round(&w->t, o);
    } else if (strcmp(schema, "rubato.fed.clients/1") == 0) {
        take_clients(&w->t, o);
    } else if (strcmp(schema, "rubato.follow/1") == 0) {
        take_follow(&w->t, o);
    } else if (strcmp(schema, "rubato.functions/1") == 0) {
        take_functions(&w->t, o);
    } else if (strcmp(schema, "rubato.measured/1") == 0) {
        take_figure(&w->t, o);
    }
}

static int64_t take_lines(ru_watch *w, const char *text)
{
    const char *line = text;
    for (const char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        json_t *o = json_loadb(line, (size_t)(end - line), 0, NULL);
        take_line(w, o);
        json_decref(o);
    }
    return line - text;
}

/* The job's first line, which the end of a long file does not hold. */
static void take_start(ru_watch *w, const ru_in_file *f, ru_arena *arena)
{
    int64_t n = f->size_bytes < START_BYTES ? f->size_bytes : START_BYTES;
    char *text = ru_arena_zalloc(arena, n + 1, 1);
    char *end = text != NULL && ru_in_read(f, w->metrics.path, 0, text, n, NULL) == RU_OK
                    ? strchr(text, '\n')
                    : NULL;
    if (end != NULL) {
        end[1] = '\0';
        (void)take_lines(w, text);
    }
}

static ru_status read_new(ru_watch *w, lines *l, const ru_in_file *f, ru_arena *arena, ru_err *err)
{
    if (f->id != l->file || f->size_bytes < l->at) { /* another leader, or a resumed run */
        l->file = f->id;
        l->at = f->size_bytes > TAIL_BYTES ? f->size_bytes - TAIL_BYTES : 0;
        if (l == &w->metrics) {
            w->counted = w->step_seen;
            w->n_events = 0;
            memset(w->gone, HERE, sizeof w->gone);
        }
        if (l == &w->metrics && l->at > 0) {
            take_start(w, f, arena);
        }
    }
    int64_t n = f->size_bytes - l->at;
    n = n < LOOK_BYTES ? n : LOOK_BYTES;
    char *text = ru_arena_alloc(arena, n + 1, 1);
    if (text == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "there is no memory for %s", l->path);
    }
    RU_TRY(ru_in_read(f, l->path, l->at, text, n, err));
    text[n] = '\0';
    l->at += take_lines(w, text);
    return RU_OK;
}

static ru_status take_file(ru_watch *w, lines *l, ru_arena *arena, ru_err *err)
{
    ru_in_file f;
    if (!ru_path_exists(l->path)) {
        return RU_OK;
    }
    RU_TRY(ru_in_open(l->path, &f, err));
    ru_status st = read_new(w, l, &f, arena, err);
    ru_in_close(&f);
    return st;
}

/* -- ends of the traces --------------------------------------------------------------------------
 */

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
    r.waited_s = count > 0 ? 1e-9 * (double)part[RU_STEP_PEER] / (double)count : 0;
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

/* How long the others waited for trace k in a step of the window, the one that waited longest. */
static double awaited(const ru_rank_steps *steps, uint32_t n, uint32_t k, int64_t since_ns)
{
    int64_t most = 0, count = 0;
    for (uint32_t j = 0; j < n; j++) {
        int64_t waited = 0;
        for (int64_t i = 0; i < steps[j].n; i++) {
            const ru_step_time *s = &steps[j].at[i];
            waited += s->late == k && s->end_ns >= since_ns ? s->late_ns : 0;
            count += j == k && s->end_ns >= since_ns;
        }
        most = waited > most ? waited : most;
    }
    return count > 0 ? 1e-9 * (double)most / (double)count : 0;
}

static ru_status take_traces(const ru_watch *w, ru_top *t, ru_arena *arena, ru_err *err)
{
    ru_trace *traces;
    ru_trace_clocks clocks;
    uint32_t n_causes;
    const char *dir = ru_path_join(arena, w->run, "trace");
    if (dir == NULL || !ru_path_is_dir(dir)) {
        return dir == NULL ? RU_FAIL(err, RU_E_LIMIT, "there is no memory for the view") : RU_OK;
    }
    ru_status st = ru_trace_run_load_end(w->run, TRACE_BYTES, arena, &traces, &t->n, err);
    if (st == RU_E_MISSING) { /* the folder is there, no file yet */
        t->n = 0;
        return RU_OK;
    }
    RU_TRY(st);
    ru_rank_steps *steps = RU_NEW(arena, ru_rank_steps, t->n);
    ru_top_rank *ranks = RU_NEW(arena, ru_top_rank, t->n);
    ru_cause *causes = RU_NEW(arena, ru_cause, RU_CAUSES_MAX);
    if (steps == NULL || ranks == NULL || causes == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "there is no memory for the view");
    }
    RU_TRY(ru_trace_align(traces, t->n, arena, &clocks, err));
    RU_TRY(ru_trace_steps(traces, t->n, &clocks, arena, steps, err));
    RU_TRY(ru_trace_causes(traces, steps, t->n, &clocks, arena, causes, &n_causes, err));
    RU_TRY(ru_trace_predicted(traces, t->n, &clocks, WINDOW_NS, arena, t->predictors,
                              &t->n_predictors, err));
    int64_t last = INT64_MIN, wall_now = ru_clock_wall_ns();
    for (uint32_t k = 0; k < t->n; k++) {
        int64_t end = ru_trace_global(&clocks, k, traces[k].last_ns);
        last = end > last ? end : last;
    }
    for (uint32_t k = 0; k < t->n; k++) {
        int64_t quiet =
            wall_now - (clocks.wall_ns + ru_trace_global(&clocks, k, traces[k].last_ns));
        ranks[k] = rank_of(&traces[k], &steps[k], last, t->ended != NULL ? 0 : quiet);
        uint8_t gone = ranks[k].rank < GONE_MAX ? w->gone[ranks[k].rank] : HERE;
        ranks[k].gone = gone == LOST ? "lost" : gone == LEFT ? "left" : NULL;
        ranks[k].awaited_s = awaited(steps, t->n, k, last - WINDOW_NS);
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

ru_status ru_watch_look(ru_watch *w, ru_arena *arena, ru_top *view, ru_err *err)
{
    ru_top t = {.name = w->run, .left_s = -1};
    RU_TRY(take_file(w, &w->metrics, arena, err));
    w->counts = true;
    RU_TRY(take_file(w, &w->measured, arena, err));
    RU_TRY(take_file(w, &w->rounds, arena, err));
    RU_TRY(take_file(w, &w->follow, arena, err));
    RU_TRY(take_file(w, &w->functions, arena, err));
    t.round = w->t.round;
    t.follow = w->t.follow;
    t.functions = w->t.functions;
    t.step = w->t.steps;
    t.steps = w->steps_all;
    t.loss = isfinite(w->t.loss) ? w->t.loss : 0;
    t.noise = isfinite(w->t.noise) ? w->t.noise : 0;
    t.samples_per_s = isfinite(w->t.samples_per_s) ? w->t.samples_per_s : 0;
    t.ended = w->t.ended[0] != '\0' ? w->t.ended : NULL;
    for (uint32_t i = 0; i < w->n_events; i++) {
        t.events[t.n_events++] = w->events[i];
    }
    RU_TRY(take_traces(w, &t, arena, err));
    double rate = 0;
    for (uint32_t k = 0; k < t.n; k++) {
        rate = t.ranks[k].steps_per_s > rate ? t.ranks[k].steps_per_s : rate;
        t.step = t.ranks[k].step > t.step ? t.ranks[k].step : t.step;
    }
    t.left_s = t.steps > 0 && rate > 0 ? ((double)t.steps - (double)t.step) / rate : -1;
    *view = t;
    return RU_OK;
}
