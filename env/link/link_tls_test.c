/* Records over a socket pair: a chunk leaves with one call, what the kernel does not take is
 * neither lost nor made twice. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "env/link/link_tcp_impl.h"
#include "env/link/tls_record.h"
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
    ssize_t got = rui_tls_recv(p->b, &iov, 1, true);
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

/* Keys change under way, in both directions, as often as they are to. */
static void test_keys_change(void **state)
{
    (void)state;
    enum { UPDATE = RUI_RECORD_MORE + 5 }; /* the record that says that a key follows */
    pair p;
    uint8_t *data = some_bytes(), *got = malloc(ALL);
    assert_non_null(got);
    for (uint32_t class = 0; class < RU_LINK_CLASSES; class ++) {
        pair_open(&p, (ru_link_class) class);
        rui_tls_key_records(p.a, 8);
        rui_tls_key_records(p.b, 1);
        int64_t at = 0;
        uint32_t updates = 0;
        for (uint32_t k = 0; k < 100; k++) {
            struct iovec iov = {data + at, 5000};
            assert_int_equal(rui_tls_send(p.a, &iov, 1), 5000);
            int on_wire = 0;
            assert_int_equal(ioctl(p.fd[1], FIONREAD, &on_wire), 0);
            updates += on_wire == 5000 + RUI_RECORD_MORE + UPDATE;
            at = take(&p, got, at);
            struct iovec back = {data + k, 1}, into = {got + ALL - 1, 1};
            assert_int_equal(rui_tls_send(p.b, &back, 1), 1);
            assert_int_equal(rui_tls_recv(p.a, &into, 1, true), 1);
            assert_int_equal(got[ALL - 1], data[k]);
        }
        assert_int_equal(at, 500000);
        assert_memory_equal(got, data, 500000);
        assert_true(updates >= 100 / 8);
        pair_close(&p);
    }
    free(data);
    free(got);
}

/* What came whole is read with one call, and an empty socket is not asked twice for one event. */
static void test_calls(void **state)
{
    (void)state;
    pair p;
    uint8_t *data = some_bytes(), *got = malloc(ALL);
    assert_non_null(got);
    pair_open(&p, RU_LINK_BULK);
    struct iovec iov[] = {{data, HEAD}, {data + HEAD, CHUNK}};
    ru_test_os_fail(-1);
    assert_int_equal(rui_tls_send(p.a, iov, 2), HEAD + CHUNK);
    assert_int_equal(ru_test_os_count(), 1);
    struct iovec head = {got, HEAD}, body = {got + HEAD, CHUNK};
    ru_test_os_fail(-1);
    assert_int_equal(rui_tls_recv(p.b, &head, 1, true), HEAD);
    assert_true(rui_tls_holds(p.b));
    assert_int_equal(rui_tls_recv(p.b, &body, 1, false), CHUNK);
    assert_false(rui_tls_holds(p.b));
    assert_int_equal(rui_tls_recv(p.b, &head, 1, false), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(ru_test_os_count(), 1);
    assert_memory_equal(got, data, HEAD + CHUNK);
    assert_int_equal(rui_tls_send(p.a, iov, 1), HEAD);
    assert_int_equal(rui_tls_recv(p.b, &head, 1, true), HEAD); /* the next event */
    pair_close(&p);
    free(data);
    free(got);
}

/* What has room only in part stays, and the farewell behind it is heard after it. */
static void test_end(void **state)
{
    (void)state;
    pair p;
    uint8_t data[1000], got[1000];
    memset(data, 7, sizeof data);
    pair_open(&p, RU_LINK_URGENT);
    struct iovec iov = {data, sizeof data}, some = {got, 300}, rest = {got + 300, 900 - 200};
    assert_int_equal(rui_tls_send(p.a, &iov, 1), sizeof data);
    rui_tls_free(p.a);
    p.a = NULL;
    assert_int_equal(rui_tls_recv(p.b, &some, 1, true), 300);
    assert_true(rui_tls_holds(p.b));
    assert_int_equal(rui_tls_recv(p.b, &rest, 1, false), 700);
    assert_memory_equal(got, data, sizeof data);
    assert_int_equal(rui_tls_recv(p.b, &rest, 1, true), 0);
    assert_true(rui_tls_holds(p.b));
    assert_int_equal(rui_tls_recv(p.b, &rest, 1, true), 0);
    pair_close(&p);
}

/* Bytes of somebody between them end it; what came before them is still given. */
static void test_forged(void **state)
{
    (void)state;
    static const uint8_t forged[2][27] = {{23, 3, 3, 0, 22, 1, 2, 3}, {22, 3, 3, 0, 22, 1, 2, 3}};
    for (uint32_t k = 0; k < 2; k++) {
        pair p;
        uint8_t data[100] = {5}, got[200];
        pair_open(&p, RU_LINK_BULK);
        struct iovec iov = {data, sizeof data}, into = {got, sizeof got};
        assert_int_equal(rui_tls_send(p.a, &iov, 1), sizeof data);
        assert_int_equal(write(p.fd[0], forged[k], sizeof forged[k]), sizeof forged[k]);
        assert_int_equal(rui_tls_recv(p.b, &into, 1, true), sizeof data);
        assert_memory_equal(got, data, sizeof data);
        assert_true(rui_tls_holds(p.b)); /* no event tells of it */
        for (uint32_t again = 0; again < 2; again++) {
            assert_int_equal(rui_tls_recv(p.b, &into, 1, again == 1), -1);
            assert_int_equal(errno, EPROTO);
        }
        pair_close(&p);
    }
}

RU_TESTS(env_link_tls, cmocka_unit_test(test_chunk_in_one_call), cmocka_unit_test(test_full_socket),
         cmocka_unit_test(test_keys_change), cmocka_unit_test(test_calls),
         cmocka_unit_test(test_end), cmocka_unit_test(test_forged))
