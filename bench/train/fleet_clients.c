/* Fifty clients as processes, ten each with 40, 20, 10, 5 and 1 % of a core and at most five at
 * work, tiers beside any clients: time and accuracy, what `fed sim` says of the same clients with
 * the times that were measured, and what the formula says before. And tiers whose clients are
 * killed and become slower beside a server to which all of that is known from the begin.
 *
 * Source: chai-2020, whose clients need 84 ms of a core for a task: this machine's work is scaled,
 * and the factor printed. */
#include "bench/train/fleet.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"
#include "bench/train/fleet_rig.h"
#include "cost/round.h"
#include "env/file/file.h"
#include "env/process/group.h"
#include "env/process/self.h"

enum { CLIENTS = 50, SPEEDS = 5, PER_ROUND = 5, DIGITS = 10, ROUNDS = 100, ROUNDS_QUICK = 30 };
enum { KILLED = 5, SLOWER = 0 /* of the speeds */, STRUCK_TURNS = 3 };
enum { TASKS_MAX = ROUNDS * PER_ROUND, SIDES = 2, NAME_BYTES = 32, EACH_BYTES = NAME_BYTES + 16 };

static const uint32_t percent[SPEEDS] = {40, 20, 10, 5, 1};
static const char *const methods[SIDES] = {"adaptive", "vanilla"};
static const char groups[] = "rubato-bench-client-";

/* A task of a round, as the server saw it. */
typedef struct task {
    uint32_t client; /* its number there */
    uint32_t round;
    double seconds;
} task;

typedef struct side {
    double seconds, accuracy, simulated;
    task tasks[TASKS_MAX]; /* [n] answers that were averaged, by round */
    uint32_t n;
    double latency[CLIENTS];  /* of the server's number, mean of its tasks */
    double spread;            /* deviation of the logarithms of times of one client */
    uint32_t client[CLIENTS]; /* its number -> ours */
} side;

typedef struct rig {
    rui_fleet fleet;
    ru_arena *arena;
    uint32_t classes, rounds;
    bool struck; /* a speed is half of what it was */
    ru_group *group[CLIENTS];
    uint32_t owner[40000]; /* of each sample of train.csv */
    uint32_t samples;
    side sides[SIDES];
} rig;

static const char *path_of(const rig *r, const char *name)
{
    return rui_fleet_path(&r->fleet, name);
}

/* -- data -----------------------------------------------------------------------------------------
 */

static ru_status make_data(const rig *r, ru_err *err)
{
    const char *argv[] = {ru_bench_rubato(r->arena),
                          "data",
                          "make",
                          "gaussian",
                          "--out",
                          path_of(r, "fleet-digits"),
                          "--count",
                          "38230",
                          "--test",
                          "1797",
                          "--features",
                          "64",
                          "--classes",
                          "10",
                          "--noise",
                          "1.2",
                          NULL};
    const ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    ru_process *p = NULL;
    RU_TRY(ru_process_start(&opt, &p, err));
    const char *line = "";
    ru_status st = RU_OK;
    while (st == RU_OK && line != NULL) {
        st = ru_process_line(p, 0, &line, err);
    }
    int code = ru_process_wait(p);
    ru_process_close(p);
    return code == 0 ? st : RU_FAIL(err, RU_E_USER, "rubato data make ended with %d", code);
}

/* The classes of a client are spread over all; each class goes in turns to those that have it. */
static bool has(const uint32_t *start, uint32_t classes, uint32_t client, uint32_t class)
{
    for (uint32_t j = 0; j < classes; j++) {
        if ((start[client] + 3 * j) % DIGITS == class) {
            return true;
        }
    }
    return false;
}

static ru_status deal(rig *r, ru_err *err)
{
    char *text;
    int64_t size;
    uint32_t start[CLIENTS], turn[DIGITS] = {0};
    ru_rng rng = ru_rng_from(1, ru_rng_label("deal"));
    ru_text own[CLIENTS];
    RU_TRY(ru_file_read(path_of(r, "fleet-digits/train.csv"), 0, r->arena, &text, &size, err));
    ru_str rest = ru_str_n(text, size), line, head;
    (void)ru_str_next(&rest, '\n', &head);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        uint32_t k = ru_rng_below(&rng, i + 1);
        start[i] = start[k];
        start[k] = i % DIGITS;
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        own[i] = ru_text_arena(r->arena);
        ru_text_putf(&own[i], "%.*s\n", (int)head.n, head.p);
    }
    r->samples = 0;
    while (ru_str_next(&rest, '\n', &line) && r->samples < RU_ARRAY_LEN(r->owner)) {
        if (line.n < 2) {
            continue;
        }
        uint32_t class = (uint32_t)(line.p[line.n - 1] - '0'), to = turn[class];
        do {
            to = (to + 1) % CLIENTS;
        } while (!has(start, r->classes, to, class));
        turn[class] = to;
        r->owner[r->samples++] = to;
        ru_text_putf(&own[to], "%.*s\n", (int)line.n, line.p);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        const char *name = ru_arena_printf(r->arena, "clients-c%u.csv", i);
        const char *yaml = ru_arena_printf(
            r->arena, "data: {format: csv, train: [%s], test: [fleet-digits/test.csv]}\n", name);
        RU_TRY(own[i].cut ? RU_FAIL(err, RU_E_MEM, "no memory for samples")
                          : ru_file_replace(path_of(r, name), own[i].p, own[i].n, err));
        RU_TRY(rui_fleet_client(&r->fleet, i, yaml, err));
    }
    return RU_OK;
}

/* Paths begin in the folder of the file, which is the benchmark's. */
static const char *job_of(const rig *r)
{
    return ru_arena_printf(
        r->arena,
        "name: clients\nmodel: {zoo: mlp, hidden: [2048]}\n"
        "data: {format: csv, train: [fleet-digits/train.csv], test: [fleet-digits/test.csv]}\n"
        "train: {batch: 10, optimizer: {sgd: {lr: 0.02}}, threads: 1}\n"
        "federated: {rounds: %u, per_round: %d, clients_min: %d, clients_max: %d, at_once: 5,\n"
        "            epochs: 10, eval_every: 20, profile_wait: 60s}\n",
        r->rounds, PER_ROUND, CLIENTS, CLIENTS);
}

/* -- processes ------------------------------------------------------------------------------------
 */

static ru_group_limits limits_of(const rig *r, uint32_t k)
{
    bool slower = r->struck && k % SPEEDS == SLOWER;
    return (ru_group_limits){.cpu_quota_ns =
                                 percent[k % SPEEDS] * INT64_C(1000000) / (slower ? 2 : 1),
                             .cpu_period_ns = 100000000,
                             .alone = true};
}

static ru_status start_client(rig *r, uint32_t k, ru_err *err)
{
    ru_group **g = &r->group[k];
    const ru_group_limits limits = limits_of(r, k);
    const char *name = ru_arena_printf(r->arena, "%s%lld%02u", groups, (long long)ru_self_pid(), k);
    RU_TRY(ru_group_make(name, &limits, NULL, NULL, g, err));
    RU_TRY(rui_fleet_join(&r->fleet, k, NULL, err));
    return ru_group_enter(*g, ru_process_id(r->fleet.client[k]), err);
}

static void end_clients(rig *r)
{
    rui_fleet_close(&r->fleet);
    for (uint32_t k = 0; k < CLIENTS; k++) {
        ru_group **g = &r->group[k];
        if (*g != NULL) {
            if (ru_group_remove(*g, NULL) != RU_OK) {
                fprintf(stderr, "the control group of client %u stays: it is not empty\n", k);
            }
            ru_group_close(*g);
            *g = NULL;
        }
    }
}

/* Which of our clients has each number of the server: its last snapshot has names in their order.
 */
static ru_status numbers(const rig *r, side *s, ru_err *err)
{
    char *data;
    int64_t n;
    const char *path = ru_path_join(r->arena, r->fleet.run,
                                    ru_arena_printf(r->arena, "federation/%09u", r->rounds));
    RU_TRY(ru_file_read(path, 0, r->arena, &data, &n, err));
    if (n < 4 + CLIENTS * EACH_BYTES) {
        return RU_FAIL(err, RU_E_DATA, "%s has not all clients", path);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        s->client[i] = (uint32_t)strtoul(data + 4 + i * EACH_BYTES + 1, NULL, 10) % CLIENTS;
    }
    return RU_OK;
}

/* Times of clients, rounds and the last accuracy from the run's files. */
static ru_status read_run(const rig *r, side *s, ru_err *err)
{
    char *text;
    int64_t n;
    uint32_t rounds, number[CLIENTS];
    for (uint32_t i = 0; i < CLIENTS; i++) {
        number[s->client[i]] = i;
    }
    RU_TRY(rui_fleet_look(&r->fleet, 0, &rounds, &s->seconds, err));
    RU_TRY(ru_file_read(r->fleet.lines, 0, r->arena, &text, &n, err));
    for (const char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        json_t *o = json_loadb(at, (size_t)(end - at), 0, NULL), *c;
        const json_int_t at_round = json_integer_value(json_object_get(o, "round"));
        size_t k;
        json_array_foreach(json_object_get(o, "clients"), k, c)
        {
            const char *name = json_string_value(json_object_get(c, "name"));
            uint32_t i = name != NULL ? (uint32_t)strtoul(name + 1, NULL, 10) % CLIENTS : 0;
            if (s->n < TASKS_MAX) {
                s->tasks[s->n++] =
                    (task){number[i], (uint32_t)at_round,
                           fmax(json_number_value(json_object_get(c, "took")), 1e-6)};
            }
        }
        json_decref(o);
    }
    RU_TRY(ru_file_read(ru_path_join(r->arena, r->fleet.run, "metrics.jsonl"), 0, r->arena, &text,
                        &n, err));
    for (const char *at = text; (at = strstr(at, "\"metric\":{\"accuracy\":")) != NULL; at++) {
        s->accuracy = strtod(at + strlen("\"metric\":{\"accuracy\":"), NULL);
    }
    return RU_OK;
}

static ru_status run_side(rig *r, uint32_t which, ru_err *err)
{
    const char *const set[] = {ru_arena_printf(r->arena, "federated.method=%s", methods[which]),
                               which == 0 ? "federated.tiers=5" : "federated.tiers=1"};
    ru_status st = rui_fleet_serve(&r->fleet, set, 2, err);
    for (uint32_t k = 0; k < CLIENTS && st == RU_OK; k++) {
        st = start_client(r, k, err);
    }
    st = st == RU_OK ? rui_fleet_wait(&r->fleet, err) : st;
    end_clients(r);
    st = st == RU_OK ? numbers(r, &r->sides[which], err) : st;
    return st == RU_OK ? read_run(r, &r->sides[which], err) : st;
}

/* -- what others say ------------------------------------------------------------------------------
 */

/* Clients that a run did not see have the mean of their speed. */
static void fill(side *s)
{
    for (uint32_t speed = 0; speed < SPEEDS; speed++) {
        double sum = 0, n = 0;
        for (uint32_t i = 0; i < CLIENTS; i++) {
            bool seen = s->client[i] % SPEEDS == speed && s->latency[i] > 0;
            sum += seen ? s->latency[i] : 0;
            n += seen ? 1 : 0;
        }
        for (uint32_t i = 0; i < CLIENTS; i++) {
            if (s->client[i] % SPEEDS == speed && s->latency[i] <= 0) {
                s->latency[i] = n > 0 ? sum / n : 1;
            }
        }
    }
}

/* Means of clients, and how the times of one differ. */
static void learn(side *s)
{
    double n[CLIENTS] = {0}, sum[CLIENTS] = {0}, log_sum[CLIENTS] = {0}, squares = 0, degrees = 0;
    for (uint32_t k = 0; k < s->n; k++) {
        const task *t = &s->tasks[k];
        n[t->client]++;
        sum[t->client] += t->seconds;
        log_sum[t->client] += log(t->seconds);
    }
    for (uint32_t k = 0; k < s->n; k++) {
        const task *t = &s->tasks[k];
        double off = log(t->seconds) - log_sum[t->client] / n[t->client];
        squares += off * off;
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        s->latency[i] = n[i] > 0 ? sum[i] / n[i] : 0;
        degrees += n[i] > 1 ? n[i] - 1 : 0;
    }
    s->spread = degrees > 0 ? sqrt(squares / degrees) : 0;
    fill(s);
}

/* What a client takes by its other tasks; by those of other clients of its speed, if it had none.
 */
static double without(const side *s, const task *t)
{
    double own = 0, n = 0, like = 0, n_like = 0;
    for (uint32_t k = 0; k < s->n; k++) {
        const task *o = &s->tasks[k];
        bool same = o->client == t->client && o != t;
        bool alike = o->client != t->client &&
                     s->client[o->client] % SPEEDS == s->client[t->client] % SPEEDS;
        own += same ? o->seconds : 0;
        n += same ? 1 : 0;
        like += alike ? o->seconds : 0;
        n_like += alike ? 1 : 0;
    }
    return n > 0 ? own / n : n_like > 0 ? like / n_like : t->seconds;
}

/* What the formula says of the rounds that were drawn, each by what others show of its clients. */
static ru_status of_the_drawn(const rig *r, const side *s, double *seconds, ru_err *err)
{
    *seconds = 0;
    for (uint32_t k = 0; k < s->n;) {
        double latency[PER_ROUND], mean;
        uint32_t n = 0;
        for (; k + n < s->n && n < PER_ROUND && s->tasks[k + n].round == s->tasks[k].round; n++) {
            latency[n] = without(s, &s->tasks[k + n]);
        }
        const ru_round_in in = {
            .latency_s = latency, .n = n, .spread = s->spread, .drawn = n, .wait = n};
        RU_TRY(ru_round_mean(&in, r->arena, &mean, err));
        *seconds += mean;
        k += n;
    }
    return RU_OK;
}

/* Each client's tasks, in the order of its number there; one that was not seen has one. */
static ru_status write_times(const side *s, ru_arena *arena, const char *path, ru_err *err)
{
    ru_text times = ru_text_arena(arena);
    ru_text_put(&times, "client,seconds,round\n");
    for (uint32_t i = 0; i < CLIENTS; i++) {
        bool seen = false;
        for (uint32_t k = 0; k < s->n; k++) {
            const task *t = &s->tasks[k];
            if (t->client == i) {
                ru_text_putf(&times, "%u,%.6f,%u\n", i, t->seconds, t->round);
                seen = true;
            }
        }
        if (!seen) {
            ru_text_putf(&times, "%u,%.6f,1\n", i, s->latency[i]);
        }
    }
    return times.cut ? RU_FAIL(err, RU_E_MEM, "no memory for times of clients")
                     : ru_file_replace(path, times.p, times.n, err);
}

static ru_status simulate(const rig *r, uint32_t which, double *seconds, ru_err *err)
{
    const side *s = &r->sides[which];
    uint32_t number[CLIENTS];
    ru_text split = ru_text_arena(r->arena);
    const char *split_path = path_of(r, "clients.split"), *times_path = path_of(r, "clients.csv");
    for (uint32_t i = 0; i < CLIENTS; i++) {
        number[s->client[i]] = i;
    }
    for (uint32_t k = 0; k < r->samples; k++) {
        ru_text_putf(&split, "%u\n", number[r->owner[k]]);
    }
    RU_TRY(ru_file_replace(split_path, split.p, split.n, err));
    RU_TRY(write_times(s, r->arena, times_path, err));
    const char *const more[] = {
        "--clients",   "50",
        "--latencies", times_path,
        "--split",     ru_arena_printf(r->arena, "file:%s", split_path),
        "--set",       ru_arena_printf(r->arena, "federated.method=%s", methods[which]),
        "--set",       which == 0 ? "federated.tiers=5" : "federated.tiers=1"};
    const char *lines;
    RU_TRY(rui_bench_fleet_simulate(r->fleet.b, path_of(r, "clients.yaml"), more,
                                    RU_ARRAY_LEN(more), &lines, err));
    rui_fleet simulated = {.b = r->fleet.b, .lines = lines};
    uint32_t rounds;
    return rui_fleet_look(&simulated, 0, &rounds, seconds, err);
}

/* -- rows -----------------------------------------------------------------------------------------
 */

/* How far off are the simulation and the formula? */
static ru_status add_off(rig *r, const char *of, ru_err *err)
{
    static const struct {
        const char *before, *behind;
        double goal;
    } all[] = {{"fed sim is off, ", ", tiers", 5},
               {"fed sim is off, ", ", any clients", 5},
               {"estimate is off, ", ", the clients that were drawn", 3},
               {"estimate is off, ", ", any clients", 3}};
    const side *s = r->sides;
    double mean, drawn;
    const ru_round_in in = {.latency_s = s[1].latency,
                            .n = CLIENTS,
                            .spread = s[1].spread,
                            .drawn = PER_ROUND,
                            .wait = PER_ROUND};
    RU_TRY(of_the_drawn(r, &s[1], &drawn, err));
    RU_TRY(ru_round_mean(&in, r->arena, &mean, err));
    const double off[] = {s[0].simulated / s[0].seconds, s[1].simulated / s[1].seconds,
                          drawn / s[1].seconds, mean * r->rounds / s[1].seconds};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(off); k++) {
        double percent_off = 100 * fabs(off[k] - 1);
        const ru_bench_row row = {
            .name = ru_arena_printf(r->arena, "%s%s%s", all[k].before, of, all[k].behind),
            .unit = "%",
            .lower = true,
            .goal = all[k].goal,
            .ours = ru_bench_stat_of(&percent_off, 1)};
        RU_TRY(ru_bench_add(r->fleet.b, &row, err));
    }
    return RU_OK;
}

static ru_status rows(rig *r, ru_err *err)
{
    side *s = r->sides;
    ru_bench *b = r->fleet.b;
    double lost = 100 * (s[1].accuracy - s[0].accuracy), slow = 0;
    for (uint32_t k = 0; k < SIDES; k++) {
        learn(&s[k]);
        RU_TRY(simulate(r, k, &s[k].simulated, err));
    }
    for (uint32_t i = 0; i < CLIENTS; i++) { /* those with 1 % of a core */
        slow += s[1].client[i] % SPEEDS == SPEEDS - 1 ? s[1].latency[i] * SPEEDS / CLIENTS : 0;
    }
    fprintf(
        stderr,
        "a task takes %.1f ms of a core, published 84: work is scaled by %.3f; accuracy %.1f %%, "
        "of any clients %.1f %%; times of one client differ by %.1f %%\n",
        slow * 10, slow * 0.01 / 0.084, 100 * s[0].accuracy, 100 * s[1].accuracy,
        100 * s[1].spread);
    const char *of = ru_arena_printf(r->arena, "50 client processes, %u digits each", r->classes);
    const ru_bench_row all[] = {{.name = ru_arena_printf(r->arena, "%u rounds, %s", r->rounds, of),
                                 .unit = "s",
                                 .lower = true,
                                 .goal = 3,
                                 .peer = "any clients (vanilla)",
                                 .ours = ru_bench_stat_of(&s[0].seconds, 1),
                                 .theirs = ru_bench_stat_of(&s[1].seconds, 1)},
                                {.name = ru_arena_printf(r->arena, "accuracy lost by it, %s", of),
                                 .unit = "points",
                                 .lower = true,
                                 .goal = 0.5,
                                 .ours = ru_bench_stat_of(&lost, 1)}};
    RU_TRY(ru_bench_add(b, &all[0], err));
    RU_TRY(ru_bench_add(b, &all[1], err));
    return add_off(r, of, err);
}

/* -- clients that are killed, and clients that become slower --------------------------------------
 */

/* One client in ten dies; those of one speed get half as much of a core. */
static ru_status strike(rig *r, ru_err *err)
{
    r->struck = true;
    for (uint32_t k = 0; k < CLIENTS; k++) {
        const ru_group_limits limits = limits_of(r, k);
        if (k < KILLED) {
            ru_process_kill(r->fleet.client[k], SIGKILL);
        } else if (k % SPEEDS == SLOWER) {
            RU_TRY(ru_group_set(r->group[k], &limits, err));
        }
    }
    return RU_OK;
}

static ru_status until_round(const rig *r, uint32_t want, ru_err *err)
{
    const char *line = "";
    uint32_t rounds = 0;
    double seconds;
    while (rounds < want) {
        ru_status st = ru_process_line(r->fleet.server, INT64_C(50000000), &line, err);
        RU_TRY(st == RU_E_AGAIN ? RU_OK : st);
        if (st == RU_OK && line == NULL) {
            return RU_FAIL(err, RU_E_USER, "rubato fed serve ended before round %u", want);
        }
        RU_TRY(rui_fleet_look(&r->fleet, 0, &rounds, &seconds, err));
    }
    return RU_OK;
}

/* The last round has those who live, and nobody else. */
static ru_status check_there(const rig *r, ru_err *err)
{
    char *text;
    int64_t n, there = 0;
    RU_TRY(ru_file_read(r->fleet.lines, 0, r->arena, &text, &n, err));
    for (const char *at = text; (at = strstr(at, "\"there\":")) != NULL; at++) {
        there = strtoll(at + strlen("\"there\":"), NULL, 10);
    }
    return there == CLIENTS - KILLED
               ? RU_OK
               : RU_FAIL(err, RU_E_USER, "%lld clients were there at last, expected %d",
                         (long long)there, CLIENTS - KILLED);
}

/* The seconds of the rounds from the strike on; known: it was before the first one. */
static ru_status run_struck(rig *r, bool known, double *seconds, ru_err *err)
{
    uint32_t at = r->rounds / 3, rounds;
    const char *const set[] = {
        "federated.method=adaptive", "federated.tiers=5",
        ru_arena_printf(r->arena, "federated.clients_min=%d", known ? CLIENTS - KILLED : CLIENTS)};
    r->struck = known;
    ru_status st = rui_fleet_serve(&r->fleet, set, RU_ARRAY_LEN(set), err);
    for (uint32_t k = known ? KILLED : 0; k < CLIENTS && st == RU_OK; k++) {
        st = start_client(r, k, err);
    }
    st = st == RU_OK ? until_round(r, at, err) : st;
    st = st == RU_OK && !known ? strike(r, err) : st;
    st = st == RU_OK ? rui_fleet_wait(&r->fleet, err) : st;
    end_clients(r);
    st = st == RU_OK ? check_there(r, err) : st;
    return st == RU_OK ? rui_fleet_look(&r->fleet, at, &rounds, seconds, err) : st;
}

static ru_status new_rig(ru_bench *b, uint32_t classes, rig **out, ru_err *err)
{
    rig *r = RU_NEW(b->arena, rig, 1);
    if (r == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %d clients", CLIENTS);
    }
    *r = (rig){.fleet = {.b = b, .name = "clients"},
               .arena = b->arena,
               .classes = classes,
               .rounds = b->quick ? ROUNDS_QUICK : ROUNDS};
    *out = r;
    (void)ru_group_sweep(groups, NULL); /* of a benchmark that was killed */
    RU_TRY(rui_fleet_open(&r->fleet, job_of(r), err));
    RU_TRY(make_data(r, err));
    return deal(r, err);
}

ru_status rui_bench_fleet_struck(ru_bench *b, ru_err *err)
{
    rig *r;
    double s[SIDES][STRUCK_TURNS];
    uint32_t turns = b->quick ? 1 : STRUCK_TURNS;
    RU_TRY(new_rig(b, 2, &r, err));
    for (uint32_t k = 0; k < turns; k++) {
        RU_TRY(run_struck(r, false, &s[0][k], err));
        RU_TRY(run_struck(r, true, &s[1][k], err));
    }
    const ru_bench_row row = {.name =
                                  ru_arena_printf(b->arena, RUI_BENCH_FLEET_STRUCK ", %u rounds",
                                                  r->rounds - r->rounds / 3),
                              .unit = "s",
                              .lower = true,
                              .goal = 1 / 1.15,
                              .peer = "known from the begin (oracle)",
                              .ours = ru_bench_stat_of(s[0], turns),
                              .theirs = ru_bench_stat_of(s[1], turns)};
    return ru_bench_add(b, &row, err);
}

ru_status rui_bench_fleet_clients(ru_bench *b, uint32_t classes, ru_err *err)
{
    rig *r;
    RU_TRY(new_rig(b, classes, &r, err));
    for (uint32_t k = 0; k < SIDES; k++) {
        RU_TRY(run_side(r, k, err));
    }
    return rows(r, err);
}
