/* Rounds with masked updates beside plain ones: a server and its clients as processes on loopback,
 * a tenth of the clients killed in a round, both sides in turns. */
#include "bench/train/fleet.h"

#include <poll.h>
#include <signal.h>
#include <string.h>

#include "bench/train/fleet_rig.h"

enum { CLIENTS = 100, LOST = 10, ROUNDS = 4, TRIES = 60000 };

static const char job_text[] =
    "name: secure\n"
    "model: {zoo: mlp, hidden: [256]}\n"
    "data: {format: synthetic, generator: digits, count: 100, test_count: 100}\n"
    "train: {batch: 32, optimizer: {sgd: {lr: 0.05}}, threads: 1}\n"
    "federated: {rounds: 4, per_round: 90, clients_min: 90, tiers: 1, method: vanilla, epochs: "
    "2,\n"
    "            eval_every: 4, deadline: 120s}\n";

/* In round 3 clients are killed, when all have masks. */
static ru_status follow(rui_fleet *r, ru_err *err)
{
    uint32_t rounds = 0, lost = 0;
    double seconds;
    for (uint32_t k = 0; k < TRIES && rounds < 2; k++) {
        RU_TRY(rui_fleet_look(r, 0, &rounds, &seconds, err));
        (void)poll(NULL, 0, 10);
    }
    (void)poll(NULL, 0, (int)(200 * seconds / 2)); /* a fifth of a round */
    while (rounds >= 2 && lost < LOST) {
        ru_process_kill(r->client[lost++], SIGKILL);
    }
    return lost == LOST
               ? RU_OK
               : RU_FAIL(err, RU_E_USER, "the federation has %u rounds after 10 minutes", rounds);
}

static ru_status run(rui_fleet *r, bool secure, double *seconds, ru_err *err)
{
    uint32_t rounds = 0;
    const char *const set[] = {secure ? "federated.secure={threshold: 20, neighbours: 30}"
                                      : "federated.secure.threshold=0"};
    ru_status st = rui_fleet_serve(r, set, 1, err);
    for (uint32_t k = 0; k < CLIENTS && st == RU_OK; k++) {
        st = rui_fleet_join(r, k, NULL, err);
    }
    st = st == RU_OK ? follow(r, err) : st;
    st = st == RU_OK ? rui_fleet_wait(r, err) : st;
    rui_fleet_close(r);
    RU_TRY(st);
    RU_TRY(rui_fleet_look(r, 0, &rounds, seconds, err));
    *seconds /= rounds > 0 ? rounds : 1;
    return rounds == ROUNDS ? RU_OK
                            : RU_FAIL(err, RU_E_USER, "%u rounds of %d were kept", rounds, ROUNDS);
}

ru_status ru_bench_fleet_secure(ru_bench *b, ru_err *err)
{
    double s[2][RU_BENCH_ROUNDS_MAX];
    uint32_t turns = b->quick ? 2 : 5;
    rui_fleet r = {.b = b, .name = "secure"};
    RU_TRY(rui_fleet_open(&r, job_text, err));
    for (uint32_t k = 0; k < CLIENTS; k++) {
        const char *data = ru_arena_printf(b->arena,
                                           "data: {format: synthetic, generator: digits, count: "
                                           "400, test_count: 10, seed: %u}\n",
                                           k + 1);
        RU_TRY(rui_fleet_client(&r, k, data, err));
    }
    for (uint32_t k = 0; k < turns; k++) {
        for (uint32_t side = 0; side < 2; side++) {
            RU_TRY(run(&r, side == 0, &s[side][k], err));
        }
    }
    const ru_bench_row row = {.name = "round of 90 of 100 clients with masks, 10 killed",
                              .unit = "s",
                              .lower = true,
                              .goal = 1 / 1.5,
                              .peer = "without masks",
                              .ours = ru_bench_stat_of(s[0], turns),
                              .theirs = ru_bench_stat_of(s[1], turns)};
    return ru_bench_add(b, &row, err);
}
