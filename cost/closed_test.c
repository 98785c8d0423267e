/* Queueing networks against closed forms. */
#include "cost/closed.h"

#include <math.h>

#include "test/test.h"

/* One station and a think time: the states are a birth-death chain. */
static double rate_of_chain(double service_s, uint32_t clients, double think_s)
{
    double p = 1, sum = 1, busy = 0;
    for (uint32_t k = 1; k <= clients; k++) {
        p *= (clients - k + 1) * service_s / think_s;
        sum += p;
        busy += p;
    }
    return busy / sum / service_s;
}

static void test_one_station_is_a_birth_death_chain(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 30; n++) {
        const ru_station s = {0.02, 1};
        ru_queue_mean m = ru_queue_closed(&s, 1, n, 0.3);
        double want = rate_of_chain(0.02, n, 0.3);
        assert_true(fabs(m.rate / want - 1) < 1e-12);
        assert_true(fabs(m.rate * (0.3 + m.time_s[0]) / n - 1) < 1e-12);
    }
}

static void test_equal_stations_share_the_clients(void **state)
{
    (void)state;
    const ru_station s[3] = {{0.1, 1}, {0.1, 1}, {0.1, 1}};
    for (uint32_t n = 1; n <= 20; n++) {
        ru_queue_mean m = ru_queue_closed(s, 3, n, 0);
        assert_true(fabs(m.rate * 0.1 * (n + 2) / n - 1) < 1e-12);
    }
}

static void test_an_open_loop_has_a_limit(void **state)
{
    (void)state;
    const ru_station s[2] = {{0.1, 1}, {0.2, 4}};
    ru_queue_mean m;
    assert_false(ru_queue_open(s, 2, 10, &m));
    assert_true(ru_queue_open(s, 2, 5, &m));
    assert_true(fabs(m.time_s[0] - 0.2) < 1e-12);
    assert_true(m.time_s[1] > 0.2 && m.time_s[1] < 0.3);
}

RU_TESTS(cost_closed, cmocka_unit_test(test_one_station_is_a_birth_death_chain),
         cmocka_unit_test(test_equal_stations_share_the_clients),
         cmocka_unit_test(test_an_open_loop_has_a_limit))
