/* Reassignment: grants against the best over all cuts of small groups, predictions against closed
 * forms, and a checker that refuses changed plans. */
#include "plan/crew/reassign.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/rng.h"
#include "cost/progress.h"
#include "plan/row/policy.h"
#include "test/test.h"

enum { N_MAX = 16, CLOCKS_MAX = 8 };

typedef struct facts {
    double took[CLOCKS_MAX * N_MAX];
    int64_t machine[N_MAX];
    ru_reassign_in in;
} facts;

/* Some workers slow for good, all a little different each clock. */
static void draw(facts *f, ru_rng *r, uint32_t n, uint32_t clocks)
{
    double level[N_MAX];
    for (uint32_t w = 0; w < n; w++) {
        level[w] = ru_rng_below(r, 3) == 0 ? ru_rng_uniform(r, 1.5, 3) : 1;
        f->machine[w] = w / 2;
    }
    for (uint32_t i = 0; i < clocks * n; i++) {
        f->took[i] = level[i % n] * ru_rng_uniform(r, 0.98, 1.02);
    }
    f->in = (ru_reassign_in){.n = n,
                             .clocks = clocks,
                             .items = 1000,
                             .took = f->took,
                             .tail = ru_rng_uniform(r, 0, 1),
                             .slack_max = 1,
                             .group_max = 1 + ru_rng_below(r, 4),
                             .machine = f->machine,
                             .n_machine = ru_rng_below(r, 2) != 0 ? n : 0,
                             .rtt_ns = 1000000};
}

/* The largest bound over all sets of workers: no set can end sooner. */
static double best_of_all_cuts(const ru_reassign_in *in, const ru_reassign_plan *p)
{
    double most = 0;
    uint32_t g = p->rules.group;
    for (uint32_t set = 1; set < 1u << in->n; set++) {
        double work = 0, speed = 0;
        for (uint32_t w = 0; w < in->n; w++) {
            if ((set >> w & 1) == 0) {
                continue;
            }
            bool leaves = false;
            for (uint32_t k = 0; k < g; k++) {
                uint32_t h = p->helper[w * g + k];
                leaves = leaves || (h != RU_REASSIGN_NONE && (set >> h & 1) == 0);
            }
            work += 1 - (leaves ? in->tail : 0);
            speed += 1 / p->next_s[w];
        }
        most = fmax(most, work / speed);
    }
    return most;
}

static void test_grants_reach_the_best_of_all_cuts(void **state)
{
    (void)state;
    uint32_t granting = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        ru_rng r = ru_rng_from(seed, 21);
        facts f;
        draw(&f, &r, 2 + ru_rng_below(&r, 9), 2 + ru_rng_below(&r, 5));
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_reassign_plan p;
        ru_err err;
        assert_ok(ru_plan_reassign(&f.in, &a, &a, &p, &err), err);
        assert_ok(ru_plan_reassign_check(&f.in, &p, &a, &err), err);
        double best = best_of_all_cuts(&f.in, &p);
        if (fabs((double)p.bound_ns * 1e-9 / best - 1) > 1e-6) {
            fail_msg("seed %llu: bound %lld ns, the best over all cuts %g s",
                     (unsigned long long)seed, (long long)p.bound_ns, best);
        }
        /* What is too little to grant, 3 items of 1000 for each helper, stays. */
        assert_true((double)p.clock_ns * 1e-9 <= best * (1 + 0.003 * (p.rules.group + 1) * 3));
        for (uint32_t e = 0; e < p.n * p.rules.group; e++) {
            granting += p.grant[e] > 0 ? 1 : 0;
        }
        ru_arena_fini(&a);
    }
    assert_true(granting > 300);
}

static void test_every_method_passes_the_checker(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        ru_rng r = ru_rng_from(seed, 22);
        facts f;
        draw(&f, &r, 1 + ru_rng_below(&r, N_MAX), 1 + ru_rng_below(&r, CLOCKS_MAX));
        int64_t bsp = 0;
        for (uint32_t m = RU_REASSIGN_METHODS; m-- > 0;) {
            ru_arena a;
            ru_arena_init(&a, 0);
            ru_reassign_plan p;
            ru_err err;
            f.in.method = (ru_reassign_method)m;
            assert_ok(ru_plan_reassign(&f.in, &a, &a, &p, &err), err);
            assert_ok(ru_plan_reassign_check(&f.in, &p, &a, &err), err);
            bsp = m == RU_REASSIGN_BSP ? p.history_ns : bsp;
            ru_arena_fini(&a);
        }
        assert_true(bsp > 0);
    }
}

static void refuse(const ru_reassign_in *in, const ru_reassign_plan *p, ru_arena *a)
{
    ru_err err;
    assert_int_equal(ru_plan_reassign_check(in, p, a, &err), RU_E_INFEASIBLE);
}

static void test_checker_refuses_changed_plans(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(4, 23);
    facts f;
    draw(&f, &r, 8, 4);
    f.in.group_max = 3;
    f.in.tail = 0.6;
    f.in.machine = f.machine;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_reassign_plan p, q;
    ru_err err;
    assert_ok(ru_plan_reassign(&f.in, &a, &a, &p, &err), err);
    uint32_t helper[N_MAX * 3], grant[N_MAX * 3], g = p.rules.group;
    assert_int_equal(g, 3);
    for (uint32_t e = 0; e < p.n * g; e++) {
        memcpy(helper, p.helper, p.n * g * sizeof *helper);
        memcpy(grant, p.grant, p.n * g * sizeof *grant);
        q = p, q.helper = helper;
        helper[e] = e / g, refuse(&f.in, &q, &a);       /* itself */
        helper[e] = (e / g) ^ 1, refuse(&f.in, &q, &a); /* its neighbour on the machine */
        helper[e] = p.helper[e / g * g + (e + 1) % g], refuse(&f.in, &q, &a); /* twice */
        helper[e] = p.n, refuse(&f.in, &q, &a);
        q = p, q.grant = grant;
        grant[e] = 900, refuse(&f.in, &q, &a);
        if (p.grant[e] > 0) {
            grant[e] = 0, refuse(&f.in, &q, &a);
        }
    }
    double next[N_MAX];
    memcpy(next, p.next_s, p.n * sizeof *next);
    q = p, q.next_s = next;
    next[0] = -1, refuse(&f.in, &q, &a);
    next[0] = 100, refuse(&f.in, &q, &a);
    const uint8_t none[N_MAX] = {0};
    q = p, q.tight = none, refuse(&f.in, &q, &a);
    q = p, q.n--, refuse(&f.in, &q, &a);
    q = p, q.clock_ns += 100000, refuse(&f.in, &q, &a);
    q = p, q.bound_ns -= 100000, refuse(&f.in, &q, &a);
    q = p, q.ideal_ns += 100000, refuse(&f.in, &q, &a);
    q = p, q.history_ns = q.ideal_ns / 2, refuse(&f.in, &q, &a);
    q = p, q.stays = 2, refuse(&f.in, &q, &a);
    q = p, q.rules.slack = 2, refuse(&f.in, &q, &a);
    q = p, q.rules.backup = 1, refuse(&f.in, &q, &a);
    q = p, q.rules.push = false, refuse(&f.in, &q, &a);
    q = p, q.rules.pull = true, refuse(&f.in, &q, &a);
    q = p, q.rules.group = p.n, refuse(&f.in, &q, &a);
    q = p, q.rules.grain_ppm = 0, refuse(&f.in, &q, &a);
    q = p, q.rules.first_ppm = 2000000, refuse(&f.in, &q, &a);
    q = p, q.rules.behind_ppm = q.rules.trigger_ppm + 1, refuse(&f.in, &q, &a);
    q = p, q.rules.rtt_ns++, refuse(&f.in, &q, &a);
    ru_arena_fini(&a);
}

static void expect(const ru_reassign_in *in)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_reassign_plan p;
    ru_err err;
    assert_int_equal(ru_plan_reassign(in, &a, &a, &p, &err), RU_E_ARG);
    assert_true(strlen(err.text) > 10);
    ru_arena_fini(&a);
}

static void test_bad_facts_are_refused(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(4, 24);
    facts f;
    draw(&f, &r, 4, 2);
    const ru_reassign_in good = f.in;
    f.in.n = 0, expect(&f.in), f.in = good;
    f.in.clocks = 0, expect(&f.in), f.in = good;
    f.in.items = 0, expect(&f.in), f.in = good;
    f.in.tail = RU_NAN, expect(&f.in), f.in = good;
    f.in.rtt_ns = -1, expect(&f.in), f.in = good;
    f.in.backup = 4, expect(&f.in), f.in = good;
    f.in.group_max = 65, expect(&f.in), f.in = good;
    f.took[3] = RU_NAN, expect(&f.in), f.took[3] = 0;
    expect(&f.in), f.took[3] = INFINITY, expect(&f.in);
}

/* Workers that joined by hand stand in any order, and one that left is not there. */
static void test_facts_give_an_input(void **state)
{
    (void)state;
    ru_step_fact steps[4];
    static const uint32_t ranks[4] = {1, 5, 3, 3};
    for (uint32_t i = 0; i < 4; i++) {
        steps[i] = (ru_step_fact){.job = i == 3 ? "other" : "mf",
                                  .rank = ranks[i],
                                  .samples = 100 * ranks[i],
                                  .compute_ns = 1e9,
                                  .took.count = 9};
    }
    ru_world w = {0};
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_text text = ru_text_arena(&a);
    ru_json j = ru_json_into(&text);
    ru_json_open(&j, NULL, '{');
    assert_int_equal(ru_policy_reassign.derive(&w, &a, &j, &err), RU_E_MISSING);
    w.facts.steps.at = steps;
    w.facts.steps.n = 4;
    assert_ok(ru_policy_reassign.derive(&w, &a, &j, &err), err);
    ru_json_close(&j);
    /* 300 items for each of three, which take 3, 1 and 0.6 s. */
    assert_string_equal(text.p, "{\"items\":300,\"history\":[{\"took_s\":[3,1,0.6]},"
                                "{\"took_s\":[3,1,0.6]}]}");
    ru_arena_fini(&a);
}

/* Ours may do what every other method does, so its predicted time is the least of those that lose
 * no work and are not staler than allowed: 1 % above at most, where it is less stale. */
static void test_no_method_is_better_by_the_same_figures(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        ru_rng r = ru_rng_from(seed, 22);
        facts f;
        uint32_t clocks =
            1 + ru_rng_below(&r, 6); /* each compiler has its own order of arguments */
        draw(&f, &r, 2 + ru_rng_below(&r, 9), clocks);
        for (uint32_t i = 0; seed % 3 == 0 && i < CLOCKS_MAX * N_MAX; i++) {
            f.took[i] = 1; /* equal workers: nothing is to be handed over */
        }
        f.in.slack_max = ru_rng_below(&r, 5);
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_err err;
        ru_reassign_plan ours, other;
        f.in.method = RU_REASSIGN_STICKY;
        assert_ok(ru_plan_reassign(&f.in, &a, &a, &ours, &err), err);
        for (uint32_t m = 0; m < RU_REASSIGN_METHODS; m++) {
            f.in.method = (ru_reassign_method)m;
            assert_ok(ru_plan_reassign(&f.in, &a, &a, &other, &err), err);
            int64_t room = other.rules.slack > ours.rules.slack ? other.history_ns / 99 : 1;
            if (other.rules.slack <= f.in.slack_max && other.rules.backup == 0 &&
                ours.history_ns > other.history_ns + room) {
                fail_msg("seed %llu: method %u takes %lld ns, ours %lld", (unsigned long long)seed,
                         m, (long long)other.history_ns, (long long)ours.history_ns);
            }
        }
        ru_arena_fini(&a);
    }
}

RU_TESTS(plan_reassign, cmocka_unit_test(test_no_method_is_better_by_the_same_figures),
         cmocka_unit_test(test_facts_give_an_input),
         cmocka_unit_test(test_grants_reach_the_best_of_all_cuts),
         cmocka_unit_test(test_every_method_passes_the_checker),
         cmocka_unit_test(test_checker_refuses_changed_plans),
         cmocka_unit_test(test_bad_facts_are_refused))
