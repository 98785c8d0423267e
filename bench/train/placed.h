/* Placed steps in the network laboratory.
 *
 * Thread: main only. */
#ifndef RU_BENCH_PLACED_H
#define RU_BENCH_PLACED_H

#include "bench/bench.h"

/* Errors: RU_E_MISSING: no laboratory here. */
RU_MUST_USE ru_status ru_bench_placed(ru_bench *b, ru_err *err);

/* Inside of the benchmark: a model of images of 3 x 32 x 32 and 10 classes as ONNX at `path`: a
 * stem with four branches, or two towers. */
RU_MUST_USE ru_status rui_placed_net(bool towers, const char *path, ru_arena *arena, ru_err *err);

#endif
