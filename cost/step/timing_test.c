#include "cost/step/timing.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

enum { NETS = 12, OPS = 30, ROWS = NETS * OPS };

static const char *const kinds[] = {"conv/3x3", "conv/1x1", "add", "never/timed", "conv/5x5"};

typedef struct made {
    double x[ROWS][RU_TIMING_COLUMNS];
    ru_timing_row rows[ROWS];
    ru_timing_in in;
} made;

/* Times that follow the columns exactly but for `noise`; each kind with its own speeds. */
static void make(made *m, double noise, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    ru_rng r = ru_rng_from(seed, 7);
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t k = ru_rng_below(&r, 3);
        double c = 16 * (1.0 + ru_rng_below(&r, 8)), hw = 7 * (1.0 + ru_rng_below(&r, 8));
        double bytes = 128 * c * hw * hw;
        ru_timing_op op = {.in_bytes = bytes, .out_bytes = bytes / 2};
        if (k < 2) {
            op.taps = k == 0 ? 9 : 1;
            op.flops = bytes * c * op.taps / 4;
            op.param_bytes = 4 * c * c * op.taps;
            op.channels_in = op.channels_out = c;
        }
        ru_timing_add(&op, 1, m->x[i]);
        double t = 1e-5 * (k + 1.0) + (2.0 + k) * 1e-11 * bytes + op.flops * 2e-13;
        m->rows[i] =
            (ru_timing_row){k, i % NETS, m->x[i], t * ru_math_exp(noise * ru_rng_normal(&r))};
    }
    m->in = (ru_timing_in){.rows = m->rows,
                           .n = ROWS,
                           .kinds = kinds,
                           .n_kinds = RU_ARRAY_LEN(kinds),
                           .method = RU_TIMING_SQUARES};
}

static void times_that_follow_the_columns_come_back(void **state)
{
    (void)state;
    static made m, other;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_timing_model model;
    ru_err err;
    make(&m, 0, 1);
    make(&other, 0, 2);
    assert_ok(ru_timing_fit(&m.in, &a, &a, &model, &err), err);
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_near(ru_timing_at(&model, &other.rows[i]) / other.rows[i].seconds, 1, 1e-6);
    }
    /* A sum of equal ops is so many times one. */
    double x[RU_TIMING_COLUMNS] = {0};
    for (uint32_t c = 0; c < RU_TIMING_COLUMNS; c++) {
        x[c] = 3 * m.x[0][c];
    }
    const ru_timing_row three = {.kind = m.rows[0].kind, .x = x};
    assert_near(ru_timing_at(&model, &three), 3 * m.rows[0].seconds, 1e-6 * m.rows[0].seconds);
    /* A kind without timings takes its parent's model, else that of all. */
    const ru_timing_row unseen = {.kind = 4, .x = m.x[0]};
    assert_true(ru_timing_at(&model, &unseen) > 0);
    ru_arena_fini(&a);
}

/* theta is what a plain search over two columns finds as well. */
static void input_size_alone_is_the_least_weighted_square(void **state)
{
    (void)state;
    static made m;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_timing_model model;
    ru_err err;
    const bool heavy[RU_ARRAY_LEN(kinds)] = {true, true, true, true, true};
    make(&m, 0.3, 3);
    m.in.method = RU_TIMING_CEER;
    m.in.heavy = heavy;
    assert_ok(ru_timing_fit(&m.in, &a, &a, &model, &err), err);
    const double *theta = model.theta + 2 * RU_TIMING_COLUMNS; /* "add" */
    double at = 0;
    for (uint32_t step = 0; step < 3; step++) {
        double sum = 0;
        for (uint32_t i = 0; i < ROWS; i++) {
            if (m.rows[i].kind == 2) {
                double b = step == 0 ? 1 : step == 1 ? 1.001 : 0.999, p = 0;
                for (uint32_t c = 0; c < RU_TIMING_COLUMNS; c++) {
                    p += theta[c] * (c == 1 ? b : 1) * m.x[i][c];
                }
                double t = m.rows[i].seconds;
                sum += (t - p) * (t - p) / fmax(t, 1e-4);
            }
        }
        at = step == 0 ? sum : at;
        assert_true(sum >= at);
    }
    m.in.method = RU_TIMING_MEDIAN;
    assert_ok(ru_timing_fit(&m.in, &a, &a, &model, &err), err);
    uint32_t below = 0, n = 0;
    for (uint32_t i = 0; i < ROWS; i++) {
        n += m.rows[i].kind == 1 ? 1 : 0;
        below += m.rows[i].kind == 1 && m.rows[i].seconds < model.theta[RU_TIMING_COLUMNS] ? 1 : 0;
    }
    assert_in_range(2 * below, n - 1, n + 1);
    ru_arena_fini(&a);
}

/* Networks drawn anew: their steps stay below the margin as often as it says. */
static void margins_hold_as_often_as_they_say(void **state)
{
    (void)state;
    static made m, other;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    uint32_t below = 0, rounds = 60;
    double factor;
    static ru_timing_row rows[ROWS];
    ru_timing_case cases[NETS];
    for (uint32_t seed = 0; seed < rounds; seed++) {
        ru_timing_model model;
        double is = 0, was = 0;
        make(&m, 0.4, 100 + seed);
        make(&other, 0.4, 900 + seed);
        for (uint32_t net = 0, n = 0; net < NETS; net++) {
            cases[net] = (ru_timing_case){net, rows + n, 0, true, {.devices = 1}};
            for (uint32_t i = net; i < ROWS; i += NETS) {
                rows[n++] = m.rows[i];
                cases[net].n++;
            }
        }
        assert_ok(ru_timing_margin(&m.in, cases, NETS, 0.8, &a, &factor, &err), err);
        assert_ok(ru_timing_fit(&m.in, &a, &a, &model, &err), err);
        for (uint32_t i = 0; i < ROWS; i += NETS) {
            is += other.rows[i].seconds;
            was += ru_timing_at(&model, &other.rows[i]);
        }
        assert_true(factor >= 1);
        below += is <= was * factor ? 1 : 0;
    }
    assert_in_range(below, rounds * 65 / 100, rounds * 95 / 100);
    /* Two networks are too few for 80 %, one for anything. */
    assert_ok(ru_timing_margin(&m.in, cases, 2, 0.8, &a, &factor, &err), err);
    assert_true(isinf(factor));
    assert_ok(ru_timing_margin(&m.in, cases, 1, 0.1, &a, &factor, &err), err);
    assert_true(isinf(factor));
    assert_int_equal(ru_timing_margin(&m.in, cases, NETS, 1, &a, &factor, NULL), RU_E_ARG);
    cases[0].net = NETS;
    assert_int_equal(ru_timing_margin(&m.in, cases, NETS, 0.8, &a, &factor, NULL), RU_E_ARG);
    ru_arena_fini(&a);
}

/* Steps of equal ops, so that the fit is a harmonic mean of ratios: every level by its definition.
 * The last network has two cases of half its weight each. */
static void margins_are_quantiles_over_networks(void **state)
{
    (void)state;
    enum { FEW = 9, CASES = FEW + 1, GROUPS = 8 };
    static made m;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    make(&m, 0, 1);
    ru_rng r = ru_rng_from(5, 5);
    ru_timing_case cases[CASES];
    double ratio[CASES], score[CASES], one = 0, factor;
    for (uint32_t i = 0; i < ROWS; i++) {
        one += m.rows[i].seconds;
    }
    for (uint32_t i = 0; i < CASES; i++) {
        ratio[i] = ru_rng_uniform(&r, 1, 2);
        cases[i] = (ru_timing_case){
            i < FEW ? i : FEW - 1, m.rows, ROWS, true, {.devices = 1, .seconds = ratio[i] * one}};
    }
    for (uint32_t i = 0; i < CASES; i++) {
        double sum = 0, n = 0;
        for (uint32_t k = 0; k < CASES; k++) {
            bool rest = cases[k].net % GROUPS != cases[i].net % GROUPS;
            sum += rest ? 1 / ratio[k] : 0;
            n += rest;
        }
        score[i] = ratio[i] * sum / n;
    }
    for (double p = 0.03; p < 0.9; p += 0.05) { /* weights are halves: no level is hit */
        double want = (double)INFINITY;
        for (uint32_t i = 0; i < CASES; i++) {
            double weight = 0;
            for (uint32_t k = 0; k < CASES; k++) {
                weight += score[k] <= score[i] ? (k < FEW - 1 ? 1 : 0.5) : 0;
            }
            want = weight >= p * (FEW + 1) ? fmin(want, score[i]) : want;
        }
        assert_ok(ru_timing_margin(&m.in, cases, CASES, p, &a, &factor, &err), err);
        assert_near(factor, fmax(want, 1), 1e-6);
    }
    /* A timing that was cut off teaches nothing: with and without it the others fare alike. */
    double with = 0, without = 0;
    ru_timing_row bad = m.rows[0];
    bad.seconds *= 1000;
    cases[3].rows = &bad;
    cases[3].n = 1;
    cases[3].teaches = false;
    cases[3].step.seconds = 1e-9; /* and is below any margin */
    assert_ok(ru_timing_margin(&m.in, cases, CASES, 0.83, &a, &with, &err), err);
    bad.seconds *= 1000;
    assert_ok(ru_timing_margin(&m.in, cases, CASES, 0.83, &a, &without, &err), err);
    assert_near(with, without, 1e-9);
    ru_arena_fini(&a);
}

static void trees_without_a_library_say_so(void **state)
{
    (void)state;
    static made m;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_timing_model model;
    make(&m, 0.02, 5);
    m.in.method = RU_TIMING_TREES;
    assert_int_equal(ru_timing_fit(&m.in, &a, &a, &model, &err), RU_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "XGBoost"));
    ru_arena_fini(&a);
}

static void steps_are_ops_and_what_surrounds_them(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_rng r = ru_rng_from(9, 9);
    ru_timing_step s[40];
    for (uint32_t i = 0; i < 40; i++) {
        s[i] = (ru_timing_step){.ops_s = ru_rng_uniform(&r, 0.01, 1),
                                .launches = 1.0 + ru_rng_below(&r, 300),
                                .host_bytes = 1e6 * (1.0 + ru_rng_below(&r, 90)),
                                .param_bytes = 1e6 * (1.0 + ru_rng_below(&r, 500)),
                                .devices = i < 20 ? 1 : 2 + i % 3};
        double d = s[i].devices;
        s[i].seconds = 1.05 * s[i].ops_s + 4e-5 * s[i].launches + 3e-10 * s[i].host_bytes + 1e-3 +
                       2 * (d - 1) * 1e-4 + 2 * (d - 1) / d * s[i].param_bytes * 1e-10;
    }
    ru_timing_step_model m;
    assert_ok(ru_timing_step_fit(s, 40, NULL, 1, &a, &a, &m, &err), err);
    assert_true(m.sums);
    for (uint32_t i = 0; i < 40; i++) {
        double sum = s[i].devices > 1 ? ru_timing_sum_at(&m, &s[i]) : 0;
        assert_near(ru_timing_step_at(&m, &s[i]) + sum, s[i].seconds, 1e-6);
    }
    /* Few steps give one ratio, none gives the sum over ops. */
    assert_ok(ru_timing_step_fit(s, 1, NULL, 1, &a, &a, &m, &err), err);
    assert_near(ru_timing_step_at(&m, &s[0]), s[0].seconds, 1e-9);
    assert_ok(ru_timing_step_fit(s, 0, NULL, 1, &a, &a, &m, &err), err);
    assert_near(ru_timing_step_at(&m, &s[1]), s[1].ops_s, 1e-12);
    s[0].seconds = RU_NAN;
    assert_int_equal(ru_timing_step_fit(s, 1, NULL, 1, &a, &a, &m, &err), RU_E_ARG);
    ru_arena_fini(&a);
}

static void rooflines_scale_by_what_limits(void **state)
{
    (void)state;
    double bytes[RU_TIMING_COLUMNS] = {1, 1e9}, flops[RU_TIMING_COLUMNS] = {1, 1, 0, 0, 0, 1e15};
    /* Twice the memory speed, four times the flops. */
    assert_near(ru_timing_scaled(bytes, 1, 1e9, 1e12, 2e9, 4e12), 0.5, 1e-9);
    assert_near(ru_timing_scaled(flops, 1, 1e9, 1e12, 2e9, 4e12), 0.25, 1e-3);
}

static void bad_timings_are_refused(void **state)
{
    (void)state;
    static made m;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_timing_model model;
    static const double bad[] = {RU_NAN, -1, INFINITY, 1e12};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        make(&m, 0, 1);
        m.rows[3].seconds = bad[k];
        assert_int_equal(ru_timing_fit(&m.in, &a, &a, &model, NULL), RU_E_ARG);
    }
    make(&m, 0, 1);
    m.x[5][2] = RU_NAN;
    assert_int_equal(ru_timing_fit(&m.in, &a, &a, &model, NULL), RU_E_ARG);
    make(&m, 0, 1);
    m.rows[0].kind = 5;
    assert_int_equal(ru_timing_fit(&m.in, &a, &a, &model, NULL), RU_E_ARG);
    make(&m, 0, 1);
    ru_arena small;
    uint8_t room[2000];
    ru_arena_init_fixed(&small, room, sizeof room);
    assert_int_equal(ru_timing_fit(&m.in, &a, &small, &model, NULL), RU_E_LIMIT);
    ru_arena_fini(&a);
}

RU_TESTS(cost_timing, cmocka_unit_test(times_that_follow_the_columns_come_back),
         cmocka_unit_test(input_size_alone_is_the_least_weighted_square),
         cmocka_unit_test(margins_hold_as_often_as_they_say),
         cmocka_unit_test(margins_are_quantiles_over_networks),
         cmocka_unit_test(trees_without_a_library_say_so),
         cmocka_unit_test(steps_are_ops_and_what_surrounds_them),
         cmocka_unit_test(rooflines_scale_by_what_limits),
         cmocka_unit_test(bad_timings_are_refused))
