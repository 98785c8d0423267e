/* A client that sends no more, but reads: the library takes the end of its sending for the end of
 * the connection, so it gets one end of a pair of sockets in the place of the client's. What it
 * writes is carried on; its side ends when the request is answered.
 *
 *   library --fd--> (pair) --inner--> bytes --real--> client */
#include "web/http_impl.h"

#ifdef RU_HAS_MHD
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 16 << 10 };

struct rui_http_half {
    struct rui_http_half *next;
    ru_http *http;
    rui_http_call *call; /* NULL: it is answered */
    int inner, real;
    int64_t at, n; /* bytes [at, n) wait for the client */
    char bytes[BYTES];
};

static void half_free(rui_http_half *f)
{
    rui_http_half **at = &f->http->halves;
    while (*at != f) {
        at = &(*at)->next;
    }
    *at = f->next;
    f->http->n_halves--;
    ru_loop_fd_off(f->http->opt.loop, f->inner);
    ru_loop_fd_off(f->http->opt.loop, f->real);
    close(f->inner);
    close(f->real);
    if (f->call != NULL) {
        f->call->half = NULL;
    } else if (f->http->opt.sent != NULL) {
        f->http->opt.sent(f->http->opt.self);
    }
    free(f);
}

static void lost(rui_http_half *f)
{
    rui_http_call *k = f->call;
    half_free(f);
    if (k != NULL) {
        rui_http_leave(k);
    }
}

static void on_inner(void *self, int fd, uint32_t events, ru_time now);

static void on_real(void *self, int fd, uint32_t events, ru_time now)
{
    (void)fd;
    (void)now;
    rui_http_half *f = self;
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
        lost(f);
        return;
    }
    while (f->at < f->n) {
        ssize_t n =
            send(f->real, f->bytes + f->at, (size_t)(f->n - f->at), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN) {
            lost(f);
            return;
        }
        if (n < 0) {
            break;
        }
        f->at += n;
    }
    bool waits = f->at < f->n; /* the end of the library's side would be told again and again */
    ru_loop *l = f->http->opt.loop;
    if (waits) {
        ru_loop_fd_off(l, f->inner);
    }
    if (ru_loop_fd(l, f->real, waits ? EPOLLOUT : 0, on_real, f, NULL) != RU_OK ||
        (!waits && ru_loop_fd(l, f->inner, EPOLLIN, on_inner, f, NULL) != RU_OK)) {
        lost(f);
    }
}

static void on_inner(void *self, int fd, uint32_t events, ru_time now)
{
    (void)events;
    rui_http_half *f = self;
    ssize_t n = recv(fd, f->bytes, BYTES, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        half_free(f); /* the library closed it: everything is on its way */
        return;
    }
    f->at = 0;
    f->n = n > 0 ? n : 0;
    on_real(f, f->real, 0, now);
}

/* What came before the end of its sending, and the library has not read. */
static bool carry_rest(rui_http_half *f, int real, int inner)
{
    ssize_t n;
    do {
        n = recv(real, f->bytes, BYTES, MSG_DONTWAIT);
    } while (n > 0 && send(inner, f->bytes, (size_t)n, MSG_NOSIGNAL) == n);
    return n == 0;
}

bool rui_http_half_open(rui_http_call *k, int fd)
{
    ru_http *h = k->http;
    if (h->n_halves >= h->opt.conns_max / 4) {
        return false;
    }
    int pair[2] = {-1, -1}, timeout_ms = (int)h->opt.silent_max_s * 1000;
    rui_http_half *f = malloc(sizeof *f);
    int real = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    bool ok = f != NULL && real >= 0 &&
              socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0;
    ru_loop_fd_off(h->opt.loop, fd); /* while it is the client's: another stands there soon */
    ok = ok && ru_loop_fd(h->opt.loop, pair[1], EPOLLIN, on_inner, f, NULL) == RU_OK;
    ok = ok && ru_loop_fd(h->opt.loop, real, 0, on_real, f, NULL) == RU_OK &&
         carry_rest(f, real, pair[1]) && dup3(pair[0], fd, O_CLOEXEC) == fd;
    if (pair[0] >= 0) {
        close(pair[0]);
    }
    if (!ok) {
        if (pair[1] >= 0) {
            ru_loop_fd_off(h->opt.loop, pair[1]);
            close(pair[1]);
        }
        if (real >= 0) {
            ru_loop_fd_off(h->opt.loop, real);
            close(real);
        }
        free(f);
        return false;
    }
    /* one that reads nothing of its last bytes */
    (void)setsockopt(real, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
    f->http = h;
    f->call = k;
    f->inner = pair[1];
    f->real = real;
    f->at = f->n = 0;
    f->next = h->halves;
    h->halves = k->half = f;
    h->n_halves++;
    return true;
}

void rui_http_half_end(rui_http_half *f)
{
    f->call = NULL;
    (void)shutdown(f->inner, SHUT_WR);
}

void rui_http_halves_free(ru_http *h)
{
    while (h->halves != NULL) {
        half_free(h->halves);
    }
}
#endif
