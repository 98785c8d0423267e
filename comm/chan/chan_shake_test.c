/* Who is refused: the wrong token, another job, a recorded greeting, an echo, scanners, silence. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "comm/chan/chan_impl.h"
#include "test/test.h"
#include "test/wire/chan_end.h"

static void host_open(ru_chan_end *h, ru_pipe *net, uint64_t id, const char *token, uint64_t job)
{
    char address[32];
    snprintf(address, sizeof address, "host%u:1", (unsigned)id);
    ru_chan_options opt = {.self = {id},
                           .address = address,
                           .job = job,
                           .token = (const uint8_t *)token,
                           .token_bytes = (uint32_t)strlen(token),
                           .peers_max = 8,
                           .streams_max = 8,
                           .slots_max = 8};
    ru_chan_end_open(h, net, &opt);
}

static int64_t refused(const ru_chan_end *h)
{
    ru_chan_stats st;
    ru_chan_stats_get(h->ch, &st);
    return st.refused;
}

/* Two hosts: 1 with the token "secret" of job 5, and 2. */
typedef struct pair {
    ru_pipe *net;
    ru_chan_end h[2];
    ru_log_options was;
} pair;

static void pair_open(pair *p, uint64_t seed, const char *token, uint64_t job)
{
    p->was = ru_log_get();
    ru_log_set(&(ru_log_options){.level = RU_LOG_ERROR});
    p->net = ru_pipe_new(&(ru_pipe_options){.seed = ru_test_seed() + seed});
    host_open(&p->h[0], p->net, 1, "secret", 5);
    host_open(&p->h[1], p->net, 2, token, job);
}

static void pair_close(pair *p)
{
    ru_chan_end_close(&p->h[0]);
    ru_chan_end_close(&p->h[1]);
    ru_pipe_free(p->net);
    ru_log_set(&p->was);
}

static void dial(ru_chan_end *h, ru_pipe *net, const char *address)
{
    ru_err err;
    assert_ok(ru_chan_connect(h->ch, address, ru_pipe_now(net), &err), err);
}

static void test_strangers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *token;
        uint64_t job;
    } rows[] = {{"another", 5}, {"secret", 6}, {"secre", 5}, {"secret ", 5}};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        pair p;
        pair_open(&p, i, rows[i].token, rows[i].job);
        ru_chan_end *h = p.h;
        dial(&h[i % 2], p.net, i % 2 == 0 ? "host2:1" : "host1:1");
        ru_chan_ends_run(p.net, h, 2, 5000000000);
        assert_int_equal(h[0].ups + h[1].ups, 0);
        assert_int_equal(h[i % 2].downs, 1);
        assert_true(refused(&h[0]) > 0 && refused(&h[1]) > 0);
        assert_int_equal(h[0].ch->unproved, 0);
        pair_close(&p);
    }
}

/* The bytes of a good greeting, and of its proof, once more. */
static void test_a_recording_opens_nothing(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, 0, "secret", 5);
    ru_pipe *net = p.net;
    ru_chan_end *h = p.h;
    dial(&h[0], net, "host2:1");
    ru_chan_ends_run(net, h, 2, 50000000);
    assert_int_equal(h[1].ups, 1);
    uint8_t tape[2][1024];
    int64_t n[2];
    for (uint32_t k = 0; k < 2; k++) {
        n[k] = ru_pipe_tapped(net, h[1].node, k, tape[k], sizeof tape[k]);
        assert_true(n[k] > RU_LINK_HEAD_BYTES * 2 + RUI_PROOF_BYTES);
    }
    /* Once while the peer is up, once after it left. */
    for (uint32_t round = 0; round < 2; round++) {
        uint32_t raw[2];
        for (uint32_t k = 0; k < 2; k++) {
            raw[k] = ru_pipe_raw(net, h[1].node);
            assert_int_equal(ru_pipe_raw_write(net, raw[k], tape[k], n[k]), n[k]);
        }
        ru_chan_ends_run(net, h, 2, 50000000);
        assert_int_equal(h[1].ups, 1);
        assert_false(ru_pipe_raw_live(net, raw[0]));
        assert_false(ru_pipe_raw_live(net, raw[1]));
        assert_int_equal(h[1].downs, round);
        ru_chan_drop(h[0].ch, (ru_node_id){2}, ru_pipe_now(net));
        ru_chan_ends_run(net, h, 2, 50000000);
        assert_int_equal(h[1].downs, 1);
    }
    pair_close(&p);
}

/* Everything that the listener says is sent back to it, as if by one who knows the token. */
static void test_an_echo_opens_nothing(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, 0, "secret", 5);
    ru_pipe *net = p.net;
    ru_chan_end *h = p.h;
    uint32_t raw = ru_pipe_raw(net, h[0].node);
    rui_hello hello = {.job = 5, .node = 9, .pair = 3};
    uint8_t buf[4096];
    rui_frame f = {.type = RUI_HELLO};
    f.len = (uint32_t)rui_hello_encode(&hello, buf + RU_LINK_HEAD_BYTES);
    rui_frame_encode(&f, buf);
    ru_pipe_raw_write(net, raw, buf, RU_LINK_HEAD_BYTES + f.len);
    for (uint32_t k = 0; k < 50; k++) {
        ru_chan_ends_run(net, h, 2, 1000000);
        int64_t n = ru_pipe_raw_read(net, raw, buf, sizeof buf);
        ru_pipe_raw_write(net, raw, buf, n);
    }
    assert_int_equal(h[0].ups, 0);
    assert_false(ru_pipe_raw_live(net, raw));
    assert_true(refused(&h[0]) > 0);
    pair_close(&p);
}

static void test_scanners_and_silence(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, 0, "secret", 5);
    ru_pipe *net = p.net;
    ru_chan_end *h = p.h;
    static const char get[] = "GET / HTTP/1.1\r\nHost: x\r\nAccept: everything\r\n\r\n";
    uint32_t web = ru_pipe_raw(net, h[0].node);
    ru_pipe_raw_write(net, web, get, sizeof get - 1);
    ru_chan_ends_run(net, h, 2, 1000000);
    assert_false(ru_pipe_raw_live(net, web));
    /* Four hundred that say nothing; those who prove themselves still come in. */
    uint32_t raw[400];
    for (uint32_t i = 0; i < 400; i++) {
        raw[i] = ru_pipe_raw(net, h[0].node);
        ru_chan_ends_run(net, h, 2, 20000);
        assert_true(h[0].ch->unproved <= h[0].ch->unproved_max);
    }
    dial(&h[1], net, "host1:1");
    ru_chan_ends_run(net, h, 2, 10000000);
    assert_int_equal(h[0].ups, 1);
    ru_chan_ends_run(net, h, 2, 4000000000);
    for (uint32_t i = 0; i < 400; i++) {
        assert_false(ru_pipe_raw_live(net, raw[i]));
    }
    assert_int_equal(h[0].ch->unproved, 0);
    assert_int_equal(h[0].downs, 0);
    pair_close(&p);
}

/* Its own address, of a dead process that had it before, say: never a peer, and the dial ends. */
static void test_itself_is_no_peer(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, 0, "secret", 5);
    ru_pipe *net = p.net;
    ru_chan_end *h = p.h;
    for (uint32_t k = 1; k <= 3; k++) {
        dial(&h[0], net, "host1:1");
        ru_chan_ends_run(net, h, 2, 20000000);
        assert_int_equal(h[0].ups, 0);
        assert_int_equal(h[0].downs, k);
        assert_int_equal(h[0].why, RU_E_PEER); /* whoever was there is gone */
    }
    assert_true(refused(&h[0]) > 0);
    ru_chan_ends_run(net, h, 2, 5000000000);
    assert_int_equal(h[0].ch->unproved, 0);
    assert_int_equal(h[0].ch->dials_live, 0);
    dial(&h[0], net, "host2:1");
    ru_chan_ends_run(net, h, 2, 50000000);
    assert_int_equal(h[0].ups, 1);
    assert_int_equal(h[0].downs, 3);
    pair_close(&p);
}

/* A process that ended: the survivors know within milliseconds, not after the mending time. */
static void test_the_dead_are_known_at_once(void **state)
{
    (void)state;
    for (uint32_t opener = 0; opener < 2; opener++) {
        ru_pipe *net = ru_pipe_new(&(ru_pipe_options){.seed = ru_test_seed() + opener});
        ru_chan_end h[2];
        host_open(&h[0], net, 1, "secret", 5);
        host_open(&h[1], net, 2, "secret", 5);
        dial(&h[opener], net, opener == 0 ? "host2:1" : "host1:1");
        ru_chan_ends_run(net, h, 2, 50000000);
        assert_int_equal(h[0].ups, 1);
        ru_pipe_kill(net, h[1].node);
        ru_chan_ends_run(net, h, 1, 30000000);
        assert_int_equal(h[0].downs, 1);
        ru_chan_end_close(&h[0]);
        rui_hmac_close(h[1].ch->hmac);
        ru_arena_fini(&h[1].arena);
        ru_pipe_free(net);
    }
}

/* Who says nothing for long, as its process stands still, may be right all the same. */
static void test_slow_is_not_wrong(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, 6, "secret", 5);
    uint32_t raw = ru_pipe_raw(p.net, p.h[0].node);
    ru_chan_ends_run(p.net, p.h, 2, 4000000000);
    assert_false(ru_pipe_raw_live(p.net, raw));
    assert_int_equal(refused(&p.h[0]), 0);
    pair_close(&p);
}

RU_TESTS(comm_chan_shake, cmocka_unit_test(test_slow_is_not_wrong),
         cmocka_unit_test(test_strangers_are_refused),
         cmocka_unit_test(test_a_recording_opens_nothing),
         cmocka_unit_test(test_an_echo_opens_nothing), cmocka_unit_test(test_scanners_and_silence),
         cmocka_unit_test(test_itself_is_no_peer),
         cmocka_unit_test(test_the_dead_are_known_at_once))
