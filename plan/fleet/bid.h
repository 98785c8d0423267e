/* Which instances of which market to acquire, renew and release, and at what bid.
 *
 * Instances are paid by the hour at the price of its first minute; the hour in which the provider
 * evicts them is free. A bid cannot change after the request. Markets are plug-ins: a market is its
 * price now and what its history says about evictions (cost/evict.h); a market without evictions
 * has laws that count none.
 *
 * The paper's rule takes the least expected cost per unit of work of the next hour. It looks one
 * step ahead and counts every allocation's eviction as independent, so it bids too high: an
 * eviction with a quick replacement is mostly an hour's refund. Method `cycle` takes the market of
 * the least price for work and there the bid of the least cost in the long run: an allocation lives
 * in cycles of service and replacement, and allocations of one market and bid are evicted together.
 * It asks for on-demand instances (bid INFINITY) where spot work would cost more than theirs.
 *
 * Source: harlap-2017 sec 4.2; `cycle` is ours.
 * Thread: any. Pure: equal input gives equal bytes. */
#ifndef RU_PLAN_BID_H
#define RU_PLAN_BID_H

#include "cost/evict.h"

enum {
    RU_BID_MARKETS_MAX = 256,
    RU_BID_DELTAS_MAX = 64,
    RU_BID_HELD_MAX = 4096,
    RU_BID_ACQUIRE_MAX = 4096
};

typedef enum ru_bid_method {
    RU_BID_CYCLE,
    RU_BID_BIDBRAIN,
    RU_BID_FIXED,    /* always the delta of number `fixed`, at the market of least price for work */
    RU_BID_STANDARD, /* bids the on-demand price there */
    RU_BID_ON_DEMAND, /* never evicted, never cheap */
    RU_BID_METHODS
} ru_bid_method;

typedef struct ru_bid_market {
    double usd;              /* an instance-hour now, > 0 */
    double on_demand_usd;    /* > 0 */
    double work;             /* an instance does in an hour, > 0 */
    bool closed;             /* acquire nothing here: no capacity, or prices too old */
    const ru_evict_law *law; /* [n_deltas] of a bid at price + delta */
} ru_bid_market;

typedef struct ru_bid_held {
    uint32_t market;
    double instances;
    double bid_usd;  /* INFINITY: on demand */
    double paid_usd; /* an instance, for the hour that runs */
    double left_h;   /* of that hour, 0..1 */
    bool due;        /* the hour ends: renew or release */
} ru_bid_held;

typedef struct ru_bid_in {
    const ru_bid_market *markets;
    uint32_t n_markets;
    struct {                      /* a pair as ru_conf_f64s */
        const double *deltas_usd; /* [n_deltas] rising, >= 0 */
        uint32_t n_deltas;
    };
    const ru_bid_held *held;
    uint32_t n_held;
    double reliable_usd;        /* an hour, for machines that always run */
    double phi;                 /* scalability, 0..1 */
    double sigma_h, lambda_h;   /* overhead of new instances, of an eviction (whole job) */
    double cap_work, step_work; /* work an hour: of all instances; of one request, 0: all at once */
    double price_max_usd;       /* for a unit of work: acquire nothing dearer; 0: no limit */
    bool fractions;             /* instances need not be whole numbers */
    uint32_t fixed;             /* number of a delta */
    ru_bid_method method;
} ru_bid_in;

typedef enum ru_bid_act { RU_BID_ACQUIRE, RU_BID_RENEW, RU_BID_RELEASE } ru_bid_act;

typedef struct ru_bid_action {
    uint32_t act;  /* ru_bid_act */
    uint32_t held; /* RU_BID_RENEW, RU_BID_RELEASE; else UINT32_MAX */
    uint32_t market;
    double instances, bid_usd; /* INFINITY: on demand */
} ru_bid_action;

/* What a set of allocations gives. */
typedef struct ru_bid_value {
    double cost_usd; /* bidbrain: in what is left of the hours; cycle: an hour in the long run */
    double work;     /* in the same time */
    double chance;   /* that some allocation is evicted; cycle: evictions an hour */
    double usd;      /* cost / work, the objective; INFINITY without work */
} ru_bid_value;

typedef struct ru_bid_plan {
    const ru_bid_action *actions; /* those of held allocations first, in their order */
    uint32_t n;
    ru_bid_value before; /* the allocations that are not due, alone */
    ru_bid_value after;
} ru_bid_plan;

/* Errors: RU_E_ARG, RU_E_LIMIT. Cost: O(requests * markets * deltas * allocations^2). */
RU_MUST_USE ru_status ru_plan_bid(const ru_bid_in *in, ru_arena *out, ru_arena *scratch,
                                  ru_bid_plan *plan, ru_err *err);

/* The long-run rates after any method's plan, at the prices now. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_bid_long_run(const ru_bid_in *in, const ru_bid_plan *plan,
                                      ru_arena *scratch, ru_bid_value *value, ru_err *err);

/* Legal (bids that the market takes, the cap, one answer for each allocation that is due), figures
 * those of the model, and no single further request lowers the objective. Shares no code with the
 * planner. Errors: RU_E_INFEASIBLE, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_bid_check(const ru_bid_in *in, const ru_bid_plan *plan, ru_err *err);

#endif
