/* Sums of gradients on published layer profiles: the steady step of every method on a ring of four,
 * beside the figures of a prototype and the bound. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/replay/replay.h"
#include "bench/replay/replay_input.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "plan/net/sums_policy.h"
#include "store/layers.h"

static const char *const profiles[] = {
    "alexnet",      "densenet121",   "gnmt",          "gnmt_large", "inception_v3",
    "nasnetalarge", "nasnetamobile", "resnet101",     "resnet18",   "resnet50",
    "resnext101",   "resnext50",     "squeezenet1_0", "vgg16"};

/* Sums take as long as computing, or run over 1 Gbit/s; a sum of nothing takes alpha. */
typedef struct setting {
    const char *name;
    double ratio; /* 0: 1 Gbit/s */
    int64_t alpha_ns;
} setting;

static const setting settings[] = {
    {"1:1", 1, 250000}, {"1:1, 2 ms", 1, 2000000}, {"1 Gbit/s", 0, 250000}};

/* Of the prototype, ms. `goal`: step over bound that is asked for; 0: none. */
typedef struct known {
    const char *name;
    uint32_t setting;
    double serial, fifo, ddp, rule, best, goal;
} known;

static const known table[] = {
    {"resnet50", 0, 914, 653, 627, 470, 456, 1.06},
    {"resnet101", 0, 874, 661, 611, 439, 423, 0},
    {"inception_v3", 0, 1427, 1027, 980, 732, 704, 1.06},
    {"densenet121", 0, 713, 564, 554, 352, 337, 1.06},
    {"nasnetalarge", 0, 1506, 1257, 1071, 704, 677, 0},
    {"vgg16", 0, 1349, 911, 909, 709, 709, 0},
    {"resnet50", 1, 1101, 840, 636, 506, 485, 0},
    {"densenet121", 1, 1136, 988, 557, 388, 377, 0},
    {"nasnetamobile", 1, 2277, 2015, 913, 657, 621, 0},
    {"nasnetalarge", 1, 2833, 2584, 1096, 730, 712, 0},
    {"resnet50", 2, 1759, 1498, 1473, 1358, 1297, 0},
    {"densenet121", 2, 789, 640, 620, 432, 413, 0},
    {"vgg16", 2, 7653, 7215, 7212, 7327, 6981, 0},
    {"gnmt", 0, 182, 127, 127, 116, 114, 0},
};

static const char *const method_names[] = {"rule",    "none",   "serial", "fifo",         "ddp",
                                           "horovod", "mgwfbp", "p3",     "bytescheduler"};

static const known *known_of(const char *name, uint32_t k)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(table); i++) {
        if (strcmp(table[i].name, name) == 0 && table[i].setting == k) {
            return &table[i];
        }
    }
    return NULL;
}

/* Step in seconds; the plan's other figures where they are asked for. */
static ru_status step_by(rui_replay_input *g, uint32_t method, double *step_s, ru_sums_plan *plan,
                         ru_err *err)
{
    ru_arena out, scratch;
    ru_arena_init(&out, 0);
    ru_arena_init(&scratch, 0);
    ru_policy_tools tools = {&out, &scratch, NULL};
    ru_sums_plan p;
    rui_replay_set_u32(g, "method", method);
    ru_status st = ru_policy_sums.plan(g->u.in, &tools, &p, err);
    if (st == RU_OK) {
        st = ru_policy_sums.check(g->u.in, &p, &scratch, err);
        *step_s = (double)p.step_ns * 1e-9;
        *plan = p; /* arrays end with the arena: figures only */
    }
    ru_arena_fini(&scratch);
    ru_arena_fini(&out);
    return st;
}

/* Caramel where the backward pass keeps the order of the graph: the reverse of the forward pass, in
 * which baselines have it. */
static ru_status kept_order(rui_replay_input *g, double *step_s, ru_err *err)
{
    ru_sums_policy_in *in = (ru_sums_policy_in *)(void *)g->u.bytes;
    ru_arena out, scratch;
    ru_arena_init(&out, 0);
    ru_arena_init(&scratch, 0);
    const ru_policy_tools tools = {&out, &scratch, NULL};
    ru_sums_plan p;
    rui_replay_set_u32(g, "method", RU_SUMS_FIFO);
    ru_status st = ru_policy_sums.plan(in, &tools, &p, err);
    int64_t *made = st == RU_OK ? RU_NEW(&out, int64_t, in->ops.n) : NULL;
    for (uint32_t k = 0; made != NULL && k < in->ops.n; k++) {
        made[k] = p.backward[k];
    }
    if (made != NULL) {
        in->made = (ru_conf_i64s){made, in->ops.n};
        st = step_by(g, RU_SUMS_CARAMEL, step_s, &p, err);
        in->made = (ru_conf_i64s){0};
    } else if (st == RU_OK) {
        st = RU_FAIL(err, RU_E_LIMIT, "no memory for %u ops", in->ops.n);
    }
    ru_arena_fini(&scratch);
    ru_arena_fini(&out);
    return st;
}

static void use(rui_replay_input *g, const setting *s)
{
    rui_replay_set_u32(g, "ranks", 4);
    rui_replay_set_i64(g, "alpha", (s->alpha_ns + 3) / 6); /* a ring of four takes six steps */
    rui_replay_set_f64(g, "ratio", s->ratio);
    rui_replay_set_u32(g, "primitive", 1); /* ring */
    rui_replay_set_u32(g, "depth", 1);
}

typedef struct gaps {
    double serial, fifo, ddp, rule, best; /* largest |ours / note - 1| */
} gaps;

static void widen(double *gap, double ours_s, double known_ms)
{
    *gap = fmax(*gap, fabs(ours_s * 1e3 / known_ms - 1));
}

static ru_status add_gain(ru_replay *r, const char *name, const char *measure, double ours,
                          double published, double best_known, double goal, ru_err *err)
{
    ru_replay_row row = ru_replay_row_of(name, measure, false);
    row.ours = ours;
    row.published = published;
    row.best_known = best_known;
    row.goal = goal;
    return ru_replay_add(r, &row, err);
}

/* One graph in one setting: steps of all methods, in ms. `by` [methods]: seconds. */
static ru_status cell(ru_replay *r, rui_replay_input *g, uint32_t k, double *by, gaps *gap,
                      ru_err *err)
{
    char name[96];
    ru_text t = ru_text_into(name, sizeof name);
    ru_text_putf(&t, "%s, %s", g->name, settings[k].name);
    ru_replay_row row = ru_replay_row_of(name, "step_ms", true);
    ru_sums_plan plan, other;
    const known *want = known_of(g->name, k);
    use(g, &settings[k]);
    RU_TRY(step_by(g, RU_SUMS_CARAMEL, &by[0], &plan, err));
    row.ours = by[0] * 1e3;
    row.bound = (double)plan.bound_ns * 1e-6;
    for (uint32_t m = 1; m < RU_SUMS_METHODS; m++) {
        RU_TRY(step_by(g, m, &by[m], &other, err));
        ru_replay_baseline(r, &row, method_names[m - 1], by[m] * 1e3);
    }
    double kept_s;
    RU_TRY(kept_order(g, &kept_s, err));
    ru_replay_baseline(r, &row, "backward order kept", kept_s * 1e3);
    rui_replay_set_u32(g, "primitive", 4);
    double tree_s;
    RU_TRY(step_by(g, RU_SUMS_CARAMEL, &tree_s, &other, err));
    ru_replay_baseline(r, &row, "tree", tree_s * 1e3);
    if (want != NULL) {
        row.best_known = want->best;
        widen(&gap->serial, by[RU_SUMS_SERIAL], want->serial);
        widen(&gap->fifo, by[RU_SUMS_FIFO], want->fifo);
        widen(&gap->ddp, by[RU_SUMS_DDP], want->ddp);
        widen(&gap->rule, by[RU_SUMS_RULE], want->rule);
        widen(&gap->best, by[0], want->best);
    }
    if (want != NULL && want->goal > 0) {
        row.goal = want->goal * row.bound;
    }
    return ru_replay_add(r, &row, err);
}

/* What several algorithms and sums in flight add to the ring with one. */
static ru_status deep(ru_replay *r, rui_replay_input *g, ru_err *err)
{
    char name[96];
    ru_text t = ru_text_into(name, sizeof name);
    ru_text_putf(&t, "%s, 1:1, 2 ms, any algorithm, 8 in flight", g->name);
    ru_replay_row row = ru_replay_row_of(name, "step_ms", true);
    ru_sums_plan plan;
    double s;
    use(g, &settings[1]);
    RU_TRY(step_by(g, RU_SUMS_CARAMEL, &s, &plan, err));
    ru_replay_baseline(r, &row, "ring, 1 in flight", s * 1e3);
    rui_replay_set_u32(g, "primitive", 0);
    rui_replay_set_u32(g, "depth", 8);
    RU_TRY(step_by(g, RU_SUMS_DDP, &s, &plan, err));
    ru_replay_baseline(r, &row, "ddp", s * 1e3);
    RU_TRY(step_by(g, RU_SUMS_CARAMEL, &s, &plan, err));
    row.ours = s * 1e3;
    row.bound = (double)plan.bound_ns * 1e-6;
    return ru_replay_add(r, &row, err);
}

static ru_status add_gaps(ru_replay *r, const gaps *gap, ru_err *err)
{
    const struct {
        const char *name;
        double value;
    } rows[] = {{"serial", gap->serial},
                {"fifo", gap->fifo},
                {"ddp", gap->ddp},
                {"rule", gap->rule},
                {"best of the prototype, ours", gap->best}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        char name[96];
        ru_text t = ru_text_into(name, sizeof name);
        ru_text_putf(&t, "%s, largest distance from the prototype", rows[k].name);
        ru_replay_row row = ru_replay_row_of(name, "relative_gap", true);
        row.ours = rows[k].value;
        RU_TRY(ru_replay_add(r, &row, err));
    }
    return RU_OK;
}

static ru_status replay_graph(ru_replay *r, rui_replay_input *g, double (*by)[RU_SUMS_METHODS],
                              gaps *gap, ru_err *err)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(settings); k++) {
        RU_TRY(cell(r, g, k, by[k], gap, err));
    }
    return RU_OK;
}

static ru_status add_gains(ru_replay *r, const char *graph, double (*by)[RU_SUMS_METHODS],
                           ru_err *err)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(settings); k++) {
        char name[96];
        ru_text t = ru_text_into(name, sizeof name);
        ru_text_putf(&t, "%s, %s", graph, settings[k].name);
        const known *want = known_of(graph, k);
        double ddp = want != NULL ? want->ddp / want->best : RU_NAN;
        RU_TRY(add_gain(r, name, "speedup_over_ddp", by[k][RU_SUMS_DDP] / by[k][0], RU_NAN, ddp,
                        0.98, err));
    }
    return RU_OK;
}

static ru_status timed(ru_replay *r, rui_replay_input *g, ru_err *err)
{
    ru_replay_row row = ru_replay_row_of("nasnetalarge, 1:1", "plan_ms", true);
    row.timed = true;
    double s;
    ru_sums_plan plan;
    use(g, &settings[0]);
    int64_t from = ru_clock_now().ns;
    RU_TRY(step_by(g, RU_SUMS_CARAMEL, &s, &plan, err));
    row.ours = (double)(ru_clock_now().ns - from) * 1e-6;
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
    uint32_t copies = 10, n_edges = 0, n = g.n * copies;
    int64_t *ns = RU_NEW(r->arena, int64_t, (int64_t)n * 3);
    ru_step_edge *edges = RU_NEW(r->arena, ru_step_edge, ((int64_t)g.n_edges + 1) * copies);
    if (ns == NULL || edges == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u copies of %s", copies, path);
    }
    for (uint32_t c = 0; c < copies; c++) {
        for (uint32_t i = 0; i < g.n; i++) {
            ns[c * g.n + i] = (int64_t)(g.layers[i].forward_ms * 1e6);
            ns[n + c * g.n + i] = (int64_t)(g.layers[i].backward_ms * 1e6);
            ns[2 * n + c * g.n + i] = (int64_t)g.layers[i].param_bytes;
        }
        for (uint32_t e = 0; e < g.n_edges; e++) {
            edges[n_edges++] = (ru_step_edge){c * g.n + g.edges[e].from, c * g.n + g.edges[e].to};
        }
        if (c > 0) {
            edges[n_edges++] = (ru_step_edge){c * g.n - 1, c * g.n};
        }
    }
    const ru_sums_in in = {.n = n,
                           .forward_ns = ns,
                           .backward_ns = ns + n,
                           .param_bytes = ns + 2 * n,
                           .edges = edges,
                           .n_edges = n_edges,
                           .n_ranks = 4,
                           .alpha_ns = 41667,
                           .beta_ns = 1,
                           .algos = 1u << RU_ALGO_RING,
                           .depth_max = 1};
    ru_sums_plan plan;
    ru_replay_row row = ru_replay_row_of("ten times nasnetalarge", "plan_ms", true);
    row.timed = true;
    int64_t from = ru_clock_now().ns;
    RU_TRY(ru_plan_sums(&in, r->arena, r->arena, &plan, err));
    row.ours = (double)(ru_clock_now().ns - from) * 1e-6;
    return ru_replay_add(r, &row, err);
}

ru_status rui_replay_sums(ru_replay *r, ru_err *err)
{
    const char *folder = ru_replay_data(r, "pipedream-profiles");
    double by[RU_ARRAY_LEN(profiles)][RU_ARRAY_LEN(settings)][RU_SUMS_METHODS];
    rui_replay_input graphs[RU_ARRAY_LEN(profiles)];
    gaps gap = {0};
    if (folder == NULL) {
        ru_replay_row row = ru_replay_row_of("no data", "step_ms", true);
        row.ours = RU_NAN;
        row.note = "RUBATO_DATA names no folder with pipedream-profiles";
        return ru_replay_add(r, &row, err);
    }
    for (uint32_t i = 0; i < RU_ARRAY_LEN(profiles); i++) {
        const char *path = ru_arena_printf(r->arena, "%s/%s.graph.txt", folder, profiles[i]);
        RU_TRY(rui_replay_load(r, &ru_policy_sums, path, profiles[i], &graphs[i], err));
        RU_TRY(replay_graph(r, &graphs[i], by[i], &gap, err));
    }
    RU_TRY(add_gaps(r, &gap, err));
    for (uint32_t i = 0; i < RU_ARRAY_LEN(profiles); i++) {
        RU_TRY(add_gains(r, profiles[i], by[i], err));
    }
    uint32_t large = 5; /* nasnetalarge */
    RU_TRY(add_gain(r, "nasnetalarge, 1:1, 2 ms", "speedup_over_serial",
                    by[large][1][RU_SUMS_SERIAL] / by[large][1][0], 3.62, 4.0, 3.62, err));
    RU_TRY(deep(r, &graphs[large], err));
    RU_TRY(deep(r, &graphs[9], err));
    RU_TRY(timed(r, &graphs[large], err));
    return timed_tenfold(r, ru_arena_printf(r->arena, "%s/nasnetalarge.graph.txt", folder), err);
}
