/* rubato trace: where the time of a run went, and its trace in the formats of other tools. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "env/file/file.h"
#include "env/link/link_tcp.h"
#include "host/ask.h"
#include "launch/launch.h"
#include "store/chrome_file.h"
#include "tool/cmd.h"
#include "tool/cmd/otlp_send.h"
#include "tool/explain/trace_errors.h"
#include "tool/page/page.h"
#include "trace/export/export.h"
#include "trace/read/cause.h"
#include "trace/read/fold.h"
#include "trace/read/predicted.h"
#include "trace/read/read.h"

enum { RANKS_SHOWN = 8, ROWS_SHOWN = 16 };

/* The traces of a run, laid over one clock and cut into steps. */
typedef struct view {
    const ru_trace *traces; /* [n] */
    uint32_t n;
    ru_trace_clocks clocks;
    ru_rank_steps *steps; /* [n] */
    ru_page_word *words;  /* [n_words] causes first */
    uint32_t n_words;
    const ru_cause *causes; /* [n_causes] those of the first words */
    uint32_t n_causes;
} view;

static void describe(const ru_trace *t, const ru_span_facts *f)
{
    printf(
        "%s rank %u: %lld records of %u threads over %.3f s; the busiest thread works %.1f %% and "
        "waits %.1f %%\n",
        t->process, ru_trace_number(t), (long long)t->records, t->n_threads,
        (double)f->wall_ns * 1e-9,
        f->wall_ns > 0 ? 100 * (double)f->busy_ns / (double)f->wall_ns : 0,
        f->wall_ns > 0 ? 100 * (double)f->wait_ns / (double)f->wall_ns : 0);
    if (t->dropped > 0) {
        printf("  the recorder dropped %lld records because a ring was full\n",
               (long long)t->dropped);
    }
    if (t->damaged_at >= 0) {
        printf("  the file is damaged at byte %lld; the output covers the records before it\n",
               (long long)t->damaged_at);
    } else if (!t->complete) {
        printf("  the run did not close its trace (killed, or still running)\n");
    }
}

/* How well the clocks of several traces agree. */
static void describe_clocks(const ru_trace *t, const ru_trace_clocks *c)
{
    int64_t worst = 0;
    uint32_t unknown = 0;
    for (uint32_t k = 0; k < c->n; k++) {
        int64_t bound = ru_trace_bound_of(c, k, &t[k]);
        unknown += bound < 0;
        worst = bound > worst ? bound : worst;
    }
    if (c->n < 2) {
        return;
    }
    printf("clocks: %u traces on the clock of rank %u, with an error of at most %.1f us", c->n,
           ru_trace_number(&t[c->reference]), (double)worst * 1e-3);
    if (unknown > 0) {
        printf("; %u placed by the wall clock alone", unknown);
    }
    printf("; of %lld transfers %lld seem to arrive before they are sent, %lld after the repair\n",
           (long long)c->flows, (long long)c->before, (long long)c->after);
}

static void put_json(json_t *o)
{
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    if (text != NULL) {
        puts(text);
    }
    free(text);
    json_decref(o);
}

static void fact_json(const ru_trace *t, const ru_span_fact *f)
{
    json_t *o = json_pack(
        "{s:s, s:i, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:f, s:f}", "schema",
        "rubato.trace.fact/1", "rank", (int)ru_trace_number(t), "category", f->category, "name",
        f->name, "count", (json_int_t)f->took.count, "total_s", (double)f->total_ns * 1e-9,
        "self_s", (double)f->self_ns * 1e-9, "mean_s", f->took.mean_ns * 1e-9, "stddev_s",
        f->took.stddev_ns * 1e-9, "median_s", (double)f->took.median_ns * 1e-9, "p90_s",
        (double)f->took.p90_ns * 1e-9, "max_s", (double)f->took.max_ns * 1e-9, "value",
        (json_int_t)f->value_total, "predicted_total_s", (double)f->predicted_total_ns * 1e-9,
        "predicted_actual_s", (double)f->actual_total_ns * 1e-9);
    put_json(o);
}

/* The sentences of the causes are the first words. */
static void cause_json(const view *v, uint32_t i)
{
    const ru_cause *c = &v->causes[i];
    json_t *o = json_pack(
        "{s:s, s:s, s:o, s:I, s:f, s:f, s:s, s:o}", "schema", "rubato.trace.cause/1", "kind",
        ru_cause_kind_name(c->kind), "rank",
        c->trace == RU_STEP_NOBODY ? json_null()
                                   : json_integer(ru_trace_number(&v->traces[c->trace])),
        "since_step", (json_int_t)c->since_step, "factor", c->factor, "cost", c->cost, "text",
        v->words[i].text, "peer_rank",
        c->peer == 0 ? json_null() : json_integer(ru_trace_number(&v->traces[c->peer - 1])));
    put_json(o);
}

/* Of several ranks: a line for each of the first ones and the ops of one, which fit a screen. */
static ru_status summary(ru_cmd_in *in, const ru_trace *traces, uint32_t n, ru_err *err)
{
    int64_t rank = ru_cmd_i64(in, "rank"), rows = ru_cmd_i64(in, "rows");
    bool json = ru_cmd_flag(in, "json"), found = false;
    bool screen = n > 1 && rank < 0 && !json && !ru_cmd_given(in, "rows");
    uint32_t shown = screen && n > RANKS_SHOWN ? RANKS_SHOWN : n;
    const char *first = NULL;
    for (uint32_t k = 0; k < shown; k++) {
        ru_span_facts f;
        if (rank >= 0 && rank != ru_trace_number(&traces[k])) {
            continue;
        }
        found = true;
        RU_TRY(ru_trace_fold(&traces[k], in->arena, &f, err));
        for (uint32_t i = 0; json && i < f.n; i++) {
            fact_json(&traces[k], &f.facts[i]);
        }
        if (json) {
            continue;
        }
        describe(&traces[k], &f);
        const char *table =
            ru_span_facts_print(&f, (uint32_t)(screen ? ROWS_SHOWN : rows), in->arena);
        first = first != NULL ? first : table;
        if (!screen) {
            fputs(table, stdout);
        }
    }
    if (screen) {
        printf("%s%u ranks; rank %u in detail, --rank N shows another, --rows 25 all of them:\n%s",
               shown < n ? "... " : "", n, ru_trace_number(&traces[0]), first);
    }
    return found ? RU_OK
                 : RU_FAIL(err, RU_E_USAGE, "--rank %lld: the run has traces of ranks %u to %u",
                           (long long)rank, ru_trace_number(&traces[0]),
                           ru_trace_number(&traces[n - 1]));
}

/* Scalars of one line of metrics.jsonl: loss, lr and rates of steps, metrics of evaluations. */
static ru_status line_scalars(ru_tensorboard *tb, const json_t *o, int64_t wall_ns, ru_err *err)
{
    const char *schema = json_string_value(json_object_get(o, "schema"));
    int64_t step = json_integer_value(json_object_get(o, "step"));
    if (schema == NULL) {
        return RU_OK;
    }
    if (strcmp(schema, "rubato.train.step/1") == 0) {
        static const char *const keys[] = {"loss", "lr", "step_s", "samples_per_s"};
        for (uint32_t k = 0; k < RU_ARRAY_LEN(keys); k++) {
            const json_t *v = json_object_get(o, keys[k]);
            char tag[64];
            snprintf(tag, sizeof tag, "train/%s", keys[k]);
            if (json_is_number(v)) {
                RU_TRY(ru_tensorboard_scalar(tb, tag, step, wall_ns, json_number_value(v), err));
            }
        }
    } else if (strcmp(schema, "rubato.train.eval/1") == 0) {
        const char *key;
        json_t *v, *metric = json_object_get(o, "metric");
        json_object_foreach(metric, key, v)
        {
            char tag[128];
            snprintf(tag, sizeof tag, "eval/%.100s", key);
            RU_TRY(ru_tensorboard_scalar(tb, tag, step, wall_ns, json_number_value(v), err));
        }
    }
    return RU_OK;
}

enum { BINS_MAX = 1024 };

/* One tensor of a file of histograms: gradients/fc1.weight, parameters/fc1.weight. */
static ru_status tensor_histogram(ru_tensorboard *tb, const json_t *o, int64_t step,
                                  int64_t wall_ns, ru_err *err)
{
    double limits[BINS_MAX], counts[BINS_MAX];
    const json_t *bins = json_object_get(o, "bins");
    const char *of = json_string_value(json_object_get(o, "of"));
    const char *name = json_string_value(json_object_get(o, "name"));
    ru_tb_histogram h = {.min = json_number_value(json_object_get(o, "min")),
                         .max = json_number_value(json_object_get(o, "max")),
                         .num = json_number_value(json_object_get(o, "n")),
                         .sum = json_number_value(json_object_get(o, "sum")),
                         .squares = json_number_value(json_object_get(o, "squares")),
                         .limits = limits,
                         .counts = counts};
    for (size_t k = 0; k < json_array_size(bins) && h.n < BINS_MAX; k++) {
        const json_t *bin = json_array_get(bins, k);
        limits[h.n] = json_number_value(json_array_get(bin, 0));
        counts[h.n++] = json_number_value(json_array_get(bin, 1));
    }
    char tag[512];
    (void)snprintf(tag, sizeof tag, "%.20ss/%.400s", of != NULL ? of : "tensor",
                   name != NULL ? name : "?");
    return h.n > 0 ? ru_tensorboard_histogram(tb, tag, step, wall_ns, &h, err) : RU_OK;
}

/* The files that train.histograms wrote, in the order of their steps. */
static ru_status histograms(ru_cmd_in *in, ru_tensorboard *tb, int64_t wall_ns, ru_err *err)
{
    const char *dir = ru_path_join(in->arena, in->args[0], "histograms");
    char **names;
    uint32_t n = 0;
    if (dir == NULL || !ru_path_is_dir(dir)) {
        return RU_OK;
    }
    RU_TRY(ru_dir_list(dir, in->arena, &names, &n, err));
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < n && st == RU_OK; k++) {
        char *text;
        int64_t size;
        const char *path = ru_path_join(in->arena, dir, names[k]);
        if (path == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for %s", names[k]);
        }
        if (!ru_str_ends(ru_str_c(names[k]), ".json")) {
            continue;
        }
        RU_TRY(ru_file_read(path, 0, in->arena, &text, &size, err));
        json_t *o = json_loadb(text, (size_t)size, 0, NULL);
        const json_t *tensors = json_object_get(o, "tensors");
        int64_t step = json_integer_value(json_object_get(o, "step"));
        if (o == NULL) {
            st = RU_FAIL(err, RU_E_DATA, "%s is damaged: it is no JSON", path);
        }
        for (size_t i = 0; i < json_array_size(tensors) && st == RU_OK; i++) {
            st = tensor_histogram(tb, json_array_get(tensors, i), step, wall_ns, err);
        }
        json_decref(o);
    }
    return st;
}

static ru_status tensorboard(ru_cmd_in *in, const ru_trace *t, const char *dir, ru_err *err)
{
    const char *path = ru_path_join(in->arena, in->args[0], "metrics.jsonl");
    char *text;
    int64_t size;
    RU_TRY(ru_file_read(path, 0, in->arena, &text, &size, err));
    ru_tensorboard *tb = NULL;
    RU_TRY(ru_tensorboard_open(dir, t->wall_ns, &tb, err));
    ru_status st = RU_OK;
    int64_t wall_ns = t->wall_ns;
    for (char *line = text, *end; st == RU_OK && *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        if (end == NULL) {
            break; /* a torn last line of a killed run */
        }
        json_t *o = json_loadb(line, (size_t)(end - line), 0, NULL);
        wall_ns += (int64_t)(1e9 * json_number_value(json_object_get(o, "step_s")));
        st = line_scalars(tb, o, wall_ns, err);
        json_decref(o);
    }
    st = st == RU_OK ? histograms(in, tb, wall_ns, err) : st;
    if (st == RU_OK) {
        st = ru_tensorboard_commit(tb, err);
    }
    ru_tensorboard_close(tb);
    return st;
}

enum {
    WORTH = 50,    /* a part of the time below one in so many is not told */
    PATH_TOLD = 6, /* parts of the critical path, the largest first */
};

static void add_word(view *v, const char *text, bool cause)
{
    v->words[v->n_words].text = text;
    v->words[v->n_words++].cause = cause;
}

static void say_parts(view *v, ru_arena *arena)
{
    int64_t total[RU_STEP_PARTS] = {0}, all = 0, count = 0;
    for (uint32_t k = 0; k < v->n; k++) {
        for (uint32_t p = 0; p < RU_STEP_PARTS; p++) {
            total[p] += v->steps[k].total_ns[p];
        }
        all += v->steps[k].step_ns;
        count += v->steps[k].n;
    }
    if (all == 0) {
        return;
    }
    ru_text t = ru_text_arena(arena);
    ru_text_putf(&t, "The mean step takes %.2f ms:", (double)all * 1e-6 / (double)count);
    for (uint32_t p = 0; p < RU_STEP_PARTS; p++) {
        ru_text_putf(&t, "%s %.1f %% %s", p > 0 ? "," : "", 100.0 * (double)total[p] / (double)all,
                     p == RU_STEP_PEER ? "waiting for a peer" : ru_step_part_name((ru_step_part)p));
    }
    ru_text_put(&t, ".");
    add_word(v, t.p, false);
}

/* The first recording of the rank of trace k; a resumed run has several. */
static uint32_t first_of(const view *v, uint32_t k)
{
    uint32_t first = 0;
    while (ru_trace_number(&v->traces[first]) != ru_trace_number(&v->traces[k])) {
        first++;
    }
    return first;
}

static uint32_t ranks_of(const view *v)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < v->n; k++) {
        n += first_of(v, k) == k;
    }
    return n;
}

/* Which ranks the steps had to wait for. */
static ru_status say_path(view *v, ru_arena *arena, ru_err *err)
{
    int64_t(*chain)[RU_STEP_PARTS], all = 0;
    RU_TRY(ru_trace_chain(v->steps, v->n, arena, &chain, err));
    for (uint32_t k = 0; k < v->n; k++) {
        uint32_t first = first_of(v, k);
        for (uint32_t p = 0; p < RU_STEP_PARTS; p++) {
            all += chain[k][p];
            chain[first][p] += first != k ? chain[k][p] : 0;
            chain[k][p] = first != k ? 0 : chain[k][p];
        }
    }
    ru_text t = ru_text_arena(arena);
    for (uint32_t told = 0; ranks_of(v) > 1 && told < PATH_TOLD; told++) {
        int64_t *most = NULL;
        uint32_t rank = 0, part = 0;
        for (uint32_t i = 0; i < v->n * RU_STEP_PARTS; i++) {
            int64_t *at = &chain[i / RU_STEP_PARTS][i % RU_STEP_PARTS];
            if (*at * WORTH > all && (most == NULL || *at > *most)) {
                most = at;
                rank = ru_trace_number(&v->traces[i / RU_STEP_PARTS]);
                part = i % RU_STEP_PARTS;
            }
        }
        if (most == NULL) {
            break;
        }
        ru_text_putf(&t, "%s %.0f %% %s of rank %u", t.n > 0 ? "," : "",
                     100.0 * (double)*most / (double)all, ru_step_part_name((ru_step_part)part),
                     rank);
        *most = 0;
    }
    if (t.n > 0) {
        add_word(
            v,
            ru_arena_printf(arena, "The critical path of all steps, largest parts first:%s.", t.p),
            false);
    }
    return RU_OK;
}

/* How much the same takes now more, now less time. */
static const char *repeated(const ru_predictor_error *e, ru_arena *arena)
{
    const char *text =
        e->repeat_n > 0
            ? ru_arena_printf(arena,
                              "; equal work itself differs by %.0f %% in the middle and %.0f %% "
                              "in one case of twenty",
                              100 * e->repeat_median, 100 * e->repeat_p95)
            : "";
    return text != NULL ? text : "";
}

/* How right the predicted times of records were. */
static ru_status say_errors(view *v, ru_arena *arena, ru_err *err)
{
    ru_predictor_error e[RU_PREDICTORS_MAX];
    uint32_t n = 0;
    RU_TRY(ru_trace_predicted(v->traces, v->n, &v->clocks, 0, arena, e, &n, err));
    for (uint32_t k = 0; k < n; k++) {
        add_word(v,
                 ru_arena_printf(arena,
                                 "The %s model is off by %.0f %% in the middle of %lld "
                                 "predictions, and by more than %.0f %% in one case of twenty%s.",
                                 e[k].predictor, 100 * e[k].median, (long long)e[k].n,
                                 100 * e[k].p95, repeated(&e[k], arena)),
                 false);
    }
    return RU_OK;
}

static ru_status look(const ru_trace *traces, uint32_t n, ru_arena *arena, view *v, ru_err *err)
{
    uint32_t n_causes;
    ru_cause *causes = RU_NEW(arena, ru_cause, RU_CAUSES_MAX);
    *v = (view){.traces = traces,
                .n = n,
                .steps = RU_NEW(arena, ru_rank_steps, n),
                .words = RU_NEW(arena, ru_page_word, RU_CAUSES_MAX + 2 + RU_PREDICTORS_MAX)};
    if (causes == NULL || v->steps == NULL || v->words == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "there is no memory for the steps of the trace");
    }
    RU_TRY(ru_trace_align(traces, n, arena, &v->clocks, err));
    RU_TRY(ru_trace_steps(traces, v->n, &v->clocks, arena, v->steps, err));
    RU_TRY(ru_trace_causes(traces, v->steps, n, &v->clocks, arena, causes, &n_causes, err));
    for (uint32_t i = 0; i < n_causes; i++) {
        ru_text t = ru_text_arena(arena);
        ru_cause_print(&causes[i], traces, &t);
        add_word(v, t.p, true);
    }
    v->causes = causes;
    v->n_causes = n_causes;
    say_parts(v, arena);
    RU_TRY(say_path(v, arena, err));
    return say_errors(v, arena, err);
}

static ru_status html(ru_cmd_in *in, const view *v, const char *path, ru_err *err)
{
    ru_arena *arena = in->arena;
    ru_span_facts *facts = RU_NEW(arena, ru_span_facts, v->n);
    uint32_t ranks = ranks_of(v);
    int64_t records = 0;
    for (uint32_t k = 0; facts != NULL && k < v->n; k++) {
        RU_TRY(ru_trace_fold(&v->traces[k], arena, &facts[k], err));
        records += v->traces[k].records;
    }
    if (facts == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "there is no memory for the page");
    }
    ru_page_in page = {.title = in->args[0],
                       .about = ru_arena_printf(arena, "Trace of %u rank%s with %lld records.",
                                                ranks, ranks == 1 ? "" : "s", (long long)records),
                       .traces = v->traces,
                       .steps = v->steps,
                       .facts = facts,
                       .n = v->n,
                       .clocks = &v->clocks,
                       .words = v->words,
                       .n_words = v->n_words};
    RU_TRY(ru_page_memory(in->args[0], arena, &page, err));
    RU_TRY(ru_page_write(&page, path, arena, err));
    fprintf(stderr, "wrote %s; open it in a browser\n", path);
    return RU_OK;
}

/* HOST:PORT of a running job: a window of its traces. */
static ru_status capture(ru_cmd_in *in, ru_err *err)
{
    const char *token;
    ru_ask_answer w;
    RU_TRY(ru_token_get(ru_cmd_text(in, "token-file"), in->arena, &token, err));
    RU_TRY(ru_ask_window(in->args[0], (const uint8_t *)token, (uint32_t)strlen(token),
                         (uint32_t)ru_cmd_i64(in, "steps"), in->arena, &w, err));
    if (w.saved < w.members) {
        fprintf(stderr, "%u of %u workers saved their trace; the others left or do not answer\n",
                w.saved, w.members);
    }
    puts(w.dir);
    return RU_OK;
}

static ru_status convert_more(ru_cmd_in *in, const view *v, bool *any, ru_err *err)
{
    const char *hta = ru_cmd_text(in, "hta"), *otlp = ru_cmd_text(in, "otlp");
    if (hta != NULL) {
        RU_TRY(ru_trace_hta(v->traces, v->n, &v->clocks, hta, err));
        fprintf(stderr, "wrote %s; read it with hta.trace_analysis.TraceAnalysis\n", hta);
    }
    if (otlp != NULL && (strncmp(otlp, "http://", 7) == 0 || strncmp(otlp, "https://", 8) == 0)) {
        int64_t sent = 0;
        ru_status st = rui_otlp_send(v->traces, v->n, &v->clocks, otlp, in->arena, &sent, err);
        if (st == RU_OK || sent > 0) {
            fprintf(stderr, "%s took %lld spans\n", otlp, (long long)sent);
        }
        RU_TRY(st);
    } else if (otlp != NULL) {
        RU_TRY(ru_trace_otlp(v->traces, v->n, &v->clocks, otlp, err));
        fprintf(stderr, "wrote %s; --otlp http://COLLECTOR:4318 sends the spans instead\n", otlp);
    }
    *any = hta != NULL || otlp != NULL;
    return RU_OK;
}

/* A recording of another program, told by its name. */
static bool is_foreign(const char *name)
{
    size_t n = strlen(name);
    return (n > 5 && strcmp(name + n - 5, ".json") == 0) ||
           (n > 8 && strcmp(name + n - 8, ".json.gz") == 0);
}

static ru_status load(ru_cmd_in *in, ru_trace **traces, uint32_t *n, ru_err *err)
{
    if (!is_foreign(in->args[0])) {
        return ru_trace_run_load(in->args[0], in->arena, traces, n, err);
    }
    *traces = RU_NEW(in->arena, ru_trace, 1);
    *n = 1;
    return *traces == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for the trace")
                           : ru_chrome_file_load(in->args[0], in->arena, *traces, err);
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    if (ru_link_tcp_address_ok(in->args[0]) && !ru_path_exists(in->args[0])) {
        return capture(in, err);
    }
    ru_trace *traces = NULL;
    uint32_t n = 0;
    RU_TRY(load(in, &traces, &n, err));
    view v;
    RU_TRY(look(traces, n, in->arena, &v, err));
    const char *perfetto = ru_cmd_text(in, "perfetto"), *chrome = ru_cmd_text(in, "chrome");
    const char *tb = ru_cmd_text(in, "tensorboard");
    if (perfetto != NULL) {
        RU_TRY(ru_trace_perfetto(traces, n, &v.clocks, perfetto, err));
        fprintf(stderr, "wrote %s; open it at ui.perfetto.dev or with trace_processor\n", perfetto);
    }
    if (chrome != NULL) {
        RU_TRY(ru_trace_chrome(traces, n, &v.clocks, chrome, err));
        fprintf(stderr, "wrote %s; open it in chrome://tracing or Perfetto\n", chrome);
    }
    if (tb != NULL) {
        RU_TRY(tensorboard(in, &traces[0], tb, err));
        fprintf(stderr, "wrote a TensorBoard event file; show it with: tensorboard --logdir %s\n",
                tb);
    }
    bool more;
    const char *csv = ru_cmd_text(in, "predictions");
    if (csv != NULL) {
        RU_TRY(rui_trace_errors_csv(traces, n, &v.clocks, csv, in->arena, err));
        fprintf(stderr, "wrote %s, a line for each predicted and measured time\n", csv);
    }
    RU_TRY(convert_more(in, &v, &more, err));
    const char *page = ru_cmd_text(in, "html");
    if (page != NULL) {
        RU_TRY(html(in, &v, page, err));
    }
    bool other =
        more || csv != NULL || page != NULL || perfetto != NULL || chrome != NULL || tb != NULL;
    if (other && !ru_cmd_flag(in, "summary")) {
        return RU_OK;
    }
    if (!ru_cmd_flag(in, "json")) {
        describe_clocks(traces, &v.clocks);
        for (uint32_t i = 0; i < v.n_words; i++) {
            printf("%s\n", v.words[i].text);
        }
    }
    for (uint32_t i = 0; ru_cmd_flag(in, "json") && i < v.n_causes; i++) {
        cause_json(&v, i);
    }
    return summary(in, traces, n, err);
}

static const ru_opt opts[] = {
    RU_OPT(FLAG, "summary", NULL, "print the time by op (default if no output file is named)"),
    RU_OPT(I64, "rows", "N", "number of rows of the summary of a rank (0: all)", .def = "25",
           RU_IN(0, 1000000)),
    RU_OPT(I64, "rank", "N",
           "print the summary of this rank only (default: a line for each rank and the ops of the "
           "first)",
           .def = "-1", RU_IN(-1, UINT32_MAX)),
    RU_OPT(FLAG, "json", NULL,
           "print the causes (rubato.trace.cause/1) and the summary (rubato.trace.fact/1, one line "
           "per name) as JSON Lines"),
    RU_OPT(TEXT, "html", "FILE",
           "write one page that shows the run in a browser: timeline of all ranks, step times, "
           "where the time went"),
    RU_OPT(TEXT, "perfetto", "FILE", "write a Perfetto trace with all ranks, of any size"),
    RU_OPT(TEXT, "chrome", "FILE", "write Chrome trace JSON, for traces of up to a few hundred MB"),
    RU_OPT(TEXT, "tensorboard", "DIR",
           "write loss, rate, metrics and histograms as a TensorBoard event file"),
    RU_OPT(TEXT, "hta", "DIR", "write a file per rank for HolisticTraceAnalysis"),
    RU_OPT(TEXT, "otlp", "FILE|URL",
           "write OpenTelemetry's OTLP/JSON, or send it to the collector at http://HOST:4318 "
           "(headers: "
           "OTEL_EXPORTER_OTLP_HEADERS); spans belong to the trace in TRACEPARENT, if the run "
           "had one "
           "in its environment"),
    RU_OPT(TEXT, "predictions", "FILE",
           "write each predicted time beside the measured one, as CSV"),
    RU_OPT(I64, "steps", "N", "HOST:PORT: number of steps to keep, the same ones of all workers",
           .def = "10", RU_IN(1, 100000)),
    RU_OPT(TEXT, "token-file", "FILE",
           "HOST:PORT: file with the job's token (OUT/token of its run); default: RUBATO_TOKEN"),
};

static const ru_example examples[] = {
    {"rubato trace runs/lenet", "show the time of each op"},
    {"rubato trace runs/lenet --html lenet.html", "show the timeline in a browser"},
    {"rubato trace runs/lenet --perfetto lenet.perfetto-trace", "show the timeline in Perfetto"},
    {"rubato trace runs/lenet --tensorboard tb", "show the curves in TensorBoard"},
    {"rubato trace 10.0.0.5:4000 --steps 20 --token-file runs/lenet/token",
     "keep the next 20 steps of all workers of a running job, and print the folder"},
};

const ru_cmd rui_cmd_trace = {
    .name = "trace",
    .summary = "show how a run spent its time, or convert its trace for other tools",
    .about =
        "Rubato records every op, wait and checkpoint of every run. RUN is the folder of a "
        "run (finished, killed or still running), a folder of windows in it, or a single "
        ".trace file. All ranks are shown on one clock. HOST:PORT is the address of any worker "
        "of a running job: its workers keep a window of steps in RUN/trace/steps-FIRST-END of "
        "the leader's run. After a step that took long, and after the loss of a worker, they keep "
        "the last 5 s in RUN/trace/flight-STEP.",
    RU_CMD_ARGS("RUN|HOST:PORT", 1, 1),
    RU_CMD_LISTS(opts, examples),
    .exits = "65 the trace is damaged from its start|66 there is no such run|69 no worker answers, "
             "or the token is not the job's|73 the output cannot "
             "be created or written",
    .run = run,
};
