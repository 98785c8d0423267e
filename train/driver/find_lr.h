/* Which learning rate? A short run in which the rate rises from step to step by a constant factor:
 * the loss falls fastest at the rate to take, and grows again where rates are too large.
 *
 * Source: smith-2018 (range test)
 *
 * Thread: main. */
#ifndef RU_TRAIN_RUN_FIND_LR_H
#define RU_TRAIN_RUN_FIND_LR_H

#include "train/driver/trainer.h"

enum { RU_SWEEP_STEPS = 100, RU_SWEEP_LEAST = 12 }; /* rates that are tried; that tell something */

typedef struct ru_sweep_point {
    double lr, loss;
    double mean; /* of the losses around it */
} ru_sweep_point;

/* The rates of a run. The caller sets from, to, steps and memory for so many points. */
typedef struct ru_lr_sweep {
    double from, to;
    int64_t steps;
    ru_sweep_point *at; /* [steps] room; */
    int64_t n;          /* points so far */
    double sum, best;   /* moving mean of the loss before it is corrected; the lowest one */
    const char *out;    /* run directory */
} ru_lr_sweep;

typedef struct ru_lr_found {
    double lr;                /* suggestion: where the mean falls fastest */
    double lowest;            /* rate at which the mean is lowest */
    const ru_sweep_point *at; /* [n] */
    int64_t n;
    const char *out; /* run directory, which has find-lr.csv */
} ru_lr_found;

/* Run the job's first steps, in a run directory of its own; its evaluations, targets and
 * checkpoints are left out. Points and paths live in `arena`.
 * Errors: those of ru_train; RU_E_USER when the loss never falls. */
RU_MUST_USE ru_status ru_find_lr(const ru_train_options *opt, ru_arena *arena, ru_lr_found *out,
                                 ru_err *err);

/* The suggestion from the losses of a sweep; fills the means. Errors: RU_E_USER when the mean never
 * falls. */
RU_MUST_USE ru_status ru_sweep_judge(ru_lr_sweep *s, ru_lr_found *out, ru_err *err);

void rui_sweep_begin(const ru_lr_sweep *s, ru_schedule *schedule, double *lr);
/* The loss of the step with this rate. True: it has grown so far that larger rates tell nothing. */
bool rui_sweep_put(ru_lr_sweep *s, double lr, double loss);

#endif
