/* A service with processor credits, from its file.
 *
 * Thread: main. */
#ifndef RU_TOOL_CLUSTER_BURST_H
#define RU_TOOL_CLUSTER_BURST_H

#include "burst/service.h"

/* Read SERVICE.yaml; paths are as seen from it. Owner: `arena`. Errors: RU_E_MISSING, RU_E_CONFIG.
 */
RU_MUST_USE ru_status rui_burst_load(const char *path, ru_arena *arena, ru_burst_options *out,
                                     ru_err *err);

#endif
