/* The integer program of `place` through the bound library: the same optimum as the search on small
 * graphs, valid bounds, plans that the checker takes. Without the library these tests are skipped.
 */
#include "base/rng.h"
#include "plan/cut/place.h"
#include "solve/solver.h"
#include "test/test.h"

enum { OPS = 9, EDGES = 12, DEVICES = 3, ROUNDS = 12 };

typedef struct drawn {
    ru_place_op ops[OPS];
    ru_place_edge edges[EDGES];
    ru_place_device devices[DEVICES];
    ru_place_in in;
} drawn;

/* `alike`: two devices and one kind of link; otherwise speeds, pins, groups and bytes differ. */
static void draw(drawn *g, ru_rng *r, bool alike)
{
    uint32_t n = 5 + ru_rng_below(r, OPS - 4), m = 0,
             n_devices = alike ? 2 : 2 + ru_rng_below(r, 2);
    for (uint32_t i = 0; i < n; i++) {
        g->ops[i] = (ru_place_op){.time_ns = 1000 * (1 + (int64_t)ru_rng_below(r, 50)),
                                  .bytes = 1 + ru_rng_below(r, 10),
                                  .group = !alike && ru_rng_below(r, 4) == 0 ? 0 : RU_PLACE_ANY,
                                  .pin = RU_PLACE_ANY,
                                  .given = RU_PLACE_ANY};
        for (uint32_t k = ru_rng_below(r, 3); i > 0 && k > 0 && m < EDGES; k--) {
            g->edges[m++] = (ru_place_edge){.from = ru_rng_below(r, i),
                                            .to = i,
                                            .time_ns = 1000 * (int64_t)ru_rng_below(r, 20),
                                            .bytes = alike ? 0 : ru_rng_below(r, 9000)};
        }
    }
    g->ops[n - 1].pin = alike ? RU_PLACE_ANY : 1;
    g->ops[n - 1].group = RU_PLACE_ANY;
    for (uint32_t d = 0; d < n_devices; d++) {
        g->devices[d] = (ru_place_device){alike ? 0 : 60, alike ? 1 : 0.5 + ru_rng_f64(r)};
    }
    g->in = (ru_place_in){.ops = g->ops,
                          .n = n,
                          .edges = g->edges,
                          .n_edges = m,
                          .devices = g->devices,
                          .n_devices = n_devices,
                          .bytes_per_s = 1e9,
                          .work_max = 2000000,
                          .seed = ru_rng_u32(r)};
}

static void program_agrees_with_the_search(void **state)
{
    (void)state;
    if (!ru_solver_has_milp()) {
        skip();
    }
    ru_rng r = ru_rng_from(ru_test_seed(), 81);
    uint32_t proven = 0, same = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        drawn g;
        ru_arena a;
        ru_err err;
        ru_place_plan alone, with, poor;
        ru_arena_init(&a, 0);
        draw(&g, &r, round % 2 == 0);
        assert_ok(ru_plan_place(&g.in, NULL, &a, &a, &alone, &err), err);
        g.in.nodes_max = 2000;
        assert_ok(ru_plan_place(&g.in, &ru_solver_library, &a, &a, &with, &err), err);
        g.in.work_max = 0; /* heuristics only: the program has something to find */
        assert_ok(ru_plan_place(&g.in, &ru_solver_library, &a, &a, &poor, &err), err);
        assert_ok(ru_plan_place_check(&g.in, &with, &a, &err), err);
        assert_ok(ru_plan_place_check(&g.in, &poor, &a, &err), err);
        assert_true(with.step_ns <= alone.step_ns);
        assert_true(alone.step_ns >= with.bound_ns && alone.step_ns >= poor.bound_ns);
        if (with.bound_ns == with.step_ns && poor.bound_ns == poor.step_ns) {
            assert_near((double)with.step_ns, (double)poor.step_ns, 1e-5 * (double)with.step_ns);
            proven++;
        }
        same += alone.step_ns == with.step_ns ? 1 : 0;
        ru_arena_fini(&a);
    }
    assert_true(2 * proven >= ROUNDS);
    assert_true(same + 1 >= ROUNDS);
}

static void sct_takes_its_children_from_the_library(void **state)
{
    (void)state;
    if (!ru_solver_has_lp()) {
        skip();
    }
    ru_rng r = ru_rng_from(ru_test_seed(), 82);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        drawn g;
        ru_arena a;
        ru_err err;
        ru_place_plan sct, search;
        ru_arena_init(&a, 0);
        draw(&g, &r, true);
        g.in.method = RU_PLACE_SCT;
        assert_ok(ru_plan_place(&g.in, &ru_solver_library, &a, &a, &sct, &err), err);
        assert_ok(ru_plan_place_check(&g.in, &sct, &a, &err), err);
        g.in.method = RU_PLACE_SEARCH;
        assert_ok(ru_plan_place(&g.in, &ru_solver_library, &a, &a, &search, &err), err);
        assert_true(search.step_ns <= sct.step_ns);
        ru_arena_fini(&a);
    }
}

RU_TESTS(test_place_program, cmocka_unit_test(program_agrees_with_the_search),
         cmocka_unit_test(sct_takes_its_children_from_the_library))
