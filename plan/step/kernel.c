/* The choice between measured kernels. */
#include "plan/step/kernel.h"

ru_status ru_plan_kernel(const ru_kernel_in *in, ru_kernel_plan *plan, ru_err *err)
{
    if (in->method >= RU_KERNEL_METHODS) {
        return RU_FAIL(err, RU_E_ARG, "there is no method %u to choose a kernel", in->method);
    }
    const ru_kernel_candidate *best = NULL;
    for (uint32_t i = 0; i < in->candidates.n; i++) {
        const ru_kernel_candidate *c = &in->candidates.at[i];
        bool first = best == NULL || (in->method == RU_KERNEL_LEAST &&
                                      c->ns + c->extra_ns < best->ns + best->extra_ns);
        best = c->ns > 0 && first ? c : best;
    }
    if (best == NULL) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "none of the %u kernels can run%s%s", in->candidates.n,
                       in->op[0] != '\0' ? " " : "", in->op);
    }
    RU_CHECK(best->extra_ns >= 0);
    *plan = (ru_kernel_plan){.at = (uint32_t)(best - in->candidates.at),
                             .name = best->name,
                             .predicted_ns = best->ns + best->extra_ns};
    return RU_OK;
}
