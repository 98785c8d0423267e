/* Kept plans: what goes in comes out of a world file as a question that gives the same plan; what
 * is asked again is kept once; old ones make room. */
#include "run/decisions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env/file/file.h"
#include "plan/crew/join.h"
#include "plan/disk/read_share_policy.h"
#include "store/world_file.h"
#include "test/test.h"

typedef struct fixture {
    ru_arena arena;
    char dir[64];
    ru_decisions *d;
} fixture;

static void begin(fixture *f)
{
    ru_err err;
    ru_arena_init(&f->arena, 0);
    snprintf(f->dir, sizeof f->dir, "/tmp/rubato-decisions-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_ok(ru_decisions_open(f->dir, "job", &f->d, &err), err);
}

static void end(fixture *f)
{
    ru_err err;
    ru_decisions_close(f->d);
    assert_ok(ru_path_remove(f->dir, &err), err);
    ru_arena_fini(&f->arena);
}

static const void *read_input(const ru_policy *p, const char *text, bool yaml, ru_arena *a)
{
    ru_conf *c;
    ru_err err;
    int64_t n = (int64_t)strlen(text);
    void *in = ru_arena_zalloc(a, p->in->size_bytes, 64);
    assert_ok(ru_conf_new(p->in, a, &c, &err), err);
    assert_ok(yaml ? ru_conf_add_yaml(c, "x", text, n, &err)
                   : ru_conf_add_json(c, "x", text, n, &err),
              err);
    assert_ok(ru_conf_apply(c, in, &err), err);
    return in;
}

static ru_world world_of(fixture *f)
{
    ru_world w = {0}, again;
    ru_err err;
    ru_text text = ru_text_arena(&f->arena);
    assert_ok(ru_decisions_get(f->d, &f->arena, &w, &err), err);
    assert_ok(ru_world_file_put(&w, &text, &err), err);
    assert_ok(ru_world_file_parse("w", ru_str_n(text.p, text.n), &f->arena, &again, &err), err);
    return again;
}

static void test_plans_can_be_made_again_from_the_world_file(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    uint32_t n, kept = 0;
    const ru_policy *const *all = ru_policies(&n);
    for (uint32_t i = 0; i < n; i++) {
        ru_decisions_add(f.d, all[i], read_input(all[i], all[i]->example, true, &f.arena), false);
    }
    ru_world w = world_of(&f);
    for (uint32_t i = 0; i < w.plans.n; i++) {
        const ru_policy *p = ru_policy_find(w.plans.at[i].policy);
        char id[33];
        assert_non_null(p);
        ru_hash128_text(ru_policy_head(p, read_input(p, w.plans.at[i].input, false, &f.arena)).id,
                        id);
        assert_string_equal(id, w.plans.at[i].id);
        assert_true(w.plans.at[i].predicted.n > 0);
        kept++;
    }
    assert_true(kept >= 6); /* a policy that needs a solver is not answered here */
    char *text;
    int64_t size, lines = 0;
    ru_err err;
    const char *path = ru_arena_printf(&f.arena, "%s/plans/installed.jsonl", f.dir);
    assert_ok(ru_file_read(path, 0, &f.arena, &text, &size, &err), err);
    for (int64_t i = 0; i < size; i++) {
        lines += text[i] == '\n';
    }
    assert_int_equal(lines, kept);
    end(&f);
}

static void test_a_question_is_kept_once(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    ru_join_in a = {.piece_bytes = 5, .part = 0.1}, b = {.piece_bytes = 6, .part = 0.1};
    ru_decisions_add(f.d, &ru_policy_join, &a, false);
    ru_decisions_add(f.d, &ru_policy_join, &a, false);
    assert_int_equal(world_of(&f).plans.n, 1);
    ru_decisions_add(f.d, &ru_policy_join, &b, false);
    ru_decisions_add(f.d, &ru_policy_join, &a, true); /* both are in force */
    assert_int_equal(world_of(&f).plans.n, 2);
    ru_decisions_add(f.d, &ru_policy_join, &a, false); /* in force again */
    assert_int_equal(world_of(&f).plans.n, 3);
    ru_decisions_add(NULL, &ru_policy_join, &a, false);
    end(&f);
}

static void test_the_newest_are_kept(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    const ru_read_share_policy_worker worker = {"one", 1, 1, 1, 0, 0};
    const ru_read_share_policy_in alone = {.workers = {.at = (void *)(uintptr_t)&worker, .n = 1},
                                           .seconds = 1};
    ru_decisions_add(f.d, &ru_policy_read_share, &alone, false);
    for (int64_t k = 1; k <= RU_DECISIONS_MAX + 3; k++) {
        ru_join_in in = {.piece_bytes = k, .part = 0.1};
        ru_decisions_add(f.d, &ru_policy_join, &in, false);
    }
    ru_decisions_measured(f.d, &ru_policy_join, "join_s", RU_NAN, 1.5);
    ru_decisions_measured(f.d, &ru_policy_join, "wait_s", 2, 3);
    ru_decisions_measured(f.d, &ru_policy_join, "wait_s", 2, 4);
    ru_decisions_measured(f.d, &ru_policy_mem, "arena_bytes", RU_NAN, 4); /* no such plan */
    ru_world w = world_of(&f);
    assert_int_equal(w.plans.n, RU_DECISIONS_MAX);
    assert_string_equal(w.plans.at[0].policy, "read-share"); /* not pushed out by the others */
    assert_string_equal(w.plans.at[0].predicted.at[1].key, "jain_ratio");
    assert_true(w.plans.at[0].predicted.at[1].value == 1);
    assert_non_null(strstr(w.plans.at[1].input, "\"piece_bytes\":5,"));
    const ru_world_plan *last = &w.plans.at[w.plans.n - 1];
    assert_int_equal(last->measured.n, 2);
    assert_true(last->measured.at[1].value == 4 &&
                last->predicted.at[last->predicted.n - 1].value == 2);
    end(&f);
}

static void test_sums_are_replaced(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    ru_coll_fact fact = {.op = "all-reduce", .algo = "ring", .n_ranks = 2, .size_bytes = 8};
    for (int64_t k = 1; k < 4; k++) {
        fact.took = (ru_fact){.count = k, .mean_ns = 5};
        ru_decisions_sum(f.d, &fact);
    }
    fact.algo = "halving";
    ru_decisions_sum(f.d, &fact);
    ru_world w = world_of(&f);
    assert_int_equal(w.facts.collectives.n, 2);
    assert_int_equal(w.facts.collectives.at[0].took.count, 3);
    end(&f);
}

RU_TESTS(run_decisions, cmocka_unit_test(test_plans_can_be_made_again_from_the_world_file),
         cmocka_unit_test(test_a_question_is_kept_once), cmocka_unit_test(test_the_newest_are_kept),
         cmocka_unit_test(test_sums_are_replaced))
