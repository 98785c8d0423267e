/* The order of samples: a keyed bijection of 0 .. count-1, computed per position.
 *
 * A position is written as two digits (hi, lo) in base `side`, side = ceil(sqrt(count)), and goes
 * through 8 Feistel rounds that add a keyed hash of one digit to the other modulo side:
 *
 *     hi, lo  ->  lo, hi + F(key[r], lo) mod side
 *
 * Every round can be undone, so the whole is a bijection of side*side; results >= count walk on
 * through it until they fall below (side*side - count < 2*side, so almost never). The round keys
 * are Philox4x32-10 of (seed, stream, index), the index being the epoch.
 *
 * Source: black-rogaway-2002 (ciphers with arbitrary finite domains: cycle walking and generalised
 * Feistel); salmon-2011 (Philox). */
#include "data/data_impl.h"

#include "base/rng.h"

static uint32_t side_of(int64_t count)
{
    uint64_t n = (uint64_t)count, lo = 1, hi = (uint64_t)1 << 32;
    while (lo < hi) { /* smallest side with side*side >= n */
        uint64_t mid = lo + (hi - lo) / 2;
        if (mid >= ((uint64_t)1 << 32) || mid * mid >= n) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return (uint32_t)lo;
}

/* Well-mixed 32 bits of (key, x), scaled to 0 .. side-1. */
static uint32_t round_hash(uint32_t key, uint32_t x, uint32_t side)
{
    uint64_t h = (uint64_t)(x ^ key) * 0x9e3779b97f4a7c15u;
    h ^= (h >> 29) ^ ((uint64_t)key << 32);
    h *= 0xbf58476d1ce4e5b9u;
    return (uint32_t)(((h >> 32) * side) >> 32);
}

void rui_order_init(rui_order *o, uint64_t seed, uint64_t stream, uint64_t index, int64_t count)
{
    RU_CHECK(count > 0 && count <= (int64_t)1 << 62);
    o->count = count;
    o->side = side_of(count);
    for (uint32_t k = 0; k < RUI_ORDER_ROUNDS; k += 4) {
        ru_philox_at(seed, stream, index * 2 + k / 4, o->keys + k);
    }
}

int64_t rui_order_at(const rui_order *o, int64_t position)
{
    RU_DCHECK(position >= 0 && position < o->count);
    uint64_t side = o->side, at = (uint64_t)position;
    do {
        uint32_t hi = (uint32_t)(at / side), lo = (uint32_t)(at % side);
        for (uint32_t r = 0; r < RUI_ORDER_ROUNDS; r++) {
            uint64_t sum = (uint64_t)hi + round_hash(o->keys[r], lo, o->side);
            hi = lo;
            lo = (uint32_t)(sum >= side ? sum - side : sum);
        }
        at = (uint64_t)hi * side + lo;
    } while (at >= (uint64_t)o->count);
    return (int64_t)at;
}

int64_t ru_order_sample(uint64_t seed, int64_t epoch, int64_t position, int64_t count)
{
    RU_CHECK(position >= 0 && position < count);
    rui_order o;
    rui_order_init(&o, seed, RUI_ORDER_FULL, (uint64_t)epoch, count);
    return rui_order_at(&o, position);
}
