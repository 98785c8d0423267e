/* Inside of the TCP links.
 *
 *   link_tcp.c        connections and their lives, what users call, deferred upcalls
 *   link_tcp_addr.c   addresses, names, socket options
 *   link_tcp_path.c   what the kernel may hold, congestion control
 *   link_tcp_rx.c     receiving: stage -> head -> spans -> body
 *   link_tcp_tx.c     sending: room -> pull -> sendmsg -> sent
 *   link_tls.c        TLS 1.3
 *
 * Upcalls may close any connection, their own included, and the slot may be used again at once:
 * whoever made an upcall compares the generation before it goes on (rui_conn_alive).
 *
 * Thread: loop only. */
#ifndef RU_ENV_LINK_TCP_IMPL_H
#define RU_ENV_LINK_TCP_IMPL_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "env/link/link_tcp.h"
#include "env/link/refusal.h"

enum {
    RUI_STAGE_BYTES = 12 << 10, /* what is read before its header was understood: bounced */
    RUI_STAGE_BULK_BYTES = 4096,
    RUI_SMALL_BYTES = 16 << 10, /* behind larger payloads only the next header is read */
    RUI_SENT_MAX = 128,         /* frames handed over and not yet told */
    RUI_OUT_BYTES = 8192,       /* small frames that leave together */
    RUI_ADDRESS_MAX = RU_LINK_TCP_ADDRESS_MAX,
    RUI_NOTSENT_BYTES = 64 << 10, /* bulk, until a rate is known */
};

typedef enum rui_conn_state {
    RUI_CONN_FREE,
    RUI_CONN_NAMING,     /* the name is being looked up */
    RUI_CONN_CONNECTING, /* TCP */
    RUI_CONN_TLS,        /* handshake */
    RUI_CONN_OPENED,     /* stands, not yet told */
    RUI_CONN_UP,
    RUI_CONN_FAILED, /* not yet told */
} rui_conn_state;

typedef enum rui_rx_state { RUI_RX_HEAD, RUI_RX_BODY, RUI_RX_PAUSED } rui_rx_state;

typedef struct rui_tls rui_tls;           /* of a connection */
typedef struct rui_tls_host rui_tls_host; /* of a link */

/* What a connection delivers while it is busy. */
typedef struct rui_path {
    int64_t acked_bytes, busy_us; /* at the last sample, since it opened */
    double bytes_per_s;           /* 0: not known */
} rui_path;

typedef struct rui_conn {
    ru_conn_id id;
    ru_link_tcp *link;
    rui_conn_state state;
    int fd; /* -1: none */
    uint32_t events;
    ru_link_class class;
    bool accepted, told; /* told: the user saw it open */
    ru_time since;       /* accepted */
    char address[RUI_ADDRESS_MAX];
    rui_tls *tls; /* NULL: plain */

    /* Deferred; `next` is the link's list of connections with something to tell or do. */
    bool listed, woken, resumed, again;
    struct rui_conn *next;
    ru_status why; /* FAILED */
    char sentence[256];
    uint64_t sent[RUI_SENT_MAX];
    uint32_t n_sent, n_gathered; /* told next; waiting in `out`, behind those */

    /* Sending. */
    ru_link_tx tx;
    bool tx_busy, tx_blocked;
    int64_t tx_done, tx_size; /* header included */
    uint32_t out_at, out_end; /* gathered bytes not handed over */
    int64_t notsent_bytes;    /* 0: no bound of ours */
    bool notsent_planned;     /* by knobs; else it follows the frames */
    bool sndbuf_planned, congestion_planned;
    int64_t sndbuf_bytes; /* 0: the kernel's own choice */
    bool active;          /* had something to send when it was asked last */
    rui_path path;
    uint32_t shared_among; /* n_active when its window was set */
    uint32_t frames;

    /* Receiving. */
    rui_rx_state rx_state;
    uint8_t head[RU_LINK_HEAD_BYTES];
    ru_link_rx rx;
    uint32_t rx_span;    /* first span that is not full */
    int64_t rx_at;       /* bytes in it */
    int64_t rx_left;     /* bytes of this part still to come */
    int64_t rx_frame;    /* payload of this part */
    int64_t rx_stamp_ns; /* kernel's, of the last bytes; 0: not known */
    uint32_t stage_at, stage_end;
    uint8_t stage[RUI_STAGE_BYTES]; /* from here on not cleared for a new life */
    uint8_t out[RUI_OUT_BYTES];
} rui_conn;

typedef struct rui_name_job rui_name_job; /* a lookup under way */

struct ru_link_tcp {
    ru_link_tcp_options opt;
    const ru_link_user *user;
    int listen_fd;
    char address[RUI_ADDRESS_MAX];
    rui_conn *conns; /* [conns_max]; at or beyond conns_used: never used */
    uint32_t conns_used, n_active;
    uint32_t *free; /* [n_free] stack of unused indexes */
    uint32_t n_free;
    uint32_t in_upcall;
    rui_conn *todo; /* list by rui_conn.next */
    rui_conn *todo_last;
    rui_tls_host *tls;
    rui_name_job *names; /* all under way */
    uint32_t waker;
    bool has_waker;
    ru_refusals refusals;
    ru_time rested; /* when it last said that newcomers wait */
    bool told_congestion;
};

/* link_tcp.c */
static inline bool rui_conn_alive(const rui_conn *c, ru_conn_id id)
{
    return c->id.v == id.v && c->state == RUI_CONN_UP;
}
void rui_conn_defer(ru_link_tcp *l, rui_conn *c); /* flush it soon */
/* End it: `closed` follows from the flush. Keeps the first reason. */
void rui_conn_fail(ru_link_tcp *l, rui_conn *c, ru_status why, const char *fmt, ...)
    RU_PRINTF(4, 5);
void rui_conn_events(ru_link_tcp *l, rui_conn *c, bool in, bool out);
void rui_conn_standing(ru_link_tcp *l, rui_conn *c); /* TCP is up: TLS or opened */
/* Connect to one of the addresses found. */
void rui_conn_dial(ru_link_tcp *l, rui_conn *c, const struct sockaddr *to, socklen_t size_bytes);
/* Log a misdeed of a stranger, once per host and minute. */
void rui_link_accuse(ru_link_tcp *l, const char *address, const char *what, ru_time now);

/* link_tcp_addr.c */
RU_MUST_USE ru_status rui_addr_split(const char *address, char *host, char *port, ru_err *err);
void rui_addr_print(const struct sockaddr *a, char into[RUI_ADDRESS_MAX]);
RU_MUST_USE ru_status rui_addr_listen(const char *address, const char *toward, int *fd,
                                      char into[RUI_ADDRESS_MAX], ru_err *err);
/* Numeric host: fills it in at once. Else false. */
bool rui_addr_numeric(const char *host, const char *port, struct sockaddr_storage *into,
                      socklen_t *size_bytes);
/* Look the name up on another thread; rui_conn_dial or rui_conn_fail follows on the loop. */
void rui_name_start(ru_link_tcp *l, rui_conn *c, const char *host, const char *port);
void rui_names_done(void *link, ru_time now); /* the link's waker */
void rui_names_stop(ru_link_tcp *l);          /* wait for all under way; tells nobody */
bool rui_socket_here(int fd);                 /* both ends have one address */
/* Both ends are this socket: the kernel chose the port that it was to connect to, where nobody
 * listens, for its own (a simultaneous open with itself). */
bool rui_socket_itself(int fd);
ru_link_class rui_socket_class(int fd); /* of an accepted one, by its first packet */
void rui_socket_options(const ru_link_tcp *l, int fd, ru_link_class class);
ru_status rui_socket_why(int error); /* of a standing connection */

/* link_tcp_path.c */
/* [.. NULL] congestion controls for a path, the best first. Pure. */
const char *const *rui_path_congestion(ru_link_class class, int64_t rtt_min_us);
/* Before it connects or listens: a connection that was under BBR once is paced for ever. */
void rui_socket_begin(ru_link_tcp *l, int fd, ru_link_class class);
void rui_socket_path(rui_conn *c); /* it stands, its round trip is known */
/* By name, "": leave it; a log line when the kernel does not give it. */
void rui_socket_congestion(ru_link_tcp *l, int fd, const char *name);
/* Acknowledged bytes over the time with something to send, both since it opened; over at least
 * 10 ms, since the kernel's own estimate takes a burst that a token bucket lets through for the
 * rate of the path. true: a new estimate. Pure. */
bool rui_path_rate(rui_path *p, int64_t acked_bytes, int64_t busy_us);
/* Bulk: bound what the kernel holds unsent; and, on short paths, unsent or unacknowledged. */
void rui_socket_notsent(rui_conn *c, int64_t bytes);
/* What one of n busy connections may hold unsent when all deliver so much. */
int64_t rui_window_bytes(double rate_bytes_per_s, int64_t queue_ns, uint32_t n_active);
/* What SO_SNDBUF is set to for that window. Pure. */
int64_t rui_sndbuf_bytes(int64_t window_bytes, uint32_t n_active, int64_t rtt_min_us,
                         double bytes_per_s);
void rui_socket_sndbuf(rui_conn *c);

/* link_tcp_rx.c, link_tcp_tx.c */
void rui_rx_run(ru_link_tcp *l, rui_conn *c, ru_time now);
/* recvmsg of a plain urgent connection, with the kernel's stamp of the last bytes. */
ssize_t rui_rx_stamped(rui_conn *c, struct msghdr *m, int flags);
/* After a pause: ask for the place again, then read. */
void rui_rx_resume(ru_link_tcp *l, rui_conn *c, ru_time now);
/* The rest of the arriving payload goes elsewhere. */
void rui_rx_redirect(rui_conn *c, const ru_link_rx *rx);
void rui_tx_run(ru_link_tcp *l, rui_conn *c, ru_time now);

/* link_tls.c: like recvmsg and sendmsg: bytes, 0 at the end, -1 with errno (EAGAIN; EPROTO for
 * anything that TLS refuses). */
RU_MUST_USE ru_status rui_tls_host_open(const ru_link_tcp_options *opt, rui_tls_host **out,
                                        ru_err *err);
void rui_tls_host_close(rui_tls_host *h);
rui_tls *rui_tls_new(rui_tls_host *h, int fd, bool accepted, ru_link_class class);
void rui_tls_free(rui_tls *t); /* says goodbye if it can; NULL is fine */
/* RU_OK: done; RU_E_AGAIN: wants events (in, out); else why not, with a sentence. */
ru_status rui_tls_shake(rui_tls *t, bool *in, bool *out, char *sentence, uint32_t size_bytes);
/* first: since an event of the socket. Later calls do not ask an empty socket again. */
ssize_t rui_tls_recv(rui_tls *t, const struct iovec *iov, uint32_t n, bool first);
ssize_t rui_tls_send(rui_tls *t, const struct iovec *iov, uint32_t n);
bool rui_tls_holds(const rui_tls *t); /* recv has something to say without an event */
bool rui_tls_kernel(const rui_tls *t);
void rui_tls_key_records(rui_tls *t, uint64_t records); /* tests: of one key */

#endif
