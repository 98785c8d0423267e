/* Rings. Indexes run on for ever and are masked at use.
 *
 * spsc: release stores of tail (writer) and head (reader); each side keeps its last look at the
 * other's index, so that a push touches the other's cache line only when the ring seems full.
 *
 * mpsc: every slot has a turn number. Place p may be written when turn == p, read when turn == p+1,
 * and is handed back with turn = p + count. Writers race for the tail with compare-and-swap. The
 * place is owned from there on, so nobody overtakes: order of leaving = order of taking. Source:
 * vyukov-2010 (bounded queue), reader side simplified to one thread. */
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

bool ru_spsc_push(ru_spsc *r, const void *elem)
{
    void *place = ru_spsc_place(r);
    if (place == NULL) {
        return false;
    }
    memcpy(place, elem, r->elem_bytes);
    ru_spsc_put(r);
    return true;
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

static uint32_t mpsc_slot_bytes(uint32_t elem_bytes)
{
    return (elem_bytes + 7) / 8 * 8 + (uint32_t)sizeof(uint64_t);
}

int64_t ru_mpsc_bytes(uint32_t count, uint32_t elem_bytes)
{
    return (int64_t)count * mpsc_slot_bytes(elem_bytes);
}

static uint64_t *turn_of(const ru_mpsc *r, uint64_t place)
{
    return (uint64_t *)(void *)(r->slots + (place & (r->count - 1)) * r->slot_bytes);
}

void ru_mpsc_init(ru_mpsc *r, void *memory, uint32_t count, uint32_t elem_bytes)
{
    RU_CHECK(count >= 2 && (count & (count - 1)) == 0);
    RU_CHECK(elem_bytes > 0 && elem_bytes < UINT32_MAX - 16);
    RU_CHECK((uintptr_t)memory % 8 == 0);
    memset(r, 0, sizeof *r);
    r->slots = memory;
    r->elem_bytes = elem_bytes;
    r->slot_bytes = mpsc_slot_bytes(elem_bytes);
    r->count = count;
    for (uint32_t i = 0; i < count; i++) {
        *turn_of(r, i) = i;
    }
}

bool ru_mpsc_push(ru_mpsc *r, const void *elem)
{
    uint64_t place = __atomic_load_n(&r->tail, __ATOMIC_RELAXED);
    for (;;) {
        uint64_t turn = load(turn_of(r, place));
        if (turn == place) {
            if (__atomic_compare_exchange_n(&r->tail, &place, place + 1, true, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED)) {
                break;
            }
        } else if (turn < place) {
            return false; /* the reader has not given this place back: full */
        } else {
            place = __atomic_load_n(&r->tail, __ATOMIC_RELAXED);
        }
    }
    uint64_t *turn = turn_of(r, place);
    memcpy(turn + 1, elem, r->elem_bytes);
    store(turn, place + 1);
    return true;
}

bool ru_mpsc_pop(ru_mpsc *r, void *into)
{
    uint64_t *turn = turn_of(r, r->head);
    if (load(turn) != r->head + 1) {
        return false;
    }
    memcpy(into, turn + 1, r->elem_bytes);
    store(turn, r->head + r->count);
    r->head++;
    return true;
}
