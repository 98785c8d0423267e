/* A fleet of burst/fleet.h on this machine: each burstable machine is a command in a control group
 * whose vCPUs are parts of a core, and another command spreads the requests over them.
 *
 *   FOLDER/periods.jsonl   a line for each period that ended (rubato.fleet/1)
 *   FOLDER/machines        a line for each machine that serves: number, type, requests a second
 *
 * A period begins with the start of its new machines; then `spread` is asked until it ends with 0,
 * and only then those that are in no plan get SIGTERM. No machine outlives this process. What the
 * machines of a killed one had started ends when the next one begins.
 *
 * Thread: main. */
#ifndef RU_BURST_FLEET_RUN_H
#define RU_BURST_FLEET_RUN_H

#include "burst/fleet.h"
#include "burst/source.h"

typedef struct ru_fleet_run_options {
    const char *name;           /* a word for control groups */
    const char *folder;         /* whole path */
    const char *start, *spread; /* lines for sh */
    double core;                /* of this machine, that a vCPU is */
    ru_source_options source;
    ru_fleet_options fleet;
    int64_t grace_ns;    /* from SIGTERM to SIGKILL */
    int64_t patience_ns; /* end after so long; 0: at a stop signal */
} ru_fleet_run_options;

/* Until a stop signal. Errors: RU_E_MISSING (log, control groups), RU_E_PERM, RU_E_AGAIN (another
 * process has the folder), RU_E_INFEASIBLE (no machines serve the first period). */
RU_MUST_USE ru_status ru_fleet_run(const ru_fleet_run_options *o, ru_arena *arena, ru_err *err);

#endif
