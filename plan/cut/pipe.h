/* How the layers of a network become stages of a pipeline: the cuts, the number of workers of each
 * stage, the number of minibatches in flight, the number of versions of the weights of each stage.
 *
 *   workers 0-2   | layers 1-17  |--\         every worker does one forward, one backward in turn;
 *   worker 3      | layers 18-40 |<-/         minibatch b goes to replica b mod r, both ways
 *
 * A cut is a set of layers that needs nothing from the others. All cuts that a walk from the first
 * layer reaches are tried (they are few, as networks are nearly chains), by dynamic programming
 * over (cut, units, units of the last stage); the value is the slowest stage or boundary. Levels
 * nest: a unit of a level is all the units of the level below, and a stage of it a pipeline of
 * theirs.
 *
 * Calibrated, a unit inside which every level replicates all layers exchanges gradients once for
 * all of its workers' minibatches; any other unit does with every minibatch.
 *
 * Workers of unequal speed (`speeds`) have a stage each, in their order.
 *
 * The other methods are baselines. Where one that trains alike is faster, PIPELINE takes its plan.
 *
 * Source: pipedream-2019 sec 3.1 (partition), 3.2 (1F1B-RR), 3.3 (versions); gpipe-2019;
 * pipedream-2bw-2021 (flush, two versions). Thread: any, pure. */
#ifndef RU_PLAN_PIPE_H
#define RU_PLAN_PIPE_H

#include "base/arena.h"
#include "cost/pipe.h"

typedef enum ru_pipe_method {
    RU_PIPE_PIPELINE,
    RU_PIPE_STRAIGHT,      /* one worker a stage */
    RU_PIPE_DATA_PARALLEL, /* every worker has all layers; gradients are added every minibatch */
    RU_PIPE_SINGLE,        /* one worker */
    RU_PIPE_ASP,           /* data parallel without waiting, over a parameter server */
    RU_PIPE_IN_TURN,       /* model parallel: the straight cut, one minibatch at a time */
    RU_PIPE_HYBRID,        /* copies of a model-parallel group, data parallel among them */
    RU_PIPE_GPIPE,         /* microbatches, then the pipeline drains */
    RU_PIPE_FLUSH,         /* the same with 1F1B: fewer activations are kept */
    RU_PIPE_TWO_VERSIONS,  /* stages of equal width, gradients added over microbatches */
    RU_PIPE_NAIVE,         /* the pipeline without versions: gradients of mixed weights */
    RU_PIPE_METHODS,
} ru_pipe_method;

#define RU_PIPE_SPEED_MIN 0.01 /* of rows that name speeds */
#define RU_PIPE_SPEED_MAX 100

enum { RU_PIPE_LAYERS_MAX = 1 << 15, RU_PIPE_LEVELS_MAX = 4, RU_PIPE_UNITS_MAX = 256 };

typedef struct ru_pipe_layer {
    int64_t compute_ns; /* >= 0 forward and backward of one minibatch on one worker */
    int64_t param_bytes, activation_bytes; /* >= 0; activation: its output */
} ru_pipe_layer;

typedef struct ru_pipe_edge {
    uint32_t from, to;
} ru_pipe_edge;

typedef struct ru_pipe_level {
    uint32_t units;     /* 1 .. RU_PIPE_UNITS_MAX, each all units of the level before */
    double bytes_per_s; /* > 0 of the link of a unit */
} ru_pipe_level;

typedef struct ru_pipe_in {
    const ru_pipe_layer *layers; /* [n] */
    uint32_t n;                  /* 1 .. RU_PIPE_LAYERS_MAX */
    const ru_pipe_edge *edges;   /* [n_edges]; no circle */
    uint32_t n_edges;
    const ru_pipe_level *levels; /* [n_levels] innermost first */
    uint32_t n_levels;           /* 1 .. RU_PIPE_LEVELS_MAX */
    const double *speeds;        /* [n_speeds] > 0; of worker k, which has stage k */
    uint32_t n_speeds;           /* 0: all are alike; else the units of the only level */
    ru_pipe_model model;
    double compression;    /* of what crosses a cut; 0: crossing costs nothing */
    double overlap;        /* 0 .. 1: cost/pipe.h */
    double memory_bytes;   /* of a worker; 0: no bound */
    double state;          /* >= 0 times the parameters, for gradients and optimizer */
    uint32_t microbatches; /* >= 1: gpipe, flush, two versions */
    uint32_t cuts_max;     /* >= 2: when a graph has more cuts, those of one order of layers */
    ru_pipe_method method;
} ru_pipe_in;

/* Parts in preorder: a part of level k > 0 is followed by the parts of level k - 1 inside it. */
typedef struct ru_pipe_part {
    uint32_t level;      /* from 0 */
    uint32_t units;      /* that compute it, of that level */
    uint32_t first, end; /* stages [first, end) */
    double time_s;       /* a minibatch, without boundaries */
} ru_pipe_part;

typedef struct ru_pipe_stage {
    uint32_t workers;
    uint32_t in_flight; /* minibatches in flight on a worker: warm-up forward passes and one */
    uint32_t versions;  /* of its weights */
    double compute_s;   /* one minibatch on one worker, by its speed */
    double param_bytes, activation_bytes;
    double cut_bytes;    /* its output to later stages, forward */
    double memory_bytes; /* of a worker */
} ru_pipe_stage;

typedef struct ru_pipe_plan {
    const uint32_t *stage_of; /* [n_layers] */
    uint32_t n_layers;
    const ru_pipe_stage *stages; /* [n_stages] */
    uint32_t n_stages;
    const ru_pipe_part *parts; /* [n_parts]; none for baselines that are no pipeline of parts */
    uint32_t n_parts;
    uint32_t workers;                 /* that compute */
    uint32_t copies;                  /* hybrid: groups of stages; else 1 */
    uint32_t in_flight;               /* minibatches in flight per worker of the first stage */
    uint32_t n_cuts;                  /* tried */
    bool all_cuts;                    /* false: cuts of one order of layers */
    ru_pipe_method method;            /* whose plan it is: PIPELINE takes the fastest one */
    double minibatch_s;               /* predicted time between two minibatches */
    double single_s, data_parallel_s; /* the same of one worker, and of all data parallel */
} ru_pipe_plan;

/* Owner: arrays live in `out`. Cost: with N cuts and M units O(N^2 M^2) time and O(N M^2) memory at
 * the last level, O(N^3 M^2) and O(N^2 M) at each level below it.
 * Errors: RU_E_ARG, RU_E_INFEASIBLE (a circle, memory), RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_pipe(const ru_pipe_in *in, ru_arena *out, ru_arena *scratch,
                                   ru_pipe_plan *plan, ru_err *err);

/* What an input of the row `pipe` (plan/row/policy.def) asks. Owner: arrays live in `a`. Errors:
 * RU_E_LIMIT. */
RU_MUST_USE ru_status ru_pipe_in_of(const void *row_in, ru_arena *a, ru_pipe_in *in, ru_err *err);

/* Layers go forward through the stages, parts nest and use no more units than there are, stages fit
 * into memory, and the predicted figures are those of the parts. Shares no code with the planner.
 * Errors: RU_E_INFEASIBLE, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_pipe_check(const ru_pipe_in *in, const ru_pipe_plan *plan,
                                         ru_arena *scratch, ru_err *err);

#endif
