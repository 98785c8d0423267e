/* What one peer may hold of what all need: others go on whatever it asks for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/chan/chan_impl.h"
#include "test/test.h"
#include "test/wire/chan_end.h"

enum { HUB, GREEDY, HONEST, HOSTS, SLOTS = 8 };

typedef struct net {
    ru_pipe *pipe;
    ru_chan_end hosts[HOSTS];
    ru_log_options log;
} net;

static void move(net *n, int64_t ns)
{
    ru_chan_ends_run(n->pipe, n->hosts, HOSTS, ns);
}

static void host_open(net *n, uint32_t i)
{
    char address[16];
    snprintf(address, sizeof address, "h%u:1", i);
    ru_chan_options opt = {.self = {i + 1},
                           .address = address,
                           .job = 1,
                           .token = (const uint8_t *)"t",
                           .token_bytes = 1,
                           .peers_max = 3,
                           .streams_max = 256,
                           .slots_max = SLOTS};
    ru_chan_end_open(&n->hosts[i], n->pipe, &opt);
}

static void net_open(net *n)
{
    memset(n, 0, sizeof *n);
    n->log = ru_log_get();
    ru_log_set(&(ru_log_options){.level = RU_LOG_ERROR});
    n->pipe = ru_pipe_new(&(ru_pipe_options){.seed = ru_test_seed()});
    for (uint32_t i = 0; i < HOSTS; i++) {
        host_open(n, i);
    }
    for (uint32_t i = GREEDY; i < HOSTS; i++) {
        ru_err err;
        assert_ok(ru_chan_connect(n->hosts[i].ch, "h0:1", ru_pipe_now(n->pipe), &err), err);
    }
    move(n, 50000000);
    assert_true(ru_chan_is_up(n->hosts[HUB].ch, (ru_node_id){GREEDY + 1}));
    assert_true(ru_chan_is_up(n->hosts[HUB].ch, (ru_node_id){HONEST + 1}));
}

static void net_close(net *n)
{
    for (uint32_t i = 0; i < HOSTS; i++) {
        ru_chan_end_close(&n->hosts[i]);
    }
    ru_pipe_free(n->pipe);
    ru_log_set(&n->log);
}

/* Nothing moves meanwhile, so nothing is acknowledged. */
static void test_words_that_nobody_acknowledges(void **state)
{
    (void)state;
    net n;
    net_open(&n);
    ru_chan *ch = n.hosts[HUB].ch;
    uint32_t greedy = rui_peer_find(ch, GREEDY + 1), honest = rui_peer_find(ch, HONEST + 1);
    ru_time now = ru_pipe_now(n.pipe);
    for (uint32_t k = 0; !ch->peers[greedy].doomed; k++) {
        assert_true(k < ch->items.max);
        rui_control(ch, greedy, RUI_CANCEL, 0, k, 0, 0, now);
    }
    for (uint32_t k = 0; k < 100; k++) {
        rui_control(ch, honest, RUI_CANCEL, 0, k, 0, 0, now);
        assert_int_equal(ru_chan_message(ch, (ru_node_id){HONEST + 1}, 1, "x", 1, now), RU_OK);
    }
    assert_false(ch->peers[honest].doomed);
    move(&n, 100000000);
    assert_int_equal(n.hosts[HUB].downs_of[GREEDY + 1], 1);
    assert_int_equal(n.hosts[HUB].downs_of[HONEST + 1], 0);
    assert_int_equal(n.hosts[HONEST].messages, 100);
    net_close(&n);
}

/* A user who sends and sends is told to stop; others, and control messages to the same peer, go on.
 */
static void test_messages_that_nobody_acknowledges(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 3000, RU_CHAN_MESSAGE_MAX};
    static uint8_t data[RU_CHAN_MESSAGE_MAX];
    for (uint32_t i = 0; i < RU_ARRAY_LEN(sizes); i++) {
        net n;
        net_open(&n);
        ru_chan *ch = n.hosts[HUB].ch;
        ru_time now = ru_pipe_now(n.pipe);
        uint32_t sent = 0;
        while (ru_chan_message(ch, (ru_node_id){GREEDY + 1}, 1, data, sizes[i], now) == RU_OK) {
            sent++;
        }
        assert_true(sent > 10 && sent < ch->items.max / 2);
        uint32_t greedy = rui_peer_find(ch, GREEDY + 1);
        for (uint32_t k = 0; k < 500; k++) {
            rui_control(ch, greedy, RUI_CANCEL, 0, k, 0, 0, now);
        }
        assert_false(ch->peers[greedy].doomed);
        for (uint32_t k = 0; k < 8; k++) {
            assert_int_equal(ru_chan_message(ch, (ru_node_id){HONEST + 1}, 1, data, sizes[i], now),
                             RU_OK);
        }
        move(&n, 3000000000);
        assert_int_equal(n.hosts[GREEDY].messages, sent);
        assert_int_equal(n.hosts[HONEST].messages, 8);
        assert_int_equal(n.hosts[HUB].downs_of[GREEDY + 1] + n.hosts[HUB].downs_of[HONEST + 1], 0);
        net_close(&n);
    }
}

static void send_early(net *n, uint32_t from, uint32_t count, const ru_span *byte)
{
    for (uint32_t k = 0; k < count; k++) {
        ru_chan_send_in in = {.to = {HUB + 1},
                              .name = {from * 1000 + k, 0},
                              .class = RU_CLASS_URGENT,
                              .spans = byte,
                              .n_spans = 1};
        ru_xfer_id id;
        assert_int_equal(ru_chan_send(n->hosts[from].ch, &in, ru_pipe_now(n->pipe), &id), RU_OK);
    }
}

/* Each may send RUI_EARLY_MAX small streams before their slots; further ones take the bulk
 * connection. No slot of another is lost by that, and none of the user's own. */
static void test_streams_before_their_slots(void **state)
{
    (void)state;
    net n;
    net_open(&n);
    uint8_t byte = 7, got[SLOTS] = {0};
    ru_span from = {&byte, 1};
    send_early(&n, GREEDY, RUI_EARLY_MAX + 20, &from);
    move(&n, 100000000);
    send_early(&n, HONEST, RUI_EARLY_MAX, &from);
    move(&n, 100000000);
    ru_chan_end *hub = &n.hosts[HUB];
    assert_int_equal(hub->downs_of[GREEDY + 1] + hub->downs_of[HONEST + 1], 0);
    for (uint32_t k = 0; k < SLOTS; k++) {
        ru_span to = {&got[k], 1};
        ru_chan_post_in in = {
            .from = {HONEST + 1}, .name = {HONEST * 1000 + k, 0}, .spans = &to, .n_spans = 1};
        ru_xfer_id id;
        assert_int_equal(ru_chan_post(hub->ch, &in, ru_pipe_now(n.pipe), &id), RU_OK);
    }
    move(&n, 100000000);
    assert_int_equal(hub->arrived, SLOTS);
    assert_int_equal(got[SLOTS - 1], 7);
    net_close(&n);
}

/* Control has had all the bytes, far more than 2 %: a message lets an urgent stream go first, but
 * does not wait for the end of many. */
static void test_control_beyond_its_part_gives_way(void **state)
{
    (void)state;
    enum { LONG = 4 << 20 };
    uint8_t *bytes = calloc(2, LONG);
    assert_non_null(bytes);
    for (uint32_t urgent = 0; urgent < 2; urgent++) {
        net n;
        net_open(&n);
        ru_chan_end *hub = &n.hosts[HUB];
        static uint8_t big[RU_CHAN_MESSAGE_MAX];
        for (uint32_t k = 0; k < 8; k++) {
            ru_time now = ru_pipe_now(n.pipe);
            assert_int_equal(
                ru_chan_message(hub->ch, (ru_node_id){HONEST + 1}, 0, big, sizeof big, now), RU_OK);
            move(&n, 20000000);
        }
        assert_int_equal(n.hosts[HONEST].messages, 8);
        ru_span from = {bytes, LONG}, to = {bytes + LONG, LONG};
        ru_chan_post_in in = {.from = {HUB + 1}, .name = {1, 0}, .spans = &to, .n_spans = 1};
        ru_chan_send_in out = {.to = {HONEST + 1},
                               .name = {1, 0},
                               .class = urgent == 1 ? RU_CLASS_URGENT : RU_CLASS_NORMAL,
                               .spans = &from,
                               .n_spans = 1};
        ru_xfer_id id;
        ru_time now = ru_pipe_now(n.pipe);
        assert_int_equal(ru_chan_post(n.hosts[HONEST].ch, &in, now, &id), RU_OK);
        assert_int_equal(ru_chan_send(hub->ch, &out, now, &id), RU_OK);
        assert_int_equal(ru_chan_message(hub->ch, (ru_node_id){HONEST + 1}, 0, "x", 1, now), RU_OK);
        assert_true(rui_egress_control_spent(hub->ch->egress));
        while (n.hosts[HONEST].messages < 9) {
            move(&n, 100000);
            assert_true(ru_time_since(ru_pipe_now(n.pipe), now) < 40000000);
        }
        ru_chan_stats st;
        ru_chan_stats_get(hub->ch, &st);
        assert_int_equal(st.demoted, urgent);
        bool waited = ru_time_since(ru_pipe_now(n.pipe), now) >= 2000000;
        assert_true(waited == (urgent == 1) || n.hosts[HONEST].arrived == 1);
        while (n.hosts[HONEST].arrived == 0) {
            move(&n, 1000000);
        }
        net_close(&n);
    }
    free(bytes);
}

static void test_hints_of_one_peer_push_out_only_its_own(void **state)
{
    (void)state;
    enum { PEERS = 5, FLOOD = 20000 };
    ru_arena arena;
    ru_arena_init(&arena, 0);
    rui_ingress *g;
    ru_err err;
    assert_ok(rui_ingress_open(SLOTS, PEERS, 2, &arena, &g, &err), err);
    for (uint32_t k = 0; k < 20; k++) {
        uint32_t s = rui_ingress_new(g, 0, k, 0, RUI_SLOT_STOPPED);
        assert_int_not_equal(s, RUI_NONE);
    }
    for (uint32_t k = 0; k < FLOOD; k++) { /* two that flood, in turns */
        uint32_t s = rui_ingress_new(g, 1 + k % 2, k, 0, RUI_SLOT_LOST);
        assert_int_not_equal(s, RUI_NONE);
        assert_int_equal(rui_ingress_find(g, 1 + k % 2, k, 0), s);
    }
    for (uint32_t k = 0; k < 20; k++) {
        assert_int_not_equal(rui_ingress_find(g, 0, k, 0), RUI_NONE);
    }
    for (uint32_t k = 0; k < SLOTS; k++) { /* the user's own, and their way to hints */
        uint32_t s = rui_ingress_new(g, 3, k, 0, RUI_SLOT_POSTED);
        assert_int_not_equal(s, RUI_NONE);
        assert_int_not_equal(rui_ingress_new(g, 4, k, 0, RUI_SLOT_THROWN), RUI_NONE);
    }
    assert_true(rui_ingress_full(g));
    for (uint32_t k = 0; k < SLOTS; k++) {
        rui_ingress_state(g, rui_ingress_find(g, 3, k, 0), RUI_SLOT_THROWN);
    }
    assert_false(rui_ingress_full(g));
    assert_int_not_equal(rui_ingress_find(g, 3, SLOTS - 1, 0), RUI_NONE);
    ru_arena_fini(&arena);
}

RU_TESTS(comm_chan_limit, cmocka_unit_test(test_words_that_nobody_acknowledges),
         cmocka_unit_test(test_messages_that_nobody_acknowledges),
         cmocka_unit_test(test_streams_before_their_slots),
         cmocka_unit_test(test_control_beyond_its_part_gives_way),
         cmocka_unit_test(test_hints_of_one_peer_push_out_only_its_own))
