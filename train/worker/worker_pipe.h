/* One worker process of a pipelined job: it has one stage of the model; or of a placed job: it is
 * one of its devices, with several parts of the step.
 *
 *   loop thread     a live process (host/shell.h) with the pipeline's part (train/pipe/pipe.h)
 *   compute thread  its stage: parts of a step in their fixed order, what crosses, the update
 *
 * The worker that leads has the last stage: it knows the loss, tells what happened and saves, for
 * which the others send it their state. An evaluation goes forward through the stages.
 *
 * Thread: main, which becomes the loop thread. */
#ifndef RU_TRAIN_WORKER_WORKER_PIPE_H
#define RU_TRAIN_WORKER_WORKER_PIPE_H

#include "train/worker/worker.h"

/* train.parallel: pipeline or placed. */
bool ru_pipe_job_is(const ru_job *job);
/* As ru_worker_run, for such a job. */
RU_MUST_USE ru_status ru_pipe_worker_run(const ru_worker_options *opt, ru_arena *arena,
                                         ru_worker_result *out, ru_err *err);
/* What of the job a pipeline and a placed step cannot do, and what to do: "keeps no moving means;
 * leave out train.ema"; NULL: nothing. */
const char *ru_pipe_job_against(const ru_job *job);
/* Can this job run so on `workers` processes? Errors: RU_E_CONFIG naming the key that stands
 * against it. */
RU_MUST_USE ru_status ru_pipe_job_check(const ru_job *job, uint32_t workers, ru_err *err);

#endif
