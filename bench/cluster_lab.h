/* Clusters in the network laboratory, for benchmarks: nodes are hosts of two slots behind a link
 * each. A worker has a part of a core, so that a slot is worth the same whoever has it.
 *
 * Thread: main only. */
#ifndef RU_BENCH_CLUSTER_LAB_H
#define RU_BENCH_CLUSTER_LAB_H

#include "bench/lab_run.h"
#include "env/process/process.h"
#include "plan/fleet/alloc.h"

enum { RU_BENCH_LAB_SLOTS = 2, RU_BENCH_LAB_ROUND_S = 2, RU_BENCH_LAB_DEMOTE_S = 20 };

typedef struct ru_bench_lab {
    ru_bench *b;
    ru_lab_run lab;              /* open */
    const char *folder, *set[6]; /* ru_bench_lab_name; set: environment of its commands */
    uint32_t nodes, percent;     /* percent: of a core, for each worker */
    bool restarts;               /* jobs whose slots change stop and start */
} ru_bench_lab;

/* A cluster whose folder has this name, in the laboratory that is open. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_bench_lab_name(ru_bench_lab *l, const char *name, ru_err *err);
/* A file beside the folder. Errors: RU_E_MEM, those of the disk. */
RU_MUST_USE ru_status ru_bench_lab_put(const ru_bench_lab *l, const char *name, const ru_text *text,
                                       ru_err *err);
/* `rubato cluster up`, in place of one that was interrupted; and `down`. Errors: RU_E_USER. */
RU_MUST_USE ru_status ru_bench_lab_start(const ru_bench_lab *l, ru_alloc_method m, ru_err *err);
RU_MUST_USE ru_status ru_bench_lab_end(const ru_bench_lab *l, bool quiet, ru_err *err);
/* Without a bound a slot would be worth what others leave. Errors: RU_E_MISSING. */
RU_MUST_USE ru_status ru_bench_lab_bounds(const ru_bench_lab *l, ru_err *err);

/* `rubato cluster WORDS` on the first host. *line: the first that it prints. Errors: RU_E_USER. */
RU_MUST_USE ru_status ru_bench_lab_ask(const ru_bench_lab *l, const char *const *words, bool quiet,
                                       const char **line, ru_err *err);
/* The same, which goes on meanwhile. Owner: the caller closes *out. */
RU_MUST_USE ru_status ru_bench_lab_tell(const ru_bench_lab *l, const char *const *words, bool quiet,
                                        ru_process **out, ru_err *err);
/* The text behind KEY in the row of a job in `ps --json`; "": there is none. */
const char *ru_bench_lab_field(const char *ps, uint32_t job, const char *key);
/* Until all workers of a job are in it, or it has ended (0). Errors: RU_E_AGAIN. */
RU_MUST_USE ru_status ru_bench_lab_workers(const ru_bench_lab *l, uint32_t job, uint32_t workers,
                                           ru_err *err);

/* cluster_link.c: submit a job, the cluster's next, and change its workers from one to two and back
 * [n]. gaps: the longest time between two steps at each change, seconds. The job is cancelled at
 * the end. Errors: RU_E_AGAIN when it does not follow. */
RU_MUST_USE ru_status ru_bench_lab_gaps(const ru_bench_lab *l, uint32_t job, double *gaps,
                                        uint32_t n, ru_err *err);

#endif
