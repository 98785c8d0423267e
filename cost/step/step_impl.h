/* What the files of cost/step share. Thread: any, pure. */
#ifndef RU_COST_STEP_IMPL_H
#define RU_COST_STEP_IMPL_H

#include "cost/step/step.h"

typedef struct rui_step_links_of {
    uint32_t *first; /* [n + 2] those of i stand at first[i] .. first[i + 1] - 1 */
    uint32_t *at;    /* [n_edges] in the order of the edges */
} rui_step_links_of;

/* Followers of every task; false: `a` is full. */
bool rui_step_links(const ru_step_in *in, ru_arena *a, rui_step_links_of *l);
ru_status rui_step_check(const ru_step_in *in, ru_err *err);

#endif
