/* What the steps of a job take on this machine, op by op, as facts (world/facts.h) that
 * cost/step/profile.h fits: a profile is a rank, with its ops and its step.
 *
 *   ops        of steps on one batch that stays in memory
 *   compute    of a step without reading: the same steps
 *   input      of a batch that is read while nothing is computed
 *   took       of a step while the next batches are read
 *   processor  time of a step without reading; less than quota and threads allow where others used
 *              the processors meanwhile (ru_cost_profile_share)
 *
 * Thread: main. */
#ifndef RU_TRAIN_PIPE_PROFILE_H
#define RU_TRAIN_PIPE_PROFILE_H

#include "train/job/job.h"
#include "world/world.h"

enum { RU_PROFILE_VERSION = 1 }; /* raise it when facts of ops or steps come to mean other things */

typedef struct ru_profile_options {
    const char *type; /* what the facts call this machine as it is now */
    uint32_t threads; /* 0: all cores this process may use */
    uint32_t steps;   /* measured of each, >= 1 */
    int64_t least_ns; /* ... and at least so long */
} ru_profile_options;

/* A world with one host and device, named as the type, and the facts of the job. Owner: all in
 * `arena`. Errors: those of data and model; RU_E_LIMIT. */
RU_MUST_USE ru_status ru_profile_job(const ru_job *job, const ru_profile_options *opt,
                                     ru_arena *arena, ru_world *out, ru_err *err);
/* Are the facts of `path` those of this version? Errors: RU_E_CONFIG. */
RU_MUST_USE ru_status ru_profile_check(const ru_world *w, const char *path, ru_err *err);
/* The ops of the job's step, which is opened and not run, its memory, and the samples of the data.
 * Owner: in `arena`. Errors: those of data and model. */
RU_MUST_USE ru_status ru_profile_list(const ru_job *job, ru_arena *arena, ru_op_fact **ops,
                                      uint32_t *n, int64_t *memory_bytes, int64_t *samples,
                                      ru_err *err);
/* Hosts, devices and facts of `more` behind those of `w`; ranks are numbered anew. A type that both
 * have stays one device. Errors: RU_E_LIMIT; RU_E_CONFIG for a type on two kinds of processors. */
RU_MUST_USE ru_status ru_profile_add(ru_world *w, const ru_world *more, ru_arena *arena,
                                     ru_err *err);

#endif
