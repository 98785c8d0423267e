/* Layer profiles: one line a layer, one line an edge. */
#include "store/layers.h"

#include <math.h>
#include <string.h>

#include "base/map.h"
#include "store/layers_impl.h"

static const char separator[] = " -- ";

/* The text before the separator, which is cut off with it; false: there is none. */
static bool cut(ru_str *rest, ru_str *head)
{
    int64_t at = ru_str_find(*rest, separator);
    if (at < 0) {
        return false;
    }
    *head = ru_str_n(rest->p, at);
    *rest = ru_str_from(*rest, at + (int64_t)strlen(separator));
    return true;
}

/* A number, or a list of numbers in brackets, summed. */
static bool read_sum(ru_str s, double *out)
{
    double sum = 0, v;
    if (ru_str_starts(s, "[") && ru_str_ends(s, "]")) {
        s = ru_str_n(s.p + 1, s.n - 2);
    }
    for (ru_str item; ru_str_next(&s, ';', &item);) {
        if (!ru_str_f64(ru_str_trim(item), &v) || !isfinite(v) || v < 0) {
            return false;
        }
        sum += v;
    }
    *out = sum;
    return sum <= RU_LAYERS_NUMBER_MAX;
}

/* The four numbers behind a layer's name. */
static ru_status read_fields(const char *path, uint32_t line, ru_str fields, ru_layer *l,
                             ru_err *err)
{
    const struct {
        const char *key;
        double *into;
    } want[] = {{"forward_compute_time", &l->forward_ms},
                {"backward_compute_time", &l->backward_ms},
                {"activation_size", &l->activation_bytes},
                {"parameter_size", &l->param_bytes}};
    uint32_t seen = 0;
    for (ru_str item; ru_str_next(&fields, ',', &item);) {
        item = ru_str_trim(item);
        for (uint32_t k = 0; k < RU_ARRAY_LEN(want); k++) {
            int64_t n = (int64_t)strlen(want[k].key);
            if (!ru_str_starts(item, want[k].key) || item.n <= n || item.p[n] != '=') {
                continue;
            }
            if (!read_sum(ru_str_from(item, n + 1), want[k].into)) {
                return RU_FAIL(err, RU_E_DATA, "%s:%u: %s is not a number from 0 to 1e15", path,
                               line, want[k].key);
            }
            seen |= 1u << k;
        }
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(want); k++) {
        if ((seen >> k & 1) == 0) {
            return RU_FAIL(err, RU_E_DATA, "%s:%u: the layer has no %s", path, line, want[k].key);
        }
    }
    return RU_OK;
}

typedef struct reader {
    const char *path;
    ru_arena *arena;
    ru_map ids;
    rui_layers layers;
    rui_layer_edges edges;
} reader;

static ru_status full(const char *path, ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "%s: not enough memory for the layers", path);
}

static ru_status read_layer(reader *r, uint32_t line, ru_str text, ru_err *err)
{
    ru_str id, name;
    if (!cut(&text, &id) || !cut(&text, &name)) {
        return RU_FAIL(err, RU_E_DATA, "%s:%u: expected 'ID -- NAME -- forward_compute_time=...'",
                       r->path, line);
    }
    if (r->layers.n == RU_LAYERS_MAX) {
        return RU_FAIL(err, RU_E_DATA, "%s: more than %d layers", r->path, RU_LAYERS_MAX);
    }
    bool fresh;
    uint64_t *at = ru_map_put(&r->ids, id, &fresh);
    ru_layer *l = rui_layers_push(&r->layers, r->arena);
    if (at == NULL || l == NULL) {
        return full(r->path, err);
    }
    if (!fresh) {
        return RU_FAIL(err, RU_E_DATA, "%s:%u: layer %.*s appears twice", r->path, line,
                       RU_STR_ARG(id));
    }
    *at = r->layers.n - 1;
    l->id = ru_arena_strn(r->arena, id.p, id.n);
    l->name = ru_arena_strn(r->arena, name.p, name.n);
    l->accelerated = true;
    l->color = -1;
    if (l->id == NULL || l->name == NULL) {
        return full(r->path, err);
    }
    return read_fields(r->path, line, text, l, err);
}

/* Edges may stand before their layers: only the second pass knows them all. */
static ru_status read_edge(reader *r, uint32_t line, ru_str text, ru_err *err)
{
    ru_str from;
    if (!cut(&text, &from)) {
        return RU_FAIL(err, RU_E_DATA, "%s:%u: expected an edge 'ID -- ID'", r->path, line);
    }
    const uint64_t *a = ru_map_get(&r->ids, from), *b = ru_map_get(&r->ids, text);
    if (a == NULL || b == NULL) {
        return RU_FAIL(err, RU_E_DATA, "%s:%u: there is no layer %.*s", r->path, line,
                       RU_STR_ARG(a == NULL ? from : text));
    }
    ru_layer_edge *e = rui_layer_edges_push(&r->edges, r->arena);
    if (e == NULL) {
        return full(r->path, err);
    }
    e->from = (uint32_t)*a;
    e->to = (uint32_t)*b;
    return RU_OK;
}

static ru_status read_lines(reader *r, ru_str text, bool edges, ru_err *err)
{
    uint32_t line = 1;
    for (ru_str row; ru_str_next(&text, '\n', &row); line++) {
        ru_str body = ru_str_trim(row);
        if (body.n > 0 && (row.p[0] == '\t') == edges) {
            RU_TRY(edges ? read_edge(r, line, body, err) : read_layer(r, line, body, err));
        }
    }
    return RU_OK;
}

bool ru_layers_are_profile(const char *path, ru_str text)
{
    (void)path;
    return ru_str_find(ru_str_n(text.p, text.n < 65536 ? text.n : 65536),
                       " -- forward_compute_time=") >= 0;
}

ru_status ru_layers_read(const char *path, ru_str text, ru_arena *arena, ru_layer_graph *g,
                         ru_err *err)
{
    if (ru_layers_are_operators(path, text)) {
        return rui_layers_operators(path, text, arena, g, err);
    }
    reader r = {.path = path, .arena = arena};
    ru_map_init(&r.ids, arena, RU_LAYERS_MAX);
    RU_TRY(read_lines(&r, text, false, err));
    RU_TRY(read_lines(&r, text, true, err));
    if (r.layers.n == 0) {
        return RU_FAIL(err, RU_E_DATA, "%s contains no layer", path);
    }
    *g = (ru_layer_graph){
        .layers = r.layers.at, .n = r.layers.n, .edges = r.edges.at, .n_edges = r.edges.n};
    return RU_OK;
}
