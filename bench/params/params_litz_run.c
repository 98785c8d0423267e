/* The part of `rubato bench params --only litz` with real processes: whole jobs, all workers of
 * which are on this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "bench/params/params.h"
#include "data/make/make.h"
#include "env/file/file.h"
#include "env/process/process.h"

enum { MOVES_MIN = 20, LOG_MAX = 64 << 20, MODEL_MAX = 64 << 20, WORDS_MAX = 24 };

typedef struct jobs {
    ru_bench *b;
    const char *job, *log, *out, *model;
} jobs;

static ru_status child(const jobs *j, const char *const *words, ru_err *err)
{
    const char *argv[WORDS_MAX] = {"sh", "-c", "exec \"$0\" \"$@\" >\"$LOG\" 2>&1",
                                   ru_bench_rubato(j->b->arena)};
    const char *const set[] = {ru_arena_printf(j->b->arena, "LOG=%s", j->log), NULL};
    for (uint32_t k = 0; words[k] != NULL; k++) {
        RU_CHECK(k + 5 < WORDS_MAX);
        argv[4 + k] = words[k];
    }
    const ru_process_options po = {.argv = argv, .set = set};
    ru_process *p = NULL;
    RU_TRY(ru_process_start(&po, &p, err));
    int code = ru_process_wait(p);
    ru_process_close(p);
    return code == 0 ? RU_OK
                     : RU_FAIL(err, RU_E_PEER, "'rubato %s' ended with %d; its output is in %s",
                               words[0], code, j->log);
}

/* A job from its start on so many workers, with one setting more. */
static ru_status train(const jobs *j, const char *workers, const char *set, ru_err *err)
{
    const char *const words[] = {"train", j->job,  "-w", workers, "--out",
                                 j->out,  "--set", set,  NULL};
    ru_err ignored;
    if (ru_path_exists(j->out)) {
        (void)!ru_path_remove(j->out, &ignored);
    }
    return child(j, words, err);
}

/* -- the same bits -------------------------------------------------------------------------------
 */

static ru_status bits(const jobs *j, uint64_t *hash, ru_err *err)
{
    const char *const words[] = {"export", j->out, "--safetensors", j->model, NULL};
    char *bytes;
    int64_t n;
    RU_TRY(child(j, words, err));
    RU_TRY(ru_file_read(j->model, MODEL_MAX, j->b->arena, &bytes, &n, err));
    *hash = ru_hash_bytes(bytes, n, 0);
    return RU_OK;
}

/* Executors and shards that workers took over, as their logs say. */
static ru_status moves(const jobs *j, double *n, ru_err *err)
{
    static const char said[] = " executors and shards came";
    char *text;
    int64_t size;
    RU_TRY(ru_file_read(j->log, LOG_MAX, j->b->arena, &text, &size, err));
    *n = 0;
    for (const char *at = text; (at = strstr(at, said)) != NULL; at++) {
        const char *from = at;
        while (from > text && from[-1] >= '0' && from[-1] <= '9') {
            from--;
        }
        *n += strtod(from, NULL);
    }
    return RU_OK;
}

static ru_status same_bits(const jobs *j, ru_err *err)
{
    static const char *const workers[] = {"2", "4", "4"};
    static const char *const shuffles[] = {"clocks.shuffle=0s", "clocks.shuffle=0s",
                                           "clocks.shuffle=20ms"};
    uint64_t hash[RU_ARRAY_LEN(workers)];
    double n = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(workers); k++) {
        RU_TRY(train(j, workers[k], shuffles[k], err));
        if (k == 2) {
            RU_TRY(moves(j, &n, err));
        }
        RU_TRY(bits(j, &hash[k], err));
        if (hash[k] != hash[0]) {
            return RU_FAIL(err, RU_E_BUG, "%s workers with %s: the model has other bits",
                           workers[k], shuffles[k]);
        }
    }
    ru_bench_row row = {.name = "litz: moves among 4 workers with the bits of 2 and of 4",
                        .unit = "moves",
                        .goal = MOVES_MIN};
    row.ours = ru_bench_stat_of(&n, 1);
    return ru_bench_add(j->b, &row, err);
}

/* -- what it costs that things may move ----------------------------------------------------------
 */

static ru_status rate(const jobs *j, const char *set, double *per_s, ru_err *err)
{
    static const char key[] = "\"samples_per_s\":";
    char *text;
    const char *last = NULL;
    int64_t size;
    RU_TRY(train(j, "4", set, err));
    RU_TRY(ru_file_read(ru_path_join(j->b->arena, j->out, "metrics.jsonl"), LOG_MAX, j->b->arena,
                        &text, &size, err));
    for (const char *at = text; (at = strstr(at, key)) != NULL; at++) {
        last = at;
    }
    *per_s = last != NULL ? strtod(last + strlen(key), NULL) : 0;
    return *per_s > 0 ? RU_OK : RU_FAIL(err, RU_E_PEER, "%s: the job tells no rate", j->out);
}

static ru_status beside_static(const jobs *j, ru_err *err)
{
    static const char ours_set[] = "clocks.moves=balance", theirs_set[] = "clocks.moves=keep";
    uint32_t rounds = j->b->quick ? 5 : 9;
    double ours[RU_BENCH_ROUNDS_MAX], theirs[RU_BENCH_ROUNDS_MAX], warm;
    RU_TRY(rate(j, ours_set, &warm, err));
    for (uint32_t k = 0; k < rounds; k++) { /* in turns, each first as often */
        bool first = k % 2 == 0;
        RU_TRY(rate(j, first ? ours_set : theirs_set, first ? &ours[k] : &theirs[k], err));
        RU_TRY(rate(j, first ? theirs_set : ours_set, first ? &theirs[k] : &ours[k], err));
    }
    ru_bench_row row = {.name = "litz: 4 workers among which things may move",
                        .unit = "rows/s",
                        .peer = "nothing may move (clocks.moves: keep)",
                        .goal = 0.97};
    row.ours = ru_bench_stat_of(ours, rounds);
    row.theirs = ru_bench_stat_of(theirs, rounds);
    return ru_bench_add(j->b, &row, err);
}

ru_status rui_bench_litz_run(ru_bench *b, ru_err *err)
{
    ru_make_report report;
    const ru_make_options make = {
        .name = "digits", .dir = b->dir, .count = 6000, .test_count = -1, .seed = 4};
    const jobs j = {.b = b,
                    .job = ru_path_join(b->arena, b->dir, "litz.yaml"),
                    .log = ru_path_join(b->arena, b->dir, "litz.log"),
                    .out = ru_path_join(b->arena, b->dir, "litz.run"),
                    .model = ru_path_join(b->arena, b->dir, "litz.safetensors")};
    RU_TRY(ru_data_make(&make, &report, err));
    const char *yaml = ru_arena_printf(b->arena,
                                       "app: mlr\n"
                                       "data: {format: idx, train: [train-images, train-labels]}\n"
                                       "clocks: {executors: 32}\n"
                                       "train: {steps: %d, seed: 5, threads: 1}\n"
                                       "mlr: {batch: 1000000, lr: 0.1}\n"
                                       "checkpoint: {every: 0s}\n",
                                       b->quick ? 50 : 300);
    if (j.job == NULL || j.log == NULL || j.out == NULL || j.model == NULL || yaml == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a job");
    }
    RU_TRY(ru_file_replace(j.job, yaml, (int64_t)strlen(yaml), err));
    RU_TRY(same_bits(&j, err));
    return beside_static(&j, err);
}
