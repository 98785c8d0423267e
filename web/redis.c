#include "web/redis.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "web/redis_tls.h"

enum { READ = 1, WRITE = 4 /* EPOLLIN, EPOLLOUT */, IN_BYTES = 64 << 10 };
static const int64_t silent_ns = 20000000000, reply_max = INT64_C(1) << 30;

typedef struct command {
    struct command *next;
    ru_redis_done done; /* NULL: nobody waits for the reply */
    void *self;
} command;

typedef struct bytes {
    uint8_t *p; /* [cap] */
    int64_t at, n, cap;
} bytes;

struct ru_redis {
    ru_loop *loop;
    struct sockaddr_storage to;
    socklen_t to_bytes;
    const char *password;
    rui_redis_tls *tls; /* NULL: bytes go as they are */
    int fd;             /* -1: none */
    command *first, **end;
    bytes in, out;
};

static void on_fd(void *self, int fd, uint32_t events, ru_time now);

/* -- the form ------------------------------------------------------------------------------------
 */

uint32_t ru_redis_head(char kind, int64_t n, char into[RU_REDIS_HEAD_BYTES])
{
    char text[RU_REDIS_HEAD_BYTES], *at = text + sizeof text;
    *--at = '\n';
    *--at = '\r';
    do {
        *--at = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    *--at = kind;
    uint32_t size = (uint32_t)(text + sizeof text - at);
    memcpy(into, at, size);
    return size;
}

int64_t ru_redis_head_of(const uint8_t *in, int64_t end, int64_t at, char *kind, int64_t *n)
{
    bool minus = false;
    int64_t v = 0, i = at + 1;
    for (; i < end && in[i] != '\r'; i++) {
        bool digit = in[i] >= '0' && in[i] <= '9' && v < reply_max;
        minus = minus || in[i] == '-';
        v = digit ? v * 10 + (in[i] - '0') : v;
    }
    if (i + 1 >= end) {
        return 0;
    }
    *kind = (char)in[at];
    *n = minus ? -v : v;
    return i + 2;
}

/* -- the connection ------------------------------------------------------------------------------
 */

static void on_silent(void *self, uint32_t what, ru_time now);

static void watch(ru_redis *r)
{
    if (r->first != NULL) {
        ru_loop_timer(r->loop, on_silent, r, 0, ru_time_after(ru_clock_now(), silent_ns));
    } else {
        ru_loop_timer_off(r->loop, on_silent, r, 0);
    }
}

static command *cut(ru_redis *r)
{
    command *all = r->first;
    if (r->fd >= 0) {
        ru_loop_fd_off(r->loop, r->fd);
        if (r->tls != NULL) {
            rui_redis_tls_cut(r->tls);
        }
        (void)close(r->fd);
    }
    r->fd = -1;
    r->first = NULL;
    r->end = &r->first;
    r->in.at = r->in.n = r->out.at = r->out.n = 0;
    watch(r);
    return all;
}

/* Commands under way end without a reply; those who wait may send more meanwhile. */
static void broke(ru_redis *r, const char *why)
{
    bool refused = false;
    const char *tls = r->tls != NULL ? rui_redis_tls_why(r->tls, &refused) : NULL;
    char text[256]; /* a command that is sent meanwhile dials anew, which forgets why */
    (void)snprintf(text, sizeof text, "%s", tls != NULL ? tls : why);
    const ru_redis_reply none = {.text = text, .n = (int64_t)strlen(text), .refused = refused};
    for (command *c = cut(r), *next; c != NULL; c = next) {
        next = c->next;
        if (c->done != NULL) {
            c->done(c->self, &none);
        }
        free(c);
    }
}

static void on_silent(void *self, uint32_t what, ru_time now)
{
    (void)what;
    (void)now;
    broke(self, "it does not answer in time");
}

static bool room(bytes *b, int64_t more)
{
    if (b->at > 0 && b->n + more > b->cap) {
        memmove(b->p, b->p + b->at, (size_t)(b->n - b->at));
        b->n -= b->at;
        b->at = 0;
    }
    if (b->n + more > b->cap) {
        int64_t cap = b->n + more > 2 * b->cap ? b->n + more : 2 * b->cap;
        uint8_t *p = realloc(b->p, (size_t)cap);
        if (p == NULL) {
            return false;
        }
        b->p = p;
        b->cap = cap;
    }
    return true;
}

static void put(bytes *b, const void *data, int64_t n)
{
    if (n > 0) {
        memcpy(b->p + b->n, data, (size_t)n);
    }
    b->n += n;
}

static ru_status want(ru_redis *r, ru_err *err)
{
    bool writes = r->out.at < r->out.n;
    writes = r->tls != NULL ? rui_redis_tls_writes(r->tls, writes) : writes;
    uint32_t events = READ | (writes ? (uint32_t)WRITE : 0);
    return ru_loop_fd(r->loop, r->fd, events, on_fd, r, err);
}

/* Takes whole replies. False: this is not Redis. */
static bool take(ru_redis *r, int64_t *missing)
{
    *missing = 0;
    while (r->first != NULL && r->in.at < r->in.n) {
        char kind = (char)r->in.p[r->in.at];
        int64_t n, at = r->in.at, from = ru_redis_head_of(r->in.p, r->in.n, at, &kind, &n), to;
        if (strchr("+-:$", kind) == NULL || kind == '\0') {
            return false;
        }
        if (from == 0) {
            return r->in.n - at < IN_BYTES;
        }
        bool data = kind == '$' && n >= 0;
        if (n >= reply_max) {
            return false;
        }
        to = data ? from + n + 2 : from;
        if (to > r->in.n) {
            *missing = to - r->in.n;
            return true;
        }
        ru_redis_reply reply = {.kind = kind, .text = (const char *)r->in.p + from, .n = n};
        if (!data && kind != '$') {
            reply.text = (const char *)r->in.p + at + 1;
            reply.n = from - at - 3;
        }
        command *c = r->first;
        r->first = c->next;
        r->end = r->first == NULL ? &r->first : r->end;
        r->in.at = to;
        if (c->done != NULL) { /* may send, which leaves `in` alone */
            c->done(c->self, &reply);
        }
        free(c);
    }
    return true;
}

static ssize_t move_out(ru_redis *r, const void *data, size_t n)
{
    return r->tls != NULL ? rui_redis_tls_send(r->tls, data, n)
                          : send(r->fd, data, n, MSG_NOSIGNAL);
}

static ssize_t move_in(ru_redis *r, void *into, size_t n)
{
    return r->tls != NULL ? rui_redis_tls_recv(r->tls, into, n) : recv(r->fd, into, n, 0);
}

/* What is to be sent, as far as the socket takes it. False: it broke. */
static bool flush(ru_redis *r)
{
    while (r->out.at < r->out.n) {
        ssize_t n = move_out(r, r->out.p + r->out.at, (size_t)(r->out.n - r->out.at));
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }
        if (n <= 0) {
            broke(r, n == 0 ? "it has closed the connection" : strerror(errno));
            return false;
        }
        r->out.at += n;
        watch(r);
    }
    return true;
}

static void on_fd(void *self, int fd, uint32_t events, ru_time now)
{
    ru_redis *r = self;
    ru_err err = {0};
    int64_t missing = 0;
    (void)fd;
    (void)events;
    (void)now;
    if (!flush(r)) {
        return;
    }
    for (;;) {
        if (!room(&r->in, missing > IN_BYTES ? missing : IN_BYTES)) {
            broke(r, "there is no memory for its answer");
            return;
        }
        ssize_t n = move_in(r, r->in.p + r->in.n, (size_t)(r->in.cap - r->in.n));
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }
        if (n <= 0) {
            broke(r, n == 0 ? "it has closed the connection" : strerror(errno));
            return;
        }
        r->in.n += n;
        if (!take(r, &missing)) {
            broke(r, "it does not speak the protocol of Redis");
            return;
        }
        watch(r);
    }
    /* What came may have been the end of a handshake. */
    if (r->fd < 0 || !flush(r)) {
        return;
    }
    if (want(r, &err) != RU_OK) {
        broke(r, "its socket cannot be watched");
    }
}

static ru_status dial(ru_redis *r, ru_err *err)
{
    int one = 1;
    r->fd = socket(r->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (r->fd < 0) {
        return RU_FAIL(err, RU_E_PEER, "no socket to Redis: %s", strerror(errno));
    }
    (void)setsockopt(r->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    /* What becomes of it is told by what is read and written. */
    (void)connect(r->fd, (const struct sockaddr *)&r->to, r->to_bytes);
    if (r->tls != NULL && !rui_redis_tls_dial(r->tls, r->fd)) {
        rui_redis_tls_cut(r->tls);
        (void)close(r->fd);
        r->fd = -1;
        return RU_FAIL(err, RU_E_MEM, "no memory for TLS");
    }
    return RU_OK;
}

/* -- from outside --------------------------------------------------------------------------------
 */

static ru_status add(ru_redis *r, const ru_str *words, uint32_t n, ru_redis_done done, void *self,
                     ru_err *err)
{
    char head[RU_REDIS_HEAD_BYTES];
    int64_t size = RU_REDIS_HEAD_BYTES;
    for (uint32_t k = 0; k < n; k++) {
        size += RU_REDIS_HEAD_BYTES + words[k].n + 2;
    }
    command *c = room(&r->out, size) ? malloc(sizeof *c) : NULL;
    if (c == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a command to Redis");
    }
    *c = (command){.done = done, .self = self};
    put(&r->out, head, ru_redis_head('*', n, head));
    for (uint32_t k = 0; k < n; k++) {
        put(&r->out, head, ru_redis_head('$', words[k].n, head));
        put(&r->out, words[k].p, words[k].n);
        put(&r->out, "\r\n", 2);
    }
    bool alone = r->first == NULL;
    *r->end = c;
    r->end = &c->next;
    if (alone) {
        watch(r);
    }
    return RU_OK;
}

ru_status ru_redis_send(ru_redis *r, const ru_str *words, uint32_t n, ru_redis_done done,
                        void *self, ru_err *err)
{
    if (r->fd < 0) {
        RU_TRY(dial(r, err)); /* nothing is under way */
        const ru_str auth[] = {ru_str_c("AUTH"), ru_str_c(r->password)};
        RU_TRY(r->password != NULL ? add(r, auth, 2, NULL, NULL, err) : RU_OK);
    }
    ru_err ignored;
    RU_TRY(add(r, words, n, done, self, err));
    if (want(r, &ignored) != RU_OK) { /* it ends as if nothing came */
        ru_loop_timer(r->loop, on_silent, r, 0, ru_clock_now());
    }
    return RU_OK;
}

ru_status ru_redis_open(ru_loop *loop, const char *address, bool tls, const char *password,
                        ru_arena *arena, ru_redis **out, ru_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
    const char *colon = strrchr(address, ':'), *from = address;
    int64_t n = colon != NULL ? colon - address : 0;
    if (n > 2 && from[0] == '[' && from[n - 1] == ']') {
        from++;
        n -= 2;
    }
    const char *host = ru_arena_strn(arena, from, n);
    ru_redis *r = RU_NEW(arena, ru_redis, 1);
    if (host == NULL || r == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a client of Redis");
    }
    if (n == 0) {
        return RU_FAIL(err, RU_E_CONFIG, "%s: expected HOST:PORT", address);
    }
    int rc = getaddrinfo(host, colon + 1, &hints, &found);
    if (rc != 0) {
        return RU_FAIL(err, RU_E_PEER, "%s: %s", address, gai_strerror(rc));
    }
    *r = (ru_redis){.loop = loop, .fd = -1};
    memcpy(&r->to, found->ai_addr, found->ai_addrlen);
    r->to_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    r->password = password != NULL ? ru_arena_str(arena, password) : NULL;
    r->end = &r->first;
    RU_TRY(tls ? rui_redis_tls_open(host, arena, &r->tls, err) : RU_OK);
    *out = r;
    return RU_OK;
}

void ru_redis_close(ru_redis *r)
{
    if (r == NULL) {
        return;
    }
    for (command *c = cut(r), *next; c != NULL; c = next) {
        next = c->next;
        free(c);
    }
    rui_redis_tls_close(r->tls);
    free(r->in.p);
    free(r->out.p);
}
