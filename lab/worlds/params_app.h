/* The app of the tests of shared parameters (params_world.h).
 *
 * Thread: one. */
#ifndef RU_LAB_WORLDS_PARAMS_APP_H
#define RU_LAB_WORLDS_PARAMS_APP_H

#include "lab/worlds/params_world.h"

enum { RU_PARAMS_ITEMS = 13, RU_PARAMS_SLICED = 120 }; /* of an executor; with helpers */

typedef struct ru_params_app {
    const ru_params_job *job;
} ru_params_app;

/* An executor of the apps of params_app.c and params_item.c. `next`: step of the next task. */
typedef struct ru_params_state {
    const ru_params_app *app;
    uint32_t k, next;
    uint32_t list[RU_PARAMS_SLICED];
} ru_params_state;

ru_app_ops ru_params_ops(const ru_params_job *job);
/* Bounds of the counts, when changes of the clocks in `lost` [clocks, rows] may be missing, or in
 * it twice; exact: are missing. */
void ru_params_counts(const ru_params_job *job, const uint8_t *lost, bool exact, double *low,
                      double *high);
/* Clocks that are not said to be lost are in the counts, each once, and no other. Otherwise those
 * after the copy may be in it, too: shards merge at once, or have several rounds. */
bool ru_params_exact(const ru_params_job *job);
/* Rows of which it is known how often they were counted: of table 0; divided: and of table 1. */
uint32_t ru_params_counted(const ru_params_job *job);
/* params_item.c: its tables after all clocks are known. 0, or the number of a wrong float + 1. */
ru_app_ops ru_params_item_ops(const ru_params_job *job);
int64_t ru_params_item_wrong(const ru_params_job *job, const ru_params_result *r);
/* params_count.c: rows of its tables that are not what the states of all executors say. */
ru_app_ops ru_params_count_ops(const ru_params_job *job);
int64_t ru_params_count_wrong(const ru_params_job *job, float *const *table,
                              const ru_app_bytes *states);
/* Memory for a result's tables, zeros. */
void ru_params_tables(const ru_app_shape *s, ru_params_result *out);

#endif
