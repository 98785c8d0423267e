/* A model whose columns were normalised, as one that takes the numbers of the table.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_MODEL_INPUTS_H
#define RU_TRAIN_MODEL_INPUTS_H

#include "data/format/columns.h"
#include "world/graph/graph.h"

/* A copy of `g` that prepares its input itself, as c->missing (mean) and c->normalize say, one of
 * them at least: NaN becomes the mean of its column (0 for a category); then number - mean, times
 * 1 / std (0 where all numbers were equal). Other inputs of categories stay. Lives in `arena`; data
 * is view. Errors: RU_E_UNSUPPORTED when the graph has not one input of floats. */
RU_MUST_USE ru_status ru_model_normalizing(const ru_graph *g, const ru_columns *c, ru_arena *arena,
                                           ru_graph *out, ru_err *err);

/* What the inputs are, in their order, for people: "age, sex=male (1 or 0), ..."; at most `most` of
 * them. */
void ru_model_inputs_text(const ru_columns *c, uint32_t most, ru_text *out);

#endif
