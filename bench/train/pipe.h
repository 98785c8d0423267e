/* Pipelines in the network laboratory.
 *
 * Thread: main only. */
#ifndef RU_BENCH_PIPE_H
#define RU_BENCH_PIPE_H

#include "bench/bench.h"

/* Errors: RU_E_MISSING: no laboratory here, or no exporter of the largest net. */
RU_MUST_USE ru_status ru_bench_pipe(ru_bench *b, ru_err *err);
/* ways.c: every way that a job may take, on clusters, and the choice among them. Errors: as above;
 * RU_E_PEER where a way that was chosen does not run. */
RU_MUST_USE ru_status ru_bench_ways(ru_bench *b, ru_err *err);

#endif
