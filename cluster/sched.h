/* Jobs of a cluster and the devices they run on, as a step machine: arrivals, nodes, plans and
 * reports in; starts, stops and goals out.
 *
 *   SUBMIT             a job waits
 *   NODE               a node has so many devices; 0: it is gone, and jobs on it stop
 *   PLAN               what plan/fleet/alloc.h decided, checked: jobs whose devices change stop and
 * start REPORT             a job runs at this rate towards this goal (end of an epoch, of the job)
 *   END                a job is done, or taken back
 *   TICK               time passes: restarts end, goals are reached
 *
 *   waits --PLAN--> restarts --restart_ns--> READY --REPORT--> runs --goal--> GOAL --REPORT--> ...
 *     ^                                                          |
 *     +------------------- PLAN without devices, node gone ------+
 *
 * Progress between reports is rate * time; each job's clock stands where its last account ended, so
 * a report that answers GOAL counts from the goal's instant on.
 *
 * Allocations of a market (cluster/market.h) fit in: k instances that were acquired are k NODE
 * events with `market` and `lease` (the number of the allocation); an eviction, or the end of a
 * paid hour, is a NODE event of 0 devices for every node of that lease (ru_sched_node has both).
 * Before the end of an hour the owner plans with 0 devices for the nodes that leave.
 *
 * Source: qiao-2021 sec 4.3 (states of a job). Thread: any. No clock and no memory of its own. */
#ifndef RU_CLUSTER_SCHED_H
#define RU_CLUSTER_SCHED_H

#include "env/clock.h"
#include "plan/fleet/alloc.h"

#define RU_SCHED_OWNED UINT32_MAX /* market of a node that the cluster owns */

typedef struct ru_sched_spec {
    uint32_t jobs_max, nodes_max;
    int64_t restart_ns; /* from new devices to the first step */
    int64_t quantum_ns; /* goals are reached whole quanta after the last account, the nearest; 0:
                           when they are */
} ru_sched_spec;

typedef struct ru_sched_node {
    uint32_t devices, used;
    uint32_t market, lease; /* RU_SCHED_OWNED, 0 */
} ru_sched_node;

typedef enum ru_sched_phase {
    RU_SCHED_NONE,
    RU_SCHED_WAITS,
    RU_SCHED_RESTARTS,
    RU_SCHED_RUNS
} ru_sched_phase;

typedef struct ru_sched_job {
    ru_sched_phase phase;
    ru_time arrived, since, ready; /* since: everything before is accounted */
    double progress, rate, goal;   /* rate: a second */
    int64_t service_ns;            /* of one device: exact, since limits are compared with it */
    uint32_t restarts;
    bool started; /* has had devices before */
    uint32_t demoted;
    uint32_t replicas, n_parts;
    ru_alloc_part parts[RU_ALLOC_PARTS_MAX];
} ru_sched_job;

typedef struct ru_sched {
    ru_sched_spec spec;
    ru_time now;
    ru_sched_node *nodes;     /* [nodes_max] */
    ru_sched_job *jobs;       /* [jobs_max] */
    uint32_t n_nodes, n_jobs; /* ever used: highest number + 1 */
} ru_sched;

typedef enum ru_sched_kind {
    RU_SCHED_SUBMIT,
    RU_SCHED_NODE,
    RU_SCHED_PLAN,
    RU_SCHED_REPORT,
    RU_SCHED_END,
    RU_SCHED_TICK
} ru_sched_kind;

typedef struct ru_sched_event {
    ru_time now; /* never falls */
    ru_sched_kind kind;
    uint32_t job;              /* SUBMIT, REPORT, END; numbers are the caller's */
    uint32_t node, devices;    /* NODE */
    uint32_t market, lease;    /* NODE */
    double rate, goal;         /* REPORT */
    const ru_alloc_plan *plan; /* PLAN: share i is that of job of[i] */
    const uint32_t *of;        /* [plan->n_jobs] */
} ru_sched_event;

typedef enum ru_sched_act {
    RU_SCHED_STOP,  /* give up its devices */
    RU_SCHED_START, /* on the devices of `jobs` */
    RU_SCHED_READY, /* the restart has ended: report a rate */
    RU_SCHED_GOAL   /* reached: report the next one, or end */
} ru_sched_act;

typedef struct ru_sched_effect {
    ru_sched_act act;
    uint32_t job;
} ru_sched_effect;

typedef struct ru_sched_effects {
    ru_sched_effect *at; /* [max] the caller's, 2 jobs_max at least */
    uint32_t n, max;
    bool refused; /* SUBMIT of a number in use, NODE beyond nodes_max: nothing happened */
} ru_sched_effects;

/* Owner: nodes and jobs live in `arena`; nothing is allocated later. Errors: RU_E_ARG, RU_E_LIMIT.
 */
RU_MUST_USE ru_status ru_sched_init(ru_sched *s, const ru_sched_spec *spec, ru_time now,
                                    ru_arena *arena, ru_err *err);
/* `out` is emptied first. A plan must have passed ru_plan_alloc_check for the nodes of now. Cost:
 * O(jobs) for TICK, NODE and PLAN, else O(1). */
void ru_sched_step(ru_sched *s, const ru_sched_event *ev, ru_sched_effects *out);
/* When a TICK has something to do; ns INT64_MAX: never. Cost: O(jobs). */
ru_time ru_sched_next(const ru_sched *s);
/* What the machine knows of a job for the next plan: age, service, restarts, places; the rest of
 * `out` stays. Owner: out->now is a view until the next PLAN or NODE. */
void ru_sched_facts(const ru_sched *s, uint32_t job, ru_alloc_job *out);

#endif
