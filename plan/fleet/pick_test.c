/* Picking clients: tiers against all cuts, chances and frequencies by counting, every method's
 * rounds pass the checker, changed plans do not. */
#include "plan/fleet/pick.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "cost/math/norm.h"
#include "test/test.h"

enum { N = 40, TIERS = 5 };

typedef struct facts {
    ru_pick_client client[N];
    ru_pick_tier tier[TIERS];
    ru_pick_in in;
} facts;

static void make(facts *f, uint64_t seed)
{
    ru_rng rng = ru_rng_from(seed, 3);
    for (uint32_t i = 0; i < N; i++) {
        f->client[i] = (ru_pick_client){.latency_s = ru_math_exp(1.3 * ru_rng_normal(&rng)),
                                        .samples = 10 + ru_rng_below(&rng, 90),
                                        .loss = ru_rng_f64(&rng) < 0.3 ? -1 : ru_rng_f64(&rng),
                                        .picks = ru_rng_below(&rng, 3),
                                        .last_round = ru_rng_below(&rng, 20),
                                        .away = ru_rng_f64(&rng) < 0.1};
    }
    for (uint32_t t = 0; t < TIERS; t++) {
        f->tier[t] = (ru_pick_tier){5 + ru_rng_below(&rng, 50), ru_rng_f64(&rng), ru_rng_f64(&rng)};
    }
    f->in = (ru_pick_in){.client = f->client,
                         .n = N,
                         .n_tiers = TIERS,
                         .kmeans = seed % 2 == 1,
                         .tier = f->tier,
                         .n_told = TIERS,
                         .round = 1 + (uint32_t)seed,
                         .rounds = 100,
                         .per_round = 4,
                         .interval = 10,
                         .last_tier = (uint32_t)seed % TIERS,
                         .prefer = 0.3,
                         .spread = 0.1,
                         .seed = seed};
}

static double squares(const double *v, uint32_t from, uint32_t to)
{
    double sum = 0, all = 0;
    for (uint32_t i = from; i < to; i++) {
        sum += v[i] / (to - from);
    }
    for (uint32_t i = from; i < to; i++) {
        all += (v[i] - sum) * (v[i] - sum);
    }
    return all;
}

static void test_kmeans_tiers_are_the_best_cuts(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        facts f;
        make(&f, seed);
        f.in.n = 12;
        f.in.n_tiers = 3;
        f.in.kmeans = true;
        double v[12], best = INFINITY, mine = 0;
        uint32_t tier[12];
        for (uint32_t i = 0; i < 12; i++) {
            f.client[i].away = false;
            v[i] = ru_num_log(f.client[i].latency_s);
            for (uint32_t j = i; j > 0 && v[j - 1] > v[j]; j--) {
                double t = v[j];
                v[j] = v[j - 1];
                v[j - 1] = t;
            }
        }
        for (uint32_t c = 1; c < 11; c++) {
            for (uint32_t d = c + 1; d < 12; d++) {
                best = fmin(best, squares(v, 0, c) + squares(v, c, d) + squares(v, d, 12));
            }
        }
        ru_err err;
        assert_ok(ru_pick_tiers(&f.in, &a, tier, &err), err);
        for (uint32_t t = 0; t < 3; t++) {
            double in[12];
            uint32_t n = 0;
            for (uint32_t i = 0; i < 12; i++) {
                if (tier[i] == t) {
                    in[n++] = ru_num_log(f.client[i].latency_s);
                }
            }
            mine += squares(in, 0, n);
        }
        assert_near(mine, best, 1e-9);
        ru_arena_fini(&a);
    }
}

static void test_every_method_passes_the_checker(void **state)
{
    (void)state;
    for (uint32_t m = 0; m < RU_PICK_METHODS; m++) {
        for (uint64_t seed = 0; seed < 40; seed++) {
            ru_arena a, scratch;
            ru_arena_init(&a, 0);
            ru_arena_init(&scratch, 0);
            facts f;
            make(&f, seed);
            f.in.method = (ru_pick_method)m;
            ru_pick_plan p;
            ru_err err;
            assert_ok(ru_plan_pick(&f.in, &a, &scratch, &p, &err), err);
            assert_ok(ru_plan_pick_check(&f.in, &p, &scratch, &err), err);
            double s;
            assert_ok(ru_pick_round_mean(&f.in, &p, &scratch, &s, &err), err);
            assert_true(s > 0);
            ru_arena_fini(&scratch);
            ru_arena_fini(&a);
        }
    }
}

/* Rounds larger than most tiers: always as many clients as asked for, or all there are. The checker
 * refuses a round of the tier alone. With constant latencies the mean slowest over many rounds, by
 * counting, is the estimate. */
static void test_a_small_tier_is_filled(void **state)
{
    (void)state;
    uint32_t filled = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        ru_arena a;
        ru_err err;
        ru_arena_init(&a, 0);
        facts f;
        make(&f, seed);
        f.in.n = 12 + (uint32_t)seed % 20;
        f.in.per_round = 1 + (uint32_t)(seed / 2) % 11;
        f.in.method = seed % 3 == 0   ? RU_PICK_ADAPTIVE
                      : seed % 3 == 1 ? RU_PICK_TIFL
                                      : RU_PICK_SLOW;
        uint32_t there = 0;
        for (uint32_t i = 0; i < f.in.n; i++) {
            there += f.client[i].away ? 0 : 1;
        }
        f.in.per_round = f.in.per_round < there ? f.in.per_round : there;
        ru_pick_plan p;
        assert_ok(ru_plan_pick(&f.in, &a, &a, &p, &err), err);
        assert_ok(ru_plan_pick_check(&f.in, &p, &a, &err), err);
        assert_int_equal(p.n, f.in.per_round);
        assert_int_equal(p.wait, p.n);
        uint32_t own = 0, *few = RU_NEW(&a, uint32_t, p.n);
        for (uint32_t k = 0; k < p.n; k++) {
            if (p.tier_of[p.client[k]] == p.tier) {
                few[own++] = p.client[k];
            }
        }
        if (own < p.n) {
            ru_pick_plan q = p;
            q.client = few;
            q.n = q.wait = own;
            assert_int_equal(ru_plan_pick_check(&f.in, &q, &a, &err), RU_E_INFEASIBLE);
            filled++;
        }
        ru_arena_fini(&a);
    }
    assert_true(filled > 100);
    facts f;
    make(&f, 2);
    f.in.n = 16;
    f.in.per_round = 5;
    f.in.spread = 0;
    f.in.method = RU_PICK_UNIFORM;
    double sum = 0, said = 0;
    for (uint32_t round = 1; round <= 20000; round++) {
        ru_arena a;
        ru_err err;
        ru_arena_init(&a, 0);
        ru_pick_plan p;
        double slowest = 0;
        f.in.round = round;
        assert_ok(ru_plan_pick(&f.in, &a, &a, &p, &err), err);
        for (uint32_t k = 0; k < p.n; k++) {
            slowest = fmax(slowest, f.client[p.client[k]].latency_s);
        }
        sum += slowest / 20000;
        if (round == 1) {
            assert_ok(ru_pick_round_mean(&f.in, &p, &a, &said, &err), err);
        }
        ru_arena_fini(&a);
    }
    assert_near(sum, said, 0.01 * said);
}

/* Tiers come as often as their chances say, clients of a tier alike, and the mean round is that of
 * the estimate. */
static void test_draws_follow_the_chances(void **state)
{
    (void)state;
    static const ru_pick_method methods[] = {RU_PICK_ADAPTIVE, RU_PICK_VANILLA, RU_PICK_RANDOM};
    enum { ROUNDS = 20000 };
    for (uint32_t m = 0; m < RU_ARRAY_LEN(methods); m++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        facts f;
        make(&f, 4);
        f.in.method = methods[m];
        f.in.interval = 1;
        f.in.spread = 0;
        double drawn[TIERS] = {0}, of[N] = {0}, seconds = 0, estimate = 0, chance[TIERS];
        ru_arena_mark mark = ru_arena_mark_get(&a);
        ru_pick_plan p;
        ru_err err;
        for (uint32_t r = 1; r <= ROUNDS; r++) {
            f.in.round = r;
            f.in.rounds = ROUNDS;
            for (uint32_t t = 0; t < TIERS; t++) {
                f.tier[t].credits = -1;
            }
            ru_arena_rewind(&a, mark);
            assert_ok(ru_plan_pick(&f.in, &a, &a, &p, &err), err);
            double slowest = 0;
            for (uint32_t k = 0; k < p.n; k++) {
                of[p.client[k]] += 1.0 / ROUNDS;
                slowest = fmax(slowest, f.client[p.client[k]].latency_s);
            }
            seconds += slowest / ROUNDS;
            if (p.tier != RU_PICK_NONE) {
                drawn[p.tier] += 1.0 / ROUNDS;
            }
        }
        assert_ok(ru_pick_round_mean(&f.in, &p, &a, &estimate, &err), err);
        assert_near(seconds, estimate, 0.03);
        memcpy(chance, p.chance, sizeof chance);
        for (uint32_t t = 0; t < TIERS && p.tier != RU_PICK_NONE; t++) {
            assert_true(fabs(drawn[t] - chance[t]) < 0.015);
        }
        for (uint32_t i = 0; i < N; i++) {
            double all = 0;
            for (uint32_t k = 0; k < N; k++) {
                all += !f.client[k].away && (p.tier == RU_PICK_NONE || p.tier_of[k] == p.tier_of[i])
                           ? 1
                           : 0;
            }
            double want = f.client[i].away         ? 0
                          : p.tier == RU_PICK_NONE ? 4 / all
                                                   : chance[p.tier_of[i]] * 4 / all;
            assert_true(fabs(of[i] - want) < 0.015);
        }
        ru_arena_fini(&a);
    }
}

static void test_credits_end_a_tier_and_come_again(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    facts f;
    make(&f, 6);
    for (uint32_t t = 0; t < TIERS; t++) {
        f.tier[t].credits = t == 3 ? 1 : 0;
    }
    ru_pick_plan p;
    ru_err err;
    assert_ok(ru_plan_pick(&f.in, &a, &a, &p, &err), err);
    assert_true(p.tier == 3 && p.credits[3] == 0);
    f.tier[3].credits = 0; /* all are spent: as at the start */
    assert_ok(ru_plan_pick(&f.in, &a, &a, &p, &err), err);
    double left = 0;
    for (uint32_t t = 0; t < TIERS; t++) {
        left += p.credits[t];
    }
    assert_true(left >= 199 && left <= 205);
    ru_arena_fini(&a);
}

static void refuse(const facts *f, const ru_pick_plan *p)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    assert_int_equal(ru_plan_pick_check(&f->in, p, &a, &err), RU_E_INFEASIBLE);
    ru_arena_fini(&a);
}

static void test_changed_plans_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    facts f;
    make(&f, 8);
    ru_pick_plan p;
    ru_err err;
    assert_ok(ru_plan_pick(&f.in, &a, &a, &p, &err), err);
    assert_ok(ru_plan_pick_check(&f.in, &p, &a, &err), err);
    uint32_t client[N], tier_of[N];
    double chance[TIERS], credits[TIERS];
    for (uint32_t k = 0; k < 13; k++) {
        ru_pick_plan q = p;
        memcpy(client, p.client, p.n * sizeof *client);
        memcpy(tier_of, p.tier_of, sizeof tier_of);
        memcpy(chance, p.chance, sizeof chance);
        memcpy(credits, p.credits, sizeof credits);
        q.client = client;
        q.tier_of = tier_of;
        q.chance = chance;
        q.credits = credits;
        q.n -= k == 0 ? 1 : 0;
        q.wait -= k == 1 ? 1 : 0;
        q.deadline_s *= k == 2 ? 1.01 : 1;
        q.tier = k == 3 ? (p.tier + 1) % TIERS : q.tier;
        q.share_most += k == 4 ? 0.01 : 0;
        q.n_tiers += k == 5 ? 1 : 0;
        client[0] = k == 6 ? client[1] : client[0];
        client[1] = k == 7 ? N + 3 : client[1];
        tier_of[client[0]] = k == 8 ? (p.tier + 1) % TIERS : tier_of[client[0]];
        chance[1] += k == 9 ? 0.01 : 0;
        chance[2] -= k == 9 ? 0.01 : 0;
        chance[0] += k == 10 ? 0.1 : 0;
        credits[p.tier] += k == 11 ? 1 : 0;
        q.share_drawn += k == 12 ? 0.01 : 0;
        refuse(&f, &q);
    }
    ru_arena_fini(&a);
}

static void test_bad_facts_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    facts f;
    ru_pick_plan p;
    ru_err err;
    make(&f, 2);
    f.client[3].away = false;
    f.client[3].latency_s = RU_NAN;
    assert_int_equal(ru_plan_pick(&f.in, &a, &a, &p, &err), RU_E_ARG);
    make(&f, 2);
    f.in.per_round = 0;
    assert_int_equal(ru_plan_pick(&f.in, &a, &a, &p, &err), RU_E_ARG);
    make(&f, 2);
    for (uint32_t i = 4; i < N; i++) {
        f.client[i].away = true;
    }
    assert_int_equal(ru_plan_pick(&f.in, &a, &a, &p, &err), RU_E_INFEASIBLE);
    ru_arena_fini(&a);
}

RU_TESTS(plan_pick, cmocka_unit_test(test_a_small_tier_is_filled),
         cmocka_unit_test(test_kmeans_tiers_are_the_best_cuts),
         cmocka_unit_test(test_every_method_passes_the_checker),
         cmocka_unit_test(test_draws_follow_the_chances),
         cmocka_unit_test(test_credits_end_a_tier_and_come_again),
         cmocka_unit_test(test_changed_plans_are_refused),
         cmocka_unit_test(test_bad_facts_are_refused))
