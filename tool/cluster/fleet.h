/* FLEET.yaml of `rubato cluster fleet`. Thread: main. */
#ifndef RU_TOOL_CLUSTER_FLEET_H
#define RU_TOOL_CLUSTER_FLEET_H

#include "burst/fleet_run.h"

/* Paths are as seen from the file. Errors: RU_E_MISSING, RU_E_CONFIG. */
RU_MUST_USE ru_status rui_fleet_load(const char *path, ru_arena *arena, ru_fleet_run_options *out,
                                     ru_err *err);

#endif
