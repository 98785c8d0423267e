/* What the link brings: headers find their payload's place, payloads are accounted for.
 *
 * On the urgent connection only sequenced frames, keep-alives and farewells come; on the bulk
 * connection chunks, cancels and farewells. Anything else, and any chunk outside of its slot or
 * over bytes received already, is no honest peer: it is dropped. */
#include <string.h>

#include "base/crc32c.h"
#include "comm/chan/chan_impl.h"

/* Rest of a frame that nobody wants: over and over into the same memory. */
static void place_sink(const ru_chan *ch, rui_conn *c, ru_link_rx *rx)
{
    int64_t left = (int64_t)c->rx.len - c->rx_placed;
    rx->n_spans = 0;
    c->rx_part = c->rx_placed;
    while (left > 0 && rx->n_spans < RU_LINK_SPANS_MAX) {
        int64_t n = left < RUI_SINK_BYTES ? left : RUI_SINK_BYTES;
        rx->spans[rx->n_spans++] = (ru_span){ch->sink, n};
        left -= n;
        c->rx_placed += n;
    }
    c->rx_more = rx->more = left > 0;
}

static ru_status throw_frame(ru_chan *ch, rui_conn *c, ru_link_rx *rx)
{
    c->rx_kind = RUI_RX_THROW;
    place_sink(ch, c, rx);
    return RU_OK;
}

static ru_status place_slot(ru_chan *ch, rui_conn *c, ru_link_rx *rx)
{
    rui_slot *s = rui_ingress_slot(ch->ingress, c->rx_slot);
    int64_t offset = (c->rx.flags & RUI_WHOLE) != 0 ? 0 : (int64_t)c->rx.offset;
    c->rx_kind = RUI_RX_SLOT;
    if (s->first.ns == 0) {
        s->first = c->rx_begun;
        if (!s->wants && s->granted_bytes == 0) { /* it has no key yet */
            s->class = c->rx.class;
            s->rank = c->rx.rank;
        }
    }
    c->rx_part = c->rx_placed;
    c->rx_placed += rui_slot_place(s, offset + c->rx_placed, c->rx.len - c->rx_placed, rx);
    c->rx_more = rx->more = c->rx_placed < c->rx.len;
    return RU_OK;
}

static ru_status hostile(ru_chan *ch, const rui_conn *c, const char *sentence, ru_time now)
{
    rui_peer_hostile(ch, c->peer, sentence, now);
    return RU_E_PEER;
}

static void touch_slot(ru_chan *ch, rui_conn *c, uint32_t s)
{
    c->rx_slot = s;
    c->rx_slot_gen = rui_ingress_slot(ch->ingress, s)->gen;
}

/* Is the other connection of this peer in the middle of a frame for slot i? A stream comes by one
 * of them: whichever ended first would free the slot under the other. */
static bool comes_twice(ru_chan *ch, const rui_conn *c, uint32_t i)
{
    uint32_t gen = rui_ingress_slot(ch->ingress, i)->gen;
    bool twice = false;
    for (uint32_t k = 0; k < RU_LINK_CLASSES; k++) {
        uint32_t at = ch->peers[c->peer].conn[k];
        const rui_conn *o = at != RUI_NONE ? &ch->conns[at] : c;
        twice = twice || (o != c && (o->rx_kind == RUI_RX_SLOT || o->rx_kind == RUI_RX_THROW) &&
                          o->rx_slot == i && o->rx_slot_gen == gen);
    }
    return twice;
}

static const char on_both[] = "it sent a stream on both of its connections at once";

/* -- headers -------------------------------------------------------------------------------------
 */

static ru_status head_chunk(ru_chan *ch, rui_conn *c, ru_link_rx *rx, ru_time now)
{
    const rui_frame *f = &c->rx;
    uint32_t i = rui_ingress_find(ch->ingress, c->peer, f->stream, f->iter);
    rui_slot *s = i != RUI_NONE ? rui_ingress_slot(ch->ingress, i) : NULL;
    if (s == NULL && !rui_ingress_thrown(ch->ingress, f->stream)) {
        c->waits = true; /* until ru_chan_post, or a rule that throws it away */
        return RU_E_AGAIN;
    }
    bool counts = s != NULL && (s->state == RUI_SLOT_POSTED || s->state == RUI_SLOT_THROWN);
    if (counts && rui_slot_check(s, (int64_t)f->offset, f->len) != RU_OK) {
        return hostile(ch, c, "it sent bytes of a stream twice or at a wrong offset", now);
    }
    if (counts && comes_twice(ch, c, i)) {
        return hostile(ch, c, on_both, now);
    }
    if (counts) {
        touch_slot(ch, c, i);
    } else {
        c->rx_slot = RUI_NONE;
    }
    return counts && s->state == RUI_SLOT_POSTED ? place_slot(ch, c, rx) : throw_frame(ch, c, rx);
}

static ru_status head_bulk(ru_chan *ch, rui_conn *c, ru_link_rx *rx, ru_time now)
{
    const rui_frame *f = &c->rx;
    if (f->type == RUI_DATA && (f->flags & RUI_WHOLE) == 0) {
        return head_chunk(ch, c, rx, now);
    }
    if (f->type == RUI_CANCEL) {
        c->rx_kind = RUI_RX_ITEM;
        return RU_OK;
    }
    return hostile(ch, c, "it sent a frame on its bulk connection that does not belong there", now);
}

static ru_status take_blocks(ru_chan *ch, rui_conn *c, ru_link_rx *rx)
{
    c->rx_kind = RUI_RX_ITEM;
    if (c->rx.len == 0) {
        return RU_OK;
    }
    c->rx_block = rui_blocks_take(&ch->blocks, c->rx.len);
    if (c->rx_block == RUI_NONE) {
        c->rx_kind = RUI_RX_NONE;
        c->waits = true; /* until a tick finds blocks again */
        return RU_E_AGAIN;
    }
    rx->n_spans = rui_blocks_spans(&ch->blocks, c->rx_block, c->rx.len, rx->spans);
    return RU_OK;
}

static ru_status head_whole(ru_chan *ch, rui_conn *c, ru_link_rx *rx, ru_time now)
{
    const rui_frame *f = &c->rx;
    rui_peer *p = &ch->peers[c->peer];
    uint32_t i = rui_ingress_find(ch->ingress, c->peer, f->stream, f->iter);
    rui_slot *s = i != RUI_NONE ? rui_ingress_slot(ch->ingress, i) : NULL;
    if (f->len > RUI_WHOLE_MAX) {
        return hostile(ch, c, "it sent a stream on its urgent connection that is too large", now);
    }
    if (s == NULL && !rui_ingress_thrown(ch->ingress, f->stream)) {
        if (p->whole_in + f->len + RUI_WHOLE_COST > RUI_WHOLE_BUDGET) {
            return hostile(ch, c, "it sent too many small streams before their slots were posted",
                           now);
        }
        return take_blocks(ch, c, rx);
    }
    if (s == NULL || (s->state != RUI_SLOT_POSTED && s->state != RUI_SLOT_THROWN)) {
        c->rx_slot = RUI_NONE;
        return throw_frame(ch, c, rx);
    }
    if (s->state == RUI_SLOT_POSTED && (s->total_bytes != f->len || s->got_bytes > 0)) {
        return hostile(ch, c, "it sent a small stream whose length differs from its slot", now);
    }
    if (comes_twice(ch, c, i)) {
        return hostile(ch, c, on_both, now);
    }
    touch_slot(ch, c, i);
    return s->state == RUI_SLOT_POSTED ? place_slot(ch, c, rx) : throw_frame(ch, c, rx);
}

static ru_status head_urgent(ru_chan *ch, rui_conn *c, ru_link_rx *rx, ru_time now)
{
    const rui_frame *f = &c->rx;
    rui_peer *p = &ch->peers[c->peer];
    c->rx_dup = false;
    if (rui_frame_sequenced(f, RU_LINK_URGENT)) {
        int32_t ahead = (int32_t)(f->deadline - (uint32_t)(p->rx_seq + 1));
        if (ahead > 0) {
            return hostile(ch, c, "a sequenced frame is missing", now);
        }
        if (ahead < 0) { /* repeated after a cut: it had arrived */
            c->rx_dup = true;
            c->rx_slot = RUI_NONE;
            return throw_frame(ch, c, rx);
        }
    }
    switch (f->type) {
    case RUI_MESSAGE:
        return take_blocks(ch, c, rx);
    case RUI_DATA:
        if ((f->flags & RUI_WHOLE) != 0) {
            return head_whole(ch, c, rx, now);
        }
        break;
    case RUI_GRANT:
    case RUI_CANCEL:
    case RUI_ACK:
    case RUI_PROBE:
        c->rx_kind = RUI_RX_ITEM;
        rx->n_spans = f->len > 0;
        rx->spans[0] = (ru_span){c->shake->in, f->len};
        return RU_OK;
    case RUI_HELLO:
    case RUI_PROOF:
    case RUI_ERR:
    case RUI_FRAME_TYPES:
        break;
    }
    return hostile(ch, c, "it sent a frame on its urgent connection that does not belong there",
                   now);
}

static ru_status first_part(ru_chan *ch, rui_conn *c, const uint8_t *head, ru_link_rx *rx,
                            ru_time now)
{
    ru_err err;
    ru_status st = rui_frame_decode(head, &c->rx, &err);
    if ((c->rx.flags & RUI_CRC) != 0) {
        memcpy(c->rx_head, head, RU_LINK_HEAD_BYTES);
    }
    c->rx_placed = c->rx_part = 0;
    if (ch->recorder != NULL && !c->waits) {
        c->rx_begun = rui_clock_now(ch, now);
    }
    c->waits = false;
    if (st != RU_OK && c->state == RUI_CONN_LIVE) {
        return hostile(ch, c, err.text, now);
    }
    if (st != RU_OK) {
        rui_log_refusal(ch, c->shake->address, err.text);
        rui_conn_lost(ch, c, RU_E_PEER, now);
        return st;
    }
    if (c->state == RUI_CONN_READY && c->rx.type != RUI_ERR) {
        c->waits = true; /* until the other connection of the pair is proved as well */
        return RU_E_AGAIN;
    }
    if (c->state != RUI_CONN_LIVE) {
        return rui_shake_head(ch, c, rx, now);
    }
    ch->peers[c->peer].heard_at = now;
    rui_peer_active(ch, c->peer);
    if (c->rx.type == RUI_ERR) {
        c->rx_kind = RUI_RX_SHAKE;
        rx->n_spans = c->rx.len > 0;
        rx->spans[0] = (ru_span){c->shake->in, c->rx.len};
        return RU_OK;
    }
    return c->class == RU_LINK_URGENT ? head_urgent(ch, c, rx, now) : head_bulk(ch, c, rx, now);
}

ru_status rui_chan_head(void *self, ru_conn_id id, const uint8_t *head, ru_link_rx *rx, ru_time now)
{
    ru_chan *ch = self;
    rui_conn *c = rui_conn_find(ch, id);
    if (c == NULL) {
        return RU_E_PEER;
    }
    rx->n_spans = 0;
    rx->more = false;
    if (!c->rx_more) {
        return first_part(ch, c, head, rx, now);
    }
    if (c->rx_kind == RUI_RX_SLOT) {
        return place_slot(ch, c, rx);
    }
    place_sink(ch, c, rx);
    return RU_OK;
}

/* -- payloads ------------------------------------------------------------------------------------
 */

static bool crc_right(ru_chan *ch, const rui_conn *c)
{
    if ((c->rx.flags & RUI_CRC) == 0 || c->rx_kind == RUI_RX_THROW) {
        return true;
    }
    uint32_t crc = rui_frame_crc(c->rx_head);
    if (c->rx_kind == RUI_RX_SLOT) {
        int64_t offset = (c->rx.flags & RUI_WHOLE) != 0 ? 0 : (int64_t)c->rx.offset;
        crc = rui_slot_crc(rui_ingress_slot(ch->ingress, c->rx_slot), crc, offset, c->rx.len);
    } else if (c->rx_block != RUI_NONE) {
        ru_span spans[RU_LINK_SPANS_MAX];
        uint32_t n = rui_blocks_spans(&ch->blocks, c->rx_block, c->rx.len, spans);
        for (uint32_t i = 0; i < n; i++) {
            crc = ru_crc32c(crc, spans[i].data, spans[i].size_bytes);
        }
    } else {
        crc = ru_crc32c(crc, c->shake->in, c->rx.len);
    }
    return crc == c->rx.crc;
}

/* -- small streams that came before their slot ---------------------------------------------------
 */

void rui_soon_add(ru_chan *ch, uint32_t i, ru_time now)
{
    rui_slot *s = rui_ingress_slot(ch->ingress, i);
    uint32_t *at = &ch->soon_first;
    while (*at != RUI_NONE) {
        at = &rui_ingress_slot(ch->ingress, *at)->soon_next;
    }
    *at = i;
    s->soon_next = RUI_NONE;
    s->soon = true;
    rui_chan_ask_tick(ch, now);
}

void rui_soon_drop(ru_chan *ch, uint32_t i)
{
    rui_slot *s = rui_ingress_slot(ch->ingress, i);
    uint32_t *at = &ch->soon_first;
    while (s->soon && *at != i) {
        at = &rui_ingress_slot(ch->ingress, *at)->soon_next;
    }
    if (s->soon) {
        *at = s->soon_next;
        s->soon = false;
    }
}

void rui_soon(ru_chan *ch, ru_time now)
{
    while (ch->soon_first != RUI_NONE) {
        uint32_t i = ch->soon_first;
        rui_soon_drop(ch, i);
        rui_slot_done(ch, i, now);
    }
}

void rui_slot_early_free(ru_chan *ch, uint32_t i)
{
    rui_slot *s = rui_ingress_slot(ch->ingress, i);
    if (s->state == RUI_SLOT_EARLY) {
        rui_blocks_give(&ch->blocks, s->block);
        ch->peers[s->name.peer].whole_in -= s->total_bytes + RUI_WHOLE_COST;
    }
    rui_ingress_free(ch->ingress, i);
}

static ru_time came_now(const ru_chan *ch, ru_time now)
{
    return ch->recorder != NULL ? rui_clock_now(ch, now) : now;
}

void rui_slot_done(ru_chan *ch, uint32_t i, ru_time now)
{
    rui_slot *s = rui_ingress_slot(ch->ingress, i);
    bool posted = s->state == RUI_SLOT_POSTED;
    uint64_t cookie = s->cookie;
    if (posted) {
        s->last = s->last.ns != 0 ? s->last : came_now(ch, now);
        rui_trace_slot(ch, s);
        rui_item_ack(ch, s->name.peer, s, now);
    } else {
        rui_control(ch, s->name.peer, RUI_ACK, RUI_STOPPED, s->name.stream, s->name.iter,
                    s->total_bytes, now);
    }
    rui_ingress_free(ch->ingress, i);
    rui_room(ch);
    if (posted) {
        ch->user.arrived(ch->user.self, cookie, now);
    }
}

void rui_slot_fail(ru_chan *ch, uint32_t i, ru_status why, ru_time now)
{
    rui_slot *s = rui_ingress_slot(ch->ingress, i);
    bool posted = s->state == RUI_SLOT_POSTED;
    uint64_t cookie = s->cookie;
    rui_soon_drop(ch, i);
    rui_slot_early_free(ch, i);
    rui_room(ch);
    if (posted) {
        ch->user.failed(ch->user.self, cookie, why, now);
    }
}

static void came_whole(const ru_chan *ch, rui_slot *s, const rui_conn *c, ru_time now)
{
    s->first = c->rx_begun;
    s->last = came_now(ch, now);
    s->class = c->rx.class;
    s->rank = c->rx.rank;
}

/* Its slot may have been posted, withdrawn or forbidden while the bytes came. */
static void body_early(ru_chan *ch, rui_conn *c, ru_time now)
{
    const rui_frame *f = &c->rx;
    uint32_t block = c->rx_block, p = c->peer;
    c->rx_block = RUI_NONE;
    uint32_t i = rui_ingress_find(ch->ingress, p, f->stream, f->iter);
    rui_slot *s = i != RUI_NONE ? rui_ingress_slot(ch->ingress, i) : NULL;
    bool wanted = s != NULL && (s->state == RUI_SLOT_POSTED || s->state == RUI_SLOT_THROWN);
    if (wanted && (s->total_bytes != f->len || s->got_bytes > 0)) {
        rui_blocks_give(&ch->blocks, block);
        rui_peer_hostile(ch, p, "it sent a small stream whose length differs from its slot", now);
    } else if (wanted && comes_twice(ch, c, i)) {
        rui_blocks_give(&ch->blocks, block);
        rui_peer_hostile(ch, p, on_both, now);
    } else if (wanted) {
        if (s->state == RUI_SLOT_POSTED) {
            rui_blocks_read(&ch->blocks, block, f->len, s->spans, s->n_spans);
        }
        rui_blocks_give(&ch->blocks, block);
        RU_CHECK(rui_ingress_commit(ch->ingress, i, 0, f->len));
        came_whole(ch, s, c, now);
        s->lazy = (f->flags & RUI_FENCE) == 0;
        s->whole = true;
        rui_slot_done(ch, i, now);
    } else if (s != NULL || rui_ingress_thrown(ch->ingress, f->stream)) {
        rui_blocks_give(&ch->blocks, block);
        rui_control(ch, p, RUI_ACK, RUI_STOPPED, f->stream, f->iter, f->len, now);
    } else if ((i = rui_ingress_new(ch->ingress, p, f->stream, f->iter, RUI_SLOT_EARLY)) ==
               RUI_NONE) {
        rui_blocks_give(&ch->blocks, block);
        rui_peer_hostile(ch, p, "there are no free slots for its small streams", now);
    } else {
        s = rui_ingress_slot(ch->ingress, i);
        s->total_bytes = f->len;
        s->block = block;
        came_whole(ch, s, c, now);
        s->lazy = (f->flags & RUI_FENCE) == 0;
        s->whole = true;
        ch->peers[p].whole_in += s->total_bytes + RUI_WHOLE_COST;
    }
}

static void body_message(ru_chan *ch, rui_conn *c, ru_time now)
{
    uint32_t block = c->rx_block;
    ru_node_id node = {ch->peers[c->peer].name.stream};
    const void *data = ch->scratch;
    if (block != RUI_NONE) {
        data = rui_blocks_view(&ch->blocks, block, c->rx.len, ch->scratch);
    }
    c->rx_block = RUI_NONE;
    rui_trace_message_in(ch, c, now);
    ch->user.message(ch->user.self, node, c->rx.iter, data, c->rx.len, now);
    rui_blocks_give(&ch->blocks, block);
}

static void body_slot(ru_chan *ch, const rui_conn *c, ru_time now)
{
    rui_slot *s = rui_ingress_slot(ch->ingress, c->rx_slot);
    RU_CHECK(s->gen == c->rx_slot_gen);
    bool whole = (c->rx.flags & RUI_WHOLE) != 0;
    s->lazy = (c->rx.flags & RUI_FENCE) == 0;
    s->whole = whole;
    if (rui_ingress_commit(ch->ingress, c->rx_slot, whole ? 0 : (int64_t)c->rx.offset, c->rx.len)) {
        rui_slot_done(ch, c->rx_slot, now);
    } else if (ch->opt.grants) {
        rui_slot_key(ch, c->rx_slot, &c->rx, now);
    }
    if (ch->opt.grants) {
        rui_grant(ch, now);
    }
}

/* A thrown frame still counts: its stream's record ends when all of it came. */
static void body_thrown(ru_chan *ch, const rui_conn *c, ru_time now)
{
    ch->stats.thrown_bytes += c->rx.len;
    if (c->rx_dup || c->rx.type != RUI_DATA) {
        return;
    }
    if (c->rx_slot != RUI_NONE) {
        rui_slot *s = rui_ingress_slot(ch->ingress, c->rx_slot);
        if (s->gen != c->rx_slot_gen || s->state != RUI_SLOT_THROWN) {
            return;
        }
        int64_t offset = (c->rx.flags & RUI_WHOLE) != 0 ? 0 : (int64_t)c->rx.offset;
        if (rui_ingress_commit(ch->ingress, c->rx_slot, offset, c->rx.len)) {
            rui_slot_done(ch, c->rx_slot, now);
        }
    } else if ((c->rx.flags & (RUI_WHOLE | RUI_LAST)) != 0) {
        rui_control(ch, c->peer, RUI_ACK, RUI_STOPPED, c->rx.stream, c->rx.iter, 0, now);
    }
}

static ru_status body_item(ru_chan *ch, rui_conn *c, ru_time now)
{
    const rui_frame *f = &c->rx;
    uint32_t p = c->peer;
    bool tells = f->type == RUI_MESSAGE || f->type == RUI_DATA || f->type == RUI_ACK ||
                 (f->type == RUI_PROBE && (f->flags & (uint8_t)~RUI_CRC) == 0);
    if (c->class == RU_LINK_URGENT && tells && !rui_item_acked(ch, p, f->offset)) {
        rui_peer_hostile(ch, p, "it acknowledges frames that were not sent", now);
        return RU_E_PEER;
    }
    if (f->type == RUI_MESSAGE) {
        body_message(ch, c, now);
    } else if (f->type == RUI_DATA) {
        body_early(ch, c, now);
    } else if (c->class == RU_LINK_BULK) {
        rui_cancel_heard(ch, p, f, now);
    } else {
        return rui_control_heard(ch, p, f, c->shake->in, now);
    }
    return RU_OK;
}

static void count_sequence(ru_chan *ch, const rui_conn *c)
{
    if (c->class != RU_LINK_URGENT || c->rx_dup || !rui_frame_sequenced(&c->rx, RU_LINK_URGENT)) {
        return;
    }
    rui_peer *p = &ch->peers[c->peer];
    p->rx_seq++;
    p->untold_bytes += c->rx.len;
    bool much = p->rx_seq - p->rx_told >= RUI_ACK_EVERY || p->untold_bytes >= RUI_ACK_BYTES;
    if (much && !p->ack_due) {
        p->ack_due = true;
        rui_wake_conn(ch, c->peer, RU_LINK_URGENT);
    }
}

ru_status rui_chan_body(void *self, ru_conn_id id, ru_time now)
{
    ru_chan *ch = self;
    rui_conn *c = rui_conn_find(ch, id);
    if (c == NULL) {
        return RU_E_PEER;
    }
    if (!crc_right(ch, c)) {
        rui_log_refusal(ch, c->shake->address, "a frame's checksum is wrong");
        rui_conn_lost(ch, c, RU_E_IO, now);
        return RU_E_IO;
    }
    if (c->state != RUI_CONN_LIVE) {
        return rui_shake_body(ch, c, now);
    }
    rui_rx_kind kind = c->rx_kind;
    c->rx_kind = RUI_RX_NONE;
    ch->peers[c->peer].cuts = 0;
    ch->stats.rx_bytes += c->rx.len;
    ch->stats.rx_chunks += c->rx.type == RUI_DATA;
    count_sequence(ch, c);
    switch (kind) {
    case RUI_RX_SLOT:
        if ((c->rx.flags & RUI_WHOLE) != 0 && !rui_item_acked(ch, c->peer, c->rx.offset)) {
            rui_peer_hostile(ch, c->peer, "it acknowledges frames that were not sent", now);
            return RU_E_PEER;
        }
        body_slot(ch, c, now);
        break;
    case RUI_RX_THROW:
        body_thrown(ch, c, now);
        break;
    case RUI_RX_ITEM:
        return body_item(ch, c, now);
    case RUI_RX_SHAKE:
        rui_peer_end(ch, c->peer, RU_E_PEER, true, now); /* it took leave */
        break;
    case RUI_RX_NONE:
        break;
    }
    return RU_OK;
}
