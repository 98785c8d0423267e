/* `rubato explain RUN --if KEY=VALUE`: the recorded steps again in the simulator, with changed
 * costs.
 *
 *   network=10Gbit | x0.5     rate of the links, or a factor on it
 *   workers=4, per_host=1     of the job
 *   device=x0.5 | 1:x0.5      speed of all devices, or of that of one worker, from 1
 *   quota=x0.5 | 1:x0.5       quota of processor time of all workers, or of one
 *   batch=256                 samples of a step
 *   collective=direct         sums in rank order (fastest: chosen)
 *   storage=x0.5              speed of reading samples
 *
 * The job is simulated as it was recorded first, then with the changes. What is left between the
 * recorded step and the first simulation is added to the second. Where a quota of processor time
 * stretches the recorded ops, the devices get the processor time and the simulator the quota; else
 * they get the recorded compute time. Links have the rate of measured collectives; without those,
 * the one at which the step takes as long as it took.
 *
 * Thread: main. */
#ifndef RU_TOOL_WHAT_IF_H
#define RU_TOOL_WHAT_IF_H

#include "base/tell.h"
#include "world/world.h"

/* Is this KEY=VALUE a question of this kind? */
bool rui_what_if_is(const char *set);
/* Values of such questions: "x0.5"; "10Gbit", "250 Mbit/s", "1.25GB/s" in bytes/s. False: it is
 * none, or out of bounds. */
bool rui_factor_of(const char *text, double *into);
bool rui_rate_of(const char *text, double *into);
/* Errors: RU_E_USAGE names the value and what was expected; RU_E_MISSING lacks facts. */
RU_MUST_USE ru_status rui_what_if(const ru_world *w, const char *const *sets, uint32_t n,
                                  ru_arena *arena, const ru_tell *out, ru_err *err);

#endif
