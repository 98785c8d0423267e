/* config.pbtxt: what a model of a repository asks of the server. Fields that this server does not
 * know, or values that it cannot do, are refused by name.
 *
 * Source: triton-2024-protocol (model configuration); protobuf's text format.
 * Thread: any. */
#ifndef RU_SERVE_CONFIG_H
#define RU_SERVE_CONFIG_H

#include "base/str.h"
#include "world/graph/graph.h"

enum { RUI_CONFIG_NAMES = 64 };

typedef struct rui_config_tensor {
    ru_str name, type;         /* "FP32"; n 0: not said */
    int64_t dims[RU_RANK_MAX]; /* [rank] -1: any */
    uint32_t rank;
    bool has_dims;
} rui_config_tensor;

typedef struct rui_config {
    ru_str name;
    ru_str file;                        /* default_model_filename; n 0: model.onnx */
    int64_t rows_max;                   /* -1: not said; 0: no batches */
    int64_t instances;                  /* 0: not said */
    int64_t delay_us;                   /* of dynamic_batching; 0: leave when an instance is free */
    int64_t priority;                   /* of requests that say none; 0: not said */
    int64_t timeout_us;                 /* a request waits so long; 0: not said */
    bool shorter;                       /* one may ask for less */
    bool all;                           /* version_policy */
    int64_t latest;                     /* the newest so many */
    int64_t specific[RUI_CONFIG_NAMES]; /* [n_specific] only these */
    uint32_t n_specific;
    rui_config_tensor inputs[RUI_CONFIG_NAMES], outputs[RUI_CONFIG_NAMES];
    uint32_t n_inputs, n_outputs;
} rui_config;

/* Texts are views of `text`. n 0: the defaults. Errors: RU_E_DATA, RU_E_UNSUPPORTED. */
RU_MUST_USE ru_status rui_config_read(ru_str text, rui_config *out, ru_err *err);

#endif
