/* What the files of store/layers share. Thread: any. */
#ifndef RU_STORE_LAYERS_IMPL_H
#define RU_STORE_LAYERS_IMPL_H

#include "base/vec.h"
#include "store/layers.h"

RU_VEC(rui_layers, ru_layer)
RU_VEC(rui_layer_edges, ru_layer_edge)

ru_status rui_layers_operators(const char *path, ru_str text, ru_arena *arena, ru_layer_graph *g,
                               ru_err *err);

#endif
