/* Does a pipeline or a placed step still run as its plan says? When its steps take otherwise, the
 * launcher looks for another plan by what the workers recorded, and takes it if it gains enough.
 * When somebody joins, it looks for one with a worker more in the same way.
 *
 *   50 steps, mean off by over 10 %  -->  records  -->  a plan that gains over 5 %  -->  the next
 *   a spare waits                    -->  layers   -->  one of more workers that does   set all
 *                                                                                   start again
 *
 * Only what Rubato chose by measured layers; of pipelines those of one worker a stage. Between two
 * looks that found nothing the time doubles up to a bound, until steps change again.
 *
 * Source: pipedream-2019 sec 3.1. Thread: main. */
#ifndef RU_LAUNCH_DRIFT_H
#define RU_LAUNCH_DRIFT_H

#include "train/pipe/measure.h"

/* What can be taken in place of a plan in use. */
typedef struct rui_next {
    bool is;
    uint32_t workers;
    ru_conf_texts cut, back; /* a pipeline's; a placed step's, with devices */
    ru_conf_i64s stage_workers;
    ru_conf_pairs devices;
    double step_s;
    const char *asked; /* the policy's input */
    int64_t set;       /* the newest one when it was found */
} rui_next;

typedef struct rui_drift {
    ru_arena *arena;
    const ru_pipe_layers *layers; /* of a pipeline; */
    const char *asked;            /* of a placed step; both NULL: nothing is looked for */
    rui_next now;                 /* in use; .step_s as predicted */
    double bytes_per_s;           /* of a link, where no records tell */
    int sets;                     /* file of train/pipe/sets.h */
    uint32_t spares, tried;       /* who wait; how many a plan was looked for with */
    uint32_t most;                /* workers that the job may have */

    double sum_s; /* of the steps of this window */
    uint32_t n;
    uint32_t wait, back_off; /* windows: left to skip; skipped the next time */
    double looked_s;         /* a step when it looked last; 0: never */

    rui_next next; /* the plan to take */
} rui_drift;

/* All start: the first steps do not count. */
void rui_drift_begin(rui_drift *d);
/* A step was told: true when all should start again now, with `next`. */
bool rui_drift_step(rui_drift *d, const char *run, double step_s);
/* So many spares wait now. */
void rui_drift_spares(rui_drift *d, uint32_t n);

#endif
