/* What all workers of a job must agree on, for ru_member_options.
 *
 * Thread: any. */
#ifndef RU_TRAIN_WORKER_AGREE_H
#define RU_TRAIN_WORKER_AGREE_H

#include "train/driver/trainer_impl.h"
#include "train/worker/worker.h"

/* The text lives in `arena`. `first_step`: steps done before. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_worker_agreed(const rui_trainer *t, const ru_worker_options *opt,
                                       int64_t first_step, ru_arena *arena, const char **out,
                                       ru_err *err);

#endif
