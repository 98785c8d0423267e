/* Inside the planner of reassign: grants as a flow. Thread: any, pure. */
#ifndef RU_PLAN_REASSIGN_IMPL_H
#define RU_PLAN_REASSIGN_IMPL_H

#include "plan/crew/reassign.h"

enum { RUI_REASSIGN_MILLI = 1000 }; /* flows count thousandths of an item */

typedef struct rui_reassign_flow {
    uint32_t n, group;
    const uint32_t *helper; /* [n, group] */
    const double *next_s;   /* [n] seconds for all own items */
    uint32_t items;
    double tail; /* items that a worker may give */
    /* out */
    int64_t *given; /* [n, group] thousandths */
    uint8_t *tight; /* [n] */
    double clock_s; /* least longest time */
} rui_reassign_flow;

/* Shortest longest time within the groups, and what is given for it. Owner: given and tight in
 * `a`. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status rui_reassign_balance(rui_reassign_flow *f, ru_arena *a, ru_err *err);

#endif
