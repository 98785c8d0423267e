/* The input of the policy `moves` as its file has it (plan/crew/moves.h).
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_MOVES_POLICY_H
#define RU_PLAN_MOVES_POLICY_H

#include "base/conf.h"
#include "cost/load.h"
#include "plan/crew/moves.h"

typedef struct ru_moves_policy_object {
    int64_t on, home; /* -1: none */
    int64_t state_bytes, data_bytes, net_bytes;
    double cpu_s;
} ru_moves_policy_object;

typedef struct ru_moves_policy_pair {
    uint32_t executor, shard;
    int64_t bytes;
} ru_moves_policy_pair;

/* The planner's input comes first; its workers, objects and pairs follow from these. */
typedef struct ru_moves_policy_in {
    ru_moves_in q;
    RU_SECTIONS(ru_moves_worker) workers;
    RU_SECTIONS(ru_moves_policy_object) executors;
    RU_SECTIONS(ru_moves_policy_object) shards;
    RU_SECTIONS(ru_moves_policy_pair) local;
    RU_SECTIONS(ru_load_sample) samples;
    uint32_t nodes_max;
} ru_moves_policy_in;

#endif
