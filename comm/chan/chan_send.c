/* What the link pulls, and streams from ru_chan_send until the receiver has them.
 *
 *   QUEUED --last byte pulled and let go--> DRAINED --ACK--> free
 *      \--cancel--> CANCEL --CANCEL frame, ACK--> free           WHOLE --ACK--> free */
#include "base/crc32c.h"
#include "comm/chan/chan_impl.h"

enum { LOOK_PEERS = 4 };
enum { COOKIE_SHAKE, COOKIE_STREAM_WHOLE, COOKIE_STREAM, COOKIE_NONE };

void rui_tx_crc(const ru_chan *ch, rui_frame *f, ru_link_tx *tx)
{
    if (!ch->opt.crc) {
        rui_frame_encode(f, tx->head);
        return;
    }
    f->flags |= RUI_CRC;
    rui_frame_encode(f, tx->head);
    uint32_t crc = rui_frame_crc(tx->head);
    for (uint32_t i = 0; i < tx->n_spans; i++) {
        if (tx->spans[i].data == NULL) {
            continue; /* only counted */
        }
        crc = ru_crc32c(crc, tx->spans[i].data, tx->spans[i].size_bytes);
    }
    rui_frame_set_crc(tx->head, crc);
}

void rui_wake_conn(ru_chan *ch, uint32_t pi, ru_link_class class)
{
    const rui_peer *p = &ch->peers[pi];
    if (p->conn[class] != RUI_NONE) {
        ch->link.ops->wake(ch->link.self, p->link[class]);
    }
}

void rui_wake(ru_chan *ch, ru_time now)
{
    for (uint32_t line; (line = rui_egress_wake(ch->egress, now)) != RUI_NONE;) {
        rui_wake_conn(ch, line, RU_LINK_BULK);
    }
    if (rui_egress_gate(ch->egress).ns != 0) {
        rui_chan_ask_tick(ch, rui_egress_gate(ch->egress));
    }
}

/* -- records -------------------------------------------------------------------------------------
 */

uint32_t rui_stream_new(ru_chan *ch, uint32_t pi, const ru_chan_send_in *in, ru_time now)
{
    uint32_t i = ch->streams_free, gen = 1;
    if (i != RUI_NONE) {
        ch->streams_free = ch->streams[i].next;
        gen = ch->streams[i].gen;
    } else if (ch->streams_used < ch->streams_max) {
        i = ch->streams_used++;
    } else {
        return RUI_NONE;
    }
    rui_peer *p = &ch->peers[pi];
    rui_stream *s = &ch->streams[i];
    *s = (rui_stream){.name = {in->name.stream, in->name.iter, pi, RUI_NONE},
                      .gen = gen,
                      .class = (uint8_t)in->class,
                      .rank = in->rank,
                      .fence = in->fence,
                      .cookie = in->cookie,
                      .deadline = in->deadline,
                      .spans = in->spans,
                      .n_spans = in->n_spans,
                      .cancel_next = RUI_NONE,
                      .prev = RUI_NONE,
                      .next = p->stream_first,
                      .since = now,
                      .plan = in->plan,
                      .label = in->label};
    if (in->n_spans == 1) {
        s->one = in->spans[0];
        s->spans = &s->one;
    }
    for (uint32_t k = 0; k < in->n_spans; k++) {
        s->total_bytes += in->spans[k].size_bytes;
    }
    s->left_bytes = s->total_bytes;
    if (s->next != RUI_NONE) {
        ch->streams[s->next].prev = i;
    }
    p->stream_first = i;
    rui_names_add(&ch->stream_names, i);
    ch->streams_live++;
    return i;
}

static void cancel_unlink(ru_chan *ch, uint32_t i)
{
    rui_stream *s = &ch->streams[i];
    if (!s->cancel_queued) {
        return;
    }
    uint32_t *at = &ch->peers[s->name.peer].cancel_first;
    while (*at != i) {
        at = &ch->streams[*at].cancel_next;
    }
    *at = s->cancel_next;
    s->cancel_queued = false;
}

void rui_stream_free(ru_chan *ch, uint32_t i)
{
    rui_stream *s = &ch->streams[i];
    RU_CHECK(s->state != RUI_STREAM_FREE);
    rui_trace_stream(ch, s);
    rui_egress_remove(ch->egress, i);
    cancel_unlink(ch, i);
    rui_peer *p = &ch->peers[s->name.peer];
    if (s->state == RUI_STREAM_WHOLE) {
        p->whole_out -= s->total_bytes + RUI_WHOLE_COST;
    }
    rui_names_remove(&ch->stream_names, i);
    *(s->prev != RUI_NONE ? &ch->streams[s->prev].next : &p->stream_first) = s->next;
    if (s->next != RUI_NONE) {
        ch->streams[s->next].prev = s->prev;
    }
    s->state = RUI_STREAM_FREE;
    s->gen++;
    s->next = ch->streams_free;
    ch->streams_free = i;
    ch->streams_live--;
    rui_room(ch);
}

/* -- queueing ------------------------------------------------------------------------------------
 */

/* Bytes that may be handed out now: with grants, up to the limit. */
static int64_t sendable(const ru_chan *ch, const rui_stream *s)
{
    if ((ch->peers[s->name.peer].wishes & RUI_WISH_GRANTS) == 0) {
        return s->left_bytes;
    }
    int64_t n = s->granted_bytes - (s->total_bytes - s->left_bytes);
    return n < s->left_bytes ? n : s->left_bytes;
}

/* What the kernels hold is measured once for each instant at which something is sent, since the
 * mean rate of 10 ms says little about single milliseconds. Of many peers: by ticks alone. */
static void look_at_kernels(ru_chan *ch, ru_time now)
{
    int64_t left = 0;
    if (ch->n_active > LOOK_PEERS || ch->left_at.ns == now.ns) {
        return;
    }
    for (uint32_t k = 0; k < ch->n_active; k++) {
        const rui_peer *p = &ch->peers[ch->active[k]];
        bool holds = p->state == RUI_PEER_UP && p->in_link;
        for (uint32_t c = 0; holds && c < RU_LINK_CLASSES; c++) {
            ru_link_facts facts = {0};
            ch->link.ops->facts(ch->link.self, p->link[c], &facts);
            left += facts.unsent_bytes + facts.unacked_bytes;
        }
    }
    rui_egress_left(ch->egress, left, now);
    ch->left_at = now;
}

void rui_stream_queue(ru_chan *ch, uint32_t i, ru_time now)
{
    rui_stream *s = &ch->streams[i];
    int64_t n = sendable(ch, s);
    if (n <= 0 || s->doubt || s->state != RUI_STREAM_QUEUED || rui_egress_has(ch->egress, i)) {
        return;
    }
    rui_egress_add(ch->egress, i,
                   &(rui_egress_stream){.line = s->name.peer,
                                        .class = s->class,
                                        .rank = s->rank,
                                        .deadline = s->deadline,
                                        .bytes = n,
                                        .total_bytes = s->total_bytes},
                   now);
    if (ch->recorder != NULL && s->since.ns == now.ns) {
        look_at_kernels(ch, now); /* a resumed one keeps its prediction */
        s->model_ns = rui_egress_arrives_ns(ch->egress, i, now);
        s->predicted_ns = rui_expect_ns(ch, s);
    }
    rui_chan_ask_tick(ch, rui_egress_due(ch->egress, now));
    rui_wake(ch, now);
}

static void tell_sent(ru_chan *ch, rui_stream *s, ru_time now)
{
    if (!s->told) {
        s->told = true;
        ch->user.sent(ch->user.self, s->cookie, now);
    }
}

static void tell_failed(ru_chan *ch, rui_stream *s, ru_status why, ru_time now)
{
    if (!s->told) {
        s->told = true;
        ch->user.failed(ch->user.self, s->cookie, why, now);
    }
}

void rui_stream_finish(ru_chan *ch, uint32_t i, ru_time now)
{
    rui_stream *s = &ch->streams[i];
    bool told = s->told;
    uint64_t cookie = s->cookie;
    rui_stream_free(ch, i);
    if (!told) {
        ch->user.sent(ch->user.self, cookie, now);
    }
}

void rui_stream_stop(ru_chan *ch, uint32_t i, ru_status why, ru_time now)
{
    rui_stream *s = &ch->streams[i];
    if (s->state != RUI_STREAM_QUEUED || (s->left_bytes == 0 && !s->doubt)) {
        s->given_up = s->state == RUI_STREAM_QUEUED;
        return;
    }
    rui_egress_remove(ch->egress, i);
    s->state = RUI_STREAM_CANCEL;
    s->doubt = false;
    s->cancel_queued = true;
    s->cancel_next = ch->peers[s->name.peer].cancel_first;
    ch->peers[s->name.peer].cancel_first = i;
    rui_wake_conn(ch, s->name.peer, RU_LINK_BULK);
    if (s->left_bytes < s->total_bytes || s->in_link > 0) {
        /* Its chunks may hold up the bulk connection, waiting for a slot: tell on the other one. */
        rui_control(ch, s->name.peer, RUI_CANCEL, RUI_STOPPED, s->name.stream, s->name.iter,
                    s->total_bytes, now);
    }
    if (s->in_link == 0) {
        tell_failed(ch, s, why, now);
    }
}

/* -- after a cut ---------------------------------------------------------------------------------
 */

void rui_stream_doubt(ru_chan *ch, uint32_t pi, ru_time now)
{
    for (uint32_t i = ch->peers[pi].stream_first, next; i != RUI_NONE; i = next) {
        rui_stream *s = &ch->streams[i];
        next = s->next;
        s->in_link = 0;
        s->cut = true;
        if (s->state == RUI_STREAM_CANCEL) {
            if (!s->cancel_queued) {
                s->cancel_queued = true;
                s->cancel_next = ch->peers[pi].cancel_first;
                ch->peers[pi].cancel_first = i;
            }
            tell_failed(ch, s, RU_E_CANCELLED, now);
        } else if (s->state == RUI_STREAM_DRAINED ||
                   (s->state == RUI_STREAM_QUEUED && s->left_bytes < s->total_bytes)) {
            if (s->given_up) { /* its memory is not to be read again */
                tell_failed(ch, s, RU_E_CANCELLED, now);
            }
            s->doubt = true;
            s->asks++;
            rui_egress_remove(ch->egress, i);
            rui_control(ch, pi, RUI_PROBE, RUI_ASK, s->name.stream, s->name.iter, s->total_bytes,
                        now);
        }
    }
}

void rui_stream_held(ru_chan *ch, uint32_t i, const rui_range *held, uint32_t n, ru_time now)
{
    rui_stream *s = &ch->streams[i];
    s->asks -= s->asks > 0;
    if (!s->doubt || s->asks > 0) {
        return;
    }
    s->doubt = false;
    int64_t got = 0;
    for (uint32_t k = 0; k < n; k++) {
        got += held[k].to - held[k].from;
        s->held[k] = held[k];
    }
    if (got < s->total_bytes && s->told) { /* its memory is the user's again */
        rui_control(ch, s->name.peer, RUI_PROBE, RUI_GONE, s->name.stream, s->name.iter,
                    s->total_bytes, now);
        rui_stream_free(ch, i);
        return;
    }
    s->n_held = n;
    s->at = s->at_base = 0;
    s->at_span = 0;
    s->left_bytes = s->total_bytes - got;
    s->granted_bytes = got > s->granted_bytes ? got : s->granted_bytes;
    s->state = s->left_bytes > 0 ? RUI_STREAM_QUEUED : RUI_STREAM_DRAINED;
    rui_stream_queue(ch, i, now);
    if (s->left_bytes == 0 && !s->fence) {
        tell_sent(ch, s, now);
    }
}

/* -- the link asks -------------------------------------------------------------------------------
 */

static bool pull_cancel(ru_chan *ch, rui_peer *p, ru_link_tx *tx)
{
    uint32_t i = p->cancel_first;
    if (i == RUI_NONE) {
        return false;
    }
    rui_stream *s = &ch->streams[i];
    p->cancel_first = s->cancel_next;
    s->cancel_queued = false;
    rui_frame f = {.type = RUI_CANCEL,
                   .class = s->class,
                   .iter = s->name.iter,
                   .stream = s->name.stream,
                   .offset = (uint64_t)s->total_bytes};
    tx->n_spans = 0;
    tx->cookie = (uint64_t)COOKIE_NONE << 62;
    rui_tx_crc(ch, &f, tx);
    return true;
}

/* The next gap of what the receiver holds, at or after s->at: skips what it has, bounds `n`. */
static int64_t next_gap(rui_stream *s, int64_t n)
{
    for (uint32_t k = 0; k < s->n_held; k++) {
        if (s->at >= s->held[k].from && s->at < s->held[k].to) {
            s->at = s->held[k].to;
        }
        if (s->held[k].from > s->at && n > s->held[k].from - s->at) {
            n = s->held[k].from - s->at;
        }
    }
    return n;
}

/* Spans of n bytes at s->at, fewer bytes when they lie in too many pieces. */
static int64_t cut_chunk(rui_stream *s, int64_t n, ru_link_tx *tx)
{
    while (s->at >= s->at_base + s->spans[s->at_span].size_bytes) {
        s->at_base += s->spans[s->at_span++].size_bytes;
    }
    int64_t done = 0, inside = s->at - s->at_base;
    tx->n_spans = 0;
    for (uint32_t k = s->at_span; done < n && tx->n_spans < RU_LINK_SPANS_MAX; k++, inside = 0) {
        int64_t part = s->spans[k].size_bytes - inside;
        part = part < n - done ? part : n - done;
        uint8_t *data = s->spans[k].data;
        if (part > 0) {
            tx->spans[tx->n_spans++] = (ru_span){data != NULL ? data + inside : NULL, part};
        }
        done += part;
    }
    return done;
}

static bool pull_chunk(ru_chan *ch, uint32_t pi, int64_t room_bytes, ru_link_tx *tx, ru_time now)
{
    uint32_t i;
    if (!rui_egress_pick(ch->egress, pi, now, &i)) {
        return false;
    }
    rui_stream *s = &ch->streams[i];
    RU_CHECK(s->state == RUI_STREAM_QUEUED && s->left_bytes > 0);
    int64_t n = rui_egress_chunk(ch->egress), may = sendable(ch, s);
    n = n < may ? n : may;
    n = n < room_bytes || room_bytes <= 0 ? n : room_bytes;
    n = cut_chunk(s, next_gap(s, n), tx);
    int64_t left_ns = ru_time_since(s->deadline, now);
    left_ns = left_ns > 1000 ? left_ns : 1000;
    left_ns = left_ns < (int64_t)UINT32_MAX * 1000 ? left_ns : (int64_t)UINT32_MAX * 1000;
    rui_frame f = {.type = RUI_DATA,
                   .class = s->class,
                   .rank = s->rank,
                   .iter = s->name.iter,
                   .len = (uint32_t)n,
                   .stream = s->name.stream,
                   .offset = (uint64_t)s->at,
                   .deadline = s->deadline.ns != 0 ? (uint32_t)(left_ns / 1000) : 0};
    bool last = s->at + n == s->total_bytes;
    bool crowded = ch->streams_live > ch->streams_max / 4; /* its record is wanted */
    f.flags = (uint8_t)((s->at == 0 ? RUI_FIRST : 0) | (last ? RUI_LAST : 0) |
                        (last && (s->fence || crowded) ? RUI_FENCE : 0));
    tx->cookie = (uint64_t)COOKIE_STREAM << 62 | (uint64_t)(s->gen & 0x3fffffff) << 32 | i;
    rui_tx_crc(ch, &f, tx);
    s->first = s->first.ns == 0 ? now : s->first;
    s->at += n;
    s->left_bytes -= n;
    s->in_link++;
    ch->stats.tx_bytes += n;
    ch->stats.tx_chunks++;
    rui_egress_took(ch->egress, i, n, now);
    return true;
}

bool rui_chan_pull(void *self, ru_conn_id id, int64_t room_bytes, ru_link_tx *tx, ru_time now)
{
    ru_chan *ch = self;
    rui_conn *c = rui_conn_find(ch, id);
    if (c == NULL) {
        return false;
    }
    if (c->out != 0) {
        c->tx_live++;
        rui_shake_pull(ch, c, tx);
        return true;
    }
    if (c->state != RUI_CONN_LIVE) {
        return false;
    }
    bool urgent = c->class == RU_LINK_URGENT;
    bool given = urgent ? rui_item_pull(ch, c->peer, tx, now)
                        : pull_cancel(ch, &ch->peers[c->peer], tx) ||
                              pull_chunk(ch, c->peer, room_bytes, tx, now);
    c->tx_live += given;
    if (given) {
        ch->peers[c->peer].in_link = true;
        rui_peer_active(ch, c->peer);
    }
    if (!urgent) {
        rui_wake(ch, now);
    }
    return given;
}

void rui_chan_sent(void *self, ru_conn_id id, uint64_t cookie, ru_time now)
{
    ru_chan *ch = self;
    uint32_t kind = (uint32_t)(cookie >> 62), i = (uint32_t)cookie;
    uint32_t gen = (uint32_t)(cookie >> 32) & 0x3fffffff;
    rui_conn *c = rui_conn_find(ch, id);
    if (c == NULL) {
        return;
    }
    RU_CHECK(c->tx_live > 0);
    c->tx_live--;
    if (kind == COOKIE_SHAKE) {
        rui_shake_sent(ch, c, cookie, now);
        return;
    }
    if (kind == COOKIE_NONE || i >= ch->streams_used) {
        return;
    }
    rui_stream *s = &ch->streams[i];
    if (s->state == RUI_STREAM_FREE || (s->gen & 0x3fffffff) != gen) {
        return;
    }
    if (s->state == RUI_STREAM_WHOLE) {
        s->last = now;
        rui_trace_stream(ch, s);
        if (!s->fence) {
            tell_sent(ch, s, now);
        }
        return;
    }
    RU_CHECK(s->in_link > 0);
    if (--s->in_link > 0) {
        return;
    }
    if (s->state == RUI_STREAM_CANCEL) {
        tell_failed(ch, s, RU_E_CANCELLED, now);
    } else if (s->state == RUI_STREAM_QUEUED && s->left_bytes == 0) {
        s->state = RUI_STREAM_DRAINED;
        s->last = now;
        rui_trace_stream(ch, s);
        if (!s->fence) {
            tell_sent(ch, s, now);
        }
    }
}
