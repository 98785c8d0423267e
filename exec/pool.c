/* The device's team of threads, and how many cores this process may use.
 *
 * OpenMP's team is the only one: oneDNN (Debian's build) uses libgomp and accepts no other, and two
 * teams that share cores collapse (2 processes x 2 threads on 2 cores ran at 2 % of 2 x 1). The
 * team's size is an attribute of the calling thread, so ru_pool_run sets it each time: another pool
 * of the same thread may have another size. */
#include "exec/pool.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { POOL_THREADS_MAX = 1024 };

struct ru_pool {
    uint32_t threads;
};

/* First two numbers of a small file; "max" reads as -1. Returns how many were there. */
static int read_numbers(const char *path, int64_t *a, int64_t *b)
{
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return 0;
    }
    char text[128];
    size_t n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    char *end = text;
    if (text[0] == 'm') {
        *a = -1;
        end = text + 3;
    } else {
        *a = strtoll(text, &end, 10);
        if (end == text) {
            return 0;
        }
    }
    char *end2 = end;
    *b = strtoll(end, &end2, 10);
    return end2 == end ? 1 : 2;
}

/* Whole cores that the control group's quota allows; 0: no limit. */
static uint32_t cores_of_quota(void)
{
    int64_t quota = -1;
    int64_t period = 0;
    int64_t unused = 0;
    if (read_numbers("/sys/fs/cgroup/cpu.max", &quota, &period) != 2) {
        quota = -1;
        if (read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &quota, &unused) < 1 ||
            read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_period_us", &period, &unused) < 1) {
            return 0;
        }
    }
    if (quota <= 0 || period <= 0) {
        return 0;
    }
    int64_t cores = (quota + period - 1) / period;
    return cores > POOL_THREADS_MAX ? POOL_THREADS_MAX : (uint32_t)cores;
}

uint32_t ru_pool_cores(void)
{
    cpu_set_t set;
    uint32_t cores = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) {
        cores = (uint32_t)CPU_COUNT(&set);
    }
    uint32_t quota = cores_of_quota();
    return quota != 0 && quota < cores ? quota : cores;
}

ru_status ru_pool_new(uint32_t threads, ru_pool **out, ru_err *err)
{
    if (threads > POOL_THREADS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "%u threads asked for, at most %d are possible", threads,
                       POOL_THREADS_MAX);
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
