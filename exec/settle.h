/* Graphs with sizes or branches that depend on data: the part before them runs first.
 *
 *   model --read--> graph --settle--> executable
 *            |                |
 *            | conditions,    | numbers of selected
 *            | iterations     | elements, computed shapes
 *            +-------+--------+
 *                    v
 *      run the part that decides, on the arrays; what it hands on becomes more arrays
 *
 * Thread: one. */
#ifndef RU_EXEC_SETTLE_H
#define RU_EXEC_SETTLE_H

#include "exec/exe.h"
#include "world/array.h"
#include "world/onnx/onnx.h"

RU_API_BEGIN

/* What a model is opened for. */
typedef struct ru_settle {
    const ru_exe_options *opt; /* device, precision and threads of the parts that run first */
    ru_arrays *arrays; /* inputs by name; inputs that stand for what was computed are added */
    ru_arena *arena;   /* of the graph and of the arrays that are added */
    uint32_t ran;      /* parts that ran so far */
} ru_settle;

/* For ru_onnx_options.ahead: conditions and positions are computed from the arrays. `s` lives as
 * long as it. */
ru_onnx_ahead ru_exe_ahead(ru_settle *s);

/* Make all shapes of `g` numbers, as ru_exe_open needs. Constants are computed by the reference.
 * Where elements decide a size (NonZero, NonMaxSuppression, a computed Reshape) everything before
 * that place runs once on the device and becomes arrays and constants, so *out is valid for these
 * arrays only. Errors: as ru_onnx_settle and ru_exe_open. */
RU_MUST_USE ru_status ru_exe_settle(ru_settle *s, const ru_graph *g, ru_graph *out, ru_err *err);

RU_API_END

#endif
