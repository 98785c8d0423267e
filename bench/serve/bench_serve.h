/* The benchmark `serve`.
 *
 * Thread: main only. */
#ifndef RU_BENCH_SERVE_BENCH_SERVE_H
#define RU_BENCH_SERVE_BENCH_SERVE_H

#include "bench/bench.h"

/* A model trained for one step, as its weights do not matter here: the run serve-NAME in the folder
 * of the benchmarks, and an export of it at `path`; form: the option, "--onnx". */
RU_MUST_USE ru_status rui_bench_model(ru_bench *b, const char *name, const char *job,
                                      const char *form, const char *path, ru_err *err);
RU_MUST_USE ru_status rui_bench_generate(ru_bench *b, uint32_t rounds, double seconds, ru_err *err);
RU_MUST_USE ru_status ru_bench_serve(ru_bench *b, ru_err *err);

#endif
