/* No plan is worse than its own runners-up, by the policy's own figure: every policy, its example
 * changed at random (test/plan/policy_draw.c), with its own method.
 *
 * One seed:   rubato-test --filter test_policy_best --seed N
 * Many seeds: RUBATO_STORM=all RUBATO_STORM_ROUNDS=1000 rubato-test --filter test_policy_best
 *             (or RUBATO_STORM=NAME for one policy); prints each input whose plan is worse. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "test/plan/policy_draw.h"
#include "test/test.h"

enum { ROUNDS = 10, MEMORY_MAX = 1 << 30 };

typedef struct tally {
    uint32_t plans, rivals, worse;
} tally;

/* By more than the rounding of its sums. */
static bool beats(const ru_policy *p, double other, double mine)
{
    double slack = 1e-9 * fmax(fabs(other), fabs(mine));
    return p->more_is_better ? other > mine + slack : other < mine - slack;
}

static void judge(const ru_policy *p, const ru_report *r, const char *text, uint64_t seed,
                  bool tell, tally *t)
{
    const ru_candidate *mine = &r->candidates.at[0];
    t->plans++;
    for (uint32_t i = 1; i < r->candidates.n; i++) {
        const ru_candidate *c = &r->candidates.at[i];
        if (!c->legal || !c->rival) {
            continue;
        }
        t->rivals++;
        if (!beats(p, c->cost, mine->cost)) {
            continue;
        }
        t->worse++;
        if (!tell) {
            fail_msg("%s with seed %llu: '%s' has %.12g, the chosen '%s' %.12g\n%s", p->name,
                     (unsigned long long)seed, c->name, c->cost, mine->name, mine->cost, text);
        }
        printf("%s %llu: '%s' has %.12g, the chosen '%s' %.12g\n%s\n", p->name,
               (unsigned long long)seed, c->name, c->cost, mine->name, mine->cost, text);
    }
}

static void one(const ru_policy *p, uint64_t seed, bool tell, tally *t)
{
    ru_arena a, scratch;
    ru_arena_init(&a, MEMORY_MAX);
    ru_arena_init(&scratch, MEMORY_MAX);
    ru_err err = {0};
    ru_policy_draw s = ru_policy_draw_of(p, seed, &a);
    s.ours = true;
    const void *in;
    ru_str text;
    ru_policy_answer answer;
    const ru_policy_tools tools = {&a, &scratch, NULL};
    if (ru_policy_draw_input(&s, p, &in, &text, &err) == RU_OK &&
        ru_policy_run(p, in, &tools, &answer, &err) == RU_OK) {
        judge(p, &answer.report, text.p, seed, tell, t);
    }
    ru_arena_fini(&scratch);
    ru_arena_fini(&a);
}

static void test_no_plan_is_worse_than_its_runners_up(void **state)
{
    (void)state;
    uint32_t n;
    const ru_policy *const *all = ru_policies(&n);
    const char *only = ru_conf_env("RUBATO_STORM"), *many = ru_conf_env("RUBATO_STORM_ROUNDS");
    uint64_t rounds = many != NULL ? strtoull(many, NULL, 10) : ROUNDS;
    for (uint32_t i = 0; i < n; i++) {
        bool mine = only == NULL || strcmp(only, "all") == 0 || strcmp(only, all[i]->name) == 0;
        tally t = {0};
        for (uint64_t k = 0; mine && k < rounds; k++) {
            one(all[i], ru_test_seed() + k, only != NULL, &t);
        }
        if (only != NULL && mine) {
            printf("%s: %u plans, %u rivals, %u better\n", all[i]->name, t.plans, t.rivals,
                   t.worse);
        }
        assert_true(!mine || t.plans > rounds / 8); /* the test looks at something */
        assert_int_equal(t.worse, 0);
    }
}

/* Inputs whose plan was worse once. */
static void test_found_inputs(void **state)
{
    (void)state;
    static const struct {
        const char *policy;
        uint64_t seed;
    } found[] = {{"route", 116}, {"bid", 192}};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(found); i++) {
        const ru_policy *p = ru_policy_find(found[i].policy);
        tally t = {0};
        assert_non_null(p);
        one(p, found[i].seed, false, &t);
        assert_int_equal(t.plans, 1);
    }
}

RU_TESTS(test_policy_best, cmocka_unit_test(test_no_plan_is_worse_than_its_runners_up),
         cmocka_unit_test(test_found_inputs))
