/* Records by name: found while they are in, whatever the number; gone afterwards. */
#include "comm/chan/names.h"

#include "base/rng.h"
#include "test/test.h"

enum { MAX = 3000, ROUNDS = 60000 };

static void test_names_come_and_go(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    rui_name *records = RU_NEW(&a, rui_name, MAX);
    bool *in = RU_NEW(&a, bool, MAX);
    rui_names t;
    assert_true(rui_names_init(&t, &a, records, sizeof *records, MAX));
    ru_rng rng = ru_rng_from(ru_test_seed(), 1);
    uint32_t n = 0;
    for (uint32_t k = 0; k < ROUNDS; k++) {
        /* The table fills up, then empties. */
        uint32_t i = ru_rng_below(&rng, 1 + (k < ROUNDS / 2 ? k / 10 : (ROUNDS - k) / 10) % MAX);
        if (in[i]) {
            rui_names_remove(&t, i);
            n--;
        } else {
            records[i] = (rui_name){i / 7, i % 7, i % 3, RUI_NONE};
            rui_names_add(&t, i);
            n++;
        }
        in[i] = !in[i];
        assert_int_equal(t.n, n);
        uint32_t j = ru_rng_below(&rng, MAX);
        assert_int_equal(rui_names_find(&t, j / 7, j % 7, j % 3), in[j] ? j : RUI_NONE);
        assert_int_equal(rui_names_find(&t, i / 7, i % 7, i % 3), in[i] ? i : RUI_NONE);
        assert_int_equal(rui_names_find(&t, i / 7, i % 7, 3), RUI_NONE);
    }
    assert_true(t.mask > 1023); /* it grew */
    for (uint32_t i = 0; i < MAX; i++) {
        assert_int_equal(rui_names_find(&t, i / 7, i % 7, i % 3), in[i] ? i : RUI_NONE);
    }
    ru_arena_fini(&a);
}

RU_TESTS(comm_names, cmocka_unit_test(test_names_come_and_go))
