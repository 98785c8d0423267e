/* Copying graphs: what every pass starts from.
 *
 * Thread: one. */
#ifndef RU_WORLD_COPY_IMPL_H
#define RU_WORLD_COPY_IMPL_H

#include "world/graph/graph.h"

/* Copy values (ids stay), symbols and inputs; neither nodes nor outputs nor updates. TEMP values
 * have no producer until their node is added. */
ru_status rui_copy_values(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err);
/* Copy outputs and updates. */
ru_status rui_copy_ends(const ru_graph *g, ru_graph *out, ru_err *err);
/* The whole graph; ids stay. */
ru_status rui_copy_graph(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err);

#endif
