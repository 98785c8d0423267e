/* The input of the policy `moves` as its file has it (plan/crew/moves.h).
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_MOVES_POLICY_H
#define RU_PLAN_MOVES_POLICY_H

#include "base/conf.h"

typedef struct ru_moves_policy_worker {
    double cores, bytes_per_s;
    int64_t memory_bytes;
    bool leaving;
} ru_moves_policy_worker;

typedef struct ru_moves_policy_object {
    int64_t on, home; /* -1: none */
    int64_t state_bytes, data_bytes, net_bytes;
    double cpu_s;
} ru_moves_policy_object;

typedef struct ru_moves_policy_pair {
    uint32_t executor, shard;
    int64_t bytes;
} ru_moves_policy_pair;

typedef struct ru_moves_policy_sample {
    uint32_t executor, worker;
    double took_s;
} ru_moves_policy_sample;

typedef struct ru_moves_policy_in {
    ru_conf_sections workers, executors, shards, local, samples;
    double iterations, noise;
    int64_t barrier_ns, pause_ns;
    uint32_t method, nodes_max;
} ru_moves_policy_in;

#endif
