/* Arrival processes against closed forms, scipy 1.17 (expm of the counting generator, quadrature of
 * the covariance) and their own draws. */
#include "cost/math/markov.h"

#include "cost/math/norm.h"

#include <math.h>

#include "test/test.h"

static ru_markov_law solved(const ru_markov *m)
{
    ru_markov_law l;
    ru_err err;
    assert_ok(ru_markov_solve(m, &l, &err), err);
    return l;
}

static void renewal_processes_have_closed_forms(void **state)
{
    (void)state;
    ru_markov p = ru_markov_poisson(4), e = ru_markov_erlang(3, 4);
    ru_markov_law poisson = solved(&p), erlang = solved(&e);
    assert_near(poisson.rate, 4, 1e-15);
    assert_near(erlang.rate, 4, 1e-14);
    ru_markov h = ru_markov_hyper(20, 2, 0.7, 0.9);
    ru_markov_law hyper = solved(&h);
    assert_near(1 / hyper.rate, 0.7 / 20 + 0.3 / 2, 1e-14);
}

static void modulated_poisson_process(void **state)
{
    (void)state;
    ru_markov m = ru_markov_mmpp(10, 120, 0.05, 0.05);
    ru_markov_law l = solved(&m);
    assert_near(l.rate, 65, 1e-12);
}

static void counts_in_an_interval(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_markov m = ru_markov_mmpp(3, 9, 0.5, 1.5);
    ru_markov_law l = solved(&m);
    static const double want[12] = {0.05538108962727349, 0.004174443919529571, 0.1261166871851174,
                                    0.01383022567746096, 0.15010056068756658,  0.02586576097506361,
                                    0.12768929825337916, 0.036662010427885555, 0.09014547883047609,
                                    0.04371909616327524, 0.05788752781022129,  0.04558085818308732};
    double got[12], all[24];
    assert_near(l.at_time[0], 0.75, 1e-14);
    assert_near(l.at_arrival[0], 0.5, 1e-14);
    assert_ok(ru_markov_count_from(&m, l.at_arrival, 0.7, 6, &a, got, &err), err);
    assert_ok(ru_markov_count(&m, 0.7, 6, &a, all, &err), err);
    for (uint32_t i = 0; i < 12; i++) {
        assert_near(got[i], want[i], 1e-12);
        uint32_t j = i / 2, to = i % 2;
        assert_near(0.5 * all[4 * j + to] + 0.5 * all[4 * j + 2 + to], want[i], 1e-12);
    }
    /* Long intervals of a Poisson process, in several parts. */
    enum { N = 2400 };
    static double many[N];
    ru_markov p = ru_markov_poisson(1000);
    const double one[1] = {1};
    assert_ok(ru_markov_count_from(&p, one, 2, N, &a, many, &err), err);
    double sum = 0;
    for (uint32_t k = 0; k < N; k++) {
        sum += many[k];
        if (k % 100 == 0 && k >= 1900) {
            assert_near(sum, ru_gamma_q(k + 1.0, 2000), 1e-10);
        }
    }
    assert_int_equal(ru_markov_count_from(&p, one, -1, N, &a, many, NULL), RU_E_ARG);
    assert_int_equal(ru_markov_count_from(&p, one, 1e6, N, &a, many, NULL), RU_E_ARG);
    ru_arena_fini(&a);
}

static void thinning_keeps_a_part(void **state)
{
    (void)state;
    ru_markov a = ru_markov_mmpp(10, 120, 0.5, 0.25), m = ru_markov_thinned(&a, 0.2);
    ru_markov_law la = solved(&a), l = solved(&m);
    assert_near(l.rate, 0.2 * la.rate, 1e-13);
}

static void draws_follow_the_law(void **state)
{
    (void)state;
    ru_markov m = ru_markov_hyper(20, 2, 0.7, 0.5);
    ru_markov_law l = solved(&m);
    ru_rng r = ru_rng_from(ru_test_seed(), 11);
    uint32_t phase = ru_rng_pick(&r, l.at_arrival, 2);
    enum { N = 100000 };
    double sum = 0;
    for (uint32_t k = 0; k < N; k++) {
        double x = ru_markov_draw(&m, &r, &phase);
        sum += x;
    }
    double mean = sum / N;
    assert_near(mean, 1 / l.rate, 0.05);
}

static void bad_processes_are_refused(void **state)
{
    (void)state;
    ru_markov m = ru_markov_poisson(1);
    m.d0[0] = -2;
    assert_int_equal(ru_markov_check(&m, NULL), RU_E_ARG);
    m = ru_markov_mmpp(1, 2, 0, 0); /* two classes */
    assert_int_equal(ru_markov_check(&m, NULL), RU_E_ARG);
    m = ru_markov_mmpp(0, 0, 1, 1); /* never arrives */
    assert_int_equal(ru_markov_check(&m, NULL), RU_E_ARG);
    m = ru_markov_mmpp(1, 2, 1, 1);
    m.d1[1] = -1;
    assert_int_equal(ru_markov_check(&m, NULL), RU_E_ARG);
    m.d1[1] = RU_NAN;
    assert_int_equal(ru_markov_check(&m, NULL), RU_E_ARG);
    m.n = 9;
    assert_int_equal(ru_markov_check(&m, NULL), RU_E_ARG);
    ru_err err;
    m = ru_markov_mmpp(0, 2, 1, 1); /* one phase may be silent */
    assert_ok(ru_markov_check(&m, &err), err);
}

/* Erlang of k phases: 1 / k; two rates of which one is drawn: 2 E (1/r^2) / (E 1/r)^2 - 1. */
static void variation_has_closed_forms(void **state)
{
    (void)state;
    ru_err err;
    ru_markov_law law;
    const ru_markov poisson = ru_markov_poisson(7);
    assert_ok(ru_markov_solve(&poisson, &law, &err), err);
    assert_true(fabs(ru_markov_scv(&law) - 1) < 1e-12);
    const ru_markov erlang = {3, {-6, 6, 0, 0, -6, 6, 0, 0, -6}, {0, 0, 0, 0, 0, 0, 6, 0, 0}};
    assert_ok(ru_markov_solve(&erlang, &law, &err), err);
    assert_true(fabs(ru_markov_scv(&law) - 1.0 / 3) < 1e-12);
    const ru_markov two = {2, {-10, 0, 0, -1}, {3, 7, 0.3, 0.7}}; /* 10 with 0.3, 1 with 0.7 */
    assert_ok(ru_markov_solve(&two, &law, &err), err);
    double mean = 0.3 / 10 + 0.7, square = 2 * (0.3 / 100 + 0.7);
    assert_true(fabs(ru_markov_scv(&law) - (square / (mean * mean) - 1)) < 1e-12);
}

RU_TESTS(cost_markov, cmocka_unit_test(variation_has_closed_forms),
         cmocka_unit_test(renewal_processes_have_closed_forms),
         cmocka_unit_test(modulated_poisson_process), cmocka_unit_test(counts_in_an_interval),
         cmocka_unit_test(thinning_keeps_a_part), cmocka_unit_test(draws_follow_the_law),
         cmocka_unit_test(bad_processes_are_refused))
