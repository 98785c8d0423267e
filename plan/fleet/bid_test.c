/* Bids: the paper's E by hand, single decisions against all sets of requests, corrupted plans. */
#include "plan/fleet/bid.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "plan/row/policy.h"
#include "test/test.h"

/* `evicted` of 100 starts go after `minute` minutes. */
static ru_evict_law law(uint32_t evicted, uint32_t minute)
{
    ru_evict_law l = {.n_starts = 100, .median_s = evicted > 0 ? 60.0 * minute : 0};
    for (uint32_t k = minute; k <= RU_EVICT_MINUTES; k++) {
        l.evicted[k] = evicted;
    }
    return l;
}

static ru_bid_plan plan_of(const ru_bid_in *in, ru_arena *a)
{
    ru_bid_plan p = {0};
    ru_err err;
    assert_ok(ru_plan_bid(in, a, a, &p, &err), err);
    assert_ok(ru_plan_bid_check(in, &p, &err), err);
    return p;
}

/* One market of 10 work at 0.5; one bid of 20 % evictions after 30 minutes; held: 4 instances. */
static void test_the_papers_objective_by_hand(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_evict_law l = law(20, 30);
    double delta = 0.01;
    ru_bid_market m = {0.5, 2, 10, false, &l};
    ru_bid_held held = {0, 4, 0.51, 0.4, 0.75, false};
    ru_bid_in in = {.markets = &m,
                    .n_markets = 1,
                    .deltas_usd = &delta,
                    .n_deltas = 1,
                    .held = &held,
                    .n_held = 1,
                    .reliable_usd = 3,
                    .phi = 0.9,
                    .sigma_h = 0.05,
                    .lambda_h = 0.02,
                    .cap_work = 60,
                    .step_work = 20,
                    .method = RU_BID_BIDBRAIN};
    ru_bid_plan p = plan_of(&in, &a);
    assert_int_equal(p.n, 1);
    assert_near(p.actions[0].instances, 2, 1e-15);
    assert_near(p.actions[0].bid_usd, 0.51, 1e-15);
    /* before: C = 3 + 0.8 * 0.4 * 4 * 0.75, dt = 0.8 * 0.75 + 0.2 * 0.5 - 0.2 * 0.02 */
    assert_near(p.before.cost_usd, 3.96, 1e-12);
    assert_near(p.before.chance, 0.2, 1e-12);
    assert_near(p.before.work, 0.9 * 40 * 0.696, 1e-12);
    assert_near(p.before.usd, 3.96 / (0.9 * 40 * 0.696), 1e-12);
    /* after: + 0.8 * 0.5 * 2; beta 1 - 0.64; dt 0.7 - 0.0072 and 0.9 - 0.0072 - 0.05 */
    assert_near(p.after.cost_usd, 4.76, 1e-12);
    assert_near(p.after.chance, 0.36, 1e-12);
    assert_near(p.after.work, 0.9 * (40 * 0.6928 + 20 * 0.8428), 1e-12);
    /* cycle: service (60 - 0.2 * 30.5) / 60; both bid the same and go together */
    in.method = RU_BID_CYCLE;
    p = plan_of(&in, &a);
    double service = (60 - 0.2 * 30.5) / 60;
    assert_near(p.after.cost_usd, 3 + 6 * 0.5 * 0.8 / service, 1e-12);
    assert_near(p.after.chance, 0.2 / service, 1e-12);
    assert_near(p.after.work, 0.9 * (40 + 20 * (1 - 0.05 / service)) * (1 - 0.02 * 0.2 / service),
                1e-12);
    ru_arena_fini(&a);
}

typedef struct small {
    ru_evict_law laws[3][3];
    ru_bid_market m[3];
    double deltas[3];
    ru_bid_held held[3];
    ru_bid_in in;
} small;

static void small_make(small *s, ru_rng *r, ru_bid_method method)
{
    *s = (small){.deltas = {0, 0.01, 0.1}};
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t minute = 1 + ru_rng_below(r, 50), evicted = ru_rng_below(r, 80);
        for (uint32_t d = 0; d < 3; d++) {
            s->laws[i][d] = law(evicted >> d, minute);
        }
        double usd = 0.1 + 0.01 * ru_rng_below(r, 40);
        s->m[i] = (ru_bid_market){usd, 1, 8.0 * (1 + ru_rng_below(r, 3)), ru_rng_below(r, 5) == 0,
                                  s->laws[i]};
        s->held[i] = (ru_bid_held){i,   1 + ru_rng_below(r, 2),     usd + 0.01 * ru_rng_below(r, 5),
                                   usd, 0.02 * ru_rng_below(r, 50), ru_rng_below(r, 2) == 0};
    }
    s->in = (ru_bid_in){.markets = s->m,
                        .n_markets = 3,
                        .deltas_usd = s->deltas,
                        .n_deltas = 3,
                        .held = s->held,
                        .n_held = ru_rng_below(r, 4),
                        .reliable_usd = 0.1 * ru_rng_below(r, 10),
                        .phi = 1,
                        .sigma_h = 0.03,
                        .lambda_h = 0.01 * ru_rng_below(r, 10),
                        .cap_work = 150,
                        .step_work = 24.0 * ru_rng_below(r, 3),
                        .fixed = ru_rng_below(r, 3),
                        .fractions = ru_rng_below(r, 2) == 0,
                        .method = method};
}

static void test_legal_and_no_request_is_missing(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 7);
    uint32_t acted[3] = {0};
    for (uint32_t round = 0; round < 1500; round++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        small s;
        small_make(&s, &r, (ru_bid_method)(round % RU_BID_METHODS));
        ru_bid_plan p = plan_of(&s.in, &a);
        for (uint32_t k = 0; k < p.n; k++) {
            acted[p.actions[k].act]++;
        }
        ru_arena_fini(&a);
    }
    assert_true(acted[RU_BID_ACQUIRE] > 100 && acted[RU_BID_RENEW] > 100 &&
                acted[RU_BID_RELEASE] > 100);
}

static void test_corrupted_plans_are_refused(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 8);
    for (uint32_t round = 0; round < 300; round++) {
        ru_arena a;
        ru_err err;
        ru_arena_init(&a, 0);
        small s;
        small_make(&s, &r, round % 2 == 0 ? RU_BID_CYCLE : RU_BID_BIDBRAIN);
        ru_bid_plan p = plan_of(&s.in, &a);
        for (uint32_t field = 0; field < 13; field++) {
            ru_bid_plan q = p;
            ru_bid_action *actions = RU_NEW(&a, ru_bid_action, (int64_t)p.n + 1);
            for (uint32_t k = 0; k < p.n; k++) {
                actions[k] = p.actions[k];
            }
            q.actions = actions;
            ru_bid_action *one = p.n > 0 ? &actions[ru_rng_below(&r, p.n)] : NULL;
            if (one == NULL && field < 6) {
                continue;
            }
            switch (field) {
            case 0:
                one->act = one->act == RU_BID_ACQUIRE ? RU_BID_RENEW : RU_BID_ACQUIRE;
                break;
            case 1:
                one->held = one->held == UINT32_MAX ? 0 : UINT32_MAX;
                break;
            case 2:
                one->market += 3;
                break;
            case 3:
                one->instances *= 1.25;
                break;
            case 4:
                one->bid_usd += 0.004;
                break;
            case 5:
                q.n--;
                break;
            case 6:
                q.before.cost_usd += 1e-6;
                break;
            case 7:
                q.before.work += 1e-6;
                break;
            case 8:
                q.before.chance += 1e-6;
                break;
            case 9:
                q.after.cost_usd += 1e-6;
                break;
            case 10:
                q.after.work += 1e-6;
                break;
            case 11:
                q.after.chance += 1e-6;
                break;
            default:
                q.after.usd = q.after.usd < 1e9 ? q.after.usd + 0.001 : 1;
                break;
            }
            if (ru_plan_bid_check(&s.in, &q, &err) == RU_OK) {
                fail_msg("round %u: field %u was changed and the plan passed", round, field);
            }
        }
        ru_arena_fini(&a);
    }
}

/* On a market where low bids are evicted late and refunded, forced low bids beat the paper's rule,
 * and cycle finds them. */
static void test_cycle_takes_the_refunds(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_evict_law laws[] = {law(80, 40), law(0, 60)};
    double deltas[] = {0.001, 0.4};
    ru_bid_market m = {0.5, 2, 10, false, laws};
    ru_bid_in in = {.markets = &m,
                    .n_markets = 1,
                    .deltas_usd = deltas,
                    .n_deltas = 2,
                    .phi = 1,
                    .sigma_h = 2.0 / 60,
                    .lambda_h = 1.0 / 60,
                    .cap_work = 100,
                    .step_work = 10};
    ru_bid_plan p = plan_of(&in, &a);
    assert_int_equal(p.n, 10);
    for (uint32_t k = 0; k < p.n; k++) {
        assert_near(p.actions[k].bid_usd, 0.501, 1e-15);
    }
    in.method = RU_BID_STANDARD;
    assert_true(plan_of(&in, &a).after.usd > 2 * p.after.usd);
    in.method = RU_BID_ON_DEMAND;
    assert_near(plan_of(&in, &a).after.cost_usd, 20, 1e-12);
    m.closed = true;
    assert_int_equal(plan_of(&in, &a).n, 0);
    ru_err err;
    in.fixed = 2;
    assert_int_equal(ru_plan_bid(&in, &a, &a, &p, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

/* Random markets, prices up to twenty times the on-demand price: what is acquired never costs more
 * than on-demand instances alone would (closed form: the cheapest that fit, each without its
 * start), nor more than the same plan with all bids at one delta. */
static void test_never_dearer_than_on_demand(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 9);
    uint32_t safe = 0, spot = 0;
    for (uint32_t round = 0; round < 5000; round++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        small s;
        small_make(&s, &r, RU_BID_CYCLE);
        s.in.n_held = 0;
        s.in.fractions = true;
        double least = (double)INFINITY;
        for (uint32_t i = 0; i < 3; i++) {
            s.m[i].on_demand_usd = s.m[i].usd * (0.05 + 0.05 * ru_rng_below(&r, 40));
            least = s.m[i].closed ? least : fmin(least, s.m[i].on_demand_usd / s.m[i].work);
        }
        least /= 1 - s.in.sigma_h;
        s.in.price_max_usd = round % 3 == 0 ? least * (0.5 + 0.1 * ru_rng_below(&r, 10)) : 0;
        ru_bid_plan p = plan_of(&s.in, &a);
        double most = p.n > 0 ? least + s.in.reliable_usd / p.after.work : 0;
        bool open = isfinite(least);
        if (!open || (p.n > 0 && p.after.usd > most * (1 + 1e-9)) ||
            (p.n == 0 && s.in.price_max_usd <= 0)) {
            if (open || p.n != 0)
                fail_msg("round %u usd %.9g most %.9g max %g n %u", round, p.after.usd, most,
                         s.in.price_max_usd, p.n);
        }
        for (uint32_t k = 0; k < p.n; k++) {
            safe += isinf(p.actions[k].bid_usd) ? 1 : 0;
            spot += isinf(p.actions[k].bid_usd) ? 0 : 1;
        }
        bool below = true; /* standard looks at the same markets as ours */
        for (uint32_t i = 0; i < 3; i++) {
            below = below && s.m[i].on_demand_usd >= s.m[i].usd;
        }
        for (uint32_t d = 0; p.n > 0 && d <= (below ? 3 : 2); d++) {
            ru_bid_in by = s.in;
            ru_bid_plan q;
            ru_bid_value v;
            ru_err err;
            by.method = d < 3 ? RU_BID_FIXED : RU_BID_STANDARD;
            by.fixed = d % 3;
            assert_ok(ru_plan_bid(&by, &a, &a, &q, &err), err);
            assert_ok(ru_bid_long_run(&s.in, &q, &a, &v, &err), err);
            bool beats = v.usd < p.after.usd * (1 - 1e-9);
            if (beats && v.work >= p.after.work * (1 - 1e-9)) {
                fail_msg("round %u: method %u, delta %u: %.9g instead of %.9g USD", round,
                         (uint32_t)by.method, by.fixed, v.usd, p.after.usd);
            }
        }
        ru_arena_fini(&a);
    }
    assert_true(safe > 500 && spot > 500);
}

/* Ten times the on-demand price: the plan of spot instances, with figures that are right, is
 * refused. */
static void test_checker_refuses_dear_spot_work(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    ru_evict_law l = law(0, 60);
    double delta = 0.1;
    ru_bid_market m = {5, 0.5, 10, false, &l};
    ru_bid_in in = {.markets = &m,
                    .n_markets = 1,
                    .deltas_usd = &delta,
                    .n_deltas = 1,
                    .phi = 1,
                    .cap_work = 100};
    ru_bid_plan p = plan_of(&in, &a);
    assert_int_equal(p.n, 1);
    assert_true(isinf(p.actions[0].bid_usd));
    assert_near(p.after.usd, 0.05, 1e-12);
    ru_bid_action dear = {RU_BID_ACQUIRE, UINT32_MAX, 0, 10, 5.1};
    ru_bid_plan q = {&dear, 1, p.before, {50, 100, 0, 0.5}};
    assert_int_equal(ru_plan_bid_check(&in, &q, &err), RU_E_INFEASIBLE);
    assert_non_null(strstr(err.text, "on demand"));
    m.on_demand_usd = 5.2; /* now spot work is the cheaper one, at the same figures */
    assert_ok(ru_plan_bid_check(&in, &q, &err), err);
    /* held at 5.1, to be renewed at 5: released for the cheaper kind; kept when none is cheaper */
    ru_bid_held held = {0, 10, 5.1, 5, 0, true};
    in.held = &held;
    in.n_held = 1;
    assert_int_equal(plan_of(&in, &a).actions[0].act, RU_BID_RENEW);
    m.on_demand_usd = 0.5;
    assert_int_equal(plan_of(&in, &a).actions[0].act, RU_BID_RELEASE);
    m.on_demand_usd = 5.2;
    in.price_max_usd = 0.4;
    p = plan_of(&in, &a);
    assert_int_equal(p.n, 1);
    assert_int_equal(p.actions[0].act, RU_BID_RELEASE);
    ru_arena_fini(&a);
}

static void test_prices_of_a_world_give_a_question(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    const ru_cluster_host hosts[] = {{.name = "a", .cores = 4, .market = "east"},
                                     {.name = "b", .cores = 8, .market = ""}};
    const ru_price_fact prices[] = {{"east", 5, 0.25}, {"east", 4000, 0.5}, {"west", 7, 0.125}};
    const ru_world_job job = {.name = "x", .workers_max = 6};
    ru_world w = {.cluster = {.hosts = {hosts, 2}}, .jobs = {&job, 1}};
    w.facts.prices.at = prices;
    w.facts.prices.n = 3;
    ru_text text = ru_text_arena(&a);
    ru_json j = ru_json_into(&text);
    ru_json_open(&j, NULL, '{');
    assert_ok(ru_policy_bid.derive(&w, &a, &j, &err), err);
    ru_json_close(&j);
    assert_string_equal(
        text.p, "{\"markets\":[{\"name\":\"east\",\"at\":[5,4000],\"usd\":[0.25,0.5],\"work\":4},"
                "{\"name\":\"west\",\"at\":[7],\"usd\":[0.125],\"work\":1}],\"cap\":6}");
    w.facts.prices.n = 0;
    assert_int_equal(ru_policy_bid.derive(&w, &a, &j, &err), RU_E_MISSING);
    ru_arena_fini(&a);
}

RU_TESTS(plan_bid, cmocka_unit_test(test_prices_of_a_world_give_a_question),
         cmocka_unit_test(test_never_dearer_than_on_demand),
         cmocka_unit_test(test_checker_refuses_dear_spot_work),
         cmocka_unit_test(test_the_papers_objective_by_hand),
         cmocka_unit_test(test_legal_and_no_request_is_missing),
         cmocka_unit_test(test_corrupted_plans_are_refused),
         cmocka_unit_test(test_cycle_takes_the_refunds))
