/* Peers: dialed, adopted when both connections of a pair are proved, cut and mended, down. */
#include <string.h>

#include "base/log.h"
#include "comm/chan/chan_impl.h"

static const int64_t RETRY_FIRST_NS = 5000000, RETRY_MAX_NS = 200000000;
static const int64_t KEEPALIVE_NS = 1000000000;
/* Frames that came are acknowledged by the next one that goes, at the latest so long after this
 * side spoke last: the other one only keeps memory for them, RUI_ACK_EVERY of them at most. */
static const int64_t ACK_NS = 500000000;
static const int64_t MEND_NS = 10000000; /* the accepting side lets the other try first */
enum { CUTS_MAX = 32 };                  /* in a row, without a frame between them */

uint32_t rui_peer_find(const ru_chan *ch, uint64_t node)
{
    return rui_names_find(&ch->peer_names, node, 0, 0);
}

/* -- dials ---------------------------------------------------------------------------------------
 */

static void dial_close(ru_chan *ch, rui_dial *d)
{
    for (uint32_t k = 0; k < RU_LINK_CLASSES; k++) {
        if (d->conn[k] != RUI_NONE) {
            rui_conn_close(ch, &ch->conns[d->conn[k]]);
            d->conn[k] = RUI_NONE;
        }
    }
}

static void dial_over(ru_chan *ch, rui_dial *d)
{
    ch->dials_live -= d->used;
    d->used = false;
    d->pair = d->peer == RUI_NONE ? d->pair : 0;
}

void rui_dial_free(ru_chan *ch, uint32_t i)
{
    rui_dial *d = &ch->dials[i];
    dial_close(ch, d);
    if (d->peer != RUI_NONE) {
        ch->peers[d->peer].dial = RUI_NONE;
    }
    dial_over(ch, d);
}

/* The record of a pair that was dialed from here and began no session here, RUI_NONE: there is
 * none. The other side may have closed it, and begun the session that its next pair goes on with.
 */
static uint32_t dial_of(const ru_chan *ch, uint64_t pair)
{
    for (uint32_t i = 0; pair != 0 && i < ch->opt.peers_max; i++) {
        if (ch->dials[i].address[0] == '\0') { /* those from here on were never used */
            break;
        }
        if (ch->dials[i].pair == pair) {
            return i;
        }
    }
    return RUI_NONE;
}

bool rui_dial_is(const ru_chan *ch, uint64_t pair)
{
    return dial_of(ch, pair) != RUI_NONE;
}

static ru_status dial_try(ru_chan *ch, uint32_t i, ru_time now, ru_err *err)
{
    rui_dial *d = &ch->dials[i];
    uint8_t nonce[RUI_NONCE_BYTES];
    d->pair = rui_chan_draw(ch, now, nonce);
    d->at = (ru_time){0};
    for (uint32_t k = 0; k < RU_LINK_CLASSES; k++) {
        ru_conn_id id;
        ru_status st = ch->link.ops->connect(ch->link.self, d->address, (ru_link_class)k, &id, err);
        rui_conn *c = st == RU_OK ? rui_conn_new(ch, id, now) : NULL;
        if (c == NULL) {
            if (st == RU_OK) {
                ch->link.ops->close(ch->link.self, id);
                st = RU_FAIL(err, RU_E_LIMIT, "this process already has %u connections, its limit",
                             ch->conns_max);
            }
            dial_close(ch, d);
            return st;
        }
        c->state = RUI_CONN_DIALING;
        c->class = (uint8_t)k;
        c->pair = d->pair;
        c->dial = i;
        memcpy(c->shake->address, d->address, sizeof c->shake->address);
        d->conn[k] = rui_conn_index(ch, c);
    }
    return RU_OK;
}

ru_status rui_dial_start(ru_chan *ch, const char *address, uint32_t peer, ru_time now, ru_err *err)
{
    size_t n = strlen(address);
    if (n == 0 || n > RUI_ADDRESS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "an address has 1 to %d characters", RUI_ADDRESS_MAX);
    }
    uint32_t i = 0;
    while (i < ch->opt.peers_max && ch->dials[i].used) {
        i++;
    }
    if (i == ch->opt.peers_max) {
        return RU_FAIL(err, RU_E_LIMIT, "this process already opens %u connections, its limit",
                       ch->opt.peers_max);
    }
    rui_dial *d = &ch->dials[i];
    memset(d, 0, sizeof *d);
    d->used = true;
    ch->dials_live++;
    d->peer = peer;
    d->conn[0] = d->conn[1] = RUI_NONE;
    d->pause_ns = RETRY_FIRST_NS;
    memcpy(d->address, address, n + 1);
    ru_status st = dial_try(ch, i, now, err);
    if (st != RU_OK) {
        dial_over(ch, d);
    } else if (peer != RUI_NONE) {
        ch->peers[peer].dial = i;
    }
    return st;
}

/* One connection of the dial is gone (its record is free). */
static void dial_failed(ru_chan *ch, uint32_t i, ru_status why, ru_time now)
{
    rui_dial *d = &ch->dials[i];
    dial_close(ch, d);
    if (d->peer != RUI_NONE && why == RU_E_PEER && ch->peers[d->peer].cut_why == RU_E_PEER) {
        rui_peer_end(ch, d->peer, RU_E_PEER, true, now); /* ended, and nobody listens there now */
        return;
    }
    if (d->peer != RUI_NONE) {
        d->at = ru_time_after(now, d->pause_ns);
        d->pause_ns = d->pause_ns * 2 < RETRY_MAX_NS ? d->pause_ns * 2 : RETRY_MAX_NS;
        rui_chan_ask_scan(ch, d->at);
        return;
    }
    char address[RUI_ADDRESS_MAX + 1];
    memcpy(address, d->address, sizeof address);
    dial_over(ch, d);
    ch->user.down(ch->user.self, (ru_node_id){0}, address, why, now);
}

/* -- adopting a pair -----------------------------------------------------------------------------
 */

static rui_conn *sibling(ru_chan *ch, const rui_conn *c)
{
    if (c->dial != RUI_NONE) {
        uint32_t other = ch->dials[c->dial].conn[1 - c->class];
        return other != RUI_NONE ? &ch->conns[other] : NULL;
    }
    for (uint32_t i = 0; i < ch->conns_used; i++) {
        rui_conn *o = &ch->conns[i];
        if (o->state == RUI_CONN_READY && o->accepted && o->node == c->node && o->pair == c->pair &&
            o->class != c->class) {
            return o;
        }
    }
    return NULL;
}

static void discard_pair(ru_chan *ch, rui_conn *u, rui_conn *b)
{
    if (u->dial != RUI_NONE) {
        rui_dial_free(ch, u->dial);
        return;
    }
    rui_conn_close(ch, u);
    rui_conn_close(ch, b);
}

static uint32_t peer_new(ru_chan *ch, const rui_conn *u, ru_time now)
{
    uint32_t i = ch->peers_free;
    if (i != RUI_NONE) {
        ch->peers_free = ch->peers[i].next_free;
    } else if (ch->peers_used < ch->opt.peers_max) {
        i = ch->peers_used++;
    } else {
        return RUI_NONE;
    }
    rui_peer *p = &ch->peers[i];
    memset(p, 0, sizeof *p);
    p->name = (rui_name){.stream = u->node, .chain = RUI_NONE};
    p->conn[0] = p->conn[1] = p->dial = RUI_NONE;
    p->item_first = p->item_last = p->item_next = RUI_NONE;
    p->stream_first = p->cancel_first = RUI_NONE;
    p->session[0] = u->shake->theirs.session != 0 ? u->shake->theirs.session : u->pair;
    p->heard_at = p->spoke_at = now;
    memcpy(p->address, u->shake->address, sizeof p->address);
    rui_names_add(&ch->peer_names, i);
    return i;
}

static void close_conns(ru_chan *ch, rui_peer *p)
{
    for (uint32_t k = 0; k < RU_LINK_CLASSES; k++) {
        if (p->conn[k] != RUI_NONE) {
            uint32_t c = p->conn[k];
            p->conn[k] = RUI_NONE;
            rui_conn_close(ch, &ch->conns[c]);
        }
    }
}

/* Of two pairs that both sides opened at once, that of the lesser node stays. */
static bool keeps_old(const ru_chan *ch, const rui_peer *p, const rui_conn *u)
{
    uint64_t old = p->opener ? ch->opt.self.v : p->name.stream;
    uint64_t new = !u->accepted ? ch->opt.self.v : u->node;
    return p->state == RUI_PEER_UP && old < new;
}

/* Neither side knew of a session when it proved itself. */
static bool both_begin(const rui_conn *u)
{
    return u->shake->mine.session == 0 && u->shake->theirs.session == 0;
}

/* Pairs that one side opened at once, before it knew of a session, are proved in another order here
 * than there: of them that with the least number stays, so that both keep the same. That which
 * began the session was followed by another one there, or the session would not be known here. */
static bool yields(const rui_peer *p, const rui_conn *u)
{
    return p->opener == !u->accepted && u->pair >= p->session[0];
}

static void install(ru_chan *ch, uint32_t i, rui_conn *u, rui_conn *b, ru_time now)
{
    rui_peer *p = &ch->peers[i];
    rui_conn *both[RU_LINK_CLASSES] = {[RU_LINK_URGENT] = u, [RU_LINK_BULK] = b};
    p->state = RUI_PEER_UP;
    p->opener = !u->accepted;
    p->pair = u->pair;
    p->wishes = u->wishes;
    p->heard_at = p->spoke_at = now;
    if (u->dial != RUI_NONE) {
        rui_dial *d = &ch->dials[u->dial];
        memcpy(p->dialed, d->address, sizeof p->dialed);
        d->conn[0] = d->conn[1] = RUI_NONE;
        rui_dial_free(ch, u->dial);
    }
    if (p->dial != RUI_NONE) {
        rui_dial_free(ch, p->dial); /* the other side was faster */
    }
    for (uint32_t k = 0; k < RU_LINK_CLASSES; k++) {
        both[k]->dial = RUI_NONE;
        both[k]->peer = i;
        rui_conn_state_set(ch, both[k], RUI_CONN_LIVE);
        p->conn[k] = rui_conn_index(ch, both[k]);
        p->link[k] = rui_conn_id_of(both[k]);
        p->acked_bytes[k] = 0;
    }
    rui_egress_line(ch->egress, i, true);
    rui_peer_active(ch, i);
}

/* A proved connection says why and closes. */
static void leave_conn(ru_chan *ch, rui_conn *c, const char *text)
{
    c->shake->err_status = RU_E_PEER;
    c->shake->err_text = text;
    c->out = RUI_OUT_ERR;
    rui_conn_state_set(ch, c, RUI_CONN_DYING);
    ch->link.ops->wake(ch->link.self, rui_conn_id_of(c));
}

typedef enum verdict {
    DISCARD, /* this pair is of no use */
    GONE,    /* what the other side wants to mend is over here: say so */
    RETRY,   /* what the proofs said is old */
    REFRESH, /* the other side believes in a session that is over here: tell, then retry */
    OVER,    /* the other side has no more what this one wants to mend */
    BEGIN,
    RESUME,
    SWITCH, /* both sides opened a pair at once: the sequences go on over this one */
} verdict;

/* What becomes of a proved pair. What was stated may be old: another pair may have been adopted, or
 * the peer dropped, since the proofs were made. */
static verdict judge(const ru_chan *ch, uint32_t i, const rui_conn *u)
{
    uint64_t session = i != RUI_NONE ? ch->peers[i].session[0] : 0;
    uint64_t mine = u->shake->mine.session, theirs = u->shake->theirs.session;
    bool accepted = u->accepted;
    if (session == 0) {
        if (theirs != 0 && rui_dial_is(ch, theirs)) {
            return BEGIN; /* theirs began with another pair that is still being opened here */
        }
        if (theirs != 0) {
            return accepted ? GONE : REFRESH;
        }
        return mine == 0 ? BEGIN : accepted ? DISCARD : RETRY;
    }
    if (keeps_old(ch, &ch->peers[i], u)) {
        return DISCARD;
    }
    if (theirs == session || (theirs != 0 && theirs == ch->peers[i].session[1])) {
        return RESUME;
    }
    if (both_begin(u)) {
        return yields(&ch->peers[i], u) ? DISCARD : SWITCH;
    }
    if (theirs == 0) { /* an accepter goes on: who connects says so if it cannot */
        return accepted ? RESUME : OVER;
    }
    bool unused = ch->peers[i].rx_seq == 0 && u->shake->theirs.received == 0;
    return unused ? SWITCH : OVER;
}

static void start(ru_chan *ch, uint32_t i, const rui_conn *u, verdict v, ru_time now)
{
    rui_peer *p = &ch->peers[i];
    ru_conn_id ids[RU_LINK_CLASSES];
    for (uint32_t k = 0; k < RU_LINK_CLASSES; k++) {
        ids[k] = rui_conn_id_of(&ch->conns[p->conn[k]]);
        ch->conns[p->conn[k]].waits = false;
    }
    if (v != BEGIN) {
        rui_item_repeat(ch, i, u->shake->theirs.received, now);
        rui_stream_doubt(ch, i, now);
    }
    for (uint32_t k = 0; k < RU_LINK_CLASSES; k++) {
        ch->link.ops->resume(ch->link.self, ids[k]);
    }
    rui_wake_conn(ch, i, RU_LINK_URGENT);
    rui_wake_conn(ch, i, RU_LINK_BULK);
    rui_wake(ch, now);
    if (v == BEGIN) {
        rui_trace_peer(ch, p, true, now);
        if (ch->recorder != NULL && ch->clock_left == 0) {
            ch->clock_at = now; /* a short run has a round as well */
            rui_chan_ask_tick(ch, now);
        }
        ch->user.up(ch->user.self, (ru_node_id){p->name.stream}, p->address, now);
    }
}

/* Say that the session is over, then dial again. */
static void refresh(ru_chan *ch, rui_conn *u, rui_conn *b, ru_time now)
{
    rui_dial *d = &ch->dials[u->dial];
    d->conn[0] = d->conn[1] = RUI_NONE;
    d->at = ru_time_after(now, d->pause_ns);
    rui_chan_ask_scan(ch, d->at);
    rui_conn *both[2] = {u, b};
    for (uint32_t k = 0; k < 2; k++) {
        both[k]->dial = RUI_NONE;
        leave_conn(ch, both[k], "their session has ended");
    }
}

/* Both sides take the same name, of two the lesser. The other one may not have heard of it yet, and
 * knows the session by what this one stated. */
static void rename_session(rui_peer *p, const rui_conn *u, verdict v)
{
    uint64_t mine = u->shake->mine.session;
    uint64_t name = both_begin(u) ? u->pair : u->shake->theirs.session;
    if (v == SWITCH && (both_begin(u) || name < p->session[0])) {
        p->session[1] = p->session[0];
        p->session[0] = name;
    } else if (v == RESUME && mine != 0 && mine != p->session[0]) {
        p->session[1] = mine;
    }
}

static void adopt(ru_chan *ch, rui_conn *u, rui_conn *b, ru_time now)
{
    uint32_t i = rui_peer_find(ch, u->node);
    verdict v = judge(ch, i, u);
    static const char *const words[] = {"discard", "gone",  "retry",  "refresh",
                                        "over",    "begin", "resume", "switch"};
    ru_log(RU_LOG_DEBUG, "comm", "pair", "%s node %016llx %s pair %llx mine %llx theirs %llx",
           words[v], (unsigned long long)u->node, u->accepted ? "accepted" : "opened",
           (unsigned long long)u->pair, (unsigned long long)u->shake->mine.session,
           (unsigned long long)u->shake->theirs.session);
    if (v == RETRY) {
        dial_failed(ch, u->dial, RU_E_AGAIN, now);
        return;
    }
    if (v == REFRESH) {
        refresh(ch, u, b, now);
        return;
    }
    if (v == GONE) {
        leave_conn(ch, u, "their session has ended");
        leave_conn(ch, b, "their session has ended");
        return;
    }
    if (v == DISCARD || v == OVER) {
        discard_pair(ch, u, b);
        if (v == OVER) {
            rui_peer_end(ch, i, RU_E_PEER, true, now);
        }
        return;
    }
    if (i != RUI_NONE) {
        close_conns(ch, &ch->peers[i]);
        rui_egress_line(ch->egress, i, false);
    }
    i = i != RUI_NONE ? i : peer_new(ch, u, now);
    if (i == RUI_NONE) {
        rui_log_refusal(ch, u->shake->address,
                        "this process has the largest number of peers already");
        discard_pair(ch, u, b);
        return;
    }
    rename_session(&ch->peers[i], u, v);
    uint32_t d = dial_of(ch, ch->peers[i].session[0]);
    if (d != RUI_NONE) { /* it begins here: when it is over, it does not begin again */
        ch->dials[d].pair = 0;
    }
    install(ch, i, u, b, now);
    start(ch, i, u, v, now);
}

void rui_conn_ready(ru_chan *ch, rui_conn *c, ru_time now)
{
    rui_conn *o = sibling(ch, c);
    if (o == NULL || o->state != RUI_CONN_READY) {
        return;
    }
    if (o->node != c->node) {
        rui_log_refusal(ch, c->shake->address, "its two connections belong to two processes");
        rui_conn_lost(ch, c, RU_E_PEER, now);
        return;
    }
    bool urgent = c->class == RU_LINK_URGENT;
    adopt(ch, urgent ? c : o, urgent ? o : c, now);
}

/* -- losing --------------------------------------------------------------------------------------
 */

static void lost(ru_chan *ch, rui_conn was, ru_status why, ru_time now)
{
    if (was.peer != RUI_NONE) {
        rui_peer *p = &ch->peers[was.peer];
        p->conn[was.class] = RUI_NONE;
        rui_peer_cut(ch, was.peer, why, now);
    } else if (was.dial != RUI_NONE) {
        ch->dials[was.dial].conn[was.class] = RUI_NONE;
        uint32_t i = was.node != 0 ? rui_peer_find(ch, was.node) : RUI_NONE;
        if (i != RUI_NONE && ch->peers[i].state == RUI_PEER_UP) {
            rui_dial_free(ch, was.dial); /* it is up by another pair */
        } else {
            bool mends = ch->dials[was.dial].peer != RUI_NONE;
            bool answered = was.state != RUI_CONN_DIALING; /* somebody listens there */
            dial_failed(ch, was.dial, mends && answered ? RU_E_IO : why, now);
        }
    } else if (was.accepted && was.state == RUI_CONN_READY) {
        rui_conn *o = sibling(ch, &was);
        if (o != NULL) {
            rui_conn_close(ch, o);
        }
    }
}

void rui_conn_lost(ru_chan *ch, rui_conn *c, ru_status why, ru_time now)
{
    rui_conn was = *c;
    rui_conn_close(ch, c);
    lost(ch, was, why, now);
}

void rui_chan_closed(void *self, ru_conn_id id, ru_status why, const char *sentence, ru_time now)
{
    ru_chan *ch = self;
    rui_conn *c = rui_conn_find(ch, id);
    if (c == NULL) {
        return;
    }
    ru_log(RU_LOG_DEBUG, "comm", "conn_closed", "%s: %s", c->shake->address,
           sentence != NULL ? sentence : ru_status_name(why));
    rui_conn was = *c;
    rui_conn_free(ch, c);
    lost(ch, was, why, now);
}

/* Dial the peer again. A connection ends in the same way when the process died, when it closed one
 * of a pair because the other broke, and when it replaced the pair: dialing tells them apart. */
static void mend(ru_chan *ch, uint32_t i, ru_time now)
{
    rui_peer *p = &ch->peers[i];
    p->mend_at = (ru_time){0};
    const char *address = p->opener ? p->dialed : p->address;
    if (p->dial == RUI_NONE && rui_dial_start(ch, address, i, now, NULL) != RU_OK && p->opener) {
        p->mend_at = ru_time_after(now, RETRY_MAX_NS);
        rui_chan_ask_scan(ch, p->mend_at);
    }
}

void rui_peer_cut(ru_chan *ch, uint32_t i, ru_status why, ru_time now)
{
    rui_peer *p = &ch->peers[i];
    if (p->state != RUI_PEER_UP) {
        return;
    }
    close_conns(ch, p);
    rui_egress_line(ch->egress, i, false);
    p->state = RUI_PEER_CUT;
    p->cut_at = now;
    p->cut_why = why;
    if (++p->cuts > CUTS_MAX) {
        rui_peer_end(ch, i, why, true, now);
        return;
    }
    if (p->opener) {
        mend(ch, i, now);
    } else {
        p->mend_at = ru_time_after(now, MEND_NS);
        rui_chan_ask_scan(ch, p->mend_at);
    }
    rui_chan_ask_scan(ch, ru_time_after(now, ch->opt.reconnect_ns));
}

void rui_peer_end(ru_chan *ch, uint32_t i, ru_status why, bool tell, ru_time now)
{
    rui_peer *p = &ch->peers[i];
    RU_CHECK(p->state != RUI_PEER_FREE);
    if (p->state == RUI_PEER_ENDING) {
        return;
    }
    p->state = RUI_PEER_ENDING;
    ru_log(RU_LOG_DEBUG, "comm", "peer_end", "%s: %s", p->address, ru_status_name(why));
    rui_names_remove(&ch->peer_names, i);
    rui_peer_inactive(ch, i);
    close_conns(ch, p);
    if (p->dial != RUI_NONE) {
        rui_dial_free(ch, p->dial);
    }
    rui_egress_line(ch->egress, i, false);
    ru_status of_xfer = tell ? why : RU_E_CANCELLED;
    while (p->stream_first != RUI_NONE) {
        uint32_t s = p->stream_first;
        uint64_t cookie = ch->streams[s].cookie;
        bool told = ch->streams[s].told;
        rui_stream_free(ch, s);
        if (!told) {
            ch->user.failed(ch->user.self, cookie, of_xfer, now);
        }
    }
    for (uint32_t s; (s = rui_ingress_first(ch->ingress, i)) != RUI_NONE;) {
        rui_slot_fail(ch, s, of_xfer, now);
    }
    rui_item_drop_all(ch, i);
    ru_node_id node = {p->name.stream};
    char address[RUI_ADDRESS_MAX + 1];
    memcpy(address, p->address, sizeof address);
    rui_clock_keep(ch, p);
    rui_trace_peer(ch, p, false, now);
    p->state = RUI_PEER_FREE;
    p->next_free = ch->peers_free;
    ch->peers_free = i;
    if (tell) {
        ch->user.down(ch->user.self, node, address, why, now);
    }
}

/* Both connections say why, then close; the peer is forgotten at once. */
static void farewell(ru_chan *ch, uint32_t i, const char *text)
{
    rui_peer *p = &ch->peers[i];
    for (uint32_t k = 0; k < RU_LINK_CLASSES; k++) {
        if (p->conn[k] != RUI_NONE) {
            rui_conn *c = &ch->conns[p->conn[k]];
            p->conn[k] = RUI_NONE;
            if (c->tx_live > 0 || c->rx_kind == RUI_RX_SLOT) { /* the link uses the user's memory */
                rui_conn_close(ch, c);
                continue;
            }
            c->peer = RUI_NONE;
            leave_conn(ch, c, text);
        }
    }
}

void rui_peer_hostile(ru_chan *ch, uint32_t i, const char *sentence, ru_time now)
{
    rui_peer *p = &ch->peers[i];
    rui_log_refusal(ch, p->address, sentence);
    close_conns(ch, p);
    rui_peer_end(ch, i, RU_E_PEER, true, now);
}

void rui_peer_doom(ru_chan *ch, uint32_t i, const char *sentence, ru_time now)
{
    rui_peer *p = &ch->peers[i];
    if (p->doomed == NULL) {
        p->doomed = sentence != NULL
                        ? sentence
                        : "it does not acknowledge, and the backlog for it is too large";
    }
    rui_chan_ask_scan(ch, now);
}

void ru_chan_refuse(ru_chan *ch, ru_node_id node, const char *sentence, ru_time now)
{
    uint32_t i = rui_peer_find(ch, node.v);
    if (i != RUI_NONE) {
        rui_peer_doom(ch, i, sentence, now);
    }
}

void ru_chan_drop(ru_chan *ch, ru_node_id node, ru_time now)
{
    uint32_t i = rui_peer_find(ch, node.v);
    if (i != RUI_NONE) {
        ch->inside++;
        farewell(ch, i, "the peer ended the session");
        rui_peer_end(ch, i, RU_E_CANCELLED, false, now);
        ch->inside--;
    }
}

static ru_time earlier(ru_time a, ru_time b)
{
    return b.ns != 0 && b.ns < a.ns ? b : a;
}

static ru_time dials_tick(ru_chan *ch, ru_time now, ru_time next)
{
    for (uint32_t d = 0, seen = 0, n = ch->dials_live; seen < n && d < ch->opt.peers_max; d++) {
        rui_dial *x = &ch->dials[d];
        if (!x->used) {
            continue;
        }
        seen++;
        if (x->at.ns != 0 && x->at.ns <= now.ns && dial_try(ch, d, now, NULL) != RU_OK) {
            dial_failed(ch, d, RU_E_AGAIN, now);
        }
        next = earlier(next, x->used ? x->at : next);
    }
    return next;
}

ru_time rui_peer_tick(ru_chan *ch, ru_time now, ru_time next)
{
    next = dials_tick(ch, now, next);
    for (uint32_t i = 0; i < ch->peers_used; i++) {
        rui_peer *p = &ch->peers[i];
        if (p->state == RUI_PEER_CUT && p->mend_at.ns != 0 && p->mend_at.ns <= now.ns) {
            mend(ch, i, now);
        }
        if (p->state == RUI_PEER_CUT && ru_time_since(now, p->cut_at) >= ch->opt.reconnect_ns) {
            rui_peer_end(ch, i, p->cut_why, true, now);
        } else if (p->state == RUI_PEER_UP && p->doomed != NULL) {
            rui_peer_hostile(ch, i, p->doomed, now);
        } else if (p->state == RUI_PEER_UP &&
                   ru_time_since(now, p->heard_at) >= ch->opt.silence_ns) {
            rui_peer_cut(ch, i, RU_E_IO, now);
        } else if (p->state == RUI_PEER_UP &&
                   ru_time_since(now, p->spoke_at) >=
                       (p->rx_told != p->rx_seq ? ACK_NS : KEEPALIVE_NS)) {
            p->ack_due = true;
            rui_wake_conn(ch, i, RU_LINK_URGENT);
        }
        if (p->state == RUI_PEER_CUT) {
            next = earlier(next, ru_time_after(p->cut_at, ch->opt.reconnect_ns));
            next = earlier(next, p->mend_at);
        }
    }
    return next;
}
