/* Stages: none is shorter, places move only where they must, the checker refuses what was changed.
 */
#include "plan/crew/stage.h"

#include <math.h>
#include <string.h>

#include "base/fields.h"
#include "base/rng.h"
#include "plan/row/policy.h"
#include "test/test.h"

static ru_stage_in drawn(ru_rng *r, ru_arena *a)
{
    ru_stage_in in = {.job = {.model_bytes = 1e6 * ru_rng_uniform(r, 1, 500),
                              .read_bytes = 1e6 * ru_rng_uniform(r, 0, 50),
                              .write_bytes = 1e6 * ru_rng_uniform(r, 0, 50),
                              .touched = ru_rng_f64(r),
                              .work_s = ru_rng_uniform(r, 0, 60),
                              .link_bytes_per_s = 125e6,
                              .serve_bytes_per_s = 2e9,
                              .clocks_max = 1 + ru_rng_below(r, 8)},
                      .reliable = 1 + ru_rng_below(r, 4),
                      .transient = ru_rng_below(r, 12),
                      .partitions = 1 + ru_rng_below(r, 20),
                      .blocks = 1 + ru_rng_below(r, 40),
                      .block_bytes = 1e6,
                      .notice_s = 2};
    int64_t *holder = RU_NEW(a, int64_t, in.partitions), *owner = RU_NEW(a, int64_t, in.blocks);
    for (uint32_t i = 0; i < in.partitions; i++) {
        holder[i] = ru_rng_below(r, 20);
    }
    for (uint32_t i = 0; i < in.blocks; i++) {
        owner[i] = ru_rng_below(r, 5) == 0 ? -1 : (int64_t)ru_rng_below(r, 20);
    }
    in.holder = holder;
    in.n_holder = in.partitions;
    in.owner = owner;
    in.n_owner = in.blocks;
    return in;
}

/* Most places that can be kept when `k` machines hold n things evenly, by trying which machines
 * hold one more. */
static uint32_t kept_most(const int64_t *now, uint32_t n, uint32_t first, uint32_t k)
{
    uint32_t had[32] = {0}, best = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (now[i] >= first && now[i] - first < k) {
            had[now[i] - first]++;
        }
    }
    for (uint32_t set = 0; set < 1U << k; set++) {
        uint32_t more = 0, kept = 0;
        for (uint32_t m = 0; m < k; m++) {
            uint32_t room = n / k + (set >> m & 1);
            more += set >> m & 1;
            kept += had[m] < room ? had[m] : room;
        }
        best = more == n % k && kept > best ? kept : best;
    }
    return best;
}

static void test_no_layout_is_shorter_and_little_moves(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(21, 1);
    uint32_t stages[4] = {0};
    for (uint32_t round = 0; round < 600; round++) {
        ru_arena_mark m = ru_arena_mark_get(&a);
        ru_stage_in in = drawn(&r, &a);
        ru_stage_plan p;
        ru_err err;
        assert_ok(ru_plan_stage(&in, &a, &a, &p, &err), err);
        assert_ok(ru_plan_stage_check(&in, &p, &a, &err), err);
        stages[p.stage]++;
        for (uint32_t k = RU_STAGE_RATIO; k <= RU_STAGE_THREE; k++) {
            ru_stage_plan other;
            in.method = (ru_stage_method)k;
            if (in.transient > 0) {
                assert_ok(ru_plan_stage(&in, &a, &a, &other, &err), err);
                assert_ok(ru_plan_stage_check(&in, &other, &a, &err), err);
                assert_true(p.clock.clock_s <= other.clock.clock_s * (1 + 1e-9) + 1e-9);
            }
        }
        uint32_t kept = 0;
        for (uint32_t i = 0; i < in.partitions; i++) {
            kept += p.holder[i] == in.holder[i];
        }
        uint32_t first = p.stage >= 2 ? in.reliable : 0;
        assert_int_equal(kept, kept_most(in.holder, in.partitions, first, p.servers));
        ru_arena_rewind(&a, m);
    }
    assert_true(stages[1] > 20 && stages[2] > 20 && stages[3] > 20);
    ru_arena_fini(&a);
}

/* A machine more, of either kind, never makes the clock longer; without the choice of idle ones it
 * did. A job whose exchange grows with its workers leaves some idle. */
static void test_more_machines_are_never_slower(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(ru_test_seed(), 5);
    uint32_t idle = 0, longer = 0;
    for (uint32_t round = 0; round < 300; round++) {
        ru_arena_mark m = ru_arena_mark_get(&a);
        ru_stage_in in = drawn(&r, &a);
        in.job.work_s *= 0.1;
        ru_stage_plan p, q;
        ru_err err;
        assert_ok(ru_plan_stage(&in, &a, &a, &p, &err), err);
        for (uint32_t more = 0; more < 8; more++) {
            double all = ru_stage_clock(&in, 1, p.stage == 1 ? p.servers : 1, 0).clock_s;
            if (more % 2 == 0) {
                in.reliable++;
            } else {
                in.transient++;
            }
            assert_ok(ru_plan_stage(&in, &a, &a, &q, &err), err);
            assert_ok(ru_plan_stage_check(&in, &q, &a, &err), err);
            /* a shorter batch may stretch it by 1 % */
            assert_true(q.clock.clock_s <= p.clock.clock_s * 1.0101);
            idle += q.stage != 3 && q.workers < in.reliable + in.transient ? 1 : 0;
            longer += ru_stage_clock(&in, 1, p.stage == 1 ? p.servers : 1, 0).clock_s > all ? 1 : 0;
            p = q;
        }
        ru_arena_rewind(&a, m);
    }
    assert_true(idle > 50 && longer > 50);
    ru_arena_fini(&a);
}

static void test_the_checker_refuses(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(4, 1);
    uint32_t tried = 0;
    for (uint32_t round = 0; round < 100; round++) {
        ru_stage_in in = drawn(&r, &a);
        ru_stage_plan p;
        ru_err err;
        assert_ok(ru_plan_stage(&in, &a, &a, &p, &err), err);
        ru_stage_plan bad[] = {p, p, p, p, p, p, p, p, p, p, p, p, p, p};
        bad[0].stage = p.stage % 3 + 1;
        bad[1].servers++;
        bad[2].clock.clock_s *= 1.01;
        bad[3].clock.read_s += 1;
        bad[4].clock.write_s += 1;
        bad[5].clock.compute_s += 1;
        bad[6].clock.batch++;
        bad[7].clock.stream_bytes += 100;
        bad[8].clock.behind_s += 1;
        bad[9].partitions++;
        bad[10].blocks--;
        bad[11].moved_bytes += 1e6;
        bad[12].residual_s += 1;
        bad[13].workers++;
        for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
            if (ru_plan_stage_check(&in, &bad[k], &a, &err) != RU_E_INFEASIBLE) {
                fail_msg("round %u took change %u", round, k);
            }
        }
        uint32_t *lists[] = {(uint32_t *)(uintptr_t)p.holder, (uint32_t *)(uintptr_t)p.backup,
                             (uint32_t *)(uintptr_t)p.owner};
        const uint32_t n[] = {p.partitions, p.partitions, p.blocks};
        for (uint32_t k = 0; k < RU_ARRAY_LEN(lists); k++) {
            for (uint32_t i = 0; i < n[k]; i++, tried++) {
                uint32_t old = lists[k][i];
                lists[k][i] = old == UINT32_MAX ? 0 : old + 1000;
                assert_int_equal(ru_plan_stage_check(&in, &p, &a, &err), RU_E_INFEASIBLE);
                lists[k][i] = old;
            }
        }
        bad[0] = p;
        bad[0].in_notice = !p.in_notice;
        assert_int_equal(ru_plan_stage_check(&in, &bad[0], &a, &err), RU_E_INFEASIBLE);
    }
    assert_true(tried > 1000);
    ru_arena_fini(&a);
}

static void test_edges(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_stage_plan p;
    ru_stage_in in = {.job = {.link_bytes_per_s = 1, .serve_bytes_per_s = 1},
                      .reliable = 1,
                      .partitions = 1,
                      .blocks = 1};
    assert_ok(ru_plan_stage(&in, &a, &a, &p, &err), err); /* one machine, nothing to do */
    assert_int_equal(p.stage, 1);
    in.method = RU_STAGE_TWO;
    assert_int_equal(ru_plan_stage(&in, &a, &a, &p, &err), RU_E_INFEASIBLE);
    in.method = RU_STAGE_COST;
    in.reliable = 0;
    assert_int_equal(ru_plan_stage(&in, &a, &a, &p, &err), RU_E_ARG);
    in.reliable = 1;
    in.job.touched = RU_NAN;
    assert_int_equal(ru_plan_stage(&in, &a, &a, &p, &err), RU_E_ARG);
    in.job.touched = 0;
    in.job.model_bytes = (double)INFINITY;
    assert_int_equal(ru_plan_stage(&in, &a, &a, &p, &err), RU_E_ARG);
    in.job.model_bytes = -1;
    assert_int_equal(ru_plan_stage(&in, &a, &a, &p, &err), RU_E_ARG);
    in.job.model_bytes = 0;
    in.partitions = 0;
    assert_int_equal(ru_plan_stage(&in, &a, &a, &p, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

/* Sizes of a file are in 1e6 bytes, and what a planner got is an input of the policy. */
static void test_the_file_of_an_input(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 5);
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    for (uint32_t i = 0; i < 20; i++) {
        const ru_stage_in in = drawn(&r, &a);
        const ru_stage_file file = ru_stage_to_file(&in);
        const ru_stage_in back = ru_stage_of_file(&file);
        assert_ok(ru_fields_check(ru_policy_stage.in, &file, &err), err);
        ru_text text = ru_text_arena(&a);
        ru_json j = ru_json_into(&text);
        ru_fields_json(ru_policy_stage.in, &file, NULL, &j);
        assert_non_null(strstr(text.p, "\"link_mb_per_s\":125,"));
        assert_non_null(strstr(text.p, "\"serve_mb_per_s\":2000,"));
        assert_non_null(strstr(text.p, "\"block_mb\":1,"));
        assert_true(fabs(back.job.model_bytes - in.job.model_bytes) < 1e-6);
        assert_true(fabs(back.job.read_bytes - in.job.read_bytes) < 1e-6);
        assert_true(fabs(back.job.write_bytes - in.job.write_bytes) < 1e-6);
    }
    ru_arena_fini(&a);
}

RU_TESTS(plan_stage, cmocka_unit_test(test_the_file_of_an_input),
         cmocka_unit_test(test_no_layout_is_shorter_and_little_moves),
         cmocka_unit_test(test_more_machines_are_never_slower),
         cmocka_unit_test(test_the_checker_refuses), cmocka_unit_test(test_edges))
