/* Arena: alignment, bounds, mark and rewind. */
#include "base/arena.h"
#include "test/test.h"

static void test_alignment_and_zero(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    for (int64_t align = 1; align <= 4096; align *= 2) {
        uint8_t *p = ru_arena_zalloc(&a, 100, align);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (uintptr_t)align, 0);
        for (int i = 0; i < 100; i++) {
            assert_int_equal(p[i], 0);
            p[i] = 0xa5;
        }
    }
    ru_arena_fini(&a);
}

static void test_bound_is_kept(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 1000);
    assert_non_null(ru_arena_alloc(&a, 900, 1));
    assert_null(ru_arena_alloc(&a, 200, 1));
    assert_non_null(ru_arena_alloc(&a, 100, 1));
    ru_arena_fini(&a);
    uint8_t buf[64];
    ru_arena_init_fixed(&a, buf, sizeof buf);
    assert_non_null(ru_arena_alloc(&a, 64, 1));
    assert_null(ru_arena_alloc(&a, 1, 1));
    ru_arena_fini(&a);
}

static void test_rewind_gives_back(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    char *keep = ru_arena_str(&a, "keep");
    ru_arena_mark m = ru_arena_mark_get(&a);
    int64_t used = a.used_bytes;
    for (int i = 0; i < 100; i++) {
        assert_non_null(ru_arena_alloc(&a, 10000, 64));
    }
    ru_arena_rewind(&a, m);
    assert_int_equal(a.used_bytes, used);
    assert_string_equal(keep, "keep");
    ru_arena_fini(&a);
}

/* What is rewound to the beginning is there again without an allocation, however it was cut. */
static void test_scratch_is_kept(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    for (int round = 0; round < 4; round++) {
        ru_test_alloc_fail(round < 2 ? -1 : 0); /* from the third round on every malloc fails */
        for (int64_t part = 0; part < 3; part++) {
            ru_arena_mark mark = ru_arena_mark_get(&a);
            for (int64_t k = 0; k < 40; k++) {
                uint8_t *p = ru_arena_zalloc(&a, 1000 * (part + 1) + k, 8);
                assert_non_null(p);
                p[0] = 1;
            }
            ru_arena_rewind(&a, mark);
            assert_int_equal(a.used_bytes, 0);
        }
    }
    ru_test_alloc_fail(-1);
    ru_arena_fini(&a);
    assert_null(a.spare);
}

RU_TESTS(base_arena, cmocka_unit_test(test_scratch_is_kept),
         cmocka_unit_test(test_alignment_and_zero), cmocka_unit_test(test_bound_is_kept),
         cmocka_unit_test(test_rewind_gives_back))
