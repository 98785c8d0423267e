/* Time: what was filled early, handshakes, cuts, keep-alives, rates, aging, lateness. */
#include "comm/chan_impl.h"

static const int64_t KEEPALIVE_NS = 1000000000, SAMPLE_NS = 10000000;
enum { WINDOW_MIN = 512 << 10, WINDOW_MAX = 64 << 20 };

void rui_chan_ask_tick(ru_chan *ch, ru_time at)
{
    if (at.ns >= ch->tick_at.ns) {
        return;
    }
    ch->tick_at = at;
    if (ch->user.tick_at != NULL) {
        ch->user.tick_at(ch->user.self, at);
    }
}

/* Bytes that the receivers' hosts acknowledged, as the link knows. */
static void sample(ru_chan *ch, ru_time now)
{
    int64_t span_ns = ru_time_since(now, ch->sample_at), acked = 0, rtt_max_ns = 0;
    if (span_ns < SAMPLE_NS) {
        return;
    }
    for (uint32_t i = 0; i < ch->peers_used; i++) {
        rui_peer *p = &ch->peers[i];
        if (p->state != RUI_PEER_UP) {
            continue;
        }
        for (uint32_t k = 0; k < RU_LINK_CLASSES; k++) {
            ru_link_facts facts = {0};
            ch->link.ops->facts(ch->link.self, rui_conn_id_of(&ch->conns[p->conn[k]]), &facts);
            acked +=
                facts.acked_bytes > p->acked_bytes[k] ? facts.acked_bytes - p->acked_bytes[k] : 0;
            p->acked_bytes[k] = facts.acked_bytes;
            rtt_max_ns = facts.rtt_min_ns > rtt_max_ns ? facts.rtt_min_ns : rtt_max_ns;
            if (k == RU_LINK_BULK) {
                rui_egress_line_rtt(ch->egress, i, facts.rtt_min_ns);
            }
        }
    }
    rui_egress_acked(ch->egress, acked, now);
    double rx = (double)(ch->stats.rx_bytes - ch->rx_mark_bytes) * 1e9 / (double)span_ns;
    ch->rx_rate = rx > ch->rx_rate * 0.999 ? rx : ch->rx_rate * 0.999;
    ch->rx_mark_bytes = ch->stats.rx_bytes;
    ch->sample_at = now;
    double window = 1.5 * ch->rx_rate * (double)rtt_max_ns / 1e9;
    window = window < WINDOW_MIN ? WINDOW_MIN : window > WINDOW_MAX ? WINDOW_MAX : window;
    ch->window_bytes = (int64_t)window;
    ch->grant_bytes = ch->window_bytes / 4;
}

static void speak(ru_chan *ch, ru_time now)
{
    for (uint32_t i = 0; i < ch->peers_used; i++) {
        rui_peer *p = &ch->peers[i];
        if (p->state != RUI_PEER_UP) {
            continue;
        }
        if (p->lazy > 0 || p->yields_at.ns != 0) {
            rui_wake_conn(ch, i, RU_LINK_URGENT);
        }
        if (p->rx_told != p->rx_seq || ru_time_since(now, p->spoke_at) >= KEEPALIVE_NS) {
            p->ack_due = true;
            rui_wake_conn(ch, i, RU_LINK_URGENT);
        }
        rui_conn *c = &ch->conns[p->conn[RU_LINK_URGENT]];
        if (c->waits) { /* for memory */
            ch->link.ops->resume(ch->link.self, rui_conn_id_of(c));
        }
    }
}

static void late(void *self, uint32_t s, int64_t late_ns, ru_time now)
{
    ru_chan *ch = self;
    if (ch->streams[s].state == RUI_STREAM_QUEUED && ch->user.late != NULL) {
        ch->user.late(ch->user.self, ch->streams[s].cookie, late_ns, now);
    }
}

static void earlier(ru_time *next, ru_time at)
{
    if (at.ns < next->ns) {
        *next = at;
    }
}

ru_time ru_chan_tick(ru_chan *ch, ru_time now)
{
    if (ch->inside > 0 || now.ns < ch->tick_at.ns) {
        return ch->tick_at;
    }
    ch->inside++;
    ch->tick_at = (ru_time){INT64_MAX};
    ch->now = now;
    ru_refusals_tick(&ch->refusals, "comm", now);
    const ru_chan_user user = ch->user;
    ch->user.tick_at = NULL; /* what is asked for from within is told at return */
    rui_soon(ch, now);
    rui_shake_tick(ch, now);
    rui_peer_tick(ch, now);
    sample(ch, now);
    speak(ch, now);
    ru_time next = rui_egress_tick(ch->egress, late, ch, now);
    rui_wake(ch, now);
    for (uint32_t i = 0; i < ch->opt.peers_max; i++) {
        if (ch->dials[i].used && ch->dials[i].at.ns != 0) {
            earlier(&next, ch->dials[i].at);
        }
    }
    for (uint32_t i = 0; i < ch->peers_used; i++) {
        if (ch->peers[i].state == RUI_PEER_CUT) {
            earlier(&next, ru_time_after(ch->peers[i].cut_at, ch->opt.reconnect_ns));
            if (ch->peers[i].mend_at.ns != 0) {
                earlier(&next, ch->peers[i].mend_at);
            }
        }
        if (ch->peers[i].doomed) {
            earlier(&next, now);
        }
    }
    if (ch->soon_first != RUI_NONE) {
        earlier(&next, now);
    }
    earlier(&ch->tick_at, next);
    ch->user.tick_at = user.tick_at;
    ch->inside--;
    return ch->tick_at;
}
