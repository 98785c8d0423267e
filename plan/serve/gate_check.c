/* The checker of `gate`: quantiles by counting, sums in another order, permissions by their rule.
 */
#include <math.h>
#include <stddef.h>

#include "plan/serve/gate.h"

static bool near(double a, double b)
{
    return a == b || (isfinite(a - b) && fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-15);
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
        result = s->tail_s + c->lost_s <= in->goal * s->tail_s * (1 + 1e-12) && c->lost_s < o->s;
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
        bool could = allowed(in, &in->service[k], &in->op[i], c);
        if (in->method == RU_GATE_LAG ? c->may && !could : c->may != could) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "op %u %s run beside service %u", i,
                           c->may ? "must not" : "may", k);
        }
    }
    return RU_OK;
}

/* The dearest permitted op is the price that fills the bound: what costs less may, what costs more
 * may not, and of what costs as much so much runs as fits. */
static ru_status check_fill(const ru_gate_admit_in *in, const ru_gate_plan *p, uint32_t k,
                            double most_s, double *work_s, double *lost_s, ru_err *err)
{
    const ru_gate_cell *c = &p->cell[k * in->n_ops];
    double price = 0, all = 0, below_s = 0, below_lost = 0, at_s = 0;
    for (uint32_t i = 0; i < in->n_ops; i++) {
        price = c[i].may ? fmax(price, c[i].loss) : price;
        all += in->count[i] * in->op[i].s;
    }
    double scale = in->service[k].solo_s / all, each = price / (1 - price);
    bool left_out = false, right = true;
    for (uint32_t i = 0; i < in->n_ops; i++) {
        bool could = allowed(in, &in->service[k], &in->op[i], &c[i]);
        below_s += c[i].may && c[i].loss < price ? scale * in->count[i] * in->op[i].s : 0;
        below_lost += c[i].may && c[i].loss < price ? scale * in->count[i] * c[i].lost_s : 0;
        at_s += c[i].may && !(c[i].loss < price) ? scale * in->count[i] * in->op[i].s : 0;
        left_out = left_out || (could && !c[i].may);
        right = right && (!could || c[i].may || c[i].loss > price);
    }
    double lost = fmin(below_lost + each * at_s, fmax(most_s, below_lost));
    *work_s = below_s + (each > 0 ? (lost - below_lost) / each : at_s);
    *lost_s = lost;
    if (!right || (price > 0 && below_lost >= most_s) ||
        (left_out && lost < most_s * (1 - 1e-9) - 1e-15)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "what may run beside service %u is not what costs it least", k);
    }
    return RU_OK;
}

/* What a request of service k may lose on average with ours. */
static double most_of(const ru_gate_admit_in *in, uint32_t k)
{
    const ru_gate_service *s = &in->service[k];
    double free_s = 1, asked_s = 0; /* of a second */
    for (uint32_t i = 0; i < in->n_services; i++) {
        const ru_gate_service *o = &in->service[i];
        free_s -= o->rate * o->solo_s;
        asked_s += o->rate * (in->goal * o->tail_s - o->tail_s);
    }
    /* once in an idle while at most, and no more than there is idle time; or so that all are as
     * many times as long as makes the queue's tail the goal: n free / (1 - n (1 - free)) */
    double n = 1 / (1 - free_s + free_s / in->goal), once = asked_s * free_s;
    once = asked_s > 1 ? free_s : once;
    return once >= (n - 1) * (1 - free_s)
               ? (in->goal * s->tail_s - s->tail_s) * fmin(free_s, free_s / fmax(asked_s, 1e-300))
               : n * s->solo_s - s->solo_s;
}

/* Work beside a request, what it loses, and its tail. */
static ru_status check_service(const ru_gate_admit_in *in, const ru_gate_plan *p, uint32_t k,
                               ru_err *err)
{
    double before = 0, after = 0; /* what requests take of a second */
    for (uint32_t i = 0; i < in->n_services; i++) {
        before += in->service[i].rate * in->service[i].solo_s;
        after += in->service[i].rate * (in->service[i].solo_s + p->lost_s[i]);
    }
    const ru_gate_service *s = &in->service[k];
    double part = 0, all = 0, cost = 0;
    for (uint32_t i = in->n_ops; i-- > 0;) {
        const ru_gate_cell *c = &p->cell[k * in->n_ops + i];
        all += in->count[i] * in->op[i].s;
        part += c->may ? in->count[i] * in->op[i].s : 0;
        cost += c->may ? in->count[i] * c->lost_s : 0;
    }
    double work = part / all * s->solo_s, lost = cost / all * s->solo_s;
    double budget = in->goal * s->tail_s - s->tail_s, tail = 1 + fmin(lost, budget) / s->tail_s;
    if (in->method == RU_GATE_LAG) {
        RU_TRY(check_fill(in, p, k, most_of(in, k), &work, &lost, err));
    } else {
        lost = in->method == RU_GATE_SLICES ? s->solo_s : lost;
        tail = after < 1 ? (s->solo_s + lost) / s->solo_s * (1 - before) / (1 - after)
                         : (double)INFINITY;
    }
    if (!near(p->budget_s[k], budget) || !near(p->beside_s[k], work) || !near(p->lost_s[k], lost) ||
        !(near(p->tail_ratio[k], tail))) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "budget, work, loss or tail latency of service %u do not follow from the "
                       "measurements",
                       k);
    }
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
        RU_TRY(check_cells(in, p, k, err));
        RU_TRY(check_service(in, p, k, err));
        busy += s->rate * s->solo_s;
        rest -= s->rate * (s->solo_s + p->lost_s[k]);
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
