#include "test/test.h"
#include "train/engine/engine_impl.h"

/* However many join, all are in after some views, each of which tells about as much. */
static void test_joiners_come_in_views(void **state)
{
    (void)state;
    assert_int_equal(rui_map_admitted(1, 0), 1);
    assert_int_equal(rui_map_admitted(16, 15), 16);     /* few: at once */
    assert_int_equal(rui_map_admitted(256, 255), 256);  /* 65,280 records */
    assert_int_equal(rui_map_admitted(1000, 500), 565); /* 65 of the 500 */
    assert_int_equal(rui_map_admitted(1000, 0), 1000);  /* nobody who is in goes */
    assert_int_equal(rui_map_admitted(100000, 50000), 50016);
    for (uint32_t n = 1; n <= 5000; n = n * 3 / 2 + 1) {
        uint32_t members = n / 2, views = 0;
        while (members < n) {
            uint32_t next = rui_map_admitted(n, n - members);
            assert_true(next > members && next <= n);
            assert_true(next - members <= 16 || (next - members) * n <= 65536);
            members = next;
            views++;
        }
        assert_true(views <= 1 + (uint64_t)n * n / 65536);
    }
}

RU_TESTS(train_engine_map, cmocka_unit_test(test_joiners_come_in_views))
