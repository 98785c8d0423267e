/* The collectives benchmark: teams of processes that all-reduce on demand.
 *
 * Thread: main only. */
#ifndef RU_BENCH_COLLECTIVE_H
#define RU_BENCH_COLLECTIVE_H

#include "bench/bench.h"

enum { RUI_TEAM_MAX = 16, RUI_TEAM_ROUNDS_MAX = 7 };

/* The processes of one side. */
typedef struct rui_team {
    const char *name;
    const char *detail;  /* what it says of itself */
    const char *missing; /* not NULL: why it cannot be measured */
    struct ru_process *p[RUI_TEAM_MAX];
    uint32_t n;      /* processes that we talk to: ranks, or the starter of Open MPI */
    double per_op_s; /* of the last measurement: how many fit into a round */
    double took[RUI_TEAM_ROUNDS_MAX]; /* seconds of one operation */
} rui_team;

/* Start one more process of the team. */
RU_MUST_USE ru_status rui_team_start_one(rui_team *t, const char *const *argv, ru_err *err);
/* The line "ready REST" of process r; REST in the arena. */
RU_MUST_USE ru_status rui_team_ready(rui_team *t, uint32_t r, ru_arena *arena, const char **rest,
                                     ru_err *err);
/* Seconds of one operation in the mean of `times`; `extra` ends the line to the processes. */
RU_MUST_USE ru_status rui_team_run(rui_team *t, int64_t bytes, int64_t times, const char *extra,
                                   double *per_op_s, ru_err *err);
void rui_team_close(rui_team *t);
const char *rui_team_number(ru_arena *a, int64_t x);
const char *rui_team_size(ru_arena *a, int64_t bytes); /* "64 KiB" */

/* The rows of the additions alone. */
RU_MUST_USE ru_status rui_bench_coll_add(ru_bench *b, ru_err *err);
/* The rows on links of 1 Gbit/s. */
RU_MUST_USE ru_status rui_bench_coll_lab(ru_bench *b, uint32_t n, ru_err *err);
/* Compile the Open MPI side. */
RU_MUST_USE ru_status rui_bench_coll_mpi(ru_bench *b, const char **program, ru_err *err);

/* One rank of ours in shared memory: collective shm RANK RANKS BYTES_MAX. */
RU_MUST_USE ru_status ru_bench_coll_shm_worker(const char *const *words, uint32_t n, ru_err *err);
/* One rank of ours over TCP: collective net RANK RANKS BYTES_MAX ADDRESS0 ADDRESS1 ... */
RU_MUST_USE ru_status ru_bench_coll_net_worker(const char *const *words, uint32_t n, ru_err *err);

#endif
