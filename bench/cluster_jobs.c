/* rubato-bench cluster: real jobs in clusters of the laboratory (cluster_lab.h).
 *
 * The same jobs under three methods of plan/fleet/alloc.h, in turns: networks, logistic regressions
 * and factorisations of ratings, many small ones and few large ones, which come when those of a
 * published trace came, 60 times as fast. Networks begin with 8 samples a step and 1.2 MB of
 * weights, as users of published traces begin with 8 to 20 samples and far larger ones. Pollux lets
 * them adapt their batch; under the others it stays. The two apps have the batch that they have.
 * Samples come from files: to draw each when it is needed costs more than to learn from it.
 *
 * Tiresias once more where each change of a job's slots is a stop and a start. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "bench/cluster.h"
#include "bench/cluster_lab.h"
#include "cluster/figures.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "plan/fleet/alloc.h"

enum { METHODS = 3, PATTERN = 8, JOBS_MAX = 3 * PATTERN, MOST = 4, GAPS = 1000 };
enum { RESTARTS = METHODS, STOPS = 20 }; /* another turn; changes of one job */
enum { FIRST_BATCH = 8, MOST_BATCH = 512 };
typedef enum kind { MLP, MLR, MF, KINDS } kind;

static const int64_t look_ns = 250000000, patience_ns = 1800 * INT64_C(1000000000);
static const double steps_min = 5;

/* Of each size all kinds take about as long on one worker. Users chose the workers that are worth
 * it with the batch that a job begins with: steps of these networks are mostly what each of them
 * costs, the update and the sum of gradients, so that two workers are hardly faster than one; nor
 * are they for factorisations. */
static const struct {
    const char *name;
    double lr;                            /* of networks: as users choose less for more epochs */
    uint32_t work[KINDS], request[KINDS]; /* work: epochs, clocks; request: workers */
} sizes[] = {{"small", .012, {4, 180, 320}, {1, 1, 1}},
             {"medium", .003, {16, 780, 1350}, {1, 2, 1}},
             {"large", .0012, {40, 2300, 4000}, {1, 2, 1}}};
/* Half of the jobs are networks; of the others as many are regressions as factorisations. */
static const kind kinds[] = {MLP, MF, MLR, MLP};

/* Of eight jobs, as in published traces most are small. */
static const uint32_t pattern[PATTERN] = {0, 1, 0, 2, 0, 0, 1, 0};
/* Seconds at which the first jobs of workload-6 came (qiao-2021), 60 of which pass in one here. */
static const int16_t came_s[JOBS_MAX] = {53,   154,  326,  368,  735,  1315, 1585, 1817,
                                         1916, 1924, 2438, 2518, 2535, 2735, 2850, 3073,
                                         3107, 3403, 3472, 3687, 3733, 4003, 4007, 4078};

typedef struct jobs {
    ru_bench_lab at;
    uint32_t n;
    double at_s[JOBS_MAX];
    double mean_s[RESTARTS + 1], loss[RESTARTS + 1][JOBS_MAX];
    /* For virtual time, of the jobs under Pollux: what their files told, their nodes when they ran
     * last, logarithms of noise; what a start took. */
    ru_cluster_figures figures[JOBS_MAX];
    uint32_t ran_on[JOBS_MAX];
    double noise_ln[JOBS_MAX], noises[JOBS_MAX], took_s[JOBS_MAX], start_s;
    double gaps[GAPS]; /* likewise: longest step around each change of workers, seconds */
    uint32_t n_gaps;
    double scaled[2][STOPS]; /* likewise, of one job: in place, as it stops and starts */
} jobs;

static kind kind_of(uint32_t job)
{
    return kinds[(job + job / PATTERN) % RU_ARRAY_LEN(kinds)];
}

static ru_status put_job(const jobs *t, uint32_t k, ru_alloc_method m, ru_err *err)
{
    ru_text y = ru_text_arena(t->at.b->arena);
    const uint32_t size = pattern[k % PATTERN], work = sizes[size].work[kind_of(k)];
    const char *dir = t->at.lab.dir;
    ru_text_putf(&y, "name: %s\ncheckpoint: {every: 5s, keep: 1}\n", sizes[size].name);
    switch (kind_of(k)) {
    case MLR:
        ru_text_putf(&y,
                     "app: mlr\ndata: {format: idx, train: [%s/digits/train-images, "
                     "%s/digits/train-labels], test: [%s/digits/test-images, "
                     "%s/digits/test-labels]}\nclocks: {executors: %d}\n"
                     "train: {steps: %u, seed: 1, threads: 1}\nmlr: {batch: 256, lr: 0.1}\n",
                     dir, dir, dir, dir, MOST, work);
        break;
    case MF:
        ru_text_putf(&y,
                     "app: mf\ndata: {format: ratings, train: %s/ratings/train.csv, test: "
                     "%s/ratings/test.csv}\nclocks: {executors: %d}\n"
                     "train: {epochs: %u, seed: 1, threads: 1}\nmf: {rank: 32}\n",
                     dir, dir, MOST, work);
        break;
    case MLP:
    case KINDS:
        ru_text_putf(&y,
                     "model: {zoo: mlp, hidden: [512, 512]}\n"
                     "data: {format: csv, train: %s/mixture/train.csv, test: "
                     "%s/mixture/test.csv}\n"
                     "train: {optimizer: {sgd: {lr: %g}}, schedule: {cosine: {}}, batch: %d, "
                     "epochs: %u, autotune: false, threads: 1",
                     dir, dir, sizes[size].lr, FIRST_BATCH, work);
        if (m == RU_ALLOC_POLLUX) {
            ru_text_putf(&y, ", adapt: {batch_max: %d}", MOST_BATCH);
        }
        ru_text_put(&y, "}\n");
        break;
    }
    return ru_bench_lab_put(&t->at, "job.yaml", &y, err);
}

static ru_status submit(const jobs *t, uint32_t k, ru_alloc_method m, ru_err *err)
{
    const uint32_t request = sizes[pattern[k % PATTERN]].request[kind_of(k)];
    const char *line;
    RU_TRY(put_job(t, k, m, err));
    const char *words[] = {"submit",    ru_path_join(t->at.b->arena, t->at.lab.dir, "job.yaml"),
                           "-w",        ru_arena_printf(t->at.b->arena, "1:%d", MOST),
                           "--request", ru_arena_printf(t->at.b->arena, "%u", request),
                           NULL};
    return words[1] == NULL || words[3] == NULL || words[5] == NULL
               ? RU_FAIL(err, RU_E_MEM, "no memory for a job")
               : ru_bench_lab_ask(&t->at, words, false, &line, err);
}

/* Steps that the job has made since the last look, on the nodes that it has. */
static void follow(jobs *t, uint32_t k, const char *ps)
{
    ru_cluster_figures *f = &t->figures[k - 1];
    uint32_t nodes = (uint32_t)strtoul(ru_bench_lab_field(ps, k, "\"nodes\":"), NULL, 10);
    const char *out = ru_arena_printf(t->at.b->arena, "%s/jobs/%u", t->at.folder, k);
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
    RU_TRY(ru_bench_lab_ask(&t->at, words, false, &ps, err));
    *done = 0;
    *sum_s = 0;
    for (uint32_t k = 1; k <= t->n; k++) {
        const char *state = ru_bench_lab_field(ps, k, "\"state\":\"");
        if (strncmp(state, "held", 4) == 0) {
            return RU_FAIL(err, RU_E_USER, "job %u is held: see rubato cluster ps --cluster %s", k,
                           t->at.folder);
        }
        if (strncmp(state, "done", 4) == 0) {
            ++*done;
            double took_s = strtod(ru_bench_lab_field(ps, k, "\"age\":"), NULL);
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
        const char *path =
            ru_arena_printf(t->at.b->arena, "%s/jobs/%u/metrics.jsonl", t->at.folder, k);
        RU_TRY(path == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a path")
                            : ru_file_read(path, 64 << 20, t->at.b->arena, &text, &n, err));
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

/* From the submission of the first job, which finds all slots free, to its first step. */
static ru_status first_step(jobs *t, ru_time begun, ru_err *err)
{
    double s;
    uint32_t n = 0;
    const char *out = ru_arena_printf(t->at.b->arena, "%s/jobs/1", t->at.folder);
    const char *path = out != NULL ? ru_path_join(t->at.b->arena, out, "metrics.jsonl") : NULL;
    if (path == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a path");
    }
    while (n == 0 && ru_time_since(ru_clock_now(), begun) < 20 * look_ns) {
        ru_clock_pause(look_ns / 10);
        RU_TRY(ru_path_exists(path) ? ru_lab_run_steps(&t->at.lab, out, &s, 1, &n, err) : RU_OK);
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
        RU_TRY(ru_bench_lab_bounds(&t->at, err));
        bool looks = next == t->n || (m == RU_ALLOC_POLLUX && next > 0);
        RU_TRY(looks ? look(t, m, &done, &sum_s, err) : RU_OK);
    }
    *mean_s = sum_s / t->n;
    return RU_OK;
}

static uint32_t stops_of(const jobs *t)
{
    return t->at.b->quick ? STOPS / 2 : STOPS;
}

/* A method, or, at last, Tiresias with jobs that stop and start. */
static ru_status under(jobs *t, uint32_t turn, ru_err *err)
{
    ru_err ignored;
    const ru_alloc_method m = turn == RESTARTS ? RU_ALLOC_TIRESIAS : (ru_alloc_method)turn;
    t->at.restarts = turn == RESTARTS;
    ru_status st = ru_bench_lab_start(&t->at, m, err);
    st = st == RU_OK ? run_all(t, m, &t->mean_s[turn], err) : st;
    st = st == RU_OK ? losses_of(t, m == RU_ALLOC_POLLUX, t->loss[turn], err) : st;
    st = st == RU_OK && m == RU_ALLOC_TIRESIAS
             ? ru_bench_lab_gaps(&t->at, t->n + 1, t->scaled[t->at.restarts], stops_of(t), err)
             : st;
    if (st != RU_OK) {
        (void)!ru_bench_lab_end(&t->at, true, &ignored);
        return st;
    }
    RU_TRY(ru_bench_lab_end(&t->at, false, err));
    return ru_path_remove(t->at.folder, err);
}

/* Pollux first. */
static ru_status add(jobs *t, const char *name, uint32_t other, double goal, ru_err *err)
{
    const char *peer = other == RESTARTS
                           ? "tiresias, jobs stopped and started"
                           : ru_arena_printf(t->at.b->arena, "%s, jobs resized in place",
                                             ru_alloc_method_name((ru_alloc_method)other));
    return ru_bench_add(t->at.b,
                        &(ru_bench_row){.name = name,
                                        .unit = "s",
                                        .lower = true,
                                        .ours = ru_bench_stat_of(&t->mean_s[RU_ALLOC_POLLUX], 1),
                                        .theirs = ru_bench_stat_of(&t->mean_s[other], 1),
                                        .peer = peer,
                                        .goal = goal},
                        err);
}

/* Data of a generator in a folder of that name, which may be there already. */
static ru_status make(const jobs *t, const char *generator, const char *name,
                      const char *const *more, ru_err *err)
{
    enum { FIRST = 6 };
    const char *to = ru_path_join(t->at.b->arena, t->at.lab.dir, name);
    const char *argv[FIRST + 12] = {t->at.lab.self, "data", "make", generator, "--out", to};
    for (uint32_t k = 0; more[k] != NULL; k++) {
        RU_CHECK(FIRST + 1 + k < RU_ARRAY_LEN(argv));
        argv[FIRST + k] = more[k];
    }
    return to == NULL           ? RU_FAIL(err, RU_E_MEM, "no memory for a path")
           : ru_path_exists(to) ? RU_OK
                                : ru_lab_run_command(&t->at.lab, argv, NULL, err);
}

static ru_status open_jobs(jobs *t, ru_err *err)
{
    for (uint32_t k = 0; k < t->n; k++) {
        t->at_s[k] = (came_s[k] - came_s[0]) / 60.0;
    }
    RU_TRY(ru_lab_run_open(t->at.b, "cluster", true, &t->at.lab, err));
    RU_TRY(ru_lab_run_inputs(&t->at.lab, err));
    static const char *const ratings[] = {"--count", "60000", "--test", "6000", NULL};
    static const char *const mixture[] = {"--count",   "4000", "--test",  "400", "--features", "64",
                                          "--classes", "10",   "--noise", "1.5", NULL};
    RU_TRY(make(t, "ratings", "ratings", ratings, err));
    RU_TRY(make(t, "gaussian", "mixture", mixture, err));
    return ru_bench_lab_name(&t->at, "cl", err);
}

static ru_status in_turns(jobs *t, ru_err *err)
{
    static const char *const up[] = {"--rate", "200mbit", NULL};
    RU_TRY(ru_lab_run_up(&t->at.lab, t->at.nodes, up, err));
    ru_status st = RU_OK;
    for (uint32_t m = 0; m <= RESTARTS && st == RU_OK; m++) {
        st = under(t, m, err);
    }
    ru_lab_run_down(&t->at.lab);
    return st;
}

/* What jobs of a kind measured, each configuration once. */
static ru_status fit_kind(const jobs *t, kind of, ru_perf *perf, ru_err *err)
{
    ru_perf_sample *x = RU_NEW(t->at.b->arena, ru_perf_sample, t->n * RU_FIGURES_SAMPLES);
    double *steps = RU_NEW(t->at.b->arena, double, t->n *RU_FIGURES_SAMPLES);
    uint32_t n = 0;
    RU_TRY(x == NULL || steps == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for steps") : RU_OK);
    for (uint32_t k = 0; k < t->n; k++) {
        const ru_cluster_figures *f = &t->figures[k];
        for (uint32_t i = 0; i < f->n && kind_of(k) == of; i++) {
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
    RU_TRY(n > 0 ? ru_perf_fit(x, n, NULL, t->at.b->arena, perf, NULL, err) : RU_OK);
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
    return ru_bench_cluster_play(&o, t->at.b->arena, s, err);
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
    return ru_bench_add(t->at.b,
                        &(ru_bench_row){.name = "jobs whose finish-time fairness is below 2",
                                        .unit = ru_arena_printf(t->at.b->arena, "of %u", t->n),
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
        request[k] = sizes[pattern[k % PATTERN]].request[kind_of(k)];
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
                         .nodes = t->at.nodes,
                         .slots = RU_BENCH_LAB_SLOTS,
                         .start_s = t->start_s,
                         .pause_s = pause_s,
                         .round_s = RU_BENCH_LAB_ROUND_S,
                         .demote_s = RU_BENCH_LAB_DEMOTE_S};
    for (uint32_t m = 0; m < METHODS; m++) {
        o.method = (ru_alloc_method)m;
        RU_TRY(ru_bench_cluster_play(&o, t->at.b->arena, &played[m], err));
    }
    ru_bench_played stops = o;
    stops.method = RU_ALLOC_TIRESIAS;
    stops.restarts = true;
    stops.pause_s = ru_bench_stat_of(t->scaled[1], stops_of(t)).median;
    RU_TRY(ru_bench_cluster_play(&stops, t->at.b->arena, &s, err));
    fprintf(stderr,
            "in virtual time: %.1f s under tiresias where jobs stop and start, in %.2f s each\n", s,
            stops.pause_s);
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
    return ru_bench_add(t->at.b,
                        &(ru_bench_row){.name = mean,
                                        .unit = "s",
                                        .lower = true,
                                        .ours = ru_bench_stat_of(&t->mean_s[RU_ALLOC_POLLUX], 1),
                                        .theirs = ru_bench_stat_of(&played[RU_ALLOC_POLLUX], 1),
                                        .peer = "the same jobs in virtual time",
                                        .goal = 1 / 1.1},
                        err);
}

/* Steps as the model fitted to each job predicts them, of jobs that worked in more than one way. */
static ru_status add_predicted(const jobs *t, ru_err *err)
{
    double off[JOBS_MAX * RU_FIGURES_SAMPLES];
    uint32_t n = 0;
    for (uint32_t k = 0; k < t->n; k++) {
        const ru_cluster_figures *f = &t->figures[k];
        const uint32_t first = n;
        ru_goodput_model m;
        ru_figures_model(f, &m);
        for (uint32_t i = 0; i < f->n && m.perf.overlap >= 1; i++) {
            double is = f->seen[i].step_s / f->seen[i].steps;
            double says =
                ru_perf_step_s(&m.perf, f->seen[i].nodes, f->seen[i].replicas, f->seen[i].local, 0);
            if (f->seen[i].steps >= steps_min) {
                off[n++] = fabs(says / is - 1);
            }
        }
        n = n == first + 1 ? first : n; /* one way alone is fitted exactly */
    }
    if (n == 0) {
        return RU_FAIL(err, RU_E_AGAIN, "no job under pollux worked in more than one way");
    }
    return ru_bench_add(t->at.b,
                        &(ru_bench_row){.name = "predicted steps of jobs, off by",
                                        .unit = "of the measured ones",
                                        .lower = true,
                                        .ours = ru_bench_stat_of(off, n),
                                        .goal = 0.1},
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
    RU_TRY(ru_bench_add(t->at.b, &row, err));
    row.name = "likewise, 99 % of all changes";
    row.ours = ru_bench_stat_of(&t->gaps[(99 * t->n_gaps + 99) / 100 - 1], 1);
    row.goal = 1;
    RU_TRY(ru_bench_add(t->at.b, &row, err));
    const uint32_t n = stops_of(t), last = (99 * n + 99) / 100 - 1;
    row.name = "gap between steps of a job that is scaled, in place";
    row.ours = ru_bench_stat_of(t->scaled[0], n);
    row.theirs = ru_bench_stat_of(t->scaled[1], n);
    row.peer = "the job stops and starts";
    row.goal = 0;
    RU_TRY(ru_bench_add(t->at.b, &row, err));
    row.name = "likewise, 99 % of the times";
    row.ours = ru_bench_stat_of(&t->scaled[0][last], 1);
    row.theirs = ru_bench_stat_of(&t->scaled[1][last], 1);
    return ru_bench_add(t->at.b, &row, err);
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
    *t = (jobs){.at = {.b = b, .nodes = b->quick ? 2 : 4, .percent = b->quick ? 15 : 20}, .n = n};
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
    RU_TRY(add(t, mean, RESTARTS, 1 / 0.58, err));
    RU_TRY(add_gaps(t, err));
    RU_TRY(add_predicted(t, err));
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
