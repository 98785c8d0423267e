/* What services and fleets with credits asked their policies last, for `rubato capture`: plans of
 * `burst` and `burst-fleet` from the files that their owners leave.
 *
 * Thread: main. */
#ifndef RU_TOOL_CLUSTER_CAPTURED_H
#define RU_TOOL_CLUSTER_CAPTURED_H

#include "base/arena.h"
#include "world/world.h"

/* Is it the folder of a service (windows.jsonl) or a fleet (periods.jsonl)? */
bool rui_captured_is(const char *folder, ru_arena *arena);
/* Its last plan. Errors: RU_E_MISSING when none was made yet. */
RU_MUST_USE ru_status rui_captured_plan(const char *folder, ru_arena *arena, ru_world_plan *out,
                                        ru_err *err);
/* Add those of services that the agents of a cluster pace, as far as this machine sees their
 * folders; others are named in a warning. */
RU_MUST_USE ru_status rui_captured_services(const char *cluster, ru_arena *arena, ru_world *w,
                                            ru_err *err);

#endif
