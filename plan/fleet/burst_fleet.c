#include "plan/fleet/burst_fleet.h"

#include <math.h>
#include <stddef.h>

#include "cost/math/quantile.h"

enum { UNITS = 2000 };

double ru_burst_offer(const ru_burst_type *t, const ru_credit *now, double period_s)
{
    double use = fmin(t->rules.burst, t->rules.earn + ru_credit_level(now) / period_s);
    return fmin(t->rate_max, use / t->need);
}

typedef struct item {
    uint32_t type, from;
    int64_t nano_usd;
    uint32_t units; /* of the forecast that it covers */
} item;

typedef struct cover {
    const ru_burst_fleet_in *in;
    item *items;
    uint32_t n;
    uint8_t *taken; /* [n, UNITS + 1] */
    int64_t cost[UNITS + 1];
} cover;

static int64_t price(const cover *c, uint32_t type)
{
    return (int64_t)floor(c->in->type[type].usd_per_h * c->in->period_s / 3600 * 1e9 + 0.5);
}

static void add(cover *c, uint32_t type, const ru_credit *now, uint32_t from, uint32_t copies)
{
    double offer = ru_burst_offer(&c->in->type[type], now, c->in->period_s);
    double units = floor(fmin(1, offer / c->in->rate) * UNITS + 1e-9);
    for (uint32_t k = 0; k < copies && units >= 1; k++) {
        c->items[c->n++] = (item){type, from, price(c, type), (uint32_t)units};
    }
}

/* How many new machines of a type could be of use. */
static uint32_t copies_of(const cover *c, uint32_t type)
{
    ru_credit now = ru_credit_launch(&c->in->type[type].rules);
    double offer = ru_burst_offer(&c->in->type[type], &now, c->in->period_s);
    return (uint32_t)fmin(RU_BURST_MACHINES_MAX, ceil(1.01 * c->in->rate / offer) + 1);
}

/* The type with launch credits whose requests cost least; UINT32_MAX: none. */
static uint32_t best_launched(const ru_burst_fleet_in *in)
{
    uint32_t best = UINT32_MAX;
    double least = INFINITY;
    for (uint32_t t = 0; t < in->n_types; t++) {
        ru_credit now = ru_credit_launch(&in->type[t].rules);
        double per = in->type[t].usd_per_h / ru_burst_offer(&in->type[t], &now, in->period_s);
        if (ru_credit_level(&now) > 0 && per < least) {
            best = t;
            least = per;
        }
    }
    return best;
}

static ru_status gather(cover *c, ru_arena *scratch, ru_err *err)
{
    const ru_burst_fleet_in *in = c->in;
    uint32_t launched = best_launched(in), most = in->n_machines;
    uint32_t copies[RU_BURST_TYPES_MAX];
    for (uint32_t t = 0; t < in->n_types; t++) {
        bool credits = in->type[t].rules.launch + in->type[t].rules.start > 0;
        copies[t] = credits && t != launched ? 0 : copies_of(c, t);
        copies[t] = credits && copies[t] > in->launches_left ? in->launches_left : copies[t];
        most += copies[t];
    }
    c->items = RU_NEW(scratch, item, most + 1);
    c->taken = RU_NEW(scratch, uint8_t, (int64_t)(most + 1) * (UNITS + 1));
    if (c->items == NULL || c->taken == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u machines", most);
    }
    for (uint32_t i = 0; i < in->n_machines; i++) {
        add(c, in->machine[i].type, &in->machine[i].now, i, 1);
    }
    for (uint32_t t = 0; t < in->n_types; t++) {
        ru_credit now = ru_credit_launch(&in->type[t].rules);
        add(c, t, &now, UINT32_MAX, copies[t]);
    }
    return RU_OK;
}

/* cost[u]: least price of a set that covers u units with the items so far. Earlier items win ties:
 * what runs goes before what would be launched. */
static void solve(cover *c)
{
    c->cost[0] = 0;
    for (uint32_t u = 1; u <= UNITS; u++) {
        c->cost[u] = INT64_MAX / 2;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        for (uint32_t u = UNITS; u >= 1; u--) {
            uint32_t left = u > c->items[i].units ? u - c->items[i].units : 0;
            bool better = c->cost[left] + c->items[i].nano_usd < c->cost[u];
            c->taken[(size_t)i * (UNITS + 1) + u] = better;
            c->cost[u] = better ? c->cost[left] + c->items[i].nano_usd : c->cost[u];
        }
    }
}

/* Machines without credits first, then those with the fewest; of those alike the earlier one. */
static ru_status spread(const ru_burst_fleet_in *in, ru_burst_fleet_plan *p, ru_arena *scratch,
                        ru_err *err)
{
    double *key = RU_NEW(scratch, double, p->n + 1), offered = 0, left = in->rate;
    uint32_t *order = RU_NEW(scratch, uint32_t, p->n + 1);
    if (key == NULL || order == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a fleet of %u", p->n);
    }
    for (uint32_t i = 0; i < p->n; i++) {
        const ru_burst_type *t = &in->type[p->machine[i].type];
        bool regular = t->rules.earn >= t->rules.burst;
        key[i] = regular ? -1 : ru_credit_level(&p->machine[i].now);
        p->rate[i] = ru_burst_offer(t, &p->machine[i].now, in->period_s);
        offered += p->rate[i];
    }
    ru_sort_order_f64(key, order, p->n);
    double scale = fmax(1, in->rate / offered); /* units are rounded in their last digits */
    for (uint32_t k = 0; k < p->n; k++) {
        uint32_t i = order[k];
        p->rate[i] = fmin(p->rate[i] * scale, left);
        left = fmax(0, left - p->rate[i]);
    }
    return RU_OK;
}

static ru_status decode(const cover *c, ru_arena *out, ru_arena *scratch, ru_burst_fleet_plan *p,
                        ru_err *err)
{
    const ru_burst_fleet_in *in = c->in;
    *p = (ru_burst_fleet_plan){.machine = RU_NEW(out, ru_burst_machine, c->n + 1),
                               .rate = RU_NEW(out, double, c->n + 1),
                               .from = RU_NEW(out, uint32_t, c->n + 1)};
    bool *in_set = RU_NEW(scratch, bool, c->n + 1);
    if (p->machine == NULL || p->rate == NULL || p->from == NULL || in_set == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a fleet of %u", c->n);
    }
    uint32_t left = UNITS;
    for (uint32_t i = c->n; i-- > 0;) {
        in_set[i] = left > 0 && c->taken[(size_t)i * (UNITS + 1) + left];
        left = !in_set[i] ? left : left > c->items[i].units ? left - c->items[i].units : 0;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        if (in_set[i]) {
            const item *t = &c->items[i];
            ru_credit now = t->from == UINT32_MAX ? ru_credit_launch(&in->type[t->type].rules)
                                                  : in->machine[t->from].now;
            p->machine[p->n] = (ru_burst_machine){t->type, now};
            p->from[p->n++] = t->from;
            p->usd += in->type[t->type].usd_per_h * in->period_s / 3600;
        }
    }
    return spread(in, p, scratch, err);
}

ru_status ru_plan_burst_fleet(const ru_burst_fleet_in *in, ru_arena *out, ru_arena *scratch,
                              ru_burst_fleet_plan *plan, ru_err *err)
{
    if (in->n_types > RU_BURST_TYPES_MAX || in->n_machines > RU_BURST_MACHINES_MAX) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "there are %u types and %u machines; expected at most %d and %d",
                       in->n_types, in->n_machines, RU_BURST_TYPES_MAX, RU_BURST_MACHINES_MAX);
    }
    cover *c = RU_NEW(scratch, cover, 1);
    if (c == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a cover");
    }
    c->in = in;
    c->n = 0;
    RU_TRY(gather(c, scratch, err));
    solve(c);
    if (c->cost[UNITS] >= INT64_MAX / 2) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "no set of machines serves %g requests per second; allow more launches or a "
                       "regular type",
                       in->rate);
    }
    return decode(c, out, scratch, plan, err);
}
