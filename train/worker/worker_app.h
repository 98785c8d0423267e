/* One worker process of a job with an app: the engine (train/engine/engine.h) on a loop, tasks and
 * files on threads of their own.
 *
 *   loop thread      membership, channel, engine
 *   compute threads  tasks, data, objects of checkpoints in OUT/params/<clock>-<generation>/
 *
 * The leader reports, and makes of each valid checkpoint one that eval, predict and export read
 * (train/app/app_ckpt.h). All workers share the run's folder.
 *
 * Thread: main, which becomes the loop thread. */
#ifndef RU_TRAIN_WORKER_WORKER_APP_H
#define RU_TRAIN_WORKER_WORKER_APP_H

#include "train/app/app_run.h"
#include "train/worker/worker.h"

typedef struct ru_app_worker_options {
    const ru_app_job_file *file;
    const ru_worker_options *worker; /* `train`: of it out, resume, json, quiet, columns,
                                        progress_lines */
    uint32_t threads;                /* compute threads; 0: one */
} ru_app_worker_options;

/* Work until the job ends or this worker left. Errors: those of the app, of data and disk;
 * RU_E_PEER when the job cannot be reached or put this worker out. */
RU_MUST_USE ru_status ru_app_worker_run(const ru_app_worker_options *opt, ru_arena *arena,
                                        ru_worker_result *out, ru_err *err);

#endif
