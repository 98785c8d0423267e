/* Hash map from bytes or integers to 64-bit values, walked in the order of insertion, so that no
 * result ever depends on addresses or hash seeds.
 *
 * Open addressing over a separate array of entries; keys are copied. Memory comes from an arena, or
 * from malloc when `arena` is NULL (then ru_map_fini frees it).
 *
 *     ru_map m;  ru_map_init(&m, arena, 0);
 *     uint64_t *id = ru_map_put_c(&m, name, &fresh);      NULL: no memory, or n_max reached
 *     if (fresh) { *id = next++; }
 *     for (const ru_map_entry *e = NULL; (e = ru_map_next(&m, e)) != NULL;) ...
 *
 * Cost: O(1) each; a removed entry keeps its place until the next growth. Thread: one at a time. */
#ifndef RU_BASE_MAP_H
#define RU_BASE_MAP_H

#include "base/str.h"

typedef struct ru_map_entry {
    const char *key; /* [key_bytes] and a NUL; NULL in a removed entry */
    uint32_t key_bytes;
    uint32_t hash;
    uint64_t value; /* the caller's: a number, an index, or a pointer through uintptr_t */
} ru_map_entry;

typedef struct ru_map {
    ru_arena *arena;
    ru_map_entry *entries; /* [cap], the first n used, in order of insertion */
    uint32_t *slots;       /* [slot_count]: index + 1 of an entry, 0 empty */
    uint32_t n, cap, slot_count;
    uint32_t count; /* entries that are not removed */
    uint32_t n_max; /* bound on count; 0: 2^30 */
} ru_map;

/* Allocates nothing yet. n_max 0: 2^30 keys. Zeroed memory is a legal empty map on malloc. */
void ru_map_init(ru_map *m, ru_arena *arena, uint32_t n_max);
void ru_map_fini(ru_map *m);

/* The value's place, made with value 0 when the key is new (*fresh, which may be NULL, says so).
 * NULL when memory or n_max is exhausted. Valid until the next put. */
uint64_t *ru_map_put(ru_map *m, ru_str key, bool *fresh);
uint64_t *ru_map_put_c(ru_map *m, const char *key, bool *fresh);
uint64_t *ru_map_put_u64(ru_map *m, uint64_t key, bool *fresh);

/* The value's place or NULL. Valid until the next put. */
uint64_t *ru_map_get(const ru_map *m, ru_str key);
uint64_t *ru_map_get_c(const ru_map *m, const char *key);
uint64_t *ru_map_get_u64(const ru_map *m, uint64_t key);

bool ru_map_remove(ru_map *m, ru_str key); /* false: was not there */

/* The entry after `e` in order of insertion (the first for NULL), NULL at the end. Removing the
 * entry at hand while walking is allowed, putting is not. */
const ru_map_entry *ru_map_next(const ru_map *m, const ru_map_entry *e);

#endif
