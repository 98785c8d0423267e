/* A simulated job made from a world file: workers, gradients, links and quotas of processor time as
 * its facts have them, durations as cost/step/op predicts them.
 *
 *   compute of n samples   sum over the op instances before the update, scaled to n
 *   gradient k             ready when the op that makes it has ended
 *   update                 sum over the op instances from the first that needs a gradient on
 *
 * Thread: one. */
#ifndef RU_LAB_SCRIPT_H
#define RU_LAB_SCRIPT_H

#include "lab/job.h"
#include "world/world.h"

/* What was assumed because no fact says it, and what the predictions expect to be off. */
typedef struct ru_sim_world {
    ru_script script;
    int64_t compute_ns;  /* predicted, of the share that the facts are of; without the update */
    double error;        /* expected of it, relative; the worst case: all ops off to one side */
    uint32_t measured;   /* op instances whose time was measured as they are */
    uint32_t n_ops;      /* 0: compute time of the step facts, in equal portions */
    double slower;       /* than alone: workers of a host want more cores than it has */
    int64_t path_ns;     /* a step: compute, sums and update as they wait for each other */
    bool link_given;     /* by job->nic */
    double link_error;   /* of a measured rate, relative: as far as measurements are apart */
    bool link_measured;  /* by collectives; else the interface of the cluster, else 10 Gbit/s */
    bool link_assumed;   /* between hosts, where there are several */
    uint32_t hosts;      /* on which the workers are */
    int64_t measured_ns; /* mean step of the facts; 0: none */
    bool quota;          /* a worker has one that it may use up; durations are processor time */
} ru_sim_world;

/* Fill `job` (zero what the caller does not set before: seed, steps, founders, per_host) for the
 * first job of the world; batch and nic, where they are not those of the facts. Workers are placed
 * as in the cluster: k on the host of its k-th device; more than it has, or with per_host set, so
 * many to a host. Those of a host share its interface and its cores. What `job` views lives in
 * `arena` and in `into`. Errors: RU_E_MISSING with the facts that are needed, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_sim_job_of_world(const ru_world *w, ru_arena *arena, ru_sim_job *job,
                                          ru_sim_world *into, ru_err *err);

#endif
