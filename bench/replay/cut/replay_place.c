/* Placements of published graphs: every method on two devices beside the best known steps of the
 * benchmark, expert splits, small random graphs against the integer program, and ten times the
 * size. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "bench/replay/replay.h"
#include "bench/replay/replay_csv.h"
#include "bench/replay/replay_input.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "plan/cut/place.h"
#include "plan/cut/place_policy.h"
#include "solve/solver.h"
#include "store/layers.h"

static const char *const bench_graphs[] = {
    "gnmt_large.40",     "gnmt_large.100",    "gnmt_large.192",    "inception_v3.40",
    "inception_v3.100",  "inception_v3.200",  "inception_v3.400",  "nasnetalarge.40",
    "nasnetalarge.100",  "nasnetalarge.200",  "nasnetalarge.400",  "nasnetamobile.40",
    "nasnetamobile.100", "nasnetamobile.200", "nasnetamobile.400",
};

static const char *const operator_graphs[] = {
    "LayerGraphs-bert24_inference",       "LayerGraphs-bert24_training",
    "LayerGraphs-gnmt_inference",         "LayerGraphs-gnmt_training",
    "LayerGraphs-inceptionv3_inference",  "LayerGraphs-inceptionv3_training",
    "LayerGraphs-resnet50_inference",     "LayerGraphs-resnet50_training",
    "OperatorGraphs-bert_l-3_inference",  "OperatorGraphs-bert_l-3_training",
    "OperatorGraphs-bert_l-6_inference",  "OperatorGraphs-bert_l-6_training",
    "OperatorGraphs-bert_l-12_inference", "OperatorGraphs-bert_L-12_training",
    "OperatorGraphs-resnet50_inference",  "OperatorGraphs-resnet50_training",
};

static const char *const expert_splits[] = {
    "bert24_inference", "bert24_training",       "gnmt_inference",
    "gnmt_training",    "inceptionv3_inference", "resnet50_inference",
};

static const char *const methods[RU_PLACE_METHODS] = {"search", "single", "topo", "etf",   "sct",
                                                      "heft",   "split",  "load", "expert"};

enum {
    RANDOM_GRAPHS = 200,
    RANDOM_OPS_MAX = 16,
    RANDOM_NODES = 300, /* of the integer program: about a second */
    TENFOLD = 10,
};

static const double PATH_SHARE_MAX = 0.75; /* of m-ETF's step: the bound leaves room to be better */

/* A graph with its changed copies of devices, edges and ops. */
typedef struct graph {
    rui_replay_input in;
    ru_place_file *file;
    double ms[RU_PLACE_METHODS]; /* steps; NaN: no plan */
    double bound_ms;
} graph;

/* -- inputs ------------------------------------------------------------------------------------ */

static ru_status load(ru_replay *r, const char *path, const char *name, graph *g, ru_err *err)
{
    RU_TRY(rui_replay_load(r, &ru_policy_place, path, name, &g->in, err));
    g->file = (ru_place_file *)(void *)g->in.u.bytes;
    return RU_OK;
}

static ru_status use_devices(ru_replay *r, graph *g, uint32_t n, int64_t memory_bytes, ru_err *err)
{
    ru_place_file_device *at = RU_NEW(r->arena, ru_place_file_device, n);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u devices", n);
    }
    for (uint32_t d = 0; d < n; d++) {
        at[d] = (ru_place_file_device){"", memory_bytes, 1};
    }
    g->file->devices = (ru_conf_sections){at, n};
    return RU_OK;
}

static int64_t bytes_of(const graph *g)
{
    const ru_place_file_op *ops = g->file->ops.at;
    int64_t sum = 0;
    for (uint32_t i = 0; i < g->file->ops.n; i++) {
        sum += ops[i].bytes;
    }
    return sum;
}

/* -- running ----------------------------------------------------------------------------------- */

/* The step of one method, judged; NaN: it has no plan within memory. */
static ru_status run(graph *g, uint32_t method, double *took_s, ru_err *err)
{
    ru_arena out, scratch;
    ru_arena_init(&out, 0);
    ru_arena_init(&scratch, 0);
    ru_policy_tools tools = {&out, &scratch, &ru_solver_library};
    ru_place_plan p;
    g->file->q.method = method;
    int64_t from = ru_clock_now().ns;
    ru_status st = ru_policy_place.plan(g->in.u.in, &tools, &p, err);
    if (took_s != NULL) {
        *took_s = (double)(ru_clock_now().ns - from) * 1e-9;
    }
    bool none = st == RU_E_INFEASIBLE || st == RU_E_UNSUPPORTED;
    g->ms[method] = RU_NAN;
    if (st == RU_OK) {
        st = ru_policy_place.check(g->in.u.in, &p, &scratch, err);
        g->ms[method] = (double)p.step_ns * 1e-6;
        g->bound_ms = method == RU_PLACE_SEARCH ? (double)p.bound_ns * 1e-6 : g->bound_ms;
    }
    ru_arena_fini(&scratch);
    ru_arena_fini(&out);
    return none && method != RU_PLACE_SEARCH ? RU_OK : st;
}

static ru_status run_all(graph *g, ru_err *err)
{
    for (uint32_t m = 0; m < RU_PLACE_METHODS; m++) {
        RU_TRY(run(g, m, NULL, err));
    }
    return RU_OK;
}

static double least_baseline(const graph *g)
{
    double least = g->ms[RU_PLACE_SINGLE];
    for (uint32_t m = RU_PLACE_ETF; m <= RU_PLACE_HEFT; m++) {
        least = fmin(least, g->ms[m]);
    }
    return least;
}

static ru_replay_row row_of(ru_replay *r, const graph *g, const char *name, uint32_t n_methods)
{
    ru_replay_row row = ru_replay_row_of(name, "step_ms", true);
    row.ours = g->ms[RU_PLACE_SEARCH];
    row.bound = g->bound_ms;
    row.goal = least_baseline(g);
    for (uint32_t m = RU_PLACE_SINGLE; m < n_methods; m++) {
        ru_replay_baseline(r, &row, methods[m], g->ms[m]);
    }
    return row;
}

static bool wanted(const ru_replay *r, const char *name)
{
    return strstr(name, r->only) != NULL;
}

/* -- tables ------------------------------------------------------------------------------------ */

/* Mean gains over one baseline on graphs whose bound leaves room. */
typedef struct gain {
    double etf, sct, expert;
    uint32_t n_etf, n_sct, n_expert;
} gain;

static void add_gain(gain *sum, const graph *g)
{
    if (!(g->bound_ms <= PATH_SHARE_MAX * g->ms[RU_PLACE_ETF])) {
        return;
    }
    sum->etf += 1 - g->ms[RU_PLACE_SEARCH] / g->ms[RU_PLACE_ETF];
    sum->n_etf++;
    if (!isnan(g->ms[RU_PLACE_SCT])) {
        sum->sct += 1 - g->ms[RU_PLACE_SEARCH] / g->ms[RU_PLACE_SCT];
        sum->n_sct++;
    }
}

static double best_known(const rui_csv *c, const char *name)
{
    for (uint32_t k = 0; k < c->n; k++) {
        char key[64];
        ru_text t = ru_text_into(key, sizeof key);
        ru_text_putf(&t, "%s.%s", rui_csv_text(c, k, 0), rui_csv_text(c, k, 1));
        if (strcmp(key, name) == 0) {
            return rui_csv_f64(c, k, 8);
        }
    }
    return RU_NAN;
}

static ru_status bench(ru_replay *r, const char *folder, gain *sum, ru_err *err)
{
    rui_csv known;
    RU_TRY(rui_csv_read(ru_path_join(r->arena, folder, "best_known.tsv"), r->arena, &known, err));
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bench_graphs); k++) {
        const char *name = bench_graphs[k];
        if (!wanted(r, name) || (r->quick && strstr(name, ".40") == NULL)) {
            continue;
        }
        graph g = {0};
        const char *file = ru_arena_printf(r->arena, "%s.txt", name);
        RU_TRY(load(r, ru_path_join(r->arena, folder, file), name, &g, err));
        RU_TRY(run_all(&g, err));
        add_gain(sum, &g);
        ru_replay_row row = row_of(r, &g, name, RU_PLACE_GIVEN);
        row.best_known = best_known(&known, name);
        row.goal = fmin(row.goal, isnan(row.best_known) ? row.goal : 1.01 * row.best_known);
        RU_TRY(ru_replay_add(r, &row, err));
    }
    return RU_OK;
}

/* Two devices, each with the memory of the file's, or six tenths of all where that is more. */
static ru_status operators(ru_replay *r, const char *folder, gain *sum, ru_err *err)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(operator_graphs); k++) {
        const char *name = operator_graphs[k];
        if (!wanted(r, name) || (r->quick && strstr(name, "bert24") == NULL)) {
            continue;
        }
        graph g = {0};
        const char *file = ru_arena_printf(r->arena, "throughput/%s.json.gz", name);
        RU_TRY(load(r, ru_path_join(r->arena, folder, file), name, &g, err));
        const ru_place_file_device *devices = g.file->devices.at;
        int64_t most = bytes_of(&g) / 10 * 6;
        most = devices[0].memory_bytes > most ? devices[0].memory_bytes : most;
        RU_TRY(use_devices(r, &g, 2, most, err));
        RU_TRY(run_all(&g, err));
        add_gain(sum, &g);
        ru_replay_row row = row_of(r, &g, name, RU_PLACE_GIVEN);
        RU_TRY(ru_replay_add(r, &row, err));
    }
    return RU_OK;
}

/* -- expert splits ----------------------------------------------------------------------------- */

/* Which accelerator the expert gave each op: lists of node numbers by accelerator. */
static ru_status put_expert(ru_replay *r, const char *path, graph *g, ru_err *err)
{
    char *text;
    int64_t size;
    json_error_t why;
    RU_TRY(ru_file_read(path, 1 << 20, r->arena, &text, &size, err));
    json_t *root = json_loadb(text, (size_t)size, 0, &why);
    json_t *lists = json_object_get(root, "fpgas");
    ru_place_file_op *ops = ru_arena_copy(r->arena, g->file->ops.at,
                                          (int64_t)(g->file->ops.n * sizeof(ru_place_file_op)), 8);
    ru_status st = root == NULL || ops == NULL || json_array_size(lists) > g->file->devices.n
                       ? RU_FAIL(err, RU_E_DATA, "%s holds no split for %u accelerators", path,
                                 g->file->devices.n)
                       : RU_OK;
    for (size_t d = 0; st == RU_OK && d < json_array_size(lists); d++) {
        json_t *nodes = json_object_get(json_array_get(lists, d), "nodes");
        for (size_t k = 0; k < json_array_size(nodes); k++) {
            const char *id = ru_arena_printf(
                r->arena, "%lld", (long long)json_integer_value(json_array_get(nodes, k)));
            for (uint32_t i = 0; i < g->file->ops.n; i++) {
                ops[i].given = strcmp(ops[i].name, id) == 0 ? (int64_t)d : ops[i].given;
            }
        }
    }
    json_decref(root);
    g->file->ops.at = ops;
    return st;
}

/* Transfers of the throughput files are a thousandth of those of the latency files. */
static ru_status slow_transfers(ru_replay *r, graph *g, ru_err *err)
{
    ru_place_edge *edges = ru_arena_copy(r->arena, g->file->edges.at,
                                         (int64_t)(g->file->edges.n * sizeof(ru_place_edge)), 8);
    if (edges == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u edges", g->file->edges.n);
    }
    for (uint32_t e = 0; e < g->file->edges.n; e++) {
        edges[e].time_ns *= 1000;
    }
    g->file->edges.at = edges;
    return RU_OK;
}

static ru_status experts(ru_replay *r, const char *folder, gain *sum, ru_err *err)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(expert_splits); k++) {
        const char *name = ru_arena_printf(r->arena, "expert %s", expert_splits[k]);
        if (!wanted(r, name) || (r->quick && k > 0)) {
            continue;
        }
        graph g = {0};
        const char *file =
            ru_arena_printf(r->arena, "throughput/LayerGraphs-%s.json.gz", expert_splits[k]);
        const char *split = ru_arena_printf(r->arena, "experts/%s_expert.json", expert_splits[k]);
        RU_TRY(load(r, ru_path_join(r->arena, folder, file), name, &g, err));
        RU_TRY(put_expert(r, ru_path_join(r->arena, folder, split), &g, err));
        RU_TRY(slow_transfers(r, &g, err));
        RU_TRY(run_all(&g, err));
        ru_replay_row row =
            row_of(r, &g, ru_arena_printf(r->arena, "%s, %u devices", name, g.file->devices.n),
                   RU_PLACE_METHODS);
        if (g.bound_ms <= PATH_SHARE_MAX * g.ms[RU_PLACE_GIVEN]) {
            sum->expert += 1 - g.ms[RU_PLACE_SEARCH] / g.ms[RU_PLACE_GIVEN];
            sum->n_expert++;
        }
        RU_TRY(ru_replay_add(r, &row, err));
    }
    return RU_OK;
}

/* -- small random graphs ----------------------------------------------------------------------- */

typedef struct random_graph {
    ru_place_op ops[RANDOM_OPS_MAX];
    ru_place_edge edges[RANDOM_OPS_MAX * RANDOM_OPS_MAX];
    ru_place_device devices[2];
    ru_place_in in;
} random_graph;

/* 12 to 16 ops in 3 or 4 layers, each op reading one to three of the layers before. */
static void draw(uint64_t seed, random_graph *g)
{
    ru_rng rng = ru_rng_from(seed, ru_rng_label("replay place"));
    uint32_t n = 12 + ru_rng_below(&rng, RANDOM_OPS_MAX - 11), layers = 3 + ru_rng_below(&rng, 2);
    uint32_t m = 0;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        g->ops[i] = (ru_place_op){.time_ns = 1000 * (1 + (int64_t)ru_rng_below(&rng, 100)),
                                  .bytes = 1 + ru_rng_below(&rng, 100),
                                  .group = RU_PLACE_ANY,
                                  .pin = RU_PLACE_ANY,
                                  .given = RU_PLACE_ANY};
        bytes += g->ops[i].bytes;
        uint32_t first = i * layers / n * n / layers; /* of this layer: none before reads it */
        uint32_t inputs = first > 0 ? 1 + ru_rng_below(&rng, 3) : 0, last = first;
        for (uint32_t k = 0; k < inputs; k++) {
            uint32_t from = ru_rng_below(&rng, first);
            if (from != last) {
                g->edges[m++] = (ru_place_edge){
                    .from = from, .to = i, .time_ns = 1000 * (int64_t)ru_rng_below(&rng, 40)};
                last = from;
            }
        }
    }
    g->devices[0] = g->devices[1] = (ru_place_device){bytes * 6 / 10 + 100, 1};
    g->in = (ru_place_in){.ops = g->ops,
                          .n = n,
                          .edges = g->edges,
                          .n_edges = m,
                          .devices = g->devices,
                          .n_devices = 2,
                          .bytes_per_s = 1e9,
                          .work_max = 10000000,
                          .seed = seed};
}

static ru_status randoms(ru_replay *r, ru_err *err)
{
    const char *name = "random graphs of 12 to 16 ops";
    uint32_t n = r->quick ? 5 : RANDOM_GRAPHS, equal = 0, proven = 0, below = 0;
    for (uint64_t k = 0; k < n && wanted(r, name); k++) {
        random_graph g;
        ru_place_plan alone, with;
        ru_arena a;
        ru_arena_init(&a, 0);
        draw(k, &g);
        ru_status st = ru_plan_place(&g.in, NULL, &a, &a, &alone, err);
        g.in.nodes_max = RANDOM_NODES;
        st = st == RU_OK ? ru_plan_place(&g.in, &ru_solver_library, &a, &a, &with, err) : st;
        st = st == RU_OK ? ru_plan_place_check(&g.in, &alone, &a, err) : st;
        st = st == RU_OK ? ru_plan_place_check(&g.in, &with, &a, err) : st;
        if (st == RU_OK) {
            equal += (double)(alone.step_ns - with.step_ns) <= 1e-6 * (double)with.step_ns ? 1 : 0;
            below += alone.step_ns < with.bound_ns ? 1 : 0;
            proven += with.bound_ns == with.step_ns ? 1 : 0;
        }
        ru_arena_fini(&a);
        RU_TRY(st);
    }
    ru_replay_row row = ru_replay_row_of(name, "share_equal_to_program", false);
    row.ours = (double)equal / n;
    row.goal = 0.98;
    row.note = "the search alone against the search and the integer program";
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(name, "share_proven_optimal", false);
    row.ours = (double)proven / n;
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(name, "share_below_bound", true);
    row.ours = (double)below / n;
    row.goal = 0;
    return ru_replay_add(r, &row, err);
}

/* -- ten times the size ------------------------------------------------------------------------ */

/* Copies of the largest graph one after another, all sinks of one before all sources of the next
 * through one op, so that the step is ten steps. */
static ru_status copy_tenfold(ru_replay *r, graph *g, ru_err *err)
{
    uint32_t n = g->file->ops.n, m = g->file->edges.n, e = m * TENFOLD;
    const ru_place_file_op *from = g->file->ops.at;
    const ru_place_edge *joins = g->file->edges.at;
    ru_place_file_op *ops = RU_NEW(r->arena, ru_place_file_op, ((int64_t)n + 1) * TENFOLD);
    ru_place_edge *edges = RU_NEW(r->arena, ru_place_edge, ((int64_t)m + 2 * n) * TENFOLD);
    bool *reads = RU_NEW(r->arena, bool, n), *is_read = RU_NEW(r->arena, bool, n);
    if (ops == NULL || edges == NULL || reads == NULL || is_read == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %d copies of %u ops", TENFOLD, n);
    }
    for (uint32_t k = 0; k < m; k++) {
        reads[joins[k].to] = is_read[joins[k].from] = true;
    }
    for (uint32_t c = 0; c < TENFOLD; c++) {
        uint32_t at = c * (n + 1); /* the op between two copies comes first */
        ops[at] = (ru_place_file_op){"", 0, 0, -1, -1, -1};
        for (uint32_t i = 0; i < n; i++) {
            ops[at + 1 + i] = from[i];
            ops[at + 1 + i].group += from[i].group >= 0 ? (int64_t)(c * n) : 0;
            if (!reads[i]) {
                edges[e++] = (ru_place_edge){at, at + 1 + i, 0, 0, 0};
            }
            if (!is_read[i] && c + 1 < TENFOLD) {
                edges[e++] = (ru_place_edge){at + 1 + i, at + 1 + n, 0, 0, 0};
            }
        }
        for (uint32_t k = 0; k < m; k++) {
            edges[c * m + k] = joins[k];
            edges[c * m + k].from += at + 1;
            edges[c * m + k].to += at + 1;
        }
    }
    g->file->ops = (ru_conf_sections){ops, (n + 1) * TENFOLD};
    g->file->edges = (ru_conf_sections){edges, e};
    return RU_OK;
}

static ru_status tenfold(ru_replay *r, const char *folder, ru_err *err)
{
    const char *name = "ten times OperatorGraphs-bert_L-12_training";
    const char *path =
        ru_path_join(r->arena, folder, "throughput/OperatorGraphs-bert_L-12_training.json.gz");
    graph g = {0};
    double took_s;
    if (!wanted(r, name) || r->quick) {
        return RU_OK;
    }
    RU_TRY(load(r, path, name, &g, err));
    RU_TRY(copy_tenfold(r, &g, err));
    RU_TRY(use_devices(r, &g, 2, bytes_of(&g) / 10 * 6, err));
    RU_TRY(run(&g, RU_PLACE_SEARCH, &took_s, err));
    ru_replay_row row = ru_replay_row_of(
        ru_arena_printf(r->arena, "%s, %u ops", name, g.file->ops.n), "plan_s", true);
    row.timed = true;
    row.ours = took_s;
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(row.name, "tenfold_step_ms", true);
    row.ours = g.ms[RU_PLACE_SEARCH];
    row.bound = g.bound_ms;
    RU_TRY(run(&g, RU_PLACE_ETF, NULL, err));
    ru_replay_baseline(r, &row, "etf", g.ms[RU_PLACE_ETF]);
    row.goal = g.ms[RU_PLACE_ETF];
    return ru_replay_add(r, &row, err);
}

static ru_status add_mean(ru_replay *r, const char *name, double sum, uint32_t n, double published,
                          ru_err *err)
{
    ru_replay_row row = ru_replay_row_of(ru_arena_printf(r->arena, "%s, %u graphs", name, n),
                                         "mean_step_saved", false);
    row.ours = n > 0 ? sum / n : RU_NAN;
    row.published = row.goal = published;
    return n > 0 ? ru_replay_add(r, &row, err) : RU_OK;
}

ru_status rui_replay_place(ru_replay *r, ru_err *err)
{
    const char *folder = ru_replay_data(r, "placement-bench");
    const char *graphs = ru_replay_data(r, "operator-graphs");
    gain sum = {0};
    RU_TRY(randoms(r, err));
    if (folder == NULL || graphs == NULL) {
        ru_replay_row row = ru_replay_row_of("no data", "step_ms", true);
        row.ours = RU_NAN;
        row.note = "RUBATO_DATA names no folder with placement-bench and operator-graphs";
        return ru_replay_add(r, &row, err);
    }
    RU_TRY(bench(r, folder, &sum, err));
    RU_TRY(operators(r, graphs, &sum, err));
    RU_TRY(experts(r, graphs, &sum, err));
    RU_TRY(tenfold(r, graphs, err));
    RU_TRY(add_mean(r, "under m-ETF where the bound leaves room", sum.etf, sum.n_etf, 0.234, err));
    RU_TRY(add_mean(r, "under m-SCT where the bound leaves room", sum.sct, sum.n_sct, 0.234, err));
    return add_mean(r, "under experts where the bound leaves room", sum.expert, sum.n_expert, 0.155,
                    err);
}
