/* Operator graphs: JSON, plain or compressed. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/map.h"
#include "store/gunzip.h"
#include "store/layers_impl.h"

bool ru_layers_are_operators(const char *path, ru_str text)
{
    if (ru_is_gzip(text)) {
        return ru_str_ends(ru_str_c(path), ".json.gz");
    }
    ru_str head = ru_str_n(text.p, text.n < 4096 ? text.n : 4096);
    return ru_str_starts(ru_str_trim(head), "{") && ru_str_find(head, "\"fpgaLatency\"") >= 0;
}

typedef struct item {
    const char *path, *what; /* "node", "edge" */
    size_t at;
    const json_t *o;
} item;

/* A number from 0 to 1e15, `def` where the key is missing (NaN: it must not be). */
static ru_status number(const item *i, const char *key, double def, double *out, ru_err *err)
{
    const json_t *v = json_object_get(i->o, key);
    double x = json_is_boolean(v) ? (json_is_true(v) ? 1.0 : 0.0)
               : v != NULL        ? json_number_value(v)
                                  : def;
    bool kind = v == NULL || json_is_number(v) || json_is_boolean(v);
    if (!kind || !(x >= 0) || x > 1e15) {
        return RU_FAIL(err, RU_E_DATA, "%s: %s %zu: '%s' must be a number from 0 to 1e15", i->path,
                       i->what, i->at, key);
    }
    *out = x;
    return RU_OK;
}

static ru_status read_node(const item *i, ru_map *ids, ru_arena *arena, rui_layers *into,
                           ru_err *err)
{
    double id, accelerated, backward, color;
    bool fresh;
    ru_layer *l = rui_layers_push(into, arena);
    RU_TRY(number(i, "id", RU_NAN, &id, err));
    RU_TRY(number(i, "supportedOnFpga", 1, &accelerated, err));
    RU_TRY(number(i, "isBackwardNode", 0, &backward, err));
    const json_t *name = json_object_get(i->o, "name");
    const json_t *colored = json_object_get(i->o, "colorClass");
    RU_TRY(number(i, "colorClass", 0, &color, err));
    uint64_t *at = ru_map_put_u64(ids, (uint64_t)id, &fresh);
    if (l == NULL || at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: not enough memory for the nodes", i->path);
    }
    if (!fresh) {
        return RU_FAIL(err, RU_E_DATA, "%s: node %zu: id %.0f appears twice", i->path, i->at, id);
    }
    *at = into->n - 1;
    l->id = ru_arena_printf(arena, "%.0f", id);
    l->name = ru_arena_str(arena, json_is_string(name) ? json_string_value(name) : l->id);
    l->accelerated = accelerated > 0;
    l->backward = backward > 0;
    l->color = colored != NULL ? (int64_t)color : -1;
    RU_TRY(number(i, "fpgaLatency", RU_NAN, &l->forward_ms, err));
    RU_TRY(number(i, "cpuLatency", 0, &l->cpu_ms, err));
    return number(i, "size", RU_NAN, &l->param_bytes, err);
}

static ru_status read_join(const item *i, const ru_map *ids, ru_arena *arena, rui_layer_edges *into,
                           ru_err *err)
{
    double from, to;
    RU_TRY(number(i, "sourceId", RU_NAN, &from, err));
    RU_TRY(number(i, "destId", RU_NAN, &to, err));
    const uint64_t *a = ru_map_get_u64(ids, (uint64_t)from);
    const uint64_t *b = ru_map_get_u64(ids, (uint64_t)to);
    if (a == NULL || b == NULL) {
        return RU_FAIL(err, RU_E_DATA, "%s: edge %zu: there is no node %.0f", i->path, i->at,
                       a == NULL ? from : to);
    }
    ru_layer_edge *e = rui_layer_edges_push(into, arena);
    if (e == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: not enough memory for the edges", i->path);
    }
    e->from = (uint32_t)*a;
    e->to = (uint32_t)*b;
    RU_TRY(number(i, "cost", 0, &e->ms, err));
    return number(i, "size", 0, &e->bytes, err);
}

static ru_status read_root(const char *path, const json_t *root, ru_arena *arena, ru_layer_graph *g,
                           ru_err *err)
{
    rui_layers layers = {0};
    rui_layer_edges edges = {0};
    ru_map ids;
    ru_map_init(&ids, arena, RU_LAYERS_MAX);
    const json_t *nodes = json_object_get(root, "nodes"), *joins = json_object_get(root, "edges");
    if (!json_is_array(nodes) || !json_is_array(joins) || json_array_size(nodes) < 1 ||
        json_array_size(nodes) > RU_LAYERS_MAX) {
        return RU_FAIL(err, RU_E_DATA, "%s: expected lists 'nodes' (1 to %d) and 'edges'", path,
                       RU_LAYERS_MAX);
    }
    for (size_t k = 0; k < json_array_size(nodes); k++) {
        item i = {path, "node", k, json_array_get(nodes, k)};
        RU_TRY(read_node(&i, &ids, arena, &layers, err));
    }
    for (size_t k = 0; k < json_array_size(joins); k++) {
        item i = {path, "edge", k, json_array_get(joins, k)};
        RU_TRY(read_join(&i, &ids, arena, &edges, err));
    }
    item whole = {path, "graph", 0, root};
    double accelerators, cpus, bytes;
    RU_TRY(number(&whole, "maxFPGAs", 1, &accelerators, err));
    RU_TRY(number(&whole, "maxCPUs", 1, &cpus, err));
    RU_TRY(number(&whole, "maxSizePerFPGA", 0, &bytes, err));
    *g = (ru_layer_graph){.layers = layers.at,
                          .n = layers.n,
                          .edges = edges.at,
                          .n_edges = edges.n,
                          .operators = true,
                          .accelerator_bytes = bytes,
                          .accelerators = (uint32_t)fmin(accelerators, 1e9),
                          .cpus = (uint32_t)fmin(cpus, 1e9)};
    return RU_OK;
}

ru_status rui_layers_operators(const char *path, ru_str text, ru_arena *arena, ru_layer_graph *g,
                               ru_err *err)
{
    if (ru_is_gzip(text)) {
        RU_TRY(ru_gunzip(path, text, arena, &text, err));
    }
    json_error_t problem;
    json_t *root = json_loadb(text.p, (size_t)text.n,
                              JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &problem);
    if (root == NULL) {
        return RU_FAIL(err, RU_E_DATA, "%s:%d: %s", path, problem.line, problem.text);
    }
    ru_status st = read_root(path, root, arena, g, err);
    json_decref(root);
    return st;
}
