/* rubato-bench cluster: jobs of clusters in the laboratory, looked at one by one.
 *
 * Two jobs that span nodes: the scheduler gives them nodes of their own; the schedulers of two
 * clusters that know nothing of each other let them share links.
 *
 * One job whose workers change: how long no step ends. */
#include <math.h>
#include <stdio.h>

#include "bench/cluster.h"
#include "bench/cluster_lab.h"
#include "cluster/figures.h"
#include "env/clock.h"
#include "env/file/file.h"

enum { STEPS_MAX = 20000, SPANS = 3 }; /* SPANS: workers of a job, more than a node has slots */
enum { SETTLED = 5 };                  /* steps with other workers, until their change is over */

static const int64_t glance_ns = 10000000, patience_ns = 60 * INT64_C(1000000000);

/* A job that sums 1.1 MB a step and does not end. */
static ru_status submit_wide(const ru_bench_lab *t, const char *workers, ru_err *err)
{
    ru_text y = ru_text_arena(t->b->arena);
    const char *line, *path = ru_path_join(t->b->arena, t->lab.dir, "wide.yaml");
    const char *words[] = {"submit", path, "-w", workers, NULL};
    ru_text_put(&y, "name: wide\nmodel: {zoo: mlp, hidden: [1024]}\n"
                    "data: {format: synthetic, generator: gaussian, count: 4000, test_count: 400, "
                    "features: 256, classes: 10}\n"
                    "train: {optimizer: {sgd: {lr: 0.02}}, batch: 48, epochs: 100000, "
                    "autotune: false, threads: 1}\ncheckpoint: {every: 0s}\n");
    RU_TRY(ru_bench_lab_put(t, "wide.yaml", &y, err));
    return path != NULL ? ru_bench_lab_ask(t, words, false, &line, err)
                        : RU_FAIL(err, RU_E_MEM, "no memory for a path");
}

/* The median step of the first job in the next seconds. */
static ru_status watch_step(const ru_bench_lab *t, double *step_s, ru_err *err)
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
static ru_status beside(const ru_bench_lab *t, const ru_bench_lab *other, double *times,
                        uint32_t rounds, ru_err *err)
{
    const char *line;
    uint32_t job = t == other ? 2 : 1;
    RU_TRY(submit_wide(t, "3", err));
    RU_TRY(ru_bench_lab_workers(t, 1, SPANS, err));
    for (uint32_t k = 0; k < rounds; k++, job++) {
        const char *words[] = {"cancel", ru_arena_printf(t->b->arena, "%u", job), NULL};
        double alone_s = 0, both_s = 0;
        RU_TRY(watch_step(t, &alone_s, err));
        RU_TRY(submit_wide(other, "3", err));
        RU_TRY(ru_bench_lab_workers(other, job, SPANS, err));
        RU_TRY(watch_step(t, &both_s, err));
        RU_TRY(words[1] != NULL ? ru_bench_lab_ask(other, words, false, &line, err)
                                : RU_FAIL(err, RU_E_MEM, "no memory for a number"));
        RU_TRY(ru_bench_lab_workers(other, job, 0, err));
        times[k] = both_s / alone_s;
    }
    return RU_OK;
}

/* forced: of another cluster on the same two hosts. */
static ru_status one_link(ru_bench_lab *t, bool forced, double *times, uint32_t rounds, ru_err *err)
{
    static const char *const up[] = {"--rate", "200mbit", NULL};
    ru_bench_lab other;
    ru_err ignored;
    t->nodes = forced ? 2 : 4;
    RU_TRY(ru_bench_lab_name(t, "cl", err));
    other = *t;
    RU_TRY(forced ? ru_bench_lab_name(&other, "cl2", err) : RU_OK);
    RU_TRY(ru_lab_run_up(&t->lab, t->nodes, up, err));
    ru_status st = ru_bench_lab_start(t, RU_ALLOC_POLLUX, err);
    st = st == RU_OK && forced ? ru_bench_lab_start(&other, RU_ALLOC_POLLUX, err) : st;
    st = st == RU_OK ? beside(t, forced ? &other : t, times, rounds, err) : st;
    (void)!(forced ? ru_bench_lab_end(&other, true, &ignored) : RU_OK);
    (void)!ru_bench_lab_end(t, true, &ignored);
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
    ru_bench_lab t = {.b = b, .percent = 20};
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

/* -- a job whose workers change -------------------------------------------------------------------
 */

/* From the order on until so many workers have made some steps: the longest time in which none
 * ended. */
static ru_status watch_change(const ru_bench_lab *t, uint32_t job, uint32_t workers,
                              ru_cluster_figures *f, double *gap_s, ru_err *err)
{
    ru_arena *a = t->b->arena;
    const char *out = ru_arena_printf(a, "%s/jobs/%u", t->folder, job);
    const char *words[] = {"scale", ru_arena_printf(a, "%u", job),
                           ru_arena_printf(a, "%u", workers), NULL};
    ru_process *p;
    ru_status st = RU_OK;
    if (out == NULL || words[1] == NULL || words[2] == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a change");
    }
    RU_TRY(ru_bench_lab_tell(t, words, false, &p, err));
    const ru_time begun = ru_clock_now();
    const int64_t from = f->step;
    ru_time last = begun, now = begun;
    int64_t newest = from; /* a run that goes on may be read again from its beginning */
    *gap_s = 0;
    while (st == RU_OK &&
           (f->workers != workers || f->since < SETTLED || newest < from + SETTLED)) {
        ru_figures_look(f, out, 1);
        now = ru_clock_now();
        if (f->step > newest) {
            *gap_s = fmax(*gap_s, 1e-9 * (double)ru_time_since(now, last));
            last = now;
            newest = f->step;
        }
        ru_clock_pause(glance_ns);
        st = ru_time_since(now, begun) < patience_ns
                 ? RU_OK
                 : RU_FAIL(err, RU_E_AGAIN, "job %u does not come to %u workers", job, workers);
    }
    int code = ru_process_wait(p);
    ru_process_close(p);
    RU_TRY(st);
    return code == 0 ? RU_OK : RU_FAIL(err, RU_E_USER, "rubato cluster scale ended with %d", code);
}

ru_status ru_bench_lab_gaps(const ru_bench_lab *t, uint32_t job, double *gaps, uint32_t n,
                            ru_err *err)
{
    const char *number = ru_arena_printf(t->b->arena, "%u", job), *line;
    const char *words[] = {"cancel", number, NULL};
    ru_cluster_figures f = {0};
    double ignored;
    RU_TRY(number != NULL ? submit_wide(t, "1", err)
                          : RU_FAIL(err, RU_E_MEM, "no memory for a number"));
    RU_TRY(ru_bench_lab_workers(t, job, 1, err));
    RU_TRY(watch_change(t, job, 2, &f, &ignored, err)); /* from now on it is warm */
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(watch_change(t, job, 1 + k % 2, &f, &gaps[k], err));
    }
    RU_TRY(ru_bench_lab_ask(t, words, false, &line, err));
    return ru_bench_lab_workers(t, job, 0, err);
}
