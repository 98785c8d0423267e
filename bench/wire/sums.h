/* The benchmark of sums: four processes on hosts of their own that compute nothing and sum the
 * gradients of a published graph, grouped by the plan of `sums` or by a baseline.
 *
 * Thread: main only. */
#ifndef RU_BENCH_SUMS_H
#define RU_BENCH_SUMS_H

#include "bench/bench.h"
#include "plan/net/sums_policy.h"
#include "train/script/process.h"

/* A graph's step as a list: its ops in order, then their backward passes in reverse. */
typedef struct rui_sums_graph {
    double *step_ns; /* [n_steps] */
    uint32_t n_steps, n_grads;
    ru_sums_grad *grads;      /* [n_grads] as they are made */
    double natural_ns, bytes; /* of the list, of all gradients */
} rui_sums_graph;

/* What loads the input takes no time. Owner: `arena`. Errors: those of the file, RU_E_DATA for a
 * circle or a graph without parameters, RU_E_MEM. */
RU_MUST_USE ru_status rui_sums_graph_read(const char *path, ru_arena *arena, rui_sums_graph *g,
                                          ru_err *err);

/* What each process of a run is told, as a file. */
typedef struct rui_sums_job {
    ru_script script;
    uint32_t founders;
    int64_t steps;
    const ru_sums_cut *table; /* [n_table]; n_table 0: the job's own, before it measures */
    uint32_t n_table, flight; /* flight: sums under way at once */
    bool held, serial;        /* each step waits for all sums; as ru_script_run_options has it */
} rui_sums_job;

RU_MUST_USE ru_status rui_sums_write(const char *path, const rui_sums_job *job, ru_arena *arena,
                                     ru_err *err);

/* words: sums-work NUMBER LISTEN ADDRESS|- FILE. Prints "STEP_NS CPU_NS": the median step without
 * the first two, and processor time. */
RU_MUST_USE ru_status rui_sums_role(const char *const *words, uint32_t n, ru_err *err);

RU_MUST_USE ru_status ru_bench_sums(ru_bench *b, ru_err *err);

#endif
