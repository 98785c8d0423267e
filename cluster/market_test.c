/* Hours, refunds and stalls of a job on one market, by hand. */
#include "cluster/market.h"

#include "test/test.h"

static const int64_t minute_ns = 60LL * 1000000000;

static ru_market_effects at(ru_market_job *j, int64_t minute, ru_market_event ev)
{
    ru_market_effects out;
    ev.now.ns = minute * minute_ns;
    ru_market_step(j, &ev, &out);
    return out;
}

static void test_hours_refunds_and_the_end(void **state)
{
    (void)state;
    ru_market_spec s = {.n_markets = 1,
                        .work = {10},
                        .on_demand_usd = {1},
                        .reliable_usd = 0.6,
                        .total_work = 40,
                        .speed = 1,
                        .sigma_ns = 2 * minute_ns,
                        .lambda_ns = minute_ns,
                        .notice_ns = 2 * minute_ns};
    ru_market_job j;
    ru_err err;
    assert_ok(ru_market_init(&j, &s, (ru_time){0}, &err), err);
    ru_market_event price = {.kind = RU_MARKET_PRICE, .usd = 0.2}, tick = {.kind = RU_MARKET_TICK};
    ru_market_event get = {.kind = RU_MARKET_ACQUIRE, .instances = 2, .bid_usd = 0.25};
    at(&j, 0, price);
    assert_false(at(&j, 0, get).refused);
    get.bid_usd = 0.19;
    assert_true(at(&j, 0, get).refused);
    assert_near(ru_market_cost(&j), 0.4, 1e-15);
    at(&j, 32, tick);
    assert_near(j.work, 10, 1e-12); /* 20 an hour for half an hour */
    price.usd = 0.3;
    assert_int_equal(at(&j, 32, price).evicted, 1);
    assert_near(ru_market_cost(&j), 0.6 * 32 / 60, 1e-12); /* refunded */
    assert_near(j.free_h, 20.0 * 32 / 60, 1e-12);
    get.bid_usd = 0.3;
    assert_false(at(&j, 32, get).refused);
    assert_false(ru_market_due(&j, 0));
    at(&j, 90, tick);
    assert_near(j.work, 10 + 20.0 * 56 / 60, 1e-12);
    assert_true(ru_market_due(&j, 0));
    at(&j, 90, (ru_market_event){.kind = RU_MARKET_RENEW});
    assert_false(ru_market_due(&j, 0));
    price.usd = 0.1;
    at(&j, 91, price);
    at(&j, 92, tick); /* the second hour at the new price */
    assert_near(ru_market_cost(&j), 0.6 + 0.2 + 0.6 * 92 / 60, 1e-12);
    assert_false(at(&j, 123, tick).done);
    assert_true(at(&j, 124, tick).done); /* 2 + 90 minutes of 20 an hour are 40; 28 are credited */
    assert_near(ru_market_cost(&j), 0.6 + 0.2 * 32 / 60 + 0.6 * 124 / 60, 1e-12);
}

static void test_checkpoints_lose_work(void **state)
{
    (void)state;
    ru_market_spec s = {.n_markets = 2,
                        .work = {10, 10},
                        .on_demand_usd = {1, 1},
                        .total_work = 100,
                        .speed = 0.5,
                        .lambda_ns = 4 * minute_ns,
                        .lost_ns = 6 * minute_ns};
    ru_market_job j;
    ru_err err;
    assert_ok(ru_market_init(&j, &s, (ru_time){0}, &err), err);
    at(&j, 0, (ru_market_event){.kind = RU_MARKET_PRICE, .usd = 0.2});
    at(&j, 0, (ru_market_event){.kind = RU_MARKET_PRICE, .market = 1, .usd = 0.2});
    at(&j, 0, (ru_market_event){.kind = RU_MARKET_ACQUIRE, .instances = 1, .bid_usd = 0.2});
    at(&j, 0,
       (ru_market_event){.kind = RU_MARKET_ACQUIRE, .market = 1, .instances = 1, .bid_usd = 0.2});
    at(&j, 30, (ru_market_event){.kind = RU_MARKET_PRICE, .usd = 0.21});
    assert_near(j.work, 5 - 0.5, 1e-12);
    assert_int_equal(j.n, 1);
    at(&j, 46, (ru_market_event){.kind = RU_MARKET_TICK});
    assert_near(j.work, 4.5 + 0.5 * 10 * 12 / 60, 1e-12);
    j.spec.notice_ns = 2 * minute_ns;
    at(&j, 58, (ru_market_event){.kind = RU_MARKET_TICK});
    assert_true(ru_market_due(&j, 0));
    at(&j, 58, (ru_market_event){.kind = RU_MARKET_RELEASE});
    assert_false(ru_market_due(&j, 0)); /* answered; it works until its hour ends */
    assert_int_equal(j.n, 1);
    assert_int_equal(at(&j, 60, (ru_market_event){.kind = RU_MARKET_TICK}).left, 1);
    s.speed = 0;
    assert_int_equal(ru_market_init(&j, &s, (ru_time){0}, &err), RU_E_ARG);
}

RU_TESTS(cluster_market, cmocka_unit_test(test_hours_refunds_and_the_end),
         cmocka_unit_test(test_checkpoints_lose_work))
