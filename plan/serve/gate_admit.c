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
        return lost_s <= budget_s && lost_s < o->s; /* and brings more than it costs */
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

/* How much later a request of `tail_s` and `solo_s` may end on average with ours is the larger,
 * over all services, of part of its budget: the lag is made up only when the device would be idle,
 * and a part 1 - busy of all requests meets it idle. So a budget is spent at most once in such a
 * while, and all that is lost fits into the idle time; part of its time: requests n times as long
 * wait n (1 - busy) / (1 - n busy) as long, so that the queue alone, without a bound on the lag,
 * keeps the goal. */
typedef struct spend {
    double of_budget, of_time;
} spend;

static spend spend_of(const ru_gate_admit_in *in, double busy)
{
    double asked = 0;
    for (uint32_t k = 0; k < in->n_services; k++) {
        asked += in->service[k].rate * (in->goal - 1) * in->service[k].tail_s;
    }
    double part = (1 - busy) / fmax(1, asked), n = in->goal / (1 - busy + in->goal * busy);
    bool budget = part * asked >= busy * (n - 1);
    return (spend){budget ? part : 0, budget ? 0 : n - 1};
}

typedef struct beside {
    double work_s, lost_s; /* of the training beside a request, and what the request loses by it */
    double all_s;          /* lost if all that may did run beside it */
} beside;

/* Whatever may runs, in the proportions of a step. */
static beside any_beside(const ru_gate_admit_in *in, const ru_gate_service *s,
                         const ru_gate_cell *cell)
{
    double all = 0;
    beside b = {0};
    for (uint32_t i = 0; i < in->n_ops; i++) {
        double work = in->count[i] * in->op[i].s;
        all += work;
        b.work_s += cell[i].may ? work : 0;
        b.lost_s += cell[i].may ? in->count[i] * cell[i].lost_s : 0;
    }
    b.work_s *= s->solo_s / all;
    b.lost_s *= s->solo_s / all;
    b.all_s = b.lost_s;
    return b;
}

/* Ours: what costs a request least for its time first, until the request has lost `most_s`; what
 * would cost more may not. Filling a bound by rising price is the best that fits. */
static ru_status best_beside(const ru_gate_admit_in *in, const ru_gate_service *s, double most_s,
                             ru_gate_cell *cell, ru_arena *scratch, beside *b, ru_err *err)
{
    ru_arena_mark m = ru_arena_mark_get(scratch);
    double *loss = RU_NEW(scratch, double, in->n_ops), all = 0, last = -1;
    uint32_t *order = RU_NEW(scratch, uint32_t, in->n_ops);
    if (loss == NULL || order == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the order of %u ops", in->n_ops);
    }
    for (uint32_t i = 0; i < in->n_ops; i++) {
        loss[i] = cell[i].loss;
        all += in->count[i] * in->op[i].s;
    }
    ru_sort_order_f64(loss, order, in->n_ops);
    *b = (beside){0};
    for (uint32_t n = 0; n < in->n_ops; n++) {
        uint32_t i = order[n];
        double work = s->solo_s * in->count[i] * in->op[i].s / all;
        double lost = s->solo_s * in->count[i] * cell[i].lost_s / all;
        cell[i].may = cell[i].may && (b->lost_s < most_s || cell[i].loss <= fmax(last, 0));
        if (cell[i].may) {
            double part = lost > most_s - b->lost_s ? (most_s - b->lost_s) / lost : 1;
            b->work_s += part * work;
            b->lost_s = part < 1 ? most_s : b->lost_s + lost;
            b->all_s += lost;
            last = cell[i].loss;
        }
    }
    ru_arena_rewind(scratch, m);
    return RU_OK;
}

/* The tail over that of the service alone: ours never lags by more than the budget; elsewhere each
 * request is longer, and waits for longer ones that fill the part `full` of the time, not `busy`.
 */
static double tail_of(const ru_gate_admit_in *in, const ru_gate_service *s, const beside *b,
                      double budget_s, double busy, double full)
{
    if (in->method == RU_GATE_LAG || in->method == RU_GATE_ORACLE) {
        return 1 + fmin(b->all_s, budget_s) / s->tail_s;
    }
    return full < 1 ? (1 + b->lost_s / s->solo_s) * (1 - busy) / (1 - full) : (double)INFINITY;
}

static ru_status beside_of(const ru_gate_admit_in *in, uint32_t k, double most_s,
                           ru_gate_cell *cell, ru_arena *scratch, beside *b, ru_err *err)
{
    const ru_gate_service *s = &in->service[k];
    if (in->method == RU_GATE_LAG || in->method == RU_GATE_ORACLE) {
        return best_beside(in, s, most_s, cell, scratch, b, err);
    }
    *b = any_beside(in, s, cell);
    b->lost_s = in->method == RU_GATE_SLICES ? (SLICED - 1) * s->solo_s : b->lost_s;
    return RU_OK;
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

/* Work beside requests, what they lose and their tails into each [4, n_services] behind the
 * budgets; the sums of a second. */
static ru_status services(const ru_gate_admit_in *in, double busy, ru_gate_cell *cell, double *each,
                          ru_arena *scratch, double *full, double *work, ru_err *err)
{
    uint32_t n = in->n_services;
    beside *b = RU_NEW(scratch, beside, n);
    if (b == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u services", n);
    }
    spend may = spend_of(in, busy);
    *full = busy;
    for (uint32_t k = 0; k < n; k++) {
        double most = may.of_budget * each[k] + may.of_time * in->service[k].solo_s;
        RU_TRY(beside_of(in, k, most, &cell[k * in->n_ops], scratch, &b[k], err));
        each[n + k] = b[k].work_s;
        each[2 * n + k] = b[k].lost_s;
        *full += in->service[k].rate * b[k].lost_s;
        *work += in->service[k].rate * b[k].work_s;
    }
    for (uint32_t k = 0; k < n; k++) {
        each[3 * n + k] = tail_of(in, &in->service[k], &b[k], each[k], busy, *full);
    }
    return RU_OK;
}

ru_status ru_plan_gate(const ru_gate_admit_in *in, ru_arena *out, ru_arena *scratch,
                       ru_gate_plan *plan, ru_err *err)
{
    RU_TRY(check_in(in, err));
    uint32_t n = in->n_services;
    ru_gate_cell *cell = RU_NEW(out, ru_gate_cell, n * in->n_ops);
    double *each = RU_NEW(out, double, 4 * (int64_t)n);
    if (cell == NULL || each == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u services and %u ops", n, in->n_ops);
    }
    double busy = 0, full = 0, work = 0, worst = 0;
    for (uint32_t k = 0; k < n; k++) {
        each[k] = (in->goal - 1) * in->service[k].tail_s;
        busy += in->service[k].rate * in->service[k].solo_s;
    }
    if (!(busy < 1)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "the services need %.3g of the device without the training", busy);
    }
    RU_TRY(cells(in, each, cell, scratch, err));
    RU_TRY(services(in, busy, cell, each, scratch, &full, &work, err));
    for (uint32_t k = 0; k < n; k++) {
        worst = fmax(worst, each[3 * n + k]);
    }
    double idle = fmax(1 - full, 0);
    bool half = in->method == RU_GATE_QUOTA;
    double share = isfinite(worst) ? (half ? QUOTA : 1) * (idle + work) : 0;
    share = in->method == RU_GATE_DEDICATED ? 0 : fmin(share, 1);
    memset(plan, 0, sizeof *plan); /* the bytes between fields, too: equal plans have equal bytes */
    plan->cell = cell;
    plan->budget_s = each;
    plan->beside_s = each + n;
    plan->lost_s = each + 2 * n;
    plan->tail_ratio = each + 3 * n;
    plan->n_services = n;
    plan->n_ops = in->n_ops;
    plan->admit = share > 0 && share >= in->share_min && worst <= in->goal;
    plan->busy = busy;
    plan->share = share;
    return RU_OK;
}
