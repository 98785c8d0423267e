/* Which job runs on which devices of a shared cluster, and with what batch.
 *
 * Method pollux gives every job the speedup over its fair share (goodput here / goodput on
 * devices / jobs of them) and takes the allocation with the largest power mean of these speedups.
 * The mean of power -1 adds up over jobs, so each job's loss is looked up by replicas and by
 * whether they lie on one node or several, and a search moves devices between jobs:
 *
 *   grow by whole steps of falling loss --> pack --> anneal: steal, take a node, reshape, reset
 *
 * A job whose devices change restarts: its speedup counts by the smaller of
 * max(age - restarts * restart_s, 0) / (age + restart_s) and 1 - restart_s / hold_s (up to three
 * times that for a job of three fair shares), where hold_s is no longer than the job goes on, if
 * that is known; one that does not run yet has nothing to restart.
 * A job that has had much service weighs less; so does one that says that it has much left. A job
 * of weight w weighs (w / mean w)^(1 - power): with this, jobs whose goodput grows with their
 * devices get devices in the ratio of their weights (the loss sum W / k is least where k is as the
 * root of W). At most one job that spans nodes may use a node, because their sums would share its
 * link.
 *
 * Source: qiao-2021 sec 4.2; gu-2019 (tiresias), peng-2018 (optimus). The search is ours instead of
 * the paper's genetic one. Thread: any. Pure: equal input gives equal bytes. */
#ifndef RU_PLAN_ALLOC_H
#define RU_PLAN_ALLOC_H

#include "cost/goodput.h"

enum {
    RU_ALLOC_JOBS_MAX = 1 << 16,
    RU_ALLOC_NODES_MAX = 1 << 16,
    RU_ALLOC_DEVICES_MAX = 64, /* of a node */
    RU_ALLOC_PARTS_MAX = 64    /* nodes of a job */
};
/* The most that the weight of a job is above or below the mean, and the most that all jobs weigh: a
 * larger sum is scaled down, so that the sum of losses, 1e12 at most each, stays within 64 bits. */
#define RU_ALLOC_WEIGHT_RATIO 100.0
#define RU_ALLOC_WEIGHTS_MAX  4e6

typedef enum ru_alloc_method {
    RU_ALLOC_POLLUX,
    RU_ALLOC_TIRESIAS, /* two queues by attained service, requested replicas, preempts */
    RU_ALLOC_OPTIMUS,  /* one replica each, then by the time that one more saves */
    RU_ALLOC_FIFO,     /* in order of arrival, never preempts, those that fit go ahead */
    RU_ALLOC_SRTF,     /* least remaining time first, preempts */
    RU_ALLOC_METHODS
} ru_alloc_method;

#define RU_ALLOC_METHOD_NAMES "pollux|tiresias|optimus|fifo|srtf" /* as keys choose them */

typedef struct ru_alloc_part {
    uint32_t node, devices;
} ru_alloc_part;

/* In order of arrival. */
typedef struct ru_alloc_job {
    ru_goodput_model model;              /* perf.overlap 0: not measured, speedup = replicas */
    uint32_t replicas_min, replicas_max; /* pollux, optimus; min or nothing */
    uint32_t replicas;                   /* what the user asked for: tiresias, fifo, srtf */
    double age_s, service_s;             /* since arrival; device-seconds so far */
    uint32_t restarts;                   /* so far, without the first start */
    double remaining;                    /* steps of batch `model.batch`, else of batch_first, that
                                            are left; 0: unknown. optimus, srtf: taken as 1. pollux:
                                            a restart must pay before they are done */
    double left;                         /* examples of batch_first that are left: pollux; 0:
                                            unknown */
    const double *step_s;                /* [n_step] measured time of a step on 1, 2, ... replicas
                                            that lie packed; NULL: by the model */
    uint32_t n_step;
    double weight;            /* pollux: beside the others; 0: 1 */
    uint32_t demoted;         /* tiresias: 0, or its place in the lower queue, from the
                                 plan before */
    const ru_alloc_part *now; /* [n_now] where it runs; n_now 0: it waits */
    uint32_t n_now;
} ru_alloc_job;

typedef struct ru_alloc_in {
    const ru_alloc_job *jobs;
    uint32_t n_jobs;
    const uint32_t *devices; /* [n_nodes] of each node; 0: takes no work (leaving, closed) */
    uint32_t n_nodes;
    double power;          /* of the mean, -2..1; -1: harmonic */
    double restart_s;      /* time of a restart */
    double hold_s;         /* a restart must pay within; 0: only the published factor counts */
    double decay, decay_s; /* a job of more device-seconds than decay_s weighs
                              (decay_s / service)^decay; 0: all weigh the same */
    double rush;           /* a job that says what is left weighs (decay_s / what that takes on its
                              fair share)^rush instead; 0: as if it said nothing */
    bool share_links;      /* several jobs that span nodes may use a node */
    uint32_t spread_max;   /* nodes of a job; 0: 16 */
    double demote_s;       /* tiresias: device-seconds of the upper queue; 0: 57600 */
    double time_price;     /* autoscaling: time costs as much as so many nodes; 0: by the band */
    double util_low,
        util_high; /* autoscaling of the paper: mean speedup of a device; 0 and 0: none */
    uint32_t nodes_min, nodes_max;
    uint64_t seed;
    uint32_t tries; /* moves of the search; 0: 400 (jobs + nodes), 400,000 at most. Fewer than 10
                       (jobs + nodes) find no way back from a worse allocation: then only better
                       ones are taken, and every second move is one of a job that waits */
    ru_alloc_method method;
} ru_alloc_in;

typedef struct ru_alloc_share {
    uint32_t first, n_parts;          /* of plan->parts, nodes rising */
    uint32_t replicas, local, passes; /* local 0: the batch is the job's own business */
    bool changed;                     /* from where it runs now */
    uint32_t demoted;
    double goodput; /* examples of batch_first a second; 0: not known, or it waits */
    double speedup; /* over its fair share */
} ru_alloc_share;

typedef struct ru_alloc_plan {
    const ru_alloc_share *jobs; /* [n_jobs] */
    const ru_alloc_part *parts; /* [n_parts] */
    uint32_t n_jobs, n_parts;
    uint32_t devices, used;
    int64_t loss; /* sum over jobs, 1e-9: what pollux makes small; 0 for other methods */
    /* Power mean of speedups, restarts counted; 1: fair shares. To each a thousandth of what a
     * node gives is added before and taken off after, so that a job that waits is not all. */
    double fitness;
    double utility;        /* sum of speedups over one replica / devices */
    uint32_t nodes_wanted; /* by autoscaling; else n_nodes */
} ru_alloc_plan;

const char *ru_alloc_method_name(ru_alloc_method m);
/* Does it give a job the replicas that it requested, or none? */
bool ru_alloc_fixed(ru_alloc_method m);

/* Owner: the plan lives in `out`. Cost: pollux looks up O(tries) losses; of each job and number of
 * replicas the best batch is searched once (cost/goodput.h).
 * Errors: RU_E_ARG for numbers outside the contract, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_alloc(const ru_alloc_in *in, ru_arena *out, ru_arena *scratch,
                                    ru_alloc_plan *plan, ru_err *err);

/* Is every device given once, within the bounds of each job, and are the figures those of the
 * model? pollux: no job alone can do better with devices that are free. Shares no code with the
 * planner. Errors: RU_E_INFEASIBLE, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_alloc_check(const ru_alloc_in *in, const ru_alloc_plan *plan,
                                          ru_arena *scratch, ru_err *err);

#endif
