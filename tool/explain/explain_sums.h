/* `rubato explain RUN sums`: of every gradient its rank, when it is ready, arrives and is needed,
 * as the plan predicts it and as the run recorded it, and which worker began its sum last.
 * Thread: main. */
#ifndef RU_TOOL_EXPLAIN_SUMS_H
#define RU_TOOL_EXPLAIN_SUMS_H

#include "base/tell.h"
#include "plan/net/sums_policy.h"

/* `path`: of the run; a world file has no records. */
RU_MUST_USE ru_status rui_explain_sums(const char *path, const ru_sums_policy_in *input,
                                       const ru_sums_plan *plan, ru_arena *arena,
                                       const ru_tell *out, ru_err *err);

#endif
