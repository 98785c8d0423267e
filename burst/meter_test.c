/* A bucket of bytes: its level is what a sum over the ticks gives, and the rate follows it. */
#include "burst/meter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/rng.h"
#include "test/test.h"

static const int64_t tick_ns = 100000000;

static void the_level_is_the_sum(void **state)
{
    (void)state;
    const ru_meter_options o = {.kind = RU_METER_NETWORK,
                                .name = "network",
                                .rules = {.earn = 100, .cap = 30000, .burst = 1000},
                                .level = 20000,
                                .clock = 60,
                                .reserve_s = 600};
    ru_meter m = {.opt = &o, .bucket = {.earned = o.level}};
    ru_rng rng = ru_rng_from(ru_test_seed(), 4);
    double level = o.level;
    int64_t count = 12345;
    uint32_t empty = 0, alarms = 0, full = 0;
    assert_true(ru_meter_step(&m, count, (ru_time){1}));
    assert_near(m.rate, 1000, 0);
    for (uint32_t k = 1; k <= 600; k++) {
        ru_time now = {1 + (int64_t)k * tick_ns};
        double most = (k / 100) % 2 == 0 ? m.rate : 50; /* what the limit lets pass */
        int64_t bytes = (int64_t)(0.1 * most * (0.5 + 0.5 * ru_rng_f64(&rng)));
        count += bytes;
        level = fmin(o.rules.cap, level + 0.1 * 60 * o.rules.earn - 60.0 * (double)bytes);
        level = fmax(level, 0);
        (void)ru_meter_step(&m, count, now);
        assert_near(ru_credit_level(&m.bucket), level, 1e-6 * o.rules.cap);
        assert_true(m.rate == (m.limited ? 100 : 1000) && (level > 0 || m.limited));
        empty += m.limited;
        full += level == o.rules.cap;
        if (k % 10 == 0) {
            ru_meter_window(&m, now);
            alarms += m.alarm[0] != 0;
        }
    }
    assert_true(empty > 5 && empty < 500 && full > 0);
    assert_true(alarms >= 1 && alarms <= 4); /* once for each time that it runs out */
}

/* Where another one keeps the bucket, it only counts and bounds. */
static void it_counts_for_another(void **state)
{
    (void)state;
    const ru_meter_options o = {.kind = RU_METER_DISK_BYTES,
                                .name = "disk",
                                .rules = {.earn = 1, .cap = 100, .burst = 10},
                                .level = 7};
    ru_meter m = {.opt = &o, .bucket = {.earned = o.level}};
    assert_near(ru_meter_used(&m, 1000), 0, 0); /* what was before is nobody's */
    assert_near(ru_meter_used(&m, 1300), 300, 0);
    assert_near(ru_meter_used(&m, 200), 0, 0); /* another counter */
    assert_near(ru_meter_used(&m, 250), 50, 0);
    ru_meter_let(&m, 12.9);
    assert_true(m.io.read_bytes_s == 12 && m.io.write_bytes_s == 12 && m.io.read_ops_s == 0);
    ru_meter_let(&m, 0.1);
    assert_int_equal(m.io.write_bytes_s, 1); /* 0 would be no limit */
    assert_near(ru_credit_level(&m.bucket), 7, 0);
}

static void odd_counts(void **state)
{
    (void)state;
    const ru_meter_options o = {.kind = RU_METER_DISK_OPS,
                                .name = "disk",
                                .rules = {.earn = 100, .cap = 500, .burst = 300},
                                .level = 100,
                                .clock = 1};
    ru_meter m = {.opt = &o, .bucket = {.earned = o.level}};
    assert_false(ru_meter_step(&m, -1, (ru_time){1}));
    assert_true(ru_meter_step(&m, 1000, (ru_time){tick_ns}));
    assert_int_equal(m.io.read_ops_s, 300);
    assert_false(ru_meter_step(&m, 10, (ru_time){2 * tick_ns})); /* it began again: nothing used */
    assert_near(ru_credit_level(&m.bucket), 110, 1e-9);
    assert_true(ru_meter_step(&m, 10010, (ru_time){3 * tick_ns})); /* more than burst allows */
    assert_near(ru_credit_level(&m.bucket), 0, 1e-9);
    assert_int_equal(m.io.write_ops_s, 100);
    assert_int_equal(m.io.write_bytes_s, 0);
}

static void what_is_missing_is_said(void **state)
{
    (void)state;
    ru_meter m;
    ru_err err = {0};
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_meter_options o = {.kind = RU_METER_NETWORK,
                          .name = "network",
                          .service = "web",
                          .at = "no-such-card",
                          .rules = {.earn = 1, .cap = 2, .burst = 2},
                          .clock = 1};
    assert_int_equal(ru_meter_open(&m, &o, &arena, &err), RU_E_MISSING);
    assert_non_null(strstr(err.text, "no interface 'no-such-card'"));
    char path[4096];
    (void)snprintf(path, sizeof path, "%s", ru_conf_env("PATH"));
    o.at = "lo";
    assert_int_equal(setenv("PATH", "/no/such/path", 1), 0);
    assert_int_equal(ru_meter_open(&m, &o, &arena, &err), RU_E_MISSING);
    assert_int_equal(setenv("PATH", path, 1), 0);
    assert_non_null(strstr(err.text, "interface lo is bounded by tc of iproute2: cannot run tc"));
    o.rules.earn = 3;
    assert_int_equal(ru_meter_open(&m, &o, &arena, &err), RU_E_CONFIG);
    o = (ru_meter_options){.kind = RU_METER_DISK_BYTES,
                           .name = "disk",
                           .service = "web",
                           .at = "/no/such/path",
                           .rules = {.earn = 1, .cap = 2, .burst = 2}};
    assert_int_equal(ru_meter_open(&m, &o, &arena, &err), RU_E_MISSING);
    o.kind = RU_METER_NONE;
    assert_ok(ru_meter_open(&m, &o, &arena, &err), err);
    ru_arena_fini(&arena);
}

RU_TESTS(burst_meter, cmocka_unit_test(the_level_is_the_sum), cmocka_unit_test(odd_counts),
         cmocka_unit_test(it_counts_for_another), cmocka_unit_test(what_is_missing_is_said))
