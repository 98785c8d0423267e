/* What the methods of `scale` share. Thread: any, pure. */
#ifndef RU_PLAN_SCALE_IMPL_H
#define RU_PLAN_SCALE_IMPL_H

#include "base/rng.h"
#include "cost/math/gp.h"
#include "plan/fleet/scale.h"

/* A choice of the grid; memory rises fastest. */
typedef struct rui_scale_choice {
    uint32_t workers;
    double memory_mb;
} rui_scale_choice;

uint32_t rui_scale_choices(const ru_scale_in *in);
rui_scale_choice rui_scale_at(const ru_scale_in *in, uint32_t k);
/* Did less or the same run out of memory? */
bool rui_scale_failed(const ru_scale_in *in, rui_scale_choice c);
/* The value that counts: seconds or USD. */
double rui_scale_value(const ru_scale_in *in, const ru_function_run *run);
bool rui_scale_keeps(const ru_scale_in *in, const ru_function_run *run);
/* Predicted figures of a choice whose step time has this median and deviation of its logarithm. */
void rui_scale_figures(const ru_scale_in *in, rui_scale_choice c, double log_step, double spread,
                       ru_scale_plan *plan);
/* One of the first two measurements: by lot, of the lower or the upper half in each dimension when
 * `halves`. Errors: RU_E_INFEASIBLE when all have failed. */
RU_MUST_USE ru_status rui_scale_start(const ru_scale_in *in, uint32_t k, bool halves,
                                      rui_scale_choice *out, ru_err *err);
/* Money that measuring has cost, and how often it was done. */
double rui_scale_probed_usd(const ru_scale_in *in);
uint32_t rui_scale_probed(const ru_scale_in *in);

RU_MUST_USE ru_status rui_scale_rival(const ru_scale_in *in, ru_arena *scratch, ru_scale_plan *plan,
                                      ru_err *err);

#endif
