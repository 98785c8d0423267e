/* What ops take on a type of device, learned from timings of other networks on it.
 *
 *   t = theta . columns(op), theta >= 0        one theta for each kind of op
 *   t = t * exp(trees(traits(op)))             boosted trees on what is left, in logarithms
 *
 * Columns are sums over ops, so that a timing may be of one op or of all ops of a kind in a step.
 * Kinds are words with slashes, from general to special: "conv/3x3/forward". A kind with few
 * timings takes the model of all kinds under the word before its last slash, at last that of all.
 *
 * Residuals count as 1/sqrt(t): times of ops add up to the step, and a weight of 1/t, which is that
 * of relative errors, makes every sum too small.
 *
 * Source: ceer-2020 (regression by type of op, medians of light ops); lawson-hanson-1974 ch. 23
 * (the fit); lee-2023 (the margin); paleo-2017 and habitat-2021 (baselines). Columns for
 * channels that fill tiles, and trees on the residual, are ours. Thread: any, pure. */
#ifndef RU_COST_TIMING_H
#define RU_COST_TIMING_H

#include "base/arena.h"
#include "world/solver.h"

enum {
    RU_TIMING_COLUMNS = 10,
    RU_TIMING_TRAITS = 11,
    RU_TIMING_KINDS_MAX = 1024,
    RU_TIMING_ROWS_MAX = 1 << 20,
    RU_TIMING_ROWS_MIN = 10, /* of a kind with a model of its own */
};

typedef struct ru_timing_op {
    double in_bytes, out_bytes; /* activations read and written */
    double host_bytes;          /* of those read, what comes from the host's memory */
    double param_bytes, flops;
    double channels_in, channels_out; /* of one group of a convolution or product; 0: none */
    double taps;                      /* positions of a kernel: 9 for 3x3; 0 is 1 */
} ru_timing_op;

/* One timing: `x` sums the columns of ops of one kind. */
typedef struct ru_timing_row {
    uint32_t kind;
    uint32_t net;    /* whose ops these are; no fit looks at it */
    const double *x; /* [RU_TIMING_COLUMNS] */
    double seconds;  /* >= 0 */
} ru_timing_row;

typedef enum ru_timing_method {
    RU_TIMING_TREES,   /* least squares, then trees: needs a solver with trees */
    RU_TIMING_SQUARES, /* least squares alone */
    RU_TIMING_CEER,    /* input size, and its square when that helps; medians of light kinds */
    RU_TIMING_MEDIAN,  /* median of the kind */
    RU_TIMING_PALEO,   /* flops and bytes at one fitted speed for all kinds */
} ru_timing_method;

typedef struct ru_timing_in {
    const ru_timing_row *rows; /* [n] */
    uint32_t n;
    const char *const *kinds; /* [n_kinds] names, also those that have no rows */
    uint32_t n_kinds;
    const bool *heavy; /* [n_kinds] of RU_TIMING_CEER: ops of 0.5 ms on the slowest device */
    ru_timing_method method;
    const ru_solver *solver; /* of RU_TIMING_TREES */
    uint64_t seed;
} ru_timing_in;

typedef struct ru_timing_model {
    uint32_t n_kinds;
    const double *theta; /* [n_kinds, RU_TIMING_COLUMNS] */
    bool has_trees;
    ru_trees trees;
} ru_timing_model;

/* x += count times the columns of an op. */
void ru_timing_add(const ru_timing_op *op, double count, double *x);

/* Owner: the model lives in `out`, which may be `scratch`: then nothing is given back. Cost:
 * O(rows) least squares of 9 columns, 150 rounds of trees. Errors: RU_E_ARG for numbers and indexes
 * outside their bounds, RU_E_UNSUPPORTED when the method needs trees and there are none,
 * RU_E_LIMIT. */
RU_MUST_USE ru_status ru_timing_fit(const ru_timing_in *in, ru_arena *out, ru_arena *scratch,
                                    ru_timing_model *m, ru_err *err);

/* Seconds of a row; its `seconds` and `net` are not looked at. */
double ru_timing_at(const ru_timing_model *m, const ru_timing_row *row);

/* Whole steps on one type of device: what the sum over ops leaves out.
 *
 *   one device   step = a ops + b launches + c host bytes + d + e parameter bytes, all >= 0
 *   k devices    + f 2 (k - 1) + g 2 (k - 1) / k parameter bytes        a ring that sums gradients
 *
 * With trees, they correct the logarithm of the first line: a step of many short ops waits for
 * launches, one of few long ones does not. */
typedef struct ru_timing_step {
    double ops_s; /* predicted sum over ops */
    double launches, host_bytes, param_bytes;
    uint32_t devices; /* >= 1 */
    double seconds;   /* measured */
} ru_timing_step;

typedef struct ru_timing_step_model {
    double theta[5];
    bool sums; /* gradients were measured: f and g hold */
    double round_s, byte_s;
    bool has_trees;
    ru_trees trees;
} ru_timing_step_model;

/* Fewer than RU_TIMING_ROWS_MIN steps of one device give a alone, none gives a = 1; `sums` needs 3
 * steps of more devices. Errors: as ru_timing_fit. */
RU_MUST_USE ru_status ru_timing_step_fit(const ru_timing_step *steps, uint32_t n,
                                         const ru_solver *solver, uint64_t seed, ru_arena *out,
                                         ru_arena *scratch, ru_timing_step_model *m, ru_err *err);
/* Seconds of a step on one device, and what summing gradients adds on step->devices. */
double ru_timing_step_at(const ru_timing_step_model *m, const ru_timing_step *step);
double ru_timing_sum_at(const ru_timing_step_model *m, const ru_timing_step *step);

/* A network at one batch on one device. */
typedef struct ru_timing_case {
    uint32_t net;              /* cases of one network never predict each other */
    const ru_timing_row *rows; /* [n] its ops as timed; their `net` is not looked at */
    uint32_t n;
    bool teaches;        /* false: a timing that was cut off, which no fit sees */
    ru_timing_step step; /* of one device, `ops_s` is not looked at; seconds 0: only the sum over
                            ops was measured and is compared */
} ru_timing_case;

/* A step of another network stays below *factor (>= 1) times its prediction with this probability.
 * Networks are left out in turn, in at most 8 groups, and their measured steps compared with the
 * predicted ones; INFINITY when there are too few networks for that probability. The rows of `in`
 * are not looked at. Shape: cases [n], networks numbered from 0. Errors: as ru_timing_fit. */
RU_MUST_USE ru_status ru_timing_margin(const ru_timing_in *in, const ru_timing_case *cases,
                                       uint32_t n, double probability, ru_arena *scratch,
                                       double *factor, ru_err *err);

/* The time of an op on another device by the roofline of both: wave scaling without waves, since
 * launch shapes are not known. Speeds: bytes per second, flops per second; > 0. */
double ru_timing_scaled(const double *x, double seconds, double bytes_per_s_from,
                        double flops_per_s_from, double bytes_per_s_to, double flops_per_s_to);

#endif
