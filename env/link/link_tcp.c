/* Connections and their lives; what users call; what is told later. */
#include "env/link/link_tcp.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "env/link/link_tcp_impl.h"

enum {
    CONNS_MAX = 1024,
    ACCEPTS_PER_TURN = 16,
    ACCEPT_REST_MS = 100, /* without descriptors: try again then */
};
static const int64_t open_default_ns = 5000000000, dead_default_ns = 10000000000;
static const int64_t minute_ns = 60000000000;

static void on_events(void *self, int fd, uint32_t events, ru_time now);
static void on_timer(void *self, uint32_t index, ru_time now);
static void on_listen(void *self, int listen_fd, uint32_t events, ru_time now);
static void flush(void *self, ru_time now);

/* ---- connections ---- */

static uint32_t index_of(const ru_link_tcp *l, const rui_conn *c)
{
    return (uint32_t)(c - l->conns);
}

static rui_conn *conn_of(const ru_link_tcp *l, ru_conn_id id)
{
    uint32_t k = (id.v & 0xffff) - 1;
    rui_conn *c = k < l->opt.conns_max ? &l->conns[k] : NULL;
    return c != NULL && c->state != RUI_CONN_FREE && c->id.v == id.v ? c : NULL;
}

/* A slot with a new generation; NULL: none is left. Only what must be zero is cleared: the stage
 * may keep old bytes. */
static rui_conn *conn_take(ru_link_tcp *l, const char *address)
{
    if (l->n_free == 0) {
        return NULL;
    }
    uint32_t k = l->free[--l->n_free];
    l->conns_used = k >= l->conns_used ? k + 1 : l->conns_used;
    rui_conn *c = &l->conns[k];
    uint32_t generation = (c->id.v >> 16) + 1;
    bool listed = c->listed;
    rui_conn *next = c->next;
    memset(c, 0, offsetof(rui_conn, stage));
    c->listed = listed; /* of its former life; the flush finds nothing to do */
    c->next = next;
    c->id.v = generation << 16 | (k + 1);
    c->fd = -1;
    c->link = l;
    snprintf(c->address, sizeof c->address, "%s", address);
    return c;
}

static void conn_release(ru_link_tcp *l, rui_conn *c)
{
    if (c->state == RUI_CONN_FREE) {
        return;
    }
    ru_loop_timer_off(l->opt.loop, on_timer, l, index_of(l, c));
    l->n_active -= c->active ? 1 : 0;
    c->active = false;
    rui_tls_free(c->tls);
    c->tls = NULL;
    if (c->fd >= 0) {
        ru_loop_fd_off(l->opt.loop, c->fd);
        close(c->fd);
        c->fd = -1;
    }
    c->state = RUI_CONN_FREE;
    l->free[l->n_free++] = index_of(l, c);
}

void rui_conn_defer(ru_link_tcp *l, rui_conn *c)
{
    if (!c->listed) {
        c->listed = true;
        c->next = NULL;
        if (l->todo_last != NULL) {
            l->todo_last->next = c;
        } else {
            l->todo = c;
        }
        l->todo_last = c;
    }
    ru_loop_after(l->opt.loop, flush, l);
}

void rui_conn_fail(ru_link_tcp *l, rui_conn *c, ru_status why, const char *fmt, ...)
{
    if (c->state == RUI_CONN_FREE || c->state == RUI_CONN_FAILED) {
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->sentence, sizeof c->sentence, fmt, ap);
    va_end(ap);
    c->why = why;
    c->state = RUI_CONN_FAILED;
    if (c->fd >= 0) {
        ru_loop_fd_off(l->opt.loop, c->fd);
    }
    rui_conn_defer(l, c);
}

void rui_conn_events(ru_link_tcp *l, rui_conn *c, bool in, bool out)
{
    uint32_t events = (in ? (uint32_t)EPOLLIN : 0) | (out ? (uint32_t)EPOLLOUT : 0);
    if (events == c->events || c->fd < 0 || c->state == RUI_CONN_FAILED) {
        return;
    }
    ru_err err;
    c->events = events;
    if (ru_loop_fd(l->opt.loop, c->fd, events, on_events, c, &err) != RU_OK) {
        rui_conn_fail(l, c, RU_E_LIMIT, "%s: %s", c->address, err.text);
    }
}

/* ---- opening ---- */

static void shake(ru_link_tcp *l, rui_conn *c, ru_time now)
{
    bool in = false, out = false;
    ru_status st = rui_tls_shake(c->tls, &in, &out, c->sentence, sizeof c->sentence);
    char byte;
    /* OpenSSL waits on at the end of the stream, which epoll would tell again and again. */
    if (st == RU_E_AGAIN && in && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
        snprintf(c->sentence, sizeof c->sentence, "closed the connection during the TLS handshake");
        st = RU_E_IO;
    }
    if (st == RU_E_AGAIN) {
        rui_conn_events(l, c, in, out);
    } else if (st == RU_OK) {
        c->state = RUI_CONN_OPENED;
        rui_conn_defer(l, c);
    } else {
        char why[sizeof c->sentence];
        memcpy(why, c->sentence, sizeof why);
        /* It never stood. Not RU_E_PEER: that says that nobody listens there. */
        rui_conn_fail(l, c, st == RU_E_IO ? RU_E_AGAIN : st, "%s: %s", c->address, why);
        if (c->accepted) {
            rui_link_accuse(l, c->address, why, now);
        }
    }
}

void rui_conn_standing(ru_link_tcp *l, rui_conn *c)
{
    bool guard =
        l->tls != NULL && !l->opt.tls_never && (l->opt.tls_always || !rui_socket_here(c->fd));
    if (!guard) {
        c->state = RUI_CONN_OPENED;
        rui_conn_defer(l, c);
        return;
    }
    c->tls = rui_tls_new(l->tls, c->fd, c->accepted, c->class);
    if (c->tls == NULL) {
        rui_conn_fail(l, c, RU_E_MEM, "%s: no memory for TLS", c->address);
        return;
    }
    c->state = RUI_CONN_TLS;
    shake(l, c, ru_clock_now());
}

static void set_up_socket(ru_link_tcp *l, rui_conn *c)
{
    rui_socket_options(l, c->fd, c->class);
    rui_socket_begin(l, c->fd, c->class);
    if (c->class == RU_LINK_BULK) {
        rui_socket_notsent(c, RUI_NOTSENT_BYTES);
    }
}

/* Refused: the machine answered, and nobody listens there. Anything else may pass. */
static void cannot_connect(ru_link_tcp *l, rui_conn *c, int error)
{
    rui_conn_fail(l, c, error == ECONNREFUSED ? RU_E_PEER : RU_E_AGAIN, "%s: cannot connect: %s",
                  c->address, strerror(error));
}

static void answered(ru_link_tcp *l, rui_conn *c)
{
    if (rui_socket_itself(c->fd)) {
        cannot_connect(l, c, ECONNREFUSED);
    } else {
        rui_conn_standing(l, c);
    }
}

void rui_conn_dial(ru_link_tcp *l, rui_conn *c, const struct sockaddr *to, socklen_t size_bytes)
{
    c->fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->fd < 0) {
        rui_conn_fail(l, c, RU_E_AGAIN, "%s: cannot open a socket: %s", c->address,
                      strerror(errno));
        return;
    }
    set_up_socket(l, c);
    c->state = RUI_CONN_CONNECTING;
    if (connect(c->fd, to, size_bytes) == 0) {
        answered(l, c);
    } else if (errno == EINPROGRESS) {
        rui_conn_events(l, c, false, true);
    } else {
        cannot_connect(l, c, errno);
    }
}

static ru_status tcp_connect(void *self, const char *address, ru_link_class class, ru_conn_id *id,
                             ru_err *err)
{
    ru_link_tcp *l = self;
    char host[RUI_ADDRESS_MAX], port[8];
    RU_TRY(rui_addr_split(address, host, port, err));
    if (host[0] == '\0' || strcmp(port, "0") == 0) {
        return RU_FAIL(err, RU_E_ARG, "'%s' is not an address to connect to; expected host:port",
                       address);
    }
    rui_conn *c = conn_take(l, address);
    if (c == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: this process has %u connections already, its limit",
                       address, l->opt.conns_max);
    }
    c->class = class;
    c->state = RUI_CONN_NAMING;
    *id = c->id;
    ru_loop_timer(l->opt.loop, on_timer, l, index_of(l, c),
                  ru_time_after(ru_clock_now(), l->opt.open_ns));
    struct sockaddr_storage to;
    socklen_t size_bytes;
    if (rui_addr_numeric(host, port, &to, &size_bytes)) {
        rui_conn_dial(l, c, (struct sockaddr *)&to, size_bytes);
    } else {
        rui_name_start(l, c, host, port);
    }
    return RU_OK;
}

static void connected(ru_link_tcp *l, rui_conn *c)
{
    int error = 0;
    socklen_t size = sizeof error;
    (void)getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
        cannot_connect(l, c, error);
        return;
    }
    answered(l, c);
}

/* Connecting or a handshake took too long, or listening may go on. */
static void on_timer(void *self, uint32_t index, ru_time now)
{
    ru_link_tcp *l = self;
    if (index == l->opt.conns_max) {
        if (ru_loop_fd(l->opt.loop, l->listen_fd, EPOLLIN, on_listen, l, NULL) != RU_OK) {
            ru_loop_timer(l->opt.loop, on_timer, l, l->opt.conns_max,
                          ru_time_after(now, (int64_t)ACCEPT_REST_MS * 1000000));
        }
        return;
    }
    rui_conn *c = &l->conns[index];
    if (c->state == RUI_CONN_TLS && c->accepted) {
        rui_link_accuse(l, c->address, "the TLS handshake took too long", now);
    }
    if (c->state == RUI_CONN_NAMING || c->state == RUI_CONN_CONNECTING ||
        c->state == RUI_CONN_TLS) {
        rui_conn_fail(l, c, RU_E_AGAIN, "%s: no answer within %.1f s", c->address,
                      (double)l->opt.open_ns * 1e-9);
    }
}

static uint32_t host_bucket(const rui_conn *c, uint32_t n)
{
    const char *colon = strrchr(c->address, ':');
    uint64_t h = 0xcbf29ce484222325ull;
    for (const char *p = c->address; *p != '\0' && p != colon; p++) {
        h = (h ^ (uint8_t)*p) * 0x100000001b3ull;
    }
    return (uint32_t)((h ^ h >> 32) % n);
}

/* Of those that were accepted and stand in the TLS handshake at most RU_LINK_TCP_STRANGERS are
 * kept: the oldest gives way, of those hosts that have the most. */
static void stranger_room(ru_link_tcp *l, ru_time now)
{
    enum { BUCKETS = 64 };
    uint32_t of[BUCKETS] = {0}, strangers = 0;
    rui_conn *worst = NULL;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t k = 0; k < l->conns_used; k++) {
            rui_conn *c = &l->conns[k];
            if (!c->accepted || c->state != RUI_CONN_TLS) {
                continue;
            }
            uint32_t *mine = &of[host_bucket(c, BUCKETS)];
            if (pass == 0) {
                (*mine)++;
                strangers++;
                continue;
            }
            uint32_t most = worst != NULL ? of[host_bucket(worst, BUCKETS)] : 0;
            if (*mine > most || (*mine == most && c->since.ns < worst->since.ns)) {
                worst = c;
            }
        }
        if (strangers < RU_LINK_TCP_STRANGERS) {
            return;
        }
    }
    rui_link_accuse(l, worst->address,
                    "was replaced by a newer connection before its TLS handshake", now);
    conn_release(l, worst);
}

static void accept_one(ru_link_tcp *l, int fd, const struct sockaddr *from, ru_time now)
{
    char address[RUI_ADDRESS_MAX];
    rui_addr_print(from, address);
    if (l->tls != NULL) {
        stranger_room(l, now);
    }
    rui_conn *c = conn_take(l, address);
    if (c == NULL) {
        close(fd);
        rui_link_accuse(l, address, "refused: all connections are in use", now);
        return;
    }
    c->accepted = true;
    c->since = now;
    c->fd = fd;
    c->class = rui_socket_class(fd);
    set_up_socket(l, c);
    c->state = RUI_CONN_CONNECTING;
    ru_loop_timer(l->opt.loop, on_timer, l, index_of(l, c), ru_time_after(now, l->opt.open_ns));
    rui_conn_standing(l, c);
}

static void on_listen(void *self, int listen_fd, uint32_t events, ru_time now)
{
    (void)listen_fd, (void)events;
    ru_link_tcp *l = self;
    for (uint32_t k = 0; k < ACCEPTS_PER_TURN; k++) {
        struct sockaddr_storage from = {0};
        socklen_t size = sizeof from;
        struct sockaddr *sa = (struct sockaddr *)&from;
        int fd = accept4(l->listen_fd, sa, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            accept_one(l, fd, sa, now);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (l->rested.ns == 0 || ru_time_since(now, l->rested) > minute_ns) {
                l->rested = now;
                ru_log(RU_LOG_WARN, "env", "accept_rests",
                       "%s: new connections must wait: %s; raise ulimit -n (this line appears once "
                       "a minute)",
                       l->address, strerror(errno));
            }
            ru_loop_fd_off(l->opt.loop, l->listen_fd);
            ru_loop_timer(l->opt.loop, on_timer, l, l->opt.conns_max,
                          ru_time_after(now, (int64_t)ACCEPT_REST_MS * 1000000));
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

/* ---- events ---- */

static bool tell_sent(ru_link_tcp *l, rui_conn *c, ru_time now)
{
    ru_conn_id id = c->id;
    uint64_t sent[RUI_SENT_MAX];
    uint32_t n = c->n_sent;
    memcpy(sent, c->sent, n * sizeof *sent);
    memmove(c->sent, c->sent + n, c->n_gathered * sizeof *c->sent);
    c->n_sent = 0;
    for (uint32_t k = 0; k < n; k++) {
        l->in_upcall++;
        l->user->sent(l->user->self, id, sent[k], now);
        l->in_upcall--;
        if (!rui_conn_alive(c, id)) {
            return false;
        }
    }
    return true;
}

static void send_and_tell(ru_link_tcp *l, rui_conn *c, ru_time now)
{
    ru_conn_id id = c->id;
    rui_tx_run(l, c, now);
    if (rui_conn_alive(c, id)) {
        (void)tell_sent(l, c, now);
    }
}

static void on_events(void *self, int fd, uint32_t events, ru_time now)
{
    rui_conn *c = self;
    ru_link_tcp *l = c->link;
    RU_CHECK(c->fd == fd);
    if (c->state == RUI_CONN_CONNECTING) {
        connected(l, c);
        return;
    }
    if (c->state == RUI_CONN_TLS) {
        shake(l, c, now);
        return;
    }
    ru_conn_id id = c->id;
    bool ended = (events & (uint32_t)(EPOLLERR | EPOLLHUP)) != 0;
    if (ended && c->rx_state == RUI_RX_PAUSED) {
        rui_conn_fail(l, c, RU_E_PEER, "%s: the other side closed the connection", c->address);
        return;
    }
    if (rui_conn_alive(c, id) && (ended || (events & EPOLLIN) != 0)) {
        rui_rx_run(l, c, now);
    }
    if (rui_conn_alive(c, id) && (events & EPOLLOUT) != 0) {
        send_and_tell(l, c, now);
    }
}

/* ---- what was put off: upcalls that must not nest in calls, work that must not nest in upcalls */

static bool tell_opened(ru_link_tcp *l, rui_conn *c, ru_time now)
{
    ru_conn_id id = c->id;
    ru_loop_timer_off(l->opt.loop, on_timer, l, index_of(l, c));
    c->state = RUI_CONN_UP;
    c->told = true;
    rui_conn_events(l, c, true, false);
    rui_socket_path(c);
    if (c->class == RU_LINK_BULK) {
        rui_socket_sndbuf(c);
    }
    char address[RUI_ADDRESS_MAX];
    memcpy(address, c->address, sizeof address);
    l->in_upcall++;
    l->user->opened(l->user->self, id, c->accepted, address, now);
    l->in_upcall--;
    if (rui_conn_alive(c, id)) {
        c->woken = true;                                    /* ask once without being told */
        c->again = c->tls != NULL && rui_tls_holds(c->tls); /* came with the handshake */
    }
    return rui_conn_alive(c, id);
}

static void tell_closed(ru_link_tcp *l, rui_conn *c, ru_time now)
{
    ru_conn_id id = c->id;
    ru_status why = c->why;
    char sentence[sizeof c->sentence];
    memcpy(sentence, c->sentence, sizeof sentence);
    bool tell = c->told || !c->accepted; /* a stranger that never got in is nobody's business */
    conn_release(l, c);
    if (!tell) {
        return;
    }
    l->in_upcall++;
    l->user->closed(l->user->self, id, why, sentence, now);
    l->in_upcall--;
}

static void flush_one(ru_link_tcp *l, rui_conn *c, ru_time now)
{
    ru_conn_id id = c->id;
    if (c->state == RUI_CONN_FAILED) {
        tell_closed(l, c, now);
        return;
    }
    if (c->state == RUI_CONN_OPENED && !tell_opened(l, c, now)) {
        return;
    }
    if (c->state != RUI_CONN_UP || !tell_sent(l, c, now)) {
        return;
    }
    if (c->resumed || c->again) {
        bool paused = c->resumed && c->rx_state == RUI_RX_PAUSED;
        c->resumed = c->again = false;
        if (paused) {
            rui_rx_resume(l, c, now);
        } else {
            rui_rx_run(l, c, now);
        }
    }
    if (rui_conn_alive(c, id) && c->woken) {
        send_and_tell(l, c, now);
    }
}

static void flush(void *self, ru_time now)
{
    ru_link_tcp *l = self;
    rui_conn *last = l->todo_last;
    for (bool more = l->todo != NULL; more;) {
        rui_conn *c = l->todo;
        more = c != last;
        l->todo = c->next;
        if (l->todo == NULL) {
            l->todo_last = NULL;
        }
        c->listed = false;
        c->next = NULL;
        flush_one(l, c, now);
        now = ru_clock_now();
    }
    if (l->todo != NULL) {
        ru_loop_after(l->opt.loop, flush, l);
    }
}

/* ---- what users call ---- */

static void tcp_close(void *self, ru_conn_id id)
{
    ru_link_tcp *l = self;
    rui_conn *c = conn_of(l, id);
    if (c != NULL) {
        conn_release(l, c);
    }
}

static void tcp_wake(void *self, ru_conn_id id)
{
    ru_link_tcp *l = self;
    rui_conn *c = conn_of(l, id);
    if (c == NULL || c->state != RUI_CONN_UP || c->tx_blocked || c->woken) {
        return; /* pulled anyway, as soon as there is room */
    }
    if (l->in_upcall > 0) {
        c->woken = true;
        rui_conn_defer(l, c);
    } else {
        rui_tx_run(l, c, ru_clock_now());
        if (c->n_sent > 0) {
            rui_conn_defer(l, c); /* `sent` does not nest in this call */
        }
    }
}

static void tcp_resume(void *self, ru_conn_id id)
{
    ru_link_tcp *l = self;
    rui_conn *c = conn_of(l, id);
    /* Within `head`, just before it says RU_E_AGAIN, is not too early. */
    if (c != NULL && c->state == RUI_CONN_UP &&
        (c->rx_state == RUI_RX_PAUSED || l->in_upcall > 0)) {
        c->resumed = true;
        rui_conn_defer(l, c);
    }
}

static void tcp_redirect(void *self, ru_conn_id id, const ru_link_rx *rx)
{
    rui_conn *c = conn_of(self, id);
    if (c != NULL && c->state == RUI_CONN_UP) {
        rui_rx_redirect(c, rx);
    }
}

static void tcp_knobs(void *self, ru_conn_id id, const ru_link_knobs *knobs)
{
    ru_link_tcp *l = self;
    rui_conn *c = conn_of(l, id);
    if (c == NULL || c->fd < 0 || c->state == RUI_CONN_FAILED) {
        return;
    }
    if (knobs->notsent_bytes > 0) {
        rui_socket_notsent(c, knobs->notsent_bytes);
        c->notsent_planned = true;
    }
    if (knobs->sndbuf_bytes > 0) {
        int v = knobs->sndbuf_bytes > INT32_MAX / 2 ? INT32_MAX / 2 : (int)knobs->sndbuf_bytes;
        (void)setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &v, sizeof v);
        c->sndbuf_planned = true;
    }
    if (knobs->pace_bytes_per_s > 0) {
        uint64_t v = (uint64_t)knobs->pace_bytes_per_s;
        (void)setsockopt(c->fd, SOL_SOCKET, SO_MAX_PACING_RATE, &v, sizeof v);
    }
    if (knobs->congestion != NULL) {
        rui_socket_congestion(l, c->fd, knobs->congestion);
        c->congestion_planned = true;
    }
}

static void tcp_facts(void *self, ru_conn_id id, ru_link_facts *into)
{
    *into = (ru_link_facts){0};
    rui_conn *c = conn_of(self, id);
    if (c == NULL || c->fd < 0) {
        return;
    }
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
        into->acked_bytes = (int64_t)info.tcpi_bytes_acked;
        into->rtt_ns = (int64_t)info.tcpi_rtt * 1000;
        into->rtt_min_ns = info.tcpi_min_rtt == UINT32_MAX ? 0 : (int64_t)info.tcpi_min_rtt * 1000;
        into->delivery_bytes_per_s = (double)info.tcpi_delivery_rate;
        into->app_limited = info.tcpi_delivery_rate_app_limited != 0;
    }
    int unsent = 0, queued = 0;
    if (ioctl(c->fd, SIOCOUTQNSD, &unsent) == 0 && ioctl(c->fd, SIOCOUTQ, &queued) == 0) {
        into->unsent_bytes = unsent;
        into->unacked_bytes = queued > unsent ? queued - unsent : 0;
    }
}

static ru_time tcp_clock(void *self)
{
    (void)self;
    return ru_clock_now();
}

static ru_time tcp_arrived(void *self, ru_conn_id id)
{
    const rui_conn *c = conn_of(self, id);
    return (ru_time){c != NULL ? c->rx_stamp_ns : 0};
}

static const ru_link_ops tcp_ops = {
    .name = "tcp",
    .connect = tcp_connect,
    .close = tcp_close,
    .wake = tcp_wake,
    .resume = tcp_resume,
    .redirect = tcp_redirect,
    .knobs = tcp_knobs,
    .facts = tcp_facts,
    .clock = tcp_clock,
    .arrived = tcp_arrived,
};

/* ---- the link ---- */

void rui_link_accuse(ru_link_tcp *l, const char *address, const char *what, ru_time now)
{
    ru_refusals_tick(&l->refusals, "env", now);
    ru_refusals_add(&l->refusals, "env", address, what, now);
}

static ru_status link_check(const ru_link_tcp_options *opt, ru_err *err)
{
    if (opt->psk_bytes != 0 && (opt->psk_bytes < 16 || opt->psk_bytes > 64)) {
        return RU_FAIL(err, RU_E_ARG, "a TLS key has %u bytes, expected 16 to 64", opt->psk_bytes);
    }
    if (opt->tls_always && (opt->tls_never || (opt->psk_bytes == 0 && opt->psk_of == NULL))) {
        return RU_FAIL(err, RU_E_ARG, "TLS for every connection needs a key");
    }
    if (opt->psk_name != NULL && strlen(opt->psk_name) > RU_LINK_PSK_NAME_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "the name beside a TLS key has %zu bytes, expected at most %d",
                       strlen(opt->psk_name), RU_LINK_PSK_NAME_MAX);
    }
    if (opt->conns_max > 65000) {
        return RU_FAIL(err, RU_E_ARG,
                       "the largest number of connections is %u, expected at most 65000",
                       opt->conns_max);
    }
    return RU_OK;
}

ru_status ru_link_tcp_open(const ru_link_tcp_options *opt, ru_link_tcp **out, ru_err *err)
{
    RU_TRY(link_check(opt, err));
    ru_link_tcp *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a TCP link");
    }
    l->opt = *opt;
    l->opt.conns_max = opt->conns_max != 0 ? opt->conns_max : CONNS_MAX;
    l->opt.open_ns = opt->open_ns > 0 ? opt->open_ns : open_default_ns;
    l->opt.dead_ns = opt->dead_ns > 0 ? opt->dead_ns : dead_default_ns;
    l->listen_fd = -1;
    l->conns = calloc(l->opt.conns_max, sizeof *l->conns);
    l->free = calloc(l->opt.conns_max, sizeof *l->free);
    ru_status st = RU_OK;
    if (l->conns == NULL || l->free == NULL) {
        st = RU_FAIL(err, RU_E_MEM, "no memory for %u connections", l->opt.conns_max);
    }
    for (uint32_t k = l->opt.conns_max; st == RU_OK && k > 0; k--) {
        l->free[l->n_free++] = k - 1;
    }
    if (st == RU_OK && (opt->psk_bytes > 0 || opt->psk_of != NULL) && !opt->tls_never) {
        st = rui_tls_host_open(&l->opt, &l->tls, err);
    }
    if (st == RU_OK) {
        st = ru_loop_waker(opt->loop, rui_names_done, l, &l->waker, err);
        l->has_waker = st == RU_OK;
    }
    if (st == RU_OK && opt->listen != NULL) {
        st = rui_addr_listen(opt->listen, opt->toward, &l->listen_fd, l->address, err);
        if (st == RU_OK) { /* those accepted begin as it does */
            rui_socket_begin(l, l->listen_fd, RU_LINK_URGENT);
        }
        st = st == RU_OK ? ru_loop_fd(opt->loop, l->listen_fd, EPOLLIN, on_listen, l, err) : st;
    }
    if (st != RU_OK) {
        ru_link_tcp_close(l);
        return st;
    }
    *out = l;
    return RU_OK;
}

void ru_link_tcp_close(ru_link_tcp *l)
{
    if (l == NULL) {
        return;
    }
    RU_CHECK(l->in_upcall == 0);
    ru_refusals_end(&l->refusals, "env");
    rui_names_stop(l);
    for (uint32_t k = 0; l->conns != NULL && l->free != NULL && k < l->opt.conns_max; k++) {
        conn_release(l, &l->conns[k]);
    }
    ru_loop_after_off(l->opt.loop, flush, l);
    ru_loop_timer_off(l->opt.loop, on_timer, l, l->opt.conns_max);
    if (l->has_waker) {
        ru_loop_waker_off(l->opt.loop, l->waker);
    }
    if (l->listen_fd >= 0) {
        ru_loop_fd_off(l->opt.loop, l->listen_fd);
        close(l->listen_fd);
    }
    rui_tls_host_close(l->tls);
    free(l->conns);
    free(l->free);
    free(l);
}

void ru_link_tcp_user(ru_link_tcp *l, const ru_link_user *user)
{
    l->user = user;
}

ru_link ru_link_tcp_link(ru_link_tcp *l)
{
    return (ru_link){&tcp_ops, l};
}

const char *ru_link_tcp_address(const ru_link_tcp *l)
{
    return l->address;
}

const char *ru_link_tcp_guard(const ru_link_tcp *l, ru_conn_id id)
{
    const rui_conn *c = conn_of(l, id);
    return c == NULL || c->tls == NULL ? "plain" : rui_tls_kernel(c->tls) ? "ktls" : "tls";
}

uint32_t ru_link_tcp_plain(const ru_link_tcp *l)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < l->conns_used; k++) {
        n += l->conns[k].state == RUI_CONN_UP && l->conns[k].tls == NULL ? 1 : 0;
    }
    return n;
}
