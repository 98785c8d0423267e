/* Inside of the replay of `device`: networks as lists of ops, and rented devices. Thread: main. */
#ifndef RU_BENCH_REPLAY_DEVICE_H
#define RU_BENCH_REPLAY_DEVICE_H

#include "bench/replay/replay.h"

enum { RUI_NET_OPS_MAX = 1200, RUI_NETS = 15 };

typedef enum rui_net_kind {
    RUI_NET_CONV,
    RUI_NET_DEPTHWISE,
    RUI_NET_DENSE,
    RUI_NET_BIAS,
    RUI_NET_RELU,
    RUI_NET_NORM,
    RUI_NET_MAX_POOL,
    RUI_NET_MEAN_POOL,
    RUI_NET_ADD,
    RUI_NET_CONCAT,
    RUI_NET_PAD,
    RUI_NET_DROPOUT,
    RUI_NET_MEAN,
} rui_net_kind;

/* One op of the forward pass of one sample. */
typedef struct rui_net_op {
    rui_net_kind kind;
    double in, out, params, flops; /* elements */
    double channels_in, channels_out, taps;
    bool first; /* reads the sample: no gradient of its input */
    bool fused; /* computed with the convolution before it */
} rui_net_op;

typedef struct rui_net {
    rui_net_op ops[RUI_NET_OPS_MAX];
    uint32_t n, side, classes;
} rui_net;

/* By the name in the published timings; false: there is no such network. */
bool rui_net_make(const char *name, uint32_t side, uint32_t classes, rui_net *net);

ru_status rui_device_rent(ru_replay *r, ru_err *err);

#endif
