/* rubato-bench burst: a service with processor credits, untouched and paced (burst/).
 *
 * Thread: main only. */
#ifndef RU_BENCH_BURST_H
#define RU_BENCH_BURST_H

#include "bench/bench.h"

ru_status ru_bench_burst(ru_bench *b, ru_err *err);

#endif
