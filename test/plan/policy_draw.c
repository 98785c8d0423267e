/* Changed examples: numbers scaled, set to their bounds, to zero or to what no machine has;
 * elements cut, doubled, exchanged or made alike; lists emptied; methods and alternatives drawn. */
#include "test/plan/policy_draw.h"

#include <math.h>
#include <string.h>

#include "test/test.h"

static uint32_t below(ru_policy_draw *s, uint32_t n)
{
    return ru_rng_below(&s->rng, n);
}

/* What no machine has. */
static double absurd(ru_policy_draw *s, double old)
{
    static const double far[] = {
        -1,   1e-300, 1e-12,   -1e-9, 1e6,     4294967295.0, 1e12, 1e15, 9007199254740993.0,
        1e18, 9.2e18, -9.2e18, 1e30,  1.7e308, -1.7e308};
    return below(s, 4) == 0 ? -old : far[below(s, RU_ARRAY_LEN(far))];
}

static double drawn(ru_policy_draw *s, const ru_conf_field *f, double old)
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

static void change_number(ru_policy_draw *s, const ru_conf_field *f, uint8_t *at)
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
        if (!s->ours || strcmp(f->name, "method") != 0) {
            u = below(s, n_choices(f));
            memcpy(at, &u, sizeof u);
        }
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

static void change_section(ru_policy_draw *s, const ru_conf_table *t, uint8_t *section,
                           uint32_t one_in);

static size_t element_bytes(const ru_conf_field *f)
{
    return f->type == RU_CONF_SECTIONS ? f->table->size_bytes : 8;
}

/* Elements that are given twice, in another order, all alike, or not at all. */
static void change_length(ru_policy_draw *s, const ru_conf_field *f, ru_conf_sections *list)
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
static void change_list(ru_policy_draw *s, const ru_conf_field *f, uint8_t *at, uint32_t one_in)
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

static void change_section(ru_policy_draw *s, const ru_conf_table *t, uint8_t *section,
                           uint32_t one_in)
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

ru_policy_draw ru_policy_draw_of(const ru_policy *p, uint64_t seed, ru_arena *arena)
{
    return (ru_policy_draw){.rng = ru_rng_from(seed, ru_rng_label(p->name)), .arena = arena};
}

ru_status ru_policy_draw_input(ru_policy_draw *s, const ru_policy *p, const void **out,
                               ru_str *text, ru_err *err)
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
