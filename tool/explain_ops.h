/* `rubato explain`: times of op instances, by kernel and shapes, beside what the model of the
 * others predicts. Thread: main. */
#ifndef RU_TOOL_EXPLAIN_OPS_H
#define RU_TOOL_EXPLAIN_OPS_H

#include "base/str.h"
#include "world/world.h"

RU_MUST_USE ru_status rui_explain_ops(const ru_world *w, ru_arena *arena, ru_text *out,
                                      ru_err *err);

#endif
