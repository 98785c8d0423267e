/* The table of `gate`: what may run beside what by measured pairs, and whether to share at all. */
#include "plan/serve/gate.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "cost/math/quantile.h"

#define LOSS_MAX   0.98
#define ABACUS_SLO 2.5
#define QUOTA      0.5
#define SLICED     2 /* a request among equal slices takes so many times as long */

static ru_status check_in(const ru_gate_admit_in *in, ru_err *err)
{
    if (in->n_services < 1 || in->n_ops < 1 || in->n_ops > RU_GATE_CELLS_MAX / in->n_services) {
        return RU_FAIL(
            err, RU_E_ARG,
            "there are %u services and %u ops; expected at least one of each, and at most %d pairs",
            in->n_services, in->n_ops, RU_GATE_CELLS_MAX);
    }
    for (uint32_t i = 0; i < in->n_pairs; i++) {
        const ru_gate_pair *p = &in->pair[i];
        if (p->service >= in->n_services || p->op >= in->n_ops) {
            return RU_FAIL(
                err, RU_E_ARG,
                "pair %u names service %u and op %u, but there are %u services and %u ops (from 0)",
                i, p->service, p->op, in->n_services, in->n_ops);
        }
    }
    return RU_OK;
}

/* The quantile of measured losses, drawn towards the guess as if that were one more measurement. */
static ru_status loss_of(const ru_gate_admit_in *in, const ru_gate_pair *p, ru_arena *scratch,
                         double *out, ru_err *err)
{
    double *loss = RU_NEW(scratch, double, p->n);
    if (loss == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u measured ops", p->n);
    }
    for (uint32_t i = 0; i < p->n; i++) {
        loss[i] = fmin(fmax(1 - 1 / p->slow[i], 0), LOSS_MAX);
    }
    double q = 0;
    if (p->n > 0) {
        RU_TRY(ru_quantile(loss, p->n, 1 - in->miss, RU_QUANTILE_RANK, scratch, &q, err));
    }
    *out = (p->n * q + in->guess) / (p->n + 1.0);
    return RU_OK;
}

static bool may(const ru_gate_admit_in *in, const ru_gate_service *s, const ru_gate_op *o,
                double lost_s, double budget_s)
{
    switch (in->method) {
    case RU_GATE_LAG:
    case RU_GATE_ORACLE:
        return lost_s <= budget_s;
    case RU_GATE_FREE:
    case RU_GATE_QUOTA:
        return true;
    case RU_GATE_ORION:
        return (o->cls != s->cls || o->cls == RU_OP_UNKNOWN) && o->units <= in->device;
    case RU_GATE_REEF:
        return o->s <= s->solo_s / s->ops && o->units >= s->units;
    case RU_GATE_ABACUS:
        return lost_s <= (ABACUS_SLO - 1) * s->solo_s;
    case RU_GATE_DEDICATED:
    case RU_GATE_SLICES:
    case RU_GATE_PRIORITY:
    case RU_GATE_IDLE:
        break;
    }
    return false;
}

/* How much later a request may end on average with ours, as a part of the budget: the lag is made
 * up only when the device would be idle, and a part 1 - busy of all requests meets it idle. So a
 * budget is spent at most once in such a while, and all that is lost fits into the idle time. */
static double spent_of(const ru_gate_admit_in *in, double busy, const double *budget_s)
{
    double lost = 0;
    for (uint32_t k = 0; k < in->n_services; k++) {
        lost += in->service[k].rate * budget_s[k];
    }
    return (1 - busy) / fmax(1, lost);
}

/* Work of the training beside a request, what that costs the request, and its tail: ours never
 * lags by more than the budget, of which a request spends the part `spent` at most; elsewhere each
 * request is longer and waits for longer ones. Returns what a request is longer by. */
static double service_of(const ru_gate_admit_in *in, uint32_t k, const ru_gate_cell *cell,
                         double budget_s, double spent, double *beside_s, double *tail_ratio)
{
    const ru_gate_service *s = &in->service[k];
    double all = 0, allowed = 0, lost = 0, load = s->rate * s->solo_s;
    for (uint32_t i = 0; i < in->n_ops; i++) {
        double work = in->count[i] * in->op[i].s;
        all += work;
        allowed += cell[i].may ? work : 0;
        lost += cell[i].may ? in->count[i] * cell[i].lost_s : 0;
    }
    double work = s->solo_s * allowed / all, each = allowed > 0 ? lost / allowed : 0;
    bool bounded = in->method == RU_GATE_LAG || in->method == RU_GATE_ORACLE;
    double lag = fmin(work * each, budget_s);
    if (bounded && work * each > spent * budget_s) {
        work = spent * budget_s / each;
    }
    double longer = in->method == RU_GATE_SLICES ? SLICED : 1 + work * each / s->solo_s;
    double queued =
        load * longer < 1 ? longer * (1 - load) / (1 - load * longer) : (double)INFINITY;
    *beside_s = work;
    *tail_ratio = bounded ? 1 + lag / s->tail_s : queued;
    return in->method == RU_GATE_SLICES ? (SLICED - 1) * s->solo_s : work * each;
}

static ru_status cells(const ru_gate_admit_in *in, const double *budget_s, ru_gate_cell *cell,
                       ru_arena *scratch, ru_err *err)
{
    for (uint32_t i = 0; i < in->n_services * in->n_ops; i++) {
        cell[i].loss = in->guess;
    }
    for (uint32_t i = 0; i < in->n_pairs; i++) {
        const ru_gate_pair *p = &in->pair[i];
        ru_arena_mark m = ru_arena_mark_get(scratch);
        RU_TRY(loss_of(in, p, scratch, &cell[p->service * in->n_ops + p->op].loss, err));
        ru_arena_rewind(scratch, m);
    }
    double share = in->method == RU_GATE_QUOTA ? QUOTA : 1;
    for (uint32_t k = 0; k < in->n_services; k++) {
        for (uint32_t i = 0; i < in->n_ops; i++) {
            ru_gate_cell *c = &cell[k * in->n_ops + i];
            c->lost_s = share * in->op[i].s * c->loss / (1 - c->loss);
            c->may = may(in, &in->service[k], &in->op[i], c->lost_s, budget_s[k]);
        }
    }
    return RU_OK;
}

ru_status ru_plan_gate(const ru_gate_admit_in *in, ru_arena *out, ru_arena *scratch,
                       ru_gate_plan *plan, ru_err *err)
{
    RU_TRY(check_in(in, err));
    ru_gate_cell *cell = RU_NEW(out, ru_gate_cell, in->n_services * in->n_ops);
    double *each = RU_NEW(out, double, 3 * (int64_t)in->n_services);
    if (cell == NULL || each == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u services and %u ops", in->n_services,
                       in->n_ops);
    }
    double *budget = each, *beside = each + in->n_services, *tail = beside + in->n_services;
    double busy = 0, lost = 0, work = 0, worst = 0;
    for (uint32_t k = 0; k < in->n_services; k++) {
        budget[k] = (in->goal - 1) * in->service[k].tail_s;
        busy += in->service[k].rate * in->service[k].solo_s;
    }
    if (!(busy < 1)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "the services need %.3g of the device without the training", busy);
    }
    RU_TRY(cells(in, budget, cell, scratch, err));
    double spent = spent_of(in, busy, budget);
    for (uint32_t k = 0; k < in->n_services; k++) {
        const ru_gate_service *s = &in->service[k];
        lost += s->rate *
                service_of(in, k, &cell[k * in->n_ops], budget[k], spent, &beside[k], &tail[k]);
        work += s->rate * beside[k];
        worst = fmax(worst, tail[k]);
    }
    double idle = fmax(1 - busy - lost, 0);
    bool half = in->method == RU_GATE_QUOTA;
    double share = isfinite(worst) ? (half ? QUOTA : 1) * (idle + work) : 0;
    share = in->method == RU_GATE_DEDICATED ? 0 : fmin(share, 1);
    memset(plan, 0, sizeof *plan); /* the bytes between fields, too: equal plans have equal bytes */
    plan->cell = cell;
    plan->budget_s = budget;
    plan->beside_s = beside;
    plan->tail_ratio = tail;
    plan->n_services = in->n_services;
    plan->n_ops = in->n_ops;
    plan->admit = share > 0 && share >= in->share_min && worst <= in->goal;
    plan->busy = busy;
    plan->share = share;
    return RU_OK;
}
