/* `rubato bench params`: apps against single-process programs; what failures cost; the
 * store against Redis.
 *
 * Thread: main only. */
#ifndef RU_BENCH_PARAMS_H
#define RU_BENCH_PARAMS_H

#include "bench/bench.h"

ru_status ru_bench_params(ru_bench *b, ru_err *err);
/* ... clocks that failures cost, on processes of the simulator. */
RU_MUST_USE ru_status ru_bench_params_lost(ru_bench *b, ru_err *err);
/* ... rows per second of the store and of Redis. */
RU_MUST_USE ru_status ru_bench_params_redis(ru_bench *b, ru_err *err);
/* ... what executors and shards that move cost. */
RU_MUST_USE ru_status ru_bench_params_litz(ru_bench *b, ru_err *err);
/* ... and its part with real processes. */
RU_MUST_USE ru_status rui_bench_litz_run(ru_bench *b, ru_err *err);
/* ... what the others gain when processes of the simulator become slow. */
RU_MUST_USE ru_status ru_bench_params_flex(ru_bench *b, ru_err *err);
/* Our side: words: params mf|lda THREADS DIR. */
RU_MUST_USE ru_status ru_bench_params_worker(const char *const *words, uint32_t n, ru_err *err);

#endif
