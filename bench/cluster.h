/* rubato-bench cluster: the scheduler of a shared cluster (cluster/).
 *
 * Thread: main only. */
#ifndef RU_BENCH_CLUSTER_H
#define RU_BENCH_CLUSTER_H

#include "bench/bench.h"

ru_status ru_bench_cluster(ru_bench *b, ru_err *err);
/* cluster_jobs.c: its rows of real jobs. */
ru_status ru_bench_cluster_jobs(ru_bench *b, ru_err *err);
/* cluster_day.c: rows in virtual time. Errors: RU_E_BUG for an invariant that broke, with its seed.
 */
ru_status ru_bench_cluster_day(ru_bench *b, ru_err *err);

#endif
