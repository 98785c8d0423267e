#include "plan/share.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

/* Brute force: the least longest part over all ways to share `batch` among n members. */
static double best_of(const double *speed, uint32_t n, int64_t batch, int64_t least)
{
    if (n == 1) {
        return batch < least ? 1e300 : (double)batch / speed[0];
    }
    double best = 1e300;
    for (int64_t k = least; k <= batch; k++) {
        double rest = best_of(speed + 1, n - 1, batch - k, least);
        double here = (double)k / speed[0];
        double worse = here > rest ? here : rest;
        best = worse < best ? worse : best;
    }
    return best;
}

static void shares_are_optimal(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(7, 1);
    for (uint32_t round = 0; round < 400; round++) {
        double speed[4];
        uint32_t n = 1 + (uint32_t)ru_rng_below(&r, 4);
        int64_t batch = 1 + (int64_t)ru_rng_below(&r, 18);
        for (uint32_t i = 0; i < n; i++) {
            speed[i] = 1.0 + (double)ru_rng_below(&r, 100);
        }
        ru_share_in in = {.batch = batch, .n = n, .speed = speed};
        ru_share_plan p;
        ru_err err;
        ru_arena_mark m = ru_arena_mark_get(&a);
        assert_ok(ru_plan_share(&in, &a, &p, &err), err);
        assert_ok(ru_plan_share_check(&in, &p, &err), err);
        double best = best_of(speed, n, batch, batch >= (int64_t)n ? 1 : 0);
        assert_true(fabs(p.predicted_s - best) <= 1e-12 * best);
        for (uint32_t i = 0; i < n; i++) { /* every one-place corruption is refused */
            int64_t *s = (int64_t *)(uintptr_t)p.share;
            s[i]++;
            assert_int_equal(ru_plan_share_check(&in, &p, &err), RU_E_INFEASIBLE);
            s[i]--;
        }
        ru_arena_rewind(&a, m);
    }
    ru_arena_fini(&a);
}

static void half_speed_gets_half(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_share_plan p;
    const double speed[3] = {100, 100, 50};
    ru_share_in in = {.batch = 100, .n = 3, .speed = speed, .gain_min = 0.1};
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_int_equal(p.share[0], 40);
    assert_int_equal(p.share[1], 40);
    assert_int_equal(p.share[2], 20);
    const int64_t near_by[3] = {41, 39, 20}; /* 2.5 % from the best: not worth a rebuild */
    in.now = near_by;
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_false(p.changed);
    assert_int_equal(p.share[0], 41);
    const double gone[3] = {100, 100, -1};
    in.speed = gone;
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_true(p.changed);
    assert_int_equal(p.share[0] + p.share[1], 100);
    assert_int_equal(p.share[2], 0);
    ru_arena_fini(&a);
}

static void edges(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_share_plan p;
    ru_share_in in = {.batch = 10, .n = 3};
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_int_equal(p.share[0], 4); /* equal remainders: the earlier member */
    assert_int_equal(p.share[2], 3);
    const double unknown[3] = {0, 10, 30}; /* the unknown counts as their mean, 20 */
    in.speed = unknown;
    in.batch = 60;
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_int_equal(p.share[0], 20);
    in.batch = 2; /* fewer samples than members */
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_ok(ru_plan_share_check(&in, &p, &err), err);
    const double none[3] = {-1, -1, -1};
    in.speed = none;
    assert_int_equal(ru_plan_share(&in, &a, &p, &err), RU_E_ARG);
    in.batch = 0;
    assert_int_equal(ru_plan_share(&in, &a, &p, &err), RU_E_ARG);
    const double slow[2] = {1000, 0.001}; /* ones on top of rounded shares are taken back */
    in = (ru_share_in){.batch = 5, .n = 2, .speed = slow};
    assert_ok(ru_plan_share(&in, &a, &p, &err), err);
    assert_int_equal(p.share[0], 4);
    assert_int_equal(p.share[1], 1);
    ru_arena_fini(&a);
}

RU_TESTS(plan_share, cmocka_unit_test(shares_are_optimal), cmocka_unit_test(half_speed_gets_half),
         cmocka_unit_test(edges))
