/* Routes: as cheap as trying every set of cuts and every choice, and a checker that refuses what
 * was changed. */
#include "plan/serve/route.h"

#include <math.h>
#include <string.h>

#include "test/test.h"

enum { CLASSES = 4, MEMORIES = 2, BATCH = 3, STEPS = 3 };

static const double size[CLASSES] = {1, 2, 4, 9}, share[CLASSES] = {0.3, 0.3, 0.3, 0.1},
                    memory[MEMORIES] = {1024, 2048};

static ru_route_in input(double rate, double slo, double *service)
{
    for (uint32_t m = 0; m < MEMORIES; m++) {
        for (uint32_t k = 0; k < CLASSES; k++) {
            for (uint32_t b = 0; b < BATCH; b++) {
                service[(m * CLASSES + k) * BATCH + b] =
                    (0.2 + 0.16 * size[k] * (b + 1)) * (m == 0 ? 1 : 0.55);
            }
        }
    }
    return (ru_route_in){.arrivals = ru_markov_mmpp(rate, rate / 3, 0.5, 0.5),
                         .n_classes = CLASSES,
                         .size = size,
                         .share = share,
                         .memory_mb = memory,
                         .n_memory = MEMORIES,
                         .batch_max = BATCH,
                         .service_s = service,
                         .timeout_max_s = 0.3,
                         .timeout_step_s = 0.1,
                         .slo_s = slo,
                         .quantile = 0.9,
                         .usd_per_gb_s = 1.66667e-5,
                         .usd_per_call = 2e-7,
                         .billing_step_s = 0.001,
                         .buffers_max = CLASSES,
                         .instances_max = 1e9};
}

/* The cheapest choice for classes i .. j - 1, every one by its law; times the share. */
static double one_buffer(const ru_route_in *in, uint32_t i, uint32_t j, ru_arena *a)
{
    double part[CLASSES] = {0}, best = INFINITY, allow[CLASSES], by_class[RU_ROUTE_CLASSES_MAX];
    for (uint32_t k = 0; k < CLASSES; k++) {
        part[k] = k >= i && k < j ? share[k] : 0;
        allow[k] = in->slo_s * (in->per_request ? 1 : size[k]);
    }
    ru_route_mix mix;
    ru_markov_law l;
    ru_err err;
    assert_ok(ru_route_mix_of(part, CLASSES, BATCH, a, &mix, &err), err);
    ru_markov thin = ru_markov_thinned(&in->arrivals, fmin(mix.share, 1));
    assert_ok(ru_markov_solve(&thin, &l, &err), err);
    for (uint32_t at = 0; at < BATCH * STEPS * MEMORIES; at++) {
        uint32_t b = 1 + at % BATCH, t = 1 + at / BATCH % STEPS, m = at / BATCH / STEPS;
        ru_batch_law law;
        assert_ok(ru_batch_law_of(&l, b, b == 1 ? 0 : t * 0.1, 1, a, a, &law, &err), err);
        const double *service = in->service_s + m * CLASSES * BATCH;
        double met = ru_route_met(&mix, &law, service, allow, by_class), usd = 0;
        for (uint32_t k = 0; in->by_class && k < mix.n; k++) {
            met = fmin(met, by_class[k]);
        }
        for (uint32_t n = 1; n <= b; n++) {
            for (uint32_t k = 0; k < mix.n; k++) {
                usd += law.size_p[n] * ru_route_largest(&mix, n, k) *
                       ru_route_call_usd(in, m, mix.class_of[k], n);
            }
        }
        best = met >= in->quantile ? fmin(best, mix.share * usd / law.mean_batch) : best;
    }
    return best;
}

static double cheapest(const ru_route_in *in, ru_arena *a)
{
    double best = INFINITY;
    for (uint32_t cuts = 0; cuts < 1 << (CLASSES - 1); cuts++) { /* bit k: a cut after class k */
        double sum = 0;
        for (uint32_t i = 0, j = 1; j <= CLASSES; j++) {
            if (j == CLASSES || (cuts >> (j - 1) & 1) == 1) {
                sum += one_buffer(in, i, j, a);
                i = j;
            }
        }
        best = fmin(best, sum);
    }
    return best;
}

static void test_nothing_is_cheaper(void **state)
{
    (void)state;
    static const double rates[] = {3, 30}, slos[] = {0.28, 0.45, 0.7, 2};
    static const double of_requests[] = {0.9, 1.2, 2, 4};
    uint32_t found = 0;
    for (uint32_t c = 0; c < 24; c++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        double service[MEMORIES * CLASSES * BATCH];
        ru_route_in in = input(rates[c % 2], slos[c / 2 % 4], service);
        in.by_class = c >= 8;
        in.per_request = c >= 16;
        in.slo_s = c >= 16 ? of_requests[c / 2 % 4] : in.slo_s;
        ru_route_plan p;
        ru_err err;
        double best = cheapest(&in, &a);
        ru_status st = ru_plan_route(&in, &a, &a, &p, &err);
        if (isinf(best)) {
            assert_int_equal(st, RU_E_INFEASIBLE);
        } else {
            found++;
            assert_ok(st, err);
            if (!(p.usd_per_request <= best * (1 + 1e-5))) {
                fail_msg("case %u: %.9g USD, by trying all %.9g", c, p.usd_per_request, best);
            }
            assert_ok(ru_plan_route_check(&in, &p, &err), err);
            bool split = p.usd_per_request < best * (1 - 1e-5);
            for (uint32_t m = RU_ROUTE_EQUAL; m <= RU_ROUTE_NONE; m++) {
                ru_route_plan q;
                in.method = (ru_route_method)m;
                st = ru_plan_route(&in, &a, &a, &q, &err);
                assert_true(st == RU_OK || st == RU_E_INFEASIBLE);
                if (st == RU_OK) {
                    assert_ok(ru_plan_route_check(&in, &q, &err), err);
                    assert_true(p.usd_per_request <= q.usd_per_request * (1 + 1e-12));
                    split = split && (m != RU_ROUTE_EQUAL ||
                                      p.usd_per_request < q.usd_per_request * (1 - 1e-12));
                }
            }
            assert_false(split); /* what is cheaper than all cuts is a table of equal shares */
        }
        ru_arena_fini(&a);
    }
    assert_true(found >= 16);
}

static void refuse(const ru_route_in *in, const ru_route_plan *p, const ru_route_buffer *b,
                   uint32_t line)
{
    ru_route_buffer all[CLASSES];
    memcpy(all, p->buffers, p->n * sizeof *all);
    all[0] = *b;
    ru_route_plan q = *p;
    q.buffers = all;
    ru_err err;
    if (ru_plan_route_check(in, &q, &err) != RU_E_INFEASIBLE) {
        fail_msg("line %u: the checker took a plan that was changed", line);
    }
}

static void test_checker_refuses_changes(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    double service[MEMORIES * CLASSES * BATCH], table[CLASSES * CLASSES];
    ru_route_in in = input(30, 0.7, service);
    ru_route_plan p, q;
    ru_err err;
    in.buffers = 2;
    assert_ok(ru_plan_route(&in, &a, &a, &p, &err), err);
    assert_int_equal(p.n, 2);
    ru_route_buffer b;
#define CHANGED(change) b = p.buffers[0], change, refuse(&in, &p, &b, __LINE__)
    CHANGED(b.memory = 1 - b.memory);
    CHANGED(b.memory = 7);
    CHANGED(b.batch = 9);
    CHANGED(b.timeout_s += 0.05);
    CHANGED(b.timeout_s = 0);
    CHANGED(b.share *= 1.01);
    CHANGED(b.usd_per_request *= 0.99);
    CHANGED(b.mean_batch *= 1.01);
    CHANGED(b.instances *= 1.01);
    CHANGED(b.latency_s = 0.01);
    CHANGED(b.latency_s = 0.71);
    CHANGED(b.met = 0.89);
    CHANGED(b.met = 1.01);
    CHANGED(b.least_met = 1.01);
    CHANGED(b.least_met = -0.5);
    CHANGED(b.padding += 0.01);
    double size_p[BATCH + 1];
    memcpy(size_p, p.buffers[0].size_p, (p.buffers[0].batch + 1) * sizeof *size_p);
    size_p[1] += 0.01;
    CHANGED(b.size_p = size_p);
#undef CHANGED
    b = p.buffers[0];
    q = p, q.usd_per_request *= 0.99, refuse(&in, &q, &b, __LINE__);
    q = p, q.instances *= 0.99, refuse(&in, &q, &b, __LINE__);
    q = p, q.met -= 0.01, refuse(&in, &q, &b, __LINE__);
    q = p, q.padding += 0.01, refuse(&in, &q, &b, __LINE__);
    q = p, q.n = 0, refuse(&in, &q, &b, __LINE__);
    memcpy(table, p.share, 2 * CLASSES * sizeof *table);
    q = p;
    q.share = table;
    for (uint32_t i = 0; i < 2 * CLASSES; i++) {
        double was = table[i];
        table[i] += 0.01;
        refuse(&in, &q, &b, __LINE__);
        table[i] = -was - 0.01;
        refuse(&in, &q, &b, __LINE__);
        table[i] = was;
    }
    in.instances_max = p.instances / 2;
    refuse(&in, &p, &b, __LINE__);
    in.instances_max = p.instances / 20;
    assert_int_equal(ru_plan_route(&in, &a, &a, &q, &err), RU_E_INFEASIBLE);
    assert_non_null(strstr(err.text, "instances_max"));
    in.slo_s = 0.1;
    assert_int_equal(ru_plan_route(&in, &a, &a, &q, &err), RU_E_INFEASIBLE);
    assert_non_null(strstr(err.text, "alone"));
    ru_arena_fini(&a);
}

RU_TESTS(plan_route, cmocka_unit_test(test_nothing_is_cheaper),
         cmocka_unit_test(test_checker_refuses_changes))
