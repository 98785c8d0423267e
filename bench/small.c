/* Small benchmarks: starting the program, one trace record. */
#include <stdio.h>
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

ru_status ru_bench_trace(ru_bench *b, ru_err *err)
{
    enum { RECORDS = 10000 };
    ru_recorder *r = NULL;
    ru_recorder_options opt = {.dir = ru_path_join(b->arena, b->dir, "trace")};
    RU_TRY(ru_recorder_open(&opt, &r, err));
    uint16_t name = ru_recorder_name(r, "bench", "bench");
    uint32_t rounds = b->quick ? 5 : 15;
    double cost[RU_BENCH_ROUNDS_MAX], clock[RU_BENCH_ROUNDS_MAX], flow[RU_BENCH_ROUNDS_MAX];
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
    return ru_bench_add(b, &row, err);
}
