#include "env/process/cores.h"

#include <sched.h>

#include "env/thread.h"
#include "test/test.h"

enum { MAX = 64 };

static void a_thread_moves_and_keeps_its_cores(void **state)
{
    (void)state;
    uint32_t before[MAX], after[MAX];
    uint32_t n = ru_thread_cores_list(before, MAX);
    assert_true(n >= 1);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(ru_cores_go(before[i]));
        assert_int_equal(ru_thread_cores_list(after, MAX), n);
        assert_memory_equal(after, before, n * sizeof *after);
    }
    assert_true(ru_cores_here() >= 0);
}

static void a_thread_that_stays_has_one_core(void **state)
{
    (void)state;
    uint32_t before[MAX], after[MAX];
    uint32_t n = ru_thread_cores_list(before, MAX);
    cpu_set_t mine;
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    assert_true(ru_cores_stay(before[n - 1]));
    assert_int_equal(ru_cores_here(), before[n - 1]);
    assert_int_equal(ru_thread_cores_list(after, MAX), 1);
    assert_int_equal(after[0], before[n - 1]);
    assert_false(n > 1 && ru_cores_go(before[0]));
    assert_int_equal(sched_setaffinity(0, sizeof mine, &mine), 0);
}

static void a_core_that_may_not_be_used_changes_nothing(void **state)
{
    (void)state;
    uint32_t before[MAX], after[MAX];
    uint32_t n = ru_thread_cores_list(before, MAX);
    assert_false(ru_cores_go(UINT32_MAX));
    assert_false(ru_cores_stay(1000000));
    assert_int_equal(ru_thread_cores_list(after, MAX), n);
}

RU_TESTS(env_cores, cmocka_unit_test(a_thread_moves_and_keeps_its_cores),
         cmocka_unit_test(a_thread_that_stays_has_one_core),
         cmocka_unit_test(a_core_that_may_not_be_used_changes_nothing))
