/* Fairness of delivery: convergence in the model it stands on, the three conditions of a flag, and
 * a checker that refuses what was changed. */
#include "plan/disk/read_share.h"

#include <math.h>
#include <stddef.h>

#include "base/rng.h"
#include "test/test.h"

enum { WORKERS = 5 };

/* Storage that delivers by outstanding bytes: the repair ends fair, within 8 windows. */
static void test_shares_become_fair(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(2, 1);
    for (uint32_t round = 0; round < 100; round++) {
        ru_read_worker w[WORKERS];
        double outstanding[WORKERS], before = 0, jain = 0;
        for (uint32_t i = 0; i < WORKERS; i++) {
            outstanding[i] = 131072.0 * (1U << ru_rng_below(&r, 6));
            w[i] =
                (ru_read_worker){.need_bytes_per_s = ru_rng_uniform(&r, 1e7, 4e7), .stall_s = 0.5};
            before += outstanding[i];
        }
        ru_read_share_in in = {.worker = w, .n = WORKERS, .seconds = 1};
        for (uint32_t k = 0; k < 12; k++) {
            ru_read_share_plan p;
            ru_err err;
            double sum = 0;
            for (uint32_t i = 0; i < WORKERS; i++) {
                w[i].outstanding_bytes = outstanding[i];
                w[i].bytes_per_s = 1e8 * outstanding[i] / before;
            }
            in.capacity_bytes_per_s = 1e8;
            assert_ok(ru_plan_read_share(&in, &a, &p, &err), err);
            assert_ok(ru_plan_read_share_check(&in, &p, &err), err);
            for (uint32_t i = 0; i < WORKERS; i++) {
                outstanding[i] = p.outstanding_bytes[i];
                sum += outstanding[i];
            }
            assert_true(fabs(sum - before) < 1e-6 * before);
            in.windows = p.windows;
            in.repairs = p.repairs;
            jain = p.jain;
        }
        assert_true(jain > 0.94);
    }
    ru_arena_fini(&a);
}

static void test_a_flag_needs_all_conditions(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_read_share_plan p;
    const ru_read_worker unfair[2] = {{1e7, 1e6, 1e5, 0.5, 0.5}, {1e7, 9e6, 9e5, 0, 0}};
    for (uint32_t k = 0; k < 5; k++) {
        ru_read_worker w[2] = {unfair[0], unfair[1]};
        ru_read_share_in in = {
            .worker = w, .n = 2, .seconds = 1, .windows = 2, .capacity_bytes_per_s = 1e7};
        w[0].stall_s = k == 1 ? 0.01 : w[0].stall_s;        /* nobody waits */
        w[0].late_s = k == 2 ? 2 : w[0].late_s;             /* it is late for another reason */
        in.capacity_bytes_per_s *= k == 3 ? 2 : 1;          /* the storage could deliver more */
        w[0].bytes_per_s = k == 4 ? 8e6 : w[0].bytes_per_s; /* it gets its part */
        assert_ok(ru_plan_read_share(&in, &a, &p, &err), err);
        assert_ok(ru_plan_read_share_check(&in, &p, &err), err);
        assert_int_equal(p.flagged, k == 0);
        assert_int_equal(p.repairs, k == 0);
        in.windows = 1;
        assert_ok(ru_plan_read_share(&in, &a, &p, &err), err);
        assert_false(p.flagged); /* three windows in a row */
    }
    ru_arena_fini(&a);
}

static void test_the_checker_refuses(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(12, 1);
    for (uint32_t round = 0; round < 200; round++) {
        ru_read_worker w[WORKERS];
        for (uint32_t i = 0; i < WORKERS; i++) {
            w[i] = (ru_read_worker){1e7 * (1 + ru_rng_f64(&r)), 1e7 * (0.1 + ru_rng_f64(&r)),
                                    1e6 * (0.1 + ru_rng_f64(&r)), ru_rng_f64(&r), ru_rng_f64(&r)};
        }
        const ru_read_share_in in = {.method = (ru_read_share_method)(round % 3),
                                     .worker = w,
                                     .n = WORKERS,
                                     .seconds = 1,
                                     .windows = round % 5,
                                     .repairs = round % 2 == 0};
        ru_read_share_plan p;
        ru_err err;
        assert_ok(ru_plan_read_share(&in, &a, &p, &err), err);
        assert_ok(ru_plan_read_share_check(&in, &p, &err), err);
        ru_read_share_plan bad[] = {p, p, p, p, p, p, p, p, p};
        bad[0].jain -= 0.01;
        bad[1].jain_next -= 0.01;
        bad[2].windows++;
        bad[3].flagged = !p.flagged;
        bad[4].repairs = !p.repairs;
        bad[5].worst = (p.worst + 1) % WORKERS;
        bad[6].n--;
        bad[7].wait_s += 0.01;
        bad[8].wait_next_s -= 0.01;
        for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
            assert_int_equal(ru_plan_read_share_check(&in, &bad[k], &err), RU_E_INFEASIBLE);
        }
        double *to = (double *)(uintptr_t)p.outstanding_bytes;
        for (uint32_t i = 0; i < WORKERS; i++) {
            double old = to[i];
            to[i] *= 1.1;
            assert_int_equal(ru_plan_read_share_check(&in, &p, &err), RU_E_INFEASIBLE);
            to[i] = old;
        }
    }
    ru_read_share_plan p;
    ru_err err;
    ru_read_worker none = {1, 0, 1, 0, 0};
    ru_read_share_in in = {.worker = &none, .n = 1, .seconds = 1};
    assert_int_equal(ru_plan_read_share(&in, &a, &p, &err), RU_E_ARG);
    none.bytes_per_s = RU_NAN;
    assert_int_equal(ru_plan_read_share(&in, &a, &p, &err), RU_E_ARG);
    in.n = 0;
    assert_int_equal(ru_plan_read_share(&in, &a, &p, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

RU_TESTS(plan_read_share, cmocka_unit_test(test_shares_become_fair),
         cmocka_unit_test(test_a_flag_needs_all_conditions),
         cmocka_unit_test(test_the_checker_refuses))
