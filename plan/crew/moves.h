/* Which worker holds which executor and which shard of the parameters, and what moves.
 *
 * A job has a fixed number of executors (partitions of the work with their state) and shards; only
 * the map to workers changes. The cost of a map over the horizon, in iterations:
 *
 *   iterations * (largest load + barrier) + moving
 *   load of a worker   = cost/load.h; bytes of a pair on one worker need no link
 *   moving             = max over workers of bytes in and out / rate + objects * pause
 *
 * so that nothing moves that does not pay within the horizon. Costs are measured, so that ever
 * another map is a little cheaper: what need not move stays unless the whole gain is above `noise`
 * of an iteration over the horizon. Few objects: the least cost by branch
 * and bound, proven. More: moves and exchanges from the most loaded worker on, from two starts,
 * and what does not pay is taken back.
 *
 * Source: litz-2018 (over-partitioning, migration); objective and search are ours.
 * Thread: any, pure. */
#ifndef RU_PLAN_MOVES_H
#define RU_PLAN_MOVES_H

#include "base/arena.h"

#define RU_MOVES_NONE UINT32_MAX
/* Part of an iteration that measured costs hide: with errors of 3 % for each executor (20 jobs of
 * 20 executors on 4 workers, 40 plans each) 10 objects move in the last 30 plans; 535 at 0.03,
 * 4,052 at 0, and iterations with moves take 2 % longer then. */
#define RU_MOVES_NOISE 0.05

enum {
    RU_MOVES_WORKERS_MAX = 4096,
    RU_MOVES_OBJECTS_MAX = 1 << 17,
    RU_MOVES_PAIRS_MAX = 1 << 20,
};

typedef enum ru_moves_method {
    RU_MOVES_BALANCE, /* ours */
    RU_MOVES_KEEP,    /* static: only what lies on no worker or a leaving one */
    RU_MOVES_COUNT,   /* numbers of objects by cores, donors give what has least state */
    RU_MOVES_LPT,     /* from scratch: largest first, to the worker that ends first with it */
    RU_MOVES_GREEDY,  /* from the most to the least loaded worker while that helps */
    RU_MOVES_RESTART, /* stop, save all, load all on the map of LPT */
    RU_MOVES_METHODS
} ru_moves_method;

typedef struct ru_moves_worker {
    double cores;         /* > 0, times speed */
    double bytes_per_s;   /* > 0 */
    int64_t memory_bytes; /* 0: no bound */
    bool leaving;         /* may hold nothing */
} ru_moves_worker;

typedef struct ru_moves_object {
    uint32_t on;         /* worker that has its state; RU_MOVES_NONE: the storage */
    uint32_t home;       /* worker that has its input; RU_MOVES_NONE: none */
    int64_t cpu_ns;      /* of an iteration, on one core */
    int64_t net_bytes;   /* of an iteration, on its worker's link */
    int64_t state_bytes; /* sent when it moves */
    int64_t data_bytes;  /* input, read by a destination other than `home` */
} ru_moves_object;

/* These bytes of both objects' net_bytes need no link while one worker holds both. */
typedef struct ru_moves_pair {
    uint32_t a, b; /* a != b */
    int64_t bytes;
} ru_moves_pair;

typedef struct ru_moves_in {
    const ru_moves_worker *worker; /* [n_workers] */
    const ru_moves_object *object; /* [n_executors + n_shards] executors first */
    const ru_moves_pair *pair;     /* [n_pairs] */
    uint32_t n_workers, n_executors, n_shards, n_pairs;
    double iterations; /* horizon, >= 0 */
    double noise;      /* relative error of a measured load, 0 to 1 */
    int64_t barrier_ns, pause_ns;
    ru_moves_method method;
    int64_t nodes_max;   /* of branch and bound; then the search's best stands, not proven */
    uint32_t rounds_max; /* of moves and exchanges; 0: 8 for each object */
} ru_moves_in;

typedef struct ru_moves_plan {
    const uint32_t *to; /* [objects] worker that holds it from now on */
    uint32_t n;
    const uint32_t *move; /* [n_moves] objects to move, in this order: executors, then shards, each
                             with the least state first */
    uint32_t n_moves;
    int64_t iteration_ns; /* largest load + barrier */
    int64_t moving_ns;
    int64_t moved_bytes; /* state and input */
    int64_t bound_ns;    /* no map has a shorter iteration */
    double cost_ns;      /* of the horizon */
    bool optimal;        /* proven: no map costs less */
} ru_moves_plan;

/* Owner: arrays in `out`. Cost: O(rounds (objects of a worker * (workers + objects))) time,
 * O(objects + pairs + workers) memory; branch and bound at most nodes_max steps. Errors: RU_E_ARG
 * for facts that contradict each other, RU_E_INFEASIBLE when everybody leaves or no map was found
 * that fits into memory, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_moves(const ru_moves_in *in, ru_arena *out, ru_arena *scratch,
                                    ru_moves_plan *plan, ru_err *err);

/* Legal, complete, and figures that follow from the map; of ours: taking back any single move does
 * not cost less, and taking back all that need not be costs more by the noise. Shares no code with
 * the planner. Errors: RU_E_INFEASIBLE, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_moves_check(const ru_moves_in *in, const ru_moves_plan *plan,
                                          ru_arena *scratch, ru_err *err);

#endif
