/* `rubato explain` of a run of a job with an app: the methods that its keys choose, and why a
 * method has made no plan. Thread: main. */
#ifndef RU_TOOL_EXPLAIN_APP_H
#define RU_TOOL_EXPLAIN_APP_H

#include "base/conf.h"
#include "base/tell.h"
#include "plan/row/policy.h"
#include "world/world.h"

/* The keys of the job of the run in folder `path`; *job NULL: it is no run of a job with an app.
 * Owner: `arena`. Errors: those of its job file. */
RU_MUST_USE ru_status rui_explain_app_open(const char *path, ru_arena *arena, ru_conf **job,
                                           ru_err *err);
/* A row for each decision of the job: its keys, and how many plans the run has. */
RU_MUST_USE ru_status rui_explain_app_methods(const ru_conf *job, const ru_world *w,
                                              ru_arena *arena, const ru_tell *out, ru_err *err);
/* Why a run of this job has no plan of the policy, one sentence; false: jobs with an app never ask
 * this policy. */
bool rui_explain_app_none(const ru_conf *job, const ru_world *w, const ru_policy *p,
                          const ru_tell *out);
/* Policy `reassign`: settings of its input that do what the job's keys say on so many workers, for
 * methods that make no plan; *n 0: there are none. Owner: `arena`. */
const char *const *rui_explain_app_reassign(const ru_conf *job, const ru_policy *p,
                                            uint32_t workers, ru_arena *arena, uint32_t *n);

#endif
