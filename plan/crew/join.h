/* How much state a joining worker gets in one step: so much that training hardly notices. State
 * moves in whole pieces: where a step has not enough for one, a piece goes in one of several steps.
 *
 * Source: ours; the part of the network is that of elastic training (docs/elastic.md).
 * Thread: any. Pure: equal input gives equal bytes. */
#ifndef RU_PLAN_JOIN_H
#define RU_PLAN_JOIN_H

#include "base/conf.h"

typedef enum ru_join_method {
    RU_JOIN_PART,
    RU_JOIN_PIECE, /* one piece a step */
    RU_JOIN_ALL,   /* everything in one step */
    RU_JOIN_METHODS
} ru_join_method;

enum { RU_JOIN_PIECES_MAX = 256, RU_JOIN_PIECES_FIRST = 4 };

typedef struct ru_join_in {
    double rate_bytes_per_s; /* of the network; 0: not measured */
    double step_ns;          /* of one step; 0: not measured */
    double part;             /* of the network, above 0, at most 1 */
    int64_t piece_bytes;     /* > 0 */
    int64_t state_bytes;     /* 0: not known */
    uint32_t method;         /* ru_join_method */
} ru_join_in;

typedef struct ru_join_plan {
    int64_t budget_bytes; /* of state in one step on average, at least 1 */
    int64_t every_steps;  /* a piece goes in one of so many steps; 1: in every one */
} ru_join_plan;

/* part * rate * step, at most RU_JOIN_PIECES_MAX pieces; RU_JOIN_PIECES_FIRST pieces while rate or
 * step is not measured. Errors: RU_E_ARG. */
RU_MUST_USE ru_status ru_plan_join(const ru_join_in *in, ru_join_plan *plan, ru_err *err);
/* Shares no code with the planner. Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_join_check(const ru_join_in *in, const ru_join_plan *plan,
                                         ru_err *err);

#endif
