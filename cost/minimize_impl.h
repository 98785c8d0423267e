/* Inside of cost/: what the searches share. Thread: any, pure. */
#ifndef RU_COST_MINIMIZE_IMPL_H
#define RU_COST_MINIMIZE_IMPL_H

#include "cost/minimize.h"

/* Copy start and bounds, the start moved between them. Errors: RU_E_ARG names the variable. */
RU_MUST_USE ru_status rui_bounds(uint32_t n, const double *start, const double *low,
                                 const double *high, double *x, double *l, double *h, ru_err *err);

#endif
