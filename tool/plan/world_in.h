/* What the commands around world files share: finding one, and the question that it holds for a
 * policy.
 *
 * Thread: main only. */
#ifndef RU_TOOL_WORLD_IN_H
#define RU_TOOL_WORLD_IN_H

#include "plan/row/policy.h"

/* The world file at `path`, of the run directory `path`, or of the server with that address.
 * Errors: those of rui_served_get, RU_E_MISSING, RU_E_CONFIG. */
RU_MUST_USE ru_status rui_world_open(const char *path, ru_arena *arena, ru_world *into,
                                     ru_err *err);
/* Add to `c` the input of the newest plan of `p` that the world holds (*plan, which may be NULL),
 * else the input that its facts give (*plan NULL then). Errors: RU_E_MISSING. */
RU_MUST_USE ru_status rui_world_question(const ru_world *w, const char *path, const ru_policy *p,
                                         ru_conf *c, ru_arena *arena, const ru_world_plan **plan,
                                         ru_err *err);
/* The policy of this name. Errors: RU_E_USAGE with the nearest one. */
RU_MUST_USE ru_status rui_policy_named(const char *name, const ru_policy **out, ru_err *err);

#endif
