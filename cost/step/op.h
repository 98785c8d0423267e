/* What an op instance takes on a device: the time that was measured of the same kernel with the
 * same shapes, else a model over flops and bytes fitted to what was measured.
 *
 *   t = a + b flops + c bytes,   a, b, c >= 0
 *
 * One model for each kernel on a type of device, one for each op there, one for the type: the first
 * of these that has RU_OP_FACTS_MIN facts answers. Residuals count relative to the time, so that a
 * model is as good for short ops as for long ones. Each answer carries the error to expect: the
 * median of the relative errors that the model makes on a fact that it was fitted without; of
 * measured times their spread.
 *
 * Source: lawson-hanson-1974 ch. 23 (the fit); hyndman-fan-1996 (the median).
 * Thread: any, pure. */
#ifndef RU_COST_OP_H
#define RU_COST_OP_H

#include "base/map.h"
#include "world/facts.h"

enum { RU_OP_FACTS_MIN = 3, RU_OP_FACTS_MAX = 1 << 20 };

typedef enum ru_op_source {
    RU_OP_UNKNOWN,  /* nothing was measured on this type of device */
    RU_OP_MEASURED, /* the same kernel with the same shapes */
    RU_OP_BY_KERNEL,
    RU_OP_BY_OP,
    RU_OP_BY_DEVICE,
} ru_op_source;

typedef struct ru_op_time {
    double ns;    /* 0: unknown */
    double error; /* expected, relative: 0.1 is 10 % */
    ru_op_source source;
} ru_op_time;

typedef struct ru_op_fit {
    double fixed_ns, ns_per_flop, ns_per_byte;
    double error;
    uint32_t n; /* facts behind it */
} ru_op_fit;

typedef struct ru_op_known {
    double ns, squares, weight; /* weighted sums while fitting; then mean and spread */
} ru_op_known;

typedef struct ru_op_model {
    ru_map known; /* device, op, kernel, shapes -> index in `at` */
    ru_op_known *at;
    ru_map fits; /* device, then kernel or op -> index in `fit` */
    ru_op_fit *fit;
    uint32_t n_known, n_fits;
} ru_op_model;

/* Fit to ops [n]; those that were not measured (count 0) are left out. Owner: the model lives in
 * `out`; `scratch` is left as it was. Cost: O(n) fits of 3 columns for each group.
 * Errors: RU_E_ARG for times and sizes outside their bounds, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_cost_op_fit(const ru_op_fact *ops, uint32_t n, ru_arena *out,
                                     ru_arena *scratch, ru_op_model *m, ru_err *err);

/* The time of an instance; its `took` is not looked at. */
ru_op_time ru_cost_op(const ru_op_model *m, const ru_op_fact *op);
/* The time of `op` from the others of ops [n] alone: the model of its kernel, op or device fitted
 * without the facts of the same kernel with the same shapes. Beside the measured time it shows what
 * the model is worth for ops that nobody measured. Cost: O(n) and one fit. Errors: those of
 * ru_cost_op_fit. */
RU_MUST_USE ru_status ru_cost_op_apart(const ru_op_fact *ops, uint32_t n, const ru_op_fact *op,
                                       ru_arena *scratch, ru_op_time *into, ru_err *err);
/* Do two instances have the same kernel with the same shapes on the same type of device? */
bool ru_cost_op_same(const ru_op_fact *a, const ru_op_fact *b);
/* ru_cost_op with `factor` times the samples: other shapes, flops and bytes times `factor`. What
 * was measured is scaled as the model says, so that the answer at factor 1 is ru_cost_op's. */
ru_op_time ru_cost_op_scaled(const ru_op_model *m, const ru_op_fact *op, double factor);

#endif
