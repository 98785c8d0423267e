/* Losses by pairs against the law they were drawn from, and margins against what was missed. */
#include "cost/corun.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

static void test_kinds_split_class_and_size(void **state)
{
    (void)state;
    assert_int_equal(ru_corun_kind(RU_OP_COMPUTE, 20, 80), 0);
    assert_int_equal(ru_corun_kind(RU_OP_COMPUTE, 21, 80), 1);
    assert_int_equal(ru_corun_kind(RU_OP_MEMORY, 80, 80), RU_CORUN_SIZES + 1);
    assert_int_equal(ru_corun_kind(RU_OP_MEMORY, 320, 80), RU_CORUN_SIZES + 2);
    assert_int_equal(ru_corun_kind(RU_OP_UNKNOWN, 1e9, 80), RU_CORUN_KINDS - 1);
}

static void test_losses_of_pairs_are_learned(void **state)
{
    (void)state;
    ru_corun c;
    ru_corun_init(&c, 0.5, 0.1);
    assert_true(fabs(ru_corun_loss(&c, 0, 1, false) - 0.5) < 1e-12);
    ru_rng r = ru_rng_from(5, 1);
    for (uint32_t i = 0; i < 4000; i++) { /* two ops beside each one, loss 0.1 and 0.6 */
        ru_corun_overlap o[2] = {{1, 1e-4 * ru_rng_f64(&r)}, {2, 1e-4 * ru_rng_f64(&r)}};
        double noise = 1 + 0.1 * ru_rng_normal(&r);
        ru_corun_learn(&c, 0, o, 2, noise * (0.1 * o[0].s + 0.6 * o[1].s));
    }
    assert_true(fabs(ru_corun_loss(&c, 0, 1, false) - 0.1) < 0.05);
    assert_true(fabs(ru_corun_loss(&c, 0, 2, false) - 0.6) < 0.05);
    assert_true(ru_corun_loss(&c, 0, 2, true) > ru_corun_loss(&c, 0, 2, false));
    /* An op never met has the mean of what its neighbour did to others. */
    assert_true(fabs(ru_corun_loss(&c, 7, 2, false) - 0.6) < 0.1);
    assert_true(fabs(ru_corun_loss(&c, 7, 3, false) - 0.5) < 1e-12);
    ru_corun before = c;
    ru_corun_learn(&c, 0, NULL, 0, 1);
    assert_memory_equal(&before, &c, sizeof c);
}

/* The slowdown of pairs that were met 200 times, with durations that vary by a tenth, and of a pair
 * that is new beside them after 200 samples of it; between them any loss. */
static void test_a_new_pair_is_known_after_200_samples(void **state)
{
    (void)state;
    enum { PAIRS = 200 };
    double off[2] = {0}; /* mean over the pairs: known, new */
    for (uint32_t pair = 0; pair < PAIRS; pair++) {
        ru_corun c;
        ru_corun_init(&c, 0.5, 0.1);
        ru_rng r = ru_rng_from(7 + pair, 1);
        double loss[2] = {ru_rng_uniform(&r, 0, 0.8), ru_rng_uniform(&r, 0, 0.8)};
        for (uint32_t i = 0; i < 4000; i++) { /* ops of the pair that is known, then the new one */
            uint32_t kind = i < 3800 ? 1 : 2;
            ru_corun_overlap o = {kind, 1e-4 * ru_rng_f64(&r)};
            double noise = 1 + 0.1 * ru_rng_normal(&r);
            ru_corun_learn(&c, 0, &o, 1, noise * loss[kind - 1] * o.s);
        }
        for (uint32_t k = 0; k < 2; k++) {
            double slow = 1 / (1 - loss[k]), said = 1 / (1 - ru_corun_loss(&c, 0, k + 1, false));
            off[k] += fabs(said / slow - 1) / PAIRS;
        }
    }
    assert_true(off[0] < 0.05);
    assert_true(off[1] < 0.12);
}

/* True losses are up to four times what was predicted: the margin covers all but a tenth. */
static void test_the_margin_covers_what_is_missed(void **state)
{
    (void)state;
    ru_corun c;
    ru_corun_init(&c, 0.5, 0.1);
    ru_rng r = ru_rng_from(6, 1);
    uint32_t missed = 0;
    for (uint32_t i = 0; i < 6000; i++) {
        double ratio = ru_rng_uniform(&r, 0, i < 3000 ? 4 : 2);
        missed += i >= 1000 && ratio > c.margin ? 1 : 0;
        ru_corun_request(&c, 1e-3, 1e-3 * ratio);
    }
    assert_true(missed > 5000 * 0.05 && missed < 5000 * 0.15);
    assert_true(c.margin > 1.6 && c.margin < 2.1);
    uint32_t n = c.n_ratios;
    ru_corun_request(&c, 0, 1); /* teaches nothing */
    assert_int_equal(c.n_ratios, n);
}

RU_TESTS(cost_corun, cmocka_unit_test(test_kinds_split_class_and_size),
         cmocka_unit_test(test_losses_of_pairs_are_learned),
         cmocka_unit_test(test_a_new_pair_is_known_after_200_samples),
         cmocka_unit_test(test_the_margin_covers_what_is_missed))
