/* Weights of another process as the source of a model's values (run/late.h): asked for in the order
 * that plan/net/order.h gives for the steps of the first executable.
 *
 * Thread: that of the executable. */
#ifndef RU_TRAIN_REMOTE_LATE_H
#define RU_TRAIN_REMOTE_LATE_H

#include "base/map.h"
#include "plan/net/order.h"
#include "train/remote/fetch.h"

typedef struct ru_remote_late {
    ru_late late; /* for ru_rundir.late */
    const char *address;
    ru_fetch *fetch;
    ru_order_method method;
    uint64_t seed; /* of random orders */
    ru_arena *arena;
    ru_map names;      /* tensor -> index */
    const ru_exe *exe; /* the first one */
    bool asked;
    /* What was asked for: ranks [n tensors], the plan and what it was made of. */
    const uint32_t *ranks, *read_by;
    ru_order_in in;
    ru_order_plan plan;
} ru_remote_late;

/* `l` must not move while it is used. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_remote_late_open(ru_fetch *fetch, const char *address,
                                          ru_order_method method, ru_arena *arena,
                                          ru_remote_late *l, ru_err *err);

/* What happened, as a world file: ops of the executable, which must have been profiled and be open,
 * and tensors with rank and times. `rubato explain FILE order` reads it. Errors: RU_E_IO,
 * RU_E_LIMIT.
 */
RU_MUST_USE ru_status ru_remote_record(const ru_remote_late *l, const char *path, ru_err *err);

#endif
