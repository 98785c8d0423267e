/* Buckets: the rule on small lists against every split, cuts, and corrupted plans refused. */
#include "plan/net/fuse.h"

#include <string.h>

#include "base/rng.h"
#include "test/test.h"

/* The fewest buckets that any split into neighbours of at most fuse_bytes needs: bit k of `split`
 * begins a bucket at gradient k + 1. */
static uint32_t fewest(const int64_t *bytes, uint32_t n, int64_t most)
{
    uint32_t least = n;
    for (uint32_t split = 0; split < 1u << (n - 1); split++) {
        uint32_t buckets = 1;
        int64_t size = bytes[0];
        bool legal = true;
        for (uint32_t k = 1; k < n; k++) {
            bool cut = (split >> (k - 1) & 1) != 0;
            size = cut ? bytes[k] : size + bytes[k];
            buckets += cut;
            bool alone = cut && (k + 1 == n || (split >> k & 1) != 0);
            legal = legal && (size <= most || alone || (cut && size == bytes[k]));
        }
        least = legal && buckets < least ? buckets : least;
    }
    return least;
}

static void test_no_split_needs_fewer_buckets(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 11);
    for (uint32_t turn = 0; turn < 400; turn++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        int64_t bytes[9];
        uint32_t n = 1 + ru_rng_below(&r, 9);
        for (uint32_t k = 0; k < n; k++) {
            bytes[k] = 4 * (1 + (int64_t)ru_rng_below(&r, 12));
        }
        ru_fuse_in in = {
            .tensor_bytes = {bytes, n}, .fuse_bytes = 50, .cut_bytes = 4096, .cuts_max = 512};
        ru_fuse_plan plan;
        ru_err err;
        assert_int_equal(ru_plan_fuse(&in, &a, &plan, &err), RU_OK);
        if (ru_plan_fuse_check(&in, &plan, &err) != RU_OK) {
            fail_msg("%s", err.text);
        }
        assert_int_equal(plan.n, fewest(bytes, n, 50));
        ru_arena_fini(&a);
    }
}

static void test_large_gradients_are_cut(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    const int64_t bytes[] = {400, 8, 1000, 12, 16};
    ru_fuse_in in = {
        .tensor_bytes = {bytes, 5}, .fuse_bytes = 100, .cut_bytes = 400, .cuts_max = 512};
    ru_fuse_plan p;
    ru_err err;
    assert_int_equal(ru_plan_fuse(&in, &a, &p, &err), RU_OK);
    assert_int_equal(ru_plan_fuse_check(&in, &p, &err), RU_OK);
    assert_int_equal(p.n, 6);
    assert_int_equal(p.at[4].size_bytes, 200);
    assert_int_equal(p.at[4].offset_bytes, 800);
    assert_int_equal(p.at[5].n, 2);
    in.cut_bytes = 4; /* cuts_max bounds their number: 1436 bytes in at most about 8 */
    in.cuts_max = 8;
    assert_int_equal(ru_plan_fuse(&in, &a, &p, &err), RU_OK);
    assert_int_equal(ru_plan_fuse_check(&in, &p, &err), RU_OK);
    assert_int_equal(p.cut_bytes, 360);
    for (uint32_t m = RU_FUSE_EACH; m < RU_FUSE_METHODS; m++) {
        in.method = m;
        assert_int_equal(ru_plan_fuse(&in, &a, &p, &err), RU_OK);
        assert_int_equal(ru_plan_fuse_check(&in, &p, &err), RU_OK);
        assert_int_equal(p.n, m == RU_FUSE_EACH ? 5 : 1);
    }
    ru_arena_fini(&a);
}

/* Sums at and beside the size from which on cuts grow: the judge draws the same line. */
static void test_cuts_begin_to_grow_where_the_judge_says(void **state)
{
    (void)state;
    for (int64_t more = -8; more <= 4096; more += 4) {
        ru_arena a;
        ru_arena_init(&a, 0);
        int64_t bytes[] = {16 * 400 + more};
        const ru_fuse_in in = {
            .tensor_bytes = {bytes, 1}, .fuse_bytes = 100, .cut_bytes = 400, .cuts_max = 32};
        ru_fuse_plan p;
        ru_err err;
        assert_ok(ru_plan_fuse(&in, &a, &p, &err), err);
        assert_ok(ru_plan_fuse_check(&in, &p, &err), err);
        assert_true(p.n <= 17 && p.cut_bytes >= 400);
        ru_arena_fini(&a);
    }
}

static void test_corrupted_buckets_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    const int64_t bytes[] = {400, 8, 1000, 12, 16, 96, 4};
    ru_fuse_in in = {
        .tensor_bytes = {bytes, 7}, .fuse_bytes = 100, .cut_bytes = 400, .cuts_max = 512};
    for (in.method = 0; in.method < RU_FUSE_METHODS; in.method++) {
        ru_fuse_plan good;
        ru_err err;
        assert_int_equal(ru_plan_fuse(&in, &a, &good, &err), RU_OK);
        ru_fuse_bucket at[16];
        for (uint32_t b = 0; b < good.n; b++) {
            for (uint32_t kind = 0; kind < 8; kind++) {
                ru_fuse_plan bad = {.at = at, .n = good.n, .cut_bytes = good.cut_bytes};
                memcpy(at, good.at, good.n * sizeof *at);
                int32_t by = kind % 2 == 0 ? 1 : -1;
                at[b].first += (uint32_t)(kind / 2 == 0 ? by : 0);
                at[b].n += (uint32_t)(kind / 2 == 1 ? by : 0);
                at[b].offset_bytes += kind / 2 == 2 ? 4 * by : 0;
                at[b].size_bytes += kind / 2 == 3 ? 4 * by : 0;
                assert_int_equal(ru_plan_fuse_check(&in, &bad, NULL), RU_E_INFEASIBLE);
            }
        }
        ru_fuse_plan bad = good;
        bad.n--;
        assert_int_equal(ru_plan_fuse_check(&in, &bad, NULL), RU_E_INFEASIBLE);
        bad = good;
        bad.cut_bytes -= 4;
        assert_int_equal(ru_plan_fuse_check(&in, &bad, NULL), RU_E_INFEASIBLE);
    }
    ru_arena_fini(&a);
}

static void test_bad_gradients(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    int64_t bytes[] = {6};
    ru_fuse_in in = {.tensor_bytes = {bytes, 1}, .fuse_bytes = 1, .cut_bytes = 4, .cuts_max = 2};
    ru_fuse_plan p;
    assert_int_equal(ru_plan_fuse(&in, &a, &p, NULL), RU_E_ARG);
    bytes[0] = 0;
    assert_int_equal(ru_plan_fuse(&in, &a, &p, NULL), RU_E_ARG);
    bytes[0] = 8;
    in.cut_bytes = 6;
    assert_int_equal(ru_plan_fuse(&in, &a, &p, NULL), RU_E_ARG);
    in.cut_bytes = 8;
    in.tensor_bytes.n = 0;
    assert_int_equal(ru_plan_fuse(&in, &a, &p, NULL), RU_E_ARG);
    ru_arena_fini(&a);
}

RU_TESTS(plan_fuse, cmocka_unit_test(test_no_split_needs_fewer_buckets),
         cmocka_unit_test(test_large_gradients_are_cut),
         cmocka_unit_test(test_cuts_begin_to_grow_where_the_judge_says),
         cmocka_unit_test(test_corrupted_buckets_are_refused), cmocka_unit_test(test_bad_gradients))
