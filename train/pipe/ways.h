/* Every way in which so many workers can run a job, side by side: `rubato plan JOB --cluster` shows
 * them, and `train.parallel: auto` takes the best one.
 *
 * Thread: main. */
#ifndef RU_TRAIN_PIPE_WAYS_H
#define RU_TRAIN_PIPE_WAYS_H

#include "train/pipe/measure.h"
#include "train/pipe/units.h"

typedef enum ru_way_kind {
    RU_WAY_SINGLE,
    RU_WAY_DATA,
    RU_WAY_FLUSH, /* pipelines in the order of ru_pipe_schedule */
    RU_WAY_GPIPE,
    RU_WAY_STASH,
    RU_WAY_VERTICAL,
    RU_WAY_2BW,
    RU_WAY_PLACED,
    RU_WAY_KINDS,
} ru_way_kind;

extern const char *const ru_way_names[RU_WAY_KINDS];

typedef struct ru_way {
    ru_way_kind kind;
    uint32_t workers;
    double step_s;
    int64_t memory_bytes; /* of the worker that needs most: what its executables and pieces on their
                             way plan, with its part of the evaluation, and data parallel with the
                             copy for a checkpoint; -1: more than is free here */
    double net_bytes;     /* sent by all in a step */
    bool same;            /* the job's own step, and its schedule: auto may take it */
    const char *why;      /* else it may not, where it is no schedule that is in the way */
    bool fits;            /* into the memory of a worker */
    ru_pipe_choice c;     /* not of PLACED */
    ru_units_choice placed;
} ru_way;

/* What was measured of a job. */
typedef struct ru_ways {
    struct rui_meter *meter;
    struct rui_units *units; /* NULL: nothing is placed */
    ru_pipe_layers layers;
    int64_t eval_bytes, eval_state_bytes; /* of an evaluation alone, and its state */
    const char *no_pipeline, *no_placed;  /* why none is compared; NULL: it is */
} ru_ways;

/* Measure with `threads` threads (0: all cores), or predict from train.pipeline.facts, for 1 and
 * for workers [n]; placed: units for placed steps too. `against`: what of the job stands against
 * pipelines and placed steps; NULL: nothing. Everything lives in `arena`; *out is closed also after
 * an error. Errors: those of data, model and facts. */
RU_MUST_USE ru_status ru_ways_open(const ru_job *job, const char *against, bool placed,
                                   uint32_t threads, const uint32_t *workers, uint32_t n,
                                   ru_arena *arena, ru_ways *out, ru_err *err);
void ru_ways_close(ru_ways *w);
/* The ways of so many workers, whose links have `bytes_per_s`, into at [RU_WAY_KINDS]; what does
 * not fit into `memory_bytes` of a worker (0: not known) is there too, if no other cut or placement
 * fits. Errors: those of the policies. */
RU_MUST_USE ru_status ru_ways_list(const ru_ways *w, uint32_t workers, double bytes_per_s,
                                   int64_t memory_bytes, ru_way *at, uint32_t *n, ru_err *err);

/* Percent by which a data-parallel step must be predicted to take longer than another one, or it is
 * taken. Times that are predicted or measured anew are no closer (docs/measured/ways.md), and
 * data-parallel workers come and go without a new start. */
enum { RU_WAY_GAIN = 5 };
/* What `auto` takes of the ways [n] of a number of workers, among those that fit; `pipeline`: the
 * job wants one. NULL: none. */
const ru_way *ru_ways_best(const ru_way *at, uint32_t n, bool pipeline);

#endif
