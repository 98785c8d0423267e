/* Federated training in simulated time: what a choice costs among many clients, and rounds of tiers
 * beside those of any clients, with the same model, split and law. */
#include "bench/train/fleet.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"
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

ru_status rui_bench_fleet_simulate(ru_bench *b, const char *job, const char *const *more,
                                   uint32_t n, const char **lines, ru_err *err)
{
    enum { WORDS_MAX = 32 };
    const char *argv[WORDS_MAX] = {ru_bench_rubato(b->arena), "fed", "sim"};
    const char *run = ru_path_join(b->arena, b->dir, "fleet-run");
    uint32_t k = 3;
    RU_CHECK(n + 8 < WORDS_MAX);
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
    *lines = ru_path_join(b->arena, run, "federation.jsonl");
    return code == 0 ? RU_OK : RU_FAIL(err, RU_E_USER, "rubato fed sim ended with code %d", code);
}

/* One simulation with these settings, as `rubato fed sim` runs it. */
static ru_status simulate(ru_bench *b, const char *const *more, uint32_t n, figures *out,
                          ru_err *err)
{
    const char *job = ru_path_join(b->arena, b->dir, "fleet.yaml"), *lines;
    const char *path = ru_path_join(b->arena, b->dir, "fleet-run/simulation.json");
    RU_TRY(ru_file_replace(job, job_text, (int64_t)strlen(job_text), err));
    RU_TRY(rui_bench_fleet_simulate(b, job, more, n, &lines, err));
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
    double theirs = 0;
    const char *missing = NULL;
    rui_bench_fleet_flower(b, &theirs, &missing);
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
         .goal = 5,
         .peer = "flwr[simulation]",
         .missing = missing,
         .ours = ru_bench_stat_of(rate, rounds),
         .theirs = missing == NULL ? ru_bench_stat_of(&theirs, 1) : (ru_bench_stat){0}},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        RU_TRY(ru_bench_add(b, &rows[k], err));
    }
    return RU_OK;
}

/* Times of 50 clients of which ten each have 40, 20, 10, 5 and 1 % of a core, with a deviation of a
 * tenth: the setting of the published figures (chai-2020), whose classes are as 4 to 0.1 cores. */
static ru_status write_classes(const char *path, ru_err *err)
{
    enum { CLIENTS = 50, CLASSES = 5, TIMES = 64 };
    static const double part[CLASSES] = {0.4, 0.2, 0.1, 0.05, 0.01};
    ru_arena arena;
    ru_rng rng = ru_rng_from(1, ru_rng_label("classes"));
    ru_arena_init(&arena, 0);
    ru_text t = ru_text_arena(&arena);
    ru_text_put(&t, "client,seconds\n");
    for (uint32_t i = 0; i < CLIENTS * TIMES; i++) {
        uint32_t client = i / TIMES;
        ru_text_putf(&t, "%u,%.6f\n", client,
                     0.1 / part[client % CLASSES] * ru_math_exp(0.1 * ru_rng_normal(&rng)));
    }
    ru_status st = t.cut ? RU_FAIL(err, RU_E_MEM, "no memory for times of clients")
                         : ru_file_replace(path, t.p, t.n, err);
    ru_arena_fini(&arena);
    return st;
}

/* Rows of tiers beside any clients: n seeds, each of `classes` classes of digits for a client. */
static ru_status tiers(ru_bench *b, uint32_t classes, ru_err *err)
{
    static const char *const methods[] = {"federated.method=adaptive", "federated.method=vanilla"};
    double s[2][RU_BENCH_ROUNDS_MAX], lost[RU_BENCH_ROUNDS_MAX];
    uint32_t seeds = b->quick ? 3 : 10;
    const char *times = ru_path_join(b->arena, b->dir, "fleet-classes.csv");
    const char *split = ru_arena_printf(b->arena, "classes:%u", classes);
    RU_TRY(write_classes(times, err));
    for (uint32_t k = 0; k < seeds; k++) {
        const char *seed = ru_arena_printf(b->arena, "train.seed=%u", k + 1);
        for (uint32_t side = 0; side < 2; side++) {
            const char *const more[] = {
                "--clients",
                "50",
                "--latencies",
                times,
                "--split",
                split,
                "--set",
                methods[side],
                "--set",
                seed,
                "--set",
                "data={format: synthetic, generator: digits, count: 3823, test_count: 1797}",
                "--set",
                "train.batch=10",
                "--set",
                "federated.rounds=300",
                "--set",
                "federated.per_round=5",
                "--set",
                "federated.eval_every=100"};
            figures f;
            RU_TRY(simulate(b, more, RU_ARRAY_LEN(more), &f, err));
            s[side][k] = f.simulated_s;
            lost[k] = side == 0 ? -100 * f.accuracy : lost[k] + 100 * f.accuracy;
        }
    }
    const ru_bench_row rows[] = {
        {.name =
             ru_arena_printf(b->arena, "300 rounds of 5 of 50 clients, %u digits each", classes),
         .unit = "simulated s",
         .lower = true,
         .goal = 3,
         .peer = "any clients (vanilla)",
         .ours = ru_bench_stat_of(s[0], seeds),
         .theirs = ru_bench_stat_of(s[1], seeds)},
        {.name = ru_arena_printf(b->arena, "accuracy lost by it, %u digits each", classes),
         .unit = "points",
         .lower = true,
         .goal = 0.5,
         .ours = ru_bench_stat_of(lost, seeds)}};
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

/* Rows that this machine cannot measure are told, and the others follow, unless some rows alone are
 * asked for. */
static ru_status or_told(const ru_bench *b, const char *what, ru_status st, const ru_err *err)
{
    bool cannot = st == RU_E_MISSING || st == RU_E_PERM;
    if (!cannot || b->only[0] != '\0') {
        return st;
    }
    fprintf(stderr, "%s: not measured: %s\n", what, err->text);
    return RU_OK;
}

ru_status ru_bench_fleet(ru_bench *b, ru_err *err)
{
    RU_TRY(ru_bench_wants(b, "100,000 clients") ? many_clients(b, err) : RU_OK);
    for (uint32_t classes = 2; classes <= 5; classes += 3) {
        const char *name =
            ru_arena_printf(b->arena, "300 rounds of 5 of 50 clients, %u digits each", classes);
        const char *live =
            ru_arena_printf(b->arena, "50 client processes, %u digits each", classes);
        RU_TRY(ru_bench_wants(b, name) ? tiers(b, classes, err) : RU_OK);
        if (ru_bench_wants(b, live)) {
            RU_TRY(or_told(b, live, rui_bench_fleet_clients(b, classes, err), err));
        }
    }
    if (ru_bench_wants(b, RUI_BENCH_FLEET_STRUCK)) {
        RU_TRY(or_told(b, RUI_BENCH_FLEET_STRUCK, rui_bench_fleet_struck(b, err), err));
    }
    RU_TRY(ru_bench_wants(b, "points lost where 20 % of clients turn signs") ? signs(b, err)
                                                                             : RU_OK);
    RU_TRY(ru_bench_wants(b, "round of 90 of 100 clients with masks, 10 killed")
               ? ru_bench_fleet_secure(b, err)
               : RU_OK);
    RU_TRY(ru_bench_wants(b, "exchange of ResNet-50, 200 functions") ? rui_bench_fleet_many(b, err)
                                                                     : RU_OK);
    RU_TRY(ru_bench_wants(b, "deadlines kept, of jobs on functions")
               ? rui_bench_fleet_deadline(b, err)
               : RU_OK);
    RU_TRY(ru_bench_wants(b, RUI_BENCH_FLEET_BATCHES) ? rui_bench_fleet_batches(b, err) : RU_OK);
    const char *line = "round of 20 clients over TLS";
    RU_TRY(ru_bench_wants(b, line) ? or_told(b, line, rui_bench_fleet_line(b, err), err) : RU_OK);
    return or_told(b, "exchange through a store", rui_bench_exchange(b, err), err);
}
