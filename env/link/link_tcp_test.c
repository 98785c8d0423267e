/* TCP links on loopback: every byte in its place whatever the sizes and parts, ends told once and
 * for the right reason, pauses, limits, hostile strangers, TLS. */
#include "env/link/link_tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/rng.h"
#include "env/link/link_tcp_impl.h"
#include "test/test.h"

enum { FRAMES = 64, PAYLOAD_MAX = 3 << 20, CONNS = 64 };

/* One side. Sends a list of frames on every connection; receives into parts of random sizes. */
typedef struct side {
    ru_loop *loop;
    ru_link_tcp *link;
    ru_link l;
    ru_link_user user;
    ru_rng rng;
    ru_conn_id conns[CONNS];
    uint32_t n_conns, n_opened, n_closed;
    ru_status why;
    char sentence[256];
    char address[128];

    const uint8_t *source; /* payloads are cut from it: frame k starts at k */
    int64_t size[FRAMES];
    uint32_t n_frames, next[CONNS], sent[CONNS];

    uint8_t *sink; /* [PAYLOAD_MAX] */
    int64_t frame_bytes, told_bytes;
    uint32_t frame_seed, got, parts, pauses, pause_every;
    bool refuse;      /* `head` says RU_E_DATA */
    bool close_early; /* closes in `body` */
    bool waiting;
    uint32_t stop_got; /* stop the loop after so many bodies */
} side;

static uint32_t conn_index(side *s, ru_conn_id c)
{
    for (uint32_t k = 0; k < s->n_conns; k++) {
        if (s->conns[k].v == c.v) {
            return k;
        }
    }
    RU_CHECK(s->n_conns < CONNS);
    s->conns[s->n_conns] = c;
    return s->n_conns++;
}

static void on_opened(void *self, ru_conn_id c, bool accepted, const char *address, ru_time now)
{
    (void)accepted, (void)now;
    side *s = self;
    (void)conn_index(s, c);
    s->n_opened++;
    snprintf(s->address, sizeof s->address, "%s", address);
}

static void on_closed(void *self, ru_conn_id c, ru_status why, const char *sentence, ru_time now)
{
    (void)c, (void)now;
    side *s = self;
    s->n_closed++;
    s->why = why;
    snprintf(s->sentence, sizeof s->sentence, "%s", sentence);
    ru_loop_stop(s->loop);
}

static bool on_pull(void *self, ru_conn_id c, int64_t room_bytes, ru_link_tx *tx, ru_time now)
{
    (void)now;
    side *s = self;
    assert_true(room_bytes > 0);
    uint32_t k = conn_index(s, c), f = s->next[k];
    if (f == s->n_frames) {
        return false;
    }
    s->next[k]++;
    memset(tx->head, 0xA5, sizeof tx->head);
    memcpy(tx->head, &f, 4);
    memcpy(tx->head + 8, &s->size[f], 8);
    int64_t at = 0; /* cut into random spans, empty ones too */
    while (at < s->size[f] && tx->n_spans < RU_LINK_SPANS_MAX) {
        int64_t left = s->size[f] - at;
        int64_t n = tx->n_spans == RU_LINK_SPANS_MAX - 1
                        ? left
                        : (int64_t)ru_rng_below_u64(&s->rng, (uint64_t)left + 1);
        tx->spans[tx->n_spans++] = (ru_span){(void *)(uintptr_t)(s->source + f + at), n};
        at += n;
    }
    tx->cookie = f;
    return true;
}

static void on_sent(void *self, ru_conn_id c, uint64_t cookie, ru_time now)
{
    (void)now;
    side *s = self;
    uint32_t k = conn_index(s, c);
    assert_int_equal(cookie, s->sent[k]); /* each once, in order */
    s->sent[k]++;
}

static ru_status on_head(void *self, ru_conn_id c, const uint8_t *head, ru_link_rx *rx, ru_time now)
{
    (void)c, (void)now;
    side *s = self;
    if (s->refuse) {
        return RU_E_DATA;
    }
    if (s->told_bytes == 0 && s->pause_every > 0 && !s->waiting &&
        ++s->pauses % s->pause_every == 0) {
        s->waiting = true;
        s->l.ops->resume(s->l.self, c); /* as early as a user may ask */
        return RU_E_AGAIN;
    }
    s->waiting = false;
    memcpy(&s->frame_seed, head, 4);
    memcpy(&s->frame_bytes, head + 8, 8);
    assert_int_equal(head[39], 0xA5);
    assert_in_range(s->frame_bytes, 0, PAYLOAD_MAX);
    uint32_t spans = ru_rng_below(&s->rng, RU_LINK_SPANS_MAX) + 1;
    while (s->told_bytes < s->frame_bytes && rx->n_spans < spans) {
        uint64_t left = (uint64_t)(s->frame_bytes - s->told_bytes);
        int64_t n = (int64_t)ru_rng_below_u64(&s->rng, left + 1);
        n = n == 0 && ru_rng_below(&s->rng, 3) == 0 ? (int64_t)left : n;
        rx->spans[rx->n_spans++] = (ru_span){s->sink + s->told_bytes, n};
        s->told_bytes += n;
    }
    rx->more = s->told_bytes < s->frame_bytes;
    s->parts += rx->more;
    return RU_OK;
}

static ru_status on_body(void *self, ru_conn_id c, ru_time now)
{
    (void)now;
    side *s = self;
    assert_int_equal(s->told_bytes, s->frame_bytes);
    assert_memory_equal(s->sink, s->source + s->frame_seed, (size_t)s->frame_bytes);
    s->told_bytes = 0;
    s->got++;
    if (s->got == s->stop_got) {
        ru_loop_stop(s->loop);
    }
    if (s->close_early) {
        s->l.ops->close(s->l.self, c);
        ru_loop_stop(s->loop);
    }
    return RU_OK;
}

static uint8_t *source_bytes(void)
{
    uint8_t *b = malloc(PAYLOAD_MAX + FRAMES);
    ru_rng rng = ru_rng_from(ru_test_seed(), 7);
    for (uint32_t k = 0; k < PAYLOAD_MAX + FRAMES; k++) {
        b[k] = (uint8_t)ru_rng_u32(&rng);
    }
    return b;
}

static void side_open(side *s, ru_loop *loop, const uint8_t *source, ru_link_tcp_options opt)
{
    ru_err err = {0};
    *s = (side){.loop = loop, .source = source, .rng = ru_rng_from(ru_test_seed(), 3)};
    s->sink = malloc(PAYLOAD_MAX);
    s->user = (ru_link_user){s, on_opened, on_closed, on_pull, on_sent, on_head, on_body};
    opt.loop = loop;
    assert_ok(ru_link_tcp_open(&opt, &s->link, &err), err);
    s->l = ru_link_tcp_link(s->link);
    ru_link_tcp_user(s->link, &s->user);
}

static void side_close(side *s)
{
    ru_link_tcp_close(s->link);
    free(s->sink);
}

static ru_conn_id dial(side *from, const side *to, ru_link_class class)
{
    ru_err err = {0};
    ru_conn_id c = {0};
    assert_ok(from->l.ops->connect(from->l.self, ru_link_tcp_address(to->link), class, &c, &err),
              err);
    assert_true(c.v != 0);
    return c;
}

static void run(ru_loop *l)
{
    ru_err err = {0};
    assert_ok(ru_loop_run(l, &err), err);
}

static void rounds(ru_loop *l, uint32_t n)
{
    ru_err err = {0};
    for (uint32_t k = 0; k < n; k++) {
        assert_ok(ru_loop_round(l, 0, &err), err);
    }
}

static ru_loop *open_loop(void)
{
    ru_err err = {0};
    ru_loop *l = NULL;
    assert_ok(ru_loop_open(&l, &err), err);
    return l;
}

static const uint8_t key[32] = "a key of this test, 32 bytes...";

/* Both ways at once, all sizes, scattered on both sides, with pauses; plain and TLS. */
static void exchange(ru_link_class class, uint32_t n_conns, bool tls)
{
    ru_loop *loop = open_loop();
    uint8_t *source = source_bytes();
    side a, b;
    ru_link_tcp_options opt = {.listen = "127.0.0.1:0", .conns_max = CONNS, .tls_always = tls};
    opt.psk = tls ? key : NULL;
    opt.psk_bytes = tls ? sizeof key : 0;
    side_open(&b, loop, source, opt);
    opt.listen = NULL;
    side_open(&a, loop, source, opt);
    static const int64_t sizes[] = {
        0,     1,      39,     40,      41, 64, 1000, 4056,        4057,  16384,      16385,
        65536, 100001, 262144, 1 << 20, 7,  0,  0,    PAYLOAD_MAX, 12345, 65536 + 40, 16424};
    a.n_frames = b.n_frames = RU_ARRAY_LEN(sizes);
    memcpy(a.size, sizes, sizeof sizes);
    memcpy(b.size, sizes, sizeof sizes);
    b.pause_every = 3;
    for (uint32_t k = 0; k < n_conns; k++) {
        (void)dial(&a, &b, class);
    }
    uint32_t all = n_conns * RU_ARRAY_LEN(sizes);
    /* One connection's frame at a time is checked: with several, parts interleave. */
    a.stop_got = b.stop_got = n_conns == 1 ? all : 0;
    while (a.n_opened < n_conns || b.n_opened < n_conns) {
        rounds(loop, 1);
    }
    int64_t sends, ends;
    ru_test_os_sends(&sends, &ends);
    ru_alloc_seal(); /* from here on nothing is allocated */
    while (a.got < all || b.got < all) {
        run(loop);
    }
    ru_alloc_unseal();
    ru_test_os_sends(&sends, &ends);
    assert_true(sends > 0); /* what is urgent is never corked */
    assert_int_equal(ends, class == RU_LINK_URGENT ? sends : 0);
    rounds(loop, 3);
    for (uint32_t k = 0; k < n_conns; k++) {
        assert_int_equal(a.sent[k], RU_ARRAY_LEN(sizes));
        assert_int_equal(b.sent[k], RU_ARRAY_LEN(sizes));
    }
    assert_true(a.parts > 0 && b.pauses > 0);
    assert_string_equal(ru_link_tcp_guard(a.link, a.conns[0]), tls ? "tls" : "plain");
    ru_link_facts facts;
    a.l.ops->facts(a.l.self, a.conns[0], &facts);
    assert_true(facts.rtt_ns > 0 && facts.acked_bytes > 4 << 20);
    a.l.ops->close(a.l.self, a.conns[0]);
    a.l.ops->close(a.l.self, a.conns[0]); /* again: nothing */
    run(loop);
    assert_int_equal(b.n_closed, 1);
    assert_int_equal(b.why, RU_E_PEER);
    assert_int_equal(a.n_closed, 0);
    side_close(&a);
    side_close(&b);
    ru_loop_close(loop);
    free(source);
}

/* The address that others are told lies on the way to them. */
static void test_source(void **state)
{
    (void)state;
    char own[RU_LINK_TCP_ADDRESS_MAX];
    assert_true(ru_link_tcp_source("127.0.0.1:9", own));
    assert_string_equal(own, "127.0.0.1");
    assert_true(ru_link_tcp_source("localhost:9", own));
    assert_false(ru_link_tcp_source("nonsense", own));
    assert_false(ru_link_tcp_source(":9", own));
    ru_loop *loop;
    ru_link_tcp *l;
    ru_err err;
    assert_ok(ru_loop_open(&loop, &err), err);
    const ru_link_tcp_options o = {.loop = loop, .listen = ":0", .toward = "127.0.0.1:9"};
    assert_ok(ru_link_tcp_open(&o, &l, &err), err);
    assert_memory_equal(ru_link_tcp_address(l), "127.0.0.1:", 10);
    assert_true(ru_link_tcp_address_ok(":0") && ru_link_tcp_address_ok("[::1]:9"));
    assert_false(ru_link_tcp_address_ok("nonsense") || ru_link_tcp_address_ok(":99999"));
    assert_false(ru_link_tcp_free(ru_link_tcp_address(l)));
    assert_true(ru_link_tcp_free("127.0.0.1:0"));
    ru_link_tcp_close(l);
    ru_loop_close(loop);
}

static void test_exchange(void **state)
{
    (void)state;
    exchange(RU_LINK_BULK, 1, false);
    exchange(RU_LINK_URGENT, 1, false);
}

static void test_exchange_tls(void **state)
{
    (void)state;
    exchange(RU_LINK_BULK, 1, true);
    exchange(RU_LINK_URGENT, 1, true);
}

static void test_many_connections(void **state)
{
    (void)state;
    ru_loop *loop = open_loop();
    uint8_t *source = source_bytes();
    side a, b;
    side_open(&b, loop, source, (ru_link_tcp_options){.listen = "127.0.0.1:0", .conns_max = 40});
    side_open(&a, loop, source, (ru_link_tcp_options){.conns_max = 48});
    a.n_frames = 20;
    for (uint32_t k = 0; k < a.n_frames; k++) {
        a.size[k] = 16; /* arrives whole: small frames on loopback are not torn */
    }
    ru_log_options quiet = ru_log_get(), before = quiet;
    quiet.level = RU_LOG_OFF;
    ru_log_set(&quiet);
    for (uint32_t k = 0; k < 48; k++) {
        (void)dial(&a, &b, k % 2 == 0 ? RU_LINK_URGENT : RU_LINK_BULK);
    }
    ru_err err = {0};
    ru_conn_id c = {0};
    assert_int_equal(a.l.ops->connect(a.l.self, "127.0.0.1:9", RU_LINK_BULK, &c, &err), RU_E_LIMIT);
    while (b.got < 40 * a.n_frames || a.n_closed < 8) {
        assert_ok(ru_loop_round(loop, -1, &err), err);
    }
    ru_log_set(&before);
    assert_int_equal(b.n_opened, 40); /* its limit; eight were turned away */
    side_close(&a);
    side_close(&b);
    ru_loop_close(loop);
    free(source);
}

/* Hosts and ports up to their limits, each with what lies just beyond. */
static void test_limits_of_addresses(void **state)
{
    (void)state;
    char address[RUI_ADDRESS_MAX + 16], host[RUI_ADDRESS_MAX], port[8];
    ru_err err;
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t n = RUI_ADDRESS_MAX - 9 + k % 2;
        bool bracket = k >= 2;
        memset(address, 'a', sizeof address);
        address[0] = bracket ? '[' : 'a';
        snprintf(address + n + bracket, 16, "%s:65535", bracket ? "]" : "");
        ru_status st = rui_addr_split(address, host, port, &err);
        assert_int_equal(st, k % 2 == 0 ? RU_OK : RU_E_ARG);
        if (st == RU_OK) {
            assert_int_equal(strlen(host), n);
            assert_string_equal(port, "65535");
        }
    }
    static const char *const good[] = {"h:0", "h:65535", "h:00080", ":1", "[::1]:1", "[a:b]:22"};
    static const char *const bad[] = {"h:65536", "h:000080", "h:",   "h",    "a:b:1", "[::1]:",
                                      "[::1]",   "[::1]x:1", "[::1", "h:+1", "h: 1"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(good); k++) {
        assert_ok(rui_addr_split(good[k], host, port, &err), err);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(rui_addr_split(bad[k], host, port, &err), RU_E_ARG);
    }
}

static void test_refused_and_bad_addresses(void **state)
{
    (void)state;
    ru_loop *loop = open_loop();
    side a;
    side_open(&a, loop, NULL, (ru_link_tcp_options){.open_ns = 1000000000});
    /* A port that was free a moment ago. */
    side b;
    side_open(&b, loop, NULL, (ru_link_tcp_options){.listen = "127.0.0.1:0"});
    char address[64];
    snprintf(address, sizeof address, "%s", ru_link_tcp_address(b.link));
    side_close(&b);
    ru_err err = {0};
    ru_conn_id c;
    assert_ok(a.l.ops->connect(a.l.self, address, RU_LINK_BULK, &c, &err), err);
    assert_int_equal(a.n_closed, 0); /* never from within the call */
    run(loop);
    assert_int_equal(a.n_closed, 1);
    assert_int_equal(a.why, RU_E_PEER); /* its kernel said so: nobody listens there */
    assert_non_null(strstr(a.sentence, "refused"));
    static const char *const bad[] = {"",    "x",       "1.2.3.4", "1.2.3.4:", ":80",  "h:99999",
                                      "h:0", "a:b:c:1", "[::1]80", "[::1",     "h:-1", "h:1x"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(a.l.ops->connect(a.l.self, bad[k], RU_LINK_BULK, &c, &err), RU_E_ARG);
    }
    assert_ok(a.l.ops->connect(a.l.self, "no-such-host.invalid:1", RU_LINK_BULK, &c, &err), err);
    run(loop);
    assert_int_equal(a.n_closed, 2);
    assert_int_equal(a.why, RU_E_AGAIN);
    side_close(&a);
    ru_link_tcp *l = NULL;
    ru_link_tcp_options opt = {.loop = loop, .listen = "127.0.0.1:0", .psk = key, .psk_bytes = 3};
    assert_int_equal(ru_link_tcp_open(&opt, &l, &err), RU_E_ARG);
    opt = (ru_link_tcp_options){.loop = loop, .listen = "192.0.2.77:1"};
    assert_int_equal(ru_link_tcp_open(&opt, &l, &err), RU_E_PEER);
    opt = (ru_link_tcp_options){.loop = loop, .tls_always = true};
    assert_int_equal(ru_link_tcp_open(&opt, &l, &err), RU_E_ARG);
    ru_loop_close(loop);
}

static void test_frames_refused_and_closed_within(void **state)
{
    (void)state;
    for (uint32_t mode = 0; mode < 2; mode++) {
        ru_loop *loop = open_loop();
        uint8_t *source = source_bytes();
        side a, b;
        side_open(&b, loop, source, (ru_link_tcp_options){.listen = "127.0.0.1:0"});
        side_open(&a, loop, source, (ru_link_tcp_options){.conns_max = 4});
        b.refuse = mode == 0;
        b.close_early = mode == 1;
        a.n_frames = 3;
        a.size[0] = a.size[1] = a.size[2] = 100000;
        (void)dial(&a, &b, RU_LINK_BULK);
        while (a.n_closed == 0) {
            run(loop);
        }
        assert_int_equal(a.why, RU_E_PEER);
        assert_int_equal(b.n_closed, mode == 0 ? 1 : 0);
        assert_int_equal(b.why, mode == 0 ? RU_E_DATA : RU_OK);
        assert_int_equal(b.got, mode);
        side_close(&a);
        side_close(&b);
        ru_loop_close(loop);
        free(source);
    }
}

static int raw_connect(const side *to)
{
    int port = 0;
    assert_int_equal(sscanf(ru_link_tcp_address(to->link), "127.0.0.1:%d", &port), 1);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* A byte at a time: every header and payload is torn everywhere. */
static void test_torn_frames_and_half_close(void **state)
{
    (void)state;
    ru_loop *loop = open_loop();
    uint8_t *source = source_bytes();
    side b;
    side_open(&b, loop, source, (ru_link_tcp_options){.listen = "127.0.0.1:0"});
    int fd = raw_connect(&b);
    for (uint32_t f = 0; f < 3; f++) {
        uint8_t frame[RU_LINK_HEAD_BYTES + 61];
        int64_t size = 30 * f + (f == 2);
        memset(frame, 0xA5, sizeof frame);
        memcpy(frame, &f, 4);
        memcpy(frame + 8, &size, 8);
        memcpy(frame + RU_LINK_HEAD_BYTES, source + f, (size_t)size);
        for (int64_t k = 0; k < RU_LINK_HEAD_BYTES + size; k++) {
            assert_int_equal(send(fd, frame + k, 1, 0), 1);
            rounds(loop, 2);
        }
        rounds(loop, 2);
        assert_int_equal(b.got, f + 1);
    }
    assert_int_equal(send(fd, "half a header", 13, 0), 13);
    assert_int_equal(shutdown(fd, SHUT_WR), 0); /* an end is an end, though it still listens */
    run(loop);
    assert_int_equal(b.n_closed, 1);
    assert_int_equal(b.why, RU_E_PEER);
    char byte;
    assert_int_equal(recv(fd, &byte, 1, 0) <= 0, true);
    close(fd);
    side_close(&b);
    ru_loop_close(loop);
    free(source);
}

static ru_status on_head_two(void *self, ru_conn_id c, const uint8_t *head, ru_link_rx *rx,
                             ru_time now)
{
    (void)c, (void)now;
    side *s = self;
    memcpy(&s->frame_seed, head, 4);
    memcpy(&s->frame_bytes, head + 8, 8);
    s->told_bytes = s->frame_bytes;
    rx->spans[rx->n_spans++] = (ru_span){s->sink, 10};
    rx->spans[rx->n_spans++] = (ru_span){s->sink + 10, s->frame_bytes - 10};
    return RU_OK;
}

/* A frame of which a part came goes elsewhere from then on, wherever the part ends; the one after
 * it is read as ever. */
static void test_redirect(void **state)
{
    (void)state;
    enum { SIZE = 60, CUT = 40 };
    ru_loop *loop = open_loop();
    uint8_t *source = source_bytes(), place[SIZE];
    side b;
    side_open(&b, loop, source, (ru_link_tcp_options){.listen = "127.0.0.1:0"});
    b.user.head = on_head_two;
    int fd = raw_connect(&b);
    for (uint32_t part = 0; part < SIZE; part++) {
        uint8_t frame[RU_LINK_HEAD_BYTES + SIZE], *sink = b.sink;
        int64_t size = SIZE;
        memset(frame, 0xA5, sizeof frame);
        memcpy(frame, &part, 4);
        memcpy(frame + 8, &size, 8);
        memcpy(frame + RU_LINK_HEAD_BYTES, source + part, SIZE);
        memset(sink, 0xEE, SIZE);
        assert_int_equal(send(fd, frame, RU_LINK_HEAD_BYTES + part, 0), RU_LINK_HEAD_BYTES + part);
        while (b.told_bytes == 0) {
            rounds(loop, 1);
        }
        rounds(loop, 2);
        memcpy(place, source + part, part); /* what came stays where it is */
        ru_link_rx rx = {.n_spans = 2};
        rx.spans[0] = (ru_span){place, CUT};
        rx.spans[1] = (ru_span){place + CUT, SIZE - CUT};
        b.l.ops->redirect(b.l.self, b.conns[0], &rx);
        b.sink = place; /* checked in `body` */
        assert_int_equal(send(fd, frame + RU_LINK_HEAD_BYTES + part, SIZE - part, 0), SIZE - part);
        while (b.got == part) {
            rounds(loop, 1);
        }
        b.sink = sink;
        for (uint32_t k = part; k < SIZE; k++) {
            assert_int_equal(sink[k], 0xEE);
        }
    }
    close(fd);
    side_close(&b);
    ru_loop_close(loop);
    free(source);
}

/* open_ns: of who listens; 0: the usual one, in which a busy machine makes a handshake. */
static void tls_listen(side *b, ru_loop *loop, int64_t open_ns)
{
    side_open(b, loop, NULL,
              (ru_link_tcp_options){.listen = "127.0.0.1:0",
                                    .psk = key,
                                    .psk_bytes = sizeof key,
                                    .tls_always = true,
                                    .open_ns = open_ns});
}

static void tls_pair(side *a, side *b, ru_loop *loop, const uint8_t *key_a)
{
    tls_listen(b, loop, 0);
    side_open(a, loop, NULL,
              (ru_link_tcp_options){.psk = key_a, .psk_bytes = sizeof key, .tls_always = true});
}

/* Another key, plain bytes, silence: cut off, not shown to the user, one line each. */
static void test_tls_strangers(void **state)
{
    (void)state;
    static const uint8_t other[32] = "another key of this test, 32 by";
    ru_loop *loop = open_loop();
    side a, b;
    tls_pair(&a, &b, loop, other);
    ru_log_options quiet = ru_log_get(), before = quiet;
    quiet.level = RU_LOG_OFF;
    ru_log_set(&quiet);
    (void)dial(&a, &b, RU_LINK_URGENT);
    run(loop);
    assert_int_equal(a.n_closed, 1);
    assert_int_equal(a.n_opened, 0);
    assert_int_equal(a.why, RU_E_PERM);
    assert_non_null(strstr(a.sentence, "another key"));
    assert_int_equal(b.n_opened, 0);
    side_close(&b);
    tls_listen(&b, loop, 20000000);
    static const char *const garbage[] = {"GET / HTTP/1.0\r\n\r\n", "\x16\x03\x01\xff\xff", "",
                                          "SSH-2.0-x\r\n"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(garbage); k++) {
        int fd = raw_connect(&b);
        size_t n = strlen(garbage[k]);
        assert_int_equal(send(fd, garbage[k], n, 0), n);
        struct timeval patience = {.tv_usec = 1000};
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
        char answer[512];
        ssize_t got = -1;
        do { /* until it hangs up; the slow ones after open_ns */
            ru_err err = {0};
            assert_ok(ru_loop_round(loop, 1000000, &err), err);
            got = recv(fd, answer, sizeof answer, 0);
        } while (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)));
        close(fd);
    }
    ru_log_set(&before);
    assert_int_equal(b.n_opened, 0);
    assert_int_equal(b.n_closed, 0);
    side_close(&a);
    side_close(&b);
    ru_loop_close(loop);
}

/* A key for each name: who has it comes in under its name, nobody under another's or none. */
static bool psk_of(void *self, const char *name, uint8_t *into, uint32_t *bytes)
{
    (void)self;
    if (strcmp(name, "alice") != 0) {
        return false;
    }
    memcpy(into, key, sizeof key);
    *bytes = sizeof key;
    return true;
}

static void test_tls_names(void **state)
{
    (void)state;
    static const uint8_t other[32] = "another key of this test, 32 by";
    static const struct {
        const char *name;
        const uint8_t *key;
        bool comes;
    } rows[] = {
        {"alice", key, true}, {"alice", other, false}, {"bob", key, false}, {NULL, key, false}};
    ru_log_options quiet = ru_log_get(), before = quiet;
    quiet.level = RU_LOG_OFF;
    ru_log_set(&quiet);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_loop *loop = open_loop();
        side a, b;
        side_open(
            &b, loop, NULL,
            (ru_link_tcp_options){.listen = "127.0.0.1:0", .psk_of = psk_of, .tls_always = true});
        side_open(&a, loop, NULL,
                  (ru_link_tcp_options){.psk = rows[k].key,
                                        .psk_bytes = sizeof key,
                                        .psk_name = rows[k].name,
                                        .tls_always = true});
        (void)dial(&a, &b, RU_LINK_URGENT);
        while (a.n_opened + a.n_closed == 0) {
            rounds(loop, 1);
        }
        assert_int_equal(a.n_opened, rows[k].comes);
        assert_true(rows[k].comes || a.why == RU_E_PERM);
        side_close(&a);
        side_close(&b);
        ru_loop_close(loop);
    }
    ru_log_set(&before);
}

/* Strangers that hang up within the handshake, after so many bytes of a greeting, in order or with
 * a reset: their connections are free again at once, not when their time is over. */
static void test_tls_hang_up(void **state)
{
    (void)state;
    static const uint8_t greeting[] = {0x16, 0x03, 0x01, 0x00, 0xc8, 0x01, 0x00, 0x00,
                                       0xc4, 0x03, 0x03, 0x17, 0x2a, 0x3b, 0x4c, 0x5d};
    ru_loop *loop = open_loop();
    side a, b;
    tls_pair(&a, &b, loop, key);
    ru_log_options quiet = ru_log_get(), before = quiet;
    quiet.level = RU_LOG_OFF;
    ru_log_set(&quiet);
    for (uint32_t n = 0; n <= 2 * sizeof greeting + 1; n++) {
        int fd = raw_connect(&b);
        size_t some = n / 2;
        assert_int_equal(send(fd, greeting, some, 0), some);
        ru_err err = {0};
        assert_ok(ru_loop_round(loop, 100000, &err), err); /* it is accepted and greeted */
        struct linger at_once = {.l_onoff = 1};
        if (n % 2 == 1) {
            assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
        }
        close(fd);
        for (uint32_t k = 0; k < 100; k++) {
            assert_ok(ru_loop_round(loop, 100000, &err), err);
        }
        assert_int_equal(b.link->n_free, b.link->opt.conns_max);
    }
    ru_log_set(&before);
    side_close(&a);
    side_close(&b);
    ru_loop_close(loop);
}

/* What waits in the kernel is so long that a loop thread which comes late finds the link busy, and
 * no longer: 0.5 ms of the rate of all, or what the owner says, split among those that are busy. */
static void test_window(void **state)
{
    (void)state;
    assert_int_equal(rui_window_bytes(0, 0, 0), 64 << 10);
    assert_int_equal(rui_window_bytes(1e9, 0, 1), 500000);
    assert_int_equal(rui_window_bytes(1e9, 500000, 4), 125000);
    assert_int_equal(rui_window_bytes(120e6, 5000000, 1), 600000);
    assert_int_equal(rui_window_bytes(120e6, 5000000, 3), 200000);
    assert_int_equal(rui_window_bytes(1e9, 5000000, 1), 4 << 20);
    assert_int_equal(rui_window_bytes(120e6, 0, 60), 16 << 10);
}

/* A network of its own with two ports to connect from, 40000 and 40001; not everybody may have one.
 */
static bool own_network(void)
{
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        return false;
    }
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
    (void)close(fd);
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "w");
    ok = ok && f != NULL && fputs("40000 40001\n", f) > 0;
    return f != NULL && fclose(f) == 0 && ok;
}

enum { ITSELF_REFUSED, ITSELF_STANDS, ITSELF_NO_NETWORK };

static int dial_itself(void)
{
    if (!own_network()) {
        return ITSELF_NO_NETWORK;
    }
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(40000), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool itself = connect(fd, (struct sockaddr *)&at, sizeof at) == 0 && rui_socket_itself(fd);
    struct linger reset = {.l_onoff = 1};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    (void)close(fd);
    if (!itself) {
        return ITSELF_NO_NETWORK; /* the kernel chooses ports in another order */
    }
    ru_loop *loop = open_loop();
    side a;
    side_open(&a, loop, NULL, (ru_link_tcp_options){.open_ns = 1000000000});
    ru_err err = {0};
    ru_conn_id c;
    ru_status st = a.l.ops->connect(a.l.self, "127.0.0.1:40000", RU_LINK_BULK, &c, &err);
    while (st == RU_OK && a.n_opened + a.n_closed == 0) {
        st = ru_loop_round(loop, -1, &err);
    }
    bool right = st == RU_OK && a.n_opened == 0 && a.n_closed == 1 && a.why == RU_E_PEER;
    return right ? ITSELF_REFUSED : ITSELF_STANDS;
}

/* Nobody listens at a port that the kernel gives connections: one made to it ends at itself. */
static void test_not_to_itself(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(dial_itself());
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    if (WEXITSTATUS(how) == ITSELF_NO_NETWORK) {
        print_message("no network of its own to be had: skipped\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(how), ITSELF_REFUSED);
}

RU_TESTS(env_link_tcp, cmocka_unit_test(test_window), cmocka_unit_test(test_exchange),
         cmocka_unit_test(test_exchange_tls), cmocka_unit_test(test_many_connections),
         cmocka_unit_test(test_limits_of_addresses), cmocka_unit_test(test_source),
         cmocka_unit_test(test_refused_and_bad_addresses), cmocka_unit_test(test_not_to_itself),
         cmocka_unit_test(test_frames_refused_and_closed_within),
         cmocka_unit_test(test_torn_frames_and_half_close), cmocka_unit_test(test_redirect),
         cmocka_unit_test(test_tls_names), cmocka_unit_test(test_tls_strangers),
         cmocka_unit_test(test_tls_hang_up))
