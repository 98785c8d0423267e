/* Layer profiles as inputs of the policy `pipe`. */
#include <math.h>
#include <stddef.h>

#include "store/layers.h"
#include "store/natural.h"

static bool is_profile(const char *path, ru_str text)
{
    return ru_layers_are_profile(path, text);
}

static void put_time(ru_json *j, const char *key, double ms)
{
    char time[32];
    ru_text t = ru_text_into(time, sizeof time);
    ru_text_putf(&t, "%lldns", (long long)floor(fmin(ms, 1e6) * 1e6 + 0.5));
    ru_json_str(j, key, time);
}

/* Layers that load samples are no part of a stage, nor are indexes whose result nobody reads. */
static uint32_t number_layers(const ru_layer_graph *g, uint32_t *reads, uint32_t *read_by,
                              uint32_t *place)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < g->n_edges; e++) {
        reads[g->edges[e].to]++;
        read_by[g->edges[e].from]++;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        ru_str name = ru_str_c(g->layers[i].name);
        bool out = (reads[i] == 0 && ru_str_starts(name, "Input")) ||
                   (read_by[i] == 0 && ru_str_starts(name, "__getitem__"));
        place[i] = out ? UINT32_MAX : n++;
    }
    return n;
}

static ru_status read_profile(const char *path, ru_str text, ru_arena *arena, ru_json *j,
                              ru_err *err)
{
    ru_layer_graph g;
    RU_TRY(ru_layers_read(path, text, arena, &g, err));
    uint32_t *reads = RU_NEW(arena, uint32_t, g.n), *read_by = RU_NEW(arena, uint32_t, g.n);
    uint32_t *first = RU_NEW(arena, uint32_t, (int64_t)g.n + 2);
    uint32_t *from = RU_NEW(arena, uint32_t, g.n_edges), *place = RU_NEW(arena, uint32_t, g.n);
    if (reads == NULL || read_by == NULL || first == NULL || from == NULL || place == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: no memory for %u layers", path, g.n);
    }
    if (number_layers(&g, reads, read_by, place) == 0) {
        return RU_FAIL(err, RU_E_DATA, "%s contains no layer besides its inputs", path);
    }
    for (uint32_t i = 0; i < g.n; i++) {
        first[i + 2] = first[i + 1] + reads[i];
    }
    for (uint32_t e = 0; e < g.n_edges; e++) {
        from[first[g.edges[e].to + 1]++] = place[g.edges[e].from];
    }
    ru_json_open(j, "layers", '[');
    for (uint32_t i = 0; i < g.n; i++) {
        const ru_layer *l = &g.layers[i];
        if (place[i] == UINT32_MAX) {
            continue;
        }
        ru_json_open(j, NULL, '{');
        ru_json_str(j, "name", l->id);
        put_time(j, "forward", l->forward_ms);
        put_time(j, "backward", l->backward_ms);
        ru_json_i64(j, "parameters", (int64_t)l->param_bytes);
        ru_json_i64(j, "activation", (int64_t)l->activation_bytes);
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

const ru_natural rui_natural_pipe_profile = {
    .policy = "pipe",
    .what = "layer profile: lines 'ID -- NAME -- forward_compute_time=ms, ...', edges 'ID -- ID'",
    .is = is_profile,
    .read = read_profile,
};
