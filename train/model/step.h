/* The graph of one training step, and of one evaluation step.
 *
 *   x, y --> model --> loss --> gradients --> (sum over micro-batches) --> clip --> optimizer
 *                                                                                      |
 *              parameters, running statistics, optimizer slots  <------ updates -------'
 *
 * A step is one graph for every accumulation: it contains the model once per micro-batch, each
 * followed by its own backward part, so that the next micro-batch reuses the buffers of one. The
 * learning rate and the step number are inputs.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_MODEL_STEP_H
#define RU_TRAIN_MODEL_STEP_H

#include "world/graph/build.h"

RU_API_BEGIN

enum {
    RU_ACCUMULATE_MAX = 256,
    RU_STEP_MEASURED = 3, /* numbers in `shared` that the graph leaves 0, behind its figures */
};

#define RU_ANCHOR_SUFFIX "anchor"
#define RU_EMA_SUFFIX    "ema" /* of the slot with the moving mean: fc1.weight.ema */

typedef enum ru_loss_kind {
    RU_LOSS_CROSS_ENTROPY,        /* logits [N,C], labels [N] */
    RU_LOSS_MSE,                  /* predictions and targets of equal count */
    RU_LOSS_BINARY_CROSS_ENTROPY, /* logits, targets 0..1 of equal count */
    RU_LOSS_NEXT_TOKEN,           /* logits [N,T,V], tokens [N,T] */
} ru_loss_kind;

typedef enum ru_optimizer_kind {
    RU_OPTIMIZER_SGD,
    RU_OPTIMIZER_ADAM,
    RU_OPTIMIZER_ADAMW,
    RU_OPTIMIZER_ADAGRAD,
    RU_OPTIMIZER_RMSPROP,
    RU_OPTIMIZER_LION,
    RU_OPTIMIZER_LAMB,
} ru_optimizer_kind;

typedef struct ru_optimizer {
    ru_optimizer_kind kind;
    double lr;
    double momentum;     /* sgd, rmsprop */
    bool nesterov;       /* sgd */
    double alpha;        /* rmsprop */
    double beta1, beta2; /* adam, adamw, lion, lamb */
    double epsilon;      /* all but sgd and lion */
    double weight_decay;
    bool decay_matrices; /* decay only what has two or more dimensions above 1: no norms, no biases
                          */
} ru_optimizer;

/* Parameters with a rate of their own, or that do not learn. */
typedef struct ru_param_group {
    const char *match; /* names; * stands for any run of characters. The first group that matches */
    double lr;         /* factor of the learning rate */
    double weight_decay; /* instead of the optimizer's; below 0: the optimizer's */
    bool freeze;         /* no gradient, no slots */
} ru_param_group;

typedef struct ru_step_options {
    ru_loss_kind loss;
    ru_optimizer optimizer;
    const ru_param_group *groups; /* [n_groups] */
    uint32_t n_groups;
    const double *class_weights; /* [n_class_weights] cross_entropy: of each class; 0: all are 1 */
    uint32_t n_class_weights;
    /* FedProx: the loss has prox / 2 times the squared distance of each parameter p from its anchor
     * p.anchor, a state that no step changes; 0: none */
    double prox;
    double ema;             /* each step: mean = ema * mean + (1 - ema) * parameter; 0: none */
    double label_smoothing; /* cross_entropy, next_token */
    double clip_norm;       /* 0: none */
    uint32_t accumulate;    /* micro-batches; 0: 1 */
    int64_t batch;          /* samples of the whole step, a multiple of accumulate */
    /* Samples of the global batch of which this step computes `batch` (data-parallel); 0: the step
     * is whole. Loss and gradients are the part's times batch / share_of, so that the sum over the
     * parts is the mean over all: exact when every sample has the same number of judged rows, else
     * each part's mean counts by its samples, as with accumulate. Batch norm sees its own part. */
    int64_t share_of;
    ru_type x, y; /* one sample as the data gives it, no batch dimension */
    bool outputs; /* evaluation with labels: the model's output can be read too */
} ru_step_options;

/* The axis of a micro-batch's samples in a value (ru_graph_samples). */
typedef struct ru_step_place {
    int64_t inner;    /* 0: not known, or it does not grow with the batch */
    int64_t first, n; /* samples of the step */
} ru_step_place;

/* A learning rate of some parameters: `factor` times that of the step. */
typedef struct ru_step_rate {
    ru_value_id input; /* f32 scalar */
    double factor;
} ru_step_rate;

typedef struct ru_step_graph {
    ru_graph graph;
    const ru_step_place *places; /* [graph.n_values] training only */
    uint32_t micro;              /* number of micro-batches */
    ru_value_id *x, *y;          /* [micro] inputs [batch/micro, ...] */
    ru_value_id lr;              /* f32 scalar input; absent in evaluation */
    ru_step_rate *rates;         /* [n_rates] of groups whose rate is another one */
    uint32_t n_rates;
    ru_value_id step;           /* i64 scalar input, from 1; absent unless the optimizer asks */
    ru_value_id loss;           /* f32 scalar: mean over the step */
    ru_value_id correct, count; /* f32 scalars: hits and rows judged; absent for mse */
    ru_value_id norm;           /* f32 scalar: gradient norm before clipping; absent without clip */
    ru_value_id
        clip; /* a stage in place of that: f32 scalar input, by which gradients are scaled */
    ru_value_id output; /* evaluation: the model's output 0; absent in training */
    /* Training with one micro-batch: the values with which forward ends
     * (ru_exe_options.forward). */
    ru_value_id forward[3];
    uint32_t n_forward;
    ru_value_id *params, *grads; /* [n_params] training only */
    /* share_of: f32 vector of what else is summed over the parts (loss, correct, count, running
     * statistics), of role GRAD; loss, correct and count above come from the sum. Else absent. */
    ru_value_id shared;
    uint32_t n_params;
    int64_t parameters; /* elements of all trained parameters */
    int64_t frozen;     /* ... of those that do not learn */
} ru_step_graph;

/* Build the training step from `model`: verified, inferred, in training form, one input whose first
 * dimension is the symbol "N" or equals batch/micro, output 0 the logits or predictions. State data
 * stay views of the model's. Everything lives in `arena`.
 * Errors: RU_E_CONFIG when model, loss and data do not fit, or a group matches no parameter;
 * RU_E_UNSUPPORTED from autodiff. */
RU_MUST_USE ru_status ru_step_build(const ru_graph *model, const ru_step_options *opt,
                                    ru_arena *arena, ru_step_graph *out, ru_err *err);

/* Build the evaluation step from `model` in inference form: loss, metrics and output of `batch`
 * samples. `opt->y.dtype` RU_NONE: no labels, only the output (prediction). */
RU_MUST_USE ru_status ru_step_build_eval(const ru_graph *model, const ru_step_options *opt,
                                         ru_arena *arena, ru_step_graph *out, ru_err *err);

RU_API_END

#endif
