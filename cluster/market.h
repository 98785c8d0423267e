/* A job on instances of spot markets, as a step machine: prices, ticks and the owner's actions in;
 * evictions, hours that end and the end of the job out.
 *
 *   PRICE   evicts what bid less: the hour is refunded, the whole job stands still for `lambda`
 *   TICK    an hour that ends is paid again when it was renewed, else its instances leave;
 *           is the work done?
 *   ACQUIRE, RENEW, RELEASE   what plan/fleet/bid.h decided
 *
 * Work goes on between events: each allocation works from `sigma` after its request on. At the end
 * of the job what is left of paid hours is credited: the next job takes it.
 *
 * Source: harlap-2017 sec 2.1 (rules of the market).
 * Thread: any. No clock and no memory of its own. */
#ifndef RU_CLUSTER_MARKET_H
#define RU_CLUSTER_MARKET_H

#include "env/clock.h"
#include "plan/fleet/bid.h"

enum { RU_MARKETS_MAX = 32, RU_MARKET_ALLOCS_MAX = 256 };

typedef struct ru_market_spec {
    uint32_t n_markets;
    double work[RU_MARKETS_MAX]; /* of an instance in an hour */
    double on_demand_usd[RU_MARKETS_MAX];
    double reliable_usd; /* an hour, while the job runs */
    double total_work;
    double speed;                         /* part of the work that counts: 1, less by checkpoints */
    int64_t sigma_ns, lambda_ns, lost_ns; /* lost: work of that time is done again after an
                                             eviction */
    int64_t notice_ns;                    /* how long before the end of an hour it is due */
} ru_market_spec;

typedef struct ru_market_alloc {
    uint32_t market;
    double instances, bid_usd, paid_usd;
    ru_time from, hour_end;
    bool renewed, leaving; /* at the end of the hour: paid again, gone */
} ru_market_alloc;

typedef struct ru_market_job {
    ru_market_spec spec;
    double usd[RU_MARKETS_MAX]; /* prices now; 0: not known yet */
    ru_market_alloc allocs[RU_MARKET_ALLOCS_MAX];
    uint32_t n;
    ru_time begun, now, stalled_until;
    double work, cost_usd;    /* done; paid so far less refunds, without the reliable machines */
    double service_h, free_h; /* instance hours times work in all; of them refunded */
    uint32_t evictions;
    bool done;
} ru_market_job;

typedef enum ru_market_kind {
    RU_MARKET_PRICE,
    RU_MARKET_TICK,
    RU_MARKET_ACQUIRE,
    RU_MARKET_RENEW,
    RU_MARKET_RELEASE
} ru_market_kind;

typedef struct ru_market_event {
    ru_time now; /* never falls */
    ru_market_kind kind;
    uint32_t market;           /* PRICE, ACQUIRE */
    uint32_t alloc;            /* RENEW, RELEASE: its number; it stays until its paid hour ends */
    double usd;                /* PRICE */
    double instances, bid_usd; /* ACQUIRE; INFINITY: on demand */
} ru_market_event;

typedef struct ru_market_effects {
    uint32_t evicted, left; /* allocations: by the provider, at the end of their hour */
    bool refused;           /* ACQUIRE below the price or one too many */
    bool done;
} ru_market_effects;

/* Errors: RU_E_ARG. */
RU_MUST_USE ru_status ru_market_init(ru_market_job *j, const ru_market_spec *spec, ru_time now,
                                     ru_err *err);
void ru_market_step(ru_market_job *j, const ru_market_event *ev, ru_market_effects *out);
/* Does the hour of this allocation end within the notice, with no answer yet? */
bool ru_market_due(const ru_market_job *j, uint32_t alloc);
/* Everything paid until now or, once done, for the job: with the reliable machines. */
double ru_market_cost(const ru_market_job *j);

#endif
