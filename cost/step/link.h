/* How long a transfer holds a link: a fixed time for each transfer, and bytes over bandwidth.
 *
 *   t = held + latency,   held = overhead + bytes / bandwidth
 *
 * The link is held for `held`; the next transfer starts then, while the last bytes still travel.
 *
 * Source: hockney-1994 (latency and bandwidth).
 * Thread: any, pure. */
#ifndef RU_COST_LINK_H
#define RU_COST_LINK_H

#include "base/arena.h"

typedef struct ru_link_cost {
    int64_t overhead_ns; /* >= 0 of each transfer, holds the link */
    int64_t latency_ns;  /* >= 0 of the way, does not hold the link */
    double bytes_per_s;  /* > 0 */
} ru_link_cost;

/* How long a transfer holds the link, rounded to the nearest ns, at most RU_LINK_NS_MAX.
 * size_bytes >= 0. */
#define RU_LINK_NS_MAX (INT64_C(1) << 60)
int64_t ru_cost_link_held_ns(const ru_link_cost *l, int64_t size_bytes);

#endif
