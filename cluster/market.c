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

static void evict(ru_market_job *j, uint32_t market, ru_market_effects *out)
{
    double rate = 0;
    for (uint32_t i = j->n; i-- > 0;) {
        ru_market_alloc *a = &j->allocs[i];
        if (a->market != market || !(j->usd[market] > a->bid_usd + 1e-9)) {
            continue;
        }
        double hours = 1 - (double)(a->hour_end.ns - j->now.ns) / hour_ns;
        j->cost_usd -= a->instances * a->paid_usd;
        j->free_h += rate_of(j, a) * hours;
        rate += rate_of(j, a);
        drop(j, i);
        out->evicted++;
    }
    if (out->evicted > 0) {
        j->evictions += out->evicted;
        j->stalled_until.ns = j->now.ns + j->spec.lambda_ns;
        j->work = fmax(0, j->work - j->spec.speed * rate * (double)j->spec.lost_ns / hour_ns);
    }
}

static double price_of(const ru_market_job *j, const ru_market_alloc *a)
{
    return isinf(a->bid_usd) ? j->spec.on_demand_usd[a->market] : j->usd[a->market];
}

static void finish(ru_market_job *j)
{
    for (uint32_t i = 0; i < j->n; i++) {
        const ru_market_alloc *a = &j->allocs[i];
        j->cost_usd -= a->instances * a->paid_usd * (double)(a->hour_end.ns - j->now.ns) / hour_ns;
    }
    j->n = 0;
    j->done = true;
}

static void tick(ru_market_job *j, ru_market_effects *out)
{
    if (j->work >= j->spec.total_work) {
        finish(j);
        return;
    }
    for (uint32_t i = j->n; i-- > 0;) {
        ru_market_alloc *a = &j->allocs[i];
        if (a->hour_end.ns > j->now.ns) {
            continue;
        }
        if (!a->renewed) {
            drop(j, i);
            out->left++;
            continue;
        }
        a->renewed = false;
        a->hour_end.ns += (int64_t)hour_ns;
        a->paid_usd = price_of(j, a);
        j->cost_usd += a->instances * a->paid_usd;
    }
}

void ru_market_step(ru_market_job *j, const ru_market_event *ev, ru_market_effects *out)
{
    RU_CHECK(ev->now.ns >= j->now.ns);
    RU_CHECK(ev->market < j->spec.n_markets);
    *out = (ru_market_effects){0};
    if (j->done) {
        out->done = true;
        return;
    }
    advance(j, ev->now);
    switch (ev->kind) {
    case RU_MARKET_PRICE:
        j->usd[ev->market] = ev->usd;
        evict(j, ev->market, out);
        break;
    case RU_MARKET_TICK:
        tick(j, out);
        break;
    case RU_MARKET_ACQUIRE: {
        ru_market_alloc a = {.market = ev->market,
                             .instances = ev->instances,
                             .bid_usd = ev->bid_usd,
                             .from = ev->now,
                             .hour_end = {ev->now.ns + (int64_t)hour_ns}};
        a.paid_usd = price_of(j, &a);
        out->refused =
            j->n == RU_MARKET_ALLOCS_MAX || !(a.paid_usd > 0) || a.bid_usd + 1e-9 < a.paid_usd;
        if (!out->refused) {
            j->cost_usd += a.instances * a.paid_usd;
            j->allocs[j->n++] = a;
        }
        break;
    }
    case RU_MARKET_RENEW:
    case RU_MARKET_RELEASE:
        RU_CHECK(ev->alloc < j->n);
        j->allocs[ev->alloc].renewed = ev->kind == RU_MARKET_RENEW;
        j->allocs[ev->alloc].leaving = ev->kind == RU_MARKET_RELEASE;
        break;
    }
    out->done = j->done;
}

bool ru_market_due(const ru_market_job *j, uint32_t alloc)
{
    RU_CHECK(alloc < j->n);
    const ru_market_alloc *a = &j->allocs[alloc];
    return !a->renewed && !a->leaving && a->hour_end.ns - j->now.ns <= j->spec.notice_ns;
}

double ru_market_cost(const ru_market_job *j)
{
    return j->cost_usd + j->spec.reliable_usd * (double)(j->now.ns - j->begun.ns) / hour_ns;
}
