/* The device's team of threads, and how many cores this process may use.
 *
 * OpenMP's team is the only one: oneDNN (Debian's build) uses libgomp and accepts no other, and two
 * teams that share cores collapse (2 processes x 2 threads on 2 cores ran at 2 % of 2 x 1). The
 * team's size is an attribute of the calling thread, so ru_pool_run sets it each time: another pool
 * of the same thread may have another size. */
#include "exec/pool.h"

#include <fenv.h>
#include <omp.h>
#include <stdlib.h>

#include "env/groups.h"
#include "env/self.h"

enum { POOL_THREADS_MAX = 1024 };

struct ru_pool {
    uint32_t threads;
};

uint32_t ru_pool_cores(void)
{
    uint32_t cores = ru_self_cores();
    ru_arena a;
    ru_arena_init(&a, 0);
    uint32_t quota = ru_groups_cores(&a);
    ru_arena_fini(&a);
    return quota != 0 && quota < cores ? quota : cores;
}

ru_status ru_pool_new(uint32_t threads, ru_pool **out, ru_err *err)
{
    if (threads > POOL_THREADS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "%u threads were requested, but at most %d are possible",
                       threads, POOL_THREADS_MAX);
    }
    ru_pool *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a pool of threads");
    }
    p->threads = threads == 0 ? ru_pool_cores() : threads;
    ru_pool_enter(p);
    *out = p;
    return RU_OK;
}

void ru_pool_free(ru_pool *p)
{
    free(p);
}

uint32_t ru_pool_threads(const ru_pool *p)
{
    return p->threads;
}

void ru_pool_enter(const ru_pool *p)
{
    omp_set_dynamic(0);
    omp_set_num_threads((int)p->threads);
}

void ru_pool_run(ru_pool *p, ru_pool_fn fn, void *arg)
{
    if (p->threads == 1) {
        fn(arg, 0, 1);
        return;
    }
#pragma omp parallel num_threads((int)p->threads)
    {
        fn(arg, (uint32_t)omp_get_thread_num(), (uint32_t)omp_get_num_threads());
    }
}

void ru_pool_wait(void)
{
#pragma omp barrier
}

void ru_pool_valid(void)
{
    if (fetestexcept(FE_INVALID) != 0) {
        (void)feclearexcept(FE_INVALID);
    }
}

/* The flag is sticky and each thread has its own, so that one look after a run costs nothing in the
 * kernels. */
static bool invalid_here(void)
{
    bool any = fetestexcept(FE_INVALID) != 0;
    ru_pool_valid();
    return any;
}

bool ru_pool_invalid(ru_pool *p)
{
    if (p->threads == 1) {
        return invalid_here();
    }
    bool any = false;
#pragma omp parallel num_threads((int)p->threads) reduction(|| : any)
    {
        any = invalid_here();
    }
    return any;
}
