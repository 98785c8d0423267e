/* Sending: one frame is pulled at a time, when the kernel holds little that it has not sent.
 *
 * The kernel's send buffer is a queue that nobody can reorder, so it is kept short: a bulk
 * connection has room while less than `notsent` bytes wait in it, and gives the turn back to the
 * loop after each frame, so that between two chunks anything more urgent comes first (draining a
 * socket until EAGAIN would undo the limit). An urgent connection sends what there is. */
#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>

#include "env/link/link_tcp_impl.h"

enum {
    URGENT_FRAMES_PER_TURN = 64,
    SMALL_FRAME = 4096,
    BULK_FRAMES_PER_TURN = 1,
    FRAMES_TO_SHARE = 32
};
enum {
    QUEUE_NS = 500000,
    WINDOW_BASE = RUI_NOTSENT_BYTES,
    WINDOW_MIN = 16 << 10,
    WINDOW_MAX = 4 << 20
};

static bool room(const rui_conn *c)
{
    if (c->class == RU_LINK_URGENT || c->notsent_bytes == 0) {
        return true;
    }
    int unsent = 0;
    return ioctl(c->fd, SIOCOUTQNSD, &unsent) != 0 || unsent < c->notsent_bytes;
}

int64_t rui_window_bytes(double rate_bytes_per_s, int64_t queue_ns, uint32_t n_active)
{
    double all = rate_bytes_per_s * (double)(queue_ns > 0 ? queue_ns : QUEUE_NS) / 1e9;
    all = all < WINDOW_BASE ? WINDOW_BASE : all > WINDOW_MAX ? WINDOW_MAX : all;
    int64_t each = (int64_t)all / (n_active > 0 ? n_active : 1);
    return each < WINDOW_MIN ? WINDOW_MIN : each;
}

/* The interface's queue is shared: queue_ns of what all busy connections deliver, at least BASE,
 * is split among them, so that the most urgent chunk is never behind more than that, whoever it
 * goes to. */
static void share_window(ru_link_tcp *l, rui_conn *c)
{
    double rate = 0;
    for (uint32_t k = 0; k < l->conns_used; k++) {
        const rui_conn *other = &l->conns[k];
        rate += other->state == RUI_CONN_UP && other->active ? other->path.bytes_per_s : 0;
    }
    int64_t want = rui_window_bytes(rate, l->opt.queue_ns, l->n_active);
    int64_t off = want - c->notsent_bytes;
    if (off > want / 8 || off < -want / 8) {
        rui_socket_notsent(c, want);
    }
    rui_socket_sndbuf(c);
    c->shared_among = l->n_active;
}

static void active(ru_link_tcp *l, rui_conn *c, bool yes)
{
    if (c->active != yes && c->class == RU_LINK_BULK) {
        c->active = yes;
        l->n_active += yes ? 1 : UINT32_MAX;
    }
    if (yes && c->class == RU_LINK_BULK && !c->notsent_planned &&
        (++c->frames % FRAMES_TO_SHARE == 0 || c->shared_among != l->n_active)) {
        share_window(l, c);
    }
}

static bool pull(ru_link_tcp *l, rui_conn *c, ru_time now)
{
    int64_t room_bytes =
        c->class == RU_LINK_BULK && c->notsent_bytes > 0 ? c->notsent_bytes : RU_LINK_FRAME_MAX;
    ru_conn_id id = c->id;
    c->tx.n_spans = 0;
    l->in_upcall++;
    bool some = l->user->pull(l->user->self, id, room_bytes, &c->tx, now);
    l->in_upcall--;
    if (!rui_conn_alive(c, id)) {
        return false;
    }
    if (!some) {
        active(l, c, false);
        return false;
    }
    RU_CHECK(c->tx.n_spans <= RU_LINK_SPANS_MAX);
    c->tx_done = 0;
    c->tx_size = RU_LINK_HEAD_BYTES;
    for (uint32_t k = 0; k < c->tx.n_spans; k++) {
        c->tx_size += c->tx.spans[k].size_bytes;
    }
    RU_CHECK(c->tx_size <= RU_LINK_FRAME_MAX + RU_LINK_HEAD_BYTES);
    c->tx_busy = true;
    active(l, c, true);
    return true;
}

static uint32_t plan_write(rui_conn *c, struct iovec *iov)
{
    uint32_t n = 0;
    int64_t skip = c->tx_done;
    if (skip < RU_LINK_HEAD_BYTES) {
        iov[n++] = (struct iovec){c->tx.head + skip, (size_t)(RU_LINK_HEAD_BYTES - skip)};
        skip = RU_LINK_HEAD_BYTES;
    }
    skip -= RU_LINK_HEAD_BYTES;
    for (uint32_t k = 0; k < c->tx.n_spans; k++) {
        int64_t size = c->tx.spans[k].size_bytes;
        if (skip >= size) {
            skip -= size;
            continue;
        }
        iov[n++] = (struct iovec){(uint8_t *)c->tx.spans[k].data + skip, (size_t)(size - skip)};
        skip = 0;
    }
    return n;
}

static ssize_t write_some(rui_conn *c, struct iovec *iov, uint32_t n)
{
    if (c->tls != NULL && !rui_tls_kernel(c->tls)) {
        return rui_tls_send(c->tls, iov, n);
    }
    /* An end of record is what the kernel does not cork: else the tail of an urgent frame waits
     * until the packet before it has left the interface's queue, then stands behind all that came
     * in between (64 KiB beside bulk to four hosts at 1 Gbit/s: 0.5 ms of 1.6). */
    int end = c->class == RU_LINK_URGENT && c->tls == NULL ? MSG_EOR : 0;
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
    ssize_t put;
    do {
        put = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL | end);
    } while (put < 0 && errno == EINTR);
    return put;
}

/* Bytes that were taken; 0: none now, or the connection failed or is only to be read. */
static int64_t offer(ru_link_tcp *l, rui_conn *c, struct iovec *iov, uint32_t n)
{
    ssize_t put = write_some(c, iov, n);
    if (put >= 0) {
        return put;
    }
    int e = errno;
    if (e == EPIPE || e == ECONNRESET) {
        /* The other side may have said why before it closed: what it sent is read first, the end
         * of the stream follows there. */
        c->tx_busy = false;
        c->tx_size = -1;
    } else if (e != EAGAIN && e != EWOULDBLOCK && e != ENOBUFS) {
        rui_conn_fail(l, c, rui_socket_why(e), "%s: %s", c->address, strerror(e));
    }
    return 0;
}

/* Hand over what is left of the frame. true: all of it. */
static bool push(ru_link_tcp *l, rui_conn *c)
{
    struct iovec iov[RU_LINK_SPANS_MAX + 1];
    while (c->tx_done < c->tx_size) {
        uint32_t n = plan_write(c, iov);
        int64_t put = offer(l, c, iov, n);
        c->tx_done += put;
        if (put == 0 || (c->tx_done < c->tx_size && c->tls == NULL)) {
            return false; /* the kernel took what it wanted: asking again only hears EAGAIN */
        }
    }
    c->tx_busy = false;
    c->sent[c->n_sent++] = c->tx.cookie;
    return true;
}

/* Small urgent frames that are there together leave together: copied behind each other, one system
 * call (64 requests at a time over loopback: twice the rate). */
static bool gather(rui_conn *c)
{
    if (c->class != RU_LINK_URGENT || c->tx_done > 0 || c->tx_size > SMALL_FRAME ||
        c->tx_size > RUI_OUT_BYTES - c->out_end) {
        return false;
    }
    memcpy(c->out + c->out_end, c->tx.head, RU_LINK_HEAD_BYTES);
    c->out_end += RU_LINK_HEAD_BYTES;
    for (uint32_t k = 0; k < c->tx.n_spans; k++) {
        const ru_span *span = &c->tx.spans[k];
        if (span->size_bytes > 0) {
            memcpy(c->out + c->out_end, span->data, (size_t)span->size_bytes);
            c->out_end += (uint32_t)span->size_bytes;
        }
    }
    c->sent[c->n_sent + c->n_gathered++] = c->tx.cookie;
    c->tx_busy = false;
    return true;
}

static bool push_gathered(ru_link_tcp *l, rui_conn *c)
{
    while (c->out_at < c->out_end) {
        struct iovec iov = {c->out + c->out_at, c->out_end - c->out_at};
        int64_t put = offer(l, c, &iov, 1);
        if (put == 0) {
            return false;
        }
        c->out_at += (uint32_t)put;
    }
    c->out_at = c->out_end = 0;
    c->n_sent += c->n_gathered;
    c->n_gathered = 0;
    return true;
}

static void blocked(ru_link_tcp *l, rui_conn *c, bool yes)
{
    c->tx_blocked = yes;
    rui_conn_events(l, c, c->rx_state != RUI_RX_PAUSED, yes);
}

/* What is at hand, then frame by frame. true: there may be more; else it is blocked or dry. */
static bool send_frames(ru_link_tcp *l, rui_conn *c, uint32_t turns, ru_time now)
{
    ru_conn_id id = c->id;
    bool dry = false;
    bool clear = push_gathered(l, c) && (!c->tx_busy || push(l, c));
    for (uint32_t k = 0; clear && k < turns && c->n_sent + c->n_gathered < RUI_SENT_MAX; k++) {
        if (!room(c)) {
            clear = false;
            break;
        }
        dry = !pull(l, c, now);
        if (!rui_conn_alive(c, id)) {
            return false;
        }
        if (dry) {
            break;
        }
        if (!gather(c)) {
            clear = push_gathered(l, c) && push(l, c);
        }
    }
    clear = push_gathered(l, c) && clear;
    if (rui_conn_alive(c, id) && (dry || !clear)) {
        blocked(l, c, !clear && c->tx_size >= 0);
    }
    return clear && !dry;
}

void rui_tx_run(ru_link_tcp *l, rui_conn *c, ru_time now)
{
    if (c->tx_size < 0) { /* broken: only reading is left */
        blocked(l, c, false);
        return;
    }
    c->woken = false;
    uint32_t turns = c->class == RU_LINK_URGENT ? URGENT_FRAMES_PER_TURN : BULK_FRAMES_PER_TURN;
    if (send_frames(l, c, turns, now) && !c->tx_blocked) {
        /* After what else is ready, without epoll's help. */
        c->woken = true;
        rui_conn_defer(l, c);
    }
}
