/* Thread: main only. */
#ifndef RU_BENCH_TRAIN_FLEET_H
#define RU_BENCH_TRAIN_FLEET_H

#include "bench/bench.h"

ru_status ru_bench_fleet(ru_bench *b, ru_err *err);
ru_status ru_bench_fleet_secure(ru_bench *b, ru_err *err);    /* rows of masked updates */
ru_status rui_bench_fleet_line(ru_bench *b, ru_err *err);     /* rows of rounds over a slow line */
ru_status rui_bench_fleet_deadline(ru_bench *b, ru_err *err); /* rows of jobs on functions */
/* Rows of 50 processes with so many classes each. */
ru_status rui_bench_fleet_clients(ru_bench *b, uint32_t classes, ru_err *err);
/* Rows of jobs on functions whose batch doubles. */
#define RUI_BENCH_FLEET_BATCHES "functions, a batch that doubles twice"
ru_status rui_bench_fleet_batches(ru_bench *b, ru_err *err);
/* A row of such processes that are killed and become slower. */
#define RUI_BENCH_FLEET_STRUCK "5 of 50 client processes killed and a tier half as fast"
ru_status rui_bench_fleet_struck(ru_bench *b, ru_err *err);
/* `rubato fed sim` of the job with n further words. *lines: its rounds, as a file. */
ru_status rui_bench_fleet_simulate(ru_bench *b, const char *job, const char *const *more,
                                   uint32_t n, const char **lines, ru_err *err);
ru_status rui_bench_fleet_many(ru_bench *b, ru_err *err); /* rows of 200 functions */
/* Rounds per second of Flower's simulation. *missing: why it was not measured, or NULL. */
void rui_bench_fleet_flower(ru_bench *b, double *rounds_per_s, const char **missing);

#endif
