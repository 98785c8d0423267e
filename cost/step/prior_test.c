/* Laws behind measurements: normal and clustered ones, whose means are known in closed form. */
#include "cost/step/prior.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

enum { N = 4000 };

static double variance_of(const double *x, double error, double *mean)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    double v;
    ru_err err;
    assert_ok(ru_prior_means(x, N, error, &a, mean, &v, &err), err);
    ru_arena_fini(&a);
    return v;
}

static void test_a_normal_law(void **state)
{
    (void)state;
    const double error = 0.5; /* beside a deviation of 1: means x / 1.25, variance 0.2 */
    double x[N], mean[N], off = 0;
    ru_rng rng = ru_rng_from(3, 1);
    for (uint32_t i = 0; i < N; i++) {
        x[i] = ru_rng_normal(&rng) + error * ru_rng_normal(&rng);
    }
    double v = variance_of(x, error, mean);
    for (uint32_t i = 0; i < N; i++) {
        off += (mean[i] - x[i] / 1.25) * (mean[i] - x[i] / 1.25) / N;
    }
    assert_near(v, 0.2, 0.02);
    assert_true(off < 0.01); /* the best of all has an error of 0.2 */
}

static void test_clusters_are_found(void **state)
{
    (void)state;
    double x[N], mean[N], worst = 0;
    ru_rng rng = ru_rng_from(4, 1);
    for (uint32_t i = 0; i < N; i++) {
        x[i] = (i % 4) + 0.1 * ru_rng_normal(&rng);
    }
    double v = variance_of(x, 0.1, mean);
    for (uint32_t i = 0; i < N; i++) {
        worst = fmax(worst, fabs(mean[i] - i % 4));
    }
    assert_true(v < 0.002 && worst < 0.1); /* errors alone: 0.01 and 0.35 */
}

static void test_the_selected_are_not_biased(void **state)
{
    (void)state;
    double x[N], truth[N], mean[N], bias = 0, raw = 0, n = 0;
    ru_rng rng = ru_rng_from(5, 1);
    for (uint32_t i = 0; i < N; i++) {
        truth[i] = -ru_math_log(1e-9 + ru_rng_f64(&rng)); /* exponential, dense at 0 */
        x[i] = truth[i] + 0.3 * ru_rng_normal(&rng);
    }
    (void)variance_of(x, 0.3, mean);
    for (uint32_t i = 0; i < N; i++) { /* those that seem to be the least */
        bias += x[i] < 0.1 ? mean[i] - truth[i] : 0;
        raw += x[i] < 0.1 ? x[i] - truth[i] : 0;
        n += x[i] < 0.1 ? 1 : 0;
    }
    assert_true(fabs(raw / n) > 0.1 && fabs(bias / n) < 0.02);
}

static void test_what_needs_no_law(void **state)
{
    (void)state;
    const double x[3] = {1, 5, 1e6};
    double mean[3], v;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    assert_ok(ru_prior_means(x, 3, 0.1, &a, mean, &v, &err), err);
    assert_near(mean[0], 1, 0);
    assert_near(v, 0.01, 1e-12);
    assert_ok(ru_prior_means(x, 2, 0, &a, mean, &v, &err), err);
    assert_near(mean[1], 5, 0);
    assert_int_equal(ru_prior_means(x, 3, RU_NAN, &a, mean, &v, &err), RU_E_ARG);
    const double bad[2] = {1, RU_NAN};
    assert_int_equal(ru_prior_means(bad, 2, 0.1, &a, mean, &v, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

RU_TESTS(cost_prior, cmocka_unit_test(test_a_normal_law), cmocka_unit_test(test_clusters_are_found),
         cmocka_unit_test(test_the_selected_are_not_biased),
         cmocka_unit_test(test_what_needs_no_law))
