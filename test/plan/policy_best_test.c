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

/* Do all other candidates do something else, know the future, or break a limit? Its own test
 * compares it with brute force. */
static bool is_alone(const ru_policy *p)
{
    static const char *const alone[] = {"read", "scale", "pick", "storage"};
    bool is = false;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(alone); i++) {
        is = is || strcmp(p->name, alone[i]) == 0;
    }
    return is;
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
        if (mine && t.rivals == 0 && !is_alone(all[i])) {
            fail_msg("no candidate of %s is a rival of its plan", all[i]->name);
        }
        assert_int_equal(t.worse, 0);
    }
}

/* Inputs whose plan was worse once, as files that `rubato plan` reads. */
static const struct {
    const char *policy, *text;
} found[] = {
    {"route", "{'arrivals':{'map':{'d0':[-40.1,0.1,0.1,-20.1],'d1':[40,0,0,20]}},'sizes':[1,2,"
              "4,8,16],'shares':[0.3,0.25,0.2,0.15,0.1],'memory_mb':[1024,2048],"
              "'service_s':[0.36,0.52,0.68,0.84,0.52,0.84,1.16,1.48,0.84,1.48,2.12,2.76,1.48,"
              "2.76,4.04,5.32,2.76,5.32,7.88,10.44,0.19,0.27,0.35,0.43,0.27,0.43,0.59,0.75,"
              "0.43,0.75,1.07,1.39,0.75,1.39,2.03,2.67,1.39,2.67,3.95,5.23],'batch_max':4,"
              "'timeout_max_s':0.4,'timeout_step_s':0.05,'slo_s':1.6,'quantile':0.95,"
              "'usd_per_gb_s':1.66667e-05,'usd_per_call':1,'buffers_max':4,'buffers':0}"},
    {"bid", "{'markets':[{'name':'calm','at':[0,4000,9000,14000,21600],'usd':[0.23,0.24,0.23,"
            "0.235,0.23],'on_demand':0.958,'work':16},{'name':'lively','at':[0,1500,3000,"
            "5200,7000,9100,12000,13500,16000,18800,21600],'usd':[0.55,0.58,0.54,0.61,0.55,"
            "0.57,0.54,0.6,0.53,0.58,0.55],'on_demand':2.394,'work':40}],'held':[{'market':0,"
            "'instances':4,'bid':0.24,'paid':0.235,'left':'0','due':true}],'deltas':[0.0001,"
            "0.01,0.05,0.1],'reliable':0.627,'phi':1,'sigma':'2min','lambda':'60s',"
            "'cap':52.69451105456062,'step':64}"},
};

static void test_found_inputs(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(found); i++) {
        ru_arena a, scratch;
        ru_arena_init(&a, MEMORY_MAX);
        ru_arena_init(&scratch, MEMORY_MAX);
        const ru_policy *p = ru_policy_find(found[i].policy);
        const char *text = found[i].text;
        const ru_policy_tools tools = {&a, &scratch, NULL};
        ru_policy_answer answer;
        ru_err err = {0};
        ru_conf *c;
        tally t = {0};
        assert_non_null(p);
        void *in = ru_arena_zalloc(&a, p->in->size_bytes, 64);
        assert_ok(ru_conf_new(p->in, &a, &c, &err), err);
        assert_ok(ru_conf_add_yaml(c, p->name, text, (int64_t)strlen(text), &err), err);
        assert_ok(ru_conf_apply(c, in, &err), err);
        assert_ok(ru_policy_run(p, in, &tools, &answer, &err), err);
        judge(p, &answer.report, text, i, false, &t);
        assert_true(t.plans == 1 && t.rivals > 0);
        ru_arena_fini(&scratch);
        ru_arena_fini(&a);
    }
}

RU_TESTS(test_policy_best, cmocka_unit_test(test_no_plan_is_worse_than_its_runners_up),
         cmocka_unit_test(test_found_inputs))
