/* The best evaluation of a run so far: which checkpoint to keep, and when to stop.
 *
 * It is a function of the evaluations that the metrics file tells, so a run that goes on after a
 * stop decides as one that never stopped.
 *
 * Thread: one at a time, no shared state. */
#ifndef RU_RUN_BEST_H
#define RU_RUN_BEST_H

#include "base/status.h"

typedef struct ru_best {
    const char *metric; /* static: "accuracy", "loss", ... */
    bool more;          /* larger is better */
    double least;       /* an improvement is larger than this */
    double value;       /* of the best evaluation */
    int64_t step;       /* after which it was made; 0: none yet */
    int64_t last;       /* step of the last evaluation that counts */
    int64_t since;      /* evaluations after the best one */
} ru_best;

/* Count one evaluation; an earlier or repeated step counts once. True when it is the best one.
 * Every number is better than a value that is not one, which is the best until one comes. */
bool ru_best_put(ru_best *b, int64_t step, double value);

/* Count the evaluations in a metrics file up to `last_step`. A file that does not exist holds none.
 * Cost: one pass over the file. Errors: RU_E_IO. */
RU_MUST_USE ru_status ru_best_read(ru_best *b, const char *path, int64_t last_step, ru_err *err);

#endif
