/* Rings between threads: fixed-size elements in the caller's memory, never blocking, never growing.
 *
 *   ru_spsc  one thread pushes, one pops; the writer may fill elements in place
 *
 * A full ring answers false: the caller decides to drop, wait or shed. The thread that wants to
 * sleep until something comes uses env/thread.h beside the ring.
 *
 * Thread: as said at each function; init and fini by one thread alone. */
#ifndef RU_BASE_RING_H
#define RU_BASE_RING_H

#include "base/status.h"

typedef struct ru_spsc {
    uint8_t *slots; /* [count * elem_bytes] view */
    uint32_t elem_bytes, mask;
    /* Own cache lines: the writer's, then the reader's. */
    uint64_t tail RU_ALIGNED(64); /* next place to write */
    uint64_t head_seen;           /* writer's last look at head */
    uint64_t lost;                /* elements the writer gave up on */
    uint64_t head RU_ALIGNED(64); /* next place to read */
    uint64_t tail_seen;           /* reader's last look at tail */
} ru_spsc;

/* `slots` holds count elements, count a power of two >= 1. */
void ru_spsc_init(ru_spsc *r, void *slots, uint32_t count, uint32_t elem_bytes);
/* Writer: place for the next element, NULL when full; then ru_spsc_put makes it visible. */
void *ru_spsc_place(ru_spsc *r);
void ru_spsc_put(ru_spsc *r);
/* Writer: is there place for n more? */
bool ru_spsc_room(ru_spsc *r, uint32_t n);
/* Writer: count an element that did not fit. */
void ru_spsc_lose(ru_spsc *r);
/* Any thread: elements waiting, and elements lost so far (both a moment old). */
uint64_t ru_spsc_used(const ru_spsc *r);
uint64_t ru_spsc_lost(const ru_spsc *r);
/* Reader: up to n_max elements in one piece (view until ru_spsc_drop), their number in *n. */
const void *ru_spsc_peek(ru_spsc *r, uint32_t n_max, uint32_t *n);
void ru_spsc_drop(ru_spsc *r, uint32_t n); /* n <= what the last peek gave */
bool ru_spsc_pop(ru_spsc *r, void *into);  /* false when empty */

#endif
