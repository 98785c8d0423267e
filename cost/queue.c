/* Walks the jobs by urgency: one pass over all for each class that there is. */
#include "cost/queue.h"

typedef struct turn {
    int64_t class;
    uint32_t next;
} turn;

/* The least class above `class` that a job under way has; -1: none. */
static int64_t class_after(const ru_queue_job *jobs, uint32_t n, int64_t class)
{
    int64_t least = -1;
    for (uint32_t i = 0; i < n; i++) {
        bool later = jobs[i].rest_ns > 0 && jobs[i].class > class;
        least = later && (least < 0 || jobs[i].class < least) ? jobs[i].class : least;
    }
    return least;
}

/* The next job under way, n at the end; `at` begins with class -1, next n. */
static uint32_t next_of(const ru_queue_job *jobs, uint32_t n, turn *at)
{
    for (;;) {
        while (at->next < n) {
            uint32_t i = at->next++;
            if (jobs[i].rest_ns > 0 && jobs[i].class == at->class) {
                return i;
            }
        }
        at->class = class_after(jobs, n, at->class);
        at->next = 0;
        if (at->class < 0) {
            return n;
        }
    }
}

void ru_queue_carry(ru_queue_job *jobs, uint32_t n, int64_t ns)
{
    turn at = {-1, n};
    for (uint32_t i; ns > 0 && (i = next_of(jobs, n, &at)) < n;) {
        int64_t took = jobs[i].rest_ns < ns ? jobs[i].rest_ns : ns;
        jobs[i].rest_ns -= took;
        ns -= took;
    }
}

static int64_t on_wire_ns(const ru_queue_job *j, int64_t wire_bytes)
{
    double part = (double)wire_bytes / (double)j->size_bytes;
    int64_t ns = part < 1 ? (int64_t)((double)j->alone_ns * part) : j->alone_ns;
    return ns < j->rest_ns ? ns : j->rest_ns;
}

int64_t ru_queue_wait_ns(const ru_queue_job *jobs, uint32_t n, uint32_t own, int64_t wire_bytes)
{
    RU_CHECK(own < n && jobs[own].size_bytes > 0);
    int64_t wait_ns = 0;
    turn at = {-1, n};
    for (uint32_t i; (i = next_of(jobs, n, &at)) < n;) {
        bool behind =
            jobs[i].class > jobs[own].class || (jobs[i].class == jobs[own].class && i > own);
        if (behind) {
            return wait_ns > 0 ? wait_ns : on_wire_ns(&jobs[i], wire_bytes);
        }
        wait_ns += jobs[i].rest_ns;
    }
    return wait_ns;
}
