/* Wires: frames from the moment they are pulled until they are at the other end's door.
 *
 * A node has two ports, the wire and the path to nodes of its own host. Outgoing: ends take turns
 * (a list of those that may have something), each gives one frame while the queue has room; the
 * port sends the frames of its queue one after the other at its rate. Incoming: work-conserving
 * and in order of arrival; a frame of S bytes whose last byte comes at t counts as having come
 * from t - S/rate on, so that one sender of the same rate is never slowed down, and k senders get
 * a k-th each. Nodes of a host that share its wire use one clock for each direction: their frames
 * take turns.
 *
 * Frames of a packet or less pass between the packets of larger ones: an incoming one waits for
 * none but those of its own connection. Going out with nothing queued before it, it is the kernel's
 * at once: `sent` follows the pull, it leaves when the wire has time.
 *
 * Events per frame: one when it arrives; one when it leaves, if it is larger than a packet or
 * others are queued; a third when others are in its way. */
#include <stdlib.h>
#include <string.h>

#include "sim/sim_impl.h"

#define ROOM_MIN_BYTES (128 << 10)
#define PACKET_BYTES   1500
#define USER_BYTES     1024 /* of a link's user that its upcalls are likely to touch */

rui_sim_frame *rui_sim_frame_at(const ru_sim *s, uint32_t index)
{
    return &s->frame_blocks[index / RUI_SIM_BLOCK][index % RUI_SIM_BLOCK];
}

rui_sim_conn *rui_sim_conn_at(const ru_sim *s, uint32_t index)
{
    return &s->conn_blocks[index / RUI_SIM_BLOCK][index % RUI_SIM_BLOCK];
}

/* One more block of items in a table of blocks. */
static bool block_add(ru_sim *s, void ***blocks, uint32_t *cap, uint32_t n, int64_t item_bytes)
{
    uint32_t at = n / RUI_SIM_BLOCK;
    if (at == *cap) {
        uint32_t more = *cap == 0 ? 16 : *cap * 2;
        void **p = rui_sim_grow(s, *blocks, *cap * (int64_t)sizeof **blocks,
                                more * (int64_t)sizeof **blocks);
        if (p == NULL) {
            return false;
        }
        *blocks = p;
        *cap = more;
    }
    (*blocks)[at] = rui_sim_grow(s, NULL, 0, RUI_SIM_BLOCK * item_bytes);
    if ((*blocks)[at] != NULL) {
        memset((*blocks)[at], 0, (size_t)(RUI_SIM_BLOCK * item_bytes));
    }
    return (*blocks)[at] != NULL;
}

uint32_t rui_sim_frame_new(ru_sim *s)
{
    uint32_t index = s->frame_free;
    if (index != RUI_SIM_NONE) {
        s->frame_free = rui_sim_frame_at(s, index)->next;
    } else {
        void **blocks = (void **)s->frame_blocks;
        if (s->frames_n % RUI_SIM_BLOCK == 0) {
            bool ok = block_add(s, &blocks, &s->frame_blocks_cap, s->frames_n,
                                (int64_t)sizeof(rui_sim_frame));
            s->frame_blocks = (rui_sim_frame **)blocks;
            if (!ok) {
                return RUI_SIM_NONE;
            }
        }
        index = s->frames_n++;
    }
    rui_sim_frame *f = rui_sim_frame_at(s, index);
    f->kind = RUI_SIM_DATA;
    f->dropped = false;
    f->next = RUI_SIM_NONE;
    f->n_spans = 0;
    f->size_bytes = 0;
    f->spans = NULL;
    f->payload = NULL;
    f->rx = NULL;
    f->part_at = 0;
    return index;
}

void rui_sim_frame_free(ru_sim *s, uint32_t frame)
{
    rui_sim_frame *f = rui_sim_frame_at(s, frame);
    free(f->spans);
    free(f->payload);
    free(f->rx);
    f->spans = NULL;
    f->payload = NULL;
    f->rx = NULL;
    f->next = s->frame_free;
    s->frame_free = frame;
}

uint32_t rui_sim_conn_new(ru_sim *s)
{
    uint32_t index = s->conn_free_first;
    if (index != RUI_SIM_NONE) {
        s->conn_free_first = rui_sim_conn_at(s, index)->next_free;
        if (s->conn_free_first == RUI_SIM_NONE) {
            s->conn_free_last = RUI_SIM_NONE;
        }
    } else {
        if (s->conns_n == RU_SIM_CONNS_MAX) {
            return RUI_SIM_NONE;
        }
        void **blocks = (void **)s->conn_blocks;
        if (s->conns_n % RUI_SIM_BLOCK == 0) {
            bool ok = block_add(s, &blocks, &s->conn_blocks_cap, s->conns_n,
                                (int64_t)sizeof(rui_sim_conn));
            s->conn_blocks = (rui_sim_conn **)blocks;
            if (!ok) {
                return RUI_SIM_NONE;
            }
        }
        index = s->conns_n++;
    }
    rui_sim_conn *c = rui_sim_conn_at(s, index);
    uint32_t generation = c->generation + 1;
    generation += (generation & 0xff) == 0; /* an id is never 0 */
    memset(c, 0, sizeof *c);
    c->generation = generation;
    c->used = true;
    for (uint32_t side = 0; side < 2; side++) {
        c->end[side].first = c->end[side].last = RUI_SIM_NONE;
        c->end[side].ready_next = RUI_SIM_NONE;
    }
    return index;
}

rui_sim_conn *rui_sim_arg_conn(const ru_sim *s, uint64_t arg, uint32_t *conn, uint32_t *side)
{
    *conn = (uint32_t)arg >> 1;
    *side = (uint32_t)arg & 1;
    rui_sim_conn *c = rui_sim_conn_at(s, *conn);
    return c->used && c->generation == (uint32_t)(arg >> 32) ? c : NULL;
}

int64_t rui_sim_delay_ns(const ru_sim *s, const rui_sim_conn *c, uint32_t from_side)
{
    const ru_sim_nic *nic = &s->nodes[c->end[from_side].node]->nic;
    return c->port == 1 ? nic->local_delay_ns : nic->delay_ns;
}

static int64_t wire_ns(const rui_sim_node *n, uint32_t port, int64_t bytes)
{
    double rate = port == 1 ? n->nic.local_bytes_per_s : n->nic.bytes_per_s * n->slow;
    return (int64_t)((double)bytes * 1e9 / rate + 0.5);
}

/* -- outgoing -------------------------------------------------------------------------------------
 */

void rui_sim_dirty(ru_sim *s, uint32_t node, uint32_t port)
{
    rui_sim_port *p = &s->nodes[node]->port[port];
    if (p->dirty) {
        return;
    }
    p->dirty = true;
    p->dirty_next = RUI_SIM_NONE;
    uint32_t id = node << 1 | port;
    if (s->dirty_last != RUI_SIM_NONE) {
        s->nodes[s->dirty_last >> 1]->port[s->dirty_last & 1].dirty_next = id;
    } else {
        s->dirty_first = id;
    }
    s->dirty_last = id;
}

void rui_sim_ready(ru_sim *s, uint32_t conn, uint32_t side)
{
    rui_sim_conn *c = rui_sim_conn_at(s, conn);
    rui_sim_end *e = &c->end[side];
    if (e->state != RUI_SIM_END_OPEN && e->state != RUI_SIM_END_DEAF) {
        return;
    }
    if (e->blocked || e->ready) {
        return;
    }
    rui_sim_port *p = &s->nodes[e->node]->port[c->port];
    e->ready = true;
    e->ready_next = RUI_SIM_NONE;
    uint32_t id = conn << 1 | side;
    if (p->ready_last != RUI_SIM_NONE) {
        rui_sim_conn_at(s, p->ready_last >> 1)->end[p->ready_last & 1].ready_next = id;
    } else {
        p->ready_first = id;
    }
    p->ready_last = id;
    rui_sim_dirty(s, e->node, c->port);
}

static void unready_first(ru_sim *s, rui_sim_port *p)
{
    rui_sim_end *e = &rui_sim_conn_at(s, p->ready_first >> 1)->end[p->ready_first & 1];
    p->ready_first = e->ready_next;
    if (p->ready_first == RUI_SIM_NONE) {
        p->ready_last = RUI_SIM_NONE;
    }
    e->ready = false;
    e->ready_next = RUI_SIM_NONE;
}

/* Out of the middle: an end that closes. */
static void unready(ru_sim *s, rui_sim_port *p, uint32_t id)
{
    uint32_t before = RUI_SIM_NONE;
    for (uint32_t at = p->ready_first; at != id;) {
        RU_CHECK(at != RUI_SIM_NONE);
        before = at;
        at = rui_sim_conn_at(s, at >> 1)->end[at & 1].ready_next;
    }
    rui_sim_end *e = &rui_sim_conn_at(s, id >> 1)->end[id & 1];
    if (before == RUI_SIM_NONE) {
        p->ready_first = e->ready_next;
    } else {
        rui_sim_conn_at(s, before >> 1)->end[before & 1].ready_next = e->ready_next;
    }
    if (p->ready_last == id) {
        p->ready_last = before;
    }
    e->ready = false;
    e->ready_next = RUI_SIM_NONE;
}

/* The spans of a frame that has memory behind any of them. */
static bool keep_spans(ru_sim *s, rui_sim_frame *f, const ru_link_tx *tx)
{
    bool memory = false;
    for (uint32_t k = 0; k < tx->n_spans; k++) {
        f->size_bytes += tx->spans[k].size_bytes;
        memory = memory || tx->spans[k].data != NULL;
    }
    if (!memory || f->size_bytes == 0) {
        return true;
    }
    f->spans = malloc(tx->n_spans * sizeof *f->spans);
    if (f->spans == NULL) {
        rui_sim_fail(s, RU_E_MEM, "no memory for the spans of a frame");
        return false;
    }
    memcpy(f->spans, tx->spans, tx->n_spans * sizeof *f->spans);
    f->n_spans = tx->n_spans;
    return true;
}

static void depart(ru_sim *s, rui_sim_node *n, uint32_t frame, int64_t at_ns);

/* May a frame pulled now go without an event of its own? */
static bool is_express(const ru_sim *s, const rui_sim_node *n, uint32_t port, int64_t size)
{
    const rui_sim_port *p = &n->port[port];
    int64_t ahead_ns = p->wire->out_free_ns - s->now_ns; /* of such frames */
    return size <= PACKET_BYTES && p->first == RUI_SIM_NONE &&
           (ahead_ns <= 0 || ahead_ns < wire_ns(n, port, n->nic.queue_bytes));
}

/* Ask one end for a frame; false: it has none now. */
static bool pull(ru_sim *s, rui_sim_node *n, uint32_t id)
{
    rui_sim_conn *c = rui_sim_conn_at(s, id >> 1);
    rui_sim_end *e = &c->end[id & 1];
    rui_sim_port *p = &n->port[c->port];
    int64_t held = (int64_t)e->unsent_bytes + e->unacked_bytes;
    if (held > 0 && (held >= e->window_bytes || e->unsent_bytes > e->notsent_bytes)) {
        e->blocked = true;
        return false;
    }
    int64_t room = e->window_bytes - held;
    room = room < ROOM_MIN_BYTES ? ROOM_MIN_BYTES : room;
    ru_link_tx tx; /* filled by the user; zeroing all of it would cost more than the rest */
    memset(tx.head, 0, sizeof tx.head);
    tx.n_spans = 0;
    tx.cookie = 0;
    if (!n->user.pull(n->user.self, rui_sim_conn_id(c, id >> 1, id & 1), room, &tx,
                      (ru_time){s->now_ns})) {
        return false;
    }
    RU_CHECK(tx.n_spans <= RU_LINK_SPANS_MAX);
    uint32_t frame = rui_sim_frame_new(s);
    if (frame == RUI_SIM_NONE) {
        return false;
    }
    rui_sim_frame *f = rui_sim_frame_at(s, frame);
    memcpy(f->head, tx.head, sizeof f->head);
    f->conn = id >> 1;
    f->generation = c->generation;
    f->to_side = (id & 1) ^ 1;
    f->cookie = tx.cookie;
    f->begin_ns = s->now_ns;
    if (!keep_spans(s, f, &tx)) {
        return false;
    }
    int64_t size = f->size_bytes + RU_LINK_HEAD_BYTES;
    RU_CHECK(f->size_bytes <= RU_LINK_FRAME_MAX);
    e->unsent_bytes += (uint32_t)size;
    rui_sim_charge(s, n, size);
    if (e->pace_bytes_per_s > 0) {
        int64_t from = e->pace_next_ns > s->now_ns ? e->pace_next_ns : s->now_ns;
        e->pace_next_ns = from + (int64_t)((double)size * 1e9 / (double)e->pace_bytes_per_s);
    }
    if (is_express(s, n, c->port, size)) {
        int64_t from = p->wire->out_free_ns > s->now_ns ? p->wire->out_free_ns : s->now_ns;
        p->wire->out_free_ns = from + wire_ns(n, c->port, size);
        depart(s, n, frame, p->wire->out_free_ns);
        return true;
    }
    p->queued_bytes += size;
    if (p->last != RUI_SIM_NONE) {
        rui_sim_frame_at(s, p->last)->next = frame;
    } else {
        p->first = frame;
    }
    p->last = frame;
    return true;
}

static void paced(void *self, uint64_t arg)
{
    uint32_t conn, side;
    rui_sim_conn *c = rui_sim_arg_conn(self, arg, &conn, &side);
    if (c != NULL) {
        c->end[side].blocked = false;
        rui_sim_ready(self, conn, side);
    }
}

static void left(void *self, uint64_t arg);

/* Put the queue's first frame on the wire. */
static void begin(ru_sim *s, rui_sim_node *n, uint32_t port)
{
    rui_sim_port *p = &n->port[port];
    while (!p->busy && p->first != RUI_SIM_NONE) {
        uint32_t frame = p->first;
        rui_sim_frame *f = rui_sim_frame_at(s, frame);
        if (f->dropped) {
            p->first = f->next;
            p->last = p->first == RUI_SIM_NONE ? RUI_SIM_NONE : p->last;
            p->queued_bytes -= f->size_bytes + RU_LINK_HEAD_BYTES;
            rui_sim_frame_free(s, frame);
            continue;
        }
        p->busy = true;
        int64_t from = p->wire->out_free_ns > s->now_ns ? p->wire->out_free_ns : s->now_ns;
        p->wire->out_free_ns = from + wire_ns(n, port, f->size_bytes + RU_LINK_HEAD_BYTES);
        ru_sim_at(s, (ru_time){p->wire->out_free_ns}, left, s, (uint64_t)n->index << 1 | port);
    }
}

/* Let ends take turns while the queue has room, and keep the wire busy. */
static void serve(ru_sim *s, rui_sim_node *n, uint32_t port)
{
    rui_sim_port *p = &n->port[port];
    begin(s, n, port);
    if (n->frozen_until_ns > s->now_ns || !n->alive || n->user.pull == NULL) {
        return;
    }
    while (p->ready_first != RUI_SIM_NONE && p->queued_bytes < n->nic.queue_bytes &&
           n->frozen_until_ns <= s->now_ns && s->failed == RU_OK) {
        uint32_t id = p->ready_first;
        rui_sim_conn *c = rui_sim_conn_at(s, id >> 1);
        rui_sim_end *e = &c->end[id & 1];
        unready_first(s, p);
        if (e->pace_next_ns > s->now_ns) {
            e->blocked = true;
            ru_sim_at(s, (ru_time){e->pace_next_ns}, paced, s, rui_sim_end_arg(c, id >> 1, id & 1));
            continue;
        }
        if (pull(s, n, id)) {
            rui_sim_ready(s, id >> 1, id & 1); /* to the end of the list: turns */
            begin(s, n, port);
        }
    }
}

void rui_sim_serve(ru_sim *s)
{
    while (s->dirty_first != RUI_SIM_NONE && s->failed == RU_OK) {
        uint32_t id = s->dirty_first;
        rui_sim_node *n = s->nodes[id >> 1];
        rui_sim_port *p = &n->port[id & 1];
        serve(s, n, id & 1); /* still marked: its own turns need no second visit */
        s->dirty_first = p->dirty_next;
        if (s->dirty_first == RUI_SIM_NONE) {
            s->dirty_last = RUI_SIM_NONE;
        }
        p->dirty = false;
    }
}

static void copy_payload(ru_sim *s, rui_sim_frame *f)
{
    if (f->spans == NULL) {
        return;
    }
    f->payload = malloc((size_t)f->size_bytes);
    if (f->payload == NULL) {
        rui_sim_fail(s, RU_E_MEM, "no memory for a payload of %lld bytes",
                     (long long)f->size_bytes);
        return;
    }
    int64_t at = 0;
    for (uint32_t k = 0; k < f->n_spans; k++) {
        if (f->spans[k].data != NULL) {
            memcpy(f->payload + at, f->spans[k].data, (size_t)f->spans[k].size_bytes);
        } else {
            memset(f->payload + at, 0, (size_t)f->spans[k].size_bytes);
        }
        at += f->spans[k].size_bytes;
    }
    free(f->spans);
    f->spans = NULL;
}

bool ru_sim_reads(const ru_sim *s, const void *data, int64_t size_bytes)
{
    const uint8_t *from = data, *to = from + size_bytes;
    for (uint32_t i = 0; i < s->frames_n; i++) {
        const rui_sim_frame *f = rui_sim_frame_at(s, i);
        for (uint32_t k = 0; f->spans != NULL && !f->dropped && k < f->n_spans; k++) {
            const uint8_t *at = f->spans[k].data;
            if (at != NULL && at < to && from < at + f->spans[k].size_bytes) {
                return true;
            }
        }
    }
    return false;
}

/* `sent` for a process that was frozen when it happened; arg: a frame used as a note. */
static void tell_sent(void *self, uint64_t arg)
{
    ru_sim *s = self;
    uint32_t frame = (uint32_t)arg;
    rui_sim_frame *f = rui_sim_frame_at(s, frame);
    rui_sim_conn *c = rui_sim_conn_at(s, f->conn);
    uint32_t side = f->to_side, conn = f->conn;
    uint64_t cookie = f->cookie;
    bool stands =
        c->used && c->generation == f->generation && c->end[side].state != RUI_SIM_END_CLOSED;
    rui_sim_frame_free(s, frame);
    if (!stands) {
        return;
    }
    rui_sim_node *n = s->nodes[c->end[side].node];
    if (n->user.sent != NULL) {
        n->user.sent(n->user.self, rui_sim_conn_id(c, conn, side), cookie, (ru_time){s->now_ns});
    }
}

static void say_sent(ru_sim *s, rui_sim_node *n, const rui_sim_frame *f)
{
    if (!n->alive || n->user.sent == NULL) {
        return;
    }
    if (n->frozen_until_ns <= s->now_ns) {
        const rui_sim_conn *c = rui_sim_conn_at(s, f->conn);
        n->user.sent(n->user.self, rui_sim_conn_id(c, f->conn, f->to_side ^ 1), f->cookie,
                     (ru_time){s->now_ns});
        return;
    }
    uint32_t note = rui_sim_frame_new(s);
    if (note == RUI_SIM_NONE) {
        return;
    }
    rui_sim_frame *g = rui_sim_frame_at(s, note);
    g->conn = f->conn;
    g->generation = f->generation;
    g->to_side = f->to_side ^ 1;
    g->cookie = f->cookie;
    ru_sim_at_node(s, n->index, (ru_time){n->frozen_until_ns}, tell_sent, s, note);
}

/* The last byte of the port's first frame is on its way. */
static void left(void *self, uint64_t arg)
{
    ru_sim *s = self;
    rui_sim_node *n = s->nodes[arg >> 1];
    rui_sim_port *p = &n->port[arg & 1];
    uint32_t frame = p->first;
    rui_sim_frame *f = rui_sim_frame_at(s, frame);
    int64_t size = f->size_bytes + RU_LINK_HEAD_BYTES;
    p->first = f->next;
    p->last = p->first == RUI_SIM_NONE ? RUI_SIM_NONE : p->last;
    f->next = RUI_SIM_NONE;
    p->queued_bytes -= size;
    p->busy = false;
    rui_sim_dirty(s, n->index, arg & 1);
    if (f->dropped) {
        rui_sim_frame_free(s, frame);
        return;
    }
    depart(s, n, frame, s->now_ns);
}

/* The last byte of a frame is on its way at at_ns; its memory is the user's again. */
static void depart(ru_sim *s, rui_sim_node *n, uint32_t frame, int64_t at_ns)
{
    rui_sim_frame *f = rui_sim_frame_at(s, frame);
    int64_t size = f->size_bytes + RU_LINK_HEAD_BYTES;
    rui_sim_conn *c = rui_sim_conn_at(s, f->conn);
    uint32_t side = f->to_side ^ 1;
    rui_sim_end *e = &c->end[side];
    e->unsent_bytes -= (uint32_t)size;
    e->unacked_bytes += (uint32_t)size;
    if (e->blocked && e->pace_next_ns <= s->now_ns && e->unsent_bytes <= e->notsent_bytes &&
        (int64_t)e->unsent_bytes + e->unacked_bytes < e->window_bytes) {
        e->blocked = false;
        rui_sim_ready(s, f->conn, side);
    }
    n->stats.tx_frames++;
    n->stats.tx_bytes += size;
    copy_payload(s, f);
    if (s->failed != RU_OK) {
        return;
    }
    rui_sim_frame note = *f; /* the frame may be gone after travelling */
    bool fails = rui_sim_operation_fails(s, e->node);
    if (e->state == RUI_SIM_END_DEAF || fails) {
        rui_sim_frame_free(s, frame);
    } else {
        rui_sim_travel(s, frame, at_ns);
    }
    if (fails) {
        rui_sim_say_ended(s, note.conn, side, RU_E_IO);
        rui_sim_end_close(s, note.conn, side, RU_E_IO, "an operation failed, as asked for");
        return;
    }
    if (e->state == RUI_SIM_END_DEAF) {
        rui_sim_give_up(s, note.conn, side);
    }
    say_sent(s, n, &note);
}

void rui_sim_end_drop(ru_sim *s, uint32_t conn, uint32_t side)
{
    rui_sim_conn *c = rui_sim_conn_at(s, conn);
    rui_sim_end *e = &c->end[side];
    rui_sim_port *p = &s->nodes[e->node]->port[c->port];
    if (e->ready) {
        unready(s, p, conn << 1 | side);
    }
    for (uint32_t k = p->first; k != RUI_SIM_NONE; k = rui_sim_frame_at(s, k)->next) {
        rui_sim_frame *f = rui_sim_frame_at(s, k);
        if (f->conn == conn && f->generation == c->generation && f->to_side == (side ^ 1)) {
            f->dropped = true;
            free(f->spans); /* the memory behind it is the user's again */
            f->spans = NULL;
        }
    }
    while (e->first != RUI_SIM_NONE) {
        uint32_t frame = e->first;
        e->first = rui_sim_frame_at(s, frame)->next;
        rui_sim_frame_free(s, frame);
    }
    e->last = RUI_SIM_NONE;
    e->halfway = false;
}

/* -- on the way, incoming -------------------------------------------------------------------------
 */

/* The frame's receiving end while it still takes frames, else NULL. */
static rui_sim_end *receiver(const ru_sim *s, const rui_sim_frame *f)
{
    rui_sim_conn *c = rui_sim_conn_at(s, f->conn);
    if (!c->used || c->generation != f->generation ||
        c->end[f->to_side].state == RUI_SIM_END_CLOSED) {
        return NULL;
    }
    return &c->end[f->to_side];
}

static void through(void *self, uint64_t arg)
{
    ru_sim *s = self;
    uint32_t frame = (uint32_t)arg;
    const rui_sim_frame *f = rui_sim_frame_at(s, frame);
    if (receiver(s, f) == NULL) {
        rui_sim_frame_free(s, frame);
        return;
    }
    rui_sim_arrived(s, frame);
}

/* The interface takes a frame whose last byte is here now: when will the end have it? */
static void take_in(const ru_sim *s, rui_sim_node *n, rui_sim_end *e, int64_t size)
{
    rui_sim_port *p = &n->port[0];
    int64_t took = wire_ns(n, 0, size), from_ns = s->now_ns - took;
    if (size <= PACKET_BYTES) {
        p->wire->in_free_ns += p->wire->in_free_ns > s->now_ns ? took : 0;
        return;
    }
    p->wire->in_free_ns = (p->wire->in_free_ns > from_ns ? p->wire->in_free_ns : from_ns) + took;
    e->through_ns = p->wire->in_free_ns > e->through_ns ? p->wire->in_free_ns : e->through_ns;
}

/* At the receiver's interface. */
static void at_door(void *self, uint64_t arg)
{
    ru_sim *s = self;
    uint32_t frame = (uint32_t)arg;
    rui_sim_frame *f = rui_sim_frame_at(s, frame);
    rui_sim_conn *c = rui_sim_conn_at(s, f->conn);
    bool forgotten = f->kind == RUI_SIM_DATA && c->end[f->to_side ^ 1].gave_up;
    if (!c->used || c->generation != f->generation || forgotten) {
        rui_sim_frame_free(s, frame);
        return;
    }
    uint32_t from = f->to_side ^ 1, conn = f->conn;
    rui_sim_end *e = &c->end[f->to_side];
    rui_sim_node *n = s->nodes[e->node];
    if (n->vanished) {
        rui_sim_frame_free(s, frame);
        rui_sim_give_up(s, conn, from);
        return;
    }
    int64_t cut_ns = c->port == 1 ? 0 : rui_sim_cut_until_ns(s, c->end[from].node, e->node);
    if (e->state == RUI_SIM_END_CLOSED && cut_ns <= s->now_ns) {
        rui_sim_frame_free(s, frame);
        if (e->gave_up) { /* nobody knows this connection any more: reset */
            rui_sim_say_ended(s, conn, from ^ 1, RU_E_PEER);
        }
        return;
    }
    if (cut_ns > s->now_ns) { /* lost; sent again when the kernel tries again */
        int64_t again = cut_ns + RUI_SIM_RETRANSMIT_NS;
        if (again - s->now_ns > RUI_SIM_USER_TIMEOUT_NS) {
            rui_sim_give_up(s, conn, from);
        }
        e->in_order_ns = again > e->in_order_ns ? again : e->in_order_ns;
    } else if (f->seq != e->seq_next && !c->end[from].gave_up) { /* an earlier one is late */
        e->in_order_ns = e->in_order_ns > s->now_ns ? e->in_order_ns : s->now_ns + 1;
    } else {
        e->seq_next++;
        if (c->port == 0 && f->kind == RUI_SIM_DATA) {
            take_in(s, n, e, f->size_bytes + RU_LINK_HEAD_BYTES);
        }
        if (e->through_ns >= s->now_ns) { /* at the same instant the one before goes first */
            ru_sim_at(s, (ru_time){e->through_ns}, through, s, frame);
        } else {
            rui_sim_arrived(s, frame);
        }
        return;
    }
    ru_sim_at(s, (ru_time){e->in_order_ns}, at_door, s, frame);
}

static void lines_near(const void *at, int64_t size_bytes)
{
    for (int64_t k = 0; at != NULL && k < size_bytes; k += 64) {
        __builtin_prefetch((const uint8_t *)at + k);
    }
}

void rui_sim_wire_near(const ru_sim *s, ru_sim_fn fn, uint64_t arg, bool next)
{
    if (fn != at_door && fn != through) {
        return;
    }
    const rui_sim_frame *f = rui_sim_frame_at(s, (uint32_t)arg);
    if (!next) {
        lines_near(f, (int64_t)sizeof *f);
        return;
    }
    lines_near(rui_sim_conn_at(s, f->conn), (int64_t)sizeof(rui_sim_conn));
    lines_near(s->nodes[f->to_node], (int64_t)sizeof(rui_sim_node));
    lines_near(s->users[f->to_node], USER_BYTES);
}

void rui_sim_travel(ru_sim *s, uint32_t frame, int64_t left_ns)
{
    rui_sim_frame *f = rui_sim_frame_at(s, frame);
    rui_sim_conn *c = rui_sim_conn_at(s, f->conn);
    rui_sim_end *to = &c->end[f->to_side], *from = &c->end[f->to_side ^ 1];
    f->seq = from->seq_sent++;
    f->to_node = to->node;
    int64_t at_ns = left_ns + rui_sim_delay_ns(s, c, f->to_side ^ 1);
    if (s->chaos_on && s->chaos.jitter_ns > 0) {
        at_ns += (int64_t)ru_rng_below_u64(&s->rng_wire, (uint64_t)s->chaos.jitter_ns);
    }
    if (to->in_order_ns > at_ns) {
        at_ns = to->in_order_ns;
    }
    to->in_order_ns = at_ns;
    rui_sim_node *n = s->nodes[from->node];
    s->overtaken += n->last_to == to->node + 1 && at_ns < n->last_at_ns ? 1 : 0;
    n->last_to = to->node + 1;
    n->last_at_ns = at_ns;
    ru_sim_at(s, (ru_time){at_ns}, at_door, s, frame);
}
