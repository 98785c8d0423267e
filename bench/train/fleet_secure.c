/* Rounds with masked updates beside plain ones: a server and its clients as processes on loopback,
 * a tenth of the clients killed in a round, both sides in turns. */
#include "bench/train/fleet.h"

#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

#include "base/str.h"
#include "env/file/file.h"
#include "env/process/process.h"

enum { CLIENTS = 100, LOST = 10, ROUNDS = 4, TRIES = 60000 };

static const char job_text[] =
    "name: secure\n"
    "model: {zoo: mlp, hidden: [256]}\n"
    "data: {format: synthetic, generator: digits, count: 100, test_count: 100}\n"
    "train: {batch: 32, optimizer: {sgd: {lr: 0.05}}, threads: 1}\n"
    "federated: {rounds: 4, per_round: 90, clients_min: 90, tiers: 1, method: vanilla, epochs: "
    "2,\n"
    "            eval_every: 4, deadline: 120s}\n";

typedef struct rig {
    ru_bench *b;
    const char *run, *lines, *address;
    ru_process *client[CLIENTS];
} rig;

static ru_status start(const rig *r, const char *const *argv, ru_process **out, ru_err *err)
{
    (void)r;
    const ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    return ru_process_start(&opt, out, err);
}

static const char *in_dir(const rig *r, const char *name)
{
    return ru_path_join(r->b->arena, r->b->dir, name);
}

/* Its token and its samples, as files. */
static ru_status write_client(const rig *r, uint32_t k, ru_err *err)
{
    ru_arena *a = r->b->arena;
    const char *name = ru_arena_printf(a, "c%u", k), *line;
    const char *argv[] = {ru_bench_rubato(a),      "fed", "token", name, "--secret",
                          in_dir(r, "fed.secret"), NULL};
    const char *data = ru_arena_printf(
        a, "data: {format: synthetic, generator: digits, count: 400, test_count: 10, seed: %u}\n",
        k + 1);
    ru_process *p = NULL;
    RU_TRY(start(r, argv, &p, err));
    ru_status st = ru_process_line(p, 0, &line, err);
    if (st == RU_OK && line == NULL) {
        st = RU_FAIL(err, RU_E_USER, "rubato fed token printed nothing");
    }
    const char *token = ru_arena_printf(a, "c%u.token", k),
               *own = ru_arena_printf(a, "c%u.yaml", k);
    st = st == RU_OK ? ru_file_secret(in_dir(r, token), line, (int64_t)strlen(line), err) : st;
    ru_process_close(p);
    RU_TRY(st);
    return ru_file_replace(in_dir(r, own), data, (int64_t)strlen(data), err);
}

static ru_status start_client(rig *r, uint32_t k, ru_err *err)
{
    ru_arena *a = r->b->arena;
    const char *argv[] = {ru_bench_rubato(a),
                          "fed",
                          "join",
                          r->address,
                          "--token-file",
                          in_dir(r, ru_arena_printf(a, "c%u.token", k)),
                          "--data",
                          in_dir(r, ru_arena_printf(a, "c%u.yaml", k)),
                          "-t",
                          "1",
                          NULL};
    return start(r, argv, &r->client[k], err);
}

/* The rounds that are done, and their seconds together. */
static ru_status look(const rig *r, uint32_t *rounds, double *seconds, ru_err *err)
{
    char *text;
    int64_t n;
    ru_arena_mark mark = ru_arena_mark_get(r->b->arena);
    *rounds = 0;
    *seconds = 0;
    if (!ru_path_exists(r->lines)) {
        return RU_OK;
    }
    RU_TRY(ru_file_read(r->lines, 0, r->b->arena, &text, &n, err));
    for (const char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        json_t *o = json_loadb(at, (size_t)(end - at), 0, NULL);
        *seconds += json_number_value(json_object_get(o, "seconds"));
        *rounds += 1;
        json_decref(o);
    }
    ru_arena_rewind(r->b->arena, mark);
    return RU_OK;
}

/* In round 3 clients are killed, when all have masks. */
static ru_status follow(rig *r, ru_err *err)
{
    uint32_t rounds = 0, lost = 0;
    double seconds;
    for (uint32_t k = 0; k < TRIES && rounds < 2; k++) {
        RU_TRY(look(r, &rounds, &seconds, err));
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

/* Where the server listens: a port that was free. */
static ru_status find_address(rig *r, ru_process *server, ru_err *err)
{
    static const char said[] = "clients join at ";
    const char *line = "", *at = NULL;
    while (line != NULL && at == NULL) {
        RU_TRY(ru_process_line(server, 0, &line, err));
        at = line != NULL ? strstr(line, said) : NULL;
    }
    r->address = at != NULL ? ru_arena_str(r->b->arena, at + sizeof said - 1) : NULL;
    return r->address != NULL ? RU_OK : RU_FAIL(err, RU_E_USER, "rubato fed serve does not listen");
}

static ru_status run(rig *r, bool secure, double *seconds, ru_err *err)
{
    ru_process *server = NULL;
    uint32_t rounds = 0;
    const char *argv[] = {"sh",
                          "-c",
                          "exec \"$@\" 2>&1", /* it says there where it listens, and little else */
                          "sh",
                          ru_bench_rubato(r->b->arena),
                          "fed",
                          "serve",
                          in_dir(r, "secure.yaml"),
                          "--listen",
                          "127.0.0.1:0",
                          "--out",
                          r->run,
                          "--secret",
                          in_dir(r, "fed.secret"),
                          "--set",
                          secure ? "federated.secure={threshold: 20, neighbours: 30}"
                                 : "federated.secure.threshold=0",
                          NULL};
    if (ru_path_exists(r->run)) {
        RU_TRY(ru_path_remove(r->run, err));
    }
    RU_TRY(start(r, argv, &server, err));
    ru_status st = find_address(r, server, err);
    for (uint32_t k = 0; k < CLIENTS && st == RU_OK; k++) {
        st = start_client(r, k, err);
    }
    st = st == RU_OK ? follow(r, err) : st;
    int code = st == RU_OK ? ru_process_wait(server) : 0;
    if (code != 0) {
        st = RU_FAIL(err, RU_E_USER, "rubato fed serve ended with code %d", code);
    }
    for (uint32_t k = 0; k < CLIENTS; k++) {
        ru_process_close(r->client[k]);
        r->client[k] = NULL;
    }
    ru_process_close(server);
    RU_TRY(st);
    RU_TRY(look(r, &rounds, seconds, err));
    *seconds /= rounds > 0 ? rounds : 1;
    return rounds == ROUNDS ? RU_OK
                            : RU_FAIL(err, RU_E_USER, "%u rounds of %d were kept", rounds, ROUNDS);
}

ru_status ru_bench_fleet_secure(ru_bench *b, ru_err *err)
{
    double s[2][RU_BENCH_ROUNDS_MAX];
    uint32_t turns = b->quick ? 2 : 5;
    rig r = {.b = b};
    r.run = in_dir(&r, "secure-run");
    r.lines = ru_path_join(b->arena, r.run, "federation.jsonl");
    RU_TRY(ru_file_replace(in_dir(&r, "secure.yaml"), job_text, (int64_t)strlen(job_text), err));
    for (uint32_t k = 0; k < CLIENTS; k++) {
        RU_TRY(write_client(&r, k, err));
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
