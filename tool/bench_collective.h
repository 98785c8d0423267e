/* The collectives benchmark: teams of processes that all-reduce on demand.
 *
 * Thread: main only. */
#ifndef RU_TOOL_BENCH_COLLECTIVE_H
#define RU_TOOL_BENCH_COLLECTIVE_H

#include "tool/bench.h"

/* One rank of ours in shared memory: collective shm RANK RANKS BYTES_MAX. */
RU_MUST_USE ru_status ru_bench_coll_shm_worker(const char *const *words, uint32_t n, ru_err *err);
/* One rank of ours over TCP: collective net RANK RANKS BYTES_MAX ADDRESS0 ADDRESS1 ... */
RU_MUST_USE ru_status ru_bench_coll_net_worker(const char *const *words, uint32_t n, ru_err *err);

#endif
