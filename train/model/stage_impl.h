/* Inside of the cutters of a step.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_MODEL_STAGE_IMPL_H
#define RU_TRAIN_MODEL_STAGE_IMPL_H

#include "train/model/stage.h"

/* Who divides the nodes of a bound model, and what people call it. */
typedef struct rui_cutting {
    /* part_of [g->n_nodes], n parts: values go from lower to higher ones. held: of
     * ru_pass_part_edges, parameters that learn */
    ru_status (*find)(void *self, const ru_graph *g, const bool *held, ru_arena *arena,
                      uint32_t **part_of, uint32_t *n, ru_err *err);
    void *self;
    const char *key, *part; /* "train.pipeline.cut", "stage" */
} rui_cutting;

RU_MUST_USE ru_status rui_stages_cut(const ru_graph *model, const ru_step_options *opt,
                                     const rui_cutting *how, ru_arena *arena, ru_stages *out,
                                     ru_err *err);
/* Is `name` that of the layer, or of something in it? */
bool rui_layer_has(const char *layer, const char *name);
/* Layers with states, for who named one that is not there. */
const char *rui_layer_names(const ru_graph *g, ru_arena *arena);

#endif
