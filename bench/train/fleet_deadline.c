/* Jobs on functions of this machine with a deadline: how many keep it, and what they cost beside
 * the cheapest choice of a measured grid of workers and memory. And jobs whose batch doubles twice
 * beside the cheapest number of workers that is kept. */
#include "bench/train/fleet.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/process.h"

enum { WORKERS = 6, MEMORIES = 8, MEMORY_MB = 128 };
enum { JOBS = 20, JOBS_QUICK = 6 };
enum { BATCHES_MB = 442, BATCHES_EPOCHS = 24, BATCHES_EPOCHS_QUICK = 4, BATCHES_JOBS = 3 };

static const char job_text[] =
    "name: deadline\n"
    "model: {zoo: mlp, hidden: [64]}\n"
    "data: {format: synthetic, generator: digits, count: 2000, test_count: 100}\n"
    "train: {batch: 240, steps: 120, epochs: 0, eval_every: 0, optimizer: {sgd: {lr: 0.05}},\n"
    "        threads: 1}\n"
    "checkpoint: {every: 0s}\n";

typedef struct spent {
    double seconds, usd;
} spent;

/* What a run of the job with these words took and cost. */
static ru_status train(ru_bench *b, const char *job, const char *const *more, uint32_t n,
                       spent *out, ru_err *err)
{
    enum { WORDS_MAX = 32 };
    const char *run = ru_path_join(b->arena, b->dir, "deadline-run"), *line = "";
    const char *argv[WORDS_MAX] = {"sh",
                                   "-c",
                                   "exec \"$@\" 2>&1",
                                   "sh",
                                   ru_bench_rubato(b->arena),
                                   "train",
                                   ru_path_join(b->arena, b->dir, job),
                                   "--functions",
                                   "local",
                                   "--out",
                                   run};
    uint32_t k = 11;
    RU_CHECK(n + 12 < WORDS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        argv[k++] = more[i];
    }
    if (ru_path_exists(run)) {
        RU_TRY(ru_path_remove(run, err));
    }
    *out = (spent){.usd = -1};
    ru_process *p = NULL;
    const ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    ru_time begun = ru_clock_now();
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = RU_OK;
    while (st == RU_OK && line != NULL) {
        st = ru_process_line(p, 0, &line, err);
        const char *at = st == RU_OK && line != NULL ? strstr(line, "functions spent ") : NULL;
        out->usd = at != NULL ? strtod(at + strlen("functions spent "), NULL) : out->usd;
    }
    int code = ru_process_wait(p);
    out->seconds = (double)ru_time_since(ru_clock_now(), begun) * 1e-9;
    ru_process_close(p);
    RU_TRY(st);
    return code == 0 && out->usd >= 0
               ? RU_OK
               : RU_FAIL(err, RU_E_USER, "rubato train --functions ended with code %d", code);
}

/* Of a choice that is kept from the first step to the last. */
static ru_status measure(ru_bench *b, const char *job, uint32_t workers, uint32_t memory_mb,
                         spent *out, ru_err *err)
{
    const char *const words[] = {"-w", ru_arena_printf(b->arena, "%u", workers), "--memory",
                                 ru_arena_printf(b->arena, "%u", memory_mb)};
    return train(b, job, words, RU_ARRAY_LEN(words), out, err);
}

/* The cheapest of the grid that keeps the deadline; usd -1: none. */
static spent cheapest_of(const spent *grid, uint32_t n, double deadline_s)
{
    spent least = {.usd = -1};
    for (uint32_t k = 0; k < n; k++) {
        if (grid[k].seconds > 0 && grid[k].seconds <= deadline_s &&
            (least.usd < 0 || grid[k].usd < least.usd)) {
            least = grid[k];
        }
    }
    return least;
}

static double cheapest(const spent *grid, uint32_t n, double deadline_s)
{
    return cheapest_of(grid, n, deadline_s).usd;
}

ru_status rui_bench_fleet_deadline(ru_bench *b, ru_err *err)
{
    spent grid[WORKERS * MEMORIES] = {{0}};
    double fastest = INFINITY, kept = 0, over[JOBS];
    const uint32_t jobs = b->quick ? JOBS_QUICK : JOBS;
    RU_TRY(ru_file_replace(ru_path_join(b->arena, b->dir, "deadline.yaml"), job_text,
                           (int64_t)strlen(job_text), err));
    for (uint32_t k = 0; k < WORKERS * MEMORIES; k++) {
        const uint32_t workers = 1 + k / MEMORIES, memory = 1 + k % MEMORIES;
        if (b->quick && (workers % 2 != 0 || memory % 2 != 0)) {
            continue; /* 3 x 4 */
        }
        RU_TRY(measure(b, "deadline.yaml", workers, MEMORY_MB * memory, &grid[k], err));
        fastest = fmin(fastest, grid[k].seconds);
    }
    for (uint32_t j = 0; j < jobs; j++) { /* from three to six times the fastest */
        double deadline_s = fastest * (3 + 3.0 * j / (jobs - 1));
        const char *const words[] = {
            "-w",
            ru_arena_printf(b->arena, "1:%d", WORKERS),
            "--memory",
            ru_arena_printf(b->arena, "%d:%d:%d", MEMORY_MB, MEMORY_MB * MEMORIES, MEMORY_MB),
            "--deadline",
            ru_arena_printf(b->arena, "%.0fms", deadline_s * 1e3),
            "--set",
            ru_arena_printf(b->arena, "train.seed=%u", j + 1)};
        spent s;
        RU_TRY(train(b, "deadline.yaml", words, RU_ARRAY_LEN(words), &s, err));
        fprintf(stderr, "job %u: deadline %.2f s, took %.2f s, %.3g USD, the cheapest %.3g USD\n",
                j + 1, deadline_s, s.seconds, s.usd,
                cheapest(grid, WORKERS * MEMORIES, deadline_s));
        kept += s.seconds <= deadline_s ? 1 : 0;
        over[j] = s.usd / cheapest(grid, WORKERS * MEMORIES, deadline_s);
    }
    const ru_bench_row rows[] = {
        {.name = ru_arena_printf(b->arena, "deadlines kept, of %u jobs on functions", jobs),
         .unit = "jobs",
         .goal = 0.95 * jobs,
         .ours = ru_bench_stat_of(&kept, 1)},
        {.name = ru_arena_printf(b->arena, "money over the cheapest of %s choices, %u jobs",
                                 b->quick ? "3 x 4" : "6 x 8", jobs),
         .unit = "times",
         .lower = true,
         .goal = 1.1,
         .ours = ru_bench_stat_of(over, jobs)}};
    RU_TRY(ru_bench_add(b, &rows[0], err));
    return ru_bench_add(b, &rows[1], err);
}

/* As many samples with each batch. */
static const char *batches_job(const ru_bench *b)
{
    int epochs = b->quick ? BATCHES_EPOCHS_QUICK : BATCHES_EPOCHS;
    return ru_arena_printf(
        b->arena,
        "name: batches\n"
        "model: {zoo: mlp, hidden: [512]}\n"
        "data: {format: synthetic, generator: digits, count: 2000, test_count: 100}\n"
        "train: {batch: 60, batch_schedule: {%d: 120, %d: 240}, epochs: %d, eval_every: 0,\n"
        "        optimizer: {sgd: {lr: 0.05}}, threads: 1}\n"
        "checkpoint: {every: 0s}\n",
        epochs + 1, 2 * epochs + 1, 3 * epochs);
}

ru_status rui_bench_fleet_batches(ru_bench *b, ru_err *err)
{
    spent grid[WORKERS] = {{0}};
    double fastest = INFINITY, kept = 0, over[BATCHES_JOBS];
    const char *job = batches_job(b);
    const uint32_t jobs = b->quick ? 1 : BATCHES_JOBS;
    RU_TRY(ru_file_replace(ru_path_join(b->arena, b->dir, "batches.yaml"), job,
                           (int64_t)strlen(job), err));
    for (uint32_t k = 0; k < WORKERS; k += b->quick ? 2 : 1) {
        RU_TRY(measure(b, "batches.yaml", k + 1, BATCHES_MB, &grid[k], err));
        fastest = fmin(fastest, grid[k].seconds);
        fprintf(stderr, "%u workers: %.2f s, %.3g USD\n", k + 1, grid[k].seconds, grid[k].usd);
    }
    /* Between what the fastest and the cheapest take: where the cheapest keep the deadline nothing
     * costs less than they. */
    const double slowest = cheapest_of(grid, WORKERS, INFINITY).seconds;
    if (!(slowest > fastest)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "the cheapest number of workers is the fastest: no deadline needs more");
    }
    for (uint32_t j = 0; j < jobs; j++) {
        double deadline_s = fastest + (slowest - fastest) * (j + 1) / (jobs + 1);
        double least = cheapest(grid, WORKERS, deadline_s);
        const char *const words[] = {
            "-w",         ru_arena_printf(b->arena, "1:%d", WORKERS),
            "--memory",   ru_arena_printf(b->arena, "%d", BATCHES_MB),
            "--deadline", ru_arena_printf(b->arena, "%.0fms", deadline_s * 1e3),
            "--set",      ru_arena_printf(b->arena, "train.seed=%u", j + 1)};
        spent s;
        RU_TRY(train(b, "batches.yaml", words, RU_ARRAY_LEN(words), &s, err));
        fprintf(stderr, "job %u: deadline %.2f s, took %.2f s, %.3g USD, the cheapest %.3g USD\n",
                j + 1, deadline_s, s.seconds, s.usd, least);
        kept += s.seconds <= deadline_s ? 1 : 0;
        over[j] = s.usd / least;
    }
    const ru_bench_row rows[] = {
        {.name = ru_arena_printf(b->arena, RUI_BENCH_FLEET_BATCHES ", deadlines kept of %u", jobs),
         .unit = "jobs",
         .goal = jobs,
         .ours = ru_bench_stat_of(&kept, 1)},
        {.name = RUI_BENCH_FLEET_BATCHES ", money over the cheapest workers that are kept",
         .unit = "times",
         .lower = true,
         .goal = 1,
         .ours = ru_bench_stat_of(over, jobs)}};
    RU_TRY(ru_bench_add(b, &rows[0], err));
    return ru_bench_add(b, &rows[1], err);
}
