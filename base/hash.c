/* XXH3 through libxxhash; the state is kept inside ru_hasher so that nothing is allocated. */
#include "base/hash.h"

#include <stdio.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* for the size of the state; its layout is not touched */
#include <xxhash.h>

_Static_assert(sizeof(XXH3_state_t) <= sizeof(((ru_hasher *)0)->state), "hasher too small");

uint64_t ru_hash_bytes(const void *data, int64_t size_bytes, uint64_t seed)
{
    RU_CHECK(size_bytes >= 0);
    return XXH3_64bits_withSeed(data, (size_t)size_bytes, seed);
}

ru_hash128 ru_hash128_bytes(const void *data, int64_t size_bytes)
{
    RU_CHECK(size_bytes >= 0);
    XXH128_hash_t h = XXH3_128bits(data, (size_t)size_bytes);
    return (ru_hash128){h.low64, h.high64};
}

static XXH3_state_t *state_of(ru_hasher *h)
{
    return (XXH3_state_t *)(void *)h->state;
}

void ru_hasher_init(ru_hasher *h)
{
    memset(h, 0, sizeof *h);
    RU_CHECK(XXH3_128bits_reset(state_of(h)) == XXH_OK);
}

void ru_hasher_put(ru_hasher *h, const void *data, int64_t size_bytes)
{
    RU_CHECK(size_bytes >= 0);
    if (size_bytes > 0) {
        RU_CHECK(XXH3_128bits_update(state_of(h), data, (size_t)size_bytes) == XXH_OK);
    }
}

void ru_hasher_put_u64(ru_hasher *h, uint64_t v)
{
    uint8_t b[8];
    for (int i = 0; i < 8; i++) {
        b[i] = (uint8_t)(v >> (8 * i));
    }
    ru_hasher_put(h, b, sizeof b);
}

void ru_hasher_put_str(ru_hasher *h, const char *s)
{
    size_t n = s == NULL ? SIZE_MAX : strlen(s);
    ru_hasher_put_u64(h, n);
    ru_hasher_put(h, s, s == NULL ? 0 : (int64_t)n);
}

ru_hash128 ru_hasher_get(const ru_hasher *h)
{
    XXH128_hash_t d = XXH3_128bits_digest((const XXH3_state_t *)(const void *)h->state);
    return (ru_hash128){d.low64, d.high64};
}

void ru_hash128_text(ru_hash128 h, char into[33])
{
    snprintf(into, 33, "%016llx%016llx", (unsigned long long)h.high, (unsigned long long)h.low);
}
