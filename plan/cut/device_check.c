/* The checker of choices of devices: every figure again, the Pareto set and the choice by their
 * definitions. */
#include <math.h>
#include <string.h>

#include "plan/cut/device.h"

static bool about(int64_t is, double should)
{
    return fabs((double)is - should) <= 1 + 1e-12 * should;
}

static ru_status check_line(const ru_device_in *in, uint32_t i, const ru_device_line *l,
                            ru_err *err)
{
    const ru_device_offer *o = &in->offers[i];
    if (l->offer.type != o->type || l->offer.count != o->count ||
        fabs(l->offer.step_s - o->step_s) > 0) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "line %u of the plan is not offer %u", i, i);
    }
    const ru_device_type *t = &in->types[o->type];
    int64_t steps = in->samples / in->batch / o->count;
    steps += steps * in->batch * o->count < in->samples ? 1 : 0;
    double ns = 1e9 * o->step_s * (double)steps, usd = ns * t->usd_per_h * o->count / 3600;
    if (!about(l->job_ns, ns) || !about(l->job_most_ns, ns * t->factor) ||
        !about(l->cost_nusd, usd) || !about(l->cost_most_nusd, usd * t->factor)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "line %u: %lld ns and %lld nano-USD, not %g and %g", i,
                       (long long)l->job_ns, (long long)l->cost_nusd, ns, usd);
    }
    bool late = in->deadline_s > 0 && (double)l->job_most_ns * 1e-9 > in->deadline_s;
    bool dear = in->budget_usd > 0 && (double)l->cost_most_nusd * 1e-9 > in->budget_usd;
    bool big = t->memory_bytes > 0 && t->memory_bytes < in->memory_bytes;
    if (l->legal != !(late || dear || big)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "line %u: %s", i,
                       l->legal ? "it breaks a limit, but the plan calls it legal"
                                : "it keeps every limit, but the plan does not call it legal");
    }
    return RU_OK;
}

static bool dominated(const ru_device_plan *p, const ru_device_line *l)
{
    for (uint32_t k = 0; k < p->n; k++) {
        const ru_device_line *o = &p->lines[k];
        if (o->legal && o->job_ns <= l->job_ns && o->cost_nusd <= l->cost_nusd &&
            (o->job_ns < l->job_ns || o->cost_nusd < l->cost_nusd)) {
            return true;
        }
    }
    return false;
}

/* Nothing is better than the choice; on a tie nothing before it is as good. */
static bool is_best(const ru_device_in *in, const ru_device_plan *p)
{
    const ru_device_line *c = &p->lines[p->chosen];
    for (uint32_t k = 0; k < p->n; k++) {
        const ru_device_line *o = &p->lines[k];
        int64_t first = o->cost_nusd - c->cost_nusd, then = o->job_ns - c->job_ns;
        if (in->goal == RU_DEVICE_TIME) {
            int64_t swap = first;
            first = then;
            then = swap;
        }
        bool wins =
            first < 0 || (first == 0 && then < 0) || (first == 0 && then == 0 && k < p->chosen);
        if (o->legal && wins) {
            return false;
        }
    }
    return c->legal;
}

static bool is_rule(const ru_device_in *in, const ru_device_plan *p)
{
    const ru_device_line *c = &p->lines[p->chosen];
    for (uint32_t k = 0; k < p->n; k++) {
        const ru_device_offer *o = &p->lines[k].offer;
        const ru_device_type *mine = &in->types[c->offer.type], *other = &in->types[o->type];
        double gain = in->rule == RU_DEVICE_CHEAPEST ? mine->usd_per_h - other->usd_per_h
                                                     : other->released - mine->released;
        if (o->count < c->offer.count ||
            (o->count == c->offer.count && (gain > 0 || (gain >= 0 && k < p->chosen)))) {
            return false;
        }
    }
    return true;
}

ru_status ru_plan_device_check(const ru_device_in *in, const ru_device_plan *p, ru_err *err)
{
    if (p->n != in->n || p->chosen >= p->n) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "line %u of %u is chosen, there are %u offers",
                       p->chosen, p->n, in->n);
    }
    for (uint32_t i = 0; i < p->n; i++) {
        RU_TRY(check_line(in, i, &p->lines[i], err));
    }
    for (uint32_t i = 0; i < p->n; i++) {
        const ru_device_line *l = &p->lines[i];
        if (l->pareto != (l->legal && !dominated(p, l))) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "line %u is %s the Pareto set", i,
                           l->pareto ? "not in" : "in");
        }
    }
    if (!(in->rule == RU_DEVICE_BEST ? is_best(in, p) : is_rule(in, p))) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "line %u is not the best legal offer", p->chosen);
    }
    return RU_OK;
}
