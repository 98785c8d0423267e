/* The collectives benchmark in the network laboratory: one host a rank, links of 1 Gbit/s both
 * ways. Every algorithm is measured alone, a fit of short probes chooses as a training would, and
 * the choice is measured beside the best, beside gloo and Open MPI, in turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/wire/collective.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "plan/net/coll.h"

enum {
    ROUNDS = 10,
    ROUNDS_QUICK = 6,
    ROUNDS_LARGE = 4,
    SIZES = 8,
    STATICS = 7,
    PEERS = 2,
    PORT = 7501,
    PROBES = 7,
    PROBES_STAR = 5,
    PROBE_TURNS = 4,
    FLOOR_BYTES = 64 << 10, /* above it a star is bounded by its root's link */
};

static const int64_t sizes[SIZES] = {1 << 10, 8 << 10, 64 << 10, 256 << 10,
                                     1 << 20, 4 << 20, 16 << 20, 64 << 20};
static const ru_coll_algo statics[STATICS] = {
    RU_ALGO_RING,        RU_ALGO_HALVING, RU_ALGO_DOUBLING, RU_ALGO_TREE,
    RU_ALGO_DOUBLE_TREE, RU_ALGO_DIRECT,  RU_ALGO_HIERARCHY /* all on one: a star */};

/* Goodput of a link of 1 Gbit/s is 119 MB/s. */
static const double bus_goal = 117, small_goal_us = 150;

static const char *const peer_rows[PEERS] = {" gloo", " Open MPI"};
static const char bare_row[] = " over bare sockets";

typedef struct lab {
    ru_bench *b;
    const char *script;
    uint32_t n;
    int64_t most; /* the largest size that a wanted row has; 0: no row is wanted */
    bool wants_bare, wants_peer[PEERS];
    rui_team ours, bare, peer[PEERS]; /* gloo, Open MPI */
    ru_coll_cost costs[RU_COLL_ALGOS];
} lab;

static const char *row_name(const lab *l, int64_t bytes, const char *what)
{
    return ru_arena_printf(l->b->arena, "1 Gbit/s %u ranks %s%s", l->n,
                           rui_team_size(l->b->arena, bytes), what);
}

static bool wants(const lab *l, int64_t bytes, const char *what)
{
    return ru_bench_wants(l->b, row_name(l, bytes, what));
}

static const char *choice_row_name(const lab *l, int64_t bytes, const char *algo)
{
    return row_name(l, bytes, ru_arena_printf(l->b->arena, " %s, best", algo));
}

/* Is a row of this size wanted? Whom its choice will name is not known before the probes. */
static bool wants_size(lab *l, int64_t bytes)
{
    bool any = wants(l, bytes, ""), bare = bytes <= FLOOR_BYTES && wants(l, bytes, bare_row);
    for (uint32_t k = 0; k < STATICS; k++) {
        any |= ru_bench_wants(l->b, choice_row_name(l, bytes, ru_coll_algo_name(statics[k])));
    }
    for (uint32_t p = 0; p < PEERS; p++) {
        bool peer = wants(l, bytes, peer_rows[p]);
        l->wants_peer[p] |= peer;
        any |= peer;
    }
    l->wants_bare |= bare;
    return any || bare;
}

static ru_status run_script(const lab *l, const char *what, const char *arg, ru_err *err)
{
    bool check = strcmp(what, "check") == 0; /* names of controllers would follow */
    const char *argv[] = {
        l->script, what, check ? NULL : "rucoll", arg, arg != NULL ? "--rate" : NULL,
        "1gbit",   NULL};
    ru_process *p;
    ru_process_options opt = {.argv = argv, .quiet = true};
    RU_TRY(ru_process_start(&opt, &p, err));
    int code = ru_process_wait(p);
    ru_process_close(p);
    return code == 0 ? RU_OK
                     : RU_FAIL(err, RU_E_PEER, "%s %s ended with %d", l->script, what, code);
}

static ru_status all_ready(lab *l, rui_team *t, ru_err *err)
{
    for (uint32_t r = 0; r < l->n; r++) {
        RU_TRY(rui_team_ready(t, r, l->b->arena, &t->detail, err));
    }
    return RU_OK;
}

/* This program once a host, as `what`, for up to `most` bytes. */
static ru_status start_own(lab *l, rui_team *t, const char *what, int64_t most,
                           const char *const *addresses, uint32_t n, ru_err *err)
{
    ru_arena *a = l->b->arena;
    for (uint32_t r = 0; r < l->n; r++) {
        const char *argv[32] = {l->script,
                                "in",
                                "rucoll",
                                rui_team_number(a, r + 1),
                                ru_bench_rubato(a),
                                "bench",
                                "--worker",
                                "collective",
                                what,
                                rui_team_number(a, r),
                                rui_team_number(a, l->n),
                                rui_team_number(a, most)};
        memcpy(argv + 12, addresses, n * sizeof *argv);
        RU_TRY(rui_team_start_one(t, argv, err));
    }
    return all_ready(l, t, err);
}

static ru_status start_ours(lab *l, ru_err *err)
{
    const char *hosts[RUI_TEAM_MAX];
    l->ours = (rui_team){.name = "rubato"};
    for (uint32_t q = 0; q < l->n; q++) {
        hosts[q] = ru_arena_printf(l->b->arena, "10.77.0.%u:%d", q + 1, PORT);
    }
    int64_t probed = sizes[PROBES - 1];
    return start_own(l, &l->ours, "net", l->most > probed ? l->most : probed, hosts, l->n, err);
}

/* Bare blocking sockets in a star: what the machine takes. */
static ru_status start_bare(lab *l, ru_err *err)
{
    const char *first = ru_arena_printf(l->b->arena, "10.77.0.1:%d", PORT + 1);
    l->bare = (rui_team){.name = "bare star"};
    return start_own(l, &l->bare, "bare", FLOOR_BYTES, &first, 1, err);
}

static ru_status start_gloo(lab *l, rui_team *t, ru_err *err)
{
    *t = (rui_team){.name = "gloo", .detail = "gloo"};
    ru_arena *a = l->b->arena;
    for (uint32_t r = 0; r < l->n; r++) {
        const char *argv[] = {l->script,
                              "in",
                              "rucoll",
                              rui_team_number(a, r + 1),
                              "env",
                              "GLOO_SOCKET_IFNAME=eth0",
                              "python3",
                              ru_arena_printf(a, "%s/coll_gloo.py", ru_bench_scripts(a)),
                              rui_team_number(a, r),
                              rui_team_number(a, l->n),
                              "tcp://10.77.0.1:7500",
                              rui_team_number(a, l->most),
                              NULL};
        RU_TRY(rui_team_start_one(t, argv, err));
    }
    return all_ready(l, t, err);
}

/* One mpirun on the first host, its daemons on the others. */
static ru_status start_mpi(lab *l, rui_team *t, ru_err *err)
{
    *t = (rui_team){.name = "Open MPI", .detail = "Open MPI"};
    ru_arena *a = l->b->arena;
    const char *program, *hosts = "10.77.0.1";
    RU_TRY(rui_bench_coll_mpi(l->b, &program, err));
    for (uint32_t q = 2; q <= l->n; q++) {
        hosts = ru_arena_printf(a, "%s,10.77.0.%u", hosts, q);
    }
    const char *line = ru_arena_printf(
        a,
        "hostname lab1 && exec mpirun --bind-to none --oversubscribe --host %s -np %u "
        "--mca plm_rsh_agent %s/lab_host.sh --mca plm_rsh_no_tree_spawn 1 "
        "--mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl tcp,self "
        "--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 "
        "--mca btl_base_warn_component_unused 0 $p $d %lld",
        hosts, l->n, ru_bench_scripts(a), (long long)l->most);
    line = ru_arena_printf(a, "p=$(realpath %s); d=$(realpath %s); %s", program, l->b->dir, line);
    const char *argv[] = {"env",
                          ru_arena_printf(a, "LAB_NET=%s", l->script),
                          "LAB_NAME=rucoll",
                          l->script,
                          "in",
                          "rucoll",
                          "1",
                          "unshare",
                          "--uts",
                          "sh",
                          "-c",
                          line,
                          NULL};
    RU_TRY(rui_team_start_one(t, argv, err));
    return rui_team_ready(t, 0, a, &t->detail, err);
}

static int64_t times_for(double per_op_s, double seconds)
{
    double n = seconds / per_op_s;
    return n < 1 ? 1 : n > 20000 ? 20000 : (int64_t)n;
}

/* Those that send whole buffers to one rank or from each to each take seconds for 16 MiB and are
 * nobody's choice there: they are probed up to 1 MiB. */
static uint32_t probes_of(ru_coll_algo algo)
{
    bool whole = algo == RU_ALGO_HIERARCHY || algo == RU_ALGO_DIRECT || algo == RU_ALGO_DOUBLING;
    return whole ? PROBES_STAR : PROBES;
}

/* Probes of every algorithm in turns, the best of each, and the fit. Several operations at a time:
 * congestion control needs some to find its rate. */
static ru_status probe(lab *l, ru_err *err)
{
    ru_coll_point points[STATICS][PROBES];
    for (uint32_t i = 0; i < PROBE_TURNS * PROBES * STATICS; i++) {
        uint32_t k = i % STATICS, s = i / STATICS % PROBES;
        if (s >= probes_of(statics[k])) {
            continue;
        }
        const char *extra = ru_arena_printf(l->b->arena, " %s", ru_coll_algo_name(statics[k]));
        int64_t times = (4 << 20) / sizes[s];
        times = times < 2 ? 2 : times > 30 ? 30 : times;
        double took;
        RU_TRY(rui_team_run(&l->ours, sizes[s], times, extra, &took, err));
        ru_coll_point *p = &points[k][s];
        int64_t ns = (int64_t)(took * 1e9);
        bool better = i < PROBES * STATICS || ns < p->ns;
        *p = better ? (ru_coll_point){sizes[s], ns} : *p;
    }
    for (uint32_t k = 0; k < STATICS; k++) {
        RU_TRY(ru_cost_coll_fit(RU_COLL_ALL_REDUCE, statics[k], l->n, points[k],
                                probes_of(statics[k]), &l->costs[statics[k]], err));
    }
    return RU_OK;
}

typedef struct variant {
    const char *name, *extra;
    rui_team *team;
    double first_s, took[ROUNDS];
} variant;

/* Fewer where one operation takes a good part of a second. */
static uint32_t rounds_of(const lab *l, int64_t bytes)
{
    return bytes >= 16 << 20 ? ROUNDS_LARGE : l->b->quick ? ROUNDS_QUICK : ROUNDS;
}

/* Each round begins with another variant: whoever follows the peer finds cold caches and idle
 * connections. */
static ru_status measure(lab *l, variant *v, uint32_t n, int64_t bytes, ru_err *err)
{
    uint32_t rounds = rounds_of(l, bytes);
    double seconds = l->b->quick ? 0.1 : 0.2;
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(rui_team_run(v[k].team, bytes, 2, v[k].extra, &v[k].first_s, err));
        RU_TRY(rui_team_run(v[k].team, bytes, times_for(v[k].first_s, seconds / 4), v[k].extra,
                            &v[k].first_s, err));
    }
    for (uint32_t r = 0; r < rounds; r++) {
        for (uint32_t k = 0; k < n; k++) {
            variant *x = &v[(k + r) % n];
            RU_TRY(rui_team_run(x->team, bytes, times_for(x->first_s, seconds), x->extra,
                                &x->took[r], err));
        }
    }
    return RU_OK;
}

/* Of every round, or (step 2) of every other one from `first` on. */
static ru_bench_stat stat_part(const lab *l, const variant *v, int64_t bytes, uint32_t first,
                               uint32_t step)
{
    uint32_t n = 0;
    double out[ROUNDS], moved = 2.0 * (l->n - 1) / l->n * (double)bytes * 1e-6;
    for (uint32_t r = first; r < rounds_of(l, bytes); r += step) {
        out[n++] = bytes >= 1 << 20 ? moved / v->took[r] : v->took[r] * 1e6;
    }
    return ru_bench_stat_of(out, n);
}

static ru_bench_stat stat_of(const lab *l, const variant *v, int64_t bytes)
{
    return stat_part(l, v, bytes, 0, 1);
}

/* The choice beside the best. Who is best of seven is found in every other round and measured in
 * those between: the best of seven noisy medians looks better than it is. */
static ru_status choice_row(const lab *l, const variant *v, const ru_coll_choice *c, int64_t bytes,
                            ru_err *err)
{
    bool large = bytes >= 1 << 20;
    uint32_t best = 0;
    double most = 0;
    for (uint32_t k = 0; k < STATICS; k++) {
        double x = stat_part(l, &v[1 + k], bytes, 0, 2).median;
        double speed = large ? x : 1 / x;
        best = speed > most ? k : best;
        most = speed > most ? speed : most;
    }
    /* Whole in one lane, the choice is what the static one of its name is. */
    bool itself = statics[best] == c->algo && (c->chunk_bytes == 0 || c->chunk_bytes >= bytes);
    ru_bench_row x = {.name = choice_row_name(l, bytes, v[0].name),
                      .unit = large ? "MB/s" : "us",
                      .lower = !large,
                      .ours = stat_part(l, &v[itself ? 1 + best : 0], bytes, 1, 2),
                      .theirs = stat_part(l, &v[1 + best], bytes, 1, 2),
                      .peer = v[1 + best].name,
                      .goal = 0.95};
    return ru_bench_add(l->b, &x, err);
}

static ru_status row(const lab *l, const char *what, int64_t bytes, const variant *ours,
                     const variant *theirs, const rui_team *missing, double goal, ru_err *err)
{
    bool large = bytes >= 1 << 20;
    if (!wants(l, bytes, what)) {
        return RU_OK;
    }
    ru_bench_row x = {.name = row_name(l, bytes, what),
                      .unit = large ? "MB/s" : "us",
                      .lower = !large,
                      .ours = stat_of(l, ours, bytes),
                      .goal = goal};
    if (theirs != NULL) {
        x.theirs = stat_of(l, theirs, bytes);
        x.peer = theirs->name;
    } else if (missing != NULL) {
        x.peer = missing->name;
        x.missing = missing->missing;
    }
    return ru_bench_add(l->b, &x, err);
}

static ru_status one_size(lab *l, int64_t bytes, ru_err *err)
{
    ru_arena *a = l->b->arena;
    ru_coll_choice_in in = {
        .n_ranks = l->n, .costs = l->costs, .sizes_bytes = &bytes, .n_sizes = 1};
    ru_coll_choice_plan plan;
    RU_TRY(ru_plan_coll_choose(&in, a, &plan, err));
    RU_TRY(ru_plan_coll_choose_check(&in, &plan, err));
    const ru_coll_choice *c = plan.at;
    variant v[STATICS + 2 + PEERS] = {{.name = ru_coll_algo_name(c->algo), .team = &l->ours}};
    v[0].extra = ru_arena_printf(a, " %s %lld %u", v[0].name, (long long)c->chunk_bytes, c->depth);
    bool choice = ru_bench_wants(l->b, choice_row_name(l, bytes, v[0].name));
    uint32_t n = 1, bare = 0, at[PEERS] = {0};
    for (uint32_t k = 0; k < STATICS && choice; k++) {
        v[n] = (variant){.name = ru_coll_algo_name(statics[k]), .team = &l->ours};
        v[n].extra = ru_arena_printf(a, " %s", v[n].name);
        n++;
    }
    for (uint32_t p = 0; p < PEERS; p++) {
        if (l->peer[p].missing == NULL && wants(l, bytes, peer_rows[p])) {
            at[p] = n;
            v[n++] = (variant){.name = l->peer[p].detail, .extra = "", .team = &l->peer[p]};
        }
    }
    if (bytes <= FLOOR_BYTES && wants(l, bytes, bare_row)) {
        bare = n;
        v[n++] = (variant){.name = l->bare.name, .extra = "", .team = &l->bare};
    }
    RU_TRY(measure(l, v, n, bytes, err));
    double goal = bytes >= 1 << 20 ? bus_goal : bytes == 1 << 10 ? small_goal_us : 0;
    RU_TRY(row(l, "", bytes, &v[0], NULL, NULL, goal, err));
    if (choice) {
        RU_TRY(choice_row(l, v, c, bytes, err));
    }
    if (bare != 0) {
        RU_TRY(row(l, bare_row, bytes, &v[0], &v[bare], NULL, 0, err));
    }
    for (uint32_t p = 0; p < PEERS; p++) {
        RU_TRY(
            row(l, peer_rows[p], bytes, &v[0], at[p] > 0 ? &v[at[p]] : NULL, &l->peer[p], 0, err));
    }
    return RU_OK;
}

static ru_status all_sizes(lab *l, ru_err *err)
{
    static ru_status (*const start[PEERS])(lab *, rui_team *, ru_err *) = {start_gloo, start_mpi};
    static const char *const install[PEERS] = {"pip install torch numpy",
                                               "apt-get install openmpi-bin libopenmpi-dev"};
    RU_TRY(start_ours(l, err));
    if (l->wants_bare) {
        RU_TRY(start_bare(l, err));
    }
    for (uint32_t p = 0; p < PEERS; p++) {
        ru_err why = {0};
        if (l->wants_peer[p] && start[p](l, &l->peer[p], &why) != RU_OK) {
            rui_team_close(&l->peer[p]);
            l->peer[p].missing = ru_arena_printf(l->b->arena, "%s; %s", why.text, install[p]);
        }
    }
    RU_TRY(probe(l, err));
    for (uint32_t s = 0; s < SIZES && sizes[s] <= l->most; s++) {
        if (wants_size(l, sizes[s])) {
            RU_TRY(one_size(l, sizes[s], err));
        }
    }
    return RU_OK;
}

ru_status rui_bench_coll_lab(ru_bench *b, uint32_t n, ru_err *err)
{
    lab l = {.b = b, .n = n};
    for (uint32_t s = 0; s < SIZES && sizes[s] <= (b->quick ? 16 << 20 : 64 << 20); s++) {
        l.most = wants_size(&l, sizes[s]) ? sizes[s] : l.most;
    }
    if (l.most == 0) {
        return RU_OK;
    }
    l.script = ru_arena_printf(b->arena, "%s/../test/lab/net.sh", ru_bench_scripts(b->arena));
    if (run_script(&l, "check", NULL, err) != RU_OK) {
        fprintf(stderr, "1 Gbit/s %u ranks: skipped: no network laboratory here (%s check)\n", n,
                l.script);
        return RU_OK;
    }
    RU_TRY(run_script(&l, "up", rui_team_number(b->arena, n), err));
    ru_status st = all_sizes(&l, err);
    rui_team_close(&l.ours);
    rui_team_close(&l.bare);
    for (uint32_t p = 0; p < PEERS; p++) {
        rui_team_close(&l.peer[p]);
    }
    ru_err ignored;
    if (run_script(&l, "down", NULL, &ignored) != RU_OK) {
        fprintf(stderr, "%s\n", ignored.text);
    }
    return st;
}
