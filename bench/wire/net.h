/* The transport's benchmark: what its driver (net.c), the processes at both ends
 * (net_role.c) and what they ask each other share.
 *
 * A server process stands on one host of the laboratory (or on loopback), clients come to it one
 * after the other. All hosts are namespaces of one kernel, so a time of sending written into a
 * message tells the one-way latency at the receiver.
 *
 * Thread: main only. */
#ifndef RU_BENCH_NET_H
#define RU_BENCH_NET_H

#include "bench/bench.h"
#include "comm/chan/chan.h"
#include "env/link/link_tcp.h"

enum {
    RUI_NET_SAMPLES_MAX = 1 << 20,
    RUI_NET_PEERS_MAX = 8,
    RUI_NET_DEPTH_MAX = 256,
    RUI_NET_URGENT_MAX = 4096, /* samples of urgent transfers that a report carries */
};

/* Messages between client and server. */
typedef enum rui_net_what {
    RUI_NET_CONFIG = 1, /* rui_net_config: post the slots */
    RUI_NET_READY,
    RUI_NET_ECHO, /* comes back as it is */
    RUI_NET_ECHOED,
    RUI_NET_STAMP, /* 8 bytes: when it was sent */
    RUI_NET_REPORT,
    RUI_NET_FIGURES, /* rui_net_figures */
} rui_net_what;

/* Streams by number; iter counts their transfers. */
typedef enum rui_net_stream {
    RUI_NET_BULK = 1,
    RUI_NET_URGENT = 2,
    RUI_NET_SMALL = 3,
    RUI_NET_STREAMS = 4,
} rui_net_stream;

typedef struct rui_net_config {
    int64_t bytes[RUI_NET_STREAMS];  /* of a transfer on each stream; 0: not used */
    uint32_t depth[RUI_NET_STREAMS]; /* transfers posted ahead */
    uint32_t stamped;                /* stream whose transfers begin with a stamp; 0: none */
    uint32_t zero;
} rui_net_config;

/* What the server saw since CONFIG or the last REPORT. */
typedef struct rui_net_figures {
    uint32_t n, n_urgent; /* stamped messages; urgent transfers */
    double p50_us, p99_us, max_us;
    double urgent_p50_us, urgent_p99_us;
    double goodput_bytes_per_s; /* bulk, between the ends of the first and of the last transfer */
    uint32_t n_urgent_us, zero;
    float urgent_us[RUI_NET_URGENT_MAX]; /* [n_urgent_us] */
} rui_net_figures;

/* One end: loop, link and channel. */
typedef struct rui_net_end {
    ru_arena arena;
    ru_loop *loop;
    ru_link_tcp *link;
    ru_link l;
    ru_chan *chan;
    ru_chan_user user;
    ru_node_id peers[RUI_NET_PEERS_MAX];
    uint32_t n_peers;
    bool grants;           /* set before it opens: receivers grant */
    int64_t poll_ns;       /* set before it opens: looking for messages before sleeping */
    ru_recorder *recorder; /* the same; NULL: none */
    bool failed;
    ru_err err;
} rui_net_end;

enum { RUI_NET_POLL_NS = 100000 }; /* of roles called -poll */

/* `user` without up, down and tick_at: those are the end's, which `user->self` begins with. tls:
 * with hosts that are not this one. */
RU_MUST_USE ru_status rui_net_open(rui_net_end *e, uint64_t node, const char *listen, bool tls,
                                   const ru_chan_user *user, ru_err *err);
void rui_net_close(rui_net_end *e);
RU_MUST_USE ru_status rui_net_connect(rui_net_end *e, const char *address, ru_err *err);

/* Of n >= 1 samples, sorted by it. */
double rui_net_percentile(double *samples, uint32_t n, double share);

/* The process at one end: words: serve LISTEN | echo ADDRESS OUTSTANDING SECONDS | mixed ADDRESS
 * SECONDS | preempt ADDRESS SECONDS | ... (see net_client.c). Prints one line. */
RU_MUST_USE ru_status ru_bench_net_role(const char *const *words, uint32_t n, ru_err *err);
RU_MUST_USE ru_status rui_net_client(const char *const *words, uint32_t n, ru_err *err);
RU_MUST_USE ru_status rui_net_clock(const char *const *words, uint32_t n, ru_err *err);
RU_MUST_USE ru_status rui_net_bare(const char *const *words, uint32_t n, ru_err *err);

#endif
