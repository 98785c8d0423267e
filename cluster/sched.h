/* Jobs of a cluster and the devices they run on, as a step machine: arrivals, nodes, plans and
 * reports in; starts, stops and goals out.
 *
 *   SUBMIT             a job waits
 *   NODE               a node has so many devices; 0: it is gone, and jobs on it stop
 *   PLAN               what plan/fleet/alloc.h decided, checked: jobs whose devices change stop and
 *                      start; with `resizes` those that have devices before and after go on
 *   REPORT             a job runs at this rate towards this goal (end of an epoch, of the job)
 *   END                a job is done, or taken back
 *   TIMER              time passes: restarts end, goals are reached; also when nobody asked for it
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

#include "env/event.h"
#include "plan/fleet/alloc.h"

#define RU_SCHED_OWNED UINT32_MAX /* market of a node that the cluster owns */

typedef struct ru_sched_spec {
    uint32_t jobs_max, nodes_max;
    int64_t restart_ns;  /* from new devices to the first step */
    int64_t quantum_ns;  /* goals are reached whole quanta after the last account, the nearest; 0:
                            when they are */
    uint32_t what_first; /* of its words */
    bool resizes;        /* a job grows and shrinks while it runs, and loses a node of several */
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
    bool resized; /* by the plan at hand */
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
    ru_time told;             /* when the timer was asked for */
} ru_sched;

/* Words (env/event.h), and what comes with them. Jobs have the caller's numbers. */
typedef enum ru_sched_word {
    RU_SCHED_SUBMIT, /* in, value: job */
    RU_SCHED_NODE,   /* in: ru_sched_change */
    RU_SCHED_PLAN,   /* in: ru_sched_grants */
    RU_SCHED_REPORT, /* in: ru_sched_report */
    RU_SCHED_END,    /* in, value: job */
    RU_SCHED_TIMER,
    RU_SCHED_STOP,    /* out, value: job: give up its devices */
    RU_SCHED_START,   /* out, value: job: on the devices of `jobs` */
    RU_SCHED_READY,   /* out, value: job: its restart has ended: report a rate */
    RU_SCHED_GOAL,    /* out, value: job: reached: report the next one, or end */
    RU_SCHED_REFUSED, /* out, value: SUBMIT of a job in use, NODE beyond nodes_max: nothing
                         happened */
    RU_SCHED_RESIZE,  /* out, value: job: it goes on with the devices of `jobs` */
    RU_SCHED_WORDS
} ru_sched_word;

typedef struct ru_sched_change {
    uint32_t node, devices, market, lease;
} ru_sched_change;

typedef struct ru_sched_grants {
    const ru_alloc_plan *plan; /* share i is that of job of[i] */
    const uint32_t *of;        /* [plan->n_jobs] */
} ru_sched_grants;

typedef struct ru_sched_report {
    uint32_t job;
    double rate, goal;
} ru_sched_report;

/* Owner: nodes and jobs live in `arena`; nothing is allocated later. Errors: RU_E_ARG, RU_E_LIMIT.
 */
RU_MUST_USE ru_status ru_sched_init(ru_sched *s, const ru_sched_spec *spec, ru_time now,
                                    ru_arena *arena, ru_err *err);
/* A plan must have passed ru_plan_alloc_check for the nodes of now. Cost: O(jobs). */
void ru_sched_step(ru_sched *s, const ru_event *ev, ru_effects *fx);
/* What the machine knows of a job for a plan at `now`, which is not before the last event: age,
 * service, restarts, places; the rest of `out` stays. Owner: out->now is a view until the next PLAN
 * or NODE. */
void ru_sched_facts(const ru_sched *s, uint32_t job, ru_time now, ru_alloc_job *out);

#endif
