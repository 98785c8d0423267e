/* rubato-bench cluster: the same real jobs under three methods of plan/fleet/alloc.h, in turns.
 * Nodes are hosts of the network laboratory, of two slots and behind a link each. A worker has a
 * part of a core, so that a slot is worth the same whoever has it. Jobs come one after the other:
 * many small ones, few large ones. Pollux lets them adapt their batch; under the others it stays.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"
#include "bench/cluster.h"
#include "bench/lab_run.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "plan/fleet/alloc.h"

enum { METHODS = 3, PATTERN = 8, JOBS_MAX = 3 * PATTERN, NODE_SLOTS = 2 };

static const int64_t look_ns = 250000000, patience_ns = 1800 * INT64_C(1000000000);
static const double mean_gap_s = 2.5;

static const struct {
    const char *name;
    uint32_t epochs, request; /* request: workers, as a user chose them */
} sizes[] = {{"small", 7, 1}, {"medium", 30, 2}, {"large", 90, 2}};

/* Of eight jobs, as in published traces most are small. */
static const uint32_t pattern[PATTERN] = {0, 1, 0, 2, 0, 0, 1, 0};

typedef struct jobs {
    ru_bench *b;
    ru_lab_run lab;
    const char *folder, *set[6];
    uint32_t nodes, percent; /* percent: of a core, for each worker */
    uint32_t n;
    double at_s[JOBS_MAX];
    double mean_s[METHODS][RU_BENCH_ROUNDS_MAX], loss[METHODS][RU_BENCH_ROUNDS_MAX];
} jobs;

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
    ru_text_putf(&y, "folder: cl\naccounts: shared\nround: 2s\nalloc: {method: %s, demote: 20}\n",
                 ru_alloc_method_name(m));
    for (uint32_t k = 1; k <= t->nodes; k++) {
        ru_text_putf(&y, "%s{name: n%u, %sslots: %u, cpu: %.2f}%s", k > 1 ? ", " : "nodes: [", k,
                     k > 1 ? ru_arena_printf(t->b->arena, "host: lab.%u, ", k) : "", NODE_SLOTS,
                     t->percent / 100.0, k == t->nodes ? "]\n" : "");
    }
    return put_file(t, "cluster.yaml", &y, err);
}

static ru_status put_job(const jobs *t, uint32_t size, ru_alloc_method m, ru_err *err)
{
    ru_text y = ru_text_arena(t->b->arena);
    ru_text_putf(&y,
                 "name: %s\nmodel: {zoo: mlp, hidden: [256]}\n"
                 "data: {format: synthetic, generator: gaussian, count: 4000, test_count: 400, "
                 "features: 256, classes: 10}\n"
                 "train: {optimizer: {sgd: {lr: 0.02}}, batch: 64, epochs: %u, autotune: false, "
                 "threads: 1%s}\ncheckpoint: {every: 5s, keep: 1}\n",
                 sizes[size].name, sizes[size].epochs,
                 m == RU_ALLOC_POLLUX ? ", adapt: {batch_max: 512}" : "");
    return put_file(t, "job.yaml", &y, err);
}

static ru_status submit(const jobs *t, uint32_t k, ru_alloc_method m, ru_err *err)
{
    uint32_t size = pattern[k % PATTERN];
    const char *line;
    RU_TRY(put_job(t, size, m, err));
    const char *words[] = {
        "submit",    ru_path_join(t->b->arena, t->lab.dir, "job.yaml"),       "-w", "1:4",
        "--request", ru_arena_printf(t->b->arena, "%u", sizes[size].request), NULL};
    return words[1] == NULL || words[5] == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a job")
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

/* *done: jobs that have; *sum_s: from submission to their ends. */
static ru_status look(const jobs *t, uint32_t *done, double *sum_s, ru_err *err)
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
            *sum_s += strtod(field(ps, k, "\"age\":"), NULL);
        }
    }
    return RU_OK;
}

/* The mean loss of all runs on their test samples. */
static ru_status mean_loss(const jobs *t, double *mean, ru_err *err)
{
    *mean = 0;
    for (uint32_t k = 1; k <= t->n; k++) {
        char *text;
        int64_t n;
        const char *path = ru_arena_printf(t->b->arena, "%s/jobs/%u/metrics.jsonl", t->folder, k);
        RU_TRY(path == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a path")
                            : ru_file_read(path, 64 << 20, t->b->arena, &text, &n, err));
        const char *at = strstr(text, "\"rubato.train.summary/1\"");
        at = at != NULL ? strstr(at, "\"metric\":{") : NULL;
        at = at != NULL ? strstr(at, "\"loss\":") : NULL;
        if (at == NULL) {
            return RU_FAIL(err, RU_E_USER, "%s tells no loss of its end", path);
        }
        *mean += strtod(at + strlen("\"loss\":"), NULL) / t->n;
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

static ru_status run_all(jobs *t, ru_alloc_method m, double *mean_s, ru_err *err)
{
    uint32_t next = 0, done = 0;
    const ru_time begun = ru_clock_now();
    double sum_s = 0;
    while (done < t->n) {
        int64_t passed = ru_time_since(ru_clock_now(), begun);
        if (next < t->n && 1e-9 * (double)passed >= t->at_s[next]) {
            RU_TRY(submit(t, next++, m, err));
            continue;
        }
        if (passed > patience_ns) {
            return RU_FAIL(err, RU_E_AGAIN, "%u of %u jobs have ended after half an hour", done,
                           t->n);
        }
        ru_clock_pause(look_ns);
        RU_TRY(check_bounds(t, err));
        RU_TRY(next == t->n ? look(t, &done, &sum_s, err) : RU_OK);
    }
    *mean_s = sum_s / t->n;
    return RU_OK;
}

static ru_status one_round(jobs *t, uint32_t m, uint32_t round, ru_err *err)
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
    RU_TRY(put_cluster(t, (ru_alloc_method)m, err));
    ru_status st = ask(t, words, false, &line, err);
    st = st == RU_OK ? run_all(t, (ru_alloc_method)m, &t->mean_s[m][round], err) : st;
    st = st == RU_OK ? mean_loss(t, &t->loss[m][round], err) : st;
    if (st != RU_OK) {
        (void)!end(t, true, &ignored);
        return st;
    }
    RU_TRY(end(t, false, err));
    return ru_path_remove(t->folder, err);
}

/* Pollux first. */
static ru_status add(jobs *t, const char *name, const char *unit, double of[][RU_BENCH_ROUNDS_MAX],
                     uint32_t other, double goal, uint32_t rounds, ru_err *err)
{
    double ours[RU_BENCH_ROUNDS_MAX], theirs[RU_BENCH_ROUNDS_MAX];
    memcpy(ours, of[RU_ALLOC_POLLUX], rounds * sizeof *ours);
    memcpy(theirs, of[other], rounds * sizeof *theirs);
    return ru_bench_add(
        t->b,
        &(ru_bench_row){.name = name,
                        .unit = unit,
                        .lower = true,
                        .ours = ru_bench_stat_of(ours, rounds),
                        .theirs = ru_bench_stat_of(theirs, rounds),
                        .peer = ru_arena_printf(t->b->arena, "%s, jobs resized in place",
                                                ru_alloc_method_name((ru_alloc_method)other)),
                        .goal = goal},
        err);
}

static ru_status open_jobs(jobs *t, ru_err *err)
{
    ru_arena *a = t->b->arena;
    ru_rng rng = ru_rng_from(1, 0);
    for (uint32_t k = 1; k < t->n; k++) { /* gaps from 0 to twice the mean */
        t->at_s[k] = t->at_s[k - 1] + 2 * mean_gap_s * (double)ru_rng_below(&rng, 1000) / 1000;
    }
    RU_TRY(ru_lab_run_open(t->b, "cluster", true, &t->lab, err));
    const char *dir = t->lab.dir, *scripts = ru_bench_scripts(a);
    t->folder = ru_path_join(a, dir, "cl");
    t->set[0] = ru_arena_printf(a, "XDG_CONFIG_HOME=%s", dir);
    t->set[1] = ru_arena_printf(a, "RUBATO_CLUSTER=%s/cl", dir);
    t->set[2] = ru_arena_printf(a, "RUBATO_SSH=%s/lab_host.sh", scripts != NULL ? scripts : ".");
    t->set[3] = ru_arena_printf(a, "LAB_NET=%s", t->lab.script);
    t->set[4] = ru_arena_printf(a, "LAB_NAME=%s", t->lab.lab);
    for (uint32_t k = 0; k + 1 < RU_ARRAY_LEN(t->set); k++) {
        RU_TRY(t->set[k] != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for paths"));
    }
    return t->folder != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for paths");
}

/* All methods, as often as there are rounds. */
static ru_status in_turns(jobs *t, uint32_t rounds, ru_err *err)
{
    static const char *const up[] = {"--rate", "200mbit", NULL};
    RU_TRY(ru_lab_run_up(&t->lab, t->nodes, up, err));
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < METHODS * rounds && st == RU_OK; k++) {
        st = one_round(t, k % METHODS, k / METHODS, err);
    }
    ru_lab_run_down(&t->lab);
    return st;
}

ru_status ru_bench_cluster_jobs(ru_bench *b, ru_err *err)
{
    const uint32_t rounds = b->quick ? 1 : 3, n = b->quick ? PATTERN : JOBS_MAX;
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
    st = st == RU_OK ? in_turns(t, rounds, err) : st;
    if (st == RU_E_MISSING) { /* the other rows need no control groups */
        fprintf(stderr, "%s: %s\n", mean, err->text);
        b->told = true;
        return RU_OK;
    }
    RU_TRY(st);
    RU_TRY(add(t, mean, "s", t->mean_s, RU_ALLOC_TIRESIAS, 1 / 0.63, rounds, err));
    RU_TRY(add(t, mean, "s", t->mean_s, RU_ALLOC_OPTIMUS, 2, rounds, err));
    return add(t, "mean loss of their tests", "", t->loss, RU_ALLOC_TIRESIAS, 0.99, rounds, err);
}
