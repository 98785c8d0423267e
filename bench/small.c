/* Small benchmarks: starting the program, one trace record, what recording costs a step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "env/clock.h"
#include "env/file.h"
#include "env/process.h"
#include "trace/recorder.h"

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
    const char *self = ru_bench_self(b->arena);
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

enum { PAIRS = 400, PAIRS_QUICK = 100 }; /* short ones: others on the machine hit few of them */

static ru_status say(ru_process *p, const char *question, const char **answer, ru_err *err)
{
    const int64_t patience_ns = (int64_t)120 * 1000000000;
    RU_TRY(ru_process_write(p, question, (int64_t)strlen(question), err));
    RU_TRY(ru_process_line(p, patience_ns, answer, err));
    return *answer != NULL ? RU_OK : RU_FAIL(err, RU_E_PEER, "the worker ended too early");
}

static ru_status steps_take(ru_process *p, int64_t n, double *seconds, ru_err *err)
{
    char question[64];
    const char *answer;
    snprintf(question, sizeof question, "run %lld\n", (long long)n);
    RU_TRY(say(p, question, &answer, err));
    *seconds = strtod(answer, NULL);
    return *seconds > 0 ? RU_OK : RU_FAIL(err, RU_E_PEER, "the worker answered '%s'", answer);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Median of a paired ratio less 1, in percent, with its 95 % interval by order statistics: ranks
 * n / 2 -+ 0.98 sqrt(n). */
static ru_bench_stat paired(double *ratio, uint32_t n)
{
    qsort(ratio, n, sizeof *ratio, by_size);
    double half = 0.98 * sqrt(n);
    uint32_t lo = (uint32_t)(n / 2.0 - half), hi = (uint32_t)(n / 2.0 + half);
    double mid = n % 2 == 1 ? ratio[n / 2] : 0.5 * (ratio[n / 2 - 1] + ratio[n / 2]);
    return (ru_bench_stat){100 * (mid - 1), 100 * (ratio[lo] - 1),
                           100 * (ratio[hi < n ? hi : n - 1] - 1), n};
}

/* Steps with and without recording in turns, in one process. */
static ru_status overhead_pairs(ru_bench *b, ru_process *p, const char *model, double null_ns,
                                ru_err *err)
{
    double ratio[PAIRS], s[2], plain = 0;
    uint32_t pairs = b->quick ? PAIRS_QUICK : PAIRS;
    const char *answer;
    char on[512];
    snprintf(on, sizeof on, "record %s/overhead-%s\n", b->dir, model);
    RU_TRY(steps_take(p, 20, &s[0], err));
    int64_t n = (int64_t)(20 * 0.02 / s[0]) + 1;
    for (uint32_t k = 0; k < pairs; k++) {
        for (uint32_t side = 0; side < 2; side++) { /* 0: off */
            uint32_t which = side ^ (k % 2);
            RU_TRY(say(p, which == 1 ? on : "record off\n", &answer, err));
            RU_TRY(steps_take(p, n, &s[which], err));
        }
        ratio[k] = s[1] / s[0];
        plain += s[0] / (double)n / pairs;
    }
    ru_bench_row row = {
        .name = ru_arena_printf(b->arena, "%s, a step with recording: longer by", model),
        .unit = "%",
        .lower = true,
        .goal = 0.5,
        .ours = paired(ratio, pairs)};
    RU_TRY(ru_bench_add(b, &row, err));
    /* An executable asks once a run; a worker's step has some ten calls around it. */
    const double checks = 12;
    double off = 100 * checks * null_ns * 1e-9 / plain;
    row = (ru_bench_row){
        .name = ru_arena_printf(b->arena, "%s, recording off: %g checks a step", model, checks),
        .unit = "%",
        .lower = true,
        .goal = 0.05,
        .ours = ru_bench_stat_of(&off, 1)};
    return ru_bench_add(b, &row, err);
}

static ru_status overhead(ru_bench *b, const char *model, const char *batch, double null_ns,
                          ru_err *err)
{
    const char *const argv[] = {
        ru_bench_self(b->arena), "bench", "--worker", "train", model, "1", "f32", batch, NULL};
    const ru_process_options opt = {
        .argv = argv, .pipe_in = true, .pipe_out = true, .quiet = true, .cores_mask = 1};
    const char *line;
    ru_process *p = NULL;
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = ru_process_line(p, 0, &line, err);
    if (st == RU_OK && (line == NULL || strstr(line, "true") == NULL)) {
        st = RU_FAIL(err, RU_E_PEER, "the worker for %s did not start", model);
    }
    st = st == RU_OK ? overhead_pairs(b, p, model, null_ns, err) : st;
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
