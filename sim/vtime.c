/* Virtual time: a heap of future events.
 *
 * Four children per item: an item is 16 bytes, so the children of one share a cache line. Cancelled
 * events stay in the heap as empty slots until they come up, and the heap is rebuilt without them
 * when they are more than half of it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_impl.h"

enum { SLOT_BITS = 24, REBUILD_MIN = 1024, NEAR_MIN = 64 };

void rui_sim_fail(ru_sim *s, ru_status st, const char *fmt, ...)
{
    if (s->failed != RU_OK) {
        return;
    }
    char text[RU_ERR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    s->failed = ru_err_set(&s->failure, st, "%s", text);
}

void *rui_sim_grow(ru_sim *s, void *at, int64_t old_bytes, int64_t new_bytes)
{
    int64_t bound = s->opt.memory_max_bytes;
    if (bound > 0 && s->memory_bytes + new_bytes - old_bytes > bound) {
        rui_sim_fail(s, RU_E_LIMIT, "the simulator needs more than its %" PRId64 " bytes", bound);
        return NULL;
    }
    void *p = realloc(at, (size_t)new_bytes);
    if (p == NULL) {
        rui_sim_fail(s, RU_E_MEM, "no memory for %" PRId64 " bytes of the simulator", new_bytes);
        return NULL;
    }
    s->memory_bytes += new_bytes - old_bytes;
    return p;
}

static bool before(const rui_sim_item *a, const rui_sim_item *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->key < b->key;
}

static void sift_up(rui_sim_item *heap, uint32_t at, rui_sim_item item)
{
    while (at > 0) {
        uint32_t parent = (at - 1) / 4;
        if (!before(&item, &heap[parent])) {
            break;
        }
        heap[at] = heap[parent];
        at = parent;
    }
    heap[at] = item;
}

static void sift_down(rui_sim_item *heap, uint32_t n, uint32_t at, rui_sim_item item)
{
    for (;;) {
        uint64_t child = (uint64_t)at * 4 + 1;
        if (child >= n) {
            break;
        }
        uint64_t end = child + 4 < n ? child + 4 : n, best = child;
        for (uint64_t k = child + 1; k < end; k++) {
            best = before(&heap[k], &heap[best]) ? k : best;
        }
        if (!before(&heap[best], &item)) {
            break;
        }
        heap[at] = heap[best];
        at = (uint32_t)best;
    }
    heap[at] = item;
}

static bool heap_room(ru_sim *s)
{
    if (s->heap_n < s->heap_cap) {
        return true;
    }
    uint32_t cap = s->heap_cap == 0 ? 256 : s->heap_cap * 2;
    rui_sim_item *heap =
        rui_sim_grow(s, s->heap, s->heap_cap * (int64_t)sizeof *heap, cap * (int64_t)sizeof *heap);
    if (heap == NULL) {
        return false;
    }
    s->heap = heap;
    s->heap_cap = cap;
    return true;
}

static bool slot_room(ru_sim *s)
{
    if (s->slot_free_n > 0 || s->slots_n < s->slots_cap) {
        return true;
    }
    uint32_t cap = s->slots_cap == 0 ? 256 : s->slots_cap * 2;
    if (cap > RUI_SIM_SLOTS_MAX) {
        rui_sim_fail(s, RU_E_LIMIT, "more than %d events wait", RUI_SIM_SLOTS_MAX);
        return false;
    }
    rui_sim_slot *slots = rui_sim_grow(s, s->slots, s->slots_cap * (int64_t)sizeof *slots,
                                       cap * (int64_t)sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    s->slots = slots;
    uint32_t *spare = rui_sim_grow(s, s->slot_free, s->slots_cap * (int64_t)sizeof *spare,
                                   cap * (int64_t)sizeof *spare);
    if (spare == NULL) {
        return false;
    }
    s->slot_free = spare;
    s->slots_cap = cap;
    return true;
}

static void heap_push(ru_sim *s, int64_t at_ns, uint32_t slot)
{
    rui_sim_item item = {at_ns, s->order++ << SLOT_BITS | slot};
    sift_up(s->heap, s->heap_n++, item);
}

static uint32_t slot_of(const rui_sim_item *item)
{
    return (uint32_t)(item->key & (RUI_SIM_SLOTS_MAX - 1));
}

static void slot_release(ru_sim *s, uint32_t slot)
{
    s->slots[slot].fn = NULL;
    s->slots[slot].generation++;
    s->slot_free[s->slot_free_n++] = slot;
}

uint64_t ru_sim_at_node(ru_sim *s, uint32_t node, ru_time at, ru_sim_fn fn, void *self,
                        uint64_t arg)
{
    RU_CHECK(fn != NULL);
    RU_CHECK(at.ns >= s->now_ns);
    if (!heap_room(s) || !slot_room(s)) {
        return UINT64_MAX; /* the run ends with the error */
    }
    uint32_t slot;
    if (s->slot_free_n > 0) {
        slot = s->slot_free[--s->slot_free_n];
    } else {
        slot = s->slots_n++;
        s->slots[slot].generation = 1;
    }
    rui_sim_slot *e = &s->slots[slot];
    e->fn = fn;
    e->self = self;
    e->arg = arg;
    e->node = node;
    heap_push(s, at.ns, slot);
    return (uint64_t)e->generation << 32 | slot;
}

uint64_t ru_sim_at(ru_sim *s, ru_time at, ru_sim_fn fn, void *self, uint64_t arg)
{
    return ru_sim_at_node(s, RUI_SIM_NONE, at, fn, self, arg);
}

static void feed_event(void *self, uint64_t arg)
{
    rui_sim_feed *f = self;
    uint32_t next = (uint32_t)arg + 1;
    if (next < f->n) {
        RU_CHECK(f->at_ns[next] >= f->at_ns[arg]);
        ru_sim_at(f->sim, (ru_time){f->at_ns[next]}, feed_event, f, next);
    }
    f->fn(f->self, arg);
}

void ru_sim_feed(ru_sim *s, const int64_t *at_ns, uint32_t n, ru_sim_fn fn, void *self)
{
    RU_CHECK(fn != NULL);
    rui_sim_feed *f = n > 0 ? rui_sim_grow(s, NULL, 0, (int64_t)sizeof *f) : NULL;
    if (f == NULL) {
        return; /* nothing to feed, or the run ends with the error */
    }
    *f = (rui_sim_feed){s, at_ns, n, fn, self, s->feeds};
    s->feeds = f;
    ru_sim_at(s, (ru_time){at_ns[0]}, feed_event, f, 0);
}

/* Without the cancelled ones; keys order the rest as before. */
static void rebuild(ru_sim *s)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->heap_n; k++) {
        if (s->slots[slot_of(&s->heap[k])].fn != NULL) {
            s->heap[n++] = s->heap[k];
        } else {
            slot_release(s, slot_of(&s->heap[k]));
        }
    }
    s->heap_n = n;
    s->dead = 0;
    for (uint32_t k = n / 4 + 1; n > 1 && k-- > 0;) {
        sift_down(s->heap, n, k, s->heap[k]);
    }
}

void ru_sim_cancel(ru_sim *s, uint64_t handle)
{
    uint32_t slot = (uint32_t)handle, generation = (uint32_t)(handle >> 32);
    if (slot >= s->slots_n || s->slots[slot].generation != generation ||
        s->slots[slot].fn == NULL) {
        return;
    }
    s->slots[slot].fn = NULL;
    s->dead++;
    if (s->dead > REBUILD_MIN && s->dead > s->heap_n / 2) {
        rebuild(s);
    }
}

/* A thousand processes are in no cache: what events touch comes from memory while those before them
 * run. The second in order is a child of the first. */
static void look_ahead(const ru_sim *s)
{
    if (s->nodes_n < NEAR_MIN) {
        return;
    }
    for (uint32_t k = 0; k < 5 && k < s->heap_n; k++) {
        const rui_sim_slot *e = &s->slots[slot_of(&s->heap[k])];
        if (e->fn != NULL) {
            rui_sim_wire_near(s, e->fn, e->arg, k == 0);
        }
    }
    for (uint32_t k = 5; k < 21 && k < s->heap_n; k++) {
        __builtin_prefetch(&s->slots[slot_of(&s->heap[k])]);
    }
}

/* Take the first event out and do it. */
static void one(ru_sim *s)
{
    rui_sim_item item = s->heap[0];
    uint32_t slot = slot_of(&item);
    if (--s->heap_n > 0) {
        sift_down(s->heap, s->heap_n, 0, s->heap[s->heap_n]);
    }
    look_ahead(s);
    rui_sim_slot e = s->slots[slot];
    if (e.fn == NULL) {
        s->dead--;
        slot_release(s, slot);
        return;
    }
    s->now_ns = item.at_ns;
    if (e.node != RUI_SIM_NONE) {
        const rui_sim_node *n = s->nodes[e.node];
        if (!n->alive) {
            slot_release(s, slot);
            return;
        }
        if (n->frozen_until_ns > s->now_ns) {
            heap_push(s, n->frozen_until_ns, slot);
            return;
        }
    }
    slot_release(s, slot);
    s->events++;
    rui_sim_mix(s, (uint64_t)item.at_ns);
    rui_sim_mix(s, item.key >> SLOT_BITS);
    rui_sim_mix(s, e.arg ^ (uint64_t)e.node << 40);
    e.fn(e.self, e.arg);
    rui_sim_serve(s);
    if (s->opt.invariant != NULL && s->failed == RU_OK) {
        s->failed = s->opt.invariant(s->opt.invariant_self, (ru_time){s->now_ns}, &s->failure);
    }
}

ru_status ru_sim_run(ru_sim *s, ru_time until, ru_err *err)
{
    s->stop = false;
    rui_sim_serve(s); /* what was asked for outside events */
    while (s->heap_n > 0 && s->failed == RU_OK && !s->stop && s->heap[0].at_ns <= until.ns) {
        if (s->events >= s->opt.events_max) {
            return RU_FAIL(err, RU_E_LIMIT,
                           "the simulation reached its bound of %" PRId64 " events at %" PRId64
                           " ns",
                           s->opt.events_max, s->now_ns);
        }
        one(s);
    }
    if (s->failed != RU_OK) {
        return RU_FAIL(err, s->failed, "%s", s->failure.text);
    }
    if (!s->stop && until.ns != INT64_MAX && until.ns > s->now_ns) {
        s->now_ns = until.ns;
    }
    return RU_OK;
}

void ru_sim_stop(ru_sim *s)
{
    s->stop = true;
}

ru_time ru_sim_now(const ru_sim *s)
{
    return (ru_time){s->now_ns};
}

uint64_t ru_sim_hash(const ru_sim *s)
{
    return s->hash;
}

int64_t ru_sim_events(const ru_sim *s)
{
    return s->events;
}

int64_t ru_sim_memory_bytes(const ru_sim *s)
{
    return s->memory_bytes;
}

ru_rng *ru_sim_rng(ru_sim *s)
{
    return &s->rng;
}

ru_status ru_sim_open(const ru_sim_options *opt, ru_sim **out, ru_err *err)
{
    ru_sim *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a simulator");
    }
    s->opt = *opt;
    s->opt.nodes_max = opt->nodes_max > 0 ? opt->nodes_max : 4096;
    s->opt.events_max = opt->events_max > 0 ? opt->events_max : INT64_C(1000000000000);
    s->rng = ru_rng_from(opt->seed, ru_rng_label("sim"));
    s->rng_wire = ru_rng_split(&s->rng, ru_rng_label("wire"));
    s->hash = opt->seed;
    s->now_ns = 1; /* instant 0 means "none" in many places */
    s->conn_free_first = s->conn_free_last = s->frame_free = RUI_SIM_NONE;
    s->dirty_first = s->dirty_last = RUI_SIM_NONE;
    s->nodes = rui_sim_grow(s, NULL, 0, s->opt.nodes_max * (int64_t)sizeof(rui_sim_node *));
    s->users = rui_sim_grow(s, NULL, 0, s->opt.nodes_max * (int64_t)sizeof(void *));
    if (s->nodes == NULL || s->users == NULL) {
        free(s->nodes);
        free(s->users);
        free(s);
        return RU_FAIL(err, RU_E_MEM, "no memory for %u simulated nodes", opt->nodes_max);
    }
    *out = s;
    return RU_OK;
}

void ru_sim_close(ru_sim *s)
{
    if (s == NULL) {
        return;
    }
    for (uint32_t k = 0; k < s->frames_n; k++) {
        free(rui_sim_frame_at(s, k)->spans);
        free(rui_sim_frame_at(s, k)->payload);
        free(rui_sim_frame_at(s, k)->rx);
    }
    for (uint32_t k = 0; k * RUI_SIM_BLOCK < s->frames_n; k++) {
        free(s->frame_blocks[k]);
    }
    for (uint32_t k = 0; k * RUI_SIM_BLOCK < s->conns_n; k++) {
        free(s->conn_blocks[k]);
    }
    for (uint32_t k = 0; k < s->nodes_n; k++) {
        free(s->nodes[k]->budget);
        free(s->nodes[k]);
    }
    rui_sim_devs_free(s);
    while (s->feeds != NULL) {
        rui_sim_feed *f = s->feeds;
        s->feeds = f->next;
        free(f);
    }
    ru_map_fini(&s->addresses);
    free(s->frame_blocks);
    free(s->conn_blocks);
    free(s->nodes);
    free(s->users);
    free(s->cuts);
    free(s->heap);
    free(s->slots);
    free(s->slot_free);
    free(s);
}
