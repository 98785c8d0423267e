/* The device's worker threads.
 *
 * A pool runs a function on `threads` threads and waits for all; the caller is thread 0. The team
 * is the same one oneDNN uses (OpenMP), so that two teams never fight for the cores. A pool of 1
 * runs inline.
 *
 * Thread: one caller at a time. */
#ifndef RU_EXEC_POOL_H
#define RU_EXEC_POOL_H

#include "base/status.h"

RU_API_BEGIN

typedef struct ru_pool ru_pool;

typedef void (*ru_pool_fn)(void *arg, uint32_t thread, uint32_t threads);

/* Cores this process may run on (affinity mask and cgroup quota), at least 1. */
uint32_t ru_pool_cores(void);

RU_MUST_USE ru_status ru_pool_new(uint32_t threads, ru_pool **out,
                                  ru_err *err); /* 0: ru_pool_cores */
void ru_pool_free(ru_pool *p);
uint32_t ru_pool_threads(const ru_pool *p);
void ru_pool_run(ru_pool *p, ru_pool_fn fn, void *arg);

/* Inside of ru_pool_run: wait until every thread of the team is here; each must call it as often.
 * Cost: about 1 us while all threads have a core. */
void ru_pool_wait(void);

/* Make the pool's size the calling thread's team size for libraries that bring no pool of their own
 * (oneDNN); at the start of every run. */
void ru_pool_enter(const ru_pool *p);

/* Has a thread of the pool met an invalid operation (IEEE 754: NaN compared or made) since it was
 * asked last? Cost: one team for more than one thread. */
bool ru_pool_invalid(ru_pool *p);
/* Forget what the calling thread met outside of the pool. */
void ru_pool_valid(void);

/* Part `k` of `parts` of [0, n), rounded to multiples of `grain` (the last part takes the rest). */
static inline void ru_pool_split(int64_t n, int64_t grain, uint32_t k, uint32_t parts,
                                 int64_t *begin, int64_t *end)
{
    int64_t blocks = (n + grain - 1) / grain;
    *begin = blocks * k / parts * grain;
    *end = blocks * (k + 1) / parts * grain;
    *end = *end > n ? n : *end;
    *begin = *begin > n ? n : *begin;
}

RU_API_END

#endif
