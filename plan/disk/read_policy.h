/* The input of the policy `read` as its file has it (plan/disk/read.h).
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_READ_POLICY_H
#define RU_PLAN_READ_POLICY_H

#include "base/conf.h"
#include "plan/disk/read.h"

typedef struct ru_read_policy_window {
    ru_read_window w; /* without what stands below */
    double mb_per_s, error_mb, latency_ms;
} ru_read_policy_window;

typedef struct ru_read_policy_in {
    ru_read_in q; /* without what stands below */
    double need_mb_per_s, batch_mb;
    ru_conf_sections windows; /* of ru_read_policy_window */
} ru_read_policy_in;

#endif
