/* How requests come, as a section of an input: memoryless, a process of phases, or measured times
 * to which a process is fitted. Thread: any, pure. */
#ifndef RU_PLAN_ARRIVALS_H
#define RU_PLAN_ARRIVALS_H

#include "base/conf.h"
#include "cost/math/markov.h"

typedef struct rui_arrivals_map {
    ru_conf_f64s d0, d1;
} rui_arrivals_map;

typedef struct rui_arrivals_in {
    uint32_t which;
    double poisson;
    rui_arrivals_map map;
    ru_conf_f64s gaps_s;
} rui_arrivals_in;

extern const ru_conf_table rui_arrivals_table;

/* Errors: RU_E_ARG. */
RU_MUST_USE ru_status rui_arrivals_of(const rui_arrivals_in *a, ru_markov *out, ru_err *err);

#endif
