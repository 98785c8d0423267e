/* Running a policy: the steps that are the same for all. */
#include "plan/row/policy.h"

#include <string.h>

static const ru_policy *const policies[] = {
#define RU_POLICY(name, symbol) &ru_policy_##symbol,
#include "plan/row/policy.def"
#undef RU_POLICY
};

const ru_policy *const *ru_policies(uint32_t *n)
{
    *n = RU_ARRAY_LEN(policies);
    return policies;
}

const ru_policy *ru_policy_find(const char *name)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(policies); i++) {
        if (strcmp(policies[i]->name, name) == 0) {
            return policies[i];
        }
    }
    return NULL;
}

ru_plan_head ru_policy_head(const ru_policy *p, const void *in)
{
    ru_hasher h;
    ru_hasher_init(&h);
    ru_fields_hash(p->in, in, &h);
    ru_plan_head head = {.policy = p->name, .version = p->version, .input = ru_hasher_get(&h)};
    head.id = ru_plan_id_of(p->name, p->version, head.input);
    return head;
}

ru_status ru_policy_run(const ru_policy *p, const void *in, const ru_policy_tools *tools,
                        ru_policy_answer *answer, ru_err *err)
{
    ru_status st = ru_fields_check(p->in, in, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "%s", p->name);
    }
    ru_policy_answer a = {.head = ru_policy_head(p, in)};
    void *plan = ru_arena_zalloc(tools->out, p->plan_bytes, 16);
    if (plan == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: the plan's arena is full", p->name);
    }
    st = p->plan(in, tools, plan, err);
    if (st == RU_OK) {
        st = p->check(in, plan, tools->scratch, err);
        if (st == RU_E_INFEASIBLE) {
            st = ru_err_wrap(err, RU_E_BUG, "the plan breaks a rule of its checker");
        }
    }
    ru_report_init(&a.report, tools->out);
    if (st == RU_OK) {
        st = p->report(in, plan, tools, &a.report, err);
    }
    if (st == RU_OK) {
        st = ru_report_status(&a.report, err);
    }
    if (st == RU_E_ARG) { /* fields that fit the table and not each other: a circle, for example */
        st = RU_E_CONFIG;
    }
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "%s", p->name);
    }
    a.plan = plan;
    a.head.valid_ns = a.report.valid_ns;
    a.head.predicted = (ru_figures){a.report.figures.at, a.report.figures.n};
    a.head.triggers = a.report.triggers.at;
    a.head.n_triggers = a.report.triggers.n;
    *answer = a;
    return RU_OK;
}
