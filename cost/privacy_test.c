/* Accounts of privacy against those that dp-accounting 0.6.0 computes for the same rounds
 * (RdpAccountant, REPLACE_ONE, SampledWithoutReplacementDpEvent, or GaussianDpEvent where that is
 * less), and against closed forms. */
#include "cost/privacy.h"

#include <math.h>
#include <string.h>

#include "test/test.h"

static void test_as_another_accountant(void **state)
{
    (void)state;
    static const struct {
        double share, noise, delta, epsilon;
        uint32_t rounds;
    } rows[] = {
        {0.01, 1, 1e-05, 3.57611148235, 1000},   {0.1, 1, 1e-05, 14.0537502253, 100},
        {0.1, 2, 1e-05, 13.6167376159, 500},     {0.5, 4, 0.0001, 8.28063574294, 50},
        {1, 5, 1e-05, 5.25240129379, 30},        {0.02, 0.6, 1e-06, 14.9861204313, 200},
        {0.001, 0.5, 1e-06, 5.63804299557, 100}, {0.05, 10, 1e-07, 2.97005771916, 3000},
        {0.3, 30, 1e-5, 0.0402254051911, 1},     {0.1, 20, 1e-6, 0.447588377061, 100},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_arena arena;
        ru_err err;
        ru_privacy *p;
        ru_arena_init(&arena, 0);
        assert_ok(ru_privacy_open(rows[k].noise, &arena, &p, &err), err);
        assert_near(ru_privacy_epsilon(p, rows[k].delta, 0), 0, 0);
        for (uint32_t r = 1; r < rows[k].rounds; r++) {
            ru_privacy_add(p, rows[k].share);
        }
        double next = ru_privacy_epsilon(p, rows[k].delta, rows[k].share);
        ru_privacy_add(p, rows[k].share);
        double got = ru_privacy_epsilon(p, rows[k].delta, 0);
        assert_near(got, next, 1e-12);
        assert_near(got, rows[k].epsilon, 1e-9);
        ru_arena_fini(&arena);
    }
}

/* A round without sampling: the least over orders of order / (2 noise^2) and what a delta adds. */
static void test_all_take_part(void **state)
{
    (void)state;
    ru_arena arena;
    ru_err err;
    ru_privacy *p;
    ru_arena_init(&arena, 0);
    assert_ok(ru_privacy_open(2, &arena, &p, &err), err);
    ru_privacy_add(p, 1);
    for (uint32_t k = 0; k < RU_PRIVACY_ORDERS; k++) { /* 1.1, 1.2, ... */
        double a = k < 89 ? 1.1 + 0.1 * k : 10 + (double)(k - 89);
        assert_near(ru_privacy_orders(p)[k], a / 8, 1e-12);
    }
    double one = ru_privacy_epsilon(p, 1e-5, 0);
    ru_privacy_add(p, 0.01); /* of a hundredth tells nearly nothing more */
    double more = ru_privacy_epsilon(p, 1e-5, 0);
    assert_true(more > one && more < 1.001 * one);
    assert_int_equal(ru_privacy_open(0.01, &arena, &p, &err), RU_E_ARG);
    ru_arena_fini(&arena);
}

/* Exact epsilons of normal noise (balle-2018, by bisection of its closed form in 50 digits): the
 * divergences give no less, and not much more. Whoever is in every round is as in all. */
static void test_a_client_that_is_known(void **state)
{
    (void)state;
    static const struct {
        double noise, delta, exact;
        uint32_t rounds;
    } rows[] = {{2, 1e-5, 1.993091, 1},  {2, 1e-5, 13.206712, 25},  {0.6, 1e-6, 8.840530, 1},
                {5, 1e-5, 4.866083, 30}, {30, 1e-4, 1.070337, 100}, {1, 1e-7, 11.907867, 4}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_arena arena;
        ru_err err;
        ru_privacy *p;
        ru_arena_init(&arena, 0);
        assert_ok(ru_privacy_open(rows[k].noise, &arena, &p, &err), err);
        for (uint32_t r = 0; r < rows[k].rounds; r++) {
            ru_privacy_add(p, 1);
        }
        double got = ru_privacy_known(rows[k].noise, rows[k].rounds, rows[k].delta);
        assert_near(got, ru_privacy_epsilon(p, rows[k].delta, 0), 1e-9);
        assert_true(got >= rows[k].exact && got <= 1.2 * rows[k].exact);
        ru_arena_fini(&arena);
    }
    assert_near(ru_privacy_known(2, 0, 1e-5), 0, 0);
}

/* Much noise and few clients: what a round tells is below the last bit of 1, and still counts. */
static void test_little_counts(void **state)
{
    (void)state;
    enum { TWO = 9 }; /* 1.1, 1.2, ... 2 */
    ru_arena arena;
    ru_err err;
    ru_privacy *p;
    ru_arena_init(&arena, 0);
    assert_ok(ru_privacy_open(1e5, &arena, &p, &err), err);
    for (uint32_t k = 0; k < 1000; k++) {
        ru_privacy_add(p, 1e-4);
    }
    double round = log1p(4 * 1e-8 * expm1(1e-10));
    assert_near(ru_privacy_orders(p)[TWO], 1000 * round, 1e-9);
    assert_true(ru_privacy_epsilon(p, 1e-5, 0) > 0);
    ru_arena_fini(&arena);
}

RU_TESTS(cost_privacy, cmocka_unit_test(test_a_client_that_is_known),
         cmocka_unit_test(test_little_counts), cmocka_unit_test(test_as_another_accountant),
         cmocka_unit_test(test_all_take_part))
