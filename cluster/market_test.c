/* Hours, refunds and stalls of a job on one market, by hand. */
#include "cluster/market.h"

#include "test/test.h"

static const int64_t minute_ns = 60LL * 1000000000;

enum { FIRST = 0x7c0 };

/* What a step told. */
typedef struct told {
    int64_t evicted, left;
    bool refused, due, done, timer;
    ru_time at; /* timer: wanted then */
} told;

static told step_at(ru_market_job *j, ru_time now, ru_event ev)
{
    ru_arena memory;
    ru_effects fx;
    told out = {0};
    ru_arena_init(&memory, 0);
    ru_effects_init(&fx, &memory);
    ev.now = now;
    ev.what += FIRST;
    ru_market_step(j, &ev, &fx);
    for (uint32_t i = 0; i < fx.n; i++) {
        const ru_effect *e = &fx.at[i];
        out.evicted += e->what == FIRST + RU_MARKET_EVICTED ? e->value : 0;
        out.left += e->what == FIRST + RU_MARKET_LEFT ? e->value : 0;
        out.refused = out.refused || e->what == FIRST + RU_MARKET_REFUSED;
        out.due = out.due || e->what == FIRST + RU_MARKET_DUE;
        out.done = out.done || e->what == FIRST + RU_MARKET_DONE;
        out.timer = out.timer || e->kind == RU_FX_TIMER;
        out.at = e->kind == RU_FX_TIMER ? e->at : out.at;
    }
    ru_arena_fini(&memory);
    return out;
}

static told step(ru_market_job *j, int64_t minute, ru_event ev)
{
    return step_at(j, (ru_time){minute * minute_ns}, ev);
}

static told at(ru_market_job *j, int64_t minute, ru_market_word word, ru_market_bid bid)
{
    return step(
        j, minute,
        (ru_event){.kind = RU_EV_LOCAL, .what = word, .data = &bid, .size_bytes = sizeof bid});
}

static told tick(ru_market_job *j, int64_t minute)
{
    return step(j, minute, (ru_event){.kind = RU_EV_TIMER, .what = RU_MARKET_TIMER});
}

static told answer_at(ru_market_job *j, ru_time now, ru_market_word word, int64_t alloc)
{
    return step_at(j, now, (ru_event){.kind = RU_EV_LOCAL, .what = word, .value = alloc});
}

static told answer(ru_market_job *j, int64_t minute, ru_market_word word, int64_t alloc)
{
    return answer_at(j, (ru_time){minute * minute_ns}, word, alloc);
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
                        .notice_ns = 2 * minute_ns,
                        .what_first = FIRST};
    ru_market_job j;
    ru_err err;
    assert_ok(ru_market_init(&j, &s, (ru_time){0}, &err), err);
    ru_market_bid price = {.usd = 0.2}, get = {.instances = 2, .usd = 0.25};
    at(&j, 0, RU_MARKET_PRICE, price);
    assert_false(at(&j, 0, RU_MARKET_ACQUIRE, get).refused);
    get.usd = 0.19;
    assert_true(at(&j, 0, RU_MARKET_ACQUIRE, get).refused);
    assert_near(ru_market_cost(&j), 0.4, 1e-15);
    tick(&j, 32);
    assert_near(j.work, 10, 1e-12); /* 20 an hour for half an hour */
    price.usd = 0.3;
    assert_int_equal(at(&j, 32, RU_MARKET_PRICE, price).evicted, 1);
    assert_near(ru_market_cost(&j), 0.6 * 32 / 60, 1e-12); /* refunded */
    assert_near(j.free_h, 20.0 * 32 / 60, 1e-12);
    get.usd = 0.3;
    assert_false(at(&j, 32, RU_MARKET_ACQUIRE, get).refused);
    assert_false(ru_market_due(&j, 0));
    tick(&j, 90);
    assert_near(j.work, 10 + 20.0 * 56 / 60, 1e-12);
    assert_true(ru_market_due(&j, 0));
    answer(&j, 90, RU_MARKET_RENEW, 0);
    assert_false(ru_market_due(&j, 0));
    price.usd = 0.1;
    at(&j, 91, RU_MARKET_PRICE, price);
    tick(&j, 92); /* the second hour at the new price */
    assert_near(ru_market_cost(&j), 0.6 + 0.2 + 0.6 * 92 / 60, 1e-12);
    assert_false(tick(&j, 123).done);
    assert_true(tick(&j, 124).done); /* 2 + 90 minutes of 20 an hour are 40; 28 are credited */
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
                        .lost_ns = 6 * minute_ns,
                        .what_first = FIRST};
    ru_market_job j;
    ru_err err;
    assert_ok(ru_market_init(&j, &s, (ru_time){0}, &err), err);
    at(&j, 0, RU_MARKET_PRICE, (ru_market_bid){.usd = 0.2});
    at(&j, 0, RU_MARKET_PRICE, (ru_market_bid){.market = 1, .usd = 0.2});
    at(&j, 0, RU_MARKET_ACQUIRE, (ru_market_bid){.instances = 1, .usd = 0.2});
    at(&j, 0, RU_MARKET_ACQUIRE, (ru_market_bid){.market = 1, .instances = 1, .usd = 0.2});
    at(&j, 30, RU_MARKET_PRICE, (ru_market_bid){.usd = 0.21});
    assert_near(j.work, 5 - 0.5, 1e-12);
    assert_int_equal(j.n, 1);
    tick(&j, 46);
    assert_near(j.work, 4.5 + 0.5 * 10 * 12 / 60, 1e-12);
    j.spec.notice_ns = 2 * minute_ns;
    tick(&j, 58);
    assert_true(ru_market_due(&j, 0));
    answer(&j, 58, RU_MARKET_RELEASE, 0);
    assert_false(ru_market_due(&j, 0)); /* answered; it works until its hour ends */
    assert_int_equal(j.n, 1);
    assert_int_equal(tick(&j, 60).left, 1);
    s.speed = 0;
    assert_int_equal(ru_market_init(&j, &s, (ru_time){0}, &err), RU_E_ARG);
}

/* A job whose owner only follows the timer and renews what is due ends when its work is done. */
static void test_the_timer_leads_to_the_end(void **state)
{
    (void)state;
    const ru_market_spec s = {.n_markets = 1,
                              .work = {10},
                              .on_demand_usd = {1},
                              .total_work = 25,
                              .speed = 1,
                              .sigma_ns = 2 * minute_ns,
                              .notice_ns = 2 * minute_ns,
                              .what_first = FIRST};
    const int64_t at_minute[] = {2, 58, 60, 118, 120, 152};
    ru_market_job j;
    ru_err err;
    assert_ok(ru_market_init(&j, &s, (ru_time){0}, &err), err);
    at(&j, 0, RU_MARKET_PRICE, (ru_market_bid){.usd = 0.2});
    told t = at(&j, 0, RU_MARKET_ACQUIRE, (ru_market_bid){.usd = 0.3, .instances = 1});
    for (uint32_t k = 0; k < RU_ARRAY_LEN(at_minute); k++) {
        assert_true(t.timer && t.at.ns - at_minute[k] * minute_ns <= 1000);
        assert_true(t.at.ns >= at_minute[k] * minute_ns);
        ru_event ev = {.kind = RU_EV_TIMER, .what = RU_MARKET_TIMER};
        t = step_at(&j, t.at, ev);
        assert_int_equal(t.due, k == 1 || k == 3);
        assert_int_equal(t.done, k == 5);
        if (t.due) { /* which moves no timer */
            told answered = answer_at(&j, j.now, RU_MARKET_RENEW, 0);
            assert_false(answered.timer);
        }
    }
    assert_near(j.work, 25, 1e-6);
    assert_near(ru_market_cost(&j), 0.2 * 152 / 60, 1e-6);
}

/* A node that comes late costs nothing before, no price evicts it, and its hour is refunded when it
 * is taken. */
static void test_a_market_that_tells(void **state)
{
    (void)state;
    const ru_market_spec s = {.n_markets = 1,
                              .work = {10},
                              .total_work = 1000,
                              .speed = 1,
                              .notice_ns = 2 * minute_ns,
                              .what_first = FIRST};
    ru_market_job j;
    ru_err err;
    assert_ok(ru_market_init(&j, &s, (ru_time){0}, &err), err);
    const ru_market_bid get = {.instances = 1, .usd = 0.2, .told = true};
    at(&j, 0, RU_MARKET_PRICE, (ru_market_bid){.usd = 0.2});
    assert_false(at(&j, 0, RU_MARKET_ACQUIRE, get).refused);
    assert_false(tick(&j, 90).left != 0 || ru_market_due(&j, 0));
    assert_true(j.n == 1 && j.work == 0 && ru_market_cost(&j) == 0);
    at(&j, 100, RU_MARKET_PRICE, (ru_market_bid){.usd = 0.3});
    assert_int_equal(j.n, 1);
    answer(&j, 110, RU_MARKET_GIVEN, 0);
    assert_near(ru_market_cost(&j), 0.3, 1e-15); /* the price when it begins */
    answer(&j, 115, RU_MARKET_GIVEN, 0);
    assert_near(ru_market_cost(&j), 0.3, 1e-15);
    assert_int_equal(at(&j, 120, RU_MARKET_PRICE, (ru_market_bid){.usd = 9}).evicted, 0);
    tick(&j, 140);
    assert_near(j.work, 5, 1e-12);
    told t = answer(&j, 140, RU_MARKET_TAKEN, 0);
    assert_true(t.evicted == 1 && j.evictions == 1 && j.n == 0);
    assert_near(ru_market_cost(&j), 0, 1e-15);
    at(&j, 150, RU_MARKET_PRICE, (ru_market_bid){.usd = 0.2});
    at(&j, 150, RU_MARKET_ACQUIRE, get);
    t = answer(&j, 160, RU_MARKET_TAKEN, 0); /* it never came */
    assert_true(t.refused && t.evicted == 0 && j.evictions == 1 && j.n == 0);
    assert_near(ru_market_cost(&j), 0, 1e-15);
}

RU_TESTS(cluster_market, cmocka_unit_test(test_a_market_that_tells),
         cmocka_unit_test(test_the_timer_leads_to_the_end),
         cmocka_unit_test(test_hours_refunds_and_the_end),
         cmocka_unit_test(test_checkpoints_lose_work))
