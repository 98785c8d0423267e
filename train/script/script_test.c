/* The play of a script by hand: when gradients are ready, and which part of the update is left. */
#include "train/script/script.h"

#include "test/test.h"

static void test_gradients_are_ready_when_the_script_says(void **state)
{
    (void)state;
    static const int64_t bytes[] = {100, 200, 300, 400};
    static const double ready[] = {0.4, 0.4, 0.5, 0.9}; /* the last one ends the step */
    const ru_script s = {.fixed_ns = 1000,
                         .sample_ns = 100,
                         .idle_ns = 7,
                         .size_bytes = bytes,
                         .ready = ready,
                         .n = 4};
    ru_script_play p;
    ru_script_begin(&p, &s, 10, 2, false); /* 4,000 ns */
    assert_int_equal(ru_script_compute(&p), 1600);
    assert_int_equal(p.n_ready, 2);
    assert_int_equal(ru_script_compute(&p), 400);
    assert_int_equal(p.n_ready, 3);
    assert_int_equal(ru_script_compute(&p), 2000);
    assert_int_equal(p.n_ready, 4);
    ru_script_begin(&p, &s, 0, 2, false); /* no share */
    int64_t ns = 0;
    while (p.n_ready < s.n) {
        ns += ru_script_compute(&p);
    }
    assert_int_equal(ns, 7);
}

static void test_the_update_is_done_once(void **state)
{
    (void)state;
    static const int64_t bytes[] = {100, 300};
    static const double ready[] = {0.5, 1};
    ru_script s = {.sample_ns = 10, .update_ns = 4000, .size_bytes = bytes, .ready = ready, .n = 2};
    ru_script_play p;
    ru_script_begin(&p, &s, 1, 1, false);
    ru_script_summed(&p, 100);
    assert_int_equal(ru_script_update_early(&p), 0); /* not wanted */
    assert_int_equal(ru_script_update(&p), 4000);
    s.early = true;
    ru_script_begin(&p, &s, 1, 1, false);
    assert_int_equal(ru_script_update_early(&p), 0);
    ru_script_summed(&p, 100);
    assert_int_equal(ru_script_update_early(&p), 1000);
    assert_int_equal(ru_script_update_early(&p), 0);
    ru_script_summed(&p, 200);
    assert_int_equal(ru_script_update_early(&p), 2000);
    assert_int_equal(ru_script_update(&p), 1000);
}

/* Ahead: the last gradient's parameter at once, the others at their times, the gradients as ever.
 */
static void test_parameters_are_needed_one_by_one(void **state)
{
    (void)state;
    static const int64_t bytes[] = {100, 200, 300};
    static const double ready[] = {0.6, 0.8, 1}, need[] = {0.5, 0.2, 0};
    const ru_script s = {
        .sample_ns = 1000, .size_bytes = bytes, .ready = ready, .need = need, .n = 3};
    static const int64_t took[] = {200, 300}; /* to the need of 1, of 0 */
    ru_script_play p;
    uint32_t k = 9;
    ru_script_begin(&p, &s, 1, 1, true);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(ru_script_needs(&p, &k));
        assert_int_equal(k, 2 - i);
        ru_script_has(&p);
        assert_false(ru_script_needs(&p, &k));
        if (i < 2) {
            assert_int_equal(ru_script_compute(&p), took[i]);
            assert_int_equal(p.n_ready, 0);
        }
    }
    assert_int_equal(ru_script_compute(&p), 100);
    assert_int_equal(p.n_ready, 1);
    assert_int_equal(ru_script_compute(&p), 200);
    assert_int_equal(ru_script_compute(&p), 200);
    assert_int_equal(p.n_ready, 3);
}

RU_TESTS(train_script, cmocka_unit_test(test_parameters_are_needed_one_by_one),
         cmocka_unit_test(test_gradients_are_ready_when_the_script_says),
         cmocka_unit_test(test_the_update_is_done_once))
