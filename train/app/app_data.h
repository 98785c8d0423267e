/* What every host of an app makes of a job's data, in one process (app_run.c) or in several
 * (train/worker/worker_app.c): set-up, checkpoint, figures of a clock.
 *
 * Thread: any; reading is shared. */
#ifndef RU_TRAIN_APP_APP_DATA_H
#define RU_TRAIN_APP_APP_DATA_H

#include "run/report.h"
#include "train/app/app_ckpt.h"

typedef struct ru_app_data {
    const ru_app_job_file *file;
    ru_sparse_file *train, *test; /* test NULL: not open, or the job has none */
    const char *words;            /* vocabulary, a word a line; NULL: none */
    uint32_t executors;
} ru_app_data;

/* The training data. Errors: those of the data; RU_E_CONFIG, fewer rows than executors; RU_E_MEM.
 */
RU_MUST_USE ru_status ru_app_data_open(const ru_app_job_file *f, ru_arena *arena, ru_app_data *d,
                                       ru_err *err);
/* The test data, if the job has any and the app can evaluate; open already: nothing. */
RU_MUST_USE ru_status ru_app_data_test(ru_app_data *d, ru_err *err);
void ru_app_data_close(ru_app_data *d); /* accepts zeroed memory */

ru_app_setup ru_app_data_setup(const ru_app_data *d);
ru_app_ckpt ru_app_data_ckpt(const ru_app_data *d, int64_t clock, int64_t items);
/* Rows of the data that so many clocks have worked on; pieces: clocks of a pass. */
int64_t ru_app_data_items(const ru_app_data *d, uint32_t pieces, int64_t clocks);
ru_run_report_step ru_app_data_step(const ru_app_data *d, uint32_t pieces, int64_t clock,
                                    double objective, int64_t took_ns);
/* Are all targets of train.until reached? */
bool ru_app_data_reached(const ru_app_data *d, double objective, const ru_metrics *metrics);

#endif
