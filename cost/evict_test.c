/* Counts of evictions on histories small enough for the eye, and against the definition word by
 * word. */
#include "cost/evict.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

static void test_one_rise(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    /* 1.0, from 1800 s on 1.1: of the starts 0, 300 .. 3300 those before 1800 are evicted */
    int64_t at[] = {0, 1800};
    double usd[] = {1.0, 1.1};
    ru_prices p = {at, usd, 2};
    ru_evict_law l;
    assert_ok(ru_evict_count(&p, 0, 7200, 0.05, RU_EVICT_ALL, &a, &l, &err), err);
    assert_int_equal(l.n_starts, 12);
    assert_int_equal(l.evicted[60], 6);
    assert_int_equal(l.evicted[4], 0);
    assert_int_equal(l.evicted[5], 1);
    assert_near(l.median_s, 1200, 1e-15);
    assert_near(ru_evict_chance(&l, 1), 0.5, 1e-15);
    /* evictions after 5, 10 .. 30 minutes, spread over the minute before: 6 (60) - 6 (30 + 12.5) */
    assert_near(ru_evict_service(&l, 1), (720 - 6 * 42.5 - 6 * 0.5) / 720, 1e-14);
    assert_ok(ru_evict_count(&p, 0, 7200, 0.1, RU_EVICT_ALL, &a, &l, &err), err);
    assert_int_equal(l.evicted[60], 0);
    assert_near(ru_evict_service(&l, 0.5), 0.5, 1e-15);
    assert_int_equal(ru_evict_count(&p, 0, 3600, 0, RU_EVICT_ALL, &a, &l, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

static void test_counts_follow_the_definition(void **state)
{
    (void)state;
    enum { ROWS = 60 };
    ru_rng r = ru_rng_from(ru_test_seed(), 1);
    for (uint32_t round = 0; round < 200; round++) {
        ru_arena a;
        ru_err err;
        ru_arena_init(&a, 0);
        int64_t at[ROWS];
        double usd[ROWS];
        for (uint32_t k = 0; k < ROWS; k++) {
            at[k] = (k > 0 ? at[k - 1] : 5000) + ru_rng_below(&r, 900);
            usd[k] = 0.1 + 0.01 * ru_rng_below(&r, 20);
        }
        ru_prices p = {at, usd, ROWS};
        uint32_t only = ru_rng_below(&r, 2) == 0 ? RU_EVICT_ALL : ru_rng_below(&r, 3);
        double delta = 0.01 * ru_rng_below(&r, 15);
        int64_t from = 4000, until = 4000 + 7200 + ru_rng_below(&r, 20000);
        ru_evict_law l;
        assert_ok(ru_prices_check(&p, &err), err);
        if (ru_evict_count(&p, from, until, delta, only, &a, &l, &err) != RU_OK) {
            assert_true(only != RU_EVICT_ALL); /* no start in that state */
            ru_arena_fini(&a);
            continue;
        }
        assert_ok(ru_evict_count(&p, from, until, delta, only, &a, &l, &err), err);
        for (int64_t minutes = 0; minutes <= 60; minutes++) {
            uint32_t starts = 0, evicted = 0;
            for (int64_t s = from; s < until - 3600; s += 300) {
                if (only != RU_EVICT_ALL && ru_evict_state(&p, s) != only) {
                    continue;
                }
                double now = -1;
                bool gone = false;
                for (uint32_t k = 0; k < ROWS; k++) {
                    now = at[k] <= s ? usd[k] : now;
                    gone = gone || (now > 0 && at[k] > s && at[k] <= s + 60 * minutes &&
                                    usd[k] > now + delta + 1e-9);
                }
                starts += now > 0;
                evicted += gone;
            }
            assert_int_equal(l.n_starts, starts);
            assert_int_equal(l.evicted[minutes], evicted);
        }
        ru_arena_fini(&a);
    }
}

static void test_states(void **state)
{
    (void)state;
    int64_t at[] = {0, 1000, 2000, 3000};
    double usd[] = {1, 3, 2, 1};
    ru_prices p = {at, usd, 4};
    assert_int_equal(ru_evict_state(&p, -1), RU_EVICT_ALL);
    assert_int_equal(ru_evict_state(&p, 1500), RU_EVICT_TOP);
    assert_int_equal(ru_evict_state(&p, 2900), RU_EVICT_MIDDLE); /* 1000 of 2900 s */
    assert_int_equal(ru_evict_state(&p, 3000), RU_EVICT_LOW);    /* 2000 of 3000 s */
    assert_int_equal(ru_evict_state(&p, 6000), RU_EVICT_MIDDLE); /* 600 of 3600 s */
    assert_int_equal(ru_evict_state(&p, 7000), RU_EVICT_TOP);
}

static void test_bad_histories(void **state)
{
    (void)state;
    ru_err err;
    int64_t at[] = {0, 5, 4};
    double usd[] = {1, 1, 1};
    ru_prices p = {at, usd, 3};
    assert_int_equal(ru_prices_check(&p, &err), RU_E_ARG);
    p.n = 2;
    assert_ok(ru_prices_check(&p, &err), err);
    assert_int_equal(ru_prices_row(&p, -1), UINT32_MAX);
    assert_int_equal(ru_prices_row(&p, 4), 0);
    assert_int_equal(ru_prices_row(&p, 5), 1);
    usd[1] = 0;
    assert_int_equal(ru_prices_check(&p, &err), RU_E_ARG);
    p.n = 0;
    assert_int_equal(ru_prices_check(&p, &err), RU_E_ARG);
}

static void test_files_of_prices(void **state)
{
    (void)state;
    static const char *const bad[] = {"",           "5\n",         "5 x\n",       "x 1\n",
                                      "5 1\n4 1\n", "5 1\n6 -1\n", "5 1\n\n6 1\n"};
    ru_arena a;
    ru_err err;
    ru_prices p;
    ru_arena_init(&a, 0);
    assert_ok(ru_prices_parse("f", ru_str_c("5 0.25\n70 1.5\n\n"), &a, &p, &err), err);
    assert_true(p.n == 2 && p.at_s[1] == 70 && p.usd[0] == 0.25 && p.usd[1] == 1.5);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(ru_prices_parse("f", ru_str_c(bad[k]), &a, &p, &err), RU_E_DATA);
    }
    assert_int_equal(ru_prices_parse("f", ru_str_c("5 1\n6 -1\n"), &a, &p, &err), RU_E_DATA);
    assert_string_equal(err.text, "f: row 2 has the price -1, expected above 0 to 1e6");
    ru_arena_fini(&a);
}

/* Evictions that are drawn: within an hour 1 - exp(-rate), whatever the bid. */
static void test_drawn_evictions(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_prices p;
    ru_evict_law l;
    ru_arena_init(&a, 0);
    assert_ok(ru_prices_drawn(0.2, 2, 1000, 7, &a, &p, &err), err);
    assert_ok(ru_prices_check(&p, &err), err);
    assert_ok(ru_evict_count(&p, 1000, 1000 + 5000 * 3600, 0.4, RU_EVICT_ALL, &a, &l, &err), err);
    assert_near(ru_evict_chance(&l, 1), 1 - exp(-2), 0.03);
    assert_ok(ru_prices_drawn(0.2, 0, 1000, 7, &a, &p, &err), err);
    assert_true(p.n == 1 && p.usd[0] == 0.2);
    ru_arena_fini(&a);
}

RU_TESTS(cost_evict, cmocka_unit_test(test_files_of_prices), cmocka_unit_test(test_drawn_evictions),
         cmocka_unit_test(test_one_rise), cmocka_unit_test(test_counts_follow_the_definition),
         cmocka_unit_test(test_states), cmocka_unit_test(test_bad_histories))
