/* How long an iteration of over-partitioned work takes on each worker, from measured costs of its
 * executors and shards.
 *
 *   load of a worker = CPU time of its executors / cores + bytes on its link / rate
 *   an iteration     = the largest load + barrier
 *
 * Executors are not equal: costs are measured, never counted. A task's time mixes the executor's
 * cost with the worker's speed; ru_load_fit separates them.
 *
 * Source: litz-2018 (executors, shards); the model of an iteration is Rubato's.
 * Thread: any, pure. */
#ifndef RU_COST_LOAD_H
#define RU_COST_LOAD_H

#include "base/arena.h"

/* Unit: ns. Work of cpu_ns on one core, spread over `cores` (> 0), then net_bytes over a link of
 * bytes_per_s (> 0). At most 1e18. */
int64_t ru_load_ns(int64_t cpu_ns, double cores, int64_t net_bytes, double bytes_per_s);

/* One measured task. */
typedef struct ru_load_sample {
    uint32_t executor, worker;
    double took_s; /* > 0, of an iteration's work of that executor on one core of that worker */
} ru_load_sample;

/* Costs and speeds with took = cost / speed, in least squares of logarithms; a speed that nothing
 * separates from the costs is 1. An executor without a sample gets the mean cost.
 * Shape: cost_s [executors], speed [workers]; n >= 1. Cost: O(rounds (n + executors + workers)), at
 * most 200 rounds. Errors: RU_E_ARG for an index out of range or a time that is not positive,
 * RU_E_LIMIT. */
RU_MUST_USE ru_status ru_load_fit(const ru_load_sample *samples, uint32_t n, uint32_t executors,
                                  uint32_t workers, ru_arena *scratch, double *cost_s,
                                  double *speed, ru_err *err);

#endif
