/* Pipelines on published layer profiles: every given row of what the published optimizer prints and
 * of the paper's formula, then our model beside all baselines, then how long planning takes. */
#include <math.h>
#include <string.h>

#include "bench/replay/replay.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "plan/cut/pipe.h"
#include "plan/row/policy.h"
#include "store/layers.h"
#include "store/natural.h"

enum { SETS_MAX = 8 };

/* Settings of one case, as `--set` takes them. */
typedef struct settings {
    const char *at[SETS_MAX];
    uint32_t n;
} settings;

static void put(ru_replay *r, settings *s, const char *key, const char *value)
{
    RU_CHECK(s->n < SETS_MAX);
    s->at[s->n++] = ru_arena_printf(r->arena, "%s=%s", key, value);
}

/* The input, read as `rubato plan FILE pipe --set ...` does. */
static ru_status load(ru_replay *r, const char *path, const settings *s, void **in, ru_err *err)
{
    char *text;
    int64_t size;
    ru_conf *c;
    RU_TRY(ru_file_read(path, RU_CONF_BULK_BYTES_MAX, r->arena, &text, &size, err));
    const ru_natural *kind = ru_natural_find("pipe", path, ru_str_n(text, size));
    if (kind == NULL) {
        return RU_FAIL(err, RU_E_DATA, "%s is no layer profile", path);
    }
    ru_text json = ru_text_arena(r->arena);
    ru_json j = ru_json_into(&json);
    ru_json_open(&j, NULL, '{');
    RU_TRY(kind->read(path, ru_str_n(text, size), r->arena, &j, err));
    ru_json_close(&j);
    RU_TRY(ru_conf_new(ru_policy_pipe.in, r->arena, &c, err));
    ru_conf_bulk(c);
    RU_TRY(ru_conf_add_json(c, path, json.p, json.n, err));
    for (uint32_t i = 0; i < s->n; i++) {
        RU_TRY(ru_conf_add_set(c, s->at[i], err));
    }
    *in = ru_arena_zalloc(r->arena, ru_policy_pipe.in->size_bytes, 64);
    return *in == NULL ? RU_FAIL(err, RU_E_LIMIT, "no memory for %s", path)
                       : ru_conf_apply(c, *in, err);
}

/* Plan and judge; `took_s` may be NULL. The plan's arrays are gone on return. */
static ru_status plan_case(ru_replay *r, const char *path, const settings *s, const char *method,
                           ru_pipe_plan *plan, double *took_s, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(r->arena);
    settings all = *s;
    void *in = NULL;
    ru_arena scratch;
    put(r, &all, "method", method);
    RU_TRY(load(r, path, &all, &in, err));
    ru_arena_init(&scratch, 0);
    ru_policy_tools tools = {r->arena, &scratch, NULL};
    int64_t from = ru_clock_now().ns;
    ru_status st = ru_policy_pipe.plan(in, &tools, plan, err);
    if (took_s != NULL) {
        *took_s = (double)(ru_clock_now().ns - from) * 1e-9;
    }
    st = st == RU_OK ? ru_policy_pipe.check(in, plan, &scratch, err) : st;
    ru_arena_fini(&scratch);
    ru_arena_rewind(r->arena, mark);
    return st;
}

/* Time of a baseline; NaN: it has no plan, as when memory is too small. */
static ru_status baseline_case(ru_replay *r, const char *path, const settings *s,
                               const char *method, double *minibatch_s, ru_err *err)
{
    ru_pipe_plan plan;
    ru_status st = plan_case(r, path, s, method, &plan, NULL, err);
    *minibatch_s = st == RU_OK ? plan.minibatch_s : RU_NAN;
    return st == RU_E_INFEASIBLE ? RU_OK : st;
}

/* Distance of a figure from a printed one beyond what its last digit leaves open. */
static double gap(double is, double printed, double digit)
{
    return fmax(0, fabs(is - printed) - 0.501 * digit) / fabs(printed);
}

/* "-n 4 2 -b 1e10 1e9 --straight_pipeline ..." as settings; *straight says how to plan. */
static bool read_args(ru_replay *r, ru_str args, settings *s, bool *straight)
{
    ru_text units = ru_text_arena(r->arena), links = ru_text_arena(r->arena);
    const char *compression = "0", *memory = "0";
    uint32_t n_units = 0, n_links = 0;
    ru_str word, key = {0};
    *straight = false;
    while (ru_str_next(&args, ' ', &word)) {
        double v;
        bool number = ru_str_f64(word, &v);
        if (!number) {
            key = word;
            *straight = *straight || ru_str_eq_c(word, "--straight_pipeline");
            memory = ru_str_eq_c(word, "--use_memory_constraint") ? "16e9" : memory;
        } else if (ru_str_eq_c(key, "-n")) {
            ru_text_putf(&units, "%s%.*s", n_units++ > 0 ? "," : "[", RU_STR_ARG(word));
        } else if (ru_str_eq_c(key, "-b")) {
            ru_text_putf(&links, "%s%.*s", n_links++ > 0 ? "," : "[", RU_STR_ARG(word));
        } else if (ru_str_eq_c(key, "--activation_compression_ratio")) {
            compression = ru_arena_strn(r->arena, word.p, word.n);
        }
    }
    if (n_links == 0) {
        ru_text_putf(&links, "[1e9");
        n_links = 1;
    }
    ru_text_putf(&units, "]");
    ru_text_putf(&links, "]");
    put(r, s, "cost", "repo");
    put(r, s, "units", units.p);
    put(r, s, "bytes_per_s", links.p);
    put(r, s, "compression", compression);
    put(r, s, "memory", memory);
    return n_units == n_links;
}

/* The next cell as text or number; false: none, or no number. */
static bool next_number(ru_str *line, double *v)
{
    ru_str cell;
    return ru_str_next(line, '\t', &cell) && ru_str_f64(cell, v);
}

static const char *profile_path(ru_replay *r, const char *folder, ru_str name)
{
    return ru_arena_printf(r->arena, "%s/%.*s.graph.txt", folder, RU_STR_ARG(name));
}

static ru_status add_row(ru_replay *r, const char *name, const ru_pipe_plan *plan, double straight,
                         double published, ru_err *err)
{
    ru_replay_row row = ru_replay_row_of(name, "minibatch_s", true);
    row.ours = plan->minibatch_s;
    row.published = published;
    ru_replay_baseline(r, &row, "straight", straight);
    ru_replay_baseline(r, &row, "data_parallel", plan->data_parallel_s);
    ru_replay_baseline(r, &row, "single", plan->single_s);
    return ru_replay_add(r, &row, err);
}

typedef struct worst {
    double gap;
    uint32_t rows;
} worst;

/* profile, args, states, single s, stage s, speed-up, data parallel's speed-up, ... */
static ru_status repo_row(ru_replay *r, const char *folder, ru_str line, worst *w, ru_err *err)
{
    ru_str name, args;
    double states, single, stage, speedup, dp_speedup;
    settings s = {0};
    bool straight;
    if (!ru_str_next(&line, '\t', &name) || !ru_str_next(&line, '\t', &args) ||
        !next_number(&line, &states) || !next_number(&line, &single) ||
        !next_number(&line, &stage) || !next_number(&line, &speedup) ||
        !next_number(&line, &dp_speedup) || !read_args(r, args, &s, &straight)) {
        return RU_FAIL(err, RU_E_DATA, "%s/expected-repo-model.tsv: a row that is none", folder);
    }
    const char *path = profile_path(r, folder, name);
    ru_pipe_plan plan;
    double straight_s;
    RU_TRY(plan_case(r, path, &s, straight ? "straight" : "pipeline", &plan, NULL, err));
    RU_TRY(baseline_case(r, path, &s, "straight", &straight_s, err));
    w->gap = fmax(w->gap, gap(plan.minibatch_s, stage, 1e-9));
    w->gap = fmax(w->gap, gap(plan.single_s, single, 1e-9));
    w->gap = fmax(w->gap, gap(plan.single_s / plan.minibatch_s, speedup, 1e-6));
    w->gap = fmax(w->gap, gap(plan.single_s / plan.data_parallel_s, dp_speedup, 1e-6));
    w->gap = fmax(w->gap, fabs(plan.n_cuts - states));
    w->rows++;
    const char *label =
        ru_arena_printf(r->arena, "repo, %.*s %.*s", RU_STR_ARG(name), RU_STR_ARG(args));
    return add_row(r, label, &plan, straight_s, stage, err);
}

/* profile, workers, bandwidth, stage s, speed-up, ... */
static ru_status paper_row(ru_replay *r, const char *folder, ru_str line, worst *w, ru_err *err)
{
    ru_str name, workers, link;
    double stage, speedup;
    settings s = {0};
    if (!ru_str_next(&line, '\t', &name) || !ru_str_next(&line, '\t', &workers) ||
        !ru_str_next(&line, '\t', &link) || !next_number(&line, &stage) ||
        !next_number(&line, &speedup)) {
        return RU_FAIL(err, RU_E_DATA, "%s/expected-paper-model.tsv: a row that is none", folder);
    }
    put(r, &s, "cost", "paper");
    put(r, &s, "units", ru_arena_printf(r->arena, "[%.*s]", RU_STR_ARG(workers)));
    put(r, &s, "bytes_per_s", ru_arena_printf(r->arena, "[%.*s]", RU_STR_ARG(link)));
    const char *path = profile_path(r, folder, name);
    ru_pipe_plan plan;
    double straight_s;
    RU_TRY(plan_case(r, path, &s, "pipeline", &plan, NULL, err));
    RU_TRY(baseline_case(r, path, &s, "straight", &straight_s, err));
    w->gap = fmax(w->gap, gap(plan.minibatch_s, stage, 1e-9));
    w->gap = fmax(w->gap, gap(plan.single_s / plan.minibatch_s, speedup, 1e-4));
    w->rows++;
    const char *label = ru_arena_printf(r->arena, "paper, %.*s, %.*s workers, %.*s B/s",
                                        RU_STR_ARG(name), RU_STR_ARG(workers), RU_STR_ARG(link));
    return add_row(r, label, &plan, straight_s, stage, err);
}

static ru_status given_rows(ru_replay *r, const char *folder, bool repo, ru_err *err)
{
    const char *file = repo ? "expected-repo-model.tsv" : "expected-paper-model.tsv";
    char *text;
    int64_t size;
    worst w = {0};
    RU_TRY(
        ru_file_read(ru_path_join(r->arena, folder, file), 1 << 20, r->arena, &text, &size, err));
    ru_str all = ru_str_n(text, size), line;
    for (bool head = true; ru_str_next(&all, '\n', &line); head = false) {
        if (!head && line.n > 0) {
            RU_TRY(repo ? repo_row(r, folder, line, &w, err) : paper_row(r, folder, line, &w, err));
        }
    }
    ru_replay_row row =
        ru_replay_row_of(ru_arena_printf(r->arena, "largest distance over %u rows, %s cost", w.rows,
                                         repo ? "repo" : "paper"),
                         "relative_gap", true);
    row.ours = w.gap;
    row.goal = 1e-9;
    return ru_replay_add(r, &row, err);
}

static const char *const baselines[] = {
    "straight", "data_parallel", "single", "asp", "model_parallel",
    "hybrid",   "gpipe",         "flush",  "2bw", "naive"};

/* Our model beside every baseline. 2bw adds gradients over four minibatches, asp and naive change
 * the gradients: faster ones of these are no better plans. */
static ru_status calibrated(ru_replay *r, const char *folder, const char *profile,
                            const char *units, const char *links, ru_err *err)
{
    settings s = {0}; /* 16 workers in all cases */
    ru_pipe_plan plan;
    double other_s;
    const char *path = profile_path(r, folder, ru_str_c(profile));
    put(r, &s, "units", units);
    put(r, &s, "bytes_per_s", links);
    RU_TRY(plan_case(r, path, &s, "pipeline", &plan, NULL, err));
    const char *name = ru_arena_printf(r->arena, "%s, %s, %s B/s%s", profile, units, links,
                                       plan.all_cuts ? "" : ", one order");
    ru_replay_row row = ru_replay_row_of(name, "calibrated_minibatch_s", true);
    row.ours = plan.minibatch_s;
    row.goal = fmin(plan.single_s, plan.data_parallel_s);
    row.bound = plan.single_s / 16;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(baselines); k++) {
        RU_TRY(baseline_case(r, path, &s, baselines[k], &other_s, err));
        ru_replay_baseline(r, &row, baselines[k], other_s);
    }
    return ru_replay_add(r, &row, err);
}

static ru_status timed(ru_replay *r, const char *folder, const char *units, const char *links,
                       double goal_s, ru_err *err)
{
    settings s = {0};
    ru_pipe_plan plan;
    const char *path = profile_path(r, folder, ru_str_c("gnmt_large"));
    put(r, &s, "cost", "repo");
    put(r, &s, "units", units);
    put(r, &s, "bytes_per_s", links);
    ru_replay_row row =
        ru_replay_row_of(ru_arena_printf(r->arena, "gnmt_large, %s", units), "plan_s", true);
    row.timed = true;
    row.goal = goal_s;
    row.ours = INFINITY;
    for (uint32_t k = 0; k < (r->quick ? 1u : 3u); k++) {
        double took;
        RU_TRY(plan_case(r, path, &s, "pipeline", &plan, &took, err));
        row.ours = fmin(row.ours, took);
    }
    return ru_replay_add(r, &row, err);
}

enum { COPIES = 10 };

/* Copies of a graph, one after another. */
static ru_status copy_graph(ru_replay *r, const ru_layer_graph *g, ru_pipe_in *in, ru_err *err)
{
    uint32_t n_edges = 0, input = 0, last = 0; /* what waits for none, and what none waits for */
    ru_pipe_layer *layers = RU_NEW(r->arena, ru_pipe_layer, (int64_t)g->n * COPIES);
    ru_pipe_edge *edges = RU_NEW(r->arena, ru_pipe_edge, ((int64_t)g->n_edges + 1) * COPIES);
    if (layers == NULL || edges == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %d copies of %u layers", COPIES, g->n);
    }
    for (uint32_t k = 0; k < g->n; k++) {
        for (uint32_t e = 0; e < g->n_edges; e++) {
            input = g->edges[e].to == input ? g->edges[e].from : input;
            last = g->edges[e].from == last ? g->edges[e].to : last;
        }
    }
    for (uint32_t c = 0; c < COPIES; c++) {
        for (uint32_t i = 0; i < g->n; i++) {
            const ru_layer *l = &g->layers[i];
            layers[c * g->n + i] =
                (ru_pipe_layer){(int64_t)((i == input ? 0 : l->forward_ms + l->backward_ms) * 1e6),
                                (int64_t)l->param_bytes, (int64_t)l->activation_bytes};
        }
        for (uint32_t e = 0; e < g->n_edges; e++) {
            edges[n_edges++] =
                (ru_pipe_edge){c * g->n + g->edges[e].from, c * g->n + g->edges[e].to};
        }
        if (c > 0) {
            edges[n_edges++] = (ru_pipe_edge){(c - 1) * g->n + last, c * g->n + input};
        }
    }
    in->layers = layers;
    in->n = g->n * COPIES;
    in->edges = edges;
    in->n_edges = n_edges;
    return RU_OK;
}

/* How planning grows. */
static ru_status timed_tenfold(ru_replay *r, const char *folder, ru_err *err)
{
    char *text;
    int64_t size;
    ru_layer_graph g;
    const char *path = profile_path(r, folder, ru_str_c("resnet50"));
    RU_TRY(ru_file_read(path, 1 << 20, r->arena, &text, &size, err));
    RU_TRY(ru_layers_read(path, ru_str_n(text, size), r->arena, &g, err));
    const ru_pipe_level level = {16, 1.25e9};
    ru_pipe_in in = {.levels = &level,
                     .n_levels = 1,
                     .compression = 1,
                     .overlap = 1,
                     .microbatches = 1,
                     .cuts_max = 16384};
    RU_TRY(copy_graph(r, &g, &in, err));
    ru_pipe_plan plan;
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    int64_t from = ru_clock_now().ns;
    ru_status st = ru_plan_pipe(&in, r->arena, &scratch, &plan, err);
    double took = (double)(ru_clock_now().ns - from) * 1e-9;
    st = st == RU_OK ? ru_plan_pipe_check(&in, &plan, &scratch, err) : st;
    ru_arena_fini(&scratch);
    RU_TRY(st);
    ru_replay_row row = ru_replay_row_of(
        ru_arena_printf(r->arena, "ten times resnet50, [16], %u cuts", plan.n_cuts), "plan_s",
        true);
    row.timed = true;
    row.ours = took;
    return ru_replay_add(r, &row, err);
}

ru_status rui_replay_pipe(ru_replay *r, ru_err *err)
{
    static const char *const profiles[] = {
        "alexnet",      "densenet121",   "gnmt",          "gnmt_large", "inception_v3",
        "nasnetalarge", "nasnetamobile", "resnet101",     "resnet18",   "resnet50",
        "resnext101",   "resnext50",     "squeezenet1_0", "vgg16"};
    const char *folder = ru_replay_data(r, "pipedream-profiles");
    if (folder == NULL) {
        ru_replay_row row = ru_replay_row_of("no data", "minibatch_s", true);
        row.ours = RU_NAN;
        row.note = "RUBATO_DATA names no folder with pipedream-profiles";
        return ru_replay_add(r, &row, err);
    }
    RU_TRY(given_rows(r, folder, true, err));
    RU_TRY(given_rows(r, folder, false, err));
    for (uint32_t i = 0; i < RU_ARRAY_LEN(profiles) && !r->quick; i++) {
        RU_TRY(calibrated(r, folder, profiles[i], "[16]", "[1.25e9]", err));
    }
    RU_TRY(calibrated(r, folder, "vgg16", "[4,4]", "[10e9,1.25e9]", err));
    RU_TRY(calibrated(r, folder, "resnet50", "[4,4]", "[10e9,1.25e9]", err));
    RU_TRY(timed(r, folder, "[16]", "[1e9]", 0.5, err));
    RU_TRY(timed(r, folder, "[4,4]", "[10e9,1.25e9]", 10, err));
    return timed_tenfold(r, folder, err);
}
