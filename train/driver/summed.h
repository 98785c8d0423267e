/* A training run whose gradients others compute: this process keeps the state, its folder,
 * evaluations, checkpoints and reports, and makes each update from sums that it is given
 * (train/driver/trainer.h has the rest).
 *
 *   owner    begin --> next(step): sums --> update, report, evaluation, checkpoint --> next
 *   worker   gradients of samples [first, first + n) of a batch --> sum(step) --> update --> next
 *
 * Owner and workers make the same updates, so that a worker has the state of the owner after the
 * same step. A gradient vector holds the gradients of all parameters in the order of the graph,
 * then what else is summed (loss, hits, running statistics). It and the state depend on the model
 * alone, not on the share. The samples of a step are those that one process would train on.
 *
 * Thread: one at a time for each worker; main for the owner. */
#ifndef RU_TRAIN_DRIVER_SUMMED_H
#define RU_TRAIN_DRIVER_SUMMED_H

#include "run/decisions.h"
#include "run/rundir.h"
#include "train/driver/trainer.h"

typedef struct ru_summed_start {
    int64_t step;            /* done */
    int64_t steps;           /* of the whole run */
    int64_t count;           /* floats of a gradient vector */
    int64_t state_bytes;     /* of the state */
    int64_t batch;           /* samples of a step, with train.batch_schedule of the first ones */
    int64_t samples;         /* of the steps done */
    int64_t epoch_samples;   /* of an epoch */
    const char *dir;         /* of the run */
    const char *facts;       /* text of state.json: job and facts, for the workers */
    ru_decisions *decisions; /* of the run */
    int64_t save_ns;         /* that its first checkpoint took; 0: it went on */
} ru_summed_start;

/* What the owner does next. */
typedef struct ru_summed_next {
    const float *sums; /* [count] of the step; view until the next call */
    void *state; /* [state_bytes] write the state there, then ask again; NULL: nobody wants it */
    const char *ended; /* "stopped"; NULL: the run goes on */
    bool idle;         /* no step comes for a while: save a checkpoint, then ask again */
} ru_summed_next;

typedef struct ru_summed_ops {
    /* All of it is view until `end`. */
    ru_status (*begin)(void *self, const ru_summed_start *start, ru_err *err);
    /* `step` steps are done. *out as it was left by the call before: its state is written. */
    ru_status (*next)(void *self, int64_t step, ru_summed_next *out, ru_err *err);
    /* Nothing of the run is used from now on; called once, also when it failed. */
    void (*end)(void *self);
} ru_summed_ops;

/* `workers`: how many share a step at first. Errors: those of ru_train and of `ops`; RU_E_CONFIG
 * for settings of the job that workers of this kind cannot honour. */
RU_MUST_USE ru_status ru_train_summed(const ru_train_options *opt, uint32_t workers,
                                      const ru_summed_ops *ops, void *self, ru_arena *arena,
                                      ru_train_result *out, ru_err *err);

typedef struct ru_summed_worker ru_summed_worker;

/* Files of data.follow, one behind the other. */
typedef struct ru_summed_files {
    const char *const *paths; /* [n] */
    uint32_t n;
    int64_t before, samples; /* of the run before the first file; in these */
} ru_summed_files;

typedef struct ru_summed_task {
    int64_t first, n;  /* samples of each batch; n > 0 */
    int64_t batch;     /* of each of its steps */
    int64_t step;      /* done */
    int64_t at;        /* samples of the steps done */
    int64_t end;       /* steps of the whole run */
    const void *state; /* [state_bytes] after `step` steps; NULL: as the worker has it */
    /* The gradients of a step are in vec [count]: make sums of them. *last: no step follows. RU_OK,
     * or what ends the task. */
    ru_status (*sum)(void *self, int64_t step, float *vec, bool *last, ru_err *err);
    void *self;
} ru_summed_task;

/* `facts` is copied. `threads` compute; 0: as the job says. Errors: RU_E_DATA when the data are
 * others than those of the owner; those of the model. */
RU_MUST_USE ru_status ru_summed_worker_open(const char *facts, int64_t facts_bytes,
                                            uint32_t threads, ru_arena *arena,
                                            ru_summed_worker **out, ru_err *err);
/* The job of `facts`, in `arena`. Errors: RU_E_DATA, RU_E_CONFIG. */
RU_MUST_USE ru_status ru_summed_job(const char *facts, int64_t facts_bytes, ru_arena *arena,
                                    ru_rundir *out, ru_err *err);
/* Its training data as workers read them; n_paths > 0: these files instead. Errors: RU_E_DATA when
 * samples have another shape than those of the run; those of opening. */
RU_MUST_USE ru_status ru_summed_data(const ru_rundir *run, const char *const *paths,
                                     uint32_t n_paths, ru_dataset **out, ru_err *err);
/* With data.follow, before each task and behind its build: it reads these. Errors: as above;
 * RU_E_DATA when there are more or fewer samples than said. */
RU_MUST_USE ru_status ru_summed_worker_files(ru_summed_worker *w, const ru_summed_files *files,
                                             ru_err *err);
void ru_summed_worker_close(ru_summed_worker *w);         /* NULL is fine */
bool ru_summed_worker_follows(const ru_summed_worker *w); /* does each task have files? */
/* The executable of n samples of a batch, with the sizes of vector and state. Errors: those of
 * ru_exe_open. */
RU_MUST_USE ru_status ru_summed_worker_build(ru_summed_worker *w, int64_t n, int64_t batch,
                                             int64_t *count, int64_t *state_bytes, ru_err *err);
/* Steps done by the state that the worker has; -1: none that can be used. */
int64_t ru_summed_worker_step(const ru_summed_worker *w);
/* Steps from task->step on, until `sum` says that none follows, or all are done. Errors: those of
 * `sum`, of the data, of the step; RU_E_USER when the loss is no number. */
RU_MUST_USE ru_status ru_summed_worker_run(ru_summed_worker *w, const ru_summed_task *task,
                                           ru_err *err);

#endif
