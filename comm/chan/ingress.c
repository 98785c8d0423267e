#include "comm/chan/ingress.h"

#include <string.h>

#include "base/crc32c.h"
#include "comm/chan/pool.h"

enum { RULES_MAX = 32 };

/* stream & mask lies in low..high. */
typedef struct rule {
    uint64_t mask, low, high;
} rule;

typedef struct peer_slots {
    uint32_t first;                 /* of all its slots */
    uint32_t oldest, newest, hints; /* of its hints */
} peer_slots;

struct rui_ingress {
    rui_slot *slots; /* [max] */
    uint32_t max, used, free, posted, posted_max;
    uint32_t peers_max, hints, hints_max; /* hints: STOPPED, LOST and THROWN */
    peer_slots *peers;                    /* [peers_max] */
    rui_names names;
    rule rules[RULES_MAX];
    uint32_t n_rules, rule_at;
    rui_pheap wants;
    uint32_t wants_root;
    uint64_t arrivals;
    int64_t outstanding_bytes; /* granted, not received */
};

static bool wants_before(const void *self, uint32_t a, uint32_t b)
{
    const rui_ingress *g = self;
    const rui_slot *x = &g->slots[a], *y = &g->slots[b];
    if (x->class != y->class) {
        return x->class < y->class;
    }
    int64_t dx = x->deadline.ns != 0 ? x->deadline.ns : INT64_MAX;
    int64_t dy = y->deadline.ns != 0 ? y->deadline.ns : INT64_MAX;
    if (dx != dy) {
        return dx < dy;
    }
    return x->rank != y->rank ? x->rank < y->rank : x->arrival < y->arrival;
}

ru_status rui_ingress_open(uint32_t slots_max, uint32_t peers_max, uint32_t early_max,
                           ru_arena *arena, rui_ingress **out, ru_err *err)
{
    rui_ingress *g = RU_NEW(arena, rui_ingress, 1);
    if (g == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the slots of a channel");
    }
    g->posted_max = slots_max;
    g->peers_max = peers_max;
    g->hints_max = slots_max + 256 + peers_max;
    g->max = slots_max + g->hints_max + peers_max * early_max;
    g->slots = ru_arena_alloc(arena, (int64_t)g->max * (int64_t)sizeof *g->slots, 64);
    g->peers = RU_NEW(arena, peer_slots, peers_max);
    rui_pnode *nodes = ru_arena_alloc(arena, (int64_t)g->max * (int64_t)sizeof *nodes, 64);
    if (g->slots == NULL || g->peers == NULL || nodes == NULL ||
        !rui_names_init(&g->names, arena, g->slots, sizeof *g->slots, g->max)) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u slots of a channel", slots_max);
    }
    for (uint32_t i = 0; i < peers_max; i++) {
        g->peers[i] = (peer_slots){RUI_NONE, RUI_NONE, RUI_NONE, 0};
    }
    g->wants = (rui_pheap){nodes, wants_before, g};
    g->free = g->wants_root = RUI_NONE;
    *out = g;
    return RU_OK;
}

rui_slot *rui_ingress_slot(rui_ingress *g, uint32_t s)
{
    RU_CHECK(s < g->used);
    return &g->slots[s];
}

uint32_t rui_ingress_used(const rui_ingress *g)
{
    return g->used;
}

uint32_t rui_ingress_find(const rui_ingress *g, uint32_t peer, uint64_t stream, uint32_t iter)
{
    return rui_names_find(&g->names, stream, iter, peer);
}

uint32_t rui_ingress_first(const rui_ingress *g, uint32_t peer)
{
    return g->peers[peer].first;
}

bool rui_ingress_full(const rui_ingress *g)
{
    return g->posted == g->posted_max;
}

static bool is_hint(rui_slot_state state)
{
    return state == RUI_SLOT_STOPPED || state == RUI_SLOT_LOST || state == RUI_SLOT_THROWN;
}

static void leave_state(rui_ingress *g, uint32_t i)
{
    rui_slot *s = &g->slots[i];
    g->posted -= s->state == RUI_SLOT_POSTED;
    if (s->wants) {
        rui_pheap_remove(&g->wants, &g->wants_root, i);
        s->wants = false;
    }
    if (s->granted_bytes > s->got_bytes) {
        g->outstanding_bytes -= s->granted_bytes - s->got_bytes;
    }
    s->granted_bytes = 0;
    if (is_hint(s->state)) {
        peer_slots *p = &g->peers[s->name.peer];
        uint32_t *from_older = s->older != RUI_NONE ? &g->slots[s->older].newer : &p->oldest;
        uint32_t *from_newer = s->newer != RUI_NONE ? &g->slots[s->newer].older : &p->newest;
        *from_older = s->newer;
        *from_newer = s->older;
        g->hints--;
        p->hints--;
    }
}

static void enter_state(rui_ingress *g, uint32_t i, rui_slot_state state)
{
    rui_slot *s = &g->slots[i];
    s->state = state;
    g->posted += state == RUI_SLOT_POSTED;
    if (is_hint(state)) {
        peer_slots *p = &g->peers[s->name.peer];
        s->older = p->newest;
        s->newer = RUI_NONE;
        *(p->newest != RUI_NONE ? &g->slots[p->newest].newer : &p->oldest) = i;
        p->newest = i;
        g->hints++;
        p->hints++;
        RU_CHECK(g->hints <= g->hints_max);
    }
}

void rui_ingress_free(rui_ingress *g, uint32_t i)
{
    rui_slot *s = &g->slots[i];
    RU_CHECK(i < g->used && s->state != RUI_SLOT_FREE);
    leave_state(g, i);
    rui_names_remove(&g->names, i);
    *(s->prev != RUI_NONE ? &g->slots[s->prev].next : &g->peers[s->name.peer].first) = s->next;
    if (s->next != RUI_NONE) {
        g->slots[s->next].prev = s->prev;
    }
    s->state = RUI_SLOT_FREE;
    s->gen++;
    s->next = g->free;
    g->free = i;
}

/* A further hint of a peer: its oldest give way when it holds its share. One of each peer is always
 * allowed, so that the sum stays below hints_max. */
static void hint_room(rui_ingress *g, uint32_t peer)
{
    const peer_slots *p = &g->peers[peer];
    while (p->hints > 0 &&
           !rui_share(p->hints, 1, (int64_t)g->hints_max - g->peers_max - g->hints)) {
        rui_ingress_free(g, p->oldest);
    }
}

void rui_ingress_state(rui_ingress *g, uint32_t i, rui_slot_state state)
{
    leave_state(g, i);
    if (is_hint(state)) {
        hint_room(g, g->slots[i].name.peer);
    }
    enter_state(g, i, state);
}

uint32_t rui_ingress_new(rui_ingress *g, uint32_t peer, uint64_t stream, uint32_t iter,
                         rui_slot_state state)
{
    if (is_hint(state)) {
        hint_room(g, peer);
    }
    uint32_t i = g->free, gen = 1;
    if (i != RUI_NONE) {
        g->free = g->slots[i].next;
        gen = g->slots[i].gen;
    } else if (g->used < g->max) {
        i = g->used++;
    } else {
        return RUI_NONE;
    }
    rui_slot *s = &g->slots[i];
    *s = (rui_slot){.name = {stream, iter, peer, RUI_NONE}, .gen = gen, .block = RUI_NONE};
    s->prev = RUI_NONE;
    s->next = g->peers[peer].first;
    if (s->next != RUI_NONE) {
        g->slots[s->next].prev = i;
    }
    g->peers[peer].first = i;
    rui_names_add(&g->names, i);
    enter_state(g, i, state);
    return i;
}

/* -- bytes ---------------------------------------------------------------------------------------
 */

ru_status rui_slot_check(const rui_slot *s, int64_t offset, int64_t len)
{
    if (len <= 0 || offset < 0 || offset > s->total_bytes - len) {
        return RU_E_PEER;
    }
    bool joins = false;
    for (uint32_t i = 0; i < s->n_held; i++) {
        const rui_range *r = &s->held[i];
        if (offset < r->to && r->from < offset + len) {
            return RU_E_PEER;
        }
        joins = joins || offset == r->to || offset + len == r->from;
    }
    return joins || s->n_held < RUI_HELD_MAX ? RU_OK : RU_E_PEER;
}

/* Move the cursor to the span that holds `offset`. */
static void seek(rui_slot *s, int64_t offset)
{
    if (offset < s->at_base) {
        s->at_span = 0;
        s->at_base = 0;
    }
    while (s->at_span < s->n_spans && offset >= s->at_base + s->spans[s->at_span].size_bytes) {
        s->at_base += s->spans[s->at_span++].size_bytes;
    }
    s->at = offset;
}

int64_t rui_slot_place(rui_slot *s, int64_t offset, int64_t len, ru_link_rx *rx)
{
    RU_CHECK(offset >= 0 && offset <= s->total_bytes - len);
    seek(s, offset);
    uint32_t span = s->at_span;
    int64_t inside = offset - s->at_base, done = 0;
    rx->n_spans = 0;
    while (done < len && rx->n_spans < RU_LINK_SPANS_MAX) {
        int64_t n = s->spans[span].size_bytes - inside;
        n = n < len - done ? n : len - done;
        if (n > 0) {
            uint8_t *data = s->spans[span].data;
            rx->spans[rx->n_spans++] = (ru_span){data != NULL ? data + inside : NULL, n};
        }
        done += n;
        span++;
        inside = 0;
    }
    return done;
}

uint32_t rui_slot_crc(rui_slot *s, uint32_t crc, int64_t offset, int64_t len)
{
    ru_link_rx rx;
    for (int64_t done = 0; done < len;) {
        done += rui_slot_place(s, offset + done, len - done, &rx);
        for (uint32_t i = 0; i < rx.n_spans; i++) {
            if (rx.spans[i].data != NULL) {
                crc = ru_crc32c(crc, rx.spans[i].data, rx.spans[i].size_bytes);
            }
        }
    }
    return crc;
}

bool rui_slot_commit(rui_slot *s, int64_t offset, int64_t len)
{
    RU_CHECK(rui_slot_check(s, offset, len) == RU_OK);
    rui_range add = {offset, offset + len};
    uint32_t n = 0, at = 0;
    for (uint32_t i = 0; i < s->n_held; i++) {
        rui_range r = s->held[i];
        if (r.to == add.from) {
            add.from = r.from;
        } else if (r.from == add.to) {
            add.to = r.to;
        } else {
            at += r.to < add.from;
            s->held[n++] = r;
        }
    }
    memmove(&s->held[at + 1], &s->held[at], (n - at) * sizeof s->held[0]);
    s->held[at] = add;
    s->n_held = n + 1;
    s->got_bytes += len;
    return s->got_bytes == s->total_bytes;
}

/* -- names that nobody wants any more ------------------------------------------------------------
 */

/* Epochs are numbered one after the other: a rule that continues another widens it. */
void rui_ingress_throw(rui_ingress *g, uint64_t mask, uint64_t value)
{
    uint64_t step = mask & (~mask + 1); /* lowest bit */
    for (uint32_t i = 0; i < g->n_rules; i++) {
        rule *r = &g->rules[i];
        if (r->mask != mask || value + step < r->low || value > r->high + step) {
            continue;
        }
        r->low = value < r->low ? value : r->low;
        r->high = value > r->high ? value : r->high;
        return;
    }
    g->rules[g->rule_at] = (rule){mask, value, value};
    g->rule_at = (g->rule_at + 1) % RULES_MAX;
    g->n_rules += g->n_rules < RULES_MAX;
}

bool rui_ingress_thrown(const rui_ingress *g, uint64_t stream)
{
    for (uint32_t i = 0; i < g->n_rules; i++) {
        const rule *r = &g->rules[i];
        uint64_t v = stream & r->mask;
        if (v >= r->low && v <= r->high) {
            return true;
        }
    }
    return false;
}

/* -- grants --------------------------------------------------------------------------------------
 */

static int64_t outstanding(const rui_slot *s)
{
    return s->granted_bytes > s->got_bytes ? s->granted_bytes - s->got_bytes : 0;
}

void rui_ingress_want(rui_ingress *g, uint32_t i, int64_t first_bytes)
{
    rui_slot *s = &g->slots[i];
    RU_CHECK(i < g->used && s->state == RUI_SLOT_POSTED);
    if (s->wants || s->granted_bytes > 0) {
        return;
    }
    s->granted_bytes = s->total_bytes < first_bytes ? s->total_bytes : first_bytes;
    g->outstanding_bytes += outstanding(s);
    if (s->granted_bytes < s->total_bytes) {
        s->arrival = g->arrivals++;
        rui_pheap_push(&g->wants, &g->wants_root, i);
        s->wants = true;
    }
}

bool rui_ingress_commit(rui_ingress *g, uint32_t i, int64_t offset, int64_t len)
{
    rui_slot *s = &g->slots[i];
    int64_t before = outstanding(s);
    bool done = rui_slot_commit(s, offset, len);
    g->outstanding_bytes += outstanding(s) - before;
    return done;
}

uint32_t rui_ingress_grant(rui_ingress *g, int64_t window_bytes, int64_t chunk_bytes)
{
    uint32_t i = g->wants_root;
    if (i == RUI_NONE || g->outstanding_bytes >= window_bytes) {
        return RUI_NONE;
    }
    rui_slot *s = &g->slots[i];
    int64_t before = outstanding(s);
    int64_t from = s->granted_bytes > s->got_bytes ? s->granted_bytes : s->got_bytes;
    s->granted_bytes = from < s->total_bytes - chunk_bytes ? from + chunk_bytes : s->total_bytes;
    g->outstanding_bytes += outstanding(s) - before;
    if (s->granted_bytes == s->total_bytes) {
        rui_pheap_remove(&g->wants, &g->wants_root, i);
        s->wants = false;
    }
    return i;
}
