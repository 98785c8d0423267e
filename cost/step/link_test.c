#include "cost/step/link.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

static void times_of_transfers(void **state)
{
    (void)state;
    const ru_link_cost gbit = {.overhead_ns = 250000, .latency_ns = 30000, .bytes_per_s = 125e6};
    assert_int_equal(ru_cost_link_held_ns(&gbit, 0), 250000);
    assert_int_equal(ru_cost_link_ns(&gbit, 125000), 250000 + 1000000 + 30000);
    assert_int_equal(ru_cost_link_held_ns(&gbit, INT64_MAX), RU_LINK_NS_MAX); /* no overflow */
    assert_int_equal(ru_cost_link_ns(&gbit, INT64_MAX), RU_LINK_NS_MAX);
    /* overhead is a twentieth of the chunk's time */
    int64_t chunk = ru_cost_link_chunk_bytes(&gbit, 0.05);
    assert_true(fabs(250000.0 / (double)ru_cost_link_held_ns(&gbit, chunk) - 0.05) < 1e-6);
    const ru_link_cost free = {.bytes_per_s = 1};
    assert_int_equal(ru_cost_link_chunk_bytes(&free, 0.5), 1);
}

static void shares_of_a_small_network(void **state)
{
    (void)state;
    /* Three flows on link 0 (10), one of them also on link 1 (2): it gets 2, the others 4. */
    const double link[2] = {10, 2};
    ru_link_flow flows[3] = {{{0, RU_LINK_NONE}, 0}, {{0, 1}, 0}, {{0, RU_LINK_NONE}, 0}};
    double rate[3];
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    assert_ok(ru_cost_link_share(link, 2, flows, 3, &a, rate, &err), err);
    assert_true(rate[0] == 4 && rate[1] == 2 && rate[2] == 4);
    flows[0].bytes_per_s_max = 1;
    assert_ok(ru_cost_link_share(link, 2, flows, 3, &a, rate, &err), err);
    assert_true(rate[0] == 1 && rate[1] == 2 && rate[2] == 7);
    ru_arena_fini(&a);
}

/* The definition: every flow is at its own bound, or crosses a full link on which nobody has more.
 */
static void shares_are_max_min_fair(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 3);
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    for (uint32_t round = 0; round < 500; round++) {
        uint32_t n_links = 1 + ru_rng_below(&r, 6), n = ru_rng_below(&r, 20);
        double link[6], used[6] = {0}, most[6] = {0}, rate[20];
        ru_link_flow flows[20];
        for (uint32_t l = 0; l < n_links; l++) {
            link[l] = 1 + ru_rng_below(&r, 50);
        }
        for (uint32_t i = 0; i < n; i++) {
            uint32_t first = ru_rng_below(&r, n_links), second = ru_rng_below(&r, n_links);
            flows[i] = (ru_link_flow){{first, second == first ? RU_LINK_NONE : second},
                                      ru_rng_below(&r, 3) == 0 ? 1 + ru_rng_below(&r, 10) : 0};
        }
        assert_ok(ru_cost_link_share(link, n_links, flows, n, &a, rate, &err), err);
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t k = 0; k < 2 && flows[i].link[k] != RU_LINK_NONE; k++) {
                used[flows[i].link[k]] += rate[i];
                most[flows[i].link[k]] = fmax(most[flows[i].link[k]], rate[i]);
            }
        }
        for (uint32_t l = 0; l < n_links; l++) {
            assert_true(used[l] <= link[l] * (1 + 1e-9));
        }
        for (uint32_t i = 0; i < n; i++) {
            bool held = flows[i].bytes_per_s_max > 0 && rate[i] >= flows[i].bytes_per_s_max;
            for (uint32_t k = 0; k < 2 && flows[i].link[k] != RU_LINK_NONE; k++) {
                uint32_t l = flows[i].link[k];
                held = held || (used[l] >= link[l] * (1 - 1e-9) && rate[i] >= most[l] * (1 - 1e-9));
            }
            assert_true(held);
        }
    }
    ru_arena_fini(&a);
}

static void bad_flows_are_refused(void **state)
{
    (void)state;
    const double link[2] = {10, 2}, none[2] = {10, 0}, nan[2] = {RU_NAN, 1};
    double rate[1];
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    const ru_link_flow good = {{0, 1}, 0};
    const ru_link_flow bad[] = {
        {{2, RU_LINK_NONE}, 0}, {{0, 2}, 0}, {{1, 1}, 0}, {{0, 1}, -1}, {{0, 1}, RU_NAN}};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(bad); i++) {
        assert_int_equal(ru_cost_link_share(link, 2, &bad[i], 1, &a, rate, &err), RU_E_ARG);
    }
    assert_int_equal(ru_cost_link_share(none, 2, &good, 1, &a, rate, &err), RU_E_ARG);
    assert_int_equal(ru_cost_link_share(nan, 2, &good, 1, &a, rate, &err), RU_E_ARG);
    uint8_t small[64];
    ru_arena fixed;
    ru_arena_init_fixed(&fixed, small, 8);
    assert_int_equal(ru_cost_link_share(link, 2, &good, 1, &fixed, rate, &err), RU_E_LIMIT);
    ru_arena_fini(&a);
}

RU_TESTS(cost_link, cmocka_unit_test(times_of_transfers),
         cmocka_unit_test(shares_of_a_small_network), cmocka_unit_test(shares_are_max_min_fair),
         cmocka_unit_test(bad_flows_are_refused))
