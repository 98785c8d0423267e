/* rubato-bench cluster: the scheduler of a shared cluster (cluster/).
 *
 * Thread: main only. */
#ifndef RU_BENCH_CLUSTER_H
#define RU_BENCH_CLUSTER_H

#include "bench/bench.h"
#include "cost/goodput.h"
#include "plan/fleet/alloc.h"

ru_status ru_bench_cluster(ru_bench *b, ru_err *err);
/* cluster_jobs.c, cluster_link.c: its rows of real jobs. */
ru_status ru_bench_cluster_jobs(ru_bench *b, ru_err *err);
ru_status ru_bench_cluster_link(ru_bench *b, ru_err *err);
/* cluster_played.c: such jobs in virtual time. *mean_s: from submission to the end. A model with a
 * batch of its own keeps it. */
typedef struct ru_bench_played {
    const double *at_s, *steps;     /* [n] arrivals; steps of its first batch */
    const uint32_t *request;        /* [n] workers that a job requests */
    uint32_t n, most;               /* most: workers of a job */
    const ru_goodput_model *models; /* [n] */
    uint32_t nodes, slots;
    ru_alloc_method method;
    double start_s, pause_s, round_s, demote_s; /* start_s: from a job's first grant to its work */
    bool restarts; /* a job whose slots change stops and starts; pause_s: what that takes */
} ru_bench_played;
RU_MUST_USE ru_status ru_bench_cluster_play(const ru_bench_played *o, ru_arena *arena,
                                            double *mean_s, ru_err *err);
/* cluster_day.c: rows in virtual time. Errors: RU_E_BUG for an invariant that broke, with its seed.
 */
ru_status ru_bench_cluster_day(ru_bench *b, ru_err *err);

#endif
