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
    ru_report_init(&a.report, tools->out, plan, p->rows, st == RU_OK ? p->n_rows : 0);
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

/* -- runners-up -----------------------------------------------------------------------------------
 */

static const ru_conf_field *method_of(const ru_policy *p)
{
    for (uint32_t i = 0; i < p->in->n; i++) {
        if (strcmp(p->in->fields[i].name, "method") == 0) {
            RU_CHECK(p->in->fields[i].type == RU_CONF_CHOICE);
            return &p->in->fields[i];
        }
    }
    RU_CHECK(false);
    return NULL;
}

static uint32_t method_in(const ru_conf_field *f, const void *in)
{
    uint32_t k;
    memcpy(&k, (const uint8_t *)in + f->offset, sizeof k);
    return k;
}

/* What the file says of the method of `in`. */
static void word_of(const ru_conf_field *f, const void *in, char *word, int64_t cap)
{
    ru_fields_choice(f->choices, method_in(f, in), word, cap);
}

static RU_PRINTF(5, 0) void say(ru_rival *v, double cost, bool legal, bool rival, const char *fmt,
                                va_list ap)
{
    ru_text why = ru_text_into(v->why, sizeof v->why);
    ru_text_vputf(&why, fmt, ap);
    v->is = (ru_candidate){.cost = cost, .legal = legal, .rival = rival, .why = v->why};
}

void ru_rival_is(ru_rival *v, double cost, bool legal, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(v, cost, legal, legal, fmt, ap);
    va_end(ap);
}

void ru_rival_beside(ru_rival *v, double cost, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(v, cost, true, false, fmt, ap);
    va_end(ap);
}

static void put_rival(const char *name, const ru_rival *v, ru_report *r)
{
    if (v->is.legal && !v->is.rival) {
        ru_report_beside(r, name, v->is.cost, "%s", v->why);
    } else {
        ru_report_candidate(r, name, v->is.cost, v->is.legal, "%s", v->why);
    }
}

void ru_policy_winner(const ru_policy *p, const void *in, ru_report *r, double cost, bool legal,
                      const char *fmt, ...)
{
    char name[64];
    ru_rival v;
    va_list ap;
    va_start(ap, fmt);
    say(&v, cost, legal, legal, fmt, ap);
    va_end(ap);
    word_of(method_of(p), in, name, sizeof name);
    put_rival(name, &v, r);
}

/* Plan `v->in` and have it judged. */
static ru_status judged(const ru_policy *p, ru_rival *v, const ru_policy_tools *tools,
                        ru_rival_judge judge, ru_err *err)
{
    const ru_policy_tools inner = {tools->scratch, tools->scratch, tools->solver};
    void *plan = ru_arena_zalloc(tools->scratch, p->plan_bytes, 16);
    if (plan == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a plan by another method");
    }
    ru_err why;
    ru_status st = p->plan(v->in, &inner, plan, &why);
    if (st == RU_E_INFEASIBLE || st == RU_E_UNSUPPORTED || st == RU_E_LIMIT || st == RU_E_ARG) {
        ru_rival_is(v, 0, false, "%s", why.text);
        return RU_OK;
    }
    if (st != RU_OK) {
        return RU_FAIL(err, st, "%s", why.text);
    }
    v->plan = plan;
    return judge(v, &inner, err);
}

ru_status ru_policy_rival(const ru_policy *p, const char *name, ru_rival *v,
                          const ru_policy_tools *tools, ru_rival_judge judge, ru_report *r,
                          ru_err *err)
{
    const ru_conf_field *f = method_of(p);
    char word[64];
    ru_arena_mark mark = ru_arena_mark_get(tools->scratch);
    v->method = method_in(f, v->in);
    ru_status st = judged(p, v, tools, judge, err);
    ru_arena_rewind(tools->scratch, mark); /* first: the report may be in this arena */
    RU_TRY(st);
    word_of(f, v->in, word, sizeof word);
    put_rival(name != NULL ? name : word, v, r);
    return RU_OK;
}

ru_status ru_policy_rivals(const ru_policy *p, const void *in, const void *plan,
                           const ru_policy_tools *tools, ru_rival_judge judge, ru_report *r,
                           ru_err *err)
{
    const ru_conf_field *f = method_of(p);
    uint32_t mine = method_in(f, in), n = ru_fields_choices(f->choices);
    uint8_t *copy = ru_arena_alloc(tools->scratch, p->in->size_bytes, 16);
    if (copy == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the input of another method");
    }
    if (r->candidates.n == 0) {
        RU_CHECK(r->figures.n > 0);
        ru_policy_winner(p, in, r, r->figures.at[0].value, true, "chosen");
    }
    for (uint32_t k = 0; k < n; k++) {
        ru_rival v = {.in = copy, .won_in = in, .won = plan};
        if (k == mine) {
            continue;
        }
        memcpy(copy, in, p->in->size_bytes);
        memcpy(copy + f->offset, &k, sizeof k);
        RU_TRY(ru_policy_rival(p, NULL, &v, tools, judge, r, err));
    }
    return RU_OK;
}
