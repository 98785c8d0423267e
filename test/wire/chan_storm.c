#include "test/wire/chan_storm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/chan/chan_impl.h"
#include "lab/worlds/pipe.h"

enum { NODES_MAX = 8, XFERS = 192, SPANS = 40, SIZE_MAX_BYTES = 400 << 10, SLACK = 16 };

typedef enum end_state { WAITS, OPEN, ENDED_WELL, ENDED_BADLY, WITHDRAWN } end_state;

/* One transfer, from both ends. */
typedef struct xfer {
    bool used;
    uint32_t from, to;
    ru_stream_name name;
    int64_t size;
    uint64_t pattern;
    bool fence, cut, dropped, cancelled;
    end_state tx, rx; /* WAITS: not begun */
    ru_xfer_id tx_id, rx_id;
    uint8_t *src, *dst; /* [size + 2 SLACK] */
    ru_span src_spans[SPANS], dst_spans[SPANS];
    uint32_t n_src, n_dst;
    uint32_t posts_left; /* acts until it is posted */
    bool never_posted;
} xfer;

typedef struct storm storm;

typedef struct user {
    storm *s;
    uint32_t index;
    ru_chan *ch;
    ru_arena arena;
    ru_time tick_at;
    char address[32];
    uint32_t next_message[NODES_MAX], sent_message[NODES_MAX]; /* to and from each */
    bool up[NODES_MAX];
    bool starved; /* a call found no room, and the channel has not said since then that there is */
} user;

struct storm {
    ru_chan_storm_options opt;
    ru_rng rng;
    ru_pipe *net;
    user users[NODES_MAX];
    xfer xfers[XFERS];
    uint64_t names;
    uint64_t epoch;
    ru_time cut_at; /* mending, and opening from both sides, may break pairs for a while */
    ru_chan_storm_report report;
    char wrong[256];
};

static void fail(storm *s, const char *what, const xfer *x)
{
    if (s->wrong[0] == '\0') {
        snprintf(s->wrong, sizeof s->wrong,
                 "%s (stream %llx of %lld bytes, %u to %u, tx %d, rx %d)", what,
                 x != NULL ? (unsigned long long)x->name.stream : 0,
                 x != NULL ? (long long)x->size : 0, x != NULL ? x->from : 0, x != NULL ? x->to : 0,
                 x != NULL ? (int)x->tx : 0, x != NULL ? (int)x->rx : 0);
    }
}

static uint8_t byte_of(const xfer *x, int64_t i)
{
    uint64_t h = (x->pattern + (uint64_t)i / 8) * 0x9e3779b97f4a7c15ull;
    return (uint8_t)(h >> (8 * ((uint64_t)i % 8)));
}

static xfer *xfer_of(storm *s, uint64_t cookie)
{
    RU_CHECK(cookie >= 1 && cookie <= XFERS);
    return &s->xfers[cookie - 1];
}

/* -- what the channels say -----------------------------------------------------------------------
 */

static void on_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    user *u = self;
    (void)address;
    (void)now;
    uint32_t i = (uint32_t)node.v - 1;
    if (u->up[i]) {
        fail(u->s, "up twice", NULL);
    }
    u->up[i] = true;
    u->next_message[i] = u->sent_message[i] = 0;
}

static void dropped(storm *s, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < XFERS; i++) {
        xfer *x = &s->xfers[i];
        if (x->used && ((x->from == a && x->to == b) || (x->from == b && x->to == a))) {
            x->dropped = true;
        }
    }
}

static void on_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    user *u = self;
    (void)address;
    (void)why;
    (void)now;
    if (node.v == 0) {
        return;
    }
    if (!u->s->opt.drops) {
        fail(u->s, "down though nobody left", NULL);
    }
    u->up[node.v - 1] = false;
    dropped(u->s, u->index, (uint32_t)node.v - 1);
}

static void on_message(void *self, ru_node_id from, uint32_t what, const void *data,
                       int64_t size_bytes, ru_time now)
{
    user *u = self;
    (void)now;
    uint32_t i = (uint32_t)from.v - 1;
    const uint8_t *p = data;
    if (what != u->next_message[i]) {
        fail(u->s, "a message out of order", NULL);
    }
    u->next_message[i]++;
    for (int64_t k = 0; k < size_bytes; k++) {
        if (p[k] != (uint8_t)(what + (uint32_t)k)) {
            fail(u->s, "a message with wrong bytes", NULL);
            break;
        }
    }
    u->s->report.messages++;
}

static void poison(xfer *x, uint8_t *mem)
{
    memset(mem, 0xee, (size_t)x->size + 2 * SLACK);
}

static void on_sent(void *self, uint64_t cookie, ru_time now)
{
    user *u = self;
    xfer *x = xfer_of(u->s, cookie);
    (void)now;
    if (x->tx != OPEN || x->from != u->index) {
        fail(u->s, "sent twice or after its end", x);
    }
    x->tx = ENDED_WELL;
    poison(x, x->src); /* the memory is the user's again */
    u->s->report.sent++;
}

static void on_arrived(void *self, uint64_t cookie, ru_time now)
{
    user *u = self;
    xfer *x = xfer_of(u->s, cookie);
    (void)now;
    if (x->rx != OPEN || x->to != u->index) {
        fail(u->s, "arrived twice or after its end", x);
    }
    x->rx = ENDED_WELL;
    for (int64_t i = 0; i < x->size; i++) {
        if (x->dst[SLACK + i] != byte_of(x, i)) {
            fail(u->s, "wrong bytes", x);
            break;
        }
    }
    u->s->report.arrived++;
    u->s->report.bytes += x->size;
    poison(x, x->dst);
}

static bool s_drops(const user *u)
{
    return u->s->opt.drops;
}

static void on_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    user *u = self;
    xfer *x = xfer_of(u->s, cookie);
    (void)now;
    bool tx = x->from == u->index && x->tx == OPEN;
    if (!tx && (x->to != u->index || x->rx != OPEN)) {
        fail(u->s, "failed twice or after its end", x);
        return;
    }
    x->dropped = x->dropped || (s_drops(u) && why == RU_E_PEER); /* `down` follows */
    bool allowed = x->cancelled || x->dropped || (!tx && why == RU_E_IO && !x->fence && x->cut) ||
                   (tx && x->rx == WITHDRAWN);
    if (!allowed) {
        fail(u->s, tx ? "a send failed without a reason" : "a slot failed without a reason", x);
    }
    *(tx ? &x->tx : &x->rx) = ENDED_BADLY;
    poison(x, tx ? x->src : x->dst);
    u->s->report.lost += why == RU_E_IO;
}

static void on_late(void *self, uint64_t cookie, int64_t late_ns, ru_time now)
{
    user *u = self;
    xfer *x = xfer_of(u->s, cookie);
    (void)now;
    if (late_ns <= 0 || x->tx != OPEN) {
        fail(u->s, "late without being under way", x);
    }
}

static void on_tick_at(void *self, ru_time at)
{
    ((user *)self)->tick_at = at;
}

static void on_room(void *self, ru_time now)
{
    user *u = self;
    (void)now;
    if (!u->starved) {
        fail(u->s, "room that nobody asked for", NULL);
    }
    u->starved = false;
}

static void seal(const storm *s, bool on)
{
    if (s->opt.seal != NULL) {
        s->opt.seal(on);
    }
}

/* -- acts ----------------------------------------------------------------------------------------
 */

static uint32_t below(storm *s, uint32_t n)
{
    return ru_rng_below(&s->rng, n);
}

static uint32_t cut_spans(storm *s, uint8_t *mem, int64_t size, ru_span *spans)
{
    uint32_t n = below(s, 3) == 0 ? 1 + below(s, SPANS - 1) : 1;
    int64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t part = i + 1 == n
                           ? size - at
                           : (int64_t)ru_rng_below_u64(&s->rng, (uint64_t)(size - at) / 4 + 1);
        spans[i] = (ru_span){mem + SLACK + at, part};
        at += part;
    }
    return n;
}

static void act_send(storm *s)
{
    uint32_t i = below(s, XFERS);
    xfer *x = &s->xfers[i];
    uint32_t from = below(s, s->opt.nodes), to = below(s, s->opt.nodes);
    if (x->used || from == to || !s->users[from].up[to] || !s->users[to].up[from]) {
        return;
    }
    uint32_t kind = below(s, 10);
    int64_t size = kind < 5   ? 1 + below(s, 2000)
                   : kind < 9 ? 1 + below(s, 60000)
                              : 1 + below(s, SIZE_MAX_BYTES);
    *x = (xfer){.used = true,
                .from = from,
                .to = to,
                .size = size,
                .pattern = ru_rng_u64(&s->rng),
                .fence = below(s, 2) == 0};
    x->name = (ru_stream_name){s->epoch << 40 | s->names++, below(s, 3)};
    seal(s, false);
    x->src = malloc((size_t)size + 2 * SLACK);
    x->dst = malloc((size_t)size + 2 * SLACK);
    seal(s, true);
    RU_CHECK(x->src != NULL && x->dst != NULL);
    poison(x, x->dst);
    for (int64_t k = 0; k < size; k++) {
        x->src[SLACK + k] = byte_of(x, k);
    }
    x->n_src = cut_spans(s, x->src, size, x->src_spans);
    x->n_dst = cut_spans(s, x->dst, size, x->dst_spans);
    x->posts_left = below(s, 2) == 0 ? 0 : below(s, 40);
    ru_time now = ru_pipe_now(s->net);
    x->cut = ru_time_since(now, s->cut_at) < 200000000;
    ru_chan_send_in in = {.to = {to + 1},
                          .name = x->name,
                          .class = below(s, RU_CLASS_COUNT),
                          .rank = (uint16_t)below(s, 4),
                          .spans = x->src_spans,
                          .n_spans = x->n_src,
                          .fence = x->fence,
                          .cookie = i + 1};
    in.deadline.ns = below(s, 2) == 0 ? 0 : now.ns + (int64_t)below(s, 50000000);
    x->tx = OPEN;
    ru_status st = ru_chan_send(s->users[from].ch, &in, now, &x->tx_id);
    if (st == RU_E_LIMIT) {
        s->users[from].starved = true;
        free(x->src);
        free(x->dst);
        x->used = false;
    } else if (st != RU_OK) {
        fail(s, "a send was refused", x);
    }
}

static void post(storm *s, xfer *x)
{
    ru_chan_post_in in = {.from = {x->from + 1},
                          .name = x->name,
                          .spans = x->dst_spans,
                          .n_spans = x->n_dst,
                          .cookie = (uint64_t)(x - s->xfers) + 1};
    x->rx = OPEN;
    ru_status st = ru_chan_post(s->users[x->to].ch, &in, ru_pipe_now(s->net), &x->rx_id);
    if (st == RU_E_LIMIT) {
        s->users[x->to].starved = true;
        x->rx = WAITS;
    } else if (st != RU_OK) {
        bool allowed = (st == RU_E_CANCELLED && x->cancelled) || (st == RU_E_PEER && x->dropped) ||
                       (st == RU_E_IO && !x->fence && x->cut) ||
                       (st == RU_E_IO && x->cancelled); /* cancelled, then cut: not sent again */
        if (!allowed) {
            char what[64];
            snprintf(what, sizeof what, "a post was refused: %s", ru_status_name(st));
            fail(s, what, x);
        }
        x->rx = ENDED_BADLY;
    }
}

static void act_message(storm *s)
{
    uint32_t from = below(s, s->opt.nodes), to = below(s, s->opt.nodes);
    user *u = &s->users[from];
    if (from == to || !u->up[to] || !s->users[to].up[from]) {
        return;
    }
    static uint8_t buf[RU_CHAN_MESSAGE_MAX];
    int64_t size = below(s, 20) == 0 ? below(s, sizeof buf) : below(s, 400);
    for (int64_t k = 0; k < size; k++) {
        buf[k] = (uint8_t)(u->sent_message[to] + (uint32_t)k);
    }
    ru_status st = ru_chan_message(u->ch, (ru_node_id){to + 1}, u->sent_message[to], buf, size,
                                   ru_pipe_now(s->net));
    if (st == RU_OK) {
        u->sent_message[to]++;
    } else if (st == RU_E_LIMIT) {
        u->starved = true;
    } else {
        fail(s, "a message was refused", NULL);
    }
}

/* A transfer under way at its sender, or its receiver. */
static xfer *any_open(storm *s, bool at_sender)
{
    uint32_t from = below(s, XFERS);
    for (uint32_t k = 0; k < XFERS; k++) {
        xfer *x = &s->xfers[(from + k) % XFERS];
        if (x->used && (at_sender ? x->tx : x->rx) == OPEN) {
            return x;
        }
    }
    return NULL;
}

static void act_cancel(storm *s)
{
    xfer *x = any_open(s, true);
    if (x == NULL) {
        return;
    }
    x->cancelled = true;
    s->report.cancelled++;
    ru_chan_cancel(s->users[x->from].ch, x->tx_id, ru_pipe_now(s->net));
}

static void act_unpost(storm *s)
{
    xfer *x = any_open(s, false);
    if (x == NULL) {
        return;
    }
    x->rx = WITHDRAWN;
    s->report.withdrawn++;
    ru_chan_unpost(s->users[x->to].ch, x->rx_id, ru_pipe_now(s->net));
    poison(x, x->dst); /* checked at the end: nothing may come there any more */
}

/* An epoch ends on one node after the other. */
static void act_epoch(storm *s)
{
    uint64_t old = s->epoch++;
    for (uint32_t i = 0; i < XFERS; i++) {
        xfer *x = &s->xfers[i];
        if (x->used && x->name.stream >> 40 == old) {
            x->cancelled = true;
            x->never_posted = x->rx == WAITS;
            if (x->rx == OPEN) {
                x->rx = WITHDRAWN;
                poison(x, x->dst);
            }
        }
    }
    for (uint32_t n = 0; n < s->opt.nodes; n++) {
        ru_chan_cancel_all(s->users[n].ch, ~0ull << 40, old << 40, ru_pipe_now(s->net));
        for (uint32_t i = 0; i < XFERS; i++) {
            xfer *x = &s->xfers[i];
            if (x->used && x->to == n && x->rx == WITHDRAWN) {
                poison(x, x->dst);
            }
        }
    }
}

static void act_cut(storm *s)
{
    if (!ru_pipe_cut(s->net)) {
        return;
    }
    s->report.cuts++;
    s->cut_at = ru_pipe_now(s->net);
    for (uint32_t i = 0; i < XFERS; i++) {
        s->xfers[i].cut = true;
    }
}

static void act_drop(storm *s)
{
    uint32_t a = below(s, s->opt.nodes), b = below(s, s->opt.nodes);
    user *u = &s->users[a];
    if (a == b || !u->up[b] || !s->users[b].up[a]) {
        return;
    }
    s->report.drops++;
    dropped(s, a, b);
    ru_chan_drop(u->ch, (ru_node_id){b + 1}, ru_pipe_now(s->net));
    u->up[b] = false;
}

static void join(storm *s)
{
    bool any = false;
    for (uint32_t a = 0; a < s->opt.nodes; a++) {
        for (uint32_t b = 0; b < s->opt.nodes; b++) {
            bool apart = a != b && !s->users[a].up[b] && !s->users[b].up[a];
            any = any || apart;
            if (apart && below(s, 8) == 0) {
                ru_status st =
                    ru_chan_connect(s->users[a].ch, s->users[b].address, ru_pipe_now(s->net), NULL);
                if (st != RU_OK && st != RU_E_LIMIT) {
                    fail(s, "connecting was refused", NULL);
                }
            }
        }
    }
    s->cut_at = any ? ru_pipe_now(s->net) : s->cut_at;
}

/* -- running -------------------------------------------------------------------------------------
 */

static void check_canary(storm *s, const xfer *x)
{
    for (int64_t i = 0; i < SLACK; i++) {
        if (x->dst[i] != 0xee || x->dst[SLACK + x->size + i] != 0xee) {
            fail(s, "bytes beside the slot", x);
        }
    }
    for (int64_t i = 0; i < x->size; i++) {
        if (x->dst[SLACK + i] != 0xee) {
            fail(s, "bytes came after the memory was given back", x);
            return;
        }
    }
}

/* Its slot need not be posted any more: it was cancelled in time, or its epoch or peer is gone. */
static bool forgotten(const xfer *x)
{
    return x->rx == WAITS &&
           (x->never_posted || x->dropped || (x->cancelled && x->tx == ENDED_BADLY));
}

/* Transfers that ended on both sides long ago are looked at once more and forgotten. */
static void reap(storm *s, bool all)
{
    for (uint32_t i = 0; i < XFERS; i++) {
        xfer *x = &s->xfers[i];
        bool over = x->used && x->tx >= ENDED_WELL && (x->rx >= ENDED_WELL || forgotten(x));
        if (over && (all || below(s, 20) == 0)) {
            if (x->rx != WAITS || x->never_posted) {
                check_canary(s, x);
            }
            free(x->src);
            free(x->dst);
            x->used = false;
        }
    }
}

static void move(storm *s, uint32_t steps)
{
    for (uint32_t k = 0; k < steps && s->wrong[0] == '\0'; k++) {
        if (!ru_pipe_step(s->net)) {
            ru_pipe_wait(s->net, 50000);
        }
        ru_time now = ru_pipe_now(s->net);
        for (uint32_t i = 0; i < s->opt.nodes; i++) {
            user *u = &s->users[i];
            if (u->tick_at.ns <= now.ns) {
                u->tick_at = ru_chan_tick(u->ch, now);
            }
        }
    }
}

static void post_due(storm *s, bool all)
{
    for (uint32_t i = 0; i < XFERS; i++) {
        xfer *x = &s->xfers[i];
        if (!x->used || x->rx != WAITS || x->never_posted || x->dropped) {
            continue;
        }
        if (x->posts_left == 0 || all) {
            post(s, x);
        } else {
            x->posts_left--;
        }
    }
}

static void act(storm *s)
{
    uint32_t what = below(s, 1000);
    if (what < 550) {
        act_send(s);
    } else if (what < 800) {
        act_message(s);
    } else if (what < 900) {
        act_cancel(s);
    } else if (what < 960) {
        act_unpost(s);
    } else if (what < 980) {
        act_cut(s);
    } else if (what < 985) {
        act_epoch(s);
    } else if (what < 987 && s->opt.drops) {
        act_drop(s);
    }
    if (s->opt.drops) {
        join(s);
    }
    post_due(s, false);
    reap(s, false);
    move(s, 1 + below(s, below(s, 10) == 0 ? 200 : 12));
}

static bool quiet(const storm *s)
{
    for (uint32_t i = 0; i < XFERS; i++) {
        const xfer *x = &s->xfers[i];
        if (x->used && (x->tx < ENDED_WELL || x->rx == OPEN || (x->rx == WAITS && !forgotten(x)))) {
            return false;
        }
    }
    for (uint32_t a = 0; a < s->opt.nodes; a++) {
        for (uint32_t b = 0; b < s->opt.nodes; b++) {
            if (a != b && s->users[a].up[b] && s->users[b].up[a] &&
                s->users[a].sent_message[b] != s->users[b].next_message[a]) {
                return false;
            }
        }
    }
    return true;
}

/* What one side knows of a transfer that does not end, on stderr. */
static void explain(const storm *s, const xfer *x, uint32_t at, uint32_t other)
{
    ru_chan *ch = s->users[at].ch;
    uint32_t i = rui_peer_find(ch, other + 1);
    if (i == RUI_NONE) {
        fprintf(stderr, "node %u: not connected to %u\n", at, other);
        return;
    }
    const rui_peer *p = &ch->peers[i];
    fprintf(stderr,
            "node %u: peer state %d, sequence out %llu acked %llu in %llu, unsent items %d\n", at,
            (int)p->state, (unsigned long long)p->tx_seq, (unsigned long long)p->tx_acked,
            (unsigned long long)p->rx_seq, p->item_next != RUI_NONE);
    uint32_t bulk = p->conn[RU_LINK_BULK];
    if (bulk != RUI_NONE) {
        const rui_conn *c = &ch->conns[bulk];
        fprintf(stderr, "  bulk waits %d, last frame type %d stream %llx offset %llu\n", c->waits,
                (int)c->rx.type, (unsigned long long)c->rx.stream,
                (unsigned long long)c->rx.offset);
    }
    uint32_t k = rui_names_find(&ch->stream_names, x->name.stream, x->name.iter, i);
    if (k != RUI_NONE) {
        const rui_stream *t = &ch->streams[k];
        fprintf(stderr, "  stream state %d told %d doubt %d in link %u left %lld granted %lld\n",
                (int)t->state, t->told, t->doubt, t->in_link, (long long)t->left_bytes,
                (long long)t->granted_bytes);
    }
    k = rui_ingress_find(ch->ingress, i, x->name.stream, x->name.iter);
    if (k != RUI_NONE) {
        const rui_slot *t = rui_ingress_slot(ch->ingress, k);
        fprintf(stderr, "  slot state %d got %lld of %lld\n", (int)t->state,
                (long long)t->got_bytes, (long long)t->total_bytes);
    }
}

/* Everything given back? */
static void check_empty(storm *s, const user *u)
{
    const ru_chan *ch = u->ch;
    uint32_t slots = 0;
    for (uint32_t i = 0; i < rui_ingress_used(ch->ingress); i++) {
        rui_slot_state st = rui_ingress_slot(ch->ingress, i)->state;
        slots += st == RUI_SLOT_POSTED || st == RUI_SLOT_EARLY;
    }
    if (u->starved) {
        fail(s, "nobody says that there is room again", NULL);
    }
    if (ch->streams_live > 0) {
        fail(s, "streams are left when all is done", NULL);
    }
    if (slots > 0) {
        fail(s, "slots are left when all is done", NULL);
    }
    if (rui_egress_queued(ch->egress) > 0) {
        fail(s, "chunks are left when all is done", NULL);
    }
    if (ch->items.taken > 0) {
        fail(s, "sequenced frames are left when all is acknowledged", NULL);
    }
    if (ch->blocks.small.taken + ch->blocks.large.taken > 0) {
        fail(s, "blocks are left when all is done", NULL);
    }
    for (uint32_t i = 0; i < ch->peers_used; i++) {
        const rui_peer *p = &ch->peers[i];
        bool owes = p->items != 0 || p->block_bytes != 0 || p->whole_in != 0 || p->whole_out != 0;
        if (p->state == RUI_PEER_UP && owes) {
            fail(s, "a peer's budget did not come back", NULL);
        }
    }
}

static void open_all(storm *s)
{
    static const uint8_t token[] = "storm";
    for (uint32_t i = 0; i < s->opt.nodes; i++) {
        user *u = &s->users[i];
        u->s = s;
        u->index = i;
        ru_arena_init(&u->arena, 0);
        snprintf(u->address, sizeof u->address, "n%u:1", i);
        uint32_t node = ru_pipe_node(s->net, u->address);
        ru_chan_options opt = {.self = {i + 1},
                               .address = u->address,
                               .job = 1,
                               .token = token,
                               .token_bytes = sizeof token,
                               .peers_max = NODES_MAX,
                               .streams_max = s->opt.little ? 4 : 96,
                               .slots_max = 96,
                               .grants = s->opt.grants,
                               .crc = s->opt.crc,
                               .reconnect_ns = 100000000};
        ru_chan_user up = {.self = u,
                           .up = on_up,
                           .down = on_down,
                           .message = on_message,
                           .sent = on_sent,
                           .failed = on_failed,
                           .arrived = on_arrived,
                           .late = on_late,
                           .room = on_room,
                           .tick_at = on_tick_at};
        ru_link link = ru_pipe_link(s->net, node);
        RU_CHECK(ru_chan_open(&opt, &link, &up, &u->arena, &u->ch, NULL) == RU_OK);
        ru_pipe_user(s->net, node, ru_chan_link_user(u->ch));
    }
    for (uint32_t a = 0; a < s->opt.nodes; a++) {
        for (uint32_t b = 0; b < s->opt.nodes; b++) {
            /* Some pairs are opened from both sides at once. */
            if (a < b || (a > b && below(s, 3) == 0)) {
                RU_CHECK(ru_chan_connect(s->users[a].ch, s->users[b].address, ru_pipe_now(s->net),
                                         NULL) == RU_OK);
            }
        }
    }
}

ru_status ru_chan_storm(const ru_chan_storm_options *opt, ru_chan_storm_report *report, ru_err *err)
{
    storm *s = calloc(1, sizeof *s);
    RU_CHECK(s != NULL && opt->nodes >= 2 && opt->nodes <= NODES_MAX);
    s->opt = *opt;
    s->rng = ru_rng_from(opt->seed, ru_rng_label("storm"));
    s->net = ru_pipe_new(&(ru_pipe_options){.seed = opt->seed, .queue_bytes = 32 << 10});
    open_all(s);
    s->cut_at = ru_pipe_now(s->net);
    seal(s, true);
    move(s, 3000);
    uint32_t done = 0;
    for (; done < opt->events && s->wrong[0] == '\0'; done++) {
        act(s);
    }
    for (uint32_t k = 0; k < 20000 && s->wrong[0] == '\0' && !quiet(s); k++) {
        post_due(s, true);
        reap(s, true);
        move(s, 100);
    }
    const xfer *stuck = NULL;
    for (uint32_t i = 0; i < XFERS; i++) {
        const xfer *x = &s->xfers[i];
        stuck = x->used && (x->tx < ENDED_WELL || x->rx == OPEN) ? x : stuck;
    }
    if (stuck != NULL) {
        explain(s, stuck, stuck->from, stuck->to);
        explain(s, stuck, stuck->to, stuck->from);
    }
    if (s->wrong[0] == '\0' && !quiet(s)) {
        fail(s, "something never ends", stuck);
    }
    for (uint32_t k = 0; k < 20; k++) { /* a second: the last acknowledgements take their time */
        ru_pipe_wait(s->net, 50000000);
        move(s, 1000);
    }
    seal(s, false);
    reap(s, true);
    for (uint32_t i = 0; i < opt->nodes; i++) {
        user *u = &s->users[i];
        if (s->wrong[0] == '\0') {
            check_empty(s, u);
        }
        ru_chan_stats st;
        ru_chan_stats_get(u->ch, &st);
        s->report.preemptions += st.preemptions;
        ru_chan_close(u->ch);
        ru_arena_fini(&u->arena);
    }
    for (uint32_t i = 0; i < XFERS; i++) {
        if (s->xfers[i].used) {
            free(s->xfers[i].src);
            free(s->xfers[i].dst);
        }
    }
    ru_pipe_free(s->net);
    *report = s->report;
    ru_status st = RU_OK;
    if (s->wrong[0] != '\0') {
        st = RU_FAIL(
            err, RU_E_BUG, "%s, after %u events; again: build/test/chan-storm %u %llu%s%s%s%s",
            s->wrong, done, opt->nodes, (unsigned long long)opt->seed, opt->grants ? " grants" : "",
            opt->crc ? " crc" : "", opt->drops ? " drops" : "", opt->little ? " little" : "");
    }
    free(s);
    return st;
}
