/* Parcels. An item is one parcel at one side:
 *
 *   out   QUEUED -> OFFERED -> READY (granted; the channel takes no stream now) -> SENDING
 *   in    WAITS (for memory) -> POSTED
 *   FAILED (not connected), HERE (to this process): until ru_pull_local */
#include "comm/pull/pull.h"

#include <string.h>

#define TAG      (UINT64_C(0xb5) << 56)
#define TAG_MASK (UINT64_C(0xff) << 56)
#define NONE     UINT32_MAX

enum { OFFER, GRANT, SMALL };
enum { ITEMS_FIRST = 256 };

typedef enum state { FREE, QUEUED, OFFERED, READY, SENDING, WAITS, POSTED, FAILED, HERE } state;

/* What OFFER and SMALL begin with; the head follows, then in SMALL the body. */
typedef struct wire {
    uint64_t id;
    int64_t body_bytes;
    uint32_t what, head_bytes;
} wire;

typedef struct item {
    state state;
    bool take;
    uint32_t next; /* of its list */
    uint32_t what, head_bytes;
    ru_node_id peer;
    uint64_t id, cookie;
    void *body;
    int64_t body_bytes;
    ru_span span;
    ru_xfer_id xfer;
    uint8_t head[RU_PULL_HEAD_MAX];
} item;

typedef struct list {
    uint32_t first, last;
} list;

typedef struct peer {
    ru_node_id node;         /* 0: free */
    uint32_t offered, waits; /* to it; from it, and not granted yet */
    list queued;
} peer;

struct ru_pull {
    ru_pull_options opt;
    item **chunk; /* items do not move: ITEMS_FIRST in each */
    uint32_t n_chunks, free;
    peer *peers;
    uint32_t n_peers;
    uint64_t next_id;
    int64_t granted_bytes;
    list waits, soon; /* soon: FAILED and HERE */
};

enum { ID_BITS = 20, ID_ITEM = (1 << ID_BITS) - 1, CHUNKS_MAX = (1 << ID_BITS) / ITEMS_FIRST };

static item *at(ru_pull *p, uint32_t i)
{
    return &p->chunk[i / ITEMS_FIRST][i % ITEMS_FIRST];
}

static void list_put(ru_pull *p, list *l, uint32_t i)
{
    at(p, i)->next = NONE;
    if (l->first == NONE) {
        l->first = i;
    } else {
        at(p, l->last)->next = i;
    }
    l->last = i;
}

static uint32_t list_take(ru_pull *p, list *l)
{
    uint32_t i = l->first;
    if (i != NONE) {
        l->first = at(p, i)->next;
    }
    return i;
}

static void list_remove(ru_pull *p, list *l, uint32_t gone)
{
    list was = *l;
    *l = (list){NONE, NONE};
    for (uint32_t i = was.first; i != NONE;) {
        uint32_t next = at(p, i)->next;
        if (i != gone) {
            list_put(p, l, i);
        }
        i = next;
    }
}

ru_status ru_pull_open(const ru_pull_options *opt, ru_arena *arena, ru_pull **out, ru_err *err)
{
    ru_pull *p = RU_NEW(arena, ru_pull, 1);
    if (p == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for parcels");
    }
    p->opt = *opt;
    p->opt.granted_bytes = opt->granted_bytes > 0 ? opt->granted_bytes : opt->bufs->max_bytes / 4;
    p->opt.body_max = opt->body_max > 0 ? opt->body_max : opt->bufs->max_bytes;
    p->n_peers = opt->peers_max;
    p->peers = RU_NEW(arena, peer, p->n_peers);
    p->chunk = RU_NEW(arena, item *, CHUNKS_MAX);
    p->free = NONE;
    p->waits = p->soon = (list){NONE, NONE};
    if (p->peers == NULL || p->chunk == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for parcels of %u peers", p->n_peers);
    }
    *out = p;
    return RU_OK;
}

static bool is_in(const item *x)
{
    return x->state == WAITS || x->state == POSTED || x->state == HERE;
}

void ru_pull_close(ru_pull *p)
{
    if (p == NULL) {
        return;
    }
    for (uint32_t i = 0; i < p->n_chunks * ITEMS_FIRST; i++) {
        item *x = at(p, i);
        if (x->state != FREE && (is_in(x) || x->take)) {
            ru_bufs_put(p->opt.bufs, x->body);
        }
    }
    for (uint32_t i = 0; i < p->n_chunks; i++) {
        ru_bufs_put(p->opt.bufs, p->chunk[i]);
    }
    p->n_chunks = 0;
}

static uint32_t item_new(ru_pull *p)
{
    if (p->free == NONE) {
        RU_CHECK(p->n_chunks < CHUNKS_MAX); /* peers, offers and requests are bounded */
        item *c = ru_bufs_need(p->opt.bufs, ITEMS_FIRST * (int64_t)sizeof *c);
        RU_CHECK(c != NULL);
        memset(c, 0, ITEMS_FIRST * sizeof *c);
        p->chunk[p->n_chunks++] = c;
        for (uint32_t k = ITEMS_FIRST; k-- > 0;) {
            c[k].next = p->free;
            p->free = (p->n_chunks - 1) * ITEMS_FIRST + k;
        }
    }
    uint32_t i = p->free;
    p->free = at(p, i)->next;
    *at(p, i) = (item){.next = NONE};
    return i;
}

static void item_free(ru_pull *p, uint32_t i)
{
    *at(p, i) = (item){.next = p->free};
    p->free = i;
}

static peer *peer_find(ru_pull *p, ru_node_id node)
{
    for (uint32_t k = 0; k < p->n_peers; k++) {
        if (ru_node_is(p->peers[k].node, node)) {
            return &p->peers[k];
        }
    }
    return NULL;
}

static peer *peer_of(ru_pull *p, ru_node_id node, ru_effects *fx)
{
    peer *known = peer_find(p, node), *empty = peer_find(p, (ru_node_id){0});
    if (known != NULL) {
        return known;
    }
    if (empty == NULL) { /* some were dropped */
        ru_pull_sweep(p, fx);
        empty = peer_find(p, (ru_node_id){0});
    }
    RU_CHECK(empty != NULL); /* as many as the channel has */
    *empty = (peer){.node = node, .queued = {NONE, NONE}};
    return empty;
}

/* -- sending -------------------------------------------------------------------------------------
 */

static void soon(ru_pull *p, uint32_t i, ru_effects *fx)
{
    if (p->soon.first == NONE) {
        ru_fx_local(fx, p->opt.local, 0, NULL, 0);
    }
    list_put(p, &p->soon, i);
}

static void out_over(ru_pull *p, uint32_t i, bool ok, ru_time now, ru_effects *fx)
{
    item *x = at(p, i);
    uint64_t cookie = x->cookie;
    bool take = x->take;
    if (take) {
        ru_bufs_put(p->opt.bufs, x->body);
    }
    item_free(p, i);
    if (!take) {
        p->opt.user.sent(p->opt.user.self, cookie, ok, now, fx);
    }
}

static void offer_next(ru_pull *p, peer *to, ru_effects *fx)
{
    while (to->offered < RU_PULL_OFFERS_MAX && to->queued.first != NONE) {
        item *x = at(p, list_take(p, &to->queued));
        uint8_t m[sizeof(wire) + RU_PULL_HEAD_MAX];
        wire w = {x->id, x->body_bytes, x->what, x->head_bytes};
        memcpy(m, &w, sizeof w);
        memcpy(m + sizeof w, x->head, x->head_bytes);
        ru_fx_send(fx, to->node, p->opt.what_first + OFFER, m, (int64_t)(sizeof w + x->head_bytes));
        x->state = OFFERED;
        to->offered++;
    }
}

static void send_small(ru_pull *p, ru_node_id to, const wire *w, const void *head, const void *body,
                       ru_effects *fx)
{
    uint8_t m[sizeof *w + RU_PULL_HEAD_MAX + RU_PULL_SMALL_MAX];
    memcpy(m, w, sizeof *w);
    if (w->head_bytes > 0) {
        memcpy(m + sizeof *w, head, w->head_bytes);
    }
    if (w->body_bytes > 0) {
        memcpy(m + sizeof *w + w->head_bytes, body, (size_t)w->body_bytes);
    }
    ru_fx_send(fx, to, p->opt.what_first + SMALL, m,
               (int64_t)sizeof *w + w->head_bytes + w->body_bytes);
}

static bool send_here(ru_pull *p, uint32_t what, const void *head, uint32_t head_bytes, void *body,
                      int64_t body_bytes, bool take, ru_effects *fx)
{
    uint32_t i = item_new(p);
    item *x = at(p, i);
    *x = (item){.state = HERE, .what = what, .head_bytes = head_bytes, .body_bytes = body_bytes};
    x->peer = p->opt.self;
    if (head_bytes > 0) {
        memcpy(x->head, head, head_bytes);
    }
    x->body = body;
    if (!take && body_bytes > 0) {
        x->body = ru_bufs_need(p->opt.bufs, body_bytes);
        RU_CHECK(x->body != NULL);
        memcpy(x->body, body, (size_t)body_bytes);
    }
    soon(p, i, fx);
    return true;
}

bool ru_pull_send(ru_pull *p, ru_node_id to, uint32_t what, const void *head, uint32_t head_bytes,
                  void *body, int64_t body_bytes, bool take, uint64_t cookie, ru_time now,
                  ru_effects *fx)
{
    (void)now;
    RU_CHECK(head_bytes <= RU_PULL_HEAD_MAX && body_bytes >= 0);
    if (ru_node_is(to, p->opt.self)) {
        return send_here(p, what, head, head_bytes, body, body_bytes, take, fx);
    }
    if (body_bytes <= RU_PULL_SMALL_MAX) {
        const wire w = {0, body_bytes, what, head_bytes};
        send_small(p, to, &w, head, body, fx);
        if (take) {
            ru_bufs_put(p->opt.bufs, body);
        }
        return true;
    }
    uint32_t i = item_new(p);
    item *x = at(p, i);
    *x = (item){.state = QUEUED,
                .take = take,
                .what = what,
                .head_bytes = head_bytes,
                .peer = to,
                .id = ++p->next_id << ID_BITS | i,
                .cookie = cookie,
                .body = body,
                .body_bytes = body_bytes};
    if (head_bytes > 0) {
        memcpy(x->head, head, head_bytes);
    }
    if (!ru_chan_is_up(p->opt.chan, to)) {
        x->state = FAILED;
        soon(p, i, fx);
        return false;
    }
    peer *q = peer_of(p, to, fx);
    list_put(p, &q->queued, i);
    offer_next(p, q, fx);
    return false;
}

bool ru_pull_give(ru_pull *p, uint64_t cookie)
{
    item *found = NULL;
    for (uint32_t i = 0; i < p->n_chunks * ITEMS_FIRST; i++) {
        item *x = at(p, i);
        bool out = x->state == QUEUED || x->state == OFFERED || x->state == READY ||
                   x->state == SENDING || x->state == FAILED;
        if (out && !x->take && x->cookie == cookie) {
            if (found != NULL) {
                return false;
            }
            found = x;
        }
    }
    if (found != NULL) {
        found->take = true;
    }
    return found != NULL;
}

/* The receiver has a place: stream it. */
static void stream(ru_pull *p, uint32_t i, ru_time now, ru_effects *fx)
{
    item *x = at(p, i);
    bool last = x->what < 64 && (p->opt.background >> x->what & 1) != 0;
    x->span = (ru_span){x->body, x->body_bytes};
    ru_chan_send_in in = {.to = x->peer,
                          .name = {TAG | x->id, 0},
                          .class = last ? RU_CLASS_BACKGROUND : RU_CLASS_NORMAL,
                          .spans = &x->span,
                          .n_spans = 1,
                          .fence = true,
                          .cookie = TAG | i};
    x->state = SENDING;
    ru_status st = ru_chan_send(p->opt.chan, &in, now, &x->xfer);
    if (st == RU_E_LIMIT) {
        x->state = READY;
    } else if (st != RU_OK) {
        x->state = FAILED;
        soon(p, i, fx);
    }
}

static uint32_t find(ru_pull *p, ru_node_id node, uint64_t id, state s)
{
    uint32_t i = (uint32_t)(id & ID_ITEM);
    if (i >= p->n_chunks * ITEMS_FIRST) {
        return NONE;
    }
    const item *x = at(p, i);
    return x->state == s && x->id == id && ru_node_is(x->peer, node) ? i : NONE;
}

/* -- receiving -----------------------------------------------------------------------------------
 */

/* A place for what was offered. RU_E_LIMIT: not now; RU_E_ARG: never. */
static ru_status grant(ru_pull *p, uint32_t i, ru_time now, ru_effects *fx)
{
    item *x = at(p, i);
    bool alone = p->granted_bytes == 0; /* one is always let in */
    if (!alone && x->body_bytes > p->opt.granted_bytes - p->granted_bytes) {
        return RU_E_LIMIT;
    }
    x->body =
        alone ? ru_bufs_need(p->opt.bufs, x->body_bytes) : ru_bufs_get(p->opt.bufs, x->body_bytes);
    if (x->body == NULL) {
        return RU_E_LIMIT;
    }
    x->span = (ru_span){x->body, x->body_bytes};
    ru_chan_post_in in = {.from = x->peer,
                          .name = {TAG | x->id, 0},
                          .spans = &x->span,
                          .n_spans = 1,
                          .cookie = TAG | i};
    ru_status st = ru_chan_post(p->opt.chan, &in, now, &x->xfer);
    if (st != RU_OK) {
        ru_bufs_put(p->opt.bufs, x->body);
        x->body = NULL;
        return st == RU_E_ARG ? st : RU_E_LIMIT;
    }
    x->state = POSTED;
    p->granted_bytes += x->body_bytes;
    ru_fx_send(fx, x->peer, p->opt.what_first + GRANT, &x->id, sizeof x->id);
    return RU_OK;
}

static void grant_next(ru_pull *p, ru_time now, ru_effects *fx)
{
    while (p->waits.first != NONE) {
        uint32_t i = p->waits.first, next = at(p, i)->next;
        ru_status st = grant(p, i, now, fx);
        if (st == RU_E_LIMIT) {
            return;
        }
        p->waits.first = next;
        peer_of(p, at(p, i)->peer, fx)->waits--;
        if (st != RU_OK) {
            ru_chan_refuse(p->opt.chan, at(p, i)->peer,
                           "it offered a parcel whose stream cannot be received", now);
            item_free(p, i);
        }
    }
}

/* What is wrong with the sizes of a parcel of n bytes after `wire`; NULL: nothing. */
static const char *wrong(const ru_pull *p, const wire *w, int64_t rest, bool small)
{
    int64_t body = small ? w->body_bytes : 0;
    if (w->head_bytes > RU_PULL_HEAD_MAX || w->body_bytes < 0 || body > rest ||
        rest - body != (int64_t)w->head_bytes) {
        return "it sent a parcel whose sizes do not agree";
    }
    if (!small && w->body_bytes <= RU_PULL_SMALL_MAX) {
        return "it offered a parcel that is too small for an offer";
    }
    return !small && w->body_bytes > p->opt.body_max
               ? "it offered a parcel that is larger than this process takes"
               : NULL;
}

static void hear_parcel(ru_pull *p, const ru_event *ev, bool small, ru_effects *fx)
{
    wire w = {.head_bytes = UINT32_MAX};
    int64_t rest = ev->size_bytes - (int64_t)sizeof w;
    if (rest >= 0) {
        memcpy(&w, ev->data, sizeof w);
    }
    const char *why = wrong(p, &w, rest, small);
    if (why != NULL) {
        ru_chan_refuse(p->opt.chan, ev->node, why, ev->now);
        return;
    }
    const uint8_t *head = (const uint8_t *)ev->data + sizeof w;
    if (small) {
        void *body = w.body_bytes > 0 ? ru_bufs_need(p->opt.bufs, w.body_bytes) : NULL;
        RU_CHECK(w.body_bytes == 0 || body != NULL);
        if (w.body_bytes > 0) {
            memcpy(body, head + w.head_bytes, (size_t)w.body_bytes);
        }
        p->opt.user.got(p->opt.user.self, ev->node, w.what, head, w.head_bytes, body, w.body_bytes,
                        ev->now, fx);
        return;
    }
    peer *q = peer_of(p, ev->node, fx);
    if (q->waits == RU_PULL_WAITS_MAX) {
        ru_chan_refuse(p->opt.chan, ev->node, "it has more offers of parcels waiting than it may",
                       ev->now);
        return;
    }
    q->waits++;
    uint32_t i = item_new(p);
    item *x = at(p, i);
    *x = (item){.state = WAITS,
                .what = w.what,
                .head_bytes = w.head_bytes,
                .peer = ev->node,
                .id = w.id,
                .body_bytes = w.body_bytes};
    memcpy(x->head, head, w.head_bytes);
    list_put(p, &p->waits, i);
    grant_next(p, ev->now, fx);
}

/* -- what the owner's part hears -----------------------------------------------------------------
 */

/* Streams under way fail by themselves (ru_pull_failed). */
static void lose(ru_pull *p, ru_node_id node, ru_effects *fx)
{
    for (uint32_t i = 0; i < p->n_chunks * ITEMS_FIRST; i++) {
        item *x = at(p, i);
        if (!ru_node_is(x->peer, node)) {
            continue;
        }
        if (x->state == WAITS) {
            list_remove(p, &p->waits, i);
            item_free(p, i);
        } else if (x->state == QUEUED || x->state == OFFERED || x->state == READY) {
            x->state = FAILED;
            soon(p, i, fx);
        }
    }
    for (uint32_t k = 0; k < p->n_peers; k++) {
        if (ru_node_is(p->peers[k].node, node)) {
            p->peers[k] = (peer){.queued = {NONE, NONE}};
        }
    }
}

void ru_pull_sweep(ru_pull *p, ru_effects *fx)
{
    for (uint32_t k = 0; k < p->n_peers; k++) {
        if (p->peers[k].node.v != 0 && !ru_chan_is_up(p->opt.chan, p->peers[k].node)) {
            lose(p, p->peers[k].node, fx);
        }
    }
}

void ru_pull_step(ru_pull *p, const ru_event *ev, ru_effects *fx)
{
    /* UP: a connection that was dropped here ended without a word, so what waits at this peer was
     * offered on the old one. */
    if (ev->kind == RU_EV_DOWN || ev->kind == RU_EV_UP) {
        lose(p, ev->node, fx);
        grant_next(p, ev->now, fx);
        return;
    }
    if (ev->kind != RU_EV_MESSAGE) {
        return;
    }
    uint32_t kind = ev->what - p->opt.what_first;
    if (kind == GRANT && ev->size_bytes == (int64_t)sizeof(uint64_t)) {
        uint64_t id;
        memcpy(&id, ev->data, sizeof id);
        uint32_t i = find(p, ev->node, id, OFFERED);
        if (i != NONE) {
            peer *q = peer_of(p, ev->node, fx);
            q->offered -= q->offered > 0 ? 1 : 0;
            stream(p, i, ev->now, fx);
            offer_next(p, q, fx);
        }
    } else if (kind == OFFER || kind == SMALL) {
        hear_parcel(p, ev, kind == SMALL, fx);
    }
}

void ru_pull_local(ru_pull *p, ru_time now, ru_effects *fx)
{
    list todo = p->soon;
    p->soon = (list){NONE, NONE};
    for (uint32_t i = todo.first; i != NONE;) {
        uint32_t next = at(p, i)->next;
        item *x = at(p, i);
        if (x->state == FAILED) {
            out_over(p, i, false, now, fx);
        } else {
            RU_CHECK(x->state == HERE);
            item copy = *x;
            item_free(p, i);
            p->opt.user.got(p->opt.user.self, copy.peer, copy.what, copy.head, copy.head_bytes,
                            copy.body, copy.body_bytes, now, fx);
        }
        i = next;
    }
    grant_next(p, now, fx);
}

bool ru_pull_owns(const ru_pull *p, uint64_t cookie)
{
    return (cookie & TAG_MASK) == TAG && (cookie & ~TAG_MASK) < p->n_chunks * ITEMS_FIRST;
}

void ru_pull_sent(ru_pull *p, uint64_t cookie, ru_time now, ru_effects *fx)
{
    uint32_t i = (uint32_t)(cookie & ~TAG_MASK);
    RU_CHECK(at(p, i)->state == SENDING);
    out_over(p, i, true, now, fx);
    grant_next(p, now, fx);
}

void ru_pull_arrived(ru_pull *p, uint64_t cookie, ru_time now, ru_effects *fx)
{
    uint32_t i = (uint32_t)(cookie & ~TAG_MASK);
    RU_CHECK(at(p, i)->state == POSTED);
    item copy = *at(p, i);
    item_free(p, i);
    p->granted_bytes -= copy.body_bytes;
    p->opt.user.got(p->opt.user.self, copy.peer, copy.what, copy.head, copy.head_bytes, copy.body,
                    copy.body_bytes, now, fx);
    grant_next(p, now, fx);
}

void ru_pull_failed(ru_pull *p, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx)
{
    (void)why;
    uint32_t i = (uint32_t)(cookie & ~TAG_MASK);
    item *x = at(p, i);
    if (x->state == SENDING) {
        out_over(p, i, false, now, fx);
    } else if (x->state == POSTED) {
        p->granted_bytes -= x->body_bytes;
        ru_bufs_put(p->opt.bufs, x->body);
        item_free(p, i);
    }
    grant_next(p, now, fx);
}

void ru_pull_room(ru_pull *p, ru_time now, ru_effects *fx)
{
    for (uint32_t i = 0; i < p->n_chunks * ITEMS_FIRST; i++) {
        if (at(p, i)->state == READY) {
            stream(p, i, now, fx);
        }
    }
    grant_next(p, now, fx);
}
