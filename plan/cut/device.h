/* Which type of device to rent, and how many, for time or money.
 *
 *   job   = steps of batch x count samples, each of the predicted time
 *   cost  = job x price x count
 *
 * The least cost, or the least time, among the offers that keep a deadline, a budget and the
 * memory, also when steps take as much longer as the predictions may be wrong (`factor` of the
 * type). The Pareto set of time and cost is marked.
 *
 * Source: ceer-2020 (objectives and both constant rules that it is compared with). Thread: any,
 * pure. */
#ifndef RU_PLAN_DEVICE_H
#define RU_PLAN_DEVICE_H

#include "base/arena.h"

enum { RU_DEVICE_TYPES_MAX = 256, RU_DEVICE_OFFERS_MAX = 1 << 16 };

typedef enum ru_device_goal { RU_DEVICE_COST, RU_DEVICE_TIME } ru_device_goal;

typedef enum ru_device_rule {
    RU_DEVICE_BEST,     /* by prediction */
    RU_DEVICE_CHEAPEST, /* the lowest price of an hour, one device; limits are not looked at */
    RU_DEVICE_NEWEST,   /* the latest release, one device; the same */
} ru_device_rule;

typedef struct ru_device_type {
    const char *name;
    double usd_per_h;     /* of one device; > 0 */
    double released;      /* year */
    int64_t memory_bytes; /* 0: not known, taken to be enough */
    double factor;        /* >= 1: steps may take so many times the prediction */
    double sure;          /* with this probability they take no longer; 0: not known */
} ru_device_type;

typedef struct ru_device_offer {
    uint32_t type, count;
    double step_s; /* predicted; > 0 */
} ru_device_offer;

typedef struct ru_device_in {
    const ru_device_type *types; /* [n_types] */
    uint32_t n_types;
    const ru_device_offer *offers; /* [n] */
    uint32_t n;
    int64_t samples;      /* of the whole job; 1 .. 1e15 */
    int64_t batch;        /* samples of a step on each device; 1 .. 1e9 */
    int64_t memory_bytes; /* that a device needs */
    ru_device_goal goal;
    ru_device_rule rule;
    double deadline_s, budget_usd; /* 0: none */
} ru_device_in;

typedef struct ru_device_line {
    ru_device_offer offer;
    int64_t job_ns, cost_nusd;           /* predicted; nano-USD */
    int64_t job_most_ns, cost_most_nusd; /* with `factor` */
    bool legal;                          /* keeps every limit */
    bool pareto; /* legal, and no legal offer is better in one and as good in the other */
} ru_device_line;

typedef struct ru_device_plan {
    ru_device_line *lines; /* [n] in the order of the offers */
    uint32_t n;
    uint32_t chosen;
} ru_device_plan;

/* Owner: lines in `out`. Cost: O(n log n). Errors: RU_E_ARG for numbers outside their bounds,
 * RU_E_INFEASIBLE when no offer keeps the limits (the sentence names the nearest), RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_device(const ru_device_in *in, ru_arena *out, ru_arena *scratch,
                                     ru_device_plan *plan, ru_err *err);
/* Errors: RU_E_INFEASIBLE. Cost: O(n^2). */
RU_MUST_USE ru_status ru_plan_device_check(const ru_device_in *in, const ru_device_plan *plan,
                                           ru_err *err);

#endif
