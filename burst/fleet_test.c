/* Fleets in virtual time: a day by the true rates costs what the policy's own replay costs, and
 * credits are kept by what is used. */
#include "burst/fleet.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test/test.h"

enum { HOURS = 24 };

static const ru_fleet_type types[] = {
    {"t2.nano", 1, 3, 72, 30, 0.0058, 40, 0.02},
    {"t3.small", 2, 24, 576, 0, 0.0208, 80, 0.02},
    {"c5.large", 2, 120, 2880, 0, 0.085, 80, 0.02},
};

typedef struct day {
    ru_fleet *f;
    ru_fleet_effects fx;
    double rate[HOURS];
    double use; /* of what a machine's requests need */
    uint32_t records, numbers;
    double missed; /* tokens that limited machines could not use */
} day;

static ru_fleet_options options(const day *d, double clock)
{
    return (ru_fleet_options){.types = types,
                              .n_types = RU_ARRAY_LEN(types),
                              .forecast = d->rate,
                              .n_forecast = HOURS,
                              .period_s = 3600,
                              .clock = clock,
                              .launches = 100,
                              .quantile = 0.95};
}

static void draw_day(day *d)
{
    for (uint32_t h = 0; h < HOURS; h++) {
        d->rate[h] = 90 + 70 * sin(h * 0.26);
    }
}

/* A day of ticks, ten in an hour: each machine uses its part. */
static void play(day *d, double clock)
{
    double used[RU_FLEET_MAX], latency[1] = {0.05};
    const double dt_s = 360 / clock;
    ru_err err = {0};
    for (uint32_t tick = 0; tick <= 10 * HOURS; tick++) {
        ru_fleet *f = d->f;
        for (uint32_t k = 0; k < f->n; k++) {
            double want = d->use * f->one[k].rate * f->type[f->one[k].type].need * dt_s;
            double most = ru_fleet_vcpus(f, k) / 60 * dt_s;
            used[k] = fmin(want, most);
            d->missed += want - used[k];
        }
        double rate = tick > 0 ? d->rate[(tick - 1) / 10 % HOURS] : 0;
        const ru_fleet_tick t = {.now = {(int64_t)(1e9 * dt_s * tick)},
                                 .used = used,
                                 .requests = (uint32_t)(rate * dt_s + 0.5),
                                 .latency_s = latency,
                                 .n = 1};
        assert_ok(ru_fleet_step(f, &t, &d->fx, &err), err);
        assert_int_equal(d->fx.plan, tick % 10 == 0);
        assert_int_equal(d->fx.record, tick % 10 == 0 && tick > 0);
        d->records += d->fx.record;
        double sum = 0;
        for (uint32_t k = 0; k < f->n; k++) {
            sum += f->one[k].rate;
            assert_true(f->one[k].number <= f->count &&
                        (k == 0 || f->one[k].number != f->one[k - 1].number));
        }
        assert_true(fabs(sum - f->expected) < 1e-6 * sum);
    }
}

static void a_day_costs_what_its_replay_costs(void **state)
{
    (void)state;
    static const double clocks[] = {1, 60, 600};
    double first = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(clocks); k++) {
        day d = {.f = calloc(1, sizeof *d.f), .use = 1};
        ru_err err = {0};
        draw_day(&d);
        const ru_fleet_options o = options(&d, clocks[k]);
        assert_non_null(d.f);
        assert_ok(ru_fleet_init(d.f, &o, 1, &err), err);
        play(&d, clocks[k]);
        const ru_fleet_record *w = &d.fx.was;
        assert_int_equal(d.records, HOURS);
        assert_true(w->usd_all > 0 && fabs(w->usd_all / w->replay_usd_all - 1) < 0.05);
        assert_true(d.missed < 1e-6);
        assert_true(w->latency_s > 0.049 && w->latency_s < 0.051);
        first = k == 0 ? w->usd_all : first;
        assert_true(fabs(w->usd_all - first) < 0.02 * first); /* whatever the clock */
        ru_fleet_fini(d.f);
        free(d.f);
    }
}

/* Requests that take more than they should empty the buckets: the machines may use what they earn,
 * and the policy hears of it. */
static void empty_machines_are_bounded_and_replaced(void **state)
{
    (void)state;
    day d = {.f = calloc(1, sizeof *d.f), .use = 1.6};
    ru_err err = {0};
    bool limited = false;
    draw_day(&d);
    const ru_fleet_options o = options(&d, 60);
    assert_non_null(d.f);
    assert_ok(ru_fleet_init(d.f, &o, 1, &err), err);
    play(&d, 60);
    for (uint32_t k = 0; k < d.f->n; k++) {
        const ru_credit_rules *r = &d.f->type[d.f->one[k].type].rules;
        limited = limited || d.f->one[k].limited;
        assert_true(!d.f->one[k].limited || ru_fleet_vcpus(d.f, k) <= 60 * r->earn * (1 + 1e-9));
    }
    assert_true(limited || d.missed > 0);
    ru_fleet_fini(d.f);
    free(d.f);
}

/* Without a forecast the next hour has what the last one had. */
static void the_last_period_is_expected_again(void **state)
{
    (void)state;
    ru_fleet *f = calloc(1, sizeof *f);
    ru_fleet_effects fx;
    ru_err err = {0};
    double used[RU_FLEET_MAX] = {0};
    const ru_fleet_options o = {.types = types,
                                .n_types = 3,
                                .headroom = 0.5,
                                .period_s = 3600,
                                .clock = 3600,
                                .launches = 9,
                                .rate_first = 20,
                                .quantile = 0.95};
    assert_non_null(f);
    assert_ok(ru_fleet_init(f, &o, 1, &err), err);
    assert_ok(ru_fleet_step(f, &(ru_fleet_tick){.now = {0}, .used = used}, &fx, &err), err);
    assert_true(fabs(f->expected - 30) < 1e-9 && strlen(fx.id) == 32);
    const ru_fleet_tick t = {.now = {1000000000}, .used = used, .requests = 60};
    assert_ok(ru_fleet_step(f, &t, &fx, &err), err);
    assert_true(fx.record && fabs(fx.was.rate - 60) < 1e-9 && fabs(f->expected - 90) < 1e-9);
    assert_true(isnan(fx.was.latency_s));
    ru_fleet_fini(f);
    free(f);
}

RU_TESTS(burst_fleet, cmocka_unit_test(a_day_costs_what_its_replay_costs),
         cmocka_unit_test(empty_machines_are_bounded_and_replaced),
         cmocka_unit_test(the_last_period_is_expected_again))
