#include "cluster/market.h"

#include <math.h>
#include <string.h>

static const double hour_ns = 3600e9;

ru_status ru_market_init(ru_market_job *j, const ru_market_spec *spec, ru_time now, ru_err *err)
{
    if (spec->n_markets < 1 || spec->n_markets > RU_MARKETS_MAX || !(spec->total_work > 0) ||
        !(spec->speed > 0) || spec->sigma_ns < 0 || spec->lambda_ns < 0 || spec->lost_ns < 0) {
        return RU_FAIL(err, RU_E_ARG, "a job of %g work at speed %g on %u markets (1 to %d)",
                       spec->total_work, spec->speed, spec->n_markets, RU_MARKETS_MAX);
    }
    memset(j, 0, sizeof *j);
    j->spec = *spec;
    j->begun = j->now = j->stalled_until = now;
    j->told.ns = INT64_MAX;
    return RU_OK;
}

static double rate_of(const ru_market_job *j, const ru_market_alloc *a)
{
    return a->instances * j->spec.work[a->market];
}

static void advance(ru_market_job *j, ru_time to)
{
    for (uint32_t i = 0; i < j->n; i++) {
        const ru_market_alloc *a = &j->allocs[i];
        if (a->waits) {
            continue;
        }
        int64_t from = j->now.ns > j->stalled_until.ns ? j->now.ns : j->stalled_until.ns;
        int64_t ready = a->from.ns + j->spec.sigma_ns;
        from = from > ready ? from : ready;
        if (to.ns > from) {
            j->work += j->spec.speed * rate_of(j, a) * (double)(to.ns - from) / hour_ns;
        }
        j->service_h += rate_of(j, a) * (double)(to.ns - j->now.ns) / hour_ns;
    }
    j->now = to;
}

static void drop(ru_market_job *j, uint32_t i)
{
    j->allocs[i] = j->allocs[--j->n];
}

static void tell(const ru_market_job *j, ru_market_word word, uint32_t n, ru_effects *fx)
{
    ru_fx_local(fx, j->spec.what_first + (uint32_t)word, n, NULL, 0);
}

/* The hour is refunded. Gives the rate that is lost. */
static double take(ru_market_job *j, uint32_t i)
{
    const ru_market_alloc *a = &j->allocs[i];
    double hours = 1 - (double)(a->hour_end.ns - j->now.ns) / hour_ns, rate = rate_of(j, a);
    RU_CHECK(!a->waits);
    j->cost_usd -= a->instances * a->paid_usd;
    j->free_h += rate * hours;
    drop(j, i);
    return rate;
}

static void lose(ru_market_job *j, uint32_t n, double rate, ru_effects *fx)
{
    tell(j, RU_MARKET_EVICTED, n, fx);
    j->evictions += n;
    j->stalled_until.ns = j->now.ns + j->spec.lambda_ns;
    j->work = fmax(0, j->work - j->spec.speed * rate * (double)j->spec.lost_ns / hour_ns);
}

static void evict(ru_market_job *j, uint32_t market, ru_effects *fx)
{
    double rate = 0;
    uint32_t n = 0;
    for (uint32_t i = j->n; i-- > 0;) {
        const ru_market_alloc *a = &j->allocs[i];
        if (a->market == market && !a->told && j->usd[market] > a->bid_usd + 1e-9) {
            rate += take(j, i);
            n++;
        }
    }
    if (n > 0) {
        lose(j, n, rate, fx);
    }
}

static double price_of(const ru_market_job *j, const ru_market_alloc *a)
{
    return isinf(a->bid_usd) ? j->spec.on_demand_usd[a->market] : j->usd[a->market];
}

static void finish(ru_market_job *j, ru_effects *fx)
{
    for (uint32_t i = 0; i < j->n; i++) { /* one that waits has paid nothing */
        const ru_market_alloc *a = &j->allocs[i];
        j->cost_usd -= a->instances * a->paid_usd * (double)(a->hour_end.ns - j->now.ns) / hour_ns;
    }
    j->n = 0;
    j->done = true;
    tell(j, RU_MARKET_DONE, 0, fx);
}

bool ru_market_due(const ru_market_job *j, uint32_t alloc)
{
    RU_CHECK(alloc < j->n);
    const ru_market_alloc *a = &j->allocs[alloc];
    return !a->waits && !a->renewed && !a->leaving &&
           a->hour_end.ns - j->now.ns <= j->spec.notice_ns;
}

uint32_t ru_market_alloc_of(const ru_market_job *j, uint32_t market, uint32_t lease)
{
    RU_CHECK(j->n <= RU_MARKET_ALLOCS_MAX);
    for (uint32_t i = 0; i < j->n; i++) {
        if (j->allocs[i].market == market && j->allocs[i].lease == lease) {
            return i;
        }
    }
    return UINT32_MAX;
}

static void tick(ru_market_job *j, ru_effects *fx)
{
    if (j->work >= j->spec.total_work) {
        finish(j, fx);
        return;
    }
    uint32_t left = 0;
    for (uint32_t i = j->n; i-- > 0;) {
        ru_market_alloc *a = &j->allocs[i];
        if (a->waits || a->hour_end.ns > j->now.ns) {
            if (ru_market_due(j, i) && !a->asked) {
                a->asked = true;
                tell(j, RU_MARKET_DUE, 1, fx);
            }
            continue;
        }
        if (!a->renewed) {
            drop(j, i);
            left++;
            continue;
        }
        a->renewed = a->asked = false;
        a->hour_end.ns += (int64_t)hour_ns;
        a->paid_usd = price_of(j, a);
        j->cost_usd += a->instances * a->paid_usd;
    }
    if (left > 0) {
        tell(j, RU_MARKET_LEFT, left, fx);
    }
}

static void acquire(ru_market_job *j, const ru_market_bid *bid, ru_effects *fx)
{
    RU_CHECK(bid->market < j->spec.n_markets);
    ru_market_alloc a = {.market = bid->market,
                         .lease = bid->lease,
                         .instances = bid->instances,
                         .bid_usd = bid->usd,
                         .from = j->now,
                         .hour_end = {j->now.ns + (int64_t)hour_ns}};
    a.paid_usd = price_of(j, &a);
    if (j->n == RU_MARKET_ALLOCS_MAX || !(a.paid_usd > 0) || a.bid_usd + 1e-9 < a.paid_usd) {
        tell(j, RU_MARKET_REFUSED, 1, fx);
        return;
    }
    a.told = a.waits = bid->told;
    a.paid_usd = a.waits ? 0 : a.paid_usd;
    j->cost_usd += a.instances * a.paid_usd;
    j->allocs[j->n++] = a;
}

static void give(ru_market_job *j, int64_t alloc)
{
    RU_CHECK(alloc >= 0 && alloc < j->n);
    ru_market_alloc *a = &j->allocs[alloc];
    if (a->waits) {
        a->waits = false;
        a->from = j->now;
        a->hour_end.ns = j->now.ns + (int64_t)hour_ns;
        a->paid_usd = price_of(j, a);
        j->cost_usd += a->instances * a->paid_usd;
    }
}

static void take_back(ru_market_job *j, int64_t alloc, ru_effects *fx)
{
    RU_CHECK(alloc >= 0 && alloc < j->n);
    if (j->allocs[alloc].waits) {
        drop(j, (uint32_t)alloc);
        tell(j, RU_MARKET_REFUSED, 1, fx);
    } else if (j->allocs[alloc].told) {
        double rate = take(j, (uint32_t)alloc);
        lose(j, 1, rate, fx);
    }
}

static void change_price(ru_market_job *j, const ru_market_bid *price, ru_effects *fx)
{
    RU_CHECK(price->market < j->spec.n_markets);
    j->usd[price->market] = price->usd;
    evict(j, price->market, fx);
}

static void answer(ru_market_job *j, int64_t alloc, bool renew)
{
    RU_CHECK(alloc >= 0 && alloc < j->n);
    j->allocs[alloc].renewed = renew;
    j->allocs[alloc].leaving = !renew;
}

static void hear(ru_market_job *j, const ru_event *ev, ru_effects *fx)
{
    uint32_t word = ru_word(ev->what, j->spec.what_first, RU_MARKET_WORDS);
    switch (word) {
    case RU_MARKET_PRICE:
        change_price(j, ru_event_data(ev, sizeof(ru_market_bid)), fx);
        break;
    case RU_MARKET_ACQUIRE:
        acquire(j, ru_event_data(ev, sizeof(ru_market_bid)), fx);
        break;
    case RU_MARKET_RENEW:
    case RU_MARKET_RELEASE:
        answer(j, ev->value, word == RU_MARKET_RENEW);
        break;
    case RU_MARKET_GIVEN:
        give(j, ev->value);
        break;
    case RU_MARKET_TAKEN:
        take_back(j, ev->value, fx);
        break;
    default:
        break;
    }
}

/* The earlier of both that lies ahead. */
static int64_t sooner(const ru_market_job *j, int64_t a, int64_t b)
{
    return b > j->now.ns && b < a ? b : a;
}

/* When an hour ends, an allocation is due, gets ready, or the work is done. */
static ru_time next_of(const ru_market_job *j)
{
    int64_t next = sooner(j, INT64_MAX, j->n > 0 ? j->stalled_until.ns : 0);
    double rate = 0;
    for (uint32_t i = 0; i < j->n; i++) {
        const ru_market_alloc *a = &j->allocs[i];
        if (a->waits) {
            continue;
        }
        int64_t ready = a->from.ns + j->spec.sigma_ns;
        next = sooner(j, next, a->hour_end.ns > j->now.ns ? a->hour_end.ns : j->now.ns + 1);
        next = sooner(j, next, ready);
        next = sooner(j, next, a->asked ? 0 : a->hour_end.ns - j->spec.notice_ns);
        rate += ready <= j->now.ns && j->stalled_until.ns <= j->now.ns ? rate_of(j, a) : 0;
    }
    double rest = fmax(j->spec.total_work - j->work, 0);
    double rest_ns = rate > 0 ? rest / (j->spec.speed * rate) * hour_ns : (double)INFINITY;
    bool soon = !j->done && rest_ns < 4e18 - (double)j->now.ns;
    return (ru_time){soon ? sooner(j, next, j->now.ns + (int64_t)ceil(rest_ns) + 1) : next};
}

void ru_market_step(ru_market_job *j, const ru_event *ev, ru_effects *fx)
{
    RU_CHECK(ev->now.ns >= j->now.ns);
    if (j->done) {
        return;
    }
    advance(j, ev->now);
    if (ev->kind == RU_EV_LOCAL) {
        hear(j, ev, fx);
    } else if (ev->kind == RU_EV_TIMER && ev->what == j->spec.what_first + RU_MARKET_TIMER) {
        j->told.ns = INT64_MAX;
        tick(j, fx);
    }
    ru_fx_wake(fx, j->spec.what_first + RU_MARKET_TIMER, next_of(j), &j->told);
}

double ru_market_cost(const ru_market_job *j)
{
    return j->cost_usd + j->spec.reliable_usd * (double)(j->now.ns - j->begun.ns) / hour_ns;
}
