/* Steps that profiles predict, and what they take. Thread: main only. */
#ifndef RU_BENCH_DEVICE_H
#define RU_BENCH_DEVICE_H

#include "bench/bench.h"

/* Errors: those of `rubato profile`, which it starts under quotas. */
ru_status ru_bench_device(ru_bench *b, ru_err *err);

#endif
