/* The choice between algorithms: crossovers at the closed form, brute force over the model, and
 * corrupted plans. */
#include "plan/net/coll.h"
#include "test/test.h"

#include <string.h>

#include "base/rng.h"

static ru_coll_choice_plan choose(const ru_coll_choice_in *in, ru_arena *a)
{
    ru_coll_choice_plan plan = {0};
    ru_err err;
    assert_ok(ru_plan_coll_choose(in, a, &plan, &err), err);
    assert_ok(ru_plan_coll_choose_check(in, &plan, &err), err);
    return plan;
}

/* Ring and doubling of 4 ranks, alpha 100 us, beta 8 ns: 2 (a + S b) = 6 a + 1.5 S b, so they meet
 * at S = 8 a / b. */
static void test_crossover(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_coll_cost costs[RU_COLL_ALGOS] = {{0}};
    ru_coll_cost c = {.alpha_ns = 100e3, .beta_ns = 8, .n_points = 8};
    costs[RU_ALGO_RING] = costs[RU_ALGO_DOUBLING] = c;
    int64_t sizes[] = {0, 1024, 99000, 101000, 64 << 20};
    ru_coll_choice_in in = {
        .n_ranks = 4, .costs = costs, .sizes_bytes = sizes, .n_sizes = RU_ARRAY_LEN(sizes)};
    ru_coll_choice_plan plan = choose(&in, &a);
    assert_int_equal(plan.at[1].algo, RU_ALGO_DOUBLING);
    assert_int_equal(plan.at[2].algo, RU_ALGO_DOUBLING);
    assert_int_equal(plan.at[3].algo, RU_ALGO_RING);
    assert_int_equal(plan.at[4].algo, RU_ALGO_RING);
    /* c = 6 a / (0.05 * 1.5 b) = 1 MB, in whole 64 KiB */
    assert_int_equal(plan.at[4].chunk_bytes, 16 << 16);
    in.overhead = 0.01;
    plan = choose(&in, &a);
    assert_int_equal(plan.at[4].chunk_bytes, 77 << 16);
    in.delay_max_ns = 5000000; /* D c beta <= 5 ms: one chunk of at most 625 kB */
    plan = choose(&in, &a);
    assert_true(plan.at[4].chunk_bytes * 8 * plan.at[4].depth <= in.delay_max_ns);
    ru_arena_fini(&a);
}

/* 8 ranks, where doubling sends 3 buffers and ring 1.75: what a probe cannot tell apart goes to the
 * ring from 256 KiB on, a difference of 8 % or a small size does not. */
static void test_ties_of_large_ones_go_to_who_sends_least(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_coll_cost costs[RU_COLL_ALGOS] = {{0}};
    int64_t sizes[] = {64 << 10, 256 << 10};
    ru_coll_choice_in in = {.n_ranks = 8, .costs = costs, .sizes_bytes = sizes, .n_sizes = 2};
    static const double ring_more[] = {1.04, 1.08};
    for (uint32_t k = 0; k < 2; k++) {
        costs[RU_ALGO_RING] = (ru_coll_cost){.beta_ns = ring_more[k] * 3 / 1.75, .n_points = 2};
        costs[RU_ALGO_DOUBLING] = (ru_coll_cost){.beta_ns = 1, .n_points = 2};
        ru_coll_choice_plan plan = choose(&in, &a);
        assert_int_equal(plan.at[0].algo, RU_ALGO_DOUBLING);
        assert_int_equal(plan.at[1].algo, k == 0 ? RU_ALGO_RING : RU_ALGO_DOUBLING);
    }
    ru_arena_fini(&a);
}

static void draw_costs(ru_rng *r, ru_coll_cost *costs)
{
    for (uint32_t k = 0; k < RU_COLL_ALGOS; k++) {
        costs[k] = (ru_coll_cost){.alpha_ns = ru_rng_uniform(r, 1e3, 1e6),
                                  .beta_ns = ru_rng_uniform(r, 0.05, 10),
                                  .n_points = ru_rng_below(r, 4)};
    }
    costs[RU_ALGO_RING].n_points = costs[RU_ALGO_DIRECT].n_points = 8;
}

/* No algorithm, in one piece or in chunks by the rule at any depth, beats the choice by more than
 * what cutting may cost. */
static void test_nothing_beats_the_choice(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(ru_test_seed(), 5);
    ru_coll_cost costs[RU_COLL_ALGOS];
    for (uint32_t k = 0; k < 300; k++) {
        draw_costs(&r, costs);
        int64_t sizes[12];
        for (uint32_t i = 0; i < 12; i++) {
            sizes[i] = (1024ll << 2 * (i % 9)) + ru_rng_below(&r, 1000);
        }
        ru_coll_choice_in in = {.n_ranks = 2 + ru_rng_below(&r, 40),
                                .costs = costs,
                                .sizes_bytes = sizes,
                                .n_sizes = 12,
                                .deterministic = k % 5 == 0};
        ru_coll_choice_plan plan = choose(&in, &a);
        for (uint32_t i = 0; i < 12; i++) {
            for (uint32_t g = 0; g < RU_COLL_ALGOS; g++) {
                bool may = costs[g].n_points > 0 && (!in.deterministic || g == RU_ALGO_DIRECT);
                int64_t ns = ru_cost_coll_ns(&costs[g], RU_COLL_ALL_REDUCE, (ru_coll_algo)g,
                                             in.n_ranks, sizes[i]);
                assert_true(!may || (double)plan.at[i].predicted_ns <= 1.05 * (double)ns + 1);
            }
        }
    }
    ru_arena_fini(&a);
}

static void refuse(const ru_coll_choice_in *in, const ru_coll_choice_plan *plan)
{
    assert_int_equal(ru_plan_coll_choose_check(in, plan, NULL), RU_E_INFEASIBLE);
}

static void test_corrupted_choices_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(ru_test_seed(), 6);
    ru_coll_cost costs[RU_COLL_ALGOS];
    draw_costs(&r, costs);
    costs[RU_ALGO_TREE].n_points = 0;
    int64_t sizes[] = {4096, 1 << 20, 256 << 20};
    ru_coll_choice_in in = {.n_ranks = 6, .costs = costs, .sizes_bytes = sizes, .n_sizes = 3};
    ru_coll_choice_plan plan = choose(&in, &a);
    ru_coll_choice bad[3];
    plan.n = 2;
    refuse(&in, &plan);
    plan.n = 3;
    for (uint32_t i = 0; i < 3; i++) {
        ru_coll_choice_plan wrong = {.at = bad, .n = 3};
        memcpy(bad, plan.at, sizeof bad);
        bad[i].predicted_ns += 2;
        refuse(&in, &wrong);
        bad[i] = plan.at[i];
        bad[i].algo = RU_ALGO_TREE;
        refuse(&in, &wrong);
        bad[i].algo = RU_COLL_ALGOS;
        refuse(&in, &wrong);
        bad[i] = plan.at[i];
        bad[i].depth = 0;
        refuse(&in, &wrong);
        bad[i].depth = 9;
        refuse(&in, &wrong);
        bad[i] = plan.at[i];
        bad[i].chunk_bytes = 100;
        refuse(&in, &wrong);
    }
    ru_arena_fini(&a);
}

/* What is assumed of algorithms that were not measured, by hand. */
static void test_assumptions(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_coll_cost costs[RU_COLL_ALGOS] = {{0}};
    int64_t sizes[] = {1024, 64 << 20};
    ru_coll_choice_in in = {
        .n_ranks = 8, .costs = costs, .sizes_bytes = sizes, .n_sizes = 2, .assume = true};
    ru_coll_choice_plan plan = choose(&in, &a);
    assert_int_equal(plan.at[0].algo, RU_ALGO_DIRECT); /* two steps */
    in.mesh_max = 7;
    plan = choose(&in, &a);
    assert_int_equal(plan.at[0].algo, RU_ALGO_DOUBLING);
    in.n_ranks = 4; /* 2 members of each of two hosts share memory */
    in.n_hosts = in.host_most = 2;
    plan = choose(&in, &a);
    assert_int_equal(plan.at[1].algo, RU_ALGO_HIERARCHY);
    ru_coll_cost prior = ru_cost_coll_prior();
    ru_coll_cost near = ru_cost_coll_hierarchy(&prior, 4, 2, 2);
    /* 2 steps of 30 us, twice 40 us inside; 0.8 + 0.3 + 0.2 ns a byte */
    assert_int_equal(ru_cost_coll_ns(&near, RU_COLL_ALL_REDUCE, RU_ALGO_HIERARCHY, 4, 1 << 20),
                     140000 + 1363148);
    in.only = 1 + RU_ALGO_TREE;
    in.whole = true;
    plan = choose(&in, &a);
    assert_true(plan.at[1].algo == RU_ALGO_TREE && plan.at[1].chunk_bytes == sizes[1]);
    ru_arena_fini(&a);
}

/* An algorithm that a rule forbids is refused, however good it is. */
static void test_forbidden_algorithms_are_refused(void **state)
{
    (void)state;
    ru_coll_cost costs[RU_COLL_ALGOS] = {{0}};
    int64_t size = 1024;
    for (uint32_t algo = 0; algo < RU_COLL_ALGOS; algo++) {
        costs[algo] = (ru_coll_cost){.alpha_ns = 1000, .beta_ns = 1, .n_points = 2};
    }
    for (uint32_t algo = 0; algo < RU_COLL_ALGOS; algo++) {
        ru_coll_cost keep = costs[algo];
        ru_coll_choice_in in = {
            .n_ranks = 8, .costs = costs, .sizes_bytes = &size, .n_sizes = 1, .only = 1 + algo};
        ru_coll_choice c = {.algo = (ru_coll_algo)algo, .chunk_bytes = size, .depth = 1};
        c.predicted_ns = ru_cost_coll_ns(&keep, in.op, c.algo, 8, size);
        const ru_coll_choice_plan plan = {.at = &c, .n = 1};
        assert_int_equal(ru_plan_coll_choose_check(&in, &plan, NULL), RU_OK);
        in.only = 1 + (algo + 1) % RU_COLL_ALGOS;
        refuse(&in, &plan);
        in.only = 0;
        in.deterministic = algo != RU_ALGO_DIRECT;
        in.mesh_max = 7;
        if (in.deterministic || algo == RU_ALGO_RING || algo == RU_ALGO_DIRECT) {
            refuse(&in, &plan);
        }
        in = (ru_coll_choice_in){
            .n_ranks = 8, .costs = costs, .sizes_bytes = &size, .n_sizes = 1, .only = 1 + algo};
        costs[algo].n_points = 0;
        refuse(&in, &plan);
        costs[algo] = keep;
    }
}

static void test_bad_questions(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_coll_cost costs[RU_COLL_ALGOS] = {{0}};
    int64_t size = -1;
    ru_coll_choice_plan plan;
    ru_err err;
    ru_coll_choice_in in = {.n_ranks = 4, .costs = costs, .sizes_bytes = &size, .n_sizes = 1};
    assert_int_equal(ru_plan_coll_choose(&in, &a, &plan, &err), RU_E_ARG);
    size = 1;
    assert_int_equal(ru_plan_coll_choose(&in, &a, &plan, &err), RU_E_INFEASIBLE);
    assert_string_equal(err.text, "no measured algorithm can do all-reduce");
    in.n_ranks = 0;
    assert_int_equal(ru_plan_coll_choose(&in, &a, &plan, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

RU_TESTS(plan_coll_choose, cmocka_unit_test(test_crossover),
         cmocka_unit_test(test_ties_of_large_ones_go_to_who_sends_least),
         cmocka_unit_test(test_nothing_beats_the_choice),
         cmocka_unit_test(test_corrupted_choices_are_refused), cmocka_unit_test(test_assumptions),
         cmocka_unit_test(test_forbidden_algorithms_are_refused),
         cmocka_unit_test(test_bad_questions))
