/* `rubato explain`: times of op instances, by kernel and shapes, beside what the model of the
 * others predicts; `errors` of that model (n 0: it predicted none). Thread: main. */
#ifndef RU_TOOL_EXPLAIN_OPS_H
#define RU_TOOL_EXPLAIN_OPS_H

#include "base/tell.h"
#include "trace/read/predicted.h"
#include "world/world.h"

RU_MUST_USE ru_status rui_explain_ops(const ru_world *w, ru_arena *arena, const ru_tell *out,
                                      ru_predictor_error *errors, ru_err *err);

#endif
