/* A job on instances of spot markets, as a step machine: prices, timers and the owner's actions in;
 * evictions, hours that end and the end of the job out.
 *
 *   PRICE   evicts what bid less: the hour is refunded, the whole job stands still for `lambda`
 *   TIMER   an hour that ends is paid again when it was renewed, else its instances leave;
 *           is the work done? Also when nobody asked for it
 *   ACQUIRE, RENEW, RELEASE   what plan/fleet/bid.h decided
 *   GIVEN, TAKEN              of a market that tells itself when it gives instances and takes them:
 *                             the hour begins when they come, and no price evicts them
 *
 * Work goes on between events: each allocation works from `sigma` after its request on. At the end
 * of the job what is left of paid hours is credited: the next job takes it.
 *
 * Source: harlap-2017 sec 2.1 (rules of the market).
 * Thread: any. No clock and no memory of its own. */
#ifndef RU_CLUSTER_MARKET_H
#define RU_CLUSTER_MARKET_H

#include "env/event.h"
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
    uint32_t what_first;                  /* of its words */
} ru_market_spec;

typedef struct ru_market_alloc {
    uint32_t market, lease; /* lease: the owner's number of it */
    double instances, bid_usd, paid_usd;
    ru_time from, hour_end;
    bool renewed, leaving; /* at the end of the hour: paid again, gone */
    bool asked;            /* DUE was told */
    bool told, waits;      /* the market tells of it; it is not there yet, and costs nothing */
} ru_market_alloc;

typedef struct ru_market_job {
    ru_market_spec spec;
    double usd[RU_MARKETS_MAX]; /* prices now; 0: not known yet */
    ru_market_alloc allocs[RU_MARKET_ALLOCS_MAX];
    uint32_t n;
    ru_time begun, now, stalled_until;
    ru_time told;             /* when the timer was asked for */
    double work, cost_usd;    /* done; paid so far less refunds, without the reliable machines */
    double service_h, free_h; /* instance hours times work in all; of them refunded */
    uint32_t evictions;
    bool done;
} ru_market_job;

/* Words (env/event.h), and what comes with them. */
typedef enum ru_market_word {
    RU_MARKET_PRICE,   /* in: ru_market_bid: market, usd */
    RU_MARKET_ACQUIRE, /* in: ru_market_bid */
    RU_MARKET_RENEW,   /* in, value: number of an allocation */
    RU_MARKET_RELEASE, /* in, value: the same; it stays until its paid hour ends */
    RU_MARKET_TIMER,
    RU_MARKET_EVICTED, /* out, value: allocations, by the provider */
    RU_MARKET_LEFT,    /* out, value: allocations, at the end of their hour */
    RU_MARKET_DUE,     /* out: ru_market_due holds for one more allocation */
    RU_MARKET_REFUSED, /* out: ACQUIRE below the price, or one too many */
    RU_MARKET_DONE,    /* out: the work is done */
    RU_MARKET_GIVEN,   /* in, value: an allocation of `told` that waits: it begins now */
    RU_MARKET_TAKEN,   /* in, value: one of `told`; its hour is refunded. One that waits: refused */
    RU_MARKET_WORDS
} ru_market_word;

typedef struct ru_market_bid {
    uint32_t market;
    double usd;       /* the price; the bid: INFINITY: on demand */
    double instances; /* ACQUIRE */
    uint32_t lease;   /* ACQUIRE: the owner's number of it */
    bool told;        /* ACQUIRE: it waits for GIVEN */
} ru_market_bid;

/* Errors: RU_E_ARG. */
RU_MUST_USE ru_status ru_market_init(ru_market_job *j, const ru_market_spec *spec, ru_time now,
                                     ru_err *err);
void ru_market_step(ru_market_job *j, const ru_event *ev, ru_effects *fx);
/* Does the hour of this allocation end within the notice, with no answer yet? */
bool ru_market_due(const ru_market_job *j, uint32_t alloc);
/* The allocation of a market with this lease; UINT32_MAX: there is none. */
uint32_t ru_market_alloc_of(const ru_market_job *j, uint32_t market, uint32_t lease);
/* Everything paid until now or, once done, for the job: with the reliable machines. */
double ru_market_cost(const ru_market_job *j);

#endif
