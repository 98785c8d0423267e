/* Throttle decisions: nothing keeps the objective for fewer credits; it stands down where speed
 * saves nothing; a checker that refuses what was changed. */
#include "plan/fleet/burst.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

static const double model[7] = {0.001, 1, 1.1, 1, 1, 1.2, 1};

static ru_burst_resource cpu(double level)
{
    return (ru_burst_resource){.rules = ru_credit_cpu(1, 6, 144, 0, false),
                               .now = {.earned = level},
                               .need = 0.00025,
                               .servers = 1};
}

static void two(ru_burst_resource *r, double level)
{
    r[0] = cpu(level);
    r[1] = (ru_burst_resource){
        .rules = ru_credit_gp2(30), .now = {.earned = 2e6}, .need = 12, .servers = 4};
}

static ru_burst_in input(const ru_burst_resource *r, uint32_t clients, double slo)
{
    return (ru_burst_in){.resource = r,
                         .n = 2,
                         .load = {.clients = clients, .think_s = 0.05},
                         .model = model,
                         .slo_s = slo,
                         .quantile = 0.95,
                         .margin = 0.1,
                         .gain_min = 0.02,
                         .reserve_s = 600,
                         .speed_min = 0.2,
                         .speeds = 9};
}

/* Latency and spend of one pair of speeds, from the queue itself. */
static double brute(const ru_burst_in *in, double a, double b, double *spend)
{
    const ru_station s[2] = {{0.00025 / (a / 60), 1}, {12 * 4 / (b * 3000), 4}};
    ru_queue_mean m = ru_queue_closed(s, 2, in->load.clients, in->load.think_s);
    double q = model[0];
    for (uint32_t i = 0; i < 2; i++) {
        double w = m.time_s[i] - s[i].service_s;
        q += model[1 + 3 * i] * s[i].service_s + model[2 + 3 * i] * w +
             model[3 + 3 * i] * sqrt(w * s[i].service_s);
    }
    *spend = m.rate * (0.00025 / 144 + 12 / 5.4e6);
    return q;
}

static void test_nothing_spends_less(void **state)
{
    (void)state;
    static const double slos[] = {0.05, 0.3, 1.2, 4};
    uint32_t throttled = 0, switched = 0;
    for (uint32_t n = 1; n <= 41; n += 4) {
        for (uint32_t k = 0; k < RU_ARRAY_LEN(slos); k++) {
            ru_burst_resource r[2];
            two(r, 144);
            ru_burst_in in = input(r, n, slos[k]);
            double best = INFINITY, full, spend;
            for (int i = 2; i <= 10; i++) {
                for (int j = 2; j <= 10; j++) {
                    double q = brute(&in, 0.1 * i, 0.1 * j, &spend);
                    best = q <= 0.9 * slos[k] ? fmin(best, spend) : best;
                }
            }
            (void)brute(&in, 1, 1, &full);
            ru_burst_plan p;
            ru_err err;
            assert_ok(ru_plan_burst(&in, &p, &err), err);
            assert_ok(ru_plan_burst_check(&in, &p, &err), err);
            throttled += p.action == RU_BURST_THROTTLE;
            switched += p.action == RU_BURST_SWITCH;
            if (isinf(best)) {
                assert_int_equal(p.action, RU_BURST_SWITCH);
            } else if (p.action == RU_BURST_THROTTLE) {
                assert_true(fabs(p.spend / best - 1) < 1e-6);
                assert_true(p.stretch > 1);
            } else if (p.action == RU_BURST_STAND_DOWN) {
                bool forever = isinf(p.empty_s[0]) && isinf(p.empty_s[1]);
                assert_true(forever || best > 0.98 * full * (1 - 1e-9));
            }
        }
    }
    assert_true(throttled > 5 && switched > 2);
}

/* Processor, disk and network together: all 512 points of a grid of 8. */
static void test_three_together(void **state)
{
    (void)state;
    static const double three[10] = {0.001, 1, 1.1, 1, 1, 1.2, 1, 1, 1.3, 1};
    uint32_t throttled = 0, alone = 0;
    for (uint32_t n = 2; n <= 30; n += 4) {
        ru_burst_resource r[3];
        two(r, 100);
        r[2] = (ru_burst_resource){.rules = {.earn = 1e6, .cap = 1e9, .burst = 5e6},
                                   .now = {.earned = 8e8},
                                   .need = 6e4,
                                   .servers = 1};
        ru_burst_in in = input(r, n, 1.2);
        in.n = 3;
        in.model = three;
        in.speeds = 8;
        in.speed_min = 0.3;
        double best = INFINITY, best_alone = INFINITY;
        for (uint32_t k = 0; k < 512; k++) {
            const double at[3] = {1 - 0.1 * (k & 7), 1 - 0.1 * (k >> 3 & 7), 1 - 0.1 * (k >> 6)};
            const ru_station s[3] = {{0.00025 / (at[0] / 60), 1},
                                     {12 * 4 / (at[1] * 3000), 4},
                                     {6e4 / (at[2] * 5e6), 1}};
            ru_queue_mean m = ru_queue_closed(s, 3, n, 0.05);
            double q = three[0], spend = m.rate * (0.00025 / 144 + 12 / 5.4e6 + 6e4 / 1e9);
            for (uint32_t i = 0; i < 3; i++) {
                double w = m.time_s[i] - s[i].service_s;
                q += three[1 + 3 * i] * s[i].service_s + three[2 + 3 * i] * w +
                     three[3 + 3 * i] * sqrt(fmax(w, 0) * s[i].service_s);
            }
            bool keeps = q <= 0.9 * 1.2;
            best = keeps ? fmin(best, spend) : best;
            best_alone = keeps && k < 8 ? fmin(best_alone, spend) : best_alone;
        }
        ru_burst_plan p;
        ru_err err;
        assert_ok(ru_plan_burst(&in, &p, &err), err);
        assert_ok(ru_plan_burst_check(&in, &p, &err), err);
        if (p.action == RU_BURST_THROTTLE) { /* half speed lies beside the grid */
            assert_true(p.spend <= best * (1 + 1e-6));
            throttled++;
            alone += p.spend < best_alone * (1 - 1e-6);
        }
    }
    assert_true(throttled > 2 && alone > 0);
}

static void test_an_open_load_is_left_at_full_speed(void **state)
{
    (void)state;
    ru_burst_resource r[2];
    two(r, 144);
    ru_burst_in in = input(r, 1, 4);
    for (double rate = 5; rate < 60; rate += 5) {
        in.load = (ru_burst_load){.open = true, .rate = rate};
        ru_burst_plan p, none;
        ru_err err;
        in.method = RU_BURST_MODEL;
        assert_ok(ru_plan_burst(&in, &p, &err), err);
        assert_ok(ru_plan_burst_check(&in, &p, &err), err);
        in.method = RU_BURST_NONE;
        assert_ok(ru_plan_burst(&in, &none, &err), err);
        assert_int_equal(p.action, RU_BURST_STAND_DOWN);
        assert_true(p.speed[0] == 1 && p.speed[1] == 1);
        assert_true(p.latency_s == none.latency_s && p.spend == none.spend);
    }
    in.load.rate = 100;
    ru_burst_plan p;
    ru_err err;
    assert_int_equal(ru_plan_burst(&in, &p, &err), RU_E_INFEASIBLE);
}

/* A machine that is always busy burns as long as the closed form says. */
static void test_burst_time_grows_as_the_closed_form(void **state)
{
    (void)state;
    static const double half[4] = {0, 0, 0, 0};
    ru_burst_resource r = cpu(144);
    ru_burst_in in = input(&r, 200, 100);
    in.n = 1;
    in.model = half;
    in.load.think_s = 0;
    in.method = RU_BURST_HALF;
    ru_burst_plan p;
    ru_err err;
    assert_ok(ru_plan_burst(&in, &p, &err), err);
    assert_ok(ru_plan_burst_check(&in, &p, &err), err);
    assert_true(fabs(p.stretch - 2.25) < 1e-9);
    assert_true(fabs(p.empty_s[0] - 360 * 60) < 1e-3);
}

static void test_a_machine_soon_empty_asks_for_another(void **state)
{
    (void)state;
    ru_burst_resource r[2];
    two(r, 0.5);
    ru_burst_in in = input(r, 30, 1.2);
    ru_burst_plan p;
    ru_err err;
    assert_ok(ru_plan_burst(&in, &p, &err), err);
    assert_ok(ru_plan_burst_check(&in, &p, &err), err);
    assert_int_equal(p.action, RU_BURST_SWITCH);
}

static void test_a_fit_finds_the_coefficients(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_burst_resource r[2];
    two(r, 144);
    const ru_burst_load load = {.think_s = 0.05};
    ru_burst_sample s[300];
    for (uint32_t i = 0; i < 300; i++) {
        s[i] = (ru_burst_sample){.load = 1 + i % 6 * 5,
                                 .speed = {0.2 * (1 + i / 6 % 5), 0.2 * (1 + i / 30 % 5)}};
        ru_burst_load at = {.clients = (uint32_t)s[i].load, .think_s = 0.05};
        double x[RU_BURST_FEATURES_MAX];
        ru_queue_mean mean;
        assert_true(ru_burst_features(r, 2, &at, s[i].speed, x, &mean));
        for (uint32_t c = 0; c < 7; c++) {
            s[i].latency_s += model[c] * x[c];
        }
    }
    const double *fit;
    ru_err err;
    assert_ok(ru_burst_fit(r, 2, &load, s, 300, 0.95, &a, &a, &fit, &err), err);
    for (uint32_t c = 1; c < 7; c++) {
        assert_true(fabs(fit[c] / model[c] - 1) < 0.01);
    }
    /* One load and one speed tell nothing. */
    for (uint32_t i = 0; i < 300; i++) {
        s[i] = s[0];
    }
    assert_int_equal(ru_burst_fit(r, 2, &load, s, 300, 0.95, &a, &a, &fit, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

static void refuse(const ru_burst_in *in, const ru_burst_plan *p)
{
    ru_err err;
    if (ru_plan_burst_check(in, p, &err) != RU_E_INFEASIBLE) {
        fail_msg("the checker took a plan that was changed");
    }
}

static void test_checker_refuses_changes(void **state)
{
    (void)state;
    ru_burst_resource r[2];
    two(r, 144);
    ru_burst_in in = input(r, 20, 1.2);
    ru_burst_plan p, q;
    ru_err err;
    assert_ok(ru_plan_burst(&in, &p, &err), err);
    assert_int_equal(p.action, RU_BURST_THROTTLE);
    for (uint32_t i = 0; i < 2; i++) {
        q = p, q.speed[i] *= 0.99, refuse(&in, &q);
        q = p, q.speed[i] = 0.1, refuse(&in, &q);
        q = p, q.speed[i] = 1.1, refuse(&in, &q);
        q = p, q.use[i] *= 1.001, refuse(&in, &q);
        q = p, q.empty_s[i] = q.empty_s[i] > 1e300 ? 5 : q.empty_s[i] * 1.001, refuse(&in, &q);
    }
    q = p, q.rate *= 1.001, refuse(&in, &q);
    q = p, q.latency_s *= 0.999, refuse(&in, &q);
    q = p, q.spend *= 0.999, refuse(&in, &q);
    q = p, q.stretch *= 1.001, refuse(&in, &q);
    q = p, q.action = RU_BURST_STAND_DOWN, refuse(&in, &q);
    q = p, q.action = RU_BURST_SWITCH, refuse(&in, &q);
    in.slo_s = p.latency_s;
    refuse(&in, &p);
}

RU_TESTS(plan_burst, cmocka_unit_test(test_nothing_spends_less),
         cmocka_unit_test(test_three_together),
         cmocka_unit_test(test_an_open_load_is_left_at_full_speed),
         cmocka_unit_test(test_burst_time_grows_as_the_closed_form),
         cmocka_unit_test(test_a_machine_soon_empty_asks_for_another),
         cmocka_unit_test(test_a_fit_finds_the_coefficients),
         cmocka_unit_test(test_checker_refuses_changes))
