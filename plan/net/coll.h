/* Schedules of collectives, their proof, and the choice between them.
 *
 * Pure: the same input gives the same bytes.
 *
 * Source: ring and halving-doubling after thakur-2005 and rabenseifner-2004, double tree after
 * sanders-2009; the choice by measured (alpha, beta, gamma) after caramel-2020.
 * Thread: any. */
#ifndef RU_PLAN_COLL_H
#define RU_PLAN_COLL_H

#include "cost/step/coll.h"
#include "world/coll.h"

typedef struct ru_coll_in {
    ru_coll_op op;
    ru_coll_algo algo;
    uint32_t n_ranks, root; /* root: of reduce and broadcast; HIERARCHY: leads its host in an
                               all-reduce as well */
    const uint16_t *host;   /* [n_ranks] host of each rank for HIERARCHY; NULL: all on one */
    ru_coll_algo leaders;   /* HIERARCHY: what the leaders run among themselves; RING by default */
    const bool *idle;       /* [n_ranks] HIERARCHY, all-reduce: ranks with nothing to add, as the
                               schedule has it; one of 64 blocks of theirs says that they began */
} ru_coll_in;

enum { RU_COLL_IDLE_BLOCKS = 64 };

/* Does `algo` do `op`?
 *
 *                  all-reduce  reduce-scatter  all-gather  reduce  broadcast  all-to-all  barrier
 *   ring           x           x               x           x       x                      x
 *   halving        x           x               x           x       x
 *   doubling       x                           x                                          x
 *   tree           x                                       x       x                      x
 *   double tree    x                                       x       x
 *   direct         x           x               x           x       x          x           x
 *   hierarchy      x                                       x       x                      x */
bool ru_plan_coll_does(ru_coll_algo algo, ru_coll_op op);

/* The lists of all ranks.
 * Errors: RU_E_ARG, RU_E_UNSUPPORTED (this algorithm does not do this op), RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_coll(const ru_coll_in *in, ru_arena *out, ru_coll_schedule *s,
                                   ru_err *err);
/* The steps of one rank only; the lists of the others are empty.
 * Cost: O(its steps + n_ranks). */
RU_MUST_USE ru_status ru_plan_coll_rank(const ru_coll_in *in, uint32_t rank, ru_arena *out,
                                        ru_coll_schedule *s, ru_err *err);

/* Prove it: every send has its receive, there is no deadlock for any timing (a send to a block may
 * have to wait until its receive may start), every element is added exactly once where the op
 * requires it, all ranks of an all-reduce get the same bits, and direct sums are in rank order.
 * Shares no code with the planner.
 * Cost: O(n_blocks * steps) time, O(steps + n_ranks) memory (all-to-all: n_ranks^2).
 * Errors: RU_E_INFEASIBLE with the first violation, RU_E_LIMIT when `scratch` is full. */
RU_MUST_USE ru_status ru_plan_coll_check(const ru_coll_schedule *s, ru_arena *scratch, ru_err *err);
/* The same, but only the sums of blocks part, part + n_parts, ...: several processes that build the
 * same schedule share the proof of its sums.
 * Cost: O(n_blocks / n_parts * steps). Errors: also RU_E_ARG for a part that does not exist. */
RU_MUST_USE ru_status ru_plan_coll_check_part(const ru_coll_schedule *s, uint32_t part,
                                              uint32_t n_parts, ru_arena *scratch, ru_err *err);

/* -- the choice ----------------------------------------------------------------------------------
 */

enum {
    RU_COLL_CHUNK_MIN = 64 << 10,
    RU_COLL_CHUNK_MAX = 64 << 20,
    RU_COLL_DEPTH_MAX = 8,
    RU_COLL_TIE_FROM = 256 << 10, /* bytes */
};
#define RU_COLL_TIE      0.05 /* probes of 2 to 8 ranks on a busy machine differ by so much */
#define RU_COLL_OVERHEAD 0.05 /* part of the time that cutting may cost, unless told */

typedef struct ru_coll_choice_in {
    ru_coll_op op;
    uint32_t n_ranks;
    /* [RU_COLL_ALGOS] fitted; n_points 0: not measured, so not used unless `assume` */
    const ru_coll_cost *costs;
    bool assume; /* what was not measured costs what ru_cost_coll_prior says; but a hierarchy is
                    used only where it was measured or n_hosts is given */
    /* Members of one host share memory: hosts, and the most members of one. 0: they do not. */
    uint32_t n_hosts, host_most;
    /* More ranks than this: no ring and no direct sums, whose messages or connections grow with
     * the number of ranks. 0: no bound. */
    uint32_t mesh_max;
    const int64_t *sizes_bytes; /* [n_sizes] of the transfers to plan; >= 0 */
    uint32_t n_sizes;
    const int64_t *given; /* [n_sizes] 1 + the algorithm of a transfer; 0: any; NULL: of all */
    double overhead;      /* part of the time that cutting may cost; 0: 0.05 (0.01 if the network
                             is the bottleneck) */
    int64_t delay_max_ns; /* what is in flight of a collective must not take longer: that is how
                             long an urgent one waits; 0: no bound */
    bool deterministic;   /* DIRECT only */
    uint32_t only;        /* 1 + the only algorithm that may be used; 0: any */
    bool whole;           /* never cut */
} ru_coll_choice_in;

typedef struct ru_coll_choice {
    ru_coll_algo algo;
    int64_t chunk_bytes; /* cut size; >= size: one piece */
    uint32_t depth;      /* chunks in flight, 1 .. RU_COLL_DEPTH_MAX */
    int64_t predicted_ns;
} ru_coll_choice;

typedef struct ru_coll_choice_plan {
    const ru_coll_choice *at; /* [n_sizes] */
    uint32_t n;
} ru_coll_choice_plan;

/* What the algorithm costs under these assumptions; n_points 0: it may not be used. */
ru_coll_cost ru_plan_coll_cost(const ru_coll_choice_in *in, ru_coll_algo algo);

/* For each size the algorithm with the least predicted time, ties to the earlier one; from
 * RU_COLL_TIE_FROM on, of those within RU_COLL_TIE of it the one that sends least. The chunk is
 * c = steps alpha / (overhead sent beta), so that its latencies are that part of its time, between
 * RU_COLL_CHUNK_MIN and _MAX; two are in flight, more while
 * doubling helps by more than 5 %. Cut only when that costs at most `overhead`, or delay_max_ns
 * asks for it.
 * Errors: RU_E_ARG, RU_E_INFEASIBLE when no algorithm that was measured does the op, or not the
 * given one, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_coll_choose(const ru_coll_choice_in *in, ru_arena *out,
                                          ru_coll_choice_plan *plan, ru_err *err);
/* Errors: RU_E_INFEASIBLE. */
/* Shares no code with the chooser: works out the costs, the bounds of each field and the predicted
 * time again, and looks for an algorithm that is clearly faster. */
RU_MUST_USE ru_status ru_plan_coll_choose_check(const ru_coll_choice_in *in,
                                                const ru_coll_choice_plan *plan, ru_err *err);

#endif
