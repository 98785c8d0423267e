/* The input of the policy `reassign` as its file has it (plan/crew/reassign.h).
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_REASSIGN_POLICY_H
#define RU_PLAN_REASSIGN_POLICY_H

#include "base/conf.h"

typedef struct ru_reassign_policy_clock {
    ru_conf_f64s took_s;
} ru_reassign_policy_clock;

typedef struct ru_reassign_policy_in {
    ru_conf_sections history; /* of ru_reassign_policy_clock */
    ru_conf_i64s machines;
    uint32_t items, group_max, slack_max, backup, method;
    double tail;
    int64_t rtt_ns;
} ru_reassign_policy_in;

#endif
