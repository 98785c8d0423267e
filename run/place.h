/* A folder before a run uses it: whose it is, and what stands where the run writes.
 *
 * Thread: any. */
#ifndef RU_RUN_PLACE_H
#define RU_RUN_PLACE_H

#include "base/arena.h"
#include "base/status.h"

/* Refuse what a run would write through or wait at: a link, FIFO, device or folder under the name
 * of one of its files, anything but a folder (or a link to one) under the name of a folder. With
 * `fresh` also a folder that holds such files and is no run's: a run's has a signed lock
 * (env/file/claim.h). A folder that does not exist is fine. Errors: RU_E_CREATE; RU_E_USAGE for
 * another program's folder. */
RU_MUST_USE ru_status ru_run_place_check(const char *out, bool fresh, ru_arena *arena, ru_err *err);

/* The folder of a run while it works: was it deleted meanwhile, or has a later start of the job
 * taken it? Zero but for `out`, `yaml` and `generation`. */
typedef struct ru_run_folder {
    const char *out, *yaml; /* of its job.yaml; views */
    bool had_job;           /* job.yaml was there once: on a later leader's host it may come late */
    bool was_deleted;
    uint32_t generation; /* of this start, as in OUT/generation at its beginning; 0: it has none */
} ru_run_folder;

bool ru_run_place_gone(ru_run_folder *f);
/* Before each checkpoint: make the folder anew, with job.yaml, when it was deleted; *anew says so.
 * Errors: RU_E_CREATE; RU_E_PERM when OUT/generation is above that of this start: it must not write
 * any more. */
RU_MUST_USE ru_status ru_run_place_restore(ru_run_folder *f, bool *anew, ru_err *err);
/* How a run ends whose folder was deleted; `step`: of its last checkpoint. Errors: RU_E_IO. */
RU_MUST_USE ru_status ru_run_place_kept(const ru_run_folder *f, int64_t step, ru_err *err);

#endif
