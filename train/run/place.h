/* A folder before a run uses it: whose it is, and what stands where the run writes.
 *
 * Thread: any. */
#ifndef RU_TRAIN_RUN_PLACE_H
#define RU_TRAIN_RUN_PLACE_H

#include "base/arena.h"
#include "base/status.h"

/* Refuse what a run would write through or wait at: a link, FIFO, device or folder under the name
 * of one of its files, anything but a folder (or a link to one) under the name of a folder. With
 * `fresh` also a folder that holds such files and is no run's: a run's has a signed lock
 * (env/claim.h). A folder that does not exist is fine. Errors: RU_E_CREATE; RU_E_USAGE for another
 * program's folder. */
RU_MUST_USE ru_status ru_run_place_check(const char *out, bool fresh, ru_arena *arena, ru_err *err);

#endif
