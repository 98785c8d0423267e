/* Growing files and locks: what another process would see, through descriptors of its own. */
#include "env/file/grow.h"

#include <string.h>

#include "env/file/file.h"
#include "env/file/room.h"
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
    assert_int_equal(ru_grow_open(path, &again, &f->err), RU_E_AGAIN); /* its writer lives */
    assert_ok(ru_grow_claim(g, 1000, &f->err), f->err);
    assert_int_equal(ru_path_bytes(path), 1000);
    assert_int_equal(ru_dir_bytes(f->root), 1000);
    assert_ok(ru_grow_write(g, 3, "abc", 3, &f->err), f->err);
    ru_grow_close(g, 6);
    assert_ok(ru_file_read(path, 0, &f->arena, &data, &n, &f->err), f->err);
    assert_int_equal(n, 6);
    assert_memory_equal(data, "\0\0\0abc", 6);
    assert_ok(ru_grow_open(path, &again, &f->err), f->err);
    assert_int_equal(ru_grow_claimed(again), 6);
    assert_int_equal(ru_grow_open(path, &g, &f->err), RU_E_AGAIN);
    assert_ok(ru_grow_claim(again, 10, &f->err), f->err);
    assert_ok(ru_grow_write(again, 6, "d", 1, &f->err), f->err);
    ru_grow_close(again, 7);
    assert_ok(ru_file_read(path, 0, &f->arena, &data, &n, &f->err), f->err);
    assert_int_equal(n, 7);
    assert_memory_equal(data, "\0\0\0abcd", 7);
    for (int64_t k = 0; k < 2; k++) { /* shorter, and never longer */
        assert_ok(ru_grow_open(path, &g, &f->err), f->err);
        ru_grow_close(g, 4 + k * 36);
        assert_int_equal(ru_path_bytes(path), 4);
    }
    assert_ok(ru_grow_open(path, &g, &f->err), f->err);
    ru_grow_cut(g, 2);
    assert_int_equal(ru_path_bytes(path), 2);
    assert_ok(ru_grow_claim(g, 4, &f->err), f->err);
    ru_grow_close(g, INT64_MAX);
    assert_ok(ru_file_read(path, 0, &f->arena, &data, &n, &f->err), f->err);
    assert_int_equal(n, 4);
    assert_memory_equal(data, "\0\0\0", 4);
    ru_grow_close(NULL, 0);
    assert_int_equal(ru_grow_open(f->root, &g, &f->err), RU_E_CREATE);
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
/* What is taken stands in the lock file: what comes without that is seen when it is forgotten. */
static void test_room(void **state)
{
    ru_scratch *f = *state;
    const char *a = ru_path_join(&f->arena, f->root, "a"),
               *b = ru_path_join(&f->arena, f->root, "b");
    const ru_room r = {
        .lock = ru_path_join(&f->arena, a, "room"), .folders = {a, b}, .quota_bytes = 1000};
    ru_lock *l;
    assert_ok(ru_dir_make(a, &f->err), f->err);
    assert_ok(ru_file_own(ru_path_join(&f->arena, a, "x"), "0123456789", 10, &f->err), f->err);
    assert_int_equal(ru_room_left(&r, NULL), 990); /* there is no folder b */
    assert_ok(ru_dir_make(b, &f->err), f->err);
    assert_ok(ru_file_own(ru_path_join(&f->arena, b, "x"), "01234", 5, &f->err), f->err);
    assert_int_equal(ru_room_left(&r, NULL), 990);
    ru_room_forget(&r, NULL);
    assert_int_equal(ru_room_left(&r, NULL), 985 - 16); /* the lock file */
    assert_ok(ru_lock_open(r.lock, true, true, &l, &f->err), f->err);
    ru_room_take(&r, l, 100);
    assert_int_equal(ru_room_left(&r, l), 885 - 16);
    ru_room_forget(&r, l);
    ru_room_take(&r, l, 100); /* nobody knows of what */
    assert_int_equal(ru_room_left(&r, l), 985 - 16);
    ru_room_take(&r, l, 2000);
    ru_lock_close(l);
    assert_int_equal(ru_room_left(&r, NULL), -1015 - 16);
    ru_room_give(&r, ru_room_hold(&r), 5000);
    assert_int_equal(ru_room_left(&r, NULL), 1000);
    assert_ok(ru_file_own(r.lock, "0123456789abcdef", 16, &f->err), f->err); /* no number */
    assert_int_equal(ru_room_left(&r, NULL), 985 - 16);
}

RU_TESTS(env_grow, T(test_growing), T(test_locks), T(test_stamps), T(test_room))
