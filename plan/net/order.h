/* In which order a worker receives the parameters of a step, so that its ops wait least.
 *
 *   link       |r0 |r1   |r2|r3     |        every op that has parameters waits for its transfer
 *   compute        |op 0 |op 1   |op 2 ...   and for the ops before it; one op at a time
 *
 * TIC looks at the graph alone: a transfer that belongs to the smallest group of transfers that an
 * op needs together goes first. TAC looks at times as well and sends, again and again, the transfer
 * that Johnson's rule for two machines puts first:
 *
 *   before(a, b):  min(P(b), M(a)) < min(P(a), M(b)), or equal and M+(a) < M+(b)
 *   M(r) time of the transfer; P(r) compute that waits for r alone; M+(r) least transfer time that
 *   an op needs which waits for r and others; P and M+ over the transfers that are not sent yet
 *
 * Neither is optimal: TAC takes its next step without looking further. BEST plays the step by every
 * method and takes the shortest. The other methods are baselines.
 *
 * Source: tictac-2019 sec 4 (TIC, TAC); johnson-1954; p3-2019 (slices); bytescheduler-2019
 * (partitions and credit). Thread: any, pure. */
#ifndef RU_PLAN_ORDER_H
#define RU_PLAN_ORDER_H

#include "cost/step/step.h"

typedef enum ru_order_method {
    RU_ORDER_BEST, /* the shortest step of all others, the earlier of equal ones */
    RU_ORDER_TAC,
    RU_ORDER_TIC,
    RU_ORDER_RANDOM,   /* every worker its own random order: what frameworks do by default */
    RU_ORDER_FIXED,    /* one random order for all */
    RU_ORDER_FIFO,     /* in the order of the input, in which ops are requested */
    RU_ORDER_LAYER,    /* layer by layer: by the longest chain of ops before it */
    RU_ORDER_REVERSE,  /* layer by layer from the end: the worst */
    RU_ORDER_SMALLEST, /* fewest bytes first */
    RU_ORDER_P3,       /* slices, in topological order */
    RU_ORDER_CREDIT,   /* partitions in topological order, at most `credit_bytes` in flight */
    RU_ORDER_OPTIMUM,  /* every order tried; RU_ORDER_OPTIMUM_MAX transfers at most */
    RU_ORDER_METHODS,
} ru_order_method;

/* Their names, in that order. */
#define RU_ORDER_NAMES \
    "best|tac|tic|random|fixed|fifo|layer|reverse|smallest|p3|bytescheduler|exhaustive"

enum { RU_ORDER_OPS_MAX = 1 << 15, RU_ORDER_WORKERS_MAX = 1024, RU_ORDER_OPTIMUM_MAX = 9 };

typedef struct ru_order_in {
    uint32_t n;                 /* 1 .. RU_ORDER_OPS_MAX ops */
    const int64_t *op_ns;       /* [n] >= 0 */
    const int64_t *param_bytes; /* [n] >= 0; 0: nothing to receive */
    const ru_step_edge *edges;  /* [n_edges] ops that wait for ops; no circle */
    uint32_t n_edges;
    ru_link_cost link;       /* of the server, shared by all workers */
    uint32_t workers;        /* >= 1, all with the same ops; the link serves them in turn */
    int64_t slice_bytes;     /* > 0: P3 */
    int64_t partition_bytes; /* > 0: CREDIT */
    int64_t credit_bytes;    /* >= partition_bytes */
    uint64_t seed;           /* RANDOM, FIXED */
    ru_order_method method;
} ru_order_in;

typedef struct ru_order_piece {
    uint32_t op;
    int64_t size_bytes;
} ru_order_piece;

typedef struct ru_order_plan {
    ru_order_method method; /* whose order it is, never BEST */
    uint32_t n_lists;       /* 1: the same for all; else one a worker */
    uint32_t n_pieces;      /* of each list */
    const ru_order_piece
        *pieces;          /* [n_lists, n_pieces] as they are sent, one worker each in turn */
    const uint32_t *rank; /* [n] place of the first piece of the op's tie group in list 0:
                             equal ranks may be swapped; RU_ORDER_NO_RANK without parameters */
    int64_t step_ns;      /* predicted: all workers have finished */
    int64_t bound_ns;     /* no order can be faster */
    int64_t straggle_ns;  /* between the first and the last worker's end */
    double efficiency;    /* (U - step) / (U - L), as ru_step_overlap */
    double speedup_max;   /* (U - L) / L */
} ru_order_plan;

#define RU_ORDER_NO_RANK UINT32_MAX

/* What is assumed where nothing was measured, to compare orders: a link, and the time of an op on
 * one core. They only matter to methods that look at times. */
#define RU_ORDER_LINK_BYTES_PER_S 125e6
int64_t ru_order_op_ns(double flops, double bytes);

/* The parameters of one op, at worker 0, from the begin of the step. */
typedef struct ru_order_time {
    uint32_t op;
    int64_t arrive_ns;
    int64_t need_ns; /* the worker has done what it does before this op */
    int64_t wait_ns; /* and waits so long for them */
} ru_order_time;

/* Owner: arrays live in `out`. Cost: with r transfers of n ops TAC takes O(r n) time
 * and n r / 4 bytes, the others O((n + r) log n) and the check of a played step; BEST the
 * sum of all.
 * Errors: RU_E_ARG, RU_E_INFEASIBLE (a circle), RU_E_LIMIT, also for OPTIMUM with too many. */
RU_MUST_USE ru_status ru_plan_order(const ru_order_in *in, ru_arena *out, ru_arena *scratch,
                                    ru_order_plan *plan, ru_err *err);

/* Every parameter is sent once to each worker, ranks say the order, a TIC rank follows from the
 * graph, and the predicted figures are those of the order, played a second time. BEST: no simple
 * order (of the graph, of the input, by size) is shorter. Shares no code with the planner. Cost:
 * O(workers n (n + n_edges)). Errors: RU_E_INFEASIBLE, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_order_check(const ru_order_in *in, const ru_order_plan *plan,
                                          ru_arena *scratch, ru_err *err);

/* Of all ops with parameters in the order in which the worker computes them, by playing the plan.
 * Shape: into [in->n], *n of them used. Errors: RU_E_INFEASIBLE, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_order_times(const ru_order_in *in, const ru_order_plan *plan,
                                     ru_arena *scratch, ru_order_time *into, uint32_t *n,
                                     ru_err *err);

#endif
