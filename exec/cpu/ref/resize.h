/* Resize as tables, for the reference kernels and for the lowering onto the vector kernels.
 *
 * Thread: any, no shared state. */
#ifndef RU_EXEC_CPU_REF_RESIZE_H
#define RU_EXEC_CPU_REF_RESIZE_H

#include "exec/ref.h"

/* Taps of one axis: position x has n[x] of them, at most `room`. */
typedef struct rui_resize_axis {
    int64_t in, out, room;
    int64_t *n, *index; /* [out], [out][room] */
    double *weight;     /* [out][room] */
    bool *outside;      /* [out] takes the extrapolation value */
} rui_resize_axis;

/* Tables that resize `x` to `y`, one per axis, in the call's scratch. The call's inputs roi, scales
 * and sizes stand at k, k + 1, k + 2; its other tensors are not read.
 * Errors: RU_E_UNSUPPORTED for an unknown mode, RU_E_DATA, RU_E_MEM. */
RU_MUST_USE ru_status rui_resize_make(const ru_ref_call *c, const ru_type *x, const ru_type *y,
                                      uint32_t k, rui_resize_axis *axes, ru_err *err);

#endif
