/* The rest of a job on functions whose batch changes and that has a deadline: workers and memory of
 * its next stretch, at the least money.
 *
 *   step(choice, batch) = the law of plan/fleet/scale_parts.h, times how far off it was where the
 *                         choice was measured, with this batch or else with others
 *
 * All parts that are left get the choices of least money that end in time: one price of a second in
 * all of them, then what is spare buys cheaper ones. The choice of the first part must also leave a
 * way out: when its stretch takes as long as the errors of steps say, the fastest choices of the
 * rest, with their errors, still end in time. If no choice does, the one that comes closest runs.
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_SCALE_REST_H
#define RU_PLAN_SCALE_REST_H

#include "plan/fleet/scale_parts.h"

typedef struct ru_scale_rest_in {
    const ru_scale_in *in; /* grid, prices, starts (of workers that were never there), the choice in
                              force, limit_s > 0; probe: as they were measured, */
    const double *batch;   /* [in->n_probes] of steps with so many samples */
    const ru_scale_part *parts; /* [n] that are left; 1 <= n <= RU_SCALE_PARTS_MAX */
    uint32_t n;
    const uint32_t *there;   /* [in->n_memory] workers of each size that were there before */
    double again_s, other_s; /* before the first step of the choice in force, called again; of
                                another one whose workers were there */
    double stretch_steps, stretch_s; /* until the next decision, at least */
} ru_scale_rest_in;

typedef struct ru_scale_rest_plan {
    uint32_t workers;
    double memory_mb;
    double step_s;       /* as expected */
    double steps;        /* until the next decision */
    double seconds, usd; /* of the whole rest, as expected */
    bool late;           /* no choice ends in time, as expected */
} ru_scale_rest_plan;

/* Cost: O(parts choices measurements). Errors: RU_E_LIMIT, RU_E_INFEASIBLE when all have failed. */
RU_MUST_USE ru_status ru_scale_rest(const ru_scale_rest_in *r, ru_arena *scratch,
                                    ru_scale_rest_plan *out, ru_err *err);

#endif
