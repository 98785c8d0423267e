/* The world file of a run with an app: machine, job and plans, for `rubato explain`, `capture` and
 * the policies. What its steps took stands in its traces (train/driver/step_facts.h).
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_APP_APP_WORLD_H
#define RU_TRAIN_APP_APP_WORLD_H

#include "run/decisions.h"
#include "train/app/app_job.h"

typedef struct ru_app_world {
    const ru_app_job_file *file;
    const char *out;         /* folder of the run */
    ru_decisions *decisions; /* NULL: nothing was decided */
    uint32_t threads;
    int64_t samples, batch, clocks, parameters;
} ru_app_world;

/* Owner: in `arena`. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_app_world_get(const ru_app_world *a, ru_arena *arena, ru_world *out,
                                       ru_err *err);
/* Write it to OUT/world.json. What prevents that is a warning. */
void ru_app_world_put(const ru_app_world *a);

#endif
