/* Receiving: one recvmsg fills the rest of a payload and the next header.
 *
 *   socket --> [ rest of the payload: where the user said | stage: next header(s) ]
 *
 * Behind a large payload the stage takes only the next header, so that large payloads following
 * each other are never copied; behind small ones it takes what there is, so that a burst of
 * messages costs one system call. A read that comes back short has emptied the socket: no second
 * one is made to hear EAGAIN. */
#include <errno.h>
#include <string.h>

#include "env/link/link_tcp_impl.h"

enum { READS_PER_TURN = 8 };

/* The user was asked for the place of (the next part of) the payload. true: go on. */
static bool ask(ru_link_tcp *l, rui_conn *c, ru_time now)
{
    ru_conn_id id = c->id;
    ru_link_rx rx = {.n_spans = 0};
    l->in_upcall++;
    ru_status st = l->user->head(l->user->self, id, c->head, &rx, now);
    l->in_upcall--;
    if (!rui_conn_alive(c, id)) {
        return false;
    }
    if (st == RU_E_AGAIN) {
        c->rx_state = RUI_RX_PAUSED;
        rui_conn_events(l, c, false, c->tx_blocked);
        return false;
    }
    if (st != RU_OK) {
        rui_conn_fail(l, c, st, "%s: the other side sent a frame that was refused", c->address);
        return false;
    }
    RU_CHECK(rx.n_spans <= RU_LINK_SPANS_MAX && (rx.n_spans > 0 || !rx.more));
    c->rx = rx;
    c->rx_span = 0;
    c->rx_at = c->rx_left = 0;
    for (uint32_t k = 0; k < rx.n_spans; k++) {
        RU_CHECK(rx.spans[k].size_bytes >= 0);
        c->rx_left += rx.spans[k].size_bytes;
    }
    c->rx_frame = c->rx_left;
    c->rx_state = RUI_RX_BODY;
    return true;
}

static void advance(rui_conn *c, int64_t n)
{
    c->rx_left -= n;
    c->rx_at += n;
    while (c->rx_span < c->rx.n_spans && c->rx_at >= c->rx.spans[c->rx_span].size_bytes) {
        c->rx_at -= c->rx.spans[c->rx_span++].size_bytes;
    }
}

/* Payload bytes that came with the header. */
static void place_staged(rui_conn *c)
{
    while (c->rx_left > 0 && c->stage_at < c->stage_end) {
        const ru_span *s = &c->rx.spans[c->rx_span];
        int64_t n = s->size_bytes - c->rx_at, have = c->stage_end - c->stage_at;
        n = n < have ? n : have;
        if (n > 0) {
            memcpy((uint8_t *)s->data + c->rx_at, c->stage + c->stage_at, (size_t)n);
        }
        c->stage_at += (uint32_t)n;
        advance(c, n);
    }
}

static bool finish(ru_link_tcp *l, rui_conn *c, ru_time now)
{
    if (c->rx.more) {
        return ask(l, c, now);
    }
    ru_conn_id id = c->id;
    c->rx_state = RUI_RX_HEAD;
    l->in_upcall++;
    ru_status st = l->user->body(l->user->self, id, now);
    l->in_upcall--;
    if (!rui_conn_alive(c, id)) {
        return false;
    }
    if (st != RU_OK) {
        rui_conn_fail(l, c, st, "%s: the other side sent a frame that was refused", c->address);
        return false;
    }
    return true;
}

/* Understand what is staged, until more bytes are needed. false: paused or ended. */
static bool digest(ru_link_tcp *l, rui_conn *c, ru_time now)
{
    for (;;) {
        if (c->rx_state == RUI_RX_PAUSED) {
            return false;
        }
        if (c->rx_state == RUI_RX_BODY) {
            place_staged(c);
            if (c->rx_left > 0) {
                return true;
            }
            if (!finish(l, c, now)) {
                return false;
            }
            continue;
        }
        if (c->stage_end - c->stage_at < RU_LINK_HEAD_BYTES) {
            return true;
        }
        memcpy(c->head, c->stage + c->stage_at, RU_LINK_HEAD_BYTES);
        c->stage_at += RU_LINK_HEAD_BYTES;
        if (!ask(l, c, now)) {
            return false;
        }
    }
}

/* An urgent frame of up to 8 KiB comes with one read; of bulk little is copied. */
static uint32_t stage_room(const rui_conn *c)
{
    uint32_t size = c->class == RU_LINK_BULK ? RUI_STAGE_BULK_BYTES : RUI_STAGE_BYTES;
    return size - c->stage_end;
}

/* Where the next bytes go: the rest of the payload, then the stage. */
static uint32_t plan_read(rui_conn *c, struct iovec *iov, int64_t *want)
{
    uint32_t n = 0;
    if (c->stage_at > 0) {
        memmove(c->stage, c->stage + c->stage_at, c->stage_end - c->stage_at);
        c->stage_end -= c->stage_at;
        c->stage_at = 0;
    }
    *want = 0;
    if (c->rx_state == RUI_RX_BODY) {
        int64_t skip = c->rx_at;
        for (uint32_t k = c->rx_span; k < c->rx.n_spans; k++, skip = 0) {
            int64_t size = c->rx.spans[k].size_bytes - skip;
            iov[n++] = (struct iovec){(uint8_t *)c->rx.spans[k].data + skip, (size_t)size};
            *want += size;
        }
    }
    if (c->rx_state == RUI_RX_BODY && c->rx.more) {
        return n;
    }
    uint32_t stage = c->rx_state == RUI_RX_BODY && c->rx_frame > RUI_SMALL_BYTES
                         ? RU_LINK_HEAD_BYTES
                         : stage_room(c);
    iov[n++] = (struct iovec){c->stage + c->stage_end, stage};
    *want += stage;
    return n;
}

/* The kernel stamps by the wall clock when the network interface hands it a packet: how long ago
 * that was is the same by any clock. */
ssize_t rui_rx_stamped(rui_conn *c, struct msghdr *m, int flags)
{
    const int64_t old_ns = 1000000000; /* the wall clock was set meanwhile, or nobody read */
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct timespec))];
    } control;
    m->msg_control = control.bytes;
    m->msg_controllen = sizeof control.bytes;
    ssize_t got = recvmsg(c->fd, m, flags);
    c->rx_stamp_ns = 0;
    if (got <= 0) {
        return got;
    }
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h != NULL; h = CMSG_NXTHDR(m, h)) {
        struct timespec at;
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_TIMESTAMPNS) {
            memcpy(&at, CMSG_DATA(h), sizeof at);
            int64_t ago = ru_clock_wall_ns() - ((int64_t)at.tv_sec * 1000000000 + at.tv_nsec);
            c->rx_stamp_ns = ago >= 0 && ago < old_ns ? ru_clock_now().ns - ago : 0;
        }
    }
    return got;
}

static ssize_t read_some(rui_conn *c, struct iovec *iov, uint32_t n, bool first)
{
    if (c->tls != NULL) {
        return rui_tls_recv(c->tls, iov, n, first);
    }
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
    ssize_t got;
    do {
        got = c->class == RU_LINK_URGENT ? rui_rx_stamped(c, &m, MSG_DONTWAIT)
                                         : recvmsg(c->fd, &m, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got;
}

void rui_rx_run(ru_link_tcp *l, rui_conn *c, ru_time now)
{
    ru_conn_id id = c->id;
    struct iovec iov[RU_LINK_SPANS_MAX + 1];
    for (uint32_t turn = 0; turn < READS_PER_TURN; turn++) {
        if (!digest(l, c, now)) {
            return;
        }
        int64_t want;
        uint32_t n = plan_read(c, iov, &want);
        ssize_t got = read_some(c, iov, n, turn == 0);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (got <= 0) {
            int e = errno;
            rui_conn_fail(l, c, got == 0 ? RU_E_PEER : rui_socket_why(e), "%s: %s", c->address,
                          got == 0 ? "the other side closed the connection" : strerror(e));
            return;
        }
        int64_t placed = got < c->rx_left ? got : c->rx_left;
        if (c->rx_state == RUI_RX_BODY) {
            advance(c, placed);
        } else {
            placed = 0;
        }
        c->stage_end += (uint32_t)(got - placed);
        if (got < want && (c->tls == NULL || !rui_tls_holds(c->tls))) {
            (void)digest(l, c, now);
            return;
        }
    }
    if (digest(l, c, now) && rui_conn_alive(c, id) && c->tls != NULL && rui_tls_holds(c->tls)) {
        c->again = true; /* no event tells of bytes that are decrypted already */
        rui_conn_defer(l, c);
    }
}

void rui_rx_resume(ru_link_tcp *l, rui_conn *c, ru_time now)
{
    if (ask(l, c, now)) {
        rui_conn_events(l, c, true, c->tx_blocked);
        rui_rx_run(l, c, now);
    }
}

void rui_rx_redirect(rui_conn *c, const ru_link_rx *rx)
{
    if (c->rx_state != RUI_RX_BODY) {
        return;
    }
    int64_t total = 0, got = c->rx_frame - c->rx_left;
    for (uint32_t k = 0; k < rx->n_spans; k++) {
        total += rx->spans[k].size_bytes;
    }
    RU_CHECK(total == c->rx_frame && rx->n_spans <= RU_LINK_SPANS_MAX);
    c->rx = *rx;
    c->rx_span = 0;
    c->rx_at = 0;
    c->rx_left = total;
    advance(c, got);
}
