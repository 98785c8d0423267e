/* Thread: main only. */
#ifndef RU_BENCH_TRAIN_FLEET_H
#define RU_BENCH_TRAIN_FLEET_H

#include "bench/bench.h"

ru_status ru_bench_fleet(ru_bench *b, ru_err *err);
ru_status ru_bench_fleet_secure(ru_bench *b, ru_err *err); /* rows of masked updates */

#endif
