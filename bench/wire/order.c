/* The benchmark of orders in the network laboratory: a server whose link of 1 Gbit/s four workers
 * share. Each cell is a published graph at a ratio of transfer to compute; methods take turns, and
 * each step is asked for and measured as a whole. Bytes are scaled so that the transfers of a step
 * take half a second, times so that compute is transfer / ratio: efficiencies are those of the
 * graph, whatever the factor. */
#include "bench/wire/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/rng.h"
#include "bench/wire/collective.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "store/layers.h"

enum { PORT = 7601, ROUNDS = 20, ROUNDS_QUICK = 4, LINKS = 3, METHODS = 4, STEP_NS = 500000000 };

static const double goodput = 115e6; /* bytes/s of 1 Gbit/s, encrypted: the start of the scale */
static const int64_t answer_ns = (int64_t)60 * 1000000000, ahead_ns = 20000000;

/* Of a prototype of tictac-2019: E of TIC and TAC. gain: TAC over random that is asked for. */
static const struct {
    const char *graph;
    double ratio, e, gain;
} cells[] = {
    {"vgg16", 1, 1.00, 0},          {"resnet50", 1, 1.00, 1.6},    {"inception_v3", 0.5, 1.00, 0},
    {"inception_v3", 1, 1.00, 1.6}, {"inception_v3", 2, 1.00, 0},  {"densenet121", 1, 1.00, 0},
    {"nasnetalarge", 1, 1.00, 1.6}, {"squeezenet1_0", 1, 0.92, 0}, {"gnmt", 1, 0.74, 0}};

enum { TAC, TIC, RANDOM, FIXED };
static const ru_order_method methods[METHODS] = {RU_ORDER_TAC, RU_ORDER_TIC, RU_ORDER_RANDOM,
                                                 RU_ORDER_FIXED};

typedef struct bench {
    ru_bench *b;
    const char *script, *data, *file;
    rui_team team;
    double factor;         /* of bytes */
    double comm_s, comp_s; /* of a step of one worker: alone on its share; of its ops */
    double step[METHODS][ROUNDS], lag[METHODS][ROUNDS];
    uint32_t rounds;
} bench;

/* -- graphs --------------------------------------------------------------------------------------
 */

ru_status rui_order_sort(const ru_layer_graph *g, ru_arena *a, uint32_t *place, ru_err *err)
{
    uint32_t *waits = RU_NEW(a, uint32_t, g->n), done = 0;
    if (waits == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u layers", g->n);
    }
    for (uint32_t e = 0; e < g->n_edges; e++) {
        waits[g->edges[e].to]++;
    }
    memset(place, 0xff, g->n * sizeof *place);
    for (uint32_t before = UINT32_MAX; done != before;) {
        before = done;
        for (uint32_t i = 0; i < g->n; i++) {
            if (place[i] != UINT32_MAX || waits[i] > 0) {
                continue;
            }
            place[i] = done++;
            for (uint32_t e = 0; e < g->n_edges; e++) {
                waits[g->edges[e].to] -= g->edges[e].from == i;
            }
        }
    }
    return done == g->n ? RU_OK : RU_FAIL(err, RU_E_DATA, "the graph has a circle");
}

/* The forward pass; what loads the input takes no time. Bytes are scaled to STEP_NS of transfers.
 */
static ru_status load(bench *t, const char *name, double ratio, ru_script_ops *ops, ru_err *err)
{
    ru_arena *a = t->b->arena;
    ru_layer_graph g;
    char *text;
    int64_t n;
    const char *path = ru_arena_printf(a, "%s/pipedream-profiles/%s.graph.txt", t->data, name);
    RU_TRY(ru_file_read(path, 64 << 20, a, &text, &n, err));
    RU_TRY(ru_layers_read(path, ru_str_n(text, n), a, &g, err));
    uint32_t *place = RU_NEW(a, uint32_t, g.n);
    int64_t *ns = RU_NEW(a, int64_t, g.n), *need = RU_NEW(a, int64_t, g.n);
    ru_step_edge *edges = RU_NEW(a, ru_step_edge, g.n_edges + 1);
    if (place == NULL || ns == NULL || need == NULL || edges == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the graph %s", name);
    }
    RU_TRY(rui_order_sort(&g, a, place, err));
    double bytes = 0, time = 0, least = (double)STEP_NS * (ratio < 1 ? ratio : 1);
    for (uint32_t i = 0; i < g.n; i++) {
        bytes += g.layers[i].param_bytes;
    }
    t->factor = goodput * least * 1e-9 / (bytes * RUI_ORDER_WORKERS);
    for (uint32_t i = 0; i < g.n; i++) {
        bool loads = strncmp(g.layers[i].name, "Input", 5) == 0;
        double x = g.layers[i].param_bytes * t->factor;
        ns[place[i]] = loads ? 0 : (int64_t)(g.layers[i].forward_ms * 1e6);
        need[place[i]] = g.layers[i].param_bytes > 0 ? (int64_t)(x < 1 ? 1 : x) : 0;
        time += (double)ns[place[i]];
    }
    for (uint32_t e = 0; e < g.n_edges; e++) {
        edges[e] = (ru_step_edge){place[g.edges[e].from], place[g.edges[e].to]};
    }
    t->comp_s = time * 1e-9;
    *ops =
        (ru_script_ops){.n = g.n, .op_ns = ns, .need = need, .edges = edges, .n_edges = g.n_edges};
    return RU_OK;
}

/* -- processes -----------------------------------------------------------------------------------
 */

static ru_status lab(const bench *t, const char *what, ru_err *err)
{
    const char *hosts = rui_team_number(t->b->arena, RUI_ORDER_WORKERS + RUI_ORDER_SERVERS);
    bool up = strcmp(what, "up") == 0;
    bool check = strcmp(what, "check") == 0; /* names of controllers would follow */
    const char *argv[] = {t->script, what, check ? NULL : "ruorder", up ? hosts : NULL, "--rate",
                          "1gbit",   NULL};
    ru_process *p;
    ru_process_options opt = {.argv = argv, .quiet = true};
    RU_TRY(ru_process_start(&opt, &p, err));
    int code = ru_process_wait(p);
    ru_process_close(p);
    return code == 0 ? RU_OK
                     : RU_FAIL(err, RU_E_PEER, "%s %s ended with %d", t->script, what, code);
}

/* words [n]: of the role. */
static ru_status start_one(bench *t, uint32_t host, const char *const *words, uint32_t n,
                           ru_err *err)
{
    ru_arena *a = t->b->arena;
    const char *rest;
    const char *argv[20] = {t->script,          "in",    "ruorder",  rui_team_number(a, host),
                            ru_bench_rubato(a), "bench", "--worker", "net"};
    RU_CHECK(n < 12);
    memcpy(argv + 8, words, n * sizeof *words);
    RU_TRY(rui_team_start_one(&t->team, argv, err));
    return rui_team_ready(&t->team, t->team.n - 1, a, &rest, err);
}

static ru_status start(bench *t, ru_err *err)
{
    ru_arena *a = t->b->arena;
    const char *at = ru_arena_printf(a, "10.77.0.1:%d", PORT);
    t->team = (rui_team){.name = "pulls"};
    const char *serve[] = {"order-serve", at, t->file};
    RU_TRY(start_one(t, 1, serve, 3, err));
    for (uint32_t k = 0; k < RUI_ORDER_WORKERS; k++) {
        const char *work[] = {"order-work", at, t->file, rui_team_number(a, k)};
        RU_TRY(start_one(t, k + 2, work, 4, err));
    }
    return RU_OK;
}

/* One step of all workers, which begin at one instant. */
static ru_status step(bench *t, ru_order_method method, uint64_t seed, double scale, double *took_s,
                      double *lag_s, ru_err *err)
{
    char line[128];
    int64_t first = INT64_MAX, last = 0, longest = 0;
    int n = snprintf(line, sizeof line, "%u %llu %lld %.9f\n", (uint32_t)method,
                     (unsigned long long)seed, (long long)(ru_clock_now().ns + ahead_ns), scale);
    for (uint32_t k = 1; k <= RUI_ORDER_WORKERS; k++) {
        RU_TRY(ru_process_write(t->team.p[k], line, n, err));
    }
    for (uint32_t k = 1; k <= RUI_ORDER_WORKERS; k++) {
        const char *answer;
        char *rest;
        RU_TRY(ru_process_line(t->team.p[k], answer_ns, &answer, err));
        if (answer == NULL) {
            return RU_FAIL(err, RU_E_PEER, "worker %u of the orders ended", k);
        }
        int64_t ns = strtoll(answer, &rest, 10), end = strtoll(rest, NULL, 10);
        longest = ns > longest ? ns : longest;
        first = end < first ? end : first;
        last = end > last ? end : last;
    }
    *took_s = (double)longest * 1e-9;
    *lag_s = (double)(last - first) * 1e-9;
    return RU_OK;
}

/* -- figures -------------------------------------------------------------------------------------
 */

/* (U - m) / (U - L) of every round. */
static ru_bench_stat efficiency(const bench *t, uint32_t m)
{
    double e[ROUNDS], least = t->comm_s > t->comp_s ? t->comm_s : t->comp_s;
    for (uint32_t r = 0; r < t->rounds; r++) {
        e[r] = (t->comm_s + t->comp_s - t->step[m][r]) / (t->comm_s + t->comp_s - least);
    }
    return ru_bench_stat_of(e, t->rounds);
}

static ru_bench_stat stat_of(const bench *t, const double *values)
{
    double copy[ROUNDS];
    memcpy(copy, values, t->rounds * sizeof *copy);
    return ru_bench_stat_of(copy, t->rounds);
}

static double tail(const bench *t, const double *values)
{
    double copy[ROUNDS];
    memcpy(copy, values, t->rounds * sizeof *copy);
    return rui_net_percentile(copy, t->rounds, 0.95) / rui_net_percentile(copy, t->rounds, 0.5);
}

static ru_status rows(bench *t, const char *name, double e, double gain, ru_err *err)
{
    ru_arena *a = t->b->arena;
    static const char random[] = "random order";
    const double p = tail(t, t->step[TAC]);
    const ru_bench_row list[] = {
        {.name = ru_arena_printf(a, "%s tac", name),
         .unit = "E",
         .ours = efficiency(t, TAC),
         .goal = e - 0.03},
        {.name = ru_arena_printf(a, "%s tic", name),
         .unit = "E",
         .ours = efficiency(t, TIC),
         .goal = e - 0.03},
        {.name = ru_arena_printf(a, "%s step", name),
         .unit = "s",
         .lower = true,
         .ours = stat_of(t, t->step[TAC]),
         .theirs = stat_of(t, t->step[RANDOM]),
         .peer = random,
         .goal = gain},
        {.name = ru_arena_printf(a, "%s step, fixed", name),
         .unit = "s",
         .lower = true,
         .ours = stat_of(t, t->step[TAC]),
         .theirs = stat_of(t, t->step[FIXED]),
         .peer = "one random order"},
        {.name = ru_arena_printf(a, "%s lag", name),
         .unit = "s",
         .lower = true,
         .ours = stat_of(t, t->lag[TAC]),
         .theirs = stat_of(t, t->lag[RANDOM]),
         .peer = random,
         .goal = gain > 0 ? 4 : 0},
        {.name = ru_arena_printf(a, "%s p95/p50", name),
         .unit = "",
         .lower = true,
         .ours = {p, p, p, 1},
         .goal = 1.03},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(list); k++) {
        RU_TRY(ru_bench_add(t->b, &list[k], err));
    }
    return RU_OK;
}

/* Transfers alone give the link's time: before, for the scale of compute, and in turns with the
 * methods, for their efficiency. */
static ru_status measure(bench *t, double ratio, ru_err *err)
{
    double links[ROUNDS], lag, comp = t->comp_s;
    t->rounds = t->b->quick ? ROUNDS_QUICK : ROUNDS;
    for (uint32_t k = 0; k <= LINKS; k++) { /* the first one opens windows */
        RU_TRY(step(t, RU_ORDER_FIFO, 1, 0, &links[k > 0 ? k - 1 : 0], &lag, err));
    }
    t->comp_s = ru_bench_stat_of(links, LINKS).median / ratio;
    for (uint32_t r = 0; r < t->rounds; r++) {
        RU_TRY(step(t, RU_ORDER_FIFO, 1, 0, &links[r], &lag, err));
        for (uint32_t k = 0; k < METHODS; k++) {
            uint32_t m = (k + r) % METHODS;
            RU_TRY(
                step(t, methods[m], r + 1, t->comp_s / comp, &t->step[m][r], &t->lag[m][r], err));
        }
    }
    t->comm_s = ru_bench_stat_of(links, t->rounds).median;
    return RU_OK;
}

static ru_status cell(bench *t, uint32_t c, ru_err *err)
{
    ru_arena *a = t->b->arena;
    ru_script_ops ops;
    const char *name = ru_arena_printf(a, "%s, ratio %g", cells[c].graph, cells[c].ratio);
    RU_TRY(load(t, cells[c].graph, cells[c].ratio, &ops, err));
    t->file = ru_arena_printf(a, "%s/order-%s.txt", t->b->dir, cells[c].graph);
    RU_TRY(rui_order_write(t->file, &ops, a, err));
    ru_status st = start(t, err);
    st = st == RU_OK ? measure(t, cells[c].ratio, err) : st;
    rui_team_close(&t->team);
    RU_TRY(st);
    fprintf(stderr, "%s: %.3g of the bytes; transfers %.3f s, compute %.3f s\n", name, t->factor,
            t->comm_s, t->comp_s);
    return rows(t, name, cells[c].e, cells[c].gain, err);
}

/* -- many pulls ----------------------------------------------------------------------------------
 */

enum { TENSORS = 250, PULLS = 100000, PULLS_QUICK = 20000, TENSOR_BYTES = 128 << 10 };

/* Sizes over four decades. */
static ru_status tensors(bench *t, ru_err *err)
{
    int64_t ns[TENSORS] = {0}, need[TENSORS];
    ru_rng rng = ru_rng_from(1, 0);
    for (uint32_t k = 0; k < TENSORS; k++) {
        need[k] = 1 + (int64_t)(ru_rng_below(&rng, TENSOR_BYTES) >> ru_rng_below(&rng, 13));
    }
    const ru_script_ops ops = {.n = TENSORS, .op_ns = ns, .need = need};
    t->file = ru_arena_printf(t->b->arena, "%s/order-many.txt", t->b->dir);
    return rui_order_write(t->file, &ops, t->b->arena, err);
}

static const char *records_of(const bench *t, uint32_t k)
{
    return ru_arena_printf(t->b->arena, "%s/order-records-%u", t->b->dir, k);
}

/* Servers stand on hosts 1 and behind the workers. */
static ru_status start_many(bench *t, uint32_t servers, ru_err *err)
{
    ru_arena *a = t->b->arena;
    const char *pull[3 + RUI_ORDER_SERVERS] = {"order-pull", NULL, t->file};
    t->team = (rui_team){.name = "many pulls"};
    for (uint32_t k = 0; k < servers; k++) {
        uint32_t host = k == 0 ? 1 : RUI_ORDER_WORKERS + 1 + k;
        const char *at = pull[3 + k] = ru_arena_printf(a, "10.77.0.%u:%d", host, PORT);
        const char *serve[] = {"order-serve", at, t->file, rui_team_number(a, k + 1),
                               records_of(t, k)};
        RU_TRY(start_one(t, host, serve, 5, err));
    }
    for (uint32_t k = 0; k < RUI_ORDER_WORKERS; k++) {
        pull[1] = rui_team_number(a, k);
        RU_TRY(start_one(t, k + 2, pull, 3 + servers, err));
    }
    return RU_OK;
}

/* All workers pull at once; the processes end before their records are read. */
static ru_status pull_all(bench *t, uint32_t servers, uint32_t rounds, uint32_t *pulls, ru_err *err)
{
    ru_status st = start_many(t, servers, err);
    const char *line = ru_arena_printf(t->b->arena, "%u\n", rounds);
    for (uint32_t k = servers; st == RU_OK && k < t->team.n; k++) {
        st = ru_process_write(t->team.p[k], line, (int64_t)strlen(line), err);
    }
    for (uint32_t k = servers; st == RU_OK && k < t->team.n; k++) {
        const char *answer = NULL;
        st = ru_process_line(t->team.p[k], answer_ns, &answer, err);
        if (st == RU_OK && answer == NULL) {
            st = RU_FAIL(err, RU_E_PEER, "worker %u of many pulls ended", k - servers);
        }
        *pulls += st == RU_OK ? (uint32_t)strtoul(answer, NULL, 10) : 0;
    }
    rui_team_close(&t->team);
    return st;
}

static ru_status many(bench *t, uint32_t servers, ru_err *err)
{
    ru_arena *a = t->b->arena, scratch;
    uint32_t pulls = 0, all = t->b->quick ? PULLS_QUICK : PULLS;
    uint32_t rounds = all / RUI_ORDER_WORKERS / TENSORS;
    const char *name =
        ru_arena_printf(a, "%u pulls, %u server%s", all, servers, servers > 1 ? "s" : "");
    rui_order_judged j = {0};
    if (!ru_bench_wants(t->b, name)) {
        return RU_OK;
    }
    RU_TRY(pull_all(t, servers, rounds, &pulls, err));
    ru_arena_init(&scratch, 0);
    ru_status st = RU_OK;
    for (uint32_t k = 0; st == RU_OK && k < servers; k++) {
        st = rui_order_judge(records_of(t, k), rounds * TENSORS, TENSORS, &scratch, &j, err);
        (void)unlink(records_of(t, k));
    }
    ru_arena_fini(&scratch);
    RU_TRY(st);
    fprintf(stderr, "%s: %u came in %llu chunks; %llu inversions, %llu without credit or rank\n",
            name, pulls, (unsigned long long)j.chunks, (unsigned long long)j.inversions,
            (unsigned long long)j.wrong);
    double well = pulls == all ? (double)(j.chunks - j.inversions) - (double)j.wrong : 0;
    double share = j.chunks >= all ? well / (double)j.chunks : 0;
    const ru_bench_row row = {
        .name = name, .unit = "in order", .ours = {share, share, share, 1}, .goal = 1};
    return ru_bench_add(t->b, &row, err);
}

ru_status ru_bench_order(ru_bench *b, ru_err *err)
{
    bench t = {.b = b, .data = ru_conf_env("RUBATO_DATA")};
    t.script = ru_arena_printf(b->arena, "%s/../test/lab/net.sh", ru_bench_scripts(b->arena));
    if (t.data == NULL) {
        fprintf(stderr,
                "orders: skipped: RUBATO_DATA does not name the folder of published data\n");
        b->told = true;
        return RU_OK;
    }
    if (lab(&t, "check", err) != RU_OK) {
        fprintf(stderr, "orders: skipped: no network laboratory here (%s check)\n", t.script);
        b->told = true;
        return RU_OK;
    }
    RU_TRY(lab(&t, "up", err));
    ru_status st = RU_OK;
    for (uint32_t c = 0; c < RU_ARRAY_LEN(cells) && st == RU_OK; c++) {
        const char *name =
            ru_arena_printf(b->arena, "%s, ratio %g", cells[c].graph, cells[c].ratio);
        st = ru_bench_wants(b, name) ? cell(&t, c, err) : RU_OK;
    }
    st = st == RU_OK ? tensors(&t, err) : st;
    for (uint32_t servers = 1; servers <= RUI_ORDER_SERVERS && st == RU_OK; servers *= 2) {
        st = many(&t, servers, err);
    }
    ru_err ignored;
    if (lab(&t, "down", &ignored) != RU_OK) {
        fprintf(stderr, "%s\n", ignored.text);
    }
    return st;
}
