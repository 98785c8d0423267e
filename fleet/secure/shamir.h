/* A secret in parts, of which `need` give it back and fewer tell nothing.
 *
 * Each 16 bits of the secret are the value at 0 of a random polynomial of degree need - 1 over the
 * field of 2^16 elements (x^16 + x^12 + x^3 + x + 1); the part of holder k is its value at k + 1.
 *
 * Source: shamir-1979. Thread: any, no shared state. */
#ifndef RU_FLEET_SECURE_SHAMIR_H
#define RU_FLEET_SECURE_SHAMIR_H

#include "base/status.h"

enum { RU_SHAMIR_BYTES = 32 };

/* random [need - 1][RU_SHAMIR_BYTES] that nobody knows: coefficients. Part k at into + k * stride.
 */
void ru_shamir_split(const uint8_t secret[RU_SHAMIR_BYTES], uint32_t need, uint32_t n,
                     const uint8_t *random, uint8_t *into, int64_t stride);
/* What the parts of these holders count; all differ. */
void ru_shamir_weights(const uint32_t *holder, uint32_t need, uint16_t *weights);
/* Part i at parts + i * stride, of the holder with weights[i]. */
void ru_shamir_join(const uint16_t *weights, uint32_t need, const uint8_t *parts, int64_t stride,
                    uint8_t secret[RU_SHAMIR_BYTES]);

#endif
