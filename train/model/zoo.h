/* The model zoo: graphs by name and options.
 *
 * A zoo model is the forward graph of one batch: input(s) with symbolic batch "N", output 0 the
 * logits (or predictions). Parameters are STATE values of role PARAM with the names and shapes
 * PyTorch users expect (weight [out,in], conv [out,in,kh,kw]); their data is NULL and `init` says
 * how to fill each.
 *
 * Thread: any. */
#ifndef RU_TRAIN_MODEL_ZOO_H
#define RU_TRAIN_MODEL_ZOO_H

#include "world/graph/build.h"

RU_API_BEGIN

typedef struct ru_zoo_options {
    int64_t classes;  /* outputs; 0: from the data */
    int64_t input[4]; /* sample shape without batch, e.g. {3,32,32}; from the data */
    uint32_t input_rank;
    int64_t layers, heads, width, context, vocab, patch, channels, hidden_n, groups;
    int64_t length;        /* gpt: of the sequences, at most context; 0: context */
    const int64_t *hidden; /* mlp: [hidden_n] */
    double dropout;
    const char *activation; /* mlp: relu, gelu, tanh */
    bool bias, tie;         /* gpt: biases in all layers; tie token embedding and head */
    bool batch_norm;        /* vgg: after each convolution */
} ru_zoo_options;

typedef enum ru_init_kind {
    RU_INIT_ZEROS,
    RU_INIT_ONES,
    RU_INIT_NORMAL,          /* std = scale */
    RU_INIT_UNIFORM,         /* +-scale */
    RU_INIT_KAIMING_UNIFORM, /* +-1/sqrt(fan_in) as PyTorch's Linear and Conv defaults */
} ru_init_kind;

typedef struct ru_init {
    ru_value_id param;
    ru_init_kind kind;
    double scale;
    int64_t fan_in;
} ru_init;

typedef struct ru_zoo_model {
    const ru_init *inits; /* [n_inits], one per PARAM and BUFFER */
    uint32_t n_inits;
    bool tokens; /* input is i64 token ids [N,T], output [N,T,V] */
} ru_zoo_model;

/* A language model in steps: rows of new positions of several sequences, whose earlier positions
 * stand in caches (states of role CACHE).
 *
 *   inputs  ids, slot, at i64 [rows]: token, cache and position of each row; at -1: no row
 *           want i64 [wanted]: rows whose logits are asked
 *   output  logits [wanted, vocab] */
typedef struct ru_zoo_steps {
    int64_t rows, wanted, slots;
    bool bf16; /* the caches are of bf16; else of f32 */
} ru_zoo_steps;

typedef struct ru_zoo_row {
    const char *name, *help, *options; /* options: the keys it reads */
} ru_zoo_row;

const ru_zoo_row *ru_zoo_list(uint32_t *n);

/* Build into `g` (initialised, empty). `train` chooses BatchNormTrain and DropoutTrain instead of
 * the inference forms. Errors: RU_E_CONFIG naming model, option and range. */
RU_MUST_USE ru_status ru_zoo_build(const char *name, const ru_zoo_options *opt, bool train,
                                   ru_graph *g, ru_zoo_model *out, ru_err *err);

/* Fill a parameter's start values: element e of parameter k draws Philox(seed, k, e), so the same
 * start on any machine. `data` [count] f32. */
void ru_init_fill(const ru_init *init, uint64_t seed, uint32_t k, int64_t count, float *data);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* The inference form in steps. Errors: RU_E_UNSUPPORTED for a model that has none. */
RU_MUST_USE ru_status ru_zoo_build_steps(const char *name, const ru_zoo_options *opt,
                                         const ru_zoo_steps *steps, ru_graph *g, ru_err *err);
/* Elements begin .. begin+count-1 of the same; begin is a multiple of 4, data[0] is element begin.
 */
void ru_init_fill_part(const ru_init *init, uint64_t seed, uint32_t k, int64_t begin, int64_t count,
                       float *data);

#endif
