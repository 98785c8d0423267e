/* Whole jobs whose step times follow a law with noise: limits are kept, measurements are steps of
 * the job, what ran out of memory is not chosen again, a budget that does not suffice is said. */
#include "fleet/func_scale.h"

#include <math.h>

#include "base/rng.h"
#include "test/test.h"

static const ru_func_scale_options grid = {.workers_min = 1,
                                           .workers_max = 8,
                                           .memory_min_mb = 512,
                                           .memory_max_mb = 3584,
                                           .memory_step_mb = 512,
                                           .life_ns = INT64_C(900000000000),
                                           .usd_per_gb_s = 1.66667e-5,
                                           .usd_per_call = 2e-7};

typedef struct job {
    int64_t steps, done, probed;
    double s, usd, least_mb, each_s;
    const ru_scale_part *parts; /* [n_parts]; NULL: one */
    uint32_t n_parts;
    uint32_t failed, choices;
    bool brief; /* a hundredth of the work, and those who were called before are there at once */
    ru_rng rng;
} job;

/* 2 s of one core, shared; an exchange that grows with the workers, so much for each. */
static double step_s(double workers, double memory_mb, double batch, double each_s)
{
    return 2 * batch / (workers * fmin(memory_mb / 1769, 1)) + each_s * workers;
}

/* What is left of the parts. */
static uint32_t left_of(const job *j, ru_scale_part *left)
{
    uint32_t n = 0;
    double at = (double)j->done;
    if (j->parts == NULL) {
        left[0] = (ru_scale_part){(double)j->steps - at, 1};
        return 1;
    }
    for (uint32_t k = 0; k < j->n_parts; k++) {
        double steps = j->parts[k].steps - at;
        at = fmax(0, -steps);
        if (steps > 0) {
            left[n++] = (ru_scale_part){steps, j->parts[k].batch};
        }
    }
    return n;
}

static ru_status run(job *j, const ru_func_scale_options *o, ru_err *err)
{
    ru_func_scale s;
    ru_arena a;
    ru_func_choice c, was = {0};
    ru_status st = ru_func_scale_init(&s, o, (ru_time){0}, err);
    ru_arena_init(&a, 0);
    while (st == RU_OK && j->done < j->steps) {
        ru_scale_part left[4];
        uint32_t n = left_of(j, left);
        ru_time now = {(int64_t)(j->s * 1e9)};
        st = ru_func_scale_next(&s, j->done, left, n, j->usd, now, &a, &c, err);
        if (st != RU_OK) {
            break;
        }
        assert_true(c.workers >= 1 && c.workers <= 8 && c.end > j->done &&
                    c.end <= j->done + (int64_t)left[0].steps);
        ru_scale_plan again; /* who explains the run asks with what it kept */
        assert_ok(ru_plan_scale(&s.in, &a, &again, err), *err);
        assert_true(s.plan.drifted ||
                    (again.workers == s.plan.workers && again.memory_mb == s.plan.memory_mb));
        if (c.memory_mb < j->least_mb) {
            j->s += 1;
            j->failed++;
            ru_func_scale_failed(&s);
            continue;
        }
        double mean = step_s(c.workers, c.memory_mb, left[0].batch, j->each_s) *
                      (1 + 0.05 * ru_rng_normal(&j->rng));
        bool other = c.workers != was.workers || c.memory_mb != was.memory_mb;
        double init = other || !j->brief ? 1 : 0.03;
        mean *= j->brief ? 0.01 : 1;
        double took = init + mean * (double)(c.end - j->done);
        j->choices += other;
        was = c;
        j->probed += s.plan.probe ? c.end - j->done : 0;
        j->s += took;
        j->usd += c.workers * (c.memory_mb / 1024.0 * took * o->usd_per_gb_s + o->usd_per_call);
        j->done = c.end;
        ru_func_scale_measured(&s, mean, init);
    }
    ru_arena_fini(&a);
    return st;
}

static void test_limits(void **state)
{
    ru_func_scale_options o = grid;
    ru_err err;
    (void)state;
    for (uint32_t k = 0; k < 10; k++) {
        job j = {
            .steps = 2000, .least_mb = 600, .each_s = 0.01, .rng = ru_rng_from(ru_test_seed(), k)};
        o.deadline_ns = INT64_C(1500000000000); /* 1 worker takes 4,000 s, 8 take 660 */
        o.budget_usd = 0;
        assert_ok(run(&j, &o, &err), err);
        assert_true(j.s <= 1500);
        assert_true(j.probed > 0 && j.probed <= 200);
        assert_true(j.failed <= 8); /* each number of workers fails at most once */
        double usd = j.usd;
        o.deadline_ns = 0;
        o.budget_usd = 2 * usd;
        job fast = {.steps = 2000, .each_s = 0.01, .rng = ru_rng_from(ru_test_seed(), 100 + k)};
        assert_ok(run(&fast, &o, &err), err);
        assert_true(fast.usd <= o.budget_usd && fast.s < 1100);
    }
}

/* The least money of workers and memory that are kept from the first step to the last. */
static double fixed_usd(const job *j, const ru_func_scale_options *o)
{
    double least = (double)INFINITY;
    for (uint32_t w = o->workers_min; w <= o->workers_max; w++) {
        for (double m = o->memory_min_mb; m <= o->memory_max_mb; m += o->memory_step_mb) {
            double s = 1;
            for (uint32_t k = 0; k < j->n_parts; k++) {
                s += j->parts[k].steps * step_s(w, m, j->parts[k].batch, j->each_s);
            }
            double usd = w * (m / 1024 * s * o->usd_per_gb_s + o->usd_per_call);
            least = s <= (double)o->deadline_ns * 1e-9 ? fmin(least, usd) : least;
        }
    }
    return least;
}

static void test_a_batch_that_doubles_twice(void **state)
{
    static const ru_scale_part parts[] = {{8000, 0.5}, {4000, 1}, {2000, 2}};
    ru_func_scale_options o = grid;
    ru_err err;
    uint32_t kept = 0, less = 0;
    (void)state;
    o.memory_max_mb = 1536; /* all of it is a share of a core */
    for (uint32_t k = 0; k < 10; k++) {
        job j = {.steps = 14000, .each_s = 0.04, .parts = parts, .n_parts = 3};
        j.rng = ru_rng_from(ru_test_seed(), k);
        o.deadline_ns = INT64_C(8200000000000) + k * INT64_C(300000000000);
        assert_ok(run(&j, &o, &err), err);
        kept += j.s <= (double)o.deadline_ns * 1e-9;
        less += j.usd < fixed_usd(&j, &o); /* which knows all before */
    }
    assert_true(kept >= 9 && less >= 5);
    job j = {.steps = 14000, .each_s = 0.04, .parts = parts, .n_parts = 3};
    j.rng = ru_rng_from(ru_test_seed(), 10);
    o.deadline_ns = INT64_C(5000000000000); /* nothing is so fast */
    assert_ok(run(&j, &o, &err), err);
    assert_int_equal(j.done, j.steps);
}

/* A job that takes little longer than its start: workers are not exchanged for others again and
 * again, because those that were there before begin at once. */
static void test_brief_jobs(void **state)
{
    ru_func_scale_options o = grid;
    ru_err err;
    (void)state;
    for (uint32_t k = 0; k < 10; k++) {
        job j = {.steps = 120, .each_s = 0.04, .rng = ru_rng_from(ru_test_seed(), k)};
        j.brief = true;
        o.deadline_ns = INT64_C(6000000000);
        assert_ok(run(&j, &o, &err), err);
        assert_true(j.s <= 6 && j.choices <= 2);
    }
}

/* The fewest workers are fast enough: hardly anything else is tried. */
static void test_a_deadline_that_is_far(void **state)
{
    ru_func_scale_options o = grid;
    ru_err err;
    const ru_scale_part all = {2000, 1};
    (void)state;
    for (uint32_t k = 0; k < 10; k++) {
        job j = {.steps = 2000, .each_s = 0.3, .parts = &all, .n_parts = 1};
        j.rng = ru_rng_from(ru_test_seed(), k);
        o.deadline_ns = INT64_C(8000000000000); /* one worker of a core takes 4,600 to 5,400 s */
        assert_ok(run(&j, &o, &err), err);
        assert_true(j.s <= 8000 && j.usd <= 1.1 * fixed_usd(&j, &o));
    }
}

static void test_too_little(void **state)
{
    ru_func_scale_options o = grid;
    ru_err err;
    job j = {.steps = 2000, .each_s = 0.01, .rng = ru_rng_from(1, 0)};
    (void)state;
    o.budget_usd = 1e-3;
    assert_int_equal(run(&j, &o, &err), RU_E_INFEASIBLE);
    o.budget_usd = 0;
    o.deadline_ns = INT64_C(10000000000);
    j.usd = 0;
    assert_ok(run(&j, &o, &err), err); /* late, but whole */
    assert_int_equal(j.done, 2000);
}

RU_TESTS(fleet_func_scale, cmocka_unit_test(test_limits),
         cmocka_unit_test(test_a_batch_that_doubles_twice), cmocka_unit_test(test_brief_jobs),
         cmocka_unit_test(test_a_deadline_that_is_far), cmocka_unit_test(test_too_little))
