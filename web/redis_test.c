/* A server of the test's own on the loopback: what it gets and says is written out by the protocol.
 */
#include "web/redis.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/rng.h"
#include "env/link/link_tcp.h"
#include "test/test.h"

enum { ROUNDS = 20000, ROUND_NS = 1000000, SAID_MAX = 16 };

typedef struct world {
    ru_arena arena;
    ru_loop *loop;
    ru_redis *redis;
    int listener, fd; /* fd: the connection; -1: none */
    char got[4096];   /* what the server got of this connection */
    int64_t n_got;
    uint32_t n; /* replies */
    ru_redis_reply reply[SAID_MAX];
    char text[SAID_MAX][128];
} world;

static void on_reply(void *self, const ru_redis_reply *r)
{
    world *w = self;
    assert_true(w->n < SAID_MAX);
    w->reply[w->n] = *r;
    (void)snprintf(w->text[w->n], sizeof w->text[0], "%.*s", r->n > 0 ? (int)r->n : 0, r->text);
    w->n++;
}

static void open_world(world *w, const char *password)
{
    ru_err err = {0};
    char address[RU_LINK_TCP_ADDRESS_MAX];
    *w = (world){.fd = -1};
    ru_arena_init(&w->arena, 0);
    assert_ok(ru_loop_open(&w->loop, &err), err);
    assert_ok(ru_link_tcp_listen("127.0.0.1:0", &w->listener, address, &err), err);
    assert_int_equal(fcntl(w->listener, F_SETFL, O_NONBLOCK), 0);
    assert_ok(ru_redis_open(w->loop, address, false, password, &w->arena, &w->redis, &err), err);
}

static void hang_up(world *w)
{
    if (w->fd >= 0) {
        (void)close(w->fd);
    }
    w->fd = -1;
    w->n_got = 0;
}

static void close_world(world *w)
{
    hang_up(w);
    (void)close(w->listener);
    ru_redis_close(w->redis);
    ru_loop_close(w->loop);
    ru_arena_fini(&w->arena);
}

static void turn(world *w)
{
    ru_err err = {0};
    assert_ok(ru_loop_round(w->loop, ROUND_NS, &err), err);
    if (w->fd < 0) {
        w->fd = accept4(w->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }
    ssize_t n = w->fd < 0 ? 0 : recv(w->fd, w->got + w->n_got, sizeof w->got - (size_t)w->n_got, 0);
    w->n_got += n > 0 ? n : 0;
}

static void ask(world *w, const char *a, const char *b)
{
    ru_err err = {0};
    const ru_str words[] = {ru_str_c(a), ru_str_c(b)};
    assert_ok(ru_redis_send(w->redis, words, 2, on_reply, w, &err), err);
}

static void until_got(world *w, const char *all)
{
    for (int k = 0; k < ROUNDS && w->n_got < (int64_t)strlen(all); k++) {
        turn(w);
    }
    assert_int_equal(w->n_got, strlen(all));
    assert_memory_equal(w->got, all, strlen(all));
}

static void say(world *w, const void *bytes, int64_t n)
{
    assert_int_equal(send(w->fd, bytes, (size_t)n, MSG_NOSIGNAL), n);
}

static void until_replies(world *w, uint32_t n)
{
    for (int k = 0; k < ROUNDS && w->n < n; k++) {
        turn(w);
    }
    assert_int_equal(w->n, n);
}

static void assert_reply(const world *w, uint32_t k, char kind, const char *text)
{
    assert_int_equal(w->reply[k].kind, kind);
    assert_string_equal(w->text[k], text);
}

#define GET_A "*2\r\n$3\r\nGET\r\n$1\r\na\r\n"

static void test_replies_come_in_order_however_they_are_cut(void **state)
{
    (void)state;
    static const char said[] = "+OK\r\n$7\r\nhe\r\nllo\r\n$-1\r\n-ERR not so\r\n:12\r\n$0\r\n\r\n";
    for (int64_t cut = 1; cut < (int64_t)sizeof said - 1; cut++) {
        world w;
        open_world(&w, NULL);
        for (int k = 0; k < 6; k++) {
            ask(&w, "GET", "a");
        }
        until_got(&w, GET_A GET_A GET_A GET_A GET_A GET_A);
        say(&w, said, cut);
        for (int k = 0; k < 3; k++) { /* the first part is taken alone */
            turn(&w);
        }
        say(&w, said + cut, (int64_t)sizeof said - 1 - cut);
        until_replies(&w, 6);
        assert_reply(&w, 0, '+', "OK");
        assert_reply(&w, 1, '$', "he\r\nllo");
        assert_int_equal(w.reply[2].n, -1);
        assert_reply(&w, 3, '-', "ERR not so");
        assert_reply(&w, 4, ':', "12");
        assert_reply(&w, 5, '$', "");
        close_world(&w);
    }
}

static void test_password_is_said_first_on_each_connection(void **state)
{
    (void)state;
    static const char all[] = "*2\r\n$4\r\nAUTH\r\n$3\r\nabc\r\n" GET_A;
    world w;
    open_world(&w, "abc");
    for (uint32_t k = 0; k < 2; k++) {
        ask(&w, "GET", "a");
        until_got(&w, all);
        say(&w, "+OK\r\n$1\r\nx\r\n", 12);
        until_replies(&w, 2 * k + 1);
        assert_reply(&w, 2 * k, '$', "x");
        ask(&w, "GET", "b"); /* is under way when the connection breaks */
        turn(&w);
        hang_up(&w);
        until_replies(&w, 2 * k + 2);
        assert_int_equal(w.reply[2 * k + 1].kind, 0);
    }
    close_world(&w);
}

static void test_what_is_not_redis_ends_all_commands(void **state)
{
    (void)state;
    static const char *const bad[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", "*1\r\n$1\r\na\r\n",
                                      "$99999999999\r\n", "\r\n"};
    for (size_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        world w;
        open_world(&w, NULL);
        ask(&w, "GET", "a");
        ask(&w, "GET", "a");
        until_got(&w, GET_A GET_A);
        say(&w, bad[k], (int64_t)strlen(bad[k]));
        until_replies(&w, 2);
        for (uint32_t i = 0; i < 2; i++) {
            assert_reply(&w, i, 0, "it does not speak the protocol of Redis");
        }
        hang_up(&w);
        ask(&w, "GET", "a"); /* dials anew */
        until_got(&w, GET_A);
        say(&w, "$1\r\ny\r\n", 7);
        until_replies(&w, 3);
        assert_reply(&w, 2, '$', "y");
        close_world(&w);
    }
}

/* Each command has one end, whatever bytes come; then the server hangs up. */
static void test_any_bytes(void **state)
{
    (void)state;
    static const char some[] = "$*+-:0123456789\r\n\r\nab";
    for (uint64_t seed = 0; seed < 200; seed++) {
        world w;
        uint8_t bytes[200];
        ru_rng rng = ru_rng_from(seed, 0);
        int64_t n = 1 + (int64_t)(ru_rng_u64(&rng) % sizeof bytes);
        for (int64_t i = 0; i < n; i++) {
            bytes[i] = (uint8_t)some[ru_rng_u64(&rng) % (sizeof some - 1)];
        }
        open_world(&w, NULL);
        for (int k = 0; k < 4; k++) {
            ask(&w, "GET", "a");
        }
        until_got(&w, GET_A GET_A GET_A GET_A);
        say(&w, bytes, n);
        hang_up(&w);
        until_replies(&w, 4);
        close_world(&w);
    }
}

RU_TESTS(web_redis, cmocka_unit_test(test_replies_come_in_order_however_they_are_cut),
         cmocka_unit_test(test_password_is_said_first_on_each_connection),
         cmocka_unit_test(test_what_is_not_redis_ends_all_commands),
         cmocka_unit_test(test_any_bytes))
