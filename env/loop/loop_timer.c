/* Timers of the loop: binary heap with known places, so that a timer can be moved and removed. */
#include <stdlib.h>
#include <string.h>

#include "env/loop/loop_impl.h"

static bool before(const rui_timers *t, uint32_t a, uint32_t b)
{
    const rui_timer *x = &t->table[a], *y = &t->table[b];
    return x->at_ns != y->at_ns ? x->at_ns < y->at_ns : x->order < y->order;
}

static void put(rui_timers *t, uint32_t place, uint32_t index)
{
    t->heap[place] = index;
    t->table[index].place = place;
}

static void sift(rui_timers *t, uint32_t place)
{
    uint32_t index = t->heap[place];
    while (place > 0 && before(t, index, t->heap[(place - 1) / 2])) {
        put(t, place, t->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (;;) {
        uint32_t child = place * 2 + 1;
        if (child >= t->n) {
            break;
        }
        if (child + 1 < t->n && before(t, t->heap[child + 1], t->heap[child])) {
            child++;
        }
        if (!before(t, t->heap[child], index)) {
            break;
        }
        put(t, place, t->heap[child]);
        place = child;
    }
    put(t, place, index);
}

static uint32_t *bucket_of(const rui_timers *t, ru_loop_timer_fn fn, const void *self,
                           uint32_t what)
{
    uint64_t h = (uint64_t)(uintptr_t)self * 0x9E3779B97F4A7C15u;
    h ^= ((uint64_t)(uintptr_t)fn + what) * 0xC2B2AE3D27D4EB4Fu;
    return &t->buckets[(h >> 32) & (t->cap - 1)];
}

/* The link (bucket or chain) that leads to the timer, or to 0. */
static uint32_t *find(const rui_timers *t, ru_loop_timer_fn fn, const void *self, uint32_t what)
{
    uint32_t *link = bucket_of(t, fn, self, what);
    while (*link != 0) {
        rui_timer *x = &t->table[*link - 1];
        if (x->fn == fn && x->self == self && x->what == what) {
            break;
        }
        link = &x->chain;
    }
    return link;
}

bool rui_timers_grow(rui_timers *t)
{
    uint32_t cap = t->cap == 0 ? 64 : t->cap * 2;
    RU_CHECK(cap <= 1 << 24);
    rui_timer *table = realloc(t->table, cap * sizeof *table);
    t->table = table != NULL ? table : t->table;
    uint32_t *heap = realloc(t->heap, cap * sizeof *heap);
    t->heap = heap != NULL ? heap : t->heap;
    uint32_t *buckets = calloc(cap, sizeof *buckets);
    if (table == NULL || heap == NULL || buckets == NULL) {
        free(buckets);
        return false;
    }
    free(t->buckets);
    t->buckets = buckets;
    t->cap = cap;
    for (uint32_t k = 0; k < t->n; k++) { /* all are in use, else there was no need to grow */
        rui_timer *x = &table[heap[k]];
        uint32_t *link = bucket_of(t, x->fn, x->self, x->what);
        x->chain = *link;
        *link = heap[k] + 1;
    }
    return true;
}

void rui_timers_set(rui_timers *t, ru_loop_timer_fn fn, void *self, uint32_t what, ru_time at)
{
    if (t->free == 0 && t->used == t->cap) {
        bool grown = rui_timers_grow(t);
        RU_CHECK(grown);
    }
    uint32_t *link = find(t, fn, self, what);
    uint32_t index;
    if (*link != 0) {
        index = *link - 1;
        t->table[index].at_ns = at.ns;
        t->table[index].order = t->sets++;
    } else {
        index = t->free != 0 ? t->free - 1 : t->used++;
        t->free = t->free != 0 ? t->table[index].chain : 0;
        t->table[index] = (rui_timer){fn, self, what, 0, t->n, at.ns, t->sets++};
        *link = index + 1;
        t->heap[t->n++] = index;
    }
    sift(t, t->table[index].place);
}

static void drop(rui_timers *t, uint32_t *link)
{
    uint32_t index = *link - 1;
    rui_timer *x = &t->table[index];
    *link = x->chain;
    x->chain = t->free;
    t->free = index + 1;
    uint32_t place = x->place, last = t->heap[--t->n];
    if (last != index) {
        put(t, place, last);
        sift(t, place);
    }
}

void rui_timers_off(rui_timers *t, ru_loop_timer_fn fn, void *self, uint32_t what)
{
    if (t->cap == 0) {
        return;
    }
    uint32_t *link = find(t, fn, self, what);
    if (*link != 0) {
        drop(t, link);
    }
}

bool rui_timers_first(const rui_timers *t, int64_t *at_ns)
{
    if (t->n == 0) {
        return false;
    }
    *at_ns = t->table[t->heap[0]].at_ns;
    return true;
}

bool rui_timers_pop(rui_timers *t, int64_t now_ns, uint64_t limit, rui_timer *out)
{
    if (t->n == 0) {
        return false;
    }
    const rui_timer *x = &t->table[t->heap[0]];
    if (x->at_ns > now_ns || x->order >= limit) {
        return false;
    }
    *out = *x;
    drop(t, find(t, out->fn, out->self, out->what));
    return true;
}

void rui_timers_fini(rui_timers *t)
{
    free(t->table);
    free(t->heap);
    free(t->buckets);
    *t = (rui_timers){0};
}
