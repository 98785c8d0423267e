/* Layer profiles and operator graphs: any bytes give a graph whose edges join its layers, or an
 * error; what is read becomes inputs of the policies. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "store/layers.h"
#include "store/natural.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const ru_layer_graph *g)
{
    for (uint32_t e = 0; e < g->n_edges; e++) {
        if (g->edges[e].from >= g->n || g->edges[e].to >= g->n) {
            abort();
        }
    }
    for (uint32_t i = 0; i < g->n; i++) {
        if (!(g->layers[i].forward_ms >= 0) || !isfinite(g->layers[i].param_bytes)) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"g.txt", "g.json.gz"};
    static const char *const policies[] = {"order", "sums"};
    ru_str text = ru_str_n((const char *)data, (int64_t)size);
    for (uint32_t k = 0; k < 2; k++) {
        ru_arena arena;
        ru_arena_init(&arena, 1 << 26);
        ru_layer_graph g;
        ru_err err;
        if (ru_layers_read(names[k], text, &arena, &g, &err) == RU_OK) {
            check(&g);
        }
        const ru_natural *kind = ru_natural_find(policies[k], names[k], text);
        ru_text out = ru_text_arena(&arena);
        ru_json j = ru_json_into(&out);
        ru_json_open(&j, NULL, '{');
        if (kind != NULL && kind->read(names[k], text, &arena, &j, &err) != RU_OK) {
            ru_arena_fini(&arena);
            continue;
        }
        ru_json_close(&j);
        ru_arena_fini(&arena);
    }
    return 0;
}
