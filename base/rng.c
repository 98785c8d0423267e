/* Philox4x32-10, its streams, and a permutation made of it.
 *
 * Each of ten rounds multiplies two of the four words by constants, crosses high and low halves
 * with the other two and the round key, and bumps the key by a Weyl step.
 *
 * Source: salmon-2011 sec 3.3; the constants are the published ones of Philox4x32. */
#include "base/rng.h"

#include <string.h>

#include "base/hash.h"

void ru_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void ru_philox_at(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                           (uint32_t)(stream >> 32)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    ru_philox(counter, key, out);
}

ru_rng ru_rng_from(uint64_t seed, uint64_t stream)
{
    return (ru_rng){.seed = seed, .stream = stream};
}

ru_rng ru_rng_split(const ru_rng *r, uint64_t label)
{
    /* The child's seed and stream are 128 bits drawn under the parent's seed from (label, stream);
     * the complement keeps them apart from the parent's own draws at index = label. */
    uint32_t w[4];
    ru_philox_at(~r->seed, r->stream, label, w);
    return ru_rng_from((uint64_t)w[1] << 32 | w[0], (uint64_t)w[3] << 32 | w[2]);
}

uint64_t ru_rng_label(const char *word)
{
    return ru_hash_bytes(word, (int64_t)strlen(word), 0);
}

uint32_t ru_rng_u32(ru_rng *r)
{
    if (r->left == 0) {
        ru_philox_at(r->seed, r->stream, r->index++, r->block);
        r->left = 4;
    }
    return r->block[4 - r->left--];
}

uint64_t ru_rng_u64(ru_rng *r)
{
    uint64_t low = ru_rng_u32(r);
    return (uint64_t)ru_rng_u32(r) << 32 | low;
}

uint32_t ru_rng_below(ru_rng *r, uint32_t n)
{
    /* Multiply and keep the high half; redraw in the part that would favour small results.
     * Source: lemire-2019 alg 5. */
    RU_CHECK(n > 0);
    uint64_t m = (uint64_t)ru_rng_u32(r) * n;
    if ((uint32_t)m < n) {
        uint32_t least = (uint32_t)-n % n;
        while ((uint32_t)m < least) {
            m = (uint64_t)ru_rng_u32(r) * n;
        }
    }
    return (uint32_t)(m >> 32);
}

uint64_t ru_rng_below_u64(ru_rng *r, uint64_t n)
{
    RU_CHECK(n > 0);
    if (n <= UINT32_MAX) {
        return ru_rng_below(r, (uint32_t)n);
    }
    uint64_t least = (0 - n) % n; /* draws under it would be one too many for small results */
    uint64_t v = ru_rng_u64(r);
    while (v < least) {
        v = ru_rng_u64(r);
    }
    return v % n;
}

float ru_rng_f32(ru_rng *r)
{
    return (float)(ru_rng_u32(r) >> 8) * 0x1p-24f;
}

double ru_rng_f64(ru_rng *r)
{
    return (double)(ru_rng_u64(r) >> 11) * 0x1p-53;
}

void ru_rng_shuffle(ru_rng *r, uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = ru_rng_below(r, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

ru_perm ru_perm_from(uint64_t n, uint64_t seed, uint64_t stream)
{
    RU_CHECK(n <= (uint64_t)1 << 62);
    uint32_t bits = 1;
    while (bits < 31 && (uint64_t)1 << (2 * bits) < n) {
        bits++;
    }
    return (ru_perm){.n = n, .seed = seed, .stream = stream, .half_bits = bits};
}

uint64_t ru_perm_at(const ru_perm *p, uint64_t place)
{
    RU_CHECK(place < p->n);
    uint32_t mask = (uint32_t)(((uint64_t)1 << p->half_bits) - 1);
    uint64_t v = place;
    /* A balanced Feistel network permutes the smallest even power of two that holds n; values
     * outside 0..n-1 are sent through again, which walks along the cycle back into the range (at
     * most 4 times on average). Six rounds. */
    do {
        uint32_t left = (uint32_t)(v >> p->half_bits) & mask, right = (uint32_t)v & mask;
        for (uint32_t round = 0; round < 6; round++) {
            uint32_t counter[4] = {right, round, (uint32_t)p->stream, (uint32_t)(p->stream >> 32)};
            uint32_t key[2] = {(uint32_t)p->seed, (uint32_t)(p->seed >> 32)}, w[4];
            ru_philox(counter, key, w);
            uint32_t next = left ^ (w[0] & mask);
            left = right;
            right = next;
        }
        v = (uint64_t)left << p->half_bits | right;
    } while (v >= p->n);
    return v;
}
