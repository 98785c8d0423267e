/* A ring of events in one process, and what a slow reader hears. */
#include "env/process/beside.h"

#include "env/process/self.h"
#include "test/test.h"

static void test_events_in_order(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_beside *s, *t;
    ru_beside_event e;
    const ru_beside_facts facts = {.service_s = 0.25, .promise_s = 1, .units = 1};
    assert_ok(ru_beside_open(ru_self_pid(), &facts, &s, &err), err);
    ru_beside_put(s, RU_BESIDE_ARRIVED, 1, (ru_time){5}); /* before the reader comes */
    assert_ok(ru_beside_map(ru_beside_handle(s), &t, &err), err);
    assert_true(ru_beside_facts_get(t)->service_s == 0.25);
    assert_false(ru_beside_next(t, &e));
    ru_beside_put(s, RU_BESIDE_BEGUN, 7, (ru_time){10});
    ru_beside_put(s, RU_BESIDE_ENDED, 8, (ru_time){20});
    ru_beside_wait(t, 1); /* there are some: returns */
    assert_true(ru_beside_next(t, &e) && e.kind == RU_BESIDE_BEGUN && e.at_ns == 10 &&
                e.value == 7);
    assert_true(ru_beside_next(t, &e) && e.kind == RU_BESIDE_ENDED && e.at_ns == 20);
    assert_false(ru_beside_next(t, &e));
    ru_beside_tell(t, &(ru_beside_figures){.ops = 3});
    assert_true(ru_beside_told(s).ops == 3 && ru_beside_reader(s) == ru_self_pid());
    assert_true(ru_beside_other_lives(s) && ru_beside_other_lives(t));
    ru_beside_close(t);
    ru_beside_close(s);
}

static void test_a_slow_reader_hears_that_it_lost_some(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_beside *s, *t;
    ru_beside_event e;
    const ru_beside_facts facts = {.service_s = 1};
    assert_ok(ru_beside_open(ru_self_pid(), &facts, &s, &err), err);
    assert_ok(ru_beside_map(ru_beside_handle(s), &t, &err), err);
    ru_beside_put(s, RU_BESIDE_ENDED, 0, (ru_time){0}); /* it came before the ring */
    for (int inside = 0; inside < 2; inside++) {
        for (int k = 0; k < RU_BESIDE_SLOTS; k++) {
            ru_beside_put(s, k % 2 == 0 ? RU_BESIDE_ARRIVED : RU_BESIDE_ENDED, 0, (ru_time){k});
        }
        if (inside == 1) {
            ru_beside_put(s, RU_BESIDE_ARRIVED, 0, (ru_time){0});
        }
        assert_true(ru_beside_next(t, &e) && e.kind == RU_BESIDE_LOST && e.value == inside);
        assert_false(ru_beside_next(t, &e));
    }
    ru_beside_close(t);
    ru_beside_close(s);
    assert_int_equal(ru_beside_open(INT64_C(1) << 40, &facts, &s, &err), RU_E_PEER);
}

RU_TESTS(env_beside, cmocka_unit_test(test_events_in_order),
         cmocka_unit_test(test_a_slow_reader_hears_that_it_lost_some))
