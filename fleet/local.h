/* What a client does with a model: a few passes over its own samples, and its score on those that
 * it holds out. The same code serves a client of its own and the clients of a simulation, which
 * share one of these: values go in and come out, nothing of a client stays.
 *
 * Batches follow each other in the order of the job (data.shuffle), anew in each pass; the last one
 * of a pass is short where samples do not divide by train.batch. The optimizer begins anew in each
 * task, its rate follows train.schedule by rounds.
 *
 * Thread: one at a time. */
#ifndef RU_FLEET_LOCAL_H
#define RU_FLEET_LOCAL_H

#include "run/rundir.h"
#include "train/model/flat.h"

typedef struct ru_local ru_local;

/* Samples of a client: those of `data`, or some of them. */
typedef struct ru_local_view {
    const ru_dataset *data;
    const int64_t *index; /* [n]; NULL: 0..n-1 */
    int64_t n;
} ru_local_view;

typedef struct ru_local_task {
    int64_t round; /* from 1 */
    uint64_t seed; /* of the client: order of its samples, dropout */
    int64_t epochs;
    /* Called before each step; true: give up. May be NULL. */
    bool (*stop)(void *self);
    void *self;
} ru_local_task;

typedef struct ru_local_result {
    double loss;     /* mean over the steps */
    double loss_rms; /* root of the mean of its square */
    double accuracy; /* of the steps; < 0: not known */
    int64_t samples; /* in a pass */
} ru_local_result;

typedef struct ru_local_score {
    double correct, count; /* count 0: the model tells no classes apart */
    double loss;           /* mean */
} ru_local_score;

/* `run`: job and facts, view until close. `threads`: that compute; 0: as the job says.
 * Errors: RU_E_CONFIG when the job has what a client cannot do; those of model and executable. */
RU_MUST_USE ru_status ru_local_open(const ru_rundir *run, uint32_t threads, ru_arena *arena,
                                    ru_local **out, ru_err *err);
void ru_local_close(ru_local *l); /* NULL is fine */
const ru_flat *ru_local_flat(const ru_local *l);
/* Opens all that tasks over `train` samples and scores of `held` run, so that the first task takes
 * as long as the next. *bytes: the memory of all that. Errors: those of open, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_local_prepare(ru_local *l, int64_t train, int64_t held, int64_t *bytes,
                                       ru_err *err);

/* values [count] become those after the task. Errors: RU_E_USER when the loss is no number, those
 * of the data, RU_E_CANCELLED. */
RU_MUST_USE ru_status ru_local_train(ru_local *l, const ru_local_view *view,
                                     const ru_local_task *task, float *values, ru_local_result *out,
                                     ru_err *err);
RU_MUST_USE ru_status ru_local_eval(ru_local *l, const ru_local_view *view, const float *values,
                                    ru_local_score *out, ru_err *err);

#endif
