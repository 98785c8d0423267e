/* Sequenced frames to a peer: messages, whole small streams, control messages about streams. Each
 * has a number; it is kept until the peer says how many arrived, and repeated from there over a new
 * pair.
 *
 *   first ... unacknowledged ... | next ... to be pulled ... last
 *
 * Who acknowledges nothing holds more and more of the channel's memory, by answers that it asks for
 * and by control messages about streams of this side: with more than a peer's share it is dropped.
 */
#include "comm/chan/chan_impl.h"

static const int64_t YIELD_NS = 2000000; /* four chunks of 0.5 ms */

static rui_item *item_at(const ru_chan *ch, uint32_t i)
{
    return rui_cells_at(&ch->items, i);
}

/* What a peer does not acknowledge is kept, and others need the same memory: one may hold no more
 * than is left. Messages and whole streams can be refused or go another way, so they stop at half
 * of that: control messages about streams still have room then. */
static bool may_hold(int64_t held, int64_t more, int64_t left, rui_frame_type type)
{
    bool control = type != RUI_MESSAGE && type != RUI_DATA;
    return rui_share(control ? held : 2 * held, more, left);
}

static bool has_cell(const ru_chan *ch, const rui_peer *p, rui_frame_type type)
{
    return may_hold(p->items, 1, ch->items.max - ch->items.taken, type);
}

uint32_t rui_item_block(ru_chan *ch, uint32_t pi, rui_frame_type type, int64_t size_bytes)
{
    const rui_peer *p = &ch->peers[pi];
    bool room = has_cell(ch, p, type) &&
                may_hold(p->block_bytes, size_bytes, rui_blocks_left(&ch->blocks), type);
    return room ? rui_blocks_take(&ch->blocks, size_bytes) : RUI_NONE;
}

static ru_status add_item(ru_chan *ch, uint32_t pi, const rui_item *item)
{
    rui_peer *p = &ch->peers[pi];
    uint32_t i = has_cell(ch, p, item->type) ? rui_cells_take(&ch->items) : RUI_NONE;
    if (i == RUI_NONE) {
        return RU_E_LIMIT;
    }
    rui_item *it = item_at(ch, i);
    *it = *item;
    it->next = RUI_NONE;
    it->seq = ++p->tx_seq;
    if (p->item_last != RUI_NONE) {
        item_at(ch, p->item_last)->next = i;
    } else {
        p->item_first = i;
    }
    p->item_last = i;
    p->item_next = p->item_next != RUI_NONE ? p->item_next : i;
    p->items++;
    p->block_bytes += rui_blocks_held(&ch->blocks, it->block);
    return RU_OK;
}

ru_status rui_item_push(ru_chan *ch, uint32_t pi, const rui_item *item, ru_time now)
{
    (void)now;
    RU_TRY(add_item(ch, pi, item));
    rui_wake_conn(ch, pi, RU_LINK_URGENT);
    return RU_OK;
}

/* One more name into the acknowledgement that waits at the end of the queue. false: there is none,
 * or no room. */
static bool join_ack(ru_chan *ch, uint32_t pi, const rui_slot *s, uint8_t flags)
{
    rui_peer *p = &ch->peers[pi];
    rui_item *it = p->item_next != RUI_NONE ? item_at(ch, p->item_last) : NULL;
    uint32_t bytes = rui_more_bytes(flags), most = bytes * RUI_MORE_MAX;
    if (it == NULL || it->type != RUI_ACK || it->flags != flags || it->len == most) {
        return false;
    }
    if (it->block == RUI_NONE) {
        it->block = rui_item_block(ch, pi, RUI_ACK, most);
        if (it->block == RUI_NONE) {
            return false;
        }
        p->block_bytes += rui_blocks_held(&ch->blocks, it->block);
    }
    ru_span spans[RU_LINK_SPANS_MAX];
    uint32_t n = rui_blocks_spans(&ch->blocks, it->block, most, spans);
    RU_CHECK(n == 1);
    rui_more_encode((uint8_t *)spans[0].data + it->len, flags, s->name.stream, s->name.iter,
                    rui_stamp_of(s->last));
    it->len += bytes;
    return true;
}

void rui_item_ack(ru_chan *ch, uint32_t pi, const rui_slot *s, ru_time now)
{
    rui_peer *p = &ch->peers[pi];
    bool stamped = ch->recorder != NULL; /* else `last` is late, and nobody here measures clocks */
    rui_item item = {.type = RUI_ACK,
                     .flags = RUI_DONE | (stamped ? RUI_STAMP : 0),
                     .rank = stamped ? rui_stamp_of(s->last) : 0,
                     .stream = s->name.stream,
                     .iter = s->name.iter,
                     .block = RUI_NONE,
                     .stream_index = RUI_NONE};
    if (!join_ack(ch, pi, s, item.flags) && add_item(ch, pi, &item) != RU_OK) {
        rui_peer_doom(ch, pi, NULL, now);
        return;
    }
    ru_time at = ru_time_after(now, s->whole ? RUI_LAZY_NS : RUI_LAZY_BULK_NS);
    at.ns -= s->whole ? 0 : at.ns % RUI_LAZY_GRID_NS;
    p->lazy_at = p->lazy == 0 || at.ns < p->lazy_at.ns ? at : p->lazy_at;
    p->lazy++;
    p->lazy_bytes += s->whole ? s->total_bytes + RUI_WHOLE_COST : 0;
    if (!s->lazy || p->lazy >= RUI_LAZY_MAX || p->lazy_bytes >= RUI_LAZY_BYTES) {
        rui_wake_conn(ch, pi, RU_LINK_URGENT);
    } else {
        rui_chan_ask_tick(ch, p->lazy_at);
    }
}

void rui_control(ru_chan *ch, uint32_t p, rui_frame_type type, uint8_t flags, uint64_t stream,
                 uint32_t iter, int64_t offset, ru_time now)
{
    rui_item item = {.type = type,
                     .flags = flags,
                     .stream = stream,
                     .iter = iter,
                     .offset = (uint64_t)offset,
                     .block = RUI_NONE,
                     .stream_index = RUI_NONE};
    if (rui_item_push(ch, p, &item, now) != RU_OK) {
        rui_peer_doom(ch, p, NULL, now);
    }
}

/* Control that had more than its part of the bytes is no better than urgent streams: a message
 * lets those go that are queued, for a while; what they wait for may stand behind it. */
static bool gives_way(ru_chan *ch, rui_peer *p, uint32_t i, ru_time now)
{
    bool demoted = i != RUI_NONE && item_at(ch, i)->type == RUI_MESSAGE &&
                   rui_egress_control_spent(ch->egress) && rui_egress_urgent(ch->egress);
    if (!demoted) {
        p->yields_at = (ru_time){0};
        return false;
    }
    if (p->yields_at.ns == 0) {
        p->yields_at = now;
        ch->stats.demoted++;
    }
    ru_time end = ru_time_after(p->yields_at, YIELD_NS);
    if (end.ns > now.ns) {
        rui_peer_active(ch, (uint32_t)(p - ch->peers));
        rui_chan_ask_tick(ch, end);
        return true;
    }
    return false;
}

bool rui_item_pull(ru_chan *ch, uint32_t pi, ru_link_tx *tx, ru_time now)
{
    if (rui_clock_pull(ch, pi, tx, now)) {
        return true;
    }
    rui_peer *p = &ch->peers[pi];
    rui_frame f = {.type = RUI_PROBE, .offset = p->rx_seq};
    tx->n_spans = 0;
    tx->cookie = (uint64_t)3 << 62;
    uint32_t i = p->item_next;
    if (gives_way(ch, p, i, now)) {
        i = RUI_NONE;
    }
    if (i == RUI_NONE && !p->ack_due) {
        return false;
    }
    p->spoke_at = now;
    if (i != RUI_NONE) {
        const rui_item *it = item_at(ch, i);
        p->item_next = it->next;
        p->lazy = it->next != RUI_NONE ? p->lazy : 0;
        p->lazy_bytes = it->next != RUI_NONE ? p->lazy_bytes : 0;
        f = (rui_frame){.type = it->type,
                        .class = it->class,
                        .flags = it->flags,
                        .rank = it->rank,
                        .iter = it->iter,
                        .len = it->len,
                        .stream = it->stream,
                        .offset = it->offset,
                        .deadline = (uint32_t)it->seq};
        if (it->block != RUI_NONE) {
            tx->n_spans = rui_blocks_spans(&ch->blocks, it->block, it->len, tx->spans);
        }
        if (it->type == RUI_DATA && it->stream_index != RUI_NONE) {
            tx->cookie = (uint64_t)1 << 62 | (uint64_t)(it->stream_gen & 0x3fffffff) << 32 |
                         it->stream_index;
            rui_stream *s = &ch->streams[it->stream_index];
            if (s->gen == it->stream_gen && s->first.ns == 0) {
                s->first = now;
            }
        }
        p->yields_at = (ru_time){0};
        rui_trace_message_out(ch, p, it, now);
        bool control =
            it->type == RUI_MESSAGE || (it->type == RUI_DATA && it->class == RU_CLASS_CONTROL);
        rui_egress_beside(ch->egress, it->len + RU_LINK_HEAD_BYTES, control);
        ch->stats.tx_bytes += it->len;
    }
    bool tells = f.type == RUI_PROBE
                     ? i == RUI_NONE
                     : f.type == RUI_MESSAGE || f.type == RUI_DATA || f.type == RUI_ACK;
    if (tells) {
        f.offset = p->rx_seq;
        p->rx_told = p->rx_seq;
        p->untold_bytes = 0;
        p->ack_due = false;
    }
    rui_tx_crc(ch, &f, tx);
    return true;
}

static void drop_first(ru_chan *ch, rui_peer *p)
{
    uint32_t i = p->item_first;
    rui_item *it = item_at(ch, i);
    p->item_first = it->next;
    p->item_last = it->next != RUI_NONE ? p->item_last : RUI_NONE;
    p->item_next = p->item_next == i ? it->next : p->item_next;
    p->items--;
    p->block_bytes -= rui_blocks_held(&ch->blocks, it->block);
    rui_blocks_give(&ch->blocks, it->block);
    rui_cells_give(&ch->items, i);
    rui_room(ch);
}

/* A peer says what it has when it offers a new connection, and may get more by the old one before
 * the new one begins: what waits to be repeated was sent before, so it may be acknowledged. */
bool rui_item_acked(ru_chan *ch, uint32_t pi, uint64_t ack)
{
    rui_peer *p = &ch->peers[pi];
    uint64_t taken = p->item_next != RUI_NONE ? item_at(ch, p->item_next)->seq - 1 : p->tx_seq;
    if (ack > p->tx_seq) {
        return false;
    }
    /* The last one taken may be on its way still, from its place in memory. */
    uint64_t last = ack <= taken ? ack : taken > 0 ? taken - 1 : 0;
    while (p->item_first != RUI_NONE && item_at(ch, p->item_first)->seq <= last) {
        drop_first(ch, p);
    }
    p->tx_acked = ack > p->tx_acked ? ack : p->tx_acked;
    return true;
}

void rui_item_repeat(ru_chan *ch, uint32_t pi, uint64_t received, ru_time now)
{
    rui_peer *p = &ch->peers[pi];
    p->item_next = RUI_NONE;
    if (!rui_item_acked(ch, pi, received)) {
        rui_peer_doom(ch, pi, "it acknowledges frames that were not sent", now);
        return;
    }
    p->item_next = p->item_first;
    p->ack_due = p->rx_told != p->rx_seq;
}

ru_time ru_chan_unacked(const ru_chan *ch, ru_node_id node)
{
    uint32_t p = rui_peer_find(ch, node.v);
    uint32_t i = p != RUI_NONE ? ch->peers[p].item_first : RUI_NONE;
    while (i != RUI_NONE && item_at(ch, i)->type != RUI_MESSAGE) {
        i = item_at(ch, i)->next;
    }
    return i != RUI_NONE ? item_at(ch, i)->since : (ru_time){0};
}

void rui_item_drop_all(ru_chan *ch, uint32_t pi)
{
    while (ch->peers[pi].item_first != RUI_NONE) {
        drop_first(ch, &ch->peers[pi]);
    }
}
