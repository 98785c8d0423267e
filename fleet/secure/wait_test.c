/* How long stages of masked updates wait, against clients whose answers take what a law says. */
#include "base/rng.h"
#include "fleet/secure/wait.h"
#include "test/test.h"

enum { CLIENTS = 250 };
static const double second = 1e9;

typedef struct world {
    ru_mask_wait w;
    ru_rng rng;
    int64_t now_ns;
    double median_s, one_s; /* of an answer; of the server, for one after the other */
    uint32_t silent;        /* clients that never say a word */
} world;

/* One stage: how many answered in time. The server takes answers one after the other. */
static uint32_t stage(world *x, uint32_t need)
{
    double at[CLIENTS], served = 0;
    uint32_t n = 0, left = CLIENTS - x->silent;
    int64_t ends = ru_mask_wait_begin(&x->w, CLIENTS, x->now_ns), last = x->now_ns;
    for (uint32_t k = 0; k < left; k++) {
        at[k] = x->median_s * ru_math_exp(0.5 * ru_rng_normal(&x->rng));
    }
    for (uint32_t k = 0; k < left; k++) { /* by time */
        uint32_t first = k;
        for (uint32_t i = k + 1; i < left; i++) {
            first = at[i] < at[first] ? i : first;
        }
        double a = at[first];
        at[first] = at[k];
        served = (a > served ? a : served) + x->one_s;
        int64_t t = x->now_ns + (int64_t)(served * second);
        if (t > ends) {
            break;
        }
        ru_mask_wait_heard(&x->w, ++n, need, t);
        last = t;
    }
    x->now_ns = n < CLIENTS ? ends : last;
    ru_mask_wait_end(&x->w, CLIENTS, n < need);
    return n;
}

/* 250 clients behind 200 ms, and a server that needs 20 ms for each: all have masks at once. */
static void test_many_clients_far_away(void **state)
{
    (void)state;
    world x = {.rng = ru_rng_from(ru_test_seed(), 1), .median_s = 0.2, .one_s = 0.02};
    for (uint32_t k = 0; k < 40; k++) {
        assert_int_equal(stage(&x, 150), CLIENTS);
    }
    assert_true(x.now_ns < 40 * (int64_t)(8 * second)); /* nobody waits for the end of a stage */
}

/* Clients that take a minute: rounds begin again until the time suffices, and it stays so. */
static void test_slow_clients_get_through(void **state)
{
    (void)state;
    world x = {.rng = ru_rng_from(ru_test_seed(), 2), .median_s = 60};
    uint32_t failed = 0;
    while (stage(&x, 150) < 150 && failed < 20) {
        failed++;
    }
    assert_true(failed >= 1 && failed <= 4);
    for (uint32_t k = 0; k < 20; k++) {
        assert_true(stage(&x, 150) >= 150);
    }
    assert_true(stage(&x, 150) == CLIENTS);
}

/* Those that say nothing cost the time of a stage, which does not grow by them, and falls again. */
static void test_silence_is_not_learned(void **state)
{
    (void)state;
    world x = {.rng = ru_rng_from(ru_test_seed(), 3), .median_s = 0.2, .silent = 20};
    for (uint32_t k = 0; k < 20; k++) {
        int64_t before = x.now_ns;
        assert_int_equal(stage(&x, 150), CLIENTS - 20);
        assert_true(x.now_ns - before == (int64_t)(10 * second));
    }
    x.w.learned_ns = (int64_t)(600 * second);
    for (uint32_t k = 0; k < 6; k++) {
        (void)stage(&x, 150);
    }
    assert_true(ru_mask_wait_begin(&x.w, CLIENTS, 0) == (int64_t)(10 * second));
    ru_mask_wait fixed = {.fixed_ns = 7};
    ru_mask_wait_end(&fixed, 3, true);
    assert_true(ru_mask_wait_begin(&fixed, CLIENTS, 1) == 8);
}

/* A few that answer as late as they may do not lengthen the stages of all. */
static void test_lateness_is_not_learned(void **state)
{
    (void)state;
    ru_mask_wait w = {0};
    int64_t now = 0;
    for (uint32_t k = 0; k < 10; k++) {
        int64_t ends = ru_mask_wait_begin(&w, CLIENTS, now);
        assert_true(ends - now == (int64_t)(10 * second));
        for (uint32_t n = 1; n <= CLIENTS; n++) {
            ru_mask_wait_heard(&w, n, 150, n <= 150 ? now + n : ends);
        }
        ru_mask_wait_end(&w, CLIENTS, false);
        now = ends;
    }
}

RU_TESTS(fleet_wait, cmocka_unit_test(test_many_clients_far_away),
         cmocka_unit_test(test_slow_clients_get_through),
         cmocka_unit_test(test_silence_is_not_learned),
         cmocka_unit_test(test_lateness_is_not_learned))
