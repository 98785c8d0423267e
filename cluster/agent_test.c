/* What an agent hears: orders of a scheduler that led before another one change nothing. */
#include "cluster/agent_impl.h"

#include "test/test.h"

static bool hears(rui_agent *a, uint64_t epoch, uint64_t number)
{
    static uint8_t bytes[RU_CLUSTER_MESSAGE_BYTES];
    ru_cluster_orders *o = calloc(1, sizeof *o);
    assert_non_null(o);
    o->epoch = epoch;
    o->number = number;
    o->n = 1;
    o->at[0] = (ru_cluster_order){
        .job = 3, .generation = 1, .want = 2, .join = "", .out = "/o", .token = "t", .owner = "u"};
    int64_t n = ru_cluster_orders_put(o, bytes);
    free(o);
    assert_true(n > 0);
    return rui_agent_hear(a, bytes, n);
}

static void old_epochs_are_refused(void **state)
{
    (void)state;
    rui_agent *a = calloc(1, sizeof *a);
    assert_non_null(a);
    ru_arena_init(&a->heard_arena, 0);
    assert_true(hears(a, 0, 9)); /* a journal that one scheduler has alone */
    assert_true(hears(a, 7, 2)); /* numbers of another one may be smaller */
    assert_true(hears(a, 7, 3));
    assert_false(hears(a, 6, 10));
    assert_false(rui_agent_hear(a, "no orders", 9));
    assert_int_equal(a->heard.epoch, 7);
    assert_int_equal(a->heard.number, 3);
    assert_string_equal(a->heard.at[0].out, "/o");
    assert_true(hears(a, 8, 1));
    ru_arena_fini(&a->heard_arena);
    free(a);
}

RU_TESTS(cluster_agent, cmocka_unit_test(old_epochs_are_refused))
