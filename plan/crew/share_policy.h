/* The input of the policy `share` as its file has it (plan/crew/share.h).
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_SHARE_POLICY_H
#define RU_PLAN_SHARE_POLICY_H

#include "base/conf.h"

typedef struct ru_share_policy_in {
    int64_t batch;
    ru_conf_f64s speed; /* [n] */
    ru_conf_i64s now;   /* [n], or empty: no shares are in force */
    double gain_min;
    uint32_t method; /* 0: by speed, 1: equal */
} ru_share_policy_in;

#endif
