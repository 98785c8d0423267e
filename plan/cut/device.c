/* Choice of devices among priced offers. See device.h. */
#include "plan/cut/device.h"

#include <math.h>
#include <stddef.h>

#include "cost/math/quantile.h"

static bool positive(double v, double most)
{
    return v > 0 && v <= most;
}

static ru_status check_in(const ru_device_in *in, ru_err *err)
{
    if (in->n_types < 1 || in->n_types > RU_DEVICE_TYPES_MAX || in->n < 1 ||
        in->n > RU_DEVICE_OFFERS_MAX || in->samples < 1 || in->samples > (int64_t)1e15 ||
        in->batch < 1 || in->batch > (int64_t)1e9 || !(in->deadline_s >= 0) ||
        !(in->budget_usd >= 0)) {
        return RU_FAIL(
            err, RU_E_ARG,
            "the question is not valid: %u offers of %u types, %lld samples in batches of %lld",
            in->n, in->n_types, (long long)in->samples, (long long)in->batch);
    }
    for (uint32_t t = 0; t < in->n_types; t++) {
        if (!positive(in->types[t].usd_per_h, 1e6) ||
            !(in->types[t].factor >= 1 && in->types[t].factor <= 1e6)) {
            return RU_FAIL(err, RU_E_ARG,
                           "type %u costs %g USD per hour with factor %g; expected a price above 0 "
                           "and a factor of 1 or more",
                           t, in->types[t].usd_per_h, in->types[t].factor);
        }
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_device_offer *o = &in->offers[i];
        if (o->type >= in->n_types || o->count < 1 || o->count > 1 << 20 ||
            !positive(o->step_s, 1e9)) {
            return RU_FAIL(err, RU_E_ARG,
                           "offer %u is not valid: %u devices of type %u with a step of %g s", i,
                           o->count, o->type, o->step_s);
        }
    }
    return RU_OK;
}

/* Time and cost with steps of `factor` times the prediction. False: more than can be counted. */
static bool price(const ru_device_in *in, const ru_device_offer *o, double factor, int64_t *job_ns,
                  int64_t *cost_nusd)
{
    int64_t wide = in->batch * o->count, steps = (in->samples + wide - 1) / wide;
    double s = (double)steps * o->step_s * factor;
    double usd = s / 3600 * in->types[o->type].usd_per_h * o->count;
    if (!(s < 9e9) || !(usd < 9e9)) {
        return false;
    }
    *job_ns = (int64_t)floor(s * 1e9 + 0.5);
    *cost_nusd = (int64_t)floor(usd * 1e9 + 0.5);
    return true;
}

static bool kept(const ru_device_in *in, const ru_device_line *l)
{
    const ru_device_type *t = &in->types[l->offer.type];
    return (in->deadline_s <= 0 || (double)l->job_most_ns <= in->deadline_s * 1e9) &&
           (in->budget_usd <= 0 || (double)l->cost_most_nusd <= in->budget_usd * 1e9) &&
           (t->memory_bytes == 0 || t->memory_bytes >= in->memory_bytes);
}

/* Along rising time, the offers whose cost falls. */
static ru_status mark_pareto(const ru_device_plan *p, ru_arena *scratch, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    double *key = RU_NEW(scratch, double, p->n);
    uint32_t *order = RU_NEW(scratch, uint32_t, p->n);
    if (key == NULL || order == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u offers", p->n);
    }
    for (uint32_t i = 0; i < p->n; i++) {
        key[i] = (double)p->lines[i].job_ns;
    }
    ru_sort_order_f64(key, order, p->n);
    int64_t least = INT64_MAX;
    for (uint32_t k = 0, end; k < p->n; k = end) {
        int64_t here = INT64_MAX; /* least cost among offers of one time */
        for (end = k; end < p->n && !(key[order[end]] > key[order[k]]); end++) {
            const ru_device_line *l = &p->lines[order[end]];
            here = l->legal && l->cost_nusd < here ? l->cost_nusd : here;
        }
        for (uint32_t e = k; e < end; e++) {
            ru_device_line *l = &p->lines[order[e]];
            l->pareto = l->legal && l->cost_nusd == here && here < least;
        }
        least = here < least ? here : least;
    }
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}

/* Lexicographic: the goal first, then the other one, then the earlier offer. */
static bool better(ru_device_goal goal, const ru_device_line *a, const ru_device_line *b)
{
    bool cost = goal == RU_DEVICE_COST;
    int64_t first_a = cost ? a->cost_nusd : a->job_ns, first_b = cost ? b->cost_nusd : b->job_ns;
    int64_t then_a = cost ? a->job_ns : a->cost_nusd, then_b = cost ? b->job_ns : b->cost_nusd;
    return first_a < first_b || (first_a == first_b && then_a < then_b);
}

/* The rules of thumb look at one device of each type alone. */
static bool rule_better(const ru_device_in *in, const ru_device_line *a, const ru_device_line *b)
{
    const ru_device_type *x = &in->types[a->offer.type], *y = &in->types[b->offer.type];
    if (a->offer.count != b->offer.count) {
        return a->offer.count < b->offer.count;
    }
    return in->rule == RU_DEVICE_CHEAPEST ? x->usd_per_h < y->usd_per_h : x->released > y->released;
}

static ru_status none(const ru_device_in *in, const ru_device_plan *p, ru_err *err)
{
    const ru_device_line *near = &p->lines[0];
    for (uint32_t i = 1; i < p->n; i++) {
        near = better(in->deadline_s > 0 ? RU_DEVICE_TIME : RU_DEVICE_COST, &p->lines[i], near)
                   ? &p->lines[i]
                   : near;
    }
    return RU_FAIL(err, RU_E_INFEASIBLE,
                   "no offer keeps the limits; the nearest one is %u x %s with up to %.4g s and "
                   "%.4g USD; allow more time or money, or require less memory",
                   near->offer.count, in->types[near->offer.type].name,
                   (double)near->job_most_ns * 1e-9, (double)near->cost_most_nusd * 1e-9);
}

ru_status ru_plan_device(const ru_device_in *in, ru_arena *out, ru_arena *scratch,
                         ru_device_plan *plan, ru_err *err)
{
    RU_TRY(check_in(in, err));
    ru_device_plan p = {.lines = RU_NEW(out, ru_device_line, in->n), .n = in->n};
    if (p.lines == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u offers", in->n);
    }
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < in->n; i++) {
        ru_device_line *l = &p.lines[i];
        l->offer = in->offers[i];
        double factor = in->types[l->offer.type].factor;
        if (!price(in, &l->offer, 1, &l->job_ns, &l->cost_nusd) ||
            !price(in, &l->offer, factor, &l->job_most_ns, &l->cost_most_nusd)) {
            return RU_FAIL(err, RU_E_ARG,
                           "%u x %s would take more than 9e9 s or cost more than 9e9 USD",
                           l->offer.count, in->types[l->offer.type].name);
        }
        l->legal = kept(in, l);
        bool wins =
            best == UINT32_MAX || (in->rule == RU_DEVICE_BEST ? better(in->goal, l, &p.lines[best])
                                                              : rule_better(in, l, &p.lines[best]));
        best = (l->legal || in->rule != RU_DEVICE_BEST) && wins ? i : best;
    }
    if (best == UINT32_MAX) {
        return none(in, &p, err);
    }
    RU_TRY(mark_pareto(&p, scratch, err));
    p.chosen = best;
    *plan = p;
    return RU_OK;
}
