/* `rubato explain RUN order`: of every op with parameters their rank, when they arrive and are
 * needed by the plan, and how long the op waits. Thread: main. */
#ifndef RU_TOOL_EXPLAIN_ORDER_H
#define RU_TOOL_EXPLAIN_ORDER_H

#include "base/tell.h"
#include "plan/net/order_policy.h"

RU_MUST_USE ru_status rui_explain_order(const ru_order_policy_in *input, const ru_order_plan *plan,
                                        ru_arena *arena, const ru_tell *out, ru_err *err);

#endif
