/* What a step takes: tasks (ops and transfers) on servers (devices, streams, directions of a link),
 * tied by dependencies. Predicted by playing the step through, bounded by its longest path.
 *
 *   task      holds one lane of its server for ns; its followers may start latency_ns after its end
 *   server    starts, whenever a lane is free, the ready task of the smallest (rank, index); one
 *             that is `in_order` waits for the next by (rank, index) even if others are ready
 *   instant   all ends of an instant count, and tasks of 0 ns that can start then begin and end,
 *             before a longer task starts
 *
 * Source: graham-1969 (list scheduling).
 * Thread: any, pure. Unit: ns; sums of all times must stay below 2^61. */
#ifndef RU_COST_STEP_H
#define RU_COST_STEP_H

#include "cost/step/link.h"

enum { RU_STEP_TASKS_MAX = 1 << 24, RU_STEP_EDGES_MAX = 1 << 26 };

typedef struct ru_step_task {
    int64_t ns;         /* >= 0 */
    int64_t latency_ns; /* >= 0 */
    int64_t ready_ns;   /* >= 0: not before, whatever it depends on */
    int64_t rank;
    uint32_t server;
} ru_step_task;

typedef struct ru_step_edge {
    uint32_t from, to; /* indexes of tasks; no circle */
} ru_step_edge;

typedef struct ru_step_in {
    const ru_step_task *tasks; /* [n] */
    uint32_t n;
    const ru_step_edge *edges; /* [n_edges] */
    uint32_t n_edges;
    uint32_t n_servers;
    const uint32_t *lanes; /* [n_servers] tasks at a time, >= 1; NULL: one each */
    const bool *in_order;  /* [n_servers] NULL: none is */
} ru_step_in;

typedef struct ru_step_times {
    int64_t makespan_ns;     /* last end or arrival */
    const int64_t *start_ns; /* [n] */
    const int64_t *end_ns;   /* [n] start + ns; followers wait latency_ns more */
    const int64_t *busy_ns;  /* [n_servers] sum over its tasks */
    const uint32_t *order;   /* [n] tasks in the order of their starts */
} ru_step_times;

/* Play the step. Owner: arrays live in `out`. Cost: O((n + n_edges) log n) time, 60 n + 8 n_edges
 * bytes.
 * Errors: RU_E_ARG (an index or a time outside its bounds), RU_E_INFEASIBLE (a circle, or in_order
 * servers that wait for each other), RU_E_LIMIT. */
RU_MUST_USE ru_status ru_cost_step(const ru_step_in *in, ru_arena *out, ru_arena *scratch,
                                   ru_step_times *times, ru_err *err);

typedef struct ru_step_path {
    int64_t path_ns;        /* longest path, servers without limits: a bound of every makespan */
    int64_t busy_max_ns;    /* busiest server's time over its lanes: another */
    const int64_t *head_ns; /* [n] earliest possible start */
    const int64_t *tail_ns; /* [n] longest path from its start to the end of all: its urgency */
    const uint32_t *order;  /* [n] a topological order, smallest indexes first */
} ru_step_path;

/* Owner, Cost, Errors: as ru_cost_step; servers do not wait for each other here. */
RU_MUST_USE ru_status ru_cost_step_path(const ru_step_in *in, ru_arena *out, ru_arena *scratch,
                                        ru_step_path *path, ru_err *err);

#endif
