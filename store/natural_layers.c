/* Layer profiles and operator graphs as inputs of the policies `order` and `sums`. */
#include <math.h>
#include <stddef.h>

#include "store/layers.h"
#include "store/natural.h"

static bool is_profile(const char *path, ru_str text)
{
    return ru_layers_are_profile(path, text);
}

static bool is_operators(const char *path, ru_str text)
{
    return ru_layers_are_operators(path, text);
}

/* "Input" layers of a profile load samples: no op of the step. */
static bool loads(const ru_layer_graph *g, uint32_t i)
{
    return !g->operators && ru_str_starts(ru_str_c(g->layers[i].name), "Input");
}

static void put_time(ru_json *j, const char *key, double ms)
{
    char time[32];
    ru_text t = ru_text_into(time, sizeof time);
    ru_text_putf(&t, "%lldns", (long long)floor(fmin(ms, 1e12) * 1e6 + 0.5));
    ru_json_str(j, key, time);
}

/* A forward op as `order` knows it, or with both passes as `sums` does. */
static void put_times(const ru_layer_graph *g, uint32_t i, bool both, ru_json *j)
{
    const ru_layer *l = &g->layers[i];
    put_time(j, both ? "forward" : "time", loads(g, i) ? 0 : l->forward_ms);
    if (both) {
        put_time(j, "backward", loads(g, i) ? 0 : l->backward_ms);
    }
}

/* What the worker receives for layer i. An operator graph counts all memory of a node alike; its
 * parameters are the nodes that compute nothing and read nothing. */
static double received(const ru_layer_graph *g, const bool *reads, uint32_t i)
{
    const ru_layer *l = &g->layers[i];
    bool param = !g->operators || (!reads[i] && l->forward_ms <= 0);
    return param ? l->param_bytes : 0;
}

static ru_status put_graph(const ru_layer_graph *g, bool both, const char *path, ru_arena *arena,
                           ru_json *j, ru_err *err)
{
    bool *reads = RU_NEW(arena, bool, g->n);
    uint32_t *first = RU_NEW(arena, uint32_t, (int64_t)g->n + 2);
    uint32_t *from = RU_NEW(arena, uint32_t, g->n_edges), *place = RU_NEW(arena, uint32_t, g->n);
    if (reads == NULL || first == NULL || from == NULL || place == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: no memory for %u layers", path, g->n);
    }
    double bytes = 0;
    uint32_t n = 0;
    for (uint32_t e = 0; e < g->n_edges; e++) {
        reads[g->edges[e].to] = true;
        first[g->edges[e].to + 2]++;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        first[i + 2] += first[i + 1];
        bytes += g->layers[i].backward ? 0 : received(g, reads, i);
        place[i] = g->layers[i].backward ? UINT32_MAX : n++; /* parameters are needed once */
    }
    for (uint32_t e = 0; e < g->n_edges; e++) {
        from[first[g->edges[e].to + 1]++] = place[g->edges[e].from];
    }
    if (bytes < 1) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s does not distinguish parameters from other memory: no node without "
                       "inputs and without time has a size",
                       path);
    }
    ru_json_open(j, "ops", '[');
    for (uint32_t i = 0; i < g->n; i++) {
        if (g->layers[i].backward) {
            continue;
        }
        ru_json_open(j, NULL, '{');
        ru_json_str(j, "name", g->layers[i].id);
        put_times(g, i, both, j);
        ru_json_i64(j, "parameters", (int64_t)received(g, reads, i));
        ru_json_open(j, "after", '[');
        for (uint32_t k = first[i]; k < first[i + 1]; k++) {
            if (from[k] != UINT32_MAX) {
                ru_json_i64(j, NULL, from[k]);
            }
        }
        ru_json_close(j);
        ru_json_close(j);
    }
    ru_json_close(j);
    return RU_OK;
}

static ru_status read_graph(const char *path, ru_str text, ru_arena *arena, ru_json *j, ru_err *err)
{
    ru_layer_graph g;
    RU_TRY(ru_layers_read(path, text, arena, &g, err));
    return put_graph(&g, false, path, arena, j, err);
}

/* Backward ops are nodes of their own there, and nothing says whose gradient they make. */
static ru_status refuse_passes(const char *path, ru_str text, ru_arena *arena, ru_json *j,
                               ru_err *err)
{
    (void)text;
    (void)arena;
    (void)j;
    return RU_FAIL(err, RU_E_DATA,
                   "%s is an operator graph, which does not show which op computes the gradient of "
                   "which parameter; expected a layer profile",
                   path);
}

static ru_status read_passes(const char *path, ru_str text, ru_arena *arena, ru_json *j,
                             ru_err *err)
{
    ru_layer_graph g;
    RU_TRY(ru_layers_read(path, text, arena, &g, err));
    return put_graph(&g, true, path, arena, j, err);
}

const ru_natural rui_natural_order_profile = {
    .policy = "order",
    .what = "layer profile: lines 'ID -- NAME -- forward_compute_time=ms, ...', edges 'ID -- ID'; "
            "forward pass only",
    .is = is_profile,
    .read = read_graph,
};

const ru_natural rui_natural_order_operators = {
    .policy = "order",
    .what = "operator graph: JSON with 'nodes' and 'edges', plain or .json.gz; forward pass on the "
            "accelerator, parameters are the nodes without inputs and time",
    .is = is_operators,
    .read = read_graph,
};

const ru_natural rui_natural_sums_profile = {
    .policy = "sums",
    .what =
        "layer profile: lines 'ID -- NAME -- forward_compute_time=ms, backward_compute_time=ms, "
        "...', edges 'ID -- ID'",
    .is = is_profile,
    .read = read_passes,
};

const ru_natural rui_natural_sums_operators = {
    .policy = "sums",
    .what =
        "Rubato refuses operator graphs, because they do not show which op computes which gradient",
    .is = is_operators,
    .read = refuse_passes,
};
