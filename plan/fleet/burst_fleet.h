/* Which burstable machines serve the next period: keep, stop, launch, and how requests are spread.
 *
 * What a machine can serve ends at the rate that keeps the objective and at what its credits last
 * for. The cheapest set that covers the forecast is found exactly, up to forecasts in steps of
 * 1/2000: a knapsack over the machines there are and new ones. New machines with launch credits are
 * all of the type whose requests cost least, since providers limit launches.
 *
 * Requests go to machines without credits first, then to those with the fewest credits: the credits
 * that are left are then on few machines, which are worth keeping.
 *
 * Source: ali-2021 (CEDULE+); the exact cover is ours. Thread: any, pure. */
#ifndef RU_PLAN_BURST_FLEET_H
#define RU_PLAN_BURST_FLEET_H

#include "base/arena.h"
#include "cost/credit.h"

enum { RU_BURST_TYPES_MAX = 16, RU_BURST_MACHINES_MAX = 4096 };

typedef struct ru_burst_type {
    const char *name;
    ru_credit_rules rules; /* of CPU; a regular machine earns what it can use */
    double usd_per_h;
    double rate_max; /* requests per second that keep the objective at full speed */
    double need;     /* tokens of a request */
} ru_burst_type;

typedef struct ru_burst_machine {
    uint32_t type;
    ru_credit now;
} ru_burst_machine;

typedef struct ru_burst_fleet_in {
    const ru_burst_type *type; /* [n_types] */
    uint32_t n_types;
    const ru_burst_machine *machine; /* [n_machines] that run */
    uint32_t n_machines;
    double rate;            /* forecast, requests per second, > 0 */
    double period_s;        /* until the next decision: credits must last */
    uint32_t launches_left; /* with launch credits */
} ru_burst_fleet_in;

typedef struct ru_burst_fleet_plan {
    ru_burst_machine *machine; /* [n] that run in the period: those kept, in order, then new ones */
    double *rate;              /* [n] requests per second of each */
    uint32_t *from;            /* [n] index of a machine kept; UINT32_MAX: new */
    uint32_t n;
    double usd; /* of the period */
} ru_burst_fleet_plan;

/* Requests per second that a machine can serve for a whole period. */
double ru_burst_offer(const ru_burst_type *t, const ru_credit *now, double period_s);
/* Owner: arrays in `out`. Cost: O((machines + new ones) 2000). Errors: RU_E_INFEASIBLE,
 * RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_burst_fleet(const ru_burst_fleet_in *in, ru_arena *out,
                                          ru_arena *scratch, ru_burst_fleet_plan *plan,
                                          ru_err *err);
/* Runs every machine through the period. Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_burst_fleet_check(const ru_burst_fleet_in *in,
                                                const ru_burst_fleet_plan *plan, ru_err *err);

#endif
