/* A graph of ops as data, for a worker that computes nothing: each op takes a time, follows others
 * and may need a parameter that is pulled from elsewhere. One op runs at a time, in topological
 * order as they become ready, as plan/net/order.h plays it.
 *
 *   begin --next--> op runs --done--> next ...        arrived(op): what it needs is here
 *
 * Thread: any; plain data. */
#ifndef RU_LAB_WORLDS_SCRIPT_OPS_H
#define RU_LAB_WORLDS_SCRIPT_OPS_H

#include "base/arena.h"
#include "base/heap.h"
#include "cost/step/step.h"

typedef struct ru_script_ops {
    uint32_t n;                /* ops in topological order */
    const int64_t *op_ns;      /* [n] */
    const int64_t *need;       /* [n] bytes of the parameter that it needs; 0: none */
    const ru_step_edge *edges; /* [n_edges] from smaller to larger indexes */
    uint32_t n_edges;
} ru_script_ops;

typedef struct ru_script_ops_play {
    const ru_script_ops *ops;
    uint32_t *waits; /* [n] ops and parameters that it still waits for */
    uint32_t *out;   /* [n_edges] edges by their first op; [n + 1] where each begins */
    uint32_t *first;
    ru_heap ready;
    uint32_t n_done;
} ru_script_ops_play;

/* Memory for steps of these ops, in `arena`. Errors: RU_E_ARG for an edge backwards, RU_E_MEM. */
RU_MUST_USE ru_status ru_script_ops_open(const ru_script_ops *ops, ru_arena *arena,
                                         ru_script_ops_play *p, ru_err *err);
/* A step begins; nothing has arrived. */
void ru_script_ops_begin(ru_script_ops_play *p);
void ru_script_ops_arrived(ru_script_ops_play *p, uint32_t op);
/* The next op to run; false: all that is left waits, or nothing is left. */
bool ru_script_ops_next(ru_script_ops_play *p, uint32_t *op);
void ru_script_ops_done(ru_script_ops_play *p, uint32_t op);

#endif
