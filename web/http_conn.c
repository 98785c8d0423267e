/* Connections while they live: which are idle, since when, and whether their clients have ended. */
#include "web/http_impl.h"

#ifdef RU_HAS_MHD
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { ROOM = 16 };
#define LOOK_NS INT64_C(10000000)

rui_http_conn *rui_http_conn_of(const ru_http *h, struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        c != NULL ? h->get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT) : NULL;
    return info != NULL ? info->socket_context : NULL;
}

static void conn_unlist(ru_http *h, rui_http_conn *c)
{
    *(c->before != NULL ? &c->before->next : &h->conns) = c->next;
    *(c->next != NULL ? &c->next->before : &h->last_conn) = c->before;
}

static void conn_first(ru_http *h, rui_http_conn *c)
{
    c->idle_since = ru_clock_now();
    c->before = NULL;
    c->next = h->conns;
    *(c->next != NULL ? &c->next->before : &h->last_conn) = c;
    h->conns = c;
}

/* A client that has sent no request yet may be about to: it shall know why none is answered. */
static void say_full(const ru_http *h, const rui_http_conn *c)
{
    char body[RUI_HTTP_SENTENCE_BYTES], all[RUI_HTTP_SENTENCE_BYTES + 256];
    ru_text b = ru_text_into(body, sizeof body), t = ru_text_into(all, sizeof all);
    rui_http_sentence(h, "", 503, "the server has as many connections as it may have; try again",
                      &b);
    ru_text_putf(&t,
                 "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
                 "Content-Length: %lld\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
                 (long long)b.n, body);
    (void)!send(c->fd, all, (size_t)t.n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A request has come, and is not read yet. */
static bool conn_has_news(const rui_http_conn *c)
{
    int bytes = 0;
    return ioctl(c->fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

void rui_http_conn_end(ru_http *h, rui_http_conn *c)
{
    (void)shutdown(c->fd, SHUT_RDWR);
    h->n_ended += c->ended ? 0 : 1;
    c->ended = true;
}

/* Few places are left: some of those who ask nothing for longest give theirs to others. Few at a
 * time, so that requests do not wait while hundreds of connections are closed. */
void rui_http_make_room(ru_http *h)
{
    uint32_t part = h->opt.conns_max / 8, left = part < ROOM ? part : ROOM;
    if (h->opt.request == NULL || h->n_conns - h->n_ended + part < h->opt.conns_max) {
        return;
    }
    for (rui_http_conn *c = h->last_conn; c != NULL && left > 0; c = c->before) {
        if (!c->asks && !c->ended && !conn_has_news(c)) {
            if (!c->asked && h->opt.cert == NULL) {
                say_full(h, c);
            }
            rui_http_conn_end(h, c);
            left--;
        }
    }
}

static void look(ru_http *h, ru_time now);

/* The end of what a client sends may come with its request: the library is told of it once, reads
 * less than it asked for, and looks no more. This tells it anew, of connections that are idle for a
 * moment: most ask again before, and a look is a system call. The newest idle ones are first. */
static void on_look(void *self, uint32_t what, ru_time now)
{
    ru_http *h = self;
    (void)what;
    h->looking = false;
    for (rui_http_conn *c = h->conns; c != NULL && !c->looked; c = c->next) {
        char byte;
        if (c->asks || c->ended) {
            continue;
        }
        if (ru_time_since(now, c->idle_since) < LOOK_NS) {
            look(h, now);
            continue;
        }
        c->looked = true;
        if (c->asked && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
            (void)shutdown(c->fd, SHUT_RD);
        }
    }
}

static void look(ru_http *h, ru_time now)
{
    if (!h->looking && h->opt.cert == NULL) {
        h->looking = true;
        ru_loop_timer(h->opt.loop, on_look, h, 0, ru_time_after(now, LOOK_NS));
    }
}

void rui_http_look_off(ru_http *h)
{
    ru_loop_timer_off(h->opt.loop, on_look, h, 0);
}

void rui_http_conn_idle(ru_http *h, rui_http_conn *c)
{
    c->asks = c->looked = false;
    conn_unlist(h, c);
    conn_first(h, c);
    look(h, c->idle_since);
}

void rui_http_connection(void *self, struct MHD_Connection *c, void **socket,
                         enum MHD_ConnectionNotificationCode what)
{
    ru_http *h = self;
    rui_http_conn *conn = *socket;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        conn = calloc(1, sizeof *conn);
        *socket = conn;
        if (conn != NULL) { /* without memory for it only the library's time counts */
            conn->fd = h->get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
            h->n_conns++;
            rui_http_make_room(h);
            conn_first(h, conn);
        }
    } else if (conn != NULL) {
        conn_unlist(h, conn);
        h->n_conns--;
        h->n_ended -= conn->ended ? 1 : 0;
        free(conn);
        *socket = NULL;
    }
}

#endif
