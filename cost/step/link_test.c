#include "cost/step/link.h"

#include "test/test.h"

static void times_of_transfers(void **state)
{
    (void)state;
    const ru_link_cost gbit = {.overhead_ns = 250000, .latency_ns = 30000, .bytes_per_s = 125e6};
    assert_int_equal(ru_cost_link_held_ns(&gbit, 0), 250000);
    assert_int_equal(ru_cost_link_held_ns(&gbit, 125000), 250000 + 1000000);
    assert_int_equal(ru_cost_link_held_ns(&gbit, INT64_MAX), RU_LINK_NS_MAX); /* no overflow */
}

RU_TESTS(cost_link, cmocka_unit_test(times_of_transfers))
