/* Placed steps in the network laboratory.
 *
 * Thread: main only. */
#ifndef RU_BENCH_PLACED_H
#define RU_BENCH_PLACED_H

#include "bench/bench.h"

/* Errors: RU_E_MISSING: no laboratory here. */
RU_MUST_USE ru_status ru_bench_placed(ru_bench *b, ru_err *err);

enum { RUI_PLACED_BRANCHES_MAX = 8 };

/* Inside of the benchmark, and of test/job/placed_net_main.c: a model of images of 3 x 32 x 32 and
 * 10 classes as ONNX at `path`: a stem with n branches of these widths, n 0: two towers. */
RU_MUST_USE ru_status rui_placed_net(const int64_t *widths, uint32_t n, const char *path,
                                     ru_arena *arena, ru_err *err);
/* The same with n towers of three dense layers each, which meet at the end. */
RU_MUST_USE ru_status rui_placed_towers(uint32_t n, const char *path, ru_arena *arena, ru_err *err);

#endif
