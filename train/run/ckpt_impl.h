/* What the writing and the reading half of checkpoints share.
 *
 * Thread: any. */
#ifndef RU_TRAIN_RUN_CKPT_IMPL_H
#define RU_TRAIN_RUN_CKPT_IMPL_H

#include "base/arena.h"

#define RUI_CKPT_NAME "%09lld" /* of the step; sorts by name up to a thousand million */
#define RUI_CKPT_TEMP ".tmp"

typedef struct rui_ckpt_entry {
    int64_t step;
    const char *name;
} rui_ckpt_entry;

/* Folders named by a step in `dir`, the newest first. Everything lives in `arena`. */
RU_MUST_USE ru_status rui_ckpt_list(const char *dir, ru_arena *arena, rui_ckpt_entry **out,
                                    uint32_t *n, ru_err *err);

#endif
