/* rubato-bench cluster: real jobs. Nodes are hosts of the network laboratory, of two slots and
 * behind a link each. A worker has a part of a core, so that a slot is worth the same whoever has
 * it.
 *
 * The same jobs under three methods of plan/fleet/alloc.h, in turns: networks, logistic regressions
 * and factorisations of ratings, many small ones and few large ones, which come when those of a
 * published trace came, 60 times as fast. Pollux lets networks adapt their batch; under the others
 * it stays. The two apps have the batch that they have.
 *
 * Two jobs that span nodes: the scheduler gives them nodes of their own; the schedulers of two
 * clusters that know nothing of each other let them share links. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "bench/cluster.h"
#include "bench/lab_run.h"
#include "cluster/figures.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "plan/fleet/alloc.h"

enum { METHODS = 3, PATTERN = 8, JOBS_MAX = 3 * PATTERN, NODE_SLOTS = 2, MOST = 4, GAPS = 1000 };
enum { SAMPLES = 4000, FIRST_BATCH = 64, MOST_BATCH = 512 };
typedef enum kind { MLP, MLR, MF, KINDS } kind;

static const int64_t look_ns = 250000000, patience_ns = 1800 * INT64_C(1000000000);
static const double round_s = 2, demote_s = 20, steps_min = 5;

/* Of each size all kinds take about as long on one worker. */
static const struct {
    const char *name;
    uint32_t epochs, clocks[KINDS], request; /* request: workers, as a user chose them */
} sizes[] = {{"small", 7, {0, 300, 520}, 1},
             {"medium", 30, {0, 1290, 2240}, 2},
             {"large", 90, {0, 3870, 6700}, 2}};

/* Of eight jobs, as in published traces most are small. */
static const uint32_t pattern[PATTERN] = {0, 1, 0, 2, 0, 0, 1, 0};
/* Seconds at which the first jobs of workload-6 came (qiao-2021), 60 of which pass in one here. */
static const int16_t came_s[JOBS_MAX] = {53,   154,  326,  368,  735,  1315, 1585, 1817,
                                         1916, 1924, 2438, 2518, 2535, 2735, 2850, 3073,
                                         3107, 3403, 3472, 3687, 3733, 4003, 4007, 4078};

typedef struct jobs {
    ru_bench *b;
    ru_lab_run lab;
    const char *folder, *set[6];
    uint32_t nodes, percent; /* percent: of a core, for each worker */
    uint32_t n;
    double at_s[JOBS_MAX];
    double mean_s[METHODS], loss[METHODS][JOBS_MAX];
    /* For virtual time, of the jobs under Pollux: what their files told, their nodes when they ran
     * last, logarithms of noise; what a start took. */
    ru_cluster_figures figures[JOBS_MAX];
    uint32_t ran_on[JOBS_MAX];
    double noise_ln[JOBS_MAX], noises[JOBS_MAX], took_s[JOBS_MAX], start_s;
    double gaps[GAPS]; /* likewise: longest step around each change of workers, seconds */
    uint32_t n_gaps;
} jobs;

static kind kind_of(uint32_t job)
{
    return (kind)(job % KINDS);
}

/* Run a program; *line: the first one that it prints, or "". */
static ru_status run(const jobs *t, const char *const *argv, bool quiet, int *code,
                     const char **line, ru_err *err)
{
    static const char *const unset[] = {"RUBATO_CLUSTER_KEY", NULL};
    const ru_process_options opt = {
        .argv = argv, .unset = unset, .set = t->set, .pipe_out = true, .quiet = quiet};
    const char *next = NULL;
    ru_process *p;
    *line = "";
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = ru_process_line(p, 0, &next, err);
    while (st == RU_OK && next != NULL && *line != NULL) {
        *line = (*line)[0] == 0 ? ru_arena_str(t->b->arena, next) : *line;
        st = ru_process_line(p, 0, &next, err);
    }
    *code = ru_process_wait(p);
    ru_process_close(p);
    return st == RU_OK && *line == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for an answer") : st;
}

/* `rubato cluster WORDS` on the first host. */
static ru_status ask(const jobs *t, const char *const *words, bool quiet, const char **line,
                     ru_err *err)
{
    enum { FIRST = 6 };
    const char *argv[FIRST + 14] = {t->lab.script, "in", t->lab.lab, "1", t->lab.self, "cluster"};
    int code = 0;
    for (uint32_t k = 0; words[k] != NULL; k++) {
        RU_CHECK(FIRST + 1 + k < RU_ARRAY_LEN(argv));
        argv[FIRST + k] = words[k];
    }
    RU_TRY(run(t, argv, quiet, &code, line, err));
    return code == 0 ? RU_OK
                     : RU_FAIL(err, RU_E_USER, "rubato cluster %s ended with %d", words[0], code);
}

static ru_status end(const jobs *t, bool quiet, ru_err *err)
{
    const char *words[] = {"down", NULL}, *line;
    return ask(t, words, quiet, &line, err);
}

static ru_status put_file(const jobs *t, const char *name, const ru_text *text, ru_err *err)
{
    const char *path = ru_path_join(t->b->arena, t->lab.dir, name);
    return path != NULL && !text->cut ? ru_file_replace(path, text->p, text->n, err)
                                      : RU_FAIL(err, RU_E_MEM, "no memory for a file");
}

static ru_status put_cluster(const jobs *t, ru_alloc_method m, ru_err *err)
{
    ru_text y = ru_text_arena(t->b->arena);
    ru_text_putf(&y,
                 "folder: %s\naccounts: shared\nround: %.0fs\nalloc: {method: %s, demote: %.0f}\n",
                 t->folder, round_s, ru_alloc_method_name(m), demote_s);
    for (uint32_t k = 1; k <= t->nodes; k++) {
        ru_text_putf(&y, "%s{name: n%u, %sslots: %u, cpu: %.2f}%s", k > 1 ? ", " : "nodes: [", k,
                     k > 1 ? ru_arena_printf(t->b->arena, "host: lab.%u, ", k) : "", NODE_SLOTS,
                     t->percent / 100.0, k == t->nodes ? "]\n" : "");
    }
    return put_file(t, "cluster.yaml", &y, err);
}

static ru_status put_job(const jobs *t, uint32_t k, ru_alloc_method m, ru_err *err)
{
    ru_text y = ru_text_arena(t->b->arena);
    const uint32_t size = pattern[k % PATTERN], clocks = sizes[size].clocks[kind_of(k)];
    const char *dir = t->lab.dir;
    ru_text_putf(&y, "name: %s\ncheckpoint: {every: 5s, keep: 1}\n", sizes[size].name);
    switch (kind_of(k)) {
    case MLR:
        ru_text_putf(&y,
                     "app: mlr\ndata: {format: idx, train: [%s/digits/train-images, "
                     "%s/digits/train-labels], test: [%s/digits/test-images, "
                     "%s/digits/test-labels]}\nclocks: {executors: %d}\n"
                     "train: {steps: %u, seed: 1, threads: 1}\nmlr: {batch: 256, lr: 0.1}\n",
                     dir, dir, dir, dir, MOST, clocks);
        break;
    case MF:
        ru_text_putf(&y,
                     "app: mf\ndata: {format: ratings, train: %s/ratings/train.csv, test: "
                     "%s/ratings/test.csv}\nclocks: {executors: %d}\n"
                     "train: {epochs: %u, seed: 1, threads: 1}\nmf: {rank: 32}\n",
                     dir, dir, MOST, clocks);
        break;
    case MLP:
    case KINDS:
        ru_text_putf(&y,
                     "model: {zoo: mlp, hidden: [256]}\n"
                     "data: {format: synthetic, generator: gaussian, count: %d, test_count: 400, "
                     "features: 256, classes: 10}\n"
                     "train: {optimizer: {sgd: {lr: 0.02}}, batch: %d, epochs: %u, "
                     "autotune: false, threads: 1",
                     SAMPLES, FIRST_BATCH, sizes[size].epochs);
        if (m == RU_ALLOC_POLLUX) {
            ru_text_putf(&y, ", adapt: {batch_max: %d}", MOST_BATCH);
        }
        ru_text_put(&y, "}\n");
        break;
    }
    return put_file(t, "job.yaml", &y, err);
}

static ru_status submit(const jobs *t, uint32_t k, ru_alloc_method m, ru_err *err)
{
    uint32_t size = pattern[k % PATTERN];
    const char *line;
    RU_TRY(put_job(t, k, m, err));
    const char *words[] = {"submit",    ru_path_join(t->b->arena, t->lab.dir, "job.yaml"),
                           "-w",        ru_arena_printf(t->b->arena, "1:%d", MOST),
                           "--request", ru_arena_printf(t->b->arena, "%u", sizes[size].request),
                           NULL};
    return words[1] == NULL || words[3] == NULL || words[5] == NULL
               ? RU_FAIL(err, RU_E_MEM, "no memory for a job")
               : ask(t, words, false, &line, err);
}

/* The text behind KEY in the row of a job in `ps --json`; "": there is none. */
static const char *field(const char *ps, uint32_t job, const char *key)
{
    char head[32];
    (void)snprintf(head, sizeof head, "{\"job\":%u,", job);
    const char *row = strstr(ps, head), *at = row != NULL ? strstr(row, key) : NULL;
    return at != NULL ? at + strlen(key) : "";
}

/* Steps that the job has made since the last look, on the nodes that it has. */
static void follow(jobs *t, uint32_t k, const char *ps)
{
    ru_cluster_figures *f = &t->figures[k - 1];
    uint32_t nodes = (uint32_t)strtoul(field(ps, k, "\"nodes\":"), NULL, 10);
    const char *out = ru_arena_printf(t->b->arena, "%s/jobs/%u", t->folder, k);
    t->ran_on[k - 1] = nodes > 0 ? nodes : t->ran_on[k - 1];
    for (int64_t at = -1; out != NULL && f->at_bytes > at;) {
        at = f->at_bytes;
        ru_figures_look(f, out, t->ran_on[k - 1]);
    }
    if (f->noise > 0) {
        t->noise_ln[k - 1] += log(f->noise);
        t->noises[k - 1]++;
    }
}

/* *done: jobs that have; *sum_s: from submission to their ends. */
static ru_status look(jobs *t, ru_alloc_method m, uint32_t *done, double *sum_s, ru_err *err)
{
    const char *words[] = {"ps", "--json", NULL}, *ps;
    RU_TRY(ask(t, words, false, &ps, err));
    *done = 0;
    *sum_s = 0;
    for (uint32_t k = 1; k <= t->n; k++) {
        const char *state = field(ps, k, "\"state\":\"");
        if (strncmp(state, "held", 4) == 0) {
            return RU_FAIL(err, RU_E_USER, "job %u is held: see rubato cluster ps --cluster %s", k,
                           t->folder);
        }
        if (strncmp(state, "done", 4) == 0) {
            ++*done;
            double took_s = strtod(field(ps, k, "\"age\":"), NULL);
            *sum_s += took_s;
            t->took_s[k - 1] = m == RU_ALLOC_POLLUX ? took_s : t->took_s[k - 1];
        }
        if (m == RU_ALLOC_POLLUX && *state != 0) {
            follow(t, k, ps);
        }
    }
    return RU_OK;
}

/* Changes of workers, of whom some stay: the step before, the first one after, and the next one. */
static void gaps_of(jobs *t, const char *text)
{
    double before_s = 0, workers = 0;
    uint32_t since = 2;
    while ((text = strstr(text, "\"rubato.train.step/1\"")) != NULL) {
        const char *at = strstr(text, "\"step_s\":"), *w = strstr(text++, "\"workers\":");
        double step_s = at != NULL ? strtod(at + strlen("\"step_s\":"), NULL) : 0;
        double now = w != NULL ? strtod(w + strlen("\"workers\":"), NULL) : workers;
        bool changes = workers > 0 && (now > workers || now < workers) && t->n_gaps < GAPS;
        if (changes) {
            t->gaps[t->n_gaps++] = fmax(before_s, step_s);
        } else if (since == 0) {
            t->gaps[t->n_gaps - 1] = fmax(t->gaps[t->n_gaps - 1], step_s);
        }
        since = changes ? 0 : since + 1;
        workers = now;
        before_s = step_s;
    }
}

/* The losses of all runs on their test samples; under Pollux also the gaps. */
static ru_status losses_of(jobs *t, bool gaps, double *loss, ru_err *err)
{
    for (uint32_t k = 1; k <= t->n; k++) {
        char *text;
        int64_t n;
        const char *path = ru_arena_printf(t->b->arena, "%s/jobs/%u/metrics.jsonl", t->folder, k);
        RU_TRY(path == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a path")
                            : ru_file_read(path, 64 << 20, t->b->arena, &text, &n, err));
        if (gaps) {
            gaps_of(t, text);
        }
        const char *at = NULL, *next = text;
        while ((next = strstr(next, "\"rubato.train.summary/1\"")) != NULL) {
            at = next++; /* the last one: a job that was stopped meanwhile has told others */
        }
        at = at != NULL ? strstr(at, "\"metric\":{") : NULL;
        const char *key = kind_of(k - 1) == MF ? "\"rmse\":" : "\"loss\":";
        at = at != NULL ? strstr(at, key) : NULL;
        if (at == NULL) {
            return RU_FAIL(err, RU_E_USER, "%s tells no loss of its end", path);
        }
        loss[k - 1] = strtod(at + strlen(key), NULL);
    }
    return RU_OK;
}

/* Without a bound a slot would be worth what others leave. */
static ru_status check_bounds(const jobs *t, ru_err *err)
{
    const char *path = ru_path_join(t->b->arena, t->folder, "log/n1");
    char *text;
    int64_t n;
    RU_TRY(path == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a path")
                        : ru_file_read(path, 16 << 20, t->b->arena, &text, &n, err));
    const char *at = strstr(text, "this node does not bound");
    return at == NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MISSING,
                         "bench cluster gives each worker a part of a core, which needs root or a "
                         "delegated subtree of the control groups: %.*s",
                         (int)strcspn(at, "\n"), at);
}

/* From the submission of the first job, which finds all slots free, to its first step. */
static ru_status first_step(jobs *t, ru_time begun, ru_err *err)
{
    double s;
    uint32_t n = 0;
    const char *out = ru_arena_printf(t->b->arena, "%s/jobs/1", t->folder);
    const char *path = out != NULL ? ru_path_join(t->b->arena, out, "metrics.jsonl") : NULL;
    if (path == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a path");
    }
    while (n == 0 && ru_time_since(ru_clock_now(), begun) < 20 * look_ns) {
        ru_clock_pause(look_ns / 10);
        RU_TRY(ru_path_exists(path) ? ru_lab_run_steps(&t->lab, out, &s, 1, &n, err) : RU_OK);
    }
    t->start_s = 1e-9 * (double)ru_time_since(ru_clock_now(), begun);
    return RU_OK;
}

static ru_status run_all(jobs *t, ru_alloc_method m, double *mean_s, ru_err *err)
{
    uint32_t next = 0, done = 0;
    const ru_time begun = ru_clock_now();
    double sum_s = 0;
    while (done < t->n) {
        int64_t passed = ru_time_since(ru_clock_now(), begun);
        if (next < t->n && 1e-9 * (double)passed >= t->at_s[next]) {
            RU_TRY(submit(t, next++, m, err));
            RU_TRY(next == 1 ? first_step(t, begun, err) : RU_OK);
            continue;
        }
        if (passed > patience_ns) {
            return RU_FAIL(err, RU_E_AGAIN, "%u of %u jobs have ended after half an hour", done,
                           t->n);
        }
        ru_clock_pause(look_ns);
        RU_TRY(check_bounds(t, err));
        bool looks = next == t->n || (m == RU_ALLOC_POLLUX && next > 0);
        RU_TRY(looks ? look(t, m, &done, &sum_s, err) : RU_OK);
    }
    *mean_s = sum_s / t->n;
    return RU_OK;
}

static ru_status start(const jobs *t, ru_alloc_method m, ru_err *err)
{
    const char *words[] = {"up", ru_path_join(t->b->arena, t->lab.dir, "cluster.yaml"), NULL},
               *line;
    ru_err ignored;
    if (words[1] == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a path");
    }
    if (ru_path_exists(t->folder)) { /* of a run that was interrupted */
        (void)!end(t, true, &ignored);
        RU_TRY(ru_path_remove(t->folder, err));
    }
    RU_TRY(put_cluster(t, m, err));
    return ask(t, words, false, &line, err);
}

static ru_status under(jobs *t, uint32_t m, ru_err *err)
{
    ru_err ignored;
    ru_status st = start(t, (ru_alloc_method)m, err);
    st = st == RU_OK ? run_all(t, (ru_alloc_method)m, &t->mean_s[m], err) : st;
    st = st == RU_OK ? losses_of(t, m == RU_ALLOC_POLLUX, t->loss[m], err) : st;
    if (st != RU_OK) {
        (void)!end(t, true, &ignored);
        return st;
    }
    RU_TRY(end(t, false, err));
    return ru_path_remove(t->folder, err);
}

/* Pollux first. */
static ru_status add(jobs *t, const char *name, uint32_t other, double goal, ru_err *err)
{
    return ru_bench_add(
        t->b,
        &(ru_bench_row){.name = name,
                        .unit = "s",
                        .lower = true,
                        .ours = ru_bench_stat_of(&t->mean_s[RU_ALLOC_POLLUX], 1),
                        .theirs = ru_bench_stat_of(&t->mean_s[other], 1),
                        .peer = ru_arena_printf(t->b->arena, "%s, jobs resized in place",
                                                ru_alloc_method_name((ru_alloc_method)other)),
                        .goal = goal},
        err);
}

/* A cluster whose folder has this name, in the laboratory that is open. */
static ru_status name_cluster(jobs *t, const char *name, ru_err *err)
{
    ru_arena *a = t->b->arena;
    const char *dir = t->lab.dir, *scripts = ru_bench_scripts(a);
    t->folder = ru_path_join(a, dir, name);
    t->set[0] = ru_arena_printf(a, "XDG_CONFIG_HOME=%s", dir);
    t->set[1] = ru_arena_printf(a, "RUBATO_CLUSTER=%s/%s", dir, name);
    t->set[2] = ru_arena_printf(a, "RUBATO_SSH=%s/lab_host.sh", scripts != NULL ? scripts : ".");
    t->set[3] = ru_arena_printf(a, "LAB_NET=%s", t->lab.script);
    t->set[4] = ru_arena_printf(a, "LAB_NAME=%s", t->lab.lab);
    for (uint32_t k = 0; k + 1 < RU_ARRAY_LEN(t->set); k++) {
        RU_TRY(t->set[k] != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for paths"));
    }
    return t->folder != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for paths");
}

static ru_status open_jobs(jobs *t, ru_err *err)
{
    for (uint32_t k = 0; k < t->n; k++) {
        t->at_s[k] = (came_s[k] - came_s[0]) / 60.0;
    }
    RU_TRY(ru_lab_run_open(t->b, "cluster", true, &t->lab, err));
    RU_TRY(ru_lab_run_inputs(&t->lab, err));
    const char *ratings = ru_path_join(t->b->arena, t->lab.dir, "ratings");
    const char *argv[] = {t->lab.self, "data",  "make",   "ratings", "--out", ratings,
                          "--count",   "60000", "--test", "6000",    NULL};
    RU_TRY(ratings == NULL           ? RU_FAIL(err, RU_E_MEM, "no memory for a path")
           : ru_path_exists(ratings) ? RU_OK
                                     : ru_lab_run_command(&t->lab, argv, NULL, err));
    return name_cluster(t, "cl", err);
}

static ru_status in_turns(jobs *t, ru_err *err)
{
    static const char *const up[] = {"--rate", "200mbit", NULL};
    RU_TRY(ru_lab_run_up(&t->lab, t->nodes, up, err));
    ru_status st = RU_OK;
    for (uint32_t m = 0; m < METHODS && st == RU_OK; m++) {
        st = under(t, m, err);
    }
    ru_lab_run_down(&t->lab);
    return st;
}

/* What jobs of a kind measured, each configuration once. */
static ru_status fit_kind(const jobs *t, kind of, ru_perf *perf, ru_err *err)
{
    ru_perf_sample *x = RU_NEW(t->b->arena, ru_perf_sample, t->n * RU_FIGURES_SAMPLES);
    double *steps = RU_NEW(t->b->arena, double, t->n *RU_FIGURES_SAMPLES);
    uint32_t n = 0;
    RU_TRY(x == NULL || steps == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for steps") : RU_OK);
    for (uint32_t k = of; k < t->n; k += KINDS) {
        const ru_cluster_figures *f = &t->figures[k];
        for (uint32_t i = 0; i < f->n; i++) {
            uint32_t at = 0;
            while (at < n &&
                   (x[at].nodes != f->seen[i].nodes || x[at].replicas != f->seen[i].replicas ||
                    x[at].local != f->seen[i].local)) {
                at++;
            }
            if (f->seen[i].steps >= steps_min) {
                n = at == n ? n + 1 : n;
                x[at].nodes = f->seen[i].nodes;
                x[at].replicas = f->seen[i].replicas;
                x[at].local = f->seen[i].local;
                x[at].pass_s += f->seen[i].pass_s; /* sums until all are there */
                x[at].step_s += f->seen[i].step_s;
                steps[at] += f->seen[i].steps;
            }
        }
    }
    for (uint32_t at = 0; at < n; at++) {
        x[at].pass_s /= steps[at];
        x[at].step_s /= steps[at];
    }
    *perf = (ru_perf){0};
    RU_TRY(n > 0 ? ru_perf_fit(x, n, NULL, t->b->arena, perf, NULL, err) : RU_OK);
    static const char *const names[KINDS] = {"MLP", "MLR", "MF"};
    for (uint32_t at = 0; at < n; at++) {
        fprintf(stderr,
                "%s, %u workers on %u nodes, %u samples each: %.0f steps of %.1f ms, %.1f\n",
                names[of], x[at].replicas, x[at].nodes, x[at].local, steps[at], 1e3 * x[at].step_s,
                1e3 * ru_perf_step_s(perf, x[at].nodes, x[at].replicas, x[at].local, 0));
    }
    return RU_OK;
}

/* The same jobs in virtual time: steps take what jobs of their kind measured. */
static ru_status models_of(const jobs *t, ru_goodput_model *models, double *steps, bool *known,
                           ru_err *err)
{
    ru_perf perf[KINDS];
    *known = true;
    for (uint32_t of = 0; of < KINDS; of++) {
        RU_TRY(fit_kind(t, (kind)of, &perf[of], err));
    }
    for (uint32_t k = 0; k < t->n; k++) {
        const ru_cluster_figures *f = &t->figures[k];
        ru_figures_model(f, &models[k]);
        models[k].perf = perf[kind_of(k)];
        if (models[k].sqr > 0 && t->noises[k] > 0) {
            models[k].var = exp(t->noise_ln[k] / t->noises[k]) / models[k].batch_first;
        }
        steps[k] = f->total;
        *known = *known && models[k].perf.overlap >= 1 && f->total > 0 && models[k].batch_first > 0;
    }
    return RU_OK;
}

/* One of the jobs, alone. */
static ru_status play_alone(const jobs *t, ru_bench_played o, uint32_t k, double *s, ru_err *err)
{
    static const double at_once = 0;
    o.at_s = &at_once;
    o.steps = &o.steps[k];
    o.request = &o.request[k];
    o.models = &o.models[k];
    o.n = 1;
    return ru_bench_cluster_play(&o, t->b->arena, s, err);
}

/* Finish-time fairness: beside the same job on its part of the slots, alone. */
static ru_status add_fair(const jobs *t, ru_bench_played o, ru_err *err)
{
    double sum_s = 0, end_s = 0, fair = 0, s;
    for (uint32_t k = 0; k < t->n; k++) {
        sum_s += t->took_s[k];
        end_s = fmax(end_s, t->at_s[k] + t->took_s[k]);
    }
    o.slots = (uint32_t)fmax(floor(o.nodes * o.slots * end_s / fmax(sum_s, end_s)), 1);
    o.nodes = 1;
    for (uint32_t k = 0; k < t->n; k++) {
        RU_TRY(play_alone(t, o, k, &s, err));
        fair += t->took_s[k] < 2 * s;
    }
    return ru_bench_add(t->b,
                        &(ru_bench_row){.name = "jobs whose finish-time fairness is below 2",
                                        .unit = ru_arena_printf(t->b->arena, "of %u", t->n),
                                        .ours = ru_bench_stat_of(&fair, 1),
                                        .goal = t->n - 1},
                        err);
}

static ru_status add_played(jobs *t, const char *mean, ru_err *err)
{
    double steps[JOBS_MAX], played[METHODS] = {0}, paused_s = 0, pauses = 0, alone_s = 0, s;
    ru_goodput_model models[JOBS_MAX];
    uint32_t request[JOBS_MAX];
    bool known;
    RU_TRY(models_of(t, models, steps, &known, err));
    if (!known) {
        return RU_FAIL(err, RU_E_AGAIN, "a job under pollux told too few steps to be played");
    }
    for (uint32_t k = 0; k < t->n; k++) {
        request[k] = sizes[pattern[k % PATTERN]].request;
        paused_s += t->figures[k].paused_s;
        pauses += t->figures[k].pauses;
    }
    const double pause_s = pauses > 0 ? paused_s / pauses : 0.3;
    ru_bench_played o = {.at_s = t->at_s,
                         .steps = steps,
                         .request = request,
                         .n = t->n,
                         .most = MOST,
                         .models = models,
                         .nodes = t->nodes,
                         .slots = NODE_SLOTS,
                         .start_s = t->start_s,
                         .pause_s = pause_s,
                         .round_s = round_s,
                         .demote_s = demote_s};
    for (uint32_t m = 0; m < METHODS; m++) {
        o.method = (ru_alloc_method)m;
        RU_TRY(ru_bench_cluster_play(&o, t->b->arena, &played[m], err));
    }
    o.method = RU_ALLOC_POLLUX;
    for (uint32_t k = 0; k < t->n; k++) {
        RU_TRY(play_alone(t, o, k, &s, err));
        alone_s += s / t->n;
    }
    fprintf(stderr,
            "in virtual time: %.1f s under pollux, %.1f s under tiresias, %.1f s under optimus, "
            "%.1f s if each job had all nodes; a start takes %.2f s, a change %.2f s\n",
            played[RU_ALLOC_POLLUX], played[RU_ALLOC_TIRESIAS], played[RU_ALLOC_OPTIMUS], alone_s,
            t->start_s, pause_s);
    RU_TRY(add_fair(t, o, err));
    return ru_bench_add(t->b,
                        &(ru_bench_row){.name = mean,
                                        .unit = "s",
                                        .lower = true,
                                        .ours = ru_bench_stat_of(&t->mean_s[RU_ALLOC_POLLUX], 1),
                                        .theirs = ru_bench_stat_of(&played[RU_ALLOC_POLLUX], 1),
                                        .peer = "the same jobs in virtual time",
                                        .goal = 1 / 1.1},
                        err);
}

static ru_status add_gaps(jobs *t, ru_err *err)
{
    if (t->n_gaps == 0) {
        return RU_FAIL(err, RU_E_AGAIN, "no job under pollux changed its workers");
    }
    ru_bench_row row = {.name = "gap between steps at a change of workers",
                        .unit = "s",
                        .lower = true,
                        .ours = ru_bench_stat_of(t->gaps, t->n_gaps), /* sorted now */
                        .goal = 0.3};
    RU_TRY(ru_bench_add(t->b, &row, err));
    row.name = "likewise, 99 % of all changes";
    row.ours = ru_bench_stat_of(&t->gaps[(99 * t->n_gaps + 99) / 100 - 1], 1);
    row.goal = 1;
    return ru_bench_add(t->b, &row, err);
}

ru_status ru_bench_cluster_jobs(ru_bench *b, ru_err *err)
{
    const uint32_t n = b->quick ? PATTERN : JOBS_MAX;
    jobs *t = RU_NEW(b->arena, jobs, 1);
    char *mean = ru_arena_printf(b->arena, "mean completion of %u real jobs", n);
    if (t == NULL || mean == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the benchmark");
    }
    if (!ru_bench_wants(b, mean)) {
        return RU_OK;
    }
    *t = (jobs){.b = b, .nodes = b->quick ? 2 : 4, .percent = b->quick ? 15 : 20, .n = n};
    ru_status st = open_jobs(t, err);
    st = st == RU_OK ? in_turns(t, err) : st;
    if (st == RU_E_MISSING) { /* the other rows need no control groups */
        fprintf(stderr, "%s: %s\n", mean, err->text);
        b->told = true;
        return RU_OK;
    }
    RU_TRY(st);
    RU_TRY(add(t, mean, RU_ALLOC_TIRESIAS, 1 / 0.63, err));
    RU_TRY(add(t, mean, RU_ALLOC_OPTIMUS, 2, err));
    RU_TRY(add_gaps(t, err));
    RU_TRY(add_played(t, mean, err));
    double worst = 0;
    for (uint32_t k = 0; k < n; k++) {
        double beside = t->loss[RU_ALLOC_POLLUX][k] / t->loss[RU_ALLOC_TIRESIAS][k];
        worst = beside > worst ? beside : worst;
    }
    return ru_bench_add(b,
                        &(ru_bench_row){.name = "largest loss of a job that adapts its batch",
                                        .unit = "times its fixed batch",
                                        .lower = true,
                                        .ours = ru_bench_stat_of(&worst, 1),
                                        .goal = 1.01},
                        err);
}

/* -- two jobs on one link -------------------------------------------------------------------------
 */

enum { STEPS_MAX = 20000, SPANS = 3 }; /* SPANS: workers of a job, more than a node has slots */

/* A job that sums 1.1 MB a step and does not end. */
static ru_status submit_wide(const jobs *t, ru_err *err)
{
    ru_text y = ru_text_arena(t->b->arena);
    const char *line, *path = ru_path_join(t->b->arena, t->lab.dir, "wide.yaml");
    const char *words[] = {"submit", path, "-w", "3", NULL};
    ru_text_put(&y, "name: wide\nmodel: {zoo: mlp, hidden: [1024]}\n"
                    "data: {format: synthetic, generator: gaussian, count: 4000, test_count: 400, "
                    "features: 256, classes: 10}\n"
                    "train: {optimizer: {sgd: {lr: 0.02}}, batch: 48, epochs: 100000, "
                    "autotune: false, threads: 1}\ncheckpoint: {every: 0s}\n");
    RU_TRY(put_file(t, "wide.yaml", &y, err));
    return path != NULL ? ask(t, words, false, &line, err)
                        : RU_FAIL(err, RU_E_MEM, "no memory for a path");
}

/* Until all workers of a job are in it, or it has ended (0). */
static ru_status until_workers(const jobs *t, uint32_t job, uint32_t workers, ru_err *err)
{
    const char *words[] = {"ps", "--json", NULL}, *ps;
    for (const ru_time begun = ru_clock_now();
         ru_time_since(ru_clock_now(), begun) < patience_ns / 30;) {
        RU_TRY(ask(t, words, false, &ps, err));
        if (strtoul(field(ps, job, "\"workers\":"), NULL, 10) == workers) {
            return RU_OK;
        }
        ru_clock_pause(look_ns);
    }
    return RU_FAIL(err, RU_E_AGAIN, "job %u does not come to %u workers", job, workers);
}

/* The median step of the first job in the next seconds. */
static ru_status watch_step(const jobs *t, double *step_s, ru_err *err)
{
    const int64_t warm_ns = 2000000000, for_ns = t->b->quick ? 5000000000 : 10000000000;
    const char *out = ru_arena_printf(t->b->arena, "%s/jobs/1", t->folder);
    double *s = RU_NEW(t->b->arena, double, STEPS_MAX);
    uint32_t before = 0, n = 0;
    if (out == NULL || s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the steps of a job");
    }
    ru_clock_pause(warm_ns);
    RU_TRY(ru_lab_run_steps(&t->lab, out, s, STEPS_MAX, &before, err));
    ru_clock_pause(for_ns);
    RU_TRY(ru_lab_run_steps(&t->lab, out, s, STEPS_MAX, &n, err));
    if (n < before + 5) {
        return RU_FAIL(err, RU_E_AGAIN, "a job that spans nodes made %u steps", n - before);
    }
    *step_s = ru_bench_stat_of(&s[before], n - before).median;
    return RU_OK;
}

/* The first job alone and beside one of `other`, in turns. times: beside / alone. */
static ru_status beside(const jobs *t, const jobs *other, double *times, uint32_t rounds,
                        ru_err *err)
{
    const char *line;
    uint32_t job = t == other ? 2 : 1;
    RU_TRY(submit_wide(t, err));
    RU_TRY(until_workers(t, 1, SPANS, err));
    for (uint32_t k = 0; k < rounds; k++, job++) {
        const char *words[] = {"cancel", ru_arena_printf(t->b->arena, "%u", job), NULL};
        double alone_s = 0, both_s = 0;
        RU_TRY(watch_step(t, &alone_s, err));
        RU_TRY(submit_wide(other, err));
        RU_TRY(until_workers(other, job, SPANS, err));
        RU_TRY(watch_step(t, &both_s, err));
        RU_TRY(words[1] != NULL ? ask(other, words, false, &line, err)
                                : RU_FAIL(err, RU_E_MEM, "no memory for a number"));
        RU_TRY(until_workers(other, job, 0, err));
        times[k] = both_s / alone_s;
    }
    return RU_OK;
}

/* forced: of another cluster on the same two hosts. */
static ru_status one_link(jobs *t, bool forced, double *times, uint32_t rounds, ru_err *err)
{
    static const char *const up[] = {"--rate", "200mbit", NULL};
    jobs other;
    ru_err ignored;
    t->nodes = forced ? 2 : 4;
    RU_TRY(name_cluster(t, "cl", err));
    other = *t;
    RU_TRY(forced ? name_cluster(&other, "cl2", err) : RU_OK);
    RU_TRY(ru_lab_run_up(&t->lab, t->nodes, up, err));
    ru_status st = start(t, RU_ALLOC_POLLUX, err);
    st = st == RU_OK && forced ? start(&other, RU_ALLOC_POLLUX, err) : st;
    st = st == RU_OK ? beside(t, forced ? &other : t, times, rounds, err) : st;
    (void)!(forced ? end(&other, true, &ignored) : RU_OK);
    (void)!end(t, true, &ignored);
    ru_lab_run_down(&t->lab);
    (void)!(forced && st == RU_OK ? ru_path_remove(other.folder, &ignored) : RU_OK);
    (void)!(st == RU_OK ? ru_path_remove(t->folder, &ignored) : RU_OK);
    return st;
}

ru_status ru_bench_cluster_link(ru_bench *b, ru_err *err)
{
    static const char *const names[] = {"a step beside a job on other links",
                                        "a step beside a job on the same links"};
    const uint32_t rounds = b->quick ? 1 : 3;
    jobs t = {.b = b, .percent = 20};
    for (uint32_t forced = 0; forced < 2; forced++) {
        double times[RU_BENCH_ROUNDS_MAX];
        if (!ru_bench_wants(b, names[forced])) {
            continue;
        }
        ru_status st = ru_lab_run_open(b, "cluster", true, &t.lab, err);
        st = st == RU_OK ? one_link(&t, forced == 1, times, rounds, err) : st;
        if (st == RU_E_MISSING) {
            fprintf(stderr, "%s: %s\n", names[forced], err->text);
            b->told = true;
            continue;
        }
        RU_TRY(st);
        RU_TRY(ru_bench_add(b,
                            &(ru_bench_row){.name = names[forced],
                                            .unit = "times alone",
                                            .lower = forced == 0,
                                            .ours = ru_bench_stat_of(times, rounds),
                                            .goal = forced == 1 ? 1.2 : 1.02},
                            err));
    }
    return RU_OK;
}
