/* Cost of collectives against closed forms and against made-up measurements. */
#include "cost/step/coll.h"
#include "test/test.h"

#include <math.h>

#include "base/rng.h"

static void assert_terms(ru_coll_op op, ru_coll_algo algo, uint32_t n, double steps, double sent,
                         double added)
{
    ru_coll_terms t = ru_cost_coll_terms(op, algo, n);
    if (fabs(t.steps - steps) > 1e-12 || fabs(t.sent - sent) > 1e-12 ||
        fabs(t.added - added) > 1e-12) {
        fail_msg("%s by %s, %u ranks: %g %g %g", ru_coll_op_name(op), ru_coll_algo_name(algo), n,
                 t.steps, t.sent, t.added);
    }
}

/* The table of thakur-2005 and caramel-2020. */
static void test_terms(void **state)
{
    (void)state;
    assert_terms(RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, 6, 1.5, 0.75);
    assert_terms(RU_COLL_ALL_REDUCE, RU_ALGO_HALVING, 8, 6, 1.75, 0.875);
    /* 6 = 3 + 3, 3 = 2 + 1: 5/6 of the buffer, and one of three works for two: 1/6 more. */
    assert_terms(RU_COLL_ALL_REDUCE, RU_ALGO_HALVING, 6, 6, 2, 1);
    assert_terms(RU_COLL_ALL_REDUCE, RU_ALGO_DOUBLING, 8, 3, 3, 3);
    assert_terms(RU_COLL_ALL_REDUCE, RU_ALGO_DOUBLING, 5, 4, 4, 3);
    assert_terms(RU_COLL_ALL_REDUCE, RU_ALGO_DIRECT, 4, 2, 1.5, 0.75);
    assert_terms(RU_COLL_REDUCE_SCATTER, RU_ALGO_RING, 5, 4, 0.8, 0.8);
    assert_terms(RU_COLL_ALL_GATHER, RU_ALGO_HALVING, 16, 4, 15.0 / 16, 0);
    assert_terms(RU_COLL_ALL_GATHER, RU_ALGO_DOUBLING, 3, 2, 1, 0);
    assert_terms(RU_COLL_BROADCAST, RU_ALGO_TREE, 7, 2, 4, 0);
    assert_terms(RU_COLL_REDUCE, RU_ALGO_DOUBLE_TREE, 8, 3, 3, 3);
    assert_terms(RU_COLL_ALL_TO_ALL, RU_ALGO_DIRECT, 8, 1, 0.875, 0);
    assert_terms(RU_COLL_BARRIER, RU_ALGO_DOUBLING, 9, 4, 0, 0);
    assert_terms(RU_COLL_ALL_REDUCE, RU_ALGO_RING, 1, 0, 0, 0);
    assert_terms(RU_COLL_ALL_TO_ALL, RU_ALGO_RING, 4, 0, 0, 0);
}

static void test_fit_finds_what_made_the_times(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 3);
    for (uint32_t k = 0; k < 500; k++) {
        uint32_t n = 2 + ru_rng_below(&r, 30);
        ru_coll_algo algo = (ru_coll_algo)ru_rng_below(&r, RU_COLL_ALGOS);
        double alpha = ru_rng_uniform(&r, 1e3, 1e6), beta = ru_rng_uniform(&r, 0.1, 10);
        ru_coll_terms t = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, algo, n);
        ru_coll_point p[8];
        for (uint32_t i = 0; i < 8; i++) {
            p[i].size_bytes = 1024ll << 2 * i;
            p[i].ns = llrint(t.steps * alpha + t.sent * beta * (double)p[i].size_bytes);
        }
        ru_coll_cost c;
        ru_err err;
        assert_ok(ru_cost_coll_fit(RU_COLL_ALL_REDUCE, algo, n, p, 8, &c, &err), err);
        assert_true(fabs(c.alpha_ns / alpha - 1) < 1e-3 && fabs(c.beta_ns / beta - 1) < 1e-3);
        assert_true(c.error < 1e-3 && c.gamma_ns == 0 && c.n_points == 8);
        int64_t again = ru_cost_coll_ns(&c, RU_COLL_ALL_REDUCE, algo, n, p[7].size_bytes);
        assert_true(llabs(again - p[7].ns) <= p[7].ns / 1000);
    }
}

/* Times that ask for a negative coefficient give 0, and no better pair >= 0 exists near by. */
static void test_fit_is_never_negative(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 4);
    for (uint32_t k = 0; k < 500; k++) {
        ru_coll_point p[4];
        for (uint32_t i = 0; i < 4; i++) {
            p[i] = (ru_coll_point){1 + ru_rng_below(&r, 1000), 1 + ru_rng_below(&r, 1000)};
        }
        p[1].size_bytes = p[0].size_bytes + 1;
        ru_coll_cost c;
        ru_err err;
        assert_ok(ru_cost_coll_fit(RU_COLL_ALL_REDUCE, RU_ALGO_DIRECT, 2, p, 4, &c, &err), err);
        assert_true(c.alpha_ns >= 0 && c.beta_ns >= 0);
        double best = (double)INFINITY, mine = 0;
        for (int32_t da = -1; da <= 1; da++) {
            for (int32_t db = -1; db <= 1; db++) {
                double a = c.alpha_ns + da * 0.01, b = c.beta_ns + db * 0.0001, sum = 0;
                for (uint32_t i = 0; i < 4; i++) {
                    double is = (double)p[i].ns;
                    double off = (2 * a + b * (double)p[i].size_bytes - is) / is;
                    sum += off * off;
                }
                bool legal = a >= 0 && b >= 0;
                best = legal && sum < best ? sum : best;
                mine = da == 0 && db == 0 ? sum : mine;
            }
        }
        assert_true(mine <= best * (1 + 1e-9));
    }
}

/* Measured sizes are predicted as measured, others between their neighbours. */
static void test_prediction_goes_through_the_points(void **state)
{
    (void)state;
    ru_coll_point p[] = {{4096, 300}, {1024, 100}, {1 << 20, 90000}, {4096, 280}, {65536, 9000}};
    ru_coll_cost c;
    ru_err err;
    assert_ok(ru_cost_coll_fit(RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, p, 5, &c, &err), err);
    assert_int_equal(c.n_at, 4);
    assert_int_equal(ru_cost_coll_ns(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, 4096), 280);
    assert_int_equal(ru_cost_coll_ns(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, 1 << 20), 90000);
    assert_int_equal(ru_cost_coll_ns(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, 2560), 190);
    assert_true(ru_cost_coll_ns(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, 2 << 20) > 90000);
    assert_true(ru_cost_coll_ns(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, 0) <= 100);
}

static void test_fit_refuses(void **state)
{
    (void)state;
    ru_coll_cost c;
    ru_err err;
    ru_coll_point p[2] = {{1024, 10}, {1024, 12}};
    assert_int_equal(ru_cost_coll_fit(RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, p, 2, &c, &err),
                     RU_E_ARG);
    p[1] = (ru_coll_point){2048, 0};
    assert_int_equal(ru_cost_coll_fit(RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, p, 2, &c, &err),
                     RU_E_ARG);
    p[1].ns = 12;
    assert_int_equal(ru_cost_coll_fit(RU_COLL_ALL_REDUCE, RU_ALGO_RING, 1, p, 2, &c, &err),
                     RU_E_ARG);
    assert_int_equal(ru_cost_coll_fit(RU_COLL_ALL_TO_ALL, RU_ALGO_RING, 4, p, 2, &c, &err),
                     RU_E_ARG);
}

/* 10 chunks of a ring of 4: one after another without depth, at link speed with much of it. */
static void test_chunks(void **state)
{
    (void)state;
    ru_coll_cost c = {.alpha_ns = 1000, .beta_ns = 8, .n_points = 8};
    int64_t size = 10 << 20, chunk = 1 << 20;
    int64_t one = ru_cost_coll_ns(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, chunk);
    assert_int_equal(one, 6 * 1000 + 12 * (1 << 20));
    assert_int_equal(
        ru_cost_coll_chunked_ns(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, size, chunk, 1), 10 * one);
    assert_int_equal(
        ru_cost_coll_chunked_ns(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, size, chunk, 8),
        one + 9 * (1000 + 12 * (1 << 20)));
    assert_int_equal(
        ru_cost_coll_chunked_ns(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, size, size, 8),
        ru_cost_coll_ns(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, size));
}

/* What a link with a token bucket does to sums: until `burst` bytes have gone it is as fast as the
 * wire, then it carries 1 byte in 8 ns. Probes that drained it first give the slow rate, whatever
 * the small ones say; probes of a full bucket cannot. */
static void test_large_sums_go_at_the_rate_behind_the_burst(void **state)
{
    (void)state;
    const int64_t burst = 512 << 10;
    ru_coll_point drained[5], full[5];
    for (uint32_t k = 0; k < 5; k++) {
        int64_t size = 4096ll << 2 * k, sent = size * 3 / 2, slow = sent > burst ? sent - burst : 0;
        full[k] = (ru_coll_point){size, 200000 + sent / 10 + 8 * slow};
        drained[k] = k < 3 ? full[k] : (ru_coll_point){size, 200000 + 8 * sent};
    }
    ru_coll_cost c, wrong;
    ru_err err;
    assert_ok(ru_cost_coll_fit(RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, drained, 5, &c, &err), err);
    assert_ok(ru_cost_coll_fit(RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, full, 5, &wrong, &err), err);
    int64_t small = ru_cost_coll_ns(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, 64 << 10);
    assert_int_equal(small, full[2].ns);
    for (int64_t size = 2 << 20; size <= 256 << 20; size *= 2) {
        const double is = 200000 + 12.0 * (double)size;
        double whole = (double)ru_cost_coll_ns(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, size);
        assert_true(fabs(whole / is - 1) < 0.05);
        for (uint32_t depth = 1; depth <= 8; depth *= 2) {
            double cut = (double)ru_cost_coll_chunked_ns(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4,
                                                         size, 1 << 20, depth);
            assert_true(cut > 0.95 * is && cut < 1.1 * is);
        }
        assert_true((double)ru_cost_coll_ns(&wrong, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 4, size) <
                    0.75 * is);
    }
}

/* 8 ranks: a star's root sends and takes 14 buffers, a ring 1.75. */
static void test_what_the_bytes_alone_take(void **state)
{
    (void)state;
    const ru_coll_point took = {1 << 20, 1750};
    assert_int_equal(
        ru_cost_coll_carry_ns(&took, RU_COLL_ALL_REDUCE, RU_ALGO_RING, RU_ALGO_HIERARCHY, 8),
        14000);
    assert_int_equal(
        ru_cost_coll_carry_ns(&took, RU_COLL_ALL_REDUCE, RU_ALGO_RING, RU_ALGO_RING, 8), 1750);
    assert_int_equal(
        ru_cost_coll_carry_ns(&took, RU_COLL_BARRIER, RU_ALGO_RING, RU_ALGO_HIERARCHY, 8), 0);
}

/* A ring of two takes two steps and sends each byte once: on a link of half the rate each size
 * takes its start and twice the rest. A byte behind others takes what one of the largest size took
 * more than its start, here by a burst more than the formula says. */
static void a_byte_takes_what_the_rate_says(void **state)
{
    (void)state;
    const ru_coll_cost c = {.alpha_ns = 1000,
                            .beta_ns = 2,
                            .n_points = 2,
                            .n_at = 2,
                            .at = {{1000, 3000}, {1000000, 4004000}}};
    const ru_coll_cost twice = ru_cost_coll_slower(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 2, 2);
    assert_true(twice.alpha_ns == 1000 && twice.beta_ns == 4);
    assert_int_equal(twice.at[0].ns, 2000 + 2 * 1000);
    assert_int_equal(twice.at[1].ns, 2000 + 2 * 4002000);
    /* by the formula the largest takes 2002 us: half of what it took */
    assert_true(ru_cost_coll_byte_ns(&c, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 2) == 4);
    assert_true(ru_cost_coll_carried_ns(&c, 2) == 4);
    const ru_coll_cost said = {.alpha_ns = 1000, .beta_ns = 2, .n_points = 2};
    assert_true(ru_cost_coll_byte_ns(&said, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 2) == 2);
}

RU_TESTS(cost_coll, cmocka_unit_test(a_byte_takes_what_the_rate_says), cmocka_unit_test(test_terms),
         cmocka_unit_test(test_fit_finds_what_made_the_times),
         cmocka_unit_test(test_fit_is_never_negative),
         cmocka_unit_test(test_prediction_goes_through_the_points),
         cmocka_unit_test(test_fit_refuses),
         cmocka_unit_test(test_large_sums_go_at_the_rate_behind_the_burst),
         cmocka_unit_test(test_what_the_bytes_alone_take), cmocka_unit_test(test_chunks))
