/* A client of the transport's benchmark. Thread: main only. */
#ifndef RU_BENCH_NET_CLIENT_H
#define RU_BENCH_NET_CLIENT_H

#include "bench/wire/net.h"

enum {
    RUI_BULK_BYTES = 64 << 20,
    RUI_URGENT_BYTES = 4 << 20,
    RUI_SPREAD_BYTES = 64 << 10,
    RUI_DEPTH = 4, /* transfers of a stream under way, at most */
};

typedef struct rui_client {
    rui_net_end *self; /* first: what upcalls of the end look for */
    rui_net_end end;
    rui_net_config config;
    double *samples; /* [RUI_NET_SAMPLES_MAX] us */
    uint32_t n_samples, n_ready, n_figures;
    rui_net_figures figures;
    bool over, drain; /* drain: no new bulk transfer starts */
    uint8_t *bulk, *urgent;
    uint32_t iter[RUI_NET_PEERS_MAX][RUI_NET_STREAMS];
    uint32_t turn;
    int64_t bulk_bytes;                                               /* of finished transfers */
    void (*sent)(struct rui_client *c, uint64_t cookie, ru_time now); /* may be NULL */
    void *kind;                                                       /* its own state */
} rui_client;

RU_MUST_USE ru_status rui_client_open(rui_client *c, const char *const *addresses, uint32_t n,
                                      bool tls, ru_err *err);
void rui_client_close(rui_client *c);
/* Tell the servers what comes (c->config); they post the slots. */
RU_MUST_USE ru_status rui_client_configure(rui_client *c, ru_err *err);
RU_MUST_USE ru_status rui_client_run(rui_client *c, double seconds, ru_err *err);
/* The next transfer of a stream. A failure ends the run. */
ru_status rui_client_send(rui_client *c, uint32_t peer, rui_net_stream stream, ru_chan_class class,
                          uint8_t *data, int64_t size_bytes);

RU_MUST_USE ru_status rui_client_deadlines(rui_client *c, double seconds, double rate_bytes_per_s,
                                           bool ordered, uint64_t seed, ru_err *err);

#endif
