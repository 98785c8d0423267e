/* The device's worker threads.
 *
 * A pool runs a function on `threads` threads and waits for all; the caller is thread 0. oneDNN
 * uses the same team (OpenMP), so that two teams never compete for the cores. A pool of 1 runs
 * inline.
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

RU_API_END

/* Inside ru_pool_run: barrier of the team; every thread must call it equally often.
 * Cost: about 1 us while all threads have a core. */
void ru_pool_wait(void);

/* Set the calling thread's team size to the pool's size, for libraries without a pool of their own
 * (oneDNN); called at the start of every run. */
void ru_pool_enter(ru_pool *p);
/* Inside a run: until it is set again or the next run, the caller computes alone what the library
 * and ru_pool_run would give to the team; what the library split when it was asked first stays so.
 */
void ru_pool_narrow(ru_pool *p, bool on);
/* That of the executable (exec/exe.h), from its `poll`, for the steps to come: sums may then be of
 * another order. */
struct ru_exe;
void ru_exe_narrow(struct ru_exe *e, bool on);
/* The end of the run: from time to time decides how long waiting threads spin (exec/waits.h).
 * Cost: about 0.1 us. */
void ru_pool_leave(ru_pool *p);

/* Did a thread of the pool meet an invalid operation (IEEE 754: NaN compared or produced) since the
 * last call? Cost: one team for more than one thread. */
bool ru_pool_invalid(ru_pool *p);
/* Clear what the calling thread met outside the pool, and vector registers that may hold a NaN. */
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

#endif
