/* Inputs of the policies `save` and `recover` as their files have them, for owners that record what
 * they decided.
 *
 * Thread: any. */
#ifndef RU_PLAN_SAVE_POLICY_H
#define RU_PLAN_SAVE_POLICY_H

#include "base/conf.h"

/* The run without a failure, for the bound. */
typedef struct ru_save_policy_run {
    double rate, begin, iteration;
} ru_save_policy_run;

typedef struct ru_save_policy_in {
    ru_conf_f64s distance;
    double fraction, lost;
    uint32_t cursor, method;
    int64_t seed;
    ru_save_policy_run run;
} ru_save_policy_in;

typedef struct ru_recover_policy_block {
    bool lost;
    int64_t log_at, cache_at;
    double log_distance, cache_distance, start_distance;
} ru_recover_policy_block;

typedef struct ru_recover_policy_in {
    ru_conf_sections blocks; /* ru_recover_policy_block */
    uint32_t method;
    ru_save_policy_run run;
} ru_recover_policy_in;

#endif
