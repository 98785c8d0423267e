/* From the list of an executable to an input of `sums`: by hand. */
#include <string.h>

#include "plan/net/sums_policy.h"
#include "plan/row/policy.h"
#include "test/test.h"

/* Steps 0: reads the batch, 1: w1, 2: w1 and w2, 3: w3, 4: loss, 5: makes g3, 6: g2, 7: nothing,
 * 8: g1, 9: the gradient of the input, 10 and 11: updates. */
static const double took[12] = {10e3, 20e3, 30e3, 40e3, 5e3, 80e3, 60e3, 7e3, 41e3, 3e3, 6e3, 4e3};
static const ru_sums_grad grads[] = {
    {"loss", 40, 4, UINT32_MAX}, {"g3", 3000, 5, 3}, {"g2", 2000, 6, 2}, {"g1", 5000, 8, 1}};
static const ru_sums_facts facts = {
    .step_ns = took, .n_steps = 12, .update_from = 10, .grads = grads, .n_grads = 4, .n_ranks = 3};

static void a_list_becomes_ops(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_sums_policy_in in;
    ru_err err;
    assert_ok(ru_sums_policy_in_of(&facts, &a, &in, &err), err);
    /* Updates take 10 us: a half of it for 5000 of the 10000 bytes. Without a parameter that is
     * read, the loss comes last. */
    static const ru_sums_policy_op want[] = {{"other", 10000, 3000, 0, {NULL, 0}},
                                             {"g1", 25000, 48000, 5000, {NULL, 0}},
                                             {"g2", 32000, 60000, 2000, {NULL, 0}},
                                             {"g3", 43000, 80000, 3000, {NULL, 0}},
                                             {"loss", 0, 5000, 40, {NULL, 0}}};
    static const int64_t made[] = {4, 3, 2, 1, 0};
    assert_int_equal(in.ops.n, 5);
    assert_int_equal(in.made.n, 5);
    assert_memory_equal(in.made.at, made, sizeof made);
    for (uint32_t i = 0; i < 5; i++) {
        const ru_sums_policy_op *x = &in.ops.at[i];
        assert_string_equal(x->name, want[i].name);
        assert_int_equal(x->forward_ns, want[i].forward_ns);
        assert_int_equal(x->backward_ns, want[i].backward_ns);
        assert_int_equal(x->param_bytes, want[i].param_bytes);
        assert_int_equal(x->after.n, 0);
    }
    assert_ok(ru_fields_check(ru_policy_sums.in, &in, &err), err);
    ru_sums_in q;
    ru_sums_plan p;
    assert_ok(ru_sums_in_of(&in, &a, &q, &err), err);
    assert_ok(ru_plan_sums(&q, &a, &a, &p, &err), err);
    assert_ok(ru_plan_sums_check(&q, &p, &a, &err), err);
    assert_int_equal(p.compute_ns, 306000); /* the whole list */
    for (uint32_t k = 0; k < 4; k++) {      /* in the order of making, which the machine has */
        assert_int_equal(p.tensors[k], made[k]);
    }
    ru_arena_fini(&a);
}

static void costs_are_those_that_were_measured(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_sums_policy_in in;
    ru_err err;
    ru_coll_cost costs[RU_COLL_ALGOS] = {0};
    ru_sums_facts f = facts;
    const ru_coll_cost prior = ru_cost_coll_prior();
    f.costs = costs;
    assert_ok(ru_sums_policy_in_of(&f, &a, &in, &err), err);
    assert_true(in.bytes_per_s == 1e9 / prior.beta_ns);
    costs[RU_ALGO_DOUBLING] = (ru_coll_cost){.alpha_ns = 7000, .beta_ns = 2, .n_points = 3};
    assert_ok(ru_sums_policy_in_of(&f, &a, &in, &err), err);
    assert_true(in.q.alpha_ns == 7000 && in.bytes_per_s == 5e8);
    costs[RU_ALGO_RING] =
        (ru_coll_cost){.alpha_ns = 9000, .beta_ns = 4, .gamma_ns = 0.5, .n_points = 3};
    f.deterministic = true;
    assert_ok(ru_sums_policy_in_of(&f, &a, &in, &err), err);
    assert_true(in.q.alpha_ns == 9000 && in.bytes_per_s == 2.5e8 && in.added_bytes_per_s == 2e9);
    ru_sums_in q;
    assert_ok(ru_sums_in_of(&in, &a, &q, &err), err);
    assert_true(q.algos == 1u << RU_ALGO_DIRECT && q.beta_ns == 4 && q.gamma_ns == 0.5);
    /* Each algorithm goes by its own; none that was not measured is taken, nor the star, nor trees,
     * which are taken to cost what doubling does. */
    f.deterministic = false;
    costs[RU_ALGO_TREE] = costs[RU_ALGO_HIERARCHY] = costs[RU_ALGO_DIRECT] =
        costs[RU_ALGO_DOUBLING];
    costs[RU_ALGO_HALVING] = (ru_coll_cost){.alpha_ns = 5000, .n_points = 3}; /* no rate */
    assert_ok(ru_sums_policy_in_of(&f, &a, &in, &err), err);
    assert_ok(ru_fields_check(ru_policy_sums.in, &in, &err), err);
    assert_ok(ru_sums_in_of(&in, &a, &q, &err), err);
    assert_int_equal(q.algos, 1u << RU_ALGO_RING | 1u << RU_ALGO_DOUBLING);
    assert_memory_equal(&q.costs[RU_ALGO_DOUBLING], &costs[RU_ALGO_DOUBLING], sizeof *costs);
    assert_true(q.costs[RU_ALGO_RING].beta_ns == 4 && q.alpha_ns == 9000);
    ru_arena_fini(&a);
}

static void a_barrier_is_explained(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    for (uint32_t k = 0; k < 2; k++) {
        ru_sums_policy_in in;
        ru_err err;
        ru_sums_facts f = facts;
        f.barrier = true;
        f.why = k == 0 ? "clipping needs all gradients" : NULL;
        assert_ok(ru_sums_policy_in_of(&f, &a, &in, &err), err);
        const ru_policy_tools tools = {&a, &a, NULL};
        ru_policy_answer answer;
        assert_ok(ru_policy_run(&ru_policy_sums, &in, &tools, &answer, &err), err);
        assert_string_equal(answer.report.answers.at[3],
                            k == 0 ? "barrier: clipping needs all gradients"
                                   : "barrier: the input asks for it");
    }
    ru_arena_fini(&a);
}

static void lists_that_cannot_be_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_sums_policy_in in;
    ru_err err;
    for (uint32_t k = 0; k < 6; k++) {
        ru_sums_facts f = facts;
        ru_sums_grad g[4];
        memcpy(g, grads, sizeof g);
        f.grads = g;
        f.n_grads = k == 0 ? 0 : 4;
        f.n_ranks = k == 1 ? 1 : 3;
        g[2].made = k == 2 ? 4 : g[2].made;
        g[3].made = k == 3 ? 10 : g[3].made;
        g[1].size_bytes = k == 4 ? 0 : g[1].size_bytes;
        f.update_from = k == 5 ? 13 : 10;
        assert_int_equal(ru_sums_policy_in_of(&f, &a, &in, &err), k < 2 ? RU_E_MISSING : RU_E_ARG);
        assert_true(strlen(err.text) > 20);
    }
    ru_arena_fini(&a);
}

RU_TESTS(plan_sums_facts, cmocka_unit_test(a_list_becomes_ops),
         cmocka_unit_test(costs_are_those_that_were_measured),
         cmocka_unit_test(a_barrier_is_explained),
         cmocka_unit_test(lists_that_cannot_be_are_refused))
