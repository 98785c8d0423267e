/* `rubato explain FILE order`: tensors that were pulled while a model computed: rank, bytes, when
 * needed, when here, and how long a step waited; efficiency and largest speed-up of the order as
 * measured. Nothing for a world without them. Thread: main. */
#ifndef RU_TOOL_EXPLAIN_PULLED_H
#define RU_TOOL_EXPLAIN_PULLED_H

#include "base/tell.h"
#include "world/world.h"

RU_MUST_USE ru_status rui_explain_pulled(const ru_world *w, ru_arena *arena, const ru_tell *out,
                                         ru_err *err);

#endif
