/* Threads on pthreads. A failing lock operation is a broken invariant, not an error. */
#include "env/thread.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct start_args {
    void (*fn)(void *);
    void *arg;
    char name[16];
} start_args;

static void *entry(void *raw)
{
    start_args a = *(start_args *)raw;
    free(raw);
    pthread_setname_np(pthread_self(), a.name);
    a.fn(a.arg);
    return NULL;
}

ru_status ru_thread_start(ru_thread *t, const char *name, void (*fn)(void *), void *arg,
                          ru_err *err)
{
    start_args *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to start the thread '%s'", name);
    }
    a->fn = fn;
    a->arg = arg;
    snprintf(a->name, sizeof a->name, "%.15s", name);
    int rc = pthread_create(&t->handle, NULL, entry, a);
    if (rc != 0) {
        free(a);
        return RU_FAIL(err, RU_E_LIMIT,
                       "cannot start the thread '%s': %s; raise the limit on processes (ulimit -u)",
                       name, strerror(rc));
    }
    t->started = true;
    return RU_OK;
}

void ru_thread_join(ru_thread *t)
{
    if (t->started) {
        int rc = pthread_join(t->handle, NULL);
        RU_CHECK(rc == 0);
        t->started = false;
    }
}

void ru_thread_cores(uint64_t mask)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t k = 0; k < 64; k++) {
        if ((mask >> k) & 1) {
            CPU_SET(k, &set);
        }
    }
    if (mask != 0) {
        (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    }
}

/* As the kernel knows it; not in every libc. */
struct sched_attr_0 {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

void ru_thread_prompt(void)
{
    /* Since Linux 6.12 a thread that asks for a short slice comes before one with a long slice when
     * it wakes, as long as it takes less than its share; older kernels ignore it. */
    struct sched_attr_0 a = {.size = sizeof a, .runtime_ns = 100000};
    errno = 0;
    a.nice = getpriority(PRIO_PROCESS, 0);
    if (errno == 0) {
        (void)syscall(SYS_sched_setattr, 0, &a, 0);
    }
}

uint32_t ru_thread_cores_list(uint32_t *into, uint32_t max)
{
    cpu_set_t set;
    uint32_t n = 0;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 0;
    }
    for (uint32_t k = 0; k < CPU_SETSIZE && n < max; k++) {
        if (CPU_ISSET(k, &set)) {
            into[n++] = k;
        }
    }
    return n;
}

void ru_flag_set(ru_flag *f, uint32_t v)
{
    __atomic_store_n(&f->v, v, __ATOMIC_RELEASE);
}

uint32_t ru_flag_get(const ru_flag *f)
{
    return __atomic_load_n(&f->v, __ATOMIC_ACQUIRE);
}

void ru_mutex_init(ru_mutex *m)
{
    int rc = pthread_mutex_init(&m->m, NULL);
    RU_CHECK(rc == 0);
}

void ru_mutex_fini(ru_mutex *m)
{
    int rc = pthread_mutex_destroy(&m->m);
    RU_CHECK(rc == 0);
}

void ru_mutex_lock(ru_mutex *m)
{
    int rc = pthread_mutex_lock(&m->m);
    RU_CHECK(rc == 0);
}

void ru_mutex_unlock(ru_mutex *m)
{
    int rc = pthread_mutex_unlock(&m->m);
    RU_CHECK(rc == 0);
}

void ru_cond_init(ru_cond *c)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    rc |= pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc |= pthread_cond_init(&c->c, &attr);
    pthread_condattr_destroy(&attr);
    RU_CHECK(rc == 0);
}

void ru_cond_fini(ru_cond *c)
{
    int rc = pthread_cond_destroy(&c->c);
    RU_CHECK(rc == 0);
}

void ru_cond_wait(ru_cond *c, ru_mutex *m)
{
    int rc = pthread_cond_wait(&c->c, &m->m);
    RU_CHECK(rc == 0);
}

bool ru_cond_wait_for(ru_cond *c, ru_mutex *m, int64_t timeout_ns)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    int64_t at = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec + timeout_ns;
    ts.tv_sec = at / 1000000000;
    ts.tv_nsec = at % 1000000000;
    int rc = pthread_cond_timedwait(&c->c, &m->m, &ts);
    RU_CHECK(rc == 0 || rc == ETIMEDOUT);
    return rc == 0;
}

void ru_cond_signal(ru_cond *c)
{
    int rc = pthread_cond_signal(&c->c);
    RU_CHECK(rc == 0);
}

void ru_cond_broadcast(ru_cond *c)
{
    int rc = pthread_cond_broadcast(&c->c);
    RU_CHECK(rc == 0);
}

ru_thread_slot *ru_thread_trace_slot(void)
{
    static _Thread_local ru_thread_slot slot;
    return &slot;
}
