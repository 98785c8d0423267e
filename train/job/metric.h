/* Names of metrics: what train.metrics, train.metric and train.until may say.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_JOB_METRIC_H
#define RU_TRAIN_JOB_METRIC_H

#include "train/job/job.h"

#define RU_METRIC_BASIC   "accuracy|loss|mse|perplexity" /* of every evaluation, as they apply */
#define RU_METRIC_CLASSES "top5|precision|recall|f1|auc" /* only when asked for */
#define RU_METRIC_NUMBERS "mae|rmse|r2"

bool ru_metric_is(const char *words, const char *name); /* is it one of "a|b"? */
bool ru_metric_more(const char *name);                  /* is a larger value better? */

/* Are the metrics that the job names known? */
RU_MUST_USE ru_status ru_job_metrics_check(const ru_job_train *t, ru_err *err);

/* The figures that the job asks for beyond the basic ones: in train.metrics, as train.metric, in
 * train.until; each once. The list lives in `arena`, the names are constants. */
RU_MUST_USE ru_status ru_job_figures(const ru_job *job, ru_arena *arena, const char *const **names,
                                     uint32_t *n, ru_err *err);

#endif
