/* `rubato explain`: the error of every predictor that acted in a run, against what is asked of
 * them: a median error of 5 % and a 95th percentile of 15 %. Thread: main. */
#ifndef RU_TOOL_EXPLAIN_ERRORS_H
#define RU_TOOL_EXPLAIN_ERRORS_H

#include "base/tell.h"
#include "trace/read/predicted.h"
#include "world/world.h"

/* `path`: of the run, whose newest records tell of sums and transfers, or of a world file. `ops`:
 * errors of the model of ops. */
RU_MUST_USE ru_status rui_explain_errors(const ru_world *w, const char *path,
                                         const ru_predictor_error *ops, ru_arena *arena,
                                         const ru_tell *out, ru_err *err);

#endif
