/* The tuner on storage in closed form: it ends within 5 % of the best point of the whole grid; the
 * checker refuses what was changed. */
#include "plan/disk/read.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "plan/disk/read_meter.h"
#include "test/test.h"

static ru_read_in input(ru_read_method method)
{
    return (ru_read_in){.method = method,
                        .sample_bytes = 150000,
                        .size_min = 65536,
                        .size_max = 16777216,
                        .depth_max = 256,
                        .memory_max_bytes = INT64_C(1) << 28,
                        .cores = 2,
                        .gain_min = 0.05,
                        .loss_max = 0.02,
                        .try_s = 10,
                        .batch_bytes = 1e7,
                        .step_s = 0.1};
}

static ru_disk drawn(ru_rng *r)
{
    ru_disk d = {.latency_s = ru_math_exp(ru_rng_uniform(r, -9, -3)),
                 .byte_s = ru_rng_uniform(r, 1e-10, 1e-9)};
    d.shared_byte_s = ru_math_exp(ru_rng_uniform(r, -22, -17));
    d.shared_request_s = ru_rng_below(r, 2) == 0 ? 0 : ru_math_exp(ru_rng_uniform(r, -11, -6));
    return d;
}

static ru_read_window measured(const ru_disk *d, int64_t size, uint32_t depth, ru_rng *r)
{
    double rate = ru_disk_rate(d, size, depth) * (1 + 0.005 * ru_rng_uniform(r, -1, 1));
    return (ru_read_window){.size_bytes = size,
                            .depth = depth,
                            .seconds = 0.5,
                            .bytes_per_s = rate,
                            .error = 0.003 * rate,
                            .latency_s = ru_disk_request_s(d, size, depth)};
}

static double best_of_grid(const ru_disk *d, const ru_read_in *in)
{
    double best = 0;
    for (int64_t size = in->size_min; size <= in->size_max; size *= 2) {
        for (uint32_t depth = 1; depth <= in->depth_max; depth *= 2) {
            bool fits = size * depth <= in->memory_max_bytes;
            best = fits ? fmax(best, ru_disk_rate(d, size, depth)) : best;
        }
    }
    return best;
}

static void test_the_search_ends_near_the_best_of_the_grid(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(3, 1);
    for (uint32_t round = 0; round < 300; round++) {
        ru_disk d = drawn(&r);
        ru_read_in in = input(RU_READ_MODEL);
        ru_read_state s;
        ru_err err;
        in.depth_min = round % 2 == 0 ? 0 : 6;
        ru_read_begin(&in, &s);
        uint32_t windows = 0;
        while (s.phase != RU_READ_STEADY && windows < 40) {
            assert_true(s.depth >= (round % 2 == 0 ? 1 : 8));
            assert_true(s.size_bytes * s.depth <= in.memory_max_bytes);
            ru_read_window w = measured(&d, s.size_bytes, s.depth, &r);
            assert_ok(ru_read_next(&in, &w, &a, &s, &err), err);
            windows++;
        }
        double got = ru_disk_rate(&d, s.size_bytes, s.depth), best = best_of_grid(&d, &in);
        if (windows > 18 || got < 0.93 * best) {
            fail_msg("round %u: %.4g of %.4g after %u windows", round, got, best, windows);
        }
        /* Nothing changes while the storage stays as it is. */
        for (uint32_t i = 0; i < 200; i++) {
            ru_read_window w = measured(&d, s.size_bytes, s.depth, &r);
            assert_ok(ru_read_next(&in, &w, &a, &s, &err), err);
        }
        assert_true(s.changes <= 1);
    }
    ru_arena_fini(&a);
}

static void test_a_change_of_the_storage_is_noticed(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(4, 1);
    ru_disk d = {.latency_s = 5e-3, .shared_byte_s = 2e-8};
    ru_read_in in = input(RU_READ_MODEL);
    ru_read_state s;
    ru_err err;
    ru_read_begin(&in, &s);
    for (uint32_t i = 0; i < 60; i++) {
        if (i == 30) {
            d.shared_byte_s /= 4; /* four times as fast: more must be outstanding */
        }
        ru_read_window w = measured(&d, s.size_bytes, s.depth, &r);
        assert_ok(ru_read_next(&in, &w, &a, &s, &err), err);
    }
    assert_true(s.changes >= 1);
    assert_true(ru_disk_rate(&d, s.best.size_bytes, s.best.depth) > 0.93 * best_of_grid(&d, &in));
    ru_arena_fini(&a);
}

static void test_the_checker_refuses(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(8, 1);
    for (uint32_t round = 0; round < 110; round++) {
        ru_arena_mark m = ru_arena_mark_get(&a);
        ru_disk d = drawn(&r);
        ru_read_in in = input((ru_read_method)(round % 11));
        ru_read_window w[24];
        ru_read_state s;
        ru_read_plan p;
        ru_err err;
        in.depth_min = in.method == RU_READ_MODEL ? 5 : 0;
        ru_read_begin(&in, &s);
        in.n = ru_rng_below(&r, 24);
        in.window = w;
        for (uint32_t i = 0; i < in.n; i++) {
            w[i] = measured(&d, s.size_bytes, s.depth, &r);
            assert_ok(ru_read_next(&in, &w[i], &a, &s, &err), err);
        }
        assert_ok(ru_plan_read(&in, &a, &p, &err), err);
        assert_ok(ru_plan_read_check(&in, &p, &err), err);
        assert_int_equal(p.size_bytes, s.size_bytes);
        assert_int_equal(p.depth, s.depth);
        ru_read_plan bad[] = {p, p, p, p, p, p, p, p};
        bad[0].depth = 5000;
        bad[1].size_bytes = 0;
        bad[2].read_ahead++;
        bad[3].bytes_per_s += 1e3;
        bad[4].latency_s += 1;
        bad[5].disk.error += 0.1;
        bad[6].fitted = !p.fitted;
        bad[7].depth = in.depth_min > 0 ? 4 : 5000;
        for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
            if (k == 5 && in.n == 0) {
                continue;
            }
            if (ru_plan_read_check(&in, &bad[k], &err) != RU_E_INFEASIBLE) {
                fail_msg("round %u took change %u", round, k);
            }
        }
        ru_arena_rewind(&a, m);
    }
    ru_arena_fini(&a);
}

static void test_bad_inputs_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_read_plan p;
    ru_read_in in = input(RU_READ_MODEL);
    in.memory_max_bytes = 1000;
    assert_int_equal(ru_plan_read(&in, &a, &p, &err), RU_E_ARG);
    in = input(RU_READ_MODEL);
    in.size_max = 1;
    assert_int_equal(ru_plan_read(&in, &a, &p, &err), RU_E_ARG);
    in = input(RU_READ_MODEL);
    in.depth_max = 0;
    assert_int_equal(ru_plan_read(&in, &a, &p, &err), RU_E_ARG);
    in = input(RU_READ_MODEL);
    ru_read_window w = {.size_bytes = 65536, .depth = 1, .seconds = 1, .bytes_per_s = RU_NAN};
    in.window = &w;
    in.n = 1;
    assert_int_equal(ru_plan_read(&in, &a, &p, &err), RU_E_ARG);
    w.bytes_per_s = 1e6;
    w.depth = 0;
    assert_int_equal(ru_plan_read(&in, &a, &p, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

/* Share of batches that a trainer waits for, whose deliveries are drawn: batch b is asked for when
 * batch b - ahead is given out. */
static double waits(const ru_read_in *in, uint32_t ahead, ru_rng *r)
{
    enum { BATCHES = 4000, RING = 64 };
    double out_s[RING] = {0}, now = 0;
    uint32_t late = 0;
    for (uint32_t b = 0; b < BATCHES; b++) {
        double asked = b < ahead ? 0 : out_s[(b - ahead) % RING];
        double ready = asked + in->delivery_s + in->delivery_sd_s * ru_rng_normal(r);
        bool waited = ready > now;
        late += waited && b >= RING;
        now = waited ? ready : now;
        out_s[b % RING] = now;
        now += in->step_s;
    }
    return (double)late / (BATCHES - RING);
}

/* The trainer waits for less than 1 % of its batches; with fewer than the mean takes, it waits at
 * least once for as many batches as are ahead. */
static void test_the_depth_of_reading_ahead_suffices(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(9, 2);
    for (uint32_t round = 0; round < 100; round++) {
        ru_read_in in = input(RU_READ_MODEL);
        ru_read_plan p;
        ru_err err;
        in.step_s = ru_rng_uniform(&r, 0.01, 0.2);
        in.delivery_s = in.step_s * ru_rng_uniform(&r, 0.1, 25);
        in.delivery_sd_s = in.delivery_s * ru_rng_uniform(&r, 0, 0.3);
        in.ahead_max = 60;
        assert_ok(ru_plan_read(&in, &a, &p, &err), err);
        assert_ok(ru_plan_read_check(&in, &p, &err), err);
        assert_true(waits(&in, p.read_ahead, &r) < 0.01);
        uint32_t few = (uint32_t)(in.delivery_s / in.step_s);
        assert_true(few < 2 || waits(&in, few - 1, &r) > 0.03);
        in.ahead_max = 3;
        in.ahead_min = 2;
        assert_ok(ru_plan_read(&in, &a, &p, &err), err);
        assert_ok(ru_plan_read_check(&in, &p, &err), err);
        assert_true(p.read_ahead >= 2 && p.read_ahead <= 3);
        in.ahead_min = 4;
        assert_int_equal(ru_plan_read(&in, &a, &p, &err), RU_E_ARG);
    }
    ru_arena_fini(&a);
}

/* A trainer that was not let wait for 30 s has enough: no neighbour is tried any more, and nothing
 * grows. One that waits goes on trying. */
static void test_growth_ends_when_the_trainer_is_fed(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(5, 1);
    for (uint32_t round = 0; round < 40; round++) {
        ru_disk d = drawn(&r);
        ru_read_in in = input(RU_READ_MODEL);
        in.need_bytes_per_s = 0.1 * best_of_grid(&d, &in);
        in.seed = round;
        bool fed = round % 2 == 0;
        ru_read_state s;
        ru_err err;
        ru_read_begin(&in, &s);
        double steady_s = 0;
        uint32_t tries = 0;
        for (uint32_t i = 0; i < 500; i++) {
            ru_read_window w = measured(&d, s.size_bytes, s.depth, &r);
            w.stall_s = fed ? 0 : 0.01;
            assert_ok(ru_read_next(&in, &w, &a, &s, &err), err);
            steady_s += s.phase == RU_READ_STEADY ? w.seconds : 0;
            if (fed && steady_s > 45) {
                assert_int_equal(s.phase, RU_READ_STEADY);
                assert_true(tries == 0 || s.tries == tries);
                tries = s.tries;
            }
        }
        assert_true(fed ? s.tries <= 4 : s.tries >= 10);
        assert_int_equal(s.changes, 0);
        assert_true(ru_disk_rate(&d, s.size_bytes, s.depth) >= 0.9 * in.need_bytes_per_s);
    }
    ru_arena_fini(&a);
}

/* 100 reads a second of 1 MB: windows say so, without the reads of the setting before. */
static void test_the_meter_measures(void **state)
{
    (void)state;
    ru_read_meter m;
    ru_read_window w;
    ru_read_meter_begin(&m, 1000000, 4, 1);
    uint32_t windows = 0;
    for (int64_t i = 1; i <= 400; i++) {
        int64_t now = i * 10000000 + 1;
        assert_false(ru_read_meter_done(&m, 0, 50000000, now, &w));
        ru_read_meter_stall(&m, 1000000);
        if (ru_read_meter_done(&m, now - 40000000 > 0 ? now - 40000000 : 1, 1000000, now, &w)) {
            windows++;
            assert_true(fabs(w.bytes_per_s - 1e8) < 1e8 * 0.01);
            assert_true(w.error < 1e6);
            assert_true(fabs(w.latency_s - 0.04) < 0.002);
            assert_true(w.seconds >= 0.37);
            assert_true(fabs(w.stall_s - 0.1 * w.seconds) < 0.005);
        }
    }
    assert_true(windows >= 8);
}

RU_TESTS(plan_read, cmocka_unit_test(test_the_search_ends_near_the_best_of_the_grid),
         cmocka_unit_test(test_a_change_of_the_storage_is_noticed),
         cmocka_unit_test(test_the_checker_refuses), cmocka_unit_test(test_bad_inputs_are_refused),
         cmocka_unit_test(test_the_depth_of_reading_ahead_suffices),
         cmocka_unit_test(test_growth_ends_when_the_trainer_is_fed),
         cmocka_unit_test(test_the_meter_measures))
