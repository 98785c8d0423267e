/* Channels over links in memory: greeting, messages, streams, slots, refusals. */
#include "comm/chan/chan.h"

#include <stdio.h>
#include <string.h>

#include "comm/chan/frame.h"
#include "lab/worlds/pipe.h"
#include "test/test.h"

typedef struct peer {
    ru_arena arena;
    ru_chan *ch;
    uint32_t node;
    ru_pipe *net;
    ru_time tick_at;
    uint32_t ups, downs, messages, sents, arrived, failed, lates;
    ru_node_id up_node;
    ru_status down_why, failed_why;
    uint64_t cookie; /* of the last upcall */
    uint32_t next_what;
    int64_t message_bytes;
    uint8_t last[RU_CHAN_MESSAGE_MAX];
} peer;

static void on_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    peer *p = self;
    (void)now;
    assert_non_null(address);
    p->ups++;
    p->up_node = node;
}

static void on_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    peer *p = self;
    (void)node;
    (void)address;
    (void)now;
    p->downs++;
    p->down_why = why;
}

static void on_message(void *self, ru_node_id from, uint32_t what, const void *data,
                       int64_t size_bytes, ru_time now)
{
    peer *p = self;
    (void)from;
    (void)now;
    assert_int_equal(what, p->next_what);
    p->next_what++;
    p->messages++;
    p->message_bytes = size_bytes;
    memcpy(p->last, data, (size_t)size_bytes);
}

static void on_sent(void *self, uint64_t cookie, ru_time now)
{
    peer *p = self;
    (void)now;
    p->sents++;
    p->cookie = cookie;
}

static void on_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    peer *p = self;
    (void)now;
    p->failed++;
    p->failed_why = why;
    p->cookie = cookie;
}

static void on_arrived(void *self, uint64_t cookie, ru_time now)
{
    peer *p = self;
    (void)now;
    p->arrived++;
    p->cookie = cookie;
}

static void on_late(void *self, uint64_t cookie, int64_t late_ns, ru_time now)
{
    peer *p = self;
    (void)cookie;
    (void)now;
    assert_true(late_ns > 0);
    p->lates++;
}

static void on_tick_at(void *self, ru_time at)
{
    peer *p = self;
    p->tick_at = at;
}

static const uint8_t token[16] = "a shared secret";

static void peer_open(peer *p, ru_pipe *net, uint64_t id, const ru_chan_options *more)
{
    char address[32];
    snprintf(address, sizeof address, "host%u:1", (unsigned)id);
    memset(p, 0, sizeof *p);
    ru_arena_init(&p->arena, 0);
    p->net = net;
    p->node = ru_pipe_node(net, address);
    ru_chan_options opt = more != NULL ? *more : (ru_chan_options){.crc = true};
    opt.self.v = id;
    opt.address = address;
    opt.job = opt.job != 0 ? opt.job : 77;
    opt.token = opt.token != NULL ? opt.token : token;
    opt.token_bytes = sizeof token;
    opt.peers_max = opt.peers_max != 0 ? opt.peers_max : 8;
    opt.streams_max = opt.streams_max != 0 ? opt.streams_max : 64;
    opt.slots_max = opt.slots_max != 0 ? opt.slots_max : 64;
    ru_chan_user user = {.self = p,
                         .up = on_up,
                         .down = on_down,
                         .message = on_message,
                         .sent = on_sent,
                         .failed = on_failed,
                         .arrived = on_arrived,
                         .late = on_late,
                         .tick_at = on_tick_at};
    ru_link link = ru_pipe_link(net, p->node);
    ru_err err;
    assert_ok(ru_chan_open(&opt, &link, &user, &p->arena, &p->ch, &err), err);
    ru_pipe_user(net, p->node, ru_chan_link_user(p->ch));
}

static void peer_close(peer *p)
{
    ru_chan_close(p->ch);
    ru_arena_fini(&p->arena);
}

/* Until nothing moves for `quiet_ns` of virtual time. */
static void run(ru_pipe *net, peer *peers, uint32_t n, int64_t quiet_ns)
{
    ru_time still = ru_pipe_now(net);
    for (uint32_t guard = 0; guard < 20000000; guard++) {
        bool moved = ru_pipe_step(net);
        ru_time now = ru_pipe_now(net);
        for (uint32_t i = 0; i < n; i++) {
            if (peers[i].tick_at.ns <= now.ns) {
                peers[i].tick_at = ru_chan_tick(peers[i].ch, now);
            }
        }
        if (moved) {
            still = now;
        } else {
            ru_pipe_wait(net, 100000);
        }
        if (ru_time_since(now, still) > quiet_ns) {
            return;
        }
    }
    fail_msg("nothing settles");
}

static void pair_open(peer p[2], ru_pipe *net, const ru_chan_options *opt)
{
    peer_open(&p[0], net, 1, opt);
    peer_open(&p[1], net, 2, opt);
    ru_err err;
    assert_ok(ru_chan_connect(p[0].ch, "host2:1", ru_pipe_now(net), &err), err);
    run(net, p, 2, 1000000);
    assert_int_equal(p[0].ups, 1);
    assert_int_equal(p[1].ups, 1);
    assert_int_equal(p[0].up_node.v, 2);
    assert_int_equal(p[1].up_node.v, 1);
}

static void test_messages_arrive_in_order(void **state)
{
    (void)state;
    ru_pipe *net = ru_pipe_new(&(ru_pipe_options){.seed = ru_test_seed()});
    peer p[2];
    pair_open(p, net, NULL);
    static uint8_t big[RU_CHAN_MESSAGE_MAX];
    for (uint32_t i = 0; i < sizeof big; i++) {
        big[i] = (uint8_t)(i * 7 + i / 256);
    }
    for (uint32_t i = 0; i < 200; i++) {
        int64_t size = i % 10 == 9 ? (int64_t)sizeof big : i % 300;
        assert_int_equal(ru_chan_message(p[0].ch, (ru_node_id){2}, i, big, size, ru_pipe_now(net)),
                         RU_OK);
        if (i % 50 == 49) {
            run(net, p, 2, 1000000);
        }
    }
    run(net, p, 2, 1000000);
    assert_int_equal(p[1].messages, 200);
    assert_int_equal(p[1].message_bytes, sizeof big);
    assert_memory_equal(p[1].last, big, sizeof big);
    assert_int_equal(ru_chan_message(p[0].ch, (ru_node_id){3}, 0, NULL, 0, ru_pipe_now(net)),
                     RU_E_PEER);
    peer_close(&p[0]);
    peer_close(&p[1]);
    ru_pipe_free(net);
}

enum { BIG = 3 << 20 };
static uint8_t from[BIG], to[BIG];

static void fill(void)
{
    for (uint32_t i = 0; i < BIG; i++) {
        from[i] = (uint8_t)(i ^ i >> 8 ^ i >> 16);
    }
    memset(to, 0, sizeof to);
}

/* A stream out of one span into many, and the other way; posted before and after. */
static void scatter(bool post_first, bool fine_sender, bool grants, ru_chan_class class)
{
    fill();
    ru_pipe *net = ru_pipe_new(&(ru_pipe_options){.seed = ru_test_seed()});
    peer p[2];
    pair_open(p, net, &(ru_chan_options){.grants = grants, .crc = true});
    static ru_span coarse, fine[1000];
    coarse = (ru_span){fine_sender ? to : from, BIG};
    int64_t at = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        int64_t n = i == 999 ? BIG - at : i % 7 == 3 ? 0 : (int64_t)(i * 37 % 5000);
        fine[i] = (ru_span){(fine_sender ? from : to) + at, n};
        at += n;
    }
    ru_chan_send_in in = {.to = {2},
                          .name = {42, 7},
                          .class = class,
                          .cookie = 5,
                          .spans = fine_sender ? fine : &coarse,
                          .n_spans = fine_sender ? 1000 : 1};
    ru_chan_post_in out = {.from = {1},
                           .name = {42, 7},
                           .cookie = 6,
                           .spans = fine_sender ? &coarse : fine,
                           .n_spans = fine_sender ? 1 : 1000};
    ru_xfer_id tx, rx;
    if (post_first) {
        assert_int_equal(ru_chan_post(p[1].ch, &out, ru_pipe_now(net), &rx), RU_OK);
    }
    assert_int_equal(ru_chan_send(p[0].ch, &in, ru_pipe_now(net), &tx), RU_OK);
    assert_int_equal(ru_chan_send(p[0].ch, &in, ru_pipe_now(net), &tx), RU_E_ARG);
    run(net, p, 2, 1000000);
    if (!post_first) {
        assert_int_equal(p[1].arrived, 0);
        /* Messages pass a bulk connection that waits. */
        assert_int_equal(ru_chan_message(p[0].ch, (ru_node_id){2}, 0, "x", 1, ru_pipe_now(net)),
                         RU_OK);
        run(net, p, 2, 1000000);
        assert_int_equal(p[1].messages, 1);
        assert_int_equal(ru_chan_post(p[1].ch, &out, ru_pipe_now(net), &rx), RU_OK);
        run(net, p, 2, 1000000);
    }
    assert_int_equal(p[0].sents, 1);
    assert_int_equal(p[1].arrived, 1);
    assert_int_equal(p[1].cookie, 6);
    assert_memory_equal(to, from, BIG);
    ru_chan_stats st;
    ru_chan_stats_get(p[0].ch, &st);
    assert_int_equal(st.queued, 0);
    peer_close(&p[0]);
    peer_close(&p[1]);
    ru_pipe_free(net);
}

static void test_streams_land_in_their_slots(void **state)
{
    (void)state;
    scatter(true, false, false, RU_CLASS_NORMAL);
    scatter(false, false, false, RU_CLASS_NORMAL);
    scatter(true, true, false, RU_CLASS_BACKGROUND);
    scatter(false, true, true, RU_CLASS_NORMAL);
    scatter(true, false, true, RU_CLASS_URGENT);
}

/* Frames of each type that a channel gives to its link. */
typedef struct counted {
    ru_link_user inner, user;
    uint32_t n[RUI_FRAME_TYPES];
} counted;

static bool counted_pull(void *self, ru_conn_id id, int64_t room_bytes, ru_link_tx *tx, ru_time now)
{
    counted *c = self;
    bool given = c->inner.pull(c->inner.self, id, room_bytes, tx, now);
    c->n[tx->head[3] % RUI_FRAME_TYPES] += given ? 1 : 0;
    return given;
}

static void counted_opened(void *self, ru_conn_id id, bool accepted, const char *address,
                           ru_time now)
{
    const counted *c = self;
    c->inner.opened(c->inner.self, id, accepted, address, now);
}

static void counted_closed(void *self, ru_conn_id id, ru_status why, const char *sentence,
                           ru_time now)
{
    const counted *c = self;
    c->inner.closed(c->inner.self, id, why, sentence, now);
}

static void counted_sent(void *self, ru_conn_id id, uint64_t cookie, ru_time now)
{
    const counted *c = self;
    c->inner.sent(c->inner.self, id, cookie, now);
}

static ru_status counted_head(void *self, ru_conn_id id, const uint8_t *head, ru_link_rx *rx,
                              ru_time now)
{
    const counted *c = self;
    return c->inner.head(c->inner.self, id, head, rx, now);
}

static ru_status counted_body(void *self, ru_conn_id id, ru_time now)
{
    const counted *c = self;
    return c->inner.body(c->inner.self, id, now);
}

static void count_frames(counted *c, ru_pipe *net, const peer *p)
{
    *c = (counted){.inner = *ru_chan_link_user(p->ch)};
    c->user = (ru_link_user){.self = c,
                             .opened = counted_opened,
                             .closed = counted_closed,
                             .pull = counted_pull,
                             .sent = counted_sent,
                             .head = counted_head,
                             .body = counted_body};
    ru_pipe_user(net, p->node, &c->user);
}

/* Streams that nobody waits for are acknowledged together, and what acknowledges them asks for no
 * frame back; one with a fence at once. */
static void test_acknowledgements_travel_together(void **state)
{
    (void)state;
    enum { STREAMS = 20, EACH = 100000 };
    fill();
    ru_pipe *net = ru_pipe_new(&(ru_pipe_options){.seed = ru_test_seed()});
    peer p[2];
    counted c[2];
    pair_open(p, net, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        count_frames(&c[i], net, &p[i]);
    }
    ru_span s[STREAMS + 1], d[STREAMS + 1];
    ru_xfer_id id;
    for (uint32_t round = 0; round < 2; round++) { /* the names can be used again */
        for (uint32_t i = 0; i < STREAMS + round; i++) {
            s[i] = (ru_span){from + i * EACH, EACH};
            d[i] = (ru_span){to + i * EACH, EACH};
            ru_chan_send_in in = {.to = {2},
                                  .name = {i, 0},
                                  .class = RU_CLASS_NORMAL,
                                  .spans = &s[i],
                                  .n_spans = 1,
                                  .fence = i == STREAMS};
            ru_chan_post_in out = {.from = {1}, .name = {i, 0}, .spans = &d[i], .n_spans = 1};
            assert_int_equal(ru_chan_post(p[1].ch, &out, ru_pipe_now(net), &id), RU_OK);
            assert_int_equal(ru_chan_send(p[0].ch, &in, ru_pipe_now(net), &id), RU_OK);
        }
        run(net, p, 2, round == 0 ? 150000000 : 1000000);
        assert_int_equal(p[0].sents, round == 0 ? STREAMS : 2 * STREAMS + 1);
        assert_in_range(c[1].n[RUI_ACK], 2 * (round + 1), 4 * (round + 1));
        assert_int_equal(c[0].n[RUI_PROBE], 0);
    }
    run(net, p, 2, 700000000);
    assert_int_equal(p[1].arrived, 2 * STREAMS + 1);
    assert_true(c[0].n[RUI_PROBE] >= 1); /* the last words are acknowledged by and by */
    assert_memory_equal(to, from, (STREAMS + 1) * EACH);
    peer_close(&p[0]);
    peer_close(&p[1]);
    ru_pipe_free(net);
}

static void test_small_urgent_streams_pass(void **state)
{
    (void)state;
    fill();
    ru_pipe *net = ru_pipe_new(&(ru_pipe_options){.seed = ru_test_seed()});
    peer p[2];
    pair_open(p, net, NULL);
    for (uint32_t i = 0; i < 20; i++) {
        ru_span s = {from + i * 10000, 10000}, d = {to + i * 10000, 10000};
        ru_xfer_id id;
        ru_chan_send_in in = {.to = {2},
                              .name = {i, 0},
                              .class = RU_CLASS_URGENT,
                              .spans = &s,
                              .n_spans = 1,
                              .fence = i % 3 == 0};
        ru_chan_post_in out = {.from = {1}, .name = {i, 0}, .spans = &d, .n_spans = 1};
        if (i % 2 == 0) {
            assert_int_equal(ru_chan_post(p[1].ch, &out, ru_pipe_now(net), &id), RU_OK);
        }
        assert_int_equal(ru_chan_send(p[0].ch, &in, ru_pipe_now(net), &id), RU_OK);
        run(net, p, 2, 100000);
        if (i % 2 == 1) {
            assert_int_equal(ru_chan_post(p[1].ch, &out, ru_pipe_now(net), &id), RU_OK);
        }
        run(net, p, 2, 200000);
        assert_int_equal(p[0].sents, i + 1);
        assert_int_equal(p[1].arrived, i + 1);
    }
    assert_memory_equal(to, from, 200000);
    peer_close(&p[0]);
    peer_close(&p[1]);
    ru_pipe_free(net);
}

/* May the name be used again: has the acknowledgement come? */
static bool acknowledged(peer p[2], ru_pipe *net, bool fence)
{
    ru_span s = {from, 1000}, d = {to, 1000};
    ru_xfer_id id;
    ru_chan_send_in in = {.to = {2},
                          .name = {1, 0},
                          .class = RU_CLASS_URGENT,
                          .spans = &s,
                          .n_spans = 1,
                          .fence = fence};
    if (ru_chan_send(p[0].ch, &in, ru_pipe_now(net), &id) != RU_OK) {
        return false;
    }
    ru_chan_post_in out = {.from = {1}, .name = {1, 0}, .spans = &d, .n_spans = 1};
    assert_int_equal(ru_chan_post(p[1].ch, &out, ru_pipe_now(net), &id), RU_OK);
    run(net, p, 2, 100000);
    return true;
}

/* Acknowledgements of small streams that nobody waits for travel with what goes that way anyway,
 * with the tick when nothing does, and at once behind a fence. */
/* A stream cancelled when the link has all of it: its memory is read until the link let go, and
 * never again, also when the connection breaks meanwhile and the receiver asks for the rest. */
static void test_what_is_cancelled_is_not_read_again(void **state)
{
    (void)state;
    enum { BYTES = 48 << 10 };
    ru_pipe *net = ru_pipe_new(&(ru_pipe_options){.seed = 5, .queue_bytes = 4096});
    peer *p = calloc(2, sizeof *p);
    uint8_t *data = malloc(BYTES), *into = calloc(1, BYTES);
    assert_true(p != NULL && data != NULL && into != NULL);
    pair_open(p, net, NULL);
    memset(data, 7, BYTES);
    ru_span mine = {data, BYTES}, theirs = {into, BYTES};
    ru_chan_send_in send = {.to = {2},
                            .name = {.stream = 0x100000005},
                            .class = RU_CLASS_NORMAL,
                            .spans = &mine,
                            .n_spans = 1,
                            .cookie = 1};
    ru_xfer_id id;
    assert_int_equal(ru_chan_send(p[0].ch, &send, ru_pipe_now(net), &id), RU_OK);
    run(net, p, 2, 1000000); /* nobody takes it: the link holds what does not fit on the way */
    assert_true(ru_chan_reads(p[0].ch, UINT64_MAX, 0x100000005));
    assert_true(ru_chan_reads(p[0].ch, UINT64_C(1) << 32, UINT64_C(1) << 32));
    assert_false(ru_chan_reads(p[0].ch, UINT64_C(1) << 32, 0));
    ru_chan_cancel(p[0].ch, id, ru_pipe_now(net));
    assert_int_equal(p[0].failed, 0);
    assert_true(ru_chan_reads(p[0].ch, UINT64_MAX, 0x100000005));
    assert_true(ru_pipe_cut(net));
    for (uint32_t k = 0; p[0].failed == 0; k++) { /* the connections come back */
        assert_true(k < 1000);
        run(net, p, 2, 1000000);
    }
    assert_int_equal(p[0].failed_why, RU_E_CANCELLED);
    assert_false(ru_chan_reads(p[0].ch, UINT64_MAX, 0x100000005));
    memset(data, 0xee, BYTES); /* the user's again */
    ru_chan_post_in post = {
        .from = {1}, .name = {.stream = 0x100000005}, .spans = &theirs, .n_spans = 1, .cookie = 2};
    ru_status st = ru_chan_post(p[1].ch, &post, ru_pipe_now(net), &id);
    run(net, p, 2, 10000000);
    assert_true(st == RU_E_CANCELLED || st == RU_E_IO || p[1].failed == 1);
    assert_int_equal(p[0].failed, 1);
    assert_int_equal(p[0].sents + p[1].arrived, 0);
    for (uint32_t i = 0; i < BYTES; i++) {
        assert_true(into[i] != 0xee);
    }
    peer_close(&p[0]);
    peer_close(&p[1]);
    ru_pipe_free(net);
    free(p);
    free(data);
    free(into);
}

static void test_acknowledgements_find_company(void **state)
{
    (void)state;
    fill();
    ru_pipe *net = ru_pipe_new(&(ru_pipe_options){.seed = ru_test_seed()});
    peer p[2];
    pair_open(p, net, NULL);
    assert_true(acknowledged(p, net, false));
    assert_int_equal(p[1].arrived, 1);
    assert_false(acknowledged(p, net, false));
    assert_int_equal(ru_chan_message(p[1].ch, (ru_node_id){1}, 0, "x", 1, ru_pipe_now(net)), RU_OK);
    run(net, p, 2, 100000);
    assert_true(acknowledged(p, net, false));
    assert_false(acknowledged(p, net, false));
    run(net, p, 2, 4000000);
    assert_true(acknowledged(p, net, true));
    assert_true(acknowledged(p, net, false));
    /* Many at once do not wait, lest the sender runs out of room. */
    for (uint32_t i = 0; i < 64; i++) {
        ru_span s = {from, 1000}, d = {to, 1000};
        ru_xfer_id id;
        ru_chan_send_in in = {
            .to = {2}, .name = {100 + i, 0}, .class = RU_CLASS_URGENT, .spans = &s, .n_spans = 1};
        assert_int_equal(ru_chan_send(p[0].ch, &in, ru_pipe_now(net), &id), RU_OK);
        ru_chan_post_in out = {.from = {1}, .name = {100 + i, 0}, .spans = &d, .n_spans = 1};
        assert_int_equal(ru_chan_post(p[1].ch, &out, ru_pipe_now(net), &id), RU_OK);
        run(net, p, 2, 100000);
    }
    assert_int_equal(p[1].arrived, 4 + 64);
    peer_close(&p[0]);
    peer_close(&p[1]);
    ru_pipe_free(net);
}

RU_TESTS(comm_chan, cmocka_unit_test(test_messages_arrive_in_order),
         cmocka_unit_test(test_streams_land_in_their_slots),
         cmocka_unit_test(test_acknowledgements_travel_together),
         cmocka_unit_test(test_small_urgent_streams_pass),
         cmocka_unit_test(test_what_is_cancelled_is_not_read_again),
         cmocka_unit_test(test_acknowledgements_find_company))
