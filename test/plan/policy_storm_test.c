/* Inputs that nobody wrote: examples of every policy, changed by test/plan/policy_draw.c, written
 * as JSON and read as `rubato plan` reads it. Each gives a plan that its checker takes and that
 * prints, or one sentence that says what is wrong with the input; never an internal error.
 *
 * One seed:   rubato-test --filter test_policy_storm --seed N
 * Many seeds: RUBATO_STORM=all RUBATO_STORM_ROUNDS=1000 rubato-test --filter test_policy_storm
 *             (or RUBATO_STORM=NAME for one policy); prints what it tries, and what was refused. */
#include <stdio.h>
#include <string.h>

#include "test/plan/policy_draw.h"
#include "test/test.h"

enum { ROUNDS = 8, MEMORY_MAX = 1 << 30 };

static ru_status planned(const ru_policy *p, const void *in, ru_arena *a, ru_arena *scratch,
                         ru_err *err)
{
    const ru_policy_tools tools = {a, scratch, NULL};
    ru_policy_answer answer;
    ru_text text = ru_text_arena(a);
    RU_TRY(ru_policy_run(p, in, &tools, &answer, err));
    return ru_report_print(&answer.report, &answer.head, &text, err);
}

static void one(const ru_policy *p, uint64_t seed, bool tell)
{
    ru_arena a, scratch;
    ru_arena_init(&a, MEMORY_MAX);
    ru_arena_init(&scratch, MEMORY_MAX);
    ru_err err = {0};
    ru_policy_draw s = ru_policy_draw_of(p, seed, &a);
    s.torn = seed % 2 == 1;
    const void *in;
    ru_str text;
    ru_status st = ru_policy_draw_input(&s, p, &in, &text, &err);
    bool read = st == RU_OK;
    if (tell) {
        printf("%s %llu %s\n", p->name, (unsigned long long)seed, read ? text.p : "not read");
        fflush(stdout);
    }
    st = read ? planned(p, in, &a, &scratch, &err) : st;
    bool fits = st == RU_OK || st == RU_E_CONFIG ||
                (read && (st == RU_E_INFEASIBLE || st == RU_E_LIMIT || st == RU_E_UNSUPPORTED));
    if (!fits || (st != RU_OK && strlen(err.text) < strlen(p->name) + 10)) {
        fail_msg("%s with seed %llu: %s: %s\n%s", p->name, (unsigned long long)seed,
                 ru_status_name(st), err.text, text.p);
    }
    if (tell && read && st != RU_OK) {
        printf("  %s: %s\n", ru_status_name(st), err.text);
    }
    ru_arena_fini(&scratch);
    ru_arena_fini(&a);
}

static void test_changed_examples_give_plans_or_sentences(void **state)
{
    (void)state;
    uint32_t n;
    const ru_policy *const *all = ru_policies(&n);
    const char *only = ru_conf_env("RUBATO_STORM"), *many = ru_conf_env("RUBATO_STORM_ROUNDS");
    uint64_t rounds = many != NULL ? strtoull(many, NULL, 10) : ROUNDS;
    for (uint32_t i = 0; i < n; i++) {
        bool mine = only == NULL || strcmp(only, "all") == 0 || strcmp(only, all[i]->name) == 0;
        for (uint64_t k = 0; mine && k < rounds; k++) {
            one(all[i], ru_test_seed() + k, only != NULL);
        }
    }
}

RU_TESTS(test_policy_storm, cmocka_unit_test(test_changed_examples_give_plans_or_sentences))
