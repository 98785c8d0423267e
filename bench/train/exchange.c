/* Exchanges of gradients through a store in the network laboratory: workers behind 200 Mbit/s, the
 * store behind 800. In each round all exchanges, and the bare transfers that the prediction rests
 * on, run once, one behind the other. */
#include "bench/train/exchange.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/lab_run.h"
#include "bench/wire/collective.h"
#include "cost/function.h"
#include "env/process/process.h"
#include "fleet/exchange/shards.h"

enum { WORKERS = 8, SIDES = 4, ROUNDS = 3, ROUNDS_QUICK = 1, FLOATS = 2 << 20, PORT = 7741 };

static const int64_t answer_ns = (int64_t)120 * 1000000000;

/* What is asked for at eight workers: the others' time over ours. */
static const struct {
    const char *name;
    rui_exchange how;
    double goal;
} sides[SIDES] = {{"shards", RUI_EXCHANGE_SHARDS, 0},
                  {"Siren's pattern", RUI_EXCHANGE_ALL, 3},
                  {"LambdaML's ScatterReduce", RUI_EXCHANGE_SCATTER, 1.3},
                  {"Cirrus' server", RUI_EXCHANGE_SERVER, 1}};

typedef struct rig {
    ru_bench *b;
    ru_lab_run lab;
    const char *address; /* of the store */
    rui_team store, workers;
    int64_t step;
} rig;

static const char *row_name(const rig *r, uint32_t n)
{
    return ru_arena_printf(r->b->arena, "exchange of 8 MiB, %u workers", n);
}

/* -- processes -----------------------------------------------------------------------------------
 */

static ru_status start_one(rig *r, rui_team *team, uint32_t host, const char *role,
                           const char *address, uint32_t number, ru_err *err)
{
    ru_arena *a = r->b->arena;
    const char *const argv[] = {r->lab.script,
                                "in",
                                r->lab.lab,
                                rui_team_number(a, host),
                                r->lab.self,
                                "bench",
                                "--worker",
                                "net",
                                role,
                                address,
                                rui_team_number(a, number),
                                NULL};
    return rui_team_start_one(team, argv, err);
}

static ru_status start(rig *r, ru_err *err)
{
    const char *rest;
    r->address = ru_arena_printf(r->b->arena, "10.77.0.1:%d", PORT);
    RU_TRY(start_one(r, &r->store, 1, "exchange-store", r->address, WORKERS, err));
    RU_TRY(rui_team_ready(&r->store, 0, r->b->arena, &rest, err));
    for (uint32_t k = 0; k < WORKERS; k++) {
        RU_TRY(start_one(r, &r->workers, k + 2, "exchange-work", r->address, k, err));
    }
    for (uint32_t k = 0; k < WORKERS; k++) {
        RU_TRY(rui_team_ready(&r->workers, k, r->b->arena, &rest, err));
    }
    return RU_OK;
}

/* Seconds of the first n workers until the last one is done. */
static ru_status run(rig *r, rui_exchange how, uint32_t n, int64_t count, double *s, ru_err *err)
{
    char text[96];
    int bytes = snprintf(text, sizeof text, "%d %u %lld %lld\n", (int)how, n, (long long)count,
                         (long long)++r->step);
    *s = 0;
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(ru_process_write(r->workers.p[k], text, bytes, err));
    }
    for (uint32_t k = 0; k < n; k++) {
        const char *line;
        RU_TRY(ru_process_line(r->workers.p[k], answer_ns, &line, err));
        double took = line != NULL ? strtod(line, NULL) : 0;
        if (!(took > 0)) {
            return RU_FAIL(err, RU_E_PEER, "worker %u of an exchange ended", k);
        }
        *s = fmax(*s, took);
    }
    return RU_OK;
}

/* -- rows ----------------------------------------------------------------------------------------
 */

/* Bare transfers of one round: one number that a worker puts, a vector that one and that all
 * workers get. */
typedef struct bare {
    double small[RU_BENCH_ROUNDS_MAX], one[RU_BENCH_ROUNDS_MAX], all[RU_BENCH_ROUNDS_MAX];
} bare;

static ru_status transfers(rig *r, bare *t, uint32_t k, ru_err *err)
{
    double put; /* what is got in the step behind it */
    RU_TRY(run(r, RUI_EXCHANGE_LOAD, 1, 1, &t->small[k], err));
    RU_TRY(run(r, RUI_EXCHANGE_LOAD, 1, FLOATS, &put, err));
    RU_TRY(run(r, RUI_EXCHANGE_LINE, 1, FLOATS, &t->one[k], err));
    RU_TRY(run(r, RUI_EXCHANGE_LOAD, 1, FLOATS, &put, err));
    return run(r, RUI_EXCHANGE_LINE, WORKERS, FLOATS, &t->all[k], err);
}

static ru_function_net net_of(bare *t, uint32_t n, uint32_t rounds)
{
    const ru_shards s = ru_shards_of(FLOATS, n);
    double bytes = (double)FLOATS * sizeof(float);
    return (ru_function_net){.worker_bytes_per_s = bytes / ru_bench_stat_of(t->one, rounds).median,
                             .store_bytes_per_s =
                                 WORKERS * bytes / ru_bench_stat_of(t->all, rounds).median,
                             .latency_s = ru_bench_stat_of(t->small, rounds).median,
                             .blocks = s.blocks};
}

static ru_status rows(rig *r, uint32_t n, ru_err *err)
{
    double s[SIDES][RU_BENCH_ROUNDS_MAX], predicted;
    bare t;
    uint32_t rounds = r->b->quick ? ROUNDS_QUICK : ROUNDS;
    for (uint32_t k = 0; k < rounds; k++) {
        RU_TRY(transfers(r, &t, k, err));
        for (uint32_t side = 0; side < SIDES; side++) {
            RU_TRY(run(r, sides[side].how, n, FLOATS, &s[side][k], err));
        }
    }
    const ru_function_net net = net_of(&t, n, rounds);
    predicted = ru_function_sync_s(RU_SYNC_BLOCKS, &net, n, (double)FLOATS * sizeof(float));
    const ru_bench_stat ours = ru_bench_stat_of(s[0], rounds);
    fprintf(stderr, "links: worker %.2f MB/s, store %.2f MB/s, request %.2f ms\n",
            net.worker_bytes_per_s * 1e-6, net.store_bytes_per_s * 1e-6, net.latency_s * 1e3);
    const ru_bench_row as_predicted = {.name = row_name(r, n),
                                       .unit = "s",
                                       .lower = true,
                                       .goal = 0.9,
                                       .peer = "predicted",
                                       .ours = ours,
                                       .theirs = ru_bench_stat_of(&predicted, 1)};
    RU_TRY(ru_bench_add(r->b, &as_predicted, err));
    for (uint32_t side = 1; side < SIDES; side++) {
        const ru_bench_row row = {.name = row_name(r, n),
                                  .unit = "s",
                                  .lower = true,
                                  .goal = n == WORKERS ? sides[side].goal : 0,
                                  .peer = sides[side].name,
                                  .ours = ours,
                                  .theirs = ru_bench_stat_of(s[side], rounds)};
        RU_TRY(ru_bench_add(r->b, &row, err));
    }
    return RU_OK;
}

/* A store behind 800 Mbit/s and workers behind 200, for as long as the rows take. */
static ru_status measure(rig *r, const bool *wanted, ru_err *err)
{
    static const char *const up[] = {"--rate", "200mbit", "--burst", "64kb", NULL};
    ru_status st = ru_lab_run_up(&r->lab, WORKERS + 1, up, err);
    st = st == RU_OK ? ru_lab_run_rate(&r->lab, 1, "800mbit", err) : st;
    st = st == RU_OK ? start(r, err) : st;
    for (uint32_t n = 2; n <= WORKERS && st == RU_OK; n *= 2) {
        st = wanted[n] ? rows(r, n, err) : RU_OK;
    }
    rui_team_close(&r->workers);
    rui_team_close(&r->store);
    ru_lab_run_down(&r->lab);
    return st;
}

ru_status rui_bench_exchange(ru_bench *b, ru_err *err)
{
    rig r = {.b = b, .store = {.name = "the store"}, .workers = {.name = "workers"}};
    bool wanted[WORKERS + 1] = {false}, any = false;
    for (uint32_t n = 2; n <= WORKERS; n *= 2) {
        wanted[n] = ru_bench_wants(b, row_name(&r, n));
        any |= wanted[n];
    }
    if (!any) {
        return RU_OK;
    }
    RU_TRY(ru_lab_run_open(b, "exchange", false, &r.lab, err));
    return measure(&r, wanted, err);
}
