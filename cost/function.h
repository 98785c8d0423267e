/* Time and price of training on functions: workers that end after a while and are billed by memory
 * and time, and what a step waits for when they exchange gradients through a store.
 *
 *   lives     = ceil(steps / floor((life - init - save) / step))
 *   seconds   = init + steps step + (lives - 1) (save + init)
 *   usd       = workers (GB usd_per_gb_s billed + lives usd_per_call) + hours store_usd_per_h
 *
 * Source: ali-2022-smlt for the system; that a life holds whole steps is ours. Thread: any, pure.
 */
#ifndef RU_COST_FUNCTION_H
#define RU_COST_FUNCTION_H

#include "base/status.h"

typedef struct ru_function_rules {
    double life_s;         /* a function ends after; 0: never */
    double init_s, save_s; /* start of a worker; checkpoint before its end */
    double usd_per_gb_s, usd_per_call, billing_step_s;
    double store_usd_per_h;
} ru_function_rules;

typedef struct ru_function_run {
    double seconds, usd;
    double lives; /* invocations of each worker */
} ru_function_run;

/* `steps` steps of step_s each. false: a step does not fit into a life, or the time is out of
 * range. */
bool ru_function_run_of(const ru_function_rules *r, double workers, double memory_mb, double steps,
                        double step_s, ru_function_run *out);

/* How workers exchange gradients. */
typedef enum ru_function_sync {
    RU_SYNC_SHARDED, /* every worker sums one shard, by way of the store (SMLT, ScatterReduce) */
    RU_SYNC_ALL,     /* every worker reads all others' gradients (Siren) */
    RU_SYNC_SERVER,  /* one parameter server (Cirrus) */
    RU_SYNC_LEADER,  /* one worker sums for all (AllReduce of LambdaML) */
    RU_SYNC_BLOCKS,  /* as sharded, in blocks that follow each other: sending and taking in overlap,
                        and a worker keeps its own pieces and sum (fleet/exchange/shards.h) */
} ru_function_sync;

typedef struct ru_function_net {
    double worker_bytes_per_s, store_bytes_per_s; /* store or parameter server */
    double latency_s;                             /* of an operation */
    double operations_per_s;                      /* of the store; 0: no limit */
    double add_bytes_per_s;                       /* of who sums; 0: no limit */
    double blocks;                                /* of RU_SYNC_BLOCKS */
} ru_function_net;

/* Seconds of one exchange of `bytes` of gradients among `workers`. */
double ru_function_sync_s(ru_function_sync how, const ru_function_net *net, double workers,
                          double bytes);

#endif
