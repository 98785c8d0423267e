/* Records over a socket pair: a chunk leaves with one call, what the kernel does not take is
 * neither lost nor made twice. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env/link_tcp_impl.h"
#include "test/test.h"

enum { CHUNK = 64 << 10, HEAD = 40, ALL = 1 << 20 };

static const uint8_t key[32] = "a key of this test, 32 bytes...";

typedef struct pair {
    rui_tls_host *host;
    rui_tls *a, *b;
    int fd[2];
} pair;

static void pair_open(pair *p, ru_link_class class)
{
    ru_err err;
    ru_link_tcp_options opt = {.psk = key, .psk_bytes = sizeof key};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p->fd), 0);
    assert_int_equal(rui_tls_host_open(&opt, &p->host, &err), RU_OK);
    p->a = rui_tls_new(p->host, p->fd[0], false, class);
    p->b = rui_tls_new(p->host, p->fd[1], true, class);
    assert_true(p->a != NULL && p->b != NULL);
    ru_status sa = RU_E_AGAIN, sb = RU_E_AGAIN;
    for (int k = 0; k < 20 && (sa != RU_OK || sb != RU_OK); k++) {
        bool in, out;
        char sentence[128];
        sa = sa != RU_OK ? rui_tls_shake(p->a, &in, &out, sentence, sizeof sentence) : sa;
        sb = sb != RU_OK ? rui_tls_shake(p->b, &in, &out, sentence, sizeof sentence) : sb;
    }
    assert_true(sa == RU_OK && sb == RU_OK);
}

static void pair_close(pair *p)
{
    rui_tls_free(p->a);
    rui_tls_free(p->b);
    rui_tls_host_close(p->host);
    close(p->fd[0]);
    close(p->fd[1]);
}

static int64_t take(pair *p, uint8_t *into, int64_t at)
{
    struct iovec iov = {into + at, (size_t)(ALL - at)};
    ssize_t got = rui_tls_recv(p->b, &iov, 1);
    return at + (got > 0 ? got : 0);
}

static uint8_t *some_bytes(void)
{
    uint8_t *data = malloc(ALL);
    assert_non_null(data);
    for (uint32_t k = 0; k < ALL; k++) {
        data[k] = (uint8_t)(k * 2654435761u >> 13);
    }
    return data;
}

static void test_chunk_in_one_call(void **state)
{
    (void)state;
    pair p;
    uint8_t *data = some_bytes(), *got = malloc(ALL);
    assert_non_null(got);
    pair_open(&p, RU_LINK_BULK);
    struct iovec iov[] = {{data, HEAD}, {data + HEAD, CHUNK}};
    assert_int_equal(rui_tls_send(p.a, iov, 2), HEAD + CHUNK);
    assert_int_equal(take(&p, got, 0), HEAD + CHUNK);
    assert_memory_equal(got, data, HEAD + CHUNK);
    pair_close(&p);
    pair_open(&p, RU_LINK_URGENT); /* small buffers: a record at a time */
    struct iovec pieces[] = {{data, 100}, {data + 100, 0}, {data + 100, 900}, {data + 1000, CHUNK}};
    assert_int_equal(rui_tls_send(p.a, pieces, 4), 1000);
    assert_int_equal(take(&p, got, 0), 1000);
    assert_memory_equal(got, data, 1000);
    pair_close(&p);
    free(data);
    free(got);
}

static void test_full_socket(void **state)
{
    (void)state;
    pair p;
    uint8_t *data = some_bytes(), *got = malloc(ALL);
    assert_non_null(got);
    pair_open(&p, RU_LINK_BULK);
    int64_t sent = 0, taken = 0;
    uint32_t full = 0;
    while (sent < ALL || taken < sent) {
        struct iovec iov = {data + sent, (size_t)(ALL - sent)};
        ssize_t put = sent < ALL ? rui_tls_send(p.a, &iov, 1) : 0;
        assert_true(put >= 0 || errno == EAGAIN);
        sent += put > 0 ? put : 0;
        if (put <= 0) {
            full += put < 0;
            taken = take(&p, got, taken);
        }
    }
    assert_true(full > 0);
    assert_int_equal(taken, ALL);
    assert_memory_equal(got, data, ALL);
    pair_close(&p);
    free(data);
    free(got);
}

RU_TESTS(env_link_tls, cmocka_unit_test(test_chunk_in_one_call), cmocka_unit_test(test_full_socket))
