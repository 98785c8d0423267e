/* Fleets: no set of machines is cheaper, and a checker that runs what it is told. */
#include "plan/fleet/burst_fleet.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

static const double NEED = 0.0005;

static ru_burst_type type(const char *name, double per_h, double launch, double usd)
{
    return (ru_burst_type){.name = name,
                           .rules = ru_credit_cpu(1, per_h, 24 * per_h, launch, true),
                           .usd_per_h = usd,
                           .rate_max = 25,
                           .need = NEED};
}

/* Least cost over all sets of machines that run and up to three new ones of each type. */
static double brute(const ru_burst_fleet_in *in)
{
    double best = INFINITY;
    for (uint32_t set = 0; set < 1u << in->n_machines; set++) {
        for (uint32_t a = 0; a <= 3; a++) {
            for (uint32_t b = 0; b <= (in->launches_left < 3 ? in->launches_left : 3); b++) {
                const uint32_t count[2] = {a, b};
                double rate = 0, usd = 0;
                for (uint32_t i = 0; i < in->n_machines; i++) {
                    const ru_burst_type *t = &in->type[in->machine[i].type];
                    bool there = (set >> i & 1) != 0;
                    rate += there ? ru_burst_offer(t, &in->machine[i].now, in->period_s) : 0;
                    usd += there ? t->usd_per_h : 0;
                }
                for (uint32_t t = 0; t < 2; t++) {
                    ru_credit now = ru_credit_launch(&in->type[t].rules);
                    rate += count[t] * ru_burst_offer(&in->type[t], &now, in->period_s);
                    usd += count[t] * in->type[t].usd_per_h;
                }
                best = rate >= in->rate * (1 + 1e-9) ? fmin(best, usd) : best;
            }
        }
    }
    return best;
}

/* One machine at most is used in part, and machines with more credits than it not at all. */
static void assert_few_keep_credits(const ru_burst_fleet_in *in, const ru_burst_fleet_plan *p)
{
    uint32_t part = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const ru_burst_type *t = &in->type[p->machine[i].type];
        double offer = ru_burst_offer(t, &p->machine[i].now, in->period_s);
        if (p->rate[i] >= offer * (1 - 1e-9)) {
            continue;
        }
        part += p->rate[i] > 0 ? 1 : 0;
        for (uint32_t k = 0; k < p->n; k++) {
            bool fuller = ru_credit_level(&p->machine[k].now) > ru_credit_level(&p->machine[i].now);
            assert_true(!fuller || p->machine[k].type == 0 || p->rate[k] <= 0);
        }
    }
    assert_true(part <= 1);
}

static void test_no_set_is_cheaper(void **state)
{
    (void)state;
    const ru_burst_type types[2] = {type("regular", 60, 0, 0.085), type("small", 6, 30, 0.0116)};
    uint32_t infeasible = 0, kept = 0;
    for (uint64_t seed = 0; seed < 150; seed++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_rng rng = ru_rng_from(seed, 3);
        ru_burst_machine m[6];
        for (uint32_t i = 0; i < 6; i++) {
            m[i] = (ru_burst_machine){1, {.earned = 20 * ru_rng_f64(&rng)}};
        }
        const ru_burst_fleet_in in = {
            types, 2, m, 6, 5 + 40 * ru_rng_f64(&rng), 3600, (uint32_t)(seed % 3)};
        ru_burst_fleet_plan p;
        ru_err err;
        assert_ok(ru_plan_burst_fleet(&in, &a, &a, &p, &err), err);
        assert_ok(ru_plan_burst_fleet_check(&in, &p, &err), err);
        assert_few_keep_credits(&in, &p);
        double best = brute(&in);
        infeasible += isinf(best) ? 1 : 0;
        kept += p.n > 0 && p.from[0] != UINT32_MAX;
        /* Offers are rounded down to 1/2000 of the forecast: a set that barely covers may miss. */
        ru_burst_fleet_in more = in;
        more.rate *= 1 + 9.0 / 2000;
        assert_true(p.usd >= best - 1e-9 && p.usd <= brute(&more) + 1e-9);
        ru_arena_fini(&a);
    }
    assert_true(infeasible == 0 && kept > 20);
}

static void refuse(const ru_burst_fleet_in *in, const ru_burst_fleet_plan *p)
{
    ru_err err;
    if (ru_plan_burst_fleet_check(in, p, &err) != RU_E_INFEASIBLE) {
        fail_msg("the checker took a fleet that was changed");
    }
}

static void test_checker_refuses_changes(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    const ru_burst_type types[2] = {type("regular", 60, 0, 0.085), type("small", 6, 30, 0.0116)};
    const ru_burst_machine m[2] = {{1, {.earned = 25}}, {1, {.earned = 26}}};
    ru_burst_fleet_in in = {types, 2, m, 2, 50, 3600, 2};
    ru_burst_fleet_plan p, q;
    ru_err err;
    assert_ok(ru_plan_burst_fleet(&in, &a, &a, &p, &err), err);
    assert_ok(ru_plan_burst_fleet_check(&in, &p, &err), err);
    assert_true(p.n >= 3 && p.from[0] == 0 && p.from[1] == 1);
    q = p, q.usd *= 0.9, refuse(&in, &q);
    q = p, q.n--, refuse(&in, &q);
    for (uint32_t i = 0; i < p.n; i++) {
        double rate = p.rate[i];
        uint32_t from = p.from[i], type_was = p.machine[i].type;
        p.rate[i] = rate * 1.01, refuse(&in, &p), p.rate[i] = -rate, refuse(&in, &p);
        p.rate[i] = rate;
        p.from[i] = 2, refuse(&in, &p), p.from[i] = from;
        p.machine[i].type = 1 - type_was, refuse(&in, &p), p.machine[i].type = type_was;
    }
    assert_ok(ru_plan_burst_fleet_check(&in, &p, &err), err);
    in.launches_left = 0;
    refuse(&in, &p);
    /* Without launches and regular machines there is no fleet. */
    in.n_types = 2;
    const ru_burst_type tiny[2] = {type("a", 6, 30, 0.01), type("b", 6, 30, 0.01)};
    in.type = tiny;
    in.rate = 1000;
    assert_int_equal(ru_plan_burst_fleet(&in, &a, &a, &q, &err), RU_E_INFEASIBLE);
    ru_arena_fini(&a);
}

RU_TESTS(plan_burst_fleet, cmocka_unit_test(test_no_set_is_cheaper),
         cmocka_unit_test(test_checker_refuses_changes))
