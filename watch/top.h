/* The screen of `rubato top`: what a job does now, rank by rank, within a terminal of any size.
 *
 * Pure: what was read comes in, text goes out. Thread: any. */
#ifndef RU_WATCH_TOP_H
#define RU_WATCH_TOP_H

#include "base/str.h"
#include "trace/read/predicted.h"
#include "trace/read/steps.h"

enum { RU_TOP_CLASSES = 4, RU_TOP_EVENTS_MAX = 16, RU_TOP_CAUSES_MAX = 8 };

/* One rank in the window. */
typedef struct ru_top_rank {
    uint32_t rank;
    int64_t step;                      /* last one it ended */
    double steps_per_s;                /* 0: none ended in the window */
    double part[RU_STEP_PARTS];        /* of its step time */
    double sent_per_s[RU_TOP_CLASSES]; /* bytes by class of the channel */
    double waited_s;  /* a step, for peers that began a sum late; mean of the window */
    double awaited_s; /* a step, what others waited for this rank, each its longest */
    double quiet_s;   /* since its last record; it records nothing while it is frozen
                       or lost */
    const char *gone; /* "lost", "left": what the job said of it last; NULL: it is in the job */
} ru_top_rank;

/* Of clients (fleet/fed.h). */
typedef struct ru_top_round {
    int64_t asked, answers, here; /* clients; here 0: not known */
    int64_t resting;              /* clients that are out of their hours */
    double epsilon;               /* of all rounds so far; 0: nobody counts it */
    int64_t late, lost;           /* of those asked: had no answer in time; went away */
} ru_top_round;

/* Of data.follow. */
typedef struct ru_top_follow {
    bool told;
    int64_t arrived, queue; /* samples: all that came; those that wait */
    int64_t workers;        /* called for them; 0: no step can be made of them */
} ru_top_follow;

/* Of a training on functions. */
typedef struct ru_top_functions {
    int64_t workers;                    /* 0: it is none */
    int64_t memory_mb, calls, given_up; /* of each; so far */
    bool measures;                      /* a choice for some steps, to see how long they take */
    double usd;                         /* spent */
} ru_top_functions;

typedef struct ru_top {
    const char *name;                   /* of the run */
    int64_t step, steps;                /* of the job; steps 0: open */
    double loss, samples_per_s, left_s; /* left_s < 0: not known */
    double noise;                       /* gradient noise scale in samples; 0: not measured */
    ru_top_round round;                 /* the last one; asked 0: no federation */
    ru_top_follow follow;
    ru_top_functions functions;
    const char *ended;        /* "done", "stopped"; NULL: it runs */
    const ru_top_rank *ranks; /* [n] */
    uint32_t n;
    const char *events[RU_TOP_EVENTS_MAX]; /* [n_events] newest last */
    uint32_t n_events;
    const char *causes[RU_TOP_CAUSES_MAX]; /* [n_causes] */
    uint32_t n_causes;
    ru_predictor_error predictors[RU_PREDICTORS_MAX]; /* [n_predictors] in the window */
    uint32_t n_predictors;
} ru_top;

/* Shape: at most `rows` lines of at most `columns` characters, each with a line end; rows >= 8,
 * columns >= 40. */
void ru_top_draw(const ru_top *t, uint32_t rows, uint32_t columns, ru_text *out);

#endif
