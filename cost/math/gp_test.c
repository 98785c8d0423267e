/* Gaussian processes against the textbook's formulas in numpy 2.4 and scipy 1.17's best of 30
 * searches of the marginal likelihood; expected improvement against 60 digits (mpmath). */
#include "cost/math/gp.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

#include "test/test.h"

static const double points[8][2] = {{.1, .2},  {.4, .9},  {.7, .3},   {.95, .8},
                                    {.3, .55}, {.6, .65}, {.05, .85}, {.85, .1}};
static const double values[8] = {3.1, 1.2, 2.7, 4.4, 0.8, 1.9, 2.2, 3.9};

static void fill(ru_gp *gp, ru_arena *a)
{
    ru_err err;
    assert_ok(ru_gp_init(gp, 2, 16, a, &err), err);
    for (uint32_t i = 0; i < 8; i++) {
        assert_ok(ru_gp_add(gp, points[i], values[i], &err), err);
    }
}

static void predictions_under_given_parameters(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_gp gp, grown;
    static const double length[2] = {0.4, 0.7}, at[2] = {0.5, 0.5};
    double mean, variance, mean2, variance2;
    fill(&gp, &a);
    assert_ok(ru_gp_set(&gp, length, 1.3, 0.01, &err), err);
    ru_gp_predict(&gp, at, &mean, &variance);
    assert_near(mean, 1.0741151612516993, 1e-12);
    assert_near(variance, 0.06207313860682584, 1e-10);
    assert_near(gp.likelihood, -22.826795156739866, 1e-12);
    /* Points that come one by one after the parameters give the same. */
    assert_ok(ru_gp_init(&grown, 2, 16, &a, &err), err);
    ru_gp_predict(&grown, at, &mean2, &variance2);
    assert_true(mean2 == 0 && variance2 == 1);
    assert_ok(ru_gp_set(&grown, length, 1.3, 0.01, &err), err);
    for (uint32_t i = 0; i < 8; i++) {
        assert_ok(ru_gp_add(&grown, points[i], values[i], &err), err);
    }
    ru_gp_predict(&grown, at, &mean2, &variance2);
    assert_true(mean2 == mean && variance2 == variance);
    assert_true(grown.likelihood == gp.likelihood);
    ru_arena_fini(&a);
}

static void parameters_of_greatest_likelihood(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_gp gp, again;
    fill(&gp, &a);
    ru_gp_fit_options opt = {.seed = 3, .starts = 8, .calls_max = 200, .flat_prior = true};
    assert_ok(ru_gp_fit(&gp, &opt, &a, &err), err);
    assert_near(gp.likelihood, -9.16676872706085, 1e-6);
    assert_near(gp.length[0], 0.216460566, 1e-3);
    assert_near(gp.length[1], 1.10216994, 1e-3);
    fill(&again, &a);
    assert_ok(ru_gp_fit(&again, &opt, &a, &err), err);
    assert_memory_equal(gp.coef, again.coef, 8 * sizeof gp.coef[0]);
    /* At the points, nearly without noise, the mean is the value. */
    for (uint32_t i = 0; i < 8; i++) {
        double mean, variance;
        ru_gp_predict(&gp, points[i], &mean, &variance);
        assert_true(fabs(mean - values[i]) < 1e-3 && variance < 1e-3);
    }
    /* Fixed noise stays; the priors keep the fit within what they allow. */
    opt = (ru_gp_fit_options){.seed = 3, .noise = 0.05};
    assert_ok(ru_gp_fit(&gp, &opt, &a, &err), err);
    assert_true(gp.noise == 0.05 && gp.length[1] < 3 && gp.length[0] > 0.05);
    ru_arena_fini(&a);
}

/* Few or equal values leave the defaults; bad ones are refused. */
static void edges(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_gp gp;
    ru_gp_fit_options opt = {0};
    const double x[1] = {0.5}, bad[1] = {RU_NAN}, zero[1] = {0};
    assert_ok(ru_gp_init(&gp, 1, 4, &a, &err), err);
    assert_int_equal(ru_gp_fit(&gp, &opt, &a, NULL), RU_E_ARG);
    for (uint32_t k = 0; k < 4; k++) { /* the same point again and again */
        assert_ok(ru_gp_add(&gp, x, 7, &err), err);
        assert_ok(ru_gp_fit(&gp, &opt, &a, &err), err);
    }
    double mean, variance;
    ru_gp_predict(&gp, x, &mean, &variance);
    assert_near(mean, 7, 1e-12);
    assert_int_equal(ru_gp_add(&gp, x, 7, NULL), RU_E_LIMIT);
    assert_int_equal(ru_gp_set(&gp, zero, 1, 1, NULL), RU_E_ARG);
    assert_ok(ru_gp_init(&gp, 1, 4, &a, &err), err);
    assert_int_equal(ru_gp_add(&gp, bad, 1, NULL), RU_E_ARG);
    assert_int_equal(ru_gp_add(&gp, x, (double)INFINITY, NULL), RU_E_ARG);
    assert_int_equal(ru_gp_init(&gp, 17, 4, &a, NULL), RU_E_ARG);
    assert_int_equal(ru_gp_init(&gp, 1, 1000, &a, NULL), RU_E_ARG);
    ru_arena_fini(&a);
}

static void improvements(void **state)
{
    (void)state;
    assert_near(ru_expected_improvement(1, 4, 0.5), 0.57268939644716028, 1e-13);
    assert_near(ru_expected_improvement(0, 1, -3), 0.0003821543170477236, 1e-11);
    assert_near(ru_expected_improvement(0, 0.01, -3), 1.631956734091483e-200, 1e-9);
    assert_true(ru_expected_improvement(1, 0, 3) == 2 && ru_expected_improvement(3, 0, 1) == 0);
    assert_near(ru_probability_below(1, 4, 1), 0.5, 1e-14);
    assert_true(ru_probability_below(1, 0, 1) == 1 && ru_probability_below(2, 0, 1) == 0);
    /* Search by constrained improvement finds the constrained minimum of a small grid. */
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_gp goal, limit;
    assert_ok(ru_gp_init(&goal, 1, 16, &a, &err), err);
    assert_ok(ru_gp_init(&limit, 1, 16, &a, &err), err);
    double best = (double)INFINITY, best_x = -1, x = 0;
    const ru_gp *constraints[1] = {&limit};
    for (uint32_t k = 0; k < 9; k++) {
        double y = (x - 0.3) * (x - 0.3), c = sin(7 * x), bound[1] = {0.5};
        assert_ok(ru_gp_add(&goal, &x, y, &err), err);
        assert_ok(ru_gp_add(&limit, &x, c, &err), err);
        if (c <= 0.5 && y < best) {
            best = y;
            best_x = x;
        }
        ru_gp_fit_options opt = {.seed = k};
        assert_ok(ru_gp_fit(&goal, &opt, &a, &err), err);
        assert_ok(ru_gp_fit(&limit, &opt, &a, &err), err);
        double most = -1;
        for (uint32_t i = 0; i <= 100; i++) {
            double at = i / 100.0;
            double v = ru_expected_improvement_constrained(&goal, best, constraints, bound, 1, &at);
            if (v > most) {
                most = v;
                x = at;
            }
        }
    }
    assert_near(best_x, 0.38, 0.03); /* sin(7 x) <= 0.5 from 0.374 on, or below 0.0748 */
    ru_arena_fini(&a);
}

RU_TESTS(cost_gp, cmocka_unit_test(predictions_under_given_parameters),
         cmocka_unit_test(parameters_of_greatest_likelihood), cmocka_unit_test(edges),
         cmocka_unit_test(improvements))
