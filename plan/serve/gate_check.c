/* The checker of `gate`: quantiles by counting, sums in another order, permissions by their rule.
 */
#include <math.h>
#include <stddef.h>

#include "plan/serve/gate.h"

static bool near(double a, double b)
{
    return (isinf(a) && isinf(b)) || fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-15;
}

/* Does the loss stand for the quantile of what was measured? Counting instead of sorting. */
static ru_status check_loss(const ru_gate_admit_in *in, uint32_t k, uint32_t i, double loss,
                            ru_err *err)
{
    const ru_gate_pair *p = NULL;
    for (uint32_t m = 0; m < in->n_pairs; m++) {
        bool here = in->pair[m].service == k && in->pair[m].op == i;
        p = here ? &in->pair[m] : p;
    }
    if (p == NULL || p->n == 0) {
        return near(loss, in->guess) ? RU_OK
                                     : RU_FAIL(err, RU_E_INFEASIBLE,
                                               "op %u was not measured beside service %u", i, k);
    }
    double q = (loss * (p->n + 1.0) - in->guess) / p->n;
    uint32_t at_most = 0, below = 0;
    bool one = false;
    for (uint32_t m = 0; m < p->n; m++) {
        double l = 1 - 1 / p->slow[m];
        l = l < 0 ? 0 : l > 0.98 ? 0.98 : l;
        one = one || fabs(l - q) < 1e-9;
        at_most += l <= q + 1e-9;
        below += l < q - 1e-9;
    }
    double want = (1 - in->miss) * p->n;
    if (!one || at_most < want - 1e-6 || below >= want + 1e-6) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "a slowdown of %.4g is not the quantile of op %u beside service %u", loss, i,
                       k);
    }
    return RU_OK;
}

static bool allowed(const ru_gate_admit_in *in, const ru_gate_service *s, const ru_gate_op *o,
                    const ru_gate_cell *c)
{
    bool result = in->method == RU_GATE_FREE || in->method == RU_GATE_QUOTA;
    if (in->method == RU_GATE_LAG) {
        result = s->tail_s + c->lost_s <= in->goal * s->tail_s * (1 + 1e-12);
    } else if (in->method == RU_GATE_ORION) {
        result = !(o->units > in->device) && (o->cls == RU_OP_UNKNOWN || o->cls != s->cls);
    } else if (in->method == RU_GATE_REEF) {
        result = o->s * s->ops <= s->solo_s * (1 + 1e-12) && !(o->units < s->units);
    } else if (in->method == RU_GATE_ABACUS) {
        result = s->solo_s + c->lost_s <= 2.5 * s->solo_s * (1 + 1e-12);
    }
    return result;
}

static ru_status check_cells(const ru_gate_admit_in *in, const ru_gate_plan *p, uint32_t k,
                             ru_err *err)
{
    for (uint32_t i = 0; i < in->n_ops; i++) {
        const ru_gate_cell *c = &p->cell[k * in->n_ops + i];
        RU_TRY(check_loss(in, k, i, c->loss, err));
        double lost = (in->method == RU_GATE_QUOTA ? 0.5 : 1) * in->op[i].s / (1 / c->loss - 1);
        if (!near(c->loss > 0 ? lost : 0, c->lost_s)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "the delay of service %u is not %g s beside op %u",
                           k, c->lost_s, i);
        }
        if (c->may != allowed(in, &in->service[k], &in->op[i], c)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "op %u %s run beside service %u", i,
                           c->may ? "must not" : "may", k);
        }
    }
    return RU_OK;
}

/* Work beside a request and its tail. Returns what a request is longer by. */
static ru_status check_service(const ru_gate_admit_in *in, const ru_gate_plan *p, uint32_t k,
                               double *longer_s, ru_err *err)
{
    const ru_gate_service *s = &in->service[k];
    double part = 0, all = 0, cost = 0;
    for (uint32_t i = in->n_ops; i-- > 0;) {
        const ru_gate_cell *c = &p->cell[k * in->n_ops + i];
        all += in->count[i] * in->op[i].s;
        part += c->may ? in->count[i] * in->op[i].s : 0;
        cost += c->may ? in->count[i] * c->lost_s : 0;
    }
    double work = part / all * s->solo_s, rate = part > 0 ? cost / part : 0;
    double lost = work * rate, budget = in->goal * s->tail_s - s->tail_s;
    double lag = fmin(lost, budget), free_s = 1, asked_s = 0; /* of a second */
    for (uint32_t i = 0; i < in->n_services; i++) {
        const ru_gate_service *o = &in->service[i];
        free_s -= o->rate * o->solo_s;
        asked_s += o->rate * (in->goal * o->tail_s - o->tail_s);
    }
    /* once in an idle while at most, and no more than there is idle time */
    double most = fmin(budget * free_s, asked_s > 0 ? budget * free_s / asked_s : budget);
    bool capped = in->method == RU_GATE_LAG && lost > most;
    work = capped ? most / rate : work;
    lost = capped ? most : lost;
    lost = in->method == RU_GATE_SLICES ? s->solo_s : lost;
    double before = s->rate * s->solo_s, after = s->rate * (s->solo_s + lost);
    double tail = in->method == RU_GATE_LAG ? 1 + lag / s->tail_s
                  : after < 1 ? (s->solo_s + lost) / s->solo_s * (1 - before) / (1 - after)
                              : (double)INFINITY;
    if (!near(p->budget_s[k], budget) || !near(p->beside_s[k], work) ||
        !(near(p->tail_ratio[k], tail))) {
        return RU_FAIL(
            err, RU_E_INFEASIBLE,
            "budget, work or tail latency of service %u do not follow from the measurements", k);
    }
    *longer_s = lost;
    return RU_OK;
}

ru_status ru_plan_gate_check(const ru_gate_admit_in *in, const ru_gate_plan *p, ru_err *err)
{
    if (p->n_services != in->n_services || p->n_ops != in->n_ops) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "the plan has a table of %u x %u for %u services and %u ops", p->n_services,
                       p->n_ops, in->n_services, in->n_ops);
    }
    double busy = 0, rest = 1, beside = 0;
    bool kept = true, ends = true;
    for (uint32_t k = 0; k < in->n_services; k++) {
        const ru_gate_service *s = &in->service[k];
        double longer = 0;
        RU_TRY(check_cells(in, p, k, err));
        RU_TRY(check_service(in, p, k, &longer, err));
        busy += s->rate * s->solo_s;
        rest -= s->rate * (s->solo_s + longer);
        beside += s->rate * p->beside_s[k];
        kept = kept && p->tail_ratio[k] <= in->goal;
        ends = ends && isfinite(p->tail_ratio[k]);
    }
    double share = (rest > 0 ? rest : 0) + beside;
    share *= in->method == RU_GATE_QUOTA ? 0.5 : 1;
    share = in->method == RU_GATE_DEDICATED || !ends ? 0 : share < 1 ? share : 1;
    if (!near(p->busy, busy) || fabs(p->share - share) > 1e-9) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the training does not get %g of the device",
                       p->share);
    }
    bool margin = fabs(share - in->share_min) < 1e-9;
    bool admit = kept && share > 0 && share >= in->share_min;
    if (p->admit != admit && !margin) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the training must %sbe admitted",
                       admit ? "" : "not ");
    }
    return RU_OK;
}
