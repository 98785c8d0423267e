/* What the sockets alone allow: the bytes of `rubato bench params --only redis` over one TCP
 * connection on loopback, and nothing else. A server with one thread gathers the rows of a batch
 * with one system call, and adds what comes to them; a client with one thread receives them at
 * their destination. No store over such a connection is faster, whatever it does.
 *
 *   client  op, list -> server ; UPDATE: rows behind it      server  READ: rows ; UPDATE: one word
 *
 * Thread: main only. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bench/params/params_store.h"
#include "env/clock.h"
#include "env/link/link_tcp.h"
#include "env/process/process.h"

enum { PIECE_BYTES = 256 << 10, QUEUE = 4 * RUI_STORE_DEPTH_MAX };

_Static_assert(RUI_STORE_BATCH <= 1024, "rows of a batch fit into one system call");

typedef struct request {
    uint32_t op, list;
} request;

/* -- the server ----------------------------------------------------------------------------------
 */

typedef struct host {
    ru_arena arena;
    int fd;
    uint32_t width;
    const uint32_t *lists;
    float *rows, *piece;
} host;

/* The whole of n bytes; false: the connection ended. */
static bool receive(int fd, void *into, size_t n)
{
    return recv(fd, into, n, MSG_WAITALL) == (ssize_t)n;
}

static bool send_rows(const host *s, const uint32_t *list)
{
    struct iovec iov[RUI_STORE_BATCH];
    size_t bytes = (size_t)s->width * 4;
    for (uint32_t i = 0; i < RUI_STORE_BATCH; i++) {
        iov[i] = (struct iovec){s->rows + (int64_t)list[i] * s->width, bytes};
    }
    for (uint32_t at = 0; at < RUI_STORE_BATCH;) {
        struct msghdr m = {.msg_iov = iov + at, .msg_iovlen = RUI_STORE_BATCH - at};
        ssize_t n = sendmsg(s->fd, &m, MSG_NOSIGNAL);
        if (n < 0) {
            return false;
        }
        while (at < RUI_STORE_BATCH && (size_t)n >= iov[at].iov_len) {
            n -= (ssize_t)iov[at++].iov_len;
        }
        if (n > 0) {
            iov[at].iov_base = (uint8_t *)iov[at].iov_base + n;
            iov[at].iov_len -= (size_t)n;
        }
    }
    return true;
}

static bool add_rows(const host *s, const uint32_t *list)
{
    uint32_t rows = PIECE_BYTES / (s->width * 4);
    for (uint32_t at = 0; at < RUI_STORE_BATCH; at += rows) {
        uint32_t n = rows < RUI_STORE_BATCH - at ? rows : RUI_STORE_BATCH - at;
        const float *from = s->piece;
        if (!receive(s->fd, s->piece, (size_t)n * s->width * 4)) {
            return false;
        }
        for (uint32_t i = 0; i < n; i++, from += s->width) {
            float *to = s->rows + (int64_t)list[at + i] * s->width;
            for (uint32_t j = 0; j < s->width; j++) {
                to[j] += from[j];
            }
        }
    }
    uint32_t done = 1;
    return send(s->fd, &done, sizeof done, MSG_NOSIGNAL) == (ssize_t)sizeof done;
}

static bool serve_one(const host *s)
{
    request r;
    if (!receive(s->fd, &r, sizeof r) || r.list >= RUI_STORE_LISTS) {
        return false;
    }
    const uint32_t *list = s->lists + (int64_t)r.list * RUI_STORE_BATCH;
    return r.op == RUI_STORE_READ ? send_rows(s, list) : add_rows(s, list);
}

ru_status rui_bare_server(const char *const *words, uint32_t n, ru_err *err)
{
    host s = {.fd = -1};
    char address[RU_LINK_TCP_ADDRESS_MAX];
    int listener;
    if (n != 3) {
        return RU_FAIL(err, RU_E_USAGE, "a server needs: params bare-server WIDTH");
    }
    ru_arena_init(&s.arena, 0);
    s.width = (uint32_t)strtoul(words[2], NULL, 10);
    RU_CHECK(s.width >= 1 && s.width <= RUI_STORE_WIDTH_MAX);
    s.lists = rui_store_lists(s.width, &s.arena);
    s.rows = RU_NEW(&s.arena, float, (int64_t)rui_store_rows(s.width) * s.width);
    s.piece = RU_NEW(&s.arena, float, PIECE_BYTES / 4);
    if (s.lists == NULL || s.rows == NULL || s.piece == NULL) {
        ru_arena_fini(&s.arena);
        return RU_FAIL(err, RU_E_MEM, "no memory for rows of %u floats", s.width);
    }
    ru_status st = ru_link_tcp_listen("127.0.0.1:0", &listener, address, err);
    if (st == RU_OK) {
        printf("%s\n", address);
        (void)fflush(stdout);
        struct pollfd p = {listener, POLLIN, 0};
        (void)poll(&p, 1, -1);
        s.fd = accept(listener, NULL, NULL);
        (void)close(listener);
        while (s.fd >= 0 && serve_one(&s)) {
        }
        (void)close(s.fd);
    }
    ru_arena_fini(&s.arena);
    return st;
}

/* -- the client ----------------------------------------------------------------------------------
 */

/* What is sent next, or comes next: in order. */
typedef struct part {
    uint32_t slot;
    request r;
    bool rows; /* coming: rows, else the word that says they are added */
} part;

typedef struct slot {
    uint32_t list;
    float *value; /* [BATCH * width] */
} slot;

typedef struct client {
    ru_arena arena;
    int fd;
    uint32_t width;
    int64_t batch_bytes;
    float *ones;
    slot slot[RUI_STORE_DEPTH_MAX];
    part out[QUEUE], in[QUEUE];
    uint64_t out_first, out_end, in_first, in_end;
    int64_t out_at, in_at; /* bytes of the first one that are done */
    uint32_t word;
    rui_store_ask ask;
    int64_t begun, done;
    double sum;
} client;

static void put(client *c, uint32_t k, rui_store_op op)
{
    const part p = {.slot = k, .r = {op, c->slot[k].list}, .rows = op == RUI_STORE_READ};
    RU_CHECK(c->out_end - c->out_first < QUEUE && c->in_end - c->in_first < QUEUE);
    c->out[c->out_end++ % QUEUE] = p;
    c->in[c->in_end++ % QUEUE] = p;
}

static void begin(client *c, uint32_t k)
{
    c->slot[k].list = (uint32_t)(c->begun++ % RUI_STORE_LISTS);
    put(c, k, c->ask.op == RUI_STORE_UPDATE ? RUI_STORE_UPDATE : RUI_STORE_READ);
}

static void came(client *c)
{
    const part *p = &c->in[c->in_first++ % QUEUE];
    const slot *s = &c->slot[p->slot];
    for (uint32_t i = 0; p->rows && i < RUI_STORE_BATCH; i++) {
        c->sum += (double)s->value[(int64_t)i * c->width];
    }
    if (p->rows && c->ask.op == RUI_STORE_TASK) {
        put(c, p->slot, RUI_STORE_UPDATE);
        return;
    }
    c->done++;
    if (c->begun < c->ask.batches) {
        begin(c, p->slot);
    }
}

/* true: something moved. */
static bool send_some(client *c)
{
    if (c->out_first == c->out_end) {
        return false;
    }
    part *p = &c->out[c->out_first % QUEUE];
    int64_t head = (int64_t)sizeof p->r, rest = p->rows ? 0 : c->batch_bytes;
    struct iovec iov[2];
    uint32_t n = 0;
    if (c->out_at < head) {
        iov[n++] = (struct iovec){(uint8_t *)&p->r + c->out_at, (size_t)(head - c->out_at)};
    }
    int64_t skip = c->out_at > head ? c->out_at - head : 0;
    iov[n++] = (struct iovec){(uint8_t *)c->ones + skip, (size_t)(rest - skip)};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
    ssize_t put_bytes = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    c->out_at += put_bytes > 0 ? put_bytes : 0;
    if (c->out_at == head + rest) {
        c->out_first++;
        c->out_at = 0;
    }
    return put_bytes > 0;
}

static bool receive_some(client *c, bool *ended)
{
    const part *p = &c->in[c->in_first % QUEUE];
    int64_t all = p->rows ? c->batch_bytes : (int64_t)sizeof c->word;
    uint8_t *to = p->rows ? (uint8_t *)c->slot[p->slot].value : (uint8_t *)&c->word;
    ssize_t n = recv(c->fd, to + c->in_at, (size_t)(all - c->in_at), MSG_DONTWAIT);
    *ended = n == 0 || (n < 0 && errno != EAGAIN);
    c->in_at += n > 0 ? n : 0;
    if (c->in_at == all) {
        c->in_at = 0;
        came(c);
    }
    return n > 0;
}

static ru_status run(void *self, const rui_store_ask *ask, double *seconds, ru_err *err)
{
    client *c = self;
    c->ask = *ask;
    c->begun = c->done = 0;
    ru_time from = ru_clock_now();
    for (uint32_t k = 0; k < ask->depth && c->begun < ask->batches; k++) {
        begin(c, k);
    }
    while (c->in_first < c->in_end) {
        bool ended, sent = send_some(c), got = receive_some(c, &ended);
        if (ended) {
            return RU_FAIL(err, RU_E_PEER, "the connection to the bare server broke: %s",
                           strerror(errno));
        }
        if (!sent && !got) {
            bool full = c->out_first < c->out_end;
            struct pollfd p = {c->fd, (short)(POLLIN | (full ? POLLOUT : 0)), 0};
            (void)poll(&p, 1, -1);
        }
    }
    RU_CHECK(c->done == ask->batches);
    *seconds = (double)ru_time_since(ru_clock_now(), from) * 1e-9;
    return RU_OK;
}

/* Its rows are not summed: what it added is no answer of a store. */
static ru_status no_sum(void *self, double *out, ru_err *err)
{
    (void)self;
    *out = 0;
    return RU_FAIL(err, RU_E_ARG, "a bare connection has no sum of its rows");
}

static ru_status open_client(client *c, const char *address, ru_err *err)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    in.sin_port = htons((uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10));
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (const struct sockaddr *)&in, sizeof in) != 0) {
        return RU_FAIL(err, RU_E_PEER, "no connection to %s: %s", address, strerror(errno));
    }
    int64_t floats = (int64_t)RUI_STORE_BATCH * c->width;
    c->batch_bytes = floats * 4;
    c->ones = RU_NEW(&c->arena, float, floats);
    bool fine = c->ones != NULL;
    for (int64_t i = 0; fine && i < floats; i++) {
        c->ones[i] = 1.0F;
    }
    for (uint32_t k = 0; k < RUI_STORE_DEPTH_MAX; k++) {
        c->slot[k].value = RU_NEW(&c->arena, float, floats);
        fine = fine && c->slot[k].value != NULL;
    }
    return fine ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for batches of %u floats", c->width);
}

ru_status rui_bare_worker(const char *const *words, uint32_t n, ru_err *err)
{
    if (n != 3) {
        return RU_FAIL(err, RU_E_USAGE, "a bare client needs: params bare WIDTH");
    }
    client *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a bare client");
    }
    ru_arena_init(&c->arena, 0);
    c->fd = -1;
    c->width = (uint32_t)strtoul(words[2], NULL, 10);
    RU_CHECK(c->width >= 1 && c->width <= RUI_STORE_WIDTH_MAX);
    ru_process *server = NULL;
    const char *address = NULL;
    ru_status st =
        rui_store_server_start("bare-server", words[2], &c->arena, &server, &address, err);
    st = st == RU_OK ? open_client(c, address, err) : st;
    if (st == RU_OK) {
        printf("{\"ready\":true,\"detail\":\"bare TCP\"}\n");
        (void)fflush(stdout);
        const rui_store_client as = {c, run, no_sum, NULL};
        st = rui_store_answer(&as, err);
    }
    if (c->fd >= 0) {
        (void)close(c->fd);
    }
    ru_process_close(server);
    ru_arena_fini(&c->arena);
    free(c);
    return st;
}
