/* The folder of a run with an app.
 *
 * Thread: one caller. */
#ifndef RU_TRAIN_APP_APP_DIR_H
#define RU_TRAIN_APP_APP_DIR_H

#include "env/file/claim.h"
#include "train/app/app_run.h"

typedef struct rui_app_dir {
    const char *out, *run; /* path; its last name */
    ru_claim *claim;
} rui_app_dir;

/* Choose, make and claim the folder with a job's key, and write job.yaml. `out` NULL:
 * runs/<name>-<number>, the next or (resume) the last. Errors: RU_E_USAGE when a run is there
 * already; RU_E_MISSING; RU_E_AGAIN.
 */
RU_MUST_USE ru_status rui_app_dir_open(rui_app_dir *d, const ru_app_train_options *opt,
                                       uint64_t key, ru_arena *arena, ru_err *err);
void rui_app_dir_close(rui_app_dir *d);

#endif
