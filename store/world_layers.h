/* A world file's contents from a profile of layers (store/layers.h): one job, one worker, the
 * forward and backward time of each layer, and a gradient for each layer with parameters. Thread:
 * any. */
#ifndef RU_STORE_WORLD_LAYERS_H
#define RU_STORE_WORLD_LAYERS_H

#include "base/str.h"
#include "world/world.h"

/* Samples of the step that a profile is of: it does not say, so they stand for parts of it. */
enum { RU_LAYERS_BATCH = 64 };

/* Owner: everything lives in `arena`. Errors: RU_E_DATA with path and place, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_world_of_layers(const char *path, ru_str text, ru_arena *arena,
                                         ru_world *into, ru_err *err);

#endif
