/* What the reference kernels of 8-bit products share.
 *
 * Thread: any, no shared state. */
#ifndef RU_EXEC_CPU_REF_REF_INT8_IMPL_H
#define RU_EXEC_CPU_REF_REF_INT8_IMPL_H

#include "exec/cpu/ref/ref_impl.h"

/* Input 0 as the numbers it stands for, less its zero point and not scaled. */
RU_MUST_USE ru_status rui_ref_int8_in(const ru_ref_call *c, double **out, ru_err *err);
/* Output 0 from integer sums, whose channels run along `axis`: scale (input 2), bias (input 3),
 * activation, quantisation. */
RU_MUST_USE ru_status rui_ref_int8_out(const ru_ref_call *c, double *sum, uint32_t axis,
                                       ru_err *err);

#endif
