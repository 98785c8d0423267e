/* What a path gets: congestion control by class, round trip and options; its rate without bursts.
 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env/link/link_tcp_impl.h"
#include "test/test.h"

static void test_congestion_by_path(void **state)
{
    (void)state;
    static const struct {
        ru_link_class class;
        int64_t rtt_us;
        const char *first;
    } cases[] = {
        {RU_LINK_URGENT, 50, "reno"}, {RU_LINK_URGENT, 80000, "reno"}, {RU_LINK_BULK, 0, "reno"},
        {RU_LINK_BULK, 2000, "reno"}, {RU_LINK_BULK, 2001, "bbr"},     {RU_LINK_BULK, 80000, "bbr"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        const char *const *names = rui_path_congestion(cases[k].class, cases[k].rtt_us);
        assert_string_equal(names[0], cases[k].first);
    }
}

static void test_rate_is_not_a_burst(void **state)
{
    (void)state;
    rui_path p = {0};
    /* 128 KiB in 1 ms are too short a span; then 1 Gbit/s. */
    assert_false(rui_path_rate(&p, 128 << 10, 1000));
    assert_true(p.bytes_per_s <= 0);
    assert_true(rui_path_rate(&p, 1200000, 10000));
    assert_true(p.bytes_per_s > 119e6 && p.bytes_per_s < 121e6);
    /* Idle: no busy time, no sample. */
    assert_false(rui_path_rate(&p, 1200000, 10000));
    /* Half of it: the estimate follows. */
    for (int64_t k = 1; k <= 8; k++) {
        assert_true(rui_path_rate(&p, 1200000 + k * 600000, 10000 + k * 10000));
    }
    assert_true(p.bytes_per_s > 59e6 && p.bytes_per_s < 61e6);
}

static void congestion_of(int fd, char into[32])
{
    socklen_t size = 31;
    memset(into, 0, 32);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, into, &size), 0);
}

static void test_options_choose(void **state)
{
    (void)state;
    char fresh[32], got[32];
    ru_link_tcp *l = calloc(1, sizeof *l);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(l != NULL && fd >= 0);
    congestion_of(fd, fresh);
    l->opt.congestion[RU_LINK_BULK] = ""; /* the kernel's own */
    rui_socket_begin(l, fd, RU_LINK_BULK);
    congestion_of(fd, got);
    assert_string_equal(got, fresh);
    rui_socket_begin(l, fd, RU_LINK_URGENT); /* ours: without pacing */
    congestion_of(fd, got);
    assert_string_equal(got, "reno");
    l->opt.congestion[RU_LINK_BULK] = "no-such-algorithm"; /* a log line; stays */
    rui_socket_begin(l, fd, RU_LINK_BULK);
    congestion_of(fd, got);
    assert_string_equal(got, "reno");
    assert_true(l->told_congestion);
    close(fd);
    free(l);
}

/* The kernel doubles the bound and says that there is room once a third of that is free. */
static void test_send_buffer(void **state)
{
    (void)state;
    static const int64_t windows[] = {16 << 10, 64 << 10, 600 << 10, 4 << 20};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(windows); k++) {
        int64_t window = windows[k], held = 2 * rui_sndbuf_bytes(window, 1, 0, 0);
        assert_true(held * 2 / 3 <= window); /* one chunk on its way when the next is asked for */
        assert_true(held * 2 / 3 >= window * 15 / 16);
    }
    assert_int_equal(rui_sndbuf_bytes(16 << 10, 4, 501, 1e6), 256 << 10);
    assert_int_equal(rui_sndbuf_bytes(16 << 10, 8, 501, 1e6), 128 << 10);
    assert_int_equal(rui_sndbuf_bytes(16 << 10, 1000, 501, 1e6), 12 << 10);
    assert_int_equal(rui_sndbuf_bytes(16 << 10, 4, 500, 1e6), 12 << 10);
    /* 10 ms at 119.5 MB/s: one and a half times what the path holds. */
    int64_t path = rui_sndbuf_bytes(64 << 10, 1, 10000, 119.5e6);
    assert_true(path > 1790000 && path < 1800000);
}

/* Who lets 10 ms wait leaves the bound to the kernel. */
static void test_deep_queues(void **state)
{
    (void)state;
    ru_link_tcp *l = calloc(1, sizeof *l);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(l != NULL && fd >= 0);
    rui_conn c = {.fd = fd, .link = l, .notsent_bytes = 64 << 10, .sndbuf_bytes = 1};
    l->opt.queue_ns = 10000000;
    rui_socket_sndbuf(&c);
    assert_int_equal(c.sndbuf_bytes, 1);
    l->opt.queue_ns = 5000000; /* of workers */
    rui_socket_sndbuf(&c);
    assert_true(c.sndbuf_bytes >= 48 << 10);
    close(fd);
    free(l);
}

RU_TESTS(env_link_tcp_path, cmocka_unit_test(test_deep_queues), cmocka_unit_test(test_send_buffer),
         cmocka_unit_test(test_congestion_by_path), cmocka_unit_test(test_rate_is_not_a_burst),
         cmocka_unit_test(test_options_choose))
