/* What a training step takes on a type of device, from profiles of other steps there.
 *
 *   op     by itself, without the stops of a quota: what was measured of the same op with the same
 *          shapes on the type, else the model of its kind (cost/step/timing.h, least squares); of
 *          a kind of which only far smaller ops were measured, that of the kinds above it
 *   step   the median of measured steps over the sums over their ops, times this sum: stops of a
 *          quota, and what lies between ops. A step beside other programs counts as what it would
 *          have taken with the processor time that it could have got
 *
 * A profile is a rank of the facts: its ops, with the type, and its step, whose `job` names the
 * net. The error to expect is the median of those that are made on nets that were left out.
 *
 * Source: ceer-2020. Thread: any, pure. */
#ifndef RU_COST_PROFILE_H
#define RU_COST_PROFILE_H

#include "cost/step/op.h"
#include "cost/step/timing.h"

typedef struct ru_profile_kind {
    uint32_t n;
    double ns, flops, bytes;
    double most_bytes, below_bytes; /* of the largest one; of kinds below too */
} ru_profile_kind;

typedef struct ru_profile_model {
    ru_op_model one;             /* what was measured, and kernels with few timings */
    ru_map kinds;                /* name -> number */
    const ru_profile_kind *sums; /* of each kind, what was measured */
    ru_timing_model ops;
    double step;          /* times the sum over ops */
    double spread, error; /* relative: of a net that was profiled, of one that was not */
    uint32_t nets;        /* that were profiled on the type */
} ru_profile_model;

/* Fit to what was measured on `type`. Owner: in `out`; `scratch`, another arena, is left as it was.
 * Cost: a fit for the type and one for each net. Errors: RU_E_INFEASIBLE when nothing was measured
 * on the type, RU_E_LIMIT; those of ru_timing_fit. */
RU_MUST_USE ru_status ru_cost_profile(const ru_facts *facts, const char *type, ru_arena *out,
                                      ru_arena *scratch, ru_profile_model *m, ru_err *err);

typedef struct ru_profile_step {
    double ns;
    double error; /* to expect, relative */
    double known; /* share of the time whose ops were measured with the same shapes */
} ru_profile_step;

/* Of a step with ops [n], whose `took` is not looked at. */
ru_profile_step ru_cost_profile_step(const ru_profile_model *m, const ru_op_fact *ops, uint32_t n);

/* The step of a profile, and its processor time; NULL: the facts have none. */
const ru_step_fact *ru_cost_profile_of(const ru_facts *f, uint32_t rank);
const ru_processor_fact *ru_cost_profile_processor(const ru_facts *f, uint32_t rank);

/* An op by itself [ns]: its shortest run, without the time in which a quota had stopped it. Means
 * of short ops are those of few that were stopped, or waited for other programs; they stop all
 * alike, so the step's factor has it. */
double ru_cost_profile_own(const ru_facts *f, const ru_op_fact *op);
/* How much of a core the steps of a profile got (p NULL: 0, not known), and could have got: at most
 * one, since threads also wait for each other. Less: others used the processors meanwhile. */
double ru_cost_profile_share(const ru_processor_fact *p, double *could);
/* The step of a profile as it were alone on the machine [ns]. */
double ru_cost_profile_alone(const ru_facts *f, const ru_step_fact *s);
/* Kind and sizes of an op as cost/step/timing.h and the policy `device` take them. `kind`: at least
 * 128 bytes. */
void ru_cost_profile_op(const ru_op_fact *op, char *kind, ru_timing_op *into);

#endif
