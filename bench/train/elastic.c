/* rubato bench elastic: what data-parallel workers cost, and what a death and a join cost.
 *
 *   overhead   ResNet-18 on 2 workers of one thread against one process of two threads, in turns
 *   kill       kill -9 of one of four: the longest gap between two steps, less a step of the three
 * that are left join       steps while the state moves to a newcomer against the steps before
 *
 * Whole jobs run as their own processes; times are those at which their lines arrive. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "bench/bench.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "env/process/self.h"

enum { STEPS_MAX = 512, WORDS_MAX = 24 };

static const int64_t line_max_ns = 120000000000;

static const char job_text[] =
    "name: elastic\n"
    "model: {zoo: resnet18}\n"
    "data: {format: synthetic, generator: noise, features: 32, count: 4096}\n"
    "train: {optimizer: {sgd: {lr: 0.02, momentum: 0.9}}, batch: 64, steps: 1000}\n";

typedef struct rig {
    ru_bench *b;
    const char *job, *out;
    ru_process *p;
    int64_t at_ns[STEPS_MAX]; /* of each step's line */
    int64_t n;
} rig;

static ru_status start(rig *r, const char *const *more, uint32_t n, int64_t steps, ru_err *err)
{
    const char *words[WORDS_MAX] = {
        ru_bench_rubato(r->b->arena), "train", r->job, "--json", "-q", "--out", r->out, "--set"};
    char set[48];
    (void)snprintf(set, sizeof set, "train.steps=%lld", (long long)steps);
    words[8] = set;
    for (uint32_t k = 0; k < n; k++) {
        words[9 + k] = more[k];
    }
    ru_err ignored;
    if (ru_path_exists(r->out)) {
        (void)!ru_path_remove(r->out, &ignored);
    }
    r->n = 0;
    const ru_process_options po = {.argv = words, .pipe_out = true, .quiet = true};
    return ru_process_start(&po, &r->p, err);
}

static void stop(rig *r)
{
    if (r->p != NULL) {
        ru_process_kill(r->p, SIGTERM);
        (void)ru_process_wait(r->p);
    }
    ru_process_close(r->p);
    r->p = NULL;
}

/* Read lines until `steps` steps are there or a line holds `words` (may be NULL). */
static ru_status follow(rig *r, int64_t steps, const char *words, ru_err *err)
{
    const char *line;
    while (r->n < steps && r->n < STEPS_MAX) {
        RU_TRY(ru_process_line(r->p, line_max_ns, &line, err));
        if (line == NULL) {
            return RU_FAIL(err, RU_E_USER, "the job ended after %lld steps, %lld were expected",
                           (long long)r->n, (long long)steps);
        }
        if (strstr(line, "\"rubato.train.step/1\"") != NULL) {
            r->at_ns[r->n++] = ru_clock_now().ns;
        } else if (words != NULL && strstr(line, words) != NULL) {
            return RU_OK;
        }
    }
    return RU_OK;
}

/* Median time between steps first .. last. */
static double step_s(const rig *r, int64_t first, int64_t last)
{
    double d[STEPS_MAX];
    uint32_t n = 0;
    for (int64_t k = first + 1; k < last; k++) {
        d[n++] = (double)(r->at_ns[k] - r->at_ns[k - 1]) * 1e-9;
    }
    return n > 0 ? ru_bench_stat_of(d, n).median : 0;
}

static ru_status rate(rig *r, const char *const *more, uint32_t n, int64_t steps, double *out,
                      ru_err *err)
{
    RU_TRY(start(r, more, n, steps, err));
    ru_status st = follow(r, steps, NULL, err);
    stop(r);
    if (st == RU_OK) {
        *out = 64.0 / step_s(r, 3, r->n);
    }
    return st;
}

static ru_status overhead(rig *r, ru_err *err)
{
    static const char *const one[] = {"--threads", "2"}, *const two[] = {"-w", "2"};
    uint32_t rounds = r->b->quick ? 2 : 5;
    double ours[RU_BENCH_ROUNDS_MAX], theirs[RU_BENCH_ROUNDS_MAX];
    for (uint32_t k = 0; k < rounds; k++) {
        RU_TRY(rate(r, two, 2, 20, &ours[k], err));
        RU_TRY(rate(r, one, 2, 20, &theirs[k], err));
    }
    return ru_bench_add(r->b,
                        &(ru_bench_row){.name = "resnet18 batch 64, -w 2",
                                        .unit = "samples/s",
                                        .ours = ru_bench_stat_of(ours, rounds),
                                        .theirs = ru_bench_stat_of(theirs, rounds),
                                        .peer = "one process, 2 threads",
                                        .goal = 0.95},
                        err);
}

/* Some child of the launcher; 0: not known. */
static int64_t child_of(int64_t pid, uint32_t which)
{
    char path[96], text[512] = {0};
    (void)snprintf(path, sizeof path, "/proc/%lld/task/%lld/children", (long long)pid,
                   (long long)pid);
    FILE *f = fopen(path, "re");
    if (f != NULL) {
        (void)!fread(text, 1, sizeof text - 1, f);
        (void)fclose(f);
    }
    char *at = text;
    int64_t v = 0;
    for (uint32_t k = 0; k <= which; k++) {
        v = strtoll(at, &at, 10);
    }
    return v;
}

static ru_status kill_one(rig *r, double *pause_s, ru_err *err)
{
    static const char *const four[] = {"-w", "4"};
    RU_TRY(start(r, four, 2, 60, err));
    ru_status st = follow(r, 20, NULL, err);
    int64_t victim = child_of(ru_process_id(r->p), 2);
    if (st == RU_OK && (victim == 0 || kill((int)victim, SIGKILL) != 0)) {
        st = RU_FAIL(err, RU_E_UNSUPPORTED, "the kernel does not list children in /proc");
    }
    st = st == RU_OK ? follow(r, 40, NULL, err) : st;
    stop(r);
    if (st != RU_OK) {
        return st;
    }
    int64_t worst = 0;
    for (int64_t k = 20; k < r->n; k++) {
        int64_t gap = r->at_ns[k] - r->at_ns[k - 1];
        worst = gap > worst ? gap : worst;
    }
    /* The gap holds what was lost of a step, the pause, and the step as the three do it. */
    *pause_s = (double)worst * 1e-9 - step_s(r, 24, r->n);
    return RU_OK;
}

static ru_status kills(rig *r, ru_err *err)
{
    double v[RU_BENCH_ROUNDS_MAX];
    uint32_t rounds = r->b->quick ? 1 : 5;
    for (uint32_t k = 0; k < rounds; k++) {
        RU_TRY(kill_one(r, &v[k], err));
    }
    return ru_bench_add(r->b,
                        &(ru_bench_row){.name = "kill -9 of 1 of 4, gap beyond a step of three",
                                        .unit = "s",
                                        .lower = true,
                                        .ours = ru_bench_stat_of(v, rounds),
                                        .goal = 1},
                        err);
}

/* Steps from the newcomer's entry to the end of its state, against those before it was started. */
static ru_status join_one(rig *r, double *percent, ru_err *err)
{
    char port[48];
    (void)snprintf(port, sizeof port, "127.0.0.1:%lld", (long long)(21000 + ru_self_pid() % 20000));
    const char *const words[] = {"-w", "1:3", "--threads", "1", "--listen", port};
    RU_TRY(start(r, words, 6, 400, err));
    ru_status st = follow(r, 20, NULL, err);
    const char *token = ru_path_join(r->b->arena, r->out, "token");
    const char *join[] = {
        ru_bench_rubato(r->b->arena), "worker", "--join", port, "--token-file", token, NULL};
    ru_process *p = NULL;
    const ru_process_options po = {.argv = join, .pipe_out = true, .quiet = true};
    st = st == RU_OK ? ru_process_start(&po, &p, err) : st;
    st = st == RU_OK ? follow(r, 400, "\"what\":\"join\"", err) : st;
    int64_t first = r->n;
    st = st == RU_OK ? follow(r, 400, "\"what\":\"works\"", err) : st;
    int64_t last = r->n;
    stop(r);
    ru_process_close(p);
    if (st != RU_OK) {
        return st;
    }
    double before = step_s(r, 4, 20), during = step_s(r, first - 1, last);
    *percent = before > 0 && during > 0 ? (during / before - 1) * 100 : 0;
    return RU_OK;
}

static ru_status joins(rig *r, ru_err *err)
{
    double v[RU_BENCH_ROUNDS_MAX];
    uint32_t rounds = r->b->quick ? 1 : 5;
    for (uint32_t k = 0; k < rounds; k++) {
        RU_TRY(join_one(r, &v[k], err));
    }
    return ru_bench_add(r->b,
                        &(ru_bench_row){.name = "join, longer steps while state moves",
                                        .unit = "%",
                                        .lower = true,
                                        .ours = ru_bench_stat_of(v, rounds),
                                        .goal = 20},
                        err);
}

ru_status ru_bench_elastic(ru_bench *b, ru_err *err)
{
    rig r = {.b = b,
             .job = ru_path_join(b->arena, b->dir, "elastic.yaml"),
             .out = ru_path_join(b->arena, b->dir, "elastic-run")};
    if (r.job == NULL || r.out == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the benchmark");
    }
    RU_TRY(ru_file_replace(r.job, job_text, (int64_t)strlen(job_text), err));
    if (ru_bench_wants(b, "resnet18 batch 64, -w 2")) {
        RU_TRY(overhead(&r, err));
    }
    if (ru_bench_wants(b, "kill")) {
        RU_TRY(kills(&r, err));
    }
    return ru_bench_wants(b, "join") ? joins(&r, err) : RU_OK;
}
