/* Binary heap of (key, value), smallest key first; equal keys leave in the order they came. Lives
 * in the caller's array and never grows: events, ready nodes, queues.
 *
 * Cost: O(log n) push and pop, 24 bytes an item. Thread: one at a time. */
#ifndef RU_BASE_HEAP_H
#define RU_BASE_HEAP_H

#include <stddef.h>

#include "base/status.h"

typedef struct ru_heap_item {
    int64_t key;
    uint64_t order; /* number of the push: breaks ties */
    uint64_t value; /* the caller's: an index, or a pointer through uintptr_t */
} ru_heap_item;

typedef struct ru_heap {
    ru_heap_item *items; /* [max] view */
    uint32_t n, max;
    uint64_t pushes;
} ru_heap;

static inline void ru_heap_init(ru_heap *h, ru_heap_item *items, uint32_t max)
{
    *h = (ru_heap){.items = items, .max = max};
}

static inline bool rui_heap_before(const ru_heap_item *a, const ru_heap_item *b)
{
    return a->key != b->key ? a->key < b->key : a->order < b->order;
}

/* Errors: RU_E_LIMIT when `max` items are in it. */
static inline ru_status ru_heap_push(ru_heap *h, int64_t key, uint64_t value)
{
    if (h->n == h->max) {
        return RU_E_LIMIT;
    }
    ru_heap_item item = {key, h->pushes++, value};
    uint32_t at = h->n++;
    while (at > 0 && rui_heap_before(&item, &h->items[(at - 1) / 2])) {
        h->items[at] = h->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    h->items[at] = item;
    return RU_OK;
}

/* The first item, or NULL; stays in the heap. */
static inline const ru_heap_item *ru_heap_peek(const ru_heap *h)
{
    return h->n > 0 ? &h->items[0] : NULL;
}

/* Take the first item out into *out; false when the heap is empty. */
static inline bool ru_heap_pop(ru_heap *h, ru_heap_item *out)
{
    if (h->n == 0) {
        return false;
    }
    *out = h->items[0];
    ru_heap_item last = h->items[--h->n];
    uint32_t at = 0;
    for (;;) {
        uint64_t child = (uint64_t)at * 2 + 1;
        if (child >= h->n) {
            break;
        }
        if (child + 1 < h->n && rui_heap_before(&h->items[child + 1], &h->items[child])) {
            child++;
        }
        if (!rui_heap_before(&h->items[child], &last)) {
            break;
        }
        h->items[at] = h->items[child];
        at = (uint32_t)child;
    }
    if (h->n > 0) {
        h->items[at] = last;
    }
    return true;
}

#endif
