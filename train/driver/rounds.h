/* A training run whose steps are rounds that others compute: this process keeps the model, its
 * folder, evaluations, checkpoints and reports (train/driver/trainer.h has the rest).
 *
 *   begin --> next ... the values of round r --> checkpoint r is on disk --> kept --> evaluation
 *
 * A round is kept before `kept` is called, so a process that is killed repeats at most the round
 * that was under way and counts none twice. Data of the job give shapes and classes, and its test
 * data the evaluations; nothing is trained on them here.
 *
 * Thread: main. */
#ifndef RU_TRAIN_DRIVER_ROUNDS_H
#define RU_TRAIN_DRIVER_ROUNDS_H

#include "run/rundir.h"
#include "train/driver/trainer.h"
#include "train/model/flat.h"

typedef struct ru_rounds_start {
    const char *out;     /* folder of the run */
    int64_t round;       /* rounds done */
    const float *values; /* [flat->count] of the model; view until return */
    const ru_flat *flat;
    ru_rundir run;  /* job, facts */
    uint8_t *state; /* [state_bytes] ru_flat_layout, then the text of state.json: job and facts, for
                       those who compute */
    int64_t state_bytes;
} ru_rounds_start;

typedef struct ru_round {
    const float *values; /* [flat->count] view until the next call */
    int64_t samples;     /* that were trained on */
    double loss;         /* mean of the round; < 0: not known */
    double accuracy;     /* of its steps; < 0: not known */
    const char *ended;   /* no round follows: "done", "stopped"; NULL: the others are set */
} ru_round;

typedef struct ru_rounds_ops {
    /* All of it is view until the run ends, but `values`. */
    ru_status (*begin)(void *self, const ru_rounds_start *start, ru_err *err);
    /* Wait for the next round, or for the end. */
    ru_status (*next)(void *self, ru_round *out, ru_err *err);
    /* It is on disk. */
    ru_status (*kept)(void *self, int64_t round, ru_err *err);
} ru_rounds_ops;

/* opt->job->train.steps rounds. Errors: those of ru_train and of `ops`; RU_E_CONFIG for settings
 * that have no meaning in rounds. */
RU_MUST_USE ru_status ru_train_rounds(const ru_train_options *opt, const ru_rounds_ops *ops,
                                      void *self, ru_arena *arena, ru_train_result *out,
                                      ru_err *err);

#endif
