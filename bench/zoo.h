/* Our side of `rubato bench infer --zoo`: one ONNX model on given arrays.
 *
 * Thread: main only. */
#ifndef RU_BENCH_ZOO_H
#define RU_BENCH_ZOO_H

#include "bench/bench.h"
#include "exec/exe.h"
#include "store/npy.h"
#include "store/onnx_file.h"

typedef struct ru_zoo_side {
    const char *path; /* of the model; given */
    ru_onnx_file file;
    ru_map_file map; /* of the arrays beside it */
    ru_graph g;
    ru_exe *exe;
} ru_zoo_side;

/* Errors: RU_E_DATA, RU_E_UNSUPPORTED and others of reading and opening a model. */
RU_MUST_USE ru_status ru_bench_zoo_open(ru_zoo_side *s, const ru_exe_options *exe, ru_arena *arena,
                                        ru_err *err);
/* Mean size of the first output's elements after a run; NaN when it is not f32. */
double ru_bench_zoo_mean(ru_zoo_side *s);
void ru_bench_zoo_close(ru_zoo_side *s); /* accepts zeroed memory */

#endif
