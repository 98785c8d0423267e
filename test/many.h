/* Tests that repeat.
 *
 * Thread: any. */
#ifndef RU_TEST_MANY_H
#define RU_TEST_MANY_H

#include <stdint.h>

/* How many of `all` seeds or members a test takes: all; in builds with debug checks one of `of`.
 * Those have sanitizers and take several times as long. They look for mistakes on each path, and
 * few seeds take each path; rare orders of events are for the builds without. */
static inline uint64_t ru_test_many(uint64_t all, uint64_t of)
{
#ifdef RU_DEBUG
    return (all + of - 1) / of;
#else
    (void)of;
    return all;
#endif
}

#endif
