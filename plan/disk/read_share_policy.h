/* The input of the policy `read-share` as its file has it (plan/disk/read_share.h).
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_READ_SHARE_POLICY_H
#define RU_PLAN_READ_SHARE_POLICY_H

#include "base/conf.h"

typedef struct ru_read_share_policy_worker {
    const char *name;
    double need_mb_per_s, mb_per_s, outstanding_mb, stall_s, late_s;
} ru_read_share_policy_worker;

typedef struct ru_read_share_policy_in {
    ru_conf_sections workers; /* of ru_read_share_policy_worker */
    double seconds, capacity_mb_per_s;
    uint32_t windows, method;
    bool repairs;
} ru_read_share_policy_in;

#endif
