/* The device's team of threads, and how many cores this process may use.
 *
 * OpenMP's team is the only one: oneDNN (Debian's build) uses libgomp and accepts no other, and two
 * teams that share cores collapse (2 processes x 2 threads on 2 cores ran at 2 % of 2 x 1). The
 * team's size is an attribute of the calling thread, so ru_pool_run sets it each time: another pool
 * of the same thread may have another size.
 *
 * How long waiting threads spin is fixed when libgomp is loaded, but it spins for 100 rounds only
 * while its threads are more than the cores (its manual, GOMP_SPINCOUNT). So that waits become
 * brief beside other work (waits.h), a helper thread holds a second team that only sleeps. Regions
 * of 2 us of work on two threads beside 25 busy processes on 2 cores: 500 to 5,000 us with long
 * waits, 16 to 160 us with brief ones.
 *
 * A team of as many threads as there are cores has one core for each thread. The others of the team
 * stay on theirs; the caller goes back to its own when it was woken on one of them, and keeps the
 * right to use all (threads that it starts inherit that). Reductions over 256 KiB on 2 threads and
 * 2 cores of a virtual machine: 6,100 to 21,000 runs/s where the kernel put the threads, 55,000
 * with a core each. */
#include "exec/pool.h"

#include <errno.h>
#include <fenv.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "env/clock.h"
#include "env/process/cores.h"
#include "env/process/groups.h"
#include "env/process/self.h"
#include "env/thread.h"
#include "exec/waits.h"

enum { POOL_THREADS_MAX = 1024, CROWD_MAX_S = 10 /* longer than waits stay brief untried */ };
/* Moves of the caller: a pause of 2 ms after the first one, doubled while others take its core. */
static const int64_t pause_min_ns = 2000000, pause_max_ns = 1000000000, look_ns = 50000000;

struct ru_pool {
    uint32_t threads;
    uint32_t *cores; /* [threads] one for each thread; NULL: fewer than cores */
    pthread_t caller;
    int64_t look_at_ns, go_at_ns, pause_ns; /* when the team is looked at, the caller may move */
    int64_t entered_ns;
    bool narrow;
    rui_waits waits;
    /* the team that only sleeps */
    uint32_t crowd; /* its threads; 0: the pool alone is more than the cores */
    pthread_t helper;
    bool helps, stop;
    pthread_mutex_t mutex;
    pthread_cond_t stopped;
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
    uint32_t procs = (uint32_t)omp_get_num_procs();
    p->crowd = p->threads > procs ? 0 : procs - p->threads + 2;
    if (p->threads > 1 && p->threads == procs && omp_get_proc_bind() == omp_proc_bind_false) {
        p->cores = calloc(procs, sizeof *p->cores); /* without them it is only slower */
    }
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->stopped, NULL);
    ru_pool_enter(p);
    *out = p;
    return RU_OK;
}

/* The helper ends by itself when nobody runs any more, so that an idle pool slows no other one. */
static void *crowd_main(void *arg)
{
    ru_pool *p = arg;
    struct timespec until;
    uint32_t met = 0;
    omp_set_dynamic(0);
#pragma omp parallel num_threads((int)p->crowd) reduction(+ : met)
    {
        met++;
    }
    (void)met;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CROWD_MAX_S;
    pthread_mutex_lock(&p->mutex);
    while (!p->stop && pthread_cond_timedwait(&p->stopped, &p->mutex, &until) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

static void crowd_set(ru_pool *p, bool there)
{
    if (p->helps) {
        pthread_mutex_lock(&p->mutex);
        p->stop = true;
        pthread_cond_signal(&p->stopped);
        pthread_mutex_unlock(&p->mutex);
        pthread_join(p->helper, NULL);
        p->helps = p->stop = false;
    }
    /* Without a helper waits stay long, which is only slower. */
    p->helps = there && pthread_create(&p->helper, NULL, crowd_main, p) == 0;
}

void ru_pool_free(ru_pool *p)
{
    if (p != NULL) {
        crowd_set(p, false);
        pthread_mutex_destroy(&p->mutex);
        pthread_cond_destroy(&p->stopped);
        free(p->cores);
        free(p);
    }
}

uint32_t ru_pool_threads(const ru_pool *p)
{
    return p->threads;
}

/* A team may have new threads: libgomp ends those that a smaller team does not need. */
static void take_cores(ru_pool *p)
{
    if (ru_thread_cores_list(p->cores, p->threads) < p->threads) {
        return; /* the caller was given fewer cores since */
    }
    (void)ru_cores_go(p->cores[0]);
#pragma omp parallel num_threads((int)p->threads)
    {
        int k = omp_get_thread_num();
        if (k > 0) {
            (void)ru_cores_stay(p->cores[k]);
        }
    }
}

static void keep_apart(ru_pool *p, int64_t now_ns)
{
    /* Each caller has a team of its own; callers that take turns are not looked at in each run. */
    bool other = !pthread_equal(p->caller, pthread_self());
    if (now_ns >= p->look_at_ns - (other ? look_ns - pause_min_ns : 0)) {
        p->caller = pthread_self();
        p->look_at_ns = now_ns + look_ns;
        take_cores(p);
    } else if (!other && now_ns >= p->go_at_ns && (uint32_t)ru_cores_here() != p->cores[0]) {
        bool again = now_ns < p->go_at_ns + 8 * p->pause_ns;
        int64_t longer = 2 * p->pause_ns < pause_max_ns ? 2 * p->pause_ns : pause_max_ns;
        p->pause_ns = again ? longer : pause_min_ns;
        p->go_at_ns = now_ns + p->pause_ns;
        (void)ru_cores_go(p->cores[0]);
    }
}

void ru_pool_enter(ru_pool *p)
{
    omp_set_dynamic(0);
    ru_pool_narrow(p, false);
    p->entered_ns = p->threads > 1 ? ru_clock_now().ns : 0;
    if (p->cores != NULL) {
        keep_apart(p, p->entered_ns);
    }
}

/* libgomp keeps the others of its team: a team of one is no region. */
void ru_pool_narrow(ru_pool *p, bool on)
{
    p->narrow = on;
    omp_set_num_threads(on ? 1 : (int)p->threads);
}

void ru_pool_leave(ru_pool *p)
{
    if (p->threads == 1 || p->crowd == 0) {
        return;
    }
    int64_t now_ns = ru_clock_now().ns;
    if (rui_waits_ran(&p->waits, now_ns - p->entered_ns)) {
        bool brief = p->waits.brief;
        rui_waits_judge(&p->waits, now_ns, ru_self_preempted());
        if (p->waits.brief != brief) {
            crowd_set(p, p->waits.brief);
        }
    }
}

bool ru_pool_crowded(const ru_pool *p)
{
    return p->waits.brief;
}

void ru_pool_run(ru_pool *p, ru_pool_fn fn, void *arg)
{
    if (p->threads == 1 || p->narrow) {
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

#if defined(__x86_64__)
/* oneDNN's convolutions for AMX (2.6, bf16 with a fused activation) apply the activation also to
 * registers that they have not loaded. A NaN that an earlier kernel left there would count as met.
 */
__attribute__((target("avx512f"))) static void clear_registers(void)
{
#define CLEAR(n) __asm__ volatile("vpxord %%zmm" n ", %%zmm" n ", %%zmm" n ::: "xmm" n)
    CLEAR("16");
    CLEAR("17");
    CLEAR("18");
    CLEAR("19");
    CLEAR("20");
    CLEAR("21");
    CLEAR("22");
    CLEAR("23");
    CLEAR("24");
    CLEAR("25");
    CLEAR("26");
    CLEAR("27");
    CLEAR("28");
    CLEAR("29");
    CLEAR("30");
    CLEAR("31");
#undef CLEAR
}
#endif

void ru_pool_valid(void)
{
    if (fetestexcept(FE_INVALID) != 0) {
        (void)feclearexcept(FE_INVALID);
    }
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        clear_registers();
    }
#endif
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
