/* Buckets against the providers' figures, against steps of a small size, and what never happens. */
#include "cost/credit.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

static void near(double is, double want, double tolerance)
{
    if (!(fabs(is - want) <= tolerance * fmax(1, fabs(want)))) {
        fail_msg("%.12g, expected %.12g", is, want);
    }
}

static void test_a_day_of_a_machine_with_16_vcpus(void **state)
{
    (void)state;
    ru_credit_rules r = ru_credit_cpu(16, 162, 3888, 480, false);
    ru_credit c = ru_credit_launch(&r);
    near(ru_credit_level(&c), 480, 0);
    ru_credit_run(&r, &c, 0, 6 * 3600);
    near(ru_credit_level(&c), 1452, 1e-12);
    near(ru_credit_run(&r, &c, 12.8 / 60, 2 * 3600), 1536, 1e-12);
    near(ru_credit_level(&c), 240, 1e-12);
}

static void test_launch_credits_stand_outside_the_cap_and_go_first(void **state)
{
    (void)state;
    ru_credit_rules r = ru_credit_cpu(1, 6, 144, 30, true);
    ru_credit c = ru_credit_launch(&r);
    ru_credit_run(&r, &c, 0, 30 * 3600);
    near(ru_credit_level(&c), 174, 1e-12);
    near(ru_credit_refill_s(&r, &c, 0), 0, 0);
    /* 0.9 credits a minute above what comes in. */
    ru_credit_run(&r, &c, 1.0 / 60, 20 * 60);
    near(c.launch, 12, 1e-9);
    near(c.earned, 144, 0);
    near(ru_credit_empty_s(&r, &c, 1.0 / 60), 156 / 0.9 * 60, 1e-12);
    ru_credit_run(&r, &c, 1.0 / 60, 20 * 60);
    near(c.launch, 0, 0);
    near(c.earned, 138, 1e-9);
    ru_credit_run(&r, &c, 0, 3600);
    near(c.launch, 0, 0); /* they never come back */
    ru_credit_stop(&r, &c, 1);
    near(ru_credit_level(&c), 30, 0);
}

static void test_an_empty_bucket_limits_to_what_comes_in(void **state)
{
    (void)state;
    ru_credit_rules r = ru_credit_cpu(1, 6, 144, 0, false);
    ru_credit c = {.earned = 9};
    double full = ru_credit_empty_s(&r, &c, 1.0 / 60);
    near(full, 600, 1e-12);
    near(ru_credit_run(&r, &c, 1.0 / 60, 1200), 10 + 1, 1e-12);
    near(ru_credit_level(&c), 0, 1e-9);
    c.earned = 0;
    assert_true(isinf(ru_credit_empty_s(&r, &c, r.earn)));
    assert_true(isinf(ru_credit_refill_s(&r, &c, r.earn)));
    near(ru_credit_refill_s(&r, &c, 0), 24 * 3600, 1e-12);
}

static void test_surplus_is_paid_by_earnings_then_billed(void **state)
{
    (void)state;
    ru_credit_rules r = ru_credit_cpu(2, 24, 576, 0, true);
    r.unlimited = true;
    r.usd_per_token = 0.05 / 60;
    r.keep_s = 7 * 24 * 3600;
    ru_credit c = ru_credit_launch(&r);
    /* Two vCPUs for 6 h: 720 credits, 144 earned, 576 owed: nothing is billed yet. */
    near(ru_credit_run(&r, &c, 2.0 / 60, 6 * 3600), 720, 1e-12);
    near(c.surplus, 576, 1e-9);
    near(c.billed, 0, 1e-9);
    ru_credit_run(&r, &c, 2.0 / 60, 3600);
    near(c.billed, 96, 1e-9); /* 120 used, 24 earned */
    near(c.billed * r.usd_per_token, 0.08, 1e-9);
    near(ru_credit_refill_s(&r, &c, 0), 48 * 3600, 1e-9);
    ru_credit_run(&r, &c, 0, 25 * 3600);
    near(c.surplus, 0, 1e-9);
    near(c.earned, 24, 1e-6);
    ru_credit_stop(&r, &c, 3600);
    near(c.earned, 24, 1e-6); /* they live for 7 days */
    c = (ru_credit){.surplus = 10};
    ru_credit_stop(&r, &c, 3600);
    near(c.billed, 10, 0);
    near(c.surplus, 0, 0);
}

static void test_disks_and_links(void **state)
{
    (void)state;
    static const double size[] = {1, 34, 100, 500, 900},
                        burst[] = {1862.1, 1863.4, 2000, 3600, 18000},
                        refill[] = {54000, 52941.2, 18000, 3600, 2000};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(size); i++) {
        ru_credit_rules r = ru_credit_gp2(size[i]);
        ru_credit c = ru_credit_launch(&r);
        assert_true(fabs(ru_credit_empty_s(&r, &c, 3000) - burst[i]) <= 0.1);
        c.earned = 0;
        assert_true(fabs(ru_credit_refill_s(&r, &c, 0) - refill[i]) <= 0.1);
    }
    ru_credit_rules r = ru_credit_gp2(2000);
    ru_credit c = ru_credit_launch(&r);
    assert_true(isinf(ru_credit_empty_s(&r, &c, 1e9))); /* 6,000 at all times */
}

/* Whatever the use: never below nothing, never above the cap and the launch credits, launch credits
 * first, no token from nowhere; and one long step is many short ones. */
static void test_what_never_happens(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        ru_rng rng = ru_rng_from(seed, 7);
        ru_credit_rules r = ru_credit_cpu(1 + (uint32_t)(seed % 8), 3 + 100 * ru_rng_f64(&rng),
                                          50 + 500 * ru_rng_f64(&rng), 240, seed % 2 == 0);
        r.burst = fmax(r.burst, r.earn);
        r.unlimited = seed % 3 == 0;
        ru_credit c = ru_credit_launch(&r);
        for (uint32_t k = 0; k < 100; k++) {
            double use = r.burst * 1.2 * ru_rng_f64(&rng), dt = 20000 * ru_rng_f64(&rng);
            ru_credit was = c, fine = c;
            double used = ru_credit_run(&r, &c, use, dt), sum = 0;
            for (uint32_t j = 0; j < 64; j++) {
                sum += ru_credit_run(&r, &fine, use, dt / 64);
            }
            near(sum, used, 1e-9);
            near(fine.earned, c.earned, 1e-6);
            near(fine.launch, c.launch, 1e-6);
            near(fine.surplus, c.surplus, 1e-6);
            near(fine.billed, c.billed, 1e-6);
            assert_true(c.earned >= 0 && c.earned <= r.cap && c.launch >= 0);
            assert_true(c.launch <= was.launch && c.surplus >= 0 && c.surplus <= r.cap);
            assert_true(c.surplus == 0 || (r.unlimited && c.earned == 0));
            assert_true(c.launch == 0 || c.earned >= was.earned);
            assert_true(used <= fmin(use, r.burst) * dt * (1 + 1e-12));
            double kept = c.earned + c.launch - c.surplus - c.billed;
            double before = was.earned + was.launch - was.surplus - was.billed;
            double in = r.earn * dt - used; /* what overflows the cap is lost */
            assert_true(kept <= before + in + 1e-6);
            assert_true(kept >= before + in - 1e-6 || c.earned == r.cap);
        }
    }
}

RU_TESTS(cost_credit, cmocka_unit_test(test_a_day_of_a_machine_with_16_vcpus),
         cmocka_unit_test(test_launch_credits_stand_outside_the_cap_and_go_first),
         cmocka_unit_test(test_an_empty_bucket_limits_to_what_comes_in),
         cmocka_unit_test(test_surplus_is_paid_by_earnings_then_billed),
         cmocka_unit_test(test_disks_and_links), cmocka_unit_test(test_what_never_happens))
