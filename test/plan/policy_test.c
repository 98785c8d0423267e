/* What holds for every row of plan/row/policy.def: its example gives a checked plan; the same input
 * in other arenas gives the same bytes; the report reads as its golden text; bad numbers are
 * refused.
 */
#include "plan/row/policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/file/file.h"
#include "env/process/process.h"
#include "plan/crew/moves.h"
#include "plan/crew/reassign.h"
#include "plan/cut/pipe.h"
#include "plan/cut/place.h"
#include "plan/cut/place_policy.h"
#include "plan/serve/batch.h"
#include "plan/serve/route.h"
#include "plan/step/mem.h"
#include "test/test.h"
#include "test/where.h"

static const void *example_of(const ru_policy *p, ru_arena *a)
{
    ru_conf *c;
    ru_err err;
    void *in = ru_arena_zalloc(a, p->in->size_bytes, 64);
    if (ru_conf_new(p->in, a, &c, &err) != RU_OK ||
        ru_conf_add_yaml(c, p->name, p->example, (int64_t)strlen(p->example), &err) != RU_OK ||
        ru_conf_apply(c, in, &err) != RU_OK) {
        fail_msg("the example of %s: %s", p->name, err.text);
    }
    return in;
}

static ru_str run_text(const ru_policy *p, const void *in, ru_arena *out, ru_arena *scratch,
                       bool json)
{
    ru_policy_tools tools = {out, scratch, NULL};
    ru_policy_answer a;
    ru_err err;
    if (ru_policy_run(p, in, &tools, &a, &err) != RU_OK) {
        fail_msg("%s", err.text);
    }
    ru_text text = ru_text_arena(out);
    if (json) {
        ru_json j = ru_json_into(&text);
        ru_json_open(&j, NULL, '{');
        assert_int_equal(ru_report_json(&a.report, &j, &err), RU_OK);
        ru_json_close(&j);
    } else {
        assert_int_equal(ru_report_print(&a.report, &a.head, &text, &err), RU_OK);
    }
    return ru_str_n(text.p, text.n);
}

static void test_rerun_elsewhere_gives_the_same_bytes(void **state)
{
    (void)state;
    uint32_t n;
    const ru_policy *const *all = ru_policies(&n);
    for (uint32_t i = 0; i < n; i++) {
        ru_arena a, out, scratch;
        ru_arena_init(&a, 0);
        ru_arena_init(&out, 0);
        ru_arena_init(&scratch, 0);
        const void *in = example_of(all[i], &a);
        ru_str first = run_text(all[i], in, &a, &scratch, true);
        /* Other addresses, and garbage where zeroes may have been. */
        for (uint32_t k = 1; k < 40; k++) {
            void *p = ru_arena_alloc(&out, 24 * (int64_t)k + 8, 8);
            memset(p, 0xa5, 24 * k + 8);
        }
        ru_arena_fini(&scratch);
        ru_arena_init(&scratch, 0);
        memset(ru_arena_alloc(&scratch, 100000, 64), 0x5a, 100000);
        ru_str again = run_text(all[i], example_of(all[i], &out), &out, &scratch, true);
        if (first.n != again.n || memcmp(first.p, again.p, (size_t)first.n) != 0) {
            fail_msg("%s: another arena gave another plan:\n%s\n%s", all[i]->name, first.p,
                     again.p);
        }
        ru_arena_fini(&scratch);
        ru_arena_fini(&out);
        ru_arena_fini(&a);
    }
}

/* Numbers, ids and runs of blanks become one mark: the words of a report change only on purpose. */
static char *masked(ru_arena *a, ru_str text)
{
    char *out = ru_arena_alloc(a, text.n + 1, 1);
    int64_t n = 0;
    for (int64_t i = 0; i < text.n;) {
        char c = text.p[i];
        bool word = i > 0 && (strchr("_", text.p[i - 1]) != NULL ||
                              (text.p[i - 1] >= 'a' && text.p[i - 1] <= 'z'));
        if (c >= '0' && c <= '9' && !word) {
            while (i < text.n && strchr("0123456789.abcdef+-", text.p[i]) != NULL) {
                i++;
            }
            out[n++] = '#';
        } else if (c == ' ') {
            while (i < text.n && text.p[i] == ' ') {
                i++;
            }
            out[n++] = ' ';
        } else {
            out[n++] = c;
            i++;
        }
    }
    out[n] = '\0';
    return out;
}

/* test/golden/plan_NAME.txt; RUBATO_GOLDEN=write makes them anew. */
static void test_reports_read_as_their_golden_texts(void **state)
{
    (void)state;
    uint32_t n;
    const ru_policy *const *all = ru_policies(&n);
    bool write = ru_conf_env("RUBATO_GOLDEN") != NULL;
    for (uint32_t i = 0; i < n; i++) {
        ru_arena a, scratch;
        ru_arena_init(&a, 0);
        ru_arena_init(&scratch, 0);
        ru_str text = run_text(all[i], example_of(all[i], &a), &a, &scratch, false);
        const char *is = masked(&a, text);
        const char *path =
            ru_arena_printf(&a, "%s/test/golden/plan_%s.txt", RU_SOURCE_ROOT, all[i]->name);
        if (write) {
            FILE *f = fopen(path, "w");
            assert_non_null(f);
            fputs(is, f);
            fclose(f);
        }
        char *want = NULL;
        int64_t size = 0;
        ru_err err;
        if (ru_file_read(path, 0, &a, &want, &size, &err) != RU_OK) {
            fail_msg("%s; RUBATO_GOLDEN=write rubato-test --filter test_policy writes it",
                     err.text);
        }
        if (strcmp(want, is) != 0) {
            fail_msg("%s is no longer what %s says:\n%s", path, all[i]->name, is);
        }
        ru_arena_fini(&scratch);
        ru_arena_fini(&a);
    }
}

/* The whole answer to the example, numbers included: test/golden/answer_NAME.json holds what a gcc
 * build gave, and every compiler, C library and set of vector instructions must give it again. */
static void test_answers_are_the_same_bytes_everywhere(void **state)
{
    (void)state;
    uint32_t n;
    const ru_policy *const *all = ru_policies(&n);
    bool write = ru_conf_env("RUBATO_GOLDEN") != NULL;
    for (uint32_t i = 0; i < n; i++) {
        ru_arena a, scratch;
        ru_arena_init(&a, 0);
        ru_arena_init(&scratch, 0);
        ru_str is = run_text(all[i], example_of(all[i], &a), &a, &scratch, true);
        const char *path =
            ru_arena_printf(&a, "%s/test/golden/answer_%s.json", RU_SOURCE_ROOT, all[i]->name);
        ru_err err;
        if (write) {
            const char *line = ru_arena_printf(&a, "%s\n", is.p);
            assert_int_equal(ru_file_replace(path, line, (int64_t)strlen(line), &err), RU_OK);
        }
        char *want = NULL;
        int64_t size = 0;
        if (ru_file_read(path, 0, &a, &want, &size, &err) != RU_OK) {
            fail_msg("%s; RUBATO_GOLDEN=write rubato-test --filter test_policy writes it",
                     err.text);
        }
        if (size != is.n + 1 || memcmp(want, is.p, (size_t)is.n) != 0) {
            fail_msg("%s: the answer differs from %s:\n%s", all[i]->name, path, is.p);
        }
        ru_arena_fini(&scratch);
        ru_arena_fini(&a);
    }
}

/* The same in a process whose C library has no variants for FMA and AVX2. */
static void test_answers_do_not_depend_on_vector_instructions(void **state)
{
    (void)state;
    static const char *const argv[] = {"/proc/self/exe", "--filter",
                                       "test_policy.test_answers_are_the_same", NULL};
    static const char *const set[] = {
        "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F,-AVX512VL,-AVX,-SSE4_1", NULL};
    ru_process_options opt = {.argv = argv, .set = set, .pipe_out = true, .quiet = true};
    ru_process *p;
    ru_err err;
    if (ru_process_start(&opt, &p, &err) != RU_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(ru_process_wait(p), 0);
    ru_process_close(p);
}

enum { KEY_DEPTH = 16 };

/* "a.b.c|" of each key of a JSON text, elements of lists alike. */
static void put_keys(const char *json, ru_text *out)
{
    const char *key[KEY_DEPTH] = {0};
    int n[KEY_DEPTH] = {0};
    uint32_t depth = 0;
    for (const char *at = json; *at != '\0'; at++) {
        if (*at == '{' || *at == '[') {
            assert_true(++depth < KEY_DEPTH);
            n[depth] = 0;
        } else if (*at == '}' || *at == ']') {
            depth--;
        } else if (*at == '"') {
            const char *from = ++at;
            for (; *at != '"'; at++) {
                at += *at == '\\' ? 1 : 0;
            }
            if (at[1] != ':') {
                continue;
            }
            key[depth] = from;
            n[depth] = (int)(at - from);
            for (uint32_t k = 1; k <= depth; k++) {
                ru_text_putf(out, "%.*s%s", n[k], key[k], k == depth ? "|" : n[k] > 0 ? "." : "");
            }
        }
    }
}

static bool has_key(ru_str keys, ru_str key)
{
    ru_str item;
    bool has = false;
    while (!has && ru_str_next(&keys, '|', &item)) {
        has = item.n == key.n && memcmp(item.p, key.p, (size_t)key.n) == 0;
    }
    return has;
}

/* Those of `keys` that `all` has not are put into it; how many. */
static uint32_t add_keys(ru_str keys, ru_text *all)
{
    uint32_t n = 0;
    ru_str key;
    while (ru_str_next(&keys, '|', &key)) {
        if (key.n > 0 && !has_key(ru_str_n(all->p, all->n), key)) {
            ru_text_putf(all, "%.*s|", (int)key.n, key.p);
            n++;
        }
    }
    return n;
}

/* Programs outside read the answers: every policy has typed decisions, and a key that an answer had
 * once it has for ever. test/golden/answer_keys.txt has them, a line "NAME|key|...|" for each
 * policy; RUBATO_GOLDEN=write adds the new ones. */
static void test_answers_keep_their_keys(void **state)
{
    (void)state;
    ru_arena a, scratch;
    ru_arena_init(&a, 0);
    ru_arena_init(&scratch, 0);
    uint32_t n, fresh = 0;
    const ru_policy *const *all = ru_policies(&n);
    const char *path = ru_arena_printf(&a, "%s/test/golden/answer_keys.txt", RU_SOURCE_ROOT);
    char *was = NULL;
    int64_t size = 0;
    ru_err err;
    assert_ok(ru_file_read(path, 0, &a, &was, &size, &err), err);
    ru_text whole = ru_text_arena(&a);
    ru_str rest = ru_str_n(was, size), line, key;
    for (uint32_t i = 0; i < n; i++) {
        ru_text now = ru_text_arena(&a), old = ru_text_arena(&a);
        ru_text_putf(&now, "%s|", all[i]->name);
        put_keys(run_text(all[i], example_of(all[i], &a), &a, &scratch, true).p, &now);
        ru_str keys = ru_str_n(now.p, now.n);
        if (!has_key(keys, ru_str_c("decision"))) {
            fail_msg("the answer of %s has no typed decision", all[i]->name);
        }
        if (ru_str_next(&rest, '\n', &line)) {
            ru_text_putf(&old, "%.*s", (int)line.n, line.p);
        }
        while (ru_str_next(&line, '|', &key)) {
            if (!has_key(keys, key)) {
                fail_msg("the answer of %s has lost a key: %.*s", all[i]->name, (int)key.n, key.p);
            }
        }
        fresh += add_keys(keys, &old);
        ru_text_putf(&whole, "%.*s\n", (int)old.n, old.p);
    }
    if (fresh > 0 && ru_conf_env("RUBATO_GOLDEN") != NULL) {
        assert_ok(ru_file_replace(path, whole.p, whole.n, &err), err);
    } else if (fresh > 0) {
        fail_msg("%u new keys; RUBATO_GOLDEN=write rubato-test --filter test_policy adds them",
                 fresh);
    }
    ru_arena_fini(&scratch);
    ru_arena_fini(&a);
}

typedef struct poke {
    const ru_policy *p;
    const void *top;
    ru_arena *out, *scratch;
    uint32_t tried;
} poke;

static void poke_number(poke *k, void *at, double bad)
{
    double old;
    memcpy(&old, at, sizeof old);
    memcpy(at, &bad, sizeof bad);
    ru_policy_tools tools = {k->out, k->scratch, NULL};
    ru_policy_answer a;
    ru_err err;
    ru_status st = ru_policy_run(k->p, k->top, &tools, &a, &err);
    if (st == RU_OK) {
        fail_msg("%s took a number that is %g", k->p->name, bad);
    }
    assert_true(strlen(err.text) > 10);
    memcpy(at, &old, sizeof old);
    k->tried++;
}

/* Every number of the example in turn, the first three elements of a list. */
static void poke_section(poke *k, const ru_conf_table *t, uint8_t *section)
{
    for (uint32_t i = 0; i < t->n; i++) {
        const ru_conf_field *f = &t->fields[i];
        ru_conf_sections list;
        if (t->one_of != NULL) {
            continue; /* alternatives that are not in force are not looked at */
        }
        if (f->type == RU_CONF_F64) {
            poke_number(k, section + f->offset, RU_NAN);
            poke_number(k, section + f->offset, INFINITY);
        } else if (f->type == RU_CONF_F64_LIST) {
            memcpy(&list, section + f->offset, sizeof list);
            double *at;
            memcpy(&at, section + f->offset, sizeof at);
            for (uint32_t e = 0; e < list.n && e < 3; e++) {
                poke_number(k, &at[e], RU_NAN);
                poke_number(k, &at[e], -INFINITY);
            }
        } else if (f->type == RU_CONF_SECTION) {
            poke_section(k, f->table, section + f->offset);
        } else if (f->type == RU_CONF_SECTIONS) {
            uint8_t *at;
            memcpy(&list, section + f->offset, sizeof list);
            memcpy(&at, section + f->offset, sizeof at);
            for (uint32_t e = 0; e < list.n && e < 2; e++) {
                poke_section(k, f->table, at + (size_t)e * f->table->size_bytes);
            }
        }
    }
}

static void test_numbers_that_are_none_are_refused(void **state)
{
    (void)state;
    uint32_t n;
    const ru_policy *const *all = ru_policies(&n);
    for (uint32_t i = 0; i < n; i++) {
        ru_arena a, scratch;
        ru_arena_init(&a, 0);
        ru_arena_init(&scratch, 0);
        union {
            const void *in;
            uint8_t *out;
        } u = {.in = example_of(all[i], &a)};
        poke k = {all[i], u.in, &a, &scratch, 0};
        poke_section(&k, all[i]->in, u.out);
        ru_arena_fini(&scratch);
        ru_arena_fini(&a);
    }
}

/* A plan in memory of its own, which the test changes place by place. */
typedef struct changed {
    const ru_policy *p;
    const void *in, *plan;
    uint8_t *mem; /* the plan's arena */
    int64_t used; /* bytes of it */
    ru_arena scratch;
    uint32_t refused;
} changed;

/* A pointer of the plan: nothing that a checker could judge. Addresses lie this high in a process.
 */
static bool is_pointer(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return v >= UINT64_C(0x500000000000) && v >> 47 == 0;
}

static void try_changed(changed *c, uint8_t *at, const void *with, size_t n)
{
    uint8_t old[8];
    memcpy(old, at, n);
    if (memcmp(old, with, n) == 0) {
        return;
    }
    memcpy(at, with, n);
    ru_err err = {0};
    ru_arena_mark mark = ru_arena_mark_get(&c->scratch);
    ru_status st = c->p->check(c->in, c->plan, &c->scratch, &err);
    ru_arena_rewind(&c->scratch, mark);
    memcpy(at, old, n);
    if (st != RU_OK) {
        c->refused++;
        if (strlen(err.text) < 10) {
            fail_msg("%s refuses a changed plan without a sentence", c->p->name);
        }
    }
}

/* Four bytes that may be booleans, which must stay 0 or 1. */
static bool may_be_bools(uint32_t u)
{
    return (u & 0xfefefefe) == 0;
}

/* The place at `at`, read as each type that a plan may have there. */
static void change_place(changed *c, uint8_t *at)
{
    uint32_t u[2];
    int64_t i;
    double d;
    memcpy(u, at, sizeof u);
    memcpy(&i, at, sizeof i);
    memcpy(&d, at, sizeof d);
    if (is_pointer(at)) {
        return;
    }
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t x = u[half];
        const uint32_t bits[] = {x ^ 1, x ^ 1 << 8, x ^ 1 << 16, x ^ 1 << 24};
        const uint32_t near[] = {x + 1, x - 1, x ^ 2, 0};
        for (uint32_t k = 0; k < 4; k++) {
            try_changed(c, at + 4 * half, may_be_bools(x) ? &bits[k] : &near[k], sizeof x);
        }
    }
    const int64_t is[] = {i / 2, -1 - i / 2};
    const double ds[] = {isfinite(d) ? d * 1.25 : 1, isfinite(d) ? -d : -1};
    for (uint32_t k = 0; k < 2 && !may_be_bools(u[0]) && !may_be_bools(u[1]); k++) {
        try_changed(c, at, &is[k], sizeof i);
        try_changed(c, at, &ds[k], sizeof d);
    }
}

/* Places of a plan's struct that no checker can judge: how the search went, and settings of which
 * any in their range is legal. */
static bool is_account(const ru_policy *p, size_t at)
{
    static const struct {
        const char *policy;
        size_t from, to;
    } rows[] = {
        {"mem", offsetof(ru_mem_plan, order), sizeof(ru_mem_plan)},
        {"batch", offsetof(ru_batch_plan, laws), sizeof(ru_batch_plan)},
        {"pipe", offsetof(ru_pipe_plan, n_cuts), offsetof(ru_pipe_plan, minibatch_s)},
        {"place", offsetof(ru_place_plan, proof), sizeof(ru_place_plan)},
        {"route", offsetof(ru_route_plan, searched), sizeof(ru_route_plan)},
        {"reassign", offsetof(ru_reassign_plan, rules.least_ppm),
         offsetof(ru_reassign_plan, rules.grain_ppm)},
        {"moves", offsetof(ru_moves_plan, optimal), sizeof(ru_moves_plan)},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        if (strcmp(p->name, rows[k].policy) == 0 && at >= rows[k].from && at < rows[k].to) {
            return true;
        }
    }
    return false;
}

/* An array that the plan points to: one of its first places must be judged. */
static void change_array(changed *c, uint8_t *at, int64_t left, int64_t field)
{
    enum { PLACES = 24 };
    uint32_t refused = c->refused;
    for (int64_t k = 0; k < PLACES && 8 * k + 8 <= left; k++) {
        change_place(c, at + 8 * k);
    }
    if (c->refused == refused && left >= 8) {
        fail_msg("the checker of %s takes any bytes in the array at place %lld of the plan",
                 c->p->name, (long long)field);
    }
}

/* Every place of the plan's struct, changed in several ways: at least one of them must be refused.
 * Zeroes may be what the input does not have. */
static void change_plan(changed *c, uint8_t *plan, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += 8) {
        uint32_t refused = c->refused;
        uint64_t word;
        uint8_t *to;
        memcpy(&word, plan + at, sizeof word);
        memcpy(&to, plan + at, sizeof to);
        change_place(c, plan + at);
        if (is_pointer(plan + at)) {
            bool inside = to >= c->mem && to < c->mem + c->used;
            change_array(c, to, inside ? c->mem + c->used - to : 0, at);
        } else if (c->refused == refused && word != 0 && !is_account(c->p, (size_t)at)) {
            fail_msg("the checker of %s takes any bytes at place %lld of the plan", c->p->name,
                     (long long)at);
        }
    }
}

static void test_changed_plans_are_refused(void **state)
{
    (void)state;
    enum { MEM = 64 << 20 };
    uint32_t n;
    const ru_policy *const *all = ru_policies(&n);
    uint8_t *mem = calloc(1, MEM);
    assert_non_null(mem);
    for (uint32_t i = 0; i < n; i++) {
        ru_arena a, out;
        ru_err err = {0};
        ru_arena_init(&a, 0);
        ru_arena_init_fixed(&out, mem, MEM);
        changed c = {.p = all[i], .in = example_of(all[i], &a), .mem = mem};
        ru_arena_init(&c.scratch, 64 << 20); /* a changed count must not take all memory */
        const ru_policy_tools tools = {&out, &c.scratch, NULL};
        int64_t bytes = (all[i]->plan_bytes + 7) / 8 * 8;
        uint8_t *plan = ru_arena_zalloc(&out, bytes, 16);
        c.plan = plan;
        assert_ok(all[i]->plan(c.in, &tools, plan, &err), err);
        assert_ok(all[i]->check(c.in, plan, &c.scratch, &err), err);
        c.used = out.used_bytes;
        change_plan(&c, plan, bytes);
        assert_true(c.refused > 0);
        ru_arena_fini(&c.scratch);
        ru_arena_fini(&a);
    }
    free(mem);
}

static void test_an_input_survives_json(void **state)
{
    (void)state;
    uint32_t n;
    const ru_policy *const *all = ru_policies(&n);
    for (uint32_t i = 0; i < n; i++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        const void *in = example_of(all[i], &a);
        ru_text text = ru_text_arena(&a);
        ru_json j = ru_json_into(&text);
        ru_fields_json(all[i]->in, in, NULL, &j);
        ru_conf *c;
        ru_err err;
        void *back = ru_arena_zalloc(&a, all[i]->in->size_bytes, 64);
        assert_int_equal(ru_conf_new(all[i]->in, &a, &c, &err), RU_OK);
        ru_conf_bulk(c);
        ru_status st = ru_conf_add_json(c, "json", text.p, text.n, &err);
        st = st == RU_OK ? ru_conf_apply(c, back, &err) : st;
        if (st != RU_OK) {
            fail_msg("%s: %s", all[i]->name, err.text);
        }
        ru_plan_head x = ru_policy_head(all[i], in), y = ru_policy_head(all[i], back);
        assert_memory_equal(&x.id, &y.id, sizeof x.id);
        ru_arena_fini(&a);
    }
}

/* A policy whose methods fail, each in another way. */
typedef struct toy_in {
    uint32_t method, broken; /* the method that has a fault of its own */
} toy_in;

typedef struct toy_plan {
    double cost;
} toy_plan;

static const ru_conf_field toy_fields[] = {
    RU_ROW(CHOICE, toy_in, method, "ours", "", .choices = "ours|none|solver|large|odd|other"),
    RU_ROW(U32, toy_in, broken, "0", ""),
};

static const ru_conf_table toy_table = RU_TABLE("toy", toy_in, toy_fields, NULL);

static ru_status plan_toy(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    static const ru_status fails[] = {RU_OK,      RU_E_INFEASIBLE, RU_E_UNSUPPORTED,
                                      RU_E_LIMIT, RU_E_ARG,        RU_OK};
    const toy_in *q = in;
    assert_non_null(ru_arena_alloc(tools->scratch, 1000, 16));
    ((toy_plan *)plan)->cost = q->method;
    if (q->broken > 0 && q->broken == q->method) {
        return RU_FAIL(err, RU_E_BUG, "method %u is broken", q->method);
    }
    return fails[q->method] == RU_OK ? RU_OK
                                     : RU_FAIL(err, fails[q->method], "method %u", q->method);
}

static const ru_policy toy = {
    .name = "toy", .in = &toy_table, .plan_bytes = sizeof(toy_plan), .plan = plan_toy};

static ru_status judge_toy(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    assert_int_equal(v->method, ((const toy_in *)v->in)->method);
    ru_rival_is(v, ((const toy_plan *)v->plan)->cost, true, "judged");
    return RU_OK;
}

/* Whatever keeps a runner-up from its plan, the chosen plan stands and the reason is shown; a fault
 * of the program does not pass for one. Methods use the same scratch in turn. */
static void test_runners_up_without_a_plan(void **state)
{
    (void)state;
    static const char *const names[] = {"ours", "none", "solver", "large", "odd", "other"};
    static RU_ALIGNED(16) uint8_t room[2000]; /* for one method */
    ru_arena a, scratch;
    ru_arena_init(&a, 1 << 20);
    ru_arena_init_fixed(&scratch, room, sizeof room);
    const ru_policy_tools tools = {&a, &scratch, NULL};
    toy_in in = {0};
    toy_plan mine = {0};
    ru_report r;
    ru_err err = {0};
    ru_report_init(&r, &a, &mine, NULL, 0);
    ru_report_figure(&r, "cost", 0);
    assert_ok(ru_policy_rivals(&toy, &in, &mine, &tools, judge_toy, &r, &err), err);
    assert_int_equal(r.candidates.n, RU_ARRAY_LEN(names));
    for (uint32_t i = 0; i < r.candidates.n; i++) {
        const ru_candidate *c = &r.candidates.at[i];
        bool legal = i == 0 || i == 5;
        assert_string_equal(c->name, names[i]);
        assert_int_equal(c->legal, legal);
        assert_int_equal(strncmp(c->why, "method ", 7) == 0, !legal);
    }
    in.broken = 3;
    assert_int_equal(ru_policy_rivals(&toy, &in, &mine, &tools, judge_toy, &r, &err), RU_E_BUG);
    ru_arena_fini(&scratch);
    ru_arena_fini(&a);
}

/* The integer program knows no processor time of transfers; an answer without it says so. */
static void test_a_placement_tells_what_was_not_asked(void **state)
{
    (void)state;
    ru_arena a, scratch;
    ru_arena_init(&a, 0);
    ru_arena_init(&scratch, 0);
    ru_place_file f = *(const ru_place_file *)example_of(&ru_policy_place, &a);
    for (uint32_t k = 0; k < 3; k++) {
        f.q.byte_ns = k == 0 ? 0 : 0.5;
        f.q.nodes_max = k == 2 ? 0 : 2000;
        ru_str text = run_text(&ru_policy_place, &f, &a, &scratch, false);
        assert_true((strstr(text.p, "integer program knows neither") != NULL) == (k == 1));
    }
    ru_arena_fini(&scratch);
    ru_arena_fini(&a);
}

RU_TESTS(test_policy, cmocka_unit_test(test_answers_are_the_same_bytes_everywhere),
         cmocka_unit_test(test_answers_do_not_depend_on_vector_instructions),
         cmocka_unit_test(test_rerun_elsewhere_gives_the_same_bytes),
         cmocka_unit_test(test_reports_read_as_their_golden_texts),
         cmocka_unit_test(test_answers_keep_their_keys),
         cmocka_unit_test(test_a_placement_tells_what_was_not_asked),
         cmocka_unit_test(test_numbers_that_are_none_are_refused),
         cmocka_unit_test(test_changed_plans_are_refused),
         cmocka_unit_test(test_an_input_survives_json),
         cmocka_unit_test(test_runners_up_without_a_plan))
