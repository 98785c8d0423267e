/* A connection until it is proved.
 *
 *   who connects (C)                               who accepts (A)
 *   HELLO job, node, pair, nonce  ------------->   refuses another version or job
 *                     <-------------------------   HELLO job, node, pair (the same), nonce
 *   PROOF session, received, mac  ------------->   verifies, READY
 *   verifies, READY   <-------------------------   PROOF session, received, mac
 *
 *   mac = HMAC(token, role, d(C), d(A), session, received),   d = HMAC(token, role, class, HELLO)
 *
 * Both nonces are in, so that no recorded proof serves again; the role is in, so that no proof can
 * be sent back to its maker. Of a peer that has not proved itself nothing is kept but this
 * connection's fixed record, and only unproved_max of those: one gives way to the next. */
#include <string.h>

#include "base/log.h"
#include "base/wire.h"
#include "comm/chan/chan_impl.h"

static const int64_t HANDSHAKE_NS = 3000000000, DYING_NS = 500000000;

/* -- records of connections ----------------------------------------------------------------------
 */

ru_conn_id rui_conn_id_of(const rui_conn *c)
{
    return (ru_conn_id){(uint32_t)c->name.stream};
}

rui_conn *rui_conn_find(ru_chan *ch, ru_conn_id id)
{
    uint32_t i = rui_names_find(&ch->conn_names, id.v, 0, 0);
    return i != RUI_NONE ? &ch->conns[i] : NULL;
}

rui_conn *rui_conn_new(ru_chan *ch, ru_conn_id id, ru_time now)
{
    uint32_t i = ch->conns_free;
    if (i != RUI_NONE) {
        ch->conns_free = ch->conns[i].next_free;
    } else if (ch->conns_used < ch->conns_max) {
        i = ch->conns_used++;
    } else {
        return NULL;
    }
    rui_conn *c = &ch->conns[i];
    rui_shake *shake = &ch->shakes[i];
    memset(shake, 0, sizeof *shake);
    memset(c, 0, sizeof *c);
    c->shake = shake;
    c->name = (rui_name){.stream = id.v, .chain = RUI_NONE};
    c->peer = c->dial = RUI_NONE;
    c->rx_slot = c->rx_block = RUI_NONE;
    c->since = now;
    rui_names_add(&ch->conn_names, i);
    ch->conns_open++;
    return c;
}

static bool unproved(const rui_conn *c)
{
    return c->accepted && c->state != RUI_CONN_FREE && c->state != RUI_CONN_LIVE;
}

static void forget_key(rui_conn *c)
{
    rui_hmac_close(c->shake->own);
    c->shake->own = NULL;
}

void rui_conn_free(ru_chan *ch, rui_conn *c)
{
    forget_key(c);
    RU_CHECK(c->state != RUI_CONN_FREE);
    ch->unproved -= unproved(c);
    ch->conns_open--;
    ch->conns_live -= c->state == RUI_CONN_LIVE;
    rui_blocks_give(&ch->blocks, c->rx_block);
    uint32_t i = rui_conn_index(ch, c);
    rui_names_remove(&ch->conn_names, i);
    c->state = RUI_CONN_FREE;
    c->next_free = ch->conns_free;
    ch->conns_free = i;
}

void rui_conn_close(ru_chan *ch, rui_conn *c)
{
    ru_conn_id id = rui_conn_id_of(c);
    rui_conn_free(ch, c);
    ch->link.ops->close(ch->link.self, id);
}

void rui_conn_state_set(ru_chan *ch, rui_conn *c, rui_conn_state state)
{
    ch->unproved -= unproved(c);
    ch->conns_live -= c->state == RUI_CONN_LIVE;
    c->state = state;
    ch->unproved += unproved(c);
    ch->conns_live += state == RUI_CONN_LIVE;
    if (state == RUI_CONN_LIVE) {
        forget_key(c);
    }
}

/* -- refusals ------------------------------------------------------------------------------------
 */

void rui_log_refusal(ru_chan *ch, const char *address, const char *sentence)
{
    ch->stats.refused++;
    ru_refusals_add(&ch->refusals, "comm", address, sentence, ch->now);
}

void rui_conn_refuse(ru_chan *ch, rui_conn *c, ru_status why, const char *text)
{
    rui_log_refusal(ch, c->shake->address, text);
    ch->stats.denied += why == RU_E_PERM;
    c->shake->err_status = why;
    c->shake->err_text = text;
    c->out = RUI_OUT_ERR;
    rui_conn_state_set(ch, c, RUI_CONN_DYING);
    ch->link.ops->wake(ch->link.self, rui_conn_id_of(c));
}

/* -- opening -------------------------------------------------------------------------------------
 */

uint64_t rui_chan_draw(ru_chan *ch, ru_time now, uint8_t nonce[RUI_NONCE_BYTES])
{
    uint8_t buf[24], out[RUI_HMAC_BYTES];
    ru_wire_out w = ru_wire_out_into(buf, sizeof buf);
    ru_wire_put_u64(&w, ch->opt.self.v);
    ru_wire_put_u64(&w, ++ch->draws);
    ru_wire_put_u64(&w, (uint64_t)now.ns);
    rui_hmac_of(ch->hmac, "rubato draw", &(rui_hmac_part){buf, sizeof buf}, 1, out);
    memcpy(nonce, out, RUI_NONCE_BYTES);
    uint64_t v;
    memcpy(&v, out, sizeof v);
    return v != 0 ? v : 1;
}

static rui_hmac *hmac_of(const ru_chan *ch, const rui_conn *c)
{
    return c->shake->own != NULL ? c->shake->own : ch->hmac;
}

static void digest(const ru_chan *ch, const rui_conn *c, bool of_accepter, const uint8_t *hello,
                   int64_t hello_bytes, uint8_t into[RUI_HMAC_BYTES])
{
    const rui_hmac_part parts[2] = {{&c->class, 1}, {hello, hello_bytes}};
    rui_hmac_of(hmac_of(ch, c), of_accepter ? "rubato greet A" : "rubato greet C", parts, 2, into);
}

static void make_hello(ru_chan *ch, rui_conn *c, ru_time now)
{
    rui_hello h = {.job = ch->opt.job, .node = ch->opt.self.v, .pair = c->pair};
    h.wishes = (ch->opt.grants ? RUI_WISH_GRANTS : 0u) | (ch->opt.crc ? RUI_WISH_CRC : 0u);
    h.address_len = (uint32_t)strlen(ch->address);
    memcpy(h.address, ch->address, h.address_len);
    rui_chan_draw(ch, now, h.nonce);
    c->shake->hello_bytes = (uint32_t)rui_hello_encode(&h, c->shake->hello_out);
    digest(ch, c, c->accepted, c->shake->hello_out, c->shake->hello_bytes, c->shake->digest_mine);
    c->out |= RUI_OUT_HELLO;
}

/* The oldest gives way, of those hosts that have the most: who opens thousands pushes out its own.
 */
static void make_room(ru_chan *ch)
{
    enum { BUCKETS = 256 };
    uint32_t of[BUCKETS] = {0};
    for (uint32_t i = 0; i < ch->conns_used; i++) {
        of[ch->conns[i].host % BUCKETS] += unproved(&ch->conns[i]);
    }
    rui_conn *worst = NULL;
    for (uint32_t i = 0; i < ch->conns_used; i++) {
        rui_conn *c = &ch->conns[i];
        if (!unproved(c)) {
            continue;
        }
        uint32_t n = of[c->host % BUCKETS];
        uint32_t most = worst != NULL ? of[worst->host % BUCKETS] : 0;
        if (n > most || (n == most && c->since.ns < worst->since.ns)) {
            worst = c;
        }
    }
    if (worst != NULL) {
        rui_log_refusal(ch, worst->shake->address,
                        "was replaced by a newer connection before it authenticated");
        rui_conn_close(ch, worst);
    }
}

static uint64_t host_of(const char *address)
{
    uint64_t h = 0xcbf29ce484222325ull;
    const char *colon = strrchr(address, ':');
    for (const char *p = address; *p != '\0' && p != colon; p++) {
        h = (h ^ (uint8_t)*p) * 0x100000001b3ull;
    }
    return h ^ h >> 32;
}

static void set_address(rui_conn *c, const char *address)
{
    size_t n = address != NULL ? strlen(address) : 0;
    n = n < RUI_ADDRESS_MAX ? n : RUI_ADDRESS_MAX;
    if (n > 0) {
        memcpy(c->shake->address, address, n);
    }
    c->shake->address[n] = '\0';
}

void rui_chan_opened(void *self, ru_conn_id id, bool accepted, const char *address, ru_time now)
{
    ru_chan *ch = self;
    rui_conn *c = rui_conn_find(ch, id);
    if (!accepted) {
        if (c == NULL) {
            ch->link.ops->close(ch->link.self, id);
            return;
        }
        RU_CHECK(c->state == RUI_CONN_DIALING);
        c->since = now;
        rui_conn_state_set(ch, c, RUI_CONN_GREET);
        make_hello(ch, c, now);
        ch->link.ops->wake(ch->link.self, id);
        return;
    }
    RU_CHECK(c == NULL);
    if (ch->unproved >= ch->unproved_max) {
        make_room(ch);
    }
    c = rui_conn_new(ch, id, now);
    if (c == NULL) {
        rui_log_refusal(ch, address != NULL ? address : "",
                        "this process has the largest number of connections already");
        ch->link.ops->close(ch->link.self, id);
        return;
    }
    c->accepted = true;
    set_address(c, address);
    c->host = host_of(c->shake->address);
    rui_conn_state_set(ch, c, RUI_CONN_GREET);
}

/* -- greeting and proof --------------------------------------------------------------------------
 */

static void prove(ru_chan *ch, const rui_conn *c, bool of_accepter, const rui_proof *p,
                  uint8_t mac[RUI_MAC_BYTES])
{
    uint8_t words[16];
    ru_wire_out w = ru_wire_out_into(words, sizeof words);
    ru_wire_put_u64(&w, p->session);
    ru_wire_put_u64(&w, p->received);
    const uint8_t *connecter = c->accepted ? c->shake->digest_theirs : c->shake->digest_mine;
    const uint8_t *accepter = c->accepted ? c->shake->digest_mine : c->shake->digest_theirs;
    const rui_hmac_part parts[3] = {
        {connecter, RUI_HMAC_BYTES}, {accepter, RUI_HMAC_BYTES}, {words, sizeof words}};
    rui_hmac_of(hmac_of(ch, c), of_accepter ? "rubato prove A" : "rubato prove C", parts, 3, mac);
}

static void make_proof(ru_chan *ch, rui_conn *c)
{
    uint32_t p = rui_peer_find(ch, c->node);
    c->shake->mine = (rui_proof){0};
    if (p != RUI_NONE) {
        const uint64_t *s = ch->peers[p].session, theirs = c->shake->theirs.session;
        c->shake->mine.session = c->accepted && theirs == s[1] && theirs != 0 ? theirs : s[0];
        c->shake->mine.received = ch->peers[p].rx_seq;
    }
    if (p == RUI_NONE && c->accepted && rui_dial_is(ch, c->shake->theirs.session)) {
        c->shake->mine.session = c->shake->theirs.session; /* about to begin here as well */
    }
    prove(ch, c, c->accepted, &c->shake->mine, c->shake->mine.mac);
    rui_proof_encode(&c->shake->mine, c->shake->proof_out);
    c->out |= RUI_OUT_PROOF;
    ch->link.ops->wake(ch->link.self, rui_conn_id_of(c));
}

/* The key of the peer that it says it is. */
static bool take_key(ru_chan *ch, rui_conn *c)
{
    const uint8_t *key;
    uint32_t key_bytes = 0;
    if (!c->accepted || ch->opt.key_of == NULL) {
        return true;
    }
    return ch->opt.key_of(ch->opt.key_self, (ru_node_id){c->node}, &key, &key_bytes) &&
           rui_hmac_open(key, key_bytes, &c->shake->own, NULL) == RU_OK;
}

static void greeted(ru_chan *ch, rui_conn *c, ru_time now)
{
    rui_hello h;
    ru_err err;
    if (rui_hello_decode(c->shake->in, c->rx.len, &h, &err) != RU_OK) {
        rui_conn_refuse(ch, c, RU_E_PEER, "its greeting is malformed");
        return;
    }
    if (h.job != ch->opt.job) {
        rui_conn_refuse(ch, c, RU_E_PEER, "it belongs to another job");
        return;
    }
    if (h.node == ch->opt.self.v) {
        rui_conn_refuse(ch, c, RU_E_PEER, "it is this process");
        return;
    }
    if (!c->accepted && h.pair != c->pair) {
        rui_conn_refuse(ch, c, RU_E_PEER, "it answers a greeting that was not sent");
        return;
    }
    c->node = h.node;
    c->pair = h.pair;
    c->wishes = h.wishes;
    c->class = c->accepted ? c->rx.class : c->class;
    if (!take_key(ch, c)) {
        rui_conn_refuse(ch, c, RU_E_PERM, "nobody of its name has a key here");
        return;
    }
    digest(ch, c, !c->accepted, c->shake->in, c->rx.len, c->shake->digest_theirs);
    memcpy(c->shake->claimed, h.address, sizeof c->shake->claimed);
    rui_conn_state_set(ch, c, RUI_CONN_PROVE);
    if (c->accepted) {
        make_hello(ch, c, now);
        ch->link.ops->wake(ch->link.self, rui_conn_id_of(c));
    } else {
        make_proof(ch, c);
    }
}

static void proved(ru_chan *ch, rui_conn *c, ru_time now)
{
    uint8_t mac[RUI_MAC_BYTES];
    rui_proof_decode(c->shake->in, &c->shake->theirs);
    prove(ch, c, !c->accepted, &c->shake->theirs, mac);
    if (!rui_hmac_same(mac, c->shake->theirs.mac)) {
        rui_conn_refuse(ch, c, RU_E_PERM, "it does not have the job's token");
        return;
    }
    if (c->shake->claimed[0] != '\0') {
        set_address(c, c->shake->claimed);
    }
    rui_conn_state_set(ch, c, RUI_CONN_READY);
    if (c->accepted) {
        make_proof(ch, c);
    }
    rui_conn_ready(ch, c, now);
}

ru_status rui_shake_head(ru_chan *ch, rui_conn *c, ru_link_rx *rx, ru_time now)
{
    (void)now;
    rui_frame_type want = c->state == RUI_CONN_GREET ? RUI_HELLO : RUI_PROOF;
    const rui_frame *f = &c->rx;
    bool hello = f->type == RUI_HELLO;
    bool class_bad = f->class >= RU_LINK_CLASSES || (!c->accepted && f->class != c->class);
    if (c->state == RUI_CONN_DYING) {
        rui_conn_close(ch, c);
        return RU_E_PEER;
    }
    if (f->type == RUI_ERR) {
        rx->n_spans = f->len > 0;
        rx->spans[0] = (ru_span){c->shake->in, f->len};
        c->rx_kind = RUI_RX_SHAKE;
        return RU_OK;
    }
    if (f->type != want || (hello && class_bad)) {
        rui_log_refusal(ch, c->shake->address, "it sent data before it authenticated");
        rui_conn_lost(ch, c, RU_E_PEER, now);
        return RU_E_PEER;
    }
    rx->n_spans = 1;
    rx->spans[0] = (ru_span){c->shake->in, f->len};
    c->rx_kind = RUI_RX_SHAKE;
    return RU_OK;
}

ru_status rui_shake_body(ru_chan *ch, rui_conn *c, ru_time now)
{
    c->rx_kind = RUI_RX_NONE;
    if (c->rx.type == RUI_ERR) {
        char text[RUI_ERR_TEXT_MAX + 32];
        uint32_t n = 0;
        static const char before[] = "it refuses the connection: ";
        memcpy(text, before, sizeof before - 1);
        for (n = 0; n < c->rx.len; n++) {
            char b = (char)c->shake->in[n];
            text[sizeof before - 1 + n] = b >= ' ' && b <= '~' ? b : '?';
        }
        text[sizeof before - 1 + n] = '\0';
        uint32_t mends = c->dial != RUI_NONE ? ch->dials[c->dial].peer : RUI_NONE;
        rui_log_refusal(ch, c->shake->address, text);
        ch->stats.denied += c->rx.iter == (uint32_t)RU_E_PERM;
        rui_conn_lost(ch, c, RU_E_PEER, now);
        if (mends != RUI_NONE && ch->peers[mends].state == RUI_PEER_CUT) {
            rui_peer_end(ch, mends, RU_E_PEER, true, now); /* there is nothing to mend */
        }
        return RU_E_PEER;
    }
    if (c->rx.type == RUI_HELLO) {
        greeted(ch, c, now);
    } else {
        proved(ch, c, now);
    }
    return RU_OK;
}

/* -- sending -------------------------------------------------------------------------------------
 */

void rui_shake_pull(ru_chan *ch, rui_conn *c, ru_link_tx *tx)
{
    rui_frame f = {.class = c->class};
    tx->n_spans = 1;
    if ((c->out & RUI_OUT_ERR) != 0) {
        f.type = RUI_ERR;
        f.iter = (uint32_t)c->shake->err_status;
        f.len = (uint32_t)strlen(c->shake->err_text);
        RU_CHECK(f.len <= sizeof c->shake->err_out);
        tx->spans[0] = (ru_span){memcpy(c->shake->err_out, c->shake->err_text, f.len), f.len};
        tx->cookie = RUI_OUT_ERR;
    } else if ((c->out & RUI_OUT_HELLO) != 0) {
        f.type = RUI_HELLO;
        f.len = c->shake->hello_bytes;
        tx->spans[0] = (ru_span){c->shake->hello_out, f.len};
        tx->cookie = RUI_OUT_HELLO;
    } else {
        f.type = RUI_PROOF;
        f.len = RUI_PROOF_BYTES;
        tx->spans[0] = (ru_span){c->shake->proof_out, f.len};
        tx->cookie = RUI_OUT_PROOF;
    }
    c->out &= (uint8_t)~tx->cookie;
    rui_tx_crc(ch, &f, tx);
}

void rui_shake_sent(ru_chan *ch, rui_conn *c, uint64_t what, ru_time now)
{
    if (what == RUI_OUT_ERR && c->state == RUI_CONN_DYING) {
        rui_conn_lost(ch, c, RU_E_PEER, now);
    }
}

void rui_shake_tick(ru_chan *ch, ru_time now)
{
    for (uint32_t i = 0; i < ch->conns_used && ch->conns_live < ch->conns_open; i++) {
        rui_conn *c = &ch->conns[i];
        bool shaking =
            c->state == RUI_CONN_GREET || c->state == RUI_CONN_PROVE || c->state == RUI_CONN_READY;
        int64_t age_ns = ru_time_since(now, c->since);
        if (c->state == RUI_CONN_DYING && age_ns > HANDSHAKE_NS + DYING_NS) {
            rui_conn_lost(ch, c, RU_E_PEER, now);
        } else if (shaking && age_ns > HANDSHAKE_NS) {
            ru_refusals_add(&ch->refusals, "comm", c->shake->address, /* slow is not wrong */
                            "it did not authenticate in time", ch->now);
            rui_conn_lost(ch, c, RU_E_IO, now);
        }
    }
}
