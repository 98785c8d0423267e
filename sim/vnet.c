/* Connections: opening, ending, and the operations of a simulated link (env/link/link.h).
 *
 *   connect --delay--> there? --no--> `closed` RU_E_AGAIN after another delay
 *                        |yes: the accepting end stands; --delay--> `opened` here, and word goes to
 *                        the other side, where it is `opened` before the first frame
 *
 * Word of an end (a dead process, a closed connection, a reset) travels like a frame, in order
 * after what is on its way. An end that pauses or sleeps when it comes loses what waits for it, as
 * after a TCP reset. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_impl.h"

#define NIC_BYTES_PER_S     1.25e9
#define NIC_DELAY_NS        10000
#define NIC_QUEUE_BYTES     (256 << 10)
#define NIC_QUEUE_MIN_BYTES (4 << 10)
#define LOCAL_BYTES_PER_S   1e10
#define LOCAL_DELAY_NS      2000
#define WINDOW_MIN_BYTES    (4 << 20)
#define WINDOW_MAX_BYTES    (1 << 30)
#define HALVES_MAX_NS       200000

ru_conn_id rui_sim_conn_id(const rui_sim_conn *c, uint32_t conn, uint32_t side)
{
    return (ru_conn_id){(c->generation & 0xff) << 24 | conn << 1 | side};
}

/* The connection an id of this node names; NULL for stale ids. */
static rui_sim_conn *conn_of(const rui_sim_node *n, ru_conn_id id, uint32_t *conn, uint32_t *side)
{
    *conn = (id.v & 0xffffff) >> 1;
    *side = id.v & 1;
    if (id.v == 0 || *conn >= n->sim->conns_n) {
        return NULL;
    }
    rui_sim_conn *c = rui_sim_conn_at(n->sim, *conn);
    if (!c->used || (c->generation & 0xff) != id.v >> 24 || c->end[*side].node != n->index ||
        c->end[*side].state == RUI_SIM_END_CLOSED) {
        return NULL;
    }
    return c;
}

void rui_sim_conn_put(ru_sim *s, uint32_t conn)
{
    rui_sim_conn *c = rui_sim_conn_at(s, conn);
    if (c->end[0].state != RUI_SIM_END_CLOSED || c->end[1].state != RUI_SIM_END_CLOSED) {
        return;
    }
    c->used = false;
    c->next_free = RUI_SIM_NONE;
    if (s->conn_free_last != RUI_SIM_NONE) {
        rui_sim_conn_at(s, s->conn_free_last)->next_free = conn;
    } else {
        s->conn_free_first = conn;
    }
    s->conn_free_last = conn;
}

/* The end is over without a word to its user. */
static void end_over(ru_sim *s, uint32_t conn, uint32_t side)
{
    rui_sim_conn *c = rui_sim_conn_at(s, conn);
    if (c->end[side].state == RUI_SIM_END_CLOSED) {
        return;
    }
    rui_sim_end_drop(s, conn, side);
    c->end[side].state = RUI_SIM_END_CLOSED;
    s->nodes[c->end[side].node]->stats.conns--;
}

static void tell_closed(ru_sim *s, uint32_t node, ru_conn_id id, ru_status why,
                        const char *sentence)
{
    rui_sim_node *n = s->nodes[node];
    if (n->alive && n->user.closed != NULL) {
        n->user.closed(n->user.self, id, why, sentence, (ru_time){s->now_ns});
    }
}

void rui_sim_end_close(ru_sim *s, uint32_t conn, uint32_t side, ru_status why, const char *sentence)
{
    rui_sim_conn *c = rui_sim_conn_at(s, conn);
    if (c->end[side].state == RUI_SIM_END_CLOSED) {
        return;
    }
    ru_conn_id id = rui_sim_conn_id(c, conn, side);
    uint32_t node = c->end[side].node;
    end_over(s, conn, side);
    rui_sim_conn_put(s, conn);
    tell_closed(s, node, id, why, sentence);
}

/* A frame that carries word instead of data. */
static void say(ru_sim *s, uint32_t conn, uint32_t from_side, rui_sim_frame_kind kind,
                ru_status why)
{
    uint32_t frame = rui_sim_frame_new(s);
    if (frame == RUI_SIM_NONE) {
        return;
    }
    rui_sim_frame *f = rui_sim_frame_at(s, frame);
    f->kind = (uint8_t)kind;
    f->why = (uint8_t)why;
    f->conn = conn;
    f->generation = rui_sim_conn_at(s, conn)->generation;
    f->to_side = (uint8_t)(from_side ^ 1);
    rui_sim_travel(s, frame, s->now_ns);
}

void rui_sim_say_ended(ru_sim *s, uint32_t conn, uint32_t from_side, ru_status why)
{
    const rui_sim_end *to = &rui_sim_conn_at(s, conn)->end[from_side ^ 1];
    if (to->state == RUI_SIM_END_CLOSED) {
        return;
    }
    bool waits = to->state == RUI_SIM_END_OPENING && from_side == 1; /* for the answer */
    say(s, conn, from_side, RUI_SIM_ENDED, waits ? RU_E_AGAIN : why);
}

static void gave_up(void *self, uint64_t arg)
{
    ru_sim *s = self;
    uint32_t conn, side;
    rui_sim_conn *c = rui_sim_arg_conn(s, arg, &conn, &side);
    if (c == NULL || c->end[side].state == RUI_SIM_END_CLOSED) {
        return;
    }
    rui_sim_end *e = &c->end[side];
    const rui_sim_node *peer = s->nodes[c->end[side ^ 1].node];
    e->gives_up = false;
    bool lost = peer->vanished || e->state == RUI_SIM_END_DEAF ||
                rui_sim_cut_until_ns(s, e->node, peer->index) > s->now_ns;
    if (lost && e->unacked_bytes > 0) {
        e->gave_up = true;
        rui_sim_end_close(s, conn, side, RU_E_IO, "the other side does not acknowledge");
    }
}

void rui_sim_give_up(ru_sim *s, uint32_t conn, uint32_t side)
{
    rui_sim_conn *c = rui_sim_conn_at(s, conn);
    if (c->end[side].gives_up || c->end[side].state == RUI_SIM_END_CLOSED) {
        return;
    }
    c->end[side].gives_up = true;
    ru_sim_at_node(s, c->end[side].node, (ru_time){s->now_ns + RUI_SIM_USER_TIMEOUT_NS}, gave_up, s,
                   rui_sim_end_arg(c, conn, side));
}

/* -- arriving -------------------------------------------------------------------------------------
 */

/* The other end may send more. */
static void acknowledge(void *self, uint64_t arg)
{
    uint32_t conn, side;
    rui_sim_conn *c = rui_sim_arg_conn(self, arg, &conn, &side);
    if (c != NULL && c->end[side].blocked) {
        c->end[side].blocked = false;
        rui_sim_ready(self, conn, side);
    }
}

static void taken(ru_sim *s, rui_sim_conn *c, const rui_sim_frame *f)
{
    uint32_t side = f->to_side ^ 1u;
    rui_sim_end *e = &c->end[side];
    int64_t size = f->size_bytes + RU_LINK_HEAD_BYTES;
    int64_t from_ns = e->delivered_ns > f->begin_ns ? e->delivered_ns : f->begin_ns;
    if (s->now_ns > from_ns) {
        e->delivery_bytes_per_s = (float)((double)size * 1e9 / (double)(s->now_ns - from_ns));
    }
    e->delivered_ns = s->now_ns;
    e->unacked_bytes -= (uint32_t)size;
    e->acked_bytes += size;
    if (e->blocked && e->pace_next_ns <= s->now_ns) {
        ru_sim_at(s, (ru_time){s->now_ns + rui_sim_delay_ns(s, c, f->to_side)}, acknowledge, s,
                  rui_sim_end_arg(c, f->conn, side));
    }
}

/* Bytes of one part of a place; -1: not what fits behind `at`. */
static int64_t part_bytes(const rui_sim_frame *f, const ru_link_rx *rx, int64_t at)
{
    int64_t n = 0;
    RU_CHECK(rx->n_spans <= RU_LINK_SPANS_MAX);
    for (uint32_t k = 0; k < rx->n_spans; k++) {
        int64_t size = rx->spans[k].size_bytes;
        if (size < 0 || size > f->size_bytes - at - n) {
            return -1;
        }
        n += size;
    }
    bool right = rx->more ? n > 0 && at + n < f->size_bytes : at + n == f->size_bytes;
    return right ? n : -1;
}

/* Put bytes [from, to) of a part that begins at f->part_at into its spans. */
static void place(const rui_sim_frame *f, const ru_link_rx *rx, int64_t from, int64_t to)
{
    int64_t at = 0;
    for (uint32_t k = 0; f->payload != NULL && k < rx->n_spans; k++) {
        const ru_span *span = &rx->spans[k];
        int64_t first = from > at ? from : at;
        int64_t end = at + span->size_bytes < to ? at + span->size_bytes : to;
        if (span->data != NULL && end > first) {
            memcpy((uint8_t *)span->data + (first - at), f->payload + f->part_at + first,
                   (size_t)(end - first));
        }
        at += span->size_bytes;
    }
}

/* Close an end whose user refused a frame; the other side hears it. */
static void refuse(ru_sim *s, uint32_t conn, uint32_t side, ru_status why)
{
    rui_sim_say_ended(s, conn, side, RU_E_PEER);
    rui_sim_end_close(s, conn, side, why, "the frame was refused");
}

/* A frame that waits, to the front of its end's list. */
static void put_back(ru_sim *s, rui_sim_end *e, uint32_t frame)
{
    rui_sim_frame_at(s, frame)->next = e->first;
    e->first = frame;
    e->last = e->last == RUI_SIM_NONE ? frame : e->last;
}

/* The payload is in place: `body`. false: the end is gone. */
static bool finish(ru_sim *s, rui_sim_node *n, uint32_t frame)
{
    rui_sim_frame *f = rui_sim_frame_at(s, frame);
    rui_sim_conn *c = rui_sim_conn_at(s, f->conn);
    uint32_t conn = f->conn, side = f->to_side, generation = c->generation;
    n->stats.rx_frames++;
    n->stats.rx_bytes += f->size_bytes + RU_LINK_HEAD_BYTES;
    rui_sim_charge(s, n, f->size_bytes + RU_LINK_HEAD_BYTES);
    taken(s, c, f);
    rui_sim_frame_free(s, frame);
    ru_status st = n->user.body(n->user.self, rui_sim_conn_id(c, conn, side), (ru_time){s->now_ns});
    bool stands = c->used && c->generation == generation && c->end[side].state != 0;
    if (stands && st != RU_OK) {
        refuse(s, conn, side, st);
        stands = false;
    }
    return stands && s->failed == RU_OK;
}

static void rest(void *self, uint64_t arg);

/* Half of the part is there; the end stands still until the rest comes. */
static bool halve(ru_sim *s, rui_sim_node *n, uint32_t frame, const ru_link_rx *rx, int64_t bytes)
{
    rui_sim_frame *f = rui_sim_frame_at(s, frame);
    rui_sim_conn *c = rui_sim_conn_at(s, f->conn);
    f->rx = f->rx != NULL ? f->rx : malloc(sizeof *f->rx);
    if (f->rx == NULL) {
        rui_sim_fail(s, RU_E_MEM, "no memory for the place of a payload");
        return false;
    }
    memcpy(f->rx, rx, sizeof *rx);
    place(f, rx, 0, bytes / 2);
    c->end[f->to_side].halfway = true;
    int64_t later_ns = 1 + (int64_t)ru_rng_below(&s->rng_wire, HALVES_MAX_NS);
    ru_sim_at_node(s, n->index, (ru_time){s->now_ns + later_ns}, rest, s,
                   rui_sim_end_arg(c, f->conn, f->to_side));
    return true;
}

/* Ask where the parts of a frame from f->part_at on go, and put them there. false: the end waits or
 * is gone; the frame stays the caller's when it waits. */
static bool give(ru_sim *s, rui_sim_node *n, uint32_t frame)
{
    rui_sim_frame *f = rui_sim_frame_at(s, frame);
    rui_sim_conn *c = rui_sim_conn_at(s, f->conn);
    uint32_t conn = f->conn, side = f->to_side, generation = c->generation;
    ru_link_rx rx;
    for (rx.more = true; rx.more;) {
        rx.n_spans = 0;
        rx.more = false;
        ru_status st = n->user.head(n->user.self, rui_sim_conn_id(c, conn, side), f->head, &rx,
                                    (ru_time){s->now_ns});
        bool stands = c->used && c->generation == generation && c->end[side].state != 0;
        if (stands && st == RU_E_AGAIN && f->part_at == 0) {
            c->end[side].paused = true;
            return false;
        }
        int64_t bytes = st == RU_OK ? part_bytes(f, &rx, f->part_at) : 0;
        if (bytes < 0) {
            rui_sim_fail(s, RU_E_ARG, "a frame of %lld bytes was given a place of another size",
                         (long long)f->size_bytes);
        }
        if (!stands || st != RU_OK || bytes < 0) {
            rui_sim_frame_free(s, frame);
            if (stands && st != RU_OK) {
                refuse(s, conn, side, st);
            }
            return false;
        }
        if (s->opt.halves && f->payload != NULL && bytes > 1) {
            if (!halve(s, n, frame, &rx, bytes)) {
                rui_sim_frame_free(s, frame);
            }
            return false;
        }
        place(f, &rx, 0, bytes);
        f->part_at += bytes;
    }
    return finish(s, n, frame);
}

/* The second half of a part of an end's first frame. */
static void rest(void *self, uint64_t arg)
{
    ru_sim *s = self;
    uint32_t conn, side;
    rui_sim_conn *c = rui_sim_arg_conn(s, arg, &conn, &side);
    if (c == NULL || !c->end[side].halfway) {
        return;
    }
    rui_sim_end *e = &c->end[side];
    rui_sim_node *n = s->nodes[e->node];
    uint32_t frame = e->first, generation = c->generation;
    rui_sim_frame *f = rui_sim_frame_at(s, frame);
    RU_CHECK(f->rx != NULL);
    e->halfway = false;
    e->first = f->next;
    e->last = e->first == RUI_SIM_NONE ? RUI_SIM_NONE : e->last;
    f->next = RUI_SIM_NONE;
    int64_t bytes = part_bytes(f, f->rx, f->part_at);
    place(f, f->rx, bytes / 2, bytes);
    f->part_at += bytes;
    if (f->rx->more ? give(s, n, frame) : finish(s, n, frame)) {
        rui_sim_deliver(s, conn, side);
    } else if (c->used && c->generation == generation && e->halfway) {
        put_back(s, e, frame);
    }
}

/* An end's first frame goes to its user. false: no more now. */
static bool step(ru_sim *s, rui_sim_node *n, uint32_t conn, uint32_t side)
{
    rui_sim_conn *c = rui_sim_conn_at(s, conn);
    rui_sim_end *e = &c->end[side];
    uint32_t frame = e->first, generation = c->generation;
    rui_sim_frame *f = rui_sim_frame_at(s, frame);
    e->first = f->next;
    e->last = e->first == RUI_SIM_NONE ? RUI_SIM_NONE : e->last;
    f->next = RUI_SIM_NONE;
    if (f->kind == RUI_SIM_OPENED) {
        rui_sim_frame_free(s, frame);
        e->state = RUI_SIM_END_OPEN;
        if (n->user.opened != NULL) {
            n->user.opened(n->user.self, rui_sim_conn_id(c, conn, side), true,
                           s->nodes[c->end[side ^ 1].node]->address, (ru_time){s->now_ns});
        }
        return c->used && c->generation == generation && e->state != RUI_SIM_END_CLOSED;
    }
    if (f->kind == RUI_SIM_ENDED) {
        ru_status why = (ru_status)f->why;
        rui_sim_frame_free(s, frame);
        if (e->state == RUI_SIM_END_OPENING && side == 1) { /* never heard of it */
            end_over(s, conn, side);
            rui_sim_conn_put(s, conn);
            return false;
        }
        why = why == RU_E_AGAIN && e->state == RUI_SIM_END_OPEN ? RU_E_PEER : why;
        rui_sim_end_close(s, conn, side, why,
                          why == RU_E_PEER    ? "the other process ended it"
                          : why == RU_E_AGAIN ? "nobody listens there"
                                              : "the connection was reset");
        return false;
    }
    if (give(s, n, frame)) {
        return true;
    }
    bool same = c->used && c->generation == generation && e->state != RUI_SIM_END_CLOSED;
    if (same && (e->paused || e->halfway)) {
        put_back(s, e, frame);
    }
    return false;
}

void rui_sim_deliver(ru_sim *s, uint32_t conn, uint32_t side)
{
    rui_sim_conn *c = rui_sim_conn_at(s, conn);
    rui_sim_end *e = &c->end[side];
    rui_sim_node *n = s->nodes[e->node];
    while (e->first != RUI_SIM_NONE && !e->paused && !e->halfway && n->alive &&
           n->frozen_until_ns <= s->now_ns && s->failed == RU_OK) {
        if (!step(s, n, conn, side)) {
            break;
        }
    }
}

void rui_sim_arrived(ru_sim *s, uint32_t frame)
{
    rui_sim_frame *f = rui_sim_frame_at(s, frame);
    rui_sim_conn *c = rui_sim_conn_at(s, f->conn);
    rui_sim_end *e = &c->end[f->to_side];
    if (f->kind == RUI_SIM_DATA) {
        uint64_t name;
        memcpy(&name, f->head, sizeof name);
        for (uint32_t k = 8; k < RU_LINK_HEAD_BYTES; k += 8) {
            rui_sim_mix(s, name);
            memcpy(&name, f->head + k, sizeof name);
        }
        rui_sim_mix(s, name);
    }
    bool cut_short = e->paused || e->halfway || s->nodes[e->node]->sleeps;
    if (f->kind == RUI_SIM_ENDED && cut_short) { /* what waits is lost */
        e->paused = e->halfway = false;
        while (e->first != RUI_SIM_NONE) {
            uint32_t lost = e->first;
            e->first = rui_sim_frame_at(s, lost)->next;
            rui_sim_frame_free(s, lost);
        }
        e->last = RUI_SIM_NONE;
    }
    uint32_t conn = f->conn, side = f->to_side;
    f->next = RUI_SIM_NONE;
    if (e->last != RUI_SIM_NONE) {
        rui_sim_frame_at(s, e->last)->next = frame;
    } else {
        e->first = frame;
    }
    e->last = frame;
    rui_sim_deliver(s, conn, side);
}

void rui_sim_thaw(ru_sim *s, uint32_t node)
{
    rui_sim_node *n = s->nodes[node];
    for (uint32_t k = 0; k < s->conns_n && n->alive; k++) {
        for (uint32_t side = 0; side < 2; side++) {
            const rui_sim_conn *c = rui_sim_conn_at(s, k);
            if (c->used && c->end[side].node == node && c->end[side].state != RUI_SIM_END_CLOSED) {
                rui_sim_deliver(s, k, side);
            }
        }
    }
    rui_sim_dirty(s, node, 0);
    rui_sim_dirty(s, node, 1);
}

/* -- opening --------------------------------------------------------------------------------------
 */

static void answered(void *self, uint64_t arg)
{
    ru_sim *s = self;
    uint32_t conn, side;
    rui_sim_conn *c = rui_sim_arg_conn(s, arg, &conn, &side);
    if (c == NULL || c->end[0].state != RUI_SIM_END_OPENING) {
        return;
    }
    rui_sim_node *n = s->nodes[c->end[0].node];
    c->end[0].state = RUI_SIM_END_OPEN;
    say(s, conn, 0, RUI_SIM_OPENED, RU_OK);
    if (n->user.opened != NULL) {
        n->user.opened(n->user.self, rui_sim_conn_id(c, conn, 0), false,
                       s->nodes[c->end[1].node]->address, (ru_time){s->now_ns});
    }
}

static void refused(void *self, uint64_t arg)
{
    uint32_t conn, side;
    if (rui_sim_arg_conn(self, arg, &conn, &side) != NULL) {
        rui_sim_end_close(self, conn, 0, RU_E_PEER, "nobody listens there");
    }
}

static void unanswered(void *self, uint64_t arg)
{
    uint32_t conn, side;
    if (rui_sim_arg_conn(self, arg, &conn, &side) != NULL) {
        rui_sim_end_close(self, conn, 0, RU_E_AGAIN, "no answer");
    }
}

/* The first packet is at the other host. */
static void asked(void *self, uint64_t arg)
{
    ru_sim *s = self;
    uint32_t conn, side;
    rui_sim_conn *c = rui_sim_arg_conn(s, arg, &conn, &side);
    if (c == NULL || c->end[0].state != RUI_SIM_END_OPENING) {
        return;
    }
    const rui_sim_node *from = s->nodes[c->end[0].node], *n = s->nodes[c->end[1].node];
    int64_t delay = rui_sim_delay_ns(s, c, 1);
    int64_t cut_ns = c->port == 1 ? 0 : rui_sim_cut_until_ns(s, from->index, n->index);
    int64_t begun_ns = c->end[0].delivered_ns;
    if (n->vanished || cut_ns > s->now_ns) {
        int64_t again_ns = n->vanished ? INT64_MAX : cut_ns + RUI_SIM_RETRANSMIT_NS;
        bool late = again_ns - begun_ns > RUI_SIM_CONNECT_NS;
        ru_sim_at_node(s, from->index, (ru_time){late ? begun_ns + RUI_SIM_CONNECT_NS : again_ns},
                       late ? unanswered : asked, s, arg);
        return;
    }
    if (!n->alive) {
        ru_sim_at_node(s, from->index, (ru_time){s->now_ns + delay}, refused, s, arg);
        return;
    }
    c->end[1].state = RUI_SIM_END_OPENING;
    s->nodes[c->end[1].node]->stats.conns++;
    ru_sim_at_node(s, from->index, (ru_time){s->now_ns + delay}, answered, s, arg);
}

static uint32_t window_bytes(const rui_sim_node *n, uint32_t port)
{
    double rate = port == 1 ? n->nic.local_bytes_per_s : n->nic.bytes_per_s;
    double delay = (double)(port == 1 ? n->nic.local_delay_ns : n->nic.delay_ns) * 1e-9;
    double want = n->nic.window_bytes > 0 ? (double)n->nic.window_bytes : 4 * rate * delay;
    if (n->nic.window_bytes == 0 && want < WINDOW_MIN_BYTES) {
        want = WINDOW_MIN_BYTES;
    }
    return want > WINDOW_MAX_BYTES ? WINDOW_MAX_BYTES : (uint32_t)want;
}

static void end_init(ru_sim *s, rui_sim_conn *c, uint32_t side, uint32_t node)
{
    rui_sim_end *e = &c->end[side];
    e->node = node;
    e->window_bytes = window_bytes(s->nodes[node], c->port);
    e->notsent_bytes = e->window_bytes;
}

static ru_status link_connect(void *self, const char *address, ru_link_class class, ru_conn_id *id,
                              ru_err *err)
{
    rui_sim_node *n = self;
    ru_sim *s = n->sim;
    if (address == NULL || address[0] == '\0' || strchr(address, ':') == NULL) {
        return RU_FAIL(err, RU_E_ARG, "'%s' is not an address of the form host:port",
                       address != NULL ? address : "");
    }
    if (rui_sim_operation_fails(s, n->index)) {
        return RU_FAIL(err, RU_E_LIMIT, "the operation fails, as asked for");
    }
    uint32_t conn = rui_sim_conn_new(s);
    if (conn == RUI_SIM_NONE) {
        return RU_FAIL(err, RU_E_LIMIT, "more than %d connections", RU_SIM_CONNS_MAX);
    }
    rui_sim_conn *c = rui_sim_conn_at(s, conn);
    const uint64_t *to = ru_map_get_c(&s->addresses, address);
    uint32_t peer = to != NULL ? (uint32_t)*to - 1 : n->index;
    c->class = (uint8_t) class;
    c->port = to != NULL && (s->nodes[peer] == n ||
                             (n->nic.host != 0 && s->nodes[peer]->nic.host == n->nic.host));
    end_init(s, c, 0, n->index);
    end_init(s, c, 1, peer);
    c->end[0].state = RUI_SIM_END_OPENING;
    c->end[0].delivered_ns = s->now_ns; /* begun */
    n->stats.conns++;
    int64_t delay = rui_sim_delay_ns(s, c, 0);
    ru_sim_at_node(s, n->index, (ru_time){s->now_ns + (to != NULL ? delay : 2 * delay)},
                   to != NULL ? asked : refused, s, rui_sim_end_arg(c, conn, 0));
    *id = rui_sim_conn_id(c, conn, 0);
    return RU_OK;
}

static void link_close(void *self, ru_conn_id id)
{
    rui_sim_node *n = self;
    uint32_t conn, side;
    rui_sim_conn *c = conn_of(n, id, &conn, &side);
    if (c == NULL) {
        return;
    }
    bool deaf = c->end[side].state == RUI_SIM_END_DEAF;
    end_over(n->sim, conn, side);
    if (!deaf) {
        rui_sim_say_ended(n->sim, conn, side, RU_E_PEER);
    }
    rui_sim_conn_put(n->sim, conn);
}

static void link_wake(void *self, ru_conn_id id)
{
    rui_sim_node *n = self;
    uint32_t conn, side;
    if (conn_of(n, id, &conn, &side) != NULL) {
        rui_sim_ready(n->sim, conn, side);
    }
}

static void resumed(void *self, uint64_t arg)
{
    uint32_t conn, side;
    if (rui_sim_arg_conn(self, arg, &conn, &side) != NULL) {
        rui_sim_deliver(self, conn, side);
    }
}

static void link_resume(void *self, ru_conn_id id)
{
    rui_sim_node *n = self;
    uint32_t conn, side;
    rui_sim_conn *c = conn_of(n, id, &conn, &side);
    if (c != NULL && c->end[side].paused) {
        c->end[side].paused = false;
        ru_sim_at_node(n->sim, n->index, (ru_time){n->sim->now_ns}, resumed, n->sim,
                       rui_sim_end_arg(c, conn, side));
    }
}

static uint32_t bounded(int64_t bytes)
{
    return bytes > WINDOW_MAX_BYTES ? WINDOW_MAX_BYTES : (uint32_t)bytes;
}

static void link_redirect(void *self, ru_conn_id id, const ru_link_rx *rx)
{
    rui_sim_node *n = self;
    uint32_t conn, side;
    const rui_sim_conn *c = conn_of(n, id, &conn, &side);
    if (c == NULL || !c->end[side].halfway) {
        return;
    }
    rui_sim_frame *f = rui_sim_frame_at(n->sim, c->end[side].first);
    if (part_bytes(f, rx, f->part_at) != part_bytes(f, f->rx, f->part_at)) {
        rui_sim_fail(n->sim, RU_E_ARG, "a payload on its way was sent to a place of another size");
        return;
    }
    memcpy(f->rx, rx, sizeof *rx);
    n->sim->redirected++;
}

static void link_knobs(void *self, ru_conn_id id, const ru_link_knobs *knobs)
{
    rui_sim_node *n = self;
    uint32_t conn, side;
    rui_sim_conn *c = conn_of(n, id, &conn, &side);
    if (c == NULL) {
        return;
    }
    rui_sim_end *e = &c->end[side];
    e->notsent_bytes = knobs->notsent_bytes > 0 ? bounded(knobs->notsent_bytes) : e->notsent_bytes;
    e->window_bytes = knobs->sndbuf_bytes > 0 ? bounded(knobs->sndbuf_bytes) : e->window_bytes;
    if (knobs->pace_bytes_per_s > 0) {
        e->pace_bytes_per_s = (float)knobs->pace_bytes_per_s;
    }
    if (e->blocked && e->pace_next_ns <= n->sim->now_ns) {
        e->blocked = false;
        rui_sim_ready(n->sim, conn, side);
    }
}

static void link_facts(void *self, ru_conn_id id, ru_link_facts *into)
{
    const rui_sim_node *n = self;
    uint32_t conn, side;
    const rui_sim_conn *c = conn_of(n, id, &conn, &side);
    *into = (ru_link_facts){0};
    if (c == NULL) {
        return;
    }
    const rui_sim_end *e = &c->end[side];
    into->acked_bytes = e->acked_bytes;
    into->unsent_bytes = e->unsent_bytes;
    into->unacked_bytes = e->unacked_bytes;
    into->rtt_ns = into->rtt_min_ns =
        rui_sim_delay_ns(n->sim, c, 0) + rui_sim_delay_ns(n->sim, c, 1);
    into->delivery_bytes_per_s = (double)e->delivery_bytes_per_s;
    into->app_limited = e->unsent_bytes == 0;
}

static const ru_link_ops link_ops = {
    .name = "sim",
    .connect = link_connect,
    .close = link_close,
    .wake = link_wake,
    .resume = link_resume,
    .redirect = link_redirect,
    .knobs = link_knobs,
    .facts = link_facts,
};

/* -- nodes ----------------------------------------------------------------------------------------
 */

static void nic_defaults(ru_sim_nic *nic)
{
    nic->bytes_per_s = nic->bytes_per_s > 0 ? nic->bytes_per_s : NIC_BYTES_PER_S;
    nic->delay_ns = nic->delay_ns > 0 ? nic->delay_ns : NIC_DELAY_NS;
    if (nic->queue_bytes <= 0) { /* as byte limits of a kernel's queue: 31 ms at most */
        int64_t most = (int64_t)(nic->bytes_per_s / 32);
        nic->queue_bytes = most < NIC_QUEUE_MIN_BYTES ? NIC_QUEUE_MIN_BYTES
                           : most < NIC_QUEUE_BYTES   ? most
                                                      : NIC_QUEUE_BYTES;
    }
    nic->local_bytes_per_s =
        nic->local_bytes_per_s > 0 ? nic->local_bytes_per_s : LOCAL_BYTES_PER_S;
    nic->local_delay_ns = nic->local_delay_ns > 0 ? nic->local_delay_ns : LOCAL_DELAY_NS;
}

ru_status ru_sim_nic_add(ru_sim *s, const char *address, const ru_sim_nic *nic,
                         const ru_link_user *user, ru_link *link, uint32_t *node, ru_err *err)
{
    if (strlen(address) >= RU_SIM_ADDRESS_MAX || strchr(address, ':') == NULL) {
        return RU_FAIL(err, RU_E_ARG, "'%s' is not an address of the form host:port", address);
    }
    const uint64_t *old = ru_map_get_c(&s->addresses, address);
    if (old != NULL && s->nodes[*old - 1]->alive) {
        return RU_FAIL(err, RU_E_ARG, "another living node has the address %s", address);
    }
    if (s->nodes_n == s->opt.nodes_max) {
        return RU_FAIL(err, RU_E_LIMIT, "more than %u simulated nodes", s->opt.nodes_max);
    }
    uint64_t *at = ru_map_put_c(&s->addresses, address, NULL);
    rui_sim_node *n = at != NULL ? rui_sim_grow(s, NULL, 0, (int64_t)sizeof *n) : NULL;
    if (n == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a simulated node");
    }
    memset(n, 0, sizeof *n);
    n->sim = s;
    n->index = s->nodes_n;
    n->alive = true;
    snprintf(n->address, sizeof n->address, "%s", address);
    n->nic = *nic;
    nic_defaults(&n->nic);
    n->slow = 1;
    for (uint32_t k = 0; k < RUI_SIM_PORTS; k++) {
        rui_sim_port *p = &n->port[k];
        p->ready_first = p->ready_last = p->first = p->last = p->dirty_next = RUI_SIM_NONE;
        p->wire = &n->wires[k];
    }
    for (uint32_t k = s->nodes_n; n->nic.shared && n->nic.host != 0 && k-- > 0;) {
        if (s->nodes[k]->nic.shared && s->nodes[k]->nic.host == n->nic.host) {
            n->port[0].wire = s->nodes[k]->port[0].wire;
            break;
        }
    }
    if (user != NULL) {
        n->user = *user;
    }
    s->users[s->nodes_n] = n->user.self;
    s->nodes[s->nodes_n++] = n;
    s->alive_n++;
    *at = s->nodes_n;
    *link = (ru_link){&link_ops, n};
    *node = n->index;
    return RU_OK;
}

void ru_sim_nic_user(ru_sim *s, uint32_t node, const ru_link_user *user)
{
    RU_CHECK(node < s->nodes_n);
    s->nodes[node]->user = *user;
    s->users[node] = user->self;
}

void ru_sim_node_stats_get(const ru_sim *s, uint32_t node, ru_sim_node_stats *into)
{
    RU_CHECK(node < s->nodes_n);
    *into = s->nodes[node]->stats;
}
