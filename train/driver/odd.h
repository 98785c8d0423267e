/* Which number was the first that is not finite.
 *
 * The forward part of a step is run once more with the parameters and samples of that step, every
 * value kept, on kernels that keep NaN; the first value in the order of the graph is named with its
 * sample and file. The update must not have happened yet (ru_exe_judge_set).
 *
 * Thread: that of the executable. */
#ifndef RU_TRAIN_RUN_ODD_H
#define RU_TRAIN_RUN_ODD_H

#include "train/driver/trainer_impl.h"

/* The current step, whose inputs are in t->exe. */
typedef struct rui_odd_step {
    ru_run_args args;
    int64_t position; /* global, of the first sample of the inputs */
    const ru_stream *stream;
    double lr;
} rui_odd_step;

/* Errors: RU_E_USER naming what is not finite; RU_OK when all is. */
RU_MUST_USE ru_status rui_odd_find(rui_trainer *t, const rui_odd_step *s, ru_err *err);
/* The same for parameters and statistics alone. */
RU_MUST_USE ru_status rui_odd_states(rui_trainer *t, int64_t step, double lr, ru_err *err);

#endif
