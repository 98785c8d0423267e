/* Graphs with sizes that depend on data: the part before such a size runs first.
 *
 * Thread: one. */
#ifndef RU_EXEC_SETTLE_H
#define RU_EXEC_SETTLE_H

#include "exec/exe.h"
#include "world/array.h"

RU_API_BEGIN

/* Make all shapes of `g` numbers, as ru_exe_open needs. Constants are computed by the reference; a
 * selection (NonMaxSuppression) whose boxes the model computes is computed from `arrays`, the
 * inputs by name: the part before it runs once on the device of `opt` and becomes constant, so *out
 * is valid for these arrays only. *ran (may be NULL) counts such runs. Errors: as ru_onnx_settle
 * and ru_exe_open. */
RU_MUST_USE ru_status ru_exe_settle(const ru_graph *g, const ru_exe_options *opt,
                                    const ru_array *arrays, uint32_t n_arrays, ru_arena *arena,
                                    ru_graph *out, uint32_t *ran, ru_err *err);

RU_API_END

#endif
