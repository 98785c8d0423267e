/* Scripts of ops that need parameters: their play in virtual time takes as long as plan/net/order.h
 * predicts, which is a second account of the same step. */
#include "lab/worlds/script_ops.h"

#include <string.h>

#include "base/rng.h"
#include "plan/net/order.h"
#include "test/test.h"

enum { N_MAX = 24 };

/* One worker, one link of 1 byte a ns, parameters in the order of the plan's pieces. */
static int64_t play(const ru_script_ops *ops, const ru_order_plan *plan, ru_arena *a)
{
    ru_script_ops_play p;
    ru_err err;
    int64_t now = 0, link = 0;
    uint32_t k = 0, op;
    assert_ok(ru_script_ops_open(ops, a, &p, &err), err);
    ru_script_ops_begin(&p);
    while (p.n_done < ops->n) {
        while (k < plan->n_pieces && link + plan->pieces[k].size_bytes <= now) {
            link += plan->pieces[k].size_bytes;
            ru_script_ops_arrived(&p, plan->pieces[k++].op);
        }
        if (ru_script_ops_next(&p, &op)) {
            now += ops->op_ns[op];
            ru_script_ops_done(&p, op);
        } else {
            assert_true(k < plan->n_pieces); /* else it stands still */
            now = link + plan->pieces[k].size_bytes;
        }
    }
    return now;
}

static void test_play_takes_what_the_plan_predicts(void **state)
{
    (void)state;
    static const ru_order_method methods[] = {RU_ORDER_TAC, RU_ORDER_TIC, RU_ORDER_RANDOM,
                                              RU_ORDER_REVERSE};
    ru_rng rng = ru_rng_from(ru_test_seed(), 0);
    for (uint32_t round = 0; round < 400; round++) {
        ru_arena a, scratch;
        ru_err err;
        ru_arena_init(&a, 0);
        ru_arena_init(&scratch, 0);
        int64_t op_ns[N_MAX], need[N_MAX];
        ru_step_edge edges[N_MAX * 2];
        ru_script_ops ops = {.n = 1 + ru_rng_below(&rng, N_MAX), .op_ns = op_ns, .need = need};
        for (uint32_t i = 0; i < ops.n; i++) {
            op_ns[i] = 1 + ru_rng_below(&rng, 1000);
            need[i] = ru_rng_below(&rng, 2) * (1 + ru_rng_below(&rng, 1000));
            for (uint32_t e = 0; i > 0 && e < ru_rng_below(&rng, 3); e++) {
                edges[ops.n_edges++] = (ru_step_edge){ru_rng_below(&rng, i), i};
            }
        }
        ops.edges = edges;
        const ru_order_in in = {.n = ops.n,
                                .op_ns = op_ns,
                                .param_bytes = need,
                                .edges = edges,
                                .n_edges = ops.n_edges,
                                .link = {.bytes_per_s = 1e9},
                                .workers = 1,
                                .slice_bytes = 1 << 20,
                                .partition_bytes = 1 << 20,
                                .credit_bytes = 1 << 20,
                                .seed = round,
                                .method = methods[round % RU_ARRAY_LEN(methods)]};
        ru_order_plan plan;
        assert_ok(ru_plan_order(&in, &a, &scratch, &plan, &err), err);
        assert_int_equal(play(&ops, &plan, &a), plan.step_ns);
        ru_arena_fini(&scratch);
        ru_arena_fini(&a);
    }
}

RU_TESTS(lab_script_ops, cmocka_unit_test(test_play_takes_what_the_plan_predicts))
