/* Insertion-ordered hash map: slots hold indexes into a dense array of entries.
 *
 *   slots   [0][3][0][1][2][0][0][0]      linear probing, at most half full
 *   entries [a][b][c]                      in order of insertion                     */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { MAP_MAX = 1 << 30, CAP_MIN = 8 };

void ru_map_init(ru_map *m, ru_arena *arena, uint32_t n_max)
{
    *m = (ru_map){.arena = arena, .n_max = n_max};
}

static void *map_alloc(ru_map *m, int64_t size_bytes)
{
    if (m->arena != NULL) {
        return ru_arena_zalloc(m->arena, size_bytes, 8);
    }
    return calloc(1, (size_t)size_bytes);
}

static void map_free(ru_map *m, const void *p)
{
    if (m->arena == NULL) {
        union {
            const void *in;
            void *out;
        } u = {.in = p};
        free(u.out);
    }
}

void ru_map_fini(ru_map *m)
{
    for (uint32_t i = 0; m->arena == NULL && i < m->n; i++) {
        map_free(m, m->entries[i].key);
    }
    map_free(m, m->entries);
    map_free(m, m->slots);
    *m = (ru_map){.arena = m->arena, .n_max = m->n_max};
}

static uint32_t hash_of(ru_str key)
{
    uint64_t h = ru_hash_bytes(key.n > 0 ? key.p : "", key.n, 0);
    return (uint32_t)(h ^ (h >> 32));
}

/* The slot of the key, or the empty one where it would go. */
static uint32_t slot_of(const ru_map *m, ru_str key, uint32_t hash)
{
    uint32_t mask = m->slot_count - 1;
    uint32_t s = hash & mask;
    while (m->slots[s] != 0) {
        const ru_map_entry *e = &m->entries[m->slots[s] - 1];
        if (e->key != NULL && e->hash == hash && (int64_t)e->key_bytes == key.n &&
            memcmp(e->key, key.n > 0 ? key.p : "", (size_t)key.n) == 0) {
            return s;
        }
        s = (s + 1) & mask;
    }
    return s;
}

/* Room for one more: drop removed entries, double when needed. */
static bool grow(ru_map *m)
{
    uint32_t cap = m->cap;
    if (m->count >= cap - cap / 4) {
        cap = cap == 0 ? CAP_MIN : cap * 2;
    }
    if (cap > MAP_MAX) {
        return false;
    }
    uint32_t slot_count = cap * 2;
    ru_map_entry *entries = map_alloc(m, (int64_t)cap * (int64_t)sizeof *entries);
    uint32_t *slots = map_alloc(m, (int64_t)slot_count * (int64_t)sizeof *slots);
    if (entries == NULL || slots == NULL) {
        map_free(m, entries);
        map_free(m, slots);
        return false;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->entries[i].key == NULL) {
            continue;
        }
        entries[n] = m->entries[i];
        uint32_t s = entries[n].hash & (slot_count - 1);
        while (slots[s] != 0) {
            s = (s + 1) & (slot_count - 1);
        }
        slots[s] = ++n;
    }
    map_free(m, m->entries);
    map_free(m, m->slots);
    m->entries = entries;
    m->slots = slots;
    m->n = n;
    m->cap = cap;
    m->slot_count = slot_count;
    return true;
}

uint64_t *ru_map_get(const ru_map *m, ru_str key)
{
    if (m->slot_count == 0) {
        return NULL;
    }
    uint32_t s = slot_of(m, key, hash_of(key));
    return m->slots[s] == 0 ? NULL : &m->entries[m->slots[s] - 1].value;
}

uint64_t *ru_map_put(ru_map *m, ru_str key, bool *fresh)
{
    RU_CHECK(key.n >= 0 && key.n < UINT32_MAX);
    uint64_t *old = ru_map_get(m, key);
    if (fresh != NULL) {
        *fresh = old == NULL;
    }
    if (old != NULL) {
        return old;
    }
    uint32_t bound = m->n_max == 0 ? MAP_MAX : m->n_max;
    if (m->count >= bound || (m->n == m->cap && !grow(m))) {
        return NULL;
    }
    char *copy = map_alloc(m, key.n + 1);
    if (copy == NULL) {
        return NULL;
    }
    if (key.n > 0) {
        memcpy(copy, key.p, (size_t)key.n);
    }
    uint32_t hash = hash_of(key);
    uint32_t s = slot_of(m, key, hash);
    m->entries[m->n] = (ru_map_entry){copy, (uint32_t)key.n, hash, 0};
    m->slots[s] = ++m->n;
    m->count++;
    return &m->entries[m->n - 1].value;
}

bool ru_map_remove(ru_map *m, ru_str key)
{
    if (m->slot_count == 0) {
        return false;
    }
    uint32_t s = slot_of(m, key, hash_of(key));
    if (m->slots[s] == 0) {
        return false;
    }
    /* The slot stays taken by the removed entry, so that probing still passes over it. */
    ru_map_entry *e = &m->entries[m->slots[s] - 1];
    map_free(m, e->key);
    e->key = NULL;
    m->count--;
    return true;
}

const ru_map_entry *ru_map_next(const ru_map *m, const ru_map_entry *e)
{
    uint32_t i = e == NULL ? 0 : (uint32_t)(e - m->entries) + 1;
    while (i < m->n && m->entries[i].key == NULL) {
        i++;
    }
    return i < m->n ? &m->entries[i] : NULL;
}

uint64_t *ru_map_put_c(ru_map *m, const char *key, bool *fresh)
{
    return ru_map_put(m, ru_str_c(key), fresh);
}

uint64_t *ru_map_get_c(const ru_map *m, const char *key)
{
    return ru_map_get(m, ru_str_c(key));
}

uint64_t *ru_map_put_u64(ru_map *m, uint64_t key, bool *fresh)
{
    return ru_map_put(m, ru_str_n((const char *)&key, sizeof key), fresh);
}

uint64_t *ru_map_get_u64(const ru_map *m, uint64_t key)
{
    return ru_map_get(m, ru_str_n((const char *)&key, sizeof key));
}
