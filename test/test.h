/* Unit tests: cmocka plus one suite per file.
 *
 * base/arena_test.c ends with RU_TESTS(base_arena, cmocka_unit_test(f), ...): the suite's name is
 * the path with '/' as '_' and without _test.c. scripts/suites collects the names at build time, so
 * that a new file needs one line in its folder's meson.build and nothing else.
 *
 * Thread: main only. */
#ifndef RU_TEST_TEST_H
#define RU_TEST_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/status.h"

typedef struct ru_test_suite {
    const char *name;
    const struct CMUnitTest *tests;
    size_t n;
} ru_test_suite;

#define RU_TESTS(suite, ...)                                            \
    static const struct CMUnitTest rui_tests_##suite[] = {__VA_ARGS__}; \
    extern const ru_test_suite ru_suite_##suite;                        \
    const ru_test_suite ru_suite_##suite = {#suite, rui_tests_##suite,  \
                                            sizeof rui_tests_##suite / sizeof(struct CMUnitTest)};

/* Seed of this run (--seed N, default fixed): every random test draws from it and prints it. */
uint64_t ru_test_seed(void);

/* Does a process of its own that calls f(self) end by abort, as a failed RU_CHECK does? */
bool ru_test_crashes(void (*f)(void *self), void *self);

/* Let `after` more allocations of this thread succeed and every later one fail; -1: none fails.
 * Counts from 0 again. For sweeps: for (k = 0; fails; k++) { ru_test_alloc_fail(k); ... }. */
void ru_test_alloc_fail(int64_t after);
int64_t ru_test_alloc_count(void); /* allocations asked for since then */

/* Let `at` more system calls of this thread pass, one fail and the rest pass again; -1: none fails.
 * Counts from 0 again. Which calls: test/fail_os.c. */
void ru_test_os_fail(int64_t at);
int64_t ru_test_os_count(void);
/* The process ends at the k-th call of this thread, as if it were killed. */
void ru_test_os_die(int64_t at);

/* The same of all threads of this process together: the k-th system call (`os`) or allocation
 * fails, those before and after it do not; k -1: none. Counts of both begin at 0 again. */
void ru_test_fail_everywhere(bool os, int64_t k);
int64_t ru_test_everywhere_count(bool os);
bool ru_test_fails_everywhere(bool os); /* this one? It is counted. */
/* How often this thread sent to sockets since it asked last, and how often as an end of record. */
void ru_test_os_sends(int64_t *all, int64_t *ends);

/* A status that must be RU_OK; prints the sentence when not. */
#define assert_ok(expr, err)            \
    do {                                \
        if ((expr) != RU_OK) {          \
            fail_msg("%s", (err).text); \
        }                               \
    } while (0)

/* |got - want| <= tol |want|, or <= tol where `want` is 0; prints both when not. */
#define assert_near(got, want, tol)                                                           \
    do {                                                                                      \
        double rui_got_ = (got), rui_want_ = (want);                                          \
        double rui_off_ = rui_got_ > rui_want_ ? rui_got_ - rui_want_ : rui_want_ - rui_got_; \
        double rui_size_ = rui_want_ < 0 ? -rui_want_ : rui_want_;                            \
        rui_size_ = rui_size_ > 0 ? rui_size_ : 1;                                            \
        if (!(rui_got_ == rui_want_ || rui_off_ <= (tol)*rui_size_)) {                        \
            fail_msg("%s is %.17g, not %.17g", #got, rui_got_, rui_want_);                    \
        }                                                                                     \
    } while (0)

#endif
