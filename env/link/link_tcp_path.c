/* What a path needs of its socket: how much the kernel may hold, and its congestion control.
 *
 * A path is short while its round trip takes at most 2 ms. There the send buffer bounds what is on
 * its way, so congestion control has little to do, and what it remembers does harm: BBR paces by
 * the rates it saw last. On an urgent connection it saw single small frames and late
 * acknowledgements (a burst of 64 KiB then left at 4 to 18 MB/s: up to 16 ms instead of 0.6); on a
 * bulk connection whose partner comes and goes with the rounds of a collective it saw the pauses.
 * So BBR gets what it is for: bulk on long paths, whose queues the send buffer does not bound. */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>

#include "base/log.h"
#include "env/link/link_tcp_impl.h"

enum {
    SHORT_PATH_US = 2000,
    MIDDLE_PATH_US = 500,
    MIDDLE_BYTES = 256 << 10,
    MIDDLE_ALL_BYTES = 1 << 20, /* of all busy connections */
    RATE_SPAN_US = 10000,       /* the kernel counts busy time in ticks of 1 to 10 ms */
    DEEP_QUEUE_NS = 10000000,   /* who lets so much wait has nothing urgent: the kernel bounds */
};

static void set_int(int fd, int level, int name, int64_t value)
{
    int v = value > INT32_MAX ? INT32_MAX : (int)value;
    (void)setsockopt(fd, level, name, &v, sizeof v); /* all of them are advice */
}

/* ---- congestion control ---- */

/* Not everybody may choose cubic; reno anybody may. On short paths reno: its slow start ends only
 * with a loss, cubic's ends with the first delay, which a busy host makes itself. */
static const char *const calm[] = {"reno", NULL};
static const char *const modelling[] = {"bbr", "cubic", NULL};

const char *const *rui_path_congestion(ru_link_class class, int64_t rtt_min_us)
{
    bool is_long = class == RU_LINK_BULK && rtt_min_us > SHORT_PATH_US;
    return is_long ? modelling : calm;
}

static bool set_congestion(int fd, const char *name)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

void rui_socket_congestion(ru_link_tcp *l, int fd, const char *name)
{
    if (name[0] != '\0' && !set_congestion(fd, name) && !l->told_congestion) {
        l->told_congestion = true;
        ru_log(RU_LOG_WARN, "env", "congestion_absent",
               "the kernel does not offer TCP congestion control '%s': %s; Rubato uses the default",
               name, strerror(errno));
    }
}

void rui_socket_begin(ru_link_tcp *l, int fd, ru_link_class class)
{
    if (l->opt.congestion[class] != NULL) {
        rui_socket_congestion(l, fd, l->opt.congestion[class]);
    } else {
        (void)set_congestion(fd, rui_path_congestion(class, 0)[0]);
    }
}

static bool path_facts(const rui_conn *c, struct tcp_info *info)
{
    socklen_t size = sizeof *info;
    memset(info, 0, sizeof *info);
    return getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, info, &size) == 0;
}

void rui_socket_path(rui_conn *c)
{
    struct tcp_info info;
    if (c->congestion_planned || c->link->opt.congestion[c->class] != NULL ||
        !path_facts(c, &info)) {
        return;
    }
    /* Of the handshake: a fresh connection has no smallest one yet. */
    int64_t rtt_us = info.tcpi_min_rtt < info.tcpi_rtt ? info.tcpi_min_rtt : info.tcpi_rtt;
    const char *const *name = rui_path_congestion(c->class, rtt_us);
    bool as_begun = strcmp(name[0], rui_path_congestion(c->class, 0)[0]) == 0;
    while (!as_begun && *name != NULL && !set_congestion(c->fd, *name)) {
        name++;
    }
}

/* ---- what the kernel holds ---- */

void rui_socket_notsent(rui_conn *c, int64_t bytes)
{
    c->notsent_bytes = bytes;
    set_int(c->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes);
}

bool rui_path_rate(rui_path *p, int64_t acked_bytes, int64_t busy_us)
{
    int64_t span_us = busy_us - p->busy_us, got = acked_bytes - p->acked_bytes;
    if (span_us < RATE_SPAN_US) {
        return false;
    }
    double rate = (double)got * 1e6 / (double)span_us;
    p->bytes_per_s = p->bytes_per_s > 0 ? 0.5 * (p->bytes_per_s + rate) : rate;
    p->acked_bytes = acked_bytes;
    p->busy_us = busy_us;
    return true;
}

/* What is on its way stands in queues that nobody can reorder. The kernel doubles the bound and
 * takes the next chunk once a third is free: three quarters of a window let in a chunk when one
 * that is being sent is left, which keeps a short path busy. 1 Gbit/s, a window of 64 KiB: 119.3 of
 * 119.5 MB/s, and a small message beside them waits 0.30 ms at the median; with one and a half
 * windows the same rate and 0.85 ms; beside bulk to four hosts 64 KiB take 1.07 instead of 1.52 ms.
 * On paths between a half and two milliseconds that starves the link: acknowledgements come late,
 * and so does the process that writes; in samples a connection of a single sum waited for room up
 * to 24 % of its busy time, in many of them far less. There it is 256 KiB, also where several
 * connections share a window, and 1 MiB for all of them, since it goes before urgent messages and
 * is memory of the kernel for each of a thousand connections. Four hosts, 200 Mbit/s, a third of a
 * millisecond each way: a step of vgg16 with two sums takes 0.88 s instead of 1.03.
 * Long paths are left to the kernel, which needs room for its estimate to grow; and so are links
 * whose user lets 10 ms and more wait: where the other way of the line is full, acknowledgements
 * stand in its queue many times as long as the shortest round trip. */
int64_t rui_sndbuf_bytes(int64_t window_bytes, uint32_t n_active, int64_t rtt_min_us,
                         double bytes_per_s)
{
    double on_path = 1.5e-6 * (double)rtt_min_us * bytes_per_s;
    int64_t want = window_bytes - window_bytes / 4;
    int64_t least = MIDDLE_ALL_BYTES / (n_active > 0 ? n_active : 1);
    least = least < MIDDLE_BYTES ? least : MIDDLE_BYTES;
    want = rtt_min_us > MIDDLE_PATH_US && want < least ? least : want;
    return on_path < 1e9 && (int64_t)on_path > want ? (int64_t)on_path : want;
}

void rui_socket_sndbuf(rui_conn *c)
{
    struct tcp_info info;
    if (!path_facts(c, &info)) {
        return;
    }
    (void)rui_path_rate(&c->path, (int64_t)info.tcpi_bytes_acked, (int64_t)info.tcpi_busy_time);
    if (c->sndbuf_planned || c->link->opt.queue_ns >= DEEP_QUEUE_NS ||
        (c->sndbuf_bytes == 0 && info.tcpi_min_rtt > SHORT_PATH_US)) {
        return;
    }
    int64_t want = rui_sndbuf_bytes(c->notsent_bytes, c->link->n_active, info.tcpi_min_rtt,
                                    c->path.bytes_per_s);
    int64_t off = want - c->sndbuf_bytes;
    if (off > want / 8 || off < -want / 8) {
        c->sndbuf_bytes = want;
        set_int(c->fd, SOL_SOCKET, SO_SNDBUF, want); /* doubled by the kernel for its records */
    }
}
