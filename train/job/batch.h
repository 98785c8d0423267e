/* The global batch over a run: train.batch, and from each epoch of train.batch_schedule on its
 * batch. A step has the batch of the epoch in which its first sample lies. Thread: any, pure. */
#ifndef RU_TRAIN_JOB_BATCH_H
#define RU_TRAIN_JOB_BATCH_H

#include "train/job/job.h"

/* Of the step whose first sample is `position` of the global order, with `count` samples in an
 * epoch. */
int64_t ru_job_batch_at(const ru_job_train *j, int64_t position, int64_t count);
/* Steps of train.epochs epochs; INT64_MAX: no limit, or too many to count. */
int64_t ru_job_epoch_steps(const ru_job_train *j, int64_t count);
/* Samples of the first `steps` steps. */
int64_t ru_job_samples_of(const ru_job_train *j, int64_t steps, int64_t count);
/* Steps with its batch from the one whose first sample is `position` on; INT64_MAX: all. */
int64_t ru_job_batch_steps(const ru_job_train *j, int64_t position, int64_t count);
/* Errors: RU_E_CONFIG for epochs that do not rise from 2 on, and batches that are no whole numbers
 * or no multiples of train.accumulate. */
RU_MUST_USE ru_status ru_job_batches_check(const ru_job_train *j, ru_err *err);

#endif
