/* Federated training in simulated time: what a choice costs among many clients, and rounds of tiers
 * beside those of any clients, with the same model, split and law. */
#include "bench/train/fleet.h"

#include <jansson.h>
#include <string.h>

#include "bench/train/exchange.h"
#include "env/file/file.h"
#include "env/process/process.h"

typedef struct figures {
    double simulated_s, rounds_per_s, decision_ms, peak_mb, accuracy;
} figures;

static const char job_text[] =
    "name: fleet\n"
    "model: {zoo: mlp, hidden: [32]}\n"
    "data: {format: synthetic, generator: gaussian, count: 20000, test_count: 2000}\n"
    "train: {batch: 32, optimizer: {sgd: {lr: 0.05}}, threads: 1}\n"
    "federated: {rounds: 20, eval_every: 10, profiles: 1, at_once: 5000}\n";

/* One simulation with these settings, as `rubato fed sim` runs it. */
static ru_status simulate(ru_bench *b, const char *const *more, uint32_t n, figures *out,
                          ru_err *err)
{
    enum { WORDS_MAX = 32 };
    const char *argv[WORDS_MAX] = {ru_bench_rubato(b->arena), "fed", "sim"};
    const char *job = ru_path_join(b->arena, b->dir, "fleet.yaml");
    const char *run = ru_path_join(b->arena, b->dir, "fleet-run");
    const char *path = ru_path_join(b->arena, run, "simulation.json");
    uint32_t k = 3;
    RU_CHECK(n + 8 < WORDS_MAX);
    RU_TRY(ru_file_replace(job, job_text, (int64_t)strlen(job_text), err));
    if (ru_path_exists(run)) {
        RU_TRY(ru_path_remove(run, err));
    }
    argv[k++] = job;
    argv[k++] = "--out";
    argv[k++] = run;
    argv[k++] = "-q";
    for (uint32_t i = 0; i < n; i++) {
        argv[k++] = more[i];
    }
    ru_process *p = NULL;
    const ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    RU_TRY(ru_process_start(&opt, &p, err));
    int code = ru_process_wait(p);
    ru_process_close(p);
    if (code != 0) {
        return RU_FAIL(err, RU_E_USER, "rubato fed sim ended with code %d", code);
    }
    json_t *o = json_load_file(path, 0, NULL);
    if (o == NULL) {
        return RU_FAIL(err, RU_E_DATA, "%s is not there, or is no JSON", path);
    }
    *out = (figures){.simulated_s = json_number_value(json_object_get(o, "simulated_s")),
                     .rounds_per_s = json_number_value(json_object_get(o, "rounds_per_s")),
                     .decision_ms = json_number_value(json_object_get(o, "decision_ms")),
                     .peak_mb = json_number_value(json_object_get(o, "peak_bytes")) * 1e-6,
                     .accuracy = json_number_value(json_object_get(o, "accuracy"))};
    json_decref(o);
    return RU_OK;
}

static ru_status many_clients(ru_bench *b, ru_err *err)
{
    static const char *const more[] = {"--clients", "100000",
                                       "--samples", "30",
                                       "--set",     "federated.per_round=100",
                                       "--set",     "federated.clients_min=100000"};
    double ms[RU_BENCH_ROUNDS_MAX], mb[RU_BENCH_ROUNDS_MAX], rate[RU_BENCH_ROUNDS_MAX];
    uint32_t rounds = b->quick ? 2 : 5;
    for (uint32_t k = 0; k < rounds; k++) {
        figures f;
        RU_TRY(simulate(b, more, RU_ARRAY_LEN(more), &f, err));
        ms[k] = f.decision_ms;
        mb[k] = f.peak_mb;
        rate[k] = f.rounds_per_s;
    }
    const ru_bench_row rows[] = {
        {.name = "choice of a round, 100,000 clients",
         .unit = "ms",
         .lower = true,
         .goal = 50,
         .ours = ru_bench_stat_of(ms, rounds)},
        {.name = "memory, 100,000 clients",
         .unit = "MB",
         .lower = true,
         .goal = 2147,
         .ours = ru_bench_stat_of(mb, rounds)},
        {.name = "rounds of 100 of 100,000 clients",
         .unit = "rounds/s",
         .ours = ru_bench_stat_of(rate, rounds)},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        RU_TRY(ru_bench_add(b, &rows[k], err));
    }
    return RU_OK;
}

static ru_status tiers(ru_bench *b, ru_err *err)
{
    static const char *const methods[] = {"federated.method=adaptive", "federated.method=vanilla"};
    double s[2][RU_BENCH_ROUNDS_MAX], points[2][RU_BENCH_ROUNDS_MAX];
    uint32_t seeds = b->quick ? 3 : 10;
    for (uint32_t k = 0; k < seeds; k++) {
        const char *seed = ru_arena_printf(b->arena, "train.seed=%u", k + 1);
        for (uint32_t side = 0; side < 2; side++) {
            const char *const more[] = {"--clients", "50",
                                        "--spread",  "1",
                                        "--split",   "classes:2",
                                        "--set",     methods[side],
                                        "--set",     seed,
                                        "--set",     "federated.rounds=100",
                                        "--set",     "federated.per_round=5"};
            figures f;
            RU_TRY(simulate(b, more, RU_ARRAY_LEN(more), &f, err));
            s[side][k] = f.simulated_s;
            points[side][k] = f.accuracy * 100;
        }
    }
    const ru_bench_row rows[] = {
        {.name = "100 rounds of 5 of 50 clients",
         .unit = "simulated s",
         .lower = true,
         .goal = 3,
         .peer = "any clients (vanilla)",
         .ours = ru_bench_stat_of(s[0], seeds),
         .theirs = ru_bench_stat_of(s[1], seeds)},
        {.name = "accuracy after these rounds",
         .unit = "%",
         .goal = 0.995,
         .peer = "any clients (vanilla)",
         .ours = ru_bench_stat_of(points[0], seeds),
         .theirs = ru_bench_stat_of(points[1], seeds)},
    };
    RU_TRY(ru_bench_add(b, &rows[0], err));
    return ru_bench_add(b, &rows[1], err);
}

/* One in five clients sends its update with the other sign: points of accuracy that are lost. */
static ru_status signs(ru_bench *b, ru_err *err)
{
    static const char *const sums[] = {"federated.sum=median", "federated.sum=mean"};
    double lost[2][RU_BENCH_ROUNDS_MAX];
    uint32_t seeds = b->quick ? 3 : 10;
    for (uint32_t k = 0; k < seeds; k++) {
        const char *seed = ru_arena_printf(b->arena, "train.seed=%u", k + 1);
        double accuracy[3];
        for (uint32_t side = 0; side < 3; side++) { /* the last one: nobody turns, mean */
            const char *const more[] = {"--clients", "50",
                                        "--turned",  side < 2 ? "0.2" : "0",
                                        "--set",     sums[side < 2 ? side : 1],
                                        "--set",     seed,
                                        "--set",     "federated.method=vanilla",
                                        "--set",     "federated.tiers=1",
                                        "--set",     "federated.rounds=10",
                                        "--set",     "federated.per_round=25"};
            figures f;
            RU_TRY(simulate(b, more, RU_ARRAY_LEN(more), &f, err));
            accuracy[side] = f.accuracy * 100;
        }
        lost[0][k] = accuracy[2] - accuracy[0];
        lost[1][k] = accuracy[2] - accuracy[1];
    }
    const ru_bench_row row = {.name = "points lost where 20 % of clients turn signs, median",
                              .unit = "points",
                              .lower = true,
                              .goal = 2,
                              .ours = ru_bench_stat_of(lost[0], seeds)};
    const ru_bench_row mean = {.name = "points lost where 20 % of clients turn signs, mean",
                               .unit = "points",
                               .lower = true,
                               .ours = ru_bench_stat_of(lost[1], seeds)};
    RU_TRY(ru_bench_add(b, &row, err));
    return ru_bench_add(b, &mean, err);
}

ru_status ru_bench_fleet(ru_bench *b, ru_err *err)
{
    RU_TRY(ru_bench_wants(b, "100,000 clients") ? many_clients(b, err) : RU_OK);
    RU_TRY(ru_bench_wants(b, "100 rounds of 5 of 50 clients") ? tiers(b, err) : RU_OK);
    RU_TRY(ru_bench_wants(b, "points lost where 20 % of clients turn signs") ? signs(b, err)
                                                                             : RU_OK);
    RU_TRY(ru_bench_wants(b, "round of 16 of 20 clients with masks") ? ru_bench_fleet_secure(b, err)
                                                                     : RU_OK);
    return rui_bench_exchange(b, err);
}
