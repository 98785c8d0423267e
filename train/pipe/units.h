/* Units of a job's model (train/model/stage.h), measured one by one: the input of the policy
 * `place` for this job, and its answer as a placement.
 *
 * Thread: main. */
#ifndef RU_TRAIN_PIPE_UNITS_H
#define RU_TRAIN_PIPE_UNITS_H

#include "train/job/job.h"

typedef struct ru_units_choice {
    ru_conf_pairs devices;   /* of every unit, in the order in which they start */
    uint32_t n;              /* units */
    uint32_t used;           /* devices that have something; less than asked: no placement of all */
    double step_s, single_s; /* predicted; single_s 0: one device cannot hold it */
    int64_t sent_bytes;      /* between devices in a step */
    const char *asked;       /* the policy's input, JSON */
} ru_units_choice;

/* Measure with `threads` threads (0: all cores) and ask for `devices` devices with
 * job->train.placed. Everything lives in `arena`. Errors: those of data, model and policy. */
RU_MUST_USE ru_status ru_units_choose(const ru_job *job, uint32_t threads, uint32_t devices,
                                      ru_arena *arena, ru_units_choice *out, ru_err *err);

#endif
