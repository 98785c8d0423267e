/* Inside of the model zoo: the context that every model builds with, and the layers they share.
 *
 * Thread: one. */
#ifndef RU_TRAIN_MODEL_ZOO_IMPL_H
#define RU_TRAIN_MODEL_ZOO_IMPL_H

#include "train/model/zoo.h"

typedef struct rui_zoo {
    ru_build b;
    const ru_zoo_options *opt;
    const char *model; /* name, for error sentences */
    bool train;
    const ru_zoo_steps *steps; /* NULL: whole sequences */
    uint32_t sym_batch;        /* index of symbol "N" */
    uint32_t stream;           /* next dropout stream */
    ru_init *inits;            /* [n_inits] in the graph's arena */
    uint32_t n_inits, cap_inits;
    ru_zoo_model *out;
} rui_zoo;

/* Dimension `d` of a value; 0 when the builder has failed. */
int64_t rui_zoo_dim(const rui_zoo *z, ru_value_id v, uint32_t d);

/* Refuse an option outside its range; the sentence names model, option, range and value. */
RU_MUST_USE ru_status rui_zoo_range(const rui_zoo *z, const char *option, int64_t value,
                                    int64_t min, int64_t max, ru_err *err);

/* An input [N, dims...]. */
ru_value_id rui_zoo_input(rui_zoo *z, const char *name, ru_dtype dtype, const int64_t *dims,
                          uint32_t rank);

/* A trained parameter "prefix.name" and its start values. */
ru_value_id rui_zoo_param(rui_zoo *z, const char *prefix, const char *name, const int64_t *dims,
                          uint32_t rank, ru_init_kind kind, double scale, int64_t fan_in);

/* x [.., in] -> [.., out] with PyTorch's Linear: x is [rows, in]. `std` 0: Linear's default start,
 * else normal with that deviation and zero bias. */
ru_value_id rui_zoo_linear(rui_zoo *z, ru_value_id x, const char *prefix, int64_t out, bool bias,
                           double std);

typedef struct rui_conv {
    int64_t out, kernel, stride, pad, group;
    bool bias;
    bool fan_out; /* normal with sqrt(2/fan_out), else Conv2d's default start */
} rui_conv;
ru_value_id rui_zoo_conv(rui_zoo *z, ru_value_id x, const char *prefix, const rui_conv *c);

ru_value_id rui_zoo_batch_norm(rui_zoo *z, ru_value_id x, const char *prefix);
ru_value_id rui_zoo_layer_norm(rui_zoo *z, ru_value_id x, const char *prefix, double epsilon);
ru_value_id rui_zoo_dropout(rui_zoo *z, ru_value_id x, double ratio);
ru_value_id rui_zoo_relu(rui_zoo *z, ru_value_id x);
ru_value_id rui_zoo_max_pool(rui_zoo *z, ru_value_id x, int64_t kernel, int64_t stride,
                             int64_t pad);
ru_value_id rui_zoo_flatten(rui_zoo *z, ru_value_id x);
/* dims[0] may be -1. */
ru_value_id rui_zoo_reshape(rui_zoo *z, ru_value_id x, const int64_t *dims, uint32_t rank);
ru_value_id rui_zoo_global_pool(rui_zoo *z, ru_value_id x); /* [N,C,H,W] -> [N,C] */

/* "a.b" in the graph's arena; a may be "". */
const char *rui_zoo_name(rui_zoo *z, const char *a, const char *b);
const char *rui_zoo_name_k(rui_zoo *z, const char *a, int64_t k); /* "a.k" */

/* One per model: check options, build the graph, mark output 0. */
RU_MUST_USE ru_status rui_zoo_mlp(rui_zoo *z, ru_err *err);
RU_MUST_USE ru_status rui_zoo_lenet(rui_zoo *z, ru_err *err);
RU_MUST_USE ru_status rui_zoo_resnet(rui_zoo *z, ru_err *err);
RU_MUST_USE ru_status rui_zoo_vgg(rui_zoo *z, ru_err *err);
RU_MUST_USE ru_status rui_zoo_mobilenet(rui_zoo *z, ru_err *err);
RU_MUST_USE ru_status rui_zoo_lstm(rui_zoo *z, ru_err *err);
RU_MUST_USE ru_status rui_zoo_gpt(rui_zoo *z, ru_err *err);
RU_MUST_USE ru_status rui_zoo_vit(rui_zoo *z, ru_err *err);

/* The model's sample must be an image [C,H,W] with sides in min..max. */
RU_MUST_USE ru_status rui_zoo_image(const rui_zoo *z, int64_t side_min, int64_t side_max,
                                    ru_err *err);
/* Classes must be known. */
RU_MUST_USE ru_status rui_zoo_classes(const rui_zoo *z, ru_err *err);

#endif
