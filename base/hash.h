/* Hashes that mean the same on every machine: XXH3 (little-endian input bytes), 64 and 128 bits.
 *
 * Not for secrets. Ids of graphs, plans and files are the 128-bit hash printed as 32 hex digits,
 * high half first. Structs with padding are fed field by field.
 *
 * Thread: any; a hasher belongs to one thread at a time. */
#ifndef RU_BASE_HASH_H
#define RU_BASE_HASH_H

#include "base/status.h"

typedef struct ru_hash128 {
    uint64_t low, high;
} ru_hash128;

uint64_t ru_hash_bytes(const void *data, int64_t size_bytes, uint64_t seed);
ru_hash128 ru_hash128_bytes(const void *data, int64_t size_bytes);

/* Bytes as they come. */
typedef struct ru_hasher {
    uint8_t state[640] RU_ALIGNED(64);
} ru_hasher;

void ru_hasher_init(ru_hasher *h);
void ru_hasher_put(ru_hasher *h, const void *data, int64_t size_bytes);
void ru_hasher_put_u64(ru_hasher *h, uint64_t v);    /* as 8 little-endian bytes */
void ru_hasher_put_str(ru_hasher *h, const char *s); /* length, then bytes; NULL as length 2^64-1 */
ru_hash128 ru_hasher_get(const ru_hasher *h);        /* of all bytes so far; more may follow */

/* 32 hex digits and a NUL. */
void ru_hash128_text(ru_hash128 h, char into[33]);

#endif
