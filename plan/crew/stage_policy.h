/* The input of the policy `stage` as its file has it (plan/crew/stage.h).
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_STAGE_POLICY_H
#define RU_PLAN_STAGE_POLICY_H

#include "base/conf.h"

typedef struct ru_stage_policy_in {
    uint32_t reliable, transient, partitions, blocks, clocks_max, method;
    double model_mb, read_mb, write_mb, touched, work_s, link_mb_per_s, serve_mb_per_s, block_mb;
    double notice_s, ratio_two, ratio_three;
    ru_conf_i64s holder, owner;
} ru_stage_policy_in;

#endif
