/* Searches on functions whose minima are known: closed forms, least squares with bounds for
 * quadratics. */
#include "cost/math/minimize.h"

#include "base/rng.h"
#include "cost/math/lsq.h"

#include <math.h>

#include "test/test.h"

static double rosenbrock(void *self, const double *x, double *grad)
{
    uint32_t *calls = self;
    ++*calls;
    double a = 1 - x[0], b = x[1] - x[0] * x[0];
    if (grad != NULL) {
        grad[0] = -2 * a - 400 * x[0] * b;
        grad[1] = 200 * b;
    }
    return a * a + 100 * b * b;
}

static void valleys_with_and_without_gradient(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    static const double start[2] = {-1.2, 1}, low[2] = {-2, -2}, high[2] = {0.5, 2};
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t calls = 0;
        bool bounded = k / 2 == 1;
        ru_minimize_in in = {.fn = rosenbrock,
                             .self = &calls,
                             .has_grad = k % 2 == 0,
                             .n = 2,
                             .start = start,
                             .low = bounded ? low : NULL,
                             .high = bounded ? high : NULL};
        ru_minimum m;
        assert_ok(ru_minimize(&in, &a, &m, &err), err);
        assert_true(m.converged);
        assert_int_equal(m.calls, calls);
        assert_true(calls < (in.has_grad ? 80 : 400));
        assert_near(m.x[0], bounded ? 0.5 : 1, 1e-5);
        assert_near(m.x[1], bounded ? 0.25 : 1, 1e-5);
        assert_true(m.value - (bounded ? 0.25 : 0) < 1e-9);
        uint32_t again = 0;
        in.self = &again;
        in.calls_max = 7;
        assert_ok(ru_minimize(&in, &a, &m, &err), err);
        assert_true(again <= 7 && !m.converged);
    }
    ru_arena_fini(&a);
}

typedef struct quadratic {
    const double *a, *b;
    uint32_t m, n;
} quadratic;

static double squares(void *self, const double *x, double *grad)
{
    const quadratic *q = self;
    double sum = 0;
    for (uint32_t j = 0; grad != NULL && j < q->n; j++) {
        grad[j] = 0;
    }
    for (uint32_t i = 0; i < q->m; i++) {
        double r = -q->b[i];
        for (uint32_t j = 0; j < q->n; j++) {
            r += q->a[i * q->n + j] * x[j];
        }
        for (uint32_t j = 0; grad != NULL && j < q->n; j++) {
            grad[j] += 2 * r * q->a[i * q->n + j];
        }
        sum += r * r;
    }
    return sum;
}

static void quadratics_in_the_positive_quadrant(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_rng r = ru_rng_from(ru_test_seed(), 10);
    enum { N = 6, M = 9 };
    static const double low[N] = {0}, start[N] = {1, 1, 1, 1, 1, 1};
    for (uint32_t round = 0; round < 100; round++) {
        double m[M * N], b[M];
        for (uint32_t i = 0; i < M * N; i++) {
            m[i] = ru_rng_normal(&r);
        }
        for (uint32_t i = 0; i < M; i++) {
            b[i] = ru_rng_normal(&r);
        }
        quadratic q = {m, b, M, N};
        ru_lsq_in lsq = {.a = m, .b = b, .m = M, .n = N, .nonneg = true};
        ru_lsq_fit f;
        assert_ok(ru_lsq_solve(&lsq, &a, &a, &f, &err), err);
        ru_minimize_in in = {.fn = squares,
                             .self = &q,
                             .has_grad = round % 2 == 0,
                             .n = N,
                             .start = start,
                             .low = low};
        ru_minimum got;
        assert_ok(ru_minimize(&in, &a, &got, &err), err);
        assert_true(got.value - f.squares < 1e-8 * (1 + f.squares));
    }
    ru_arena_fini(&a);
}

/* log is not a number left of 0: a wall that the search must not cross. */
static double walled(void *self, const double *x, double *grad)
{
    (void)self;
    if (grad != NULL) {
        grad[0] = 1 - 1e-3 / x[0];
    }
    return x[0] - 1e-3 * log(x[0]);
}

static void walls_scales_and_bad_input(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_minimum m;
    static const double start[1] = {50}, low[1] = {3}, high[1] = {1}, bad[1] = {RU_NAN};
    for (uint32_t k = 0; k < 2; k++) {
        ru_minimize_in in = {.fn = walled, .has_grad = k == 0, .n = 1, .start = start};
        assert_ok(ru_minimize(&in, &a, &m, &err), err);
        assert_near(m.x[0], 1e-3, 1e-4);
    }
    ru_minimize_in in = {.fn = walled, .n = 1, .start = start, .low = low, .high = high};
    assert_int_equal(ru_minimize(&in, &a, &m, NULL), RU_E_ARG);
    in = (ru_minimize_in){.fn = walled, .n = 1, .start = bad};
    assert_int_equal(ru_minimize(&in, &a, &m, NULL), RU_E_ARG);
    static const double minus[1] = {-1};
    in = (ru_minimize_in){.fn = walled, .n = 1, .start = minus};
    assert_int_equal(ru_minimize(&in, &a, &m, NULL), RU_E_INFEASIBLE);
    /* A variable that cannot move stays where it is. */
    in = (ru_minimize_in){.fn = walled, .n = 1, .start = start, .low = low, .high = low};
    assert_ok(ru_minimize(&in, &a, &m, &err), err);
    assert_true(m.x[0] == 3 && m.converged);
    ru_arena_fini(&a);
}

RU_TESTS(cost_minimize, cmocka_unit_test(valleys_with_and_without_gradient),
         cmocka_unit_test(quadratics_in_the_positive_quadrant),
         cmocka_unit_test(walls_scales_and_bad_input))
