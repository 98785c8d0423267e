/* Layers of a job's model, measured one by one: the input of the policy `pipe` for this job.
 *
 * Every layer with parameters is opened as a stage of its own and runs forward and backward on
 * this machine; so do the whole steps of data-parallel workers. What crosses behind each layer is
 * what a cut there would send. With train.pipeline.facts nothing runs: times are predicted from
 * the ops of a type of device (cost/step/profile.h).
 *
 * Thread: main. */
#ifndef RU_TRAIN_PIPE_MEASURE_H
#define RU_TRAIN_PIPE_MEASURE_H

#include "base/json.h"
#include "train/job/job.h"
#include "train/pipe/order.h"

enum { RU_PIPE_FIXED_BATCH = -2 }; /* memory of what would divide a batch that the model fixes */

/* A worker of so many that divide the batch. */
typedef struct ru_pipe_share {
    uint32_t workers;
    int64_t ns; /* its step, without the sums */
    int64_t state_bytes;
    int64_t memory_bytes; /* that, activations and what kernels need; -1: more than is free here,
                             RU_PIPE_FIXED_BATCH: it cannot; ns is 0 then */
} ru_pipe_share;

/* A parameter that two layers have: its new value goes from one worker to the other in each step,
 * its gradient comes back for each micro-batch, past the stages between them. */
typedef struct ru_pipe_held {
    uint32_t from, to, value; /* layers; what has the same `value` and `from` is one parameter */
    int64_t bytes;
} ru_pipe_held;

typedef struct ru_pipe_layers {
    const char **name; /* [n] a cut begins the stage of layer k with name[k]; name[0]: the first */
    uint32_t n;
    int64_t *forward_ns, *backward_ns; /* [n] of a batch: of its micro-batches, one after the other
                                        */
    int64_t *update_ns; /* [n] of a step; a plan asks for it as a part of the backward one */
    int64_t *param_bytes;
    bool *stats;               /* [n] it has running statistics */
    int64_t *cross_bytes;      /* [n] of a batch, forward, between layer k and the later ones; of a
                                  parameter on both sides half of its gradients and its new value */
    const ru_pipe_held *helds; /* [n_helds] */
    uint32_t n_helds;
    uint32_t micro;
    ru_pipe_schedule schedule;
    double state;                /* bytes of gradients and slots per byte of parameters */
    const double *speeds;        /* of workers that have a stage each; NULL: all are alike */
    double memory_bytes;         /* that the policy may count for a worker; 0: no bound */
    const ru_pipe_share *shares; /* [n_shares] */
    uint32_t n_shares;
    int64_t weight_bytes;
    int64_t read_ns; /* of a batch alone; 0: not known */
    int64_t samples; /* of the data */
    double error;    /* of a step, to expect, relative */
} ru_pipe_layers;

/* Measure with `threads` threads (0: all cores), and the shares of 1 and of workers [n_workers].
 * Everything lives in `arena`. Errors: those of data, model and facts; RU_E_CONFIG for a model that
 * cannot be cut anywhere: *out has the shares all the same, and no layers. */
RU_MUST_USE ru_status ru_pipe_measure(const ru_job *job, uint32_t threads, const uint32_t *workers,
                                      uint32_t n_workers, ru_arena *arena, ru_pipe_layers *out,
                                      ru_err *err);
/* As members of the open object of `j`, for `units` workers whose links have `bytes_per_s`;
 * units 0: without them. `method`: of the policy; NULL: that of the schedule. */
void ru_pipe_question(const ru_pipe_layers *l, uint32_t units, double bytes_per_s,
                      const char *method, ru_json *j);

/* How `workers` processes should train the job, by the policy `pipe`. */
typedef struct ru_pipe_choice {
    const char *const *cut;              /* [n_cut] */
    uint32_t n_cut;                      /* 0: no pipeline of all workers was found */
    const int64_t *workers;              /* [n_cut + 1] of each stage */
    double pipeline_s, data_s, single_s; /* predicted for a step; pipeline_s 0: none */
    double compute_s, sum_s; /* of data_s: what a worker computes, and gradients on its link */
    double slowest_s, cut_s; /* of pipeline_s: the slowest stage, and the cut that sends longest */
    double stage_bytes;      /* memory of the worker of a stage that needs most */
    double sent_bytes;       /* by all workers of the pipeline in a step */
    const char *asked;       /* the policy's input, JSON */
} ru_pipe_choice;

/* Data parallel alone: into data_s, single_s, compute_s and sum_s. */
void ru_pipe_data(const ru_pipe_layers *l, uint32_t workers, double bytes_per_s, ru_pipe_choice *c);
/* A step of the pipeline with this cut, one worker a stage, as pipeline_s. Errors: RU_E_MISSING for
 * a cut that is not one of these layers. */
RU_MUST_USE ru_status ru_pipe_given(const ru_pipe_layers *l, const char *const *cut, uint32_t n_cut,
                                    double bytes_per_s, ru_arena *arena, double *step_s,
                                    ru_err *err);
/* With which layer each stage of a cut begins [n_cut + 2, the last one l->n]. Errors: as above. */
RU_MUST_USE ru_status rui_pipe_firsts(const ru_pipe_layers *l, const char *const *cut,
                                      uint32_t n_cut, ru_arena *arena, uint32_t **out, ru_err *err);
/* Layers n 0: data parallel. Owner: in `arena`. Errors:
 * those of the policy. */
RU_MUST_USE ru_status ru_pipe_choose(const ru_pipe_layers *l, uint32_t workers, double bytes_per_s,
                                     ru_arena *arena, ru_pipe_choice *out, ru_err *err);

#endif
