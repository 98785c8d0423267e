/* Thread: main only. */
#ifndef RU_BENCH_TRAIN_FLEET_H
#define RU_BENCH_TRAIN_FLEET_H

#include "bench/bench.h"

ru_status ru_bench_fleet(ru_bench *b, ru_err *err);
ru_status ru_bench_fleet_secure(ru_bench *b, ru_err *err); /* rows of masked updates */
ru_status rui_bench_fleet_line(ru_bench *b, ru_err *err);  /* rows of rounds over a slow line */
ru_status rui_bench_fleet_many(ru_bench *b, ru_err *err);  /* rows of 200 functions */
/* Rounds per second of Flower's simulation. *missing: why it was not measured, or NULL. */
ru_status rui_bench_fleet_flower(ru_bench *b, double *rounds_per_s, const char **missing,
                                 ru_err *err);

#endif
