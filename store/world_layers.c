/* The list of a step: forward ops in the order of the profile's edges, then backward ones in
 * reverse, then the update, which takes no time. */
#include "store/world_layers.h"

#include <string.h>

#include "store/layers.h"

typedef struct lists {
    ru_op_fact *ops;
    ru_transfer_fact *transfers;
    int64_t *gradient_bytes;
    uint32_t n_ops, n_transfers;
    double all_ns;
} lists;

static ru_status full(const char *path, uint32_t n, ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "%s: no memory for %u layers", path, n);
}

/* Layers in an order in which each comes after what it reads, else by place in the file.
 * first [n + 2] and to [n_edges]: readers of each layer. */
static uint32_t sort(const ru_layer_graph *g, uint32_t *order, uint32_t *waits, uint32_t *first,
                     uint32_t *to)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < g->n_edges; e++) {
        waits[g->edges[e].to]++;
        first[g->edges[e].from + 2]++;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        first[i + 2] += first[i + 1];
    }
    for (uint32_t e = 0; e < g->n_edges; e++) {
        to[first[g->edges[e].from + 1]++] = g->edges[e].to;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        if (waits[i] == 0) {
            order[n++] = i;
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t e = first[order[k]]; e < first[order[k] + 1]; e++) {
            if (--waits[to[e]] == 0) {
                order[n++] = to[e];
            }
        }
    }
    return n;
}

static bool put_op(lists *l, const ru_layer *layer, const char *kind, double ms, ru_arena *arena)
{
    const char *name = ru_arena_printf(arena, "%s %s", layer->id, kind);
    l->ops[l->n_ops] = (ru_op_fact){.step = l->n_ops,
                                    .node = name,
                                    .op = layer->name,
                                    .kernel = kind,
                                    .shapes = name, /* each layer is of its own kind */
                                    .device_type = "profiled",
                                    .took = {.count = 1, .mean_ns = ms * 1e6}};
    l->all_ns += ms * 1e6;
    l->n_ops++;
    return name != NULL;
}

static bool put_ops(lists *l, const ru_layer_graph *g, const uint32_t *order, ru_arena *arena)
{
    bool fits = true;
    uint32_t update = 2 * g->n;
    for (uint32_t k = 0; k < g->n; k++) {
        const ru_layer *x = &g->layers[order[k]];
        bool loads = ru_str_starts(ru_str_c(x->name), "Input");
        fits = put_op(l, x, "forward", loads ? 0 : x->forward_ms, arena) && fits;
    }
    for (uint32_t k = g->n; k-- > 0;) {
        const ru_layer *x = &g->layers[order[k]];
        bool loads = ru_str_starts(ru_str_c(x->name), "Input");
        int64_t bytes = (int64_t)x->param_bytes / 4 * 4;
        if (bytes >= 4) {
            l->gradient_bytes[l->n_transfers] = bytes;
            l->transfers[l->n_transfers++] = (ru_transfer_fact){.name = x->id,
                                                                .from = "",
                                                                .to = "",
                                                                .size_bytes = bytes,
                                                                .made_by = l->n_ops,
                                                                .needed_by = update,
                                                                .used_by = k};
        }
        fits = put_op(l, x, "backward", loads ? 0 : x->backward_ms, arena) && fits;
    }
    const ru_layer last = {.id = "all", .name = "Update"};
    return put_op(l, &last, "update", 0, arena) && fits;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

ru_status ru_world_of_layers(const char *path, ru_str text, ru_arena *arena, ru_world *into,
                             ru_err *err)
{
    ru_layer_graph g;
    RU_TRY(ru_layers_read(path, text, arena, &g, err));
    lists l = {.ops = RU_NEW(arena, ru_op_fact, 2 * (int64_t)g.n + 1),
               .transfers = RU_NEW(arena, ru_transfer_fact, g.n),
               .gradient_bytes = RU_NEW(arena, int64_t, g.n)};
    uint32_t *order = RU_NEW(arena, uint32_t, g.n), *waits = RU_NEW(arena, uint32_t, g.n);
    uint32_t *first = RU_NEW(arena, uint32_t, (int64_t)g.n + 2);
    uint32_t *to = RU_NEW(arena, uint32_t, g.n_edges);
    ru_world_job *job = RU_NEW(arena, ru_world_job, 1);
    ru_step_fact *step = RU_NEW(arena, ru_step_fact, 1);
    if (l.ops == NULL || l.transfers == NULL || l.gradient_bytes == NULL || order == NULL ||
        waits == NULL || first == NULL || to == NULL || job == NULL || step == NULL) {
        return full(path, g.n, err);
    }
    if (sort(&g, order, waits, first, to) < g.n) {
        return RU_FAIL(err, RU_E_DATA, "%s: layers wait for each other in a circle", path);
    }
    if (!put_ops(&l, &g, order, arena)) {
        return full(path, g.n, err);
    }
    *job = (ru_world_job){.name = base_of(path),
                          .model = "",
                          .data = "",
                          .batch = RU_LAYERS_BATCH,
                          .gradient_bytes = {l.gradient_bytes, l.n_transfers}};
    *step = (ru_step_fact){.job = job->name,
                           .workers = 1,
                           .samples = RU_LAYERS_BATCH,
                           .batch = RU_LAYERS_BATCH,
                           .compute_ns = l.all_ns,
                           .took = {.count = 1, .mean_ns = l.all_ns}};
    *into = (ru_world){.jobs = {job, 1},
                       .facts = {.ops = {l.ops, l.n_ops},
                                 .transfers = {l.transfers, l.n_transfers},
                                 .steps = {step, 1}}};
    return RU_OK;
}
