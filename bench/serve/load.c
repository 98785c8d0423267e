#include "bench/serve/load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/rng.h"
#include "base/str.h"
#include "env/clock.h"

enum { ANSWER_BYTES = 1 << 17, EVENTS = 64 };

typedef struct conn {
    int fd;
    bool busy, urgent;
    uint32_t kind;
    int64_t at_ns; /* scheduled */
    int64_t sent;
    int64_t n; /* of the answer */
    char answer[ANSWER_BYTES];
} conn;

typedef struct run {
    const rui_load *l;
    rui_load_out *out;
    ru_rng rng;
    int epoll;
    conn *conns;
    uint32_t *idle;
    uint32_t n_idle;
    int64_t from_ns, next_ns, end_ns; /* of the arrivals */
    uint32_t phase, given;            /* given: the next one */
    uint64_t asked;
    ru_err *err;
} run;

static ru_status lost_at(const char *address, const char *what, ru_err *err)
{
    return RU_FAIL(err, RU_E_PEER, "%s: %s: %s", address, what,
                   errno != 0 ? strerror(errno) : "the answer is not HTTP");
}

static ru_status lost(const run *r, const char *what)
{
    return lost_at(r->l->address, what, r->err);
}

ru_status rui_load_dial(const char *address, int *fd, ru_err *err)
{
    ru_str rest = ru_str_c(address), host;
    struct sockaddr_in to = {.sin_family = AF_INET};
    char text[64];
    int64_t port = 0;
    int one = 1;
    bool ok = ru_str_next(&rest, ':', &host) && ru_str_i64(rest, &port) && host.n < 60;
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_put_n(&t, host.p, ok ? host.n : 0);
    to.sin_port = htons((uint16_t)port);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!ok || inet_pton(AF_INET, text, &to.sin_addr) != 1 || *fd < 0 ||
        connect(*fd, (struct sockaddr *)&to, sizeof to) != 0) {
        return lost_at(address, "connect", err);
    }
    (void)setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return RU_OK;
}

static ru_status join(run *r, conn *c)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = (uint64_t)(c - r->conns)};
    RU_TRY(rui_load_dial(r->l->address, &c->fd, r->err));
    return epoll_ctl(r->epoll, EPOLL_CTL_ADD, c->fd, &ev) == 0 ? RU_OK : lost(r, "epoll");
}

static ru_status ask(run *r, conn *c, int64_t at_ns)
{
    const rui_load *l = r->l;
    c->urgent = l->urgent_of > 0 && r->asked++ % l->urgent_of == 0;
    r->out->sent++;
    c->busy = true;
    c->at_ns = at_ns;
    c->n = 0;
    const uint8_t *p = c->urgent ? l->urgent : l->request;
    int64_t n = c->urgent ? l->urgent_bytes : l->size_bytes;
    if (l->n_kinds > 0) {
        double weight[RUI_LOAD_KINDS];
        for (uint32_t k = 0; k < l->n_kinds; k++) {
            weight[k] = l->kinds[k].weight;
        }
        c->kind =
            l->given != NULL ? l->given[r->given].kind : ru_rng_pick(&r->rng, weight, l->n_kinds);
        p = l->kinds[c->kind].request;
        n = l->kinds[c->kind].size_bytes;
    }
    errno = 0;
    for (ssize_t put; n > 0; p += put, n -= put) { /* requests are smaller than socket buffers */
        put = send(c->fd, p, (size_t)n, MSG_NOSIGNAL);
        if (put < 0) {
            return lost(r, "send");
        }
    }
    return RU_OK;
}

static void judge(run *r, const conn *c, int64_t status)
{
    rui_load_out *o = r->out;
    int64_t took = ru_clock_now().ns - c->at_ns;
    bool late = r->l->promise_ns > 0 && took > r->l->promise_ns;
    uint64_t missed = late || status != 200 ? 1 : 0;
    o->of_kind[c->kind].n++;
    o->of_kind[c->kind].late += missed;
    if (r->l->window_s > 0) {
        double at = (double)(c->at_ns - r->from_ns) * 1e-9 / r->l->window_s;
        rui_load_count *w =
            &o->of_window[at < RUI_LOAD_WINDOWS ? (uint32_t)at : RUI_LOAD_WINDOWS - 1];
        w->n++;
        w->late += missed;
    }
    if (c->urgent) {
        o->urgent_ok += status == 200 ? 1 : 0;
        o->urgent_late += status == 200 && late ? 1 : 0;
        o->urgent_other += status == 200 ? 0 : 1;
        return;
    }
    if (status == 200) {
        ru_hist_add(&o->latency, took);
        o->ok++;
        o->late += late ? 1 : 0;
    } else if (status == 429 || status == 503) {
        o->full++;
    } else if (status == 504) {
        o->over++;
    } else {
        o->other++;
    }
}

/* Status of a whole answer; 0: more of it comes; -1: it is none. */
static int64_t status_of(const conn *c)
{
    ru_str head = ru_str_n(c->answer, c->n), line, word;
    int64_t end = ru_str_find(head, "\r\n\r\n"), status = 0, length = -1;
    if (end < 0) {
        return c->n < ANSWER_BYTES - 1 ? 0 : -1;
    }
    head.n = end;
    (void)ru_str_next(&head, '\n', &line);
    if (!ru_str_next(&line, ' ', &word) || !ru_str_next(&line, ' ', &word) ||
        !ru_str_i64(word, &status)) {
        return -1;
    }
    while (ru_str_next(&head, '\n', &line)) {
        if (line.n > 15 && strncasecmp(line.p, "content-length:", 15) == 0 &&
            !ru_str_i64(ru_str_trim(ru_str_from(line, 15)), &length)) {
            return -1;
        }
    }
    if (length < 0 && c->n >= end + 9) { /* in chunks: the last one is empty */
        return memcmp(&c->answer[c->n - 5], "0\r\n\r\n", 5) == 0 ? status : 0;
    }
    return length < 0 ? 0 : c->n >= end + 4 + length ? status : 0;
}

static ru_status hear(run *r, uint32_t which)
{
    conn *c = &r->conns[which];
    errno = 0;
    ssize_t got = recv(c->fd, c->answer + c->n, (size_t)(ANSWER_BYTES - 1 - c->n), MSG_DONTWAIT);
    if (got <= 0) {
        return got < 0 && errno == EAGAIN ? RU_OK
               : got < 0                  ? lost(r, "recv")
                         : RU_FAIL(r->err, RU_E_PEER, "%s closed a connection that is in use",
                                   r->l->address);
    }
    c->n += got;
    int64_t status = status_of(c);
    if (status < 0) {
        errno = 0;
        return lost(r, "recv");
    }
    if (status > 0 && c->busy) {
        judge(r, c, status);
        c->busy = false;
        r->idle[r->n_idle++] = which;
    }
    return RU_OK;
}

static int64_t given_ns(const run *r)
{
    const rui_load *l = r->l;
    double after_s = r->given < l->n_given ? l->given[r->given].at_s - l->given_from_s : 1e9;
    return r->from_ns + (int64_t)(after_s * 1e9);
}

/* Arrivals until now go to connections that are idle. */
static ru_status arrive(run *r)
{
    const rui_load *l = r->l;
    int64_t now = ru_clock_now().ns;
    while (r->n_idle > 0 && now < r->end_ns && (l->per_s == 0 || r->next_ns <= now)) {
        int64_t at = l->per_s == 0 ? now : r->next_ns;
        RU_TRY(ask(r, &r->conns[r->idle[--r->n_idle]], at));
        if (l->given != NULL) {
            r->given++;
            r->next_ns = given_ns(r);
        } else if (l->per_s > 0 && l->arrivals != NULL) {
            r->next_ns += (int64_t)(ru_markov_draw(l->arrivals, &r->rng, &r->phase) * 1e9);
        } else if (l->per_s > 0) {
            double u = ru_rng_f64(&r->rng);
            r->next_ns += (int64_t)(-log(1 - u) / l->per_s * 1e9);
        }
    }
    return RU_OK;
}

static ru_status turn(run *r)
{
    struct epoll_event events[EVENTS];
    int64_t wait = r->l->per_s > 0 && r->n_idle > 0 ? r->next_ns - ru_clock_now().ns : 10000000;
    wait = wait < 0 ? 0 : wait > 10000000 ? 10000000 : wait;
    struct timespec ts = {.tv_nsec = wait};
    int n = epoll_pwait2(r->epoll, events, EVENTS, &ts, NULL);
    for (int k = 0; k < n; k++) {
        RU_TRY(hear(r, (uint32_t)events[k].data.u64));
    }
    return arrive(r);
}

/* One answer to each connection, which does not count: the server has let in all that came before.
 */
static ru_status greet(run *r)
{
    int64_t until = ru_clock_now().ns + INT64_C(60000000000);
    while (r->n_idle > 0) {
        RU_TRY(ask(r, &r->conns[r->idle[--r->n_idle]], ru_clock_now().ns));
    }
    while (r->n_idle < r->l->conns && ru_clock_now().ns < until) {
        RU_TRY(turn(r)); /* no arrivals: the end of all of them is 0 */
    }
    *r->out = (rui_load_out){0};
    return r->n_idle == r->l->conns
               ? RU_OK
               : RU_FAIL(r->err, RU_E_PEER, "%s does not answer", r->l->address);
}

ru_status rui_load_run(const rui_load *l, rui_load_out *out, ru_err *err)
{
    run r = {
        .l = l, .out = out, .rng = ru_rng_from(l->seed, 1), .epoll = epoll_create1(0), .err = err};
    *out = (rui_load_out){0};
    r.conns = calloc(l->conns, sizeof *r.conns);
    r.idle = calloc(l->conns, sizeof *r.idle);
    ru_status st = r.conns != NULL && r.idle != NULL && r.epoll >= 0
                       ? RU_OK
                       : RU_FAIL(err, RU_E_MEM, "no memory for %u connections", l->conns);
    int *silent = calloc(l->silent + 1, sizeof *silent);
    uint32_t opened = 0, n_silent = 0;
    st = silent != NULL ? st : RU_FAIL(err, RU_E_MEM, "no memory for %u connections", l->silent);
    while (st == RU_OK && n_silent < l->silent) {
        st = rui_load_dial(l->address, &silent[n_silent++], err);
    }
    while (st == RU_OK && opened < l->conns) {
        st = join(&r, &r.conns[opened]);
        r.idle[r.n_idle++] = opened++;
    }
    st = st == RU_OK && l->greets ? greet(&r) : st;
    int64_t from = ru_clock_now().ns;
    r.from_ns = r.next_ns = from;
    r.end_ns = from + (int64_t)(l->seconds * 1e9);
    while (l->given != NULL && r.given < l->n_given && l->given[r.given].at_s < l->given_from_s) {
        r.given++;
    }
    r.next_ns = l->given != NULL ? given_ns(&r) : r.next_ns;
    while (st == RU_OK && (ru_clock_now().ns < r.end_ns || r.n_idle < l->conns)) {
        st = turn(&r);
        if (ru_clock_now().ns > r.end_ns + (l->patience_s > 0 ? l->patience_s : 5) * 1000000000) {
            break;
        }
    }
    out->seconds = (double)(ru_clock_now().ns - from) * 1e-9;
    for (uint32_t k = 0; k < opened; k++) {
        if (r.conns[k].fd >= 0) {
            close(r.conns[k].fd);
        }
    }
    while (n_silent > 0) {
        close(silent[--n_silent]);
    }
    if (r.epoll >= 0) {
        close(r.epoll);
    }
    free(silent);
    free(r.conns);
    free(r.idle);
    return st;
}
