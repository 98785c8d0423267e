/* Does a pipeline still run as its plan says? When its steps take otherwise, the launcher looks for
 * another cut by what the workers recorded, and takes it if it gains enough.
 *
 *   50 steps, mean off by over 10 %  -->  records  -->  a cut that gains over 5 %  -->  the next
 * set all start again
 *
 * Only cuts that Rubato chose by measured layers, of one worker a stage. Between two looks that
 * found nothing the time doubles up to a bound, until steps change again.
 *
 * Source: pipedream-2019 sec 3.1. Thread: main. */
#ifndef RU_LAUNCH_DRIFT_H
#define RU_LAUNCH_DRIFT_H

#include "train/pipe/measure.h"

typedef struct rui_drift {
    ru_arena *arena;
    const ru_pipe_layers *layers; /* NULL: nothing is looked for */
    const char *const *cut;       /* [n_cut] in use */
    uint32_t n_cut;
    double said_s;      /* a step, as predicted */
    double bytes_per_s; /* of a link, where no records tell */
    int sets;           /* file of train/pipe/sets.h */

    double sum_s; /* of the steps of this window */
    uint32_t n;
    uint32_t wait, back_off; /* windows: left to skip; skipped the next time */
    double looked_s;         /* a step when it looked last; 0: never */

    const char *const *next; /* [n_cut] the cut to take; NULL: none */
    double next_s;           /* a step with it */
    int64_t set;             /* the newest set then */
} rui_drift;

/* All start: the first steps do not count. */
void rui_drift_begin(rui_drift *d);
/* A step was told: true when all should start again now, with `next`. */
bool rui_drift_step(rui_drift *d, const char *run, double step_s);

#endif
