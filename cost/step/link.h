/* What a transfer over a link costs: a fixed time for each transfer, bytes over bandwidth, latency
 * on the way, and what transfers take from each other.
 *
 *   t = held + latency,   held = overhead + bytes / bandwidth
 *
 * The link is held for `held`; the next transfer starts then, while the last bytes still travel.
 * Transfers that share links without an order get max-min fair rates.
 *
 * Source: hockney-1994 (latency and bandwidth); bertsekas-gallager-1992 sec 6.5 (max-min fairness).
 * Thread: any, pure. */
#ifndef RU_COST_LINK_H
#define RU_COST_LINK_H

#include "base/arena.h"

typedef struct ru_link_cost {
    int64_t overhead_ns; /* >= 0 of each transfer, holds the link */
    int64_t latency_ns;  /* >= 0 of the way, does not hold the link */
    double bytes_per_s;  /* > 0 */
} ru_link_cost;

/* How long a transfer holds the link, and until it has arrived on an idle link; rounded to the
 * nearest ns, at most RU_LINK_NS_MAX. size_bytes >= 0. */
#define RU_LINK_NS_MAX (INT64_C(1) << 60)
int64_t ru_cost_link_held_ns(const ru_link_cost *l, int64_t size_bytes);
int64_t ru_cost_link_ns(const ru_link_cost *l, int64_t size_bytes);

/* The size whose transfer is `overhead_share` overhead: chunks below it cost more than they help.
 * 0 < overhead_share < 1. */
int64_t ru_cost_link_chunk_bytes(const ru_link_cost *l, double overhead_share);

typedef struct ru_link_flow {
    uint32_t link[2];       /* the links it crosses; RU_LINK_NONE in the second: one only */
    double bytes_per_s_max; /* what it can use; 0: no bound */
} ru_link_flow;

#define RU_LINK_NONE UINT32_MAX

/* Max-min fair rates of flows that are all in progress: no flow can get more without taking from
 * one that has no more than it. Shape: link_bytes_per_s [n_links] > 0, flows and rate [n].
 * Cost: O((n + n_links) rounds), at most n + n_links rounds. Errors: RU_E_ARG, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_cost_link_share(const double *link_bytes_per_s, uint32_t n_links,
                                         const ru_link_flow *flows, uint32_t n, ru_arena *scratch,
                                         double *rate, ru_err *err);

#endif
