/* How the gradients of a step are summed over ranks: in which order the backward pass makes them,
 * which are summed together, in which pieces, by which algorithm, and whether the next step waits.
 *
 *   compute |F1 F2 F3|B3 |B2 |B1 |F1 F2 F3|B3 ...     in a fixed order, one op at a time
 *   network          |  s3 |s2|s1  |                  of the pieces that are ready, the one whose
 *                                                     parameter the next forward pass needs first
 *
 * Without a barrier a forward op waits for the sums of its own parameters only; with one, the next
 * step begins when all are done. Both are exact synchronous training. A piece of s bytes takes
 * t(s) = steps alpha + sent s beta + added s gamma; with `depth` in flight it holds the network for
 * max(t / depth, alpha + busy s beta) and arrives the rest later, as in cost/step/coll.h. Where an
 * algorithm was measured, t(s) is what it took.
 *
 * Ours tries the rules below with several sizes and keeps the plan whose played steps are the
 * shortest; each baseline is one setting, or its own published search. Ours keeps the barrier where
 * steps without it gain less than `gain_min`: what gains nothing must not cost anything.
 *
 * Source: caramel-2020 (windows, order, buckets, depth); johnson-1954; mgwfbp-2019 (groups);
 * p3-2019; bytescheduler-2019; li-2020-ddp; horovod-2018.
 * Thread: any, pure. */
#ifndef RU_PLAN_SUMS_H
#define RU_PLAN_SUMS_H

#include "cost/step/coll.h"
#include "cost/step/step.h"

typedef enum ru_sums_method {
    RU_SUMS_CARAMEL,
    RU_SUMS_RULE,          /* buckets and pieces of the size whose start-up is a twentieth */
    RU_SUMS_NONE,          /* all gradients in one sum after the backward pass */
    RU_SUMS_SERIAL,        /* one sum for each tensor after the backward pass */
    RU_SUMS_FIFO,          /* one sum for each tensor as they come, barrier */
    RU_SUMS_DDP,           /* buckets of 1 MiB, then 25 MiB, in order, barrier */
    RU_SUMS_HOROVOD,       /* what is ready at each cycle up to a size, barrier; sizes searched */
    RU_SUMS_MGWFBP,        /* tensors that are ready within alpha of each other, barrier */
    RU_SUMS_P3,            /* slices of 200 kB by priority, no barrier */
    RU_SUMS_BYTESCHEDULER, /* partitions by priority with credit, no barrier; sizes searched */
    RU_SUMS_METHODS,
} ru_sums_method;

#define RU_SUMS_GAIN_MIN 0.02 /* of jobs */

enum { RU_SUMS_OPS_MAX = 1 << 14, RU_SUMS_PIECES_MAX = 1 << 15, RU_SUMS_DEPTH_MAX = 8 };

typedef struct ru_sums_in {
    uint32_t n;                              /* 1 .. RU_SUMS_OPS_MAX ops of the forward pass */
    const int64_t *forward_ns, *backward_ns; /* [n] >= 0 */
    const int64_t *param_bytes;              /* [n] >= 0; 0: no gradient to sum */
    const ru_step_edge *edges;               /* [n_edges] of the forward pass; no circle */
    uint32_t n_edges;
    uint32_t n_ranks;         /* >= 2 */
    int64_t alpha_ns;         /* >= 0 for each step of an algorithm */
    double beta_ns, gamma_ns; /* per byte: on one link (> 0), added (>= 0) */
    /* [RU_COLL_ALGOS] as measured; n_points 0: as those say; NULL: all are */
    const ru_coll_cost *costs;
    uint32_t algos;       /* bits 1 << ru_coll_algo that may be used */
    uint32_t depth_max;   /* 1 .. RU_SUMS_DEPTH_MAX sums in flight */
    const uint32_t *made; /* [n] ops as the machine runs their backward pass; NULL: to choose */
    bool barrier;         /* always, as clipping by a global norm needs it */
    double gain_min;      /* CARAMEL: no barrier only for this part of the step, 0 .. 1 */
    ru_sums_method method;
} ru_sums_in;

/* A run of tensors that are summed as one buffer, in pieces of at most chunk_bytes. */
typedef struct ru_sums_bucket {
    uint32_t first, n; /* part of `tensors` */
    int64_t size_bytes;
    int64_t chunk_bytes; /* > 0 */
    int64_t ready_ns;    /* with a barrier: not before, from the begin of the step; else 0 */
    ru_coll_algo algo;
} ru_sums_bucket;

typedef struct ru_sums_plan {
    const uint32_t *backward; /* [n] ops in the order of their backward pass */
    const uint32_t *tensors;  /* [n_tensors] ops with gradients, bucket by bucket */
    uint32_t n_tensors;
    const ru_sums_bucket *buckets; /* [n_buckets] in the order of launch */
    uint32_t n_buckets, n_pieces;
    uint32_t depth;
    bool barrier;       /* the next step waits for all sums */
    bool after;         /* sums begin after the whole backward pass */
    bool by_priority;   /* the most urgent ready piece; else buckets strictly in order */
    int64_t step_ns;    /* predicted, steady state */
    int64_t held_ns;    /* CARAMEL: the shortest step with a barrier that was found; else 0 */
    int64_t free_ns;    /* and without one; 0: none was shorter */
    int64_t compute_ns; /* forward and backward */
    int64_t bound_ns;   /* the larger of compute and of moving the bytes once */
} ru_sums_plan;

/* Steps that are played without a barrier, and how many of the last ones are averaged. */
enum { RU_SUMS_PLAYED = 6, RU_SUMS_AVERAGED = 3 };

/* Owner: arrays live in `out`. Cost: for t tensors of n ops O(n t / 64) words for the backward
 * order and up to 60 played ways and 200 splits and merges, each O(n + pieces + buckets log
 * buckets); memory O(n t / 8 + pieces). Errors: RU_E_ARG, RU_E_INFEASIBLE (a circle), RU_E_LIMIT
 * (too many pieces). */
RU_MUST_USE ru_status ru_plan_sums(const ru_sums_in *in, ru_arena *out, ru_arena *scratch,
                                   ru_sums_plan *plan, ru_err *err);

/* Every gradient is in one bucket, the backward order follows the graph, buckets and pieces are
 * valid, each algorithm is the fastest for its piece or that of all, and the predicted figures
 * equal those of a second simulation of the plan. Shares no code with the planner. Errors:
 * RU_E_INFEASIBLE, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_sums_check(const ru_sums_in *in, const ru_sums_plan *plan,
                                         ru_arena *scratch, ru_err *err);

/* One gradient in the steady state, from the begin of the step that makes it. */
typedef struct ru_sums_time {
    uint32_t op, bucket;
    int64_t ready_ns, arrive_ns;
    /* When the next forward pass would read its parameter if it waited for nothing more, and how
     * long it waits then. With a barrier: the end of the backward pass, and until it arrives. */
    int64_t need_ns, wait_ns;
} ru_sums_time;

/* Of each gradient, in the order of plan->tensors, by playing the plan. Shape: into [n_tensors].
 * Errors: RU_E_INFEASIBLE, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_sums_times(const ru_sums_in *in, const ru_sums_plan *plan,
                                    ru_arena *scratch, ru_sums_time *into, ru_err *err);

#endif
