/* Orders of parameters on published layer graphs: efficiency of overlap by every method, beside the
 * published figures, the ranks of a second implementation (test/oracle/tictac.py writes
 * order_ranks.txt) and a bound. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/replay/replay.h"
#include "bench/replay/replay_input.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "plan/net/order.h"
#include "store/layers.h"

static const char *const profiles[] = {
    "alexnet",      "densenet121",   "gnmt",          "gnmt_large", "inception_v3",
    "nasnetalarge", "nasnetamobile", "resnet101",     "resnet18",   "resnet50",
    "resnext101",   "resnext50",     "squeezenet1_0", "vgg16"};

/* Of a prototype of tictac-2019: E of TIC and of TAC, random mean, step over random. */
static const struct {
    const char *name;
    double ratio, e, random, gain;
} published[] = {{"vgg16", 1, 1.00, 0.31, 1.69},
                 {"resnet50", 1, 1.00, 0.16, 1.83},
                 {"inception_v3", 0.5, 1.00, 0.29, 1.36},
                 {"inception_v3", 1, 1.00, 0.21, 1.79},
                 {"inception_v3", 2, 1.00, 0.24, 1.38},
                 {"densenet121", 1, 1.00, 0.13, 1.87},
                 {"nasnetalarge", 1, 1.00, 0.09, 1.91},
                 {"squeezenet1_0", 1, 0.92, 0.31, 1.56},
                 {"gnmt", 1, 0.74, 0.18, 1.45}};

static ru_status plan_by(ru_replay *r, rui_replay_input *g, uint32_t method, uint32_t seed,
                         bool check, ru_order_plan *plan, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_policy_tools tools = {r->arena, &scratch, NULL};
    rui_replay_set_u32(g, "method", method);
    rui_replay_set_u32(g, "seed", seed);
    ru_status st = ru_policy_order.plan(g->u.in, &tools, plan, err);
    if (st == RU_OK && check) {
        st = ru_policy_order.check(g->u.in, plan, &scratch, err);
    }
    ru_arena_fini(&scratch);
    return st;
}

typedef struct random_mean {
    double efficiency, step_s, straggle_s;
} random_mean;

static ru_status mean_of_random(ru_replay *r, rui_replay_input *g, uint32_t seeds, random_mean *m,
                                ru_err *err)
{
    *m = (random_mean){0};
    for (uint32_t s = 1; s <= seeds; s++) {
        ru_order_plan plan;
        ru_arena_mark mark = ru_arena_mark_get(r->arena);
        RU_TRY(plan_by(r, g, RU_ORDER_RANDOM, s, false, &plan, err));
        m->efficiency += plan.efficiency / seeds;
        m->step_s += (double)plan.step_ns * 1e-9 / seeds;
        m->straggle_s += (double)plan.straggle_ns * 1e-9 / seeds;
        ru_arena_rewind(r->arena, mark);
    }
    return RU_OK;
}

static const struct {
    const char *name;
    uint32_t method;
} others[] = {
    {"tac", RU_ORDER_TAC},           {"tic", RU_ORDER_TIC},     {"fixed", RU_ORDER_FIXED},
    {"fifo", RU_ORDER_FIFO},         {"layer", RU_ORDER_LAYER}, {"reverse", RU_ORDER_REVERSE},
    {"smallest", RU_ORDER_SMALLEST}, {"p3", RU_ORDER_P3},       {"bytescheduler", RU_ORDER_CREDIT}};

static uint32_t seeds_of(const ru_replay *r)
{
    return r->quick ? 10 : 100;
}

static double efficiency_at(const ru_order_plan *p, int64_t step_ns)
{
    /* E is linear in the step; 1 - E of two steps relate as their distances from the perfect one */
    double range = (1 - p->efficiency);
    double least = (double)p->step_ns / (1 + p->speedup_max * range);
    double e = 1 - ((double)step_ns - least) / (least * p->speedup_max);
    return p->speedup_max > 0 && range > 0 ? fmin(e, 1) : 1;
}

/* One row: E by all methods. `known`: E of the second implementation, NaN: none. */
static ru_status cell(ru_replay *r, rui_replay_input *g, double ratio, double known, double *gap,
                      ru_err *err)
{
    char name[96];
    ru_text t = ru_text_into(name, sizeof name);
    ru_text_putf(&t, "%s, ratio %g", g->name, ratio);
    ru_replay_row row = ru_replay_row_of(name, "efficiency", false);
    ru_order_plan plan, other;
    rui_replay_set_f64(g, "ratio", ratio);
    RU_TRY(plan_by(r, g, RU_ORDER_BEST, 1, true, &plan, err));
    row.ours = plan.efficiency;
    row.best_known = known;
    row.bound = efficiency_at(&plan, plan.bound_ns);
    random_mean random;
    RU_TRY(mean_of_random(r, g, seeds_of(r), &random, err));
    ru_replay_baseline(r, &row, "random", random.efficiency);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(others); k++) {
        RU_TRY(plan_by(r, g, others[k].method, 1, true, &other, err));
        ru_replay_baseline(r, &row, others[k].name, other.efficiency);
    }
    row.goal = known - 0.01;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(published); k++) {
        if (strcmp(published[k].name, g->name) == 0 && published[k].ratio == ratio) {
            row.published = published[k].e;
            row.goal = published[k].e - 0.01;
            *gap = fmax(*gap, fabs(row.ours - row.published));
        }
    }
    return ru_replay_add(r, &row, err);
}

/* Step of random orders over ours; asked for where compute and transfers are equal. */
static ru_status gain(ru_replay *r, rui_replay_input *g, uint32_t k, ru_err *err)
{
    char name[96];
    ru_text t = ru_text_into(name, sizeof name);
    ru_text_putf(&t, "%s, ratio %g", g->name, published[k].ratio);
    ru_replay_row row = ru_replay_row_of(name, "speedup_over_random", false);
    ru_order_plan plan;
    random_mean random;
    rui_replay_set_f64(g, "ratio", published[k].ratio);
    RU_TRY(plan_by(r, g, RU_ORDER_BEST, 1, true, &plan, err));
    RU_TRY(mean_of_random(r, g, seeds_of(r), &random, err));
    row.ours = random.step_s / ((double)plan.step_ns * 1e-9);
    row.published = published[k].gain;
    bool asked = published[k].ratio == 1 &&
                 (strcmp(g->name, "resnet50") == 0 || strcmp(g->name, "inception_v3") == 0 ||
                  strcmp(g->name, "nasnetalarge") == 0);
    if (asked) {
        row.goal = 1.6;
    }
    return ru_replay_add(r, &row, err);
}

/* Does the second implementation give the same ranks? Its line: name, n, E, E, n TIC, n TAC. */
static ru_status same_ranks(ru_replay *r, rui_replay_input *g, ru_str line, bool *same, ru_err *err)
{
    rui_replay_set_f64(g, "ratio", 1);
    *same = true;
    for (uint32_t pass = 0; pass < 2; pass++) {
        ru_order_plan plan, topological;
        uint32_t method = pass == 0 ? RU_ORDER_TIC : RU_ORDER_TAC;
        RU_TRY(plan_by(r, g, method, 1, false, &plan, err));
        /* credit's partitions come in topological order: the order of the numbers in the line */
        RU_TRY(plan_by(r, g, RU_ORDER_CREDIT, 1, false, &topological, err));
        uint32_t last = UINT32_MAX;
        for (uint32_t k = 0; k < topological.n_pieces; k++) {
            uint32_t op = topological.pieces[k].op;
            ru_str word;
            int64_t rank = -1;
            if (op == last) {
                continue;
            }
            last = op;
            *same = *same && ru_str_next(&line, ' ', &word) && ru_str_i64(word, &rank) &&
                    rank == (int64_t)plan.rank[op];
        }
    }
    *same = *same && line.n == 0;
    return RU_OK;
}

static ru_status timed(ru_replay *r, rui_replay_input *g, const char *name, double goal_ms,
                       ru_err *err)
{
    ru_replay_row row = ru_replay_row_of(name, "plan_ms", true);
    row.timed = true;
    row.goal = goal_ms;
    row.ours = INFINITY;
    rui_replay_set_f64(g, "ratio", 1);
    for (uint32_t k = 0; k < (r->quick ? 2u : 5u); k++) {
        ru_order_plan plan;
        ru_arena_mark mark = ru_arena_mark_get(r->arena);
        int64_t from = ru_clock_now().ns;
        RU_TRY(plan_by(r, g, RU_ORDER_BEST, 1, false, &plan, err));
        row.ours = fmin(row.ours, (double)(ru_clock_now().ns - from) * 1e-6);
        ru_arena_rewind(r->arena, mark);
    }
    return ru_replay_add(r, &row, err);
}

/* Ten copies of a graph, one after another: how planning grows. */
static ru_status timed_tenfold(ru_replay *r, const char *path, ru_err *err)
{
    char *text;
    int64_t size;
    ru_layer_graph g;
    RU_TRY(ru_file_read(path, RU_CONF_BULK_BYTES_MAX, r->arena, &text, &size, err));
    RU_TRY(ru_layers_read(path, ru_str_n(text, size), r->arena, &g, err));
    uint32_t copies = 10, n_edges = 0;
    int64_t *op_ns = RU_NEW(r->arena, int64_t, (int64_t)g.n * copies);
    int64_t *bytes = RU_NEW(r->arena, int64_t, (int64_t)g.n * copies);
    ru_step_edge *edges = RU_NEW(r->arena, ru_step_edge, ((int64_t)g.n_edges + 1) * copies);
    if (op_ns == NULL || bytes == NULL || edges == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u copies of %s", copies, path);
    }
    for (uint32_t c = 0; c < copies; c++) {
        for (uint32_t i = 0; i < g.n; i++) {
            op_ns[c * g.n + i] = (int64_t)(g.layers[i].forward_ms * 1e6);
            bytes[c * g.n + i] = (int64_t)g.layers[i].param_bytes;
        }
        for (uint32_t e = 0; e < g.n_edges; e++) {
            edges[n_edges++] = (ru_step_edge){c * g.n + g.edges[e].from, c * g.n + g.edges[e].to};
        }
        if (c > 0) {
            edges[n_edges++] = (ru_step_edge){c * g.n - 1, c * g.n};
        }
    }
    const ru_order_in in = {.n = g.n * copies,
                            .op_ns = op_ns,
                            .param_bytes = bytes,
                            .edges = edges,
                            .n_edges = n_edges,
                            .link = {.bytes_per_s = 125e6},
                            .workers = 1,
                            .slice_bytes = 1,
                            .partition_bytes = 1,
                            .credit_bytes = 1,
                            .method = RU_ORDER_TAC};
    ru_order_plan plan;
    ru_replay_row row = ru_replay_row_of("ten times nasnetalarge, tac alone", "plan_ms", true);
    row.timed = true;
    int64_t from = ru_clock_now().ns;
    RU_TRY(ru_plan_order(&in, r->arena, r->arena, &plan, err));
    row.ours = (double)(ru_clock_now().ns - from) * 1e-6;
    return ru_replay_add(r, &row, err);
}

/* Four workers at one server: how much later than the first the last worker ends. */
static ru_status straggle(ru_replay *r, rui_replay_input *g, ru_err *err)
{
    char name[96];
    ru_text t = ru_text_into(name, sizeof name);
    ru_text_putf(&t, "%s, 4 workers", g->name);
    ru_replay_row row = ru_replay_row_of(name, "straggle_percent", true);
    ru_order_plan plan, fixed;
    random_mean random;
    rui_replay_set_f64(g, "ratio", 1);
    rui_replay_set_u32(g, "workers", 4);
    RU_TRY(plan_by(r, g, RU_ORDER_BEST, 1, true, &plan, err));
    RU_TRY(plan_by(r, g, RU_ORDER_FIXED, 1, true, &fixed, err));
    RU_TRY(mean_of_random(r, g, seeds_of(r), &random, err));
    rui_replay_set_u32(g, "workers", 1);
    row.ours = 100 * (double)plan.straggle_ns / (double)plan.step_ns;
    ru_replay_baseline(r, &row, "random", 100 * random.straggle_s / random.step_s);
    ru_replay_baseline(r, &row, "fixed", 100 * (double)fixed.straggle_ns / (double)fixed.step_ns);
    row.goal = 100 * random.straggle_s / random.step_s / 4;
    return ru_replay_add(r, &row, err);
}

/* The line of a graph behind its name and number of transfers; empty: the file is not there. */
static ru_str known_line(ru_str all, const char *name)
{
    for (ru_str line; ru_str_next(&all, '\n', &line);) {
        ru_str word;
        if (ru_str_next(&line, ' ', &word) && ru_str_eq_c(word, name) &&
            ru_str_next(&line, ' ', &word)) {
            return line;
        }
    }
    return (ru_str){0};
}

static ru_status replay_profiles(ru_replay *r, const char *folder, rui_replay_input *graphs,
                                 ru_err *err)
{
    char *text = NULL;
    int64_t size = 0;
    ru_err unused;
    bool second = ru_file_read(RU_SOURCE_BENCH "/order_ranks.txt", 1 << 20, r->arena, &text, &size,
                               &unused) == RU_OK;
    double gap = 0, equal = 0;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(profiles); i++) {
        const char *path = ru_arena_printf(r->arena, "%s/%s.graph.txt", folder, profiles[i]);
        RU_TRY(rui_replay_load(r, &ru_policy_order, path, profiles[i], &graphs[i], err));
        ru_str line = second ? known_line(ru_str_n(text, size), profiles[i]) : (ru_str){0}, word;
        double tac = RU_NAN;
        bool has = ru_str_next(&line, ' ', &word) && ru_str_next(&line, ' ', &word) &&
                   ru_str_f64(word, &tac),
             same = false;
        RU_TRY(cell(r, &graphs[i], 1, tac, &gap, err));
        if (strcmp(profiles[i], "inception_v3") == 0) {
            RU_TRY(cell(r, &graphs[i], 0.5, RU_NAN, &gap, err));
            RU_TRY(cell(r, &graphs[i], 2, RU_NAN, &gap, err));
        }
        if (has) {
            RU_TRY(same_ranks(r, &graphs[i], line, &same, err));
        }
        equal += same ? 1 : 0;
    }
    ru_replay_row row =
        ru_replay_row_of("largest distance from published E", "efficiency_gap", true);
    row.ours = gap;
    row.goal = 0.01;
    RU_TRY(ru_replay_add(r, &row, err));
    if (second) {
        row = ru_replay_row_of("TIC and TAC ranks equal to a second implementation's", "graphs",
                               false);
        row.ours = equal;
        row.goal = RU_ARRAY_LEN(profiles);
        RU_TRY(ru_replay_add(r, &row, err));
    }
    return RU_OK;
}

static ru_status replay_operators(ru_replay *r, const char *folder, ru_err *err)
{
    static const char *const names[] = {
        "OperatorGraphs-bert_l-3_inference", "OperatorGraphs-bert_l-6_inference",
        "OperatorGraphs-bert_l-12_inference", "OperatorGraphs-resnet50_inference"};
    double unused = 0;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(names); i++) {
        rui_replay_input g;
        const char *path = ru_arena_printf(r->arena, "%s/latency/%s.json.gz", folder, names[i]);
        RU_TRY(rui_replay_load(r, &ru_policy_order, path, names[i] + strlen("OperatorGraphs-"), &g,
                               err));
        RU_TRY(cell(r, &g, 1, RU_NAN, &unused, err));
    }
    return RU_OK;
}

static rui_replay_input *find(rui_replay_input *graphs, const char *name)
{
    uint32_t i = 0;
    while (strcmp(graphs[i].name, name) != 0) {
        i++;
    }
    return &graphs[i];
}

ru_status rui_replay_order(ru_replay *r, ru_err *err)
{
    const char *folder = ru_replay_data(r, "pipedream-profiles");
    const char *operators = ru_replay_data(r, "operator-graphs");
    rui_replay_input graphs[RU_ARRAY_LEN(profiles)];
    if (folder == NULL || operators == NULL) {
        ru_replay_row row = ru_replay_row_of("no data", "efficiency", false);
        row.ours = RU_NAN;
        row.note = "RUBATO_DATA names no folder with pipedream-profiles and operator-graphs";
        return ru_replay_add(r, &row, err);
    }
    RU_TRY(replay_profiles(r, folder, graphs, err));
    RU_TRY(replay_operators(r, operators, err));
    for (uint32_t k = 0; k < RU_ARRAY_LEN(published); k++) {
        RU_TRY(gain(r, find(graphs, published[k].name), k, err));
    }
    RU_TRY(straggle(r, find(graphs, "resnet50"), err));
    RU_TRY(straggle(r, find(graphs, "inception_v3"), err));
    RU_TRY(timed(r, find(graphs, "nasnetalarge"), "nasnetalarge, 758 transfers", 20, err));
    return timed_tenfold(r, ru_arena_printf(r->arena, "%s/nasnetalarge.graph.txt", folder), err);
}
