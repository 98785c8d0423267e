/* The checker of fleets: runs every machine through the period. */
#include <math.h>
#include <stddef.h>

#include "plan/fleet/burst_fleet.h"

ru_status ru_plan_burst_fleet_check(const ru_burst_fleet_in *in, const ru_burst_fleet_plan *p,
                                    ru_err *err)
{
    double sum = 0, usd = 0;
    uint32_t launches = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t type = p->machine[i].type;
        if (type >= in->n_types || (p->from[i] != UINT32_MAX && p->from[i] >= in->n_machines) ||
            (i > 0 && p->from[i] != UINT32_MAX && !(p->from[i] > p->from[i - 1]))) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "machine %u of the fleet does not exist or appears twice", i);
        }
        const ru_burst_type *t = &in->type[type];
        bool new = p->from[i] == UINT32_MAX;
        ru_credit c = new ? ru_credit_launch(&t->rules) : in->machine[p->from[i]].now;
        if (!new && in->machine[p->from[i]].type != type) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "machine %u changed its type", i);
        }
        launches += new &&ru_credit_level(&c) > 0 ? 1 : 0;
        double want = p->rate[i] * t->need * in->period_s;
        if (!(p->rate[i] >= 0) || p->rate[i] > t->rate_max * (1 + 1e-9) ||
            ru_credit_run(&t->rules, &c, p->rate[i] * t->need, in->period_s) < want * (1 - 1e-6)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "machine %u cannot serve %g requests a second", i,
                           p->rate[i]);
        }
        sum += p->rate[i];
        usd += t->usd_per_h * in->period_s / 3600;
    }
    if (fabs(sum - in->rate) > 1e-9 * in->rate || fabs(usd - p->usd) > 1e-9 * usd ||
        launches > in->launches_left) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "%g requests a second for %g USD with %u launches, expected %g, %g and at "
                       "most %u",
                       sum, p->usd, launches, in->rate, usd, in->launches_left);
    }
    return RU_OK;
}
