/* Budgets of joining workers and choices of kernels: the rules on random inputs, by brute force
 * where there are few answers, and corrupted plans refused. */
#include "plan/crew/join.h"

#include <math.h>

#include "base/rng.h"
#include "plan/step/kernel.h"
#include "test/test.h"

static void test_the_budget_is_a_part_of_the_network(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 12);
    uint32_t tiny = 0;
    for (uint32_t turn = 0; turn < 2000; turn++) {
        double fast = turn % 2 == 0 ? 1e10 : 1e6;
        ru_join_in in = {.rate_bytes_per_s = turn % 7 == 0 ? 0 : ru_rng_uniform(&r, 1e3, fast),
                         .step_ns = turn % 11 == 0 ? 0 : ru_rng_uniform(&r, 1e5, 1e10),
                         .part = ru_rng_uniform(&r, 1e-6, 1),
                         .piece_bytes = 1 + (int64_t)ru_rng_below(&r, 1 << 21),
                         .state_bytes = ru_rng_below(&r, 1 << 30),
                         .method = turn % 3};
        ru_join_plan p;
        ru_err err;
        assert_int_equal(ru_plan_join(&in, &p, &err), RU_OK);
        if (ru_plan_join_check(&in, &p, &err) != RU_OK) {
            fail_msg("%s", err.text);
        }
        double carried = in.rate_bytes_per_s * in.step_ns * 1e-9;
        bool part = in.method == RU_JOIN_PART && carried * in.part > 1;
        double a_step = fmin((double)p.budget_bytes,
                             p.every_steps > 1 ? (double)in.piece_bytes / (double)p.every_steps
                                               : (double)p.budget_bytes);
        assert_true(!part || a_step <= in.part * carried * (1 + 1e-9));
        tiny += part && p.every_steps > 1 ? 1 : 0;
        for (int64_t off = -3; off <= 3; off += 6) { /* a byte is rounding */
            ru_join_plan bad = {p.budget_bytes + off, p.every_steps};
            if (bad.budget_bytes > 1) {
                assert_int_equal(ru_plan_join_check(&in, &bad, NULL), RU_E_INFEASIBLE);
            }
            bad = (ru_join_plan){p.budget_bytes, p.every_steps + off};
            assert_int_equal(ru_plan_join_check(&in, &bad, NULL), RU_E_INFEASIBLE);
        }
    }
    assert_true(tiny > 100);
    /* 1.25 MB/s, steps of 100 ms: a tenth is 12,500 bytes, so 1 MiB goes in one of 84 steps; one a
     * step is refused */
    ru_join_in in = {.rate_bytes_per_s = 1.25e6,
                     .step_ns = 1e8,
                     .part = 0.1,
                     .piece_bytes = 1 << 20,
                     .state_bytes = 100000000};
    ru_join_plan p;
    assert_int_equal(ru_plan_join(&in, &p, NULL), RU_OK);
    assert_int_equal(p.budget_bytes, 12500);
    assert_int_equal(p.every_steps, 84);
    p = (ru_join_plan){1 << 20, 1};
    assert_int_equal(ru_plan_join_check(&in, &p, NULL), RU_E_INFEASIBLE);
    in = (ru_join_in){.part = 2, .piece_bytes = 5};
    assert_int_equal(ru_plan_join(&in, &p, NULL), RU_E_ARG);
    in = (ru_join_in){.part = 0, .piece_bytes = 5};
    assert_int_equal(ru_plan_join(&in, &p, NULL), RU_E_ARG);
    in = (ru_join_in){.part = 0.1, .piece_bytes = 0};
    assert_int_equal(ru_plan_join(&in, &p, NULL), RU_E_ARG);
}

/* Three kernels whose times are 0 (cannot run) to 2, extras 0 to 1: all of them. */
static void test_no_kernel_is_faster(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 216; code++) {
        ru_kernel_candidate c[3];
        uint32_t rest = code, usual = 3, best = 3;
        for (uint32_t k = 0; k < 3; k++, rest /= 6) {
            c[k] = (ru_kernel_candidate){.name = "k", .ns = rest % 3, .extra_ns = rest % 6 / 3};
            bool runs = c[k].ns > 0;
            usual = runs && usual == 3 ? k : usual;
            best = runs && (best == 3 || c[k].ns + c[k].extra_ns < c[best].ns + c[best].extra_ns)
                       ? k
                       : best;
        }
        for (uint32_t method = 0; method < RU_KERNEL_METHODS; method++) {
            ru_kernel_in in = {.op = "", .candidates = {c, 3}, .method = method};
            ru_kernel_plan p = {0};
            ru_status st = ru_plan_kernel(&in, &p, NULL);
            assert_int_equal(st, best == 3 ? RU_E_INFEASIBLE : RU_OK);
            uint32_t want = method == RU_KERNEL_LEAST ? best : usual;
            for (uint32_t at = 0; at < 4 && st == RU_OK; at++) {
                ru_kernel_plan other = {.at = at, .name = "k", .predicted_ns = p.predicted_ns};
                if (at < 3) {
                    other.predicted_ns = c[at].ns + c[at].extra_ns;
                }
                assert_int_equal(ru_plan_kernel_check(&in, &other, NULL),
                                 at == want ? RU_OK : RU_E_INFEASIBLE);
            }
            if (st == RU_OK) {
                assert_int_equal(p.at, want);
                p.predicted_ns += 1;
                assert_int_equal(ru_plan_kernel_check(&in, &p, NULL), RU_E_INFEASIBLE);
            }
        }
    }
}

RU_TESTS(plan_join, cmocka_unit_test(test_the_budget_is_a_part_of_the_network),
         cmocka_unit_test(test_no_kernel_is_faster))
