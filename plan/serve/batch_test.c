/* Batch plans: as cheap as trying everything, and a checker that refuses what was changed. */
#include "plan/serve/batch.h"

#include <math.h>
#include <string.h>

#include "plan/row/policy.h"
#include "test/test.h"

static const double poly[10] = {0.4, 0.12, -1.2e-4, 0.001, -3e-5, 1e-8, 0, 0, 3e-9, 0};
static const double memory[] = {1024, 1536, 2048};

static ru_batch_in input(double rate, double slo)
{
    return (ru_batch_in){.arrivals = ru_markov_mmpp(rate, rate / 3, 0.5, 0.5),
                         .service = {poly, 10},
                         .memory_mb = memory,
                         .n_memory = 3,
                         .batch_max = 5,
                         .timeout_max_s = 0.3,
                         .timeout_step_s = 0.1,
                         .slo_s = slo,
                         .quantile = 0.95,
                         .usd_per_gb_s = 1.66667e-5,
                         .usd_per_call = 2e-7,
                         .billing_step_s = 0.001};
}

static double cheapest(const ru_batch_in *in, ru_arena *a)
{
    double best = INFINITY;
    for (uint32_t b = 1; b <= in->batch_max; b++) {
        for (uint32_t t = 0; t <= 3; t++) {
            for (uint32_t m = 0; m < in->n_memory; m++) {
                /* t 0: what clipper takes, the largest batch that is served in time */
                double limit = in->slo_s * (1 - in->margin), mb = in->memory_mb[m];
                if (t == 0 && (ru_batch_service_s(in, b, mb) > limit ||
                               (b < in->batch_max && ru_batch_service_s(in, b + 1, mb) <= limit))) {
                    continue;
                }
                const ru_batch_choice at = {mb, b, b == 1 ? 0 : t == 0 ? 0.002 : t * 0.1};
                ru_batch_plan p;
                ru_err err;
                assert_ok(ru_plan_batch_at(in, &at, a, a, &p, &err), err);
                if (p.latency_s <= limit) {
                    best = fmin(best, p.usd_per_request);
                }
            }
        }
    }
    return best;
}

static void test_nothing_is_cheaper(void **state)
{
    (void)state;
    static const double rates[] = {2, 15, 80}, slos[] = {0.5, 0.8, 1.4, 5};
    for (uint32_t r = 0; r < RU_ARRAY_LEN(rates); r++) {
        for (uint32_t s = 0; s < RU_ARRAY_LEN(slos); s++) {
            ru_arena a;
            ru_arena_init(&a, 0);
            ru_batch_in in = input(rates[r], slos[s]);
            in.margin = s % 2 == 0 ? 0 : 0.05;
            ru_batch_plan p;
            ru_err err;
            double best = cheapest(&in, &a);
            ru_status st = ru_plan_batch(&in, &a, &a, &p, &err);
            if (isinf(best)) {
                assert_int_equal(st, RU_E_INFEASIBLE);
                assert_non_null(strstr(err.text, "smallest possible"));
            } else {
                assert_ok(st, err);
                assert_true(fabs(p.usd_per_request - best) <= 1e-12 * best);
                assert_ok(ru_plan_batch_check(&in, &p, &err), err);
            }
            ru_arena_fini(&a);
        }
    }
}

/* The coefficients as a table of times give the same plan. */
static void test_measured_times_are_taken_as_they_are(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_batch_in in = input(15, 1.4), by = in;
    ru_batch_plan p, q;
    double times[15];
    ru_err err;
    for (uint32_t m = 0; m < 3; m++) {
        for (uint32_t k = 1; k <= 5; k++) {
            times[m * 5 + k - 1] = ru_batch_service_s(&in, k, memory[m]);
        }
    }
    by.service = (ru_conf_f64s){0};
    by.measured = (ru_conf_f64s){times, 15};
    by.measured_from_mb = 1024;
    by.measured_step_mb = 512;
    assert_ok(ru_plan_batch(&in, &a, &a, &p, &err), err);
    assert_ok(ru_plan_batch(&by, &a, &a, &q, &err), err);
    assert_true(p.at.batch == q.at.batch && p.at.memory_mb == q.at.memory_mb &&
                p.at.timeout_s == q.at.timeout_s && p.latency_s == q.latency_s &&
                p.usd_per_request == q.usd_per_request);
    assert_ok(ru_plan_batch_check(&by, &q, &err), err);
    ru_arena_fini(&a);
}

static void refuse(const ru_batch_in *in, const ru_batch_plan *p)
{
    ru_err err;
    if (ru_plan_batch_check(in, p, &err) != RU_E_INFEASIBLE) {
        fail_msg("the checker took a plan that was changed");
    }
}

static void test_checker_refuses_changes(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_batch_in in = input(15, 1.4);
    ru_batch_plan p, q;
    ru_err err;
    assert_ok(ru_plan_batch(&in, &a, &a, &p, &err), err);
    assert_true(p.at.batch > 1);
    q = p, q.at.memory_mb = 1000, refuse(&in, &q);
    q = p, q.at.batch = 9, refuse(&in, &q);
    q = p, q.at.timeout_s *= 1.01, refuse(&in, &q);
    q = p, q.at.timeout_s = 0, refuse(&in, &q);
    q = p, q.usd_per_request *= 0.99, refuse(&in, &q);
    q = p, q.mean_batch *= 1.01, refuse(&in, &q);
    q = p, q.instances *= 1.01, refuse(&in, &q);
    q = p, q.latency_s = 0.01, refuse(&in, &q);
    q = p, q.latency_s = in.slo_s * 1.01, refuse(&in, &q);
    double size_p[RU_BATCH_MAX + 1];
    memcpy(size_p, p.size_p, (p.at.batch + 1) * sizeof *size_p);
    for (uint32_t b = 1; b <= p.at.batch; b++) {
        q = p;
        q.size_p = size_p;
        size_p[b] += 0.01;
        refuse(&in, &q);
        size_p[b] = -size_p[b];
        refuse(&in, &q);
        size_p[b] = p.size_p[b];
    }
    ru_arena_fini(&a);
}

/* Rules to compare with: what they promise holds, and nothing of the grid that promises it costs
 * less. */
static void test_rules_keep_what_they_promise(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_batch_in in = input(15, 1.4);
    ru_batch_plan p, q;
    ru_err err;
    in.method = RU_BATCH_MARK;
    assert_ok(ru_plan_batch(&in, &a, &a, &p, &err), err);
    assert_ok(ru_plan_batch_check(&in, &p, &err), err);
    double best = INFINITY;
    for (uint32_t b = 1; b <= in.batch_max; b++) {
        for (uint32_t t = 0; t <= 3; t++) {
            for (uint32_t m = 0; m < in.n_memory; m++) {
                const ru_batch_choice at = {memory[m], b, t * 0.1};
                if ((b == 1) != (t == 0) ||
                    ru_batch_service_s(&in, b, memory[m]) + at.timeout_s > in.slo_s) {
                    continue;
                }
                assert_ok(ru_plan_batch_at(&in, &at, &a, &a, &q, &err), err);
                assert_true(q.latency_s <= in.slo_s * (1 + 1e-9));
                /* the rule takes the longest timeout that fits, which may not be the cheapest */
                bool longest = b == 1 || t == 3 ||
                               ru_batch_service_s(&in, b, memory[m]) + t * 0.1 + 0.1 > in.slo_s;
                best = longest ? fmin(best, q.usd_per_request) : best;
            }
        }
    }
    assert_near(p.usd_per_request, best, 1e-12 * best);
    q = p, q.at.timeout_s += in.timeout_step_s, refuse(&in, &q);
    in.method = RU_BATCH_CLIPPER;
    assert_ok(ru_plan_batch(&in, &a, &a, &p, &err), err);
    assert_ok(ru_plan_batch_check(&in, &p, &err), err);
    assert_true(p.at.batch == in.batch_max ||
                ru_batch_service_s(&in, p.at.batch + 1, p.at.memory_mb) > in.slo_s);
    q = p, q.at.timeout_s = 0.1, refuse(&in, &q);
    in.slo_s = 0.01;
    assert_int_equal(ru_plan_batch(&in, &a, &a, &p, &err), RU_E_INFEASIBLE);
    assert_non_null(strstr(err.text, "the rule gives no choice"));
    ru_arena_fini(&a);
}

/* The row's report with another objective; its figure and triggers by name. */
static double found(const ru_report *r, const char *name, bool trigger)
{
    uint32_t n = trigger ? r->triggers.n : r->figures.n;
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(trigger ? r->triggers.at[i].figure : r->figures.at[i].name, name) == 0) {
            return trigger ? r->triggers.at[i].error_max : r->figures.at[i].value;
        }
    }
    fail_msg("the report has no %s", name);
    return 0;
}

/* A process with its clock at another speed. */
static ru_markov at_speed(const ru_markov *m, double times)
{
    ru_markov out = *m;
    for (uint32_t i = 0; i < m->n * m->n; i++) {
        out.d0[i] *= times;
        out.d1[i] *= times;
    }
    return out;
}

/* The plan leaves the margin free; the promise holds while the rate drifts less than the trigger
 * says, and where that is less than the most it says, not much farther. */
static void test_the_trigger_sees_drift_of_arrivals(void **state)
{
    (void)state;
    uint32_t bound = 0;
    for (uint32_t k = 0; k < 30; k++) {
        double slo = 0.25 + 0.035 * k;
        for (uint32_t memoryless = 0; memoryless < 2; memoryless++) {
            ru_arena a;
            ru_arena_init(&a, 0);
            ru_err err;
            ru_conf *c;
            const ru_policy *row = ru_policy_find("batch");
            void *in = ru_arena_zalloc(&a, row->in->size_bytes, 16);
            double margin = k % 2 == 0 ? 0.05 : 0.005;
            const char *set = ru_arena_printf(
                &a,
                "arrivals: %s\nservice: [0.1, 0.01, -3e-5, 0, 0, 4e-9, 0, 0, 0, 0]\n"
                "memory_min_mb: 1024\nmemory_max_mb: 2048\nmemory_step_mb: 512\nbatch_max: 8\n"
                "timeout_max_s: 1\ntimeout_step_s: 0.05\nslo_s: %g\nmargin: %g\n",
                memoryless != 0 ? "{poisson: 9}"
                                : "{map: {d0: [-9.5, 0.5, 0.5, -3.5], d1: [9, 0, "
                                  "0, 3]}}",
                slo, margin);
            assert_ok(ru_conf_new(row->in, &a, &c, &err), err);
            assert_ok(ru_conf_add_yaml(c, "batch", set, (int64_t)strlen(set), &err), err);
            assert_ok(ru_conf_apply(c, in, &err), err);
            const ru_policy_tools tools = {&a, &a, NULL};
            ru_policy_answer answer;
            assert_ok(ru_policy_run(row, in, &tools, &answer, &err), err);
            const ru_batch_plan *p = answer.plan;
            const ru_report *r = &answer.report;
            assert_true(p->latency_s <= (1 - margin) * slo * (1 + 1e-9));
            assert_true(found(r, "latency_s", true) <= margin);
            assert_true(found(r, "arrivals_scv", true) > 0);
            double rate = found(r, "arrivals_per_s", false), d = found(r, "arrivals_per_s", true);
            assert_true(fabs(rate - (memoryless != 0 ? 9 : 6)) < 1e-9);
            assert_true(memoryless == 0 || fabs(found(r, "arrivals_scv", false) - 1) < 1e-9);
            const double poly9[] = {0.1, 0.01, -3e-5, 0, 0, 4e-9, 0, 0, 0, 0};
            ru_batch_in q = {.arrivals = memoryless != 0 ? ru_markov_poisson(9)
                                                         : ru_markov_mmpp(9, 3, 0.5, 0.5),
                             .service = {poly9, 10},
                             .quantile = 0.95,
                             .batch_max = 8,
                             .billing_step_s = 0.001};
            const ru_markov map = q.arrivals;
            double worst = 0;
            for (int way = -1; way <= 1; way += 2) {
                ru_batch_plan then;
                q.arrivals = at_speed(&map, 1 + way * d);
                assert_ok(ru_plan_batch_at(&q, &p->at, &a, &a, &then, &err), err);
                assert_true(then.latency_s <= slo || d <= 0.01);
                q.arrivals = at_speed(&map, 1 + way * 2 * d);
                assert_ok(ru_plan_batch_at(&q, &p->at, &a, &a, &then, &err), err);
                worst = fmax(worst, then.latency_s);
            }
            assert_true(d >= 0.2 || worst > slo);
            bound += d < 0.2;
            ru_arena_fini(&a);
        }
    }
    assert_true(bound > 0);
}

RU_TESTS(plan_batch, cmocka_unit_test(test_the_trigger_sees_drift_of_arrivals),
         cmocka_unit_test(test_rules_keep_what_they_promise),
         cmocka_unit_test(test_nothing_is_cheaper),
         cmocka_unit_test(test_measured_times_are_taken_as_they_are),
         cmocka_unit_test(test_checker_refuses_changes))
