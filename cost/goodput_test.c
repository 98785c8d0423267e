/* Goodput: values of the published code, the best batch by brute force, fits of known models,
 * noise of a quadratic whose noise is known. */
#include "cost/goodput.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

static const ru_perf given = {.121, .00568, .0236, .00634, .0118, .00317, 1.14};

static ru_goodput_model model_given(void)
{
    return (ru_goodput_model){.perf = given,
                              .sqr = .00136,
                              .var = .000502,
                              .batch_first = 128,
                              .batch_max = 1280,
                              .local_min = 64,
                              .local_max = 256};
}

/* Gradient noise scale in examples. */
static double noise_of(const ru_goodput_model *m)
{
    return m->batch_first * m->var / m->sqr;
}

/* What the published code gives without accumulation; none is needed here. */
static void test_values_of_the_published_code(void **state)
{
    (void)state;
    ru_goodput_model m = model_given();
    static const struct {
        uint32_t nodes, replicas, local;
        double goodput;
    } rows[] = {{1, 1, 128, 150.936276},
                {1, 2, 64, 260.869015},
                {1, 4, 64, 299.145479},
                {2, 8, 64, 305.717199},
                {4, 16, 64, 297.031909}};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        ru_goodput_choice c = ru_goodput_best(&m, rows[i].nodes, rows[i].replicas);
        assert_near(c.goodput / rows[i].goodput, 1, 1e-6);
        assert_int_equal(c.local, rows[i].local);
        assert_int_equal(c.passes, 0);
    }
    assert_near(noise_of(&m), 128 * .000502 / .00136, 1e-12);
    assert_near(ru_goodput_efficiency(&m, 128), 1, 1e-15);
}

/* Every pass and every local batch: the search over 50 batches loses at most 2 %. */
static void test_best_batch_is_near_that_of_all(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 3);
    for (uint32_t round = 0; round < 300; round++) {
        ru_goodput_model m = model_given();
        m.perf.pass_s *= ru_rng_uniform(&r, 0.1, 10);
        m.perf.net_s *= ru_rng_uniform(&r, 0.1, 100);
        m.perf.overlap = ru_rng_uniform(&r, 1, 10);
        m.var *= ru_rng_uniform(&r, 0.1, 1000);
        m.local_min = 8;
        m.local_max = 16 + ru_rng_below(&r, 200);
        m.one_pass = round % 2 == 1;
        uint32_t k = 1 + ru_rng_below(&r, round % 4 < 2 ? 2 : 32), nodes = k > 4 ? (k + 3) / 4 : 1;
        ru_goodput_choice c = ru_goodput_best(&m, nodes, k);
        double most = 0;
        for (uint32_t s = 0; s < 160; s++) {
            for (uint32_t local = m.local_min; local <= m.local_max; local++) {
                uint32_t batch = k * local * (s + 1);
                bool blind = !m.one_pass && k == 1 && s == 0 && batch > m.batch_first;
                if (batch >= m.batch_first && batch <= m.batch_max && !blind) {
                    double g = ru_goodput_at(&m, nodes, k, local, s);
                    most = g > most ? g : most;
                }
            }
        }
        if (!(c.goodput >= 0.97 * most && c.goodput <= most * (1 + 1e-12))) {
            fail_msg("%g of %g: %u in %u on %u, local %u", c.goodput, most, c.local, c.passes, k,
                     m.local_max);
        }
        assert_true(c.local >= m.local_min && c.local <= m.local_max);
    }
}

static void test_efficiency_and_throughput_have_their_shape(void **state)
{
    (void)state;
    ru_goodput_model m = model_given();
    double before = 1.1;
    for (uint32_t batch = 128; batch <= 1280; batch += 64) {
        double e = ru_goodput_efficiency(&m, batch);
        assert_true(e > 0 && e <= 1 && e < before);
        double phi = noise_of(&m);
        assert_near(e, (phi + 128) / (phi + batch), 1e-12);
        before = e;
    }
    for (uint32_t batch = 256; batch <= 1280; batch *= 2) {
        double e = ru_goodput_efficiency(&m, batch), phi = noise_of(&m);
        assert_near(ru_goodput_noise(128, batch, batch / 128.0 * e), phi, 1e-6 * phi);
        assert_near(ru_goodput_noise(128, batch, batch / 128.0), 1e12, 1);
        assert_near(ru_goodput_noise(128, batch, 1), 0, 0);
    }
    assert_near(ru_goodput_noise(128, 128, 1), 0, 0);
    double last = 0, gain = (double)INFINITY;
    for (uint32_t local = 64; local <= 256; local += 16) {
        double t = 4.0 * local / ru_perf_step_s(&given, 1, 4, local, 0);
        assert_true(t > last && (last == 0 || t - last <= gain + 1e-12));
        gain = last > 0 ? t - last : gain;
        last = t;
    }
    m.sqr = m.var = 0; /* no noise known: only the number of steps counts */
    assert_near(ru_goodput_efficiency(&m, 256), 0.5, 1e-15);
    m.batch = 512;
    ru_goodput_choice c = ru_goodput_best(&m, 1, 4);
    assert_int_equal(c.local * 4 * (c.passes + 1), 512);
}

static ru_perf_sample sample_of(const ru_perf *p, uint32_t nodes, uint32_t replicas, uint32_t local)
{
    return (ru_perf_sample){nodes, replicas, local, ru_perf_pass_s(p, local),
                            ru_perf_step_s(p, nodes, replicas, local, 0)};
}

static void test_fit_finds_known_models(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 4);
    uint32_t exact = 0;
    for (uint32_t round = 0; round < 40; round++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_perf p = {ru_rng_uniform(&r, 0.01, 0.3),  ru_rng_uniform(&r, 1e-4, 0.02),
                     ru_rng_uniform(&r, 0.02, 0.8),  ru_rng_uniform(&r, 1e-4, 0.01),
                     ru_rng_uniform(&r, 0.005, 0.3), ru_rng_uniform(&r, 1e-5, 0.005),
                     ru_rng_uniform(&r, 1, 4)};
        ru_perf_sample s[90];
        uint32_t n = 0;
        for (uint32_t k = 1; k <= 32; k *= 2) {
            for (uint32_t local = 8; local <= 256; local *= 2) {
                s[n++] = sample_of(&p, k > 4 ? k / 4 : 1, k, local);
                if (k > 1 && k <= 4) {
                    s[n++] = sample_of(&p, 2, k, local);
                }
            }
        }
        ru_perf fit;
        double loss;
        ru_err err;
        assert_ok(ru_perf_fit(s, n, NULL, &a, &fit, &loss, &err), err);
        assert_near(ru_perf_loss(&fit, s, n), loss, 1e-3);
        exact += loss <= ru_perf_loss(&p, s, n) + 0.005;
        ru_perf again;
        assert_ok(ru_perf_fit(s, n, &fit, &a, &again, &loss, &err), err);
        assert_true(loss <= ru_perf_loss(&fit, s, n) + 1e-6);
        ru_arena_fini(&a);
    }
    assert_true(exact >= 36);
}

/* What was never measured is taken as free, and several nodes as no better than one. */
static void test_fit_is_optimistic(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_perf fit;
    ru_err err;
    ru_perf_sample s[] = {sample_of(&given, 1, 1, 128), sample_of(&given, 1, 1, 128),
                          sample_of(&given, 1, 2, 64)};
    assert_ok(ru_perf_fit(s, 1, NULL, &a, &fit, NULL, &err), err);
    double pass = ru_perf_pass_s(&given, 128);
    assert_near(fit.pass_s, pass / 2, 1e-9);
    assert_near(ru_perf_pass_s(&fit, 128) / pass, 1, 1e-4);
    assert_true(ru_perf_step_s(&fit, 4, 16, 128, 0) < 1.01 * pass);
    assert_ok(ru_perf_fit(s, 3, NULL, &a, &fit, NULL, &err), err);
    assert_true(fit.net_s >= 1.0999 * fit.node_s && fit.node_s > 1e-4);
    assert_near(ru_perf_step_s(&fit, 1, 2, 64, 0) / s[2].step_s, 1, 0.02);
    s[1].step_s = 0;
    assert_int_equal(ru_perf_fit(s, 3, NULL, &a, &fit, NULL, &err), RU_E_ARG);
    assert_int_equal(ru_perf_fit(s, 0, NULL, &a, &fit, NULL, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

/* Two and four replicas of one node that share its memory: passes grow with them, which looks like
 * sums. Nothing of it says what several nodes cost, nor does one number of replicas say what more
 * of them cost. */
static void test_what_more_replicas_cost_needs_two_numbers(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_perf fit;
    ru_err err;
    ru_perf_sample s[] = {{1, 1, 200, 0.92, 0.92},
                          {1, 2, 200, 0.93, 0.945},
                          {1, 4, 200, 0.9975, 1.005},
                          {4, 16, 200, 1.038, 1.05},
                          {8, 32, 200, 1.04, 1.3}};
    assert_ok(ru_perf_fit(s, 3, NULL, &a, &fit, NULL, &err), err);
    assert_true(ru_perf_step_s(&fit, 4, 16, 200, 0) < 1.25 * s[2].step_s);
    assert_ok(ru_perf_fit(s, 4, NULL, &a, &fit, NULL, &err), err);
    double same = ru_perf_step_s(&fit, 4, 16, 200, 0);
    assert_near(ru_perf_step_s(&fit, 16, 64, 200, 0) / same, 1, 1e-6);
    assert_ok(ru_perf_fit(s, 5, NULL, &a, &fit, NULL, &err), err);
    assert_true(ru_perf_step_s(&fit, 16, 64, 200, 0) > 1.1 * ru_perf_step_s(&fit, 4, 16, 200, 0));
    ru_arena_fini(&a);
}

enum { DIM = 40 };

/* Gradients g + noise of known covariance: per example d_i^2 in each direction. */
static void micro(ru_rng *r, const double *g, const double *d, double batch, double *out)
{
    for (uint32_t i = 0; i < DIM; i++) {
        out[i] = g[i] + d[i] / sqrt(batch) * ru_rng_normal(r);
    }
}

static double square(const double *x)
{
    double s = 0;
    for (uint32_t i = 0; i < DIM; i++) {
        s += x[i] * x[i];
    }
    return s;
}

static double noise_measured(ru_rng *r, uint32_t n, double *want)
{
    double g[DIM], d[DIM], one[DIM], mean[DIM], last[DIM] = {0};
    double first = 32, local = 16, batch = n * local;
    for (uint32_t i = 0; i < DIM; i++) {
        g[i] = 0.1 * ru_rng_normal(r);
        d[i] = ru_rng_uniform(r, 0.2, 2);
    }
    *want = square(d) / square(g);
    ru_noise e = {0};
    for (uint32_t step = 0; step < 2000; step++) {
        double squares = 0;
        for (uint32_t i = 0; i < DIM; i++) {
            mean[i] = 0;
        }
        for (uint32_t k = 0; k < n; k++) {
            micro(r, g, d, local, one);
            squares += square(one) / n;
            for (uint32_t i = 0; i < DIM; i++) {
                mean[i] += one[i] / n;
            }
        }
        if (n > 1) {
            ru_noise_add(&e, n, batch / first, squares, square(mean));
        } else if (step > 0) {
            double both[DIM];
            for (uint32_t i = 0; i < DIM; i++) {
                both[i] = (mean[i] + last[i]) / 2;
            }
            ru_noise_add(&e, 1, batch / first, (square(mean) + square(last)) / 2, square(both));
        }
        for (uint32_t i = 0; i < DIM; i++) {
            last[i] = mean[i];
        }
    }
    ru_noise_add(&e, n, batch / first, RU_NAN, 1); /* skipped */
    ru_goodput_model m = {
        .sqr = ru_noise_sqr_least(&e), .var = ru_noise_var(&e), .batch_first = (uint32_t)first};
    return noise_of(&m);
}

/* 1 replica alone (pairs of steps), 1 with two passes, 4, 4 with four passes. */
static void test_noise_of_a_known_quadratic(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(17, 5);
    static const uint32_t counts[] = {1, 2, 4, 16};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(counts); i++) {
        double want, is = noise_measured(&r, counts[i], &want);
        assert_near(is / want, 1, 0.1);
    }
    ru_noise e = {0};
    ru_noise_add(&e, 1, 1, 2, 1);
    ru_noise_add(&e, 4, 1, 2, 1); /* pairs are forgotten */
    assert_near(ru_noise_sqr_least(&e), 2.0 / 3, 1e-12);
    assert_near(ru_noise_var(&e), 1.0 / 3, 1e-12);
}

/* Where the mean gradient is 0, its measured square is above and below 0: what is believed of the
 * noise is what so many samples can tell, and that grows with their number. */
static void test_noise_is_believed_within_its_spread(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(17, 6);
    double believed[2] = {0};
    ru_noise e = {0};
    ru_noise_add(&e, 4, 1, 1, 0.1); /* one sample, below 0: its size is all that is known */
    assert_near(ru_noise_sqr_least(&e), 0.2, 1e-12);
    for (uint32_t i = 0; i < 2; i++) {
        double sums = 0;
        uint32_t steps = i == 0 ? 16 : 256, zero = 0;
        for (uint32_t trial = 0; trial < 200; trial++) {
            e = (ru_noise){0};
            for (uint32_t step = 0; step < steps; step++) {
                double squares = 0, mean = 0;
                for (uint32_t k = 0; k < 4; k++) {
                    double g = ru_rng_normal(&r);
                    squares += g * g / 4;
                    mean += g / 4;
                }
                ru_noise_add(&e, 4, 1, squares, mean * mean);
            }
            zero += e.sqr_sum <= 0;
            sums += ru_noise_sqr_least(&e) / 200;
        }
        assert_true(zero > 50); /* 1 / 0 without the spread */
        believed[i] = sums;
    }
    /* sqrt(2 / (n (n - 1))) of unit gradients is the deviation of a sample. */
    assert_near(believed[0] / (sqrt(1.0 / 6) / sqrt(16)), 1.2, 0.25);
    assert_near(believed[0] / believed[1], 4, 0.8);
}

RU_TESTS(cost_goodput, cmocka_unit_test(test_noise_is_believed_within_its_spread),
         cmocka_unit_test(test_values_of_the_published_code),
         cmocka_unit_test(test_best_batch_is_near_that_of_all),
         cmocka_unit_test(test_efficiency_and_throughput_have_their_shape),
         cmocka_unit_test(test_fit_finds_known_models), cmocka_unit_test(test_fit_is_optimistic),
         cmocka_unit_test(test_what_more_replicas_cost_needs_two_numbers),
         cmocka_unit_test(test_noise_of_a_known_quadratic))
