/* Control messages about streams, and grants. Those of the two sides may cross: one about a stream
 * that ended meanwhile is old news, never an error. */
#include <string.h>

#include "comm/chan/chan_impl.h"

/* -- to the sender -------------------------------------------------------------------------------
 */

/* STAMP: `rank` is that of the last byte. */
static ru_status ack_heard(ru_chan *ch, uint32_t p, const rui_frame *f, const uint8_t *data,
                           ru_time now)
{
    uint32_t i = rui_names_find(&ch->stream_names, f->stream, f->iter, p);
    if (i == RUI_NONE) {
        return RU_OK;
    }
    rui_stream *s = &ch->streams[i];
    if ((f->flags & RUI_HELD) != 0) {
        rui_range held[RUI_HELD_MAX];
        uint32_t n;
        if (rui_held_decode(data, f->len, s->total_bytes, held, &n) != RU_OK) {
            rui_peer_hostile(ch, p, "it reports intervals that are not possible", now);
            return RU_E_PEER;
        }
        rui_stream_held(ch, i, held, n, now);
        return RU_OK;
    }
    bool all_out = s->state == RUI_STREAM_WHOLE || s->left_bytes == 0;
    if ((f->flags & RUI_DONE) != 0 && !all_out && !s->doubt && s->state != RUI_STREAM_CANCEL) {
        rui_peer_hostile(ch, p, "it reports data that was not sent", now);
        return RU_E_PEER;
    }
    if (s->state == RUI_STREAM_CANCEL || (f->flags & RUI_STOPPED) != 0) {
        uint64_t cookie = s->cookie;
        bool told = s->told;
        bool whole = all_out && !s->fence;
        rui_stream_free(ch, i);
        if (!told && whole) {
            ch->user.sent(ch->user.self, cookie, now);
        } else if (!told) {
            ch->user.failed(ch->user.self, cookie, RU_E_CANCELLED, now);
        }
        return RU_OK;
    }
    if ((f->flags & RUI_STAMP) != 0) {
        rui_expect_arrived(ch, s, f->rank, now);
    }
    rui_stream_finish(ch, i, now);
    return RU_OK;
}

/* All names of one frame: it is one of the sequence and does not come again, so that each of them
 * is heard, whatever the upcalls for the others do. */
static ru_status acks_heard(ru_chan *ch, uint32_t p, const rui_frame *f, const uint8_t *data,
                            ru_time now)
{
    uint64_t session = ch->peers[p].session[0];
    uint32_t bytes = rui_more_bytes(f->flags);
    uint32_t n = (f->flags & RUI_HELD) != 0 ? 0 : f->len / bytes;
    /* The connection may end meanwhile. */
    uint8_t names[(RUI_NAME_BYTES + RUI_STAMP_BYTES) * RUI_MORE_MAX];
    memcpy(names, data, (size_t)n * bytes);
    rui_frame one = *f;
    ru_status st = ack_heard(ch, p, &one, data, now);
    for (uint32_t k = 0; k < n && st == RU_OK && ch->peers[p].session[0] == session; k++) {
        rui_more_decode(names + (size_t)k * bytes, f->flags, &one.stream, &one.iter, &one.rank);
        st = ack_heard(ch, p, &one, data, now);
    }
    return st;
}

static void grant_heard(ru_chan *ch, uint32_t p, const rui_frame *f, ru_time now)
{
    uint32_t i = rui_names_find(&ch->stream_names, f->stream, f->iter, p);
    if (i == RUI_NONE) {
        return;
    }
    rui_stream *s = &ch->streams[i];
    int64_t limit = (int64_t)f->offset < s->total_bytes ? (int64_t)f->offset : s->total_bytes;
    if (limit > s->granted_bytes) {
        s->granted_bytes = limit;
        rui_egress_remove(ch->egress, i);
        rui_stream_queue(ch, i, now);
    }
}

/* -- to the receiver -----------------------------------------------------------------------------
 */

static void asked(ru_chan *ch, uint32_t p, const rui_frame *f, ru_time now)
{
    uint32_t i = rui_ingress_find(ch->ingress, p, f->stream, f->iter);
    const rui_slot *s = i != RUI_NONE ? rui_ingress_slot(ch->ingress, i) : NULL;
    bool holds = s != NULL && (s->state == RUI_SLOT_POSTED || s->state == RUI_SLOT_THROWN);
    rui_item item = {.type = RUI_ACK,
                     .flags = RUI_HELD,
                     .stream = f->stream,
                     .iter = f->iter,
                     .offset = f->offset,
                     .block = RUI_NONE,
                     .stream_index = RUI_NONE};
    if (holds && s->n_held > 0) {
        uint8_t buf[16 * RUI_HELD_MAX];
        item.len = (uint32_t)rui_held_encode(s->held, s->n_held, buf);
        item.block = rui_item_block(ch, p, RUI_ACK, item.len);
        if (item.block != RUI_NONE) {
            rui_blocks_fill(&ch->blocks, item.block, &(ru_span){buf, item.len}, 1);
        }
    }
    bool no_room = item.len > 0 && item.block == RUI_NONE;
    if (no_room || rui_item_push(ch, p, &item, now) != RU_OK) {
        rui_blocks_give(&ch->blocks, item.block);
        rui_peer_doom(ch, p, NULL, now);
    }
}

/* A frame of the slot may be half there, on the other connection. */
static void fail_slot(ru_chan *ch, uint32_t i, ru_status why, ru_time now)
{
    const rui_slot *s = rui_ingress_slot(ch->ingress, i);
    uint32_t gen = s->gen;
    rui_slot_detach(ch, i, now);
    if (s->gen == gen) {
        rui_slot_fail(ch, i, why, now);
    }
}

/* Bytes of the stream were lost with a connection and its sender does not have them any more. */
static void gone(ru_chan *ch, uint32_t p, const rui_frame *f, ru_time now)
{
    uint32_t i = rui_ingress_find(ch->ingress, p, f->stream, f->iter);
    if (i != RUI_NONE) {
        fail_slot(ch, i, RU_E_IO, now);
    } else if (!rui_ingress_thrown(ch->ingress, f->stream)) {
        (void)rui_ingress_new(ch->ingress, p, f->stream, f->iter, RUI_SLOT_LOST);
    }
}

/* The sender's last message on the bulk connection: no byte of the stream follows. */
void rui_cancel_heard(ru_chan *ch, uint32_t p, const rui_frame *f, ru_time now)
{
    uint32_t i = rui_ingress_find(ch->ingress, p, f->stream, f->iter);
    rui_slot_state state = i != RUI_NONE ? rui_ingress_slot(ch->ingress, i)->state : RUI_SLOT_FREE;
    rui_control(ch, p, RUI_ACK, RUI_STOPPED, f->stream, f->iter, (int64_t)f->offset, now);
    if (state == RUI_SLOT_FREE && !rui_ingress_thrown(ch->ingress, f->stream)) {
        i = rui_ingress_new(ch->ingress, p, f->stream, f->iter, RUI_SLOT_STOPPED);
        state = i != RUI_NONE ? RUI_SLOT_STOPPED : RUI_SLOT_FREE;
    }
    if (state == RUI_SLOT_STOPPED) {
        rui_ingress_slot(ch->ingress, i)->ended = true;
    } else if (state != RUI_SLOT_FREE) {
        fail_slot(ch, i, RU_E_CANCELLED, now);
    }
}

/* The same, ahead on the urgent connection: chunks of it that wait for a slot need wait no more. */
static void stopped(ru_chan *ch, uint32_t p, const rui_frame *f)
{
    bool known = rui_ingress_find(ch->ingress, p, f->stream, f->iter) != RUI_NONE;
    if (known || rui_ingress_thrown(ch->ingress, f->stream)) {
        return;
    }
    uint32_t i = rui_ingress_new(ch->ingress, p, f->stream, f->iter, RUI_SLOT_STOPPED);
    if (i != RUI_NONE) {
        rui_ingress_slot(ch->ingress, i)->total_bytes = (int64_t)f->offset;
        rui_resume_waiting(ch, p, f->stream, f->iter);
    }
}

static void unwanted(ru_chan *ch, uint32_t p, const rui_frame *f, ru_time now)
{
    uint32_t i = rui_names_find(&ch->stream_names, f->stream, f->iter, p);
    if (i != RUI_NONE) {
        rui_stream_stop(ch, i, RU_E_CANCELLED, now);
    }
}

ru_status rui_control_heard(ru_chan *ch, uint32_t p, const rui_frame *f, const uint8_t *data,
                            ru_time now)
{
    switch (f->type) {
    case RUI_ACK:
        return acks_heard(ch, p, f, data, now);
    case RUI_GRANT:
        grant_heard(ch, p, f, now);
        break;
    case RUI_CANCEL:
        if ((f->flags & RUI_STOPPED) != 0) {
            stopped(ch, p, f);
        } else {
            unwanted(ch, p, f, now);
        }
        break;
    case RUI_PROBE:
        if ((f->flags & RUI_ASK) != 0) {
            asked(ch, p, f, now);
        } else if ((f->flags & RUI_GONE) != 0) {
            gone(ch, p, f, now);
        } else if ((f->flags & RUI_TIME) != 0) {
            rui_clock_asked(ch, p, f, now);
        } else if ((f->flags & RUI_TOLD) != 0) {
            rui_clock_told(ch, p, f, now);
        }
        break;
    case RUI_HELLO:
    case RUI_PROOF:
    case RUI_MESSAGE:
    case RUI_DATA:
    case RUI_ERR:
    case RUI_FRAME_TYPES:
        break;
    }
    return RU_OK;
}

/* -- grants --------------------------------------------------------------------------------------
 */

/* What a chunk says about its stream's key, once: those that the receiver asked for have its own.
 */
void rui_slot_key(ru_chan *ch, uint32_t i, const rui_frame *f, ru_time now)
{
    rui_slot *s = rui_ingress_slot(ch->ingress, i);
    bool has = s->wants || s->granted_bytes > 0;
    if (s->state != RUI_SLOT_POSTED || (f->flags & RUI_FIRST) == 0 || has) {
        return;
    }
    s->class = f->class;
    s->rank = f->rank;
    s->deadline = f->deadline != 0 ? ru_time_after(now, (int64_t)f->deadline * 1000) : (ru_time){0};
    rui_ingress_want(ch->ingress, i, RUI_FIRST_WINDOW);
}

void rui_grant(ru_chan *ch, ru_time now)
{
    for (uint32_t i;
         (i = rui_ingress_grant(ch->ingress, ch->window_bytes, ch->grant_bytes)) != RUI_NONE;) {
        const rui_slot *s = rui_ingress_slot(ch->ingress, i);
        rui_control(ch, s->name.peer, RUI_GRANT, 0, s->name.stream, s->name.iter, s->granted_bytes,
                    now);
    }
}
