/* How several workers train a job: data parallel or as a pipeline, and a pipeline again when it
 * lost a worker.
 *
 * Thread: main. */
#ifndef RU_LAUNCH_WAY_H
#define RU_LAUNCH_WAY_H

#include "launch/hosts.h"
#include "launch/launch.h"
#include "train/pipe/measure.h"

/* What was chosen for a job; zero: the job names it. */
typedef struct ru_way_choice {
    const char *asked;            /* what the policy `pipe`, or `place`, was asked (JSON) */
    const ru_pipe_layers *layers; /* of a pipeline */
    double step_s;                /* predicted */
} ru_way_choice;

/* What train.parallel leaves open is decided, in `job`, and told on stderr; then a pipeline or a
 * placement is checked against the workers of `plan`.
 * Errors: RU_E_CONFIG, RU_E_INFEASIBLE, those of data and model. */
RU_MUST_USE ru_status ru_way_check(ru_job *job, const ru_hosts_plan *plan, ru_arena *arena,
                                   ru_way_choice *out, ru_err *err);
/* ru_launch, with `to` as lo->train. Its workers find what was asked in OUT/plans/pipe.json, or
 * place.json. choice NULL: nothing was chosen. */
RU_MUST_USE ru_status ru_way_launch(const ru_launch_options *lo, ru_train_options *to,
                                    const ru_way_choice *choice, ru_arena *arena,
                                    ru_launch_result *out, ru_err *err);

#endif
