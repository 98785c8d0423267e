/* Links: times of transfers. */
#include "cost/step/link.h"

#include <math.h>

static int64_t whole_ns(double ns)
{
    return ns < (double)RU_LINK_NS_MAX ? (int64_t)floor(ns + 0.5) : RU_LINK_NS_MAX;
}

int64_t ru_cost_link_held_ns(const ru_link_cost *l, int64_t size_bytes)
{
    RU_CHECK(l->bytes_per_s > 0);
    RU_CHECK(size_bytes >= 0);
    return whole_ns((double)l->overhead_ns + (double)size_bytes / l->bytes_per_s * 1e9);
}
