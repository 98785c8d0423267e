/* Growing files and locks: what another process would see, through descriptors of its own. */
#include "env/file/grow.h"

#include <string.h>

#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"

static void test_growing(void **state)
{
    ru_scratch *f = *state;
    const char *path = ru_path_join(&f->arena, f->root, "a.seg");
    ru_grow *g, *again;
    char *data;
    int64_t n;
    assert_ok(ru_grow_open(path, &g, &f->err), f->err);
    assert_int_equal(ru_grow_open(path, &again, &f->err), RU_E_CREATE);
    assert_ok(ru_grow_claim(g, 1000, &f->err), f->err);
    assert_int_equal(ru_path_bytes(path), 1000);
    assert_int_equal(ru_dir_bytes(f->root), 1000);
    assert_ok(ru_grow_write(g, 3, "abc", 3, &f->err), f->err);
    assert_false(ru_grow_cut(path, 6)); /* its writer lives */
    ru_grow_close(g, 6);
    assert_ok(ru_file_read(path, 0, &f->arena, &data, &n, &f->err), f->err);
    assert_int_equal(n, 6);
    assert_memory_equal(data, "\0\0\0abc", 6);
    assert_true(ru_grow_cut(path, 4));
    assert_true(ru_grow_cut(path, 40)); /* never longer */
    assert_int_equal(ru_path_bytes(path), 4);
    assert_false(ru_grow_cut(ru_path_join(&f->arena, f->root, "none"), 0));
}

static void test_locks(void **state)
{
    ru_scratch *f = *state;
    const char *path = ru_path_join(&f->arena, f->root, "lock");
    ru_lock *a, *b, *c;
    assert_ok(ru_lock_open(path, false, false, &a, &f->err), f->err);
    assert_ok(ru_lock_open(path, false, false, &b, &f->err), f->err);
    assert_int_equal(ru_lock_open(path, true, false, &c, &f->err), RU_E_AGAIN);
    ru_lock_close(a);
    ru_lock_close(b);
    assert_ok(ru_lock_open(path, true, false, &c, &f->err), f->err);
    assert_int_equal(ru_lock_open(path, false, false, &a, &f->err), RU_E_AGAIN);
    ru_lock_close(c);
    assert_true(ru_path_changed_ns(path) > 0);
    assert_true(ru_dir_is_own(f->root));
    assert_false(ru_dir_is_own(path));
}

static void test_stamps(void **state)
{
    ru_scratch *f = *state;
    const char *path = ru_path_join(&f->arena, f->root, "data");
    assert_true(ru_path_stamp(path) == 0);
    assert_ok(ru_file_replace(path, "abc", 3, &f->err), f->err);
    uint64_t first = ru_path_stamp(path);
    assert_true(first != 0 && first == ru_path_stamp(path));
    assert_ok(ru_file_replace(path, "abcd", 4, &f->err), f->err);
    assert_true(first != ru_path_stamp(path));
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(env_grow, T(test_growing), T(test_locks), T(test_stamps))
