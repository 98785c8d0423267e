/* Find a record by its name: a hash table of chains through the records themselves, each of which
 * begins with a rui_name. Fixed memory, of which few records touch little: the table doubles when
 * it holds more than one record a head. Order of anything never depends on it.
 *
 * Thread: loop only. */
#ifndef RU_COMM_CHAN_NAMES_H
#define RU_COMM_CHAN_NAMES_H

#include <stddef.h>

#include "base/arena.h"
#include "comm/chan/pheap.h"

typedef struct rui_name {
    uint64_t stream;
    uint32_t iter, peer;
    uint32_t chain; /* next record of the same hash */
} rui_name;

enum { RUI_NAMES_FIRST = 64 };

/* Stays where it is once it was initialised. */
typedef struct rui_names {
    uint32_t *heads; /* [mask + 1] `first`, then `more` */
    uint32_t mask, mask_max, n;
    uint8_t *records; /* view: record i begins at i * stride */
    int64_t stride;
    uint32_t *more; /* [mask_max + 1] */
    /* Beside what its owner looks at anyway: no page of their own. */
    uint32_t first[RUI_NAMES_FIRST];
} rui_names;

static inline rui_name *rui_names_at(const rui_names *t, uint32_t i)
{
    return (rui_name *)(void *)(t->records + (int64_t)i * t->stride);
}

/* False: no memory. */
static inline bool rui_names_init(rui_names *t, ru_arena *a, void *records, int64_t stride,
                                  uint32_t max)
{
    uint32_t n = RUI_NAMES_FIRST;
    while (n < max && n < 1u << 30) {
        n *= 2;
    }
    *t = (rui_names){
        .mask = RUI_NAMES_FIRST - 1, .mask_max = n - 1, .records = records, .stride = stride};
    t->heads = t->first;
    for (uint32_t i = 0; i < RUI_NAMES_FIRST; i++) {
        t->first[i] = RUI_NONE;
    }
    t->more = ru_arena_alloc(a, (int64_t)n * 4, 64);
    return t->more != NULL;
}

static inline uint32_t *rui_names_head(const rui_names *t, uint64_t stream, uint32_t iter,
                                       uint32_t peer)
{
    uint64_t h = stream ^ ((uint64_t)iter << 32 | peer) * 0x9e3779b97f4a7c15ull;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93ull;
    h ^= h >> 32;
    return &t->heads[(uint32_t)h & t->mask];
}

static inline uint32_t rui_names_find(const rui_names *t, uint64_t stream, uint32_t iter,
                                      uint32_t peer)
{
    uint32_t i = *rui_names_head(t, stream, iter, peer);
    while (i != RUI_NONE) {
        const rui_name *r = rui_names_at(t, i);
        if (r->stream == stream && r->iter == iter && r->peer == peer) {
            return i;
        }
        i = r->chain;
    }
    return RUI_NONE;
}

/* Twice the heads: each chain parts in two. */
static inline void rui_names_double(rui_names *t)
{
    uint32_t old = t->mask + 1;
    const uint32_t *heads = t->heads;
    t->mask = 2 * t->mask + 1;
    t->heads = t->more;
    for (uint32_t h = 0; h < old; h++) {
        uint32_t next = heads[h];
        t->heads[h] = t->heads[h + old] = RUI_NONE;
        for (uint32_t i = next; i != RUI_NONE; i = next) {
            rui_name *r = rui_names_at(t, i);
            uint32_t *head = rui_names_head(t, r->stream, r->iter, r->peer);
            next = r->chain;
            r->chain = *head;
            *head = i;
        }
    }
}

/* Record i, its name filled in, can be found from now on. */
static inline void rui_names_add(rui_names *t, uint32_t i)
{
    if (t->n++ > t->mask && t->mask < t->mask_max) {
        rui_names_double(t);
    }
    rui_name *r = rui_names_at(t, i);
    uint32_t *head = rui_names_head(t, r->stream, r->iter, r->peer);
    r->chain = *head;
    *head = i;
}

static inline void rui_names_remove(rui_names *t, uint32_t i)
{
    t->n--;
    const rui_name *r = rui_names_at(t, i);
    uint32_t *at = rui_names_head(t, r->stream, r->iter, r->peer);
    while (*at != i) {
        RU_CHECK(*at != RUI_NONE);
        at = &rui_names_at(t, *at)->chain;
    }
    *at = r->chain;
}

#endif
