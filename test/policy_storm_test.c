/* Inputs that nobody wrote: examples of every policy with numbers scaled, set to their bounds or to
 * zero, lists cut and methods drawn. Each gives a plan that its checker takes, or one sentence;
 * more: rubato-test --filter test_policy_storm --seed N. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "plan/policy.h"
#include "test/test.h"

enum { ROUNDS = 8 };

static double drawn(ru_rng *r, const ru_conf_field *f, double old)
{
    double v = old;
    switch (ru_rng_below(r, 8)) {
    case 0:
        v = f->min < f->max ? f->min : 0;
        break;
    case 1:
        v = 0;
        break;
    case 2:
        v = old + 1;
        break;
    default:
        v = old * ru_math_exp(1.2 * ru_rng_normal(r));
        break;
    }
    if (f->min < f->max) {
        v = fmin(fmax(v, f->min), f->max);
    }
    return f->open && v <= f->min ? old : v;
}

static void change_number(ru_rng *r, const ru_conf_field *f, uint8_t *at)
{
    double d;
    int64_t i;
    uint32_t u;
    switch (f->type) {
    case RU_CONF_F64:
        memcpy(&d, at, sizeof d);
        d = drawn(r, f, d);
        memcpy(at, &d, sizeof d);
        return;
    case RU_CONF_I64:
    case RU_CONF_TIME:
    case RU_CONF_SIZE:
        memcpy(&i, at, sizeof i);
        i = (int64_t)fmin(drawn(r, f, (double)i), 1e18);
        memcpy(at, &i, sizeof i);
        return;
    case RU_CONF_U32:
        memcpy(&u, at, sizeof u);
        u = (uint32_t)fmin(fmax(drawn(r, f, u), 0), 1e6);
        memcpy(at, &u, sizeof u);
        return;
    case RU_CONF_CHOICE: {
        ru_str rest = ru_str_c(f->choices), item;
        uint32_t n = 0;
        while (ru_str_next(&rest, '|', &item)) {
            n++;
        }
        u = ru_rng_below(r, n);
        memcpy(at, &u, sizeof u);
        return;
    }
    case RU_CONF_BOOL:
        *at ^= 1;
        return;
    case RU_CONF_TEXT:
    case RU_CONF_I64_LIST:
    case RU_CONF_F64_LIST:
    case RU_CONF_TEXT_LIST:
    case RU_CONF_F64_MAP:
    case RU_CONF_SECTION:
    case RU_CONF_SECTIONS:
    case RU_CONF_JSON:
        return;
    }
}

static void change_section(ru_rng *r, const ru_conf_table *t, uint8_t *section, uint32_t one_in);

/* Elements in turn, sometimes one fewer. */
static void change_list(ru_rng *r, const ru_conf_field *f, uint8_t *at, uint32_t one_in)
{
    ru_conf_sections list;
    uint8_t *p;
    memcpy(&list, at, sizeof list);
    memcpy(&p, at, sizeof p);
    ru_conf_field e = *f;
    e.type = f->type == RU_CONF_F64_LIST ? RU_CONF_F64 : RU_CONF_I64;
    for (uint32_t k = 0; k < list.n; k++) {
        if (f->type == RU_CONF_SECTIONS) {
            change_section(r, f->table, p + (size_t)k * f->table->size_bytes, 4 * one_in);
        } else if (f->type != RU_CONF_TEXT_LIST && ru_rng_below(r, 4 * one_in) == 0) {
            change_number(r, &e, p + 8 * (size_t)k);
        }
    }
    if (list.n > 1 && ru_rng_below(r, 4 * one_in) == 0) {
        list.n--;
        memcpy(at, &list, sizeof list);
    }
}

static void change_section(ru_rng *r, const ru_conf_table *t, uint8_t *section, uint32_t one_in)
{
    for (uint32_t i = 0; i < t->n; i++) {
        const ru_conf_field *f = &t->fields[i];
        uint8_t *at = section + f->offset;
        switch (f->type) {
        case RU_CONF_SECTION:
            change_section(r, f->table, at, one_in);
            break;
        case RU_CONF_SECTIONS:
        case RU_CONF_F64_LIST:
        case RU_CONF_I64_LIST:
        case RU_CONF_TEXT_LIST:
            change_list(r, f, at, one_in);
            break;
        case RU_CONF_JSON:
            break;
        case RU_CONF_BOOL:
        case RU_CONF_I64:
        case RU_CONF_U32:
        case RU_CONF_F64:
        case RU_CONF_TIME:
        case RU_CONF_SIZE:
        case RU_CONF_TEXT:
        case RU_CONF_CHOICE:
        case RU_CONF_F64_MAP:
            if (ru_rng_below(r, one_in) == 0) {
                change_number(r, f, at);
            }
            break;
        }
    }
}

static void one(const ru_policy *p, uint64_t seed)
{
    ru_arena a, scratch;
    ru_arena_init(&a, 0);
    ru_arena_init(&scratch, 0);
    ru_conf *c;
    ru_err err;
    uint8_t *in = ru_arena_zalloc(&a, p->in->size_bytes, 64);
    assert_ok(ru_conf_new(p->in, &a, &c, &err), err);
    assert_ok(ru_conf_add_yaml(c, p->name, p->example, (int64_t)strlen(p->example), &err), err);
    assert_ok(ru_conf_apply(c, in, &err), err);
    ru_rng r = ru_rng_from(seed, ru_rng_label(p->name));
    change_section(&r, p->in, in, 2 + ru_rng_below(&r, 6));
    const ru_policy_tools tools = {&a, &scratch, NULL};
    ru_policy_answer answer;
    ru_status st = ru_policy_run(p, in, &tools, &answer, &err);
    bool fits = st == RU_OK || st == RU_E_ARG || st == RU_E_INFEASIBLE || st == RU_E_LIMIT ||
                st == RU_E_UNSUPPORTED;
    if (!fits || (st != RU_OK && strlen(err.text) < strlen(p->name) + 10)) {
        fail_msg("%s with seed %llu: %s: %s", p->name, (unsigned long long)seed, ru_status_name(st),
                 err.text);
    }
    if (st == RU_OK) {
        ru_text text = ru_text_arena(&a);
        assert_ok(ru_report_print(&answer.report, &answer.head, &text, &err), err);
    }
    ru_arena_fini(&scratch);
    ru_arena_fini(&a);
}

static void test_changed_examples_give_plans_or_sentences(void **state)
{
    (void)state;
    uint32_t n;
    const ru_policy *const *all = ru_policies(&n);
    const char *only = ru_conf_env("RUBATO_STORM");
    for (uint32_t i = 0; i < n; i++) {
        for (uint64_t k = 0; k < ROUNDS && (only == NULL || strcmp(only, all[i]->name) == 0); k++) {
            if (only != NULL) {
                printf("%s %llu\n", only, (unsigned long long)(ru_test_seed() + k));
                fflush(stdout);
            }
            one(all[i], ru_test_seed() + k);
        }
    }
}

RU_TESTS(test_policy_storm, cmocka_unit_test(test_changed_examples_give_plans_or_sentences))
