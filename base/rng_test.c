/* Philox against the published vectors, the functions against libm, distributions against their
 * moments, permutations by brute force. */
#include "base/rng.h"

#include <math.h>
#include <string.h>

#include "test/test.h"

static void test_philox_known_answers(void **state)
{
    (void)state;
    /* kat_vectors of the Random123 distribution, philox4x32 10. Source: salmon-2011. */
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        uint32_t out[4];
        ru_philox(rows[i].counter, rows[i].key, out);
        assert_memory_equal(out, rows[i].out, sizeof out);
    }
}

static void test_functions_match_libm(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 1);
    double worst_log = 0, worst_exp = 0, worst_cos = 0;
    for (int i = 0; i < 200000; i++) {
        double x = ru_rng_uniform(&r, -690, 690), e = exp(x), t = ru_rng_f64(&r);
        worst_exp = fmax(worst_exp, fabs(ru_math_exp(x) / e - 1));
        worst_log = fmax(worst_log, fabs(ru_math_log(e) - log(e)) / fmax(fabs(log(e)), 1e-3));
        double u = (double)(i + 1) / 200000.0;
        worst_log = fmax(worst_log, fabs(ru_math_log(u) - log(u)) / fmax(fabs(log(u)), 1e-3));
        double pi2 = 6.283185307179586;
        worst_cos = fmax(worst_cos, fabs(ru_math_cos2pi(t) - cos(pi2 * t)));
        worst_cos = fmax(worst_cos, fabs(ru_math_sin2pi(t) - sin(pi2 * t)));
    }
    assert_true(worst_exp < 5e-16);
    assert_true(worst_log < 5e-16);
    assert_true(worst_cos < 1e-15); /* the argument's own rounding is most of it */
    assert_true(ru_math_cos2pi(0.25) == 0 || fabs(ru_math_cos2pi(0.25)) < 1e-300);
    assert_true(ru_math_cos2pi(0.5) == -1.0);
}

static void test_streams_do_not_depend_on_history(void **state)
{
    (void)state;
    ru_rng a = ru_rng_from(7, 3), b = ru_rng_from(7, 3);
    ru_rng child1 = ru_rng_split(&a, 9);
    for (int i = 0; i < 10; i++) {
        ru_rng_u32(&a);
    }
    ru_rng child2 = ru_rng_split(&a, 9), other = ru_rng_split(&a, 10);
    uint64_t c1 = ru_rng_u64(&child1);
    assert_true(c1 == ru_rng_u64(&child2));
    assert_true(c1 != ru_rng_u64(&other));
    for (int i = 0; i < 10; i++) {
        ru_rng_u32(&b);
    }
    assert_int_equal(ru_rng_u32(&a), ru_rng_u32(&b));
    uint32_t w[4];
    ru_philox_at(7, 3, 2, w); /* words 8..11 of the stream */
    ru_rng c = ru_rng_from(7, 3);
    for (int i = 0; i < 8; i++) {
        ru_rng_u32(&c);
    }
    assert_int_equal(ru_rng_u32(&c), w[0]);
}

typedef struct moments {
    double mean, variance;
} moments;

static moments measure(double (*draw)(ru_rng *), int n)
{
    ru_rng r = ru_rng_from(ru_test_seed(), 2);
    double sum = 0, sum2 = 0;
    for (int i = 0; i < n; i++) {
        double v = draw(&r);
        sum += v;
        sum2 += v * v;
    }
    double mean = sum / n;
    return (moments){mean, sum2 / n - mean * mean};
}

static double draw_gamma_small(ru_rng *r)
{
    return ru_rng_gamma(r, 0.3);
}

static double draw_gamma_large(ru_rng *r)
{
    return ru_rng_gamma(r, 7.5);
}

static double draw_poisson_small(ru_rng *r)
{
    return ru_rng_poisson(r, 3.5);
}

static double draw_poisson_large(ru_rng *r)
{
    return ru_rng_poisson(r, 120.0);
}

static void test_moments(void **state)
{
    (void)state;
    enum { N = 40000 };
    static const struct {
        double (*draw)(ru_rng *);
        double mean, variance;
    } rows[] = {
        {ru_rng_f64, 0.5, 1.0 / 12},      {ru_rng_normal, 0, 1},
        {ru_rng_exponential, 1, 1},       {draw_gamma_small, 0.3, 0.3},
        {draw_gamma_large, 7.5, 7.5},     {draw_poisson_small, 3.5, 3.5},
        {draw_poisson_large, 120.0, 120},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        moments m = measure(rows[i].draw, N);
        /* Six deviations of the mean; the variance within 8 %. */
        assert_true(fabs(m.mean - rows[i].mean) < 6 * sqrt(rows[i].variance / N));
        assert_true(fabs(m.variance / rows[i].variance - 1) < 0.08);
    }
}

static void test_below_zipf_and_pick_by_chi_square(void **state)
{
    (void)state;
    enum { N = 60000, K = 12 };
    ru_rng r = ru_rng_from(ru_test_seed(), 5);
    uint32_t flat[K] = {0}, zipf[K] = {0}, pick[K] = {0};
    double weights[K], total = 0, zipf_total = 0;
    for (int k = 0; k < K; k++) {
        weights[k] = k % 3 == 0 ? 0 : k + 1.0;
        total += weights[k];
        zipf_total += pow(k + 1, -1.3);
    }
    for (int i = 0; i < N; i++) {
        flat[ru_rng_below(&r, K)]++;
        zipf[ru_rng_zipf(&r, K, 1.3)]++;
        pick[ru_rng_pick(&r, weights, K)]++;
    }
    double chi_flat = 0, chi_zipf = 0, chi_pick = 0;
    for (int k = 0; k < K; k++) {
        double e = (double)N / K, z = N * pow(k + 1, -1.3) / zipf_total, p = N * weights[k] / total;
        chi_flat += (flat[k] - e) * (flat[k] - e) / e;
        chi_zipf += (zipf[k] - z) * (zipf[k] - z) / z;
        if (p > 0) {
            chi_pick += (pick[k] - p) * (pick[k] - p) / p;
        } else {
            assert_int_equal(pick[k], 0);
        }
    }
    /* 11 degrees of freedom: 38 is exceeded once in 10^4 draws of a seed. */
    assert_true(chi_flat < 38 && chi_zipf < 38 && chi_pick < 38);
    for (int i = 0; i < 1000; i++) {
        assert_true(ru_rng_zipf(&r, 1000000, 1.0) < 1000000);
        assert_true(ru_rng_below_u64(&r, (uint64_t)3 << 61) < (uint64_t)3 << 61);
    }
}

static void test_permutations(void **state)
{
    (void)state;
    uint8_t seen[600];
    for (uint64_t n = 1; n <= 600; n += n < 70 ? 1 : 53) {
        ru_perm p = ru_perm_from(n, 42, n), q = ru_perm_from(n, 42, n + 1);
        memset(seen, 0, sizeof seen);
        uint64_t same = 0;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t v = ru_perm_at(&p, i);
            assert_true(v < n);
            assert_int_equal(seen[v]++, 0);
            same += v == ru_perm_at(&q, i);
        }
        assert_true(n < 20 || same < n / 2);
    }
    ru_perm big = ru_perm_from((uint64_t)1 << 40, 1, 1);
    assert_true(ru_perm_at(&big, ((uint64_t)1 << 40) - 1) < (uint64_t)1 << 40);
    uint32_t order[100];
    ru_rng r = ru_rng_from(1, 1);
    ru_rng_shuffle(&r, order, 100);
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(seen[order[i]]++, 0);
    }
}

RU_TESTS(base_rng, cmocka_unit_test(test_philox_known_answers),
         cmocka_unit_test(test_functions_match_libm),
         cmocka_unit_test(test_streams_do_not_depend_on_history), cmocka_unit_test(test_moments),
         cmocka_unit_test(test_below_zipf_and_pick_by_chi_square),
         cmocka_unit_test(test_permutations))
