/* Inside of the markets of a cluster: events (spot.c), decisions (spot_ask.c).
 *
 * Thread: any. */
#ifndef RU_CLUSTER_SPOT_IMPL_H
#define RU_CLUSTER_SPOT_IMPL_H

#include "base/conf.h"
#include "cluster/spot.h"

/* Before the end of an hour it is said whether it is renewed. */
#define RUI_SPOT_DUE_NS (120 * INT64_C(1000000000))

/* Text of an event, as JSON. */
typedef struct rui_deal {
    const char *market, *why; /* its name, for people */
    double usd;               /* PRICE: an hour now; ACQUIRE: the bid, 0: on demand */
    double on_demand_usd;     /* ACQUIRE */
    bool told;                /* ACQUIRE: ru_market_bid.told */
    bool refused;             /* TAKEN: the market did not give it */
    int64_t late_ns;          /* the clock was so far past this instant when it was written */
    double hour_usd;          /* of all nodes, as the policy expects; 0: not asked */
} rui_deal;

/* Owner: `arena`. NULL: no memory. */
const char *rui_deal_put(const rui_deal *d, ru_arena *arena);

#endif
