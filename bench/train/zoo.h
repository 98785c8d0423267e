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
/* Mean size of the first output's elements after a run; NaN of types that it does not read. */
double ru_bench_zoo_mean(ru_zoo_side *s);
void ru_bench_zoo_close(ru_zoo_side *s); /* accepts zeroed memory */

enum { RU_ZOO_SIDES = 3 }; /* Rubato, ONNX Runtime, OpenVINO */

/* Of the ratios to one peer on one number of threads. */
typedef struct ru_zoo_tally {
    double logs, least;
    uint32_t n;
    const char *least_name;
} ru_zoo_tally;

/* Measure one model against the first n_sides - 1 peers when its row is wanted. `tallies`
 * [n_sides]; *refused counts models that Rubato does not run. */
RU_MUST_USE ru_status ru_bench_zoo_model(ru_bench *b, const char *model, const char *path,
                                         uint32_t threads, uint32_t n_sides, ru_zoo_tally *tallies,
                                         uint32_t *refused, ru_err *err);
/* Rows of the geometric mean and of the least ratio; none without ratios. */
RU_MUST_USE ru_status ru_bench_zoo_mean_row(ru_bench *b, uint32_t threads, uint32_t side,
                                            const ru_zoo_tally *t, ru_err *err);

#endif
