/* Inputs that nobody wrote: examples of every policy, changed. Numbers scaled, set to their bounds,
 * to zero or to what no machine has; elements cut, doubled, exchanged or made alike; lists emptied;
 * methods and alternatives drawn. What comes out is written as JSON and read as `rubato plan` reads
 * it. Each gives a plan that its checker takes and that prints, or one sentence that says what is
 * wrong with the input; never an internal error.
 *
 * One seed:   rubato-test --filter test_policy_storm --seed N
 * Many seeds: RUBATO_STORM=all RUBATO_STORM_ROUNDS=1000 rubato-test --filter test_policy_storm
 *             (or RUBATO_STORM=NAME for one policy); prints what it tries, and what was refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "plan/row/policy.h"
#include "test/test.h"

enum { ROUNDS = 16, MEMORY_MAX = 1 << 30 };

/* How an input is changed: by what could be, or by anything that can be written. */
typedef struct storm {
    ru_rng rng;
    ru_arena *arena;
    bool torn;
} storm;

static uint32_t below(storm *s, uint32_t n)
{
    return ru_rng_below(&s->rng, n);
}

/* What no machine has. */
static double absurd(storm *s, double old)
{
    static const double far[] = {
        -1,   1e-300, 1e-12,   -1e-9, 1e6,     4294967295.0, 1e12, 1e15, 9007199254740993.0,
        1e18, 9.2e18, -9.2e18, 1e30,  1.7e308, -1.7e308};
    return below(s, 4) == 0 ? -old : far[below(s, RU_ARRAY_LEN(far))];
}

static double drawn(storm *s, const ru_conf_field *f, double old)
{
    double v = old;
    switch (below(s, 8)) {
    case 0:
        v = f->min < f->max ? f->min : 0;
        break;
    case 1:
        v = 0;
        break;
    case 2:
        v = old + 1;
        break;
    case 3:
        v = s->torn ? (f->min < f->max && below(s, 2) == 0 ? f->max : absurd(s, old)) : old;
        break;
    default:
        v = old * ru_math_exp(1.2 * ru_rng_normal(&s->rng));
        break;
    }
    if (s->torn && below(s, 4) == 0) {
        return v;
    }
    if (f->min < f->max) {
        v = fmin(fmax(v, f->min), f->max);
    }
    return f->open && v <= f->min ? old : v;
}

static uint32_t n_choices(const ru_conf_field *f)
{
    ru_str rest = ru_str_c(f->choices), item;
    uint32_t n = 0;
    while (ru_str_next(&rest, '|', &item)) {
        n++;
    }
    return n;
}

static void change_number(storm *s, const ru_conf_field *f, uint8_t *at)
{
    double d;
    int64_t i;
    uint32_t u;
    switch (f->type) {
    case RU_CONF_F64:
        memcpy(&d, at, sizeof d);
        d = drawn(s, f, d);
        memcpy(at, &d, sizeof d);
        return;
    case RU_CONF_I64:
    case RU_CONF_TIME:
    case RU_CONF_SIZE:
        memcpy(&i, at, sizeof i);
        i = (int64_t)fmax(fmin(drawn(s, f, (double)i), s->torn ? 9.2e18 : 1e18), -9.2e18);
        memcpy(at, &i, sizeof i);
        return;
    case RU_CONF_U32:
        memcpy(&u, at, sizeof u);
        u = (uint32_t)fmin(fmax(drawn(s, f, u), 0), s->torn ? UINT32_MAX : 1e6);
        memcpy(at, &u, sizeof u);
        return;
    case RU_CONF_CHOICE:
        u = below(s, n_choices(f));
        memcpy(at, &u, sizeof u);
        return;
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

static void change_section(storm *s, const ru_conf_table *t, uint8_t *section, uint32_t one_in);

static size_t element_bytes(const ru_conf_field *f)
{
    return f->type == RU_CONF_SECTIONS ? f->table->size_bytes : 8;
}

/* Elements that are given twice, in another order, all alike, or not at all. */
static void change_length(storm *s, const ru_conf_field *f, ru_conf_sections *list)
{
    size_t bytes = element_bytes(f);
    uint32_t n = list->n, kind = below(s, 6);
    uint8_t *p = ru_arena_zalloc(s->arena, (int64_t)(bytes * (n + 1)), 16);
    assert_non_null(p);
    if (n > 0) {
        memcpy(p, list->at, bytes * n);
    }
    list->at = p;
    if (n == 0) {
        list->n = s->torn && f->type != RU_CONF_TEXT_LIST && below(s, 4) == 0;
    } else if (kind == 0) {
        list->n = s->torn ? 0 : n;
    } else if (kind == 1) {
        memcpy(p + bytes * n, p + bytes * below(s, n), bytes);
        list->n = n + 1;
    } else if (kind == 2) {
        memmove(p + bytes * below(s, n), p + bytes * below(s, n), bytes);
    } else if (kind == 3) {
        for (uint32_t k = 1; k < n; k++) {
            memcpy(p + bytes * k, p, bytes);
        }
    } else if (kind == 4) {
        uint8_t *one = p + bytes * below(s, n), *other = p + bytes * below(s, n);
        memcpy(p + bytes * n, one, bytes);
        memmove(one, other, bytes);
        memcpy(other, p + bytes * n, bytes);
    } else {
        list->n = n - 1;
    }
}

/* Elements in turn, and the list itself. */
static void change_list(storm *s, const ru_conf_field *f, uint8_t *at, uint32_t one_in)
{
    ru_conf_sections list;
    memcpy(&list, at, sizeof list);
    if (below(s, 4 * one_in) == 0) {
        change_length(s, f, &list);
        memcpy(at, &list, sizeof list);
    }
    uint8_t *p;
    memcpy(&p, at, sizeof p);
    ru_conf_field e = *f;
    e.type = f->type == RU_CONF_F64_LIST ? RU_CONF_F64 : RU_CONF_I64;
    for (uint32_t k = 0; k < list.n; k++) {
        if (f->type == RU_CONF_SECTIONS) {
            change_section(s, f->table, p + (size_t)k * f->table->size_bytes, 4 * one_in);
        } else if (f->type != RU_CONF_TEXT_LIST && below(s, 4 * one_in) == 0) {
            change_number(s, &e, p + 8 * (size_t)k);
        }
    }
}

static void change_section(storm *s, const ru_conf_table *t, uint8_t *section, uint32_t one_in)
{
    if (t->one_of != NULL && s->torn && below(s, 4 * one_in) == 0) {
        uint32_t n = 1, which;
        for (const char *c = t->one_of; *c != '\0'; c++) {
            n += *c == '|';
        }
        which = 1 + below(s, n);
        memcpy(section + t->which_offset, &which, sizeof which);
    }
    for (uint32_t i = 0; i < t->n; i++) {
        const ru_conf_field *f = &t->fields[i];
        uint8_t *at = section + f->offset;
        switch (f->type) {
        case RU_CONF_SECTION:
            change_section(s, f->table, at, one_in);
            break;
        case RU_CONF_SECTIONS:
        case RU_CONF_F64_LIST:
        case RU_CONF_I64_LIST:
        case RU_CONF_TEXT_LIST:
            change_list(s, f, at, one_in);
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
            if (below(s, one_in) == 0) {
                change_number(s, f, at);
            }
            break;
        }
    }
}

/* The changed example as the text of a file, and as it is read from there. */
static ru_status written_and_read(const ru_policy *p, storm *s, const void **out, ru_str *text,
                                  ru_err *err)
{
    ru_conf *c;
    uint8_t *in = ru_arena_zalloc(s->arena, p->in->size_bytes, 64);
    void *back = ru_arena_zalloc(s->arena, p->in->size_bytes, 64);
    assert_ok(ru_conf_new(p->in, s->arena, &c, err), *err);
    assert_ok(ru_conf_add_yaml(c, p->name, p->example, (int64_t)strlen(p->example), err), *err);
    assert_ok(ru_conf_apply(c, in, err), *err);
    change_section(s, p->in, in, 2 + below(s, 24));
    ru_text t = ru_text_arena(s->arena);
    ru_json j = ru_json_into(&t);
    ru_fields_json(p->in, in, NULL, &j);
    *text = ru_str_n(t.p, t.n);
    *out = back;
    assert_ok(ru_conf_new(p->in, s->arena, &c, err), *err);
    ru_conf_bulk(c);
    RU_TRY(ru_conf_add_json(c, p->name, t.p, t.n, err));
    return ru_conf_apply(c, back, err);
}

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
    storm s = {.rng = ru_rng_from(seed, ru_rng_label(p->name)), .arena = &a, .torn = seed % 2 == 1};
    const void *in;
    ru_str text;
    ru_status st = written_and_read(p, &s, &in, &text, &err);
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
