/* Packed values come back to the bit, whatever they are; they are shorter by what the entropy of
 * their exponents says; what is damaged is refused or has other values, and reads nothing else. */
#include "fleet/client/pack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

enum { MANY = 100000 };

/* Bytes of it, when it came back as it was. */
static int64_t round_trip(const float *values, int64_t count)
{
    uint8_t *packed = malloc((size_t)rui_fed_pack_most(count));
    float *back = calloc((size_t)count + 1, sizeof *back);
    assert_true(packed != NULL && back != NULL);
    int64_t n = rui_fed_pack(values, count, packed);
    assert_true(n <= rui_fed_pack_most(count));
    assert_true(rui_fed_unpack(packed, n, back, count));
    assert_memory_equal(back, values, (size_t)count * sizeof *back);
    assert_false(rui_fed_unpack(packed, n - 1, back, count));
    assert_false(rui_fed_unpack(packed, n, back, count + 1));
    free(packed);
    free(back);
    return n;
}

/* Bits of an exponent, by its frequencies. */
static double entropy(const float *values, int64_t count)
{
    double n[256] = {0}, bits = 0;
    for (int64_t k = 0; k < count; k++) {
        uint32_t v;
        memcpy(&v, &values[k], sizeof v);
        n[v >> 23 & 0xff]++;
    }
    for (uint32_t k = 0; k < 256; k++) {
        bits -= n[k] > 0 ? n[k] / (double)count * log2(n[k] / (double)count) : 0;
    }
    return bits;
}

static void test_models(void **state)
{
    float *v = malloc(MANY * sizeof *v);
    ru_rng rng = ru_rng_from(ru_test_seed(), 1);
    (void)state;
    assert_non_null(v);
    for (uint32_t kind = 0; kind < 3; kind++) { /* normal, uniform, half of them 0 */
        for (uint32_t k = 0; k < MANY; k++) {
            double u = ru_rng_f64(&rng);
            v[k] = (float)(kind == 0   ? 0.05 * ru_rng_normal(&rng)
                           : kind == 1 ? 2 * u - 1
                                       : (u < 0.5 ? 0 : ru_rng_normal(&rng)));
        }
        double least = MANY * (24 + entropy(v, MANY)) / 8, n = (double)round_trip(v, MANY);
        assert_true(n >= least && n <= least + MANY / 8.0 + 300); /* a prefix code: a bit at most */
        assert_true(n < 0.86 * MANY * sizeof *v);
    }
    free(v);
}

static void test_any_bits(void **state)
{
    static const float few[] = {0, -0.0F, 1, (float)INFINITY, -(float)INFINITY, (float)NAN, 1e-45F};
    float v[3000];
    ru_rng rng = ru_rng_from(ru_test_seed(), 2);
    (void)state;
    for (int64_t n = 0; n <= (int64_t)RU_ARRAY_LEN(few); n++) {
        (void)round_trip(few, n);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(v); k++) { /* all exponents, many codes of 8 bits */
        uint32_t bits = ru_rng_u32(&rng);
        memcpy(&v[k], &bits, sizeof bits);
    }
    (void)round_trip(v, RU_ARRAY_LEN(v));
    uint32_t at = 0; /* frequencies that double: codes would be longer than 12 bits */
    for (uint32_t e = 0; e < 11; e++) {
        for (uint32_t k = 0; k < 1U << e; k++) {
            v[at++] = ldexpf(1, (int)e);
        }
    }
    for (uint32_t e = 11; e < 40; e++) {
        v[at++] = ldexpf(1, (int)e);
    }
    (void)round_trip(v, at);
}

static void test_damage(void **state)
{
    enum { COUNT = 200 };
    float v[COUNT], back[COUNT];
    uint8_t packed[2048], bad[2048];
    ru_rng rng = ru_rng_from(ru_test_seed(), 3);
    (void)state;
    for (uint32_t k = 0; k < COUNT; k++) {
        v[k] = (float)ru_rng_normal(&rng);
    }
    assert_true(rui_fed_pack_most(COUNT) <= (int64_t)sizeof packed);
    const int64_t n = rui_fed_pack(v, COUNT, packed);
    uint32_t refused = 0;
    for (uint32_t k = 0; k < 20000; k++) { /* what reads too far is found by the sanitizers */
        uint8_t *heap = malloc((size_t)n);
        assert_non_null(heap);
        memcpy(bad, packed, (size_t)n);
        for (uint32_t i = 0; i <= k % 4; i++) {
            bad[ru_rng_below(&rng, (uint32_t)n)] = (uint8_t)ru_rng_u32(&rng);
        }
        memcpy(heap, bad, (size_t)n);
        refused += rui_fed_unpack(heap, n, back, COUNT) ? 0 : 1;
        free(heap);
    }
    assert_true(refused > 1000);
    for (int64_t k = 0; k < n; k++) {
        assert_false(rui_fed_unpack(packed, k, back, COUNT));
    }
}

RU_TESTS(fleet_pack, cmocka_unit_test(test_models), cmocka_unit_test(test_any_bits),
         cmocka_unit_test(test_damage))
