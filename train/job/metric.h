/* Names of metrics: what train.metrics, train.metric and train.until may say.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_JOB_METRIC_H
#define RU_TRAIN_JOB_METRIC_H

#include "train/job/job.h"

/* F is X of the first name. Of every evaluation, as they apply; only when asked for; the same. */
#define RU_METRIC_BASIC_LIST(F, X)   F(accuracy) X(loss) X(mse) X(perplexity)
#define RU_METRIC_CLASSES_LIST(F, X) F(top5) X(precision) X(recall) X(f1) X(auc)
#define RU_METRIC_NUMBERS_LIST(F, X) F(mae) X(rmse) X(r2)

#define RU_METRIC_FIRST(name) #name
#define RU_METRIC_NEXT(name)  "|" #name
#define RU_METRIC_BASIC       RU_METRIC_BASIC_LIST(RU_METRIC_FIRST, RU_METRIC_NEXT)
#define RU_METRIC_CLASSES     RU_METRIC_CLASSES_LIST(RU_METRIC_FIRST, RU_METRIC_NEXT)
#define RU_METRIC_NUMBERS     RU_METRIC_NUMBERS_LIST(RU_METRIC_FIRST, RU_METRIC_NEXT)
#define RU_METRIC_ALL         RU_METRIC_BASIC "|" RU_METRIC_CLASSES "|" RU_METRIC_NUMBERS

bool ru_metric_is(const char *words, const char *name); /* is it one of "a|b"? */
bool ru_metric_more(const char *name);                  /* is a larger value better? */

/* Are the metrics that the job names known? */
RU_MUST_USE ru_status ru_job_metrics_check(const ru_job_train *t, ru_err *err);

/* The figures that the job asks for beyond the basic ones: in train.metrics, as train.metric, in
 * train.until; each once. The list lives in `arena`, the names are constants. */
RU_MUST_USE ru_status ru_job_figures(const ru_job *job, ru_arena *arena, const char *const **names,
                                     uint32_t *n, ru_err *err);

#endif
