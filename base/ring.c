/* Rings. Indexes run on for ever and are masked at use.
 *
 * spsc: release stores of tail (writer) and head (reader); each side keeps its last look at the
 * other's index, so that a push touches the other's cache line only when the ring seems full. */
#include "base/ring.h"

#include <string.h>

static uint64_t load(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void store(uint64_t *p, uint64_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

void ru_spsc_init(ru_spsc *r, void *slots, uint32_t count, uint32_t elem_bytes)
{
    RU_CHECK(count > 0 && (count & (count - 1)) == 0);
    RU_CHECK(elem_bytes > 0);
    memset(r, 0, sizeof *r);
    r->slots = slots;
    r->elem_bytes = elem_bytes;
    r->mask = count - 1;
}

void *ru_spsc_place(ru_spsc *r)
{
    uint64_t tail = r->tail; /* written by this thread only */
    if (tail - r->head_seen > r->mask) {
        r->head_seen = load(&r->head);
        if (tail - r->head_seen > r->mask) {
            return NULL;
        }
    }
    return r->slots + (tail & r->mask) * r->elem_bytes;
}

bool ru_spsc_room(ru_spsc *r, uint32_t n)
{
    uint64_t end = r->tail + n;
    if (end - r->head_seen > (uint64_t)r->mask + 1) {
        r->head_seen = load(&r->head);
    }
    return end - r->head_seen <= (uint64_t)r->mask + 1;
}

void ru_spsc_put(ru_spsc *r)
{
    store(&r->tail, r->tail + 1);
}

void ru_spsc_lose(ru_spsc *r)
{
    __atomic_store_n(&r->lost, r->lost + 1, __ATOMIC_RELAXED);
}

uint64_t ru_spsc_used(const ru_spsc *r)
{
    uint64_t head = load(&r->head);
    return load(&r->tail) - head;
}

uint64_t ru_spsc_lost(const ru_spsc *r)
{
    return __atomic_load_n(&r->lost, __ATOMIC_RELAXED);
}

const void *ru_spsc_peek(ru_spsc *r, uint32_t n_max, uint32_t *n)
{
    uint64_t head = r->head;
    if (r->tail_seen - head < n_max) {
        r->tail_seen = load(&r->tail);
    }
    uint64_t have = r->tail_seen - head;
    uint64_t to_end = (uint64_t)r->mask + 1 - (head & r->mask);
    have = have > to_end ? to_end : have;
    *n = have > n_max ? n_max : (uint32_t)have;
    return *n == 0 ? NULL : r->slots + (head & r->mask) * r->elem_bytes;
}

void ru_spsc_drop(ru_spsc *r, uint32_t n)
{
    RU_CHECK(r->tail_seen - r->head >= n);
    store(&r->head, r->head + n);
}

bool ru_spsc_pop(ru_spsc *r, void *into)
{
    uint32_t n;
    const void *p = ru_spsc_peek(r, 1, &n);
    if (n == 0) {
        return false;
    }
    memcpy(into, p, r->elem_bytes);
    ru_spsc_drop(r, 1);
    return true;
}
