/* The law of batch-or-timeout: closed forms, and a simulation of the buffer itself. */
#include "cost/batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/arrive.h"
#include "test/test.h"

static ru_batch_law law_of(const ru_markov *m, uint32_t batch, double timeout, ru_arena *a)
{
    ru_markov_law l;
    ru_batch_law law;
    ru_err err;
    assert_ok(ru_markov_solve(m, &l, &err), err);
    assert_ok(ru_batch_law_of(&l, batch, timeout, 1, a, a, &law, &err), err);
    return law;
}

static void near_rel(double is, double want, double part)
{
    if (!(fabs(is - want) <= part * fabs(want))) {
        fail_msg("%.9g, expected %.9g", is, want);
    }
}

/* Poisson arrivals, batches of two: sizes and waits in closed form. */
static void test_two_of_poisson(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_markov m = ru_markov_poisson(8);
    ru_batch_law law = law_of(&m, 2, 0.25, &a);
    double alone = exp(-2);
    near_rel(law.size_p[1], alone, 1e-9);
    near_rel(law.mean_batch, 2 - alone, 1e-9);
    const double none[3] = {0};
    for (double w = 0.01; w < 0.25; w += 0.03) {
        /* The second one never waits; the first one waits for it. */
        near_rel(ru_batch_cdf(&law, none, w), (1 - alone + 1 - exp(-8 * w)) / (2 - alone), 1e-4);
    }
    near_rel(ru_batch_cdf(&law, none, 0.25), 1, 1e-8);
    ru_arena_fini(&a);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Waits and sizes of n requests through a buffer. */
static void simulate(const ru_markov *m, uint32_t batch, double timeout, const double *service,
                     uint32_t n, double *latency, double *mean_batch)
{
    ru_rng r = ru_rng_from(11, 3);
    uint32_t phase = 0, done = 0, batches = 0;
    double came[RU_BATCH_MAX];
    double now = ru_markov_draw(m, &r, &phase), next;
    while (done < n) {
        uint32_t k = 0;
        double first = now;
        for (came[k++] = now;; came[k++] = now) {
            next = now + ru_markov_draw(m, &r, &phase);
            if (k == batch || next > first + timeout) {
                break;
            }
            now = next;
        }
        double out = k == batch ? now : first + timeout;
        for (uint32_t i = 0; i < k && done < n; i++) {
            latency[done++] = out - came[i] + service[k];
        }
        batches++;
        now = next;
    }
    *mean_batch = (double)done / batches;
    qsort(latency, n, sizeof *latency, by_value);
}

static void test_law_agrees_with_a_simulated_buffer(void **state)
{
    (void)state;
    enum { N = 400000 };
    const ru_markov processes[] = {ru_markov_poisson(20), ru_markov_mmpp(10, 60, 2, 1),
                                   ru_markov_erlang(4, 30), ru_markov_hyper(90, 12, 0.7, 0.6)};
    static const struct {
        uint32_t batch;
        double timeout;
    } at[] = {{2, 0.05}, {5, 0.2}, {16, 0.5}, {8, 5}};
    double *latency = malloc(N * sizeof *latency), service[RU_BATCH_MAX + 1];
    assert_non_null(latency);
    for (uint32_t k = 0; k <= RU_BATCH_MAX; k++) {
        service[k] = 0.03 + 0.011 * k;
    }
    for (uint32_t p = 0; p < RU_ARRAY_LEN(processes); p++) {
        for (uint32_t k = 0; k < RU_ARRAY_LEN(at); k++) {
            ru_arena a;
            ru_arena_init(&a, 0);
            ru_batch_law law = law_of(&processes[p], at[k].batch, at[k].timeout, &a);
            double mean;
            simulate(&processes[p], at[k].batch, at[k].timeout, service, N, latency, &mean);
            near_rel(law.mean_batch, mean, 0.01);
            for (double q = 0.1; q < 1; q += 0.2) {
                near_rel(ru_batch_quantile(&law, service, q), latency[(uint32_t)(q * N)], 0.015);
            }
            near_rel(ru_batch_quantile(&law, service, 0.95), latency[(uint32_t)(0.95 * N)], 0.015);
            ru_arena_fini(&a);
        }
    }
    free(latency);
}

/* A trace of a known process gives it back. */
static void test_fit_returns_the_process(void **state)
{
    (void)state;
    enum { N = 300000 };
    ru_markov m = ru_markov_hyper(100, 10, 0.8, 0.9);
    double *gap = malloc(N * sizeof *gap);
    assert_non_null(gap);
    ru_rng r = ru_rng_from(5, 0);
    uint32_t phase = 0;
    for (uint32_t i = 0; i < N; i++) {
        gap[i] = ru_markov_draw(&m, &r, &phase);
    }
    ru_arrive_fit fit;
    ru_err err;
    assert_ok(ru_arrive_of(gap, N, &fit, &err), err);
    assert_int_equal(fit.kind, RU_ARRIVE_TWO);
    near_rel(fit.gamma, 0.9, 0.03);
    near_rel(fmax(-fit.process.d0[0], -fit.process.d0[3]), 100, 0.05);
    near_rel(fmin(-fit.process.d0[0], -fit.process.d0[3]), 10, 0.05);
    for (uint32_t i = 0; i < N; i++) {
        gap[i] = 0.1;
    }
    assert_ok(ru_arrive_of(gap, N, &fit, &err), err);
    assert_int_equal(fit.kind, RU_ARRIVE_ERLANG);
    gap[7] = RU_NAN;
    assert_int_equal(ru_arrive_of(gap, N, &fit, &err), RU_E_ARG);
    free(gap);
}

RU_TESTS(cost_batch, cmocka_unit_test(test_two_of_poisson),
         cmocka_unit_test(test_law_agrees_with_a_simulated_buffer),
         cmocka_unit_test(test_fit_returns_the_process))
