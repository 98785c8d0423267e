/* Which kernel an op instance takes, by measured time.
 *
 * Source: choice by measurement as frigo-johnson-2005 sec 4.
 * Thread: any. Pure: equal input gives equal bytes. */
#ifndef RU_PLAN_KERNEL_H
#define RU_PLAN_KERNEL_H

#include "base/conf.h"

enum { RU_KERNEL_LEAST, RU_KERNEL_USUAL, RU_KERNEL_METHODS };

typedef struct ru_kernel_candidate {
    const char *name;
    double ns;       /* of one run; 0: it cannot run */
    double extra_ns; /* of conversions and passes that it needs beside */
} ru_kernel_candidate;

typedef struct ru_kernel_in {
    const char *op; /* for people */
    struct {
        const ru_kernel_candidate *at; /* [n] the usual one first; laid out as ru_conf_sections */
        uint32_t n;
    } candidates;
    uint32_t method;
} ru_kernel_in;

typedef struct ru_kernel_plan {
    uint32_t at;      /* index of the candidate */
    const char *name; /* of the candidate; view */
    double predicted_ns;
} ru_kernel_plan;

/* The least ns + extra_ns; ties go to the earlier one. Errors: RU_E_ARG, RU_E_INFEASIBLE when none
 * can run. */
RU_MUST_USE ru_status ru_plan_kernel(const ru_kernel_in *in, ru_kernel_plan *plan, ru_err *err);
/* Shares no code with the planner. Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_kernel_check(const ru_kernel_in *in, const ru_kernel_plan *plan,
                                           ru_err *err);

#endif
