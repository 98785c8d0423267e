/* The law against itself; parts of a job against all combinations of choices, and against the best
 * choice that is kept from the first step to the last. */
#include "plan/fleet/scale_parts.h"

#include <math.h>

#include "test/test.h"

static const double memories[] = {442.25, 884.5};
static const ru_scale_law truth = {.work = 0.01, .fixed = 0.04, .exchange = 0.02, .each = 0.02};
/* Exchanges that take as long as the work of two workers. */
static const ru_scale_law slow = {.work = 46e-6, .exchange = 8e-3, .each = 1e-3};

static ru_scale_in rest(double limit_s)
{
    return (ru_scale_in){.workers_min = 1,
                         .workers_max = 8,
                         .workers_step = 1,
                         .memory_mb = memories,
                         .n_memory = 2,
                         .limit_s = limit_s,
                         .core_mb = 1769,
                         .rules = {.usd_per_gb_s = 1.66667e-5, .usd_per_call = 2e-7}};
}

static void test_law_of_two_batches_tells_the_third(void **state)
{
    (void)state;
    ru_scale_in in = rest(0);
    const double batch[] = {16, 16, 16, 32, 32};
    ru_scale_probe probe[5] = {{.workers = 1, .memory_mb = 442.25},
                               {.workers = 8, .memory_mb = 442.25},
                               {.workers = 4, .memory_mb = 884.5},
                               {.workers = 2, .memory_mb = 442.25},
                               {.workers = 2, .memory_mb = 884.5, .failed = true, .step_s = 1}};
    ru_arena a;
    ru_err err;
    ru_scale_law law;
    ru_arena_init(&a, 0);
    for (uint32_t k = 0; k < 4; k++) {
        probe[k].step_s =
            ru_scale_law_step(&truth, &in, probe[k].workers, probe[k].memory_mb, batch[k]);
    }
    in.probe = probe;
    in.n_probes = 5;
    assert_ok(ru_scale_law_of(&in, batch, &a, &law, &err), err);
    double want = ru_scale_law_step(&truth, &in, 3, 884.5, 64);
    assert_true(fabs(ru_scale_law_step(&law, &in, 3, 884.5, 64) / want - 1) < 1e-3);
    ru_arena_fini(&a);
}

/* One worker alone exchanges nothing, so its step says what the work takes. */
static void test_one_worker_tells_the_work(void **state)
{
    (void)state;
    ru_scale_in in = rest(0);
    const double batch[] = {60, 60};
    ru_scale_probe probe[2] = {{.workers = 1, .memory_mb = 442.25},
                               {.workers = 3, .memory_mb = 442.25}};
    ru_arena a;
    ru_err err;
    ru_scale_law law;
    ru_arena_init(&a, 0);
    for (uint32_t k = 0; k < 2; k++) {
        probe[k].step_s = ru_scale_law_step(&slow, &in, probe[k].workers, 442.25, 60);
    }
    in.probe = probe;
    in.n_probes = 2;
    assert_ok(ru_scale_law_of(&in, batch, &a, &law, &err), err);
    double want = ru_scale_law_step(&slow, &in, 1, 442.25, 240);
    assert_true(fabs(ru_scale_law_step(&law, &in, 1, 442.25, 240) / want - 1) < 0.05);
    ru_arena_fini(&a);
}

/* One worker is the best choice of the first part whatever the limit, and later ones can make up
 * for it: it may take all that these leave. Where a cheaper choice would fit it may not. */
static void test_the_first_part_may_take_what_others_can_save(void **state)
{
    (void)state;
    const ru_scale_part parts[] = {{800, 60}, {400, 120}, {200, 240}};
    ru_scale_in in = rest(25);
    double of_s, of_usd, least = 0;
    in.n_memory = 1;
    ru_scale_divide(&in, &slow, parts, 3, &of_s, &of_usd);
    for (uint32_t k = 1; k < 3; k++) {
        double part_s = (double)INFINITY;
        for (uint32_t w = 1; w <= 8; w++) {
            double step_s = ru_scale_law_step(&slow, &in, w, memories[0], parts[k].batch);
            part_s = fmin(part_s, parts[k].steps * step_s);
        }
        least += part_s;
    }
    double one_s = 800 * ru_scale_law_step(&slow, &in, 1, memories[0], 60);
    assert_true(of_s > 1.3 * one_s && fabs(of_s - (25 - least)) < 1e-6);
    ru_scale_divide(&in, &slow, parts + 2, 1, &of_s, &of_usd);
    assert_true(fabs(of_s - 25) < 1e-9);
    const ru_scale_part turned[] = {parts[2], parts[0]}; /* two or more workers, then one */
    in.limit_s = 15.5;
    ru_scale_divide(&in, &slow, turned, 2, &of_s, &of_usd);
    assert_true(of_s < 200 * ru_scale_law_step(&slow, &in, 1, memories[0], 240));
}

static bool run_of(const ru_scale_in *in, uint32_t k, const ru_scale_part *p, ru_function_run *out)
{
    uint32_t workers = 1 + k / 2;
    double step_s = ru_scale_law_step(&truth, in, workers, memories[k % 2], p->batch);
    return ru_function_run_of(&in->rules, workers, memories[k % 2], p->steps, step_s, out);
}

/* The cheapest choice of this part within the limit; false: none. */
static bool cheapest(const ru_scale_in *in, const ru_scale_part *p, double limit_s,
                     ru_function_run *best)
{
    bool some = false;
    for (uint32_t k = 0; k < 16; k++) {
        ru_function_run r;
        if (run_of(in, k, p, &r) && r.seconds <= limit_s && (!some || r.usd < best->usd)) {
            *best = r;
            some = true;
        }
    }
    return some;
}

/* The least money of one choice for each part, or of one for all, by trying all. */
static double brute(const ru_scale_in *in, const ru_scale_part *parts, bool one)
{
    double least = (double)INFINITY;
    for (uint32_t k = 0; k < 16 * 16 * 16; k++) {
        const uint32_t at[] = {k % 16, k / 16 % 16, k / 256};
        ru_function_run all = {0}, r;
        for (uint32_t i = 0; i < 3; i++) {
            assert_true(run_of(in, at[i], &parts[i], &r));
            all.seconds += r.seconds;
            all.usd += r.usd;
        }
        bool same = at[0] == at[1] && at[1] == at[2];
        least = all.seconds <= in->limit_s && (same || !one) ? fmin(least, all.usd) : least;
    }
    return least;
}

static void test_parts_cost_less_than_one_choice(void **state)
{
    (void)state;
    const ru_scale_part parts[] = {{400, 16}, {200, 32}, {100, 64}};
    uint32_t less = 0, n = 0;
    double ours = 0, best = 0, fixed = 0;
    for (double limit_s = 157; limit_s < 250; limit_s += 6) {
        ru_scale_in in = rest(limit_s);
        double usd = 0, s = 0, of_s, of_usd;
        bool kept = true;
        for (uint32_t k = 0; k < 3; k++) {
            ru_function_run r = {0};
            in.limit_s = limit_s - s;
            ru_scale_divide(&in, &truth, parts + k, 3 - k, &of_s, &of_usd);
            assert_true(of_usd == 0 && (k < 2 || fabs(of_s - in.limit_s) < 1e-9));
            kept = kept && cheapest(&in, &parts[k], of_s, &r);
            usd += r.usd;
            s += r.seconds;
        }
        assert_true(kept && s <= limit_s);
        in.limit_s = limit_s;
        double one = brute(&in, parts, true);
        less += usd < one * (1 - 1e-9);
        n++;
        ours += usd;
        best += brute(&in, parts, false);
        fixed += isfinite(one) ? one : usd;
    }
    assert_true(2 * less >= n);
    assert_true(ours < fixed && ours < best * 1.05);
}

RU_TESTS(plan_scale_parts, cmocka_unit_test(test_law_of_two_batches_tells_the_third),
         cmocka_unit_test(test_one_worker_tells_the_work),
         cmocka_unit_test(test_the_first_part_may_take_what_others_can_save),
         cmocka_unit_test(test_parts_cost_less_than_one_choice))
