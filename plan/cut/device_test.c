#include "plan/cut/device.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

enum { TYPES = 4, OFFERS = 10 };

typedef struct small {
    ru_device_type types[TYPES];
    ru_device_offer offers[OFFERS];
    ru_device_in in;
} small;

/* Few different numbers, so that ties and equal offers happen. */
static void make(small *s, ru_rng *r)
{
    static const char *const names[TYPES] = {"a", "b", "c", "d"};
    uint32_t types = 1 + ru_rng_below(r, TYPES);
    s->in = (ru_device_in){.types = s->types,
                           .n_types = types,
                           .offers = s->offers,
                           .n = 1 + ru_rng_below(r, OFFERS),
                           .samples = 1 + ru_rng_below(r, 1000),
                           .batch = 1 + ru_rng_below(r, 40),
                           .memory_bytes = ru_rng_below(r, 3),
                           .goal = ru_rng_below(r, 2) == 0 ? RU_DEVICE_COST : RU_DEVICE_TIME,
                           .deadline_s = ru_rng_below(r, 2) * 3000.0 * ru_rng_f64(r),
                           .budget_usd = ru_rng_below(r, 2) * 3.0 * ru_rng_f64(r)};
    for (uint32_t t = 0; t < types; t++) {
        s->types[t] = (ru_device_type){
            names[t],           1.0 + ru_rng_below(r, 3),      2000.0 + ru_rng_below(r, 3),
            ru_rng_below(r, 3), 1 + ru_rng_below(r, 2) * 0.25, 0};
    }
    for (uint32_t i = 0; i < s->in.n; i++) {
        s->offers[i] = (ru_device_offer){ru_rng_below(r, types), 1 + ru_rng_below(r, 4),
                                         1.0 + ru_rng_below(r, 6)};
    }
}

/* The definition, written out: least goal, then least of the other, then first. */
static uint32_t brute(const small *s)
{
    const ru_device_in *in = &s->in;
    uint32_t best = UINT32_MAX;
    double best_goal = 0, best_other = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_device_offer *o = &s->offers[i];
        const ru_device_type *t = &s->types[o->type];
        int64_t left = in->samples, steps = 0;
        for (; left > 0; steps++) {
            left -= in->batch * o->count;
        }
        double job_s = (double)steps * o->step_s, usd = job_s * t->usd_per_h * o->count / 3600;
        bool legal = (in->deadline_s <= 0 || job_s * t->factor <= in->deadline_s) &&
                     (in->budget_usd <= 0 || usd * t->factor <= in->budget_usd) &&
                     (t->memory_bytes == 0 || t->memory_bytes >= in->memory_bytes);
        double goal = in->goal == RU_DEVICE_COST ? usd : job_s;
        double other = in->goal == RU_DEVICE_COST ? job_s : usd;
        goal = floor(goal * 1e9 + 0.5);
        other = floor(other * 1e9 + 0.5);
        if (legal &&
            (best == UINT32_MAX || goal < best_goal || (goal <= best_goal && other < best_other))) {
            best = i;
            best_goal = goal;
            best_other = other;
        }
    }
    return best;
}

static void choices_are_those_of_the_definition(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 12);
    ru_arena a;
    ru_arena_init(&a, 0);
    uint32_t none = 0;
    for (uint32_t round = 0; round < 3000; round++) {
        small s;
        ru_device_plan p;
        ru_err err;
        make(&s, &r);
        ru_status st = ru_plan_device(&s.in, &a, &a, &p, &err);
        uint32_t best = brute(&s);
        if (best == UINT32_MAX) {
            assert_int_equal(st, RU_E_INFEASIBLE);
            assert_non_null(strstr(err.text, "the nearest one is"));
            none++;
            continue;
        }
        assert_ok(st, err);
        assert_int_equal(p.chosen, best);
        assert_ok(ru_plan_device_check(&s.in, &p, &err), err);
        assert_true(p.lines[best].pareto);
        ru_arena_rewind(&a, (ru_arena_mark){0});
    }
    assert_in_range(none, 100, 2900);
    ru_arena_fini(&a);
}

static void refused(const small *s, const ru_device_plan *p, const char *what)
{
    ru_err err;
    if (ru_plan_device_check(&s->in, p, &err) == RU_OK) {
        fail_msg("the checker took a plan with another %s", what);
    }
    assert_true(strlen(err.text) > 10);
}

static void changed_plans_are_refused(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 13);
    ru_arena a;
    ru_arena_init(&a, 0);
    for (uint32_t round = 0; round < 500; round++) {
        small s;
        ru_device_plan p;
        make(&s, &r);
        s.in.rule = (ru_device_rule)ru_rng_below(&r, 3);
        if (ru_plan_device(&s.in, &a, &a, &p, NULL) != RU_OK) {
            continue;
        }
        assert_int_equal(ru_plan_device_check(&s.in, &p, NULL), RU_OK);
        ru_device_line *l = &p.lines[ru_rng_below(&r, p.n)], was = *l;
        l->job_ns += 5;
        refused(&s, &p, "time");
        *l = was;
        l->cost_nusd -= 5;
        refused(&s, &p, "cost");
        *l = was;
        l->job_most_ns *= 2;
        refused(&s, &p, "longest time");
        *l = was;
        l->cost_most_nusd += 1000;
        refused(&s, &p, "highest cost");
        *l = was;
        l->legal = !l->legal;
        refused(&s, &p, "verdict");
        *l = was;
        l->pareto = !l->pareto;
        refused(&s, &p, "mark of the Pareto set");
        *l = was;
        l->offer.count++;
        refused(&s, &p, "count");
        *l = was;
        l->offer.step_s *= 1.5;
        refused(&s, &p, "step");
        *l = was;
        uint32_t chosen = p.chosen;
        for (p.chosen = 0; p.chosen <= p.n; p.chosen++) {
            if (p.chosen != chosen) {
                refused(&s, &p, "choice");
            }
        }
        p.chosen = chosen;
        p.n--;
        refused(&s, &p, "length");
        ru_arena_rewind(&a, (ru_arena_mark){0});
    }
    ru_arena_fini(&a);
}

static void rules_of_thumb_look_at_prices_and_years(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_device_plan p;
    const ru_device_type types[] = {
        {"old", 0.9, 2014, 0, 1, 0}, {"cheap", 0.5, 2018, 0, 1, 0}, {"new", 3, 2020, 0, 1, 0}};
    const ru_device_offer offers[] = {{0, 2, 1}, {0, 1, 2}, {1, 1, 2}, {2, 2, 0.1}, {2, 1, 0.2}};
    ru_device_in in = {types, 3, offers, 5, 1000, 10, 0, RU_DEVICE_COST, RU_DEVICE_BEST, 0, 0};
    assert_ok(ru_plan_device(&in, &a, &a, &p, &err), err);
    assert_int_equal(p.chosen, 3); /* as dear as one, and sooner done */
    in.rule = RU_DEVICE_CHEAPEST;
    assert_ok(ru_plan_device(&in, &a, &a, &p, &err), err);
    assert_int_equal(p.chosen, 2);
    in.rule = RU_DEVICE_NEWEST;
    assert_ok(ru_plan_device(&in, &a, &a, &p, &err), err);
    assert_int_equal(p.chosen, 4);
    ru_arena_fini(&a);
}

static void bad_questions_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_device_plan p;
    ru_device_type type = {"a", 1, 0, 0, 1, 0};
    ru_device_offer offer = {0, 1, 1};
    const ru_device_in in = {&type, 1, &offer, 1, 10, 1, 0, RU_DEVICE_COST, RU_DEVICE_BEST, 0, 0};
    static const double bad[] = {RU_NAN, -1, INFINITY};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        offer.step_s = bad[k];
        assert_int_equal(ru_plan_device(&in, &a, &a, &p, NULL), RU_E_ARG);
        offer.step_s = 1;
        type.usd_per_h = bad[k];
        assert_int_equal(ru_plan_device(&in, &a, &a, &p, NULL), RU_E_ARG);
        type.usd_per_h = 1;
        type.factor = bad[k];
        assert_int_equal(ru_plan_device(&in, &a, &a, &p, NULL), RU_E_ARG);
        type.factor = 1;
    }
    ru_device_in big = in;
    big.samples = (int64_t)1e15;
    assert_int_equal(ru_plan_device(&big, &a, &a, &p, NULL), RU_E_ARG); /* 30 million years */
    big = in;
    big.n = 0;
    assert_int_equal(ru_plan_device(&big, &a, &a, &p, NULL), RU_E_ARG);
    offer.type = 1;
    assert_int_equal(ru_plan_device(&in, &a, &a, &p, NULL), RU_E_ARG);
    ru_arena_fini(&a);
}

RU_TESTS(plan_device, cmocka_unit_test(choices_are_those_of_the_definition),
         cmocka_unit_test(changed_plans_are_refused),
         cmocka_unit_test(rules_of_thumb_look_at_prices_and_years),
         cmocka_unit_test(bad_questions_are_refused))
