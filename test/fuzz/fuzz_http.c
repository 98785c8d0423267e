/* Bytes of a client to a server over a socket: every request that its owner gets is whole, has one
 * end, and is gone when its connection is. The first byte says where the bytes are cut in two, and
 * whether the client sends no more. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "env/loop/loop.h"
#include "web/http.h"

enum { KEPT_MAX = 64, ROUNDS = 6, ROUNDS_MAX = 4000 };

static struct {
    ru_arena arena;
    ru_loop *loop;
    ru_http *http;
    struct sockaddr_in at;
    ru_http_request *kept[KEPT_MAX];
    uint32_t n_kept, begun, done;
    volatile uint64_t sum;
} w;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_done(void *self)
{
    (void)self;
    w.done++;
}

static void give(ru_http_request *r)
{
    static const char text[] = "answer";
    const ru_http_span spans[] = {{text, 6}, {text, 3}};
    ru_http_answer(
        r,
        &(ru_http_reply){.status = 200, .spans = spans, .n_spans = 2, .done = on_done, .self = &w});
}

/* By its first byte: answered at once, later, refused, or as a stream. */
static void on_request(void *self, ru_http_request *r)
{
    (void)self;
    w.begun++;
    for (int64_t k = 0; k < r->body_bytes; k++) {
        w.sum += r->body[k];
    }
    w.sum += strlen(r->path) + strlen(r->method) + (ru_http_asked(r, "X-Test") != NULL);
    uint32_t how = r->body_bytes > 0 ? r->body[0] % 4 : (uint32_t)strlen(r->path) % 4;
    if (how == 0 && w.n_kept < KEPT_MAX) {
        w.kept[w.n_kept++] = r;
    } else if (how == 1) {
        w.done++;
        ru_http_refuse(r, 429, r->path, 2);
    } else if (how == 2) {
        w.done++;
        ru_http_stream(r, 200, NULL, 0);
        (void)ru_http_put(r, "part", 4);
        ru_http_end(r);
    } else {
        give(r);
    }
}

static void check_at(bool ok, int line)
{
    if (!ok) {
        (void)fprintf(stderr, "fuzz_http.c:%d: %s\n", line, strerror(errno));
        abort();
    }
}
#define check(ok) check_at(ok, __LINE__)

static void open_server(void)
{
    ru_err err = {0};
    int64_t port = 0;
    ru_arena_init(&w.arena, 0);
    check(ru_loop_open(&w.loop, &err) == RU_OK);
    const ru_http_options o = {.loop = w.loop,
                               .listen = "0",
                               .request = on_request,
                               .body_max_bytes = 4096,
                               .conns_max = 64};
    check(ru_http_open(&o, &w.arena, &w.http, &err) == RU_OK);
    const char *colon = strrchr(ru_http_address(w.http), ':');
    check(ru_str_i64(ru_str_c(colon + 1), &port));
    w.at = (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void turn(uint32_t rounds)
{
    ru_err err = {0};
    for (uint32_t k = 0; k < rounds; k++) {
        check(ru_loop_round(w.loop, 0, &err) == RU_OK);
    }
}

static int dial(void)
{
    const struct linger now = {.l_onoff = 1}; /* no port waits after it */
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        check(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
        if (connect(fd, (const struct sockaddr *)&w.at, sizeof w.at) == 0) {
            return fd;
        }
        check(errno == EINTR); /* by the fuzzer's clock */
        (void)close(fd);
        turn(ROUNDS);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char into[4096];
    if (size < 2) {
        return 0;
    }
    if (w.http == NULL) {
        open_server();
    }
    w.begun = w.done = w.n_kept = 0;
    int fd = dial();
    size_t cut = 1 + (size_t)(data[0] & 127) * (size - 1) / 128;
    (void)!send(fd, data + 1, cut - 1, MSG_NOSIGNAL);
    turn(ROUNDS);
    (void)!send(fd, data + cut, size - cut, MSG_NOSIGNAL);
    if (data[0] & 128) {
        (void)shutdown(fd, SHUT_WR);
    }
    turn(ROUNDS);
    while (recv(fd, into, sizeof into, MSG_DONTWAIT) > 0) {
        turn(1);
    }
    bool late = (data[0] & 64) != 0; /* kept ones are answered before or after it left */
    for (uint32_t k = 0; !late && k < w.n_kept; k++) {
        give(w.kept[k]);
    }
    uint32_t first = late ? 0 : w.n_kept;
    turn(late ? 0 : ROUNDS);
    (void)close(fd);
    turn(ROUNDS);
    for (uint32_t k = 0; (w.done < w.begun || k < ROUNDS) && k < ROUNDS_MAX; k++) {
        while (first < w.n_kept) {
            give(w.kept[first++]);
        }
        turn(1);
    }
    check(w.done == w.begun);
    return 0;
}
