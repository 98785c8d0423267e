/* rubato bench sim: speed and memory of the simulator, and elastic jobs with faults by seed. */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "env/clock.h"
#include "env/process/self.h"
#include "lab/job.h"

enum { PENDING = 10000, WORKERS_MAX = 4096, STEPS_MAX = 100000 };

/* -- events ---------------------------------------------------------------------------------------
 */

static void again(void *self, uint64_t arg)
{
    ru_sim *s = self;
    int64_t wait_ns = 1000 + (int64_t)(arg * 2654435761U % 100000);
    ru_sim_at(s, (ru_time){ru_sim_now(s).ns + wait_ns}, again, s, arg + 1);
}

/* Events per second with PENDING of them waiting at any time. */
static ru_status events(ru_bench *b, ru_err *err)
{
    double rates[RU_BENCH_ROUNDS_MAX];
    uint32_t rounds = b->quick ? 3 : 7;
    for (uint32_t k = 0; k < rounds; k++) {
        ru_sim *s;
        RU_TRY(ru_sim_open(&(ru_sim_options){.seed = k}, &s, err));
        for (uint64_t p = 0; p < PENDING; p++) {
            ru_sim_at(s, (ru_time){1 + (int64_t)p}, again, s, p * 77);
        }
        int64_t t0 = ru_clock_cpu_ns();
        ru_status st = ru_sim_run(s, (ru_time){10000000}, err);
        rates[k] =
            (double)ru_sim_events(s) * 1e3 / (double)(ru_clock_cpu_ns() - t0); /* millions/s */
        ru_sim_close(s);
        RU_TRY(st);
    }
    return ru_bench_add(b,
                        &(ru_bench_row){.name = "events, 10,000 pending",
                                        .unit = "M/s",
                                        .goal = 3,
                                        .ours = ru_bench_stat_of(rates, rounds)},
                        err);
}

/* -- many workers ---------------------------------------------------------------------------------
 */

/* ResNet-18's weights, last layer first: the order in which gradients become ready. */
static const int64_t resnet18[] = {
    513000, 2359296, 2359296, 131072, 2359296, 1179648, 589824, 589824, 32768, 589824, 294912,
    147456, 147456,  8192,    147456, 73728,   36864,   36864,  36864,  36864, 9600,   9408};

static void large(uint32_t workers, uint32_t steps, ru_sim_job *job)
{
    *job = (ru_sim_job){.seed = workers,
                        .founders = workers,
                        .steps = steps,
                        .batch = (int64_t)workers * 32,
                        .n_tensors = RU_ARRAY_LEN(resnet18),
                        .tensor_n = resnet18,
                        .counted = true,
                        .nic = {.bytes_per_s = 1.25e9, .delay_ns = 10000, .window_bytes = 64 << 20},
                        .sample_ns = 5000000,
                        .pace.noise = 0.02,
                        .sums = RU_SUMS_NONE,
                        .chunk_bytes = 32 << 20,
                        .pace.ready_groups = 4,
                        .time_max_ns = INT64_C(3600000000000)};
}

static ru_status many(ru_bench *b, uint32_t workers, uint32_t steps, ru_err *err)
{
    ru_sim_job job;
    ru_sim_job_result r;
    large(workers, steps, &job);
    job.replay = ru_arena_printf(b->arena, "rubato bench sim --only \"%u workers %u steps\"",
                                 workers, steps);
    job.say = strstr(b->only, "aloud") != NULL;        /* --only "10 workers aloud" */
    job.pace.ahead = strstr(b->only, "ahead") != NULL; /* two steps under way */
    int64_t t0 = ru_clock_cpu_ns();
    RU_TRY(ru_sim_job_run(&job, &r, err));
    if (r.committed != job.steps) {
        return RU_FAIL(err, RU_E_BUG,
                       "%u workers did %lld of %lld steps and stopped; add \"aloud\" "
                       "behind the words of --only to see why",
                       workers, (long long)r.committed, (long long)job.steps);
    }
    double seconds = (double)(ru_clock_cpu_ns() - t0) * 1e-9;
    double memory = (double)ru_self_rss_peak_bytes() / 1048576, millions = (double)r.events * 1e-6;
    double step_ms = (double)r.step_ns * 1e-6;
    double each = (double)r.events / workers / (double)job.steps;
    bool goal = workers == 1000 && steps == 100;
    const struct {
        const char *what, *unit;
        double value, goal;
        bool lower;
    } rows[] = {
        {"time of one core", "s", seconds, goal ? 60 : 0, true},
        {"peak memory", "MiB", memory, goal ? 2048 : 0, true},
        {"events", "millions", millions, 0, true},
        {"time of an event", "us", seconds / millions, 0, true},
        {"events a worker and step", "", each, 0, true},
        {"a step, simulated", "ms", step_ms, 0, true},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        double v = rows[k].value;
        char *name =
            ru_arena_printf(b->arena, "%u workers, %u steps: %s", workers, steps, rows[k].what);
        RU_TRY(ru_bench_add(b,
                            &(ru_bench_row){.name = name,
                                            .unit = rows[k].unit,
                                            .lower = rows[k].lower,
                                            .goal = rows[k].goal,
                                            .ours = ru_bench_stat_of(&v, 1)},
                            err));
    }
    return RU_OK;
}

ru_status ru_bench_sim(ru_bench *b, ru_err *err)
{
    if (strncmp(b->only, "seed:", 5) == 0 || strncmp(b->only, "seeds:", 6) == 0) {
        return ru_bench_seeds(b, err);
    }
    if (ru_bench_wants(b, "events")) {
        RU_TRY(events(b, err));
    }
    uint32_t n = 0, steps = 100; /* --only "N workers": any number; "N workers M steps" */
    if (sscanf(b->only, "%u workers %u steps", &n, &steps) >= 1 &&
        strstr(b->only, " workers") != NULL) {
        if (n == 0 || n > WORKERS_MAX || steps == 0 || steps > STEPS_MAX) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--only '%s': expected 1 to %d workers and 1 to %d steps", b->only,
                           WORKERS_MAX, STEPS_MAX);
        }
        return many(b, n, steps, err);
    }
    static const uint32_t workers[] = {10, 100, 1000};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(workers); k++) {
        char name[64];
        snprintf(name, sizeof name, "%u workers", workers[k]);
        if (ru_bench_wants(b, name) && !(b->quick && workers[k] == 1000)) {
            RU_TRY(many(b, workers[k], steps, err));
        }
    }
    return ru_bench_wants(b, "seeds") ? ru_bench_seeds(b, err) : RU_OK;
}
