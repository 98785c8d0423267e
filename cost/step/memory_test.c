/* Peaks of memory: every step counted by hand, and a small graph. */
#include "cost/step/memory.h"

#include "base/rng.h"
#include "test/test.h"
#include "world/graph/build.h"

static void test_the_peak_is_that_of_every_step_counted(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 31);
    for (uint32_t turn = 0; turn < 300; turn++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_memory_use uses[20];
        uint32_t n = ru_rng_below(&r, 20);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t first = ru_rng_below(&r, 12);
            uses[i] = (ru_memory_use){ru_rng_below(&r, 500), first, first + ru_rng_below(&r, 6)};
        }
        int64_t most = 0;
        uint32_t at = 0;
        for (uint32_t step = 0; step < 20; step++) {
            int64_t live = 0;
            for (uint32_t i = 0; i < n; i++) {
                bool in = uses[i].first <= step && step <= uses[i].last;
                live += in ? (uses[i].size_bytes + 63) / 64 * 64 : 0;
            }
            at = live > most ? step : at;
            most = live > most ? live : most;
        }
        ru_memory_peak p;
        ru_err err;
        assert_ok(ru_cost_memory(uses, n, 64, &a, &p, &err), err);
        assert_int_equal(p.bytes, most);
        assert_int_equal(p.step, at);
        ru_arena_fini(&a);
    }
}

/* y = relu(x w) + x: the product dies in the sum, which is the output. */
static void test_a_graph(void **state)
{
    (void)state;
    ru_arena a;
    ru_graph g;
    ru_build b;
    ru_err err;
    ru_arena_init(&a, 0);
    assert_ok(ru_graph_init(&g, &a, "g", &err), err);
    ru_build_init(&b, &g);
    int64_t xs[] = {8, 16}, ws[] = {16, 16};
    static const float zeros[256];
    ru_value_id x = ru_build_input(&b, "x", ru_type_make(RU_F32, 2, xs));
    ru_value_id w = ru_build_param(&b, "w", ru_type_make(RU_F32, 2, ws), zeros);
    ru_value_id p = ru_build_op2(&b, RU_OP_MatMul, x, w, NULL);
    ru_value_id s = ru_build_op1(&b, RU_OP_Relu, p, NULL);
    ru_value_id y = ru_build_op2(&b, RU_OP_Add, s, x, NULL);
    ru_build_output(&b, y, "y");
    assert_ok(ru_build_finish(&b, &err), err);
    ru_memory_graph m;
    assert_ok(ru_cost_memory_graph(&g, &a, &m, &err), err);
    assert_int_equal(m.state_bytes, 1024);
    assert_int_equal(m.io_bytes, 512);
    assert_int_equal(m.temps.bytes, 1024); /* two of 512 at a time */
    ru_arena_fini(&a);
}

static void test_bad_lifetimes(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_memory_peak p;
    const ru_memory_use bad[] = {{-1, 0, 0}, {1, 2, 1}};
    for (uint32_t k = 0; k < 2; k++) {
        assert_int_equal(ru_cost_memory(&bad[k], 1, 64, &a, &p, NULL), RU_E_ARG);
    }
    const ru_memory_use large[] = {{INT64_C(1) << 61, 0, 0}, {INT64_C(3) << 61, 0, 0}};
    assert_int_equal(ru_cost_memory(large, 2, 64, &a, &p, NULL), RU_E_LIMIT);
    assert_int_equal(ru_cost_memory(bad, 0, 0, &a, &p, NULL), RU_E_ARG);
    ru_arena_fini(&a);
}

RU_TESTS(cost_memory, cmocka_unit_test(test_the_peak_is_that_of_every_step_counted),
         cmocka_unit_test(test_a_graph), cmocka_unit_test(test_bad_lifetimes))
