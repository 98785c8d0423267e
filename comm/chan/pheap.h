/* Pairing heap of indexes, intrusive: nodes live in the caller's array, so that any number of heaps
 * share one array (a stream is in the heap of one line only) and nothing is ever allocated.
 *
 *   root -> child -> next sibling -> next sibling        prev: left sibling, or the parent of a
 *             |                                          first child
 *           child ...
 *
 * Cost: push O(1), take and remove O(log n) amortised. Source: fredman-1986. Thread: loop only. */
#ifndef RU_COMM_CHAN_PHEAP_H
#define RU_COMM_CHAN_PHEAP_H

#include "base/status.h"

#define RUI_NONE UINT32_MAX

typedef struct rui_pnode {
    uint32_t child, next, prev; /* RUI_NONE: none */
} rui_pnode;

typedef struct rui_pheap {
    rui_pnode *nodes; /* [max] view */
    bool (*before)(const void *self, uint32_t a, uint32_t b);
    const void *self;
} rui_pheap;

static inline uint32_t rui_pheap_meld(const rui_pheap *h, uint32_t a, uint32_t b)
{
    if (a == RUI_NONE || b == RUI_NONE) {
        return a == RUI_NONE ? b : a;
    }
    if (h->before(h->self, b, a)) {
        uint32_t swap = a;
        a = b;
        b = swap;
    }
    rui_pnode *top = &h->nodes[a], *low = &h->nodes[b];
    low->next = top->child;
    low->prev = a;
    if (top->child != RUI_NONE) {
        h->nodes[top->child].prev = b;
    }
    top->child = b;
    return a;
}

static inline void rui_pheap_push(const rui_pheap *h, uint32_t *root, uint32_t i)
{
    h->nodes[i] = (rui_pnode){RUI_NONE, RUI_NONE, RUI_NONE};
    *root = rui_pheap_meld(h, *root, i);
    h->nodes[*root].next = h->nodes[*root].prev = RUI_NONE;
}

/* Meld a list of siblings in pairs from the left, then the pairs from the right. */
static inline uint32_t rui_pheap_join(const rui_pheap *h, uint32_t first)
{
    uint32_t pairs = RUI_NONE; /* stack through `next` */
    while (first != RUI_NONE) {
        uint32_t a = first, b = h->nodes[a].next;
        first = b != RUI_NONE ? h->nodes[b].next : RUI_NONE;
        h->nodes[a].next = h->nodes[a].prev = RUI_NONE;
        if (b != RUI_NONE) {
            h->nodes[b].next = h->nodes[b].prev = RUI_NONE;
        }
        uint32_t one = rui_pheap_meld(h, a, b);
        h->nodes[one].next = pairs;
        pairs = one;
    }
    uint32_t root = RUI_NONE;
    while (pairs != RUI_NONE) {
        uint32_t next = h->nodes[pairs].next;
        h->nodes[pairs].next = RUI_NONE;
        root = rui_pheap_meld(h, root, pairs);
        pairs = next;
    }
    if (root != RUI_NONE) {
        h->nodes[root].next = h->nodes[root].prev = RUI_NONE;
    }
    return root;
}

/* Take i, which is in the heap, out of it. */
static inline void rui_pheap_remove(const rui_pheap *h, uint32_t *root, uint32_t i)
{
    uint32_t rest = rui_pheap_join(h, h->nodes[i].child);
    h->nodes[i].child = RUI_NONE;
    if (*root == i) {
        *root = rest;
        return;
    }
    uint32_t prev = h->nodes[i].prev, next = h->nodes[i].next;
    if (h->nodes[prev].child == i) {
        h->nodes[prev].child = next;
    } else {
        h->nodes[prev].next = next;
    }
    if (next != RUI_NONE) {
        h->nodes[next].prev = prev;
    }
    *root = rui_pheap_meld(h, *root, rest);
    h->nodes[*root].next = h->nodes[*root].prev = RUI_NONE;
}

#endif
