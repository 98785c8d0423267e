/* `rubato explain RUN pipe`: of every stage and link the time that the plan predicted, what the run
 * recorded, and the step that follows from it; with `--if` the step at other costs.
 *
 *   network=10Mbit | x0.5    rate of all links, or a factor on it
 *   worker3=x0.5             speed of worker 3
 *
 * The recorded durations of parts and transfers are played in the order of the schedule
 * (train/pipe/play.h): once as they are, which shows how well that predicts the recorded step, and
 * once changed. Thread: main. */
#ifndef RU_TOOL_EXPLAIN_PIPE_H
#define RU_TOOL_EXPLAIN_PIPE_H

#include "base/tell.h"
#include "plan/cut/pipe.h"
#include "trace/read/stages.h"

/* Records of the parts of the run at `path`: traces [n], and what they say together. None: *n is 0
 * or p stays as it is. */
RU_MUST_USE ru_status rui_explain_pipe_load(const char *path, ru_arena *arena, ru_trace **traces,
                                            uint32_t *n, ru_trace_pipe *p, ru_err *err);
/* Is this KEY=VALUE of `--if` for the stages, and not for the policy? */
bool rui_explain_pipe_is(const char *set);
/* `path`: of the run. `input`, `plan`: of the policy `pipe`; NULL: the job names its cut. `sets`
 * [n]: those that are for the stages. *shown: there are records of stages. Errors: RU_E_USAGE,
 * RU_E_MISSING when `sets` need records that the run lacks. */
RU_MUST_USE ru_status rui_explain_pipe(const char *path, const void *input,
                                       const ru_pipe_plan *plan, const char *const *sets,
                                       uint32_t n, ru_arena *arena, const ru_tell *out, bool *shown,
                                       ru_err *err);

#endif
