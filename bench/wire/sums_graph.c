/* The graphs of the benchmark of sums. */
#include <string.h>

#include "bench/wire/order.h"
#include "bench/wire/sums.h"
#include "env/file/file.h"

/* Gradients as they are made, the last op's first. */
static void put_grads(rui_sums_graph *to, const ru_layer_graph *g, const uint32_t *at)
{
    for (uint32_t i = g->n; i-- > 0;) {
        const ru_layer *l = &g->layers[at[i]];
        if (l->param_bytes >= 4) {
            to->bytes += l->param_bytes;
            to->grads[to->n_grads++] = (ru_sums_grad){.name = l->name,
                                                      .size_bytes = (int64_t)l->param_bytes,
                                                      .made = 2 * g->n - 1 - i,
                                                      .used = i};
        }
    }
}

ru_status rui_sums_graph_read(const char *path, ru_arena *arena, rui_sums_graph *to, ru_err *err)
{
    ru_layer_graph g;
    char *text;
    int64_t n;
    RU_TRY(ru_file_read(path, 64 << 20, arena, &text, &n, err));
    RU_TRY(ru_layers_read(path, ru_str_n(text, n), arena, &g, err));
    uint32_t *place = RU_NEW(arena, uint32_t, g.n), *at = RU_NEW(arena, uint32_t, g.n);
    *to = (rui_sums_graph){.n_steps = 2 * g.n,
                           .step_ns = RU_NEW(arena, double, 2 * (int64_t)g.n),
                           .grads = RU_NEW(arena, ru_sums_grad, g.n)};
    if (place == NULL || at == NULL || to->step_ns == NULL || to->grads == NULL) {
        return RU_FAIL(err, RU_E_MEM, "%s: no memory for %u layers", path, g.n);
    }
    RU_TRY(rui_order_sort(&g, arena, place, err));
    for (uint32_t i = 0; i < g.n; i++) {
        const ru_layer *l = &g.layers[i];
        bool loads = strncmp(l->name, "Input", 5) == 0;
        at[place[i]] = i;
        to->step_ns[place[i]] = loads ? 0 : l->forward_ms * 1e6;
        to->step_ns[to->n_steps - 1 - place[i]] = loads ? 0 : l->backward_ms * 1e6;
        to->natural_ns += loads ? 0 : (l->forward_ms + l->backward_ms) * 1e6;
    }
    put_grads(to, &g, at);
    return to->n_grads > 0 && to->natural_ns > 0
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA, "%s: no layer has parameters and takes time", path);
}
