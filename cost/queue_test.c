/* The queue of sums against a network that is played nanosecond by nanosecond. */
#include "cost/queue.h"

#include <string.h>

#include "base/rng.h"
#include "test/test.h"

enum { JOBS = 7 };

static uint32_t jobs_make(ru_rng *r, ru_queue_job *jobs)
{
    uint32_t n = 1 + ru_rng_below(r, JOBS);
    for (uint32_t i = 0; i < n; i++) {
        jobs[i] = (ru_queue_job){.class = ru_rng_below(r, 3) * 7,
                                 .size_bytes = 1 + ru_rng_below(r, 1000),
                                 .alone_ns = 1 + ru_rng_below(r, 60)};
        jobs[i].rest_ns = ru_rng_below(r, 3) == 0 ? 0 : ru_rng_below(r, (uint32_t)jobs[i].alone_ns);
    }
    return n;
}

/* The most urgent job that has bytes left; n: none. */
static uint32_t most_urgent(const ru_queue_job *jobs, uint32_t n)
{
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++) {
        bool first = best == n || jobs[i].class < jobs[best].class;
        best = jobs[i].rest_ns > 0 && first ? i : best;
    }
    return best;
}

static void test_carries_the_most_urgent_first(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 31);
    for (uint32_t turn = 0; turn < 3000; turn++) {
        ru_queue_job jobs[JOBS], played[JOBS];
        uint32_t n = jobs_make(&r, jobs), ns = ru_rng_below(&r, 200);
        memcpy(played, jobs, sizeof jobs);
        for (uint32_t t = 0; t < ns && most_urgent(played, n) < n; t++) {
            played[most_urgent(played, n)].rest_ns--;
        }
        ru_queue_carry(jobs, n, ns);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(jobs[i].rest_ns, played[i].rest_ns);
        }
    }
}

/* A job begins: it waits until the network has nothing as urgent, or for the chunk on the wire. */
static void test_waits_for_what_is_as_urgent(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 32);
    for (uint32_t turn = 0; turn < 3000; turn++) {
        ru_queue_job jobs[JOBS], played[JOBS];
        uint32_t n = jobs_make(&r, jobs), own = ru_rng_below(&r, n);
        jobs[own].rest_ns = 0;
        int64_t wire = 1 + ru_rng_below(&r, 500);
        memcpy(played, jobs, sizeof jobs);
        played[own].rest_ns = 1;
        int64_t wait = 0;
        while (most_urgent(played, n) != own) {
            played[most_urgent(played, n)].rest_ns--;
            wait++;
        }
        uint32_t other = most_urgent(jobs, n);
        bool chunk = wait == 0 && other < n;
        if (chunk) { /* less urgent, but it cannot be recalled */
            const ru_queue_job *j = &jobs[other];
            double ns = (double)j->alone_ns * (double)wire / (double)j->size_bytes;
            wait = ns < (double)j->rest_ns ? (int64_t)ns : j->rest_ns;
        }
        int64_t off = ru_queue_wait_ns(jobs, n, own, wire) - wait;
        assert_true(off == 0 || (chunk && off >= -1 && off <= 1)); /* a chunk's time is rounded */
    }
}

RU_TESTS(cost_queue, cmocka_unit_test(test_carries_the_most_urgent_first),
         cmocka_unit_test(test_waits_for_what_is_as_urgent))
