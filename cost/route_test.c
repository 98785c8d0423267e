/* Buffers of several classes: sizes against the law's, the largest of a batch by enumeration, times
 * kept against a simulated buffer. */
#include "cost/route.h"

#include <math.h>
#include <string.h>

#include "test/test.h"

enum { BATCH = 4, CLASSES = 3 };

static const double share[CLASSES] = {0.2, 0, 0.3}, share3[CLASSES] = {0.1, 0.25, 0.15};

static void test_sizes_are_those_of_the_law(void **state)
{
    (void)state;
    const ru_markov maps[] = {ru_markov_poisson(20), ru_markov_mmpp(120, 10, 0.05, 0.05),
                              ru_markov_erlang(3, 7), ru_markov_hyper(30, 4, 0.4, 0.7)};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(maps); k++) {
        for (uint32_t t = 0; t < 3; t++) {
            ru_arena a;
            ru_arena_init(&a, 0);
            ru_markov_law l;
            ru_err err;
            double timeout = t == 0 ? 0.01 : t == 1 ? 0.2 : 3, sizes[6 * 13 * 13] = {0};
            assert_ok(ru_markov_solve(&maps[k], &l, &err), err);
            assert_ok(ru_route_sizes(&l, 12, timeout / 5, 5, &a, sizes, &err), err);
            const double *p = sizes + 5 * 13 * 13;
            assert_true(sizes[13 + 1] == 1);
            for (uint32_t b = 1; b <= 12; b += 1 + b / 2) {
                ru_batch_law law;
                assert_ok(ru_batch_law_of(&l, b, timeout, 1, &a, &a, &law, &err), err);
                for (uint32_t i = 1; i <= b; i++) {
                    if (!(fabs(law.size_p[i] - p[b * 13 + i]) < 1e-9)) {
                        fail_msg("process %u, timeout %g, limit %u: P(%u) %.9g, law %.9g", k,
                                 timeout, b, i, p[b * 13 + i], law.size_p[i]);
                    }
                }
            }
            ru_arena_fini(&a);
        }
    }
}

/* All batches of b one by one. */
static void test_largest_by_enumeration(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_route_mix mix;
    ru_err err;
    assert_ok(ru_route_mix_of(share3, CLASSES, BATCH, &a, &mix, &err), err);
    assert_int_equal(mix.n, 3);
    assert_true(fabs(mix.share - 0.5) < 1e-15);
    double service[CLASSES * BATCH], allow[CLASSES] = {1.2, 2.1, 3.3};
    for (uint32_t k = 0; k < CLASSES * BATCH; k++) {
        service[k] = 1 + k / BATCH + 0.3 * (k % BATCH);
    }
    for (uint32_t b = 1; b <= BATCH; b++) {
        double p[CLASSES] = {0}, kept = 0, mean = 0;
        uint32_t all = 1;
        for (uint32_t i = 0; i < b; i++) {
            all *= CLASSES;
        }
        for (uint32_t code = 0; code < all; code++) {
            double weight = 1;
            uint32_t largest = 0, first = code % CLASSES;
            for (uint32_t i = 0, rest = code; i < b; i++, rest /= CLASSES) {
                weight *= share3[rest % CLASSES] / 0.5;
                largest = rest % CLASSES > largest ? rest % CLASSES : largest;
            }
            double s = service[largest * BATCH + b - 1];
            p[largest] += weight;
            mean += weight * s;
            kept += s + 0.05 <= allow[first] ? weight : 0;
        }
        for (uint32_t j = 0; j < CLASSES; j++) {
            assert_true(fabs(ru_route_largest(&mix, b, j) - p[j]) < 1e-12);
        }
        assert_true(fabs(ru_route_mean(&mix, b, service) - mean) < 1e-12);
        assert_true(fabs(ru_route_kept(&mix, b, service, allow, 0.05) - kept) < 1e-12);
    }
    assert_ok(ru_route_mix_of(share, CLASSES, BATCH, &a, &mix, &err), err);
    assert_int_equal(mix.n, 2);
    assert_int_equal(mix.class_of[1], 2);
    const double none[CLASSES] = {0};
    assert_int_equal(ru_route_mix_of(none, CLASSES, BATCH, &a, &mix, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

/* 300,000 requests through a buffer: parts served in time by class, and mean service time. */
static void test_times_kept_by_a_simulated_buffer(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_route_mix mix;
    ru_err err;
    assert_ok(ru_route_mix_of(share3, CLASSES, BATCH, &a, &mix, &err), err);
    double service[CLASSES * BATCH], allow[CLASSES] = {1.35, 2.65, 3.5};
    for (uint32_t k = 0; k < CLASSES * BATCH; k++) {
        service[k] = 1 + k / BATCH + 0.2 * (k % BATCH);
    }
    ru_markov m = ru_markov_hyper(30, 6, 0.5, 0.4);
    ru_markov_law l;
    ru_batch_law law;
    assert_ok(ru_markov_solve(&m, &l, &err), err);
    const double timeout = 0.2;
    assert_ok(ru_batch_law_of(&l, BATCH, timeout, 1, &a, &a, &law, &err), err);
    double met[CLASSES], is[CLASSES] = {0}, n_of[CLASSES] = {0};
    double all = ru_route_met(&mix, &law, service, allow, met);
    ru_rng r = ru_rng_from(7, 1);
    uint32_t phase = 0;
    double now = 0, came[BATCH], pending = ru_markov_draw(&m, &r, &phase), sum_all = 0;
    for (uint32_t served = 0; served < 300000;) {
        uint32_t b = 0, kind[BATCH], largest = 0;
        now = pending;
        while (b < BATCH && (b == 0 || now <= came[0] + timeout)) {
            kind[b] = ru_rng_pick(&r, mix.p, CLASSES);
            largest = kind[b] > largest ? kind[b] : largest;
            came[b++] = now;
            now += ru_markov_draw(&m, &r, &phase);
        }
        pending = now;
        double at = b == BATCH ? came[b - 1] : came[0] + timeout;
        for (uint32_t i = 0; i < b; i++) {
            double latency = at - came[i] + service[largest * BATCH + b - 1];
            is[kind[i]] += latency <= allow[kind[i]];
            sum_all += latency <= allow[kind[i]];
            n_of[kind[i]]++;
        }
        served += b;
    }
    for (uint32_t k = 0; k < CLASSES; k++) {
        if (!(fabs(is[k] / n_of[k] - met[k]) < 0.006)) {
            fail_msg("class %u: %.4f in time, by the law %.4f", k, is[k] / n_of[k], met[k]);
        }
    }
    assert_true(fabs(sum_all / (n_of[0] + n_of[1] + n_of[2]) - all) < 0.004);
    ru_arena_fini(&a);
}

RU_TESTS(cost_route, cmocka_unit_test(test_sizes_are_those_of_the_law),
         cmocka_unit_test(test_largest_by_enumeration),
         cmocka_unit_test(test_times_kept_by_a_simulated_buffer))
