/* The same exchanges by bare blocking sockets: what the machine and its kernel take without us.
 *
 *   bare-serve LISTEN                    one connection at a time until its standard input ends
 *   bare-echo ADDRESS BYTES SECONDS      requests one at a time: per second, p50 us, p99 us
 *   bare-stamp ADDRESS BYTES SECONDS     one each 10 ms: one way p50 us, p99 us
 *   bare-bulk ADDRESS SECONDS            as fast as it goes: bytes/s
 *
 * A connection begins with one byte of its kind and 4 of the size. Stamps and bulk end with the
 * client's half of the stream, then the server answers with two doubles. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/wire/bare.h"
#include "bench/wire/net.h"
#include "env/clock.h"

enum {
    BULK_WRITE_BYTES = 64 << 10,
    SIZE_MAX_BYTES = 1 << 20,
    STAMP_EVERY_MS = 10,
    TOS_URGENT = 0x10,
    TOS_BULK = 0x08,
    PRIORITY_URGENT = 6,
    PRIORITY_BULK = 2,
};

typedef struct greeting {
    char kind; /* e, s, b */
    char pad[3];
    uint32_t size_bytes;
} greeting;

static ru_status refused(const char *what, ru_err *err)
{
    return RU_FAIL(err, RU_E_IO, "bare sockets: %s failed: %s", what, strerror(errno));
}

bool rui_bare_read(int fd, void *into, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t got = read(fd, (char *)into + at, n - at);
        if (got <= 0) {
            return false;
        }
        at += (size_t)got;
    }
    return true;
}

bool rui_bare_write(int fd, const void *from, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t put = send(fd, (const char *)from + at, n - at, MSG_NOSIGNAL);
        if (put <= 0) {
            return false;
        }
        at += (size_t)put;
    }
    return true;
}

void rui_bare_mark(int fd, bool bulk)
{
    int one = 1, tos = bulk ? TOS_BULK : TOS_URGENT;
    int priority = bulk ? PRIORITY_BULK : PRIORITY_URGENT;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
    (void)setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority);
}

ru_status rui_bare_address(const char *text, struct sockaddr_in *a, ru_err *err)
{
    char host[64] = "";
    const char *colon = strrchr(text, ':');
    *a = (struct sockaddr_in){.sin_family = AF_INET};
    if (colon == NULL || (size_t)(colon - text) >= sizeof host) {
        return RU_FAIL(err, RU_E_ARG, "'%s' is no host:port", text);
    }
    memcpy(host, text, (size_t)(colon - text));
    a->sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    return inet_pton(AF_INET, host, &a->sin_addr) == 1
               ? RU_OK
               : RU_FAIL(err, RU_E_ARG, "'%s' is no IPv4 address", text);
}

/* ---- the server ---- */

static void keep_stamps(int fd, uint8_t *data, uint32_t size_bytes, double *samples)
{
    uint32_t n = 0;
    while (rui_bare_read(fd, data, size_bytes)) {
        ru_time then;
        memcpy(&then, data, sizeof then);
        if (n < RUI_NET_SAMPLES_MAX) {
            samples[n++] = (double)ru_time_since(ru_clock_now(), then) * 1e-3;
        }
    }
    double figures[2] = {0, 0};
    if (n > 0) {
        figures[0] = rui_net_percentile(samples, n, 0.5);
        figures[1] = rui_net_percentile(samples, n, 0.99);
    }
    (void)!rui_bare_write(fd, figures, sizeof figures);
}

static void take_bulk(int fd, uint8_t *data)
{
    double total = 0, figures[2] = {0, 0};
    ru_time start = ru_clock_now();
    for (ssize_t got; (got = read(fd, data, SIZE_MAX_BYTES)) > 0;) {
        total += (double)got;
    }
    figures[0] = total * 1e9 / (double)ru_time_since(ru_clock_now(), start);
    (void)!rui_bare_write(fd, figures, sizeof figures);
}

static void answer(int fd, uint8_t *data, double *samples)
{
    greeting g;
    if (!rui_bare_read(fd, &g, sizeof g) || g.size_bytes < sizeof(ru_time) ||
        g.size_bytes > SIZE_MAX_BYTES) {
        return;
    }
    rui_bare_mark(fd, g.kind == 'b');
    if (g.kind == 'e') {
        while (rui_bare_read(fd, data, g.size_bytes) && rui_bare_write(fd, data, g.size_bytes)) {
        }
    } else if (g.kind == 's') {
        keep_stamps(fd, data, g.size_bytes, samples);
    } else if (g.kind == 'b') {
        take_bulk(fd, data);
    }
}

static ru_status serve_all(int listener, ru_err *err)
{
    uint8_t *data = calloc(1, SIZE_MAX_BYTES);
    double *samples = calloc(RUI_NET_SAMPLES_MAX, sizeof *samples);
    ru_status st = data != NULL && samples != NULL
                       ? RU_OK
                       : RU_FAIL(err, RU_E_MEM, "no memory for the server of bare sockets");
    for (bool on = st == RU_OK; on;) {
        struct pollfd ready[2] = {{.fd = listener, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        on = poll(ready, 2, -1) > 0 && ready[1].revents == 0;
        int fd = on ? accept(listener, NULL, NULL) : -1;
        if (fd >= 0) {
            answer(fd, data, samples);
            close(fd);
        }
    }
    free(data);
    free(samples);
    return st;
}

/* For "all interfaces": the first address that is not loopback. */
static void reachable(struct sockaddr_in *a)
{
    struct ifaddrs *all = NULL;
    if (a->sin_addr.s_addr != htonl(INADDR_ANY) || getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        if (i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET &&
            (i->ifa_flags & IFF_LOOPBACK) == 0) {
            a->sin_addr = ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
            break;
        }
    }
    freeifaddrs(all);
}

static ru_status serve(const char *listen_at, ru_err *err)
{
    struct sockaddr_in a;
    socklen_t size = sizeof a;
    char text[INET_ADDRSTRLEN];
    RU_TRY(rui_bare_address(listen_at, &a, err));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 8) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &size) != 0) {
        return refused("listening", err);
    }
    reachable(&a);
    printf("%s:%u\n", inet_ntop(AF_INET, &a.sin_addr, text, sizeof text), ntohs(a.sin_port));
    fflush(stdout);
    ru_status st = serve_all(fd, err);
    close(fd);
    return st;
}

/* ---- the clients ---- */

static ru_status dial(const char *address, char kind, uint32_t size_bytes, int *fd, ru_err *err)
{
    struct sockaddr_in a;
    greeting g = {.kind = kind, .size_bytes = size_bytes};
    RU_TRY(rui_bare_address(address, &a, err));
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0) {
        return refused("a socket", err);
    }
    rui_bare_mark(*fd, kind == 'b');
    if (connect(*fd, (struct sockaddr *)&a, sizeof a) != 0 || !rui_bare_write(*fd, &g, sizeof g)) {
        return refused("connecting", err);
    }
    return RU_OK;
}

static ru_status echo(int fd, uint8_t *data, uint32_t size_bytes, int64_t run_ns, double *samples,
                      ru_err *err)
{
    uint32_t n = 0;
    ru_time start = ru_clock_now(), now = start;
    for (uint32_t warm = 0; ru_time_since(now, start) < run_ns; warm++) {
        ru_time then = now;
        if (!rui_bare_write(fd, data, size_bytes) || !rui_bare_read(fd, data, size_bytes)) {
            return refused("an exchange", err);
        }
        now = ru_clock_now();
        if (warm < 100) {
            start = now;
        } else if (n < RUI_NET_SAMPLES_MAX) {
            samples[n++] = (double)ru_time_since(now, then) * 1e-3;
        }
    }
    if (n == 0) {
        return RU_FAIL(err, RU_E_PEER, "no answer came over bare sockets");
    }
    double p50 = rui_net_percentile(samples, n, 0.5);
    printf("%.1f %.3f %.3f\n", n * 1e9 / (double)ru_time_since(now, start), p50,
           samples[n - 1 - n / 100]);
    return RU_OK;
}

static ru_status end_and_print(int fd, ru_err *err)
{
    double figures[2];
    if (shutdown(fd, SHUT_WR) != 0 || !rui_bare_read(fd, figures, sizeof figures)) {
        return refused("the end of the stream", err);
    }
    printf("%.3f %.3f\n", figures[0], figures[1]);
    return RU_OK;
}

static ru_status stamps(int fd, uint8_t *data, uint32_t size_bytes, int64_t run_ns, ru_err *err)
{
    struct pollfd nothing = {.fd = fd, .events = 0};
    ru_time start = ru_clock_now(), now = start;
    while (ru_time_since(now, start) < run_ns) {
        (void)poll(&nothing, 1, STAMP_EVERY_MS);
        now = ru_clock_now();
        memcpy(data, &now, sizeof now);
        if (!rui_bare_write(fd, data, size_bytes)) {
            return refused("a message", err);
        }
    }
    return end_and_print(fd, err);
}

static ru_status bulk(int fd, const uint8_t *data, int64_t run_ns, ru_err *err)
{
    for (ru_time start = ru_clock_now(); ru_time_since(ru_clock_now(), start) < run_ns;) {
        if (!rui_bare_write(fd, data, BULK_WRITE_BYTES)) {
            return refused("bulk", err);
        }
    }
    return end_and_print(fd, err);
}

ru_status rui_net_bare(const char *const *words, uint32_t n, ru_err *err)
{
    if (n == 2 && strcmp(words[0], "bare-serve") == 0) {
        return serve(words[1], err);
    }
    if (n != 4 && !(n == 3 && strcmp(words[0], "bare-bulk") == 0)) {
        return RU_FAIL(err, RU_E_USAGE, "'%s' is no role of bare sockets", words[0]);
    }
    char kind = words[0][5];
    uint32_t size_bytes = n == 4 ? (uint32_t)strtoul(words[2], NULL, 10) : BULK_WRITE_BYTES;
    int64_t run_ns = (int64_t)(strtod(words[n - 1], NULL) * 1e9);
    int fd = -1;
    uint8_t *data = calloc(1, SIZE_MAX_BYTES);
    double *samples = calloc(RUI_NET_SAMPLES_MAX, sizeof *samples);
    ru_status st = data != NULL && samples != NULL && size_bytes <= SIZE_MAX_BYTES
                       ? dial(words[1], kind, size_bytes, &fd, err)
                       : RU_FAIL(err, RU_E_ARG, "a message of %u bytes", size_bytes);
    if (st == RU_OK) {
        st = kind == 'e'   ? echo(fd, data, size_bytes, run_ns, samples, err)
             : kind == 's' ? stamps(fd, data, size_bytes, run_ns, err)
                           : bulk(fd, data, run_ns, err);
    }
    if (fd >= 0) {
        close(fd);
    }
    free(data);
    free(samples);
    return st;
}
