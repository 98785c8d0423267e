/* Sums against plain loops: all lengths around the vector widths, any alignment, NaN and rounding.
 */
#include "comm/coll/coll_add.h"
#include "test/test.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

enum { N = 300, FROM = 5 };

static float draw(ru_rng *r)
{
    switch (ru_rng_below(r, 12)) {
    case 0:
        return NAN;
    case 1:
        return INFINITY;
    case 2:
        return -INFINITY;
    case 3:
        return -0.0f;
    default:
        return (float)ru_rng_normal(r) * 1000;
    }
}

static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static void test_f32(void **state)
{
    (void)state;
    static float from[FROM][N + 16], out[N + 32];
    ru_rng r = ru_rng_from(ru_test_seed(), 1);
    for (uint32_t n = 0; n < N; n += n < 140 ? 1 : 13) {
        uint32_t k = 1 + n % FROM, off = ru_rng_below(&r, 16);
        const void *src[FROM];
        for (uint32_t s = 0; s < k; s++) {
            src[s] = from[s] + ru_rng_below(&r, 16);
            for (uint32_t i = 0; i < N + 16; i++) {
                from[s][i] = draw(&r);
            }
        }
        for (uint32_t i = 0; i < N + 32; i++) {
            out[i] = 77;
        }
        ru_coll_sum(RU_F32, out + off, src, k, n, n % 2 == 0);
        for (uint32_t i = 0; i < n; i++) {
            float want = ((const float *)src[0])[i];
            for (uint32_t s = 1; s < k; s++) {
                want += ((const float *)src[s])[i];
            }
            assert_true(same(out[off + i], want));
        }
        assert_true(out[off + n] == 77 && (off == 0 || out[off - 1] == 77));
    }
}

static void test_bf16(void **state)
{
    (void)state;
    static uint16_t from[FROM][N + 32], out[N + 64];
    ru_rng r = ru_rng_from(ru_test_seed(), 2);
    for (uint32_t n = 0; n < N; n += n < 140 ? 1 : 13) {
        uint32_t k = 1 + n % FROM, off = ru_rng_below(&r, 32);
        const void *src[FROM];
        for (uint32_t s = 0; s < k; s++) {
            src[s] = from[s] + ru_rng_below(&r, 32);
            for (uint32_t i = 0; i < N + 32; i++) {
                from[s][i] = ru_f32_to_bf16(draw(&r));
            }
        }
        memset(out, 0x55, sizeof out);
        ru_coll_sum(RU_BF16, out + off, src, k, n, n % 2 == 0);
        for (uint32_t i = 0; i < n; i++) {
            float want = ru_bf16_to_f32(((const uint16_t *)src[0])[i]);
            for (uint32_t s = 1; s < k; s++) {
                want += ru_bf16_to_f32(((const uint16_t *)src[s])[i]);
            }
            uint16_t rounded = ru_f32_to_bf16(want), is = out[off + i];
            assert_true(is == rounded || (isnan(want) && isnan(ru_bf16_to_f32(is))));
        }
        assert_true(out[off + n] == 0x5555);
    }
}

/* mine + theirs and theirs + mine. */
static void test_add_in_place(void **state)
{
    (void)state;
    float mine[70], theirs[70];
    for (uint32_t before = 0; before < 2; before++) {
        for (uint32_t i = 0; i < 70; i++) {
            mine[i] = 0.1f * (float)i;
            theirs[i] = 3.7f - (float)i;
        }
        ru_coll_add(RU_F32, mine, theirs, 69, before == 1);
        for (uint32_t i = 0; i < 70; i++) {
            float want = i < 69 ? 0.1f * (float)i + (3.7f - (float)i) : 0.1f * (float)i;
            assert_true(mine[i] == want);
        }
    }
}

static void test_copy(void **state)
{
    (void)state;
    static uint8_t from[2100], into[2200];
    ru_rng r = ru_rng_from(ru_test_seed(), 3);
    for (uint32_t i = 0; i < sizeof from; i++) {
        from[i] = (uint8_t)ru_rng_u32(&r);
    }
    for (uint32_t n = 0; n < 2000; n += 1 + ru_rng_below(&r, 60)) {
        uint32_t a = ru_rng_below(&r, 64), b = ru_rng_below(&r, 64);
        memset(into, 0, sizeof into);
        ru_coll_copy(into + a, from + b, n, n % 3 != 0);
        assert_memory_equal(into + a, from + b, n);
        assert_true(into[a + n] == 0 && (a == 0 || into[a - 1] == 0));
    }
}

RU_TESTS(comm_coll_add, cmocka_unit_test(test_f32), cmocka_unit_test(test_bf16),
         cmocka_unit_test(test_add_in_place), cmocka_unit_test(test_copy))
