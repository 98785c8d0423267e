/* Rounds: every set of clients, and simulated rounds with jitter. */
#include "cost/round.h"

#include <math.h>

#include "base/rng.h"
#include "cost/math/norm.h"
#include "cost/math/quantile.h"
#include "test/test.h"

static double mean_of(const ru_round_in *in)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    double s;
    ru_err err;
    assert_ok(ru_round_mean(in, &a, &s, &err), err);
    ru_arena_fini(&a);
    return s;
}

static void test_all_sets_of_clients(void **state)
{
    (void)state;
    const double latency[8] = {5, 1, 9, 2.5, 2.5, 40, 3, 7};
    for (uint32_t drawn = 1; drawn <= 8; drawn++) {
        for (uint32_t wait = 1; wait <= drawn; wait++) {
            for (uint32_t late = 0; late < 2; late++) {
                double deadline = late == 1 ? 6 : 0, sum = 0, n = 0;
                for (uint32_t set = 0; set < 256; set++) {
                    double in[8];
                    uint32_t m = 0;
                    for (uint32_t i = 0; i < 8; i++) {
                        if ((set >> i & 1) != 0) {
                            in[m++] = latency[i];
                        }
                    }
                    if (m == drawn) {
                        ru_sort_f64(in, m);
                        sum += late == 1 ? fmin(in[wait - 1], deadline) : in[wait - 1];
                        n++;
                    }
                }
                ru_round_in in = {latency, 8, 0, drawn, wait, deadline};
                assert_near(mean_of(&in), sum / n, 1e-9);
                in.spread = 1e-3; /* hardly any jitter: the other way to the same mean */
                assert_near(mean_of(&in), sum / n, 0.02);
            }
        }
    }
}

static void test_simulated_rounds_with_jitter(void **state)
{
    (void)state;
    enum { N = 30, ROUNDS = 60000 };
    double latency[N];
    ru_rng rng = ru_rng_from(5, 1);
    for (uint32_t i = 0; i < N; i++) {
        latency[i] = ru_math_exp(1.2 * ru_rng_normal(&rng));
    }
    static const uint32_t cases[][2] = {{5, 5}, {7, 5}, {1, 1}, {12, 3}};
    for (uint32_t c = 0; c < RU_ARRAY_LEN(cases); c++) {
        ru_round_in in = {latency, N, 0.3, cases[c][0], cases[c][1], c == 2 ? 4 : 0};
        double sum = 0;
        for (uint32_t r = 0; r < ROUNDS; r++) {
            uint32_t order[N];
            double t[N];
            ru_rng_shuffle(&rng, order, N);
            for (uint32_t k = 0; k < in.drawn; k++) {
                t[k] = latency[order[k]] * ru_math_exp(0.3 * ru_rng_normal(&rng) - 0.3 * 0.3 / 2);
            }
            ru_sort_f64(t, in.drawn);
            double s = t[in.wait - 1];
            sum += in.deadline_s > 0 ? fmin(s, in.deadline_s) : s;
        }
        assert_near(mean_of(&in), sum / ROUNDS, 0.02);
    }
}

/* Many drawn of many: the bounded form beside simulated rounds. */
static void test_large_rounds_with_jitter(void **state)
{
    (void)state;
    enum { N = 2000, ROUNDS = 1500 };
    static double latency[N], in[1024];
    static uint32_t pool[N];
    static const uint32_t rows[][2] = {{100, 100}, {100, 80}, {1000, 1000}, {1000, 900}};
    ru_rng rng = ru_rng_from(7, 1);
    for (uint32_t i = 0; i < N; i++) {
        latency[i] = ru_math_exp(0.8 * ru_rng_normal(&rng));
        pool[i] = i;
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_round_in r = {latency, N, 0.3, rows[k][0], rows[k][1], 0};
        double sum = 0;
        for (uint32_t t = 0; t < ROUNDS; t++) {
            for (uint32_t i = 0; i < r.drawn; i++) {
                uint32_t j = i + ru_rng_below(&rng, N - i), p = pool[i];
                pool[i] = pool[j];
                pool[j] = p;
                in[i] = latency[pool[i]] * ru_math_exp(0.3 * ru_rng_normal(&rng) - 0.045);
            }
            ru_sort_f64(in, r.drawn);
            sum += in[r.wait - 1] / ROUNDS;
        }
        assert_near(mean_of(&r) / sum, 1, 0.04);
    }
}

static void test_bad_rounds_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    double latency[3] = {1, 2, 3}, s;
    static const ru_round_in bad[] = {{NULL, 3, 0, 4, 1, 0},
                                      {NULL, 3, 0, 2, 3, 0},
                                      {NULL, 3, 0, 2, 0, 0},
                                      {NULL, 3, -1, 2, 2, 0}};
    ru_err err;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(bad); i++) {
        ru_round_in in = bad[i];
        in.latency_s = latency;
        assert_int_equal(ru_round_mean(&in, &a, &s, &err), RU_E_ARG);
    }
    latency[1] = 0;
    ru_round_in in = {latency, 3, 0, 2, 2, 0};
    assert_int_equal(ru_round_mean(&in, &a, &s, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

RU_TESTS(cost_round, cmocka_unit_test(test_all_sets_of_clients),
         cmocka_unit_test(test_simulated_rounds_with_jitter),
         cmocka_unit_test(test_large_rounds_with_jitter),
         cmocka_unit_test(test_bad_rounds_are_refused))
