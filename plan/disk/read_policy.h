/* The input of the policy `read` as its file has it (plan/disk/read.h).
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_READ_POLICY_H
#define RU_PLAN_READ_POLICY_H

#include "base/conf.h"

typedef struct ru_read_policy_window {
    int64_t size;
    uint32_t depth;
    double seconds, mb_per_s, error, latency_ms, stall_s;
} ru_read_policy_window;

typedef struct ru_read_policy_in {
    int64_t sample, size_min, size_max, memory;
    uint32_t depth_min, depth_max, cores, method;
    uint32_t ahead_min, ahead_max;
    double need_mb_per_s, batch_mb, step_s, delivery_s, delivery_sd_s, gain_min, loss_max, try_s;
    int64_t seed;
    ru_conf_sections windows; /* of ru_read_policy_window */
} ru_read_policy_in;

#endif
