#include "exec/pool.h"

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

RU_TESTS(exec_pool, cmocka_unit_test(every_item_is_done_once),
         cmocka_unit_test(split_covers_any_range), cmocka_unit_test(too_many_threads_is_an_error))
