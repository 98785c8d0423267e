/* The input of the policy `reassign` as its file has it (plan/crew/reassign.h).
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_REASSIGN_POLICY_H
#define RU_PLAN_REASSIGN_POLICY_H

#include "base/conf.h"
#include "plan/crew/reassign.h"

typedef struct ru_reassign_policy_clock {
    ru_conf_f64s took_s;
} ru_reassign_policy_clock;

/* The planner's input comes first; its n, clocks and took follow from the history. */
typedef struct ru_reassign_policy_in {
    ru_reassign_in q;
    RU_SECTIONS(ru_reassign_policy_clock) history;
} ru_reassign_policy_in;

#endif
