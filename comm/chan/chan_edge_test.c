/* Two channels where lives cross: both dial at once, a pair breaks again and again, a peer is
 * dropped while the link reads its memory, streams end before they are posted, calls that are
 * wrong. */
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "comm/chan/chan_impl.h"
#include "test/test.h"
#include "test/wire/chan_end.h"

enum { LONG = 1 << 20, PEERS = 4 };

typedef struct two {
    ru_pipe *pipe;
    ru_chan_end s[2];
    ru_log_options log;
} two;

static uint8_t from[LONG], to[LONG];

static ru_time move(two *t, uint32_t steps)
{
    for (uint32_t k = 0; k < steps; k++) {
        if (!ru_pipe_step(t->pipe)) {
            ru_pipe_wait(t->pipe, 10000);
        }
        ru_chan_ends_tick(t->pipe, t->s, 2);
    }
    return ru_pipe_now(t->pipe);
}

static void open_ends(two *t, uint64_t seed)
{
    memset(t, 0, sizeof *t);
    t->log = ru_log_get();
    ru_log_set(&(ru_log_options){.level = RU_LOG_ERROR});
    t->pipe = ru_pipe_new(&(ru_pipe_options){.seed = seed, .queue_bytes = 8 << 10});
    for (uint32_t i = 0; i < 2; i++) {
        char address[8];
        snprintf(address, sizeof address, "n%u:1", i);
        ru_chan_options o = {.self = {i + 1},
                             .address = address,
                             .job = 1,
                             .token = (const uint8_t *)"token",
                             .token_bytes = 5,
                             .peers_max = PEERS,
                             .streams_max = 8,
                             .slots_max = 8,
                             .chunk_bytes = 64 << 10};
        ru_chan_end_open(&t->s[i], t->pipe, &o);
    }
}

static void dial(two *t, uint32_t i)
{
    ru_err err;
    assert_ok(ru_chan_connect(t->s[i].ch, i == 0 ? "n1:1" : "n0:1", ru_pipe_now(t->pipe), &err),
              err);
}

static void open_two(two *t, uint64_t seed, bool both_dial)
{
    open_ends(t, seed);
    dial(t, 0);
    if (both_dial) {
        dial(t, 1);
    }
    move(t, 4000);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(t->s[i].ups, 1);
        assert_int_equal(t->s[i].downs, 0);
    }
}

static void close_two(two *t)
{
    for (uint32_t i = 0; i < 2; i++) {
        ru_chan_close(t->s[i].ch);
        for (uint32_t k = 0; k < RU_LINK_CLASSES; k++) { /* the link has none of it any more */
            assert_int_equal(ru_pipe_side(t->pipe, t->s[i].node, (ru_link_class)k), UINT32_MAX);
        }
        ru_arena_fini(&t->s[i].arena);
    }
    ru_pipe_free(t->pipe);
    ru_log_set(&t->log);
}

static rui_peer *peer_of(two *t, uint32_t i)
{
    uint32_t p = rui_peer_find(t->s[i].ch, 2 - i);
    assert_int_not_equal(p, RUI_NONE);
    return &t->s[i].ch->peers[p];
}

static ru_status send(two *t, uint64_t stream, int64_t size_bytes, ru_xfer_id *id)
{
    ru_span s = {from, size_bytes};
    ru_chan_send_in in = {.to = {2},
                          .name = {stream, 0},
                          .class = RU_CLASS_NORMAL,
                          .spans = &s,
                          .n_spans = 1,
                          .fence = true};
    return ru_chan_send(t->s[0].ch, &in, ru_pipe_now(t->pipe), id);
}

static ru_status post(two *t, uint64_t stream, int64_t size_bytes, ru_xfer_id *id)
{
    ru_span s = {to, size_bytes};
    ru_chan_post_in in = {.from = {1}, .name = {stream, 0}, .spans = &s, .n_spans = 1};
    return ru_chan_post(t->s[1].ch, &in, ru_pipe_now(t->pipe), id);
}

/* A stream passes, and both sides tell the same of it. */
static void passes(two *t, uint64_t stream)
{
    ru_xfer_id id;
    uint32_t sent = t->s[0].sent, arrived = t->s[1].arrived;
    ru_chan_stats before[2], after[2];
    for (uint32_t i = 0; i < 2; i++) {
        ru_chan_stats_get(t->s[i].ch, &before[i]);
    }
    assert_int_equal(post(t, stream, 200000, &id), RU_OK);
    assert_int_equal(send(t, stream, 200000, &id), RU_OK);
    move(t, 5000);
    assert_int_equal(t->s[0].sent, sent + 1);
    assert_int_equal(t->s[1].arrived, arrived + 1);
    for (uint32_t i = 0; i < 2; i++) {
        ru_chan_stats_get(t->s[i].ch, &after[i]);
    }
    int64_t chunks = after[0].tx_chunks - before[0].tx_chunks;
    assert_in_range(chunks, 4, 20);
    assert_int_equal(after[1].rx_chunks - before[1].rx_chunks, chunks);
    assert_true(after[1].rx_bytes - before[1].rx_bytes >= 200000);
}

/* Both dial at once: one pair stays, that of the lesser node, whatever the timing. */
static void test_both_dial(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        two t;
        open_two(&t, ru_test_seed() + seed, true);
        const rui_peer *a = peer_of(&t, 0), *b = peer_of(&t, 1);
        assert_int_equal(a->pair, b->pair);
        assert_true(a->opener && !b->opener);
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t conns = 0;
            for (uint32_t k = 0; k < t.s[i].ch->conns_used; k++) {
                conns += t.s[i].ch->conns[k].state != RUI_CONN_FREE;
            }
            assert_int_equal(conns, RU_LINK_CLASSES);
            assert_int_equal(t.s[i].ch->dials_live, 0);
        }
        passes(&t, 1);
        close_two(&t);
    }
}

/* One side dials again before its first pair is up, as a joiner does whose network was cut: both go
 * on over the same pair in one session, whichever pair is proved first where, and if one breaks. */
static void one_dials_often(uint64_t seed, uint32_t dials, bool breaks)
{
    two t;
    open_ends(&t, seed);
    for (uint32_t k = 0; k < dials; k++) {
        dial(&t, 0);
    }
    while (breaks && t.s[0].ups + t.s[1].ups < 2) {
        move(&t, 1);
    }
    assert_true(!breaks || ru_pipe_cut(t.pipe));
    for (uint64_t round = 1; round <= 2; round++) {
        move(&t, 20000);
        const rui_peer *a = peer_of(&t, 0), *b = peer_of(&t, 1);
        assert_int_equal(a->pair, b->pair);
        assert_true(a->session[0] == b->session[0] || a->session[0] == b->session[1] ||
                    a->session[1] == b->session[0]);
        passes(&t, round);
        assert_true(ru_pipe_cut(t.pipe));
    }
    move(&t, 20000);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(t.s[i].ups, 1);
        assert_int_equal(t.s[i].downs_of[2 - i], 0);
    }
    close_two(&t);
}

static void test_one_dials_often(void **state)
{
    (void)state;
    one_dials_often(2, 4, false); /* these stopped it */
    one_dials_often(781, 3, false);
    for (uint32_t k = 0; k < 90; k++) {
        one_dials_often(ru_test_seed() + k, 2 + k % 3, k / 3 % 2 == 1);
    }
}

/* Who mends a pair is answered, then the other side closes the new one, as for a later one: it
 * lives. */
static void test_a_new_pair_is_closed(void **state)
{
    (void)state;
    two t;
    open_two(&t, ru_test_seed(), false);
    ru_chan *ch = t.s[1].ch;
    rui_peer_cut(ch, rui_peer_find(ch, 1), RU_E_IO, ru_pipe_now(t.pipe));
    rui_conn *answers = NULL;
    while (answers == NULL) {
        move(&t, 1);
        for (uint32_t k = 0; k < ch->conns_used; k++) {
            rui_conn *c = &ch->conns[k];
            answers = c->accepted && c->state == RUI_CONN_PROVE ? c : answers;
        }
    }
    assert_int_equal(peer_of(&t, 0)->cut_why, RU_E_PEER);
    rui_conn_lost(ch, answers, RU_E_IO, ru_pipe_now(t.pipe));
    move(&t, 20000);
    passes(&t, 1);
    assert_int_equal(t.s[0].downs + t.s[1].downs, 0);
    close_two(&t);
}

/* Cut, and mended without a frame between: not for ever. A frame makes it forget the cuts. */
static void test_cuts_without_a_frame(void **state)
{
    (void)state;
    enum { MOST = 32 };
    two t;
    open_two(&t, ru_test_seed(), false);
    for (uint32_t round = 0; round < 2; round++) {
        passes(&t, 1 + round);
        move(&t, 100000); /* the last words are acknowledged by and by */
        assert_int_equal(peer_of(&t, 0)->cuts, 0);
        for (uint32_t k = 0; k < MOST - 2; k++) {
            assert_true(ru_pipe_cut(t.pipe));
            for (uint32_t guard = 0;
                 peer_of(&t, 0)->cuts == k || peer_of(&t, 0)->state != RUI_PEER_UP ||
                 peer_of(&t, 1)->state != RUI_PEER_UP;
                 guard++) {
                assert_true(guard < 20000);
                move(&t, 1);
            }
            assert_int_equal(peer_of(&t, 0)->cuts, k + 1);
        }
        assert_int_equal(t.s[0].downs + t.s[1].downs, 0);
    }
    for (uint32_t k = 0; k < 8 && t.s[0].downs == 0; k++) {
        assert_true(ru_pipe_cut(t.pipe));
        move(&t, 3000);
    }
    assert_int_equal(t.s[0].downs, 1);
    close_two(&t);
}

/* No new pair to be had: `down` when the time to mend is over, neither before nor long after. */
static void test_down_in_time(void **state)
{
    (void)state;
    two t;
    open_two(&t, ru_test_seed(), false);
    ru_pipe_refuse(t.pipe, true);
    ru_time now = ru_pipe_now(t.pipe);
    assert_true(ru_pipe_cut(t.pipe) && ru_pipe_cut(t.pipe)); /* both: nobody closed them */
    while (t.s[0].downs == 0 || t.s[1].downs == 0) {
        assert_true(ru_time_since(move(&t, 10), now) < 2000000000);
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(t.s[i].why, RU_E_IO);
        assert_in_range(ru_time_since(t.s[i].down_at, now), 1000000000, 1005000000);
    }
    close_two(&t);
}

/* The peer is dropped while its connection has a chunk of the user's memory at hand: that memory is
 * the user's again, so the connection ends at once; one without says farewell first. */
static void test_drop_lets_go_of_memory(void **state)
{
    (void)state;
    two t;
    ru_xfer_id id;
    open_two(&t, ru_test_seed(), false);
    assert_int_equal(post(&t, 1, LONG, &id), RU_OK);
    assert_int_equal(send(&t, 1, LONG, &id), RU_OK);
    const ru_chan *ch = t.s[0].ch;
    const rui_peer *p = peer_of(&t, 0);
    uint32_t urgent = p->conn[RU_LINK_URGENT], bulk = p->conn[RU_LINK_BULK];
    for (uint32_t guard = 0; ch->conns[bulk].tx_live == 0; guard++) {
        assert_true(guard < 20000);
        move(&t, 1);
    }
    assert_true(ru_chan_reads(ch, ~0ull, 1));
    assert_int_equal(ch->conns[urgent].tx_live, 0);
    ru_chan_drop(t.s[0].ch, (ru_node_id){2}, ru_pipe_now(t.pipe));
    assert_false(ru_chan_reads(ch, ~0ull, 1));
    assert_int_equal(ch->conns[bulk].state, RUI_CONN_FREE);
    assert_int_equal(ch->conns[urgent].state, RUI_CONN_DYING);
    assert_int_equal(t.s[0].failed, 1);
    assert_int_equal(t.s[0].why, RU_E_CANCELLED);
    memset(from, 0xee, sizeof from); /* nothing of this comes out */
    move(&t, 5000);
    for (uint32_t i = 0; i < LONG; i++) {
        assert_int_equal(to[i], 0);
    }
    assert_int_equal(t.s[0].downs, 0); /* asked for */
    assert_int_equal(t.s[1].downs, 1);
    memset(from, 0, sizeof from);
    close_two(&t);
}

/* A stream that its sender cancelled before it was posted: the post says so, once, and what came of
 * it holds up nothing. */
static void test_cancelled_before_posted(void **state)
{
    (void)state;
    for (uint32_t steps = 0; steps < 60; steps++) {
        two t;
        ru_xfer_id tx, rx;
        open_two(&t, ru_test_seed(), false);
        assert_int_equal(send(&t, 1, LONG, &tx), RU_OK);
        move(&t, steps);
        ru_chan_cancel(t.s[0].ch, tx, ru_pipe_now(t.pipe));
        move(&t, 5000);
        assert_int_equal(t.s[0].failed, 1);
        assert_int_equal(t.s[0].why, RU_E_CANCELLED);
        assert_int_equal(post(&t, 1, LONG, &rx), RU_E_CANCELLED);
        assert_int_equal(post(&t, 1, 200000, &rx), RU_OK); /* another of that name */
        assert_int_equal(send(&t, 1, 200000, &tx), RU_OK);
        move(&t, 5000);
        assert_int_equal(t.s[1].arrived, 1);
        passes(&t, 2);
        close_two(&t);
    }
}

static void test_wrong_calls(void **state)
{
    (void)state;
    two t;
    ru_xfer_id id = {0};
    open_two(&t, ru_test_seed(), false);
    ru_time now = ru_pipe_now(t.pipe);
    ru_chan *ch = t.s[0].ch;
    ru_span none = {from, 0}, less = {from, -1}, some = {from, 100};
    const ru_chan_send_in good = {
        .to = {2}, .name = {1, 0}, .class = RU_CLASS_NORMAL, .spans = &some, .n_spans = 1};
    ru_chan_send_in in = good;
    in.n_spans = 0;
    assert_int_equal(ru_chan_send(ch, &in, now, &id), RU_E_ARG);
    in = good;
    in.class = RU_CLASS_COUNT;
    assert_int_equal(ru_chan_send(ch, &in, now, &id), RU_E_ARG);
    in = good;
    in.spans = &none;
    assert_int_equal(ru_chan_send(ch, &in, now, &id), RU_E_ARG);
    in.spans = &less;
    assert_int_equal(ru_chan_send(ch, &in, now, &id), RU_E_ARG);
    in = good;
    in.to.v = 3;
    assert_int_equal(ru_chan_send(ch, &in, now, &id), RU_E_PEER);
    ru_chan_post_in out = {.from = {2}, .name = {1, 0}, .spans = &none, .n_spans = 1};
    assert_int_equal(ru_chan_post(ch, &out, now, &id), RU_E_ARG);
    out.spans = &some;
    out.from.v = 3;
    assert_int_equal(ru_chan_post(ch, &out, now, &id), RU_E_PEER);
    out.from.v = 2;
    assert_int_equal(id.v, 0); /* written on success only */
    assert_int_equal(ru_chan_post(ch, &out, now, &id), RU_OK);
    ru_xfer_id slot = id;
    assert_int_equal(ru_chan_post(ch, &out, now, &id), RU_E_ARG); /* the name is in use */
    ru_chan_cancel(ch, slot, now);                                /* of a slot: nothing */
    assert_int_equal(ru_chan_send(ch, &good, now, &id), RU_OK);
    assert_int_equal(ru_chan_send(ch, &good, now, &slot), RU_E_ARG);
    ru_chan_unpost(ch, id, now); /* of a stream: nothing */
    assert_int_equal(ru_chan_message(ch, (ru_node_id){2}, 1, from, -1, now), RU_E_ARG);
    assert_int_equal(ru_chan_message(ch, (ru_node_id){2}, 1, from, RU_CHAN_MESSAGE_MAX + 1, now),
                     RU_E_ARG);
    assert_int_equal(ru_chan_message(ch, (ru_node_id){2}, 1, from, RU_CHAN_MESSAGE_MAX, now),
                     RU_OK);
    ru_err err;
    assert_int_equal(ru_chan_connect(ch, "", now, &err), RU_E_ARG);
    assert_int_equal(t.s[0].failed, 0);
    move(&t, 3000);
    assert_int_equal(t.s[1].messages, 1);
    close_two(&t);
}

/* -- frames that are wrong -----------------------------------------------------------------------
 */

/* A frame behind those of ru_chan_end 0, as if it had sent it. */
static void inject(two *t, ru_link_class class, const rui_frame *f)
{
    static uint8_t buf[RU_LINK_HEAD_BYTES + 4096];
    RU_CHECK(f->len <= 4096);
    rui_frame_encode(f, buf);
    uint32_t conn = ru_pipe_side(t->pipe, t->s[0].node, class);
    assert_int_not_equal(conn, UINT32_MAX);
    for (uint32_t guard = 0;
         !ru_pipe_inject(t->pipe, conn, buf, RU_LINK_HEAD_BYTES + (int64_t)f->len); guard++) {
        assert_true(guard < 1000);
        move(t, 1);
    }
}

/* Frames come once each and in order: one that came is not heard again, one after a gap is no
 * honest peer's. */
static void test_frames_out_of_sequence(void **state)
{
    (void)state;
    for (uint32_t ahead = 0; ahead < 3; ahead++) { /* 0: it came already; 1: the next */
        two t;
        open_two(&t, ru_test_seed(), false);
        const rui_frame f = {
            .type = RUI_MESSAGE, .len = 16, .deadline = (uint32_t)peer_of(&t, 1)->rx_seq + ahead};
        inject(&t, RU_LINK_URGENT, &f);
        for (uint32_t guard = 0; guard < 300 && t.s[1].messages + t.s[1].downs == 0; guard++) {
            move(&t, 1);
        }
        assert_int_equal(t.s[1].messages, ahead == 1 ? 1 : 0);
        assert_int_equal(t.s[1].downs, ahead == 2 ? 1 : 0);
        close_two(&t);
    }
}

/* A peer that offers a new connection says what it has; more may come by the old one before the new
 * one begins. Then it acknowledges what waits to be repeated, and nobody is hostile. */
static void test_more_came_than_was_said(void **state)
{
    (void)state;
    two t;
    open_two(&t, ru_test_seed(), false);
    rui_peer *p = peer_of(&t, 0);
    uint32_t messages = t.s[1].messages;
    for (uint32_t k = 0; k < 5; k++) {
        assert_ok(ru_chan_message(t.s[0].ch, (ru_node_id){2}, 1, from, 16, ru_pipe_now(t.pipe)),
                  (ru_err){0});
    }
    uint64_t said = p->tx_acked, sent = p->tx_seq;
    for (uint32_t guard = 0; peer_of(&t, 1)->rx_seq < sent && guard < 1000; guard++) {
        move(&t, 1);
    }
    assert_int_equal(t.s[1].messages, messages + 5);
    assert_true(said < sent && p->item_first != RUI_NONE); /* not acknowledged yet */
    uint32_t pi = rui_peer_find(t.s[0].ch, 2);
    rui_item_repeat(t.s[0].ch, pi, said, ru_pipe_now(t.pipe));
    assert_true(rui_item_acked(t.s[0].ch, pi, sent));
    assert_true(!rui_item_acked(t.s[0].ch, pi, sent + 1)); /* that was never sent */
    move(&t, 200000); /* the peer's next sign of life tells again what it has */
    assert_int_equal(t.s[0].downs + t.s[1].downs, 0);
    assert_int_equal(t.s[1].messages, messages + 5);
    assert_true(p->item_first == RUI_NONE);
    close_two(&t);
}

/* An acknowledgement beyond the frame that the link has begun to send: its bytes stay where the
 * link reads them, whatever is sent next. */
static void test_acknowledged_while_it_is_sent(void **state)
{
    (void)state;
    enum { MESSAGES = 5, BYTES = 32 << 10 }; /* one fills the queue of the link many times */
    two t;
    open_two(&t, ru_test_seed(), false);
    ru_chan *ch = t.s[0].ch;
    rui_peer *p = peer_of(&t, 0);
    const uint32_t pi = rui_peer_find(ch, 2), messages = t.s[1].messages;
    const uint64_t said = p->tx_acked;
    uint32_t crc = t.s[1].messages_crc;
    assert_true(p->item_first == RUI_NONE && said == p->tx_seq);
    for (uint32_t k = 0; k < MESSAGES; k++) {
        memset(from, (int)(k + 1), BYTES);
        crc = ru_crc32c(crc, from, BYTES);
        assert_int_equal(ru_chan_message(ch, (ru_node_id){2}, 1, from, BYTES, ru_pipe_now(t.pipe)),
                         RU_OK);
    }
    rui_item_repeat(ch, pi, said, ru_pipe_now(t.pipe));
    const uint32_t first = p->item_first;
    for (uint32_t guard = 0; p->item_next == first; guard++) {
        assert_true(guard < 1000);
        move(&t, 1);
    }
    assert_int_equal(ch->conns[p->conn[RU_LINK_URGENT]].tx_live, 1);
    assert_true(rui_item_acked(ch, pi, p->tx_seq));
    assert_int_equal(p->item_first, first);
    assert_int_equal(p->items, MESSAGES);
    memset(from, 0xee, BYTES);
    crc = ru_crc32c(crc, from, BYTES);
    assert_int_equal(ru_chan_message(ch, (ru_node_id){2}, 1, from, BYTES, ru_pipe_now(t.pipe)),
                     RU_OK);
    move(&t, 100000);
    assert_int_equal(t.s[1].messages, messages + MESSAGES + 1);
    assert_int_equal(t.s[1].messages_crc, crc);
    assert_int_equal(t.s[0].downs + t.s[1].downs, 0);
    assert_true(p->item_first == RUI_NONE);
    memset(from, 0, BYTES);
    close_two(&t);
}

/* A small stream comes whole: neither after a part of it nor of another length than its slot, also
 * when that is posted while it comes. */
static void test_small_streams_that_do_not_fit(void **state)
{
    (void)state;
    enum { BYTES = 3000 };
    for (uint32_t k = 0; k < 5; k++) { /* 0, 3: as it should be; 1: a part before; 2, 4: longer */
        two t;
        ru_xfer_id id;
        open_two(&t, ru_test_seed(), false);
        rui_frame f = {.type = RUI_DATA, .flags = RUI_FIRST, .len = 16, .stream = 5};
        if (k < 3) {
            assert_int_equal(post(&t, 5, k == 2 ? BYTES + 4 : BYTES, &id), RU_OK);
        }
        if (k == 1) {
            inject(&t, RU_LINK_BULK, &f);
            move(&t, 300);
            assert_int_equal(t.s[1].downs, 0);
        }
        f.flags = RUI_WHOLE;
        f.len = BYTES;
        f.deadline = (uint32_t)peer_of(&t, 1)->rx_seq + 1;
        inject(&t, RU_LINK_URGENT, &f);
        const ru_chan *ch = t.s[1].ch;
        const rui_conn *c = &ch->conns[peer_of(&t, 1)->conn[RU_LINK_URGENT]];
        for (uint32_t guard = 0; k >= 3 && c->rx_block == RUI_NONE; guard++) {
            assert_true(guard < 1000);
            move(&t, 1);
        }
        if (k >= 3) {
            assert_int_equal(post(&t, 5, k == 4 ? BYTES + 4 : BYTES, &id), RU_OK);
        }
        for (uint32_t guard = 0; guard < 300 && t.s[1].arrived + t.s[1].downs == 0; guard++) {
            move(&t, 1);
        }
        assert_int_equal(t.s[1].arrived, k % 3 == 0 ? 1 : 0);
        assert_int_equal(t.s[1].downs, k % 3 == 0 ? 0 : 1);
        close_two(&t);
    }
}

/* The receiver does not want a stream any more when all of it is sent: whoever asked to know that
 * it arrived is told that it did not, who did not ask is through with it. */
static void test_thrown_after_all_was_sent(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        two t;
        ru_xfer_id id;
        open_two(&t, ru_test_seed(), false);
        ru_chan_cancel_all(t.s[1].ch, ~0ull, 7, ru_pipe_now(t.pipe));
        bool fence = k % 2 == 0;
        ru_span s = {from, k < 2 ? 100 : 200000};
        ru_chan_send_in in = {.to = {2},
                              .name = {7, 0},
                              .class = k < 2 ? RU_CLASS_URGENT : RU_CLASS_NORMAL,
                              .spans = &s,
                              .n_spans = 1,
                              .fence = fence};
        assert_int_equal(ru_chan_send(t.s[0].ch, &in, ru_pipe_now(t.pipe), &id), RU_OK);
        move(&t, 5000);
        assert_int_equal(t.s[0].sent, fence ? 0 : 1);
        assert_int_equal(t.s[0].failed, fence ? 1 : 0);
        assert_int_equal(t.s[0].why, fence ? RU_E_CANCELLED : RU_OK);
        assert_int_equal(t.s[1].arrived + t.s[1].failed + t.s[1].downs, 0);
        close_two(&t);
    }
}

RU_TESTS(comm_chan_edge, cmocka_unit_test(test_more_came_than_was_said),
         cmocka_unit_test(test_acknowledged_while_it_is_sent), cmocka_unit_test(test_both_dial),
         cmocka_unit_test(test_one_dials_often), cmocka_unit_test(test_a_new_pair_is_closed),
         cmocka_unit_test(test_frames_out_of_sequence),
         cmocka_unit_test(test_small_streams_that_do_not_fit),
         cmocka_unit_test(test_thrown_after_all_was_sent),
         cmocka_unit_test(test_cuts_without_a_frame), cmocka_unit_test(test_down_in_time),
         cmocka_unit_test(test_drop_lets_go_of_memory),
         cmocka_unit_test(test_cancelled_before_posted), cmocka_unit_test(test_wrong_calls))
