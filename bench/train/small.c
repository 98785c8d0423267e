/* Small benchmarks: starting the program, one trace record, what recording costs a step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "trace/record/recorder.h"

/* Wall time of a child from start to end. */
static ru_status time_command(const char *const *argv, double *ms, ru_err *err)
{
    ru_process *p = NULL;
    ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    int64_t t0 = ru_clock_now().ns;
    RU_TRY(ru_process_start(&opt, &p, err));
    int code = ru_process_wait(p);
    *ms = (double)(ru_clock_now().ns - t0) * 1e-6;
    ru_process_close(p);
    return code == 0 ? RU_OK
                     : RU_FAIL(err, RU_E_USER, "%s %s ended with code %d", argv[0], argv[1], code);
}

static const char job_text[] = "name: start\n"
                               "model: {zoo: lenet}\n"
                               "data: {format: synthetic, generator: digits, count: 256}\n"
                               "train: {loss: cross_entropy, batch: 64, steps: 1}\n";

ru_status ru_bench_start(ru_bench *b, ru_err *err)
{
    uint32_t rounds = b->quick ? 7 : 31;
    const char *self = ru_bench_rubato(b->arena);
    const char *job = ru_path_join(b->arena, b->dir, "start.yaml");
    const char *out = ru_path_join(b->arena, b->dir, "start-run");
    RU_TRY(ru_file_replace(job, job_text, (int64_t)strlen(job_text), err));
    const char *version[] = {self, "--version", NULL};
    const char *bare[] = {"true", "--version", NULL};
    const char *train[] = {self, "train", job, "--out", out, "-q", NULL};
    double v[RU_BENCH_ROUNDS_MAX], t[RU_BENCH_ROUNDS_MAX], e[RU_BENCH_ROUNDS_MAX];
    for (uint32_t k = 0; k < rounds; k++) {
        RU_TRY(time_command(version, &v[k], err));
        RU_TRY(time_command(bare, &e[k], err));
    }
    ru_bench_row row = {.name = "rubato --version",
                        .unit = "ms",
                        .lower = true,
                        .goal = 5,
                        .ours = ru_bench_stat_of(v, rounds),
                        .peer = NULL};
    RU_TRY(ru_bench_add(b, &row, err));
    row = (ru_bench_row){.name = "an empty program, for comparison",
                         .unit = "ms",
                         .lower = true,
                         .ours = ru_bench_stat_of(e, rounds)};
    RU_TRY(ru_bench_add(b, &row, err));
    uint32_t few = b->quick ? 3 : 7;
    for (uint32_t k = 0; k < few; k++) {
        if (ru_path_exists(out)) {
            RU_TRY(ru_path_remove(out, err));
        }
        RU_TRY(time_command(train, &t[k], err));
    }
    row = (ru_bench_row){.name = "rubato train, lenet, one step and out",
                         .unit = "ms",
                         .lower = true,
                         .goal = 300,
                         .ours = ru_bench_stat_of(t, few)};
    return ru_bench_add(b, &row, err);
}

/* -- what recording costs a step -----------------------------------------------------------------
 */

/* Slices are longer than the writer's rounds (0.1 s), and rests after them leave others more than
 * the 5 % of a core that the kernel takes from processes with real-time priority anyway. */
enum { PAIRS_MIN = 20, PAIRS_MAX = 240, PAIRS_QUICK = 40, SLICE_MS = 250, REST_MS = 25 };

/* Half of an interval, in percent, that is narrow enough to end. */
static const double narrow = 0.1, narrow_quick = 0.3;

static ru_status say(ru_process *p, const char *question, const char **answer, ru_err *err)
{
    const int64_t patience_ns = (int64_t)120 * 1000000000;
    RU_TRY(ru_process_write(p, question, (int64_t)strlen(question), err));
    RU_TRY(ru_process_line(p, patience_ns, answer, err));
    return *answer != NULL ? RU_OK : RU_FAIL(err, RU_E_PEER, "the worker ended too early");
}

typedef struct slice {
    double seconds, cpu_seconds; /* of the wall clock, of the processor */
} slice;

static ru_status steps_take(ru_process *p, int64_t n, slice *out, ru_err *err)
{
    char question[64];
    const char *answer;
    snprintf(question, sizeof question, "run %lld\n", (long long)n);
    RU_TRY(say(p, question, &answer, err));
    bool whole = sscanf(answer, "%lf %*s %lf", &out->seconds, &out->cpu_seconds) == 2;
    ru_clock_pause((int64_t)(REST_MS)*1000000);
    return whole && out->seconds > 0 && out->cpu_seconds > 0
               ? RU_OK
               : RU_FAIL(err, RU_E_PEER, "the worker answered '%s'", answer);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Median of paired ratios less 1, in percent, with its 95 % interval by order statistics: ranks
 * n / 2 -+ 0.98 sqrt(n). */
static ru_bench_stat paired(const double *ratio, uint32_t n)
{
    double v[PAIRS_MAX];
    memcpy(v, ratio, n * sizeof *v);
    qsort(v, n, sizeof *v, by_size);
    double half = 0.98 * sqrt(n);
    uint32_t lo = (uint32_t)(n / 2.0 - half), hi = (uint32_t)(n / 2.0 + half);
    double mid = n % 2 == 1 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
    return (ru_bench_stat){100 * (mid - 1), 100 * (v[lo] - 1), 100 * (v[hi < n ? hi : n - 1] - 1),
                           n};
}

static ru_status overhead_row(ru_bench *b, const char *shown, const char *what, ru_bench_stat x,
                              double goal, ru_err *err)
{
    const ru_bench_row row = {.name = ru_arena_printf(b->arena, "%s, %s", shown, what),
                              .unit = "%",
                              .lower = true,
                              .goal = goal,
                              .ours = x};
    return row.name != NULL ? ru_bench_add(b, &row, err) : RU_FAIL(err, RU_E_MEM, "no memory");
}

/* Steps with and without recording in turns (off on, on off, ...), in one process, until the
 * interval is narrow. */
static ru_status overhead_pairs(ru_bench *b, ru_process *p, const char *model, const char *shown,
                                double null_ns, ru_err *err)
{
    double ratio[PAIRS_MAX], cpu_ratio[PAIRS_MAX], plain = 0;
    const char *answer;
    const char *on = ru_arena_printf(b->arena, "record %s/overhead-%s\n", b->dir, model);
    slice s[2];
    ru_bench_stat wall, cpu;
    uint32_t pairs = 0, most = b->quick ? PAIRS_QUICK : PAIRS_MAX;
    int64_t n = 20;
    if (on == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory");
    }
    for (int warm = 0; warm < 2; warm++) { /* the first steps take longer */
        RU_TRY(steps_take(p, n, &s[0], err));
        n = (int64_t)((double)n * 1e-3 * SLICE_MS / s[0].seconds) + 1;
    }
    do {
        for (uint32_t side = 0; side < 2; side++) { /* 0: off */
            uint32_t which = side ^ (pairs % 2);
            RU_TRY(say(p, which == 1 ? on : "record off\n", &answer, err));
            RU_TRY(steps_take(p, n, &s[which], err));
        }
        ratio[pairs] = s[1].seconds / s[0].seconds;
        cpu_ratio[pairs] = s[1].cpu_seconds / s[0].cpu_seconds;
        plain += s[0].seconds / (double)n;
        pairs++;
        wall = paired(ratio, pairs);
        cpu = paired(cpu_ratio, pairs);
    } while (pairs < PAIRS_MIN ||
             (pairs < most && wall.max - wall.min > 2 * (b->quick ? narrow_quick : narrow)));
    RU_TRY(overhead_row(b, shown, "a step with recording: longer by", wall, 0.5, err));
    RU_TRY(overhead_row(b, shown, "its processor time: more by", cpu, 0.5, err));
    /* An executable asks once a run; a worker's step has some ten calls around it. */
    const double checks = 12;
    double off = 100 * checks * null_ns * 1e-9 / (plain / pairs);
    return overhead_row(b, shown, "recording off: 12 checks a step", ru_bench_stat_of(&off, 1),
                        0.05, err);
}

/* On one core, ahead of other programs where that is allowed. */
static ru_status overhead_start(ru_bench *b, const char *model, const char *batch, bool ahead,
                                ru_process **out, bool *started, ru_err *err)
{
    const char *const argv[] = {"chrt",  "-r",       "1",     ru_bench_rubato(b->arena),
                                "bench", "--worker", "train", model,
                                "1",     "f32",      batch,   NULL};
    const ru_process_options opt = {.argv = argv + (ahead ? 0 : 3),
                                    .pipe_in = true,
                                    .pipe_out = true,
                                    .quiet = true,
                                    .cores_mask = 1};
    const char *line = NULL;
    RU_TRY(ru_process_start(&opt, out, err));
    ru_status st = ru_process_line(*out, 0, &line, err);
    *started = st == RU_OK && line != NULL && strstr(line, "true") != NULL;
    return st;
}

static ru_status overhead(ru_bench *b, const char *model, const char *batch, double null_ns,
                          ru_err *err)
{
    ru_process *p = NULL;
    bool started = false;
    ru_status st = RU_OK;
    const char *shown = model;
    for (int way = 0; way < 2 && !started; way++) {
        ru_process_close(p);
        p = NULL;
        shown = way == 0 ? model : ru_arena_printf(b->arena, "%s (not ahead of others)", model);
        st = overhead_start(b, model, batch, way == 0, &p, &started, err);
    }
    if (!started) {
        st = RU_FAIL(err, RU_E_PEER, "the worker for %s did not start", model);
    }
    st = st == RU_OK ? overhead_pairs(b, p, model, shown, null_ns, err) : st;
    ru_process_close(p);
    return st;
}

ru_status ru_bench_trace(ru_bench *b, ru_err *err)
{
    enum { RECORDS = 10000 };
    ru_recorder *r = NULL;
    ru_recorder_options opt = {.dir = ru_path_join(b->arena, b->dir, "trace")};
    RU_TRY(ru_recorder_open(&opt, &r, err));
    uint16_t name = ru_recorder_name(r, "bench", "bench");
    uint32_t rounds = b->quick ? 5 : 15;
    double cost[RU_BENCH_ROUNDS_MAX], clock[RU_BENCH_ROUNDS_MAX], flow[RU_BENCH_ROUNDS_MAX],
        off[RU_BENCH_ROUNDS_MAX];
    for (uint32_t k = 0; k < rounds; k++) {
        int64_t t0 = ru_rec_now(), last = t0;
        for (int i = 0; i < RECORDS; i++) {
            int64_t now = ru_rec_now();
            ru_rec_span(r, name, last, now, i);
            last = now;
        }
        cost[k] = (double)(ru_rec_now() - t0) / (RECORDS);
        t0 = ru_rec_now();
        for (int i = 0; i < RECORDS / 2; i++) {
            ru_rec_flows(r, &(ru_rec_flow){.kind = RU_REC_SEND,
                                           .name = name,
                                           .flow = (uint64_t)i,
                                           .start_ns = last,
                                           .end_ns = t0,
                                           .bytes = i});
        }
        flow[k] = 2.0 * (double)(ru_rec_now() - t0) / (RECORDS);
        t0 = ru_rec_now();
        for (int i = 0; i < RECORDS; i++) {
            ru_rec_span(NULL, name, last, t0, i);
        }
        off[k] = (double)(ru_rec_now() - t0) / (RECORDS);
        t0 = ru_rec_now();
        int64_t sum = 0;
        for (int i = 0; i < RECORDS; i++) {
            sum += ru_rec_now();
        }
        clock[k] = (double)(ru_rec_now() - t0) / (RECORDS) + (sum == 1 ? 1 : 0);
    }
    ru_recorder_close(r);
    ru_bench_row row = {.name = "one record, with its reading of the clock",
                        .unit = "ns",
                        .lower = true,
                        .goal = 60,
                        .ours = ru_bench_stat_of(cost, rounds)};
    RU_TRY(ru_bench_add(b, &row, err));
    row = (ru_bench_row){.name = "one end of a transfer, its times known",
                         .unit = "ns",
                         .lower = true,
                         .goal = 60,
                         .ours = ru_bench_stat_of(flow, rounds)};
    RU_TRY(ru_bench_add(b, &row, err));
    row = (ru_bench_row){.name = "reading the clock alone",
                         .unit = "ns",
                         .lower = true,
                         .ours = ru_bench_stat_of(clock, rounds)};
    RU_TRY(ru_bench_add(b, &row, err));
    row = (ru_bench_row){.name = "a record without a recorder",
                         .unit = "ns",
                         .lower = true,
                         .ours = ru_bench_stat_of(off, rounds)};
    RU_TRY(ru_bench_add(b, &row, err));
    double null_ns = row.ours.median;
    RU_TRY(overhead(b, "mlp", "64", null_ns, err));
    return overhead(b, "lenet", "64", null_ns, err);
}
