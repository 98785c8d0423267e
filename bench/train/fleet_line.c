/* Rounds over one slow line, as our clients and those of Flower do them: a server behind 100
 * Mbit/s, twenty clients on another host. And simulated clients of both. */
#include "bench/train/fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/lab_run.h"
#include "bench/train/fleet_rig.h"
#include "env/file/file.h"

/* Values of a net of 784 inputs and 10 outputs: 45 and 9 MB. */
enum {
    CLIENTS = 20,
    HIDDEN = 14150,
    HIDDEN_QUICK = 2830,
    LINE_BYTES_PER_S = 12500000,
    PORT = 9571
};
enum { SIMULATED = 100000, SIMULATED_ROUNDS = 3, SIMULATED_ROUNDS_QUICK = 2 };

static const int64_t answer_ns = (int64_t)1800 * 1000000000;
static const char install[] = "python3 with flwr is not installed (pip install 'flwr[simulation]')";

static const char *peer_script(ru_bench *b)
{
    const char *scripts = ru_bench_scripts(b->arena);
    return ru_path_join(b->arena, scripts != NULL ? scripts : "", "fleet_peer.py");
}

/* The number behind `word` in the lines of a process. */
static ru_status hear(ru_process *p, const char *word, double *out, ru_err *err)
{
    const char *line = "", *at = NULL;
    while (at == NULL) {
        RU_TRY(ru_process_line(p, answer_ns, &line, err));
        if (line == NULL) {
            return RU_FAIL(err, RU_E_MISSING, "Flower's side ended; %s", install);
        }
        at = strncmp(line, word, strlen(word)) == 0 ? line + strlen(word) : NULL;
    }
    *out = strtod(at, NULL);
    return RU_OK;
}

/* -- ours -----------------------------------------------------------------------------------------
 */

static ru_status ours(ru_bench *b, const ru_lab_run *lab, int hidden, double *seconds, ru_err *err)
{
    const char *job = ru_arena_printf(
        b->arena,
        "name: line\nmodel: {zoo: mlp, hidden: [%d]}\n"
        "data: {format: synthetic, generator: digits, count: 20, test_count: 10}\n"
        "train: {batch: 20, optimizer: {sgd: {lr: 0.01}}, threads: 1}\n"
        "federated: {rounds: 1, per_round: %d, clients_min: %d, tiers: 1, method: vanilla,\n"
        "            profile_wait: 900s, deadline: 900s, eval_every: 1000}\n",
        hidden, CLIENTS, CLIENTS);
    const char *server_in[] = {lab->script, "in", lab->lab, "1", NULL};
    const char *client_in[] = {lab->script, "in", lab->lab, "2", NULL};
    rui_fleet r = {.b = b,
                   .name = "line",
                   .listen = ru_arena_printf(b->arena, "10.77.0.1:%d", PORT),
                   .server_in = server_in};
    uint32_t rounds;
    RU_TRY(rui_fleet_open(&r, job, err));
    for (uint32_t k = 0; k < CLIENTS; k++) {
        const char *data = ru_arena_printf(
            b->arena,
            "data: {format: synthetic, generator: digits, count: 20, test_count: 10, seed: %u}\n",
            k + 1);
        RU_TRY(rui_fleet_client(&r, k, data, err));
    }
    ru_status st = rui_fleet_serve(&r, NULL, 0, err);
    for (uint32_t k = 0; k < CLIENTS && st == RU_OK; k++) {
        st = rui_fleet_join(&r, k, client_in, err);
    }
    st = st == RU_OK ? rui_fleet_wait(&r, err) : st;
    rui_fleet_close(&r);
    RU_TRY(st);
    RU_TRY(rui_fleet_look(&r, 0, &rounds, seconds, err));
    return rounds == 1 ? RU_OK : RU_FAIL(err, RU_E_USER, "%u rounds of 1 were kept", rounds);
}

/* -- Flower over gRPC -----------------------------------------------------------------------------
 */

static ru_status certificate(const ru_lab_run *lab, ru_err *err)
{
    const char *argv[] = {"sh", "-c",
                          "cd \"$0\" && openssl req -x509 -newkey ec -pkeyopt "
                          "ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=10.77.0.1 -addext "
                          "subjectAltName=IP:10.77.0.1 -keyout server.key -out server.pem "
                          "2>/dev/null && cp server.pem ca.pem",
                          lab->dir, NULL};
    return ru_lab_run_command(lab, argv, NULL, err);
}

static ru_status flower(ru_bench *b, const ru_lab_run *lab, int64_t values, double *seconds,
                        ru_err *err)
{
    const char *address = ru_arena_printf(b->arena, "10.77.0.1:%d", PORT + 1);
    const char *server[] = {lab->script, "in",    lab->lab, "1",  "python3", peer_script(b),
                            "serve",     address, lab->dir, "20", "1",       NULL};
    const char *count = ru_arena_printf(b->arena, "%lld", (long long)values);
    const char *client[] = {lab->script, "in",    lab->lab, "2",   "python3", peer_script(b),
                            "join",      address, lab->dir, count, NULL};
    const ru_process_options so = {.argv = server, .pipe_out = true, .quiet = true};
    const ru_process_options co = {.argv = client, .pipe_out = true, .quiet = true};
    ru_process *s = NULL, *c[CLIENTS] = {NULL};
    RU_TRY(certificate(lab, err));
    ru_status st = ru_process_start(&so, &s, err);
    for (uint32_t k = 0; k < CLIENTS && st == RU_OK; k++) {
        st = ru_process_start(&co, &c[k], err);
    }
    st = st == RU_OK ? hear(s, "round ", seconds, err) : st;
    for (uint32_t k = 0; k < CLIENTS; k++) {
        ru_process_close(c[k]);
    }
    ru_process_close(s);
    return st;
}

ru_status rui_bench_fleet_line(ru_bench *b, ru_err *err)
{
    static const char *const up[] = {"--rate", "1gbit", "--burst", "64kb", NULL};
    const int hidden = b->quick ? HIDDEN_QUICK : HIDDEN;
    const int64_t values = 785 * (int64_t)hidden + 10 * ((int64_t)hidden + 1);
    double s[2], line = 2.0 * CLIENTS * (double)values * sizeof(float) / LINE_BYTES_PER_S;
    ru_lab_run lab;
    ru_err why = {0};
    RU_TRY(ru_lab_run_open(b, "line", false, &lab, err));
    ru_status st = ru_lab_run_up(&lab, 2, up, err);
    st = st == RU_OK ? ru_lab_run_rate(&lab, 1, "100mbit", err) : st;
    st = st == RU_OK ? ours(b, &lab, hidden, &s[0], err) : st;
    ru_status there = st == RU_OK ? flower(b, &lab, values, &s[1], &why) : st;
    ru_lab_run_down(&lab);
    RU_TRY(st);
    const char *name =
        ru_arena_printf(b->arena, "round of 20 clients over TLS, %.0f MB, 100 Mbit/s",
                        (double)values * sizeof(float) * 1e-6);
    const ru_bench_row bare = {.name = name,
                               .unit = "s",
                               .lower = true,
                               .goal = 1 / 1.1,
                               .peer = "bytes over line",
                               .ours = ru_bench_stat_of(&s[0], 1),
                               .theirs = ru_bench_stat_of(&line, 1)};
    const ru_bench_row beside = {
        .name = name,
        .unit = "s",
        .lower = true,
        .goal = 1.3,
        .peer = "Flower's gRPC",
        .missing = there == RU_OK ? NULL : ru_arena_str(b->arena, why.text),
        .ours = ru_bench_stat_of(&s[0], 1),
        .theirs = there == RU_OK ? ru_bench_stat_of(&s[1], 1) : (ru_bench_stat){0}};
    RU_TRY(ru_bench_add(b, &bare, err));
    return ru_bench_add(b, &beside, err);
}

/* -- simulated clients ----------------------------------------------------------------------------
 */

void rui_bench_fleet_flower(ru_bench *b, double *rounds_per_s, const char **missing)
{
    ru_err why = {0};
    const char *rounds =
        ru_arena_printf(b->arena, "%d", b->quick ? SIMULATED_ROUNDS_QUICK : SIMULATED_ROUNDS);
    const char *clients = ru_arena_printf(b->arena, "%d", SIMULATED);
    const char *argv[] = {"python3", peer_script(b), "simulate", clients,
                          "30",      rounds,         "100",      NULL};
    const ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    ru_process *p = NULL;
    ru_status st = ru_process_start(&opt, &p, &why);
    st = st == RU_OK ? hear(p, "rounds/s ", rounds_per_s, &why) : st;
    ru_process_close(p);
    *missing = st == RU_OK ? NULL : ru_arena_str(b->arena, why.text);
}
