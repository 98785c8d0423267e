/* Which blocks of the parameters to save next, and where lost blocks come from.
 *
 * save: a running checkpoint writes a fraction of the blocks often instead of all of them rarely,
 * the ones that moved farthest from what is saved first: that makes the perturbation of a later
 * loss small. recover: each lost block from the newest copy there is (a worker's cache, the log,
 * the values at the start); blocks that survive are not touched.
 *
 * Source: qiao-2019 (SCAR) sec 4; caches of workers as a source are ours.
 * Cost: O(n) selection, O(n log n) order. Thread: any, pure. */
#ifndef RU_PLAN_SAVE_H
#define RU_PLAN_SAVE_H

#include "base/arena.h"

typedef enum ru_save_method {
    RU_SAVE_PRIORITY,    /* ours: the largest distances */
    RU_SAVE_ROUND_ROBIN, /* the next ones of a cycle */
    RU_SAVE_RANDOM,      /* without replacement, by seed */
    RU_SAVE_FULL,        /* all blocks */
    RU_SAVE_NONE,
} ru_save_method;

/* The run without a failure, for the bound of what a loss costs. */
typedef struct ru_save_run {
    double rate, begin, iteration;
} ru_save_run;

/* How a run converges is not known while it does. */
#define RU_SAVE_RUN  ((ru_save_run){.rate = 0.99, .begin = 1})
#define RU_SAVE_LOST 0.5

/* As the table of the row fills it: lists are pairs as ru_conf_f64s. */
typedef struct ru_save_in {
    struct {
        const double *distance; /* [n] |x - saved| of each block, >= 0 */
        uint32_t n;
    };
    double fraction; /* of the blocks, rounded up; 0 < fraction <= 1 */
    uint32_t cursor; /* ROUND_ROBIN: first block */
    uint64_t seed;   /* RANDOM: of this save */
    ru_save_method method;
    double lost; /* part of the blocks that a failure loses, and the run: for the report */
    ru_save_run run;
} ru_save_in;

typedef struct ru_save_plan {
    const uint32_t *block; /* [n] rising */
    uint32_t n;
    uint32_t cursor;   /* ROUND_ROBIN: of the next save */
    double left_norm;  /* |x - saved| after this save */
    double left_most;  /* largest distance of a block that is not saved */
    double saved_norm; /* |x - saved| that this save removes */
} ru_save_plan;

/* Equal distances: the lower index. Owner: plan->block in `out`. Errors: RU_E_ARG, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_save(const ru_save_in *in, ru_arena *out, ru_save_plan *plan,
                                   ru_err *err);
/* Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_save_check(const ru_save_in *in, const ru_save_plan *plan,
                                         ru_arena *scratch, ru_err *err);

/* Where a lost block comes from. */
typedef enum ru_recover_from {
    RU_RECOVER_KEEP,  /* not lost */
    RU_RECOVER_CACHE, /* a worker's copy */
    RU_RECOVER_LOG,   /* the running checkpoint */
    RU_RECOVER_START, /* the values at the start */
} ru_recover_from;

typedef enum ru_recover_method {
    RU_RECOVER_NEWEST,   /* ours: newest of cache and log, nearest where all tell */
    RU_RECOVER_PARTIAL,  /* lost blocks from the log */
    RU_RECOVER_ROLLBACK, /* all blocks from the log */
    RU_RECOVER_RESET,    /* lost blocks from the start values: no checkpoint */
} ru_recover_method;

typedef struct ru_recover_block {
    bool lost;
    int64_t log_at, cache_at;       /* iteration of the copy; -1: there is none */
    double log_d, cache_d, start_d; /* |copy - x| of each, predicted or measured; >= 0 */
} ru_recover_block;

typedef struct ru_recover_in {
    struct {
        const ru_recover_block *block; /* [n] */
        uint32_t n;
    };
    ru_recover_method method;
    ru_save_run run; /* for the report */
} ru_recover_in;

typedef struct ru_recover_plan {
    const uint8_t *from; /* [n] ru_recover_from */
    uint32_t n, n_cache, n_log, n_start;
    double norm; /* |d| of the perturbation */
} ru_recover_plan;

RU_MUST_USE ru_status ru_plan_recover(const ru_recover_in *in, ru_arena *out, ru_recover_plan *plan,
                                      ru_err *err);
RU_MUST_USE ru_status ru_plan_recover_check(const ru_recover_in *in, const ru_recover_plan *plan,
                                            ru_err *err);

#endif
