#include "comm/chan/chan_impl.h"

#include <string.h>

enum {
    WHOLE_NS = 250000000,
    WHOLE_RATE_GUESS = 1250000, /* bytes/s, until one is measured */
};

static ru_status check_options(const ru_chan_options *o, ru_err *err)
{
    if (o->self.v == 0) {
        return RU_FAIL(err, RU_E_ARG, "a channel needs the node's id, which must not be 0");
    }
    if (o->address == NULL || strlen(o->address) > RUI_ADDRESS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "a channel needs its own address of at most %d characters",
                       RUI_ADDRESS_MAX);
    }
    if (o->peers_max == 0 || o->peers_max > 1u << 16) {
        return RU_FAIL(err, RU_E_ARG, "peers_max is %u, expected 1 to %u", o->peers_max, 1u << 16);
    }
    if (o->streams_max == 0 || o->streams_max > 1u << 24 || o->slots_max == 0 ||
        o->slots_max > 1u << 24) {
        return RU_FAIL(err, RU_E_ARG, "streams_max is %u and slots_max %u, expected 1 to %u",
                       o->streams_max, o->slots_max, 1u << 24);
    }
    if (o->chunk_bytes < 0 || o->chunk_bytes > RU_LINK_FRAME_MAX) {
        return RU_FAIL(err, RU_E_ARG, "chunk_bytes is %lld, expected 0 to %d",
                       (long long)o->chunk_bytes, RU_LINK_FRAME_MAX);
    }
    return RU_OK;
}

/* -- the way in: `inside` counts calls that may lead to upcalls; a tick from within waits
 * ----------
 */

static void in_opened(void *self, ru_conn_id id, bool accepted, const char *address, ru_time now)
{
    ru_chan *ch = self;
    ch->inside++;
    ch->now = now;
    rui_chan_opened(ch, id, accepted, address, now);
    ch->inside--;
}

static void in_closed(void *self, ru_conn_id id, ru_status why, const char *sentence, ru_time now)
{
    ru_chan *ch = self;
    ch->inside++;
    ch->now = now;
    rui_chan_closed(ch, id, why, sentence, now);
    ch->inside--;
}

static bool in_pull(void *self, ru_conn_id id, int64_t room_bytes, ru_link_tx *tx, ru_time now)
{
    ru_chan *ch = self;
    ch->inside++;
    bool more = rui_chan_pull(ch, id, room_bytes, tx, now);
    ch->inside--;
    return more;
}

static void in_sent(void *self, ru_conn_id id, uint64_t cookie, ru_time now)
{
    ru_chan *ch = self;
    ch->inside++;
    rui_chan_sent(ch, id, cookie, now);
    ch->inside--;
}

static ru_status in_head(void *self, ru_conn_id id, const uint8_t *head, ru_link_rx *rx,
                         ru_time now)
{
    ru_chan *ch = self;
    ch->inside++;
    ch->now = now;
    ru_status st = rui_chan_head(ch, id, head, rx, now);
    ch->inside--;
    return st;
}

static ru_status in_body(void *self, ru_conn_id id, ru_time now)
{
    ru_chan *ch = self;
    ch->inside++;
    ch->now = now;
    ru_status st = rui_chan_body(ch, id, now);
    ch->inside--;
    return st;
}

static void *take(ru_arena *a, int64_t n, int64_t size_bytes)
{
    return ru_arena_alloc(a, n * size_bytes, 64);
}

/* A job starts: everybody opens its connections at once. */
static uint32_t unproved_max(uint32_t peers_max)
{
    uint32_t all = RU_LINK_CLASSES * peers_max;
    return all > RUI_UNPROVED_MIN ? all : RUI_UNPROVED_MIN;
}

uint32_t ru_chan_conns(uint32_t peers_max)
{
    return 2 * RU_LINK_CLASSES * peers_max + unproved_max(peers_max);
}

static bool take_memory(ru_chan *ch, ru_arena *a)
{
    const ru_chan_options *o = &ch->opt;
    ch->unproved_max = unproved_max(o->peers_max);
    ch->conns_max = ru_chan_conns(o->peers_max);
    ch->streams_max = 2 * o->streams_max;
    ch->conns = take(a, ch->conns_max, sizeof *ch->conns);
    ch->shakes = take(a, ch->conns_max, sizeof *ch->shakes);
    ch->peers = take(a, o->peers_max, sizeof *ch->peers);
    ch->dials = take(a, o->peers_max, sizeof *ch->dials);
    ch->active = take(a, o->peers_max, sizeof *ch->active);
    ch->streams = take(a, ch->streams_max, sizeof *ch->streams);
    ch->sink = take(a, 1, RUI_SINK_BYTES);
    ch->scratch = take(a, 1, RUI_MESSAGE_MAX);
    int64_t buffer = o->buffer_bytes;
    if (buffer <= 0) {
        buffer = (int64_t)o->peers_max * (128 << 10);
        buffer = buffer < 8 << 20 ? 8 << 20 : buffer > 128 << 20 ? 128 << 20 : buffer;
    }
    uint32_t items = 1024 + 2 * o->peers_max + 2 * o->streams_max + 2 * o->slots_max;
    items += (uint32_t)(buffer / 512);
    return ch->conns != NULL && ch->shakes != NULL && ch->peers != NULL && ch->dials != NULL &&
           ch->active != NULL && ch->streams != NULL && ch->sink != NULL && ch->scratch != NULL &&
           rui_cells_init(&ch->items, a, sizeof(rui_item), items) &&
           rui_cells_init(&ch->blocks.small, a, RUI_BLOCK_SMALL,
                          (uint32_t)(buffer / 4 / RUI_BLOCK_SMALL)) &&
           rui_cells_init(&ch->blocks.large, a, RUI_BLOCK_LARGE,
                          (uint32_t)(buffer / 4 * 3 / RUI_BLOCK_LARGE)) &&
           rui_names_init(&ch->conn_names, a, ch->conns, sizeof *ch->conns, ch->conns_max) &&
           rui_names_init(&ch->peer_names, a, ch->peers, sizeof *ch->peers, o->peers_max) &&
           rui_names_init(&ch->stream_names, a, ch->streams, sizeof *ch->streams, ch->streams_max);
}

ru_status ru_chan_open(const ru_chan_options *opt, const ru_link *link, const ru_chan_user *user,
                       ru_arena *arena, ru_chan **out, ru_err *err)
{
    RU_TRY(check_options(opt, err));
    ru_chan *ch = RU_NEW(arena, ru_chan, 1);
    if (ch == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a channel");
    }
    ch->opt = *opt;
    ch->opt.reconnect_ns = opt->reconnect_ns > 0 ? opt->reconnect_ns : 1000000000;
    ch->opt.silence_ns = opt->silence_ns > 0 ? opt->silence_ns : 10000000000;
    ch->link = *link;
    ch->user = *user;
    ch->conns_free = ch->peers_free = ch->streams_free = ch->soon_first = RUI_NONE;
    ch->window_bytes = 512 << 10;
    ch->grant_bytes = 128 << 10;
    ch->tick_at = (ru_time){INT64_MIN};
    memcpy(ch->address, opt->address, strlen(opt->address) + 1);
    ch->opt.address = ch->address;
    ch->opt.token = NULL;
    ch->link_user = (ru_link_user){.self = ch,
                                   .opened = in_opened,
                                   .closed = in_closed,
                                   .pull = in_pull,
                                   .sent = in_sent,
                                   .head = in_head,
                                   .body = in_body};
    if (!take_memory(ch, arena) || !rui_expect_open(ch, arena)) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a channel of %u peers, %u streams, %u slots",
                       opt->peers_max, opt->streams_max, opt->slots_max);
    }
    for (uint32_t i = 0; i < opt->peers_max; i++) {
        ch->dials[i].used = false;
        ch->dials[i].pair = 0;
        ch->dials[i].address[0] = '\0';
    }
    rui_egress_options eo = {.lines_max = opt->peers_max,
                             .streams_max = ch->streams_max,
                             .chunk_bytes = opt->chunk_bytes,
                             .rate_bytes_per_s = opt->rate_bytes_per_s};
    RU_TRY(rui_egress_open(&eo, arena, &ch->egress, err));
    RU_TRY(
        rui_ingress_open(opt->slots_max, opt->peers_max, RUI_EARLY_MAX, arena, &ch->ingress, err));
    RU_TRY(rui_hmac_open(opt->token, opt->token_bytes, &ch->hmac, err));
    rui_trace_open(ch);
    *out = ch;
    return RU_OK;
}

void ru_chan_close(ru_chan *ch)
{
    if (ch == NULL) {
        return;
    }
    for (uint32_t i = 0; i < ch->conns_used; i++) {
        if (ch->conns[i].state != RUI_CONN_FREE) {
            rui_conn_close(ch, &ch->conns[i]);
        }
    }
    for (uint32_t i = 0; i < ch->peers_used; i++) {
        rui_clock_keep(ch, &ch->peers[i]);
    }
    ru_refusals_end(&ch->refusals, "comm");
    rui_hmac_close(ch->hmac);
    ch->hmac = NULL;
}

const ru_link_user *ru_chan_link_user(ru_chan *ch)
{
    return &ch->link_user;
}

ru_status ru_chan_connect(ru_chan *ch, const char *address, ru_time now, ru_err *err)
{
    return rui_dial_start(ch, address, RUI_NONE, now, err);
}

uint32_t ru_chan_slots(const ru_chan *ch)
{
    return ch->opt.slots_max;
}

uint32_t ru_chan_streams(const ru_chan *ch)
{
    return ch->streams_max;
}

bool ru_chan_is_up(const ru_chan *ch, ru_node_id node)
{
    return rui_peer_find(ch, node.v) != RUI_NONE;
}

/* -- messages and streams ------------------------------------------------------------------------
 */

static ru_status no_room(ru_chan *ch)
{
    ch->starved = true;
    return RU_E_LIMIT;
}

void rui_room(ru_chan *ch)
{
    if (ch->starved && !ch->room) {
        ch->room = true;
        rui_chan_ask_tick(ch, ch->now);
    }
}

ru_status ru_chan_message(ru_chan *ch, ru_node_id to, uint32_t what, const void *data,
                          int64_t size_bytes, ru_time now)
{
    uint32_t p = rui_peer_find(ch, to.v);
    if (p == RUI_NONE) {
        return RU_E_PEER;
    }
    if (size_bytes < 0 || size_bytes > RU_CHAN_MESSAGE_MAX) {
        return RU_E_ARG;
    }
    rui_item item = {.type = RUI_MESSAGE,
                     .iter = what,
                     .len = (uint32_t)size_bytes,
                     .block = RUI_NONE,
                     .since = now,
                     .stream_index = RUI_NONE};
    if (size_bytes > 0) {
        item.block = rui_item_block(ch, p, RUI_MESSAGE, size_bytes);
        if (item.block == RUI_NONE) {
            return no_room(ch);
        }
        union {
            const void *from;
            void *to;
        } view = {data};
        rui_blocks_fill(&ch->blocks, item.block, &(ru_span){view.to, size_bytes}, 1);
    }
    ru_status st = rui_item_push(ch, p, &item, now);
    if (st != RU_OK) {
        rui_blocks_give(&ch->blocks, item.block);
        return no_room(ch);
    }
    return RU_OK;
}

static ru_xfer_id stream_id(const ru_chan *ch, uint32_t i)
{
    return (ru_xfer_id){(uint64_t)(ch->streams[i].gen & 0x7fffffff) << 32 | i};
}

static ru_xfer_id slot_id(const ru_chan *ch, uint32_t i)
{
    uint32_t gen = rui_ingress_slot(ch->ingress, i)->gen;
    return (ru_xfer_id){1ull << 63 | (uint64_t)(gen & 0x7fffffff) << 32 | i};
}

static int64_t total_of(const ru_span *spans, uint32_t n)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (spans[i].size_bytes < 0 || spans[i].size_bytes > RUI_STREAM_BYTES_MAX - total) {
            return -1;
        }
        total += spans[i].size_bytes;
    }
    return total;
}

/* Whole streams go before later messages, beats among them. When all peers do what this process
 * does, each of them gets as much as is sent: 30 times 8 KiB keep a link of 1 Mbit/s for 2 s,
 * longer than anybody is patient. So what all have on its way takes WHOLE_NS of a link like this
 * one. */
static bool whole_is_brief(const ru_chan *ch, const rui_peer *p, int64_t bytes)
{
    double known = rui_egress_rate(ch->egress), rate = known > 0 ? known : WHOLE_RATE_GUESS;
    double all = (double)(ch->conns_live / RU_LINK_CLASSES) * (double)(p->whole_out + bytes);
    return all <= rate * WHOLE_NS / 1e9;
}

/* Small and urgent: a copy travels among the sequenced frames, within the budget that the receiver
 * keeps for such streams before their slots are posted. */
static bool send_whole(ru_chan *ch, uint32_t i, ru_time now)
{
    rui_stream *s = &ch->streams[i];
    rui_peer *p = &ch->peers[s->name.peer];
    bool demoted = s->class == RU_CLASS_CONTROL && rui_egress_control_spent(ch->egress);
    int64_t cost = s->total_bytes + RUI_WHOLE_COST;
    if (s->class > RU_CLASS_URGENT || demoted || s->total_bytes > RUI_WHOLE_MAX ||
        p->whole_out + cost > RUI_WHOLE_BUDGET || !whole_is_brief(ch, p, s->total_bytes)) {
        return false;
    }
    rui_item item = {.type = RUI_DATA,
                     .class = s->class,
                     .flags = RUI_WHOLE | (s->fence ? RUI_FENCE : 0),
                     .rank = s->rank,
                     .stream = s->name.stream,
                     .iter = s->name.iter,
                     .len = (uint32_t)s->total_bytes,
                     .stream_index = i,
                     .stream_gen = s->gen};
    item.block = rui_item_block(ch, s->name.peer, RUI_DATA, s->total_bytes);
    if (item.block == RUI_NONE) {
        return false;
    }
    rui_blocks_fill(&ch->blocks, item.block, s->spans, s->n_spans);
    if (rui_item_push(ch, s->name.peer, &item, now) != RU_OK) {
        rui_blocks_give(&ch->blocks, item.block);
        return false;
    }
    s->state = RUI_STREAM_WHOLE;
    s->left_bytes = 0;
    p->whole_out += cost;
    return true;
}

ru_status ru_chan_send(ru_chan *ch, const ru_chan_send_in *in, ru_time now, ru_xfer_id *id)
{
    uint32_t p = rui_peer_find(ch, in->to.v);
    if (p == RUI_NONE) {
        return RU_E_PEER;
    }
    if (in->n_spans == 0 || in->class >= RU_CLASS_COUNT || total_of(in->spans, in->n_spans) <= 0 ||
        rui_names_find(&ch->stream_names, in->name.stream, in->name.iter, p) != RUI_NONE) {
        return RU_E_ARG;
    }
    uint32_t i = rui_stream_new(ch, p, in, now);
    if (i == RUI_NONE) {
        return no_room(ch);
    }
    rui_stream *s = &ch->streams[i];
    *id = stream_id(ch, i);
    s->state = RUI_STREAM_QUEUED;
    s->granted_bytes = s->total_bytes < RUI_FIRST_WINDOW ? s->total_bytes : RUI_FIRST_WINDOW;
    s->granted_bytes = in->asked ? 0 : s->granted_bytes;
    if (in->asked || !send_whole(ch, i, now)) {
        rui_stream_queue(ch, i, now);
    } else if (ch->recorder != NULL) {
        s->model_ns = rui_egress_beside_ns(ch->egress, p, s->total_bytes, now);
        s->predicted_ns = rui_expect_ns(ch, s);
    }
    return RU_OK;
}

/* A whole stream came before: into its place, `arrived` follows with the next tick. */
static ru_status post_early(ru_chan *ch, uint32_t i, const ru_chan_post_in *in, ru_time now)
{
    rui_slot *s = rui_ingress_slot(ch->ingress, i);
    if (s->total_bytes != total_of(in->spans, in->n_spans)) {
        return RU_E_ARG;
    }
    rui_blocks_read(&ch->blocks, s->block, s->total_bytes, in->spans, in->n_spans);
    rui_blocks_give(&ch->blocks, s->block);
    s->block = RUI_NONE;
    ch->peers[s->name.peer].whole_in -= s->total_bytes + RUI_WHOLE_COST;
    s->got_bytes = s->total_bytes;
    s->held[0] = (rui_range){0, s->total_bytes};
    s->n_held = 1;
    rui_ingress_state(ch->ingress, i, RUI_SLOT_POSTED);
    rui_soon_add(ch, i, now);
    return RU_OK;
}

void rui_resume_waiting(ru_chan *ch, uint32_t p, uint64_t stream, uint32_t iter)
{
    uint32_t b = ch->peers[p].conn[RU_LINK_BULK];
    if (b == RUI_NONE) {
        return;
    }
    rui_conn *c = &ch->conns[b];
    if (c->waits && c->rx.stream == stream && c->rx.iter == iter) {
        ch->link.ops->resume(ch->link.self, rui_conn_id_of(c));
    }
}

/* It ended before it was posted. Chunks that are still on their way are thrown away. */
static ru_status post_ended(ru_chan *ch, uint32_t i)
{
    rui_slot *s = rui_ingress_slot(ch->ingress, i);
    bool lost = s->state == RUI_SLOT_LOST;
    if (lost || s->ended) {
        rui_ingress_free(ch->ingress, i);
    } else {
        rui_ingress_state(ch->ingress, i, RUI_SLOT_THROWN);
    }
    return lost ? RU_E_IO : RU_E_CANCELLED;
}

ru_status ru_chan_post(ru_chan *ch, const ru_chan_post_in *in, ru_time now, ru_xfer_id *id)
{
    uint32_t p = rui_peer_find(ch, in->from.v);
    if (p == RUI_NONE) {
        return RU_E_PEER;
    }
    int64_t total = total_of(in->spans, in->n_spans);
    if (total <= 0) {
        return RU_E_ARG;
    }
    if (rui_ingress_full(ch->ingress)) {
        return no_room(ch);
    }
    uint32_t i = rui_ingress_find(ch->ingress, p, in->name.stream, in->name.iter);
    if (i != RUI_NONE) {
        rui_slot_state state = rui_ingress_slot(ch->ingress, i)->state;
        if (state == RUI_SLOT_STOPPED || state == RUI_SLOT_LOST) {
            return post_ended(ch, i);
        }
        if (state != RUI_SLOT_EARLY) {
            return RU_E_ARG;
        }
        RU_TRY(post_early(ch, i, in, now));
    } else {
        i = rui_ingress_new(ch->ingress, p, in->name.stream, in->name.iter, RUI_SLOT_POSTED);
        if (i == RUI_NONE) {
            return no_room(ch);
        }
    }
    rui_slot *s = rui_ingress_slot(ch->ingress, i);
    s->cookie = in->cookie;
    s->plan = in->plan;
    s->label = in->label;
    s->n_spans = in->n_spans;
    s->one = in->spans[0];
    s->spans = in->n_spans == 1 ? &s->one : in->spans;
    s->total_bytes = total;
    *id = slot_id(ch, i);
    if (in->asked && ch->opt.grants && s->got_bytes == 0) {
        s->class = (uint8_t)in->class;
        s->rank = in->rank;
        rui_ingress_want(ch->ingress, i, 0);
        rui_grant(ch, now);
    }
    rui_resume_waiting(ch, p, in->name.stream, in->name.iter);
    return RU_OK;
}

/* -- taking back ---------------------------------------------------------------------------------
 */

static uint32_t stream_of(const ru_chan *ch, ru_xfer_id id)
{
    uint32_t i = (uint32_t)id.v, gen = (uint32_t)(id.v >> 32);
    bool is = id.v != 0 && id.v >> 63 == 0 && i < ch->streams_used &&
              ch->streams[i].state != RUI_STREAM_FREE && (ch->streams[i].gen & 0x7fffffff) == gen;
    return is ? i : RUI_NONE;
}

void ru_chan_cancel(ru_chan *ch, ru_xfer_id id, ru_time now)
{
    uint32_t i = stream_of(ch, id);
    if (i != RUI_NONE) {
        ch->inside++;
        rui_stream_stop(ch, i, RU_E_CANCELLED, now);
        ch->inside--;
    }
}

void rui_slot_detach(ru_chan *ch, uint32_t i, ru_time now)
{
    rui_slot *s = rui_ingress_slot(ch->ingress, i);
    uint32_t p = s->name.peer;
    for (uint32_t k = 0; k < RU_LINK_CLASSES; k++) {
        uint32_t at = ch->peers[p].conn[k];
        rui_conn *c = at != RUI_NONE ? &ch->conns[at] : NULL;
        if (c == NULL || c->rx_kind != RUI_RX_SLOT || c->rx_slot != i) {
            continue;
        }
        if (ch->link.ops->redirect == NULL) {
            rui_conn_lost(ch, c, RU_E_IO, now);
            return;
        }
        ru_link_rx rx = {.n_spans = 0};
        int64_t left = c->rx_placed;
        /* The part that the link has now ends at rx_placed; the sink covers it from its start. */
        for (left -= c->rx_part; left > 0 && rx.n_spans < RU_LINK_SPANS_MAX;) {
            int64_t n = left < RUI_SINK_BYTES ? left : RUI_SINK_BYTES;
            rx.spans[rx.n_spans++] = (ru_span){ch->sink, n};
            left -= n;
        }
        if (left > 0) { /* more than the sink takes at once */
            rui_conn_lost(ch, c, RU_E_IO, now);
            return;
        }
        rx.more = c->rx_more;
        c->rx_kind = RUI_RX_THROW;
        ch->link.ops->redirect(ch->link.self, rui_conn_id_of(c), &rx);
    }
}

static void unpost(ru_chan *ch, uint32_t i, ru_time now)
{
    rui_slot *s = rui_ingress_slot(ch->ingress, i);
    uint32_t p = s->name.peer;
    rui_room(ch);
    if (s->soon) {
        rui_soon_drop(ch, i);
        rui_control(ch, p, RUI_ACK, RUI_STOPPED, s->name.stream, s->name.iter, s->total_bytes, now);
        rui_ingress_free(ch->ingress, i);
        return;
    }
    rui_ingress_state(ch->ingress, i, RUI_SLOT_THROWN);
    uint32_t gen = s->gen;
    rui_slot_detach(ch, i, now);
    if (s->state == RUI_SLOT_THROWN && s->gen == gen) { /* the peer is still there */
        rui_control(ch, p, RUI_CANCEL, 0, s->name.stream, s->name.iter, 0, now);
        rui_resume_waiting(ch, p, s->name.stream, s->name.iter);
    }
}

void ru_chan_unpost(ru_chan *ch, ru_xfer_id id, ru_time now)
{
    uint32_t i = (uint32_t)id.v, gen = (uint32_t)(id.v >> 32) & 0x7fffffff;
    if (id.v >> 63 == 0 || i >= rui_ingress_used(ch->ingress)) {
        return;
    }
    const rui_slot *s = rui_ingress_slot(ch->ingress, i);
    if (s->state == RUI_SLOT_POSTED && (s->gen & 0x7fffffff) == gen) {
        ch->inside++;
        unpost(ch, i, now);
        ch->inside--;
    }
}

void ru_chan_cancel_all(ru_chan *ch, uint64_t mask, uint64_t value, ru_time now)
{
    ch->inside++;
    rui_ingress_throw(ch->ingress, mask, value);
    for (uint32_t i = 0; i < ch->streams_used; i++) {
        rui_stream *s = &ch->streams[i];
        if (s->state != RUI_STREAM_FREE && (s->name.stream & mask) == value) {
            rui_stream_stop(ch, i, RU_E_CANCELLED, now);
        }
    }
    for (uint32_t i = 0; i < rui_ingress_used(ch->ingress); i++) {
        rui_slot *s = rui_ingress_slot(ch->ingress, i);
        if (s->state == RUI_SLOT_FREE || (s->name.stream & mask) != value) {
            continue;
        }
        if (s->state == RUI_SLOT_POSTED) {
            unpost(ch, i, now);
        } else if (s->state == RUI_SLOT_EARLY) {
            rui_control(ch, s->name.peer, RUI_ACK, RUI_STOPPED, s->name.stream, s->name.iter,
                        s->total_bytes, now);
            rui_slot_early_free(ch, i);
        } else if (s->state != RUI_SLOT_THROWN) {
            rui_ingress_free(ch->ingress, i);
        }
    }
    for (uint32_t i = 0; i < ch->conns_used; i++) {
        rui_conn *c = &ch->conns[i];
        if (c->state == RUI_CONN_LIVE && c->waits && (c->rx.stream & mask) == value) {
            ch->link.ops->resume(ch->link.self, rui_conn_id_of(c));
        }
    }
    ch->inside--;
}

bool ru_chan_reads(const ru_chan *ch, uint64_t mask, uint64_t value)
{
    for (uint32_t i = 0; i < ch->streams_used; i++) {
        const rui_stream *s = &ch->streams[i];
        if (s->state != RUI_STREAM_FREE && s->in_link > 0 && (s->name.stream & mask) == value) {
            return true;
        }
    }
    return false;
}

void ru_chan_stats_get(const ru_chan *ch, ru_chan_stats *into)
{
    *into = ch->stats;
    into->preemptions = rui_egress_preemptions(ch->egress);
    into->inversions = rui_egress_inversions(ch->egress);
    into->rate_bytes_per_s = rui_egress_rate(ch->egress);
    into->chunk_bytes = rui_egress_chunk(ch->egress);
    into->queued = rui_egress_queued(ch->egress);
}
