/* Learning rate as a function of the step. Pure.
 *
 * Thread: any. */
#ifndef RU_TRAIN_JOB_SCHEDULE_H
#define RU_TRAIN_JOB_SCHEDULE_H

#include "base/status.h"

RU_API_BEGIN

typedef enum ru_schedule_kind {
    RU_SCHEDULE_CONSTANT,
    RU_SCHEDULE_STEP,      /* x gamma every `every` steps */
    RU_SCHEDULE_COSINE,    /* half a cosine from lr to floor over the run */
    RU_SCHEDULE_LINEAR,    /* straight from lr to floor over the run */
    RU_SCHEDULE_ONE_CYCLE, /* half a cosine up from start to lr, another down to floor at the last
                              step; the numbers of PyTorch's OneCycleLR. Source: smith-2018 */
    RU_SCHEDULE_SWEEP,     /* from lr to floor times lr, each step by the same factor */
} ru_schedule_kind;

typedef struct ru_schedule {
    ru_schedule_kind kind;
    int64_t warmup; /* steps of linear rise from lr/warmup to lr */
    int64_t every;  /* step: >= 1 */
    double gamma;   /* step */
    double floor;   /* cosine, linear, one cycle: last rate as a fraction of lr, 0..1;
                       sweep: above 0 */
    double start;   /* one cycle: first rate as a fraction of lr, 0..1 */
    double rise;    /* one cycle: fraction of the run, above 0 and below 1 */
    int64_t steps;  /* all but constant and step: length of the run; >= 1 */
} ru_schedule;

/* Rate of step `step` (from 0) for a base rate `lr`. Unit: as lr. */
double ru_schedule_lr(const ru_schedule *s, double lr, int64_t step);

RU_API_END

#endif
