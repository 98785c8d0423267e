/* rubato bench net: latency of urgent messages behind bulk in the network laboratory, and speed on
 * loopback beside gRPC and iperf3. docs/measured/transport.md has the goals. */
#include "bench/wire/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/file/file.h"
#include "env/process/process.h"
#include "env/process/self.h"

enum { WORDS_MAX = 24, FIGURES_MAX = 4 };

static const char install_grpc[] = "apt-get install libgrpc++-dev g++";
static const char install_iperf3[] = "apt-get install iperf3";
static const int64_t patience_ns = (int64_t)120 * 1000000000;
/* The note measured at nice -10, which says nothing between sessions (autogroups): a role that is
 * not scheduled for 5 ms would be all that a p99 shows. */
static const char *const ahead[] = {"chrt", "-r", "1"};
static const double gbit = 119.5e6; /* bytes/s of payload in 1 Gbit/s of Ethernet frames */

typedef struct bench_net {
    ru_bench *b;
    const char *self, *lab_script;
    char lab[16];
    uint32_t rounds;
    double seconds; /* of one round */
    bool ahead;     /* roles on hosts of the laboratory run before all other work */
} bench_net;

/* ---- children ---- */

typedef struct words {
    const char *at[WORDS_MAX];
    uint32_t n;
} words;

static void add(words *w, const char *word)
{
    RU_CHECK(w->n + 1 < WORDS_MAX);
    w->at[w->n++] = word;
    w->at[w->n] = NULL;
}

/* Words that start a role on host k of the laboratory; k 0: here. */
static words role(const bench_net *t, uint32_t host, const char *kind)
{
    words w = {.n = 0};
    if (host > 0) {
        add(&w, t->lab_script);
        add(&w, "in");
        add(&w, t->lab);
        add(&w, ru_arena_printf(t->b->arena, "%u", host));
        for (uint32_t k = 0; t->ahead && k < RU_ARRAY_LEN(ahead); k++) {
            add(&w, ahead[k]);
        }
    }
    add(&w, t->self);
    add(&w, "bench");
    add(&w, "--worker");
    add(&w, "net");
    add(&w, kind);
    return w;
}

static const char *number(const bench_net *t, double x)
{
    return ru_arena_printf(t->b->arena, "%.9g", x);
}

/* Run to the end; its last line's first numbers. Errors: RU_E_USER when it fails. */
static ru_status ask(const words *w, double *figures, uint32_t n, ru_err *err)
{
    ru_process *p = NULL;
    ru_process_options opt = {.argv = w->at, .pipe_out = true, .pipe_in = true};
    const char *line = NULL;
    char last[512] = "";
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st;
    do {
        st = ru_process_line(p, patience_ns, &line, err);
        if (st == RU_OK && line != NULL) {
            snprintf(last, sizeof last, "%s", line);
        }
    } while (st == RU_OK && line != NULL);
    int code = st == RU_OK ? ru_process_wait(p) : 0;
    ru_process_close(p);
    RU_TRY(st);
    char *at = last;
    for (uint32_t k = 0; code == 0 && k < n; k++) {
        char *end;
        figures[k] = strtod(at, &end);
        code = end == at ? -1 : 0;
        at = end;
    }
    if (code != 0) {
        return RU_FAIL(err, RU_E_USER, "%s %s ended with code %d, last line '%.60s'", w->at[0],
                       w->n > 4 ? w->at[4] : "", code, last);
    }
    return RU_OK;
}

/* Start a server; its address is its first line. */
static ru_status serve(const words *w, ru_process **p, const char **address, ru_arena *arena,
                       ru_err *err)
{
    ru_process_options opt = {.argv = w->at, .pipe_in = true, .pipe_out = true};
    const char *line = NULL;
    RU_TRY(ru_process_start(&opt, p, err));
    RU_TRY(ru_process_line(*p, patience_ns, &line, err));
    if (line == NULL) {
        return RU_FAIL(err, RU_E_USER, "%s did not start", w->at[0]);
    }
    *address = ru_arena_str(arena, line);
    return RU_OK;
}

static ru_status run_quietly(const char *const *argv, bool quiet, ru_err *err)
{
    ru_process *p = NULL;
    ru_process_options opt = {.argv = argv, .pipe_out = quiet, .quiet = quiet};
    RU_TRY(ru_process_start(&opt, &p, err));
    int code = ru_process_wait(p);
    ru_process_close(p);
    return code == 0 ? RU_OK
                     : RU_FAIL(err, code == 77 ? RU_E_PERM : RU_E_USER, "%s %s ended with code %d",
                               argv[0], argv[1], code);
}

/* ---- rows ---- */

static ru_status row(bench_net *t, const char *name, const char *unit, bool lower, double *ours,
                     uint32_t n, double goal, ru_err *err)
{
    ru_bench_row r = {.name = name, .unit = unit, .lower = lower, .goal = goal};
    r.ours = ru_bench_stat_of(ours, n);
    return ru_bench_add(t->b, &r, err);
}

/* Rates of bulk: rounds in which fewer than two transfers ended say nothing (0) and are left out.
 */
static ru_status rate_row(bench_net *t, const char *name, double *rates, double goal, ru_err *err)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < t->rounds; k++) {
        if (rates[k] > 0) {
            rates[n++] = rates[k];
        }
    }
    if (n > 0) {
        return row(t, name, "MB/s", false, rates, n, goal, err);
    }
    fprintf(stderr, "%s: not measured: fewer than two transfers of 64 MiB ended within %.1f s\n",
            name, t->seconds);
    return RU_OK;
}

static const char *name_of(const bench_net *t, const char *what, const char *where)
{
    return ru_arena_printf(t->b->arena, "%s, %s", what, where);
}

/* ---- the laboratory ---- */

typedef struct form {
    const char *name, *at;
    bool bands;
} form;

static const form forms[] = {
    {"queue at the sender, bands", "sender", true},
    {"queue in a router, bands", "router", true},
    {"queue at the sender", "sender", false},
    {"queue in a router", "router", false},
};

static ru_status lab_up(bench_net *t, const form *f, const char *hosts, ru_err *err)
{
    char owner[16];
    snprintf(owner, sizeof owner, "%lld", (long long)ru_self_pid());
    const char *argv[] = {t->lab_script, "up",   t->lab,    hosts,     "--rate",
                          "1gbit",       "--at", f->at,     "--burst", "128kb",
                          "--latency",   "10ms", "--owner", owner,     f->bands ? "--bands" : NULL,
                          NULL};
    return run_quietly(argv, false, err);
}

static void lab_down(const bench_net *t)
{
    const char *argv[] = {t->lab_script, "down", t->lab, NULL};
    (void)!run_quietly(argv, true, NULL);
}

/* 1: 1 KiB behind 64 MiB. */
static ru_status lab_mixed(bench_net *t, const form *f, const char *address, ru_err *err)
{
    double p50[RU_BENCH_ROUNDS_MAX], p99[RU_BENCH_ROUNDS_MAX], goodput[RU_BENCH_ROUNDS_MAX];
    for (uint32_t k = 0; k < t->rounds; k++) {
        double figures[3];
        words w = role(t, 1, "mixed");
        add(&w, address);
        add(&w, number(t, t->seconds));
        RU_TRY(ask(&w, figures, 3, err));
        p50[k] = figures[0];
        p99[k] = figures[1];
        goodput[k] = figures[2] * 1e-6;
    }
    RU_TRY(row(t, name_of(t, "1 KiB behind 64 MiB: p50", f->name), "us", true, p50, t->rounds,
               f->bands ? 60 : 1000, err));
    RU_TRY(row(t, name_of(t, "1 KiB behind 64 MiB: p99", f->name), "us", true, p99, t->rounds,
               f->bands ? 500 : 6000, err));
    return rate_row(t, name_of(t, "  bulk meanwhile", f->name), goodput, f->bands ? 118 : 112, err);
}

/* 2: 4 MiB that overtake. */
static ru_status lab_preempt(bench_net *t, const form *f, const char *address, ru_err *err)
{
    double times[RU_BENCH_ROUNDS_MAX], wire[RU_BENCH_ROUNDS_MAX];
    for (uint32_t k = 0; k < t->rounds; k++) {
        double figures[3];
        words w = role(t, 1, "preempt");
        add(&w, address);
        add(&w, number(t, t->seconds));
        RU_TRY(ask(&w, figures, 3, err));
        times[k] = figures[1] / figures[0];
        wire[k] = figures[2];
    }
    RU_TRY(row(t, name_of(t, "4 MiB over 64 MiB: time over alone", f->name), "x", true, times,
               t->rounds, f->bands ? 1.05 : 1.12, err));
    return row(t, name_of(t, "  bytes on the wire over payload", f->name), "x", true, wire,
               t->rounds, 1.002, err);
}

/* 3: deadlines, ours and first come first served in turns. */
static ru_status lab_deadlines(bench_net *t, const form *f, const char *address, ru_err *err)
{
    double missed[2][RU_BENCH_ROUNDS_MAX], worst[RU_BENCH_ROUNDS_MAX];
    for (uint32_t k = 0; k < t->rounds; k++) {
        for (uint32_t fifo = 0; fifo < 2; fifo++) {
            double figures[3];
            words w = role(t, 1, "deadlines");
            add(&w, address);
            add(&w, number(t, t->seconds + 2));
            add(&w, number(t, 0.98 * gbit));
            add(&w, fifo != 0 ? "0" : "1");
            add(&w, number(t, k + 1));
            RU_TRY(ask(&w, figures, 3, err));
            missed[fifo][k] = 100 * figures[1] / figures[0];
            if (fifo == 0) {
                worst[k] = figures[2];
            }
        }
    }
    RU_TRY(row(t, name_of(t, "feasible deadlines missed", f->name), "%", true, missed[0], t->rounds,
               1, err));
    RU_TRY(row(t, name_of(t, "  first come, first served", f->name), "%", true, missed[1],
               t->rounds, 0, err));
    return row(t, name_of(t, "  background: worst over alone", f->name), "x", true, worst,
               t->rounds, 0, err);
}

/* 4: one sender, four receivers. */
static ru_status lab_spread(bench_net *t, const form *f, ru_err *err)
{
    ru_process *servers[4] = {NULL};
    const char *addresses[4];
    double late[RU_BENCH_ROUNDS_MAX], all[RU_BENCH_ROUNDS_MAX];
    ru_status st = lab_up(t, f, "5", err);
    for (uint32_t k = 0; st == RU_OK && k < 4; k++) {
        words w = role(t, k + 2, "serve");
        add(&w, "0.0.0.0:0");
        st = serve(&w, &servers[k], &addresses[k], t->b->arena, err);
    }
    for (uint32_t k = 0; st == RU_OK && k < t->rounds; k++) {
        double figures[4];
        words w = role(t, 1, "spread");
        add(&w, addresses[0]);
        add(&w, number(t, t->seconds));
        for (uint32_t i = 1; i < 4; i++) {
            add(&w, addresses[i]);
        }
        st = ask(&w, figures, 4, err);
        all[k] = figures[2] * 1e-6;
        /* 64 KiB alone take 0.55 ms. */
        late[k] = figures[1] * 1e-3 - 65536 / gbit * 1e3;
    }
    for (uint32_t k = 0; k < 4; k++) {
        ru_process_close(servers[k]);
    }
    lab_down(t);
    RU_TRY(st);
    RU_TRY(row(t, name_of(t, "4 receivers, 64 KiB urgent: p99 over alone", f->name), "ms", true,
               late, t->rounds, 1, err));
    return row(t, name_of(t, "  all bytes meanwhile", f->name), "MB/s", false, all, t->rounds, 0,
               err);
}

/* Encrypted, between hosts. */
static ru_status lab_tls(bench_net *t, const form *f, ru_err *err)
{
    ru_process *server = NULL;
    const char *address = NULL;
    double rates[RU_BENCH_ROUNDS_MAX];
    words w = role(t, 2, "serve");
    add(&w, "0.0.0.0:0");
    add(&w, "tls");
    ru_status st = serve(&w, &server, &address, t->b->arena, err);
    for (uint32_t k = 0; st == RU_OK && k < t->rounds; k++) {
        words c = role(t, 1, "tls");
        add(&c, address);
        add(&c, number(t, t->seconds));
        st = ask(&c, &rates[k], 1, err);
        rates[k] *= 1e-6;
    }
    ru_process_close(server);
    RU_TRY(st);
    return rate_row(t, name_of(t, "bulk with TLS 1.3", f->name), rates, 0, err);
}

/* The floor of 1: bare blocking sockets with the same marks, 1 KiB alone and beside bulk. */
static ru_status lab_bare(bench_net *t, const form *f, ru_err *err)
{
    ru_process *servers[2] = {NULL}, *bulk = NULL;
    const char *addresses[2];
    double p50[2][RU_BENCH_ROUNDS_MAX], p99[2][RU_BENCH_ROUNDS_MAX];
    ru_status st = RU_OK;
    for (uint32_t k = 0; st == RU_OK && k < 2; k++) {
        words w = role(t, 2, "bare-serve");
        add(&w, "0.0.0.0:0");
        st = serve(&w, &servers[k], &addresses[k], t->b->arena, err);
    }
    for (uint32_t k = 0; st == RU_OK && k < 2 * t->rounds; k++) {
        double figures[2];
        uint32_t beside = k % 2;
        words b = role(t, 1, "bare-bulk"), w = role(t, 1, "bare-stamp");
        add(&b, addresses[1]);
        add(&b, number(t, t->seconds + 0.4));
        ru_process_options opt = {.argv = b.at, .pipe_in = true, .pipe_out = true};
        st = beside != 0 ? ru_process_start(&opt, &bulk, err) : RU_OK;
        add(&w, addresses[0]);
        add(&w, "1024");
        add(&w, number(t, t->seconds));
        st = st == RU_OK ? ask(&w, figures, 2, err) : st;
        p50[beside][k / 2] = figures[0];
        p99[beside][k / 2] = figures[1];
        if (bulk != NULL) {
            (void)ru_process_wait(bulk);
            ru_process_close(bulk);
            bulk = NULL;
        }
    }
    ru_process_close(servers[0]);
    ru_process_close(servers[1]);
    RU_TRY(st);
    for (uint32_t k = 0; k < 2; k++) {
        const char *how = k == 0 ? "alone" : "beside bulk";
        const char *name = ru_arena_printf(t->b->arena, "  bare sockets, 1 KiB %s: p50", how);
        RU_TRY(row(t, name_of(t, name, f->name), "us", true, p50[k], t->rounds, 0, err));
        name = ru_arena_printf(t->b->arena, "  bare sockets, 1 KiB %s: p99", how);
        RU_TRY(row(t, name_of(t, name, f->name), "us", true, p99[k], t->rounds, 0, err));
    }
    return RU_OK;
}

static ru_status lab_form(bench_net *t, const form *f, ru_err *err)
{
    ru_process *server = NULL;
    const char *address = NULL;
    ru_status st = lab_up(t, f, "2", err);
    words w = role(t, 2, "serve");
    add(&w, "0.0.0.0:0");
    st = st == RU_OK ? serve(&w, &server, &address, t->b->arena, err) : st;
    if (ru_bench_wants(t->b, "mixed") || ru_bench_wants(t->b, "1 KiB behind")) {
        st = st == RU_OK ? lab_mixed(t, f, address, err) : st;
        st = st == RU_OK ? lab_bare(t, f, err) : st;
    }
    if (ru_bench_wants(t->b, "4 MiB over")) {
        st = st == RU_OK ? lab_preempt(t, f, address, err) : st;
    }
    if (ru_bench_wants(t->b, "deadlines") && f->bands) {
        st = st == RU_OK ? lab_deadlines(t, f, address, err) : st;
    }
    ru_process_close(server);
    if (ru_bench_wants(t->b, "bulk with TLS") && !f->bands) {
        st = st == RU_OK ? lab_tls(t, f, err) : st;
    }
    lab_down(t);
    return st;
}

static ru_status lab(bench_net *t, ru_err *err)
{
    const char *check[] = {t->lab_script, "check", NULL};
    const char *sweep[] = {t->lab_script, "sweep", NULL};
    if (!ru_path_exists(t->lab_script) || run_quietly(check, false, NULL) != RU_OK) {
        fprintf(stderr, "the network laboratory cannot run here: its rows are left out\n");
        return RU_OK;
    }
    (void)!run_quietly(sweep, true, NULL);
    const char *probe[] = {ahead[0], ahead[1], ahead[2], "true", NULL};
    t->ahead = run_quietly(probe, true, NULL) == RU_OK;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(forms); k++) {
        RU_TRY(lab_form(t, &forms[k], err));
    }
    if (ru_bench_wants(t->b, "4 receivers")) {
        RU_TRY(lab_spread(t, &forms[0], err));
        RU_TRY(lab_spread(t, &forms[2], err));
    }
    return RU_OK;
}

/* ---- loopback ---- */

/* Compile the peer when it is older than its source; NULL: it cannot be had. */
static const char *grpc_peer(bench_net *t, const char **missing)
{
    const char *scripts = ru_bench_scripts(t->b->arena);
    const char *program = ru_path_join(t->b->arena, t->b->dir, "net_grpc");
    *missing = install_grpc;
    if (scripts == NULL || program == NULL) {
        return NULL;
    }
    const char *command = ru_arena_printf(
        t->b->arena,
        "[ '%s' -nt '%s/net_grpc.cc' ] || { pkg-config --exists grpc++ && g++ -O2 -std=c++17 -o "
        "'%s' '%s/net_grpc.cc' $(pkg-config --cflags --libs grpc++) -lpthread; }",
        program, scripts, program, scripts);
    const char *argv[] = {"sh", "-c", command, NULL};
    return run_quietly(argv, true, NULL) == RU_OK ? program : NULL;
}

typedef struct echo_side {
    words serve;
    const char *client; /* program; NULL: a role of ours */
    const char *kind;   /* that role */
    const char *bytes;  /* of bare sockets */
    ru_process *server;
    const char *address;
    double rate[RU_BENCH_ROUNDS_MAX], p50[RU_BENCH_ROUNDS_MAX];
} echo_side;

static ru_status echo_round(bench_net *t, echo_side *s, uint32_t outstanding, uint32_t k,
                            ru_err *err)
{
    double figures[3];
    words w = {.n = 0};
    if (s->client == NULL) {
        w = role(t, 0, s->kind);
    } else {
        add(&w, s->client);
        add(&w, "echo");
    }
    add(&w, s->address);
    add(&w, s->bytes != NULL ? s->bytes : ru_arena_printf(t->b->arena, "%u", outstanding));
    add(&w, number(t, t->seconds / 2));
    RU_TRY(ask(&w, figures, 3, err));
    s->rate[k] = figures[0];
    s->p50[k] = figures[1];
    return RU_OK;
}

static ru_status echo_row(bench_net *t, echo_side *ours, echo_side *theirs, uint32_t outstanding,
                          const char *missing, ru_err *err)
{
    const char *name =
        ru_arena_printf(t->b->arena, "64 B request/reply, %u at a time", outstanding);
    ru_bench_row r = {
        .name = name, .unit = "1/s", .goal = 2, .peer = "gRPC, one channel", .missing = missing};
    r.ours = ru_bench_stat_of(ours->rate, t->rounds);
    r.theirs = missing == NULL ? ru_bench_stat_of(theirs->rate, t->rounds) : r.theirs;
    RU_TRY(ru_bench_add(t->b, &r, err));
    r.name = ru_arena_printf(t->b->arena, "  p50, %u at a time", outstanding);
    r.unit = "us";
    r.lower = true;
    r.ours = ru_bench_stat_of(ours->p50, t->rounds);
    r.theirs = missing == NULL ? ru_bench_stat_of(theirs->p50, t->rounds) : r.theirs;
    return ru_bench_add(t->b, &r, err);
}

static ru_status floor_row(bench_net *t, const char *name, echo_side *ours, echo_side *bare,
                           ru_err *err)
{
    ru_bench_row r = {.name = name, .unit = "us", .lower = true, .peer = "two blocking sockets"};
    r.ours = ru_bench_stat_of(ours->p50, t->rounds);
    r.theirs = ru_bench_stat_of(bare->p50, t->rounds);
    return ru_bench_add(t->b, &r, err);
}

/* Ours, gRPC and, one at a time, bare blocking sockets, which are what the machine takes. */
static ru_status echo_rows(bench_net *t, echo_side *sides, const char *missing, ru_err *err)
{
    static const uint32_t outstanding[] = {1, 64};
    echo_side *ours = &sides[0], *theirs = &sides[1], *bare = &sides[2], *polls = &sides[3];
    for (uint32_t i = 0; i < RU_ARRAY_LEN(outstanding); i++) {
        for (uint32_t k = 0; k < t->rounds; k++) {
            RU_TRY(echo_round(t, ours, outstanding[i], k, err));
            if (missing == NULL) {
                RU_TRY(echo_round(t, theirs, outstanding[i], k, err));
            }
            if (outstanding[i] == 1) {
                RU_TRY(echo_round(t, bare, 1, k, err));
                RU_TRY(echo_round(t, polls, 1, k, err));
            }
        }
        RU_TRY(echo_row(t, ours, theirs, outstanding[i], missing, err));
        if (outstanding[i] == 1) {
            RU_TRY(floor_row(t, "  p50, 1 at a time, over bare sockets", ours, bare, err));
            RU_TRY(
                floor_row(t, "  p50, 1 at a time, polling, over bare sockets", polls, bare, err));
        }
    }
    return RU_OK;
}

static ru_status loopback_echo(bench_net *t, ru_err *err)
{
    const char *missing = NULL;
    echo_side sides[4] = {{.serve = role(t, 0, "serve"), .kind = "echo"},
                          {.client = grpc_peer(t, &missing)},
                          {.serve = role(t, 0, "bare-serve"), .kind = "bare-echo", .bytes = "64"},
                          {.serve = role(t, 0, "serve"), .kind = "echo-poll"}};
    add(&sides[0].serve, "127.0.0.1:0");
    add(&sides[2].serve, "127.0.0.1:0");
    add(&sides[3].serve, "127.0.0.1:0");
    add(&sides[3].serve, "poll");
    if (sides[1].client != NULL) {
        missing = NULL;
        add(&sides[1].serve, sides[1].client);
        add(&sides[1].serve, "serve");
    }
    ru_status st = RU_OK;
    for (uint32_t k = 0; st == RU_OK && k < RU_ARRAY_LEN(sides); k++) {
        if (k != 1 || missing == NULL) {
            st = serve(&sides[k].serve, &sides[k].server, &sides[k].address, t->b->arena, err);
        }
    }
    st = st == RU_OK ? echo_rows(t, sides, missing, err) : st;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(sides); k++) {
        ru_process_close(sides[k].server);
    }
    return st;
}

static ru_status iperf3_round(bench_net *t, double *mb_per_s, ru_err *err)
{
    const char *command = ru_arena_printf(t->b->arena,
                                          "iperf3 -s -1 -p 5297 >/dev/null & sleep 0.2; "
                                          "iperf3 -c 127.0.0.1 -p 5297 -t %.9g -J | "
                                          "awk '/sum_received/ {f=1} f && /bits_per_second/ "
                                          "{gsub(/[^0-9.e+]/,\"\",$2); print $2/8e6; "
                                          "exit}'; wait",
                                          t->seconds);
    words w = {.n = 0};
    add(&w, "sh");
    add(&w, "-c");
    add(&w, command);
    return ask(&w, mb_per_s, 1, err);
}

static ru_status loopback_bulk(bench_net *t, ru_err *err)
{
    ru_process *server = NULL;
    const char *address = NULL;
    const char *probe[] = {"sh", "-c", "command -v iperf3", NULL};
    bool peer = run_quietly(probe, true, NULL) == RU_OK;
    double ours[RU_BENCH_ROUNDS_MAX], theirs[RU_BENCH_ROUNDS_MAX];
    words w = role(t, 0, "serve");
    add(&w, "127.0.0.1:0");
    ru_status st = serve(&w, &server, &address, t->b->arena, err);
    for (uint32_t k = 0; st == RU_OK && k < t->rounds; k++) {
        words c = role(t, 0, "bulk");
        add(&c, address);
        add(&c, number(t, t->seconds));
        st = ask(&c, &ours[k], 1, err);
        ours[k] *= 1e-6;
        st = st == RU_OK && peer ? iperf3_round(t, &theirs[k], err) : st;
    }
    ru_process_close(server);
    RU_TRY(st);
    ru_bench_row r = {.name = "bulk over loopback, one socket",
                      .unit = "MB/s",
                      .goal = 0.9,
                      .peer = "iperf3, one socket",
                      .missing = peer ? NULL : install_iperf3};
    r.ours = ru_bench_stat_of(ours, t->rounds);
    r.theirs = peer ? ru_bench_stat_of(theirs, t->rounds) : r.theirs;
    return ru_bench_add(t->b, &r, err);
}

ru_status ru_bench_net(ru_bench *b, ru_err *err)
{
    const char *scripts = ru_bench_scripts(b->arena);
    bench_net t = {.b = b, .self = ru_bench_rubato(b->arena)};
    t.lab_script = ru_path_join(b->arena, scripts != NULL ? scripts : ".", "../test/lab/net.sh");
    snprintf(t.lab, sizeof t.lab, "b%lld", (long long)ru_self_pid());
    t.rounds = b->quick ? 1 : 5;
    t.seconds = b->quick ? 1.5 : 3;
    if (ru_bench_wants(b, "64 B request/reply")) {
        RU_TRY(loopback_echo(&t, err));
    }
    if (ru_bench_wants(b, "bulk over loopback")) {
        RU_TRY(loopback_bulk(&t, err));
    }
    return lab(&t, err);
}
