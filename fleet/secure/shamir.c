#include "fleet/secure/shamir.h"

#include <string.h>

enum { WORDS = RU_SHAMIR_BYTES / 2, MODULUS = 0x1100b };

/* Neither branches nor tables depend on the factors. */
static uint16_t times(uint32_t a, uint32_t b)
{
    uint32_t sum = 0;
    for (uint32_t k = 0; k < 16; k++) {
        sum ^= a & (0u - (b >> k & 1));
        a <<= 1;
        a ^= MODULUS & (0u - (a >> 16));
    }
    return (uint16_t)sum;
}

/* a^(2^16 - 2) */
static uint16_t inverse(uint16_t a)
{
    uint16_t out = 1, square = a;
    for (uint32_t k = 1; k < 16; k++) {
        square = times(square, square);
        out = times(out, square);
    }
    return out;
}

static uint32_t word(const uint8_t *at, uint32_t w)
{
    return (uint32_t)at[2 * w] | (uint32_t)at[2 * w + 1] << 8;
}

/* All words by the number of a holder, which is no secret: branches may depend on it. With a fixed
 * number of words compilers use vectors. */
static void times_holder(uint16_t v[WORDS], uint32_t x)
{
    uint16_t sum[WORDS] = {0};
    for (; x != 0; x >>= 1) {
        uint16_t bit = (uint16_t)(0u - (x & 1));
        for (uint32_t w = 0; w < WORDS; w++) {
            sum[w] ^= v[w] & bit;
            v[w] = (uint16_t)((v[w] << 1) ^ (MODULUS & (0 - (v[w] >> 15))));
        }
    }
    memcpy(v, sum, sizeof sum);
}

void ru_shamir_split(const uint8_t secret[RU_SHAMIR_BYTES], uint32_t need, uint32_t n,
                     const uint8_t *random, uint8_t *into, int64_t stride)
{
    RU_CHECK(need >= 1 && need <= n && n < UINT16_MAX);
    for (uint32_t k = 0; k < n; k++, into += stride) {
        uint16_t v[WORDS] = {0};
        for (uint32_t c = need; c-- > 0;) {
            const uint8_t *of = c > 0 ? random + (size_t)(c - 1) * RU_SHAMIR_BYTES : secret;
            times_holder(v, k + 1);
            for (uint32_t w = 0; w < WORDS; w++) {
                v[w] ^= (uint16_t)word(of, w);
            }
        }
        for (uint32_t w = 0; w < WORDS; w++) {
            into[2 * w] = (uint8_t)v[w];
            into[2 * w + 1] = (uint8_t)(v[w] >> 8);
        }
    }
}

void ru_shamir_weights(const uint32_t *holder, uint32_t need, uint16_t *weights)
{
    for (uint32_t i = 0; i < need; i++) {
        uint16_t above = 1, below = 1;
        for (uint32_t j = 0; j < need; j++) {
            if (j != i) {
                above = times(above, holder[j] + 1);
                below = times(below, (holder[j] + 1) ^ (holder[i] + 1));
            }
        }
        RU_CHECK(below != 0);
        weights[i] = times(above, inverse(below));
    }
}

void ru_shamir_join(const uint16_t *weights, uint32_t need, const uint8_t *parts, int64_t stride,
                    uint8_t secret[RU_SHAMIR_BYTES])
{
    memset(secret, 0, RU_SHAMIR_BYTES);
    for (uint32_t i = 0; i < need; i++, parts += stride) {
        for (uint32_t w = 0; w < WORDS; w++) {
            uint16_t v = times(word(parts, w), weights[i]);
            secret[2 * w] ^= (uint8_t)v;
            secret[2 * w + 1] ^= (uint8_t)(v >> 8);
        }
    }
}
