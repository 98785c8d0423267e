#include "exec/pool.h"

#include <omp.h>

#include "env/thread.h"
#include "test/test.h"

enum { ITEMS = 1000 };

typedef struct marks {
    unsigned char seen[ITEMS];
    uint32_t threads;
} marks;

static void mark(void *arg, uint32_t thread, uint32_t threads)
{
    marks *m = arg;
    int64_t begin = 0;
    int64_t end = 0;
    ru_pool_split(ITEMS, 16, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        m->seen[i]++;
    }
    if (thread == 0) {
        m->threads = threads;
    }
}

static void every_item_is_done_once(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        ru_err err = {0};
        ru_pool *p = NULL;
        assert_ok(ru_pool_new(threads, &p, &err), err);
        marks m = {0};
        ru_pool_run(p, mark, &m);
        assert_int_equal(m.threads, threads);
        for (int i = 0; i < ITEMS; i++) {
            assert_int_equal(m.seen[i], 1);
        }
        ru_pool_narrow(p, true);
        ru_pool_run(p, mark, &m);
        assert_int_equal(m.threads, 1);
        assert_int_equal(omp_get_max_threads(), 1);
        ru_pool_enter(p);
        ru_pool_run(p, mark, &m);
        assert_int_equal(m.threads, threads);
        assert_int_equal(omp_get_max_threads(), threads);
        assert_int_equal(m.seen[ITEMS - 1], 3);
        ru_pool_free(p);
    }
}

static void split_covers_any_range(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 70; n++) {
        for (uint32_t parts = 1; parts <= 5; parts++) {
            int64_t at = 0;
            for (uint32_t k = 0; k < parts; k++) {
                int64_t begin = 0;
                int64_t end = 0;
                ru_pool_split(n, 8, k, parts, &begin, &end);
                assert_int_equal(begin, at);
                assert_true(end >= begin);
                at = end;
            }
            assert_int_equal(at, n);
        }
    }
}

static void too_many_threads_is_an_error(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_pool *p = NULL;
    assert_int_equal(ru_pool_new(100000, &p, &err), RU_E_ARG);
    assert_true(ru_pool_cores() >= 1);
}

enum { CORES_MAX = 1024 };

static void count_cores(void *arg, uint32_t thread, uint32_t threads)
{
    uint32_t *cores = arg;
    uint32_t some[CORES_MAX];
    (void)threads;
    cores[thread] = ru_thread_cores_list(some, CORES_MAX);
}

static void as_many_threads_as_cores_have_one_each(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_pool *p = NULL;
    uint32_t cores[CORES_MAX] = {0}, n = (uint32_t)omp_get_num_procs();
    assert_ok(ru_pool_new(n, &p, &err), err);
    ru_pool_enter(p);
    ru_pool_run(p, count_cores, cores);
    ru_pool_leave(p);
    ru_pool_free(p);
    /* the caller keeps its right to all, unless OMP_PROC_BIND says where threads run */
    bool bound = omp_get_proc_bind() != omp_proc_bind_false;
    for (uint32_t k = 0; k < n && !bound; k++) {
        assert_int_equal(cores[k], k == 0 ? n : 1);
    }
}

RU_TESTS(exec_pool, cmocka_unit_test(as_many_threads_as_cores_have_one_each),
         cmocka_unit_test(every_item_is_done_once), cmocka_unit_test(split_covers_any_range),
         cmocka_unit_test(too_many_threads_is_an_error))
