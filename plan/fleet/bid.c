#include "plan/fleet/bid.h"

#include <math.h>
#include <stddef.h>

/* One allocation as the objective sees it. */
typedef struct item {
    uint32_t market;
    double instances, bid_usd;
    double paid_usd, left_h;
    bool fresh; /* loses sigma first */
} item;

typedef struct item_set {
    item *at;
    uint32_t n;
    double rate;              /* work an hour */
    uint32_t delta, n_deltas; /* those that may be bid */
    bool safe;                /* cycle: on-demand requests alone */
} item_set;

static ru_status check_in(const ru_bid_in *in, ru_err *err)
{
    if (in->n_markets < 1 || in->n_markets > RU_BID_MARKETS_MAX || in->n_deltas < 1 ||
        in->n_deltas > RU_BID_DELTAS_MAX || in->n_held > RU_BID_HELD_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "expected other numbers: %u markets (1 to %d), %u deltas (1 to %d), %u "
                       "allocations (at most %d)",
                       in->n_markets, RU_BID_MARKETS_MAX, in->n_deltas, RU_BID_DELTAS_MAX,
                       in->n_held, RU_BID_HELD_MAX);
    }
    for (uint32_t d = 0; d < in->n_deltas; d++) {
        if (!(in->deltas_usd[d] >= 0) || (d > 0 && in->deltas_usd[d] <= in->deltas_usd[d - 1])) {
            return RU_FAIL(err, RU_E_ARG, "deltas must be 0 or more and rise; delta %u is %g", d,
                           in->deltas_usd[d]);
        }
    }
    for (uint32_t i = 0; i < in->n_held; i++) {
        if (in->held[i].market >= in->n_markets) {
            return RU_FAIL(err, RU_E_ARG,
                           "allocation %u is in market %u, but there are %u markets (from 0)", i,
                           in->held[i].market, in->n_markets);
        }
    }
    double steps = in->step_work > 0 ? in->cap_work / in->step_work : 1;
    if (in->fixed >= in->n_deltas || in->method >= RU_BID_METHODS ||
        !(steps >= 0 && steps <= RU_BID_ACQUIRE_MAX)) {
        return RU_FAIL(
            err, RU_E_ARG,
            "delta %u does not exist (there are %u), or the cap needs more than %d requests",
            in->fixed, in->n_deltas, RU_BID_ACQUIRE_MAX);
    }
    return RU_OK;
}

/* The law of a bid that stands this far above the price: the next lower delta that was counted. */
static const ru_evict_law *law_of(const ru_bid_in *in, uint32_t market, double bid_usd)
{
    double above = bid_usd - in->markets[market].usd;
    uint32_t d = 0;
    while (d + 1 < in->n_deltas && in->deltas_usd[d + 1] <= above + 1e-9) {
        d++;
    }
    return &in->markets[market].law[d];
}

/* Expected cost and work of the hours that run: the paper's E. */
static ru_bid_value value_hour(const ru_bid_in *in, const item_set *s)
{
    ru_bid_value v = {.cost_usd = in->reliable_usd};
    double none = 1;
    for (uint32_t i = 0; i < s->n; i++) {
        const item *a = &s->at[i];
        double chance =
            isinf(a->bid_usd) ? 0 : ru_evict_chance(law_of(in, a->market, a->bid_usd), a->left_h);
        v.cost_usd += (1 - chance) * a->paid_usd * a->instances * a->left_h;
        none *= 1 - chance;
    }
    v.chance = 1 - none;
    for (uint32_t i = 0; i < s->n; i++) {
        const item *a = &s->at[i];
        double useful = a->left_h;
        if (!isinf(a->bid_usd)) {
            const ru_evict_law *l = law_of(in, a->market, a->bid_usd);
            double chance = ru_evict_chance(l, a->left_h);
            double evict_h = fmin(l->median_s / 3600, a->left_h);
            useful = (1 - chance) * a->left_h + chance * evict_h;
        }
        useful -= v.chance * in->lambda_h + (a->fresh ? in->sigma_h : 0);
        v.work += in->phi * a->instances * in->markets[a->market].work * fmax(0, useful);
    }
    v.usd = v.work > 0 ? v.cost_usd / v.work : (double)INFINITY;
    return v;
}

static bool same_group(const item *a, const item *b)
{
    return a->market == b->market && fabs(a->bid_usd - b->bid_usd) <= 1e-9;
}

/* Long-run rates: a cycle begins with an hour paid at the price and ends with it or an eviction. */
static ru_bid_value value_cycle(const ru_bid_in *in, const item_set *s)
{
    ru_bid_value v = {.cost_usd = in->reliable_usd};
    for (uint32_t i = 0; i < s->n; i++) {
        const item *a = &s->at[i];
        const ru_evict_law *l = law_of(in, a->market, a->bid_usd);
        bool fixed = isinf(a->bid_usd), counted = fixed;
        double stays = fixed ? 1 : 1 - ru_evict_chance(l, 1);
        double service = fixed ? 1 : fmax(ru_evict_service(l, 1), 1e-6);
        v.cost_usd += a->instances * a->paid_usd * stays / service;
        double useful = fmax(0, 1 - (a->fresh ? in->sigma_h / service : 0));
        v.work += in->phi * a->instances * in->markets[a->market].work * useful;
        for (uint32_t k = 0; k < i && !counted; k++) {
            counted = same_group(&s->at[k], a);
        }
        v.chance += counted ? 0 : (1 - stays) / service;
    }
    v.work *= fmax(0, 1 - in->lambda_h * v.chance);
    v.usd = v.work > 0 ? v.cost_usd / v.work : (double)INFINITY;
    return v;
}

static ru_bid_value value_of(const ru_bid_in *in, const item_set *s)
{
    return in->method == RU_BID_BIDBRAIN ? value_hour(in, s) : value_cycle(in, s);
}

static double instances_of(const ru_bid_in *in, const item_set *s, uint32_t market)
{
    double room = in->cap_work - s->rate, want = in->step_work > 0 ? in->step_work : room;
    double work = in->markets[market].work;
    double n = fmin(want, room) / work;
    if (in->fractions) {
        return n > 1e-9 ? n : 0;
    }
    n = floor(want / work + 1e-9) >= 1 ? floor(want / work + 1e-9) : 1;
    double most = floor(room / work + 1e-9);
    return fmax(0, fmin(n, most));
}

static bool candidate(const ru_bid_in *in, const item_set *s, uint32_t m, uint32_t d, item *out)
{
    const ru_bid_market *k = &in->markets[m];
    double n = k->closed ? 0 : instances_of(in, s, m);
    double bid = k->usd + in->deltas_usd[d], usd = k->usd;
    if (in->method == RU_BID_STANDARD) {
        bid = k->on_demand_usd;
    } else if (in->method == RU_BID_ON_DEMAND) {
        bid = (double)INFINITY;
        usd = k->on_demand_usd;
    }
    *out = (item){m, n, bid, usd, 1, true};
    return n > 0 && bid >= usd;
}

/* Cost of a unit of the candidate's own work, apart from all others. */
static double own_usd(const ru_bid_in *in, const item *a)
{
    if (in->method != RU_BID_CYCLE) {
        return a->paid_usd / in->markets[a->market].work;
    }
    bool safe = isinf(a->bid_usd);
    const ru_evict_law *l = law_of(in, a->market, a->bid_usd);
    double stays = safe ? 1 : 1 - ru_evict_chance(l, 1);
    double service = safe ? 1 : fmax(ru_evict_service(l, 1), 1e-6);
    double useful = 1 - (a->fresh ? in->sigma_h / service : 0);
    useful *= fmax(0, 1 - in->lambda_h * (1 - stays) / service);
    return useful > 0 ? a->paid_usd * stays / service / useful / in->markets[a->market].work
                      : (double)INFINITY;
}

/* Is a the better request of the two? bidbrain: the one after which the objective is less. Others:
 * the lower price for work, then (cycle) the bid of less cost in the long run. The price comes
 * first because a low price is the state that passes: counts of evictions say less about the market
 * to take than the price does (docs/policies/bid.md). */
static bool better(const ru_bid_in *in, const item *a, double a_usd, const item *b, double b_usd)
{
    if (in->method == RU_BID_BIDBRAIN) {
        return a_usd < b_usd;
    }
    double x = a->paid_usd / in->markets[a->market].work;
    double y = b->paid_usd / in->markets[b->market].work;
    return fabs(x - y) > 1e-12 ? x < y
                               : in->method == RU_BID_CYCLE && own_usd(in, a) < own_usd(in, b);
}

/* The on-demand request of least cost for work: nothing dearer is ever asked for. */
static bool safest(const ru_bid_in *in, const item_set *s, item *best)
{
    bool found = false;
    for (uint32_t m = 0; m < in->n_markets; m++) {
        const ru_bid_market *k = &in->markets[m];
        double n = k->closed ? 0 : instances_of(in, s, m);
        item a = {m, n, (double)INFINITY, k->on_demand_usd, 1, true};
        if (n > 0 && (!found || own_usd(in, &a) < own_usd(in, best))) {
            *best = a;
            found = true;
        }
    }
    return found;
}

static ru_bid_value value_with(const ru_bid_in *in, item_set *s, const item *a)
{
    s->at[s->n++] = *a;
    ru_bid_value v = value_of(in, s);
    s->n--;
    return v;
}

/* What a unit of the work costs that this request adds. cycle: with what its evictions cost the
 * others. */
static double asks_usd(const ru_bid_in *in, const item *a, const ru_bid_value *now,
                       const ru_bid_value *then)
{
    if (in->method != RU_BID_CYCLE) {
        return own_usd(in, a);
    }
    double work = then->work - now->work;
    return work > 0 ? (then->cost_usd - now->cost_usd) / work : (double)INFINITY;
}

/* The best request of those that lower the objective or, where time counts too, that add work up to
 * the cap. False: none does. */
static bool best_spot(const ru_bid_in *in, item_set *s, double usd_max, item *best)
{
    ru_bid_value now = value_of(in, s);
    double least = 0;
    bool found = false;
    for (uint32_t m = 0; m < in->n_markets; m++) {
        for (uint32_t d = s->delta; d < s->delta + s->n_deltas; d++) {
            item a;
            if (!candidate(in, s, m, d, &a)) {
                continue;
            }
            ru_bid_value then = value_with(in, s, &a);
            if (asks_usd(in, &a, &now, &then) > usd_max) {
                continue;
            }
            bool helps = in->method == RU_BID_BIDBRAIN ? then.usd < now.usd
                         : in->method == RU_BID_CYCLE  ? then.work > now.work
                                                       : true;
            if (helps && (!found || better(in, &a, then.usd, best, least))) {
                least = then.usd;
                *best = a;
                found = true;
            }
        }
    }
    return found;
}

/* cycle: a spot request whose own work costs at most what on-demand instances ask; else those. */
static bool best_request(const ru_bid_in *in, item_set *s, item *best)
{
    double usd_max = in->price_max_usd > 0 ? in->price_max_usd : (double)INFINITY;
    item safe;
    if (in->method != RU_BID_CYCLE || !safest(in, s, &safe)) {
        return best_spot(in, s, usd_max, best);
    }
    double safe_usd = own_usd(in, &safe);
    if (!s->safe && best_spot(in, s, fmin(usd_max, safe_usd), best)) {
        return true;
    }
    *best = safe;
    return safe_usd <= usd_max && value_with(in, s, &safe).work > value_of(in, s).work;
}

static void add(const ru_bid_in *in, item_set *s, const item *a)
{
    s->at[s->n++] = *a;
    s->rate += a->instances * in->markets[a->market].work;
}

/* Renew, or do without (bidbrain), or replace it (cycle, standard): whichever costs less. */
static bool keeps(const ru_bid_in *in, item_set *s, const item *renewed)
{
    if (renewed->bid_usd + 1e-9 < renewed->paid_usd) {
        return false; /* the price is above the bid */
    }
    bool dear = in->price_max_usd > 0 && own_usd(in, renewed) > in->price_max_usd;
    if (in->method == RU_BID_CYCLE && dear) {
        return false;
    }
    if (in->method == RU_BID_CYCLE || in->method == RU_BID_STANDARD) {
        item other;
        return !best_request(in, s, &other) || !better(in, &other, 0, renewed, 0);
    }
    if (in->method != RU_BID_BIDBRAIN) {
        return true;
    }
    double without = value_of(in, s).usd;
    s->at[s->n++] = *renewed;
    double with = value_of(in, s).usd;
    s->n--;
    return with <= without;
}

/* Price of an instance-hour that begins now. */
static double usd_now(const ru_bid_in *in, uint32_t market, double bid_usd)
{
    return isinf(bid_usd) ? in->markets[market].on_demand_usd : in->markets[market].usd;
}

/* In the long run it is the price now that counts: what was paid is spent. */
static item still_held(const ru_bid_in *in, const ru_bid_held *h)
{
    double usd = fmin(usd_now(in, h->market, h->bid_usd), h->bid_usd);
    return (item){h->market, h->instances, h->bid_usd, usd, h->left_h, false};
}

static void take_held(const ru_bid_in *in, item_set *s, ru_bid_action *actions, uint32_t *n)
{
    for (uint32_t i = 0; i < in->n_held; i++) {
        item a = still_held(in, &in->held[i]);
        a.paid_usd = in->method == RU_BID_CYCLE ? a.paid_usd : in->held[i].paid_usd;
        if (!in->held[i].due) {
            add(in, s, &a);
        }
    }
    for (uint32_t i = 0; i < in->n_held; i++) {
        const ru_bid_held *h = &in->held[i];
        if (h->due) {
            item renewed = {h->market, h->instances, h->bid_usd, usd_now(in, h->market, h->bid_usd),
                            1,         false};
            bool keep = keeps(in, s, &renewed);
            actions[(*n)++] = (ru_bid_action){keep ? RU_BID_RENEW : RU_BID_RELEASE, i, h->market,
                                              h->instances, h->bid_usd};
            if (keep) {
                add(in, s, &renewed);
            }
        }
    }
}

/* A decision under way: what is on after it, and the actions; before: without the due ones. */
typedef struct draft {
    item_set s;
    ru_bid_action *actions;
    uint32_t n, n_requests, requests_max;
    ru_bid_value before, after;
} draft;

static bool draft_new(const ru_bid_in *in, ru_arena *scratch, draft *d)
{
    /* whole instances may fill less than a step, but more than half of one */
    double steps = in->step_work > 0 ? 2 * in->cap_work / in->step_work : 0;
    uint32_t requests = in->n_markets + 2 + (uint32_t)steps;
    *d = (draft){.s.at = RU_NEW(scratch, item, (int64_t)in->n_held + requests + 1),
                 .actions = RU_NEW(scratch, ru_bid_action, (int64_t)in->n_held + requests),
                 .requests_max = requests};
    return d->s.at != NULL && d->actions != NULL;
}

/* Requests by the rule of `in`, one by one. */
static void draft_request(const ru_bid_in *in, draft *d)
{
    item a;
    while (d->n_requests < d->requests_max && best_request(in, &d->s, &a)) {
        add(in, &d->s, &a);
        d->actions[d->n++] =
            (ru_bid_action){RU_BID_ACQUIRE, UINT32_MAX, a.market, a.instances, a.bid_usd};
        d->n_requests++;
    }
    d->after = value_of(in, &d->s);
}

/* n_deltas 0: on-demand requests alone. */
static void draft_fill(const ru_bid_in *in, uint32_t delta, uint32_t n_deltas, draft *d)
{
    d->s = (item_set){.at = d->s.at, .delta = delta, .n_deltas = n_deltas, .safe = n_deltas == 0};
    d->n = d->n_requests = 0;
    take_held(in, &d->s, d->actions, &d->n);
    item_set still = d->s;
    for (uint32_t i = 0; i < d->n; i++) {
        still.n -= d->actions[i].act == RU_BID_RENEW; /* they stand behind those not due */
    }
    d->before = value_of(in, &still);
    draft_request(in, d);
}

/* Does work cost no more with it than on demand and by the limit? */
static bool within(const ru_bid_in *in, const item *a)
{
    const item_set none = {0};
    double most = in->price_max_usd > 0 ? in->price_max_usd : (double)INFINITY;
    item safe;
    if (a->fresh && safest(in, &none, &safe)) {
        most = fmin(most, fmin(own_usd(in, &safe),
                               in->markets[a->market].on_demand_usd / in->markets[a->market].work));
    }
    return a->bid_usd + 1e-9 >= a->paid_usd && own_usd(in, a) <= most;
}

/* What another method does, valued as ours values it, and then what ours adds to that. False: ours
 * may not do it. */
static bool draft_after(const ru_bid_in *in, ru_bid_method method, draft *d)
{
    ru_bid_in q = *in;
    q.method = method;
    bool search = method == RU_BID_BIDBRAIN;
    draft_fill(&q, search ? 0 : in->fixed, search ? in->n_deltas : 1, d);
    d->s = (item_set){.at = d->s.at, .n_deltas = in->n_deltas};
    for (uint32_t i = 0; i < in->n_held; i++) {
        if (!in->held[i].due) {
            item a = still_held(in, &in->held[i]);
            add(in, &d->s, &a);
        }
    }
    for (uint32_t k = 0; k < d->n; k++) {
        const ru_bid_action *x = &d->actions[k];
        item a = {x->market,  x->instances,
                  x->bid_usd, usd_now(in, x->market, x->bid_usd),
                  1,          x->act == RU_BID_ACQUIRE};
        if (x->act != RU_BID_RELEASE && !within(in, &a)) {
            return false;
        }
        if (x->act != RU_BID_RELEASE) {
            add(in, &d->s, &a);
        }
    }
    draft_request(in, d);
    return true;
}

/* Is a the better draft? Work costs less after it, and it does as much of it or adds its part at a
 * lower cost. */
static bool draft_better(const draft *a, const draft *b)
{
    const ru_bid_value *x = &a->after, *y = &b->after;
    double x_work = x->work - a->before.work, y_work = y->work - b->before.work;
    bool cheaper =
        (x->cost_usd - a->before.cost_usd) * y_work < (y->cost_usd - b->before.cost_usd) * x_work;
    return x->usd < y->usd && (x->work >= y->work * (1 - 1e-12) || cheaper);
}

ru_status ru_plan_bid(const ru_bid_in *in, ru_arena *out, ru_arena *scratch, ru_bid_plan *plan,
                      ru_err *err)
{
    RU_TRY(check_in(in, err));
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    draft d, other;
    if (!draft_new(in, scratch, &d) || !draft_new(in, scratch, &other)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to bid in %u markets", in->n_markets);
    }
    bool search = in->method == RU_BID_CYCLE || in->method == RU_BID_BIDBRAIN;
    draft_fill(in, search ? 0 : in->fixed, search ? in->n_deltas : 1, &d);
    /* Requests are chosen one by one; what they cost one another shows at the end. */
    for (uint32_t k = 0; in->method == RU_BID_CYCLE && k <= in->n_deltas; k++) {
        draft_fill(in, k % in->n_deltas, k < in->n_deltas ? 1 : 0, &other);
        if (draft_better(&other, &d)) {
            draft was = d;
            d = other;
            other = was;
        }
    }
    for (uint32_t m = RU_BID_CYCLE + 1; in->method == RU_BID_CYCLE && m < RU_BID_METHODS; m++) {
        bool may = draft_after(in, (ru_bid_method)m, &other);
        other.before = d.before; /* the same, by the figure of ours */
        if (may && draft_better(&other, &d)) {
            draft was = d;
            d = other;
            other = was;
        }
    }
    ru_bid_action *kept = RU_NEW(out, ru_bid_action, d.n);
    if (kept == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u actions", d.n);
    }
    for (uint32_t i = 0; i < d.n; i++) {
        kept[i] = d.actions[i];
    }
    if (scratch != out) {
        ru_arena_rewind(scratch, mark);
    }
    *plan = (ru_bid_plan){kept, d.n, d.before, d.after};
    return RU_OK;
}

ru_status ru_bid_long_run(const ru_bid_in *in, const ru_bid_plan *plan, ru_arena *scratch,
                          ru_bid_value *value, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    item_set s = {.at = RU_NEW(scratch, item, (int64_t)in->n_held + plan->n)};
    if (s.at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to measure %u actions", plan->n);
    }
    for (uint32_t i = 0; i < in->n_held; i++) {
        if (!in->held[i].due) {
            s.at[s.n++] = still_held(in, &in->held[i]);
        }
    }
    for (uint32_t k = 0; k < plan->n; k++) {
        const ru_bid_action *a = &plan->actions[k];
        if (a->act != RU_BID_RELEASE) {
            s.at[s.n++] = (item){a->market,  a->instances,
                                 a->bid_usd, usd_now(in, a->market, a->bid_usd),
                                 1,          a->act == RU_BID_ACQUIRE};
        }
    }
    *value = value_cycle(in, &s);
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}
