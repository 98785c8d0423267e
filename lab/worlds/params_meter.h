/* Processor time and messages of one process of the simulator: stands between a link and its user.
 *
 * Thread: one. */
#ifndef RU_LAB_WORLDS_PARAMS_METER_H
#define RU_LAB_WORLDS_PARAMS_METER_H

#include "env/link/link.h"

typedef struct ru_params_meter {
    const ru_link_user *inner;
    ru_link_user outer;
    bool timed;     /* else frames alone: the clock is two calls of the kernel for each message */
    uint32_t depth; /* calls that are inside each other count once */
    int64_t since_ns;
    int64_t cpu_ns, frames; /* frames: that arrived */
} ru_params_meter;

/* What the link shall call in place of `user`. Owner: view of both. */
const ru_link_user *ru_params_meter_link(ru_params_meter *m, const ru_link_user *user);
/* Around work of the process that no link begins. */
void ru_params_meter_begin(ru_params_meter *m);
void ru_params_meter_end(ru_params_meter *m);

#endif
