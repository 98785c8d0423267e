/* Time: what was filled early, handshakes, cuts, keep-alives, rates, aging, lateness. */
#include "comm/chan/chan_impl.h"

static const int64_t SAMPLE_NS = 10000000, SCAN_NS = 250000000, MEMORY_NS = 2000000;
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

void rui_chan_ask_scan(ru_chan *ch, ru_time at)
{
    ch->scan_at = at.ns < ch->scan_at.ns ? at : ch->scan_at;
    rui_chan_ask_tick(ch, at);
}

/* -- peers with something going on: of a thousand, ticks look at these only ----------------------
 */

void rui_peer_active(ru_chan *ch, uint32_t i)
{
    if (!ch->peers[i].active) {
        ch->peers[i].active = true;
        ch->active[ch->n_active++] = i;
    }
}

void rui_peer_inactive(ru_chan *ch, uint32_t i)
{
    for (uint32_t k = 0; ch->peers[i].active && k < ch->n_active; k++) {
        if (ch->active[k] == i) {
            ch->active[k] = ch->active[--ch->n_active];
            ch->peers[i].active = false;
        }
    }
}

static void earlier(ru_time *next, ru_time at)
{
    if (at.ns < next->ns) {
        *next = at;
    }
}

/* What the link knows of one peer: bytes acknowledged since the last time. What the kernel still
 * has is added to *left_bytes; its rtt goes into *rtt_ns when it is longer. */
static int64_t sample_peer(ru_chan *ch, uint32_t i, int64_t *left_bytes, int64_t *rtt_ns)
{
    rui_peer *p = &ch->peers[i];
    int64_t acked = 0;
    p->in_link = false;
    for (uint32_t k = 0; k < RU_LINK_CLASSES; k++) {
        ru_link_facts facts = {0};
        ch->link.ops->facts(ch->link.self, p->link[k], &facts);
        acked += facts.acked_bytes > p->acked_bytes[k] ? facts.acked_bytes - p->acked_bytes[k] : 0;
        p->acked_bytes[k] = facts.acked_bytes;
        p->in_link = p->in_link || facts.unsent_bytes > 0 || facts.unacked_bytes > 0;
        *left_bytes += facts.unsent_bytes + facts.unacked_bytes;
        *rtt_ns = facts.rtt_min_ns > *rtt_ns ? facts.rtt_min_ns : *rtt_ns;
        if (k == RU_LINK_BULK) {
            rui_egress_line_rtt(ch->egress, i, facts.rtt_min_ns);
        }
    }
    return acked;
}

/* Bytes that the receivers' hosts acknowledged, as the link knows. false: not yet time. */
static bool sample(ru_chan *ch, ru_time now)
{
    int64_t span_ns = ru_time_since(now, ch->sample_at), acked = 0, left = 0, rtt_max_ns = 0;
    if (span_ns < SAMPLE_NS) {
        return false;
    }
    for (uint32_t k = 0; k < ch->n_active; k++) {
        const rui_peer *p = &ch->peers[ch->active[k]];
        if (p->state == RUI_PEER_UP && p->in_link) {
            acked += sample_peer(ch, ch->active[k], &left, &rtt_max_ns);
        }
    }
    rui_egress_acked(ch->egress, acked, now);
    rui_egress_left(ch->egress, left, now);
    double rx = (double)(ch->stats.rx_bytes - ch->rx_mark_bytes) * 1e9 / (double)span_ns;
    ch->rx_rate = rx > ch->rx_rate * 0.999 ? rx : ch->rx_rate * 0.999;
    ch->rx_mark_bytes = ch->stats.rx_bytes;
    ch->sample_at = now;
    if (rtt_max_ns > 0) {
        double window = 1.5 * ch->rx_rate * (double)rtt_max_ns / 1e9;
        window = window < WINDOW_MIN ? WINDOW_MIN : window > WINDOW_MAX ? WINDOW_MAX : window;
        ch->window_bytes = (int64_t)window;
        ch->grant_bytes = ch->window_bytes / 4;
    }
    return true;
}

/* Acknowledgements that waited long enough for company leave; wake who waits for memory. After a
 * sample whoever has nothing going on leaves the list. Returns when to come again.
 */
static ru_time speak(ru_chan *ch, bool sampled, ru_time now)
{
    ru_time next = {INT64_MAX};
    uint32_t kept = 0;
    for (uint32_t k = 0; k < ch->n_active; k++) {
        uint32_t i = ch->active[k];
        rui_peer *p = &ch->peers[i];
        bool up = p->state == RUI_PEER_UP;
        bool lazy = up && p->lazy > 0;
        if (up && ((lazy && p->lazy_at.ns <= now.ns) || p->yields_at.ns != 0)) {
            rui_wake_conn(ch, i, RU_LINK_URGENT);
        } else if (lazy) {
            earlier(&next, p->lazy_at);
        }
        rui_conn *c = up ? &ch->conns[p->conn[RU_LINK_URGENT]] : NULL;
        bool waits = up && c->waits; /* for memory */
        if (waits) {
            ch->link.ops->resume(ch->link.self, rui_conn_id_of(c));
            earlier(&next, ru_time_after(now, MEMORY_NS));
        }
        p->active = !sampled || waits || (up && (p->in_link || lazy || p->yields_at.ns != 0));
        if (p->active) {
            ch->active[kept++] = i;
        }
    }
    ch->n_active = kept;
    return next;
}

static void late(void *self, uint32_t s, int64_t late_ns, ru_time now)
{
    ru_chan *ch = self;
    if (ch->streams[s].state == RUI_STREAM_QUEUED && ch->user.late != NULL) {
        ch->user.late(ch->user.self, ch->streams[s].cookie, late_ns, now);
    }
}

static void tell_room(ru_chan *ch, ru_time now)
{
    if (ch->room) {
        ch->room = ch->starved = false;
        if (ch->user.room != NULL) {
            ch->user.room(ch->user.self, now);
        }
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
    tell_room(ch, now);
    if (ch->opt.grants) { /* slots may have gone that held all of the window */
        rui_grant(ch, now);
    }
    if (now.ns >= ch->scan_at.ns) {
        ch->scan_at = ru_time_after(now, SCAN_NS);
        rui_shake_tick(ch, now);
        ru_time again = rui_peer_tick(ch, now, ru_time_after(now, SCAN_NS));
        ch->scan_at = again.ns < ch->scan_at.ns ? again : ch->scan_at;
    }
    ru_time next = speak(ch, sample(ch, now), now);
    earlier(&next, rui_egress_tick(ch->egress, late, ch, now));
    earlier(&next, ch->scan_at);
    earlier(&next, rui_clock_tick(ch, now));
    rui_wake(ch, now);
    if (ch->soon_first != RUI_NONE) {
        earlier(&next, now);
    }
    earlier(&ch->tick_at, next);
    ch->user.tick_at = user.tick_at;
    ch->inside--;
    return ch->tick_at;
}
