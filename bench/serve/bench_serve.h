/* The benchmark `serve`.
 *
 * Thread: main only. */
#ifndef RU_BENCH_SERVE_BENCH_SERVE_H
#define RU_BENCH_SERVE_BENCH_SERVE_H

#include "bench/bench.h"

RU_MUST_USE ru_status rui_bench_generate(ru_bench *b, uint32_t rounds, double seconds, ru_err *err);
RU_MUST_USE ru_status ru_bench_serve(ru_bench *b, ru_err *err);

#endif
