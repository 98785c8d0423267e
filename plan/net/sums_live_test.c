/* Tables of plans, and when to plan again: by hand. */
#include "plan/net/sums_live.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

/* Losses, then the gradients of three layers, the last layer's first. */
static const ru_sums_grad grads[] = {
    {"loss", 40, 4, UINT32_MAX}, {"g3", 300000, 5, 3}, {"g2", 200000, 6, 2}, {"g1", 500000, 8, 1}};
static const int64_t sizes[] = {40, 300000, 200000, 500000}; /* ops as the gradients are made */
static const ru_sums_in question = {.n = 4,
                                    .param_bytes = sizes,
                                    .forward_ns = sizes,
                                    .backward_ns = sizes,
                                    .n_ranks = 2,
                                    .alpha_ns = 1000,
                                    .beta_ns = 1,
                                    .algos = 1u << RU_ALGO_RING,
                                    .depth_max = 1};
static const uint32_t tensors[] = {0, 1, 2, 3};

static void a_plan_becomes_a_table(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_sums_part *parts;
    uint32_t n;
    const ru_sums_bucket buckets[] = {
        {.first = 0, .n = 2, .size_bytes = 300040, .chunk_bytes = 100000, .algo = RU_ALGO_RING},
        {.first = 2, .n = 2, .size_bytes = 700000, .chunk_bytes = 700000, .algo = RU_ALGO_RING}};
    ru_sums_plan p = {.tensors = tensors,
                      .n_tensors = 4,
                      .buckets = buckets,
                      .n_buckets = 2,
                      .n_pieces = 5,
                      .depth = 1};
    assert_ok(ru_sums_table(&question, &p, grads, 4, &a, &parts, &n, &err), err);
    /* A ring of two takes 2 alpha and the bytes. The first layer is read before the third; a report
     * waits for losses. */
    static const ru_sums_part want[] = {{0, 1, 40, 40, 1, 1 + RU_ALGO_RING, 0, 2040},
                                        {1, 1, 300000, 100000, 1, 1 + RU_ALGO_RING, 2, 306000},
                                        {2, 2, 700000, 700000, 1, 1 + RU_ALGO_RING, 1, 702000}};
    assert_int_equal(n, 3);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(parts[i].first, want[i].first);
        assert_int_equal(parts[i].n, want[i].n);
        assert_int_equal(parts[i].size_bytes, want[i].size_bytes);
        assert_int_equal(parts[i].chunk_bytes, want[i].chunk_bytes);
        assert_int_equal(parts[i].depth, want[i].depth);
        assert_int_equal(parts[i].only, want[i].only);
        assert_int_equal(parts[i].rank, want[i].rank);
        assert_int_equal(parts[i].predicted_ns, want[i].predicted_ns);
    }
    assert_int_equal(ru_sums_table(&question, &p, grads, 3, &a, &parts, &n, &err), RU_E_ARG);
    assert_int_equal(ru_sums_table(&question, &p, grads + 1, 4, &a, &parts, &n, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

/* Every gradient once, in order; ranks are a permutation that rises with the first use. */
static void tables_hold_every_gradient_once(void **state)
{
    (void)state;
    enum { N = 40 };
    ru_rng r = ru_rng_from(ru_test_seed(), 3);
    ru_arena a;
    ru_arena_init(&a, 0);
    for (uint32_t round = 0; round < 30; round++) {
        ru_sums_grad g[N];
        double took[2 * N + 1];
        ru_sums_policy_in file;
        ru_sums_in in;
        ru_sums_plan p;
        ru_sums_part *parts;
        uint32_t n;
        ru_err err;
        for (uint32_t k = 0; k < N; k++) {
            g[k] = (ru_sums_grad){"", 4 * (1 + ru_rng_below(&r, 200000)), N + k,
                                  ru_rng_below(&r, 6) == 0 ? UINT32_MAX : ru_rng_below(&r, N)};
        }
        for (uint32_t i = 0; i <= 2 * N; i++) {
            took[i] = 1e5 * ru_rng_f64(&r);
        }
        const ru_sums_facts f = {.step_ns = took,
                                 .n_steps = 2 * N + 1,
                                 .update_from = 2 * N,
                                 .grads = g,
                                 .n_grads = N,
                                 .n_ranks = 4,
                                 .method = RU_SUMS_RULE};
        assert_ok(ru_sums_policy_in_of(&f, &a, &file, &err), err);
        assert_ok(ru_sums_in_of(&file, &a, &in, &err), err);
        assert_ok(ru_plan_sums(&in, &a, &a, &p, &err), err);
        assert_ok(ru_plan_sums_check(&in, &p, &a, &err), err);
        assert_ok(ru_sums_table(&in, &p, g, N, &a, &parts, &n, &err), err);
        uint32_t next = 0, use[N];
        memset(use, 0xff, sizeof use);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(parts[i].first, next);
            int64_t size = 0;
            uint32_t least = UINT32_MAX;
            for (uint32_t k = next; k < next + parts[i].n; k++) {
                size += g[k].size_bytes;
                least = g[k].used < least ? g[k].used : least;
            }
            assert_int_equal(parts[i].size_bytes, size);
            assert_true(parts[i].rank < n && use[parts[i].rank] == UINT32_MAX);
            use[parts[i].rank] = least == UINT32_MAX ? 0 : 1 + least;
            next += parts[i].n;
        }
        assert_int_equal(next, N);
        for (uint32_t k = 1; k < n; k++) {
            assert_true(use[k] >= use[k - 1]);
        }
    }
    ru_arena_fini(&a);
}

/* Every byte once, in order; whole elements; not many more cuts than there may be. */
static void cuts_hold_every_byte_once(void **state)
{
    (void)state;
    enum { N = 60, CUTS = 64 };
    static const ru_sums_method methods[] = {RU_SUMS_CARAMEL, RU_SUMS_SERIAL, RU_SUMS_NONE,
                                             RU_SUMS_DDP};
    ru_rng r = ru_rng_from(ru_test_seed(), 5);
    for (uint32_t round = 0; round < 40; round++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_err err;
        int64_t bytes[N], whole = 0, done = 0;
        for (uint32_t k = 0; k < N; k++) {
            bytes[k] = 4 * (1 + (int64_t)ru_rng_below(&r, round % 2 == 0 ? 3000 : 30000000));
            whole += bytes[k];
        }
        ru_sums_part *parts;
        ru_sums_cut *cuts;
        uint32_t n_parts, n, next = 0;
        ru_sums_method method = methods[round / 2 % RU_ARRAY_LEN(methods)];
        assert_ok(ru_sums_first(bytes, N, method, &a, &parts, &n_parts, &err), err);
        assert_ok(ru_sums_cuts(parts, n_parts, bytes, CUTS, &a, &cuts, &n, &err), err);
        for (uint32_t i = 0; i < n; i++) {
            const ru_sums_cut *c = &cuts[i];
            int64_t size = c->n == 1 ? bytes[next] : 0;
            for (uint32_t k = next; c->n > 1 && k < next + c->n; k++) {
                size += bytes[k];
            }
            assert_int_equal(c->first, next);
            assert_int_equal(c->offset_bytes, done);
            assert_true(c->n == 1 || c->offset_bytes == 0);
            assert_true(c->size_bytes >= 4 && c->size_bytes % 4 == 0);
            done += c->size_bytes;
            next += done == size ? c->n : 0;
            done = done == size ? 0 : done;
        }
        assert_int_equal(next, N);
        assert_true(n <= n_parts + CUTS);
        uint32_t want = method == RU_SUMS_SERIAL ? N : method == RU_SUMS_NONE ? 1 : n;
        assert_int_equal(n, want); /* those two cut nothing */
        if (method == RU_SUMS_CARAMEL && whole < 1000000) {
            assert_int_equal(n, 1); /* a start costs more than waiting */
        }
        ru_arena_fini(&a);
    }
}

static void steps_that_differ_are_told_once_they_last(void **state)
{
    (void)state;
    const ru_sums_costs costs = {.compute_ns = 1e6};
    ru_sums_watch w = ru_sums_watch_of(1e6, &costs);
    for (uint32_t k = 0; k < 500; k++) { /* noise of 9 %, every third step an outlier */
        double took = k % 3 == 0 ? 5e6 : k % 2 == 0 ? 1.09e6 : 0.91e6;
        assert_int_equal(ru_sums_watch_step(&w, took), RU_SUMS_STANDS);
    }
    for (uint32_t kind = 0; kind < 2; kind++) {
        double took = kind == 0 ? 1.11e6 : 0.89e6;
        w = ru_sums_watch_of(1e6, &costs);
        for (uint32_t k = 0; k < 49; k++) {
            assert_int_equal(ru_sums_watch_step(&w, took), RU_SUMS_STANDS);
        }
        assert_int_equal(ru_sums_watch_step(&w, took),
                         kind == 0 ? RU_SUMS_LONGER : RU_SUMS_SHORTER);
        w = ru_sums_watch_of(took, &costs); /* the same table again: this is what steps take */
        for (uint32_t k = 0; k < 200; k++) {
            assert_int_equal(ru_sums_watch_step(&w, took), RU_SUMS_STANDS);
        }
    }
}

static void costs_that_move_are_named(void **state)
{
    (void)state;
    const ru_sums_costs was = ru_sums_costs_of(&question);
    assert_true(was.compute_ns == 2 * 1000040 && was.alpha_ns == 1000 && was.beta_ns == 1);
    const ru_sums_watch w = ru_sums_watch_of(1e6, &was);
    for (uint32_t k = 0; k < 8; k++) {
        double by = k % 2 == 0 ? 1.19 : 0.79;
        ru_sums_costs is = was;
        *(k / 2 == 0   ? &is.compute_ns
          : k / 2 == 1 ? &is.alpha_ns
          : k / 2 == 2 ? &is.beta_ns
                       : &is.gamma_ns) *= by;
        ru_sums_again want = k % 2 == 0 || k / 2 == 3 ? RU_SUMS_STANDS
                             : k / 2 == 0             ? RU_SUMS_COMPUTE
                             : k / 2 == 1             ? RU_SUMS_ALPHA
                                                      : RU_SUMS_BETA;
        assert_int_equal(ru_sums_watch_costs(&w, &is), want);
        assert_true(strlen(ru_sums_again_text(want)) > 10);
    }
    ru_sums_costs adds = was;
    adds.gamma_ns = 0.1; /* there was none */
    assert_int_equal(ru_sums_watch_costs(&w, &adds), RU_SUMS_GAMMA);
}

/* Bytes take `slower` times as long from step `from` of a view on, and the sums of its first step
 * are late by themselves. What the last steps took is their median, once eight are measured. */
static double net_after(ru_sums_net *s, uint32_t from, double slower, uint32_t steps)
{
    double off[64];
    for (uint32_t k = 0; k < steps; k++) {
        off[k] = 1.7 * (k == 0 ? 2.5 : 1) * (k >= from ? slower : 1) * (k % 2 == 0 ? 1.01 : 0.99);
        ru_sums_net_step(s, off[k], k < 7 ? 0 : off[k - (k % 2 == 0 ? 3 : 4)]);
    }
    return ru_sums_net_slower(s);
}

/* From 1 Gbit/s to 300 Mbit/s and back, at any step after the third: the cost of a byte has moved.
 */
static void a_network_that_changes_early_is_seen(void **state)
{
    (void)state;
    const ru_sums_costs was = ru_sums_costs_of(&question);
    const ru_sums_watch w = ru_sums_watch_of(1e6, &was);
    for (uint32_t from = 3; from <= 25; from++) {
        for (uint32_t kind = 0; kind < 2; kind++) {
            double by = kind == 0 ? 1000.0 / 300 : 0.3;
            ru_sums_net s = {0};
            ru_sums_costs is = was;
            is.beta_ns *= net_after(&s, from, by, 40);
            assert_int_equal(ru_sums_watch_costs(&w, &is), RU_SUMS_BETA);
            assert_true(fabs(is.beta_ns / was.beta_ns / by - 1) < 0.05);
            double before = ru_sums_net_slower(&s);
            ru_sums_net_view(&s, false); /* a view with the same network */
            assert_true(fabs(net_after(&s, 64, 1, 40) / before - 1) < 0.05);
            ru_sums_net_view(&s, true); /* measured */
            assert_true(fabs(net_after(&s, 64, 1, 40) - 1) < 0.05);
        }
    }
    ru_sums_net s = {0};
    assert_true(ru_sums_net_slower(&s) == 1);
    assert_true(net_after(&s, 0, 1, 5) == 1); /* nobody knows yet */
}

RU_TESTS(plan_sums_live, cmocka_unit_test(a_network_that_changes_early_is_seen),
         cmocka_unit_test(a_plan_becomes_a_table),
         cmocka_unit_test(tables_hold_every_gradient_once),
         cmocka_unit_test(cuts_hold_every_byte_once),
         cmocka_unit_test(steps_that_differ_are_told_once_they_last),
         cmocka_unit_test(costs_that_move_are_named))
