#include <math.h>
#include <stddef.h>

#include "plan/fleet/bid.h"

/* An allocation after the plan: held ones by their number, then the requests. */
typedef struct seen {
    bool on, fresh;
    uint32_t market;
    double n, bid, usd, left;
} seen;

static const ru_evict_law *law_at(const ru_bid_in *in, const seen *a)
{
    const ru_bid_market *m = &in->markets[a->market];
    for (uint32_t d = in->n_deltas; d-- > 1;) {
        if (m->usd + in->deltas_usd[d] <= a->bid + 1e-9) {
            return &m->law[d];
        }
    }
    return m->law;
}

static seen at_action(const ru_bid_in *in, const ru_bid_plan *plan, uint32_t k, bool planned)
{
    if (k >= in->n_held) {
        const ru_bid_action *a = &plan->actions[k - in->n_held];
        const ru_bid_market *m = &in->markets[a->market];
        bool on = planned && a->act == RU_BID_ACQUIRE;
        return (seen){on,         true,
                      a->market,  a->instances,
                      a->bid_usd, isinf(a->bid_usd) ? m->on_demand_usd : m->usd,
                      1};
    }
    const ru_bid_held *h = &in->held[k];
    const ru_bid_market *m = &in->markets[h->market];
    double now = isinf(h->bid_usd) ? m->on_demand_usd : m->usd;
    seen s = {true, false, h->market, h->instances, h->bid_usd, now, 1};
    if (!h->due) {
        s.left = h->left_h;
        s.usd = in->method == RU_BID_CYCLE ? fmin(now, h->bid_usd) : h->paid_usd;
        return s;
    }
    s.on = false;
    for (uint32_t i = 0; planned && i < plan->n; i++) {
        s.on = s.on || (plan->actions[i].held == k && plan->actions[i].act == RU_BID_RENEW);
    }
    return s;
}

/* The objective, written down a second time. */
static ru_bid_value measure(const ru_bid_in *in, const ru_bid_plan *plan, bool planned,
                            const seen *more)
{
    uint32_t n = in->n_held + plan->n + (more != NULL ? 1 : 0);
    double cost = in->reliable_usd, work = 0, none = 1, evictions = 0;
    bool hour = in->method == RU_BID_BIDBRAIN;
    for (uint32_t k = 0; k < n; k++) {
        seen a = more != NULL && k == n - 1 ? *more : at_action(in, plan, k, planned);
        if (!a.on) {
            continue;
        }
        bool safe = isinf(a.bid);
        const ru_evict_law *l = law_at(in, &a);
        double chance = safe ? 0 : ru_evict_chance(l, hour ? a.left : 1);
        none *= 1 - chance;
        if (hour) {
            cost += a.n * a.usd * a.left * (1 - chance);
            continue;
        }
        double lives = safe ? 1 : fmax(ru_evict_service(l, 1), 1e-6);
        cost += a.n * a.usd * (1 - chance) / lives;
        work += a.n * in->markets[a.market].work * in->phi *
                fmax(0, 1 - (a.fresh ? in->sigma_h / lives : 0));
        bool first = !safe;
        for (uint32_t j = 0; first && j < k; j++) {
            seen b = at_action(in, plan, j, planned);
            first = !(b.on && b.market == a.market && fabs(b.bid - a.bid) <= 1e-9);
        }
        evictions += first ? chance / lives : 0;
    }
    for (uint32_t k = 0; hour && k < n; k++) {
        seen a = more != NULL && k == n - 1 ? *more : at_action(in, plan, k, planned);
        const ru_evict_law *l = law_at(in, &a);
        double chance = isinf(a.bid) ? 0 : ru_evict_chance(l, a.left);
        double use = (1 - chance) * a.left + chance * fmin(a.left, l->median_s / 3600) -
                     (1 - none) * in->lambda_h - (a.fresh ? in->sigma_h : 0);
        work += a.on && use > 0 ? in->phi * a.n * in->markets[a.market].work * use : 0;
    }
    work *= hour ? 1 : fmax(0, 1 - in->lambda_h * evictions);
    return (ru_bid_value){cost, work, hour ? 1 - none : evictions,
                          work > 0 ? cost / work : (double)INFINITY};
}

static bool near(double a, double b)
{
    return a == b ||
           (isfinite(a) && isfinite(b) && fabs(a - b) <= 1e-9 * (1e-9 + fmax(fabs(a), fabs(b))));
}

static ru_status check_value(const char *what, ru_bid_value is, ru_bid_value want, ru_err *err)
{
    if (!near(is.cost_usd, want.cost_usd) || !near(is.work, want.work) ||
        !near(is.chance, want.chance) || !near(is.usd, want.usd)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "%s: cost %.12g, work %.12g, chance %.12g, not %.12g, %.12g, %.12g", what,
                       is.cost_usd, is.work, is.chance, want.cost_usd, want.work, want.chance);
    }
    return RU_OK;
}

static bool listed(const ru_bid_in *in, const ru_bid_action *a)
{
    const ru_bid_market *m = &in->markets[a->market];
    if (in->method == RU_BID_ON_DEMAND || (in->method == RU_BID_CYCLE && isinf(a->bid_usd))) {
        return isinf(a->bid_usd);
    }
    if (in->method == RU_BID_STANDARD) {
        return a->bid_usd == m->on_demand_usd && a->bid_usd >= m->usd;
    }
    for (uint32_t d = 0; d < in->n_deltas; d++) {
        if (a->bid_usd == m->usd + in->deltas_usd[d]) {
            return in->method != RU_BID_FIXED || d == in->fixed;
        }
    }
    return false;
}

/* What an hour of work costs in the long run by this request alone; an instance's start counts. */
static double asks(const ru_bid_in *in, uint32_t market, double bid)
{
    const ru_bid_market *m = &in->markets[market];
    seen a = {.on = true, .market = market, .bid = bid};
    double paid_h = 1, lives_h = 1;
    if (!isinf(bid)) {
        paid_h = 1 - ru_evict_chance(law_at(in, &a), 1);
        lives_h = fmax(ru_evict_service(law_at(in, &a), 1), 1e-6);
    }
    double busy_h = lives_h - in->sigma_h;
    double usd = isinf(bid) ? m->on_demand_usd : m->usd;
    return busy_h > 0 ? usd * paid_h / busy_h / m->work : (double)INFINITY;
}

/* cycle buys no spot work above what on-demand instances ask: of any market where instances may be
 * parts, else of the same one (others may not fit below the cap). Nor above the price that is set.
 */
static ru_status check_price(const ru_bid_in *in, const ru_bid_action *a, uint32_t k, ru_err *err)
{
    if (in->method != RU_BID_CYCLE || a->act != RU_BID_ACQUIRE) {
        return RU_OK;
    }
    double most = asks(in, a->market, (double)INFINITY);
    for (uint32_t m = 0; in->fractions && m < in->n_markets; m++) {
        most = in->markets[m].closed ? most : fmin(most, asks(in, m, (double)INFINITY));
    }
    most = in->price_max_usd > 0 ? fmin(most, in->price_max_usd) : most;
    double is = asks(in, a->market, a->bid_usd);
    if (is > most * (1 + 1e-9) || (isinf(is) && !isinf(most))) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "action %u: work costs %.6g USD in market %u at %g, but at most %.6g on "
                       "demand or by the limit",
                       k, is, a->market, a->bid_usd, most);
    }
    return RU_OK;
}

static ru_status check_action(const ru_bid_in *in, const ru_bid_action *a, uint32_t k, ru_err *err)
{
    if (a->act > RU_BID_RELEASE || a->market >= in->n_markets || !(a->instances > 0) ||
        (a->act == RU_BID_ACQUIRE) != (a->held == UINT32_MAX)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "action %u is unknown", k);
    }
    if (a->act == RU_BID_ACQUIRE) {
        bool whole = in->fractions || floor(a->instances) == a->instances;
        if (in->markets[a->market].closed || !listed(in, a) || !whole) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "action %u: market %u does not accept a request of %g instances at %g",
                           k, a->market, a->instances, a->bid_usd);
        }
        return check_price(in, a, k, err);
    }
    const ru_bid_held *h = a->held < in->n_held ? &in->held[a->held] : NULL;
    if (h == NULL || !h->due || h->market != a->market || h->instances != a->instances ||
        h->bid_usd != a->bid_usd) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "action %u names allocation %u, which is not due or does not exist", k,
                       a->held);
    }
    if (a->act == RU_BID_RENEW && in->markets[a->market].usd > h->bid_usd + 1e-9) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "action %u: the price is above the bid", k);
    }
    return RU_OK;
}

/* No request of one step more makes the objective smaller. */
static ru_status check_more(const ru_bid_in *in, const ru_bid_plan *plan, double rate, ru_err *err)
{
    double room = in->cap_work - rate;
    bool search = in->method == RU_BID_CYCLE || in->method == RU_BID_BIDBRAIN;
    for (uint32_t m = 0; search && in->price_max_usd <= 0 && m < in->n_markets; m++) {
        const ru_bid_market *k = &in->markets[m];
        double want = in->step_work > 0 ? fmin(in->step_work, room) : room, n = want / k->work;
        n = in->fractions ? n : fmin(floor(n + 1e-9), floor(room / k->work + 1e-9));
        for (uint32_t d = 0; n > 1e-9 && !k->closed && d < in->n_deltas; d++) {
            seen s = {true, true, m, n, k->usd + in->deltas_usd[d], k->usd, 1};
            double usd = measure(in, plan, true, &s).usd;
            if (usd < plan->after.usd * (1 - 1e-9)) {
                return RU_FAIL(err, RU_E_INFEASIBLE,
                               "%g more instances of market %u at delta %g give work for %.9g "
                               "instead of %.9g",
                               n, m, in->deltas_usd[d], usd, plan->after.usd);
            }
        }
    }
    return RU_OK;
}

ru_status ru_plan_bid_check(const ru_bid_in *in, const ru_bid_plan *plan, ru_err *err)
{
    double rate = 0;
    for (uint32_t k = 0; k < plan->n; k++) {
        RU_TRY(check_action(in, &plan->actions[k], k, err));
        rate += plan->actions[k].act == RU_BID_RELEASE
                    ? 0
                    : plan->actions[k].instances * in->markets[plan->actions[k].market].work;
    }
    bool more = false;
    for (uint32_t k = 0; k < plan->n; k++) {
        more = more || plan->actions[k].act == RU_BID_ACQUIRE;
    }
    for (uint32_t i = 0; i < in->n_held; i++) {
        uint32_t answers = 0;
        for (uint32_t k = 0; k < plan->n; k++) {
            answers += plan->actions[k].held == i;
        }
        if (answers != (in->held[i].due ? 1u : 0u)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "allocation %u has %u actions, expected one", i,
                           answers);
        }
        rate += in->held[i].due ? 0 : in->held[i].instances * in->markets[in->held[i].market].work;
    }
    if (more && rate > in->cap_work * (1 + 1e-9)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "work of %g an hour is above the cap of %g", rate,
                       in->cap_work);
    }
    RU_TRY(check_value("before", plan->before, measure(in, plan, false, NULL), err));
    RU_TRY(check_value("after", plan->after, measure(in, plan, true, NULL), err));
    return check_more(in, plan, rate, err);
}
